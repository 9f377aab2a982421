// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/serve/tensors.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/status.h"
#include "runtime/tensor.h"

struct tensor_worker {
    struct infr_engine *e;
    struct infr_session *session;
    pthread_t thread;
    bool running;
    int wake;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    /* behind the mutex */
    struct tensor_job *waiting, **last_waiting, *done, **last_done, *current;
    uint32_t n_waiting, max_queue;
    bool draining, stop;
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
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->waiting && !w->stop) pthread_cond_wait(&w->cond, &w->mutex);
        struct tensor_job *j = w->waiting;
        if (!j) break;
        w->waiting = j->next;
        if (!w->waiting) w->last_waiting = &w->waiting;
        w->n_waiting--;
        bool cancelled = j->cancelled || w->stop;
        w->current = j;
        pthread_mutex_unlock(&w->mutex);
        struct infr_status st = {0};
        double before = worker_clock();
        j->code = cancelled ? INFR_CANCELLED : run_job(w, j, &st);
        double seconds = worker_clock() - before;
        memcpy(j->note, st.note, sizeof j->note);
        pthread_mutex_lock(&w->mutex);
        w->current = NULL;
        w->counts.runs++, w->counts.busy_s += seconds;
        w->counts.failures += j->code != 0;
        j->next = NULL;
        *w->last_done = j, w->last_done = &j->next;
        uint64_t one = 1;
        if (write(w->wake, &one, sizeof one) < 0) {} /* full is as good as written */
    }
    pthread_mutex_unlock(&w->mutex);
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
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->cond, NULL);
    w->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int code = w->wake < 0 ? rt_fail(st, INFR_ENVIRONMENT, "no event descriptor") : 0;
    if (!code) code = infr_session_create(e, &w->session, st);
    if (!code) {
        sigset_t all, old; /* signals are the event loop's */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        w->running = !pthread_create(&w->thread, NULL, run, w);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (!w->running) code = rt_fail(st, INFR_ENVIRONMENT, "no thread for the model");
    }
    if (code) tensor_worker_destroy(w);
    else *out = w;
    return code;
}

void tensor_worker_destroy(struct tensor_worker *w)
{
    if (!w) return;
    if (w->running) {
        pthread_mutex_lock(&w->mutex);
        w->stop = true;
        pthread_cond_signal(&w->cond);
        pthread_mutex_unlock(&w->mutex);
        pthread_join(w->thread, NULL);
    }
    infr_session_destroy(w->session);
    pthread_cond_destroy(&w->cond);
    pthread_mutex_destroy(&w->mutex);
    if (w->wake >= 0) close(w->wake);
    free(w);
}

int tensor_wake_fd(const struct tensor_worker *w) { return w->wake; }

bool tensor_submit(struct tensor_worker *w, struct tensor_job *j)
{
    pthread_mutex_lock(&w->mutex);
    bool ok = !w->draining && w->n_waiting <= w->max_queue;
    if (ok) {
        j->worker = w, j->next = NULL, j->cancelled = false;
        *w->last_waiting = j, w->last_waiting = &j->next;
        w->n_waiting++;
        pthread_cond_signal(&w->cond);
    }
    pthread_mutex_unlock(&w->mutex);
    return ok;
}

void tensor_cancel(struct tensor_job *j)
{
    struct tensor_worker *w = j->worker;
    pthread_mutex_lock(&w->mutex);
    j->cancelled = true;
    pthread_mutex_unlock(&w->mutex);
}

void tensor_drain(struct tensor_worker *w)
{
    pthread_mutex_lock(&w->mutex);
    w->draining = true;
    pthread_mutex_unlock(&w->mutex);
}

struct tensor_job *tensor_take(struct tensor_worker *w)
{
    uint64_t count;
    pthread_mutex_lock(&w->mutex);
    struct tensor_job *j = w->done;
    if (j) {
        w->done = j->next;
        if (!w->done) w->last_done = &w->done;
    } else if (read(w->wake, &count, sizeof count) < 0) {
        /* nothing to reset */
    }
    pthread_mutex_unlock(&w->mutex);
    return j;
}

void tensor_get_counts(struct tensor_worker *w, struct tensor_counts *out)
{
    pthread_mutex_lock(&w->mutex);
    *out = w->counts;
    out->waiting = w->n_waiting;
    pthread_mutex_unlock(&w->mutex);
}
