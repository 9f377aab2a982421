// SPDX-License-Identifier: Apache-2.0
/*
 * Kernels checked and timed in one: each case is a small model, lowered and compiled for every level of this machine, run on
 * buffers that end at a page that may not be touched, and compared with the tensor evaluator; whole and slice by slice must give the
 * same bits. Without arguments that is all (and make check runs it).
 *
 *   test_kernels --bench [GLOB]     times of each launch, too: the least of some batches, warm caches, one thread
 */
#include "cpu_kernel.h"

#include "test_equiv.h"

#include <fnmatch.h>
#include <time.h>

struct kase {
    const char *name;
    int64_t n;         /* value of the symbol n */
    const char *text;  /* of the model; "@W(dims)" stands for weights of these dims */
};

static const struct kase cases[] = {
    {"matmul-1x384x1536", 1, "%x: f32[n, 384]) -> (y: f32[n, 1536]) {\n %w = constant value=@W(384, 1536)\n %1 = matmul %x, %w\n return %1\n}"},
    {"matmul-16x384x1536", 16, "%x: f32[n, 384]) -> (y: f32[n, 1536]) {\n %w = constant value=@W(384, 1536)\n %1 = matmul %x, %w\n return %1\n}"},
    {"matmul-128x384x1536", 128, "%x: f32[n, 384]) -> (y: f32[n, 1536]) {\n %w = constant value=@W(384, 1536)\n %1 = matmul %x, %w\n return %1\n}"},
    {"matmul-513x383x769", 513, "%x: f32[n, 383]) -> (y: f32[n, 769]) {\n %w = constant value=@W(383, 769)\n %1 = matmul %x, %w\n return %1\n}"},
    {"matmul-erf-64x256x512", 64, "%x: f32[n, 256]) -> (y: f32[n, 512]) {\n %w = constant value=@W(256, 512)\n %1 = matmul %x, %w\n %2 = erf %1\n return %2\n}"},
    {"matmul-inputs-96x64x96", 96, "%x: f32[n, 64], %z: f32[64, n]) -> (y: f32[n, n]) {\n %1 = matmul %x, %z\n return %1\n}"},
    {"conv-3x3-56x56x64", 1,
     "%x: f32[n, 64, 58, 58]) -> (y: f32[n, 64, 56, 56]) {\n %w = constant value=@W(64, 64, 3, 3)\n"
     " %1 = conv %x, %w strides=[1, 1] dilations=[1, 1] pads=(0, 0, 0, 0) groups=1\n return %1\n}"},
    {"winograd-blocks-50x47x40", 1,
     "%x: f32[n, 50, 47, 40]) -> (y: f32[n, 50, 47, 72]) {\n %w = constant value=@W(72, 40, 3, 3)\n"
     " %1 = conv %x, %w strides=[1, 1] dilations=[1, 1] pads=(1, 1, 1, 1) groups=1 channels_last=1 winograd=4\n return %1\n}"},
    {"winograd-whole-9x10x200", 2,
     "%x: f32[n, 9, 10, 200]) -> (y: f32[n, 9, 10, 70]) {\n %w = constant value=@W(70, 200, 3, 3)\n"
     " %1 = conv %x, %w strides=[1, 1] dilations=[1, 1] pads=(1, 1, 1, 1) groups=1 channels_last=1 winograd=2\n return %1\n}"},
    {"conv-1x1-28x28x128", 1,
     "%x: f32[n, 128, 28, 28]) -> (y: f32[n, 128, 28, 28]) {\n %w = constant value=@W(128, 128, 1, 1)\n"
     " %1 = conv %x, %w strides=[1, 1] dilations=[1, 1] pads=(0, 0, 0, 0) groups=1\n return %1\n}"},
    {"conv-7x7-stride-2", 1,
     "%x: f32[n, 3, 69, 69]) -> (y: f32[n, 64, 32, 32]) {\n %w = constant value=@W(64, 3, 7, 7)\n"
     " %1 = conv %x, %w strides=[2, 2] dilations=[1, 1] pads=(0, 0, 0, 0) groups=1\n return %1\n}"},
    {"conv-depthwise-30x30x96", 1,
     "%x: f32[n, 96, 32, 32]) -> (y: f32[n, 96, 30, 30]) {\n %w = constant value=@W(96, 1, 3, 3)\n"
     " %1 = conv %x, %w strides=[1, 1] dilations=[1, 1] pads=(0, 0, 0, 0) groups=96\n return %1\n}"},
    {"conv-depthwise-padded-28x28x100", 1,
     "%x: f32[n, 28, 28, 100]) -> (y: f32[n, 28, 28, 100]) {\n %w = constant value=@W(100, 1, 3, 3)\n %p = pad %x lo=(0, 1, 1, 0) hi=(0, 1, 1, 0)\n"
     " %1 = conv %p, %w strides=[1, 1] dilations=[1, 1] pads=(0, 0, 0, 0) groups=100 channels_last=1\n return %1\n}"},
    {"conv-depthwise-padded-nx40x32", 37,
     "%x: f32[1, 40, n, 32]) -> (y: f32[1, 40, n, 32]) {\n %w = constant value=@W(32, 1, 5, 5)\n %p = pad %x lo=(0, 2, 2, 0) hi=(0, 2, 2, 0)\n"
     " %1 = conv %p, %w strides=[1, 1] dilations=[1, 1] pads=(0, 0, 0, 0) groups=32 channels_last=1\n return %1\n}"},
    {"concat-in-place-60x96", 60,
     "%x: f32[n, 64]) -> (y: f32[n, 95]) {\n %w = constant value=@W(64, 64)\n %u = constant value=@W(64, 31)\n %1 = matmul %x, %w\n %2 = matmul %x, %u\n"
     " %3 = concat %1, %2 axis=1\n return %3\n}"},
    {"matmul-acc-f64-33x65x70", 33, "%x: f32[n, 65]) -> (y: f32[n, 70]) {\n %w = constant value=@W(65, 70)\n %1 = matmul %x, %w acc=f64\n %2 = cast %1 to=f32\n return %2\n}"},
    {"conv-acc-f64-stride-4", 2,
     "%x: f32[n, 1, 1, 261]) -> (y: f32[n, 36, 1, 58]) {\n %w = constant value=@W(36, 1, 1, 33)\n"
     " %1 = conv %x, %w strides=[1, 4] dilations=[1, 1] pads=(0, 0, 0, 0) groups=1 acc=f64\n %2 = cast %1 to=f32\n return %2\n}"},
    {"softmax-64x512", 64, "%x: f32[n, 512]) -> (y: f32[n, 512]) {\n %1 = softmax %x axis=1\n return %1\n}"},
    {"attention-128x128x32", 128,
     "%q: f32[2, n, 3, 32], %k: f32[2, n, 3, 32], %v: f32[2, n, 3, 32], %m: f32[2, 1, 1, n]) -> (y: f32[2, n, 3, 32]) {\n"
     " %1 = transpose %q perm=[0, 2, 1, 3]\n %2 = transpose %k perm=[0, 2, 3, 1]\n %3 = matmul %1, %2\n %4 = add %3, %m\n %5 = softmax %4 axis=3\n"
     " %6 = transpose %v perm=[0, 2, 1, 3]\n %7 = matmul %5, %6\n %8 = transpose %7 perm=[0, 2, 1, 3]\n return %8\n}"},
    {"attention-50x50x64", 50,
     "%q: f32[3, n, 64], %k: f32[3, n, 64], %v: f32[3, n, 64], %m: f32[n, n]) -> (y: f32[3, n, 64]) {\n"
     " %1 = matmul %q, %k trans_b=1\n %2 = add %1, %m\n %3 = softmax %2 axis=2\n %4 = matmul %3, %v\n return %4\n}"},
    {"attention-5x5x15", 5,
     "%q: f32[3, n, 15], %k: f32[3, 15, n], %v: f32[3, n, 15]) -> (y: f32[3, n, 15]) {\n"
     " %1 = matmul %q, %k\n %2 = softmax %1 axis=2\n %3 = matmul %2, %v\n return %3\n}"},
    {"layer-norm-64x384", 64, "%x: f32[n, 384]) -> (y: f32[n, 384]) {\n %w = constant value=@W(384)\n %1 = layer_norm %x, %w, none axis=1 eps=1e-5\n return %1\n}"},
    {"rms-norm-64x576", 64, "%x: f32[n, 576]) -> (y: f32[n, 576]) {\n %w = constant value=@W(576)\n %1 = rms_norm %x, %w axis=1 eps=1e-5\n return %1\n}"},
    {"sigmoid-mul-64x1024", 64, "%x: f32[n, 1024]) -> (y: f32[n, 1024]) {\n %1 = sigmoid %x\n %2 = mul %x, %1\n return %2\n}"},
    {"transpose-128x256", 128, "%x: f32[n, 256]) -> (y: f32[256, n]) {\n %1 = transpose %x perm=[1, 0]\n return %1\n}"},
    {"shuffle-28x3x80", 28, "%x: f32[2, n, 3, 80]) -> (y: f32[2, n, 80, 3]) {\n %1 = transpose %x perm=[0, 1, 3, 2]\n return %1\n}"},
    {"shuffle-28x4x68", 28, "%x: f32[n, 4, 68]) -> (y: f32[n, 68, 4]) {\n %1 = transpose %x perm=[0, 2, 1]\n return %1\n}"},
    {"shuffle-7x5x21", 7, "%x: f32[n, 7, 5, 21]) -> (y: f32[7, n, 21, 5]) {\n %1 = transpose %x perm=[1, 0, 3, 2]\n return %1\n}"},
    {"shuffle-7x19", 7, "%x: i32[7, n, 19]) -> (y: i32[n, 19, 7]) {\n %1 = transpose %x perm=[1, 2, 0]\n return %1\n}"},
    {"shuffle-2x16", 3, "%x: f32[2, 16], %z: f32[n]) -> (y: f32[16, 2], w: f32[n]) {\n %1 = transpose %x perm=[1, 0]\n %2 = neg %z\n return %1, %2\n}"},
    {"reduce-sum-256x256", 256, "%x: f32[n, 256]) -> (y: f32[n]) {\n %1 = reduce_sum %x axes=[1]\n return %1\n}"},
};

/* ---- models ---- */

/* The text with weights written out; their values lie in (-0.1, 0.1). */
static char *model_text(struct arena *a, const struct kase *k)
{
    struct strbuf head = {0}, body = {0}, all = {0};
    int count = 0;
    for (const char *p = k->text; *p; p++) {
        if (strncmp(p, "@W(", 3)) {
            strbuf_putc(&body, *p);
            continue;
        }
        const char *end = strchr(p, ')');
        int64_t n = 1;
        for (const char *d = p + 3; d < end; d++) {
            n *= strtoll(d, NULL, 10);
            d += strcspn(d, ",)");
        }
        strbuf_printf(&head, " const @w%d: f32[%.*s] = [", count, (int)(end - p - 3), p + 3);
        for (int64_t i = 0; i < n; i++) strbuf_printf(&head, "%s%.4f", i ? ", " : "", 0.1 * infr_random_float(5, (uint32_t)count, (uint64_t)i));
        strbuf_puts(&head, "]\n");
        strbuf_printf(&body, "@w%d", count++);
        p = end;
    }
    strbuf_printf(&all, "model \"k\" { sym n in [1, 4096]\n%s func @main(%s }\n", strbuf_get(&head), strbuf_get(&body));
    char *text = arena_strdup(a, strbuf_get(&all));
    strbuf_deinit(&head);
    strbuf_deinit(&body);
    strbuf_deinit(&all);
    return text;
}

/* ---- running a plan by machine code ---- */

struct step {
    const struct plan_launch *launch;
    struct loaded code;
    void *bufs[16];
    int64_t dims[16], slices;
    void *scratch;
};

struct run {
    struct equiv *e;
    const struct plan *p;
    const struct target_level *level;
    struct guarded *memory; /* a buffer */
    struct step *steps;
    int n_steps;
};

static int64_t value(const struct run *r, const struct dim *d)
{
    int64_t v = 0;
    assert_true(dim_eval(r->e->m->dims, d, r->e->sizes, &v));
    return v;
}

static void make_buffers(struct run *r)
{
    r->memory = ARENA_ARRAY(&r->e->arena, struct guarded, r->p->bufs.n);
    for (size_t i = 0; i < r->p->bufs.n; i++) {
        const struct plan_buf *b = &r->p->bufs.v[i];
        size_t n = (size_t)value(r, b->bytes);
        /* packed weights are read ahead of by prefetches alone; 64 bytes is what they are aligned to */
        r->memory[i] = guarded_alloc(b->kind == INFR_BUF_INPUT || b->kind == INFR_BUF_OUTPUT ? n : (n + 63) / 64 * 64);
        if (b->kind == INFR_BUF_INPUT) memcpy(r->memory[i].data, r->e->in[b->io].data, n);
        if (b->kind == INFR_BUF_CONST) equiv_read_const(b, r->memory[i].data, n);
    }
}

static void make_steps(struct run *r, const struct target *t)
{
    r->steps = ARENA_ARRAY(&r->e->arena, struct step, r->p->entry->steps.n);
    for (size_t i = 0; i < r->p->entry->steps.n; i++) {
        const struct plan_step *s = &r->p->entry->steps.v[i];
        struct target_object object = {0};
        if (s->kind != INFR_STEP_LAUNCH) continue;
        struct step *x = &r->steps[r->n_steps++];
        struct lp_kernel *k = r->p->kernels.v[s->launch->kernel].levels[r->level->isa];
        assert_true(s->launch->n_args <= 16 && s->launch->n_dims <= 16);
        if (!t->emit(t, r->level, k, "f", &object, &r->e->diag)) equiv_fail(r->e, "code generation");
        x->launch = s->launch;
        x->code = load_object(&object, "f");
        x->slices = value(r, s->launch->slices[r->level->isa]);
        for (int a = 0; a < s->launch->n_args; a++) x->bufs[a] = (char *)r->memory[s->launch->args[a].buf].data + (s->launch->args[a].offset_bytes ? value(r, s->launch->args[a].offset_bytes) : 0);
        for (int d = 0; d < s->launch->n_dims; d++) x->dims[d] = value(r, s->launch->dims[d]);
        x->scratch = object.scratch_bytes ? aligned_alloc(64, (object.scratch_bytes + 63) / 64 * 64) : NULL;
        free(object.data);
    }
}

static void run_all(struct run *r, bool by_slice)
{
    for (int i = 0; i < r->n_steps; i++) {
        struct step *s = &r->steps[i];
        if (!by_slice) s->code.fn(s->bufs, s->dims, 0, s->slices, s->scratch);
        for (int64_t k = s->slices - 1; by_slice && k >= 0; k--) s->code.fn(s->bufs, s->dims, k, k + 1, s->scratch);
    }
}

static void take_outputs(struct run *r, struct ir_tensor *out)
{
    for (size_t i = 0; i < r->p->bufs.n; i++) {
        const struct plan_buf *b = &r->p->bufs.v[i];
        if (b->kind != INFR_BUF_OUTPUT) continue;
        struct ir_tensor *t = &out[b->io];
        *t = (struct ir_tensor){.dtype = b->dtype, .rank = b->rank, .n_bytes = (size_t)value(r, b->bytes)};
        t->data = arena_dup(&r->e->arena, r->memory[i].data, t->n_bytes);
        for (int k = 0; k < b->rank; k++) t->dims[k] = value(r, b->dims[k]);
        memset(r->memory[i].data, 0xff, t->n_bytes);
    }
}

/* ---- checking and timing ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one launch: the least of batches of about 10 ms. */
static double time_step(const struct step *s)
{
    double best = 0;
    int n = 1;
    for (int batch = 0; batch < 12; batch++) {
        double t = now();
        for (int i = 0; i < n; i++) s->code.fn(s->bufs, s->dims, 0, s->slices, s->scratch);
        t = now() - t;
        if (t < 5e-3 && n < 1 << 20) { /* not yet a batch */
            n *= 2, batch = -1;
            continue;
        }
        if (!best || t / n < best) best = t / n;
    }
    return best;
}

static void check_level(struct equiv *e, const struct kase *k, const struct target *t, const struct target_level *level, bool bench)
{
    struct run r = {.e = e, .level = level};
    struct ir_tensor whole[EQUIV_MAX_IO] = {{0}}, cut[EQUIV_MAX_IO] = {{0}};
    struct plan *p = lower_module(e->m, t, 1u << level->isa, &e->diag);
    if (!p) {
        equiv_fail(e, "lowering");
        return;
    }
    r.p = p;
    make_buffers(&r);
    make_steps(&r, t);
    run_all(&r, false);
    take_outputs(&r, whole);
    equiv_compare(e, whole, level->name);
    run_all(&r, true);
    take_outputs(&r, cut);
    for (int o = 0; o < e->m->funcs.v[0]->n_outputs; o++) assert_memory_equal(whole[o].data, cut[o].data, whole[o].n_bytes);
    for (int i = 0; bench && i < r.n_steps; i++) {
        const struct plan_launch *l = r.steps[i].launch;
        double s = time_step(&r.steps[i]), flops = l->flops ? (double)value(&r, l->flops) : 0, bytes = l->bytes ? (double)value(&r, l->bytes) : 0;
        printf("%-26s %-5s %-16s %10.2f us %8.1f GFLOP/s %7.1f GB/s\n", k->name, level->name, p->kernels.v[l->kernel].schedule, 1e6 * s, 1e-9 * flops / s,
               1e-9 * bytes / s);
    }
    for (int i = 0; i < r.n_steps; i++) {
        munmap(r.steps[i].code.mem, r.steps[i].code.n_bytes + 1);
        free(r.steps[i].scratch);
    }
    for (size_t i = 0; i < p->bufs.n; i++) guarded_free(&r.memory[i]);
    plan_destroy(p);
}

static void check_case(const struct kase *k, bool bench)
{
    const struct target *t = target_find("x86-64");
    struct equiv e;
    equiv_init(&e);
    int64_t sizes[] = {k->n};
    struct arena a;
    arena_init(&a);
    equiv_start_text(&e, model_text(&a, k), 1, sizes);
    e.m->for_cpus = true;
    if (!pass_run_all(e.m, &(struct pass_options){0}, &e.diag)) equiv_fail(&e, "passes");
    for (int l = 0; l < t->n_levels; l++)
        if (machine_has(t->levels[l].isa)) check_level(&e, k, t, &t->levels[l], bench);
    arena_deinit(&a);
    equiv_end(&e);
}

static void test_case(void **state) { check_case(*state, false); }

int main(int argc, char **argv)
{
    struct CMUnitTest tests[ARRAY_LEN(cases)];
    bool bench = argc > 1 && !strcmp(argv[1], "--bench");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        tests[i] = (struct CMUnitTest){.name = cases[i].name, .test_func = test_case, .initial_state = (void *)(uintptr_t)&cases[i]};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!bench || failed) return failed;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (argc < 3 || !fnmatch(argv[2], cases[i].name, 0)) check_case(&cases[i], true);
    return 0;
}
