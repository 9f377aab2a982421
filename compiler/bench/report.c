// SPDX-License-Identifier: Apache-2.0
#include "compiler/bench/report.h"

#include <math.h>

const char *bench_scenario_name(enum bench_scenario s)
{
    static const char *const names[] = {"single-stream", "multi-stream", "offline", "server"};
    return names[s];
}

double bench_scenario_percentile(enum bench_scenario s)
{
    return s == BENCH_SINGLE_STREAM ? 90 : s == BENCH_OFFLINE ? 0 : 99;
}

const double *bench_sorted(const struct bench_session *s, const struct bench_variant *v, int metric)
{
    double *copy = arena_dup(s->arena, v->samples[metric].v, v->samples[metric].n * sizeof *copy);
    stats_sort(copy, v->samples[metric].n);
    return copy;
}

bool bench_is_slower(const struct bench_session *s, int i, double threshold)
{
    for (int k = 0; k < s->v[i].n_metrics; k++)
        if (s->v[i].slower[k].low > 1 + threshold) return true;
    return false;
}

static const char *verdict(const struct stats_interval *r)
{
    return r->low > 1 ? "slower" : r->high < 1 ? "faster" : "no difference seen";
}

static void print_metric(const struct bench_session *s, int metric, FILE *out)
{
    const struct bench_metric *m = &s->v[0].metrics[metric];
    double judged = bench_scenario_percentile(s->o->scenario);
    fprintf(out, "\n%s (%s is better)\n%-24s %10s %10s %10s %10s %10s %8s  %s\n", m->name, m->higher_is_better ? "higher" : "lower", "", "min",
            "median", "p90", "p99", "max", "samples", "time against the first, 95% interval");
    for (int i = 0; i < s->n; i++) {
        const struct bench_variant *v = &s->v[i];
        size_t n = v->samples[metric].n;
        const double *x = bench_sorted(s, v, metric);
        fprintf(out, "%-24.24s %10.4g %10.4g %10.4g %10.4g %10.4g %8zu", v->child.name, x[0], stats_percentile(x, n, 50), stats_percentile(x, n, 90),
                stats_percentile(x, n, 99), x[n - 1], n);
        const struct stats_interval *r = &v->slower[metric];
        if (i) fprintf(out, "  %.4f (%.4f to %.4f), %s", r->estimate, r->low, r->high, verdict(r));
        fputc('\n', out);
    }
    if (judged > 0 && !m->higher_is_better && metric == 0) fprintf(out, "the %s scenario is judged by p%g\n", bench_scenario_name(s->o->scenario), judged);
}

static void print_facts(const struct bench_session *s, FILE *out)
{
    fprintf(out, "\n%-24s %10s %10s %10s %12s %s\n", "", "file, MB", "peak, MB", "own, MB", "J a call", "outputs against the first");
    for (int i = 0; i < s->n; i++) {
        const struct bench_variant *v = &s->v[i];
        char file[24] = "-", peak[24] = "-", own[24] = "-", energy[24] = "not readable";
        if (v->file_bytes) snprintf(file, sizeof file, "%.2f", 1e-6 * (double)v->file_bytes);
        if (v->child.peak_kb >= 0) snprintf(peak, sizeof peak, "%.1f", 1e-3 * (double)v->child.peak_kb);
        if (v->child.private_kb >= 0) snprintf(own, sizeof own, "%.1f", 1e-3 * (double)v->child.private_kb);
        if (v->joules >= 0 && v->calls) snprintf(energy, sizeof energy, "%.4g", v->joules / (double)v->calls);
        fprintf(out, "%-24.24s %10s %10s %10s %12s ", v->child.name, file, peak, own, energy);
        if (i == 0) fputs("-\n", out);
        else if (v->error < 0) fprintf(out, "not compared: %s\n", v->error_note ? v->error_note : "no outputs");
        else fprintf(out, "max|d| / scale %.3g\n", v->error);
    }
}

static void print_roofline(const struct bench_session *s, const struct machine_peaks *p, FILE *out)
{
    fprintf(out, "\nroofline: reading memory %.1f GB/s", 1e-9 * p->read_bytes_s);
    if (p->flops_s > 0) fprintf(out, ", f32 multiply-adds %.1f GFLOP/s (%s vectors)", 1e-9 * p->flops_s, p->vectors);
    fputc('\n', out);
    for (int i = 0; i < s->n; i++) {
        const struct bench_variant *v = &s->v[i];
        if (v->achieved_flops_s <= 0 && v->achieved_bytes_s <= 0) {
            fprintf(out, "%-24.24s its work is not known\n", v->child.name);
            continue;
        }
        fprintf(out, "%-24.24s %8.1f GFLOP/s", v->child.name, 1e-9 * v->achieved_flops_s);
        if (p->flops_s > 0) fprintf(out, " (%.1f%%)", 100 * v->achieved_flops_s / p->flops_s);
        fprintf(out, ", %8.2f GB/s of operands (%.1f%% of reading memory)\n", 1e-9 * v->achieved_bytes_s, 100 * v->achieved_bytes_s / p->read_bytes_s);
    }
}

void bench_report_text(const struct bench_session *s, const struct machine_peaks *peaks, FILE *out)
{
    fprintf(out, "%s, %d rounds of bursts in turn", bench_scenario_name(s->o->scenario), s->rounds);
    if (s->o->scenario == BENCH_SERVER && s->o->qps > 0) fprintf(out, ", %.4g queries a second", s->o->qps);
    if (s->o->scenario == BENCH_SERVER && s->o->qps <= 0) fprintf(out, ", p99 at most %.4g ms", s->bound_ms);
    if (s->o->scenario == BENCH_MULTI_STREAM) fprintf(out, ", %lld samples a query", (long long)s->o->per_query);
    fputc('\n', out);
    for (int k = 0; k < s->v[0].n_metrics; k++) print_metric(s, k, out);
    print_facts(s, out);
    if (peaks) print_roofline(s, peaks, out);
}

/* ---- JSON ---- */

static void put_number(struct strbuf *j, const char *key, double v, const char *end)
{
    if (isfinite(v)) strbuf_printf(j, "\"%s\": %.9g%s", key, v, end);
    else strbuf_printf(j, "\"%s\": null%s", key, end);
}

static void json_variant(const struct bench_session *s, int i, double threshold, struct strbuf *j)
{
    const struct bench_variant *v = &s->v[i];
    strbuf_puts(j, "\n  {\"name\": ");
    strbuf_put_json(j, v->child.name);
    strbuf_puts(j, ", \"metrics\": {");
    for (int k = 0; k < v->n_metrics; k++) {
        const double *x = bench_sorted(s, v, k);
        size_t n = v->samples[k].n;
        strbuf_printf(j, "%s\"%s\": {\"better\": \"%s\", \"samples\": %zu, ", k ? ", " : "", v->metrics[k].name,
                      v->metrics[k].higher_is_better ? "higher" : "lower", n);
        put_number(j, "min", x[0], ", ");
        put_number(j, "p50", stats_percentile(x, n, 50), ", ");
        put_number(j, "p90", stats_percentile(x, n, 90), ", ");
        put_number(j, "p99", stats_percentile(x, n, 99), ", ");
        put_number(j, "max", x[n - 1], "");
        if (i) {
            strbuf_puts(j, ", \"time_ratio\": {");
            put_number(j, "estimate", v->slower[k].estimate, ", ");
            put_number(j, "low", v->slower[k].low, ", ");
            put_number(j, "high", v->slower[k].high, "}");
        }
        strbuf_putc(j, '}');
    }
    strbuf_printf(j, "}, \"file_bytes\": %llu, \"peak_kb\": %ld, \"private_kb\": %ld, ", (unsigned long long)v->file_bytes, v->child.peak_kb,
                  v->child.private_kb);
    put_number(j, "joules_per_call", v->joules >= 0 && v->calls ? v->joules / (double)v->calls : (double)NAN, ", ");
    put_number(j, "output_error", v->error >= 0 ? v->error : (double)NAN, ", ");
    put_number(j, "flops_s", v->achieved_flops_s, ", ");
    put_number(j, "operand_bytes_s", v->achieved_bytes_s, "");
    if (threshold >= 0 && i) strbuf_printf(j, ", \"fails\": %s", bench_is_slower(s, i, threshold) ? "true" : "false");
    strbuf_putc(j, '}');
}

void bench_report_json(const struct bench_session *s, const struct machine_peaks *peaks, double threshold, FILE *out)
{
    struct strbuf j = {0};
    strbuf_printf(&j, "{\"scenario\": \"%s\", \"rounds\": %d, ", bench_scenario_name(s->o->scenario), s->rounds);
    put_number(&j, "confidence", BENCH_CONFIDENCE, ", ");
    if (peaks) {
        put_number(&j, "read_bytes_s", peaks->read_bytes_s, ", ");
        put_number(&j, "peak_flops_s", peaks->flops_s, ", ");
    }
    strbuf_puts(&j, "\"variants\": [");
    for (int i = 0; i < s->n; i++) {
        if (i) strbuf_putc(&j, ',');
        json_variant(s, i, threshold, &j);
    }
    strbuf_puts(&j, "\n]}\n");
    fputs(strbuf_get(&j), out);
    strbuf_deinit(&j);
}
