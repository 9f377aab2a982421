// SPDX-License-Identifier: Apache-2.0
/* Shared by the tests of the PTX machine: kernels written as text, run on small buffers. */
#ifndef INFC_TESTS_UNIT_PTX_TEST_H
#define INFC_TESTS_UNIT_PTX_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ptx/interp/ptx.h"

#define PTX_HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"
#define PTX_HEAD_90 ".version 8.0\n.target sm_90a\n.address_size 64\n"
/* A kernel of two pointers, its registers and a body. */
#define PTX_KERNEL(body)                                                                             \
    PTX_HEAD ".visible .entry k(.param .u64 k_in, .param .u64 k_out)\n{\n"                           \
             ".reg .pred %p<20>; .reg .b16 %rs<20>; .reg .b32 %r<60>; .reg .f32 %f<40>; .reg .b64 %rd<40>;\n" \
             "ld.param.u64 %rd1, [k_in]; ld.param.u64 %rd2, [k_out];\n" body "\nret;\n}\n"

struct ptx_case {
    struct ptx_machine *m;
    struct ptx_module *mod;
    uint64_t in, out;
    size_t in_bytes, out_bytes;
};

static inline struct ptx_case ptx_case_open(const char *text, const struct ptx_options *options, const void *in,
                                            size_t in_bytes, size_t out_bytes)
{
    struct ptx_case c = {.in_bytes = in_bytes, .out_bytes = out_bytes};
    c.m = ptx_machine_create(options);
    assert_non_null(c.m);
    c.mod = ptx_module_load(c.m, text);
    if (!c.mod) fail_msg("%s", ptx_report(c.m));
    c.in = ptx_mem_alloc(c.m, in_bytes ? in_bytes : 16);
    c.out = ptx_mem_alloc(c.m, out_bytes ? out_bytes : 16);
    if (in) assert_true(ptx_mem_write(c.m, c.in, in, in_bytes));
    return c;
}

static inline bool ptx_case_run(struct ptx_case *c, unsigned grid, unsigned block)
{
    const void *params[] = {&c->in, &c->out};
    struct ptx_launch l = {.grid = {grid, 1, 1}, .block = {block, 1, 1}, .params = params};
    return ptx_launch(c->m, ptx_module_find(c->mod, "k"), &l);
}

static inline void ptx_case_close(struct ptx_case *c) { ptx_machine_destroy(c->m); }

/* Runs it and expects this fault at this PTX line (0: any). */
static inline void expect_fault(const char *text, unsigned block, enum ptx_fault fault, int line)
{
    uint32_t in[1024];
    for (int i = 0; i < 1024; i++) in[i] = (uint32_t)i;
    struct ptx_case c = ptx_case_open(text, NULL, in, sizeof in, 4096);
    bool ok = ptx_case_run(&c, 1, block);
    if (fault == PTX_OK && !ok) fail_msg("%s", ptx_report(c.m));
    if (ptx_fault(c.m) != fault)
        fail_msg("%s instead of %s: %s", ptx_fault_name(ptx_fault(c.m)), ptx_fault_name(fault), ptx_report(c.m));
    if (line) assert_int_equal(ptx_report_line(c.m), line);
    ptx_case_close(&c);
}

#endif
