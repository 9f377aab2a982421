// SPDX-License-Identifier: Apache-2.0
/*
 * Grouped tensor IR to a plan: storage for every value, a launch for every group.
 *
 * Storage. A reshape shares its operand's bytes. A value that a terminator hands out is written where it belongs (the
 * function's output, the `if`'s result); pass_group made sure that each has a writer of its own. Everything else lives in
 * the arena. Identical kernels (same canonical text on every level) are kept once.
 */
#include <string.h>

#include "passes/lower.h"
#include "passes/lower_group.h"

/* A part of a concat: where it lies in the whole. */
struct part {
    int buf;
    const struct dim *offset_bytes;
};

struct lowerer {
    struct ir_module *m;
    const struct target *t;
    unsigned isa_mask;
    struct diag_sink *diag;
    const struct knob_chooser *chooser; /* NULL: none */
    struct plan *p;
    struct map bufs;    /* ir_value id -> buffer + 1 */
    struct map parts;   /* ir_value id -> struct part */
    struct map kernels; /* canonical text of all levels -> kernel + 1 */
    struct map packed;  /* constant id and packing -> buffer + 1 */
};

static int find_buf(const struct lowerer *w, const struct ir_value *v)
{
    return (int)(intptr_t)map_find(&w->bufs, &v->id, sizeof v->id) - 1;
}

static void bind_buf(struct lowerer *w, const struct ir_value *v, int buf)
{
    map_put(&w->bufs, &v->id, sizeof v->id, (void *)(intptr_t)(buf + 1));
}

static int new_buf(struct lowerer *w, enum infr_buf_kind kind, const struct ir_type *t, const char *name)
{
    struct dim_ctx *dc = w->m->dims;
    struct plan_buf b = {.kind = kind, .dtype = t->dtype, .rank = t->rank, .dims = t->dims, .name = name,
                         .bytes = dim_mulc(dc, ir_type_elems(w->m, t), (int64_t)dtype_bytes(t->dtype))};
    vec_push(&w->p->arena, &w->p->bufs, b);
    return (int)w->p->bufs.n - 1;
}

static const struct ir_value *root_of(const struct ir_value *v)
{
    while (v->def && v->def->code == IR_OP_RESHAPE) v = ir_operand(v->def, 0);
    return v;
}

static int const_buf(struct lowerer *w, const struct ir_const *c, const struct plan_pack *pack)
{
    struct {
        uint32_t id;
        struct plan_pack pack;
    } key;
    memset(&key, 0, sizeof key);
    key.id = c->id;
    if (pack && pack->rank) {
        key.pack.rank = pack->rank, key.pack.in_rank = pack->in_rank, key.pack.winograd = pack->winograd;
        memcpy(key.pack.dims, pack->dims, sizeof pack->dims);
        memcpy(key.pack.in_axis, pack->in_axis, sizeof pack->in_axis);
        memcpy(key.pack.stride, pack->stride, sizeof pack->stride);
        memcpy(key.pack.in_dims, pack->in_dims, sizeof pack->in_dims);
    }
    int known = (int)(intptr_t)map_find(&w->packed, &key, sizeof key) - 1;
    if (known >= 0) return known;
    int buf = new_buf(w, INFR_BUF_CONST, &c->type, c->name);
    struct plan_buf *b = &w->p->bufs.v[buf];
    b->cst = c;
    b->pack = key.pack;
    if (key.pack.rank) {
        int64_t bytes = (int64_t)dtype_bytes(c->type.dtype);
        for (int i = 0; i < key.pack.rank; i++) bytes *= key.pack.dims[i];
        b->bytes = dim_const(w->m->dims, bytes);
    }
    map_put(&w->packed, &key, sizeof key, (void *)(intptr_t)(buf + 1));
    return buf;
}

/* Constant behind an operand, through reshapes. */
static const struct ir_const *const_of(const struct ir_value *v)
{
    const struct ir_value *r = root_of(v);
    return r->def && r->def->code == IR_OP_CONSTANT ? ir_attr_const(r->def, "value") : NULL;
}

/* The buffer an operand is read from. */
static int operand_buf(struct lowerer *w, const struct ir_value *v, const struct plan_pack *pack)
{
    const struct ir_const *c = const_of(v);
    if (c) return const_buf(w, c, pack);
    int buf = find_buf(w, root_of(v));
    INFC_ASSERT(buf >= 0);
    return buf;
}

/* Number of a kernel equal on all levels, or of this one, which is kept. */
static int intern_kernel(struct lowerer *w, struct plan_kernel *k)
{
    struct strbuf text = {0};
    for (int l = 0; l < INFR_ISA_COUNT; l++)
        if (k->levels[l]) {
            strbuf_printf(&text, "level %d\n", l);
            lp_print(&text, k->levels[l], true);
        }
    int known = (int)(intptr_t)map_find(&w->kernels, text.data, text.len) - 1;
    if (known < 0) {
        known = (int)w->p->kernels.n;
        k->hash = hash_bytes(text.data, text.len, 0);
        vec_push(&w->p->arena, &w->p->kernels, *k);
        map_put(&w->kernels, text.data, text.len, (void *)(intptr_t)(known + 1));
    } else {
        for (int l = 0; l < INFR_ISA_COUNT; l++)
            if (k->levels[l]) lp_kernel_destroy(k->levels[l]);
    }
    strbuf_deinit(&text);
    return known;
}

/* The operand whose memory result 0 of a group is: the state of a kv_write, else -1. */
static int state_operand(const struct ir_op *group)
{
    for (const struct ir_op *op = group->regions[0]->first; op; op = op->next) {
        if (!(ir_op_traits(op) & IR_T_STATE)) continue;
        const struct ir_value *state = ir_operand(op, 0);
        INFC_ASSERT(!state->def && state->block == group->regions[0]);
        return state->index;
    }
    return -1;
}

/* Is only a part of this operand read, as many elements as there are results? */
static bool is_gathered(const struct ir_op *group, int operand)
{
    for (const struct ir_use *u = group->regions[0]->args[operand]->uses; u; u = u->next)
        if (u->user->code == IR_OP_GATHER || u->user->code == IR_OP_QGATHER) return true;
    return false;
}

/* What the launch reads and writes once: its buffers, without caches that live across calls, of which it sees some pages. */
static const struct dim *launch_bytes(struct lowerer *w, const struct ir_op *group, const struct plan_launch *l, int n)
{
    const struct dim *sum = dim_const(w->m->dims, 0), *result = w->p->bufs.v[l->args[n - 1].buf].bytes;
    for (int i = 0; i < l->n_args; i++) {
        const struct plan_buf *b = &w->p->bufs.v[l->args[i].buf];
        bool seen = b->kind == INFR_BUF_INPUT && w->m->funcs.v[0]->input_state[b->io];
        for (int k = 0; k < i; k++) seen = seen || l->args[k].buf == l->args[i].buf;
        if (!seen) sum = dim_add(w->m->dims, sum, i < group->n_operands && is_gathered(group, i) ? result : b->bytes);
    }
    return sum;
}

/* The kernel of one level; lowered once more when the chooser wants other knobs than the cost model. */
static struct lp_kernel *lower_level(struct lowerer *w, struct ir_op *group, const struct target_level *lv, const struct lp_kernel *like,
                                     const struct ir_const **consts, struct plan_pack *packs)
{
    struct knob_uses uses = {0}, again = {0};
    struct lp_kernel *k = lower_group(w->m, group, lv, like, consts, packs, w->chooser ? &uses : NULL, w->diag);
    if (!k || !uses.n || !w->chooser->choose(w->chooser->context, lv, k, &uses, &again.given)) return k;
    lp_kernel_destroy(k);
    return lower_group(w->m, group, lv, like, consts, packs, &again, w->diag);
}

/* args with the kernel's scratch memory behind them; what the chain's kernels before had of it is theirs, too. */
static struct plan_arg *with_scratch(struct lowerer *w, const struct lp_kernel *lp, struct plan_arg *args, int n, int *n_args)
{
    struct plan_arg *all = ARENA_ARRAY(&w->p->arena, struct plan_arg, lp->n_arg_bufs > *n_args ? lp->n_arg_bufs : *n_args);
    memcpy(all, args, sizeof *all * (size_t)*n_args);
    for (; *n_args < lp->n_arg_bufs; (*n_args)++) {
        const struct lp_buf *b = &lp->bufs.v[*n_args];
        struct ir_type t = {.dtype = b->dtype, .rank = b->rank, .dims = arena_dup(&w->p->arena, b->dims, (size_t)b->rank * sizeof *b->dims)};
        INFC_ASSERT(*n_args >= n);
        all[*n_args] = (struct plan_arg){0};
        all[*n_args].buf = new_buf(w, INFR_BUF_ARENA, &t, arena_strdup(&w->p->arena, b->name));
    }
    return all;
}

/* How the kernel cuts its buffers into slices' parts, where it is the same on all levels. Parts of a scratch buffer are nobody else's business. */
static void set_cuts(const struct plan_kernel *k, const struct lp_kernel *like, struct plan_arg *args, int n)
{
    for (int i = 0; i < n; i++) {
        const char *cut = like->bufs.v[i].cut;
        for (int l = 0; cut && l < INFR_ISA_COUNT; l++)
            if (k->levels[l] && (!k->levels[l]->bufs.v[i].cut || strcmp(k->levels[l]->bufs.v[i].cut, cut))) cut = NULL;
        args[i].cut = cut;
    }
}

/* The launch of a kernel, and those of the kernels that are chained behind it: as many on every level. */
static void add_launch(struct lowerer *w, const struct ir_op *group, struct plan_launch *launch, struct plan_kernel *k, const struct lp_kernel *like,
                       struct plan_arg *args, int n, struct plan_block *out)
{
    struct arena *a = &w->p->arena;
    for (int n_args = n; like;) {
        struct lp_kernel *then[INFR_ISA_COUNT] = {0}, *next_like = like->then;
        for (int l = 0; l < INFR_ISA_COUNT; l++)
            if (k->levels[l]) then[l] = k->levels[l]->then, k->levels[l]->then = NULL;
        args = with_scratch(w, like, args, n, &n_args);
        k->name = arena_strdup(a, like->name);
        k->schedule = arena_strdup(a, like->schedule);
        launch->n_dims = (int)like->dims.n;
        launch->dims = arena_dup(a, like->dims.v, like->dims.n * sizeof *launch->dims);
        launch->claim = like->claim;
        launch->flops = like->flops, launch->bytes = like->bytes;
        launch->loc = arena_strdup(a, like->loc);
        launch->n_args = like->n_arg_bufs;
        launch->n_read = group->n_operands;
        launch->args = args = arena_dup(a, args, (size_t)n_args * sizeof *args);
        set_cuts(k, like, args, n);
        if (!launch->bytes) launch->bytes = launch_bytes(w, group, launch, n);
        launch->kernel = intern_kernel(w, k);
        struct plan_step s = {.kind = INFR_STEP_LAUNCH, .launch = launch};
        vec_push(a, &out->steps, s);
        if (!next_like) return;
        struct plan_launch *next = ARENA_NEW(a, struct plan_launch);
        for (int l = 0; l < INFR_ISA_COUNT; l++)
            if (k->levels[l]) k->levels[l] = then[l], next->slices[l] = then[l]->slices;
        launch = next, like = next_like;
    }
}

static bool lower_launch(struct lowerer *w, struct ir_op *group, struct plan_block *out)
{
    struct arena *a = &w->p->arena;
    int n_in = group->n_operands, n = n_in + group->n_results;
    struct plan_pack *packs = ARENA_ARRAY(a, struct plan_pack, n_in);
    const struct ir_const **consts = ARENA_ARRAY(a, const struct ir_const *, n_in);
    for (int i = 0; i < n_in; i++) {
        const struct ir_value *v = ir_operand(group, i);
        const struct ir_const *c = const_of(v);
        /* packing reads the constant by its own axes: only when no reshape lies between */
        if (c && v->def->code == IR_OP_CONSTANT && !c->splat) consts[i] = c;
    }
    struct plan_kernel k = {0};
    struct plan_launch *launch = ARENA_NEW(a, struct plan_launch);
    const struct lp_kernel *like = NULL;
    bool ok = true;
    for (int i = 0; ok && i < w->t->n_levels; i++) {
        const struct target_level *lv = &w->t->levels[i];
        if (!(w->isa_mask >> lv->isa & 1)) continue;
        struct lp_kernel *lp = lower_level(w, group, lv, like, consts, packs);
        k.levels[lv->isa] = lp;
        ok = lp != NULL;
        if (!ok) break;
        launch->slices[lv->isa] = lp->slices;
        like = lp;
    }
    if (!ok || !like) {
        for (int l = 0; l < INFR_ISA_COUNT; l++)
            if (k.levels[l]) lp_kernel_destroy(k.levels[l]);
        for (int i = 0; i < group->n_results; i++) /* go on, so that every group without a lowering is reported */
            if (find_buf(w, &group->results[i]) < 0)
                bind_buf(w, &group->results[i], new_buf(w, INFR_BUF_ARENA, &group->results[i].type, NULL));
        return false;
    }
    struct plan_arg *args = ARENA_ARRAY(a, struct plan_arg, n);
    for (int i = 0; i < n_in; i++) args[i].buf = operand_buf(w, ir_operand(group, i), &packs[i]);
    int state = state_operand(group);
    if (state >= 0) bind_buf(w, &group->results[0], args[state].buf);
    for (int i = 0; i < group->n_results; i++) {
        struct ir_value *r = &group->results[i];
        const struct part *part = map_find(&w->parts, &r->id, sizeof r->id);
        if (part) {
            args[n_in + i] = (struct plan_arg){.buf = part->buf, .offset_bytes = part->offset_bytes};
            continue;
        }
        int buf = find_buf(w, r);
        if (buf < 0) bind_buf(w, r, buf = new_buf(w, INFR_BUF_ARENA, &r->type, r->name));
        args[n_in + i].buf = buf;
    }
    add_launch(w, group, launch, &k, like, args, n, out);
    return true;
}

static bool lower_block(struct lowerer *w, struct ir_block *b, const int *result_bufs, struct plan_block *out);

static bool lower_if(struct lowerer *w, struct ir_op *op, struct plan_block *out)
{
    struct arena *a = &w->p->arena;
    int *bufs = ARENA_ARRAY(a, int, op->n_results);
    for (int i = 0; i < op->n_results; i++) {
        struct ir_value *r = &op->results[i];
        bufs[i] = find_buf(w, r);
        if (bufs[i] < 0) bind_buf(w, r, bufs[i] = new_buf(w, INFR_BUF_ARENA, &r->type, r->name));
    }
    struct plan_step s = {.kind = INFR_STEP_IF, .cond_buf = operand_buf(w, ir_operand(op, 0), NULL),
                          .then_block = ARENA_NEW(a, struct plan_block), .else_block = ARENA_NEW(a, struct plan_block)};
    bool ok = lower_block(w, op->regions[0], bufs, s.then_block);
    ok = lower_block(w, op->regions[1], bufs, s.else_block) && ok;
    vec_push(a, &out->steps, s);
    return ok;
}

/* What only a branch needs is checked when it is taken, before all else: no kernel runs on a shape that its branch does not fit. */
static void lower_check(struct lowerer *w, const struct ir_op *op, struct plan_block *out)
{
    int n;
    struct plan_step s = {.kind = INFR_STEP_CHECK,
                          .check = {.a = ir_attr_dims(op, "a", &n)[0], .b = ir_attr_dims(op, "b", &n)[0],
                                    .is_le = ir_attr_int(op, "is_le", 0), .message = ir_attr_string(op, "message", "")}};
    vec_push(&w->p->arena, &out->steps, s);
}

static bool has_arg(const struct plan_launch *l, int buf)
{
    for (int i = 0; i < l->n_args; i++)
        if (l->args[i].buf == buf) return true;
    return false;
}

/* Right behind the launch that makes the value, so that all that reads it comes later. */
static bool lower_probe(struct lowerer *w, const struct ir_op *op, int number, struct plan_block *out)
{
    int buf = find_buf(w, root_of(ir_operand(op, 0)));
    size_t at = 0;
    if (buf >= 0 && w->p->bufs.v[buf].kind == INFR_BUF_ARENA)
        while (at < out->steps.n && !(out->steps.v[at].kind == INFR_STEP_LAUNCH && has_arg(out->steps.v[at].launch, buf))) at++;
    else
        at = out->steps.n;
    if (at == out->steps.n) return diag_report(w->diag, DIAG_NO_LOWERING, op->loc ? op->loc->text : NULL, "no kernel makes what a probe looks at");
    struct plan_step s = {.kind = INFR_STEP_PROBE, .cond_buf = buf, .probe = number, .base = (int)ir_attr_int(op, "base", -1)};
    vec_push(&w->p->arena, &out->steps, s);
    memmove(&out->steps.v[at + 2], &out->steps.v[at + 1], (out->steps.n - at - 2) * sizeof s);
    out->steps.v[at + 1] = s;
    return true;
}

static bool is_in_place(const struct ir_op *op) { return op->code == IR_OP_GROUP && ir_attr_int(op, "x_in_place", 0); }

/* The operands of a concat that has no kernel lie in its result one behind the other, as blocks or as columns. */
static void place_parts(struct lowerer *w, const struct ir_op *group)
{
    struct dim_ctx *dc = w->m->dims;
    const struct ir_value *whole = &group->results[0];
    const struct ir_op *concat = group->regions[0]->first;
    int axis = (int)ir_attr_int(concat, "axis", 0);
    const struct dim *at = dim_const(dc, 0), *step = dim_const(dc, (int64_t)dtype_bytes(whole->type.dtype));
    for (int i = axis + 1; i < whole->type.rank; i++) step = dim_mul(dc, step, whole->type.dims[i]);
    int buf = find_buf(w, root_of(whole));
    if (buf < 0) bind_buf(w, whole, buf = new_buf(w, INFR_BUF_ARENA, &whole->type, whole->name));
    for (int i = 0; i < group->n_operands; i++) {
        const struct ir_value *v = ir_operand(group, i);
        struct part *p = ARENA_NEW(&w->p->arena, struct part);
        *p = (struct part){buf, dim_is(at, 0) ? NULL : dim_mul(dc, at, step)};
        map_put(&w->parts, &v->id, sizeof v->id, p);
        at = dim_add(dc, at, v->type.dims[axis]);
    }
}

static bool lower_block(struct lowerer *w, struct ir_block *b, const int *result_bufs, struct plan_block *out)
{
    int probes = 0;
    for (int i = 0; i < b->last->n_operands; i++) bind_buf(w, root_of(ir_operand(b->last, i)), result_bufs[i]);
    bool ok = true;
    for (struct ir_op *op = b->first; op; op = op->next) {
        if (op->code == IR_OP_CHECK) lower_check(w, op, out);
        if (is_in_place(op)) place_parts(w, op);
    }
    for (struct ir_op *op = b->first; op; op = op->next) {
        if (is_in_place(op)) continue;
        if (op->code == IR_OP_GROUP) ok = lower_launch(w, op, out) && ok;
        else if (op->code == IR_OP_IF) ok = lower_if(w, op, out) && ok;
        else if (op->code == IR_OP_PROBE) ok = lower_probe(w, op, probes++, out) && ok;
    }
    return ok;
}

struct plan *lower_module(struct ir_module *m, const struct target *t, unsigned isa_mask, struct diag_sink *diag)
{
    return lower_module_tuned(m, t, isa_mask, NULL, diag);
}

struct plan *lower_module_tuned(struct ir_module *m, const struct target *t, unsigned isa_mask, const struct knob_chooser *chooser,
                                struct diag_sink *diag)
{
    struct lowerer w = {.m = m, .t = t, .isa_mask = isa_mask, .diag = diag, .chooser = chooser, .p = plan_create(m)};
    struct arena *a = &w.p->arena;
    map_init(&w.bufs, a);
    map_init(&w.parts, a);
    map_init(&w.kernels, a);
    map_init(&w.packed, a);
    struct ir_func *f = m->funcs.v[0];
    w.p->input_bufs = ARENA_ARRAY(a, int, f->n_inputs);
    w.p->output_bufs = ARENA_ARRAY(a, int, f->n_outputs);
    for (int i = 0; i < f->n_inputs; i++) {
        struct ir_value *v = f->body->args[i];
        int buf = w.p->input_bufs[i] = new_buf(&w, INFR_BUF_INPUT, &v->type, f->input_names[i]);
        w.p->bufs.v[buf].io = i;
        bind_buf(&w, v, buf);
    }
    for (int i = 0; i < f->n_outputs; i++) {
        int buf = w.p->output_bufs[i] = new_buf(&w, INFR_BUF_OUTPUT, &ir_operand(f->body->last, i)->type, f->output_names[i]);
        w.p->bufs.v[buf].io = i;
    }
    if (!lower_block(&w, f->body, w.p->output_bufs, w.p->entry)) {
        plan_destroy(w.p);
        return NULL;
    }
    plan_lifetimes(w.p);
    return w.p;
}
