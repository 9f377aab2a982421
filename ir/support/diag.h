// SPDX-License-Identifier: Apache-2.0
/*
 * Diagnostics about the user's input: collected, never fatal at once, each with a stable code, a location
 * (`net.onnx:/encoder/3/MatMul`) and a remedy. The severity decides the exit code: ERROR 2, ENVIRONMENT 3,
 * GATE 4. Not thread safe: one sink per thread, or lock outside.
 */
#ifndef INFC_IR_SUPPORT_DIAG_H
#define INFC_IR_SUPPORT_DIAG_H

#include <stdio.h>

#include "ir/support/arena.h"

enum diag_severity { DIAG_SEV_NOTE, DIAG_SEV_WARNING, DIAG_SEV_ERROR, DIAG_SEV_ENVIRONMENT, DIAG_SEV_GATE };

enum diag_id {
#define DIAG(id, code, severity, summary, remedy) DIAG_##id,
#include "ir/support/diag.def"
#undef DIAG
    DIAG_COUNT
};

struct diag {
    enum diag_id id;
    enum diag_severity severity;
    const char *loc;     /* "" when unknown */
    const char *message; /* one sentence about the user's own thing */
    const char *remedy;  /* overrides the table's when given through diag_report_remedy */
};

struct diag_sink {
    struct arena arena;
    VEC(struct diag) items;
    size_t error_count; /* ERROR, ENVIRONMENT and GATE */
    size_t limit;       /* further errors are counted, not kept (default 1000) */
};

void diag_init(struct diag_sink *s);
void diag_deinit(struct diag_sink *s);
/* loc may be NULL. Always returns false, so that `return diag_report(...)` reads well. */
bool diag_report(struct diag_sink *s, enum diag_id id, const char *loc, const char *fmt, ...)
    INFC_PRINTF(4, 5);
bool diag_report_remedy(struct diag_sink *s, enum diag_id id, const char *loc, const char *remedy,
                        const char *fmt, ...) INFC_PRINTF(5, 6);
void diag_warn(struct diag_sink *s, enum diag_id id, const char *loc, const char *fmt, ...)
    INFC_PRINTF(4, 5);
/* Exit code for what was collected: 0, 2, 3 or 4 (the first error's kind). */
int diag_exit_code(const struct diag_sink *s);
const char *diag_code(enum diag_id id);
const char *diag_summary(enum diag_id id);
const char *diag_remedy(enum diag_id id);
/* Text: "error[E203] loc: message\n  remedy: ...". */
void diag_print_text(const struct diag_sink *s, FILE *out);
/* One JSON array of objects with code, severity, location, message, remedy. */
void diag_print_json(const struct diag_sink *s, FILE *out);

#endif
