// SPDX-License-Identifier: Apache-2.0
/* Depthwise convolutions with the padding in front of them: one kernel, and what the tensor evaluator says. */
#include "test_equiv.h"

#include "passes/group.h"

struct shape {
    const char *x;          /* [N, H, W, C] */
    const char *kernel, *strides, *lo, *hi, *out;
    int channels;
    bool is_one;            /* kernel: the pad is gone */
};

/* n = 3, h = 19, w = 45, s = 2: sizes that only a call knows, wide and narrow. */
static const struct shape shapes[] = {
    {"2, 9, 28, 21", "3, 3", "1, 1", "0, 1, 1, 0", "0, 1, 1, 0", "2, 9, 28, 21", 21, true},
    {"1, 7, 7, 64", "3, 3", "1, 1", "0, 1, 1, 0", "0, 1, 1, 0", "1, 7, 7, 64", 64, true},
    {"1, 2, 1, 16", "3, 3", "1, 1", "0, 1, 1, 0", "0, 1, 1, 0", "1, 2, 1, 16", 16, true},
    {"1, 8, 50, 20", "5, 5", "1, 1", "0, 2, 2, 0", "0, 2, 2, 0", "1, 8, 50, 20", 20, true},
    {"1, 8, 33, 20", "7, 5", "2, 1", "0, 3, 4, 0", "0, 1, 0, 0", "1, 3, 33, 20", 20, true},
    {"1, 8, 17, 20", "7, 7", "1, 1", "0, 0, 6, 0", "0, 0, 6, 0", "1, 2, 23, 20", 20, true},
    {"2, 28, 28, 24", "3, 3", "2, 2", "0, 1, 1, 0", "0, 1, 1, 0", "2, 14, 14, 24", 24, true},
    {"1, 57, 57, 17", "3, 3", "2, 2", "0, 0, 0, 0", "0, 1, 1, 0", "1, 28, 28, 17", 17, true},
    {"1, 9, 100, 16", "5, 5", "3, 3", "0, 2, 2, 0", "0, 2, 2, 0", "1, 3, 34, 16", 16, true},
    {"n, h, w, 20", "3, 3", "1, 1", "0, 1, 1, 0", "0, 1, 1, 0", "n, h, w, 20", 20, true},
    {"n, h, w, 40", "5, 5", "2, 1", "0, 1, 3, 0", "0, 2, 1, 0", "n, floordiv(h - 2, 2) + 1, w, 40", 40, true},
    {"n, h, s, 20", "3, 3", "1, 1", "0, 1, 1, 0", "0, 1, 1, 0", "n, h, s, 20", 20, true},
    {"n, s, s, 20", "5, 5", "1, 1", "0, 2, 2, 0", "0, 2, 2, 0", "n, s, s, 20", 20, true},
    /* padding that stays: beyond the kernel, steps along a row of unknown width */
    {"1, 5, 6, 20", "3, 3", "1, 1", "0, 1, 3, 0", "0, 1, 1, 0", "1, 5, 8, 20", 20, false},
    {"n, h, w, 20", "3, 3", "2, 2", "0, 1, 1, 0", "0, 1, 1, 0", "n, floordiv(h - 1, 2) + 1, floordiv(w - 1, 2) + 1, 20", 20, false},
};

static void put_numbers(struct strbuf *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) strbuf_printf(s, "%s%d.0e-2", i ? ", " : "", (int)(i * 37 % 101 - 50));
}

static void check(const struct shape *s, bool take)
{
    struct equiv e;
    struct strbuf text = {0};
    int64_t sizes[] = {3, 19, 45, 2}, taps = (int64_t)(s->kernel[0] - '0') * (s->kernel[3] - '0');
    equiv_init(&e);
    strbuf_puts(&text, "model \"d\" { sym n in [1, 64] sym h in [1, 999] sym w in [1, 999] sym s in [1, 999]\n");
    strbuf_printf(&text, " const @w: f32[%d, 1, %s] = [", s->channels, s->kernel);
    put_numbers(&text, s->channels * taps);
    strbuf_printf(&text, "]\n const @b: f32[%d] = [", s->channels);
    put_numbers(&text, s->channels);
    strbuf_printf(&text, "]\n func @main(%%x: f32[%s], %%z: f32[%s]) -> (y: f32[%s]) {\n %%w = constant value=@w\n %%b = constant value=@b\n", s->x, s->out, s->out);
    strbuf_printf(&text, " %%p = pad %%x lo=(%s) hi=(%s)\n", s->lo, s->hi);
    strbuf_printf(&text, " %%c = conv %%p, %%w, %%b strides=[%s] dilations=[1, 1] pads=(0, 0, 0, 0) groups=%d channels_last=1\n", s->strides, s->channels);
    strbuf_puts(&text, " %a = add %c, %z\n %y = sigmoid %a\n return %y\n} }\n");
    equiv_start_text(&e, strbuf_get(&text), 4, sizes);
    strbuf_deinit(&text);
    e.m->for_cpus = take;
    assert_true(pass_group(e.m, &e.diag));
    int n = 0;
    for (const struct ir_op *op = e.m->funcs.v[0]->body->first; op; op = op->next) n += op->code == IR_OP_GROUP;
    assert_int_equal(n, take && s->is_one ? 1 : 2);
    equiv_check_plan(&e, take && s->is_one ? "conv-depthwise" : NULL);
    equiv_end(&e);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int take = 0; take < 2; take++) check(&shapes[i], take);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
