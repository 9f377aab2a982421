// SPDX-License-Identifier: Apache-2.0
/*
 * Warps, CTAs and the order they run in.
 *
 * Lanes at the lowest program counter run first, so that paths that parted meet again where they join.
 * Lanes that spin for others of their warp are passed over after a while. Warps take turns; a warp runs
 * until it blocks, fails to wait for something, or has had its share. When a whole round changes
 * nothing, a bulk copy in flight is performed; when there is none, further CTAs become resident (they may
 * hold what is waited for); when there are none, it is a deadlock.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/ptx/interp/lanes.h"

/* Idle rounds until nothing is expected any more: many when warps poll memory, for such a loop may count. */
enum { TURN_STEPS = 20000, SPIN_STEPS = 20000, IDLE_ROUNDS = 64, POLL_ROUNDS = 20000, MAX_RESIDENT = 4096 };

bool ptx_converged(struct ptx_warp *w, const struct ptx_insn *in, uint32_t executing, uint32_t lanes)
{
    uint32_t missing = lanes & w->live & ~executing;
    if (executing & ~lanes) {
        ptx_fault_warp(w, in, ptx_lowest(executing & ~lanes), PTX_FAULT_DIVERGENCE,
                       "lanes %#x execute it without being named in its mask %#x", executing & ~lanes, lanes);
        return false;
    }
    if (!missing) return true;
    if (missing & w->group) {
        ptx_fault_warp(w, in, ptx_lowest(missing & w->group), PTX_FAULT_DIVERGENCE,
                       "lanes %#x take part by its mask %#x but are predicated off", missing & w->group, lanes);
        return false;
    }
    w->status = PTX_W_PARK;
    return false;
}

/* Every lane stands at a collective that others never reach. */
static void fault_parted(struct ptx_warp *w)
{
    char where[300];
    size_t used = 0;
    uint32_t left = w->live;
    while (left && used < sizeof where - 64) {
        uint32_t pc = w->pc[ptx_lowest(left)], lanes = 0;
        for (int l = 0; l < 32; l++)
            if (left >> l & 1 && w->pc[l] == pc) lanes |= 1u << l;
        left &= ~lanes;
        const struct ptx_insn *in = &w->k->insns[pc];
        used += (size_t)snprintf(where + used, sizeof where - used, "%s lanes %#x at line %d (%s)", used ? "," : "",
                                 lanes, in->line, ptx_op_name(in->op));
    }
    const struct ptx_insn *in = &w->k->insns[w->pc[ptx_lowest(w->live)]];
    ptx_fault_warp(w, in, ptx_lowest(w->live), PTX_FAULT_DIVERGENCE,
                   "a collective waits for lanes that never come:%s", where);
}

/* Chooses the lanes that run next: those at the lowest pc, lanes that were passed over last. */
static bool choose_group(struct ptx_warp *w, uint32_t *out_pc)
{
    uint32_t runnable = w->live & ~w->parked;
    if (runnable & ~w->passed_over) runnable &= ~w->passed_over;
    if (!runnable) return false;
    *out_pc = UINT32_MAX;
    for (int l = 0; l < 32; l++)
        if (runnable >> l & 1 && w->pc[l] < *out_pc) *out_pc = w->pc[l];
    w->group = 0;
    for (int l = 0; l < 32; l++)
        if (w->live >> l & 1 && w->pc[l] == *out_pc) w->group |= 1u << l;
    w->parked &= ~w->group;
    w->passed_over = 0;
    return true;
}

static void set_pcs(struct ptx_warp *w, uint32_t lanes, uint32_t pc)
{
    for (int l = 0; l < 32; l++)
        if (lanes >> l & 1) w->pc[l] = pc;
}

/* Lanes whose guard holds. */
static bool guard(struct ptx_warp *w, const struct ptx_insn *in, uint32_t *mask)
{
    if (in->guard < 0) return true;
    if ((w->def[in->guard] & *mask) != *mask) {
        ptx_fault_warp(w, in, ptx_lowest(*mask & ~w->def[in->guard]), PTX_FAULT_UNDEFINED,
                       "a predicate that depends on undefined data");
        return false;
    }
    uint32_t p = *ptx_pred(w, in->guard);
    *mask &= in->guard_negated ? ~p : p;
    return true;
}

/* Operations whose results are defined exactly where all their sources are; the others see to it
 * themselves. */
static bool plain_flow(const struct ptx_insn *in)
{
    return (in->op >= PTX_OP_ADD && in->op <= PTX_OP_SET) || (in->op >= PTX_OP_SLCT && in->op <= PTX_OP_GETCTARANK);
}

/* and/or of predicates: a false (true) one decides alone. */
static uint32_t logic_defined(struct ptx_warp *w, const struct ptx_insn *in, uint32_t all)
{
    if (in->types[0] != PTX_PRED || (in->op != PTX_OP_AND && in->op != PTX_OP_OR)) return all;
    uint32_t a = ptx_pred_bits(w, &in->ops[1]), b = ptx_pred_bits(w, &in->ops[2]);
    uint32_t da = w->def[in->ops[1].reg], db = w->def[in->ops[2].reg];
    if (in->op == PTX_OP_OR) {
        a = ~a;
        b = ~b;
    }
    return all | (da & ~a) | (db & ~b);
}

static void execute(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    w->m->counters.lane_insns += (uint64_t)ptx_popcount(mask);
    if (w->wgmma && !ptx_wgmma_check_use(w, in)) return;
    if (plain_flow(in)) {
        uint32_t defined = ptx_sources_defined(w, in, 1, UINT32_MAX);
        if (defined != UINT32_MAX) defined = logic_defined(w, in, defined);
        in->exec(w, in, mask);
        ptx_mark(w, in->ops[0].reg, mask, defined);
        ptx_mark(w, in->ops[0].reg2, mask, defined);
        return;
    }
    in->exec(w, in, mask);
}

/* After an instruction: where do the lanes of the group go? False: the warp stops running for now. */
static bool advance(struct ptx_warp *w, uint32_t *pc, uint32_t mask)
{
    switch (w->status) {
    case PTX_W_NEXT:
        *pc = w->next;
        return true;
    case PTX_W_SPLIT:
    case PTX_W_EXIT: w->group = 0; return w->live != 0;
    case PTX_W_PARK:
        set_pcs(w, w->group & mask, *pc);
        set_pcs(w, w->group & ~mask, *pc + 1);
        w->parked |= w->group & mask;
        w->group = 0;
        return true;
    case PTX_W_BLOCK:
    case PTX_W_YIELD:
        set_pcs(w, w->group, w->next);
        w->group = 0;
        return false;
    }
    return false;
}

/* Does the group go on without a look at the other lanes? */
static bool alone(const struct ptx_warp *w, uint32_t pc)
{
    uint32_t others = w->live & ~w->group;
    for (int l = 0; l < 32 && others >> l; l++)
        if (others >> l & 1 && w->pc[l] <= pc) return false;
    return true;
}

/* A warp's turn. True when it did more than fail to wait. */
static bool run_warp(struct ptx_warp *w)
{
    struct ptx_machine *m = w->m;
    uint64_t end = m->steps + TURN_STEPS, switch_at = m->steps + SPIN_STEPS;
    uint32_t pc = 0;
    for (;;) {
        if (!choose_group(w, &pc)) {
            fault_parted(w);
            return true;
        }
        do {
            const struct ptx_insn *in = &w->k->insns[pc];
            uint32_t mask = w->group;
            w->at = in;
            w->next = pc + 1;
            w->status = PTX_W_NEXT;
            if (++m->steps > m->options.max_steps) {
                ptx_fault_warp(w, in, -1, PTX_FAULT_LIMIT, "the launch runs for more than %llu warp instructions",
                               (unsigned long long)m->options.max_steps);
                return true;
            }
            m->counters.warp_insns++;
            if (!guard(w, in, &mask)) return true;
            if (mask) execute(w, in, mask);
            if (m->fault) return true;
            uint32_t ran = w->group;
            if (!advance(w, &pc, mask)) {
                if (w->status == PTX_W_YIELD) w->passed_over = ran;
                return w->status != PTX_W_YIELD;
            }
            if (m->steps >= end) {
                set_pcs(w, w->group, pc);
                return true;
            }
        } while (w->group && alone(w, pc));
        set_pcs(w, w->group, pc);
        if (m->steps >= switch_at && w->group) { /* perhaps it waits for lanes further on */
            w->passed_over = w->group;
            switch_at = m->steps + SPIN_STEPS;
        }
    }
}

/* ---- control flow ---- */

static void jump(struct ptx_warp *w, uint32_t mask, uint32_t target)
{
    if (mask == w->group) {
        w->next = target;
        return;
    }
    set_pcs(w, w->group & ~mask, w->next);
    set_pcs(w, mask, target);
    w->status = PTX_W_SPLIT;
}

void ptx_x_bra(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { jump(w, mask, in->target); }

void ptx_x_brx(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (!ptx_need_defined(w, in, in->ops[0].reg, mask, "a branch index")) return;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t i = ptx_get(w, in->ops[0].reg, l);
        if (i >= in->n_table) {
            ptx_fault_warp(w, in, l, PTX_FAULT_BOUNDS, "branch index %llu of %u", (unsigned long long)i, in->n_table);
            return;
        }
        w->pc[l] = in->table[i];
    }
    set_pcs(w, w->group & ~mask, w->next);
    w->status = PTX_W_SPLIT;
}

void ptx_x_exit(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    w->live &= ~mask;
    w->parked = 0; /* whoever waited for these lanes looks again */
    set_pcs(w, w->group & ~mask, w->next);
    w->status = PTX_W_EXIT;
    w->m->progress++;
    if (w->live) return;
    w->cta->live_warps--;
    ptx_wgmma_check_exit(w, in);
    ptx_bulk_check_exit(w, in);
    ptx_barriers_recheck(w->cta);
    ptx_cluster_recheck(w->cta->cluster);
}

void ptx_x_ret(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask) { ptx_x_exit(w, in, mask); }

void ptx_x_trap(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    ptx_fault_warp(w, in, ptx_lowest(mask), PTX_FAULT_TRAP, "the kernel traps");
}

void ptx_x_nanosleep(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    (void)in;
    (void)mask;
    w->status = PTX_W_YIELD;
}

void ptx_x_setmaxnreg(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint64_t n = ptx_get(w, in->ops[0].reg, 0);
    if (!ptx_converged(w, in, mask, w->live)) return;
    if (n < 24 || n > 256 || n % 8)
        ptx_fault_warp(w, in, -1, PTX_FAULT_LAUNCH, "setmaxnreg of %llu", (unsigned long long)n);
}

/* ---- CTAs ---- */

static uint64_t special_value(const struct ptx_warp *w, unsigned which, int lane)
{
    const struct ptx_launch *p = w->m->launch;
    const struct ptx_cta *cta = w->cta;
    const struct ptx_dim *b = &p->block, *g = &p->grid;
    struct ptx_dim c = p->cluster.x ? p->cluster : (struct ptx_dim){1, 1, 1};
    unsigned t = (unsigned)w->id * 32 + (unsigned)lane;
    uint32_t bit = 1u << lane;
    switch (which) {
    case PTX_SREG_TID_X: return t % b->x;
    case PTX_SREG_TID_Y: return t / b->x % b->y;
    case PTX_SREG_TID_Z: return t / b->x / b->y;
    case PTX_SREG_NTID_X: return b->x;
    case PTX_SREG_NTID_Y: return b->y;
    case PTX_SREG_NTID_Z: return b->z;
    case PTX_SREG_CTAID_X: return cta->id.x;
    case PTX_SREG_CTAID_Y: return cta->id.y;
    case PTX_SREG_CTAID_Z: return cta->id.z;
    case PTX_SREG_NCTAID_X: return g->x;
    case PTX_SREG_NCTAID_Y: return g->y;
    case PTX_SREG_NCTAID_Z: return g->z;
    case PTX_SREG_LANEID: return (uint64_t)lane;
    case PTX_SREG_WARPID: return (uint64_t)w->id;
    case PTX_SREG_NWARPID: return 64;
    case PTX_SREG_SMID: return cta->linear % 4;
    case PTX_SREG_NSMID: return 4;
    case PTX_SREG_GRIDID: return w->m->launch_serial;
    case PTX_SREG_LANEMASK_EQ: return bit;
    case PTX_SREG_LANEMASK_LE: return bit | (bit - 1);
    case PTX_SREG_LANEMASK_LT: return bit - 1;
    case PTX_SREG_LANEMASK_GE: return ~(bit - 1);
    case PTX_SREG_LANEMASK_GT: return ~(bit | (bit - 1));
    case PTX_SREG_CLUSTERID_X: return cta->id.x / c.x;
    case PTX_SREG_CLUSTERID_Y: return cta->id.y / c.y;
    case PTX_SREG_CLUSTERID_Z: return cta->id.z / c.z;
    case PTX_SREG_NCLUSTERID_X: return g->x / c.x;
    case PTX_SREG_NCLUSTERID_Y: return g->y / c.y;
    case PTX_SREG_NCLUSTERID_Z: return g->z / c.z;
    case PTX_SREG_CLUSTER_CTAID_X: return cta->id.x % c.x;
    case PTX_SREG_CLUSTER_CTAID_Y: return cta->id.y % c.y;
    case PTX_SREG_CLUSTER_CTAID_Z: return cta->id.z % c.z;
    case PTX_SREG_CLUSTER_NCTAID_X: return c.x;
    case PTX_SREG_CLUSTER_NCTAID_Y: return c.y;
    case PTX_SREG_CLUSTER_NCTAID_Z: return c.z;
    case PTX_SREG_CLUSTER_CTARANK: return cta->rank;
    case PTX_SREG_CLUSTER_NCTARANK: return c.x * c.y * c.z;
    case PTX_SREG_DYNAMIC_SMEM_SIZE: return p->dynamic_shared_bytes;
    case PTX_SREG_TOTAL_SMEM_SIZE: return cta->shared_bytes;
    default: return 0;
    }
}

static void fill_regs(struct ptx_warp *w)
{
    const struct ptx_kernel *k = w->k;
    for (int r = 0; r < k->n_regs; r++) {
        const struct ptx_reg *reg = &k->regs[r];
        w->def[r] = reg->fill == PTX_FILL_NONE ? 0 : UINT32_MAX;
        if (reg->fill == PTX_FILL_NONE) continue;
        for (int l = 0; l < 32; l++) {
            uint64_t v = reg->value;
            if (reg->fill == PTX_FILL_SPECIAL) v = special_value(w, (unsigned)reg->value, l);
            else if (reg->fill == PTX_FILL_DYNAMIC_SHARED) v = w->cta->dynamic_off + reg->value;
            if (reg->bytes == 8) ((uint64_t *)(void *)(w->regs + reg->off))[l] = v;
            else ((uint32_t *)(void *)(w->regs + reg->off))[l] = (uint32_t)v;
        }
    }
}

static void warp_begin(struct ptx_warp *w, unsigned threads)
{
    unsigned first = (unsigned)w->id * 32, n = threads - first;
    w->live = w->initial = n >= 32 ? UINT32_MAX : (1u << n) - 1;
    w->parked = w->group = w->carry = 0;
    w->state = PTX_WARP_RUN;
    w->passed_over = 0;
    w->cluster_arrived = false;
    w->clock = 1;
    w->full = w->part_clock = w->part_mask = w->proxy_fresh = 0;
    memset(w->pc, 0, sizeof w->pc);
    memset(w->proxy_clock, 0, sizeof w->proxy_clock);
    memset(w->seen, 0, w->m->n_agents * sizeof *w->seen);
    if (w->k->local_bytes) memset(w->local_state, PTX_BYTE_UNDEFINED, (size_t)w->k->local_bytes * 32);
    ptx_warp_async_reset(w);
    fill_regs(w);
}

static void cta_begin(struct ptx_cta *cta, unsigned threads)
{
    size_t bytes = PTX_SHARED_BASE + cta->shared_bytes;
    cta->live_warps = cta->n_warps;
    cta->fenced = cta->observed = cta->acquired = 0;
    cta->n_mbarriers = 0;
    memset(cta->shared, 0xfb, bytes);
    memset(cta->shared_state, PTX_BYTE_UNDEFINED, bytes);
    memset(cta->cells, 0, (bytes / 4 + 1) * sizeof *cta->cells);
    for (int i = 0; i < PTX_N_BARRIERS; i++) {
        struct ptx_seen *seen = cta->barriers[i].seen;
        memset(seen, 0, cta->m->n_agents * sizeof *seen);
        cta->barriers[i] = (struct ptx_barrier){.seen = seen};
    }
    for (int i = 0; i < cta->n_warps; i++) warp_begin(&cta->warps[i], threads);
}

/* Cluster number n of the grid. */
static void cluster_begin(struct ptx_machine *m, struct ptx_cluster *c, uint64_t n)
{
    const struct ptx_launch *p = m->launch;
    struct ptx_dim d = p->cluster.x ? p->cluster : (struct ptx_dim){1, 1, 1};
    uint64_t nx = p->grid.x / d.x, ny = p->grid.y / d.y;
    c->id = (struct ptx_dim){(unsigned)(n % nx), (unsigned)(n / nx % ny), (unsigned)(n / nx / ny)};
    c->arrived = c->phase = 0;
    c->async_clock = 1;
    memset(c->seen, 0, m->n_agents * sizeof *c->seen);
    for (unsigned i = 0; i < c->n_ctas; i++) {
        struct ptx_cta *cta = &c->ctas[i];
        cta->id = (struct ptx_dim){c->id.x * d.x + i % d.x, c->id.y * d.y + i / d.x % d.y,
                                   c->id.z * d.z + i / d.x / d.y};
        cta->linear = cta->id.x + p->grid.x * (cta->id.y + p->grid.y * cta->id.z);
        cta_begin(cta, p->block.x * p->block.y * p->block.z);
    }
    m->counters.ctas += c->n_ctas;
}

static void cluster_free(struct ptx_cluster *c)
{
    if (!c) return;
    ptx_cluster_async_free(c);
    for (unsigned i = 0; c->ctas && i < c->n_ctas; i++) {
        struct ptx_cta *cta = &c->ctas[i];
        for (int j = 0; cta->warps && j < cta->n_warps; j++) {
            struct ptx_warp *w = &cta->warps[j];
            if (w->m) ptx_warp_async_reset(w);
            free(w->regs);
            free(w->fenced_regs);
            free(w->def);
            free(w->local);
            free(w->local_state);
            free(w->seen);
        }
        for (int j = 0; j < PTX_N_BARRIERS; j++) free(cta->barriers[j].seen);
        for (int j = 0; j < cta->cap_mbarriers; j++) {
            free(cta->mbarriers[j].seen);
            free(cta->mbarriers[j].seen_done);
        }
        free(cta->mbarriers);
        free(cta->warps);
        free(cta->shared);
        free(cta->shared_state);
        free(cta->cells);
    }
    free(c->ctas);
    free(c->seen);
    free(c);
}

static bool warp_create(struct ptx_machine *m, const struct ptx_kernel *k, struct ptx_cta *cta, int id)
{
    struct ptx_warp *w = &cta->warps[id];
    size_t local = (size_t)k->local_bytes * 32;
    w->k = k;
    w->cta = cta;
    w->id = id;
    w->regs = calloc(1, k->reg_bytes + 256);
    w->def = calloc((size_t)k->n_regs + 1, sizeof *w->def);
    w->local = calloc(1, local + 1);
    w->local_state = calloc(1, local + 1);
    w->seen = calloc(m->n_agents, sizeof *w->seen);
    w->m = m;
    return w->regs && w->def && w->local && w->local_state && w->seen;
}

static bool cta_create(struct ptx_machine *m, const struct ptx_kernel *k, struct ptx_cta *cta)
{
    const struct ptx_launch *p = m->launch;
    unsigned threads = p->block.x * p->block.y * p->block.z;
    /* Dynamic shared memory begins after the static, at no better alignment than was asked for. */
    uint32_t align = k->dynamic_align, at = (PTX_SHARED_BASE + k->shared_bytes + align - 1) / align * align;
    if (p->dynamic_shared_bytes && align < 128 && at % (2 * align) == 0 && k->shared_bytes) at += align;
    cta->m = m;
    cta->dynamic_off = at;
    cta->shared_bytes = p->dynamic_shared_bytes ? at - PTX_SHARED_BASE + p->dynamic_shared_bytes : k->shared_bytes;
    cta->n_warps = (int)(threads + 31) / 32;
    size_t bytes = PTX_SHARED_BASE + cta->shared_bytes;
    cta->shared = calloc(1, bytes);
    cta->shared_state = calloc(1, bytes);
    cta->cells = calloc(bytes / 4 + 1, sizeof *cta->cells);
    cta->warps = calloc((size_t)cta->n_warps, sizeof *cta->warps);
    bool ok = cta->shared && cta->shared_state && cta->cells && cta->warps;
    for (int i = 0; i < PTX_N_BARRIERS; i++) {
        cta->barriers[i].seen = calloc(m->n_agents, sizeof *cta->barriers[i].seen);
        ok &= cta->barriers[i].seen != NULL;
    }
    for (int i = 0; ok && i < cta->n_warps; i++) ok = warp_create(m, k, cta, i);
    return ok;
}

static struct ptx_cluster *cluster_create(struct ptx_machine *m, const struct ptx_kernel *k, unsigned n_ctas)
{
    struct ptx_cluster *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->bulks_end = &c->bulks;
    c->n_ctas = n_ctas;
    c->ctas = calloc(n_ctas, sizeof *c->ctas);
    c->seen = calloc(m->n_agents, sizeof *c->seen);
    bool ok = c->ctas && c->seen;
    for (unsigned i = 0; ok && i < n_ctas; i++) {
        c->ctas[i].cluster = c;
        c->ctas[i].rank = i;
        ok = cta_create(m, k, &c->ctas[i]);
    }
    if (ok) return c;
    cluster_free(c);
    return NULL;
}

/* ---- the grid ---- */

static uint32_t next_random(struct ptx_machine *m)
{
    m->random = m->random * 1664525u + 1013904223u;
    return m->random >> 8;
}

/* One turn for each warp of a cluster; returns how many live on. */
static unsigned run_round(struct ptx_machine *m, struct ptx_cluster *c, bool *worked)
{
    unsigned live = 0, n = c->n_ctas * (unsigned)c->ctas[0].n_warps;
    unsigned first = m->options.seed ? next_random(m) % n : 0;
    bool backwards = m->options.seed && next_random(m) & 1;
    for (unsigned i = 0; i < n && !m->fault; i++) {
        unsigned j = (first + (backwards ? n - i : i)) % n;
        struct ptx_cta *cta = &c->ctas[j % c->n_ctas];
        struct ptx_warp *w = &cta->warps[j / c->n_ctas];
        if (!w->live) continue;
        if (w->state == PTX_WARP_RUN && run_warp(w)) *worked = true;
        live += w->live != 0;
    }
    return live;
}

static void fault_deadlock(struct ptx_machine *m)
{
    char text[600];
    size_t used = 0;
    struct ptx_warp *first = NULL;
    for (struct ptx_cluster *c = m->clusters; c; c = c->next)
        for (unsigned i = 0; i < c->n_ctas; i++)
            for (int j = 0; j < c->ctas[i].n_warps; j++) {
                struct ptx_warp *w = &c->ctas[i].warps[j];
                if (!w->live) continue;
                if (!first) first = w;
                if (used < sizeof text - 80)
                    used += (size_t)snprintf(text + used, sizeof text - used, "%s CTA %u warp %d at line %d (%s)",
                                             used ? "," : "", c->ctas[i].linear, j, w->at ? w->at->line : 0,
                                             w->at ? ptx_op_name(w->at->op) : "start");
            }
    if (first)
        ptx_fault_warp(first, first->at ? first->at : first->k->insns, -1, PTX_FAULT_DEADLOCK,
                       "deadlock, nothing can end these waits:%s", text);
}

/* A round went by without effect. False: there is nothing left to try. */
static bool unblock(struct ptx_machine *m, unsigned idle)
{
    for (struct ptx_cluster *c = m->clusters; c; c = c->next)
        if (ptx_bulk_step(c)) return true;
    return idle < (m->polled ? POLL_ROUNDS : IDLE_ROUNDS);
}

static bool admit(struct ptx_machine *m, struct ptx_kernel *k, struct ptx_cluster **spare, uint64_t n, unsigned n_ctas)
{
    struct ptx_cluster *c = *spare ? *spare : cluster_create(m, k, n_ctas);
    *spare = NULL;
    if (!c) {
        ptx_fault_at(m, PTX_FAULT_MEMORY, 0, "out of host memory for a CTA");
        return false;
    }
    c->next = m->clusters;
    m->clusters = c;
    cluster_begin(m, c, n);
    return true;
}

/* Takes finished clusters out; one is kept for reuse. */
static void retire(struct ptx_machine *m, struct ptx_cluster **spare)
{
    for (struct ptx_cluster **p = &m->clusters; *p;) {
        struct ptx_cluster *c = *p;
        bool live = false;
        for (unsigned i = 0; i < c->n_ctas; i++) live |= c->ctas[i].live_warps > 0;
        if (live) {
            p = &c->next;
            continue;
        }
        *p = c->next;
        if (*spare) cluster_free(*spare);
        *spare = c;
    }
}

bool ptx_run_grid(struct ptx_machine *m, struct ptx_kernel *k, const struct ptx_launch *p)
{
    unsigned n_ctas = p->cluster.x ? p->cluster.x * p->cluster.y * p->cluster.z : 1;
    uint64_t total = (uint64_t)p->grid.x * p->grid.y * p->grid.z / n_ctas, started = 0;
    uint64_t resident = 0, wanted = p->cooperative ? total : 1;
    struct ptx_cluster *spare = NULL;
    unsigned idle = 0;
    while (!m->fault && (m->clusters || started < total)) {
        while (resident < wanted && started < total && admit(m, k, &spare, started, n_ctas)) {
            started++;
            resident++;
        }
        if (m->fault) break;
        uint64_t before = m->progress;
        bool worked = false, retired = false;
        if (!idle) m->polled = false;
        for (struct ptx_cluster *c = m->clusters; c && !m->fault; c = c->next)
            if (!run_round(m, c, &worked)) retired = true;
        if (m->fault) break;
        if (m->options.seed && next_random(m) & 1)
            for (struct ptx_cluster *c = m->clusters; c; c = c->next) ptx_bulk_step(c);
        if (retired) {
            retire(m, &spare);
            resident = 0;
            for (struct ptx_cluster *c = m->clusters; c; c = c->next) resident++;
        }
        if (worked || retired || m->progress != before) {
            idle = 0;
        } else if (!unblock(m, ++idle)) {
            if (started == total || wanted >= MAX_RESIDENT) fault_deadlock(m);
            wanted++;
            idle = 0;
        }
    }
    while (m->clusters) {
        struct ptx_cluster *c = m->clusters;
        m->clusters = c->next;
        cluster_free(c);
    }
    cluster_free(spare);
    return !m->fault;
}
