// SPDX-License-Identifier: Apache-2.0
/*
 * Tree ensembles. The nodes of all trees are rows of constant tables (feature, threshold,
 * comparison, successors; a leaf is its own successor). A position [batch, trees] starts at the
 * roots and takes depth steps, each a few gathers and a select; then the leaves' weights are
 * gathered and summed over the trees.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/import/onnx_int.h"

#define MAX_NODES (1 << 22)
#define MAX_DEPTH 512

enum mode { LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF, N_MODES };

static const enum ir_opcode mode_ops[] = {IR_OP_LE, IR_OP_LT, IR_OP_GE,
                                          IR_OP_GT, IR_OP_EQ, IR_OP_NE};

struct tree_node {
    int64_t feature, yes, no;
    double split;
    uint8_t mode;
    bool nan_is_yes;
};

struct forest {
    struct tree_node *nodes;
    int64_t n, n_roots, n_targets;
    int64_t *roots;
    double *weights; /* n * n_targets */
};

/* A list that may come as floats or, with double precision, as a tensor. */
static const double *numbers(struct onode *n, const char *list, const char *tensor, int *count)
{
    const double *v = list ? at_floats(n, list, count) : NULL;
    if (v || n->failed || !at_has(n, tensor)) return v;
    struct ir_const *c = at_tensor(n, tensor);
    int64_t elems;
    if (!c || !ir_type_static_elems(&c->type, &elems) || elems > MAX_NODES) return NULL;
    double *out = on_alloc(n, (size_t)elems + 1, sizeof *out);
    for (int64_t i = 0; i < elems; i++)
        if (!ir_const_get_float(c, i, &out[i])) {
            on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' is no float tensor", tensor);
            return NULL;
        }
    *count = (int)elems;
    return out;
}

static bool bad_lists(struct onode *n)
{
    return n->failed ? false
                     : on_fail(n, DIAG_ONNX_ATTR,
                               "%s: the lists of nodes, leaves or weights do not fit together",
                               n->row->op);
}

static bool room_for(struct onode *n, struct forest *f, int64_t targets)
{
    if (f->n < 1 || f->n > MAX_NODES || targets < 1 || targets > 1 << 16 ||
        f->n * targets > MAX_NODES * (int64_t)16)
        return bad_lists(n);
    f->n_targets = targets;
    f->nodes = on_alloc(n, (size_t)f->n, sizeof *f->nodes);
    f->weights = on_alloc(n, (size_t)(f->n * targets), sizeof *f->weights);
    f->roots = on_alloc(n, (size_t)f->n, sizeof *f->roots);
    return true;
}

/* ---- the older form: (tree, node) pairs, modes by name ---- */

struct key {
    int64_t tree, node, at;
};

static int by_key(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->tree != y->tree) return x->tree < y->tree ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

static int64_t find_key(const struct key *keys, int64_t n, int64_t tree, int64_t node)
{
    struct key k = {tree, node, 0}, *hit = bsearch(&k, keys, (size_t)n, sizeof k, by_key);
    return hit ? hit->at : -1;
}

static bool read_old_nodes(struct onode *n, struct forest *f, int64_t targets,
                           struct key **out_keys)
{
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE", "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ", "",           "LEAF"};
    int c[7], c_nan, c_values = 0;
    const int64_t *ids = at_ints(n, "nodes_nodeids", &c[0]),
                  *trees = at_ints(n, "nodes_treeids", &c[1]),
                  *feature = at_ints(n, "nodes_featureids", &c[2]);
    const int64_t *yes = at_ints(n, "nodes_truenodeids", &c[3]),
                  *no = at_ints(n, "nodes_falsenodeids", &c[4]);
    const int64_t *nan_yes = at_ints(n, "nodes_missing_value_tracks_true", &c_nan);
    const char *const *modes = at_strings(n, "nodes_modes", &c[5]);
    const double *split = numbers(n, "nodes_values", "nodes_values_as_tensor", &c_values);
    at_ignore(n, "nodes_hitrates");
    at_ignore(n, "nodes_hitrates_as_tensor");
    for (int i = 1; i < 6; i++)
        if (c[i] != c[0]) return bad_lists(n);
    if (!ids || !split || c_values != c[0] || (nan_yes && c_nan != c[0])) return bad_lists(n);
    f->n = c[0];
    if (!room_for(n, f, targets)) return false;
    struct key *keys = on_alloc(n, (size_t)f->n, sizeof *keys);
    for (int64_t i = 0; i < f->n; i++) keys[i] = (struct key){trees[i], ids[i], i};
    qsort(keys, (size_t)f->n, sizeof *keys, by_key);
    for (int64_t i = 1; i < f->n; i++)
        if (!by_key(&keys[i - 1], &keys[i])) return bad_lists(n);
    for (int64_t i = 0; i < f->n; i++) {
        struct tree_node *t = &f->nodes[i];
        *t = (struct tree_node){.feature = feature[i],
                                .split = split[i],
                                .mode = N_MODES,
                                .nan_is_yes = nan_yes && nan_yes[i]};
        for (int m = 0; m < N_MODES; m++)
            if (names[m][0] && !strcmp(modes[i], names[m])) t->mode = (uint8_t)m;
        t->yes = t->mode == LEAF ? i : find_key(keys, f->n, trees[i], yes[i]);
        t->no = t->mode == LEAF ? i : find_key(keys, f->n, trees[i], no[i]);
        if (t->mode == N_MODES || t->yes < 0 || t->no < 0) return bad_lists(n);
        if (keys[i].at >= 0 && (i == 0 || keys[i - 1].tree != keys[i].tree))
            f->roots[f->n_roots++] = keys[i].at;
    }
    *out_keys = keys;
    return true;
}

static bool read_old_weights(struct onode *n, struct forest *f, const struct key *keys,
                             const char *kind)
{
    struct arena *a = &n->m->arena;
    int c[3], c_w = 0;
    const int64_t *trees = at_ints(n, arena_printf(a, "%s_treeids", kind), &c[0]),
                  *ids = at_ints(n, arena_printf(a, "%s_nodeids", kind), &c[1]);
    const int64_t *target = at_ints(n, arena_printf(a, "%s_ids", kind), &c[2]);
    const double *w = numbers(n, arena_printf(a, "%s_weights", kind),
                              arena_printf(a, "%s_weights_as_tensor", kind), &c_w);
    if (n->failed || !trees || !w || c[1] != c[0] || c[2] != c[0] || c_w != c[0])
        return bad_lists(n);
    for (int i = 0; i < c_w; i++) {
        int64_t at = find_key(keys, f->n, trees[i], ids[i]);
        if (at < 0 || target[i] < 0 || target[i] >= f->n_targets) return bad_lists(n);
        f->weights[at * f->n_targets + target[i]] += w[i];
    }
    return true;
}

/* ---- TreeEnsemble 5: inner nodes and leaves apart ---- */

static bool read_new_leaves(struct onode *n, struct forest *f, int64_t inner, int *c_leaf)
{
    int c_ids;
    const int64_t *target = at_ints(n, "leaf_targetids", &c_ids);
    const double *w = numbers(n, NULL, "leaf_weights", c_leaf);
    if (n->failed || !target || !w || c_ids != *c_leaf) return bad_lists(n);
    f->n = inner + c_ids;
    if (!room_for(n, f, at_int(n, "n_targets", 1))) return false;
    for (int64_t i = 0; i < c_ids; i++) {
        f->nodes[inner + i] = (struct tree_node){.mode = LEAF, .yes = inner + i, .no = inner + i};
        if (target[i] < 0 || target[i] >= f->n_targets) return bad_lists(n);
        f->weights[(inner + i) * f->n_targets + target[i]] = w[i];
    }
    return true;
}

/*
 * A membership test becomes a chain of equality tests: the members of one node stand in
 * membership_values up to a NaN, in the order of such nodes. New nodes are appended.
 */
static bool expand_members(struct onode *n, struct forest *f, int64_t inner, const double *members,
                           int c_members)
{
    int at = 0;
    int64_t total = f->n + c_members, used = f->n;
    struct tree_node *nodes = on_alloc(n, (size_t)total, sizeof *nodes);
    double *weights = on_alloc(n, (size_t)(total * f->n_targets), sizeof *weights);
    memcpy(nodes, f->nodes, (size_t)f->n * sizeof *nodes);
    memcpy(weights, f->weights, (size_t)(f->n * f->n_targets) * sizeof *weights);
    for (int64_t i = 0; i < inner; i++) {
        if (nodes[i].mode != MEMBER) continue;
        int64_t here = i, no = nodes[i].no;
        bool first = true;
        for (; at < c_members && !isnan(members[at]); at++, first = false) {
            if (!first) {
                nodes[used] = nodes[i];
                nodes[here].no = used;
                here = used++;
            }
            nodes[here].mode = EQ;
            nodes[here].split = members[at];
        }
        if (first || at == c_members) return bad_lists(n);
        nodes[here].no = no;
        at++;
    }
    f->nodes = nodes;
    f->weights = weights;
    f->n = used;
    return true;
}

static bool read_new(struct onode *n, struct forest *f)
{
    int c[6], c_roots, c_split = 0, c_modes, c_leaf = 0, c_members = 0, c_nan;
    static const char *const lists[] = {"nodes_featureids", "nodes_truenodeids",
                                        "nodes_falsenodeids", "nodes_trueleafs",
                                        "nodes_falseleafs"};
    const int64_t *v[5], *roots = at_ints(n, "tree_roots", &c_roots),
                         *nan_yes = at_ints(n, "nodes_missing_value_tracks_true", &c_nan);
    for (int i = 0; i < 5; i++) v[i] = at_ints(n, lists[i], &c[i]);
    const double *split = numbers(n, NULL, "nodes_splits", &c_split),
                 *members = numbers(n, NULL, "membership_values", &c_members);
    struct ir_const *modes = at_tensor(n, "nodes_modes");
    at_ignore(n, "nodes_hitrates");
    int64_t elems = 0;
    if (n->failed || !modes || !ir_type_static_elems(&modes->type, &elems)) return bad_lists(n);
    c_modes = (int)elems;
    for (int i = 0; i < 5; i++)
        if (!v[i] || c[i] != c[0]) return bad_lists(n);
    if (!roots || c_split != c[0] || c_modes != c[0] || (nan_yes && c_nan != c[0]) ||
        !read_new_leaves(n, f, c[0], &c_leaf))
        return bad_lists(n);
    for (int64_t i = 0; i < c[0]; i++) {
        int64_t mode;
        struct tree_node *t = &f->nodes[i];
        if (!ir_const_get_int(modes, i, &mode) || mode < 0 || mode > MEMBER) return bad_lists(n);
        int64_t yes_limit = v[3][i] ? c_leaf : c[0], no_limit = v[4][i] ? c_leaf : c[0];
        if (v[1][i] < 0 || v[1][i] >= yes_limit || v[2][i] < 0 || v[2][i] >= no_limit)
            return bad_lists(n);
        *t = (struct tree_node){.feature = v[0][i],
                                .split = split[i],
                                .mode = (uint8_t)mode,
                                .nan_is_yes = nan_yes && nan_yes[i]};
        t->yes = v[1][i] + (v[3][i] ? c[0] : 0);
        t->no = v[2][i] + (v[4][i] ? c[0] : 0);
    }
    for (int i = 0; i < c_roots && i < f->n; i++) {
        if (roots[i] < 0 || roots[i] >= c[0]) return bad_lists(n);
        f->roots[f->n_roots++] = roots[i];
    }
    return expand_members(n, f, c[0], members, c_members);
}

/* ---- to core ops ---- */

/* The longest path from a root; -1 when there is a cycle or more than MAX_DEPTH. Breadth first,
 * level by level. */
static int depth_of(struct onode *n, const struct forest *f)
{
    int64_t *level = on_alloc(n, (size_t)f->n, sizeof *level),
            *next = on_alloc(n, (size_t)f->n, sizeof *next), count = f->n_roots;
    int *seen = on_alloc(n, (size_t)f->n, sizeof *seen);
    memcpy(level, f->roots, (size_t)count * sizeof *level);
    for (int depth = 0; depth < MAX_DEPTH; depth++) {
        int64_t k = 0;
        for (int64_t i = 0; i < count; i++) {
            const struct tree_node *t = &f->nodes[level[i]];
            int64_t to[2] = {t->yes, t->no};
            for (int s = 0; s < 2 && t->mode != LEAF; s++)
                if (seen[to[s]] != depth + 1) seen[to[s]] = depth + 1, next[k++] = to[s];
        }
        if (k == 0) return depth;
        int64_t *swap = level;
        level = next, next = swap, count = k;
    }
    return -1;
}

static struct ir_value *int_table(struct onode *n, int64_t count, const int64_t *v)
{
    return ir_build_ints(n->b, (int)count, v);
}

static struct ir_value *float_table(struct onode *n, enum dtype t, int rank, const int64_t *dims,
                                    const double *v)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    size_t bytes = (size_t)count * dtype_bytes(t);
    void *data = arena_alloc(&n->m->arena, bytes);
    for (int64_t i = 0; i < count; i++) {
        if (t == DT_F64) ((double *)data)[i] = v[i];
        else ((float *)data)[i] = (float)v[i];
    }
    return ir_build_constant(
        n->b, ir_const_make(n->m, "", ir_type_static(n->m, t, rank, dims), data, bytes, false));
}

struct tables {
    struct ir_value *feature, *yes, *no, *split, *mode, *nan_is_yes;
    bool used[N_MODES], any_nan;
};

static struct tables make_tables(struct onode *n, const struct forest *f, enum dtype t)
{
    struct tables k = {0};
    int64_t *v[5];
    double *split = on_alloc(n, (size_t)f->n, sizeof *split);
    for (int i = 0; i < 5; i++) v[i] = on_alloc(n, (size_t)f->n, sizeof *v[i]);
    for (int64_t i = 0; i < f->n; i++) {
        const struct tree_node *t_node = &f->nodes[i];
        v[0][i] = t_node->feature, v[1][i] = t_node->yes, v[2][i] = t_node->no,
        v[3][i] = t_node->mode, v[4][i] = t_node->nan_is_yes;
        split[i] = t_node->split;
        k.used[t_node->mode] = true;
        k.any_nan = k.any_nan || t_node->nan_is_yes;
    }
    k.feature = int_table(n, f->n, v[0]), k.yes = int_table(n, f->n, v[1]),
    k.no = int_table(n, f->n, v[2]);
    k.mode = int_table(n, f->n, v[3]), k.nan_is_yes = int_table(n, f->n, v[4]);
    k.split = float_table(n, t, 1, &f->n, split);
    return k;
}

static struct ir_value *take(struct onode *n, struct ir_value *table, struct ir_value *at)
{
    return ir_build_gather(n->b, table, at, 0);
}

static struct ir_value *step(struct onode *n, const struct tables *k, struct ir_value *x,
                             struct ir_value *at)
{
    struct ir_attr axis = ir_a_int("axis", 1);
    struct ir_value *operands[2] = {x, take(n, k->feature, at)};
    struct ir_value *v = operands[1] ? e_op(n, IR_OP_GATHER_ELEMENTS, 2, operands, 1, &axis, 1, 0)
                                     : NULL,
                    *split = take(n, k->split, at), *yes = NULL;
    for (int m = 0; m < MEMBER; m++) {
        if (!k->used[m]) continue;
        struct ir_value *c = e_bin(n, mode_ops[m], v, split);
        yes =
            yes ? e_sel(n, e_bin(n, IR_OP_EQ, take(n, k->mode, at), e_scalar(n, DT_I64, m)), c, yes)
                : c;
    }
    if (!yes) return at; /* leaves only */
    if (k->any_nan)
        yes = e_bin(n, IR_OP_OR, yes,
                    e_bin(n, IR_OP_AND, e_un(n, IR_OP_ISNAN, v),
                          e_cast(n, take(n, k->nan_is_yes, at), DT_BOOL)));
    return e_sel(n, yes, take(n, k->yes, at), take(n, k->no, at));
}

enum aggregate { AVERAGE, SUM, MINIMUM, MAXIMUM };

/* [batch, targets] */
static struct ir_value *evaluate(struct onode *n, const struct forest *f, struct ir_value *x,
                                 enum aggregate how)
{
    int depth = depth_of(n, f);
    if (depth < 0 || f->n_roots < 1) {
        bad_lists(n);
        return NULL;
    }
    const struct dim *features = dim_of(x, 1);
    for (int64_t i = 0; i < f->n; i++)
        if (f->nodes[i].mode != LEAF &&
            (f->nodes[i].feature < 0 ||
             (dim_is_const(features) && f->nodes[i].feature >= features->value))) {
            on_fail(n, DIAG_ONNX_ATTR, "%s: a node asks for feature %lld", n->row->op,
                    (long long)f->nodes[i].feature);
            return NULL;
        }
    struct tables k = make_tables(n, f, x->type.dtype);
    const struct dim *dims[2] = {dim_of(x, 0), dim_const(n->d, f->n_roots)};
    struct ir_value *at = e_broadcast(n, int_table(n, f->n_roots, f->roots), 2, dims);
    for (int i = 0; i < depth; i++) at = step(n, &k, x, at);
    int64_t w_dims[2] = {f->n, f->n_targets};
    struct ir_value *leaves = take(n, float_table(n, x->type.dtype, 2, w_dims, f->weights),
                                   at); /* [batch, trees, targets] */
    if (how == MINIMUM) return e_red1(n, IR_OP_REDUCE_MIN, leaves, 1, false);
    if (how == MAXIMUM) return e_red1(n, IR_OP_REDUCE_MAX, leaves, 1, false);
    struct ir_value *y = e_red1(n, IR_OP_REDUCE_SUM, leaves, 1, false);
    return how == AVERAGE ? e_div(n, y, e_like(n, y, (double)f->n_roots)) : y;
}

/* NONE, SOFTMAX, LOGISTIC; the others are reported. */
static struct ir_value *transform(struct onode *n, struct ir_value *y, int64_t kind)
{
    struct ir_attr axis = ir_a_int("axis", 1);
    if (kind == 0) return y;
    if (kind == 1) return e_op1(n, IR_OP_SOFTMAX, y, 1, &axis);
    if (kind == 2) return e_un(n, IR_OP_SIGMOID, y);
    on_fail(n, DIAG_ONNX_OP, "%s: post_transform SOFTMAX_ZERO and PROBIT are not supported",
            n->row->op);
    return NULL;
}

static struct ir_value *add_base(struct onode *n, struct ir_value *y, int64_t targets)
{
    int count = 0;
    const double *base = numbers(n, "base_values", "base_values_as_tensor", &count);
    if (!base || !y) return n->failed ? NULL : y;
    int64_t dim = count;
    if (count != targets) {
        bad_lists(n);
        return NULL;
    }
    return e_add(n, y, float_table(n, y->type.dtype, 1, &dim, base));
}

static struct ir_value *features_of(struct onode *n)
{
    struct ir_value *x = on_in(n, 0);
    if (!on_rank(n, x, 1, 2, "X")) return NULL;
    if (rank_of(x) == 1) x = e_unsqueeze(n, x, 0);
    return x->type.dtype == DT_F64 ? x : e_cast(n, x, DT_F32);
}

static const char *const transforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};

bool onnx_ml_treeensemble(struct onode *n)
{
    struct forest f = {0};
    struct ir_value *x = features_of(n);
    int64_t how = at_int(n, "aggregate_function", SUM), post = at_int(n, "post_transform", 0);
    if (!x || !read_new(n, &f)) return false;
    if (how < 0 || how > MAXIMUM || (how >= MINIMUM && f.n_targets > 1))
        return on_fail(n, DIAG_ONNX_ATTR, "TreeEnsemble: this aggregate_function is not supported");
    return on_out(n, 0, transform(n, evaluate(n, &f, x, (enum aggregate)how), post));
}

bool onnx_ml_treeregressor(struct onode *n)
{
    static const char *const names[] = {"AVERAGE", "SUM", "MIN", "MAX"};
    struct forest f = {0};
    struct key *keys;
    struct ir_value *x = features_of(n);
    int how = at_choice(n, "aggregate_function", SUM, 4, names),
        post = at_choice(n, "post_transform", 0, 5, transforms);
    if (!x || how < 0 || post < 0 || !read_old_nodes(n, &f, at_int(n, "n_targets", 1), &keys) ||
        !read_old_weights(n, &f, keys, "target"))
        return false;
    if (how >= MINIMUM && f.n_targets > 1)
        return on_fail(n, DIAG_ONNX_ATTR,
                       "TreeEnsembleRegressor: this aggregate_function is not supported");
    struct ir_value *y = add_base(n, evaluate(n, &f, x, (enum aggregate)how), f.n_targets);
    return on_out(n, 0, e_cast(n, transform(n, y, post), DT_F32));
}

/* Weights for a single class of two: the other one's score is 1 - s, or -s before a transform. */
static struct ir_value *two_classes(struct onode *n, struct ir_value *y, int64_t used, int post)
{
    struct ir_value *s = e_slice1(n, y, 1, dim_const(n->d, used), dim_const(n->d, 1));
    struct ir_value *other =
        post == 0 || post == 4 ? e_sub(n, e_like(n, s, 1), s) : e_un(n, IR_OP_NEG, s);
    struct ir_value *both[2] = {other, s};
    return s && other ? ir_build_concat(n->b, 2, both, 1) : NULL;
}

bool onnx_ml_treeclassifier(struct onode *n)
{
    struct forest f = {0};
    struct key *keys;
    int c_labels, c_ids, post = at_choice(n, "post_transform", 0, 5, transforms);
    struct ir_value *x = features_of(n);
    if (at_has(n, "classlabels_strings"))
        return on_fail(n, DIAG_DTYPE_UNSUPPORTED,
                       "TreeEnsembleClassifier with string labels; strings come later");
    const int64_t *labels = at_ints(n, "classlabels_int64s", &c_labels),
                  *ids = at_ints(n, "class_ids", &c_ids);
    if (!x || post < 0 || n->failed) return false;
    if (!labels || c_labels < 2 || !ids || c_ids < 1) return bad_lists(n);
    if (!read_old_nodes(n, &f, c_labels, &keys) || !read_old_weights(n, &f, keys, "class"))
        return false;
    struct ir_value *y = add_base(n, evaluate(n, &f, x, SUM), f.n_targets);
    bool single = true;
    for (int i = 1; i < c_ids; i++) single = single && ids[i] == ids[0];
    if (single && c_labels == 2) y = two_classes(n, y, ids[0], post);
    y = transform(n, y, post);
    struct ir_attr a[2] = {ir_a_int("axis", 1), ir_a_int("keepdims", 0)};
    struct ir_value *best = e_op1(n, IR_OP_ARG_MAX, y, 2, a);
    return on_out(n, 0, best ? take(n, int_table(n, c_labels, labels), best) : NULL) &&
           on_out(n, 1, e_cast(n, y, DT_F32));
}
