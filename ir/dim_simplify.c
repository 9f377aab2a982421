// SPDX-License-Identifier: Apache-2.0
/*
 * Division, modulo, minimum, maximum and provable comparisons of dims.
 *
 * Laws used (c, k > 0 constants; every rule keeps the value wherever the expression is defined):
 *   floordiv(c*q + r, c)            = q + floordiv(r, c)
 *   floordiv(r, c)                  = v          when the range of r lies in [v*c, v*c + c)
 *   floordiv(g*r + k, g*c)          = floordiv(r + floordiv(k, g), c)
 *   floordiv(floordiv(x, a) + k, b) = floordiv(x + k*a, a*b)
 *   mod(c*q + r, c) = mod(r, c);  mod(g*r, g*c) = g*mod(r, c);  mod(mod(x, k*c), c) = mod(x, c)
 *   min and max: flattened, sorted, without operands that another one provably dominates
 */
#include "ir/dim_internal.h"

#include <stdlib.h>

bool dim_i64_floordiv(int64_t a, int64_t b, int64_t *out)
{
    if (b == -1) return i64_sub(0, a, out);
    int64_t q = a / b;
    *out = a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
    return true;
}

int64_t dim_i64_mod(int64_t a, int64_t b)
{
    if (b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t dim_gcd(int64_t a, int64_t b)
{
    if (a == INT64_MIN || b == INT64_MIN) return 1;
    if (a < 0) a = -a;
    if (b < 0) b = -b;
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static bool poisoned(const struct dim *a, const struct dim *b)
{
    return a->kind == DIM_OVERFLOW || b->kind == DIM_OVERFLOW;
}

static int64_t constant_term(const struct dim *d)
{
    if (d->kind == DIM_CONST) return d->value;
    if (d->kind != DIM_POLY) return 0;
    const struct dim_term *last = &d->terms[d->n_terms - 1];
    return last->n_atoms == 0 ? last->coeff : 0;
}

static const struct dim *negate(struct dim_ctx *ctx, const struct dim *d)
{
    return dim_mulc(ctx, d, -1);
}

/*
 * a = c * quotient + remainder by coefficients; of the constant term the remainder is in [0, c), of
 * the others it has the coefficient's sign (that keeps the range of the remainder tight). c > 0.
 */
static void split_by_const(struct dim_ctx *ctx, const struct dim *a, int64_t c,
                           const struct dim **quotient, const struct dim **remainder)
{
    struct dim_single s;
    int n;
    const struct dim_term *t = dim_terms(a, &s, &n);
    struct dim_term *q = malloc((size_t)(2 * n + 1) * sizeof *q), *r = q + n;
    INFC_ASSERT(q != NULL);
    int nq = 0, nr = 0;
    for (int i = 0; i < n; i++) {
        int64_t high = t[i].coeff / c, low = t[i].coeff % c;
        if (t[i].n_atoms == 0 && low < 0) high--, low += c;
        if (high) q[nq] = t[i], q[nq++].coeff = high;
        if (low) r[nr] = t[i], r[nr++].coeff = low;
    }
    *quotient = dim_from_terms(ctx, q, nq);
    *remainder = dim_from_terms(ctx, r, nr);
    free(q);
}

/* gcd of the coefficients of d other than the constant term's, and start. */
static int64_t content(const struct dim *d, int64_t start)
{
    struct dim_single s;
    int n;
    const struct dim_term *t = dim_terms(d, &s, &n);
    int64_t g = start;
    for (int i = 0; i < n; i++)
        if (t[i].n_atoms) g = dim_gcd(g, t[i].coeff);
    return g;
}

/* d / g by coefficients (exact except for the constant term, which is floored). g > 0. */
static const struct dim *divide_coeffs(struct dim_ctx *ctx, const struct dim *d, int64_t g)
{
    if (g == 1) return d;
    const struct dim *q, *r;
    split_by_const(ctx, d, g, &q, &r);
    return q;
}

static const struct dim *floordiv_const(struct dim_ctx *ctx, const struct dim *a, int64_t c)
{
    if (c == INT64_MIN) return ctx->overflow;
    if (c < 0) return floordiv_const(ctx, negate(ctx, a), -c);
    if (a->kind == DIM_OVERFLOW || c == 1) return a;
    const struct dim *q, *r;
    split_by_const(ctx, a, c, &q, &r);
    int64_t low, high;
    bool bounded = r->lo != INT64_MIN && r->hi != DIM_INF;
    if (bounded && dim_i64_floordiv(r->lo, c, &low) && dim_i64_floordiv(r->hi, c, &high) &&
        low == high)
        return dim_addc(ctx, q, low);
    int64_t g = content(r, c), k = constant_term(r), wide, shift;
    if (g > 1) return dim_add(ctx, q, floordiv_const(ctx, divide_coeffs(ctx, r, g), c / g));
    const struct dim *inner = dim_addc(ctx, r, -k);
    if (inner->kind == DIM_FLOORDIV && dim_is_const(inner->b) && inner->b->value > 0 &&
        i64_mul(inner->b->value, c, &wide) && i64_mul(inner->b->value, k, &shift))
        return dim_add(ctx, q, floordiv_const(ctx, dim_addc(ctx, inner->a, shift), wide));
    return dim_add(ctx, q, dim_atom(ctx, DIM_FLOORDIV, r, dim_const(ctx, c)));
}

/* Terms of a that are multiples of the monomial b leave as quotient. */
static void split_by_monomial(struct dim_ctx *ctx, const struct dim *a, const struct dim_term *b,
                              const struct dim **quotient, const struct dim **remainder)
{
    struct dim_single s;
    int n;
    const struct dim_term *t = dim_terms(a, &s, &n);
    const struct dim *atoms[DIM_MAX_ATOMS], *q = dim_const(ctx, 0), *r = a;
    for (int i = 0; i < n && b->coeff != -1; i++) {
        int rest = dim_atoms_divide(&t[i], b, atoms);
        int64_t high = t[i].coeff / b->coeff;
        if (rest < 0 || high == 0) continue;
        q = dim_add(ctx, q, dim_monomial(ctx, high, atoms, rest));
        r = dim_sub(ctx, r, dim_monomial(ctx, high * b->coeff, t[i].atoms, t[i].n_atoms));
    }
    *quotient = q;
    *remainder = r;
}

const struct dim *dim_exact_div(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (poisoned(a, b) || dim_is(b, 0)) return NULL;
    struct dim_single sa, sb;
    int na, nb;
    const struct dim_term *lead_b = dim_terms(b, &sb, &nb);
    const struct dim *atoms[DIM_MAX_ATOMS], *q = dim_const(ctx, 0), *rest = a;
    /* The leading term of the rest falls strictly in the monomial order, so this ends; the bound is
     * for hostile text. */
    for (int step = 0; step < 4 * DIM_MAX_TERMS; step++) {
        if (dim_is(rest, 0)) return q;
        const struct dim_term *lead = dim_terms(rest, &sa, &na);
        int n = rest->kind == DIM_OVERFLOW ? -1 : dim_atoms_divide(lead, lead_b, atoms);
        if (n < 0 || (lead_b->coeff == -1 && lead->coeff == INT64_MIN) ||
            lead->coeff % lead_b->coeff)
            return NULL;
        const struct dim *m = dim_monomial(ctx, lead->coeff / lead_b->coeff, atoms, n);
        q = dim_add(ctx, q, m);
        rest = dim_sub(ctx, rest, dim_mul(ctx, m, b));
    }
    return NULL;
}

/* The atoms that all terms of d share, as a term with coefficient 1; atoms is its storage. */
static struct dim_term common_atoms(const struct dim *d, const struct dim **atoms)
{
    struct dim_single s;
    int n;
    const struct dim_term *t = dim_terms(d, &s, &n);
    struct dim_term common = {.coeff = 1, .atoms = atoms};
    for (int i = 0; n > 0 && i < t[0].n_atoms; i++) {
        atoms[common.n_atoms++] = t[0].atoms[i];
        const struct dim *rest[DIM_MAX_ATOMS];
        for (int k = 1; k < n; k++) {
            if (dim_atoms_divide(&t[k], &common, rest) >= 0) continue;
            common.n_atoms--;
            break;
        }
    }
    return common;
}

/* Drops integer and atom factors that numerator and denominator share. */
static void cancel(struct dim_ctx *ctx, const struct dim **a, const struct dim **b)
{
    const struct dim *store[DIM_MAX_ATOMS], *both[DIM_MAX_ATOMS], *rest[DIM_MAX_ATOMS];
    if (dim_is(*a, 0)) return;
    struct dim_term cb = common_atoms(*b, store);
    struct dim_term shared = {.coeff = 1, .atoms = both};
    struct dim_single s;
    int n;
    const struct dim_term *t = dim_terms(*a, &s, &n);
    for (int i = 0; i < cb.n_atoms; i++) {
        both[shared.n_atoms++] = cb.atoms[i];
        for (int k = 0; k < n; k++) {
            if (dim_atoms_divide(&t[k], &shared, rest) >= 0) continue;
            shared.n_atoms--;
            break;
        }
    }
    int64_t g = dim_gcd(content(*a, constant_term(*a)), content(*b, constant_term(*b)));
    const struct dim *factor = dim_monomial(ctx, g > 0 ? g : 1, shared.atoms, shared.n_atoms);
    const struct dim *qa = dim_exact_div(ctx, *a, factor), *qb = dim_exact_div(ctx, *b, factor);
    if (!qa || !qb) return;
    *a = qa;
    *b = qb;
}

static const struct dim *floordiv_symbolic(struct dim_ctx *ctx, const struct dim *a,
                                           const struct dim *b)
{
    const struct dim *q = dim_exact_div(ctx, a, b);
    if (q) return q;
    cancel(ctx, &a, &b);
    if (dim_is_const(b)) return floordiv_const(ctx, a, b->value);
    struct dim_single sb;
    int nb;
    const struct dim_term *tb = dim_terms(b, &sb, &nb);
    q = dim_const(ctx, 0);
    if (nb == 1) split_by_monomial(ctx, a, tb, &q, &a);
    if (a->kind == DIM_OVERFLOW) return a;
    if (a->lo >= 0 && dim_known_le(ctx, dim_addc(ctx, a, 1), b)) return q;
    return dim_add(ctx, q, dim_atom(ctx, DIM_FLOORDIV, a, b));
}

const struct dim *dim_floordiv(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (poisoned(a, b) || dim_is(b, 0)) return ctx->overflow;
    const struct dim *hit = dim_cached(ctx, DIM_OP_DIV, a, b);
    if (hit) return hit;
    return dim_remember(ctx, DIM_OP_DIV, a, b,
                        dim_is_const(b) ? floordiv_const(ctx, a, b->value)
                                        : floordiv_symbolic(ctx, a, b));
}

const struct dim *dim_ceildiv(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (b->lo >= 0) return dim_floordiv(ctx, dim_add(ctx, a, dim_addc(ctx, b, -1)), b);
    return negate(ctx, dim_floordiv(ctx, negate(ctx, a), b));
}

static const struct dim *mod_const(struct dim_ctx *ctx, const struct dim *a, int64_t c)
{
    if (c == INT64_MIN) return ctx->overflow;
    if (c < 0) return negate(ctx, mod_const(ctx, negate(ctx, a), -c));
    if (a->kind == DIM_OVERFLOW) return a;
    const struct dim *q, *r;
    split_by_const(ctx, a, c, &q, &r);
    if (r->lo >= 0 && r->hi < c) return r;
    int64_t k = constant_term(r), g = dim_gcd(content(r, c), k), v, width;
    if (g > 1) return dim_mulc(ctx, mod_const(ctx, divide_coeffs(ctx, r, g), c / g), g);
    bool bounded = r->lo != INT64_MIN && r->hi != DIM_INF && dim_i64_floordiv(r->lo, c, &v);
    if (bounded && i64_sub(r->hi, v * c, &width) && width < c) return dim_addc(ctx, r, -v * c);
    const struct dim *inner = dim_addc(ctx, r, -k);
    if (inner->kind == DIM_MOD && dim_is_const(inner->b) && inner->b->value > 0 &&
        inner->b->value % c == 0)
        return mod_const(ctx, dim_addc(ctx, inner->a, k), c);
    return dim_atom(ctx, DIM_MOD, r, dim_const(ctx, c));
}

static const struct dim *mod_symbolic(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (dim_exact_div(ctx, a, b)) return dim_const(ctx, 0);
    struct dim_single sb;
    int nb;
    const struct dim_term *tb = dim_terms(b, &sb, &nb);
    const struct dim *q;
    if (nb == 1) split_by_monomial(ctx, a, tb, &q, &a);
    if (a->kind == DIM_OVERFLOW) return a;
    if (a->lo >= 0 && dim_known_le(ctx, dim_addc(ctx, a, 1), b)) return a;
    return dim_atom(ctx, DIM_MOD, a, b);
}

const struct dim *dim_mod(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (poisoned(a, b) || dim_is(b, 0)) return ctx->overflow;
    const struct dim *hit = dim_cached(ctx, DIM_OP_MOD, a, b);
    if (hit) return hit;
    return dim_remember(ctx, DIM_OP_MOD, a, b,
                        dim_is_const(b) ? mod_const(ctx, a, b->value) : mod_symbolic(ctx, a, b));
}

/* ---- proofs ---- */

static bool is_proof_atom(const struct dim *d)
{
    return d->kind == DIM_MIN || d->kind == DIM_MAX ||
           (d->kind == DIM_FLOORDIV && dim_is_const(d->b) && d->b->value > 0);
}

/* rest + k * atom >= 0, by bounds on the atom. */
static bool prove_with_atom(struct dim_ctx *ctx, const struct dim *rest, int64_t k,
                            const struct dim *atom, int depth)
{
    if (k == INT64_MIN) return false;
    if (atom->kind == DIM_FLOORDIV) {
        /* c*floordiv(e, c) lies in [e - c + 1, e]; and the sum is an integer: c*sum > -c is enough.
         */
        int64_t c = atom->b->value;
        const struct dim *bound = k < 0 ? atom->a : dim_addc(ctx, atom->a, 1 - c);
        const struct dim *d = dim_add(ctx, dim_mulc(ctx, rest, c), dim_mulc(ctx, bound, k));
        return dim_prove_ge0(ctx, dim_addc(ctx, d, c - 1), depth - 1);
    }
    const struct dim *with_a = dim_add(ctx, rest, dim_mulc(ctx, atom->a, k));
    const struct dim *with_b = dim_add(ctx, rest, dim_mulc(ctx, atom->b, k));
    /* k*min is the lesser of both for k > 0, k*max the greater; for k < 0 the other way round. */
    bool needs_both = (atom->kind == DIM_MIN) == (k > 0);
    bool a = dim_prove_ge0(ctx, with_a, depth - 1);
    if (a != needs_both) return a;
    return dim_prove_ge0(ctx, with_b, depth - 1);
}

bool dim_prove_ge0(struct dim_ctx *ctx, const struct dim *d, int depth)
{
    if (d->kind == DIM_OVERFLOW) return false;
    if (d->lo >= 0) return true;
    if (depth <= 0 || d->hi < 0) return false;
    struct dim_single s;
    int n;
    const struct dim_term *t = dim_terms(d, &s, &n);
    if (n > 16)
        return false; /* hostile text could make this search slow; real shapes have few terms */
    int tried = 0;
    const struct dim *store[DIM_MAX_ATOMS];
    struct dim_term common = common_atoms(d, store);
    if (n > 1 && common.n_atoms) {
        for (int i = 0; i < common.n_atoms; i++)
            if (common.atoms[i]->lo < 0) return false;
        const struct dim *q =
            dim_exact_div(ctx, d, dim_monomial(ctx, 1, common.atoms, common.n_atoms));
        return q && dim_prove_ge0(ctx, q, depth - 1);
    }
    for (int i = 0; i < n && tried < 3; i++) {
        if (t[i].n_atoms != 1 || !is_proof_atom(t[i].atoms[0])) continue;
        tried++;
        const struct dim *rest = dim_sub(ctx, d, dim_monomial(ctx, t[i].coeff, t[i].atoms, 1));
        if (prove_with_atom(ctx, rest, t[i].coeff, t[i].atoms[0], depth)) return true;
    }
    return false;
}

#define PROOF_DEPTH 4

bool dim_known_le(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (poisoned(a, b)) return false;
    return a == b || dim_prove_ge0(ctx, dim_sub(ctx, b, a), PROOF_DEPTH);
}

bool dim_known_ne(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (poisoned(a, b) || a == b) return false;
    const struct dim *d = dim_sub(ctx, a, b);
    if (d->kind == DIM_OVERFLOW) return false;
    int64_t g = content(d, 0);
    if (g > 1 && constant_term(d) % g) return true;
    return dim_prove_ge0(ctx, dim_addc(ctx, d, -1), PROOF_DEPTH) ||
           dim_prove_ge0(ctx, dim_addc(ctx, negate(ctx, d), -1), PROOF_DEPTH);
}

/* ---- minimum and maximum ---- */

#define MAX_LEAVES 16

/* The leaves of nested atoms of one kind; false when there are too many. */
static bool collect(const struct dim *d, enum dim_kind kind, const struct dim **leaves, int *n)
{
    if (d->kind == kind) return collect(d->a, kind, leaves, n) && collect(d->b, kind, leaves, n);
    if (*n == MAX_LEAVES) return false;
    leaves[(*n)++] = d;
    return true;
}

/* True when a is always the operand that `kind` would pick over b. */
static bool picks(struct dim_ctx *ctx, enum dim_kind kind, const struct dim *a, const struct dim *b)
{
    return kind == DIM_MIN ? dim_known_le(ctx, a, b) : dim_known_le(ctx, b, a);
}

static const struct dim *pick(struct dim_ctx *ctx, enum dim_kind kind, const struct dim *a,
                              const struct dim *b)
{
    if (picks(ctx, kind, a, b)) return a;
    if (picks(ctx, kind, b, a)) return b;
    const struct dim *leaves[MAX_LEAVES], *kept[MAX_LEAVES] = {NULL};
    int n = 0, m = 0;
    if (!collect(a, kind, leaves, &n) || !collect(b, kind, leaves, &n))
        return dim_atom(ctx, kind, a, b);
    for (int i = 0; i < n; i++) {
        bool dominated = false;
        for (int j = 0; j < m && !dominated; j++) dominated = picks(ctx, kind, kept[j], leaves[i]);
        if (dominated) continue;
        int left = 0;
        for (int j = 0; j < m; j++)
            if (!picks(ctx, kind, leaves[i], kept[j])) kept[left++] = kept[j];
        m = left;
        int at = m++;
        for (; at > 0 && dim_cmp(leaves[i], kept[at - 1]) < 0; at--) kept[at] = kept[at - 1];
        kept[at] = leaves[i];
    }
    const struct dim *d = kept[0];
    for (int i = 1; i < m; i++) d = dim_atom(ctx, kind, d, kept[i]);
    return d;
}

const struct dim *dim_min(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (poisoned(a, b)) return ctx->overflow;
    const struct dim *hit = dim_cached(ctx, DIM_OP_MIN, a, b);
    return hit ? hit : dim_remember(ctx, DIM_OP_MIN, a, b, pick(ctx, DIM_MIN, a, b));
}

const struct dim *dim_max(struct dim_ctx *ctx, const struct dim *a, const struct dim *b)
{
    if (poisoned(a, b)) return ctx->overflow;
    const struct dim *hit = dim_cached(ctx, DIM_OP_MAX, a, b);
    return hit ? hit : dim_remember(ctx, DIM_OP_MAX, a, b, pick(ctx, DIM_MAX, a, b));
}
