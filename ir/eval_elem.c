// SPDX-License-Identifier: Apache-2.0
/* Elements: blocks in and out of every dtype, strided views, threads. */
#include <pthread.h>
#include <stdlib.h>

#include "ir/eval_impl.h"
#include "ir/support/float.h"

int64_t eval_trunc(double v)
{
    if (v != v) return 0;
    if (v >= 0x1p63) return v < 0x1p64 ? (int64_t)(uint64_t)v : INT64_MIN;
    return v >= -0x1p63 ? (int64_t)v : INT64_MIN;
}

/* Sign extension of the low `bits` bits. */
static int64_t extend(uint64_t v, unsigned bits)
{
    uint64_t sign = UINT64_C(1) << (bits - 1);
    v &= (sign << 1) - 1;
    return (int64_t)((v ^ sign) - sign);
}

#define LOAD(type, field, expr)                                                                    \
    do {                                                                                           \
        const type *p = (const type *)data + offset;                                               \
        if (stride == 1)                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                      \
                type x = p[i];                                                                     \
                out[i].field = (expr);                                                             \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                type x = p[i * stride];                                                            \
                out[i].field = (expr);                                                             \
            }                                                                                      \
    } while (0)

void eval_load(enum dtype dtype, const void *data, int64_t offset, int64_t stride, int64_t n, union eval_lane *out)
{
    switch (dtype) {
    case DT_F64: LOAD(double, f, x); break;
    case DT_F32: LOAD(float, f, (double)x); break;
    case DT_F16: LOAD(uint16_t, f, f16_to_f64(x)); break;
    case DT_BF16: LOAD(uint16_t, f, bf16_to_f64(x)); break;
    case DT_F8E4M3FN:
    case DT_F8E4M3FNUZ:
    case DT_F8E5M2:
    case DT_F8E5M2FNUZ:
    case DT_F8E8M0:
    case DT_F4E2M1: LOAD(uint8_t, f, float_widen(dtype, x)); break;
    case DT_I2: LOAD(uint8_t, i, extend(x, 2)); break;
    case DT_U2: LOAD(uint8_t, i, x & 3); break;
    case DT_I4: LOAD(uint8_t, i, extend(x, 4)); break;
    case DT_U4: LOAD(uint8_t, i, x & 15); break;
    case DT_I8: LOAD(int8_t, i, x); break;
    case DT_U8: LOAD(uint8_t, i, x); break;
    case DT_I16: LOAD(int16_t, i, x); break;
    case DT_U16: LOAD(uint16_t, i, x); break;
    case DT_I32: LOAD(int32_t, i, x); break;
    case DT_U32: LOAD(uint32_t, i, x); break;
    case DT_I64: LOAD(int64_t, i, x); break;
    case DT_U64: LOAD(uint64_t, u, x); break;
    case DT_BOOL: LOAD(uint8_t, i, x != 0); break;
    default: INFC_UNREACHABLE("dtype without elements");
    }
}

void eval_load_f(enum dtype dtype, const void *data, int64_t offset, int64_t stride, int64_t n, union eval_lane *out)
{
    eval_load(dtype, data, offset, stride, n, out);
    if (dtype_is_float(dtype)) return;
    if (dtype == DT_U64)
        for (int64_t i = 0; i < n; i++) out[i].f = (double)out[i].u;
    else
        for (int64_t i = 0; i < n; i++) out[i].f = (double)out[i].i;
}

#define STORE(type, expr)                                                                          \
    do {                                                                                           \
        type *p = (type *)data + offset;                                                           \
        if (stride == 1)                                                                           \
            for (int64_t i = 0; i < n; i++) p[i] = (type)(expr);                                   \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) p[i * stride] = (type)(expr);                          \
    } while (0)

void eval_store(enum dtype dtype, void *data, int64_t offset, int64_t stride, int64_t n, const union eval_lane *in)
{
    switch (dtype) {
    case DT_F64: STORE(double, in[i].f); break;
    case DT_F32: STORE(float, in[i].f); break;
    case DT_F16: STORE(uint16_t, f16_from_f64(in[i].f)); break;
    case DT_BF16: STORE(uint16_t, bf16_from_f64(in[i].f)); break;
    case DT_F8E4M3FN:
    case DT_F8E4M3FNUZ:
    case DT_F8E5M2:
    case DT_F8E5M2FNUZ:
    case DT_F8E8M0:
    case DT_F4E2M1: STORE(uint8_t, float_narrow(dtype, in[i].f)); break;
    case DT_I2: STORE(int8_t, extend(in[i].u, 2)); break;
    case DT_U2: STORE(uint8_t, in[i].u & 3); break;
    case DT_I4: STORE(int8_t, extend(in[i].u, 4)); break;
    case DT_U4: STORE(uint8_t, in[i].u & 15); break;
    case DT_I8:
    case DT_U8: STORE(uint8_t, in[i].u); break;
    case DT_I16:
    case DT_U16: STORE(uint16_t, in[i].u); break;
    case DT_I32:
    case DT_U32: STORE(uint32_t, in[i].u); break;
    case DT_I64:
    case DT_U64: STORE(uint64_t, in[i].u); break;
    case DT_BOOL: STORE(uint8_t, in[i].u != 0); break;
    default: INFC_UNREACHABLE("dtype without elements");
    }
}

static void load_bits(int esize, const void *data, int64_t offset, int64_t stride, int64_t n, union eval_lane *out)
{
    switch (esize) {
    case 1: LOAD(uint8_t, u, x); break;
    case 2: LOAD(uint16_t, u, x); break;
    case 4: LOAD(uint32_t, u, x); break;
    default: LOAD(uint64_t, u, x); break;
    }
}

static void store_bits(int esize, void *data, int64_t offset, int64_t stride, int64_t n, const union eval_lane *in)
{
    switch (esize) {
    case 1: STORE(uint8_t, in[i].u); break;
    case 2: STORE(uint16_t, in[i].u); break;
    case 4: STORE(uint32_t, in[i].u); break;
    default: STORE(uint64_t, in[i].u); break;
    }
}

double eval_get_f(const struct ir_tensor *t, int64_t i)
{
    union eval_lane l;
    eval_load_f(t->dtype, t->data, i, 1, 1, &l);
    return l.f;
}

int64_t eval_get_i(const struct ir_tensor *t, int64_t i)
{
    union eval_lane l;
    eval_load(t->dtype, t->data, i, 1, 1, &l);
    return dtype_is_float(t->dtype) ? eval_trunc(l.f) : l.i;
}

void eval_set_f(struct ir_tensor *t, int64_t i, double v)
{
    union eval_lane l = {.f = v};
    if (!dtype_is_float(t->dtype)) l.i = eval_trunc(v);
    eval_store(t->dtype, t->data, i, 1, 1, &l);
}

void eval_set_i(struct ir_tensor *t, int64_t i, int64_t v)
{
    union eval_lane l = {.i = v};
    if (dtype_is_float(t->dtype)) l.f = (double)v;
    eval_store(t->dtype, t->data, i, 1, 1, &l);
}

int64_t eval_product(const int64_t *dims, int from, int to)
{
    uint64_t n = 1;
    for (int i = from; i < to; i++) n *= (uint64_t)dims[i];
    return (int64_t)n;
}

/* ---- views ---- */

struct eval_view eval_view_dense(const struct ir_tensor *t)
{
    struct eval_view v = {.dtype = t->dtype, .esize = (int)dtype_bytes(t->dtype), .data = t->data, .rank = t->rank};
    int64_t stride = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        v.dims[i] = t->dims[i];
        v.strides[i] = stride;
        stride *= t->dims[i];
    }
    return v;
}

bool eval_view_broadcast(struct eval_view *v, int rank, const int64_t *dims)
{
    int shift = rank - v->rank;
    if (shift < 0) return false;
    for (int i = rank - 1; i >= 0; i--) {
        int64_t dim = i >= shift ? v->dims[i - shift] : 1;
        int64_t stride = i >= shift ? v->strides[i - shift] : 0;
        if (dim != dims[i]) {
            if (dim != 1) return false;
            stride = 0;
        }
        v->dims[i] = dims[i];
        v->strides[i] = stride;
    }
    v->rank = rank;
    return true;
}

void eval_view_permute(struct eval_view *v, const int *perm)
{
    struct eval_view old = *v;
    for (int i = 0; i < v->rank; i++) {
        v->dims[i] = old.dims[perm[i]];
        v->strides[i] = old.strides[perm[i]];
    }
}

void eval_view_axis_last(struct eval_view *v, int axis)
{
    int perm[2 * IR_MAX_RANK], n = 0;
    for (int i = 0; i < v->rank; i++)
        if (i != axis) perm[n++] = i;
    perm[n] = axis;
    eval_view_permute(v, perm);
}

void eval_view_collapse(struct eval_view *v)
{
    int n = 0;
    for (int i = 0; i < v->rank; i++) {
        if (v->dims[i] == 1) continue;
        if (n && v->strides[n - 1] == v->dims[i] * v->strides[i]) {
            v->dims[n - 1] *= v->dims[i];
            v->strides[n - 1] = v->strides[i];
        } else {
            v->dims[n] = v->dims[i];
            v->strides[n] = v->strides[i];
            n++;
        }
    }
    if (!n) {
        v->dims[0] = 1;
        v->strides[0] = 1;
        n = 1;
    }
    v->rank = n;
}

int64_t eval_view_count(const struct eval_view *v) { return eval_product(v->dims, 0, v->rank); }

/* Walks a view from a position in runs along its last axis. */
struct cursor {
    const struct eval_view *v;
    int64_t at[2 * IR_MAX_RANK];
    int64_t offset;
};

static void cursor_seek(struct cursor *c, const struct eval_view *v, int64_t start)
{
    c->v = v;
    c->offset = v->offset;
    for (int i = v->rank - 1; i > 0; i--) {
        c->at[i] = start % v->dims[i];
        start /= v->dims[i];
        c->offset += c->at[i] * v->strides[i];
    }
    if (v->rank) {
        c->at[0] = start;
        c->offset += start * v->strides[0];
    }
}

/* The next run of at most max elements: its length, offset and stride; moves past it. */
static int64_t cursor_run(struct cursor *c, int64_t max, int64_t *offset, int64_t *stride)
{
    const struct eval_view *v = c->v;
    *offset = c->offset;
    *stride = v->rank ? v->strides[v->rank - 1] : 1;
    if (!v->rank) return 1;
    int last = v->rank - 1;
    int64_t run = v->dims[last] - c->at[last];
    if (run > max) run = max;
    c->at[last] += run;
    c->offset += run * v->strides[last];
    for (int i = last; i > 0 && c->at[i] == v->dims[i]; i--) {
        c->offset += v->strides[i - 1] - v->dims[i] * v->strides[i];
        c->at[i] = 0;
        c->at[i - 1]++;
    }
    return run;
}

void eval_view_load(const struct eval_view *v, int64_t start, int64_t n, union eval_lane *out)
{
    struct cursor c;
    int64_t offset, stride;
    if (n <= 0) return;
    cursor_seek(&c, v, start);
    for (int64_t done = 0, run; done < n; done += run) {
        run = cursor_run(&c, n - done, &offset, &stride);
        eval_load(v->dtype, v->data, offset, stride, run, out + done);
    }
}

void eval_view_load_bits(const struct eval_view *v, int64_t start, int64_t n, union eval_lane *out)
{
    struct cursor c;
    int64_t offset, stride;
    if (n <= 0) return;
    cursor_seek(&c, v, start);
    for (int64_t done = 0, run; done < n; done += run) {
        run = cursor_run(&c, n - done, &offset, &stride);
        load_bits(v->esize, v->data, offset, stride, run, out + done);
    }
}

void eval_view_store(const struct eval_view *v, int64_t start, int64_t n, const union eval_lane *in)
{
    struct cursor c;
    int64_t offset, stride;
    if (n <= 0) return;
    cursor_seek(&c, v, start);
    for (int64_t done = 0, run; done < n; done += run) {
        run = cursor_run(&c, n - done, &offset, &stride);
        eval_store(v->dtype, v->data, offset, stride, run, in + done);
    }
}

void eval_view_store_bits(const struct eval_view *v, int64_t start, int64_t n, const union eval_lane *in)
{
    struct cursor c;
    int64_t offset, stride;
    if (n <= 0) return;
    cursor_seek(&c, v, start);
    for (int64_t done = 0, run; done < n; done += run) {
        run = cursor_run(&c, n - done, &offset, &stride);
        store_bits(v->esize, v->data, offset, stride, run, in + done);
    }
}

static void copy_run(int esize, const char *src, int64_t offset, int64_t stride, int64_t n, char *dst)
{
    if (stride == 1) {
        memcpy(dst, src + offset * esize, (size_t)(n * esize));
        return;
    }
    switch (esize) {
    case 1: for (int64_t i = 0; i < n; i++) dst[i] = src[offset + i * stride]; break;
    case 2: for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = ((const uint16_t *)src)[offset + i * stride]; break;
    case 4: for (int64_t i = 0; i < n; i++) ((uint32_t *)dst)[i] = ((const uint32_t *)src)[offset + i * stride]; break;
    default: for (int64_t i = 0; i < n; i++) ((uint64_t *)dst)[i] = ((const uint64_t *)src)[offset + i * stride]; break;
    }
}

void eval_view_copy(const struct eval_view *v, void *dst)
{
    struct eval_view w = *v;
    int64_t n = eval_view_count(v), offset, stride;
    if (n <= 0) return;
    eval_view_collapse(&w);
    struct cursor c;
    cursor_seek(&c, &w, 0);
    for (int64_t done = 0, run; done < n; done += run) {
        run = cursor_run(&c, n - done, &offset, &stride);
        copy_run(w.esize, w.data, offset, stride, run, (char *)dst + done * w.esize);
    }
}

/* ---- threads ---- */

struct share {
    void (*fn)(void *arg, int64_t from, int64_t to);
    void *arg;
    int64_t from, to;
    pthread_t thread;
    bool started;
};

static void *run_share(void *p)
{
    struct share *s = p;
    s->fn(s->arg, s->from, s->to);
    return NULL;
}

void eval_parallel(struct eval_call *c, int64_t n, int64_t grain, void (*fn)(void *arg, int64_t from, int64_t to),
                   void *arg)
{
    struct share shares[64];
    int64_t count = n / (grain > 0 ? grain : 1);
    if (count > c->n_threads) count = c->n_threads;
    if (count > (int64_t)ARRAY_LEN(shares)) count = (int64_t)ARRAY_LEN(shares);
    if (count < 2) {
        if (n > 0) fn(arg, 0, n);
        return;
    }
    int64_t each = n / count, rest = n % count, at = 0;
    for (int64_t i = 0; i < count; i++) {
        struct share *s = &shares[i];
        *s = (struct share){.fn = fn, .arg = arg, .from = at, .to = at + each + (i < rest)};
        at = s->to;
        /* The last share is ours; one that gets no thread is done here, too. */
        s->started = i + 1 < count && pthread_create(&s->thread, NULL, run_share, s) == 0;
        if (!s->started) run_share(s);
    }
    for (int64_t i = 0; i < count; i++)
        if (shares[i].started) pthread_join(shares[i].thread, NULL);
}
