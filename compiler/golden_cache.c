// SPDX-License-Identifier: Apache-2.0
#include "compiler/golden_cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "compiler/object_cache.h"
#include "ir/text.h"

static void write_key(struct strbuf *key, const struct ir_module *m)
{
    strbuf_puts(key, "golden vector 3\n");
    ir_print_module_outline(key, m);
    for (size_t i = 0; i < m->consts.n; i++) {
        const struct ir_const *c = m->consts.v[i];
        XXH128_hash_t h = XXH3_128bits(c->data ? c->data : "", c->data ? c->n_bytes : 0);
        strbuf_printf(key, "%zu %016llx%016llx\n", c->n_bytes, (unsigned long long)h.high64, (unsigned long long)h.low64);
    }
}

static void put(struct strbuf *s, const void *p, size_t n) { strbuf_putn(s, p, n); }

static void store(const struct object_cache *c, const struct strbuf *key, const struct golden *g)
{
    struct strbuf s = {0};
    uint64_t n_out = 0, present = g != NULL;
    put(&s, &present, sizeof present);
    if (g) {
        put(&s, &g->seed, sizeof g->seed);
        put(&s, &g->tolerance, sizeof g->tolerance);
        n_out = g->n_rows;
        put(&s, &n_out, sizeof n_out);
        put(&s, g->sym_values, g->n_symbols * sizeof *g->sym_values);
        for (uint64_t i = 0; i < n_out; i++) {
            const struct golden_output *o = &g->outputs[i];
            put(&s, &o->elems, sizeof o->elems);
            put(&s, &o->step, sizeof o->step);
            put(&s, &o->scale, sizeof o->scale);
            put(&s, &o->tolerance, sizeof o->tolerance);
            put(&s, &o->input, sizeof o->input);
            put(&s, &o->probe, sizeof o->probe);
            put(&s, &o->n_values, sizeof o->n_values);
            put(&s, o->values, o->n_values * sizeof *o->values);
        }
    }
    struct target_object object = {.data = s.data, .n_bytes = s.len};
    object_cache_store(c, key, &object);
    strbuf_deinit(&s);
}

struct reader {
    const char *p;
    size_t left;
    bool ok;
};

static void take(struct reader *r, void *dst, size_t n)
{
    r->ok = r->ok && n <= r->left;
    if (!r->ok) return;
    if (n) memcpy(dst, r->p, n);
    r->p += n, r->left -= n;
}

/* False when the entry is not as `store` writes it for this module. */
static bool load(const struct target_object *object, struct ir_module *m, struct golden **out)
{
    struct reader r = {object->data, object->n_bytes, true};
    uint64_t present = 0, n_out = 0;
    *out = NULL;
    take(&r, &present, sizeof present);
    if (!present) return r.ok && !r.left;
    struct golden *g = ARENA_NEW(&m->arena, struct golden);
    *g = (struct golden){.n_symbols = dim_sym_count(m->dims)};
    take(&r, &g->seed, sizeof g->seed);
    take(&r, &g->tolerance, sizeof g->tolerance);
    take(&r, &n_out, sizeof n_out);
    if (!r.ok || n_out < (uint64_t)m->funcs.v[0]->n_outputs || n_out > (uint64_t)m->funcs.v[0]->n_outputs + GOLDEN_STATES + golden_n_probes(m)) return false;
    g->n_rows = (uint32_t)n_out;
    g->sym_values = ARENA_ARRAY(&m->arena, int64_t, g->n_symbols);
    g->outputs = ARENA_ARRAY(&m->arena, struct golden_output, n_out);
    take(&r, g->sym_values, g->n_symbols * sizeof *g->sym_values);
    for (uint64_t i = 0; r.ok && i < n_out; i++) {
        struct golden_output *o = &g->outputs[i];
        take(&r, &o->elems, sizeof o->elems);
        take(&r, &o->step, sizeof o->step);
        take(&r, &o->scale, sizeof o->scale);
        take(&r, &o->tolerance, sizeof o->tolerance);
        take(&r, &o->input, sizeof o->input);
        take(&r, &o->probe, sizeof o->probe);
        take(&r, &o->n_values, sizeof o->n_values);
        if (!r.ok || o->n_values > r.left / sizeof *o->values) return false;
        o->values = ARENA_ARRAY(&m->arena, double, o->n_values);
        take(&r, o->values, o->n_values * sizeof *o->values);
    }
    *out = g;
    return r.ok && !r.left;
}

struct golden *golden_make_cached(struct ir_module *m, int n_threads, bool use_cache, struct diag_sink *diag)
{
    struct strbuf identity = {0}, key = {0};
    struct object_cache *c = NULL;
    struct target_object object;
    struct golden *g = NULL;
    if (use_cache && object_cache_self_identity(&identity)) c = object_cache_open(NULL, strbuf_get(&identity), diag);
    strbuf_deinit(&identity);
    if (!c) return golden_make(m, n_threads);
    write_key(&key, m);
    bool known = object_cache_find(c, &key, &object);
    if (known) {
        known = load(&object, m, &g);
        free(object.data);
    }
    if (!known) {
        g = golden_make(m, n_threads);
        store(c, &key, g);
    }
    strbuf_deinit(&key);
    object_cache_close(c, known ? OBJECT_CACHE_ANY_SIZE : OBJECT_CACHE_MAX_BYTES);
    return g;
}
