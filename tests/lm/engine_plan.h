// SPDX-License-Identifier: Apache-2.0
/*
 * An engine of a language model, written by hand: its one kernel does what tests/lm/fake_model.h
 * does, through inputs, state and output of a plan. R begins at 1, as the compiler has it.
 */
#ifndef INFC_TESTS_LM_ENGINE_PLAN_H
#define INFC_TESTS_LM_ENGINE_PLAN_H

#include <stddef.h>

#include "runtime/abi/engine_format.h"
#include "tests/lm/fake_model.h"

enum { EP_P = 8, EP_V = 320 };
enum {
    EP_T,
    EP_S,
    EP_MP,
    EP_R,
    EP_NP,
    EP_C1,
    EP_C4,
    EP_C8,
    EP_CP,
    EP_CV,
    EP_4T,
    EP_8T,
    EP_4S,
    EP_TABLE,
    EP_4R,
    EP_8NP,
    EP_STATE,
    EP_LOGITS,
    EP_DIMS
};
enum { EP_INPUTS = 7 };

struct engine_plan {
    _Alignas(64) struct infr_header h;
    struct infr_dim dims[EP_DIMS];
    struct infr_symbol symbols[5];
    struct infr_io inputs[EP_INPUTS], outputs[1];
    struct infr_buf bufs[EP_INPUTS + 1];
    struct infr_arg args[EP_INPUTS + 1];
    struct infr_launch launches[1];
    struct infr_step steps[1];
    struct infr_block blocks[1];
    struct infr_kernel kernels[1];
    uint32_t pool_u32[32];
    char strings[512];
};

static inline void ep_kernel(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end,
                             void *scratch)
{
    const int32_t *tokens = bufs[0], *positions = bufs[1], *seq_of = bufs[2], *rows = bufs[5];
    const int64_t *slots = bufs[3];
    uint64_t *cache = bufs[6];
    float *logits = bufs[7];
    (void)scratch;
    if (begin == end) return;
    for (int64_t t = 0; t < dims[0]; t++)
        if (slots[t] >= 0) cache[slots[t]] = (uint64_t)positions[t] << 32 | (uint32_t)tokens[t];
    for (int64_t r = 0; r < dims[3]; r++) {
        int32_t t = rows[r];
        const int32_t *table = (const int32_t *)bufs[4] + seq_of[t] * dims[2];
        uint64_t h = 1;
        for (int32_t i = 0; i <= positions[t]; i++)
            h = fake_mix(h, cache[table[i / EP_P] * EP_P + i % EP_P]);
        fake_row(h, EP_V, logits + r * EP_V);
    }
}

static infr_kernel_fn *const ep_table[INFR_ISA_COUNT] = {ep_kernel};

static inline infr_str ep_string(struct engine_plan *p, uint32_t *at, const char *s)
{
    infr_str offset = (infr_str)(offsetof(struct engine_plan, strings) + *at);
    strcpy(p->strings + *at, s);
    *at += (uint32_t)strlen(s) + 1;
    return offset;
}

#define EP_TABLE_OF(field)                                                                        \
    (struct infr_table)                                                                           \
    {                                                                                             \
        offsetof(struct engine_plan, field), sizeof p->field / sizeof *p->field, sizeof *p->field \
    }

static inline void ep_tables(struct engine_plan *p)
{
    p->h.dims = EP_TABLE_OF(dims), p->h.symbols = EP_TABLE_OF(symbols);
    p->h.inputs = EP_TABLE_OF(inputs), p->h.outputs = EP_TABLE_OF(outputs);
    p->h.bufs = EP_TABLE_OF(bufs), p->h.args = EP_TABLE_OF(args);
    p->h.launches = EP_TABLE_OF(launches), p->h.steps = EP_TABLE_OF(steps);
    p->h.blocks = EP_TABLE_OF(blocks), p->h.kernels = EP_TABLE_OF(kernels);
    p->h.pool_u32 = EP_TABLE_OF(pool_u32);
}

static inline void ep_init(struct engine_plan *p)
{
    static const struct infr_dim dims[EP_DIMS] = {
        [EP_T] = {INFR_DIM_SYM, 0, 0, 0, 0},
        [EP_S] = {INFR_DIM_SYM, 1, 0, 0, 0},
        [EP_MP] = {INFR_DIM_SYM, 2, 0, 0, 0},
        [EP_R] = {INFR_DIM_SYM, 3, 0, 0, 0},
        [EP_NP] = {INFR_DIM_SYM, 4, 0, 0, 0},
        [EP_C1] = {INFR_DIM_CONST, 0, 0, 0, 1},
        [EP_C4] = {INFR_DIM_CONST, 0, 0, 0, 4},
        [EP_C8] = {INFR_DIM_CONST, 0, 0, 0, 8},
        [EP_CP] = {INFR_DIM_CONST, 0, 0, 0, EP_P},
        [EP_CV] = {INFR_DIM_CONST, 0, 0, 0, EP_V},
        [EP_4T] = {INFR_DIM_MUL, EP_T, EP_C4, 0, 0},
        [EP_8T] = {INFR_DIM_MUL, EP_T, EP_C8, 0, 0},
        [EP_4S] = {INFR_DIM_MUL, EP_S, EP_C4, 0, 0},
        [EP_TABLE] = {INFR_DIM_MUL, EP_4S, EP_MP, 0, 0},
        [EP_4R] = {INFR_DIM_MUL, EP_R, EP_C4, 0, 0},
        [EP_8NP] = {INFR_DIM_MUL, EP_NP, EP_C8, 0, 0},
        [EP_STATE] = {INFR_DIM_MUL, EP_8NP, EP_CP, 0, 0},
        [EP_LOGITS] = {INFR_DIM_MUL, EP_4R, EP_CV, 0, 0},
    };
    static const struct {
        const char *name;
        uint32_t dtype, rank, dims[3], bytes;
    } ios[EP_INPUTS + 1] = {{"tokens", DT_I32, 1, {EP_T}, EP_4T},
                            {"positions", DT_I32, 1, {EP_T}, EP_4T},
                            {"seq_of", DT_I32, 1, {EP_T}, EP_4T},
                            {"slots", DT_I64, 1, {EP_T}, EP_8T},
                            {"page_table", DT_I32, 2, {EP_S, EP_MP}, EP_TABLE},
                            {"logit_rows", DT_I32, 1, {EP_R}, EP_4R},
                            {"k_cache.0", DT_I64, 3, {EP_NP, EP_CP, EP_C1}, EP_STATE},
                            {"logits", DT_F32, 2, {EP_R, EP_CV}, EP_LOGITS}};
    static const struct {
        const char *name;
        uint32_t input, axis;
    } symbols[5] = {{"T", 0, 0}, {"S", 4, 0}, {"MP", 4, 1}, {"R", 5, 0}, {"NP", 6, 0}};
    uint32_t at = 1, n_pool = 4;
    memset(p, 0, sizeof *p);
    memcpy(p->dims, dims, sizeof dims);
    for (uint32_t i = 0; i < 4; i++) p->pool_u32[i] = i; /* the kernel's: T S MP R */
    for (uint32_t i = 0; i <= EP_INPUTS; i++) {
        struct infr_io *io = i < EP_INPUTS ? &p->inputs[i] : &p->outputs[0];
        *io = (struct infr_io){.name = ep_string(p, &at, ios[i].name),
                               .dtype = ios[i].dtype,
                               .rank = ios[i].rank,
                               .dims = n_pool,
                               .buf = i};
        if (i == 6) io->optional = INFR_IO_STATE;
        for (uint32_t k = 0; k < ios[i].rank; k++) p->pool_u32[n_pool++] = ios[i].dims[k];
        p->bufs[i] = (struct infr_buf){.kind = i < EP_INPUTS ? INFR_BUF_INPUT : INFR_BUF_OUTPUT,
                                       .dtype = ios[i].dtype,
                                       .bytes = ios[i].bytes,
                                       .io = i < EP_INPUTS ? i : 0};
        p->args[i] = (struct infr_arg){i, INFR_NONE};
    }
    for (uint32_t i = 0; i < 5; i++)
        p->symbols[i] = (struct infr_symbol){
            ep_string(p, &at, symbols[i].name), symbols[i].input, symbols[i].axis, 0, 1, 65536};
    p->kernels[0] = (struct infr_kernel){.symbol = ep_string(p, &at, "all"), .isa_mask = 1};
    p->launches[0] = (struct infr_launch){.n_args = EP_INPUTS + 1,
                                          .n_dims = 4,
                                          .name = p->kernels[0].symbol,
                                          .flops = INFR_NONE,
                                          .bytes = INFR_NONE};
    for (int v = 0; v < INFR_ISA_COUNT; v++)
        p->launches[0].slices[v] = v == INFR_ISA_V2 ? EP_C1 : INFR_NONE;
    p->blocks[0].count = 1;
    p->h = (struct infr_header){.magic = INFR_MAGIC,
                                .header_bytes = sizeof p->h,
                                .major = INFR_VERSION_MAJOR,
                                .minor = INFR_VERSION_MINOR,
                                .blob_bytes = sizeof *p,
                                .isa_mask = 1};
    p->h.model_name = ep_string(p, &at, "hand");
    p->h.compiler_version = ep_string(p, &at, "0.0");
    p->h.manifest = ep_string(p, &at, "{}");
    ep_tables(p);
}

static inline struct infr_text_header ep_text(void)
{
    return (struct infr_text_header){
        .vocab = EP_V, .page_tokens = EP_P, .ctx_train = 256, .flags = INFR_TEXT_CAUSAL};
}

#endif
