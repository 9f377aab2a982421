// SPDX-License-Identifier: Apache-2.0
/*
 * Loop IR builder. Types that do not fit are our own bugs: asserted, not reported.
 *
 * Folding keeps index expressions in one spelling: constants on the right of + and *, x - c as x + -c, sums of constants
 * joined ((x + 1) + 2 is x + 3), (x * 2) * 3 is x * 6. Folds apply to i64 scalars only, and those of ADD, SUB and MUL
 * hold for wrapping arithmetic too, so that a user's i64 tensors may go through them.
 */
#include "ir/dim.h"
#include "ir/loop.h"
#include "ir/loop_rewrite.h"

#include <math.h>

static bool is_scalar(struct lp_type t) { return t.rows == 1 && t.cols == 1; }
static bool same_type(struct lp_type a, struct lp_type b)
{
    return a.dtype == b.dtype && a.rows == b.rows && a.cols == b.cols;
}
static bool is_index(const struct lp_value *v) { return v->type.dtype == DT_I64 && is_scalar(v->type); }

bool lp_broadcast(struct lp_type a, struct lp_type b, struct lp_type *out)
{
    if (a.rows != b.rows && a.rows != 1 && b.rows != 1) return false;
    if (a.cols != b.cols && a.cols != 1 && b.cols != 1) return false;
    out->rows = a.rows > b.rows ? a.rows : b.rows;
    out->cols = a.cols > b.cols ? a.cols : b.cols;
    return true;
}

static struct lp_value *emit(struct lp_builder *b, enum lp_opcode code, int n, struct lp_value *const *operands,
                             struct lp_type t)
{
    struct lp_op *op = lp_op_create(b->k, code, n, operands, 1, &t);
    lp_append(b->block, op);
    return op->results[0];
}

/* ---- constants ---- */

int64_t lp_wrap_int(enum dtype d, int64_t v)
{
    if (d == DT_BOOL) return v != 0;
    unsigned bits = dtype_bits(d);
    if (bits >= 64) return v;
    uint64_t mask = ((uint64_t)1 << bits) - 1, u = (uint64_t)v & mask;
    if (dtype_class(d) == DTC_SINT && (u >> (bits - 1))) u |= ~mask;
    return (int64_t)u;
}

struct lp_value *lp_const_i(struct lp_builder *b, struct lp_type t, int64_t v)
{
    INFC_ASSERT(dtype_is_int(t.dtype) || t.dtype == DT_BOOL);
    struct lp_value *r = emit(b, LP_OP_CONST, 0, NULL, t);
    r->def->imm = lp_wrap_int(t.dtype, v);
    return r;
}

struct lp_value *lp_const_f(struct lp_builder *b, struct lp_type t, double v)
{
    INFC_ASSERT(dtype_is_float(t.dtype));
    struct lp_value *r = emit(b, LP_OP_CONST, 0, NULL, t);
    /* Only as many digits as the type has: equal constants must look equal. Narrower floats round when used. */
    r->def->fimm = t.dtype == DT_F64 ? v : (double)(float)v;
    if (v != v) r->def->fimm = (double)NAN;
    return r;
}

struct lp_value *lp_index(struct lp_builder *b, int64_t v)
{
    return lp_const_i(b, lp_scalar(DT_I64), v);
}

struct lp_value *lp_dim(struct lp_builder *b, const struct dim *d)
{
    if (dim_is_const(d)) return lp_index(b, d->value);
    struct lp_value *r = emit(b, LP_OP_DIM, 0, NULL, lp_scalar(DT_I64));
    r->def->index = lp_dim_param(b->k, d);
    return r;
}

struct lp_value *lp_iota(struct lp_builder *b, enum dtype dtype, int cols)
{
    INFC_ASSERT(dtype_is_int(dtype) && cols > 0 && cols <= UINT16_MAX);
    return emit(b, LP_OP_IOTA, 0, NULL, lp_vector(dtype, cols));
}

struct lp_value *lp_iota_rows(struct lp_builder *b, enum dtype dtype, int rows)
{
    INFC_ASSERT(dtype_is_int(dtype) && rows > 0 && rows <= UINT16_MAX);
    return emit(b, LP_OP_IOTA, 0, NULL, lp_tile(dtype, rows, 1));
}

bool lp_is_const(const struct lp_value *v, int64_t *out)
{
    if (!v->def || v->def->code != LP_OP_CONST || dtype_is_float(v->type.dtype)) return false;
    *out = v->def->imm;
    return true;
}

/* ---- folding ---- */

static bool floor_divmod(int64_t x, int64_t y, int64_t *quot, int64_t *rem)
{
    if (y == 0 || (x == INT64_MIN && y == -1)) return false;
    int64_t q = x / y, r = x % y;
    if (r != 0 && (r < 0) != (y < 0)) {
        q--;
        r += y;
    }
    *quot = q;
    *rem = r;
    return true;
}

bool lp_fold_int(enum lp_opcode code, int64_t x, int64_t y, int64_t *out)
{
    int64_t other;
    switch (code) {
    case LP_OP_ADD: return i64_add(x, y, out);
    case LP_OP_SUB: return i64_sub(x, y, out);
    case LP_OP_MUL: return i64_mul(x, y, out);
    case LP_OP_FLOORDIV: return floor_divmod(x, y, out, &other);
    case LP_OP_MOD: return floor_divmod(x, y, &other, out);
    case LP_OP_MIN: *out = x < y ? x : y; return true;
    case LP_OP_MAX: *out = x > y ? x : y; return true;
    case LP_OP_EQ: *out = x == y; return true;
    case LP_OP_NE: *out = x != y; return true;
    case LP_OP_LT: *out = x < y; return true;
    case LP_OP_LE: *out = x <= y; return true;
    case LP_OP_GT: *out = x > y; return true;
    case LP_OP_GE: *out = x >= y; return true;
    default: return false;
    }
}

static bool is_compare(enum lp_opcode code) { return code >= LP_OP_EQ && code <= LP_OP_GE; }

/* v as x `code` c with a constant c? */
static bool match_const_rhs(const struct lp_value *v, enum lp_opcode code, struct lp_value **x, int64_t *c)
{
    if (!v->def || v->def->code != code || !lp_is_const(v->def->operands[1], c)) return false;
    *x = v->def->operands[0];
    return true;
}

/* x `code` c, c constant, i64 scalars; NULL when nothing folds. */
static struct lp_value *fold_const_rhs(struct lp_builder *b, enum lp_opcode code, struct lp_value *x, int64_t c)
{
    struct lp_value *inner;
    int64_t d, e;
    switch (code) {
    case LP_OP_ADD:
        if (c == 0) return x;
        if (match_const_rhs(x, LP_OP_ADD, &inner, &d) && i64_add(c, d, &e))
            return lp_binary(b, LP_OP_ADD, inner, lp_index(b, e));
        return NULL;
    case LP_OP_SUB:
        return c == INT64_MIN ? NULL : lp_binary(b, LP_OP_ADD, x, lp_index(b, -c));
    case LP_OP_MUL:
        if (c == 0) return lp_index(b, 0);
        if (c == 1) return x;
        if (match_const_rhs(x, LP_OP_MUL, &inner, &d) && i64_mul(c, d, &e))
            return lp_binary(b, LP_OP_MUL, inner, lp_index(b, e));
        return NULL;
    case LP_OP_FLOORDIV:
        if (c == 1) return x;
        if (c > 0 && match_const_rhs(x, LP_OP_FLOORDIV, &inner, &d) && d > 0 && i64_mul(c, d, &e))
            return lp_binary(b, LP_OP_FLOORDIV, inner, lp_index(b, e));
        return NULL;
    case LP_OP_MOD:
        if (c == 1) return lp_index(b, 0);
        if (match_const_rhs(x, LP_OP_MOD, &inner, &d) && d == c) return x;
        return NULL;
    case LP_OP_MIN:
    case LP_OP_MAX:
        if (match_const_rhs(x, code, &inner, &d) && lp_fold_int(code, c, d, &e))
            return lp_binary(b, code, inner, lp_index(b, e));
        return NULL;
    default: return NULL;
    }
}

/* i64 scalars; NULL when nothing folds. */
static struct lp_value *fold_index(struct lp_builder *b, enum lp_opcode code, struct lp_value *x,
                                   struct lp_value *y)
{
    int64_t cx, cy, r;
    bool kx = lp_is_const(x, &cx), ky = lp_is_const(y, &cy);
    if (kx && ky && lp_fold_int(code, cx, cy, &r))
        return is_compare(code) ? lp_const_i(b, lp_scalar(DT_BOOL), r) : lp_index(b, r);
    bool commutes = code == LP_OP_ADD || code == LP_OP_MUL || code == LP_OP_MIN || code == LP_OP_MAX;
    if (kx && !ky && commutes) return lp_binary(b, code, y, x);
    if (ky) return fold_const_rhs(b, code, x, cy);
    if (x == y) {
        if (code == LP_OP_SUB) return lp_index(b, 0);
        if (code == LP_OP_MIN || code == LP_OP_MAX) return x;
    }
    return NULL;
}

/* ---- pointwise ---- */

static struct lp_value *unary_as(struct lp_builder *b, enum lp_opcode code, struct lp_value *x, enum dtype to)
{
    struct lp_type t = x->type;
    t.dtype = to;
    return emit(b, code, 1, &x, t);
}

struct lp_value *lp_unary(struct lp_builder *b, enum lp_opcode code, struct lp_value *x)
{
    INFC_ASSERT((lp_op_flags(code) & LP_F_PW) && code < LP_OP_CAST && code != LP_OP_POW);
    enum dtype d = x->type.dtype;
    if (code == LP_OP_NOT) INFC_ASSERT(!dtype_is_float(d));
    else if (code == LP_OP_NEG || code == LP_OP_ABS) INFC_ASSERT(d != DT_BOOL);
    else INFC_ASSERT(dtype_is_float(d));
    return unary_as(b, code, x, d);
}

struct lp_value *lp_binary(struct lp_builder *b, enum lp_opcode code, struct lp_value *x, struct lp_value *y)
{
    INFC_ASSERT(code == LP_OP_POW || (code >= LP_OP_ADD && code <= LP_OP_GE));
    INFC_ASSERT(x->type.dtype == y->type.dtype);
    enum dtype d = x->type.dtype;
    if (code == LP_OP_AND || code == LP_OP_OR || code == LP_OP_XOR) INFC_ASSERT(!dtype_is_float(d));
    if (code == LP_OP_SHL || code == LP_OP_SHR || code == LP_OP_FLOORDIV) INFC_ASSERT(dtype_is_int(d));
    if (is_index(x) && is_index(y)) {
        struct lp_value *folded = fold_index(b, code, x, y);
        if (folded) return folded;
    }
    struct lp_type t = {.dtype = is_compare(code) ? DT_BOOL : d};
    bool fits = lp_broadcast(x->type, y->type, &t);
    INFC_ASSERT(fits);
    struct lp_value *ops[2] = {x, y};
    return emit(b, code, 2, ops, t);
}

struct lp_value *lp_select(struct lp_builder *b, struct lp_value *c, struct lp_value *x, struct lp_value *y)
{
    INFC_ASSERT(c->type.dtype == DT_BOOL && x->type.dtype == y->type.dtype);
    struct lp_type t = {.dtype = x->type.dtype};
    bool fits = lp_broadcast(x->type, y->type, &t) && lp_broadcast(c->type, t, &t);
    INFC_ASSERT(fits);
    int64_t v;
    if (lp_is_const(c, &v) && same_type(x->type, t) && same_type(y->type, t)) return v ? x : y;
    struct lp_value *ops[3] = {c, x, y};
    return emit(b, LP_OP_SELECT, 3, ops, t);
}

struct lp_value *lp_fma(struct lp_builder *b, struct lp_value *x, struct lp_value *y, struct lp_value *z)
{
    INFC_ASSERT(x->type.dtype == y->type.dtype && x->type.dtype == z->type.dtype && x->type.dtype != DT_BOOL);
    struct lp_type t = {.dtype = x->type.dtype};
    bool fits = lp_broadcast(x->type, y->type, &t) && lp_broadcast(z->type, t, &t);
    INFC_ASSERT(fits);
    struct lp_value *ops[3] = {x, y, z};
    return emit(b, LP_OP_FMA, 3, ops, t);
}

struct lp_value *lp_cast(struct lp_builder *b, struct lp_value *x, enum dtype to)
{
    INFC_ASSERT(dtype_bytes(to) > 0);
    if (x->type.dtype == to) return x;
    int64_t c;
    if (lp_is_const(x, &c)) {
        struct lp_type t = x->type;
        t.dtype = to;
        if (!dtype_is_float(to)) return lp_const_i(b, t, c);
        /* The exact ones: a u64 above INT64_MAX is negative here, so it does not fold. */
        bool exact = c > -(1 << 24) && c < 1 << 24 && !(x->type.dtype == DT_U64 && c < 0);
        if (exact && (to == DT_F32 || to == DT_F64)) return lp_const_f(b, t, (double)c);
    }
    return unary_as(b, LP_OP_CAST, x, to);
}

struct lp_value *lp_bitcast(struct lp_builder *b, struct lp_value *x, enum dtype to)
{
    INFC_ASSERT(dtype_bits(x->type.dtype) == dtype_bits(to));
    INFC_ASSERT(x->type.dtype != DT_BOOL && to != DT_BOOL);
    return x->type.dtype == to ? x : unary_as(b, LP_OP_BITCAST, x, to);
}

/* ---- tiles ---- */

struct lp_value *lp_splat(struct lp_builder *b, struct lp_value *x, int rows, int cols)
{
    struct lp_type t = x->type;
    INFC_ASSERT(rows > 0 && rows <= UINT16_MAX && cols > 0 && cols <= UINT16_MAX);
    INFC_ASSERT((t.rows == 1 || t.rows == rows) && (t.cols == 1 || t.cols == cols));
    if (t.rows == rows && t.cols == cols) return x;
    return emit(b, LP_OP_SPLAT, 1, &x, lp_tile(t.dtype, rows, cols));
}

struct lp_value *lp_extract(struct lp_builder *b, struct lp_value *x, int index)
{
    struct lp_type t = x->type;
    INFC_ASSERT(index >= 0 && index < (t.rows > 1 ? t.rows : t.cols));
    if (is_scalar(t)) return x;
    t = lp_vector(t.dtype, t.rows > 1 ? t.cols : 1);
    struct lp_value *r = emit(b, LP_OP_EXTRACT, 1, &x, t);
    r->def->index = index;
    return r;
}

struct lp_value *lp_interleave(struct lp_builder *b, struct lp_value *x)
{
    INFC_ASSERT((int)x->type.rows * x->type.cols <= UINT16_MAX);
    if (x->type.rows == 1) return x;
    return emit(b, LP_OP_INTERLEAVE, 1, &x, lp_vector(x->type.dtype, x->type.rows * x->type.cols));
}

struct lp_value *lp_bytes(struct lp_builder *b, struct lp_value *x, enum dtype to)
{
    int n = (int)dtype_bytes(x->type.dtype);
    INFC_ASSERT(dtype_is_int(x->type.dtype) && n > 0 && x->type.cols * n <= UINT16_MAX && (to == DT_I8 || to == DT_U8));
    return emit(b, LP_OP_BYTES, 1, &x, lp_tile(to, x->type.rows, x->type.cols * n));
}

struct lp_value *lp_reduce(struct lp_builder *b, enum lp_reduce_kind kind, struct lp_value *x)
{
    struct lp_type t = x->type;
    INFC_ASSERT((t.cols & (t.cols - 1)) == 0);
    bool bits = kind == LP_RED_AND || kind == LP_RED_OR;
    INFC_ASSERT(bits ? !dtype_is_float(t.dtype) : t.dtype != DT_BOOL);
    if (t.cols == 1) return x;
    t.cols = 1;
    struct lp_value *r = emit(b, LP_OP_REDUCE, 1, &x, t);
    r->def->index = (int)kind;
    return r;
}

struct lp_value *lp_mma(struct lp_builder *b, struct lp_value *acc, struct lp_value *x, struct lp_value *y, int k)
{
    enum dtype da = acc->type.dtype, dx = x->type.dtype, dy = y->type.dtype;
    INFC_ASSERT(k == 1 || k == 2 || k == 4);
    INFC_ASSERT(x->type.rows == acc->type.rows && x->type.cols == k * y->type.rows);
    INFC_ASSERT((y->type.rows == 1 || k == 4) && y->type.cols == acc->type.cols * k);
    if (k == 1) INFC_ASSERT(dx == da && dy == da && da != DT_BOOL);
    if (k == 2)
        INFC_ASSERT((da == DT_F32 && dx == DT_BF16 && dy == DT_BF16) || (da == DT_I32 && dx == DT_I16 && dy == DT_I16));
    if (k == 4)
        INFC_ASSERT(da == DT_I32 && (dx == DT_I8 || dx == DT_U8) && (dy == DT_I8 || dy == DT_U8));
    struct lp_value *ops[3] = {acc, x, y};
    struct lp_value *r = emit(b, LP_OP_MMA, 3, ops, acc->type);
    r->def->index = k;
    return r;
}

struct lp_value *lp_dot(struct lp_builder *b, struct lp_value *acc, struct lp_value *x, struct lp_value *y)
{
    INFC_ASSERT(x->type.rows == acc->type.rows && y->type.cols == acc->type.cols && x->type.cols == y->type.rows);
    struct lp_value *ops[3] = {acc, x, y};
    return emit(b, LP_OP_DOT, 3, ops, acc->type);
}

struct lp_value *lp_dot_blocks(struct lp_builder *b, struct lp_value *acc, struct lp_value *words, struct lp_value *sum, struct lp_value *units, int code)
{
    struct lp_value *ops[4] = {acc, words, sum, units}, *r = emit(b, LP_OP_DOT_BLOCKS, 4, ops, acc->type);
    r->def->index = code;
    return r;
}

/* ---- memory ---- */

struct lp_value *lp_nrows(const struct lp_kernel *k, const struct lp_op *op)
{
    return op->has_nrows ? op->operands[lp_first_index(op) + k->bufs.v[op->buf].rank] : NULL;
}

struct lp_value *lp_ncols(const struct lp_kernel *k, const struct lp_op *op)
{
    return op->has_ncols ? op->operands[lp_first_index(op) + k->bufs.v[op->buf].rank + op->has_nrows] : NULL;
}

/* Columns of a gather or scatter with these indices (1: scalar). */
static int index_cols(const struct lp_buf *buf, struct lp_value *const *idx)
{
    int cols = 1;
    for (int i = 0; i < buf->rank; i++) {
        struct lp_type t = idx[i]->type;
        INFC_ASSERT(t.dtype == DT_I64 && t.rows == 1);
        INFC_ASSERT(t.cols == 1 || cols == 1 || t.cols == cols);
        if (t.cols > cols) cols = t.cols;
    }
    return cols;
}

static struct lp_op *memory_op(struct lp_builder *b, enum lp_opcode code, int buf, struct lp_value *const *idx,
                               struct lp_value *v, const struct lp_type *result, int row_axis, int col_axis,
                               struct lp_value *nrows, struct lp_value *ncols)
{
    int rank = b->k->bufs.v[buf].rank, n = 0;
    struct lp_value **ops = ARENA_ARRAY(&b->k->arena, struct lp_value *, rank + 3);
    if (v) ops[n++] = v;
    for (int i = 0; i < rank; i++) ops[n++] = idx[i];
    if (nrows) ops[n++] = nrows;
    if (ncols) ops[n++] = ncols;
    INFC_ASSERT((!nrows || is_index(nrows)) && (!ncols || is_index(ncols)));
    struct lp_op *op = lp_op_create(b->k, code, n, ops, result ? 1 : 0, result);
    op->buf = buf;
    op->row_axis = row_axis;
    op->col_axis = col_axis;
    op->has_nrows = nrows != NULL;
    op->has_ncols = ncols != NULL;
    lp_append(b->block, op);
    return op;
}

static const struct lp_buf *buf_at(const struct lp_builder *b, int buf)
{
    INFC_ASSERT(buf >= 0 && (size_t)buf < b->k->bufs.n);
    return &b->k->bufs.v[buf];
}

/* An axis along which a tile has more than one element must exist; a gather's indices say it themselves. */
static void check_tile_access(const struct lp_buf *buf, struct lp_value *const *idx, struct lp_type t, int row_axis,
                              int col_axis)
{
    for (int i = 0; i < buf->rank; i++) INFC_ASSERT(is_index(idx[i]) || (i == row_axis && idx[i]->type.rows == t.rows));
    if (t.rows > 1) INFC_ASSERT(row_axis >= 0 && row_axis < buf->rank);
    if (t.cols > 1) INFC_ASSERT(col_axis >= 0 && col_axis < buf->rank);
    if (t.rows > 1 && t.cols > 1) INFC_ASSERT(row_axis != col_axis);
}

struct lp_value *lp_load(struct lp_builder *b, int buf, struct lp_value *const *idx)
{
    const struct lp_buf *m = buf_at(b, buf);
    struct lp_type t = lp_vector(m->dtype, index_cols(m, idx));
    return memory_op(b, LP_OP_LOAD, buf, idx, NULL, &t, -1, -1, NULL, NULL)->results[0];
}

struct lp_value *lp_load_tile(struct lp_builder *b, int buf, struct lp_value *const *idx, int rows, int cols,
                              int row_axis, int col_axis, struct lp_value *nrows, struct lp_value *ncols)
{
    const struct lp_buf *m = buf_at(b, buf);
    INFC_ASSERT(rows > 0 && rows <= UINT16_MAX && cols > 0 && cols <= UINT16_MAX);
    struct lp_type t = lp_tile(m->dtype, rows, cols);
    check_tile_access(m, idx, t, row_axis, col_axis);
    return memory_op(b, LP_OP_LOAD, buf, idx, NULL, &t, rows > 1 ? row_axis : -1, cols > 1 ? col_axis : -1, nrows,
                     ncols)->results[0];
}

void lp_store(struct lp_builder *b, int buf, struct lp_value *const *idx, struct lp_value *v)
{
    const struct lp_buf *m = buf_at(b, buf);
    INFC_ASSERT(m->writable && v->type.dtype == m->dtype && v->type.rows == 1);
    INFC_ASSERT(v->type.cols == 1 || v->type.cols == index_cols(m, idx));
    memory_op(b, LP_OP_STORE, buf, idx, v, NULL, -1, -1, NULL, NULL);
}

void lp_store_tile(struct lp_builder *b, int buf, struct lp_value *const *idx, struct lp_value *v, int row_axis,
                   int col_axis, struct lp_value *nrows, struct lp_value *ncols)
{
    const struct lp_buf *m = buf_at(b, buf);
    INFC_ASSERT(m->writable && v->type.dtype == m->dtype);
    check_tile_access(m, idx, v->type, row_axis, col_axis);
    memory_op(b, LP_OP_STORE, buf, idx, v, NULL, v->type.rows > 1 ? row_axis : -1,
              v->type.cols > 1 ? col_axis : -1, nrows, ncols);
}

void lp_prefetch(struct lp_builder *b, int buf, struct lp_value *const *idx)
{
    const struct lp_buf *m = buf_at(b, buf);
    INFC_ASSERT(index_cols(m, idx) == 1);
    memory_op(b, LP_OP_PREFETCH, buf, idx, NULL, NULL, -1, -1, NULL, NULL);
}

void lp_prefetch_far(struct lp_builder *b, int buf, struct lp_value *const *idx)
{
    lp_prefetch(b, buf, idx);
    b->block->last->index = 1;
}

/* ---- control ---- */

static void yield(struct lp_builder *b, const struct lp_op *op, struct lp_value *const *yields)
{
    for (int i = 0; i < op->n_results; i++) INFC_ASSERT(same_type(yields[i]->type, op->results[i]->type));
    lp_append(b->block, lp_op_create(b->k, LP_OP_YIELD, op->n_results, yields, 0, NULL));
}

struct lp_op *lp_for_begin(struct lp_builder *b, enum lp_loop_kind kind, struct lp_value *lo, struct lp_value *hi,
                           int64_t step, int n_carried, struct lp_value *const *init)
{
    INFC_ASSERT(is_index(lo) && is_index(hi) && step > 0 && n_carried >= 0);
    int64_t c;
    if (kind == LP_LOOP_UNROLL) INFC_ASSERT(lp_is_const(lo, &c) && lp_is_const(hi, &c));
    struct lp_value **ops = ARENA_ARRAY(&b->k->arena, struct lp_value *, n_carried + 2);
    struct lp_type *types = ARENA_ARRAY(&b->k->arena, struct lp_type, n_carried);
    ops[0] = lo;
    ops[1] = hi;
    for (int i = 0; i < n_carried; i++) {
        ops[i + 2] = init[i];
        types[i] = init[i]->type;
    }
    struct lp_op *op = lp_op_create(b->k, LP_OP_FOR, n_carried + 2, ops, n_carried, types);
    op->imm = step;
    op->index = (int)kind;
    op->n_regions = 1;
    op->regions[0] = lp_block_create(b->k, op);
    lp_block_arg(b->k, op->regions[0], lp_scalar(DT_I64));
    for (int i = 0; i < n_carried; i++) lp_block_arg(b->k, op->regions[0], types[i]);
    lp_append(b->block, op);
    b->block = op->regions[0];
    return op;
}

void lp_for_end(struct lp_builder *b, struct lp_op *loop, struct lp_value *const *yields)
{
    INFC_ASSERT(b->block == loop->regions[0]);
    yield(b, loop, yields);
    b->block = loop->block;
}

struct lp_op *lp_if_begin(struct lp_builder *b, struct lp_value *cond, int n_results, const struct lp_type *types)
{
    INFC_ASSERT(cond->type.dtype == DT_BOOL && is_scalar(cond->type));
    struct lp_op *op = lp_op_create(b->k, LP_OP_IF, 1, &cond, n_results, types);
    op->n_regions = 2;
    op->regions[0] = lp_block_create(b->k, op);
    op->regions[1] = lp_block_create(b->k, op);
    lp_append(b->block, op);
    b->block = op->regions[0];
    return op;
}

void lp_if_else(struct lp_builder *b, struct lp_op *op, struct lp_value *const *then_yields)
{
    INFC_ASSERT(b->block == op->regions[0]);
    yield(b, op, then_yields);
    b->block = op->regions[1];
}

void lp_if_end(struct lp_builder *b, struct lp_op *op, struct lp_value *const *else_yields)
{
    INFC_ASSERT(b->block == op->regions[1]);
    yield(b, op, else_yields);
    b->block = op->block;
}
