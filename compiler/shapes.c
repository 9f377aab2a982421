// SPDX-License-Identifier: Apache-2.0
#include "compiler/shapes.h"

static void set_all(const struct dim_ctx *dims, int64_t size, int64_t *syms)
{
    for (size_t i = 0; i < dim_sym_count(dims); i++) {
        const struct dim *s = dim_sym_at(dims, i);
        int64_t v = s->lo > size ? s->lo : size;
        syms[i] = v < s->hi ? v : s->hi;
    }
}

static bool checks_hold(const struct ir_module *m, const int64_t *syms)
{
    for (size_t i = 0; i < m->checks.n; i++) {
        const struct ir_check *c = &m->checks.v[i];
        int64_t a, b;
        if (!dim_eval(m->dims, c->a, syms, &a) || !dim_eval(m->dims, c->b, syms, &b)) return false;
        if (c->is_le ? a > b : a != b) return false;
    }
    return true;
}

bool shapes_smallest(const struct ir_module *m, int attempt, int64_t *syms)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        set_all(m->dims, sizes[i], syms);
        if (checks_hold(m, syms) && attempt-- == 0) return true;
        if (dim_sym_count(m->dims) == 0) return false;
    }
    return false;
}
