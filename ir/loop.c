// SPDX-License-Identifier: Apache-2.0
/* Loop IR: kernels, buffers, blocks and the op table. The builder is ir/loop_build.c. */
#include "ir/loop.h"

#include "ir/dim.h"
#include "ir/loop_rewrite.h"

static const char *const op_names[] = {
#define LP(ID, name, n_operands, result, flags, doc) #name,
#include "ir/loop_ops.def"
#undef LP
};

static const unsigned char op_flags[] = {
#define LP(ID, name, n_operands, result, flags, doc) flags,
#include "ir/loop_ops.def"
#undef LP
};

const char *lp_op_name(enum lp_opcode code)
{
    return (unsigned)code < LP_OP_COUNT ? op_names[code] : "?";
}

unsigned lp_op_flags(enum lp_opcode code)
{
    return (unsigned)code < LP_OP_COUNT ? op_flags[code] : 0;
}

enum lp_opcode lp_opcode_find(const char *name, size_t len)
{
    for (int i = 0; i < LP_OP_COUNT; i++)
        if (strlen(op_names[i]) == len && !memcmp(op_names[i], name, len)) return (enum lp_opcode)i;
    return LP_OP_COUNT;
}

/* ---- kernels ---- */

struct lp_kernel *lp_kernel_create(struct dim_ctx *ctx, const char *name, const char *loc, const char *schedule)
{
    /* The kernel lies in its own arena: one deinit frees everything. */
    struct arena arena;
    arena_init(&arena);
    struct lp_kernel *k = ARENA_NEW(&arena, struct lp_kernel);
    k->arena = arena;
    k->dims_ctx = ctx;
    k->name = arena_strdup(&k->arena, name ? name : "");
    k->loc = arena_strdup(&k->arena, loc ? loc : "");
    k->schedule = arena_strdup(&k->arena, schedule ? schedule : "");
    k->slices = dim_const(ctx, 1);
    k->body = lp_block_create(k, NULL);
    lp_block_arg(k, k->body, lp_scalar(DT_I64));
    return k;
}

void lp_kernel_destroy(struct lp_kernel *k)
{
    while (k) {
        struct lp_kernel *then = k->then;
        struct arena arena = k->arena;
        arena_deinit(&arena);
        k = then;
    }
}

int lp_dim_param(struct lp_kernel *k, const struct dim *d)
{
    INFC_ASSERT(!dim_is_const(d));
    for (size_t i = 0; i < k->dims.n; i++)
        if (k->dims.v[i] == d) return (int)i;
    vec_push(&k->arena, &k->dims, d);
    return (int)k->dims.n - 1;
}

static int add_buf(struct lp_kernel *k, struct lp_buf *b, const char *name, const struct dim *const *dims)
{
    INFC_ASSERT(b->rank >= 0);
    const struct dim **own = ARENA_ARRAY(&k->arena, const struct dim *, b->rank);
    const struct dim **strides = ARENA_ARRAY(&k->arena, const struct dim *, b->rank);
    const struct dim *stride = dim_const(k->dims_ctx, 1);
    for (int i = b->rank - 1; i >= 0; i--) {
        own[i] = dims[i];
        strides[i] = stride;
        if (i) stride = dim_mul(k->dims_ctx, stride, dims[i]);
    }
    b->name = arena_strdup(&k->arena, name ? name : "");
    b->dims = own;
    b->strides = strides;
    vec_push(&k->arena, &k->bufs, *b);
    return (int)k->bufs.n - 1;
}

int lp_add_arg(struct lp_kernel *k, const char *name, enum dtype dtype, int rank, const struct dim *const *dims,
               bool writable, int align_bytes)
{
    INFC_ASSERT((size_t)k->n_arg_bufs == k->bufs.n); /* ARG buffers come first */
    struct lp_buf b = {.dtype = dtype, .space = LP_SPACE_ARG, .rank = rank, .writable = writable};
    int least = (int)dtype_bytes(dtype);
    INFC_ASSERT(least > 0);
    b.align_bytes = align_bytes > least ? align_bytes : least;
    int n = add_buf(k, &b, name, dims);
    k->n_arg_bufs++;
    for (int i = 0; i < rank; i++) {
        const struct dim *s = k->bufs.v[n].strides[i];
        if (!dim_is_const(s)) lp_dim_param(k, s);
    }
    return n;
}

int lp_add_stack(struct lp_kernel *k, const char *name, enum dtype dtype, int rank, const int64_t *dims)
{
    const struct dim **d = ARENA_ARRAY(&k->arena, const struct dim *, rank);
    for (int i = 0; i < rank; i++) d[i] = dim_const(k->dims_ctx, dims[i]);
    struct lp_buf b = {.dtype = dtype, .space = LP_SPACE_STACK, .rank = rank, .writable = true, .align_bytes = 64};
    INFC_ASSERT(dtype_bytes(dtype) > 0);
    return add_buf(k, &b, name, d);
}

/* ---- blocks ---- */

struct lp_block *lp_block_create(struct lp_kernel *k, struct lp_op *parent)
{
    struct lp_block *b = ARENA_NEW(&k->arena, struct lp_block);
    b->parent = parent;
    return b;
}

struct lp_value *lp_value_create(struct lp_kernel *k, struct lp_type t, struct lp_op *def)
{
    struct lp_value *v = ARENA_NEW(&k->arena, struct lp_value);
    v->type = t;
    v->def = def;
    v->id = k->next_id++;
    return v;
}

struct lp_value *lp_block_arg(struct lp_kernel *k, struct lp_block *b, struct lp_type t)
{
    struct lp_value **args = ARENA_ARRAY(&k->arena, struct lp_value *, b->n_args + 1);
    for (int i = 0; i < b->n_args; i++) args[i] = b->args[i];
    args[b->n_args] = lp_value_create(k, t, NULL);
    b->args = args;
    return b->args[b->n_args++];
}

/* ---- surgery ---- */

void lp_append(struct lp_block *b, struct lp_op *op)
{
    op->block = b;
    op->next = NULL;
    op->prev = b->last;
    if (b->last) b->last->next = op;
    else b->first = op;
    b->last = op;
}

void lp_unlink(struct lp_op *op)
{
    struct lp_block *b = op->block;
    if (op->prev) op->prev->next = op->next;
    else b->first = op->next;
    if (op->next) op->next->prev = op->prev;
    else b->last = op->prev;
    op->prev = op->next = NULL;
    op->block = NULL;
}

void lp_splice_before(struct lp_op *at, struct lp_block *from)
{
    if (!from->first) return;
    for (struct lp_op *o = from->first; o; o = o->next) o->block = at->block;
    from->first->prev = at->prev;
    from->last->next = at;
    if (at->prev) at->prev->next = from->first;
    else at->block->first = from->first;
    at->prev = from->last;
    from->first = from->last = NULL;
}

struct lp_op *lp_op_create(struct lp_kernel *k, enum lp_opcode code, int n_operands,
                           struct lp_value *const *operands, int n_results, const struct lp_type *types)
{
    struct lp_op *op = ARENA_NEW(&k->arena, struct lp_op);
    op->code = code;
    op->n_operands = n_operands;
    op->operands = ARENA_ARRAY(&k->arena, struct lp_value *, n_operands);
    for (int i = 0; i < n_operands; i++) {
        INFC_ASSERT(operands[i]);
        op->operands[i] = operands[i];
    }
    op->n_results = n_results;
    op->results = ARENA_ARRAY(&k->arena, struct lp_value *, n_results);
    for (int i = 0; i < n_results; i++) op->results[i] = lp_value_create(k, types[i], op);
    return op;
}
