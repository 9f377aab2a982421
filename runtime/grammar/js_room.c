// SPDX-License-Identifier: Apache-2.0
/*
 * How many characters of a slice (gr_slice.h) may follow in a string's states, whichever they are.
 *
 * From a state between characters the ways on are few: only the states behind one whole character
 * of the slice matter. A state that some character leaves with no way on has no room; the others
 * have one more than the least of those they lead to, or any number where they lead in circles.
 */
#include <string.h>

#include "runtime/grammar/gr_slice.h"
#include "runtime/grammar/js.h"

/* Classes of bytes, and where the slice leads with them: once for each pair. */
struct samples {
    uint8_t column[GR_SLICE_STATES][256], to[GR_SLICE_STATES][256];
    unsigned n[GR_SLICE_STATES];
};

static void take_samples(struct js *j, struct samples *x, enum gr_slice slice,
                         const uint8_t *class_of)
{
    for (unsigned state = 0; state < GR_SLICE_STATES; state++) {
        uint32_t known = 0; /* bit set of where bytes of this class lead: a class is a run of bytes */
        x->n[state] = 0;
        for (unsigned c = 0; c < 256; c++) {
            unsigned to = gr_slice_next(slice, state, c);
            if (c && class_of[c] != class_of[c - 1]) known = 0;
            if (to == GR_SLICE_OUT || known >> to & 1) continue;
            known |= UINT32_C(1) << to;
            x->column[state][x->n[state]] = class_of[c];
            x->to[state][x->n[state]++] = (uint8_t)to;
        }
        if (slice <= GR_WORDS) break; /* no characters of several bytes */
    }
    gr_work(j->b, slice <= GR_WORDS ? 16 : 16 * GR_SLICE_STATES);
}

struct room {
    struct js *j;
    const struct gr_grammar *g;
    const struct gr_string *s;
    const struct samples *x;
    const uint8_t *possible; /* [s->n], NULL: all are */
    struct gr_list *to;
    uint32_t from; /* in to->v: ways of this state */
    struct {
        uint32_t state, to; /* + 1 */
    } once[GR_SLICE_STATES]; /* in the middle of a character: where all of its ways lead to one state, and to which */
};

static void add_way(struct room *r, uint32_t next)
{
    for (uint32_t i = r->from; i < r->to->n; i++)
        if (r->to->v[i] == next) return;
    GR_PUSH(r->j->b, r->to, next);
}

/* Adds the states behind each character; false when one of them has no way on. *only: the one that they all are, + 1,
 * 0 where they are several; GR_NONE before the first. */
static bool add_ways(struct room *r, uint32_t state, unsigned at, uint32_t *only)
{
    const uint32_t *row = r->g->trans + r->g->states[r->s->start + state].row;
    uint32_t last = 0;
    gr_work(r->j->b, r->x->n[at] / 4);
    for (unsigned k = 0; k < r->x->n[at]; k++) {
        uint32_t next = row[r->x->column[at][k]];
        unsigned to = r->x->to[at][k];
        if (!next) return false;
        if (next == last && to == r->x->to[at][k - 1]) continue;
        last = next;
        next -= r->s->start;
        if (r->possible && !r->possible[next]) return false;
        uint32_t end = next + 1;
        if (to == GR_SLICE_BETWEEN) {
            add_way(r, next);
        } else if (r->once[to].state == next + 1) {
            end = r->once[to].to;
            add_way(r, end - 1);
        } else {
            end = GR_NONE;
            if (!add_ways(r, next, to, &end)) return false;
            if (end) r->once[to].state = next + 1, r->once[to].to = end;
        }
        *only = *only == GR_NONE || *only == end ? end : 0;
    }
    return true;
}

/* May letters follow at all? Most automata are words of a list: this is quick. */
static bool is_open(struct js *j, const struct gr_string *s, uint32_t state)
{
    const struct gr_grammar *g = j->b->g;
    return gr_next(g, s->start + state, 'a') && gr_next(g, s->start + state, 'q') &&
           gr_next(g, s->start + state, 'z');
}

/* room[i] is 1 where it is to be found. */
static void find_room(struct js *j, const struct gr_string *s, const struct samples *x,
                      const uint8_t *possible, uint8_t *room)
{
    struct gr_list to = {0};
    struct room r = {.j = j, .g = j->b->g, .s = s, .x = x, .possible = possible, .to = &to};
    uint32_t *from = gr_alloc(j->b, (s->n + 1) * sizeof *from);
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t only = GR_NONE;
        from[i] = r.from = to.n;
        if (room[i] != 1) continue;
        room[i] = add_ways(&r, i, GR_SLICE_BETWEEN, &only) ? GR_ROOM_ALL : 0;
        if (!room[i]) to.n = from[i];
    }
    from[s->n] = to.n;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = s->n; i-- > 0;) {
            uint8_t least = GR_ROOM_ALL;
            for (uint32_t k = from[i]; k < from[i + 1]; k++)
                if (room[to.v[k]] < least) least = room[to.v[k]];
            if (least < GR_ROOM_ALL && ++least > GR_ROOM_MAX) least = GR_ROOM_MAX;
            if (!room[i] || least >= room[i]) continue;
            room[i] = least, changed = true;
        }
        gr_work(j->b, s->n / 2 + to.n / 4);
    }
}

uint8_t *js_find_room(struct js *j, const struct gr_string *s, const uint8_t *possible)
{
    const struct gr_grammar *g = j->b->g;
    uint8_t *room = NULL, *open = NULL;
    gr_work(j->b, s->n / 2);
    for (uint32_t i = 0; i < s->n; i++) {
        if ((possible && !possible[i]) || !is_open(j, s, i)) continue;
        if (!room) {
            room = gr_alloc(j->b, (size_t)GR_SLICES * s->n);
            open = gr_alloc(j->b, s->n);
        }
        open[i] = room[(GR_SLICES - 1) * s->n + i] = 1;
    }
    if (!room) return NULL;
    struct samples *x = gr_alloc(j->b, sizeof *x);
    /* From the largest slice down: what has endless room there has it in all. */
    for (unsigned slice = GR_SLICES; slice-- > 0;) {
        uint8_t *mine = room + (size_t)slice * s->n;
        uint32_t left = 0;
        for (uint32_t i = 0; i < s->n; i++) {
            if (slice < GR_SLICES - 1) mine[i] = mine[i + s->n] == GR_ROOM_ALL ? GR_ROOM_ALL : open[i];
            left += mine[i] == 1;
        }
        if (!left) continue;
        take_samples(j, x, (enum gr_slice)slice, g->classes[g->states[s->start].classes]);
        find_room(j, s, x, possible, mine);
    }
    return room;
}
