// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by ir/dim*.c only. A dim is seen as a list of terms in one order: higher degree first,
 * then atom by atom. That order is a monomial order (it survives multiplication by a common
 * factor), which is what polynomial division needs. Atoms are compared by structure, symbols by
 * creation: the order does not depend on which compound was made first, so that print, parse, print
 * is the identity.
 */
#ifndef INFC_IR_DIM_INTERNAL_H
#define INFC_IR_DIM_INTERNAL_H

#include "ir/dim.h"
#include "ir/support/map.h"

/* Limits against hostile expressions: beyond them the result is the overflow dim. */
#define DIM_MAX_TERMS 256
#define DIM_MAX_ATOMS 32  /* degree of a term */
#define DIM_MAX_DEPTH 64  /* nesting of floordiv, mod, min, max */
#define DIM_MAX_SIZE 2000 /* nodes of the expression written out as a tree */

enum dim_op { DIM_OP_ADD, DIM_OP_SUB, DIM_OP_MUL, DIM_OP_DIV, DIM_OP_MOD, DIM_OP_MIN, DIM_OP_MAX };

struct dim_node {
    struct dim d; /* first: a struct dim * is a struct dim_node * */
    int depth, size;
    size_t sym_index; /* SYM */
};

/* Lossy and of fixed size: the common questions are asked again and again. Emptied when a range
 * narrows. */
#define DIM_CACHE_SIZE 4096
struct dim_cache_entry {
    const struct dim *a, *b, *result;
    enum dim_op op;
};

struct dim_ctx {
    struct arena arena;
    struct map interned;          /* serialised structure -> struct dim_node */
    struct map syms;              /* name -> struct dim_node */
    VEC(struct dim_node *) nodes; /* in creation order: operands before users */
    VEC(struct dim_node *) sym_list;
    const struct dim *overflow;
    struct dim_cache_entry *cache;
};

struct dim_poly {
    struct dim_term *t;
    int n;
};

/* The terms of d; single is storage for when d is not a POLY. */
struct dim_single {
    struct dim_term term;
    const struct dim *atom;
};
const struct dim_term *dim_terms(const struct dim *d, struct dim_single *single, int *n);
/* Canonical dim of sorted, merged terms (all coefficients non-zero). */
const struct dim *dim_from_terms(struct dim_ctx *ctx, const struct dim_term *t, int n);
int dim_cmp_terms(const struct dim_term *a, const struct dim_term *b); /* < 0: a comes first */
int dim_cmp(const struct dim *a, const struct dim *b);
/* The interned atom of that kind; no simplification. */
const struct dim *dim_atom(struct dim_ctx *ctx, enum dim_kind kind, const struct dim *a,
                           const struct dim *b);
/* coeff * product of atoms (sorted), as a dim. */
const struct dim *dim_monomial(struct dim_ctx *ctx, int64_t coeff, const struct dim *const *atoms,
                               int n_atoms);
/* term / by, when the atoms of `by` are among those of term: the rest in out (capacity
 * DIM_MAX_ATOMS), else -1. */
int dim_atoms_divide(const struct dim_term *term, const struct dim_term *by,
                     const struct dim **out);
const struct dim *dim_cached(struct dim_ctx *ctx, enum dim_op op, const struct dim *a,
                             const struct dim *b);
const struct dim *dim_remember(struct dim_ctx *ctx, enum dim_op op, const struct dim *a,
                               const struct dim *b, const struct dim *result);
/* d >= 0 by ranges, bounds of floordiv, and case split of min and max. */
bool dim_prove_ge0(struct dim_ctx *ctx, const struct dim *d, int depth);

/* Floor division and modulo of constants; b != 0; false on overflow. */
bool dim_i64_floordiv(int64_t a, int64_t b, int64_t *out);
int64_t dim_i64_mod(int64_t a, int64_t b);
int64_t dim_gcd(int64_t a, int64_t b); /* of absolute values; INT64_MIN counts as 1 */

#endif
