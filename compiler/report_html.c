// SPDX-License-Identifier: Apache-2.0
/*
 * `infc build --report=FILE.html`: kernels with size, precision and, by a profile, time; the memory plan as a picture; the
 * roofline. No script.
 */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "compiler/bench/machine.h"
#include "compiler/report_facts.h"
#include "compiler/svg.h"

enum { WIDTH = 1000, LEFT = 70, RIGHT = 20 };

/* Of one launch, from the profile: 0 where there is none. */
struct timing {
    double us, share, flops, bytes;
};

struct page {
    struct report_facts *t;
    struct strbuf *h;
    struct timing *timing; /* a launch; NULL: no profile */
    const char *level;     /* of the profile */
    double run_us, threads;
};

/* ---- the profile ---- */

/* By number; the name must agree, so that the profile of another engine does not slip in. */
static bool read_profile(struct page *p)
{
    struct build *b = p->t->b;
    const char *path = option_value(b->o, OPT_PROFILE, NULL), *level;
    json_error_t e;
    if (!path) return true;
    json_t *j = json_load_file(path, 0, &e), *list = json_object_get(j, "launches");
    if (!j || !json_is_array(list)) {
        json_decref(j);
        return diag_report_remedy(b->diag, DIAG_OPTION, path, "make it with `ENGINE profile --json`", "not a profile: %s", j ? "no launches" : e.text);
    }
    bool ok = json_array_size(list) == p->t->list.n;
    p->timing = ARENA_ARRAY(&p->t->part->plan->arena, struct timing, p->t->list.n + 1);
    for (size_t i = 0; ok && i < p->t->list.n; i++) {
        json_t *l = json_array_get(list, i);
        json_int_t n = json_integer_value(json_object_get(l, "launch"));
        const char *name = json_string_value(json_object_get(l, "name"));
        ok = n >= 0 && (size_t)n < p->t->list.n && name;
        if (!ok) break;
        const struct plan_kernel *k = &p->t->part->plan->kernels.v[p->t->list.v[n]->kernel];
        ok = !strncmp(name, k->name, strlen(k->name));
        p->timing[n] = (struct timing){json_number_value(json_object_get(l, "us_per_call")), json_number_value(json_object_get(l, "share")),
                                       json_number_value(json_object_get(l, "flops")), json_number_value(json_object_get(l, "bytes"))};
    }
    level = json_string_value(json_object_get(j, "level"));
    p->level = arena_strdup(&p->t->part->plan->arena, level ? level : "");
    p->run_us = json_number_value(json_object_get(j, "us_per_run"));
    p->threads = json_number_value(json_object_get(j, "threads"));
    json_decref(j);
    return ok || diag_report_remedy(b->diag, DIAG_OPTION, path, "profile the engine that this very command writes", "it is the profile of another engine");
}

/* ---- kernels ---- */

/* "f32, u8 -> f32": the types of what is read and written, each once. */
static void precision(const struct page *p, const struct plan_launch *l, struct strbuf *s)
{
    bool seen[2][DT_COUNT] = {{false}};
    for (int side = 0; side < 2; side++) {
        bool any = false;
        for (int i = 0; i < l->n_args; i++) {
            const struct plan_buf *b = &p->t->part->plan->bufs.v[l->args[i].buf];
            bool result = i == l->n_args - 1;
            if (result != (side == 1) || seen[side][b->dtype]) continue;
            seen[side][b->dtype] = true;
            strbuf_printf(s, "%s%s", any ? ", " : side ? " to " : "", dtype_name(b->dtype));
            any = true;
        }
    }
}

static uint64_t code_bytes(const struct plan_kernel *k)
{
    uint64_t sum = 0;
    for (int l = 0; l < INFR_ISA_COUNT; l++) sum += k->code_bytes[l];
    return sum;
}

static void kernel_row(struct page *p, size_t i)
{
    const struct plan_launch *l = p->t->list.v[i];
    const struct plan_kernel *k = &p->t->part->plan->kernels.v[l->kernel];
    bool generic = report_is_generic(k);
    struct strbuf types = {0};
    precision(p, l, &types);
    strbuf_printf(p->h, "<tr><td class=n>%zu<td%s>", i, generic ? " class=bad" : "");
    html_text(p->h, k->schedule);
    strbuf_puts(p->h, "<td>");
    html_text(p->h, k->name);
    strbuf_puts(p->h, "<td>");
    html_text(p->h, strbuf_get(&types));
    strbuf_printf(p->h, "<td class=n>%.3f<td class=n>%.1f<td class=n>%.1f", 1e-6 * report_value(p->t, l->flops), 1e-3 * report_value(p->t, l->bytes),
                  1e-3 * (double)code_bytes(k));
    if (p->timing) {
        const struct timing *m = &p->timing[i];
        strbuf_printf(p->h, "<td class=n>%.1f<td class=n>%.1f%%", m->us, 100 * m->share);
        if (m->us > 0) strbuf_printf(p->h, "<td class=n>%.1f<td class=n>%.1f", 1e-3 * m->flops / m->us, 1e-3 * m->bytes / m->us);
        else strbuf_puts(p->h, "<td class=n>-<td class=n>-");
    }
    struct gpu_prediction g;
    if (report_predict(p->t, l, &g)) strbuf_printf(p->h, "<td class=n>%.1f<td class=n>%.0f%%<td>%s<td class=n>%.0f%%", g.us, 100 * g.ideal_us / g.us, g.bound, 100 * g.occupancy);
    else if (p->t->part->target->levels[0].gpu) strbuf_puts(p->h, "<td><td><td><td>");
    strbuf_puts(p->h, "<td>");
    html_text(p->h, l->loc);
    strbuf_puts(p->h, "</tr>\n");
    strbuf_deinit(&types);
}

static void kernels(struct page *p)
{
    strbuf_puts(p->h, "<h2>Kernels</h2>\n<p>In program order. Sizes and work at the smallest shapes; code of all levels together.");
    if (p->t->generic) strbuf_printf(p->h, " <b class=bad>%zu launches are generic lowerings</b>: right, but not tuned for their operation.", p->t->generic);
    if (p->t->part->target->levels[0].gpu)
        strbuf_printf(p->h, " Times are <b>predictions</b> for %s; nothing was measured.", p->t->part->target->levels[0].gpu->device.name);
    strbuf_puts(p->h, "</p>\n<table><tr><th class=n>launch<th>schedule<th>kernel<th>precision<th class=n>MFLOP<th class=n>operands, KB<th class=n>code, KB");
    if (p->timing) strbuf_puts(p->h, "<th class=n>us<th class=n>share<th class=n>GFLOP/s<th class=n>GB/s");
    if (p->t->part->target->levels[0].gpu) strbuf_puts(p->h, "<th class=n>predicted us<th class=n>of roof<th>bound<th class=n>occupancy");
    strbuf_puts(p->h, "<th>nodes</tr>\n");
    for (size_t i = 0; i < p->t->list.n; i++) kernel_row(p, i);
    strbuf_puts(p->h, "</table>\n");
}

/* Where the time goes, or without a profile the work: a bar of all launches. */
static void share_bar(struct page *p)
{
    double sum = 0, x = LEFT, w = WIDTH - LEFT - RIGHT;
    for (size_t i = 0; i < p->t->list.n; i++) sum += p->timing ? p->timing[i].share : report_value(p->t, p->t->list.v[i]->flops);
    if (!(sum > 0)) return;
    strbuf_printf(p->h, "<h2>%s of each launch</h2>\n", p->timing ? "Time" : "Work");
    svg_begin(p->h, WIDTH, 60, "shares of the launches");
    for (size_t i = 0; i < p->t->list.n; i++) {
        const struct plan_launch *l = p->t->list.v[i];
        const struct plan_kernel *k = &p->t->part->plan->kernels.v[l->kernel];
        double part = (p->timing ? p->timing[i].share : report_value(p->t, l->flops)) / sum;
        char tip[200], cls[8];
        snprintf(tip, sizeof tip, "%zu %.60s (%.30s): %.2f%%", i, k->name, k->schedule, 100 * part);
        snprintf(cls, sizeof cls, "s%zu", i % 8);
        svg_rect(p->h, x, 10, w * part, 40, report_is_generic(k) ? "bad" : cls, tip);
        x += w * part;
    }
    svg_end(p->h);
}

/* ---- memory ---- */

static void memory(struct page *p)
{
    struct plan *plan = p->t->part->plan;
    uint64_t peak, sum, (*at)[2] = arena_alloc(&plan->arena, (plan->bufs.n + 1) * sizeof *at);
    if (!plan_arena_layout(plan, p->t->syms, at, &peak, &sum) || !peak) return;
    strbuf_printf(p->h, "<h2>Memory plan</h2>\n<p>%.1f KB of arena at the smallest shapes; all tensors together are %.1f KB. Across: launches in order. Up: "
                        "place in the arena. A box is a tensor from its writer to its last reader.</p>\n", 1e-3 * (double)peak, 1e-3 * (double)sum);
    double h = 320, w = WIDTH - LEFT - RIGHT, steps = plan->n_positions ? plan->n_positions : 1;
    svg_begin(p->h, WIDTH, h + 40, "memory plan");
    double step = svg_tick_step((double)peak, 5);
    for (double v = 0; v <= (double)peak; v += step) {
        char text[32];
        double y = 10 + h - h * v / (double)peak;
        snprintf(text, sizeof text, "%.4g KB", 1e-3 * v);
        svg_line(p->h, LEFT, y, WIDTH - RIGHT, y, "grid");
        svg_text(p->h, LEFT - 6, y + 4, "end", text);
    }
    for (size_t i = 0; i < plan->bufs.n; i++) {
        const struct plan_buf *b = &plan->bufs.v[i];
        if (b->kind != INFR_BUF_ARENA || !at[i][1]) continue;
        char tip[200], cls[8];
        snprintf(tip, sizeof tip, "buffer %zu %.60s: %.1f KB, launches %u to %u", i, b->name ? b->name : "", 1e-3 * (double)at[i][1], b->first, b->last);
        snprintf(cls, sizeof cls, "s%zu", i % 8);
        double top = 10 + h - h * (double)(at[i][0] + at[i][1]) / (double)peak;
        svg_rect(p->h, LEFT + w * b->first / steps, top, w * (b->last - b->first + 1) / steps, h * (double)at[i][1] / (double)peak, cls, tip);
    }
    svg_line(p->h, LEFT, 10 + h, WIDTH - RIGHT, 10 + h, "axis");
    svg_text(p->h, WIDTH - RIGHT, h + 28, "end", "launch");
    svg_end(p->h);
}

/* ---- roofline ---- */

struct roof {
    struct machine_peaks m;
    double x_lo, x_hi, y_lo, y_hi, h; /* log10 */
};

static double roof_x(const struct roof *r, double intensity) { return LEFT + (WIDTH - LEFT - RIGHT) * (log10(intensity) - r->x_lo) / (r->x_hi - r->x_lo); }
static double roof_y(const struct roof *r, double flops) { return 10 + r->h - r->h * (log10(flops) - r->y_lo) / (r->y_hi - r->y_lo); }

static void roof_grid(struct page *p, const struct roof *r)
{
    for (double d = r->x_lo; d <= r->x_hi; d++) {
        char text[32];
        double x = LEFT + (WIDTH - LEFT - RIGHT) * (d - r->x_lo) / (r->x_hi - r->x_lo);
        snprintf(text, sizeof text, "%g", pow(10, d));
        svg_line(p->h, x, 10, x, 10 + r->h, "grid");
        svg_text(p->h, x, r->h + 26, "middle", text);
    }
    for (double d = ceil(r->y_lo); d <= r->y_hi; d++) {
        char text[32];
        double y = roof_y(r, pow(10, d));
        snprintf(text, sizeof text, "%g", pow(10, d - 9));
        svg_line(p->h, LEFT, y, WIDTH - RIGHT, y, "grid");
        svg_text(p->h, LEFT - 6, y + 4, "end", text);
    }
    svg_text(p->h, WIDTH - RIGHT, r->h + 40, "end", "FLOP per byte of operands; up: GFLOP/s");
}

static void roofline(struct page *p)
{
    struct roof r = {.x_lo = -2, .x_hi = 4, .h = 300};
    int threads = p->threads >= 1 ? (int)p->threads : 1;
    if (!p->timing || !machine_measure(threads, (size_t)256 << 20, 0.5, &r.m) || r.m.read_bytes_s <= 0 || r.m.flops_s <= 0) return;
    r.y_hi = log10(r.m.flops_s) + 0.2, r.y_lo = r.y_hi - 5;
    double ridge = r.m.flops_s / r.m.read_bytes_s, lowest = pow(10, fmax(r.x_lo, r.y_lo - log10(r.m.read_bytes_s)));
    strbuf_printf(p->h, "<h2>Roofline</h2>\n<p>Kernels by the profile (level %s). The roof was measured on the machine of this build, %d threads: memory read at %.1f GB/s, f32 "
                        "multiply-adds at %.1f GFLOP/s. Operands that stay in a cache lie above the slope.</p>\n",
                  p->level, threads, 1e-9 * r.m.read_bytes_s, 1e-9 * r.m.flops_s);
    svg_begin(p->h, WIDTH, r.h + 46, "roofline");
    roof_grid(p, &r);
    svg_line(p->h, roof_x(&r, lowest), roof_y(&r, lowest * r.m.read_bytes_s), roof_x(&r, ridge), roof_y(&r, r.m.flops_s), "axis");
    svg_line(p->h, roof_x(&r, ridge), roof_y(&r, r.m.flops_s), WIDTH - RIGHT, roof_y(&r, r.m.flops_s), "axis");
    for (size_t i = 0; i < p->t->list.n; i++) {
        const struct timing *m = &p->timing[i];
        const struct plan_kernel *k = &p->t->part->plan->kernels.v[p->t->list.v[i]->kernel];
        if (m->us <= 0 || m->flops <= 0 || m->bytes <= 0) continue;
        double rate = 1e6 * m->flops / m->us, x = fmin(fmax(m->flops / m->bytes, 1e-2), 1e4);
        char tip[200], cls[8];
        snprintf(tip, sizeof tip, "%zu %.60s (%.30s): %.1f us, %.1f GFLOP/s, %.1f GB/s", i, k->name, k->schedule, m->us, 1e-9 * rate, 1e-3 * m->bytes / m->us);
        snprintf(cls, sizeof cls, "s%zu", i % 8);
        svg_circle(p->h, roof_x(&r, x), fmin(roof_y(&r, rate), 10 + r.h), 3 + 9 * sqrt(m->share), report_is_generic(k) ? "bad" : cls, tip);
    }
    svg_end(p->h);
}

bool report_html(struct report_facts *t, const char *engine_path, uint64_t engine_bytes, FILE *out)
{
    struct strbuf h = {0};
    struct page p = {.t = t, .h = &h};
    if (!read_profile(&p)) return false;
    const char *slash = strrchr(engine_path, '/');
    html_begin(&h, slash ? slash + 1 : engine_path);
    strbuf_printf(&h, "<p>%.2f MB; %zu launches of %zu kernels; %.1f MFLOP at the smallest shapes, %.2f%% of them in generic kernels.", 1e-6 * (double)engine_bytes,
                  t->launches, t->part->plan->kernels.n, 1e-6 * t->flops, t->flops > 0 ? 100 * t->generic_flops / t->flops : 0.0);
    if (p.timing) strbuf_printf(&h, " By the profile a run takes %.1f us on %g threads.", p.run_us, p.threads);
    else strbuf_puts(&h, " Times are added by --profile=FILE, made with <code>ENGINE profile --json</code>.");
    strbuf_puts(&h, "</p>\n");
    share_bar(&p);
    memory(&p);
    roofline(&p);
    kernels(&p);
    html_end(&h);
    bool ok = fwrite(h.data, 1, h.len, out) == h.len;
    strbuf_deinit(&h);
    return ok || diag_report(t->b->diag, DIAG_FILE_WRITE, NULL, "cannot write the report");
}
