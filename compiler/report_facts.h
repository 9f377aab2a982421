// SPDX-License-Identifier: Apache-2.0
/* Internal to reports: what is known of a build, and its forms. */
#ifndef INFC_COMPILER_REPORT_FACTS_H
#define INFC_COMPILER_REPORT_FACTS_H

#include <stdio.h>

#include "passes/gpu_predict.h"
#include "compiler/pipeline.h"

struct report_facts {
    struct build *b;
    struct build_part *part;
    const int64_t *syms; /* sizes that figures are stated at */
    double flops, generic_flops;
    size_t launches, generic;
    VEC(const struct plan_launch *) list; /* in program order, both sides of an `if` */
};

double report_value(const struct report_facts *t, const struct dim *d);
bool report_is_generic(const struct plan_kernel *k);
/* False on CPUs, which are measured (--profile), and for launches without code of their own or without slices at these sizes. */
bool report_predict(const struct report_facts *t, const struct plan_launch *l, struct gpu_prediction *out);
/* The page of `--report=FILE.html`; with --profile times and the roofline. */
bool report_html(struct report_facts *t, const char *engine_path, uint64_t engine_bytes, FILE *out);

#endif
