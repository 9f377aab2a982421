// SPDX-License-Identifier: Apache-2.0
/* How the tile unit decodes and executes. Comments quote no rule that the manual does not have. */
#include "tests/amx/tiles.h"

#include <string.h>

static struct amx_result fault(enum amx_outcome o, const char *why) { return (struct amx_result){.outcome = o, .why = why}; }
static const struct amx_result done = {.outcome = AMX_DONE};

/* ---- decoding ---- */

enum prefix { NP, P66, PF3, PF2 }; /* as VEX.pp counts them */

struct insn {
    uint8_t opcode, prefix;
    int reg, vvvv; /* operands: ModRM.reg and VEX.vvvv with their high bits */
    bool memory, sib;
    int rm;                     /* a register */
    uint64_t address, stride;   /* memory; stride: the scaled index, 0 without one */
    int length;
};

static bool decode(const uint8_t *p, size_t n, uint64_t rip, const uint64_t gpr[16], struct insn *x)
{
    if (n < 5 || p[0] != 0xC4 || (p[1] & 0x1F) != 2) return false; /* three bytes of VEX, map 0F38 */
    int r = !(p[1] & 0x80), xi = !(p[1] & 0x40), b = !(p[1] & 0x20), mod = p[4] >> 6, rm = p[4] & 7;
    *x = (struct insn){.opcode = p[3], .prefix = p[2] & 3, .vvvv = (~p[2] >> 3) & 15, .reg = (p[4] >> 3 & 7) | r << 3, .memory = mod != 3};
    size_t at = 5;
    if (!x->memory) {
        x->rm = rm | b << 3;
        x->length = (int)at;
        return true;
    }
    int base = rm, index = 4, disp_bytes = mod == 1 ? 1 : mod == 2 ? 4 : 0, scale = 0;
    if (rm == 4) {
        if (n < 6) return false;
        x->sib = true;
        scale = p[5] >> 6, index = (p[5] >> 3 & 7) | xi << 3, base = p[5] & 7;
        at = 6;
    }
    bool no_base = base == 5 && mod == 0;
    if (no_base) disp_bytes = 4;
    if (n < at + (size_t)disp_bytes) return false;
    int32_t disp = disp_bytes == 1 ? (int8_t)p[at] : 0;
    if (disp_bytes == 4) memcpy(&disp, p + at, 4);
    at += (size_t)disp_bytes;
    x->length = (int)at;
    x->address = (uint64_t)(int64_t)disp;
    if (!no_base) x->address += gpr[base | b << 3];
    else if (!x->sib) x->address += rip + at;
    if (x->sib && index != 4) x->stride = gpr[index] << scale;
    return true;
}

/* ---- configuration ---- */

static struct amx_result load_config(struct amx_unit *u, const uint8_t c[AMX_CONFIG_BYTES])
{
    struct amx_unit to = {.configured = true, .start_row = c[1]};
    if (c[0] > 1) return fault(AMX_GP, "ldtilecfg: palette above 1");
    if (c[0] == 0) {
        memset(u, 0, sizeof *u);
        return done;
    }
    for (int i = 2; i < 64; i++)
        if (c[i] && (i < 16 || (i >= 32 && i < 48) || i >= 56)) return fault(AMX_GP, "ldtilecfg: a reserved byte is not 0");
    for (int t = 0; t < AMX_TILES; t++) {
        to.colsb[t] = (uint16_t)(c[16 + 2 * t] | c[17 + 2 * t] << 8);
        to.rows[t] = c[48 + t];
        if (to.colsb[t] > AMX_ROW_BYTES) return fault(AMX_GP, "ldtilecfg: more than 64 bytes a row");
        if (to.rows[t] > AMX_ROWS) return fault(AMX_GP, "ldtilecfg: more than 16 rows");
        if (!to.rows[t] != !to.colsb[t]) return fault(AMX_GP, "ldtilecfg: a tile of rows without columns or columns without rows");
    }
    *u = to;
    return done;
}

static void store_config(const struct amx_unit *u, uint8_t c[AMX_CONFIG_BYTES])
{
    memset(c, 0, AMX_CONFIG_BYTES);
    if (!u->configured) return;
    c[0] = 1, c[1] = u->start_row;
    for (int t = 0; t < AMX_TILES; t++) {
        c[16 + 2 * t] = (uint8_t)u->colsb[t];
        c[48 + t] = u->rows[t];
    }
}

static struct amx_result configure(struct amx_unit *u, const struct insn *x, const struct amx_memory *mem)
{
    uint8_t c[AMX_CONFIG_BYTES];
    struct amx_result missing = {.outcome = AMX_PAGE_FAULT, .why = "the memory of a configuration", .address = x->address};
    if (x->reg) return fault(AMX_UD, "a tile configuration: ModRM.reg is not 0");
    if (x->prefix == P66) {
        store_config(u, c);
        return mem->write(mem->ctx, x->address, c, sizeof c) ? done : missing;
    }
    return mem->read(mem->ctx, x->address, c, sizeof c) ? load_config(u, c) : missing;
}

/* ---- loads and stores ---- */

static bool valid(const struct amx_unit *u, int t) { return t < AMX_TILES && u->rows[t] > 0; }

static struct amx_result move(struct amx_unit *u, const struct insn *x, const struct amx_memory *mem)
{
    int t = x->reg;
    if (!x->sib) return fault(AMX_UD, "a tile's load or store: no SIB byte");
    if (!valid(u, t)) return fault(AMX_UD, "a tile's load or store: the tile is not configured");
    if (u->colsb[t] % 4) return fault(AMX_UD, "a tile's load or store: a row is not a multiple of 4 bytes");
    if (u->start_row >= u->rows[t]) return fault(AMX_UD, "a tile's load or store: start_row is not below the tile's rows");
    bool store = x->prefix == PF3;
    if (!store && !u->start_row) memset(u->tile[t], 0, sizeof u->tile[t]);
    for (int r = u->start_row; r < u->rows[t]; r++) {
        uint64_t at = x->address + (uint64_t)r * x->stride;
        u->start_row = (uint8_t)r;
        if (!store) memset(u->tile[t][r], 0, AMX_ROW_BYTES);
        bool there = store ? mem->write(mem->ctx, at, u->tile[t][r], u->colsb[t]) : mem->read(mem->ctx, at, u->tile[t][r], u->colsb[t]);
        if (!there) return (struct amx_result){.outcome = AMX_PAGE_FAULT, .why = "a row of a tile", .address = at};
    }
    u->start_row = 0;
    return done;
}

/* ---- products ---- */

static const char *operands_fault(const struct amx_unit *u, int d, int a, int b)
{
    if (d == a || a == b || d == b) return "a product: two operands are one tile";
    if (!valid(u, d) || !valid(u, a) || !valid(u, b)) return "a product: a tile is not configured";
    if (u->colsb[d] % 4 || u->colsb[a] % 4 || u->colsb[b] % 4) return "a product: a row is not a multiple of 4 bytes";
    if (u->colsb[d] != u->colsb[b]) return "a product: columns of the sum and of the right side differ";
    if (u->rows[d] != u->rows[a]) return "a product: rows of the sum and of the left side differ";
    if (u->colsb[a] / 4 != u->rows[b]) return "a product: columns of the left and rows of the right side differ";
    return NULL;
}

static int32_t byte(uint8_t v, bool is_signed) { return is_signed ? (int8_t)v : v; }

static uint32_t dot_bytes(uint32_t c, const uint8_t *a, const uint8_t *b, bool a_signed, bool b_signed)
{
    for (int i = 0; i < 4; i++) c += (uint32_t)(byte(a[i], a_signed) * byte(b[i], b_signed)); /* wraps around */
    return c;
}

/* c + a * b and c + d, rounded to nearest even by the CPU itself; what MXCSR holds decides about denormals. In assembly, because
 * compilers move arithmetic across changes of MXCSR. */
static float cpu_fma(float c, float a, float b)
{
    __asm__ volatile("vfmadd231ss %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
}

static float cpu_add(float c, float d)
{
    __asm__ volatile("vaddss %1, %0, %0" : "+x"(c) : "x"(d));
    return c;
}

static float from_bits(uint32_t v)
{
    float f;
    memcpy(&f, &v, 4);
    return f;
}

static float bf16(const uint8_t *p) { return from_bits((uint32_t)p[0] << 16 | (uint32_t)p[1] << 24); }

/* Exact: denormals of f16 are normal numbers of f32. */
static float f16(const uint8_t *p)
{
    uint32_t v = (uint32_t)(p[0] | p[1] << 8), sign = (v & 0x8000) << 16, e = v >> 10 & 31, m = v & 0x3FF;
    if (e == 31) return from_bits(sign | 0x7F800000 | m << 13);
    if (e) return from_bits(sign | (e + 112) << 23 | m << 13);
    float f = (float)m * 0x1p-24f;
    return sign ? -f : f;
}

/* The even and the odd products of a row have sums of their own, which are added up, and then to the accumulator. */
static void dot_floats(float *c, const uint8_t a[AMX_ROW_BYTES], const struct amx_unit *u, int b, int col, float (*value)(const uint8_t *))
{
    float sum[2] = {0, 0};
    for (int k = 0; k < u->rows[b]; k++)
        for (int i = 0; i < 2; i++) sum[i] = cpu_fma(sum[i], value(a + 4 * k + 2 * i), value(u->tile[b][k] + 4 * col + 2 * i));
    *c = cpu_add(*c, cpu_add(sum[0], sum[1]));
}

static uint32_t swap_mxcsr(uint32_t to)
{
    uint32_t was;
    __asm__ volatile("stmxcsr %0" : "=m"(was));
    __asm__ volatile("ldmxcsr %0" : : "m"(to));
    return was;
}

static struct amx_result product(struct amx_unit *u, const struct insn *x)
{
    enum { FLUSH_ROUND_NEAREST = 0x9FC0 }; /* denormals are 0, going in and coming out; all exceptions masked */
    int d = x->reg, a = x->rm, b = x->vvvv;
    const char *why = operands_fault(u, d, a, b);
    if (why) return fault(AMX_UD, why);
    bool floats = x->opcode == 0x5C;
    uint32_t mxcsr = floats ? swap_mxcsr(FLUSH_ROUND_NEAREST) : 0;
    for (int r = 0; r < AMX_ROWS; r++) {
        for (int c = 0; r < u->rows[d] && c < u->colsb[d] / 4; c++) {
            uint32_t sum;
            memcpy(&sum, u->tile[d][r] + 4 * c, 4);
            if (floats) {
                float f = from_bits(sum);
                dot_floats(&f, u->tile[a][r], u, b, c, x->prefix == PF3 ? bf16 : f16);
                memcpy(&sum, &f, 4);
            }
            for (int k = 0; !floats && k < u->rows[b]; k++) /* NP: both unsigned, 66: right signed, F3: left signed, F2: both */
                sum = dot_bytes(sum, u->tile[a][r] + 4 * k, u->tile[b][k] + 4 * c, x->prefix >= PF3, x->prefix == P66 || x->prefix == PF2);
            memcpy(u->tile[d][r] + 4 * c, &sum, 4);
        }
        size_t used = r < u->rows[d] ? u->colsb[d] : 0;
        memset(u->tile[d][r] + used, 0, AMX_ROW_BYTES - used);
    }
    if (floats) swap_mxcsr(mxcsr);
    u->start_row = 0;
    return done;
}

/* ---- one instruction ---- */

static struct amx_result zero(struct amx_unit *u, const struct insn *x)
{
    if (!valid(u, x->reg)) return fault(AMX_UD, "tilezero: the tile is not configured");
    if (x->rm) return fault(AMX_UD, "tilezero: ModRM.rm is not 0");
    memset(u->tile[x->reg], 0, sizeof u->tile[0]);
    u->start_row = 0;
    return done;
}

static struct amx_result release(struct amx_unit *u, const struct insn *x)
{
    if (x->reg || x->rm) return fault(AMX_UD, "tilerelease: ModRM is not C0");
    memset(u, 0, sizeof *u);
    return done;
}

static struct amx_result execute(struct amx_unit *u, const struct insn *x, const struct amx_memory *mem)
{
    const struct amx_result other = fault(AMX_NOT_OURS, NULL);
    bool is_product = !x->memory && (x->opcode == 0x5E || (x->opcode == 0x5C && x->prefix >= PF3));
    if (is_product && !u->configured) return fault(AMX_UD, "a product: tiles are not configured");
    if (is_product) return product(u, x);
    if (x->opcode != 0x49 && x->opcode != 0x4B) return other;
    if (x->vvvv) return fault(AMX_UD, "VEX.vvvv is not 1111");
    if (x->opcode == 0x49 && x->memory) return x->prefix == NP || x->prefix == P66 ? configure(u, x, mem) : other;
    if (x->opcode == 0x49) return x->prefix == NP ? release(u, x) : x->prefix != PF2 ? other : zero(u, x);
    return x->memory && x->prefix != NP ? move(u, x, mem) : other; /* 66: tileloaddt1, the same but for caches */
}

struct amx_result amx_step(struct amx_unit *u, const uint8_t *code, size_t n, uint64_t rip, const uint64_t gpr[16], const struct amx_memory *mem)
{
    struct insn x;
    if (!decode(code, n, rip, gpr, &x)) return fault(AMX_NOT_OURS, NULL);
    bool ours = x.opcode == 0x49 || x.opcode == 0x4B || x.opcode == 0x5C || x.opcode == 0x5E;
    if (ours && code[2] & 0x84) return fault(AMX_UD, "VEX.W or VEX.L is not 0");
    struct amx_result res = execute(u, &x, mem);
    res.length = x.length;
    return res;
}
