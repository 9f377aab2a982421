// SPDX-License-Identifier: Apache-2.0
/*
 * Tuning databases: what was measured to be the best schedule of a kernel on a CPU. Text, a line an entry, so that databases are
 * merged by putting one behind the other (the later line counts) and read by people:
 *
 *   # kernel          level CPU                 knobs                     us before  us after
 *   9f0c2b6d11aa03e4  v4    GenuineIntel-6-143  tile=1402,prefetch=4096   12.31      11.20
 *
 * The kernel is the hash of its loop IR as the cost model would have it, so an entry is not used once the compiler makes
 * another kernel of it. "-" stands for no knob: the cost model's choice is the best.
 */
#ifndef INFC_COMPILER_TUNE_DB_H
#define INFC_COMPILER_TUNE_DB_H

#include "ir/support/diag.h"
#include "ir/support/map.h"
#include "passes/knobs.h"

struct tune_entry {
    uint64_t kernel;
    char level[8], cpu[48];
    struct knob_values values;
    double us_before, us_after;
};

struct tune_db {
    struct arena arena;
    VEC(struct tune_entry) entries;
    struct map by_key; /* entry number + 1 */
};

void tune_db_init(struct tune_db *db);
void tune_db_deinit(struct tune_db *db);
/* Text with `path` for messages; adds to db. False after diagnostics, one a bad line. */
bool tune_db_parse(struct tune_db *db, const char *text, size_t len, const char *path, struct diag_sink *diag);
/* A file that is not there is an empty database when may_miss. */
bool tune_db_read(struct tune_db *db, const char *path, bool may_miss, struct diag_sink *diag);
/* Written beside and renamed; sorted, without entries that later ones replaced. */
bool tune_db_write(struct tune_db *db, const char *path, struct diag_sink *diag);
const struct tune_entry *tune_db_find(const struct tune_db *db, uint64_t kernel, const char *level, const char *cpu);
void tune_db_put(struct tune_db *db, const struct tune_entry *e);

/* Identity of a kernel in databases. */
uint64_t tune_kernel_hash(const struct lp_kernel *k);

#endif
