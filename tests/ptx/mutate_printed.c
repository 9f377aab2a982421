// SPDX-License-Identifier: Apache-2.0
/*
 * Mutation testing of the kernels that infc prints: launches of real engines, recorded by the stand-in for the driver (trace.h), run
 * again with a fault in the kernel (mutation.h), and something must be noticed: a report of the machine, or memory that is not bit by
 * bit what the unchanged kernel made.
 *
 *   usage: mutate_printed ARGUMENTS EVERY LEAST FOLDER..
 *
 * A FOLDER holds the traces of one family of kernels and gives it its name. EVERY takes one mutant of so many, LEAST is the percentage
 * that must be caught of those that ARGUMENTS (mutation.h) does not call equivalent; exit status 1 when fewer are, or more than 15% of all are
 * called equivalent.
 *
 * A launch runs again in memory of its own: what it touches behind a pointer is an allocation that begins and ends with the first and
 * the last byte touched, and bytes between that it does not touch are undefined. So a mutant that reads or writes beside what the kernel
 * may touch is noticed even where an engine's arena lies there. Lines of one kernel's texts at several sizes are one line where they
 * differ in numbers alone. A mutant survives when it survives every launch of all of them, with copies done late, early, with warps in
 * another order, and with memory moved by a few bytes where the kernel has a way for such rows.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/interp/ptx.h"
#include "tests/ptx/mutation.h"
#include "tests/ptx/trace.h"

enum { N_SHIFTS = 3, MAX_PATH_BYTES = 1200, MAX_PARAMS = 512, APART = 1 << 16, PAGE = 4096, MOST_REGION = 1 << 30 };

struct region {
    struct trace_region at;
    unsigned char *before, *bits, *after;
};

struct trace {
    struct trace_head head;
    unsigned char *params;
    struct region *regions;
    bool shifts[N_SHIFTS]; /* which of `shifts` it takes */
};

struct traces {
    struct trace *v;
    size_t n, cap;
};

/* The traces of one text: consecutive ones. */
struct group {
    struct trace *first;
    size_t n;
    char *text;
    uint64_t max_steps;
    size_t best; /* which caught the last one: tried first */
};

/* ---- files ---- */

static void *read_bytes(FILE *f, size_t bytes, bool *ok)
{
    void *p = *ok ? malloc(bytes ? bytes : 1) : NULL;
    if (!p || fread(p, 1, bytes, f) != bytes) *ok = false;
    return p;
}

static void trace_free(struct trace *t)
{
    for (uint32_t i = 0; t->regions && i < t->head.n_regions; i++) {
        free(t->regions[i].before);
        free(t->regions[i].bits);
        free(t->regions[i].after);
    }
    free(t->regions);
    free(t->params);
}

static bool trace_read(const char *path, struct trace *t)
{
    FILE *f = fopen(path, "rb");
    bool ok = f && fread(&t->head, sizeof t->head, 1, f) == 1 && t->head.magic == TRACE_MAGIC && t->head.n_regions < MAX_PARAMS &&
              t->head.param_bytes < 1 << 16;
    if (!ok) t->head.n_regions = 0;
    if (ok) t->params = read_bytes(f, t->head.param_bytes, &ok);
    if (ok && !(t->regions = calloc(t->head.n_regions + 1u, sizeof *t->regions))) ok = false;
    for (uint32_t i = 0; ok && i < t->head.n_regions; i++) {
        struct region *r = &t->regions[i];
        ok = fread(&r->at, sizeof r->at, 1, f) == 1 && r->at.bytes <= MOST_REGION;
        size_t bytes = ok ? (size_t)r->at.bytes : 0;
        r->before = read_bytes(f, bytes, &ok);
        r->bits = read_bytes(f, bytes, &ok);
        r->after = read_bytes(f, bytes, &ok);
    }
    if (f) fclose(f);
    if (!ok) fprintf(stderr, "%s is no trace\n", path);
    return ok;
}

static char *text_read(const char *folder, uint64_t hash)
{
    char path[MAX_PATH_BYTES], *text = NULL;
    snprintf(path, sizeof path, "%s/%016llx.ptx", folder, (unsigned long long)hash);
    FILE *f = fopen(path, "rb");
    long n = f && !fseek(f, 0, SEEK_END) ? ftell(f) : -1;
    if (n > 0 && (text = calloc(1, (size_t)n + 1))) {
        rewind(f);
        if (fread(text, 1, (size_t)n, f) != (size_t)n) {
            free(text);
            text = NULL;
        }
    }
    if (f) fclose(f);
    if (!text) fprintf(stderr, "%s cannot be read\n", path);
    return text;
}

static int by_kernel(const void *a, const void *b)
{
    const struct trace *x = a, *y = b;
    int names = strcmp(x->head.kernel, y->head.kernel);
    if (names) return names;
    if (x->head.ptx != y->head.ptx) return x->head.ptx < y->head.ptx ? -1 : 1;
    return memcmp(x->head.grid, y->head.grid, sizeof x->head.grid);
}

static bool traces_read(const char *folder, struct traces *out)
{
    char path[MAX_PATH_BYTES];
    DIR *d = opendir(folder);
    bool ok = d != NULL;
    if (!d) fprintf(stderr, "%s cannot be read\n", folder);
    for (struct dirent *e = ok ? readdir(d) : NULL; e && ok; e = readdir(d)) {
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".trace")) continue;
        if (out->n == out->cap) {
            size_t cap = out->cap ? out->cap * 2 : 64;
            struct trace *grown = realloc(out->v, cap * sizeof *grown);
            if (!grown) break;
            out->v = grown;
            out->cap = cap;
        }
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        out->v[out->n] = (struct trace){0};
        ok = trace_read(path, &out->v[out->n++]);
    }
    if (d) closedir(d);
    if (out->n) qsort(out->v, out->n, sizeof *out->v, by_kernel);
    return ok;
}

/* ---- running a trace again ---- */

/* The regions, each alone, as the launch found them; pointers in the parameters follow. `at`: where each now lies. */
static bool place(struct ptx_machine *m, const struct ptx_kernel *k, const struct trace *t, uint64_t shift, unsigned char *params, uint64_t *at)
{
    for (uint32_t i = 0; i < t->head.n_regions; i++) {
        const struct region *r = &t->regions[i];
        if (!r->at.bytes) continue;
        at[i] = ((ptx_mem_next(m) + APART) & ~(uint64_t)(PAGE - 1)) + r->at.begin % PAGE + shift;
        if (!ptx_mem_place(m, at[i], (size_t)r->at.bytes)) return false;
        for (uint64_t b = 0, e; b < r->at.bytes; b = e) { /* runs of defined bytes */
            bool defined = r->bits[b] & TRACE_DEFINED;
            for (e = b + 1; e < r->at.bytes && (r->bits[e] & TRACE_DEFINED) == (r->bits[b] & TRACE_DEFINED);) e++;
            if (defined && !ptx_mem_write(m, at[i] + b, r->before + b, (size_t)(e - b))) return false;
        }
        for (unsigned p = 0; p < ptx_kernel_info(k)->n_params; p++) {
            unsigned offset, bytes;
            uint64_t value;
            if (!ptx_kernel_param(k, p, &offset, &bytes) || bytes != 8) continue;
            memcpy(&value, t->params + offset, 8);
            if (value != r->at.pointer) continue;
            value = at[i] - (r->at.begin - r->at.pointer);
            memcpy(params + offset, &value, 8);
        }
    }
    return true;
}

/* Is memory as the unchanged kernel left it? A byte without bits must still be nobody's. */
static bool is_same(struct ptx_machine *m, const struct trace *t, const uint64_t *at)
{
    for (uint32_t i = 0; i < t->head.n_regions; i++) {
        const struct region *r = &t->regions[i];
        size_t bytes = (size_t)r->at.bytes;
        unsigned char *now = malloc(bytes + 1), *bits = malloc(bytes + 1);
        bool same = now && bits && (!bytes || (ptx_mem_read(m, now, at[i], bytes) && ptx_mem_touched(m, bits, at[i], bytes)));
        for (size_t b = 0; same && b < bytes; b++) {
            bool was = r->bits[b] & TRACE_DEFINED_AFTER, is = bits[b] & PTX_DEFINED;
            same = was == is && (!is || now[b] == r->after[b]);
        }
        free(now);
        free(bits);
        if (!same) return false;
    }
    return true;
}

/* Addresses that are more or less aligned than the engine's. */
static const uint64_t shifts[N_SHIFTS] = {0, 4, 2};

struct schedule {
    bool early;
    unsigned seed;
};
static const struct schedule schedules[] = {{false, 0}, {true, 0}, {false, 3}};
enum { N_SCHEDULES = sizeof schedules / sizeof *schedules };

/* A kernel (or a mutant of it) in a machine of its own, for as many launches as there are until one is wrong. */
struct loaded {
    struct ptx_machine *m;
    struct ptx_kernel *k;
};

static bool load(const struct trace *t, const char *ptx, uint64_t max_steps, struct loaded *out)
{
    struct ptx_options o = {.sm = (int)t->head.sm, .max_steps = max_steps};
    out->m = ptx_machine_create(&o);
    struct ptx_module *mod = out->m ? ptx_module_load(out->m, ptx) : NULL;
    out->k = mod ? ptx_module_find(mod, t->head.kernel) : NULL;
    return out->k && ptx_kernel_info(out->k)->param_bytes == t->head.param_bytes && ptx_kernel_info(out->k)->n_params <= MAX_PARAMS;
}

static void release(struct ptx_machine *m, const struct trace *t, const uint64_t *at)
{
    for (uint32_t i = 0; i < t->head.n_regions; i++)
        if (at[i]) ptx_mem_free(m, at[i]);
}

/* Does the kernel do what it did in the engine? */
static bool does_again(const struct loaded *l, const struct trace *t, const struct schedule *s, uint64_t shift)
{
    unsigned char *params = malloc(t->head.param_bytes + 1u);
    uint64_t *at = calloc(t->head.n_regions + 1u, sizeof *at);
    const void *pointers[MAX_PARAMS];
    const uint32_t *g = t->head.grid, *b = t->head.block;
    struct ptx_launch launch = {.grid = {g[0], g[1], g[2]}, .block = {b[0], b[1], b[2]}, .dynamic_shared_bytes = t->head.dynamic_shared_bytes,
                                .params = pointers};
    bool same = params && at;
    if (same) {
        memcpy(params, t->params, t->head.param_bytes);
        for (unsigned i = 0; i < ptx_kernel_info(l->k)->n_params; i++) {
            unsigned offset = 0, bytes;
            ptx_kernel_param(l->k, i, &offset, &bytes);
            pointers[i] = params + offset;
        }
        ptx_set_early(l->m, s->early);
        ptx_set_seed(l->m, s->seed);
        same = place(l->m, l->k, t, shift, params, at) && ptx_launch(l->m, l->k, &launch) && is_same(l->m, t, at);
        release(l->m, t, at);
    }
    free(params);
    free(at);
    return same;
}

static enum mutation_fate judge(void *context, int text, const char *ptx)
{
    struct group *g = ((struct group **)context)[text];
    struct loaded l;
    enum mutation_fate fate = load(g->first, ptx, g->max_steps, &l) ? MUTANT_SURVIVED : MUTANT_INVALID;
    for (size_t n = 0; fate == MUTANT_SURVIVED && n < g->n * N_SHIFTS * N_SCHEDULES; n++) {
        size_t which = (g->best + n) % g->n, s = n / g->n % N_SCHEDULES, shift = n / g->n / N_SCHEDULES;
        const struct trace *t = &g->first[which];
        if (!t->shifts[shift] || does_again(&l, t, &schedules[s], shifts[shift])) continue;
        fate = MUTANT_CAUGHT;
        g->best = which;
    }
    ptx_machine_destroy(l.m);
    return fate;
}

/* Each trace must come out as it did in the engine, or nothing that follows means anything. A mutant may take four times as long as the
 * longest, and a little. */
static bool unchanged_is_right(struct group *g, const char *name)
{
    for (size_t i = 0; i < g->n; i++) {
        struct trace *t = &g->first[i];
        for (int n = 0; n < N_SCHEDULES * N_SHIFTS; n++) {
            struct loaded l;
            bool right = load(t, g->text, 0, &l) && does_again(&l, t, &schedules[n % N_SCHEDULES], shifts[n / N_SCHEDULES]);
            uint64_t most = l.m ? ptx_counters(l.m)->warp_insns * 4 + 10000 : 0;
            if (!right && n < N_SCHEDULES)
                fprintf(stderr, "%s: the unchanged kernel does not give what it gave: %s\n", name,
                        l.m && ptx_fault(l.m) ? ptx_report(l.m) : "other results");
            ptx_machine_destroy(l.m);
            if (!right && n < N_SCHEDULES) return false;
            if (right && most > g->max_steps) g->max_steps = most;
            t->shifts[n / N_SCHEDULES] = right && (n % N_SCHEDULES == 0 || t->shifts[n / N_SCHEDULES]);
        }
    }
    return true;
}

/* ---- families ---- */

/* n texts of one kernel. */
static bool run_kernel(const char *family, struct group *groups, size_t n, struct mutation *m)
{
    char name[TRACE_KERNEL + 256];
    const char **texts = calloc(n, sizeof *texts);
    struct group **all = calloc(n, sizeof *all);
    bool ok = texts && all;
    snprintf(name, sizeof name, "%s/%s", family, groups->first->head.kernel);
    for (size_t i = 0; ok && i < n; i++) {
        ok = unchanged_is_right(&groups[i], name);
        texts[i] = groups[i].text;
        all[i] = &groups[i];
    }
    m->name = name;
    m->context = all;
    if (ok) mutation_run(m, texts, (int)n, groups->first->head.kernel);
    free(texts);
    free(all);
    return ok;
}

static bool run_family(const char *folder, struct mutation m, struct mutation_tally *total)
{
    struct traces traces = {0};
    char name[TRACE_KERNEL + 256];
    const char *slash = strrchr(folder, '/'), *family = slash ? slash + 1 : folder;
    bool ok = traces_read(folder, &traces);
    struct group *groups = calloc(traces.n + 1, sizeof *groups);
    size_t n = 0, kernels = 0;
    for (size_t i = 0; ok && groups && i < traces.n; n++) {
        struct group *g = &groups[n];
        g->first = &traces.v[i];
        while (i < traces.n && !strcmp(traces.v[i].head.kernel, g->first->head.kernel) && traces.v[i].head.ptx == g->first->head.ptx) i++, g->n++;
        g->text = text_read(folder, g->first->head.ptx);
        ok = g->text != NULL;
    }
    for (size_t i = 0, end; ok && i < n; i = end, kernels++) {
        for (end = i + 1; end < n && !strcmp(groups[end].first->head.kernel, groups[i].first->head.kernel);) end++;
        ok = run_kernel(family, &groups[i], end - i, &m);
    }
    snprintf(name, sizeof name, "%.200s (%zu kernels in %zu texts, %zu launches)", family, kernels, n, traces.n);
    mutation_print(name, &m.tally);
    mutation_add(total, &m.tally);
    for (size_t i = 0; i < traces.n; i++) trace_free(&traces.v[i]);
    for (size_t i = 0; groups && i < n; i++) free(groups[i].text);
    free(groups);
    free(traces.v);
    return ok;
}

int main(int argc, char **argv)
{
    int every = argc > 4 ? atoi(argv[2]) : 0, least = argc > 4 ? atoi(argv[3]) : 0, count = 0;
    struct mutation_tally total = {0};
    bool ok = true;
    if (every < 1 || least < 1) {
        fprintf(stderr, "usage: mutate_printed ARGUMENTS EVERY LEAST FOLDER..\n");
        return 2;
    }
    struct mutation_arguments *arguments = mutation_arguments_read(argv[1]);
    if (!arguments) return 2;
    struct mutation m = {.arguments = arguments, .judge = judge, .every = every, .count = &count};
    for (int i = 4; i < argc; i++) ok &= run_family(argv[i], m, &total);
    mutation_print("all", &total);
    mutation_arguments_free(arguments);
    return !ok ? 2 : !mutation_enough(&total, least);
}
