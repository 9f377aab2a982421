// SPDX-License-Identifier: Apache-2.0
/*
 * Structural tags: text that is free until a trigger, then a tag's content as its schema says.
 * Both notations in use are taken:
 *
 *   {"structures": [{"begin": B, "schema": S, "end": E}], "triggers": [T]}
 *   {"format": F}, F by its type: const_string, json_schema, regex, any_text, sequence, or, tag,
 *       triggered_tags, tags_with_separator
 *
 * Free text is an automaton that knows how much of a trigger has come (Aho and Corasick's): no
 * trigger can stand in it without its tag.
 */
#include <string.h>

#include "runtime/grammar/gr_build.h"
#include "runtime/text/jinja_value.h"

enum { MAX_DEPTH = 50, MAX_STATES = 20000 };

struct text {
    const char *s;
    uint32_t n;
};

static const struct jinja_value *member(const struct jinja_value *v, const char *name)
{
    return v->kind == JINJA_DICT ? jinja_dict_find_str(v->u.dict, name, strlen(name)) : NULL;
}

static struct text text_of(struct gr_build *b, const struct jinja_value *v, const char *name)
{
    const struct jinja_value *x = member(v, name);
    if (!x || x->kind != JINJA_STR) gr_fail(b, 0, "structural tag: %s is not a string", name);
    return (struct text){x->u.s, x->len};
}

static const struct jinja_list *list_of(struct gr_build *b, const struct jinja_value *v,
                                        const char *name)
{
    const struct jinja_value *x = member(v, name);
    if (!x || x->kind != JINJA_LIST || !x->u.list->count)
        gr_fail(b, 0, "structural tag: %s is not a list, or empty", name);
    return x->u.list;
}

static bool flag_of(const struct jinja_value *v, const char *name)
{
    const struct jinja_value *x = member(v, name);
    return x && x->kind == JINJA_BOOL && x->u.b;
}

static struct gr_node *literal(struct gr_build *b, struct text t)
{
    return gr_node_literal(b, t.s, t.n, false);
}

/* ---- free text ---- */

/* State 0 is the beginning; a state for each beginning of a trigger. ends[i]: bit set of triggers
 * that are complete there. */
struct scanner {
    uint16_t (*target)[256];
    uint64_t *ends;
    uint16_t *fall;
    uint32_t n;
};

static struct scanner make_scanner(struct gr_build *b, const struct text *t, uint32_t n)
{
    size_t most = 1;
    for (uint32_t i = 0; i < n; i++) {
        most += t[i].n;
        if (!t[i].n) gr_fail(b, 0, "structural tag: a trigger is empty");
    }
    if (n > 64 || most > MAX_STATES) gr_fail_limit(b, "too many or too long triggers");
    struct scanner s = {.n = 1};
    s.target = gr_alloc(b, most * sizeof *s.target);
    s.ends = gr_alloc(b, most * sizeof *s.ends);
    s.fall = gr_alloc(b, most * sizeof *s.fall);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = 0;
        for (uint32_t k = 0; k < t[i].n; k++) {
            uint16_t *to = &s.target[at][(uint8_t)t[i].s[k]];
            if (!*to) *to = (uint16_t)(++s.n);
            at = *to - 1u;
        }
        s.ends[at] |= UINT64_C(1) << i;
    }
    /* breadth first: a missing way is that of the longest end that is a beginning, too */
    uint16_t *queue = gr_alloc(b, s.n * sizeof *queue);
    uint32_t head = 0, tail = 1;
    while (head < tail) {
        uint32_t at = queue[head++];
        s.ends[at] |= s.ends[s.fall[at]];
        for (unsigned c = 0; c < 256; c++) {
            uint16_t other = at ? s.target[s.fall[at]][c] : 1, *to = &s.target[at][c];
            if (*to) {
                s.fall[*to - 1u] = (uint16_t)(at ? other - 1 : 0);
                queue[tail++] = (uint16_t)(*to - 1);
            } else {
                *to = other;
            }
        }
    }
    return s;
}

/* Text up to the first end of trigger number k, or (GR_NONE) text without any. */
static struct gr_node *free_text(struct gr_build *b, const struct scanner *s, uint32_t k)
{
    struct gr_table *t = gr_alloc(b, sizeof *t);
    struct gr_node *node = gr_node_new(b, GR_TABLE);
    t->n = s->n;
    t->target = gr_alloc(b, s->n * sizeof *t->target);
    t->accepts = gr_alloc(b, s->n * sizeof *t->accepts);
    for (uint32_t i = 0; i < s->n; i++) {
        t->accepts[i] = k == GR_NONE ? !s->ends[i] : s->ends[i] >> k & 1;
        if (!s->ends[i]) memcpy(t->target[i], s->target[i], sizeof t->target[i]);
    }
    node->table = t;
    return node;
}

static struct gr_node *text_without(struct gr_build *b, struct text t)
{
    if (!t.n) {
        struct gr_node *any = gr_node_new(b, GR_BYTES);
        any->max = 255;
        return gr_node_repeat(b, any, 0, GR_MANY);
    }
    struct scanner s = make_scanner(b, &t, 1);
    return free_text(b, &s, GR_NONE);
}

/* ---- formats ---- */

static struct gr_node *format(struct gr_build *b, const struct jinja_value *v, struct text end,
                              unsigned depth);

static struct gr_node *schema(struct gr_build *b, const struct jinja_value *v)
{
    struct gr_node *n = gr_node_new(b, GR_CALL);
    if (!v) gr_fail(b, 0, "structural tag: a schema is missing");
    n->index = GR_CALL_JSON | gr_schema(b, v);
    return n;
}

struct tag {
    struct text begin, end;
    struct gr_node *content;
};

static struct tag read_tag(struct gr_build *b, const struct jinja_value *v, unsigned depth)
{
    struct tag t = {text_of(b, v, "begin"), text_of(b, v, "end"), NULL};
    const struct jinja_value *content = member(v, "content"), *s = member(v, "schema");
    t.content = content ? format(b, content, t.end, depth + 1) : schema(b, s);
    return t;
}

static struct gr_node *tag_from(struct gr_build *b, const struct tag *t, uint32_t skip)
{
    struct text rest = {t->begin.s + skip, t->begin.n - skip};
    struct gr_node *tail = gr_node_cat(b, t->content, literal(b, t->end));
    return gr_node_cat(b, literal(b, rest), tail);
}

static struct gr_node *triggered(struct gr_build *b, const struct jinja_value *v,
                                 const struct jinja_list *tags, unsigned depth)
{
    const struct jinja_list *triggers = list_of(b, v, "triggers");
    struct text *t = gr_alloc(b, triggers->count * sizeof *t);
    bool *used = gr_alloc(b, tags->count);
    struct gr_node *one = NULL;
    for (uint32_t i = 0; i < triggers->count; i++) {
        const struct jinja_value *x = &triggers->items[i];
        if (x->kind != JINJA_STR) gr_fail(b, 0, "structural tag: a trigger is not a string");
        t[i] = (struct text){x->u.s, x->len};
    }
    struct scanner s = make_scanner(b, t, triggers->count);
    for (uint32_t i = 0; i < triggers->count; i++) {
        struct gr_node *any = NULL;
        for (uint32_t k = 0; k < tags->count; k++) {
            struct tag tag = read_tag(b, &tags->items[k], depth);
            if (tag.begin.n < t[i].n || memcmp(tag.begin.s, t[i].s, t[i].n)) continue;
            any = gr_node_alt(b, any, tag_from(b, &tag, t[i].n));
            used[k] = true;
        }
        if (any) one = gr_node_alt(b, one, gr_node_cat(b, free_text(b, &s, i), any));
    }
    for (uint32_t k = 0; k < tags->count; k++)
        if (!used[k]) gr_fail(b, 0, "structural tag: no trigger begins tag number %u", k);
    struct gr_node *rest = free_text(b, &s, GR_NONE);
    bool some = flag_of(v, "at_least_one"), first = flag_of(v, "stop_after_first");
    if (first && some) return one;
    if (first) return gr_node_alt(b, one, rest);
    return gr_node_cat(b, gr_node_repeat(b, one, some, GR_MANY), rest);
}

static struct gr_node *separated(struct gr_build *b, const struct jinja_value *v, unsigned depth)
{
    const struct jinja_list *tags = list_of(b, v, "tags");
    struct gr_node *one = NULL, *all;
    for (uint32_t k = 0; k < tags->count; k++) {
        struct tag tag = read_tag(b, &tags->items[k], depth);
        one = gr_node_alt(b, one, tag_from(b, &tag, 0));
    }
    all = one;
    if (!flag_of(v, "stop_after_first")) {
        struct gr_node *more = gr_node_cat(b, literal(b, text_of(b, v, "separator")), one);
        all = gr_node_cat(b, one, gr_node_repeat(b, more, 0, GR_MANY));
    }
    return flag_of(v, "at_least_one") ? all : gr_node_alt(b, all, gr_node_new(b, GR_EMPTY));
}

static struct gr_node *joined(struct gr_build *b, const struct jinja_value *v, bool row,
                              struct text end, unsigned depth)
{
    const struct jinja_list *l = list_of(b, v, "elements");
    struct gr_node *all = NULL;
    for (uint32_t i = l->count; i-- > 0;) {
        struct gr_node *x = format(b, &l->items[i], end, depth + 1);
        all = row ? gr_node_cat(b, x, all) : gr_node_alt(b, all, x);
    }
    return all;
}

static bool is(struct text t, const char *s) { return strlen(s) == t.n && !memcmp(s, t.s, t.n); }

static struct gr_node *format(struct gr_build *b, const struct jinja_value *v, struct text end,
                              unsigned depth)
{
    struct text type = text_of(b, v, "type");
    if (depth > MAX_DEPTH) gr_fail(b, 0, "structural tag: nested too deeply");
    if (is(type, "const_string")) return literal(b, text_of(b, v, "value"));
    if (is(type, "json_schema")) return schema(b, member(v, "json_schema"));
    if (is(type, "any_text")) return text_without(b, end);
    if (is(type, "sequence")) return joined(b, v, true, end, depth);
    if (is(type, "or")) return joined(b, v, false, end, depth);
    if (is(type, "triggered_tags")) return triggered(b, v, list_of(b, v, "tags"), depth);
    if (is(type, "tags_with_separator")) return separated(b, v, depth);
    if (is(type, "tag")) {
        struct tag t = read_tag(b, v, depth);
        return tag_from(b, &t, 0);
    }
    if (is(type, "regex")) {
        struct text p = text_of(b, v, "pattern");
        return gr_regex_parse(b, p.s, p.n, 0, (struct gr_regex_flags){0});
    }
    gr_fail(b, 0, "structural tag: format '%.*s' is not supported",
            (int)(type.n < 60 ? type.n : 60), type.s);
}

void gr_structural_tag(struct gr_build *b, const char *text, size_t n)
{
    const struct jinja_value *v = gr_read_json(b, text, n, 0);
    struct gr_rules rules = {0};
    if (v->kind != JINJA_DICT) gr_fail(b, 0, "structural tag: not an object");
    const struct jinja_value *f = member(v, "format");
    struct text none = {"", 0};
    struct gr_node *body =
        f ? format(b, f, none, 0) : triggered(b, v, list_of(b, v, "structures"), 0);
    uint32_t root = gr_rules_get(b, &rules, "root", 4, 0);
    rules.v[root].body = body;
    gr_rules_finish(b, &rules, root);
}
