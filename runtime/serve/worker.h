// SPDX-License-Identifier: Apache-2.0
/*
 * The thread that runs the model. The event loop hands it jobs and cancellations; it hands back
 * events, which become readable on wake_fd. What both touch lies behind one mutex that is held for
 * copies only, never during a call of the model.
 *
 * A job is the worker's from worker_submit until its `ended` is seen by worker_take. Nothing is
 * allocated for a token once the buffers of a job have grown.
 */
#ifndef INFC_RUNTIME_SERVE_WORKER_H
#define INFC_RUNTIME_SERVE_WORKER_H

#include "runtime/lm/lm_embed.h"
#include "runtime/serve/sched.h"
#include "runtime/serve/thread.h"

/* In a job's events: this, n_top alternatives, n_text bytes and up to 7 more. */
struct work_event {
    uint32_t token, n_text, n_top;
    float logprob;
    uint32_t n_computed, n_cached; /* of progress */
    bool of_prompt, progress;
    enum lm_finish finish;
    int32_t stopped;
};

struct work_bytes {
    char *p;
    size_t n, cap;
};

struct work_job {
    struct sched_job job; /* results are valid once `ended` */
    void *user;
    /* of an embedding in place of text: */
    float *vector; /* [embedding_dims]; NULL: a text */
    bool normalize;
    enum infr_text_pooling pooling;
    /* after worker_take: */
    struct work_bytes events;
    bool ended;
    bool no_memory; /* events are missing */
    /* the worker's */
    struct work_bytes mine, shared;
    struct work_job *next, *next_touched, *next_dirty, *next_cancel;
    bool touched, done; /* the thread's */
    bool dirty, cancelling, handed_over; /* behind the mutex */
    struct worker *worker;
};

struct worker_options {
    struct sched_options sched;
    struct lm_generator *generator; /* or */
    struct lm_embedder *embedder;
};

struct worker_counts {
    struct sched_counts sched;
    uint64_t embeddings, embedded_tokens;
    double busy_s, prompt_s, answer_s; /* in calls of the model; with and without prompt tokens */
    uint64_t step_ns_last;
    uint32_t waiting; /* of embeddings */
};

struct worker;

int worker_create(const struct worker_options *o, struct worker **out, struct infr_status *st);
/* Readable when worker_take has something. */
int worker_wake_fd(const struct worker *w);
/* All or none. */
enum sched_verdict worker_submit(struct worker *w, struct work_job *const *jobs, uint32_t n);
void worker_cancel(struct work_job *job);
/* No job is accepted from now on; those there are run to their end. */
void worker_drain(struct worker *w);
/* The next job that has events or has ended; NULL: no more for now. Its `events` are new ones. */
struct work_job *worker_take(struct worker *w);
void work_job_deinit(struct work_job *j);
/* False: no memory, and nothing is added. */
bool work_append(struct work_bytes *b, const void *p, size_t n);
void worker_get_counts(struct worker *w, struct worker_counts *out);
/* Cancels what runs, and waits for the thread. All jobs must have been taken or forgotten. */
void worker_destroy(struct worker *w);

#endif
