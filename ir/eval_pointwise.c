// SPDX-License-Identifier: Apache-2.0
/*
 * Pointwise ops. A row of the table gives up to three block functions, for floats, for words up to 63 significant bits
 * with sign (all integers but u64, bool) and for u64; a missing one means that the op is not defined there.
 */
#include <math.h>

#include "ir/eval_impl.h"
#include "ir/eval_table.h"
#include "ir/math_ref.h"
#include "ir/support/float.h"

/* What the block functions need beside elements. */
struct pw_info {
    unsigned bits; /* of the element type */
    bool is_bool;
    bool want_pos, want_neg; /* isinf */
};

typedef void (*pw_fn)(const struct pw_info *p, int64_t n, const union eval_lane *x, const union eval_lane *y,
                      union eval_lane *out);

#define UNARY(fn, in_field, in_type, out_field, expr)                                              \
    static void fn(const struct pw_info *p, int64_t n, const union eval_lane *x, const union eval_lane *y, \
                   union eval_lane *out)                                                           \
    {                                                                                              \
        (void)p, (void)y;                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            in_type a = x[i].in_field;                                                             \
            out[i].out_field = (expr);                                                             \
        }                                                                                          \
    }
#define BINARY(fn, in_field, in_type, out_field, expr)                                             \
    static void fn(const struct pw_info *p, int64_t n, const union eval_lane *x, const union eval_lane *y, \
                   union eval_lane *out)                                                           \
    {                                                                                              \
        (void)p;                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            in_type a = x[i].in_field, b = y[i].in_field;                                          \
            out[i].out_field = (expr);                                                             \
        }                                                                                          \
    }
#define UNARY_F(name, expr) UNARY(name##_f, f, double, f, expr)
#define UNARY_I(name, expr) UNARY(name##_i, i, int64_t, i, expr)
#define UNARY_U(name, expr) UNARY(name##_u, u, uint64_t, u, expr)
#define BINARY_F(name, expr) BINARY(name##_f, f, double, f, expr)
#define BINARY_I(name, expr) BINARY(name##_i, i, int64_t, i, expr)
#define BINARY_U(name, expr) BINARY(name##_u, u, uint64_t, u, expr)
/* Comparison: the same expression in the three domains, to a word. */
#define COMPARE(name, op)                                                                          \
    BINARY(name##_f, f, double, i, a op b)                                                         \
    BINARY(name##_i, i, int64_t, i, a op b)                                                        \
    BINARY(name##_u, u, uint64_t, i, a op b)

static double sign_f64(double a) { return a > 0 ? 1 : a < 0 ? -1 : a; }

UNARY_F(neg, -a)
UNARY_U(neg, 0 - a)
UNARY_F(abs, fabs(a))
UNARY_I(abs, a < 0 ? (int64_t)(0 - (uint64_t)a) : a)
UNARY_U(abs, a)
UNARY_F(sign, sign_f64(a))
UNARY_I(sign, (a > 0) - (a < 0))
UNARY_U(sign, a > 0)
UNARY_F(floor, floor(a))
UNARY_F(ceil, ceil(a))
static double round_even(double a)
{
    double f = floor(a), d = a - f;
    double r = d > 0.5 || (d == 0.5 && floor(f / 2) * 2 != f) ? f + 1 : f;
    return copysign(r, a);
}
UNARY_F(round, round_even(a))
UNARY_F(sqrt, sqrt(a))
UNARY_F(exp, ref_exp(a))
UNARY_F(log, ref_log(a))
UNARY_F(sin, ref_sin(a))
UNARY_F(cos, ref_cos(a))
UNARY_F(tan, ref_tan(a))
UNARY_F(asin, ref_asin(a))
UNARY_F(acos, ref_acos(a))
UNARY_F(atan, ref_atan(a))
UNARY_F(sinh, ref_sinh(a))
UNARY_F(cosh, ref_cosh(a))
UNARY_F(tanh, ref_tanh(a))
UNARY_F(asinh, ref_asinh(a))
UNARY_F(acosh, ref_acosh(a))
UNARY_F(atanh, ref_atanh(a))
UNARY_F(erf, ref_erf(a))
UNARY_F(sigmoid, ref_sigmoid(a))
UNARY_U(not, p->is_bool ? !a : ~a)
UNARY(isnan_f, f, double, i, a != a)
UNARY(isinf_f, f, double, i, (p->want_pos && a == INFINITY) || (p->want_neg && a == -INFINITY))

BINARY_F(add, a + b)
BINARY_U(add, a + b)
BINARY_F(sub, a - b)
BINARY_U(sub, a - b)
BINARY_F(mul, a * b)
BINARY_U(mul, a * b)
BINARY_F(div, a / b)
BINARY_I(div, b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b)
BINARY_U(div, b == 0 ? 0 : a / b)
BINARY_F(rem, fmod(a, b)) /* fmod is exact */
BINARY_I(rem, b == 0 || b == -1 ? 0 : a % b)
BINARY_U(rem, b == 0 ? 0 : a % b)

static double mod_f64(double a, double b)
{
    double r = fmod(a, b);
    if (r == 0) return copysign(r, b);
    return (r < 0) != (b < 0) ? r + b : r;
}
static int64_t mod_i64(int64_t a, int64_t b)
{
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
BINARY_F(mod, mod_f64(a, b))
BINARY_I(mod, mod_i64(a, b))

double eval_min_f64(double a, double b)
{
    if (a != a || b != b) return a + b;
    if (a == b) return signbit(a) ? a : b;
    return a < b ? a : b;
}
double eval_max_f64(double a, double b)
{
    if (a != a || b != b) return a + b;
    if (a == b) return signbit(a) ? b : a;
    return a > b ? a : b;
}
BINARY_F(min, eval_min_f64(a, b))
BINARY_I(min, a < b ? a : b)
BINARY_U(min, a < b ? a : b)
BINARY_F(max, eval_max_f64(a, b))
BINARY_I(max, a > b ? a : b)
BINARY_U(max, a > b ? a : b)
BINARY_U(and, a & b)
BINARY_U(or, a | b)
BINARY_U(xor, a ^ b)

/* A negative or huge count is at least the width. */
BINARY_U(shl, b >= p->bits ? 0 : a << b)
static int64_t shr_i64(int64_t a, uint64_t b, unsigned bits)
{
    if (b >= bits) return a < 0 ? -1 : 0;
    return a < 0 ? ~(int64_t)(~(uint64_t)a >> b) : (int64_t)((uint64_t)a >> b);
}
BINARY_I(shr, shr_i64(a, (uint64_t)b, p->bits))
BINARY_U(shr, b >= p->bits ? 0 : a >> b)

COMPARE(eq, ==)
COMPARE(ne, !=)
COMPARE(lt, <)
COMPARE(le, <=)
COMPARE(gt, >)
COMPARE(ge, >=)

static const struct pw_row {
    enum ir_opcode code;
    pw_fn f, i, u;
} rows[] = {
    {IR_OP_NEG, neg_f, neg_u, neg_u},
    {IR_OP_ABS, abs_f, abs_i, abs_u},
    {IR_OP_SIGN, sign_f, sign_i, sign_u},
    {IR_OP_FLOOR, floor_f, NULL, NULL},
    {IR_OP_CEIL, ceil_f, NULL, NULL},
    {IR_OP_ROUND, round_f, NULL, NULL},
    {IR_OP_SQRT, sqrt_f, NULL, NULL},
    {IR_OP_EXP, exp_f, NULL, NULL},
    {IR_OP_LOG, log_f, NULL, NULL},
    {IR_OP_SIN, sin_f, NULL, NULL},
    {IR_OP_COS, cos_f, NULL, NULL},
    {IR_OP_TAN, tan_f, NULL, NULL},
    {IR_OP_ASIN, asin_f, NULL, NULL},
    {IR_OP_ACOS, acos_f, NULL, NULL},
    {IR_OP_ATAN, atan_f, NULL, NULL},
    {IR_OP_SINH, sinh_f, NULL, NULL},
    {IR_OP_COSH, cosh_f, NULL, NULL},
    {IR_OP_TANH, tanh_f, NULL, NULL},
    {IR_OP_ASINH, asinh_f, NULL, NULL},
    {IR_OP_ACOSH, acosh_f, NULL, NULL},
    {IR_OP_ATANH, atanh_f, NULL, NULL},
    {IR_OP_ERF, erf_f, NULL, NULL},
    {IR_OP_SIGMOID, sigmoid_f, NULL, NULL},
    {IR_OP_NOT, NULL, not_u, not_u},
    {IR_OP_ISNAN, isnan_f, NULL, NULL},
    {IR_OP_ISINF, isinf_f, NULL, NULL},
    {IR_OP_ADD, add_f, add_u, add_u},
    {IR_OP_SUB, sub_f, sub_u, sub_u},
    {IR_OP_MUL, mul_f, mul_u, mul_u},
    {IR_OP_DIV, div_f, div_i, div_u},
    {IR_OP_REM, rem_f, rem_i, rem_u},
    {IR_OP_MOD, mod_f, mod_i, rem_u},
    {IR_OP_MIN, min_f, min_i, min_u},
    {IR_OP_MAX, max_f, max_i, max_u},
    {IR_OP_AND, NULL, and_u, and_u},
    {IR_OP_OR, NULL, or_u, or_u},
    {IR_OP_XOR, NULL, xor_u, xor_u},
    {IR_OP_SHL, NULL, shl_u, shl_u},
    {IR_OP_SHR, NULL, shr_i, shr_u},
    {IR_OP_EQ, eq_f, eq_i, eq_u},
    {IR_OP_NE, ne_f, ne_i, ne_u},
    {IR_OP_LT, lt_f, lt_i, lt_u},
    {IR_OP_LE, le_f, le_i, le_u},
    {IR_OP_GT, gt_f, gt_i, gt_u},
    {IR_OP_GE, ge_f, ge_i, ge_u},
};

/* Views of all operands, broadcast to the result's shape and simplified. */
static bool operand_views(struct eval_call *c, int n, struct eval_view *views)
{
    const struct ir_tensor *out = &c->out[0];
    int64_t dims[IR_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < n; i++) {
        if (!eval_need(c, i, EVAL_ANY, -1)) return false;
        if (c->in[i].rank > rank) rank = c->in[i].rank;
    }
    for (int d = 0; d < rank; d++) {
        dims[d] = 1;
        for (int i = 0; i < n; i++) {
            int at = d - (rank - c->in[i].rank);
            if (at >= 0 && dims[d] == 1) dims[d] = c->in[i].dims[at];
        }
    }
    if (!eval_expect(c, 0, DT_NONE, rank, dims)) return false;
    for (int i = 0; i < n; i++) {
        views[i] = eval_view_dense(&c->in[i]);
        if (!eval_view_broadcast(&views[i], out->rank, out->dims))
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "operand %d does not broadcast to the others", i);
        eval_view_collapse(&views[i]);
    }
    return true;
}

struct pw_job {
    struct pw_info info;
    int n;
    pw_fn fn;
    struct eval_view views[3], out;
};

static void run_pointwise(void *arg, int64_t from, int64_t to)
{
    const struct pw_job *job = arg;
    union eval_lane x[EVAL_BLOCK], y[EVAL_BLOCK], out[EVAL_BLOCK];
    for (int64_t at = from; at < to; at += EVAL_BLOCK) {
        int64_t n = to - at < EVAL_BLOCK ? to - at : EVAL_BLOCK;
        eval_view_load(&job->views[0], at, n, x);
        if (job->n > 1) eval_view_load(&job->views[1], at, n, y);
        job->fn(&job->info, n, x, y, out);
        eval_view_store(&job->out, at, n, out);
    }
}

static void start(struct eval_call *c, struct pw_job *job, void (*fn)(void *, int64_t, int64_t))
{
    job->out = eval_view_dense(&c->out[0]);
    eval_view_collapse(&job->out);
    eval_parallel(c, eval_count(&c->out[0]), 1 << 15, fn, job);
}

bool eval_pointwise(struct eval_call *c)
{
    const struct pw_row *row = NULL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].code == c->op->code) row = &rows[i];
    INFC_ASSERT(row);
    struct pw_job job = {.n = c->n_in < 2 ? 1 : 2};
    if (!operand_views(c, job.n, job.views)) return false;
    enum dtype t = c->in[0].dtype;
    if (job.n == 2 && c->in[1].dtype != t)
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "operands are %s and %s", dtype_name(t), dtype_name(c->in[1].dtype));
    job.fn = dtype_is_float(t) ? row->f : t == DT_U64 ? row->u : row->i;
    if (!job.fn) return eval_fail(c, DIAG_DTYPE_UNSUPPORTED, "not defined for %s", dtype_name(t));
    bool to_bool = (row->code >= IR_OP_EQ && row->code <= IR_OP_GE) || row->code == IR_OP_ISNAN || row->code == IR_OP_ISINF;
    if (c->out[0].dtype != (to_bool ? DT_BOOL : t))
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "the result cannot be %s", dtype_name(c->out[0].dtype));
    job.info = (struct pw_info){.bits = dtype_bits(t), .is_bool = t == DT_BOOL};
    job.info.want_pos = ir_attr_int(c->op, "positive", 1) != 0;
    job.info.want_neg = ir_attr_int(c->op, "negative", 1) != 0;
    start(c, &job, run_pointwise);
    return true;
}

/* ---- select ---- */

static void run_select(void *arg, int64_t from, int64_t to)
{
    const struct pw_job *job = arg;
    union eval_lane cond[EVAL_BLOCK], x[EVAL_BLOCK], y[EVAL_BLOCK];
    for (int64_t at = from; at < to; at += EVAL_BLOCK) {
        int64_t n = to - at < EVAL_BLOCK ? to - at : EVAL_BLOCK;
        eval_view_load(&job->views[0], at, n, cond);
        eval_view_load_bits(&job->views[1], at, n, x);
        eval_view_load_bits(&job->views[2], at, n, y);
        for (int64_t i = 0; i < n; i++)
            if (!cond[i].i) x[i] = y[i];
        eval_view_store_bits(&job->out, at, n, x);
    }
}

bool eval_select(struct eval_call *c)
{
    struct pw_job job = {.n = 3};
    if (!operand_views(c, 3, job.views)) return false;
    if (c->in[0].dtype != DT_BOOL || c->in[1].dtype != c->in[2].dtype || c->out[0].dtype != c->in[1].dtype)
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "condition %s, values %s and %s", dtype_name(c->in[0].dtype),
                         dtype_name(c->in[1].dtype), dtype_name(c->in[2].dtype));
    start(c, &job, run_select);
    return true;
}

/* ---- pow: the exponent may be of another type ---- */

static uint64_t ipow(uint64_t base, uint64_t e)
{
    uint64_t r = 1;
    for (; e; e >>= 1, base *= base)
        if (e & 1) r *= base;
    return r;
}

/* A negative exponent gives the truncated reciprocal; 0 to it gives 0, like a division by 0. */
static uint64_t int_pow(int64_t base, int64_t e)
{
    if (e >= 0) return ipow((uint64_t)base, (uint64_t)e);
    if (base == 1) return 1;
    if (base == -1) return e % 2 ? (uint64_t)-1 : 1;
    return 0;
}

static void run_pow(void *arg, int64_t from, int64_t to)
{
    const struct pw_job *job = arg;
    union eval_lane x[EVAL_BLOCK], y[EVAL_BLOCK];
    enum dtype tx = job->views[0].dtype, ty = job->views[1].dtype;
    bool fx = dtype_is_float(tx), fy = dtype_is_float(ty);
    for (int64_t at = from; at < to; at += EVAL_BLOCK) {
        int64_t n = to - at < EVAL_BLOCK ? to - at : EVAL_BLOCK;
        eval_view_load(&job->views[0], at, n, x);
        eval_view_load(&job->views[1], at, n, y);
        for (int64_t i = 0; i < n; i++) {
            double b = fx ? x[i].f : tx == DT_U64 ? (double)x[i].u : (double)x[i].i;
            double e = fy ? y[i].f : ty == DT_U64 ? (double)y[i].u : (double)y[i].i;
            if (fx)
                x[i].f = ref_pow(b, e);
            else if (fy)
                x[i].i = eval_trunc(ref_pow(b, e));
            else if (tx == DT_U64 && ty != DT_U64 && y[i].i < 0)
                x[i].u = x[i].u == 1;
            else if (ty == DT_U64)
                x[i].u = ipow(x[i].u, y[i].u);
            else
                x[i].u = int_pow(x[i].i, y[i].i);
        }
        eval_view_store(&job->out, at, n, x);
    }
}

bool eval_pow(struct eval_call *c)
{
    struct pw_job job = {.n = 2};
    if (!operand_views(c, 2, job.views)) return false;
    if (c->out[0].dtype != c->in[0].dtype)
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "the result cannot be %s", dtype_name(c->out[0].dtype));
    start(c, &job, run_pow);
    return true;
}

/* ---- casts ---- */

struct cast_job {
    struct pw_job pw;
    enum dtype to;
    bool saturate;
    enum float_round round;
};

static uint8_t to_f8(const struct cast_job *job, double v)
{
    if (job->to == DT_F8E8M0) return e8m0_from_f64(v, job->saturate, job->round);
    return f8_from_f64(job->to, v, job->saturate);
}

static void run_cast(void *arg, int64_t from, int64_t to)
{
    const struct cast_job *job = arg;
    union eval_lane x[EVAL_BLOCK];
    enum dtype src = job->pw.views[0].dtype;
    bool float_in = dtype_is_float(src), float_out = dtype_is_float(job->to);
    bool f8_out = float_out && dtype_bits(job->to) <= 8;
    for (int64_t at = from; at < to; at += EVAL_BLOCK) {
        int64_t n = to - at < EVAL_BLOCK ? to - at : EVAL_BLOCK;
        eval_view_load(&job->pw.views[0], at, n, x);
        for (int64_t i = 0; i < n; i++) {
            if (float_in && !float_out) x[i].i = job->to == DT_BOOL ? x[i].f != 0 : eval_trunc(x[i].f);
            if (!float_in && float_out) x[i].f = src == DT_U64 ? (double)x[i].u : (double)x[i].i;
            if (f8_out) x[i].u = to_f8(job, x[i].f);
        }
        /* i64 to f32: one rounding only. */
        if (!float_in && job->to == DT_F32) {
            union eval_lane y[EVAL_BLOCK];
            eval_view_load(&job->pw.views[0], at, n, y);
            for (int64_t i = 0; i < n; i++) x[i].f = src == DT_U64 ? (float)y[i].u : (float)y[i].i;
        }
        if (f8_out)
            eval_view_store_bits(&job->pw.out, at, n, x);
        else
            eval_view_store(&job->pw.out, at, n, x);
    }
}

bool eval_cast(struct eval_call *c)
{
    struct cast_job job = {.pw.n = 1, .to = c->out[0].dtype, .saturate = ir_attr_int(c->op, "saturate", 1) != 0};
    const struct ir_attr *a = ir_attr_find(c->op, "to");
    const char *round = ir_attr_string(c->op, "round_mode", "up");
    if (!operand_views(c, 1, job.pw.views)) return false;
    if (!a || a->kind != IR_ATTR_DTYPE || (enum dtype)a->i != job.to)
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "the result is not of the type in attribute `to`");
    job.round = !strcmp(round, "nearest") ? FLOAT_ROUND_NEAREST : !strcmp(round, "down") ? FLOAT_ROUND_DOWN : FLOAT_ROUND_UP;
    job.pw.out = eval_view_dense(&c->out[0]);
    eval_view_collapse(&job.pw.out);
    eval_parallel(c, eval_count(&c->out[0]), 1 << 15, run_cast, &job);
    return true;
}

bool eval_bitcast(struct eval_call *c)
{
    struct ir_tensor *out = &c->out[0];
    if (!eval_need(c, 0, EVAL_ANY, -1) || !eval_expect(c, 0, DT_NONE, c->in[0].rank, c->in[0].dims)) return false;
    unsigned bits = dtype_bits(out->dtype);
    if (bits != dtype_bits(c->in[0].dtype))
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "%s and %s differ in width", dtype_name(c->in[0].dtype),
                         dtype_name(out->dtype));
    memcpy(out->data, c->in[0].data, out->n_bytes);
    if (bits >= 8) return true;
    /* One byte an element: extended anew the way the new type wants it. */
    uint8_t *p = out->data;
    for (size_t i = 0; i < out->n_bytes; i++) {
        unsigned v = p[i] & ((1u << bits) - 1);
        p[i] = (uint8_t)(dtype_class(out->dtype) == DTC_SINT && v >> (bits - 1) ? v | ~((1u << bits) - 1) : v);
    }
    return true;
}
