// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/serve/thread.h"

#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "runtime/status.h"

double serve_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int serve_thread_init(struct serve_thread *t, struct infr_status *st)
{
    *t = (struct serve_thread){0};
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->cond, NULL);
    t->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return t->wake_fd < 0 ? rt_fail(st, INFR_ENVIRONMENT, "no event descriptor") : 0;
}

int serve_thread_start(struct serve_thread *t, void *(*run)(void *), void *arg,
                       struct infr_status *st)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    t->running = !pthread_create(&t->thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return t->running ? 0 : rt_fail(st, INFR_ENVIRONMENT, "no thread for the model");
}

void serve_thread_deinit(struct serve_thread *t)
{
    if (t->running) {
        pthread_mutex_lock(&t->mutex);
        t->stop = t->draining = true;
        pthread_cond_signal(&t->cond);
        pthread_mutex_unlock(&t->mutex);
        pthread_join(t->thread, NULL);
    }
    pthread_cond_destroy(&t->cond);
    pthread_mutex_destroy(&t->mutex);
    if (t->wake_fd >= 0) close(t->wake_fd);
}

void serve_thread_notify(struct serve_thread *t)
{
    uint64_t one = 1;
    if (write(t->wake_fd, &one, sizeof one) < 0) {} /* full is as good as written */
}

void serve_thread_taken(struct serve_thread *t)
{
    uint64_t count;
    if (read(t->wake_fd, &count, sizeof count) < 0) {} /* there was nothing to reset */
}

void serve_thread_drain(struct serve_thread *t)
{
    pthread_mutex_lock(&t->mutex);
    t->draining = true;
    pthread_mutex_unlock(&t->mutex);
}
