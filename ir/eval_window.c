// SPDX-License-Identifier: Apache-2.0
#include "ir/eval_window.h"

#define MAX_COORD (INT64_C(1) << 40)

bool eval_window(struct eval_call *c, const struct ir_tensor *x, const int64_t *kernel, bool has_output,
                 struct eval_window *w)
{
    int64_t pads[2 * IR_MAX_RANK];
    int r = w->rank = x->rank - 2;
    if (r < 0) return eval_fail(c, DIAG_SHAPE_MISMATCH, "rank %d", x->rank);
    if (!eval_ints(c, "strides", r, 1, w->strides) || !eval_ints(c, "dilations", r, 1, w->dilations) ||
        !eval_dims(c, "pads", 2 * r, 0, pads) || (has_output && !eval_dims(c, "output", r, 0, w->out)))
        return false;
    for (int d = 0; d < r; d++) {
        w->kernel[d] = kernel[d];
        w->lo[d] = pads[d];
        w->hi[d] = pads[r + d];
        w->in[d] = x->dims[2 + d];
        int64_t reach;
        if (w->strides[d] < 1 || w->strides[d] > MAX_COORD || w->dilations[d] < 1 || w->dilations[d] > MAX_COORD ||
            kernel[d] < 0 || kernel[d] > MAX_COORD || w->lo[d] < -MAX_COORD || w->lo[d] > MAX_COORD ||
            w->hi[d] < -MAX_COORD || w->hi[d] > MAX_COORD || !i64_mul(kernel[d] - 1, w->dilations[d], &reach) ||
            reach > MAX_COORD)
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "spatial axis %d: kernel, stride, dilation or pad out of range", d);
        int64_t span = w->in[d] + w->lo[d] + w->hi[d] - reach - 1;
        if (!has_output) w->out[d] = span < 0 ? 0 : span / w->strides[d] + 1;
        if (has_output && (w->out[d] < 0 || (w->out[d] > 0 && (w->out[d] - 1) > (MAX_COORD * 4) / w->strides[d])))
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "spatial axis %d: output out of range", d);
    }
    w->taps = eval_product(w->kernel, 0, r);
    w->positions = eval_product(w->out, 0, r);
    w->image = eval_product(w->in, 0, r);
    return true;
}
