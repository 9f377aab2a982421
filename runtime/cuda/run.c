// SPDX-License-Identifier: Apache-2.0
/*
 * One call on the GPU: inputs over, the plan's launches in order on one stream, outputs back. Everything of a session lies in
 * one piece of device memory: the arena (placed by the same first fit as on the CPU), inputs, outputs.
 *
 * State (the caches of language models) is the caller's memory, which may change between calls: it goes over and comes
 * back with every call.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/cuda/cuda.h"
#include "runtime/status.h"

struct call {
    struct cuda_device *d;
    const struct cu_driver *cu;
    struct infr_session *s;
    const struct infr_engine *e;
    struct cuda_session *cs;
    struct rt_shape *shape;
    struct infr_status *st;
};

/* ---- memory ---- */

static uint64_t aligned(uint64_t n) { return (n + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN; }

static uint64_t io_bytes(const struct call *c, uint32_t i)
{
    const struct infr_engine *e = c->e;
    const struct infr_io *io = i < e->n_inputs ? &e->inputs[i] : &e->outputs[i - e->n_inputs];
    return (uint64_t)c->shape->dim[e->bufs[io->buf].bytes];
}

static int session_start(struct call *c)
{
    const struct infr_engine *e = c->e;
    size_t n_io = (size_t)e->n_inputs + e->n_outputs, most = 0;
    struct cuda_session *cs = calloc(1, sizeof *cs);
    if (!cs) return rt_fail_memory(c->st, "a session", sizeof *cs);
    c->s->device_state = c->cs = cs;
    for (uint32_t i = 0; i < e->n_launches; i++)
        if ((size_t)e->launches[i].n_args + e->launches[i].n_dims > most) most = (size_t)e->launches[i].n_args + e->launches[i].n_dims;
    cs->io_offset = calloc(n_io + 1, sizeof *cs->io_offset);
    cs->params = calloc(most + 1, sizeof *cs->params);
    cs->addresses = calloc((size_t)e->n_args + 1, sizeof *cs->addresses);
    if (!cs->io_offset || !cs->params || !cs->addresses) return rt_fail_memory(c->st, "a session", most * sizeof *cs->params);
    cu_result r = c->cu->cuStreamCreate(&cs->stream, 1 /* not ordered with others' work */);
    return r ? cu_fail(c->cu, r, "making a stream on the GPU", c->st) : INFR_OK;
}

void cuda_session_destroy(struct rt_device *base, struct infr_session *s)
{
    struct cuda_device *d = (struct cuda_device *)base;
    struct cuda_session *cs = s->device_state;
    if (!cs) return;
    d->cu.cuCtxSetCurrent(d->context);
    cuda_graphs_destroy(&d->cu, cs);
    if (cs->memory) d->cu.cuMemFree_v2(cs->memory);
    if (cs->state) d->cu.cuMemFree_v2(cs->state);
    if (cs->stream) d->cu.cuStreamDestroy_v2(cs->stream);
    free(cs->io_offset);
    free(cs->params);
    free(cs->addresses);
    free(cs);
    s->device_state = NULL;
}

static bool is_kept(const struct call *c, uint32_t input)
{
    return c->s->keeps_state && c->e->inputs[input].optional == INFR_IO_STATE;
}

/* State that stays here: made at the first run, and again where its size changes. */
static int place_state(struct call *c)
{
    struct cuda_session *cs = c->cs;
    uint64_t at = 0;
    for (uint32_t i = 0; i < c->e->n_inputs; i++) {
        if (!is_kept(c, i)) continue;
        cs->io_offset[i] = at;
        at += aligned(io_bytes(c, i));
    }
    if (at == cs->state_bytes) return INFR_OK;
    if (cs->state) c->cu->cuMemFree_v2(cs->state);
    cs->state = 0;
    cs->state_bytes = 0;
    if (!at) return INFR_OK;
    if (c->cu->cuMemAlloc_v2(&cs->state, at)) {
        cs->state = 0;
        return cuda_fail_memory(c->d, "the KV cache (--ctx and --kv-memory size it)", at, c->st);
    }
    cs->state_bytes = at;
    cu_result r = c->cu->cuMemsetD8Async(cs->state, 0, at, cs->stream);
    return r ? cu_fail(c->cu, r, "clearing the KV cache on the GPU", c->st) : INFR_OK;
}

/* Grows only; what was in it is no longer needed. */
static int place_memory(struct call *c)
{
    struct cuda_session *cs = c->cs;
    uint64_t at = aligned(c->shape->arena_bytes);
    uint32_t n_io = c->e->n_inputs + c->e->n_outputs;
    for (uint32_t i = 0; i < n_io; i++) {
        if (i < c->e->n_inputs && is_kept(c, i)) continue;
        cs->io_offset[i] = at;
        at += aligned(io_bytes(c, i));
    }
    if (at <= cs->memory_bytes && cs->memory) return INFR_OK;
    if (cs->memory) c->cu->cuMemFree_v2(cs->memory);
    cs->memory = 0;
    cs->memory_bytes = at ? at : CUDA_ALIGN;
    if (!c->cu->cuMemAlloc_v2(&cs->memory, cs->memory_bytes)) return INFR_OK;
    cs->memory = 0;
    at = cs->memory_bytes;
    cs->memory_bytes = 0;
    return cuda_fail_memory(c->d, "a call at these input shapes", at, c->st);
}

static cu_pointer buf_address(const struct call *c, uint32_t buf)
{
    const struct infr_buf *b = &c->e->bufs[buf];
    switch ((enum infr_buf_kind)b->kind) {
    case INFR_BUF_INPUT: return (is_kept(c, b->io) ? c->cs->state : c->cs->memory) + c->cs->io_offset[b->io];
    case INFR_BUF_OUTPUT: return c->cs->memory + c->cs->io_offset[c->e->n_inputs + b->io];
    case INFR_BUF_CONST: return c->d->weights + c->d->const_offset[buf];
    case INFR_BUF_ARENA: break;
    }
    return c->cs->memory + c->shape->offset[buf];
}

/* ---- the walk ---- */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int fail_launch(const struct call *c, uint32_t i, cu_result r)
{
    char what[320];
    const struct infr_launch *l = &c->e->launches[i];
    snprintf(what, sizeof what, "kernel %.80s (%.200s)", rt_text(c->e, l->name), rt_text(c->e, l->loc));
    return cu_fail(c->cu, r, what, c->st);
}

static int launch(const struct call *c, uint32_t i)
{
    const struct infr_launch *l = &c->e->launches[i];
    const struct cuda_kernel *k = &c->d->kernels[l->kernel];
    int64_t n = c->shape->slices[i];
    if (n <= 0) return INFR_OK;
    uint64_t ctas = ((uint64_t)n + k->slices_cta - 1) / k->slices_cta;
    if (ctas > INT32_MAX) return rt_fail(c->st, INFR_BAD_INPUT, "these input shapes are too large for a GPU: %llu CTAs", (unsigned long long)ctas);
    void **params = c->cs->params;
    for (uint32_t a = 0; a < l->n_args; a++) params[a] = &c->cs->addresses[l->args + a];
    for (uint32_t a = 0; a < l->n_dims; a++) params[l->n_args + a] = &c->shape->pool_dim[l->dims + a];
    params[l->n_args + l->n_dims] = &c->shape->slices[i];
    uint64_t since = c->s->profile ? now_ns() : 0;
    cu_result r = c->cu->cuLaunchKernel(k->function, (unsigned)ctas, 1, 1, k->threads, 1, 1, k->shared_bytes, c->cs->stream, params, NULL);
    if (!r && c->s->profile) {
        r = c->cu->cuStreamSynchronize(c->cs->stream);
        c->s->profile->ns[i] += now_ns() - since;
        c->s->profile->calls[i]++;
    }
    return r ? fail_launch(c, i, r) : INFR_OK;
}

static int cancelled(const struct call *c)
{
    c->cu->cuStreamSynchronize(c->cs->stream);
    atomic_store(&c->s->cancel, false);
    return rt_fail(c->st, INFR_CANCELLED, "cancelled");
}

static int read_condition(const struct call *c, uint32_t buf, bool *out)
{
    unsigned char v = 0;
    if (c->shape->dim[c->e->bufs[buf].bytes] < 1)
        return rt_fail(c->st, INFR_BAD_INPUT, "the condition of an If has no element at these shapes");
    cu_result r = c->cu->cuMemcpyDtoHAsync_v2(&v, buf_address(c, buf), 1, c->cs->stream);
    if (!r) r = c->cu->cuStreamSynchronize(c->cs->stream);
    *out = v != 0;
    return r ? cu_fail(c->cu, r, "reading a condition from the GPU", c->st) : INFR_OK;
}

/* The values come here and go back. */
static int run_probe(const struct call *c, const struct infr_step *s)
{
    const struct rt_probe *p = c->s->probe;
    uint64_t bytes = (uint64_t)c->shape->dim[c->e->bufs[s->a].bytes];
    float *values = malloc(bytes + 1);
    if (!values) return rt_fail_memory(c->st, "the values of a probe", bytes);
    cu_result r = c->cu->cuMemcpyDtoHAsync_v2(values, buf_address(c, s->a), bytes, c->cs->stream);
    if (!r) r = c->cu->cuStreamSynchronize(c->cs->stream);
    if (!r) p->seen(p->ctx, s, values, bytes / sizeof *values);
    if (!r) r = c->cu->cuMemcpyHtoDAsync_v2(buf_address(c, s->a), values, bytes, c->cs->stream);
    if (!r) r = c->cu->cuStreamSynchronize(c->cs->stream);
    free(values);
    return r ? cu_fail(c->cu, r, "looking at a value on the GPU", c->st) : INFR_OK;
}

static int run_block(const struct call *c, uint32_t block)
{
    const struct infr_engine *e = c->e;
    int code = INFR_OK;
    for (uint32_t i = 0; !code && i < e->blocks[block].count; i++) {
        const struct infr_step *s = &e->steps[e->blocks[block].first + i];
        if (atomic_load_explicit(&c->s->cancel, memory_order_relaxed)) return cancelled(c);
        if (s->kind == INFR_STEP_LAUNCH) {
            code = launch(c, s->a);
        } else if (s->kind == INFR_STEP_PROBE) {
            if (c->s->probe) code = run_probe(c, s);
        } else if (s->kind == INFR_STEP_CHECK) {
            const struct infr_check *k = &e->checks[s->a];
            int64_t a = c->shape->dim[k->a], b = c->shape->dim[k->b];
            if (!(k->is_le ? a <= b : a == b)) code = rt_check(e, c->shape, s->a, c->st);
        } else {
            bool yes = false;
            code = read_condition(c, s->a, &yes);
            if (!code) code = run_block(c, yes ? s->b : s->c);
        }
    }
    return code;
}

/* The walk, or its recording where these sizes came before. */
static int run_all(const struct call *c)
{
    struct cuda_graph *g;
    uint32_t entry = c->e->h.entry_block;
    if (!cuda_graphs_fit(c->s)) return run_block(c, entry);
    int code = cuda_graph_of(c->cs, c->s, &g, c->st);
    if (code) return code;
    if (g->calls < 2) return run_block(c, entry);
    if (atomic_load_explicit(&c->s->cancel, memory_order_relaxed)) return cancelled(c);
    if (!g->fresh) {
        if ((code = cuda_graph_begin(c->cu, c->cs, c->st))) return code;
        code = run_block(c, entry);
        int end = cuda_graph_end(c->cu, c->cs, g, !code, c->st);
        if (code || end) return code ? code : end;
    }
    cu_result r = c->cu->cuGraphLaunch(g->exec, c->cs->stream);
    return r ? cu_fail(c->cu, r, "launching a graph of kernels", c->st) : INFR_OK;
}

/* ---- copies ---- */

static int copy_in(const struct call *c)
{
    for (uint32_t i = 0; i < c->e->n_inputs; i++) {
        uint64_t bytes = is_kept(c, i) ? 0 : io_bytes(c, i);
        cu_result r = bytes ? c->cu->cuMemcpyHtoDAsync_v2(c->cs->memory + c->cs->io_offset[i], c->s->io[i], bytes, c->cs->stream) : 0;
        if (r) return cu_fail(c->cu, r, "sending an input to the GPU", c->st);
    }
    return INFR_OK;
}

static int copy_out(const struct call *c)
{
    cu_result r = 0;
    for (uint32_t i = 0; !r && i < c->e->n_inputs; i++)
        if (c->e->inputs[i].optional == INFR_IO_STATE && !is_kept(c, i) && io_bytes(c, i))
            r = c->cu->cuMemcpyDtoHAsync_v2(c->s->io[i], c->cs->memory + c->cs->io_offset[i], io_bytes(c, i), c->cs->stream);
    for (uint32_t i = 0; !r && i < c->e->n_outputs; i++)
        if (c->s->results[i].bytes)
            r = c->cu->cuMemcpyDtoHAsync_v2(c->s->results[i].data, buf_address(c, c->e->outputs[i].buf), c->s->results[i].bytes, c->cs->stream);
    if (!r) r = c->cu->cuStreamSynchronize(c->cs->stream);
    return r ? cu_fail(c->cu, r, "a kernel, or fetching an output from the GPU,", c->st) : INFR_OK;
}

int cuda_run(struct rt_device *base, struct infr_session *s, struct rt_shape *shape, struct infr_status *st)
{
    struct cuda_device *d = (struct cuda_device *)base;
    struct call c = {.d = d, .cu = &d->cu, .s = s, .e = s->e, .cs = s->device_state, .shape = shape, .st = st};
    uint64_t start = s->profile ? now_ns() : 0;
    int code = INFR_OK;
    cu_result r = d->cu.cuCtxSetCurrent(d->context);
    if (r) return cu_fail(c.cu, r, "using the GPU", st);
    if (!c.cs && (code = session_start(&c))) {
        cuda_session_destroy(base, s);
        return code;
    }
    if (!code) code = place_state(&c);
    if (!code) code = place_memory(&c);
    for (uint32_t i = 0; !code && i < c.e->n_args; i++) {
        const struct infr_arg *a = &c.e->args[i];
        c.cs->addresses[i] = buf_address(&c, a->buf) + (a->offset == INFR_NONE ? 0 : (uint64_t)shape->dim[a->offset]);
    }
    if (!code) code = copy_in(&c);
    if (!code) code = run_all(&c);
    if (!code) code = copy_out(&c);
    if (s->profile) s->profile->total_ns += now_ns() - start;
    return code;
}
