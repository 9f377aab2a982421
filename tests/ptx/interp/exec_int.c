// SPDX-License-Identifier: Apache-2.0
/*
 * Integers and bits. Values of 8 and 16 bits lie zero-extended in 32-bit lanes. Operations of two
 * sources come from int_ops.def as loops over a row, which the compiler makes vector code of; the rare
 * ones go through one function a lane.
 */
#include "tests/ptx/interp/lanes.h"

/* A division by zero gives all ones on devices, and the remainder is the dividend. */
static inline uint64_t div_u(uint64_t x, uint64_t y) { return y ? x / y : UINT64_MAX; }
static inline uint64_t rem_u(uint64_t x, uint64_t y) { return y ? x % y : x; }
static inline int64_t div_s(int64_t x, int64_t y)
{
    return y == 0 ? -1 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}
static inline int64_t rem_s(int64_t x, int64_t y) { return y == 0 ? x : y == -1 ? 0 : x % y; }

#define ROWS(name, T, UT, LANE, EXPR)                                                                \
    static void name(LANE *v, const LANE *a, const LANE *b)                                         \
    {                                                                                               \
        for (int l = 0; l < 32; l++) {                                                              \
            T x = (T)a[l], y = (T)b[l];                                                             \
            v[l] = (UT)(EXPR);                                                                      \
        }                                                                                           \
    }
#define PTX_INT2(op, name, u, s)                                                                     \
    ROWS(name##_u16, uint16_t, uint16_t, uint32_t, u)                                               \
    ROWS(name##_s16, int16_t, uint16_t, uint32_t, s)                                                \
    ROWS(name##_u32, uint32_t, uint32_t, uint32_t, u)                                               \
    ROWS(name##_s32, int32_t, uint32_t, uint32_t, s)                                                \
    ROWS(name##_u64, uint64_t, uint64_t, uint64_t, u)                                               \
    ROWS(name##_s64, int64_t, uint64_t, uint64_t, s)
#include "tests/ptx/interp/int_ops.def"
#undef PTX_INT2

static const struct {
    void (*u16)(uint32_t *, const uint32_t *, const uint32_t *);
    void (*s16)(uint32_t *, const uint32_t *, const uint32_t *);
    void (*u32)(uint32_t *, const uint32_t *, const uint32_t *);
    void (*s32)(uint32_t *, const uint32_t *, const uint32_t *);
    void (*u64)(uint64_t *, const uint64_t *, const uint64_t *);
    void (*s64)(uint64_t *, const uint64_t *, const uint64_t *);
} int2[PTX_N_OPS] = {
#define PTX_INT2(op, name, u, s)                                                                     \
    [PTX_OP_##op] = {name##_u16, name##_s16, name##_u32, name##_s32, name##_u64, name##_s64},
#include "tests/ptx/interp/int_ops.def"
#undef PTX_INT2
};

static void run_int2(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned bytes = ptx_types[in->types[0]].bytes;
    bool sign = ptx_is_signed(in->types[0]);
    const struct ptx_operand *o = in->ops;
    if (bytes == 8) {
        uint64_t v[32];
        (sign ? int2[in->op].s64 : int2[in->op].u64)(v, ptx_row64(w, &o[1]), ptx_row64(w, &o[2]));
        ptx_commit64(w, &o[0], v, mask);
        return;
    }
    uint32_t v[32];
    const uint32_t *a = ptx_row32(w, &o[1]), *b = ptx_row32(w, &o[2]);
    if (bytes == 4) (sign ? int2[in->op].s32 : int2[in->op].u32)(v, a, b);
    else (sign ? int2[in->op].s16 : int2[in->op].u16)(v, a, b);
    ptx_commit32(w, &o[0], v, mask);
}

/* ---- operations that go lane by lane ---- */

typedef uint64_t (*lane_fn)(const struct ptx_insn *in, const uint64_t *s);

/* Operand i as the lane function gets it: zero-extended to 64 bits. */
static void run_lanes(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask, lane_fn fn)
{
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t s[5] = {0};
        for (int i = 1; i < in->n_ops && i < 6; i++) s[i - 1] = ptx_get(w, in->ops[i].reg, l);
        ptx_set(w, in->ops[0].reg, l, fn(in, s));
    }
}

/* Two 16-bit lanes in one value, each by fn. */
static uint64_t packed16(const uint64_t *s, bool sign, enum ptx_op op)
{
    uint64_t out = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t ux = s[0] >> (16 * i) & 0xffff, uy = s[1] >> (16 * i) & 0xffff, v;
        int64_t sx = ptx_sign_extend(ux, 2), sy = ptx_sign_extend(uy, 2);
        bool less = sign ? sx < sy : ux < uy;
        if (op == PTX_OP_ADD) v = ux + uy;
        else if (op == PTX_OP_SUB) v = ux - uy;
        else v = (op == PTX_OP_MIN) == less ? ux : uy;
        out |= (v & 0xffff) << (16 * i);
    }
    return out;
}

static uint64_t lane_packed16(const struct ptx_insn *in, const uint64_t *s)
{
    return packed16(s, in->types[0] == PTX_S16X2, (enum ptx_op)in->op);
}

static uint64_t lane_add_sat(const struct ptx_insn *in, const uint64_t *s)
{
    int64_t x = ptx_sign_extend(s[0], 4), y = ptx_sign_extend(s[1], 4);
    int64_t v = in->op == PTX_OP_ADD ? x + y : x - y;
    return (uint32_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v);
}

/* Sum or difference with the carry (borrow) flag in and out. */
static void run_carry(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask, bool subtract,
                      bool use_carry)
{
    unsigned bytes = ptx_types[in->types[0]].bytes;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t x = ptx_get(w, in->ops[1].reg, l), y = ptx_get(w, in->ops[2].reg, l);
        uint64_t c = use_carry ? w->carry >> l & 1 : 0;
        uint64_t half = ptx_zero_extend(subtract ? x - y : x + y, bytes);
        uint64_t v = ptx_zero_extend(subtract ? half - c : half + c, bytes);
        bool out = subtract ? x < y || half < c : half < x || v < half;
        ptx_set(w, in->ops[0].reg, l, v);
        if (in->flags & PTX_F_CC) w->carry = (w->carry & ~(1u << l)) | (uint32_t)out << l;
    }
}

static void add_sub(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask, bool subtract)
{
    unsigned t = in->types[0];
    if (ptx_is_float(t)) ptx_float_arith(w, in, mask);
    else if (t == PTX_U16X2 || t == PTX_S16X2) run_lanes(w, in, mask, lane_packed16);
    else if (in->flags & PTX_F_CC) run_carry(w, in, mask, subtract, false);
    else if (in->flags & PTX_F_SAT) run_lanes(w, in, mask, lane_add_sat);
    else run_int2(w, in, mask);
}

void ptx_x_add(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { add_sub(w, in, mask, false); }
void ptx_x_sub(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { add_sub(w, in, mask, true); }
void ptx_x_addc(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    run_carry(w, in, mask, false, true);
}
void ptx_x_subc(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    run_carry(w, in, mask, true, true);
}

/* The high half of a product of 64-bit values, from 32-bit halves. */
static uint64_t mul_high_u64(uint64_t x, uint64_t y)
{
    uint64_t xl = (uint32_t)x, xh = x >> 32, yl = (uint32_t)y, yh = y >> 32;
    uint64_t low = xl * yl, m1 = xh * yl + (low >> 32), m2 = xl * yh + (uint32_t)m1;
    return xh * yh + (m1 >> 32) + (m2 >> 32);
}

static uint64_t mul_high(uint64_t x, uint64_t y, unsigned bytes, bool sign)
{
    if (bytes < 8) {
        uint64_t p = sign ? (uint64_t)(ptx_sign_extend(x, bytes) * ptx_sign_extend(y, bytes))
                          : ptx_zero_extend(x, bytes) * ptx_zero_extend(y, bytes);
        return ptx_zero_extend(p >> (bytes * 8), bytes);
    }
    uint64_t h = mul_high_u64(x, y);
    if (sign && x >> 63) h -= y;
    if (sign && y >> 63) h -= x;
    return h;
}

static uint64_t mul_part(const struct ptx_insn *in, uint64_t x, uint64_t y)
{
    unsigned bytes = ptx_types[in->types[0]].bytes;
    bool sign = ptx_is_signed(in->types[0]);
    if (in->sub == PTX_SUB_HI) return mul_high(x, y, bytes, sign);
    if (in->sub == PTX_SUB_WIDE) {
        uint64_t p = sign ? (uint64_t)(ptx_sign_extend(x, bytes) * ptx_sign_extend(y, bytes))
                          : ptx_zero_extend(x, bytes) * ptx_zero_extend(y, bytes);
        return ptx_zero_extend(p, bytes * 2);
    }
    return ptx_zero_extend(x * y, bytes);
}

static uint64_t lane_mul(const struct ptx_insn *in, const uint64_t *s) { return mul_part(in, s[0], s[1]); }
static uint64_t lane_mad(const struct ptx_insn *in, const uint64_t *s)
{
    unsigned bytes = ptx_types[in->types[0]].bytes;
    return ptx_zero_extend(mul_part(in, s[0], s[1]) + s[2], in->sub == PTX_SUB_WIDE ? bytes * 2 : bytes);
}

/* mul.wide of 32-bit values is an address computation in every loop. */
static void mul_wide32(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask, const uint64_t *c)
{
    const uint32_t *a = ptx_row32(w, &in->ops[1]), *b = ptx_row32(w, &in->ops[2]);
    uint64_t v[32];
    if (in->types[0] == PTX_S32)
        for (int l = 0; l < 32; l++) v[l] = (uint64_t)((int64_t)(int32_t)a[l] * (int32_t)b[l]);
    else
        for (int l = 0; l < 32; l++) v[l] = (uint64_t)a[l] * b[l];
    if (c)
        for (int l = 0; l < 32; l++) v[l] += c[l];
    ptx_commit64(w, &in->ops[0], v, mask);
}

void ptx_x_mul(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (ptx_is_float(in->types[0])) ptx_float_arith(w, in, mask);
    else if (in->sub == PTX_SUB_LO) run_int2(w, in, mask);
    else if (in->sub == PTX_SUB_WIDE && ptx_types[in->types[0]].bytes == 4) mul_wide32(w, in, mask, NULL);
    else run_lanes(w, in, mask, lane_mul);
}

void ptx_x_mad(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (ptx_is_float(in->types[0])) {
        ptx_float_arith(w, in, mask);
    } else if (in->sub == PTX_SUB_LO && ptx_types[in->types[0]].bytes == 4 && !(in->flags & PTX_F_CC)) {
        const uint32_t *a = ptx_row32(w, &in->ops[1]), *b = ptx_row32(w, &in->ops[2]),
                       *c = ptx_row32(w, &in->ops[3]);
        uint32_t v[32];
        for (int l = 0; l < 32; l++) v[l] = a[l] * b[l] + c[l];
        ptx_commit32(w, &in->ops[0], v, mask);
    } else if (in->sub == PTX_SUB_WIDE && ptx_types[in->types[0]].bytes == 4) {
        mul_wide32(w, in, mask, ptx_row64(w, &in->ops[3]));
    } else if (in->flags & PTX_F_CC) {
        ptx_x_madc(w, in, mask);
    } else {
        run_lanes(w, in, mask, lane_mad);
    }
}

/* mad.cc and madc: the product's part plus c plus, for madc, the carry. */
void ptx_x_madc(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned bytes = ptx_types[in->types[0]].bytes;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t p = mul_part(in, ptx_get(w, in->ops[1].reg, l), ptx_get(w, in->ops[2].reg, l));
        uint64_t c = ptx_get(w, in->ops[3].reg, l);
        unsigned carry = in->op == PTX_OP_MADC ? w->carry >> l & 1 : 0;
        uint64_t half = ptx_zero_extend(p + c, bytes), v = ptx_zero_extend(half + carry, bytes);
        ptx_set(w, in->ops[0].reg, l, v);
        if (in->flags & PTX_F_CC) w->carry = (w->carry & ~(1u << l)) | (uint32_t)(half < p || v < half) << l;
    }
}

static uint64_t lane_mul24(const struct ptx_insn *in, const uint64_t *s)
{
    bool sign = in->types[0] == PTX_S32;
    uint64_t x = s[0] & 0xffffff, y = s[1] & 0xffffff;
    if (sign) {
        x = (uint64_t)(((int64_t)(x ^ 0x800000)) - 0x800000);
        y = (uint64_t)(((int64_t)(y ^ 0x800000)) - 0x800000);
    }
    uint64_t p = x * y;
    if (in->sub == PTX_SUB_HI) p >>= 16;
    return (uint32_t)(p + (in->op == PTX_OP_MAD24 ? s[2] : 0));
}
void ptx_x_mul24(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    run_lanes(w, in, mask, lane_mul24);
}
void ptx_x_mad24(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    run_lanes(w, in, mask, lane_mul24);
}

static void div_rem_min_max(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned t = in->types[0];
    if (ptx_is_float(t)) ptx_float_arith(w, in, mask);
    else if (t == PTX_U16X2 || t == PTX_S16X2) run_lanes(w, in, mask, lane_packed16);
    else if (in->n_ops == 3 && !in->flags) run_int2(w, in, mask);
    else ptx_unsupported(w, in);
}
void ptx_x_div(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { div_rem_min_max(w, in, mask); }
void ptx_x_rem(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { div_rem_min_max(w, in, mask); }
void ptx_x_min(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { div_rem_min_max(w, in, mask); }
void ptx_x_max(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { div_rem_min_max(w, in, mask); }

static void logic(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (in->types[0] != PTX_PRED) {
        run_int2(w, in, mask);
        return;
    }
    uint32_t a = ptx_pred_bits(w, &in->ops[1]), b = ptx_pred_bits(w, &in->ops[2]);
    uint32_t v = in->op == PTX_OP_AND ? a & b : in->op == PTX_OP_OR ? a | b : a ^ b;
    ptx_commit_pred(w, in->ops[0].reg, v, mask);
}
void ptx_x_and(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { logic(w, in, mask); }
void ptx_x_or(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { logic(w, in, mask); }
void ptx_x_xor(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { logic(w, in, mask); }

static uint64_t lane_unary(const struct ptx_insn *in, const uint64_t *s)
{
    unsigned bytes = ptx_types[in->types[0]].bytes;
    uint64_t x = s[0], v = 0;
    switch (in->op) {
    case PTX_OP_NOT: v = ~x; break;
    case PTX_OP_CNOT: v = !x; break;
    case PTX_OP_NEG: v = 0 - x; break;
    case PTX_OP_ABS: v = ptx_sign_extend(x, bytes) < 0 ? 0 - x : x; break;
    case PTX_OP_POPC: v = (uint64_t)(ptx_popcount((uint32_t)x) + ptx_popcount((uint32_t)(x >> 32))); break;
    case PTX_OP_CLZ:
        for (v = 0; v < bytes * 8 && !(x >> (bytes * 8 - 1 - v) & 1);) v++;
        break;
    case PTX_OP_BREV:
        for (unsigned i = 0; i < bytes * 8; i++) v |= (x >> i & 1) << (bytes * 8 - 1 - i);
        break;
    case PTX_OP_BFIND: {
        if (ptx_is_signed(in->types[0]) && ptx_sign_extend(x, bytes) < 0) x = ~x;
        x = ptx_zero_extend(x, bytes);
        if (!x) return UINT32_MAX;
        unsigned top = 63;
        while (!(x >> top & 1)) top--;
        v = in->flags & PTX_F_SHIFTAMT ? bytes * 8 - 1 - top : top;
        break;
    }
    default: break;
    }
    return ptx_zero_extend(v, bytes);
}

void ptx_x_not(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (in->types[0] == PTX_PRED) ptx_commit_pred(w, in->ops[0].reg, ~ptx_pred_bits(w, &in->ops[1]), mask);
    else run_lanes(w, in, mask, lane_unary);
}
void ptx_x_neg(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (ptx_is_float(in->types[0])) ptx_float_arith(w, in, mask);
    else run_lanes(w, in, mask, lane_unary);
}
void ptx_x_abs(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { ptx_x_neg(w, in, mask); }
void ptx_x_cnot(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { run_lanes(w, in, m, lane_unary); }
void ptx_x_popc(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { run_lanes(w, in, m, lane_unary); }
void ptx_x_clz(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { run_lanes(w, in, m, lane_unary); }
void ptx_x_bfind(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { run_lanes(w, in, m, lane_unary); }
void ptx_x_brev(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { run_lanes(w, in, m, lane_unary); }

static uint64_t lane_sad(const struct ptx_insn *in, const uint64_t *s)
{
    unsigned bytes = ptx_types[in->types[0]].bytes;
    bool less = ptx_is_signed(in->types[0]) ? ptx_sign_extend(s[0], bytes) < ptx_sign_extend(s[1], bytes)
                                            : s[0] < s[1];
    return ptx_zero_extend(s[2] + (less ? s[1] - s[0] : s[0] - s[1]), bytes);
}
void ptx_x_sad(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { run_lanes(w, in, mask, lane_sad); }

/* Bit i of the result is bit (a<<2 | b<<1 | c) of the table. */
static uint64_t lane_lop3(const struct ptx_insn *in, const uint64_t *s)
{
    (void)in;
    uint32_t a = (uint32_t)s[0], b = (uint32_t)s[1], c = (uint32_t)s[2], v = 0;
    for (unsigned i = 0; i < 8; i++)
        if (s[3] >> i & 1) v |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return v;
}
void ptx_x_lop3(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (in->n_ops != 5 || in->sub != PTX_SUB_NONE) {
        ptx_unsupported(w, in);
        return;
    }
    run_lanes(w, in, mask, lane_lop3);
}

/* ---- shifts and fields ---- */

void ptx_x_shl(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned bits = ptx_types[in->types[0]].bytes * 8u;
    const uint32_t *n = ptx_row32(w, &in->ops[2]);
    if (bits == 64) {
        const uint64_t *a = ptx_row64(w, &in->ops[1]);
        uint64_t v[32];
        for (int l = 0; l < 32; l++) v[l] = n[l] < 64 ? a[l] << n[l] : 0;
        ptx_commit64(w, &in->ops[0], v, mask);
        return;
    }
    const uint32_t *a = ptx_row32(w, &in->ops[1]);
    uint32_t v[32], keep = bits == 32 ? UINT32_MAX : 0xffff;
    for (int l = 0; l < 32; l++) v[l] = n[l] < bits ? a[l] << n[l] & keep : 0;
    ptx_commit32(w, &in->ops[0], v, mask);
}

void ptx_x_shr(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned bytes = ptx_types[in->types[0]].bytes, bits = bytes * 8u;
    bool sign = ptx_is_signed(in->types[0]);
    const uint32_t *n = ptx_row32(w, &in->ops[2]);
    if (!sign && bits != 64) {
        const uint32_t *a = ptx_row32(w, &in->ops[1]);
        uint32_t v[32];
        for (int l = 0; l < 32; l++) v[l] = n[l] < bits ? a[l] >> n[l] : 0;
        ptx_commit32(w, &in->ops[0], v, mask);
        return;
    }
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t x = ptx_get(w, in->ops[1].reg, l), v;
        unsigned by = n[l] < bits ? n[l] : bits;
        if (!sign) {
            v = by < 64 ? x >> by : 0;
        } else {
            int64_t sx = ptx_sign_extend(x, bytes);
            if (by > 63) by = 63;
            v = sx < 0 ? ~(~(uint64_t)sx >> by) : (uint64_t)sx >> by;
        }
        ptx_set(w, in->ops[0].reg, l, ptx_zero_extend(v, bytes));
    }
}

static uint64_t lane_shf(const struct ptx_insn *in, const uint64_t *s)
{
    uint64_t both = (uint32_t)s[1] * (UINT64_C(1) << 32) | (uint32_t)s[0];
    unsigned n = (unsigned)s[2];
    n = in->sub2 == PTX_SUB_CLAMP ? (n > 32 ? 32 : n) : n & 31;
    return (uint32_t)(in->sub == PTX_SUB_LEFT ? (n ? both << n >> 32 : both >> 32) : both >> n);
}
void ptx_x_shf(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { run_lanes(w, in, mask, lane_shf); }

static uint64_t low_bits(unsigned n) { return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1; }

static uint64_t lane_bfe(const struct ptx_insn *in, const uint64_t *s)
{
    unsigned bytes = ptx_types[in->types[0]].bytes, bits = bytes * 8u;
    unsigned pos = (unsigned)s[1] & 255, len = (unsigned)s[2] & 255;
    uint64_t x = ptx_zero_extend(s[0], bytes), v = pos < bits ? x >> pos : 0;
    v &= low_bits(len);
    if (ptx_is_signed(in->types[0]) && len) {
        unsigned top = pos + len - 1 < bits ? pos + len - 1 : bits - 1;
        if (x >> top & 1 && top - (pos < bits ? pos : top) < 63) {
            unsigned have = pos < bits ? top - pos + 1 : 0;
            v |= ~low_bits(have);
        }
    }
    return ptx_zero_extend(v, bytes);
}
void ptx_x_bfe(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { run_lanes(w, in, mask, lane_bfe); }

static uint64_t lane_bfi(const struct ptx_insn *in, const uint64_t *s)
{
    unsigned bytes = ptx_types[in->types[0]].bytes;
    unsigned pos = (unsigned)s[2] & 255, len = (unsigned)s[3] & 255;
    if (pos >= bytes * 8u) return s[1];
    uint64_t field = low_bits(len) << pos;
    return ptx_zero_extend((s[1] & ~field) | (s[0] << pos & field), bytes);
}
void ptx_x_bfi(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { run_lanes(w, in, mask, lane_bfi); }

static uint64_t lane_bmsk(const struct ptx_insn *in, const uint64_t *s)
{
    unsigned pos = (unsigned)s[0], len = (unsigned)s[1];
    if (in->sub2 == PTX_SUB_WRAP) {
        pos &= 31;
        len &= 31;
    }
    return pos > 31 ? 0 : (uint32_t)(low_bits(len > 32 ? 32 : len) << pos);
}
void ptx_x_bmsk(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { run_lanes(w, in, m, lane_bmsk); }

static uint64_t lane_szext(const struct ptx_insn *in, const uint64_t *s)
{
    unsigned n = (unsigned)s[1];
    if (in->sub2 == PTX_SUB_WRAP) n &= 31;
    if (n > 31) return s[0];
    uint64_t v = s[0] & low_bits(n);
    if (in->types[0] == PTX_S32 && n && v >> (n - 1) & 1) v |= ~low_bits(n);
    return (uint32_t)v;
}
void ptx_x_szext(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { run_lanes(w, in, m, lane_szext); }

/* The offset-th set bit from base, upwards or downwards. */
static uint64_t lane_fns(const struct ptx_insn *in, const uint64_t *s)
{
    (void)in;
    int base = (int)s[1], count = (int)(uint32_t)s[2];
    int step = count < 0 ? -1 : 1;
    if (count == 0) return s[0] >> base & 1 ? (uint64_t)base : UINT32_MAX;
    for (int i = base, left = count * step; i >= 0 && i < 32; i += step)
        if (s[0] >> i & 1 && --left == 0) return (uint64_t)i;
    return UINT32_MAX;
}
void ptx_x_fns(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { run_lanes(w, in, m, lane_fns); }

static unsigned prmt_selector(const struct ptx_insn *in, uint64_t c, unsigned i)
{
    unsigned n = (unsigned)c & 3;
    switch (in->sub) {
    case PTX_SUB_F4E: return n + i;
    case PTX_SUB_B4E: return (n - i) & 7;
    case PTX_SUB_RC8: return n;
    case PTX_SUB_ECL: return i > n ? i : n;
    case PTX_SUB_ECR: return i < n ? i : n;
    case PTX_SUB_RC16: return (n & 1) * 2 + (i & 1);
    default: return (unsigned)(c >> (4 * i)) & 15;
    }
}
static uint64_t lane_prmt(const struct ptx_insn *in, const uint64_t *s)
{
    uint64_t both = (s[1] << 32) | (uint32_t)s[0], v = 0;
    for (unsigned i = 0; i < 4; i++) {
        unsigned sel = prmt_selector(in, s[2], i);
        uint64_t byte = both >> (8 * (sel & 7)) & 255;
        if (sel & 8) byte = byte & 128 ? 255 : 0;
        v |= byte << (8 * i);
    }
    return v;
}
void ptx_x_prmt(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { run_lanes(w, in, m, lane_prmt); }

static uint64_t lane_dp4a(const struct ptx_insn *in, const uint64_t *s)
{
    uint64_t sum = s[2];
    for (int i = 0; i < 4; i++) {
        uint64_t x = s[0] >> (8 * i) & 255, y = s[1] >> (8 * i) & 255;
        if (in->types[0] == PTX_S32) x = (uint64_t)ptx_sign_extend(x, 1);
        if (in->types[1] == PTX_S32) y = (uint64_t)ptx_sign_extend(y, 1);
        sum += x * y;
    }
    return (uint32_t)sum;
}
void ptx_x_dp4a(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { run_lanes(w, in, m, lane_dp4a); }

static uint64_t lane_dp2a(const struct ptx_insn *in, const uint64_t *s)
{
    uint64_t sum = s[2];
    for (int i = 0; i < 2; i++) {
        uint64_t x = s[0] >> (16 * i) & 0xffff, y = s[1] >> (8 * (i + (in->sub == PTX_SUB_HI ? 2 : 0))) & 255;
        if (in->types[0] == PTX_S32) x = (uint64_t)ptx_sign_extend(x, 2);
        if (in->types[1] == PTX_S32) y = (uint64_t)ptx_sign_extend(y, 1);
        sum += x * y;
    }
    return (uint32_t)sum;
}
void ptx_x_dp2a(struct ptx_warp *w, const struct ptx_insn *in, uint32_t m) { run_lanes(w, in, m, lane_dp2a); }
