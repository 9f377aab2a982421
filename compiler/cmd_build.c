// SPDX-License-Identifier: Apache-2.0
/* `infc build`: a model file to an engine executable. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "compiler/commands.h"
#include "compiler/pipeline.h"
#include "compiler/report.h"
#include "ir/encoding.h"

/* model.onnx -> model; a path without an ending gets ".engine". */
static const char *default_output(struct arena *a, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    if (!dot || dot == base) return arena_printf(a, "%s.engine", base);
    return arena_strndup(a, base, (size_t)(dot - base));
}

static bool is_form(const char *kind)
{
    static const char *const forms[] = {"loop", "llvm", "asm", "cuda", "ptx", "cubin"};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++)
        if (!strcmp(kind, forms[i])) return true;
    return false;
}

static bool emit_part(struct build *b, struct build_part *part, const char *kind, struct strbuf *s)
{
    const struct target *t = part->target;
    bool ok = true, binary = !strcmp(kind, "cubin");
    if (!strcmp(kind, "plan")) {
        plan_print(s, part->plan);
        return true;
    }
    for (size_t i = 0; ok && i < part->plan->kernels.n; i++)
        for (int l = 0; ok && l < t->n_levels; l++) {
            struct lp_kernel *k = part->plan->kernels.v[i].levels[t->levels[l].isa];
            if (!k) continue;
            if (!binary) strbuf_printf(s, "// kernel %zu, level %s, schedule %s\n", i, t->levels[l].name, k->schedule);
            if (!strcmp(kind, "loop")) lp_print(s, k, false);
            else ok = t->emit_text(t, &t->levels[l], k, k->name, kind, s, b->diag);
        }
    return ok;
}

/* --emit=loop|plan|llvm|asm|cuda|ptx|cubin: what would be compiled, or linked. */
static bool emit_text(struct build *b, const char *kind)
{
    struct strbuf s = {0};
    bool ok = true;
    if (strcmp(kind, "plan") != 0 && !is_form(kind))
        ok = diag_report(b->diag, DIAG_OPTION, NULL, "--emit=%s: expected loop, plan, llvm, asm, cuda, ptx or cubin", kind);
    if (ok && !strcmp(kind, "cubin") && !option_given(b->o, OPT_OUTPUT))
        ok = diag_report(b->diag, DIAG_OPTION, NULL, "--emit=cubin writes machine code: name a file with -o");
    for (int i = 0; ok && i < b->n_parts; i++) ok = emit_part(b, &b->parts[i], kind, &s);
    const char *path = option_value(b->o, OPT_OUTPUT, NULL);
    FILE *f = !ok ? NULL : path ? fopen(path, "wb") : stdout;
    if (ok && (!f || fwrite(strbuf_get(&s), 1, s.len, f) != s.len)) ok = diag_report(b->diag, DIAG_FILE_WRITE, path, "cannot write");
    if (path && f && fclose(f)) ok = diag_report(b->diag, DIAG_FILE_WRITE, path, "cannot write");
    strbuf_deinit(&s);
    return ok;
}

/* Only an engine keeps one. */
static bool wants_golden(const struct options *o)
{
    return !option_given(o, OPT_NO_GOLDEN) && !option_given(o, OPT_STOP_AFTER) && !option_given(o, OPT_EMIT);
}

/* --prec, and whether every target has it. */
static bool select_precision(struct build *b)
{
    static const struct {
        const char *name;
        enum dtype dtype;
        double tolerance; /* of golden vectors, which round alike: a few values that round the other way */
        const char *blocks; /* encoding of the weights */
    } rows[] = {{"keep", DT_NONE, 0, NULL},      {"tf32", DT_F32, 2e-3, NULL},       {"f16", DT_F16, 2e-3, NULL},           {"bf16", DT_BF16, 1e-2, NULL},
                {"fp8", DT_F8E4M3FN, 5e-2, NULL}, {"int8", DT_I8, 2e-2, NULL},        {"w8a16", DT_F16, 2e-3, "q8_0"},       {"int4", DT_F16, 2e-3, "q4_1"},
                {"int4-g64", DT_F16, 2e-3, "int4_g64"}, {"int4-g128", DT_F16, 2e-3, "int4_g128"}};
    const char *prec = option_value(b->o, OPT_PREC, "keep");
    size_t i = 0;
    while (i < ARRAY_LEN(rows) && strcmp(rows[i].name, prec) != 0) i++;
    if (i == ARRAY_LEN(rows))
        return diag_report(b->diag, DIAG_OPTION, NULL, "--prec=%s: there are keep, tf32, f16, bf16, fp8, int8, w8a16, int4, int4-g64 and int4-g128", prec);
    b->m->precision = rows[i].dtype;
    b->m->weight_blocks = rows[i].blocks ? encoding_find(rows[i].blocks, strlen(rows[i].blocks)) : NULL;
    b->golden_tolerance = rows[i].tolerance;
    for (int k = 0; k < b->n_parts && rows[i].dtype; k++) {
        const struct target *t = b->parts[k].target;
        const struct target_gpu *gpu = t->levels[0].gpu;
        if (gpu && !(gpu->mma >> rows[i].dtype & 1))
            return diag_report_remedy(b->diag, DIAG_OPTION, NULL, "--prec=int8 or --prec=f16 are the nearest that it has", "target %s has no %s", t->name, prec);
    }
    return true;
}

static bool run(struct build *b, const char *output)
{
    bool stopped = false;
    b->m = pipeline_import(b->o, b->model_path, b->diag);
    if (!b->m || !pipeline_select_target(b) || !select_precision(b)) return false;
    b->wants_golden = wants_golden(b->o);
    if (b->wants_golden && b->m->precision == DT_NONE) pipeline_golden(b);
    if (!pipeline_tensor(b, &stopped)) return false;
    if (stopped) return true;
    if (!pipeline_lower(b)) return false;
    const char *emit = option_value(b->o, OPT_EMIT, NULL);
    if (emit) return emit_text(b, emit);
    return pipeline_engine(b, output) && report_build(b, output);
}

int cmd_build(const struct options *o, struct diag_sink *diag)
{
    if (o->args.n != 1) {
        diag_report(diag, DIAG_OPTION, NULL, "expected one model file; see `infc build --help`");
        return 2;
    }
    struct arena a;
    arena_init(&a);
    struct build b = {.o = o, .diag = diag, .model_path = o->args.v[0]};
    run(&b, option_value(o, OPT_OUTPUT, default_output(&a, b.model_path)));
    build_deinit(&b);
    arena_deinit(&a);
    return 0;
}
