// SPDX-License-Identifier: Apache-2.0
/* An open engine: the plan's tables after validation. Everything here is read-only once
 * infr_engine_open has returned. */
#ifndef INFC_RUNTIME_ENGINE_H
#define INFC_RUNTIME_ENGINE_H

#include "runtime/abi/engine_format.h"
#include "runtime/infr.h"
#include "runtime/device.h"
#include "runtime/workers.h"

/* X(field, type of a row): all tables of the plan. */
#define RT_TABLES(X)                          \
    X(dims, struct infr_dim)                  \
    X(symbols, struct infr_symbol)            \
    X(inputs, struct infr_io)                 \
    X(outputs, struct infr_io)                \
    X(checks, struct infr_check)              \
    X(bufs, struct infr_buf)                  \
    X(args, struct infr_arg)                  \
    X(launches, struct infr_launch)           \
    X(steps, struct infr_step)                \
    X(blocks, struct infr_block)              \
    X(kernels, struct infr_kernel)            \
    X(goldens, struct infr_golden)            \
    X(golden_outputs, struct infr_golden_output) \
    X(pool_u32, uint32_t)                     \
    X(pool_i64, int64_t)                      \
    X(pool_f64, double)

/* Blocks nest no deeper: the walk recurses. */
enum { RT_MAX_BLOCK_DEPTH = 64 };

struct infr_engine {
    struct infr_header h;
    const unsigned char *blob;
    uint64_t blob_bytes;
    const unsigned char *weights;
    uint64_t weights_bytes;
    void *weights_copy; /* the mapping they were copied to, or NULL */
    uint64_t weights_copy_bytes;
#define X(field, type) const type *field; uint32_t n_##field;
    RT_TABLES(X)
#undef X
    void *copies[16]; /* tables that could not be used in place */
    int n_copies;

    int isa;                   /* chosen level */
    unsigned cpu_levels;       /* bits */
    infr_kernel_fn **kernel_fn; /* a kernel: its code at the chosen level, or at the highest level
                                   below that has some */
    unsigned char *kernel_isa; /* a kernel: that level */
    struct rt_pool *pool;

    struct rt_device *device; /* NULL: the CPU */
    bool has_cpu_code, only_asked;
    struct infr_status note;  /* why not on a GPU */
    char gpus[128];           /* architectures that there is code for: "sm80 sm90" */
};

/* NULL for "none". Only for offsets that were validated. */
static inline const char *rt_str(const struct infr_engine *e, infr_str s)
{
    return s ? (const char *)e->blob + s : NULL;
}
/* "" for "none". */
static inline const char *rt_text(const struct infr_engine *e, infr_str s)
{
    return s ? (const char *)e->blob + s : "";
}

/* Copies the header and finds the tables. */
int rt_plan_load(struct infr_engine *e, const void *plan, uint64_t plan_bytes,
                 struct infr_status *st);
/* Moves the weights to huge pages of the process's own; when the kernel gives none, an error. */
int rt_weights_copy(struct infr_engine *e, struct infr_status *st);
uint64_t rt_weights_huge_bytes(const struct infr_engine *e);
void rt_weights_release(struct infr_engine *e);

/* Checks every number in them. Needs weights_bytes; reads no weights. */
int rt_plan_validate(const struct infr_engine *e, struct infr_status *st);

/* The engine linked into this program: fills *out_image. */
int rt_self_image(struct infr_image *out_image, struct infr_status *st);

/* Writes a dim row as an expression of symbols; cut with "..." where it does not fit. */
void rt_dim_text(const struct infr_engine *e, uint32_t row, char *out, size_t out_bytes);
void rt_dim_info(const struct infr_engine *e, uint32_t row, struct infr_dim_info *out);

#endif
