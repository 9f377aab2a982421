// SPDX-License-Identifier: Apache-2.0
/* The growing AST of the template compiler, and its writing as a blob. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/text/jinja_compile.h"
#include "runtime/text/jinja_unicode.h"

/* A source of JINJA_MAX_SOURCE_BYTES stays far below this; it only makes the arithmetic safe. */
#define MAX_COUNT ((size_t)1 << 27)

bool jinja_build_fail(struct jinja_build *b, enum jinja_status code, uint32_t line, const char *fmt,
                      ...)
{
    va_list ap;
    size_t len;

    b->err->code = code;
    b->err->line = line;
    va_start(ap, fmt);
    vsnprintf(b->err->message, sizeof(b->err->message), fmt, ap);
    va_end(ap);
    len = strlen(b->err->message);
    /* vsnprintf may have cut a character: drop an incomplete tail. */
    while (len && !jinja_utf8_valid(b->err->message, len))
        len--;
    b->err->message[len] = 0;
    return false;
}

bool jinja_build_no_memory(struct jinja_build *b)
{
    return jinja_build_fail(b, JINJA_ERR_MEMORY, 0, "out of memory while compiling the template");
}

static bool reserve(struct jinja_build *b, void **v, size_t *cap, size_t need, size_t elem)
{
    size_t n = *cap ? *cap : 64;
    void *p;

    if (need <= *cap)
        return true;
    if (need > MAX_COUNT)
        return jinja_build_fail(b, JINJA_ERR_LIMIT, 0, "template too large");
    while (n < need)
        n *= 2;
    p = realloc(*v, n * elem);
    if (!p)
        return jinja_build_no_memory(b);
    *v = p;
    *cap = n;
    return true;
}

/* reserve through a typed pointer without breaking aliasing rules */
#define RESERVE(b, vec, cap, need)                                 \
    do {                                                           \
        void *reserve_p = (vec);                                   \
        if (!reserve(b, &reserve_p, &(cap), need, sizeof(*(vec)))) \
            return false;                                          \
        (vec) = reserve_p;                                         \
    } while (0)

bool jinja_build_token(struct jinja_build *b, struct jinja_token token)
{
    RESERVE(b, b->tokens, b->token_cap, b->token_count + 1);
    b->tokens[b->token_count++] = token;
    return true;
}

bool jinja_build_node(struct jinja_build *b, struct jinja_ast_node node, uint32_t *out)
{
    RESERVE(b, b->nodes, b->node_cap, b->node_count + 1);
    *out = (uint32_t)b->node_count;
    b->nodes[b->node_count++] = node;
    return true;
}

bool jinja_build_list(struct jinja_build *b, const uint32_t *words, size_t count, uint32_t *out)
{
    *out = 0;
    if (count == 0)
        return true;
    RESERVE(b, b->lists, b->list_cap, b->list_count + count + 1);
    *out = (uint32_t)b->list_count;
    b->lists[b->list_count] = (uint32_t)count;
    memcpy(b->lists + b->list_count + 1, words, count * sizeof(*words));
    b->list_count += count + 1;
    return true;
}

/* FNV-1a, whose collisions can be chosen: probes are counted, and no real template comes near. */
#define MAX_PROBES ((size_t)20000000)

static uint32_t text_hash(const char *text, size_t len)
{
    uint32_t h = 2166136261u;
    size_t i;

    for (i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h ^ (h >> 15);
}

static bool intern_grow(struct jinja_build *b)
{
    size_t cap = b->intern_cap ? b->intern_cap * 2 : 256, i, at;
    uint32_t *table = calloc(cap, sizeof(*table));

    if (!table)
        return jinja_build_no_memory(b);
    for (i = 0; i < b->str_count; i++) {
        at = text_hash(b->bytes + b->strs[i].offset, b->strs[i].len) & (cap - 1);
        for (; table[at]; b->probes++)
            at = (at + 1) & (cap - 1);
        table[at] = (uint32_t)i + 1;
    }
    free(b->intern);
    b->intern = table;
    b->intern_cap = cap;
    return true;
}

bool jinja_build_str(struct jinja_build *b, const char *text, size_t len, uint32_t *out)
{
    size_t at;

    if ((b->str_count + 1) * 2 > b->intern_cap && !intern_grow(b))
        return false;
    at = text_hash(text, len) & (b->intern_cap - 1);
    for (; b->intern[at]; at = (at + 1) & (b->intern_cap - 1)) {
        const struct jinja_ast_str *s = &b->strs[b->intern[at] - 1];

        if (++b->probes > MAX_PROBES)
            return jinja_build_fail(b, JINJA_ERR_LIMIT, 0, "template has too many names");
        if (s->len == len && (!len || memcmp(b->bytes + s->offset, text, len) == 0)) {
            *out = b->intern[at] - 1;
            return true;
        }
    }
    RESERVE(b, b->strs, b->str_cap, b->str_count + 1);
    RESERVE(b, b->bytes, b->byte_cap, b->byte_count + len + 1);
    if (len)
        memcpy(b->bytes + b->byte_count, text, len);
    b->strs[b->str_count] = (struct jinja_ast_str){(uint32_t)b->byte_count, (uint32_t)len};
    b->byte_count += len;
    b->intern[at] = (uint32_t)b->str_count + 1;
    *out = (uint32_t)b->str_count++;
    return true;
}

static void build_deinit(struct jinja_build *b)
{
    free(b->tokens);
    free(b->nodes);
    free(b->lists);
    free(b->strs);
    free(b->bytes);
    free(b->intern);
}

static char *put(char *p, const void *data, size_t size)
{
    if (size)
        memcpy(p, data, size);
    return p + size;
}

static bool write_blob(struct jinja_build *b, struct jinja_blob *out)
{
    struct jinja_ast_header h = {
        .magic = JINJA_AST_MAGIC,
        .version = JINJA_AST_VERSION,
        .node_count = (uint32_t)b->node_count,
        .list_count = (uint32_t)b->list_count,
        .str_count = (uint32_t)b->str_count,
        .byte_count = (uint32_t)b->byte_count,
        .root_body = b->root_body,
        .root_scope = b->root_scope,
    };
    size_t size = sizeof(h) + b->node_count * sizeof(*b->nodes) +
                  b->list_count * sizeof(*b->lists) + b->str_count * sizeof(*b->strs) +
                  b->byte_count;
    char *data = malloc(size), *p = data;

    if (!data)
        return jinja_build_no_memory(b);
    p = put(p, &h, sizeof(h));
    p = put(p, b->nodes, b->node_count * sizeof(*b->nodes));
    p = put(p, b->lists, b->list_count * sizeof(*b->lists));
    p = put(p, b->strs, b->str_count * sizeof(*b->strs));
    put(p, b->bytes, b->byte_count);
    out->data = data;
    out->size_bytes = size;
    return true;
}

bool jinja_compile(const char *source, size_t len_bytes, struct jinja_blob *out_blob,
                   struct jinja_error *out_err)
{
    struct jinja_build b = {.err = out_err};
    static const uint32_t empty_list = 0;
    uint32_t null_node;
    bool ok = false;

    *out_blob = (struct jinja_blob){0};
    *out_err = (struct jinja_error){0};
    if (len_bytes > JINJA_MAX_SOURCE_BYTES)
        return jinja_build_fail(&b, JINJA_ERR_LIMIT, 0, "template longer than %u bytes",
                                JINJA_MAX_SOURCE_BYTES);
    if (!jinja_utf8_valid(source, len_bytes))
        return jinja_build_fail(&b, JINJA_ERR_SYNTAX, 0, "template is not valid UTF-8");
    b.lists = malloc(64 * sizeof(*b.lists));
    if (!b.lists)
        return jinja_build_no_memory(&b);
    b.list_cap = 64;
    b.lists[b.list_count++] = empty_list;
    ok = jinja_build_node(&b, (struct jinja_ast_node){0}, &null_node) &&
         jinja_lex(&b, source, len_bytes) && jinja_parse(&b) && jinja_resolve(&b) &&
         write_blob(&b, out_blob);
    build_deinit(&b);
    return ok;
}

void jinja_blob_deinit(struct jinja_blob *blob)
{
    free(blob->data);
    *blob = (struct jinja_blob){0};
}
