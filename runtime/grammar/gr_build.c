// SPDX-License-Identifier: Apache-2.0
#include "runtime/grammar/gr_build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/text/jinja_value.h"

void gr_fail(struct gr_build *b, size_t offset, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b->error->message, sizeof b->error->message, fmt, ap);
    va_end(ap);
    b->error->offset = offset;
    longjmp(b->out_of_here, 1);
}

void gr_fail_limit(struct gr_build *b, const char *what)
{
    gr_fail(b, 0, "the grammar is too large: %s", what);
}

void gr_work(struct gr_build *b, uint64_t steps)
{
    b->work += steps;
    if (b->work > b->o.max_work) gr_fail_limit(b, "it takes too many steps to compile");
}

void *gr_alloc(struct gr_build *b, size_t bytes)
{
    void *p = jinja_arena_alloc(b->arena, bytes ? bytes : 1, 8);
    if (!p) gr_fail_limit(b, "it takes too much memory");
    memset(p, 0, bytes);
    return p;
}

void *gr_grow(struct gr_build *b, void *v, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap) return v;
    if (n > UINT32_MAX / 4) gr_fail_limit(b, "it takes too much memory");
    uint32_t more = *cap ? 2 * *cap : 8;
    void *w = jinja_arena_alloc(b->arena, more * size, 8);
    if (!w) gr_fail_limit(b, "it takes too much memory");
    if (n) memcpy(w, v, n * size);
    *cap = more;
    return w;
}

/* ---- sets of code points ---- */

void gr_set_add(struct gr_build *b, struct gr_set *s, uint32_t lo, uint32_t hi)
{
    struct gr_range r = {lo, hi};
    GR_PUSH(b, s, r);
}

static int by_lo(const void *pa, const void *pb)
{
    const struct gr_range *a = pa, *b = pb;
    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

void gr_set_tidy(struct gr_set *s)
{
    uint32_t n = 0;
    if (!s->n) return;
    qsort(s->v, s->n, sizeof *s->v, by_lo);
    for (uint32_t i = 1; i < s->n; i++) {
        if (s->v[i].lo <= s->v[n].hi + 1) {
            if (s->v[i].hi > s->v[n].hi) s->v[n].hi = s->v[i].hi;
        } else {
            s->v[++n] = s->v[i];
        }
    }
    s->n = n + 1;
}

void gr_set_invert(struct gr_build *b, struct gr_set *s)
{
    struct gr_set out = {0};
    uint32_t at = 0;
    gr_set_add(b, s, 0xd800, 0xdfff);
    gr_set_tidy(s);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->v[i].lo > at) gr_set_add(b, &out, at, s->v[i].lo - 1);
        at = s->v[i].hi + 1;
    }
    if (at <= GR_UNICODE_MAX) gr_set_add(b, &out, at, GR_UNICODE_MAX);
    *s = out;
}

void gr_set_fold(struct gr_build *b, struct gr_set *s)
{
    uint32_t n = s->n;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 'a'; c <= 'z'; c++) {
            if (s->v[i].lo <= c && c <= s->v[i].hi) gr_set_add(b, s, c - 32, c - 32);
            if (s->v[i].lo <= c - 32 && c - 32 <= s->v[i].hi) gr_set_add(b, s, c, c);
        }
    }
    gr_set_tidy(s);
}

/* ---- trees ---- */

struct gr_node *gr_node_new(struct gr_build *b, enum gr_node_kind kind)
{
    struct gr_node *n = gr_alloc(b, sizeof *n);
    gr_work(b, 1);
    n->kind = kind;
    return n;
}

struct gr_node *gr_node_cat(struct gr_build *b, struct gr_node *l, struct gr_node *r)
{
    if (!l || l->kind == GR_EMPTY) return r;
    if (!r || r->kind == GR_EMPTY) return l;
    struct gr_node *n = gr_node_new(b, GR_CAT);
    n->left = l, n->right = r;
    return n;
}

struct gr_node *gr_node_alt(struct gr_build *b, struct gr_node *l, struct gr_node *r)
{
    if (!l || l->kind == GR_NEVER) return r;
    if (!r || r->kind == GR_NEVER) return l;
    struct gr_node *n = gr_node_new(b, GR_ALT);
    n->left = l, n->right = r;
    return n;
}

struct gr_node *gr_node_repeat(struct gr_build *b, struct gr_node *l, uint32_t min, uint32_t max)
{
    if (max == 0) return gr_node_new(b, GR_EMPTY);
    if (min == 1 && max == 1) return l;
    struct gr_node *n = gr_node_new(b, GR_REPEAT);
    n->left = l, n->min = min, n->max = max;
    return n;
}

static struct gr_node *byte_node(struct gr_build *b, uint8_t lo, uint8_t hi)
{
    struct gr_node *n = gr_node_new(b, GR_BYTES);
    n->min = lo, n->max = hi;
    return n;
}

struct gr_node *gr_node_literal(struct gr_build *b, const char *s, size_t n, bool fold)
{
    struct gr_node *all = gr_node_new(b, GR_EMPTY);
    for (size_t i = n; i-- > 0;) { /* from the end: the tree leans to the right */
        uint8_t c = (uint8_t)s[i], other = c;
        if (fold && ((c | 32) >= 'a' && (c | 32) <= 'z')) other = c ^ 32;
        struct gr_node *one = byte_node(b, c, c);
        if (other != c) one = gr_node_alt(b, one, byte_node(b, other, other));
        all = gr_node_cat(b, one, all);
    }
    return all;
}

struct gr_node *gr_node_set(struct gr_build *b, const struct gr_set *s)
{
    if (!s->n) return gr_node_new(b, GR_NEVER);
    struct gr_node *n = gr_node_new(b, GR_CHARS);
    n->set = *s;
    return n;
}

struct gr_node *gr_node_any(struct gr_build *b)
{
    struct gr_set s = {0};
    gr_set_invert(b, &s);
    return gr_node_set(b, &s);
}
