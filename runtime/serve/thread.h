// SPDX-License-Identifier: Apache-2.0
/*
 * A thread that serves the event loop: it waits for orders behind a mutex, and makes wake_fd
 * readable when the loop has something to take. What the orders are is the owner's.
 */
#ifndef INFC_RUNTIME_SERVE_THREAD_H
#define INFC_RUNTIME_SERVE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

struct infr_status;

struct serve_thread {
    pthread_t thread;
    bool running;
    int wake_fd;
    pthread_mutex_t mutex;
    pthread_cond_t cond; /* orders have come */
    /* behind the mutex */
    bool draining; /* nothing is accepted */
    bool stop;     /* the thread shall end */
};

/* Mutex, condition and wake_fd; serve_thread_deinit after it in any case. */
int serve_thread_init(struct serve_thread *t, struct infr_status *st);
/* Signals are blocked in it: they are the event loop's. */
int serve_thread_start(struct serve_thread *t, void *(*run)(void *), void *arg,
                       struct infr_status *st);
/* Tells it to stop and waits for that. */
void serve_thread_deinit(struct serve_thread *t);
/* From the thread: the loop has something to take. */
void serve_thread_notify(struct serve_thread *t);
/* From the loop: everything was taken. */
void serve_thread_taken(struct serve_thread *t);
/* Nothing is accepted from now on. */
void serve_thread_drain(struct serve_thread *t);
/* Seconds, of a clock that never goes back. */
double serve_clock(void);

#endif
