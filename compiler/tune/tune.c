// SPDX-License-Identifier: Apache-2.0
#define _POSIX_C_SOURCE 200809L
#include "compiler/tune/tune.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/bench/child.h"
#include "compiler/tune/measure.h"
#include "passes/lower.h"
#include "runtime/abi/cpu_name.h"

#define KEEP_BELOW 0.97 /* a gain of 3% or more is kept: less is noise */

/* ---- the database at a build ---- */

bool tune_open(struct tune *t, struct build *b)
{
    char here[INFR_CPU_NAME_BYTES];
    const char *path = option_value(b->o, OPT_TUNE_DB, NULL);
    *t = (struct tune){.b = b, .frozen = option_given(b->o, OPT_FROZEN)};
    tune_db_init(&t->db);
    infr_cpu_name(here);
    snprintf(t->cpu, sizeof t->cpu, "%.47s", option_value(b->o, OPT_TUNE_CPU, here));
    bool tunes = option_given(b->o, OPT_TUNE);
    if (t->frozen && tunes) return diag_report(b->diag, DIAG_OPTION, NULL, "--frozen and --tune exclude each other");
    if (t->frozen && !path) return diag_report(b->diag, DIAG_OPTION, NULL, "--frozen needs --tune-db=FILE");
    if (option_given(b->o, OPT_TUNE_ON) && !tunes) return diag_report(b->diag, DIAG_OPTION, NULL, "--tune-on is for --tune");
    return !path || tune_db_read(&t->db, path, tunes, b->diag);
}

void tune_close(struct tune *t) { tune_db_deinit(&t->db); }

static bool look_up(void *context, const struct target_level *level, const struct lp_kernel *k, const struct knob_uses *uses,
                    struct knob_values *out)
{
    struct tune *t = context;
    uint64_t hash = tune_kernel_hash(k);
    (void)uses;
    const struct tune_entry *e = tune_db_find(&t->db, hash, level->name, t->cpu);
    if (!e) {
        t->missed++;
        if (t->frozen)
            diag_report_remedy(t->b->diag, DIAG_OPTION, k->loc, "tune again with --tune and the same --tune-db", "no entry for kernel %016llx (%s, level %s, CPU %s)",
                               (unsigned long long)hash, k->name, level->name, t->cpu);
        return false;
    }
    *out = e->values;
    for (int i = 0; i < KNOB_COUNT; i++)
        if (out->set[i]) return true;
    return false;
}

struct knob_chooser tune_chooser(struct tune *t) { return (struct knob_chooser){look_up, t}; }

/* ---- tuning ---- */

/* A kernel of one level that has knobs. */
struct site {
    uint64_t kernel;
    const struct target_level *level;
    struct knob_uses uses;
    struct knob_values best;
    double us_before, us_after; /* of the cost model's choice, of the best */
};

struct tuner {
    struct tune *t;
    struct build *b;
    struct build_part *part;        /* of the CPU */
    struct arena arena;
    VEC(struct site) sites;
    struct map by_key;              /* kernel and level -> site + 1 */
    const struct target_level *level; /* being tuned */
    enum knob knob;                 /* being tried, alternative `trial`; -1: the best of all */
    int trial;
    VEC(int) launch_site;           /* of the plan being lowered: a launch in program order -> site or -1 */
    bool recording;
};

static struct site *find_site(struct tuner *u, uint64_t kernel, const struct target_level *level)
{
    struct {
        uint64_t kernel;
        int64_t isa;
    } key = {kernel, level->isa};
    size_t at = (size_t)(uintptr_t)map_find(&u->by_key, &key, sizeof key);
    if (at) return &u->sites.v[at - 1];
    if (!u->recording) return NULL;
    struct site s = {.kernel = kernel, .level = level};
    vec_push(&u->arena, &u->sites, s);
    map_put(&u->by_key, &key, sizeof key, (void *)(uintptr_t)u->sites.n);
    return &u->sites.v[u->sites.n - 1];
}

static const struct knob_use *use_of(const struct site *s, enum knob k)
{
    for (int i = 0; i < s->uses.n; i++)
        if (s->uses.use[i].knob == k) return &s->uses.use[i];
    return NULL;
}

static bool choose(void *context, const struct target_level *level, const struct lp_kernel *k, const struct knob_uses *uses,
                   struct knob_values *out)
{
    struct tuner *u = context;
    struct site *s = find_site(u, tune_kernel_hash(k), level);
    if (!s) return false;
    if (u->recording) s->uses = *uses;
    *out = s->best;
    if (u->trial >= 0 && level == u->level) {
        const struct knob_use *use = use_of(s, u->knob);
        if (use && u->trial < use->n) out->set[u->knob] = true, out->value[u->knob] = use->alternatives[u->trial];
    }
    for (int i = 0; i < KNOB_COUNT; i++)
        if (out->set[i]) return true;
    return false;
}

/* Lowers with the tuner's present choice and writes an engine, of all levels: how a kernel looks depends on those before it. */
static bool build_engine(struct tuner *u, const char *path)
{
    struct build b = {.o = u->b->o, .diag = u->b->diag, .model_path = u->b->model_path, .m = u->b->m, .n_parts = 1};
    struct knob_chooser chooser = {choose, u};
    b.parts[0] = (struct build_part){.target = u->part->target, .isa_mask = u->part->isa_mask};
    b.parts[0].plan = lower_module_tuned(b.m, u->part->target, u->part->isa_mask, &chooser, b.diag);
    bool ok = b.parts[0].plan && pipeline_engine(&b, path);
    plan_destroy(b.parts[0].plan);
    return ok;
}

/* Which site each launch is, in program order. */
static void map_block(struct tuner *u, const struct plan *p, const struct plan_block *block)
{
    for (size_t i = 0; i < block->steps.n; i++) {
        const struct plan_step *s = &block->steps.v[i];
        if (s->kind == INFR_STEP_IF) {
            map_block(u, p, s->then_block);
            map_block(u, p, s->else_block);
            continue;
        }
        if (s->kind != INFR_STEP_LAUNCH) continue;
        const struct lp_kernel *k = p->kernels.v[s->launch->kernel].levels[u->level->isa];
        struct site *site = k ? find_site(u, tune_kernel_hash(k), u->level) : NULL;
        int n = site ? (int)(site - u->sites.v) : -1;
        vec_push(&u->arena, &u->launch_site, n);
    }
}

/* Sites of the level, and which launch is which. False after a diagnostic. */
static bool record(struct tuner *u)
{
    struct knob_chooser chooser = {choose, u};
    u->recording = true, u->trial = -1;
    struct plan *p = lower_module_tuned(u->b->m, u->part->target, u->part->isa_mask, &chooser, u->b->diag);
    u->recording = false;
    u->launch_site.n = 0;
    if (!p) return false;
    map_block(u, p, p->entry);
    plan_destroy(p);
    return true;
}

struct pair {
    struct tuner *u;
    char *best, *trial; /* engines' paths */
    struct measure_options m;
    double deadline;
    double *us_best, *us_trial; /* a launch */
    double *ratio;              /* a site: trial / best, summed logarithms; weight in n */
    int *n;
};

/* One comparison of the two engines, best - trial - best. */
static bool compare(struct pair *p, size_t n_sites)
{
    struct tuner *u = p->u;
    size_t n = u->launch_site.n;
    double *sum_best = ARENA_ARRAY(&u->arena, double, n_sites), *sum_trial = ARENA_ARRAY(&u->arena, double, n_sites);
    for (int round = 0; round < 2; round++) {
        if (!measure_engine(p->best, &p->m, p->us_best, n, u->b->diag) || !measure_engine(p->trial, &p->m, p->us_trial, n, u->b->diag)) return false;
        for (size_t i = 0; i < n; i++)
            if (u->launch_site.v[i] >= 0) {
                double *best = &sum_best[u->launch_site.v[i]], *trial = &sum_trial[u->launch_site.v[i]];
                *best += p->us_best[i], *trial += p->us_trial[i];
            }
        for (size_t s = 0; s < n_sites; s++)
            if (sum_best[s] > 0 && sum_trial[s] > 0) {
                double r = sum_trial[s] / sum_best[s];
                if (round == 0 || r > p->ratio[s]) p->ratio[s] = r; /* the worse of two: a gain must show twice */
                if (u->sites.v[s].us_before <= 0) u->sites.v[s].us_before = sum_best[s];
                p->n[s]++;
            }
        memset(sum_best, 0, n_sites * sizeof *sum_best);
        memset(sum_trial, 0, n_sites * sizeof *sum_trial);
    }
    return true;
}

/* Alternative `trial` of the knob in all kernels: gains[] gets each site's ratio, 1 where it has no such alternative. */
static bool try_one(struct pair *p, double *gains)
{
    struct tuner *u = p->u;
    size_t n = u->sites.n;
    if (!build_engine(u, p->trial)) return false;
    for (size_t s = 0; s < n; s++) p->ratio[s] = 1, p->n[s] = 0;
    if (!compare(p, n)) return false;
    for (size_t s = 0; s < n; s++) {
        const struct knob_use *use = u->sites.v[s].level == u->level ? use_of(&u->sites.v[s], u->knob) : NULL;
        gains[s] = use && u->trial < use->n && p->n[s] ? p->ratio[s] : 1;
    }
    return true;
}

/* All alternatives of one knob, then the best of each kernel is kept. */
static bool tune_knob(struct pair *p, enum knob k, bool *kept)
{
    struct tuner *u = p->u;
    size_t n = u->sites.n;
    double *best = ARENA_ARRAY(&u->arena, double, n), *gains = ARENA_ARRAY(&u->arena, double, n);
    int *chosen = ARENA_ARRAY(&u->arena, int, n), most = 0;
    u->knob = k;
    for (size_t s = 0; s < n; s++) {
        const struct knob_use *use = u->sites.v[s].level == u->level ? use_of(&u->sites.v[s], k) : NULL;
        if (use && use->n > most) most = use->n;
        best[s] = KEEP_BELOW, chosen[s] = -1;
    }
    for (u->trial = 0; u->trial < most && bench_now() < p->deadline; u->trial++) {
        if (!try_one(p, gains)) return false;
        for (size_t s = 0; s < n; s++)
            if (gains[s] < best[s]) best[s] = gains[s], chosen[s] = u->trial;
    }
    u->trial = -1;
    *kept = false;
    for (size_t s = 0; s < n; s++) {
        if (chosen[s] < 0) continue;
        struct site *site = &u->sites.v[s];
        site->best.set[k] = true, site->best.value[k] = use_of(site, k)->alternatives[chosen[s]];
        site->us_after = (site->us_after > 0 ? site->us_after : site->us_before) * best[s];
        *kept = true;
    }
    return true;
}

static void store(struct tuner *u)
{
    for (size_t s = 0; s < u->sites.n; s++) {
        const struct site *x = &u->sites.v[s];
        if (x->level != u->level || x->us_before <= 0) continue;
        struct tune_entry e = {.kernel = x->kernel, .values = x->best, .us_before = x->us_before, .us_after = x->us_after > 0 ? x->us_after : x->us_before};
        snprintf(e.level, sizeof e.level, "%s", x->level->name);
        memcpy(e.cpu, u->t->cpu, sizeof e.cpu);
        tune_db_put(&u->t->db, &e);
    }
}

static bool tune_level(struct tuner *u, const char *dir, double seconds)
{
    struct pair p = {.u = u, .best = arena_printf(&u->arena, "%s/best", dir), .trial = arena_printf(&u->arena, "%s/trial", dir)};
    p.deadline = bench_now() + seconds;
    p.m = (struct measure_options){.on = option_value(u->b->o, OPT_TUNE_ON, NULL), .args = option_value(u->b->o, OPT_TUNE_ARGS, ""),
                                   .level = u->level->name, .is_text = u->b->m->text != NULL};
    if (!record(u)) return false;
    size_t n = u->launch_site.n + 1;
    p.us_best = ARENA_ARRAY(&u->arena, double, n), p.us_trial = ARENA_ARRAY(&u->arena, double, n);
    p.ratio = ARENA_ARRAY(&u->arena, double, u->sites.n + 1), p.n = ARENA_ARRAY(&u->arena, int, u->sites.n + 1);
    bool ok = build_engine(u, p.best), kept = false;
    if (ok && !measure_cpu(p.best, &p.m, u->t->cpu, sizeof u->t->cpu)) {
        diag_warn(u->b->diag, DIAG_OPTION, NULL, "level %s is not tuned: the machine cannot run it", u->level->name);
        unlink(p.best);
        return true;
    }
    for (int k = 0; ok && k < KNOB_COUNT && bench_now() < p.deadline; k++) {
        ok = tune_knob(&p, (enum knob)k, &kept);
        if (ok && kept) ok = build_engine(u, p.best);
    }
    unlink(p.best);
    unlink(p.trial);
    if (ok) store(u);
    return ok;
}

bool tune_run(struct tune *t)
{
    struct build *b = t->b;
    struct tuner u = {.t = t, .b = b, .trial = -1};
    int64_t seconds;
    const char *tmp = getenv("TMPDIR"), *given = option_value(b->o, OPT_TUNE, ""), *path = option_value(b->o, OPT_TUNE_DB, NULL);
    u.part = &b->parts[0];
    if (u.part->target->levels[0].gpu) return diag_report(b->diag, DIAG_OPTION, NULL, "--tune is for CPU targets");
    seconds = 60;
    if (given[0] && !option_int(b->o, OPT_TUNE, 1, 1000000, 60, &seconds, b->diag)) return false;
    arena_init(&u.arena);
    map_init(&u.by_key, &u.arena);
    char *dir = mkdtemp(arena_printf(&u.arena, "%s/infc-tune-XXXXXX", tmp && tmp[0] ? tmp : "/tmp"));
    bool ok = dir || diag_report(b->diag, DIAG_FILE_WRITE, NULL, "cannot make a temporary folder: %s", strerror(errno));
    const struct target *target = u.part->target;
    int levels = 0;
    for (int i = 0; i < target->n_levels; i++) levels += u.part->isa_mask >> target->levels[i].isa & 1;
    for (int i = 0; ok && i < target->n_levels; i++) {
        u.level = &target->levels[i];
        if (u.part->isa_mask >> u.level->isa & 1) ok = tune_level(&u, dir, (double)seconds / levels);
    }
    size_t better = 0;
    for (size_t s = 0; s < u.sites.n; s++)
        for (int k = 0; k < KNOB_COUNT; k++)
            if (u.sites.v[s].best.set[k]) {
                better++;
                break;
            }
    if (ok) fprintf(stderr, "tuned %zu kernels on %s: %zu got other schedules\n", u.sites.n, t->cpu, better);
    if (dir) rmdir(dir);
    arena_deinit(&u.arena);
    return ok && (!path || tune_db_write(&t->db, path, b->diag));
}
