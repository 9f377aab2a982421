// SPDX-License-Identifier: Apache-2.0
/* Places of subschemas, URIs, references. Nothing is ever fetched. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/grammar/js.h"

/* ---- messages ---- */

static void put(char *out, size_t *at, const char *s, size_t n)
{
    for (size_t i = 0; i < n && *at + 1 < GR_POINTER_BYTES; i++) out[(*at)++] = s[i];
    out[*at] = '\0';
}

static void put_key(char *out, size_t *at, struct js_text key)
{
    put(out, at, "/", 1);
    for (uint32_t i = 0; i < key.n; i++) {
        if (key.s[i] == '~')
            put(out, at, "~0", 2);
        else if (key.s[i] == '/')
            put(out, at, "~1", 2);
        else
            put(out, at, key.s + i, 1);
    }
}

static void put_place(char *out, size_t *at, const struct js_schema *s)
{
    char number[16];
    if (!s->parent) {
        put(out, at, "#", 1);
        return;
    }
    put_place(out, at, s->parent);
    if (s->index == GR_NONE) {
        put_key(out, at, s->key);
    } else {
        int n = snprintf(number, sizeof number, "/%u", s->index);
        put(out, at, number, (size_t)n);
    }
}

void js_fail(struct js *j, const struct js_schema *at, const char *keyword, const char *fmt, ...)
{
    struct gr_error *e = j->b->error;
    size_t n = 0;
    va_list ap;
    put_place(e->pointer, &n, at);
    if (keyword) put_key(e->pointer, &n, (struct js_text){keyword, (uint32_t)strlen(keyword)});
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    longjmp(j->b->out_of_here, 1);
}

void js_pattern_place(struct js *j, const struct js_schema *at, const char *keyword)
{
    size_t n = 0;
    put_place(j->b->error->pointer, &n, at);
    put_key(j->b->error->pointer, &n, (struct js_text){keyword, (uint32_t)strlen(keyword)});
}

/* ---- places ---- */

static uint32_t address_hash(const void *p) { return (uint32_t)gr_mix((uintptr_t)p); }

static void grow_index(struct js *j)
{
    if (j->schemas.n * 2 < j->by_value_cap) return;
    j->by_value_cap = j->by_value_cap ? j->by_value_cap * 2 : 256;
    j->by_value = gr_alloc(j->b, j->by_value_cap * sizeof(struct js_schema *));
    for (uint32_t i = 0; i < j->schemas.n; i++) {
        uint32_t at = address_hash(j->schemas.v[i]->v) & (j->by_value_cap - 1);
        while (j->by_value[at]) at = (at + 1) & (j->by_value_cap - 1);
        j->by_value[at] = j->schemas.v[i];
    }
}

/* The value in this scope; a new one is all zero behind v, scope and id. */
static struct js_schema *intern(struct js *j, const struct jinja_value *v, uint32_t scope)
{
    grow_index(j);
    uint32_t at = address_hash(v) & (j->by_value_cap - 1);
    for (; j->by_value[at]; at = (at + 1) & (j->by_value_cap - 1))
        if (j->by_value[at]->v == v && j->by_value[at]->scope == scope) return j->by_value[at];
    struct js_schema *s = gr_alloc(j->b, sizeof *s);
    gr_work(j->b, 4);
    s->v = v, s->scope = scope, s->id = ++j->n_ids;
    GR_PUSH(j->b, &j->schemas, s);
    j->by_value[at] = s;
    return s;
}

/* A place, whatever the way to it. */
static struct js_schema *place(struct js *j, struct js_schema *parent, const struct jinja_value *v,
                               struct js_text key, uint32_t index)
{
    uint32_t known = j->n_ids;
    struct js_schema *s = intern(j, v, 0);
    if (s->id <= known) return s;
    s->parent = parent, s->key = key, s->index = index;
    if (parent) s->base = parent->base, s->draft = parent->draft;
    return s;
}

static uint32_t enter(struct js *j, uint32_t scope, struct js_text uri);

/* A place on a way that was in this scope. */
static struct js_schema *scoped(struct js *j, struct js_schema *s, uint32_t scope)
{
    scope = enter(j, scope, s->base);
    uint32_t known = j->n_ids;
    struct js_schema *x = scope ? intern(j, s->v, scope) : s;
    if (x->id <= known) return x;
    x->parent = s->parent, x->key = s->key, x->index = s->index;
    x->base = s->base, x->draft = s->draft;
    return x;
}

struct js_schema *js_schema_child(struct js *j, struct js_schema *parent,
                                  const struct jinja_value *v, struct js_text key, uint32_t index)
{
    return scoped(j, place(j, parent, v, key, index), parent ? parent->scope : 0);
}

struct js_schema *js_schema_either(struct js *j, struct js_schema *s, struct js_literals l)
{
    struct js_schema *x = gr_alloc(j->b, sizeof *x);
    *x = *s;
    x->id = ++j->n_ids, x->either = l;
    for (int i = 0; i < 2; i++) x->clauses[i] = NULL, x->busy[i] = false;
    return x;
}

struct js_schema *js_schema_made(struct js *j, struct js_schema *s, const struct jinja_value *v)
{
    struct js_schema *x = js_schema_child(j, s->parent, v, s->key, s->index);
    x->base = s->base, x->draft = s->draft;
    return x;
}

const struct jinja_value *js_get(const struct js_schema *s, const char *keyword)
{
    if (s->v->kind != JINJA_DICT) return NULL;
    return jinja_dict_find_str(s->v->u.dict, keyword, strlen(keyword));
}

struct js_schema *js_schema_member(struct js *j, struct js_schema *s, const char *keyword)
{
    const struct jinja_value *v = js_get(s, keyword);
    struct js_text key = {keyword, (uint32_t)strlen(keyword)};
    return v ? js_schema_child(j, s, v, key, GR_NONE) : NULL;
}

/* ---- URIs ---- */

static const char *find(struct js_text t, char c)
{
    return t.n ? memchr(t.s, c, t.n) : NULL;
}

/* Length of "scheme:" at the beginning, or 0. */
static uint32_t scheme_length(struct js_text t)
{
    for (uint32_t i = 0; i < t.n; i++) {
        char c = t.s[i];
        if (c == ':') return i ? i + 1 : 0;
        bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        if (!letter && (!i || !((c >= '0' && c <= '9') || c == '+' || c == '.' || c == '-'))) break;
    }
    return 0;
}

/* "scheme://authority" */
static uint32_t origin_length(struct js_text t)
{
    uint32_t n = scheme_length(t);
    if (t.n < n + 2 || t.s[n] != '/' || t.s[n + 1] != '/') return n;
    for (n += 2; n < t.n && t.s[n] != '/' && t.s[n] != '?'; n++) {}
    return n;
}

static struct js_text join(struct js *j, struct js_text a, struct js_text b)
{
    char *s = gr_alloc(j->b, (size_t)a.n + b.n);
    if (a.n) memcpy(s, a.s, a.n);
    if (b.n) memcpy(s + a.n, b.s, b.n);
    return (struct js_text){s, a.n + b.n};
}

/* Takes . and .. segments out of the path behind the origin. */
static struct js_text without_dots(struct js *j, struct js_text t)
{
    uint32_t from = origin_length(t), n = from;
    char *out = gr_alloc(j->b, t.n);
    memcpy(out, t.s, from);
    for (uint32_t i = from; i < t.n;) {
        uint32_t end = i + 1;
        while (end < t.n && t.s[end] != '/') end++;
        uint32_t begin = i + (t.s[i] == '/');
        bool one = end - begin == 1 && t.s[begin] == '.';
        bool two = end - begin == 2 && t.s[begin] == '.' && t.s[begin + 1] == '.';
        if (two)
            while (n > from && out[--n] != '/') {}
        if (!one && !two) {
            memcpy(out + n, t.s + i, end - i);
            n += end - i;
        } else if (end == t.n) {
            out[n++] = '/';
        }
        i = end;
    }
    return (struct js_text){out, n};
}

/* RFC 3986's reference resolution; neither has a fragment. */
static struct js_text resolve_uri(struct js *j, struct js_text base, struct js_text ref)
{
    struct js_text part = base;
    if (!ref.n) return base;
    if (scheme_length(ref)) return ref;
    if (ref.n >= 2 && ref.s[0] == '/' && ref.s[1] == '/')
        part.n = scheme_length(base);
    else if (ref.s[0] == '/')
        part.n = origin_length(base);
    else
        while (part.n > origin_length(base) && part.s[part.n - 1] != '/') part.n--;
    if (part.n && part.n == origin_length(base) && ref.s[0] != '/' && part.s[part.n - 1] != ':')
        part = join(j, part, (struct js_text){"/", 1});
    return without_dots(j, join(j, part, ref));
}

static struct js_text cut_fragment(struct js_text t, struct js_text *fragment)
{
    const char *hash = find(t, '#');
    *fragment = (struct js_text){"", 0};
    if (!hash) return t;
    struct js_text uri = {t.s, (uint32_t)(hash - t.s)};
    *fragment = (struct js_text){hash + 1, t.n - uri.n - 1};
    return uri;
}

/* ---- resources ---- */

/* The anchor that $recursiveAnchor makes: no name that a document can give. */
#define RECURSIVE ((struct js_text){"\x01", 1})

static void add_resource(struct js *j, struct js_text uri, struct js_text anchor,
                         struct js_schema *s, bool dynamic)
{
    struct js_resource r = {uri, anchor, s, dynamic, false};
    gr_work(j->b, j->resources.n + 1);
    for (uint32_t i = 0; i < j->resources.n; i++) {
        struct js_resource *x = &j->resources.v[i];
        if (js_same(x->uri, uri) && js_same(x->anchor, anchor) && x->schema != s && uri.n)
            x->twice = r.twice = true; /* refused where one of them is meant */
    }
    GR_PUSH(j->b, &j->resources, r);
}

static void read_draft(struct js *j, struct js_schema *s)
{
    static const struct {
        const char *name;
        enum js_draft draft;
    } known[] = {{"draft-04/", JS_DRAFT4},        {"draft-06/", JS_DRAFT6},
                 {"draft-07/", JS_DRAFT7},        {"draft/2019-09/", JS_DRAFT2019},
                 {"draft/2020-12/", JS_DRAFT2020}, {"draft-03/", JS_DRAFT4}};
    const struct jinja_value *v = js_get(s, "$schema");
    char buf[128];
    if (!v || v->kind != JINJA_STR) return;
    snprintf(buf, sizeof buf, "%.*s", (int)(v->len < 120 ? v->len : 120), v->u.s);
    for (size_t i = 0; i < 6; i++) {
        const char *at = strstr(buf, "json-schema.org/");
        if (!at || strncmp(at + 16, known[i].name, strlen(known[i].name))) continue;
        if (i == 5) js_fail(j, s, "$schema", "draft 3 is not supported");
        s->draft = known[i].draft;
        return;
    }
    if (!strcmp(buf, "http://json-schema.org/schema#") || !strcmp(buf, "http://json-schema.org/schema"))
        return;
    js_fail(j, s, "$schema", "the dialect '%s' is not known", buf);
}

static struct js_text text_of(const struct jinja_value *v)
{
    return v && v->kind == JINJA_STR ? (struct js_text){v->u.s, v->len} : (struct js_text){"", 0};
}

static void scan(struct js *j, struct js_schema *s);

static struct js_schema *place_member(struct js *j, struct js_schema *s, const char *keyword)
{
    const struct jinja_value *v = js_get(s, keyword);
    struct js_text key = {keyword, (uint32_t)strlen(keyword)};
    struct js_schema *m = v ? place(j, s, v, key, GR_NONE) : NULL;
    if (m) m->base = s->base, m->draft = s->draft;
    return m;
}

static void scan_member(struct js *j, struct js_schema *s, const char *keyword)
{
    struct js_schema *m = place_member(j, s, keyword);
    if (!m) return;
    if (m->v->kind == JINJA_LIST)
        for (uint32_t i = 0; i < m->v->u.list->count; i++)
            scan(j, place(j, m, &m->v->u.list->items[i], (struct js_text){"", 0}, i));
    else
        scan(j, m);
}

static void scan_members_of(struct js *j, struct js_schema *s, const char *keyword)
{
    struct js_schema *m = place_member(j, s, keyword);
    if (!m || m->v->kind != JINJA_DICT) return;
    for (uint32_t i = 0; i < m->v->u.dict->count; i++) {
        const struct jinja_pair *p = &m->v->u.dict->pairs[i];
        scan(j, place(j, m, &p->value, text_of(&p->key), GR_NONE));
    }
}

static void read_names(struct js *j, struct js_schema *s)
{
    struct js_text id = text_of(js_get(s, s->draft == JS_DRAFT4 ? "id" : "$id")), fragment;
    bool plain = s->draft > JS_DRAFT7 || !js_get(s, "$ref");
    if (id.n && plain) {
        struct js_text uri = cut_fragment(id, &fragment);
        if (uri.n) {
            s->base = resolve_uri(j, s->base, uri);
            add_resource(j, s->base, (struct js_text){"", 0}, s, false);
        }
        if (fragment.n && fragment.s[0] != '/') add_resource(j, s->base, fragment, s, false);
    }
    if (s->draft >= JS_DRAFT2019) {
        struct js_text anchor = text_of(js_get(s, "$anchor"));
        struct js_text dynamic = text_of(js_get(s, "$dynamicAnchor"));
        if (anchor.n) add_resource(j, s->base, anchor, s, false);
        if (dynamic.n && s->draft == JS_DRAFT2020) add_resource(j, s->base, dynamic, s, true);
        const struct jinja_value *recursive = js_get(s, "$recursiveAnchor");
        bool is = recursive && recursive->kind == JINJA_BOOL && recursive->u.b;
        if (is && s->draft == JS_DRAFT2019) add_resource(j, s->base, RECURSIVE, s, true);
    }
}

/* Every place where a schema may stand, so that identifiers are known before references. */
static void scan(struct js *j, struct js_schema *s)
{
    static const char *const one[] = {
        "not",      "if",           "then",          "else",
        "items",    "contains",     "propertyNames", "additionalProperties",
        "allOf",    "anyOf",        "oneOf",         "additionalItems",
        "unevaluatedItems", "unevaluatedProperties", "prefixItems", "contentSchema"};
    static const char *const many[] = {"properties",  "patternProperties", "$defs",
                                       "definitions", "dependentSchemas",  "dependencies"};
    if (s->v->kind != JINJA_DICT) return;
    if (s->parent) s->base = s->parent->base, s->draft = s->parent->draft;
    read_draft(j, s);
    read_names(j, s);
    j->annotated |= js_get(s, "unevaluatedItems") || js_get(s, "unevaluatedProperties");
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) scan_member(j, s, one[i]);
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) scan_members_of(j, s, many[i]);
}

static const struct js_resource *find_resource(struct js *j, struct js_text uri,
                                               struct js_text anchor)
{
    gr_work(j->b, j->resources.n + 1);
    for (uint32_t i = 0; i < j->resources.n; i++) {
        const struct js_resource *r = &j->resources.v[i];
        if (js_same(r->uri, uri) && js_same(r->anchor, anchor)) return r;
    }
    return NULL;
}

/* ---- dynamic scopes ---- */

/* Its number + 1; 0: all references to this anchor mean the same. */
static uint32_t name_number(const struct js *j, struct js_text anchor)
{
    for (uint32_t i = 0; i < j->names.n; i++)
        if (js_same(j->names.v[i], anchor)) return i + 1;
    return 0;
}

static void find_names(struct js *j)
{
    j->names.n = 0, j->scopes.first = j->scopes.n;
    for (uint32_t i = 0; i < j->resources.n; i++) {
        const struct js_resource *x = &j->resources.v[i];
        uint32_t n = 0;
        if (!x->dynamic || name_number(j, x->anchor)) continue;
        for (uint32_t k = 0; k < j->resources.n; k++)
            n += j->resources.v[k].dynamic && js_same(j->resources.v[k].anchor, x->anchor);
        gr_work(j->b, j->resources.n + j->names.n);
        if (n > 1) GR_PUSH(j->b, &j->names, x->anchor);
    }
}

/* The scope behind a step into the resource: names that meant nothing yet mean its anchors. */
static uint32_t enter(struct js *j, uint32_t scope, struct js_text uri)
{
    uint32_t n = j->names.n;
    bool changed = false;
    if (!n) return 0;
    struct js_schema **bound = gr_alloc(j->b, n * sizeof(struct js_schema *));
    for (uint32_t i = 0; i < n; i++) {
        bound[i] = scope ? j->scopes.v[scope - 1][i] : NULL;
        const struct js_resource *r = bound[i] ? NULL : find_resource(j, uri, j->names.v[i]);
        if (r && r->dynamic) bound[i] = r->schema, changed = true;
    }
    if (!changed) return scope;
    for (uint32_t k = j->scopes.first; k < j->scopes.n; k++) {
        gr_work(j->b, n);
        if (!memcmp(j->scopes.v[k], bound, n * sizeof(struct js_schema *))) return k + 1;
    }
    GR_PUSH(j->b, &j->scopes, bound);
    return j->scopes.n;
}

struct js_schema *js_schema_root(struct js *j, const struct jinja_value *v)
{
    j->names.n = 0;
    struct js_schema *s = place(j, NULL, v, (struct js_text){"", 0}, GR_NONE);
    s->draft = JS_DRAFT2020;
    s->base = (struct js_text){"", 0};
    add_resource(j, s->base, s->base, s, false);
    scan(j, s);
    find_names(j);
    return scoped(j, s, 0);
}

/* ---- references ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
    return -1;
}

static struct js_text unescape(struct js *j, struct js_text t)
{
    char *out = gr_alloc(j->b, t.n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t.n; i++) {
        char c = t.s[i];
        if (c == '%' && i + 2 < t.n && hex_digit(t.s[i + 1]) >= 0 && hex_digit(t.s[i + 2]) >= 0) {
            c = (char)(hex_digit(t.s[i + 1]) << 4 | hex_digit(t.s[i + 2]));
            i += 2;
        }
        out[n++] = c;
    }
    return (struct js_text){out, n};
}

static struct js_schema *step_pointer(struct js *j, struct js_schema *s, struct js_text token)
{
    char *key = gr_alloc(j->b, token.n);
    uint32_t n = 0, index = 0;
    bool digits = token.n > 0 && token.n < 10;
    for (uint32_t i = 0; i < token.n; i++) {
        char c = token.s[i];
        digits &= c >= '0' && c <= '9';
        if (digits) index = index * 10 + (uint32_t)(c - '0');
        if (c == '~' && i + 1 < token.n) c = token.s[++i] == '0' ? '~' : '/';
        key[n++] = c;
    }
    if (s->v->kind == JINJA_DICT) {
        const struct jinja_value *v = jinja_dict_find_str(s->v->u.dict, key, n);
        return v ? place(j, s, v, (struct js_text){key, n}, GR_NONE) : NULL;
    }
    if (s->v->kind != JINJA_LIST || !digits || index >= s->v->u.list->count) return NULL;
    return place(j, s, &s->v->u.list->items[index], (struct js_text){"", 0}, index);
}

static struct js_schema *follow_pointer(struct js *j, struct js_schema *s, struct js_text pointer)
{
    for (uint32_t i = 0; s && i < pointer.n;) {
        uint32_t end = ++i;
        while (end < pointer.n && pointer.s[end] != '/') end++;
        s = step_pointer(j, s, (struct js_text){pointer.s + i, end - i});
        i = end;
    }
    return s;
}

struct js_schema *js_resolve(struct js *j, struct js_schema *s, const char *keyword,
                             struct js_text ref, bool dynamic)
{
    struct js_text fragment, uri = cut_fragment(ref, &fragment);
    struct js_text none = {"", 0}, base = uri.n ? resolve_uri(j, s->base, uri) : s->base;
    const struct js_resource *r = find_resource(j, base, none);
    fragment = unescape(j, fragment);
    if (!r)
        js_fail(j, s, keyword, "'%.*s' is outside of the schema, and nothing is fetched",
                (int)(ref.n < 150 ? ref.n : 150), ref.s);
    struct js_schema *to = r->schema;
    if (fragment.n && fragment.s[0] == '/') {
        to = follow_pointer(j, to, fragment);
    } else if (fragment.n || dynamic) {
        struct js_text anchor = fragment.n ? fragment : RECURSIVE;
        const struct js_resource *x = find_resource(j, base, anchor);
        uint32_t name = x && x->dynamic && dynamic ? name_number(j, anchor) : 0;
        if (fragment.n) to = x ? x->schema : NULL;
        if (name && s->scope && j->scopes.v[s->scope - 1][name - 1])
            to = j->scopes.v[s->scope - 1][name - 1];
        if (x) r = x;
    }
    if (!to)
        js_fail(j, s, keyword, "'%.*s' leads nowhere", (int)(ref.n < 150 ? ref.n : 150), ref.s);
    if (r->twice)
        js_fail(j, s, keyword, "'%.*s' may be either of two schemas with the same identifier",
                (int)(ref.n < 150 ? ref.n : 150), ref.s);
    return scoped(j, to, s->scope);
}
