// SPDX-License-Identifier: Apache-2.0
/* Apart from commands.h, whose names the runtime's headers have, too. */
#ifndef INFC_COMPILER_SERVE_SERVE_H
#define INFC_COMPILER_SERVE_SERVE_H

#include "compiler/options.h"

int cmd_serve(const struct options *o, struct diag_sink *diag);

#endif
