// SPDX-License-Identifier: Apache-2.0
/*
 * Driver of the evaluator: binds symbols, runs blocks op by op, and frees each value after its last use. Values share
 * counted buffers, so that reshapes, regions and yields copy nothing; constants and inputs are used in place.
 */
#include "ir/eval.h"

#include <stdlib.h>

#include "ir/encoding.h"
#include "ir/eval_driver.h"

#define EVAL_MAX_DEPTH 100

struct buffer {
    size_t refs;
    uint64_t pad; /* keeps the data aligned to 16 */
};

struct slot {
    struct ir_tensor t;
    struct buffer *buf;           /* NULL: borrowed memory */
    const struct ir_const *splat; /* t.data not there yet: one element to be repeated */
    const struct ir_op *last_use; /* op of the value's own block */
};

struct env {
    struct ir_module *m;
    struct diag_sink *diag;
    struct slot *slots; /* by value id */
    size_t n_slots;
    int64_t *syms;
    bool *bound;
    int n_threads, depth;
    const struct ir_eval_probe *probe; /* NULL: none */
    int n_probes;                      /* that have been passed */
};

/* Count and bytes of a shape; zero dims do not hide an overflow of the others. */
static bool shape_bytes(enum dtype dtype, int rank, const int64_t *dims, size_t *n_bytes)
{
    size_t all = dtype_bytes(dtype), count = all;
    if (rank < 0 || rank > IR_MAX_RANK || all == 0) return false;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0 || !size_mul(all, dims[i] ? (size_t)dims[i] : 1, &all) || all > EVAL_MAX_BYTES) return false;
        count *= (size_t)dims[i];
    }
    *n_bytes = count;
    return true;
}

/* The tensor that a type declares, without memory. */
static bool declare(struct eval_call *c, const struct ir_type *type, struct ir_tensor *t)
{
    *t = (struct ir_tensor){.dtype = type->dtype, .rank = type->rank};
    if (type->rank < 0 || type->rank > IR_MAX_RANK) return eval_fail(c, DIAG_IR_VERIFY, "rank %d", type->rank);
    for (int i = 0; i < type->rank; i++)
        if (!eval_dim(c, type->dims[i], &t->dims[i])) return false;
    if (dtype_bytes(t->dtype) == 0)
        return eval_fail(c, DIAG_DTYPE_UNSUPPORTED, "tensors of %s are not evaluated", dtype_name(t->dtype));
    t->enc = type->enc;
    if (t->enc ? !ir_type_bytes(type, &t->n_bytes) : !shape_bytes(t->dtype, t->rank, t->dims, &t->n_bytes))
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "a result with a negative dim or too many elements");
    return true;
}

static struct buffer *buffer_create(struct eval_call *c, size_t n_bytes)
{
    struct buffer *b = calloc(1, sizeof *b + (n_bytes ? n_bytes : 1));
    if (!b) {
        eval_fail(c, DIAG_ENVIRONMENT, "no memory for a tensor of %zu bytes", n_bytes);
        return NULL;
    }
    b->refs = 1;
    return b;
}

static void slot_release(struct slot *s)
{
    if (s->buf && --s->buf->refs == 0) free(s->buf);
    s->buf = NULL;
    s->splat = NULL;
    s->t.data = NULL;
}

static struct slot *slot_of(struct env *e, const struct ir_value *v) { return &e->slots[v->id]; }

/* Another reference to the same tensor; keeps to's last_use. */
static void slot_share(struct slot *to, const struct slot *from)
{
    to->t = from->t;
    to->buf = from->buf;
    to->splat = from->splat;
    if (to->buf) to->buf->refs++;
}

static bool misaligned(const void *p, enum dtype t) { return (uintptr_t)p % dtype_bytes(t) != 0; }

/* Makes a constant the value of a slot: in place, but for splats (later) and misaligned data in files (copied). */
static bool slot_set_const(struct eval_call *c, struct slot *s, const struct ir_const *k)
{
    if (!declare(c, &k->type, &s->t)) return false;
    if (k->n_bytes != (k->splat ? dtype_bytes(s->t.dtype) : s->t.n_bytes))
        return eval_fail(c, DIAG_IR_VERIFY, "constant of %zu bytes where %zu are declared", k->n_bytes, s->t.n_bytes);
    if (k->splat || (!k->type.enc && misaligned(k->data, s->t.dtype)))
        s->splat = k;
    else
        s->t.data = (void *)(uintptr_t)(s->t.n_bytes ? k->data : (const void *)s); /* never NULL, never written */
    return true;
}

/* Memory for what slot_set_const put off. */
static bool slot_expand(struct eval_call *c, struct slot *s)
{
    const struct ir_const *k = s->splat;
    if (!k) return true;
    s->buf = buffer_create(c, s->t.n_bytes);
    if (!s->buf) return false;
    char *dst = (char *)(s->buf + 1);
    if (!k->splat) {
        memcpy(dst, k->data, s->t.n_bytes);
    } else if (s->t.n_bytes) { /* doubling */
        size_t have = k->n_bytes;
        memcpy(dst, k->data, have);
        while (have < s->t.n_bytes) {
            size_t more = have < s->t.n_bytes - have ? have : s->t.n_bytes - have;
            memcpy(dst + have, dst, more);
            have += more;
        }
    }
    s->t.data = dst;
    s->splat = NULL;
    return true;
}

/* ---- last uses ---- */

static struct ir_block *home_of(const struct ir_value *v) { return v->def ? v->def->block : v->block; }

static bool note_uses(struct env *e, struct ir_block *b, int depth)
{
    if (depth > EVAL_MAX_DEPTH)
        return diag_report(e->diag, DIAG_IR_VERIFY, NULL, "regions are nested more than %d deep", EVAL_MAX_DEPTH);
    for (struct ir_op *op = b->first; op; op = op->next) {
        for (int i = 0; i < op->n_operands; i++) {
            struct ir_value *v = op->operands[i].value;
            if (!v) continue;
            const struct ir_op *user = op;
            while (user && user->block != home_of(v)) user = user->block->parent_op;
            if (!user || v->id >= e->n_slots)
                return diag_report(e->diag, DIAG_IR_VERIFY, op->loc ? op->loc->text : NULL,
                                   "%s: operand %d is not visible here", ir_op_name(op->code), i);
            slot_of(e, v)->last_use = user;
        }
        for (int i = 0; i < op->n_regions; i++)
            if (!note_uses(e, op->regions[i], depth + 1)) return false;
    }
    return true;
}

/* Releases what `last` was the last to use, looking through op and its regions. */
static void release_used(struct env *e, const struct ir_op *op, const struct ir_op *last)
{
    for (int i = 0; i < op->n_operands; i++) {
        struct ir_value *v = op->operands[i].value;
        if (v && slot_of(e, v)->last_use == last) slot_release(slot_of(e, v));
    }
    for (int i = 0; i < op->n_regions; i++)
        for (const struct ir_op *o = op->regions[i]->first; o; o = o->next) release_used(e, o, last);
}

/* After a failure: everything the block defined. */
static void release_block(struct env *e, const struct ir_block *b)
{
    for (int i = 0; i < b->n_args; i++) slot_release(slot_of(e, b->args[i]));
    for (const struct ir_op *op = b->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++) slot_release(slot_of(e, &op->results[i]));
}

/* ---- running ---- */

/* Operands and results as contiguous tensors for an op function. */
struct frame {
    struct ir_tensor *in, *out;
};

static bool frame_init(struct eval_call *c, struct frame *f, int n_in, int n_out)
{
    f->in = calloc((size_t)(n_in + n_out + 1), sizeof *f->in);
    if (!f->in) return eval_fail(c, DIAG_ENVIRONMENT, "no memory for %d operands", n_in);
    f->out = f->in + n_in;
    c->in = f->in;
    c->out = f->out;
    c->n_in = n_in;
    c->n_out = n_out;
    return true;
}

static bool run_plain(struct env *e, struct eval_call *c, struct frame *f, const struct ir_op *op)
{
    eval_fn fn = eval_find(op->code);
    if (!fn) return eval_fail(c, DIAG_IR_VERIFY, "not an op that can be evaluated here");
    for (int i = 0; i < op->n_operands; i++) {
        if (!op->operands[i].value) continue;
        struct slot *s = slot_of(e, op->operands[i].value);
        if (!slot_expand(c, s)) return false;
        f->in[i] = s->t;
        if (!f->in[i].data) return eval_fail(c, DIAG_IR_VERIFY, "operand %d has no value", i);
        if (f->in[i].enc && !eval_takes_encoding(op->code, i))
            return eval_fail(c, DIAG_DTYPE_UNSUPPORTED, "operand %d is an encoded constant", i);
    }
    for (int i = 0; i < op->n_results; i++) {
        struct slot *s = slot_of(e, &op->results[i]);
        if (!declare(c, &op->results[i].type, &s->t)) return false;
        bool in_place = op->code == IR_OP_RESHAPE || op->code == IR_OP_KV_WRITE;
        struct slot *from = in_place && op->operands[0].value ? slot_of(e, op->operands[0].value) : NULL;
        if (from && from->t.n_bytes == s->t.n_bytes) {
            s->buf = from->buf;
            if (s->buf) s->buf->refs++;
            s->t.data = from->t.data;
        } else {
            s->buf = buffer_create(c, s->t.n_bytes);
            if (!s->buf) return false;
            s->t.data = s->buf + 1;
        }
        f->out[i] = s->t;
    }
    return fn(c);
}

static bool run_block(struct env *e, struct ir_block *b, struct slot *results, int n_results);

static bool run_region(struct env *e, struct eval_call *c, const struct ir_op *op)
{
    struct ir_block *b = NULL;
    if (op->code == IR_OP_IF) {
        const struct ir_value *v = ir_operand(op, 0);
        struct slot *cond = v ? slot_of(e, v) : NULL;
        if (!cond || op->n_regions != 2 || !slot_expand(c, cond)) return eval_fail(c, DIAG_IR_VERIFY, "malformed");
        if (cond->t.dtype != DT_BOOL || cond->t.n_bytes != 1 || !cond->t.data)
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "the condition must be one bool");
        b = op->regions[*(const uint8_t *)cond->t.data ? 0 : 1];
    } else {
        if (op->n_regions != 1 || op->regions[0]->n_args != op->n_operands)
            return eval_fail(c, DIAG_IR_VERIFY, "the region's arguments are not the operands");
        b = op->regions[0];
        for (int i = 0; i < op->n_operands; i++) {
            if (!op->operands[i].value) continue;
            slot_share(slot_of(e, b->args[i]), slot_of(e, op->operands[i].value));
        }
    }
    struct slot *yielded = calloc((size_t)op->n_results + 1, sizeof *yielded);
    bool ok = yielded && run_block(e, b, yielded, op->n_results);
    if (!yielded) eval_fail(c, DIAG_ENVIRONMENT, "no memory for %d results", op->n_results);
    for (int i = 0; ok && i < op->n_results; i++) {
        struct ir_tensor want;
        struct slot *s = slot_of(e, &op->results[i]);
        const struct ir_op *last = s->last_use;
        *s = yielded[i];
        s->last_use = last;
        yielded[i].buf = NULL;
        if (!declare(c, &op->results[i].type, &want))
            ok = false;
        else if (want.dtype != s->t.dtype || want.rank != s->t.rank ||
                 memcmp(want.dims, s->t.dims, sizeof *want.dims * (size_t)want.rank) != 0)
            ok = eval_fail(c, DIAG_SHAPE_MISMATCH, "result %d is not of the declared type", i);
    }
    for (int i = 0; yielded && i < op->n_results; i++) slot_release(&yielded[i]);
    free(yielded);
    return ok;
}

static bool run_check_op(struct env *e, const struct ir_op *op)
{
    int n;
    const struct dim *const *a = ir_attr_dims(op, "a", &n), *const *b = ir_attr_dims(op, "b", &n);
    int64_t x, y;
    if (!a || !b || !dim_eval(e->m->dims, a[0], e->syms, &x) || !dim_eval(e->m->dims, b[0], e->syms, &y) ||
        (ir_attr_int(op, "is_le", 0) ? x > y : x != y))
        return diag_report(e->diag, DIAG_SHAPE_MISMATCH, op->loc ? op->loc->text : NULL, "%s",
                           ir_attr_string(op, "message", "a check failed"));
    return true;
}

static bool run_probe(struct env *e, struct eval_call *c, const struct ir_op *op)
{
    struct slot *s = slot_of(e, ir_operand(op, 0));
    int number = e->n_probes++;
    if (!e->probe) return true;
    if (!s->t.data || !s->buf) return eval_fail(c, DIAG_IR_VERIFY, "a probe of an input or a constant");
    e->probe->seen(e->probe->ctx, number, (int)ir_attr_int(op, "base", -1), &s->t);
    return true;
}

static bool run_op(struct env *e, const struct ir_op *op)
{
    if (op->code == IR_OP_CHECK) return run_check_op(e, op);
    struct eval_call c = {.op = op, .m = e->m, .syms = e->syms, .bound = e->bound, .diag = e->diag, .n_threads = e->n_threads};
    struct frame f = {0};
    bool ok;
    for (int i = 0; i < op->n_results; i++)
        if (op->results[i].id >= e->n_slots) return eval_fail(&c, DIAG_IR_VERIFY, "a value made while evaluating");
    if (op->code == IR_OP_CONSTANT) {
        const struct ir_const *k = ir_attr_const(op, "value");
        ok = k ? slot_set_const(&c, slot_of(e, &op->results[0]), k) : eval_fail(&c, DIAG_IR_VERIFY, "no value");
    } else if (op->code == IR_OP_IF || op->code == IR_OP_GROUP) {
        ok = run_region(e, &c, op);
    } else if (op->code == IR_OP_PROBE) {
        ok = run_probe(e, &c, op);
    } else {
        ok = frame_init(&c, &f, op->n_operands, op->n_results) && run_plain(e, &c, &f, op);
        eval_scratch_free(&c);
        free(f.in);
    }
    release_used(e, op, op);
    for (int i = 0; i < op->n_results; i++)
        if (!slot_of(e, &op->results[i])->last_use) slot_release(slot_of(e, &op->results[i]));
    return ok;
}

/* Runs a block to its terminator; results share the terminator's operands, expanded. */
static bool run_block(struct env *e, struct ir_block *b, struct slot *results, int n_results)
{
    bool ok = true;
    struct ir_op *op = b->first;
    if (++e->depth > EVAL_MAX_DEPTH) ok = diag_report(e->diag, DIAG_IR_VERIFY, NULL, "regions are nested too deep");
    for (; ok && op && !(ir_op_traits(op) & IR_T_TERM); op = op->next) ok = run_op(e, op);
    if (ok && (!op || op->n_operands != n_results))
        ok = diag_report(e->diag, DIAG_IR_VERIFY, NULL, "a block does not end with %d results", n_results);
    for (int i = 0; ok && i < n_results; i++) {
        struct eval_call c = {.op = op, .m = e->m, .diag = e->diag};
        struct ir_value *v = op->operands[i].value;
        if (!v || (!slot_of(e, v)->t.data && !slot_of(e, v)->splat))
            ok = eval_fail(&c, DIAG_IR_VERIFY, "operand %d has no value", i);
        else if (!slot_expand(&c, slot_of(e, v)))
            ok = false;
        else
            slot_share(&results[i], slot_of(e, v));
    }
    release_block(e, b);
    e->depth--;
    return ok;
}

/* ---- entry: symbols, inputs, outputs ---- */

static long sym_index(const struct dim_ctx *ctx, const struct dim *d)
{
    for (size_t i = 0; i < dim_sym_count(ctx); i++)
        if (dim_sym_at(ctx, i) == d) return (long)i;
    return -1;
}

/* Symbols of d without a value: their number; *which is one of them. Counts one symbol once per occurrence. */
static int unbound(const struct env *e, const struct dim *d, long *which)
{
    if (d->kind == DIM_SYM) {
        long i = sym_index(e->m->dims, d);
        if (i >= 0 && e->bound[i]) return 0;
        *which = i;
        return 1;
    }
    int n = 0;
    if (d->kind == DIM_POLY)
        for (int t = 0; t < d->n_terms; t++)
            for (int i = 0; i < d->terms[t].n_atoms; i++) n += unbound(e, d->terms[t].atoms[i], which);
    else if (d->kind != DIM_CONST && d->kind != DIM_OVERFLOW)
        n = unbound(e, d->a, which) + unbound(e, d->b, which);
    return n;
}

/* Solves d == value for the one unbound symbol when it stands alone in one term; true when something was bound. */
static bool solve(struct env *e, const struct dim *d, int64_t value)
{
    long which = -1;
    int64_t coeff = 1, rest = 0;
    if (unbound(e, d, &which) != 1 || which < 0) return false;
    if (d->kind == DIM_POLY) {
        coeff = 0;
        for (int t = 0; t < d->n_terms; t++)
            if (d->terms[t].n_atoms == 1 && d->terms[t].atoms[0] == dim_sym_at(e->m->dims, (size_t)which))
                coeff = d->terms[t].coeff;
        e->syms[which] = 0;
        if (!coeff || !dim_eval(e->m->dims, d, e->syms, &rest)) return false;
    } else if (d->kind != DIM_SYM) {
        return false;
    }
    if (!i64_sub(value, rest, &value)) return false;
    if (coeff == -1 ? value == INT64_MIN : value % coeff != 0) return false;
    e->syms[which] = value / coeff;
    e->bound[which] = true;
    return true;
}

static bool check_dim(struct env *e, const char *name, int axis, const struct dim *d, int64_t got)
{
    int64_t want;
    long ignored;
    if (!unbound(e, d, &ignored) && dim_eval(e->m->dims, d, e->syms, &want) && want == got) return true;
    struct strbuf s = {0};
    dim_print(&s, d);
    diag_report(e->diag, DIAG_SHAPE_MISMATCH, name, "dim %d of the input is %lld, which does not fit `%s`", axis,
                (long long)got, strbuf_get(&s));
    strbuf_deinit(&s);
    return false;
}

static bool bind_symbols(struct env *e, const struct ir_func *f)
{
    const struct dim_ctx *ctx = e->m->dims;
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < f->n_inputs; i++) {
            const struct ir_value *v = f->body->args[i];
            for (int d = 0; d < v->type.rank; d++) again |= solve(e, v->type.dims[d], slot_of(e, v)->t.dims[d]);
        }
    }
    for (int i = 0; i < f->n_inputs; i++) {
        const struct ir_value *v = f->body->args[i];
        for (int d = 0; d < v->type.rank; d++)
            if (!check_dim(e, f->input_names[i], d, v->type.dims[d], slot_of(e, v)->t.dims[d])) return false;
    }
    for (size_t i = 0; i < dim_sym_count(ctx); i++) {
        const struct dim *s = dim_sym_at(ctx, i);
        if (e->bound[i] && (e->syms[i] < s->lo || e->syms[i] > s->hi))
            return diag_report(e->diag, DIAG_SHAPE_MISMATCH, f->name, "%s is %lld, beyond its range", s->name,
                               (long long)e->syms[i]);
    }
    return true;
}

static bool run_checks(struct env *e)
{
    for (size_t i = 0; i < e->m->checks.n; i++) {
        const struct ir_check *k = &e->m->checks.v[i];
        int64_t a, b;
        long ignored;
        if (unbound(e, k->a, &ignored) || unbound(e, k->b, &ignored)) continue; /* about another function */
        if (!dim_eval(e->m->dims, k->a, e->syms, &a) || !dim_eval(e->m->dims, k->b, e->syms, &b))
            return diag_report(e->diag, DIAG_SHAPE_MISMATCH, NULL, "%s (overflow)", k->message);
        if (k->is_le ? a > b : a != b)
            return diag_report(e->diag, DIAG_SHAPE_MISMATCH, NULL, "%s (%lld and %lld)", k->message, (long long)a,
                               (long long)b);
    }
    return true;
}

static bool take_inputs(struct env *e, const struct ir_func *f, const struct ir_tensor *inputs)
{
    struct ir_op nothing = {.code = IR_OP_CONSTANT};
    struct eval_call c = {.op = &nothing, .m = e->m, .diag = e->diag};
    if (f->body->n_args != f->n_inputs) return diag_report(e->diag, DIAG_IR_VERIFY, f->name, "inputs are not arguments");
    for (int i = 0; i < f->n_inputs; i++) {
        const struct ir_value *v = f->body->args[i];
        const char *name = f->input_names[i];
        struct slot *s = slot_of(e, v);
        size_t n_bytes;
        if (!inputs[i].data && f->input_optional && f->input_optional[i] && f->input_default[i]) {
            if (!slot_set_const(&c, s, f->input_default[i])) return false;
            continue;
        }
        s->t = inputs[i];
        if (s->t.dtype != v->type.dtype)
            return diag_report(e->diag, DIAG_DTYPE_MISMATCH, name, "the input is %s, not %s", dtype_name(s->t.dtype),
                               dtype_name(v->type.dtype));
        if (s->t.rank != v->type.rank)
            return diag_report(e->diag, DIAG_SHAPE_MISMATCH, name, "the input has rank %d, not %d", s->t.rank, v->type.rank);
        if (!shape_bytes(s->t.dtype, s->t.rank, s->t.dims, &n_bytes) || n_bytes != s->t.n_bytes || (n_bytes && !s->t.data))
            return diag_report(e->diag, DIAG_SHAPE_MISMATCH, name, "the input's shape does not fit its data");
        if (!s->t.data) s->t.data = s; /* empty, but there */
    }
    return true;
}

static bool give_outputs(struct env *e, const struct ir_func *f, struct ir_tensor *outputs, struct arena *arena)
{
    struct slot *results = calloc((size_t)f->n_outputs + 1, sizeof *results);
    if (!results) return diag_report(e->diag, DIAG_ENVIRONMENT, f->name, "no memory for %d outputs", f->n_outputs);
    bool ok = run_block(e, f->body, results, f->n_outputs);
    for (int i = 0; i < f->n_outputs; i++) {
        if (ok) {
            outputs[i] = results[i].t;
            outputs[i].data = arena_dup(arena, results[i].t.data, results[i].t.n_bytes);
        }
        slot_release(&results[i]);
    }
    free(results);
    return ok;
}

bool ir_eval_func_probed(struct ir_func *f, const struct ir_tensor *inputs, struct ir_tensor *outputs, struct arena *arena,
                         struct diag_sink *diag, int n_threads, const struct ir_eval_probe *probe)
{
    struct ir_module *m = f->module;
    size_t n_syms = dim_sym_count(m->dims);
    struct env e = {.m = m, .diag = diag, .n_slots = m->next_id, .n_threads = n_threads, .probe = probe};
    e.slots = calloc(e.n_slots + 1, sizeof *e.slots);
    e.syms = calloc(n_syms + 1, sizeof *e.syms);
    e.bound = calloc(n_syms + 1, sizeof *e.bound);
    bool ok;
    if (!e.slots || !e.syms || !e.bound)
        ok = diag_report(diag, DIAG_ENVIRONMENT, f->name, "no memory for %zu values", e.n_slots);
    else
        ok = note_uses(&e, f->body, 0) && take_inputs(&e, f, inputs) && bind_symbols(&e, f) && run_checks(&e) &&
             give_outputs(&e, f, outputs, arena);
    free(e.slots);
    free(e.syms);
    free(e.bound);
    return ok;
}

bool ir_eval_func_threads(struct ir_func *f, const struct ir_tensor *inputs, struct ir_tensor *outputs, struct arena *arena,
                          struct diag_sink *diag, int n_threads)
{
    return ir_eval_func_probed(f, inputs, outputs, arena, diag, n_threads, NULL);
}

bool ir_eval_func(struct ir_func *f, const struct ir_tensor *inputs, struct ir_tensor *outputs, struct arena *arena,
                  struct diag_sink *diag)
{
    return ir_eval_func_threads(f, inputs, outputs, arena, diag, 1);
}

bool ir_eval_op(const struct ir_op *op, struct ir_module *m, const struct ir_tensor *operands, struct ir_tensor *results,
                const int64_t *sym_values, struct arena *arena, struct diag_sink *diag)
{
    struct eval_call c = {.op = op, .m = m, .syms = sym_values, .diag = diag, .n_threads = 1};
    c.n_in = op->n_operands;
    c.n_out = op->n_results;
    c.in = operands;
    c.out = results;
    eval_fn fn = eval_find(op->code);
    if (!fn) return eval_fail(&c, DIAG_IR_VERIFY, "cannot be evaluated by itself");
    for (int i = 0; i < op->n_operands; i++) {
        size_t n_bytes;
        const struct ir_tensor *t = &operands[i];
        if (t->enc && !eval_takes_encoding(op->code, i))
            return eval_fail(&c, DIAG_DTYPE_UNSUPPORTED, "operand %d is an encoded constant", i);
        if (t->data && !t->enc && (!shape_bytes(t->dtype, t->rank, t->dims, &n_bytes) || n_bytes != t->n_bytes))
            return eval_fail(&c, DIAG_SHAPE_MISMATCH, "operand %d: its shape does not fit its data", i);
    }
    for (int i = 0; i < op->n_results; i++) {
        if (!declare(&c, &op->results[i].type, &results[i])) return false;
        results[i].data = arena_alloc(arena, results[i].n_bytes);
    }
    bool ok = fn(&c);
    eval_scratch_free(&c);
    return ok;
}
