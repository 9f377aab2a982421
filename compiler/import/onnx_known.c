// SPDX-License-Identifier: Apache-2.0
/*
 * Symbolic evaluation of small tensors, on core ops. ONNX models compute shapes with ordinary nodes
 * (Shape, Gather, Concat, Div, Floor ...); following those computations over symbolic dims is what
 * turns the second operand of Reshape, Expand, Slice, Resize and so on into dims again.
 *
 * An element is an exact rational num/den of symbolic dims, so that "floor(height * 0.5)" becomes
 * floordiv(height, 2). The result hangs on ir_value.aux. It is computed when the value is made
 * (known_visit), operands first, so that no recursion is needed however long a chain is.
 */
#include <math.h>
#include <string.h>

#include "compiler/import/onnx_int.h"

static const struct known nothing; /* aux of a value that was looked at in vain */

struct look {
    struct imp *im;
    struct dim_ctx *d;
    const struct ir_op *op;
    const struct ir_type *type; /* of the result */
    int64_t dims[IR_MAX_RANK], n;
};

static bool static_dims(const struct ir_type *t, int64_t *dims, int64_t *n)
{
    if (!ir_type_static_elems(t, n) || *n > KNOWN_MAX) return false;
    for (int i = 0; i < t->rank; i++) dims[i] = t->dims[i]->value;
    return true;
}

static struct known *make(struct look *l)
{
    struct known *k = arena_alloc(&l->im->m->arena, sizeof *k + (size_t)l->n * sizeof k->e[0]);
    k->n = (int)l->n;
    return k;
}

static const struct known *operand(const struct look *l, int i)
{
    struct ir_value *v = ir_operand(l->op, i);
    return v && v->aux && v->aux != (const void *)&nothing ? v->aux : NULL;
}

static struct kelem whole(const struct dim *d)
{
    return (struct kelem){d && d->kind != DIM_OVERFLOW ? d : NULL, NULL};
}

static bool is_const(struct kelem e, int64_t *v)
{
    if (!e.num || e.den || !dim_is_const(e.num)) return false;
    *v = e.num->value;
    return true;
}

bool known_rational(double f, int64_t *num, int64_t *den)
{
    /* Continued fraction: the simplest rational that rounds to the same float. */
    double x = fabs(f);
    if (!(x < 1e9)) return false;
    int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
    double rest = x;
    for (int i = 0; i < 24; i++) {
        double whole_part = floor(rest);
        if (whole_part > 1e9) return false;
        int64_t a = (int64_t)whole_part, p2 = a * p1 + p0, q2 = a * q1 + q0;
        if (q2 > 1 << 20 || p2 > (int64_t)1 << 40) return false;
        p0 = p1, q0 = q1, p1 = p2, q1 = q2;
        double close = (double)p1 / (double)q1;
        if (close == x || (float)close == (float)x) {
            *num = f < 0 ? -p1 : p1;
            *den = q1;
            return true;
        }
        rest = 1.0 / (rest - whole_part);
    }
    return false;
}

static struct kelem of_float(struct dim_ctx *d, double f)
{
    int64_t p, q;
    if (!known_rational(f, &p, &q)) return (struct kelem){0};
    return (struct kelem){dim_const(d, p), q == 1 ? NULL : dim_const(d, q)};
}

static struct known *from_constant(struct look *l)
{
    const struct ir_const *c = ir_attr_const(l->op, "value");
    struct known *k = make(l);
    for (int64_t i = 0; i < l->n; i++) {
        int64_t v;
        double f;
        if (dtype_is_float(c->type.dtype)) {
            if (ir_const_get_float(c, i, &f)) k->e[i] = of_float(l->d, f);
        } else if (ir_const_get_int(c, i, &v)) {
            k->e[i] = whole(dim_const(l->d, v));
        }
    }
    return k;
}

/* ---- arithmetic on single elements ---- */

static struct kelem ratio(struct dim_ctx *d, const struct dim *num, const struct dim *den)
{
    if (num->kind == DIM_OVERFLOW || den->kind == DIM_OVERFLOW) return (struct kelem){0};
    if (dim_is(den, 1)) return whole(num);
    const struct dim *q = dim_is(den, 0) ? NULL : dim_exact_div(d, num, den);
    return q ? whole(q) : (struct kelem){num, den};
}

static const struct dim *den_of(struct dim_ctx *d, struct kelem e)
{
    return e.den ? e.den : dim_const(d, 1);
}

static struct kelem add(struct dim_ctx *d, struct kelem a, struct kelem b, int sign)
{
    const struct dim *da = den_of(d, a), *db = den_of(d, b), *y = dim_mulc(d, b.num, sign);
    if (da == db) return ratio(d, dim_add(d, a.num, y), da);
    return ratio(d, dim_add(d, dim_mul(d, a.num, db), dim_mul(d, y, da)), dim_mul(d, da, db));
}

static struct kelem divide(struct dim_ctx *d, struct kelem a, struct kelem b, bool floats)
{
    int64_t x, y;
    if (floats) {
        if (b.num->lo < 1) return (struct kelem){0};
        return ratio(d, dim_mul(d, a.num, den_of(d, b)), dim_mul(d, den_of(d, a), b.num));
    }
    if (is_const(a, &x) && is_const(b, &y)) /* truncates */
        return y == 0 || (x == INT64_MIN && y == -1) ? (struct kelem){0}
                                                     : whole(dim_const(d, x / y));
    if (dim_is(b.num, 0)) return (struct kelem){0};
    const struct dim *q = dim_exact_div(d, a.num, b.num);
    if (q) return whole(q);
    return a.num->lo >= 0 && b.num->lo >= 1 ? whole(dim_floordiv(d, a.num, b.num))
                                            : (struct kelem){0};
}

static struct kelem remainder_of(struct dim_ctx *d, struct kelem a, struct kelem b, bool floored)
{
    int64_t x, y;
    if (is_const(a, &x) && is_const(b, &y)) {
        if (y == 0 || y == -1) return whole(dim_const(d, 0));
        int64_t r = x % y;
        if (floored && r && (r < 0) != (y < 0)) r += y;
        return whole(dim_const(d, r));
    }
    if (b.num->lo < 1 || (!floored && a.num->lo < 0)) return (struct kelem){0};
    return whole(dim_mod(d, a.num, b.num));
}

/* 1 true, 0 false, -1 not provable. Denominators are positive by construction. */
static int compare(struct dim_ctx *d, enum ir_opcode op, struct kelem a, struct kelem b)
{
    const struct dim *x = a.num, *y = b.num;
    if (a.den || b.den) x = dim_mul(d, a.num, den_of(d, b)), y = dim_mul(d, b.num, den_of(d, a));
    switch (op) {
    case IR_OP_EQ: return x == y ? 1 : dim_known_ne(d, x, y) ? 0 : -1;
    case IR_OP_NE: return x == y ? 0 : dim_known_ne(d, x, y) ? 1 : -1;
    case IR_OP_GT: return compare(d, IR_OP_LT, b, a);
    case IR_OP_GE: return compare(d, IR_OP_LE, b, a);
    case IR_OP_LT:
        return dim_known_le(d, dim_addc(d, x, 1), y) ? 1 : dim_known_le(d, y, x) ? 0 : -1;
    default: return dim_known_le(d, x, y) ? 1 : dim_known_le(d, dim_addc(d, y, 1), x) ? 0 : -1;
    }
}

static struct kelem logic(struct dim_ctx *d, enum ir_opcode op, struct kelem a, struct kelem b,
                          bool is_bool)
{
    int64_t x, y;
    if (!is_const(a, &x) || !is_const(b, &y)) {
        bool zero = (is_const(a, &x) && x == 0) || (is_const(b, &y) && y == 0);
        return op == IR_OP_AND && zero ? whole(dim_const(d, 0)) : (struct kelem){0};
    }
    (void)is_bool;
    return whole(dim_const(d, op == IR_OP_AND ? x & y : op == IR_OP_OR ? x | y : x ^ y));
}

static struct kelem binary(struct look *l, struct kelem a, struct kelem b)
{
    enum ir_opcode op = l->op->code;
    struct dim_ctx *d = l->d;
    enum dtype dt = ir_operand(l->op, 0)->type.dtype;
    if (op == IR_OP_AND || op == IR_OP_OR || op == IR_OP_XOR) {
        if (!a.num || !b.num) return (struct kelem){0};
        return logic(d, op, a, b, dt == DT_BOOL);
    }
    if (!a.num || !b.num) return (struct kelem){0};
    switch (op) {
    case IR_OP_ADD: return add(d, a, b, 1);
    case IR_OP_SUB: return add(d, a, b, -1);
    case IR_OP_MUL:
        return ratio(d, dim_mul(d, a.num, b.num), dim_mul(d, den_of(d, a), den_of(d, b)));
    case IR_OP_DIV: return divide(d, a, b, dtype_is_float(dt));
    case IR_OP_MOD:
    case IR_OP_REM:
        return a.den || b.den ? (struct kelem){0} : remainder_of(d, a, b, op == IR_OP_MOD);
    case IR_OP_MIN:
    case IR_OP_MAX:
        if (den_of(d, a) != den_of(d, b)) return (struct kelem){0};
        return ratio(d, op == IR_OP_MIN ? dim_min(d, a.num, b.num) : dim_max(d, a.num, b.num),
                     den_of(d, a));
    case IR_OP_EQ:
    case IR_OP_NE:
    case IR_OP_LT:
    case IR_OP_LE:
    case IR_OP_GT:
    case IR_OP_GE: {
        int r = compare(d, op, a, b);
        return r < 0 ? (struct kelem){0} : whole(dim_const(d, r));
    }
    default: return (struct kelem){0};
    }
}

static bool fits(enum dtype t, int64_t v)
{
    unsigned bits = dtype_bits(t);
    if (bits >= 64) return t != DT_U64 || v >= 0;
    int64_t half = (int64_t)1 << (bits - 1);
    return dtype_class(t) == DTC_SINT ? v >= -half && v < half : v >= 0 && v < 2 * half;
}

static struct kelem cast(struct look *l, struct kelem a)
{
    enum dtype to = l->type->dtype;
    int64_t v;
    if (!a.num || dtype_is_float(to)) return a;
    if (to == DT_BOOL) {
        if (a.num->lo >= 1 || a.num->hi <= -1) return whole(dim_const(l->d, 1));
        return dim_is(a.num, 0) ? a : (struct kelem){0};
    }
    if (a.den) {
        if (dim_is_const(a.num) && dim_is_const(a.den))
            a = whole(dim_const(l->d, a.num->value / a.den->value));
        else if (a.num->lo >= 0 && a.den->lo >= 1) a = whole(dim_floordiv(l->d, a.num, a.den));
        else return (struct kelem){0};
    }
    if (is_const(a, &v) && !fits(to, v)) return (struct kelem){0};
    return a;
}

static struct kelem unary(struct look *l, struct kelem a)
{
    struct dim_ctx *d = l->d;
    int64_t v;
    if (!a.num) return a;
    switch (l->op->code) {
    case IR_OP_NEG: return (struct kelem){dim_mulc(d, a.num, -1), a.den};
    case IR_OP_ABS:
        return a.num->lo >= 0   ? a
               : a.num->hi <= 0 ? (struct kelem){dim_mulc(d, a.num, -1), a.den}
                                : (struct kelem){0};
    case IR_OP_SIGN: return a.num->lo >= 1 ? whole(dim_const(d, 1)) : (struct kelem){0};
    case IR_OP_FLOOR:
        return !a.den           ? a
               : a.den->lo >= 1 ? whole(dim_floordiv(d, a.num, a.den))
                                : (struct kelem){0};
    case IR_OP_CEIL:
        return !a.den           ? a
               : a.den->lo >= 1 ? whole(dim_ceildiv(d, a.num, a.den))
                                : (struct kelem){0};
    case IR_OP_ROUND: return a.den ? (struct kelem){0} : a;
    case IR_OP_NOT:
        if (l->type->dtype != DT_BOOL || !is_const(a, &v)) return (struct kelem){0};
        return whole(dim_const(d, !v));
    case IR_OP_CAST: return cast(l, a);
    default: return (struct kelem){0};
    }
}

/* ---- element mapping ---- */

/* Coordinates of flat index i. */
static void coords(const int64_t *dims, int rank, int64_t i, int64_t *c)
{
    for (int a = rank - 1; a >= 0; a--) {
        c[a] = dims[a] ? i % dims[a] : 0;
        i = dims[a] ? i / dims[a] : 0;
    }
}

/* Flat index into an operand of type t of (right-aligned, broadcast) coordinates; -1 when its dims
 * are not static. */
static int64_t broadcast_index(const struct ir_type *t, const int64_t *c, int rank)
{
    int64_t at = 0;
    for (int a = 0; a < t->rank; a++) {
        if (!dim_is_const(t->dims[a])) return -1;
        int64_t size = t->dims[a]->value;
        at = at * size + (size == 1 ? 0 : c[rank - t->rank + a]);
    }
    return at;
}

static struct kelem element(const struct look *l, int operand_index, const int64_t *c)
{
    const struct known *k = operand(l, operand_index);
    if (!k) return (struct kelem){0};
    int64_t at = broadcast_index(&ir_operand(l->op, operand_index)->type, c, l->type->rank);
    return at < 0 || at >= k->n ? (struct kelem){0} : k->e[at];
}

static struct kelem select(struct look *l, const int64_t *c)
{
    struct kelem cond = element(l, 0, c), a = element(l, 1, c), b = element(l, 2, c);
    int64_t v;
    if (is_const(cond, &v)) return v ? a : b;
    return a.num && a.num == b.num && a.den == b.den ? a : (struct kelem){0};
}

static struct known *pointwise(struct look *l)
{
    if (!operand(l, 0) && !operand(l, 1) && !operand(l, 2)) return NULL;
    struct known *k = make(l);
    for (int64_t i = 0; i < l->n; i++) {
        int64_t c[IR_MAX_RANK];
        coords(l->dims, l->type->rank, i, c);
        if (l->op->code == IR_OP_SELECT) k->e[i] = select(l, c);
        else if (l->op->n_operands == 2) k->e[i] = binary(l, element(l, 0, c), element(l, 1, c));
        else k->e[i] = unary(l, element(l, 0, c));
    }
    return k;
}

static struct kelem at_coords(const struct known *k, const struct ir_type *t, const int64_t *c)
{
    int64_t at = broadcast_index(t, c, t->rank);
    return at < 0 || at >= k->n ? (struct kelem){0} : k->e[at];
}

static struct known *moved(struct look *l)
{
    const struct known *x = operand(l, 0);
    if (!x) return NULL;
    const struct ir_type *t = &ir_operand(l->op, 0)->type;
    int count;
    const int64_t *perm = ir_attr_ints(l->op, "perm", &count),
                  *steps = ir_attr_ints(l->op, "steps", &count);
    const struct dim *const *starts = ir_attr_dims(l->op, "starts", &count);
    struct known *k = make(l);
    for (int64_t i = 0; i < l->n; i++) {
        int64_t c[IR_MAX_RANK], s[IR_MAX_RANK] = {0};
        bool ok = true;
        coords(l->dims, l->type->rank, i, c);
        switch (l->op->code) {
        case IR_OP_RESHAPE: k->e[i] = i < x->n ? x->e[i] : (struct kelem){0}; continue;
        case IR_OP_BROADCAST: k->e[i] = element(l, 0, c); continue;
        case IR_OP_TRANSPOSE:
            for (int a = 0; a < t->rank; a++) s[perm[a]] = c[a];
            break;
        default:
            for (int a = 0; a < t->rank; a++) {
                ok = ok && dim_is_const(starts[a]) && dim_is_const(t->dims[a]);
                if (ok)
                    s[a] = starts[a]->value + c[a] * steps[a],
                    ok = s[a] >= 0 && s[a] < t->dims[a]->value;
            }
        }
        k->e[i] = ok ? at_coords(x, t, s) : (struct kelem){0};
    }
    return k;
}

static struct known *concat(struct look *l)
{
    int axis = (int)ir_attr_int(l->op, "axis", 0);
    struct known *k = make(l);
    for (int64_t i = 0; i < l->n; i++) {
        int64_t c[IR_MAX_RANK];
        coords(l->dims, l->type->rank, i, c);
        for (int o = 0; o < l->op->n_operands; o++) {
            const struct ir_type *t = &ir_operand(l->op, o)->type;
            const struct known *x = operand(l, o);
            if (!dim_is_const(t->dims[axis])) break;
            if (c[axis] >= t->dims[axis]->value) {
                c[axis] -= t->dims[axis]->value;
                continue;
            }
            if (x) k->e[i] = at_coords(x, t, c);
            break;
        }
    }
    return k;
}

static struct known *gather(struct look *l)
{
    const struct known *x = operand(l, 0), *ix = operand(l, 1);
    if (!x || !ix) return NULL;
    const struct ir_type *t = &ir_operand(l->op, 0)->type, *it = &ir_operand(l->op, 1)->type;
    int axis = (int)ir_attr_int(l->op, "axis", 0);
    if (!dim_is_const(t->dims[axis])) return NULL;
    int64_t size = t->dims[axis]->value;
    struct known *k = make(l);
    for (int64_t i = 0; i < l->n; i++) {
        int64_t c[IR_MAX_RANK], s[IR_MAX_RANK] = {0}, v;
        coords(l->dims, l->type->rank, i, c);
        if (!is_const(at_coords(ix, it, c + axis), &v)) continue;
        if (v < 0) v += size;
        if (v < 0 || v >= size) continue;
        for (int a = 0; a < t->rank; a++)
            s[a] = a < axis ? c[a] : a == axis ? v : c[a - 1 + it->rank];
        k->e[i] = at_coords(x, t, s);
    }
    return k;
}

static struct known *reduce(struct look *l)
{
    const struct known *x = operand(l, 0);
    const struct ir_type *t = &ir_operand(l->op, 0)->type;
    int64_t in_dims[IR_MAX_RANK], n;
    if (!x || !static_dims(t, in_dims, &n)) return NULL;
    int n_axes;
    const int64_t *axes = ir_attr_ints(l->op, "axes", &n_axes);
    bool keep = ir_attr_int(l->op, "keepdims", 0);
    struct known *k = make(l);
    bool seen[KNOWN_MAX] = {0};
    int64_t unit = l->op->code == IR_OP_REDUCE_PROD;
    for (int64_t i = 0; i < n; i++) {
        int64_t c[IR_MAX_RANK], at = 0;
        coords(in_dims, t->rank, i, c);
        for (int a = 0, r = 0; a < t->rank; a++) {
            bool reduced = false;
            for (int j = 0; j < n_axes; j++) reduced = reduced || axes[j] == a;
            if (reduced && !keep) continue;
            at = at * l->dims[r++] + (reduced ? 0 : c[a]);
        }
        struct kelem e = x->e[i], *acc = &k->e[at];
        if (!seen[at]) *acc = e;
        else if (!acc->num || !e.num || e.den || acc->den) *acc = (struct kelem){0};
        else if (l->op->code == IR_OP_REDUCE_SUM) *acc = whole(dim_add(l->d, acc->num, e.num));
        else if (l->op->code == IR_OP_REDUCE_PROD) *acc = whole(dim_mul(l->d, acc->num, e.num));
        else if (l->op->code == IR_OP_REDUCE_MIN) *acc = whole(dim_min(l->d, acc->num, e.num));
        else *acc = whole(dim_max(l->d, acc->num, e.num));
        seen[at] = true;
    }
    bool sums = l->op->code == IR_OP_REDUCE_SUM || l->op->code == IR_OP_REDUCE_PROD;
    for (int64_t i = 0; i < l->n; i++)
        if (!seen[i] && sums) k->e[i] = whole(dim_const(l->d, unit));
    return k;
}

static struct known *source(struct look *l)
{
    int count;
    const struct dim *const *dims = ir_attr_dims(l->op, "dims", &count);
    struct known *k = make(l);
    int axis = (int)ir_attr_int(l->op, "axis", 0);
    for (int64_t i = 0; i < l->n; i++) {
        int64_t c[IR_MAX_RANK];
        coords(l->dims, l->type->rank, i, c);
        k->e[i] = whole(l->op->code == IR_OP_DIMVEC ? dims[i] : dim_const(l->d, c[axis]));
    }
    return k;
}

static struct known *look_at(struct look *l)
{
    switch (l->op->code) {
    case IR_OP_CONSTANT: return from_constant(l);
    case IR_OP_DIMVEC:
    case IR_OP_IOTA: return source(l);
    case IR_OP_RESHAPE:
    case IR_OP_TRANSPOSE:
    case IR_OP_BROADCAST:
    case IR_OP_SLICE: return moved(l);
    case IR_OP_CONCAT: return concat(l);
    case IR_OP_GATHER: return gather(l);
    case IR_OP_REDUCE_SUM:
    case IR_OP_REDUCE_PROD:
    case IR_OP_REDUCE_MIN:
    case IR_OP_REDUCE_MAX: return reduce(l);
    case IR_OP_BITCAST:
    case IR_OP_POW: return NULL;
    default: return ir_op_traits(l->op) & IR_T_PW ? pointwise(l) : NULL;
    }
}

void known_visit(struct imp *im, struct ir_value *v)
{
    if (v->aux) return;
    v->aux = (void *)(uintptr_t)&nothing;
    struct look l = {.im = im, .d = im->m->dims, .op = v->def, .type = &v->type};
    if (!v->def || v->def->n_results != 1 || v->type.dtype == DT_STRING) return;
    if (!static_dims(&v->type, l.dims, &l.n)) return;
    struct known *k = look_at(&l);
    for (int i = 0; k && i < k->n; i++)
        if (k->e[i].num) {
            v->aux = k;
            break;
        }
}

/* Values made in the running handler are not visited yet; the chains that handlers make are short.
 */
static void visit_deep(struct imp *im, struct ir_value *v, int depth)
{
    if (v->aux || depth == 0) return;
    for (int i = 0; v->def && i < v->def->n_operands; i++)
        if (ir_operand(v->def, i)) visit_deep(im, ir_operand(v->def, i), depth - 1);
    known_visit(im, v);
}

const struct known *known_of(struct imp *im, struct ir_value *v)
{
    visit_deep(im, v, 16);
    return v->aux == (const void *)&nothing ? NULL : v->aux;
}

static bool all_whole(const struct known *k)
{
    for (int i = 0; i < k->n; i++)
        if (!k->e[i].num || k->e[i].den) return false;
    return true;
}

struct ir_value *known_materialise(struct imp *im, struct ir_builder *b, struct ir_value *v)
{
    enum dtype dt = v->type.dtype;
    if (!v->def || v->def->code == IR_OP_CONSTANT || v->def->code == IR_OP_DIMVEC) return v;
    if (!dtype_is_int(dt) && dt != DT_BOOL) return v;
    const struct known *k = known_of(im, v);
    if (!k || k->n == 0 || !all_whole(k)) return v;
    bool constant = true;
    const struct dim **dims = ARENA_ARRAY(&im->m->arena, const struct dim *, k->n);
    for (int i = 0; i < k->n; i++) {
        dims[i] = k->e[i].num;
        constant = constant && dim_is_const(dims[i]);
    }
    struct ir_value *out;
    if (constant) {
        size_t bytes = dtype_bytes(dt);
        uint8_t *data = arena_calloc(&im->m->arena, (size_t)k->n, bytes);
        for (int i = 0; i < k->n; i++) memcpy(data + (size_t)i * bytes, &dims[i]->value, bytes);
        out = ir_build_constant(
            b, ir_const_make(im->m, "", v->type, data, (size_t)k->n * bytes, false));
    } else {
        out = ir_build_dimvec(b, k->n, dims, k->n == 1 && v->type.rank == 0);
        if (v->type.rank > 1) out = ir_build_reshape(b, out, v->type.rank, v->type.dims);
        out = out ? ir_build_cast(b, out, dt) : NULL;
    }
    if (!out) return v;
    out->aux = v->aux;
    return out;
}
