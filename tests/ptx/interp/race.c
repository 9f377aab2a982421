// SPDX-License-Identifier: Apache-2.0
/*
 * Who may have seen what. Every warp (and the engine of bulk copies) is an agent with a clock. An access
 * is ordered before a later one of another agent when synchronisation carried the knowledge there:
 * barriers join what their warps know, mbarriers pass it from arrivers to waiters.
 *
 * A release by a few lanes covers the other lanes' accesses only up to the warp's last barrier: an
 * elected lane that signals for a warp needs a __syncwarp first. A waiter's knowledge counts for its whole
 * warp. Cells of shared memory are 4 bytes and keep the last writer and the last two reading agents.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/interp/machine.h"

unsigned ptx_agent(const struct ptx_warp *w) { return w->cta->rank * (unsigned)w->cta->n_warps + (unsigned)w->id; }

static uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

void ptx_seen_join(struct ptx_seen *into, const struct ptx_seen *from, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        into[i].full = max_u32(into[i].full, from[i].full);
        into[i].mask |= from[i].mask;
        into[i].top = max_u32(into[i].top, from[i].top);
        if (into[i].top <= into[i].full) into[i].mask = 0;
    }
}

void ptx_warp_barrier(struct ptx_warp *w, uint32_t lanes)
{
    if ((lanes & w->live) == w->live) {
        w->full = w->clock;
    } else {
        bool joins = w->part_clock > w->full && w->part_mask & lanes;
        w->part_mask = joins ? w->part_mask | lanes : lanes;
        w->part_clock = w->clock;
    }
    w->clock++;
}

void ptx_release(struct ptx_warp *w, uint32_t lanes, struct ptx_seen *into)
{
    unsigned me = ptx_agent(w);
    struct ptx_seen own = {.full = w->full, .top = w->clock, .mask = lanes};
    if (w->part_clock > w->full && w->part_mask & lanes) own.mask |= w->part_mask;
    if ((lanes & w->live) == w->live) own.full = w->clock;
    for (unsigned i = 0; i < w->m->n_agents; i++) ptx_seen_join(&into[i], i == me ? &own : &w->seen[i], 1);
    w->clock++;
}

void ptx_acquire(struct ptx_warp *w, const struct ptx_seen *from)
{
    ptx_seen_join(w->seen, from, w->m->n_agents);
    w->proxy_fresh = 0;
}

/* Did lane of w learn of this access? */
static bool ordered(const struct ptx_warp *w, int lane, unsigned agent, unsigned other_lane, uint32_t clock)
{
    if (agent == ptx_agent(w)) {
        if ((int)other_lane == lane || clock <= w->full) return true;
        return clock <= w->part_clock && w->part_mask >> lane & 1 &&
               (other_lane == PTX_SEVERAL_LANES || w->part_mask >> other_lane & 1);
    }
    const struct ptx_seen *s = &w->seen[agent];
    if (clock <= s->full) return true;
    return clock <= s->top && other_lane != PTX_SEVERAL_LANES && s->mask >> other_lane & 1;
}

static bool report(struct ptx_warp *w, const struct ptx_insn *in, int lane, const struct ptx_cta *cta,
                   uint32_t offset, bool writes, const struct ptx_access *a, bool wrote)
{
    unsigned agent = a->agent - 1u, bulk = w->m->bulk_agent;
    unsigned n = (unsigned)cta->n_warps;
    char who[64];
    if (agent > bulk) snprintf(who, sizeof who, "a wgmma of warpgroup %u", (agent - bulk - 1) % ((n + 3) / 4));
    else if (agent == bulk) snprintf(who, sizeof who, "a bulk copy");
    else if (a->lane == PTX_SEVERAL_LANES) snprintf(who, sizeof who, "warp %u", agent % n);
    else snprintf(who, sizeof who, "warp %u lane %u", agent % n, a->lane);
    if (agent < bulk && agent / n != w->cta->rank) {
        size_t used = strlen(who);
        snprintf(who + used, sizeof who - used, " of CTA rank %u", agent / n);
    }
    ptx_fault_warp(w, in, lane, PTX_FAULT_RACE,
                   "race on shared memory: %s byte %u, which %s %s at PTX line %d with nothing that orders the two",
                   writes ? "writes" : "reads", offset, who, wrote ? "wrote" : "read", a->line);
    return false;
}

/* Bytes of cell i (bit 0 the lowest) that an access to [offset, offset + bytes) touches. */
static unsigned cell_bytes(uint32_t cell, uint32_t offset, uint32_t bytes)
{
    uint32_t begin = cell * 4, end = begin + 4;
    uint32_t a = offset > begin ? offset : begin, b = offset + bytes < end ? offset + bytes : end;
    return ((1u << (b - a)) - 1) << (a - begin);
}

/* Accesses of other proxies need a fence between: the writer's after its write, or one of the lane that
 * issues the asynchronous operation after it learned of the write. */
static bool proxy_fenced(struct ptx_warp *w, int lane, const struct ptx_access *write)
{
    unsigned agent = write->agent - 1u, n = (unsigned)w->cta->n_warps;
    if (agent >= w->m->bulk_agent || w->proxy_fresh >> lane & 1) return true;
    const struct ptx_warp *writer = &w->cta->cluster->ctas[agent / n].warps[agent % n];
    if (write->lane != PTX_SEVERAL_LANES) return writer->proxy_clock[write->lane] >= write->clock;
    for (int l = 0; l < 32; l++)
        if (writer->initial >> l & 1 && writer->proxy_clock[l] < write->clock) return false;
    return true;
}

static bool check_write_before(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta,
                               uint32_t offset, const struct ptx_cell *c, unsigned touched, unsigned how, bool writes)
{
    const struct ptx_access *a = &c->write;
    if (!a->agent || !(a->bytes & touched)) return true;
    if (a->bytes & how & PTX_ATOMIC) return true;
    if (!ordered(w, lane, a->agent - 1u, a->lane, a->clock)) return report(w, in, lane, cta, offset, writes, a, true);
    if (how & PTX_ASYNC_PROXY && !writes && !(a->bytes & PTX_ASYNC_PROXY) && !proxy_fenced(w, lane, a)) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_RACE,
                       "byte %u of shared memory, written at PTX line %d, is read by the asynchronous proxy "
                       "without fence.proxy.async in between",
                       offset, a->line);
        return false;
    }
    return true;
}

static bool race_read(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta, uint32_t offset,
                      uint32_t bytes, unsigned how, unsigned agent, uint32_t clock)
{
    uint16_t me = (uint16_t)(agent + 1);
    for (uint32_t i = offset / 4; i <= (offset + bytes - 1) / 4; i++) {
        struct ptx_cell *c = &cta->cells[i];
        unsigned touched = cell_bytes(i, offset, bytes);
        if (!check_write_before(w, in, lane, cta, i * 4, c, touched, how, false)) return false;
        struct ptx_access *r = &c->read[0];
        if (r->agent != me) {
            if (c->read[1].agent == me) c->read[1] = c->read[0];
            else if (r->agent) c->read[1] = *r;
            *r = (struct ptx_access){.agent = me, .clock = clock, .lane = (uint8_t)lane, .line = in->line};
        } else if (r->clock != clock) {
            *r = (struct ptx_access){.agent = me, .clock = clock, .lane = (uint8_t)lane, .line = in->line};
        } else if (r->lane != lane) {
            r->lane = PTX_SEVERAL_LANES;
        }
        r->bytes |= (uint8_t)(touched | how);
    }
    return true;
}

bool ptx_race_read(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta, uint32_t offset,
                   uint32_t bytes, unsigned how)
{
    if (w->m->options.no_races) return true;
    return race_read(w, in, lane, cta, offset, bytes, how, ptx_agent(w), w->clock);
}

bool ptx_race_read_as(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta, uint32_t offset,
                      uint32_t bytes, unsigned agent, uint32_t clock)
{
    if (w->m->options.no_races) return true;
    return race_read(w, in, lane, cta, offset, bytes, PTX_ASYNC_PROXY, agent, clock);
}

bool ptx_race_write(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta,
                    uint32_t offset, uint32_t bytes, unsigned how)
{
    if (w->m->options.no_races) return true;
    uint16_t me = (uint16_t)(ptx_agent(w) + 1);
    for (uint32_t i = offset / 4; i <= (offset + bytes - 1) / 4; i++) {
        struct ptx_cell *c = &cta->cells[i];
        unsigned touched = cell_bytes(i, offset, bytes);
        if (!check_write_before(w, in, lane, cta, i * 4, c, touched, how, true)) return false;
        for (int k = 0; k < 2; k++) {
            const struct ptx_access *r = &c->read[k];
            if (!r->agent || !(r->bytes & touched) || r->bytes & how & PTX_ATOMIC) continue;
            if (!ordered(w, lane, r->agent - 1u, r->lane, r->clock))
                return report(w, in, lane, cta, i * 4, true, r, false);
        }
        bool merge = c->write.agent == me && c->write.clock == w->clock && c->write.lane == lane;
        unsigned kept = merge ? c->write.bytes & 15u : 0;
        c->write = (struct ptx_access){.agent = me, .clock = w->clock, .lane = (uint8_t)lane, .line = in->line,
                                       .bytes = (uint8_t)(touched | kept | how)};
    }
    return true;
}

/* ---- global memory ---- */

/*
 * CTAs learn of each other through atomic accesses with fences around them: what a CTA wrote before a fence
 * is released by its next atomic store; what others released counts for a CTA from the fence that follows
 * an atomic load. Events number all of these in the order in which they happened.
 */
void ptx_gpu_fence(struct ptx_warp *w)
{
    w->cta->fenced = ++w->m->event;
    w->cta->acquired = w->cta->observed;
}

void ptx_gpu_access(struct ptx_warp *w, bool reads, bool writes, bool release, bool acquire)
{
    struct ptx_machine *m = w->m;
    struct ptx_cta *cta = w->cta;
    if (release) cta->fenced = ++m->event;
    if (writes) m->cta_released[cta->linear] = cta->fenced;
    if (reads) cta->observed = ++m->event;
    if (acquire) cta->acquired = cta->observed;
}

static bool global_ordered(struct ptx_warp *w, int lane, const struct ptx_owner *o)
{
    if (o->launch != w->m->launch_serial) return true;
    if (o->cta == w->cta->linear) return ordered(w, lane, o->agent, o->lane, o->clock);
    return w->m->cta_released[o->cta] > o->event && w->cta->acquired > o->event;
}

bool ptx_race_global(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_alloc *a,
                     size_t offset, uint32_t bytes, bool write, bool atomic)
{
    if (w->m->options.touches) ptx_touch(a, offset, bytes, write ? PTX_WRITTEN : PTX_READ);
    if (w->m->options.no_races || (!a->owner && !write)) return true;
    if (!a->owner) {
        a->owner = calloc(a->bytes / 4 + 2, sizeof *a->owner);
        if (!a->owner) return true; /* less is checked, nothing else changes */
    }
    size_t at = ptx_cell_offset(a, offset);
    for (size_t i = at / 4; i <= (at + bytes - 1) / 4; i++) {
        struct ptx_owner *o = &a->owner[i];
        /* Narrow neighbours share a cell; whole cells are checked only for accesses that fill them. */
        if (o->launch && bytes >= 4 && !(atomic && o->atomic) && !global_ordered(w, lane, o)) {
            ptx_fault_warp(w, in, lane, PTX_FAULT_RACE,
                           "race on global memory: %s byte %zu of an allocation, which CTA %u lane %u wrote at PTX line %d "
                           "with nothing that orders the two",
                           write ? "writes" : "reads", i * 4, o->cta, o->lane, o->line);
            return false;
        }
        if (write)
            *o = (struct ptx_owner){.launch = w->m->launch_serial, .cta = w->cta->linear, .event = w->m->event,
                                    .clock = w->clock, .agent = (uint16_t)ptx_agent(w), .lane = (uint8_t)lane,
                                    .atomic = atomic, .line = in->line};
    }
    return true;
}
