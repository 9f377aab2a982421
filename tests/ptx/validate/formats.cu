// SPDX-License-Identifier: Apache-2.0
// Conversions of NVIDIA's cuda_fp8.h, cuda_bf16.h and cuda_fp16.h, and arithmetic in them.
#include <cuda_fp8.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void to_narrow(const float *x, unsigned char *e4, unsigned char *e5, unsigned short *h, unsigned short *b,
                                     int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    e4[i] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E4M3);
    e5[i] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E5M2);
    h[i] = __half_as_ushort(__float2half_rn(x[i]));
    b[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
}

extern "C" __global__ void from_narrow(float *e4, float *e5, float *h, float *b)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 256) {
        __nv_fp8_e4m3 x;
        __nv_fp8_e5m2 y;
        x.__x = (unsigned char)i;
        y.__x = (unsigned char)i;
        e4[i] = (float)x;
        e5[i] = (float)y;
    }
    h[i] = __half2float(__ushort_as_half((unsigned short)i));
    b[i] = __bfloat162float(__ushort_as_bfloat16((unsigned short)i));
}

extern "C" __global__ void half_math(const __half2 *x, const __half2 *y, const __half2 *z, __half2 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[4 * i] = __hfma2(x[i], y[i], z[i]);
    out[4 * i + 1] = __hadd2(x[i], y[i]);
    out[4 * i + 2] = __hmul2(x[i], y[i]);
    out[4 * i + 3] = __hmax2(x[i], y[i]);
}
