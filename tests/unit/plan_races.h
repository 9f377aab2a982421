// SPDX-License-Identifier: Apache-2.0
/*
 * Do launches that the runtime lets run at once touch each other's memory? The runtime's rules, restated: workers meet before a
 * launch marked so, unless it is one worker's like all since they met, or all since they met were done by each. Then every two
 * launches between two meetings are compared, range by range, by where their buffers lie.
 */
#ifndef INFC_TESTS_UNIT_PLAN_RACES_H
#define INFC_TESTS_UNIT_PLAN_RACES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/plan.h"

enum { RACES_MOST = 512 };

enum races_mode { RACES_ONE, RACES_EACH, RACES_ALL };

struct races {
    const struct plan *p;
    const int64_t *sizes;
    enum infr_isa isa;
    uint64_t (*place)[2];
    const struct plan_launch *since[RACES_MOST];
    enum races_mode mode[RACES_MOST];
    int n;
    bool put_off, alone, each;
    bool *own; /* a buffer */
    char *note;
    size_t note_bytes;
};

static enum races_mode races_mode(const struct races *r, const struct plan_launch *l)
{
    int64_t n = 0;
    if (!dim_eval(r->p->module->dims, l->slices[r->isa], r->sizes, &n)) return RACES_ALL;
    return n > 1 ? RACES_ALL : l->each && n == 1 && !l->claim ? RACES_EACH : RACES_ONE;
}

static void races_meet(struct races *r)
{
    r->n = 0, r->put_off = false, r->alone = r->each = true;
}

static bool races_overlap(const struct races *r, int a, int b)
{
    const struct plan_buf *x = &r->p->bufs.v[a], *y = &r->p->bufs.v[b];
    if (a == b) return x->kind != INFR_BUF_CONST && !r->own[a];
    if (x->kind != INFR_BUF_ARENA || y->kind != INFR_BUF_ARENA || r->own[a] || r->own[b]) return false;
    return r->place[a][0] < r->place[b][0] + r->place[b][1] && r->place[b][0] < r->place[a][0] + r->place[a][1];
}

static bool races_alike(const struct plan_launch *a, int i, const struct plan_launch *b, int k, enum infr_isa isa)
{
    const struct plan_arg *x = &a->args[i], *y = &b->args[k];
    return x->buf == y->buf && x->cut && y->cut && !strcmp(x->cut, y->cut) && a->slices[isa] == b->slices[isa] && !a->claim && !b->claim;
}

static bool races_pair(struct races *r, const struct plan_launch *a, enum races_mode am, const struct plan_launch *b, enum races_mode bm)
{
    if ((am == RACES_ONE && bm == RACES_ONE) || (am == RACES_EACH && bm == RACES_EACH)) return false;
    for (int i = 0; i < a->n_args; i++)
        for (int k = 0; k < b->n_args; k++) {
            if (i < a->n_read && k < b->n_read) continue;
            if (!races_overlap(r, a->args[i].buf, b->args[k].buf) || races_alike(a, i, b, k, r->isa)) continue;
            snprintf(r->note, r->note_bytes, "%s (%s) and %s (%s): buffers %d and %d", r->p->kernels.v[a->kernel].name, a->loc,
                     r->p->kernels.v[b->kernel].name, b->loc, a->args[i].buf, b->args[k].buf);
            return true;
        }
    return false;
}

static bool races_launch(struct races *r, const struct plan_launch *l)
{
    enum races_mode mode = races_mode(r, l);
    if (l->barrier || r->put_off) {
        if (mode == RACES_ONE && r->alone) r->put_off = true;
        else if (mode == RACES_ONE || !r->each) races_meet(r);
    }
    for (int i = 0; i < r->n; i++)
        if (races_pair(r, r->since[i], r->mode[i], l, mode)) return true;
    if (r->n < RACES_MOST) r->since[r->n] = l, r->mode[r->n++] = mode;
    if (mode != RACES_ONE) r->alone = false;
    if (mode != RACES_EACH) r->each = false;
    return false;
}

static bool races_block(struct races *r, const struct plan_block *b)
{
    for (size_t i = 0; i < b->steps.n; i++) {
        const struct plan_step *s = &b->steps.v[i];
        if (s->kind == INFR_STEP_LAUNCH && races_launch(r, s->launch)) return true;
        if (s->kind != INFR_STEP_IF) continue;
        races_meet(r);
        if (races_block(r, s->then_block)) return true;
        struct races then = *r; /* what follows comes behind either branch */
        races_meet(r);
        if (races_block(r, s->else_block)) return true;
        for (int k = 0; k < then.n && r->n < RACES_MOST; k++) r->since[r->n] = then.since[k], r->mode[r->n++] = then.mode[k];
        r->put_off |= then.put_off, r->alone &= then.alone, r->each &= then.each;
    }
    return false;
}

static void races_find_own(struct races *r, const struct plan_block *b)
{
    for (size_t i = 0; i < b->steps.n; i++) {
        const struct plan_step *s = &b->steps.v[i];
        if (s->kind == INFR_STEP_IF) {
            races_find_own(r, s->then_block);
            races_find_own(r, s->else_block);
        }
        if (s->kind != INFR_STEP_LAUNCH || races_mode(r, s->launch) != RACES_EACH) continue;
        for (int a = s->launch->n_read; a < s->launch->n_args; a++) r->own[s->launch->args[a].buf] = true;
    }
}

/* True, with a note, where two launches race at these symbol values on this level. */
static bool plan_races(const struct plan *p, enum infr_isa isa, const int64_t *sizes, char *note, size_t note_bytes)
{
    struct races *r = calloc(1, sizeof *r);
    uint64_t peak, sum;
    *r = (struct races){.p = p, .sizes = sizes, .isa = isa, .note = note, .note_bytes = note_bytes};
    r->place = calloc(p->bufs.n + 1, sizeof *r->place);
    r->own = calloc(p->bufs.n + 1, sizeof *r->own);
    bool bad = false;
    if (plan_arena_layout(p, sizes, r->place, &peak, &sum)) {
        races_find_own(r, p->entry);
        races_meet(r);
        bad = races_block(r, p->entry);
    }
    free(r->own);
    free(r->place);
    free(r);
    return bad;
}

#endif
