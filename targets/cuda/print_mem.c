// SPDX-License-Identifier: Apache-2.0
/*
 * Loads and stores. A row of 16 bytes whose address is a multiple of 16 goes as one access (read_row, write_row of the prelude
 * look at the address); other rows element by element. Bounds leave out columns; rows that are not there are read as the last one.
 */
#include "ir/dim.h"
#include "ir/loop_rewrite.h"
#include "targets/cuda/print_cta.h"

struct access {
    const struct lp_buf *buf;
    struct lp_type type;
    struct strbuf base;   /* element index of the tile's first element */
    struct strbuf lane;   /* what column c adds, "" with one column */
    bool contiguous;      /* columns follow each other */
    struct strbuf row;    /* row stride */
    const struct lp_value *nrows, *ncols;
};

void pr_stride(struct printer *p, struct strbuf *s, const struct dim *d)
{
    if (dim_is_const(d)) {
        strbuf_printf(s, "%lldll", (long long)d->value);
        return;
    }
    for (size_t i = 0; i < p->k->dims.n; i++)
        if (p->k->dims.v[i] == d) {
            strbuf_printf(s, "d%zu", i);
            return;
        }
    INFC_UNREACHABLE("a stride that is no dim parameter");
}

static void describe(struct printer *p, const struct lp_op *op, struct access *x)
{
    int first = lp_first_index(op);
    *x = (struct access){.buf = &p->k->bufs.v[op->buf], .type = first ? op->operands[0]->type : op->results[0]->type,
                         .nrows = lp_nrows(p->k, op), .ncols = lp_ncols(p->k, op)};
    bool gathers = false;
    int cols = x->type.cols;
    strbuf_puts(&x->base, "0");
    for (int a = 0; a < x->buf->rank; a++) {
        const struct lp_value *i = op->operands[first + a];
        struct strbuf *to = i->type.cols == 1 ? &x->base : &x->lane;
        if (i->type.cols > 1) gathers = true, cols = i->type.cols;
        strbuf_puts(to, to->len ? " + " : "");
        pr_element(p, to, i, "0", "c");
        strbuf_puts(to, " * ");
        pr_stride(p, to, x->buf->strides[a]);
    }
    x->type.cols = (uint16_t)cols; /* a scalar scattered over an index vector */
    if (x->type.rows > 1 && op->row_axis >= 0) pr_stride(p, &x->row, x->buf->strides[op->row_axis]);
    else strbuf_puts(&x->row, "0");
    if (cols > 1 && !gathers && op->col_axis >= 0) {
        const struct dim *d = x->buf->strides[op->col_axis];
        x->contiguous = dim_is(d, 1);
        strbuf_puts(&x->lane, "c * ");
        pr_stride(p, &x->lane, d);
    }
    if (!x->lane.len) strbuf_puts(&x->lane, "0");
}

static void access_deinit(struct access *x)
{
    strbuf_deinit(&x->base);
    strbuf_deinit(&x->lane);
    strbuf_deinit(&x->row);
}

/* "const float *p = b3 + (...)" for row r. clamp: rows beyond nrows are the last one. */
static void print_pointer(struct printer *p, const struct lp_op *op, const struct access *x, bool clamp)
{
    struct strbuf rows = {0}, row = {0};
    if (x->type.rows > 1) {
        strbuf_puts(&row, "r");
        if (clamp && x->nrows) {
            pr_scalar(&rows, x->nrows);
            strbuf_deinit(&row);
            row = (struct strbuf){0};
            strbuf_printf(&row, "int_min((i64)r, %s - 1)", strbuf_get(&rows));
        }
    }
    bool writes = op->code == LP_OP_STORE || x->buf->space != LP_SPACE_ARG || x->buf->writable;
    pr_line(p, "%s%s *p = b%d + (%s)%s%s%s%s;", writes ? "" : "const ", pr_mem_type(x->buf->dtype), op->buf, strbuf_get(&x->base),
            row.len ? " + " : "", row.len ? strbuf_get(&row) : "", row.len ? " * " : "", row.len ? strbuf_get(&x->row) : "");
    strbuf_deinit(&rows);
    strbuf_deinit(&row);
}

static bool is_row_of_16(const struct access *x)
{
    return x->contiguous && !x->ncols && x->buf->dtype != DT_BOOL && (size_t)x->type.cols * dtype_bytes(x->buf->dtype) % 16 == 0;
}

static struct lp_type rows_of(struct lp_type t) { return (struct lp_type){t.dtype, t.rows, 1}; }
static struct lp_type cols_of(struct lp_type t) { return (struct lp_type){t.dtype, 1, t.cols}; }

void pr_load(struct printer *p, const struct lp_op *op)
{
    struct access x;
    struct strbuf declare = {0}, dst = {0}, n = {0};
    if (p->k->cta_threads) {
        cta_load(p, op);
        return;
    }
    describe(p, op, &x);
    pr_declare(p, &declare, op->results[0]);
    pr_line(p, "%s;", strbuf_get(&declare));
    pr_element(p, &dst, op->results[0], "r", "c");
    pr_loops_begin(p, rows_of(x.type));
    pr_line(p, "{");
    p->indent++;
    print_pointer(p, op, &x, true);
    if (is_row_of_16(&x)) {
        struct strbuf to = {0};
        pr_element(p, &to, op->results[0], "r", "0");
        pr_line(p, "read_row<%d>(&%s, p);", x.type.cols, strbuf_get(&to));
        strbuf_deinit(&to);
    } else {
        pr_loops_begin(p, cols_of(x.type));
        const char *test = x.buf->dtype == DT_BOOL ? " != 0" : "", *none = x.buf->dtype == DT_BOOL ? "false" : "0";
        if (x.ncols) {
            pr_scalar(&n, x.ncols);
            pr_line(p, "%s = %s < %s ? (%s)(p[%s]%s) : (%s)%s;", strbuf_get(&dst), x.type.cols > 1 ? "c" : "0", strbuf_get(&n),
                    pr_type(x.buf->dtype), strbuf_get(&x.lane), test, pr_type(x.buf->dtype), none);
        } else {
            pr_line(p, "%s = p[%s]%s;", strbuf_get(&dst), strbuf_get(&x.lane), test);
        }
        pr_loops_end(p, cols_of(x.type));
    }
    p->indent--;
    pr_line(p, "}");
    pr_loops_end(p, rows_of(x.type));
    strbuf_deinit(&declare);
    strbuf_deinit(&dst);
    strbuf_deinit(&n);
    access_deinit(&x);
}

void pr_store(struct printer *p, const struct lp_op *op)
{
    struct access x;
    struct strbuf src = {0}, n = {0}, rows = {0};
    const struct lp_value *v = op->operands[0];
    if (p->k->cta_threads) {
        cta_store(p, op);
        return;
    }
    describe(p, op, &x);
    pr_element(p, &src, v, "r", "c");
    pr_loops_begin(p, rows_of(x.type));
    if (x.nrows) pr_scalar(&rows, x.nrows);
    pr_line(p, x.nrows ? "if (%s < %s) {" : "{", x.type.rows > 1 ? "r" : "0", strbuf_get(&rows));
    p->indent++;
    print_pointer(p, op, &x, false);
    if (is_row_of_16(&x) && v->type.cols == x.type.cols) {
        struct strbuf from = {0};
        pr_element(p, &from, v, "r", "0");
        pr_line(p, "write_row<%d>(p, &%s);", x.type.cols, strbuf_get(&from));
        strbuf_deinit(&from);
    } else {
        pr_loops_begin(p, cols_of(x.type));
        if (x.ncols) pr_scalar(&n, x.ncols);
        if (x.ncols) pr_line(p, "if (%s < %s) p[%s] = %s;", x.type.cols > 1 ? "c" : "0", strbuf_get(&n), strbuf_get(&x.lane), strbuf_get(&src));
        else pr_line(p, "p[%s] = %s;", strbuf_get(&x.lane), strbuf_get(&src));
        pr_loops_end(p, cols_of(x.type));
    }
    p->indent--;
    pr_line(p, "}");
    pr_loops_end(p, rows_of(x.type));
    strbuf_deinit(&src);
    strbuf_deinit(&n);
    strbuf_deinit(&rows);
    access_deinit(&x);
}
