// SPDX-License-Identifier: Apache-2.0
/* Opening compiled templates: every index is checked here once, so the evaluator need not. */
#include <stdio.h>
#include <string.h>

#include "runtime/text/jinja.h"
#include "runtime/text/jinja_ast.h"
#include "runtime/text/jinja_unicode.h"

static const char *const node_fields[JN_COUNT] = {
    [JN_INVALID] = "----",
#define NODE(kind, fields, what) [JN_##kind] = fields,
#include "runtime/text/jinja_nodes.def"
#undef NODE
};

static bool bad(struct jinja_error *err, const char *what, uint32_t at)
{
    err->code = JINJA_ERR_BLOB;
    err->line = 0;
    snprintf(err->message, sizeof(err->message), "compiled template is damaged: %s (at %u)", what, at);
    return false;
}

static bool list_ok(const struct jinja_template *t, uint32_t list)
{
    return list < t->list_count && t->lists[list] <= t->list_count - list - 1;
}

static bool node_list_ok(const struct jinja_template *t, uint32_t list, uint32_t before)
{
    uint32_t i;

    if (!list_ok(t, list))
        return false;
    for (i = 0; i < t->lists[list]; i++)
        if (!t->lists[list + 1 + i] || t->lists[list + 1 + i] >= before)
            return false;
    return true;
}

static bool scope_ok(const struct jinja_template *t, uint32_t list)
{
    const uint32_t *w;
    uint32_t i, n;

    if (!list_ok(t, list) || t->lists[list] < JINJA_REC_C || (t->lists[list] - JINJA_REC_C) % 4)
        return false;
    w = t->lists + list + 1;
    n = (t->lists[list] - JINJA_REC_C) / 4;
    /* Every slot is named somewhere in the source, so the count cannot exceed the strings. */
    if (w[0] > t->str_count + 4)
        return false;
    for (i = 0; i < n; i++) {
        const uint32_t *load = w + JINJA_REC_C + 4 * (size_t)i;

        if (load[0] >= w[0] || load[1] >= JINJA_LOAD_COUNT)
            return false;
        if (load[1] == JINJA_LOAD_RESOLVE && load[2] >= t->str_count)
            return false;
    }
    return true;
}

static bool args_ok(const struct jinja_template *t, uint32_t list, uint32_t before)
{
    const uint32_t *w;
    uint32_t i;

    if (!list_ok(t, list) || t->lists[list] < JINJA_REC_A)
        return false;
    w = t->lists + list + 1;
    if (w[0] > t->list_count || w[1] > t->list_count ||
        (uint64_t)w[0] + 2 * (uint64_t)w[1] + JINJA_REC_A != t->lists[list])
        return false;
    if (w[2] >= before || w[3] >= before)
        return false;
    for (i = 0; i < w[0]; i++)
        if (!w[JINJA_REC_A + i] || w[JINJA_REC_A + i] >= before)
            return false;
    for (i = 0; i < w[1]; i++) {
        const uint32_t *kw = w + JINJA_REC_A + w[0] + 2 * (size_t)i;

        if (kw[0] >= t->str_count || !kw[1] || kw[1] >= before)
            return false;
    }
    return true;
}

static bool pairs_ok(const struct jinja_template *t, uint32_t list, uint32_t before)
{
    uint32_t i;

    if (!list_ok(t, list) || t->lists[list] % 2)
        return false;
    for (i = 0; i < t->lists[list]; i += 2) {
        const uint32_t *w = t->lists + list + 1 + i;

        if (w[0] >= JINJA_CMP_COUNT || !w[1] || w[1] >= before)
            return false;
    }
    return true;
}

static bool for_ok(const struct jinja_template *t, uint32_t list, uint32_t before)
{
    const uint32_t *w;

    if (!list_ok(t, list) || t->lists[list] != JINJA_REC_F)
        return false;
    w = t->lists + list + 1;
    return node_list_ok(t, w[0], before) && node_list_ok(t, w[1], before) && w[2] < before &&
           w[3] < before && !w[2] == !w[3] && scope_ok(t, w[4]) && scope_ok(t, w[5]) &&
           scope_ok(t, w[6]) && w[7] <= t->lists[w[4] + 1];
}

static bool macro_ok(const struct jinja_template *t, uint32_t list, uint32_t before)
{
    const uint32_t *w;
    uint32_t i, slots;

    if (!list_ok(t, list) || t->lists[list] != JINJA_REC_M)
        return false;
    w = t->lists + list + 1;
    if (!node_list_ok(t, w[0], before) || !node_list_ok(t, w[1], before) ||
        !node_list_ok(t, w[2], before) || !scope_ok(t, w[3]) || t->lists[w[1]] > t->lists[w[0]])
        return false;
    slots = t->lists[w[3] + 1];
    for (i = 0; i < t->lists[w[0]]; i++) {
        const struct jinja_ast_node *arg = &t->nodes[t->lists[w[0] + 1 + i]];

        if (arg->kind != JN_NAME || arg->b != 0 || arg->c >= slots)
            return false;
    }
    return w[4] <= slots && w[5] <= slots && w[6] <= slots;
}

static bool field_ok(const struct jinja_template *t, char what, uint32_t v, uint32_t self)
{
    switch (what) {
    case 'n':
        return v > 0 && v < self;
    case 'N':
        return v < self;
    case 'l':
        return node_list_ok(t, v, self);
    case 's':
        return v < t->str_count;
    case 'S':
        return v < t->str_count || v == JINJA_NO_STR;
    case 'A':
        return args_ok(t, v, self);
    case 'P':
        return pairs_ok(t, v, self);
    case 'F':
        return for_ok(t, v, self);
    case 'M':
        return macro_ok(t, v, self);
    case 'C':
        return scope_ok(t, v);
    case '-':
        return v == 0;
    default:
        return true;
    }
}

/* Kinds that a parent takes for granted beyond "some node". */
static bool shape_ok(const struct jinja_template *t, const struct jinja_ast_node *n)
{
    switch (n->kind) {
    case JN_NSREF:
        return t->nodes[n->a].kind == JN_NAME;
    case JN_MACRO:
        return t->nodes[n->b].kind == JN_NAME;
    case JN_CALLBLOCK:
        return t->nodes[n->b].kind == JN_CALL && t->nodes[n->b].a == n->a;
    case JN_FILTERBLOCK:
        return t->nodes[n->a].kind == JN_FILTER;
    case JN_SETBLOCK:
        return !n->b || t->nodes[n->b].kind == JN_FILTER;
    case JN_DICT:
        return t->lists[n->a] % 2 == 0;
    case JN_WITH:
        return t->lists[n->a] == t->lists[n->b];
    default:
        return true;
    }
}

bool jinja_template_open(const void *data, size_t size_bytes, struct jinja_template *out_template,
                         struct jinja_error *out_err)
{
    struct jinja_ast_header h;
    struct jinja_template t = {0};
    uint64_t need;
    uint32_t i, k;

    memset(out_template, 0, sizeof(*out_template));
    if (!data || ((uintptr_t)data & 3) || size_bytes < sizeof(h))
        return bad(out_err, "too short or not aligned", 0);
    memcpy(&h, data, sizeof(h));
    if (h.magic != JINJA_AST_MAGIC || h.version != JINJA_AST_VERSION)
        return bad(out_err, "not a compiled template of this version", 0);
    need = sizeof(h) + (uint64_t)h.node_count * sizeof(struct jinja_ast_node) +
           (uint64_t)h.list_count * 4 + (uint64_t)h.str_count * sizeof(struct jinja_ast_str) +
           h.byte_count;
    if (need != size_bytes)
        return bad(out_err, "size does not match its counts", 0);
    t.node_count = h.node_count;
    t.list_count = h.list_count;
    t.str_count = h.str_count;
    t.byte_count = h.byte_count;
    t.nodes = (const void *)((const char *)data + sizeof(h));
    t.lists = (const void *)(t.nodes + t.node_count);
    t.strs = (const void *)(t.lists + t.list_count);
    t.bytes = (const char *)(t.strs + t.str_count);
    t.root_body = h.root_body;
    t.root_scope = h.root_scope;
    if (!t.node_count || t.nodes[0].kind != JN_INVALID || !t.list_count || t.lists[0] != 0)
        return bad(out_err, "no null entries", 0);
    for (i = 0; i < t.str_count; i++) {
        if (t.strs[i].offset > t.byte_count || t.strs[i].len > t.byte_count - t.strs[i].offset)
            return bad(out_err, "string out of range", i);
        if (!jinja_utf8_valid(t.bytes + t.strs[i].offset, t.strs[i].len))
            return bad(out_err, "string is not UTF-8", i);
    }
    for (i = 1; i < t.node_count; i++) {
        const struct jinja_ast_node *n = &t.nodes[i];
        const uint32_t v[4] = {n->a, n->b, n->c, n->d};

        if (n->kind == JN_INVALID || n->kind >= JN_COUNT)
            return bad(out_err, "unknown node", i);
        for (k = 0; k < 4; k++)
            if (!field_ok(&t, node_fields[n->kind][k], v[k], i))
                return bad(out_err, "bad reference", i);
        if (!shape_ok(&t, n))
            return bad(out_err, "bad operand", i);
    }
    if (!node_list_ok(&t, t.root_body, t.node_count) || !scope_ok(&t, t.root_scope))
        return bad(out_err, "bad root", 0);
    *out_template = t;
    return true;
}

const char *jinja_status_name(enum jinja_status code)
{
    switch (code) {
    case JINJA_OK:
        return "ok";
    case JINJA_ERR_SYNTAX:
        return "syntax";
    case JINJA_ERR_UNSUPPORTED:
        return "unsupported";
    case JINJA_ERR_RAISED:
        return "raised";
    case JINJA_ERR_UNDEFINED:
        return "undefined";
    case JINJA_ERR_TYPE:
        return "type";
    case JINJA_ERR_SECURITY:
        return "security";
    case JINJA_ERR_LIMIT:
        return "limit";
    case JINJA_ERR_MEMORY:
        return "memory";
    case JINJA_ERR_BLOB:
        return "blob";
    }
    return "unknown";
}
