// SPDX-License-Identifier: Apache-2.0
/* com.microsoft: MatMulNBits. (Its other operators live with their relatives: FusedMatMul,
 * FastGelu, ...) */
#include "compiler/import/onnx_int.h"

/* Unpacks bytes whose low bits come first: [.., B] -> [.., B * 8/bits], still u8. */
static struct ir_value *unpack_bytes(struct onode *n, struct ir_value *bytes, int bits)
{
    if (!bytes || bits == 8) return bytes;
    struct ir_value *parts[4], *mask = ir_build_scalar_i(n->b, DT_U8, (1 << bits) - 1);
    int per_byte = 8 / bits, rank = rank_of(bytes);
    for (int i = 0; i < per_byte; i++) {
        struct ir_value *v =
            i ? e_bin(n, IR_OP_SHR, bytes, ir_build_scalar_i(n->b, DT_U8, i * bits)) : bytes;
        if (!(parts[i] = e_unsqueeze(n, e_bin(n, IR_OP_AND, v, mask), rank))) return NULL;
    }
    const struct dim *dims[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = dim_of(bytes, i);
    dims[rank - 1] = dim_mulc(n->d, dims[rank - 1], per_byte);
    return e_reshape(n, ir_build_concat(n->b, per_byte, parts, rank), rank, dims);
}

/*
 * MatMulNBits(A[.., K], B u8[N, blocks, bytes], scales, zero_points, g_idx, bias): Y = A *
 * dequantised(B) ^ T. B's element k belongs to block k / block_size; without zero points they are
 * 2^(bits-1).
 */
bool onnx_matmulnbits(struct onode *n)
{
    struct ir_value *a = on_in(n, 0), *b = on_in(n, 1), *scales = on_in(n, 2), *zeros = on_in(n, 3),
                    *bias = on_in(n, 5);
    int64_t k = at_int(n, "K", 0), cols = at_int(n, "N", 0), bits = at_int(n, "bits", 4),
            block = at_int(n, "block_size", 0);
    at_ignore(n, "accuracy_level");
    at_ignore(n, "weight_prepacked");
    if (n->failed) return false;
    if (k < 1 || cols < 1 || k > 1 << 30 || cols > 1 << 30 || block < 1 || block > 1 << 20 ||
        (bits != 2 && bits != 4 && bits != 8))
        return on_fail(n, DIAG_ONNX_ATTR,
                       "MatMulNBits: K, N, bits or block_size is missing or out of range");
    if (on_in(n, 4)) return on_fail(n, DIAG_ONNX_OP, "MatMulNBits with g_idx is not supported");
    if (!on_rank(n, a, 1, IR_MAX_RANK, "A") || b->type.dtype != DT_U8)
        return on_fail(n, DIAG_DTYPE_MISMATCH, "MatMulNBits: B is %s", dtype_name(b->type.dtype));
    int64_t blocks = (k + block - 1) / block, row_bytes = (blocks * (int64_t)bits + 7) / 8;
    const struct dim *nd = dim_const(n->d, cols), *bd = dim_const(n->d, blocks),
                     *one = dim_const(n->d, 1), *zero = dim_const(n->d, 0);
    const struct dim *packed[3] = {nd, bd, dim_const(n->d, block * bits / 8)},
                     *per_block[3] = {nd, bd, one};
    struct ir_value *q = unpack_bytes(n, e_reshape(n, b, 3, packed), (int)bits),
                    *s = e_wide(n, e_reshape(n, scales, 3, per_block));
    if (!s) return false;
    enum dtype w = s->type.dtype;
    struct ir_value *z;
    if (!zeros) {
        z = e_scalar(n, w, (double)(1 << (bits - 1)));
    } else if (zeros->type.dtype == DT_U8) {
        const struct dim *rows[2] = {nd, dim_const(n->d, row_bytes)};
        z = e_slice1(n, unpack_bytes(n, e_reshape(n, zeros, 2, rows), (int)bits), 1, zero, bd);
        z = e_reshape(n, e_cast(n, z, w), 3, per_block);
    } else {
        z = e_cast(n, e_reshape(n, zeros, 3, per_block), w);
    }
    struct ir_value *weight = e_mul(n, e_sub(n, e_cast(n, q, w), z), s);
    const struct dim *matrix[2] = {nd, dim_const(n->d, blocks * block)};
    weight = e_slice1(n, e_reshape(n, weight, 2, matrix), 1, zero, dim_const(n->d, k));
    struct ir_value *x = e_cast(n, a, w), *y = NULL;
    if (rank_of(a) == 1) x = e_unsqueeze(n, x, 0);
    if (x && weight) y = ir_build_matmul(n->b, x, weight, false, true, DT_NONE);
    if (y && rank_of(a) == 1) y = e_squeeze(n, y, 0);
    if (bias) y = e_add(n, y, e_cast(n, bias, w));
    return on_out(n, 0, e_cast(n, y, a->type.dtype));
}
