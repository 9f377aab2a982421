// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/serve/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/serve/thread.h"
#include "runtime/status.h"
#include "runtime/tensor.h"

struct tensor_worker {
    struct infr_engine *e;
    struct infr_session *session;
    struct serve_thread thread;
    /* behind the thread's mutex */
    struct tensor_job *waiting, **last_waiting, *done, **last_done, *current;
    uint32_t n_waiting, max_queue;
    struct tensor_counts counts;
};

/* Results in memory of their own: the session's is lent until its next run. */
static int run_job(struct tensor_worker *w, struct tensor_job *j, struct infr_status *st)
{
    int code = infr_session_shapes(w->session, j->in, j->out, st);
    for (uint32_t i = 0; !code && i < w->e->n_outputs; i++) {
        struct infr_tensor t = j->out[i];
        j->out[i].data = NULL;
        code = rt_tensor_alloc(t.dtype, t.rank, t.dims, UINT64_MAX, &j->out[i], st);
    }
    return code ? code : infr_session_run(w->session, j->in, j->out, st);
}

static void *run(void *arg)
{
    struct tensor_worker *w = arg;
    pthread_mutex_lock(&w->thread.mutex);
    for (;;) {
        while (!w->waiting && !w->thread.stop) pthread_cond_wait(&w->thread.cond, &w->thread.mutex);
        struct tensor_job *j = w->waiting;
        if (!j) break;
        w->waiting = j->next;
        if (!w->waiting) w->last_waiting = &w->waiting;
        w->n_waiting--;
        bool cancelled = j->cancelled || w->thread.stop;
        w->current = j;
        pthread_mutex_unlock(&w->thread.mutex);
        struct infr_status st = {0};
        double before = serve_clock();
        j->code = cancelled ? INFR_CANCELLED : run_job(w, j, &st);
        double seconds = serve_clock() - before;
        memcpy(j->note, st.note, sizeof j->note);
        pthread_mutex_lock(&w->thread.mutex);
        w->current = NULL;
        w->counts.runs++, w->counts.busy_s += seconds;
        w->counts.failures += j->code != 0;
        j->next = NULL;
        *w->last_done = j, w->last_done = &j->next;
        serve_thread_notify(&w->thread);
    }
    pthread_mutex_unlock(&w->thread.mutex);
    return NULL;
}

int tensor_worker_create(struct infr_engine *e, uint32_t max_queue, struct tensor_worker **out,
                         struct infr_status *st)
{
    struct tensor_worker *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return rt_fail_memory(st, "the worker", sizeof *w);
    w->e = e, w->max_queue = max_queue;
    w->last_waiting = &w->waiting, w->last_done = &w->done;
    int code = serve_thread_init(&w->thread, st);
    if (!code) code = infr_session_create(e, &w->session, st);
    if (!code) code = serve_thread_start(&w->thread, run, w, st);
    if (code) tensor_worker_destroy(w);
    else *out = w;
    return code;
}

void tensor_worker_destroy(struct tensor_worker *w)
{
    if (!w) return;
    serve_thread_deinit(&w->thread);
    infr_session_destroy(w->session);
    free(w);
}

int tensor_wake_fd(const struct tensor_worker *w) { return w->thread.wake_fd; }

bool tensor_submit(struct tensor_worker *w, struct tensor_job *j)
{
    pthread_mutex_lock(&w->thread.mutex);
    bool ok = !w->thread.draining && w->n_waiting <= w->max_queue;
    if (ok) {
        j->worker = w, j->next = NULL, j->cancelled = false;
        *w->last_waiting = j, w->last_waiting = &j->next;
        w->n_waiting++;
        pthread_cond_signal(&w->thread.cond);
    }
    pthread_mutex_unlock(&w->thread.mutex);
    return ok;
}

void tensor_cancel(struct tensor_job *j)
{
    struct tensor_worker *w = j->worker;
    pthread_mutex_lock(&w->thread.mutex);
    j->cancelled = true;
    pthread_mutex_unlock(&w->thread.mutex);
}

void tensor_drain(struct tensor_worker *w) { serve_thread_drain(&w->thread); }

struct tensor_job *tensor_take(struct tensor_worker *w)
{
    pthread_mutex_lock(&w->thread.mutex);
    struct tensor_job *j = w->done;
    if (j) {
        w->done = j->next;
        if (!w->done) w->last_done = &w->done;
    } else
        serve_thread_taken(&w->thread);
    pthread_mutex_unlock(&w->thread.mutex);
    return j;
}

void tensor_get_counts(struct tensor_worker *w, struct tensor_counts *out)
{
    pthread_mutex_lock(&w->thread.mutex);
    *out = w->counts;
    out->waiting = w->n_waiting;
    pthread_mutex_unlock(&w->thread.mutex);
}
