// SPDX-License-Identifier: Apache-2.0
/* Concats whose parts are written where they belong, and those that stay kernels. */
#include "test_equiv.h"

#include "passes/group.h"

struct graph {
    const char *inputs, *result, *body;
    int n_launches;
};

#define IMAGE "%x: f32[2, n, 7, 5]"
#define CONVS                                                                                                                           \
    " %w = constant value=@w\n %u = constant value=@u\n %a = conv %x, %w channels_last=1 strides=[1, 1] dilations=[1, 1] pads=(0, 0, 0, 0) groups=1\n" \
    " %r = sigmoid %a\n %b = conv %x, %u channels_last=1 strides=[1, 1] dilations=[1, 1] pads=(1, 1, 1, 1) groups=1 winograd=2\n"

static const struct graph graphs[] = {
    /* columns: of convolutions of two kinds, of products */
    {IMAGE, "2, n, 7, 9", CONVS " %y = concat %r, %b axis=3\n return %y\n", 2},
    {IMAGE, "2, n, 7, 9", CONVS " %c = concat %b, %r axis=3\n %y = neg %c\n return %y\n", 3},
    {IMAGE, "2, n, 7, 14",
     CONVS " %p, %i = pool_max %x channels_last=1 kernel=[1, 1] strides=[1, 1] dilations=[1, 1] pads=(0, 0, 0, 0) output=(n, 7)\n"
           " %y = concat %r, %p, %b axis=3\n return %y\n", 3},
    {"%x: f32[n, 5]", "n, 37", " %w = constant value=@p\n %v = constant value=@q\n %a = matmul %x, %w\n %b = matmul %x, %v\n %e = erf %b\n"
     " %y = concat %a, %e axis=1\n return %y\n", 2},
    /* blocks: any kernel */
    {"%x: f32[n, 5]", "40", " %a = reduce_sum %x axes=[0]\n %b = iota dims=(35) type=f32 axis=0\n %c = exp %b\n %y = concat %a, %c axis=0\n return %y\n", 2},
    {"%x: f32[1, n, 5]", "1, 2*n, 5", " %a = exp %x\n %s = softmax %x axis=2\n %y = concat %s, %a axis=1\n return %y\n", 2},
    /* not these: a part that is read elsewhere, too; an input; columns of flat kernels; one part twice */
    {IMAGE, "2, n, 7, 14", CONVS " %y = concat %r, %b, %x axis=3\n return %y\n", 3},
    {IMAGE, "2, n, 7, 9", CONVS " %c = concat %r, %b axis=3\n %s = reduce_sum %b axes=[3] keepdims=1\n %y = add %c, %s\n return %y\n", 4},
    {"%x: f32[n, 5]", "n, 10", " %a = softmax %x axis=1\n %b = softmax %x axis=0\n %y = concat %a, %b axis=1\n return %y\n", 3},
    {IMAGE, "2, n, 7, 8", CONVS " %y = concat %r, %r axis=3\n return %y\n", 2},
};

static void test_graphs(void **state)
{
    (void)state;
    struct strbuf head = {0};
    static const struct {
        const char *name, *dims;
        int n;
    } weights[] = {{"w", "4, 5, 1, 1", 20}, {"u", "5, 5, 3, 3", 225}, {"p", "5, 33", 165}, {"q", "5, 4", 20}};
    for (size_t i = 0; i < ARRAY_LEN(weights); i++) {
        strbuf_printf(&head, " const @%s: f32[%s] = [", weights[i].name, weights[i].dims);
        for (int k = 0; k < weights[i].n; k++) strbuf_printf(&head, "%s%d.0e-2", k ? ", " : "", k * 37 % 101 - 50);
        strbuf_puts(&head, "]\n");
    }
    for (size_t i = 0; i < ARRAY_LEN(graphs); i++)
        for (int placed = 0; placed < 2; placed++) {
            struct equiv e;
            struct strbuf text = {0};
            int64_t sizes[] = {11};
            equiv_init(&e);
            strbuf_printf(&text, "model \"c\" { sym n in [1, 4096]\n%s func @main(%s) -> (y: f32[%s]) {\n%s} }\n", strbuf_get(&head), graphs[i].inputs,
                          graphs[i].result, graphs[i].body);
            equiv_start_text(&e, strbuf_get(&text), 1, sizes);
            strbuf_deinit(&text);
            e.m->for_cpus = placed;
            assert_true(pass_group(e.m, &e.diag));
            equiv_check_plan(&e, NULL);
            struct plan *p = lower_module(e.m, &equiv_target, 1u << INFR_ISA_V4, &e.diag);
            int n = 0, parts = 0;
            for (size_t k = 0; k < p->entry->steps.n; k++) {
                const struct plan_launch *l = p->entry->steps.v[k].launch;
                n += !strstr(p->kernels.v[l->kernel].name, "winograd") && !strstr(p->kernels.v[l->kernel].name, "_input") && !strstr(p->kernels.v[l->kernel].name, "_product");
                for (int a = 0; a < l->n_args; a++) parts += l->args[a].offset_bytes != NULL;
            }
            if (placed) assert_int_equal(n, graphs[i].n_launches);
            else assert_int_equal(parts, 0);
            plan_destroy(p);
            equiv_end(&e);
        }
    strbuf_deinit(&head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
