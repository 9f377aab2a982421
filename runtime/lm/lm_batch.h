// SPDX-License-Identifier: Apache-2.0
/*
 * One call of the model: rows of any mix of sequences, prompt chunks and single steps alike, in the
 * arrays that the compiled entry takes. Memory is taken once. What a sequence's rows compute does
 * not depend on what else is in the batch: that is the kernels' contract, nothing here sorts or
 * pads.
 */
#ifndef INFC_RUNTIME_LM_BATCH_H
#define INFC_RUNTIME_LM_BATCH_H

#include "runtime/lm/lm_pages.h"

struct lm_batch {
    int32_t *tokens, *positions; /* [n_tokens] */
    int32_t *seq_of;             /* [n_tokens]: row of the page table */
    int64_t *slots;              /* [n_tokens]: page * page_tokens + offset */
    int32_t *page_table; /* [n_seqs * width]; entries that no row reads hold anything from 0 on */
    int32_t *logit_rows; /* [n_rows] */
    uint32_t n_tokens, n_seqs, n_rows, width, page_tokens;
    uint32_t max_tokens, max_seqs, max_rows;
};

int lm_batch_init(struct lm_batch *b, uint32_t max_tokens, uint32_t max_seqs, uint32_t max_rows,
                  uint32_t width, uint32_t page_tokens, struct infr_status *st);
void lm_batch_deinit(struct lm_batch *b);
void lm_batch_clear(struct lm_batch *b);
/*
 * Adds positions [begin, end) of a sequence that has pages for them, and asks for the logits of
 * [rows_from, end). Returns the number of the first of those rows among all of the batch. The
 * caller keeps to max_tokens, max_seqs and max_rows.
 */
uint32_t lm_batch_add(struct lm_batch *b, const struct lm_seq *s, uint32_t begin, uint32_t end,
                      uint32_t rows_from);

#endif
