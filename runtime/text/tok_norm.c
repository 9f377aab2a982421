// SPDX-License-Identifier: Apache-2.0
/*
 * Normalizers: clean up, decompose, order marks, compose, strip and lower-case; whichever of these
 * the tokenizer's tables say. And SentencePiece's prefix map. All linear: marks are ordered by
 * counting when there are many.
 */
#include <string.h>

#include "runtime/text/tok_internal.h"

#define STAGE1_COUNT 0x2200u
#define REPLACEMENT 0xfffdu
/* A code point on its way, with its combining class above. */
#define CHAR(x) ((x)&0x1fffffu)
#define CCC(x) ((x) >> 21)

enum { HANGUL = 0xac00, HANGUL_END = 0xd7a4, JAMO_L = 0x1100, JAMO_V = 0x1161, JAMO_T = 0x11a7 };

struct norm {
    const struct tok_norm_header *h;
    const uint16_t *stage1, *stage2;
    const struct tok_char *records;
    const uint32_t *pool;
    const struct tok_compose *compose;
};

static bool table_fits(uint32_t at, uint64_t count, size_t elem, size_t n_bytes)
{
    return at % 8 == 0 && at <= n_bytes && count <= (n_bytes - at) / elem;
}

static struct norm open_norm(const uint8_t *s)
{
    const struct tok_norm_header *h = (const void *)s;
    return (struct norm){h,
                         (const void *)(s + h->stage1),
                         (const void *)(s + h->stage2),
                         (const void *)(s + h->records),
                         (const void *)(s + h->pool),
                         (const void *)(s + h->compose)};
}

bool tok_norm_check(const uint8_t *s, size_t n_bytes)
{
    const struct tok_norm_header *h = (const void *)s;
    if (n_bytes < sizeof *h || h->n_records == 0 || h->n_records > 65536) return false;
    if (!table_fits(h->stage1, STAGE1_COUNT, 2, n_bytes) ||
        !table_fits(h->stage2, (uint64_t)h->n_blocks * 128, 2, n_bytes) ||
        !table_fits(h->records, h->n_records, sizeof(struct tok_char), n_bytes) ||
        !table_fits(h->pool, h->n_pool, 4, n_bytes) ||
        !table_fits(h->compose, h->compose_slots, sizeof(struct tok_compose), n_bytes))
        return false;
    if (h->compose_slots & (h->compose_slots - 1)) return false;
    if ((h->flags & TOK_NORM_COMPOSE) && h->compose_slots == 0) return false;
    struct norm m = open_norm(s);
    for (uint32_t i = 0; i < STAGE1_COUNT; i++)
        if (m.stage1[i] >= h->n_blocks) return false;
    for (size_t i = 0; i < (size_t)h->n_blocks * 128; i++)
        if (m.stage2[i] >= h->n_records) return false;
    for (uint32_t i = 0; i < h->n_records; i++) {
        const struct tok_char *r = &m.records[i];
        if (r->decomp > h->n_pool || r->decomp_len > h->n_pool - r->decomp) return false;
        if (r->lower > h->n_pool || r->lower_len > h->n_pool - r->lower) return false;
    }
    for (uint32_t i = 0; i < h->n_pool; i++)
        if (m.pool[i] > 0x10ffff) return false;
    for (uint32_t i = 0; i < h->compose_slots; i++)
        if (m.compose[i].result > 0x10ffff) return false;
    return true;
}

static const struct tok_char *record_of(const struct norm *m, uint32_t c)
{
    return &m->records[m->stage2[(uint32_t)m->stage1[c >> 7] << 7 | (c & 127)]];
}

uint8_t tok_norm_flags(const struct tok *t, uint32_t c)
{
    if (t->norm == NULL) return 0;
    struct norm m = open_norm(t->norm);
    return record_of(&m, c)->flags;
}

/* Decomposition of c; *one serves as its storage when it is c itself. */
static const uint32_t *decompose(const struct norm *m, uint32_t c, uint32_t one[3], unsigned *n)
{
    const struct tok_char *r = record_of(m, c);
    one[0] = c;
    *n = 1;
    if (!(m->h->flags & TOK_NORM_DECOMPOSE)) return one;
    if (c >= HANGUL && c < HANGUL_END) {
        uint32_t s = c - HANGUL;
        one[0] = JAMO_L + s / 588;
        one[1] = JAMO_V + s % 588 / 28;
        one[2] = JAMO_T + s % 28;
        *n = s % 28 ? 3 : 2;
        return one;
    }
    if (r->decomp_len == 0) return one;
    *n = r->decomp_len;
    return m->pool + r->decomp;
}

void tok_norm_plan_char(const struct tok *t, uint32_t c, struct tok_norm_size *size)
{
    uint32_t one[3];
    unsigned n;
    struct norm m = open_norm(t->norm);
    const uint32_t *seq = decompose(&m, c, one, &n);
    for (unsigned i = 0; i < n; i++) {
        const struct tok_char *r = record_of(&m, seq[i]);
        size_t lower = 0, own = utf8_size(seq[i]);
        for (unsigned k = 0; k < r->lower_len; k++) lower += utf8_size(m.pool[r->lower + k]);
        size->bytes += lower > own ? lower : own;
        size->chars++;
    }
    if (record_of(&m, c)->flags & TOK_CHAR_ISOLATE) {
        size->bytes += 2;
        size->chars += 2;
    }
}

bool tok_norm_is_identity(const struct tok *t, const uint8_t *p, size_t n)
{
    const struct tok_norm_header *h = (const void *)t->norm;
    if (h->flags & (TOK_NORM_CLEAN | TOK_NORM_POST)) return false;
    /* Below U+0300 everything is composed; below U+0080 nothing decomposes either. */
    uint8_t limit = (h->flags & TOK_NORM_COMPOSE) ? 0xcc : 0x80;
    /* U+00A0 and others have compatibility decompositions; only ASCII is safe from those. */
    struct norm m = open_norm(t->norm);
    if (record_of(&m, 0xa0)->decomp_len > 0) limit = 0x80;
    for (size_t i = 0; i < n; i++)
        if (p[i] >= limit) return false;
    return true;
}

/* Stable sort of marks by combining class. */
static void order_marks(uint32_t *v, size_t n, uint32_t *spare)
{
    if (n < 2) return;
    if (n <= 32) {
        for (size_t i = 1; i < n; i++) {
            uint32_t x = v[i];
            size_t k = i;
            for (; k > 0 && CCC(v[k - 1]) > CCC(x); k--) v[k] = v[k - 1];
            v[k] = x;
        }
        return;
    }
    size_t place[257] = {0};
    for (size_t i = 0; i < n; i++) place[CCC(v[i]) + 1]++;
    for (size_t i = 1; i < 257; i++) place[i] += place[i - 1];
    memcpy(spare, v, n * sizeof v[0]);
    for (size_t i = 0; i < n; i++) v[place[CCC(spare[i])]++] = spare[i];
}

static void order_all(uint32_t *v, size_t n, uint32_t *spare)
{
    for (size_t i = 0; i < n;) {
        size_t begin = i;
        while (i < n && CCC(v[i]) != 0) i++;
        order_marks(v + begin, i - begin, spare);
        if (i < n) i++;
    }
}

/* What a and b compose to, or 0. */
static uint32_t compose_pair(const struct norm *m, uint32_t a, uint32_t b)
{
    if (a >= JAMO_L && a < JAMO_L + 19 && b >= JAMO_V && b < JAMO_V + 21)
        return HANGUL + (a - JAMO_L) * 588 + (b - JAMO_V) * 28;
    if (a >= HANGUL && a < HANGUL_END && (a - HANGUL) % 28 == 0 && b > JAMO_T && b < JAMO_T + 28)
        return a + b - JAMO_T;
    uint32_t mask = m->h->compose_slots - 1, at = tok_hash_pair(a, b) & mask;
    for (uint32_t steps = 0; steps <= mask && m->compose[at].first != 0; steps++) {
        if (m->compose[at].first == a && m->compose[at].second == b) return m->compose[at].result;
        at = (at + 1) & mask;
    }
    return 0;
}

/* Canonical composition in place; a mark composes with the last starter unless one of its class or
 * a starter lies between. Returns the new length. */
static size_t compose_all(const struct norm *m, uint32_t *v, size_t n)
{
    size_t out = 0, starter = 0;
    bool have_starter = false;
    uint32_t last = 0; /* class of the previous character that stayed */
    for (size_t i = 0; i < n; i++) {
        uint32_t c = CHAR(v[i]), ccc = CCC(v[i]);
        bool blocked = out > starter + 1 && (last >= ccc || last == 0);
        uint32_t made = have_starter && !blocked ? compose_pair(m, CHAR(v[starter]), c) : 0;
        if (made != 0) {
            v[starter] = made; /* composites that exist are starters */
            continue;
        }
        if (ccc == 0) {
            starter = out;
            have_starter = true;
        }
        last = ccc;
        v[out++] = v[i];
    }
    return out;
}

static size_t put_char(const struct norm *m, uint32_t c, uint8_t *out, size_t cap, bool *fits)
{
    uint8_t buf[4];
    const struct tok_char *r = record_of(m, c);
    if ((m->h->flags & TOK_NORM_POST) && (r->flags & TOK_CHAR_STRIP)) return 0;
    bool lower = (m->h->flags & TOK_NORM_POST) && r->lower_len > 0;
    size_t n = 0;
    for (unsigned i = 0; i < (lower ? r->lower_len : 1u); i++) {
        unsigned len = utf8_put(buf, lower ? m->pool[r->lower + i] : c);
        if (len > cap - n) {
            *fits = false;
            return n;
        }
        memcpy(out + n, buf, len);
        n += len;
    }
    return n;
}

bool tok_norm_run(const struct tok *t, const uint8_t *p, size_t n, struct tok_work *w, uint8_t *out,
                  size_t cap, size_t *n_out)
{
    struct norm m = open_norm(t->norm);
    struct tok_norm_size size = {0, 0};
    bool clean = m.h->flags & TOK_NORM_CLEAN, fits = true;
    size_t mark = w->n, count = 0;
    for (size_t i = 0; i < n; i += utf8_length(p[i])) tok_norm_plan_char(t, utf8_get(p + i), &size);
    uint32_t *v = tok_work_take(w, 4 * size.chars), *spare = tok_work_take(w, 4 * size.chars),
             one[3];
    if (v == NULL || spare == NULL) return false;
    for (size_t i = 0; i < n; i += utf8_length(p[i])) {
        uint32_t c = utf8_get(p + i);
        uint8_t flags = clean ? record_of(&m, c)->flags : 0;
        if (flags & TOK_CHAR_DROP) continue;
        if (flags & TOK_CHAR_SPACE) c = ' ';
        if (flags & TOK_CHAR_ISOLATE) v[count++] = ' ';
        unsigned len;
        const uint32_t *seq = decompose(&m, c, one, &len);
        for (unsigned k = 0; k < len; k++)
            v[count++] = seq[k] | (uint32_t)record_of(&m, seq[k])->ccc << 21;
        if (flags & TOK_CHAR_ISOLATE) v[count++] = ' ';
    }
    if (m.h->flags & TOK_NORM_DECOMPOSE) order_all(v, count, spare);
    if (m.h->flags & TOK_NORM_COMPOSE) count = compose_all(&m, v, count);
    *n_out = 0;
    for (size_t i = 0; i < count && fits; i++)
        *n_out += put_char(&m, CHAR(v[i]), out + *n_out, cap - *n_out, &fits);
    w->n = mark;
    return fits;
}

/* ---- SentencePiece's map
 * ------------------------------------------------------------------------- */

static size_t replacement_at(const struct tok *t, uint32_t at, const uint8_t **text)
{
    if (at >= t->charsmap_text_bytes) return 0;
    *text = t->charsmap_text + at;
    return strlen((const char *)*text); /* tok_open has checked that the last one ends */
}

size_t tok_charsmap_plan_char(const struct tok *t, const uint8_t *p, size_t n)
{
    size_t most = 4;
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *text;
        node = tok_trie_step(&t->charsmap, node, p[i] + 1u);
        if (node == TOK_NONE) break;
        uint32_t at = tok_trie_value(&t->charsmap, node);
        size_t len = at == TOK_NONE ? 0 : replacement_at(t, at, &text);
        if (len > most) most = len;
    }
    return most;
}

bool tok_charsmap_run(const struct tok *t, const uint8_t *p, size_t n, uint8_t *out, size_t cap,
                      size_t *n_out)
{
    *n_out = 0;
    for (size_t i = 0; i < n;) {
        const uint8_t *text = p + i;
        size_t taken = utf8_length(p[i]), len = taken;
        uint32_t node = 0;
        for (size_t k = i; k < n; k++) {
            node = tok_trie_step(&t->charsmap, node, p[k] + 1u);
            if (node == TOK_NONE) break;
            uint32_t at = tok_trie_value(&t->charsmap, node);
            if (at == TOK_NONE) continue;
            len = replacement_at(t, at, &text);
            taken = k + 1 - i;
        }
        if (len > cap - *n_out) return false;
        if (len > 0) memcpy(out + *n_out, text, len);
        *n_out += len;
        i += taken;
    }
    return true;
}
