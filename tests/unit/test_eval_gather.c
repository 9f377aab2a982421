// SPDX-License-Identifier: Apache-2.0
/* Gathers and scatters, by hand. */
#include "tests/unit/test_eval.h"

static void gathers(void **state)
{
    (void)state;
    struct ir_tensor x[] = {T(DT_F32, D(3, 2), V(1, 2, 3, 4, 5, 6)), T(DT_I64, D(2), V(-1, 0))};
    struct ir_attr rows[] = {ir_a_int("axis", 0)}, cols[] = {ir_a_int("axis", 1)};
    OP_GIVES(IR_OP_GATHER, rows, x, T(DT_F32, D(2, 2), V(5, 6, 1, 2)));
    OP_GIVES(IR_OP_GATHER, cols, x, T(DT_F32, D(3, 2), V(2, 1, 4, 3, 6, 5)));
    struct ir_tensor far[] = {x[0], T(DT_I32, D(3), V(9, -9, 1))};
    OP_GIVES(IR_OP_GATHER, rows, far, T(DT_F32, D(3, 2), V(5, 6, 1, 2, 3, 4)));
    struct ir_tensor scalar[] = {x[0], T(DT_I64, D0, V(1))};
    OP_GIVES(IR_OP_GATHER, cols, scalar, T(DT_F32, D(3), V(2, 4, 6)));
    struct ir_tensor none[] = {T(DT_F32, D(0, 2), V0), T(DT_I64, D(1), V(0))};
    OP_FAILS(IR_OP_GATHER, rows, none, T(DT_F32, D(1, 2), V(0, 0)));
    struct ir_tensor e[] = {x[0], T(DT_I64, D(2, 1), V(1, -2))};
    OP_GIVES(IR_OP_GATHER_ELEMENTS, cols, e, T(DT_F32, D(2, 1), V(2, 3)));
    struct ir_tensor e0[] = {x[0], T(DT_I64, D(1, 2), V(2, -3))};
    OP_GIVES(IR_OP_GATHER_ELEMENTS, rows, e0, T(DT_F32, D(1, 2), V(5, 2)));
    struct ir_tensor nd[] = {x[0], T(DT_I64, D(2, 2), V(0, 1, -1, 0))};
    OP_GIVES(IR_OP_GATHER_ND, NO_ATTRS, nd, T(DT_F32, D(2), V(2, 5)));
    struct ir_tensor slices[] = {x[0], T(DT_I64, D(1, 1), V(1))};
    OP_GIVES(IR_OP_GATHER_ND, NO_ATTRS, slices, T(DT_F32, D(1, 2), V(3, 4)));
    struct ir_attr batch[] = {ir_a_int("batch_dims", 1)};
    struct ir_tensor b[] = {x[0], T(DT_I64, D(3, 1), V(0, 1, 0))};
    OP_GIVES(IR_OP_GATHER_ND, batch, b, T(DT_F32, D(3), V(1, 4, 5)));
}

static void scatters(void **state)
{
    (void)state;
    struct ir_attr a[] = {ir_a_int("axis", 0), ir_a_string("reduction", "none")};
    struct ir_tensor x[] = {T(DT_F32, D(2, 2), V(1, 2, 3, 4)), T(DT_I64, D(2, 1), V(-1, 1)), T(DT_F32, D(2, 1), V(10, 20))};
    OP_GIVES(IR_OP_SCATTER_ELEMENTS, a, x, T(DT_F32, D(2, 2), V(1, 2, 20, 4)));
    a[1].s = "add";
    OP_GIVES(IR_OP_SCATTER_ELEMENTS, a, x, T(DT_F32, D(2, 2), V(1, 2, 33, 4)));
    a[1].s = "mul";
    OP_GIVES(IR_OP_SCATTER_ELEMENTS, a, x, T(DT_F32, D(2, 2), V(1, 2, 600, 4)));
    a[1].s = "min";
    OP_GIVES(IR_OP_SCATTER_ELEMENTS, a, x, T(DT_F32, D(2, 2), V(1, 2, 3, 4)));
    a[1].s = "max";
    OP_GIVES(IR_OP_SCATTER_ELEMENTS, a, x, T(DT_F32, D(2, 2), V(1, 2, 20, 4)));
    a[1].s = "neither";
    OP_FAILS(IR_OP_SCATTER_ELEMENTS, a, x, T(DT_F32, D(2, 2), V(0, 0, 0, 0)));
    struct ir_attr plain[] = {ir_a_int("axis", 0)};
    struct ir_tensor out[] = {x[0], T(DT_I64, D(2, 1), V(0, 2)), x[2]};
    OP_FAILS(IR_OP_SCATTER_ELEMENTS, plain, out, T(DT_F32, D(2, 2), V(0, 0, 0, 0)));
    struct ir_tensor nd[] = {T(DT_I8, D(2, 2), V(1, 2, 3, 4)), T(DT_I64, D(2, 1), V(1, -1)), T(DT_I8, D(2, 2), V(5, 6, 100, 100))};
    OP_GIVES(IR_OP_SCATTER_ND, NO_ATTRS, nd, T(DT_I8, D(2, 2), V(1, 2, 100, 100)));
    struct ir_attr add[] = {ir_a_string("reduction", "add")};
    OP_GIVES(IR_OP_SCATTER_ND, add, nd, T(DT_I8, D(2, 2), V(1, 2, 108, 110)));
    nd[2] = T(DT_I8, D(2, 2), V(100, 1, 100, 1));
    OP_GIVES(IR_OP_SCATTER_ND, add, nd, T(DT_I8, D(2, 2), V(1, 2, -53, 6)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(gathers), TEST(scatters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
