// SPDX-License-Identifier: Apache-2.0
/*
 * Symbolic dimensions: interned integer expressions in one canonical polynomial form,
 *
 *     sum of coefficient * product of atoms,   atom = symbol | floordiv(e, e) | mod(e, e) | min(e, e) | max(e, e)
 *
 * Two dims are provably equal exactly when they are the same pointer. Every dim has a range that is
 * computed from its symbols' ranges. Semantics of floordiv and mod: floor (mod has the divisor's sign);
 * the divisor's range must not contain 0. Arithmetic saturates nothing: an overflow of a constant gives
 * NULL-free "poison" dim_overflow(ctx), which prints as `overflow` and fails verification.
 * A context and its dims are used by one thread at a time.
 */
#ifndef INFC_IR_DIM_H
#define INFC_IR_DIM_H

#include "ir/support/arena.h"
#include "ir/support/str.h"

#define DIM_INF INT64_MAX /* an unknown upper bound */

enum dim_kind { DIM_CONST, DIM_SYM, DIM_POLY, DIM_FLOORDIV, DIM_MOD, DIM_MIN, DIM_MAX, DIM_OVERFLOW };

struct dim_term {
    int64_t coeff;             /* never 0 */
    int n_atoms;               /* 0 for the constant term, which comes last */
    const struct dim **atoms;  /* sorted by structure; repeated for powers; none is CONST or POLY */
};

struct dim {
    enum dim_kind kind;
    uint32_t id; /* creation order; orders symbols in the canonical form */
    int64_t lo, hi; /* range, inclusive */
    int64_t value;      /* CONST */
    const char *name;   /* SYM */
    int n_terms;        /* POLY: at least two terms, or one with coeff != 1 or several atoms */
    const struct dim_term *terms;
    const struct dim *a, *b; /* FLOORDIV, MOD, MIN, MAX */
};

struct dim_ctx;

struct dim_ctx *dim_ctx_create(void);
void dim_ctx_destroy(struct dim_ctx *ctx);

const struct dim *dim_const(struct dim_ctx *ctx, int64_t value);
/* The poison of overflows and of exceeded size limits; every operation on it gives it again. */
const struct dim *dim_overflow(struct dim_ctx *ctx);
/* The symbol of that name; made with the range [lo, hi] when new, else the range is intersected. */
const struct dim *dim_sym(struct dim_ctx *ctx, const char *name, int64_t lo, int64_t hi);
const struct dim *dim_find_sym(struct dim_ctx *ctx, const char *name); /* NULL when absent */
/* A symbol whose name (prefix plus number) is not in use. */
const struct dim *dim_fresh_sym(struct dim_ctx *ctx, const char *prefix, int64_t lo, int64_t hi);
/* All symbols in creation order. */
size_t dim_sym_count(const struct dim_ctx *ctx);
const struct dim *dim_sym_at(const struct dim_ctx *ctx, size_t i);

const struct dim *dim_add(struct dim_ctx *ctx, const struct dim *a, const struct dim *b);
const struct dim *dim_sub(struct dim_ctx *ctx, const struct dim *a, const struct dim *b);
const struct dim *dim_mul(struct dim_ctx *ctx, const struct dim *a, const struct dim *b);
const struct dim *dim_floordiv(struct dim_ctx *ctx, const struct dim *a, const struct dim *b);
const struct dim *dim_ceildiv(struct dim_ctx *ctx, const struct dim *a, const struct dim *b);
const struct dim *dim_mod(struct dim_ctx *ctx, const struct dim *a, const struct dim *b);
const struct dim *dim_min(struct dim_ctx *ctx, const struct dim *a, const struct dim *b);
const struct dim *dim_max(struct dim_ctx *ctx, const struct dim *a, const struct dim *b);
const struct dim *dim_addc(struct dim_ctx *ctx, const struct dim *a, int64_t c);
const struct dim *dim_mulc(struct dim_ctx *ctx, const struct dim *a, int64_t c);
/* Exact quotient: q with q * b == a as polynomials, else NULL. */
const struct dim *dim_exact_div(struct dim_ctx *ctx, const struct dim *a, const struct dim *b);

static inline bool dim_is_const(const struct dim *d) { return d->kind == DIM_CONST; }
static inline bool dim_is(const struct dim *d, int64_t v) { return d->kind == DIM_CONST && d->value == v; }
/* Provable comparisons, by range of the difference; false means "not provable". */
bool dim_known_le(struct dim_ctx *ctx, const struct dim *a, const struct dim *b);
bool dim_known_ne(struct dim_ctx *ctx, const struct dim *a, const struct dim *b);
/* Value under an assignment: sym_values[i] belongs to dim_sym_at(ctx, i). False on overflow or division by 0. */
bool dim_eval(const struct dim_ctx *ctx, const struct dim *d, const int64_t *sym_values, int64_t *out);
/* Replaces symbols: repl[i] (NULL = keep) for dim_sym_at(ctx, i), i < n_repl. */
const struct dim *dim_subst(struct dim_ctx *ctx, const struct dim *d, const struct dim *const *repl,
                            size_t n_repl);

/* Text such as `2*batch*seq + floordiv(h + 1, 2)`; parse accepts what print writes (and parentheses). */
void dim_print(struct strbuf *out, const struct dim *d);
/* Parses one expression at *p (up to end), advancing *p; unknown names become symbols in [0, INF]. NULL on error. */
const struct dim *dim_parse(struct dim_ctx *ctx, const char **p, const char *end);

#endif
