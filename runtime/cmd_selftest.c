// SPDX-License-Identifier: Apache-2.0
/*
 * The golden vectors: inputs are made from a seed, outputs compared with what the compiler's
 * evaluator computed. A test passes when max|difference| over the kept elements is at most
 * tolerance * scale of the output.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/cli.h"
#include "runtime/cpu.h"
#include "runtime/status.h"
#include "runtime/xxh64.h"

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

/* Optional inputs are left out and state begins as zeros, as the evaluator has it. */
static int make_inputs(struct cli_engine *x, const struct infr_golden *g, struct infr_status *st)
{
    const struct infr_engine *e = x->e;
    static const int64_t none[1];
    int code = rt_input_shapes(x->s, e->n_symbols ? e->pool_i64 + g->symbols : none, x->in, st);
    for (uint32_t i = 0; !code && i < e->n_inputs; i++) {
        struct infr_tensor shape = x->in[i];
        if (e->inputs[i].optional == INFR_IO_OPTIONAL) continue;
        code = rt_tensor_alloc(shape.dtype, shape.rank, shape.dims, UINT64_MAX, &x->in[i], st);
        if (code) continue;
        if (e->inputs[i].optional == INFR_IO_STATE) memset(x->in[i].data, 0, x->in[i].bytes);
        else rt_tensor_random(&x->in[i], g->seed, i);
    }
    return code;
}

static int run_golden(struct cli_engine *x, uint32_t i, struct outcome *out, struct infr_status *st)
{
    const struct infr_golden *g = &x->e->goldens[i];
    int code = make_inputs(x, g, st);
    for (uint32_t o = 0; o < x->e->n_outputs; o++) x->out[o].data = NULL;
    if (!code) code = infr_session_run(x->s, x->in, x->out, st);
    *out = (struct outcome){0, g->tolerance};
    for (uint32_t o = 0; !code && o < x->e->n_outputs; o++) {
        double d = output_error(x->e, &x->e->golden_outputs[g->outputs + o], &x->out[o]);
        if (d > out->error) out->error = d;
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

/* All vectors at one level. */
static int test_level(struct cli *c, struct json *j, const char *level, bool *all_ok)
{
    struct cli_engine x;
    struct infr_status st = {0};
    c->engine_options.isa = level;
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
    cli_close(&x);
    return code;
}

static int test_levels(struct cli *c, struct json *j, unsigned levels, bool *all_ok)
{
    const char *forced = c->engine_options.isa;
    int code = 0;
    if (forced) return test_level(c, j, forced, all_ok);
    for (int l = 0; !code && l < INFR_ISA_COUNT; l++) {
        if (!(levels >> l & 1) || (l == INFR_ISA_AMX && rt_cpu_allow_amx())) continue;
        code = test_level(c, j, rt_isa_name(l), all_ok);
    }
    return code;
}

int cmd_selftest(struct cli *c)
{
    struct json j = {.f = stdout};
    struct cli_engine x;
    bool all_ok = true;
    int code = cli_open(c, &x);
    if (code) return code;
    unsigned levels = x.e->h.isa_mask & x.e->cpu_levels;
    uint64_t hash = rt_xxh64(x.e->weights, x.e->weights_bytes), want = x.e->h.weights_hash;
    uint32_t n_goldens = x.e->n_goldens;
    cli_close(&x);
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
    code = test_levels(c, &j, levels, &all_ok);
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
