// SPDX-License-Identifier: Apache-2.0
/* Every tensor format against blocks that another implementation unpacked and packed (tests/gguf/make_encodings.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/encoding.h"
#include "ir/text.h"

static struct strbuf table;

static int setup(void **state)
{
    char path[4096], part[4096];
    const char *src = getenv("INFC_SRC");
    (void)state;
    snprintf(path, sizeof path, "%s/tests/gguf/encodings.txt", src ? src : ".");
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) strbuf_putn(&table, part, n);
    fclose(f);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    strbuf_deinit(&table);
    return 0;
}

/* Hex digits up to a space; the bytes are the caller's to free. */
static unsigned char *unhex(const char **p, size_t *n)
{
    size_t len = strcspn(*p, " \n");
    unsigned char *out = malloc(len / 2 + 1);
    assert_non_null(out);
    for (size_t i = 0; i < len / 2; i++) {
        unsigned v;
        assert_int_equal(sscanf(*p + 2 * i, "%2x", &v), 1);
        out[i] = (unsigned char)v;
    }
    *p += len + 1;
    *n = len / 2;
    return out;
}

static const struct ir_encoding *word(const char **p)
{
    size_t len = strcspn(*p, " ");
    const struct ir_encoding *e = encoding_find(*p, len);
    if (!e) print_error("unknown format %.*s\n", (int)len, *p);
    assert_non_null(e);
    *p += len + 1;
    return e;
}

static uint64_t hash_floats(const float *x, int64_t n)
{
    uint64_t h = 0xCBF29CE484222325;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        float v = x[i] == 0 ? 0.0f : x[i];
        memcpy(&bits, &v, sizeof bits);
        if (v != v) bits = 0x7FC00000;
        for (int k = 0; k < 4; k++) h = (h ^ (bits >> 8 * k & 255)) * 0x100000001B3;
    }
    return h;
}

static size_t stored_bytes(const struct ir_encoding *e, int64_t n)
{
    size_t bytes;
    assert_true(encoding_bytes(e, 1, n, &bytes));
    return bytes;
}

static void check_unpack(const char *p)
{
    size_t n_bytes;
    const struct ir_encoding *e = word(&p);
    assert_int_equal(strtol(p, (char **)&p, 10), e->gguf);
    assert_ptr_equal(encoding_from_gguf((uint32_t)e->gguf), e);
    p++;
    unsigned char *raw = unhex(&p, &n_bytes);
    int64_t n = (int64_t)(n_bytes / stored_bytes(e, e->block_elems)) * e->block_elems;
    assert_int_equal(stored_bytes(e, n), n_bytes);
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    encoding_unpack(e, raw, n, x);
    uint64_t want = strtoull(p, (char **)&p, 16);
    for (int i = 0; i < 4; i++) {
        double v = strtod(p, (char **)&p);
        if (!(v != v && x[i] != x[i]) && (float)v != x[i]) fail_msg("%s: element %d is %.9g, not %.9g", e->name, i, (double)x[i], v);
    }
    if (hash_floats(x, n) != want) fail_msg("%s: some of %lld elements differ", e->name, (long long)n);
    /* swapping twice is nothing, and once is something where there are fields of several bytes */
    unsigned char *copy = malloc(n_bytes);
    assert_non_null(copy);
    memcpy(copy, raw, n_bytes);
    encoding_swap(e, copy, n_bytes);
    encoding_swap(e, copy, n_bytes);
    assert_memory_equal(copy, raw, n_bytes);
    free(copy);
    free(raw);
    free(x);
}

static void check_pack(const char *p)
{
    size_t x_bytes, n_bytes;
    const struct ir_encoding *e = word(&p);
    unsigned char *x = unhex(&p, &x_bytes), *want = unhex(&p, &n_bytes);
    unsigned char *got = malloc(n_bytes);
    float *floats = malloc(x_bytes);
    assert_true(got && floats);
    memcpy(floats, x, x_bytes);
    assert_int_equal(stored_bytes(e, (int64_t)(x_bytes / 4)), n_bytes);
    assert_true(encoding_pack(e, floats, (int64_t)(x_bytes / 4), got));
    for (size_t i = 0; i < n_bytes; i++)
        if (got[i] != want[i]) fail_msg("%s: byte %zu is %02x, not %02x", e->name, i, got[i], want[i]);
    free(x);
    free(want);
    free(got);
    free(floats);
}

static void test_table(void **state)
{
    int unpacked = 0, packed = 0;
    (void)state;
    for (const char *line = strbuf_get(&table); *line; line += strcspn(line, "\n") + 1) {
        if (!strncmp(line, "unpack ", 7)) check_unpack(line + 7), unpacked++;
        else if (!strncmp(line, "pack ", 5)) check_pack(line + 5), packed++;
        else fail_msg("malformed line");
    }
    int of_files = 0;
    for (int i = 0; i < encoding_count(); i++) of_files += encoding_at(i)->gguf >= 0;
    assert_int_equal(unpacked, of_files);
    assert_int_equal(packed, 8);
}

/*
 * Formats of --prec=int4-g64 and -g128: 16 steps from the least to the greatest of a group. 0, 1, .. 15 again and again has
 * step 1 and minimum 0; times 0.5 and less 2, step 0.5 and minimum -2; every value is a step and comes back as it was.
 */
static void test_groups(void **state)
{
    static const int sizes[] = {64, 128};
    (void)state;
    for (size_t s = 0; s < 2; s++) {
        char name[16];
        const struct ir_encoding *e = encoding_find(name, (size_t)snprintf(name, sizeof name, "int4_g%d", sizes[s]));
        float x[256], got[256];
        unsigned char b[136];
        assert_non_null(e);
        assert_int_equal(e->block_bytes, 4 + sizes[s] / 2);
        for (int i = 0; i < 2 * sizes[s]; i++) x[i] = i < sizes[s] ? (float)(i % 16) : 0.5f * (float)(i % 16) - 2;
        assert_true(encoding_pack(e, x, 2 * sizes[s], b));
        /* f16: 1 is 3c00, 0.5 is 3800, -2 is c000; element 1 in the low half of byte 1 and element 1 + half in its high half */
        assert_memory_equal(b, "\x00\x3c\x00\x00\x00\x11\x22", 7);
        assert_memory_equal(b + e->block_bytes, "\x00\x38\x00\xc0\x00\x11", 6);
        encoding_unpack(e, b, 2 * sizes[s], got);
        assert_memory_equal(got, x, 2 * (size_t)sizes[s] * sizeof *x);
        /* Between steps: the nearest. The group's step is 1 by its ends. */
        for (int i = 0; i < sizes[s]; i++) x[i] = 0;
        x[0] = 15, x[1] = 7.4f, x[2] = 7.6f;
        assert_true(encoding_pack(e, x, sizes[s], b));
        encoding_unpack(e, b, sizes[s], got);
        assert_true(got[0] == 15 && got[1] == 7 && got[2] == 8 && got[3] == 0);
    }
    /* No file can name them. */
    assert_null(encoding_from_gguf(UINT32_MAX));
}

static void test_bytes(void **state)
{
    size_t n;
    const struct ir_encoding *q = encoding_find("q4_1", 4);
    (void)state;
    assert_true(encoding_bytes(q, 1536, 576, &n) && n == (size_t)1536 * 18 * 20);
    assert_false(encoding_bytes(q, 1, 33, &n));
    assert_false(encoding_bytes(q, INT64_MAX, 32, &n));
    assert_false(encoding_bytes(q, -1, 32, &n));
    assert_null(encoding_find("q4_9", 4));
    assert_null(encoding_from_gguf(9999));
}

/* Types with an encoding print and parse; blocks go inline or to the side file; only weights' places take them. */
static void test_text(void **state)
{
    static const char text[] = "model \"m\" {\n"
                               "  const @w: q4_0 f32[2, 32] = [0, 60, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, "
                               "0, 60, 153, 153, 153, 153, 153, 153, 153, 153, 153, 153, 153, 153, 153, 153, 153, 153]\n"
                               "  const @h: f16 f32[4, 16] = resource(offset=0, bytes=128)\n"
                               "  func @main(%x: f32[3, 32], %i: i64[5]) -> (y: f32[3, 2], z: f32[5, 16]) {\n"
                               "    %w = constant value=@w : q4_0 f32[2, 32]\n"
                               "    %y = matmul %x, %w trans_b=1 : f32[3, 2]\n"
                               "    %h = constant value=@h : f16 f32[4, 16]\n"
                               "    %z = gather %h, %i axis=0 : f32[5, 16]\n"
                               "    return %y, %z\n"
                               "  }\n"
                               "}\n";
    struct diag_sink sink;
    struct strbuf out = {0}, res = {0};
    char data[128] = {1};
    (void)state;
    diag_init(&sink);
    struct ir_module *m = ir_parse_module(text, strlen(text), "t.ir", data, sizeof data, &sink);
    if (!m) diag_print_text(&sink, stderr);
    assert_non_null(m);
    assert_true(ir_verify_module(m, &sink));
    ir_print_module(&out, m, &res);
    assert_string_equal(strbuf_get(&out), text);
    assert_int_equal(res.len, 128);
    ir_module_destroy(m);
    static const char *const bad[] = {
        "model \"m\" { const @w: q4_0 f32[2, 33] = [] }",
        "model \"m\" { const @w: q4_0 f16[2, 32] = [] }",
        "model \"m\" { const @w: q4_0 f32[1, 32] = [1, 2] }",
        "model \"m\" { const @w: q4_0 f32[1, 32] = splat(1) }",
        "model \"m\" { const @w: f16 f32[1] = [0, 0] func @main() -> (y: f32[1]) { %w = constant value=@w %y = neg %w return %y } }",
        "model \"m\" { const @w: f16 f32[1, 1] = [0, 0] func @main(%i: i64[1]) -> (y: f32[1, 1]) "
        "{ %w = constant value=@w %y = gather %w, %i axis=1 return %y } }",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t before = sink.error_count;
        assert_null(ir_parse_module(bad[i], strlen(bad[i]), "t.ir", NULL, 0, &sink));
        assert_true(sink.error_count > before);
    }
    strbuf_deinit(&out);
    strbuf_deinit(&res);
    diag_deinit(&sink);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_groups), cmocka_unit_test(test_bytes), cmocka_unit_test(test_text)};
    return cmocka_run_group_tests_name("encoding", tests, setup, teardown);
}
