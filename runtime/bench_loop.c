// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/bench_loop.h"
#include "runtime/infr.h"

enum { MAX_CALLS = 1000000 };

int bench_loop(const char *metrics, int n_metrics, int (*call)(void *context, double *figures),
               void *context)
{
    char line[64];
    printf("infc-bench 1 %s\n", metrics);
    if (fflush(stdout)) return INFR_ENVIRONMENT;
    while (fgets(line, sizeof line, stdin)) {
        char *end;
        errno = 0;
        unsigned long n = strtoul(line, &end, 10);
        if (end == line || (*end && *end != '\n') || errno || *line == '-' || n > MAX_CALLS) {
            fprintf(stderr, "error: expected a number of calls up to %d, one a line\n", MAX_CALLS);
            return INFR_BAD_INPUT;
        }
        double *figures = calloc(n * (size_t)n_metrics + 1, sizeof *figures);
        if (!figures) return INFR_ENVIRONMENT;
        int code = 0;
        /* Nothing is written between two calls. */
        for (unsigned long i = 0; !code && i < n; i++) code = call(context, figures + i * (size_t)n_metrics);
        for (unsigned long i = 0; !code && i < n; i++) {
            for (int k = 0; k < n_metrics; k++)
                printf("%s%.9g", k ? " " : "", figures[i * (size_t)n_metrics + (size_t)k]);
            putchar('\n');
        }
        free(figures);
        if (!code && fflush(stdout)) code = INFR_ENVIRONMENT;
        if (code) return code;
    }
    return INFR_OK;
}
