// SPDX-License-Identifier: Apache-2.0
/*
 * Text to ids:  repair UTF-8 -> cut out added tokens -> for each segment between them: normalise,
 * spaces, model.
 */
#include <string.h>

#include "runtime/text/tok_internal.h"

#define TEXT_LIMIT ((size_t)1 << 30)

void *tok_work_take(struct tok_work *w, size_t n_bytes)
{
    size_t n = TOK_WORK_ALIGN(n_bytes);
    if (n < n_bytes || n > w->cap - w->n) return NULL;
    void *p = w->p + w->n;
    w->n += n;
    return p;
}

void tok_put_fallback(const struct tok *t, const uint8_t *p, size_t n, bool *in_unknown,
                      struct tok_out *out)
{
    uint32_t unknown = t->h->special[TOK_SPECIAL_UNK];
    bool spell = (t->h->flags & TOK_F_BYTE_FALLBACK) ||
                 (t->h->model == TOK_MODEL_BPE && !(t->h->flags & TOK_F_CHARS));
    for (size_t i = 0; spell && i < n; i++) {
        uint32_t id = t->byte_ids[p[i]];
        if (id < t->h->n_tokens)
            tok_put(out, id);
        else if (unknown != TOK_NONE)
            tok_put(out, unknown);
    }
    if (!spell && unknown != TOK_NONE && !(in_unknown != NULL && *in_unknown))
        tok_put(out, unknown);
    if (in_unknown != NULL) *in_unknown = !spell;
}

/* ---- planning
 * ------------------------------------------------------------------------------------ */

/* Bytes of the text after normalising, at most, however it is cut into segments. */
static struct tok_norm_size normalised_size(const struct tok *t, const uint8_t *p, size_t n)
{
    static const uint8_t replacement[3] = {0xef, 0xbf, 0xbd};
    struct tok_norm_size size = {0, 0};
    for (size_t i = 0; i < n;) {
        int valid;
        unsigned len = utf8_scan(p + i, n - i, &valid);
        if (t->charsmap.n > 0)
            size.bytes += valid == 1 ? tok_charsmap_plan_char(t, p + i, n - i)
                                     : tok_charsmap_plan_char(t, replacement, 3);
        else if (t->norm != NULL)
            tok_norm_plan_char(t, valid == 1 ? utf8_get(p + i) : 0xfffd, &size);
        else
            size.bytes += valid == 1 ? len : 3;
        i += len;
    }
    return size;
}

static size_t model_work(const struct tok *t, size_t n)
{
    switch ((enum tok_model)t->h->model) {
    case TOK_MODEL_BPE: return tok_bpe_work(t, n);
    case TOK_MODEL_SPM: return tok_spm_work(t, n);
    case TOK_MODEL_UNIGRAM: return tok_unigram_work(t, n);
    case TOK_MODEL_WORDPIECE:
    case TOK_MODEL_GREEDY: return tok_wordpiece_work(t, n);
    }
    return 0;
}

enum tok_status tok_encode_plan(const struct tok *t, const char *text, size_t len,
                                size_t *work_bytes, size_t *max_ids)
{
    *work_bytes = *max_ids = 0;
    if (len >= TEXT_LIMIT) return TOK_ERR_SIZE;
    struct tok_norm_size size = normalised_size(t, (const uint8_t *)text, len);
    if (size.bytes >= 2 * TEXT_LIMIT) return TOK_ERR_SIZE;
    size_t work = 64;
    work += TOK_WORK_ALIGN(utf8_repaired_size((const uint8_t *)text, len));
    work += TOK_WORK_ALIGN(size.bytes) + TOK_NORM_WORK(size.chars);
    work += TOK_WORK_ALIGN(size.bytes + 2) + model_work(t, size.bytes + 2);
    *work_bytes = work;
    /* Every id stands for a byte at least, but for the space put before a segment; two segments
     * have a token of a byte or more between them. */
    *max_ids = size.bytes + len / 2 + 8;
    return TOK_OK;
}

/* ---- segments
 * -------------------------------------------------------------------------------------- */

struct encoder {
    const struct tok *t;
    struct tok_work work;
    struct tok_out out;
};

/* Spaces as the model's settings say: U+2581 read as a space, runs merged, one put before or
 * behind. Into dst, which has room for n + 2 bytes; returns the length. */
static size_t place_spaces(const struct tok *t, const uint8_t *p, size_t n, bool prefix,
                           uint8_t *dst)
{
    uint32_t flags = t->h->flags;
    bool escape = flags & TOK_F_ESCAPE_SPACES, merge = flags & TOK_F_MERGE_SPACES,
         suffix = flags & TOK_F_SPACE_SUFFIX;
    size_t out = prefix && !suffix ? 1 : 0, begin = out;
    for (size_t i = 0; i < n;) {
        uint8_t b = p[i++];
        if (escape && b == 0xe2 && n - i >= 2 && p[i] == 0x96 && p[i + 1] == 0x81) {
            b = ' ';
            i += 2;
        }
        if (merge && b == ' ' && (out == begin || dst[out - 1] == ' ')) continue;
        dst[out++] = b;
    }
    while (merge && out > begin && dst[out - 1] == ' ') out--;
    if (out == begin) return 0;
    if (begin > 0) dst[0] = ' ';
    if (prefix && suffix) dst[out++] = ' ';
    return out;
}

static bool run_model(struct encoder *e, const uint8_t *p, size_t n)
{
    switch ((enum tok_model)e->t->h->model) {
    case TOK_MODEL_BPE: return tok_encode_bpe(e->t, p, n, &e->work, &e->out);
    case TOK_MODEL_SPM: return tok_encode_spm(e->t, p, n, &e->work, &e->out);
    case TOK_MODEL_UNIGRAM: return tok_encode_unigram(e->t, p, n, &e->work, &e->out);
    case TOK_MODEL_WORDPIECE: return tok_encode_wordpiece(e->t, p, n, &e->work, &e->out);
    case TOK_MODEL_GREEDY: return tok_encode_greedy(e->t, p, n, &e->work, &e->out);
    }
    return true;
}

/* Normalised text of a segment in the workspace, or the segment itself. */
static const uint8_t *normalise(struct encoder *e, const uint8_t *p, size_t *n)
{
    struct tok_norm_size size = {0, 0};
    const struct tok *t = e->t;
    bool map = t->charsmap.n > 0;
    if (!map && (t->norm == NULL || tok_norm_is_identity(t, p, *n))) return p;
    for (size_t i = 0; i < *n; i += utf8_length(p[i])) {
        if (map)
            size.bytes += tok_charsmap_plan_char(t, p + i, *n - i);
        else
            tok_norm_plan_char(t, utf8_get(p + i), &size);
    }
    uint8_t *out = tok_work_take(&e->work, size.bytes);
    if (out == NULL) return NULL;
    bool good = map ? tok_charsmap_run(t, p, *n, out, size.bytes, n)
                    : tok_norm_run(t, p, *n, &e->work, out, size.bytes, n);
    return good ? out : NULL;
}

static bool encode_segment(struct encoder *e, const uint8_t *p, size_t n, bool prefix)
{
    if (n == 0) return true;
    const struct tok *t = e->t;
    size_t mark = e->work.n;
    p = normalise(e, p, &n);
    if (p == NULL) return false;
    prefix = prefix && (t->h->flags & TOK_F_SPACE_PREFIX);
    bool escapes = (t->h->flags & TOK_F_ESCAPE_SPACES) && t->h->model != TOK_MODEL_WORDPIECE;
    if (escapes || prefix || (t->h->flags & TOK_F_MERGE_SPACES)) {
        uint8_t *dst = tok_work_take(&e->work, n + 2);
        if (dst == NULL) return false;
        n = place_spaces(t, p, n, prefix, dst);
        p = dst;
    }
    bool good = run_model(e, p, n);
    e->work.n = mark;
    return good;
}

static bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

size_t tok_match_added(const struct tok *t, const uint8_t *p, size_t n, unsigned flags, uint32_t *id)
{
    uint32_t node = 0;
    size_t found = 0;
    if (!n || !(t->added_first[p[0] >> 3] >> (p[0] & 7) & 1)) return 0;
    for (size_t i = 0; i < n; i++) {
        node = tok_trie_step(&t->added, node, p[i] + 1u);
        if (node == TOK_NONE) break;
        uint32_t v = tok_trie_value(&t->added, node);
        if (v >= t->h->n_tokens) continue;
        if (!(flags & TOK_ENCODE_SPECIAL) && (t->attrs[v] & TOK_ATTR_TYPE) != TOK_TYPE_USER_DEFINED)
            continue;
        *id = v;
        found = i + 1;
    }
    return found;
}

static bool encode_text(struct encoder *e, const uint8_t *p, size_t n, unsigned flags)
{
    const struct tok *t = e->t;
    bool prefix = !(flags & TOK_ENCODE_CONTINUED);
    size_t begin = 0;
    for (size_t i = 0; i < n;) {
        uint32_t id = 0;
        size_t len = tok_match_added(t, p + i, n - i, flags, &id);
        if (len == 0) {
            i += utf8_length(p[i]);
            continue;
        }
        size_t end = i;
        while ((t->attrs[id] & TOK_ATTR_LSTRIP) && end > begin && is_space(p[end - 1])) end--;
        if (!encode_segment(e, p + begin, end - begin, prefix)) return false;
        tok_put(&e->out, id);
        i += len;
        while ((t->attrs[id] & TOK_ATTR_RSTRIP) && i < n && is_space(p[i])) i++;
        begin = i;
        prefix = true;
    }
    return encode_segment(e, p + begin, n - begin, prefix);
}

enum tok_status tok_encode(const struct tok *t, const char *text, size_t len, unsigned flags,
                           void *work, size_t work_bytes, uint32_t *ids, size_t cap, size_t *count)
{
    struct encoder e = {.t = t, .out = {.ids = ids, .cap = cap}};
    const uint32_t *special = t->h->special;
    const uint8_t *p = (const uint8_t *)text;
    size_t skew = (size_t)(-(uintptr_t)work & 7);
    *count = 0;
    if (len >= TEXT_LIMIT) return TOK_ERR_SIZE;
    if (work_bytes < skew) return TOK_ERR_WORK;
    e.work = (struct tok_work){(uint8_t *)work + skew, 0, work_bytes - skew};
    if (!utf8_is_valid(p, len)) {
        uint8_t *repaired = tok_work_take(&e.work, utf8_repaired_size(p, len));
        if (repaired == NULL) return TOK_ERR_WORK;
        len = utf8_repair(p, len, repaired);
        p = repaired;
    }
    if ((flags & TOK_ENCODE_BOS) && tok_wants(t, TOK_F_ADD_BOS) &&
        special[TOK_SPECIAL_BOS] != TOK_NONE)
        tok_put(&e.out, special[TOK_SPECIAL_BOS]);
    if (!encode_text(&e, p, len, flags)) return TOK_ERR_WORK;
    if ((flags & TOK_ENCODE_EOS) && tok_wants(t, TOK_F_ADD_EOS) &&
        special[TOK_SPECIAL_EOS] != TOK_NONE)
        tok_put(&e.out, special[TOK_SPECIAL_EOS]);
    if ((flags & TOK_ENCODE_EOS) && tok_wants(t, TOK_F_ADD_SEP) &&
        special[TOK_SPECIAL_SEP] != TOK_NONE)
        tok_put(&e.out, special[TOK_SPECIAL_SEP]);
    *count = e.out.n;
    return e.out.n <= cap ? TOK_OK : TOK_ERR_SPACE;
}
