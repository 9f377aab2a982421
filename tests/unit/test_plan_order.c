// SPDX-License-Identifier: Apache-2.0
/*
 * Barriers of plans made by hand: which launches every worker may do for itself. What is expected follows from the runtime's rule
 * that no worker waits behind such a launch: what it reads must not be written any more, by nobody.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/plan.h"

struct fixture {
    struct ir_module *m;
    struct plan *p;
};

static int add_buf(struct fixture *f, enum infr_buf_kind kind)
{
    vec_push(&f->p->arena, &f->p->bufs, ((struct plan_buf){.kind = kind, .dtype = DT_F32, .bytes = dim_const(f->m->dims, 256)}));
    return (int)f->p->bufs.n - 1;
}

/* A launch of `slices` that reads `from` and writes `to`. */
static struct plan_launch *add_launch(struct fixture *f, int from, int to, int64_t slices)
{
    struct plan_launch *l = ARENA_NEW(&f->p->arena, struct plan_launch);
    l->args = ARENA_ARRAY(&f->p->arena, struct plan_arg, 2);
    l->n_args = 2, l->n_read = 1, l->loc = "test";
    l->args[0].buf = from, l->args[1].buf = to;
    for (int v = 0; v < INFR_ISA_COUNT; v++) l->slices[v] = dim_const(f->m->dims, slices);
    vec_push(&f->p->arena, &f->p->entry->steps, ((struct plan_step){.kind = INFR_STEP_LAUNCH, .launch = l}));
    return l;
}

static void begin(struct fixture *f)
{
    f->m = ir_module_create("test", NULL);
    f->p = plan_create(f->m);
}

static void end(struct fixture *f)
{
    plan_destroy(f->p);
    ir_module_destroy(f->m);
}

static void a_small_launch_is_done_by_each(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    int in = add_buf(&f, INFR_BUF_INPUT), a = add_buf(&f, INFR_BUF_ARENA), b = add_buf(&f, INFR_BUF_ARENA), out = add_buf(&f, INFR_BUF_OUTPUT);
    struct plan_launch *wide = add_launch(&f, in, a, 8), *small = add_launch(&f, a, b, 1), *last = add_launch(&f, b, out, 1);
    plan_lifetimes(f.p);
    assert_false(wide->each);
    assert_true(small->each && small->barrier);
    assert_false(last->each); /* the caller reads it */
    assert_true(f.p->bufs.v[a].last == f.p->bufs.v[b].last); /* a worker may still read it beside the last launch */
    end(&f);
}

/* A state that is read, and then written by a launch of many workers: the first of them would write beside the last reader. */
static void a_state_that_is_written_later(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    int s = add_buf(&f, INFR_BUF_INPUT), a = add_buf(&f, INFR_BUF_ARENA), b = add_buf(&f, INFR_BUF_ARENA);
    struct plan_launch *read = add_launch(&f, s, a, 1), *write = add_launch(&f, a, s, 8), *after = add_launch(&f, s, b, 1);
    plan_lifetimes(f.p);
    assert_false(read->each);
    assert_true(write->barrier && after->barrier);
    assert_true(after->each); /* nobody writes it behind that */
    end(&f);
}

/* Two that write parts of one result, one that reads it between them. */
static void a_result_in_two_parts(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    int in = add_buf(&f, INFR_BUF_INPUT), both = add_buf(&f, INFR_BUF_ARENA), a = add_buf(&f, INFR_BUF_ARENA), b = add_buf(&f, INFR_BUF_ARENA);
    add_launch(&f, in, both, 8);
    struct plan_launch *between = add_launch(&f, both, a, 1), *second = add_launch(&f, a, both, 8), *behind = add_launch(&f, both, b, 1);
    plan_lifetimes(f.p);
    assert_false(between->each);
    assert_true(second->barrier);
    assert_true(behind->each);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_launch_is_done_by_each),
        cmocka_unit_test(a_state_that_is_written_later),
        cmocka_unit_test(a_result_in_two_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
