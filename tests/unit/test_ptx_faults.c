// SPDX-License-Identifier: Apache-2.0
/* The PTX machine finds what hardware would leave undefined: each test is a kernel that is right, and the same
 * with one thing missing. The body of PTX_KERNEL begins at PTX line 8. */
#include "tests/unit/ptx_test.h"

/* %r1 = tid, %r2 = tid * 4, %rd4 = out + 4 tid, %r10 = shared array. */
#define SHARED_KERNEL(body)                                                                                            \
    PTX_KERNEL(".shared .align 16 .b8 s[4096]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r10, s; "            \
               "add.u32 %r11, %r10, %r2; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3; add.s64 %rd5, %rd1, %rd3;\n" \
               body)

static void test_bounds(void **state)
{
    (void)state;
    expect_fault(SHARED_KERNEL("ld.global.u32 %r3, [%rd5+4092];"), 1, PTX_OK, 0);
    expect_fault(SHARED_KERNEL("ld.global.u32 %r3, [%rd5+4093];"), 1, PTX_FAULT_ALIGN, 9);
    expect_fault(SHARED_KERNEL("ld.global.u32 %r3, [%rd5+4096];"), 1, PTX_FAULT_BOUNDS, 9);
    expect_fault(SHARED_KERNEL("ld.global.u32 %r3, [%rd5+-4];"), 1, PTX_FAULT_BOUNDS, 9);
    expect_fault(SHARED_KERNEL("ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd5+8];"), 1, PTX_FAULT_ALIGN, 9);
    expect_fault(SHARED_KERNEL("st.shared.u32 [%r11+4092], 0;"), 1, PTX_OK, 0);
    expect_fault(SHARED_KERNEL("st.shared.u32 [%r11+4092], 0;"), 2, PTX_FAULT_BOUNDS, 9);
    expect_fault(SHARED_KERNEL("st.shared.u32 [%r2], 0;"), 1, PTX_FAULT_BOUNDS, 9);
    expect_fault(SHARED_KERNEL("mov.u64 %rd6, 64; ld.global.u32 %r3, [%rd6];"), 1, PTX_FAULT_BOUNDS, 9);
    expect_fault(SHARED_KERNEL("st.global.u32 [%rd4], 0;"), 1024, PTX_OK, 0);
}

static void test_undefined(void **state)
{
    (void)state;
    /* A value may be carried along and even be stored; what depends on it is a fault. */
    expect_fault(SHARED_KERNEL("add.u32 %r5, %r50, 1; st.global.u32 [%rd4], %r5;"), 1, PTX_OK, 0);
    expect_fault(SHARED_KERNEL("setp.eq.u32 %p1, %r50, 0;\n@%p1 bra X;\nX:"), 1, PTX_FAULT_UNDEFINED, 10);
    expect_fault(SHARED_KERNEL("cvt.u64.u32 %rd6, %r50; add.s64 %rd7, %rd1, %rd6;\nld.global.u32 %r3, [%rd7];"), 1,
                 PTX_FAULT_UNDEFINED, 10);
    expect_fault(SHARED_KERNEL("ld.shared.u32 %r3, [%r11]; setp.eq.u32 %p1, %r3, 0;\n@%p1 bra X;\nX:"), 1,
                 PTX_FAULT_UNDEFINED, 10);
    /* out was never written */
    expect_fault(SHARED_KERNEL("ld.global.u32 %r3, [%rd4]; setp.eq.u32 %p1, %r3, 0;\n@%p1 bra X;\nX:"), 1,
                 PTX_FAULT_UNDEFINED, 10);
    expect_fault(SHARED_KERNEL("red.global.add.u32 [%rd4], 1;"), 1, PTX_FAULT_UNDEFINED, 9);
    /* what is not chosen need not be defined, and false decides an and alone */
    expect_fault(SHARED_KERNEL("setp.eq.u32 %p1, %r1, %r1; selp.b32 %r3, 1, %r50, %p1; setp.eq.u32 %p2, %r3, 1;\n"
                               "@%p2 bra X;\nX:"),
                 32, PTX_OK, 0);
    expect_fault(SHARED_KERNEL("setp.ne.u32 %p1, %r1, %r1; setp.eq.u32 %p2, %r50, 1; and.pred %p3, %p1, %p2;\n"
                               "@%p3 bra X;\nX:"),
                 32, PTX_OK, 0);
}

#define EXCHANGE(between)                                                                                              \
    SHARED_KERNEL("st.shared.u32 [%r11], %r1;\n" between "\nxor.b32 %r5, %r1, 33; shl.b32 %r6, %r5, 2; "               \
                  "add.u32 %r7, %r10, %r6;\nld.shared.u32 %r8, [%r7];\nst.global.u32 [%rd4], %r8;")

static void test_race_between_warps(void **state)
{
    (void)state;
    expect_fault(EXCHANGE("bar.sync 0;"), 64, PTX_OK, 0);
    expect_fault(EXCHANGE(""), 64, PTX_FAULT_RACE, 0);
    expect_fault(EXCHANGE("bar.warp.sync -1;"), 64, PTX_FAULT_RACE, 0);
    /* the wrong barrier for half of the warps */
    expect_fault(EXCHANGE("shr.u32 %r20, %r1, 5; bar.sync %r20, 32;"), 64, PTX_FAULT_RACE, 0);
    /* writing what others may still read */
    expect_fault(SHARED_KERNEL("st.shared.u32 [%r11], %r1; bar.sync 0; ld.shared.u32 %r8, [%r10+256];\n"
                               "bar.sync 0; st.shared.u32 [%r11], %r8;"),
                 128, PTX_OK, 0);
    expect_fault(SHARED_KERNEL("st.shared.u32 [%r11], %r1; bar.sync 0; ld.shared.u32 %r8, [%r10+256];\n\n"
                               "st.shared.u32 [%r11], %r8;"),
                 128, PTX_FAULT_RACE, 11);
}

static void test_race_in_a_warp(void **state)
{
    (void)state;
#define NEIGHBOUR(between)                                                                                             \
    SHARED_KERNEL("st.shared.u32 [%r11], %r1;\n" between                                                               \
                  "\nxor.b32 %r5, %r2, 4; add.u32 %r7, %r10, %r5;\nld.shared.u32 %r8, [%r7];")
    expect_fault(NEIGHBOUR("bar.warp.sync -1;"), 32, PTX_OK, 0);
    expect_fault(NEIGHBOUR(""), 32, PTX_FAULT_RACE, 12);
    /* exchanges order nothing */
    expect_fault(NEIGHBOUR("shfl.sync.bfly.b32 %r20, %r1, 1, 31, -1;"), 32, PTX_FAULT_RACE, 12);
    /* a barrier of half a warp orders that half */
    expect_fault(SHARED_KERNEL("st.shared.u32 [%r11], %r1; setp.lt.u32 %p1, %r1, 16;\n@!%p1 bra X;\n"
                               "bar.warp.sync 0xffff; xor.b32 %r5, %r2, 4; add.u32 %r7, %r10, %r5;\n"
                               "ld.shared.u32 %r8, [%r7];\nX:"),
                 32, PTX_OK, 0);
    /* two lanes store to one place */
    expect_fault(SHARED_KERNEL("st.shared.u32 [%r10], %r1;"), 32, PTX_FAULT_RACE, 9);
    /* halves of a word are different places */
    expect_fault(SHARED_KERNEL("shl.b32 %r5, %r1, 1; add.u32 %r5, %r10, %r5; cvt.u16.u32 %rs1, %r1; "
                               "st.shared.u16 [%r5], %rs1;"),
                 64, PTX_OK, 0);
    /* atomics do not race with each other, only with plain accesses */
    expect_fault(SHARED_KERNEL("st.shared.u32 [%r11], 0; bar.sync 0; red.shared.add.u32 [%r10], 1; bar.sync 0;\n"
                               "ld.shared.u32 %r8, [%r10];"),
                 128, PTX_OK, 0);
    expect_fault(SHARED_KERNEL("st.shared.u32 [%r11], 0; bar.sync 0; red.shared.add.u32 [%r10], 1;\n"
                               "ld.shared.u32 %r8, [%r10];"),
                 128, PTX_FAULT_RACE, 10);
}

static void test_race_on_global(void **state)
{
    (void)state;
    expect_fault(SHARED_KERNEL("st.global.u32 [%rd4], %r1; bar.sync 0; xor.b32 %r5, %r1, 63; mul.wide.u32 %rd6, %r5, 4;\n"
                               "add.s64 %rd7, %rd2, %rd6; ld.global.u32 %r8, [%rd7];"),
                 64, PTX_OK, 0);
    expect_fault(SHARED_KERNEL("st.global.u32 [%rd4], %r1; xor.b32 %r5, %r1, 63; mul.wide.u32 %rd6, %r5, 4;\n"
                               "add.s64 %rd7, %rd2, %rd6; ld.global.u32 %r8, [%rd7];"),
                 64, PTX_FAULT_RACE, 10);
    expect_fault(SHARED_KERNEL("st.global.u32 [%rd2], %r1;"), 64, PTX_FAULT_RACE, 9);
}

/* The last CTA adds up what the others stored: a fence before the counter and one after it. */
#define LAST_BLOCK(before, after)                                                                                      \
    PTX_KERNEL("mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3;\n"                         \
               "st.global.u32 [%rd4], %r1; " before " atom.global.add.u32 %r5, [%rd1], 1; " after                      \
               "\nsetp.ne.u32 %p1, %r5, 7; @%p1 bra X; mov.u32 %r6, 0; mov.u32 %r7, 0;\n"                             \
               "L: mul.wide.u32 %rd6, %r6, 4; add.s64 %rd7, %rd2, %rd6; ld.global.u32 %r8, [%rd7];\n"                 \
               "add.u32 %r7, %r7, %r8; add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 8; @%p2 bra L;\n"                   \
               "st.global.u32 [%rd2+32], %r7;\nX:")

static bool last_block(const char *text)
{
    uint32_t zero = 0, sum = 0;
    struct ptx_case c = ptx_case_open(text, NULL, &zero, 4, 64);
    bool ok = ptx_case_run(&c, 8, 1);
    if (!ok) assert_int_equal(ptx_fault(c.m), PTX_FAULT_RACE);
    ptx_mem_read(c.m, &sum, c.out + 32, 4);
    if (ok) assert_int_equal(sum, 28);
    ptx_case_close(&c);
    return ok;
}

static void test_race_between_ctas(void **state)
{
    (void)state;
    assert_true(last_block(LAST_BLOCK("membar.gl;", "membar.gl;")));
    assert_true(last_block(LAST_BLOCK("fence.acq_rel.gpu;", "fence.acq_rel.gpu;")));
    assert_false(last_block(LAST_BLOCK("", "membar.gl;")));
    assert_false(last_block(LAST_BLOCK("membar.gl;", "")));
    assert_false(last_block(LAST_BLOCK("membar.cta;", "membar.cta;")));
}

static void test_divergent_collectives(void **state)
{
    (void)state;
    expect_fault(PTX_KERNEL("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16;\n@%p1 bra X;\n"
                            "shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\nX:"),
                 32, PTX_OK, 0); /* the others have exited by then: they are not waited for */
    expect_fault(PTX_KERNEL("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16;\n@%p1 bra X;\n"
                            "shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\nbra Y;\nX:\nbar.sync 0;\nY:"),
                 32, PTX_FAULT_DIVERGENCE, 0);
    expect_fault(PTX_KERNEL("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16;\n"
                            "@%p1 shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;"),
                 32, PTX_FAULT_DIVERGENCE, 9);
    expect_fault(PTX_KERNEL("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16;\n"
                            "@%p1 shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffff;"),
                 32, PTX_OK, 0);
    expect_fault(PTX_KERNEL("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16;\n@%p1 bra X;\nbar.sync 0;\nbra Y;\nX: bar.sync "
                            "0;\nY:"),
                 32, PTX_FAULT_DIVERGENCE, 0);
    /* lanes that part and meet again later are no fault */
    expect_fault(PTX_KERNEL("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16;\n@%p1 bra COLD;\n"
                            "MEET: bar.warp.sync -1; bra Y;\nCOLD: add.u32 %r1, %r1, 1; bra MEET;\nY:"),
                 32, PTX_OK, 0);
}

static void test_deadlock(void **state)
{
    (void)state;
    expect_fault(PTX_KERNEL("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32;\n@%p1 bra X;\nbar.sync 1, 64;\nX:"), 64,
                 PTX_FAULT_DEADLOCK, 10);
    /* one barrier more in one warp: the others have exited, so it falls through */
    expect_fault(PTX_KERNEL("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; bar.sync 0;\n@%p1 bra X;\nbar.sync 0;\nX:"), 64,
                 PTX_OK, 0);
    expect_fault(PTX_KERNEL("L: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"), 1,
                 PTX_FAULT_DEADLOCK, 8);
    struct ptx_options limit = {.max_steps = 10000};
    struct ptx_case c = ptx_case_open(PTX_KERNEL("L: bra L;"), &limit, NULL, 0, 0);
    assert_false(ptx_case_run(&c, 1, 1));
    assert_int_equal(ptx_fault(c.m), PTX_FAULT_LIMIT);
    ptx_case_close(&c);
}

/* CTA 0 waits for a flag that CTA 1 sets: both have to be resident. A lane waits for another of its warp. */
static void test_waits_that_end(void **state)
{
    (void)state;
    uint32_t in[2] = {0, 0};
    struct ptx_case c = ptx_case_open(
        PTX_KERNEL("mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 1;\n@%p1 bra SET;\n"
                   "L: ld.acquire.gpu.global.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra L;\n"
                   "ld.global.u32 %r3, [%rd1+4]; st.global.u32 [%rd2], %r3; bra END;\n"
                   "SET: st.global.u32 [%rd1+4], 42; st.release.gpu.global.u32 [%rd1], 1;\nEND:"),
        NULL, in, sizeof in, 4);
    if (!ptx_case_run(&c, 2, 1)) fail_msg("%s", ptx_report(c.m));
    assert_true(ptx_mem_read(c.m, in, c.out, 4));
    assert_int_equal(in[0], 42);
    ptx_case_close(&c);
    in[0] = 0;
    c = ptx_case_open(PTX_KERNEL("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 5;\n@%p1 bra SET;\n"
                                 "L: ld.volatile.global.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra L;\nbra END;\n"
                                 "SET: st.volatile.global.u32 [%rd1], 1;\nEND:"),
                      NULL, in, sizeof in, 4);
    if (!ptx_case_run(&c, 1, 32)) fail_msg("%s", ptx_report(c.m));
    ptx_case_close(&c);
}

#define COPY(wait)                                                                                                     \
    SHARED_KERNEL("shl.b32 %r12, %r1, 4; add.u32 %r13, %r10, %r12; mul.wide.u32 %rd6, %r12, 1; add.s64 %rd7, %rd1, %rd6;\n" \
                  "cp.async.cg.shared.global [%r13], [%rd7], 16; cp.async.commit_group;\n" wait                        \
                  "\nld.shared.u32 %r20, [%r13+4]; st.global.u32 [%rd4], %r20;")

static void test_cp_async(void **state)
{
    (void)state;
    expect_fault(COPY("cp.async.wait_group 0;"), 64, PTX_OK, 0);
    expect_fault(COPY("cp.async.wait_all;"), 64, PTX_OK, 0);
    expect_fault(COPY(""), 64, PTX_FAULT_ASYNC, 12);
    expect_fault(COPY("cp.async.wait_group 1;"), 64, PTX_FAULT_ASYNC, 12);
    /* others' copies need a barrier after the wait */
    expect_fault(COPY("cp.async.wait_group 0; bar.sync 0; xor.b32 %r13, %r13, 512;"), 64, PTX_OK, 0);
    expect_fault(COPY("cp.async.wait_group 0; xor.b32 %r13, %r13, 512;"), 64, PTX_FAULT_RACE, 0);
    expect_fault(COPY("bar.sync 0; cp.async.wait_group 0; xor.b32 %r13, %r13, 512;"), 64, PTX_FAULT_ASYNC, 0);
    /* sizes: the rest is zero */
    uint32_t in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[2];
    for (int early = 0; early < 2; early++) {
        struct ptx_options o = {.early = early};
        struct ptx_case c = ptx_case_open(
            SHARED_KERNEL("cp.async.ca.shared.global [%r10], [%rd1], 16, 8; cp.async.wait_all;\n"
                          "ld.shared.v2.u32 {%r5, %r6}, [%r10]; ld.shared.v2.u32 {%r7, %r8}, [%r10+8]; add.u32 %r5, %r5, "
                          "%r6; add.u32 %r7, %r7, %r8; st.global.v2.u32 [%rd2], {%r5, %r7};"),
            &o, in, sizeof in, 8);
        if (!ptx_case_run(&c, 1, 1)) fail_msg("%s", ptx_report(c.m));
        assert_true(ptx_mem_read(c.m, out, c.out, 8));
        assert_int_equal(out[0], 3);
        assert_int_equal(out[1], 0);
        ptx_case_close(&c);
    }
}

/* Warp 0 stores, warp 1 reads, an mbarrier between them. */
#define MBARRIER(init, arrive, wait)                                                                                   \
    SHARED_KERNEL(".shared .align 8 .b8 bar[8]; mov.u32 %r30, bar; setp.eq.u32 %p1, %r1, 0; setp.lt.u32 %p5, %r1, 32;\n" \
                  init "\nbar.sync 0;\n@!%p5 bra READ;\nst.shared.u32 [%r11], %r1;\n" arrive "\nbra END;\nREAD:\n" wait \
                  "\nld.shared.u32 %r8, [%r11+-128];\nst.global.u32 [%rd4], %r8;\nEND:")
#define MB_INIT "@%p1 mbarrier.init.shared.b64 [%r30], 32;"
#define MB_ARRIVE "mbarrier.arrive.shared.b64 _, [%r30];"
#define MB_WAIT "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r30], 0; @!%p2 bra W;"

static void test_mbarrier(void **state)
{
    (void)state;
    expect_fault(MBARRIER(MB_INIT, MB_ARRIVE, MB_WAIT), 64, PTX_OK, 0);
    expect_fault(MBARRIER("", MB_ARRIVE, MB_WAIT), 64, PTX_FAULT_ASYNC, 0);
    expect_fault(MBARRIER(MB_INIT, MB_ARRIVE, ""), 64, PTX_FAULT_RACE, 0);
    expect_fault(MBARRIER(MB_INIT, "", MB_WAIT), 64, PTX_FAULT_DEADLOCK, 0);
    expect_fault(MBARRIER(MB_INIT, MB_ARRIVE " " MB_ARRIVE, MB_WAIT), 64, PTX_FAULT_DEADLOCK, 0); /* two phases */
    expect_fault(MBARRIER("@%p1 mbarrier.init.shared.b64 [%r30], 31;", MB_ARRIVE, MB_WAIT), 64, PTX_FAULT_RACE, 0);
    /* the wrong phase: over too early, or never */
    expect_fault(MBARRIER(MB_INIT, MB_ARRIVE, "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r30], 1; @!%p2 bra W;"), 64,
                 PTX_FAULT_DEADLOCK, 0);
    /* one lane signals for its warp: it needs the warp's barrier first */
    expect_fault(MBARRIER("@%p1 mbarrier.init.shared.b64 [%r30], 1;", "bar.warp.sync -1;\n@%p1 " MB_ARRIVE, MB_WAIT), 64,
                 PTX_OK, 0);
    expect_fault(MBARRIER("@%p1 mbarrier.init.shared.b64 [%r30], 1;", "@%p1 " MB_ARRIVE, MB_WAIT), 64, PTX_FAULT_RACE, 0);
}

static void test_barrier_forms(void **state)
{
    (void)state;
    uint32_t out[64];
    struct ptx_case c = ptx_case_open(
        SHARED_KERNEL("setp.lt.u32 %p1, %r1, 40; barrier.red.popc.aligned.u32 %r5, 0, %p1;\n"
                      "barrier.red.and.aligned.pred %p2, 0, %p1; selp.b32 %r6, 100, 200, %p2; add.u32 %r5, %r5, %r6;\n"
                      "st.global.u32 [%rd4], %r5;"),
        NULL, NULL, 0, sizeof out);
    if (!ptx_case_run(&c, 1, 64)) fail_msg("%s", ptx_report(c.m));
    assert_true(ptx_mem_read(c.m, out, c.out, sizeof out));
    for (int i = 0; i < 64; i++) assert_int_equal(out[i], 240);
    ptx_case_close(&c);
    /* a producer that only arrives */
    expect_fault(SHARED_KERNEL("setp.lt.u32 %p1, %r1, 32;\n@!%p1 bra C;\nst.shared.u32 [%r11], %r1; bar.arrive 1, 64;\nbra "
                               "E;\nC: bar.sync 1, 64; ld.shared.u32 %r8, [%r11+-128];\nE:"),
                 64, PTX_OK, 0);
    expect_fault(SHARED_KERNEL("bar.sync 1, 48;"), 64, PTX_FAULT_DIVERGENCE, 9);
    expect_fault(SHARED_KERNEL("bar.sync 16;"), 64, PTX_FAULT_DIVERGENCE, 9);
    expect_fault(SHARED_KERNEL("trap;"), 1, PTX_FAULT_TRAP, 9);
}

static void test_report_text(void **state)
{
    (void)state;
    struct ptx_case c = ptx_case_open(SHARED_KERNEL("st.shared.u32 [%r11+4096], %r1;"), NULL, NULL, 0, 4);
    const void *params[] = {&c.in, &c.out};
    struct ptx_launch l = {.grid = {3, 2, 1}, .block = {8, 8, 1}, .params = params};
    assert_false(ptx_launch(c.m, ptx_module_find(c.mod, "k"), &l));
    assert_non_null(strstr(ptx_report(c.m), "kernel k, PTX line 9, CTA 0,0,0, warp 0 lane 0 (thread 0,0,0)"));
    assert_non_null(strstr(ptx_report(c.m), "st.shared.u32 [%r11+4096], %r1"));
    /* nothing runs until the report was taken */
    assert_false(ptx_launch(c.m, ptx_module_find(c.mod, "k"), &l));
    ptx_case_close(&c);
}

/* Wavefronts are counted as the banks of shared memory serve them. */
static void test_counters(void **state)
{
    (void)state;
    struct ptx_case c = ptx_case_open(SHARED_KERNEL("st.shared.u32 [%r11], %r1; shl.b32 %r12, %r1, 7; add.u32 %r13, %r10, %r12;\n"
                                                    "bar.sync 0; ld.shared.u32 %r8, [%r13]; st.global.u32 [%rd4], %r8;"),
                                      NULL, NULL, 0, 128);
    assert_true(ptx_case_run(&c, 1, 32));
    const struct ptx_counters *n = ptx_counters(c.m);
    assert_int_equal(n->shared_phases, 2);
    assert_int_equal(n->shared_wavefronts, 33);
    assert_int_equal(n->global_sectors, 4);
    assert_int_equal(n->global_bytes, 128);
    assert_int_equal(n->global_distinct, 4);
    assert_int_equal(n->barriers, 1);
    assert_true(ptx_case_run(&c, 1, 32)); /* each launch counts anew */
    assert_int_equal(ptx_counters(c.m)->global_distinct, 8);
    ptx_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),          cmocka_unit_test(test_undefined),
        cmocka_unit_test(test_race_between_warps), cmocka_unit_test(test_race_in_a_warp),
        cmocka_unit_test(test_race_on_global),  cmocka_unit_test(test_race_between_ctas),
        cmocka_unit_test(test_divergent_collectives), cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_waits_that_end),  cmocka_unit_test(test_cp_async),
        cmocka_unit_test(test_mbarrier),        cmocka_unit_test(test_barrier_forms),
        cmocka_unit_test(test_report_text),     cmocka_unit_test(test_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
