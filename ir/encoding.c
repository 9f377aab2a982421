// SPDX-License-Identifier: Apache-2.0
/* The table of encodings, and what is the same for all rows. */
#include "ir/encoding.h"

#include "ir/encoding_int.h"
#include "ir/module.h"
#include "ir/support/float.h"

static const struct ir_encoding table[] = {
#define PLAIN(ID, name, gguf, DTYPE) {name, gguf, DT_##DTYPE, 1, 0, 0, NULL, NULL, NULL},
#define ENC(ID, name, gguf, block, bytes, group, fields, pack)                                     \
    {name, gguf, DT_NONE, block, bytes, group, fields, split_##ID, pack},
#include "ir/encoding.def"
#undef ENC
#undef PLAIN
};

#define PLAIN(ID, name, gguf, DTYPE)
#define ENC(ID, name, gguf, block, bytes, group, fields, pack)                                     \
    _Static_assert((block) <= ENCODING_MAX_BLOCK && (block) % (group) == 0 &&                       \
                       (block) / (group) <= ENCODING_MAX_GROUPS, name);
#include "ir/encoding.def"
#undef ENC
#undef PLAIN

int encoding_count(void) { return (int)ARRAY_LEN(table); }

const struct ir_encoding *encoding_at(int i) { return &table[i]; }

const struct ir_encoding *encoding_find(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strlen(table[i].name) == len && !memcmp(table[i].name, name, len)) return &table[i];
    return NULL;
}

const struct ir_encoding *ir_const_encoding(const struct ir_const *c)
{
    if (c->type.enc) return c->type.enc;
    for (int i = 0; i < encoding_count(); i++)
        if (dtype_is_float(c->type.dtype) && encoding_at(i)->plain == c->type.dtype) return encoding_at(i);
    return NULL;
}

const struct ir_encoding *encoding_from_gguf(uint32_t type)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].gguf >= 0 && (uint32_t)table[i].gguf == type) return &table[i];
    return NULL;
}

static size_t block_bytes(const struct ir_encoding *e)
{
    return e->plain ? dtype_bytes(e->plain) : (size_t)e->block_bytes;
}

bool encoding_bytes(const struct ir_encoding *e, int64_t rows, int64_t row_elems, size_t *out)
{
    size_t blocks;
    if (rows < 0 || row_elems < 0 || row_elems % e->block_elems) return false;
    return size_mul((size_t)rows, (size_t)(row_elems / e->block_elems), &blocks) &&
           size_mul(blocks, block_bytes(e), out) && *out <= INT64_MAX;
}

bool ir_type_bytes(const struct ir_type *t, size_t *out)
{
    int64_t rows = 1, row = 1;
    for (int i = 0; i < t->rank; i++) {
        if (!dim_is_const(t->dims[i]) || t->dims[i]->value < 0) return false;
        if (i + 1 == t->rank) row = t->dims[i]->value;
        else if (!i64_mul(rows, t->dims[i]->value, &rows)) return false;
    }
    if (t->enc) return encoding_bytes(t->enc, rows, row, out);
    return i64_mul(rows, row, &rows) && size_mul((size_t)rows, dtype_bytes(t->dtype), out);
}

static void unpack_plain(enum dtype d, const unsigned char *p, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        union {
            float f;
            double d;
            int16_t h;
            int32_t w;
            int64_t l;
        } v;
        switch (d) {
        case DT_F32: memcpy(&out[i], p + 4 * i, 4); break;
        case DT_F16: out[i] = enc_f16(p + 2 * i); break;
        case DT_BF16: out[i] = enc_f32_from_bits((uint32_t)enc_u16(p + 2 * i) << 16); break;
        case DT_F64: memcpy(&v.d, p + 8 * i, 8); out[i] = (float)v.d; break;
        case DT_I8: out[i] = (float)(int8_t)p[i]; break;
        case DT_I16: memcpy(&v.h, p + 2 * i, 2); out[i] = (float)v.h; break;
        case DT_I32: memcpy(&v.w, p + 4 * i, 4); out[i] = (float)v.w; break;
        case DT_I64: memcpy(&v.l, p + 8 * i, 8); out[i] = (float)v.l; break;
        default: INFC_UNREACHABLE("plain encoding");
        }
    }
}

void encoding_unpack(const struct ir_encoding *e, const void *data, int64_t n, float *out)
{
    const uint8_t *p = data;
    int8_t q[ENCODING_MAX_BLOCK];
    float scale[ENCODING_MAX_GROUPS], min[ENCODING_MAX_GROUPS];
    INFC_ASSERT(n % e->block_elems == 0);
    if (e->plain) {
        unpack_plain(e->plain, p, n, out);
        return;
    }
    for (; n > 0; n -= e->block_elems, p += e->block_bytes) {
        const int8_t *at = q;
        memset(min, 0, sizeof min);
        e->split(p, q, scale, min);
        for (int g = 0; g < e->block_elems / e->group_elems; g++)
            for (int i = 0; i < e->group_elems; i++) {
                float x = scale[g] * (float)*at++;
                *out++ = min[g] != 0 ? x + min[g] : x; /* -0 stays -0 where there is no minimum */
            }
    }
}

bool encoding_pack(const struct ir_encoding *e, const float *x, int64_t n, void *data)
{
    uint8_t *p = data;
    INFC_ASSERT(n % e->block_elems == 0);
    if (e->plain == DT_F16 || e->plain == DT_BF16) {
        for (int64_t i = 0; i < n; i++) {
            uint16_t h = float_narrow(e->plain, x[i]);
            memcpy(p + 2 * i, &h, 2);
        }
        return true;
    }
    if (e->plain == DT_F32) memcpy(p, x, (size_t)n * sizeof *x);
    if (e->plain || !e->pack) return e->plain == DT_F32;
    for (; n > 0; n -= e->block_elems, x += e->block_elems, p += e->block_bytes) e->pack(x, p);
    return true;
}

static void swap_words(uint8_t *p, size_t n, size_t width)
{
    for (; n > 0; n--, p += width)
        for (size_t i = 0; i < width / 2; i++) {
            uint8_t t = p[i];
            p[i] = p[width - 1 - i];
            p[width - 1 - i] = t;
        }
}

void encoding_swap(const struct ir_encoding *e, void *data, size_t n_bytes)
{
    uint8_t *p = data, *end = p + n_bytes;
    if (e->plain) {
        swap_words(p, n_bytes / dtype_bytes(e->plain), dtype_bytes(e->plain));
        return;
    }
    while (p < end)
        for (const char *f = e->fields; *f; f += *f == ' ') {
            size_t n = 0;
            while (*f >= '0' && *f <= '9') n = 10 * n + (size_t)(*f++ - '0');
            size_t width = *f++ == 'h' ? 2 : 1;
            swap_words(p, n, width);
            p += n * width;
        }
}
