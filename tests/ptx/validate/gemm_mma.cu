// SPDX-License-Identifier: Apache-2.0
// C = A B^T in f16 with f32 sums: mma.sync, ldmatrix, a pipeline of cp.async, swizzled shared memory; edges masked.
#include <cuda_fp16.h>
enum { BM = 64, BN = 64, BK = 32, STAGES = 3, ROW = BK * 2, TILE = BM * ROW };

__device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void copy16(unsigned dst, const void *src, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
__device__ void load4(unsigned *r, unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
__device__ void mma(float *c, const unsigned *a, const unsigned *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Rows of 64 bytes in chunks of 16: chunk c of row r lies at c ^ (r / 2 % 4).
__device__ int swizzled(int row, int chunk) { return row * ROW + ((chunk ^ (row >> 1 & 3)) << 4); }

extern "C" __global__ void __launch_bounds__(128) gemm_mma(const half *a, const half *b, half *c, int m, int n, int k)
{
    extern __shared__ __align__(128) unsigned char smem[];
    int t = threadIdx.x, w = t / 32, l = t % 32, bm = blockIdx.y * BM, bn = blockIdx.x * BN, steps = (k + BK - 1) / BK;
    int wm = w / 2 * 32, wn = w % 2 * 32;
    float acc[2][4][4] = {};
    auto load = [&](int stage, int step) {
        unsigned sa = shared_address(smem) + stage * 2 * TILE, sb = sa + TILE;
        for (int i = 0; i < 2; i++) {
            int q = t + i * 128, r = q / 4, ch = q % 4, kk = step * BK + ch * 8;
            bool ka = bm + r < m && kk < k, kb = bn + r < n && kk < k;
            copy16(sa + swizzled(r, ch), ka ? a + (size_t)(bm + r) * k + kk : a, ka ? 16 : 0);
            copy16(sb + swizzled(r, ch), kb ? b + (size_t)(bn + r) * k + kk : b, kb ? 16 : 0);
        }
    };
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) load(s, s);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (int s = 0; s < steps; s++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        if (s + STAGES - 1 < steps) load((s + STAGES - 1) % STAGES, s + STAGES - 1);
        asm volatile("cp.async.commit_group;" ::: "memory");
        unsigned sa = shared_address(smem) + s % STAGES * 2 * TILE, sb = sa + TILE;
        for (int kk = 0; kk < 2; kk++) {
            unsigned fa[2][4], fb[2][4];
            for (int i = 0; i < 2; i++) load4(fa[i], sa + swizzled(wm + i * 16 + (l & 15), kk * 2 + (l >> 4)));
            for (int j = 0; j < 2; j++)
                load4(fb[j], sb + swizzled(wn + j * 16 + (l & 7) + (l >> 4) * 8, kk * 2 + (l >> 3 & 1)));
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++) mma(acc[i][j], fa[i], &fb[j / 2][j % 2 * 2]);
        }
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int h = 0; h < 2; h++) {
                int r = bm + wm + i * 16 + l / 4 + h * 8, col = bn + wn + j * 8 + l % 4 * 2;
                if (r >= m) continue;
                if (col < n) c[(size_t)r * n + col] = __float2half_rn(acc[i][j][h * 2]);
                if (col + 1 < n) c[(size_t)r * n + col + 1] = __float2half_rn(acc[i][j][h * 2 + 1]);
            }
}
