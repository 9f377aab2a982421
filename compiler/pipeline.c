// SPDX-License-Identifier: Apache-2.0
#include "compiler/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/golden_cache.h"
#include "compiler/import/import.h"
#include "compiler/tensor_file.h"
#include "compiler/tune/tune.h"
#include "ir/text.h"
#include "passes/lower.h"
#include "passes/pass.h"

/* --const NAME=FILE. The file is what follows the last '=': names of inputs may hold one, but hardly a file's. */
static bool read_consts(const struct options *o, struct arena *a, struct import_options *io, struct diag_sink *diag)
{
    size_t n = o->values[OPT_CONST].n;
    struct import_value *values = ARENA_ARRAY(a, struct import_value, n + 1);
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        const char *spec = o->values[OPT_CONST].v[i], *eq = strrchr(spec, '=');
        if (!eq || eq == spec) {
            ok = diag_report(diag, DIAG_OPTION, NULL, "--const=%s: expected NAME=FILE with an input of the model", spec);
            continue;
        }
        values[i].name = arena_strndup(a, spec, (size_t)(eq - spec));
        for (size_t k = 0; k < i; k++)
            if (values[k].name && !strcmp(values[k].name, values[i].name))
                ok = diag_report(diag, DIAG_OPTION, NULL, "--const=%s: this input is given twice", spec);
        struct ir_tensor t;
        if (!tensor_file_read(eq + 1, &t, a, diag)) {
            ok = false;
            continue;
        }
        values[i].dtype = t.dtype, values[i].rank = t.rank, values[i].data = t.data, values[i].n_bytes = t.n_bytes;
        memcpy(values[i].dims, t.dims, sizeof t.dims);
    }
    io->values = values, io->n_values = (int)n;
    return ok;
}

/* --kv, --act and --context, for language models. */
static bool read_lm_options(const struct options *o, struct import_options *io, struct diag_sink *diag)
{
    static const struct {
        const char *name;
        enum dtype dtype;
    } caches[] = {{"f16", DT_F16}, {"bf16", DT_BF16}, {"f32", DT_F32}, {"f8", DT_F8E4M3FN}, {"q8", DT_I8}, {"q4", DT_I4}};
    const char *kv = option_value(o, OPT_KV, "f16");
    for (size_t i = 0; i < ARRAY_LEN(caches); i++)
        if (!strcmp(kv, caches[i].name)) io->kv_dtype = caches[i].dtype;
    if (io->kv_dtype == DT_NONE) return diag_report(diag, DIAG_OPTION, NULL, "--kv=%s: the caches can be f16, bf16, f32, f8, q8 or q4", kv);
    io->act = option_value(o, OPT_ACT, "i12");
    if (strcmp(io->act, "i12") && strcmp(io->act, "i8") && strcmp(io->act, "f32"))
        return diag_report(diag, DIAG_OPTION, NULL, "--act=%s: activations can be i12, i8 or f32", io->act);
    return option_int(o, OPT_CONTEXT, 1, INT64_C(1) << 31, 0, &io->context, diag);
}

struct ir_module *pipeline_import(const struct options *o, const char *path, struct diag_sink *diag)
{
    struct arena a;
    arena_init(&a);
    struct import_options io = {.shapes = o->values[OPT_SHAPE].v, .n_shapes = (int)o->values[OPT_SHAPE].n};
    struct ir_module *m = read_consts(o, &a, &io, diag) && read_lm_options(o, &io, diag) ? import_model(path, &io, diag) : NULL;
    arena_deinit(&a);
    return m;
}

static void print_ir(void *ctx, const char *pass, const struct ir_module *m)
{
    (void)ctx;
    struct strbuf s = {0};
    ir_print_module(&s, m, NULL);
    fprintf(stderr, "// after %s\n%s", pass, strbuf_get(&s));
    strbuf_deinit(&s);
}

static bool known_pass(const char *name, bool import_ok, struct diag_sink *diag)
{
    if (!name || pass_find(name) || (import_ok && (!strcmp(name, "import") || !strcmp(name, "all")))) return true;
    return diag_report(diag, DIAG_OPTION, NULL, "unknown pass '%s'; `infc passes` lists them", name);
}

/* IR text to the output file or stdout; big constants go to FILE.bin. */
static bool write_ir(struct build *b)
{
    const char *path = option_value(b->o, OPT_OUTPUT, NULL);
    struct strbuf text = {0}, resources = {0};
    ir_print_module(&text, b->m, path ? &resources : NULL);
    bool ok = true;
    if (!path) {
        fputs(strbuf_get(&text), stdout);
    } else {
        char *side = arena_printf(&b->m->arena, "%s.bin", path);
        FILE *f = fopen(path, "wb"), *g = resources.len ? fopen(side, "wb") : NULL;
        ok = f && fwrite(strbuf_get(&text), 1, text.len, f) == text.len && fclose(f) == 0;
        if (resources.len) ok = ok && g && fwrite(resources.data, 1, resources.len, g) == resources.len && fclose(g) == 0;
        if (!ok) diag_report(b->diag, DIAG_FILE_WRITE, path, "cannot write IR text");
    }
    strbuf_deinit(&text);
    strbuf_deinit(&resources);
    return ok;
}

void pipeline_golden(struct build *b)
{
    b->golden = golden_make_cached(b->m, (int)sysconf(_SC_NPROCESSORS_ONLN), !option_given(b->o, OPT_NO_CACHE), b->diag);
}

/* Rounding is what was asked for: the reference rounds too, so that the tolerance is that of sums. */
static void golden_of_rounded(void *ctx, const char *pass, struct ir_module *m)
{
    struct build *b = ctx;
    if (m->precision != DT_NONE && b->wants_golden && !strcmp(pass, "precision")) pipeline_golden(b);
}

/* --winograd. Schedules of GPUs have none: a build for one leaves convolutions as they are. */
static bool select_winograd(struct build *b)
{
    static const struct {
        const char *name;
        int size;
    } rows[] = {{"auto", -1}, {"off", 0}, {"2", 2}, {"4", 4}};
    const char *given = option_value(b->o, OPT_WINOGRAD, "auto");
    size_t i = 0;
    while (i < ARRAY_LEN(rows) && strcmp(rows[i].name, given) != 0) i++;
    if (i == ARRAY_LEN(rows)) return diag_report(b->diag, DIAG_OPTION, NULL, "--winograd=%s: there are auto, off, 2 and 4", given);
    bool on_cpu = b->n_parts > 0;
    for (int k = 0; k < b->n_parts; k++) on_cpu = on_cpu && !b->parts[k].target->levels[0].gpu;
    if (!on_cpu && rows[i].size > 0)
        return diag_report_remedy(b->diag, DIAG_OPTION, NULL, "build for CPUs alone, or leave --winograd out", "--winograd=%s: GPUs have no such kernels", given);
    b->m->winograd = on_cpu ? rows[i].size : 0;
    b->m->for_cpus = on_cpu;
    return true;
}

bool pipeline_tensor(struct build *b, bool *out_stopped)
{
    const struct options *o = b->o;
    *out_stopped = false;
    struct pass_options po = {.print_after = option_value(o, OPT_PRINT_AFTER, NULL), .stop_after = option_value(o, OPT_STOP_AFTER, NULL),
                              .start_at = option_value(o, OPT_START_AT, NULL), .time = option_given(o, OPT_TIME_PASSES),
                              .print = print_ir, .seen = golden_of_rounded, .seen_ctx = b};
    bool ok = known_pass(po.print_after, true, b->diag);
    ok = known_pass(po.stop_after, true, b->diag) && ok;
    ok = known_pass(po.start_at, false, b->diag) && ok;
    ok = option_int(o, OPT_BISECT_LIMIT, 0, INT64_MAX, 0, &po.bisect_limit, b->diag) && ok;
    if (!ok) return false;
    if (po.stop_after && !strcmp(po.stop_after, "import")) {
        *out_stopped = true;
        return write_ir(b);
    }
    const char *acc = option_value(o, OPT_ACC, "auto");
    b->m->plain_sums = !strcmp(acc, "f32");
    if (!b->m->plain_sums && strcmp(acc, "auto") != 0) return diag_report(b->diag, DIAG_OPTION, NULL, "--acc=%s: there are auto and f32", acc);
    if (!select_winograd(b) || !pass_run_all(b->m, &po, b->diag)) return false;
    if (b->wants_golden && !b->golden && b->m->precision != DT_NONE) pipeline_golden(b); /* began behind that pass */
    if (!po.stop_after) return true;
    *out_stopped = true;
    return write_ir(b);
}

/* The highest level that gets code by default and that this CPU runs. */
static const char *native_level(void)
{
    if (cpu_has_level_v4()) return "x86-64-v4";
    return cpu_has_level_v3() ? "x86-64-v3" : "x86-64-v2";
}

/* Integer products run twice as fast with the instructions that v4 lacks: such a model gets code for the level above it, too. */
static bool has_int_products(const struct ir_block *b)
{
    for (const struct ir_op *op = b->first; op; op = op->next) {
        if (op->code == IR_OP_QMATMUL_INT) return true;
        for (int r = 0; r < op->n_regions; r++)
            if (has_int_products(op->regions[r])) return true;
    }
    return false;
}

/* The part of a target, made when it is named first. The CPU's goes first, whatever the order on the command line. */
static struct build_part *part_of(struct build *b, const struct target *t)
{
    int at = 0;
    for (int i = 0; i < b->n_parts; i++)
        if (b->parts[i].target == t) return &b->parts[i];
    if (b->n_parts == BUILD_MAX_PARTS) return NULL;
    if (t->levels[0].gpu) at = b->n_parts;
    memmove(&b->parts[at + 1], &b->parts[at], (size_t)(b->n_parts - at) * sizeof *b->parts);
    b->parts[at] = (struct build_part){.target = t};
    b->n_parts++;
    return &b->parts[at];
}

/* All names that --target takes, and the one that is nearest to what was given. */
static bool unknown_target(struct build *b, const char *given)
{
    struct strbuf names = {0};
    struct nearest near = nearest_begin(given);
    const struct target *t;
    for (int i = 0; (t = target_at(i)); i++) {
        strbuf_printf(&names, "%s%s", i ? ", " : "", t->name);
        nearest_offer(&near, t->name);
        for (int k = 0; k < t->n_levels && !t->levels[0].gpu; k++) {
            char *level = arena_printf(&b->m->arena, "%s-%s", t->name, t->levels[k].name);
            strbuf_printf(&names, ", %s", level);
            nearest_offer(&near, level);
        }
    }
    nearest_offer(&near, "native");
    strbuf_puts(&names, ", native");
    if (near.name) diag_report(b->diag, DIAG_TARGET_UNKNOWN, NULL, "unknown target '%s'; did you mean %s? There are: %s", given, near.name, strbuf_get(&names));
    else diag_report(b->diag, DIAG_TARGET_UNKNOWN, NULL, "unknown target '%s'; there are: %s", given, strbuf_get(&names));
    strbuf_deinit(&names);
    return false;
}

static bool add_target(struct build *b, const char *name, size_t len)
{
    char buf[64];
    unsigned mask = 0;
    if (len >= sizeof buf) len = sizeof buf - 1;
    memcpy(buf, name, len);
    buf[len] = 0;
    if (!strcmp(buf, "native")) snprintf(buf, sizeof buf, "%s", native_level());
    const struct target *t = target_find(buf);
    bool whole = t != NULL;
    for (int i = 0; t && i < t->n_levels; i++)
        if (t->levels[i].isa <= INFR_ISA_V4) mask |= 1u << t->levels[i].isa;
    for (int i = 0; !t && target_at(i); i++) { /* "x86-64-v3": a target and a level */
        const struct target *u = target_at(i);
        size_t n = strlen(u->name);
        const struct target_level *lv = !strncmp(buf, u->name, n) && buf[n] == '-' ? target_level_find(u, buf + n + 1) : NULL;
        if (lv) t = u, mask = 1u << lv->isa;
    }
    if (!t) return unknown_target(b, buf);
    struct build_part *part = part_of(b, t);
    if (!part) return diag_report(b->diag, DIAG_OPTION, NULL, "--target: too many targets for one engine");
    part->isa_mask |= mask;
    part->whole |= whole;
    return true;
}

bool pipeline_select_target(struct build *b)
{
    const char *list = option_value(b->o, OPT_TARGET, "x86-64");
    bool ok = true;
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, ",");
        ok = add_target(b, p, len) && ok;
        p += len + (p[len] == ',');
    }
    if (ok && !b->n_parts) return diag_report(b->diag, DIAG_OPTION, NULL, "--target: no target is named");
    return ok;
}

bool pipeline_lower(struct build *b)
{
    struct tune t;
    bool ok = tune_open(&t, b) && (!option_given(b->o, OPT_TUNE) || tune_run(&t));
    struct knob_chooser chooser = tune_chooser(&t);
    bool chosen = option_given(b->o, OPT_TUNE) || option_given(b->o, OPT_TUNE_DB);
    for (int i = 0; ok && i < b->n_parts; i++) {
        struct build_part *part = &b->parts[i];
        bool on_cpu = !part->target->levels[0].gpu;
        if (part->whole && on_cpu && has_int_products(b->m->funcs.v[0]->body)) part->isa_mask |= 1u << INFR_ISA_VNNI;
        part->plan = lower_module_tuned(b->m, part->target, part->isa_mask, chosen && on_cpu ? &chooser : NULL, b->diag);
        ok = part->plan != NULL;
    }
    ok = ok && !(t.frozen && t.missed);
    tune_close(&t);
    return ok;
}

void build_deinit(struct build *b)
{
    for (int i = 0; i < b->n_parts; i++) plan_destroy(b->parts[i].plan);
    if (b->m) ir_module_destroy(b->m);
}
