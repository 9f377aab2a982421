// SPDX-License-Identifier: Apache-2.0
/* The commands of infc. Each returns the exit code: 0, 2 bad input, 3 environment, 4 a gate failed. */
#ifndef INFC_COMPILER_COMMANDS_H
#define INFC_COMPILER_COMMANDS_H

#include "compiler/options.h"
#include "compiler/serve/serve.h"

int cmd_build(const struct options *o, struct diag_sink *diag);
int cmd_check(const struct options *o, struct diag_sink *diag);
int cmd_inspect(const struct options *o, struct diag_sink *diag);
int cmd_verify(const struct options *o, struct diag_sink *diag);
/* compiler/bench/ */
int cmd_bench(const struct options *o, struct diag_sink *diag);
int cmd_targets(const struct options *o, struct diag_sink *diag);
int cmd_ops(const struct options *o, struct diag_sink *diag);
int cmd_passes(const struct options *o, struct diag_sink *diag);
int cmd_docs(const struct options *o, struct diag_sink *diag);
int cmd_explain(const struct options *o, struct diag_sink *diag);

#endif
