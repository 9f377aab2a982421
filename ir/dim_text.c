// SPDX-License-Identifier: Apache-2.0
/* Dims as text, under an assignment of the symbols, and with symbols replaced. */
#include "ir/dim_internal.h"

#include <string.h>

#include "ir/quote.h"

/* ---- evaluation and substitution ---- */

static bool eval_terms(const struct dim_ctx *ctx, const struct dim *d, const int64_t *values,
                       int64_t *out)
{
    *out = 0;
    for (int i = 0; i < d->n_terms; i++) {
        int64_t product = d->terms[i].coeff, v;
        for (int j = 0; j < d->terms[i].n_atoms; j++)
            if (!dim_eval(ctx, d->terms[i].atoms[j], values, &v) || !i64_mul(product, v, &product))
                return false;
        if (!i64_add(*out, product, out)) return false;
    }
    return true;
}

bool dim_eval(const struct dim_ctx *ctx, const struct dim *d, const int64_t *sym_values,
              int64_t *out)
{
    int64_t a, b;
    switch (d->kind) {
    case DIM_CONST: *out = d->value; return true;
    case DIM_SYM:
        if (!sym_values) return false;
        *out = sym_values[((const struct dim_node *)d)->sym_index];
        return true;
    case DIM_POLY: return eval_terms(ctx, d, sym_values, out);
    case DIM_OVERFLOW: return false;
    default: break;
    }
    if (!dim_eval(ctx, d->a, sym_values, &a) || !dim_eval(ctx, d->b, sym_values, &b)) return false;
    switch (d->kind) {
    case DIM_FLOORDIV: return b != 0 && dim_i64_floordiv(a, b, out);
    case DIM_MOD:
        if (b == 0) return false;
        *out = dim_i64_mod(a, b);
        return true;
    case DIM_MIN: *out = a < b ? a : b; return true;
    default: *out = a > b ? a : b; return true;
    }
}

static const struct dim *subst_terms(struct dim_ctx *ctx, const struct dim *d,
                                     const struct dim *const *repl, size_t n_repl)
{
    const struct dim *sum = dim_const(ctx, 0);
    for (int i = 0; i < d->n_terms; i++) {
        const struct dim *product = dim_const(ctx, d->terms[i].coeff);
        for (int j = 0; j < d->terms[i].n_atoms; j++)
            product = dim_mul(ctx, product, dim_subst(ctx, d->terms[i].atoms[j], repl, n_repl));
        sum = dim_add(ctx, sum, product);
    }
    return sum;
}

const struct dim *dim_subst(struct dim_ctx *ctx, const struct dim *d, const struct dim *const *repl,
                            size_t n_repl)
{
    switch (d->kind) {
    case DIM_CONST:
    case DIM_OVERFLOW: return d;
    case DIM_SYM: {
        size_t i = ((const struct dim_node *)d)->sym_index;
        return i < n_repl && repl[i] ? repl[i] : d;
    }
    case DIM_POLY: return subst_terms(ctx, d, repl, n_repl);
    default: break;
    }
    const struct dim *a = dim_subst(ctx, d->a, repl, n_repl),
                     *b = dim_subst(ctx, d->b, repl, n_repl);
    switch (d->kind) {
    case DIM_FLOORDIV: return dim_floordiv(ctx, a, b);
    case DIM_MOD: return dim_mod(ctx, a, b);
    case DIM_MIN: return dim_min(ctx, a, b);
    default: return dim_max(ctx, a, b);
    }
}

/* ---- printing ---- */

static const char *const function_names[] = {"floordiv", "mod", "min", "max", "ceildiv"};

static bool is_reserved(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(function_names); i++)
        if (!strcmp(name, function_names[i])) return true;
    return !strcmp(name, "overflow");
}

static void print_call(struct strbuf *out, const char *name, const struct dim *d)
{
    strbuf_printf(out, "%s(", name);
    dim_print(out, d->a);
    strbuf_puts(out, ", ");
    dim_print(out, d->b);
    strbuf_putc(out, ')');
}

static void print_term(struct strbuf *out, const struct dim_term *t, bool first)
{
    int64_t c = t->coeff;
    bool minus = c < 0 && c != INT64_MIN;
    if (minus) c = -c;
    strbuf_puts(out, first ? (minus ? "-" : "") : (minus ? " - " : " + "));
    if (c != 1 || t->n_atoms == 0)
        strbuf_printf(out, "%lld%s", (long long)c, t->n_atoms ? "*" : "");
    for (int i = 0; i < t->n_atoms; i++) {
        if (i) strbuf_putc(out, '*');
        dim_print(out, t->atoms[i]);
    }
}

void dim_print(struct strbuf *out, const struct dim *d)
{
    switch (d->kind) {
    case DIM_CONST: strbuf_printf(out, "%lld", (long long)d->value); break;
    case DIM_SYM:
        if (is_reserved(d->name)) ir_put_quoted(out, d->name);
        else ir_put_name(out, d->name);
        break;
    case DIM_POLY:
        for (int i = 0; i < d->n_terms; i++) print_term(out, &d->terms[i], i == 0);
        break;
    case DIM_FLOORDIV: print_call(out, "floordiv", d); break;
    case DIM_MOD: print_call(out, "mod", d); break;
    case DIM_MIN: print_call(out, "min", d); break;
    case DIM_MAX: print_call(out, "max", d); break;
    case DIM_OVERFLOW: strbuf_puts(out, "overflow"); break;
    }
}

/* ---- parsing: recursive descent, depth bounded ---- */

struct reader {
    struct dim_ctx *ctx;
    const char *p, *end;
    int depth;
};

static const struct dim *parse_sum(struct reader *r);

static void skip_space(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

static bool accept(struct reader *r, char c)
{
    skip_space(r);
    if (r->p == r->end || *r->p != c) return false;
    r->p++;
    return true;
}

static const struct dim *parse_number(struct reader *r, bool negative)
{
    int64_t v = 0;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) {
        int64_t digit = *r->p - '0';
        if (!i64_mul(v, 10, &v) || !i64_add(v, negative ? -digit : digit, &v)) return NULL;
    }
    return dim_const(r->ctx, v);
}

static const struct dim *parse_call(struct reader *r, size_t which)
{
    if (!accept(r, '(')) return NULL;
    const struct dim *a = parse_sum(r);
    if (!a || !accept(r, ',')) return NULL;
    const struct dim *b = parse_sum(r);
    if (!b || !accept(r, ')')) return NULL;
    switch (which) {
    case 0: return dim_floordiv(r->ctx, a, b);
    case 1: return dim_mod(r->ctx, a, b);
    case 2: return dim_min(r->ctx, a, b);
    case 3: return dim_max(r->ctx, a, b);
    default: return dim_ceildiv(r->ctx, a, b);
    }
}

/* A symbol that is there keeps its range. */
static const struct dim *symbol(struct reader *r, const char *name)
{
    const struct dim *d = dim_find_sym(r->ctx, name);
    return d ? d : dim_sym(r->ctx, name, 0, DIM_INF);
}

static const struct dim *parse_name(struct reader *r)
{
    const char *start = r->p;
    while (r->p < r->end && ir_is_name_char(*r->p)) r->p++;
    char *name = arena_strndup(&r->ctx->arena, start, (size_t)(r->p - start));
    for (size_t i = 0; i < ARRAY_LEN(function_names); i++)
        if (!strcmp(name, function_names[i])) return parse_call(r, i);
    if (!strcmp(name, "overflow")) return r->ctx->overflow;
    return symbol(r, name);
}

static const struct dim *parse_primary(struct reader *r, bool negative)
{
    skip_space(r);
    if (r->p == r->end) return NULL;
    char c = *r->p;
    if (c >= '0' && c <= '9') return parse_number(r, negative);
    const struct dim *d = NULL;
    if (c == '"') {
        char *name = ir_read_quoted(&r->ctx->arena, &r->p, r->end);
        if (name) d = symbol(r, name);
    } else if (c == '(') {
        r->p++;
        d = parse_sum(r);
        if (d && !accept(r, ')')) d = NULL;
    } else if (ir_is_name_start(c)) {
        d = parse_name(r);
    }
    return d && negative ? dim_mulc(r->ctx, d, -1) : d;
}

static const struct dim *parse_product(struct reader *r, bool negative)
{
    if (accept(r, '-')) negative = !negative;
    const struct dim *d = parse_primary(r, negative);
    while (d && accept(r, '*')) {
        bool minus = accept(r, '-');
        const struct dim *factor = parse_primary(r, minus);
        d = factor ? dim_mul(r->ctx, d, factor) : NULL;
    }
    return d;
}

static const struct dim *parse_sum(struct reader *r)
{
    if (++r->depth > DIM_MAX_DEPTH + 8) return NULL;
    const struct dim *sum = parse_product(r, false);
    for (;;) {
        bool plus = sum && accept(r, '+');
        if (!plus && !(sum && accept(r, '-'))) break;
        const struct dim *term = parse_product(r, !plus);
        sum = term ? dim_add(r->ctx, sum, term) : NULL;
    }
    r->depth--;
    return sum;
}

const struct dim *dim_parse(struct dim_ctx *ctx, const char **p, const char *end)
{
    struct reader r = {ctx, *p, end, 0};
    const struct dim *d = parse_sum(&r);
    if (d) *p = r.p;
    return d;
}
