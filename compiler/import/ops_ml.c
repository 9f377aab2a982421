// SPDX-License-Identifier: Apache-2.0
/* ai.onnx.ml without trees: Scaler, Binarizer, ArrayFeatureExtractor. */
#include "compiler/import/onnx_int.h"

/* A list attribute as f32: one number, or one a feature. NULL when absent or of another length. */
static struct ir_value *per_feature(struct onode *n, const char *name, struct ir_value *x,
                                    double dflt)
{
    int count;
    const double *v = at_floats(n, name, &count);
    if (n->failed) return NULL;
    if (!v || count == 1) return e_scalar(n, DT_F32, v ? v[0] : dflt);
    if (rank_of(x) == 0 ||
        !ir_require_equal(n->m, n->b->loc, dim_of(x, rank_of(x) - 1), dim_const(n->d, count), name))
        return NULL;
    float *f = on_alloc(n, (size_t)count, sizeof *f);
    int64_t dim = count;
    for (int i = 0; i < count; i++) f[i] = (float)v[i];
    return e_const_f32(n, 1, &dim, f);
}

bool onnx_ml_scaler(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *offset = per_feature(n, "offset", x, 0),
                    *scale = per_feature(n, "scale", x, 1);
    if (!offset || !scale) return false;
    return on_out(n, 0, e_mul(n, e_sub(n, e_cast(n, x, DT_F32), offset), scale));
}

bool onnx_ml_binarizer(struct onode *n)
{
    struct ir_value *x = on_in(n, 0),
                    *above = e_bin(n, IR_OP_GT, x, e_like(n, x, at_float(n, "threshold", 0)));
    return on_out(n, 0, e_cast(n, above, x->type.dtype));
}

/* Columns of the last axis; a vector gives a matrix of one row. */
bool onnx_ml_arrayfeatureextractor(struct onode *n)
{
    struct ir_value *x = on_in(n, 0), *at = on_in(n, 1);
    if (!on_rank(n, x, 1, IR_MAX_RANK, "X") || !on_int_type(n, at, "the index")) return false;
    const struct dim *count = e_size(n, at, 0, rank_of(at));
    struct ir_value *y = ir_build_gather(n->b, x, e_reshape(n, at, 1, &count), rank_of(x) - 1);
    return on_out(n, 0, rank_of(x) == 1 ? e_unsqueeze(n, y, 0) : y);
}
