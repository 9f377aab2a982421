// SPDX-License-Identifier: Apache-2.0
/*
 * What the schedules of attention over a paged cache share (passes/lower_attention_cache.c): shapes, the layout of states, and
 * reading what they store. passes/lower_attention.c serves GPUs, lower_attention_rows.c CPUs.
 */
#ifndef INFC_PASSES_LOWER_ATTENTION_H
#define INFC_PASSES_LOWER_ATTENTION_H

#include "passes/lower.h"

struct attention_shape {
    int64_t page, d, dv;
    int heads;                /* query heads a kv head */
    bool nibbles;             /* both caches: two elements a byte */
    int64_t k_block, v_block; /* elements that share a scale; 0: the cache holds floats */
};

/* False: not all sizes are known, or none that schedules serve. */
bool attention_shape_of(const struct ir_op *op, struct attention_shape *out);

/* Views buffer buf ([NP, P, H, D]) so that positions lie side by side: D * H rows of P elements a page. */
void attention_transpose_view(struct lower_ctx *l, int buf);
/* Is the state behind v read as V by any attention? Then it keeps its natural layout. */
bool attention_read_as_v(const struct lower_ctx *l, const struct ir_value *v);

/* The op's buffers, and what is at work. */
struct attention_cache {
    struct lower_ctx *l;
    struct expr_ctx *e;
    const struct ir_op *op;
    int q, k, v, positions, seq_of, table, k_scale, v_scale, out;
    struct attention_shape s;
    struct lp_value *head, *kv_head; /* head: first query head of the kv head */
};

/* The buffers of the group's anchor, viewed as they lie in a page. False: the group is no attention, or none for schedules. */
bool attention_cache_of(struct lower_ctx *l, struct attention_cache *out);

struct lp_value *attention_f32(const struct attention_cache *c, double v);
struct lp_value *attention_load_i64(const struct attention_cache *c, int buf, struct lp_value *i);
/* Number of page page_no of a sequence in the pool. */
struct lp_value *attention_page(const struct attention_cache *c, struct lp_value *seq, struct lp_value *page_no);
/* Least position that a row at `pos` sees. */
struct lp_value *attention_first_seen(const struct attention_cache *c, struct lp_value *pos);

/* Scores of some tile rows: q . k for columns [position, + width) of a page. */
struct attention_step {
    struct lp_value *page, *next; /* next: the page to prefetch, NULL: none */
    struct lp_value *first_row;   /* tile row that the tile begins with; load_q's own affair */
    int rows, width;
    struct lp_value *position;
    struct lp_value *(*load_q)(const struct attention_cache *c, const struct attention_step *s, struct lp_value *d); /* element d as a column, scaled */
};

struct lp_value *attention_dots(const struct attention_cache *c, const struct attention_step *s);

/* Asks for lines of page `next`: n elements from (position, element), along the positions or along the elements. */
void attention_prefetch(const struct attention_cache *c, int buf, struct lp_value *next, struct lp_value *position, struct lp_value *element, int64_t n,
                        bool along_positions);

/* Dots of all positions of a page to scores of a row at `pos`; unseen ones are -inf. */
struct lp_value *attention_seen(const struct attention_cache *c, struct lp_value *dots, struct lp_value *page_no, struct lp_value *pos);

/* 1 / the sum of weights, 1 where no position was seen. */
struct lp_value *attention_inverse(const struct attention_cache *c, struct lp_value *sum);

/* Columns of V that are summed together: some, or a block, or of nibbles half of one. */
struct attention_part {
    int64_t from, n; /* elements of a head */
    int width;       /* n rounded up to a power of two */
    int64_t at;      /* in a buffer of all parts */
};

enum { ATTENTION_MAX_PARTS = 64 };

/* The parts that hold the first dv elements of a row, of `width` columns where V's format leaves the choice; their number, 0: too many. */
int attention_parts(const struct attention_shape *s, int64_t width, struct attention_part *parts);

/* Are all parts as wide, one after the other, and read alike? Then a loop serves them, with their first element. */
bool attention_parts_alike(const struct attention_shape *s, const struct attention_part *parts, int n);

/* The elements of a part of V's row j of a page, as f32. from: its first element where parts are alike, NULL: p->from. */
struct lp_value *attention_load_v(const struct attention_cache *c, struct lp_value *page, struct lp_value *j, const struct attention_part *p,
                                  struct lp_value *from);

#endif
