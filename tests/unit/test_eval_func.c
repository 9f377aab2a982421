// SPDX-License-Identifier: Apache-2.0
/* The driver: symbols, checks, regions, constants, shared buffers, errors. */
#include "ir/text.h"
#include "tests/unit/test_eval.h"

/* Appends an op with a result of the given type. */
static struct ir_value *append(struct ir_block *b, enum ir_opcode code, struct ir_type type, int n, struct ir_value *const *operands)
{
    struct ir_op *op = ir_op_create(g_m, code, n, operands, 1, NULL);
    op->results[0].type = type;
    ir_block_append(b, op);
    return &op->results[0];
}

static void end(struct ir_block *b, int n, struct ir_value *const *operands)
{
    ir_block_append(b, ir_op_create(g_m, IR_OP_YIELD, n, operands, 0, NULL));
}

static struct ir_value *constant(struct ir_block *b, struct ir_type type, const void *data, size_t n_bytes, bool splat)
{
    struct ir_value *v = append(b, IR_OP_CONSTANT, type, 0, NULL);
    ir_op_set_attr(g_m, v->def, ir_a_const("value", ir_const_make(g_m, "k", type, data, n_bytes, splat)));
    return v;
}

static void assert_values(const struct ir_tensor *t, struct ir_tensor want)
{
    assert_int_equal(t->dtype, want.dtype);
    assert_int_equal(t->rank, want.rank);
    for (int i = 0; i < want.rank; i++) assert_int_equal(t->dims[i], want.dims[i]);
    assert_int_equal(t->n_bytes, want.n_bytes);
    assert_memory_equal(t->data, want.data, want.n_bytes);
}

/* f(x: f32[n, 2 m], y: f32[m]) = reshape(x, [2 n m]) + 1, y */
static struct ir_func *symbolic(void)
{
    const struct dim *n = dim_sym(g_m->dims, "n", 1, 8), *m = dim_sym(g_m->dims, "m", 0, 100);
    const struct dim *nm = dim_mulc(g_m->dims, dim_mul(g_m->dims, n, m), 2);
    const struct dim *xd[] = {n, dim_mulc(g_m->dims, m, 2)};
    static const float one = 1;
    struct ir_func *f = ir_func_create(g_m, "main");
    struct ir_value *x = ir_func_add_input(f, "x", ir_type_make(g_m, DT_F32, 2, xd));
    struct ir_value *y = ir_func_add_input(f, "y", ir_type_make(g_m, DT_F32, 1, &m));
    struct ir_type flat = ir_type_make(g_m, DT_F32, 1, &nm);
    struct ir_value *r = append(f->body, IR_OP_RESHAPE, flat, 1, &x);
    ir_op_set_attr(g_m, r->def, ir_a_dims("dims", 1, &nm));
    struct ir_value *k = constant(f->body, ir_type_static(g_m, DT_F32, 0, NULL), &one, sizeof one, false);
    struct ir_value *s = append(f->body, IR_OP_ADD, flat, 2, (struct ir_value *[]){r, k});
    append(f->body, IR_OP_NEG, flat, 1, &s); /* result unused */
    ir_func_set_outputs(f, 2, (struct ir_value *[]){s, y}, (const char *[]){"s", "y"});
    return f;
}

struct looks {
    int n, base[4];
    float first[4];
};

/* Puts 10 times the number there. */
static void look(void *ctx, int number, int base, struct ir_tensor *t)
{
    struct looks *l = ctx;
    assert_int_equal(number, l->n);
    l->base[l->n] = base;
    l->first[l->n++] = *(float *)t->data;
    for (size_t i = 0; i < t->n_bytes / sizeof(float); i++) ((float *)t->data)[i] = 10 * (float)(number + 1);
}

/* f(x) = -(-x): both values are seen, and go on as what is put there; without a look nothing changes. */
static void probes(void **state)
{
    (void)state;
    const struct dim *two = dim_const(g_m->dims, 2);
    struct ir_type t = ir_type_make(g_m, DT_F32, 1, &two);
    struct ir_func *f = ir_func_create(g_m, "main");
    struct ir_value *x = ir_func_add_input(f, "x", t), *a = append(f->body, IR_OP_NEG, t, 1, &x);
    ir_block_append(f->body, ir_op_create(g_m, IR_OP_PROBE, 1, &a, 0, NULL));
    struct ir_value *b = append(f->body, IR_OP_NEG, t, 1, &a);
    struct ir_op *second = ir_op_create(g_m, IR_OP_PROBE, 1, &b, 0, NULL);
    ir_op_set_attr(g_m, second, ir_a_int("base", 0));
    ir_block_append(f->body, second);
    ir_func_set_outputs(f, 1, &b, (const char *[]){"y"});
    assert_true(ir_verify_module(g_m, &g_diag));
    struct ir_tensor in = T(DT_F32, D(2), V(3, 4)), out;
    struct looks l = {0};
    struct ir_eval_probe probe = {look, &l};
    assert_true(ir_eval_func_probed(f, &in, &out, &g_arena, &g_diag, 1, &probe));
    assert_int_equal(l.n, 2);
    assert_true(l.base[0] == -1 && l.base[1] == 0 && l.first[0] == -3 && l.first[1] == -10);
    assert_values(&out, T(DT_F32, D(2), V(20, 20)));
    assert_true(ir_eval_func(f, &in, &out, &g_arena, &g_diag));
    assert_values(&out, T(DT_F32, D(2), V(3, 4)));
}

static void symbols(void **state)
{
    (void)state;
    struct ir_func *f = symbolic();
    struct ir_tensor out[2];
    struct ir_tensor in[] = {T(DT_F32, D(2, 2), V(1, 2, 3, 4)), T(DT_F32, D(1), V(9))};
    assert_true(ir_eval_func(f, in, out, &g_arena, &g_diag));
    assert_values(&out[0], T(DT_F32, D(4), V(2, 3, 4, 5)));
    assert_values(&out[1], in[1]);
    struct ir_tensor empty[] = {T(DT_F32, D(3, 0), V0), T(DT_F32, D(0), V0)};
    empty[1].data = NULL;
    assert_true(ir_eval_func(f, empty, out, &g_arena, &g_diag));
    assert_int_equal(out[0].n_bytes, 0);
    assert_int_equal(g_diag.error_count, 0);
    struct ir_tensor odd[] = {T(DT_F32, D(1, 3), V(1, 2, 3)), T(DT_F32, D(1), V(9))};
    struct ir_tensor unequal[] = {T(DT_F32, D(1, 2), V(1, 2)), T(DT_F32, D(2), V(9, 9))};
    struct ir_tensor type[] = {T(DT_F64, D(1, 2), V(1, 2)), T(DT_F32, D(1), V(9))};
    struct ir_tensor range[] = {T(DT_F32, D(9, 0), V0), T(DT_F32, D(0), V0)};
    assert_false(ir_eval_func(f, odd, out, &g_arena, &g_diag));
    assert_false(ir_eval_func(f, unequal, out, &g_arena, &g_diag));
    assert_false(ir_eval_func(f, type, out, &g_arena, &g_diag));
    assert_false(ir_eval_func(f, range, out, &g_arena, &g_diag));
    assert_int_equal(g_diag.error_count, 4);
}

static void checks(void **state)
{
    (void)state;
    struct ir_func *f = symbolic();
    struct ir_check k = {.a = dim_find_sym(g_m->dims, "n"), .b = dim_const(g_m->dims, 2), .is_le = true, .message = "n is too big"};
    vec_push(&g_m->arena, &g_m->checks, k);
    struct ir_tensor out[2];
    struct ir_tensor in[] = {T(DT_F32, D(2, 2), V(1, 2, 3, 4)), T(DT_F32, D(1), V(9))};
    assert_true(ir_eval_func(f, in, out, &g_arena, &g_diag));
    struct ir_tensor big[] = {T(DT_F32, D(3, 2), V(1, 2, 3, 4, 5, 6)), T(DT_F32, D(1), V(9))};
    assert_false(ir_eval_func(f, big, out, &g_arena, &g_diag));
    assert_non_null(strstr(g_diag.items.v[0].message, "n is too big"));
}

static void regions(void **state)
{
    (void)state;
    struct ir_type t = ir_type_static(g_m, DT_F32, 1, (int64_t[]){2}), b = ir_type_static(g_m, DT_BOOL, 0, NULL);
    static const float seven = 7;
    struct ir_func *f = ir_func_create(g_m, "main");
    struct ir_value *c = ir_func_add_input(f, "c", b), *x = ir_func_add_input(f, "x", t);
    struct ir_value *outer = append(f->body, IR_OP_NEG, t, 1, &x);
    struct ir_op *op = ir_op_create(g_m, IR_OP_IF, 1, &c, 1, NULL);
    op->results[0].type = t;
    struct ir_block *then_b = ir_block_create(g_m, f, op), *else_b = ir_block_create(g_m, f, op);
    ir_op_add_region(g_m, op, then_b);
    ir_op_add_region(g_m, op, else_b);
    struct ir_value *sum = append(then_b, IR_OP_ADD, t, 2, (struct ir_value *[]){outer, outer});
    end(then_b, 1, &sum);
    struct ir_value *k = constant(else_b, t, &seven, sizeof seven, true);
    end(else_b, 1, &k);
    ir_block_append(f->body, op);
    /* group(%if, x) { yield a * b, a } */
    struct ir_op *g = ir_op_create(g_m, IR_OP_GROUP, 2, (struct ir_value *[]){&op->results[0], x}, 2, NULL);
    g->results[0].type = g->results[1].type = t;
    struct ir_block *body = ir_block_create(g_m, f, g);
    ir_op_add_region(g_m, g, body);
    struct ir_value *ga = ir_block_add_arg(g_m, body, t, "a"), *gb = ir_block_add_arg(g_m, body, t, "b");
    struct ir_value *prod = append(body, IR_OP_MUL, t, 2, (struct ir_value *[]){ga, gb});
    end(body, 2, (struct ir_value *[]){prod, ga});
    ir_block_append(f->body, g);
    ir_func_set_outputs(f, 2, (struct ir_value *[]){&g->results[0], &g->results[1]}, (const char *[]){"p", "a"});
    struct ir_tensor out[2];
    struct ir_tensor yes[] = {T(DT_BOOL, D0, V(1)), T(DT_F32, D(2), V(1, 2))};
    assert_true(ir_eval_func(f, yes, out, &g_arena, &g_diag));
    assert_values(&out[0], T(DT_F32, D(2), V(-2, -8)));
    assert_values(&out[1], T(DT_F32, D(2), V(-2, -4)));
    struct ir_tensor no[] = {T(DT_BOOL, D0, V(0)), T(DT_F32, D(2), V(1, 2))};
    assert_true(ir_eval_func_threads(f, no, out, &g_arena, &g_diag, 4));
    assert_values(&out[0], T(DT_F32, D(2), V(7, 14)));
    assert_values(&out[1], T(DT_F32, D(2), V(7, 7)));
}

static void optional_inputs(void **state)
{
    (void)state;
    struct ir_type t = ir_type_static(g_m, DT_F32, 1, (int64_t[]){2});
    static const float dflt[2] = {3, 4};
    struct ir_func *f = ir_func_create(g_m, "main");
    struct ir_value *x = ir_func_add_input(f, "x", t);
    bool optional[1] = {true};
    struct ir_const *k[1] = {ir_const_make(g_m, "k", t, dflt, sizeof dflt, false)};
    f->input_optional = optional;
    f->input_default = k;
    struct ir_value *n = append(f->body, IR_OP_NEG, t, 1, &x);
    ir_func_set_outputs(f, 1, &n, (const char *[]){"n"});
    struct ir_tensor out[1];
    struct ir_tensor none[] = {NONE}, some[] = {T(DT_F32, D(2), V(1, 2))};
    assert_true(ir_eval_func(f, none, out, &g_arena, &g_diag));
    assert_values(&out[0], T(DT_F32, D(2), V(-3, -4)));
    assert_true(ir_eval_func(f, some, out, &g_arena, &g_diag));
    assert_values(&out[0], T(DT_F32, D(2), V(-1, -2)));
    optional[0] = false;
    assert_false(ir_eval_func(f, none, out, &g_arena, &g_diag));
}

/* Data of constants may lie at any address in a file; thread counts do not change bits. */
static void odd_places(void **state)
{
    (void)state;
    struct ir_type a = ir_type_static(g_m, DT_F32, 2, (int64_t[]){300, 40}), w = ir_type_static(g_m, DT_F32, 2, (int64_t[]){40, 600});
    struct ir_type o = ir_type_static(g_m, DT_F32, 2, (int64_t[]){300, 600});
    char *bytes = arena_alloc(&g_arena, 40 * 600 * 4 + 1);
    for (int i = 0; i < 40 * 600; i++) {
        float v = (float)sin(i);
        memcpy(bytes + 1 + 4 * i, &v, 4);
    }
    struct ir_func *f = ir_func_create(g_m, "main");
    struct ir_value *x = ir_func_add_input(f, "x", a);
    struct ir_value *k = constant(f->body, w, bytes + 1, 40 * 600 * 4, false);
    struct ir_value *p = append(f->body, IR_OP_MATMUL, o, 2, (struct ir_value *[]){x, k});
    ir_func_set_outputs(f, 1, &p, (const char *[]){"p"});
    double *v = ARENA_ARRAY(&g_arena, double, 300 * 40);
    for (int i = 0; i < 300 * 40; i++) v[i] = cos(i);
    struct ir_tensor in[] = {T(DT_F32, D(300, 40), 300 * 40, v)}, out[2];
    assert_true(ir_eval_func_threads(f, in, &out[0], &g_arena, &g_diag, 1));
    assert_true(ir_eval_func_threads(f, in, &out[1], &g_arena, &g_diag, 3));
    assert_memory_equal(out[0].data, out[1].data, out[0].n_bytes);
    double want = 0; /* element [1, 2] */
    for (int i = 0; i < 40; i++) want += (double)(float)cos(40 + i) * (double)(float)sin(i * 600 + 2);
    assert_true(fabs(((float *)out[0].data)[602] - want) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(probes), TEST(symbols), TEST(checks), TEST(regions), TEST(optional_inputs), TEST(odd_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
