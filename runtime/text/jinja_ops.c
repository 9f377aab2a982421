// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE /* memmem */
/* Operators on values with Python's meaning: truth, equality, order, membership, arithmetic. */
#include <math.h>
#include <string.h>

#include "runtime/text/jinja_format.h"
#include "runtime/text/jinja_rt.h"
#include "runtime/text/jinja_unicode.h"

const char *jinja_type_name(const struct jinja_value *v)
{
    static const char *const names[JINJA_KIND_COUNT] = {
        [JINJA_MISSING] = "missing",
        [JINJA_UNDEFINED] = "Undefined",
        [JINJA_NONE] = "NoneType",
        [JINJA_BOOL] = "bool",
        [JINJA_INT] = "int",
        [JINJA_BIGINT] = "int",
        [JINJA_FLOAT] = "float",
        [JINJA_STR] = "str",
        [JINJA_LIST] = "list",
        [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",
        [JINJA_KEYS] = "dict_keys",
        [JINJA_VALUES] = "dict_values",
        [JINJA_ITEMS] = "dict_items",
        [JINJA_GEN] = "generator",
        [JINJA_RANGE] = "range",
        [JINJA_NAMESPACE] = "Namespace",
        [JINJA_MACRO] = "Macro",
        [JINJA_METHOD] = "builtin_function_or_method",
        [JINJA_FUNC] = "function",
        [JINJA_LOOP] = "LoopContext",
        [JINJA_CYCLER] = "Cycler",
        [JINJA_JOINER] = "Joiner",
    };

    return v->kind < JINJA_KIND_COUNT ? names[v->kind] : "object";
}

bool jinja_truthy(const struct jinja_value *v)
{
    switch (v->kind) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v->u.b;
    case JINJA_INT:
        return v->u.i != 0;
    case JINJA_FLOAT:
        return v->u.f != 0;
    case JINJA_STR:
        return v->len != 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_KEYS:
    case JINJA_VALUES:
    case JINJA_ITEMS:
        return v->u.list->count != 0;
    case JINJA_DICT:
        return v->u.dict->count != 0;
    case JINJA_RANGE:
        return v->u.range->count != 0;
    default:
        return true;
    }
}

bool jinja_as_int(const struct jinja_value *v, int64_t *out)
{
    if (v->kind == JINJA_BOOL)
        *out = v->u.b;
    else if (v->kind == JINJA_INT)
        *out = v->u.i;
    else
        return false;
    return true;
}

bool jinja_is_number(const struct jinja_value *v)
{
    return v->kind == JINJA_BOOL || v->kind == JINJA_INT || v->kind == JINJA_FLOAT;
}

double jinja_as_double(const struct jinja_value *v)
{
    return v->kind == JINJA_FLOAT  ? v->u.f
           : v->kind == JINJA_BOOL ? (double)v->u.b
                                   : (double)v->u.i;
}

/* ---- equality and order -------------------------------------------------------------------- */

static bool is_sequence(const struct jinja_value *v)
{
    return v->kind == JINJA_LIST || v->kind == JINJA_TUPLE;
}

static bool equal_lists(struct jinja_rt *rt, const struct jinja_list *a, const struct jinja_list *b,
                        bool *out)
{
    uint32_t i;

    *out = a->count == b->count;
    for (i = 0; *out && i < a->count; i++)
        if (!jinja_equal(rt, &a->items[i], &b->items[i], out))
            return false;
    return true;
}

static bool equal_dicts(struct jinja_rt *rt, const struct jinja_dict *a, const struct jinja_dict *b,
                        bool *out)
{
    uint32_t i;

    *out = a->count == b->count;
    for (i = 0; *out && i < a->count; i++) {
        const struct jinja_value *other = jinja_dict_find(b, &a->pairs[i].key);

        *out = other != NULL;
        if (other && !jinja_equal(rt, &a->pairs[i].value, other, out))
            return false;
    }
    return true;
}

static bool equal_same_kind(struct jinja_rt *rt, const struct jinja_value *a,
                            const struct jinja_value *b, bool *out)
{
    switch (a->kind) {
    case JINJA_STR:
    case JINJA_BIGINT:
        *out = a->len == b->len && (!a->len || memcmp(a->u.s, b->u.s, a->len) == 0);
        return jinja_charge(rt, *out ? a->len : 0);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_KEYS: /* sets in Python: templates compare views of one dict at most */
    case JINJA_ITEMS:
        return equal_lists(rt, a->u.list, b->u.list, out);
    case JINJA_DICT:
        return equal_dicts(rt, a->u.dict, b->u.dict, out);
    case JINJA_RANGE:
        *out = a->u.range->count == b->u.range->count &&
               (!a->u.range->count ||
                (a->u.range->start == b->u.range->start &&
                 (a->u.range->count == 1 || a->u.range->step == b->u.range->step)));
        return true;
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        *out = true;
        return true;
    case JINJA_FUNC:
        *out = a->id == b->id;
        return true;
    default: /* identity */
        *out = a->u.list == b->u.list;
        return true;
    }
}

bool jinja_equal(struct jinja_rt *rt, const struct jinja_value *a, const struct jinja_value *b,
                 bool *out)
{
    bool ok = jinja_enter(rt);

    if (ok) {
        if (jinja_is_number(a) && jinja_is_number(b))
            *out = jinja_key_equal(a, b);
        else if (a->kind != b->kind)
            *out = false;
        else
            ok = equal_same_kind(rt, a, b, out);
    }
    jinja_leave(rt);
    return ok;
}

/* -1, 0 or 1; 2 when one is NaN. */
static int order_numbers(const struct jinja_value *a, const struct jinja_value *b)
{
    int64_t x, y;
    long double f, g; /* 64 bits of mantissa or more on the hosts we build for: exact for int64 */

    if (jinja_as_int(a, &x) && jinja_as_int(b, &y))
        return x < y ? -1 : x > y;
    f = a->kind == JINJA_FLOAT ? (long double)a->u.f : (jinja_as_int(a, &x), (long double)x);
    g = b->kind == JINJA_FLOAT ? (long double)b->u.f : (jinja_as_int(b, &y), (long double)y);
    return f < g ? -1 : f > g ? 1 : f == g ? 0 : 2;
}

static int order_strings(const struct jinja_value *a, const struct jinja_value *b)
{
    uint32_t n = a->len < b->len ? a->len : b->len;
    int c = n ? memcmp(a->u.s, b->u.s, n) : 0;

    if (c)
        return c < 0 ? -1 : 1;
    return a->len < b->len ? -1 : a->len > b->len;
}

static const char *cmp_text(enum jinja_cmp op)
{
    static const char *const text[JINJA_CMP_COUNT] = {
        "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

    return text[op];
}

static bool order_holds(enum jinja_cmp op, int order)
{
    if (order == 2)
        return false;
    switch (op) {
    case JINJA_CMP_LT:
        return order < 0;
    case JINJA_CMP_LE:
        return order <= 0;
    case JINJA_CMP_GT:
        return order > 0;
    default:
        return order >= 0;
    }
}

static bool order_lists(struct jinja_rt *rt, enum jinja_cmp op, const struct jinja_list *a,
                        const struct jinja_list *b, bool *out)
{
    uint32_t i, n = a->count < b->count ? a->count : b->count;
    bool same;

    for (i = 0; i < n; i++) {
        if (!jinja_equal(rt, &a->items[i], &b->items[i], &same))
            return false;
        if (!same)
            return jinja_compare(rt, op, &a->items[i], &b->items[i], out);
    }
    *out = order_holds(op, a->count < b->count ? -1 : a->count > b->count);
    return true;
}

static bool order(struct jinja_rt *rt, enum jinja_cmp op, const struct jinja_value *a,
                  const struct jinja_value *b, bool *out)
{
    if (a->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, a);
    if (b->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, b);
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *out = order_holds(op, order_numbers(a, b));
        return true;
    }
    if (a->kind == JINJA_STR && b->kind == JINJA_STR) {
        *out = order_holds(op, order_strings(a, b));
        return jinja_charge(rt, a->len);
    }
    if (a->kind == JINJA_BIGINT || b->kind == JINJA_BIGINT)
        return jinja_fail(rt, JINJA_ERR_UNSUPPORTED, "integer does not fit 64 bits");
    if (is_sequence(a) && a->kind == b->kind)
        return order_lists(rt, op, a->u.list, b->u.list, out);
    return jinja_fail(rt, JINJA_ERR_TYPE, "'%s' not supported between instances of '%s' and '%s'",
                      cmp_text(op), jinja_type_name(a), jinja_type_name(b));
}

bool jinja_compare(struct jinja_rt *rt, enum jinja_cmp op, const struct jinja_value *a,
                   const struct jinja_value *b, bool *out)
{
    bool ok = jinja_enter(rt);

    if (ok) {
        switch (op) {
        case JINJA_CMP_EQ:
            ok = jinja_equal(rt, a, b, out);
            break;
        case JINJA_CMP_NE:
            ok = jinja_equal(rt, a, b, out);
            *out = !*out;
            break;
        case JINJA_CMP_IN:
            ok = jinja_contains(rt, a, b, out);
            break;
        case JINJA_CMP_NOTIN:
            ok = jinja_contains(rt, a, b, out);
            *out = !*out;
            break;
        default:
            ok = order(rt, op, a, b, out);
        }
    }
    jinja_leave(rt);
    return ok;
}

static bool range_has(const struct jinja_range *r, const struct jinja_value *item)
{
    int64_t n;

    if (item->kind == JINJA_FLOAT && item->u.f == floor(item->u.f) && fabs(item->u.f) < 1e18)
        n = (int64_t)item->u.f;
    else if (!jinja_as_int(item, &n))
        return false;
    if (!r->count)
        return false;
    return r->step > 0 ? n >= r->start && n < r->stop && (n - r->start) % r->step == 0
                       : n <= r->start && n > r->stop && (r->start - n) % -r->step == 0;
}

bool jinja_contains(struct jinja_rt *rt, const struct jinja_value *item,
                    const struct jinja_value *container, bool *out)
{
    struct jinja_list *list;
    uint32_t i;
    bool hashable;

    *out = false;
    switch (container->kind) {
    case JINJA_STR:
        if (item->kind != JINJA_STR)
            return jinja_fail(rt, JINJA_ERR_TYPE,
                              "'in <string>' requires string as left operand, not %s",
                              jinja_type_name(item));
        *out = memmem(container->u.s, container->len, item->u.s, item->len) != NULL;
        return jinja_charge(rt, (size_t)container->len * JINJA_COST_SEARCH);
    case JINJA_DICT:
        if (!jinja_check_key(rt, item, &hashable))
            return false;
        if (!hashable)
            return jinja_fail(rt, JINJA_ERR_TYPE, "unhashable type: '%s'", jinja_type_name(item));
        *out = jinja_dict_find(container->u.dict, item) != NULL;
        return true;
    case JINJA_RANGE:
        *out = range_has(container->u.range, item);
        return true;
    default:
        if (!jinja_iterable(container))
            return jinja_fail(rt, JINJA_ERR_TYPE, "argument of type '%s' is not iterable",
                              jinja_type_name(container));
        if (!jinja_items(rt, container, &list))
            return false;
        for (i = 0; !*out && i < list->count; i++)
            if (!jinja_equal(rt, item, &list->items[i], out))
                return false;
        return true;
    }
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

static bool overflow(struct jinja_rt *rt)
{
    return jinja_fail(rt, JINJA_ERR_UNSUPPORTED, "integer result does not fit 64 bits");
}

static const char *op_text(enum jinja_node_kind op)
{
    switch (op) {
    case JN_ADD:
        return "+";
    case JN_SUB:
        return "-";
    case JN_MUL:
        return "*";
    case JN_DIV:
        return "/";
    case JN_FLOORDIV:
        return "//";
    case JN_MOD:
        return "%";
    default:
        return "** or pow()";
    }
}

static bool bad_operands(struct jinja_rt *rt, enum jinja_node_kind op, const struct jinja_value *a,
                         const struct jinja_value *b)
{
    if (a->kind == JINJA_BIGINT || b->kind == JINJA_BIGINT)
        return overflow(rt);
    if (op == JN_ADD && a->kind == JINJA_STR)
        return jinja_fail(rt, JINJA_ERR_TYPE, "can only concatenate str (not \"%s\") to str",
                          jinja_type_name(b));
    if (op == JN_ADD && is_sequence(a))
        return jinja_fail(rt, JINJA_ERR_TYPE, "can only concatenate %s (not \"%s\") to %s",
                          jinja_type_name(a), jinja_type_name(b), jinja_type_name(a));
    return jinja_fail(rt, JINJA_ERR_TYPE, "unsupported operand type(s) for %s: '%s' and '%s'",
                      op_text(op), jinja_type_name(a), jinja_type_name(b));
}

static bool int_pow(struct jinja_rt *rt, int64_t base, int64_t exp, struct jinja_value *out)
{
    int64_t r = 1;

    if (exp < 0) {
        if (base == 0)
            return jinja_fail(rt, JINJA_ERR_TYPE, "0.0 cannot be raised to a negative power");
        *out = jinja_float(pow((double)base, (double)exp));
        return true;
    }
    while (exp) {
        if ((exp & 1) && __builtin_mul_overflow(r, base, &r))
            return overflow(rt);
        exp >>= 1;
        if (exp && __builtin_mul_overflow(base, base, &base))
            return overflow(rt);
    }
    *out = jinja_int(r);
    return true;
}

static bool int_op(struct jinja_rt *rt, enum jinja_node_kind op, int64_t a, int64_t b,
                   struct jinja_value *out)
{
    int64_t r = 0;
    bool over = false;

    if ((op == JN_DIV || op == JN_FLOORDIV || op == JN_MOD) && b == 0)
        return jinja_fail(rt, JINJA_ERR_TYPE,
                          op == JN_DIV ? "division by zero" : "integer division or modulo by zero");
    switch (op) {
    case JN_ADD:
        over = __builtin_add_overflow(a, b, &r);
        break;
    case JN_SUB:
        over = __builtin_sub_overflow(a, b, &r);
        break;
    case JN_MUL:
        over = __builtin_mul_overflow(a, b, &r);
        break;
    case JN_DIV:
        *out = jinja_float((double)a / (double)b);
        return true;
    case JN_FLOORDIV:
        if (b == -1) {
            over = __builtin_sub_overflow((int64_t)0, a, &r);
        } else {
            r = a / b;
            r -= a % b != 0 && (a < 0) != (b < 0);
        }
        break;
    case JN_MOD:
        r = b == -1 ? 0 : a % b;
        if (r && (r < 0) != (b < 0))
            r += b;
        break;
    default:
        return int_pow(rt, a, b, out);
    }
    if (over)
        return overflow(rt);
    *out = jinja_int(r);
    return true;
}

static bool float_op(struct jinja_rt *rt, enum jinja_node_kind op, double a, double b,
                     struct jinja_value *out)
{
    double r;

    if ((op == JN_DIV || op == JN_FLOORDIV || op == JN_MOD) && b == 0)
        return jinja_fail(rt, JINJA_ERR_TYPE,
                          op == JN_DIV ? "float division by zero"
                                       : "float floor division or modulo by zero");
    switch (op) {
    case JN_ADD:
        r = a + b;
        break;
    case JN_SUB:
        r = a - b;
        break;
    case JN_MUL:
        r = a * b;
        break;
    case JN_DIV:
        r = a / b;
        break;
    case JN_FLOORDIV:
    case JN_MOD: {
        double mod = fmod(a, b), div = (a - mod) / b, fl;

        if (mod != 0 && (b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        } else if (mod == 0) {
            mod = copysign(0, b);
        }
        fl = div == 0 ? copysign(0, a / b) : floor(div);
        if (div - fl > 0.5)
            fl += 1;
        r = op == JN_MOD ? mod : fl;
        break;
    }
    default:
        if (a == 0 && b < 0)
            return jinja_fail(rt, JINJA_ERR_TYPE, "0.0 cannot be raised to a negative power");
        r = pow(a, b);
        if (isnan(r) && !isnan(a) && !isnan(b))
            return jinja_fail(rt, JINJA_ERR_UNSUPPORTED, "complex numbers are not supported");
        if (isinf(r) && !isinf(a) && !isinf(b))
            return jinja_fail(rt, JINJA_ERR_TYPE, "Numerical result out of range");
    }
    *out = jinja_float(r);
    return true;
}

bool jinja_concat(struct jinja_rt *rt, const struct jinja_value *a, const struct jinja_value *b,
                  struct jinja_value *out)
{
    struct jinja_value x = *a, y = *b;
    unsigned markup = (a->flags | b->flags) & JINJA_F_MARKUP;

    if (markup && (!jinja_escape(rt, a, &x) || !jinja_escape(rt, b, &y)))
        return false;
    if (!x.len || !y.len) {
        *out = x.len ? x : y;
        return true;
    }
    if (y.len > UINT32_MAX / 2 || x.len > UINT32_MAX / 2 - y.len)
        return jinja_fail(rt, JINJA_ERR_LIMIT, "string too long");
    x.u.s = jinja_grow(rt, x.u.s, x.len, y.u.s, y.len, 1);
    if (!x.u.s)
        return false;
    x.len += y.len;
    x.flags = (uint8_t)((x.flags & y.flags & JINJA_F_ASCII) | markup);
    *out = x;
    return true;
}

static bool join_lists(struct jinja_rt *rt, const struct jinja_value *a,
                       const struct jinja_value *b, struct jinja_value *out)
{
    const struct jinja_list *x = a->u.list, *y = b->u.list;
    struct jinja_value joined;

    if (!jinja_make_list(rt, 0, &joined))
        return false;
    joined.kind = a->kind;
    if (x->count > UINT32_MAX / 64 - y->count)
        return jinja_fail(rt, JINJA_ERR_LIMIT, "list too long");
    joined.u.list->count = joined.u.list->cap = x->count + y->count;
    joined.u.list->items = jinja_grow(rt, x->items, x->count * sizeof(*x->items), y->items,
                                      y->count * sizeof(*y->items), 8);
    *out = joined;
    return joined.u.list->items != NULL;
}

static bool repeat(struct jinja_rt *rt, const struct jinja_value *v, int64_t times,
                   struct jinja_value *out)
{
    struct jinja_sb sb = {.rt = rt};
    size_t n = times > 0 ? (size_t)times : 0, i;
    uint32_t k;

    if (v->kind == JINJA_STR) {
        if (!jinja_sb_pad(&sb, v->u.s, v->len, v->len ? n : 0))
            return false;
        *out = jinja_sb_finish(&sb, v->flags & JINJA_F_MARKUP);
        return true;
    }
    if (v->u.list->count == 0)
        n = 0;
    if (n > rt->lim.max_memory_bytes / sizeof(*v) ||
        n * v->u.list->count > rt->lim.max_memory_bytes / sizeof(*v))
        return jinja_fail(rt, JINJA_ERR_LIMIT, "template uses more than %zu bytes of memory",
                          rt->lim.max_memory_bytes);
    if (!jinja_charge(rt, n * v->u.list->count * sizeof(*v)) ||
        !jinja_make_list(rt, (uint32_t)(n * v->u.list->count), out))
        return false;
    for (i = 0; i < n; i++)
        for (k = 0; k < v->u.list->count; k++)
            if (!jinja_push(rt, out->u.list, &v->u.list->items[k]))
                return false;
    out->kind = v->kind;
    return true;
}

bool jinja_binary(struct jinja_rt *rt, enum jinja_node_kind op, const struct jinja_value *a,
                  const struct jinja_value *b, struct jinja_value *out)
{
    int64_t x, y;

    if (op == JN_MOD && a->kind == JINJA_STR)
        return jinja_format_percent(rt, a, b, out);
    if (a->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, a);
    if (b->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, b);
    if (jinja_as_int(a, &x) && jinja_as_int(b, &y))
        return int_op(rt, op, x, y, out);
    if (jinja_is_number(a) && jinja_is_number(b))
        return float_op(rt, op, jinja_as_double(a), jinja_as_double(b), out);
    if (op == JN_ADD && a->kind == JINJA_STR && b->kind == JINJA_STR)
        return jinja_concat(rt, a, b, out);
    if (op == JN_ADD && is_sequence(a) && a->kind == b->kind)
        return join_lists(rt, a, b, out);
    if (op == JN_MUL && (a->kind == JINJA_STR || is_sequence(a)) && jinja_as_int(b, &y))
        return repeat(rt, a, y, out);
    if (op == JN_MUL && (b->kind == JINJA_STR || is_sequence(b)) && jinja_as_int(a, &x))
        return repeat(rt, b, x, out);
    return bad_operands(rt, op, a, b);
}

bool jinja_negate(struct jinja_rt *rt, const struct jinja_value *v, bool positive,
                  struct jinja_value *out)
{
    int64_t n;

    if (v->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, v);
    if (v->kind == JINJA_FLOAT) {
        *out = jinja_float(positive ? v->u.f : -v->u.f);
        return true;
    }
    if (v->kind == JINJA_BIGINT)
        return overflow(rt);
    if (!jinja_as_int(v, &n))
        return jinja_fail(rt, JINJA_ERR_TYPE, "bad operand type for unary %c: '%s'",
                          positive ? '+' : '-', jinja_type_name(v));
    if (!positive && __builtin_sub_overflow((int64_t)0, n, &n))
        return overflow(rt);
    *out = jinja_int(n);
    return true;
}

/* ---- sorting ------------------------------------------------------------------------------- */

static bool merge(struct jinja_rt *rt, struct jinja_value *const from[2],
                  struct jinja_value *const to[2], uint32_t lo, uint32_t mid, uint32_t hi,
                  bool reverse)
{
    uint32_t i = lo, j = mid, w;
    bool take_right;

    for (w = lo; w < hi; w++) {
        take_right = i >= mid;
        /* Strictly less only, so equal keys keep their order; reversed, strictly greater. */
        if (i < mid && j < hi &&
            !jinja_compare(rt, reverse ? JINJA_CMP_GT : JINJA_CMP_LT, &from[1][j], &from[1][i],
                           &take_right))
            return false;
        if (take_right) {
            to[0][w] = from[0][j];
            to[1][w] = from[1][j++];
        } else {
            to[0][w] = from[0][i];
            to[1][w] = from[1][i++];
        }
    }
    return true;
}

bool jinja_sort(struct jinja_rt *rt, struct jinja_value *items, struct jinja_value *keys,
                uint32_t n, bool reverse)
{
    struct jinja_value *a[2] = {items, keys}, *b[2], *t[2];
    uint32_t width, lo, mid, hi, i;

    if (n < 2)
        return true;
    b[0] = jinja_alloc(rt, n * sizeof(*items));
    b[1] = jinja_alloc(rt, n * sizeof(*items));
    if (!b[0] || !b[1])
        return false;
    for (width = 1; width < n; width *= 2) {
        for (lo = 0; lo < n; lo = hi) {
            mid = n - lo > width ? lo + width : n;
            hi = n - mid > width ? mid + width : n;
            if (!merge(rt, a, b, lo, mid, hi, reverse))
                return false;
        }
        memcpy(t, a, sizeof(t));
        memcpy(a, b, sizeof(a));
        memcpy(b, t, sizeof(b));
    }
    for (i = 0; a[0] != items && i < n; i++) {
        items[i] = a[0][i];
        keys[i] = a[1][i];
    }
    return true;
}
