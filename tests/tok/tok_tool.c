// SPDX-License-Identifier: Apache-2.0
/*
 * A filter around the tokenizer, for scripts:
 *
 *   tok_tool encode VOCAB.gguf [special] [bos] [eos]   stdin: records of u32 length and text;
 * stdout: u32 count, u32 ids tok_tool decode VOCAB.gguf [special] [stream]      stdin: u32 count,
 * u32 ids; stdout: u32 length and text tok_tool build VOCAB.gguf OUT                      writes
 * the compiled tokenizer
 *
 * Numbers are in the machine's byte order. Exit status 1 with the diagnostics on stderr.
 */
#include "runtime/text/tok.h"
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

int main(int argc, char **argv)
{
    struct arena a;
    struct diag_sink sink;
    const uint8_t *blob, *file;
    size_t n_file, n_blob;
    struct tok t;
    unsigned flags = 0;
    bool stream = false;
    if (argc < 3) return 2;
    arena_init(&a);
    diag_init(&sink);
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
