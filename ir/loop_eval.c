// SPDX-License-Identifier: Apache-2.0
/*
 * Executes a kernel on host memory, slices one after the other, and checks what a compiled kernel takes for granted:
 * bounds of every access, initialised private buffers, no element shared between slices in a way that depends on their
 * order, no division by 0 in index arithmetic. Stops at the first violation.
 *
 * Slow by design: about 20 ns an element and op. Memory: 8 bytes an element of every value, 8 bytes an element of
 * writable argument buffers, 1 byte an element of private ones.
 */
#include "ir/blocks.h"
#include "ir/dim.h"
#include "ir/loop.h"
#include "ir/loop_cell.h"
#include "ir/loop_rewrite.h"

#include <math.h>
#include <stdlib.h>

#define MAX_CELLS ((size_t)1 << 26)
#define MAX_TRACKED ((int64_t)1 << 31)
#define MANY_SLICES UINT32_MAX

struct buffer {
    unsigned char *data;
    int64_t dims[IR_MAX_RANK], strides[IR_MAX_RANK];
    int64_t n_elems; /* from the first to the last one that may be touched */
    size_t elem_bytes;
    bool private;        /* data is ours */
    unsigned char *init; /* private: written in this slice? */
    uint32_t *writer, *reader; /* writable arguments: slice + 1, 0 = none; reader: MANY_SLICES for several */
};

struct machine {
    const struct lp_kernel *k;
    struct diag_sink *diag;
    struct buffer *bufs;
    int64_t *dims;
    size_t *offset; /* by value id: first cell */
    union lp_cell *cells;
    size_t n_cells;
    int64_t slice;
};

static bool fault(const struct machine *m, const struct lp_op *op, const char *what)
{
    return diag_report(m->diag, DIAG_IR_VERIFY, m->k->loc, "kernel %s, slice %lld: %s: %s", m->k->name,
                       (long long)m->slice, op ? lp_op_name(op->code) : "start", what);
}

static size_t n_elems(struct lp_type t) { return (size_t)t.rows * t.cols; }

static union lp_cell *cells_of(const struct machine *m, const struct lp_value *v) { return m->cells + m->offset[v->id]; }

static int64_t scalar(const struct machine *m, const struct lp_value *v) { return cells_of(m, v)->i; }

/* ---- pointwise ---- */

/* Steps of a value's cells along the result's rows and columns (0 where it broadcasts). */
struct view {
    const union lp_cell *c;
    size_t row, col;
};

static struct view view_of(const struct machine *m, const struct lp_value *v)
{
    struct view w = {cells_of(m, v), v->type.rows == 1 ? 0 : v->type.cols, v->type.cols != 1};
    return w;
}

static union lp_cell pointwise_cell(const struct lp_op *op, const union lp_cell *x)
{
    enum dtype d = op->operands[0]->type.dtype;
    switch (op->code) {
    case LP_OP_CAST: return lp_cell_cast(d, op->results[0]->type.dtype, x[0]);
    case LP_OP_BITCAST: return lp_cell_from_bits(op->results[0]->type.dtype, lp_cell_bits(d, x[0]));
    case LP_OP_SELECT: return x[0].i ? x[1] : x[2];
    case LP_OP_FMA: return lp_cell_fma(d, x[0], x[1], x[2]);
    default: return op->n_operands == 1 ? lp_cell_unary(op->code, d, x[0]) : lp_cell_binary(op->code, d, x[0], x[1]);
    }
}

static bool run_pointwise(const struct machine *m, const struct lp_op *op)
{
    struct view v[3];
    struct lp_type t = op->results[0]->type;
    union lp_cell *out = cells_of(m, op->results[0]), x[3] = {{0}, {0}, {0}};
    for (int i = 0; i < op->n_operands; i++) v[i] = view_of(m, op->operands[i]);
    for (size_t r = 0; r < t.rows; r++)
        for (size_t c = 0; c < t.cols; c++) {
            for (int i = 0; i < op->n_operands; i++) x[i] = v[i].c[r * v[i].row + c * v[i].col];
            if (op->code == LP_OP_FLOORDIV && x[1].i == 0) return fault(m, op, "division by 0");
            *out++ = pointwise_cell(op, x);
        }
    return true;
}

/* ---- tiles ---- */

static void run_const(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    union lp_cell v = {.i = op->imm}, *out = cells_of(m, op->results[0]);
    if (dtype_is_float(t.dtype)) v.f = lp_cell_round(t.dtype, op->fimm);
    for (size_t i = 0; i < n_elems(t); i++) out[i] = v;
}

static void run_iota(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    union lp_cell *out = cells_of(m, op->results[0]);
    for (int i = 0; i < t.rows * t.cols; i++) out[i].i = lp_wrap_int(t.dtype, i);
}

static void run_splat(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    struct view v = view_of(m, op->operands[0]);
    union lp_cell *out = cells_of(m, op->results[0]);
    for (size_t r = 0; r < t.rows; r++)
        for (size_t c = 0; c < t.cols; c++) *out++ = v.c[r * v.row + c * v.col];
}

static void run_extract(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    const union lp_cell *x = cells_of(m, op->operands[0]);
    union lp_cell *out = cells_of(m, op->results[0]);
    for (size_t c = 0; c < t.cols; c++) out[c] = x[(size_t)op->index * t.cols + c];
}

static void run_interleave(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->operands[0]->type;
    const union lp_cell *x = cells_of(m, op->operands[0]);
    union lp_cell *out = cells_of(m, op->results[0]);
    for (size_t c = 0; c < t.cols; c++)
        for (size_t r = 0; r < t.rows; r++) *out++ = x[r * t.cols + c];
}

static void run_bytes(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->operands[0]->type;
    const union lp_cell *x = cells_of(m, op->operands[0]);
    union lp_cell *out = cells_of(m, op->results[0]);
    size_t n = dtype_bytes(t.dtype);
    for (size_t i = 0; i < (size_t)t.rows * t.cols; i++)
        for (size_t j = 0; j < n; j++) *out++ = lp_cell_from_bits(op->results[0]->type.dtype, lp_cell_bits(t.dtype, x[i]) >> 8 * j & 255);
}

static void run_reduce(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->operands[0]->type;
    union lp_cell *x = cells_of(m, op->operands[0]), *out = cells_of(m, op->results[0]);
    union lp_cell *row = malloc(t.cols * sizeof *row);
    INFC_ASSERT(row);
    for (size_t r = 0; r < t.rows; r++) {
        for (size_t c = 0; c < t.cols; c++) row[c] = x[r * t.cols + c];
        for (size_t half = t.cols / 2; half; half /= 2)
            for (size_t c = 0; c < half; c++)
                row[c] = lp_cell_reduce((enum lp_reduce_kind)op->index, t.dtype, row[c], row[c + half]);
        out[r] = row[0];
    }
    free(row);
}

static void run_dot(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    size_t k = op->operands[1]->type.cols;
    const union lp_cell *acc = cells_of(m, op->operands[0]), *x = cells_of(m, op->operands[1]), *y = cells_of(m, op->operands[2]);
    union lp_cell *out = cells_of(m, op->results[0]);
    for (size_t r = 0; r < t.rows; r++)
        for (size_t c = 0; c < t.cols; c++) {
            union lp_cell v = acc[r * t.cols + c];
            for (size_t i = 0; i < k; i++) v = lp_cell_fma(t.dtype, x[r * k + i], y[i * t.cols + c], v);
            out[r * t.cols + c] = v;
        }
}

/* What a group of blocks says of column c: its scale (at 0) or minimum. */
static union lp_cell block_number(const union lp_cell *units, const struct blocks *d, int at, size_t c)
{
    uint64_t bits = (uint64_t)units[(size_t)at + c].i;
    if (d->wide) bits |= (uint64_t)units[(size_t)at + BLOCKS_COLS + c].i << 16;
    return lp_cell_from_bits(d->wide ? DT_F32 : DT_F16, bits);
}

static int64_t block_q(const union lp_cell *units, const struct blocks *d, size_t k, size_t c)
{
    size_t step = (size_t)blocks_step(d);
    uint64_t u = (uint64_t)units[(size_t)blocks_q_at(d) + (k / step * BLOCKS_COLS + c) * 2 + k % 2].i, field = k % step / 2;
    if (!d->nibbles) return (int64_t)(int8_t)(u >> 8 * field & 255);
    uint64_t high = d->high ? (uint64_t)units[(size_t)blocks_high_at(d) + c * 2 + k % 2].i >> (uint64_t)d->high * (k / 2) & ((1u << d->high) - 1) : 0;
    return (int64_t)(u >> 4 * field & 15) | (int64_t)(high << 4);
}

static void run_dot_blocks(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    struct blocks d = blocks_decode(op->index);
    const union lp_cell *acc = cells_of(m, op->operands[0]), *x = cells_of(m, op->operands[1]), *sum = cells_of(m, op->operands[2]);
    const union lp_cell *units = cells_of(m, op->operands[3]);
    union lp_cell *out = cells_of(m, op->results[0]), zero = {.f = -d.zero};
    for (size_t r = 0; r < t.rows; r++)
        for (size_t c = 0; c < t.cols; c++) {
            union lp_cell v = acc[r * t.cols + c], p = {0};
            int64_t s = 0;
            for (size_t k = 0; k < (size_t)d.group; k++) s += x[r * (size_t)d.group + k].i * block_q(units, &d, k, c);
            p.f = lp_cell_round(DT_F32, (double)s);
            if (d.zero) p = lp_cell_fma(DT_F32, sum[r], zero, p);
            if (d.has_min) v = lp_cell_fma(DT_F32, sum[r], block_number(units, &d, blocks_min_at(&d), c), v);
            out[r * t.cols + c] = lp_cell_fma(DT_F32, p, block_number(units, &d, 0, c), v);
        }
}

static void run_mma(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    size_t k = (size_t)op->index, n = op->operands[2]->type.rows, cols = t.cols;
    const union lp_cell *acc = cells_of(m, op->operands[0]), *x = cells_of(m, op->operands[1]);
    const union lp_cell *y = cells_of(m, op->operands[2]);
    union lp_cell *out = cells_of(m, op->results[0]);
    for (size_t r = 0; r < t.rows; r++)
        for (size_t c = 0; c < t.cols; c++) {
            union lp_cell v = acc[r * t.cols + c];
            /* bf16 and 8-bit elements are held as the same values in the accumulator's form. */
            for (size_t i = 0; i < k * n; i++) v = lp_cell_fma(t.dtype, x[r * k * n + i], y[(i / k * cols + c) * k + i % k], v);
            out[r * t.cols + c] = v;
        }
}

/* ---- memory ---- */

static bool touch(const struct machine *m, const struct lp_op *op, int64_t at, bool write)
{
    struct buffer *b = &m->bufs[op->buf];
    uint32_t me = (uint32_t)m->slice + 1;
    if (b->private) {
        if (write) b->init[at] = 1;
        return write || b->init[at] || fault(m, op, "reads an element of a private buffer that was never written");
    }
    if (!b->writer) return true;
    if (b->writer[at] && b->writer[at] != me)
        return fault(m, op, write ? "writes an element that another slice writes"
                                  : "reads an element that another slice writes");
    if (write) {
        if (b->reader[at] && b->reader[at] != me) return fault(m, op, "writes an element that another slice reads");
        b->writer[at] = me;
    } else {
        b->reader[at] = b->reader[at] && b->reader[at] != me ? MANY_SLICES : me;
    }
    return true;
}

/* Offset of element (r, c) of the access in elements; false when out of bounds. */
static bool locate(const struct machine *m, const struct lp_op *op, size_t r, size_t c, int64_t *out)
{
    const struct lp_buf *b = &m->k->bufs.v[op->buf];
    const struct buffer *data = &m->bufs[op->buf];
    *out = 0;
    for (int i = 0; i < b->rank; i++) {
        const struct lp_value *v = op->operands[lp_first_index(op) + i];
        int64_t at = cells_of(m, v)[v->type.cols > 1 ? c : v->type.rows > 1 ? r : 0].i, step = 0;
        if (i == op->row_axis && v->type.rows == 1) step = (int64_t)r;
        if (i == op->col_axis) step = (int64_t)c;
        if (!i64_add(at, step, &at) || at < 0 || at >= data->dims[i]) {
            return diag_report(m->diag, DIAG_IR_VERIFY, m->k->loc,
                               "kernel %s, slice %lld: %s of buffer @%d %s: index %lld of axis %d is out of bounds [0, %lld)",
                               m->k->name, (long long)m->slice, lp_op_name(op->code), op->buf, b->name, (long long)at,
                               i, (long long)data->dims[i]);
        }
        *out += at * data->strides[i];
    }
    return true;
}

static union lp_cell garbage(enum dtype d)
{
    union lp_cell c;
    if (dtype_is_float(d)) c.f = (double)NAN;
    else c.i = lp_wrap_int(d, 0x5a5a5a5a5a5a5a5a);
    return c;
}

static bool run_load(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    const struct buffer *b = &m->bufs[op->buf];
    const struct lp_value *vr = lp_nrows(m->k, op), *vc = lp_ncols(m->k, op);
    int64_t nrows = vr ? scalar(m, vr) : t.rows, ncols = vc ? scalar(m, vc) : t.cols, at;
    union lp_cell *out = cells_of(m, op->results[0]);
    if (nrows < 1) return fault(m, op, "nrows is less than 1");
    for (int64_t r = 0; r < t.rows; r++)
        for (int64_t c = 0; c < t.cols; c++, out++) {
            if (c >= ncols) {
                *out = lp_cell_from_bits(t.dtype, 0);
            } else if (r >= nrows) {
                *out = garbage(t.dtype);
            } else {
                uint64_t bits = 0;
                if (!locate(m, op, (size_t)r, (size_t)c, &at) || !touch(m, op, at, false)) return false;
                memcpy(&bits, b->data + (size_t)at * b->elem_bytes, b->elem_bytes);
                *out = lp_cell_from_bits(t.dtype, bits);
            }
        }
    return true;
}

/* Columns of a store: its value's, or those of its index vectors. */
static size_t store_cols(const struct machine *m, const struct lp_op *op)
{
    size_t cols = op->operands[0]->type.cols;
    for (int i = 0; i < m->k->bufs.v[op->buf].rank; i++)
        if (op->operands[1 + i]->type.cols > cols) cols = op->operands[1 + i]->type.cols;
    return cols;
}

static bool run_store(const struct machine *m, const struct lp_op *op)
{
    struct lp_type t = op->operands[0]->type;
    struct buffer *b = &m->bufs[op->buf];
    const struct lp_value *vr = lp_nrows(m->k, op), *vc = lp_ncols(m->k, op);
    size_t cols = store_cols(m, op);
    int64_t nrows = vr ? scalar(m, vr) : t.rows, ncols = vc ? scalar(m, vc) : (int64_t)cols, at, other;
    struct view v = view_of(m, op->operands[0]);
    bool scatter = cols > 1 && op->col_axis < 0;
    for (size_t r = 0; r < t.rows && (int64_t)r < nrows; r++)
        for (size_t c = 0; c < cols && (int64_t)c < ncols; c++) {
            if (!locate(m, op, r, c, &at) || !touch(m, op, at, true)) return false;
            for (size_t e = 0; scatter && e < c; e++)
                if (locate(m, op, r, e, &other) && other == at) return fault(m, op, "a scatter's indices are equal");
            uint64_t bits = lp_cell_bits(t.dtype, v.c[r * v.row + c * v.col]);
            memcpy(b->data + (size_t)at * b->elem_bytes, &bits, b->elem_bytes);
        }
    return true;
}

/* ---- control ---- */

static bool run_block(struct machine *m, const struct lp_block *b);

static void copy(const struct machine *m, const struct lp_value *to, const struct lp_value *from)
{
    memcpy(cells_of(m, to), cells_of(m, from), n_elems(to->type) * sizeof(union lp_cell));
}

static void take_yields(const struct machine *m, const struct lp_op *op, const struct lp_block *b)
{
    for (int i = 0; i < op->n_results; i++) copy(m, op->results[i], b->last->operands[i]);
}

static bool run_for(struct machine *m, const struct lp_op *op)
{
    const struct lp_block *body = op->regions[0];
    int64_t hi = scalar(m, op->operands[1]);
    for (int i = 0; i < op->n_results; i++) copy(m, op->results[i], op->operands[i + 2]);
    for (int64_t i = scalar(m, op->operands[0]); i < hi;) {
        cells_of(m, body->args[0])->i = i;
        /* The results hold the carried values between iterations, so that a yield may permute the arguments. */
        for (int j = 0; j < op->n_results; j++) copy(m, body->args[j + 1], op->results[j]);
        if (!run_block(m, body)) return false;
        take_yields(m, op, body);
        if (!i64_add(i, op->imm, &i)) break;
    }
    return true;
}

static bool run_op(struct machine *m, const struct lp_op *op)
{
    if (lp_op_flags(op->code) & LP_F_PW) return run_pointwise(m, op);
    switch (op->code) {
    case LP_OP_CONST: run_const(m, op); return true;
    case LP_OP_DIM: cells_of(m, op->results[0])->i = m->dims[op->index]; return true;
    case LP_OP_IOTA: run_iota(m, op); return true;
    case LP_OP_SPLAT: run_splat(m, op); return true;
    case LP_OP_EXTRACT: run_extract(m, op); return true;
    case LP_OP_INTERLEAVE: run_interleave(m, op); return true;
    case LP_OP_BYTES: run_bytes(m, op); return true;
    case LP_OP_REDUCE: run_reduce(m, op); return true;
    case LP_OP_MMA: run_mma(m, op); return true;
    case LP_OP_DOT: run_dot(m, op); return true;
    case LP_OP_DOT_BLOCKS: run_dot_blocks(m, op); return true;
    case LP_OP_LOAD: return run_load(m, op);
    case LP_OP_STORE: return run_store(m, op);
    case LP_OP_FOR: return run_for(m, op);
    case LP_OP_IF: {
        const struct lp_block *b = op->regions[scalar(m, op->operands[0]) ? 0 : 1];
        if (!run_block(m, b)) return false;
        take_yields(m, op, b);
        return true;
    }
    case LP_OP_YIELD:
    case LP_OP_PREFETCH:
    case LP_OP_BARRIER: return true;
    default: return fault(m, op, "an unknown op");
    }
}

static bool run_block(struct machine *m, const struct lp_block *b)
{
    for (const struct lp_op *op = b->first; op; op = op->next)
        if (!run_op(m, op)) return false;
    return true;
}

/* ---- set up ---- */

static void place(struct machine *m, const struct lp_value *v)
{
    m->offset[v->id] = m->n_cells;
    m->n_cells += n_elems(v->type);
}

static void place_block(struct machine *m, const struct lp_block *b)
{
    for (int i = 0; i < b->n_args; i++) place(m, b->args[i]);
    for (const struct lp_op *op = b->first; op; op = op->next) {
        for (int i = 0; i < op->n_results; i++) place(m, op->results[i]);
        for (int i = 0; i < op->n_regions; i++) place_block(m, op->regions[i]);
    }
}

static bool eval_dim(const struct machine *m, const struct dim *d, const int64_t *syms, int64_t *out)
{
    return dim_eval(m->k->dims_ctx, d, syms, out) || fault(m, NULL, "a dim has no value");
}

static bool set_up_buffer(struct machine *m, struct arena *a, int n, void *const *bufs, const int64_t *syms)
{
    const struct lp_buf *b = &m->k->bufs.v[n];
    struct buffer *o = &m->bufs[n];
    int64_t last = 0, span;
    bool empty = false;
    for (int i = 0; i < b->rank; i++) {
        if (!eval_dim(m, b->dims[i], syms, &o->dims[i]) || !eval_dim(m, b->strides[i], syms, &o->strides[i]))
            return false;
        if (o->dims[i] < 0 || o->strides[i] < 0) return fault(m, NULL, "a buffer's size is negative");
        if (o->dims[i] == 0) empty = true;
        else if (!i64_mul(o->dims[i] - 1, o->strides[i], &span) || !i64_add(last, span, &last))
            return fault(m, NULL, "a buffer is too big");
    }
    o->n_elems = empty ? 0 : last + 1;
    o->elem_bytes = dtype_bytes(b->dtype);
    o->private = b->space != LP_SPACE_ARG;
    if (!o->private) o->data = bufs[n];
    if (!o->private && !b->writable) return true;
    if (o->n_elems > MAX_TRACKED) return fault(m, NULL, "a buffer is too big for the evaluator");
    if (o->private) {
        o->data = arena_calloc(a, (size_t)o->n_elems, o->elem_bytes);
        o->init = arena_alloc(a, (size_t)o->n_elems);
    } else {
        o->writer = ARENA_ARRAY(a, uint32_t, o->n_elems);
        o->reader = ARENA_ARRAY(a, uint32_t, o->n_elems);
    }
    return true;
}

static bool set_up(struct machine *m, struct arena *a, void *const *bufs, const int64_t *syms)
{
    const struct lp_kernel *k = m->k;
    m->bufs = ARENA_ARRAY(a, struct buffer, k->bufs.n);
    m->dims = ARENA_ARRAY(a, int64_t, k->dims.n);
    m->offset = ARENA_ARRAY(a, size_t, k->next_id);
    for (size_t i = 0; i < k->dims.n; i++)
        if (!eval_dim(m, k->dims.v[i], syms, &m->dims[i])) return false;
    for (size_t i = 0; i < k->bufs.n; i++)
        if (!set_up_buffer(m, a, (int)i, bufs, syms)) return false;
    place_block(m, k->body);
    if (m->n_cells > MAX_CELLS) return fault(m, NULL, "the kernel's values are too big for the evaluator");
    m->cells = ARENA_ARRAY(a, union lp_cell, m->n_cells);
    return true;
}

bool lp_eval(const struct lp_kernel *k, void *const *bufs, const int64_t *sym_values, struct diag_sink *diag)
{
    struct arena a;
    arena_init(&a);
    struct machine m = {.k = k, .diag = diag};
    int64_t slices;
    bool good = set_up(&m, &a, bufs, sym_values) && eval_dim(&m, k->slices, sym_values, &slices);
    if (good && slices >= (int64_t)UINT32_MAX - 1) good = fault(&m, NULL, "too many slices for the evaluator");
    for (; good && m.slice < slices; m.slice++) {
        for (size_t i = 0; i < k->bufs.n; i++)
            if (m.bufs[i].init) memset(m.bufs[i].init, 0, (size_t)m.bufs[i].n_elems);
        cells_of(&m, k->body->args[0])->i = m.slice;
        good = run_block(&m, k->body);
    }
    arena_deinit(&a);
    return good;
}
