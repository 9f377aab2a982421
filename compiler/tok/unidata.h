// SPDX-License-Identifier: Apache-2.0
/*
 * Unicode 16.0.0 properties and sets of code points, for the compilation of tokenizers. The engine
 * holds none of this: only the classes and maps that its own tokenizer needs.
 */
#ifndef INFC_COMPILER_TOK_UNIDATA_H
#define INFC_COMPILER_TOK_UNIDATA_H

#include "ir/support/arena.h"

#define UNI_MAX 0x10ffffu
#define UNI_COUNT 0x110000u

struct uni_range {
    uint32_t lo, hi; /* inclusive */
};

/* Sorted, disjoint and not adjacent after uniset_tidy; functions below expect tidy sets. */
struct uniset {
    VEC(struct uni_range) r;
};

void uniset_add(struct arena *a, struct uniset *s, uint32_t lo, uint32_t hi);
void uniset_add_set(struct arena *a, struct uniset *s, const struct uniset *other);
void uniset_tidy(struct uniset *s);
void uniset_invert(struct arena *a, struct uniset *s);
/* s becomes what both have. */
void uniset_intersect(struct arena *a, struct uniset *s, const struct uniset *other);
/* Adds whatever is equal to a member under simple case folding. */
void uniset_fold_case(struct arena *a, struct uniset *s);
bool uniset_has(const struct uniset *s, uint32_t c);
bool uniset_equal(const struct uniset *a, const struct uniset *b);

/* Adds the property called name (L, Lu, Nd, P, Han, White_Space, Word...); false when unknown. */
bool uni_add_property(struct arena *a, struct uniset *s, const char *name, size_t len);

uint8_t uni_combining_class(uint32_t c);
/* Full decomposition of one code point, not reordered. Returns its length, at most UNI_DECOMP_MAX,
 * or 0 when it has none. Hangul syllables are included. */
#define UNI_DECOMP_MAX 32
unsigned uni_decompose(uint32_t c, bool compat, uint32_t out[UNI_DECOMP_MAX]);
/* Canonical pair of c when composition makes c again; false otherwise. Hangul not included. */
bool uni_composes(uint32_t c, uint32_t out_pair[2]);
#define UNI_CASED_END 0x20000u /* no letter from here on has a case */
/* Length 1 to 3; c itself when it has no lower case. */
unsigned uni_to_lower(uint32_t c, uint32_t out[3]);
uint32_t uni_fold(uint32_t c);

#endif
