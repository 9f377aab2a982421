// SPDX-License-Identifier: Apache-2.0
/* What layers are made of: weights, matrices, norms, activations, rotation. */
#include <string.h>

#include "compiler/import/arch.h"

const char *arch_name(struct arch *a, int il, const char *base)
{
    return il < 0 ? base : arena_printf(&a->g->arena, "blk.%d.%s", il, base);
}

static const char *with(struct arch *a, const char *base, const char *ending) { return arena_printf(&a->g->arena, "%s%s", base, ending); }

bool arch_has(struct arch *a, const char *base, const char *ending) { return gguf_find_tensor(a->g, with(a, base, ending)) != NULL; }

/* ---- weights ---- */

static void put_dims(struct strbuf *s, int rank, const int64_t *dims)
{
    for (int i = 0; i < rank; i++) strbuf_printf(s, "%s%lld", i ? ", " : "", (long long)dims[i]);
}

/* dims are outermost first; trailing ones of the file are left out by some writers. */
static bool same_shape(const struct gguf_tensor *t, int rank, const int64_t *dims)
{
    for (int i = 0; i < rank || i < t->rank; i++) {
        int64_t want = i < rank ? dims[rank - 1 - i] : 1, got = i < t->rank ? t->dims[i] : 1;
        if (want != got) return false;
    }
    return true;
}

static bool wrong_shape(struct arch *a, const struct gguf_tensor *t, int rank, const int64_t *dims)
{
    struct strbuf s = {0};
    int64_t got[GGUF_MAX_RANK];
    for (int i = 0; i < t->rank; i++) got[i] = t->dims[t->rank - 1 - i];
    strbuf_puts(&s, "is [");
    put_dims(&s, t->rank, got);
    strbuf_puts(&s, "], not [");
    put_dims(&s, rank, dims);
    diag_report(a->diag, DIAG_GGUF_TENSOR, a->loc, "tensor `%s` %s]", t->name, strbuf_get(&s));
    strbuf_deinit(&s);
    return false;
}

struct ir_value *arch_tensor(struct arch *a, const char *name, int rank, const int64_t *dims, bool as_f32)
{
    struct ir_value *known = map_finds(&a->used, name);
    const struct gguf_tensor *t = gguf_find_tensor(a->g, name);
    if (!t) {
        diag_report(a->diag, DIAG_GGUF_TENSOR, a->loc, "tensor `%s` is missing", name);
        return NULL;
    }
    if (!same_shape(t, rank, dims)) {
        wrong_shape(a, t, rank, dims);
        return NULL;
    }
    if (known) return known;
    struct ir_type type = ir_type_static(a->m, DT_F32, rank, dims);
    const void *data = t->data;
    size_t n_bytes = t->n_bytes;
    if (t->enc->plain != DT_F32 && as_f32) {
        int64_t n = 1;
        for (int i = 0; i < rank; i++) n *= dims[i];
        float *x = ARENA_ARRAY(&a->m->arena, float, n);
        encoding_unpack(t->enc, t->data, n, x);
        data = x;
        n_bytes = (size_t)n * sizeof *x;
    } else if (t->enc->plain != DT_F32) {
        type.enc = t->enc;
    }
    struct ir_value *v = ir_build_constant(&a->b, ir_const_make(a->m, name, type, data, n_bytes, false));
    if (v) map_puts(&a->used, name, v);
    return v;
}

static int64_t last_dim(const struct ir_value *x) { return x->type.dims[x->type.rank - 1]->value; }

void arch_at_part(struct arch *a, const char *name) { a->b.loc = ir_loc_make(a->m, arena_printf(&a->g->arena, "%s:%s", a->loc, name)); }

struct ir_value *arch_linear(struct arch *a, const char *base, struct ir_value *x, int64_t n)
{
    if (!x) return NULL;
    int64_t dims[2] = {n, last_dim(x)}, one = 1;
    arch_at_part(a, base);
    x = ir_build_matmul(&a->b, x, arch_tensor(a, with(a, base, ".weight"), 2, dims, false), false, true, DT_NONE);
    if (x && arch_has(a, base, ".scale")) x = ir_build_binary(&a->b, IR_OP_MUL, x, arch_tensor(a, with(a, base, ".scale"), 1, &one, true));
    if (x && arch_has(a, base, ".bias")) x = ir_build_binary(&a->b, IR_OP_ADD, x, arch_tensor(a, with(a, base, ".bias"), 1, &n, true));
    return x;
}

struct ir_value *arch_norm(struct arch *a, const char *base, struct ir_value *x, int64_t n)
{
    if (!x) return NULL;
    bool layer = a->row->norm == ARCH_NORM_LAYER;
    struct ir_value *operands[3] = {x};
    struct ir_attr attrs[2] = {ir_a_int("axis", x->type.rank - 1), ir_a_float("eps", a->h.eps)};
    arch_at_part(a, base);
    operands[1] = arch_tensor(a, with(a, base, ".weight"), 1, &n, true);
    if (!operands[1]) return NULL;
    int n_operands = layer && arch_has(a, base, ".bias") ? 3 : 2;
    if (n_operands == 3 && !(operands[2] = arch_tensor(a, with(a, base, ".bias"), 1, &n, true))) return NULL;
    struct ir_op *op = ir_build(&a->b, layer ? IR_OP_LAYER_NORM : IR_OP_RMS_NORM, n_operands, operands, 2, attrs, 1);
    return op ? ir_result(op, 0) : NULL;
}

/* ---- arithmetic ---- */

struct ir_value *arch_scaled(struct arch *a, struct ir_value *x, double by)
{
    if (!x || by == 1) return x;
    return ir_build_binary(&a->b, IR_OP_MUL, x, ir_build_scalar_f(&a->b, DT_F32, by));
}

/* x / 2 * (1 + erf(x / sqrt 2)), or with tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)) in place of erf. */
static struct ir_value *gelu(struct arch *a, struct ir_value *x, bool tanh)
{
    struct ir_builder *b = &a->b;
    struct ir_value *one = ir_build_scalar_f(b, DT_F32, 1), *in;
    if (tanh) {
        struct ir_value *cube = ir_build_binary(b, IR_OP_MUL, ir_build_binary(b, IR_OP_MUL, x, x), x);
        in = arch_scaled(a, ir_build_binary(b, IR_OP_ADD, x, arch_scaled(a, cube, 0.044715)), 0.79788456080286535588);
        in = ir_build_unary(b, IR_OP_TANH, in);
    } else {
        in = ir_build_unary(b, IR_OP_ERF, arch_scaled(a, x, 0.70710678118654752440));
    }
    in = ir_build_binary(b, IR_OP_ADD, in, one);
    return ir_build_binary(b, IR_OP_MUL, arch_scaled(a, x, 0.5), in);
}

struct ir_value *arch_activation(struct arch *a, enum arch_act act, struct ir_value *x)
{
    struct ir_builder *b = &a->b;
    if (!x) return NULL;
    switch (act) {
    case ARCH_ACT_SILU: return ir_build_binary(b, IR_OP_MUL, x, ir_build_unary(b, IR_OP_SIGMOID, x));
    case ARCH_ACT_GELU: return gelu(a, x, false);
    case ARCH_ACT_GELU_TANH: return gelu(a, x, true);
    case ARCH_ACT_RELU2:
        x = ir_build_binary(b, IR_OP_MAX, x, ir_build_scalar_f(b, DT_F32, 0));
        return ir_build_binary(b, IR_OP_MUL, x, x);
    }
    return NULL;
}

struct ir_value *arch_softcap(struct arch *a, struct ir_value *x, double softcap)
{
    if (!x || softcap == 0) return x;
    return arch_scaled(a, ir_build_unary(&a->b, IR_OP_TANH, arch_scaled(a, x, 1 / softcap)), softcap);
}

/* ---- shapes ---- */

struct ir_value *arch_reshape(struct arch *a, struct ir_value *x, int n, const int64_t *inner)
{
    if (!x) return NULL;
    const struct dim *dims[IR_MAX_RANK] = {x->type.dims[0]};
    for (int i = 0; i < n; i++) dims[1 + i] = dim_const(a->m->dims, inner[i]);
    return ir_build_reshape(&a->b, x, n + 1, dims);
}

struct ir_value *arch_part(struct arch *a, struct ir_value *x, int64_t from, int64_t n)
{
    if (!x) return NULL;
    const struct dim *starts[IR_MAX_RANK], *sizes[IR_MAX_RANK];
    int64_t steps[IR_MAX_RANK];
    int rank = x->type.rank;
    if (from == 0 && last_dim(x) == n) return x;
    for (int i = 0; i < rank; i++) {
        starts[i] = dim_const(a->m->dims, i + 1 == rank ? from : 0);
        steps[i] = 1;
        sizes[i] = i + 1 == rank ? dim_const(a->m->dims, n) : x->type.dims[i];
    }
    return ir_build_slice(&a->b, x, starts, steps, sizes);
}

struct ir_value *arch_rows_wanted(struct arch *a, struct ir_value *x) { return x ? ir_build_gather(&a->b, x, a->logit_rows, 0) : NULL; }

/* ---- probes ---- */

struct ir_value *arch_probe(struct arch *a, struct ir_value *x, bool sum)
{
    struct ir_attr base = ir_a_int("base", a->n_sums ? a->last_sum : -1);
    if (!x || !ir_build(&a->b, IR_OP_PROBE, 1, &x, sum && a->n_sums, &base, 0)) return NULL;
    if (sum) a->n_sums++, a->last_sum = a->n_probes;
    a->n_probes++;
    return x;
}

/* ---- rotation ---- */

/* The two elements of each pair in the other order: that axis backwards. */
static struct ir_value *swapped(struct arch *a, struct ir_value *x, int axis)
{
    const struct dim *starts[4];
    int64_t steps[4];
    if (!x) return NULL;
    for (int i = 0; i < 4; i++) {
        starts[i] = dim_const(a->m->dims, i == axis);
        steps[i] = i == axis ? -1 : 1;
    }
    return ir_build_slice(&a->b, x, starts, steps, x->type.dims);
}

/*
 * x * cos + swapped(x) * (-sin, sin): all of it pointwise but for the swap, so that it becomes one kernel. The tables come
 * with the shapes that go with pairs [T, H, n, 2] or halves [T, H, 2, n].
 */
struct ir_value *arch_rotate(struct arch *a, struct ir_value *x, const struct arch_layer *l)
{
    if (!x || !l->rope) return x;
    struct ir_builder *b = &a->b;
    bool pairs = a->row->rope == ARCH_ROPE_PAIRS, local = l->local && a->local_cos;
    int64_t heads = x->type.dims[1]->value, width = x->type.dims[2]->value, n = a->h.rot / 2, axis = pairs ? 3 : 2;
    int64_t apart[3] = {heads, pairs ? n : 2, pairs ? 2 : n}, together[2] = {heads, 2 * n};
    struct ir_value *u = arch_reshape(a, arch_part(a, x, 0, 2 * n), 3, apart), *v = swapped(a, u, (int)axis);
    struct ir_value *c = ir_build_binary(b, IR_OP_MUL, u, local ? a->local_cos : a->cos);
    struct ir_value *s = ir_build_binary(b, IR_OP_MUL, v, local ? a->local_sin : a->sin);
    struct ir_value *all[2] = {arch_reshape(a, ir_build_binary(b, IR_OP_ADD, c, s), 2, together)};
    if (width == 2 * n || !all[0]) return all[0];
    all[1] = arch_part(a, x, 2 * n, width - 2 * n);
    return all[1] ? ir_build_concat(b, 2, all, 2) : NULL;
}
