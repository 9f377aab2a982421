// SPDX-License-Identifier: Apache-2.0
/*
 * Convolutions made of tiles: the transforms against the sum that defines a convolution, in f64; kernels of every level in the
 * loop evaluator (which checks every access) against the tensor evaluator's direct sums; which convolutions are chosen.
 */
#include "test_equiv.h"

#include "ir/winograd.h"
#include "passes/winograd.h"

/* F(m, 3) is exact up to rounding in f64: A' ((G g) o (B' d)) against sums of products. */
static void test_transforms(void **state)
{
    (void)state;
    for (int m = 2; m <= 4; m += 2) {
        struct winograd w = winograd_make(m);
        double g[3] = {0.7, -1.3, 0.4}, d[6] = {1.1, -0.6, 2.5, 0.3, -1.9, 0.8}, p[6];
        assert_int_equal(w.t, m + 2);
        for (int i = 0; i < w.t; i++) {
            double u = 0, v = 0;
            for (int k = 0; k < 3; k++) u += w.g[i][k] * g[k];
            for (int k = 0; k < w.t; k++) {
                v += w.bt[i][k] * d[k];
                assert_true(w.bt[i][k] == (double)(float)w.bt[i][k]);
            }
            p[i] = u * v;
        }
        for (int i = 0; i < m; i++) {
            double y = 0, want = 0;
            for (int k = 0; k < w.t; k++) {
                y += w.at[i][k] * p[k];
                assert_true(w.at[i][k] == (double)(float)w.at[i][k]);
            }
            for (int k = 0; k < 3; k++) want += g[k] * d[i + k];
            assert_true(fabs(y - want) < 1e-14);
        }
        float taps[9] = {0.5f, -1, 2, 0.25f, 3, -0.75f, 1, 1.5f, -2};
        double u = 0;
        for (int i = 0; i < 9; i++) u += w.g[1][i / 3] * w.g[2][i % 3] * (double)taps[i];
        assert_true(fabs((double)winograd_weight(&w, w.t + 2, taps) - u) <= 1e-7 * fabs(u) + 1e-12);
    }
}

struct shape {
    const char *x; /* dims of x, channels last */
    const char *w, *pads, *out, *schedule;
    int size;
};

static void fill_text(char *text, size_t n, const struct shape *s)
{
    int64_t o = strtoll(s->w, NULL, 10), c = strtoll(strchr(s->w, ',') + 1, NULL, 10);
    struct strbuf t = {0};
    strbuf_printf(&t, "model \"t\" { sym n in [1, 4]\n sym h in [1, 4096]\n const @w: f32[%s, 3, 3] = [", s->w);
    for (int64_t i = 0; i < o * c * 9; i++) strbuf_printf(&t, "%s%.3f", i ? ", " : "", infr_random_float(9, 1, (uint64_t)i));
    strbuf_printf(&t, "]\n const @b: f32[%lld] = [", (long long)o);
    for (int64_t i = 0; i < o; i++) strbuf_printf(&t, "%s%.3f", i ? ", " : "", infr_random_float(9, 2, (uint64_t)i));
    strbuf_printf(&t, "]\nfunc @main(%%x: f32[%s], %%r: f32[%s]) -> (y: f32[%s]) {\n %%w = constant value=@w\n %%b = constant value=@b\n"
                  " %%c = conv %%x, %%w, %%b strides=[1, 1] dilations=[1, 1] pads=(%s) groups=1 channels_last=1 winograd=%d\n"
                  " %%s = add %%c, %%r\n %%y = sigmoid %%s\n return %%y\n} }\n", s->x, s->out, s->out, s->pads, s->size);
    assert_true(t.len < n);
    memcpy(text, strbuf_get(&t), t.len + 1);
    strbuf_deinit(&t);
}

/*
 * Sizes with every kind of rest: tiles at borders, channels in and out that fill no vector, register tiles that are not full,
 * several blocks, sizes that only a call knows, padding on some sides or none.
 */
static void test_kernels(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"1, 8, 8, 16", "16, 16", "1, 1, 1, 1", "1, 8, 8, 16", NULL, 2},
        {"1, 8, 8, 16", "16, 16", "1, 1, 1, 1", "1, 8, 8, 16", NULL, 4},
        {"2, 9, 7, 5", "3, 5", "1, 1, 1, 1", "2, 9, 7, 3", NULL, 4},
        {"2, 9, 7, 5", "3, 5", "0, 0, 0, 0", "2, 7, 5, 3", NULL, 2},
        {"1, 5, 12, 19", "37, 19", "0, 2, 1, 0", "1, 4, 12, 37", NULL, 4},
        {"1, 1, 1, 3", "18, 3", "1, 1, 1, 1", "1, 1, 1, 18", NULL, 4},
        {"1, 1, 2, 3", "2, 3", "2, 2, 2, 2", "1, 3, 4, 2", NULL, 2},
        {"n, h, 11, 6", "33, 6", "1, 1, 1, 1", "n, h, 11, 33", NULL, 4},
        {"n, 6, h, 20", "20, 20", "1, 0, 1, 2", "n, 6, h, 20", NULL, 2},
        {"1, 60, 61, 4", "8, 4", "1, 1, 1, 1", "1, 60, 61, 8", "winograd-blocks", 2},
        {"1, 10, 10, 200", "70, 200", "1, 1, 1, 1", "1, 10, 10, 70", "winograd-input", 4},
        {"1, 7, 9, 200", "40, 200", "1, 1, 1, 1", "1, 7, 9, 40", NULL, 2},
    };
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    assert_non_null(text);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct equiv e;
        int64_t sizes[] = {2, 13};
        equiv_init(&e);
        e.tolerance = 1e-5; /* behind a sigmoid, whose slope is at most 1/4 */
        fill_text(text, BYTES, &shapes[i]);
        equiv_start_text(&e, text, 2, sizes);
        assert_true(pass_group(e.m, &e.diag));
        equiv_check_plan(&e, shapes[i].schedule);
        equiv_end(&e);
    }
    free(text);
}

static int64_t tile_of(struct ir_module *m)
{
    for (struct ir_op *op = m->funcs.v[0]->body->first; op; op = op->next)
        if (op->code == IR_OP_CONV) return ir_attr_int(op, "winograd", 0);
    return -1;
}

struct choice {
    const char *what, *text;
    int asked;
    int64_t size;
    bool padding; /* is taken */
};

/* What may be made of tiles, what is asked for, and what becomes of the padding in front. */
static void test_choice(void **state)
{
    (void)state;
#define IMAGE(conv, more) "model \"t\" { const @w: f32[2, 2, 3, 3] = splat(0.5)\n const @v: f32[2, 1, 3, 3] = splat(0.5)\n" \
    "const @u: f32[2, 2, 3, 3] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n" \
    "func @main(%x: f32[1, 8, 8, 2]) -> (y: f32[" more "]) {\n %w = constant value=@w\n %v = constant value=@v\n %u = constant value=@u\n" conv
    static const struct choice rows[] = {
        {"padded", IMAGE(" %p = pad %x lo=(0, 1, 1, 0) hi=(0, 1, 1, 0)\n %y = conv %p, %u channels_last=1\n return %y\n} }\n", "1, 8, 8, 2"), 4, 4, true},
        {"not padded", IMAGE(" %y = conv %x, %u channels_last=1\n return %y\n} }\n", "1, 6, 6, 2"), 2, 2, false},
        {"weights of one value", IMAGE(" %y = conv %x, %w channels_last=1\n return %y\n} }\n", "1, 6, 6, 2"), 2, 0, false},
        {"stride 2", IMAGE(" %y = conv %x, %u channels_last=1 strides=[2, 1]\n return %y\n} }\n", "1, 3, 6, 2"), 2, 0, false},
        {"dilation 2", IMAGE(" %y = conv %x, %u channels_last=1 dilations=[1, 2]\n return %y\n} }\n", "1, 6, 4, 2"), 2, 0, false},
        {"groups", IMAGE(" %y = conv %x, %v channels_last=1 groups=2\n return %y\n} }\n", "1, 6, 6, 2"), 2, 0, false},
        {"few channels are not worth it", IMAGE(" %y = conv %x, %u channels_last=1\n return %y\n} }\n", "1, 6, 6, 2"), -1, 0, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct equiv e;
        equiv_init(&e);
        equiv_start_text(&e, rows[i].text, 0, NULL);
        e.m->winograd = rows[i].asked;
        assert_true(pass_winograd(e.m, &e.diag));
        if (tile_of(e.m) != rows[i].size) fail_msg("%s: tiles of %lld", rows[i].what, (long long)tile_of(e.m));
        assert_int_equal(e.m->tiled.n, rows[i].size > 0);
        bool pad = false;
        for (struct ir_op *op = e.m->funcs.v[0]->body->first; op; op = op->next) pad = pad || op->code == IR_OP_PAD;
        assert_true(!pad);
        equiv_check_module(&e, rows[i].what);
        assert_true(pass_dce(e.m, &e.diag) && pass_group(e.m, &e.diag));
        equiv_check_plan(&e, NULL);
        equiv_end(&e);
    }
}

/* Sizes beyond any memory: numbers of tiles stay numbers. */
static void test_huge(void **state)
{
    (void)state;
    static const char text[] = "model \"t\" { sym h in [3, 268435456]\n const @u: f32[1, 1, 3, 3] = [1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
        "func @main(%x: f32[268435456, 268435456, 268435456, 1], %z: f32[2, h, 9, 1]) -> "
        "(y: f32[268435456, 268435454, 268435454, 1], v: f32[2, h - 2, 7, 1]) {\n %u = constant value=@u\n"
        " %v = conv %z, %u channels_last=1\n %y = conv %x, %u channels_last=1\n return %y, %v\n} }\n";
    struct diag_sink diag;
    diag_init(&diag);
    struct ir_module *m = ir_parse_module(text, sizeof text - 1, "t.ir", NULL, 0, &diag);
    assert_non_null(m);
    struct ir_op *op = m->funcs.v[0]->body->first->next;
    assert_int_equal(winograd_tiles(m, op, 4), 2 * 128 * 2); /* 510 x 7 outputs: h is worth 512 */
    assert_true(winograd_tiles(m, op->next, 2) > 1000000000);
    m->winograd = -1;
    assert_true(pass_winograd(m, &diag));
    ir_module_destroy(m);
    diag_deinit(&diag);
}

/* The errors that the report states: of direct sums some units in the last place, of tiles a few times that. */
static void test_error(void **state)
{
    (void)state;
    enum { O = 8, C = 96 };
    float *w = malloc(O * C * 9 * sizeof *w);
    assert_non_null(w);
    for (int i = 0; i < O * C * 9; i++) w[i] = (float)infr_random_float(2, 0, (uint64_t)i);
    double two, four, direct, again;
    winograd_error(2, w, O, C, &two, &direct);
    assert_true(direct > 1e-9 && direct < 1e-6 && two > direct / 2 && two < 2e-6);
    winograd_error(4, w, O, C, &four, &again);
    assert_true(again < 1e-6 && four > two / 2 && four < 5e-6);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transforms), cmocka_unit_test(test_kernels), cmocka_unit_test(test_choice), cmocka_unit_test(test_huge),
                                       cmocka_unit_test(test_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
