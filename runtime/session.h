// SPDX-License-Identifier: Apache-2.0
/*
 * A session: binding of inputs, memory of running calls. What depends only on symbol values is
 * computed once and kept for the last few sets of values.
 */
#ifndef INFC_RUNTIME_SESSION_H
#define INFC_RUNTIME_SESSION_H

#include "runtime/engine.h"

enum { RT_KEPT_SHAPES = 4 };
enum { RT_PAUSED = -1 }; /* beside enum infr_code: the run is not at its end */

/* One set of symbol values and what follows from it. */
struct rt_shape {
    uint64_t used;       /* time of last use; 0 = empty */
    int64_t *sym;        /* a symbol */
    int64_t *dim;        /* a dim row */
    int64_t *pool_dim; /* an entry of the u32 pool: value of the dim row it names (0 where it names
                          none) */
    uint64_t *offset;    /* a buffer: place in the arena */
    int64_t *slices;     /* a launch: slices at its kernel's level */
    int64_t *ahead;      /* a launch: row of the argument table that workers fetch the start of behind it, or -1 */
    int64_t *ahead_launch; /* ... and whose argument it is */
    int64_t *each;       /* a launch: does every worker all of it? */
    int64_t *own;        /* a buffer: has every worker its own? */
    void **arg; /* a row of the argument table: address, a table a worker where n_tables says so; right for arg_arena and the
                   io addresses below */
    uint32_t n_tables;   /* 1: the same for all workers */
    bool probed;         /* for runs with a probe: then nothing is done by each worker */
    uint64_t own_bytes;  /* of a worker's own buffers, which lie behind the arena's, at the same offsets; 0: none */
    void *arg_arena;
    void **arg_io;       /* inputs, then outputs */
    uint64_t arena_bytes, sum_bytes;
    int max_workers;     /* no launch has work for more */
    void *memory;        /* all of the above */
};

/* A worker's part of one launch, for a trace. */
struct rt_event {
    uint64_t start, end; /* ns of the monotonic clock */
    uint32_t launch;
};

/* Time and number of runs of each launch, summed over profiled runs. */
struct rt_profile {
    uint64_t *ns;
    uint32_t *calls;
    uint64_t total_ns;
    /* A trace, NULL: none. A worker has room for event_cap of the n_workers * event_cap events; later ones are dropped. */
    struct rt_event *events;
    uint32_t *n_events, event_cap, n_workers;
};

/* What happens at a probe of the plan (selftest): its step, and n values, which may be changed. */
struct rt_probe {
    void (*seen)(void *ctx, const struct infr_step *s, float *values, uint64_t n);
    void *ctx;
};

void rt_profile_free(struct rt_profile *p); /* NULL is fine */

struct infr_session {
    struct infr_engine *e;
    struct rt_shape shapes[RT_KEPT_SHAPES];
    uint64_t clock;
    unsigned char *arena;
    uint64_t arena_bytes;
    struct output_memory {
        void *data;
        uint64_t bytes;
    } *outputs;
    int64_t *sym;         /* values being bound */
    void **io;            /* addresses of inputs, then outputs, of the running call */
    struct infr_tensor *results;
    struct counter {
        _Alignas(64) _Atomic int64_t next;
    } *counters;          /* a launch: next unclaimed slice */
    _Atomic bool cancel;
    bool keeps_state;     /* state lives on the device: infr_session_keep_state */
    void *device_state;   /* the device's own, made at the first run */
    struct rt_profile *profile; /* NULL: not measured */
    const struct rt_probe *probe; /* NULL: probes do nothing */
    uint64_t until;       /* ns of the monotonic clock at which runs pause, on a CPU; 0: never */
    uint32_t at;          /* of a paused run: the step of the entry block to go on with, ... */
    int64_t done;         /* ... its slices that are done ... */
    struct rt_shape *paused; /* ... and the shape; NULL: no run is paused */
};

/* Symbol values of these inputs into s->sym; checks the whole contract. An input is left out when
 * its data is NULL. */
int rt_bind(struct infr_session *s, const struct infr_tensor *inputs, struct rt_shape **out_shape,
            struct infr_status *st);

/*
 * Dims of every input at given symbol values, for inputs that are made up: fills dtype, rank, dims,
 * bytes and leaves data alone.
 */
int rt_input_shapes(struct infr_session *s, const int64_t *sym, struct infr_tensor *inputs,
                    struct infr_status *st);

/* Row i of the checks at this shape; the message names what was expected. */
int rt_check(const struct infr_engine *e, const struct rt_shape *shape, uint32_t i,
             struct infr_status *st);

/* Evaluates the dim program; false when it fails: *bad_row. */
bool rt_dims_eval(const struct infr_engine *e, const int64_t *sym, int64_t *dim, uint32_t *bad_row);

/*
 * Goes on with a run that paused: infr_session_run returned RT_PAUSED. Its inputs and outputs must be where they were; the session does
 * nothing else in between, but may be given a new run instead, which drops the paused one. Results do not depend on pauses.
 */
int rt_session_go_on(struct infr_session *s, struct infr_tensor *outputs, struct infr_status *st);

/* Executes the plan at this shape with the addresses in s->io, from s->at on. Returns RT_PAUSED too. */
int rt_execute(struct infr_session *s, struct rt_shape *shape, struct infr_status *st);

/* "f32[1,7]" */
void rt_tensor_text(uint32_t dtype, uint32_t rank, const int64_t *dims, char *out,
                    size_t out_bytes);

#endif
