// SPDX-License-Identifier: Apache-2.0
/* `--report`: what a build made: kernels with schedule and share of FLOPs, generic lowerings called out, memory plan. */
#ifndef INFC_COMPILER_REPORT_H
#define INFC_COMPILER_REPORT_H

#include "compiler/pipeline.h"

/* One line on stderr when the build is done; the report too when --report was given. False after a diagnostic. */
bool report_build(struct build *b, const char *engine_path);

#endif
