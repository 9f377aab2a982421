// SPDX-License-Identifier: Apache-2.0
/*
 * What the model says, before anybody samples: for tests. Lines of token ids are continued
 * greedily, and the logits that each token was drawn from go through a hash, bits as they are, or
 * to standard output as f32. They come from the real loop, whose model is wrapped here: batches,
 * chunks, shared pages and preemption are those of generation.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io.h"
#include "runtime/lm/lm_cli.h"
#include "runtime/lm/lm_generate_internal.h"
#include "runtime/status.h"
#include "runtime/xxh64.h"

#define WARM_CHUNK 512 /* what is known before was computed in other pieces than these */

struct line {
    uint32_t *ids, n;
    uint32_t seen; /* positions before it are done */
    uint64_t hash, rows;
    struct lm_request *r;
};

struct tap {
    struct lm_model m; /* what the generator sees */
    struct lm_model *inner;
    struct lm_cli *c;
    struct lm_generator *g;
    struct line *lines;
    size_t n_lines;
    uint64_t rows;
    bool warming; /* nothing counts yet */
    bool torn;    /* standard output does not take it */
};

/* ---- rows of logits as they come ---- */

static void take_row(struct tap *t, struct line *l, const float *row)
{
    size_t bytes = t->m.vocab * sizeof *row;
    uint64_t both[2] = {l->hash, rt_xxh64(row, bytes)};
    l->hash = rt_xxh64(both, sizeof both);
    l->rows++, t->rows++;
    if (t->c->raw && fwrite(row, 1, bytes, stdout) != bytes) t->torn = true;
}

static int forward(struct lm_model *m, const struct lm_batch *b, struct lm_output *out,
                   struct infr_status *st)
{
    struct tap *t = (struct tap *)m;
    int code = t->inner->forward(t->inner, b, out, st);
    for (uint32_t i = 0; !code && !t->warming && i < t->g->now.n_plan; i++) {
        const struct entry *e = &t->g->now.plan[i];
        struct line *l = e->r->d.user;
        for (uint32_t p = e->rows_from; p < e->end; p++) {
            if (p < l->seen || (!t->c->all_rows && p + 1 < e->r->seq.n_tokens)) continue;
            take_row(t, l, out->logits + (e->first_row + p - e->rows_from) * (size_t)m->vocab);
            l->seen = p + 1;
        }
    }
    return code;
}

static void no_event(void *user, const struct lm_event *e) { (void)user, (void)e; }

/* ---- lines ---- */

static int read_line(const struct tap *t, const char *p, const char *end, struct line *l)
{
    l->ids = malloc(((size_t)(end - p) / 2 + 1) * sizeof *l->ids);
    if (!l->ids) return cli_usage("no memory for the tokens");
    for (;;) {
        while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
        if (p == end) return INFR_OK;
        const char *first = p;
        uint64_t id = 0;
        for (; p < end && *p >= '0' && *p <= '9' && id < t->m.vocab; p++)
            id = id * 10 + (uint64_t)(*p - '0');
        if (p == first || id >= t->m.vocab || (p < end && !strchr(" \t\r", *p)))
            return cli_usage("line %zu: '%.*s' is no token of this model", t->n_lines + 1,
                             end - first < 12 ? (int)(end - first) : 12, first);
        l->ids[l->n++] = (uint32_t)id;
    }
}

static int read_lines(struct tap *t, char *text, size_t n)
{
    size_t most = 1;
    for (size_t i = 0; i < n; i++) most += text[i] == '\n';
    t->lines = calloc(most, sizeof *t->lines);
    if (!t->lines) return cli_usage("no memory for the lines");
    for (char *p = text, *end; p < text + n; p = end + 1) {
        end = memchr(p, '\n', (size_t)(text + n - p));
        if (!end) end = text + n;
        int code = read_line(t, p, end, &t->lines[t->n_lines]);
        if (code) return free(t->lines[t->n_lines].ids), code;
        if (t->lines[t->n_lines].n) t->n_lines++;
        else free(t->lines[t->n_lines].ids);
    }
    return t->n_lines ? INFR_OK : cli_usage("there are no token ids");
}

/* ---- the run ---- */

/* All lines through the generator; with each so many rows that came the youngest gives its pages back, and every second
 * time even those that could be found again. */
static int run_all(struct tap *t, uint32_t max_tokens, bool rows, struct infr_status *st)
{
    struct lm_request_desc d;
    uint64_t times = 0, every = (uint64_t)t->c->preempt;
    bool more = true;
    int code = 0;
    lm_request_desc_init(&d);
    d.sampling.temp = 0;
    d.max_tokens = max_tokens, d.ignore_eos = true, d.on_event = no_event;
    if (rows) d.prompt_logprobs = true, d.n_logprobs = 0;
    for (size_t i = 0; !code && i < t->n_lines; i++) {
        d.prompt = t->lines[i].ids, d.n_prompt = t->lines[i].n, d.user = &t->lines[i];
        code = lm_generator_submit(t->g, &d, &t->lines[i].r, st);
    }
    while (!code && more) {
        code = lm_generator_step(t->g, &more, st);
        if (code || !every || t->rows / every <= times) continue;
        times = t->rows / every;
        lm_generator_preempt(t->g);
        if (times % 2) lm_pages_drop_cached(t->g->pages);
    }
    for (size_t i = 0; i < t->n_lines; i++) {
        struct lm_request *r = t->lines[i].r;
        if (!code && lm_request_finish(r) == LM_FINISH_ERROR)
            code = rt_fail(st, INFR_BAD_INPUT, "line %zu: %s", i + 1, lm_request_error(r));
        lm_request_destroy(r);
        t->lines[i].r = NULL;
    }
    return code;
}

static int run(struct tap *t, struct lm_open *x)
{
    struct infr_status st = {0};
    struct lm_cli *c = t->c;
    struct lm_generator_options o = {.n_ctx = x->n_ctx,
                                     .max_seqs = (uint32_t)c->batch,
                                     .chunk = (uint32_t)(c->warm && c->chunk < WARM_CHUNK ? WARM_CHUNK : c->chunk),
                                     .no_sharing = !c->warm};
    uint32_t n = c->predict_given ? (uint32_t)c->predict : 0;
    int code = lm_generator_create(&t->m, &x->text.tok, &o, &t->g, &st);
    if (!code && c->warm) {
        t->warming = true;
        code = run_all(t, 0, false, &st);
        t->warming = false;
    }
    if (!code) lm_generator_set_chunk(t->g, (uint32_t)c->chunk);
    if (!code) code = run_all(t, n, c->all_rows, &st);
    if (!code && (t->torn || fflush(stdout)))
        code = rt_fail(&st, INFR_ENVIRONMENT, "standard output cannot be written to");
    struct lm_counts counts = {0};
    if (!code) lm_generator_get_counts(t->g, &counts);
    for (size_t i = 0; !code && !c->raw && i < t->n_lines; i++)
        printf("%016" PRIx64 " %" PRIu64 "\n", t->lines[i].hash, t->lines[i].rows);
    if (!code && !c->quiet)
        fprintf(stderr, "%" PRIu64 " steps, %" PRIu64 " preemptions, %" PRIu64 " tokens found\n",
                counts.steps, counts.preemptions, counts.pages.tokens_found);
    return code ? cli_error(&st) : INFR_OK;
}

int lm_cmd_logits(struct lm_cli *c)
{
    struct lm_open x = {0};
    struct tap t = {.c = c};
    char *text = NULL;
    size_t n;
    if (c->raw && c->batch != 1) return cli_usage("--raw writes line after line: not with --batch");
    int code = lm_cli_read_text(c, &text, &n);
    if (!code) code = lm_open_model(c, &x, (uint32_t)c->batch, 0);
    if (!code && (!x.model->vocab || !x.model->causal))
        code = cli_usage("this model does not generate text");
    if (!code) {
        t.m = *x.model;
        t.m.forward = forward, t.inner = x.model;
        code = read_lines(&t, text, n);
    }
    if (!code) code = run(&t, &x);
    for (size_t i = 0; i < t.n_lines; i++) free(t.lines[i].ids);
    lm_generator_destroy(t.g);
    free(t.lines);
    free(text);
    lm_close(&x);
    return code;
}
