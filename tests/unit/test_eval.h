// SPDX-License-Identifier: Apache-2.0
/*
 * Runs one op on literal tensors and compares with literal results. Result types are given by the test, not inferred.
 *
 *     struct ir_attr attrs[] = {ir_a_int("axis", 1)};
 *     struct ir_tensor in[] = {T(DT_F32, D(2, 2), V(1, 2, 3, 4))};
 *     OP_GIVES(IR_OP_CUM_SUM, attrs, in, T(DT_F32, D(2, 2), V(1, 3, 3, 7)));
 */
#ifndef INFC_TESTS_UNIT_TEST_EVAL_H
#define INFC_TESTS_UNIT_TEST_EVAL_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/build.h"
#include "ir/eval.h"
#include "ir/support/float.h"

static struct diag_sink g_diag;
static struct ir_module *g_m;
static struct arena g_arena;
static double g_tol; /* absolute plus relative; 0: exact */

static int setup(void **state)
{
    (void)state;
    diag_init(&g_diag);
    arena_init(&g_arena);
    g_m = ir_module_create("test", &g_diag);
    g_tol = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ir_module_destroy(g_m);
    arena_deinit(&g_arena);
    diag_deinit(&g_diag);
    return 0;
}

#define D(...) (int)ARRAY_LEN(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__}
#define D0 0, NULL
#define V(...) (int)ARRAY_LEN(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__}
#define V0 0, NULL
#define NONE ((struct ir_tensor){0})
#define NO_ATTRS ((struct ir_attr[1]){{0}})

static double get(const struct ir_tensor *t, size_t i)
{
    switch (t->dtype) {
    case DT_F64: return ((double *)t->data)[i];
    case DT_F32: return ((float *)t->data)[i];
    case DT_I64: return (double)((int64_t *)t->data)[i];
    case DT_U64: return (double)((uint64_t *)t->data)[i];
    case DT_I32: return ((int32_t *)t->data)[i];
    case DT_U32: return ((uint32_t *)t->data)[i];
    case DT_I16: return ((int16_t *)t->data)[i];
    case DT_U16: return ((uint16_t *)t->data)[i];
    case DT_I8:
    case DT_I4:
    case DT_I2: return ((int8_t *)t->data)[i];
    case DT_F16:
    case DT_BF16: return float_widen(t->dtype, ((uint16_t *)t->data)[i]);
    case DT_BOOL:
    case DT_U8:
    case DT_U4:
    case DT_U2: return ((uint8_t *)t->data)[i];
    default: return float_widen(t->dtype, ((uint8_t *)t->data)[i]);
    }
}

static INFC_UNUSED struct ir_tensor T(enum dtype dtype, int rank, const int64_t *dims, int n, const double *v)
{
    struct ir_tensor t = {.dtype = dtype, .rank = rank};
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= t.dims[i] = dims[i];
    assert_int_equal(count, n);
    t.n_bytes = (size_t)count * dtype_bytes(dtype);
    t.data = arena_alloc(&g_arena, t.n_bytes);
    for (int i = 0; i < n; i++) switch (dtype) {
        case DT_F64: ((double *)t.data)[i] = v[i]; break;
        case DT_F32: ((float *)t.data)[i] = (float)v[i]; break;
        case DT_I64: ((int64_t *)t.data)[i] = (int64_t)v[i]; break;
        case DT_U64: ((uint64_t *)t.data)[i] = (uint64_t)v[i]; break;
        case DT_I32: ((int32_t *)t.data)[i] = (int32_t)v[i]; break;
        case DT_U32: ((uint32_t *)t.data)[i] = (uint32_t)v[i]; break;
        case DT_I16: ((int16_t *)t.data)[i] = (int16_t)v[i]; break;
        case DT_U16: ((uint16_t *)t.data)[i] = (uint16_t)v[i]; break;
        case DT_I8:
        case DT_I4:
        case DT_I2: ((int8_t *)t.data)[i] = (int8_t)v[i]; break;
        case DT_F16:
        case DT_BF16: ((uint16_t *)t.data)[i] = float_narrow(dtype, v[i]); break;
        case DT_BOOL:
        case DT_U8:
        case DT_U4:
        case DT_U2: ((uint8_t *)t.data)[i] = (uint8_t)v[i]; break;
        default: ((uint8_t *)t.data)[i] = (uint8_t)float_narrow(dtype, v[i]); break;
        }
    return t;
}

static struct ir_op *make_op(enum ir_opcode code, int n_attrs, const struct ir_attr *attrs, int n_in, int n_out,
                             const struct ir_tensor *out)
{
    struct ir_value *none[16] = {0};
    struct ir_op *op = ir_op_create(g_m, code, n_in, none, n_out, NULL);
    for (int i = 0; i < n_attrs; i++)
        if (attrs[i].name) ir_op_set_attr(g_m, op, attrs[i]);
    for (int i = 0; i < n_out; i++) op->results[i].type = ir_type_static(g_m, out[i].dtype, out[i].rank, out[i].dims);
    return op;
}

static INFC_UNUSED void op_gives(const char *file, int line, enum ir_opcode code, int n_attrs, const struct ir_attr *attrs, int n_in,
                     const struct ir_tensor *in, int n_out, const struct ir_tensor *want)
{
    struct ir_tensor got[4] = {0};
    struct ir_op *op = make_op(code, n_attrs, attrs, n_in, n_out, want);
    if (!ir_eval_op(op, g_m, in, got, NULL, &g_arena, &g_diag)) {
        diag_print_text(&g_diag, stderr);
        fail_msg("%s:%d: %s fails", file, line, ir_op_name(code));
    }
    for (int r = 0; r < n_out; r++) {
        size_t n = want[r].n_bytes / dtype_bytes(want[r].dtype);
        assert_int_equal(got[r].n_bytes, want[r].n_bytes);
        for (size_t i = 0; i < n; i++) {
            double a = get(&got[r], i), b = get(&want[r], i);
            if (a != a && b != b) continue;
            if (g_tol == 0 ? a == b && signbit(a) == signbit(b) : fabs(a - b) <= g_tol * (1 + fabs(b))) continue;
            fail_msg("%s:%d: %s result %d[%zu] is %.17g, not %.17g", file, line, ir_op_name(code), r, i, a, b);
        }
    }
}

static INFC_UNUSED void op_fails(const char *file, int line, enum ir_opcode code, int n_attrs, const struct ir_attr *attrs,
                                 int n_in, const struct ir_tensor *in, int n_out, const struct ir_tensor *want)
{
    struct ir_tensor got[4] = {0};
    size_t before = g_diag.error_count;
    struct ir_op *op = make_op(code, n_attrs, attrs, n_in, n_out, want);
    if (ir_eval_op(op, g_m, in, got, NULL, &g_arena, &g_diag)) fail_msg("%s:%d: %s succeeds", file, line, ir_op_name(code));
    assert_true(g_diag.error_count > before);
}

#define OP_GIVES(code, attrs, in, ...)                                                             \
    op_gives(__FILE__, __LINE__, code, (int)ARRAY_LEN(attrs), attrs, (int)ARRAY_LEN(in), in,       \
             (int)ARRAY_LEN(((struct ir_tensor[]){__VA_ARGS__})), (struct ir_tensor[]){__VA_ARGS__})
#define OP_FAILS(code, attrs, in, ...)                                                             \
    op_fails(__FILE__, __LINE__, code, (int)ARRAY_LEN(attrs), attrs, (int)ARRAY_LEN(in), in,       \
             (int)ARRAY_LEN(((struct ir_tensor[]){__VA_ARGS__})), (struct ir_tensor[]){__VA_ARGS__})

/* Attribute of constant dims. */
static INFC_UNUSED struct ir_attr a_dims(const char *name, int n, const int64_t *v)
{
    const struct dim **dims = ARENA_ARRAY(&g_m->arena, const struct dim *, n + 1);
    for (int i = 0; i < n; i++) dims[i] = dim_const(g_m->dims, v[i]);
    return ir_a_dims(name, n, dims);
}
static INFC_UNUSED struct ir_attr a_ints(const char *name, int n, const int64_t *v) { return ir_a_ints(name, n, v); }
static INFC_UNUSED struct ir_attr a_floats(const char *name, int n, const double *v) { return ir_a_floats(name, n, v); }

/* Unary and binary shorthands. */
#define UN(code, x, y)                                                                             \
    do {                                                                                           \
        struct ir_tensor in_[] = {x};                                                              \
        OP_GIVES(code, NO_ATTRS, in_, y);                                                          \
    } while (0)
#define BIN(code, x, y, z)                                                                         \
    do {                                                                                           \
        struct ir_tensor in_[] = {x, y};                                                           \
        OP_GIVES(code, NO_ATTRS, in_, z);                                                          \
    } while (0)

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

#endif
