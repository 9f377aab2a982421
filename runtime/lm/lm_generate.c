// SPDX-License-Identifier: Apache-2.0
/* The scheduler: which tokens of which requests make the next batch. */
#include "runtime/lm/lm_generate.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_generate_internal.h"
#include "runtime/status.h"

static const double LONGEST_S = 0.05; /* that prompts apart take of a step without answers: there may be new requests */
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

static int step_init(const struct lm_generator *g, struct step *s, uint32_t most, uint32_t width, struct infr_status *st)
{
    uint32_t max_seqs = g->o.max_seqs;
    int code = lm_batch_init(&s->batch, most, max_seqs, max_seqs + LM_PROMPT_ROWS, width, g->model->page_tokens, st);
    s->plan = calloc(max_seqs, sizeof *s->plan);
    if (code || s->plan) return code;
    return rt_fail_memory(st, "generation", max_seqs * sizeof *s->plan);
}

static void step_clear(struct step *s)
{
    lm_batch_clear(&s->batch);
    s->n_plan = 0;
}

static int fill(struct lm_generator *g, struct infr_status *st)
{
    const struct lm_generator_options *o = &g->o;
    uint32_t P = g->model->page_tokens, width = (o->n_ctx + P - 1) / P;
    struct lm_pages_options po = {g->model->n_pages, P, g->model->window, width, o->hash_seed,
                                  o->no_sharing};
    uint32_t most = o->chunk > o->max_seqs ? o->chunk : o->max_seqs + 1; /* see plan_prompts */
    int code = lm_pages_create(&po, &g->pages, st);
    if (!code) code = step_init(g, &g->now, most, width, st);
    if (!code) code = lm_draw_create(g->model->vocab, o->n_ctx, &g->draw, st);
    if (!code) code = find_eog(g, st);
    if (code) return code;
    g->active = calloc(o->max_seqs, sizeof(struct lm_request *));
    /* what a token and the end of the text make, then what of it is shown with what was held */
    g->text = malloc(4 * tok_stream_max(g->tok) + LM_MAX_STOP_BYTES + 64);
    if (g->active && g->text) return INFR_OK;
    return rt_fail_memory(st, "generation", o->max_seqs * sizeof(struct lm_request *));
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
    lm_batch_deinit(&g->now.batch);
    lm_batch_deinit(&g->apart.batch);
    lm_draw_destroy(g->draw);
    free(g->now.plan);
    free(g->apart.plan);
    free(g->pinned);
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

/* The batch apart ends without results: what it writes is nobody's any more. */
static void drop_apart(struct lm_generator *g)
{
    lm_pages_unpin(g->pages, g->pinned, g->n_pinned);
    g->n_pinned = 0;
    g->begun = false;
    step_clear(&g->apart);
}

static bool is_in(const struct step *s, const struct lm_request *r)
{
    uint32_t i = 0;
    while (i < s->n_plan && s->plan[i].r != r) i++;
    return i < s->n_plan;
}

/* Its rows in the batch apart are computed for nobody. */
static void leave_apart(struct lm_generator *g, const struct lm_request *r)
{
    bool any = false;
    for (uint32_t i = 0; i < g->apart.n_plan; i++) {
        if (g->apart.plan[i].r == r) g->apart.plan[i].r = NULL;
        any |= g->apart.plan[i].r != NULL;
    }
    if (!any && g->apart.n_plan) drop_apart(g);
}

void lm_generator_forget(struct lm_generator *g, struct lm_request *r)
{
    leave_apart(g, r);
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

/* Where its pages are pinned they would not be free: then the batch apart is given up. */
static void preempt(struct lm_generator *g, struct lm_request *r)
{
    if (is_in(&g->apart, r)) drop_apart(g);
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

static void plan(struct step *s, struct lm_request *r, uint32_t end)
{
    struct entry *e = &s->plan[s->n_plan++];
    e->r = r, e->begin = r->seq.n_computed, e->end = end;
    e->rows_from = end >= r->seq.n_tokens ? r->seq.n_tokens - 1 : end;
    if (wants_rows(r)) e->rows_from = e->begin;
    e->first_row = lm_batch_add(&s->batch, &r->seq, e->begin, end, e->rows_from);
}

/* Tokens of the answer's draft (lm_jump.c) for which there is room beside `others` more answers. */
static uint32_t draft_room(const struct lm_batch *b, const struct lm_request *r, uint32_t others)
{
    uint32_t rows = b->max_rows - b->n_rows, tokens = b->max_tokens - b->n_tokens;
    uint32_t room = rows < tokens ? rows : tokens, n = r->n_draft;
    if (room < others + 1) return 0;
    return n < room - others - 1 ? n : room - others - 1;
}

/* The next token of every answer. Pages come from the youngest, which has not been planned yet. */
static void plan_answers(struct lm_generator *g)
{
    for (uint32_t i = 0; i < g->n_active; i++) {
        struct lm_request *r = g->active[i];
        if (r->seq.n_computed + 1 != r->seq.n_tokens || wants_rows(r) || is_in(&g->apart, r)) continue;
        while (r->state == LM_ACTIVE && !lm_seq_reserve(g->pages, &r->seq, r->seq.n_tokens))
            preempt(g, g->active[g->n_active - 1]);
        if (r->state != LM_ACTIVE) continue;
        uint32_t n = draft_room(&g->now.batch, r, g->n_active - i - 1);
        if (n && !lm_seq_reserve(g->pages, &r->seq, r->seq.n_tokens + n)) n = 0;
        plan(&g->now, r, r->seq.n_tokens + n);
    }
}

/* Chunks of prompts, or, where answers fill the chunk, a token of one. Without pages a prompt
 * waits; when nothing else runs, the youngest gives way. */
static void plan_prompts(struct lm_generator *g, struct step *to)
{
    bool any = false;
    for (uint32_t i = 0; i < g->n_active; i++) {
        struct lm_request *r = g->active[i];
        struct lm_seq *s = &r->seq;
        if (is_in(&g->now, r) || is_in(&g->apart, r)) continue;
        uint32_t room = g->chunk > to->batch.n_tokens ? g->chunk - to->batch.n_tokens : 0;
        uint32_t rows = to->batch.max_rows - to->batch.n_rows - (g->n_active - i);
        if (!room && !any) room = 1;
        if (wants_rows(r) && room > rows) room = rows;
        if (!room) continue;
        uint32_t end = s->n_tokens - s->n_computed < room ? s->n_tokens : s->n_computed + room;
        bool got = lm_seq_reserve(g->pages, s, end);
        while (!got && !g->now.n_plan && !g->apart.n_plan && r->state == LM_ACTIVE) {
            preempt(g, g->active[g->n_active - 1]);
            if (r->state == LM_ACTIVE) got = lm_seq_reserve(g->pages, s, end);
        }
        if (got) plan(to, r, end);
        any = any || got;
    }
}

/* A batch of prompts; the pages that it writes are held until it ends. */
static void plan_apart(struct lm_generator *g)
{
    plan_prompts(g, &g->apart);
    for (uint32_t i = 0; i < g->apart.n_plan; i++) {
        const struct entry *e = &g->apart.plan[i];
        g->n_pinned += lm_seq_pin(g->pages, &e->r->seq, e->begin, e->end, g->pinned + g->n_pinned);
    }
}

/* ---- steps ---- */

static void finish(struct lm_generator *g, const struct step *s, const struct lm_output *out)
{
    g->counts.tokens_computed += s->batch.n_tokens;
    for (uint32_t i = 0; i < s->n_plan; i++) {
        const struct entry *e = &s->plan[i];
        if (!e->r) continue;
        uint32_t n = e->r->seq.n_tokens; /* drafts are not part of it yet */
        lm_seq_commit(g->pages, &e->r->seq, e->end < n ? e->end : n);
    }
    for (uint32_t i = 0; i < s->n_plan; i++)
        if (s->plan[i].r) lm_request_progress(s->plan[i].r, s->plan[i].end);
    for (uint32_t i = 0; i < s->n_plan; i++)
        if (s->plan[i].r && s->plan[i].r->state == LM_ACTIVE) lm_request_rows(s->plan[i].r, &s->plan[i], out->logits);
}

void lm_generator_set_chunk(struct lm_generator *g, uint32_t chunk)
{
    g->chunk = chunk < 1 ? 1 : chunk > g->o.chunk ? g->o.chunk : chunk;
}

static void fail(struct lm_generator *g, struct step *s)
{
    static const char why[] = "the model failed";
    for (uint32_t i = 0; i < s->n_plan; i++)
        if (s->plan[i].r) lm_request_end(s->plan[i].r, LM_FINISH_ERROR, why);
    if (g->o.keep_others) return;
    while (g->n_active) lm_request_end(g->active[g->n_active - 1], LM_FINISH_ERROR, why);
    while (g->waiting) lm_request_end(g->waiting, LM_FINISH_ERROR, why);
}

static int run_now(struct lm_generator *g, struct infr_status *st)
{
    struct lm_output out = {0};
    int code = g->model->forward(g->model, &g->now.batch, &out, st);
    if (code) fail(g, &g->now);
    else finish(g, &g->now, &out);
    step_clear(&g->now);
    return code;
}

/* The plan is taken away before its rows are used: what they do may plan anew. */
static int run_apart(struct lm_generator *g, double until_s, struct infr_status *st)
{
    struct lm_output out = {0};
    bool done;
    int code = g->model->advance(g->model, g->begun ? NULL : &g->apart.batch, (uint64_t)(until_s * 1e9), &done, &out, st);
    g->begun = true;
    if (!code && !done) return INFR_OK;
    if (code) fail(g, &g->apart);
    else finish(g, &g->apart, &out);
    drop_apart(g);
    return code;
}

int lm_generator_step(struct lm_generator *g, bool *more, struct infr_status *st)
{
    int code = INFR_OK;
    end_cancelled(g);
    admit(g);
    double before = g->clock ? g->clock() : 0;
    plan_answers(g);
    g->counts.step_answers = g->now.n_plan;
    bool answers = g->now.n_plan;
    if (!g->clock) plan_prompts(g, &g->now);
    else if (!g->apart.n_plan) plan_apart(g);
    g->counts.step_tokens = g->now.batch.n_tokens;
    g->counts.step_apart = g->apart.batch.n_tokens;
    if (g->now.n_plan || g->apart.n_plan) g->counts.steps++;
    if (g->now.n_plan) code = run_now(g, st);
    double after = g->clock ? g->clock() : 0;
    g->counts.answers_s = answers ? after - before : 0;
    if (!code && g->apart.n_plan && g->clock && (!answers || g->slice_s > 0)) code = run_apart(g, after + (answers ? g->slice_s : LONGEST_S), st);
    *more = g->n_active || g->waiting;
    return code;
}

bool lm_generator_set_slice(struct lm_generator *g, double seconds, double (*clock)(void))
{
    struct infr_status st;
    uint32_t P = g->model->page_tokens, n = g->o.chunk / P + 2 * g->o.max_seqs + 2;
    if (clock && !g->model->advance) return false;
    if (clock && !g->pinned) { /* memory for it; without, it is not done */
        uint32_t width = (g->o.n_ctx + P - 1) / P, most = g->o.chunk > g->o.max_seqs ? g->o.chunk : g->o.max_seqs + 1;
        if (!g->apart.plan && step_init(g, &g->apart, most, width, &st)) return false;
        g->pinned = malloc(n * sizeof *g->pinned);
        if (!g->pinned) return false;
    }
    if (!clock && g->apart.n_plan) drop_apart(g);
    g->slice_s = seconds, g->clock = clock;
    return true;
}

int lm_generator_run(struct lm_generator *g, struct infr_status *st)
{
    bool more = true;
    int code = 0;
    while (more && !code) code = lm_generator_step(g, &more, st);
    return code;
}
