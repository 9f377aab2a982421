// SPDX-License-Identifier: Apache-2.0
/* Calling: the tables of builtins, binding of arguments to parameters, dispatch by callee. */
#include <string.h>

#include "runtime/text/jinja_builtins.h"
#include "runtime/text/jinja_table.h"

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

static const struct jinja_row filters[] = {
#define FILTER(n, f, s, r) {.name = #n, .fn = jinja_filter_##f, .sig = s, .required = r},
#define LACK(n) {.name = #n},
#include "runtime/text/jinja_filters.def"
#undef LACK
#undef FILTER
};

static const struct jinja_row tests[] = {
#define TEST(n, f, s, r) {.name = n, .fn = jinja_test_##f, .sig = s, .required = r},
#include "runtime/text/jinja_tests.def"
#undef TEST
};

static const struct jinja_row globals[] = {
#define GLOBAL(n, f, s, r) {.name = #n, .fn = jinja_global_##f, .sig = s, .required = r},
#define LACK(n) {.name = #n},
#include "runtime/text/jinja_globals.def"
#undef LACK
#undef GLOBAL
};

enum method_type {
    TYPE_str,
    TYPE_list,
    TYPE_tuple,
    TYPE_dict,
    TYPE_view,
    TYPE_range,
    TYPE_number,
    TYPE_loop,
    TYPE_cycler,
    TYPE_macro,
    TYPE_NONE
};

static const struct {
    enum method_type type;
    struct jinja_row row;
} methods[] = {
#define METHOD(t, n, f, s, r) \
    {TYPE_##t, {.name = #n, .fn = jinja_method_##f, .sig = s, .required = r}},
#define LACK(t, n) {TYPE_##t, {.name = #n}},
#define UNSAFE(t, n) {TYPE_##t, {.name = #n, .unsafe = true}},
#include "runtime/text/jinja_methods.def"
#undef UNSAFE
#undef LACK
#undef METHOD
};

static uint32_t bisect(const struct jinja_row *rows, size_t n, const char *name, size_t len)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2, mid_len = strlen(rows[mid].name);
        int c = memcmp(rows[mid].name, name, mid_len < len ? mid_len : len);

        if (c == 0 && mid_len == len)
            return (uint32_t)mid;
        if (c < 0 || (c == 0 && mid_len < len))
            lo = mid + 1;
        else
            hi = mid;
    }
    return JINJA_NO_ROW;
}

uint32_t jinja_find_filter(const char *name, size_t len_bytes)
{
    return bisect(filters, ROWS(filters), name, len_bytes);
}

uint32_t jinja_find_test(const char *name, size_t len_bytes)
{
    return bisect(tests, ROWS(tests), name, len_bytes);
}

bool jinja_find_global(const char *name, uint32_t len, struct jinja_value *out)
{
    size_t i;

    for (i = 0; i < ROWS(globals); i++)
        if (strlen(globals[i].name) == len && memcmp(globals[i].name, name, len) == 0) {
            *out = (struct jinja_value){.kind = JINJA_FUNC, .id = (uint16_t)i};
            return true;
        }
    return false;
}

static enum method_type type_of(const struct jinja_value *v)
{
    switch (v->kind) {
    case JINJA_STR:
        return TYPE_str;
    case JINJA_LIST:
        return TYPE_list;
    case JINJA_TUPLE:
        return TYPE_tuple;
    case JINJA_DICT:
        return TYPE_dict;
    case JINJA_KEYS:
    case JINJA_VALUES:
    case JINJA_ITEMS:
        return TYPE_view;
    case JINJA_RANGE:
        return TYPE_range;
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_BIGINT:
    case JINJA_FLOAT:
        return TYPE_number;
    case JINJA_LOOP:
        return TYPE_loop;
    case JINJA_CYCLER:
        return TYPE_cycler;
    case JINJA_MACRO:
        return TYPE_macro;
    default:
        return TYPE_NONE;
    }
}

/* What every Python object has; templates only try these to break out. */
static const struct jinja_row dunder = {.name = "__", .unsafe = true};
static const char *const dunders[] = {
    "__class__",    "__delattr__",      "__dict__",    "__dir__",          "__doc__",
    "__eq__",       "__format__",       "__ge__",      "__getattribute__", "__getstate__",
    "__globals__",  "__gt__",           "__hash__",    "__init__",         "__init_subclass__",
    "__le__",       "__lt__",           "__module__",  "__ne__",           "__new__",
    "__reduce__",   "__reduce_ex__",    "__repr__",    "__setattr__",      "__sizeof__",
    "__str__",      "__subclasshook__", "__getitem__", "__len__",          "__iter__",
    "__contains__",
};

const struct jinja_row *jinja_find_method(const struct jinja_value *obj, const char *name,
                                          uint32_t len)
{
    enum method_type type = type_of(obj);
    size_t i;

    if (len > 4 && name[0] == '_' && name[1] == '_') {
        for (i = 0; i < ROWS(dunders); i++)
            if (strlen(dunders[i]) == len && memcmp(dunders[i], name, len) == 0)
                return &dunder;
        return NULL;
    }
    if (type == TYPE_NONE)
        return NULL;
    for (i = 0; i < ROWS(methods); i++)
        if (methods[i].type == type && methods[i].row.name[0] == name[0] &&
            strlen(methods[i].row.name) == len && memcmp(methods[i].row.name, name, len) == 0)
            return &methods[i].row;
    return NULL;
}

/* ---- binding ------------------------------------------------------------------------------- */

/* The position of a name in a parameter list, or -1. */
static int param_index(const char *sig, const struct jinja_value *name)
{
    int index = 0;
    size_t n;

    for (; *sig; sig += n + (sig[n] == ' '), index++) {
        n = strcspn(sig, " ");
        if (n == name->len && memcmp(sig, name->u.s, n) == 0)
            return index;
    }
    return -1;
}

static int param_count(const char *sig)
{
    int n = *sig != 0;

    for (; *sig; sig++)
        n += *sig == ' ';
    return n;
}

static bool bind_args(struct jinja_rt *rt, const char *what, const struct jinja_row *row,
                      const struct jinja_args *args, struct jinja_value arg[JINJA_MAX_PARAMS])
{
    bool positional = row->sig[0] == '/';
    const char *sig = row->sig + positional;
    int count = param_count(sig), at;
    uint32_t i;

    for (i = 0; i < JINJA_MAX_PARAMS; i++)
        arg[i] = (struct jinja_value){.kind = JINJA_MISSING};
    if (args->npos > (uint32_t)count)
        return jinja_fail(rt, JINJA_ERR_TYPE, "%s '%s' takes at most %d arguments (%u given)", what,
                          row->name, count, args->npos);
    for (i = 0; i < args->npos; i++)
        arg[i] = args->pos[i];
    for (i = 0; i < args->nkw; i++) {
        const struct jinja_value *name = &args->kw[i].key;

        at = positional ? -1 : param_index(sig, name);
        if (at < 0)
            return jinja_fail(rt, JINJA_ERR_TYPE,
                              "%s '%s' got an unexpected keyword argument '%.*s'", what, row->name,
                              (int)name->len, name->u.s);
        if (arg[at].kind != JINJA_MISSING)
            return jinja_fail(rt, JINJA_ERR_TYPE, "%s '%s' got multiple values for argument '%.*s'",
                              what, row->name, (int)name->len, name->u.s);
        arg[at] = args->kw[i].value;
    }
    for (i = 0; i < row->required; i++)
        if (arg[i].kind == JINJA_MISSING)
            return jinja_fail(rt, JINJA_ERR_TYPE, "%s '%s' is missing a required argument", what,
                              row->name);
    return true;
}

bool jinja_call_row(struct jinja_rt *rt, const char *what, const struct jinja_row *row,
                    const struct jinja_value *self, const struct jinja_args *args,
                    struct jinja_value *out)
{
    struct jinja_value arg[JINJA_MAX_PARAMS], object = *self, result = jinja_none();

    if (!row->fn)
        return jinja_fail(rt, JINJA_ERR_UNSUPPORTED, "the %s '%s' is not supported", what,
                          row->name);
    if (!jinja_charge(rt, 0))
        return false;
    if (row->sig[0] == '*') {
        if (!row->fn(rt, &object, args, NULL, &result))
            return false;
    } else if (!bind_args(rt, what, row, args, arg) || !row->fn(rt, &object, args, arg, &result)) {
        return false;
    }
    *out = result;
    return true;
}

bool jinja_call(struct jinja_rt *rt, const struct jinja_value *callee,
                const struct jinja_args *args, struct jinja_value *out)
{
    struct jinja_cycler *c;

    switch (callee->kind) {
    case JINJA_MACRO:
        return jinja_macro_call(rt, callee->u.macro, args, out);
    case JINJA_METHOD:
        return jinja_call_row(rt, "method", callee->u.method->row, &callee->u.method->self, args,
                              out);
    case JINJA_FUNC:
        return jinja_call_row(rt, "function", &globals[callee->id], callee, args, out);
    case JINJA_JOINER: /* nothing the first time, then the separator */
        c = callee->u.cycler;
        *out = c->pos++ ? c->items : jinja_str_trusted("", 0);
        return true;
    case JINJA_UNDEFINED:
        return jinja_fail_undefined(rt, callee);
    case JINJA_LOOP:
        return jinja_fail(rt, JINJA_ERR_TYPE,
                          "The loop must have the 'recursive' marker to be called recursively.");
    default:
        return jinja_fail(rt, JINJA_ERR_TYPE, "'%s' object is not callable",
                          jinja_type_name(callee));
    }
}

/* ---- filters and tests by row or name ------------------------------------------------------ */

/* The row number in a blob is a hint: tables may have changed since it was compiled. */
static const struct jinja_row *find_row(const struct jinja_row *rows, size_t n, uint32_t row,
                                        const char *name, uint32_t len)
{
    if (row < n && strlen(rows[row].name) == len && memcmp(rows[row].name, name, len) == 0)
        return &rows[row];
    row = bisect(rows, n, name, len);
    return row == JINJA_NO_ROW ? NULL : &rows[row];
}

bool jinja_apply_filter(struct jinja_rt *rt, uint32_t row, const char *name, uint32_t name_len,
                        const struct jinja_value *v, const struct jinja_args *args,
                        struct jinja_value *out)
{
    const struct jinja_row *r = find_row(filters, ROWS(filters), row, name, name_len);

    if (!r)
        return jinja_fail(rt, JINJA_ERR_SYNTAX, "No filter named '%.*s' found.", (int)name_len,
                          name);
    return jinja_call_row(rt, "filter", r, v, args, out);
}

bool jinja_apply_test(struct jinja_rt *rt, uint32_t row, const char *name, uint32_t name_len,
                      const struct jinja_value *v, const struct jinja_args *args, bool *out)
{
    const struct jinja_row *r = find_row(tests, ROWS(tests), row, name, name_len);
    struct jinja_value result;

    if (!r)
        return jinja_fail(rt, JINJA_ERR_SYNTAX, "No test named '%.*s' found.", (int)name_len, name);
    if (!jinja_call_row(rt, "test", r, v, args, &result))
        return false;
    *out = jinja_truthy(&result);
    return true;
}

bool jinja_arg_int(struct jinja_rt *rt, const struct jinja_value *arg, int64_t missing,
                   int64_t *out)
{
    *out = missing;
    if (arg->kind == JINJA_MISSING || jinja_as_int(arg, out))
        return true;
    if (arg->kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(rt, arg);
    return jinja_fail(rt, JINJA_ERR_TYPE, "'%s' object cannot be interpreted as an integer",
                      jinja_type_name(arg));
}

bool jinja_arg_str(struct jinja_rt *rt, const struct jinja_value *arg, const char *what)
{
    return arg->kind == JINJA_STR ||
           jinja_fail(rt, JINJA_ERR_TYPE, "%s must be str, not %s", what, jinja_type_name(arg));
}
