// SPDX-License-Identifier: Apache-2.0
/*
 * Validation of the plan. After it, every index, offset and string of every table may be used
 * without a further check; what depends on symbol values (sizes, offsets, slice counts) is checked
 * when a session binds them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/golden_text.h"
#include "runtime/engine.h"
#include "runtime/status.h"

/* ---- loading ---- */

static int damaged(struct infr_status *st, const char *what, uint64_t row)
{
    return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: %s %llu is wrong", what,
                   (unsigned long long)row);
}

/* Rows of a later minor version are longer; then, or when badly aligned, they are copied. */
static int load_table(struct infr_engine *e, struct infr_table t, const char *name,
                      size_t row_bytes, const void **out, uint32_t *out_n, struct infr_status *st)
{
    *out = NULL;
    *out_n = 0;
    if (!t.count) return INFR_OK;
    if (t.stride < row_bytes || (uint64_t)t.count * t.stride > e->blob_bytes ||
        t.offset > e->blob_bytes - (uint64_t)t.count * t.stride)
        return rt_fail(st, INFR_ENVIRONMENT,
                       "the engine is damaged: table %s lies outside the plan", name);
    const unsigned char *rows = e->blob + t.offset;
    if (t.stride != row_bytes || (uintptr_t)rows % 8) {
        unsigned char *copy = malloc(row_bytes * t.count);
        if (!copy) return rt_fail_memory(st, "the plan", (uint64_t)row_bytes * t.count);
        for (uint32_t i = 0; i < t.count; i++)
            memcpy(copy + row_bytes * i, rows + (size_t)t.stride * i, row_bytes);
        e->copies[e->n_copies++] = copy;
        rows = copy;
    }
    *out = rows;
    *out_n = t.count;
    return INFR_OK;
}

/* What the first version's header had. */
#define HEADER_BYTES_1_0 offsetof(struct infr_header, text_offset)

int rt_plan_load(struct infr_engine *e, const void *plan, uint64_t plan_bytes,
                 struct infr_status *st)
{
    if (plan_bytes < HEADER_BYTES_1_0)
        return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: its plan is too short");
    memcpy(&e->h, plan, HEADER_BYTES_1_0);
    if (e->h.magic != INFR_MAGIC)
        return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: its plan has no magic number");
    if (e->h.major != INFR_VERSION_MAJOR)
        return rt_fail(st, INFR_ENVIRONMENT,
                       "the plan has format version %u.%u; this runtime reads %d.x", e->h.major,
                       e->h.minor, INFR_VERSION_MAJOR);
    if (e->h.header_bytes < HEADER_BYTES_1_0 || e->h.blob_bytes > plan_bytes ||
        e->h.header_bytes > e->h.blob_bytes)
        return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: its plan is cut off");
    memcpy(&e->h, plan, e->h.header_bytes < sizeof e->h ? e->h.header_bytes : sizeof e->h);
    e->blob = plan;
    e->blob_bytes = e->h.blob_bytes;
#define X(field, type)                                                                        \
    {                                                                                         \
        const void *rows;                                                                     \
        int code = load_table(e, e->h.field, #field, sizeof(type), &rows, &e->n_##field, st); \
        if (code) return code;                                                                \
        e->field = rows;                                                                      \
    }
    RT_TABLES(X)
#undef X
    return INFR_OK;
}

/* ---- validation: each returns true when right ---- */

static bool str_ok(const struct infr_engine *e, infr_str s)
{
    return !s || (s < e->blob_bytes && memchr(e->blob + s, 0, e->blob_bytes - s));
}

static bool row_ok(const struct infr_engine *e, uint32_t row) { return row < e->n_dims; }
static bool opt_row_ok(const struct infr_engine *e, uint32_t row)
{
    return row == INFR_NONE || row < e->n_dims;
}

static bool range_ok(uint32_t first, uint64_t count, uint32_t n)
{
    return count <= n && first <= n - count;
}

/* A list of dim rows in the u32 pool. */
static bool rows_ok(const struct infr_engine *e, uint32_t first, uint32_t count)
{
    if (!range_ok(first, count, e->n_pool_u32)) return false;
    for (uint32_t i = 0; i < count; i++)
        if (!row_ok(e, e->pool_u32[first + i])) return false;
    return true;
}

static bool in_weights(const struct infr_engine *e, uint64_t offset, uint64_t bytes)
{
    return bytes <= e->weights_bytes && offset <= e->weights_bytes - bytes;
}

static bool dim_ok(const struct infr_engine *e, uint32_t i)
{
    const struct infr_dim *d = &e->dims[i];
    if (d->op == INFR_DIM_CONST) return true;
    if (d->op == INFR_DIM_SYM) {
        /* A symbol that no input binds has a value only if there is just one. */
        if (d->a >= e->n_symbols) return false;
        const struct infr_symbol *s = &e->symbols[d->a];
        return s->bind_input != INFR_NONE || s->lo == s->hi;
    }
    return d->op <= INFR_DIM_MAX && d->a < i && d->b < i;
}

static bool symbol_ok(const struct infr_engine *e, uint32_t i)
{
    const struct infr_symbol *s = &e->symbols[i];
    if (!s->name || !str_ok(e, s->name) || s->lo > s->hi) return false;
    if (s->bind_input == INFR_NONE) return true;
    if (s->bind_input >= e->n_inputs) return false;
    const struct infr_io *io = &e->inputs[s->bind_input];
    if (s->bind_axis >= io->rank || !range_ok(io->dims, io->rank, e->n_pool_u32)) return false;
    uint32_t row = e->pool_u32[io->dims + s->bind_axis];
    return row_ok(e, row) && e->dims[row].op == INFR_DIM_SYM && e->dims[row].a == i;
}

static bool io_ok(const struct infr_engine *e, const struct infr_io *io)
{
    return io->name && str_ok(e, io->name) && io->dtype != DT_NONE && io->dtype < DT_COUNT &&
           io->dtype != DT_STRING && io->rank <= INFR_MAX_RANK && rows_ok(e, io->dims, io->rank) &&
           io->buf < e->n_bufs && io->optional <= INFR_IO_STATE &&
           (io->optional != INFR_IO_OPTIONAL ||
            in_weights(e, io->default_offset, io->default_bytes)) &&
           e->bufs[io->buf].dtype == io->dtype;
}

static bool input_ok(const struct infr_engine *e, uint32_t i)
{
    const struct infr_io *io = &e->inputs[i];
    return io_ok(e, io) && e->bufs[io->buf].kind == INFR_BUF_INPUT && e->bufs[io->buf].io == i;
}

static bool output_ok(const struct infr_engine *e, uint32_t i)
{
    return io_ok(e, &e->outputs[i]) && !e->outputs[i].optional;
}

static bool check_ok(const struct infr_engine *e, uint32_t i)
{
    const struct infr_check *c = &e->checks[i];
    return row_ok(e, c->a) && row_ok(e, c->b) && c->is_le <= 1 && str_ok(e, c->message);
}

static bool buf_ok(const struct infr_engine *e, uint32_t i)
{
    const struct infr_buf *b = &e->bufs[i];
    if (!row_ok(e, b->bytes) || b->dtype >= DT_COUNT) return false;
    switch (b->kind) {
    case INFR_BUF_INPUT: return b->io < e->n_inputs;
    case INFR_BUF_OUTPUT: return b->io < e->n_outputs && e->outputs[b->io].buf == i;
    case INFR_BUF_CONST: return in_weights(e, b->const_offset, b->const_bytes);
    case INFR_BUF_ARENA: return b->first <= b->last;
    default: return false;
    }
}

static bool arg_ok(const struct infr_engine *e, uint32_t i)
{
    return e->args[i].buf < e->n_bufs && opt_row_ok(e, e->args[i].offset);
}

static bool launch_ok(const struct infr_engine *e, uint32_t i)
{
    const struct infr_launch *l = &e->launches[i];
    if (l->kernel >= e->n_kernels || !range_ok(l->args, l->n_args, e->n_args) ||
        !rows_ok(e, l->dims, l->n_dims))
        return false;
    for (int v = 0; v < INFR_ISA_COUNT; v++)
        if (e->kernels[l->kernel].isa_mask >> v & 1 ? !row_ok(e, l->slices[v])
                                                    : !opt_row_ok(e, l->slices[v]))
            return false;
    return l->barrier <= (INFR_ORDER_MEET | INFR_ORDER_EACH) && l->n_read <= l->n_args && str_ok(e, l->name) && str_ok(e, l->loc) && str_ok(e, l->schedule) &&
           opt_row_ok(e, l->flops) && opt_row_ok(e, l->bytes);
}

static bool step_ok(const struct infr_engine *e, uint32_t i)
{
    const struct infr_step *s = &e->steps[i];
    if (s->kind == INFR_STEP_LAUNCH) return s->a < e->n_launches;
    if (s->kind == INFR_STEP_CHECK) return s->a < e->n_checks;
    if (s->kind == INFR_STEP_PROBE) return s->a < e->n_bufs && e->bufs[s->a].kind == INFR_BUF_ARENA && e->bufs[s->a].dtype == DT_F32;
    return s->kind == INFR_STEP_IF && s->a < e->n_bufs && e->bufs[s->a].dtype == DT_BOOL &&
           s->b < e->n_blocks && s->c < e->n_blocks;
}

static bool block_ok(const struct infr_engine *e, uint32_t i)
{
    return range_ok(e->blocks[i].first, e->blocks[i].count, e->n_steps);
}

static bool kernel_ok(const struct infr_engine *e, uint32_t i)
{
    const struct infr_kernel *k = &e->kernels[i];
    return k->symbol && str_ok(e, k->symbol) && k->isa_mask && !(k->isa_mask >> INFR_ISA_COUNT) &&
           k->scratch_bytes <= 1u << 30;
}

static bool golden_ok(const struct infr_engine *e, uint32_t i)
{
    const struct infr_golden *g = &e->goldens[i];
    return range_ok(g->symbols, e->n_symbols, e->n_pool_i64) &&
           g->n_rows >= e->n_outputs && range_ok(g->outputs, g->n_rows, e->n_golden_outputs);
}

static bool golden_output_ok(const struct infr_engine *e, uint32_t i)
{
    const struct infr_golden_output *g = &e->golden_outputs[i];
    if (!range_ok(g->values, g->n_values, e->n_pool_f64) || !isfinite(g->scale)) return false;
    if (!isfinite(g->tolerance) || g->tolerance < 0) return false;
    if (g->input != INFR_NONE && (g->input >= e->n_inputs || e->inputs[g->input].optional != INFR_IO_STATE)) return false;
    if (!g->elems) return !g->n_values;
    if (!g->step || !g->n_values) return false;
    uint64_t first = g->probe ? infr_golden_probe_first(g->probe - 1, g->step) : 0;
    return first < g->elems && g->n_values - 1 <= (g->elems - 1 - first) / g->step;
}

/* The blocks under the entry are a tree and no launch is run twice: `seen` has a byte a block, then
 * a byte a launch. */
static bool walk_ok(const struct infr_engine *e, uint32_t block, int depth, unsigned char *seen)
{
    if (depth > RT_MAX_BLOCK_DEPTH || seen[block]) return false;
    seen[block] = 1;
    for (uint32_t i = 0; i < e->blocks[block].count; i++) {
        const struct infr_step *s = &e->steps[e->blocks[block].first + i];
        if (s->kind == INFR_STEP_LAUNCH) {
            if (seen[e->n_blocks + (size_t)s->a]++) return false;
        } else if (s->kind == INFR_STEP_IF && (!walk_ok(e, s->b, depth + 1, seen) || !walk_ok(e, s->c, depth + 1, seen))) {
            return false;
        }
    }
    return true;
}

static int validate_blocks(const struct infr_engine *e, struct infr_status *st)
{
    size_t n = (size_t)e->n_blocks + e->n_launches;
    if (e->h.entry_block >= e->n_blocks) return damaged(st, "entry block", e->h.entry_block);
    unsigned char *seen = calloc(n, 1);
    if (!seen) return rt_fail_memory(st, "the plan", n);
    bool ok = walk_ok(e, e->h.entry_block, 0, seen);
    free(seen);
    return ok ? INFR_OK
              : rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: its blocks are not a tree");
}

int rt_plan_validate(const struct infr_engine *e, struct infr_status *st)
{
    if (!e->h.model_name || !str_ok(e, e->h.model_name) || !str_ok(e, e->h.compiler_version) ||
        !str_ok(e, e->h.manifest))
        return damaged(st, "a string of the header, number", 0);
    if (e->h.branch_checks > e->n_checks) return damaged(st, "check", e->h.branch_checks);
    if (e->h.text_bytes && (e->h.text_offset % 64 || e->h.text_bytes > e->blob_bytes ||
                            e->h.text_offset > e->blob_bytes - e->h.text_bytes))
        return damaged(st, "the text section, number", 0);
    static const struct {
        const char *name;
        bool (*ok)(const struct infr_engine *, uint32_t);
        size_t count_at;
    } tables[] = {
        {"dim", dim_ok, offsetof(struct infr_engine, n_dims)},
        {"symbol", symbol_ok, offsetof(struct infr_engine, n_symbols)},
        {"input", input_ok, offsetof(struct infr_engine, n_inputs)},
        {"output", output_ok, offsetof(struct infr_engine, n_outputs)},
        {"check", check_ok, offsetof(struct infr_engine, n_checks)},
        {"buffer", buf_ok, offsetof(struct infr_engine, n_bufs)},
        {"argument", arg_ok, offsetof(struct infr_engine, n_args)},
        {"kernel", kernel_ok, offsetof(struct infr_engine, n_kernels)},
        {"launch", launch_ok, offsetof(struct infr_engine, n_launches)},
        {"step", step_ok, offsetof(struct infr_engine, n_steps)},
        {"block", block_ok, offsetof(struct infr_engine, n_blocks)},
        {"golden vector", golden_ok, offsetof(struct infr_engine, n_goldens)},
        {"golden output", golden_output_ok, offsetof(struct infr_engine, n_golden_outputs)},
    };
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        uint32_t n;
        memcpy(&n, (const char *)e + tables[t].count_at, sizeof n);
        for (uint32_t i = 0; i < n; i++)
            if (!tables[t].ok(e, i)) return damaged(st, tables[t].name, i);
    }
    return validate_blocks(e, st);
}
