// SPDX-License-Identifier: Apache-2.0
/*
 * cp.async and mbarriers.
 *
 * The destination of a copy is in flight from its issue to the wait of the lane that issued it: touching it in
 * between is a fault, whatever it holds. The bytes arrive at the wait (late) or at once (early); other lanes
 * see them after they are ordered behind the wait.
 */
#include <stdlib.h>

#include "tests/ptx/interp/lanes.h"

/* ---- cp.async ---- */

static bool copy_bytes(struct ptx_warp *w, const struct ptx_copy *c)
{
    uint8_t *dst = w->cta->shared + c->dst, *state = w->cta->shared_state + c->dst;
    memset(dst, 0, c->bytes);
    memset(state, PTX_BYTE_DEFINED, c->bytes);
    if (!c->src_bytes) return true;
    struct ptx_alloc *a = ptx_alloc_find(w->m, c->src, c->src_bytes);
    if (!a) {
        ptx_fault_warp(w, c->in, c->lane, PTX_FAULT_BOUNDS, "the source of a copy was freed while it was in flight");
        return false;
    }
    memcpy(dst, a->data + (c->src - a->base), c->src_bytes);
    memcpy(state, a->state + (c->src - a->base), c->src_bytes);
    return true;
}

static bool copy_arrives(struct ptx_warp *w, const struct ptx_copy *c);

static bool finish(struct ptx_warp *w, const struct ptx_copy *c)
{
    if (c->arrives) return copy_arrives(w, c);
    /* From here on the bytes are the lane's own store. */
    return copy_bytes(w, c) && ptx_race_write(w, c->in, c->lane, w->cta, c->dst, c->bytes, 0);
}

/* Finishes a lane's copies of groups below `limit`. */
static bool finish_groups(struct ptx_warp *w, int lane, unsigned limit)
{
    for (struct ptx_copy **p = &w->copies; *p;) {
        struct ptx_copy *c = *p;
        if (c->lane != lane || c->group >= limit) {
            p = &c->next;
            continue;
        }
        *p = c->next;
        bool ok = finish(w, c);
        free(c);
        if (!ok) return false;
    }
    w->copies_end = &w->copies;
    while (*w->copies_end) w->copies_end = &(*w->copies_end)->next;
    return true;
}

static struct ptx_copy *append(struct ptx_warp *w, const struct ptx_copy *c)
{
    struct ptx_copy *copy = malloc(sizeof *copy);
    if (!copy) {
        ptx_fault_at(w->m, PTX_FAULT_MEMORY, 0, "out of host memory");
        return NULL;
    }
    *copy = *c;
    copy->next = NULL;
    *w->copies_end = copy;
    w->copies_end = &copy->next;
    return copy;
}

static bool issue(struct ptx_warp *w, const struct ptx_insn *in, int lane, uint32_t bytes, uint32_t src_bytes,
                  uint64_t *out_dst, uint64_t *out_src)
{
    struct ptx_place dst, src;
    *out_dst = ptx_address(w, &in->ops[0], lane);
    *out_src = ptx_address(w, &in->ops[1], lane);
    if (!ptx_place(w, in, lane, PTX_SPACE_SHARED, *out_dst, bytes, bytes, &dst)) return false;
    if (*out_src % bytes) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_ALIGN, "source %#llx is not a multiple of %u", (unsigned long long)*out_src,
                       bytes);
        return false;
    }
    bool defined;
    if (src_bytes && (!ptx_place(w, in, lane, PTX_SPACE_GLOBAL, *out_src, src_bytes, 1, &src) ||
                      !ptx_place_read(w, in, lane, &src, src_bytes, false, &defined)))
        return false;
    if (!ptx_place_write(w, in, lane, &dst, bytes, false, false)) return false;
    struct ptx_copy c = {.in = in, .lane = lane, .group = w->cp_group[lane], .src = *out_src, .dst = dst.offset,
                         .bytes = bytes, .src_bytes = src_bytes};
    if (w->m->options.early) copy_bytes(w, &c);
    memset(dst.state, PTX_BYTE_IN_FLIGHT, bytes);
    w->m->counters.async_bytes += src_bytes;
    return append(w, &c) != NULL;
}

/* [dst], [src], size [, source bytes | ignore-src] [, policy] */
void ptx_x_cp_async(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint32_t bytes = (uint32_t)ptx_get(w, in->ops[2].reg, 0);
    int n = in->n_ops - (in->flags & PTX_F_HINT ? 1 : 0);
    const struct ptx_operand *given = n > 3 ? &in->ops[3] : NULL;
    bool ignore = given && w->k->regs[given->reg].predicate;
    uint64_t dst[32], src[32];
    uint32_t reading = 0;
    if (bytes != 4 && bytes != 8 && bytes != 16) {
        ptx_unsupported(w, in);
        return;
    }
    if (!ptx_need_defined(w, in, in->ops[0].reg, mask, "an address") ||
        !ptx_need_defined(w, in, in->ops[1].reg, mask, "an address") ||
        (given && !ptx_need_defined(w, in, given->reg, mask, "the size of a copy")))
        return;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint32_t src_bytes = bytes;
        if (ignore) src_bytes = ptx_pred_bits(w, given) >> l & 1 ? 0 : bytes;
        else if (given) src_bytes = (uint32_t)ptx_get(w, given->reg, l);
        if (src_bytes > bytes) {
            ptx_fault_warp(w, in, l, PTX_FAULT_ASYNC, "copies %u of %u bytes", src_bytes, bytes);
            return;
        }
        if (!issue(w, in, l, bytes, src_bytes, &dst[l], &src[l])) return;
        if (src_bytes) reading |= 1u << l;
    }
    ptx_count_shared(w->m, dst, mask, bytes);
    ptx_count_global(w->m, src, reading, bytes);
}

void ptx_x_cp_commit(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    (void)in;
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) w->cp_group[l]++;
}

void ptx_x_cp_wait(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    bool all = in->op == PTX_OP_CP_ASYNC_WAIT_ALL;
    unsigned keep = all ? 0 : (unsigned)ptx_get(w, in->ops[0].reg, 0);
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        unsigned groups = w->cp_group[l];
        if (all) groups = w->cp_group[l] = groups + 1;
        if (groups > keep && !finish_groups(w, l, groups - keep)) return;
    }
}

/* Copies of a lane up to its first deferred arrival, that included. */
bool ptx_copies_step(struct ptx_warp *w)
{
    for (struct ptx_copy *c = w->copies; c; c = c->next) {
        if (!c->arrives) continue;
        int lane = c->lane;
        for (struct ptx_copy **p = &w->copies; *p;) {
            struct ptx_copy *d = *p;
            if (d->lane != lane) {
                p = &d->next;
                continue;
            }
            bool last = d->arrives;
            *p = d->next;
            bool ok = finish(w, d);
            free(d);
            if (last || !ok) break;
        }
        w->copies_end = &w->copies;
        while (*w->copies_end) w->copies_end = &(*w->copies_end)->next;
        return true;
    }
    return false;
}

void ptx_warp_async_reset(struct ptx_warp *w)
{
    while (w->copies) {
        struct ptx_copy *next = w->copies->next;
        free(w->copies);
        w->copies = next;
    }
    w->copies_end = &w->copies;
    memset(w->cp_group, 0, sizeof w->cp_group);
    memset(w->bulk_group, 0, sizeof w->bulk_group);
    ptx_wgmma_reset(w);
}

/* ---- mbarriers ---- */

static struct ptx_mbarrier *lookup(struct ptx_cta *cta, uint32_t offset)
{
    for (int i = 0; i < cta->n_mbarriers; i++)
        if (cta->mbarriers[i].offset == offset) return &cta->mbarriers[i];
    return NULL;
}

struct ptx_mbarrier *ptx_mbarrier_find(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta,
                                       uint32_t offset)
{
    struct ptx_mbarrier *b = lookup(cta, offset);
    if (b && b->valid) return b;
    ptx_fault_warp(w, in, lane, PTX_FAULT_ASYNC, "there is no initialised mbarrier at shared address %u", offset);
    return NULL;
}

/* The mbarrier a lane's address operand means: a read that must be ordered behind its initialisation. */
static struct ptx_mbarrier *operand_mbarrier(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_operand *o,
                                             int lane, struct ptx_cta **out_cta)
{
    struct ptx_place p;
    bool defined;
    enum ptx_space space = in->n_spaces ? (enum ptx_space)in->spaces[in->n_spaces - 1] : PTX_SPACE_GENERIC;
    if (space == PTX_SPACE_GLOBAL) space = PTX_SPACE_SHARED; /* of cp.async.mbarrier: not an address space word */
    if (!ptx_place(w, in, lane, space, ptx_address(w, o, lane), 8, 8, &p)) return NULL;
    if (p.space != PTX_SPACE_SHARED) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_ASYNC, "an mbarrier that is not in shared memory");
        return NULL;
    }
    struct ptx_mbarrier *b = ptx_mbarrier_find(w, in, lane, p.cta, p.offset);
    if (!b || !ptx_place_read(w, in, lane, &p, 8, true, &defined)) return NULL;
    if (out_cta) *out_cta = p.cta;
    return b;
}

static struct ptx_mbarrier *new_mbarrier(struct ptx_cta *cta, uint32_t offset)
{
    if (cta->n_mbarriers == cta->cap_mbarriers) {
        int cap = cta->cap_mbarriers ? cta->cap_mbarriers * 2 : 8;
        struct ptx_mbarrier *grown = realloc(cta->mbarriers, (size_t)cap * sizeof *grown);
        if (!grown) return NULL;
        memset(grown + cta->cap_mbarriers, 0, (size_t)(cap - cta->cap_mbarriers) * sizeof *grown);
        cta->mbarriers = grown;
        cta->cap_mbarriers = cap;
    }
    struct ptx_mbarrier *b = &cta->mbarriers[cta->n_mbarriers];
    size_t bytes = cta->m->n_agents * sizeof *b->seen;
    if (!b->seen) b->seen = calloc(1, bytes);
    if (!b->seen_done) b->seen_done = calloc(1, bytes);
    if (!b->seen || !b->seen_done) return NULL;
    b->offset = offset;
    cta->n_mbarriers++;
    return b;
}

static bool init_lane(struct ptx_warp *w, const struct ptx_insn *in, int lane)
{
    struct ptx_place p;
    uint64_t count = ptx_get(w, in->ops[1].reg, lane);
    enum ptx_space space = in->n_spaces ? (enum ptx_space)in->spaces[0] : PTX_SPACE_GENERIC;
    if (!ptx_place(w, in, lane, space, ptx_address(w, &in->ops[0], lane), 8, 8, &p)) return false;
    if (p.space != PTX_SPACE_SHARED || p.cta != w->cta || count < 1 || count > (1u << 20) - 1) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_ASYNC, "an mbarrier for %llu arrivals, or outside of this CTA",
                       (unsigned long long)count);
        return false;
    }
    struct ptx_mbarrier *b = lookup(p.cta, p.offset);
    if (b && b->valid) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_ASYNC, "the mbarrier at %u is initialised again without mbarrier.inval",
                       p.offset);
        return false;
    }
    if (!ptx_place_write(w, in, lane, &p, 8, false, true)) return false;
    if (!b) b = new_mbarrier(p.cta, p.offset);
    if (!b) {
        ptx_fault_at(w->m, PTX_FAULT_MEMORY, 0, "out of host memory");
        return false;
    }
    memset(b->seen, 0, w->m->n_agents * sizeof *b->seen);
    memset(b->seen_done, 0, w->m->n_agents * sizeof *b->seen_done);
    b->valid = true;
    b->fenced = false;
    b->init_agent = (uint16_t)ptx_agent(w);
    b->init_lane = (uint8_t)lane;
    b->expected = b->pending = (int32_t)count;
    b->tx = 0;
    b->phase = 0;
    return true;
}

void ptx_x_mb_init(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (!ptx_need_defined(w, in, in->ops[1].reg, mask, "the count of an mbarrier")) return;
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1 && !init_lane(w, in, l)) return;
}

void ptx_x_mb_inval(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        struct ptx_mbarrier *b = operand_mbarrier(w, in, &in->ops[0], l, NULL);
        if (!b) return;
        b->valid = false;
    }
}

void ptx_mbarriers_fenced(struct ptx_warp *w, uint32_t lanes)
{
    for (int i = 0; i < w->cta->n_mbarriers; i++) {
        struct ptx_mbarrier *b = &w->cta->mbarriers[i];
        if (b->init_agent == ptx_agent(w) && lanes >> b->init_lane & 1) b->fenced = true;
    }
}

/* Does the running phase end here? */
static void settle(struct ptx_machine *m, struct ptx_mbarrier *b)
{
    if (b->pending || b->tx) return;
    ptx_seen_join(b->seen_done, b->seen, m->n_agents);
    b->phase++;
    b->pending = b->expected;
    m->progress++;
}

bool ptx_mbarrier_complete_tx(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_mbarrier *b,
                              uint32_t bytes, const struct ptx_seen *seen)
{
    ptx_seen_join(b->seen, seen, w->m->n_agents);
    b->tx -= (int32_t)bytes;
    if (b->tx < -((1 << 20) - 1)) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_ASYNC, "more bytes arrive at the mbarrier at %u than it can count",
                       b->offset);
        return false;
    }
    settle(w->m, b);
    return true;
}

static bool expect(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_mbarrier *b, uint64_t bytes)
{
    if (bytes > (1u << 20) - 1 || b->tx + (int64_t)bytes > (1 << 20) - 1) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_ASYNC, "the mbarrier at %u cannot expect %llu bytes more", b->offset,
                       (unsigned long long)bytes);
        return false;
    }
    b->tx += (int32_t)bytes;
    return true;
}

static bool take_arrivals(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_mbarrier *b, int32_t n)
{
    if (n < 1 || n > b->pending) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_ASYNC, "%d arrivals at the mbarrier at %u, which waits for %d of %d", n,
                       b->offset, b->pending, b->expected);
        return false;
    }
    b->pending -= n;
    if (in->op == PTX_OP_MBARRIER_ARRIVE_DROP) b->expected -= n;
    return true;
}

static bool copy_arrives(struct ptx_warp *w, const struct ptx_copy *c)
{
    struct ptx_mbarrier *b = ptx_mbarrier_find(w, c->in, c->lane, c->cta, c->dst);
    if (!b) return false;
    ptx_release(w, 1u << c->lane, b->seen);
    if (!take_arrivals(w, c->in, c->lane, b, 1)) return false;
    settle(w->m, b);
    return true;
}

/* The mbarrier gets an arrival when the lane's copies so far are done. */
void ptx_x_cp_mbarrier(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        struct ptx_cta *cta;
        struct ptx_mbarrier *b = operand_mbarrier(w, in, &in->ops[0], l, &cta);
        if (!b) return;
        if (!(in->flags & PTX_F_NOINC)) b->pending++;
        struct ptx_copy c = {.in = in, .lane = l, .group = w->cp_group[l], .dst = b->offset, .arrives = true, .cta = cta};
        if (!append(w, &c)) return;
    }
}

/* [state,] [address] [, count or bytes]: all lanes of one mbarrier arrive together. */
void ptx_x_mb_arrive(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    int at = in->ops[0].kind == PTX_OPERAND_MEM ? 0 : 1;
    const struct ptx_operand *extra = in->n_ops > at + 1 ? &in->ops[at + 1] : NULL;
    bool tx = in->flags & PTX_F_EXPECT_TX;
    if (!ptx_need_defined(w, in, in->ops[at].reg, mask, "an address") ||
        (extra && !ptx_need_defined(w, in, extra->reg, mask, "the count of an arrival")))
        return;
    for (uint32_t left = mask; left;) {
        int first = ptx_lowest(left);
        struct ptx_mbarrier *b = operand_mbarrier(w, in, &in->ops[at], first, NULL);
        uint32_t lanes = 0;
        if (!b) return;
        uint64_t address = ptx_address(w, &in->ops[at], first);
        for (int l = first; l < 32; l++)
            if (left >> l & 1 && ptx_address(w, &in->ops[at], l) == address) lanes |= 1u << l;
        left &= ~lanes;
        /* Those whose arrival ends a phase are released into that one, later lanes into the next. */
        uint32_t waiting = 0;
        for (int l = first; l < 32; l++) {
            if (!(lanes >> l & 1)) continue;
            uint64_t n = extra ? ptx_get(w, extra->reg, l) : 1;
            if (at) ptx_set(w, in->ops[0].reg, l, b->phase | (uint64_t)(uint32_t)b->pending << 32);
            if (tx && !expect(w, in, l, b, n)) return;
            if (!take_arrivals(w, in, l, b, tx ? 1 : n > INT32_MAX ? INT32_MAX : (int32_t)n)) return;
            waiting |= 1u << l;
            if (b->pending && lanes >> l >> 1) continue;
            if (!(in->flags & PTX_F_RELAXED)) ptx_release(w, waiting, b->seen);
            waiting = 0;
            settle(w->m, b);
        }
    }
    w->m->progress++;
}

void ptx_x_mb_expect(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        struct ptx_mbarrier *b = operand_mbarrier(w, in, &in->ops[0], l, NULL);
        if (!b || !expect(w, in, l, b, ptx_get(w, in->ops[1].reg, l))) return;
    }
}

void ptx_x_mb_complete(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        struct ptx_mbarrier *b = operand_mbarrier(w, in, &in->ops[0], l, NULL);
        if (!b) return;
        ptx_release(w, 1u << l, b->seen);
        b->tx -= (int32_t)ptx_get(w, in->ops[1].reg, l);
        settle(w->m, b);
    }
}

/* p, [address], state or parity: false when the phase still runs. */
void ptx_x_mb_wait(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    uint32_t done = 0;
    if (!ptx_need_defined(w, in, in->ops[1].reg, mask, "an address") ||
        !ptx_need_defined(w, in, in->ops[2].reg, mask, "the phase that is waited for"))
        return;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        struct ptx_mbarrier *b = operand_mbarrier(w, in, &in->ops[1], l, NULL);
        if (!b) return;
        uint32_t v = (uint32_t)ptx_get(w, in->ops[2].reg, l);
        bool over = in->flags & PTX_F_PARITY ? (b->phase & 1) != (v & 1) : b->phase != v;
        if (over && !(in->flags & PTX_F_RELAXED)) ptx_acquire(w, b->seen_done);
        done |= (uint32_t)over << l;
    }
    ptx_commit_pred(w, in->ops[0].reg, done, mask);
    ptx_mark(w, in->ops[0].reg, mask, mask);
    if (done != mask) w->status = PTX_W_YIELD;
}

void ptx_x_mb_pending(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) ptx_set(w, in->ops[0].reg, l, ptx_get(w, in->ops[1].reg, l) >> 32);
}
