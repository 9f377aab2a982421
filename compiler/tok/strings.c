// SPDX-License-Identifier: Apache-2.0
#include "compiler/tok/strings.h"

#include <stdio.h>
#include <string.h>

/* ---- what a token's text stands for
 * -------------------------------------------------------------- */

/* GPT-2 writes a byte as the character of its number where that is printable, the others as
 * U+0100... in order. */
static bool is_plain_byte(unsigned b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

static unsigned byte_to_char(uint8_t byte)
{
    unsigned n = 256;
    if (is_plain_byte(byte)) return byte;
    for (unsigned b = 0; b < byte; b++) n += !is_plain_byte(b);
    return n;
}

/* Text in GPT-2's byte alphabet to bytes; false when some character is not of it. */
static bool decode_gpt2(const uint16_t *byte_of, struct tok_text t, uint8_t *out, size_t *n_out)
{
    size_t n = 0;
    for (size_t i = 0; i < t.n; i++) {
        unsigned c = (uint8_t)t.p[i];
        if (c >= 0x80) {
            if (c < 0xc2 || c > 0xc5 || i + 1 == t.n || ((uint8_t)t.p[i + 1] & 0xc0) != 0x80)
                return false;
            c = (c & 0x1f) << 6 | ((uint8_t)t.p[++i] & 0x3f);
        }
        if (c >= GPT2_CHARS || byte_of[c] > 255) return false;
        out[n++] = (uint8_t)byte_of[c];
    }
    *n_out = n;
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static size_t decode_rwkv(struct tok_text t, uint8_t *out)
{
    size_t n = 0;
    for (size_t i = 0; i < t.n; i++) {
        if (t.p[i] != '\\' || i + 1 == t.n) {
            out[n++] = (uint8_t)t.p[i];
            continue;
        }
        char c = t.p[++i];
        if (c == 'x' && i + 2 < t.n && hex_value(t.p[i + 1]) >= 0 && hex_value(t.p[i + 2]) >= 0) {
            out[n++] = (uint8_t)(hex_value(t.p[i + 1]) << 4 | hex_value(t.p[i + 2]));
            i += 2;
        } else {
            out[n++] = (uint8_t)(c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c);
        }
    }
    return n;
}

/* U+2581 to a space; in WordPiece, where it marks the beginning of a word, only there. */
static size_t decode_spaces(struct tok_text t, bool only_first, uint8_t *out)
{
    size_t n = 0;
    for (size_t i = 0; i < t.n; i++) {
        if (i + 2 < t.n && memcmp(t.p + i, "\xe2\x96\x81", 3) == 0 && !(only_first && i > 0)) {
            out[n++] = ' ';
            i += 2;
        } else {
            out[n++] = (uint8_t)t.p[i];
        }
    }
    return n;
}

static int byte_token_value(struct tok_text t)
{
    if (t.n != 6 || memcmp(t.p, "<0x", 3) != 0 || t.p[5] != '>') return -1;
    int hi = hex_value(t.p[3]), lo = hex_value(t.p[4]);
    return hi < 0 || lo < 0 ? -1 : hi << 4 | lo;
}

static struct tok_text decode(struct tok_strings *s, struct tok_text raw, unsigned type)
{
    uint8_t *out = arena_alloc(s->arena, raw.n + 1);
    size_t n = raw.n;
    int byte = type == TOK_TYPE_BYTE ? byte_token_value(raw) : -1;
    bool literal =
        type == TOK_TYPE_CONTROL || type == TOK_TYPE_UNKNOWN || type == TOK_TYPE_USER_DEFINED;
    if (byte >= 0) {
        out[0] = (uint8_t)byte;
        n = 1;
    } else if (s->d->byte_form == TOK_BYTES_RWKV) {
        n = decode_rwkv(raw, out);
    } else if (literal ||
               (s->d->byte_form == TOK_BYTES_GPT2 && !decode_gpt2(s->byte_of_char, raw, out, &n))) {
        if (raw.n > 0) memcpy(out, raw.p, raw.n);
        n = raw.n;
    } else if (s->d->byte_form == TOK_BYTES_NONE) {
        if (s->d->flags & TOK_F_ESCAPE_SPACES)
            n = decode_spaces(raw, s->d->model == TOK_MODEL_WORDPIECE, out);
        else if (raw.n > 0)
            memcpy(out, raw.p, raw.n);
    }
    return (struct tok_text){(const char *)out, n};
}

/* ---- attributes that only a token's text tells
 * ---------------------------------------------------- */

struct by_text {
    const char *text;
    int special; /* enum tok_special that it becomes when the file names none, or -1 */
    bool eog;
};

static const struct by_text known_texts[] = {
    {"<|eot_id|>", TOK_SPECIAL_EOT, true},
    {"<|im_end|>", TOK_SPECIAL_EOT, true},
    {"<|end|>", TOK_SPECIAL_EOT, true},
    {"<end_of_turn>", TOK_SPECIAL_EOT, true},
    {"<|endoftext|>", TOK_SPECIAL_EOT, true},
    {"<|end_of_text|>", TOK_SPECIAL_EOT, true},
    {"<EOT>", TOK_SPECIAL_EOT, true},
    {"_<EOT>", TOK_SPECIAL_EOT, true},
    {"[EOT]", TOK_SPECIAL_EOT, true},
    {"<｜end▁of▁sentence｜>", TOK_SPECIAL_EOT, true},
    {"<end_of_utterance>", TOK_SPECIAL_EOT, true},
    {"<|eom_id|>", TOK_SPECIAL_EOM, true},
    {"<|return|>", -1, true},
    {"<|call|>", -1, true},
    {"<|calls|>", -1, true},
    {"<|flush|>", -1, true},
    {"</s>", -1, true},
    {"[EOS]", -1, true},
    {"<eos>", -1, true},
    {"<turn|>", -1, true},
    {"<|tool_response>", -1, true},
    {"[e~[", -1, true},
    {"<|fim_prefix|>", TOK_SPECIAL_FIM_PRE, false},
    {"<fim-prefix>", TOK_SPECIAL_FIM_PRE, false},
    {"<fim_prefix>", TOK_SPECIAL_FIM_PRE, false},
    {"<｜fim▁begin｜>", TOK_SPECIAL_FIM_PRE, false},
    {"<PRE>", TOK_SPECIAL_FIM_PRE, false},
    {"▁<PRE>", TOK_SPECIAL_FIM_PRE, false},
    {"<|code_prefix|>", TOK_SPECIAL_FIM_PRE, false},
    {"<|fim_suffix|>", TOK_SPECIAL_FIM_SUF, false},
    {"<fim-suffix>", TOK_SPECIAL_FIM_SUF, false},
    {"<fim_suffix>", TOK_SPECIAL_FIM_SUF, false},
    {"<｜fim▁hole｜>", TOK_SPECIAL_FIM_SUF, false},
    {"<SUF>", TOK_SPECIAL_FIM_SUF, false},
    {"▁<SUF>", TOK_SPECIAL_FIM_SUF, false},
    {"<|code_suffix|>", TOK_SPECIAL_FIM_SUF, false},
    {"<|fim_middle|>", TOK_SPECIAL_FIM_MID, false},
    {"<fim-middle>", TOK_SPECIAL_FIM_MID, false},
    {"<fim_middle>", TOK_SPECIAL_FIM_MID, false},
    {"<｜fim▁end｜>", TOK_SPECIAL_FIM_MID, false},
    {"<MID>", TOK_SPECIAL_FIM_MID, false},
    {"▁<MID>", TOK_SPECIAL_FIM_MID, false},
    {"<|code_middle|>", TOK_SPECIAL_FIM_MID, false},
    {"<|fim_pad|>", TOK_SPECIAL_FIM_PAD, true},
    {"<fim-pad>", TOK_SPECIAL_FIM_PAD, true},
    {"<fim_pad>", TOK_SPECIAL_FIM_PAD, true},
    {"<PAD>", TOK_SPECIAL_FIM_PAD, true},
    {"<|fim_repo|>", TOK_SPECIAL_FIM_REP, true},
    {"<|repo_name|>", TOK_SPECIAL_FIM_REP, true},
    {"<fim-repo>", TOK_SPECIAL_FIM_REP, true},
    {"<REPO>", TOK_SPECIAL_FIM_REP, true},
    {"<reponame>", TOK_SPECIAL_FIM_REP, true},
    {"<|file_sep|>", TOK_SPECIAL_FIM_SEP, true},
};

/* text_only: pass over what plain text may not become, to an intermediate string that looks the
 * same. */
static uint32_t find_raw(const struct tok_strings *s, struct tok_text t, bool text_only)
{
    size_t at = tok_hash_bytes((const uint8_t *)t.p, t.n) & (s->index_size - 1);
    for (; s->index[at] != 0; at = (at + 1) & (s->index_size - 1)) {
        struct tok_text o = s->raw[s->index[at] - 1];
        if (o.n == t.n && (t.n == 0 || memcmp(o.p, t.p, t.n) == 0) &&
            !(text_only && !tok_strings_matches_text(s, s->index[at] - 1)))
            return s->index[at] - 1;
    }
    return TOK_NONE;
}

static uint32_t find_token(const struct tok_strings *s, const char *text)
{
    return find_raw(s, (struct tok_text){text, strlen(text)}, false);
}

static void set_type(struct tok_strings *s, uint32_t id, unsigned type)
{
    s->attrs[id] = (uint8_t)((s->attrs[id] & ~TOK_ATTR_TYPE) | type);
}

static void set_attr(struct tok_strings *s, uint32_t id, uint8_t attr, bool on)
{
    if (id != TOK_NONE) s->attrs[id] = (uint8_t)(on ? s->attrs[id] | attr : s->attrs[id] & ~attr);
}

/* Tokens of these texts are control tokens whatever type the file gives them. */
static void apply_known_texts(struct tok_strings *s, uint32_t *special)
{
    for (size_t i = 0; i < ARRAY_LEN(known_texts); i++) {
        const struct by_text *k = &known_texts[i];
        uint32_t id = find_token(s, k->text);
        if (id == TOK_NONE) continue;
        set_type(s, id, TOK_TYPE_CONTROL);
        if (k->special >= 0 && special[k->special] == TOK_NONE) special[k->special] = id;
        if (k->eog && (k->special < TOK_SPECIAL_FIM_PRE || special[k->special] == id))
            set_attr(s, id, TOK_ATTR_EOG, true);
    }
    static const int ends[] = {TOK_SPECIAL_EOS, TOK_SPECIAL_EOT, TOK_SPECIAL_EOM};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) set_attr(s, special[ends[i]], TOK_ATTR_EOG, true);
    /* Formats in which <|end|> and </s> do not end the answer. */
    bool call = find_token(s, "<|call|>") != TOK_NONE || find_token(s, "<|calls|>") != TOK_NONE;
    if (call && (find_token(s, "<|return|>") != TOK_NONE || find_token(s, "<|flush|>") != TOK_NONE))
        set_attr(s, find_token(s, "<|end|>"), TOK_ATTR_EOG, false);
    if (find_token(s, "<|tool_response>") != TOK_NONE)
        set_attr(s, find_token(s, "</s>"), TOK_ATTR_EOG, false);
}

static bool contains(const char *s, const char *part)
{
    return s != NULL && strstr(s, part) != NULL;
}

/* GGUF does not say which tokens swallow white space; these models are known to have such. */
static void apply_strips(struct tok_strings *s)
{
    static const char *const never[] = {"<unk>", "<s>", "<|endoftext|>"};
    const char *name = s->d->model_name;
    if (contains(name, "phi-3") || contains(name, "Phi-3") || contains(name, "phi3") ||
        contains(name, "Phi3")) {
        for (size_t i = 0; i < s->d->n_tokens; i++)
            if (tok_strings_is_added(s, i)) s->attrs[i] |= TOK_ATTR_RSTRIP;
        for (size_t i = 0; i < ARRAY_LEN(never); i++)
            set_attr(s, find_token(s, never[i]), TOK_ATTR_RSTRIP, false);
    }
    if (contains(s->d->pre, "jina-v2-") || contains(s->d->architecture, "nomic-bert-moe") ||
        contains(s->d->architecture, "jina-bert-v3"))
        set_attr(s, find_token(s, "<mask>"), TOK_ATTR_LSTRIP, true);
    if (contains(name, "modern-bert")) set_attr(s, find_token(s, "[MASK]"), TOK_ATTR_LSTRIP, true);
}

/* ---- the table
 * --------------------------------------------------------------------------------------- */

static uint32_t add_string(struct tok_strings *s, struct tok_text raw, unsigned type)
{
    if (s->n == s->cap) {
        size_t cap = s->cap;
        s->v = arena_grow(s->arena, s->v, &cap, sizeof s->v[0]);
        s->raw = arena_grow(s->arena, s->raw, &s->cap, sizeof s->raw[0]);
    }
    s->raw[s->n] = raw;
    s->v[s->n] = decode(s, raw, type);
    return (uint32_t)s->n++;
}

static void index_string(struct tok_strings *s, uint32_t i)
{
    size_t at = tok_hash_bytes((const uint8_t *)s->raw[i].p, s->raw[i].n) & (s->index_size - 1);
    while (s->index[at] != 0) at = (at + 1) & (s->index_size - 1);
    s->index[at] = i + 1;
}

void tok_strings_init(struct tok_strings *s, struct arena *a, const struct tok_vocab_desc *d,
                      uint32_t *special)
{
    *s = (struct tok_strings){.arena = a, .d = d, .index_size = 16};
    while (s->index_size < 2 * (d->n_tokens + 3 * d->n_merges)) s->index_size *= 2;
    for (unsigned c = 0; c < GPT2_CHARS; c++) s->byte_of_char[c] = TOK_NO_BYTE;
    for (unsigned b = 0; b < 256; b++) s->byte_of_char[byte_to_char((uint8_t)b)] = (uint16_t)b;
    s->index = ARENA_ARRAY(a, uint32_t, s->index_size);
    s->attrs = ARENA_ARRAY(a, uint8_t, d->n_tokens);
    for (size_t i = 0; i < d->n_tokens; i++) {
        int32_t type = d->types != NULL ? d->types[i] : TOK_TYPE_NORMAL;
        if (type < TOK_TYPE_UNDEFINED || type > TOK_TYPE_BYTE) type = TOK_TYPE_UNDEFINED;
        s->attrs[i] = (uint8_t)type;
        add_string(s, d->tokens[i], (unsigned)type);
        if (find_raw(s, d->tokens[i], false) == TOK_NONE)
            index_string(s, (uint32_t)i); /* the first of equals counts */
    }
    apply_known_texts(s, special);
    apply_strips(s);
}

bool tok_strings_matches_text(const struct tok_strings *s, size_t i)
{
    if (s->v[i].n == 0) return false;
    if (i >= s->d->n_tokens) return true;
    unsigned type = s->attrs[i] & TOK_ATTR_TYPE;
    return type != TOK_TYPE_CONTROL && type != TOK_TYPE_UNKNOWN && type != TOK_TYPE_BYTE;
}

bool tok_strings_is_added(const struct tok_strings *s, size_t i)
{
    unsigned type = s->attrs[i] & TOK_ATTR_TYPE;
    return type == TOK_TYPE_CONTROL || type == TOK_TYPE_UNKNOWN || type == TOK_TYPE_USER_DEFINED;
}

uint32_t tok_strings_get(struct tok_strings *s, struct tok_text raw)
{
    uint32_t i = find_raw(s, raw, true);
    if (i != TOK_NONE || raw.n > TOK_MAX_TOKEN_BYTES) return i;
    i = add_string(s, raw, TOK_TYPE_NORMAL);
    index_string(s, i);
    return i;
}

uint32_t tok_strings_joined(struct tok_strings *s, struct tok_text left, struct tok_text right)
{
    size_t n = left.n + right.n;
    char *both = arena_alloc(s->arena, n + 1);
    memcpy(both, left.p, left.n);
    memcpy(both + left.n, right.p, right.n);
    return tok_strings_get(s, (struct tok_text){both, n});
}

uint32_t tok_strings_byte(const struct tok_strings *s, uint8_t byte)
{
    char text[8];
    unsigned c = byte_to_char(byte);
    if (s->d->byte_form == TOK_BYTES_GPT2) {
        size_t n = 0;
        if (c >= 0x80) text[n++] = (char)(0xc0 | c >> 6);
        text[n++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c);
        uint32_t id = find_raw(s, (struct tok_text){text, n}, false);
        return id != TOK_NONE && tok_strings_matches_text(s, id) ? id : TOK_NONE;
    }
    snprintf(text, sizeof text, "<0x%02X>", byte);
    uint32_t id = find_token(s, text);
    return id < s->d->n_tokens ? id : TOK_NONE;
}
