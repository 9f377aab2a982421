// SPDX-License-Identifier: Apache-2.0
/* What a session of `infc bench` found: text, JSON, a page. */
#ifndef INFC_COMPILER_BENCH_REPORT_H
#define INFC_COMPILER_BENCH_REPORT_H

#include "compiler/bench/session.h"
#include "ir/support/str.h"

const char *bench_scenario_name(enum bench_scenario s);
/* Percentile that MLPerf inference judges the scenario by; 0: none. */
double bench_scenario_percentile(enum bench_scenario s);

void bench_report_text(const struct bench_session *s, const struct machine_peaks *peaks, FILE *out);
void bench_report_json(const struct bench_session *s, const struct machine_peaks *peaks, double threshold, FILE *out);
void bench_report_html(const struct bench_session *s, const struct machine_peaks *peaks, struct strbuf *out);

/* Is variant i slower than the first one by more than `threshold` (0.02: 2%), beyond doubt? */
bool bench_is_slower(const struct bench_session *s, int i, double threshold);
/* Sorted copy of the samples of a metric, in the session's arena. */
const double *bench_sorted(const struct bench_session *s, const struct bench_variant *v, int metric);

#endif
