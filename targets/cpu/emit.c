// SPDX-License-Identifier: Apache-2.0
/* Functions, regions and control flow of a kernel in LLVM IR, and the helpers the other emit_*.c files share. */
#include "targets/cpu/emit.h"

bool cg_fail(struct cg *g, enum diag_id id, const char *what, const char *name)
{
    if (!g->failed) diag_report(g->diag, id, g->k->loc, "kernel %s: %s %s", g->k->name, what, name);
    g->failed = true;
    return false;
}

/* ---- types and constants ---- */

LLVMTypeRef cg_mem_type(struct cg *g, enum dtype d)
{
    switch (dtype_bytes(d)) {
    case 8: return d == DT_F64 ? g->f64 : g->i64;
    case 4: return d == DT_F32 ? g->f32 : g->i32;
    case 2: return g->i16;
    default: return g->i8;
    }
}

LLVMTypeRef cg_elem_type(struct cg *g, enum dtype d)
{
    return d == DT_BOOL ? g->i1 : cg_mem_type(g, d);
}

LLVMTypeRef cg_vec(LLVMTypeRef elem, int n)
{
    return n == 1 ? elem : LLVMVectorType(elem, (unsigned)n);
}

LLVMValueRef cg_i64(struct cg *g, int64_t v)
{
    return LLVMConstInt(g->i64, (unsigned long long)v, 1);
}

static LLVMValueRef const_splat(LLVMValueRef x, int n)
{
    if (n == 1) return x;
    LLVMValueRef few[64], *all = n <= 64 ? few : malloc((size_t)n * sizeof *all);
    if (!all) abort();
    for (int i = 0; i < n; i++) all[i] = x;
    LLVMValueRef v = LLVMConstVector(all, (unsigned)n);
    if (all != few) free(all);
    return v;
}

LLVMValueRef cg_int(LLVMTypeRef elem, int n, int64_t v)
{
    /* Sign extension of a value that does not fit (0xffff as i16) is refused by newer versions: cut it first. */
    unsigned bits = LLVMGetIntTypeWidth(elem);
    uint64_t u = (uint64_t)v;
    if (bits < 64) u &= ((uint64_t)1 << bits) - 1;
    return const_splat(LLVMConstInt(elem, u, 0), n);
}

LLVMValueRef cg_real(LLVMTypeRef elem, int n, double v)
{
    return const_splat(LLVMConstReal(elem, v), n);
}

LLVMValueRef cg_splat(struct cg *g, LLVMValueRef x, int n)
{
    if (n == 1) return x;
    if (LLVMIsConstant(x) && !LLVMIsUndef(x)) return const_splat(x, n);
    LLVMValueRef poison = LLVMGetPoison(LLVMVectorType(LLVMTypeOf(x), (unsigned)n));
    LLVMValueRef one = LLVMBuildInsertElement(g->b, poison, x, cg_i64(g, 0), "");
    return LLVMBuildShuffleVector(g->b, one, poison, LLVMConstNull(LLVMVectorType(g->i32, (unsigned)n)), "");
}

LLVMValueRef cg_call(struct cg *g, const char *intrinsic, LLVMTypeRef overload, LLVMValueRef *args, int n)
{
    LLVMValueRef fn = llvm_intrinsic(g->m, intrinsic, &overload, overload ? 1 : 0);
    INFC_ASSERT(fn != NULL);
    return LLVMBuildCall2(g->b, LLVMGlobalGetValueType(fn), fn, args, (unsigned)n, "");
}

LLVMValueRef cg_select(struct cg *g, LLVMValueRef c, LLVMValueRef x, LLVMValueRef y)
{
    return LLVMBuildSelect(g->b, c, x, y, "");
}

LLVMValueRef cg_icmp(struct cg *g, LLVMIntPredicate p, LLVMValueRef x, LLVMValueRef y)
{
    return LLVMBuildICmp(g->b, p, x, y, "");
}

LLVMValueRef cg_fcmp(struct cg *g, LLVMRealPredicate p, LLVMValueRef x, LLVMValueRef y)
{
    return LLVMBuildFCmp(g->b, p, x, y, "");
}

/* In the entry block, so that it costs no stack pointer arithmetic and exists once. */
LLVMValueRef cg_alloca(struct cg *g, size_t n_bytes, unsigned align)
{
    LLVMBasicBlockRef saved = LLVMGetInsertBlock(g->b);
    LLVMValueRef first = LLVMGetFirstInstruction(g->entry);
    if (first) LLVMPositionBuilderBefore(g->b, first);
    else LLVMPositionBuilderAtEnd(g->b, g->entry);
    LLVMValueRef p = LLVMBuildAlloca(g->b, LLVMArrayType2(g->i8, n_bytes), "");
    LLVMSetAlignment(p, align);
    LLVMPositionBuilderAtEnd(g->b, saved);
    return p;
}

LLVMBasicBlockRef cg_block(struct cg *g)
{
    return LLVMAppendBasicBlockInContext(g->c, g->fn, "");
}

/* ---- values ---- */

struct cg_value *cg_get(struct cg *g, const struct lp_value *v)
{
    (void)g;
    INFC_ASSERT(v->aux != NULL);
    return v->aux;
}

struct cg_value *cg_set(struct cg *g, struct lp_value *v, int depth)
{
    struct cg_value *x = v->aux;
    if (!x) {
        x = ARENA_NEW(&g->arena, struct cg_value);
        x->rows = ARENA_ARRAY(&g->arena, LLVMValueRef, v->type.rows);
        v->aux = x;
    }
    x->depth = depth;
    return x;
}

LLVMValueRef cg_row(struct cg *g, const struct lp_value *v, int r, int cols)
{
    LLVMValueRef x = cg_get(g, v)->rows[v->type.rows == 1 ? 0 : r];
    return v->type.cols == cols ? x : cg_splat(g, x, cols);
}

LLVMBasicBlockRef cg_enter_depth(struct cg *g, int depth)
{
    LLVMBasicBlockRef saved = LLVMGetInsertBlock(g->b);
    if (depth < g->depth) LLVMPositionBuilderBefore(g->b, LLVMGetBasicBlockTerminator(g->pre[depth + 1]));
    return saved;
}

void cg_leave_depth(struct cg *g, LLVMBasicBlockRef saved)
{
    LLVMPositionBuilderAtEnd(g->b, saved);
}

void cg_count_begin(struct cg *g, struct cg_count *l, LLVMValueRef n)
{
    LLVMBasicBlockRef before = LLVMGetInsertBlock(g->b);
    LLVMValueRef zero = cg_i64(g, 0);
    l->n = n;
    l->head = cg_block(g);
    l->exit = cg_block(g);
    LLVMBuildCondBr(g->b, cg_icmp(g, LLVMIntSGT, n, zero), l->head, l->exit);
    LLVMPositionBuilderAtEnd(g->b, l->head);
    l->i = LLVMBuildPhi(g->b, g->i64, "");
    LLVMAddIncoming(l->i, &zero, &before, 1);
}

void cg_count_end(struct cg *g, struct cg_count *l)
{
    LLVMValueRef next = LLVMBuildNSWAdd(g->b, l->i, cg_i64(g, 1), "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
    LLVMBuildCondBr(g->b, cg_icmp(g, LLVMIntSLT, next, l->n), l->head, l->exit);
    LLVMAddIncoming(l->i, &next, &latch, 1);
    LLVMPositionBuilderAtEnd(g->b, l->exit);
}

/* ---- regions ---- */

static bool emit_block(struct cg *g, struct lp_block *block, struct lp_op **yield);

/* pre: block that ends in a branch into the region, where hoisted code may go. */
static bool push_region(struct cg *g, LLVMBasicBlockRef pre)
{
    if (g->depth + 1 >= CG_MAX_DEPTH) return cg_fail(g, DIAG_CODEGEN, "regions nest too deep", "");
    g->pre[++g->depth] = pre;
    return true;
}

/* Carried values move all at once: a yield may name another region argument. */
static void move_carried(struct cg *g, struct lp_value **to, struct lp_value *const *from, int n, int depth)
{
    LLVMValueRef **rows = ARENA_ARRAY(&g->arena, LLVMValueRef *, n);
    for (int i = 0; i < n; i++)
        rows[i] = arena_dup(&g->arena, cg_get(g, from[i])->rows, from[i]->type.rows * sizeof(LLVMValueRef));
    for (int i = 0; i < n; i++) {
        struct cg_value *y = cg_set(g, to[i], depth);
        for (int r = 0; r < to[i]->type.rows; r++) y->rows[r] = rows[i][r];
    }
}

static bool emit_unrolled(struct cg *g, struct lp_op *op, int64_t lo, int64_t hi)
{
    struct lp_block *body = op->regions[0];
    move_carried(g, body->args + 1, op->operands + 2, op->n_results, g->depth);
    int64_t i = lo;
    while (i < hi) {
        struct lp_op *yield = NULL;
        cg_set(g, body->args[0], 0)->rows[0] = cg_i64(g, i);
        if (!emit_block(g, body, &yield)) return false;
        move_carried(g, body->args + 1, yield->operands, op->n_results, g->depth);
        if (!i64_add(i, op->imm, &i)) break;
    }
    move_carried(g, op->results, body->args + 1, op->n_results, g->depth);
    return true;
}

/* Phis of the carried values; incoming edges follow. */
static void carried_phis(struct cg *g, struct lp_value **to, int n, int depth)
{
    for (int i = 0; i < n; i++) {
        struct cg_value *x = cg_set(g, to[i], depth);
        for (int r = 0; r < to[i]->type.rows; r++)
            x->rows[r] = LLVMBuildPhi(g->b, cg_vec(cg_elem_type(g, to[i]->type.dtype), to[i]->type.cols), "");
    }
}

static void add_incoming(struct cg *g, struct lp_value **phis, struct lp_value *const *from, int n,
                         LLVMBasicBlockRef block)
{
    for (int i = 0; i < n; i++)
        for (int r = 0; r < phis[i]->type.rows; r++)
            LLVMAddIncoming(cg_get(g, phis[i])->rows[r], &cg_get(g, from[i])->rows[r], &block, 1);
}

/* A bound that cannot come near INT64_MAX, so that counter + step may be marked as not wrapping. */
static bool tame_bound(const struct lp_value *hi, int64_t step)
{
    int64_t c;
    if (step > INT32_MAX) return false;
    if (lp_is_const(hi, &c)) return c < INT64_MAX / 2;
    return hi->def && hi->def->code == LP_OP_DIM;
}

/*
 *   before:  br lo < hi, pre, exit      (the test is left out when it is known)
 *   pre:     br head
 *   head:    phis; body; next = counter + step; br next < hi, head, exit
 *   exit:    result phis
 */
static bool emit_for(struct cg *g, struct lp_op *op)
{
    LLVMValueRef lo = cg_get(g, op->operands[0])->rows[0], hi = cg_get(g, op->operands[1])->rows[0];
    bool known = LLVMIsAConstantInt(lo) && LLVMIsAConstantInt(hi);
    int64_t clo = known ? LLVMConstIntGetSExtValue(lo) : 0, chi = known ? LLVMConstIntGetSExtValue(hi) : 0;
    int n = op->n_results, outer = g->depth;
    if (known && clo >= chi) {
        move_carried(g, op->results, op->operands + 2, n, outer);
        return true;
    }
    int64_t span = 0;
    bool once = known && i64_sub(chi, clo, &span) && span <= op->imm;
    if (known && (once || op->index == LP_LOOP_UNROLL)) return emit_unrolled(g, op, clo, chi);

    struct lp_block *body = op->regions[0];
    LLVMBasicBlockRef before = LLVMGetInsertBlock(g->b), pre = cg_block(g), head = cg_block(g), exit = cg_block(g);
    if (known) LLVMBuildBr(g->b, pre);
    else LLVMBuildCondBr(g->b, cg_icmp(g, LLVMIntSLT, lo, hi), pre, exit);
    LLVMPositionBuilderAtEnd(g->b, pre);
    LLVMBuildBr(g->b, head);
    if (!push_region(g, pre)) return false;
    LLVMPositionBuilderAtEnd(g->b, head);
    LLVMValueRef i = LLVMBuildPhi(g->b, g->i64, "");
    LLVMAddIncoming(i, &lo, &pre, 1);
    cg_set(g, body->args[0], g->depth)->rows[0] = i;
    carried_phis(g, body->args + 1, n, g->depth);
    add_incoming(g, body->args + 1, op->operands + 2, n, pre);
    struct lp_op *yield = NULL;
    if (!emit_block(g, body, &yield)) return false;
    LLVMValueRef next = LLVMBuildAdd(g->b, i, cg_i64(g, op->imm), "");
    if (tame_bound(op->operands[1], op->imm) && LLVMIsAInstruction(next)) LLVMSetNSW(next, 1);
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
    LLVMBuildCondBr(g->b, cg_icmp(g, LLVMIntSLT, next, hi), head, exit);
    LLVMAddIncoming(i, &next, &latch, 1);
    add_incoming(g, body->args + 1, yield->operands, n, latch);
    g->depth = outer;
    LLVMPositionBuilderAtEnd(g->b, exit);
    if (known) {
        move_carried(g, op->results, yield->operands, n, outer);
        return true;
    }
    carried_phis(g, op->results, n, outer);
    add_incoming(g, op->results, op->operands + 2, n, before);
    add_incoming(g, op->results, yield->operands, n, latch);
    return true;
}

static bool emit_if(struct cg *g, struct lp_op *op)
{
    LLVMValueRef cond = cg_get(g, op->operands[0])->rows[0];
    LLVMBasicBlockRef before = LLVMGetInsertBlock(g->b), branch[2] = {cg_block(g), cg_block(g)}, last[2];
    LLVMBasicBlockRef join = cg_block(g);
    struct lp_op *yield[2] = {NULL, NULL};
    LLVMBuildCondBr(g->b, cond, branch[0], branch[1]);
    for (int s = 0; s < 2; s++) {
        if (!push_region(g, before)) return false;
        LLVMPositionBuilderAtEnd(g->b, branch[s]);
        if (!emit_block(g, op->regions[s], &yield[s])) return false;
        last[s] = LLVMGetInsertBlock(g->b);
        LLVMBuildBr(g->b, join);
        g->depth--;
    }
    LLVMPositionBuilderAtEnd(g->b, join);
    carried_phis(g, op->results, op->n_results, g->depth);
    for (int s = 0; s < 2; s++) add_incoming(g, op->results, yield[s]->operands, op->n_results, last[s]);
    return true;
}

/* ---- ops ---- */

static bool emit_const(struct cg *g, struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    LLVMTypeRef e = cg_elem_type(g, t.dtype);
    LLVMValueRef v;
    /* Rounding to a small format folds only in part: what is left belongs to the entry. */
    LLVMBasicBlockRef saved = cg_enter_depth(g, 0);
    if (!dtype_is_float(t.dtype)) v = cg_int(e, t.cols, op->imm);
    else if (cg_is_soft(t.dtype)) v = cg_cast(g, DT_F64, t.dtype, t.cols, cg_real(g->f64, t.cols, op->fimm), false);
    else v = cg_real(e, t.cols, op->fimm);
    cg_leave_depth(g, saved);
    struct cg_value *x = cg_set(g, op->results[0], 0);
    for (int r = 0; r < t.rows; r++) x->rows[r] = v;
    return true;
}

/* Sizes that LLVM could not digest, and ops that this target has no code for. */
bool cg_count_op(struct cg *g, const struct lp_op *op)
{
    if (++g->n_ops > CG_OP_LIMIT) return cg_fail(g, DIAG_CODEGEN, "too many operations after unrolling", "");
    for (int i = 0; i < op->n_results; i++) {
        struct lp_type t = op->results[i]->type;
        if (t.rows > 1024 || t.cols > 4096 || dtype_bytes(t.dtype) == 0)
            return cg_fail(g, DIAG_CODEGEN, "a tile is too large for registers in", lp_op_name(op->code));
    }
    if (lp_op_flags(op->code) & LP_F_MATH)
        return cg_fail(g, DIAG_NO_LOWERING, "no code on this target for", lp_op_name(op->code));
    return true;
}

bool cg_op(struct cg *g, struct lp_op *op, struct lp_op **last)
{
    *last = op;
    if (!cg_count_op(g, op)) return false;
    if (lp_op_flags(op->code) & LP_F_PW) return cg_pointwise(g, op, last);
    switch (op->code) {
    case LP_OP_CONST: return emit_const(g, op);
    case LP_OP_DIM: cg_set(g, op->results[0], 0)->rows[0] = g->dims[op->index]; return true;
    case LP_OP_IOTA:
    case LP_OP_SPLAT:
    case LP_OP_EXTRACT:
    case LP_OP_INTERLEAVE:
    case LP_OP_BYTES:
    case LP_OP_REDUCE:
    case LP_OP_MMA: return cg_tile_op(g, op);
    case LP_OP_LOAD:
    case LP_OP_STORE: return cg_memory(g, op);
    case LP_OP_PREFETCH: cg_prefetch(g, op); return true;
    case LP_OP_FOR: return emit_for(g, op);
    case LP_OP_IF: return emit_if(g, op);
    default: return cg_fail(g, DIAG_NO_LOWERING, "no code on this target for", lp_op_name(op->code));
    }
}

static bool emit_block(struct cg *g, struct lp_block *block, struct lp_op **yield)
{
    for (struct lp_op *op = block->first, *last; op; op = last->next) {
        if (op->code == LP_OP_YIELD) {
            if (yield) *yield = op;
            break;
        }
        if (!cg_op(g, op, &last)) return false;
    }
    return !g->failed;
}

/* ---- the function ---- */

static LLVMValueRef stride_value(struct cg *g, const struct dim *d)
{
    if (dim_is_const(d)) return cg_i64(g, d->value);
    for (size_t i = 0; i < g->k->dims.n; i++)
        if (g->k->dims.v[i] == d) return g->dims[i];
    INFC_UNREACHABLE("a stride that is no dim parameter");
}

static bool stack_bytes(struct cg *g, const struct lp_buf *b, size_t *out)
{
    size_t n = dtype_bytes(b->dtype);
    for (int i = 0; i < b->rank; i++) {
        if (!dim_is_const(b->dims[i]) || b->dims[i]->value < 0 || !size_mul(n, (size_t)b->dims[i]->value, &n))
            return cg_fail(g, DIAG_CODEGEN, "a stack buffer has no usable size:", b->name);
    }
    if (n > (size_t)1 << 40) return cg_fail(g, DIAG_CODEGEN, "a stack buffer is too large:", b->name);
    *out = (n + 63) & ~(size_t)63;
    return true;
}

/* Together small: on the stack; else all in the worker's scratch memory, one after the other. */
static bool place_stack(struct cg *g, LLVMValueRef scratch)
{
    size_t total = 0, n;
    for (size_t i = (size_t)g->k->n_arg_bufs; i < g->k->bufs.n; i++) {
        if (g->k->bufs.v[i].space != LP_SPACE_STACK)
            return cg_fail(g, DIAG_NO_LOWERING, "no shared memory on this target for buffer", g->k->bufs.v[i].name);
        if (!stack_bytes(g, &g->k->bufs.v[i], &n) || !size_add(total, n, &total)) return false;
    }
    bool spilled = total > CG_STACK_LIMIT_BYTES;
    size_t at = 0;
    for (size_t i = (size_t)g->k->n_arg_bufs; i < g->k->bufs.n; i++) {
        stack_bytes(g, &g->k->bufs.v[i], &n);
        LLVMValueRef offset = cg_i64(g, (int64_t)at);
        g->bufs[i].base = spilled ? LLVMBuildGEP2(g->b, g->i8, scratch, &offset, 1, "") : cg_alloca(g, n ? n : 64, 64);
        at += n;
    }
    g->scratch_bytes = spilled ? total : 0;
    return true;
}

/* One scope a buffer: buffers never overlap, so each access is noalias with all other buffers' scopes. */
static void alias_scopes(struct cg *g)
{
    size_t n = g->k->bufs.n;
    if (n < 2 || n > 48) return;
    LLVMMetadataRef domain_name = LLVMMDStringInContext2(g->c, "k", 1);
    LLVMMetadataRef domain = LLVMMDNodeInContext2(g->c, &domain_name, 1), scopes[48];
    for (size_t i = 0; i < n; i++) {
        char name[8];
        int len = snprintf(name, sizeof name, "b%d", (int)i);
        LLVMMetadataRef parts[2] = {LLVMMDStringInContext2(g->c, name, (size_t)len), domain};
        scopes[i] = LLVMMDNodeInContext2(g->c, parts, 2);
    }
    for (size_t i = 0; i < n; i++) {
        LLVMMetadataRef others[48];
        size_t m = 0;
        for (size_t j = 0; j < n; j++)
            if (j != i) others[m++] = scopes[j];
        g->bufs[i].scope = LLVMMetadataAsValue(g->c, LLVMMDNodeInContext2(g->c, &scopes[i], 1));
        g->bufs[i].noalias = LLVMMetadataAsValue(g->c, LLVMMDNodeInContext2(g->c, others, m));
    }
}

static void attribute(struct cg *g, unsigned index, const char *name, uint64_t value)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    if (kind) LLVMAddAttributeAtIndex(g->fn, index, LLVMCreateEnumAttribute(g->c, kind, value));
}

/* Everything a launch passes is loaded at entry: buffer addresses, dims, strides. */
static bool emit_entry(struct cg *g)
{
    struct lp_kernel *k = g->k;
    LLVMValueRef bufs = LLVMGetParam(g->fn, 0), dims = LLVMGetParam(g->fn, 1), none = LLVMMDNodeInContext(g->c, NULL, 0);
    g->bufs = ARENA_ARRAY(&g->arena, struct cg_buf, k->bufs.n);
    g->dims = ARENA_ARRAY(&g->arena, LLVMValueRef, k->dims.n);
    for (int i = 0; i < k->n_arg_bufs; i++) {
        LLVMValueRef at = cg_i64(g, i), p = LLVMBuildGEP2(g->b, g->ptr, bufs, &at, 1, "");
        g->bufs[i].base = LLVMBuildLoad2(g->b, g->ptr, p, "");
        LLVMSetMetadata(g->bufs[i].base, g->md_invariant, none);
        g->bufs[i].invariant = !k->bufs.v[i].writable;
    }
    for (size_t i = 0; i < k->dims.n; i++) {
        LLVMValueRef at = cg_i64(g, (int64_t)i), p = LLVMBuildGEP2(g->b, g->i64, dims, &at, 1, "");
        g->dims[i] = LLVMBuildLoad2(g->b, g->i64, p, "");
        LLVMSetMetadata(g->dims[i], g->md_invariant, none);
    }
    if (!place_stack(g, LLVMGetParam(g->fn, 4))) return false;
    for (size_t i = 0; i < k->bufs.n; i++) {
        g->bufs[i].strides = ARENA_ARRAY(&g->arena, LLVMValueRef, k->bufs.v[i].rank);
        for (int a = 0; a < k->bufs.v[i].rank; a++) g->bufs[i].strides[a] = stride_value(g, k->bufs.v[i].strides[a]);
    }
    alias_scopes(g);
    return true;
}

static void clear_aux(struct lp_block *b)
{
    for (int i = 0; i < b->n_args; i++) b->args[i]->aux = NULL;
    for (struct lp_op *op = b->first; op; op = op->next) {
        for (int i = 0; i < op->n_results; i++) op->results[i]->aux = NULL;
        for (int i = 0; i < op->n_regions; i++) clear_aux(op->regions[i]);
    }
}

/* The types and numbers that every emit_*.c file uses. */
static void init_types(struct cg *g)
{
    g->i1 = LLVMInt1TypeInContext(g->c);
    g->i8 = LLVMInt8TypeInContext(g->c);
    g->i16 = LLVMInt16TypeInContext(g->c);
    g->i32 = LLVMInt32TypeInContext(g->c);
    g->i64 = LLVMInt64TypeInContext(g->c);
    g->f32 = LLVMFloatTypeInContext(g->c);
    g->f64 = LLVMDoubleTypeInContext(g->c);
    g->ptr = LLVMPointerTypeInContext(g->c, 0);
    g->md_alias_scope = LLVMGetMDKindIDInContext(g->c, "alias.scope", 11);
    g->md_noalias = LLVMGetMDKindIDInContext(g->c, "noalias", 7);
    g->md_invariant = LLVMGetMDKindIDInContext(g->c, "invariant.load", 14);
}

bool cg_kernel(struct cg *g, const char *symbol)
{
    init_types(g);
    LLVMTypeRef params[5] = {g->ptr, g->ptr, g->i64, g->i64, g->ptr};
    g->fn = LLVMAddFunction(g->m, symbol, LLVMFunctionType(LLVMVoidTypeInContext(g->c), params, 5, 0));
    attribute(g, (unsigned)LLVMAttributeFunctionIndex, "nounwind", 0);
    attribute(g, 1, "noalias", 0);
    attribute(g, 2, "noalias", 0);
    g->entry = cg_block(g);
    LLVMPositionBuilderAtEnd(g->b, g->entry);
    if (!emit_entry(g)) return false;

    LLVMValueRef begin = LLVMGetParam(g->fn, 2), end = LLVMGetParam(g->fn, 3);
    LLVMBasicBlockRef pre = cg_block(g), head = cg_block(g), exit = cg_block(g);
    LLVMBuildCondBr(g->b, cg_icmp(g, LLVMIntSLT, begin, end), pre, exit);
    /* Depth 0 is the block behind the test, so that nothing hoisted runs for an empty share. */
    LLVMPositionBuilderAtEnd(g->b, pre);
    LLVMBuildBr(g->b, head);
    g->pre[g->depth = 1] = pre;
    LLVMPositionBuilderAtEnd(g->b, head);
    LLVMValueRef i = LLVMBuildPhi(g->b, g->i64, "");
    LLVMAddIncoming(i, &begin, &pre, 1);
    clear_aux(g->k->body);
    cg_set(g, g->k->body->args[0], 1)->rows[0] = i;
    if (!emit_block(g, g->k->body, NULL)) return false;
    LLVMValueRef next = LLVMBuildNSWAdd(g->b, i, cg_i64(g, 1), "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
    LLVMBuildCondBr(g->b, cg_icmp(g, LLVMIntSLT, next, end), head, exit);
    LLVMAddIncoming(i, &next, &latch, 1);
    LLVMPositionBuilderAtEnd(g->b, exit);
    LLVMBuildRetVoid(g->b);
    return true;
}
