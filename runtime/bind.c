// SPDX-License-Identifier: Apache-2.0
/* From the caller's tensors to symbol values, and from symbol values to sizes and places. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/first_fit.h"
#include "runtime/session.h"
#include "runtime/status.h"
#include "runtime/workers.h"

/* Constants of STREAM_BYTES and more are streams; they are looked for in so many launches. */
enum { STREAM_BYTES = 16384, AHEAD_LAUNCHES = 12 };

/* A launch that every worker does touches EACH_BYTES at most, in a copy of an arena of EACH_ARENA at most. */
enum { EACH_BYTES = 65536, EACH_ARENA = 1 << 20 };

/* ---- dim program ---- */

static bool divide(int64_t a, int64_t b, int64_t *quotient, int64_t *modulus)
{
    if (b == 0 || (a == INT64_MIN && b == -1)) return false;
    int64_t q = a / b, r = a % b;
    if (r && (r < 0) != (b < 0)) q--, r += b;
    *quotient = q;
    *modulus = r;
    return true;
}

bool rt_dims_eval(const struct infr_engine *e, const int64_t *sym, int64_t *dim, uint32_t *bad_row)
{
    for (uint32_t i = 0; i < e->n_dims; i++) {
        const struct infr_dim *d = &e->dims[i];
        int64_t a = 0, b = 0, other;
        bool ok = true;
        if (d->op != INFR_DIM_CONST && d->op != INFR_DIM_SYM) a = dim[d->a], b = dim[d->b];
        switch ((enum infr_dim_op)d->op) {
        case INFR_DIM_CONST: dim[i] = d->imm; break;
        case INFR_DIM_SYM: dim[i] = sym[d->a]; break;
        case INFR_DIM_ADD: ok = !__builtin_add_overflow(a, b, &dim[i]); break;
        case INFR_DIM_MUL: ok = !__builtin_mul_overflow(a, b, &dim[i]); break;
        case INFR_DIM_FLOORDIV: ok = divide(a, b, &dim[i], &other); break;
        case INFR_DIM_MOD: ok = divide(a, b, &other, &dim[i]); break;
        case INFR_DIM_MIN: dim[i] = a < b ? a : b; break;
        case INFR_DIM_MAX: dim[i] = a > b ? a : b; break;
        }
        if (!ok) {
            *bad_row = i;
            return false;
        }
    }
    return true;
}

static int fail_row(const struct infr_engine *e, uint32_t row, struct infr_status *st)
{
    char text[96];
    rt_dim_text(e, row, text, sizeof text);
    return rt_fail(st, INFR_BAD_INPUT, "these input shapes are too large: %s cannot be computed",
                   text);
}

/* Bytes of a tensor of these dims; false on a negative dim or overflow. */
static bool tensor_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims, uint64_t *out)
{
    int64_t n = (int64_t)dtype_bytes((enum dtype)dtype);
    bool zero = false;
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] < 0) return false;
        if (dims[i] == 0) zero = true;
        else if (__builtin_mul_overflow(n, dims[i], &n)) return false;
    }
    *out = zero ? 0 : (uint64_t)n;
    return true;
}

void rt_tensor_text(uint32_t dtype, uint32_t rank, const int64_t *dims, char *out, size_t out_bytes)
{
    size_t n = (size_t)snprintf(out, out_bytes, "%s[", dtype_name((enum dtype)dtype));
    for (uint32_t i = 0; i < rank && i < INFR_MAX_RANK && n < out_bytes; i++)
        n += (size_t)snprintf(out + n, out_bytes - n, i ? ",%" PRId64 : "%" PRId64, dims[i]);
    if (n < out_bytes) snprintf(out + n, out_bytes - n, "]");
}

/* "f32[batch,8]": what the contract says. */
static void contract_text(const struct infr_engine *e, const struct infr_io *io, char *out,
                          size_t out_bytes)
{
    size_t n = (size_t)snprintf(out, out_bytes, "%s[", dtype_name((enum dtype)io->dtype));
    for (uint32_t i = 0; i < io->rank && n < out_bytes; i++) {
        char dim[48];
        rt_dim_text(e, e->pool_u32[io->dims + i], dim, sizeof dim);
        n += (size_t)snprintf(out + n, out_bytes - n, i ? ",%s" : "%s", dim);
    }
    if (n < out_bytes) snprintf(out + n, out_bytes - n, "]");
}

/* ---- binding ---- */

static int check_tensor(const struct infr_engine *e, uint32_t i, const struct infr_tensor *t,
                        bool with_data, struct infr_status *st)
{
    const struct infr_io *io = &e->inputs[i];
    const char *name = rt_text(e, io->name);
    char want[256], got[256];
    contract_text(e, io, want, sizeof want);
    rt_tensor_text(t->dtype, t->rank, t->dims, got, sizeof got);
    if (t->rank > INFR_MAX_RANK)
        return rt_fail(st, INFR_BAD_INPUT, "input '%.100s': %u dims; %d are possible", name,
                       t->rank, INFR_MAX_RANK);
    if (t->dtype != io->dtype)
        return rt_fail(
            st, INFR_BAD_INPUT, "input '%.100s': element type %s expected (%s), got %s (%s)", name,
            dtype_name((enum dtype)io->dtype), want, dtype_name((enum dtype)t->dtype), got);
    if (t->rank != io->rank)
        return rt_fail(st, INFR_BAD_INPUT, "input '%.100s': %u dims expected (%s), got %u (%s)",
                       name, io->rank, want, t->rank, got);
    uint64_t bytes;
    if (!tensor_bytes(t->dtype, t->rank, t->dims, &bytes))
        return rt_fail(st, INFR_BAD_INPUT, "input '%.100s': %s expected, got impossible dims %s",
                       name, want, got);
    if (!with_data) return INFR_OK;
    if (t->bytes != bytes)
        return rt_fail(st, INFR_BAD_INPUT,
                       "input '%.100s': %s takes %" PRIu64 " bytes, got %" PRIu64, name, got, bytes,
                       t->bytes);
    if ((uintptr_t)t->data % dtype_bytes((enum dtype)t->dtype))
        return rt_fail(st, INFR_BAD_INPUT,
                       "input '%.100s': its data is not aligned to its elements", name);
    return INFR_OK;
}

static bool left_out(const struct infr_engine *e, uint32_t i, const struct infr_tensor *t)
{
    return e->inputs[i].optional == INFR_IO_OPTIONAL && !t->data;
}

static int bind_symbols(struct infr_session *s, const struct infr_tensor *inputs, bool with_data,
                        struct infr_status *st)
{
    const struct infr_engine *e = s->e;
    for (uint32_t i = 0; i < e->n_inputs; i++) {
        const char *name = rt_text(e, e->inputs[i].name);
        if (left_out(e, i, &inputs[i])) continue;
        if (with_data && !inputs[i].data)
            return rt_fail(st, INFR_BAD_INPUT, "input '%.100s' is missing", name);
        int code = check_tensor(e, i, &inputs[i], with_data, st);
        if (code) return code;
    }
    for (uint32_t k = 0; k < e->n_symbols; k++) {
        const struct infr_symbol *y = &e->symbols[k];
        s->sym[k] = y->lo;
        if (y->bind_input == INFR_NONE) continue;
        const char *name = rt_text(e, e->inputs[y->bind_input].name);
        if (left_out(e, y->bind_input, &inputs[y->bind_input]))
            return rt_fail(st, INFR_BAD_INPUT,
                           "input '%.100s' is missing: its dim %u says what '%.60s' is", name,
                           y->bind_axis, rt_text(e, y->name));
        int64_t v = inputs[y->bind_input].dims[y->bind_axis];
        if (v < y->lo || v > y->hi) {
            char upper[32] = "no limit";
            if (y->hi != INT64_MAX) snprintf(upper, sizeof upper, "%" PRId64, y->hi);
            return rt_fail(st, INFR_BAD_INPUT,
                           "input '%.100s': dim %u ('%.60s') is %" PRId64 "; expected %" PRId64
                           " to %s",
                           name, y->bind_axis, rt_text(e, y->name), v, y->lo, upper);
        }
        s->sym[k] = v;
    }
    return INFR_OK;
}

/* " (seq = 7)": values of the symbols, as far as they fit. */
static void symbol_values(const struct infr_engine *e, const int64_t *sym, char *out,
                          size_t out_bytes)
{
    size_t n = 0;
    out[0] = 0;
    for (uint32_t k = 0; k < e->n_symbols && n < out_bytes; k++)
        if (e->symbols[k].bind_input != INFR_NONE)
            n += (size_t)snprintf(out + n, out_bytes - n, "%s%.40s = %" PRId64, n ? ", " : " with ",
                                  rt_text(e, e->symbols[k].name), sym[k]);
}

/* The other axes agree with the symbol values. */
static int check_dims(const struct infr_engine *e, const struct rt_shape *shape,
                      const struct infr_tensor *inputs, struct infr_status *st)
{
    for (uint32_t i = 0; i < e->n_inputs; i++) {
        const struct infr_io *io = &e->inputs[i];
        int64_t dims[INFR_MAX_RANK];
        for (uint32_t a = 0; a < io->rank; a++) dims[a] = shape->dim[e->pool_u32[io->dims + a]];
        if (left_out(e, i, &inputs[i])) {
            uint64_t bytes;
            if (!tensor_bytes(io->dtype, io->rank, dims, &bytes) || bytes != io->default_bytes)
                return rt_fail(st, INFR_BAD_INPUT,
                               "input '%.100s' is missing: its default has another shape",
                               rt_text(e, io->name));
            continue;
        }
        for (uint32_t a = 0; a < io->rank; a++) {
            if (inputs[i].dims[a] == dims[a]) continue;
            char text[96], values[160], want[32];
            rt_dim_text(e, e->pool_u32[io->dims + a], text, sizeof text);
            symbol_values(e, shape->sym, values, sizeof values);
            snprintf(want, sizeof want, "%" PRId64, dims[a]);
            return rt_fail(st, INFR_BAD_INPUT,
                           "input '%.100s': dim %u is %" PRId64 "; expected %s%s%s%s%s",
                           rt_text(e, io->name), a, inputs[i].dims[a], want,
                           strcmp(text, want) ? " (" : "", strcmp(text, want) ? text : "",
                           strcmp(text, want) ? ")" : "", strcmp(text, want) ? values : "");
        }
    }
    return INFR_OK;
}

int rt_check(const struct infr_engine *e, const struct rt_shape *shape, uint32_t i,
             struct infr_status *st)
{
    const struct infr_check *c = &e->checks[i];
    int64_t a = shape->dim[c->a], b = shape->dim[c->b];
    if (c->is_le ? a <= b : a == b) return INFR_OK;
    char ta[72], tb[72], values[120];
    rt_dim_text(e, c->a, ta, sizeof ta);
    rt_dim_text(e, c->b, tb, sizeof tb);
    symbol_values(e, shape->sym, values, sizeof values);
    return rt_fail(st, INFR_BAD_INPUT,
                   "the inputs' shapes do not fit: %s %s %s expected, got %" PRId64 " and %" PRId64
                   "%s%s%.120s",
                   ta, c->is_le ? "<=" : "==", tb, a, b, values, c->message ? ": " : "",
                   rt_text(e, c->message));
}

/* Those of branches wait until their branch is taken. */
static int check_checks(const struct infr_engine *e, const struct rt_shape *shape,
                        struct infr_status *st)
{
    int code = INFR_OK;
    for (uint32_t i = 0; !code && i < e->n_checks - e->h.branch_checks; i++)
        code = rt_check(e, shape, i, st);
    return code;
}

/* ---- shapes ---- */

#define LARGE (INT64_MAX / 4)

static int place_buffers(const struct infr_engine *e, struct rt_shape *shape,
                         struct infr_status *st)
{
    size_t n = 0;
    for (uint32_t i = 0; i < e->n_bufs; i++) n += e->bufs[i].kind == INFR_BUF_ARENA;
    if (!n) return INFR_OK;
    struct infr_placement *p = calloc(n, sizeof *p);
    uint32_t *order = calloc(2 * n, sizeof *order);
    if (!p || !order) {
        free(p);
        free(order);
        return rt_fail_memory(st, "placing buffers", n * (sizeof *p + 2 * sizeof *order));
    }
    size_t k = 0;
    for (uint32_t i = 0; i < e->n_bufs; i++) {
        if (e->bufs[i].kind != INFR_BUF_ARENA) continue;
        p[k++] = (struct infr_placement){.bytes = (uint64_t)shape->dim[e->bufs[i].bytes],
                                         .first = e->bufs[i].first,
                                         .last = e->bufs[i].last};
        shape->sum_bytes += p[k - 1].bytes;
    }
    shape->arena_bytes = infr_first_fit(p, n, order, order + n);
    for (uint32_t i = 0, j = 0; i < e->n_bufs; i++)
        if (e->bufs[i].kind == INFR_BUF_ARENA) shape->offset[i] = p[j++].offset;
    free(p);
    free(order);
    if (shape->arena_bytes > (uint64_t)LARGE)
        return rt_fail(st, INFR_BAD_INPUT, "these input shapes need more memory than there can be");
    return INFR_OK;
}

static int check_sizes(const struct infr_engine *e, const struct rt_shape *shape,
                       struct infr_status *st)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < e->n_bufs; i++) {
        const struct infr_buf *b = &e->bufs[i];
        int64_t bytes = shape->dim[b->bytes];
        if (bytes < 0 || bytes > LARGE || (total += (uint64_t)bytes) > (uint64_t)LARGE)
            return fail_row(e, b->bytes, st);
        if (b->kind == INFR_BUF_CONST && (uint64_t)bytes > b->const_bytes)
            return rt_fail(st, INFR_ENVIRONMENT,
                           "the engine is damaged: constant buffer %u is larger than its data", i);
        if (b->kind != INFR_BUF_INPUT && b->kind != INFR_BUF_OUTPUT) continue;
        const struct infr_io *io =
            b->kind == INFR_BUF_INPUT ? &e->inputs[b->io] : &e->outputs[b->io];
        int64_t dims[INFR_MAX_RANK];
        uint64_t want;
        for (uint32_t a = 0; a < io->rank; a++) dims[a] = shape->pool_dim[io->dims + a];
        if (!tensor_bytes(io->dtype, io->rank, dims, &want) || want != (uint64_t)bytes)
            return rt_fail(st, INFR_ENVIRONMENT,
                           "the engine is damaged: buffer %u has not the size of '%.100s'", i,
                           rt_text(e, io->name));
    }
    for (uint32_t i = 0; i < e->n_args; i++) {
        const struct infr_arg *a = &e->args[i];
        if (a->offset == INFR_NONE) continue;
        int64_t offset = shape->dim[a->offset];
        if (offset < 0 || offset > shape->dim[e->bufs[a->buf].bytes])
            return rt_fail(st, INFR_ENVIRONMENT,
                           "the engine is damaged: argument %u lies outside its buffer", i);
    }
    return INFR_OK;
}

static int count_slices(const struct infr_engine *e, struct rt_shape *shape, struct infr_status *st)
{
    int64_t most = 1;
    for (uint32_t i = 0; i < e->n_launches; i++) {
        const struct infr_launch *l = &e->launches[i];
        int64_t n = shape->dim[l->slices[e->kernel_isa[l->kernel]]];
        if (n < 0 || n > LARGE) return fail_row(e, l->slices[e->kernel_isa[l->kernel]], st);
        int64_t shares = l->claim ? (n + l->claim - 1) / l->claim : n;
        if (shares > most) most = shares;
        shape->slices[i] = n;
    }
    shape->max_workers = most > RT_MAX_WORKERS ? RT_MAX_WORKERS : (int)most;
    return INFR_OK;
}

/* The largest constant that a launch reads, from STREAM_BYTES on: weights. Row of the argument table, or -1. */
static int64_t stream_of(const struct infr_engine *e, const struct rt_shape *shape, uint32_t launch)
{
    const struct infr_launch *l = &e->launches[launch];
    int64_t stream = -1, bytes = STREAM_BYTES - 1;
    for (uint32_t a = 0; a < l->n_args; a++) {
        const struct infr_buf *b = &e->bufs[e->args[l->args + a].buf];
        if (b->kind != INFR_BUF_CONST || shape->dim[b->bytes] <= bytes) continue;
        bytes = shape->dim[b->bytes], stream = (int64_t)l->args + a;
    }
    return stream;
}

/* What is read next behind each launch, of the launches that follow it closely. */
static void find_streams(const struct infr_engine *e, struct rt_shape *shape)
{
    int64_t stream = -1, of = 0, n_workers = rt_pool_size(e->pool);
    if (n_workers > shape->max_workers) n_workers = shape->max_workers;
    for (uint32_t i = e->n_launches; i-- > 0;) {
        bool near = stream >= 0 && of - (int64_t)i <= AHEAD_LAUNCHES;
        shape->ahead[i] = near ? stream : -1, shape->ahead_launch[i] = of;
        if (shape->slices[i] < n_workers || e->launches[i].claim) continue;
        int64_t mine = stream_of(e, shape, i);
        if (mine >= 0) stream = mine, of = i;
    }
}

/*
 * Launches that every worker does for itself, so that nobody waits for what they make: those of one slice that the plan allows it
 * of, whose buffers are small, where there is more than one worker. A worker's own buffers are a copy of the arena.
 */
static void find_each(const struct infr_engine *e, struct rt_shape *shape)
{
    uint64_t bytes = (shape->arena_bytes + 4095) & ~(uint64_t)4095;
    memset(shape->each, 0, sizeof *shape->each * e->n_launches);
    memset(shape->own, 0, sizeof *shape->own * e->n_bufs);
    shape->own_bytes = 0;
    if (shape->n_tables == 1 || shape->probed || bytes > EACH_ARENA) return;
    for (uint32_t i = 0; i < e->n_launches; i++) {
        const struct infr_launch *l = &e->launches[i];
        int64_t sum = 0;
        for (uint32_t a = 0; a < l->n_args; a++) sum += shape->dim[e->bufs[e->args[l->args + a].buf].bytes];
        if (!(l->barrier & INFR_ORDER_EACH) || shape->slices[i] != 1 || l->claim || sum > EACH_BYTES) continue;
        shape->each[i] = 1;
        for (uint32_t a = l->n_read; a < l->n_args; a++) shape->own[e->args[l->args + a].buf] = 1;
        shape->own_bytes = bytes;
    }
    if (shape->own_bytes) shape->arena_bytes = bytes;
}

static uint32_t count_tables(const struct infr_engine *e)
{
    for (uint32_t i = 0; i < e->n_launches; i++)
        if (e->launches[i].barrier & INFR_ORDER_EACH) return (uint32_t)rt_pool_size(e->pool);
    return 1;
}

/* One allocation for all arrays of a shape. */
static int shape_alloc(const struct infr_engine *e, struct rt_shape *shape, struct infr_status *st)
{
    size_t n_io = (size_t)e->n_inputs + e->n_outputs;
    uint32_t n_tables = count_tables(e);
    size_t words = (size_t)e->n_symbols + e->n_dims + e->n_pool_u32 + e->n_bufs +
                   4 * (size_t)e->n_launches + e->n_bufs + (size_t)n_tables * e->n_args + n_io;
    int64_t *m = calloc(words + 1, sizeof *m);
    if (!m) return rt_fail_memory(st, "a shape", words * sizeof *m);
    shape->memory = m;
    shape->sym = m, m += e->n_symbols;
    shape->dim = m, m += e->n_dims;
    shape->pool_dim = m, m += e->n_pool_u32;
    shape->offset = (uint64_t *)m, m += e->n_bufs;
    shape->slices = m, m += e->n_launches;
    shape->ahead = m, m += e->n_launches;
    shape->ahead_launch = m, m += e->n_launches;
    shape->each = m, m += e->n_launches;
    shape->own = m, m += e->n_bufs;
    shape->n_tables = n_tables;
    shape->arg = (void **)m, m += (size_t)n_tables * e->n_args;
    shape->arg_io = (void **)m;
    return INFR_OK;
}

static int shape_fill(struct infr_session *s, struct rt_shape *shape, struct infr_status *st)
{
    const struct infr_engine *e = s->e;
    uint32_t bad;
    for (uint32_t k = 0; k < e->n_symbols; k++) shape->sym[k] = s->sym[k];
    if (!rt_dims_eval(e, shape->sym, shape->dim, &bad)) return fail_row(e, bad, st);
    for (uint32_t i = 0; i < e->n_pool_u32; i++)
        shape->pool_dim[i] = e->pool_u32[i] < e->n_dims ? shape->dim[e->pool_u32[i]] : 0;
    return INFR_OK;
}

static int check_outputs(const struct infr_engine *e, const struct rt_shape *shape,
                         struct infr_status *st)
{
    for (uint32_t i = 0; i < e->n_outputs; i++) {
        const struct infr_io *io = &e->outputs[i];
        int64_t dims[INFR_MAX_RANK];
        uint64_t bytes;
        for (uint32_t a = 0; a < io->rank; a++) dims[a] = shape->pool_dim[io->dims + a];
        if (!tensor_bytes(io->dtype, io->rank, dims, &bytes) ||
            bytes > (uint64_t)shape->dim[e->bufs[io->buf].bytes])
            return rt_fail(st, INFR_ENVIRONMENT,
                           "the engine is damaged: output '%.100s' is larger than its buffer",
                           rt_text(e, io->name));
    }
    return INFR_OK;
}

static int shape_finish(struct infr_session *s, struct rt_shape *shape, struct infr_status *st)
{
    shape->arg_arena = NULL;
    shape->probed = s->probe != NULL;
    shape->sum_bytes = shape->arena_bytes = 0;
    int code = check_checks(s->e, shape, st);
    if (!code) code = check_sizes(s->e, shape, st);
    if (!code) code = check_outputs(s->e, shape, st);
    if (!code) code = count_slices(s->e, shape, st);
    if (!code) find_streams(s->e, shape);
    if (!code) code = place_buffers(s->e, shape, st);
    if (!code) find_each(s->e, shape);
    return code;
}

static struct rt_shape *find_shape(struct infr_session *s, struct rt_shape **oldest)
{
    *oldest = &s->shapes[0];
    for (int i = 0; i < RT_KEPT_SHAPES; i++) {
        struct rt_shape *x = &s->shapes[i];
        if (x->used && x->probed == (s->probe != NULL) && !memcmp(x->sym, s->sym, sizeof *s->sym * s->e->n_symbols)) return x;
        if (x->used < (*oldest)->used) *oldest = x;
    }
    return NULL;
}

/* The shape of s->sym, new or kept. */
static int get_shape(struct infr_session *s, const struct infr_tensor *inputs,
                     struct rt_shape **out, struct infr_status *st)
{
    struct rt_shape *oldest, *x = find_shape(s, &oldest);
    bool known = x != NULL;
    int code = 0;
    if (!known) {
        x = oldest;
        x->used = 0;
        if (!x->memory && (code = shape_alloc(s->e, x, st))) return code;
        if ((code = shape_fill(s, x, st))) return code;
    }
    if (inputs && (code = check_dims(s->e, x, inputs, st))) return code;
    if (!known && (code = shape_finish(s, x, st))) return code;
    x->used = ++s->clock;
    *out = x;
    return INFR_OK;
}

int rt_bind(struct infr_session *s, const struct infr_tensor *inputs, struct rt_shape **out_shape,
            struct infr_status *st)
{
    int code = bind_symbols(s, inputs, true, st);
    return code ? code : get_shape(s, inputs, out_shape, st);
}

static void fill_tensor(const struct infr_io *io, const struct rt_shape *shape,
                        struct infr_tensor *t)
{
    t->dtype = io->dtype;
    t->rank = io->rank;
    for (uint32_t a = 0; a < io->rank; a++) t->dims[a] = shape->pool_dim[io->dims + a];
    tensor_bytes(io->dtype, io->rank, t->dims, &t->bytes);
}

int infr_session_shapes(struct infr_session *s, const struct infr_tensor *inputs,
                        struct infr_tensor *out_outputs, struct infr_status *st)
{
    struct rt_shape *shape;
    if (st) *st = (struct infr_status){0};
    int code = bind_symbols(s, inputs, false, st);
    if (!code) code = get_shape(s, inputs, &shape, st);
    for (uint32_t i = 0; !code && i < s->e->n_outputs; i++)
        fill_tensor(&s->e->outputs[i], shape, &out_outputs[i]);
    return code;
}

int rt_input_shapes(struct infr_session *s, const int64_t *sym, struct infr_tensor *inputs,
                    struct infr_status *st)
{
    const struct infr_engine *e = s->e;
    struct rt_shape *shape;
    for (uint32_t k = 0; k < e->n_symbols; k++) {
        const struct infr_symbol *y = &e->symbols[k];
        if (sym[k] < y->lo || sym[k] > y->hi)
            return rt_fail(st, INFR_BAD_INPUT,
                           "'%.100s' cannot be %" PRId64 ": its range is %" PRId64 " to %" PRId64,
                           rt_text(e, y->name), sym[k], y->lo, y->hi);
        s->sym[k] = sym[k];
    }
    int code = get_shape(s, NULL, &shape, st);
    for (uint32_t i = 0; !code && i < e->n_inputs; i++) {
        int64_t dims[INFR_MAX_RANK];
        for (uint32_t a = 0; a < e->inputs[i].rank; a++)
            dims[a] = shape->pool_dim[e->inputs[i].dims + a];
        uint64_t bytes;
        if (!tensor_bytes(e->inputs[i].dtype, e->inputs[i].rank, dims, &bytes))
            return rt_fail(st, INFR_BAD_INPUT, "input '%.100s' would have impossible dims",
                           rt_text(e, e->inputs[i].name));
        fill_tensor(&e->inputs[i], shape, &inputs[i]);
    }
    return code;
}
