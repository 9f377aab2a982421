// SPDX-License-Identifier: Apache-2.0
/* What op functions use of their call: attributes, checks, scratch memory, messages; and the table of functions. */
#include <stdarg.h>
#include <stdlib.h>

#include "ir/eval_driver.h"
#include "ir/eval_table.h"

eval_fn eval_find(enum ir_opcode code)
{
    static const eval_fn table[IR_OP_COUNT] = {
        [IR_OP_DIMVEC] = eval_dimvec,
        [IR_OP_IOTA] = eval_iota,
        [IR_OP_POW] = eval_pow,
        [IR_OP_CAST] = eval_cast,
        [IR_OP_BITCAST] = eval_bitcast,
        [IR_OP_SELECT] = eval_select,
        [IR_OP_RESHAPE] = eval_reshape,
        [IR_OP_TRANSPOSE] = eval_transpose,
        [IR_OP_BROADCAST] = eval_broadcast,
        [IR_OP_SLICE] = eval_slice,
        [IR_OP_PAD] = eval_pad,
        [IR_OP_CONCAT] = eval_concat,
        [IR_OP_REVERSE_SEQUENCE] = eval_reverse_sequence,
        [IR_OP_REDUCE_SUM] = eval_reduce,
        [IR_OP_REDUCE_PROD] = eval_reduce,
        [IR_OP_REDUCE_MAX] = eval_reduce,
        [IR_OP_REDUCE_MIN] = eval_reduce,
        [IR_OP_ARG_MAX] = eval_arg,
        [IR_OP_ARG_MIN] = eval_arg,
        [IR_OP_CUM_SUM] = eval_cum,
        [IR_OP_CUM_PROD] = eval_cum,
        [IR_OP_TOPK] = eval_topk,
        [IR_OP_MATMUL] = eval_matmul,
        [IR_OP_CONV] = eval_conv,
        [IR_OP_CONV_TRANSPOSE] = eval_conv_transpose,
        [IR_OP_POOL_MAX] = eval_pool_max,
        [IR_OP_POOL_AVG] = eval_pool_sum,
        [IR_OP_POOL_SUM] = eval_pool_sum,
        [IR_OP_SOFTMAX] = eval_softmax,
        [IR_OP_LOG_SOFTMAX] = eval_softmax,
        [IR_OP_LAYER_NORM] = eval_norm,
        [IR_OP_RMS_NORM] = eval_norm,
        [IR_OP_LSTM] = eval_rnn,
        [IR_OP_GRU] = eval_rnn,
        [IR_OP_RNN] = eval_rnn,
        [IR_OP_GATHER] = eval_gather,
        [IR_OP_GATHER_ELEMENTS] = eval_gather_elements,
        [IR_OP_GATHER_ND] = eval_gather_nd,
        [IR_OP_SCATTER_ELEMENTS] = eval_scatter_elements,
        [IR_OP_SCATTER_ND] = eval_scatter_nd,
        [IR_OP_RESIZE] = eval_resize,
        [IR_OP_GRID_SAMPLE] = eval_grid_sample,
        [IR_OP_ROI_ALIGN] = eval_roi_align,
        [IR_OP_COL2IM] = eval_col2im,
        [IR_OP_DFT] = eval_dft,
        [IR_OP_DET] = eval_det,
        [IR_OP_KV_WRITE] = eval_kv_write,
        [IR_OP_PAGED_ATTENTION] = eval_paged_attention,
        [IR_OP_ROUND_ROWS] = eval_round_rows,
        [IR_OP_MATMUL_EXPERTS] = eval_matmul_experts,
    };
    if ((unsigned)code >= IR_OP_COUNT) return NULL;
    if (table[code]) return table[code];
    return ir_op_info(code)->traits & IR_T_PW ? eval_pointwise : NULL;
}

bool eval_takes_encoding(enum ir_opcode code, int operand)
{
    return code == IR_OP_GATHER ? operand == 0 : (code == IR_OP_MATMUL || code == IR_OP_MATMUL_EXPERTS) && operand == 1;
}

bool eval_fail(struct eval_call *c, enum diag_id id, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return diag_report(c->diag, id, c->op->loc ? c->op->loc->text : NULL, "%s: %s", ir_op_name(c->op->code), text);
}

struct eval_scratch {
    struct eval_scratch *next;
    uint64_t pad; /* keeps the data aligned to 16 */
};

void *eval_scratch(struct eval_call *c, int64_t count, size_t elem_bytes)
{
    size_t n_bytes;
    struct eval_scratch *s = NULL;
    if (count >= 0 && size_mul((size_t)count, elem_bytes, &n_bytes) && n_bytes < EVAL_MAX_BYTES)
        s = calloc(1, sizeof *s + n_bytes);
    if (!s) {
        eval_fail(c, DIAG_ENVIRONMENT, "no memory for %lld elements of scratch", (long long)count);
        return NULL;
    }
    s->next = c->scratch;
    c->scratch = s;
    return s + 1;
}

void eval_scratch_free(struct eval_call *c)
{
    for (struct eval_scratch *s = c->scratch, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    c->scratch = NULL;
}

/* True when every symbol of d has a value. */
static bool is_bound(const struct eval_call *c, const struct dim *d)
{
    switch (d->kind) {
    case DIM_CONST: return true;
    case DIM_OVERFLOW: return false;
    case DIM_SYM: {
        if (!c->syms) return false;
        if (!c->bound) return true;
        size_t n = dim_sym_count(c->m->dims);
        for (size_t i = 0; i < n; i++)
            if (dim_sym_at(c->m->dims, i) == d) return c->bound[i];
        return false;
    }
    case DIM_POLY:
        for (int t = 0; t < d->n_terms; t++)
            for (int i = 0; i < d->terms[t].n_atoms; i++)
                if (!is_bound(c, d->terms[t].atoms[i])) return false;
        return true;
    default: return is_bound(c, d->a) && is_bound(c, d->b);
    }
}

bool eval_dim(struct eval_call *c, const struct dim *d, int64_t *out)
{
    if (d->kind == DIM_CONST) {
        *out = d->value;
        return true;
    }
    if (is_bound(c, d) && dim_eval(c->m->dims, d, c->syms, out)) return true;
    struct strbuf s = {0};
    dim_print(&s, d);
    eval_fail(c, DIAG_SHAPE_MISMATCH, "the dim `%s` has no value", strbuf_get(&s));
    strbuf_deinit(&s);
    return false;
}

bool eval_dims(struct eval_call *c, const char *name, int n, int64_t dflt, int64_t *out)
{
    int count;
    const struct dim *const *dims = ir_attr_dims(c->op, name, &count);
    if (!dims && !ir_attr_find(c->op, name)) {
        for (int i = 0; i < n; i++) out[i] = dflt;
        return true;
    }
    if (count != n) return eval_fail(c, DIAG_SHAPE_MISMATCH, "attribute %s has %d entries, not %d", name, count, n);
    for (int i = 0; i < n; i++)
        if (!eval_dim(c, dims[i], &out[i])) return false;
    return true;
}

bool eval_ints(struct eval_call *c, const char *name, int n, int64_t dflt, int64_t *out)
{
    int count;
    const int64_t *v = ir_attr_ints(c->op, name, &count);
    if (!v && !ir_attr_find(c->op, name)) {
        for (int i = 0; i < n; i++) out[i] = dflt;
        return true;
    }
    if (count != n) return eval_fail(c, DIAG_SHAPE_MISMATCH, "attribute %s has %d entries, not %d", name, count, n);
    for (int i = 0; i < n; i++) out[i] = v[i];
    return true;
}

bool eval_axis(struct eval_call *c, const char *name, int64_t dflt, int rank, int *out)
{
    int64_t axis = ir_attr_int(c->op, name, dflt);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank)
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "%s %lld of a tensor of rank %d", name, (long long)axis, rank);
    *out = (int)axis;
    return true;
}

static void put_shape(struct strbuf *s, int rank, const int64_t *dims)
{
    strbuf_putc(s, '[');
    for (int i = 0; i < rank; i++) strbuf_printf(s, "%s%lld", i ? ", " : "", (long long)dims[i]);
    strbuf_putc(s, ']');
}

bool eval_expect(struct eval_call *c, int i, enum dtype dtype, int rank, const int64_t *dims)
{
    if (i >= c->n_out) return eval_fail(c, DIAG_IR_VERIFY, "result %d is missing", i);
    const struct ir_tensor *t = &c->out[i];
    bool same = t->rank == rank;
    for (int d = 0; same && d < rank; d++) same = t->dims[d] == dims[d];
    if (!same) {
        struct strbuf s = {0};
        put_shape(&s, rank, dims);
        strbuf_puts(&s, ", declared ");
        put_shape(&s, t->rank, t->dims);
        eval_fail(c, DIAG_SHAPE_MISMATCH, "result %d comes out as %s", i, strbuf_get(&s));
        strbuf_deinit(&s);
        return false;
    }
    if (dtype != DT_NONE && t->dtype != dtype)
        return eval_fail(c, DIAG_DTYPE_MISMATCH, "result %d is %s, declared %s", i, dtype_name(dtype), dtype_name(t->dtype));
    return true;
}

bool eval_need(struct eval_call *c, int i, unsigned classes, int rank)
{
    const struct ir_tensor *t = eval_in(c, i);
    if (!t) return eval_fail(c, DIAG_IR_VERIFY, "operand %d is missing", i);
    if (!(classes >> dtype_class(t->dtype) & 1))
        return eval_fail(c, DIAG_DTYPE_UNSUPPORTED, "operand %d cannot be %s", i, dtype_name(t->dtype));
    if (rank >= 0 && t->rank != rank)
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "operand %d has rank %d, not %d", i, t->rank, rank);
    return true;
}
