// SPDX-License-Identifier: Apache-2.0
/*
 * Lowering of what language models use, against the reference evaluator: matmuls and gathers over every encoding that packs
 * here, cache writes, attention over pages. The plan runs in the loop-IR evaluator, which checks every access.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/emit_plan.h"
#include "ir/build.h"
#include "ir/encoding.h"
#include "ir/plan_eval.h"
#include "passes/lower.h"
#include "passes/pass.h"
#include "runtime/abi/random.h"

static const struct target_level levels[] = {
    {.name = "v2", .isa = INFR_ISA_V2, .vector_bytes = 16, .n_vector_regs = 16},
    {.name = "v4", .isa = INFR_ISA_V4, .vector_bytes = 64, .n_vector_regs = 32, .has_fma = true, .has_masks = true},
    {.name = "amx", .isa = INFR_ISA_AMX, .vector_bytes = 64, .n_vector_regs = 32, .has_fma = true, .has_masks = true, .has_vnni = true,
     .has_bf16 = true, .has_amx = true},
};
enum { LEVELS = ARRAY_LEN(levels), ALL_LEVELS = 1u << INFR_ISA_V2 | 1u << INFR_ISA_V4 | 1u << INFR_ISA_AMX };
static const struct target test_target = {.name = "test", .levels = levels, .n_levels = LEVELS};

struct graph {
    struct diag_sink diag;
    struct arena arena;
    struct ir_module *m;
    struct ir_func *f;
    struct ir_builder b;
    struct ir_tensor in[8];
    const char *what; /* for messages */
    struct ir_tensor got[LEVELS]; /* a level, after check() */
};

static void graph_init(struct graph *g)
{
    memset(g, 0, sizeof *g);
    diag_init(&g->diag);
    arena_init(&g->arena);
    g->m = ir_module_create("test", &g->diag);
    g->f = ir_func_create(g->m, "main");
    g->b = (struct ir_builder){.m = g->m, .block = g->f->body, .loc = ir_loc_make(g->m, "test:/node")};
}

static void graph_deinit(struct graph *g)
{
    ir_module_destroy(g->m);
    arena_deinit(&g->arena);
    diag_deinit(&g->diag);
}

static const struct dim *sym(struct graph *g, const char *name) { return dim_sym(g->m->dims, name, 1, 512); }
static const struct dim *cst(struct graph *g, int64_t v) { return dim_const(g->m->dims, v); }

/* An input of these dims whose value at run time has the sizes; zeroed. */
static struct ir_value *input(struct graph *g, enum dtype t, int rank, const struct dim *const *dims, const int64_t *sizes)
{
    char name[16];
    int n = g->f->n_inputs;
    snprintf(name, sizeof name, "in%d", n);
    struct ir_tensor *x = &g->in[n];
    *x = (struct ir_tensor){.dtype = t, .rank = rank, .n_bytes = dtype_bytes(t)};
    for (int i = 0; i < rank; i++) x->dims[i] = sizes[i], x->n_bytes *= (size_t)sizes[i];
    x->data = arena_alloc(&g->arena, x->n_bytes);
    if (t == DT_F32)
        for (size_t i = 0; i < x->n_bytes / 4; i++) ((float *)x->data)[i] = (float)infr_random_float(3, (uint32_t)n, i);
    return ir_func_add_input(g->f, name, ir_type_make(g->m, t, rank, dims));
}

/*
 * Random blocks that decode to moderate numbers: packed from floats where there is an encoder, else random bytes. Bytes up to
 * 0x3B make f16 fields less than 1; a format without such fields (fields lists no h) has a power of two in its first byte.
 */
static void random_blocks(struct graph *g, const struct ir_encoding *e, int64_t n, uint8_t *data, size_t bytes)
{
    float *x = ARENA_ARRAY(&g->arena, float, n);
    for (int64_t i = 0; i < n; i++) x[i] = (float)infr_random_float(9, 0, (uint64_t)i);
    if (encoding_pack(e, x, n, data)) return;
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)((infr_random_float(10, 0, i) + 1) * 1e5) & 0x3B;
    for (size_t i = 0; !e->plain && !strchr(e->fields, 'h') && i < bytes; i += (size_t)e->block_bytes) data[i] = (uint8_t)(124 + i % 4);
}

/* A constant of these encoded blocks. */
static struct ir_value *encoded_of(struct graph *g, const struct ir_encoding *e, int rank, const int64_t *dims)
{
    size_t bytes;
    int64_t rows = 1;
    for (int i = 0; i < rank - 1; i++) rows *= dims[i];
    assert_true(encoding_bytes(e, rows, dims[rank - 1], &bytes));
    void *data = arena_alloc(&g->m->arena, bytes);
    random_blocks(g, e, rows * dims[rank - 1], data, bytes);
    struct ir_type t = ir_type_static(g->m, DT_F32, rank, dims);
    if (e->plain != DT_F32) t.enc = e;
    return ir_build_constant(&g->b, ir_const_make(g->m, "w", t, data, bytes, false));
}

static struct ir_value *encoded(struct graph *g, const struct ir_encoding *e, int64_t rows, int64_t k)
{
    int64_t dims[] = {rows, k};
    return encoded_of(g, e, 2, dims);
}

static void read_const(const struct plan_buf *b, void *dst, size_t n)
{
    struct weight w = {.cst = b->cst, .pack = b->pack, .n_bytes = n};
    weight_read(&w, 0, dst, n);
}

static void compare(const char *what, const struct ir_tensor *want, const struct ir_tensor *got, float tolerance)
{
    assert_int_equal(want->n_bytes, got->n_bytes);
    float top = 1; /* sums cancel: what counts is the size of the terms */
    for (size_t i = 0; i < want->n_bytes / 4; i++) top = fmaxf(top, fabsf(((const float *)want->data)[i]));
    for (size_t i = 0; i < want->n_bytes / 4; i++) {
        float a = ((const float *)want->data)[i], b = ((const float *)got->data)[i];
        if (!(fabsf(a - b) <= tolerance * top)) fail_msg("%s: element %zu: want %g, got %g", what, i, (double)a, (double)b);
    }
}

static bool choose_streams(void *context, const struct target_level *level, const struct lp_kernel *k, const struct knob_uses *uses,
                           struct knob_values *out)
{
    (void)level, (void)k;
    for (int i = 0; i < uses->n; i++) {
        if (uses->use[i].knob != KNOB_STREAMS) continue;
        out->set[KNOB_STREAMS] = true, out->value[KNOB_STREAMS] = 2;
        ++*(int *)context;
        return true;
    }
    return false;
}

/* Panels of half the matrix and of the other by turns: the same bits. Returns how many kernels that was asked of. */
static int check_streams(struct graph *g)
{
    int n = 0;
    struct knob_chooser chooser = {choose_streams, &n};
    struct plan *p = lower_module_tuned(g->m, &test_target, ALL_LEVELS, &chooser, &g->diag);
    assert_non_null(p);
    for (int l = 0; l < LEVELS; l++) {
        struct ir_tensor got = {0};
        assert_true(plan_eval(p, levels[l].isa, g->in, &got, read_const, &g->arena, &g->diag));
        assert_int_equal(got.n_bytes, g->got[l].n_bytes);
        assert_memory_equal(got.data, g->got[l].data, got.n_bytes);
    }
    plan_destroy(p);
    return n;
}

static void check(struct graph *g, struct ir_value *out, float tolerance)
{
    if (!out) diag_print_text(&g->diag, stderr);
    assert_non_null(out);
    static const char *const names[] = {"out"};
    struct ir_tensor want = {0}, got = {0};
    ir_func_set_outputs(g->f, 1, &out, names);
    bool ok = ir_eval_func(g->f, g->in, &want, &g->arena, &g->diag);
    if (!ok) diag_print_text(&g->diag, stderr);
    assert_true(ok);
    struct pass_options po = {0};
    ok = pass_run_all(g->m, &po, &g->diag);
    struct plan *p = ok ? lower_module(g->m, &test_target, ALL_LEVELS, &g->diag) : NULL;
    if (!p) diag_print_text(&g->diag, stderr);
    assert_non_null(p);
    for (int l = 0; l < LEVELS; l++) {
        for (int i = 0; i < g->f->n_inputs; i++) /* states start empty again: pages hold no numbers */
            if (g->f->input_state[i]) memset(g->in[i].data, 0xFF, g->in[i].n_bytes);
        ok = plan_eval(p, levels[l].isa, g->in, &got, read_const, &g->arena, &g->diag);
        if (!ok) diag_print_text(&g->diag, stderr);
        assert_true(ok);
        compare(g->what, &want, &got, tolerance);
        g->got[l] = got;
    }
    plan_destroy(p);
}

/* The same module's plan for a GPU, whose bits are those of `got`. */
static void check_gpu(struct graph *g, const char *schedule, const struct ir_tensor *want)
{
    struct ir_tensor got = {0};
    struct plan *p = lower_module(g->m, target_find("sm80"), 1, &g->diag);
    if (!p) diag_print_text(&g->diag, stderr);
    assert_non_null(p);
    bool there = !schedule;
    for (size_t i = 0; i < p->kernels.n; i++) {
        there = there || !strcmp(p->kernels.v[i].schedule, schedule);
        assert_true(lp_verify(p->kernels.v[i].levels[0], &g->diag));
    }
    if (!there) fail_msg("%s: no kernel is of the schedule %s", g->what, schedule);
    bool ok = plan_eval(p, 0, g->in, &got, read_const, &g->arena, &g->diag);
    if (!ok) diag_print_text(&g->diag, stderr);
    assert_true(ok);
    assert_int_equal(got.n_bytes, want->n_bytes);
    assert_memory_equal(got.data, want->data, got.n_bytes);
    plan_destroy(p);
}

/* x[T, k] w^T + residual, for few rows and for so many that the panel is taken apart. */
static void matmul_case(const struct ir_encoding *e, int64_t rows)
{
    struct graph g;
    graph_init(&g);
    g.what = e->name;
    int64_t k = e->block_elems > 64 ? e->block_elems : 64, n = 70, xs[] = {rows, k}, rs[] = {rows, n};
    const struct dim *xd[] = {sym(&g, "T"), cst(&g, k)}, *rd[] = {xd[0], cst(&g, n)};
    struct ir_value *x = input(&g, DT_F32, 2, xd, xs), *r = input(&g, DT_F32, 2, rd, rs);
    struct ir_value *y = ir_build_matmul(&g.b, x, encoded(&g, e, n, k), false, true, DT_NONE);
    check(&g, ir_build_binary(&g.b, IR_OP_ADD, y, r), 1e-5f);
    graph_deinit(&g);
}

static void test_qmatmul(void **state)
{
    (void)state;
    int done = 0;
    for (int i = 0; i < encoding_count(); i++) {
        const struct ir_encoding *e = encoding_at(i);
        if (e->plain && e->plain != DT_F16 && e->plain != DT_BF16) continue;
        done++;
        matmul_case(e, 1);
        matmul_case(e, 3);
        matmul_case(e, 31);
    }
    assert_true(done >= 20);
}

/*
 * The same with rounded activations, whose products are integers, and rows of the constant gathered beside them. The first
 * row's bits, a level, are kept in `first`: they must not depend on how many rows there are.
 */
static void int_case(const struct ir_encoding *e, int64_t max, int64_t rows, int64_t N, float *first)
{
    struct graph g;
    graph_init(&g);
    g.what = e->name;
    int64_t k = e->block_elems > 64 ? e->block_elems : 64, xs[] = {rows, k}, rs[] = {rows, N}, is[] = {rows};
    const struct dim *xd[] = {sym(&g, "T"), cst(&g, k)}, *rd[] = {xd[0], cst(&g, N)};
    struct ir_value *x = input(&g, DT_F32, 2, xd, xs), *r = input(&g, DT_F32, 2, rd, rs), *ids = input(&g, DT_I32, 1, xd, is);
    for (int64_t i = 0; i < rows; i++) ((int32_t *)g.in[2].data)[i] = (int32_t)(i * 13 % N);
    struct ir_attr a = ir_a_int("max", max);
    struct ir_value *rounded = &ir_build(&g.b, IR_OP_ROUND_ROWS, 1, &x, 1, &a, 1)->results[0], *w = encoded(&g, e, N, k);
    struct ir_value *y = ir_build_matmul(&g.b, rounded, w, false, true, DT_NONE), *got = ir_build_gather(&g.b, w, ids, 0);
    struct ir_value *part = ir_build_binary(&g.b, IR_OP_ADD, y, r), *both[] = {part, got};
    check(&g, ir_build_concat(&g.b, 2, both, 1), 1e-5f);
    /* tensor units take 16 weights or a multiple, in a sum that 24 bits hold */
    bool fits = e->group_elems % 16 == 0 && e->group_elems <= 64;
    if (rows < 5 || rows > 31) check_gpu(&g, fits ? "dot-blocks" : NULL, &g.got[0]);
    for (int l = 0; l < LEVELS; l++) {
        if (rows == 1) memcpy(first + l * N, g.got[l].data, (size_t)N * sizeof *first);
        else assert_memory_equal(first + l * N, g.got[l].data, (size_t)N * sizeof *first);
    }
    assert_memory_equal(g.got[1].data, g.got[2].data, g.got[1].n_bytes); /* tiles sum as pairs do */
    if (N % 64 == 0 && k / e->group_elems % 2 == 0) assert_int_equal(check_streams(&g), LEVELS);
    graph_deinit(&g);
}

static void test_int_products(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 3, 4, 5, 8, 11, 12, 13, 16, 31, 200};
    float first[LEVELS * 128];
    int done = 0;
    for (int i = 0; i < encoding_count(); i++) {
        const struct ir_encoding *e = encoding_at(i);
        if (e->plain) continue;
        done++;
        for (size_t r = 0; r < ARRAY_LEN(rows); r++) int_case(e, 2032, rows[r], 70, first);
        int_case(e, 127, 1, 70, first);
        for (size_t r = 0; r < ARRAY_LEN(rows); r += 3) int_case(e, 2032, rows[r], 128, first);
    }
    assert_true(done >= 20);
}

/* Rounded activations that nothing takes apart. */
static void test_round_rows(void **state)
{
    (void)state;
    struct graph g;
    graph_init(&g);
    g.what = "round_rows";
    int64_t xs[] = {4, 48};
    const struct dim *xd[] = {sym(&g, "T"), cst(&g, 48)};
    struct ir_value *x = input(&g, DT_F32, 2, xd, xs);
    memset(g.in[0].data, 0, 48 * sizeof(float)); /* a row of zeros, and one that counts as zeros */
    for (int i = 0; i < 48; i++) ((float *)g.in[0].data)[48 + i] = 0x1p-110f;
    struct ir_attr a = ir_a_int("max", 127);
    check(&g, &ir_build(&g.b, IR_OP_ROUND_ROWS, 1, &x, 1, &a, 1)->results[0], 1e-7f);
    graph_deinit(&g);
}

/* Rows by the matrices that they chose, with a scale for each choice behind: fewer choices than experts, and more. */
static void experts_case(const struct ir_encoding *e, int64_t rows, bool each)
{
    enum { E = 5, A = 2 };
    struct graph g;
    graph_init(&g);
    g.what = e->name;
    int64_t k = e->block_elems > 64 ? e->block_elems : 64, n = 70, xs[] = {rows, A, k}, is[] = {rows, A}, ws[] = {E, n, k}, ss[] = {rows, A, 1};
    if (!each) xs[1] = k;
    const struct dim *t = sym(&g, "T"), *xd[] = {t, cst(&g, A), cst(&g, k)}, *id[] = {t, cst(&g, A)}, *sd[] = {t, cst(&g, A), cst(&g, 1)};
    if (!each) xd[1] = xd[2];
    struct ir_value *x = input(&g, DT_F32, each ? 3 : 2, xd, xs), *ids = input(&g, DT_I64, 2, id, is), *scale = input(&g, DT_F32, 3, sd, ss);
    for (int64_t i = 0; i < rows * A; i++) ((int64_t *)g.in[1].data)[i] = (i * 7 + i / 3) % (E - 1); /* the last one is nobody's */
    const struct dim *wd[] = {cst(&g, E), cst(&g, n), cst(&g, k)};
    struct ir_value *operands[] = {x, e->plain == DT_F32 && each ? input(&g, DT_F32, 3, wd, ws) : encoded_of(&g, e, 3, ws), ids};
    struct ir_op *y = ir_build(&g.b, IR_OP_MATMUL_EXPERTS, 3, operands, 0, NULL, 1);
    assert_non_null(y);
    check(&g, ir_build_binary(&g.b, IR_OP_MUL, &y->results[0], scale), 1e-5f);
    graph_deinit(&g);
}

static void test_experts(void **state)
{
    (void)state;
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0", "q4_1", "q4_K", "q6_K", "mxfp4"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct ir_encoding *e = encoding_find(names[i], strlen(names[i]));
        for (int64_t rows = 1; rows <= 13; rows += 3) experts_case(e, rows, rows % 2);
    }
}

/* x [H, T, k] by a matrix a plane: the latent attention's. */
static void test_planes(void **state)
{
    (void)state;
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0", "q4_1", "q4_K", "q6_K"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (int64_t rows = 1; rows <= 31; rows += 6) {
            const struct ir_encoding *e = encoding_find(names[i], strlen(names[i]));
            struct graph g;
            graph_init(&g);
            g.what = e->name;
            int64_t k = e->block_elems > 64 ? e->block_elems : 64, n = 70, xs[] = {3, rows, k}, ws[] = {3, n, k};
            const struct dim *xd[] = {cst(&g, 3), sym(&g, "T"), cst(&g, k)};
            struct ir_value *x = input(&g, DT_F32, 3, xd, xs);
            check(&g, ir_build_matmul(&g.b, x, encoded_of(&g, e, 3, ws), false, true, DT_NONE), 1e-5f);
            graph_deinit(&g);
        }
}

static void test_qgather(void **state)
{
    (void)state;
    for (int i = 0; i < encoding_count(); i++) {
        const struct ir_encoding *e = encoding_at(i);
        if (e->plain && e->plain != DT_F16 && e->plain != DT_BF16) continue;
        struct graph g;
        graph_init(&g);
        g.what = e->name;
        int64_t k = e->block_elems > 64 ? e->block_elems : 64, is[] = {5};
        const struct dim *id[] = {sym(&g, "T")};
        struct ir_value *ids = input(&g, DT_I32, 1, id, is);
        static const int32_t rows[] = {0, 69, 64, 63, 7};
        memcpy(g.in[0].data, rows, sizeof rows);
        check(&g, ir_build_gather(&g.b, encoded(&g, e, 70, k), ids, 0), 0);
        graph_deinit(&g);
    }
}

/* Two sequences in one batch, pages out of order, grouped query heads; the rows are a prompt and one decoded token. */
static void attention_case(int64_t heads, int64_t d, int64_t window, double softcap)
{
    enum { T = 42, P = 32, NP = 5, S = 2, MP = 2 };
    struct graph g;
    graph_init(&g);
    const struct dim *t = sym(&g, "T"), *np = sym(&g, "NP"), *s = sym(&g, "S"), *mp = sym(&g, "MP");
    const struct dim *qd[] = {t, cst(&g, heads), cst(&g, d)}, *kd[] = {t, cst(&g, 2), cst(&g, d)}, *td[] = {t}, *pd[] = {s, mp};
    const struct dim *cd[] = {np, cst(&g, P), cst(&g, 2), cst(&g, d)};
    int64_t qs[] = {T, heads, d}, ks[] = {T, 2, d}, ts[] = {T}, ps[] = {S, MP}, cs[] = {NP, P, 2, d};
    struct ir_value *q = input(&g, DT_F32, 3, qd, qs), *k = input(&g, DT_F32, 3, kd, ks), *v = input(&g, DT_F32, 3, kd, ks);
    struct ir_value *slots = input(&g, DT_I64, 1, td, ts), *at = input(&g, DT_I32, 1, td, ts), *seq = input(&g, DT_I32, 1, td, ts);
    struct ir_value *pages = input(&g, DT_I32, 2, pd, ps), *kc = input(&g, DT_F16, 4, cd, cs);
    g.f->input_state[7] = true;
    static const int32_t table[] = {3, 1, 4, 0};
    memcpy(g.in[6].data, table, sizeof table);
    for (int i = 0; i < T; i++) { /* 40 tokens of sequence 0, two of sequence 1 */
        int sq = i >= 40, pos = sq ? i - 40 : i;
        ((int32_t *)g.in[4].data)[i] = pos;
        ((int32_t *)g.in[5].data)[i] = sq;
        ((int64_t *)g.in[3].data)[i] = (int64_t)table[sq * MP + pos / P] * P + pos % P;
    }
    /* K and V in one state when the case says so by window < 0 (a latent cache), else V in a state of its own */
    struct ir_value *kw[] = {kc, k, slots}, *vw[] = {NULL, v, slots};
    struct ir_op *k1 = ir_build(&g.b, IR_OP_KV_WRITE, 3, kw, 0, NULL, 1);
    struct ir_value *vs = &k1->results[0];
    struct ir_tensor extra = {0};
    if (window >= 0) {
        vw[0] = ir_func_add_input(g.f, "v_cache", ir_type_make(g.m, DT_F16, 4, cd));
        g.f->input_state[8] = true;
        extra = g.in[7];
        extra.data = arena_alloc(&g.arena, extra.n_bytes);
        vs = &ir_build(&g.b, IR_OP_KV_WRITE, 3, vw, 0, NULL, 1)->results[0];
    }
    struct ir_tensor in[9];
    memcpy(in, g.in, sizeof g.in);
    in[8] = extra;
    struct ir_value *ops[] = {q, &k1->results[0], vs, at, seq, pages};
    struct ir_attr attrs[] = {ir_a_float("scale", 0.3), ir_a_int("window", window > 0 ? window : 0), ir_a_float("softcap", softcap)};
    struct ir_op *a = ir_build(&g.b, IR_OP_PAGED_ATTENTION, 6, ops, 3, attrs, 1);
    if (!a) diag_print_text(&g.diag, stderr);
    assert_non_null(a);
    static const char *const names[] = {"out"};
    struct ir_value *out = &a->results[0];
    struct ir_tensor want = {0}, got = {0};
    ir_func_set_outputs(g.f, 1, &out, names);
    assert_true(ir_eval_func(g.f, in, &want, &g.arena, &g.diag));
    struct pass_options po = {0};
    assert_true(pass_run_all(g.m, &po, &g.diag));
    struct plan *p = lower_module(g.m, &test_target, ALL_LEVELS, &g.diag);
    assert_non_null(p);
    for (int l = 0; l < LEVELS; l++) {
        for (int i = 7; i < g.f->n_inputs; i++) memset(in[i].data, 0xFF, in[i].n_bytes); /* NaN everywhere */
        bool ok = plan_eval(p, levels[l].isa, in, &got, read_const, &g.arena, &g.diag);
        if (!ok) diag_print_text(&g.diag, stderr);
        assert_true(ok);
        compare("attention", &want, &got, 1e-5f);
    }
    plan_destroy(p);
    graph_deinit(&g);
}

static void test_attention(void **state)
{
    (void)state;
    attention_case(6, 16, 0, 0);
    attention_case(2, 24, 0, 0);   /* no grouping; a head size that is no power of two */
    attention_case(4, 16, 5, 0);   /* a window that ends inside a page and hides a whole one */
    attention_case(4, 16, 0, 2.0);
    attention_case(4, 16, -1, 0);  /* one state for K and V */
}

/*
 * Rows far into a long context: those of a batch together, and each alone, where its lanes are slices of the launch. `at` says where
 * each row is; all belong to one sequence, whose pages lie backwards. The results of `got`, a row each, a level.
 */
static void far_rows(const int32_t *at, int64_t n, int64_t first_row, int64_t window, float *got)
{
    enum { N = 2400, P = 32, MP = N / P, HEADS = 4, D = 8 };
    struct graph g;
    graph_init(&g);
    const struct dim *t = sym(&g, "T"), *np = sym(&g, "NP"), *s = sym(&g, "S"), *mp = sym(&g, "MP"), *kn = dim_sym(g.m->dims, "N", 1, N);
    const struct dim *qd[] = {t, cst(&g, HEADS), cst(&g, D)}, *kd[] = {kn, cst(&g, 2), cst(&g, D)}, *td[] = {t}, *pd[] = {s, mp}, *sd[] = {kn};
    const struct dim *cd[] = {np, cst(&g, P), cst(&g, 2), cst(&g, D)};
    int64_t qs[] = {n, HEADS, D}, ks[] = {N, 2, D}, ts[] = {n}, ps[] = {1, MP}, cs[] = {MP, P, 2, D}, ss[] = {N};
    struct ir_value *q = input(&g, DT_F32, 3, qd, qs), *k = input(&g, DT_F32, 3, kd, ks);
    struct ir_value *slots = input(&g, DT_I64, 1, sd, ss), *pos = input(&g, DT_I32, 1, td, ts), *seq = input(&g, DT_I32, 1, td, ts);
    struct ir_value *pages = input(&g, DT_I32, 2, pd, ps), *cache = input(&g, DT_F16, 4, cd, cs);
    g.f->input_state[6] = true;
    for (int64_t i = 0; i < n * HEADS * D; i++) ((float *)g.in[0].data)[i] = (float)infr_random_float(9, 0, (uint64_t)(first_row * HEADS * D + i));
    for (int i = 0; i < N; i++) ((int64_t *)g.in[2].data)[i] = (int64_t)(MP - 1 - i / P) * P + i % P;
    for (int i = 0; i < MP; i++) ((int32_t *)g.in[5].data)[i] = MP - 1 - i;
    memcpy(g.in[3].data, at, (size_t)n * sizeof *at);
    struct ir_value *written[] = {cache, k, slots};
    struct ir_value *state = &ir_build(&g.b, IR_OP_KV_WRITE, 3, written, 0, NULL, 1)->results[0], *ops[] = {q, state, state, pos, seq, pages};
    struct ir_attr attrs[] = {ir_a_float("scale", 4), ir_a_int("window", window)};
    check(&g, &ir_build(&g.b, IR_OP_PAGED_ATTENTION, 6, ops, 2, attrs, 1)->results[0], 1e-5f);
    for (int l = 0; l < LEVELS; l++) memcpy(got + l * n * HEADS * D, g.got[l].data, g.got[l].n_bytes);
    graph_deinit(&g);
}

/* One row, two, three (lanes shared out unevenly), five (not split): the bits of a row are those that it has in a batch of many. */
static void test_far_attention(void **state)
{
    (void)state;
    enum { ROWS = 16, EACH = 32 };
    /* a prompt's rows, the second four over the end of a page; ends of slices and of a round of lanes; one that sees nothing */
    static const int32_t at[ROWS] = {2300, 2301, 2302, 2303, 2334, 2335, 2336, 2337, 255, 256, 2047, 2048, 5, 700, -1, 511};
    static const int64_t batches[][2] = {{0, 1}, {5, 1}, {9, 1}, {11, 1}, {14, 1}, {2, 2}, {8, 3}, {12, 4}, {0, 4}, {4, 5}}; /* first row, rows */
    float all[LEVELS * ROWS * EACH], some[LEVELS * 5 * EACH];
    for (int w = 0; w < 2; w++) {
        int64_t window = w ? 600 : 0;
        far_rows(at, ROWS, 0, window, all);
        for (size_t i = 0; i < ARRAY_LEN(batches); i++) {
            int64_t r = batches[i][0], n = batches[i][1];
            far_rows(at + r, n, r, window, some);
            for (int l = 0; l < LEVELS; l++)
                assert_memory_equal(some + l * n * EACH, all + (l * ROWS + r) * EACH, (size_t)n * EACH * sizeof *some);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_qmatmul), cmocka_unit_test(test_int_products), cmocka_unit_test(test_round_rows),
                                       cmocka_unit_test(test_experts), cmocka_unit_test(test_planes),
                                       cmocka_unit_test(test_qgather), cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_far_attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
