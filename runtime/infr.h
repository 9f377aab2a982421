// SPDX-License-Identifier: Apache-2.0
/*
 * The C API of an engine: what a program that embeds one needs. Stands alone.
 *
 * An engine is immutable once open and may be shared by threads; its worker pool runs one call at a
 * time. A session holds the memory of running calls (activations, outputs, offsets of the last
 * shapes); one thread at a time may use it. Nothing here calls exit(), installs signal handlers,
 * reads the environment or prints.
 *
 * Every call that can fail returns a code, 0 when right, and writes the same code with a sentence
 * into *status (which may be NULL). A call that failed leaves its out parameters NULL or untouched,
 * and everything else as it was.
 */
#ifndef INFC_RUNTIME_INFR_H
#define INFC_RUNTIME_INFR_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INFR_MAX_RANK 12

/* The numbers are also the exit codes of the command line. */
enum infr_code {
    INFR_OK = 0,
    INFR_CANCELLED = 1,   /* infr_session_cancel() */
    INFR_BAD_INPUT = 2,   /* the caller's tensors or options break the contract */
    INFR_ENVIRONMENT = 3, /* memory, files, CPU, a damaged engine */
    INFR_GATE = 4,        /* a test of accuracy or speed failed */
    INFR_BUG = 70
};

struct infr_status {
    int code;
    char note[508]; /* UTF-8, NUL-terminated */
};

/* In memory types below 8 bits take one byte an element, zero or sign extended. */
enum infr_dtype {
    INFR_NO_DTYPE,
    INFR_F64, INFR_F32, INFR_F16, INFR_BF16,
    INFR_F8E4M3FN, INFR_F8E4M3FNUZ, INFR_F8E5M2, INFR_F8E5M2FNUZ, INFR_F8E8M0, INFR_F4E2M1,
    INFR_I2, INFR_U2, INFR_I4, INFR_U4,
    INFR_I8, INFR_U8, INFR_I16, INFR_U16, INFR_I32, INFR_U32, INFR_I64, INFR_U64,
    INFR_BOOL, INFR_STRING
};

/* A dense row-major tensor. data is aligned to the element's size at least, and not NULL even if
 * there are no elements. */
struct infr_tensor {
    uint32_t dtype; /* enum infr_dtype */
    uint32_t rank;
    int64_t dims[INFR_MAX_RANK];
    void *data;
    uint64_t bytes;
};

struct infr_engine;
struct infr_session;

struct infr_options {
    int threads;     /* 0: as many as the affinity mask and the cgroup's CPU quota allow */
    const char *isa; /* "v2" "v3" "v4" "vnni" "amx"; NULL: the highest that CPU and engine have */
    /* "cpu", "cuda", or NULL and "auto": a GPU where engine and machine have one of a kind, else the CPU;
     * "none": an engine to ask, which runs nothing */
    const char *device;
    /* "copy": the weights are copied to memory on huge pages when an engine is opened for the CPU; NULL and
     * "file": they are read where the file is mapped, on huge pages where kernel and file system have them */
    const char *hugepages;
};

/* Where an engine's parts lie in memory, when it is not the running program. All must outlive the
 * engine. */
struct infr_image {
    const void *plan;
    uint64_t plan_bytes;
    const void *kernels; /* table of kernel addresses */
    const void *weights;
    uint64_t weights_bytes;
    const void *const *gpu_images; /* of code for GPUs, NULL behind the last; NULL: none */
};

/* options may be NULL. */
int infr_engine_open(const struct infr_image *image, const struct infr_options *options,
                     struct infr_engine **out_engine, struct infr_status *status);
/* The engine that is linked into this program. */
int infr_engine_open_self(const struct infr_options *options, struct infr_engine **out_engine,
                          struct infr_status *status);
/* All its sessions must be destroyed before. */
void infr_engine_close(struct infr_engine *engine);

uint32_t infr_engine_inputs(const struct infr_engine *engine);
uint32_t infr_engine_outputs(const struct infr_engine *engine);
uint32_t infr_engine_threads(const struct infr_engine *engine);
/* The level of the CPU, or the GPU architecture that the code in use was made for. */
const char *infr_engine_isa(const struct infr_engine *engine);
/* Why the CPU is used although the engine has code for GPUs; NULL when that is not so. */
const char *infr_engine_note(const struct infr_engine *engine);

/* What is known of an input or output before any call. A dim of one value has lo == hi; text is
 * "8", "seq" or "2*seq + 1". */
struct infr_dim_info {
    int64_t lo, hi; /* inclusive; of expressions that are more than a symbol: 0 and INT64_MAX */
    char text[96];
};

struct infr_io_info {
    const char *name; /* lives as long as the engine */
    uint32_t dtype, rank;
    bool optional; /* has a default and may be left out */
    bool state;    /* the caller's memory from run to run, which the engine reads and stores into */
    struct infr_dim_info dims[INFR_MAX_RANK];
};

/* index must be below the number of inputs (outputs). */
void infr_engine_input(const struct infr_engine *engine, uint32_t index,
                       struct infr_io_info *out_info);
void infr_engine_output(const struct infr_engine *engine, uint32_t index,
                        struct infr_io_info *out_info);

int infr_session_create(struct infr_engine *engine, struct infr_session **out_session,
                        struct infr_status *status);
void infr_session_destroy(struct infr_session *session);

/*
 * Before the first run: on a GPU, state stays in its memory from run to run, zeros at first and
 * whenever its size changes; the caller's memory of state inputs is then neither read nor written.
 * Returns false where the engine runs on the CPU, for which nothing changes.
 */
bool infr_session_keep_state(struct infr_session *session);
/* Bytes of the memory that state of this session lives in: the GPU's that are free, or the system's
 * in all. */
uint64_t infr_session_memory(struct infr_session *session);

/* Fills dtype, rank, dims and bytes of every output for inputs of these dtypes and dims; looks at
 * no data. */
int infr_session_shapes(struct infr_session *session, const struct infr_tensor *inputs,
                        struct infr_tensor *out_outputs, struct infr_status *status);

/*
 * Runs the engine once: one tensor an input, in the engine's order; an input with data NULL is left
 * out, which only optional ones may be. Outputs: where data is NULL on entry, memory of the session
 * is lent until its next run or its destruction; else data must have room for `bytes` bytes. In
 * both cases dtype, rank, dims and bytes are filled in. Inputs and outputs may not overlap. Reads
 * inputs only during the call; of them it writes to those that are state alone.
 */
int infr_session_run(struct infr_session *session, const struct infr_tensor *inputs,
                     struct infr_tensor *outputs, struct infr_status *status);

/* From any thread: makes the running call, or else the next one, return INFR_CANCELLED at its next
 * launch. */
void infr_session_cancel(struct infr_session *session);

#ifdef __cplusplus
}
#endif

#endif
