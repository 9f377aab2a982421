// SPDX-License-Identifier: Apache-2.0
/*
 * The thread that runs an engine of tensors, one call after the other (a call uses all of the
 * engine's workers). Jobs come from the event loop and go back to it; wake_fd is readable when some
 * are done.
 */
#ifndef INFC_RUNTIME_SERVE_TENSORS_H
#define INFC_RUNTIME_SERVE_TENSORS_H

#include "runtime/serve/server.h"

struct tensor_job {
    struct infr_tensor *in, *out; /* an input, an output: of the engine's order; out own memory */
    void *user;
    int code;
    char note[508];
    /* the worker's */
    struct tensor_job *next;
    struct tensor_worker *worker;
    bool cancelled;
};

int tensor_worker_create(struct infr_engine *e, uint32_t max_queue, struct tensor_worker **out,
                         struct infr_status *st);
/* All jobs must be done. */
void tensor_worker_destroy(struct tensor_worker *w);
int tensor_wake_fd(const struct tensor_worker *w);
/* False: the queue is full, or the worker drains. */
bool tensor_submit(struct tensor_worker *w, struct tensor_job *j);
/* It is done soon and its results mean nothing. */
void tensor_cancel(struct tensor_job *j);
void tensor_drain(struct tensor_worker *w);
/* The next job that is done; NULL: no more for now. */
struct tensor_job *tensor_take(struct tensor_worker *w);

struct tensor_counts {
    uint64_t runs, failures;
    double busy_s;
    uint32_t waiting;
};
void tensor_get_counts(struct tensor_worker *w, struct tensor_counts *out);

/* api_v2.c */
void api_v2_done(struct tensor_job *j);
api_handler api_v2_server, api_v2_live, api_v2_ready, api_v2_model, api_v2_infer;

#endif
