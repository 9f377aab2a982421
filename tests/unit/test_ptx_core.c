// SPDX-License-Identifier: Apache-2.0
/* The PTX machine: integers, floats, conversions, memory, control flow. Expected values are worked out by hand
 * from the definition of each instruction, or taken from the IEEE formats. */
#include "tests/unit/ptx_test.h"

/* One instruction: sources a, b, c lie in %rd1x, %rx and %rsx (x = 1..3), the result comes from `from`. */
struct row {
    const char *text, *from;
    uint64_t a, b, c, want;
};

static const struct row rows[] = {
    {"add.s32 %r0, %r1, %r2;", "r", 0x7fffffff, 1, 0, 0x80000000},
    {"add.s64 %rd0, %rd11, %rd12;", "rd", 0xffffffff, 1, 0, 0x100000000},
    {"add.s16 %rs0, %rs1, %rs2;", "rs", 0xffff, 2, 0, 1},
    {"add.sat.s32 %r0, %r1, %r2;", "r", 0x7fffffff, 1, 0, 0x7fffffff},
    {"sub.s32 %r0, %r1, %r2;", "r", 3, 5, 0, 0xfffffffe},
    {"mul.lo.s32 %r0, %r1, %r2;", "r", 0x10001, 0x10001, 0, 0x20001},
    {"mul.hi.u32 %r0, %r1, %r2;", "r", 0x80000000, 6, 0, 3},
    {"mul.hi.s32 %r0, %r1, %r2;", "r", 0x80000000, 6, 0, 0xfffffffd},
    {"mul.wide.s32 %rd0, %r1, %r2;", "rd", 0xffffffff, 7, 0, 0xfffffffffffffff9},
    {"mul.wide.u16 %r0, %rs1, %rs2;", "r", 0xffff, 0xffff, 0, 0xfffe0001},
    {"mul.hi.u64 %rd0, %rd11, %rd12;", "rd", 0xffffffffffffffff, 0xffffffffffffffff, 0, 0xfffffffffffffffe},
    {"mul.hi.s64 %rd0, %rd11, %rd12;", "rd", 0xffffffffffffffff, 0xffffffffffffffff, 0, 0},
    {"mad.lo.s32 %r0, %r1, %r2, %r3;", "r", 7, 6, 0xffffffff, 41},
    {"mad.wide.u32 %rd0, %r1, %r2, %rd13;", "rd", 0xffffffff, 2, 3, 0x200000001},
    {"div.s32 %r0, %r1, %r2;", "r", 0xfffffff9, 2, 0, 0xfffffffd}, /* -7 / 2 = -3 */
    {"div.u32 %r0, %r1, %r2;", "r", 7, 0, 0, 0xffffffff},
    {"div.s32 %r0, %r1, %r2;", "r", 0x80000000, 0xffffffff, 0, 0x80000000},
    {"rem.s32 %r0, %r1, %r2;", "r", 0xfffffff9, 2, 0, 0xffffffff},
    {"rem.u64 %rd0, %rd11, %rd12;", "rd", 1000000000007, 10, 0, 7},
    {"min.s32 %r0, %r1, %r2;", "r", 0xffffffff, 1, 0, 0xffffffff},
    {"max.u16 %rs0, %rs1, %rs2;", "rs", 0xffff, 1, 0, 0xffff},
    {"abs.s32 %r0, %r1;", "r", 0xfffffffb, 0, 0, 5},
    {"neg.s64 %rd0, %rd11;", "rd", 1, 0, 0, 0xffffffffffffffff},
    {"sad.u32 %r0, %r1, %r2, %r3;", "r", 3, 10, 100, 107},
    {"not.b32 %r0, %r1;", "r", 0xf0f0f0f0, 0, 0, 0x0f0f0f0f},
    {"cnot.b32 %r0, %r1;", "r", 0, 0, 0, 1},
    {"lop3.b32 %r0, %r1, %r2, %r3, 0x96;", "r", 0xff00ff00, 0xf0f0f0f0, 0xcccccccc, 0xc33cc33c}, /* a ^ b ^ c */
    {"lop3.b32 %r0, %r1, %r2, %r3, 0xe8;", "r", 12, 10, 6, 14}, /* majority */
    {"shl.b32 %r0, %r1, %r2;", "r", 1, 31, 0, 0x80000000},
    {"shl.b32 %r0, %r1, %r2;", "r", 1, 32, 0, 0},
    {"shr.s32 %r0, %r1, %r2;", "r", 0x80000000, 40, 0, 0xffffffff},
    {"shr.u16 %rs0, %rs1, %r2;", "rs", 0x8000, 15, 0, 1},
    {"shf.l.wrap.b32 %r0, %r1, %r2, %r3;", "r", 0x80000001, 0x12345678, 4, 0x23456788},
    {"shf.r.clamp.b32 %r0, %r1, %r2, %r3;", "r", 0x80000001, 0x12345678, 8, 0x78800000},
    {"bfe.u32 %r0, %r1, %r2, %r3;", "r", 0xabcd1234, 8, 8, 0x12},
    {"bfe.s32 %r0, %r1, %r2, %r3;", "r", 0x0000f000, 8, 8, 0xfffffff0},
    {"bfi.b32 %r0, %r1, %r2, 8, 4;", "r", 0xff, 0, 0, 0xf00},
    {"popc.b32 %r0, %r1;", "r", 0xf00f0001, 0, 0, 9},
    {"clz.b32 %r0, %r1;", "r", 0x00010000, 0, 0, 15},
    {"bfind.u32 %r0, %r1;", "r", 0x00010000, 0, 0, 16},
    {"brev.b32 %r0, %r1;", "r", 0x00000003, 0, 0, 0xc0000000},
    {"prmt.b32 %r0, %r1, %r2, 0x7531;", "r", 0x33221100, 0x77665544, 0, 0x77553311},
    {"prmt.b32 %r0, %r1, %r2, 0x0098;", "r", 0x00008000, 0, 0, 0x0000ff00},
    {"dp4a.s32.s32 %r0, %r1, %r2, %r3;", "r", 0x01ff0203, 0x02030405, 10, 10 + 2 - 3 + 8 + 15},
    {"dp4a.u32.u32 %r0, %r1, %r2, %r3;", "r", 0x01ff0203, 0x02030405, 10, 10 + 2 + 765 + 8 + 15},
    {"add.cc.u32 %r0, %r1, %r2; addc.u32 %r0, 0, 0;", "r", 0xffffffff, 1, 0, 1},
    {"sub.cc.u32 %r0, %r1, %r2; subc.u32 %r0, 7, 0;", "r", 0, 1, 0, 6},
    {"mad.lo.cc.u32 %r0, %r1, %r2, %r3; madc.hi.u32 %r0, %r1, %r2, 0;", "r", 0xffffffff, 1, 1, 1},
    /* f32: 1.5 = 3fc00000, 2.25 = 40100000, -0.375 */
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; add.f32 %f0, %f1, %f2; mov.b32 %r0, %f0;", "r", 0x3fc00000, 0x40100000, 0,
     0x40700000},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; mul.f32 %f0, %f1, %f2; mov.b32 %r0, %f0;", "r", 0x3fc00000, 0x40100000, 0,
     0x40580000},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; fma.rn.f32 %f0, %f1, %f2, %f1; mov.b32 %r0, %f0;", "r", 0x3fc00000,
     0x40100000, 0, 0x409c0000},
    /* 1 + 2^-24 to each side: the sum's sticky bit decides directed roundings */
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; add.rp.f32 %f0, %f1, %f2; mov.b32 %r0, %f0;", "r", 0x3f800000, 0x00000001, 0,
     0x3f800001},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; add.rz.f32 %f0, %f1, %f2; mov.b32 %r0, %f0;", "r", 0x3f800000, 0x80000001, 0,
     0x3f7fffff},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; add.ftz.f32 %f0, %f1, %f2; mov.b32 %r0, %f0;", "r", 0x00000001, 0x00000001, 0,
     0},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; add.sat.f32 %f0, %f1, %f2; mov.b32 %r0, %f0;", "r", 0x3fc00000, 0x40100000, 0,
     0x3f800000},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; min.f32 %f0, %f1, %f2; mov.b32 %r0, %f0;", "r", 0x7fc00000, 0x40100000, 0,
     0x40100000},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; max.NaN.f32 %f0, %f1, %f2; mov.b32 %r0, %f0;", "r", 0x7fc00000, 0x40100000,
     0, 0x7fffffff},
    {"mov.b32 %f1, %r1; rcp.rn.f32 %f0, %f1; mov.b32 %r0, %f0;", "r", 0x40400000, 0, 0, 0x3eaaaaab},
    {"mov.b32 %f1, %r1; sqrt.rn.f32 %f0, %f1; mov.b32 %r0, %f0;", "r", 0x40000000, 0, 0, 0x3fb504f3},
    {"mov.b32 %f1, %r1; abs.f32 %f0, %f1; mov.b32 %r0, %f0;", "r", 0xc0400000, 0, 0, 0x40400000},
    {"mov.b32 %f1, %r1; ex2.approx.f32 %f0, %f1; mov.b32 %r0, %f0;", "r", 0x40400000, 0, 0, 0x41000000},
    /* f16: 1.5 = 3e00, 65504 = 7bff; 2^-24 is the least */
    {"add.f16 %rs0, %rs1, %rs2;", "rs", 0x3e00, 0x3c00, 0, 0x4100},
    {"add.f16 %rs0, %rs1, %rs2;", "rs", 0x7bff, 0x4c00, 0, 0x7c00}, /* 65504 + 16 ties to infinity */
    {"add.f16 %rs0, %rs1, %rs2;", "rs", 0x7bff, 0x4b00, 0, 0x7bff},
    {"fma.rn.f16 %rs0, %rs1, %rs2, %rs3;", "rs", 0x3c01, 0x3c01, 0x0001, 0x3c02},
    {"mul.f16x2 %r0, %r1, %r2;", "r", 0x3c004000, 0xbc004200, 0, 0xbc004600},
    {"fma.rn.relu.f16x2 %r0, %r1, %r2, %r3;", "r", 0x3c003c00, 0xbc003c00, 0, 0x00003c00},
    {"fma.rn.bf16x2 %r0, %r1, %r2, %r3;", "r", 0x3f804000, 0x3f804040, 0x3f800000, 0x400040c0},
    /* conversions */
    {"cvt.rn.f32.s32 %f0, %r1; mov.b32 %r0, %f0;", "r", 0x01000001, 0, 0, 0x4b800000},
    {"cvt.rz.f32.u32 %f0, %r1; mov.b32 %r0, %f0;", "r", 0xffffffff, 0, 0, 0x4f7fffff},
    {"cvt.rn.f32.u64 %f0, %rd11; mov.b32 %r0, %f0;", "r", 0x8000008000000001, 0, 0, 0x5f000001},
    {"mov.b32 %f1, %r1; cvt.rzi.s32.f32 %r0, %f1;", "r", 0xc0200000, 0, 0, 0xfffffffe}, /* -2.5 */
    {"mov.b32 %f1, %r1; cvt.rni.s32.f32 %r0, %f1;", "r", 0x40200000, 0, 0, 2},
    {"mov.b32 %f1, %r1; cvt.rpi.s32.f32 %r0, %f1;", "r", 0x40200000, 0, 0, 3},
    {"mov.b32 %f1, %r1; cvt.rzi.s32.f32 %r0, %f1;", "r", 0x7fc00000, 0, 0, 0},
    {"mov.b32 %f1, %r1; cvt.rzi.u8.f32 %r0, %f1;", "r", 0x43960000, 0, 0, 255}, /* 300 */
    {"mov.b32 %f1, %r1; cvt.rn.f16.f32 %rs0, %f1;", "rs", 0x3f801000, 0, 0, 0x3c00}, /* a tie, to even */
    {"mov.b32 %f1, %r1; cvt.rn.f16.f32 %rs0, %f1;", "rs", 0x3f803000, 0, 0, 0x3c02},
    {"mov.b32 %f1, %r1; cvt.rn.f16.f32 %rs0, %f1;", "rs", 0x33800000, 0, 0, 0x0001},
    {"mov.b32 %f1, %r1; cvt.rn.f16.f32 %rs0, %f1;", "rs", 0x47800000, 0, 0, 0x7c00},
    {"mov.b32 %f1, %r1; cvt.rn.satfinite.f16.f32 %rs0, %f1;", "rs", 0x47800000, 0, 0, 0x7bff},
    {"cvt.f32.f16 %f0, %rs1; mov.b32 %r0, %f0;", "r", 0x0001, 0, 0, 0x33800000},
    {"cvt.f32.f16 %f0, %rs1; mov.b32 %r0, %f0;", "r", 0xfc00, 0, 0, 0xff800000},
    {"mov.b32 %f1, %r1; cvt.rn.bf16.f32 %rs0, %f1;", "rs", 0x3f808000, 0, 0, 0x3f80},
    {"mov.b32 %f1, %r1; cvt.rn.bf16.f32 %rs0, %f1;", "rs", 0x3f818000, 0, 0, 0x3f82},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rn.bf16x2.f32 %r0, %f1, %f2;", "r", 0x3f800000, 0x40000000, 0, 0x3f804000},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rn.f16x2.f32 %r0, %f1, %f2;", "r", 0x3f800000, 0x40000000, 0, 0x3c004000},
    {"mov.b32 %f1, %r1; cvt.rna.tf32.f32 %r0, %f1;", "r", 0x3f801000, 0, 0, 0x3f802000},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rn.satfinite.e4m3x2.f32 %rs0, %f1, %f2;", "rs", 0x3f800000, 0x447a0000, 0,
     0x387e}, /* 1 and 1000, which is clamped to 448 */
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rn.satfinite.e4m3x2.f32 %rs0, %f1, %f2;", "rs", 0x3b000000, 0x7fc00000, 0,
     0x017f}, /* 2^-9, the least; NaN */
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rn.satfinite.e5m2x2.f32 %rs0, %f1, %f2;", "rs", 0x3fa00000, 0xc7800000, 0,
     0x3dfb},
    {"cvt.rn.f16x2.e4m3x2 %r0, %rs1;", "r", 0x7e38, 0, 0, 0x5f003c00},
    {"cvt.rn.f16x2.e5m2x2 %r0, %rs1;", "r", 0x3d01, 0, 0, 0x3d000100},
    {"cvt.s32.s8 %r0, %r1;", "r", 0x1ff, 0, 0, 0xffffffff},
    {"cvt.u32.u16 %r0, %rs1;", "r", 0xffff, 0, 0, 0xffff},
    {"cvt.sat.s8.s32 %r0, %r1;", "r", 0xfffffe00, 0, 0, 0xffffff80},
    {"cvt.sat.u8.s32 %r0, %r1;", "r", 0xfffffe00, 0, 0, 0},
    {"cvt.s64.s32 %rd0, %r1;", "rd", 0x80000000, 0, 0, 0xffffffff80000000},
    {"cvt.pack.sat.s8.s32.b32 %r0, %r1, %r2, %r3;", "r", 200, 0xffffff00, 0x1234, 0x12347f80},
    /* comparisons */
    {"setp.lt.s32 %p0, %r1, %r2; selp.b32 %r0, 1, 2, %p0;", "r", 0xffffffff, 0, 0, 1},
    {"setp.lt.u32 %p0, %r1, %r2; selp.b32 %r0, 1, 2, %p0;", "r", 0xffffffff, 0, 0, 2},
    {"mov.b32 %f1, %r1; setp.neu.f32 %p0, %f1, %f1; selp.b32 %r0, 1, 2, %p0;", "r", 0x7fc00000, 0, 0, 1},
    {"mov.b32 %f1, %r1; setp.ne.f32 %p0, %f1, %f1; selp.b32 %r0, 1, 2, %p0;", "r", 0x7fc00000, 0, 0, 2},
    {"setp.eq.s32 %p1, 1, 1; setp.gt.and.s32 %p0|%p2, %r1, %r2, %p1; selp.b32 %r0, 1, 0, %p0; selp.b32 %r4, 2, 0, %p2; "
     "or.b32 %r0, %r0, %r4;", "r", 1, 2, 0, 2},
    {"set.gt.u32.s32 %r0, %r1, %r2;", "r", 2, 1, 0, 0xffffffff},
    {"slct.b32.s32 %r0, %r1, %r2, %r3;", "r", 5, 6, 0xffffffff, 6},
    {"mov.b32 {%rs4, %rs5}, %r1; mov.b32 %r0, {%rs5, %rs4};", "r", 0x12345678, 0, 0, 0x56781234},
    {"mov.b64 {%r4, %r5}, %rd11; sub.s32 %r0, %r5, %r4;", "r", 0x900000004, 0, 0, 5},
    {"mov.b32 %f1, %r1; testp.subnormal.f32 %p0, %f1; selp.b32 %r0, 1, 0, %p0;", "r", 0x00400000, 0, 0, 1},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; copysign.f32 %f0, %f1, %f2; mov.b32 %r0, %f0;", "r", 0x80000000, 0x3f800000, 0,
     0xbf800000},
    /* f64 */
    {"mov.b64 %rd20, 0d3FF8000000000000; add.f64 %rd0, %rd11, %rd20;", "rd", 0x3ff0000000000000, 0, 0, 0x4004000000000000},
    {"cvt.rn.f32.f64 %f0, %rd11; mov.b32 %r0, %f0;", "r", 0x3ff0000010000000, 0, 0, 0x3f800000},
    {"cvt.f64.f32 %rd0, %r1;", "rd", 0x3fc00000, 0, 0, 0x3ff8000000000000},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static char *rows_text(void)
{
    size_t cap = 512 + N_ROWS * 700, at = 0;
    char *t = malloc(cap);
    assert_non_null(t);
    at += (size_t)snprintf(t, cap, PTX_HEAD ".visible .entry k(.param .u64 k_in, .param .u64 k_out)\n{\n"
                                            ".reg .b64 %%i, %%o;\nld.param.u64 %%i, [k_in]; ld.param.u64 %%o, [k_out];\n");
    for (int i = 0; i < N_ROWS; i++) {
        bool wide = !strcmp(rows[i].from, "rd"), narrow = !strcmp(rows[i].from, "rs");
        at += (size_t)snprintf(
            t + at, cap - at,
            "{ .reg .pred %%p<9>; .reg .b16 %%rs<9>; .reg .b32 %%r<9>; .reg .f32 %%f<9>; .reg .b64 %%rd<30>;\n"
            "ld.global.v2.u64 {%%rd11, %%rd12}, [%%i+%d]; ld.global.u64 %%rd13, [%%i+%d];\n"
            "cvt.u32.u64 %%r1, %%rd11; cvt.u32.u64 %%r2, %%rd12; cvt.u32.u64 %%r3, %%rd13;\n"
            "cvt.u16.u64 %%rs1, %%rd11; cvt.u16.u64 %%rs2, %%rd12; cvt.u16.u64 %%rs3, %%rd13;\n%s\n%s"
            "st.global.u64 [%%o+%d], %%rd0; }\n",
            i * 32, i * 32 + 16, rows[i].text,
            wide ? "" : narrow ? "cvt.u64.u16 %rd0, %rs0;\n" : "cvt.u64.u32 %rd0, %r0;\n", i * 8);
        assert_true(at < cap);
    }
    snprintf(t + at, cap - at, "ret;\n}\n");
    return t;
}

static void test_rows(void **state)
{
    (void)state;
    uint64_t in[N_ROWS * 4] = {0}, out[N_ROWS];
    char *text = rows_text();
    for (int i = 0; i < N_ROWS; i++) {
        in[i * 4] = rows[i].a;
        in[i * 4 + 1] = rows[i].b;
        in[i * 4 + 2] = rows[i].c;
    }
    struct ptx_case c = ptx_case_open(text, NULL, in, sizeof in, sizeof out);
    if (!ptx_case_run(&c, 1, 1)) fail_msg("%s", ptx_report(c.m));
    assert_true(ptx_mem_read(c.m, out, c.out, sizeof out));
    for (int i = 0; i < N_ROWS; i++)
        if (out[i] != rows[i].want)
            fail_msg("%s of %llx, %llx, %llx gives %llx, not %llx", rows[i].text, (unsigned long long)rows[i].a,
                     (unsigned long long)rows[i].b, (unsigned long long)rows[i].c, (unsigned long long)out[i],
                     (unsigned long long)rows[i].want);
    ptx_case_close(&c);
    free(text);
}

/* Every f16 through f32 and back, and every f32 step between two f16 values rounds to the nearer. */
static void test_f16_all(void **state)
{
    (void)state;
    static const char text[] = PTX_KERNEL("mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
                                          "mad.lo.u32 %r4, %r1, %r2, %r3; cvt.u16.u32 %rs1, %r4;\n"
                                          "cvt.f32.f16 %f1, %rs1; cvt.rn.f16.f32 %rs2, %f1;\n"
                                          "mul.wide.u32 %rd3, %r4, 2; add.s64 %rd4, %rd2, %rd3;\n"
                                          "st.global.u16 [%rd4], %rs2;");
    static uint16_t out[65536];
    struct ptx_case c = ptx_case_open(text, NULL, NULL, 0, sizeof out);
    if (!ptx_case_run(&c, 256, 256)) fail_msg("%s", ptx_report(c.m));
    assert_true(ptx_mem_read(c.m, out, c.out, sizeof out));
    for (unsigned i = 0; i < 65536; i++) {
        bool nan = (i & 0x7fff) > 0x7c00;
        assert_int_equal(out[i], nan ? 0x7fff : i);
    }
    ptx_case_close(&c);
}

/* Lanes part at a branch, loop different numbers of times and meet again for a sum over the warp. */
static void test_divergence(void **state)
{
    (void)state;
    static const char text[] = PTX_KERNEL("mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, 0;\n"
                                          "and.b32 %r4, %r1, 1; setp.eq.s32 %p1, %r4, 0; @%p1 bra EVEN;\n"
                                          "ODD: add.s32 %r2, %r2, 2; add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r1;\n"
                                          "@%p2 bra ODD; bra JOIN;\n"
                                          "EVEN: add.s32 %r2, %r1, 100;\n"
                                          "JOIN: shfl.sync.bfly.b32 %r5, %r2, 1, 31, -1; add.s32 %r6, %r2, %r5;\n"
                                          "mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r6;");
    uint32_t out[32];
    struct ptx_case c = ptx_case_open(text, NULL, NULL, 0, sizeof out);
    if (!ptx_case_run(&c, 1, 32)) fail_msg("%s", ptx_report(c.m));
    assert_true(ptx_mem_read(c.m, out, c.out, sizeof out));
    for (uint32_t i = 0; i < 32; i++) assert_int_equal(out[i], (i & ~1u) + 100 + (i | 1) * 2);
    ptx_case_close(&c);
}

static void test_switch_and_local(void **state)
{
    (void)state;
    static const char text[] =
        PTX_HEAD ".const .align 4 .b8 tab[12] = {1, 0, 0, 0, 2, 0, 0, 0, 3};\n.global .align 4 .u32 g = 1000;\n"
                 ".visible .entry k(.param .u64 k_in, .param .u64 k_out)\n{\n"
                 ".local .align 4 .b8 depot[16]; .reg .b32 %r<20>; .reg .b64 %rd<20>;\n"
                 "ld.param.u64 %rd2, [k_out]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; mov.u64 %rd5, depot; "
                 "cvta.local.u64 %rd6, %rd5; mul.wide.u32 %rd7, %r2, 4; add.s64 %rd8, %rd6, %rd7;\n"
                 "st.local.u32 [depot+12], 77; mov.u32 %r3, 5; st.u32 [%rd8], %r3;\n"
                 "TABLE: .branchtargets A, B, C, D;\n"
                 "brx.idx %r2, TABLE;\n"
                 "A: ld.const.u32 %r4, [tab+8]; bra.uni E;\nB: ld.local.u32 %r4, [depot+4]; bra.uni E;\n"
                 "C: ld.local.u32 %r4, [depot+12]; bra.uni E;\nD: ld.global.u32 %r4, [g];\n"
                 "E: mul.wide.u32 %rd9, %r1, 4; add.s64 %rd10, %rd2, %rd9; st.global.u32 [%rd10], %r4; ret;\n}\n";
    static const uint32_t want[4] = {3, 5, 77, 1000};
    uint32_t out[32];
    struct ptx_case c = ptx_case_open(text, NULL, NULL, 0, sizeof out);
    if (!ptx_case_run(&c, 1, 32)) fail_msg("%s", ptx_report(c.m));
    assert_true(ptx_mem_read(c.m, out, c.out, sizeof out));
    for (uint32_t i = 0; i < 32; i++) assert_int_equal(out[i], want[i & 3]);
    ptx_case_close(&c);
}

static void test_warp_exchanges(void **state)
{
    (void)state;
    static const char text[] = PTX_KERNEL(
        "mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 7; setp.lt.u32 %p1, %r2, 3;\n"
        "vote.sync.ballot.b32 %r3, %p1, -1; match.any.sync.b32 %r4, %r2, -1; redux.sync.add.s32 %r5, %r1, -1;\n"
        "shfl.sync.up.b32 %r6|%p2, %r1, 3, 0, -1; shfl.sync.idx.b32 %r7, %r1, 9, 0x181f, -1;\n"
        "shfl.sync.down.b32 %r8, %r1, 2, 31, -1; elect.sync %r9|%p3, -1; selp.b32 %r10, 1, 0, %p3;\n"
        "redux.sync.max.s32 %r11, %r2, -1; selp.b32 %r12, 1, 0, %p2;\n"
        "mul.wide.u32 %rd3, %r1, 40; add.s64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r3; st.global.u32 [%rd4+4], %r4;\n"
        "st.global.u32 [%rd4+8], %r5; st.global.u32 [%rd4+12], %r6; st.global.u32 [%rd4+16], %r7;\n"
        "st.global.u32 [%rd4+20], %r8; st.global.u32 [%rd4+24], %r10; st.global.u32 [%rd4+28], %r11; "
        "st.global.u32 [%rd4+32], %r12;");
    uint32_t out[32][10];
    unsigned elected = 0;
    struct ptx_case c = ptx_case_open(text, NULL, NULL, 0, sizeof out);
    if (!ptx_case_run(&c, 1, 32)) fail_msg("%s", ptx_report(c.m));
    assert_true(ptx_mem_read(c.m, out, c.out, sizeof out));
    for (uint32_t i = 0; i < 32; i++) {
        assert_int_equal(out[i][0], 0x07070707);
        assert_int_equal(out[i][1], 0x01010101u << (i & 7));
        assert_int_equal(out[i][2], 496);
        assert_int_equal(out[i][3], i < 3 ? i : i - 3);
        assert_int_equal(out[i][4], (i & 24) + 1); /* lane 1 of segments of eight */
        assert_int_equal(out[i][5], i < 30 ? i + 2 : i);
        elected += out[i][6];
        assert_int_equal(out[i][7], 7);
        assert_int_equal(out[i][8], i >= 3);
    }
    assert_int_equal(elected, 1);
    ptx_case_close(&c);
}

static void test_atomics(void **state)
{
    (void)state;
    static const char text[] = PTX_KERNEL(
        "mov.u32 %r1, %tid.x; atom.global.add.u32 %r2, [%rd1], 3; red.global.max.u32 [%rd1+4], %r1;\n"
        "atom.global.inc.u32 %r3, [%rd1+8], 9; mov.b32 %f1, 0f3F800000; red.global.add.f32 [%rd1+12], %f1;\n"
        "atom.global.cas.b32 %r4, [%rd1+16], 16, 99; atom.global.exch.b32 %r5, [%rd1+20], %r1;\n"
        "mov.b32 %r6, 0x3c003c00; red.global.add.noftz.f16x2 [%rd1+24], %r6; mov.u64 %rd5, 5;\n"
        "red.global.add.u64 [%rd1+32], %rd5;");
    uint32_t in[16] = {0, 0, 0, 0, 16, 0, 0x40000000, 0};
    struct ptx_case c = ptx_case_open(text, NULL, in, sizeof in, 16);
    if (!ptx_case_run(&c, 2, 64)) fail_msg("%s", ptx_report(c.m));
    assert_true(ptx_mem_read(c.m, in, c.in, sizeof in));
    assert_int_equal(in[0], 3 * 128);
    assert_int_equal(in[1], 63);
    assert_int_equal(in[2], 128 % 10);
    assert_int_equal(in[3], 0x43000000); /* 128.0f */
    assert_int_equal(in[4], 99);
    assert_true(in[5] < 64);
    assert_int_equal(in[6], 0x58105800); /* 2 + 128 and 128 */
    assert_int_equal(in[8], 5 * 128);
    ptx_case_close(&c);
}

static void expect_parse_error(const char *text, const char *part)
{
    struct ptx_machine *m = ptx_machine_create(NULL);
    assert_null(ptx_module_load(m, text));
    assert_int_equal(ptx_fault(m), PTX_FAULT_PARSE);
    if (!strstr(ptx_report(m), part)) fail_msg("'%s' has no '%s'", ptx_report(m), part);
    ptx_machine_destroy(m);
}

static void test_parse_errors(void **state)
{
    (void)state;
    expect_parse_error("hello", "unsupported at module level");
    expect_parse_error("", "no .target");
    expect_parse_error(PTX_KERNEL("frobnicate.b32 %r1, %r2;"), "line 8: unsupported instruction 'frobnicate.b32'");
    expect_parse_error(PTX_KERNEL("add.wobbly.s32 %r1, %r2, %r3;"), "unsupported word '.wobbly'");
    expect_parse_error(PTX_KERNEL("add.s32 %r1, %r2;"), "operands missing");
    expect_parse_error(PTX_KERNEL("add.s32 %r1, %r2, %r3, %r4;"), "too many operands");
    expect_parse_error(PTX_KERNEL("add.s32 %r1, %rd2, %r3;"), "operand width");
    expect_parse_error(PTX_KERNEL("add.s32 %r1, %r99, %r3;"), "unknown name '%r99'");
    expect_parse_error(PTX_KERNEL("bra NOWHERE;"), "no label 'NOWHERE'");
    expect_parse_error(PTX_KERNEL("mul.s32 %r1, %r2, %r3;"), "neither .lo nor .hi nor .wide");
    expect_parse_error(PTX_KERNEL("ld.global.v4.u32 {%r1, %r2}, [%rd1];"), "vector of the wrong length");
    expect_parse_error(PTX_HEAD ".visible .entry k() { .reg .b32 %r<99999999>; ret; }", "too many registers");
    expect_parse_error(PTX_HEAD ".visible .entry k() { {{{{{{", "");
    expect_parse_error(PTX_HEAD ".shared .align 3 .b8 x[4];", "bad alignment");
}

static void test_launch_errors(void **state)
{
    (void)state;
    static const char text[] = PTX_HEAD ".visible .entry k() .maxntid 64, 1, 1 { ret; }\n"
                                        ".visible .entry big() { .shared .align 4 .b8 s[49152]; ret; }";
    struct ptx_machine *m = ptx_machine_create(&(struct ptx_options){.sm = 86});
    struct ptx_module *mod = ptx_module_load(m, text);
    assert_non_null(mod);
    assert_null(ptx_module_find(mod, "absent"));
    struct ptx_launch l = {.grid = {1, 1, 1}, .block = {65, 1, 1}};
    assert_false(ptx_launch(m, ptx_module_find(mod, "k"), &l));
    assert_int_equal(ptx_fault(m), PTX_FAULT_LAUNCH);
    ptx_report_clear(m);
    l.block.x = 64;
    assert_true(ptx_launch(m, ptx_module_find(mod, "k"), &l));
    l.dynamic_shared_bytes = 60000;
    assert_false(ptx_launch(m, ptx_module_find(mod, "big"), &l));
    ptx_report_clear(m);
    l.dynamic_shared_bytes = 0;
    l.cluster = (struct ptx_dim){2, 1, 1};
    assert_false(ptx_launch(m, ptx_module_find(mod, "k"), &l));
    ptx_report_clear(m);
    struct ptx_module *hopper = ptx_module_load(m, PTX_HEAD_90 ".visible .entry k() { ret; }");
    assert_non_null(hopper);
    assert_false(ptx_launch(m, ptx_module_find(hopper, "k"), &(struct ptx_launch){.grid = {1, 1, 1}, .block = {1, 1, 1}}));
    assert_non_null(strstr(ptx_report(m), "built for sm_90a, the device is sm_86"));
    ptx_machine_destroy(m);
}

static void test_device_memory(void **state)
{
    (void)state;
    struct ptx_machine *m = ptx_machine_create(&(struct ptx_options){.memory_bytes = 1 << 20});
    uint64_t a = ptx_mem_alloc(m, 1000), b = ptx_mem_alloc(m, 1000), base;
    size_t bytes;
    uint32_t v = 5;
    assert_int_equal(a % 256, 0);
    assert_true(b >= a + 1000);
    assert_int_equal(ptx_mem_undefined(m, a, 1000), 1000);
    assert_true(ptx_mem_fill(m, a, 0x01020304, 4, 10));
    assert_int_equal(ptx_mem_undefined(m, a, 1000), 960);
    assert_true(ptx_mem_copy(m, b + 100, a, 40));
    assert_true(ptx_mem_read(m, &v, b + 104, 4));
    assert_int_equal(v, 0x01020304);
    assert_true(ptx_mem_find(m, b + 999, &base, &bytes) && base == b && bytes == 1000);
    assert_false(ptx_mem_find(m, b + 1000, &base, &bytes));
    assert_false(ptx_mem_write(m, a + 998, &v, 4));
    ptx_report_clear(m);
    assert_int_equal(ptx_mem_alloc(m, 2 << 20), 0);
    assert_int_equal(ptx_fault(m), PTX_FAULT_MEMORY);
    ptx_report_clear(m);
    assert_true(ptx_mem_free(m, a));
    assert_false(ptx_mem_free(m, a));
    ptx_machine_destroy(m);
}

/* An allocation that begins and ends where it was asked for, and what a launch does there. */
static void test_placed_memory(void **state)
{
    (void)state;
    struct ptx_machine *m = ptx_machine_create(&(struct ptx_options){.touches = true});
    struct ptx_module *mod = ptx_module_load(m, PTX_KERNEL("ld.global.u16 %rs1, [%rd1+2]; st.global.u16 [%rd2], %rs1;"));
    struct ptx_kernel *k = mod ? ptx_module_find(mod, "k") : NULL;
    uint64_t in = ptx_mem_next(m) + 6, out = in + 8192 + 4;
    const void *params[] = {&in, &out};
    struct ptx_launch l = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .params = params};
    uint8_t bits[4];
    assert_non_null(k);
    assert_true(ptx_mem_place(m, in, 4));
    assert_false(ptx_mem_place(m, in + 8, 4));
    ptx_report_clear(m);
    assert_true(ptx_mem_place(m, out, 2));
    assert_true(ptx_mem_write(m, in, "abc", 4));
    assert_true(ptx_launch(m, k, &l));
    assert_true(ptx_mem_touched(m, bits, in, 4));
    assert_memory_equal(bits, ((uint8_t[]){PTX_DEFINED, PTX_DEFINED, PTX_DEFINED | PTX_READ, PTX_DEFINED | PTX_READ}), 4);
    assert_true(ptx_mem_touched(m, bits, out, 2));
    assert_memory_equal(bits, ((uint8_t[]){PTX_DEFINED | PTX_WRITTEN, PTX_DEFINED | PTX_WRITTEN}), 2);
    in += 2;
    assert_false(ptx_launch(m, k, &l));
    assert_int_equal(ptx_fault(m), PTX_FAULT_BOUNDS);
    ptx_machine_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),           cmocka_unit_test(test_f16_all),
        cmocka_unit_test(test_divergence),     cmocka_unit_test(test_switch_and_local),
        cmocka_unit_test(test_warp_exchanges), cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_parse_errors),   cmocka_unit_test(test_launch_errors),
        cmocka_unit_test(test_device_memory), cmocka_unit_test(test_placed_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
