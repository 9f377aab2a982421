// SPDX-License-Identifier: Apache-2.0
/*
 * The walk over the plan. Every worker makes the same walk and takes its own slices of each launch,
 * so that all decisions (which branch, whether there is a barrier, whether to stop) must come out
 * the same in each: they depend on the shape alone, or are taken by the last worker to arrive at a
 * barrier and read by the others behind it.
 *
 * Launches of one slice are worker 0's. A barrier between two such launches, with nothing but such
 * launches since the last barrier, keeps nobody from anything: it is put off until a launch has
 * work for others. Chains of small launches thus cost no barrier at all. Small ones whose results nobody but launches reads are
 * done by every worker for itself (shape->each): what comes next then waits for nobody.
 *
 * With a time to stop at (session->until) the walk ends at the first meeting behind it and goes on from there with the next call.
 * So that there are meetings often enough, launches are then done in portions of their slices, the first one an eighth, the next as many as
 * the first one's time says there is time for.
 */
#define _GNU_SOURCE
#include <string.h>
#include <time.h>

#include "runtime/session.h"
#include "runtime/status.h"

/* Bytes of the next stream that are fetched early. More stalls on full line buffers (measured). */
enum { AHEAD_BYTES = 4096 };

struct job {
    struct infr_session *s;
    const struct infr_engine *e;
    const struct rt_shape *shape;
    struct rt_profile *profile;
    bool stop, branch; /* written by the last to arrive */
    uint32_t failed;   /* a check of a branch that was taken, or INFR_NONE; written by worker 0 */
    uint64_t until;    /* ns; 0: no end */
    uint32_t from, at; /* steps of the entry block: where the walk begins; where it paused, written by worker 0 in the end */
    int64_t done_before, done; /* slices of them that are done */
    int64_t portion;   /* of slices that fit until then; written by the last to arrive, as is ... */
    bool paused;
};

struct walk {
    struct job *job;
    int worker, n_workers;
    bool put_off;         /* a barrier; see above */
    bool alone, each;     /* since the last barrier: nothing but worker 0's launches; nothing but those that each does */
    bool stopped;
    int depth;            /* of blocks: walks pause in the entry block alone */
    bool moved;           /* something was done: walks pause behind that, so that each call gets on */
    int64_t done;         /* slices of the launch to begin with */
    int64_t portion;      /* slices since `began`, or 0 */
    uint64_t began;
    uint32_t timed; /* worker 0: launch being timed, or INFR_NONE */
    uint64_t since;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* By the last to arrive, where there is a time to stop at. */
static void look_at_clock(const struct walk *w)
{
    struct job *j = w->job;
    uint64_t now = now_ns();
    if (j->stop || w->depth != 1 || !w->moved) return;
    if (now >= j->until) {
        j->stop = j->paused = true;
    } else if (w->portion) { /* as many slices more as fit, by the time of the last ones */
        double fit = (double)(j->until - now) * (double)w->portion / (double)(now - w->began + 1);
        j->portion = fit < 1e9 ? (int64_t)fit : 1000000000;
    }
}

/* All workers meet; condition: the bool of an `if`, or NULL. */
static void meet(struct walk *w, const unsigned char *condition)
{
    struct job *j = w->job;
    if (w->n_workers == 1 || rt_meet(j->s->e->pool, w->n_workers)) {
        if (atomic_load_explicit(&j->s->cancel, memory_order_relaxed)) j->stop = true;
        if (j->until) look_at_clock(w);
        if (condition) j->branch = *condition != 0;
        if (w->n_workers > 1) rt_release(j->s->e->pool);
    }
    w->stopped = j->stop;
    w->put_off = false;
    w->alone = w->each = true;
}

static void end_timing(struct walk *w)
{
    if (w->timed == INFR_NONE) return;
    w->job->profile->ns[w->timed] += now_ns() - w->since;
    w->job->profile->calls[w->timed]++;
    w->timed = INFR_NONE;
}

static void start_timing(struct walk *w, uint32_t launch)
{
    if (w->worker) return;
    end_timing(w);
    w->timed = launch;
    w->since = now_ns();
}

static void *buf_of_condition(const struct job *j, uint32_t buf)
{
    const struct infr_engine *e = j->e;
    const struct infr_buf *b = &e->bufs[buf];
    switch ((enum infr_buf_kind)b->kind) {
    case INFR_BUF_INPUT: return j->s->io[b->io];
    case INFR_BUF_OUTPUT: return j->s->io[e->n_inputs + b->io];
    case INFR_BUF_CONST: return (void *)(uintptr_t)(e->weights + b->const_offset);
    case INFR_BUF_ARENA: break;
    }
    return j->s->arena + j->shape->offset[buf];
}

/* Worker's share of n slices: sizes differ by one at most, the larger ones first. */
static void share_of(int64_t n, int worker, int n_workers, int64_t *begin, int64_t *end)
{
    int64_t each = n / n_workers, more = n % n_workers;
    *begin = each * worker + (worker < more ? worker : more);
    *end = *begin + each + (worker < more);
}

/* Slices [from, to) of launch i, the worker's share of them. */
static void run_share(struct walk *w, uint32_t i, int64_t from, int64_t to)
{
    const struct job *j = w->job;
    const struct infr_launch *l = &j->e->launches[i];
    infr_kernel_fn *fn = j->e->kernel_fn[l->kernel];
    void *const *bufs = j->shape->arg + l->args + (j->shape->own_bytes ? (size_t)w->worker * j->e->n_args : 0);
    const int64_t *dims = j->shape->pool_dim + l->dims;
    void *scratch = rt_pool_scratch(j->s->e->pool, w->worker);
    int64_t n = to - from, begin = 0, end = n;
    if (l->claim && n > 1 && w->n_workers > 1 && !j->until) {
        _Atomic int64_t *next = &j->s->counters[i].next;
        while ((begin = atomic_fetch_add_explicit(next, l->claim, memory_order_relaxed)) < n)
            fn(bufs, dims, begin, n - begin < l->claim ? n : begin + l->claim, scratch);
        return;
    }
    if (!j->shape->each[i]) share_of(n, w->worker, w->n_workers, &begin, &end);
    if (begin < end) fn(bufs, dims, from + begin, from + end, scratch);
}

/*
 * Portion after portion. How large each is comes from the shape (the first), or was written at the meeting before it. Nobody waits behind
 * the last one: a launch behind that needs no barrier, as its slices read what the same slices wrote, begins with a portion of the same
 * size, whose slices are the worker's own or lie before a meeting, and meets before its next one.
 */
static void run_portions(struct walk *w, uint32_t i)
{
    struct job *j = w->job;
    int64_t n = j->shape->slices[i], portion = n / 8;
    while (!w->stopped) {
        portion -= portion % w->n_workers;
        if (portion < w->n_workers) portion = w->n_workers;
        if (portion > n - w->done) portion = n - w->done;
        w->began = now_ns();
        run_share(w, i, w->done, w->done + portion);
        w->done += portion;
        w->moved = true;
        if (w->done == n) break;
        w->portion = portion;
        meet(w, NULL);
        w->portion = 0;
        portion = j->portion;
    }
    if (w->done == n) w->done = 0;
}

/* Each worker writes into its own part. A launch in which it had nothing to do is no event. */
static void record(struct walk *w, uint32_t launch, uint64_t start)
{
    struct rt_profile *p = w->job->profile;
    uint32_t at = w->worker < (int)p->n_workers ? p->n_events[w->worker] : p->event_cap;
    if (at >= p->event_cap || (w->job->shape->slices[launch] <= w->worker && !w->job->shape->each[launch])) return;
    p->events[(size_t)w->worker * p->event_cap + at] = (struct rt_event){start, now_ns(), launch};
    p->n_events[w->worker] = at + 1;
}

/*
 * What a worker will read first of the next launch that streams constants (weights), so that it is on its way while small launches
 * run and workers meet.
 */
static void fetch_ahead(const struct walk *w, uint32_t i)
{
    const struct rt_shape *shape = w->job->shape;
    const struct infr_engine *e = w->job->e;
    int64_t stream = shape->ahead[i], begin, end;
    if (stream < 0) return;
    int64_t n = shape->slices[shape->ahead_launch[i]], bytes = shape->dim[e->bufs[e->args[stream].buf].bytes];
    share_of(n, w->worker, w->n_workers, &begin, &end);
    const char *from = (const char *)shape->arg[stream] + bytes / n * begin;
    for (int64_t at = 0; at < AHEAD_BYTES; at += 64) __builtin_prefetch(from + at, 0, 2);
}

static void run_launch(struct walk *w, uint32_t i)
{
    const struct job *j = w->job;
    bool each = j->shape->each[i], lone = !each && j->shape->slices[i] <= 1;
    if (j->profile) {
        meet(w, NULL); /* so that the times are the launches' own */
        start_timing(w, i);
    } else if (w->n_workers == 1) {
        meet(w, NULL);
    } else if (j->e->launches[i].barrier & INFR_ORDER_MEET || w->put_off) {
        if (lone && w->alone) w->put_off = true;
        else if (lone || !w->each) meet(w, NULL);
    }
    if (w->stopped) return;
    uint64_t start = j->profile && j->profile->events ? now_ns() : 0;
    if (j->until && !lone && !each && w->depth == 1) run_portions(w, i);
    else run_share(w, i, 0, j->shape->slices[i]);
    w->moved = true;
    if (!lone) w->alone = false;
    if (!each) w->each = false;
    if (w->stopped) return;
    if (start) record(w, i, start);
    if (!lone && !each) fetch_ahead(w, i);
}

/* Between launches, while all others wait. */
static void run_probe(struct walk *w, const struct infr_step *s)
{
    const struct job *j = w->job;
    meet(w, NULL);
    if (!w->worker && !w->stopped) {
        const struct rt_probe *p = j->s->probe;
        p->seen(p->ctx, s, (float *)(void *)(j->s->arena + j->shape->offset[s->a]), (uint64_t)j->shape->dim[j->e->bufs[s->a].bytes] / sizeof(float));
    }
    meet(w, NULL);
}

static void run_block(struct walk *w, uint32_t block)
{
    const struct infr_engine *e = w->job->e;
    uint32_t i = w->depth++ ? 0 : w->job->from;
    for (; i < e->blocks[block].count && !w->stopped; i++) {
        const struct infr_step *s = &e->steps[e->blocks[block].first + i];
        if (s->kind == INFR_STEP_LAUNCH) {
            run_launch(w, s->a);
            continue;
        }
        if (s->kind == INFR_STEP_PROBE) {
            if (w->job->s->probe) run_probe(w, s);
            continue;
        }
        if (s->kind == INFR_STEP_CHECK) { /* the shape decides: the same in every worker */
            const struct infr_check *c = &e->checks[s->a];
            int64_t a = w->job->shape->dim[c->a], b = w->job->shape->dim[c->b];
            if (c->is_le ? a <= b : a == b) continue;
            if (!w->worker) w->job->failed = s->a;
            w->stopped = true;
            continue;
        }
        meet(w, buf_of_condition(w->job, s->a));
        if (!w->stopped) run_block(w, w->job->branch ? s->b : s->c);
    }
    if (!--w->depth && !w->worker) w->job->at = i ? i - 1 : 0, w->job->done = w->done; /* of a walk that paused: the step it is at */
}

static void run_worker(void *ctx, int worker, int n_workers)
{
    struct job *j = ctx;
    struct walk w = {
        .job = j, .worker = worker, .n_workers = n_workers, .alone = true, .each = true, .timed = INFR_NONE, .done = j->done_before};
    run_block(&w, j->e->h.entry_block);
    if (j->profile) {
        if (!w.stopped) meet(&w, NULL);
        if (!worker) end_timing(&w);
    }
}

/* Every `if` reads a byte. */
static int check_conditions(const struct infr_engine *e, const struct rt_shape *shape,
                            struct infr_status *st)
{
    for (uint32_t i = 0; i < e->n_steps; i++)
        if (e->steps[i].kind == INFR_STEP_IF && shape->dim[e->bufs[e->steps[i].a].bytes] < 1)
            return rt_fail(st, INFR_BAD_INPUT,
                           "the condition of an If has no element at these shapes");
    return INFR_OK;
}

int rt_execute(struct infr_session *s, struct rt_shape *shape, struct infr_status *st)
{
    const struct infr_engine *e = s->e;
    struct job j = {.s = s, .e = e, .shape = shape, .profile = s->profile, .failed = INFR_NONE,
                    .until = s->until, .from = s->at, .done_before = s->done};
    s->at = 0, s->done = 0;
    int code = check_conditions(e, shape, st), n_workers = rt_pool_size(e->pool);
    if (code) return code;
    if (n_workers > shape->max_workers) n_workers = shape->max_workers;
    if (n_workers > 1)
        for (uint32_t i = 0; i < e->n_launches; i++)
            atomic_store_explicit(&s->counters[i].next, 0, memory_order_relaxed);
    uint64_t start = s->profile ? now_ns() : 0;
    rt_pool_run(e->pool, n_workers, run_worker, &j);
    if (s->profile) s->profile->total_ns += now_ns() - start;
    if (j.failed != INFR_NONE) return rt_check(e, shape, j.failed, st);
    if (!j.stop) return INFR_OK;
    if (j.paused) {
        s->at = j.at, s->done = j.done;
        return RT_PAUSED;
    }
    atomic_store(&s->cancel, false);
    return rt_fail(st, INFR_CANCELLED, "cancelled");
}
