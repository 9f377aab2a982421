// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit_plan.h"

#include "compiler/weight_parts.h"
#include "ir/winograd.h"

#include <stdio.h>
#include <string.h>

/* The blob grows in one buffer; tables are gathered first and appended whole. */
struct emitter {
    struct plan *p;
    struct plan_blob *out;
    struct arena scratch;
    struct map dim_rows, strings;
    VEC(struct infr_dim) dims;
    VEC(struct infr_symbol) symbols;
    VEC(struct infr_io) inputs, outputs;
    VEC(struct infr_check) checks;
    VEC(struct infr_buf) bufs;
    VEC(struct infr_arg) args;
    VEC(struct infr_launch) launches;
    VEC(struct infr_step) steps;
    VEC(struct infr_block) blocks;
    VEC(struct infr_kernel) kernels;
    VEC(struct infr_golden) goldens;
    VEC(struct infr_golden_output) golden_outputs;
    VEC(uint32_t) pool_u32;
    VEC(int64_t) pool_i64;
    VEC(double) pool_f64;
};

static infr_str put_string(struct emitter *e, const char *s)
{
    if (!s) return 0;
    void *known = map_finds(&e->strings, s);
    if (known) return (infr_str)(uintptr_t)known;
    infr_str at = (infr_str)e->out->bytes.len;
    strbuf_putn(&e->out->bytes, s, strlen(s) + 1);
    map_puts(&e->strings, s, (void *)(uintptr_t)at);
    return at;
}

static uint32_t dim_row(struct emitter *e, const struct dim *d);

static uint32_t add_row(struct emitter *e, enum infr_dim_op op, uint32_t a, uint32_t b, int64_t imm)
{
    struct infr_dim row = {.op = op, .a = a, .b = b, .imm = imm};
    uint32_t n = (uint32_t)(uintptr_t)map_find(&e->dim_rows, &row, sizeof row);
    if (n) return n - 1;
    vec_push(&e->scratch, &e->dims, row);
    map_put(&e->dim_rows, &row, sizeof row, (void *)(uintptr_t)e->dims.n);
    return (uint32_t)e->dims.n - 1;
}

static uint32_t symbol_number(struct emitter *e, const struct dim *d)
{
    const struct dim_ctx *ctx = e->p->module->dims;
    for (size_t i = 0; i < dim_sym_count(ctx); i++)
        if (dim_sym_at(ctx, i) == d) return (uint32_t)i;
    INFC_UNREACHABLE("symbol of another context");
}

static uint32_t poly_row(struct emitter *e, const struct dim *d)
{
    uint32_t sum = INFR_NONE;
    for (int t = 0; t < d->n_terms; t++) {
        const struct dim_term *term = &d->terms[t];
        uint32_t prod = INFR_NONE;
        for (int a = 0; a < term->n_atoms; a++) {
            uint32_t r = dim_row(e, term->atoms[a]);
            prod = prod == INFR_NONE ? r : add_row(e, INFR_DIM_MUL, prod, r, 0);
        }
        if (prod == INFR_NONE) prod = add_row(e, INFR_DIM_CONST, 0, 0, term->coeff);
        else if (term->coeff != 1) prod = add_row(e, INFR_DIM_MUL, prod, add_row(e, INFR_DIM_CONST, 0, 0, term->coeff), 0);
        sum = sum == INFR_NONE ? prod : add_row(e, INFR_DIM_ADD, sum, prod, 0);
    }
    return sum;
}

static uint32_t dim_row(struct emitter *e, const struct dim *d)
{
    switch (d->kind) {
    case DIM_CONST: return add_row(e, INFR_DIM_CONST, 0, 0, d->value);
    case DIM_SYM: return add_row(e, INFR_DIM_SYM, symbol_number(e, d), 0, 0);
    case DIM_POLY: return poly_row(e, d);
    case DIM_FLOORDIV: return add_row(e, INFR_DIM_FLOORDIV, dim_row(e, d->a), dim_row(e, d->b), 0);
    case DIM_MOD: return add_row(e, INFR_DIM_MOD, dim_row(e, d->a), dim_row(e, d->b), 0);
    case DIM_MIN: return add_row(e, INFR_DIM_MIN, dim_row(e, d->a), dim_row(e, d->b), 0);
    case DIM_MAX: return add_row(e, INFR_DIM_MAX, dim_row(e, d->a), dim_row(e, d->b), 0);
    case DIM_OVERFLOW: break;
    }
    INFC_UNREACHABLE("dim overflow in a plan");
}

static uint32_t put_dims(struct emitter *e, int n, const struct dim *const *dims)
{
    uint32_t *rows = ARENA_ARRAY(&e->scratch, uint32_t, n);
    for (int i = 0; i < n; i++) rows[i] = dim_row(e, dims[i]);
    uint32_t first = (uint32_t)e->pool_u32.n;
    for (int i = 0; i < n; i++) vec_push(&e->scratch, &e->pool_u32, rows[i]);
    return first;
}

/* ---- tables ---- */

static void put_symbols(struct emitter *e)
{
    const struct ir_module *m = e->p->module;
    const struct ir_func *f = m->funcs.v[0];
    for (size_t i = 0; i < dim_sym_count(m->dims); i++) {
        const struct dim *s = dim_sym_at(m->dims, i);
        struct infr_symbol row = {.name = put_string(e, s->name), .bind_input = INFR_NONE, .lo = s->lo, .hi = s->hi};
        for (int k = 0; k < f->n_inputs && row.bind_input == INFR_NONE; k++) {
            const struct ir_type *t = &f->body->args[k]->type;
            for (int a = 0; a < t->rank; a++)
                if (t->dims[a] == s && row.bind_input == INFR_NONE) row.bind_input = (uint32_t)k, row.bind_axis = (uint32_t)a;
        }
        vec_push(&e->scratch, &e->symbols, row);
    }
}

static const struct weight *weight_of(const struct plan_blob *b, const struct ir_const *c)
{
    for (size_t i = 0; i < b->n_weights; i++)
        if (b->weights[i].cst == c && b->weights[i].pack.rank == 0) return &b->weights[i];
    return NULL;
}

static uint32_t put_check(struct emitter *e, const struct ir_check *c)
{
    struct infr_check row = {dim_row(e, c->a), dim_row(e, c->b), c->is_le, put_string(e, c->message)};
    vec_push(&e->scratch, &e->checks, row);
    return (uint32_t)e->checks.n - 1;
}

static void put_io(struct emitter *e)
{
    struct plan *p = e->p;
    const struct ir_func *f = p->module->funcs.v[0];
    for (int i = 0; i < f->n_inputs; i++) {
        const struct ir_type *t = &f->body->args[i]->type;
        struct infr_io row = {.name = put_string(e, f->input_names[i]), .dtype = t->dtype, .rank = (uint32_t)t->rank,
                              .dims = put_dims(e, t->rank, t->dims), .buf = (uint32_t)p->input_bufs[i]};
        if (f->input_optional && f->input_optional[i]) {
            const struct weight *w = weight_of(e->out, f->input_default[i]);
            row.optional = 1, row.default_offset = w->offset, row.default_bytes = w->n_bytes;
        }
        if (f->input_state && f->input_state[i]) row.optional = 2;
        vec_push(&e->scratch, &e->inputs, row);
    }
    for (int i = 0; i < f->n_outputs; i++) {
        const struct plan_buf *b = &p->bufs.v[p->output_bufs[i]];
        struct infr_io row = {.name = put_string(e, f->output_names[i]), .dtype = b->dtype, .rank = (uint32_t)b->rank,
                              .dims = put_dims(e, b->rank, b->dims), .buf = (uint32_t)p->output_bufs[i]};
        vec_push(&e->scratch, &e->outputs, row);
    }
    for (size_t i = 0; i < p->module->checks.n; i++) put_check(e, &p->module->checks.v[i]);
}

static void put_bufs(struct emitter *e, const size_t *buf_weight)
{
    struct plan *p = e->p;
    for (size_t i = 0; i < p->bufs.n; i++) {
        const struct plan_buf *b = &p->bufs.v[i];
        struct infr_buf row = {.kind = b->kind, .dtype = b->dtype, .bytes = dim_row(e, b->bytes), .io = (uint32_t)b->io,
                               .first = b->first, .last = b->last};
        if (b->kind == INFR_BUF_CONST) {
            row.const_offset = e->out->weights[buf_weight[i]].offset;
            row.const_bytes = e->out->weights[buf_weight[i]].n_bytes;
        }
        vec_push(&e->scratch, &e->bufs, row);
    }
}

static uint32_t put_launch(struct emitter *e, const struct plan_launch *l)
{
    const struct plan_kernel *k = &e->p->kernels.v[l->kernel];
    struct infr_launch row = {.kernel = (uint32_t)l->kernel, .n_args = (uint32_t)l->n_args, .n_dims = (uint32_t)l->n_dims,
                              .claim = (uint32_t)l->claim, .barrier = (l->barrier ? INFR_ORDER_MEET : 0) | (l->each ? INFR_ORDER_EACH : 0),
                              .n_read = (uint32_t)l->n_read, .name = put_string(e, k->name),
                              .loc = put_string(e, l->loc), .schedule = put_string(e, k->schedule)};
    row.dims = put_dims(e, l->n_dims, l->dims);
    row.args = (uint32_t)e->args.n;
    for (int i = 0; i < l->n_args; i++) {
        struct infr_arg a = {(uint32_t)l->args[i].buf, l->args[i].offset_bytes ? dim_row(e, l->args[i].offset_bytes) : INFR_NONE};
        vec_push(&e->scratch, &e->args, a);
    }
    for (int v = 0; v < INFR_ISA_COUNT; v++) row.slices[v] = l->slices[v] ? dim_row(e, l->slices[v]) : INFR_NONE;
    row.flops = l->flops ? dim_row(e, l->flops) : INFR_NONE;
    row.bytes = l->bytes ? dim_row(e, l->bytes) : INFR_NONE;
    vec_push(&e->scratch, &e->launches, row);
    return (uint32_t)e->launches.n - 1;
}

/* Inner blocks first, so that a block's steps lie together. */
static uint32_t put_block(struct emitter *e, const struct plan_block *b)
{
    struct infr_step *rows = ARENA_ARRAY(&e->scratch, struct infr_step, b->steps.n);
    for (size_t i = 0; i < b->steps.n; i++) {
        const struct plan_step *s = &b->steps.v[i];
        rows[i].kind = s->kind;
        if (s->kind == INFR_STEP_LAUNCH) {
            rows[i].a = put_launch(e, s->launch);
        } else if (s->kind == INFR_STEP_CHECK) {
            rows[i].a = put_check(e, &s->check);
        } else if (s->kind == INFR_STEP_PROBE) {
            rows[i].a = (uint32_t)s->cond_buf;
            rows[i].b = (uint32_t)s->probe;
            rows[i].c = (uint32_t)s->base;
        } else {
            rows[i].a = (uint32_t)s->cond_buf;
            rows[i].b = put_block(e, s->then_block);
            rows[i].c = put_block(e, s->else_block);
        }
    }
    struct infr_block row = {(uint32_t)e->steps.n, (uint32_t)b->steps.n};
    for (size_t i = 0; i < b->steps.n; i++) vec_push(&e->scratch, &e->steps, rows[i]);
    vec_push(&e->scratch, &e->blocks, row);
    return (uint32_t)e->blocks.n - 1;
}

static void put_kernels(struct emitter *e)
{
    for (size_t i = 0; i < e->p->kernels.n; i++) {
        const struct plan_kernel *k = &e->p->kernels.v[i];
        struct infr_kernel row = {.symbol = put_string(e, k->library_symbol ? k->library_symbol : k->name), .hash = k->hash,
                                  .scratch_bytes = (uint32_t)k->scratch_bytes};
        for (int l = 0; l < INFR_ISA_COUNT; l++) {
            if (!k->levels[l] && !k->library_symbol) continue;
            row.isa_mask |= 1u << l;
        }
        vec_push(&e->scratch, &e->kernels, row);
    }
}

static void put_golden(struct emitter *e, const struct golden *g, double tolerance)
{
    size_t n_sym = dim_sym_count(e->p->module->dims);
    struct infr_golden row = {.seed = g->seed, .symbols = (uint32_t)e->pool_i64.n, .outputs = 0, .n_rows = g->n_rows};
    for (size_t i = 0; i < n_sym; i++) vec_push(&e->scratch, &e->pool_i64, i < g->n_symbols ? g->sym_values[i] : 1);
    for (uint32_t o = 0; o < g->n_rows; o++) {
        const struct golden_output *go = &g->outputs[o];
        struct infr_golden_output out = {.elems = go->elems, .step = go->step, .values = (uint32_t)e->pool_f64.n,
                                         .n_values = go->n_values, .scale = go->scale, .tolerance = tolerance > 0 ? tolerance : go->tolerance,
                                         .input = go->input < 0 ? INFR_NONE : (uint32_t)go->input, .probe = (uint32_t)(go->probe + 1)};
        for (uint32_t i = 0; i < go->n_values; i++) vec_push(&e->scratch, &e->pool_f64, go->values[i]);
        vec_push(&e->scratch, &e->golden_outputs, out);
    }
    vec_push(&e->scratch, &e->goldens, row);
}

static struct infr_table put_table(struct emitter *e, const void *rows, size_t n, size_t stride)
{
    struct strbuf *b = &e->out->bytes;
    while (b->len % 16) strbuf_putc(b, 0);
    struct infr_table t = {(uint32_t)b->len, (uint32_t)n, (uint32_t)stride};
    if (n) strbuf_putn(b, rows, n * stride);
    return t;
}
#define PUT(table) put_table(e, e->table.v, e->table.n, sizeof *e->table.v)

#define TEXT_ALIGN 64

static void put_header(struct emitter *e, const struct plan_blob_options *opt, uint32_t entry)
{
    struct infr_header h = {.magic = INFR_MAGIC, .header_bytes = sizeof h, .major = INFR_VERSION_MAJOR, .minor = INFR_VERSION_MINOR,
                            .weights_bytes = e->out->weights_bytes, .isa_mask = opt->isa_mask,
                            .entry_block = entry,
                            .branch_checks = (uint32_t)(e->checks.n - e->p->module->checks.n)};
    h.model_name = put_string(e, e->p->module->name);
    h.compiler_version = put_string(e, opt->compiler_version);
    h.manifest = put_string(e, opt->manifest);
    h.dims = PUT(dims), h.symbols = PUT(symbols), h.inputs = PUT(inputs), h.outputs = PUT(outputs), h.checks = PUT(checks);
    h.bufs = PUT(bufs), h.args = PUT(args), h.launches = PUT(launches), h.steps = PUT(steps), h.blocks = PUT(blocks);
    h.kernels = PUT(kernels), h.goldens = PUT(goldens), h.golden_outputs = PUT(golden_outputs);
    h.pool_u32 = PUT(pool_u32), h.pool_i64 = PUT(pool_i64), h.pool_f64 = PUT(pool_f64);
    if (opt->text_bytes) {
        while (e->out->bytes.len % TEXT_ALIGN) strbuf_putc(&e->out->bytes, 0);
        h.text_offset = (uint32_t)e->out->bytes.len, h.text_bytes = (uint32_t)opt->text_bytes;
        strbuf_putn(&e->out->bytes, opt->text, opt->text_bytes);
    }
    h.blob_bytes = e->out->bytes.len;
    memcpy(e->out->bytes.data, &h, sizeof h);
}

/* ---- weights ---- */

static uint64_t align64(uint64_t x) { return (x + 63) & ~(uint64_t)63; }

static size_t add_weight(struct plan *p, struct plan_blob *out, size_t *cap, const struct ir_const *c, const struct plan_pack *pack,
                         uint64_t n_bytes)
{
    for (size_t i = 0; i < out->n_weights; i++)
        if (out->weights[i].cst == c && !memcmp(&out->weights[i].pack, pack, sizeof *pack)) return i;
    if (out->n_weights == *cap) out->weights = arena_grow(&p->arena, out->weights, cap, sizeof *out->weights);
    out->weights[out->n_weights] = (struct weight){c, *pack, align64(out->weights_bytes), n_bytes};
    out->weights_bytes = align64(out->weights_bytes) + n_bytes;
    return out->n_weights++;
}

static size_t *layout_weights(struct plan *p, const struct plan_blob *shared, struct plan_blob *out)
{
    size_t *buf_weight = ARENA_ARRAY(&p->arena, size_t, p->bufs.n + 1), cap = 0;
    if (shared && shared->n_weights) {
        out->weights = arena_dup(&p->arena, shared->weights, shared->n_weights * sizeof *out->weights);
        out->n_weights = cap = shared->n_weights;
        out->weights_bytes = shared->weights_bytes;
    }
    for (size_t i = 0; i < p->bufs.n; i++) {
        const struct plan_buf *b = &p->bufs.v[i];
        if (b->kind != INFR_BUF_CONST) continue;
        INFC_ASSERT(dim_is_const(b->bytes));
        buf_weight[i] = add_weight(p, out, &cap, b->cst, &b->pack, (uint64_t)b->bytes->value);
    }
    const struct ir_func *f = p->module->funcs.v[0];
    static const struct plan_pack none;
    for (int i = 0; i < f->n_inputs; i++) {
        if (!f->input_optional || !f->input_optional[i]) continue;
        int64_t elems = 0;
        const struct ir_const *c = f->input_default[i];
        ir_type_static_elems(&c->type, &elems);
        add_weight(p, out, &cap, c, &none, (uint64_t)elems * dtype_bytes(c->type.dtype));
    }
    return buf_weight;
}

/* Element `at` of the transforms [O, C, p] of 3x3 taps. */
static void put_winograd(const struct winograd *w, const void *taps, int64_t at, char *dst)
{
    int points = w->t * w->t;
    float v = winograd_weight(w, (int)(at % points), (const float *)taps + at / points * 9);
    memcpy(dst, &v, sizeof v);
}

void weight_read(const struct weight *w, uint64_t at, void *dst, size_t n_bytes)
{
    const struct ir_const *c = w->cst;
    size_t elem = dtype_bytes(c->type.dtype);
    if (c->splat) {
        for (size_t i = 0; i < n_bytes; i += elem) memcpy((char *)dst + i, c->data, elem);
        return;
    }
    const struct plan_pack *p = &w->pack;
    if (c->part) {
        weight_part_read(c, at, dst, n_bytes);
        return;
    }
    if (!p->rank) {
        memcpy(dst, (const char *)c->data + at, n_bytes);
        return;
    }
    struct winograd tiles = winograd_make(p->winograd ? p->winograd : 2);
    int64_t in_stride[PLAN_PACK_MAX_RANK], s = 1;
    for (int i = p->in_rank - 1; i >= 0; i--) in_stride[i] = s, s *= p->in_dims[i];
    int64_t coord[PLAN_PACK_MAX_RANK], pos = (int64_t)(at / elem);
    for (int j = p->rank - 1; j >= 0; j--) coord[j] = pos % p->dims[j], pos /= p->dims[j];
    for (size_t i = 0; i < n_bytes; i += elem) {
        int64_t in[PLAN_PACK_MAX_RANK] = {0}, off = 0;
        bool inside = true;
        for (int j = 0; j < p->rank; j++) in[p->in_axis[j]] += coord[j] * p->stride[j];
        for (int a = 0; a < p->in_rank; a++) {
            inside = inside && in[a] < p->in_dims[a];
            off += in[a] * in_stride[a];
        }
        if (inside && p->winograd) put_winograd(&tiles, c->data, off, (char *)dst + i);
        else if (inside) memcpy((char *)dst + i, (const char *)c->data + (size_t)off * elem, elem);
        else memset((char *)dst + i, 0, elem);
        for (int j = p->rank - 1; j >= 0 && ++coord[j] == p->dims[j]; j--) coord[j] = 0;
    }
}

/* ---- entry ---- */

void plan_kernel_symbol(const struct plan *p, int kernel, const struct target_level *level, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "infr_k%d_%.80s_%s", kernel, p->kernels.v[kernel].name, level->name);
}

void plan_emit_blob(struct plan *p, const struct plan_blob_options *opt, struct plan_blob *out)
{
    *out = (struct plan_blob){0};
    struct emitter e = {.p = p, .out = out};
    arena_init(&e.scratch);
    map_init(&e.dim_rows, &e.scratch);
    map_init(&e.strings, &e.scratch);
    static const char zeros[sizeof(struct infr_header)];
    strbuf_putn(&out->bytes, zeros, sizeof zeros);
    size_t *buf_weight = layout_weights(p, opt->shared, out);
    put_symbols(&e);
    put_io(&e);
    put_bufs(&e, buf_weight);
    put_kernels(&e);
    uint32_t entry = put_block(&e, p->entry);
    if (opt->golden) put_golden(&e, opt->golden, opt->golden_tolerance);
    put_header(&e, opt, entry);
    arena_deinit(&e.scratch);
}
