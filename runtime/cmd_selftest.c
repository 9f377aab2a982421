// SPDX-License-Identifier: Apache-2.0
/*
 * The golden vectors: inputs are made from a seed; outputs, some caches and what lies at the plan's probes are compared with what
 * the compiler's evaluator computed. At a probe, values from the seed then take the place of the engine's, so that each stretch
 * between two probes (half a layer of a language model) is tested by itself. A test passes when max|difference| over the kept
 * elements of each is at most its tolerance * its scale. Large language models have none, for the evaluator would take longer
 * than the build: their levels are compared with the first one, at the same places.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/golden_text.h"
#include "runtime/cli.h"
#include "runtime/cpu.h"
#include "runtime/status.h"
#include "runtime/xxh64.h"

/* Of levels against each other: a rounding to 8 bits or fewer that went the other way (GOLDEN_TOLERANCE_STEPS). */
#define LEVELS_TOLERANCE 2e-2

#define SEED 1 /* of levels against each other */

struct outcome {
    double error; /* relative to the scale; infinite when dims or special values differ */
    double tolerance;
    int64_t probe; /* where; -1: an output or a cache */
};

/* Equal infinities and two nans are no difference. */
static double difference(double got, double want)
{
    if (got == want || (isnan(got) && isnan(want))) return 0;
    double d = fabs(got - want);
    return isfinite(d) ? d : INFINITY;
}

static double output_error(const struct infr_engine *e, const struct infr_golden_output *g,
                           const struct infr_tensor *t)
{
    double worst = 0;
    if (rt_tensor_elems(t) != g->elems) return INFINITY;
    for (uint32_t i = 0; i < g->n_values; i++) {
        double d = difference(rt_tensor_get(t, i * g->step), e->pool_f64[g->values + i]);
        if (d > worst) worst = d;
    }
    return worst == 0 ? 0 : g->scale > 0 ? worst / g->scale : INFINITY;
}

static bool has_state(const struct infr_engine *e)
{
    for (uint32_t i = 0; i < e->n_inputs; i++)
        if (e->inputs[i].optional == INFR_IO_STATE) return true;
    return false;
}

static int fill_text(struct infr_tensor *t, const char *name, uint64_t seed, struct infr_status *st)
{
    if (t->dtype != INFR_I32 && t->dtype != INFR_I64)
        return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: input '%.100s'", name);
    for (uint64_t i = 0; i < rt_tensor_elems(t); i++) {
        int64_t v = infr_golden_text_value(name, seed, i);
        if (t->dtype == INFR_I64)
            ((int64_t *)t->data)[i] = v;
        else
            ((int32_t *)t->data)[i] = (int32_t)v;
    }
    return INFR_OK;
}

/* Optional inputs are left out and state begins as zeros, as the evaluator has it. */
static int make_inputs(struct cli_engine *x, const int64_t *symbols, uint64_t seed,
                       struct infr_status *st)
{
    const struct infr_engine *e = x->e;
    static const int64_t none[1];
    bool text = has_state(e);
    int code = rt_input_shapes(x->s, e->n_symbols ? symbols : none, x->in, st);
    for (uint32_t i = 0; !code && i < e->n_inputs; i++) {
        struct infr_tensor shape = x->in[i];
        if (e->inputs[i].optional == INFR_IO_OPTIONAL) continue;
        code = rt_tensor_alloc(shape.dtype, shape.rank, shape.dims, UINT64_MAX, &x->in[i], st);
        if (code) continue;
        if (e->inputs[i].optional == INFR_IO_STATE)
            memset(x->in[i].data, 0, x->in[i].bytes);
        else if (text)
            code = fill_text(&x->in[i], rt_text(e, e->inputs[i].name), seed, st);
        else
            rt_tensor_random(&x->in[i], seed, i);
    }
    return code;
}

/* What is nearest to its tolerance, or farthest beyond, is what a vector's line tells. */
static void worse(struct outcome *o, double error, double tolerance, int64_t probe)
{
    if (o->tolerance == 0 || error * o->tolerance > o->error * tolerance) *o = (struct outcome){error, tolerance, probe};
}

/* ---- golden vectors ---- */

struct golden_look {
    const struct infr_engine *e;
    const struct infr_golden *g;
    struct outcome *out;
    uint32_t n_seen;
};

static double probe_error(const struct infr_engine *e, const struct infr_golden_output *row, const float *values, uint64_t n)
{
    double worst = 0;
    uint64_t first = infr_golden_probe_first(row->probe - 1, row->step);
    if (n != row->elems) return INFINITY;
    for (uint32_t i = 0; i < row->n_values; i++) {
        double d = difference(values[first + i * row->step], e->pool_f64[row->values + i]);
        if (d > worst) worst = d;
    }
    return worst == 0 ? 0 : row->scale > 0 ? worst / row->scale : INFINITY;
}

static void put_values(uint64_t seed, uint32_t probe, float *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) values[i] = infr_golden_probe_value(seed, probe, i);
}

static void look_golden(void *ctx, const struct infr_step *s, float *values, uint64_t n)
{
    struct golden_look *l = ctx;
    uint32_t number = s->b;
    for (uint32_t i = 0; i < l->g->n_rows; i++) {
        const struct infr_golden_output *row = &l->e->golden_outputs[l->g->outputs + i];
        if (row->probe != number + 1) continue;
        worse(l->out, probe_error(l->e, row, values, n), row->tolerance, number);
        l->n_seen++;
    }
    put_values(l->g->seed, number, values, n);
}

static uint32_t n_probe_rows(const struct infr_engine *e, const struct infr_golden *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_rows; i++) n += e->golden_outputs[g->outputs + i].probe != 0;
    return n;
}

static int run_golden(struct cli_engine *x, uint32_t i, struct outcome *out, struct infr_status *st)
{
    const struct infr_golden *g = &x->e->goldens[i];
    struct golden_look look = {.e = x->e, .g = g, .out = out};
    struct rt_probe probe = {look_golden, &look};
    int code = make_inputs(x, x->e->pool_i64 + g->symbols, g->seed, st);
    *out = (struct outcome){.probe = -1};
    for (uint32_t o = 0; o < x->e->n_outputs; o++) x->out[o].data = NULL;
    x->s->probe = &probe;
    if (!code) code = infr_session_run(x->s, x->in, x->out, st);
    x->s->probe = NULL;
    if (!code && look.n_seen != n_probe_rows(x->e, g)) worse(out, INFINITY, 1, -1); /* one was not met */
    for (uint32_t o = 0; !code && o < g->n_rows; o++) {
        const struct infr_golden_output *row = &x->e->golden_outputs[g->outputs + o];
        if (row->probe) continue;
        if (row->input == INFR_NONE ? o >= x->e->n_outputs : x->e->device != NULL) continue; /* states stay there */
        const struct infr_tensor *t = row->input == INFR_NONE ? &x->out[o] : &x->in[row->input];
        worse(out, output_error(x->e, row, t), row->tolerance, -1);
    }
    for (uint32_t k = 0; k < x->e->n_inputs; k++) rt_tensor_free(&x->in[k]);
    return code;
}

/* What is compared: "golden" and its number, or "against" and the level's name. */
static void report(struct cli *c, struct json *j, const char *level, const char *against, uint32_t golden, const struct outcome *o)
{
    bool ok = o->error <= o->tolerance;
    if (!c->json) {
        printf("%-4s  %-5s ", ok ? "ok" : "FAIL", level);
        if (against) printf("against %s", against);
        else printf("golden %u", golden);
        printf(": error %.3g, tolerance %.3g", o->error, o->tolerance);
        if (o->probe >= 0) printf(", at probe %lld", (long long)o->probe);
        putchar('\n');
        return;
    }
    json_open(j, NULL, '{');
    json_string(j, "level", level);
    if (against) json_string(j, "against", against);
    else json_int(j, "golden", golden);
    json_number(j, "error", o->error);
    json_number(j, "tolerance", o->tolerance);
    if (o->probe >= 0) json_int(j, "probe", o->probe);
    json_bool(j, "ok", ok);
    json_close(j, '}');
}

/* ---- levels against each other ---- */

/* What the first level had at one of its probes, or its first output. */
struct seen {
    float *values; /* NULL: it has not been there */
    uint64_t n;
    double scale;
};

/* Of the first level: a place for each probe and, behind them, for the output. */
struct reference {
    const char *level;
    struct seen *seen;
    uint32_t n_probes;
};

struct level_look {
    struct reference *r;
    bool first; /* the level is the reference */
    struct outcome out;
    uint32_t n_seen;
    bool no_memory;
};

static void reference_free(struct reference *r)
{
    for (uint32_t i = 0; r->seen && i <= r->n_probes; i++) free(r->seen[i].values);
    free(r->seen);
}

static uint32_t n_probes(const struct infr_engine *e)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n_steps; i++) n += e->steps[i].kind == INFR_STEP_PROBE;
    return n;
}

/* The deviation of n values, or of what was added to those that a probe put in the place of its own (base). */
static double scale_of(const float *values, uint64_t n, uint32_t base)
{
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++) {
        double v = values[i] - (base == INFR_NONE ? 0.0 : (double)infr_golden_probe_value(SEED, base, i));
        sum += v, squares += v * v;
    }
    double mean = n ? sum / (double)n : 0, var = n ? squares / (double)n - mean * mean : 0;
    return sqrt(var > 0 ? var : 0);
}

static void compare_seen(struct level_look *l, const struct seen *s, const float *values, uint64_t n, int64_t probe)
{
    double worst = s && s->values && s->n == n ? 0 : INFINITY;
    for (uint64_t i = 0; i < n && isfinite(worst); i++) {
        double d = isfinite(values[i]) ? difference(values[i], s->values[i]) : INFINITY;
        if (d > worst) worst = d;
    }
    worse(&l->out, worst == 0 ? 0 : s && s->scale > 0 ? worst / s->scale : INFINITY, LEVELS_TOLERANCE, probe);
}

/* The first level is compared with itself, too: values that are not finite. */
static void look(struct level_look *l, uint32_t at, uint32_t base, const float *values, uint64_t n)
{
    struct seen *s = at <= l->r->n_probes ? &l->r->seen[at] : NULL;
    if (l->first && s && !s->values) {
        *s = (struct seen){malloc((n + 1) * sizeof *values), n, scale_of(values, n, base)};
        if (s->values) memcpy(s->values, values, n * sizeof *values);
        else l->no_memory = true;
    }
    compare_seen(l, s, values, n, at < l->r->n_probes ? (int64_t)at : -1);
    l->n_seen++;
}

static void look_level(void *ctx, const struct infr_step *s, float *values, uint64_t n)
{
    struct level_look *l = ctx;
    bool sum = s->c < s->b && s->c < l->r->n_probes && l->r->seen[s->c].n == n;
    look(l, s->b, sum ? s->c : INFR_NONE, values, n);
    put_values(SEED, s->b, values, n);
}

static int run_text(struct cli_engine *x, struct infr_status *st)
{
    const struct infr_engine *e = x->e;
    int64_t *symbols = calloc((size_t)e->n_symbols + 1, sizeof *symbols);
    if (!symbols) return rt_fail_memory(st, "symbols", e->n_symbols * sizeof *symbols);
    for (uint32_t k = 0; k < e->n_symbols; k++) {
        const struct infr_symbol *y = &e->symbols[k];
        bool rows = y->bind_input != INFR_NONE &&
                    infr_golden_text_rows(rt_text(e, e->inputs[y->bind_input].name));
        symbols[k] = rows ? INFR_GOLDEN_TEXT_TOKENS : y->lo > 1 ? y->lo : 1;
    }
    int code = make_inputs(x, symbols, SEED, st);
    for (uint32_t o = 0; o < e->n_outputs; o++) x->out[o].data = NULL;
    if (!code) code = infr_session_run(x->s, x->in, x->out, st);
    free(symbols);
    for (uint32_t k = 0; k < e->n_inputs; k++) rt_tensor_free(&x->in[k]);
    return code;
}

static int look_output(struct level_look *l, const struct infr_tensor *t, struct infr_status *st)
{
    uint64_t n = rt_tensor_elems(t);
    float *values = malloc((n + 1) * sizeof *values);
    for (uint64_t i = 0; values && i < n; i++) values[i] = (float)rt_tensor_get(t, i);
    if (values) look(l, l->r->n_probes, INFR_NONE, values, n);
    bool ok = values && !l->no_memory;
    free(values);
    return ok ? INFR_OK : rt_fail_memory(st, "a level's values", n * sizeof *values);
}

static int compare_levels(struct cli *c, struct json *j, struct cli_engine *x, const char *level,
                          struct reference *r, bool *all_ok)
{
    struct infr_status st = {0};
    struct level_look l = {.r = r, .first = !r->level, .out = {.probe = -1}};
    struct rt_probe probe = {look_level, &l};
    if (l.first) {
        r->level = level;
        r->n_probes = n_probes(x->e);
        r->seen = calloc((size_t)r->n_probes + 1, sizeof *r->seen);
    }
    x->s->probe = &probe;
    int code = r->seen ? run_text(x, &st) : rt_fail_memory(&st, "a level's values", r->n_probes * sizeof *r->seen);
    x->s->probe = NULL;
    if (!code) code = look_output(&l, &x->out[0], &st);
    if (code) return cli_error(&st);
    if (l.n_seen != r->n_probes + 1) worse(&l.out, INFINITY, 1, -1); /* one was not met */
    report(c, j, level, r->level, 0, &l.out);
    *all_ok = *all_ok && l.out.error <= l.out.tolerance;
    return INFR_OK;
}

/* ---- levels ---- */

/* All vectors at one level. */
static int test_level(struct cli *c, struct json *j, const char *level, struct reference *r,
                      bool *all_ok)
{
    struct cli_engine x;
    struct infr_status st = {0};
    c->engine_options.isa = *level == 's' ? NULL : level; /* an architecture is the device's */
    int code = cli_open(c, &x);
    if (code) return code;
    for (uint32_t i = 0; !code && i < x.e->n_goldens; i++) {
        struct outcome o;
        code = run_golden(&x, i, &o, &st);
        if (code) {
            cli_error(&st);
            break;
        }
        report(c, j, level, NULL, i, &o);
        *all_ok = *all_ok && o.error <= o.tolerance;
    }
    if (!code && !x.e->n_goldens && x.e->n_outputs && has_state(x.e))
        code = compare_levels(c, j, &x, level, r, all_ok);
    cli_close(&x);
    return code;
}

/* gpu: the architecture in use, or NULL; it is tested before the CPU's levels. */
static int test_levels(struct cli *c, struct json *j, const char *gpu, unsigned levels, bool *all_ok)
{
    struct reference r = {0};
    const char *forced = c->engine_options.isa, *device = c->engine_options.device;
    int code = 0;
    if (gpu) code = test_level(c, j, gpu, &r, all_ok);
    if (!device) c->engine_options.device = "cpu";
    if (forced && !code) code = test_level(c, j, forced, &r, all_ok);
    for (int l = 0; !forced && !code && l < INFR_ISA_COUNT; l++) {
        if (!(levels >> l & 1) || (l == INFR_ISA_AMX && rt_cpu_allow_amx())) continue;
        code = test_level(c, j, rt_isa_name(l), &r, all_ok);
    }
    reference_free(&r);
    return code;
}

int cmd_selftest(struct cli *c)
{
    struct json j = {.f = stdout};
    struct cli_engine x;
    bool all_ok = true;
    int code = cli_open(c, &x);
    if (code) return code;
    const char *gpu = x.e->device ? x.e->device->arch : NULL; /* of the engine's file: outlives it */
    bool cpu = x.e->has_cpu_code && !c->engine_options.device;
    unsigned levels = x.e->h.isa_mask & x.e->cpu_levels;
    uint64_t hash = rt_xxh64(x.e->weights, x.e->weights_bytes), want = x.e->h.weights_hash;
    uint32_t n_goldens = x.e->n_goldens;
    cli_close(&x);
    if (gpu && cpu) { /* the CPU's plan knows its levels */
        c->engine_options.device = "cpu";
        if ((code = cli_open(c, &x))) return code;
        levels = x.e->h.isa_mask & x.e->cpu_levels;
        cli_close(&x);
        c->engine_options.device = NULL;
    }
    bool weights_ok = !want || hash == want; /* 0: the compiler noted none */
    if (c->json) {
        json_open(&j, NULL, '{');
        json_bool(&j, "weights_ok", weights_ok);
        json_open(&j, "goldens", '[');
    } else {
        if (want)
            printf("%-4s  weights: hash %016" PRIx64 ", expected %016" PRIx64 "\n",
                   weights_ok ? "ok" : "FAIL", hash, want);
        if (!n_goldens) puts("this engine has no golden vectors");
    }
    code = test_levels(c, &j, gpu, levels, &all_ok);
    bool ok = weights_ok && all_ok && !code;
    if (c->json) {
        json_close(&j, ']');
        json_bool(&j, "ok", ok);
        json_close(&j, '}');
        putchar('\n');
    } else if (!code) {
        puts(ok ? "selftest passed" : "selftest failed");
    }
    return code ? code : ok ? INFR_OK : weights_ok ? INFR_GATE : INFR_ENVIRONMENT;
}
