// SPDX-License-Identifier: Apache-2.0
#include "compiler/report.h"

#include "compiler/report_facts.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Symbol values that figures are stated at: lower bound, but at least 1. */
static int64_t *smallest(struct build *b, struct build_part *part)
{
    size_t n = dim_sym_count(b->m->dims);
    int64_t *v = ARENA_ARRAY(&part->plan->arena, int64_t, n);
    for (size_t i = 0; i < n; i++) v[i] = dim_sym_at(b->m->dims, i)->lo > 0 ? dim_sym_at(b->m->dims, i)->lo : 1;
    return v;
}

double report_value(const struct report_facts *t, const struct dim *d)
{
    int64_t v;
    return d && dim_eval(t->b->m->dims, d, t->syms, &v) ? (double)v : 0;
}

bool report_is_generic(const struct plan_kernel *k) { return !strcmp(k->schedule, "generic"); }

static void gather(struct report_facts *t, const struct plan_block *block)
{
    for (size_t i = 0; i < block->steps.n; i++) {
        const struct plan_step *s = &block->steps.v[i];
        if (s->kind == INFR_STEP_IF) {
            gather(t, s->then_block);
            gather(t, s->else_block);
            continue;
        }
        if (s->kind != INFR_STEP_LAUNCH) continue;
        bool generic = report_is_generic(&t->part->plan->kernels.v[s->launch->kernel]);
        double f = report_value(t, s->launch->flops);
        t->launches++;
        t->generic += generic;
        t->flops += f;
        t->generic_flops += generic ? f : 0;
        vec_push(&t->part->plan->arena, &t->list, s->launch);
    }
}

bool report_predict(const struct report_facts *t, const struct plan_launch *l, struct gpu_prediction *out)
{
    const struct plan *p = t->part->plan;
    const struct plan_kernel *k = &p->kernels.v[l->kernel];
    const struct target_gpu *gpu = t->part->target->levels[0].gpu;
    if (!gpu || !k->gpu.threads || report_value(t, l->slices[0]) < 1) return false; /* not launched at these sizes */
    struct gpu_work work = {report_value(t, l->slices[0]), report_value(t, l->flops), report_value(t, l->bytes), report_is_generic(k)};
    uint64_t types = 0;
    for (int i = 0; i < l->n_args; i++) types |= 1ull << p->bufs.v[l->args[i].buf].dtype;
    gpu_predict(gpu, &k->gpu, &work, types, out);
    return true;
}

/* The whole run's predicted time; 0 on CPUs. */
static double predicted_us(const struct report_facts *t)
{
    struct gpu_prediction g;
    double us = 0;
    for (size_t i = 0; i < t->list.n; i++)
        if (report_predict(t, t->list.v[i], &g)) us += g.us;
    return us;
}

static void print_text(struct report_facts *t, FILE *out, uint64_t peak, uint64_t sum)
{
    struct plan *p = t->part->plan;
    fprintf(out, "%zu launches of %zu kernels; %.1f MFLOP at the smallest shapes, %.2f%% of them in generic kernels\n", t->launches,
            p->kernels.n, t->flops * 1e-6, t->flops > 0 ? 100 * t->generic_flops / t->flops : 0.0);
    fprintf(out, "arena %llu bytes planned, %llu the sum of all tensors\n", (unsigned long long)peak, (unsigned long long)sum);
    for (size_t i = 0; i < t->list.n; i++) {
        const struct plan_launch *l = t->list.v[i];
        const struct plan_kernel *k = &p->kernels.v[l->kernel];
        struct gpu_prediction g;
        fprintf(out, "%s%-15s %10.3f MFLOP  ", report_is_generic(k) ? "* " : "  ", k->schedule, report_value(t, l->flops) * 1e-6);
        if (report_predict(t, l, &g)) fprintf(out, "%8.1f us %3.0f%% %-6s ", g.us, 100 * g.ideal_us / g.us, g.bound);
        else if (k->gpu.threads) fprintf(out, "%23s ", "none at these sizes");
        fprintf(out, "%-32s %s\n", k->name, l->loc);
    }
    double us = predicted_us(t);
    if (us > 0)
        fprintf(out, "times are predictions for %s, never measured: %.1f us together; share of the roofline, and what bounds the launch\n",
                t->part->target->levels[0].gpu->device.name, us);
    for (size_t i = 0; i < t->b->m->tiled.n; i++) {
        const struct ir_tiled *w = &t->b->m->tiled.v[i];
        fprintf(out, "winograd F(%dx%d, 3x3), errors up to %.1e of the greatest output (direct: %.1e): %s\n", w->size, w->size, w->error, w->direct,
                w->loc ? w->loc->text : "?");
    }
    for (size_t i = 0; i < t->b->m->wide_sums.n; i++) fprintf(out, "sum in f64, a logarithm follows: %s\n", t->b->m->wide_sums.v[i]->text);
    if (t->generic) fprintf(out, "* generic lowering: right, but not tuned for this operation\n");
}

static void print_json(struct report_facts *t, FILE *out, uint64_t peak, uint64_t sum, const char *engine, uint64_t engine_bytes)
{
    struct plan *p = t->part->plan;
    struct strbuf s = {0};
    strbuf_printf(&s, "{\n  \"target\": \"%s\",\n  \"engine\": ", t->part->target->name);
    strbuf_put_json(&s, engine);
    strbuf_printf(&s, ",\n  \"engine_bytes\": %llu,\n  \"flops\": %.0f,\n  \"generic_flops\": %.0f,\n  \"generic_flops_share\": %.6f,\n",
                  (unsigned long long)engine_bytes, t->flops, t->generic_flops, t->flops > 0 ? t->generic_flops / t->flops : 0.0);
    if (t->part->target->levels[0].gpu) {
        strbuf_puts(&s, "  \"predicted_device\": ");
        strbuf_put_json(&s, t->part->target->levels[0].gpu->device.name);
        strbuf_printf(&s, ",\n  \"predicted_us\": %.3f,\n", predicted_us(t));
    }
    strbuf_printf(&s, "  \"arena_bytes\": %llu,\n  \"tensor_bytes\": %llu,\n  \"kernels\": %zu,\n  \"launches\": [", (unsigned long long)peak,
                  (unsigned long long)sum, p->kernels.n);
    for (size_t i = 0; i < t->list.n; i++) {
        const struct plan_launch *l = t->list.v[i];
        const struct plan_kernel *k = &p->kernels.v[l->kernel];
        strbuf_printf(&s, "%s\n    {\"kernel\": %d, \"name\": \"%s\", \"schedule\": \"%s\", \"flops\": %.0f, ", i ? "," : "", l->kernel,
                      k->name, k->schedule, report_value(t, l->flops));
        struct gpu_prediction g;
        if (report_predict(t, l, &g))
            strbuf_printf(&s, "\"predicted\": {\"us\": %.3f, \"roofline_share\": %.4f, \"bound\": \"%s\", \"ctas\": %.0f, \"occupancy\": %.4f}, ", g.us,
                          g.ideal_us / g.us, g.bound, g.ctas, g.occupancy);
        strbuf_puts(&s, "\"nodes\": ");
        strbuf_put_json(&s, l->loc);
        strbuf_putc(&s, '}');
    }
    strbuf_puts(&s, "\n  ],\n  \"sums_in_f64\": [");
    for (size_t i = 0; i < t->b->m->wide_sums.n; i++) {
        strbuf_puts(&s, i ? ", " : "");
        strbuf_put_json(&s, t->b->m->wide_sums.v[i]->text);
    }
    strbuf_puts(&s, "],\n  \"winograd\": [");
    for (size_t i = 0; i < t->b->m->tiled.n; i++) {
        const struct ir_tiled *w = &t->b->m->tiled.v[i];
        strbuf_printf(&s, "%s\n    {\"size\": %d, \"error\": %.3e, \"direct_error\": %.3e, \"nodes\": ", i ? "," : "", w->size, w->error, w->direct);
        strbuf_put_json(&s, w->loc ? w->loc->text : "?");
        strbuf_putc(&s, '}');
    }
    strbuf_puts(&s, "]\n}\n");
    fputs(strbuf_get(&s), out);
    strbuf_deinit(&s);
}

static bool is_page(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".html") || !strcmp(dot, ".htm"));
}

/* One target's part of the report; a page is of the first one. */
static bool report_part(struct build *b, struct build_part *part, FILE *out, const char *engine, uint64_t engine_bytes)
{
    uint64_t peak, sum;
    struct report_facts t = {.b = b, .part = part, .syms = smallest(b, part)};
    gather(&t, part->plan->entry);
    plan_arena_bytes(part->plan, t.syms, &peak, &sum);
    if (option_given(b->o, OPT_JSON)) {
        print_json(&t, out, peak, sum, engine, engine_bytes);
        return true;
    }
    if (is_page(option_value(b->o, OPT_REPORT, ""))) return part != b->parts || report_html(&t, engine, engine_bytes, out);
    if (b->n_parts > 1 || part->target->levels[0].gpu) fprintf(out, "target %s: ", part->target->name);
    print_text(&t, out, peak, sum);
    return true;
}

bool report_build(struct build *b, const char *engine_path)
{
    struct stat st;
    uint64_t bytes = stat(engine_path, &st) == 0 ? (uint64_t)st.st_size : 0;
    bool json = option_given(b->o, OPT_JSON);
    if (!json) fprintf(stderr, "%s: %.1f MB\n", engine_path, (double)bytes * 1e-6);
    if (!option_given(b->o, OPT_REPORT) && !json) return true;
    const char *path = option_value(b->o, OPT_REPORT, "");
    bool ok = true;
    FILE *out = path[0] ? fopen(path, "w") : stdout;
    if (!out) return diag_report(b->diag, DIAG_FILE_WRITE, path, "cannot write the report");
    if (json && b->n_parts > 1) fputs("[\n", out);
    for (int i = 0; i < b->n_parts; i++) {
        if (json && i) fputs(",\n", out);
        ok = report_part(b, &b->parts[i], out, engine_path, bytes) && ok;
    }
    if (json && b->n_parts > 1) fputs("]\n", out);
    if (path[0] && fclose(out)) ok = diag_report(b->diag, DIAG_FILE_WRITE, path, "cannot write the report");
    return ok;
}
