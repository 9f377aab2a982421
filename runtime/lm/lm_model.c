// SPDX-License-Identifier: Apache-2.0
/*
 * A model over a session. Inputs go by their names; whatever an engine marks as state and whose
 * first dim is the number of pages is the KV cache. What layers look like inside is not
 * known here.
 */
#define _GNU_SOURCE
#include "runtime/lm/lm_model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/session.h"
#include "runtime/status.h"

enum { TOKENS, POSITIONS, SEQ_OF, SLOTS, PAGE_TABLE, LOGIT_ROWS, N_NAMED };

static const struct {
    const char *name;
    uint32_t dtype, rank;
    bool must;
} named[N_NAMED] = {{"tokens", INFR_I32, 1, true},      {"positions", INFR_I32, 1, false},
                    {"seq_of", INFR_I32, 1, false},     {"slots", INFR_I64, 1, false},
                    {"page_table", INFR_I32, 2, false}, {"logit_rows", INFR_I32, 1, false}};

struct engine_model {
    struct lm_model m;
    struct infr_session *s, *parts; /* parts: of batches that pause; NULL until there is one */
    struct infr_tensor *in, *out;
    uint32_t n_in, n_out;
    bool *is_state;              /* [n_in] */
    uint32_t at[N_NAMED];        /* number of the input, or INFR_NONE */
    uint32_t logits, embeddings; /* number of the output, or INFR_NONE */
    uint32_t least_rows;         /* of logit_rows: 0 or 1 */
    int32_t zero;
};

static void destroy(struct lm_model *m)
{
    struct engine_model *x = (struct engine_model *)m;
    for (uint32_t i = 0; x->in && x->is_state && i < x->n_in; i++)
        if (x->is_state[i] && x->in[i].data) munmap(x->in[i].data, x->in[i].bytes);
    infr_session_destroy(x->s);
    infr_session_destroy(x->parts);
    free(x->in);
    free(x->out);
    free(x->is_state);
    free(x);
}

void lm_model_destroy(struct lm_model *m)
{
    if (m && m->destroy) m->destroy(m);
}

struct infr_session *lm_model_session(struct lm_model *m) { return ((struct engine_model *)m)->s; }

/* ---- opening ---- */

/* A state's dims behind the first are numbers: they make the bytes of a page. */
static int add_state(struct engine_model *x, uint32_t i, const struct infr_io_info *io,
                     struct infr_status *st)
{
    struct infr_tensor *t = &x->in[i];
    uint64_t bytes = dtype_bytes((enum dtype)io->dtype);
    *t = (struct infr_tensor){.dtype = io->dtype, .rank = io->rank};
    bool ok = io->rank >= 1 && io->dims[0].lo != io->dims[0].hi;
    for (uint32_t a = 1; ok && a < io->rank; a++) {
        t->dims[a] = io->dims[a].lo;
        ok = io->dims[a].lo == io->dims[a].hi && t->dims[a] > 0 &&
             !__builtin_mul_overflow(bytes, (uint64_t)t->dims[a], &bytes) && bytes < 1ull << 40;
    }
    if (!ok)
        return rt_fail(st, INFR_ENVIRONMENT, "state '%.100s' of this engine is not a KV cache",
                       io->name);
    x->m.page_bytes += bytes;
    x->is_state[i] = true;
    return INFR_OK;
}

static int add_named(struct engine_model *x, uint32_t i, const struct infr_io_info *io,
                     struct infr_status *st)
{
    for (int k = 0; k < N_NAMED; k++) {
        if (strcmp(io->name, named[k].name) || io->dtype != named[k].dtype ||
            io->rank != named[k].rank)
            continue;
        x->at[k] = i;
        if (k == LOGIT_ROWS) x->least_rows = io->dims[0].lo > 0;
        return INFR_OK;
    }
    if (io->optional) return INFR_OK;
    return rt_fail(st, INFR_ENVIRONMENT,
                   "this engine has an input '%.100s' that text does not give", io->name);
}

static int find_inputs(struct engine_model *x, struct infr_engine *e, struct infr_status *st)
{
    struct infr_io_info io;
    int code = 0;
    for (int k = 0; k < N_NAMED; k++) x->at[k] = INFR_NONE;
    for (uint32_t i = 0; !code && i < x->n_in; i++) {
        infr_engine_input(e, i, &io);
        code = io.state ? add_state(x, i, &io, st) : add_named(x, i, &io, st);
    }
    for (int k = 0; !code && k < N_NAMED; k++)
        if (x->at[k] == INFR_NONE && named[k].must)
            code = rt_fail(st, INFR_ENVIRONMENT, "this engine has no input '%s'", named[k].name);
    return code;
}

static int find_outputs(struct engine_model *x, struct infr_engine *e, uint32_t vocab,
                        uint32_t dims, struct infr_status *st)
{
    struct infr_io_info io;
    x->logits = x->embeddings = INFR_NONE;
    for (uint32_t i = 0; i < x->n_out; i++) {
        infr_engine_output(e, i, &io);
        if (io.dtype != INFR_F32 || io.rank != 2 || io.dims[1].lo != io.dims[1].hi) continue;
        if (!strcmp(io.name, "logits") && io.dims[1].lo == vocab) x->logits = i;
        if (!strcmp(io.name, "embeddings") && io.dims[1].lo == dims) x->embeddings = i;
    }
    if (vocab && x->logits == INFR_NONE)
        return rt_fail(st, INFR_ENVIRONMENT, "this engine has no output 'logits' of %u columns",
                       vocab);
    if (dims && x->embeddings == INFR_NONE)
        return rt_fail(st, INFR_ENVIRONMENT, "this engine has no output 'embeddings' of %u columns",
                       dims);
    return INFR_OK;
}

/* ---- running ---- */

static void set_input(struct engine_model *x, int k, uint32_t n, const void *data)
{
    uint32_t each = named[k].dtype == INFR_I64 ? 8 : 4;
    if (x->at[k] == INFR_NONE) return;
    x->in[x->at[k]] = (struct infr_tensor){
        named[k].dtype, 1, {n}, (void *)(uintptr_t)data, (uint64_t)n * each};
}

static void set_page_table(struct engine_model *x, const struct lm_batch *b)
{
    if (x->at[PAGE_TABLE] == INFR_NONE) return;
    x->in[x->at[PAGE_TABLE]] = (struct infr_tensor){
        INFR_I32, 2, {b->n_seqs, b->width}, b->page_table, 4ull * b->n_seqs * b->width};
}

static int run_batch(struct engine_model *x, struct infr_session *s, const struct lm_batch *b, struct infr_status *st)
{
    bool dummy = b->n_rows < x->least_rows; /* nobody looks at that row */
    set_input(x, TOKENS, b->n_tokens, b->tokens);
    set_input(x, POSITIONS, b->n_tokens, b->positions);
    set_input(x, SEQ_OF, b->n_tokens, b->seq_of);
    set_input(x, SLOTS, b->n_tokens, b->slots);
    set_input(x, LOGIT_ROWS, dummy ? 1 : b->n_rows, dummy ? &x->zero : b->logit_rows);
    set_page_table(x, b);
    for (uint32_t i = 0; i < x->n_out; i++) x->out[i].data = NULL; /* the session's memory */
    return infr_session_run(s, x->in, x->out, st);
}

static void set_output(const struct engine_model *x, struct lm_output *out)
{
    if (x->logits != INFR_NONE) out->logits = x->out[x->logits].data;
    if (x->embeddings != INFR_NONE) out->embeddings = x->out[x->embeddings].data;
}

static int forward(struct lm_model *m, const struct lm_batch *b, struct lm_output *out,
                   struct infr_status *st)
{
    struct engine_model *x = (struct engine_model *)m;
    *out = (struct lm_output){0};
    int code = run_batch(x, x->s, b, st);
    if (!code) set_output(x, out);
    return code;
}

static int advance(struct lm_model *m, const struct lm_batch *b, uint64_t until, bool *done, struct lm_output *out,
                   struct infr_status *st)
{
    struct engine_model *x = (struct engine_model *)m;
    int code = x->parts ? INFR_OK : infr_session_create(x->s->e, &x->parts, st);
    *out = (struct lm_output){0};
    *done = false;
    if (code) return code;
    x->parts->until = until;
    code = b ? run_batch(x, x->parts, b, st) : rt_session_go_on(x->parts, x->out, st);
    if (code == RT_PAUSED) return INFR_OK;
    *done = true;
    if (!code) set_output(x, out);
    return code;
}

int lm_model_set_pages(struct lm_model *m, uint32_t n_pages, struct infr_status *st)
{
    struct engine_model *x = (struct engine_model *)m;
    bool on_device = infr_session_keep_state(x->s);
    for (uint32_t i = 0; i < x->n_in; i++) {
        struct infr_tensor *t = &x->in[i];
        if (!x->is_state[i] || t->data) continue;
        uint64_t bytes = dtype_bytes((enum dtype)t->dtype);
        t->dims[0] = n_pages;
        for (uint32_t a = 0; a < t->rank; a++)
            if (__builtin_mul_overflow(bytes, (uint64_t)t->dims[a], &bytes) || bytes > 1ull << 46)
                return rt_fail(st, INFR_BAD_INPUT, "a KV cache of %u pages is too large", n_pages);
        /* on a GPU these addresses are a name alone */
        void *p = mmap(NULL, bytes, on_device ? PROT_NONE : PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return rt_fail_memory(st, "the KV cache", bytes);
        t->data = p;
        t->bytes = bytes;
    }
    m->n_pages = n_pages;
    return INFR_OK;
}

static int open_steps(struct engine_model *x, struct infr_engine *e,
                      const struct infr_text_header *h, struct infr_status *st)
{
    x->n_in = infr_engine_inputs(e), x->n_out = infr_engine_outputs(e);
    x->in = calloc(x->n_in + 1u, sizeof *x->in);
    x->out = calloc(x->n_out + 1u, sizeof *x->out);
    x->is_state = calloc(x->n_in + 1u, sizeof *x->is_state);
    if (!x->in || !x->out || !x->is_state)
        return rt_fail_memory(st, "the model", x->n_in * sizeof *x->in);
    int code = find_inputs(x, e, st);
    if (!code) code = find_outputs(x, e, h->vocab, h->embedding_dims, st);
    return code ? code : infr_session_create(e, &x->s, st);
}

int lm_model_open(struct infr_engine *e, const struct infr_text_header *h, struct lm_model **out,
                  struct infr_status *st)
{
    *out = NULL;
    struct engine_model *x = calloc(1, sizeof *x);
    if (!x) return rt_fail_memory(st, "the model", sizeof *x);
    x->m = (struct lm_model){.vocab = h->vocab,
                             .embedding_dims = h->embedding_dims,
                             .page_tokens = h->page_tokens,
                             .window = h->window,
                             .ctx_train = h->ctx_train,
                             .causal = h->flags & INFR_TEXT_CAUSAL,
                             .pooling = (enum infr_text_pooling)h->pooling,
                             .forward = forward,
                             .advance = e->device ? NULL : advance,
                             .destroy = destroy};
    int code = open_steps(x, e, h, st);
    if (code) {
        destroy(&x->m);
        return code;
    }
    *out = &x->m;
    return INFR_OK;
}
