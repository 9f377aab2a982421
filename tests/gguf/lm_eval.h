// SPDX-License-Identifier: Apache-2.0
/*
 * Runs imported language models in the evaluator: sequences of tokens through a paged cache, in any chunks. Pages are given
 * out in an order that is not their number's, so that a confusion of the two shows.
 */
#ifndef INFC_TESTS_GGUF_LM_EVAL_H
#define INFC_TESTS_GGUF_LM_EVAL_H

#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"
#include "ir/plan_eval.h"

#define LM_MAX_SEQS 4
#define LM_PAGES_A_SEQ 4
#define LM_PAGE 32
#define LM_MAX_INPUTS 600

struct lm {
    struct ir_module *m;
    struct ir_tensor in[LM_MAX_INPUTS];
    int32_t page_table[LM_MAX_SEQS][LM_PAGES_A_SEQ];
    int n_threads;
    /* Set after lm_init: calls run the plan of m at this level (a plan keeps the order of m's inputs), not m itself. */
    const struct plan *plan;
    enum infr_isa level;
    void (*read_const)(const struct plan_buf *b, void *dst, size_t n_bytes);
};

struct lm_row {
    int seq, pos, token;
    bool wanted;
};

static inline int lm_input(const struct lm *l, const char *name)
{
    const struct ir_func *f = l->m->funcs.v[0];
    for (int i = 0; i < f->n_inputs; i++)
        if (!strcmp(f->input_names[i], name)) return i;
    return -1;
}

/* Zeroed states; the module stays the caller's. */
static inline bool lm_init(struct lm *l, struct ir_module *m)
{
    const struct ir_func *f = m->funcs.v[0];
    const int n_pages = LM_MAX_SEQS * LM_PAGES_A_SEQ;
    memset(l, 0, sizeof *l);
    l->m = m;
    l->n_threads = 2;
    if (f->n_inputs > LM_MAX_INPUTS) return false;
    for (int s = 0; s < LM_MAX_SEQS; s++)
        for (int p = 0; p < LM_PAGES_A_SEQ; p++) l->page_table[s][p] = (5 * (s * LM_PAGES_A_SEQ + p) + 3) % n_pages;
    for (int i = 0; i < f->n_inputs; i++) {
        const struct ir_type *t = &f->body->args[i]->type;
        if (!f->input_state[i]) continue;
        l->in[i] = (struct ir_tensor){.dtype = t->dtype, .rank = 4, .dims = {n_pages, t->dims[1]->value, t->dims[2]->value, t->dims[3]->value}};
        l->in[i].n_bytes = (size_t)(n_pages * t->dims[1]->value * t->dims[2]->value * t->dims[3]->value) * dtype_bytes(t->dtype);
        l->in[i].data = calloc(1, l->in[i].n_bytes);
        if (!l->in[i].data) return false;
    }
    return true;
}

static inline void lm_deinit(struct lm *l)
{
    const struct ir_func *f = l->m->funcs.v[0];
    for (int i = 0; i < f->n_inputs && i < LM_MAX_INPUTS; i++)
        if (f->input_state[i]) free(l->in[i].data);
}

static inline void lm_set(struct lm *l, const char *name, enum dtype d, int64_t n, int64_t n2, void *data)
{
    int i = lm_input(l, name);
    if (i < 0) return;
    l->in[i] = (struct ir_tensor){.dtype = d, .rank = n2 ? 2 : 1, .dims = {n, n2}, .data = data};
    l->in[i].n_bytes = (size_t)(n * (n2 ? n2 : 1)) * dtype_bytes(d);
}

/* One call with these rows; out: f32 [wanted rows, width], in the arena. */
static inline bool lm_run(struct lm *l, const struct lm_row *rows, int n, struct ir_tensor *out, struct arena *arena, struct diag_sink *sink)
{
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, n), *positions = ARENA_ARRAY(arena, int32_t, n), *seq_of = ARENA_ARRAY(arena, int32_t, n);
    int32_t *wanted = ARENA_ARRAY(arena, int32_t, n + 1), n_wanted = 0;
    int64_t *slots = ARENA_ARRAY(arena, int64_t, n);
    for (int t = 0; t < n; t++) {
        tokens[t] = rows[t].token;
        positions[t] = rows[t].pos;
        seq_of[t] = rows[t].seq;
        slots[t] = (int64_t)l->page_table[rows[t].seq][rows[t].pos / LM_PAGE] * LM_PAGE + rows[t].pos % LM_PAGE;
        if (rows[t].wanted) wanted[n_wanted++] = t;
    }
    lm_set(l, "tokens", DT_I32, n, 0, tokens);
    lm_set(l, "positions", DT_I32, n, 0, positions);
    lm_set(l, "seq_of", DT_I32, n, 0, seq_of);
    lm_set(l, "slots", DT_I64, n, 0, slots);
    lm_set(l, "page_table", DT_I32, LM_MAX_SEQS, LM_PAGES_A_SEQ, l->page_table);
    lm_set(l, "logit_rows", DT_I32, n_wanted, 0, wanted);
    if (l->plan) return plan_eval(l->plan, l->level, l->in, out, l->read_const, arena, sink);
    return ir_eval_func_threads(l->m->funcs.v[0], l->in, out, arena, sink, l->n_threads);
}

#endif
