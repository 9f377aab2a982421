// SPDX-License-Identifier: Apache-2.0
#include "runtime/status.h"

#include <stdarg.h>
#include <stdio.h>

int rt_fail(struct infr_status *st, int code, const char *format, ...)
{
    if (st) {
        va_list ap;
        st->code = code;
        va_start(ap, format);
        vsnprintf(st->note, sizeof st->note, format, ap);
        va_end(ap);
    }
    return code;
}

int rt_fail_memory(struct infr_status *st, const char *what, uint64_t bytes)
{
    return rt_fail(st, INFR_ENVIRONMENT, "no memory for %s (%llu bytes)", what,
                   (unsigned long long)bytes);
}
