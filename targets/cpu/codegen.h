// SPDX-License-Identifier: Apache-2.0
/* The x86-64 target's entry points (contracts: ir/target.h). */
#ifndef INFC_TARGETS_CPU_CODEGEN_H
#define INFC_TARGETS_CPU_CODEGEN_H

#include "ir/target.h"

void cpu_toolchain(struct strbuf *out);
bool cpu_emit(const struct target *t, const struct target_level *level, struct lp_kernel *k, const char *symbol,
              struct target_object *out, struct diag_sink *diag);
bool cpu_emit_text(const struct target *t, const struct target_level *level, struct lp_kernel *k,
                   const char *symbol, const char *form, struct strbuf *out, struct diag_sink *diag);
bool cpu_emit_data(const struct target *t, const struct target_data *data, int n, struct target_object *out,
                   struct diag_sink *diag);

#endif
