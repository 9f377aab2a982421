// SPDX-License-Identifier: Apache-2.0
/* Ops on whole tiles: IOTA, SPLAT, EXTRACT, INTERLEAVE, BYTES, REDUCE, MMA. */
#include "targets/cpu/emit.h"

static LLVMValueRef iota(LLVMTypeRef e, int n)
{
    LLVMValueRef few[64], *all = n <= 64 ? few : malloc((size_t)n * sizeof *all);
    if (!all) abort();
    for (int i = 0; i < n; i++) all[i] = cg_int(e, 1, i);
    LLVMValueRef v = n == 1 ? all[0] : LLVMConstVector(all, (unsigned)n);
    if (all != few) free(all);
    return v;
}

/* Lanes first, first + step, ... of x (and of y behind it). */
static LLVMValueRef lanes(struct cg *g, LLVMValueRef x, LLVMValueRef y, int first, int step, int count)
{
    if (count == 1) return LLVMBuildExtractElement(g->b, x, cg_i64(g, first), "");
    LLVMValueRef few[64], *idx = count <= 64 ? few : malloc((size_t)count * sizeof *idx);
    if (!idx) abort();
    for (int i = 0; i < count; i++) idx[i] = cg_int(g->i32, 1, first + i * step);
    LLVMValueRef mask = LLVMConstVector(idx, (unsigned)count);
    if (idx != few) free(idx);
    return LLVMBuildShuffleVector(g->b, x, y ? y : LLVMGetPoison(LLVMTypeOf(x)), mask, "");
}

/* ---- reduce ---- */

static enum lp_opcode reduce_op(int kind)
{
    static const enum lp_opcode ops[] = {LP_OP_ADD, LP_OP_MUL, LP_OP_MIN, LP_OP_MAX, LP_OP_AND, LP_OP_OR};
    return ops[kind];
}

/* A row of bools is one integer of as many bits: any is "not 0", all is "not missing one". */
static LLVMValueRef reduce_bools(struct cg *g, int kind, int n, LLVMValueRef x)
{
    LLVMTypeRef t = LLVMIntTypeInContext(g->c, (unsigned)n);
    LLVMValueRef bits = LLVMBuildBitCast(g->b, x, t, "");
    if (kind == LP_RED_OR) return cg_icmp(g, LLVMIntNE, bits, LLVMConstNull(t));
    return cg_icmp(g, LLVMIntEQ, bits, LLVMConstAllOnes(t));
}

static bool reduce(struct cg *g, struct lp_op *op)
{
    const struct lp_value *x = op->operands[0];
    enum dtype d = x->type.dtype;
    struct cg_value *y = cg_set(g, op->results[0], g->depth);
    if (x->type.cols & (x->type.cols - 1)) return cg_fail(g, DIAG_CODEGEN, "not a power of two of columns in", "reduce");
    for (int r = 0; r < x->type.rows; r++) {
        LLVMValueRef v = cg_row(g, x, r, x->type.cols);
        if (d == DT_BOOL && x->type.cols > 1) {
            y->rows[r] = reduce_bools(g, op->index, x->type.cols, v);
            continue;
        }
        for (int n = x->type.cols / 2; n >= 1; n /= 2)
            v = cg_binary(g, reduce_op(op->index), d, n, lanes(g, v, NULL, 0, 1, n), lanes(g, v, NULL, n, 1, n), false,
                          false);
        y->rows[r] = v;
    }
    return true;
}

/* ---- mma ---- */

/* The k elements of a row of the left operand as one scalar of their total width, splat over n lanes. */
static LLVMValueRef splat_group(struct cg *g, LLVMValueRef row, LLVMTypeRef whole, int n)
{
    return cg_splat(g, LLVMBuildBitCast(g->b, row, whole, ""), n);
}

static void mma_1(struct cg *g, struct lp_op *op, struct cg_value *y)
{
    struct lp_type t = op->results[0]->type;
    LLVMValueRef b = cg_row(g, op->operands[2], 0, t.cols);
    for (int r = 0; r < t.rows; r++)
        y->rows[r] = cg_fma(g, t.dtype, t.cols, cg_row(g, op->operands[1], r, t.cols), b,
                            cg_row(g, op->operands[0], r, t.cols));
}

/* bf16 pairs as dwords: the first of a pair is the low half. First products of all pairs, then second. */
static void mma_2(struct cg *g, struct lp_op *op, struct cg_value *y)
{
    struct lp_type t = op->results[0]->type;
    LLVMTypeRef iv = cg_vec(g->i32, t.cols), fv = cg_vec(g->f32, t.cols);
    LLVMValueRef high = cg_int(g->i32, t.cols, (int64_t)0xffff0000), sixteen = cg_int(g->i32, t.cols, 16);
    LLVMValueRef b = LLVMBuildBitCast(g->b, cg_row(g, op->operands[2], 0, 2 * t.cols), iv, "");
    LLVMValueRef b0 = LLVMBuildBitCast(g->b, LLVMBuildShl(g->b, b, sixteen, ""), fv, "");
    LLVMValueRef b1 = LLVMBuildBitCast(g->b, LLVMBuildAnd(g->b, b, high, ""), fv, "");
    for (int r = 0; r < t.rows; r++) {
        LLVMValueRef pair = LLVMBuildBitCast(g->b, cg_row(g, op->operands[1], r, 2), g->i32, "");
        LLVMValueRef a0 = LLVMBuildBitCast(g->b, LLVMBuildShl(g->b, pair, cg_int(g->i32, 1, 16), ""), g->f32, "");
        LLVMValueRef a1 = LLVMBuildAnd(g->b, pair, cg_int(g->i32, 1, (int64_t)0xffff0000), "");
        a1 = LLVMBuildBitCast(g->b, a1, g->f32, "");
        LLVMValueRef acc = cg_row(g, op->operands[0], r, t.cols);
        acc = cg_fma(g, DT_F32, t.cols, cg_splat(g, a0, t.cols), b0, acc);
        y->rows[r] = cg_fma(g, DT_F32, t.cols, cg_splat(g, a1, t.cols), b1, acc);
    }
}

/* Native registers of 32-bit lanes that c columns take; 0: no whole number. */
static int chunk_lanes(const struct cg *g, int cols)
{
    int lane = g->level->vector_bytes / 4;
    return cols % lane ? 0 : lane;
}

/* Sums of neighbouring products of i16: n dwords. The intrinsic where a register is exactly filled. */
static LLVMValueRef multiply_add_pairs(struct cg *g, int n, LLVMValueRef a, LLVMValueRef b)
{
    const char *name = n == 16 && g->level->isa >= INFR_ISA_V4   ? "llvm.x86.avx512.pmaddw.d.512"
                       : n == 8 && g->level->isa >= INFR_ISA_V3 ? "llvm.x86.avx2.pmadd.wd"
                       : n == 4                                 ? "llvm.x86.sse2.pmadd.wd"
                                                                : NULL;
    if (name) {
        LLVMValueRef args[2] = {a, b};
        return cg_call(g, name, NULL, args, 2);
    }
    LLVMTypeRef wide = cg_vec(g->i32, 2 * n);
    LLVMValueRef p = LLVMBuildMul(g->b, LLVMBuildSExt(g->b, a, wide, ""), LLVMBuildSExt(g->b, b, wide, ""), "");
    return LLVMBuildAdd(g->b, lanes(g, p, NULL, 0, 2, n), lanes(g, p, NULL, 1, 2, n), "");
}

/* Even or odd bytes of each pair, as i16. */
static LLVMValueRef bytes_to_words(struct cg *g, bool is_signed, bool odd, int n, LLVMValueRef x)
{
    LLVMValueRef eight = cg_int(g->i16, n, 8);
    if (!odd && !is_signed) return LLVMBuildAnd(g->b, x, cg_int(g->i16, n, 255), "");
    if (!odd) x = LLVMBuildShl(g->b, x, eight, "");
    return is_signed ? LLVMBuildAShr(g->b, x, eight, "") : LLVMBuildLShr(g->b, x, eight, "");
}

/* acc + dot products of byte quads, n dwords; a and b are dwords of four bytes. Exact: no saturation anywhere. */
static LLVMValueRef dot_bytes(struct cg *g, enum dtype da, enum dtype db, int n, LLVMValueRef acc, LLVMValueRef a,
                              LLVMValueRef b)
{
    bool sa = da == DT_I8, sb = db == DT_I8;
    if (g->level->has_vnni && n == 16 && sa != sb)
        return llvm_vpdpbusd_512(g->m, g->b, acc, sa ? b : a, sa ? a : b);
    LLVMTypeRef words = cg_vec(g->i16, 2 * n);
    LLVMValueRef wa = LLVMBuildBitCast(g->b, a, words, ""), wb = LLVMBuildBitCast(g->b, b, words, "");
    LLVMValueRef even = multiply_add_pairs(g, n, bytes_to_words(g, sa, false, 2 * n, wa),
                                           bytes_to_words(g, sb, false, 2 * n, wb));
    LLVMValueRef odd = multiply_add_pairs(g, n, bytes_to_words(g, sa, true, 2 * n, wa),
                                          bytes_to_words(g, sb, true, 2 * n, wb));
    return LLVMBuildAdd(g->b, acc, LLVMBuildAdd(g->b, even, odd, ""), "");
}

static LLVMValueRef insert_part(struct cg *g, LLVMValueRef whole, LLVMValueRef part, int at)
{
    LLVMTypeRef types[2] = {LLVMTypeOf(whole), LLVMTypeOf(part)};
    LLVMValueRef fn = llvm_intrinsic(g->m, "llvm.vector.insert", types, 2), args[3] = {whole, part, cg_i64(g, at)};
    return LLVMBuildCall2(g->b, LLVMGlobalGetValueType(fn), fn, args, 3, "");
}

/* acc + products of i16 pairs, n dwords; |a| or |b| stays above -32768, so that no sum wraps. */
static LLVMValueRef dot_words(struct cg *g, int n, LLVMValueRef acc, LLVMValueRef a, LLVMValueRef b)
{
    if (g->level->has_vnni && n == 16) return llvm_vpdpwssd_512(g->m, g->b, acc, a, b);
    LLVMTypeRef words = cg_vec(g->i16, 2 * n);
    LLVMValueRef wa = LLVMBuildBitCast(g->b, a, words, ""), wb = LLVMBuildBitCast(g->b, b, words, "");
    return LLVMBuildAdd(g->b, acc, multiply_add_pairs(g, n, wa, wb), "");
}

/*
 * Columns go through in native registers and are put together again; LLVM folds the taking apart away. One of the n groups of k that
 * a row of the left operand has; y holds the sums.
 */
static void mma_int(struct cg *g, struct lp_op *op, struct cg_value *y, int group)
{
    struct lp_type t = op->results[0]->type;
    enum dtype da = op->operands[1]->type.dtype, db = op->operands[2]->type.dtype;
    int k = op->index, n = op->operands[2]->type.rows, lane = chunk_lanes(g, t.cols) ? chunk_lanes(g, t.cols) : t.cols, chunks = t.cols / lane;
    LLVMValueRef b = LLVMBuildBitCast(g->b, cg_row(g, op->operands[2], group, k * t.cols), cg_vec(g->i32, t.cols), "");
    for (int r = 0; r < t.rows; r++) {
        LLVMValueRef acc = group ? y->rows[r] : cg_row(g, op->operands[0], r, t.cols), row = cg_row(g, op->operands[1], r, k * n);
        LLVMValueRef a = splat_group(g, n == 1 ? row : lanes(g, row, NULL, group * k, 1, k), g->i32, lane);
        LLVMValueRef out = chunks == 1 ? NULL : LLVMGetPoison(cg_vec(g->i32, t.cols));
        for (int c = 0; c < chunks; c++) {
            LLVMValueRef part = chunks == 1 ? acc : lanes(g, acc, NULL, c * lane, 1, lane);
            LLVMValueRef bc = chunks == 1 ? b : lanes(g, b, NULL, c * lane, 1, lane);
            part = k == 2 ? dot_words(g, lane, part, a, bc) : dot_bytes(g, da, db, lane, part, a, bc);
            out = chunks == 1 ? part : insert_part(g, out, part, c * lane);
        }
        y->rows[r] = out;
    }
}

static bool mma(struct cg *g, struct lp_op *op)
{
    struct cg_value *y = cg_set(g, op->results[0], g->depth);
    if (op->index == 1) mma_1(g, op, y);
    else if (op->index == 2 && op->results[0]->type.dtype == DT_F32) mma_2(g, op, y);
    else if (cg_mma_tiles(g, op)) return true;
    else for (int i = 0; i < op->operands[2]->type.rows; i++) mma_int(g, op, y, i);
    return true;
}

/* ---- the rest ---- */

static bool splat(struct cg *g, struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    struct cg_value *y = cg_set(g, op->results[0], cg_get(g, op->operands[0])->depth);
    if (y->depth > g->depth) y->depth = g->depth;
    LLVMBasicBlockRef saved = cg_enter_depth(g, y->depth);
    int distinct = op->operands[0]->type.rows == 1 ? 1 : t.rows;
    for (int r = 0; r < t.rows; r++)
        y->rows[r] = r < distinct ? cg_row(g, op->operands[0], r, t.cols) : y->rows[0];
    cg_leave_depth(g, saved);
    return true;
}

static bool extract(struct cg *g, struct lp_op *op)
{
    const struct lp_value *x = op->operands[0];
    struct cg_value *y = cg_set(g, op->results[0], g->depth);
    if (x->type.rows > 1) {
        y->rows[0] = cg_get(g, x)->rows[op->index];
    } else {
        LLVMValueRef row = cg_get(g, x)->rows[0];
        y->rows[0] = x->type.cols == 1 ? row : LLVMBuildExtractElement(g->b, row, cg_i64(g, op->index), "");
    }
    return true;
}

/* rows[0], rows[step], .. element by element in turn: `count` rows of n lanes. Two halves of them, even and odd, are woven at a time. */
static LLVMValueRef weave(struct cg *g, const LLVMValueRef *rows, int step, int count, int n)
{
    if (count == 1) return rows[0];
    int lanes_there = n * count, half = (count + 1) / 2;
    LLVMValueRef a = weave(g, rows, 2 * step, half, n), b = weave(g, rows + step, 2 * step, count / 2, n);
    LLVMValueRef *idx = malloc((size_t)lanes_there * sizeof *idx);
    if (!idx) abort();
    int a_lanes = n * half, b_lanes = n * (count / 2);
    if (b_lanes < a_lanes) { /* both sides of a shuffle are as long */
        for (int i = 0; i < a_lanes; i++) idx[i] = cg_int(g->i32, 1, i < b_lanes ? i : 0);
        b = LLVMBuildShuffleVector(g->b, b, LLVMGetPoison(LLVMTypeOf(b)), LLVMConstVector(idx, (unsigned)a_lanes), "");
    }
    for (int i = 0; i < lanes_there; i++) {
        int r = i % count, c = i / count;
        idx[i] = cg_int(g->i32, 1, r % 2 ? a_lanes + c * (count / 2) + r / 2 : c * half + r / 2);
    }
    LLVMValueRef v = LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(idx, (unsigned)lanes_there), "");
    free(idx);
    return v;
}

static bool interleave(struct cg *g, struct lp_op *op)
{
    struct lp_type t = op->operands[0]->type;
    if (t.cols < 2) return cg_fail(g, DIAG_NO_LOWERING, "no code on this target to interleave", "a column");
    LLVMValueRef *rows = malloc(t.rows * sizeof *rows);
    if (!rows) abort();
    for (int r = 0; r < t.rows; r++) rows[r] = cg_row(g, op->operands[0], r, t.cols);
    struct cg_value *y = cg_set(g, op->results[0], g->depth);
    y->rows[0] = weave(g, rows, 1, t.rows, t.cols);
    free(rows);
    return true;
}

static bool bytes(struct cg *g, struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    struct cg_value *y = cg_set(g, op->results[0], g->depth);
    for (int r = 0; r < t.rows; r++)
        y->rows[r] = LLVMBuildBitCast(g->b, cg_row(g, op->operands[0], r, op->operands[0]->type.cols), cg_vec(g->i8, t.cols), "");
    return true;
}

bool cg_tile_op(struct cg *g, struct lp_op *op)
{
    switch (op->code) {
    case LP_OP_IOTA: {
        struct lp_type t = op->results[0]->type;
        if (t.rows > 1) return cg_fail(g, DIAG_NO_LOWERING, "no code on this target for a column of numbers", "");
        cg_set(g, op->results[0], 0)->rows[0] = iota(cg_elem_type(g, t.dtype), t.cols);
        return true;
    }
    case LP_OP_SPLAT: return splat(g, op);
    case LP_OP_EXTRACT: return extract(g, op);
    case LP_OP_INTERLEAVE: return interleave(g, op);
    case LP_OP_BYTES: return bytes(g, op);
    case LP_OP_REDUCE: return reduce(g, op);
    default: return mma(g, op);
    }
}
