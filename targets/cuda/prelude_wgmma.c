// SPDX-License-Identifier: Apache-2.0
/*
 * The loop over K by wgmma, which sm_90a alone has: the CTA's four warps are one warpgroup, which multiplies a tile straight from
 * shared memory. Stages and their swizzle are those of print_cta.c: 64 bytes a row and 16-byte pieces at c ^ (r / 2 % 4) are
 * the layout that a descriptor calls 64-byte swizzle, eight rows (512 bytes) a group.
 *
 * A warp has 16 rows and all 64 columns of the tile: a thread's element e lies at row cta_row(ri), column cta_col(ci),
 *
 *   e = n * 4 + i,  ri = i / 2,  ci = n * 2 + i % 2     (n: 8 fragments of 8 columns, i: 4 elements)
 *
 * Copies are written through the generic proxy and read through the async one: every thread fences its own before the
 * barrier. The sums of fp8 have some 14 bits in the unit: each step of 64 products starts from zero and is added in f32.
 */
#include "targets/cuda/print_cta.h"

const char cta_wgmma_places[] =
    "DEVICE int cta_row(int ri) { return threadIdx.x / 32 * 16 + ri * 8 + threadIdx.x % 32 / 4; }\n"
    "DEVICE int cta_col(int ci) { return ci / 2 * 8 + threadIdx.x % 4 * 2 + ci % 2; }\n"
    "DEVICE bool cta_first_columns() { return threadIdx.x % 4 == 0; }\n";

const char cta_wgmma_loop[] =
    "#define REGS8(c, n) c(d[n]), c(d[n + 1]), c(d[n + 2]), c(d[n + 3]), c(d[n + 4]), c(d[n + 5]), c(d[n + 6]), c(d[n + 7])\n"
    "#define REGS32(c) REGS8(c, 0), REGS8(c, 8), REGS8(c, 16), REGS8(c, 24)\n"
    "#define WGMMA(name, T, constraint, kind, scales, narrow) \\\n"
    "    struct name { static const bool promotes = narrow; \\\n"
    "        static __device__ __forceinline__ void run(T *d, u64 a, u64 b, int adds) { \\\n"
    "        asm volatile(\"{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64\" kind \\\n"
    "            \" {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, \" \\\n"
    "            \"%24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p\" scales \"; }\" \\\n"
    "            : REGS32(constraint) : \"l\"(a), \"l\"(b), \"r\"(adds)); } };\n"
    "#define RW_F(x) \"+f\"(x)\n"
    "#define RW_R(x) \"+r\"(x)\n"
    "WGMMA(mma_f16, float, RW_F, \"k16.f32.f16.f16\", \", 1, 1, 0, 0\", false) WGMMA(mma_bf16, float, RW_F, \"k16.f32.bf16.bf16\", \", 1, 1, 0, 0\", false)\n"
    "WGMMA(mma_f32, float, RW_F, \"k8.f32.tf32.tf32\", \", 1, 1\", false)\n"
    "WGMMA(mma_f8e4m3fn, float, RW_F, \"k32.f32.e4m3.e4m3\", \", 1, 1\", true) WGMMA(mma_f8e5m2, float, RW_F, \"k32.f32.e5m2.e5m2\", \", 1, 1\", true)\n"
    "WGMMA(mma_i8, int, RW_R, \"k32.s32.s8.s8\", \"\", false) WGMMA(mma_u8, int, RW_R, \"k32.s32.u8.s8\", \"\", false)\n"
    "DEVICE u64 wgmma_tile(u32 at) { return (u64)(at >> 4 & 0x3fff) | 1ull << 16 | 32ull << 32 | 2ull << 62; }\n"
    "template <class MMA, class T, class A> DEVICE void dot_loop(T (&acc)[32], const char *a, const A a_rows, i64 a_bytes,\n"
    "                                                            const char *b, i64 b_stride)\n"
    "{\n"
    "    __shared__ __align__(1024) char shared[3][2][4096];\n"
    "    const u32 base = (u32)__cvta_generic_to_shared(&shared[0][0][0]);\n"
    "    const operands o(base, a, a_rows, a_bytes, b, b_stride);\n"
    "    o.fetch(0);\n"
    "    o.fetch(1);\n"
    "    #pragma unroll 1\n"
    "    for (int t = 0; t < o.steps; t++) {\n"
    "        T part[32];\n"
    "        asm volatile(\"cp.async.wait_group 1;\" ::: \"memory\");\n"
    "        asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");\n"
    "        __syncthreads();\n"
    "        o.fetch(t + 2);\n"
    "        const u32 at_a = o.stage(t), at_b = at_a + 4096;\n"
    "        #pragma unroll\n"
    "        for (int e = 0; e < 32; e++) part[e] = MMA::promotes ? (T)0 : acc[e];\n"
    "        asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
    "        #pragma unroll\n"
    "        for (int h = 0; h < 2; h++) MMA::run(part, wgmma_tile(at_a + h * 32), wgmma_tile(at_b + h * 32), h > 0 || !MMA::promotes);\n"
    "        asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n"
    "        asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n"
    "        #pragma unroll\n"
    "        for (int e = 0; e < 32; e++) acc[e] = MMA::promotes ? acc[e] + part[e] : part[e];\n"
    "    }\n"
    "    asm volatile(\"cp.async.wait_all;\" ::: \"memory\");\n"
    "    __syncthreads();\n" /* ahead of the writers of a loop behind */
    "}\n";
