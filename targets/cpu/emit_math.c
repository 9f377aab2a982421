// SPDX-License-Identifier: Apache-2.0
/*
 * Pointwise ops, one row at a time. Floats carry no fast-math flag: the bits of a level depend on the kernel alone.
 * Floats below 32 bits are computed in f32 and rounded after every op (for + - * / and sqrt that is the same as
 * rounding once).
 */
#include "targets/cpu/emit.h"

static LLVMTypeRef row_type(struct cg *g, enum dtype d, int n)
{
    return cg_vec(cg_elem_type(g, d), n);
}

/* ---- unary ---- */

static const char *rounding_intrinsic(enum lp_opcode op)
{
    switch (op) {
    case LP_OP_FLOOR: return "llvm.floor";
    case LP_OP_CEIL: return "llvm.ceil";
    case LP_OP_ROUND: return "llvm.roundeven";
    case LP_OP_SQRT: return "llvm.sqrt";
    case LP_OP_ABS: return "llvm.fabs";
    default: return NULL;
    }
}

/*
 * The sign bit of formats in which flipping or clearing it is the whole operation; else 0. (FNUZ has no -0; the
 * result of an op on f8e5m2 saturates, infinity too.)
 */
static int64_t sign_bit(enum dtype d)
{
    switch (d) {
    case DT_F16:
    case DT_BF16: return 0x8000;
    case DT_F8E4M3FN: return 0x80;
    case DT_F4E2M1: return 0x8;
    default: return 0;
    }
}

static LLVMValueRef soft_unary(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef x)
{
    LLVMTypeRef e = cg_elem_type(g, d);
    int64_t sign = sign_bit(d);
    if (sign && op == LP_OP_NEG) return LLVMBuildXor(g->b, x, cg_int(e, n, sign), "");
    if (sign && op == LP_OP_ABS) return LLVMBuildAnd(g->b, x, cg_int(e, n, ~sign), "");
    return cg_from_f32(g, d, n, cg_unary(g, op, DT_F32, n, cg_to_f32(g, d, n, x)));
}

static LLVMValueRef int_unary(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef x)
{
    LLVMTypeRef e = cg_elem_type(g, d);
    switch (op) {
    case LP_OP_NEG: return cg_wrap(g, d, n, LLVMBuildNeg(g->b, x, ""));
    case LP_OP_NOT: return cg_wrap(g, d, n, LLVMBuildXor(g->b, x, cg_int(e, n, -1), ""));
    case LP_OP_ABS: {
        if (!dtype_is_signed(d)) return x;
        LLVMValueRef args[2] = {x, LLVMConstInt(g->i1, 0, 0)};
        return cg_wrap(g, d, n, cg_call(g, "llvm.abs", row_type(g, d, n), args, 2));
    }
    default: return x; /* rounding an integer */
    }
}

LLVMValueRef cg_unary(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef x)
{
    if (!dtype_is_float(d)) return int_unary(g, op, d, n, x);
    if (cg_is_soft(d)) return soft_unary(g, op, d, n, x);
    if (op == LP_OP_NEG) return LLVMBuildFNeg(g->b, x, "");
    const char *name = rounding_intrinsic(op);
    INFC_ASSERT(name != NULL);
    return cg_call(g, name, row_type(g, d, n), &x, 1);
}

/* ---- comparisons ---- */

static LLVMValueRef compare(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b)
{
    static const LLVMRealPredicate real[] = {LLVMRealOEQ, LLVMRealUNE, LLVMRealOLT,
                                             LLVMRealOLE, LLVMRealOGT, LLVMRealOGE};
    static const LLVMIntPredicate sint[] = {LLVMIntEQ, LLVMIntNE, LLVMIntSLT, LLVMIntSLE, LLVMIntSGT, LLVMIntSGE};
    static const LLVMIntPredicate uint[] = {LLVMIntEQ, LLVMIntNE, LLVMIntULT, LLVMIntULE, LLVMIntUGT, LLVMIntUGE};
    int i = (int)op - LP_OP_EQ;
    if (cg_is_soft(d)) {
        a = cg_to_f32(g, d, n, a);
        b = cg_to_f32(g, d, n, b);
    }
    if (dtype_is_float(d)) return cg_fcmp(g, real[i], a, b);
    return cg_icmp(g, dtype_is_signed(d) ? sint[i] : uint[i], a, b);
}

/* ---- minimum, maximum ---- */

/*
 * x86's min and max return the second operand when either is NaN: `a > b ? a : b` is one instruction. It is already
 * right when a cannot be NaN; else a NaN in a is put back (two more instructions).
 */
static LLVMValueRef float_minmax(struct cg *g, enum lp_opcode op, LLVMValueRef a, LLVMValueRef b, bool a_num,
                                 bool b_num)
{
    if (b_num && !a_num) {
        LLVMValueRef t = a;
        a = b;
        b = t;
        a_num = true;
    }
    LLVMValueRef m = cg_select(g, cg_fcmp(g, op == LP_OP_MAX ? LLVMRealOGT : LLVMRealOLT, a, b), a, b);
    return a_num ? m : cg_select(g, cg_fcmp(g, LLVMRealUNO, a, a), a, m);
}

static LLVMValueRef minmax(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b,
                           bool a_num, bool b_num)
{
    if (cg_is_soft(d)) {
        LLVMValueRef r = float_minmax(g, op, cg_to_f32(g, d, n, a), cg_to_f32(g, d, n, b), a_num, b_num);
        return cg_from_f32(g, d, n, r);
    }
    if (dtype_is_float(d)) return float_minmax(g, op, a, b, a_num, b_num);
    if (d == DT_BOOL) return op == LP_OP_MAX ? LLVMBuildOr(g->b, a, b, "") : LLVMBuildAnd(g->b, a, b, "");
    const char *name = dtype_is_signed(d) ? (op == LP_OP_MAX ? "llvm.smax" : "llvm.smin")
                                          : (op == LP_OP_MAX ? "llvm.umax" : "llvm.umin");
    LLVMValueRef args[2] = {a, b};
    return cg_call(g, name, row_type(g, d, n), args, 2);
}

/* ---- binary ---- */

/* An amount of the width or more (or a negative one) shifts everything out. */
static LLVMValueRef shift(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b)
{
    LLVMTypeRef e = cg_elem_type(g, d);
    LLVMValueRef width = cg_int(e, n, dtype_bits(d)), zero = cg_int(e, n, 0);
    LLVMValueRef fits = cg_icmp(g, LLVMIntULT, b, width);
    if (op == LP_OP_SHR && dtype_is_signed(d))
        return LLVMBuildAShr(g->b, a, cg_select(g, fits, b, cg_int(e, n, dtype_bits(d) - 1)), "");
    LLVMValueRef amount = cg_select(g, fits, b, zero);
    LLVMValueRef r = op == LP_OP_SHL ? LLVMBuildShl(g->b, a, amount, "") : LLVMBuildLShr(g->b, a, amount, "");
    return cg_wrap(g, d, n, cg_select(g, fits, r, zero));
}

static LLVMValueRef float_binary(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef a,
                                 LLVMValueRef b)
{
    switch (op) {
    case LP_OP_ADD: return LLVMBuildFAdd(g->b, a, b, "");
    case LP_OP_SUB: return LLVMBuildFSub(g->b, a, b, "");
    case LP_OP_MUL: return LLVMBuildFMul(g->b, a, b, "");
    case LP_OP_DIV: return LLVMBuildFDiv(g->b, a, b, "");
    case LP_OP_REM:
    case LP_OP_MOD: return cg_float_rem(g, op, d, n, a, b);
    default: INFC_UNREACHABLE("float op");
    }
}

static LLVMValueRef int_binary(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b)
{
    switch (op) {
    case LP_OP_ADD: return cg_wrap(g, d, n, LLVMBuildAdd(g->b, a, b, ""));
    case LP_OP_SUB: return cg_wrap(g, d, n, LLVMBuildSub(g->b, a, b, ""));
    case LP_OP_MUL: return cg_wrap(g, d, n, LLVMBuildMul(g->b, a, b, ""));
    case LP_OP_AND: return LLVMBuildAnd(g->b, a, b, "");
    case LP_OP_OR: return LLVMBuildOr(g->b, a, b, "");
    case LP_OP_XOR: return LLVMBuildXor(g->b, a, b, "");
    case LP_OP_SHL:
    case LP_OP_SHR: return shift(g, op, d, n, a, b);
    case LP_OP_DIV:
    case LP_OP_REM:
    case LP_OP_MOD:
    case LP_OP_FLOORDIV: return cg_int_div(g, op, d, n, a, b);
    default: INFC_UNREACHABLE("integer op");
    }
}

LLVMValueRef cg_binary(struct cg *g, enum lp_opcode op, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b,
                       bool a_num, bool b_num)
{
    if (op >= LP_OP_EQ && op <= LP_OP_GE) return compare(g, op, d, n, a, b);
    if (op == LP_OP_MIN || op == LP_OP_MAX) return minmax(g, op, d, n, a, b, a_num, b_num);
    if (cg_is_soft(d)) {
        LLVMValueRef x = cg_to_f32(g, d, n, a), y = cg_to_f32(g, d, n, b);
        return cg_from_f32(g, d, n, float_binary(g, op, DT_F32, n, x, y));
    }
    if (dtype_is_float(d)) return float_binary(g, op, d, n, a, b);
    return int_binary(g, op, d, n, a, b);
}

/* Without FMA hardware the intrinsic would become one library call an element. */
LLVMValueRef cg_fma(struct cg *g, enum dtype d, int n, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c)
{
    if (cg_is_soft(d)) {
        LLVMValueRef r = cg_fma(g, DT_F32, n, cg_to_f32(g, d, n, a), cg_to_f32(g, d, n, b), cg_to_f32(g, d, n, c));
        return cg_from_f32(g, d, n, r);
    }
    if (!dtype_is_float(d)) return cg_wrap(g, d, n, LLVMBuildAdd(g->b, LLVMBuildMul(g->b, a, b, ""), c, ""));
    LLVMValueRef args[3] = {a, b, c};
    if (g->level->has_fma) return cg_call(g, "llvm.fma", row_type(g, d, n), args, 3);
    return LLVMBuildFAdd(g->b, LLVMBuildFMul(g->b, a, b, ""), c, "");
}

/* ---- whole ops ---- */

/* Provably no NaN: looked up through the ops that keep that. */
static bool is_number(const struct lp_value *v)
{
    while (v->def && v->def->code == LP_OP_SPLAT) v = v->def->operands[0];
    if (!v->def) return false;
    if (v->def->code == LP_OP_CONST) return v->def->fimm == v->def->fimm;
    return v->def->code == LP_OP_CAST && !dtype_is_float(v->def->operands[0]->type.dtype);
}

static bool const_within(const struct lp_value *v, double limit)
{
    while (v->def && v->def->code == LP_OP_SPLAT) v = v->def->operands[0];
    return v->def && v->def->code == LP_OP_CONST && v->def->fimm > -limit && v->def->fimm < limit;
}

/* One of a MIN's or MAX's operands is a small constant: bounded on that side. */
static bool bounded_by(const struct lp_op *op, enum lp_opcode code, const struct lp_value **inner)
{
    if (!op || op->code != code) return false;
    for (int i = 0; i < 2; i++) {
        if (!const_within(op->operands[i], 2147483520.0)) continue;
        *inner = op->operands[1 - i];
        return true;
    }
    return false;
}

/* A float that was clamped between constants before it is converted, as quantisation does. */
static bool is_clamped(const struct lp_value *v)
{
    while (v->def && (v->def->code == LP_OP_ROUND || v->def->code == LP_OP_FLOOR || v->def->code == LP_OP_CEIL))
        v = v->def->operands[0];
    const struct lp_value *inner = NULL;
    if (bounded_by(v->def, LP_OP_MIN, &inner)) return bounded_by(inner->def, LP_OP_MAX, &inner);
    if (bounded_by(v->def, LP_OP_MAX, &inner)) return bounded_by(inner->def, LP_OP_MIN, &inner);
    return false;
}

static LLVMValueRef bitcast_row(struct cg *g, enum dtype to, int n, LLVMValueRef x)
{
    return LLVMBuildBitCast(g->b, x, row_type(g, to, n), "");
}

static LLVMValueRef pointwise_row(struct cg *g, const struct lp_op *op, int r, int n)
{
    enum dtype d = op->operands[0]->type.dtype, to = op->results[0]->type.dtype;
    LLVMValueRef x[3] = {NULL, NULL, NULL};
    for (int i = 0; i < op->n_operands && i < 3; i++) x[i] = cg_row(g, op->operands[i], r, n);
    switch (op->code) {
    case LP_OP_SELECT: return cg_select(g, x[0], x[1], x[2]);
    case LP_OP_FMA: return cg_fma(g, d, n, x[0], x[1], x[2]);
    case LP_OP_CAST: return cg_cast(g, d, to, n, x[0], d == DT_F32 && is_clamped(op->operands[0]));
    case LP_OP_BITCAST: return bitcast_row(g, to, n, x[0]);
    default: break;
    }
    if (op->n_operands == 1) return cg_unary(g, op->code, d, n, x[0]);
    return cg_binary(g, op->code, d, n, x[0], x[1], is_number(op->operands[0]), is_number(op->operands[1]));
}

/* Index arithmetic goes where its operands are known: outside the loops that do not change it. */
static int hoist_depth(struct cg *g, const struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    bool index = t.rows == 1 && t.cols == 1 && (t.dtype == DT_I64 || t.dtype == DT_BOOL);
    int depth = 0;
    for (int i = 0; i < op->n_operands; i++) {
        if (dtype_is_float(op->operands[i]->type.dtype)) index = false;
        if (cg_get(g, op->operands[i])->depth > depth) depth = cg_get(g, op->operands[i])->depth;
    }
    return index ? depth : g->depth;
}

static bool is_rowwise(const struct lp_op *op, int rows)
{
    return (lp_op_flags(op->code) & LP_F_PW) && !(lp_op_flags(op->code) & LP_F_MATH) && op->results[0]->type.rows == rows;
}

/* An op that may come before the pointwise ops on tiles that it stands between: it needs none of their results. */
static bool comes_first(const struct lp_op *op)
{
    if (op->code == LP_OP_CONST || op->code == LP_OP_DIM || op->code == LP_OP_IOTA || op->code == LP_OP_LOAD) return true;
    return (lp_op_flags(op->code) & LP_F_PW) && !(lp_op_flags(op->code) & LP_F_MATH) && op->results[0]->type.rows == 1;
}

/*
 * Pointwise ops on tiles that follow one another are emitted row by row, each row through all of them: op by op, the
 * temporaries of a whole tile would be live at once and go through the stack.
 */
static bool pointwise_rows(struct cg *g, struct lp_op *first, struct lp_op **last)
{
    int rows = first->results[0]->type.rows;
    *last = first;
    cg_set(g, first->results[0], g->depth);
    for (struct lp_op *op = first->next, *done; op; op = op->next) {
        if (is_rowwise(op, rows)) {
            if (!cg_count_op(g, op)) return false;
            cg_set(g, op->results[0], g->depth);
            *last = op;
        } else if (!comes_first(op) || !cg_op(g, op, &done)) {
            break;
        } else {
            *last = op;
        }
    }
    for (int r = 0; r < rows; r++)
        for (struct lp_op *op = first; op != (*last)->next; op = op->next)
            if (is_rowwise(op, rows)) cg_get(g, op->results[0])->rows[r] = pointwise_row(g, op, r, op->results[0]->type.cols);
    return !g->failed;
}

bool cg_pointwise(struct cg *g, struct lp_op *op, struct lp_op **last)
{
    *last = op;
    if (op->results[0]->type.rows > 1) return pointwise_rows(g, op, last);
    int depth = hoist_depth(g, op);
    struct cg_value *y = cg_set(g, op->results[0], depth);
    if (depth < g->depth) {
        LLVMBasicBlockRef saved = cg_enter_depth(g, depth);
        y->rows[0] = pointwise_row(g, op, 0, 1);
        cg_leave_depth(g, saved);
        return !g->failed;
    }
    y->rows[0] = pointwise_row(g, op, 0, op->results[0]->type.cols);
    return !g->failed;
}
