// SPDX-License-Identifier: Apache-2.0
/* The page of `infc bench --html`: distributions, ratios and the course of the session, as SVG. */
#include <math.h>
#include <string.h>

#include "compiler/bench/report.h"
#include "compiler/svg.h"

enum { WIDTH = 900, LEFT = 190, RIGHT = 40, ROW = 34, DOTS = 400 };

struct scale {
    double lo, hi;
};

static double at(const struct scale *c, double v) { return LEFT + (WIDTH - LEFT - RIGHT) * (v - c->lo) / (c->hi - c->lo); }

static const char *series(int i)
{
    static const char *const names[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"};
    return names[i % 8];
}

static void axis(struct strbuf *h, const struct scale *c, double top, double bottom, const char *unit)
{
    double step = svg_tick_step(c->hi - c->lo, 8);
    char text[48];
    for (double v = ceil(c->lo / step) * step; v <= c->hi + step * 1e-9; v += step) {
        svg_line(h, at(c, v), top, at(c, v), bottom, "grid");
        snprintf(text, sizeof text, "%.6g", fabs(v) < step * 1e-6 ? 0.0 : v);
        svg_text(h, at(c, v), bottom + 14, "middle", text);
    }
    svg_line(h, LEFT, bottom, WIDTH - RIGHT, bottom, "axis");
    svg_text(h, WIDTH - RIGHT, bottom + 28, "end", unit);
}

static struct scale padded(double lo, double hi)
{
    double pad = hi > lo ? 0.05 * (hi - lo) : 0.05 * fabs(hi) + 1e-9;
    return (struct scale){lo - pad, hi + pad};
}

/* Samples as dots, a box from p25 to p75, a line at the median; the scale ends at p99 of the slowest. */
static void distributions(const struct bench_session *s, int metric, struct strbuf *h)
{
    double lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < s->n; i++) {
        const double *x = bench_sorted(s, &s->v[i], metric);
        size_t n = s->v[i].samples[metric].n;
        lo = fmin(lo, stats_percentile(x, n, 1)), hi = fmax(hi, stats_percentile(x, n, 99));
    }
    struct scale c = padded(lo, hi);
    double bottom = 10 + ROW * s->n;
    svg_begin(h, WIDTH, bottom + 34, "distribution of the samples");
    axis(h, &c, 6, bottom, s->v[0].metrics[metric].name);
    for (int i = 0; i < s->n; i++) {
        const struct bench_variant *v = &s->v[i];
        size_t n = v->samples[metric].n, stride = n / DOTS + 1;
        const double *x = bench_sorted(s, v, metric);
        double y = 10 + ROW * i + ROW / 2.0, q1 = stats_percentile(x, n, 25), q3 = stats_percentile(x, n, 75), mid = stats_percentile(x, n, 50);
        char tip[96];
        snprintf(tip, sizeof tip, "median %.5g, p25 %.5g, p75 %.5g, p99 %.5g", mid, q1, q3, stats_percentile(x, n, 99));
        svg_text(h, LEFT - 8, y + 4, "end", v->child.name);
        for (size_t k = 0; k < n; k += stride)
            if (x[k] >= c.lo && x[k] <= c.hi) svg_circle(h, at(&c, x[k]), y + 9 - 3 * (double)(k / stride % 3), 1.5, series(i), NULL);
        svg_rect(h, at(&c, q1), y - 12, at(&c, q3) - at(&c, q1), 12, series(i), tip);
        svg_line(h, at(&c, mid), y - 14, at(&c, mid), y + 2, "axis");
    }
    svg_end(h);
}

/* Estimates and intervals of the ratios; 1 is the first variant. */
static void ratios(const struct bench_session *s, int metric, struct strbuf *h)
{
    double lo = 1, hi = 1;
    for (int i = 1; i < s->n; i++) lo = fmin(lo, s->v[i].slower[metric].low), hi = fmax(hi, s->v[i].slower[metric].high);
    struct scale c = padded(lo, hi);
    double bottom = 10 + ROW * (s->n - 1);
    svg_begin(h, WIDTH, bottom + 34, "ratios with 95% intervals");
    axis(h, &c, 6, bottom, "time / time of the first");
    svg_line(h, at(&c, 1), 4, at(&c, 1), bottom, "axis");
    for (int i = 1; i < s->n; i++) {
        const struct stats_interval *r = &s->v[i].slower[metric];
        double y = 10 + ROW * (i - 1) + ROW / 2.0;
        char tip[96];
        snprintf(tip, sizeof tip, "%.4f (%.4f to %.4f)", r->estimate, r->low, r->high);
        svg_text(h, LEFT - 8, y + 4, "end", s->v[i].child.name);
        svg_rect(h, at(&c, r->low), y - 2, at(&c, r->high) - at(&c, r->low), 4, series(i), tip);
        svg_circle(h, at(&c, r->estimate), y, 5, series(i), tip);
    }
    svg_end(h);
}

/* Medians of the rounds in their order: drifts and disturbances show. */
static void course(const struct bench_session *s, int metric, struct strbuf *h)
{
    double lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < s->n; i++)
        for (size_t r = 0; r < s->v[i].rounds[metric].n; r++) {
            lo = fmin(lo, s->v[i].rounds[metric].v[r]), hi = fmax(hi, s->v[i].rounds[metric].v[r]);
        }
    struct scale c = {0, s->rounds > 1 ? s->rounds - 1 : 1}, y = padded(lo, hi);
    double top = 8, bottom = 168, step = svg_tick_step(y.hi - y.lo, 5);
    svg_begin(h, WIDTH, bottom + 34, "medians of the rounds");
    for (double v = ceil(y.lo / step) * step; v <= y.hi; v += step) {
        char text[32];
        double at_y = bottom - (bottom - top) * (v - y.lo) / (y.hi - y.lo);
        snprintf(text, sizeof text, "%.5g", v);
        svg_line(h, LEFT, at_y, WIDTH - RIGHT, at_y, "grid");
        svg_text(h, LEFT - 8, at_y + 4, "end", text);
    }
    axis(h, &c, top, bottom, "round");
    for (int i = 0; i < s->n; i++) {
        const bench_samples *m = &s->v[i].rounds[metric];
        for (size_t r = 0; r < m->n; r++)
            svg_circle(h, at(&c, (double)r), bottom - (bottom - top) * (m->v[r] - y.lo) / (y.hi - y.lo), 2.2, series(i), s->v[i].child.name);
    }
    svg_end(h);
}

static void table(const struct bench_session *s, int metric, struct strbuf *h)
{
    strbuf_puts(h, "<table><tr><th>variant<th class=n>median<th class=n>p90<th class=n>p99<th class=n>samples<th class=n>time / first<th class=n>95% interval"
                   "<th class=n>file, MB<th class=n>peak memory, MB<th class=n>J a call<th class=n>output error</tr>\n");
    for (int i = 0; i < s->n; i++) {
        const struct bench_variant *v = &s->v[i];
        const double *x = bench_sorted(s, v, metric);
        size_t n = v->samples[metric].n;
        strbuf_puts(h, "<tr><td>");
        html_text(h, v->child.name);
        strbuf_printf(h, "<td class=n>%.5g<td class=n>%.5g<td class=n>%.5g<td class=n>%zu", stats_percentile(x, n, 50), stats_percentile(x, n, 90),
                      stats_percentile(x, n, 99), n);
        const struct stats_interval *r = &v->slower[metric];
        if (i) strbuf_printf(h, "<td class=\"n%s\">%.4f<td class=n>%.4f to %.4f", r->low > 1 ? " bad" : "", r->estimate, r->low, r->high);
        else strbuf_puts(h, "<td class=n>1<td class=n>");
        strbuf_printf(h, v->file_bytes ? "<td class=n>%.2f" : "<td class=n>-", 1e-6 * (double)v->file_bytes);
        strbuf_printf(h, v->child.peak_kb >= 0 ? "<td class=n>%.1f" : "<td class=n>-", 1e-3 * (double)v->child.peak_kb);
        if (v->joules >= 0 && v->calls) strbuf_printf(h, "<td class=n>%.4g", v->joules / (double)v->calls);
        else strbuf_puts(h, "<td class=n>not readable");
        if (i && v->error >= 0) strbuf_printf(h, "<td class=n>%.3g</tr>\n", v->error);
        else strbuf_puts(h, i ? "<td class=n>not compared</tr>\n" : "<td class=n></tr>\n");
    }
    strbuf_puts(h, "</table>\n");
}

/* Both axes logarithmic: the machine's roof, and where each variant stands. */
static void roofline(const struct bench_session *s, const struct machine_peaks *p, struct strbuf *h)
{
    struct scale c = {-2, 4}; /* log10 of FLOP a byte */
    double top = 10, bottom = 260, peak = p->flops_s > 0 ? p->flops_s : 1e9;
    double y_hi = log10(peak) + 0.3, y_lo = log10(peak) - 4;
    svg_begin(h, WIDTH, bottom + 34, "roofline");
    axis(h, &c, top, bottom, "log10 FLOP per byte of operands");
    double last = 0;
    for (int i = 0; i <= 120; i++) {
        double x = c.lo + (c.hi - c.lo) * i / 120, roof = log10(fmin(peak, p->read_bytes_s * pow(10, x)));
        double y = bottom - (bottom - top) * (roof - y_lo) / (y_hi - y_lo);
        if (i && y <= bottom && last <= bottom) svg_line(h, at(&c, x - (c.hi - c.lo) / 120), last, at(&c, x), y, "axis");
        last = y;
    }
    for (int i = 0; i < s->n; i++) {
        const struct bench_variant *v = &s->v[i];
        if (v->achieved_flops_s <= 0 || v->achieved_bytes_s <= 0) continue;
        char tip[160];
        snprintf(tip, sizeof tip, "%.60s: %.1f GFLOP/s, %.2f GB/s", v->child.name, 1e-9 * v->achieved_flops_s, 1e-9 * v->achieved_bytes_s);
        double y = bottom - (bottom - top) * (log10(v->achieved_flops_s) - y_lo) / (y_hi - y_lo);
        svg_circle(h, at(&c, log10(v->achieved_flops_s / v->achieved_bytes_s)), y < bottom ? y : bottom, 5, series(i), tip);
    }
    svg_end(h);
    strbuf_printf(h, "<p>Memory is read at %.1f GB/s, f32 multiply-adds run at %.1f GFLOP/s (%s vectors), both measured first.</p>\n",
                  1e-9 * p->read_bytes_s, 1e-9 * p->flops_s, p->vectors);
}

void bench_report_html(const struct bench_session *s, const struct machine_peaks *peaks, struct strbuf *h)
{
    html_begin(h, "infc bench");
    strbuf_printf(h, "<p>Scenario %s, %d rounds; in each, every variant ran one burst, the order turned around from round to round. Ratios are "
                     "taken within rounds; intervals are percentile bootstraps of their median (%d resamples, seed %llu).</p>\n",
                  bench_scenario_name(s->o->scenario), s->rounds, BENCH_RESAMPLES, (unsigned long long)s->o->seed);
    for (int k = 0; k < s->v[0].n_metrics; k++) {
        strbuf_puts(h, "<h2>");
        html_text(h, s->v[0].metrics[k].name);
        strbuf_printf(h, " (%s is better)</h2>\n", s->v[0].metrics[k].higher_is_better ? "higher" : "lower");
        table(s, k, h);
        distributions(s, k, h);
        if (s->n > 1) ratios(s, k, h);
        course(s, k, h);
    }
    if (peaks) {
        strbuf_puts(h, "<h2>Roofline</h2>\n");
        roofline(s, peaks, h);
    }
    html_end(h);
}
