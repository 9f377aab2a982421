// SPDX-License-Identifier: Apache-2.0
/*
 * Every pointwise op and every conversion of the x86-64 target, on each level of this machine, for scalars, whole
 * registers and odd vectors, against the loop-IR cell functions (which share nothing with the target).
 */
#include "tests/unit/cpu_kernel.h"

#include <math.h>

#include "ir/loop_cell.h"

#define MAX_OUT 40

struct out {
    enum lp_opcode code; /* CAST: to dtype */
    enum dtype dtype;
};

struct problem {
    enum dtype in;
    int n_in;
    struct out out[MAX_OUT];
    int n_out;
    int64_t n;
    uint64_t *bits[3]; /* inputs */
    bool close;        /* results within a few units in the last place (f8: one) */
};

static uint64_t random_state = 88172645463325252u;
static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Bits of element values: the edges of the dtype, then random ones. */
static size_t interesting(enum dtype d, uint64_t *out, size_t cap)
{
    size_t n = 0;
    unsigned bits = dtype_bits(d);
    if (d == DT_BOOL) bits = 1;
    if (bits <= 8) {
        for (unsigned v = 0; v < 1u << bits && n < cap; v++) {
            uint64_t u = v;
            if (dtype_class(d) == DTC_SINT && v >> (bits - 1)) u = (v | ~((1u << bits) - 1)) & 255;
            out[n++] = u;
        }
        return n;
    }
    static const double floats[] = {0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 7.0, 0.1, -0.3, 1e-3, 448.0, 464.0,
                                    480.0, 57344.0, 61440.0, 65504.0, 65519.0, 65520.0, 65536.0, 1e-8, 5.96e-8,
                                    2.98e-8, 2.99e-8, 6.1e-5, 0x1p-14, 0x1.ffep-15, 0x1p-126, 0x1p-149, 0x1p-127,
                                    0x1.8p-128, 1.0 + 0x1p-8, 1.0 + 0x3p-8, 1.0 + 0x1p-11, 1.0 + 0x3p-11, 1.0 + 0x1p-11 + 0x1p-40,
                                    127.0, 128.0, -128.0, -129.0, 255.0, 256.0, 300.7, -300.7, 32767.0, 32768.0,
                                    2147483520.0, 2147483647.0, 2147483648.0, -2147483648.0, -2147483649.0, 3e9,
                                    -3e9, 4294967295.0, 4294967296.0, 1e10, -1e10, 9.2e18, -9.2e18, 0x1p63, -0x1p63, 1.2e19,
                                    0x1.123456789abcdp63, 0x1p64, -1.9e19, 1e30, -1e30, 3.4e38, 1e300};
    if (dtype_is_float(d)) {
        for (size_t i = 0; i < ARRAY_LEN(floats) && n < cap; i++)
            out[n++] = lp_cell_bits(d, (union lp_cell){.f = lp_cell_round(d, floats[i])});
        double special[] = {(double)INFINITY, -(double)INFINITY, (double)NAN};
        for (size_t i = 0; i < 3 && n < cap; i++) out[n++] = lp_cell_bits(d, (union lp_cell){.f = special[i]});
    } else {
        static const int64_t ints[] = {0, 1, -1, 2, -2, 3, -3, 5, 7, -7, 10, 31, 32, 33, 63, 64, 65, 100, 127, -128, 255, 256, 12345,
                                       -12345, 16777217, 16777219, INT16_MIN, INT16_MAX, INT32_MIN, INT32_MAX,
                                       INT64_MIN, INT64_MAX, INT64_MIN + 1, 0x7fffffbf, 0x100000001};
        for (size_t i = 0; i < ARRAY_LEN(ints) && n < cap; i++) {
            uint64_t u = (uint64_t)ints[i];
            out[n++] = bits == 64 ? u : u & (((uint64_t)1 << bits) - 1);
        }
    }
    for (int i = 0; i < 64 && n < cap; i++) {
        uint64_t u = next_random();
        out[n++] = bits == 64 ? u : u & (((uint64_t)1 << bits) - 1);
    }
    return n;
}

static void put(enum dtype d, char *p, uint64_t bits) { memcpy(p, &bits, dtype_bytes(d)); }
static uint64_t get(enum dtype d, const char *p)
{
    uint64_t v = 0;
    memcpy(&v, p, dtype_bytes(d));
    return v;
}

static enum dtype out_dtype(const struct problem *p, int i)
{
    enum lp_opcode c = p->out[i].code;
    if (c == LP_OP_CAST) return p->out[i].dtype;
    return c >= LP_OP_EQ && c <= LP_OP_GE ? DT_BOOL : p->in;
}

static struct lp_kernel *build(struct dim_ctx *ctx, const struct problem *p, int cols)
{
    struct lp_kernel *k = lp_kernel_create(ctx, "ops", "t", "generic");
    const struct dim *n = dim_sym(ctx, "N", 0, 1 << 20);
    int in[3], out[MAX_OUT];
    for (int i = 0; i < p->n_in; i++) in[i] = lp_add_arg(k, "x", p->in, 1, &n, false, 0);
    for (int i = 0; i < p->n_out; i++) out[i] = lp_add_arg(k, "y", out_dtype(p, i), 1, &n, true, 0);
    struct lp_builder b = {k, k->body};
    struct lp_value *end = lp_dim(&b, n), *x[3];
    struct lp_op *loop = lp_for_begin(&b, LP_LOOP_SERIAL, lp_index(&b, 0), end, cols, 0, NULL);
    struct lp_value *i = loop->regions[0]->args[0], *left = lp_binary(&b, LP_OP_SUB, end, i);
    for (int j = 0; j < p->n_in; j++) x[j] = lp_load_tile(&b, in[j], &i, 1, cols, -1, cols > 1 ? 0 : -1, NULL, left);
    for (int j = 0; j < p->n_out; j++) {
        enum lp_opcode c = p->out[j].code;
        struct lp_value *y = c == LP_OP_CAST     ? lp_cast(&b, x[0], p->out[j].dtype)
                             : c == LP_OP_SELECT ? lp_select(&b, lp_binary(&b, LP_OP_LT, x[0], x[1]), x[1], x[0])
                             : c < LP_OP_POW     ? lp_unary(&b, c, x[0])
                                                 : lp_binary(&b, c, x[0], x[1]);
        lp_store_tile(&b, out[j], &i, y, -1, cols > 1 ? 0 : -1, NULL, left);
    }
    lp_for_end(&b, loop, NULL);
    return k;
}

static union lp_cell expected(const struct problem *p, int o, const union lp_cell *x)
{
    enum lp_opcode c = p->out[o].code;
    if (c == LP_OP_CAST) return lp_cell_cast(p->in, p->out[o].dtype, x[0]);
    if (c == LP_OP_SELECT) return lp_cell_binary(LP_OP_LT, p->in, x[0], x[1]).i ? x[1] : x[0];
    if (c < LP_OP_POW) return lp_cell_unary(c, p->in, x[0]);
    return lp_cell_binary(c, p->in, x[0], x[1]);
}

/* Distance in representable numbers; huge when only one is NaN. */
static uint64_t distance(enum dtype d, uint64_t a, uint64_t b)
{
    uint64_t sign = (uint64_t)1 << (dtype_bits(d) - 1);
    double x = lp_cell_from_bits(d, a).f, y = lp_cell_from_bits(d, b).f;
    if (x != x || y != y) return x != x && y != y ? 0 : UINT64_MAX;
    a = a & sign ? sign - (a & (sign - 1)) : sign + a;
    b = b & sign ? sign - (b & (sign - 1)) : sign + b;
    return a > b ? a - b : b - a;
}

/* Beyond 2^40 the f64 formulas promise nothing about the angle. */
static bool promised(const struct problem *p, enum lp_opcode c, const union lp_cell *x)
{
    bool circular = c == LP_OP_SIN || c == LP_OP_COS || c == LP_OP_TAN;
    return !(circular && p->in == DT_F64 && fabs(x[0].f) > 0x1p40 && fabs(x[0].f) < (double)INFINITY);
}

/* NaNs are equal whatever their payload; zeros whatever their sign, where the op says nothing about it. */
static bool same(enum dtype d, uint64_t got, uint64_t want)
{
    if (got == want) return true;
    if (!dtype_is_float(d)) return false;
    double a = lp_cell_from_bits(d, got).f, b = lp_cell_from_bits(d, want).f;
    return (a != a && b != b) || (a == 0 && b == 0);
}

static void check(const struct problem *p, const struct target_level *level, int cols)
{
    struct dim_ctx *ctx = dim_ctx_create();
    struct diag_sink diag;
    diag_init(&diag);
    struct lp_kernel *k = build(ctx, p, cols);
    struct target_object object;
    const struct target *t = target_find("x86-64");
    bool ok = t->emit(t, level, k, "f", &object, &diag);
    if (!ok) diag_print_text(&diag, stderr);
    assert_true(ok);
    struct loaded l = load_object(&object, "f");
    struct guarded mem[3 + MAX_OUT];
    void *bufs[3 + MAX_OUT];
    int n_bufs = p->n_in + p->n_out;
    for (int i = 0; i < n_bufs; i++) {
        enum dtype d = i < p->n_in ? p->in : out_dtype(p, i - p->n_in);
        mem[i] = guarded_alloc((size_t)p->n * dtype_bytes(d));
        bufs[i] = mem[i].data;
        for (int64_t j = 0; i < p->n_in && j < p->n; j++) put(d, mem[i].data + (size_t)j * dtype_bytes(d), p->bits[i][j]);
    }
    l.fn(bufs, &p->n, 0, 1, NULL);
    int wrong = 0;
    for (int o = 0; o < p->n_out; o++) {
        enum dtype d = out_dtype(p, o);
        for (int64_t j = 0; j < p->n; j++) {
            union lp_cell x[3];
            for (int i = 0; i < p->n_in; i++) x[i] = lp_cell_from_bits(p->in, p->bits[i][j]);
            uint64_t want = lp_cell_bits(d, expected(p, o, x));
            uint64_t got = get(d, mem[p->n_in + o].data + (size_t)j * dtype_bytes(d));
            if (same(d, got, want)) continue;
            if (p->close && distance(d, got, want) <= (d == DT_F64 ? 8 : d == DT_F32 ? 4 : 1)) continue;
            if (p->close && !promised(p, p->out[o].code, x)) continue;
            if (wrong++ < 6)
                print_error("%s, %d columns: %s %s -> %s of %#llx, %#llx: got %#llx, want %#llx\n", level->name, cols,
                            lp_op_name(p->out[o].code), dtype_name(p->in), dtype_name(d), (unsigned long long)p->bits[0][j],
                            (unsigned long long)(p->n_in > 1 ? p->bits[1][j] : 0), (unsigned long long)got,
                            (unsigned long long)want);
        }
    }
    for (int i = 0; i < n_bufs; i++) guarded_free(&mem[i]);
    munmap(l.mem, l.n_bytes + 1);
    free(object.data);
    lp_kernel_destroy(k);
    diag_deinit(&diag);
    dim_ctx_destroy(ctx);
    assert_int_equal(wrong, 0);
}

/* Odd vectors go through LLVM's widening: conversions are where that goes wrong first, so only they try it. */
static void check_all(const struct problem *p)
{
    const struct target *t = target_find("x86-64");
    static const int columns[] = {1, 16, 5};
    size_t n = p->out[0].code == LP_OP_CAST ? 3 : 2;
    for (int i = 0; i < t->n_levels && t->levels[i].isa <= INFR_ISA_V4; i++) {
        if (!machine_has(t->levels[i].isa)) continue;
        for (size_t c = 0; c < n; c++) check(p, &t->levels[i], columns[c]);
    }
}

static void add(struct problem *p, enum lp_opcode code, enum dtype to)
{
    assert_true(p->n_out < MAX_OUT);
    p->out[p->n_out++] = (struct out){code, to};
}

static void test_casts(void **state)
{
    (void)state;
    for (enum dtype from = DT_F64; from <= DT_BOOL; from++) {
        struct problem p = {.in = from, .n_in = 1};
        uint64_t values[300];
        p.n = (int64_t)interesting(from, values, 300);
        p.bits[0] = values;
        for (enum dtype to = DT_F64; to <= DT_BOOL; to++)
            if (to != from) add(&p, LP_OP_CAST, to);
        check_all(&p);
    }
}

static void test_unary(void **state)
{
    (void)state;
    for (enum dtype d = DT_F64; d <= DT_BOOL; d++) {
        if (d == DT_F8E8M0) continue; /* scales: no arithmetic */
        struct problem p = {.in = d, .n_in = 1};
        uint64_t values[300];
        p.n = (int64_t)interesting(d, values, 300);
        p.bits[0] = values;
        if (d != DT_BOOL) {
            add(&p, LP_OP_NEG, d);
            add(&p, LP_OP_ABS, d);
        }
        if (!dtype_is_float(d)) {
            add(&p, LP_OP_NOT, d);
        } else {
            add(&p, LP_OP_FLOOR, d);
            add(&p, LP_OP_CEIL, d);
            add(&p, LP_OP_ROUND, d);
            add(&p, LP_OP_SQRT, d);
        }
        check_all(&p);
    }
}

static void test_binary(void **state)
{
    (void)state;
    for (enum dtype d = DT_F64; d <= DT_BOOL; d++) {
        if (d == DT_F8E8M0) continue;
        struct problem p = {.in = d, .n_in = 2};
        uint64_t values[80];
        size_t n = interesting(d, values, d == DT_F32 || d == DT_F64 ? 80 : 48);
        p.n = (int64_t)(n * n);
        p.bits[0] = calloc((size_t)p.n, 8);
        p.bits[1] = calloc((size_t)p.n, 8);
        for (size_t i = 0; i < n * n; i++) {
            p.bits[0][i] = values[i / n];
            p.bits[1][i] = values[i % n];
        }
        enum lp_opcode first = d == DT_BOOL ? LP_OP_MIN : LP_OP_ADD;
        for (enum lp_opcode c = first; c <= LP_OP_SELECT; c++) {
            bool bits_only = c == LP_OP_AND || c == LP_OP_OR || c == LP_OP_XOR;
            bool ints_only = c == LP_OP_SHL || c == LP_OP_SHR || c == LP_OP_FLOORDIV;
            if (dtype_is_float(d) && (bits_only || ints_only)) continue;
            if (d == DT_BOOL && ints_only) continue;
            add(&p, c, d);
        }
        check_all(&p);
        free(p.bits[0]);
        free(p.bits[1]);
    }
}

/* The polynomials of the shared expansion, as this target computes them: with and without FMA. */
static void test_math(void **state)
{
    (void)state;
    static const enum dtype types[] = {DT_F64, DT_F32, DT_F16, DT_BF16};
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        struct problem p = {.in = types[t], .n_in = 1, .close = true};
        uint64_t values[300];
        p.n = (int64_t)interesting(p.in, values, 300);
        p.bits[0] = values;
        for (enum lp_opcode c = LP_OP_EXP; c < LP_OP_POW; c++) add(&p, c, p.in);
        check_all(&p);
        uint64_t pairs[2][900];
        struct problem q = {.in = types[t], .n_in = 2, .close = true, .n = 900, .bits = {pairs[0], pairs[1]}};
        for (int i = 0; i < 900; i++) {
            pairs[0][i] = values[i / 30 * 2];
            pairs[1][i] = values[i % 30 * 2];
        }
        add(&q, LP_OP_POW, q.in);
        check_all(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_math),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
