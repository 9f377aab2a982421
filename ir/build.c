// SPDX-License-Identifier: Apache-2.0
#include "ir/build.h"

#include "ir/smallfloat.h"

struct ir_op *ir_build(struct ir_builder *b, enum ir_opcode code, int n_operands,
                       struct ir_value *const *operands, int n_attrs, const struct ir_attr *attrs,
                       int n_results)
{
    const struct ir_op_info *info = ir_op_info(code);
    const char *loc = b->loc ? b->loc->text : NULL;
    if (n_operands < info->min_operands ||
        (info->max_operands >= 0 && n_operands > info->max_operands)) {
        diag_report(b->m->diag, DIAG_IR_VERIFY, loc, "%s takes %d to %d operands, not %d",
                    info->name, info->min_operands, info->max_operands, n_operands);
        return NULL;
    }
    /* A variadic op (concat, return) has no optional operand: all must be there. */
    int required = info->max_operands < 0 ? n_operands : info->min_operands;
    for (int i = 0; i < required; i++)
        if (!operands[i]) return NULL;
    if (n_results < 0) n_results = info->n_results < 0 ? 0 : info->n_results;
    if (info->n_results >= 0 && n_results != info->n_results) {
        diag_report(b->m->diag, DIAG_IR_VERIFY, loc, "%s has %d results, not %d", info->name,
                    info->n_results, n_results);
        return NULL;
    }
    struct ir_op *op = ir_op_create(b->m, code, n_operands, operands, n_results, b->loc);
    for (int i = 0; i < n_attrs; i++) ir_op_set_attr(b->m, op, attrs[i]);
    if (!info->infer(b->m, op)) {
        ir_op_erase(op); /* off its operands' use lists */
        return NULL;
    }
    if (b->before) ir_block_insert_before(b->before, op);
    else ir_block_append(b->block, op);
    return op;
}

static struct ir_value *first_result(struct ir_op *op) { return op ? ir_result(op, 0) : NULL; }

static struct ir_value *build1(struct ir_builder *b, enum ir_opcode code, struct ir_value *x,
                               int n_attrs, const struct ir_attr *attrs)
{
    return first_result(ir_build(b, code, 1, &x, n_attrs, attrs, -1));
}

struct ir_value *ir_build_unary(struct ir_builder *b, enum ir_opcode code, struct ir_value *x)
{
    return build1(b, code, x, 0, NULL);
}

struct ir_value *ir_build_binary(struct ir_builder *b, enum ir_opcode code, struct ir_value *x,
                                 struct ir_value *y)
{
    struct ir_value *operands[2] = {x, y};
    return first_result(ir_build(b, code, 2, operands, 0, NULL, -1));
}

struct ir_value *ir_build_select(struct ir_builder *b, struct ir_value *c, struct ir_value *x,
                                 struct ir_value *y)
{
    struct ir_value *operands[3] = {c, x, y};
    return first_result(ir_build(b, IR_OP_SELECT, 3, operands, 0, NULL, -1));
}

struct ir_value *ir_build_cast(struct ir_builder *b, struct ir_value *x, enum dtype to)
{
    if (!x || x->type.dtype == to) return x;
    struct ir_attr a = ir_a_dtype("to", to);
    return build1(b, IR_OP_CAST, x, 1, &a);
}

struct ir_value *ir_build_constant(struct ir_builder *b, struct ir_const *c)
{
    if (!c) return NULL;
    struct ir_attr a = ir_a_const("value", c);
    return first_result(ir_build(b, IR_OP_CONSTANT, 0, NULL, 1, &a, -1));
}

/* Low bytes of v, little end first, sign or zero extended by the caller. */
static void store_int(enum dtype dtype, int64_t v, unsigned char *p)
{
    unsigned bits = dtype_bits(dtype);
    uint64_t u = (uint64_t)v;
    if (dtype == DT_BOOL) u = v != 0;
    if (bits < 8 && dtype_class(dtype) == DTC_UINT) u &= (1u << bits) - 1;
    if (bits < 8 && dtype_class(dtype) == DTC_SINT) {
        u &= (1u << bits) - 1;
        if (u >> (bits - 1) & 1) u |= ~UINT64_C(0) << bits;
    }
    for (size_t i = 0; i < dtype_bytes(dtype); i++) p[i] = (unsigned char)(u >> (8 * i));
}

static struct ir_value *build_scalar(struct ir_builder *b, enum dtype dtype,
                                     const unsigned char *bytes)
{
    size_t n = dtype_bytes(dtype);
    struct ir_type type = ir_type_make(b->m, dtype, 0, NULL);
    const void *data = arena_dup(&b->m->arena, bytes, n);
    return ir_build_constant(b, ir_const_make(b->m, NULL, type, data, n, false));
}

/* False for types without numbers, with a diagnostic. */
static bool check_number(struct ir_builder *b, enum dtype dtype)
{
    if (dtype_bytes(dtype) > 0) return true;
    return diag_report(b->m->diag, DIAG_DTYPE_UNSUPPORTED, b->loc ? b->loc->text : NULL,
                       "a %s scalar cannot hold a number", dtype_name(dtype));
}

struct ir_value *ir_build_scalar_i(struct ir_builder *b, enum dtype dtype, int64_t v)
{
    unsigned char bytes[8];
    if (!check_number(b, dtype)) return NULL;
    if (dtype_is_float(dtype)) float_encode(dtype, (double)v, false, bytes);
    else store_int(dtype, v, bytes);
    return build_scalar(b, dtype, bytes);
}

struct ir_value *ir_build_scalar_f(struct ir_builder *b, enum dtype dtype, double v)
{
    unsigned char bytes[8];
    if (!check_number(b, dtype)) return NULL;
    if (dtype_is_float(dtype)) {
        float_encode(dtype, v, false, bytes);
        return build_scalar(b, dtype, bytes);
    }
    if (dtype == DT_BOOL) return ir_build_scalar_i(b, dtype, v != 0);
    if (dtype == DT_U64 && v >= 9223372036854775808.0 && v < 18446744073709551616.0)
        return ir_build_scalar_i(b, dtype, (int64_t)(uint64_t)v);
    bool fits = v >= -9223372036854775808.0 && v < 9223372036854775808.0; /* false for NaN, too */
    return ir_build_scalar_i(b, dtype, fits ? (int64_t)v : 0);
}

struct ir_value *ir_build_ints(struct ir_builder *b, int n, const int64_t *v)
{
    int64_t dim = n;
    struct ir_type type = ir_type_static(b->m, DT_I64, 1, &dim);
    const void *data = arena_dup(&b->m->arena, v, (size_t)n * sizeof *v);
    return ir_build_constant(b,
                             ir_const_make(b->m, NULL, type, data, (size_t)n * sizeof *v, false));
}

struct ir_value *ir_build_dimvec(struct ir_builder *b, int n, const struct dim *const *dims,
                                 bool scalar)
{
    struct ir_attr a[2] = {ir_a_dims("dims", n, dims), ir_a_int("scalar", 1)};
    return first_result(ir_build(b, IR_OP_DIMVEC, 0, NULL, scalar ? 2 : 1, a, -1));
}

struct ir_value *ir_build_iota(struct ir_builder *b, enum dtype dtype, int rank,
                               const struct dim *const *dims, int axis)
{
    struct ir_attr a[3] = {ir_a_dims("dims", rank, dims), ir_a_dtype("type", dtype),
                           ir_a_int("axis", axis)};
    return first_result(ir_build(b, IR_OP_IOTA, 0, NULL, 3, a, -1));
}

struct ir_value *ir_build_reshape(struct ir_builder *b, struct ir_value *x, int rank,
                                  const struct dim *const *dims)
{
    struct ir_attr a = ir_a_dims("dims", rank, dims);
    return build1(b, IR_OP_RESHAPE, x, 1, &a);
}

struct ir_value *ir_build_transpose(struct ir_builder *b, struct ir_value *x, const int64_t *perm)
{
    if (!x) return NULL;
    struct ir_attr a = ir_a_ints("perm", x->type.rank, perm);
    return build1(b, IR_OP_TRANSPOSE, x, 1, &a);
}

struct ir_value *ir_build_broadcast(struct ir_builder *b, struct ir_value *x, int rank,
                                    const struct dim *const *dims)
{
    struct ir_attr a = ir_a_dims("dims", rank, dims);
    return build1(b, IR_OP_BROADCAST, x, 1, &a);
}

struct ir_value *ir_build_slice(struct ir_builder *b, struct ir_value *x,
                                const struct dim *const *starts, const int64_t *steps,
                                const struct dim *const *sizes)
{
    if (!x) return NULL;
    int rank = x->type.rank;
    struct ir_attr a[3] = {ir_a_dims("starts", rank, starts), ir_a_ints("steps", rank, steps),
                           ir_a_dims("sizes", rank, sizes)};
    return build1(b, IR_OP_SLICE, x, 3, a);
}

struct ir_value *ir_build_concat(struct ir_builder *b, int n, struct ir_value *const *xs, int axis)
{
    struct ir_attr a = ir_a_int("axis", axis);
    return first_result(ir_build(b, IR_OP_CONCAT, n, xs, 1, &a, -1));
}

struct ir_value *ir_build_gather(struct ir_builder *b, struct ir_value *x, struct ir_value *indices,
                                 int axis)
{
    struct ir_value *operands[2] = {x, indices};
    struct ir_attr a = ir_a_int("axis", axis);
    return first_result(ir_build(b, IR_OP_GATHER, 2, operands, 1, &a, -1));
}

struct ir_value *ir_build_reduce(struct ir_builder *b, enum ir_opcode code, struct ir_value *x,
                                 int n_axes, const int64_t *axes, bool keepdims)
{
    struct ir_attr a[2] = {ir_a_ints("axes", n_axes, axes), ir_a_int("keepdims", keepdims)};
    return build1(b, code, x, 2, a);
}

struct ir_value *ir_build_matmul(struct ir_builder *b, struct ir_value *x, struct ir_value *y,
                                 bool trans_a, bool trans_b, enum dtype acc)
{
    struct ir_value *operands[2] = {x, y};
    struct ir_attr a[3];
    int n = 0;
    if (trans_a) a[n++] = ir_a_int("trans_a", 1);
    if (trans_b) a[n++] = ir_a_int("trans_b", 1);
    if (acc != DT_NONE) a[n++] = ir_a_dtype("acc", acc);
    return first_result(ir_build(b, IR_OP_MATMUL, 2, operands, n, a, -1));
}

static bool leads_with(const struct ir_block *block, const struct ir_check *c)
{
    for (const struct ir_op *op = block->first; op && op->code == IR_OP_CHECK; op = op->next) {
        int n;
        const struct dim *a = ir_attr_dims(op, "a", &n)[0], *b = ir_attr_dims(op, "b", &n)[0];
        if (a == c->a && b == c->b && (ir_attr_int(op, "is_le", 0) != 0) == c->is_le) return true;
    }
    return false;
}

void ir_build_branch_checks(struct ir_builder *b, size_t first)
{
    struct ir_builder front = *b;
    front.before = b->block->first;
    for (size_t i = first; i < b->m->checks.n; i++) {
        const struct ir_check *c = &b->m->checks.v[i];
        struct ir_attr a[4] = {ir_a_dims("a", 1, &c->a), ir_a_dims("b", 1, &c->b),
                               ir_a_int("is_le", c->is_le), ir_a_string("message", c->message)};
        if (!leads_with(b->block, c)) ir_build(&front, IR_OP_CHECK, 0, NULL, 4, a, 0);
    }
    b->m->checks.n = first;
}
