// SPDX-License-Identifier: Apache-2.0
/*
 * Loads and stores. An address is a sum of terms: value * coefficient [* stride], in bytes. Index expressions are taken
 * apart into such terms, and each term is added in the outermost region where it is known: in a K loop only the
 * counter's own term is left, which x86 folds into the address of the load.
 *
 * Columns beyond `ncols` are never touched: with mask registers by masked loads; on v3 by vmaskmov where elements have
 * 32 or 64 bits; else by a loop over the columns that are there, through a small buffer on the stack.
 */
#include "targets/cpu/emit.h"

#define MAX_TERMS 24

struct term {
    LLVMValueRef value, stride; /* stride NULL: 1 */
    int64_t coeff;
    int depth;
};

struct address {
    struct term terms[MAX_TERMS];
    int n;
    int64_t offset; /* bytes */
};

struct access {
    struct lp_op *op;
    const struct lp_buf *buf;
    struct cg_buf *cg_buf;
    struct lp_type type;
    int64_t esize;
    LLVMTypeRef mem;             /* element in memory */
    struct address base;
    LLVMValueRef vec_offset;     /* gather: <C x i64> bytes, else NULL */
    LLVMValueRef row_stride, col_stride; /* i64 elements; NULL with one row, one column */
    struct lp_value *nrows, *ncols;
};

/* ---- addresses ---- */

static int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static int64_t wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static bool const_value(LLVMValueRef v, int64_t *out)
{
    if (!v || !LLVMIsAConstantInt(v)) return false;
    *out = LLVMConstIntGetSExtValue(v);
    return true;
}

static void add_term(struct cg *g, struct address *a, LLVMValueRef value, int depth, int64_t coeff, LLVMValueRef stride)
{
    int64_t c;
    if (const_value(stride, &c)) {
        coeff = wrap_mul(coeff, c);
        stride = NULL;
    }
    if (const_value(value, &c)) {
        if (!stride) {
            a->offset = wrap_add(a->offset, wrap_mul(c, coeff));
            return;
        }
        value = cg_i64(g, 1);
        coeff = wrap_mul(coeff, c);
        depth = 0;
    }
    if (coeff == 0) return;
    for (int i = 0; i < a->n; i++) {
        if (a->terms[i].value != value || a->terms[i].stride != stride) continue;
        a->terms[i].coeff = wrap_add(a->terms[i].coeff, coeff);
        return;
    }
    INFC_ASSERT(a->n < MAX_TERMS);
    a->terms[a->n++] = (struct term){value, stride, coeff, depth};
}

/* Terms of an index; sums deeper or longer than sensible stay one value. room: terms that may still be added. */
static void add_index(struct cg *g, struct address *a, struct lp_value *v, int64_t coeff, LLVMValueRef stride,
                      int level)
{
    struct lp_op *d = v->def;
    int64_t c;
    bool open = level < 6 && a->n < MAX_TERMS - 12;
    if (d && open && (d->code == LP_OP_ADD || d->code == LP_OP_SUB)) {
        add_index(g, a, d->operands[0], coeff, stride, level + 1);
        add_index(g, a, d->operands[1], d->code == LP_OP_ADD ? coeff : wrap_mul(coeff, -1), stride, level + 1);
        return;
    }
    if (d && open && d->code == LP_OP_MUL && lp_is_const(d->operands[1], &c)) {
        add_index(g, a, d->operands[0], wrap_mul(coeff, c), stride, level + 1);
        return;
    }
    struct cg_value *x = cg_get(g, v);
    add_term(g, a, x->rows[0], x->depth, coeff, stride);
}

static LLVMValueRef term_value(struct cg *g, const struct term *t)
{
    LLVMValueRef x = t->value;
    if (t->stride) x = LLVMBuildMul(g->b, x, t->stride, "");
    return t->coeff == 1 ? x : LLVMBuildMul(g->b, x, cg_i64(g, t->coeff), "");
}

/* The pointer, each group of terms added at its own depth. */
static LLVMValueRef emit_address(struct cg *g, LLVMValueRef base, const struct address *a)
{
    LLVMValueRef p = base;
    for (int depth = 0; depth <= g->depth; depth++) {
        LLVMValueRef sum = NULL;
        bool any = false;
        for (int i = 0; i < a->n; i++) any |= a->terms[i].depth == depth;
        if (!any) continue;
        LLVMBasicBlockRef saved = cg_enter_depth(g, depth);
        for (int i = 0; i < a->n; i++) {
            if (a->terms[i].depth != depth) continue;
            LLVMValueRef x = term_value(g, &a->terms[i]);
            sum = sum ? LLVMBuildAdd(g->b, sum, x, "") : x;
        }
        p = LLVMBuildGEP2(g->b, g->i8, p, &sum, 1, "");
        cg_leave_depth(g, saved);
    }
    if (a->offset == 0) return p;
    LLVMValueRef offset = cg_i64(g, a->offset);
    return LLVMBuildGEP2(g->b, g->i8, p, &offset, 1, "");
}

static LLVMValueRef byte_step(struct cg *g, LLVMValueRef p, LLVMValueRef bytes)
{
    return LLVMBuildGEP2(g->b, g->i8, p, &bytes, 1, "");
}

/* min(r, nrows - 1) where nrows is known: rows that are not there read the last one. */
static LLVMValueRef clamped_row(struct cg *g, struct lp_value *nrows, int r, int *depth)
{
    struct cg_value *x = cg_get(g, nrows);
    *depth = x->depth;
    LLVMBasicBlockRef saved = cg_enter_depth(g, x->depth);
    LLVMValueRef last = LLVMBuildSub(g->b, x->rows[0], cg_i64(g, 1), ""), pair[2] = {last, cg_i64(g, r)};
    LLVMValueRef row = cg_call(g, "llvm.smin", g->i64, pair, 2);
    cg_leave_depth(g, saved);
    return row;
}

static LLVMValueRef row_pointer(struct cg *g, const struct access *x, int r, bool clamp)
{
    struct address a = x->base;
    int64_t n;
    if (r > 0 && clamp && x->nrows && !(const_value(cg_get(g, x->nrows)->rows[0], &n) && n > r)) {
        int depth;
        LLVMValueRef row = clamped_row(g, x->nrows, r, &depth);
        add_term(g, &a, row, depth, x->esize, x->row_stride);
    } else if (r > 0) {
        add_term(g, &a, cg_i64(g, r), 0, x->esize, x->row_stride);
    }
    return emit_address(g, x->cg_buf->base, &a);
}

static void describe(struct cg *g, struct lp_op *op, struct access *x)
{
    int first = op->code == LP_OP_STORE;
    *x = (struct access){.op = op, .buf = &g->k->bufs.v[op->buf], .cg_buf = &g->bufs[op->buf]};
    x->type = first ? op->operands[0]->type : op->n_results ? op->results[0]->type : lp_scalar(x->buf->dtype);
    x->esize = (int64_t)dtype_bytes(x->buf->dtype);
    x->mem = cg_mem_type(g, x->buf->dtype);
    int cols = x->type.cols;
    for (int a = 0; a < x->buf->rank; a++) {
        struct lp_value *i = op->operands[first + a];
        if (i->type.cols == 1) {
            add_index(g, &x->base, i, x->esize, x->cg_buf->strides[a], 0);
            continue;
        }
        LLVMValueRef s = LLVMBuildMul(g->b, x->cg_buf->strides[a], cg_i64(g, x->esize), "");
        if (cols == 1) cols = i->type.cols;
        LLVMValueRef t = LLVMBuildMul(g->b, cg_get(g, i)->rows[0], cg_splat(g, s, i->type.cols), "");
        x->vec_offset = x->vec_offset ? LLVMBuildAdd(g->b, x->vec_offset, t, "") : t;
    }
    x->type.cols = (uint16_t)cols; /* a scalar scattered over an index vector */
    if (x->type.rows > 1 && op->row_axis >= 0) x->row_stride = x->cg_buf->strides[op->row_axis];
    else if (x->type.rows > 1) x->row_stride = cg_i64(g, 0);
    if (x->type.cols > 1 && !x->vec_offset) x->col_stride = op->col_axis >= 0 ? x->cg_buf->strides[op->col_axis] : cg_i64(g, 0);
    int n = first + x->buf->rank;
    if (op->has_nrows) x->nrows = op->operands[n++];
    if (op->has_ncols) x->ncols = op->operands[n];
    /* Bounds that are known to hold are none. */
    int64_t c;
    if (x->ncols && const_value(cg_get(g, x->ncols)->rows[0], &c) && c >= x->type.cols) x->ncols = NULL;
    if (x->nrows && const_value(cg_get(g, x->nrows)->rows[0], &c) && c >= x->type.rows) x->nrows = NULL;
}

/* ---- elements and vectors ---- */

static void mark(struct cg *g, const struct access *x, LLVMValueRef i)
{
    if (x->cg_buf->scope) LLVMSetMetadata(i, g->md_alias_scope, x->cg_buf->scope);
    if (x->cg_buf->noalias) LLVMSetMetadata(i, g->md_noalias, x->cg_buf->noalias);
    if (x->cg_buf->invariant && LLVMIsALoadInst(i))
        LLVMSetMetadata(i, g->md_invariant, LLVMMDNodeInContext(g->c, NULL, 0));
}

/* n contiguous elements in memory form. */
static LLVMValueRef read(struct cg *g, const struct access *x, LLVMValueRef p, int n)
{
    LLVMValueRef v = LLVMBuildLoad2(g->b, cg_vec(x->mem, n), p, "");
    LLVMSetAlignment(v, (unsigned)x->esize);
    mark(g, x, v);
    return v;
}

static void write(struct cg *g, const struct access *x, LLVMValueRef v, LLVMValueRef p)
{
    LLVMValueRef s = LLVMBuildStore(g->b, v, p);
    LLVMSetAlignment(s, (unsigned)x->esize);
    mark(g, x, s);
}

static LLVMValueRef from_memory(struct cg *g, const struct access *x, LLVMValueRef v, int n)
{
    return x->buf->dtype == DT_BOOL ? cg_icmp(g, LLVMIntNE, v, cg_int(g->i8, n, 0)) : v;
}

static LLVMValueRef to_memory(struct cg *g, const struct access *x, LLVMValueRef v, int n)
{
    return x->buf->dtype == DT_BOOL ? LLVMBuildZExt(g->b, v, cg_vec(g->i8, n), "") : v;
}

/* Lanes below ncols as <n x i1>. */
static LLVMValueRef column_mask(struct cg *g, struct lp_value *ncols, int n)
{
    struct cg_value *x = cg_get(g, ncols);
    LLVMBasicBlockRef saved = cg_enter_depth(g, x->depth);
    LLVMValueRef low[2] = {x->rows[0], cg_i64(g, 0)}, high[2] = {NULL, cg_i64(g, n)}, idx[4096];
    high[0] = cg_call(g, "llvm.smax", g->i64, low, 2);
    LLVMValueRef count = LLVMBuildTrunc(g->b, cg_call(g, "llvm.smin", g->i64, high, 2), g->i32, "");
    for (int i = 0; i < n; i++) idx[i] = cg_int(g->i32, 1, i);
    LLVMValueRef m = cg_icmp(g, LLVMIntULT, LLVMConstVector(idx, (unsigned)n), cg_splat(g, count, n));
    cg_leave_depth(g, saved);
    return m;
}

/* Hardware that leaves out lanes of a contiguous access. */
static bool can_mask(const struct cg *g, const struct access *x)
{
    if (x->type.cols & (x->type.cols - 1)) return false;
    if (g->level->has_masks) return true;
    return g->level->isa >= INFR_ISA_V3 && x->esize >= 4;
}

/* Hardware gathers and scatters. */
static bool can_gather(const struct cg *g, const struct access *x)
{
    return g->level->has_masks && x->esize >= 4 && x->type.cols >= 4 && !(x->type.cols & (x->type.cols - 1));
}

static LLVMValueRef memory_intrinsic(struct cg *g, const char *name, const struct access *x, LLVMTypeRef pointers)
{
    LLVMTypeRef types[2] = {cg_vec(x->mem, x->type.cols), pointers};
    return llvm_intrinsic(g->m, name, types, 2);
}

static LLVMTypeRef pointer_vector(struct cg *g, int n) { return LLVMVectorType(g->ptr, (unsigned)n); }

static bool is_contiguous(const struct access *x)
{
    int64_t c;
    return x->type.cols == 1 || (!x->vec_offset && const_value(x->col_stride, &c) && c == 1);
}

/* Byte offset of each column from the row's pointer; NULL when it is its number times one stride. */
static LLVMValueRef column_offsets(struct cg *g, const struct access *x)
{
    if (x->vec_offset) return x->vec_offset;
    int n = x->type.cols;
    LLVMValueRef idx[4096];
    for (int i = 0; i < n; i++) idx[i] = cg_i64(g, wrap_mul(i, x->esize));
    return LLVMBuildMul(g->b, LLVMConstVector(idx, (unsigned)n), cg_splat(g, x->col_stride, n), "");
}

static LLVMValueRef lane(struct cg *g, LLVMValueRef v, LLVMValueRef i)
{
    return LLVMBuildExtractElement(g->b, v, i, "");
}

/* min(max(ncols, 0), n) as the trip count of a loop over columns. */
static LLVMValueRef column_count(struct cg *g, const struct access *x)
{
    LLVMValueRef pair[2] = {cg_get(g, x->ncols)->rows[0], cg_i64(g, x->type.cols)};
    return cg_call(g, "llvm.smin", g->i64, pair, 2);
}

/* Pointer to column i (an i64 value) of a row. offsets: spilled byte offsets, or NULL for contiguous columns. */
static LLVMValueRef column_pointer(struct cg *g, const struct access *x, LLVMValueRef p, LLVMValueRef offsets,
                                   LLVMValueRef i)
{
    if (!offsets) return byte_step(g, p, LLVMBuildMul(g->b, i, cg_i64(g, x->esize), ""));
    LLVMValueRef at = LLVMBuildGEP2(g->b, g->i64, offsets, &i, 1, "");
    return byte_step(g, p, LLVMBuildLoad2(g->b, g->i64, at, ""));
}

static LLVMValueRef spill_offsets(struct cg *g, const struct access *x)
{
    if (is_contiguous(x)) return NULL;
    LLVMValueRef mem = cg_alloca(g, (size_t)x->type.cols * 8, 64);
    LLVMSetAlignment(LLVMBuildStore(g->b, column_offsets(g, x), mem), 8);
    return mem;
}

/* ---- loads ---- */

/* The columns that are there, one by one into zeroed memory, then all at once. */
static LLVMValueRef read_counted(struct cg *g, const struct access *x, LLVMValueRef p)
{
    int n = x->type.cols;
    LLVMValueRef temp = cg_alloca(g, (size_t)n * (size_t)x->esize, 64), offsets = spill_offsets(g, x);
    LLVMTypeRef v = cg_vec(x->mem, n);
    LLVMSetAlignment(LLVMBuildStore(g->b, LLVMConstNull(v), temp), (unsigned)x->esize);
    struct cg_count l;
    cg_count_begin(g, &l, column_count(g, x));
    LLVMValueRef e = read(g, x, column_pointer(g, x, p, offsets, l.i), 1);
    LLVMSetAlignment(LLVMBuildStore(g->b, e, LLVMBuildGEP2(g->b, x->mem, temp, &l.i, 1, "")), (unsigned)x->esize);
    cg_count_end(g, &l);
    LLVMValueRef r = LLVMBuildLoad2(g->b, v, temp, "");
    LLVMSetAlignment(r, (unsigned)x->esize);
    return r;
}

/* Whole vectors are the common case: only the last one of a row takes the slow way. */
static LLVMValueRef read_guarded(struct cg *g, const struct access *x, LLVMValueRef p)
{
    LLVMBasicBlockRef full = cg_block(g), part = cg_block(g), join = cg_block(g), from[2];
    LLVMValueRef enough = cg_icmp(g, LLVMIntSGE, cg_get(g, x->ncols)->rows[0], cg_i64(g, x->type.cols)), v[2];
    LLVMBuildCondBr(g->b, enough, full, part);
    LLVMPositionBuilderAtEnd(g->b, full);
    v[0] = read(g, x, p, x->type.cols);
    from[0] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, join);
    LLVMPositionBuilderAtEnd(g->b, part);
    v[1] = read_counted(g, x, p);
    from[1] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, join);
    LLVMPositionBuilderAtEnd(g->b, join);
    LLVMValueRef r = LLVMBuildPhi(g->b, LLVMTypeOf(v[0]), "");
    LLVMAddIncoming(r, v, from, 2);
    return r;
}

static LLVMValueRef read_gather(struct cg *g, const struct access *x, LLVMValueRef p)
{
    int n = x->type.cols;
    LLVMValueRef offsets = column_offsets(g, x);
    if (can_gather(g, x)) {
        LLVMValueRef ptrs = byte_step(g, p, offsets), fn = memory_intrinsic(g, "llvm.masked.gather", x, pointer_vector(g, n));
        LLVMValueRef mask = x->ncols ? column_mask(g, x->ncols, n) : cg_int(g->i1, n, 1);
        LLVMValueRef v = llvm_masked_read(g->c, g->b, fn, ptrs, mask, LLVMConstNull(cg_vec(x->mem, n)), (unsigned)x->esize);
        mark(g, x, v);
        return v;
    }
    if (x->ncols) return read_counted(g, x, p);
    LLVMValueRef r = LLVMGetPoison(cg_vec(x->mem, n));
    for (int i = 0; i < n; i++) {
        LLVMValueRef e = read(g, x, byte_step(g, p, lane(g, offsets, cg_i64(g, i))), 1);
        r = LLVMBuildInsertElement(g->b, r, e, cg_i64(g, i), "");
    }
    return r;
}

static LLVMValueRef read_row(struct cg *g, const struct access *x, LLVMValueRef p)
{
    int n = x->type.cols;
    if (!is_contiguous(x)) return read_gather(g, x, p);
    if (!x->ncols) return read(g, x, p, n);
    if (n > 1 && can_mask(g, x)) {
        LLVMValueRef fn = memory_intrinsic(g, "llvm.masked.load", x, g->ptr);
        LLVMValueRef v = llvm_masked_read(g->c, g->b, fn, p, column_mask(g, x->ncols, n), LLVMConstNull(cg_vec(x->mem, n)),
                                          (unsigned)x->esize);
        mark(g, x, v);
        return v;
    }
    return n > 1 ? read_guarded(g, x, p) : read_counted(g, x, p);
}

static bool load(struct cg *g, struct lp_op *op)
{
    struct access x;
    describe(g, op, &x);
    struct cg_value *y = cg_set(g, op->results[0], g->depth);
    for (int r = 0; r < x.type.rows; r++)
        y->rows[r] = from_memory(g, &x, read_row(g, &x, row_pointer(g, &x, r, true)), x.type.cols);
    return true;
}

bool cg_load_place(struct cg *g, struct lp_op *op, LLVMValueRef *at, LLVMValueRef *row_bytes)
{
    struct access x;
    describe(g, op, &x);
    if (x.nrows || x.ncols || x.buf->dtype == DT_BOOL || !is_contiguous(&x) || (x.type.rows > 1 && !x.row_stride)) return false;
    *at = emit_address(g, x.cg_buf->base, &x.base);
    *row_bytes = x.row_stride ? LLVMBuildMul(g->b, x.row_stride, cg_i64(g, x.esize), "") : cg_i64(g, 0);
    return true;
}

/* ---- stores ---- */

static void write_counted(struct cg *g, const struct access *x, LLVMValueRef v, LLVMValueRef p)
{
    int n = x->type.cols;
    LLVMValueRef temp = cg_alloca(g, (size_t)n * (size_t)x->esize, 64), offsets = spill_offsets(g, x);
    LLVMSetAlignment(LLVMBuildStore(g->b, v, temp), (unsigned)x->esize);
    struct cg_count l;
    cg_count_begin(g, &l, column_count(g, x));
    LLVMValueRef e = LLVMBuildLoad2(g->b, x->mem, LLVMBuildGEP2(g->b, x->mem, temp, &l.i, 1, ""), "");
    LLVMSetAlignment(e, (unsigned)x->esize);
    write(g, x, e, column_pointer(g, x, p, offsets, l.i));
    cg_count_end(g, &l);
}

static void write_guarded(struct cg *g, const struct access *x, LLVMValueRef v, LLVMValueRef p)
{
    LLVMBasicBlockRef full = cg_block(g), part = cg_block(g), join = cg_block(g);
    LLVMValueRef enough = cg_icmp(g, LLVMIntSGE, cg_get(g, x->ncols)->rows[0], cg_i64(g, x->type.cols));
    LLVMBuildCondBr(g->b, enough, full, part);
    LLVMPositionBuilderAtEnd(g->b, full);
    write(g, x, v, p);
    LLVMBuildBr(g->b, join);
    LLVMPositionBuilderAtEnd(g->b, part);
    write_counted(g, x, v, p);
    LLVMBuildBr(g->b, join);
    LLVMPositionBuilderAtEnd(g->b, join);
}

static void write_scatter(struct cg *g, const struct access *x, LLVMValueRef v, LLVMValueRef p)
{
    int n = x->type.cols;
    LLVMValueRef offsets = column_offsets(g, x);
    if (can_gather(g, x)) {
        LLVMValueRef ptrs = byte_step(g, p, offsets), fn = memory_intrinsic(g, "llvm.masked.scatter", x, pointer_vector(g, n));
        LLVMValueRef mask = x->ncols ? column_mask(g, x->ncols, n) : cg_int(g->i1, n, 1);
        mark(g, x, llvm_masked_write(g->c, g->b, fn, v, ptrs, mask, (unsigned)x->esize));
        return;
    }
    if (x->ncols) {
        write_counted(g, x, v, p);
        return;
    }
    for (int i = 0; i < n; i++)
        write(g, x, lane(g, v, cg_i64(g, i)), byte_step(g, p, lane(g, offsets, cg_i64(g, i))));
}

static void write_row(struct cg *g, const struct access *x, LLVMValueRef v, LLVMValueRef p)
{
    int n = x->type.cols;
    if (!is_contiguous(x)) {
        write_scatter(g, x, v, p);
    } else if (!x->ncols) {
        write(g, x, v, p);
    } else if (n > 1 && can_mask(g, x)) {
        LLVMValueRef fn = memory_intrinsic(g, "llvm.masked.store", x, g->ptr);
        mark(g, x, llvm_masked_write(g->c, g->b, fn, v, p, column_mask(g, x->ncols, n), (unsigned)x->esize));
    } else if (n > 1) {
        write_guarded(g, x, v, p);
    } else {
        write_counted(g, x, v, p);
    }
}

/* Rows from nrows on are left out: one branch a row, to the end at the first that is not there. */
static bool store(struct cg *g, struct lp_op *op)
{
    struct access x;
    describe(g, op, &x);
    LLVMBasicBlockRef done = x.nrows ? cg_block(g) : NULL;
    for (int r = 0; r < x.type.rows; r++) {
        if (x.nrows) {
            LLVMBasicBlockRef here = cg_block(g);
            LLVMValueRef there = cg_icmp(g, LLVMIntSGT, cg_get(g, x.nrows)->rows[0], cg_i64(g, r));
            LLVMBuildCondBr(g->b, there, here, done);
            LLVMPositionBuilderAtEnd(g->b, here);
        }
        LLVMValueRef v = to_memory(g, &x, cg_row(g, op->operands[0], r, x.type.cols), x.type.cols);
        write_row(g, &x, v, row_pointer(g, &x, r, false));
    }
    if (done) {
        LLVMBuildBr(g->b, done);
        LLVMPositionBuilderAtEnd(g->b, done);
    }
    return true;
}

void cg_prefetch(struct cg *g, struct lp_op *op)
{
    struct access x;
    describe(g, op, &x);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(g->c);
    /* read; highest locality, or the one below; data */
    LLVMValueRef args[4] = {emit_address(g, x.cg_buf->base, &x.base), LLVMConstInt(i32, 0, 0),
                            LLVMConstInt(i32, op->index ? 2 : 3, 0), LLVMConstInt(i32, 1, 0)};
    cg_call(g, "llvm.prefetch", LLVMTypeOf(args[0]), args, 4);
}

bool cg_memory(struct cg *g, struct lp_op *op)
{
    return op->code == LP_OP_LOAD ? load(g, op) : store(g, op);
}
