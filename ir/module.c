// SPDX-License-Identifier: Apache-2.0
/* Modules, functions, blocks, ops, values and their uses. Attributes and constants: ir/attr.c. */
#include "ir/module.h"

#include <stdlib.h>
#include <string.h>

struct ir_module *ir_module_create(const char *name, struct diag_sink *diag)
{
    struct ir_module *m = calloc(1, sizeof *m);
    INFC_ASSERT(m != NULL);
    arena_init(&m->arena);
    m->name = arena_strdup(&m->arena, name);
    m->dims = dim_ctx_create();
    m->diag = diag;
    return m;
}

void ir_module_destroy(struct ir_module *m)
{
    if (!m) return;
    if (m->release) m->release(m->owned);
    dim_ctx_destroy(m->dims);
    arena_deinit(&m->arena);
    free(m);
}

/* ---- types ---- */

struct ir_type ir_type_make(struct ir_module *m, enum dtype dtype, int rank,
                            const struct dim *const *dims)
{
    INFC_ASSERT(rank >= 0 && rank <= IR_MAX_RANK);
    const struct dim **copy = ARENA_ARRAY(&m->arena, const struct dim *, rank);
    for (int i = 0; i < rank; i++) copy[i] = dims[i];
    return (struct ir_type){.dtype = dtype, .rank = rank, .dims = copy};
}

struct ir_type ir_type_static(struct ir_module *m, enum dtype dtype, int rank, const int64_t *dims)
{
    INFC_ASSERT(rank >= 0 && rank <= IR_MAX_RANK);
    const struct dim *d[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) d[i] = dim_const(m->dims, dims[i]);
    return ir_type_make(m, dtype, rank, d);
}

bool ir_type_equal(const struct ir_type *a, const struct ir_type *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank || a->enc != b->enc) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

const struct dim *ir_type_elems(struct ir_module *m, const struct ir_type *t)
{
    const struct dim *n = dim_const(m->dims, 1);
    for (int i = 0; i < t->rank; i++) n = dim_mul(m->dims, n, t->dims[i]);
    return n;
}

bool ir_type_static_elems(const struct ir_type *t, int64_t *out)
{
    int64_t n = 1;
    bool fits = true, empty = false;
    for (int i = 0; i < t->rank; i++) {
        if (!dim_is_const(t->dims[i]) || t->dims[i]->value < 0) return false;
        if (t->dims[i]->value == 0) empty = true;
        fits = fits && i64_mul(n, t->dims[i]->value, &n);
    }
    *out = empty ? 0 : n;
    return fits || empty;
}

/* ---- locations ---- */

struct ir_loc *ir_loc_make(struct ir_module *m, const char *text)
{
    struct ir_loc *l = ARENA_NEW(&m->arena, struct ir_loc);
    l->text = arena_strdup(&m->arena, text);
    return l;
}

#define LOC_SEPARATOR " + "

/* Is part (len bytes) one of the parts of text? */
static bool loc_has_part(const char *text, const char *part, size_t len)
{
    for (const char *p = text; p;) {
        const char *sep = strstr(p, LOC_SEPARATOR);
        size_t n = sep ? (size_t)(sep - p) : strlen(p);
        if (n == len && !memcmp(p, part, len)) return true;
        p = sep ? sep + strlen(LOC_SEPARATOR) : NULL;
    }
    return false;
}

const struct ir_loc *ir_loc_join(struct ir_module *m, const struct ir_loc *a,
                                 const struct ir_loc *b)
{
    if (!a || !a->text[0]) return b;
    if (!b || !b->text[0] || a == b) return a;
    struct strbuf s = {0};
    strbuf_puts(&s, a->text);
    for (const char *p = b->text; p;) {
        const char *sep = strstr(p, LOC_SEPARATOR);
        size_t n = sep ? (size_t)(sep - p) : strlen(p);
        if (!loc_has_part(strbuf_get(&s), p, n)) {
            strbuf_puts(&s, LOC_SEPARATOR);
            strbuf_putn(&s, p, n);
        }
        p = sep ? sep + strlen(LOC_SEPARATOR) : NULL;
    }
    const struct ir_loc *joined = strcmp(s.data, a->text) ? ir_loc_make(m, s.data) : a;
    strbuf_deinit(&s);
    return joined;
}

/* ---- functions and blocks ---- */

struct ir_func *ir_func_create(struct ir_module *m, const char *name)
{
    struct ir_func *f = ARENA_NEW(&m->arena, struct ir_func);
    f->name = arena_strdup(&m->arena, name);
    f->module = m;
    f->body = ir_block_create(m, f, NULL);
    vec_push(&m->arena, &m->funcs, f);
    return f;
}

/* Room for one more element in an array that grows by doubling at powers of two. */
static void *grow_at_pow2(struct arena *a, void *old, int n, size_t elem_bytes)
{
    if (n != 0 && (n & (n - 1)) != 0) return old;
    void *p = arena_calloc(a, n ? 2 * (size_t)n : 1, elem_bytes);
    if (n) memcpy(p, old, (size_t)n * elem_bytes);
    return p;
}

struct ir_value *ir_func_add_input(struct ir_func *f, const char *name, struct ir_type type)
{
    struct arena *a = &f->module->arena;
    int n = f->n_inputs;
    f->input_names = grow_at_pow2(a, f->input_names, n, sizeof *f->input_names);
    f->input_optional = grow_at_pow2(a, f->input_optional, n, sizeof *f->input_optional);
    f->input_default = grow_at_pow2(a, f->input_default, n, sizeof *f->input_default);
    f->input_names[n] = arena_strdup(a, name);
    f->input_state = grow_at_pow2(a, f->input_state, n, sizeof *f->input_state);
    f->input_optional[n] = false;
    f->input_state[n] = false;
    f->input_default[n] = NULL;
    f->n_inputs++;
    return ir_block_add_arg(f->module, f->body, type, name);
}

void ir_func_set_outputs(struct ir_func *f, int n, struct ir_value *const *values,
                         const char *const *names)
{
    struct arena *a = &f->module->arena;
    f->output_names = ARENA_ARRAY(a, const char *, n);
    for (int i = 0; i < n; i++) f->output_names[i] = arena_strdup(a, names[i]);
    f->n_outputs = n;
    ir_block_append(f->body, ir_op_create(f->module, IR_OP_RETURN, n, values, 0, NULL));
}

struct ir_block *ir_block_create(struct ir_module *m, struct ir_func *f, struct ir_op *parent)
{
    struct ir_block *b = ARENA_NEW(&m->arena, struct ir_block);
    b->func = f;
    b->parent_op = parent;
    return b;
}

struct ir_value *ir_block_add_arg(struct ir_module *m, struct ir_block *b, struct ir_type type,
                                  const char *name)
{
    struct ir_value *v = ARENA_NEW(&m->arena, struct ir_value);
    v->type = type;
    v->name = name ? arena_strdup(&m->arena, name) : NULL;
    v->block = b;
    v->index = b->n_args;
    v->id = m->next_id++;
    b->args = grow_at_pow2(&m->arena, b->args, b->n_args, sizeof(struct ir_value *));
    b->args[b->n_args++] = v;
    return v;
}

/* ---- uses ---- */

static void use_link(struct ir_use *u, struct ir_value *v)
{
    u->value = v;
    if (!v) return;
    u->prev = NULL;
    u->next = v->uses;
    if (v->uses) v->uses->prev = u;
    v->uses = u;
}

static void use_unlink(struct ir_use *u)
{
    if (!u->value) return;
    if (u->prev) u->prev->next = u->next;
    else u->value->uses = u->next;
    if (u->next) u->next->prev = u->prev;
    u->value = NULL;
    u->next = u->prev = NULL;
}

void ir_op_set_operand(struct ir_op *op, int i, struct ir_value *v)
{
    INFC_ASSERT(i >= 0 && i < op->n_operands);
    use_unlink(&op->operands[i]);
    use_link(&op->operands[i], v);
}

void ir_value_replace_uses(struct ir_value *old, struct ir_value *with)
{
    if (old == with) return;
    while (old->uses) {
        struct ir_use *u = old->uses;
        use_unlink(u);
        use_link(u, with);
    }
}

bool ir_value_has_one_use(const struct ir_value *v) { return v->uses && !v->uses->next; }

/* ---- ops ---- */

struct ir_op *ir_op_create(struct ir_module *m, enum ir_opcode code, int n_operands,
                           struct ir_value *const *operands, int n_results,
                           const struct ir_loc *loc)
{
    struct ir_op *op = ARENA_NEW(&m->arena, struct ir_op);
    op->code = code;
    op->loc = loc;
    op->n_operands = n_operands;
    op->operands = ARENA_ARRAY(&m->arena, struct ir_use, n_operands);
    for (int i = 0; i < n_operands; i++) {
        op->operands[i].user = op;
        use_link(&op->operands[i], operands[i]);
    }
    op->n_results = n_results;
    op->results = ARENA_ARRAY(&m->arena, struct ir_value, n_results);
    for (int i = 0; i < n_results; i++) {
        op->results[i].def = op;
        op->results[i].index = i;
        op->results[i].id = m->next_id++;
    }
    return op;
}

void ir_op_add_region(struct ir_module *m, struct ir_op *op, struct ir_block *b)
{
    op->regions = grow_at_pow2(&m->arena, op->regions, op->n_regions, sizeof(struct ir_block *));
    op->regions[op->n_regions++] = b;
    b->parent_op = op;
}

/* Links op between prev and next of block b; either may be NULL at the ends. */
static void link_between(struct ir_block *b, struct ir_op *prev, struct ir_op *op,
                         struct ir_op *next)
{
    INFC_ASSERT(op->block == NULL);
    op->block = b;
    op->prev = prev;
    op->next = next;
    if (prev) prev->next = op;
    else b->first = op;
    if (next) next->prev = op;
    else b->last = op;
}

void ir_block_append(struct ir_block *b, struct ir_op *op) { link_between(b, b->last, op, NULL); }

void ir_block_insert_before(struct ir_op *before, struct ir_op *op)
{
    link_between(before->block, before->prev, op, before);
}

void ir_block_insert_after(struct ir_op *after, struct ir_op *op)
{
    link_between(after->block, after, op, after->next);
}

void ir_op_unlink(struct ir_op *op)
{
    struct ir_block *b = op->block;
    if (!b) return;
    if (op->prev) op->prev->next = op->next;
    else b->first = op->next;
    if (op->next) op->next->prev = op->prev;
    else b->last = op->prev;
    op->block = NULL;
    op->prev = op->next = NULL;
}

/* The ops inside go too, users before their operands, so that captured outer values lose these
 * uses. */
static void erase_block_ops(struct ir_block *b)
{
    while (b->last) ir_op_erase(b->last);
}

void ir_op_erase(struct ir_op *op)
{
    for (int i = 0; i < op->n_results; i++) INFC_ASSERT(op->results[i].uses == NULL);
    for (int i = 0; i < op->n_regions; i++) erase_block_ops(op->regions[i]);
    ir_op_unlink(op);
    for (int i = 0; i < op->n_operands; i++) use_unlink(&op->operands[i]);
}
