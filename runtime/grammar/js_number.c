// SPDX-License-Identifier: Apache-2.0
/*
 * Numbers: automata over their decimal text.
 *
 * Every constraint is a small machine that reads digits; the automaton is their product, and it
 * accepts where one of the clauses holds. A value may be written in any way without an exponent,
 * 1.0 for 1; exponents are possible only where any number is. Sizes: a limit has about three states
 * a digit, multipleOf m/10^e has m * (e + 2).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/grammar/js.h"
#include "runtime/text/jinja_number.h"

enum { MAX_MODULUS = 20000, MAX_MACHINES = 400, MAX_DIGITS = 1200 };

/* ---- decimals ---- */

struct js_decimal js_decimal_of(struct js *j, const struct jinja_value *v)
{
    char buf[64];
    const char *s = buf;
    size_t n;
    if (v->kind == JINJA_FLOAT) {
        n = jinja_float_repr(v->u.f, buf);
    } else if (v->kind == JINJA_INT) {
        n = (size_t)snprintf(buf, sizeof buf, "%lld", (long long)v->u.i);
    } else {
        s = v->u.s, n = v->len;
    }
    struct js_decimal d = {.negative = n && s[0] == '-'};
    int64_t point = 0, exponent = 0, n_digits = 0;
    uint8_t *digits = gr_alloc(j->b, n);
    bool fraction = false;
    size_t i = d.negative;
    for (; i < n && s[i] != 'e'; i++) {
        if (s[i] == '.')
            fraction = true;
        else if (s[i] >= '0' && s[i] <= '9')
            digits[n_digits++] = (uint8_t)(s[i] - '0'), point += !fraction;
    }
    if (i < n) exponent = strtol(s + i + 1, NULL, 10);
    point += exponent;
    int64_t lead = 0;
    while (n_digits && !digits[n_digits - 1]) n_digits--;
    while (lead < n_digits && !digits[lead]) lead++;
    n_digits -= lead, point -= lead;
    if (!n_digits) return (struct js_decimal){0};
    if (point > MAX_DIGITS || point < -MAX_DIGITS || n_digits > MAX_DIGITS)
        gr_fail_limit(j->b, "a number has too many digits");
    int64_t n_int = point > 0 ? point : 0, n_frac = n_digits > point ? n_digits - point : 0;
    uint8_t *out = gr_alloc(j->b, (size_t)(n_int + n_frac));
    for (int64_t k = 0; k < n_digits; k++) out[n_int - point + k] = digits[lead + k];
    d.digits = out, d.n_int = (uint32_t)n_int, d.n_frac = (uint32_t)n_frac;
    return d;
}

bool js_decimal_equal(const struct js_decimal *a, const struct js_decimal *b)
{
    uint32_t n = a->n_int + a->n_frac;
    if (a->n_int != b->n_int || a->n_frac != b->n_frac || (n && a->negative != b->negative))
        return false;
    return !n || !memcmp(a->digits, b->digits, n);
}

bool js_decimal_small(const struct js_decimal *d, uint32_t *out)
{
    uint64_t x = 0;
    if (d->n_frac || (d->negative && d->n_int)) return false;
    for (uint32_t i = 0; i < d->n_int; i++) {
        x = x * 10 + d->digits[i];
        if (x > UINT32_MAX / 2) return false;
    }
    *out = (uint32_t)x;
    return true;
}

/* ---- machines ---- */

enum machine_kind { COMPARE, MULTIPLE, INTEGER };

struct machine {
    enum machine_kind kind;
    const struct js_decimal *number;
    uint32_t modulus, places; /* a multiple of modulus / 10^places */
};

/* Where in the number's text: of the whole. */
enum where { BEGIN, SIGN, ZERO, INT, POINT, FRAC };

enum { EQUAL, BELOW, ABOVE };
/* COMPARE's state: how |read| stands to |number|, digits read of this part, any not zero. */
static uint32_t compare_pack(uint32_t rel, uint32_t at, bool nonzero)
{
    return rel | (uint32_t)nonzero << 2 | at << 3;
}
static uint32_t compare_rel(uint32_t s) { return s & 3; }
static bool compare_nonzero(uint32_t s) { return s >> 2 & 1; }
static uint32_t compare_at(uint32_t s) { return s >> 3; }

static uint32_t compare_digit(const struct machine *m, uint32_t s, bool frac, unsigned d)
{
    const struct js_decimal *x = m->number;
    uint32_t rel = compare_rel(s), at = compare_at(s), n = frac ? x->n_frac : x->n_int;
    unsigned have = at < n ? x->digits[(frac ? x->n_int : 0) + at] : 0;
    if (rel == EQUAL && (frac || at < n) && d != have) rel = d < have ? BELOW : ABOVE;
    if (at < n + !frac) at++;
    if (frac && rel != EQUAL) at = 0;
    return compare_pack(rel, at, compare_nonzero(s) || d);
}

/* The integer part is complete. */
static uint32_t compare_point(const struct machine *m, uint32_t s)
{
    uint32_t rel = compare_rel(s), at = compare_at(s);
    if (at != m->number->n_int) rel = at < m->number->n_int ? BELOW : ABOVE;
    return compare_pack(rel, 0, compare_nonzero(s));
}

/* EQUAL, BELOW or ABOVE of the whole number. */
static uint32_t compare_end(const struct machine *m, uint32_t s, bool frac, bool negative)
{
    const struct js_decimal *x = m->number;
    bool zero = !(x->n_int + x->n_frac);
    if (!frac) s = compare_point(m, s);
    if (!compare_nonzero(s)) return zero ? EQUAL : x->negative ? ABOVE : BELOW;
    if (zero || negative != x->negative) return negative ? BELOW : ABOVE;
    uint32_t rel = compare_rel(s);
    if (rel == EQUAL && compare_at(s) < x->n_frac) rel = BELOW;
    if (rel == EQUAL || !negative) return rel;
    return rel == BELOW ? ABOVE : BELOW;
}

/* MULTIPLE's state: remainder, digits behind the point, a digit too far behind it. */
static uint32_t multiple_digit(const struct machine *m, uint32_t s, bool frac, unsigned d)
{
    uint32_t at = s & 63, rest = s >> 7;
    bool bad = s >> 6 & 1;
    if (frac && at == m->places) {
        bad |= d != 0;
    } else {
        rest = (rest * 10 + d) % m->modulus;
        at += frac;
    }
    if (bad) rest = 0;
    return at | (uint32_t)bad << 6 | rest << 7;
}

static bool multiple_end(const struct machine *m, uint32_t s)
{
    uint64_t rest = s >> 7;
    for (uint32_t at = s & 63; at < m->places; at++) rest = rest * 10 % m->modulus;
    return !(s >> 6 & 1) && !rest;
}

static uint32_t machine_digit(const struct machine *m, uint32_t s, bool frac, unsigned d)
{
    switch (m->kind) {
    case COMPARE: return compare_digit(m, s, frac, d);
    case MULTIPLE: return multiple_digit(m, s, frac, d);
    case INTEGER: break;
    }
    return s | (frac && d);
}

/* ---- the product ---- */

struct clause_range {
    const struct js_atoms *atoms;
    const uint32_t *machine; /* of each atom, its first one */
};

struct product {
    struct js *j;
    struct machine *m;
    uint32_t n, cap;
    struct {
        struct clause_range *v;
        uint32_t n, cap;
    } clauses;
    struct gr_list tuples; /* [states][2 + n]: where, sign, machines */
    struct gr_list target, label;
    uint32_t n_states;
    uint32_t *index, index_cap;
};

static uint32_t add_machine(struct product *p, struct machine m)
{
    if (p->n >= MAX_MACHINES) gr_fail_limit(p->j->b, "too many constraints of one number");
    p->m = gr_grow(p->j->b, p->m, p->n, &p->cap, sizeof *p->m);
    p->m[p->n] = m;
    return p->n++;
}

static uint32_t add_atom(struct product *p, const struct js_atom *a)
{
    struct machine m = {COMPARE, &a->number, 0, 0};
    if (a->kind == JS_INTEGER) m.kind = INTEGER;
    if (a->kind == JS_NUMBERS) {
        uint32_t first = p->n;
        for (uint32_t i = 0; i < a->n_numbers; i++) m.number = &a->numbers[i], add_machine(p, m);
        return first;
    }
    if (a->kind == JS_MULTIPLE) {
        uint64_t modulus = 0;
        m.kind = MULTIPLE, m.places = a->number.n_frac;
        for (uint32_t i = 0; i < a->number.n_int + a->number.n_frac && modulus <= MAX_MODULUS; i++)
            modulus = modulus * 10 + a->number.digits[i];
        if (modulus > MAX_MODULUS || m.places > 60)
            js_fail(p->j, a->at, a->keyword, "multipleOf with more than about four digits is not "
                                             "supported");
        m.modulus = (uint32_t)modulus;
    }
    return add_machine(p, m);
}

static bool atom_holds(const struct product *p, const struct js_atom *a, uint32_t first,
                       const uint32_t *t)
{
    bool frac = t[0] >= POINT, negative = t[1], holds = false;
    const uint32_t *s = t + 2;
    uint32_t rel;
    switch (a->kind) {
    case JS_INTEGER: holds = !s[first] && !(a->strict && frac); break;
    case JS_MULTIPLE: holds = multiple_end(&p->m[first], s[first]); break;
    case JS_NUMBERS:
        for (uint32_t i = first; i < first + a->n_numbers && !holds; i++)
            holds = compare_end(&p->m[i], s[i], frac, negative) == EQUAL;
        break;
    default:
        rel = compare_end(&p->m[first], s[first], frac, negative);
        holds = rel == EQUAL ? !a->strict : rel == (a->kind == JS_LEAST ? ABOVE : BELOW);
    }
    return holds != a->opposite;
}

static bool accepts(const struct product *p, const uint32_t *t)
{
    if (t[0] != ZERO && t[0] != INT && t[0] != FRAC) return false;
    for (uint32_t i = 0; i < p->clauses.n; i++) {
        const struct clause_range *c = &p->clauses.v[i];
        bool all = true;
        for (uint32_t k = 0; k < c->atoms->n && all; k++)
            all = atom_holds(p, c->atoms->v[k], c->machine[k], t);
        if (all) return true;
    }
    return false;
}

/* The state of a tuple, + 1. */
static uint32_t intern(struct product *p, const uint32_t *t)
{
    uint32_t width = 2 + p->n;
    uint64_t h = 0;
    for (uint32_t i = 0; i < width; i++) h = (h ^ t[i]) * 0x9e3779b97f4a7c15u;
    uint32_t hash = (uint32_t)gr_mix(h);
    gr_work(p->j->b, width / 4 + 1);
    if (p->n_states * 2 >= p->index_cap) {
        p->index_cap = p->index_cap ? p->index_cap * 2 : 64;
        p->index = gr_alloc(p->j->b, p->index_cap * sizeof *p->index);
        for (uint32_t i = 0; i < p->n_states; i++) {
            uint64_t g = 0;
            for (uint32_t k = 0; k < width; k++)
                g = (g ^ p->tuples.v[(size_t)i * width + k]) * 0x9e3779b97f4a7c15u;
            uint32_t at = (uint32_t)gr_mix(g) & (p->index_cap - 1);
            while (p->index[at]) at = (at + 1) & (p->index_cap - 1);
            p->index[at] = i + 1;
        }
    }
    uint32_t at = hash & (p->index_cap - 1);
    for (; p->index[at]; at = (at + 1) & (p->index_cap - 1))
        if (!memcmp(p->tuples.v + (size_t)(p->index[at] - 1) * width, t, width * sizeof *t))
            return p->index[at];
    for (uint32_t i = 0; i < width; i++) GR_PUSH(p->j->b, &p->tuples, t[i]);
    p->index[at] = ++p->n_states;
    if (p->n_states > p->j->b->o.max_states) gr_fail_limit(p->j->b, "a number's limits");
    return p->n_states;
}

/* Columns: 0 digit 0 .. 9 digit 9, 10 '-', 11 '.'; the last column is every other byte. */
enum { MINUS = 10, DOT = 11, OTHER = 12, N_COLS = 13 };

static bool step(const struct product *p, uint32_t *t, unsigned col)
{
    enum where w = (enum where)t[0];
    if (col == MINUS) {
        t[0] = SIGN, t[1] = 1;
        return w == BEGIN;
    }
    if (col == DOT) {
        if (w != ZERO && w != INT) return false;
        for (uint32_t i = 0; i < p->n; i++)
            if (p->m[i].kind == COMPARE) t[2 + i] = compare_point(&p->m[i], t[2 + i]);
        t[0] = POINT;
        return true;
    }
    if (col == OTHER || w == ZERO) return false;
    if (w == BEGIN || w == SIGN) {
        t[0] = col ? INT : ZERO;
        if (!col) return true; /* a zero alone is no digit */
    } else if (w == POINT) {
        t[0] = FRAC;
    }
    for (uint32_t i = 0; i < p->n; i++)
        t[2 + i] = machine_digit(&p->m[i], t[2 + i], t[0] == FRAC, col);
    return true;
}

static uint32_t build(struct product *p)
{
    uint8_t class_of[256];
    uint32_t width = 2 + p->n, n;
    uint32_t *t = gr_alloc(p->j->b, width * sizeof *t);
    memset(class_of, OTHER, sizeof class_of);
    for (unsigned i = 0; i < 10; i++) class_of['0' + i] = (uint8_t)i;
    class_of['-'] = MINUS, class_of['.'] = DOT;
    intern(p, t);
    for (uint32_t i = 0; i < p->n_states; i++) {
        memcpy(t, p->tuples.v + (size_t)i * width, width * sizeof *t);
        GR_PUSH(p->j->b, &p->label, accepts(p, t));
        for (unsigned c = 0; c < N_COLS; c++) {
            memcpy(t, p->tuples.v + (size_t)i * width, width * sizeof *t);
            uint32_t to = step(p, t, c) ? intern(p, t) : 0;
            GR_PUSH(p->j->b, &p->target, to);
        }
    }
    return gr_fsa_table(p->j->b, p->n_states, class_of, N_COLS, p->target.v, p->label.v, &n);
}

/* Any number as JSON has it, with exponents that a double can have: of 1e999 most readers make an infinity, others an
 * error. */
static uint32_t any_number(struct js *j)
{
    static const char text[] =
        "-?(?:(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?"
        "|(?:0|[1-9][0-9]{0,40})(?:\\.[0-9]+)?[eE](?:-[0-9]+|\\+?(?:[0-9]{1,2}|1[0-9]{2}|2[0-5][0-9]))"
        "|[0-9](?:\\.[0-9]+)?[eE]\\+?(?:2[6-9][0-9]|30[0-7])|1(?:\\.(?:[0-6][0-9]*|7976931348623157))?[eE]\\+?308)";
    struct gr_nfa a = {0};
    uint32_t n;
    if (j->any_number) return j->any_number;
    struct gr_node *tree =
        gr_regex_parse(j->b, text, sizeof text - 1, 0, (struct gr_regex_flags){0});
    uint32_t end = gr_nfa_add(j->b, &a, (struct gr_nfa_state){.kind = GR_NFA_ACCEPT});
    uint32_t start = gr_nfa_emit(j->b, &a, tree, end);
    return j->any_number = gr_fsa_build(j->b, &a, &start, 1, gr_label_any, NULL, &n);
}

void js_make_number(struct js *j, const struct js_clauses *c, struct gr_value *v)
{
    struct product p = {.j = j};
    struct js_atoms all = {0};
    for (uint32_t i = 0; i < c->n; i++) {
        struct js_atoms *a = gr_alloc(j->b, sizeof *a);
        if (!(c->v[i].types & JS_NUMBER)) continue;
        *a = js_atoms_of(j, &c->v[i], JS_INTEGER, JS_NUMBERS);
        if (!a->n) {
            v->number = any_number(j);
            return;
        }
        uint32_t *first = gr_alloc(j->b, a->n * sizeof *first);
        for (uint32_t k = 0; k < a->n; k++) {
            GR_PUSH(j->b, &all, a->v[k]);
            first[k] = add_atom(&p, a->v[k]);
        }
        GR_PUSH(j->b, &all, NULL);
        struct clause_range r = {a, first};
        GR_PUSH(j->b, &p.clauses, r);
    }
    if (!p.clauses.n) return;
    for (uint32_t i = 0; i < j->numbers.n; i++) {
        const struct js_made *m = &j->numbers.v[i];
        if (m->n == all.n && !memcmp(m->atoms, all.v, all.n * sizeof *all.v)) {
            v->number = m->number;
            return;
        }
    }
    v->number = build(&p);
    struct js_made made = {all.v, all.n, v->number};
    GR_PUSH(j->b, &j->numbers, made);
}
