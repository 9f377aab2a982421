// SPDX-License-Identifier: Apache-2.0
#include "ir/plan_eval.h"

#include <string.h>

struct plan_run {
    const struct plan *p;
    enum infr_isa level;
    struct arena *arena;
    struct diag_sink *diag;
    void **bufs;
    unsigned char **ends; /* of buffers that the evaluator owns */
    int64_t *syms;
};

/* Binds every symbol that is an input's dim; others keep their lower bound. */
static void bind_symbols(struct plan_run *r, const struct ir_tensor *inputs)
{
    const struct ir_module *m = r->p->module;
    const struct ir_func *f = m->funcs.v[0];
    size_t n = dim_sym_count(m->dims);
    r->syms = ARENA_ARRAY(r->arena, int64_t, n);
    for (size_t s = 0; s < n; s++) {
        const struct dim *d = dim_sym_at(m->dims, s);
        r->syms[s] = d->lo;
        for (int i = 0; i < f->n_inputs; i++)
            for (int a = 0; a < inputs[i].rank; a++)
                if (f->body->args[i]->type.dims[a] == d) r->syms[s] = inputs[i].dims[a];
    }
}

/* Gives the symbols of a kernel's dim the values of the launch's, which is the same expression of other symbols. */
static bool bind_dim(const struct plan_run *r, const struct dim *kernel, const struct dim *launch, int64_t *syms)
{
    const struct dim_ctx *dims = r->p->module->dims;
    if (kernel->kind == DIM_SYM) {
        size_t s = 0;
        while (dim_sym_at(dims, s) != kernel) s++;
        return dim_eval(dims, launch, r->syms, &syms[s]);
    }
    if (kernel->kind != launch->kind || kernel->n_terms != launch->n_terms) return false;
    for (int t = 0; kernel->kind == DIM_POLY && t < kernel->n_terms; t++) {
        if (kernel->terms[t].n_atoms != launch->terms[t].n_atoms) return false;
        for (int i = 0; i < kernel->terms[t].n_atoms; i++)
            if (!bind_dim(r, kernel->terms[t].atoms[i], launch->terms[t].atoms[i], syms)) return false;
    }
    return (!kernel->a || bind_dim(r, kernel->a, launch->a, syms)) && (!kernel->b || bind_dim(r, kernel->b, launch->b, syms));
}

/*
 * Values of the symbols that a kernel names: launches share kernels that differ in nothing but the names of symbols, and an
 * engine passes the launch's dims, which begin with the kernel's. NULL if they do not.
 */
static int64_t *kernel_syms(const struct plan_run *r, const struct plan_launch *l, const struct lp_kernel *k)
{
    const struct dim_ctx *dims = r->p->module->dims;
    int64_t *syms = ARENA_ARRAY(r->arena, int64_t, dim_sym_count(dims)), a, b;
    memcpy(syms, r->syms, dim_sym_count(dims) * sizeof *syms);
    if ((size_t)l->n_dims < k->dims.n || !bind_dim(r, k->slices, l->slices[r->level], syms)) return NULL;
    for (size_t i = 0; i < k->dims.n; i++)
        if (!bind_dim(r, k->dims.v[i], l->dims[i], syms)) return NULL;
    for (size_t i = 0; i < k->dims.n; i++)
        if (!dim_eval(dims, k->dims.v[i], syms, &a) || !dim_eval(dims, l->dims[i], r->syms, &b) || a != b) return NULL;
    return syms;
}

/* Every buffer ends in bytes that no kernel may write: a kernel sees less of a buffer than the plan says, or the same. */
enum { GUARD = 64, GUARD_BYTE = 0xa5 };

static void *guarded_buffer(struct arena *arena, size_t bytes)
{
    unsigned char *p = arena_alloc(arena, bytes + GUARD);
    memset(p + bytes, GUARD_BYTE, GUARD);
    return p;
}

static bool guards_whole(const struct plan_run *r, const struct plan_launch *l)
{
    for (size_t i = 0; i < r->p->bufs.n; i++)
        for (int b = 0; r->ends[i] && b < GUARD; b++)
            if (r->ends[i][b] != GUARD_BYTE)
                return diag_report(r->diag, DIAG_IR_VERIFY, l->loc, "a kernel (%s) wrote past the end of buffer %zu",
                                   r->p->kernels.v[l->kernel].levels[r->level]->name, i);
    return true;
}

static bool run_block(struct plan_run *r, const struct plan_block *b)
{
    for (size_t i = 0; i < b->steps.n; i++) {
        const struct plan_step *s = &b->steps.v[i];
        if (s->kind == INFR_STEP_IF) {
            bool taken = *(const unsigned char *)r->bufs[s->cond_buf] != 0;
            if (!run_block(r, taken ? s->then_block : s->else_block)) return false;
            continue;
        }
        if (s->kind == INFR_STEP_PROBE) continue;
        if (s->kind == INFR_STEP_CHECK) {
            int64_t x, y;
            const struct ir_check *c = &s->check;
            if (!dim_eval(r->p->module->dims, c->a, r->syms, &x) || !dim_eval(r->p->module->dims, c->b, r->syms, &y) ||
                (c->is_le ? x > y : x != y))
                return diag_report(r->diag, DIAG_SHAPE_MISMATCH, NULL, "%s", c->message);
            continue;
        }
        const struct plan_launch *l = s->launch;
        struct lp_kernel *k = r->p->kernels.v[l->kernel].levels[r->level];
        if (!k) return diag_report(r->diag, DIAG_NO_LOWERING, l->loc, "a library op cannot run in the plan evaluator");
        void **args = ARENA_ARRAY(r->arena, void *, l->n_args);
        for (int a = 0; a < l->n_args; a++) {
            int64_t offset = 0;
            if (l->args[a].offset_bytes && !dim_eval(r->p->module->dims, l->args[a].offset_bytes, r->syms, &offset))
                return diag_report(r->diag, DIAG_SHAPE_MISMATCH, NULL, "an argument's offset overflows");
            args[a] = (char *)r->bufs[l->args[a].buf] + offset;
        }
        const int64_t *syms = kernel_syms(r, l, k);
        if (!syms) return diag_report(r->diag, DIAG_IR_VERIFY, l->loc, "kernel %s is launched with dims of another", k->name);
        if (!lp_eval(k, args, syms, r->diag) || !guards_whole(r, l)) return false;
    }
    return true;
}

bool plan_eval(const struct plan *p, enum infr_isa level, const struct ir_tensor *inputs, struct ir_tensor *outputs,
               void (*read_const)(const struct plan_buf *b, void *dst, size_t n_bytes), struct arena *arena,
               struct diag_sink *diag)
{
    struct plan_run r = {.p = p, .level = level, .arena = arena, .diag = diag, .bufs = ARENA_ARRAY(arena, void *, p->bufs.n),
                         .ends = ARENA_ARRAY(arena, unsigned char *, p->bufs.n)};
    bind_symbols(&r, inputs);
    for (size_t i = 0; i < p->bufs.n; i++) {
        const struct plan_buf *b = &p->bufs.v[i];
        int64_t bytes;
        if (b->kind == INFR_BUF_INPUT) {
            r.bufs[i] = inputs[b->io].data;
            continue;
        }
        if (!dim_eval(p->module->dims, b->bytes, r.syms, &bytes))
            return diag_report(diag, DIAG_SHAPE_MISMATCH, NULL, "a buffer's size overflows");
        r.bufs[i] = guarded_buffer(arena, (size_t)bytes);
        r.ends[i] = (unsigned char *)r.bufs[i] + bytes;
        if (b->kind == INFR_BUF_CONST) read_const(b, r.bufs[i], (size_t)bytes);
        if (b->kind != INFR_BUF_OUTPUT) continue;
        struct ir_tensor *t = &outputs[b->io];
        *t = (struct ir_tensor){.dtype = b->dtype, .rank = b->rank, .data = r.bufs[i], .n_bytes = (size_t)bytes};
        for (int k = 0; k < b->rank; k++) dim_eval(p->module->dims, b->dims[k], r.syms, &t->dims[k]);
    }
    return run_block(&r, p->entry);
}
