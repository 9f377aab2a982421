// SPDX-License-Identifier: Apache-2.0
/*
 * Equivalence of a module before and after passes or lowering: inputs are made from the types, the reference evaluator
 * gives the right outputs, and what a change left must give the same (integers exactly, floats to a tolerance).
 */
#ifndef INFC_TESTS_UNIT_TEST_EQUIV_H
#define INFC_TESTS_UNIT_TEST_EQUIV_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/emit_plan.h"
#include "ir/eval.h"
#include "ir/op.h"
#include "ir/plan_eval.h"
#include "ir/text.h"
#include "passes/lower.h"
#include "passes/pass.h"
#include "runtime/abi/random.h"

static const struct target_level equiv_levels[] = {
    {.name = "v2", .isa = INFR_ISA_V2, .vector_bytes = 16, .n_vector_regs = 16},
    {.name = "v3", .isa = INFR_ISA_V3, .vector_bytes = 32, .n_vector_regs = 16, .has_fma = true},
    {.name = "v4", .isa = INFR_ISA_V4, .vector_bytes = 64, .n_vector_regs = 32, .has_fma = true, .has_masks = true},
};
static const struct target equiv_target = {.name = "test", .levels = equiv_levels, .n_levels = 3};

#define EQUIV_MAX_IO 16

struct equiv {
    struct diag_sink diag;
    struct ir_module *m;
    struct arena arena;
    int64_t sizes[64]; /* of the symbols, in creation order */
    struct ir_tensor in[EQUIV_MAX_IO], want[EQUIV_MAX_IO];
    double tolerance;  /* of f32: |a - b| <= tolerance * (1 + |a|) */
    uint64_t seed;
    int64_t int_limit;
    double scale;      /* of float inputs, which are in [-scale, scale) */
};

static inline void equiv_fail(struct equiv *e, const char *what)
{
    struct strbuf s = {0};
    diag_print_text(&e->diag, stderr);
    ir_print_module(&s, e->m, NULL);
    fprintf(stderr, "%s\n", strbuf_get(&s));
    strbuf_deinit(&s);
    fail_msg("%s", what);
}

static inline void equiv_fill(struct equiv *e, struct ir_tensor *t, uint32_t stream)
{
    int64_t n = (int64_t)(t->n_bytes / dtype_bytes(t->dtype));
    for (int64_t i = 0; i < n; i++) {
        double f = infr_random_float(e->seed, stream, (uint64_t)i) * e->scale;
        int64_t k = infr_random_int(e->seed, stream, (uint64_t)i, e->int_limit);
        switch (t->dtype) {
        case DT_F32: ((float *)t->data)[i] = (float)f; break;
        case DT_F64: ((double *)t->data)[i] = f; break;
        case DT_I64: ((int64_t *)t->data)[i] = k; break;
        case DT_I32: ((int32_t *)t->data)[i] = (int32_t)k; break;
        case DT_U8: case DT_I8: ((unsigned char *)t->data)[i] = (unsigned char)k; break;
        case DT_BOOL: ((unsigned char *)t->data)[i] = k & 1; break;
        case DT_F16: /* 1.mantissa in [1, 2), signed */
            ((uint16_t *)t->data)[i] = (uint16_t)(0x3c00u | ((uint64_t)k << 3 & 0x3ffu) | (f < 0 ? 0x8000u : 0));
            break;
        default: fail_msg("no random values for %s", dtype_name(t->dtype));
        }
    }
}

/* Makes inputs and the right outputs. m becomes e's. sizes: a value a symbol, in creation order. */
static inline void equiv_start(struct equiv *e, struct ir_module *m, int n_sizes, const int64_t *sizes)
{
    e->m = m;
    arena_init(&e->arena);
    assert_true(dim_sym_count(m->dims) <= 64);
    for (int i = 0; i < n_sizes; i++) e->sizes[i] = sizes[i];
    struct ir_func *f = m->funcs.v[0];
    assert_true(f->n_inputs <= EQUIV_MAX_IO && f->n_outputs <= EQUIV_MAX_IO);
    for (int i = 0; i < f->n_inputs; i++) {
        const struct ir_type *t = &f->body->args[i]->type;
        struct ir_tensor *x = &e->in[i];
        *x = (struct ir_tensor){.dtype = t->dtype, .rank = t->rank, .n_bytes = dtype_bytes(t->dtype)};
        for (int k = 0; k < t->rank; k++) {
            assert_true(dim_eval(m->dims, t->dims[k], e->sizes, &x->dims[k]));
            x->n_bytes *= (size_t)x->dims[k];
        }
        x->data = arena_alloc(&e->arena, x->n_bytes + 8);
        equiv_fill(e, x, (uint32_t)i);
    }
    if (!ir_eval_func(f, e->in, e->want, &e->arena, &e->diag)) equiv_fail(e, "the evaluator refused the module");
}

static inline void equiv_init(struct equiv *e)
{
    memset(e, 0, sizeof *e);
    diag_init(&e->diag);
    e->tolerance = 2e-5;
    e->seed = 1;
    e->int_limit = 5;
    e->scale = 1;
}

static inline void equiv_start_text(struct equiv *e, const char *text, int n_sizes, const int64_t *sizes)
{
    struct ir_module *m = ir_parse_module(text, strlen(text), "t.ir", NULL, 0, &e->diag);
    if (!m) {
        diag_print_text(&e->diag, stderr);
        fail_msg("the text does not parse");
        return;
    }
    equiv_start(e, m, n_sizes, sizes);
}

static inline double equiv_element(const struct ir_tensor *t, int64_t i)
{
    struct ir_const c = {.type = {.dtype = t->dtype}, .n_bytes = dtype_bytes(t->dtype)};
    double v = 0;
    c.data = (const char *)t->data + (size_t)i * c.n_bytes;
    ir_const_get_float(&c, 0, &v);
    return v;
}

static inline void equiv_compare(struct equiv *e, const struct ir_tensor *got, const char *what)
{
    for (int o = 0; o < e->m->funcs.v[0]->n_outputs; o++) {
        const struct ir_tensor *a = &e->want[o], *b = &got[o];
        assert_int_equal(a->dtype, b->dtype);
        assert_int_equal(a->rank, b->rank);
        int64_t n = 1;
        for (int i = 0; i < a->rank; i++) {
            assert_int_equal(a->dims[i], b->dims[i]);
            n *= a->dims[i];
        }
        size_t size = dtype_bytes(a->dtype);
        double tol = a->dtype == DT_F16 ? 1.0 / 512 : a->dtype == DT_BF16 ? 1.0 / 64 : e->tolerance;
        for (int64_t i = 0; i < n; i++) {
            double x = 0, y = 0;
            if (!memcmp((const char *)a->data + (size_t)i * size, (const char *)b->data + (size_t)i * size, size)) continue;
            if (dtype_is_float(a->dtype)) {
                x = equiv_element(a, i), y = equiv_element(b, i);
                if ((isnan(x) && isnan(y)) || x == y || fabs(x - y) <= tol * (1 + fabs(x))) continue;
            }
            fprintf(stderr, "%s: output %d, element %lld: want %.9g, got %.9g\n", what, o, (long long)i, x, y);
            equiv_fail(e, what);
        }
    }
}

/* The module as it is now, by the reference evaluator. */
static inline void equiv_check_module(struct equiv *e, const char *what)
{
    struct ir_tensor got[EQUIV_MAX_IO] = {{0}};
    if (!ir_verify_module(e->m, &e->diag)) equiv_fail(e, what);
    if (!ir_eval_func(e->m->funcs.v[0], e->in, got, &e->arena, &e->diag)) equiv_fail(e, what);
    equiv_compare(e, got, what);
}

static inline void equiv_read_const(const struct plan_buf *b, void *dst, size_t n)
{
    struct weight w = {.cst = b->cst, .pack = b->pack, .n_bytes = n};
    weight_read(&w, 0, dst, n);
}

/* The grouped module lowered, by the loop evaluator on every level. schedule: of the first kernel, NULL: any. */
static inline void equiv_check_plan(struct equiv *e, const char *schedule)
{
    struct plan *p = lower_module(e->m, &equiv_target, 7, &e->diag);
    if (!p) {
        equiv_fail(e, "lowering failed");
        return;
    }
    if (schedule) assert_string_equal(p->kernels.v[0].schedule, schedule);
    for (int l = 0; l < 3; l++) {
        struct ir_tensor got[EQUIV_MAX_IO] = {{0}};
        if (!plan_eval(p, equiv_levels[l].isa, e->in, got, equiv_read_const, &e->arena, &e->diag))
            equiv_fail(e, equiv_levels[l].name);
        equiv_compare(e, got, equiv_levels[l].name);
    }
    plan_destroy(p);
}

static inline void equiv_end(struct equiv *e)
{
    ir_module_destroy(e->m);
    arena_deinit(&e->arena);
    diag_deinit(&e->diag);
}

#endif
