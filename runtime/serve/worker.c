// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/serve/worker.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/serve/thread.h"
#include "runtime/status.h"

struct worker {
    struct worker_options o;
    struct sched *sched; /* the thread's */
    struct serve_thread thread;
    struct work_job *touched; /* the thread's: have events that were not handed over */
    struct work_job *embeddings, **last_embedding;
    /* behind the thread's mutex */
    struct work_job *inbox, **last_in, *cancels, *dirty, **last_dirty;
    uint32_t pending; /* accepted, not ended */
    uint64_t refused;
    struct worker_counts counts;
};

/* ---- bytes ---- */

static bool reserve(struct work_bytes *b, size_t n)
{
    if (n <= b->cap - b->n) return true;
    size_t cap = b->cap ? 2 * b->cap : 1024;
    while (cap < b->n + n) cap *= 2;
    char *p = realloc(b->p, cap);
    if (!p) return false;
    b->p = p, b->cap = cap;
    return true;
}

bool work_append(struct work_bytes *b, const void *p, size_t n)
{
    if (!reserve(b, n)) return false;
    if (n) memcpy(b->p + b->n, p, n);
    b->n += n;
    return true;
}

static void swap(struct work_bytes *a, struct work_bytes *b)
{
    struct work_bytes t = *a;
    *a = *b, *b = t;
}

void work_job_deinit(struct work_job *j)
{
    free(j->mine.p);
    free(j->shared.p);
    free(j->events.p);
    j->mine = j->shared = j->events = (struct work_bytes){0};
}

/* ---- the model's thread ---- */

static void touch(struct work_job *j)
{
    if (j->touched) return;
    j->touched = true;
    j->next_touched = j->worker->touched;
    j->worker->touched = j;
}

static void on_event(void *user, const struct lm_event *e)
{
    struct work_job *j = user;
    struct work_event head = {.token = e->token,
                              .n_text = (uint32_t)e->n_text,
                              .n_top = e->n_top,
                              .logprob = e->logprob,
                              .n_computed = e->n_computed,
                              .n_cached = e->n_cached,
                              .of_prompt = e->of_prompt,
                              .progress = e->progress,
                              .finish = e->finish,
                              .stopped = e->stopped};
    size_t tops = e->n_top * sizeof *e->top, pad = (8 - e->n_text % 8) % 8;
    touch(j);
    if (!reserve(&j->mine, sizeof head + tops + e->n_text + pad)) {
        j->no_memory = true;
        sched_cancel(&j->job);
        return;
    }
    work_append(&j->mine, &head, sizeof head);
    work_append(&j->mine, e->top, tops);
    work_append(&j->mine, e->text, e->n_text);
    work_append(&j->mine, "\0\0\0\0\0\0\0", pad);
}

static void on_end(struct sched_job *job)
{
    struct work_job *j = (struct work_job *)(void *)job;
    j->done = true;
    touch(j);
}

static void embed(struct worker *w, struct work_job *j)
{
    const struct lm_request_desc *d = &j->job.desc;
    struct infr_status st;
    j->job.started = serve_clock();
    j->job.n_prompt = d->n_prompt;
    j->job.end = SCHED_DONE;
    if (lm_embedder_run(w->o.embedder, d->prompt, d->n_prompt, j->pooling, j->normalize, j->vector,
                        &st)) {
        memcpy(j->job.note, st.note, sizeof j->job.note - 1);
        j->job.error = j->job.note;
        j->job.end = SCHED_ERROR;
    }
    j->job.ended = serve_clock();
    on_end(&j->job);
}

/* With the mutex held: the step's events become the event loop's. */
static void hand_over(struct worker *w)
{
    for (struct work_job *j = w->touched; j; j = j->next_touched) {
        j->touched = false;
        if (!j->shared.n) swap(&j->shared, &j->mine);
        else if (!work_append(&j->shared, j->mine.p, j->mine.n)) j->no_memory = true;
        j->mine.n = 0;
        if (j->done) {
            j->handed_over = true;
            for (struct work_job **link = &w->cancels; j->cancelling && *link;)
                if (*link == j) *link = j->next_cancel, j->cancelling = false;
                else link = &(*link)->next_cancel;
            w->pending--;
        }
        if (j->dirty) continue;
        j->dirty = true, j->next_dirty = NULL;
        *w->last_dirty = j, w->last_dirty = &j->next_dirty;
    }
    w->touched = NULL;
}

/* Waits for something to do. False: the thread shall end. */
static bool take_orders(struct worker *w, bool busy)
{
    pthread_mutex_lock(&w->thread.mutex);
    while (!busy && !w->inbox && !w->cancels && !w->thread.stop) pthread_cond_wait(&w->thread.cond, &w->thread.mutex);
    struct work_job *jobs = w->inbox;
    w->inbox = NULL, w->last_in = &w->inbox;
    for (struct work_job *j = w->cancels; j; j = j->next_cancel) {
        j->cancelling = false;
        if (!j->vector && j->job.sched) sched_cancel(&j->job);
        else j->job.cancel = true; /* it is in the inbox still, or an embedding */
    }
    w->cancels = NULL;
    bool stop = w->thread.stop;
    pthread_mutex_unlock(&w->thread.mutex);
    bool any = jobs || busy;
    while (jobs) {
        struct work_job *j = jobs;
        struct sched_job *job = &j->job;
        jobs = j->next;
        bool cancel = job->cancel;
        if (j->vector) {
            j->next = NULL;
            *w->last_embedding = j, w->last_embedding = &j->next;
            continue;
        }
        sched_submit(w->sched, &job, 1, serve_clock()); /* worker_submit has counted */
        if (cancel) sched_cancel(job);
    }
    if (stop && w->sched) sched_cancel_all(w->sched);
    return any || !stop;
}

static void embed_next(struct worker *w)
{
    struct work_job *j = w->embeddings;
    w->embeddings = j->next;
    if (!w->embeddings) w->last_embedding = &w->embeddings;
    if (j->job.cancel) {
        j->job.end = SCHED_CANCELLED;
        on_end(&j->job);
    } else
        embed(w, j);
}

static void count_step(struct worker *w, double seconds)
{
    struct worker_counts *c = &w->counts;
    if (w->sched) {
        sched_get_counts(w->sched, &c->sched);
        const struct lm_counts *n = &c->sched.generator;
        double answers = n->answers_s > 0 ? n->answers_s : n->step_answers && n->step_tokens == n->step_answers ? seconds : 0;
        c->answer_s += answers, c->prompt_s += seconds - answers;
        c->sched.refused = w->refused;
    }
    c->busy_s += seconds;
}

static void *run(void *arg)
{
    struct worker *w = arg;
    bool more = false;
    while (take_orders(w, more || w->embeddings)) {
        struct infr_status failed;
        double before = serve_clock();
        uint32_t embedded = 0;
        if (w->sched) sched_step(w->sched, serve_clock, &more, &failed);
        if (w->embeddings) {
            embedded = w->embeddings->job.desc.n_prompt;
            embed_next(w);
        }
        double seconds = serve_clock() - before;
        pthread_mutex_lock(&w->thread.mutex);
        bool any = w->touched != NULL;
        hand_over(w);
        count_step(w, seconds);
        if (embedded) w->counts.embeddings++, w->counts.embedded_tokens += embedded;
        pthread_mutex_unlock(&w->thread.mutex);
        if (any) serve_thread_notify(&w->thread);
    }
    return NULL;
}

/* ---- the event loop's side ---- */

int worker_create(const struct worker_options *o, struct worker **out, struct infr_status *st)
{
    struct worker *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return rt_fail_memory(st, "the worker", sizeof *w);
    w->o = *o;
    w->last_in = &w->inbox, w->last_dirty = &w->dirty, w->last_embedding = &w->embeddings;
    int code = serve_thread_init(&w->thread, st);
    if (!code && o->generator) code = sched_create(o->generator, &o->sched, &w->sched, st);
    if (w->sched) sched_get_counts(w->sched, &w->counts.sched);
    if (!code) code = serve_thread_start(&w->thread, run, w, st);
    if (code) worker_destroy(w);
    else *out = w;
    return code;
}

void worker_destroy(struct worker *w)
{
    if (!w) return;
    serve_thread_deinit(&w->thread);
    sched_destroy(w->sched);
    free(w);
}

int worker_wake_fd(const struct worker *w) { return w->thread.wake_fd; }

enum sched_verdict worker_submit(struct worker *w, struct work_job *const *jobs, uint32_t n)
{
    enum sched_verdict verdict = SCHED_ACCEPTED;
    pthread_mutex_lock(&w->thread.mutex);
    if (w->thread.draining) verdict = SCHED_DRAINING;
    else if (n > w->o.sched.max_queue + w->o.sched.max_running - w->pending) verdict = SCHED_FULL;
    for (uint32_t i = 0; verdict == SCHED_ACCEPTED && i < n; i++) {
        struct work_job *j = jobs[i];
        j->worker = w, j->next = NULL;
        j->job.desc.on_event = on_event, j->job.desc.user = j;
        j->job.on_end = on_end, j->job.sched = NULL, j->job.cancel = false;
        *w->last_in = j, w->last_in = &j->next;
        w->pending++;
    }
    if (verdict == SCHED_FULL) w->refused += n;
    pthread_cond_signal(&w->thread.cond);
    pthread_mutex_unlock(&w->thread.mutex);
    return verdict;
}

void worker_cancel(struct work_job *j)
{
    struct worker *w = j->worker;
    pthread_mutex_lock(&w->thread.mutex);
    if (!j->handed_over && !j->cancelling) {
        j->cancelling = true;
        j->next_cancel = w->cancels, w->cancels = j;
        pthread_cond_signal(&w->thread.cond);
    }
    pthread_mutex_unlock(&w->thread.mutex);
}

void worker_drain(struct worker *w) { serve_thread_drain(&w->thread); }

struct work_job *worker_take(struct worker *w)
{
    pthread_mutex_lock(&w->thread.mutex);
    struct work_job *j = w->dirty;
    if (j) {
        w->dirty = j->next_dirty;
        if (!w->dirty) w->last_dirty = &w->dirty;
        j->dirty = false;
        j->events.n = 0;
        swap(&j->events, &j->shared);
        j->ended = j->handed_over;
    } else
        serve_thread_taken(&w->thread);
    pthread_mutex_unlock(&w->thread.mutex);
    return j;
}

void worker_get_counts(struct worker *w, struct worker_counts *out)
{
    pthread_mutex_lock(&w->thread.mutex);
    *out = w->counts;
    pthread_mutex_unlock(&w->thread.mutex);
}
