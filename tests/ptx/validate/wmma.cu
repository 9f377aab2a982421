// SPDX-License-Identifier: Apache-2.0
// Matrix products with NVIDIA's mma.h: one warp a 16x16 (or other) tile, K in steps, operands by row or column.
#include <mma.h>
#include <cuda_bf16.h>
using namespace nvcuda;

template <typename A> struct by_row { static const bool yes = false; };
template <> struct by_row<wmma::row_major> { static const bool yes = true; };

template <typename T, typename A, int M, int N, int K, typename LA, typename LB, typename E>
__device__ void product(const T *a, const T *b, A *c, int n, int k, int lda, int ldb)
{
    int tm = blockIdx.y, tn = blockIdx.x;
    wmma::fragment<wmma::matrix_a, M, N, K, E, LA> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, E, LB> fb;
    wmma::fragment<wmma::accumulator, M, N, K, A> fc;
    wmma::fill_fragment(fc, (A)0);
    const bool a_row = by_row<LA>::yes, b_row = by_row<LB>::yes;
    for (int i = 0; i < k; i += K) {
        wmma::load_matrix_sync(fa, a_row ? a + tm * M * lda + i : a + i * lda + tm * M, lda);
        wmma::load_matrix_sync(fb, b_row ? b + i * ldb + tn * N : b + tn * N * ldb + i, ldb);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    for (int i = 0; i < fc.num_elements; i++) fc.x[i] = fc.x[i] + fc.x[i];
    wmma::store_matrix_sync(c + tm * M * n + tn * N, fc, n, wmma::mem_row_major);
}

extern "C" __global__ void wmma_f16(const half *a, const half *b, float *c, int n, int k, int lda, int ldb)
{
    product<half, float, 16, 16, 16, wmma::row_major, wmma::col_major, half>(a, b, c, n, k, lda, ldb);
}
extern "C" __global__ void wmma_f16_rows(const half *a, const half *b, float *c, int n, int k, int lda, int ldb)
{
    product<half, float, 32, 8, 16, wmma::col_major, wmma::row_major, half>(a, b, c, n, k, lda, ldb);
}
extern "C" __global__ void wmma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int n, int k, int lda,
                                     int ldb)
{
    product<__nv_bfloat16, float, 8, 32, 16, wmma::row_major, wmma::row_major, __nv_bfloat16>(a, b, c, n, k, lda, ldb);
}
extern "C" __global__ void wmma_tf32(const float *a, const float *b, float *c, int n, int k, int lda, int ldb)
{
    product<float, float, 16, 16, 8, wmma::row_major, wmma::col_major, wmma::precision::tf32>(a, b, c, n, k, lda, ldb);
}
extern "C" __global__ void wmma_s8(const signed char *a, const signed char *b, int *c, int n, int k, int lda, int ldb)
{
    product<signed char, int, 16, 16, 16, wmma::row_major, wmma::col_major, signed char>(a, b, c, n, k, lda, ldb);
}
