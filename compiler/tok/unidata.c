// SPDX-License-Identifier: Apache-2.0
#include "compiler/tok/unidata.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/tok/unidata.inc"

/* ---- sets ------------------------------------------------------------------------------------ */

void uniset_add(struct arena *a, struct uniset *s, uint32_t lo, uint32_t hi)
{
    if (lo > hi) return;
    struct uni_range range = {lo, hi};
    vec_push(a, &s->r, range);
}

void uniset_add_set(struct arena *a, struct uniset *s, const struct uniset *other)
{
    size_t n = other->r.n; /* other may be s itself */
    for (size_t i = 0; i < n; i++) vec_push(a, &s->r, other->r.v[i]);
}

static int by_lo(const void *pa, const void *pb)
{
    uint32_t a = ((const struct uni_range *)pa)->lo, b = ((const struct uni_range *)pb)->lo;
    return a < b ? -1 : a > b;
}

void uniset_tidy(struct uniset *s)
{
    if (s->r.n == 0) return;
    qsort(s->r.v, s->r.n, sizeof(s->r.v[0]), by_lo);
    size_t n = 1;
    for (size_t i = 1; i < s->r.n; i++) {
        struct uni_range *last = &s->r.v[n - 1], next = s->r.v[i];
        if (next.lo <= last->hi || next.lo == last->hi + 1) {
            if (next.hi > last->hi) last->hi = next.hi;
        } else {
            s->r.v[n++] = next;
        }
    }
    s->r.n = n;
}

void uniset_invert(struct arena *a, struct uniset *s)
{
    struct uniset out = {0};
    uint32_t lo = 0;
    for (size_t i = 0; i < s->r.n; i++) {
        if (s->r.v[i].lo > lo) uniset_add(a, &out, lo, s->r.v[i].lo - 1);
        lo = s->r.v[i].hi + 1;
    }
    if (lo <= UNI_MAX) uniset_add(a, &out, lo, UNI_MAX);
    *s = out;
}

void uniset_intersect(struct arena *a, struct uniset *s, const struct uniset *other)
{
    struct uniset out = {0};
    for (size_t i = 0, j = 0; i < s->r.n && j < other->r.n;) {
        struct uni_range x = s->r.v[i], y = other->r.v[j];
        uint32_t lo = x.lo > y.lo ? x.lo : y.lo, hi = x.hi < y.hi ? x.hi : y.hi;
        uniset_add(a, &out, lo, hi);
        if (x.hi < y.hi)
            i++;
        else
            j++;
    }
    *s = out;
}

bool uniset_has(const struct uniset *s, uint32_t c)
{
    size_t lo = 0, hi = s->r.n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->r.v[mid].hi < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->r.n && s->r.v[lo].lo <= c;
}

bool uniset_equal(const struct uniset *a, const struct uniset *b)
{
    return a->r.n == b->r.n &&
           (a->r.n == 0 || memcmp(a->r.v, b->r.v, a->r.n * sizeof(a->r.v[0])) == 0);
}

/* ---- categories and other properties -----------------------------------------------------------
 */

/* Numbering of gen_unidata.py. */
static const char category_names[][3] = {
    "Cn", "Cc", "Cf", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl",
    "No", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"};

static void add_ranges(struct arena *a, struct uniset *s, const uint32_t *pairs, size_t n)
{
    for (size_t i = 0; i + 1 < n; i += 2) uniset_add(a, s, pairs[i], pairs[i + 1]);
}

static bool add_category(struct arena *a, struct uniset *s, const char *name, size_t len)
{
    uint32_t wanted = 0; /* bit set of categories */
    for (size_t i = 0; i < ARRAY_LEN(category_names); i++)
        if (memcmp(category_names[i], name, len) == 0) wanted |= 1u << i;
    if (wanted == 0) return false;
    for (size_t i = 0; i < ARRAY_LEN(uni_cat_runs); i++) {
        if (!(wanted >> (uni_cat_runs[i] & 31) & 1)) continue;
        uint32_t end = i + 1 < ARRAY_LEN(uni_cat_runs) ? uni_cat_runs[i + 1] >> 5 : UNI_COUNT;
        uniset_add(a, s, uni_cat_runs[i] >> 5, end - 1);
    }
    return true;
}

static const struct {
    const char *name;
    const uint32_t *pairs;
    size_t n;
} properties[] = {
    {"White_Space", uni_white, ARRAY_LEN(uni_white)},
    {"Alphabetic", uni_alphabetic, ARRAY_LEN(uni_alphabetic)},
    {"Han", uni_han, ARRAY_LEN(uni_han)},
    {"Hiragana", uni_hiragana, ARRAY_LEN(uni_hiragana)},
    {"Katakana", uni_katakana, ARRAY_LEN(uni_katakana)},
    {"Hangul", uni_hangul, ARRAY_LEN(uni_hangul)},
    /* Where BERT's tokenizers, which classify by Unicode 8.0, do otherwise: no property at all;
     * these are punctuation after all; these are stripped after all. */
    {"BertPlain", uni_bert_plain, ARRAY_LEN(uni_bert_plain)},
    {"BertPunct", uni_bert_punct, ARRAY_LEN(uni_bert_punct)},
    {"BertStrip", uni_bert_strip, ARRAY_LEN(uni_bert_strip)},
};

bool uni_add_property(struct arena *a, struct uniset *s, const char *name, size_t len)
{
    bool known = false;
    if (len == 1 || len == 2) {
        known = add_category(a, s, name, len);
    } else if (len == 4 && memcmp(name, "Word", 4) == 0) {
        /* Oniguruma, which tokenizer.json's patterns are written for, has its six Latin-1
         * superscripts and fractions in \w as well. */
        static const uint32_t latin1[] = {0xb2, 0xb3, 0xb9, 0xb9, 0xbc, 0xbe};
        add_ranges(a, s, latin1, ARRAY_LEN(latin1));
        add_ranges(a, s, uni_alphabetic, ARRAY_LEN(uni_alphabetic));
        known = add_category(a, s, "M", 1) && add_category(a, s, "Nd", 2) &&
                add_category(a, s, "Pc", 2);
    } else {
        for (size_t i = 0; i < ARRAY_LEN(properties) && !known; i++) {
            if (strlen(properties[i].name) != len || memcmp(properties[i].name, name, len) != 0)
                continue;
            add_ranges(a, s, properties[i].pairs, properties[i].n);
            known = true;
        }
    }
    uniset_tidy(s);
    return known;
}

/* ---- mappings
 * ------------------------------------------------------------------------------------ */

uint8_t uni_combining_class(uint32_t c)
{
    size_t lo = 0, hi = ARRAY_LEN(uni_ccc_runs);
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (uni_ccc_runs[mid] >> 8 <= c)
            lo = mid;
        else
            hi = mid;
    }
    return (uint8_t)(uni_ccc_runs[lo] & 255);
}

/* Finds c among entries `c | flags << 21 | length << 22, sequence...`, sorted by c. Only the first
 * word of an entry reaches 1 << 22, so a binary search can step back to one from anywhere. */
static const uint32_t *find_sequence(const uint32_t *table, size_t n, uint32_t c)
{
    size_t lo = 0, hi = n; /* lo is the first word of an entry, hi one or the end */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        while (table[mid] < 1u << 22) mid--;
        uint32_t at = table[mid] & 0x1fffff;
        if (at == c) return &table[mid];
        if (at < c)
            lo = mid + 1 + (table[mid] >> 22);
        else
            hi = mid;
    }
    return NULL;
}

static unsigned decompose(uint32_t c, bool compat, unsigned depth, uint32_t *out, unsigned n)
{
    const uint32_t *e = depth < 8 ? find_sequence(uni_decomp, ARRAY_LEN(uni_decomp), c) : NULL;
    if (e != NULL && (e[0] >> 21 & 1) && !compat) e = NULL;
    if (e == NULL) {
        if (n < UNI_DECOMP_MAX) out[n++] = c;
        return n;
    }
    for (unsigned i = 0; i < e[0] >> 22; i++) n = decompose(e[1 + i], compat, depth + 1, out, n);
    return n;
}

unsigned uni_decompose(uint32_t c, bool compat, uint32_t out[UNI_DECOMP_MAX])
{
    if (c >= 0xac00 && c < 0xd7a4) {
        uint32_t s = c - 0xac00;
        out[0] = 0x1100 + s / 588;
        out[1] = 0x1161 + s % 588 / 28;
        out[2] = 0x11a7 + s % 28;
        return s % 28 ? 3 : 2;
    }
    if (c < 0xa0) return 0;
    unsigned n = decompose(c, compat, 0, out, 0);
    return n == 1 && out[0] == c ? 0 : n;
}

bool uni_composes(uint32_t c, uint32_t out_pair[2])
{
    const uint32_t *e = find_sequence(uni_decomp, ARRAY_LEN(uni_decomp), c);
    if (e == NULL || (e[0] >> 21 & 1) || e[0] >> 22 != 2) return false;
    for (size_t i = 0; i < ARRAY_LEN(uni_comp_excluded); i++)
        if (uni_comp_excluded[i] == c) return false;
    out_pair[0] = e[1];
    out_pair[1] = e[2];
    return true;
}

/* Runs `first, count << 8 | step, difference`; sorted by first, but runs of step 2 may interleave.
 */
static uint32_t map_delta(const uint32_t *runs, size_t n, uint32_t c)
{
    for (size_t i = 0; i + 2 < n && runs[i] <= c; i += 3) {
        uint32_t step = runs[i + 1] & 255, count = runs[i + 1] >> 8, d = c - runs[i];
        if (d % step == 0 && d / step < count) return c + runs[i + 2];
    }
    return c;
}

unsigned uni_to_lower(uint32_t c, uint32_t out[3])
{
    const uint32_t *e = find_sequence(uni_lower_special, ARRAY_LEN(uni_lower_special), c);
    if (e != NULL) {
        unsigned n = e[0] >> 22 < 3 ? e[0] >> 22 : 3;
        for (unsigned i = 0; i < n; i++) out[i] = e[1 + i];
        return n;
    }
    out[0] = map_delta(uni_lower, ARRAY_LEN(uni_lower), c);
    return 1;
}

uint32_t uni_fold(uint32_t c) { return map_delta(uni_fold_runs, ARRAY_LEN(uni_fold_runs), c); }

/* Members of the folding table whose folded form the set has, or that fold to the same as a member.
 */
void uniset_fold_case(struct arena *a, struct uniset *s)
{
    struct uniset folded = {0};
    uniset_add_set(a, &folded, s);
    for (size_t i = 0; i + 2 < ARRAY_LEN(uni_fold_runs); i += 3) {
        uint32_t step = uni_fold_runs[i + 1] & 255, count = uni_fold_runs[i + 1] >> 8;
        for (uint32_t k = 0; k < count; k++) {
            uint32_t c = uni_fold_runs[i] + k * step, f = c + uni_fold_runs[i + 2];
            if (uniset_has(s, c)) uniset_add(a, &folded, f, f);
        }
    }
    uniset_tidy(&folded);
    uniset_add_set(a, s, &folded);
    for (size_t i = 0; i + 2 < ARRAY_LEN(uni_fold_runs); i += 3) {
        uint32_t step = uni_fold_runs[i + 1] & 255, count = uni_fold_runs[i + 1] >> 8;
        for (uint32_t k = 0; k < count; k++) {
            uint32_t c = uni_fold_runs[i] + k * step;
            if (uniset_has(&folded, c + uni_fold_runs[i + 2])) uniset_add(a, s, c, c);
        }
    }
    uniset_tidy(s);
}
