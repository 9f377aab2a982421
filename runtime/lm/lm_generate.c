// SPDX-License-Identifier: Apache-2.0
/* The scheduler: which tokens of which requests make the next batch. */
#include "runtime/lm/lm_generate.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_generate_internal.h"
#include "runtime/status.h"

enum { MOST_LOOKED_AT = 16 }; /* waiting requests that a step considers */

/* ---- creation ---- */

static int find_eog(struct lm_generator *g, struct infr_status *st)
{
    struct tok_info info;
    for (int pass = 0; pass < 2; pass++) {
        g->n_eog = 0;
        for (uint32_t i = 0; i < tok_count(g->tok) && i < g->model->vocab; i++) {
            if (tok_token_info(g->tok, i, &info) || !info.ends_generation) continue;
            if (pass) g->eog[g->n_eog] = i;
            g->n_eog++;
        }
        if (pass) return INFR_OK;
        g->eog = malloc((g->n_eog + 1u) * sizeof *g->eog);
        if (!g->eog) break;
    }
    return rt_fail_memory(st, "tokens", g->n_eog * sizeof *g->eog);
}

static int fill(struct lm_generator *g, struct infr_status *st)
{
    const struct lm_generator_options *o = &g->o;
    uint32_t P = g->model->page_tokens, width = (o->n_ctx + P - 1) / P;
    struct lm_pages_options po = {g->model->n_pages, P, g->model->window, width, o->hash_seed,
                                  o->no_sharing};
    uint32_t most = o->chunk > o->max_seqs ? o->chunk : o->max_seqs + 1; /* see plan_prompts */
    int code = lm_pages_create(&po, &g->pages, st);
    if (!code)
        code = lm_batch_init(&g->batch, most, o->max_seqs, o->max_seqs + LM_PROMPT_ROWS, width, P,
                             st);
    if (!code) code = lm_draw_create(g->model->vocab, o->n_ctx, &g->draw, st);
    if (!code) code = find_eog(g, st);
    if (code) return code;
    g->plan = calloc(o->max_seqs, sizeof *g->plan);
    g->active = calloc(o->max_seqs, sizeof(struct lm_request *));
    /* what a token and the end of the text make, then what of it is shown with what was held */
    g->text = malloc(4 * tok_stream_max(g->tok) + LM_MAX_STOP_BYTES + 64);
    if (g->plan && g->active && g->text) return INFR_OK;
    return rt_fail_memory(st, "generation", o->max_seqs * sizeof *g->plan);
}

int lm_generator_create(struct lm_model *model, const struct tok *tok,
                        const struct lm_generator_options *o, struct lm_generator **out,
                        struct infr_status *st)
{
    *out = NULL;
    if (!model->vocab || !model->page_tokens || !model->causal)
        return rt_fail(st, INFR_BAD_INPUT, "this model does not generate text");
    if (!o->n_ctx || o->n_ctx > (uint32_t)INT32_MAX / 2 || !o->max_seqs || !o->chunk ||
        o->max_seqs > 1u << 16 || o->chunk > 1u << 20)
        return rt_fail(st, INFR_BAD_INPUT,
                       "a context of %u tokens, %u sequences and chunks of %u "
                       "are not possible",
                       o->n_ctx, o->max_seqs, o->chunk);
    if ((uint64_t)model->n_pages * model->page_tokens < o->n_ctx)
        return rt_fail(st, INFR_BAD_INPUT,
                       "the KV cache holds %llu tokens, less than a context of %u",
                       (unsigned long long)model->n_pages * model->page_tokens, o->n_ctx);
    struct lm_generator *g = calloc(1, sizeof *g);
    if (!g) return rt_fail_memory(st, "generation", sizeof *g);
    g->model = model, g->tok = tok, g->o = *o, g->chunk = o->chunk;
    int code = fill(g, st);
    if (code) {
        lm_generator_destroy(g);
        return code;
    }
    *out = g;
    return INFR_OK;
}

void lm_generator_destroy(struct lm_generator *g)
{
    if (!g) return;
    lm_pages_destroy(g->pages);
    lm_batch_deinit(&g->batch);
    lm_draw_destroy(g->draw);
    free(g->plan);
    free(g->active);
    free(g->text);
    free(g->eog);
    free(g);
}

void lm_generator_get_counts(const struct lm_generator *g, struct lm_counts *out)
{
    *out = g->counts;
    out->running = g->n_active, out->waiting = g->n_waiting;
    lm_pages_get_counts(g->pages, &out->pages);
}

/* ---- lists ---- */

static void remove_active(struct lm_generator *g, const struct lm_request *r)
{
    uint32_t i = 0;
    while (i < g->n_active && g->active[i] != r) i++;
    if (i == g->n_active) return;
    memmove(g->active + i, g->active + i + 1, (--g->n_active - i) * sizeof(struct lm_request *));
}

static void remove_waiting(struct lm_generator *g, struct lm_request *r)
{
    struct lm_request **link = &g->waiting;
    while (*link && *link != r) link = &(*link)->next;
    if (!*link) return;
    *link = r->next;
    r->next = NULL;
    g->n_waiting--;
}

void lm_generator_forget(struct lm_generator *g, struct lm_request *r)
{
    if (r->state == LM_ACTIVE) {
        lm_seq_release(g->pages, &r->seq);
        remove_active(g, r);
    } else {
        remove_waiting(g, r);
    }
}

static void insert_active(struct lm_generator *g, struct lm_request *r)
{
    uint32_t i = g->n_active++;
    for (; i && lm_request_before(r, g->active[i - 1]); i--) g->active[i] = g->active[i - 1];
    g->active[i] = r;
    r->state = LM_ACTIVE;
}

void lm_generator_wait(struct lm_generator *g, struct lm_request *r)
{
    struct lm_request **link = &g->waiting;
    while (*link && lm_request_before(*link, r)) link = &(*link)->next;
    r->next = *link;
    *link = r;
    r->state = LM_WAITING;
    g->n_waiting++;
}

static void preempt(struct lm_generator *g, struct lm_request *r)
{
    lm_seq_release(g->pages, &r->seq);
    remove_active(g, r);
    lm_generator_wait(g, r);
    g->counts.preemptions++;
}

void lm_generator_preempt(struct lm_generator *g)
{
    if (g->n_active) preempt(g, g->active[g->n_active - 1]);
}

/* ---- admission ---- */

/* Would an active request's prompt, once computed, spare this one a page of work? */
static bool better_wait(const struct lm_generator *g, const struct lm_request *r)
{
    uint32_t P = g->model->page_tokens, found = 0;
    bool known = false;
    for (uint32_t i = 0; i < g->n_active && !g->o.no_sharing && !r->d.prompt_logprobs; i++) {
        const struct lm_seq *a = &g->active[i]->seq, *b = &r->seq;
        uint32_t most = a->n_tokens < b->n_tokens ? a->n_tokens : b->n_tokens, same = 0;
        if (a->n_computed + 1 >= a->n_tokens || a->salt != b->salt) continue;
        while (same < most && a->tokens[same] == b->tokens[same]) same++;
        if (same == b->n_tokens) same--; /* its last token is computed in any case */
        same -= same % P;
        if (same <= a->n_computed) continue;
        if (!known) found = lm_pages_find(g->pages, b->salt, b->tokens, b->n_tokens);
        known = true;
        if (same > found) return true;
    }
    return false;
}

static bool has_room(const struct lm_generator *g, const struct lm_request *r)
{
    struct lm_page_counts c;
    uint32_t P = g->model->page_tokens, window = g->model->window;
    uint32_t want = (r->seq.n_tokens + P) / P - r->seq.n_pages;
    if (window && want > (window + g->chunk) / P + 2) want = (window + g->chunk) / P + 2;
    lm_pages_get_counts(g->pages, &c);
    return want + g->n_active <= c.free + c.cached; /* the others grow */
}

/* Takes what shared pages have of it, unless log probabilities of the whole prompt are wanted. */
static void search(struct lm_generator *g, struct lm_request *r)
{
    if (!r->d.prompt_logprobs || r->n_reported + 1 >= r->n_prompt) lm_seq_search(g->pages, &r->seq);
}

static void start(struct lm_generator *g, struct lm_request *r)
{
    if (!r->n_generated) r->n_cached = r->seq.n_found;
    remove_waiting(g, r);
    insert_active(g, r);
    lm_request_progress(r, r->seq.n_found);
}

/* A waiting request whose priority is better than that of the last running one gets its place. */
static void make_way(struct lm_generator *g)
{
    while (g->waiting && g->n_active == g->o.max_seqs &&
           g->waiting->d.priority < g->active[g->n_active - 1]->d.priority) {
        struct lm_request *first = g->waiting;
        preempt(g, g->active[g->n_active - 1]);
        search(g, first);
        start(g, first);
    }
}

/* In order; a request that waits for another one's prompt lets others pass. */
static void admit(struct lm_generator *g)
{
    make_way(g);
    struct lm_request *r = g->waiting, *next;
    for (int looked = 0; r && looked < MOST_LOOKED_AT && g->n_active < g->o.max_seqs;
         r = next, looked++) {
        next = r->next;
        if (better_wait(g, r)) continue;
        search(g, r);
        if (g->n_active && !has_room(g, r)) {
            lm_seq_release(g->pages, &r->seq);
            return;
        }
        start(g, r);
    }
}

static void end_cancelled(struct lm_generator *g)
{
    for (uint32_t i = g->n_active; i-- > 0;)
        if (g->active[i]->cancel) lm_request_end(g->active[i], LM_FINISH_CANCELLED, NULL);
    for (struct lm_request *r = g->waiting, *next; r; r = next) {
        next = r->next;
        if (r->cancel) lm_request_end(r, LM_FINISH_CANCELLED, NULL);
    }
}

/* ---- the batch ---- */

static bool wants_rows(const struct lm_request *r)
{
    return r->d.prompt_logprobs && r->n_reported + 1 < r->n_prompt;
}

static void plan(struct lm_generator *g, struct lm_request *r, uint32_t end)
{
    struct entry *e = &g->plan[g->n_plan++];
    e->r = r, e->begin = r->seq.n_computed, e->end = end;
    e->rows_from = end >= r->seq.n_tokens ? r->seq.n_tokens - 1 : end;
    if (wants_rows(r)) e->rows_from = e->begin;
    e->first_row = lm_batch_add(&g->batch, &r->seq, e->begin, end, e->rows_from);
}

/* Tokens of the answer's draft (lm_jump.c) for which there is room beside `others` more answers. */
static uint32_t draft_room(struct lm_generator *g, const struct lm_request *r, uint32_t others)
{
    uint32_t rows = g->batch.max_rows - g->batch.n_rows, tokens = g->batch.max_tokens - g->batch.n_tokens;
    uint32_t room = rows < tokens ? rows : tokens, n = r->n_draft;
    if (room < others + 1) return 0;
    return n < room - others - 1 ? n : room - others - 1;
}

/* The next token of every answer. Pages come from the youngest, which has not been planned yet. */
static void plan_answers(struct lm_generator *g)
{
    for (uint32_t i = 0; i < g->n_active; i++) {
        struct lm_request *r = g->active[i];
        if (r->seq.n_computed + 1 != r->seq.n_tokens || wants_rows(r)) continue;
        while (r->state == LM_ACTIVE && !lm_seq_reserve(g->pages, &r->seq, r->seq.n_tokens))
            preempt(g, g->active[g->n_active - 1]);
        if (r->state != LM_ACTIVE) continue;
        uint32_t n = draft_room(g, r, g->n_active - i - 1);
        if (n && !lm_seq_reserve(g->pages, &r->seq, r->seq.n_tokens + n)) n = 0;
        plan(g, r, r->seq.n_tokens + n);
    }
}

static bool is_planned(const struct lm_generator *g, const struct lm_request *r)
{
    for (uint32_t k = 0; k < g->n_plan; k++)
        if (g->plan[k].r == r) return true;
    return false;
}

/* Chunks of prompts, or, where answers fill the chunk, a token of one. Without pages a prompt
 * waits; when nothing else runs, the youngest gives way. */
static void plan_prompts(struct lm_generator *g)
{
    bool any = false;
    for (uint32_t i = 0; i < g->n_active; i++) {
        struct lm_request *r = g->active[i];
        struct lm_seq *s = &r->seq;
        if (is_planned(g, r)) continue;
        uint32_t room = g->chunk > g->batch.n_tokens ? g->chunk - g->batch.n_tokens : 0;
        uint32_t rows = g->batch.max_rows - g->batch.n_rows - (g->n_active - i);
        if (!room && !any) room = 1;
        if (wants_rows(r) && room > rows) room = rows;
        if (!room) continue;
        uint32_t end = s->n_tokens - s->n_computed < room ? s->n_tokens : s->n_computed + room;
        bool got = lm_seq_reserve(g->pages, s, end);
        while (!got && !g->n_plan && r->state == LM_ACTIVE) {
            preempt(g, g->active[g->n_active - 1]);
            if (r->state == LM_ACTIVE) got = lm_seq_reserve(g->pages, s, end);
        }
        if (got) plan(g, r, end);
        any = any || got;
    }
}

/* ---- steps ---- */

static void finish_step(struct lm_generator *g, const struct lm_output *out)
{
    for (uint32_t i = 0; i < g->n_plan; i++) {
        struct lm_seq *s = &g->plan[i].r->seq; /* drafts are not part of it yet */
        lm_seq_commit(g->pages, s, g->plan[i].end < s->n_tokens ? g->plan[i].end : s->n_tokens);
    }
    for (uint32_t i = 0; i < g->n_plan; i++) lm_request_progress(g->plan[i].r, g->plan[i].end);
    for (uint32_t i = 0; i < g->n_plan; i++)
        if (g->plan[i].r->state == LM_ACTIVE)
            lm_request_rows(g->plan[i].r, &g->plan[i], out->logits);
}

void lm_generator_set_chunk(struct lm_generator *g, uint32_t chunk)
{
    g->chunk = chunk < 1 ? 1 : chunk > g->o.chunk ? g->o.chunk : chunk;
}

static void fail(struct lm_generator *g, const char *why)
{
    for (uint32_t i = 0; i < g->n_plan; i++) lm_request_end(g->plan[i].r, LM_FINISH_ERROR, why);
    if (g->o.keep_others) return;
    while (g->n_active) lm_request_end(g->active[g->n_active - 1], LM_FINISH_ERROR, why);
    while (g->waiting) lm_request_end(g->waiting, LM_FINISH_ERROR, why);
}

int lm_generator_step(struct lm_generator *g, bool *more, struct infr_status *st)
{
    struct lm_output out = {0};
    end_cancelled(g);
    admit(g);
    lm_batch_clear(&g->batch);
    g->n_plan = 0;
    plan_answers(g);
    g->counts.step_answers = g->n_plan;
    plan_prompts(g);
    g->counts.step_tokens = g->batch.n_tokens;
    *more = g->n_active || g->waiting;
    if (!g->n_plan) return INFR_OK;
    int code = g->model->forward(g->model, &g->batch, &out, st);
    if (code) {
        fail(g, "the model failed");
        *more = g->n_active || g->waiting;
        return code;
    }
    g->counts.steps++;
    g->counts.tokens_computed += g->batch.n_tokens;
    finish_step(g, &out);
    *more = g->n_active || g->waiting;
    return INFR_OK;
}

int lm_generator_run(struct lm_generator *g, struct infr_status *st)
{
    bool more = true;
    int code = 0;
    while (more && !code) code = lm_generator_step(g, &more, st);
    return code;
}
