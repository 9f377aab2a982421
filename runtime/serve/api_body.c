// SPDX-License-Identifier: Apache-2.0
/* Bodies of requests as JSON. */
#include <string.h>

#include "runtime/serve/api.h"

const struct jinja_value *api_field(const struct jinja_dict *d, const char *name)
{
    const struct jinja_value *v = d ? jinja_dict_find_str(d, name, strlen(name)) : NULL;
    return v && v->kind != JINJA_NONE ? v : NULL;
}

bool api_is(const struct jinja_value *v, const char *text)
{
    return v && v->kind == JINJA_STR && v->len == strlen(text) && !memcmp(v->u.s, text, v->len);
}

char *api_copy(struct jinja_arena *arena, const char *text, size_t n)
{
    char *p = jinja_arena_alloc(arena, n + 1, 1);
    if (!p) return NULL;
    if (n) memcpy(p, text, n);
    p[n] = 0;
    return p;
}

bool api_read_body(struct server *s, struct http_conn *c, struct jinja_arena **arena,
                   struct jinja_value *out)
{
    struct json_read_error error;
    (void)s;
    *arena = jinja_arena_create(64 * c->n_body + (1u << 20));
    if (!*arena) {
        server_error(c, 503, NULL, "no memory for the request");
        return false;
    }
    bool ok = json_read(*arena, c->body ? c->body : "", c->n_body, out, &error);
    if (!ok)
        server_error(c, 400, NULL, "the body is not JSON: %s at byte %zu", error.message,
                     error.offset_bytes);
    else if (out->kind != JINJA_DICT)
        server_error(c, 400, NULL, "the body is not a JSON object"), ok = false;
    if (ok) return true;
    jinja_arena_destroy(*arena);
    *arena = NULL;
    return false;
}
