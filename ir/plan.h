// SPDX-License-Identifier: Apache-2.0
/*
 * The plan: what is left of a model at run time. Launches of kernels in structured blocks, buffers with static lifetimes,
 * constants with their packing. passes/plan.c makes it from lowered tensor IR; compiler/emit_plan.c writes it as
 * runtime/abi/engine_format.h.
 */
#ifndef INFC_IR_PLAN_H
#define INFC_IR_PLAN_H

#include "ir/loop.h"
#include "ir/module.h"
#include "ir/target.h"
#include "runtime/abi/engine_format.h"

/*
 * How a constant is stored for the kernels that read it: a permutation of axes and splitting of axes into panels, applied
 * once at build time: out[o0, o1, ..] (dims) = in[i..] where in-axis a = sum over terms (out-axis, stride) of
 * out-coordinate * stride; coordinates beyond the input's dim give `fill` (0). The identity has rank 0.
 */
#define PLAN_PACK_MAX_RANK 8
struct plan_pack {
    int rank;                        /* of the packed form; 0 = as is */
    int64_t dims[PLAN_PACK_MAX_RANK];
    int in_axis[PLAN_PACK_MAX_RANK]; /* out axis j steps in-axis in_axis[j] ... */
    int64_t stride[PLAN_PACK_MAX_RANK]; /* ... by this much */
    int in_rank;
    int64_t in_dims[PLAN_PACK_MAX_RANK];
    int winograd;                    /* m > 0: in[O, C, p] is point p of the transforms of w[O, C, 3, 3] (ir/winograd.h), f32 */
};

struct plan_buf {
    enum infr_buf_kind kind;
    enum dtype dtype;
    int rank;
    const struct dim *const *dims;
    const struct dim *bytes;
    int io;                      /* INPUT, OUTPUT */
    const struct ir_const *cst;  /* CONST */
    struct plan_pack pack;
    uint32_t first, last;        /* ARENA: filled by plan_lifetimes */
    const char *name;            /* for dumps, may be NULL */
};

struct plan_arg {
    int buf;
    const struct dim *offset_bytes; /* NULL = 0 */
    const char *cut; /* struct lp_buf; NULL where levels differ */
};

/* A kernel of the plan: its loop IR a level (NULL where the target has no such level), or a library function. */
struct plan_kernel {
    struct lp_kernel *levels[INFR_ISA_COUNT];
    const char *library_symbol; /* runtime/ops function; levels are all NULL then */
    const char *name, *schedule;
    uint64_t hash;          /* of the canonical loop IR of all levels; by passes/lower_module.c */
    uint64_t code_bytes[INFR_ISA_COUNT]; /* machine code; known after compiling */
    struct target_gpu_code gpu; /* known after compiling */
    uint64_t scratch_bytes; /* a worker's scratch memory, the most of all levels; known after compiling */
};

struct plan_launch {
    int kernel;
    int n_args, n_dims;
    int n_read; /* arguments before that one are only read */
    struct plan_arg *args;
    const struct dim **dims;                   /* kernel dim parameters; the same list on all levels */
    const struct dim *slices[INFR_ISA_COUNT];  /* a level; library ops: one value in all */
    int64_t claim;
    bool barrier;
    bool each; /* every worker may do all of it: only launches read what it writes, and no other writes that */
    const struct dim *flops, *bytes;
    const char *loc;
};

struct plan_block;

struct plan_step {
    enum infr_step_kind kind;
    struct plan_launch *launch;
    int cond_buf;           /* IF: its condition; PROBE: what is looked at */
    int probe, base;        /* PROBE: its number; that of the probe whose value it adds to, or -1 */
    struct plan_block *then_block, *else_block;
    struct ir_check check; /* CHECK: fails the call unless it holds */
};

struct plan_block {
    VEC(struct plan_step) steps;
};

struct plan {
    struct arena arena;
    struct ir_module *module; /* inputs, outputs, symbols, checks; outlives the plan */
    VEC(struct plan_buf) bufs;
    VEC(struct plan_kernel) kernels;
    struct plan_block *entry;
    uint32_t n_positions;     /* of the walk over all launches */
    int *input_bufs, *output_bufs;
    /* arena statistics at the smallest shapes, for reports: sum of all arena buffers, planned peak */
};

struct plan *plan_create(struct ir_module *m);
void plan_destroy(struct plan *p);
/* Sets `barrier` and `each` of every launch, and first/last of every arena buffer: numbers of the stretches between barriers. */
void plan_lifetimes(struct plan *p);
void plan_print(struct strbuf *out, const struct plan *p);
/* Same first-fit as the runtime: peak arena bytes at these symbol values; sum gets the sum of all sizes. */
/* Where each arena buffer lies (offset, bytes; others 0), a pair a buffer. */
bool plan_arena_layout(const struct plan *p, const int64_t *sym_values, uint64_t (*out)[2], uint64_t *peak, uint64_t *sum);
bool plan_arena_bytes(const struct plan *p, const int64_t *sym_values, uint64_t *peak, uint64_t *sum);

#endif
