// SPDX-License-Identifier: Apache-2.0
/* `infc verify`: the evaluator and an engine on the same inputs, error figures for every output. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/commands.h"
#include "compiler/error_figures.h"
#include "compiler/npy.h"
#include "compiler/pipeline.h"
#include "compiler/tensor_file.h"
#include "compiler/shapes.h"
#include "ir/eval.h"
#include "runtime/abi/random.h"

struct verify {
    const struct options *o;
    struct diag_sink *diag;
    struct arena arena;
    struct ir_module *m;
    struct ir_func *f;
    int64_t seed;
    int64_t *syms;
    struct ir_tensor *in, *want, *got;
    char *dir; /* temporary folder of the run */
};

static bool make_input(struct verify *v, int i)
{
    const struct ir_type *t = &v->f->body->args[i]->type;
    struct ir_tensor *x = &v->in[i];
    size_t elems = 1;
    *x = (struct ir_tensor){.dtype = t->dtype, .rank = t->rank};
    for (int k = 0; k < t->rank; k++) {
        if (!dim_eval(v->m->dims, t->dims[k], v->syms, &x->dims[k]) || x->dims[k] < 0 || !size_mul(elems, (size_t)x->dims[k], &elems))
            return diag_report(v->diag, DIAG_SHAPE_MISMATCH, v->f->input_names[i], "the input's size overflows");
    }
    size_t elem = dtype_bytes(t->dtype);
    x->n_bytes = elems * elem;
    x->data = arena_alloc(&v->arena, x->n_bytes);
    return npy_fill_random(x, (uint64_t)v->seed, (uint32_t)i) ||
           diag_report(v->diag, DIAG_DTYPE_UNSUPPORTED, v->f->input_names[i], "no random inputs of type %s", dtype_name(t->dtype));
}

/* Symbols: the least size, at least 1; a file given for an input sets its own. */
static bool make_inputs(struct verify *v)
{
    size_t n = dim_sym_count(v->m->dims);
    v->syms = ARENA_ARRAY(&v->arena, int64_t, n);
    if (!shapes_smallest(v->m, 0, v->syms) && !shapes_smallest(v->m, 1, v->syms) && !shapes_smallest(v->m, 2, v->syms))
        return diag_report_remedy(v->diag, DIAG_SHAPE_MISMATCH, NULL, "give --shape or --input", "no small sizes satisfy the model's shape checks");
    bool *given = ARENA_ARRAY(&v->arena, bool, v->f->n_inputs);
    for (size_t k = 0; k < v->o->values[OPT_INPUTS].n; k++) {
        const char *spec = v->o->values[OPT_INPUTS].v[k], *eq = strchr(spec, '=');
        int i = v->f->n_inputs == 1 && !eq ? 0 : -1;
        for (int j = 0; eq && j < v->f->n_inputs; j++)
            if (!strncmp(v->f->input_names[j], spec, (size_t)(eq - spec)) && !v->f->input_names[j][eq - spec]) i = j;
        if (i < 0) return diag_report(v->diag, DIAG_OPTION, NULL, "--input=%s: expected NAME=FILE with an input of the model", spec);
        if (!tensor_file_read(eq ? eq + 1 : spec, &v->in[i], &v->arena, v->diag)) return false;
        const struct ir_type *t = &v->f->body->args[i]->type;
        given[i] = true;
        for (int a = 0; a < t->rank && a < v->in[i].rank; a++)
            for (size_t s = 0; s < n; s++)
                if (t->dims[a] == dim_sym_at(v->m->dims, s)) v->syms[s] = v->in[i].dims[a];
    }
    for (int i = 0; i < v->f->n_inputs; i++)
        if (!given[i] && !make_input(v, i)) return false;
    return true;
}

/* Runs `ENGINE run` on files in the temporary folder. */
static bool run_engine(struct verify *v, const char *engine)
{
    int n = v->f->n_inputs + v->f->n_outputs, at = 0;
    char **argv = ARENA_ARRAY(&v->arena, char *, 2 * n + 4);
    argv[at++] = arena_strdup(&v->arena, engine);
    argv[at++] = "run";
    for (int i = 0; i < v->f->n_inputs; i++) {
        char *path = arena_printf(&v->arena, "%s/in%d.npy", v->dir, i);
        if (!npy_write(path, &v->in[i], v->diag)) return false;
        argv[at++] = arena_printf(&v->arena, "--input=%s=%s", v->f->input_names[i], path);
    }
    for (int i = 0; i < v->f->n_outputs; i++)
        argv[at++] = arena_printf(&v->arena, "--output=%s=%s/out%d.npy", v->f->output_names[i], v->dir, i);
    pid_t pid = fork();
    if (pid < 0) return diag_report(v->diag, DIAG_ENVIRONMENT, engine, "cannot start the engine: %s", strerror(errno));
    if (pid == 0) {
        execv(argv[0], argv);
        _exit(127);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return diag_report(v->diag, DIAG_ENVIRONMENT, engine, "the engine failed (%s %d)", WIFSIGNALED(status) ? "signal" : "exit code",
                           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    for (int i = 0; i < v->f->n_outputs; i++)
        if (!npy_read(arena_printf(&v->arena, "%s/out%d.npy", v->dir, i), &v->got[i], &v->arena, v->diag)) return false;
    return true;
}

static bool report(struct verify *v)
{
    double tolerance = atof(option_value(v->o, OPT_TOLERANCE, "1e-4"));
    bool json = option_given(v->o, OPT_JSON), ok = true;
    if (json) fputs("[", stdout);
    for (int i = 0; i < v->f->n_outputs; i++) {
        struct error_figures e = error_figures(&v->want[i], &v->got[i]);
        bool good = e.comparable && e.relative <= tolerance;
        ok = ok && good;
        struct strbuf name = {0};
        strbuf_put_json(&name, v->f->output_names[i]);
        if (json)
            printf("%s\n  {\"output\": %s, \"max_abs\": %.6g, \"relative\": %.6g, \"sqnr_db\": %.2f, \"cosine\": %.9f, \"pass\": %s}", i ? "," : "",
                   strbuf_get(&name), isfinite(e.max_abs) ? e.max_abs : 1e308, isfinite(e.relative) ? e.relative : 1e308,
                   isfinite(e.sqnr_db) ? e.sqnr_db : 999.0, e.cosine, good ? "true" : "false");
        else if (!e.comparable) printf("%-24s shapes or types differ\n", v->f->output_names[i]);
        else
            printf("%-24s max|d| %.3e  relative %.3e  SQNR %.1f dB  cosine %.9f  %s\n", v->f->output_names[i], e.max_abs, e.relative, e.sqnr_db,
                   e.cosine, good ? "ok" : "FAILED");
        strbuf_deinit(&name);
    }
    if (json) fputs("\n]\n", stdout);
    if (!ok) diag_report(v->diag, DIAG_GATE, NULL, "an output differs by more than %g (relative)", tolerance);
    return ok;
}

/* Builds the model into the temporary folder with the same options; the model's own pass through cmd_build. */
static const char *build_engine(struct verify *v, const char *model)
{
    char *path = arena_printf(&v->arena, "%s/engine", v->dir);
    struct options o = {.command = CMD_BUILD};
    o.values[OPT_SHAPE].v = v->o->values[OPT_SHAPE].v, o.values[OPT_SHAPE].n = v->o->values[OPT_SHAPE].n;
    const char *args[] = {model}, *output[] = {path};
    o.args.v = args, o.args.n = 1;
    o.values[OPT_OUTPUT].v = output, o.values[OPT_OUTPUT].n = 1;
    return cmd_build(&o, v->diag) == 0 && !v->diag->error_count ? path : NULL;
}

static void remove_dir(struct verify *v)
{
    for (int i = 0; i < v->f->n_inputs; i++) unlink(arena_printf(&v->arena, "%s/in%d.npy", v->dir, i));
    for (int i = 0; i < v->f->n_outputs; i++) unlink(arena_printf(&v->arena, "%s/out%d.npy", v->dir, i));
    unlink(arena_printf(&v->arena, "%s/engine", v->dir));
    rmdir(v->dir);
}

static void run(struct verify *v, const char *model, const char *engine)
{
    v->in = ARENA_ARRAY(&v->arena, struct ir_tensor, v->f->n_inputs);
    v->want = ARENA_ARRAY(&v->arena, struct ir_tensor, v->f->n_outputs);
    v->got = ARENA_ARRAY(&v->arena, struct ir_tensor, v->f->n_outputs);
    if (!option_int(v->o, OPT_SEED, 0, INT64_MAX, 1, &v->seed, v->diag) || !make_inputs(v)) return;
    const char *tmp = getenv("TMPDIR");
    v->dir = mkdtemp(arena_printf(&v->arena, "%s/infc-verify-XXXXXX", tmp && tmp[0] ? tmp : "/tmp"));
    if (!v->dir) {
        diag_report(v->diag, DIAG_FILE_WRITE, NULL, "cannot make a temporary folder: %s", strerror(errno));
        return;
    }
    if (!engine) engine = build_engine(v, model);
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (engine && run_engine(v, engine) && ir_eval_func_threads(v->f, v->in, v->want, &v->arena, v->diag, threads > 0 ? threads : 1))
        report(v);
    remove_dir(v);
}

int cmd_verify(const struct options *o, struct diag_sink *diag)
{
    if (o->args.n < 1 || o->args.n > 2) {
        diag_report(diag, DIAG_OPTION, NULL, "expected a model and, if it is built already, its engine");
        return 2;
    }
    struct verify v = {.o = o, .diag = diag};
    arena_init(&v.arena);
    v.m = pipeline_import(o, o->args.v[0], diag);
    if (v.m) {
        v.f = v.m->funcs.v[0];
        run(&v, o->args.v[0], o->args.n == 2 ? o->args.v[1] : NULL);
        ir_module_destroy(v.m);
    }
    arena_deinit(&v.arena);
    return 0;
}
