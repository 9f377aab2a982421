// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/gpu_format.h"
#include "runtime/cpu.h"
#include "runtime/status.h"

#define SAME(a, b) _Static_assert((int)INFR_##a == (int)DT_##b, "infr.h repeats dtype.def")
SAME(F64, F64);
SAME(F32, F32);
SAME(F8E4M3FN, F8E4M3FN);
SAME(F4E2M1, F4E2M1);
SAME(I2, I2);
SAME(U4, U4);
SAME(I8, I8);
SAME(U64, U64);
SAME(BOOL, BOOL);
SAME(STRING, STRING);

/* ---- level ---- */

/* "v2 v3 v4" */
static void level_names(unsigned mask, char *out, size_t out_bytes)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < INFR_ISA_COUNT && n < out_bytes; i++)
        if (mask >> i & 1)
            n += (size_t)snprintf(out + n, out_bytes - n, n ? " %s" : "%s", rt_isa_name(i));
}

static int choose_level(struct infr_engine *e, const char *forced, struct infr_status *st)
{
    e->cpu_levels = rt_cpu_levels();
    if (e->device || e->only_asked) { /* a GPU's plan has one level */
        e->isa = 0;
        return INFR_OK;
    }
    char has[64], cpu[64];
    level_names(e->h.isa_mask, has, sizeof has);
    level_names(e->cpu_levels, cpu, sizeof cpu);
    unsigned usable = e->h.isa_mask & e->cpu_levels & ((1u << INFR_ISA_COUNT) - 1);
    if (forced) {
        int isa = rt_isa_find(forced);
        if (isa < 0)
            return rt_fail(st, INFR_BAD_INPUT,
                           "no instruction level '%.32s'; there are v2, v3, v4, vnni and amx",
                           forced);
        if (!(e->h.isa_mask >> isa & 1))
            return rt_fail(st, INFR_BAD_INPUT, "this engine has no code for level %s; it has %s",
                           rt_isa_name(isa), has);
        usable &= 1u << isa;
        if (!usable)
            return rt_fail(st, INFR_ENVIRONMENT, "this CPU has no level %s; it has %s",
                           rt_isa_name(isa), *cpu ? cpu : "none");
    }
    for (;;) {
        if (!usable)
            return rt_fail(st, INFR_ENVIRONMENT,
                           "this CPU has levels: %s; the engine has code for: %s",
                           *cpu ? cpu : "none", has);
        e->isa = 31 - __builtin_clz(usable);
        if (e->isa != INFR_ISA_AMX) return INFR_OK;
        int err = rt_cpu_allow_amx();
        if (!err) return INFR_OK;
        if (forced)
            return rt_fail(st, INFR_ENVIRONMENT, "the operating system refuses AMX: %s",
                           strerror(err));
        usable &= ~(1u << INFR_ISA_AMX);
    }
}

/* A kernel may lack the chosen level; it then runs at the next lower one that it has. */
static int choose_kernels(struct infr_engine *e, infr_kernel_fn *const *table,
                          struct infr_status *st)
{
    e->kernel_fn = calloc(e->n_kernels + 1, sizeof *e->kernel_fn);
    e->kernel_isa = calloc(e->n_kernels + 1, 1);
    if (!e->kernel_fn || !e->kernel_isa)
        return rt_fail_memory(st, "the kernels", e->n_kernels * sizeof *e->kernel_fn);
    for (uint32_t k = 0; k < e->n_kernels; k++) {
        int isa = e->isa;
        while (isa >= 0 && !(e->kernels[k].isa_mask >> isa & 1)) isa--;
        infr_kernel_fn *fn = isa >= 0 && !e->device && !e->only_asked ? table[(size_t)k * INFR_ISA_COUNT + (size_t)isa] : NULL;
        if (!fn && !e->device && !e->only_asked)
            return rt_fail(st, INFR_ENVIRONMENT,
                           "the engine is damaged: kernel %.200s has no code for level %s",
                           rt_text(e, e->kernels[k].symbol), rt_isa_name(e->isa));
        e->kernel_fn[k] = fn;
        e->kernel_isa[k] = (unsigned char)isa;
    }
    return INFR_OK;
}

/* ---- opening ---- */

/* "sm80 sm90": the GPU architectures an engine has code for; damaged images are left out. */
static void gpu_names(const struct infr_image *image, char *out, size_t out_bytes)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; image->gpu_images && image->gpu_images[i] && n < out_bytes; i++) {
        const struct infr_gpu_image *h = image->gpu_images[i];
        if (h->magic == INFR_GPU_MAGIC)
            n += (size_t)snprintf(out + n, out_bytes - n, "%s%.15s", n ? " " : "", h->name);
    }
}

/* A plan without a CPU level stands for the engine in an engine without code for CPUs. */
static bool plan_has_cpu_code(const struct infr_image *image)
{
    struct infr_header h;
    if (image->plan_bytes < sizeof h) return true; /* said to be damaged when it is loaded */
    memcpy(&h, image->plan, sizeof h);
    return h.isa_mask != 0 || !image->gpu_images;
}

/* The device of the options. Under "auto" what is missing for a GPU is noted and the CPU taken. */
static int choose_device(struct infr_engine *e, const struct infr_image *image, const struct infr_options *opt,
                         struct infr_status *st)
{
    const char *want = opt->device ? opt->device : "auto";
    bool cpu = !strcmp(want, "cpu"), gpu = !strcmp(want, "cuda"), automatic = !strcmp(want, "auto");
    const struct rt_device_type *type = &infr_cuda_device;
    const char *names = e->gpus;
    e->has_cpu_code = plan_has_cpu_code(image);
    gpu_names(image, e->gpus, sizeof e->gpus);
    if ((e->only_asked = !strcmp(want, "none"))) return INFR_OK;
    if (!cpu && !gpu && !automatic)
        return rt_fail(st, INFR_BAD_INPUT, "no device '%.32s'; there are auto, cpu and cuda", want);
    if (gpu && !*names) return rt_fail(st, INFR_BAD_INPUT, "this engine has no code for GPUs");
    if (cpu && !e->has_cpu_code)
        return rt_fail(st, INFR_ENVIRONMENT, "this engine has no code for CPUs; it has %s", names);
    /* Whoever asks for a level of the CPU wants the CPU. */
    if (cpu || !*names || !type || (automatic && opt->isa && e->has_cpu_code)) return INFR_OK;
    int code = type->open(image->gpu_images, &e->device, st);
    if (!code || !automatic || !e->has_cpu_code) return code;
    if (st) {
        e->note = *st;
        *st = (struct infr_status){0};
    }
    return INFR_OK;
}

static int open_steps(struct infr_engine *e, const struct infr_image *image,
                      const struct infr_options *opt, struct infr_status *st)
{
    if (opt->hugepages && strcmp(opt->hugepages, "copy") && strcmp(opt->hugepages, "file"))
        return rt_fail(st, INFR_BAD_INPUT, "no --hugepages=%.32s; there are file and copy", opt->hugepages);
    int code = choose_device(e, image, opt, st);
    if (!code) code = e->device ? rt_plan_load(e, e->device->plan, e->device->plan_bytes, st)
                                : rt_plan_load(e, image->plan, image->plan_bytes, st);
    if (code) return code;
    if (e->h.weights_bytes > image->weights_bytes)
        return rt_fail(
            st, INFR_ENVIRONMENT,
            "the engine is damaged: its plan needs %llu bytes of weights, there are %llu",
            (unsigned long long)e->h.weights_bytes, (unsigned long long)image->weights_bytes);
    e->weights = image->weights;
    e->weights_bytes = e->h.weights_bytes;
    if ((code = rt_plan_validate(e, st))) return code;
    if ((code = choose_level(e, opt->isa, st))) return code;
    if ((code = choose_kernels(e, image->kernels, st))) return code;
    if (e->device && (code = e->device->type->load(e->device, e, st))) return code;
    size_t scratch = 0;
    for (uint32_t k = 0; k < e->n_kernels; k++)
        if (e->kernels[k].scratch_bytes > scratch) scratch = e->kernels[k].scratch_bytes;
    if (e->device || e->only_asked) return rt_pool_create(1, true, 0, &e->pool, st);
    if (opt->hugepages && !strcmp(opt->hugepages, "copy") && (code = rt_weights_copy(e, st))) return code;
    return rt_pool_create(opt->threads ? opt->threads : rt_cpu_count(), opt->threads != 0, scratch,
                          &e->pool, st);
}

int infr_engine_open(const struct infr_image *image, const struct infr_options *options,
                     struct infr_engine **out_engine, struct infr_status *status)
{
    static const struct infr_options defaults;
    if (status) *status = (struct infr_status){0};
    *out_engine = NULL;
    struct infr_engine *e = calloc(1, sizeof *e);
    if (!e) return rt_fail_memory(status, "the engine", sizeof *e);
    int code = open_steps(e, image, options ? options : &defaults, status);
    if (code) {
        infr_engine_close(e);
        return code;
    }
    *out_engine = e;
    return INFR_OK;
}

void infr_engine_close(struct infr_engine *e)
{
    if (!e) return;
    if (e->device) e->device->type->close(e->device);
    rt_pool_destroy(e->pool);
    rt_weights_release(e);
    for (int i = 0; i < e->n_copies; i++) free(e->copies[i]);
    free(e->kernel_fn);
    free(e->kernel_isa);
    free(e);
}

/* ---- questions ---- */

uint32_t infr_engine_inputs(const struct infr_engine *e) { return e->n_inputs; }
uint32_t infr_engine_outputs(const struct infr_engine *e) { return e->n_outputs; }
uint32_t infr_engine_threads(const struct infr_engine *e)
{
    return (uint32_t)rt_pool_size(e->pool);
}
const char *infr_engine_isa(const struct infr_engine *e)
{
    return e->device ? e->device->arch : e->only_asked ? "none" : rt_isa_name(e->isa);
}
const char *infr_engine_note(const struct infr_engine *e) { return e->note.code ? e->note.note : NULL; }

struct text {
    char *out;
    size_t n, cap;
    bool cut;
};

static void put(struct text *t, const char *s)
{
    size_t len = strlen(s);
    if (t->cut || t->n + len >= t->cap) {
        t->cut = true;
        return;
    }
    memcpy(t->out + t->n, s, len + 1);
    t->n += len;
}

/* Expressions share rows, so that their text may be exponential: it stops as soon as the buffer is
 * full. */
static void put_dim(struct text *t, const struct infr_engine *e, uint32_t row, int depth,
                    bool nested)
{
    static const char *const infix[] = {[INFR_DIM_ADD] = " + ",
                                        [INFR_DIM_MUL] = "*",
                                        [INFR_DIM_FLOORDIV] = "//",
                                        [INFR_DIM_MOD] = "%"};
    const struct infr_dim *d = &e->dims[row];
    char number[32];
    if (t->cut || depth > 24) {
        t->cut = true;
    } else if (d->op == INFR_DIM_CONST) {
        snprintf(number, sizeof number, "%lld", (long long)d->imm);
        put(t, number);
    } else if (d->op == INFR_DIM_SYM) {
        put(t, rt_text(e, e->symbols[d->a].name));
    } else if (d->op == INFR_DIM_MIN || d->op == INFR_DIM_MAX) {
        put(t, d->op == INFR_DIM_MIN ? "min(" : "max(");
        put_dim(t, e, d->a, depth + 1, false);
        put(t, ", ");
        put_dim(t, e, d->b, depth + 1, false);
        put(t, ")");
    } else {
        bool paren = nested && d->op != INFR_DIM_MUL;
        if (paren) put(t, "(");
        put_dim(t, e, d->a, depth + 1, d->op != INFR_DIM_ADD);
        put(t, infix[d->op]);
        put_dim(t, e, d->b, depth + 1, d->op != INFR_DIM_ADD);
        if (paren) put(t, ")");
    }
}

void rt_dim_text(const struct infr_engine *e, uint32_t row, char *out, size_t out_bytes)
{
    struct text t = {.out = out, .cap = out_bytes - 3};
    out[0] = 0;
    put_dim(&t, e, row, 0, false);
    if (t.cut) memcpy(out + t.n, "...", 4);
}

void rt_dim_info(const struct infr_engine *e, uint32_t row, struct infr_dim_info *out)
{
    const struct infr_dim *d = &e->dims[row];
    *out = (struct infr_dim_info){.lo = 0, .hi = INT64_MAX};
    if (d->op == INFR_DIM_CONST) out->lo = out->hi = d->imm;
    if (d->op == INFR_DIM_SYM) out->lo = e->symbols[d->a].lo, out->hi = e->symbols[d->a].hi;
    rt_dim_text(e, row, out->text, sizeof out->text);
}

static void io_info(const struct infr_engine *e, const struct infr_io *io, struct infr_io_info *out)
{
    *out = (struct infr_io_info){.name = rt_text(e, io->name),
                                 .dtype = io->dtype,
                                 .rank = io->rank,
                                 .optional = io->optional == INFR_IO_OPTIONAL,
                                 .state = io->optional == INFR_IO_STATE};
    for (uint32_t i = 0; i < io->rank; i++)
        rt_dim_info(e, e->pool_u32[io->dims + i], &out->dims[i]);
}

void infr_engine_input(const struct infr_engine *e, uint32_t index, struct infr_io_info *out)
{
    io_info(e, &e->inputs[index], out);
}
void infr_engine_output(const struct infr_engine *e, uint32_t index, struct infr_io_info *out)
{
    io_info(e, &e->outputs[index], out);
}
