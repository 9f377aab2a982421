// SPDX-License-Identifier: Apache-2.0
/* Nodes, scopes, branches and functions. What a model's inputs and outputs are is in onnx_io.c. */
#include <ctype.h>
#include <string.h>

#include "compiler/import/onnx_int.h"

struct onnx_name *onnx_lookup(const struct onnx_scope *s, const char *name)
{
    for (; s; s = s->outer) {
        struct onnx_name *v = map_finds(&s->names, name);
        if (v) return v;
    }
    return NULL;
}

bool onnx_define(struct onnx_graph *g, const char *loc, const char *name, struct ir_value *v)
{
    struct arena *a = &g->im->m->arena;
    if (map_finds(&g->scope->names, name))
        return diag_report(g->im->diag, DIAG_ONNX_GRAPH, loc, "the name '%s' is defined twice",
                           name);
    struct onnx_name *n = ARENA_NEW(a, struct onnx_name);
    n->v = v;
    if (v && !v->name) v->name = arena_strdup(a, name);
    map_puts(&g->scope->names, name, n);
    return true;
}

static const char *plain_domain(const char *domain)
{
    return !domain || !strcmp(domain, "ai.onnx") ? "" : domain;
}

int onnx_opset(const struct onnx_graph *g, const char *domain)
{
    for (size_t i = 0; i < g->n_opsets; i++)
        if (!strcmp(plain_domain(g->opsets[i]->domain), domain)) {
            int64_t v = g->opsets[i]->version;
            return v > 0 && v < 10000 ? (int)v : 0;
        }
    return 0;
}

static const char *location(struct onnx_graph *g, const Onnx__Node *p, size_t index)
{
    struct arena *a = &g->im->m->arena;
    const char *name = p->name ? p->name : "";
    while (*name == '/') name++;
    if (*name) return arena_printf(a, "%s%s", g->prefix, name);
    return arena_printf(a, "%s%s_%zu", g->prefix, p->op_type ? p->op_type : "node", index);
}

/* Looks the operands up. False when one is poisoned (silent) or undefined (reported). */
static bool find_inputs(struct onode *n)
{
    bool ok = true;
    n->in = on_alloc(n, n->p->n_input, sizeof *n->in);
    for (size_t i = 0; i < n->p->n_input; i++) {
        const char *name = n->p->input[i];
        if (!*name) continue;
        struct onnx_name *v = onnx_lookup(n->g->scope, name);
        if (!v) {
            ok = on_fail(n, DIAG_ONNX_INPUT, "%s: input %zu ('%s') is not defined before this node",
                         n->p->op_type, i, name);
            continue;
        }
        if (v->absent) continue;
        n->in[i] = v->v;
        if (!v->v) ok = false;
    }
    n->n_in = (int)n->p->n_input;
    while (n->n_in > 0 && !*n->p->input[n->n_in - 1]) n->n_in--;
    return ok;
}

static bool check_counts(struct onode *n)
{
    const struct onnx_row *r = n->row;
    if (n->n_in < r->min_in || (r->max_in >= 0 && n->n_in > r->max_in))
        return on_fail(n, DIAG_ONNX_INPUT, "%s takes %d to %d inputs, not %d", r->op, r->min_in,
                       r->max_in, n->n_in);
    for (int i = 0; i < r->min_in; i++)
        if (!n->in[i]) return on_fail(n, DIAG_ONNX_INPUT, "%s: input %d is required", r->op, i);
    return true;
}

static void finish_outputs(struct onode *n, bool ok)
{
    for (size_t i = 0; i < n->p->n_output; i++) {
        const char *name = n->p->output[i];
        if (!*name) continue;
        struct ir_value *v = ok && (int)i < n->n_out ? n->out[i] : NULL;
        if (ok && !v && !n->failed)
            on_fail(n, DIAG_ONNX_OP, "%s: output %zu ('%s') is not supported", n->p->op_type, i,
                    name);
        if (v) v = known_materialise(n->im, n->b, v);
        onnx_define(n->g, n->loc, name, v);
    }
}

static void visit_new_ops(struct imp *im, struct ir_block *b, struct ir_op *last)
{
    for (struct ir_op *op = last ? last->next : b->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++) known_visit(im, ir_result(op, i));
}

/* ---- model-local functions ---- */

static const Onnx__Function *find_function(struct imp *im, const Onnx__Node *p)
{
    if (im->functions.n == 0) return NULL;
    char *key = arena_printf(&im->m->arena, "%s:%s:%s", plain_domain(p->domain), p->op_type,
                             p->overload ? p->overload : "");
    return map_finds(&im->functions, key);
}

static bool call_function(struct onode *n, const Onnx__Function *fn)
{
    int depth = n->g->call ? n->g->call->depth + 1 : 1;
    for (const struct onnx_call *c = n->g->call; c; c = c->outer)
        if (c->fn == fn)
            return on_fail(n, DIAG_ONNX_GRAPH, "the function '%s' calls itself", fn->name);
    if (depth > ONNX_MAX_CALLS)
        return on_fail(n, DIAG_ONNX_LIMIT, "functions are nested more than %d deep",
                       ONNX_MAX_CALLS);
    if (n->p->n_input > fn->n_input || n->p->n_output > fn->n_output)
        return on_fail(n, DIAG_ONNX_INPUT,
                       "the function '%s' has fewer inputs or outputs than this node", fn->name);
    struct onnx_scope scope = {0};
    map_init(&scope.names, &n->m->arena);
    struct onnx_call call = {fn, n->p, n->g->call, depth};
    struct onnx_graph g = *n->g;
    g.scope = &scope;
    g.call = &call;
    g.prefix = arena_printf(&n->m->arena, "%s/", n->loc);
    g.opsets = fn->opset_import;
    g.n_opsets = fn->n_opset_import;
    for (size_t i = 0; i < fn->n_input; i++) {
        struct ir_value *v = on_in(n, (int)i);
        if (!onnx_define(&g, n->loc, fn->input[i], v)) return false;
        if (!v) onnx_lookup(&scope, fn->input[i])->absent = true;
    }
    bool ok = onnx_import_nodes(&g, fn->n_node, fn->node);
    for (size_t i = 0; i < n->p->n_output; i++) {
        if (!*n->p->output[i]) continue;
        struct onnx_name *v = onnx_lookup(&scope, fn->output[i]);
        if (!v)
            return on_fail(n, DIAG_ONNX_GRAPH, "the function '%s' does not define its output '%s'",
                           fn->name, fn->output[i]);
        n->out[i] = v->v;
    }
    if (!ok) n->failed = true;
    return true; /* outputs that did come out are good */
}

/* ---- nodes ---- */

static bool check_version(struct onode *n, const char *domain)
{
    int max = onnx_max_opset(domain);
    if (n->version == 0)
        return on_fail(n, DIAG_ONNX_OPSET,
                       "the model does not say which version of the operator set '%s' it uses",
                       *domain ? domain : "ai.onnx");
    if (max && n->version > max)
        return on_fail(n, DIAG_ONNX_OPSET,
                       "operator set %d of '%s' is newer than %d, the newest known", n->version,
                       *domain ? domain : "ai.onnx", max);
    return true;
}

static bool run_handler(struct onode *n)
{
    const char *domain = plain_domain(n->p->domain), *op = n->p->op_type;
    const Onnx__Function *fn = find_function(n->im, n->p);
    if (fn) return call_function(n, fn);
    n->version = onnx_opset(n->g, domain);
    bool exists;
    n->row = onnx_find_row(domain, op, n->version, &exists);
    if (n->row || exists) {
        if (!check_version(n, domain)) return false;
        if (!n->row)
            return on_fail(n, DIAG_ONNX_OPSET, "%s as of operator set %d is not supported", op,
                           n->version);
        return check_counts(n) && n->row->handler(n) && !n->failed && at_check_all_used(n);
    }
    return on_fail(n, DIAG_ONNX_OP, "this operator%s%s is not supported", *domain ? " of " : "",
                   domain);
}

static bool import_node(struct onnx_graph *g, const Onnx__Node *p, size_t index)
{
    struct imp *im = g->im;
    struct ir_loc *loc;
    struct onode n = {.im = im, .g = g, .m = im->m, .b = g->b, .d = im->m->dims, .p = p};
    n.loc = location(g, p, index);
    if (!p->op_type)
        return diag_report(im->diag, DIAG_ONNX_GRAPH, n.loc, "a node without an operator");
    loc = ir_loc_make(im->m, n.loc);
    g->b->loc = loc;
    struct ir_op *last = g->b->block->last;
    size_t errors = im->diag->error_count;
    n.n_out = (int)p->n_output;
    n.out = on_alloc(&n, p->n_output + 8, sizeof *n.out);
    n.attr_used = on_alloc(&n, p->n_attribute, sizeof *n.attr_used);
    bool inputs_ok = find_inputs(&n), ok = inputs_ok && run_handler(&n);
    if (inputs_ok && !ok && !n.failed && im->diag->error_count == errors)
        on_fail(&n, DIAG_ONNX_OP, "this form of %s is not supported", p->op_type);
    finish_outputs(&n, ok);
    visit_new_ops(im, g->b->block, last);
    return ok && !n.failed;
}

bool onnx_import_nodes(struct onnx_graph *g, size_t n, Onnx__Node *const *nodes)
{
    bool ok = true;
    const struct ir_loc *outer_loc = g->b->loc;
    for (size_t i = 0; i < n; i++) {
        if (++g->im->n_nodes > g->im->max_nodes)
            return diag_report(g->im->diag, DIAG_ONNX_LIMIT, g->prefix,
                               "more than %zu nodes, functions expanded", g->im->max_nodes);
        ok = import_node(g, nodes[i], i) && ok;
    }
    g->b->loc = outer_loc;
    return ok;
}

/* ---- initialisers and branches ---- */

bool onnx_import_initialisers(struct onnx_graph *g, const Onnx__Graph *graph,
                              const struct map *skip)
{
    struct imp *im = g->im;
    bool ok = true;
    for (size_t i = 0; i < graph->n_initializer + graph->n_sparse_initializer; i++) {
        bool dense = i < graph->n_initializer;
        const Onnx__SparseTensor *sp =
            dense ? NULL : graph->sparse_initializer[i - graph->n_initializer];
        const Onnx__Tensor *t = dense ? graph->initializer[i] : sp->values;
        const char *name = t && t->name ? t->name : "";
        const char *loc = arena_printf(&im->m->arena, "%s%s", g->prefix, name);
        if (skip && map_finds(skip, name)) continue;
        if (!*name) {
            ok = diag_report(im->diag, DIAG_ONNX_GRAPH, g->prefix, "an initialiser without a name");
            continue;
        }
        struct ir_const *c = dense ? onnx_tensor(im, t, loc) : onnx_sparse_tensor(im, sp, loc);
        struct ir_value *v = NULL;
        if (c) {
            g->b->loc = ir_loc_make(im->m, loc);
            v = ir_build_constant(g->b, c);
            if (v) known_visit(im, v);
        }
        ok = onnx_define(g, loc, name, v) && v && ok;
    }
    return ok;
}

bool onnx_import_branch(struct onode *n, const Onnx__Graph *graph, struct ir_builder *b,
                        int n_results, struct ir_value **out)
{
    struct onnx_scope scope = {.outer = n->g->scope};
    map_init(&scope.names, &n->m->arena);
    struct onnx_graph g = *n->g;
    g.scope = &scope;
    g.b = b;
    g.depth++;
    if (graph->n_input) return on_fail(n, DIAG_ONNX_GRAPH, "a branch of If has inputs");
    if ((int)graph->n_output < n_results)
        return on_fail(n, DIAG_ONNX_GRAPH, "a branch of If has too few outputs");
    bool ok = onnx_import_initialisers(&g, graph, NULL);
    ok = onnx_import_nodes(&g, graph->n_node, graph->node) && ok;
    b->loc = ir_loc_make(n->m, n->loc);
    for (int i = 0; i < n_results; i++) {
        const char *name = graph->output[i]->name ? graph->output[i]->name : "";
        struct onnx_name *v = onnx_lookup(&scope, name);
        if (!v)
            return on_fail(n, DIAG_ONNX_GRAPH, "a branch does not define its output '%s'", name);
        out[i] = v->v;
        ok = ok && v->v;
    }
    return ok;
}
