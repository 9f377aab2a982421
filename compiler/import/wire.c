// SPDX-License-Identifier: Apache-2.0
#include "compiler/import/wire.h"

#include <string.h>

/* Which fields of which message go into the skeleton. Everything else is checked and dropped. */
enum msg {
    M_MODEL,
    M_OPSET,
    M_PAIR,
    M_GRAPH,
    M_NODE,
    M_ATTR,
    M_TENSOR,
    M_SPARSE,
    M_VALUE_INFO,
    M_TYPE,
    M_TENSOR_TYPE,
    M_SHAPE,
    M_DIM,
    M_FUNCTION,
    M_OPAQUE,
    M_COUNT
};

enum keep { KEEP_INT, KEEP_I32, KEEP_STRING, KEEP_MSG };

/* `many` fields may repeat; of the others a second one is refused, because protobuf would merge the
 * two. */
struct rule {
    uint8_t number, keep, sub;
    bool many;
};

#define END {0, 0, 0, false}
static const struct rule model_rules[] = {
    {1, KEEP_INT, 0, false},          {2, KEEP_STRING, 0, false},
    {3, KEEP_STRING, 0, false},       {7, KEEP_MSG, M_GRAPH, false},
    {8, KEEP_MSG, M_OPSET, true},     {14, KEEP_MSG, M_PAIR, true},
    {25, KEEP_MSG, M_FUNCTION, true}, END};
static const struct rule opset_rules[] = {{1, KEEP_STRING, 0, false}, {2, KEEP_INT, 0, false}, END};
static const struct rule pair_rules[] = {
    {1, KEEP_STRING, 0, false}, {2, KEEP_STRING, 0, false}, END};
static const struct rule graph_rules[] = {{1, KEEP_MSG, M_NODE, true},
                                          {2, KEEP_STRING, 0, false},
                                          {5, KEEP_MSG, M_TENSOR, true},
                                          {11, KEEP_MSG, M_VALUE_INFO, true},
                                          {12, KEEP_MSG, M_VALUE_INFO, true},
                                          {15, KEEP_MSG, M_SPARSE, true},
                                          END};
static const struct rule node_rules[] = {{1, KEEP_STRING, 0, true},   {2, KEEP_STRING, 0, true},
                                         {3, KEEP_STRING, 0, false},  {4, KEEP_STRING, 0, false},
                                         {5, KEEP_MSG, M_ATTR, true}, {7, KEEP_STRING, 0, false},
                                         {8, KEEP_STRING, 0, false},  END};
static const struct rule attr_rules[] = {{1, KEEP_STRING, 0, false},
                                         {2, KEEP_I32, 0, false},
                                         {3, KEEP_INT, 0, false},
                                         {4, KEEP_STRING, 0, false},
                                         {5, KEEP_MSG, M_TENSOR, false},
                                         {6, KEEP_MSG, M_GRAPH, false},
                                         {9, KEEP_STRING, 0, true},
                                         {20, KEEP_INT, 0, false},
                                         {21, KEEP_STRING, 0, false},
                                         {22, KEEP_MSG, M_SPARSE, false},
                                         END};
static const struct rule tensor_rules[] = {{1, KEEP_INT, 0, true},     {2, KEEP_INT, 0, false},
                                           {8, KEEP_STRING, 0, false}, {13, KEEP_MSG, M_PAIR, true},
                                           {14, KEEP_INT, 0, false},   END};
static const struct rule sparse_rules[] = {
    {1, KEEP_MSG, M_TENSOR, false}, {2, KEEP_MSG, M_TENSOR, false}, {3, KEEP_INT, 0, true}, END};
static const struct rule value_info_rules[] = {
    {1, KEEP_STRING, 0, false}, {2, KEEP_MSG, M_TYPE, false}, END};
static const struct rule type_rules[] = {
    {1, KEEP_MSG, M_TENSOR_TYPE, false}, {4, KEEP_MSG, M_OPAQUE, false},
    {5, KEEP_MSG, M_OPAQUE, false},      {8, KEEP_MSG, M_OPAQUE, false},
    {9, KEEP_MSG, M_OPAQUE, false},      END};
static const struct rule tensor_type_rules[] = {
    {1, KEEP_INT, 0, false}, {2, KEEP_MSG, M_SHAPE, false}, END};
static const struct rule shape_rules[] = {{1, KEEP_MSG, M_DIM, true}, END};
static const struct rule dim_rules[] = {{1, KEEP_INT, 0, false}, {2, KEEP_STRING, 0, false}, END};
static const struct rule function_rules[] = {
    {1, KEEP_STRING, 0, false},  {4, KEEP_STRING, 0, true},
    {5, KEEP_STRING, 0, true},   {6, KEEP_STRING, 0, true},
    {7, KEEP_MSG, M_NODE, true}, {9, KEEP_MSG, M_OPSET, true},
    {10, KEEP_STRING, 0, false}, {11, KEEP_MSG, M_ATTR, true},
    {13, KEEP_STRING, 0, false}, END};
static const struct rule opaque_rules[] = {END};

static const struct rule *const rules_of[M_COUNT] = {
    [M_MODEL] = model_rules,
    [M_OPSET] = opset_rules,
    [M_PAIR] = pair_rules,
    [M_GRAPH] = graph_rules,
    [M_NODE] = node_rules,
    [M_ATTR] = attr_rules,
    [M_TENSOR] = tensor_rules,
    [M_SPARSE] = sparse_rules,
    [M_VALUE_INFO] = value_info_rules,
    [M_TYPE] = type_rules,
    [M_TENSOR_TYPE] = tensor_type_rules,
    [M_SHAPE] = shape_rules,
    [M_DIM] = dim_rules,
    [M_FUNCTION] = function_rules,
    [M_OPAQUE] = opaque_rules,
};

static const char *const message_names[M_COUNT] = {"ModelProto",
                                                   "OperatorSetIdProto",
                                                   "StringStringEntryProto",
                                                   "GraphProto",
                                                   "NodeProto",
                                                   "AttributeProto",
                                                   "TensorProto",
                                                   "SparseTensorProto",
                                                   "ValueInfoProto",
                                                   "TypeProto",
                                                   "TypeProto.Tensor",
                                                   "TensorShapeProto",
                                                   "TensorShapeProto.Dimension",
                                                   "FunctionProto",
                                                   "TypeProto part"};

bool wire_varint(struct wire_reader *r, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (r->p == r->end) break;
        uint8_t b = *r->p++;
        if (shift == 63 && b > 1) break;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return true;
        }
    }
    r->bad = true;
    return false;
}

static bool take_fixed(struct wire_reader *r, size_t n_bytes, uint64_t *out)
{
    if ((size_t)(r->end - r->p) < n_bytes) {
        r->bad = true;
        return false;
    }
    *out = 0;
    for (size_t i = 0; i < n_bytes; i++) *out |= (uint64_t)r->p[i] << (8 * i);
    r->p += n_bytes;
    return true;
}

bool wire_next(struct wire_reader *r, struct wire_field *f)
{
    if (r->bad || r->p == r->end) return false;
    uint64_t tag, len;
    if (!wire_varint(r, &tag)) return false;
    *f = (struct wire_field){.number = (uint32_t)(tag >> 3), .type = (enum wire_type)(tag & 7)};
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) r->bad = true;
    switch (f->type) {
    case WIRE_VARINT: return !r->bad && wire_varint(r, &f->varint);
    case WIRE_I64: return !r->bad && take_fixed(r, 8, &f->varint);
    case WIRE_I32: return !r->bad && take_fixed(r, 4, &f->varint);
    case WIRE_LEN:
        if (r->bad || !wire_varint(r, &len)) return false;
        if (len > (uint64_t)(r->end - r->p)) break;
        f->data = r->p;
        f->len = (size_t)len;
        r->p += len;
        return true;
    }
    r->bad = true;
    return false;
}

struct walk {
    const uint8_t *base;
    const char *loc;
    struct diag_sink *diag;
    struct wire_skeleton *out;
};

static bool fail_at(struct walk *w, const uint8_t *where, enum diag_id id, enum msg m,
                    const char *what)
{
    return diag_report(w->diag, id, w->loc, "%s, in a %s at byte %zu", what, message_names[m],
                       (size_t)(where - w->base));
}

static void put_varint(struct strbuf *s, uint64_t v)
{
    while (v >= 0x80) {
        strbuf_putc(s, (char)(v | 0x80));
        v >>= 7;
    }
    strbuf_putc(s, (char)v);
}

static void put_tag(struct strbuf *s, uint32_t number, enum wire_type type)
{
    put_varint(s, (uint64_t)number << 3 | type);
}

/* A length whose value is known only later: five bytes, padded, which is valid if not minimal. */
static void patch_length(struct strbuf *s, size_t at, size_t len)
{
    for (int i = 0; i < 5; i++)
        s->data[at + i] = (char)((len >> (7 * i) & 0x7f) | (i < 4 ? 0x80 : 0));
}

static const struct rule *find_rule(enum msg m, uint32_t number)
{
    for (const struct rule *r = rules_of[m]; r->number; r++)
        if (r->number == number) return r;
    return NULL;
}

static bool within_budget(struct walk *w, const uint8_t *where, enum msg m, size_t extra)
{
    size_t budget = w->out->records * WIRE_RECORD_BYTES + WIRE_SLACK_BYTES;
    if (w->out->bytes.len + extra <= budget && w->out->bytes.len + extra < UINT32_MAX) return true;
    return fail_at(w, where, DIAG_ONNX_LIMIT, m,
                   "too many bytes of names and text for the number of parts");
}

static bool walk_message(struct walk *w, enum msg m, const uint8_t *data, size_t len, int depth);

static bool keep_scalar(struct walk *w, const struct rule *rule, const struct wire_field *f,
                        enum msg m, const uint8_t *at, size_t *n_dims)
{
    struct strbuf *s = &w->out->bytes;
    if (f->type == WIRE_LEN && rule->keep == KEEP_INT && rule->many) { /* packed */
        struct wire_reader r = {f->data, f->data + f->len, false};
        uint64_t v;
        while (r.p < r.end) {
            if (!wire_varint(&r, &v))
                return fail_at(w, at, DIAG_ONNX_CORRUPT, m, "a broken list of numbers");
            if (++*n_dims > WIRE_MAX_DIMS)
                return fail_at(w, at, DIAG_ONNX_LIMIT, m, "too many dims");
            put_tag(s, f->number, WIRE_VARINT);
            put_varint(s, v);
        }
        return true;
    }
    enum wire_type want = rule->keep == KEEP_I32 ? WIRE_I32 : WIRE_VARINT;
    if (f->type != want)
        return fail_at(w, at, DIAG_ONNX_CORRUPT, m, "a field of the wrong wire type");
    if (rule->many && ++*n_dims > WIRE_MAX_DIMS)
        return fail_at(w, at, DIAG_ONNX_LIMIT, m, "too many dims");
    put_tag(s, f->number, f->type);
    if (want == WIRE_VARINT) put_varint(s, f->varint);
    else
        for (int i = 0; i < 4; i++) strbuf_putc(s, (char)(f->varint >> (8 * i)));
    return true;
}

static bool keep_field(struct walk *w, const struct rule *rule, const struct wire_field *f,
                       enum msg m, const uint8_t *at, int depth, size_t *n_dims)
{
    struct strbuf *s = &w->out->bytes;
    if (rule->keep == KEEP_INT || rule->keep == KEEP_I32)
        return keep_scalar(w, rule, f, m, at, n_dims);
    if (f->type != WIRE_LEN)
        return fail_at(w, at, DIAG_ONNX_CORRUPT, m, "a field of the wrong wire type");
    w->out->records++;
    if (rule->keep == KEEP_STRING) {
        if (!within_budget(w, at, m, f->len)) return false;
        bool is_bytes = m == M_ATTR && (f->number == 4 || f->number == 9);
        if (!is_bytes && memchr(f->data, 0, f->len))
            return fail_at(w, at, DIAG_ONNX_CORRUPT, m, "a name with a zero byte");
        put_tag(s, f->number, WIRE_LEN);
        put_varint(s, f->len);
        strbuf_putn(s, (const char *)f->data, f->len);
        return true;
    }
    put_tag(s, f->number, WIRE_LEN);
    size_t length_at = s->len;
    strbuf_putn(s, "\0\0\0\0\0", 5);
    if (!walk_message(w, (enum msg)rule->sub, f->data, f->len, depth + 1)) return false;
    patch_length(s, length_at, s->len - length_at - 5);
    return true;
}

static bool walk_message(struct walk *w, enum msg m, const uint8_t *data, size_t len, int depth)
{
    if (depth > WIRE_MAX_DEPTH)
        return fail_at(w, data, DIAG_ONNX_LIMIT, m, "nested more than 64 deep");
    if (!within_budget(w, data, m, 64)) return false;
    if (m == M_TENSOR || m == M_ATTR) {
        put_tag(&w->out->bytes, 2001, WIRE_VARINT);
        put_varint(&w->out->bytes, (uint64_t)(data - w->base));
        put_tag(&w->out->bytes, 2002, WIRE_VARINT);
        put_varint(&w->out->bytes, len);
    }
    struct wire_reader r = {data, data + len, false};
    struct wire_field f;
    uint32_t seen = 0;
    size_t n_dims = 0;
    while (r.p < r.end) {
        const uint8_t *at = r.p;
        if (!wire_next(&r, &f))
            return fail_at(w, at, DIAG_ONNX_CORRUPT, m, "a broken or cut off field");
        const struct rule *rule = find_rule(m, f.number);
        if (!rule) continue;
        if (!rule->many) {
            if (seen & 1u << f.number)
                return fail_at(w, at, DIAG_ONNX_CORRUPT, m, "a field given twice");
            seen |= 1u << f.number;
        }
        if (!keep_field(w, rule, &f, m, at, depth, &n_dims)) return false;
    }
    return true;
}

bool wire_make_skeleton(const void *data, size_t len, const char *loc, struct diag_sink *diag,
                        struct wire_skeleton *out)
{
    *out = (struct wire_skeleton){.records = 1};
    struct walk w = {data, loc, diag, out};
    if (len == 0) return diag_report(diag, DIAG_ONNX_CORRUPT, loc, "the file is empty");
    return walk_message(&w, M_MODEL, data, len, 1);
}

bool wire_looks_like_model(const void *data, size_t len)
{
    struct wire_reader r = {data, (const uint8_t *)data + len, false};
    uint64_t tag;
    if (len < 2 || !wire_varint(&r, &tag)) return false;
    static const struct {
        uint8_t number, type;
    } first[] = {{1, WIRE_VARINT}, {2, WIRE_LEN}, {3, WIRE_LEN}, {4, WIRE_LEN},  {5, WIRE_VARINT},
                 {6, WIRE_LEN},    {7, WIRE_LEN}, {8, WIRE_LEN}, {14, WIRE_LEN}, {25, WIRE_LEN}};
    for (size_t i = 0; i < ARRAY_LEN(first); i++)
        if (tag == ((uint64_t)first[i].number << 3 | first[i].type)) return true;
    return false;
}
