// SPDX-License-Identifier: Apache-2.0
/* Attributes of ops, and constants. */
#include <math.h>
#include <string.h>

#include "ir/module.h"
#include "ir/smallfloat.h"

const struct ir_attr *ir_attr_find(const struct ir_op *op, const char *name)
{
    for (int i = 0; i < op->n_attrs; i++)
        if (!strcmp(op->attrs[i].name, name)) return &op->attrs[i];
    return NULL;
}

static struct ir_attr attr_copy(struct ir_module *m, struct ir_attr a)
{
    size_t n = a.count > 0 ? (size_t)a.count : 0;
    a.name = arena_strdup(&m->arena, a.name);
    switch (a.kind) {
    case IR_ATTR_STRING: a.s = arena_strdup(&m->arena, a.s); break;
    case IR_ATTR_INTS: a.ints = arena_dup(&m->arena, a.ints, n * sizeof *a.ints); break;
    case IR_ATTR_FLOATS: a.floats = arena_dup(&m->arena, a.floats, n * sizeof *a.floats); break;
    case IR_ATTR_DIMS: a.dims = arena_dup(&m->arena, a.dims, n * sizeof *a.dims); break;
    default: break;
    }
    return a;
}

void ir_op_set_attr(struct ir_module *m, struct ir_op *op, struct ir_attr attr)
{
    struct ir_attr copy = attr_copy(m, attr);
    for (int i = 0; i < op->n_attrs; i++) {
        if (strcmp(op->attrs[i].name, attr.name)) continue;
        op->attrs[i] = copy;
        return;
    }
    struct ir_attr *grown = ARENA_ARRAY(&m->arena, struct ir_attr, op->n_attrs + 1);
    if (op->n_attrs) memcpy(grown, op->attrs, (size_t)op->n_attrs * sizeof *grown);
    grown[op->n_attrs++] = copy;
    op->attrs = grown;
}

static const struct ir_attr *find_kind(const struct ir_op *op, const char *name,
                                       enum ir_attr_kind kind)
{
    const struct ir_attr *a = ir_attr_find(op, name);
    return a && a->kind == kind ? a : NULL;
}

int64_t ir_attr_int(const struct ir_op *op, const char *name, int64_t dflt)
{
    const struct ir_attr *a = ir_attr_find(op, name);
    return a && (a->kind == IR_ATTR_INT || a->kind == IR_ATTR_DTYPE) ? a->i : dflt;
}

double ir_attr_float(const struct ir_op *op, const char *name, double dflt)
{
    const struct ir_attr *a = find_kind(op, name, IR_ATTR_FLOAT);
    return a ? a->f : dflt;
}

const char *ir_attr_string(const struct ir_op *op, const char *name, const char *dflt)
{
    const struct ir_attr *a = find_kind(op, name, IR_ATTR_STRING);
    return a ? a->s : dflt;
}

const int64_t *ir_attr_ints(const struct ir_op *op, const char *name, int *count)
{
    const struct ir_attr *a = find_kind(op, name, IR_ATTR_INTS);
    *count = a ? a->count : 0;
    return a ? a->ints : NULL;
}

const double *ir_attr_floats(const struct ir_op *op, const char *name, int *count)
{
    const struct ir_attr *a = find_kind(op, name, IR_ATTR_FLOATS);
    *count = a ? a->count : 0;
    return a ? a->floats : NULL;
}

const struct dim *const *ir_attr_dims(const struct ir_op *op, const char *name, int *count)
{
    const struct ir_attr *a = find_kind(op, name, IR_ATTR_DIMS);
    *count = a ? a->count : 0;
    return a ? a->dims : NULL;
}

struct ir_const *ir_attr_const(const struct ir_op *op, const char *name)
{
    const struct ir_attr *a = find_kind(op, name, IR_ATTR_CONST);
    return a ? a->c : NULL;
}

/* ---- constants ---- */

struct ir_const *ir_const_make(struct ir_module *m, const char *name, struct ir_type type,
                               const void *data, size_t n_bytes, bool splat)
{
    struct ir_const *c = ARENA_NEW(&m->arena, struct ir_const);
    c->id = (uint32_t)m->consts.n;
    c->name =
        name ? arena_strdup(&m->arena, name) : arena_printf(&m->arena, "c%u", (unsigned)c->id);
    c->type = type;
    c->data = data;
    c->n_bytes = n_bytes;
    c->splat = splat;
    vec_push(&m->arena, &m->consts, c);
    return c;
}

struct ir_const *ir_value_const(const struct ir_value *v)
{
    return v && v->def && v->def->code == IR_OP_CONSTANT ? ir_attr_const(v->def, "value") : NULL;
}

/* Address of element i, or NULL when it is out of range or has no plain bytes. */
static const unsigned char *element(const struct ir_const *c, int64_t i)
{
    int64_t n;
    size_t bytes = dtype_bytes(c->type.dtype), at, end;
    if (!c->data || bytes == 0 || c->type.enc || i < 0) return NULL;
    if (!ir_type_static_elems(&c->type, &n) || i >= n) return NULL;
    if (!size_mul(c->splat ? 0 : (size_t)i, bytes, &at) || !size_add(at, bytes, &end) ||
        end > c->n_bytes)
        return NULL;
    return (const unsigned char *)c->data + at;
}

/* bits: of the type; p: its bytes, little end first. */
static int64_t load_int(enum dtype d, const unsigned char *p)
{
    uint64_t u = 0;
    unsigned bits = dtype_bits(d);
    for (size_t k = dtype_bytes(d); k-- > 0;) u = u << 8 | p[k];
    if (dtype_class(d) == DTC_BOOL) return u != 0;
    if (bits < 64) u &= (UINT64_C(1) << bits) - 1;
    if (dtype_class(d) == DTC_SINT && bits < 64 && u >> (bits - 1) & 1) u |= ~UINT64_C(0) << bits;
    int64_t v;
    memcpy(&v, &u, sizeof v);
    return v;
}

bool ir_const_get_int(const struct ir_const *c, int64_t i, int64_t *out)
{
    const unsigned char *p = element(c, i);
    if (!p) return false;
    if (dtype_is_float(c->type.dtype)) {
        double v = float_decode(c->type.dtype, p);
        if (!(v >= -9223372036854775808.0 && v < 9223372036854775808.0)) return false;
        *out = (int64_t)v;
        return true;
    }
    *out = load_int(c->type.dtype, p);
    return true;
}

bool ir_const_get_float(const struct ir_const *c, int64_t i, double *out)
{
    const unsigned char *p = element(c, i);
    if (!p) return false;
    if (dtype_is_float(c->type.dtype)) {
        *out = float_decode(c->type.dtype, p);
    } else {
        int64_t v = load_int(c->type.dtype, p);
        *out = c->type.dtype == DT_U64 ? (double)(uint64_t)v : (double)v;
    }
    return true;
}
