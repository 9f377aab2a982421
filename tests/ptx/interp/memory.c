// SPDX-License-Identifier: Apache-2.0
/*
 * Device memory. Addresses are numbers that no host pointer equals; an address is never given out twice,
 * so that use after free shows. Every byte has a state beside it.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/interp/machine.h"

enum { GUARD_BYTES = 4096, POISON = 0xfb, POISON_LIMIT = 64 << 20 };

/* `rounded` bytes of host memory behind `bytes` of the device's. */
static bool place_alloc(struct ptx_machine *m, uint64_t address, size_t bytes, size_t rounded)
{
    if (m->n_allocs == m->cap_allocs) {
        size_t cap = m->cap_allocs ? m->cap_allocs * 2 : 64;
        struct ptx_alloc *grown = realloc(m->allocs, cap * sizeof *grown);
        if (!grown) goto no_memory;
        m->allocs = grown;
        m->cap_allocs = cap;
    }
    struct ptx_alloc a = {.base = address, .bytes = bytes, .live = true};
    a.data = calloc(1, rounded);
    a.state = calloc(1, rounded);
    if (!a.data || !a.state) {
        free(a.data);
        free(a.state);
        goto no_memory;
    }
    if (rounded <= POISON_LIMIT) memset(a.data, POISON, rounded);
    m->allocs[m->n_allocs++] = a;
    m->next_base = (address + rounded + GUARD_BYTES + 4095) & ~(uint64_t)4095;
    m->used_bytes += (bytes + 255) & ~(size_t)255;
    return true;
no_memory:
    ptx_fault_at(m, PTX_FAULT_MEMORY, 0, "out of host memory for %zu bytes", bytes);
    return false;
}

uint64_t ptx_mem_alloc(struct ptx_machine *m, size_t bytes)
{
    size_t rounded = (bytes + 255) & ~(size_t)255;
    if (!bytes || rounded < bytes || rounded > m->options.memory_bytes ||
        m->used_bytes > m->options.memory_bytes - rounded) {
        ptx_fault_at(m, PTX_FAULT_MEMORY, 0, "out of device memory: %zu bytes asked for, %llu of %llu in use", bytes,
                     (unsigned long long)m->used_bytes, (unsigned long long)m->options.memory_bytes);
        return 0;
    }
    uint64_t at = m->next_base;
    return place_alloc(m, at, bytes, rounded) ? at : 0;
}

uint64_t ptx_mem_next(const struct ptx_machine *m) { return m->next_base; }

bool ptx_mem_place(struct ptx_machine *m, uint64_t address, size_t bytes)
{
    if (!bytes || bytes > m->options.memory_bytes || address < m->next_base) {
        ptx_fault_at(m, PTX_FAULT_MEMORY, 0, "%zu bytes cannot be placed at %#llx", bytes, (unsigned long long)address);
        return false;
    }
    return place_alloc(m, address, bytes, bytes);
}

/* The allocation whose address range, guard included, holds the address. */
static struct ptx_alloc *find_any(const struct ptx_machine *m, uint64_t address)
{
    size_t lo = 0, hi = m->n_allocs;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (m->allocs[mid].base <= address) lo = mid + 1;
        else hi = mid;
    }
    return lo ? &m->allocs[lo - 1] : NULL;
}

struct ptx_alloc *ptx_alloc_find(struct ptx_machine *m, uint64_t address, uint64_t bytes)
{
    if (m->last_alloc < m->n_allocs) {
        struct ptx_alloc *a = &m->allocs[m->last_alloc];
        if (a->live && address >= a->base && address - a->base <= a->bytes && bytes <= a->bytes - (address - a->base))
            return a;
    }
    struct ptx_alloc *a = find_any(m, address);
    if (!a || !a->live || address - a->base > a->bytes || bytes > a->bytes - (address - a->base)) return NULL;
    m->last_alloc = (size_t)(a - m->allocs);
    return a;
}

bool ptx_mem_free(struct ptx_machine *m, uint64_t address)
{
    struct ptx_alloc *a = find_any(m, address);
    if (!a || a->base != address || !a->live) {
        ptx_fault_at(m, PTX_FAULT_BOUNDS, 0, "free of %#llx, which is not allocated", (unsigned long long)address);
        return false;
    }
    free(a->data);
    free(a->state);
    free(a->owner);
    free(a->seen);
    free(a->touched);
    a->seen = NULL;
    a->touched = NULL;
    a->data = a->state = NULL;
    a->owner = NULL;
    a->live = false;
    m->used_bytes -= (a->bytes + 255) & ~(size_t)255;
    return true;
}

bool ptx_mem_find(const struct ptx_machine *m, uint64_t address, uint64_t *out_base, size_t *out_bytes)
{
    struct ptx_alloc *a = find_any(m, address);
    if (!a || !a->live || address - a->base >= a->bytes) return false;
    *out_base = a->base;
    *out_bytes = a->bytes;
    return true;
}

uint64_t ptx_mem_used(const struct ptx_machine *m) { return m->used_bytes; }

static struct ptx_alloc *host_range(struct ptx_machine *m, uint64_t address, size_t bytes, const char *what)
{
    struct ptx_alloc *a = ptx_alloc_find(m, address, bytes);
    if (!a)
        ptx_fault_at(m, PTX_FAULT_BOUNDS, 0, "%s of %zu bytes at %#llx is not inside of one allocation", what, bytes,
                     (unsigned long long)address);
    return a;
}

/* What the host or a copy wrote is nobody's in the running launch. */
static void forget_owner(struct ptx_alloc *a, size_t offset, size_t bytes)
{
    size_t at = ptx_cell_offset(a, offset);
    if (a->owner && bytes) memset(&a->owner[at / 4], 0, ((at + bytes + 3) / 4 - at / 4) * sizeof *a->owner);
}

bool ptx_mem_write(struct ptx_machine *m, uint64_t dst, const void *src, size_t bytes)
{
    struct ptx_alloc *a = host_range(m, dst, bytes, "write");
    if (!a) return false;
    size_t at = (size_t)(dst - a->base);
    if (bytes) memcpy(a->data + at, src, bytes);
    memset(a->state + at, PTX_BYTE_DEFINED, bytes);
    forget_owner(a, at, bytes);
    return true;
}

bool ptx_mem_read(struct ptx_machine *m, void *dst, uint64_t src, size_t bytes)
{
    struct ptx_alloc *a = host_range(m, src, bytes, "read");
    if (!a) return false;
    if (bytes) memcpy(dst, a->data + (src - a->base), bytes);
    return true;
}

bool ptx_mem_copy(struct ptx_machine *m, uint64_t dst, uint64_t src, size_t bytes)
{
    struct ptx_alloc *a = host_range(m, src, bytes, "copy from"), *b = host_range(m, dst, bytes, "copy to");
    if (!a || !b) return false;
    memmove(b->data + (dst - b->base), a->data + (src - a->base), bytes);
    memmove(b->state + (dst - b->base), a->state + (src - a->base), bytes);
    forget_owner(b, (size_t)(dst - b->base), bytes);
    return true;
}

bool ptx_mem_fill(struct ptx_machine *m, uint64_t dst, uint64_t pattern, unsigned pattern_bytes, size_t count)
{
    size_t bytes;
    if (!size_mul(count, pattern_bytes, &bytes)) return false;
    struct ptx_alloc *a = host_range(m, dst, bytes, "fill");
    if (!a) return false;
    size_t at = (size_t)(dst - a->base);
    for (size_t i = 0; i < count; i++) memcpy(a->data + at + i * pattern_bytes, &pattern, pattern_bytes);
    memset(a->state + at, PTX_BYTE_DEFINED, bytes);
    forget_owner(a, at, bytes);
    return true;
}

size_t ptx_mem_undefined(struct ptx_machine *m, uint64_t src, size_t bytes)
{
    struct ptx_alloc *a = ptx_alloc_find(m, src, bytes);
    size_t n = 0;
    if (!a) return bytes;
    for (size_t i = 0; i < bytes; i++) n += a->state[src - a->base + i] != PTX_BYTE_DEFINED;
    return n;
}

/* ---- what a launch touched ---- */

void ptx_touch(struct ptx_alloc *a, size_t offset, size_t bytes, unsigned how)
{
    if (!a->touched && !(a->touched = calloc(1, a->bytes))) return; /* whoever asks is told of no touch */
    for (size_t i = 0; i < bytes; i++) a->touched[offset + i] |= (uint8_t)how;
}

void ptx_touches_clear(struct ptx_machine *m)
{
    for (size_t i = 0; i < m->n_allocs; i++)
        if (m->allocs[i].touched) memset(m->allocs[i].touched, 0, m->allocs[i].bytes);
}

bool ptx_mem_touched(struct ptx_machine *m, uint8_t *out, uint64_t src, size_t bytes)
{
    struct ptx_alloc *a = host_range(m, src, bytes, "touched");
    if (!a) return false;
    size_t at = (size_t)(src - a->base);
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)((a->touched ? a->touched[at + i] : 0) | (a->state[at + i] == PTX_BYTE_DEFINED ? PTX_DEFINED : 0));
    return true;
}

/* ---- accesses of kernels ---- */

static const char *space_name(enum ptx_space s)
{
    static const char *const names[] = {"generic", "global", "constant", "shared", "cluster shared", "local",
                                        "parameter"};
    return names[s];
}

struct ptx_cta *ptx_shared_cta(struct ptx_warp *w, const struct ptx_insn *in, int lane, uint64_t address,
                               bool cluster, uint32_t *out_offset)
{
    uint32_t a = (uint32_t)address, rank = a >> PTX_RANK_SHIFT;
    *out_offset = a & ((1u << PTX_RANK_SHIFT) - 1);
    if (!rank) return w->cta;
    struct ptx_cluster *c = w->cta->cluster;
    if (rank - 1 >= c->n_ctas || (!cluster && rank - 1 != w->cta->rank)) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_BOUNDS, "shared address %#x is not in %s", a,
                       cluster ? "the cluster" : "this CTA");
        return NULL;
    }
    struct ptx_cta *cta = &c->ctas[rank - 1];
    if (cta != w->cta && !cta->live_warps) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_BOUNDS, "shared memory of CTA rank %u, which has exited", rank - 1);
        return NULL;
    }
    return cta;
}

bool ptx_shared_range(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta,
                      uint32_t offset, uint32_t bytes)
{
    uint32_t end = PTX_SHARED_BASE + cta->shared_bytes;
    if (offset >= PTX_SHARED_BASE && offset <= end && bytes <= end - offset) return true;
    ptx_fault_warp(w, in, lane, PTX_FAULT_BOUNDS, "%u bytes at shared address %u; the CTA has %u bytes from %u", bytes,
                   offset, cta->shared_bytes, PTX_SHARED_BASE);
    return false;
}

static bool place_shared(struct ptx_warp *w, const struct ptx_insn *in, int lane, bool cluster, uint64_t address,
                         uint32_t bytes, struct ptx_place *out)
{
    out->cta = ptx_shared_cta(w, in, lane, address, cluster, &out->offset);
    if (!out->cta || !ptx_shared_range(w, in, lane, out->cta, out->offset, bytes)) return false;
    out->space = PTX_SPACE_SHARED;
    out->data = out->cta->shared + out->offset;
    out->state = out->cta->shared_state + out->offset;
    return true;
}

static bool place_global(struct ptx_warp *w, const struct ptx_insn *in, int lane, uint64_t address, uint32_t bytes,
                         struct ptx_place *out)
{
    struct ptx_alloc *a = ptx_alloc_find(w->m, address, bytes);
    if (!a) {
        struct ptx_alloc *near = find_any(w->m, address);
        if (near && !near->live && address - near->base < near->bytes)
            ptx_fault_warp(w, in, lane, PTX_FAULT_BOUNDS, "access to freed memory at %#llx", (unsigned long long)address);
        else if (near && address - near->base < near->bytes + GUARD_BYTES * 4)
            ptx_fault_warp(w, in, lane, PTX_FAULT_BOUNDS,
                           "%u bytes at offset %llu of a global allocation of %zu", bytes,
                           (unsigned long long)(address - near->base), near->bytes);
        else
            ptx_fault_warp(w, in, lane, PTX_FAULT_BOUNDS, "%u bytes at global address %#llx, where nothing is allocated",
                           bytes, (unsigned long long)address);
        return false;
    }
    out->space = PTX_SPACE_GLOBAL;
    out->alloc = a;
    out->data = a->data + (address - a->base);
    out->state = a->state + (address - a->base);
    return true;
}

static bool place_private(struct ptx_warp *w, const struct ptx_insn *in, int lane, enum ptx_space space,
                          uint64_t offset, uint32_t bytes, struct ptx_place *out)
{
    uint64_t size = space == PTX_SPACE_LOCAL ? w->k->local_bytes : w->k->param_bytes;
    if (offset > size || bytes > size - offset) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_BOUNDS, "%u bytes at %s address %llu of %llu", bytes, space_name(space),
                       (unsigned long long)offset, (unsigned long long)size);
        return false;
    }
    out->space = space;
    if (space == PTX_SPACE_LOCAL) {
        size_t at = (size_t)lane * w->k->local_bytes + (size_t)offset;
        out->data = w->local + at;
        out->state = w->local_state + at;
    } else {
        out->data = w->m->params + offset;
    }
    return true;
}

bool ptx_place(struct ptx_warp *w, const struct ptx_insn *in, int lane, enum ptx_space space, uint64_t address,
               uint32_t bytes, uint32_t align, struct ptx_place *out)
{
    *out = (struct ptx_place){0};
    if (address % align) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_ALIGN, "address %#llx is not a multiple of %u",
                       (unsigned long long)address, align);
        return false;
    }
    if (space == PTX_SPACE_GENERIC) {
        uint64_t top = address >> 48 << 48, low = address - top;
        if (top == PTX_SHARED_WINDOW) return place_shared(w, in, lane, true, low, bytes, out);
        if (top == PTX_LOCAL_WINDOW) return place_private(w, in, lane, PTX_SPACE_LOCAL, low, bytes, out);
        if (top == PTX_PARAM_WINDOW) return place_private(w, in, lane, PTX_SPACE_PARAM, low, bytes, out);
        return place_global(w, in, lane, address, bytes, out);
    }
    switch (space) {
    case PTX_SPACE_SHARED:
    case PTX_SPACE_CLUSTER: return place_shared(w, in, lane, space == PTX_SPACE_CLUSTER, address, bytes, out);
    case PTX_SPACE_LOCAL:
    case PTX_SPACE_PARAM: return place_private(w, in, lane, space, address, bytes, out);
    default: return place_global(w, in, lane, address, bytes, out);
    }
}

static bool all_defined(const uint8_t *state, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        if (state[i] != PTX_BYTE_DEFINED) return false;
    return true;
}

static bool any_in_flight(const uint8_t *state, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        if (state[i] == PTX_BYTE_IN_FLIGHT) return true;
    return false;
}

bool ptx_place_read(struct ptx_warp *w, const struct ptx_insn *in, int lane, const struct ptx_place *p,
                    uint32_t bytes, bool atomic, bool *out_defined)
{
    *out_defined = !p->state || all_defined(p->state, bytes);
    if (p->space == PTX_SPACE_SHARED) {
        if (!*out_defined && any_in_flight(p->state, bytes)) {
            ptx_fault_warp(w, in, lane, PTX_FAULT_ASYNC,
                           "reads shared address %u while an asynchronous copy to it is not waited for", p->offset);
            return false;
        }
        return ptx_race_read(w, in, lane, p->cta, p->offset, bytes, atomic ? PTX_ATOMIC : 0);
    }
    if (p->space == PTX_SPACE_GLOBAL)
        return ptx_race_global(w, in, lane, p->alloc, (size_t)(p->data - p->alloc->data), bytes, false, atomic);
    return true;
}

bool ptx_place_write(struct ptx_warp *w, const struct ptx_insn *in, int lane, const struct ptx_place *p,
                     uint32_t bytes, bool atomic, bool defined)
{
    if (p->space == PTX_SPACE_PARAM) {
        ptx_fault_warp(w, in, lane, PTX_FAULT_BOUNDS, "store to a kernel's parameter");
        return false;
    }
    if (p->space == PTX_SPACE_SHARED) {
        if (!all_defined(p->state, bytes) && any_in_flight(p->state, bytes)) {
            ptx_fault_warp(w, in, lane, PTX_FAULT_ASYNC,
                           "writes shared address %u while an asynchronous copy to it is not waited for", p->offset);
            return false;
        }
        if (!ptx_race_write(w, in, lane, p->cta, p->offset, bytes, atomic ? PTX_ATOMIC : 0)) return false;
    } else if (p->space == PTX_SPACE_GLOBAL) {
        if (!ptx_race_global(w, in, lane, p->alloc, (size_t)(p->data - p->alloc->data), bytes, true, atomic)) return false;
    }
    memset(p->state, defined ? PTX_BYTE_DEFINED : PTX_BYTE_UNDEFINED, bytes);
    if (!atomic) w->m->progress++;
    return true;
}

/* ---- counters ---- */

static void count_distinct(struct ptx_machine *m, uint64_t sector)
{
    struct ptx_alloc *a = ptx_alloc_find(m, sector * 32, 1);
    if (!a) return;
    if (!a->seen && !(a->seen = calloc(a->bytes / 32 + 2, sizeof *a->seen))) return;
    uint32_t *seen = &a->seen[sector - a->base / 32];
    if (*seen != m->launch_serial) m->counters.global_distinct++;
    *seen = m->launch_serial;
}

void ptx_count_global(struct ptx_machine *m, const uint64_t *address, uint32_t mask, uint32_t bytes)
{
    uint64_t sectors[64];
    int n = 0;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        m->counters.global_bytes += bytes;
        for (uint64_t s = address[l] / 32; s <= (address[l] + bytes - 1) / 32; s++) {
            int i = n;
            while (i > 0 && sectors[i - 1] != s) i--;
            if (i == 0 && n < 64) sectors[n++] = s;
        }
    }
    m->counters.global_sectors += (uint64_t)n;
    for (int i = 0; i < n; i++) count_distinct(m, sectors[i]);
}

/* A phase is what one wavefront could serve: 32 lanes of 4 bytes, 16 of 8, 8 of 16. It takes as many
 * wavefronts as the fullest bank holds different words. */
void ptx_count_shared(struct ptx_machine *m, const uint64_t *address, uint32_t mask, uint32_t bytes)
{
    int per = bytes >= 16 ? 8 : bytes == 8 ? 16 : 32;
    for (int begin = 0; begin < 32; begin += per) {
        uint32_t words[32][32];
        int count[32] = {0}, most = 0;
        for (int l = begin; l < begin + per; l++) {
            if (!(mask >> l & 1)) continue;
            for (uint32_t k = 0; k < (bytes + 3) / 4; k++) {
                uint32_t word = (uint32_t)(address[l] >> 2) + k, bank = word & 31;
                int i = 0;
                while (i < count[bank] && words[bank][i] != word) i++;
                if (i == count[bank] && i < 32) words[bank][count[bank]++] = word;
                if (count[bank] > most) most = count[bank];
            }
        }
        if (most) {
            m->counters.shared_phases++;
            m->counters.shared_wavefronts += (uint64_t)most;
        }
    }
}
