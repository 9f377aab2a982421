// SPDX-License-Identifier: Apache-2.0
/* The tests that stand behind `is`. */
#include "runtime/text/jinja_builtins.h"
#include "runtime/text/jinja_table.h"

#define TEST(name) bool jinja_test_##name(JINJA_PARAMS)

/* A test that only looks at its value. */
#define KIND_TEST(name, condition)    \
    TEST(name)                        \
    {                                 \
        JINJA_UNUSED;                 \
        *out = jinja_bool(condition); \
        return true;                  \
    }

KIND_TEST(defined, self->kind != JINJA_UNDEFINED)
KIND_TEST(undefined, self->kind == JINJA_UNDEFINED)
KIND_TEST(none, self->kind == JINJA_NONE)
KIND_TEST(boolean, self->kind == JINJA_BOOL)
KIND_TEST(is_true, self->kind == JINJA_BOOL && self->u.b)
KIND_TEST(is_false, self->kind == JINJA_BOOL && !self->u.b)
KIND_TEST(integer, self->kind == JINJA_INT || self->kind == JINJA_BIGINT)
KIND_TEST(float, self->kind == JINJA_FLOAT)
KIND_TEST(number, jinja_is_number(self) ||
                      self->kind == JINJA_BIGINT) /* bool too: it is an int in Python */
KIND_TEST(string, self->kind == JINJA_STR)
KIND_TEST(mapping, self->kind == JINJA_DICT)
KIND_TEST(iterable, jinja_iterable(self) || self->kind == JINJA_LOOP)
KIND_TEST(escaped, self->kind == JINJA_STR && (self->flags & JINJA_F_MARKUP))
KIND_TEST(callable, self->kind == JINJA_MACRO || self->kind == JINJA_METHOD ||
                        self->kind == JINJA_FUNC || self->kind == JINJA_JOINER ||
                        self->kind == JINJA_LOOP || self->kind == JINJA_UNDEFINED)

/* Has a length and items: also dicts and undefined values, not dict views. */
KIND_TEST(sequence, self->kind == JINJA_STR || self->kind == JINJA_LIST ||
                        self->kind == JINJA_TUPLE || self->kind == JINJA_DICT ||
                        self->kind == JINJA_RANGE || self->kind == JINJA_UNDEFINED)

KIND_TEST(filter,
          self->kind == JINJA_STR && jinja_find_filter(self->u.s, self->len) != JINJA_NO_ROW)
KIND_TEST(test, self->kind == JINJA_STR && jinja_find_test(self->u.s, self->len) != JINJA_NO_ROW)

static bool remainder_is(struct jinja_rt *rt, const struct jinja_value *v,
                         const struct jinja_value *by, int64_t wanted, struct jinja_value *out)
{
    struct jinja_value rest, want = jinja_int(wanted);
    bool same;

    if (!jinja_binary(rt, JN_MOD, v, by, &rest) || !jinja_equal(rt, &rest, &want, &same))
        return false;
    *out = jinja_bool(same);
    return true;
}

TEST(odd)
{
    struct jinja_value two = jinja_int(2);

    JINJA_UNUSED;
    return remainder_is(rt, self, &two, 1, out);
}

TEST(even)
{
    struct jinja_value two = jinja_int(2);

    JINJA_UNUSED;
    return remainder_is(rt, self, &two, 0, out);
}

TEST(divisibleby)
{
    JINJA_UNUSED;
    return remainder_is(rt, self, &arg[0], 0, out);
}

static bool case_test(struct jinja_rt *rt, const struct jinja_value *self, bool upper,
                      struct jinja_value *out)
{
    struct jinja_value s;

    if (!jinja_to_str(rt, self, &s))
        return false;
    *out = jinja_bool(jinja_is_all_case(&s, upper));
    return jinja_charge(rt, (size_t)s.len * JINJA_COST_CHAR);
}

TEST(lower)
{
    JINJA_UNUSED;
    return case_test(rt, self, false, out);
}

TEST(upper)
{
    JINJA_UNUSED;
    return case_test(rt, self, true, out);
}

/* Python's `is`: the same object. Small values are one object as far as templates can tell. */
TEST(sameas)
{
    const struct jinja_value *o = &arg[0];
    bool same = self->kind == o->kind;

    JINJA_UNUSED;
    if (same) {
        switch (self->kind) {
        case JINJA_NONE:
            break;
        case JINJA_BOOL:
            same = self->u.b == o->u.b;
            break;
        case JINJA_INT:
            same = self->u.i == o->u.i;
            break;
        case JINJA_STR:
        case JINJA_UNDEFINED:
            same = self->u.s == o->u.s && self->len == o->len;
            break;
        default:
            same = self->u.list == o->u.list;
        }
    }
    *out = jinja_bool(same);
    return true;
}

static bool compare(struct jinja_rt *rt, enum jinja_cmp op, const struct jinja_value *a,
                    const struct jinja_value *b, struct jinja_value *out)
{
    bool holds;

    if (!jinja_compare(rt, op, a, b, &holds))
        return false;
    *out = jinja_bool(holds);
    return true;
}

#define COMPARE_TEST(name, op)                      \
    TEST(name)                                      \
    {                                               \
        JINJA_UNUSED;                               \
        return compare(rt, op, self, &arg[0], out); \
    }
COMPARE_TEST(eq, JINJA_CMP_EQ)
COMPARE_TEST(ne, JINJA_CMP_NE)
COMPARE_TEST(lt, JINJA_CMP_LT)
COMPARE_TEST(le, JINJA_CMP_LE)
COMPARE_TEST(gt, JINJA_CMP_GT)
COMPARE_TEST(ge, JINJA_CMP_GE)
COMPARE_TEST(in, JINJA_CMP_IN)
