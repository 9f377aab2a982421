// SPDX-License-Identifier: Apache-2.0
#include "passes/group.h"

#include <string.h>

#include "ir/build.h"
#include "ir/op.h"
#include "passes/attention.h"
#include "passes/depthwise.h"

#define WINDOW 64       /* ops looked at when a group grows forward */
#define MAX_OPS 96      /* a group's size */

/* One group while it forms. ops are in block order. */
struct cluster {
    VEC(struct ir_op *) ops;
    struct ir_op *anchor;   /* the op that is neither pointwise nor moving, or NULL */
    struct ir_value *root;  /* the one value used outside; NULL for several results */
    bool dead;              /* absorbed by another */
    bool whole;             /* attention: takes nothing in */
};

struct grouper {
    struct ir_module *m;
    struct arena scratch;
    VEC(struct cluster *) clusters;
};

static bool is_leaf(const struct ir_op *op) /* never in a cluster */
{
    switch (op->code) {
    case IR_OP_CONSTANT: case IR_OP_RESHAPE: case IR_OP_IF: case IR_OP_RETURN: case IR_OP_YIELD: case IR_OP_GROUP:
    case IR_OP_CHECK: case IR_OP_PROBE:
        return true;
    default: return false;
    }
}

/* Cloned into every group that reads it: costs only index arithmetic. */
static bool is_clonable(const struct ir_op *op)
{
    if (op->code == IR_OP_IOTA || op->code == IR_OP_DIMVEC || op->code == IR_OP_BROADCAST) return true;
    if (op->code != IR_OP_CONSTANT) return false;
    const struct ir_const *c = ir_attr_const(op, "value");
    int64_t n;
    return c->type.dtype != DT_STRING && (c->splat || (ir_type_static_elems(&c->type, &n) && n == 1));
}

static bool is_pure(const struct ir_op *op) { return (ir_op_traits(op) & (IR_T_PW | IR_T_MOVE)) != 0 || op->code == IR_OP_IOTA || op->code == IR_OP_DIMVEC; }

static bool same_dims(const struct ir_type *a, const struct ir_type *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

static struct cluster *cluster_of(const struct ir_op *op) { return op ? op->aux : NULL; }

static struct cluster *cluster_new(struct grouper *g, struct ir_op *op)
{
    struct cluster *c = ARENA_NEW(&g->scratch, struct cluster);
    vec_push(&g->scratch, &c->ops, op);
    op->aux = c;
    if (!is_pure(op)) c->anchor = op;
    bool one = op->n_results == 1 || (op->code == IR_OP_POOL_MAX && !op->results[1].uses);
    c->root = one ? &op->results[0] : NULL;
    vec_push(&g->scratch, &g->clusters, c);
    return c;
}

/* ---- forward ---- */

static bool in_list(struct ir_op *const *ops, size_t n, const struct ir_op *op)
{
    for (size_t i = 0; i < n; i++)
        if (ops[i] == op) return true;
    return false;
}

/* All uses of v are by ops in the list. */
static bool uses_within(const struct ir_value *v, struct ir_op *const *ops, size_t n)
{
    for (const struct ir_use *u = v->uses; u; u = u->next)
        if (!in_list(ops, n, u->user)) return false;
    return true;
}

static bool closes(const struct cluster *c, struct ir_op *const *ops, size_t n)
{
    if (!uses_within(c->root, ops, n)) return false;
    for (size_t i = 0; i + 1 < n; i++)
        if (!uses_within(&ops[i]->results[0], ops, n)) return false;
    return true;
}

/* Adds the smallest run of following pointwise ops after which one value is used outside; false when there is none. */
static bool grow(struct grouper *g, struct cluster *c)
{
    if (!c->root || !c->root->uses || c->ops.n >= MAX_OPS) return false;
    if (c->anchor && (ir_op_traits(c->anchor) & IR_T_LIB)) return false; /* works on its result while making it */
    struct ir_op *run[WINDOW], *op = c->ops.v[c->ops.n - 1]->next;
    size_t n = 0;
    for (int steps = 0; op && steps < 4 * WINDOW && n < WINDOW; op = op->next, steps++) {
        if (!(ir_op_traits(op) & IR_T_PW) || cluster_of(op) || !same_dims(&op->results[0].type, &c->root->type)) continue;
        bool uses = false;
        for (int i = 0; i < op->n_operands; i++) {
            struct ir_value *v = ir_operand(op, i);
            uses = uses || v == c->root || (v && v->def && in_list(run, n, v->def));
        }
        if (!uses) continue;
        run[n++] = op;
        if (!closes(c, run, n)) continue;
        for (size_t i = 0; i < n; i++) {
            run[i]->aux = c;
            vec_push(&g->scratch, &c->ops, run[i]);
        }
        c->root = &run[n - 1]->results[0];
        return true;
    }
    return false;
}

/* ---- backward ---- */

static bool all_pointwise(const struct cluster *c)
{
    for (size_t i = 0; i < c->ops.n; i++)
        if (!(ir_op_traits(c->ops.v[i]) & IR_T_PW)) return false;
    return true;
}

/* A little arithmetic on iota and sizes, no memory: cheaper computed again than read. */
static bool is_index_math(const struct cluster *p)
{
    if (p->ops.n > 6) return false;
    for (size_t i = 0; i < p->ops.n; i++) {
        const struct ir_op *op = p->ops.v[i];
        if (!(ir_op_traits(op) & IR_T_PW)) return false;
        for (int k = 0; k < op->n_operands; k++) {
            const struct ir_op *d = ir_operand(op, k) ? ir_operand(op, k)->def : NULL;
            if (!d || !(cluster_of(d) == p || (is_clonable(d) && d->code != IR_OP_BROADCAST))) return false;
        }
    }
    return true;
}

/* May the pure cluster p be inlined where `user` (of cluster c) reads its root? */
static bool may_inline(const struct cluster *p, const struct cluster *c, const struct ir_op *user)
{
    if (p == c || c->whole || p->anchor || c->ops.n + p->ops.n > MAX_OPS) return false;
    unsigned t = ir_op_traits(user);
    bool same = (t & IR_T_PW) && same_dims(&p->root->type, &user->results[0].type);
    bool row = user->code == IR_OP_SOFTMAX || user->code == IR_OP_LOG_SOFTMAX || user->code == IR_OP_LAYER_NORM ||
               user->code == IR_OP_RMS_NORM;
    if (row && ir_operand(user, 0) == p->root) return all_pointwise(p); /* passes/lower_rows.c reads the row again */
    if (c->anchor && (ir_op_traits(c->anchor) & IR_T_ANCHOR)) return same && all_pointwise(p);
    if (same) return true;
    if (t & IR_T_RED) return user->code != IR_OP_ARG_MAX && user->code != IR_OP_ARG_MIN;
    if (user->code == IR_OP_GATHER && ir_operand(user, 1) == p->root && ir_operand(user, 0) != p->root) return is_index_math(p);
    /* data operand of a moving op: read at most once an element, but for gathers (which may repeat: cheap p only) */
    if ((t & IR_T_MOVE) && ir_operand(user, 0) == p->root) return user->code != IR_OP_BROADCAST;
    return (t & IR_T_MOVE) && user->code == IR_OP_CONCAT;
}

static void absorb(struct grouper *g, struct cluster *c, struct cluster *p)
{
    VEC(struct ir_op *) merged = {0};
    for (size_t i = 0; i < p->ops.n; i++) { /* p's ops come before c's: none of c is needed by p */
        p->ops.v[i]->aux = c;
        vec_push(&g->scratch, &merged, p->ops.v[i]);
    }
    for (size_t i = 0; i < c->ops.n; i++) vec_push(&g->scratch, &merged, c->ops.v[i]);
    c->ops.v = merged.v, c->ops.n = merged.n, c->ops.cap = merged.cap;
    p->dead = true;
}

static void absorb_producers(struct grouper *g, struct cluster *c)
{
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < c->ops.n && !again; i++) {
            struct ir_op *op = c->ops.v[i];
            for (int k = 0; k < op->n_operands && !again; k++) {
                struct ir_value *v = ir_operand(op, k);
                struct cluster *p = v && v->def && v->def->block == op->block ? cluster_of(v->def) : NULL;
                if (!p || p->dead || p->root != v || !ir_value_has_one_use(v) || !may_inline(p, c, op)) continue;
                absorb(g, c, p);
                again = true;
            }
        }
    }
}

/* ---- making the group ops ---- */

struct outliner {
    struct grouper *g;
    struct ir_op *group;
    struct ir_block *body;
    VEC(struct ir_value *) captured;
    struct cluster *c;
    struct map clones; /* ir_value id -> clone in the body */
};

static struct ir_value *capture(struct outliner *o, struct ir_value *v, bool clone_ok)
{
    if (v->def && cluster_of(v->def) == o->c && v->def->block == o->body) return v;
    struct ir_value *known = map_find(&o->clones, &v->id, sizeof v->id);
    if (known) return known;
    struct ir_value *inner;
    if (clone_ok && v->def && is_clonable(v->def)) {
        struct ir_op *d = v->def;
        struct ir_value *operands[4];
        for (int i = 0; i < d->n_operands; i++) operands[i] = capture(o, ir_operand(d, i), true);
        struct ir_op *copy = ir_op_create(o->g->m, d->code, d->n_operands, operands, 1, d->loc);
        for (int i = 0; i < d->n_attrs; i++) ir_op_set_attr(o->g->m, copy, d->attrs[i]);
        copy->results[0].type = v->type;
        copy->results[0].name = v->name;
        copy->aux = o->c;
        ir_block_append(o->body, copy);
        inner = &copy->results[0];
    } else {
        vec_push(&o->g->scratch, &o->captured, v);
        inner = ir_block_add_arg(o->g->m, o->body, v->type, v->name);
    }
    map_put(&o->clones, &v->id, sizeof v->id, inner);
    return inner;
}

/* Replaces uses of v outside the group's body. */
static void replace_outside(struct ir_value *v, struct ir_value *with, const struct ir_block *body)
{
    for (struct ir_use *u = v->uses, *next; u; u = next) {
        next = u->next;
        if (u->user->block != body) ir_op_set_operand(u->user, (int)(u - u->user->operands), with);
    }
}

static void outline(struct grouper *g, struct cluster *c)
{
    struct ir_module *m = g->m;
    struct ir_op *last = c->ops.v[c->ops.n - 1];
    int n_results = c->root ? 1 : last->n_results;
    struct outliner o = {.g = g, .c = c};
    map_init(&o.clones, &g->scratch);
    const struct ir_loc *loc = NULL;
    for (size_t i = 0; i < c->ops.n; i++) loc = ir_loc_join(m, loc, c->ops.v[i]->loc);
    struct ir_block *parent = last->block;
    o.body = ir_block_create(m, parent->func, NULL);
    struct ir_op *position = last->next; /* a terminator at least follows */
    for (size_t i = 0; i < c->ops.n; i++) {
        struct ir_op *op = c->ops.v[i];
        bool clone_ok = is_pure(op) || (ir_op_traits(op) & IR_T_RED);
        struct ir_value *inner[64];
        INFC_ASSERT(op->n_operands <= 64 || op->code == IR_OP_CONCAT);
        int n = op->n_operands;
        struct ir_value **list = n <= 64 ? inner : ARENA_ARRAY(&g->scratch, struct ir_value *, n);
        for (int k = 0; k < n; k++) list[k] = ir_operand(op, k) ? capture(&o, ir_operand(op, k), clone_ok) : NULL;
        for (int k = 0; k < n; k++)
            if (list[k]) ir_op_set_operand(op, k, list[k]);
        ir_op_unlink(op);
        ir_block_append(o.body, op);
    }
    struct ir_op *group = ir_op_create(m, IR_OP_GROUP, (int)o.captured.n, o.captured.v, n_results, loc);
    ir_op_add_region(m, group, o.body);
    struct ir_value *yields[8];
    INFC_ASSERT(n_results <= 8);
    for (int i = 0; i < n_results; i++) yields[i] = c->root ? c->root : &last->results[i];
    struct ir_op *yield = ir_op_create(m, IR_OP_YIELD, n_results, yields, 0, loc);
    ir_block_append(o.body, yield);
    for (int i = 0; i < n_results; i++) {
        group->results[i].type = yields[i]->type;
        group->results[i].name = yields[i]->name;
        replace_outside(yields[i], &group->results[i], o.body);
    }
    if (position) ir_block_insert_before(position, group);
    else ir_block_append(parent, group);
    group->aux = NULL;
}

/* Which op of this block writes v's bytes: through reshapes; NULL when it comes from outside or is a constant. */
static struct ir_op *writer_in(const struct ir_value *v, const struct ir_block *b)
{
    while (v->def && v->def->code == IR_OP_RESHAPE && v->def->block == b) v = ir_operand(v->def, 0);
    return v->def && v->def->block == b && (v->def->code == IR_OP_GROUP || v->def->code == IR_OP_IF) ? v->def : NULL;
}

static const struct ir_value *root_of(const struct ir_value *v)
{
    while (v->def && v->def->code == IR_OP_RESHAPE) v = ir_operand(v->def, 0);
    return v;
}

/* A group that copies v, before op. */
static struct ir_value *insert_copy(struct ir_module *m, struct ir_op *before, struct ir_value *v)
{
    struct ir_block *body = ir_block_create(m, before->block->func, NULL);
    struct ir_value *arg = ir_block_add_arg(m, body, v->type, v->name);
    struct ir_builder b = {.m = m, .block = body, .loc = before->loc};
    struct ir_value *copy = ir_build_reshape(&b, arg, v->type.rank, v->type.dims);
    if (copy == arg) { /* the builder folds a reshape to the same shape: state it by hand */
        struct ir_op *op = ir_op_create(m, IR_OP_RESHAPE, 1, &arg, 1, before->loc);
        ir_op_set_attr(m, op, ir_a_dims("dims", v->type.rank, v->type.dims));
        op->results[0].type = v->type;
        ir_block_append(body, op);
        copy = &op->results[0];
    }
    ir_block_append(body, ir_op_create(m, IR_OP_YIELD, 1, &copy, 0, before->loc));
    struct ir_op *group = ir_op_create(m, IR_OP_GROUP, 1, &v, 1, v->def && v->def->loc ? v->def->loc : before->loc);
    ir_op_add_region(m, group, body);
    group->results[0].type = v->type;
    ir_block_insert_before(before, group);
    return &group->results[0];
}

/* Every value a terminator hands out has a writer of its own in this block. */
static void own_results(struct ir_module *m, struct ir_block *b)
{
    struct ir_op *term = b->last;
    for (int i = 0; term && i < term->n_operands; i++) {
        struct ir_value *v = ir_operand(term, i);
        bool own = writer_in(v, b) != NULL;
        for (int k = 0; own && k < i; k++) own = root_of(ir_operand(term, k)) != root_of(v);
        if (!own) ir_op_set_operand(term, i, insert_copy(m, term, v));
    }
}

/* The softmax with the products around it, when all of it becomes one kernel. */
static void form_attention(struct grouper *g, struct ir_op *softmax)
{
    struct attention_ops a;
    if (!g->m->for_cpus || softmax->code != IR_OP_SOFTMAX || !attention_match(softmax, &a)) return;
    for (int i = 0; i < a.n; i++)
        if (cluster_of(a.all[i])) return;
    struct cluster *c = cluster_new(g, a.pv);
    c->ops.n = 0;
    for (int i = 0; i < a.n; i++) {
        a.all[i]->aux = c;
        vec_push(&g->scratch, &c->ops, a.all[i]);
    }
    c->root = a.root, c->whole = true;
}

/* ---- concat in place ---- */

/* Schedules of these write by the result's own strides. */
static bool writes_by_strides(const struct ir_op *group)
{
    for (const struct ir_op *op = group->regions[0]->first; op; op = op->next) {
        if (op->code == IR_OP_CONV || op->code == IR_OP_MATMUL || op->code == IR_OP_POOL_MAX || op->code == IR_OP_POOL_AVG) return true;
        if (!(ir_op_traits(op) & IR_T_PW) && op->code != IR_OP_CONSTANT) return false;
    }
    return false;
}

static bool is_part(const struct ir_value *v, const struct ir_block *b, bool columns)
{
    const struct ir_op *p = v->def;
    if (!p || p->code != IR_OP_GROUP || p->block != b || p->n_results != 1 || !ir_value_has_one_use(v)) return false;
    for (const struct ir_op *op = p->regions[0]->first; op; op = op->next)
        if (ir_op_traits(op) & IR_T_STATE) return false;
    return !ir_attr_find(p, "x_in_place") && !ir_attr_find(p, "x_pitch") && (!columns || writes_by_strides(p));
}

/* Parts that are whole blocks of memory, or columns of known numbers. */
static void place_parts(struct grouper *g, struct ir_op *group)
{
    const struct ir_op *concat = group->regions[0]->first;
    if (!g->m->for_cpus || !concat || concat->code != IR_OP_CONCAT || !concat->next || concat->next->code != IR_OP_YIELD) return;
    if (concat->n_operands != group->n_operands) return; /* one part twice */
    const struct ir_type *t = &concat->results[0].type;
    int axis = (int)ir_attr_int(concat, "axis", 0);
    bool blocks = true, columns = axis == t->rank - 1 && dim_is_const(t->dims[axis]);
    for (int i = 0; i < axis; i++) blocks = blocks && dim_is(t->dims[i], 1);
    if (!blocks && !columns) return;
    for (int i = 0; i < group->n_operands; i++)
        if (!is_part(ir_operand(group, i), group->block, !blocks) || ir_operand(concat, i) != group->regions[0]->args[i]) return;
    ir_op_set_attr(g->m, group, ir_a_int("x_in_place", 1));
    for (int i = 0; !blocks && i < group->n_operands; i++)
        ir_op_set_attr(g->m, ir_operand(group, i)->def, ir_a_int("x_pitch", t->dims[axis]->value));
}

static void take_padding(struct grouper *g, struct ir_block *b)
{
    const struct dim *pads[4];
    for (struct ir_op *op = b->first; g->m->for_cpus && op; op = op->next)
        if (op->code == IR_OP_CONV && conv_padding(op, pads) && depthwise_fits(op, pads)) conv_take_padding(g->m, op, pads);
}

static void group_block(struct grouper *g, struct ir_block *b)
{
    take_padding(g, b);
    for (struct ir_op *op = b->first; op; op = op->next) op->aux = NULL;
    for (struct ir_op *op = b->first; op; op = op->next)
        for (int r = 0; op->code == IR_OP_IF && r < op->n_regions; r++) group_block(g, op->regions[r]);
    size_t first = g->clusters.n; /* those of the regions are done */
    for (struct ir_op *op = b->first; op; op = op->next) form_attention(g, op);
    for (struct ir_op *op = b->first; op; op = op->next) {
        if (is_leaf(op) || is_clonable(op) || cluster_of(op)) continue;
        struct cluster *c = cluster_new(g, op);
        while (grow(g, c)) {}
    }
    for (size_t i = g->clusters.n; i-- > first;)
        if (!g->clusters.v[i]->dead) absorb_producers(g, g->clusters.v[i]);
    for (size_t i = first; i < g->clusters.n; i++)
        if (!g->clusters.v[i]->dead) outline(g, g->clusters.v[i]);
    /* Cloning leaves definitions without uses behind; clonable ones that something else still reads become kernels. */
    for (struct ir_op *op = b->last, *prev; op; op = prev) {
        prev = op->prev;
        bool used = (ir_op_traits(op) & IR_T_TERM) || op->code == IR_OP_IF || ir_op_has_effect(op);
        for (int i = 0; i < op->n_results; i++) used = used || op->results[i].uses;
        used = used || (op->code == IR_OP_GROUP && op->regions[0]->first && (ir_op_traits(op->regions[0]->first) & IR_T_STATE));
        if (!used) ir_op_erase(op);
        else if (!is_leaf(op) && !cluster_of(op)) outline(g, cluster_new(g, op));
    }
    own_results(g->m, b);
    for (struct ir_op *op = b->first; op; op = op->next)
        if (op->code == IR_OP_GROUP) place_parts(g, op);
}

bool pass_group(struct ir_module *m, struct diag_sink *diag)
{
    (void)diag;
    struct grouper g = {.m = m};
    arena_init(&g.scratch);
    for (size_t i = 0; i < m->funcs.n; i++) group_block(&g, m->funcs.v[i]->body);
    arena_deinit(&g.scratch);
    return true;
}
