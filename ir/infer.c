// SPDX-License-Identifier: Apache-2.0
/* What all infer functions share: messages, attribute access, comparisons of dims. */
#include "ir/infer.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"

bool infer_fail(struct ir_module *m, const struct ir_op *op, enum diag_id id, const char *fmt, ...)
{
    struct strbuf s = {0};
    strbuf_printf(&s, "%s(", ir_op_name(op->code));
    for (int i = 0; i < op->n_operands && i < 8; i++) {
        if (i) strbuf_puts(&s, ", ");
        if (op->operands[i].value) ir_print_type(&s, infer_type(op, i));
        else strbuf_puts(&s, "none");
    }
    strbuf_puts(&s, op->n_operands > 8 ? ", ...): " : "): ");
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = malloc((size_t)len + 1);
    INFC_ASSERT(len >= 0 && text != NULL);
    vsnprintf(text, (size_t)len + 1, fmt, again);
    va_end(again);
    diag_report(m->diag, id, op->loc ? op->loc->text : NULL, "%s%s", strbuf_get(&s), text);
    free(text);
    strbuf_deinit(&s);
    return false;
}

/* ---- the attribute table ---- */

struct attr_row {
    enum ir_opcode code;
    const char *name;
    enum ir_attr_kind kind;
    bool required;
};

static const struct attr_row attr_rows[] = {
#define ATTR(ID, name, KIND, required) {IR_OP_##ID, #name, IR_ATTR_##KIND, required},
#include "ir/attrs.def"
#undef ATTR
};

static const char *const kind_names[] = {"int",    "float", "string", "ints",
                                         "floats", "dims",  "dtype",  "const"};

static const struct attr_row *find_row(enum ir_opcode code, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(attr_rows); i++)
        if (attr_rows[i].code == code && !strcmp(attr_rows[i].name, name)) return &attr_rows[i];
    return NULL;
}

static bool check_attrs(struct ir_module *m, struct ir_op *op)
{
    for (int i = 0; i < op->n_attrs; i++) {
        const struct ir_attr *a = &op->attrs[i];
        if (!strncmp(a->name, "x_", 2)) continue;
        const struct attr_row *row = find_row(op->code, a->name);
        if (!row) return infer_fail(m, op, DIAG_IR_VERIFY, "has no attribute `%s`", a->name);
        if (row->kind != a->kind)
            return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `%s` must be of kind %s, not %s",
                              a->name, kind_names[row->kind], kind_names[a->kind]);
    }
    for (size_t i = 0; i < ARRAY_LEN(attr_rows); i++)
        if (attr_rows[i].code == op->code && attr_rows[i].required &&
            !ir_attr_find(op, attr_rows[i].name))
            return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `%s` is missing",
                              attr_rows[i].name);
    return true;
}

/* Encoded constants are weights: only these operands read them. */
static bool takes_encoding(const struct ir_op *op, int operand)
{
    switch (op->code) {
    case IR_OP_GATHER: return operand == 0;
    case IR_OP_MATMUL: case IR_OP_MATMUL_EXPERTS: return operand == 1;
    case IR_OP_GROUP: return true;
    default: return false;
    }
}

bool infer_check(struct ir_module *m, struct ir_op *op)
{
    const struct ir_op_info *info = ir_op_info(op->code);
    if (op->n_operands < info->min_operands ||
        (info->max_operands >= 0 && op->n_operands > info->max_operands))
        return infer_fail(m, op, DIAG_IR_VERIFY, "takes %d to %d operands, not %d",
                          info->min_operands, info->max_operands, op->n_operands);
    int required = info->max_operands < 0 ? op->n_operands : info->min_operands;
    for (int i = 0; i < required; i++)
        if (!op->operands[i].value)
            return infer_fail(m, op, DIAG_IR_VERIFY, "operand %d is missing", i);
    if (info->n_results >= 0 && op->n_results != info->n_results)
        return infer_fail(m, op, DIAG_IR_VERIFY, "has %d results, not %d", info->n_results,
                          op->n_results);
    for (int i = 0; i < op->n_operands; i++)
        if (op->operands[i].value && infer_type(op, i)->enc && !takes_encoding(op, i))
            return infer_fail(m, op, DIAG_DTYPE_UNSUPPORTED, "operand %d cannot be an encoded constant", i);
    int regions = op->code == IR_OP_IF ? 2 : op->code == IR_OP_GROUP ? 1 : 0;
    if (op->n_regions != regions)
        return infer_fail(m, op, DIAG_IR_VERIFY, "has %d regions, not %d", regions, op->n_regions);
    return check_attrs(m, op);
}

/* ---- attribute values ---- */

bool infer_int(struct ir_module *m, const struct ir_op *op, const char *name, int64_t lo,
               int64_t hi, int64_t dflt, int64_t *out)
{
    *out = ir_attr_int(op, name, dflt);
    if (*out >= lo && *out <= hi) return true;
    return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `%s` is %lld, but must be in [%lld, %lld]",
                      name, (long long)*out, (long long)lo, (long long)hi);
}

bool infer_axis(struct ir_module *m, const struct ir_op *op, const char *name, int rank, int *out)
{
    int64_t v;
    if (rank == 0) return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "a scalar has no axis");
    if (!infer_int(m, op, name, 0, rank - 1, 0, &v)) return false;
    *out = (int)v;
    return true;
}

bool infer_flag(struct ir_module *m, const struct ir_op *op, const char *name, bool dflt, bool *out)
{
    int64_t v;
    if (!infer_int(m, op, name, 0, 1, dflt, &v)) return false;
    *out = v != 0;
    return true;
}

bool infer_real(struct ir_module *m, const struct ir_op *op, const char *name, double lo, double hi)
{
    double v = ir_attr_float(op, name, lo);
    if (isfinite(v) && v >= lo && v <= hi) return true;
    return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `%s` is %g, but must be in [%g, %g]", name,
                      v, lo, hi);
}

bool infer_word(struct ir_module *m, const struct ir_op *op, const char *name, const char *words)
{
    const char *given = ir_attr_string(op, name, NULL);
    if (!given) return true;
    size_t len = strlen(given);
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, " ");
        if (n == len && !memcmp(p, given, n)) return true;
        p += n;
        p += *p == ' ';
    }
    return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `%s` is \"%s\", but must be one of: %s",
                      name, given, words);
}

bool infer_ints(struct ir_module *m, const struct ir_op *op, const char *name, int count,
                int64_t lo, int64_t hi, int64_t dflt, int64_t *out)
{
    int n;
    const int64_t *v = ir_attr_ints(op, name, &n);
    if (v && n != count)
        return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `%s` has %d entries, but must have %d",
                          name, n, count);
    for (int i = 0; i < count; i++) {
        out[i] = v ? v[i] : dflt;
        if (out[i] < lo || out[i] > hi)
            return infer_fail(m, op, DIAG_IR_VERIFY,
                              "attribute `%s`[%d] is %lld, but must be in [%lld, %lld]", name, i,
                              (long long)out[i], (long long)lo, (long long)hi);
    }
    return true;
}

bool infer_dims(struct ir_module *m, const struct ir_op *op, const char *name, int count,
                const struct dim **out, int *out_count)
{
    int n;
    const struct dim *const *v = ir_attr_dims(op, name, &n);
    if (!v) n = count < 0 ? 0 : count;
    if (count < 0 ? n > IR_MAX_RANK : n != count)
        return infer_fail(m, op, DIAG_IR_VERIFY,
                          "attribute `%s` has %d entries, but must have %s%d", name, n,
                          count < 0 ? "at most " : "", count < 0 ? IR_MAX_RANK : count);
    for (int i = 0; i < n; i++) {
        out[i] = v ? v[i] : dim_const(m->dims, 0);
        if (out[i]->kind == DIM_OVERFLOW)
            return infer_fail(m, op, DIAG_IR_VERIFY, "attribute `%s`[%d] overflows", name, i);
    }
    if (out_count) *out_count = n;
    return true;
}

/* ---- comparisons ---- */

static void add_check(struct ir_module *m, const struct dim *a, const struct dim *b, bool is_le,
                      const char *text)
{
    for (size_t i = 0; i < m->checks.n; i++) {
        const struct ir_check *c = &m->checks.v[i];
        if (c->is_le == is_le && ((c->a == a && c->b == b) || (!is_le && c->a == b && c->b == a)))
            return;
    }
    struct ir_check c = {a, b, is_le, arena_strdup(&m->arena, text)};
    vec_push(&m->arena, &m->checks, c);
}

/* "what: 5 and n + 1", for messages. */
static void put_pair(struct strbuf *s, const struct ir_loc *loc, const char *what,
                     const struct dim *a, const char *between, const struct dim *b)
{
    if (loc && loc->text[0]) strbuf_printf(s, "%s: ", loc->text);
    strbuf_printf(s, "%s: ", what);
    dim_print(s, a);
    strbuf_puts(s, between);
    dim_print(s, b);
}

bool ir_require_equal(struct ir_module *m, const struct ir_loc *loc, const struct dim *a,
                      const struct dim *b, const char *what)
{
    bool overflow = a->kind == DIM_OVERFLOW || b->kind == DIM_OVERFLOW;
    if (a == b && !overflow) return true;
    /* Made again: since one of them was made, the range of a symbol may have narrowed. */
    a = dim_subst(m->dims, a, NULL, 0);
    b = dim_subst(m->dims, b, NULL, 0);
    if (a == b && !overflow) return true;
    struct strbuf s = {0};
    bool ok = !overflow && !dim_known_ne(m->dims, a, b);
    if (ok) {
        put_pair(&s, loc, what, a, " == ", b);
        add_check(m, a, b, false, strbuf_get(&s));
    } else {
        put_pair(&s, NULL, what, a, " and ", b);
        diag_report(m->diag, DIAG_SHAPE_MISMATCH, loc ? loc->text : NULL, "%s %s", strbuf_get(&s),
                    overflow ? "overflow" : "can never be equal");
    }
    strbuf_deinit(&s);
    return ok;
}

bool infer_eq(struct ir_module *m, const struct ir_op *op, const struct dim *a, const struct dim *b,
              const char *what)
{
    bool overflow = a->kind == DIM_OVERFLOW || b->kind == DIM_OVERFLOW;
    if (!overflow && !dim_known_ne(m->dims, a, b)) return ir_require_equal(m, op->loc, a, b, what);
    struct strbuf s = {0};
    put_pair(&s, NULL, what, a, " and ", b);
    infer_fail(m, op, DIAG_SHAPE_MISMATCH, "%s can never be equal", strbuf_get(&s));
    strbuf_deinit(&s);
    return false;
}

bool infer_le(struct ir_module *m, const struct ir_op *op, const struct dim *a, const struct dim *b,
              const char *what)
{
    if (dim_known_le(m->dims, a, b)) return true;
    bool overflow = a->kind == DIM_OVERFLOW || b->kind == DIM_OVERFLOW;
    bool ok = !overflow && !dim_known_le(m->dims, dim_addc(m->dims, b, 1), a);
    struct strbuf s = {0};
    put_pair(&s, ok ? op->loc : NULL, what, a, " <= ", b);
    if (ok) add_check(m, a, b, true, strbuf_get(&s));
    else infer_fail(m, op, DIAG_SHAPE_MISMATCH, "%s does not hold", strbuf_get(&s));
    strbuf_deinit(&s);
    return ok;
}

/* op may be NULL: then messages name loc alone. */
static bool broadcast(struct ir_module *m, const struct ir_op *op, const struct ir_loc *loc,
                      const struct ir_type *a, const struct ir_type *b, const struct dim **out,
                      int *out_rank)
{
    static const char what[] = "dims of operands that broadcast";
    int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < rank; i++) {
        int ia = i - (rank - a->rank), ib = i - (rank - b->rank);
        const struct dim *da = ia < 0 ? NULL : a->dims[ia], *db = ib < 0 ? NULL : b->dims[ib];
        if (!da || !db || dim_is(da, 1) || dim_is(db, 1)) {
            out[i] = !da || (db && dim_is(da, 1)) ? db : da;
            continue;
        }
        if (op ? !infer_eq(m, op, da, db, what) : !ir_require_equal(m, loc, da, db, what))
            return false;
        out[i] = dim_is_const(db) ? db : da;
    }
    *out_rank = rank;
    return true;
}

bool ir_broadcast_dims(struct ir_module *m, const struct ir_loc *loc, const struct ir_type *a,
                       const struct ir_type *b, const struct dim **out, int *out_rank)
{
    return broadcast(m, NULL, loc, a, b, out, out_rank);
}

bool infer_join(struct ir_module *m, const struct ir_op *op, const struct ir_type *a,
                const struct ir_type *b, const struct dim **out, int *out_rank)
{
    return broadcast(m, op, op->loc, a, b, out, out_rank);
}

/* ---- operands and results ---- */

bool infer_set(struct ir_module *m, struct ir_op *op, int i, enum dtype dtype, int rank,
               const struct dim *const *dims)
{
    if (rank > IR_MAX_RANK)
        return infer_fail(m, op, DIAG_SHAPE_MISMATCH,
                          "the result would have rank %d; at most %d is supported", rank,
                          IR_MAX_RANK);
    for (int k = 0; k < rank; k++) {
        if (dims[k]->kind == DIM_OVERFLOW)
            return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "result dim %d overflows", k);
        if (!infer_le(m, op, dim_const(m->dims, 0), dims[k], "a result dim")) return false;
    }
    op->results[i].type = ir_type_make(m, dtype, rank, dims);
    return true;
}

bool infer_rank(struct ir_module *m, const struct ir_op *op, int operand, int rank)
{
    if (infer_type(op, operand)->rank == rank) return true;
    return infer_fail(m, op, DIAG_SHAPE_MISMATCH, "operand %d must have rank %d", operand, rank);
}

bool infer_dtype(struct ir_module *m, const struct ir_op *op, int operand, enum dtype dtype)
{
    if (infer_type(op, operand)->dtype == dtype) return true;
    return infer_fail(m, op, DIAG_DTYPE_MISMATCH, "operand %d must be %s", operand,
                      dtype_name(dtype));
}

bool infer_class(struct ir_module *m, const struct ir_op *op, int operand, unsigned classes)
{
    enum dtype d = infer_type(op, operand)->dtype;
    if (classes & INFER_NUMBER) classes |= INFER_FLOAT | INFER_INT;
    if ((classes & INFER_FLOAT && dtype_is_float(d)) || (classes & INFER_INT && dtype_is_int(d)) ||
        (classes & INFER_BOOL && d == DT_BOOL))
        return true;
    return infer_fail(m, op, DIAG_DTYPE_UNSUPPORTED, "operand %d must be of a%s%s%s type, not %s",
                      operand, classes & INFER_FLOAT ? " float" : "",
                      classes & INFER_INT ? (classes & INFER_FLOAT ? " or integer" : "n integer")
                                          : "",
                      classes & INFER_BOOL ? " or bool" : "", dtype_name(d));
}
