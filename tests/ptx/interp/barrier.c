// SPDX-License-Identifier: Apache-2.0
/* Barriers of a CTA and of a cluster. */
#include "tests/ptx/interp/lanes.h"

static uint64_t reduced(const struct ptx_barrier *b, unsigned sub)
{
    if (sub == PTX_SUB_POPC) return b->red_count;
    return sub == PTX_SUB_AND ? b->red_count == b->red_total : b->red_count != 0;
}

static void complete(struct ptx_cta *cta, struct ptx_barrier *b)
{
    cta->m->counters.barriers++;
    cta->m->progress++;
    for (int i = 0; i < cta->n_warps; i++) {
        struct ptx_warp *w = &cta->warps[i];
        if (!(b->waiting >> i & 1)) continue;
        ptx_acquire(w, b->seen);
        w->state = PTX_WARP_RUN;
        if (w->at->ops[0].kind == PTX_OPERAND_REG && w->at->sub != PTX_SUB_NONE)
            for (int l = 0; l < 32; l++)
                if (w->live >> l & 1) ptx_set(w, w->at->ops[0].reg, l, reduced(b, w->at->sub));
    }
    struct ptx_seen *seen = b->seen;
    memset(seen, 0, cta->m->n_agents * sizeof *seen);
    *b = (struct ptx_barrier){.seen = seen};
}

void ptx_barriers_recheck(struct ptx_cta *cta)
{
    for (int i = 0; i < PTX_N_BARRIERS; i++) {
        struct ptx_barrier *b = &cta->barriers[i];
        if (!b->active) continue;
        unsigned expected = b->expected ? b->expected : (unsigned)cta->live_warps * 32;
        if (b->arrived >= expected) complete(cta, b);
    }
}

/* The value of a barrier's operand, the same in all lanes. */
static bool uniform(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_operand *o, uint32_t *out)
{
    if (!ptx_need_defined(w, in, o->reg, w->live, "a barrier's operand")) return false;
    *out = (uint32_t)ptx_get(w, o->reg, ptx_lowest(w->live));
    for (int l = 0; l < 32; l++)
        if (w->live >> l & 1 && (uint32_t)ptx_get(w, o->reg, l) != *out) {
            ptx_fault_warp(w, in, l, PTX_FAULT_DIVERGENCE, "lanes of a warp name different barriers or counts");
            return false;
        }
    return true;
}

/* A warp comes to barrier operand `at` (with the thread count after it, when there is one). */
static struct ptx_barrier *arrive(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask, int at, bool has_count,
                                  bool wait)
{
    struct ptx_cta *cta = w->cta;
    uint32_t id, threads = 0;
    if (!ptx_converged(w, in, mask, w->live)) return NULL;
    if (!uniform(w, in, &in->ops[at], &id)) return NULL;
    if (has_count && !uniform(w, in, &in->ops[at + 1], &threads)) return NULL;
    if (id >= PTX_N_BARRIERS || threads % 32 || (has_count && !threads) || threads > (unsigned)cta->n_warps * 32) {
        ptx_fault_warp(w, in, -1, PTX_FAULT_DIVERGENCE, "barrier %u for %u threads in a CTA of %d warps", id, threads,
                       cta->n_warps);
        return NULL;
    }
    struct ptx_barrier *b = &cta->barriers[id];
    if (b->active && b->expected != threads) {
        ptx_fault_warp(w, in, -1, PTX_FAULT_DIVERGENCE, "barrier %u expects %u threads for one warp and %u for another",
                       id, b->expected, threads);
        return NULL;
    }
    b->active = true;
    b->expected = threads;
    b->arrived += 32;
    if (threads && b->arrived > threads) {
        ptx_fault_warp(w, in, -1, PTX_FAULT_DIVERGENCE, "more threads arrive at barrier %u than the %u it is for", id,
                       threads);
        return NULL;
    }
    ptx_warp_barrier(w, w->live);
    ptx_release(w, w->live, b->seen);
    if (wait) {
        b->waiting |= 1u << w->id;
        w->state = PTX_WARP_BARRIER;
        w->status = PTX_W_BLOCK;
    }
    w->m->progress++;
    return b;
}

void ptx_x_bar_sync(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (arrive(w, in, mask, 0, in->n_ops > 1, true)) ptx_barriers_recheck(w->cta);
}

void ptx_x_bar_arrive(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (arrive(w, in, mask, 0, true, false)) ptx_barriers_recheck(w->cta);
}

/* bar.red d, a [, count], p */
void ptx_x_bar_red(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    const struct ptx_operand *p = &in->ops[in->n_ops - 1];
    if (p->reg < 0 || !w->k->regs[p->reg].predicate) {
        ptx_unsupported(w, in);
        return;
    }
    uint32_t bits = ptx_pred_bits(w, p) & w->live;
    struct ptx_barrier *b = arrive(w, in, mask, 1, in->n_ops > 3, true);
    if (!b || !ptx_need_defined(w, in, p->reg, w->live, "a barrier's predicate")) return;
    b->red_count += (unsigned)ptx_popcount(bits);
    b->red_total += (unsigned)ptx_popcount(w->live);
    ptx_barriers_recheck(w->cta);
}

/* ---- clusters ---- */

static unsigned cluster_live_warps(const struct ptx_cluster *c)
{
    unsigned n = 0;
    for (unsigned i = 0; i < c->n_ctas; i++) n += (unsigned)c->ctas[i].live_warps;
    return n;
}

void ptx_cluster_recheck(struct ptx_cluster *c)
{
    if (!c->arrived || c->arrived < cluster_live_warps(c)) return;
    c->arrived = 0;
    c->phase++;
    c->ctas[0].m->progress++;
    for (unsigned i = 0; i < c->n_ctas; i++)
        for (int j = 0; j < c->ctas[i].n_warps; j++) {
            struct ptx_warp *w = &c->ctas[i].warps[j];
            if (w->state == PTX_WARP_CLUSTER) {
                ptx_acquire(w, c->seen);
                w->state = PTX_WARP_RUN;
                w->cluster_arrived = false;
            }
        }
}

void ptx_x_cluster_arrive(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    struct ptx_cluster *c = w->cta->cluster;
    if (!ptx_converged(w, in, mask, w->live)) return;
    if (w->cluster_arrived) {
        ptx_fault_warp(w, in, -1, PTX_FAULT_DIVERGENCE, "arrives at the cluster's barrier twice without a wait");
        return;
    }
    ptx_warp_barrier(w, w->live);
    if (!(in->flags & PTX_F_RELAXED)) ptx_release(w, w->live, c->seen);
    w->cluster_arrived = true;
    w->cluster_phase = c->phase;
    c->arrived++;
    w->m->progress++;
    ptx_cluster_recheck(c);
}

void ptx_x_cluster_wait(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    struct ptx_cluster *c = w->cta->cluster;
    if (!ptx_converged(w, in, mask, w->live)) return;
    if (!w->cluster_arrived) {
        ptx_fault_warp(w, in, -1, PTX_FAULT_DIVERGENCE, "waits at the cluster's barrier without having arrived");
        return;
    }
    if (c->phase != w->cluster_phase) {
        w->cluster_arrived = false;
        ptx_acquire(w, c->seen);
        return;
    }
    w->state = PTX_WARP_CLUSTER;
    w->status = PTX_W_BLOCK;
}
