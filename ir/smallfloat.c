// SPDX-License-Identifier: Apache-2.0
#include "ir/smallfloat.h"

#include <math.h>

/* What happens at the top of the exponent range. */
enum special {
    SPECIAL_IEEE, /* all ones: infinity and NaN */
    SPECIAL_FN,   /* no infinity; NaN is all ones in exponent and mantissa */
    SPECIAL_FNUZ, /* no infinity, no negative zero; NaN is the sign bit alone */
    SPECIAL_NONE, /* finite values only */
};

struct format {
    int exp_bits, man_bits, bias;
    enum special special;
};

static bool find_format(enum dtype d, struct format *f)
{
    switch (d) {
    case DT_F16: *f = (struct format){5, 10, 15, SPECIAL_IEEE}; return true;
    case DT_BF16: *f = (struct format){8, 7, 127, SPECIAL_IEEE}; return true;
    case DT_F8E4M3FN: *f = (struct format){4, 3, 7, SPECIAL_FN}; return true;
    case DT_F8E4M3FNUZ: *f = (struct format){4, 3, 8, SPECIAL_FNUZ}; return true;
    case DT_F8E5M2: *f = (struct format){5, 2, 15, SPECIAL_IEEE}; return true;
    case DT_F8E5M2FNUZ: *f = (struct format){5, 2, 16, SPECIAL_FNUZ}; return true;
    case DT_F4E2M1: *f = (struct format){2, 1, 1, SPECIAL_NONE}; return true;
    default: return false;
    }
}

static unsigned load_bits(enum dtype d, const void *p)
{
    uint16_t wide = 0;
    unsigned char narrow = 0;
    if (dtype_bytes(d) == 2) memcpy(&wide, p, 2);
    else memcpy(&narrow, p, 1);
    return dtype_bytes(d) == 2 ? wide : narrow;
}

static void store_bits(enum dtype d, unsigned bits, void *p)
{
    uint16_t wide = (uint16_t)bits;
    unsigned char narrow = (unsigned char)bits;
    if (dtype_bytes(d) == 2) memcpy(p, &wide, 2);
    else memcpy(p, &narrow, 1);
}

static double decode_bits(const struct format *f, unsigned bits)
{
    unsigned man = bits & ((1u << f->man_bits) - 1);
    unsigned exp = bits >> f->man_bits & ((1u << f->exp_bits) - 1), top = (1u << f->exp_bits) - 1;
    bool negative = bits >> (f->exp_bits + f->man_bits) & 1;
    if (f->special == SPECIAL_FNUZ && negative && exp == 0 && man == 0) return (double)NAN;
    if (f->special == SPECIAL_FN && exp == top && man == (1u << f->man_bits) - 1)
        return (double)NAN;
    if (f->special == SPECIAL_IEEE && exp == top)
        return man ? (double)NAN : negative ? -(double)INFINITY : (double)INFINITY;
    double v = exp ? ldexp((double)(man | 1u << f->man_bits), (int)exp - f->bias - f->man_bits)
                   : ldexp((double)man, 1 - f->bias - f->man_bits);
    return negative ? -v : v;
}

double float_decode(enum dtype d, const void *p)
{
    struct format f;
    if (d == DT_F64) {
        double v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    if (d == DT_F32) {
        float v;
        memcpy(&v, p, sizeof v);
        return (double)v;
    }
    unsigned bits = load_bits(d, p);
    if (d == DT_F8E8M0) return bits == 255 ? (double)NAN : ldexp(1.0, (int)bits - 127);
    if (!find_format(d, &f)) return 0.0;
    return decode_bits(&f, bits);
}

/* Greatest finite magnitude, as bits without sign. */
static unsigned max_bits(const struct format *f)
{
    unsigned all = (1u << (f->exp_bits + f->man_bits)) - 1;
    if (f->special == SPECIAL_IEEE) return all - (1u << f->man_bits);
    return f->special == SPECIAL_FN ? all - 1 : all;
}

static unsigned nan_bits(const struct format *f)
{
    unsigned sign = 1u << (f->exp_bits + f->man_bits);
    if (f->special == SPECIAL_FNUZ) return sign;
    if (f->special == SPECIAL_NONE) return max_bits(f);
    if (f->special == SPECIAL_FN) return sign - 1;
    return (sign - (1u << f->man_bits)) | 1u << (f->man_bits - 1);
}

static double round_even(double v) /* 0 <= v < 2^52 */
{
    double whole = floor(v), rest = v - whole;
    if (rest > 0.5 || (rest == 0.5 && fmod(whole, 2.0) != 0.0)) whole += 1.0;
    return whole;
}

static unsigned encode_bits(const struct format *f, double v, bool saturate)
{
    unsigned sign = signbit(v) ? 1u << (f->exp_bits + f->man_bits) : 0;
    if (isnan(v)) return nan_bits(f);
    double a = fabs(v);
    int e = 1 - f->bias; /* exponent of the result's leading bit, at least the least normal one */
    if (a > 0 && !isinf(a)) {
        int x;
        frexp(a, &x);
        if (x - 1 > e) e = x - 1;
    }
    unsigned most = max_bits(f), bits = most + 1;
    if (!isinf(a) && e + f->bias < 1 << f->exp_bits) {
        /* A mantissa that rounds up to the next power carries into the exponent by itself. */
        unsigned man = (unsigned)round_even(ldexp(a, f->man_bits - e));
        bits = man < 1u << f->man_bits
                   ? man
                   : ((unsigned)(e + f->bias) << f->man_bits) + (man - (1u << f->man_bits));
    }
    if (bits > most) {
        if (saturate || f->special == SPECIAL_NONE) bits = most;
        else if (f->special == SPECIAL_IEEE) bits = most + 1;
        else return nan_bits(f) | (f->special == SPECIAL_FN ? sign : 0);
    }
    if (f->special == SPECIAL_FNUZ && bits == 0) return 0;
    return sign | bits;
}

static unsigned encode_e8m0(double v)
{
    if (isnan(v)) return 255;
    double a = fabs(v);
    if (isinf(a)) return 254;
    if (a < ldexp(1.0, -127)) return 0;
    int e;
    double m = frexp(a, &e) * 2.0; /* a = m * 2^(e-1), 1 <= m < 2 */
    int exp = e - 1 + (m > 1.5 || (m == 1.5 && (e - 1) % 2 != 0));
    return exp > 127 ? 254 : (unsigned)(exp + 127);
}

void float_encode(enum dtype d, double v, bool saturate, void *p)
{
    struct format f;
    if (d == DT_F64) {
        memcpy(p, &v, sizeof v);
    } else if (d == DT_F32) {
        float w = (float)v;
        memcpy(p, &w, sizeof w);
    } else if (d == DT_F8E8M0) {
        store_bits(d, encode_e8m0(v), p);
    } else if (find_format(d, &f)) {
        store_bits(d, encode_bits(&f, v, saturate), p);
    }
}
