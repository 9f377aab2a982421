// SPDX-License-Identifier: Apache-2.0
// NVIDIA's math library, its shuffles, and its primitives for asynchronous copies and barriers.
#include <cuda_pipeline_primitives.h>
#include <cuda_awbarrier_primitives.h>

extern "C" __global__ void math(const float *x, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    out[8 * i] = expf(v);
    out[8 * i + 1] = logf(fabsf(v) + 0.5f);
    out[8 * i + 2] = tanhf(v);
    out[8 * i + 3] = erff(v);
    out[8 * i + 4] = rsqrtf(fabsf(v) + 0.5f);
    out[8 * i + 5] = v / (1.0f + v * v);
    out[8 * i + 6] = sqrtf(fabsf(v));
    out[8 * i + 7] = powf(fabsf(v) + 0.5f, 1.5f);
}

__device__ float warp_sum(float v)
{
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}
__device__ float warp_max(float v)
{
    for (int d = 16; d; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

// A row a block: maximum, sum of exponentials, quotient.
extern "C" __global__ void __launch_bounds__(128) softmax(const float *x, float *y, int cols)
{
    __shared__ float part[4], total[2];
    const float *row = x + (size_t)blockIdx.x * cols;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float m = __int_as_float(0xff800000), s = 0;
    for (int i = threadIdx.x; i < cols; i += 128) m = fmaxf(m, row[i]);
    m = warp_max(m);
    if (lane == 0) part[warp] = m;
    __syncthreads();
    if (warp == 0) {
        m = warp_max(lane < 4 ? part[lane] : __int_as_float(0xff800000));
        if (lane == 0) total[0] = m;
    }
    __syncthreads();
    m = total[0];
    for (int i = threadIdx.x; i < cols; i += 128) s += expf(row[i] - m);
    s = warp_sum(s);
    if (lane == 0) part[warp] = s;
    __syncthreads();
    if (warp == 0) {
        s = warp_sum(lane < 4 ? part[lane] : 0);
        if (lane == 0) total[1] = s;
    }
    __syncthreads();
    s = total[1];
    for (int i = threadIdx.x; i < cols; i += 128) y[(size_t)blockIdx.x * cols + i] = expf(row[i] - m) / s;
}

// Prefix-like sums over rows that are copied ahead of their use, two stages deep.
extern "C" __global__ void __launch_bounds__(64) pipeline(const float4 *x, float4 *y, int rows)
{
    __shared__ float4 stage[3][64];
    float4 acc = {0, 0, 0, 0};
    int t = threadIdx.x;
    for (int i = 0; i < 2; i++) {
        if (i < rows) __pipeline_memcpy_async(&stage[i][t], &x[i * 64 + t], 16);
        __pipeline_commit();
    }
    for (int i = 0; i < rows; i++) {
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = stage[i % 3][63 - t];
        acc.x += v.x;
        acc.y += v.y;
        acc.z += v.z;
        acc.w += v.w;
        if (i + 2 < rows) __pipeline_memcpy_async(&stage[(i + 2) % 3][t], &x[(i + 2) * 64 + t], 16);
        __pipeline_commit();
    }
    y[t] = acc;
}

// Two warps fill a buffer for two others and back: mbarriers in both directions.
extern "C" __global__ void __launch_bounds__(128) handover(const int *x, int *y, int rounds)
{
    __shared__ __mbarrier_t full, empty;
    __shared__ int buffer[64];
    int t = threadIdx.x;
    if (t == 0) {
        __mbarrier_init(&full, 64);
        __mbarrier_init(&empty, 64);
    }
    __syncthreads();
    if (t < 64) {
        for (int i = 0; i < rounds; i++) {
            if (i) while (!__mbarrier_test_wait_parity(&empty, (i - 1) & 1)) {}
            buffer[t] = x[i * 64 + t];
            __mbarrier_arrive(&full);
        }
    } else {
        int sum = 0;
        for (int i = 0; i < rounds; i++) {
            while (!__mbarrier_test_wait_parity(&full, i & 1)) {}
            sum += buffer[127 - t] * (i + 1);
            __mbarrier_arrive(&empty);
        }
        y[t - 64] = sum;
    }
}

// Counts in shared memory, then in global memory; the last block adds them up.
extern "C" __global__ void __launch_bounds__(64) histogram(const int *x, int n, unsigned *bins, unsigned *done, unsigned *sum)
{
    __shared__ unsigned local[16];
    __shared__ bool last;
    if (threadIdx.x < 16) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64) atomicAdd(&local[x[i] & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(done, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        unsigned s = 0;
        for (int i = 0; i < 16; i++) s += bins[i] * (i + 1);
        *sum = s;
    }
}
