// SPDX-License-Identifier: Apache-2.0
#include "passes/knobs.h"

#include <string.h>

#include "passes/lower.h"
#include "passes/tile_shape.h"

static const struct {
    const char *name;
    int64_t lo, hi;
} rows[] = {
#define KNOB(ID, name, lo, hi, what) {name, lo, hi},
#include "passes/knobs.def"
#undef KNOB
};

const char *knob_name(enum knob k) { return rows[k].name; }

int knob_find(const char *name, size_t len)
{
    for (int i = 0; i < KNOB_COUNT; i++)
        if (strlen(rows[i].name) == len && !memcmp(rows[i].name, name, len)) return i;
    return -1;
}

bool knob_in_range(enum knob k, int64_t value) { return value >= rows[k].lo && value <= rows[k].hi; }

int64_t lower_knob(struct lower_ctx *l, enum knob k, int64_t dflt, const int64_t *alternatives, int n)
{
    if (!l->knobs) return dflt;
    struct knob_uses *u = l->knobs;
    for (int i = 0; i < u->n; i++) /* asked again: one value a kernel */
        if (u->use[i].knob == k) return u->use[i].value;
    struct knob_use *use = &u->use[u->n++];
    *use = (struct knob_use){.knob = k, .dflt = dflt, .value = u->given.set[k] ? u->given.value[k] : dflt};
    for (int i = 0; i < n && use->n < KNOB_MAX_ALTERNATIVES; i++)
        if (alternatives[i] != dflt && knob_in_range(k, alternatives[i])) use->alternatives[use->n++] = alternatives[i];
    return use->value;
}

void lower_tile(struct lower_ctx *l, int elem_bytes, int panel, const struct dim *n_rows, bool pairwise, int *mr, int *nr)
{
    struct tile_choice c[KNOB_MAX_ALTERNATIVES + 1];
    int lanes = l->level->vector_bytes / elem_bytes;
    tile_shape(l->level, elem_bytes, panel, n_rows, pairwise, mr, nr);
    if (!l->knobs || *nr % lanes) return; /* a panel narrower than a vector leaves nothing to choose */
    int64_t alternatives[KNOB_MAX_ALTERNATIVES + 1];
    int n = tile_shapes(l->level, elem_bytes, panel, n_rows, pairwise, c, KNOB_MAX_ALTERNATIVES + 1);
    for (int i = 0; i < n; i++) alternatives[i] = c[i].mr * 100 + c[i].nr / lanes;
    int64_t v = lower_knob(l, KNOB_TILE, *mr * 100 + *nr / lanes, alternatives, n);
    /* A value from elsewhere may not fit this level: the cost model's stays then. */
    if (!tile_fits(l->level, elem_bytes, panel, n_rows, pairwise, (int)(v / 100), (int)(v % 100) * lanes)) return;
    *mr = (int)(v / 100), *nr = (int)(v % 100) * lanes;
}
