// SPDX-License-Identifier: Apache-2.0
/* Filling in a status. */
#ifndef INFC_RUNTIME_STATUS_H
#define INFC_RUNTIME_STATUS_H

#include "runtime/infr.h"

/* Writes code and note into *st, when there is one, and returns code. A note that is too long is
 * cut. */
__attribute__((format(printf, 3, 4))) int rt_fail(struct infr_status *st, int code,
                                                  const char *format, ...);

/* "no memory for WHAT (N bytes)", code INFR_ENVIRONMENT. */
int rt_fail_memory(struct infr_status *st, const char *what, uint64_t bytes);

#endif
