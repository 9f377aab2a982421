// SPDX-License-Identifier: Apache-2.0
/* What commands say when something is wrong; apart, because `infc serve` says so, too. */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/cli.h"

int cli_error(const struct infr_status *st)
{
    fflush(stdout);
    fprintf(stderr, "error: %s\n", st->note);
    return st->code;
}

int cli_usage(const char *format, ...)
{
    va_list ap;
    fflush(stdout);
    fputs("error: ", stderr);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    return INFR_BAD_INPUT;
}
