// SPDX-License-Identifier: Apache-2.0
/*
 * A stand-in for libcuda.so.1: the entry points an engine uses, over the PTX machine. Built as a shared library;
 * an engine meets it through LD_LIBRARY_PATH. The types are written from the driver's ABI so that no toolkit is
 * needed; tests/ptx/client calls it through NVIDIA's header where there is one.
 *
 * Device pointers are numbers no host address equals: touching one faults. Streams are queues that run only when
 * somebody waits (late), copies from pageable memory are taken at the call as the driver does it. After a fault the
 * context is lost: every call returns the same error, and the machine's report is on standard error.
 *
 *   INFC_FAKE_CC=80        compute capability (default 90)
 *   INFC_FAKE_MEM=bytes    device memory
 *   INFC_FAKE_EARLY=1      asynchronous work of kernels at issue; INFC_FAKE_SEED=n shuffles warps
 *   INFC_FAKE_COUNTERS=1   the machine's counters on standard error when the context is released
 *   INFC_FAKE_PTX_DIR=dir  PTX of a cubin: dir/<16 hex digits of FNV-1a of the cubin>.ptx
 *   INFC_FAKE_TRACE=dir    every launch is written to a file there, with its PTX and the memory it touches (tests/ptx/trace.h)
 *   INFC_FAKE_FAIL=what    nodevice, init, olddriver, memory@N (the N-th allocation, from 1), launch@N, lost@N (the
 *                          N-th wait), several separated by commas
 *
 * Module images: PTX text; a fat binary with uncompressed PTX; a cubin, with its PTX behind it (8-byte aligned:
 * "INFCPTX", NUL, 64-bit size, text) or in INFC_FAKE_PTX_DIR. A cubin for another architecture is refused.
 *
 * A driver has one state for its process: this is the place in the project where that is a global, under one lock.
 */
#ifndef INFC_TESTS_PTX_FAKECUDA_FAKE_H
#define INFC_TESTS_PTX_FAKECUDA_FAKE_H

#include <pthread.h>

#include "tests/ptx/interp/ptx.h"

enum cu_result {
    CU_OK = 0, CU_INVALID_VALUE = 1, CU_OUT_OF_MEMORY = 2, CU_NOT_INITIALIZED = 3, CU_DEVICE_UNAVAILABLE = 46,
    CU_NO_DEVICE = 100, CU_INVALID_DEVICE = 101, CU_INVALID_IMAGE = 200, CU_INVALID_CONTEXT = 201,
    CU_NO_BINARY_FOR_GPU = 209, CU_INVALID_PTX = 218, CU_INVALID_HANDLE = 400, CU_NOT_FOUND = 500,
    CU_NOT_READY = 600, CU_ILLEGAL_ADDRESS = 700, CU_LAUNCH_OUT_OF_RESOURCES = 701, CU_LAUNCH_TIMEOUT = 702,
    CU_MISALIGNED_ADDRESS = 716, CU_LAUNCH_FAILED = 719, CU_NOT_SUPPORTED = 801, CU_STREAM_CAPTURE_INVALIDATED = 901,
    CU_GRAPH_EXEC_UPDATE_FAILURE = 910, CU_UNKNOWN = 999
};

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct fake_context *CUcontext;
typedef struct fake_module *CUmodule;
typedef struct fake_function *CUfunction;
typedef struct fake_stream *CUstream;
typedef struct fake_event *CUevent;
typedef struct fake_graph *CUgraph;
typedef struct fake_node *CUgraphNode;
typedef struct fake_graph *CUgraphExec;
typedef void (*CUhostFn)(void *);

typedef struct {
    int id;
    char pad[4];
    union { char pad[64]; struct { unsigned x, y, z; } cluster; int value; } value;
} CUlaunchAttribute;

typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

typedef struct {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
    void *kern, *ctx;
} CUDA_KERNEL_NODE_PARAMS;

struct fake_function {
    struct fake_function *next;
    struct fake_module *module;
    struct ptx_kernel *kernel;
    int max_dynamic;
};

struct fake_module {
    struct fake_module *next;
    struct ptx_module *ptx;
    struct fake_function *functions;
    char *text; /* its PTX, when launches are traced */
};

enum fake_kind { FAKE_LAUNCH, FAKE_IN, FAKE_OUT, FAKE_COPY, FAKE_FILL, FAKE_RECORD, FAKE_WAIT, FAKE_HOST, FAKE_FREE };

/* One piece of a stream's work, also a node of a graph. */
struct fake_node {
    enum fake_kind kind;
    struct fake_node *next;
    struct fake_function *function;
    struct ptx_launch launch;
    unsigned char *params;  /* copied at the call */
    unsigned param_bytes;
    uint64_t dst, src;
    const void *host_src;
    void *host_dst, *staged;
    size_t bytes, count;
    uint64_t pattern;
    unsigned pattern_bytes;
    struct fake_event *event;
    uint64_t ticket;        /* of FAKE_RECORD, and what FAKE_WAIT waits for */
    CUhostFn host_fn;
    void *host_arg;
};

struct fake_graph {
    struct fake_node *first, **end;
    size_t n;
};

struct fake_stream {
    struct fake_stream *next;
    struct fake_node *first, **end;
    struct fake_graph *capture;
    bool running;
};

struct fake_event {
    struct fake_stream *stream; /* where it was recorded last */
    struct fake_graph *capture;
    uint64_t ticket, done;
};

struct fake_range { uint64_t begin, end; };

struct fake_state {
    pthread_mutex_t lock;
    bool initialized;
    struct ptx_machine *m;
    int cc;
    uint64_t memory_bytes;
    CUresult sticky;
    const char *fail, *trace;
    long n_traced;
    long n_allocs, n_launches, n_waits, n_graphs, n_made; /* launches and instantiations of graphs */
    uint64_t ticket;
    struct fake_stream null_stream, *streams;
    struct fake_module *modules;
    struct fake_range *pinned;
    size_t n_pinned, cap_pinned;
};
extern struct fake_state fake;

/* Every entry point takes the lock; an error that lost the context comes back at once. */
CUresult fake_enter(void);
CUresult fake_leave(CUresult r);
/* Does INFC_FAKE_FAIL name this (for counted ones: this number)? */
bool fake_fails(const char *what, long n);
/* The machine's report as an error of the driver; faults of kernels lose the context. */
CUresult fake_fault(bool lost);

/* The launch, and a file of it in the folder that INFC_FAKE_TRACE names. False: the launch failed. */
bool fake_launch_traced(const struct fake_function *f, const struct ptx_launch *l, const unsigned char *params);

CUresult fake_push(CUstream s, const struct fake_node *n);
CUresult fake_run_stream(struct fake_stream *s);
CUresult fake_run_all(void);
CUresult fake_wait(void);
struct fake_stream *fake_stream_of(CUstream s);
bool fake_is_pinned(const void *p, size_t bytes);
void fake_node_free(struct fake_node *n);

#endif
