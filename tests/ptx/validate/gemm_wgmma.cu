// SPDX-License-Identifier: Apache-2.0
// C = A B^T in f16 with f32 sums: one producer warp loads tiles by TMA, a warpgroup multiplies them with wgmma, mbarriers
// hand the stages over in both directions; the result leaves by TMA as well.
#include <cuda_fp16.h>
enum { BM = 64, BN = 64, BK = 64, STAGES = 3, TILE = 64 * 64 * 2 };
struct __align__(64) Map { unsigned long long opaque[16]; };

__device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void wait(unsigned barrier, int parity)
{
    asm volatile("{ .reg .pred P; L: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1; @!P bra L; }" ::"r"(barrier), "r"(parity) : "memory");
}
__device__ void load(unsigned dst, const Map *map, unsigned barrier, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(dst), "l"(map), "r"(barrier), "r"(x), "r"(y) : "memory");
}
__device__ unsigned long long descriptor(unsigned a)
{
    return (unsigned long long)(a >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ void wgmma(float *c, unsigned long long a, unsigned long long b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,"
                 "%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
                   "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
                   "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
                   "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
                 : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(160) gemm_wgmma(const __grid_constant__ Map ma, const __grid_constant__ Map mb,
                                                             const __grid_constant__ Map mc, int k)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    __shared__ __align__(8) unsigned long long full[STAGES], empty[STAGES];
    int t = threadIdx.x, bm = blockIdx.y * BM, bn = blockIdx.x * BN, steps = (k + BK - 1) / BK;
    unsigned base = shared_address(smem);
    if (t == 0) {
        for (int i = 0; i < STAGES; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[i])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&empty[i])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (t >= 128) {
        if (t == 128)
            for (int s = 0; s < steps; s++) {
                int stage = s % STAGES;
                unsigned f = shared_address(&full[stage]), dst = base + stage * 2 * TILE;
                wait(shared_address(&empty[stage]), (s / STAGES & 1) ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(f), "n"(2 * TILE) : "memory");
                load(dst, &ma, f, s * BK, bm);
                load(dst + TILE, &mb, f, s * BK, bn);
            }
        return;
    }
    float c[32] = {};
    for (int s = 0; s < steps; s++) {
        int stage = s % STAGES;
        unsigned a = base + stage * 2 * TILE, b = a + TILE;
        wait(shared_address(&full[stage]), s / STAGES & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int i = 0; i < 4; i++) wgmma(c, descriptor(a + i * 32), descriptor(b + i * 32));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (t == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&empty[stage])) : "memory");
    }
    unsigned char *out = smem + STAGES * 2 * TILE;
    int l = t % 32, row = t / 32 * 16 + l / 4;
    for (int j = 0; j < 8; j++)
        for (int h = 0; h < 2; h++)
            *(__half2 *)(out + (row + h * 8) * 128 + j * 16 + l % 4 * 4) = __floats2half2_rn(c[j * 4 + h * 2], c[j * 4 + h * 2 + 1]);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, 128;" ::: "memory");
    if (t == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
                     ::"l"(&mc), "r"(shared_address(out)), "r"(bn), "r"(bm) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
