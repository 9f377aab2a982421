// SPDX-License-Identifier: Apache-2.0
/*
 * Mutation testing of the proof itself: faults are put into the PTX of the validation kernels, one a time and by
 * rule, and the machine (with the check of the numbers) must notice each.
 *
 *   usage: mutate SOURCE_FOLDER INCLUDE_FOLDER [KERNELS] [EVERY] [LEAST]
 *
 * KERNELS: names with commas between them, "" for all. EVERY takes one mutant of so many. Each survivor is a line: kernel, PTX line,
 * rule, the instruction and what it became. Survivors that SOURCE_FOLDER/equivalent.txt argues to mean the same are counted, not
 * printed; the others are gaps. Exit status 1: of the mutants that are not argued equivalent fewer than LEAST (95) percent were caught, or
 * more than 15% of all are argued equivalent.
 *
 * equivalent.txt: lines "KERNEL RULE PATTERN": a glob, the rule's name, and an extended regular expression for the whole of
 * "INSTRUCTION -> MUTANT", where registers have lost their numbers (%r12 is %r) and spaces are single. Comments say why.
 */
#include <ctype.h>
#include <fnmatch.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/validate/kernels.h"
#include "tests/ptx/validate/nvrtc.h"

enum { MAX_LINE = 2000, MAX_STEPS = 3000000, MAX_ARGUMENTS = 200, LEAST_CAUGHT = 95, MOST_EQUIVALENT = 15 };

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
    int made, invalid, caught, equivalent, survived;
};

/* ---- what is argued equivalent ---- */

struct argument {
    char kernel[64], rule[32];
    regex_t pattern;
};

struct arguments {
    struct argument v[MAX_ARGUMENTS];
    int n;
};

static bool arguments_read(const char *folder, struct arguments *out)
{
    char path[MAX_LINE], line[MAX_LINE], pattern[MAX_LINE + 8];
    snprintf(path, sizeof path, "%s/equivalent.txt", folder);
    FILE *f = fopen(path, "r");
    bool ok = f != NULL;
    while (ok && fgets(line, sizeof line, f)) {
        struct argument *a = &out->v[out->n];
        int at = 0;
        line[strcspn(line, "\n")] = 0;
        if (!*line || *line == '#') continue;
        ok = out->n < MAX_ARGUMENTS && sscanf(line, "%63s %31s %n", a->kernel, a->rule, &at) == 2 && at;
        if (ok) {
            snprintf(pattern, sizeof pattern, "^(%s)$", line + at);
            ok = !regcomp(&a->pattern, pattern, REG_EXTENDED | REG_NOSUB);
        }
        if (ok) out->n++;
        else fprintf(stderr, "%s: bad line: %s\n", path, line);
    }
    if (f) fclose(f);
    else fprintf(stderr, "%s cannot be read\n", path);
    return ok;
}

/* The text without the numbers of registers, and with single spaces. */
static void bare(const char *text, size_t n, char *out)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        bool space = isspace((unsigned char)text[i]);
        if (space && (!at || out[at - 1] == ' ')) continue;
        out[at++] = space ? ' ' : text[i];
        if (text[i] == '%' && i + 1 < n && isalpha((unsigned char)text[i + 1])) {
            while (i + 1 < n && isalpha((unsigned char)text[i + 1])) out[at++] = text[++i];
            while (i + 1 < n && isdigit((unsigned char)text[i + 1])) i++;
        }
    }
    out[at] = 0;
}

static bool is_argued(const struct arguments *a, const char *kernel, const char *rule, const char *begin, const char *end, const char *mutant)
{
    char from[MAX_LINE], to[MAX_LINE], both[2 * MAX_LINE + 8];
    bare(begin, (size_t)(end - begin), from);
    bare(*mutant ? mutant : "(gone)", strlen(*mutant ? mutant : "(gone)"), to);
    snprintf(both, sizeof both, "%s -> %s", from, to);
    for (int i = 0; i < a->n; i++)
        if (!strcmp(a->v[i].rule, rule) && !fnmatch(a->v[i].kernel, kernel, 0) && !regexec(&a->v[i].pattern, both, 0, NULL, 0)) return true;
    return false;
}

/* ---- mutants ---- */

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

static void try_mutant(const struct validation *v, const struct arguments *args, const char *text, const char *begin, const char *end, int line,
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
    } else if (is_argued(args, v->name, rule, begin, end, mutant)) {
        t->equivalent++;
    } else {
        t->survived++;
        printf("survived %s line %d %s: %.*s -> %s\n", v->name, line, rule, (int)(end - begin), begin, *mutant ? mutant : "(gone)");
    }
}

/* The lines of the kernel that the validation runs: its entry has the validation's name, or begins it. */
static void mutate_kernel(const struct validation *v, const struct arguments *args, const char *text, int every, struct tally *t, int *count)
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
                    if ((*count)++ % every == 0) try_mutant(v, args, text, p, end, line, rules[i].name, mutant, t);
        }
        p = *end ? end + 1 : end;
    }
}

static void print_tally(const char *name, const struct tally *t)
{
    printf("%s: %d mutants, %d invalid, %d caught, %d argued equivalent, %d survived\n", name, t->made, t->invalid, t->caught, t->equivalent, t->survived);
    fflush(stdout);
}

static bool is_wanted(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && !strncmp(p, name, n)) return true;
    return !*list;
}

int main(int argc, char **argv)
{
    static struct arguments arguments;
    const char *reason, *only = argc > 3 ? argv[3] : "";
    int every = argc > 4 ? atoi(argv[4]) : 1, least = argc > 5 ? atoi(argv[5]) : LEAST_CAUGHT, count = 0;
    struct tally total = {0};
    bool usable = argc > 2 && arguments_read(argv[1], &arguments);
    struct nvrtc *n = argc > 2 ? nvrtc_open(argv[2], &reason) : NULL;
    if (argc < 3 || every < 1) {
        fprintf(stderr, "usage: mutate SOURCE_FOLDER INCLUDE_FOLDER [KERNELS] [EVERY] [LEAST]\n");
        return 2;
    }
    if (!usable) return 2;
    if (!n) {
        printf("skip mutate: %s\n", reason);
        return 0;
    }
    for (int i = 0; i < n_validations; i++) {
        const struct validation *v = &validations[i];
        if (!is_wanted(only, v->name) || (v->cutlass && !getenv("INFC_CUTLASS"))) continue;
        char *ptx = nvrtc_compile_file(n, argv[1], v->source, v->arch);
        struct tally t = {0};
        if (ptx) mutate_kernel(v, &arguments, ptx, every, &t, &count);
        print_tally(v->name, &t);
        total.made += t.made;
        total.invalid += t.invalid;
        total.caught += t.caught;
        total.equivalent += t.equivalent;
        total.survived += t.survived;
        free(ptx);
    }
    print_tally("all", &total);
    nvrtc_close(n);
    int judged = total.caught + total.survived;
    bool enough = total.caught * 100 >= least * judged && total.equivalent * 100 <= MOST_EQUIVALENT * (judged + total.equivalent);
    printf("%.1f%% of those not argued equivalent caught, %.1f%% of all argued equivalent\n", judged ? 100.0 * total.caught / judged : 0.0,
           judged ? 100.0 * total.equivalent / (judged + total.equivalent) : 0.0);
    return !judged || !enough;
}
