// SPDX-License-Identifier: Apache-2.0
/*
 * A filter around the tokenizer, for scripts. A text is u32 length and bytes, ids and lengths are u32
 * count and numbers, all in the machine's byte order and one after the other on stdin and stdout.
 *
 *   tok_tool encode VOCAB.gguf [special] [bos] [eos]
 *       texts to ids
 *   tok_tool decode VOCAB.gguf [special] [stream]
 *       ids to texts
 *   tok_tool build VOCAB.gguf OUT
 *       writes the compiled tokenizer
 *   tok_tool patterns
 *       JSON, the patterns of each named pre-tokenizer
 *   tok_tool split NAME
 *       texts to the lengths of the pieces that a named pre-tokenizer makes
 *   tok_tool normalize FORM
 *       texts to their NFC, NFD, NFKC or NFKD
 *
 * Exit status 1 with the diagnostics on stderr.
 */
#include "runtime/text/tok_internal.h"
#include "tests/tok/gguf_vocab.h"

static bool read_record(uint32_t elem, uint8_t **buf, uint32_t *n)
{
    if (fread(n, 4, 1, stdin) != 1) return false;
    *buf = realloc(*buf, (size_t)*n * elem + 1);
    return *buf != NULL && fread(*buf, elem, *n, stdin) == *n;
}

static int encode_all(const struct tok *t, unsigned flags)
{
    uint8_t *text = NULL;
    uint32_t len;
    while (read_record(1, &text, &len)) {
        size_t work_bytes, max_ids, count;
        if (tok_encode_plan(t, (char *)text, len, &work_bytes, &max_ids) != TOK_OK) return 1;
        void *work = malloc(work_bytes);
        uint32_t *ids = malloc(max_ids * 4);
        enum tok_status st =
            tok_encode(t, (char *)text, len, flags, work, work_bytes, ids, max_ids, &count);
        if (st != TOK_OK) {
            fprintf(stderr, "encode: %s\n", tok_status_text(st));
            return 1;
        }
        uint32_t n = (uint32_t)count;
        fwrite(&n, 4, 1, stdout);
        fwrite(ids, 4, n, stdout);
        free(work);
        free(ids);
    }
    free(text);
    return 0;
}

static int decode_all(const struct tok *t, unsigned flags, bool stream)
{
    uint8_t *buf = NULL;
    uint32_t n;
    char *chunk = malloc(tok_stream_max(t));
    while (read_record(4, &buf, &n)) {
        const uint32_t *ids = (const uint32_t *)(const void *)buf;
        size_t cap = (size_t)(n + 1) * tok_stream_max(t), len = 0;
        char *out = malloc(cap);
        if (stream) {
            struct tok_stream s;
            tok_stream_init(&s, t, flags);
            for (uint32_t i = 0; i <= n; i++) {
                size_t k =
                    i < n ? tok_stream_push(&s, ids[i], chunk) : tok_stream_finish(&s, chunk);
                memcpy(out + len, chunk, k);
                len += k;
            }
        } else if (tok_decode(t, ids, n, flags, out, cap, &len) != TOK_OK) {
            return 1;
        }
        uint32_t m = (uint32_t)len;
        fwrite(&m, 4, 1, stdout);
        fwrite(out, 1, m, stdout);
        free(out);
    }
    free(buf);
    free(chunk);
    return 0;
}

/* ---- parts of the tokenizer by themselves: no vocabulary given, three tokens will do
 * ---------------- */

static bool small_tokenizer(struct arena *a, struct diag_sink *sink, const char *pre,
                            enum tok_normalizer normalizer, struct tok *t)
{
    static const struct tok_text tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}},
                                 merges[] = {{"a b", 3}};
    struct tok_vocab_desc d;
    const uint8_t *blob;
    size_t n;
    if (!tok_desc_init(&d, "gpt2", pre, sink, "tok_tool")) return false;
    d.tokens = tokens;
    d.n_tokens = 3;
    d.merges = merges;
    d.n_merges = 1;
    if (normalizer != TOK_NORMALIZER_NONE) d.normalizer = normalizer;
    return tok_build(a, &d, sink, "tok_tool", &blob, &n) && tok_open(blob, n, t) == TOK_OK;
}

struct lengths {
    uint32_t *v, n;
};

static bool add_length(void *user, const uint8_t *p, size_t n)
{
    struct lengths *l = user;
    (void)p;
    l->v[l->n++] = (uint32_t)n;
    return true;
}

static int split_all(const struct tok *t)
{
    uint8_t *text = NULL;
    uint32_t len;
    while (read_record(1, &text, &len)) {
        struct lengths l = {malloc((len + 1) * sizeof(uint32_t)), 0};
        size_t need = tok_pre_work(t, len);
        struct tok_work w = {malloc(need + 8), 0, need};
        if (!tok_pre_split(t, text, len, &w, add_length, &l)) return 1;
        fwrite(&l.n, 4, 1, stdout);
        fwrite(l.v, 4, l.n, stdout);
        free(l.v);
        free(w.p);
    }
    free(text);
    return 0;
}

static int normalize_all(const struct tok *t)
{
    uint8_t *text = NULL;
    uint32_t len;
    while (read_record(1, &text, &len)) {
        struct tok_norm_size size = {0, 0};
        size_t n = 0;
        for (size_t i = 0; i < len; i += utf8_length(text[i]))
            tok_norm_plan_char(t, utf8_get(text + i), &size);
        size_t need = TOK_NORM_WORK(size.chars);
        struct tok_work w = {malloc(need), 0, need};
        uint8_t *out = malloc(size.bytes + 1);
        if (!tok_norm_run(t, text, len, &w, out, size.bytes, &n)) return 1;
        if (tok_norm_is_identity(t, text, len) && (n != len || memcmp(out, text, n) != 0)) return 1;
        uint32_t m = (uint32_t)n;
        fwrite(&m, 4, 1, stdout);
        fwrite(out, 1, m, stdout);
        free(w.p);
        free(out);
    }
    free(text);
    return 0;
}

/* JSON: {"name": ["pattern", ...], ...} */
static int print_patterns(struct diag_sink *sink)
{
    size_t len;
    const char *name;
    for (size_t i = 0; (name = tok_pre_name(i, &len)) != NULL; i++) {
        char pre[64];
        struct tok_vocab_desc d;
        snprintf(pre, sizeof pre, "%.*s", (int)len, name);
        if (!tok_desc_init(&d, "gpt2", pre, sink, "tok_tool")) return 1;
        printf("%s\"%s\": [", i ? ",\n" : "{", pre);
        for (size_t k = 0; k < d.n_patterns; k++) {
            printf("%s\"", k ? ", " : "");
            for (const char *c = d.patterns[k]; *c; c++)
                printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
            printf("\"");
        }
        printf("]");
    }
    printf("}\n");
    return 0;
}

static int run_part(int argc, char **argv, struct arena *a, struct diag_sink *sink)
{
    static const char *const forms[] = {"", "NFC", "NFD", "NFKC", "NFKD"};
    struct tok t;
    if (strcmp(argv[1], "patterns") == 0) return print_patterns(sink);
    if (argc > 2 && strcmp(argv[1], "split") == 0)
        return small_tokenizer(a, sink, argv[2], TOK_NORMALIZER_NONE, &t) ? split_all(&t) : 1;
    for (int i = 1; argc > 2 && i <= 4; i++)
        if (strcmp(argv[1], "normalize") == 0 && strcmp(argv[2], forms[i]) == 0)
            return small_tokenizer(a, sink, "gpt-2", (enum tok_normalizer)i, &t) ? normalize_all(&t)
                                                                                 : 1;
    return -1;
}

int main(int argc, char **argv)
{
    struct arena a;
    struct diag_sink sink;
    const uint8_t *blob, *file;
    size_t n_file, n_blob;
    struct tok t;
    unsigned flags = 0;
    bool stream = false;
    if (argc < 2) return 2;
    arena_init(&a);
    diag_init(&sink);
    int part = run_part(argc, argv, &a, &sink);
    if (part > 0) diag_print_text(&sink, stderr);
    if (part >= 0 || argc < 3) return part >= 0 ? part : 2;
    file = gguf_read_file(&a, argv[2], &n_file);
    if (file == NULL || !gguf_build_vocab(&a, file, n_file, &sink, &blob, &n_blob)) {
        diag_print_text(&sink, stderr);
        return 1;
    }
    if (tok_open(blob, n_blob, &t) != TOK_OK) return 1;
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "special") == 0)
            flags |= TOK_ENCODE_SPECIAL; /* TOK_DECODE_SPECIAL is the same bit */
        if (strcmp(argv[i], "bos") == 0) flags |= TOK_ENCODE_BOS;
        if (strcmp(argv[i], "eos") == 0) flags |= TOK_ENCODE_EOS;
        if (strcmp(argv[i], "stream") == 0) stream = true;
    }
    int rc = 2;
    if (strcmp(argv[1], "encode") == 0) rc = encode_all(&t, flags);
    if (strcmp(argv[1], "decode") == 0) rc = decode_all(&t, flags, stream);
    if (strcmp(argv[1], "build") == 0 && argc == 4) {
        FILE *f = fopen(argv[3], "wb");
        rc = f != NULL && fwrite(blob, 1, n_blob, f) == n_blob && fclose(f) == 0 ? 0 : 1;
    }
    diag_deinit(&sink);
    arena_deinit(&a);
    return rc;
}
