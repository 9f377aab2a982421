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
    snprintf(err->message, sizeof(err->message), "compiled template is damaged: %s (at %u)", what,
             at);
    return false;
}

struct check {
    const struct jinja_template *t;
    uint64_t words; /* list words looked at */
};

static bool list_ok(struct check *c, uint32_t list)
{
    if (list >= c->t->list_count || c->t->lists[list] > c->t->list_count - list - 1)
        return false;
    /* Lists do not overlap in what the compiler writes; if they did, checking could be quadratic.
     */
    c->words += c->t->lists[list];
    return c->words <= 2 * (uint64_t)c->t->list_count;
}

static bool node_list_ok(struct check *c, uint32_t list, uint32_t before)
{
    uint32_t i;

    if (!list_ok(c, list))
        return false;
    for (i = 0; i < c->t->lists[list]; i++)
        if (!c->t->lists[list + 1 + i] || c->t->lists[list + 1 + i] >= before)
            return false;
    return true;
}

static bool scope_ok(struct check *c, uint32_t list)
{
    const uint32_t *w;
    uint32_t i, n;

    if (!list_ok(c, list) || c->t->lists[list] < JINJA_REC_C ||
        (c->t->lists[list] - JINJA_REC_C) % 4)
        return false;
    w = c->t->lists + list + 1;
    n = (c->t->lists[list] - JINJA_REC_C) / 4;
    /* Every slot is named somewhere in the source, so the count cannot exceed the strings. */
    if (w[0] > c->t->str_count + 4)
        return false;
    for (i = 0; i < n; i++) {
        const uint32_t *load = w + JINJA_REC_C + 4 * (size_t)i;

        if (load[0] >= w[0] || load[1] >= JINJA_LOAD_COUNT)
            return false;
        if (load[1] == JINJA_LOAD_RESOLVE && load[2] >= c->t->str_count)
            return false;
    }
    return true;
}

static bool args_ok(struct check *c, uint32_t list, uint32_t before)
{
    const uint32_t *w;
    uint32_t i;

    if (!list_ok(c, list) || c->t->lists[list] < JINJA_REC_A)
        return false;
    w = c->t->lists + list + 1;
    if (w[0] > c->t->list_count || w[1] > c->t->list_count ||
        (uint64_t)w[0] + 2 * (uint64_t)w[1] + JINJA_REC_A != c->t->lists[list])
        return false;
    if (w[2] >= before || w[3] >= before)
        return false;
    for (i = 0; i < w[0]; i++)
        if (!w[JINJA_REC_A + i] || w[JINJA_REC_A + i] >= before)
            return false;
    for (i = 0; i < w[1]; i++) {
        const uint32_t *kw = w + JINJA_REC_A + w[0] + 2 * (size_t)i;

        if (kw[0] >= c->t->str_count || !kw[1] || kw[1] >= before)
            return false;
    }
    return true;
}

static bool pairs_ok(struct check *c, uint32_t list, uint32_t before)
{
    uint32_t i;

    if (!list_ok(c, list) || c->t->lists[list] % 2)
        return false;
    for (i = 0; i < c->t->lists[list]; i += 2) {
        const uint32_t *w = c->t->lists + list + 1 + i;

        if (w[0] >= JINJA_CMP_COUNT || !w[1] || w[1] >= before)
            return false;
    }
    return true;
}

static bool for_ok(struct check *c, uint32_t list, uint32_t before)
{
    const uint32_t *w;

    if (!list_ok(c, list) || c->t->lists[list] != JINJA_REC_F)
        return false;
    w = c->t->lists + list + 1;
    return node_list_ok(c, w[0], before) && node_list_ok(c, w[1], before) && w[2] < before &&
           w[3] < before && !w[2] == !w[3] && scope_ok(c, w[4]) && scope_ok(c, w[5]) &&
           scope_ok(c, w[6]) && w[7] <= c->t->lists[w[4] + 1];
}

static bool macro_ok(struct check *c, uint32_t list, uint32_t before)
{
    const uint32_t *w;
    uint32_t i, slots;

    if (!list_ok(c, list) || c->t->lists[list] != JINJA_REC_M)
        return false;
    w = c->t->lists + list + 1;
    if (!node_list_ok(c, w[0], before) || !node_list_ok(c, w[1], before) ||
        !node_list_ok(c, w[2], before) || !scope_ok(c, w[3]) ||
        c->t->lists[w[1]] > c->t->lists[w[0]])
        return false;
    slots = c->t->lists[w[3] + 1];
    for (i = 0; i < c->t->lists[w[0]]; i++) {
        const struct jinja_ast_node *arg = &c->t->nodes[c->t->lists[w[0] + 1 + i]];

        if (arg->kind != JN_NAME || arg->b != 0 || arg->c >= slots)
            return false;
    }
    return w[4] <= slots && w[5] <= slots && w[6] <= slots;
}

static bool field_ok(struct check *c, char what, uint32_t v, uint32_t self)
{
    switch (what) {
    case 'n':
        return v > 0 && v < self;
    case 'N':
        return v < self;
    case 'l':
        return node_list_ok(c, v, self);
    case 's':
        return v < c->t->str_count;
    case 'S':
        return v < c->t->str_count || v == JINJA_NO_STR;
    case 'A':
        return args_ok(c, v, self);
    case 'P':
        return pairs_ok(c, v, self);
    case 'F':
        return for_ok(c, v, self);
    case 'M':
        return macro_ok(c, v, self);
    case 'C':
        return scope_ok(c, v);
    case '-':
        return v == 0;
    default:
        return true;
    }
}

/* Kinds that a parent takes for granted beyond "some node". */
static bool shape_ok(struct check *c, const struct jinja_ast_node *n)
{
    switch (n->kind) {
    case JN_NSREF:
        return c->t->nodes[n->a].kind == JN_NAME;
    case JN_MACRO:
        return c->t->nodes[n->b].kind == JN_NAME;
    case JN_CALLBLOCK:
        return c->t->nodes[n->b].kind == JN_CALL && c->t->nodes[n->b].a == n->a;
    case JN_FILTERBLOCK:
        return c->t->nodes[n->a].kind == JN_FILTER;
    case JN_SETBLOCK:
        return !n->b || c->t->nodes[n->b].kind == JN_FILTER;
    case JN_DICT:
        return c->t->lists[n->a] % 2 == 0;
    case JN_WITH:
        return c->t->lists[n->a] == c->t->lists[n->b];
    default:
        return true;
    }
}

bool jinja_template_open(const void *data, size_t size_bytes, struct jinja_template *out_template,
                         struct jinja_error *out_err)
{
    struct jinja_ast_header h;
    struct jinja_template t = {0};
    struct check c = {.t = &t};
    uint64_t need, text = 0;
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
        text += t.strs[i].len;
        if (text > t.byte_count || !jinja_utf8_valid(t.bytes + t.strs[i].offset, t.strs[i].len))
            return bad(out_err, "strings overlap or are not UTF-8", i);
    }
    for (i = 1; i < t.node_count; i++) {
        const struct jinja_ast_node *n = &t.nodes[i];
        const uint32_t v[4] = {n->a, n->b, n->c, n->d};

        if (n->kind == JN_INVALID || n->kind >= JN_COUNT)
            return bad(out_err, "unknown node", i);
        for (k = 0; k < 4; k++)
            if (!field_ok(&c, node_fields[n->kind][k], v[k], i))
                return bad(out_err, "bad reference", i);
        if (!shape_ok(&c, n))
            return bad(out_err, "bad operand", i);
    }
    if (!node_list_ok(&c, t.root_body, t.node_count) || !scope_ok(&c, t.root_scope))
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
