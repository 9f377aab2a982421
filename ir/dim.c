// SPDX-License-Identifier: Apache-2.0
/*
 * Interning, ranges and ring arithmetic of dims; see ir/dim_internal.h for the order of terms.
 * Division, minimum and proofs are in ir/dim_simplify.c, text and evaluation in ir/dim_text.c.
 */
#include "ir/dim_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- saturating interval arithmetic; INT64_MIN and INT64_MAX stand for the infinities ---- */

static int64_t sat_add(int64_t a, int64_t b)
{
    if (a == INT64_MIN || b == INT64_MIN) return INT64_MIN;
    if (a == INT64_MAX || b == INT64_MAX) return INT64_MAX;
    int64_t r;
    if (i64_add(a, b, &r)) return r;
    return a < 0 ? INT64_MIN : INT64_MAX;
}

/* infinity * 0 = 0: a bound of a product whose other factor is 0. */
static int64_t sat_mul(int64_t a, int64_t b)
{
    if (a == 0 || b == 0) return 0;
    bool negative = (a < 0) != (b < 0);
    int64_t r;
    bool infinite = a == INT64_MIN || a == INT64_MAX || b == INT64_MIN || b == INT64_MAX;
    if (!infinite && i64_mul(a, b, &r)) return r;
    return negative ? INT64_MIN : INT64_MAX;
}

static int64_t sat_floordiv(int64_t a, int64_t b) /* b > 0 */
{
    if (a == INT64_MIN || a == INT64_MAX) return a;
    if (b == INT64_MAX) return a < 0 ? -1 : 0;
    int64_t r;
    return dim_i64_floordiv(a, b, &r) ? r : INT64_MAX;
}

static void range_mul(int64_t al, int64_t ah, int64_t bl, int64_t bh, int64_t *lo, int64_t *hi)
{
    int64_t p[4] = {sat_mul(al, bl), sat_mul(al, bh), sat_mul(ah, bl), sat_mul(ah, bh)};
    *lo = *hi = p[0];
    for (int i = 1; i < 4; i++) {
        if (p[i] < *lo) *lo = p[i];
        if (p[i] > *hi) *hi = p[i];
    }
}

static void terms_range(const struct dim_term *t, int n, int64_t *lo, int64_t *hi)
{
    *lo = *hi = 0;
    for (int i = 0; i < n; i++) {
        int64_t l = t[i].coeff, h = t[i].coeff;
        for (int j = 0; j < t[i].n_atoms; j++)
            range_mul(l, h, t[i].atoms[j]->lo, t[i].atoms[j]->hi, &l, &h);
        *lo = sat_add(*lo, l);
        *hi = sat_add(*hi, h);
    }
}

static void floordiv_range(const struct dim *a, const struct dim *b, int64_t *lo, int64_t *hi)
{
    if (b->lo < 0) return;
    int64_t bl = b->lo < 1 ? 1 : b->lo, bh = b->hi < bl ? bl : b->hi; /* undefined at 0 */
    *lo = sat_floordiv(a->lo, a->lo >= 0 ? bh : bl);
    *hi = sat_floordiv(a->hi, a->hi >= 0 ? bl : bh);
}

static void mod_range(const struct dim *a, const struct dim *b, int64_t *lo, int64_t *hi)
{
    if (b->lo < 0) return;
    *lo = 0;
    *hi = b->hi == DIM_INF ? DIM_INF : b->hi < 1 ? 0 : b->hi - 1;
    if (a->lo >= 0 && a->hi < *hi) *hi = a->hi;
}

/* lo and hi must not point into d. */
static void compute_range(const struct dim *d, int64_t *lo, int64_t *hi)
{
    *lo = INT64_MIN;
    *hi = DIM_INF;
    switch (d->kind) {
    case DIM_CONST: *lo = *hi = d->value; break;
    case DIM_SYM: *lo = d->lo, *hi = d->hi; break;
    case DIM_POLY: terms_range(d->terms, d->n_terms, lo, hi); break;
    case DIM_FLOORDIV: floordiv_range(d->a, d->b, lo, hi); break;
    case DIM_MOD: mod_range(d->a, d->b, lo, hi); break;
    case DIM_MIN:
        *lo = d->a->lo < d->b->lo ? d->a->lo : d->b->lo;
        *hi = d->a->hi < d->b->hi ? d->a->hi : d->b->hi;
        break;
    case DIM_MAX:
        *lo = d->a->lo > d->b->lo ? d->a->lo : d->b->lo;
        *hi = d->a->hi > d->b->hi ? d->a->hi : d->b->hi;
        break;
    case DIM_OVERFLOW: break;
    }
}

static void set_range(struct dim *d)
{
    int64_t lo, hi;
    compute_range(d, &lo, &hi);
    d->lo = lo;
    d->hi = hi;
}

/* ---- context, constants, symbols ---- */

static struct dim_node *node_create(struct dim_ctx *ctx, enum dim_kind kind)
{
    struct dim_node *n = ARENA_NEW(&ctx->arena, struct dim_node);
    n->d.kind = kind;
    n->d.id = (uint32_t)ctx->nodes.n;
    n->size = 1;
    vec_push(&ctx->arena, &ctx->nodes, n);
    return n;
}

struct dim_ctx *dim_ctx_create(void)
{
    struct dim_ctx *ctx = calloc(1, sizeof *ctx);
    INFC_ASSERT(ctx != NULL);
    arena_init(&ctx->arena);
    map_init(&ctx->interned, &ctx->arena);
    map_init(&ctx->syms, &ctx->arena);
    ctx->cache = ARENA_ARRAY(&ctx->arena, struct dim_cache_entry, DIM_CACHE_SIZE);
    struct dim_node *n = node_create(ctx, DIM_OVERFLOW);
    n->d.lo = INT64_MIN;
    n->d.hi = DIM_INF;
    ctx->overflow = &n->d;
    return ctx;
}

void dim_ctx_destroy(struct dim_ctx *ctx)
{
    if (!ctx) return;
    arena_deinit(&ctx->arena);
    free(ctx);
}

const struct dim *dim_overflow(struct dim_ctx *ctx) { return ctx->overflow; }

const struct dim *dim_const(struct dim_ctx *ctx, int64_t value)
{
    struct {
        int64_t kind, value;
    } key = {DIM_CONST, value};
    struct dim_node *n = map_find(&ctx->interned, &key, sizeof key);
    if (n) return &n->d;
    n = node_create(ctx, DIM_CONST);
    n->d.value = n->d.lo = n->d.hi = value;
    map_put(&ctx->interned, &key, sizeof key, n);
    return &n->d;
}

/* A symbol got narrower: everything made of it may have, too. Operands come before users in
 * `nodes`. */
static void narrow_all(struct dim_ctx *ctx)
{
    for (size_t i = 0; i < ctx->nodes.n; i++) set_range(&ctx->nodes.v[i]->d);
    memset(ctx->cache, 0, DIM_CACHE_SIZE * sizeof *ctx->cache);
}

const struct dim *dim_sym(struct dim_ctx *ctx, const char *name, int64_t lo, int64_t hi)
{
    struct dim_node *n = map_finds(&ctx->syms, name);
    if (!n) {
        n = node_create(ctx, DIM_SYM);
        n->d.name = arena_strdup(&ctx->arena, name);
        n->d.lo = lo;
        n->d.hi = hi;
        n->sym_index = ctx->sym_list.n;
        vec_push(&ctx->arena, &ctx->sym_list, n);
        map_puts(&ctx->syms, name, n);
        return &n->d;
    }
    if (lo > n->d.lo || hi < n->d.hi) {
        if (lo > n->d.lo) n->d.lo = lo;
        if (hi < n->d.hi) n->d.hi = hi;
        narrow_all(ctx);
    }
    return &n->d;
}

const struct dim *dim_find_sym(struct dim_ctx *ctx, const char *name)
{
    struct dim_node *n = map_finds(&ctx->syms, name);
    return n ? &n->d : NULL;
}

const struct dim *dim_fresh_sym(struct dim_ctx *ctx, const char *prefix, int64_t lo, int64_t hi)
{
    struct strbuf name = {0};
    const struct dim *d = NULL;
    for (size_t i = ctx->sym_list.n; !d; i++) {
        name.len = 0;
        strbuf_printf(&name, "%s%zu", prefix, i);
        if (!map_finds(&ctx->syms, name.data)) d = dim_sym(ctx, name.data, lo, hi);
    }
    strbuf_deinit(&name);
    return d;
}

size_t dim_sym_count(const struct dim_ctx *ctx) { return ctx->sym_list.n; }

const struct dim *dim_sym_at(const struct dim_ctx *ctx, size_t i)
{
    INFC_ASSERT(i < ctx->sym_list.n);
    return &ctx->sym_list.v[i]->d;
}

/* ---- order ---- */

int dim_cmp(const struct dim *a, const struct dim *b)
{
    if (a == b) return 0;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    switch (a->kind) {
    case DIM_CONST: return a->value < b->value ? -1 : 1;
    case DIM_SYM: return a->id < b->id ? -1 : 1;
    case DIM_POLY:
        for (int i = 0; i < a->n_terms && i < b->n_terms; i++) {
            int c = dim_cmp_terms(&a->terms[i], &b->terms[i]);
            if (c) return c;
            if (a->terms[i].coeff != b->terms[i].coeff)
                return a->terms[i].coeff < b->terms[i].coeff ? -1 : 1;
        }
        return a->n_terms < b->n_terms ? -1 : a->n_terms > b->n_terms;
    default: {
        int c = dim_cmp(a->a, b->a);
        return c ? c : dim_cmp(a->b, b->b);
    }
    }
}

int dim_cmp_terms(const struct dim_term *a, const struct dim_term *b)
{
    if (a->n_atoms != b->n_atoms) return a->n_atoms > b->n_atoms ? -1 : 1;
    for (int i = 0; i < a->n_atoms; i++) {
        int c = dim_cmp(a->atoms[i], b->atoms[i]);
        if (c) return c;
    }
    return 0;
}

/* ---- terms ---- */

const struct dim_term *dim_terms(const struct dim *d, struct dim_single *single, int *n)
{
    if (d->kind == DIM_POLY) {
        *n = d->n_terms;
        return d->terms;
    }
    *n = 1;
    if (d->kind == DIM_CONST) {
        *n = d->value != 0;
        single->term = (struct dim_term){.coeff = d->value};
    } else {
        single->atom = d;
        single->term = (struct dim_term){.coeff = 1, .n_atoms = 1, .atoms = &single->atom};
    }
    return &single->term;
}

static void put_i64(struct strbuf *s, int64_t v) { strbuf_putn(s, (const char *)&v, sizeof v); }

static const struct dim *intern_poly(struct dim_ctx *ctx, const struct dim_term *t, int n)
{
    struct strbuf key = {0};
    int depth = 0, size = 0;
    put_i64(&key, DIM_POLY);
    for (int i = 0; i < n; i++) {
        put_i64(&key, t[i].coeff);
        put_i64(&key, t[i].n_atoms);
        size++;
        for (int j = 0; j < t[i].n_atoms; j++) {
            const struct dim_node *a = (const struct dim_node *)t[i].atoms[j];
            put_i64(&key, a->d.id);
            if (a->depth > depth) depth = a->depth;
            if (size <= DIM_MAX_SIZE) size += a->size;
        }
    }
    struct dim_node *node = map_find(&ctx->interned, key.data, key.len);
    if (!node && size <= DIM_MAX_SIZE) {
        struct dim_term *copy = arena_dup(&ctx->arena, t, (size_t)n * sizeof *t);
        for (int i = 0; i < n; i++)
            copy[i].atoms =
                arena_dup(&ctx->arena, t[i].atoms, (size_t)t[i].n_atoms * sizeof *t[i].atoms);
        node = node_create(ctx, DIM_POLY);
        node->d.n_terms = n;
        node->d.terms = copy;
        node->depth = depth;
        node->size = size;
        set_range(&node->d);
        map_put(&ctx->interned, key.data, key.len, node);
    }
    strbuf_deinit(&key);
    return node ? &node->d : ctx->overflow;
}

const struct dim *dim_from_terms(struct dim_ctx *ctx, const struct dim_term *t, int n)
{
    if (n == 0) return dim_const(ctx, 0);
    if (n == 1 && t[0].n_atoms == 0) return dim_const(ctx, t[0].coeff);
    if (n == 1 && t[0].coeff == 1 && t[0].n_atoms == 1) return t[0].atoms[0];
    if (n > DIM_MAX_TERMS) return ctx->overflow;
    return intern_poly(ctx, t, n);
}

const struct dim *dim_monomial(struct dim_ctx *ctx, int64_t coeff, const struct dim *const *atoms,
                               int n_atoms)
{
    if (coeff == 0) return dim_const(ctx, 0);
    struct dim_term t = {coeff, n_atoms, (const struct dim **)(uintptr_t)atoms};
    return dim_from_terms(ctx, &t, 1);
}

const struct dim *dim_atom(struct dim_ctx *ctx, enum dim_kind kind, const struct dim *a,
                           const struct dim *b)
{
    const struct dim_node *na = (const struct dim_node *)a, *nb = (const struct dim_node *)b;
    int depth = 1 + (na->depth > nb->depth ? na->depth : nb->depth), size = 1 + na->size + nb->size;
    if (depth > DIM_MAX_DEPTH || size > DIM_MAX_SIZE) return ctx->overflow;
    struct {
        int64_t kind, a, b;
    } key = {kind, a->id, b->id};
    struct dim_node *n = map_find(&ctx->interned, &key, sizeof key);
    if (n) return &n->d;
    n = node_create(ctx, kind);
    n->d.a = a;
    n->d.b = b;
    n->depth = depth;
    n->size = size;
    set_range(&n->d);
    map_put(&ctx->interned, &key, sizeof key, n);
    return &n->d;
}

int dim_atoms_divide(const struct dim_term *term, const struct dim_term *by, const struct dim **out)
{
    int n = 0, j = 0;
    for (int i = 0; i < term->n_atoms; i++) {
        if (j < by->n_atoms && term->atoms[i] == by->atoms[j]) j++;
        else out[n++] = term->atoms[i];
    }
    return j == by->n_atoms ? n : -1;
}

/* ---- ring operations ---- */

static size_t cache_slot(enum dim_op op, const struct dim *a, const struct dim *b)
{
    uint32_t key[3] = {(uint32_t)op, a->id, b->id};
    return hash_bytes(key, sizeof key, 0) & (DIM_CACHE_SIZE - 1);
}

const struct dim *dim_cached(struct dim_ctx *ctx, enum dim_op op, const struct dim *a,
                             const struct dim *b)
{
    const struct dim_cache_entry *e = &ctx->cache[cache_slot(op, a, b)];
    return e->a == a && e->b == b && e->op == op ? e->result : NULL;
}

const struct dim *dim_remember(struct dim_ctx *ctx, enum dim_op op, const struct dim *a,
                               const struct dim *b, const struct dim *result)
{
    ctx->cache[cache_slot(op, a, b)] = (struct dim_cache_entry){a, b, result, op};
    return result;
}

/* a + k * b. */
static const struct dim *add_scaled(struct dim_ctx *ctx, const struct dim *a, const struct dim *b,
                                    int64_t k)
{
    struct dim_single sa, sb;
    int na, nb, n = 0, i = 0, j = 0;
    const struct dim_term *ta = dim_terms(a, &sa, &na), *tb = dim_terms(b, &sb, &nb);
    struct dim_term *out = malloc(((size_t)na + (size_t)nb + 1) * sizeof *out);
    INFC_ASSERT(out != NULL);
    bool fits = true;
    while (fits && (i < na || j < nb)) {
        int c = i == na ? 1 : j == nb ? -1 : dim_cmp_terms(&ta[i], &tb[j]);
        struct dim_term t = c <= 0 ? ta[i] : tb[j];
        int64_t kb = 0;
        if (c >= 0) fits = i64_mul(k, tb[j].coeff, &kb);
        fits = fits && i64_add(c <= 0 ? t.coeff : 0, kb, &t.coeff);
        i += c <= 0;
        j += c >= 0;
        if (t.coeff) out[n++] = t;
    }
    const struct dim *d = fits ? dim_from_terms(ctx, out, n) : ctx->overflow;
    free(out);
    return d;
}

static bool poisoned(const struct dim *a, const struct dim *b)
{
    return a->kind == DIM_OVERFLOW || b->kind == DIM_OVERFLOW;
}

const struct dim *dim_add(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (poisoned(a, b)) return ctx->overflow;
    const struct dim *hit = dim_cached(ctx, DIM_OP_ADD, a, b);
    return hit ? hit : dim_remember(ctx, DIM_OP_ADD, a, b, add_scaled(ctx, a, b, 1));
}

const struct dim *dim_sub(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (poisoned(a, b)) return ctx->overflow;
    const struct dim *hit = dim_cached(ctx, DIM_OP_SUB, a, b);
    return hit ? hit : dim_remember(ctx, DIM_OP_SUB, a, b, add_scaled(ctx, a, b, -1));
}

static int cmp_terms_q(const void *a, const void *b) { return dim_cmp_terms(a, b); }

/* Product of two terms; the atoms are two sorted lists merged. False when a limit or the
 * coefficient overflows. */
static bool term_mul(const struct dim_term *a, const struct dim_term *b, const struct dim **atoms,
                     struct dim_term *out)
{
    int i = 0, j = 0, n = 0;
    if (a->n_atoms + b->n_atoms > DIM_MAX_ATOMS) return false;
    while (i < a->n_atoms || j < b->n_atoms) {
        bool from_a = j == b->n_atoms || (i < a->n_atoms && dim_cmp(a->atoms[i], b->atoms[j]) <= 0);
        atoms[n++] = from_a ? a->atoms[i++] : b->atoms[j++];
    }
    out->atoms = atoms;
    out->n_atoms = n;
    return i64_mul(a->coeff, b->coeff, &out->coeff);
}

static const struct dim *mul(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    struct dim_single sa, sb;
    int na, nb;
    const struct dim_term *ta = dim_terms(a, &sa, &na), *tb = dim_terms(b, &sb, &nb);
    size_t n = (size_t)na * (size_t)nb;
    if (n == 0) return dim_const(ctx, 0);
    if (n > 16 * DIM_MAX_TERMS) return ctx->overflow;
    struct dim_term *out = malloc(n * sizeof *out);
    const struct dim **atoms = malloc(n * DIM_MAX_ATOMS * sizeof *atoms);
    INFC_ASSERT(out != NULL && atoms != NULL);
    bool fits = true;
    for (size_t k = 0; fits && k < n; k++)
        fits =
            term_mul(&ta[k / (size_t)nb], &tb[k % (size_t)nb], atoms + k * DIM_MAX_ATOMS, &out[k]);
    size_t kept = 0;
    if (fits) qsort(out, n, sizeof *out, cmp_terms_q);
    for (size_t k = 0; fits && k < n;) {
        struct dim_term t = out[k++];
        for (; fits && k < n && dim_cmp_terms(&t, &out[k]) == 0; k++)
            fits = i64_add(t.coeff, out[k].coeff, &t.coeff);
        if (t.coeff) out[kept++] = t;
    }
    const struct dim *d = fits ? dim_from_terms(ctx, out, (int)kept) : ctx->overflow;
    free(atoms);
    free(out);
    return d;
}

const struct dim *dim_mul(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (poisoned(a, b)) return ctx->overflow;
    const struct dim *hit = dim_cached(ctx, DIM_OP_MUL, a, b);
    return hit ? hit : dim_remember(ctx, DIM_OP_MUL, a, b, mul(ctx, a, b));
}

const struct dim *dim_addc(struct dim_ctx *ctx, const struct dim *a, int64_t c)
{
    return c ? dim_add(ctx, a, dim_const(ctx, c)) : a;
}

const struct dim *dim_mulc(struct dim_ctx *ctx, const struct dim *a, int64_t c)
{
    return c == 1 ? a : dim_mul(ctx, a, dim_const(ctx, c));
}
