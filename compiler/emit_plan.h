// SPDX-License-Identifier: Apache-2.0
/* Writes a plan as the blob of runtime/abi/engine_format.h, and its constants in the order of the weights segment. */
#ifndef INFC_COMPILER_EMIT_PLAN_H
#define INFC_COMPILER_EMIT_PLAN_H

#include "ir/plan.h"
#include "ir/target.h"

/* One golden vector, made by compiler/golden.c. */
struct golden {
    uint64_t seed;
    int64_t *sym_values; /* of the first n_symbols symbols, in dim_sym_at order */
    size_t n_symbols;
    double tolerance;
    struct golden_output {
        uint64_t elems, step;
        double scale, tolerance;
        double *values;
        uint32_t n_values;
        int32_t input; /* the state input whose end this is, or -1 */
        int32_t probe; /* the probe that this is, or -1 */
    } *outputs;        /* n_rows: one a function output, then states, then probes */
    uint32_t n_rows;
};

struct plan_blob_options {
    const char *compiler_version;
    const char *manifest; /* JSON text */
    unsigned isa_mask;
    const struct golden *golden; /* NULL = none */
    double golden_tolerance;     /* at least this is allowed */
    const struct plan_blob *shared; /* another plan's blob, whose weights this one may use; its own come behind. NULL = none */
    const void *text; /* the text section (compiler/text_section.h), or NULL */
    size_t text_bytes;
};

/* One constant in the weights segment. */
struct weight {
    const struct ir_const *cst;
    struct plan_pack pack;
    uint64_t offset, n_bytes; /* offset: multiple of 64 */
};

struct plan_blob {
    struct strbuf bytes;
    struct weight *weights; /* in the plan's arena */
    size_t n_weights;
    uint64_t weights_bytes;
};

/* Symbol of kernel number i at a level, in `out` (at least 128 bytes): infr_k12_matmul_add_v4. */
void plan_kernel_symbol(const struct plan *p, int kernel, const struct target_level *level, char *out, size_t out_bytes);

/* Lays out the weights (blob->weights) and writes the blob. */
void plan_emit_blob(struct plan *p, const struct plan_blob_options *opt, struct plan_blob *out);

/*
 * Writes n_bytes of weight w from its byte `at` on into dst: packs, expands splats. at and n_bytes are multiples of the element size.
 */
void weight_read(const struct weight *w, uint64_t at, void *dst, size_t n_bytes);

#endif
