// SPDX-License-Identifier: Apache-2.0
/* Executes statement nodes: output, assignment, loops, macros, blocks. */
#include <string.h>

#include "runtime/text/jinja_rt.h"

/* ---- frames -------------------------------------------------------------------------------- */

static struct jinja_value *slot_at(struct jinja_frame *frame, uint32_t hops, uint32_t slot)
{
    for (; hops && frame; hops--)
        frame = frame->parent;
    return frame && slot < frame->count ? &frame->slots[slot] : NULL;
}

/* The value that a name has outside of every scope. */
static struct jinja_value resolve(struct jinja_rt *rt, uint32_t str)
{
    uint32_t len;
    const char *name = jinja_ast_text(rt, str, &len);
    const struct jinja_value *v = jinja_dict_find_str(rt->context, name, len);
    struct jinja_value global = {.kind = JINJA_MISSING};

    if (v)
        return *v;
    jinja_find_global(name, len, &global);
    return global;
}

bool jinja_frame_reset(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t scope)
{
    uint32_t words = jinja_list_len(rt, scope), i;
    const uint32_t *w = rt->t->lists + scope + 1;
    const struct jinja_value *outer;

    memset(frame->slots, 0, frame->count * sizeof(frame->slots[0])); /* JINJA_MISSING is 0 */
    for (i = JINJA_REC_C; i + 3 < words; i += 4) {
        if (w[i + 1] == JINJA_LOAD_RESOLVE) {
            frame->slots[w[i]] = resolve(rt, w[i + 2]);
        } else if (w[i + 1] == JINJA_LOAD_ALIAS) {
            outer = slot_at(frame, w[i + 2], w[i + 3]);
            if (!outer)
                return jinja_fail(rt, JINJA_ERR_BLOB, "compiled template is damaged: bad variable");
            frame->slots[w[i]] = *outer;
        }
    }
    return jinja_charge(rt, frame->count);
}

bool jinja_frame_open(struct jinja_rt *rt, struct jinja_frame *parent, uint32_t scope,
                      struct jinja_frame **out)
{
    uint32_t count = jinja_list_at(rt, scope, 0);
    struct jinja_frame *frame = jinja_alloc(rt, sizeof(*frame) + count * sizeof(frame->slots[0]));

    if (!frame)
        return false;
    frame->parent = parent;
    frame->count = count;
    *out = frame;
    return jinja_frame_reset(rt, frame, scope);
}

/* ---- assignment ---------------------------------------------------------------------------- */

static bool assign(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t target,
                   const struct jinja_value *v);

static bool unpack(struct jinja_rt *rt, struct jinja_frame *frame, const struct jinja_ast_node *n,
                   const struct jinja_value *v)
{
    uint32_t count = jinja_list_len(rt, n->a), i;
    struct jinja_list *list;

    if (!jinja_iterable(v))
        return jinja_fail(rt, JINJA_ERR_TYPE, "cannot unpack non-iterable %s object",
                          jinja_type_name(v));
    if (!jinja_items(rt, v, &list))
        return false;
    if (list->count < count)
        return jinja_fail(rt, JINJA_ERR_TYPE, "not enough values to unpack (expected %u, got %u)",
                          count, list->count);
    if (list->count > count)
        return jinja_fail(rt, JINJA_ERR_TYPE, "too many values to unpack (expected %u)", count);
    for (i = 0; i < count; i++)
        if (!assign(rt, frame, jinja_list_at(rt, n->a, i), &list->items[i]))
            return false;
    return true;
}

static bool assign_attr(struct jinja_rt *rt, struct jinja_frame *frame,
                        const struct jinja_ast_node *n, const struct jinja_value *v)
{
    struct jinja_value ns, key;
    uint32_t len;
    const char *name = jinja_ast_text(rt, n->b, &len);

    if (!jinja_eval(rt, frame, n->a, &ns))
        return false;
    if (ns.kind != JINJA_NAMESPACE)
        return jinja_fail(rt, JINJA_ERR_TYPE, "cannot assign attribute on non-namespace object");
    key = jinja_str_trusted(name, len);
    return jinja_dict_set(rt, ns.u.dict, &key, v);
}

static bool assign(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t target,
                   const struct jinja_value *v)
{
    const struct jinja_ast_node *n = jinja_node(rt, target);
    struct jinja_value *slot;
    bool ok;

    switch (n->kind) {
    case JN_NAME:
        slot = slot_at(frame, n->b, n->c);
        if (!slot)
            return jinja_fail(rt, JINJA_ERR_BLOB, "compiled template is damaged: bad variable");
        *slot = *v;
        return true;
    case JN_NSREF:
        return assign_attr(rt, frame, n, v);
    case JN_TUPLE:
        ok = jinja_enter(rt) && unpack(rt, frame, n, v);
        jinja_leave(rt);
        return ok;
    default:
        return jinja_fail(rt, JINJA_ERR_BLOB, "compiled template is damaged: bad target");
    }
}

/* jinja2 checks namespaces before it evaluates the value. */
static bool check_namespaces(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t target)
{
    const struct jinja_ast_node *n = jinja_node(rt, target);
    struct jinja_value ns;
    uint32_t i;
    bool ok = true;

    if (n->kind == JN_NSREF) {
        ok = jinja_eval(rt, frame, n->a, &ns);
        if (ok && ns.kind != JINJA_NAMESPACE)
            ok = jinja_fail(rt, JINJA_ERR_TYPE, "cannot assign attribute on non-namespace object");
    } else if (n->kind == JN_TUPLE) {
        ok = jinja_enter(rt);
        for (i = 0; ok && i < jinja_list_len(rt, n->a); i++)
            ok = check_namespaces(rt, frame, jinja_list_at(rt, n->a, i));
        jinja_leave(rt);
    }
    return ok;
}

static bool exec_set(struct jinja_rt *rt, struct jinja_frame *frame, const struct jinja_ast_node *n)
{
    struct jinja_value v;

    if (!check_namespaces(rt, frame, n->a) || !jinja_eval(rt, frame, n->b, &v))
        return false;
    rt->line = n->line;
    return assign(rt, frame, n->a, &v);
}

/* ---- blocks that capture ------------------------------------------------------------------- */

static enum jinja_exec exec_set_block(struct jinja_rt *rt, struct jinja_frame *frame,
                                      const struct jinja_ast_node *n)
{
    struct jinja_frame *inner;
    struct jinja_value v;
    size_t mark = rt->out_len;
    enum jinja_exec r;

    if (!jinja_frame_open(rt, frame, n->d, &inner))
        return JINJA_EXEC_ERROR;
    r = jinja_exec_list(rt, inner, n->c);
    if (r != JINJA_EXEC_OK) {
        rt->out_len = mark;
        return r;
    }
    if (!jinja_capture(rt, mark, &v) || (n->b && !jinja_eval_filter(rt, inner, n->b, &v, &v)) ||
        !assign(rt, frame, n->a, &v))
        return JINJA_EXEC_ERROR;
    return JINJA_EXEC_OK;
}

static bool emit_value(struct jinja_rt *rt, const struct jinja_value *v)
{
    struct jinja_value s;

    if (v->kind == JINJA_STR)
        return jinja_emit(rt, v->u.s, v->len);
    return jinja_to_str(rt, v, &s) && jinja_emit(rt, s.u.s, s.len);
}

static enum jinja_exec exec_filter_block(struct jinja_rt *rt, struct jinja_frame *frame,
                                         const struct jinja_ast_node *n)
{
    struct jinja_frame *inner;
    struct jinja_value v;
    size_t mark = rt->out_len;
    enum jinja_exec r;

    if (!jinja_frame_open(rt, frame, n->d, &inner))
        return JINJA_EXEC_ERROR;
    r = jinja_exec_list(rt, inner, n->c);
    if (r != JINJA_EXEC_OK) {
        rt->out_len = mark;
        return r;
    }
    if (!jinja_capture(rt, mark, &v) || !jinja_eval_filter(rt, inner, n->a, &v, &v) ||
        !emit_value(rt, &v))
        return JINJA_EXEC_ERROR;
    return JINJA_EXEC_OK;
}

static enum jinja_exec exec_with(struct jinja_rt *rt, struct jinja_frame *frame,
                                 const struct jinja_ast_node *n)
{
    struct jinja_frame *inner;
    struct jinja_value v;
    uint32_t i;

    if (!jinja_frame_open(rt, frame, n->d, &inner))
        return JINJA_EXEC_ERROR;
    for (i = 0; i < jinja_list_len(rt, n->a); i++)
        if (!jinja_eval(rt, frame, jinja_list_at(rt, n->b, i), &v) ||
            !assign(rt, inner, jinja_list_at(rt, n->a, i), &v))
            return JINJA_EXEC_ERROR;
    return jinja_exec_list(rt, inner, n->c);
}

/* ---- macros -------------------------------------------------------------------------------- */

static bool make_macro(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t node,
                       struct jinja_value *out)
{
    struct jinja_macro *m = jinja_alloc(rt, sizeof(*m));

    if (!m)
        return false;
    *m = (struct jinja_macro){.node = node, .frame = frame};
    *out = (struct jinja_value){.kind = JINJA_MACRO, .u.macro = m};
    return true;
}

struct macro_call {
    const struct jinja_args *args;
    bool *used; /* per keyword */
    const char *name;
    uint32_t name_len;
    const uint32_t *rec;
    uint32_t argc;
};

static const struct jinja_value *take_keyword(const struct macro_call *c, const char *name,
                                              uint32_t len)
{
    uint32_t i;

    for (i = 0; i < c->args->nkw; i++)
        if (c->args->kw[i].key.len == len && memcmp(c->args->kw[i].key.u.s, name, len) == 0) {
            c->used[i] = true;
            return &c->args->kw[i].value;
        }
    return NULL;
}

/* Positional arguments, then keywords, into the parameters' slots. */
static void bind_params(struct jinja_rt *rt, const struct macro_call *c, struct jinja_frame *frame,
                        bool *out_found_caller)
{
    const struct jinja_ast_node *param;
    const struct jinja_value *v;
    const char *name;
    uint32_t i, len;

    *out_found_caller = false;
    for (i = 0; i < c->argc; i++) {
        param = jinja_node(rt, jinja_list_at(rt, c->rec[0], i));
        name = jinja_ast_text(rt, param->a, &len);
        *out_found_caller |= len == 6 && memcmp(name, "caller", 6) == 0;
        v = i < c->args->npos ? &c->args->pos[i] : take_keyword(c, name, len);
        if (v)
            frame->slots[param->c] = *v;
    }
}

static bool bind_special(struct jinja_rt *rt, const struct macro_call *c, struct jinja_frame *frame,
                         bool found_caller)
{
    const struct jinja_value *v;
    struct jinja_value rest;
    uint32_t i;

    if (c->rec[4] && !found_caller) {
        v = take_keyword(c, "caller", 6);
        frame->slots[c->rec[4] - 1] =
            v && v->kind != JINJA_NONE ? *v : jinja_undefined_hint("No caller defined");
    }
    if (c->rec[5]) {
        if (!jinja_dict_init(rt->arena, c->args->nkw, &rest))
            return jinja_fail_memory(rt);
        for (i = 0; i < c->args->nkw; i++)
            if (!c->used[i] &&
                !jinja_dict_set(rt, rest.u.dict, &c->args->kw[i].key, &c->args->kw[i].value))
                return false;
        frame->slots[c->rec[5] - 1] = rest;
    } else {
        for (i = 0; i < c->args->nkw; i++)
            if (!c->used[i])
                return jinja_fail(rt, JINJA_ERR_TYPE,
                                  "macro '%.*s' takes no keyword argument '%.*s'", (int)c->name_len,
                                  c->name, (int)c->args->kw[i].key.len, c->args->kw[i].key.u.s);
    }
    if (c->rec[6]) {
        if (!jinja_make_list(rt, 0, &rest))
            return false;
        for (i = c->argc; i < c->args->npos; i++)
            if (!jinja_push(rt, rest.u.list, &c->args->pos[i]))
                return false;
        rest.kind = JINJA_TUPLE;
        frame->slots[c->rec[6] - 1] = rest;
    } else if (c->args->npos > c->argc) {
        return jinja_fail(rt, JINJA_ERR_TYPE, "macro '%.*s' takes not more than %u argument(s)",
                          (int)c->name_len, c->name, c->argc);
    }
    return true;
}

/* Defaults are evaluated inside the macro, in order, so they see the parameters before them. */
static bool fill_defaults(struct jinja_rt *rt, const struct macro_call *c,
                          struct jinja_frame *frame)
{
    uint32_t defaults = jinja_list_len(rt, c->rec[1]), i;
    const struct jinja_ast_node *param;
    struct jinja_value v;

    for (i = 0; i < c->argc; i++) {
        param = jinja_node(rt, jinja_list_at(rt, c->rec[0], i));
        if (frame->slots[param->c].kind != JINJA_MISSING)
            continue;
        if (i + defaults >= c->argc) {
            if (!jinja_eval(rt, frame, jinja_list_at(rt, c->rec[1], i + defaults - c->argc), &v))
                return false;
            frame->slots[param->c] = v;
        } else {
            struct jinja_sb sb = {.rt = rt};
            uint32_t len;
            const char *name = jinja_ast_text(rt, param->a, &len);

            if (!jinja_sb_put(&sb, "parameter '", 11) || !jinja_sb_put(&sb, name, len) ||
                !jinja_sb_put(&sb, "' was not provided", 18))
                return false;
            v = jinja_sb_finish(&sb, 0);
            v.kind = JINJA_UNDEFINED;
            v.id = JINJA_UNDEF_HINT;
            frame->slots[param->c] = v;
        }
    }
    return true;
}

static bool run_macro(struct jinja_rt *rt, const struct jinja_macro *macro,
                      const struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_ast_node *n = jinja_node(rt, macro->node);
    struct macro_call c = {
        .args = args, .name = "None", .name_len = 4, .rec = rt->t->lists + n->c + 1};
    struct jinja_frame *frame;
    size_t mark;
    bool found_caller;

    c.argc = jinja_list_len(rt, c.rec[0]);
    if (n->kind == JN_MACRO)
        c.name = jinja_ast_text(rt, n->a, &c.name_len);
    if (args->nkw) {
        c.used = jinja_alloc(rt, args->nkw * sizeof(*c.used));
        if (!c.used)
            return false;
        memset(c.used, 0, args->nkw * sizeof(*c.used));
    }
    if (!jinja_frame_open(rt, macro->frame, c.rec[3], &frame))
        return false;
    bind_params(rt, &c, frame, &found_caller);
    if (!bind_special(rt, &c, frame, found_caller) || !fill_defaults(rt, &c, frame))
        return false;
    mark = rt->out_len;
    switch (jinja_exec_list(rt, frame, c.rec[2])) {
    case JINJA_EXEC_OK:
        return jinja_capture(rt, mark, out);
    case JINJA_EXEC_ERROR:
        return false;
    default:
        return jinja_fail(rt, JINJA_ERR_BLOB, "compiled template is damaged: jump out of a macro");
    }
}

bool jinja_macro_call(struct jinja_rt *rt, const struct jinja_macro *macro,
                      const struct jinja_args *args, struct jinja_value *out)
{
    bool ok = jinja_enter(rt) && run_macro(rt, macro, args, out);

    jinja_leave(rt);
    return ok;
}

static bool exec_macro(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t node)
{
    struct jinja_value v;

    return make_macro(rt, frame, node, &v) && assign(rt, frame, jinja_node(rt, node)->b, &v);
}

static bool exec_call_block(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t node)
{
    const struct jinja_ast_node *n = jinja_node(rt, node);
    struct jinja_value caller, callee, v;
    struct jinja_args args;

    if (!make_macro(rt, frame, node, &caller) || !jinja_eval(rt, frame, n->a, &callee) ||
        !jinja_eval_args(rt, frame, jinja_node(rt, n->b)->b, &caller, &args))
        return false;
    rt->line = n->line;
    return jinja_call(rt, &callee, &args, &v) && emit_value(rt, &v);
}

/* The mark of assistant text for training: here its body is just output, in a scope of its own. */
static bool exec_generation(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t node)
{
    struct jinja_macro macro = {.node = node, .frame = frame};
    struct jinja_args none = {0};
    struct jinja_value v;

    return jinja_macro_call(rt, &macro, &none, &v) && emit_value(rt, &v);
}

/* ---- loops --------------------------------------------------------------------------------- */

/* The next item that passes the loop's filter; MISSING at the end. The filter runs when the item is
 * wanted, so it sees what the body did before. */
static bool loop_fetch(struct jinja_rt *rt, struct jinja_loop *loop, struct jinja_value *out)
{
    struct jinja_value holds;

    while (loop->pos < loop->src->count) {
        *out = loop->src->items[loop->pos++];
        if (loop->gen)
            loop->gen->pos++;
        if (!loop->test)
            return true;
        if (!assign(rt, loop->test_frame, loop->test_target, out) ||
            !jinja_eval(rt, loop->test_frame, loop->test, &holds))
            return false;
        if (jinja_truthy(&holds))
            return true;
    }
    *out = (struct jinja_value){.kind = JINJA_MISSING};
    return true;
}

bool jinja_loop_peek(struct jinja_rt *rt, struct jinja_loop *loop, struct jinja_value *out)
{
    if (loop->after.kind == JINJA_MISSING && !loop_fetch(rt, loop, &loop->after))
        return false;
    *out = loop->after;
    return true;
}

bool jinja_loop_length(struct jinja_rt *rt, struct jinja_loop *loop, int64_t *out)
{
    struct jinja_value rest, v;

    if (loop->length < 0) { /* filtered: take all now */
        if (!jinja_make_list(rt, 0, &rest))
            return false;
        for (;;) {
            if (!loop_fetch(rt, loop, &v))
                return false;
            if (v.kind == JINJA_MISSING)
                break;
            if (!jinja_push(rt, rest.u.list, &v))
                return false;
        }
        loop->src = rest.u.list;
        loop->gen = NULL;
        loop->pos = 0;
        loop->test = 0;
        loop->length = rest.u.list->count + loop->index0 + 1 + (loop->after.kind != JINJA_MISSING);
    }
    *out = loop->length;
    return true;
}

static bool loop_next(struct jinja_rt *rt, struct jinja_loop *loop)
{
    struct jinja_value v = loop->after;

    if (v.kind == JINJA_MISSING && !loop_fetch(rt, loop, &v))
        return false;
    loop->after.kind = JINJA_MISSING;
    loop->before = loop->current;
    loop->current = v;
    loop->index0++;
    return true;
}

static bool loop_open(struct jinja_rt *rt, struct jinja_frame *frame,
                      const struct jinja_ast_node *n, const uint32_t *rec, struct jinja_loop **out)
{
    struct jinja_loop *loop = jinja_alloc(rt, sizeof(*loop));
    struct jinja_value iter;

    if (!loop || !jinja_eval(rt, frame, n->b, &iter))
        return false;
    rt->line = n->line;
    *loop = (struct jinja_loop){.index0 = -1, .test = rec[2], .test_target = rec[3]};
    if (iter.kind == JINJA_GEN) {
        loop->src = iter.u.gen->list;
        loop->gen = iter.u.gen;
        loop->pos = iter.u.gen->pos;
    } else if (!jinja_items(rt, &iter, &loop->src)) {
        return false;
    }
    loop->length = loop->test ? -1 : (int64_t)loop->src->count - loop->pos;
    *out = loop;
    return !loop->test || jinja_frame_open(rt, frame, rec[6], &loop->test_frame);
}

static enum jinja_exec exec_for(struct jinja_rt *rt, struct jinja_frame *frame,
                                const struct jinja_ast_node *n)
{
    const uint32_t *rec = rt->t->lists + n->c + 1;
    struct jinja_frame *body, *other;
    struct jinja_loop *loop;
    enum jinja_exec r = JINJA_EXEC_OK;
    bool finished_one = false;

    if (!loop_open(rt, frame, n, rec, &loop) || !jinja_frame_open(rt, frame, rec[4], &body))
        return JINJA_EXEC_ERROR;
    for (;;) {
        if (!loop_next(rt, loop))
            return JINJA_EXEC_ERROR;
        if (loop->current.kind == JINJA_MISSING)
            break;
        rt->line = n->line;
        if (!jinja_frame_reset(rt, body, rec[4]))
            return JINJA_EXEC_ERROR;
        if (rec[7])
            body->slots[rec[7] - 1] = (struct jinja_value){.kind = JINJA_LOOP, .u.loop = loop};
        if (!assign(rt, body, n->a, &loop->current))
            return JINJA_EXEC_ERROR;
        r = jinja_exec_list(rt, body, rec[0]);
        if (r == JINJA_EXEC_ERROR)
            return r;
        if (r == JINJA_EXEC_BREAK)
            break;
        finished_one |= r == JINJA_EXEC_OK;
    }
    /* jinja2 runs the else part unless an iteration came to its end. */
    if (finished_one || !jinja_list_len(rt, rec[1]))
        return JINJA_EXEC_OK;
    if (!jinja_frame_open(rt, frame, rec[5], &other))
        return JINJA_EXEC_ERROR;
    return jinja_exec_list(rt, other, rec[1]);
}

/* ---- the switch ---------------------------------------------------------------------------- */

static enum jinja_exec exec_if(struct jinja_rt *rt, struct jinja_frame *frame,
                               const struct jinja_ast_node *n)
{
    struct jinja_value test;
    uint32_t i;

    if (!jinja_eval(rt, frame, n->a, &test))
        return JINJA_EXEC_ERROR;
    if (jinja_truthy(&test))
        return jinja_exec_list(rt, frame, n->b);
    for (i = 0; i < jinja_list_len(rt, n->c); i++) {
        const struct jinja_ast_node *branch = jinja_node(rt, jinja_list_at(rt, n->c, i));

        if (!jinja_eval(rt, frame, branch->a, &test))
            return JINJA_EXEC_ERROR;
        if (jinja_truthy(&test))
            return jinja_exec_list(rt, frame, branch->b);
    }
    return jinja_exec_list(rt, frame, n->d);
}

static enum jinja_exec done(bool ok)
{
    return ok ? JINJA_EXEC_OK : JINJA_EXEC_ERROR;
}

static enum jinja_exec exec_node(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t node)
{
    const struct jinja_ast_node *n = jinja_node(rt, node);
    struct jinja_value v;
    uint32_t len;
    const char *text;

    rt->line = n->line;
    switch (n->kind) {
    case JN_DATA:
        text = jinja_ast_text(rt, n->a, &len);
        return done(jinja_emit(rt, text, len));
    case JN_OUTPUT:
        return done(jinja_eval(rt, frame, n->a, &v) && emit_value(rt, &v));
    case JN_FOR:
        return exec_for(rt, frame, n);
    case JN_IF:
        return exec_if(rt, frame, n);
    case JN_SET:
        return done(exec_set(rt, frame, n));
    case JN_SETBLOCK:
        return exec_set_block(rt, frame, n);
    case JN_MACRO:
        return done(exec_macro(rt, frame, node));
    case JN_CALLBLOCK:
        return done(exec_call_block(rt, frame, node));
    case JN_GENERATION:
        return done(exec_generation(rt, frame, node));
    case JN_FILTERBLOCK:
        return exec_filter_block(rt, frame, n);
    case JN_WITH:
        return exec_with(rt, frame, n);
    case JN_BREAK:
        return JINJA_EXEC_BREAK;
    case JN_CONTINUE:
        return JINJA_EXEC_CONTINUE;
    default:
        return done(
            jinja_fail(rt, JINJA_ERR_BLOB, "compiled template is damaged: not a statement"));
    }
}

enum jinja_exec jinja_exec_list(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t list)
{
    uint32_t n = jinja_list_len(rt, list), i;
    enum jinja_exec r = done(jinja_enter(rt));

    for (i = 0; r == JINJA_EXEC_OK && i < n; i++) {
        r = done(jinja_charge(rt, 0));
        if (r == JINJA_EXEC_OK)
            r = exec_node(rt, frame, jinja_list_at(rt, list, i));
    }
    jinja_leave(rt);
    return r;
}
