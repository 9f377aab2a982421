// SPDX-License-Identifier: Apache-2.0
/*
 * The loop IR's invariants: see ir/loop.h. lp_check_op looks at one op's operands, attributes and results; lp_verify
 * adds structure: list links, lexical scoping, yields, buffers. Linear in the kernel's size.
 */
#include "ir/blocks.h"
#include "ir/dim.h"
#include "ir/loop.h"
#include "ir/loop_rewrite.h"

#include <stdlib.h>

#define MAX_TILE_ELEMS (1 << 16)
#define MAX_STACK_BYTES ((int64_t)64 << 20)
#define MAX_DEPTH 128

static bool is_scalar(struct lp_type t) { return t.rows == 1 && t.cols == 1; }
static bool is_index(struct lp_type t) { return t.dtype == DT_I64 && is_scalar(t); }
static bool same_type(struct lp_type a, struct lp_type b)
{
    return a.dtype == b.dtype && a.rows == b.rows && a.cols == b.cols;
}
static bool same_shape(struct lp_type a, struct lp_type b) { return a.rows == b.rows && a.cols == b.cols; }

/* ---- one op ---- */

/* Every check returns NULL or what is wrong. */
static const char *check_unary(const struct lp_op *op)
{
    struct lp_type x = op->operands[0]->type, r = op->results[0]->type;
    if (!same_shape(x, r)) return "the result's shape is not the operand's";
    if (op->code == LP_OP_CAST) return dtype_bytes(r.dtype) ? NULL : "cannot convert to this type";
    if (op->code == LP_OP_BITCAST) {
        if (x.dtype == DT_BOOL || r.dtype == DT_BOOL) return "bool has no bits to keep";
        return dtype_bits(x.dtype) == dtype_bits(r.dtype) ? NULL : "the types' widths differ";
    }
    if (x.dtype != r.dtype) return "the result's type is not the operand's";
    if (op->code == LP_OP_NOT) return dtype_is_float(x.dtype) ? "needs bool or integers" : NULL;
    if (op->code == LP_OP_NEG || op->code == LP_OP_ABS) return x.dtype == DT_BOOL ? "needs numbers" : NULL;
    return dtype_is_float(x.dtype) ? NULL : "needs floats";
}

static const char *check_binary(const struct lp_op *op)
{
    struct lp_type x = op->operands[0]->type, y = op->operands[1]->type, r = op->results[0]->type, s;
    if (x.dtype != y.dtype) return "the operands' types differ";
    bool bits = op->code == LP_OP_AND || op->code == LP_OP_OR || op->code == LP_OP_XOR;
    if (bits && dtype_is_float(x.dtype)) return "needs bool or integers";
    bool ints = op->code == LP_OP_SHL || op->code == LP_OP_SHR || op->code == LP_OP_FLOORDIV;
    if (ints && !dtype_is_int(x.dtype)) return "needs integers";
    bool compare = op->code >= LP_OP_EQ && op->code <= LP_OP_GE;
    if (r.dtype != (compare ? DT_BOOL : x.dtype)) return "the result's type does not fit";
    if (!lp_broadcast(x, y, &s) || !same_shape(s, r)) return "the shapes do not broadcast to the result's";
    return NULL;
}

static const char *check_ternary(const struct lp_op *op)
{
    struct lp_type x = op->operands[0]->type, y = op->operands[1]->type, z = op->operands[2]->type;
    struct lp_type r = op->results[0]->type, s;
    if (op->code == LP_OP_SELECT) {
        if (x.dtype != DT_BOOL) return "the condition is not bool";
    } else if (x.dtype != y.dtype || x.dtype == DT_BOOL) {
        return "needs three operands of one number type";
    }
    if (y.dtype != z.dtype || r.dtype != y.dtype) return "the operands' types differ";
    if (!lp_broadcast(x, y, &s) || !lp_broadcast(s, z, &s) || !same_shape(s, r))
        return "the shapes do not broadcast to the result's";
    return NULL;
}

static const char *check_reduce(const struct lp_op *op)
{
    struct lp_type x = op->operands[0]->type, r = op->results[0]->type;
    if (op->index < LP_RED_ADD || op->index > LP_RED_OR) return "an unknown reduction";
    if (x.cols & (x.cols - 1)) return "the columns are not a power of two";
    if (r.dtype != x.dtype || r.rows != x.rows || r.cols != 1) return "the result is not one column of the operand";
    bool bits = op->index >= LP_RED_AND;
    if (bits ? dtype_is_float(x.dtype) : x.dtype == DT_BOOL) return "the reduction does not fit the type";
    return NULL;
}

static const char *check_dot(const struct lp_op *op)
{
    struct lp_type c = op->operands[0]->type, x = op->operands[1]->type, y = op->operands[2]->type;
    if (!same_type(c, op->results[0]->type)) return "the result's type is not the accumulator's";
    if (x.rows != c.rows || y.cols != c.cols || x.cols != y.rows) return "the shapes do not fit";
    bool bytes = (x.dtype == DT_I8 || x.dtype == DT_U8) && y.dtype == DT_I8;
    bool floats = x.dtype == y.dtype && (x.dtype == DT_F32 || x.dtype == DT_F16 || x.dtype == DT_BF16 || x.dtype == DT_F8E4M3FN || x.dtype == DT_F8E5M2);
    return c.dtype == DT_F32 ? (floats ? NULL : "the types do not fit") : c.dtype == DT_I32 && bytes ? NULL : "the types do not fit";
}

static const char *check_dot_blocks(const struct lp_op *op)
{
    struct lp_type c = op->operands[0]->type, x = op->operands[1]->type, s = op->operands[2]->type, u = op->operands[3]->type;
    struct blocks d = blocks_decode(op->index);
    if (op->index < 0 || d.group < 8 || d.group > 256 || d.group % 8 || d.zero > 128 || (d.high && (!d.nibbles || d.group / 2 * d.high != 16))) return "no such blocks";
    if (!same_type(c, op->results[0]->type)) return "the result's type is not the accumulator's";
    if (c.dtype != DT_F32 || x.dtype != DT_I16 || s.dtype != DT_F32 || u.dtype != DT_U16) return "the types do not fit";
    bool fits = c.cols == BLOCKS_COLS && x.rows == c.rows && x.cols == d.group && s.rows == c.rows && s.cols == 1 && u.rows == 1 && u.cols == blocks_units(&d);
    return fits ? NULL : "the shapes do not fit";
}

static const char *check_mma(const struct lp_op *op)
{
    struct lp_type c = op->operands[0]->type, x = op->operands[1]->type, y = op->operands[2]->type;
    int k = op->index;
    if (k != 1 && k != 2 && k != 4) return "k is not 1, 2 or 4";
    if (!same_type(c, op->results[0]->type)) return "the result's type is not the accumulator's";
    if (x.rows != c.rows || x.cols != k * y.rows || (y.rows != 1 && k != 4) || y.cols != c.cols * k) return "the shapes do not fit";
    bool fits = k == 1   ? x.dtype == c.dtype && y.dtype == c.dtype && c.dtype != DT_BOOL
                : k == 2 ? (c.dtype == DT_F32 && x.dtype == DT_BF16 && y.dtype == DT_BF16) ||
                               (c.dtype == DT_I32 && x.dtype == DT_I16 && y.dtype == DT_I16)
                         : c.dtype == DT_I32 && (x.dtype == DT_I8 || x.dtype == DT_U8) &&
                               (y.dtype == DT_I8 || y.dtype == DT_U8);
    return fits ? NULL : "the types do not fit";
}

/* Operands of CONST .. YIELD that are neither pointwise, memory nor control. */
static const char *check_tile_op(const struct lp_kernel *k, const struct lp_op *op)
{
    struct lp_type r = op->results[0]->type, x = op->n_operands ? op->operands[0]->type : r;
    switch (op->code) {
    case LP_OP_CONST:
        if (!dtype_is_float(r.dtype) && lp_wrap_int(r.dtype, op->imm) != op->imm) return "beyond the type's range";
        return NULL;
    case LP_OP_DIM:
        if (!is_index(r)) return "the result is not an i64";
        return op->index < 0 || (size_t)op->index >= k->dims.n ? "no such dim parameter" : NULL;
    case LP_OP_IOTA: return (r.rows != 1 && r.cols != 1) || !dtype_is_int(r.dtype) ? "the result is not an integer vector" : NULL;
    case LP_OP_SPLAT:
        if (x.dtype != r.dtype) return "the result's type is not the operand's";
        return (x.rows != 1 && x.rows != r.rows) || (x.cols != 1 && x.cols != r.cols)
                   ? "the operand does not broadcast to the result" : NULL;
    case LP_OP_EXTRACT:
        if (x.dtype != r.dtype) return "the result's type is not the operand's";
        if (op->index < 0 || op->index >= (x.rows > 1 ? x.rows : x.cols)) return "the index is out of range";
        return r.rows != 1 || r.cols != (x.rows > 1 ? x.cols : 1) ? "the result is not one row or element" : NULL;
    case LP_OP_BYTES:
        if (!dtype_is_int(x.dtype) || (r.dtype != DT_I8 && r.dtype != DT_U8)) return "not integers to bytes";
        return r.rows == x.rows && r.cols == x.cols * (int)dtype_bytes(x.dtype) ? NULL : "the result does not have all bytes";
    case LP_OP_INTERLEAVE:
        if (x.dtype != r.dtype) return "the result's type is not the operand's";
        return r.rows != 1 || r.cols != (int)x.rows * x.cols ? "the result is not a row of all elements" : NULL;
    case LP_OP_REDUCE: return check_reduce(op);
    case LP_OP_MMA: return check_mma(op);
    case LP_OP_DOT: return check_dot(op);
    case LP_OP_DOT_BLOCKS: return check_dot_blocks(op);
    default: return "not expected here";
    }
}

static const char *check_memory(const struct lp_kernel *k, const struct lp_op *op)
{
    if (op->code == LP_OP_BARRIER) return NULL;
    if (op->buf < 0 || (size_t)op->buf >= k->bufs.n) return "no such buffer";
    const struct lp_buf *b = &k->bufs.v[op->buf];
    bool store = op->code == LP_OP_STORE;
    int first = lp_first_index(op);
    if (op->n_operands != first + b->rank + op->has_nrows + op->has_ncols)
        return "the number of indices is not the buffer's rank";
    if (op->code == LP_OP_PREFETCH) {
        if (op->index & ~1) return "a prefetch is near or far";
        for (int i = 0; i < b->rank; i++)
            if (!is_index(op->operands[i]->type)) return "an index is not an i64";
        return NULL;
    }
    struct lp_type t = store ? op->operands[0]->type : op->results[0]->type;
    if (t.dtype != b->dtype) return "the buffer holds another type";
    if (store && !b->writable) return "the buffer is not writable";
    int gather_cols = 1;
    for (int i = 0; i < b->rank; i++) {
        struct lp_type x = op->operands[first + i]->type;
        bool own_rows = (op->code == LP_OP_LOAD || k->cta_threads) && i == op->row_axis && x.cols == 1 && x.rows == t.rows;
        if (x.dtype != DT_I64 || (x.rows != 1 && !own_rows)) return "an index is not an i64 or a vector of i64";
        if (x.cols != 1 && gather_cols != 1 && x.cols != gather_cols) return "the index vectors' lengths differ";
        if (x.cols != 1) gather_cols = x.cols;
    }
    if (op->has_nrows && !is_index(lp_nrows(k, op)->type)) return "nrows is not an i64";
    if (op->has_ncols && !is_index(lp_ncols(k, op)->type)) return "ncols is not an i64";
    if (gather_cols > 1) {
        if (op->row_axis != -1 || op->col_axis != -1 || op->has_nrows) return "a gather has no row or column axis";
        if (t.rows != 1 || (t.cols != gather_cols && !(store && t.cols == 1))) return "a gather's shape is its indices'";
        return NULL;
    }
    if (op->row_axis < -1 || op->row_axis >= b->rank || op->col_axis < -1 || op->col_axis >= b->rank)
        return "no such axis";
    if ((t.rows > 1) != (op->row_axis >= 0) || (t.cols > 1) != (op->col_axis >= 0))
        return "a row (column) axis goes with several rows (columns)";
    if (op->row_axis >= 0 && op->row_axis == op->col_axis) return "rows and columns step along one axis";
    return NULL;
}

static const char *check_for(const struct lp_op *op)
{
    if (op->n_operands < 2 || op->n_results != op->n_operands - 2 || op->n_regions != 1 || !op->regions[0])
        return "operands, results and region do not fit";
    const struct lp_block *body = op->regions[0];
    int64_t c;
    if (!is_index(op->operands[0]->type) || !is_index(op->operands[1]->type)) return "the bounds are not i64";
    if (op->imm <= 0) return "the step is not positive";
    if (op->index < LP_LOOP_SERIAL || op->index > LP_LOOP_VECTOR) return "an unknown kind of loop";
    if (op->index == LP_LOOP_UNROLL && (!lp_is_const(op->operands[0], &c) || !lp_is_const(op->operands[1], &c)))
        return "an unrolled loop needs constant bounds";
    if (body->n_args != op->n_results + 1 || !is_index(body->args[0]->type)) return "the region's arguments do not fit";
    for (int i = 0; i < op->n_results; i++) {
        struct lp_type t = op->results[i]->type;
        if (!same_type(op->operands[i + 2]->type, t) || !same_type(body->args[i + 1]->type, t))
            return "a carried value changes its type";
    }
    return NULL;
}

static const char *check_if(const struct lp_op *op)
{
    struct lp_type c = op->operands[0]->type;
    if (op->n_regions != 2 || !op->regions[0] || !op->regions[1]) return "needs two regions";
    if (c.dtype != DT_BOOL || !is_scalar(c)) return "the condition is not a scalar bool";
    return op->regions[0]->n_args || op->regions[1]->n_args ? "the regions have arguments" : NULL;
}

static const signed char operand_counts[] = {
#define LP(ID, name, n_operands, result, flags, doc) n_operands,
#include "ir/loop_ops.def"
#undef LP
};
static const signed char result_counts[] = {
#define LP(ID, name, n_operands, result, flags, doc) result,
#include "ir/loop_ops.def"
#undef LP
};

const char *lp_check_op(const struct lp_kernel *k, const struct lp_op *op)
{
    if ((unsigned)op->code >= LP_OP_COUNT) return "an unknown op";
    if (operand_counts[op->code] >= 0 && op->n_operands != operand_counts[op->code])
        return "a wrong number of operands";
    if (result_counts[op->code] >= 0 && op->n_results != result_counts[op->code]) return "a wrong number of results";
    for (int i = 0; i < op->n_results; i++) {
        struct lp_type t = op->results[i]->type;
        if (!t.rows || !t.cols || (int)t.rows * t.cols > MAX_TILE_ELEMS || !dtype_bytes(t.dtype))
            return "a result's type is not a tile";
    }
    if (op->code != LP_OP_FOR && op->code != LP_OP_IF && op->n_regions) return "has regions";
    unsigned flags = lp_op_flags(op->code);
    if (flags & LP_F_PW)
        return op->n_operands == 1 ? check_unary(op) : op->n_operands == 2 ? check_binary(op) : check_ternary(op);
    if (flags & LP_F_MEM) return check_memory(k, op);
    if (op->code == LP_OP_FOR) return check_for(op);
    if (op->code == LP_OP_IF) return check_if(op);
    if (op->code == LP_OP_YIELD) return NULL;
    return check_tile_op(k, op);
}

/* ---- structure ---- */

struct verifier {
    const struct lp_kernel *k;
    struct diag_sink *diag;
    const struct lp_value **scope; /* by id: the value when visible */
    bool ok;
};

static void fail(struct verifier *v, const struct lp_op *op, const char *why)
{
    v->ok = false;
    diag_report(v->diag, DIAG_IR_VERIFY, v->k->loc, "kernel %s: %s%s%s", v->k->name, op ? lp_op_name(op->code) : "",
                op ? ": " : "", why);
}

static bool define(struct verifier *v, const struct lp_op *op, const struct lp_value *val)
{
    if (!val || val->id >= v->k->next_id || v->scope[val->id]) {
        fail(v, op, "a value is defined twice");
        return false;
    }
    v->scope[val->id] = val;
    return true;
}

static bool visible(const struct verifier *v, const struct lp_value *val)
{
    return val && val->id < v->k->next_id && v->scope[val->id] == val;
}

static void check_yield(struct verifier *v, const struct lp_block *b)
{
    const struct lp_op *y = b->last, *parent = b->parent;
    if (!y || y->code != LP_OP_YIELD) {
        fail(v, parent, "a region does not end in yield");
        return;
    }
    bool fits = y->n_operands == parent->n_results;
    for (int i = 0; fits && i < y->n_operands; i++)
        fits = same_type(y->operands[i]->type, parent->results[i]->type);
    if (!fits) fail(v, parent, "a yield does not fit the results");
}

static bool check_block(struct verifier *v, const struct lp_block *b, int depth);

static bool check_one(struct verifier *v, const struct lp_block *b, const struct lp_op *op, int depth)
{
    for (int i = 0; i < op->n_operands; i++)
        if (!visible(v, op->operands[i])) {
            fail(v, op, "an operand is not visible here");
            return false;
        }
    for (int i = 0; i < op->n_results; i++)
        if (!op->results[i] || op->results[i]->def != op) {
            fail(v, op, "a result belongs to another op");
            return false;
        }
    const char *why = lp_check_op(v->k, op);
    if (why) {
        fail(v, op, why);
        return false;
    }
    if (op->code == LP_OP_YIELD && (op->next || !b->parent)) fail(v, op, "not at the end of a region");
    for (int i = 0; i < op->n_regions; i++) {
        if (op->regions[i]->parent != op) fail(v, op, "a region belongs to another op");
        if (!check_block(v, op->regions[i], depth + 1)) return false;
        check_yield(v, op->regions[i]);
    }
    for (int i = 0; i < op->n_results; i++)
        if (!define(v, op, op->results[i])) return false;
    return true;
}

/* False: do not look further (the structure itself cannot be trusted). */
static bool check_block(struct verifier *v, const struct lp_block *b, int depth)
{
    if (depth > MAX_DEPTH) {
        fail(v, b->parent, "regions are nested too deeply");
        return false;
    }
    for (int i = 0; i < b->n_args; i++)
        if (!define(v, b->parent, b->args[i])) return false;
    const struct lp_op *prev = NULL;
    for (const struct lp_op *op = b->first; op; prev = op, op = op->next) {
        if (op->block != b || op->prev != prev) {
            fail(v, op, "the list of ops is broken");
            return false;
        }
        if (!check_one(v, b, op, depth)) return false;
    }
    if (b->last != prev) fail(v, b->parent, "the list of ops is broken");
    for (const struct lp_op *op = b->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++) v->scope[op->results[i]->id] = NULL;
    for (int i = 0; i < b->n_args; i++) v->scope[b->args[i]->id] = NULL;
    return true;
}

static const char *check_buf(const struct lp_kernel *k, int n)
{
    const struct lp_buf *b = &k->bufs.v[n];
    int64_t bytes = (int64_t)dtype_bytes(b->dtype);
    if (!bytes) return "the element type has no size";
    if (b->rank < 0 || b->rank > IR_MAX_RANK) return "the rank is out of range";
    if ((n < k->n_arg_bufs) != (b->space == LP_SPACE_ARG)) return "argument buffers do not come first";
    if (b->align_bytes < bytes || (b->align_bytes & (b->align_bytes - 1))) return "the alignment is not possible";
    for (int i = 0; i < b->rank; i++) {
        if (b->dims[i]->kind == DIM_OVERFLOW || b->strides[i]->kind == DIM_OVERFLOW) return "a size overflows";
        if (b->dims[i]->hi < 0) return "a size is negative";
        if (b->space == LP_SPACE_ARG) continue;
        if (!dim_is_const(b->dims[i]) || !dim_is_const(b->strides[i])) return "a private buffer's size is not constant";
        if (!i64_mul(bytes, b->dims[i]->value, &bytes) || bytes > MAX_STACK_BYTES) return "a private buffer is too big";
    }
    return NULL;
}

/* Strides must be known where the code runs: constant, or a dim parameter. */
static bool strides_known(const struct lp_kernel *k, const struct lp_buf *b)
{
    for (int i = 0; i < b->rank; i++) {
        bool known = dim_is_const(b->strides[i]);
        for (size_t j = 0; !known && j < k->dims.n; j++) known = k->dims.v[j] == b->strides[i];
        if (!known) return false;
    }
    return true;
}

bool lp_verify(const struct lp_kernel *k, struct diag_sink *diag)
{
    struct verifier v = {.k = k, .diag = diag, .ok = true};
    v.scope = calloc((size_t)k->next_id + 1, sizeof *v.scope);
    INFC_ASSERT(v.scope);
    if (k->n_arg_bufs < 0 || (size_t)k->n_arg_bufs > k->bufs.n) fail(&v, NULL, "more arguments than buffers");
    for (size_t i = 0; v.ok && i < k->bufs.n; i++) {
        const char *why = check_buf(k, (int)i);
        if (!why && !strides_known(k, &k->bufs.v[i])) why = "a stride is neither constant nor a dim parameter";
        if (why) {
            v.ok = false;
            diag_report(diag, DIAG_IR_VERIFY, k->loc, "kernel %s: buffer @%zu: %s", k->name, i, why);
        }
    }
    if (!k->body || k->body->parent || k->body->n_args != 1 || !is_index(k->body->args[0]->type))
        fail(&v, NULL, "the body's argument is not the slice number");
    else if (v.ok)
        check_block(&v, k->body, 0);
    free(v.scope);
    return v.ok;
}
