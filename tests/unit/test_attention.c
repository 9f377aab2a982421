// SPDX-License-Identifier: Apache-2.0
/* Attention in plain ops: which graphs become one kernel, and that the kernel computes what the tensor evaluator says. */
#include "test_equiv.h"

#include "passes/group.h"

struct graph {
    const char *inputs, *result, *body;
    bool is_one; /* kernel; else what stays as it is */
};

#define PLAIN " %s = matmul %q, %k\n %p = softmax %s axis=3\n %y = matmul %p, %v\n return %y\n"

/* n: 37 rows of queries, m: 205 keys; h: 5 of either. */
static const struct graph graphs[] = {
    {"%q: f32[2, 3, 37, 15], %k: f32[2, 3, 15, 205], %v: f32[2, 3, 205, 21]", "2, 3, 37, 21", PLAIN, true},
    {"%q: f32[2, 3, n, 16], %k: f32[2, 3, 16, m], %v: f32[2, 3, m, 32]", "2, 3, n, 32", PLAIN, true},
    {"%q: f32[2, 3, h, 8], %k: f32[2, 3, 8, h], %v: f32[2, 3, h, 8]", "2, 3, h, 8", PLAIN, true},
    {"%q: f32[1, 3, 64, 8], %k: f32[1, 3, 8, 96], %v: f32[1, 3, 96, 8]", "1, 3, 64, 8", PLAIN, true},
    {"%q: f32[1, 3, 16, 8], %k: f32[1, 3, 8, 3], %v: f32[1, 3, 3, 8]", "1, 3, 16, 8", PLAIN, true},
    {"%q: f32[2, 3, 7, 8], %k: f32[2, 1, 8, 100], %v: f32[1, 3, 100, 8]", "2, 3, 7, 8", PLAIN, true},
    {"%q: f32[2, n, 3, 8], %k: f32[2, m, 3, 8], %v: f32[2, m, 3, 24], %mask: f32[2, 1, 1, m]", "2, n, 3, 24",
     " %a = transpose %q perm=[0, 2, 1, 3]\n %b = transpose %k perm=[0, 2, 3, 1]\n %c = transpose %v perm=[0, 2, 1, 3]\n %s = matmul %a, %b\n"
     " %f = constant value=@f\n %d = div %s, %f\n %t = add %d, %mask\n %p = softmax %t axis=3\n %o = matmul %p, %c\n"
     " %y = transpose %o perm=[0, 2, 1, 3]\n return %y\n", true},
    {"%q: f32[3, n, 8], %k: f32[3, m, 8], %v: f32[3, m, 8], %mask: bool[n, m]", "3, n, 8",
     " %s = matmul %q, %k trans_b=1\n %f = constant value=@f\n %d = mul %f, %s\n %e = mul %d, %f\n %i = constant value=@inf\n"
     " %t = select %mask, %e, %i\n %p = softmax %t axis=2\n %y = matmul %p, %v\n return %y\n", true},
    {"%q: f32[n, 8], %k: f32[8, m], %v: f32[m, 8], %mask: f32[n, m]", "n, 8", /* soft cap, and a mask of all scores */
     " %s = matmul %q, %k\n %f = constant value=@f\n %d = div %s, %f\n %e = tanh %d\n %g = mul %e, %f\n %t = add %g, %mask\n"
     " %p = softmax %t axis=1\n %y = matmul %p, %v\n return %y\n", true},
    {"%q: f32[n, 8], %k: f32[8, h], %v: f32[h, 8], %mask: bool[n, 1]", "n, 8", /* whole rows are hidden: NaN */
     " %s = matmul %q, %k\n %i = constant value=@inf\n %t = select %mask, %s, %i\n %p = softmax %t axis=1\n %y = matmul %p, %v\n return %y\n", true},
    {"%q: f32[n, 8], %k: f32[8, 0], %v: f32[0, 8]", "n, 8", " %s = matmul %q, %k\n %p = softmax %s axis=1\n %y = matmul %p, %v\n return %y\n", true},
    /* not these: weights that something else reads, another axis, one row, a head too deep, scores by their own numbers */
    {"%q: f32[n, 8], %k: f32[8, m], %v: f32[m, 8]", "n, 8",
     " %s = matmul %q, %k\n %p = softmax %s axis=1\n %o = matmul %p, %v\n %r = reduce_sum %p axes=[1] keepdims=1\n %y = add %o, %r\n return %y\n", false},
    {"%q: f32[n, 8], %k: f32[8, m], %v: f32[m, 8]", "n, 8",
     " %s = matmul %q, %k\n %p = softmax %s axis=0\n %y = matmul %p, %v\n return %y\n", false},
    {"%q: f32[1, 8], %k: f32[8, m], %v: f32[m, 8]", "1, 8",
     " %s = matmul %q, %k\n %p = softmax %s axis=1\n %y = matmul %p, %v\n return %y\n", false},
    {"%q: f32[n, 300], %k: f32[300, m], %v: f32[m, 8]", "n, 8",
     " %s = matmul %q, %k\n %p = softmax %s axis=1\n %y = matmul %p, %v\n return %y\n", false},
    {"%q: f32[h, 8], %k: f32[8, h], %v: f32[h, 8]", "h, 8",
     " %s = matmul %q, %k\n %n = iota dims=(h, h) type=f32 axis=1\n %t = add %s, %n\n %p = softmax %t axis=1\n %y = matmul %p, %v\n return %y\n", false},
};

static int kernels_of(const struct ir_module *m)
{
    int n = 0;
    for (const struct ir_op *op = m->funcs.v[0]->body->first; op; op = op->next) n += op->code == IR_OP_GROUP;
    return n;
}

static void check(const struct graph *g, bool fuse)
{
    struct equiv e;
    int64_t sizes[] = {37, 205, 5};
    char text[2048];
    equiv_init(&e);
    snprintf(text, sizeof text,
             "model \"a\" { sym n in [0, 4096] sym m in [0, 4096] sym h in [1, 4096] const @f: f32[1] = [0.75] const @inf: f32[] = [-inf]\n"
             " func @main(%s) -> (y: f32[%s]) {\n%s} }\n", g->inputs, g->result, g->body);
    equiv_start_text(&e, text, 3, sizes);
    e.m->for_cpus = fuse;
    assert_true(pass_group(e.m, &e.diag));
    if (g->is_one) assert_int_equal(kernels_of(e.m) == 1, fuse);
    else assert_true(kernels_of(e.m) > 1);
    equiv_check_plan(&e, g->is_one && fuse ? "attention" : NULL);
    equiv_end(&e);
}

static void test_graphs(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(graphs); i++)
        for (int fuse = 0; fuse < 2; fuse++) check(&graphs[i], fuse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
