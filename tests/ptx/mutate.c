// SPDX-License-Identifier: Apache-2.0
/*
 * Mutation testing of the proof itself: faults are put into the PTX of the validation kernels, one a time and by
 * rule, and the machine (with the check of the numbers) must notice each.
 *
 *   usage: mutate SOURCE_FOLDER INCLUDE_FOLDER [KERNEL] [EVERY]
 *
 * EVERY takes one mutant of so many. Each survivor is a line: kernel, PTX line, rule, the instruction and what it
 * became. A survivor is either equivalent (the program means the same) or a gap; the last line counts them.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/validate/kernels.h"
#include "tests/ptx/validate/nvrtc.h"

enum { MAX_LINE = 2000, MAX_STEPS = 3000000 };

/* A rule makes mutant `n` of a line (0, 1 ...), or returns false when there are no more. */
typedef bool (*rule_fn)(const char *line, int n, char *out);

static bool starts(const char *line, const char *prefix)
{
    while (isspace((unsigned char)*line)) line++;
    if (*line == '@') { /* past the guard */
        while (*line && !isspace((unsigned char)*line)) line++;
        while (isspace((unsigned char)*line)) line++;
    }
    return !strncmp(line, prefix, strlen(prefix));
}

/* The line with `from` (its first occurrence from `at` on) replaced. */
static bool replaced(const char *line, const char *from, const char *to, char *out)
{
    const char *p = strstr(line, from);
    if (!p) return false;
    snprintf(out, MAX_LINE, "%.*s%s%s", (int)(p - line), line, to, p + strlen(from));
    return true;
}

static bool drop_order(const char *line, int n, char *out)
{
    static const char *const dropped[] = {"bar.sync", "bar.warp.sync", "barrier.sync", "cp.async.wait", "cp.async.commit",
                                          "membar", "fence", "wgmma.fence", "wgmma.wait", "wgmma.commit",
                                          "mbarrier.arrive", "mbarrier.init", "cp.async.bulk.wait"};
    for (size_t i = 0; !n && i < sizeof dropped / sizeof *dropped; i++)
        if (starts(line, dropped[i])) {
            out[0] = 0;
            return true;
        }
    return false;
}

static bool weaken(const char *line, int n, char *out)
{
    if (starts(line, "bar.sync")) return !n && replaced(line, "bar.sync \t0", "bar.warp.sync \t-1", out);
    if (starts(line, "cp.async.wait_group")) {
        static const char *const to[] = {"1;", "2;", "3;"};
        const char *p = strrchr(line, ';');
        int have = p && p > line ? p[-1] - '0' : 9;
        if (n > 0 || have < 0 || have > 2) return false;
        char from[3] = {(char)('0' + have), ';', 0};
        return replaced(line, from, to[have], out);
    }
    if (starts(line, "membar.gl")) return !n && replaced(line, "membar.gl", "membar.cta", out);
    if (starts(line, "atom.")) return !n && replaced(line, ".add.", ".exch.", out);
    return false;
}

static bool mask(const char *line, int n, char *out)
{
    static const char *const swaps[][2] = {{".lt.", ".le."}, {".le.", ".lt."}, {".gt.", ".ge."}, {".ge.", ".gt."},
                                           {".eq.", ".ne."}, {".ne.", ".eq."}};
    if (n || !starts(line, "setp.")) return false;
    for (size_t i = 0; i < sizeof swaps / sizeof *swaps; i++)
        if (replaced(line, swaps[i][0], swaps[i][1], out)) return true;
    return false;
}

/* The last integer constant of an index computation, off by one or doubled. */
static bool index_off(const char *line, int n, char *out)
{
    static const char *const ops[] = {"add.s32", "add.s64", "shl.b32", "shl.b64", "and.b32", "mad.lo", "mul.wide", "shr.u32",
                                      "shr.s32", "or.b32", "mul.lo"};
    bool is = false;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) is |= starts(line, ops[i]);
    const char *comma = strrchr(line, ','), *end;
    if (!is || !comma || n > 1) return false;
    char *stop;
    long v = strtol(comma + 1, &stop, 10);
    end = stop;
    if (end == comma + 1 || *end != ';') return false;
    snprintf(out, MAX_LINE, "%.*s %ld%s", (int)(comma + 1 - line), line, n ? v * 2 : v + 1, end);
    return true;
}

static bool address_off(const char *line, int n, char *out)
{
    const char *plus = strchr(line, '+'), *close = plus ? strchr(plus, ']') : NULL;
    if (n || !close || (!starts(line, "ld.") && !starts(line, "st.") && !starts(line, "ldmatrix") && !starts(line, "cp.async")))
        return false;
    long v = strtol(plus + 1, NULL, 10);
    snprintf(out, MAX_LINE, "%.*s+%ld%s", (int)(plus - line), line, v + 16, close);
    return true;
}

static bool swizzle(const char *line, int n, char *out)
{
    if (starts(line, "xor.b32")) return !n && replaced(line, "xor.b32", "or.b32", out);
    if (starts(line, "shfl.sync.bfly")) return !n && replaced(line, ".bfly.", ".down.", out);
    if (starts(line, "ldmatrix")) return !n && (replaced(line, ".trans.", ".", out) || replaced(line, ".x4.shared", ".x4.trans.shared", out));
    return false;
}

static const struct {
    const char *name;
    rule_fn fn;
} rules[] = {{"drop", drop_order}, {"weaken", weaken}, {"mask", mask}, {"index", index_off}, {"address", address_off}, {"swizzle", swizzle}};

struct tally {
    int made, invalid, caught, survived;
};

/* Does the machine notice? -1: the mutant is no valid program. */
static int caught(const struct validation *v, const char *ptx, bool early, unsigned seed)
{
    struct ptx_options o = {.sm = atoi(v->arch), .early = early, .seed = seed, .max_steps = MAX_STEPS};
    struct ptx_machine *m = ptx_machine_create(&o);
    struct ptx_module *mod = m ? ptx_module_load(m, ptx) : NULL;
    int result = !mod ? -1 : v->run(m, mod, v->name) != NULL;
    ptx_machine_destroy(m);
    return result;
}

static void try_mutant(const struct validation *v, const char *text, const char *begin, const char *end, int line,
                       const char *rule, const char *mutant, struct tally *t)
{
    size_t cap = strlen(text) + MAX_LINE;
    char *whole = malloc(cap);
    if (!whole) return;
    snprintf(whole, cap, "%.*s%s%s", (int)(begin - text), text, mutant, end);
    t->made++;
    int r = caught(v, whole, false, 0);
    if (!r) r = caught(v, whole, true, 0);
    if (!r) r = caught(v, whole, false, 3);
    free(whole);
    if (r < 0) {
        t->invalid++;
    } else if (r) {
        t->caught++;
    } else {
        t->survived++;
        printf("survived %s line %d %s: %.*s -> %s\n", v->name, line, rule, (int)(end - begin), begin, *mutant ? mutant : "(gone)");
    }
}

/* The lines of the kernel that the validation runs: its entry has the validation's name, or begins it. */
static void mutate_kernel(const struct validation *v, const char *text, int every, struct tally *t, int *count)
{
    char original[MAX_LINE], mutant[MAX_LINE];
    bool inside = false, body = false;
    int line = 1;
    for (const char *p = text; *p; line++) {
        const char *end = strchr(p, '\n');
        if (!end) end = p + strlen(p);
        size_t n = (size_t)(end - p);
        const char *entry = n < MAX_LINE ? strstr(p, ".entry ") : NULL;
        if (entry && entry < end) {
            const char *name = entry + 7;
            size_t len = strcspn(name, "(\n");
            inside = len <= strlen(v->name) && !strncmp(name, v->name, len);
            body = false;
        }
        if (inside && *p == '{') body = true;
        if (inside && body && n < MAX_LINE) {
            memcpy(original, p, n);
            original[n] = 0;
            for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
                for (int k = 0; rules[i].fn(original, k, mutant); k++)
                    if ((*count)++ % every == 0) try_mutant(v, text, p, end, line, rules[i].name, mutant, t);
        }
        p = *end ? end + 1 : end;
    }
}

int main(int argc, char **argv)
{
    const char *reason, *only = argc > 3 ? argv[3] : "";
    int every = argc > 4 ? atoi(argv[4]) : 1, count = 0;
    struct tally total = {0};
    struct nvrtc *n = argc > 2 ? nvrtc_open(argv[2], &reason) : NULL;
    if (argc < 3 || every < 1) {
        fprintf(stderr, "usage: mutate SOURCE_FOLDER INCLUDE_FOLDER [KERNEL] [EVERY]\n");
        return 2;
    }
    if (!n) {
        printf("skip mutate: %s\n", reason);
        return 0;
    }
    for (int i = 0; i < n_validations; i++) {
        const struct validation *v = &validations[i];
        if ((*only && strcmp(only, v->name)) || (v->cutlass && !getenv("INFC_CUTLASS"))) continue;
        char *ptx = nvrtc_compile_file(n, argv[1], v->source, v->arch);
        struct tally t = {0};
        if (ptx) mutate_kernel(v, ptx, every, &t, &count);
        printf("%s: %d mutants, %d invalid, %d caught, %d survived\n", v->name, t.made, t.invalid, t.caught, t.survived);
        fflush(stdout);
        total.made += t.made;
        total.invalid += t.invalid;
        total.caught += t.caught;
        total.survived += t.survived;
        free(ptx);
    }
    printf("all: %d mutants, %d invalid, %d caught, %d survived\n", total.made, total.invalid, total.caught, total.survived);
    nvrtc_close(n);
    return 0;
}
