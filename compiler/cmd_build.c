// SPDX-License-Identifier: Apache-2.0
/* `infc build`: a model file to an engine executable. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "compiler/commands.h"
#include "compiler/golden.h"
#include "compiler/pipeline.h"
#include "compiler/report.h"

/* model.onnx -> model; a path without an ending gets ".engine". */
static const char *default_output(struct arena *a, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    if (!dot || dot == base) return arena_printf(a, "%s.engine", base);
    return arena_strndup(a, base, (size_t)(dot - base));
}

/* --emit=loop|plan|llvm|asm: text of what would be compiled. */
static bool emit_text(struct build *b, const char *kind)
{
    struct strbuf s = {0};
    bool ok = true;
    if (!strcmp(kind, "plan")) {
        plan_print(&s, b->plan);
    } else if (!strcmp(kind, "loop") || !strcmp(kind, "llvm") || !strcmp(kind, "asm")) {
        for (size_t i = 0; ok && i < b->plan->kernels.n; i++)
            for (int l = 0; ok && l < b->target->n_levels; l++) {
                struct lp_kernel *k = b->plan->kernels.v[i].levels[b->target->levels[l].isa];
                if (!k) continue;
                strbuf_printf(&s, "// kernel %zu, level %s, schedule %s\n", i, b->target->levels[l].name, k->schedule);
                if (!strcmp(kind, "loop")) lp_print(&s, k, false);
                else ok = b->target->emit_text(b->target, &b->target->levels[l], k, k->name, kind, &s, b->diag);
            }
    } else {
        ok = diag_report(b->diag, DIAG_OPTION, NULL, "--emit=%s: expected loop, plan, llvm or asm", kind);
    }
    const char *path = option_value(b->o, OPT_OUTPUT, NULL);
    FILE *f = path ? fopen(path, "w") : stdout;
    if (ok && (!f || fputs(strbuf_get(&s), f) < 0)) ok = diag_report(b->diag, DIAG_FILE_WRITE, path, "cannot write");
    if (path && f && fclose(f)) ok = diag_report(b->diag, DIAG_FILE_WRITE, path, "cannot write");
    strbuf_deinit(&s);
    return ok;
}

/* Only an engine keeps one. */
static bool wants_golden(const struct options *o)
{
    return !option_given(o, OPT_NO_GOLDEN) && !option_given(o, OPT_STOP_AFTER) && !option_given(o, OPT_EMIT);
}

static bool run(struct build *b, const char *output)
{
    bool stopped = false;
    b->m = pipeline_import(b->o, b->model_path, b->diag);
    if (!b->m) return false;
    if (wants_golden(b->o)) b->golden = golden_make(b->m, (int)sysconf(_SC_NPROCESSORS_ONLN));
    if (!pipeline_tensor(b, &stopped)) return false;
    if (stopped) return true;
    if (!pipeline_select_target(b) || !pipeline_lower(b)) return false;
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
    const char *prec = option_value(o, OPT_PREC, "keep");
    if (strcmp(prec, "keep")) {
        diag_report_remedy(diag, DIAG_OPTION, NULL, "leave it out, or convert the model before", "--prec=%s: only `keep` is supported yet", prec);
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
