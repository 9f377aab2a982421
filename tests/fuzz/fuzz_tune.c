// SPDX-License-Identifier: Apache-2.0
/* Tuning databases: whatever the bytes, entries or diagnostics; what was taken is in range. */
#include <stdint.h>
#include <stdlib.h>

#include "compiler/tune/db.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tune_db db;
    struct diag_sink diag;
    tune_db_init(&db);
    diag_init(&diag);
    bool ok = tune_db_parse(&db, (const char *)data, size, "fuzz", &diag);
    if (ok != (diag.error_count == 0)) abort();
    for (size_t i = 0; i < db.entries.n; i++) {
        const struct tune_entry *e = &db.entries.v[i];
        if (tune_db_find(&db, e->kernel, e->level, e->cpu) != e) abort();
        for (int k = 0; k < KNOB_COUNT; k++)
            if (e->values.set[k] && !knob_in_range((enum knob)k, e->values.value[k])) abort();
    }
    diag_deinit(&diag);
    tune_db_deinit(&db);
    return 0;
}
