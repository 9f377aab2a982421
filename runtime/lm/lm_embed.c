// SPDX-License-Identifier: Apache-2.0
#include "runtime/lm/lm_embed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/status.h"

int lm_embedder_init(struct lm_embedder *e, struct lm_model *model, uint32_t n_ctx, uint32_t chunk,
                     struct infr_status *st)
{
    uint32_t P = model->page_tokens ? model->page_tokens : 1, width = (n_ctx + P - 1) / P;
    struct lm_pages_options o = {.n_pages = model->page_tokens ? model->n_pages : width,
                                 .page_tokens = P,
                                 .window = model->causal ? model->window : 0,
                                 .max_pages = width,
                                 .no_sharing = true};
    *e = (struct lm_embedder){
        .model = model, .n_ctx = n_ctx, .chunk = model->causal && chunk < n_ctx ? chunk : n_ctx};
    int code = lm_pages_create(&o, &e->pages, st);
    if (!code) code = lm_seq_init(e->pages, &e->seq, st);
    if (!code) code = lm_batch_init(&e->batch, e->chunk, 1, e->chunk, width, P, st);
    e->sum = calloc(model->embedding_dims + 1u, sizeof *e->sum);
    if (!code && !e->sum)
        code = rt_fail_memory(st, "a vector", model->embedding_dims * sizeof *e->sum);
    if (code) lm_embedder_deinit(e);
    return code;
}

void lm_embedder_deinit(struct lm_embedder *e)
{
    lm_seq_deinit(&e->seq);
    lm_pages_destroy(e->pages);
    lm_batch_deinit(&e->batch);
    free(e->sum);
    *e = (struct lm_embedder){0};
}

/* Rows of [begin, end) that the pooling looks at are added to the sum. */
static int run_chunk(struct lm_embedder *e, uint32_t begin, uint32_t end, uint32_t n,
                     enum infr_text_pooling pooling, struct infr_status *st)
{
    struct lm_output out;
    uint32_t dims = e->model->embedding_dims, rows = end - begin, first = begin;
    if (pooling == INFR_POOLING_LAST) first = n - 1 > begin ? n - 1 : begin;
    lm_batch_clear(&e->batch);
    lm_batch_add(&e->batch, &e->seq, begin, end, first < end ? first : end);
    if (pooling == INFR_POOLING_LAST) rows = first < end ? 1 : 0;
    if (pooling == INFR_POOLING_CLS) rows = begin == 0;
    int code = e->model->forward(e->model, &e->batch, &out, st);
    if (code) return code;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < dims; i++)
            e->sum[i] += (double)out.embeddings[(size_t)r * dims + i];
    return INFR_OK;
}

static int run_all(struct lm_embedder *e, uint32_t n, enum infr_text_pooling pooling,
                   struct infr_status *st)
{
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        end = n - begin < e->chunk ? n : begin + e->chunk;
        if (!lm_seq_reserve(e->pages, &e->seq, end))
            return rt_fail(st, INFR_BAD_INPUT, "the KV cache is too small for %u tokens", n);
        int code = run_chunk(e, begin, end, n, pooling, st);
        if (code) return code;
        lm_seq_commit(e->pages, &e->seq, end);
    }
    return INFR_OK;
}

int lm_embedder_run(struct lm_embedder *e, const uint32_t *ids, uint32_t n,
                    enum infr_text_pooling pooling, bool normalize, float *out,
                    struct infr_status *st)
{
    uint32_t dims = e->model->embedding_dims;
    if (!n) return rt_fail(st, INFR_BAD_INPUT, "the text has no tokens");
    if (n > e->n_ctx)
        return rt_fail(st, INFR_BAD_INPUT, "the text has %u tokens; the context holds %u", n,
                       e->n_ctx);
    if (pooling == INFR_POOLING_RANK) pooling = e->model->causal ? INFR_POOLING_LAST : INFR_POOLING_CLS;
    memset(e->sum, 0, dims * sizeof *e->sum);
    lm_seq_begin(e->pages, &e->seq, 0, ids, n, false);
    int code = run_all(e, n, pooling, st);
    lm_seq_release(e->pages, &e->seq);
    if (code) return code;
    double square = 0, scale = pooling == INFR_POOLING_MEAN ? 1.0 / n : 1;
    for (uint32_t i = 0; i < dims; i++) square += e->sum[i] * e->sum[i];
    if (normalize) scale = square > 0 ? 1 / sqrt(square) : 0;
    for (uint32_t i = 0; i < dims; i++) out[i] = (float)(e->sum[i] * scale);
    return INFR_OK;
}
