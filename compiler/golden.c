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

/* Every step-th element, and the scale of all. */
static struct golden_output keep(struct ir_module *m, const struct ir_tensor *t, uint64_t most)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    struct golden_output g = {.elems = (uint64_t)n, .step = 1, .input = -1};
    if (g.elems > most) g.step = g.elems / most | 1; /* odd: meets every column */
    g.scale = error_scale(t);
    g.n_values = (uint32_t)((g.elems + g.step - 1) / g.step);
    g.values = ARENA_ARRAY(&m->arena, double, g.n_values);
    for (uint32_t i = 0; i < g.n_values; i++) g.values[i] = tensor_element(t, (int64_t)(i * g.step));
    return g;
}

/* ---- tolerances of language models ---- */

static const char *meta(const struct ir_module *m, const char *key)
{
    for (size_t i = 0; i < m->meta_keys.n; i++)
        if (!strcmp(m->meta_keys.v[i], key)) return m->meta_values.v[i];
    return "";
}

/*
 * Rounding feeds on itself: a value near a tie that goes the other way, behind a sum in another order, moves the next layers'
 * values across their ties. After some layers the difference is as large as the rounding's own, whatever it began with.
 */
static double text_tolerance(const struct ir_module *m)
{
    static const struct {
        const char *act;
        double tolerance;
    } rows[] = {{"i12", GOLDEN_TOLERANCE_I12}, {"i8", GOLDEN_TOLERANCE_I8}};
    double t = GOLDEN_TOLERANCE_F16;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strcmp(meta(m, "lm.act"), rows[i].act)) t = rows[i].tolerance;
    const struct ir_func *f = m->funcs.v[0];
    for (int i = 0; i < f->n_inputs; i++) /* a cache of nibbles */
        if (f->input_state && f->input_state[i] && f->body->args[i]->type.dtype == DT_U8) t = GOLDEN_TOLERANCE_I8;
    return t;
}

static bool rounds_activations(const struct ir_module *m)
{
    const char *act = meta(m, "lm.act");
    return *act && strcmp(act, "f32") != 0;
}

/* The first layer's cache is one rounding away from the embeddings; a value or two of the second's went the other way. */
static double state_tolerance(const struct ir_module *m, enum dtype t, int layer)
{
    double own = t == DT_F32 ? GOLDEN_TOLERANCE_F32 : t == DT_F16 ? GOLDEN_TOLERANCE_STATE_F16 : GOLDEN_TOLERANCE_F16;
    if (!strcmp(meta(m, "lm.act"), "i8")) return GOLDEN_TOLERANCE_I8;
    return rounds_activations(m) && layer > 0 && own < GOLDEN_TOLERANCE_STATE_I12 ? GOLDEN_TOLERANCE_STATE_I12 : own;
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

/*
 * The states that are kept: values of the first layers, which few roundings have touched, so that a tight bound holds for them
 * whatever is rounded. Layers share their kernels: all but the head's are behind the second layer's cache. Keys lie in pages in
 * an order that is the kernels' own.
 */
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
                     struct diag_sink *diag, int n_threads)
{
    int n = f->n_outputs;
    struct ir_value **values = ARENA_ARRAY(arena, struct ir_value *, n + n_states);
    for (int i = 0; i < n; i++) values[i] = ir_operand(f->body->last, i);
    for (int i = 0; i < n_states; i++) values[n + i] = final_state(f->body->args[states[i]]);
    if (n_states) set_return(f, values, n + n_states);
    bool ok = ir_eval_func_threads(f, in, out, arena, diag, n_threads) && !diag->error_count;
    if (n_states) set_return(f, values, n);
    return ok;
}

static bool try_size(struct ir_module *m, int n_threads, const int64_t *syms, struct golden *g)
{
    struct ir_func *f = m->funcs.v[0];
    struct arena arena;
    struct diag_sink diag; /* a size that breaks a check is no news */
    int states[GOLDEN_STATES], n_states = kept_states(f, states), n = f->n_outputs;
    arena_init(&arena);
    diag_init(&diag);
    struct ir_tensor *in = ARENA_ARRAY(&arena, struct ir_tensor, f->n_inputs), *out = ARENA_ARRAY(&arena, struct ir_tensor, n + n_states);
    bool ok = make_inputs(m, syms, in, &arena) && evaluate(f, in, out, states, n_states, &arena, &diag, n_threads);
    if (ok) {
        g->outputs = ARENA_ARRAY(&m->arena, struct golden_output, n + n_states);
        g->n_rows = (uint32_t)(n + n_states);
        for (int i = 0; i < n + n_states; i++) {
            g->outputs[i] = keep(m, &out[i], i >= n ? GOLDEN_STATE_VALUES : n_states ? GOLDEN_LOGITS : GOLDEN_VALUES);
            if (i < n && (out[i].dtype == DT_F16 || out[i].dtype == DT_BF16)) g->tolerance = GOLDEN_TOLERANCE_F16;
        }
        for (int i = 0; i < n; i++) g->outputs[i].tolerance = g->tolerance;
        for (int i = 0; i < n_states; i++) {
            g->outputs[n + i].input = states[i];
            g->outputs[n + i].tolerance = state_tolerance(m, out[n + i].dtype, i);
        }
    }
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

/*
 * A language model's, on a few tokens. Rounding of activations is what was asked for (--act): the reference rounds, too, and what
 * is left are the rare values that round the other way behind sums in another order.
 */
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
