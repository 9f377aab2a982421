// SPDX-License-Identifier: Apache-2.0
/* Dims: expected forms are worked out by hand; random expressions are compared with plain integer
 * arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/dim.h"

static struct dim_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    ctx = dim_ctx_create();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dim_ctx_destroy(ctx);
    return 0;
}

static const struct dim *parse(const char *text)
{
    const char *p = text, *end = text + strlen(text);
    const struct dim *d = dim_parse(ctx, &p, end);
    assert_non_null(d);
    assert_ptr_equal(p, end);
    return d;
}

static void assert_prints(const struct dim *d, const char *text)
{
    struct strbuf s = {0};
    dim_print(&s, d);
    assert_string_equal(strbuf_get(&s), text);
    strbuf_deinit(&s);
}

static void test_ring(void **state)
{
    (void)state;
    const struct dim *x = dim_sym(ctx, "x", 0, 100), *y = dim_sym(ctx, "y", 1, 50);
    const struct dim *left = dim_mul(ctx, dim_add(ctx, x, y), dim_sub(ctx, x, y));
    const struct dim *right = dim_sub(ctx, dim_mul(ctx, x, x), dim_mul(ctx, y, y));
    assert_ptr_equal(left, right); /* (x+y)(x-y) = x^2 - y^2 */
    assert_prints(left, "x*x - y*y");
    assert_ptr_equal(dim_sub(ctx, x, x), dim_const(ctx, 0));
    assert_ptr_equal(dim_add(ctx, dim_addc(ctx, x, 3), dim_const(ctx, -3)), x);
    assert_ptr_equal(dim_mulc(ctx, dim_mulc(ctx, x, 2), 3), dim_mulc(ctx, x, 6));
    const struct dim *p = dim_addc(ctx, dim_mulc(ctx, x, 3), 2);
    assert_int_equal(p->lo, 2);
    assert_int_equal(p->hi, 302);
    assert_int_equal(dim_sub(ctx, x, y)->lo, -50);
    assert_int_equal(dim_sub(ctx, x, y)->hi, 99);
}

static void test_division(void **state)
{
    (void)state;
    const struct dim *x = dim_sym(ctx, "x", 0, DIM_INF), *r = dim_sym(ctx, "r", 0, 7);
    dim_sym(ctx, "s", 1, DIM_INF);
    assert_ptr_equal(dim_floordiv(ctx, dim_add(ctx, dim_mulc(ctx, x, 8), r), dim_const(ctx, 8)), x);
    assert_prints(parse("floordiv(8*x + r + 1, 8)"), "x + floordiv(r + 1, 8)");
    assert_ptr_equal(parse("floordiv(floordiv(x, 3), 4)"), parse("floordiv(x, 12)"));
    assert_ptr_equal(parse("floordiv(floordiv(x, 2) + 1, 2)"), parse("floordiv(x + 2, 4)"));
    assert_prints(parse("floordiv(x + 2 - 3, 2) + 1"), "floordiv(x + 1, 2)");
    assert_prints(parse("floordiv(6*x + 3, 4)"),
                  "x + floordiv(x + 1, 2)"); /* 6x+3 = 4x + 2x+3; (2x+3)/4 = (x+1)/2 */
    assert_prints(parse("ceildiv(x, 2)"), "floordiv(x + 1, 2)");
    assert_ptr_equal(parse("floordiv(x*s, s)"), x);
    assert_ptr_equal(parse("floordiv(12*x*s, 4*s)"), parse("3*x"));
    assert_prints(parse("floordiv(x*s + r, s)"), "x + floordiv(r, s)");
    assert_ptr_equal(parse("floordiv(x*x - s*s, x + s)"), parse("x - s"));
    assert_prints(parse("mod(8*x, 8)"), "0");
    assert_ptr_equal(parse("mod(8*x + r, 8)"), r);
    assert_prints(parse("mod(10*x + 4, 6)"), "2*mod(2*x + 2, 3)");
    assert_prints(parse("mod(x*s, s)"), "0");
    assert_ptr_equal(parse("mod(mod(x, 12), 4)"), parse("mod(x, 4)"));
    assert_prints(parse("floordiv(-7, 2)"), "-4");
    assert_prints(parse("mod(-7, 2)"), "1");
    assert_prints(parse("mod(7, -2)"), "-1");
    assert_null(dim_exact_div(ctx, parse("x*s + 1"), parse("s")));
    assert_ptr_equal(dim_exact_div(ctx, parse("6*x*s + 4*s"), parse("2*s")), parse("3*x + 2"));
}

static void test_min_max_and_proofs(void **state)
{
    (void)state;
    const struct dim *x = dim_sym(ctx, "x", 1, 10), *y = dim_sym(ctx, "y", 5, 20),
                     *b = dim_sym(ctx, "b", 0, DIM_INF);
    assert_ptr_equal(dim_min(ctx, x, dim_const(ctx, 10)), x);
    assert_ptr_equal(dim_max(ctx, x, dim_const(ctx, 1)), x);
    assert_ptr_equal(dim_min(ctx, x, y), dim_min(ctx, y, x));
    assert_ptr_equal(dim_min(ctx, dim_min(ctx, x, y), x), dim_min(ctx, x, y));
    assert_ptr_equal(dim_max(ctx, dim_max(ctx, x, y), b), dim_max(ctx, b, dim_max(ctx, y, x)));
    assert_ptr_equal(dim_min(ctx, x, dim_addc(ctx, x, 1)), x);
    assert_true(dim_known_le(ctx, parse("floordiv(b, 2)"), b));
    assert_true(dim_known_le(ctx, parse("x*floordiv(b, 2)"), parse("x*b")));
    assert_true(dim_known_le(ctx, parse("min(b, y)"), b));
    assert_true(dim_known_le(ctx, b, parse("max(b, y)")));
    assert_true(dim_known_le(ctx, b, parse("x*b")));
    assert_false(dim_known_le(ctx, y, x));
    assert_true(dim_known_ne(ctx, parse("2*b + 1"), parse("2*y")));
    assert_true(dim_known_ne(ctx, dim_addc(ctx, x, 20), y));
    assert_false(dim_known_ne(ctx, x, y));
    /* A range that narrows later also narrows what was made before. */
    const struct dim *sum = parse("3*b + 1");
    assert_int_equal(sum->hi, DIM_INF);
    dim_sym(ctx, "b", 2, 4);
    assert_int_equal(sum->lo, 7);
    assert_int_equal(sum->hi, 13);
}

static void test_overflow_and_limits(void **state)
{
    (void)state;
    const struct dim *poison = dim_overflow(ctx), *big = dim_const(ctx, INT64_MAX),
                     *x = dim_sym(ctx, "x", 0, DIM_INF);
    assert_ptr_equal(dim_addc(ctx, big, 1), poison);
    assert_ptr_equal(dim_mulc(ctx, dim_mul(ctx, big, x), 2), poison);
    assert_ptr_equal(dim_floordiv(ctx, x, dim_const(ctx, 0)), poison);
    assert_ptr_equal(dim_mod(ctx, x, dim_const(ctx, 0)), poison);
    assert_ptr_equal(dim_floordiv(ctx, dim_const(ctx, INT64_MIN), dim_const(ctx, -1)), poison);
    assert_ptr_equal(dim_add(ctx, poison, x), poison);
    assert_prints(poison, "overflow");
    assert_prints(dim_const(ctx, INT64_MIN), "-9223372036854775808");
    assert_ptr_equal(parse("-9223372036854775808"), dim_const(ctx, INT64_MIN));
    const struct dim *d = x, *p = dim_addc(ctx, x, 1);
    const struct dim *y = dim_sym(ctx, "y", 2, 9);
    for (int i = 0; i < 200; i++) d = dim_addc(ctx, dim_floordiv(ctx, d, y), 1);
    assert_ptr_equal(d, poison);
    for (int i = 0; i < 8; i++) p = dim_mul(ctx, p, p);
    assert_ptr_equal(p, poison); /* degree 256 */
    static const char *const bad[] = {
        "",    "x +",     "floordiv(x)", "(x",       "9223372036854775808",
        "\"a", "\"\\q\"", "*x",          "min(x, y", "floordiv"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *q = bad[i];
        assert_null(dim_parse(ctx, &q, q + strlen(q)));
    }
    char deep[4001];
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    const char *q = deep;
    assert_null(dim_parse(ctx, &q, q + sizeof deep - 1));
}

static void test_text(void **state)
{
    (void)state;
    static const char *const forms[] = {"2*batch*seq + floordiv(h + 1, 2)",
                                        "x",
                                        "0",
                                        "-1",
                                        "-x + 3",
                                        "x*\"odd name\" - 4",
                                        "\"min\"",
                                        "\"a\\\"b\\\\\\x01\\xff\"",
                                        "max(floordiv(x, y), min(x, y))",
                                        "mod(h, 3)*mod(h, 3) - 2*h"};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) assert_prints(parse(forms[i]), forms[i]);
    assert_prints(parse("(batch+1) * (seq - -2)"), "batch*seq + 2*batch + seq + 2");
    const struct dim *f = dim_fresh_sym(ctx, "u", 0, 3), *g = dim_fresh_sym(ctx, "u", 0, 3);
    assert_ptr_not_equal(f, g);
}

static void test_subst(void **state)
{
    (void)state;
    const struct dim *x = dim_sym(ctx, "x", 0, 100), *y = dim_sym(ctx, "y", 1, 100);
    const struct dim *repl[2] = {dim_const(ctx, 7), NULL};
    assert_prints(dim_subst(ctx, parse("x*y + floordiv(x, 2)"), repl, 2), "7*y + 3");
    repl[0] = dim_mulc(ctx, y, 4);
    assert_ptr_equal(dim_subst(ctx, parse("floordiv(x, 2) + max(x, y)"), repl, 1),
                     dim_mulc(ctx, y, 6));
    assert_ptr_equal(dim_subst(ctx, x, NULL, 0), x);
}

/* ---- random expressions against plain arithmetic ---- */

static uint32_t random_state;
static int rnd(int n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)(random_state >> 8) % n;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
} /* b > 0 */

#define N_POINTS 24
struct pair {
    const struct dim *d;
    int64_t v[N_POINTS];
};

static int64_t points[N_POINTS][3];

static struct pair random_expr(int depth)
{
    struct pair p, a, b;
    if (depth == 0 || rnd(6) == 0) {
        int which = rnd(4);
        if (which == 3) {
            int64_t c = rnd(13) - 4;
            p.d = dim_const(ctx, c);
            for (int i = 0; i < N_POINTS; i++) p.v[i] = c;
        } else {
            p.d = dim_sym_at(ctx, (size_t)which);
            for (int i = 0; i < N_POINTS; i++) p.v[i] = points[i][which];
        }
        return p;
    }
    a = random_expr(depth - 1);
    b = random_expr(depth - 1);
    int op = rnd(7), symbolic = rnd(3);
    int64_t c = 1 + rnd(6);
    if (op >= 5 &&
        !symbolic) { /* a divisor that is positive: one more than the square of a symbol's value */
        int s = rnd(3);
        const struct dim *sym = dim_sym_at(ctx, (size_t)s);
        b.d = dim_addc(ctx, dim_mul(ctx, sym, sym), 1);
        for (int i = 0; i < N_POINTS; i++) b.v[i] = points[i][s] * points[i][s] + 1;
    } else if (op >= 5) {
        b.d = dim_const(ctx, c);
        for (int i = 0; i < N_POINTS; i++) b.v[i] = c;
    }
    switch (op) {
    case 0: p.d = dim_add(ctx, a.d, b.d); break;
    case 1: p.d = dim_sub(ctx, a.d, b.d); break;
    case 2: p.d = dim_mul(ctx, a.d, b.d); break;
    case 3: p.d = dim_min(ctx, a.d, b.d); break;
    case 4: p.d = dim_max(ctx, a.d, b.d); break;
    case 5: p.d = dim_floordiv(ctx, a.d, b.d); break;
    default: p.d = dim_mod(ctx, a.d, b.d); break;
    }
    for (int i = 0; i < N_POINTS; i++) {
        int64_t x = a.v[i], y = b.v[i];
        p.v[i] = op == 0   ? x + y
                 : op == 1 ? x - y
                 : op == 2 ? x * y
                 : op == 3 ? (x < y ? x : y)
                 : op == 4 ? (x > y ? x : y)
                 : op == 5 ? floor_div(x, y)
                           : x - y * floor_div(x, y);
    }
    return p;
}

static void test_random(void **state)
{
    (void)state;
    random_state = 12345;
    dim_sym(ctx, "x", 0, 9);
    dim_sym(ctx, "y", 1, 6);
    dim_sym(ctx, "z", -5, 12);
    for (int i = 0; i < N_POINTS; i++) {
        points[i][0] = rnd(10);
        points[i][1] = 1 + rnd(6);
        points[i][2] = rnd(18) - 5;
    }
    for (int n = 0; n < 3000; n++) {
        struct pair p = random_expr(1 + n % 4), q = random_expr(2);
        if (p.d == dim_overflow(ctx) || q.d == dim_overflow(ctx)) continue; /* limits */
        bool le = dim_known_le(ctx, p.d, q.d), ne = dim_known_ne(ctx, p.d, q.d);
        for (int i = 0; i < N_POINTS; i++) {
            int64_t v;
            assert_true(dim_eval(ctx, p.d, points[i], &v));
            assert_int_equal(v, p.v[i]);
            assert_true(p.d->lo <= v && v <= p.d->hi);
            assert_true(!le || p.v[i] <= q.v[i]);
            assert_true(!ne || p.v[i] != q.v[i]);
        }
        struct strbuf s = {0};
        dim_print(&s, p.d);
        assert_ptr_equal(parse(strbuf_get(&s)), p.d);
        strbuf_deinit(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ring, setup, teardown),
        cmocka_unit_test_setup_teardown(test_division, setup, teardown),
        cmocka_unit_test_setup_teardown(test_min_max_and_proofs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_overflow_and_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_subst, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
