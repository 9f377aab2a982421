// SPDX-License-Identifier: Apache-2.0
/*
 * Encoded constants (GGML block formats) become parts that kernels read as they are: q, scale and min in panels of 64
 * columns (struct ir_const_part). Nothing is unpacked here: the parts are filled in when the weights are written.
 *
 *   matmul(x, w: q4_1 f32[N, K]) trans_b=1   ->   qmatmul(x, q, scale, min) n=N nibbles=1
 *   gather(w: q8_0 f32[N, K], i) axis=0      ->   qgather(i, q, scale) n=N k=K
 *   matmul(x: [B, M, K], w: q8_0 f32[B, N, K]) trans_b=1   ->   qmatmul(x, q, scale) n=N batch=B
 *   matmul_experts(x, w: q8_0 f32[E, N, K], ids)           ->   qmatmul_experts(x, ids, q, scale) n=N experts=E
 *   matmul(round_rows(x) max=2032, w: q4_1 f32[N, K]) trans_b=1   ->   qmatmul_int(quant_rows(x), blocks)
 *
 * What an integer product reads becomes blocks (ir/blocks.h) in place of parts, for gathers of the same constant too. Several matrices of one constant lie one after the other, each in whole panels. Experts of plain f32, f16 and bf16 become
 * parts too: they are the same rows of panels, without scales.
 * One constant used by several shares its parts. Requires: verified IR without groups; encoded constants are read by matmuls (as a
 * transposed right side), experts and gathers (axis 0) only. Establishes: no encoded constants. Evaluators do not know parts.
 */
#include <string.h>

#include "ir/build.h"
#include "ir/encoding.h"
#include "passes/blocks.h"
#include "passes/pass.h"

#define PANEL 64

struct parts {
    struct ir_value *q, *scale, *min; /* scale, min: NULL when the format has none */
    int zero;
    bool nibbles;
};

struct quant {
    struct ir_module *m;
    struct arena scratch;
    struct map known;  /* constant id -> struct parts; made at the head of the function */
    struct map blocks; /* constant id -> its blocks, or &wanted until they are made */
    struct ir_value wanted;
    VEC(struct ir_op *) rounded; /* the quant_rows made so far */
    struct ir_func *f;
    struct diag_sink *diag;
};

static struct ir_value *make_part(struct quant *z, const struct ir_const *c, enum ir_part part, bool nibbles, int zero,
                                  enum dtype dtype, int rank, const int64_t *dims)
{
    struct ir_module *m = z->m;
    static const char *const suffix[] = {[IR_PART_Q] = "q", [IR_PART_SCALE] = "scale", [IR_PART_MIN] = "min", [IR_PART_BLOCKS] = "blocks"};
    struct ir_const_part *p = ARENA_NEW(&m->arena, struct ir_const_part);
    *p = (struct ir_const_part){.from = c, .part = part, .nibbles = nibbles, .zero = zero};
    size_t bytes = dtype_bytes(dtype);
    for (int i = 0; i < rank; i++) bytes *= (size_t)dims[i];
    char *name = arena_printf(&m->arena, "%s.%s", c->name, suffix[part]);
    struct ir_const *k = ir_const_make(m, name, ir_type_static(m, dtype, rank, dims), NULL, bytes, false);
    k->part = p;
    struct ir_builder b = {.m = m, .block = z->f->body, .before = z->f->body->first, .loc = ir_loc_make(m, c->name)};
    return ir_build_constant(&b, k);
}

/* Formats whose q takes four bits at most, and what is added to make them 0..15. */
static bool four_bits(const struct ir_encoding *e, int *zero)
{
    static const struct {
        const char *name;
        int zero;
    } rows[] = {{"q4_0", 8}, {"q4_1", 0}, {"q4_K", 0}, {"q2_K", 0}, {"q3_K", 4}, {"tq1_0", 1}, {"tq2_0", 1}, {"int4_g64", 0}, {"int4_g128", 0}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (encoding_find(rows[i].name, strlen(rows[i].name)) != e) continue;
        *zero = rows[i].zero;
        return true;
    }
    return false;
}

/* Formats whose group scale is the f16 field itself: kept in f16; products of two fields need f32. */
static enum dtype scale_dtype(const struct ir_encoding *e)
{
    static const char *const names[] = {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "int4_g64", "int4_g128"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (encoding_find(names[i], strlen(names[i])) == e) return DT_F16;
    return DT_F32;
}

static bool has_min(const struct ir_encoding *e)
{
    static const char *const names[] = {"q4_1", "q5_1", "q2_K", "q4_K", "q5_K", "int4_g64", "int4_g128"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (encoding_find(names[i], strlen(names[i])) == e) return true;
    return false;
}

/*
 * Formats of five and six bits: how many above a nibble, and what is added to make them unsigned. Only blocks split them; a byte of q is
 * quicker to take apart, but where weights are read once a token their bytes are what counts.
 */
static int high_bits(const struct ir_encoding *e, int *zero)
{
    static const struct {
        const char *name;
        int high, zero;
    } rows[] = {{"q5_0", 1, 16}, {"q5_1", 1, 0}, {"q5_K", 1, 0}, {"q6_K", 2, 32}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (encoding_find(rows[i].name, strlen(rows[i].name)) != e) continue;
        *zero = rows[i].zero;
        return rows[i].high;
    }
    return 0;
}

static struct parts *get_parts(struct quant *z, const struct ir_const *c)
{
    struct parts *p = map_find(&z->known, &c->id, sizeof c->id);
    if (p) return p;
    const struct ir_encoding *e = ir_const_encoding(c);
    int rank = c->type.rank;
    int64_t n = c->type.dims[rank - 2]->value, k = c->type.dims[rank - 1]->value, panels = (n + PANEL - 1) / PANEL;
    if (rank == 3) panels *= c->type.dims[0]->value;
    p = ARENA_NEW(&z->scratch, struct parts);
    map_put(&z->known, &c->id, sizeof c->id, p);
    if (!e->group_elems) { /* plain elements: one group of all k */
        int64_t dims[] = {panels, 1, k, PANEL};
        p->q = make_part(z, c, IR_PART_Q, false, 0, e->plain, 4, dims);
        return p;
    }
    p->nibbles = four_bits(e, &p->zero);
    int64_t group = e->group_elems, dims[] = {panels, k / group, p->nibbles ? group / 2 : group, PANEL}, sdims[] = {panels, k / group, PANEL};
    p->q = make_part(z, c, IR_PART_Q, p->nibbles, p->zero, p->nibbles ? DT_U8 : DT_I8, 4, dims);
    p->scale = make_part(z, c, IR_PART_SCALE, false, 0, scale_dtype(e), 3, sdims);
    if (has_min(e)) p->min = make_part(z, c, IR_PART_MIN, false, 0, scale_dtype(e), 3, sdims);
    return p;
}

static struct ir_value *get_blocks(struct quant *z, const struct ir_const *c, struct blocks *d)
{
    const struct ir_encoding *e = ir_const_encoding(c);
    *d = (struct blocks){.group = e->group_elems, .wide = scale_dtype(e) != DT_F16, .has_min = has_min(e)};
    d->nibbles = four_bits(e, &d->zero);
    if (!d->nibbles) d->high = high_bits(e, &d->zero), d->nibbles = d->high > 0;
    struct ir_value *v = map_find(&z->blocks, &c->id, sizeof c->id);
    if (v != &z->wanted) return v;
    int64_t n = c->type.dims[0]->value, k = c->type.dims[1]->value;
    int64_t dims[] = {(n + BLOCKS_COLS - 1) / BLOCKS_COLS, k / d->group, blocks_units(d)};
    v = make_part(z, c, IR_PART_BLOCKS, d->nibbles, d->zero, DT_U16, 3, dims);
    struct ir_const_part *p = (struct ir_const_part *)ir_value_const(v)->part;
    p->wide = d->wide, p->has_min = d->has_min, p->high = d->high;
    map_put(&z->blocks, &c->id, sizeof c->id, v);
    return v;
}

static const struct ir_const *encoded(const struct ir_value *v)
{
    const struct ir_const *c = v ? ir_value_const(v) : NULL;
    return c && c->type.enc ? c : NULL;
}

/* The weights of experts when they can become parts: encoded, or plain floats that x's type can hold. */
static const struct ir_const *expert_weights(const struct ir_op *op)
{
    if (op->code != IR_OP_MATMUL_EXPERTS || ir_operand(op, 0)->type.dtype != DT_F32) return NULL;
    const struct ir_const *c = ir_value_const(ir_operand(op, 1));
    if (!c || c->splat || c->part || !c->data || !ir_const_encoding(c)) return NULL;
    for (int i = 0; i < 3; i++)
        if (c->type.dims[i]->value < 1) return NULL;
    return c;
}

static bool replace(struct ir_op *op, struct ir_op *with)
{
    if (!with) return false;
    ir_value_replace_uses(&op->results[0], &with->results[0]);
    ir_op_erase(op);
    return true;
}

static bool rewrite_experts(struct quant *z, struct ir_op *op, const struct ir_const *c)
{
    struct parts *p = get_parts(z, c);
    struct ir_builder b = {.m = z->m, .block = op->block, .before = op, .loc = op->loc};
    struct ir_value *operands[] = {ir_operand(op, 0), ir_operand(op, 2), p->q, p->scale, p->min};
    struct ir_attr attrs[] = {ir_a_int("n", c->type.dims[1]->value), ir_a_int("experts", c->type.dims[0]->value), ir_a_int("zero", p->zero),
                              ir_a_int("nibbles", p->nibbles)};
    return replace(op, ir_build(&b, IR_OP_QMATMUL_EXPERTS, p->min ? 5 : p->scale ? 4 : 3, operands, 4, attrs, 1));
}

/* x [B, M, K] by a matrix a plane. */
static bool is_batched(const struct ir_op *op, const struct ir_const *c)
{
    const struct ir_type *x = &ir_operand(op, 0)->type;
    return c->type.rank == 3 && x->rank == 3 && x->dims[0] == c->type.dims[0];
}

static void describe(const struct blocks *d, int64_t n, struct ir_attr *attrs)
{
    struct ir_attr a[] = {ir_a_int("n", n), ir_a_int("group", d->group), ir_a_int("zero", d->zero), ir_a_int("nibbles", d->nibbles),
                          ir_a_int("wide", d->wide), ir_a_int("min", d->has_min), ir_a_int("high", d->high)};
    memcpy(attrs, a, sizeof a);
}

/* Operand 0's round_rows as quant_rows of that group, made once for all products of the block. */
static struct ir_op *get_rows(struct quant *z, struct ir_op *round, int group)
{
    for (size_t i = 0; i < z->rounded.n; i++) {
        struct ir_op *o = z->rounded.v[i];
        if (ir_operand(o, 0) == ir_operand(round, 0) && o->block == round->block && ir_attr_int(o, "group", 0) == group &&
            ir_attr_int(o, "max", 0) == ir_attr_int(round, "max", 0))
            return o;
    }
    struct ir_builder b = {.m = z->m, .block = round->block, .before = round, .loc = round->loc};
    struct ir_value *x = ir_operand(round, 0);
    struct ir_attr attrs[] = {ir_a_int("max", ir_attr_int(round, "max", 1)), ir_a_int("group", group)};
    struct ir_op *o = ir_build(&b, IR_OP_QUANT_ROWS, 1, &x, 2, attrs, 3);
    if (o) vec_push(&z->scratch, &z->rounded, o);
    return o;
}

static bool is_int_product(const struct ir_op *op)
{
    const struct ir_value *x = blocks_fit(op) ? ir_operand(op, 0) : NULL;
    return x && x->def && x->def->code == IR_OP_ROUND_ROWS;
}

static bool rewrite_int(struct quant *z, struct ir_op *op)
{
    const struct ir_const *c = ir_value_const(ir_operand(op, 1));
    struct blocks d;
    struct ir_value *w = get_blocks(z, c, &d);
    struct ir_op *rows = get_rows(z, ir_operand(op, 0)->def, d.group);
    if (!rows) return false;
    struct ir_builder b = {.m = z->m, .block = op->block, .before = op, .loc = op->loc};
    struct ir_value *operands[] = {&rows->results[0], &rows->results[1], &rows->results[2], w};
    struct ir_attr attrs[8];
    describe(&d, c->type.dims[0]->value, attrs);
    attrs[7] = ir_a_int("max", ir_attr_int(rows, "max", INT16_MAX));
    return replace(op, ir_build(&b, IR_OP_QMATMUL_INT, 4, operands, 8, attrs, 1));
}

static bool rewrite_block_gather(struct quant *z, struct ir_op *op, const struct ir_const *c)
{
    struct blocks d;
    struct ir_value *operands[] = {ir_operand(op, 1), get_blocks(z, c, &d)};
    struct ir_builder b = {.m = z->m, .block = op->block, .before = op, .loc = op->loc};
    struct ir_attr attrs[8];
    describe(&d, c->type.dims[0]->value, attrs);
    attrs[7] = ir_a_int("k", c->type.dims[1]->value);
    return replace(op, ir_build(&b, IR_OP_QGATHER_BLOCKS, 2, operands, 8, attrs, 1));
}

/* Rounding that no integer product takes: its arithmetic, as the op table states it. */
static bool expand_round(struct quant *z, struct ir_op *op)
{
    if (!op->results[0].uses) return true;
    struct ir_builder b = {.m = z->m, .block = op->block, .before = op, .loc = op->loc};
    struct ir_value *x = ir_operand(op, 0);
    int64_t axis = x->type.rank - 1, top = ir_attr_int(op, "max", 1);
    struct ir_value *most = ir_build_reduce(&b, IR_OP_REDUCE_MAX, ir_build_unary(&b, IR_OP_ABS, x), 1, &axis, true);
    struct ir_value *max = ir_build_scalar_f(&b, DT_F32, (double)top);
    struct ir_value *tiny = ir_build_binary(&b, IR_OP_LT, most, ir_build_scalar_f(&b, DT_F32, 0x1p-100));
    struct ir_value *per_step = ir_build_select(&b, tiny, ir_build_scalar_f(&b, DT_F32, 0), ir_build_binary(&b, IR_OP_DIV, max, most));
    struct ir_value *steps = ir_build_unary(&b, IR_OP_ROUND, ir_build_binary(&b, IR_OP_MUL, x, per_step));
    struct ir_value *y = ir_build_binary(&b, IR_OP_MUL, steps, ir_build_binary(&b, IR_OP_DIV, most, max));
    return y && replace(op, y->def);
}

static void mark_blocks(struct quant *z, const struct ir_block *b)
{
    for (const struct ir_op *op = b->first; op; op = op->next) {
        for (int r = 0; r < op->n_regions; r++) mark_blocks(z, op->regions[r]);
        if (!is_int_product(op)) continue;
        const struct ir_const *c = ir_value_const(ir_operand(op, 1));
        map_put(&z->blocks, &c->id, sizeof c->id, &z->wanted);
    }
}

static bool rewrite(struct quant *z, struct ir_op *op)
{
    if (is_int_product(op)) return rewrite_int(z, op);

    const struct ir_const *experts = expert_weights(op);
    if (experts) return rewrite_experts(z, op, experts);
    bool gather = op->code == IR_OP_GATHER && encoded(ir_operand(op, 0)) && ir_attr_int(op, "axis", 0) == 0;
    bool matmul = op->code == IR_OP_MATMUL && encoded(ir_operand(op, 1)) && ir_attr_int(op, "trans_b", 0) && !ir_attr_int(op, "trans_a", 0);
    const struct ir_const *c = encoded(ir_operand(op, gather ? 0 : 1));
    bool batched = matmul && is_batched(op, c);
    if (matmul && !batched && c->type.rank == 2 && z->m->precision != DT_NONE && !z->m->is_rounded) return true; /* passes/precision.c has it first */
    if ((!gather && !matmul) || (c->type.rank != 2 && !batched)) {
        for (int i = 0; i < op->n_operands; i++)
            if (encoded(ir_operand(op, i)))
                return diag_report(z->diag, DIAG_NO_LOWERING, op->loc ? op->loc->text : NULL,
                                   "operation '%s' cannot read a quantised constant yet", ir_op_name(op->code));
        return true;
    }
    if (gather && map_find(&z->blocks, &c->id, sizeof c->id)) return rewrite_block_gather(z, op, c);
    struct parts *p = get_parts(z, c);
    struct ir_builder b = {.m = z->m, .block = op->block, .before = op, .loc = op->loc};
    struct ir_value *operands[] = {ir_operand(op, gather ? 1 : 0), p->q, p->scale, p->min};
    int rank = c->type.rank, n = p->min ? 4 : p->scale ? 3 : 2;
    struct ir_attr attrs[4] = {ir_a_int("n", c->type.dims[rank - 2]->value), ir_a_int("zero", p->zero), ir_a_int("nibbles", p->nibbles)};
    attrs[3] = gather ? ir_a_int("k", c->type.dims[1]->value) : ir_a_int("batch", batched ? c->type.dims[0]->value : 1);
    return replace(op, ir_build(&b, gather ? IR_OP_QGATHER : IR_OP_QMATMUL, n, operands, gather || batched ? 4 : 3, attrs, 1));
}

static bool run_block(struct quant *z, struct ir_block *b)
{
    bool ok = true;
    for (struct ir_op *op = b->first, *next; op; op = next) {
        next = op->next;
        for (int r = 0; r < op->n_regions; r++) ok = run_block(z, op->regions[r]) && ok;
        ok = rewrite(z, op) && ok;
    }
    for (struct ir_op *op = b->first, *next; op; op = next) {
        next = op->next;
        if (op->code == IR_OP_ROUND_ROWS) ok = expand_round(z, op) && ok;
    }
    return ok;
}

bool pass_quant(struct ir_module *m, struct diag_sink *diag)
{
    bool ok = true;
    for (size_t i = 0; i < m->funcs.n; i++) {
        struct quant z = {.m = m, .f = m->funcs.v[i], .diag = diag};
        arena_init(&z.scratch);
        map_init(&z.known, &z.scratch);
        map_init(&z.blocks, &z.scratch);
        mark_blocks(&z, z.f->body);
        ok = run_block(&z, m->funcs.v[i]->body) && ok;
        arena_deinit(&z.scratch);
    }
    return ok && pass_dce(m, diag);
}
