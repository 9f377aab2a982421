// SPDX-License-Identifier: Apache-2.0
/* What the readers of both notations of rules, GBNF and Lark's, do alike. */
#ifndef INFC_RUNTIME_GRAMMAR_GR_READER_H
#define INFC_RUNTIME_GRAMMAR_GR_READER_H

#include <string.h>

#include "runtime/grammar/gr_build.h"

enum { GR_MAX_DEPTH = 100, GR_MAX_REPEAT = 10000 };

struct gr_reader {
    struct gr_build *b;
    struct gr_rules *rules;
    const char *text;
    size_t at, n;
    unsigned depth;
    bool dashes; /* names may have them */
};

GR_NORETURN static inline void gr_refuse(struct gr_reader *r, const char *what)
{
    gr_fail(r->b, r->at, "%s", what);
}

static inline char gr_peek(const struct gr_reader *r)
{
    return r->at < r->n ? r->text[r->at] : '\0';
}

static inline bool gr_looking_at(const struct gr_reader *r, const char *s)
{
    size_t n = strlen(s);
    return r->n - r->at >= n && !memcmp(r->text + r->at, s, n);
}

static inline bool gr_take(struct gr_reader *r, const char *s)
{
    if (!gr_looking_at(r, s)) return false;
    r->at += strlen(s);
    return true;
}

static inline bool gr_is_name_char(const struct gr_reader *r, char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || (c == '-' && r->dashes);
}

/* How many bytes the name here has. */
static inline size_t gr_take_name(struct gr_reader *r)
{
    size_t begin = r->at;
    while (gr_is_name_char(r, gr_peek(r))) r->at++;
    if (r->at == begin) gr_refuse(r, "a name is expected");
    return r->at - begin;
}

/* A character by its number, written with so many hexadecimal digits. */
static inline uint32_t gr_take_hex(struct gr_reader *r, unsigned digits)
{
    uint32_t c = 0;
    for (unsigned i = 0; i < digits; i++, r->at++) {
        char d = gr_peek(r);
        if (d >= '0' && d <= '9') c = c << 4 | (uint32_t)(d - '0');
        else if ((d | 32) >= 'a' && (d | 32) <= 'f') c = c << 4 | (uint32_t)((d | 32) - 'a' + 10);
        else gr_refuse(r, "a hexadecimal digit is expected");
    }
    if (c > GR_UNICODE_MAX || (c >= 0xd800 && c <= 0xdfff)) gr_refuse(r, "not a character");
    return c;
}

/* A number of repetitions. */
static inline uint32_t gr_take_number(struct gr_reader *r)
{
    uint32_t x = 0;
    if (gr_peek(r) < '0' || gr_peek(r) > '9') gr_refuse(r, "a number is expected");
    for (; gr_peek(r) >= '0' && gr_peek(r) <= '9'; r->at++) {
        x = x * 10 + (uint32_t)(gr_peek(r) - '0');
        if (x > GR_MAX_REPEAT) gr_refuse(r, "a repetition of more than 10000");
    }
    return x;
}

struct gr_row {
    struct gr_node **v;
    uint32_t n, cap;
};

/* One after the other; the row is empty then. */
static inline struct gr_node *gr_row_join(struct gr_build *b, struct gr_row *row)
{
    struct gr_node *n = NULL;
    while (row->n > 0) n = gr_node_cat(b, row->v[--row->n], n);
    return n ? n : gr_node_new(b, GR_EMPTY);
}

static inline struct gr_node *gr_call(struct gr_reader *r, const char *name, size_t n, size_t at)
{
    struct gr_node *c = gr_node_new(r->b, GR_CALL);
    c->index = gr_rules_get(r->b, r->rules, name, n, at);
    return c;
}

static inline void gr_define(struct gr_reader *r, const char *name, size_t n, struct gr_node *body,
                             size_t at)
{
    uint32_t i = gr_rules_get(r->b, r->rules, name, n, at);
    struct gr_rule *rule = &r->rules->v[i];
    if (rule->body)
        gr_fail(r->b, at, "rule '%.*s' is defined twice", (int)(n < 60 ? n : 60), name);
    rule->body = body;
    rule->offset = at;
}

#endif
