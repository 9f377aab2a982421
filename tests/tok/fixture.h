// SPDX-License-Identifier: Apache-2.0
/* What the tokenizer's unit tests share: small vocabularies written as C tables, and encoding in
 * one call. */
#ifndef INFC_TESTS_TOK_FIXTURE_H
#define INFC_TESTS_TOK_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/tok/tok_build.h"
#include "runtime/text/tok.h"

struct fixture {
    struct arena arena;
    struct diag_sink sink;
    struct tok_vocab_desc desc;
    struct tok tok;
    const uint8_t *blob;
    size_t n_blob;
};

static inline void fixture_begin(struct fixture *f, const char *model, const char *pre)
{
    memset(f, 0, sizeof *f);
    arena_init(&f->arena);
    diag_init(&f->sink);
    assert_true(tok_desc_init(&f->desc, model, pre, &f->sink, "test"));
}

static inline void fixture_end(struct fixture *f)
{
    diag_deinit(&f->sink);
    arena_deinit(&f->arena);
}

static inline struct tok_text *fixture_texts(struct fixture *f, const char *const *v, size_t n)
{
    struct tok_text *t = arena_calloc(&f->arena, n + 1, sizeof *t);
    for (size_t i = 0; i < n; i++) t[i] = (struct tok_text){v[i], strlen(v[i])};
    return t;
}

static inline void fixture_tokens(struct fixture *f, const char *const *v, size_t n)
{
    f->desc.tokens = fixture_texts(f, v, n);
    f->desc.n_tokens = n;
}

static inline void fixture_merges(struct fixture *f, const char *const *v, size_t n)
{
    f->desc.merges = fixture_texts(f, v, n);
    f->desc.n_merges = n;
}

static inline void fixture_build(struct fixture *f)
{
    if (!tok_build(&f->arena, &f->desc, &f->sink, "test", &f->blob, &f->n_blob)) {
        diag_print_text(&f->sink, stderr);
        fail_msg("tok_build failed");
    }
    assert_int_equal(tok_open(f->blob, f->n_blob, &f->tok), TOK_OK);
}

/* Ids of n bytes of text, to be freed; their number to *count. */
static inline uint32_t *encode_bytes(const struct tok *t, const char *text, size_t n,
                                     unsigned flags, size_t *count)
{
    size_t work_bytes, max_ids;
    assert_int_equal(tok_encode_plan(t, text, n, &work_bytes, &max_ids), TOK_OK);
    void *work = malloc(work_bytes);
    uint32_t *ids = malloc(max_ids * sizeof *ids);
    assert_int_equal(tok_encode(t, text, n, flags, work, work_bytes, ids, max_ids, count), TOK_OK);
    assert_true(*count <= max_ids);
    free(work);
    return ids;
}

/* "5 17 3" */
static inline void expect_ids(const struct tok *t, const char *text, size_t n, unsigned flags,
                              const char *expected)
{
    char got[4096] = "";
    size_t count, at = 0;
    uint32_t *ids = encode_bytes(t, text, n, flags, &count);
    for (size_t i = 0; i < count && at + 16 < sizeof got; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, i ? " %u" : "%u", (unsigned)ids[i]);
    free(ids);
    assert_string_equal(got, expected);
}

/* Decoded at once and as a stream; both must give the expected text, chunks whole characters. */
static inline void expect_text(const struct tok *t, const uint32_t *ids, size_t n, unsigned flags,
                               const char *expected)
{
    size_t len = strlen(expected), cap = len + tok_stream_max(t) * (n + 1), got, at = 0;
    char *out = malloc(cap + 1), *chunk = malloc(tok_stream_max(t));
    assert_int_equal(tok_decode(t, ids, n, flags, out, cap, &got), TOK_OK);
    out[got] = '\0';
    assert_string_equal(out, expected);
    struct tok_stream s;
    tok_stream_init(&s, t, flags);
    for (size_t i = 0; i <= n; i++) {
        size_t k = i < n ? tok_stream_push(&s, ids[i], chunk) : tok_stream_finish(&s, chunk);
        assert_true(k == 0 || ((uint8_t)chunk[0] & 0xc0) != 0x80);
        memcpy(out + at, chunk, k);
        at += k;
    }
    out[at] = '\0';
    assert_string_equal(out, expected);
    free(out);
    free(chunk);
}

#endif
