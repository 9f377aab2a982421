// SPDX-License-Identifier: Apache-2.0
/*
 * Products of bytes by the tiles of AMX. LLVM chooses the tile registers and loads one configuration at the function's entry, for a whole
 * range of slices. An operand that a LOAD of the same block made is loaded once more, from memory to a tile: its vectors are then dead, and LLVM
 * drops them. What has no place in memory goes by way of the stack, as the result does.
 */
#include "targets/cpu/emit.h"

enum { TILE_ROWS = 16, TILE_ROW_BYTES = 64 };

struct tile_shape {
    int rows, bytes;
};

static LLVMValueRef i16(struct cg *g, int v) { return LLVMConstInt(g->i16, (unsigned)v, 0); }

/* A tile from memory. */
static LLVMValueRef tile_load(struct cg *g, struct tile_shape s, LLVMValueRef at, LLVMValueRef row_bytes)
{
    LLVMValueRef args[4] = {i16(g, s.rows), i16(g, s.bytes), at, row_bytes};
    return cg_call(g, "llvm.x86.tileloadd64.internal", NULL, args, 4);
}

static LLVMValueRef row_at(struct cg *g, LLVMValueRef base, int r)
{
    LLVMValueRef offset = cg_i64(g, r * TILE_ROW_BYTES);
    return LLVMBuildGEP2(g->b, g->i8, base, &offset, 1, "");
}

/* The LOAD that made v, or of whose rows v is the bytes, with nothing between it and `user` that could have written its memory. */
static struct lp_op *fresh_load(const struct lp_value *v, const struct lp_op *user)
{
    struct lp_op *d = v->def;
    if (d && d->code == LP_OP_BYTES) d = d->operands[0]->def;
    if (!d || d->code != LP_OP_LOAD || d->block != user->block) return NULL;
    for (const struct lp_op *o = d->next; o != user; o = o->next)
        if (!o || o->code == LP_OP_STORE || (lp_op_flags(o->code) & LP_F_REGION)) return NULL;
    return d;
}

static LLVMValueRef operand(struct cg *g, const struct lp_op *op, int i)
{
    const struct lp_value *v = op->operands[i];
    struct tile_shape s = {v->type.rows, v->type.cols * (int)dtype_bytes(v->type.dtype)};
    struct lp_op *load = fresh_load(v, op);
    LLVMValueRef at, row_bytes;
    if (load && cg_load_place(g, load, &at, &row_bytes)) return tile_load(g, s, at, row_bytes);
    at = cg_alloca(g, (size_t)(s.rows * TILE_ROW_BYTES), TILE_ROW_BYTES);
    for (int r = 0; r < s.rows; r++) LLVMBuildStore(g->b, cg_row(g, v, r, v->type.cols), row_at(g, at, r));
    return tile_load(g, s, at, cg_i64(g, TILE_ROW_BYTES));
}

static LLVMValueRef accumulator(struct cg *g, const struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    const struct lp_op *d = op->operands[0]->def;
    if (!d || d->code != LP_OP_CONST || d->imm) return operand(g, op, 0);
    LLVMValueRef args[2] = {i16(g, t.rows), i16(g, t.cols * 4)};
    return cg_call(g, "llvm.x86.tilezero.internal", NULL, args, 2);
}

bool cg_mma_tiles(struct cg *g, struct lp_op *op)
{
    static const char *const names[2][2] = {{"llvm.x86.tdpbuud.internal", "llvm.x86.tdpbusd.internal"},
                                            {"llvm.x86.tdpbsud.internal", "llvm.x86.tdpbssd.internal"}};
    struct lp_type t = op->results[0]->type, a = op->operands[1]->type, b = op->operands[2]->type;
    if (!g->level->has_amx || b.rows == 1 || t.rows > TILE_ROWS || b.rows > TILE_ROWS || b.cols > TILE_ROW_BYTES) return false;
    LLVMValueRef args[6] = {i16(g, t.rows), i16(g, t.cols * 4), i16(g, a.cols), accumulator(g, op), operand(g, op, 1), operand(g, op, 2)};
    LLVMValueRef sum = cg_call(g, names[a.dtype == DT_I8][b.dtype == DT_I8], NULL, args, 6);
    LLVMValueRef at = cg_alloca(g, (size_t)t.rows * TILE_ROW_BYTES, TILE_ROW_BYTES);
    LLVMValueRef to[5] = {args[0], args[1], at, cg_i64(g, TILE_ROW_BYTES), sum};
    cg_call(g, "llvm.x86.tilestored64.internal", NULL, to, 5);
    struct cg_value *y = cg_set(g, op->results[0], g->depth);
    for (int r = 0; r < t.rows; r++) {
        y->rows[r] = LLVMBuildLoad2(g->b, cg_vec(g->i32, t.cols), row_at(g, at, r), "");
        LLVMSetAlignment(y->rows[r], TILE_ROW_BYTES);
    }
    return true;
}
