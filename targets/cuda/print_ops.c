// SPDX-License-Identifier: Apache-2.0
/*
 * Pointwise ops as C expressions, one an element. Semantics are those of ir/loop_ops.def; where C's differ (division by 0, shifts
 * beyond the width, NaN in minima) a function of the prelude has ours. Floats below 32 bits are computed in f32 and
 * rounded after every op.
 */
#include <math.h>
#include <string.h>

#include "ir/loop_cell.h"
#include "ir/loop_rewrite.h"
#include "targets/cuda/print.h"

/* Integers of less than 8 bits wrap to their width after an op. */
static void put_wrapped(struct strbuf *s, enum dtype d, const char *expr)
{
    unsigned bits = dtype_bits(d);
    if (dtype_is_float(d) || d == DT_BOOL) strbuf_puts(s, expr);
    else if (bits >= 8) strbuf_printf(s, "(%s)(%s)", pr_type(d), expr);
    else strbuf_printf(s, dtype_is_signed(d) ? "(i8)((i8)((%s) << %u) >> %u)" : "(u8)((u8)((%s) << %u) & 255) >> %u", expr, 8 - bits, 8 - bits);
}

/* ---- conversions ---- */

static void to_f32(struct strbuf *s, enum dtype d, const char *x)
{
    if (d == DT_F32) strbuf_puts(s, x);
    else strbuf_printf(s, "f32_of_%s(%s)", dtype_name(d), x);
}

static void from_f32(struct strbuf *s, enum dtype d, const char *x)
{
    if (d == DT_F32) strbuf_puts(s, x);
    else strbuf_printf(s, "%s_of_f32(%s)", dtype_name(d), x);
}

static void put_cast(struct strbuf *s, enum dtype from, enum dtype to, const char *x)
{
    struct strbuf wide = {0};
    bool ff = dtype_is_float(from), ft = dtype_is_float(to);
    if (from == to) {
        strbuf_puts(s, x);
    } else if (to == DT_BOOL) {
        if (ff) to_f32(&wide, from == DT_F64 ? DT_F32 : from, x);
        strbuf_printf(s, "(%s) != 0", ff ? strbuf_get(&wide) : x);
    } else if (!ff && !ft) {
        put_wrapped(s, to, x);
    } else if (!ff && !pr_is_soft(to)) {
        strbuf_printf(s, "(%s)(%s)", pr_type(to), x);
    } else if (!ff || (from == DT_F64 && pr_is_soft(to))) {
        strbuf_printf(&wide, "f32_odd((double)(%s))", x);
        from_f32(s, to, strbuf_get(&wide));
    } else if (ft) {
        if (from == DT_F64) strbuf_printf(&wide, "(float)(%s)", x);
        else to_f32(&wide, from, x);
        if (to == DT_F64) strbuf_printf(s, "(double)(%s)", strbuf_get(&wide));
        else from_f32(s, to, strbuf_get(&wide));
    } else {
        struct strbuf whole = {0};
        if (from == DT_F64) strbuf_printf(&whole, "truncate64(%s)", x);
        else {
            to_f32(&wide, from, x);
            strbuf_printf(&whole, "truncate32(%s)", strbuf_get(&wide));
        }
        put_wrapped(s, to, strbuf_get(&whole));
        strbuf_deinit(&whole);
    }
    strbuf_deinit(&wide);
}

static void put_bitcast(struct strbuf *s, enum dtype from, enum dtype to, const char *x)
{
    if (from == DT_F32) strbuf_printf(s, "(%s)__float_as_int(%s)", pr_type(to), x);
    else if (from == DT_F64) strbuf_printf(s, "(%s)__double_as_longlong(%s)", pr_type(to), x);
    else if (to == DT_F32) strbuf_printf(s, "__int_as_float((int)(%s))", x);
    else if (to == DT_F64) strbuf_printf(s, "__longlong_as_double((i64)(%s))", x);
    else strbuf_printf(s, "(%s)(%s)", pr_type(to), x);
}

/* ---- one operand ---- */

static const char *unary_function(enum lp_opcode op)
{
    switch (op) {
    case LP_OP_ABS: return "fabs";
    case LP_OP_FLOOR: return "floor";
    case LP_OP_CEIL: return "ceil";
    case LP_OP_ROUND: return "rint";
    case LP_OP_SQRT: return "sqrt";
    default: return NULL;
    }
}

static void put_unary(struct printer *p, struct strbuf *s, enum lp_opcode op, enum dtype d, const char *x)
{
    struct strbuf a = {0}, b = {0};
    if (!dtype_is_float(d)) {
        if (op == LP_OP_NOT && d == DT_BOOL) strbuf_printf(s, "!%s", x);
        else {
            if (op == LP_OP_NOT) strbuf_printf(&a, "~%s", x);
            else if (op == LP_OP_NEG) strbuf_printf(&a, "0 - (u64)%s", x);
            else if (op == LP_OP_ABS && dtype_is_signed(d)) strbuf_printf(&a, "%s < 0 ? 0 - (u64)%s : (u64)%s", x, x, x);
            else strbuf_puts(&a, x); /* rounding an integer */
            put_wrapped(s, d, strbuf_get(&a));
        }
    } else {
        if (pr_is_soft(d)) to_f32(&a, d, x);
        else strbuf_puts(&a, x);
        const char *f = unary_function(op);
        if (op == LP_OP_NEG) strbuf_printf(&b, "-%s", strbuf_get(&a));
        else if (f) strbuf_printf(&b, "%s%s(%s)", f, d == DT_F64 ? "" : "f", strbuf_get(&a));
        else pr_fail(p, DIAG_NO_LOWERING, "no code on this target for", lp_op_name(op));
        if (pr_is_soft(d)) from_f32(s, d, strbuf_get(&b));
        else strbuf_puts(s, strbuf_get(&b));
    }
    strbuf_deinit(&a);
    strbuf_deinit(&b);
}

/* ---- two operands ---- */

static const char *infix(enum lp_opcode op)
{
    switch (op) {
    case LP_OP_ADD: return "+";
    case LP_OP_SUB: return "-";
    case LP_OP_MUL: return "*";
    case LP_OP_DIV: return "/";
    case LP_OP_AND: return "&";
    case LP_OP_OR: return "|";
    case LP_OP_XOR: return "^";
    case LP_OP_EQ: return "==";
    case LP_OP_NE: return "!=";
    case LP_OP_LT: return "<";
    case LP_OP_LE: return "<=";
    case LP_OP_GT: return ">";
    case LP_OP_GE: return ">=";
    default: return NULL;
    }
}

static bool is_compare(enum lp_opcode op) { return op >= LP_OP_EQ && op <= LP_OP_GE; }

static const char *binary_function(enum lp_opcode op, bool is_float)
{
    switch (op) {
    case LP_OP_MIN: return is_float ? "fmin_nan" : "int_min";
    case LP_OP_MAX: return is_float ? "fmax_nan" : "int_max";
    case LP_OP_DIV: return "int_div";
    case LP_OP_REM: return is_float ? "float_rem" : "int_rem";
    case LP_OP_MOD: return is_float ? "float_mod" : "int_mod";
    case LP_OP_FLOORDIV: return "int_floordiv";
    default: return NULL;
    }
}

static void put_float_binary(struct printer *p, struct strbuf *s, enum lp_opcode op, enum dtype d, const char *x, const char *y)
{
    struct strbuf a = {0}, b = {0}, r = {0};
    const char *f = binary_function(op, true), *in = infix(op);
    bool soft = pr_is_soft(d);
    if (soft) to_f32(&a, d, x), to_f32(&b, d, y);
    else strbuf_puts(&a, x), strbuf_puts(&b, y);
    if (in) strbuf_printf(&r, "%s %s %s", strbuf_get(&a), in, strbuf_get(&b));
    else if (f) strbuf_printf(&r, "%s(%s, %s)", f, strbuf_get(&a), strbuf_get(&b));
    else pr_fail(p, DIAG_NO_LOWERING, "no code on this target for", lp_op_name(op));
    if (soft && !is_compare(op)) from_f32(s, d, strbuf_get(&r));
    else strbuf_puts(s, strbuf_get(&r));
    strbuf_deinit(&a);
    strbuf_deinit(&b);
    strbuf_deinit(&r);
}

void pr_binary(struct printer *p, struct strbuf *s, enum lp_opcode op, enum dtype d, const char *x, const char *y)
{
    struct strbuf r = {0};
    if (dtype_is_float(d)) {
        put_float_binary(p, s, op, d, x, y);
    } else if (op == LP_OP_SHL || op == LP_OP_SHR) {
        strbuf_printf(&r, "%s(%s, %s, %u)", op == LP_OP_SHL ? "int_shl" : "int_shr", x, y, dtype_bits(d));
        put_wrapped(s, d, strbuf_get(&r));
    } else if (binary_function(op, false)) {
        strbuf_printf(&r, "%s(%s, %s)", binary_function(op, false), x, y);
        put_wrapped(s, d, strbuf_get(&r));
    } else if (is_compare(op)) {
        strbuf_printf(s, "%s %s %s", x, infix(op), y);
    } else if (infix(op)) {
        /* Signed sums and products wrap: computed unsigned. */
        bool sum = (op == LP_OP_ADD || op == LP_OP_SUB || op == LP_OP_MUL) && dtype_is_signed(d);
        strbuf_printf(&r, !sum ? "%s %s %s" : d == DT_I64 ? "(u64)%s %s (u64)%s" : "(u32)%s %s (u32)%s", x, infix(op), y);
        put_wrapped(s, d, strbuf_get(&r));
    } else {
        pr_fail(p, DIAG_NO_LOWERING, "no code on this target for", lp_op_name(op));
    }
    strbuf_deinit(&r);
}

/* ---- whole ops ---- */

static void put_fma(struct strbuf *s, enum dtype d, const char *x, const char *y, const char *z)
{
    struct strbuf a[3] = {{0}, {0}, {0}}, r = {0};
    const char *const v[3] = {x, y, z};
    bool soft = pr_is_soft(d);
    for (int i = 0; i < 3; i++)
        if (soft) to_f32(&a[i], d, v[i]);
        else strbuf_puts(&a[i], v[i]);
    if (dtype_is_float(d))
        strbuf_printf(&r, "%s(%s, %s, %s)", d == DT_F64 ? "__fma_rn" : "__fmaf_rn", strbuf_get(&a[0]), strbuf_get(&a[1]), strbuf_get(&a[2]));
    else strbuf_printf(&r, "(u64)%s * (u64)%s + (u64)%s", x, y, z);
    if (soft) from_f32(s, d, strbuf_get(&r));
    else if (dtype_is_float(d)) strbuf_puts(s, strbuf_get(&r));
    else put_wrapped(s, d, strbuf_get(&r));
    for (int i = 0; i < 3; i++) strbuf_deinit(&a[i]);
    strbuf_deinit(&r);
}

static void put_expression(struct printer *p, struct strbuf *s, const struct lp_op *op, char *const *x)
{
    enum dtype d = op->operands[0]->type.dtype, to = op->results[0]->type.dtype;
    switch (op->code) {
    case LP_OP_SELECT: strbuf_printf(s, "%s ? %s : %s", x[0], x[1], x[2]); return;
    case LP_OP_FMA: put_fma(s, d, x[0], x[1], x[2]); return;
    case LP_OP_CAST: put_cast(s, d, to, x[0]); return;
    case LP_OP_BITCAST: put_bitcast(s, d, to, x[0]); return;
    default: break;
    }
    if (op->n_operands == 1) put_unary(p, s, op->code, d, x[0]);
    else pr_binary(p, s, op->code, d, x[0], x[1]);
}

void pr_pointwise(struct printer *p, const struct lp_op *op)
{
    struct lp_value *y = op->results[0];
    struct strbuf declare = {0}, dst = {0}, expr = {0}, x[3] = {{0}, {0}, {0}};
    char *names[3] = {NULL, NULL, NULL};
    for (int i = 0; i < op->n_operands && i < 3; i++) {
        pr_element(p, &x[i], op->operands[i], "r", "c");
        names[i] = x[i].data;
    }
    pr_declare(p, &declare, y);
    pr_element(p, &dst, y, "r", "c");
    put_expression(p, &expr, op, names);
    if (pr_elems(p, y->type) == 1) {
        pr_line(p, "const %s = %s;", strbuf_get(&declare), strbuf_get(&expr));
    } else {
        pr_line(p, "%s;", strbuf_get(&declare));
        pr_loops_begin(p, y->type);
        pr_line(p, "%s = %s;", strbuf_get(&dst), strbuf_get(&expr));
        pr_loops_end(p, y->type);
    }
    strbuf_deinit(&declare);
    strbuf_deinit(&dst);
    strbuf_deinit(&expr);
    for (int i = 0; i < 3; i++) strbuf_deinit(&x[i]);
}

/* ---- constants ---- */

static void put_const(struct strbuf *s, enum dtype d, const struct lp_op *op)
{
    if (d == DT_BOOL) {
        strbuf_puts(s, op->imm ? "true" : "false");
    } else if (d == DT_F32) {
        float v = (float)op->fimm;
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        if (isfinite(v)) strbuf_printf(s, "%af", (double)v);
        else strbuf_printf(s, "__int_as_float(0x%08x)", bits);
    } else if (d == DT_F64) {
        uint64_t bits;
        memcpy(&bits, &op->fimm, sizeof bits);
        if (isfinite(op->fimm)) strbuf_printf(s, "%a", op->fimm);
        else strbuf_printf(s, "__longlong_as_double(0x%016llxll)", (unsigned long long)bits);
    } else if (dtype_is_float(d)) {
        union lp_cell c = {.f = op->fimm};
        strbuf_printf(s, "0x%llx", (unsigned long long)lp_cell_bits(d, c));
    } else if (dtype_is_signed(d) && op->imm == INT64_MIN) {
        strbuf_puts(s, "-9223372036854775807ll - 1");
    } else if (dtype_is_signed(d)) {
        strbuf_printf(s, dtype_bits(d) > 32 ? "%lldll" : "%lld", (long long)op->imm);
    } else {
        strbuf_printf(s, dtype_bits(d) > 32 ? "%lluull" : "%lluu", (unsigned long long)lp_wrap_int(d, op->imm));
    }
}

void pr_const(struct printer *p, const struct lp_op *op)
{
    struct lp_value *y = op->results[0];
    struct strbuf declare = {0}, dst = {0}, value = {0};
    pr_declare(p, &declare, y);
    pr_element(p, &dst, y, "r", "c");
    put_const(&value, y->type.dtype, op);
    if (pr_elems(p, y->type) == 1) {
        pr_line(p, "const %s = %s;", strbuf_get(&declare), strbuf_get(&value));
    } else {
        pr_line(p, "%s;", strbuf_get(&declare));
        pr_loops_begin(p, y->type);
        pr_line(p, "%s = %s;", strbuf_get(&dst), strbuf_get(&value));
        pr_loops_end(p, y->type);
    }
    strbuf_deinit(&declare);
    strbuf_deinit(&dst);
    strbuf_deinit(&value);
}
