// SPDX-License-Identifier: Apache-2.0
/*
 * Kernels that validate the PTX machine: written with NVIDIA's own headers, so that what they do with an
 * instruction is what its makers do. Each has its inputs made and its outputs checked against a computation in
 * double here. mutate.c runs the same ones with faults put in.
 */
#ifndef INFC_TESTS_PTX_VALIDATE_KERNELS_H
#define INFC_TESTS_PTX_VALIDATE_KERNELS_H

#include "tests/ptx/interp/ptx.h"

struct validation {
    const char *name, *arch;
    const char *source; /* file of CUDA C++ beside this one */
    /* Runs it in a machine that holds the module, for both modes of asynchronous work. NULL when the numbers are
     * right, else what is wrong: the machine's report, or the first wrong number. */
    const char *(*run)(struct ptx_machine *m, struct ptx_module *mod, const char *kernel);
    bool cutlass; /* needs CuTe: INFC_CUTLASS is the folder with cute/ in it */
};

extern const struct validation validations[];
extern const int n_validations;

#endif
