// SPDX-License-Identifier: Apache-2.0
/* Values and tensors of an open GGUF file, and its listing. */
#include <string.h>

#include "compiler/import/gguf_int.h"
#include "ir/support/str.h"

#define SHOWN_ELEMENTS 8
#define SHOWN_CHARS 200

static const struct {
    const char *name;
    unsigned bytes;
} kinds[GGUF_KIND_COUNT] = {{"u8", 1},   {"i8", 1},   {"u16", 2},    {"i16", 2},   {"u32", 4}, {"i32", 4}, {"f32", 4},
                            {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8}};

unsigned gguf_kind_bytes(enum gguf_kind k) { return kinds[k].bytes; }

const char *gguf_kind_name(enum gguf_kind k) { return (unsigned)k < GGUF_KIND_COUNT ? kinds[k].name : "?"; }

bool gguf_needs_swap(const struct ir_encoding *e) { return e->plain ? dtype_bytes(e->plain) > 1 : strchr(e->fields, 'h') != NULL; }

bool gguf_looks_like(const void *data, size_t len) { return len >= 4 && !memcmp(data, "GGUF", 4); }

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    const struct gguf_kv *kv = map_finds(&g->keys, key);
    return kv ? &kv->value : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name) { return map_finds(&g->names, name); }

/* ---- numbers ---- */

static bool load_float(enum gguf_kind kind, const uint8_t *p, bool swapped, double *out)
{
    if (kind == GGUF_F32) {
        uint32_t bits = (uint32_t)gguf_load(p, 4, swapped);
        float f;
        memcpy(&f, &bits, sizeof f);
        *out = (double)f;
        return true;
    }
    if (kind == GGUF_F64) {
        uint64_t bits = gguf_load(p, 8, swapped);
        memcpy(out, &bits, sizeof *out);
        return true;
    }
    return false;
}

/* Integers and bools that fit into 64 bits with sign. */
static bool load_int(enum gguf_kind kind, const uint8_t *p, bool swapped, int64_t *out)
{
    unsigned width = kinds[kind].bytes;
    double d;
    if (width == 0) return false;
    uint64_t v = gguf_load(p, width, swapped);
    switch (kind) {
    case GGUF_I8: *out = (int8_t)v; return true;
    case GGUF_I16: *out = (int16_t)v; return true;
    case GGUF_I32: *out = (int32_t)v; return true;
    case GGUF_I64: *out = (int64_t)v; return true;
    case GGUF_F32: case GGUF_F64:
        if (!load_float(kind, p, swapped, &d) || !(d >= -0x1p53 && d <= 0x1p53) || d != (double)(int64_t)d) return false;
        *out = (int64_t)d;
        return true;
    default: *out = (int64_t)v; return v <= INT64_MAX;
    }
}

static bool load_number(enum gguf_kind kind, const uint8_t *p, bool swapped, double *out)
{
    int64_t i;
    if (load_float(kind, p, swapped, out)) return true;
    if (!load_int(kind, p, swapped, &i)) return false;
    *out = (double)i;
    return true;
}

bool gguf_get_int(const struct gguf_value *v, int64_t *out) { return v && load_int(v->kind, v->data, v->swapped, out); }

bool gguf_get_float(const struct gguf_value *v, double *out) { return v && load_number(v->kind, v->data, v->swapped, out); }

bool gguf_get_string(const struct gguf_value *v, struct gguf_string *out)
{
    if (!v || v->kind != GGUF_STRING) return false;
    *out = (struct gguf_string){(const char *)v->data + 8, (size_t)gguf_load(v->data, 8, v->swapped)};
    return true;
}

static const uint8_t *element(const struct gguf_value *v, uint64_t i)
{
    if (!v || v->kind != GGUF_ARRAY || i >= v->count || kinds[v->element].bytes == 0) return NULL;
    return v->data + i * kinds[v->element].bytes;
}

bool gguf_array_int(const struct gguf_value *v, uint64_t i, int64_t *out)
{
    const uint8_t *p = element(v, i);
    return p && load_int(v->element, p, v->swapped, out);
}

bool gguf_array_float(const struct gguf_value *v, uint64_t i, double *out)
{
    const uint8_t *p = element(v, i);
    return p && load_number(v->element, p, v->swapped, out);
}

bool gguf_next_string(const struct gguf_value *v, struct gguf_cursor *at, struct gguf_string *out)
{
    if (!v || v->kind != GGUF_ARRAY || v->element != GGUF_STRING || at->i >= v->count) return false;
    const uint8_t *p = v->data + at->bytes;
    *out = (struct gguf_string){(const char *)p + 8, (size_t)gguf_load(p, 8, v->swapped)};
    at->bytes += 8 + out->len;
    at->i++;
    return true;
}

/* ---- listing ---- */

static void put_string(struct strbuf *s, const struct gguf_string *text, bool json)
{
    size_t n = text->len < SHOWN_CHARS || json ? text->len : SHOWN_CHARS;
    struct strbuf copy = {0};
    for (size_t i = 0; i < n; i++) /* a NUL would end the text */
        strbuf_putc(&copy, text->data[i] ? text->data[i] : '\1');
    strbuf_put_json(s, strbuf_get(&copy));
    strbuf_deinit(&copy);
    if (n < text->len) strbuf_printf(s, "... (%zu bytes)", text->len);
}

static void put_number(struct strbuf *s, enum gguf_kind kind, const uint8_t *p, bool swapped, bool json)
{
    int64_t i;
    double d;
    if (kind == GGUF_BOOL) {
        strbuf_puts(s, *p ? "true" : "false");
    } else if (load_float(kind, p, swapped, &d)) {
        bool finite = d - d == 0;
        strbuf_printf(s, json && !finite ? "\"%.9g\"" : "%.9g", d);
    } else if (load_int(kind, p, swapped, &i)) {
        strbuf_printf(s, "%lld", (long long)i);
    } else {
        strbuf_printf(s, "%llu", (unsigned long long)gguf_load(p, 8, swapped));
    }
}

static void put_array(struct strbuf *s, const struct gguf_value *v, bool json)
{
    struct gguf_cursor at = {0};
    struct gguf_string text;
    strbuf_putc(s, '[');
    for (uint64_t i = 0; i < v->count && i < SHOWN_ELEMENTS; i++) {
        if (v->element == GGUF_ARRAY) break;
        if (i) strbuf_puts(s, ", ");
        if (v->element != GGUF_STRING) put_number(s, v->element, element(v, i), v->swapped, json);
        else if (gguf_next_string(v, &at, &text)) put_string(s, &text, json);
    }
    if (!json && (v->count > SHOWN_ELEMENTS || v->element == GGUF_ARRAY)) strbuf_puts(s, ", ...");
    strbuf_putc(s, ']');
}

static void put_value(struct strbuf *s, const struct gguf_value *v, bool json)
{
    struct gguf_string text;
    if (gguf_get_string(v, &text)) put_string(s, &text, json);
    else if (v->kind == GGUF_ARRAY) put_array(s, v, json);
    else put_number(s, v->kind, v->data, v->swapped, json);
}

static void put_kind(struct strbuf *s, const struct gguf_value *v)
{
    if (v->kind == GGUF_ARRAY) strbuf_printf(s, "%s[%llu]", gguf_kind_name(v->element), (unsigned long long)v->count);
    else strbuf_puts(s, gguf_kind_name(v->kind));
}

static void put_shape(struct strbuf *s, const struct gguf_tensor *t)
{
    strbuf_putc(s, '[');
    for (int i = t->rank - 1; i >= 0; i--) strbuf_printf(s, "%lld%s", (long long)t->dims[i], i ? ", " : "");
    strbuf_putc(s, ']');
}

static void print_json(const struct gguf *g, struct strbuf *s)
{
    strbuf_printf(s, "{\n  \"format\": \"gguf\", \"version\": %u, \"big_endian\": %s, \"alignment\": %u, \"parts\": %zu,\n  \"metadata\": [",
                  g->version, g->big_endian ? "true" : "false", g->alignment, g->n_parts);
    for (size_t i = 0; i < g->kvs.n; i++) {
        const struct gguf_kv *kv = &g->kvs.v[i];
        strbuf_printf(s, "%s\n    {\"key\": ", i ? "," : "");
        put_string(s, &kv->key, true);
        strbuf_puts(s, ", \"type\": \"");
        put_kind(s, &kv->value);
        strbuf_puts(s, kv->value.kind == GGUF_ARRAY ? "\", \"first\": " : "\", \"value\": ");
        put_value(s, &kv->value, true);
        strbuf_putc(s, '}');
    }
    strbuf_puts(s, "],\n  \"tensors\": [");
    for (size_t i = 0; i < g->tensors.n; i++) {
        const struct gguf_tensor *t = g->tensors.v[i];
        strbuf_printf(s, "%s\n    {\"name\": ", i ? "," : "");
        strbuf_put_json(s, t->name);
        strbuf_printf(s, ", \"type\": \"%s\", \"dims\": ", t->enc->name);
        put_shape(s, t);
        strbuf_printf(s, ", \"bytes\": %zu}", t->n_bytes);
    }
    strbuf_puts(s, "]\n}\n");
}

static void print_text(const struct gguf *g, struct strbuf *s)
{
    size_t bytes = 0;
    strbuf_printf(s, "GGUF version %u, %s-endian, %zu part%s, alignment %u\n", g->version, g->big_endian ? "big" : "little", g->n_parts,
                  g->n_parts == 1 ? "" : "s", g->alignment);
    for (size_t i = 0; i < g->kvs.n; i++) {
        const struct gguf_kv *kv = &g->kvs.v[i];
        struct strbuf kind = {0};
        put_kind(&kind, &kv->value);
        strbuf_printf(s, "%-44.*s %-16s ", (int)kv->key.len, kv->key.data, strbuf_get(&kind));
        put_value(s, &kv->value, false);
        strbuf_putc(s, '\n');
        strbuf_deinit(&kind);
    }
    for (size_t i = 0; i < g->tensors.n; i++) {
        const struct gguf_tensor *t = g->tensors.v[i];
        strbuf_printf(s, "%-44s %-8s ", t->name, t->enc->name);
        put_shape(s, t);
        strbuf_printf(s, " %zu bytes\n", t->n_bytes);
        bytes += t->n_bytes;
    }
    strbuf_printf(s, "%zu keys, %zu tensors of %zu bytes\n", g->kvs.n, g->tensors.n, bytes);
}

void gguf_print(const struct gguf *g, bool json, FILE *out)
{
    struct strbuf s = {0};
    if (json) print_json(g, &s);
    else print_text(g, &s);
    fputs(strbuf_get(&s), out);
    strbuf_deinit(&s);
}
