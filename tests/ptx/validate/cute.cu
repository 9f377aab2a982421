// SPDX-License-Identifier: Apache-2.0
// C = A B^T with CuTe: NVIDIA's own description of the fragments of mma.sync, of ldmatrix, and of what wgmma
// reads from shared memory. A and B are 64 rows of k, in tiles of 64 x 64.
#include <cute/tensor.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/copy_atom.hpp>
using namespace cute;

template <typename Atom, typename T, typename R>
__device__ void by_registers(const T *a, const T *b, R *c, int n, int k)
{
    auto mma = make_tiled_mma(Atom{}, Layout<Shape<_2, _2, _1>>{});
    Tensor A = make_tensor(make_gmem_ptr(a), make_shape(Int<64>{}, k), make_stride(k, Int<1>{}));
    Tensor B = make_tensor(make_gmem_ptr(b), make_shape(Int<64>{}, k), make_stride(k, Int<1>{}));
    Tensor C = make_tensor(make_gmem_ptr(c), make_shape(Int<64>{}, Int<64>{}), make_stride(n, Int<1>{}));
    auto t = mma.get_slice(threadIdx.x);
    Tensor rc = t.partition_fragment_C(C);
    clear(rc);
    for (int i = 0; i < k / 64; i++) {
        Tensor ga = t.partition_A(local_tile(A, Shape<_64, _64>{}, make_coord(0, i)));
        Tensor gb = t.partition_B(local_tile(B, Shape<_64, _64>{}, make_coord(0, i)));
        Tensor ra = t.make_fragment_A(ga);
        Tensor rb = t.make_fragment_B(gb);
        copy(ga, ra);
        copy(gb, rb);
        gemm(mma, ra, rb, rc);
    }
    copy(rc, t.partition_C(C));
}

#if __CUDA_ARCH__ < 900
extern "C" __global__ void cute_f16(const half_t *a, const half_t *b, float *c, int n, int k)
{
    by_registers<SM80_16x8x16_F32F16F16F32_TN>(a, b, c, n, k);
}
extern "C" __global__ void cute_f16_k8(const half_t *a, const half_t *b, float *c, int n, int k)
{
    by_registers<SM80_16x8x8_F32F16F16F32_TN>(a, b, c, n, k);
}
extern "C" __global__ void cute_bf16(const bfloat16_t *a, const bfloat16_t *b, float *c, int n, int k)
{
    by_registers<SM80_16x8x16_F32BF16BF16F32_TN>(a, b, c, n, k);
}
extern "C" __global__ void cute_tf32(const tfloat32_t *a, const tfloat32_t *b, float *c, int n, int k)
{
    by_registers<SM80_16x8x8_F32TF32TF32F32_TN>(a, b, c, n, k);
}
extern "C" __global__ void cute_s8(const int8_t *a, const int8_t *b, int *c, int n, int k)
{
    by_registers<SM80_16x8x32_S32S8S8S32_TN>(a, b, c, n, k);
}
extern "C" __global__ void cute_s8_k16(const int8_t *a, const int8_t *b, int *c, int n, int k)
{
    by_registers<SM80_16x8x16_S32S8S8S32_TN>(a, b, c, n, k);
}

// Through shared memory with ldmatrix.
extern "C" __global__ void cute_ldmatrix(const half_t *a, const half_t *b, float *c, int n, int k)
{
    __shared__ __align__(16) half_t sa[64 * 64], sb[64 * 64];
    auto layout = composition(Swizzle<3, 3, 3>{}, Layout<Shape<_64, _64>, Stride<_64, _1>>{});
    Tensor SA = make_tensor(make_smem_ptr(sa), layout), SB = make_tensor(make_smem_ptr(sb), layout);
    auto mma = make_tiled_mma(SM80_16x8x16_F32F16F16F32_TN{}, Layout<Shape<_2, _2, _1>>{}, Tile<_32, _32, _16>{});
    auto copy_a = make_tiled_copy_A(Copy_Atom<SM75_U32x4_LDSM_N, half_t>{}, mma);
    auto copy_b = make_tiled_copy_B(Copy_Atom<SM75_U32x4_LDSM_N, half_t>{}, mma);
    Tensor C = make_tensor(make_gmem_ptr(c), make_shape(Int<64>{}, Int<64>{}), make_stride(n, Int<1>{}));
    auto t = mma.get_slice(threadIdx.x);
    Tensor rc = t.partition_fragment_C(C);
    clear(rc);
    for (int i = 0; i < k / 64; i++) {
        __syncthreads();
        for (int x = threadIdx.x; x < 64 * 64; x += 128) {
            SA(x / 64, x % 64) = a[x / 64 * k + i * 64 + x % 64];
            SB(x / 64, x % 64) = b[x / 64 * k + i * 64 + x % 64];
        }
        __syncthreads();
        Tensor ra = t.partition_fragment_A(SA);
        Tensor rb = t.partition_fragment_B(SB);
        copy(copy_a, copy_a.get_slice(threadIdx.x).partition_S(SA), copy_a.get_slice(threadIdx.x).retile_D(ra));
        copy(copy_b, copy_b.get_slice(threadIdx.x).partition_S(SB), copy_b.get_slice(threadIdx.x).retile_D(rb));
        gemm(mma, ra, rb, rc);
    }
    copy(rc, t.partition_C(C));
}
#else
template <typename Atom, typename LayoutA, typename LayoutB, typename T>
__device__ void by_wgmma(const T *a, const T *b, float *c, int n, int k)
{
    extern __shared__ __align__(1024) unsigned char raw[];
    auto la = tile_to_shape(LayoutA{}, Shape<_64, _64>{});
    auto lb = tile_to_shape(LayoutB{}, Shape<_64, _64>{});
    T *sa = (T *)raw, *sb = sa + 64 * 64;
    Tensor SA = make_tensor(make_smem_ptr(sa), la);
    Tensor SB = make_tensor(make_smem_ptr(sb), lb);
    auto mma = make_tiled_mma(Atom{});
    Tensor C = make_tensor(make_gmem_ptr(c), make_shape(Int<64>{}, Int<64>{}), make_stride(n, Int<1>{}));
    auto t = mma.get_slice(threadIdx.x);
    Tensor rc = t.partition_fragment_C(C);
    clear(rc);
    for (int i = 0; i < k / 64; i++) {
        __syncthreads();
        for (int x = threadIdx.x; x < 64 * 64; x += 128) {
            SA(x / 64, x % 64) = a[x / 64 * k + i * 64 + x % 64];
            SB(x / 64, x % 64) = b[x / 64 * k + i * 64 + x % 64];
        }
        asm volatile("fence.proxy.async;" ::: "memory");
        __syncthreads();
        Tensor ra = t.make_fragment_A(t.partition_A(SA));
        Tensor rb = t.make_fragment_B(t.partition_B(SB));
        warpgroup_arrive();
        gemm(mma, ra, rb, rc);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
    }
    copy(rc, t.partition_C(C));
}
extern "C" __global__ void cute_wgmma_128(const half_t *a, const half_t *b, float *c, int n, int k)
{
    by_wgmma<SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>, GMMA::Layout_K_SW128_Atom<half_t>,
             GMMA::Layout_K_SW128_Atom<half_t>>(a, b, c, n, k);
}
extern "C" __global__ void cute_wgmma_64(const half_t *a, const half_t *b, float *c, int n, int k)
{
    by_wgmma<SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>, GMMA::Layout_K_SW64_Atom<half_t>,
             GMMA::Layout_K_SW32_Atom<half_t>>(a, b, c, n, k);
}
extern "C" __global__ void cute_wgmma_none(const half_t *a, const half_t *b, float *c, int n, int k)
{
    by_wgmma<SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>, GMMA::Layout_K_INTER_Atom<half_t>,
             GMMA::Layout_K_INTER_Atom<half_t>>(a, b, c, n, k);
}
extern "C" __global__ void cute_wgmma_mn(const half_t *a, const half_t *b, float *c, int n, int k)
{
    by_wgmma<SM90_64x64x16_F32F16F16_SS<GMMA::Major::MN, GMMA::Major::MN>, GMMA::Layout_MN_SW128_Atom<half_t>,
             GMMA::Layout_MN_SW64_Atom<half_t>>(a, b, c, n, k);
}
extern "C" __global__ void cute_wgmma_mn_none(const half_t *a, const half_t *b, float *c, int n, int k)
{
    by_wgmma<SM90_64x64x16_F32F16F16_SS<GMMA::Major::MN, GMMA::Major::K>, GMMA::Layout_MN_INTER_Atom<half_t>,
             GMMA::Layout_K_SW128_Atom<half_t>>(a, b, c, n, k);
}
#endif
