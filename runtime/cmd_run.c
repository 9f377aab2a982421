// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <time.h>

#include "runtime/cli.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int run_all(struct cli *c, struct cli_engine *x)
{
    struct infr_status st;
    double best = 0, start = now();
    for (long i = 0; i < c->repeat; i++) {
        double t = now();
        for (uint32_t o = 0; o < x->e->n_outputs; o++)
            x->out[o].data = NULL; /* the session's memory */
        if (infr_session_run(x->s, x->in, x->out, &st)) return cli_error(&st);
        t = now() - t;
        if (!i || t < best) best = t;
    }
    if (c->repeat_given)
        fprintf(stderr, "%ld runs, %.3f ms each, the fastest %.3f ms\n", c->repeat,
                1e3 * (now() - start) / (double)c->repeat, 1e3 * best);
    return cli_store_outputs(c, x);
}

int cmd_run(struct cli *c)
{
    struct cli_engine x;
    int code = cli_open(c, &x);
    if (code) return code;
    code = cli_check_outputs(c, x.e);
    if (!code) code = cli_load_inputs(c, &x, false);
    if (!code) code = run_all(c, &x);
    cli_close(&x);
    return code;
}
