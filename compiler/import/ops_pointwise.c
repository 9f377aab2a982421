// SPDX-License-Identifier: Apache-2.0
/* Element by element: arithmetic, comparison, logic, casts. Activations are in ops_activation.c. */
#include <math.h>

#include "compiler/import/onnx_int.h"

bool onnx_unary(struct onode *n)
{
    return on_out(n, 0, e_un(n, (enum ir_opcode)n->row->arg, on_in(n, 0)));
}

bool onnx_binary(struct onode *n)
{
    return on_out(n, 0, e_bin(n, (enum ir_opcode)n->row->arg, on_in(n, 0), on_in(n, 1)));
}

/* And Or Xor Not are for bool, Bitwise* for integers: one core op, so the type is checked here. */
bool onnx_logic(struct onode *n)
{
    bool bitwise = n->row->op[0] == 'B';
    for (int i = 0; i < n->n_in; i++) {
        enum dtype t = on_in(n, i)->type.dtype;
        if (bitwise ? !dtype_is_int(t) : t != DT_BOOL)
            return on_fail(n, DIAG_DTYPE_MISMATCH, "%s: input %d is %s", n->row->op, i,
                           dtype_name(t));
    }
    return n->n_in == 1 ? onnx_unary(n) : onnx_binary(n);
}

bool onnx_variadic(struct onode *n)
{
    struct ir_value *acc = on_in(n, 0);
    for (int i = 1; i < n->n_in; i++) acc = e_bin(n, (enum ir_opcode)n->row->arg, acc, on_in(n, i));
    return on_out(n, 0, acc);
}

bool onnx_mean(struct onode *n)
{
    struct ir_value *acc = e_wide(n, on_in(n, 0));
    for (int i = 1; i < n->n_in; i++) acc = e_add(n, acc, e_wide(n, on_in(n, i)));
    return on_out(n, 0, e_cast(n, e_div(n, acc, e_like(n, acc, n->n_in)), on_in(n, 0)->type.dtype));
}

bool onnx_identity(struct onode *n) { return on_out(n, 0, on_in(n, 0)); }

/* Comparisons of bool (Equal) work on bytes. */
bool onnx_compare(struct onode *n)
{
    struct ir_value *a = on_in(n, 0), *b = on_in(n, 1);
    if (a->type.dtype == DT_BOOL && b->type.dtype == DT_BOOL) {
        a = e_cast(n, a, DT_U8);
        b = e_cast(n, b, DT_U8);
    }
    return on_out(n, 0, e_bin(n, (enum ir_opcode)n->row->arg, a, b));
}

bool onnx_pow(struct onode *n)
{
    return on_out(n, 0, e_bin(n, IR_OP_POW, on_in(n, 0), on_in(n, 1)));
}

bool onnx_mod(struct onode *n)
{
    bool fmod_rule = at_int(n, "fmod", 0);
    if (!fmod_rule && n->version < 28 && dtype_is_float(on_in(n, 0)->type.dtype))
        return on_fail(n, DIAG_ONNX_ATTR,
                       "Mod of floats before operator set 28 needs attribute fmod=1");
    return on_out(n, 0, e_bin(n, fmod_rule ? IR_OP_REM : IR_OP_MOD, on_in(n, 0), on_in(n, 1)));
}

bool onnx_bitshift(struct onode *n)
{
    static const char *const names[] = {"LEFT", "RIGHT"};
    int right = at_choice(n, "direction", -1, 2, names);
    if (right < 0)
        return n->failed ? false : on_fail(n, DIAG_ONNX_ATTR, "attribute 'direction' is missing");
    return on_out(n, 0, e_bin(n, right ? IR_OP_SHR : IR_OP_SHL, on_in(n, 0), on_in(n, 1)));
}

bool onnx_where(struct onode *n)
{
    return on_out(n, 0, e_sel(n, on_in(n, 0), on_in(n, 1), on_in(n, 2)));
}

bool onnx_isinf(struct onode *n)
{
    struct ir_attr a[2] = {ir_a_int("negative", at_int(n, "detect_negative", 1)),
                           ir_a_int("positive", at_int(n, "detect_positive", 1))};
    return on_out(n, 0, e_op1(n, IR_OP_ISINF, on_in(n, 0), 2, a));
}

bool onnx_reciprocal(struct onode *n)
{
    return on_out(n, 0, e_div(n, e_like(n, on_in(n, 0), 1), on_in(n, 0)));
}

bool onnx_clip(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *lo = on_in(n, 1), *hi = on_in(n, 2);
    if (n->version < 11) {
        lo = at_has(n, "min") ? e_like(n, x, at_float(n, "min", 0)) : NULL;
        hi = at_has(n, "max") ? e_like(n, x, at_float(n, "max", 0)) : NULL;
    }
    if (n->failed) return false;
    if (lo) x = e_max(n, x, lo);
    if (hi) x = e_min(n, x, hi);
    return on_out(n, 0, x);
}

/* ---- casts ---- */

static bool is_small_float(enum dtype t) { return dtype_is_float(t) && dtype_bits(t) <= 8; }

static bool cast_to(struct onode *n, enum dtype to)
{
    struct ir_value *x = on_in(n, 0);
    if (to == DT_NONE) return false;
    if ((is_small_float(to) || is_small_float(x->type.dtype)) && to != x->type.dtype)
        return on_fail(n, DIAG_DTYPE_UNSUPPORTED, "%s from %s to %s is not supported yet",
                       n->row->op, dtype_name(x->type.dtype), dtype_name(to));
    at_ignore(n, "saturate"); /* for 8-bit floats only */
    at_ignore(n, "round_mode");
    return on_out(n, 0, e_cast(n, x, to));
}

bool onnx_cast(struct onode *n)
{
    if (!at_has(n, "to")) return on_fail(n, DIAG_ONNX_ATTR, "attribute 'to' is missing");
    return cast_to(n, at_dtype(n, "to", DT_NONE));
}

bool onnx_castlike(struct onode *n) { return cast_to(n, on_in(n, 1)->type.dtype); }

bool onnx_bitcast(struct onode *n)
{
    enum dtype to = at_dtype(n, "to", DT_NONE), from = on_in(n, 0)->type.dtype;
    if (to == DT_NONE) return false;
    if (dtype_bits(to) != dtype_bits(from))
        return on_fail(n, DIAG_DTYPE_MISMATCH, "BitCast from %s to %s, which differ in width",
                       dtype_name(from), dtype_name(to));
    struct ir_attr a = ir_a_dtype("to", to);
    return on_out(n, 0, to == from ? on_in(n, 0) : e_op1(n, IR_OP_BITCAST, on_in(n, 0), 1, &a));
}
