// SPDX-License-Identifier: Apache-2.0
/*
 * Bulk copies: cp.async.bulk, its tensor form (TMA), their reductions, st.async.
 *
 * A copy is checked when it is issued and performed later. Into shared memory: its destination is in flight
 * until then, and its mbarrier gets the bytes when it is done. Out of shared memory: the source must not
 * change until then. Copies are writes and reads of an agent of their own (race.c), whose clock
 * ticks with each.
 */
#include <stdlib.h>

#include "tests/ptx/interp/bulk.h"
#include "tests/ptx/interp/lanes.h"

static unsigned bulk_agent(const struct ptx_warp *w) { return w->m->bulk_agent; }

uint64_t ptx_hash_shared(const struct ptx_cta *cta, uint32_t offset, uint32_t bytes, uint64_t h)
{
    for (uint32_t i = 0; i < bytes; i++)
        h = (h ^ cta->shared[offset + i] ^ (uint64_t)cta->shared_state[offset + i] << 8) * UINT64_C(1099511628211);
    return h;
}

/* ---- geometry: which bytes of shared memory and of global memory belong together ---- */

/* Where byte `at` of a box lies under the map's swizzle: 16-byte chunks change places within their row. */
static uint32_t swizzled(uint32_t address, unsigned mode)
{
    unsigned bits = mode == 3 ? 7 : mode == 2 ? 3 : mode == 1 ? 1 : 0;
    return address ^ ((address >> 7 & bits) << 4);
}

struct run {
    uint32_t offset;      /* in shared memory */
    uint64_t address;     /* in global memory */
    uint32_t bytes;
    bool inside;          /* of the tensor: otherwise filled, or not stored */
};

/* Calls fn for each run of bytes of a copy: 16-byte chunks of a tensor split at its edge, the whole of others. */
static bool for_each_run(struct ptx_bulk *b, uint32_t shared, bool (*fn)(struct ptx_bulk *, struct ptx_cta *, const struct run *),
                         struct ptx_cta *cta)
{
    if (!b->tensor) return fn(b, cta, &(struct run){shared, b->global, b->bytes, true});
    const struct ptx_tensor_map *t = &b->map;
    uint32_t row = t->box[0] * t->elem_bytes, at = 0;
    unsigned rows = 1;
    for (int i = 1; i < t->rank; i++) rows *= t->box[i];
    for (unsigned r = 0; r < rows; r++) {
        uint64_t address = t->base;
        bool inside = true;
        for (unsigned i = 1, left = r; i < t->rank; i++) {
            int64_t c = (int64_t)b->coord[i] + (int64_t)(left % t->box[i]) * t->elem_stride[i];
            left /= t->box[i];
            inside &= c >= 0 && c < (int64_t)t->dim[i];
            address += (uint64_t)c * t->stride[i - 1];
        }
        for (uint32_t x = 0; x < row; x += t->elem_bytes, at += t->elem_bytes) {
            int64_t c = (int64_t)b->coord[0] + (int64_t)(x / t->elem_bytes) * t->elem_stride[0];
            struct run one = {swizzled(shared + at, t->swizzle), address + (uint64_t)c * t->elem_bytes, t->elem_bytes,
                              inside && c >= 0 && c < (int64_t)t->dim[0]};
            /* Whole chunks at once where nothing parts them. */
            uint32_t chunk = 16 - x % 16, n = chunk / t->elem_bytes;
            if (t->elem_stride[0] == 1 && x + chunk <= row &&
                (!inside || (c >= 0 && c + n <= (int64_t)t->dim[0]))) {
                one.bytes = chunk;
                x += chunk - t->elem_bytes;
                at += chunk - t->elem_bytes;
            }
            if (!fn(b, cta, &one)) return false;
        }
    }
    return true;
}

/* ---- performing ---- */

static bool global_range(struct ptx_bulk *b, const struct run *r, uint8_t **data, uint8_t **state, struct ptx_alloc **out)
{
    struct ptx_alloc *a = ptx_alloc_find(b->warp->m, r->address, r->bytes);
    if (!a) {
        ptx_fault_warp(b->warp, b->in, b->lane, PTX_FAULT_BOUNDS,
                       "a bulk copy of %u bytes at global address %#llx, which is not inside of one allocation", r->bytes,
                       (unsigned long long)r->address);
        return false;
    }
    *data = a->data + (r->address - a->base);
    *state = a->state + (r->address - a->base);
    if (out) *out = a;
    return true;
}

static bool run_in(struct ptx_bulk *b, struct ptx_cta *cta, const struct run *r)
{
    uint8_t *data, *state, *dst = cta->shared + r->offset, *dst_state = cta->shared_state + r->offset;
    if (!r->inside) {
        memset(dst, b->tensor && b->map.nan_fill ? 0xff : 0, r->bytes);
        memset(dst_state, PTX_BYTE_DEFINED, r->bytes);
        return true;
    }
    if (!global_range(b, r, &data, &state, NULL)) return false;
    memcpy(dst, data, r->bytes);
    memcpy(dst_state, state, r->bytes);
    return true;
}

static bool run_out(struct ptx_bulk *b, struct ptx_cta *cta, const struct run *r)
{
    uint8_t *data, *state;
    struct ptx_alloc *a;
    if (!r->inside) return true;
    if (!global_range(b, r, &data, &state, &a)) return false;
    size_t at = (size_t)(r->address - a->base);
    bool reduce = b->in->op == PTX_OP_REDUCE_BULK || b->in->op == PTX_OP_REDUCE_BULK_TENSOR;
    if (!ptx_race_global(b->warp, b->in, b->lane, a, at, r->bytes, true, reduce)) return false;
    if (!reduce) {
        memcpy(data, cta->shared + r->offset, r->bytes);
        memcpy(state, cta->shared_state + r->offset, r->bytes);
        return true;
    }
    unsigned type = b->in->n_types ? b->in->types[0] : b->map.type, bytes = ptx_types[type].bytes;
    for (uint32_t i = 0; bytes && i + bytes <= r->bytes; i += bytes) {
        uint64_t old = 0, v = 0, next;
        memcpy(&old, data + i, bytes);
        memcpy(&v, cta->shared + r->offset + i, bytes);
        if (!ptx_atomic_value(type, b->in->sub, old, v, 0, &next)) {
            ptx_unsupported(b->warp, b->in);
            return false;
        }
        memcpy(data + i, &next, bytes);
    }
    return true;
}

static bool perform_in(struct ptx_bulk *b)
{
    struct ptx_cluster *c = b->warp->cta->cluster;
    for (unsigned rank = 0; rank < c->n_ctas; rank++) {
        struct ptx_cta *cta = &c->ctas[rank];
        if (!(b->ranks >> rank & 1)) continue;
        if (!cta->live_warps) {
            ptx_fault_warp(b->warp, b->in, b->lane, PTX_FAULT_ASYNC, "a bulk copy arrives in CTA rank %u, which has exited",
                           rank);
            return false;
        }
        if (b->kind == PTX_BULK_IN) {
            if (!for_each_run(b, b->shared, run_in, cta)) return false;
        } else { /* from registers, or from another CTA's shared memory */
            uint8_t *dst = cta->shared + b->shared, *state = cta->shared_state + b->shared;
            memcpy(dst, b->kind == PTX_BULK_VALUE ? b->value : b->source->shared + b->source_offset, b->bytes);
            if (b->kind == PTX_BULK_VALUE) memset(state, PTX_BYTE_DEFINED, b->bytes);
            else memcpy(state, b->source->shared_state + b->source_offset, b->bytes);
        }
        struct ptx_mbarrier *mb = ptx_mbarrier_find(b->warp, b->in, b->lane, cta, b->mbarrier);
        if (!mb || !ptx_mbarrier_complete_tx(b->warp, b->in, b->lane, mb, b->bytes, b->seen)) return false;
    }
    return true;
}

static bool add_hash(struct ptx_bulk *b, struct ptx_cta *cta, const struct run *r)
{
    b->hash_now = ptx_hash_shared(cta, r->offset, r->bytes, b->hash_now);
    return true;
}

static bool source_unchanged(struct ptx_bulk *b)
{
    b->hash_now = 0;
    if (b->kind == PTX_BULK_OUT) for_each_run(b, b->shared, add_hash, b->source);
    else if (b->kind == PTX_BULK_ACROSS) b->hash_now = ptx_hash_shared(b->source, b->source_offset, b->bytes, 0);
    if (b->hash_now == b->hash) return true;
    ptx_fault_warp(b->warp, b->in, b->lane, PTX_FAULT_ASYNC, "the source of a bulk copy changed while the copy was reading it");
    return false;
}

static bool perform(struct ptx_bulk *b)
{
    if (b->performed) return true;
    b->performed = true;
    b->warp->m->progress++;
    if (!source_unchanged(b)) return false;
    return b->kind == PTX_BULK_OUT ? for_each_run(b, b->shared, run_out, b->source) : perform_in(b);
}

static void unlink_bulk(struct ptx_cluster *c, struct ptx_bulk *b)
{
    struct ptx_bulk **p = &c->bulks;
    while (*p != b) p = &(*p)->next;
    *p = b->next;
    c->bulks_end = &c->bulks;
    while (*c->bulks_end) c->bulks_end = &(*c->bulks_end)->next;
    free(b->seen);
    free(b);
}

bool ptx_bulk_step(struct ptx_cluster *c)
{
    for (struct ptx_bulk *b = c->bulks; b; b = b->next)
        if (b->kind != PTX_BULK_OUT) {
            perform(b);
            unlink_bulk(c, b);
            return true;
        }
    for (unsigned i = 0; i < c->n_ctas; i++)
        for (int j = 0; j < c->ctas[i].n_warps; j++)
            if (ptx_copies_step(&c->ctas[i].warps[j])) return true;
    return false;
}

void ptx_cluster_async_free(struct ptx_cluster *c)
{
    while (c->bulks) unlink_bulk(c, c->bulks);
}

void ptx_bulk_check_exit(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct ptx_cta *cta = w->cta;
    if (cta->live_warps) return;
    for (struct ptx_bulk *b = cta->cluster->bulks; b; b = b->next) {
        bool reads = b->kind != PTX_BULK_VALUE && b->source == cta;
        bool writes = b->kind != PTX_BULK_OUT && b->ranks >> cta->rank & 1;
        if (!reads && !writes) continue;
        ptx_fault_warp(w, in, -1, PTX_FAULT_ASYNC, "the CTA exits while a bulk copy of PTX line %d %s its shared memory",
                       b->in->line, reads ? "reads" : "writes");
        return;
    }
}

/* ---- issuing ---- */

static bool run_check_in(struct ptx_bulk *b, struct ptx_cta *cta, const struct run *r)
{
    struct ptx_warp *w = b->warp;
    uint8_t *data, *state;
    if (b->kind == PTX_BULK_IN && r->inside) {
        struct ptx_alloc *a;
        if (!global_range(b, r, &data, &state, &a)) return false;
        if (!ptx_race_global(w, b->in, b->lane, a, (size_t)(r->address - a->base), r->bytes, false, false)) return false;
    }
    uint8_t *s = cta->shared_state + r->offset;
    for (uint32_t i = 0; i < r->bytes; i++)
        if (s[i] == PTX_BYTE_IN_FLIGHT) {
            ptx_fault_warp(w, b->in, b->lane, PTX_FAULT_ASYNC,
                           "a bulk copy to shared address %u, to which another is still in flight", r->offset + i);
            return false;
        }
    if (!ptx_race_write(w, b->in, b->lane, cta, r->offset, r->bytes, PTX_ASYNC_PROXY)) return false;
    for (uint32_t i = r->offset / 4; i <= (r->offset + r->bytes - 1) / 4; i++) {
        cta->cells[i].write.agent = (uint16_t)(bulk_agent(w) + 1);
        cta->cells[i].write.clock = b->clock;
        cta->cells[i].write.lane = PTX_SEVERAL_LANES;
    }
    memset(s, PTX_BYTE_IN_FLIGHT, r->bytes);
    return true;
}

static bool run_check_out(struct ptx_bulk *b, struct ptx_cta *cta, const struct run *r)
{
    struct ptx_warp *w = b->warp;
    for (uint32_t i = 0; i < r->bytes; i++)
        if (cta->shared_state[r->offset + i] == PTX_BYTE_IN_FLIGHT) {
            ptx_fault_warp(w, b->in, b->lane, PTX_FAULT_ASYNC, "a bulk copy reads shared address %u while another to it is in "
                           "flight", r->offset + i);
            return false;
        }
    return ptx_race_read(w, b->in, b->lane, cta, r->offset, r->bytes, PTX_ASYNC_PROXY);
}

static bool check_destinations(struct ptx_bulk *b)
{
    struct ptx_warp *w = b->warp;
    struct ptx_cluster *c = w->cta->cluster;
    for (unsigned rank = 0; rank < 32; rank++) {
        if (!(b->ranks >> rank & 1)) continue;
        if (rank >= c->n_ctas) {
            ptx_fault_warp(w, b->in, b->lane, PTX_FAULT_BOUNDS, "a bulk copy to CTA %u of a cluster of %u", rank, c->n_ctas);
            return false;
        }
        struct ptx_cta *cta = &c->ctas[rank];
        if (!ptx_shared_range(w, b->in, b->lane, cta, b->shared, b->bytes)) return false;
        struct ptx_mbarrier *mb = ptx_mbarrier_find(w, b->in, b->lane, cta, b->mbarrier);
        if (!mb) return false;
        if (!mb->fenced && !w->m->options.no_races) {
            ptx_fault_warp(w, b->in, b->lane, PTX_FAULT_RACE,
                           "the mbarrier at %u was initialised without fence.mbarrier_init or a proxy fence", mb->offset);
            return false;
        }
        if (!for_each_run(b, b->shared, run_check_in, cta)) return false;
    }
    return true;
}

static bool issue(struct ptx_bulk *b)
{
    struct ptx_warp *w = b->warp;
    struct ptx_cluster *c = w->cta->cluster;
    struct ptx_bulk *copy = NULL;
    b->clock = c->async_clock++;
    b->group = w->bulk_group[b->lane];
    b->hash_now = 0;
    bool ok = true;
    if (b->kind == PTX_BULK_OUT) {
        ok = ptx_shared_range(w, b->in, b->lane, b->source, b->shared, b->bytes) &&
             for_each_run(b, b->shared, run_check_out, b->source) && for_each_run(b, b->shared, add_hash, b->source);
    } else {
        if (b->kind == PTX_BULK_ACROSS) {
            ok = ptx_shared_range(w, b->in, b->lane, b->source, b->source_offset, b->bytes) &&
                 run_check_out(b, b->source, &(struct run){b->source_offset, 0, b->bytes, true});
            if (ok) b->hash_now = ptx_hash_shared(b->source, b->source_offset, b->bytes, 0);
        }
        ok = ok && check_destinations(b);
    }
    b->hash = b->hash_now;
    if (!ok) return false;
    copy = malloc(sizeof *copy);
    struct ptx_seen *seen = calloc(w->m->n_agents, sizeof *seen);
    if (!copy || !seen) {
        free(copy);
        free(seen);
        ptx_fault_at(w->m, PTX_FAULT_MEMORY, 0, "out of host memory");
        return false;
    }
    seen[bulk_agent(w)].full = b->clock;
    *copy = *b;
    copy->next = NULL;
    copy->seen = seen;
    *c->bulks_end = copy;
    c->bulks_end = &copy->next;
    w->m->counters.async_bytes += b->bytes;
    if (!w->m->options.early) return true;
    if (!perform(copy)) return false;
    if (copy->kind != PTX_BULK_OUT) unlink_bulk(c, copy);
    return true;
}

/* The CTA and offset that a shared address operand means. */
static struct ptx_cta *shared_operand(struct ptx_bulk *b, const struct ptx_operand *o, bool cluster, uint32_t align,
                                      uint32_t *out_offset)
{
    uint64_t a = ptx_address(b->warp, o, b->lane);
    if (a % align) {
        ptx_fault_warp(b->warp, b->in, b->lane, PTX_FAULT_ALIGN, "shared address %#llx is not a multiple of %u",
                       (unsigned long long)a, align);
        return NULL;
    }
    return ptx_shared_cta(b->warp, b->in, b->lane, a, cluster, out_offset);
}

static bool mbarrier_operand(struct ptx_bulk *b, const struct ptx_operand *o, const struct ptx_cta *destination)
{
    struct ptx_cta *cta = shared_operand(b, o, true, 8, &b->mbarrier);
    if (!cta) return false;
    if (cta == destination) return true;
    ptx_fault_warp(b->warp, b->in, b->lane, PTX_FAULT_ASYNC, "the mbarrier of a bulk copy is in another CTA than its destination");
    return false;
}

static bool size_operand(struct ptx_bulk *b, const struct ptx_operand *o)
{
    b->bytes = (uint32_t)ptx_get(b->warp, o->reg, b->lane);
    if (b->bytes && b->bytes % 16 == 0 && b->bytes <= 232448) return true;
    ptx_fault_warp(b->warp, b->in, b->lane, PTX_FAULT_ALIGN, "a bulk copy of %u bytes: not a multiple of 16", b->bytes);
    return false;
}

static bool defined_operands(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    for (int i = 0; i < in->n_ops; i++) {
        const struct ptx_operand *o = &in->ops[i];
        if (o->reg >= 0 && !ptx_need_defined(w, in, o->reg, mask, "an operand of a bulk copy")) return false;
        for (int j = 0; j < o->n; j++)
            if (!ptx_need_defined(w, in, o->regs[j], mask, "an operand of a bulk copy")) return false;
    }
    return true;
}

/* [dst], [src], bytes [, [mbarrier]] [, CTA mask] [, policy] */
static bool bulk_lane(struct ptx_warp *w, const struct ptx_insn *in, int lane)
{
    struct ptx_bulk b = {.warp = w, .in = in, .lane = lane};
    bool to_global = in->spaces[0] == PTX_SPACE_GLOBAL, across = !to_global && in->spaces[1] == PTX_SPACE_SHARED;
    const struct ptx_operand *global = &in->ops[to_global ? 0 : 1];
    if (in->n_spaces < 2 || !size_operand(&b, &in->ops[2])) {
        ptx_unsupported(w, in);
        return false;
    }
    if (!across) {
        b.global = ptx_address(w, global, lane);
        if (b.global % 16) {
            ptx_fault_warp(w, in, lane, PTX_FAULT_ALIGN, "global address %#llx is not a multiple of 16",
                           (unsigned long long)b.global);
            return false;
        }
    }
    if (to_global) {
        b.kind = PTX_BULK_OUT;
        b.source = shared_operand(&b, &in->ops[1], false, 16, &b.shared);
        return b.source && issue(&b);
    }
    b.kind = across ? PTX_BULK_ACROSS : PTX_BULK_IN;
    struct ptx_cta *dst = shared_operand(&b, &in->ops[0], true, 16, &b.shared);
    if (across) b.source = shared_operand(&b, &in->ops[1], false, 16, &b.source_offset);
    if (!dst || (across && !b.source) || !mbarrier_operand(&b, &in->ops[3], dst)) return false;
    b.ranks = 1u << dst->rank;
    if (in->flags & PTX_F_MULTICAST) b.ranks = (uint32_t)ptx_get(w, in->ops[4].reg, lane) & 0xffff;
    return issue(&b);
}

void ptx_x_bulk(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (!defined_operands(w, in, mask)) return;
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1 && !bulk_lane(w, in, l)) return;
}

static bool read_map(struct ptx_bulk *b, const struct ptx_operand *o)
{
    struct ptx_place p;
    struct ptx_tensor_map *t = &b->map;
    bool defined;
    if (!ptx_place(b->warp, b->in, b->lane, PTX_SPACE_GENERIC, ptx_address(b->warp, o, b->lane), sizeof *t, 64, &p) ||
        !ptx_place_read(b->warp, b->in, b->lane, &p, sizeof *t, false, &defined))
        return false;
    memcpy(t, p.data, sizeof *t);
    uint64_t bytes = t->magic == PTX_TENSOR_MAP_MAGIC ? t->elem_bytes : 0;
    for (int i = 0; i < t->rank && i < 5 && bytes; i++) bytes = t->box[i] <= 256 ? bytes * t->box[i] : 0;
    if (!defined || !bytes || bytes > 232448 || t->rank < 1 || t->rank > 5 || t->rank != b->in->count || o->n != t->rank) {
        ptx_fault_warp(b->warp, b->in, b->lane, PTX_FAULT_ASYNC, "not a tensor map of %u dimensions", b->in->count);
        return false;
    }
    uint32_t row = t->box[0] * t->elem_bytes, span = 16u << t->swizzle;
    if (t->interleave || (t->swizzle && row != span && bytes != row)) {
        ptx_fault_warp(b->warp, b->in, b->lane, PTX_FAULT_PARSE, "this layout of a tensor map is not supported");
        return false;
    }
    b->bytes = (uint32_t)bytes;
    for (int i = 0; i < t->rank; i++) b->coord[i] = (int32_t)ptx_get(b->warp, o->regs[i], b->lane);
    return true;
}

/* In: [dst], [map, {coordinates}], [mbarrier] [, CTA mask] [, policy]. Out: [map, {coordinates}], [src]. */
static bool tensor_lane(struct ptx_warp *w, const struct ptx_insn *in, int lane)
{
    struct ptx_bulk b = {.warp = w, .in = in, .lane = lane, .tensor = true};
    bool to_global = in->spaces[0] == PTX_SPACE_GLOBAL;
    if (in->n_spaces < 2 || !read_map(&b, &in->ops[to_global ? 0 : 1])) {
        ptx_unsupported(w, in);
        return false;
    }
    if (to_global) {
        b.kind = PTX_BULK_OUT;
        b.source = shared_operand(&b, &in->ops[1], false, 128, &b.shared);
        return b.source && issue(&b);
    }
    b.kind = PTX_BULK_IN;
    struct ptx_cta *dst = shared_operand(&b, &in->ops[0], true, 128, &b.shared);
    if (!dst || !mbarrier_operand(&b, &in->ops[2], dst)) return false;
    b.ranks = 1u << dst->rank;
    if (in->flags & PTX_F_MULTICAST) b.ranks = (uint32_t)ptx_get(w, in->ops[3].reg, lane) & 0xffff;
    return issue(&b);
}

void ptx_x_bulk_tensor(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    if (!defined_operands(w, in, mask)) return;
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1 && !tensor_lane(w, in, l)) return;
}

void ptx_x_bulk_commit(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    (void)in;
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) w->bulk_group[l]++;
}

void ptx_x_bulk_wait(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    unsigned keep = (unsigned)ptx_get(w, in->ops[0].reg, 0);
    struct ptx_cluster *c = w->cta->cluster;
    for (struct ptx_bulk *b = c->bulks, *next; b; b = next) {
        next = b->next;
        if (b->kind != PTX_BULK_OUT || b->warp != w || !(mask >> b->lane & 1)) continue;
        if (w->bulk_group[b->lane] < keep || b->group >= w->bulk_group[b->lane] - keep) continue;
        if (!perform(b)) return;
        unlink_bulk(c, b);
    }
}

/* [dst], value, [mbarrier] */
void ptx_x_st_async(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask)
{
    const struct ptx_operand *v = &in->ops[1];
    unsigned bytes = ptx_types[in->types[0]].bytes, n = v->n ? (unsigned)v->n : 1;
    if (!defined_operands(w, in, mask)) return;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        struct ptx_bulk b = {.warp = w, .in = in, .lane = l, .kind = PTX_BULK_VALUE, .bytes = bytes * n};
        struct ptx_cta *dst = shared_operand(&b, &in->ops[0], true, bytes * n, &b.shared);
        if (!dst || !mbarrier_operand(&b, &in->ops[2], dst)) return;
        for (unsigned i = 0; i < n; i++) {
            uint64_t x = ptx_get(w, v->n ? v->regs[i] : v->reg, l);
            memcpy(b.value + i * bytes, &x, bytes);
        }
        b.ranks = 1u << dst->rank;
        if (!issue(&b)) return;
    }
}
