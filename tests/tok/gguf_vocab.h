// SPDX-License-Identifier: Apache-2.0
/*
 * The tokenizer's metadata of a GGUF file, for tests of the tokenizer alone: little-endian versions
 * 2 and 3, the whole file in memory. The importer has its own reader; this one is independent of
 * it.
 */
#ifndef INFC_TESTS_TOK_GGUF_VOCAB_H
#define INFC_TESTS_TOK_GGUF_VOCAB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/tok/tok_build.h"

struct gguf_cursor {
    const uint8_t *p;
    size_t n, at;
    bool bad;
};

static inline uint64_t gguf_uint(struct gguf_cursor *c, size_t n)
{
    uint64_t v = 0;
    if (n > c->n - c->at) {
        c->bad = true;
        return 0;
    }
    for (size_t i = 0; i < n; i++) v |= (uint64_t)c->p[c->at + i] << (8 * i);
    c->at += n;
    return v;
}

static inline struct tok_text gguf_string(struct gguf_cursor *c)
{
    uint64_t n = gguf_uint(c, 8);
    if (c->bad || n > c->n - c->at) {
        c->bad = true;
        return (struct tok_text){"", 0};
    }
    struct tok_text t = {(const char *)c->p + c->at, (size_t)n};
    c->at += (size_t)n;
    return t;
}

enum {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STR,
    GGUF_ARR,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};
static const uint8_t gguf_type_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct gguf_array {
    uint32_t type;
    size_t n;
    const uint8_t *p;       /* numbers */
    struct tok_text *texts; /* strings */
};

static inline struct gguf_array gguf_array(struct arena *a, struct gguf_cursor *c)
{
    struct gguf_array r = {.type = (uint32_t)gguf_uint(c, 4), .n = (size_t)gguf_uint(c, 8)};
    if (r.type == GGUF_STR && !c->bad && r.n <= (c->n - c->at) / 8) {
        r.texts = arena_calloc(a, r.n + 1, sizeof r.texts[0]);
        for (size_t i = 0; i < r.n; i++) r.texts[i] = gguf_string(c);
    } else if (r.type <= GGUF_F64 && gguf_type_bytes[r.type] > 0 && !c->bad &&
               r.n <= (c->n - c->at) / gguf_type_bytes[r.type]) {
        r.p = c->p + c->at;
        c->at += r.n * gguf_type_bytes[r.type];
    } else {
        c->bad = true;
    }
    return r;
}

static inline bool gguf_key_is(struct tok_text key, const char *s)
{
    return key.n == strlen(s) && memcmp(key.p, s, key.n) == 0;
}

static inline const char *gguf_cstr(struct arena *a, struct tok_text t)
{
    return arena_strndup(a, t.p, t.n);
}

/* One pass over the metadata; with d NULL only the names are looked for. */
static inline void gguf_walk(struct arena *a, struct gguf_cursor *c, struct tok_vocab_desc *d,
                             const char **model, const char **pre)
{
    c->at = 4;
    uint64_t version = gguf_uint(c, 4);
    gguf_uint(c, 8);
    uint64_t n_keys = gguf_uint(c, 8);
    if (version < 2 || version > 3) c->bad = true;
    for (uint64_t i = 0; i < n_keys && !c->bad; i++) {
        struct tok_text key = gguf_string(c);
        uint32_t type = (uint32_t)gguf_uint(c, 4);
        if (type == GGUF_ARR) {
            struct gguf_array v = gguf_array(a, c);
            if (c->bad || d == NULL) continue;
            if (gguf_key_is(key, "tokenizer.ggml.tokens") && v.type == GGUF_STR)
                d->tokens = v.texts, d->n_tokens = v.n;
            if (gguf_key_is(key, "tokenizer.ggml.merges") && v.type == GGUF_STR)
                d->merges = v.texts, d->n_merges = v.n;
            if (gguf_key_is(key, "tokenizer.ggml.scores") && v.type == GGUF_F32 &&
                v.n >= d->n_tokens)
                d->scores = arena_dup(a, v.p, v.n * 4);
            if (gguf_key_is(key, "tokenizer.ggml.token_type") && v.type == GGUF_I32 &&
                v.n >= d->n_tokens)
                d->types = arena_dup(a, v.p, v.n * 4);
            if (gguf_key_is(key, "tokenizer.ggml.precompiled_charsmap") && v.type <= GGUF_I8)
                d->charsmap = v.p, d->charsmap_bytes = v.n;
        } else if (type == GGUF_STR) {
            struct tok_text v = gguf_string(c);
            if (gguf_key_is(key, "tokenizer.ggml.model")) *model = gguf_cstr(a, v);
            if (gguf_key_is(key, "tokenizer.ggml.pre")) *pre = gguf_cstr(a, v);
            if (d != NULL && gguf_key_is(key, "general.name")) d->model_name = gguf_cstr(a, v);
            if (d != NULL && gguf_key_is(key, "general.architecture"))
                d->architecture = gguf_cstr(a, v);
        } else if (type <= GGUF_F64) {
            uint64_t v = gguf_uint(c, gguf_type_bytes[type]);
            if (d != NULL && type != GGUF_F32 && type != GGUF_F64)
                tok_desc_key(d, gguf_cstr(a, key), v);
        } else {
            c->bad = true;
        }
    }
}

/* File to compiled tokenizer, both in the arena. False with a diagnostic; a missing file is silent.
 */
static inline bool gguf_build_vocab(struct arena *a, const uint8_t *p, size_t n,
                                    struct diag_sink *sink, const uint8_t **blob, size_t *n_blob)
{
    struct gguf_cursor c = {p, n, 0, n < 24 || memcmp(p, "GGUF", 4) != 0};
    struct tok_vocab_desc d;
    const char *model = "", *pre = "";
    if (!c.bad) gguf_walk(a, &c, NULL, &model, &pre);
    if (c.bad)
        return diag_report(sink, DIAG_TOKENIZER, "gguf", "not a GGUF file of version 2 or 3");
    if (!tok_desc_init(&d, model, pre, sink, "gguf")) return false;
    gguf_walk(a, &c, &d, &model, &pre);
    return tok_build(a, &d, sink, "gguf", blob, n_blob);
}

static inline uint8_t *gguf_read_file(struct arena *a, const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) return NULL;
    uint8_t *p = NULL;
    if (fseek(f, 0, SEEK_END) == 0) {
        long size = ftell(f);
        if (size >= 0 && fseek(f, 0, SEEK_SET) == 0) {
            p = arena_alloc(a, (size_t)size + 1);
            *n = fread(p, 1, (size_t)size, f);
            p[*n] = 0;
        }
    }
    fclose(f);
    return p;
}

#endif
