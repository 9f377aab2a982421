// SPDX-License-Identifier: Apache-2.0
#include "compiler/shapes.h"

#define MAX_ROUNDS 64       /* one symbol is changed in each */
#define FINE_VALUES 512     /* tried one by one; then in steps of 16 and, from 4,096 on, of powers of two */
#define MAX_VALUE 65536
#define MAX_EVALUATIONS 5000000 /* about a second */
#define MAX_FITS 8          /* values of one symbol that satisfy the check at hand and are tried against the others */

struct search {
    const struct ir_module *m;
    struct arena arena;
    VEC(struct ir_check) checks;
    int64_t *syms;
    int64_t budget; /* checks still to be evaluated: a build must not hang on thousands of them */
};

static void set_all(const struct dim_ctx *dims, int64_t size, int64_t *syms)
{
    for (size_t i = 0; i < dim_sym_count(dims); i++) {
        const struct dim *s = dim_sym_at(dims, i);
        int64_t v = s->lo > size ? s->lo : size;
        syms[i] = v < s->hi ? v : s->hi;
    }
}

static void add_branch_checks(struct search *s, const struct ir_block *b)
{
    for (const struct ir_op *op = b->first; op; op = op->next) {
        for (int r = 0; r < op->n_regions; r++) add_branch_checks(s, op->regions[r]);
        if (op->code != IR_OP_CHECK) continue;
        int n_a, n_b;
        const struct dim *const *x = ir_attr_dims(op, "a", &n_a), *const *y = ir_attr_dims(op, "b", &n_b);
        if (!x || !y || n_a < 1 || n_b < 1) continue;
        struct ir_check c = {.a = x[0], .b = y[0], .is_le = ir_attr_int(op, "is_le", 0) != 0};
        vec_push(&s->arena, &s->checks, c);
    }
}

static bool holds(struct search *s, const struct ir_check *c)
{
    int64_t a, b;
    if (s->budget-- <= 0) return false;
    if (!dim_eval(s->m->dims, c->a, s->syms, &a) || !dim_eval(s->m->dims, c->b, s->syms, &b)) return false;
    return c->is_le ? a <= b : a == b;
}

static size_t count_failing(struct search *s, const struct ir_check **out_first)
{
    size_t n = 0;
    for (size_t i = 0; i < s->checks.n; i++) {
        if (holds(s, &s->checks.v[i])) continue;
        if (n++ == 0) *out_first = &s->checks.v[i];
    }
    return n;
}

static int64_t next_value(int64_t v) { return v < FINE_VALUES ? v + 1 : v < 4096 ? v + 16 : 2 * v; }

/* The smallest value of symbol k that satisfies check c and leaves fewer checks failing than before. */
static bool fix_by(struct search *s, const struct ir_check *c, size_t k, size_t failing)
{
    const struct dim *y = dim_sym_at(s->m->dims, k);
    const struct ir_check *first;
    int64_t before = s->syms[k];
    int fits = 0;
    for (int64_t v = y->lo > 1 ? y->lo : 1; v <= y->hi && v <= MAX_VALUE && fits < MAX_FITS && s->budget > 0; v = next_value(v)) {
        s->syms[k] = v;
        if (!holds(s, c)) continue;
        if (count_failing(s, &first) < failing) return true;
        fits++;
    }
    s->syms[k] = before;
    return false;
}

/* From the least sizes upwards, one symbol at a time. */
static bool solve(struct search *s)
{
    set_all(s->m->dims, 1, s->syms);
    for (int round = 0; round < MAX_ROUNDS; round++) {
        const struct ir_check *c = NULL;
        size_t failing = count_failing(s, &c), k = 0;
        if (!failing) return true;
        while (k < dim_sym_count(s->m->dims) && !fix_by(s, c, k, failing)) k++;
        if (k == dim_sym_count(s->m->dims)) return false;
    }
    return false;
}

/* One size for all symbols. */
static bool uniform(struct search *s, int attempt)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const struct ir_check *c = NULL;
        set_all(s->m->dims, sizes[i], s->syms);
        if (count_failing(s, &c) == 0 && attempt-- == 0) return true;
        if (dim_sym_count(s->m->dims) == 0) return false;
    }
    return false;
}

bool shapes_smallest(const struct ir_module *m, int attempt, int64_t *syms)
{
    struct search s = {.m = m, .syms = syms, .budget = MAX_EVALUATIONS};
    arena_init(&s.arena);
    for (size_t i = 0; i < m->checks.n; i++) vec_push(&s.arena, &s.checks, m->checks.v[i]);
    bool ok;
    if (attempt > 0) { /* the module's own alone: all branches together may ask for too much */
        ok = attempt == 1 ? solve(&s) : uniform(&s, attempt - 2);
    } else {
        if (m->funcs.n) add_branch_checks(&s, m->funcs.v[0]->body);
        ok = solve(&s);
    }
    arena_deinit(&s.arena);
    return ok;
}
