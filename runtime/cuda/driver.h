// SPDX-License-Identifier: Apache-2.0
/*
 * NVIDIA's driver library, opened when an engine wants a GPU: no toolkit is needed to build or run. The types and numbers
 * are the driver's ABI; its functions carry the names they are exported by.
 */
#ifndef INFC_RUNTIME_CUDA_DRIVER_H
#define INFC_RUNTIME_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/infr.h"

typedef int cu_result; /* 0: right */
typedef int cu_device;
typedef uint64_t cu_pointer;
typedef struct cu_context_st *cu_context;
typedef struct cu_module_st *cu_module;
typedef struct cu_function_st *cu_function;
typedef struct cu_stream_st *cu_stream;
typedef struct cu_event_st *cu_event;
typedef struct cu_graph_st *cu_graph;
typedef struct cu_graph_exec_st *cu_graph_exec;

enum {
    CU_ERROR_OUT_OF_MEMORY = 2,
    CU_ERROR_NO_DEVICE = 100,
    CU_ATTRIBUTE_MAJOR = 75,
    CU_ATTRIBUTE_MINOR = 76,
    CU_FUNC_MAX_DYNAMIC_SHARED = 8
};

/* X(name, parameters) */
#define CU_FUNCTIONS(X)                                                                                       \
    X(cuInit, (unsigned flags))                                                                               \
    X(cuDriverGetVersion, (int *version))                                                                     \
    X(cuDeviceGetCount, (int *n))                                                                             \
    X(cuDeviceGet, (cu_device *out, int ordinal))                                                             \
    X(cuDeviceGetName, (char *name, int bytes, cu_device d))                                                  \
    X(cuDeviceGetAttribute, (int *value, int attribute, cu_device d))                                         \
    X(cuDevicePrimaryCtxRetain, (cu_context *out, cu_device d))                                               \
    X(cuDevicePrimaryCtxRelease_v2, (cu_device d))                                                            \
    X(cuCtxSetCurrent, (cu_context c))                                                                        \
    X(cuGetErrorName, (cu_result code, const char **out))                                                     \
    X(cuGetErrorString, (cu_result code, const char **out))                                                   \
    X(cuModuleLoadData, (cu_module *out, const void *image))                                                  \
    X(cuModuleUnload, (cu_module m))                                                                          \
    X(cuModuleGetFunction, (cu_function *out, cu_module m, const char *name))                                 \
    X(cuFuncSetAttribute, (cu_function f, int attribute, int value))                                          \
    X(cuMemAlloc_v2, (cu_pointer *out, size_t bytes))                                                         \
    X(cuMemFree_v2, (cu_pointer p))                                                                           \
    X(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags))                                             \
    X(cuMemFreeHost, (void *p))                                                                               \
    X(cuMemGetInfo_v2, (size_t *free_bytes, size_t *total))                                                   \
    X(cuMemcpyHtoDAsync_v2, (cu_pointer dst, const void *src, size_t bytes, cu_stream s))                     \
    X(cuMemcpyDtoHAsync_v2, (void *dst, cu_pointer src, size_t bytes, cu_stream s))                           \
    X(cuMemsetD8Async, (cu_pointer dst, unsigned char value, size_t bytes, cu_stream s))                      \
    X(cuStreamCreate, (cu_stream *out, unsigned flags))                                                       \
    X(cuStreamDestroy_v2, (cu_stream s))                                                                      \
    X(cuStreamSynchronize, (cu_stream s))                                                                     \
    X(cuStreamBeginCapture_v2, (cu_stream s, int mode))                                                       \
    X(cuStreamEndCapture, (cu_stream s, cu_graph *out))                                                       \
    X(cuGraphInstantiateWithFlags, (cu_graph_exec *out, cu_graph g, unsigned long long flags))                \
    X(cuGraphExecUpdate_v2, (cu_graph_exec e, cu_graph g, void *result))                                      \
    X(cuGraphLaunch, (cu_graph_exec e, cu_stream s))                                                          \
    X(cuGraphExecDestroy, (cu_graph_exec e))                                                                  \
    X(cuGraphDestroy, (cu_graph g))                                                                           \
    X(cuEventCreate, (cu_event *out, unsigned flags))                                                         \
    X(cuEventRecord, (cu_event e, cu_stream s))                                                               \
    X(cuEventSynchronize, (cu_event e))                                                                       \
    X(cuEventDestroy_v2, (cu_event e))                                                                        \
    X(cuLaunchKernel, (cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,        \
                       unsigned bz, unsigned shared_bytes, cu_stream s, void **params, void **extra))

struct cu_driver {
    void *lib;
    int version; /* 13000: CUDA 13.0 */
#define X(name, parameters) cu_result(*name) parameters;
    CU_FUNCTIONS(X)
#undef X
};

/* Opens the library and starts it. What is missing is a status of the environment. */
int cu_open(struct cu_driver *cu, struct infr_status *st);
void cu_close(struct cu_driver *cu);
/* A failed call as a status: "WHAT failed: the driver's words". */
int cu_fail(const struct cu_driver *cu, cu_result code, const char *what, struct infr_status *st);

#endif
