// SPDX-License-Identifier: Apache-2.0
/*
 * CUDA graphs: the launches of one set of symbol values, recorded when such a set comes for the second time and replayed from then
 * on with one call. A step of a language model with so many sequences is such a set (its page table is as wide as the context), and
 * so each size of batch gets a graph of its own; prompts of a length that comes once cost nothing.
 *
 * Addresses and sizes are in the recording. Where the session's memory has moved since, the graph is recorded again and its
 * executable form brought up to date, which is cheaper than making one. The least recently used gives way.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/cuda.h"
#include "runtime/status.h"

enum { CAPTURE_RELAXED = 2 };

bool cuda_graphs_fit(const struct infr_session *s)
{
    const struct infr_engine *e = s->e;
    const struct infr_step *steps = e->steps + e->blocks[e->h.entry_block].first;
    for (uint32_t i = 0; i < e->blocks[e->h.entry_block].count; i++)
        if (steps[i].kind == INFR_STEP_IF) return false; /* asks the device midway */
    return !s->profile && !s->probe && e->n_launches > 1;
}

void cuda_graphs_destroy(const struct cu_driver *cu, struct cuda_session *cs)
{
    for (int i = 0; i < CUDA_GRAPHS; i++) {
        if (cs->graphs[i].exec) cu->cuGraphExecDestroy(cs->graphs[i].exec);
        free(cs->graphs[i].sym);
        cs->graphs[i] = (struct cuda_graph){0};
    }
}

static int find(struct cuda_session *cs, const struct infr_session *s, struct cuda_graph **out, struct infr_status *st)
{
    size_t bytes = ((size_t)s->e->n_symbols + 1) * sizeof *s->sym;
    struct cuda_graph *oldest = &cs->graphs[0];
    for (int i = 0; i < CUDA_GRAPHS; i++) {
        struct cuda_graph *g = &cs->graphs[i];
        if (g->sym && !memcmp(g->sym, s->sym, bytes - sizeof *s->sym)) {
            *out = g;
            return INFR_OK;
        }
        if (g->used < oldest->used) oldest = g;
    }
    if (!oldest->sym && !(oldest->sym = malloc(bytes))) return rt_fail_memory(st, "a graph", bytes);
    memcpy(oldest->sym, s->sym, bytes - sizeof *s->sym);
    oldest->calls = 0;
    oldest->fresh = false;
    *out = oldest;
    return INFR_OK;
}

int cuda_graph_of(struct cuda_session *cs, const struct infr_session *s, struct cuda_graph **out, struct infr_status *st)
{
    int code = find(cs, s, out, st);
    if (code) return code;
    struct cuda_graph *g = *out;
    g->used = ++cs->graph_clock;
    if (g->calls < 2) g->calls++;
    if (g->memory != cs->memory || g->state != cs->state) g->fresh = false;
    return INFR_OK;
}

int cuda_graph_begin(const struct cu_driver *cu, struct cuda_session *cs, struct infr_status *st)
{
    cu_result r = cu->cuStreamBeginCapture_v2(cs->stream, CAPTURE_RELAXED);
    return r ? cu_fail(cu, r, "recording a graph of kernels", st) : INFR_OK;
}

/* recorded: the walk went well; the recording is ended in any case. */
int cuda_graph_end(const struct cu_driver *cu, struct cuda_session *cs, struct cuda_graph *g, bool recorded, struct infr_status *st)
{
    cu_graph graph = NULL;
    struct cu_update_result { char unused[64]; } info; /* 24 bytes in today's driver */
    cu_result r = cu->cuStreamEndCapture(cs->stream, &graph);
    if (!recorded) {
        if (graph) cu->cuGraphDestroy(graph);
        return INFR_OK;
    }
    if (!r && g->exec && cu->cuGraphExecUpdate_v2(g->exec, graph, &info)) { /* other launches than before */
        cu->cuGraphExecDestroy(g->exec);
        g->exec = NULL;
    }
    if (!r && !g->exec && (r = cu->cuGraphInstantiateWithFlags(&g->exec, graph, 0))) g->exec = NULL;
    if (graph) cu->cuGraphDestroy(graph);
    g->memory = cs->memory, g->state = cs->state, g->fresh = !r;
    return r ? cu_fail(cu, r, "recording a graph of kernels", st) : INFR_OK;
}
