// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor IR to text (grammar: docs/ir.md). Works on broken modules, too: it is what a failed
 * verification is shown with. Values keep their hint where it is the first of its name in the
 * function, others are numbered. Dims are made again first, so that a range that got narrower after
 * an op was built leaves no trace in the text.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/encoding.h"
#include "ir/number_text.h"
#include "ir/op.h"
#include "ir/quote.h"
#include "ir/text.h"

#define INLINE_CONST_BYTES 64
#define RESOURCE_ALIGN 64

struct printer {
    struct strbuf *out;
    const struct ir_module *m; /* NULL: one op for a message */
    struct strbuf *resources;
    bool outline; /* constants without their values */
    struct arena scratch;
    const char **value_names; /* by value id, m->next_id entries */
    const char **const_names; /* by constant id; NULL: not referenced */
    struct map used;          /* value names of the function, then of constants */
    unsigned next_number;
};

static void put_dim(struct printer *p, const struct dim *d)
{
    dim_print(p->out, p->m ? dim_subst(p->m->dims, d, NULL, 0) : d);
}

static void put_dims(struct printer *p, int n, const struct dim *const *dims)
{
    for (int i = 0; i < n; i++) {
        if (i) strbuf_puts(p->out, ", ");
        put_dim(p, dims[i]);
    }
}

static void put_type(struct printer *p, const struct ir_type *t)
{
    if (t->enc) strbuf_printf(p->out, "%s ", t->enc->name);
    strbuf_printf(p->out, "%s[", dtype_name(t->dtype));
    put_dims(p, t->rank, t->dims);
    strbuf_putc(p->out, ']');
}

void ir_print_type(struct strbuf *out, const struct ir_type *t)
{
    struct printer p = {.out = out};
    put_type(&p, t);
}

/* ---- names ---- */

static bool is_number(const char *s) { return s[strspn(s, "0123456789")] == 0; }

static const char *name_value(struct printer *p, const struct ir_value *v)
{
    const char *name = v->name;
    if (!name || is_number(name) || map_finds(&p->used, name))
        name = arena_printf(&p->scratch, "%u", p->next_number++);
    map_puts(&p->used, name, p);
    if (v->id < p->m->next_id) p->value_names[v->id] = name;
    return name;
}

static void put_value_name(struct printer *p, const char *name)
{
    strbuf_putc(p->out, '%');
    if (is_number(name)) strbuf_puts(p->out, name);
    else ir_put_name(p->out, name);
}

static void put_value(struct printer *p, const struct ir_value *v)
{
    if (!v) {
        strbuf_puts(p->out, "none");
    } else if (!p->m) {
        if (v->name && !is_number(v->name)) put_value_name(p, v->name);
        else strbuf_printf(p->out, "%%%u", (unsigned)v->id);
    } else if (v->id < p->m->next_id && p->value_names[v->id]) {
        put_value_name(p, p->value_names[v->id]);
    } else {
        strbuf_puts(p->out, "%?"); /* broken IR: not defined before this use */
    }
}

static void put_const_name(struct printer *p, const struct ir_const *c)
{
    strbuf_putc(p->out, '@');
    const char *name = p->m && c->id < p->m->consts.n ? p->const_names[c->id] : NULL;
    ir_put_name(p->out, name ? name : c->name);
}

/* ---- ops ---- */

static void put_attr(struct printer *p, const struct ir_attr *a)
{
    struct strbuf *out = p->out;
    strbuf_putc(out, ' ');
    ir_put_name(out, a->name);
    strbuf_putc(out, '=');
    switch (a->kind) {
    case IR_ATTR_INT: strbuf_printf(out, "%lld", (long long)a->i); break;
    case IR_ATTR_FLOAT: ir_put_double(out, a->f); break;
    case IR_ATTR_STRING: ir_put_quoted(out, a->s); break;
    case IR_ATTR_INTS:
        strbuf_putc(out, '[');
        for (int i = 0; i < a->count; i++)
            strbuf_printf(out, "%s%lld", i ? ", " : "", (long long)a->ints[i]);
        strbuf_putc(out, ']');
        break;
    case IR_ATTR_FLOATS:
        strbuf_puts(out, "f[");
        for (int i = 0; i < a->count; i++) {
            if (i) strbuf_puts(out, ", ");
            ir_put_double(out, a->floats[i]);
        }
        strbuf_putc(out, ']');
        break;
    case IR_ATTR_DIMS:
        strbuf_putc(out, '(');
        put_dims(p, a->count, a->dims);
        strbuf_putc(out, ')');
        break;
    case IR_ATTR_DTYPE: strbuf_puts(out, dtype_name((enum dtype)a->i)); break;
    case IR_ATTR_CONST: put_const_name(p, a->c); break;
    }
}

/* Everything of an op but its regions. */
static void put_op_line(struct printer *p, const struct ir_op *op)
{
    for (int i = 0; i < op->n_results; i++) {
        if (i) strbuf_puts(p->out, ", ");
        put_value(p, &op->results[i]);
    }
    if (op->n_results) strbuf_puts(p->out, " = ");
    strbuf_puts(p->out, ir_op_name(op->code));
    for (int i = 0; i < op->n_operands; i++) {
        strbuf_puts(p->out, i ? ", " : " ");
        put_value(p, op->operands[i].value);
    }
    for (int i = 0; i < op->n_attrs; i++) put_attr(p, &op->attrs[i]);
    for (int i = 0; i < op->n_results; i++) {
        strbuf_puts(p->out, i ? ", " : " : ");
        put_type(p, &op->results[i].type);
    }
    if (op->loc && op->loc->text[0]) {
        strbuf_puts(p->out, " loc(");
        ir_put_quoted(p->out, op->loc->text);
        strbuf_putc(p->out, ')');
    }
}

void ir_print_op(struct strbuf *out, const struct ir_op *op)
{
    struct printer p = {.out = out};
    put_op_line(&p, op);
}

static void indent(struct printer *p, int depth)
{
    for (int i = 0; i < depth; i++) strbuf_puts(p->out, "  ");
}

static void put_block(struct printer *p, const struct ir_block *b, int depth)
{
    for (const struct ir_op *op = b->first; op; op = op->next) {
        for (int i = 0; i < op->n_results; i++) name_value(p, &op->results[i]);
        indent(p, depth);
        put_op_line(p, op);
        for (int r = 0; r < op->n_regions; r++) {
            const struct ir_block *inner = op->regions[r];
            strbuf_puts(p->out, " {");
            if (inner->n_args) strbuf_putc(p->out, '(');
            for (int i = 0; i < inner->n_args; i++) {
                if (i) strbuf_puts(p->out, ", ");
                put_value_name(p, name_value(p, inner->args[i]));
                strbuf_puts(p->out, ": ");
                put_type(p, &inner->args[i]->type);
            }
            strbuf_puts(p->out, inner->n_args ? ")\n" : "\n");
            put_block(p, inner, depth + 1);
            indent(p, depth);
            strbuf_putc(p->out, '}');
        }
        strbuf_putc(p->out, '\n');
    }
}

/* ---- functions ---- */

static void put_input(struct printer *p, const struct ir_func *f, int i)
{
    const struct ir_value *v = f->body->args[i];
    const char *name = name_value(p, v);
    put_value_name(p, name);
    if (strcmp(name, f->input_names[i])) {
        strbuf_puts(p->out, " as ");
        ir_put_quoted(p->out, f->input_names[i]);
    }
    strbuf_puts(p->out, ": ");
    put_type(p, &v->type);
    if (f->input_state[i]) strbuf_puts(p->out, " state");
    if (f->input_optional[i]) strbuf_puts(p->out, " optional");
    if (f->input_default[i]) {
        strbuf_puts(p->out, " = ");
        put_const_name(p, f->input_default[i]);
    }
}

static void put_func(struct printer *p, const struct ir_func *f)
{
    const struct ir_op *ret = f->body->last;
    map_init(&p->used, &p->scratch);
    p->next_number = 0;
    strbuf_puts(p->out, "  func @");
    ir_put_name(p->out, f->name);
    strbuf_putc(p->out, '(');
    for (int i = 0; i < f->n_inputs && i < f->body->n_args; i++) {
        if (i) strbuf_puts(p->out, ", ");
        put_input(p, f, i);
    }
    strbuf_puts(p->out, ") -> (");
    for (int i = 0; i < f->n_outputs; i++) {
        if (i) strbuf_puts(p->out, ", ");
        ir_put_name(p->out, f->output_names[i]);
        strbuf_puts(p->out, ": ");
        if (ret && ir_operand(ret, i)) put_type(p, &ir_operand(ret, i)->type);
        else strbuf_putc(p->out, '?');
    }
    strbuf_puts(p->out, ") {\n");
    put_block(p, f->body, 2);
    strbuf_puts(p->out, "  }\n");
}

/* ---- constants ---- */

static void reference_const(struct printer *p, const struct ir_const *c)
{
    if (c && c->id < p->m->consts.n) p->const_names[c->id] = c->name;
}

static void reference_block(struct printer *p, const struct ir_block *b)
{
    for (const struct ir_op *op = b->first; op; op = op->next) {
        for (int i = 0; i < op->n_attrs; i++)
            if (op->attrs[i].kind == IR_ATTR_CONST) reference_const(p, op->attrs[i].c);
        for (int r = 0; r < op->n_regions; r++) reference_block(p, op->regions[r]);
    }
}

/* Which constants are printed, and under which names: two of one name must not meet in the text. */
static void name_consts(struct printer *p)
{
    for (size_t i = 0; i < p->m->funcs.n; i++) {
        const struct ir_func *f = p->m->funcs.v[i];
        reference_block(p, f->body);
        for (int k = 0; k < f->n_inputs; k++) reference_const(p, f->input_default[k]);
    }
    map_init(&p->used, &p->scratch);
    for (size_t i = 0; i < p->m->consts.n; i++) {
        const char *name = p->const_names[i];
        if (!name) continue;
        for (unsigned n = 1; map_finds(&p->used, name); n++)
            name = arena_printf(&p->scratch, "%s_%u", p->const_names[i], n);
        map_puts(&p->used, name, p);
        p->const_names[i] = name;
    }
}

static void put_elements(struct printer *p, const struct ir_const *c, size_t element)
{
    const unsigned char *data = c->data;
    strbuf_putc(p->out, '[');
    for (size_t i = 0; i < c->n_bytes / element; i++) {
        if (i) strbuf_puts(p->out, ", ");
        ir_put_element(p->out, c->type.enc ? DT_U8 : c->type.dtype, data + i * element);
    }
    strbuf_putc(p->out, ']');
}

/* Bytes that are too many for the text: into the side file, or their hash. */
static void put_resource(struct printer *p, const void *data, size_t n)
{
    if (p->outline) {
        strbuf_printf(p->out, "bytes=%zu", n);
        return;
    }
    if (!p->resources) {
        strbuf_printf(p->out, "hash(%016llx, bytes=%zu)", (unsigned long long)hash_bytes(data, n, 0), n);
        return;
    }
    while (p->resources->len % RESOURCE_ALIGN) strbuf_putc(p->resources, 0);
    strbuf_printf(p->out, "resource(offset=%zu, bytes=%zu)", p->resources->len, n);
    strbuf_putn(p->resources, data, n);
}

static void put_const(struct printer *p, const struct ir_const *c)
{
    size_t element = c->type.enc ? 1 : dtype_bytes(c->type.dtype);
    strbuf_puts(p->out, "  const ");
    put_const_name(p, c);
    strbuf_puts(p->out, ": ");
    put_type(p, &c->type);
    strbuf_puts(p->out, " = ");
    if (c->part) {
        static const char *const parts[] = {"q", "scale", "min", "blocks"};
        strbuf_printf(p->out, "part(%s of ", parts[c->part->part]);
        put_const_name(p, c->part->from);
        strbuf_puts(p->out, ")");
        return;
    }
    if (!c->data || element == 0) {
        strbuf_puts(p->out, "opaque");
    } else if (c->splat && c->n_bytes >= element) {
        strbuf_puts(p->out, "splat(");
        ir_put_element(p->out, c->type.dtype, c->data);
        strbuf_putc(p->out, ')');
    } else if (c->n_bytes <= INLINE_CONST_BYTES) {
        put_elements(p, c, element);
    } else {
        put_resource(p, c->data, c->n_bytes);
    }
    strbuf_putc(p->out, '\n');
}

/* ---- modules ---- */

static void put_bound(struct strbuf *out, int64_t v)
{
    if (v == DIM_INF) strbuf_puts(out, "inf");
    else if (v == INT64_MIN) strbuf_puts(out, "-inf");
    else strbuf_printf(out, "%lld", (long long)v);
}

static void put_header(struct printer *p)
{
    const struct ir_module *m = p->m;
    for (size_t i = 0; i < m->meta_keys.n && i < m->meta_values.n; i++) {
        strbuf_puts(p->out, "  meta ");
        ir_put_quoted(p->out, m->meta_keys.v[i]);
        strbuf_puts(p->out, " = ");
        ir_put_quoted(p->out, m->meta_values.v[i]);
        strbuf_putc(p->out, '\n');
    }
    if (m->text) {
        strbuf_puts(p->out, "  text = ");
        put_resource(p, m->text, m->n_text_bytes);
        strbuf_putc(p->out, '\n');
    }
    for (size_t i = 0; i < dim_sym_count(m->dims); i++) {
        const struct dim *s = dim_sym_at(m->dims, i);
        strbuf_puts(p->out, "  sym ");
        dim_print(p->out, s);
        strbuf_puts(p->out, " in [");
        put_bound(p->out, s->lo);
        strbuf_puts(p->out, ", ");
        put_bound(p->out, s->hi);
        strbuf_puts(p->out, "]\n");
    }
}

static void put_check(struct printer *p, const struct ir_check *c)
{
    strbuf_puts(p->out, "  check ");
    put_dim(p, c->a);
    strbuf_puts(p->out, c->is_le ? " <= " : " == ");
    put_dim(p, c->b);
    strbuf_putc(p->out, ' ');
    ir_put_quoted(p->out, c->message ? c->message : "");
    strbuf_putc(p->out, '\n');
}

static void put_module(struct printer *with, const struct ir_module *m)
{
    struct printer p = *with;
    struct strbuf *out = p.out;
    arena_init(&p.scratch);
    p.value_names = ARENA_ARRAY(&p.scratch, const char *, m->next_id);
    p.const_names = ARENA_ARRAY(&p.scratch, const char *, m->consts.n);
    name_consts(&p);
    strbuf_puts(out, "model ");
    ir_put_quoted(out, m->name);
    strbuf_puts(out, " {\n");
    put_header(&p);
    for (size_t i = 0; i < m->consts.n; i++)
        if (p.const_names[i]) put_const(&p, m->consts.v[i]);
    for (size_t i = 0; i < m->checks.n; i++) put_check(&p, &m->checks.v[i]);
    for (size_t i = 0; i < m->funcs.n; i++) put_func(&p, m->funcs.v[i]);
    strbuf_puts(out, "}\n");
    arena_deinit(&p.scratch);
}

void ir_print_module(struct strbuf *out, const struct ir_module *m, struct strbuf *resources)
{
    struct printer p = {.out = out, .m = m, .resources = resources};
    put_module(&p, m);
}

void ir_print_module_outline(struct strbuf *out, const struct ir_module *m)
{
    struct printer p = {.out = out, .m = m, .outline = true};
    put_module(&p, m);
}
