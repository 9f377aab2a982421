// SPDX-License-Identifier: Apache-2.0
/* The CUDA device: one GPU, its context, the engine's code and weights on it. */
#ifndef INFC_RUNTIME_CUDA_CUDA_H
#define INFC_RUNTIME_CUDA_CUDA_H

#include "runtime/abi/gpu_format.h"
#include "runtime/cuda/driver.h"
#include "runtime/engine.h"
#include "runtime/session.h"

/* Device addresses of buffers are multiples of this. */
#define CUDA_ALIGN 256u

struct cuda_kernel {
    cu_module module;
    cu_function function;
    uint32_t threads, slices_cta, shared_bytes;
};

struct cuda_device {
    struct rt_device base;
    struct cu_driver cu;
    cu_device device;
    cu_context context;
    char gpu_name[64];
    int sm;                  /* of the GPU */
    const struct infr_gpu_image *image;
    bool translate;          /* the GPU is newer than the code: the driver translates the PTX */
    struct cuda_kernel *kernels;
    uint32_t n_kernels;
    cu_pointer weights;
    uint64_t *const_offset;  /* a buffer of kind CONST: place in the device's weights */
    uint64_t weights_bytes;
};

#define CUDA_GRAPHS 16

/* The launches of one set of symbol values. */
struct cuda_graph {
    int64_t *sym;            /* NULL: not used yet */
    uint64_t used;           /* time of the last use */
    int calls;               /* 1: seen once; from 2 on it is recorded */
    bool fresh;              /* exec is right for memory and state */
    cu_pointer memory, state;
    cu_graph_exec exec;
};

/* What a session has on the device. */
struct cuda_session {
    cu_stream stream;
    cu_pointer memory;       /* arena, then inputs, then outputs */
    uint64_t memory_bytes;
    uint64_t *io_offset;     /* inputs, then outputs; of state that is kept: in `state` */
    cu_pointer state;        /* of a session that keeps it */
    uint64_t state_bytes;
    void **params;           /* of the launch with the most */
    uint64_t *addresses;
    struct cuda_graph graphs[CUDA_GRAPHS];
    uint64_t graph_clock;
};

/* The code of kernel i after its checks; NULL when damaged. */
const struct infr_gpu_code *cuda_code(const struct infr_gpu_image *image, uint32_t i);

int cuda_load(struct rt_device *d, const struct infr_engine *e, struct infr_status *st);
int cuda_run(struct rt_device *d, struct infr_session *s, struct rt_shape *shape, struct infr_status *st);
void cuda_session_destroy(struct rt_device *d, struct infr_session *s);

/* Can the session's launches be recorded? */
bool cuda_graphs_fit(const struct infr_session *s);
/* The graph for the symbol values in s->sym, empty or recorded. */
int cuda_graph_of(struct cuda_session *cs, const struct infr_session *s, struct cuda_graph **out, struct infr_status *st);
int cuda_graph_begin(const struct cu_driver *cu, struct cuda_session *cs, struct infr_status *st);
int cuda_graph_end(const struct cu_driver *cu, struct cuda_session *cs, struct cuda_graph *g, bool recorded, struct infr_status *st);
void cuda_graphs_destroy(const struct cu_driver *cu, struct cuda_session *cs);

/* "device memory is short: WHAT takes N bytes, M of T are free" */
int cuda_fail_memory(struct cuda_device *d, const char *what, uint64_t bytes, struct infr_status *st);

#endif
