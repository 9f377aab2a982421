// SPDX-License-Identifier: Apache-2.0
#include "tests/ptx/validate/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BUFFERS = 12, MAX_PARAMS = 16 };

/* One launch's buffers and parameters; everything is freed by close(). */
struct run {
    struct ptx_machine *m;
    struct ptx_kernel *k;
    void *host[MAX_BUFFERS];
    uint64_t device[MAX_BUFFERS];
    size_t bytes[MAX_BUFFERS];
    int n_buffers, n_params;
    union { uint64_t u; int i; struct ptx_tensor_map map; char bytes[128]; } param[MAX_PARAMS];
    const void *params[MAX_PARAMS];
    const char *problem;
    uint32_t random;
};

static char problem_text[300];

static struct run open_run(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    struct run r = {.m = m, .k = ptx_module_find(mod, kernel), .random = 12345};
    if (!r.k) r.problem = "no such kernel";
    return r;
}

static void *buffer(struct run *r, size_t bytes, bool param)
{
    int i = r->n_buffers++;
    r->host[i] = calloc(1, bytes);
    r->bytes[i] = bytes;
    r->device[i] = ptx_mem_alloc(r->m, bytes);
    if (param) r->param[r->n_params++].u = r->device[i];
    return r->host[i];
}
static void *in(struct run *r, size_t bytes) { return buffer(r, bytes, true); }
static void int_param(struct run *r, int v) { r->param[r->n_params++].i = v; }

/* Uploads the first n_in buffers, runs, downloads the rest (and what was marked to be read back). */
static const char *go(struct run *r, int n_in, struct ptx_dim grid, unsigned block, unsigned dynamic)
{
    if (r->problem) return r->problem;
    for (int i = 0; i < n_in; i++) ptx_mem_write(r->m, r->device[i], r->host[i], r->bytes[i]);
    for (int i = 0; i < r->n_params; i++) r->params[i] = &r->param[i];
    struct ptx_launch l = {.grid = grid, .block = {block, 1, 1}, .dynamic_shared_bytes = dynamic, .params = r->params};
    if (!ptx_launch(r->m, r->k, &l)) return ptx_report(r->m);
    for (int i = 0; i < r->n_buffers; i++) {
        ptx_mem_read(r->m, r->host[i], r->device[i], r->bytes[i]);
        if (ptx_mem_undefined(r->m, r->device[i], r->bytes[i])) return "an output depends on undefined data, or is missing";
    }
    return NULL;
}

static const char *close_run(struct run *r, const char *problem)
{
    for (int i = 0; i < r->n_buffers; i++) {
        free(r->host[i]);
        ptx_mem_free(r->m, r->device[i]);
    }
    return problem;
}

static double random_unit(struct run *r)
{
    r->random = r->random * 1664525u + 1013904223u;
    return (double)(int32_t)r->random / 2147483648.0;
}

static const char *wrong(const char *what, size_t i, double got, double want)
{
    snprintf(problem_text, sizeof problem_text, "%s %zu is %.9g, not %.9g", what, i, got, want);
    return problem_text;
}

static bool far(double got, double want, double relative) { return !(fabs(got - want) <= relative * (1 + fabs(want))); }

/* ---- formats, decoded from their definition, apart from the machine's own code ---- */

static double decode(unsigned bits, int exponent_bits, int mantissa_bits, bool ieee)
{
    int e = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
    int m = (int)bits & ((1 << mantissa_bits) - 1);
    double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;
    if (ieee && e == (1 << exponent_bits) - 1) return m ? NAN : sign * INFINITY;
    if (!ieee && e == (1 << exponent_bits) - 1 && m == (1 << mantissa_bits) - 1) return NAN;
    if (!e) return sign * ldexp(m, 1 - bias - mantissa_bits);
    return sign * ldexp(m + (1 << mantissa_bits), e - bias - mantissa_bits);
}

static double half_value(unsigned h) { return decode(h, 5, 10, true); }
static double bf16_value(unsigned h) { return decode(h, 8, 7, true); }

/* The nearest of a format's values by trying them all: slow, and nothing like an encoder. */
static unsigned nearest(double x, int exponent_bits, int mantissa_bits, bool ieee, bool saturate)
{
    unsigned n = 1u << (exponent_bits + mantissa_bits), best = 0;
    double a = fabs(x), best_d = INFINITY;
    unsigned sign = signbit(x) ? n : 0;
    double top = 0;
    for (unsigned i = 0; i < n; i++) {
        double v = decode(i, exponent_bits, mantissa_bits, ieee);
        if (isnan(v) || isinf(v)) continue;
        if (v > top) top = v;
        double d = fabs(v - a);
        if (d < best_d || (d == best_d && !(i & 1))) {
            best = i;
            best_d = d;
        }
    }
    double step = top - decode(best - 1, exponent_bits, mantissa_bits, ieee);
    if (ieee && !saturate && decode(best, exponent_bits, mantissa_bits, ieee) == top && a - top >= step / 2) best++;
    return sign | best;
}

/* ---- wmma ---- */

static uint16_t to_half(double x) { return (uint16_t)nearest(x, 5, 10, true, false); }

enum element { HALF, BF16, TF32, S8 };

static const char *run_wmma(struct ptx_machine *m, struct ptx_module *mod, const char *kernel, enum element e, int tm, int tn,
                            bool a_col, bool b_row)
{
    enum { M = 64, N = 64, K = 48 };
    struct run r = open_run(m, mod, kernel);
    size_t bytes = e == TF32 ? 4 : e == S8 ? 1 : 2;
    int lda = (a_col ? M : K) + 16, ldb = (b_row ? N : K) + 16;
    size_t na = (size_t)lda * (a_col ? K : M), nb = (size_t)ldb * (b_row ? K : N);
    double *va = calloc(na + nb, sizeof *va), *vb = va + na;
    unsigned char *a = in(&r, na * bytes), *b = in(&r, nb * bytes);
    float *c = in(&r, (size_t)M * N * 4);
    for (size_t i = 0; i < na + nb; i++) {
        double v = floor(random_unit(&r) * 64) / 16;
        unsigned char *to = i < na ? a + i * bytes : b + (i - na) * bytes;
        float f = (float)v;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        uint16_t h = e == HALF ? to_half(v) : (uint16_t)(bits >> 16); /* these values are exact in all formats */
        if (e == S8) {
            v = floor(random_unit(&r) * 127);
            *(signed char *)to = (signed char)v;
        } else {
            memcpy(to, e == TF32 ? (void *)&f : (void *)&h, bytes);
        }
        va[i] = v;
    }
    int_param(&r, N);
    int_param(&r, K);
    int_param(&r, lda);
    int_param(&r, ldb);
    const char *problem = go(&r, 2, (struct ptx_dim){(unsigned)(N / tn), (unsigned)(M / tm), 1}, 32, 0);
    for (int i = 0; i < M && !problem; i++)
        for (int j = 0; j < N && !problem; j++) {
            double want = 0, got = e == S8 ? ((int *)c)[i * N + j] : c[i * N + j];
            for (int k = 0; k < K; k++)
                want += va[a_col ? k * lda + i : i * lda + k] * vb[b_row ? k * ldb + j : j * ldb + k];
            want *= 2;
            if (far(got, want, e == S8 ? 0 : 1e-6)) problem = wrong("element", (size_t)(i * N + j), got, want);
        }
    free(va);
    return close_run(&r, problem);
}

static const char *wmma_f16(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    return run_wmma(m, mod, "wmma_f16", HALF, 16, 16, false, false);
}
static const char *wmma_f16_rows(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    return run_wmma(m, mod, "wmma_f16_rows", HALF, 32, 8, true, true);
}
static const char *wmma_bf16(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    return run_wmma(m, mod, "wmma_bf16", BF16, 8, 32, false, true);
}
static const char *wmma_tf32(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    return run_wmma(m, mod, "wmma_tf32", TF32, 16, 16, false, false);
}
static const char *wmma_s8(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    return run_wmma(m, mod, "wmma_s8", S8, 16, 16, false, false);
}

/* ---- conversions ---- */

static const char *to_narrow(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    enum { N = 300 };
    struct run r = open_run(m, mod, "to_narrow");
    float *x = in(&r, N * 4);
    unsigned char *e4 = in(&r, N), *e5 = in(&r, N);
    uint16_t *h = in(&r, N * 2), *b = in(&r, N * 2);
    for (int i = 0; i < N; i++) x[i] = (float)(random_unit(&r) * ldexp(1, i % 40 - 18));
    int_param(&r, N);
    const char *problem = go(&r, 1, (struct ptx_dim){3, 1, 1}, 128, 0);
    for (int i = 0; i < N && !problem; i++) {
        unsigned want4 = nearest((double)x[i], 4, 3, false, true), want5 = nearest((double)x[i], 5, 2, true, true);
        if (e4[i] != want4) problem = wrong("e4m3", (size_t)i, e4[i], want4);
        if (e5[i] != want5) problem = wrong("e5m2", (size_t)i, e5[i], want5);
        unsigned want_h = nearest((double)x[i], 5, 10, true, false);
        if (h[i] != want_h) problem = wrong("f16", (size_t)i, h[i], want_h);
        if (i < 60) { /* the search through all bf16 is slow */
            unsigned want_b = nearest((double)x[i], 8, 7, true, false);
            if (b[i] != want_b) problem = wrong("bf16", (size_t)i, b[i], want_b);
        }
    }
    return close_run(&r, problem);
}

static bool same(double got, double want) { return isnan(want) ? isnan(got) : got == want; }

static const char *from_narrow(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    struct run r = open_run(m, mod, "from_narrow");
    float *e4 = in(&r, 256 * 4), *e5 = in(&r, 256 * 4), *h = in(&r, 65536 * 4), *b = in(&r, 65536 * 4);
    const char *problem = go(&r, 0, (struct ptx_dim){256, 1, 1}, 256, 0);
    for (unsigned i = 0; i < 65536 && !problem; i++) {
        if (i < 256 && !same((double)e4[i], decode(i, 4, 3, false))) problem = wrong("e4m3", i, (double)e4[i], decode(i, 4, 3, false));
        if (i < 256 && !same((double)e5[i], decode(i, 5, 2, true))) problem = wrong("e5m2", i, (double)e5[i], decode(i, 5, 2, true));
        if (!same((double)h[i], half_value(i))) problem = wrong("f16", i, (double)h[i], half_value(i));
        if (!same((double)b[i], bf16_value(i))) problem = wrong("bf16", i, (double)b[i], bf16_value(i));
    }
    return close_run(&r, problem);
}

static const char *half_math(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    enum { N = 64 };
    struct run r = open_run(m, mod, "half_math");
    uint16_t *s[3] = {in(&r, N * 4), in(&r, N * 4), in(&r, N * 4)}, *out = in(&r, N * 16);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 2 * N; i++) s[k][i] = to_half(random_unit(&r) * ldexp(1, i % 12));
    int_param(&r, N);
    const char *problem = go(&r, 3, (struct ptx_dim){1, 1, 1}, N, 0);
    for (int i = 0; i < 2 * N && !problem; i++) {
        double x = half_value(s[0][i]), y = half_value(s[1][i]), z = half_value(s[2][i]);
        double want[4] = {x * y + z, x + y, x * y, x > y ? x : y};
        for (int k = 0; k < 4 && !problem; k++) {
            unsigned got = out[(i / 2 * 4 + k) * 2 + i % 2];
            if (got != to_half(want[k])) problem = wrong("half result", (size_t)(i * 4 + k), half_value(got), want[k]);
        }
    }
    return close_run(&r, problem);
}

/* ---- scalar kernels ---- */

static const char *math(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    enum { N = 200 };
    struct run r = open_run(m, mod, "math");
    float *x = in(&r, N * 4), *out = in(&r, N * 32);
    for (int i = 0; i < N; i++) x[i] = (float)(random_unit(&r) * 8);
    int_param(&r, N);
    const char *problem = go(&r, 1, (struct ptx_dim){4, 1, 1}, 64, 0);
    for (int i = 0; i < N && !problem; i++) {
        double v = (double)x[i], a = fabs(v) + 0.5;
        double want[8] = {exp(v), log(a), tanh(v), erf(v), 1 / sqrt(a), v / (1 + v * v), sqrt(fabs(v)), pow(a, 1.5)};
        for (int k = 0; k < 8 && !problem; k++)
            if (far((double)out[8 * i + k], want[k], 1e-6)) problem = wrong("value", (size_t)(8 * i + k), (double)out[8 * i + k], want[k]);
    }
    return close_run(&r, problem);
}

static const char *softmax(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    /* Tails, one element, and rows long enough for every unrolled loop, with its remainder. */
    static const int widths[] = {1, 301, 1024, 1161, 384, 385, 511, 512, 513, 640, 1537};
    const char *problem = NULL;
    for (size_t s = 0; s < sizeof widths / sizeof *widths && !problem; s++) {
        int rows = 2, cols = widths[s];
        struct run r = open_run(m, mod, kernel);
        float *x = in(&r, (size_t)rows * (size_t)cols * 4), *y = in(&r, (size_t)rows * (size_t)cols * 4);
        /* Far from zero, so that the maximum matters. */
        for (int i = 0; i < rows * cols; i++) x[i] = (float)(random_unit(&r) * 6 + (i < cols ? 300 : -300));
        int_param(&r, cols);
        problem = go(&r, 1, (struct ptx_dim){(unsigned)rows, 1, 1}, 128, 0);
        for (int i = 0; i < rows && !problem; i++) {
            double sum = 0, shift = i ? -300 : 300;
            for (int j = 0; j < cols; j++) sum += exp((double)x[i * cols + j] - shift);
            for (int j = 0; j < cols && !problem; j++) {
                double want = exp((double)x[i * cols + j] - shift) / sum, got = (double)y[i * cols + j];
                if (!(fabs(got - want) <= 2e-6 * want)) problem = wrong("element", (size_t)(i * cols + j), got, want);
            }
        }
        problem = close_run(&r, problem);
    }
    return problem;
}

static const char *pipeline(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    static const int lengths[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 13};
    const char *problem = NULL;
    for (size_t s = 0; s < sizeof lengths / sizeof *lengths && !problem; s++) {
        int rows = lengths[s];
        struct run r = open_run(m, mod, kernel);
        float *x = in(&r, (size_t)rows * 1024), *y = in(&r, 1024);
        for (int i = 0; i < rows * 256; i++) x[i] = (float)floor(random_unit(&r) * 100);
        int_param(&r, rows);
        problem = go(&r, 1, (struct ptx_dim){1, 1, 1}, 64, 0);
        for (int i = 0; i < 256 && !problem; i++) {
            double want = 0;
            for (int j = 0; j < rows; j++) want += (double)x[j * 256 + (63 - i / 4) * 4 + i % 4];
            if ((double)y[i] != want) problem = wrong("sum", (size_t)i, (double)y[i], want);
        }
        problem = close_run(&r, problem);
    }
    return problem;
}

static const char *handover(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    const char *problem = NULL;
    for (int rounds = 1; rounds <= 5 && !problem; rounds += 2) {
        struct run r = open_run(m, mod, "handover");
        int *x = in(&r, (size_t)rounds * 256), *y = in(&r, 256);
        for (int i = 0; i < rounds * 64; i++) x[i] = (int)(random_unit(&r) * 1000);
        int_param(&r, rounds);
        problem = go(&r, 1, (struct ptx_dim){1, 1, 1}, 128, 0);
        for (int i = 0; i < 64 && !problem; i++) {
            int want = 0;
            for (int j = 0; j < rounds; j++) want += x[j * 64 + 63 - i] * (j + 1);
            if (y[i] != want) problem = wrong("sum", (size_t)i, y[i], want);
        }
        problem = close_run(&r, problem);
    }
    return problem;
}

static const char *histogram(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    enum { N = 1000 };
    struct run r = open_run(m, mod, "histogram");
    int *x = in(&r, N * 4);
    int_param(&r, N);
    unsigned *bins = in(&r, 64), *done = in(&r, 4), *sum = in(&r, 4), want[16] = {0}, want_sum = 0;
    (void)done;
    for (int i = 0; i < N; i++) {
        x[i] = (int)(random_unit(&r) * 100) & 15;
        want[x[i]]++;
        want_sum += (unsigned)x[i] + 1;
    }
    const char *problem = go(&r, 4, (struct ptx_dim){4, 1, 1}, 64, 0);
    for (int i = 0; i < 16 && !problem; i++)
        if (bins[i] != want[i]) problem = wrong("bin", (size_t)i, bins[i], want[i]);
    if (!problem && *sum != want_sum) problem = wrong("sum", 0, *sum, want_sum);
    return close_run(&r, problem);
}

/* ---- products ---- */

static const char *check_product(const uint16_t *a, const uint16_t *b, const uint16_t *c, int m, int n, int k)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double want = 0, got = half_value(c[i * n + j]);
            for (int x = 0; x < k; x++) want += half_value(a[i * k + x]) * half_value(b[j * k + x]);
            if (far(got, want, 1e-3)) return wrong("element", (size_t)(i * n + j), got, want);
        }
    return NULL;
}

static const char *gemm_mma(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    (void)kernel;
    /* Ends in every fragment of a tile, odd and even, and whole and broken steps of K. */
    static const int shapes[][3] = {{64, 64, 128}, {70, 33, 40}, {1, 128, 168}, {3, 3, 32}, {11, 4, 64}, {19, 11, 96}, {27, 12, 8}, {35, 19, 16},
                                    {43, 20, 24}, {51, 27, 33 * 8}, {59, 28, 48}, {66, 64, 32}, {8, 68, 65 * 8}};
    const char *problem = NULL;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes && !problem; s++) {
        int M = shapes[s][0], N = shapes[s][1], K = shapes[s][2];
        struct run r = open_run(m, mod, "gemm_mma");
        uint16_t *a = in(&r, (size_t)M * K * 2), *b = in(&r, (size_t)N * K * 2), *c = in(&r, (size_t)M * N * 2);
        for (int i = 0; i < M * K; i++) a[i] = (uint16_t)(0x3000 + (int)(fabs(random_unit(&r)) * 2000) + (i % 3 ? 0x8000 : 0));
        for (int i = 0; i < N * K; i++) b[i] = (uint16_t)(0x3000 + (int)(fabs(random_unit(&r)) * 2000) + (i % 5 ? 0x8000 : 0));
        int_param(&r, M);
        int_param(&r, N);
        int_param(&r, K);
        problem = go(&r, 2, (struct ptx_dim){(unsigned)(N + 63) / 64, (unsigned)(M + 63) / 64, 1}, 128, 3 * 2 * 4096);
        if (!problem) problem = check_product(a, b, c, M, N, K);
        problem = close_run(&r, problem);
    }
    return problem;
}

static void map_param(struct run *r, int buffer_index, int rows, int cols, unsigned swizzle)
{
    struct ptx_tensor_map *t = &r->param[r->n_params++].map;
    *t = (struct ptx_tensor_map){.magic = PTX_TENSOR_MAP_MAGIC, .base = r->device[buffer_index], .rank = 2, .elem_bytes = 2,
                                 .dim = {(uint64_t)cols, (uint64_t)rows}, .stride = {(uint64_t)cols * 2}, .box = {64, 64},
                                 .elem_stride = {1, 1}, .swizzle = (uint8_t)swizzle};
}

static const char *gemm_wgmma(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    static const int shapes[][3] = {{40, 64, 840}, {100, 72, 64}, {8, 136, 296}, {3, 8, 8}, {11, 16, 128}, {64, 24, 192}, {65, 64, 256}, {127, 128, 320}};
    const char *problem = NULL;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes && !problem; s++) {
        int M = shapes[s][0], N = shapes[s][1], K = shapes[s][2];
        struct run r = open_run(m, mod, kernel);
        uint16_t *a = buffer(&r, (size_t)M * K * 2, false), *b = buffer(&r, (size_t)N * K * 2, false);
        uint16_t *c = buffer(&r, (size_t)M * N * 2, false);
        for (int i = 0; i < M * K; i++) a[i] = (uint16_t)(0x3000 + (int)(fabs(random_unit(&r)) * 2000) + (i % 3 ? 0x8000 : 0));
        for (int i = 0; i < N * K; i++) b[i] = (uint16_t)(0x3000 + (int)(fabs(random_unit(&r)) * 2000) + (i % 5 ? 0x8000 : 0));
        map_param(&r, 0, M, K, 3);
        map_param(&r, 1, N, K, 3);
        map_param(&r, 2, M, N, 0);
        int_param(&r, K);
        problem = go(&r, 2, (struct ptx_dim){(unsigned)(N + 63) / 64, (unsigned)(M + 63) / 64, 1}, 160, 7 * 8192);
        if (!problem) problem = check_product(a, b, c, M, N, K);
        problem = close_run(&r, problem);
    }
    return problem;
}

/* CuTe: 64 x 64 products of 64 or 128 terms, operands in the type that the name ends in. */
static const char *cute(struct ptx_machine *m, struct ptx_module *mod, const char *kernel)
{
    enum { N = 64, K = 128 };
    enum element e = strstr(kernel, "bf16") ? BF16 : strstr(kernel, "tf32") ? TF32 : strstr(kernel, "s8") ? S8 : HALF;
    bool fp8 = strstr(kernel, "e4m3") != NULL;
    size_t bytes = e == TF32 ? 4 : e == S8 || fp8 ? 1 : 2;
    struct run r = open_run(m, mod, kernel);
    unsigned char *ab[2] = {in(&r, N * K * bytes), in(&r, N * K * bytes)};
    float *c = in(&r, N * N * 4);
    double *v = calloc(2 * N * K, sizeof *v);
    for (int i = 0; i < 2 * N * K; i++) {
        float f = (float)(floor(random_unit(&r) * 8) / 4);
        uint32_t bits;
        memcpy(&bits, &f, 4);
        uint16_t h = e == HALF ? to_half((double)f) : (uint16_t)(bits >> 16);
        unsigned char *to = ab[i / (N * K)] + (size_t)(i % (N * K)) * bytes;
        signed char small = (signed char)(random_unit(&r) * 127);
        if (e == S8) v[i] = small;
        else v[i] = (double)f;
        if (fp8) *to = (unsigned char)nearest((double)f, 4, 3, false, true);
        else if (e == S8) memcpy(to, &small, 1);
        else memcpy(to, e == TF32 ? (void *)&f : (void *)&h, bytes);
    }
    int_param(&r, N);
    int_param(&r, K);
    bool wgmma = strstr(kernel, "wgmma") != NULL;
    const char *problem = go(&r, 2, (struct ptx_dim){1, 1, 1}, 128, wgmma ? 16384 : 0);
    for (int i = 0; i < N * N && !problem; i++) {
        double want = 0, got = e == S8 ? ((int *)c)[i] : (double)c[i];
        for (int k = 0; k < K; k++) want += v[i / N * K + k] * v[(N + i % N) * K + k];
        if (far(got, want, e == S8 ? 0 : fp8 ? 1e-3 : 1e-6)) problem = wrong("element", (size_t)i, got, want);
    }
    free(v);
    return close_run(&r, problem);
}

const struct validation validations[] = {
    {"wmma_f16", "80", "wmma.cu", wmma_f16, false},       {"wmma_f16_rows", "80", "wmma.cu", wmma_f16_rows, false},
    {"wmma_bf16", "80", "wmma.cu", wmma_bf16, false},     {"wmma_tf32", "80", "wmma.cu", wmma_tf32, false},
    {"wmma_s8", "80", "wmma.cu", wmma_s8, false},         {"to_narrow_80", "80", "formats.cu", to_narrow, false},
    {"to_narrow_89", "89", "formats.cu", to_narrow, false}, {"from_narrow_80", "80", "formats.cu", from_narrow, false},
    {"from_narrow_90", "90", "formats.cu", from_narrow, false}, {"half_math", "80", "formats.cu", half_math, false},
    {"math", "80", "scalar.cu", math, false},             {"softmax", "80", "scalar.cu", softmax, false},
    {"pipeline", "80", "scalar.cu", pipeline, false},     {"handover", "90", "scalar.cu", handover, false},
    {"histogram", "80", "scalar.cu", histogram, false},   {"gemm_mma_80", "80", "gemm_mma.cu", gemm_mma, false},
    {"gemm_mma_90", "90", "gemm_mma.cu", gemm_mma, false},
    {"gemm_wgmma", "90a", "gemm_wgmma.cu", gemm_wgmma, false},
    {"cute_f16", "80", "cute.cu", cute, true},     {"cute_f16_k8", "80", "cute.cu", cute, true},
    {"cute_bf16", "80", "cute.cu", cute, true},    {"cute_tf32", "80", "cute.cu", cute, true},
    {"cute_s8", "80", "cute.cu", cute, true},      {"cute_s8_k16", "80", "cute.cu", cute, true},
    {"cute_ldmatrix", "80", "cute.cu", cute, true},
    {"cute_wgmma_128", "90a", "cute.cu", cute, true}, {"cute_wgmma_64", "90a", "cute.cu", cute, true},
    {"cute_wgmma_none", "90a", "cute.cu", cute, true}, {"cute_wgmma_mn", "90a", "cute.cu", cute, true},
    {"cute_wgmma_mn_none", "90a", "cute.cu", cute, true},
};
const int n_validations = (int)(sizeof validations / sizeof *validations);
