// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/random.h"
#include "runtime/status.h"

/* ---- memory ---- */

int rt_tensor_alloc(uint32_t dtype, uint32_t rank, const int64_t *dims, uint64_t max_bytes,
                    struct infr_tensor *out, struct infr_status *st)
{
    uint64_t bytes = dtype_bytes((enum dtype)dtype);
    bool empty = false;
    *out = (struct infr_tensor){0};
    if (!bytes)
        return rt_fail(st, INFR_BAD_INPUT, "tensors of type %s cannot be used",
                       dtype_name((enum dtype)dtype));
    if (rank > INFR_MAX_RANK)
        return rt_fail(st, INFR_BAD_INPUT, "%u dims; %d are possible", rank, INFR_MAX_RANK);
    struct infr_tensor t = {.dtype = dtype, .rank = rank};
    for (uint32_t i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
        if (dims[i] < 0) return rt_fail(st, INFR_BAD_INPUT, "dim %u is %" PRId64, i, dims[i]);
        if (!dims[i]) empty = true;
        else if (__builtin_mul_overflow(bytes, (uint64_t)dims[i], &bytes) || bytes > INT64_MAX)
            return rt_fail(st, INFR_BAD_INPUT, "the dims are too large");
    }
    t.bytes = empty ? 0 : bytes;
    if (t.bytes > max_bytes)
        return rt_fail(st, INFR_BAD_INPUT, "the dims need %" PRIu64 " bytes; there are %" PRIu64,
                       t.bytes, max_bytes);
    uint64_t want = (t.bytes + 64) & ~(uint64_t)63;
    t.data = aligned_alloc(64, want);
    if (!t.data) return rt_fail_memory(st, "a tensor", want);
    memset(t.data, 0, want);
    *out = t;
    return INFR_OK;
}

void rt_tensor_free(struct infr_tensor *t)
{
    free(t->data);
    *t = (struct infr_tensor){0};
}

uint64_t rt_tensor_elems(const struct infr_tensor *t)
{
    return t->bytes / dtype_bytes((enum dtype)t->dtype);
}

/* ---- small floats ---- */

/* Exponent and mantissa bits, bias; what the top exponent means. */
enum small_top {
    TOP_IEEE /* inf, nan */,
    TOP_NAN_ALL_ONES /* FN: only the last code */,
    TOP_NUMBERS
};

static const struct small {
    enum dtype dtype;
    int exp_bits, man_bits, bias;
    enum small_top top;
    bool fnuz; /* no negative zero: its code is the only nan */
} smalls[] = {
    {DT_F16, 5, 10, 15, TOP_IEEE, false},       {DT_BF16, 8, 7, 127, TOP_IEEE, false},
    {DT_F8E4M3FN, 4, 3, 7, TOP_NAN_ALL_ONES, false}, {DT_F8E4M3FNUZ, 4, 3, 8, TOP_NUMBERS, true},
    {DT_F8E5M2, 5, 2, 15, TOP_IEEE, false},     {DT_F8E5M2FNUZ, 5, 2, 16, TOP_NUMBERS, true},
    {DT_F4E2M1, 2, 1, 1, TOP_NUMBERS, false},
};

static const struct small *small_find(enum dtype d)
{
    for (size_t i = 0; i < sizeof smalls / sizeof *smalls; i++)
        if (smalls[i].dtype == d) return &smalls[i];
    return NULL;
}

double rt_small_decode(enum dtype d, uint32_t bits)
{
    if (d == DT_F8E8M0) return bits == 255 ? NAN : ldexp(1, (int)bits - 127);
    const struct small *s = small_find(d);
    if (!s) return 0;
    uint32_t man_one = 1u << s->man_bits, exp_top = (1u << s->exp_bits) - 1;
    uint32_t man = bits & (man_one - 1), exp = bits >> s->man_bits & exp_top;
    bool negative = bits >> (s->man_bits + s->exp_bits) & 1;
    if (s->fnuz && negative && !man && !exp) return NAN;
    if (exp == exp_top && s->top == TOP_IEEE) return man ? NAN : negative ? -INFINITY : INFINITY;
    if (exp == exp_top && s->top == TOP_NAN_ALL_ONES && man == man_one - 1) return NAN;
    double v = exp ? ldexp(man + man_one, (int)exp - s->bias - s->man_bits)
                   : ldexp(man, 1 - s->bias - s->man_bits);
    return negative ? -v : v;
}

/* Positive v in units of the last place at its exponent, rounded: code of exponent and mantissa
 * together. */
static uint32_t small_round(const struct small *s, double v)
{
    int exp;
    frexp(v, &exp);
    exp--; /* v = 1.m * 2^exp */
    if (exp < 1 - s->bias) exp = 1 - s->bias;
    double units = ldexp(v, s->man_bits - exp) + 0x1p52 -
                   0x1p52; /* rint(), which needs no libm: nearest, ties to even */
    return (uint32_t)units + ((uint32_t)(exp + s->bias - 1)
                              << s->man_bits); /* a carry moves into the exponent by itself */
}

uint32_t rt_small_encode(enum dtype d, double v)
{
    if (d == DT_F8E8M0) {
        int exp;
        if (!(v > 0) || isinf(v)) return 255;
        frexp(v, &exp);
        exp += 126;
        return exp < 0 ? 0 : exp > 254 ? 254 : (uint32_t)exp;
    }
    const struct small *s = small_find(d);
    if (!s) return 0;
    uint32_t sign = signbit(v) ? 1u << (s->man_bits + s->exp_bits) : 0,
             all = (1u << (s->man_bits + s->exp_bits)) - 1;
    uint32_t infinity = all & ~((1u << s->man_bits) - 1);
    uint32_t last = s->top == TOP_IEEE           ? infinity
                    : s->top == TOP_NAN_ALL_ONES ? all - 1
                                                 : all; /* largest code in order */
    if (isnan(v))
        return s->fnuz ? all + 1 : s->top == TOP_IEEE ? infinity | 1u << (s->man_bits - 1) : all;
    uint32_t code = isinf(v) || fabs(v) > 1e300 ? last : v == 0 ? 0 : small_round(s, fabs(v));
    if (code > last) code = last;
    return s->fnuz && !code ? 0 : sign | code;
}

/* ---- elements ---- */

double rt_tensor_get(const struct infr_tensor *t, uint64_t i)
{
    const unsigned char *p = (const unsigned char *)t->data + i * dtype_bytes((enum dtype)t->dtype);
    float f;
    double d;
    uint16_t u16;
    int16_t i16;
    uint32_t u32;
    int32_t i32;
    uint64_t u64;
    int64_t i64;
    switch ((enum dtype)t->dtype) {
    case DT_F64: memcpy(&d, p, 8); return d;
    case DT_F32: memcpy(&f, p, 4); return (double)f;
    case DT_F16:
    case DT_BF16: memcpy(&u16, p, 2); return rt_small_decode((enum dtype)t->dtype, u16);
    case DT_I2: case DT_I4: case DT_I8: return (signed char)*p;
    case DT_U2: case DT_U4: case DT_U8: case DT_BOOL: return *p;
    case DT_I16: memcpy(&i16, p, 2); return i16;
    case DT_U16: memcpy(&u16, p, 2); return u16;
    case DT_I32: memcpy(&i32, p, 4); return i32;
    case DT_U32: memcpy(&u32, p, 4); return u32;
    case DT_I64: memcpy(&i64, p, 8); return (double)i64;
    case DT_U64: memcpy(&u64, p, 8); return (double)u64;
    default: return rt_small_decode((enum dtype)t->dtype, *p);
    }
}

static void set_float(enum dtype d, unsigned char *p, double v)
{
    float f = (float)v;
    if (d == DT_F64) {
        memcpy(p, &v, 8);
    } else if (d == DT_F32) {
        memcpy(p, &f, 4);
    } else {
        uint32_t bits = rt_small_encode(d, v);
        memcpy(p, &bits, dtype_bytes(d)); /* little endian */
    }
}

void rt_tensor_random(struct infr_tensor *t, uint64_t seed, uint32_t stream)
{
    enum dtype d = (enum dtype)t->dtype;
    size_t size = dtype_bytes(d);
    uint64_t n = rt_tensor_elems(t);
    int64_t limit = 128;
    if (d == DT_BOOL) limit = 2;
    else if (dtype_bits(d) < 8)
        limit = (int64_t)1 << (dtype_bits(d) - (dtype_class(d) == DTC_SINT));
    unsigned char *p = t->data;
    for (uint64_t i = 0; i < n; i++, p += size) {
        if (dtype_is_float(d)) {
            set_float(d, p, infr_random_float(seed, stream, i));
        } else {
            int64_t v = infr_random_int(seed, stream, i, limit);
            memcpy(p, &v, size);
        }
    }
}

/* ---- printing ---- */

static void print_element(FILE *f, const struct infr_tensor *t, uint64_t i)
{
    const unsigned char *p = (const unsigned char *)t->data + i * dtype_bytes((enum dtype)t->dtype);
    int64_t i64;
    uint64_t u64;
    switch (t->dtype) {
    case DT_I64: memcpy(&i64, p, 8); fprintf(f, "%" PRId64, i64); return;
    case DT_U64: memcpy(&u64, p, 8); fprintf(f, "%" PRIu64, u64); return;
    case DT_BOOL: fputs(*p ? "true" : "false", f); return;
    case DT_F64: fprintf(f, "%.9g", rt_tensor_get(t, i)); return;
    default:
        fprintf(f, dtype_is_float((enum dtype)t->dtype) ? "%.6g" : "%.0f", rt_tensor_get(t, i));
        return;
    }
}

static void print_axis(FILE *f, const struct infr_tensor *t, uint32_t axis, uint64_t first,
                       uint64_t stride, bool cut)
{
    if (axis == t->rank) {
        print_element(f, t, first);
        return;
    }
    uint64_t n = (uint64_t)t->dims[axis], inner = n ? stride / n : 0;
    bool skips = cut && n > 6;
    fputc('[', f);
    for (uint64_t i = 0; i < n; i++) {
        if (i) fputs(axis + 1 == t->rank ? ", " : ",\n", f);
        if (i && axis + 1 < t->rank) fprintf(f, "%*s", (int)axis + 1, "");
        if (skips && i == 3) {
            fputs("...", f);
            i = n - 4;
            continue;
        }
        print_axis(f, t, axis + 1, first + i * inner, inner, cut);
    }
    fputc(']', f);
}

void rt_tensor_print(FILE *f, const struct infr_tensor *t, uint64_t most)
{
    uint64_t n = rt_tensor_elems(t);
    if (n) print_axis(f, t, 0, 0, n, n > most);
    else fputs("[]", f);
    fputc('\n', f);
}
