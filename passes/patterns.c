// SPDX-License-Identifier: Apache-2.0
/*
 * Patterns: chains of ops that say one thing together become the op that says it, work on constants moves to build time,
 * and moves of elements that follow one another become one.
 *
 * Laws, besides those of ir/rewrite.h: a rule computes the same formula, so that results differ by rounding alone; what
 * differs by more stays as written. Hence
 *   - a variance as E[x^2] - E[x]^2 (as some exporters write it) is no layer_norm: it cancels where layer_norm does not;
 *   - exp(x) / sum(exp(x)) without the maximum is no softmax: it overflows where softmax does not;
 *   - constants are folded into f32 and f64 weights only: narrower ones would be rounded twice.
 *
 *   (x - mean) / sqrt(mean((x - mean)^2) + eps)        ->  layer_norm x        also * 1/sqrt(..), pow(.., 0.5), pow(.., -0.5)
 *   x / sqrt(mean(x^2) + eps)                          ->  rms_norm x
 *   layer_norm(x) * w + b                              ->  layer_norm x, w, b
 *   e / sum(e), e = exp(x - max(x))                    ->  softmax x
 *   d - log(sum(exp(d))), d = x - max(x)               ->  log_softmax x
 *   conv(x, w, b) * c, / c                             ->  conv(x, w * c, b * c)       c: a constant a channel or a number
 *   conv(x, w, b) + c, - c                             ->  conv(x, w, b + c)
 *   conv(x * c, w)                                     ->  conv(x, w * c)
 *   matmul(x, w) * c                                   ->  matmul(x, w * c)
 *   matmul(i == 0 .. n - 1, w), as 0 and 1             ->  gather(w with a row of zeros, i or n)
 *   conv(pad(x, 0), w)                                 ->  conv(x, w) with larger pads
 *   conv of integers whose sums stay below 2^24        ->  casts around a conv of f32: the same bits
 *   slice(slice(x)); slice(concat(..)) of one operand  ->  one slice
 *   concat(concat(..), ..); concat of slices that meet ->  one concat, one slice
 *   pad(pad(x))                                        ->  one pad
 *   sum(sum(x)), max(max(x)), ..                       ->  one reduction
 *   sum(x * c)                                         ->  sum(x) * c                  c: a number
 *   x / c / d                                          ->  x / (c * d)                 whole numbers below 2^12
 *   dft of constant length                             ->  products with constant matrices
 *
 * Requires and preserves verified IR. Cost: linear in ops times the depth of a pattern, and the bytes of folded weights.
 */
#include "passes/patterns.h"

#include <string.h>

#include "ir/op.h"
#include "passes/pass.h"

static const struct rewrite_pattern rules[] = {
    {"norm", IR_OP_DIV, pat_norm},
    {"norm", IR_OP_MUL, pat_norm},
    {"norm-scale", IR_OP_MUL, pat_norm_scale},
    {"norm-bias", IR_OP_ADD, pat_norm_bias},
    {"softmax", IR_OP_DIV, pat_softmax},
    {"log-softmax", IR_OP_SUB, pat_log_softmax},
    {"scale-weights", IR_OP_MUL, pat_scale_weights},
    {"scale-weights", IR_OP_DIV, pat_scale_weights},
    {"shift-bias", IR_OP_ADD, pat_shift_bias},
    {"shift-bias", IR_OP_SUB, pat_shift_bias},
    {"scale-input", IR_OP_CONV, pat_scale_input},
    {"scale-matmul", IR_OP_MUL, pat_scale_matmul},
    {"scale-matmul", IR_OP_DIV, pat_scale_matmul},
    {"one-hot", IR_OP_MATMUL, pat_one_hot},
    {"int-conv", IR_OP_CONV, pat_int_conv},
    {"pad-into-conv", IR_OP_CONV, pat_pad_into_conv},
    {"slice", IR_OP_SLICE, pat_slice},
    {"concat", IR_OP_CONCAT, pat_concat},
    {"pad", IR_OP_PAD, pat_pad},
    {"reduce-chain", IR_OP_REDUCE_SUM, pat_reduce_chain},
    {"reduce-chain", IR_OP_REDUCE_PROD, pat_reduce_chain},
    {"reduce-chain", IR_OP_REDUCE_MAX, pat_reduce_chain},
    {"reduce-chain", IR_OP_REDUCE_MIN, pat_reduce_chain},
    {"reduce-of-scaled", IR_OP_REDUCE_SUM, pat_reduce_of_scaled},
    {"div-div", IR_OP_DIV, pat_div_div},
    {"dft", IR_OP_DFT, pat_dft},
};

/* ---- shared ---- */

struct ir_op *pat_def(const struct ir_value *v, enum ir_opcode code)
{
    return v && v->def && v->def->code == code ? v->def : NULL;
}

bool pat_splat(const struct ir_value *v, double *out)
{
    const struct ir_const *c = v ? ir_value_const(v) : NULL;
    int64_t n;
    if (!c || c->type.dtype == DT_STRING || c->n_bytes == 0) return false;
    if (!c->splat && !(ir_type_static_elems(&c->type, &n) && n == 1)) return false;
    return ir_const_get_float(c, 0, out);
}

bool pat_same_dims(const struct ir_type *a, const struct ir_type *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

struct ir_value *pat_strip(struct ir_value *v)
{
    struct ir_op *op = pat_def(v, IR_OP_RESHAPE);
    if (!op) return v;
    struct ir_value *x = ir_operand(op, 0);
    int i = 0, k = 0;
    for (;;) {
        while (i < x->type.rank && dim_is(x->type.dims[i], 1)) i++;
        while (k < v->type.rank && dim_is(v->type.dims[k], 1)) k++;
        if (i == x->type.rank || k == v->type.rank) break;
        if (x->type.dims[i++] != v->type.dims[k++]) return v;
    }
    return i == x->type.rank && k == v->type.rank ? x : v;
}

unsigned pat_axes(const struct ir_op *op)
{
    int n;
    const int64_t *axes = ir_attr_ints(op, "axes", &n);
    unsigned mask = 0;
    for (int i = 0; i < n; i++) mask |= 1u << axes[i];
    return mask;
}

double *pat_floats(struct rewriter *r, const struct ir_value *v, int64_t *n)
{
    const struct ir_const *c = v ? ir_value_const(v) : NULL;
    if (!c || c->type.enc || (c->type.dtype != DT_F32 && c->type.dtype != DT_F64) || !ir_type_static_elems(&c->type, n)) return NULL;
    double *out = ARENA_ARRAY(&r->scratch, double, *n + 1);
    for (int64_t i = 0; i < *n; i++) {
        int64_t at = c->splat ? 0 : i;
        if (c->type.dtype == DT_F64) {
            memcpy(&out[i], (const char *)c->data + at * 8, 8);
        } else {
            float f;
            memcpy(&f, (const char *)c->data + at * 4, 4);
            out[i] = (double)f;
        }
    }
    return out;
}

struct ir_value *pat_constant(struct rewriter *r, const char *name, enum dtype t, int rank, const int64_t *dims, const double *data)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    size_t size = dtype_bytes(t);
    char *bytes = arena_alloc(&r->m->arena, (size_t)n * size);
    for (int64_t i = 0; i < n; i++) {
        float f = (float)data[i];
        if (t == DT_F64) memcpy(bytes + i * 8, &data[i], 8);
        else memcpy(bytes + i * 4, &f, 4);
    }
    struct ir_const *c = ir_const_make(r->m, name, ir_type_static(r->m, t, rank, dims), bytes, (size_t)n * size, false);
    return ir_build_constant(&r->b, c);
}

bool pass_patterns(struct ir_module *m, struct diag_sink *diag)
{
    for (size_t i = 0; i < m->funcs.n; i++)
        if (rewrite_func(m->funcs.v[i], rules, ARRAY_LEN(rules), NULL, NULL) == REWRITE_BOUND)
            return diag_report(diag, DIAG_IR_VERIFY, NULL, "patterns undo each other (a bug of infc)");
    return true;
}
