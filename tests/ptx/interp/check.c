// SPDX-License-Identifier: Apache-2.0
/* What instructions must look like beyond their signature: found when the text is loaded, so that the
 * functions that execute them may rely on it. */
#include <string.h>

#include "tests/ptx/interp/machine.h"
#include "tests/ptx/interp/mma.h"

static const char *check_vector(const struct ptx_insn *in, const struct ptx_operand *o)
{
    unsigned want = in->vec ? in->vec : 1, have = o->n ? (unsigned)o->n : 1;
    if (want != have) return "vector of the wrong length";
    if (!ptx_types[in->types[0]].bytes || in->types[0] == PTX_PRED) return "unsupported type";
    if (want * ptx_types[in->types[0]].bytes > 32) return "vector too long";
    return NULL;
}

static const char *check_mov(const struct ptx_insn *in)
{
    const struct ptx_operand *d = &in->ops[0], *s = &in->ops[1];
    unsigned bits = ptx_types[in->types[0]].bytes * 8u;
    if (d->n && s->n) return "both operands are vectors";
    int n = d->n ? d->n : s->n;
    if (n && (n > 8 || bits % (unsigned)n)) return "vector that the type cannot be split into";
    for (int i = 0; i < s->n; i++)
        if (s->regs[i] < 0) return "source `_`";
    return NULL;
}

/* Registers that stand for themselves: no `_`, no vectors. */
static const char *check_plain(const struct ptx_insn *in)
{
    for (int i = 0; i < in->n_ops; i++) {
        const struct ptx_operand *o = &in->ops[i];
        if (o->n) return "vector operand";
        if (i && o->reg < 0 && o->kind == PTX_OPERAND_REG) return "source `_`";
    }
    return NULL;
}

static unsigned operand_count(const struct ptx_operand *o) { return o->n ? (unsigned)o->n : 1; }

/* 32-bit registers that n elements of a type take in each of 32 lanes. */
static unsigned fragment_regs(unsigned type, unsigned elements)
{
    unsigned bits = ptx_element_bits(type);
    return (elements * (bits > 32 ? 32 : bits) / 32 + 31) / 32;
}

static bool element_type(unsigned t)
{
    return t == PTX_F16 || t == PTX_BF16 || t == PTX_TF32 || t == PTX_E4M3 || t == PTX_E5M2 || ptx_element_is_int(t);
}

static const char *check_mma(const struct ptx_insn *in)
{
    const struct ptx_operand *o = in->ops;
    if (in->n_types != 4 || in->n_layouts != 2 || in->layouts[0] || !in->layouts[1]) return "unsupported form";
    unsigned d = in->types[0], a = in->types[1], b = in->types[2], c = in->types[3];
    if (d == PTX_F64) {
        bool ok = in->m == 8 && in->n == 8 && in->k == 4 && operand_count(&o[0]) == 2 && o[0].n && o[3].n == 2 &&
                  operand_count(&o[1]) == 1 && operand_count(&o[2]) == 1;
        return ok ? NULL : "unsupported form";
    }
    unsigned bits = ptx_element_bits(a);
    if (!element_type(a) || !element_type(b) || ptx_element_bits(b) != bits) return "unsupported element types";
    if (in->m != 16 || in->n != 8 || (in->k * bits != 128 && in->k * bits != 256)) return "unsupported shape";
    if (ptx_element_is_int(a) ? d != PTX_S32 || c != PTX_S32 : (d != PTX_F32 && d != PTX_F16) || (c != PTX_F32 && c != PTX_F16))
        return "unsupported accumulator types";
    if (operand_count(&o[0]) != fragment_regs(d, 128) || operand_count(&o[1]) != fragment_regs(a, 16u * in->k) ||
        operand_count(&o[2]) != fragment_regs(b, 8u * in->k) || operand_count(&o[3]) != fragment_regs(c, 128))
        return "wrong number of registers";
    return NULL;
}

static const char *check_wmma(const struct ptx_insn *in)
{
    bool mma = in->op == PTX_OP_WMMA_MMA, halves = mma && in->n_types == 2;
    unsigned shape = in->m * 10000u + in->n * 100u + in->k;
    bool known = shape == 161616 || shape == 320816 || shape == 83216 || shape == 161608 || shape == 80804;
    if (!known || (mma && !halves && in->n_types != 4) || (!mma && in->n_types != 1)) return "unsupported form";
    unsigned a = halves ? PTX_F16 : mma ? in->types[1] : PTX_NONE, b = halves ? PTX_F16 : mma ? in->types[2] : PTX_NONE;
    unsigned c = halves ? in->types[1] : mma ? in->types[3] : PTX_NONE;
    const struct ptx_operand *o = in->ops;
    if (in->types[0] == PTX_F64) return "unsupported element type";
    if (!mma) {
        bool store = in->op == PTX_OP_WMMA_STORE, is_a = in->role == 'a', is_b = in->role == 'b';
        unsigned elements = is_a ? in->m * in->k : is_b ? in->k * in->n : in->m * in->n;
        unsigned have = operand_count(&o[store ? 1 : 0]), need = fragment_regs(in->types[0], elements);
        return have < need || have % need ? "wrong number of registers" : NULL;
    }
    if (!element_type(a) || !element_type(b) || ptx_element_bits(a) < 8) return "unsupported element types";
    if (operand_count(&o[1]) < fragment_regs(a, in->m * in->k) || operand_count(&o[2]) < fragment_regs(b, in->k * in->n) ||
        operand_count(&o[3]) != fragment_regs(c, in->m * in->n) ||
        operand_count(&o[0]) != fragment_regs(in->types[0], in->m * in->n))
        return "wrong number of registers";
    return NULL;
}

static const char *check_wgmma(const struct ptx_insn *in)
{
    unsigned a = in->types[1], bits = ptx_element_bits(a);
    if (in->n_types != 3 || in->n_ops < 4 || !element_type(a) || !element_type(in->types[2]) || bits < 8)
        return "unsupported form";
    if (in->m != 64 || in->n < 8 || in->n > 256 || in->n % 8 || in->k * bits != 256) return "unsupported shape";
    unsigned d = in->types[0];
    if (ptx_element_is_int(a) ? d != PTX_S32 : d != PTX_F32 && d != PTX_F16) return "unsupported accumulator type";
    if ((unsigned)in->ops[0].n != (d == PTX_F16 ? in->n / 4u : in->n / 2u)) return "wrong number of accumulators";
    if (in->ops[1].n && in->ops[1].n != 4) return "wrong number of registers of A";
    if (in->ops[2].n || in->ops[2].bytes != 8 || (!in->ops[1].n && in->ops[1].bytes != 8)) return "descriptor expected";
    return NULL;
}

static const char *check_matrix_move(const struct ptx_insn *in, const struct ptx_operand *o)
{
    if (in->m != 8 || in->n != 8 || in->types[0] != PTX_B16) return "unsupported form";
    if ((in->count != 1 && in->count != 2 && in->count != 4) || operand_count(o) != in->count)
        return "wrong number of registers";
    return NULL;
}

const char *ptx_check_insn(const struct ptx_insn *in, const struct ptx_kernel *k)
{
    (void)k;
    switch (in->op) {
    case PTX_OP_MOV: return check_mov(in);
    case PTX_OP_LD:
    case PTX_OP_LDU: return check_vector(in, &in->ops[0]);
    case PTX_OP_ST: return check_vector(in, &in->ops[1]);
    case PTX_OP_ATOM: return in->sub == PTX_SUB_NONE ? "no operation" : check_vector(in, &in->ops[0]);
    case PTX_OP_RED: return in->sub == PTX_SUB_NONE ? "no operation" : check_vector(in, &in->ops[1]);
    case PTX_OP_CVT:
        if (in->n_types != 2) return "two types expected";
        return check_plain(in);
    case PTX_OP_SETP:
    case PTX_OP_SET: return in->cmp == PTX_CMP_NONE ? "no comparison" : check_plain(in);
    case PTX_OP_MUL:
    case PTX_OP_MAD:
        if (ptx_types[in->types[0]].cls != PTX_CLASS_F && ptx_types[in->types[0]].cls != PTX_CLASS_X &&
            in->sub == PTX_SUB_NONE)
            return "neither .lo nor .hi nor .wide";
        return check_plain(in);
    case PTX_OP_MMA: return check_mma(in);
    case PTX_OP_WMMA_LOAD:
    case PTX_OP_WMMA_STORE:
    case PTX_OP_WMMA_MMA: return check_wmma(in);
    case PTX_OP_WGMMA: return check_wgmma(in);
    case PTX_OP_LDMATRIX: return check_matrix_move(in, &in->ops[0]);
    case PTX_OP_STMATRIX: return check_matrix_move(in, &in->ops[1]);
    default: break;
    }
    if (in->op < PTX_OP_LD) return check_plain(in);
    return NULL;
}
