// SPDX-License-Identifier: Apache-2.0
/* Evaluates expression nodes. One C frame of jinja_eval per nested expression, counted. */
#include <string.h>

#include "runtime/text/jinja_rt.h"

static bool eval_name(struct jinja_rt *rt, struct jinja_frame *frame,
                      const struct jinja_ast_node *n, struct jinja_value *out)
{
    uint32_t hops, len;
    const char *name;

    for (hops = n->b; hops && frame; hops--)
        frame = frame->parent;
    if (!frame || n->c >= frame->count)
        return jinja_fail(rt, JINJA_ERR_BLOB, "compiled template is damaged: bad variable");
    *out = frame->slots[n->c];
    if (out->kind == JINJA_MISSING) {
        name = jinja_ast_text(rt, n->a, &len);
        *out = jinja_undefined_name(name, len);
    }
    return true;
}

static bool eval_list(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t list,
                      enum jinja_kind kind, struct jinja_value *out)
{
    uint32_t n = jinja_list_len(rt, list), i;
    struct jinja_value v;

    if (!jinja_make_list(rt, n, out))
        return false;
    out->kind = (uint8_t)kind;
    for (i = 0; i < n; i++)
        if (!jinja_eval(rt, frame, jinja_list_at(rt, list, i), &v) ||
            !jinja_push(rt, out->u.list, &v))
            return false;
    return true;
}

static bool eval_dict(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t list,
                      struct jinja_value *out)
{
    uint32_t n = jinja_list_len(rt, list), i;
    struct jinja_value key, value;

    if (!jinja_dict_init(rt->arena, n / 2, out))
        return jinja_fail_memory(rt);
    for (i = 0; i + 1 < n; i += 2)
        if (!jinja_eval(rt, frame, jinja_list_at(rt, list, i), &key) ||
            !jinja_eval(rt, frame, jinja_list_at(rt, list, i + 1), &value) ||
            !jinja_dict_set(rt, out->u.dict, &key, &value))
            return false;
    return true;
}

static bool eval_concat(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t list,
                        struct jinja_value *out)
{
    uint32_t n = jinja_list_len(rt, list), i = 0;
    struct jinja_sb sb = {.rt = rt};
    struct jinja_value parts, head = {.kind = JINJA_MISSING};

    /* All operands before any text: evaluating one may allocate and end the growing in place. */
    if (!eval_list(rt, frame, list, JINJA_LIST, &parts))
        return false;
    if (n && parts.u.list->items[0].kind == JINJA_STR) { /* often a text that is built up */
        head = parts.u.list->items[i++];
        head.flags &= (uint8_t)~JINJA_F_MARKUP;
    }
    for (; i < n; i++)
        if (!jinja_put_str(&sb, &parts.u.list->items[i]))
            return false;
    *out = jinja_sb_finish(&sb, 0);
    return head.kind == JINJA_MISSING || jinja_concat(rt, &head, out, out);
}

/* a < b < c: every operand once, and none after the first comparison that fails. */
static bool eval_compare(struct jinja_rt *rt, struct jinja_frame *frame,
                         const struct jinja_ast_node *n, struct jinja_value *out)
{
    uint32_t count = jinja_list_len(rt, n->b), i;
    struct jinja_value left, right;
    bool holds = true;

    if (!jinja_eval(rt, frame, n->a, &left))
        return false;
    for (i = 0; holds && i < count; i += 2) {
        if (!jinja_eval(rt, frame, jinja_list_at(rt, n->b, i + 1), &right))
            return false;
        rt->line = n->line;
        if (!jinja_compare(rt, (enum jinja_cmp)jinja_list_at(rt, n->b, i), &left, &right, &holds))
            return false;
        left = right;
    }
    *out = jinja_bool(holds);
    return true;
}

static bool eval_slice(struct jinja_rt *rt, struct jinja_frame *frame,
                       const struct jinja_ast_node *n, struct jinja_value *out)
{
    struct jinja_value obj, part[3] = {{0}, {0}, {0}};
    const uint32_t nodes[3] = {n->b, n->c, n->d};
    int i;

    if (!jinja_eval(rt, frame, n->a, &obj))
        return false;
    for (i = 0; i < 3; i++)
        if (nodes[i] && !jinja_eval(rt, frame, nodes[i], &part[i]))
            return false;
    rt->line = n->line;
    return jinja_slice(rt, &obj, &part[0], &part[1], &part[2], out);
}

/* ---- arguments ----------------------------------------------------------------------------- */

static bool push_kwarg(struct jinja_rt *rt, struct jinja_dict *kw, const struct jinja_value *key,
                       const struct jinja_value *value)
{
    if (key->kind != JINJA_STR)
        return jinja_fail(rt, JINJA_ERR_TYPE, "keywords must be strings");
    if (jinja_dict_find(kw, key))
        return jinja_fail(rt, JINJA_ERR_TYPE, "got multiple values for keyword argument '%.*s'",
                          (int)key->len, key->u.s);
    return jinja_dict_set(rt, kw, key, value);
}

/* *args and **kwargs; caller is not NULL for call blocks. */
static bool eval_dynamic(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t rec,
                         struct jinja_list *pos, struct jinja_dict *kw)
{
    struct jinja_value v;
    struct jinja_list *list;
    uint32_t i;

    if (jinja_list_at(rt, rec, 2)) {
        if (!jinja_eval(rt, frame, jinja_list_at(rt, rec, 2), &v) || !jinja_items(rt, &v, &list))
            return false;
        for (i = 0; i < list->count; i++)
            if (!jinja_push(rt, pos, &list->items[i]))
                return false;
    }
    if (jinja_list_at(rt, rec, 3)) {
        if (!jinja_eval(rt, frame, jinja_list_at(rt, rec, 3), &v))
            return false;
        if (v.kind != JINJA_DICT)
            return jinja_fail(rt, JINJA_ERR_TYPE, "argument after ** must be a mapping, not %s",
                              jinja_type_name(&v));
        for (i = 0; i < v.u.dict->count; i++)
            if (!push_kwarg(rt, kw, &v.u.dict->pairs[i].key, &v.u.dict->pairs[i].value))
                return false;
    }
    return true;
}

bool jinja_eval_args(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t rec,
                     const struct jinja_value *caller, struct jinja_args *out)
{
    uint32_t npos = jinja_list_at(rt, rec, 0), nkw = jinja_list_at(rt, rec, 1), i, at;
    struct jinja_value pos, kw, v, key;

    *out = (struct jinja_args){0};
    if (!npos && !nkw && !caller && !jinja_list_at(rt, rec, 2) && !jinja_list_at(rt, rec, 3))
        return true;
    if (!jinja_make_list(rt, npos, &pos))
        return false;
    for (i = 0; i < npos; i++)
        if (!jinja_eval(rt, frame, jinja_list_at(rt, rec, JINJA_REC_A + i), &v) ||
            !jinja_push(rt, pos.u.list, &v))
            return false;
    if (!jinja_dict_init(rt->arena, nkw + (caller != NULL), &kw))
        return jinja_fail_memory(rt);
    for (i = 0; i < nkw; i++) {
        at = JINJA_REC_A + npos + 2 * i;
        key.u.s = jinja_ast_text(rt, jinja_list_at(rt, rec, at), &key.len);
        key = jinja_str_trusted(key.u.s, key.len);
        if (!jinja_eval(rt, frame, jinja_list_at(rt, rec, at + 1), &v) ||
            !push_kwarg(rt, kw.u.dict, &key, &v))
            return false;
    }
    if (caller) {
        key = jinja_str_trusted("caller", 6);
        if (!push_kwarg(rt, kw.u.dict, &key, caller))
            return false;
    }
    if (!eval_dynamic(rt, frame, rec, pos.u.list, kw.u.dict))
        return false;
    *out = (struct jinja_args){.pos = pos.u.list->items,
                               .npos = pos.u.list->count,
                               .kw = kw.u.dict->pairs,
                               .nkw = kw.u.dict->count};
    return true;
}

static bool eval_call(struct jinja_rt *rt, struct jinja_frame *frame,
                      const struct jinja_ast_node *n, struct jinja_value *out)
{
    struct jinja_value callee;
    struct jinja_args args;

    if (!jinja_eval(rt, frame, n->a, &callee) || !jinja_eval_args(rt, frame, n->b, NULL, &args))
        return false;
    rt->line = n->line;
    return jinja_call(rt, &callee, &args, out);
}

bool jinja_eval_filter(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t node,
                       const struct jinja_value *captured, struct jinja_value *out)
{
    const struct jinja_ast_node *n = jinja_node(rt, node);
    struct jinja_value v;
    struct jinja_args args;
    uint32_t len;
    const char *name;
    bool ok = jinja_enter(rt);

    if (!ok) {
        /* reported */
    } else if (n->a && jinja_node(rt, n->a)->kind == JN_FILTER && captured) {
        ok = jinja_eval_filter(rt, frame, n->a, captured, &v);
    } else if (n->a) {
        ok = jinja_eval(rt, frame, n->a, &v);
    } else if (captured) {
        v = *captured;
    } else {
        ok = jinja_fail(rt, JINJA_ERR_BLOB, "compiled template is damaged: filter of nothing");
    }
    ok = ok && jinja_eval_args(rt, frame, n->b, NULL, &args);
    if (ok) {
        rt->line = n->line;
        name = jinja_ast_text(rt, n->d, &len);
        ok = jinja_apply_filter(rt, n->c, name, len, &v, &args, out);
    }
    jinja_leave(rt);
    return ok;
}

static bool eval_test(struct jinja_rt *rt, struct jinja_frame *frame,
                      const struct jinja_ast_node *n, struct jinja_value *out)
{
    struct jinja_value v;
    struct jinja_args args;
    uint32_t len;
    const char *name;
    bool holds;

    if (!jinja_eval(rt, frame, n->a, &v) || !jinja_eval_args(rt, frame, n->b, NULL, &args))
        return false;
    rt->line = n->line;
    name = jinja_ast_text(rt, n->d, &len);
    if (!jinja_apply_test(rt, n->c, name, len, &v, &args, &holds))
        return false;
    *out = jinja_bool(holds);
    return true;
}

/* ---- the switch ---------------------------------------------------------------------------- */

static bool eval_two(struct jinja_rt *rt, struct jinja_frame *frame, const struct jinja_ast_node *n,
                     struct jinja_value *a, struct jinja_value *b)
{
    bool ok = jinja_eval(rt, frame, n->a, a) && jinja_eval(rt, frame, n->b, b);

    rt->line = ok ? n->line : rt->line;
    return ok;
}

static bool eval_operator(struct jinja_rt *rt, struct jinja_frame *frame,
                          const struct jinja_ast_node *n, struct jinja_value *out)
{
    struct jinja_value a, b;

    switch (n->kind) {
    case JN_NEG:
    case JN_POS:
        if (!jinja_eval(rt, frame, n->a, &a))
            return false;
        rt->line = n->line;
        return jinja_negate(rt, &a, n->kind == JN_POS, out);
    case JN_NOT:
        if (!jinja_eval(rt, frame, n->a, &a))
            return false;
        *out = jinja_bool(!jinja_truthy(&a));
        return true;
    case JN_AND:
    case JN_OR:
        if (!jinja_eval(rt, frame, n->a, out))
            return false;
        if (jinja_truthy(out) == (n->kind == JN_OR))
            return true;
        return jinja_eval(rt, frame, n->b, out);
    case JN_GETITEM:
        return eval_two(rt, frame, n, &a, &b) && jinja_getitem(rt, &a, &b, out);
    default:
        return eval_two(rt, frame, n, &a, &b) &&
               jinja_binary(rt, (enum jinja_node_kind)n->kind, &a, &b, out);
    }
}

static bool eval_cond(struct jinja_rt *rt, struct jinja_frame *frame,
                      const struct jinja_ast_node *n, struct jinja_value *out)
{
    struct jinja_value test;

    if (!jinja_eval(rt, frame, n->a, &test))
        return false;
    if (jinja_truthy(&test))
        return jinja_eval(rt, frame, n->b, out);
    if (n->c)
        return jinja_eval(rt, frame, n->c, out);
    *out = jinja_undefined_hint(
        "the inline if-expression evaluated to false and no else section was defined.");
    return true;
}

static bool eval_getattr(struct jinja_rt *rt, struct jinja_frame *frame,
                         const struct jinja_ast_node *n, struct jinja_value *out)
{
    struct jinja_value obj, name;
    uint32_t len;
    const char *text;

    if (!jinja_eval(rt, frame, n->a, &obj))
        return false;
    rt->line = n->line;
    text = jinja_ast_text(rt, n->b, &len);
    name = jinja_str_trusted(text, len);
    return jinja_getattr(rt, &obj, &name, out);
}

static bool eval_number(const struct jinja_ast_node *n, struct jinja_value *out)
{
    uint64_t bits = (uint64_t)n->b << 32 | n->a;
    double f;

    memcpy(&f, &bits, sizeof(f));
    *out = n->kind == JN_INT ? jinja_int((int64_t)bits) : jinja_float(f);
    return true;
}

static bool eval_node(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t node,
                      struct jinja_value *out)
{
    const struct jinja_ast_node *n = jinja_node(rt, node);
    uint32_t len;
    const char *text;

    rt->line = n->line;
    switch (n->kind) {
    case JN_NONE:
        *out = jinja_none();
        return true;
    case JN_TRUE:
    case JN_FALSE:
        *out = jinja_bool(n->kind == JN_TRUE);
        return true;
    case JN_INT:
    case JN_FLOAT:
        return eval_number(n, out);
    case JN_STR:
        text = jinja_ast_text(rt, n->a, &len);
        *out = jinja_str_trusted(text, len);
        return true;
    case JN_NAME:
        return eval_name(rt, frame, n, out);
    case JN_TUPLE:
        return eval_list(rt, frame, n->a, JINJA_TUPLE, out);
    case JN_LIST:
        return eval_list(rt, frame, n->a, JINJA_LIST, out);
    case JN_DICT:
        return eval_dict(rt, frame, n->a, out);
    case JN_CONCAT:
        return eval_concat(rt, frame, n->a, out);
    case JN_COMPARE:
        return eval_compare(rt, frame, n, out);
    case JN_GETATTR:
        return eval_getattr(rt, frame, n, out);
    case JN_SLICE:
        return eval_slice(rt, frame, n, out);
    case JN_CALL:
        return eval_call(rt, frame, n, out);
    case JN_FILTER:
        return jinja_eval_filter(rt, frame, node, NULL, out);
    case JN_TEST:
        return eval_test(rt, frame, n, out);
    case JN_COND:
        return eval_cond(rt, frame, n, out);
    default:
        if (n->kind >= JN_NEG && n->kind <= JN_GETITEM)
            return eval_operator(rt, frame, n, out);
        return jinja_fail(rt, JINJA_ERR_BLOB, "compiled template is damaged: not an expression");
    }
}

bool jinja_eval(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t node,
                struct jinja_value *out)
{
    bool ok = jinja_enter(rt) && eval_node(rt, frame, node, out);

    jinja_leave(rt);
    return ok;
}
