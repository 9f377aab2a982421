// SPDX-License-Identifier: Apache-2.0
/* col2im, dft, det. */
#include <math.h>

#include "ir/eval_impl.h"
#include "ir/eval_table.h"
#include "ir/math_ref.h"

/* ---- col2im ---- */

struct blocks {
    int rank;
    int64_t image[IR_MAX_RANK], block[IR_MAX_RANK], strides[IR_MAX_RANK], dilations[IR_MAX_RANK], pads[2 * IR_MAX_RANK];
    int64_t count[IR_MAX_RANK]; /* positions of a block */
};

static bool read_blocks(struct eval_call *c, struct blocks *b)
{
    const struct ir_attr *image = ir_attr_find(c->op, "image");
    b->rank = image ? image->count : 0;
    int r = b->rank;
    if (r < 1 || r > IR_MAX_RANK - 2) return eval_fail(c, DIAG_SHAPE_MISMATCH, "%d image axes", r);
    if (!eval_dims(c, "image", r, 0, b->image) || !eval_ints(c, "block", r, 1, b->block) ||
        !eval_ints(c, "strides", r, 1, b->strides) || !eval_ints(c, "dilations", r, 1, b->dilations) ||
        !eval_ints(c, "pads", 2 * r, 0, b->pads))
        return false;
    for (int d = 0; d < r; d++) {
        if (b->image[d] < 0 || b->image[d] > 1 << 30 || b->block[d] < 1 || b->block[d] > 1 << 30 || b->strides[d] < 1 ||
            b->strides[d] > 1 << 30 || b->dilations[d] < 1 || b->dilations[d] > 1 << 30 || b->pads[d] < 0 ||
            b->pads[d] > 1 << 30 || b->pads[r + d] < 0 || b->pads[r + d] > 1 << 30)
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "image axis %d: an attribute is out of range", d);
        int64_t span = b->image[d] + b->pads[d] + b->pads[r + d] - b->dilations[d] * (b->block[d] - 1) - 1;
        b->count[d] = span < 0 ? 0 : span / b->strides[d] + 1;
    }
    return true;
}

/* Element of the image under tap `tap` of the block at position `pos`; -1 when in the pads. */
static int64_t block_element(const struct blocks *b, int64_t tap, int64_t pos)
{
    int64_t at = 0, stride = 1;
    for (int d = b->rank - 1; d >= 0; d--) {
        int64_t v = pos % b->count[d] * b->strides[d] - b->pads[d] + tap % b->block[d] * b->dilations[d];
        if (v < 0 || v >= b->image[d]) return -1;
        at += v * stride;
        stride *= b->image[d];
        tap /= b->block[d];
        pos /= b->count[d];
    }
    return at;
}

bool eval_col2im(struct eval_call *c)
{
    struct blocks b;
    if (!eval_need(c, 0, EVAL_FLOAT | EVAL_INT, 3) || !read_blocks(c, &b)) return false;
    const struct ir_tensor *x = &c->in[0];
    struct ir_tensor *out = &c->out[0];
    int64_t taps = 1, positions = 1, dims[IR_MAX_RANK];
    for (int d = 0; d < b.rank; d++) {
        if (!i64_mul(taps, b.block[d], &taps) || !i64_mul(positions, b.count[d], &positions))
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "too many blocks");
        dims[2 + d] = b.image[d];
    }
    if (x->dims[1] % taps || x->dims[2] != positions)
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "%lld x %lld columns for blocks of %lld at %lld positions", (long long)x->dims[1],
                         (long long)x->dims[2], (long long)taps, (long long)positions);
    dims[0] = x->dims[0];
    dims[1] = x->dims[1] / taps;
    if (!eval_expect(c, 0, x->dtype, b.rank + 2, dims)) return false;
    int64_t image = eval_product(b.image, 0, b.rank);
    bool is_float = dtype_is_float(x->dtype);
    union eval_lane *sums = eval_scratch(c, image, sizeof *sums), v;
    if (!sums) return false;
    for (int64_t i = 0; i < dims[0] * dims[1]; i++) {
        memset(sums, 0, sizeof *sums * (size_t)image);
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t pos = 0; pos < positions; pos++) {
                int64_t at = block_element(&b, tap, pos);
                if (at < 0) continue;
                eval_load(x->dtype, x->data, (i * taps + tap) * positions + pos, 1, 1, &v);
                if (is_float)
                    sums[at].f += v.f;
                else
                    sums[at].u += v.u;
            }
        eval_store(x->dtype, out->data, i * image, 1, image, sums);
    }
    return true;
}

/* ---- dft ---- */

struct complex {
    double re, im;
};

/* turn[k] = e^(-+ 2 pi i k / n), by whole quarter turns plus at most an eighth, so that symmetric entries are equal. */
static void make_turns(struct complex *turn, int64_t n, bool inverse)
{
    const double pi = 0x1.921fb54442d18p+1;
    for (int64_t k = 0; k < n; k++) {
        int64_t quarters = (8 * k / n + 1) / 2;
        double a = pi / 2 * (double)(4 * k - quarters * n) / (double)n;
        double s = ref_sin(a), co = ref_cos(a), re, im;
        switch (quarters & 3) {
        case 0: re = co, im = s; break;
        case 1: re = -s, im = co; break;
        case 2: re = -co, im = -s; break;
        default: re = s, im = -co; break;
        }
        turn[k] = (struct complex){re, inverse ? im : -im};
    }
}

/* out[0 .. n_out) of the transform of n values, directly: n * n_out steps. */
static void transform(const struct complex *x, const struct complex *turn, int64_t n, int64_t used, int64_t n_out, struct complex *out)
{
    for (int64_t k = 0; k < n_out; k++) {
        double re = 0, im = 0;
        int64_t at = 0;
        for (int64_t j = 0; j < used; j++) {
            re += x[j].re * turn[at].re - x[j].im * turn[at].im;
            im += x[j].re * turn[at].im + x[j].im * turn[at].re;
            at += k;
            if (at >= n) at -= n;
        }
        out[k] = (struct complex){re, im};
    }
}

struct dft {
    const struct ir_tensor *x;
    struct ir_tensor *out;
    int axis;
    int64_t n, n_in, n_out; /* length, elements there, elements wanted */
    bool inverse, onesided, real;
    struct complex *turn, *row, *result;
};

/* Line (o, i) along the axis. */
static void dft_line(const struct dft *p, int64_t o, int64_t i, int64_t inner)
{
    int64_t used = p->n_in < p->n ? p->n_in : p->n;
    int parts = p->real ? 1 : 2, parts_out = (int)p->out->dims[p->out->rank - 1];
    for (int64_t j = 0; j < used; j++) {
        int64_t at = ((o * p->n_in + j) * inner + i) * parts;
        p->row[j] = (struct complex){eval_get_f(p->x, at), p->real ? 0 : eval_get_f(p->x, at + 1)};
    }
    if (p->inverse && p->onesided) { /* the other half is the mirror image; DC and the middle count as real */
        int64_t half = p->n / 2 + 1;
        for (int64_t j = used; j < half; j++) p->row[j] = (struct complex){0, 0};
        p->row[0].im = 0;
        if (p->n % 2 == 0) p->row[half - 1].im = 0;
        for (int64_t j = half; j < p->n; j++) p->row[j] = (struct complex){p->row[p->n - j].re, -p->row[p->n - j].im};
        used = p->n;
    }
    transform(p->row, p->turn, p->n, used, p->n_out, p->result);
    double scale = p->inverse ? (double)p->n : 1;
    for (int64_t k = 0; k < p->n_out; k++) {
        int64_t at = ((o * p->n_out + k) * inner + i) * parts_out;
        eval_set_f(p->out, at, p->result[k].re / scale);
        if (parts_out == 2) eval_set_f(p->out, at + 1, p->result[k].im / scale);
    }
}

bool eval_dft(struct eval_call *c)
{
    if (!eval_need(c, 0, EVAL_FLOAT, -1)) return false;
    struct dft p = {.x = &c->in[0], .out = &c->out[0]};
    int rank = p.x->rank;
    p.inverse = ir_attr_int(c->op, "inverse", 0) != 0;
    p.onesided = ir_attr_int(c->op, "onesided", 0) != 0;
    if (rank < 2 || !eval_axis(c, "axis", -2, rank, &p.axis)) return rank < 2 ? eval_fail(c, DIAG_SHAPE_MISMATCH, "rank %d", rank) : false;
    int64_t dims[IR_MAX_RANK], parts = p.x->dims[rank - 1];
    memcpy(dims, p.x->dims, sizeof dims);
    p.n_in = dims[p.axis];
    p.real = parts == 1;
    int64_t dflt = p.inverse && p.onesided ? 2 * (p.n_in - 1) : p.n_in;
    if (!eval_dims(c, "length", 1, dflt, &p.n)) return false;
    if (p.axis == rank - 1 || (parts != 1 && parts != 2) || p.n < 1 || p.n > INT64_C(1) << 32)
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "axis, length or last dim out of range");
    p.n_out = p.onesided && !p.inverse ? p.n / 2 + 1 : p.n;
    dims[p.axis] = p.n_out;
    dims[rank - 1] = p.onesided && p.inverse ? 1 : 2;
    if (!eval_expect(c, 0, p.x->dtype, rank, dims)) return false;
    p.turn = eval_scratch(c, p.n, sizeof *p.turn);
    p.row = eval_scratch(c, p.n, sizeof *p.row);
    p.result = eval_scratch(c, p.n, sizeof *p.result);
    if (!p.turn || !p.row || !p.result) return false;
    make_turns(p.turn, p.n, p.inverse);
    int64_t outer = eval_product(dims, 0, p.axis), inner = eval_product(dims, p.axis + 1, rank - 1);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) dft_line(&p, o, i, inner);
    return true;
}

/* ---- det ---- */

/* Gaussian elimination with the greatest pivot of each column; a is destroyed. */
static double determinant(double *a, int64_t n)
{
    double det = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[pivot * n + k])) pivot = i;
        double p = a[pivot * n + k];
        if (p == 0) return 0;
        if (pivot != k) {
            det = -det;
            for (int64_t j = k; j < n; j++) {
                double t = a[k * n + j];
                a[k * n + j] = a[pivot * n + j];
                a[pivot * n + j] = t;
            }
        }
        det *= p;
        for (int64_t i = k + 1; i < n; i++) {
            double f = a[i * n + k] / p;
            for (int64_t j = k + 1; j < n; j++) a[i * n + j] -= f * a[k * n + j];
        }
    }
    return det;
}

bool eval_det(struct eval_call *c)
{
    if (!eval_need(c, 0, EVAL_FLOAT, -1)) return false;
    const struct ir_tensor *x = &c->in[0];
    int r = x->rank;
    if (r < 2 || x->dims[r - 1] != x->dims[r - 2]) return eval_fail(c, DIAG_SHAPE_MISMATCH, "the matrices must be square");
    if (!eval_expect(c, 0, x->dtype, r - 2, x->dims)) return false;
    int64_t n = x->dims[r - 1], count = eval_count(&c->out[0]);
    double *a = eval_scratch(c, n * n, sizeof *a);
    if (!a) return false;
    for (int64_t m = 0; m < count; m++) {
        for (int64_t i = 0; i < n * n; i++) a[i] = eval_get_f(x, m * n * n + i);
        eval_set_f(&c->out[0], m, determinant(a, n));
    }
    return true;
}
