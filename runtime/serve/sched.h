// SPDX-License-Identifier: Apache-2.0
/*
 * Who is served when: a bounded queue in front of a generator.
 *
 * The generator (runtime/lm/lm_generate.h) makes batches and runs as many requests as it has places
 * for. This queue decides which job gets a place that is free:
 *
 *   1. the best priority (lower numbers are better; a better one also takes a running one's place);
 *   2. among these the client that got the least so far. A client's share is counted in tokens,
 *      prompt and answer; one that was away does not save up for later;
 *   3. among a client's jobs the oldest.
 *
 * A job that does not get its place before its deadline, or is not done by then, ends with
 * SCHED_TIMEOUT. Jobs can be cancelled at any time and are gone with the next step.
 *
 * The number of prompt tokens in a step follows from measured times, one for each size: while answers are
 * being written a step should take no more than `stretch` times what a step of answers alone takes. What a
 * request computes does not depend on it.
 *
 * One thread. Memory of jobs and arrays is the caller's; a step allocates only when a job gets its
 * place.
 */
#ifndef INFC_RUNTIME_SERVE_SCHED_H
#define INFC_RUNTIME_SERVE_SCHED_H

#include "runtime/lm/lm_generate.h"

enum sched_end {
    SCHED_NOT_YET,
    SCHED_DONE,      /* the generator's finish says how */
    SCHED_CANCELLED, /* sched_cancel */
    SCHED_TIMEOUT,
    SCHED_ERROR, /* job->error */
};

struct sched_job {
    /* The caller's: set before sched_submit, unchanged until the end. desc.on_event gets the
     * generator's events; a job that never gets a place has none. */
    struct lm_request_desc desc;
    uint64_t client;
    double deadline; /* by the clock of sched_step; 0: none */
    /* Called once, after the last event; the job is the caller's again. */
    void (*on_end)(struct sched_job *job);
    void *user;
    /* results */
    enum sched_end end;
    enum lm_finish finish;
    const char *error; /* lives as long as the scheduler, or is a literal */
    uint32_t n_prompt, n_cached, n_generated;
    double submitted, started, first_token, ended; /* clock; 0: not reached */
    /* the scheduler's */
    struct lm_request *request;
    struct sched_job *next;
    uint64_t arrival;
    uint32_t client_at; /* index of its client's share */
    lm_event_fn *on_event;
    void *event_user;
    struct sched *sched;
    bool cancel;
    char note[256];
};

struct sched_options {
    uint32_t max_queue; /* jobs that wait for a place at most */
    uint32_t max_running;
    uint32_t chunk;  /* tokens of a step at most */
    double stretch;  /* 0: every step has `chunk` tokens */
};

struct sched_counts {
    uint64_t accepted, refused, done, cancelled, timeouts, errors;
    uint64_t prompt_tokens, cached_tokens, generated_tokens; /* of jobs that ended */
    uint32_t queued, running, clients;
    uint32_t step_budget; /* prompt and answer tokens that the next step may have */
    struct lm_counts generator;
};

enum sched_verdict { SCHED_ACCEPTED, SCHED_FULL, SCHED_DRAINING };

struct sched;

/* g must have max_running places and outlive it; nobody else submits to g. */
int sched_create(struct lm_generator *g, const struct sched_options *o, struct sched **out,
                 struct infr_status *st);
/* All jobs must have ended. */
void sched_destroy(struct sched *s);

/* Takes n jobs or none. The caller has asked lm_generator_check before. */
enum sched_verdict sched_submit(struct sched *s, struct sched_job *const *jobs, uint32_t n,
                                double now);
void sched_cancel(struct sched_job *job);
/* No job is accepted from now on. */
void sched_drain(struct sched *s);
/* Cancels all. */
void sched_cancel_all(struct sched *s);

/*
 * Places, one call of the model, ends. clock is read before and after. *more false: nothing to do.
 * A failure of the model ends the jobs that were in the batch and is not an error here; *failed
 * says what it was.
 */
void sched_step(struct sched *s, double (*clock)(void), bool *more, struct infr_status *failed);
void sched_get_counts(const struct sched *s, struct sched_counts *out);
/* When the next deadline is due, or 0. */
double sched_next_deadline(const struct sched *s);

#endif
