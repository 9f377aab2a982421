// SPDX-License-Identifier: Apache-2.0
/*
 * ONNX's TensorProto, by its public field numbers: 1 dims, 2 data_type, 4 float_data, 5 int32_data,
 * 7 int64_data, 8 name, 9 raw_data, 10 double_data, 11 uint64_data, 13 external_data, 14
 * data_location.
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/io.h"
#include "runtime/status.h"

/* ---- protobuf's wire format ---- */

struct wire {
    const unsigned char *p, *end;
};

enum wire_type { VARINT, FIXED64, BYTES, FIXED32 = 5 };

static bool take_varint(struct wire *w, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 70 && w->p < w->end; shift += 7) {
        unsigned char b = *w->p++;
        if (shift < 64) *out |= (uint64_t)(b & 127) << shift;
        if (b < 128) return true;
    }
    return false;
}

struct field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;     /* VARINT, FIXED: as read */
    struct wire bytes;  /* BYTES: the contents; else the value as it lies there */
};

static bool take_field(struct wire *w, struct field *f)
{
    uint64_t key, len = 0;
    if (!take_varint(w, &key) || key >> 3 == 0 || key >> 3 > 0x1fffffff) return false;
    f->number = (uint32_t)(key >> 3);
    f->type = (enum wire_type)(key & 7);
    f->bytes.p = w->p;
    switch ((unsigned)f->type) {
    case VARINT:
        if (!take_varint(w, &f->value)) return false;
        f->bytes.end = w->p;
        return true;
    case FIXED64: len = 8; break;
    case FIXED32: len = 4; break;
    case BYTES:
        if (!take_varint(w, &len)) return false;
        f->bytes.p = w->p;
        break;
    default: return false; /* groups are not used */
    }
    if (len > (uint64_t)(w->end - w->p)) return false;
    w->p += len;
    f->bytes.end = w->p;
    return true;
}

/* ---- reading ---- */

/* Where the elements lie; typed fields may come in several pieces. */
struct proto {
    struct infr_tensor shape; /* dims, dtype */
    struct wire raw;
    bool has_raw, external;
    uint32_t data_field; /* the typed field seen, 0 = none */
    uint64_t n_values;   /* in typed fields */
};

static bool add_dim(struct proto *t, uint64_t v)
{
    if (t->shape.rank == INFR_MAX_RANK || v > INT64_MAX) return false;
    t->shape.dims[t->shape.rank++] = (int64_t)v;
    return true;
}

static bool take_dims(struct proto *t, const struct field *f)
{
    struct wire w = f->bytes;
    uint64_t v;
    if (f->type == VARINT) return add_dim(t, f->value);
    if (f->type != BYTES) return false;
    while (w.p < w.end)
        if (!take_varint(&w, &v) || !add_dim(t, v)) return false;
    return true;
}

/* Width of one value of a typed field in the file; 0 = varint. */
static size_t field_width(uint32_t number) { return number == 4 ? 4 : number == 10 ? 8 : 0; }

static bool is_data_field(uint32_t number)
{
    return number == 4 || number == 5 || number == 7 || number == 10 || number == 11;
}

/* Calls put for each value of a piece. */
static bool each_value(const struct field *f, bool (*put)(void *, uint64_t), void *ctx)
{
    struct wire w = f->bytes;
    size_t width = field_width(f->number);
    uint64_t v = 0;
    if (f->type == BYTES ? width && (size_t)(w.end - w.p) % width
                         : f->type != (width == 4   ? FIXED32
                                       : width == 8 ? FIXED64
                                                    : VARINT))
        return false;
    while (w.p < w.end) {
        if (!width) {
            if (!take_varint(&w, &v)) return false;
        } else {
            v = 0;
            memcpy(&v, w.p, width); /* little endian */
            w.p += width;
        }
        if (!put(ctx, v)) return false;
    }
    return true;
}

static bool count_value(void *ctx, uint64_t v)
{
    (void)v;
    (*(uint64_t *)ctx)++;
    return true;
}

static bool scan(struct wire w, struct proto *t)
{
    struct field f;
    while (w.p < w.end) {
        if (!take_field(&w, &f)) return false;
        if (f.number == 1) {
            if (!take_dims(t, &f)) return false;
        } else if (f.number == 2) {
            if (f.type != VARINT || f.value > 1000) return false;
            t->shape.dtype = dtype_from_onnx((int)f.value);
        } else if (f.number == 9) {
            if (f.type != BYTES) return false;
            t->raw = f.bytes, t->has_raw = true;
        } else if (f.number == 13 || (f.number == 14 && f.type == VARINT && f.value)) {
            t->external = true;
        } else if (is_data_field(f.number)) {
            if (t->data_field && t->data_field != f.number) return false;
            t->data_field = f.number;
            if (!each_value(&f, count_value, &t->n_values)) return false;
        }
    }
    return true;
}

/* The typed field that holds a type. */
static uint32_t field_of(enum dtype d)
{
    switch (d) {
    case DT_F32: return 4;
    case DT_F64: return 10;
    case DT_I64: return 7;
    case DT_U32: case DT_U64: return 11;
    default: return 5;
    }
}

static bool is_packed(enum dtype d) { return dtype_bits(d) < 8; }

/* Elements of k bits, low bits first, to one byte each. */
static void unpack(enum dtype d, unsigned char *out, uint64_t elems, const unsigned char *in)
{
    unsigned bits = dtype_bits(d), each = 8 / bits,
             sign = dtype_class(d) == DTC_SINT ? 1u << (bits - 1) : 0;
    for (uint64_t i = 0; i < elems; i++) {
        unsigned v = in[i / each] >> (i % each * bits) & ((1u << bits) - 1);
        out[i] = (unsigned char)((v ^ sign) - sign);
    }
}

struct fill {
    struct infr_tensor *t;
    uint64_t at, elems; /* next element */
};

static bool fill_value(void *ctx, uint64_t v)
{
    struct fill *f = ctx;
    enum dtype d = (enum dtype)f->t->dtype;
    size_t size = dtype_bytes(d);
    if (is_packed(d)) {
        unsigned each = 8 / dtype_bits(d);
        unsigned char byte = (unsigned char)v;
        uint64_t left = f->elems - f->at, n = left < each ? left : each;
        unpack(d, (unsigned char *)f->t->data + f->at, n, &byte);
        f->at += n;
        return true;
    }
    if (d == DT_BOOL) v = v != 0;
    memcpy((unsigned char *)f->t->data + f->at * size, &v, size); /* little endian: the low bytes */
    f->at++;
    return true;
}

static bool fill_typed(struct wire w, struct infr_tensor *out, uint64_t elems)
{
    struct fill fill = {.t = out, .elems = elems};
    struct field f;
    while (w.p < w.end && take_field(&w, &f))
        if (is_data_field(f.number) && !each_value(&f, fill_value, &fill)) return false;
    return fill.at == elems;
}

static void fill_raw(const struct wire *raw, struct infr_tensor *out, uint64_t elems)
{
    unsigned char *p = out->data;
    if (is_packed((enum dtype)out->dtype)) unpack((enum dtype)out->dtype, p, elems, raw->p);
    else if (out->bytes) memcpy(p, raw->p, out->bytes);
    if (out->dtype == DT_BOOL)
        for (uint64_t i = 0; i < elems; i++) p[i] = p[i] != 0;
}

/* Elements that the file's data can fill, an upper bound for what is allocated. */
static uint64_t elems_in_file(const struct proto *t, unsigned each)
{
    return t->has_raw ? (uint64_t)(t->raw.end - t->raw.p) * each : t->n_values * each;
}

int rt_pb_read(const unsigned char *p, size_t n, struct infr_tensor *out, struct infr_status *st)
{
    struct wire w = {p, p + n};
    struct proto t = {0};
    *out = (struct infr_tensor){0};
    if (!scan(w, &t)) return rt_fail(st, INFR_BAD_INPUT, "not a TensorProto file");
    enum dtype d = (enum dtype)t.shape.dtype;
    if (t.external)
        return rt_fail(
            st, INFR_BAD_INPUT,
            "the tensor's data lie in another file; only data inside the .pb can be read");
    if (!dtype_bytes(d))
        return rt_fail(st, INFR_BAD_INPUT, "the tensor's element type cannot be used");
    unsigned each = is_packed(d) ? 8 / dtype_bits(d) : 1;
    uint64_t elems = elems_in_file(&t, each);
    if (t.has_raw && t.data_field)
        return rt_fail(st, INFR_BAD_INPUT, "the tensor has its data twice");
    if (t.data_field && t.data_field != field_of(d))
        return rt_fail(st, INFR_BAD_INPUT, "the tensor's data do not have its type %s",
                       dtype_name(d));
    int code = rt_tensor_alloc(d, t.shape.rank, t.shape.dims,
                               elems <= UINT64_MAX / 8 ? elems * dtype_bytes(d) : 0, out, st);
    if (code) return code;
    elems = rt_tensor_elems(out);
    uint64_t values = (elems + each - 1) / each, bytes = is_packed(d) ? values : out->bytes;
    bool ok = t.has_raw ? (uint64_t)(t.raw.end - t.raw.p) == bytes : t.n_values == values;
    if (ok && t.has_raw) fill_raw(&t.raw, out, elems);
    else if (ok) ok = fill_typed(w, out, elems);
    if (ok) return INFR_OK;
    rt_tensor_free(out);
    return rt_fail(st, INFR_BAD_INPUT, "the tensor has not as many elements as its dims say");
}

/* ---- writing ---- */

static bool put_varint(FILE *f, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        if (fputc((int)(v & 127) | 128, f) < 0) return false;
    return fputc((int)v, f) >= 0;
}

static bool put_key(FILE *f, uint32_t number, enum wire_type type)
{
    return put_varint(f, number << 3 | type);
}

static bool put_raw(FILE *f, const struct infr_tensor *t)
{
    enum dtype d = (enum dtype)t->dtype;
    if (!is_packed(d))
        return put_varint(f, t->bytes) &&
               (!t->bytes || fwrite(t->data, 1, t->bytes, f) == t->bytes);
    unsigned bits = dtype_bits(d), each = 8 / bits;
    uint64_t n = t->bytes;
    const unsigned char *in = t->data;
    if (!put_varint(f, (n + each - 1) / each)) return false;
    for (uint64_t i = 0; i < n; i += each) {
        unsigned byte = 0;
        for (unsigned k = 0; k < each && i + k < n; k++)
            byte |= (in[i + k] & ((1u << bits) - 1)) << (k * bits);
        if (fputc((int)byte, f) < 0) return false;
    }
    return true;
}

int rt_pb_write(FILE *f, const char *name, const struct infr_tensor *t)
{
    bool ok = true;
    for (uint32_t i = 0; i < t->rank; i++)
        ok = ok && put_key(f, 1, VARINT) && put_varint(f, (uint64_t)t->dims[i]);
    ok = ok && put_key(f, 2, VARINT) && put_varint(f, (uint64_t)dtype_onnx((enum dtype)t->dtype));
    size_t n = strlen(name);
    ok = ok && put_key(f, 8, BYTES) && put_varint(f, n) && (!n || fwrite(name, 1, n, f) == n);
    ok = ok && put_key(f, 9, BYTES) && put_raw(f, t);
    return ok ? INFR_OK : INFR_ENVIRONMENT;
}
