// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/status.h"

enum { HUGE_PAGE = 2 << 20, LINE = 64 };

int infr_session_create(struct infr_engine *e, struct infr_session **out_session,
                        struct infr_status *status)
{
    if (status) *status = (struct infr_status){0};
    *out_session = NULL;
    struct infr_session *s = calloc(1, sizeof *s);
    if (!s) return rt_fail_memory(status, "a session", sizeof *s);
    size_t n_io = (size_t)e->n_inputs + e->n_outputs;
    s->e = e;
    s->sym = calloc((size_t)e->n_symbols + 1, sizeof *s->sym);
    s->io = calloc(n_io + 1, sizeof *s->io);
    s->outputs = calloc((size_t)e->n_outputs + 1, sizeof *s->outputs);
    s->results = calloc((size_t)e->n_outputs + 1, sizeof *s->results);
    s->counters = aligned_alloc(LINE, ((size_t)e->n_launches + 1) * sizeof *s->counters);
    if (!s->sym || !s->io || !s->outputs || !s->results || !s->counters) {
        infr_session_destroy(s);
        return rt_fail_memory(status, "a session",
                              n_io * sizeof *s->io + e->n_launches * sizeof *s->counters);
    }
    *out_session = s;
    return INFR_OK;
}

void rt_profile_free(struct rt_profile *p)
{
    if (!p) return;
    free(p->ns);
    free(p->calls);
    free(p->events);
    free(p->n_events);
    free(p);
}

void infr_session_destroy(struct infr_session *s)
{
    if (!s) return;
    if (s->e->device) s->e->device->type->session_destroy(s->e->device, s);
    for (int i = 0; i < RT_KEPT_SHAPES; i++) free(s->shapes[i].memory);
    if (s->arena) munmap(s->arena, s->arena_bytes);
    for (uint32_t i = 0; s->outputs && i < s->e->n_outputs; i++) free(s->outputs[i].data);
    rt_profile_free(s->profile);
    free(s->sym);
    free(s->io);
    free(s->outputs);
    free(s->results);
    free(s->counters);
    free(s);
}

bool infr_session_keep_state(struct infr_session *s) { return s->keeps_state = s->e->device != NULL; }

uint64_t infr_session_memory(struct infr_session *s)
{
    if (s->e->device) return s->e->device->type->free_memory(s->e->device);
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void infr_session_cancel(struct infr_session *s) { atomic_store(&s->cancel, true); }

/* The arena only grows, a quarter more than asked so that slowly growing shapes do not map anew
 * each time. */
static int ensure_arena(struct infr_session *s, uint64_t bytes, struct infr_status *st)
{
    if (bytes <= s->arena_bytes && s->arena) return INFR_OK;
    uint64_t page = bytes >= HUGE_PAGE ? HUGE_PAGE : 4096,
             want = s->arena ? bytes + bytes / 4 : bytes;
    want = (want + page) & ~(page - 1); /* at least one page */
    if (s->arena) munmap(s->arena, s->arena_bytes);
    s->arena = mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (s->arena == MAP_FAILED) {
        s->arena = NULL;
        s->arena_bytes = 0;
        return rt_fail_memory(st, "activations of these input shapes", want);
    }
    s->arena_bytes = want;
    if (want >= 4 * HUGE_PAGE) madvise(s->arena, want, MADV_HUGEPAGE); /* a wish */
    return INFR_OK;
}

static int ensure_output(struct output_memory *m, uint64_t bytes, struct infr_status *st)
{
    if (m->data && m->bytes >= bytes) return INFR_OK;
    uint64_t want = (bytes + LINE) & ~(uint64_t)(LINE - 1);
    free(m->data);
    m->data = aligned_alloc(LINE, want);
    m->bytes = m->data ? want : 0;
    return m->data ? INFR_OK : rt_fail_memory(st, "an output", want);
}

/* Fills s->results with the shape's outputs and decides where each is written. */
static int place_outputs(struct infr_session *s, const struct rt_shape *shape,
                         const struct infr_tensor *outputs, struct infr_status *st)
{
    const struct infr_engine *e = s->e;
    for (uint32_t i = 0; i < e->n_outputs; i++) {
        const struct infr_io *io = &e->outputs[i];
        struct infr_tensor *t = &s->results[i];
        t->dtype = io->dtype;
        t->rank = io->rank;
        t->bytes = dtype_bytes((enum dtype)io->dtype);
        for (uint32_t a = 0; a < io->rank; a++) {
            t->dims[a] = shape->pool_dim[io->dims + a];
            t->bytes *= (uint64_t)t->dims[a]; /* cannot overflow: checked with the shape */
        }
        if (outputs[i].data) {
            if (outputs[i].bytes < t->bytes)
                return rt_fail(st, INFR_BAD_INPUT,
                               "output '%.100s' takes %llu bytes; there is room for %llu",
                               rt_text(e, io->name), (unsigned long long)t->bytes,
                               (unsigned long long)outputs[i].bytes);
            if ((uintptr_t)outputs[i].data % dtype_bytes((enum dtype)io->dtype))
                return rt_fail(st, INFR_BAD_INPUT,
                               "output '%.100s': its memory is not aligned to its elements",
                               rt_text(e, io->name));
            t->data = outputs[i].data;
        } else {
            int code = ensure_output(&s->outputs[i], t->bytes, st);
            if (code) return code;
            t->data = s->outputs[i].data;
        }
        s->io[e->n_inputs + i] = t->data;
    }
    return INFR_OK;
}

static void *buf_address(const struct infr_session *s, const struct rt_shape *shape, uint32_t buf)
{
    const struct infr_engine *e = s->e;
    const struct infr_buf *b = &e->bufs[buf];
    switch ((enum infr_buf_kind)b->kind) {
    case INFR_BUF_INPUT: return s->io[b->io];
    case INFR_BUF_OUTPUT: return s->io[e->n_inputs + b->io];
    case INFR_BUF_CONST: return (void *)(uintptr_t)(e->weights + b->const_offset);
    case INFR_BUF_ARENA: break;
    }
    return s->arena + shape->offset[buf];
}

/* The argument table of a worker, in which buffers that it has for itself are its own. */
static void place_table(const struct infr_session *s, struct rt_shape *shape, uint32_t worker)
{
    const struct infr_engine *e = s->e;
    void **arg = shape->arg + (size_t)worker * e->n_args;
    uint64_t own = shape->arena_bytes + shape->own_bytes * worker;
    for (uint32_t i = 0; i < e->n_args; i++) {
        const struct infr_arg *a = &e->args[i];
        char *at = buf_address(s, shape, a->buf);
        arg[i] = at + (a->offset == INFR_NONE ? 0 : shape->dim[a->offset]) + (shape->own[a->buf] ? own : 0);
    }
}

/* Addresses of all launch arguments, unless they are those of the shape's last call. */
static void place_args(struct infr_session *s, struct rt_shape *shape)
{
    const struct infr_engine *e = s->e;
    size_t n_io = (size_t)e->n_inputs + e->n_outputs;
    if (shape->arg_arena == s->arena && !memcmp(shape->arg_io, s->io, n_io * sizeof *s->io)) return;
    for (uint32_t w = 0; w < (shape->own_bytes ? shape->n_tables : 1); w++) place_table(s, shape, w);
    memcpy(shape->arg_io, s->io, n_io * sizeof *s->io);
    shape->arg_arena = s->arena;
}

/* An output that no launch writes (an input or a constant handed on, one value under two names) is
 * copied. */
static void copy_outputs(struct infr_session *s, const struct rt_shape *shape)
{
    const struct infr_engine *e = s->e;
    for (uint32_t i = 0; i < e->n_outputs; i++) {
        const struct infr_buf *b = &e->bufs[e->outputs[i].buf];
        if (b->kind == INFR_BUF_OUTPUT && b->io == i) continue;
        memcpy(s->results[i].data, buf_address(s, shape, e->outputs[i].buf), s->results[i].bytes);
    }
}

static int run_plan(struct infr_session *s, struct rt_shape *shape, struct infr_tensor *outputs, struct infr_status *st)
{
    int code = rt_execute(s, shape, st);
    s->paused = code == RT_PAUSED ? shape : NULL;
    if (code) return code;
    copy_outputs(s, shape);
    for (uint32_t i = 0; i < s->e->n_outputs; i++) outputs[i] = s->results[i];
    return INFR_OK;
}

int rt_session_go_on(struct infr_session *s, struct infr_tensor *outputs, struct infr_status *st)
{
    *st = (struct infr_status){0};
    if (!s->paused) return rt_fail(st, INFR_BAD_INPUT, "no run is paused");
    return run_plan(s, s->paused, outputs, st);
}

int infr_session_run(struct infr_session *s, const struct infr_tensor *inputs,
                     struct infr_tensor *outputs, struct infr_status *st)
{
    const struct infr_engine *e = s->e;
    struct rt_shape *shape;
    if (st) *st = (struct infr_status){0};
    s->paused = NULL, s->at = 0, s->done = 0;
    if (e->only_asked) return rt_fail(st, INFR_BAD_INPUT, "this engine was opened without a device");
    int code = rt_bind(s, inputs, &shape, st);
    if (code) return code;
    for (uint32_t i = 0; i < e->n_inputs; i++)
        s->io[i] = inputs[i].data ? inputs[i].data
                                  : (void *)(uintptr_t)(e->weights + e->inputs[i].default_offset);
    if ((code = place_outputs(s, shape, outputs, st))) return code;
    if (!e->device) {
        if ((code = ensure_arena(s, shape->arena_bytes + shape->own_bytes * shape->n_tables, st))) return code;
        place_args(s, shape);
        return run_plan(s, shape, outputs, st);
    }
    if ((code = e->device->type->run(e->device, s, shape, st))) return code;
    for (uint32_t i = 0; i < e->n_outputs; i++) outputs[i] = s->results[i];
    return INFR_OK;
}
