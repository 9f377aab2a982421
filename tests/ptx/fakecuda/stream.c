// SPDX-License-Identifier: Apache-2.0
/* Streams, events, copies, graphs. */
#include "tests/ptx/fakecuda/fake.h"

#include <stdlib.h>
#include <string.h>

#include "tests/ptx/fakecuda/api.h"

struct fake_stream *fake_stream_of(CUstream s)
{
    /* 1 and 2 are the driver's names of the legacy and the per-thread stream */
    return !s || (uintptr_t)s <= 2 ? &fake.null_stream : s;
}

void fake_node_free(struct fake_node *n)
{
    free(n->params);
    free(n->staged);
    free(n);
}

static struct fake_node *clone(const struct fake_node *n)
{
    struct fake_node *c = malloc(sizeof *c);
    if (!c) return NULL;
    *c = *n;
    c->next = NULL;
    c->params = n->param_bytes ? malloc(n->param_bytes) : NULL;
    c->staged = n->staged ? malloc(n->bytes) : NULL;
    if ((n->param_bytes && !c->params) || (n->staged && !c->staged)) {
        fake_node_free(c);
        return NULL;
    }
    if (c->params) memcpy(c->params, n->params, n->param_bytes);
    if (c->staged) memcpy(c->staged, n->staged, n->bytes);
    return c;
}

/* The node's buffers stay the caller's. */
CUresult fake_push(CUstream stream, const struct fake_node *n)
{
    struct fake_stream *s = fake_stream_of(stream);
    struct fake_node *c = clone(n);
    if (!c) return CU_OUT_OF_MEMORY;
    struct fake_node ***end = s->capture ? &s->capture->end : &s->end;
    **end = c;
    *end = &c->next;
    if (s->capture) s->capture->n++;
    return CU_OK;
}

static CUresult run_launch(struct fake_node *n)
{
    const void *params[512];
    unsigned count = ptx_kernel_info(n->function->kernel)->n_params;
    if (fake_fails("launch", ++fake.n_launches)) return fake.sticky = CU_LAUNCH_FAILED;
    for (unsigned i = 0; i < count && i < 512; i++) {
        unsigned offset, bytes;
        ptx_kernel_param(n->function->kernel, i, &offset, &bytes);
        params[i] = n->params + offset;
    }
    struct ptx_launch l = n->launch;
    l.params = params;
    bool ok = fake.trace ? fake_launch_traced(n->function, &l, n->params) : ptx_launch(fake.m, n->function->kernel, &l);
    return ok ? CU_OK : fake_fault(true);
}

static CUresult run_event_wait(struct fake_node *n)
{
    struct fake_event *e = n->event;
    while (e->done < n->ticket && e->stream && e->stream->first && !e->stream->running) {
        CUresult r = fake_run_stream(e->stream);
        if (r) return r;
    }
    return CU_OK;
}

static CUresult run_node(struct fake_node *n)
{
    bool ok = true;
    switch (n->kind) {
    case FAKE_LAUNCH: return run_launch(n);
    case FAKE_IN: ok = ptx_mem_write(fake.m, n->dst, n->staged ? n->staged : n->host_src, n->bytes); break;
    case FAKE_OUT: ok = ptx_mem_read(fake.m, n->host_dst, n->src, n->bytes); break;
    case FAKE_COPY: ok = ptx_mem_copy(fake.m, n->dst, n->src, n->bytes); break;
    case FAKE_FILL: ok = ptx_mem_fill(fake.m, n->dst, n->pattern, n->pattern_bytes, n->count); break;
    case FAKE_FREE: ok = ptx_mem_free(fake.m, n->dst); break;
    case FAKE_RECORD: n->event->done = n->ticket; break;
    case FAKE_WAIT: return run_event_wait(n);
    case FAKE_HOST:
        pthread_mutex_unlock(&fake.lock);
        n->host_fn(n->host_arg);
        pthread_mutex_lock(&fake.lock);
        break;
    }
    return ok ? CU_OK : fake_fault(true);
}

CUresult fake_run_stream(struct fake_stream *s)
{
    CUresult r = fake.sticky;
    if (s->running) return CU_OK;
    s->running = true;
    while (s->first && !r) {
        struct fake_node *n = s->first;
        r = run_node(n);
        s->first = n->next;
        if (!s->first) s->end = &s->first;
        fake_node_free(n);
    }
    s->running = false;
    return r;
}

CUresult fake_run_all(void)
{
    CUresult r = fake_run_stream(&fake.null_stream);
    for (struct fake_stream *s = fake.streams; s && !r; s = s->next) r = fake_run_stream(s);
    return r;
}

CUresult fake_wait(void)
{
    if (fake_fails("lost", ++fake.n_waits)) fake.sticky = CU_DEVICE_UNAVAILABLE;
    return fake.sticky;
}

/* ---- streams ---- */

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    CUresult r = fake_enter();
    (void)flags;
    (void)priority;
    if (r) return fake_leave(r);
    struct fake_stream *s = calloc(1, sizeof *s);
    if (!s) return fake_leave(CU_OUT_OF_MEMORY);
    s->end = &s->first;
    s->next = fake.streams;
    fake.streams = s;
    *out = s;
    return fake_leave(CU_OK);
}
CUresult cuStreamCreate(CUstream *out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

CUresult cuStreamDestroy_v2(CUstream stream)
{
    CUresult r = fake_enter();
    for (struct fake_stream **p = &fake.streams; *p; p = &(*p)->next) {
        struct fake_stream *s = *p;
        if (s != stream) continue;
        fake_run_stream(s);
        while (s->first) {
            struct fake_node *n = s->first;
            s->first = n->next;
            fake_node_free(n);
        }
        *p = s->next;
        free(s);
        return fake_leave(r);
    }
    return fake_leave(CU_INVALID_HANDLE);
}

CUresult cuStreamSynchronize(CUstream s)
{
    CUresult r = fake_enter();
    if (!r && fake_stream_of(s)->capture) r = CU_STREAM_CAPTURE_INVALIDATED;
    if (!r) r = fake_wait();
    return fake_leave(r ? r : fake_run_stream(fake_stream_of(s)));
}

CUresult cuStreamQuery(CUstream stream)
{
    CUresult r = fake_enter();
    struct fake_stream *s = fake_stream_of(stream);
    if (r || !s->first) return fake_leave(r);
    r = fake_run_stream(s); /* the next question is answered with yes */
    return fake_leave(r ? r : CU_NOT_READY);
}

CUresult cuLaunchHostFunc(CUstream s, CUhostFn fn, void *arg)
{
    CUresult r = fake_enter();
    return fake_leave(r ? r : fake_push(s, &(struct fake_node){.kind = FAKE_HOST, .host_fn = fn, .host_arg = arg}));
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    CUresult r = fake_enter();
    (void)flags;
    if (r) return fake_leave(r);
    *out = calloc(1, sizeof **out);
    return fake_leave(*out ? CU_OK : CU_OUT_OF_MEMORY);
}

CUresult cuEventRecord(CUevent e, CUstream stream)
{
    CUresult r = fake_enter();
    struct fake_stream *s = fake_stream_of(stream);
    if (r) return fake_leave(r);
    e->stream = s;
    e->capture = s->capture;
    e->ticket = ++fake.ticket;
    if (s->capture) return fake_leave(CU_OK); /* a graph is in order already */
    return fake_leave(fake_push(stream, &(struct fake_node){.kind = FAKE_RECORD, .event = e, .ticket = e->ticket}));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent e, unsigned flags)
{
    CUresult r = fake_enter();
    struct fake_stream *s = fake_stream_of(stream);
    (void)flags;
    if (r) return fake_leave(r);
    if (e->capture) { /* the stream joins the capture */
        s->capture = e->capture;
        return fake_leave(CU_OK);
    }
    return fake_leave(fake_push(stream, &(struct fake_node){.kind = FAKE_WAIT, .event = e, .ticket = e->ticket}));
}

CUresult cuEventSynchronize(CUevent e)
{
    CUresult r = fake_enter();
    if (!r) r = fake_wait();
    if (!r && e->stream && e->done < e->ticket) r = fake_run_stream(e->stream);
    return fake_leave(r);
}

CUresult cuEventQuery(CUevent e)
{
    CUresult r = fake_enter();
    if (r || e->done >= e->ticket) return fake_leave(r);
    if (e->stream) r = fake_run_stream(e->stream);
    return fake_leave(r ? r : CU_NOT_READY);
}

/* No time passes here: what is measured is not real. */
CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
    CUresult r = fake_enter();
    *ms = 0.001f;
    return fake_leave(r ? r : a->done < a->ticket || b->done < b->ticket ? CU_NOT_READY : CU_OK);
}
CUresult cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b) { return cuEventElapsedTime(ms, a, b); }

CUresult cuEventDestroy_v2(CUevent e)
{
    CUresult r = fake_enter();
    if (!r && e->stream && e->done < e->ticket && !e->capture) fake_run_stream(e->stream);
    free(e);
    return fake_leave(r);
}

/* ---- copies ---- */

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream s)
{
    CUresult r = fake_enter();
    struct fake_node n = {.kind = FAKE_IN, .dst = dst, .host_src = src, .bytes = bytes};
    /* Pageable memory is staged before the call returns; a capture refers to it. */
    if (!r && bytes && !fake_is_pinned(src, bytes) && !fake_stream_of(s)->capture) n.staged = (void *)(uintptr_t)src;
    return fake_leave(r ? r : fake_push(s, &n));
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
    CUresult r = cuMemcpyHtoDAsync_v2(dst, src, bytes, NULL);
    return r ? r : cuStreamSynchronize(NULL);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    CUresult r = fake_enter();
    struct fake_stream *s = fake_stream_of(stream);
    if (!r) r = fake_push(stream, &(struct fake_node){.kind = FAKE_OUT, .host_dst = dst, .src = src, .bytes = bytes});
    if (!r && !s->capture && !fake_is_pinned(dst, bytes)) r = fake_run_stream(s);
    return fake_leave(r);
}
CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
    CUresult r = cuMemcpyDtoHAsync_v2(dst, src, bytes, NULL);
    return r ? r : cuStreamSynchronize(NULL);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream s)
{
    CUresult r = fake_enter();
    return fake_leave(r ? r : fake_push(s, &(struct fake_node){.kind = FAKE_COPY, .dst = dst, .src = src, .bytes = bytes}));
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t bytes, CUstream s)
{
    (void)dc;
    (void)sc;
    return cuMemcpyDtoDAsync_v2(dst, src, bytes, s);
}

static CUresult fill(CUdeviceptr dst, uint64_t v, unsigned bytes, size_t count, CUstream s)
{
    CUresult r = fake_enter();
    struct fake_node n = {.kind = FAKE_FILL, .dst = dst, .pattern = v, .pattern_bytes = bytes, .count = count};
    if (!r && dst % bytes) r = CU_INVALID_VALUE;
    return fake_leave(r ? r : fake_push(s, &n));
}
CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char v, size_t n, CUstream s) { return fill(dst, v, 1, n, s); }
CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short v, size_t n, CUstream s) { return fill(dst, v, 2, n, s); }
CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned v, size_t n, CUstream s) { return fill(dst, v, 4, n, s); }

/* ---- graphs: nodes in the order in which they were captured ---- */

static struct fake_graph *graph_create(void)
{
    struct fake_graph *g = calloc(1, sizeof *g);
    if (g) g->end = &g->first;
    return g;
}

static void graph_free(struct fake_graph *g)
{
    while (g && g->first) {
        struct fake_node *n = g->first;
        g->first = n->next;
        fake_node_free(n);
    }
    free(g);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    CUresult r = fake_enter();
    struct fake_stream *s = fake_stream_of(stream);
    (void)mode;
    if (!r && (s->capture || s == &fake.null_stream)) r = CU_INVALID_VALUE;
    if (!r && !(s->capture = graph_create())) r = CU_OUT_OF_MEMORY;
    return fake_leave(r);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    CUresult r = fake_enter();
    struct fake_graph *g = fake_stream_of(stream)->capture;
    if (!r && !g) r = CU_INVALID_VALUE;
    if (r) return fake_leave(r);
    fake.null_stream.capture = NULL;
    for (struct fake_stream *s = fake.streams; s; s = s->next)
        if (s->capture == g) s->capture = NULL;
    *out = g;
    return fake_leave(CU_OK);
}

CUresult cuStreamIsCapturing(CUstream s, int *status)
{
    CUresult r = fake_enter();
    *status = fake_stream_of(s)->capture != NULL;
    return fake_leave(r);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
    CUresult r = fake_enter();
    (void)flags;
    if (r) return fake_leave(r);
    struct fake_graph *e = graph_create();
    for (struct fake_node *n = g->first; e && n; n = n->next) {
        struct fake_node *c = clone(n);
        if (!c) {
            graph_free(e);
            return fake_leave(CU_OUT_OF_MEMORY);
        }
        *e->end = c;
        e->end = &c->next;
        e->n++;
    }
    *out = e;
    fake.n_made++;
    return fake_leave(e ? CU_OK : CU_OUT_OF_MEMORY);
}

CUresult cuGraphLaunch(CUgraphExec e, CUstream s)
{
    CUresult r = fake_enter();
    for (struct fake_node *n = e->first; n && !r; n = n->next) r = fake_push(s, n);
    fake.n_graphs++;
    return fake_leave(r);
}
CUresult cuGraphUpload(CUgraphExec e, CUstream s)
{
    (void)s;
    return e ? CU_OK : CU_INVALID_VALUE;
}
CUresult cuGraphExecDestroy(CUgraphExec e)
{
    CUresult r = fake_enter();
    graph_free(e);
    return fake_leave(r);
}
CUresult cuGraphDestroy(CUgraph g) { return cuGraphExecDestroy(g); }

CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
    CUresult r = fake_enter();
    size_t i = 0;
    for (struct fake_node *x = g->first; x; x = x->next, i++)
        if (nodes && i < *n) nodes[i] = x;
    if (!nodes || *n > i) *n = i;
    return fake_leave(r);
}

CUresult cuGraphNodeGetType(CUgraphNode n, int *type)
{
    *type = n->kind == FAKE_LAUNCH ? 0 : n->kind == FAKE_FILL ? 2 : n->kind == FAKE_HOST ? 3 : 1;
    return CU_OK;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS *p)
{
    if (n->kind != FAKE_LAUNCH) return CU_INVALID_VALUE;
    const struct ptx_launch *l = &n->launch;
    *p = (CUDA_KERNEL_NODE_PARAMS){.func = n->function, .gridDimX = l->grid.x, .gridDimY = l->grid.y, .gridDimZ = l->grid.z,
                                   .blockDimX = l->block.x, .blockDimY = l->block.y, .blockDimZ = l->block.z,
                                   .sharedMemBytes = l->dynamic_shared_bytes};
    return CU_OK;
}

/* A node of the graph names the one at the same place of the executable copy. */
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec e, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
    CUresult r = fake_enter();
    struct fake_node *mine;
    if (!r) {
        /* Graph nodes are numbered by their distance from the end, which a copy shares. */
        size_t left = 0;
        for (struct fake_node *x = node; x; x = x->next) left++;
        mine = e->first;
        for (size_t i = e->n; i > left && mine; i--) mine = mine->next;
        r = mine && mine->kind == FAKE_LAUNCH ? fake_set_launch(mine, p) : CU_INVALID_VALUE;
    }
    return fake_leave(r);
}

/* The same nodes with other parameters. */
CUresult cuGraphExecUpdate_v2(CUgraphExec e, CUgraph g, void *info)
{
    CUresult r = fake_enter();
    struct fake_node *a = e->first, *b = g->first;
    (void)info;
    for (; a && b && !r; a = a->next, b = b->next)
        if (a->kind != b->kind || a->function != b->function) r = CU_GRAPH_EXEC_UPDATE_FAILURE;
    if (!r && (a || b)) r = CU_GRAPH_EXEC_UPDATE_FAILURE;
    for (a = e->first, b = g->first; a && !r; a = a->next, b = b->next) {
        struct fake_node *c = clone(b), *next = a->next;
        if (!c) return fake_leave(CU_OUT_OF_MEMORY);
        free(a->params);
        free(a->staged);
        *a = *c;
        a->next = next;
        free(c);
    }
    return fake_leave(r);
}
