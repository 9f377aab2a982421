// SPDX-License-Identifier: Apache-2.0
#include "compiler/golden.h"

#include "compiler/error_scale.h"
#include "compiler/npy.h"
#include "compiler/shapes.h"
#include "ir/build.h"
#include "ir/op.h"
#include "passes/pass.h"
#include "runtime/abi/golden_text.h"

/* Of a language model's constants. The evaluator unpacks every block: 135 million elements take 0.7 s. */
#define MAX_TEXT_ELEMS ((int64_t)1 << 31)
#define MAX_ATTEMPTS 6 /* a size may satisfy the checks and still fail inside a branch */

static bool has_state(const struct ir_func *f)
{
    for (int i = 0; f->input_state && i < f->n_inputs; i++)
        if (f->input_state[i]) return true;
    return false;
}

/* Values of a language model's input; false for a type that it does not have. */
static bool fill_text(struct ir_tensor *t, const char *name)
{
    size_t size = dtype_bytes(t->dtype);
    if (t->dtype != DT_I32 && t->dtype != DT_I64) return false;
    for (size_t i = 0; i < t->n_bytes / size; i++) {
        int64_t v = infr_golden_text_value(name, GOLDEN_SEED, i);
        if (t->dtype == DT_I64) ((int64_t *)t->data)[i] = v;
        else ((int32_t *)t->data)[i] = (int32_t)v;
    }
    return true;
}

static bool make_inputs(struct ir_module *m, const int64_t *syms, struct ir_tensor *in, struct arena *arena)
{
    const struct ir_func *f = m->funcs.v[0];
    for (int i = 0; i < f->n_inputs; i++) {
        const struct ir_type *t = &f->body->args[i]->type;
        size_t bytes = dtype_bytes(t->dtype);
        in[i] = (struct ir_tensor){.dtype = t->dtype, .rank = t->rank};
        for (int k = 0; k < t->rank; k++)
            if (!dim_eval(m->dims, t->dims[k], syms, &in[i].dims[k]) || in[i].dims[k] < 0 || !size_mul(bytes, (size_t)in[i].dims[k], &bytes))
                return false;
        in[i].n_bytes = bytes;
        if (f->input_optional && f->input_optional[i]) continue; /* left out: its default holds */
        in[i].data = arena_alloc(arena, bytes);
        if (f->input_state && f->input_state[i]) continue; /* zeros */
        bool ok = has_state(f) ? fill_text(&in[i], f->input_names[i]) : npy_fill_random(&in[i], GOLDEN_SEED, (uint32_t)i);
        if (!ok) return false;
    }
    return true;
}

/* Every step-th element from `first` on; the scale is the caller's. */
static struct golden_output keep(struct ir_module *m, const struct ir_tensor *t, uint64_t most, int probe)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    struct golden_output g = {.elems = (uint64_t)n, .step = 1, .input = -1, .probe = probe};
    if (g.elems > most) g.step = g.elems / most | 1; /* odd: meets every column */
    uint64_t first = probe < 0 ? 0 : infr_golden_probe_first((uint32_t)probe, g.step);
    g.n_values = g.elems ? (uint32_t)((g.elems - first + g.step - 1) / g.step) : 0;
    g.values = ARENA_ARRAY(&m->arena, double, g.n_values);
    for (uint32_t i = 0; i < g.n_values; i++) g.values[i] = tensor_element(t, (int64_t)(first + i * g.step));
    return g;
}

/* ---- tolerances of language models ---- */

static const char *meta(const struct ir_module *m, const char *key)
{
    for (size_t i = 0; i < m->meta_keys.n; i++)
        if (!strcmp(m->meta_keys.v[i], key)) return m->meta_values.v[i];
    return "";
}

static bool rounds_activations(const struct ir_module *m)
{
    const char *act = meta(m, "lm.act");
    return *act && strcmp(act, "f32") != 0;
}

/*
 * Of one stretch: half a layer, or the head. Both sides round as was asked for, and sums in another order move a value near a tie
 * over it now and then: that is one step of the coarsest format, in one of the many terms of a sum.
 */
static double text_tolerance(const struct ir_module *m)
{
    const struct ir_func *f = m->funcs.v[0];
    double t = rounds_activations(m) ? GOLDEN_TOLERANCE_CACHED : GOLDEN_TOLERANCE_F32;
    for (int i = 0; i < f->n_inputs; i++) {
        enum dtype d = f->input_state && f->input_state[i] ? f->body->args[i]->type.dtype : DT_F32;
        if (d != DT_F32 && t < GOLDEN_TOLERANCE_CACHED) t = GOLDEN_TOLERANCE_CACHED;
        if (dtype_bytes(d) < 2) t = GOLDEN_TOLERANCE_STEPS;
    }
    return strcmp(meta(m, "lm.act"), "i8") != 0 ? t : GOLDEN_TOLERANCE_STEPS;
}

/* ---- probes ---- */

size_t golden_n_probes(const struct ir_module *m)
{
    size_t n = 0;
    for (const struct ir_op *op = m->funcs.v[0]->body->first; op; op = op->next) n += op->code == IR_OP_PROBE;
    return n;
}

struct probes {
    struct ir_module *m;
    struct golden *g;
    uint64_t *n_elems; /* a probe */
    uint64_t most;     /* values of each */
};

/*
 * What the layer added is what its error is measured by: not what it passed on. Sums of both are rounded, which a layer that
 * adds next to nothing must not be blamed for.
 */
static double added_scale(const struct ir_tensor *t, uint32_t base, struct arena *arena)
{
    struct ir_tensor d = *t;
    uint64_t n = t->n_bytes / sizeof(float);
    float *x = ARENA_ARRAY(arena, float, n);
    for (uint64_t i = 0; i < n; i++) x[i] = ((const float *)t->data)[i] - infr_golden_probe_value(GOLDEN_SEED, base, i);
    d.data = x;
    double added = error_scale(&d), all = 1e-3 * error_scale(t);
    return added > all ? added : all;
}

static void seen(void *ctx, int number, int base, struct ir_tensor *t)
{
    struct probes *p = ctx;
    struct arena scratch;
    uint64_t n = t->n_bytes / sizeof(float);
    struct golden_output *row = &p->g->outputs[p->g->n_rows++];
    *row = keep(p->m, t, p->most, number);
    arena_init(&scratch);
    row->scale = base >= 0 && base < number && n == p->n_elems[base] ? added_scale(t, (uint32_t)base, &scratch) : error_scale(t);
    arena_deinit(&scratch);
    row->tolerance = p->g->tolerance;
    for (uint64_t i = 0; i < n; i++) ((float *)t->data)[i] = infr_golden_probe_value(GOLDEN_SEED, (uint32_t)number, i);
    p->n_elems[number] = n;
}

/* ---- caches ---- */

/* What a state is at the end: the last store into it. */
static struct ir_value *final_state(struct ir_value *v)
{
    for (const struct ir_use *u = v->uses; u;) {
        if ((ir_op_traits(u->user) & IR_T_STATE) && ir_operand(u->user, 0) == v) v = &u->user->results[0], u = v->uses;
        else u = u->next;
    }
    return v;
}

/* The states that are kept: values of the first layers. Keys lie in pages in an order that is the kernels' own. */
static int kept_states(const struct ir_func *f, int inputs[GOLDEN_STATES])
{
    int n = 0;
    for (int i = 0; f->input_state && i < f->n_inputs && n < GOLDEN_STATES; i++)
        if (f->input_state[i] && !strncmp(f->input_names[i], "v_cache.", 8) && dtype_is_float(f->body->args[i]->type.dtype)) inputs[n++] = i;
    return n;
}

/* Another `return`, in place of the one that is there; its operands are copied. */
static void set_return(struct ir_func *f, struct ir_value *const *values, int n)
{
    struct ir_op *old = f->body->last;
    struct ir_builder b = {.m = f->module, .block = f->body, .loc = old->loc};
    enum ir_opcode code = old->code;
    ir_op_erase(old);
    ir_build(&b, code, n, (struct ir_value **)values, 0, NULL, 0);
    f->n_outputs = n;
}

/* The function's outputs and, behind them, the states at the end. */
static bool evaluate(struct ir_func *f, struct ir_tensor *in, struct ir_tensor *out, const int *states, int n_states, struct arena *arena,
                     struct diag_sink *diag, int n_threads, const struct ir_eval_probe *probe)
{
    int n = f->n_outputs;
    struct ir_value **values = ARENA_ARRAY(arena, struct ir_value *, n + n_states);
    for (int i = 0; i < n; i++) values[i] = ir_operand(f->body->last, i);
    for (int i = 0; i < n_states; i++) values[n + i] = final_state(f->body->args[states[i]]);
    if (n_states) set_return(f, values, n + n_states);
    bool ok = ir_eval_func_probed(f, in, out, arena, diag, n_threads, probe) && !diag->error_count;
    if (n_states) set_return(f, values, n);
    return ok;
}

/* Rows of outputs and states, before those that probes have made. */
static void keep_ends(struct ir_module *m, struct golden *g, const struct ir_tensor *out, const int *states, int n_states)
{
    int n = m->funcs.v[0]->n_outputs;
    for (int i = 0; i < n + n_states; i++) {
        g->outputs[i] = keep(m, &out[i], i >= n ? GOLDEN_STATE_VALUES : n_states ? GOLDEN_LOGITS : GOLDEN_VALUES, -1);
        g->outputs[i].scale = error_scale(&out[i]);
        if (i < n && (out[i].dtype == DT_F16 || out[i].dtype == DT_BF16)) g->tolerance = GOLDEN_TOLERANCE_F16;
        if (i >= n) g->outputs[i].input = states[i - n];
    }
    for (int i = 0; i < n + n_states; i++) g->outputs[i].tolerance = g->tolerance;
}

static bool try_size(struct ir_module *m, int n_threads, const int64_t *syms, struct golden *g)
{
    struct ir_func *f = m->funcs.v[0];
    struct arena arena;
    struct diag_sink diag; /* a size that breaks a check is no news */
    int states[GOLDEN_STATES], n_states = kept_states(f, states), n = f->n_outputs + n_states;
    size_t n_probes = golden_n_probes(m);
    struct probes probes = {.m = m, .g = g, .most = GOLDEN_PROBES_VALUES / (n_probes + 1)};
    struct ir_eval_probe probe = {seen, &probes};
    arena_init(&arena);
    diag_init(&diag);
    g->outputs = ARENA_ARRAY(&m->arena, struct golden_output, (size_t)n + n_probes);
    probes.n_elems = ARENA_ARRAY(&arena, uint64_t, n_probes);
    if (probes.most < GOLDEN_PROBE_LEAST) probes.most = GOLDEN_PROBE_LEAST;
    g->n_rows = (uint32_t)n;
    struct ir_tensor *in = ARENA_ARRAY(&arena, struct ir_tensor, f->n_inputs), *out = ARENA_ARRAY(&arena, struct ir_tensor, n);
    bool ok = make_inputs(m, syms, in, &arena) && evaluate(f, in, out, states, n_states, &arena, &diag, n_threads, &probe);
    if (ok) keep_ends(m, g, out, states, n_states);
    diag_deinit(&diag);
    arena_deinit(&arena);
    return ok;
}

/* A few tokens, one sequence, one page. False when the model is too large to evaluate during a build. */
static bool set_text_symbols(const struct ir_module *m, int64_t *syms)
{
    const struct ir_func *f = m->funcs.v[0];
    int64_t total = 0, n;
    for (size_t i = 0; i < m->consts.n; i++)
        if (ir_type_static_elems(&m->consts.v[i]->type, &n)) total += n;
    for (size_t i = 0; i < dim_sym_count(m->dims); i++) {
        const struct dim *s = dim_sym_at(m->dims, i);
        syms[i] = s->lo > 1 ? s->lo : 1;
        for (int k = 0; k < f->n_inputs; k++)
            if (infr_golden_text_rows(f->input_names[k]) && f->body->args[k]->type.rank == 1 && f->body->args[k]->type.dims[0] == s)
                syms[i] = INFR_GOLDEN_TEXT_TOKENS;
        if (syms[i] > s->hi) return false;
    }
    return total <= MAX_TEXT_ELEMS;
}

/* A language model's, on a few tokens. Rounding of activations is what was asked for (--act): the reference rounds, too. */
static bool make_text(struct ir_module *m, int n_threads, struct golden *g)
{
    struct diag_sink diag;
    bool rounds = rounds_activations(m) && !act_is_done(m);
    diag_init(&diag);
    g->tolerance = text_tolerance(m);
    bool ok = set_text_symbols(m, g->sym_values) && (!rounds || pass_act(m, &diag)) && try_size(m, n_threads, g->sym_values, g);
    if (rounds) act_undo(m);
    diag_deinit(&diag);
    return ok;
}

struct golden *golden_make(struct ir_module *m, int n_threads)
{
    struct golden *g = ARENA_NEW(&m->arena, struct golden);
    *g = (struct golden){.seed = GOLDEN_SEED, .tolerance = GOLDEN_TOLERANCE_F32, .n_symbols = dim_sym_count(m->dims)};
    g->sym_values = ARENA_ARRAY(&m->arena, int64_t, g->n_symbols);
    if (has_state(m->funcs.v[0])) return make_text(m, n_threads, g) ? g : NULL;
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++)
        if (shapes_smallest(m, attempt, g->sym_values) && try_size(m, n_threads, g->sym_values, g)) return g;
    return NULL;
}
