// SPDX-License-Identifier: Apache-2.0
#include "passes/pass.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ir/text.h"

static const struct pass_info table[] = {
#define PASS(name, fn, level, doc) {name, level, doc, pass_##fn},
#include "passes/passes.def"
#undef PASS
};

int pass_count(void) { return (int)ARRAY_LEN(table); }

const struct pass_info *pass_at(int i) { return &table[i]; }

const struct pass_info *pass_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (!strcmp(table[i].name, name)) return &table[i];
    return NULL;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

bool pass_run_all(struct ir_module *m, const struct pass_options *opt, struct diag_sink *diag)
{
    bool running = !opt->start_at;
    int64_t done = 0;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct pass_info *p = &table[i];
        running = running || !strcmp(p->name, opt->start_at);
        if (!running) continue;
        if (opt->bisect_limit && done++ >= opt->bisect_limit) return true;
        double t0 = now_ms();
        size_t n_checks = m->checks.n;
        if (!p->run(m, diag)) return false;
        if (opt->time) fprintf(stderr, "%8.2f ms  %s\n", now_ms() - t0, p->name);
        if (!opt->no_verify && !ir_verify_module(m, diag))
            return diag_report(diag, DIAG_IR_VERIFY, NULL, "pass '%s' left invalid IR (a bug of infc)", p->name);
        /* What a pass builds holds whenever what was there held: neither it nor the verifier, which infers again, needs
         * a check of its own. */
        m->checks.n = n_checks;
        if (opt->print && opt->print_after && (!strcmp(opt->print_after, "all") || !strcmp(opt->print_after, p->name)))
            opt->print(opt->print_ctx, p->name, m);
        if (opt->seen) opt->seen(opt->seen_ctx, p->name, m);
        if (opt->stop_after && !strcmp(opt->stop_after, p->name)) return true;
    }
    return true;
}
