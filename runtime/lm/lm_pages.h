// SPDX-License-Identifier: Apache-2.0
/*
 * Pages of the KV cache: who holds which, and which can be found again by the tokens in them. This
 * is bookkeeping alone; the keys and values lie in the model's buffers at [page, position %
 * page_tokens].
 *
 * A page has page_tokens positions and a count of the sequences that hold it. Once its last
 * position is computed a page is published: it becomes a node of a radix tree whose edges are whole
 * pages of token ids, below the node of the page before it. A new sequence walks the tree from its
 * salt (a number for whatever else changes keys and values, adapters for example) and shares every
 * page it finds. Published pages that nobody holds stay until their room is needed: the longest
 * unused goes first, and leaves go before their parents because releasing a sequence touches its
 * pages from the last to the first.
 *
 * With a sliding window the pages behind it are given back while the sequence lives, and a node
 * whose page was evicted stays as a path to the nodes below it.
 *
 * A published page is never written to again. So a sequence is cut back only to where its published
 * pages end, and two sequences that compute the same page come to share one of them: batch
 * invariance makes the copies equal.
 *
 *        salt ---- [A B C D] ---- [E F G H] ---- private, not full: [I J . .]
 *                     p3              p7                               p9
 *                              \--- [E F X Y]
 *                                      p4
 *
 * All memory is taken when pool and sequences are created; nothing below allocates. Not thread
 * safe.
 */
#ifndef INFC_RUNTIME_LM_PAGES_H
#define INFC_RUNTIME_LM_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/infr.h"

#define LM_NONE UINT32_MAX

struct lm_pages_options {
    uint32_t n_pages;
    uint32_t page_tokens;
    uint32_t window;    /* positions a token looks back at most, itself included; 0: all */
    uint32_t max_pages; /* of one sequence: its context length in pages */
    uint64_t hash_seed; /* any number; unknown to whoever writes prompts */
    bool no_sharing;    /* nothing is published */
};

struct lm_page_counts {
    uint32_t held, cached, free; /* held by a sequence; published only; neither */
    uint32_t most_held;
    uint64_t lookups, tokens_looked_up, tokens_found, evictions;
};

struct lm_pages;

struct lm_seq {
    uint32_t *tokens;                 /* [capacity]: all tokens, computed or not */
    uint32_t *page_of;                /* [max_pages]: LM_NONE behind the window */
    uint32_t *node_of;                /* [max_pages]: tree node of a published page */
    uint32_t capacity;                /* max_pages * page_tokens */
    uint32_t n_tokens;                /* in tokens[] */
    uint32_t n_computed;              /* positions whose keys and values are there */
    uint32_t n_found;                 /* of those: found in the tree at the beginning */
    uint32_t n_pages;                 /* entries of page_of */
    uint32_t n_published, first_page; /* first_page: pages before it were given back */
    uint64_t salt;
    bool unpublished; /* this sequence publishes no further page: the tree is full */
};

int lm_pages_create(const struct lm_pages_options *o, struct lm_pages **out,
                    struct infr_status *st);
/* All sequences must have been released. */
void lm_pages_destroy(struct lm_pages *p);
void lm_pages_get_counts(const struct lm_pages *p, struct lm_page_counts *out);
/* Forgets all pages that nobody holds. */
void lm_pages_drop_cached(struct lm_pages *p);
uint32_t lm_pages_page_tokens(const struct lm_pages *p);

/* Memory for a sequence of up to max_pages pages, empty. */
int lm_seq_init(const struct lm_pages *p, struct lm_seq *s, struct infr_status *st);
void lm_seq_deinit(struct lm_seq *s);

/*
 * Begins an empty sequence with n tokens, n at most capacity: takes what the tree has of them, but
 * for the last token, whose logits somebody wants. search false: takes nothing (all logits are
 * wanted).
 */
void lm_seq_begin(struct lm_pages *p, struct lm_seq *s, uint64_t salt, const uint32_t *tokens,
                  uint32_t n, bool search);
/* Looks in the tree again for a sequence of which nothing is computed: others may have published
 * its tokens meanwhile. */
void lm_seq_search(struct lm_pages *p, struct lm_seq *s);
/* Appends a token. False: the sequence is full. */
bool lm_seq_append(struct lm_seq *s, uint32_t token);
/* Pages for positions below `end`, which must be at most n_tokens. False, with nothing taken: there
 * are not enough. */
bool lm_seq_reserve(struct lm_pages *p, struct lm_seq *s, uint32_t end);
/* Positions below `end` are computed now: publishes full pages, gives back those behind the window.
 */
void lm_seq_commit(struct lm_pages *p, struct lm_seq *s, uint32_t end);
/* Drops tokens from n on. Computed positions may have to be computed again: n_computed says from
 * where. */
void lm_seq_cut(struct lm_pages *p, struct lm_seq *s, uint32_t n);
/*
 * Holds the pages that positions [begin, end) lie in once more, whatever becomes of the sequence: somebody writes to them. Their numbers
 * go to pages[], at most (end - begin) / page_tokens + 2; returns how many. lm_pages_unpin ends it.
 */
uint32_t lm_seq_pin(struct lm_pages *p, const struct lm_seq *s, uint32_t begin, uint32_t end, uint32_t *pages);
void lm_pages_unpin(struct lm_pages *p, const uint32_t *pages, uint32_t n);
/* Gives all pages back. Keeps the tokens: with lm_seq_search the sequence can be computed again. */
void lm_seq_release(struct lm_pages *p, struct lm_seq *s);

/* How many of these tokens the tree has, without taking them. */
uint32_t lm_pages_find(const struct lm_pages *p, uint64_t salt, const uint32_t *tokens, uint32_t n);

#endif
