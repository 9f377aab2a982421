// SPDX-License-Identifier: Apache-2.0
/*
 * Channels-last convolutions and pools ([N, D.., C]): the image is turned to [N, C, D..], the op runs as usual, and the
 * results are turned back. The index of pool_max stays one into the image in [N, C, D..] order, as the op table says.
 */
#include "ir/eval_window.h"

/* dst[i] = src[perm of i]: the rank's axes of src in the order perm. */
static bool turned(struct eval_call *c, const struct ir_tensor *src, const int *perm, struct ir_tensor *dst)
{
    struct eval_view v = eval_view_dense(src);
    eval_view_permute(&v, perm);
    *dst = *src;
    for (int i = 0; i < src->rank; i++) dst->dims[i] = v.dims[i];
    dst->data = eval_scratch(c, (int64_t)src->n_bytes + 1, 1);
    if (!dst->data) return false;
    eval_view_copy(&v, dst->data);
    return true;
}

bool eval_channels_last(struct eval_call *c, eval_fn run)
{
    struct ir_tensor in[3], out[2];
    int rank = c->in[0].rank, first[IR_MAX_RANK], last[IR_MAX_RANK];
    if (rank < 2 || c->n_in > 3 || c->n_out > 2) return eval_fail(c, DIAG_SHAPE_MISMATCH, "rank %d", rank);
    for (int i = 0; i < rank; i++) {
        first[i] = i == 0 ? 0 : i == 1 ? rank - 1 : i - 1; /* [N, C, D..] from [N, D.., C] */
        last[i] = i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
    }
    for (int i = 0; i < c->n_in; i++) in[i] = c->in[i];
    for (int i = 0; i < c->n_out; i++)
        if (c->out[i].rank != rank || !turned(c, &c->out[i], first, &out[i])) return false;
    if (!turned(c, &c->in[0], first, &in[0])) return false;
    struct eval_call plain = *c;
    plain.in = in;
    plain.out = out;
    bool ok = run(&plain);
    c->scratch = plain.scratch; /* the driver frees what was taken */
    if (!ok) return false;
    for (int i = 0; i < c->n_out; i++) {
        struct eval_view v = eval_view_dense(&out[i]);
        eval_view_permute(&v, last);
        eval_view_copy(&v, c->out[i].data);
    }
    return true;
}
