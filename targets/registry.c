// SPDX-License-Identifier: Apache-2.0
/* Finds targets and their levels by name. A new target is a folder, a row in targets.def, and nothing here. */
#include <string.h>

#include "targets/target.h"

static const struct target *const all_targets[] = {
#define TARGET(symbol) &symbol,
#include "targets/targets.def"
#undef TARGET
};

const struct target *target_at(int i)
{
    return i >= 0 && (size_t)i < ARRAY_LEN(all_targets) ? all_targets[i] : NULL;
}

const struct target *target_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(all_targets); i++)
        if (!strcmp(all_targets[i]->name, name)) return all_targets[i];
    return NULL;
}

const struct target_level *target_level_find(const struct target *t, const char *name)
{
    for (int i = 0; i < t->n_levels; i++)
        if (!strcmp(t->levels[i].name, name)) return &t->levels[i];
    return NULL;
}
