// SPDX-License-Identifier: Apache-2.0
#include "runtime/lm/lm_batch.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/status.h"

int lm_batch_init(struct lm_batch *b, uint32_t max_tokens, uint32_t max_seqs, uint32_t max_rows,
                  uint32_t width, uint32_t page_tokens, struct infr_status *st)
{
    *b = (struct lm_batch){.max_tokens = max_tokens,
                           .max_seqs = max_seqs,
                           .max_rows = max_rows,
                           .width = width,
                           .page_tokens = page_tokens};
    b->tokens = calloc(max_tokens, sizeof *b->tokens);
    b->positions = calloc(max_tokens, sizeof *b->positions);
    b->seq_of = calloc(max_tokens, sizeof *b->seq_of);
    b->slots = calloc(max_tokens, sizeof *b->slots);
    b->page_table = calloc((size_t)max_seqs * width + 1, sizeof *b->page_table);
    b->logit_rows = calloc((size_t)max_rows + 1, sizeof *b->logit_rows);
    if (b->tokens && b->positions && b->seq_of && b->slots && b->page_table && b->logit_rows)
        return INFR_OK;
    lm_batch_deinit(b);
    return rt_fail_memory(st, "a batch", 20ull * max_tokens + 4ull * max_seqs * width);
}

void lm_batch_deinit(struct lm_batch *b)
{
    free(b->tokens);
    free(b->positions);
    free(b->seq_of);
    free(b->slots);
    free(b->page_table);
    free(b->logit_rows);
    *b = (struct lm_batch){0};
}

void lm_batch_clear(struct lm_batch *b) { b->n_tokens = b->n_seqs = b->n_rows = 0; }

uint32_t lm_batch_add(struct lm_batch *b, const struct lm_seq *s, uint32_t begin, uint32_t end,
                      uint32_t rows_from)
{
    uint32_t seq = b->n_seqs++, first_row = b->n_rows;
    int32_t *table = b->page_table + (size_t)seq * b->width;
    uint32_t n_pages = s->n_pages < b->width ? s->n_pages : b->width;
    for (uint32_t i = 0; i < n_pages; i++)
        table[i] = s->page_of[i] == LM_NONE ? 0 : (int32_t)s->page_of[i];
    for (uint32_t i = begin; i < end; i++) {
        uint32_t row = b->n_tokens++;
        b->tokens[row] = (int32_t)s->tokens[i];
        b->positions[row] = (int32_t)i;
        b->seq_of[row] = (int32_t)seq;
        b->slots[row] = n_pages ? (int64_t)table[i / b->page_tokens] * b->page_tokens +
                                      i % b->page_tokens
                                : -1;
        if (i >= rows_from) b->logit_rows[b->n_rows++] = (int32_t)row;
    }
    return first_row;
}
