// SPDX-License-Identifier: Apache-2.0
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/import/onnx_int.h"

/* "f32[n,3], i64[2]": at most a line of it. */
static void describe_inputs(const struct onode *n, struct strbuf *s)
{
    for (int i = 0; i < n->n_in; i++) {
        if (s->len > 240) {
            strbuf_puts(s, ", ...");
            return;
        }
        strbuf_puts(s, i ? ", " : "");
        if (!n->in[i]) {
            strbuf_puts(s, "-");
            continue;
        }
        const struct ir_type *t = &n->in[i]->type;
        strbuf_printf(s, "%s[", dtype_name(t->dtype));
        for (int a = 0; a < t->rank; a++) {
            if (a) strbuf_putc(s, ',');
            dim_print(s, t->dims[a]);
        }
        strbuf_putc(s, ']');
    }
}

/* "Softmax(f32[n,3]): what": a text that begins with the operator's name goes on behind the operand
 * types. */
static void report(struct onode *n, enum diag_id id, const char *remedy, const char *text)
{
    struct strbuf s = {0};
    const char *op = n->p->op_type, *rest = text;
    size_t len = strlen(op);
    bool named = !strncmp(text, op, len) && (text[len] == ':' || text[len] == ' ');
    if (named) rest += len;
    describe_inputs(n, &s);
    n->failed = true;
    diag_report_remedy(n->im->diag, id, n->loc, remedy ? remedy : diag_remedy(id), "%s(%s)%s%s", op,
                       strbuf_get(&s), named ? "" : ": ", rest);
    strbuf_deinit(&s);
}

bool on_fail(struct onode *n, enum diag_id id, const char *fmt, ...)
{
    char text[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    report(n, id, NULL, text);
    return false;
}

void *on_alloc(struct onode *n, size_t count, size_t bytes)
{
    return arena_calloc(&n->m->arena, count, bytes);
}

struct ir_value *on_in(struct onode *n, int i) { return i < n->n_in ? n->in[i] : NULL; }

bool on_out(struct onode *n, int i, struct ir_value *v)
{
    if (!v) return false;
    if (i < n->n_out) n->out[i] = v;
    return true;
}

bool on_wants_out(const struct onode *n, int i)
{
    return (size_t)i < n->p->n_output && n->p->output[i] && *n->p->output[i];
}

bool on_axis(struct onode *n, int64_t axis, int rank, bool end, int *out)
{
    int64_t a = axis < 0 ? axis + rank : axis;
    if (end && axis == rank) a = rank;
    if (a < 0 || a > rank || (a == rank && !end))
        return on_fail(n, DIAG_ONNX_ATTR, "axis %lld is out of range for rank %d", (long long)axis,
                       rank);
    *out = (int)a;
    return true;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

bool on_axes(struct onode *n, int input_since, int in, int rank, int *count, int64_t *out,
             bool *given)
{
    const int64_t *axes = NULL;
    int c = 0;
    *given = false;
    *count = 0;
    if (n->version >= input_since) {
        if (on_in(n, in)) {
            if (!(axes = on_ints(n, in, &c))) return false;
            *given = true;
        }
    } else {
        axes = at_ints(n, "axes", &c);
        *given = axes != NULL;
    }
    if (n->failed) return false;
    if (c > rank) return on_fail(n, DIAG_ONNX_ATTR, "%d axes for rank %d", c, rank);
    for (int i = 0; i < c; i++) {
        int a = 0;
        if (!on_axis(n, axes[i], rank, false, &a)) return false;
        out[i] = a;
    }
    qsort(out, (size_t)c, sizeof *out, by_value);
    for (int i = 1; i < c; i++)
        if (out[i] == out[i - 1])
            return on_fail(n, DIAG_ONNX_ATTR, "axis %d is given twice", (int)out[i]);
    *count = c;
    return true;
}

/* Adds the model's inputs that v is computed from. Bounded: a value behind more ops is found on a
 * later try. */
static void collect_needs(struct imp *im, struct ir_value *v, struct map *seen, int depth,
                          struct strbuf *names)
{
    if (!v || depth > 64 || seen->n > 1000 || map_find(seen, &v, sizeof v)) return;
    map_put(seen, &v, sizeof v, v);
    for (int i = 0; v->def && i < v->def->n_operands; i++)
        collect_needs(im, ir_operand(v->def, i), seen, depth + 1, names);
    struct ir_func *f = im->m->funcs.n ? im->m->funcs.v[0] : NULL;
    if (v->def || !f || v->block != f->body || v->index >= f->n_inputs) return;
    const char *name = f->input_names[v->index];
    strbuf_printf(names, "%s%s", names->len ? ", " : "", name);
    struct import_needs *needs = im->options ? im->options->needs : NULL;
    for (size_t i = 0; needs && i < needs->inputs.n; i++)
        if (!strcmp(needs->inputs.v[i], name)) return;
    if (needs) vec_push(&needs->arena, &needs->inputs, arena_strdup(&needs->arena, name));
}

bool on_dynamic(struct onode *n, int i, const char *what)
{
    struct map seen;
    struct strbuf names = {0};
    map_init(&seen, &n->m->arena);
    collect_needs(n->im, on_in(n, i), &seen, 0, &names);
    const char *input = (size_t)i < n->p->n_input ? n->p->input[i] : "";
    char *remedy =
        names.len ? arena_printf(&n->m->arena, "give it at build time: --const NAME=FILE for %s",
                                 strbuf_get(&names))
                  : NULL;
    report(n, DIAG_ONNX_DYNAMIC, remedy,
           arena_printf(&n->m->arena, "input %d ('%s') %s", i, input, what));
    strbuf_deinit(&names);
    return false;
}

#define DECIDES "decides the result's shape or form, but is not known before the engine runs"

const struct dim *const *on_dims(struct onode *n, int i, int *count)
{
    struct ir_value *v = on_in(n, i);
    *count = 0;
    if (!v) {
        on_fail(n, DIAG_ONNX_INPUT, "input %d is missing", i);
        return NULL;
    }
    int64_t elems;
    if (ir_type_static_elems(&v->type, &elems) && elems == 0)
        return on_alloc(n, 1, sizeof(struct dim *));
    const struct known *k = known_of(n->im, v);
    if (!k) {
        on_dynamic(n, i, DECIDES);
        return NULL;
    }
    const struct dim **out = on_alloc(n, (size_t)k->n, sizeof *out);
    for (int j = 0; j < k->n; j++) {
        if (!k->e[j].num || k->e[j].den) {
            on_dynamic(n, i, DECIDES);
            return NULL;
        }
        out[j] = k->e[j].num;
    }
    *count = k->n;
    return out;
}

const int64_t *on_ints(struct onode *n, int i, int *count)
{
    const struct dim *const *d = on_dims(n, i, count);
    if (!d) return NULL;
    int64_t *out = on_alloc(n, (size_t)*count + 1, sizeof *out);
    for (int j = 0; j < *count; j++) {
        if (!dim_is_const(d[j])) {
            on_dynamic(n, i, "has to be constant here");
            return NULL;
        }
        out[j] = d[j]->value;
    }
    return out;
}

bool on_const_float(struct onode *n, int i, double *out)
{
    struct ir_value *v = on_in(n, i);
    struct ir_const *c = v ? ir_value_const(v) : NULL;
    if (c && ir_const_get_float(c, 0, out)) return true;
    const struct known *k = v ? known_of(n->im, v) : NULL;
    if (k && k->n >= 1 && k->e[0].num && dim_is_const(k->e[0].num) &&
        (!k->e[0].den || dim_is_const(k->e[0].den))) {
        *out = (double)k->e[0].num->value / (k->e[0].den ? (double)k->e[0].den->value : 1.0);
        return true;
    }
    return on_dynamic(n, i, "has to be constant here");
}

bool on_rank(struct onode *n, struct ir_value *v, int lo, int hi, const char *what)
{
    if (!v) return false;
    if (rank_of(v) >= lo && rank_of(v) <= hi) return true;
    return on_fail(n, DIAG_SHAPE_MISMATCH, "%s: %s has rank %d, which does not fit", n->p->op_type,
                   what, rank_of(v));
}

bool on_int_type(struct onode *n, struct ir_value *v, const char *what)
{
    if (!v) return false;
    if (dtype_is_int(v->type.dtype)) return true;
    return on_fail(n, DIAG_DTYPE_MISMATCH, "%s: %s is %s, not an integer", n->p->op_type, what,
                   dtype_name(v->type.dtype));
}

/* ---- building ---- */

struct ir_value *e_un(struct onode *n, enum ir_opcode op, struct ir_value *x)
{
    return ir_build_unary(n->b, op, x);
}

struct ir_value *e_bin(struct onode *n, enum ir_opcode op, struct ir_value *x, struct ir_value *y)
{
    return ir_build_binary(n->b, op, x, y);
}

struct ir_value *e_add(struct onode *n, struct ir_value *x, struct ir_value *y)
{
    return e_bin(n, IR_OP_ADD, x, y);
}
struct ir_value *e_sub(struct onode *n, struct ir_value *x, struct ir_value *y)
{
    return e_bin(n, IR_OP_SUB, x, y);
}
struct ir_value *e_mul(struct onode *n, struct ir_value *x, struct ir_value *y)
{
    return e_bin(n, IR_OP_MUL, x, y);
}
struct ir_value *e_div(struct onode *n, struct ir_value *x, struct ir_value *y)
{
    return e_bin(n, IR_OP_DIV, x, y);
}
struct ir_value *e_min(struct onode *n, struct ir_value *x, struct ir_value *y)
{
    return e_bin(n, IR_OP_MIN, x, y);
}
struct ir_value *e_max(struct onode *n, struct ir_value *x, struct ir_value *y)
{
    return e_bin(n, IR_OP_MAX, x, y);
}

struct ir_value *e_sel(struct onode *n, struct ir_value *c, struct ir_value *x, struct ir_value *y)
{
    return ir_build_select(n->b, c, x, y);
}

struct ir_value *e_cast(struct onode *n, struct ir_value *x, enum dtype to)
{
    return ir_build_cast(n->b, x, to);
}

struct ir_value *e_scalar(struct onode *n, enum dtype dtype, double v)
{
    return dtype_is_float(dtype) ? ir_build_scalar_f(n->b, dtype, v)
                                 : ir_build_scalar_i(n->b, dtype, (int64_t)v);
}

struct ir_value *e_like(struct onode *n, struct ir_value *x, double v)
{
    return x ? e_scalar(n, x->type.dtype, v) : NULL;
}

struct ir_value *e_dim(struct onode *n, const struct dim *d, enum dtype dtype)
{
    if (dim_is_const(d)) return e_scalar(n, dtype, (double)d->value);
    return e_cast(n, ir_build_dimvec(n->b, 1, &d, true), dtype);
}

struct ir_value *e_reshape(struct onode *n, struct ir_value *x, int rank,
                           const struct dim *const *dims)
{
    return ir_build_reshape(n->b, x, rank, dims);
}

struct ir_value *e_broadcast(struct onode *n, struct ir_value *x, int rank,
                             const struct dim *const *dims)
{
    return ir_build_broadcast(n->b, x, rank, dims);
}

struct ir_value *e_perm(struct onode *n, struct ir_value *x, const int64_t *perm)
{
    if (!x) return NULL;
    for (int i = 0; i < rank_of(x); i++)
        if (perm[i] != i) return ir_build_transpose(n->b, x, perm);
    return x;
}

struct ir_value *e_unsqueeze(struct onode *n, struct ir_value *x, int axis)
{
    if (!x) return NULL;
    if (rank_of(x) + 1 > IR_MAX_RANK) {
        on_fail(n, DIAG_ONNX_LIMIT, "more than %d dims", IR_MAX_RANK);
        return NULL;
    }
    const struct dim *d[IR_MAX_RANK];
    for (int i = 0; i <= rank_of(x); i++)
        d[i] = i == axis ? dim_const(n->d, 1) : dim_of(x, i < axis ? i : i - 1);
    return e_reshape(n, x, rank_of(x) + 1, d);
}

struct ir_value *e_squeeze(struct onode *n, struct ir_value *x, int axis)
{
    if (!x) return NULL;
    const struct dim *d[IR_MAX_RANK];
    int r = 0;
    for (int i = 0; i < rank_of(x); i++)
        if (i != axis) d[r++] = dim_of(x, i);
    return e_reshape(n, x, r, d);
}

struct ir_value *e_red(struct onode *n, enum ir_opcode op, struct ir_value *x, int n_axes,
                       const int64_t *axes, bool keepdims)
{
    return ir_build_reduce(n->b, op, x, n_axes, axes, keepdims);
}

struct ir_value *e_red1(struct onode *n, enum ir_opcode op, struct ir_value *x, int axis,
                        bool keepdims)
{
    int64_t a = axis;
    return ir_build_reduce(n->b, op, x, 1, &a, keepdims);
}

struct ir_value *e_mean(struct onode *n, struct ir_value *x, int n_axes, const int64_t *axes,
                        bool keepdims)
{
    if (!x) return NULL;
    const struct dim *count = dim_const(n->d, 1);
    for (int i = 0; i < n_axes; i++) count = dim_mul(n->d, count, dim_of(x, (int)axes[i]));
    return e_div(n, e_red(n, IR_OP_REDUCE_SUM, x, n_axes, axes, keepdims),
                 e_dim(n, count, x->type.dtype));
}

struct ir_value *e_slice1(struct onode *n, struct ir_value *x, int axis, const struct dim *start,
                          const struct dim *size)
{
    if (!x) return NULL;
    const struct dim *starts[IR_MAX_RANK], *sizes[IR_MAX_RANK];
    int64_t steps[IR_MAX_RANK];
    for (int i = 0; i < rank_of(x); i++) {
        starts[i] = i == axis ? start : dim_const(n->d, 0);
        sizes[i] = i == axis ? size : dim_of(x, i);
        steps[i] = 1;
    }
    return ir_build_slice(n->b, x, starts, steps, sizes);
}

struct ir_value *e_channel(struct onode *n, struct ir_value *v, int axis, int rank)
{
    if (!v || rank_of(v) == 0 || axis == rank - 1) return v;
    const struct dim *d[IR_MAX_RANK];
    int r = rank - axis;
    d[0] = dim_of(v, 0);
    for (int i = 1; i < r; i++) d[i] = dim_const(n->d, 1);
    return e_reshape(n, v, r, d);
}

struct ir_value *e_iota(struct onode *n, enum dtype dtype, const struct dim *size)
{
    return ir_build_iota(n->b, dtype, 1, &size, 0);
}

struct ir_value *e_op(struct onode *n, enum ir_opcode op, int n_operands,
                      struct ir_value *const *operands, int n_attrs, const struct ir_attr *attrs,
                      int n_results, int result)
{
    struct ir_op *o = ir_build(n->b, op, n_operands, operands, n_attrs, attrs, n_results);
    return o ? ir_result(o, result) : NULL;
}

struct ir_value *e_op1(struct onode *n, enum ir_opcode op, struct ir_value *x, int n_attrs,
                       const struct ir_attr *attrs)
{
    return x ? e_op(n, op, 1, &x, n_attrs, attrs, 1, 0) : NULL;
}

struct ir_value *e_wide(struct onode *n, struct ir_value *x)
{
    if (!x) return NULL;
    return x->type.dtype == DT_F16 || x->type.dtype == DT_BF16 ? e_cast(n, x, DT_F32) : x;
}

struct ir_value *e_const_f32(struct onode *n, int rank, const int64_t *dims, const float *data)
{
    size_t elems = 1;
    for (int i = 0; i < rank; i++) elems *= (size_t)dims[i];
    const float *copy = arena_dup(&n->m->arena, data, elems * sizeof *data);
    struct ir_type t = ir_type_static(n->m, DT_F32, rank, dims);
    return ir_build_constant(n->b, ir_const_make(n->m, "", t, copy, elems * sizeof *data, false));
}

const struct dim *e_size(struct onode *n, struct ir_value *x, int from, int to)
{
    const struct dim *p = dim_const(n->d, 1);
    for (int i = from; i < to; i++) p = dim_mul(n->d, p, dim_of(x, i));
    return p;
}
