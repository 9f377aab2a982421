// SPDX-License-Identifier: Apache-2.0
/* Uses libcuda.so.1 as an engine does, by NVIDIA's own header: upload, a graph of launches, parameter update, download.
 * usage: client; prints `result CODE` of the first call that failed, or `result 0`. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char text[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry scale(.param .u64 x, .param .f32 a, .param .u32 n)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %rd<6>;\n"
    "ld.param.u64 %rd1, [x]; ld.param.f32 %f1, [a]; ld.param.u32 %r1, [n];\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "setp.ge.u32 %p1, %r5, %r1; @%p1 bra END; mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2;\n"
    "ld.global.f32 %f2, [%rd3]; mul.f32 %f3, %f2, %f1; st.global.f32 [%rd3], %f3;\nEND: ret;\n}\n";

static void *lib;
static CUresult first;
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x) /* the header renames functions to their ABI names */
#define CALL(name, ...)                                                                              \
    do {                                                                                             \
        __typeof__(&name) fn_;                                                                       \
        void *p_ = dlsym(lib, TEXT(name));                                                                \
        memcpy(&fn_, &p_, sizeof p_);                                                                \
        if (!p_) return printf("no %s\n", TEXT(name)), 1;                                                 \
        first = fn_(__VA_ARGS__);                                                                    \
        if (first) return printf("result %d of %s\n", (int)first, TEXT(name)), 0;                         \
    } while (0)

static int use(void)
{
    enum { N = 1000 };
    static float x[N];
    CUdevice d;
    CUcontext c;
    CUmodule m;
    CUfunction f;
    CUstream s;
    CUdeviceptr p;
    CUgraph g;
    CUgraphExec e;
    CUgraphNode nodes[4];
    size_t n_nodes = 4;
    float a = 3;
    unsigned n = N;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &d, 0);
    CALL(cuDevicePrimaryCtxRetain, &c, d);
    CALL(cuCtxSetCurrent, c);
    CALL(cuModuleLoadData, &m, text);
    CALL(cuModuleGetFunction, &f, m, "scale");
    CALL(cuStreamCreateWithPriority, &s, CU_STREAM_NON_BLOCKING, 0);
    CALL(cuMemAlloc, &p, sizeof x);
    CALL(cuMemcpyHtoDAsync, p, x, sizeof x, s);
    memset(x, 0, sizeof x);
    void *params[] = {&p, &a, &n};
    CUlaunchConfig config = {.gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1,
                             .hStream = s};
    CALL(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CALL(cuLaunchKernelEx, &config, f, params, NULL);
    CALL(cuLaunchKernel, f, 8, 1, 1, 128, 1, 1, 0, s, params, NULL);
    CALL(cuStreamEndCapture, s, &g);
    CALL(cuGraphInstantiateWithFlags, &e, g, 0);
    CALL(cuGraphLaunch, e, s);
    CALL(cuGraphGetNodes, g, nodes, &n_nodes);
    a = 2;
    CUDA_KERNEL_NODE_PARAMS k = {.func = f, .gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
                                 .blockDimZ = 1, .kernelParams = params};
    CALL(cuGraphExecKernelNodeSetParams, e, nodes[1], &k);
    CALL(cuGraphLaunch, e, s);
    CALL(cuMemcpyDtoHAsync, x, p, sizeof x, s);
    CALL(cuStreamSynchronize, s);
    for (int i = 0; i < N; i++)
        if (x[i] != (float)i * 54) return printf("x[%d] is %g\n", i, (double)x[i]), 1;
    CALL(cuMemFree, p);
    CALL(cuGraphExecDestroy, e);
    CALL(cuGraphDestroy, g);
    CALL(cuStreamDestroy, s);
    CALL(cuModuleUnload, m);
    return printf("result 0\n"), 0;
}

int main(void)
{
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) return printf("%s\n", dlerror()), 1;
    return use();
}
