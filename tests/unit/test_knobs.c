// SPDX-License-Identifier: Apache-2.0
/* Knobs of schedules: names, tile shapes, and that no value of any knob changes a bit of a result. */
#include "test_equiv.h"

#include "passes/knobs.h"
#include "passes/tile_shape.h"

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(knob_find("tile", 4), KNOB_TILE);
    assert_int_equal(knob_find("tiles", 5), -1);
    assert_int_equal(knob_find("row_block", 9), KNOB_ROW_BLOCK);
    for (int k = 0; k < KNOB_COUNT; k++) assert_int_equal(knob_find(knob_name(k), strlen(knob_name(k))), k);
    assert_true(knob_in_range(KNOB_PREFETCH, 0));
    assert_false(knob_in_range(KNOB_PREFETCH, -1));
}

/* v3 has 16 registers of 8 lanes: rows * v + v + 1 <= 15, so 6 x 2 vectors (15) fits and 7 x 2 (17) does not. */
static void test_tiles_that_fit(void **state)
{
    (void)state;
    struct dim_ctx *dc = dim_ctx_create();
    const struct dim *many = dim_const(dc, 1000), *three = dim_const(dc, 3);
    const struct target_level *v3 = &equiv_levels[1];
    assert_true(tile_fits(v3, 4, 64, many, false, 6, 16));
    assert_false(tile_fits(v3, 4, 64, many, false, 7, 16));
    assert_false(tile_fits(v3, 4, 64, three, false, 4, 16)); /* more than there are */
    assert_false(tile_fits(v3, 4, 64, many, false, 0, 16));
    assert_false(tile_fits(v3, 4, 64, many, false, 2, 24)); /* does not divide the panel */
    assert_false(tile_fits(v3, 4, 16, many, false, 2, 32));
    struct tile_choice c[8];
    int n = tile_shapes(v3, 4, 64, many, false, c, 8), mr, nr;
    assert_true(n > 1 && n <= 8);
    tile_shape(v3, 4, 64, many, false, &mr, &nr);
    for (int i = 0; i < n; i++) {
        assert_true(tile_fits(v3, 4, 64, many, false, c[i].mr, c[i].nr));
        if (i) assert_true(c[i].cost >= c[i - 1].cost);
        if (c[i].mr == mr && c[i].nr == nr) assert_true(c[i].cost <= c[0].cost / 0.99);
    }
    dim_ctx_destroy(dc);
}

/* Sets one alternative of one knob, whichever is the number-th of the kernel. */
struct one {
    int number, seen;
    bool done;
};

static bool choose(void *context, const struct target_level *level, const struct lp_kernel *k, const struct knob_uses *uses,
                   struct knob_values *out)
{
    struct one *o = context;
    (void)k;
    if (level->isa != INFR_ISA_V3) return false;
    for (int u = 0; u < uses->n; u++)
        for (int a = 0; a < uses->use[u].n; a++, o->seen++)
            if (o->seen == o->number) {
                out->set[uses->use[u].knob] = true;
                out->value[uses->use[u].knob] = uses->use[u].alternatives[a];
                o->done = true;
            }
    return o->done;
}

static void check_bits(const char *text, const int64_t *sizes, int least)
{
    struct equiv e;
    equiv_init(&e);
    equiv_start_text(&e, text, 1, sizes);
    if (!pass_run_all(e.m, &(struct pass_options){0}, &e.diag)) equiv_fail(&e, "passes");
    struct plan *p = lower_module(e.m, &equiv_target, 7, &e.diag);
    struct ir_tensor want[EQUIV_MAX_IO] = {{0}}, got[EQUIV_MAX_IO];
    assert_non_null(p);
    if (!plan_eval(p, INFR_ISA_V3, e.in, want, equiv_read_const, &e.arena, &e.diag)) equiv_fail(&e, "default");
    plan_destroy(p);
    struct one o = {0};
    int n = 0;
    for (;; n++) {
        o = (struct one){.number = n};
        struct knob_chooser chooser = {choose, &o};
        p = lower_module_tuned(e.m, &equiv_target, 7, &chooser, &e.diag);
        assert_non_null(p);
        memset(got, 0, sizeof got);
        if (!plan_eval(p, INFR_ISA_V3, e.in, got, equiv_read_const, &e.arena, &e.diag)) equiv_fail(&e, "tuned");
        assert_memory_equal(want[0].data, got[0].data, want[0].n_bytes);
        plan_destroy(p);
        if (!o.done) break;
    }
    assert_true(n >= least);
    equiv_end(&e);
}

/* "[0.25, -0.5, ...]" of n values. */
static char *values(struct arena *a, int n)
{
    struct strbuf s = {0};
    for (int i = 0; i < n; i++) strbuf_printf(&s, "%s%d.%03d", i ? ", " : "", i % 7 - 3, i * 37 % 1000);
    char *text = arena_strdup(a, strbuf_get(&s));
    strbuf_deinit(&s);
    return text;
}

static void test_bits_matmul(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a);
    const char *text = arena_printf(&a,
        "model \"t\" { sym n in [1, 512]\n const @w: f32[9, 40] = [%s]\n"
        "func @main(%%x: f32[n, 9]) -> (y: f32[n, 40]) {\n %%w = constant value=@w\n %%1 = matmul %%x, %%w\n return %%1\n} }\n",
        values(&a, 9 * 40));
    check_bits(text, (int64_t[]){101}, 8); /* tiles, row blocks, prefetches */
    arena_deinit(&a);
}

static void test_bits_conv(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a);
    const char *text = arena_printf(&a,
        "model \"t\" { sym n in [1, 4]\n const @w: f32[20, 3, 3, 3] = [%s]\n"
        "func @main(%%x: f32[n, 3, 11, 13]) -> (y: f32[n, 20, 9, 11]) {\n %%w = constant value=@w\n"
        " %%1 = conv %%x, %%w strides=[1, 1] dilations=[1, 1] pads=(0, 0, 0, 0) groups=1\n return %%1\n} }\n",
        values(&a, 20 * 27));
    check_bits(text, (int64_t[]){2}, 6);
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_tiles_that_fit),
        cmocka_unit_test(test_bits_matmul),
        cmocka_unit_test(test_bits_conv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
