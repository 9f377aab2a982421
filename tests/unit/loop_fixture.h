// SPDX-License-Identifier: Apache-2.0
/* What tests of loop IR start from: dims and a place for diagnostics, made before each test and freed after it. */
#ifndef INFC_TESTS_UNIT_LOOP_FIXTURE_H
#define INFC_TESTS_UNIT_LOOP_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/dim.h"
#include "ir/loop.h"

struct fixture {
    struct dim_ctx *ctx;
    struct diag_sink diag;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->ctx = dim_ctx_create();
    diag_init(&f->diag);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    diag_deinit(&f->diag);
    dim_ctx_destroy(f->ctx);
    free(f);
    return 0;
}

#endif
