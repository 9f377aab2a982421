// SPDX-License-Identifier: Apache-2.0
/*
 * The golden vectors: inputs are made from a seed, outputs compared with what the compiler's
 * evaluator computed, and the caches of a language model's first layers, too. A test passes when
 * max|difference| over the kept elements of each is at most its tolerance * its scale. Large language models have none, for the evaluator would take
 * longer than the build: their levels are compared with the first one.
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

/* Of levels against each other: rounding that adds up through the layers, activations' to 12 bits, too (GOLDEN_TOLERANCE_I12). */
#define LEVELS_TOLERANCE 0.2

struct outcome {
    double error; /* relative to the scale; infinite when dims or special values differ */
    double tolerance;
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
static void worse(struct outcome *o, double error, double tolerance)
{
    if (o->tolerance == 0 || error * o->tolerance > o->error * tolerance) *o = (struct outcome){error, tolerance};
}

static int run_golden(struct cli_engine *x, uint32_t i, struct outcome *out, struct infr_status *st)
{
    const struct infr_golden *g = &x->e->goldens[i];
    int code = make_inputs(x, x->e->pool_i64 + g->symbols, g->seed, st);
    for (uint32_t o = 0; o < x->e->n_outputs; o++) x->out[o].data = NULL;
    if (!code) code = infr_session_run(x->s, x->in, x->out, st);
    *out = (struct outcome){0, 0};
    for (uint32_t o = 0; !code && o < g->n_rows; o++) {
        const struct infr_golden_output *row = &x->e->golden_outputs[g->outputs + o];
        if (row->input == INFR_NONE ? o >= x->e->n_outputs : x->e->device != NULL) continue; /* states stay there */
        const struct infr_tensor *t = row->input == INFR_NONE ? &x->out[o] : &x->in[row->input];
        worse(out, output_error(x->e, row, t), row->tolerance);
    }
    for (uint32_t k = 0; k < x->e->n_inputs; k++) rt_tensor_free(&x->in[k]);
    return code;
}

static void report(struct cli *c, struct json *j, const char *level, uint32_t i,
                   const struct outcome *o)
{
    bool ok = o->error <= o->tolerance;
    if (!c->json) {
        printf("%-4s  %-5s golden %u: error %.3g, tolerance %.3g\n", ok ? "ok" : "FAIL", level, i,
               o->error, o->tolerance);
        return;
    }
    json_open(j, NULL, '{');
    json_string(j, "level", level);
    json_int(j, "golden", i);
    json_number(j, "error", o->error);
    json_number(j, "tolerance", o->tolerance);
    json_bool(j, "ok", ok);
    json_close(j, '}');
}

/* ---- levels against each other ---- */

/* The first output of the first level. */
struct reference {
    const char *level;
    double *values, scale;
    uint64_t n;
};

static int keep_reference(struct reference *r, const char *level, const struct infr_tensor *t,
                          struct infr_status *st)
{
    double sum = 0, squares = 0;
    r->n = rt_tensor_elems(t);
    r->values = malloc((r->n + 1) * sizeof *r->values);
    if (!r->values) return rt_fail_memory(st, "an output", r->n * sizeof *r->values);
    for (uint64_t i = 0; i < r->n; i++) {
        double v = r->values[i] = rt_tensor_get(t, i);
        sum += v, squares += v * v;
    }
    double mean = r->n ? sum / (double)r->n : 0,
           var = r->n ? squares / (double)r->n - mean * mean : 0;
    r->level = level;
    r->scale = sqrt(var > 0 ? var : 0);
    return INFR_OK;
}

static void report_levels(struct cli *c, struct json *j, const char *level,
                          const struct reference *r, double error)
{
    bool ok = error <= LEVELS_TOLERANCE;
    if (!c->json) {
        printf("%-4s  %-5s against %s: error %.3g, tolerance %.3g\n", ok ? "ok" : "FAIL", level,
               r->level, error, LEVELS_TOLERANCE);
        return;
    }
    json_open(j, NULL, '{');
    json_string(j, "level", level);
    json_string(j, "against", r->level);
    json_number(j, "error", error);
    json_number(j, "tolerance", LEVELS_TOLERANCE);
    json_bool(j, "ok", ok);
    json_close(j, '}');
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
    int code = make_inputs(x, symbols, 1, st);
    for (uint32_t o = 0; o < e->n_outputs; o++) x->out[o].data = NULL;
    if (!code) code = infr_session_run(x->s, x->in, x->out, st);
    free(symbols);
    for (uint32_t k = 0; k < e->n_inputs; k++) rt_tensor_free(&x->in[k]);
    return code;
}

static int compare_levels(struct cli *c, struct json *j, struct cli_engine *x, const char *level,
                          struct reference *r, bool *all_ok)
{
    struct infr_status st = {0};
    int code = run_text(x, &st);
    const struct infr_tensor *t = &x->out[0];
    if (!code && !r->values) code = keep_reference(r, level, t, &st);
    if (code) return cli_error(&st);
    double worst = rt_tensor_elems(t) == r->n ? 0 : INFINITY;
    for (uint64_t i = 0; i < r->n && isfinite(worst); i++) {
        double v = rt_tensor_get(t, i), d = isfinite(v) ? difference(v, r->values[i]) : INFINITY;
        if (d > worst) worst = d;
    }
    double error = worst == 0 ? 0 : r->scale > 0 ? worst / r->scale : INFINITY;
    report_levels(c, j, level, r, error);
    *all_ok = *all_ok && error <= LEVELS_TOLERANCE;
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
        report(c, j, level, i, &o);
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
    free(r.values);
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
