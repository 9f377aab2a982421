// SPDX-License-Identifier: Apache-2.0
/*
 * What of a plan must not run at once: barriers between launches, and how long buffers live.
 *
 * Every worker walks all launches and takes its own slices, so a barrier is wanted before a launch that touches what another since
 * the last barrier wrote, or writes what one read. None is wanted for a buffer that slice s of one wrote and slice s of the other
 * reads, where both are cut alike: a worker has the same slices of both. Launches without a barrier between them run at once:
 * they share a position, so that none of their buffers lie in another's place.
 *
 * A launch whose results only launches read can be done by every worker for itself (INFR_ORDER_EACH): the runtime decides, where it
 * has one slice and is small, and then needs no barrier behind it. What it reads stays until the next launch that all share, for a
 * worker may get there while another still reads. Probes do not count: where they do something, it does not.
 */
#include <string.h>

#include "ir/plan.h"

struct access {
    uint32_t written, read; /* stretch: see struct order */
    uint32_t writes;        /* so far */
    const struct plan_launch *writer;
    const struct plan_arg *arg; /* the writer's */
};

struct order {
    struct plan *p;
    struct arena scratch;
    uint32_t at;      /* position */
    uint32_t stretch; /* number of the launches since a barrier, from 1 */
    bool forced;      /* a barrier before the next launch, whatever it touches */
    struct access *bufs;
    uint32_t *writers; /* a buffer: launches that write it; many where a condition is read from it */
    VEC(int) held;     /* buffers that launches of INFR_ORDER_EACH read, up to the next launch that is none */
};

enum { MANY = 1 << 16 };

static void touch(struct plan *p, int buf, uint32_t at)
{
    struct plan_buf *b = &p->bufs.v[buf];
    if (b->first == UINT32_MAX) b->first = at;
    b->last = at;
}

static void count_writers(struct order *o, const struct plan_block *b)
{
    for (size_t i = 0; i < b->steps.n; i++) {
        const struct plan_step *s = &b->steps.v[i];
        if (s->kind == INFR_STEP_LAUNCH) {
            for (int a = s->launch->n_read; a < s->launch->n_args; a++) o->writers[s->launch->args[a].buf]++;
        } else if (s->kind == INFR_STEP_IF) {
            o->writers[s->cond_buf] += MANY;
            count_writers(o, s->then_block);
            count_writers(o, s->else_block);
        }
    }
}

static bool same_slices(const struct plan_launch *a, const struct plan_launch *b)
{
    for (int v = 0; v < INFR_ISA_COUNT; v++)
        if (a->slices[v] != b->slices[v]) return false;
    return !a->claim && !b->claim;
}

static bool conflicts(const struct order *o, const struct plan_launch *l)
{
    for (int i = 0; i < l->n_args; i++) {
        const struct plan_arg *a = &l->args[i];
        const struct access *x = &o->bufs[a->buf];
        if (o->p->bufs.v[a->buf].kind == INFR_BUF_CONST) continue;
        if (i >= l->n_read && (x->read == o->stretch || x->written == o->stretch)) return true;
        if (x->written != o->stretch) continue;
        if (!a->cut || !x->arg->cut || strcmp(a->cut, x->arg->cut) || !same_slices(l, x->writer)) return true;
    }
    return false;
}

static void mark(struct order *o, const struct plan_launch *l)
{
    for (int i = 0; i < l->n_args; i++) {
        const struct plan_arg *a = &l->args[i];
        struct access *x = &o->bufs[a->buf];
        touch(o->p, a->buf, o->at);
        if (i < l->n_read) x->read = o->stretch;
        else *x = (struct access){o->stretch, x->read, x->writes + 1, l, a};
    }
}

/* Else no call lets every worker do it for itself, and what it reads need not stay. */
static bool may_have_one_slice(const struct plan_launch *l)
{
    for (int v = 0; v < INFR_ISA_COUNT; v++)
        if (l->slices[v] && l->slices[v]->lo <= 1) return true;
    return false;
}

static bool is_private(const struct order *o, const struct plan_launch *l)
{
    if (l->claim || l->n_read == l->n_args || !may_have_one_slice(l)) return false;
    for (int i = l->n_read; i < l->n_args; i++) {
        int buf = l->args[i].buf;
        if (o->p->bufs.v[buf].kind != INFR_BUF_ARENA || o->writers[buf] != 1) return false;
    }
    /* nobody meets between its reads and what comes next, so that nothing may write there any more: a state, a part of a concat */
    for (int i = 0; i < l->n_read; i++)
        if (o->writers[l->args[i].buf] % MANY != o->bufs[l->args[i].buf].writes) return false;
    return true;
}

static void next_stretch(struct order *o)
{
    o->stretch++;
    o->at++;
}

static void order_launch(struct order *o, struct plan_launch *l)
{
    l->barrier = o->forced || conflicts(o, l);
    if (l->barrier) next_stretch(o);
    o->forced = false;
    mark(o, l);
    l->each = is_private(o, l);
    for (int i = 0; l->each && i < l->n_read; i++) vec_push(&o->scratch, &o->held, l->args[i].buf);
    if (l->each) return;
    for (size_t i = 0; i < o->held.n; i++) touch(o->p, o->held.v[i], o->at);
    o->held.n = 0;
}

static void order_block(struct order *o, struct plan_block *b)
{
    for (size_t i = 0; i < b->steps.n; i++) {
        struct plan_step *s = &b->steps.v[i];
        if (s->kind == INFR_STEP_LAUNCH) {
            order_launch(o, s->launch);
        } else if (s->kind == INFR_STEP_IF) { /* workers meet before it, not behind it */
            next_stretch(o);
            o->held.n = 0;
            touch(o->p, s->cond_buf, o->at);
            next_stretch(o);
            order_block(o, s->then_block);
            next_stretch(o);
            order_block(o, s->else_block);
            o->forced = true;
        }
    }
}

void plan_lifetimes(struct plan *p)
{
    struct order o = {.p = p, .stretch = 1};
    arena_init(&o.scratch);
    o.bufs = ARENA_ARRAY(&o.scratch, struct access, p->bufs.n);
    o.writers = ARENA_ARRAY(&o.scratch, uint32_t, p->bufs.n);
    count_writers(&o, p->entry);
    for (size_t i = 0; i < p->bufs.n; i++) p->bufs.v[i].first = UINT32_MAX, p->bufs.v[i].last = 0;
    order_block(&o, p->entry);
    p->n_positions = o.at + 1;
    for (size_t i = 0; i < p->bufs.n; i++)
        if (p->bufs.v[i].first == UINT32_MAX) p->bufs.v[i].first = 0;
    arena_deinit(&o.scratch);
}
