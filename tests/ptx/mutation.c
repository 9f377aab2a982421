// SPDX-License-Identifier: Apache-2.0
#include "tests/ptx/mutation.h"

#include <ctype.h>
#include <fnmatch.h>
#include <regex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 2000, MAX_ARGUMENTS = 200, MOST_EQUIVALENT = 15 };

/* ---- rules ---- */

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
    if (end == comma + 1 || *end != ';' || (n && (v == 0 || v == 1))) return false; /* twice 0 is 0, and twice 1 was made already */
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

/* ---- what is argued equivalent ---- */

struct argument {
    char kernel[64], rule[32];
    regex_t pattern;
};

struct mutation_arguments {
    struct argument v[MAX_ARGUMENTS];
    int n;
};

void mutation_arguments_free(struct mutation_arguments *a)
{
    for (int i = 0; a && i < a->n; i++) regfree(&a->v[i].pattern);
    free(a);
}

struct mutation_arguments *mutation_arguments_read(const char *path)
{
    char line[MAX_LINE], pattern[MAX_LINE + 8];
    struct mutation_arguments *out = calloc(1, sizeof *out);
    FILE *f = fopen(path, "r");
    bool ok = out && f;
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
    if (ok) return out;
    mutation_arguments_free(out);
    return NULL;
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

/* A line of a text; `end` is its line feed. */
struct place {
    const char *begin, *end;
};

static const char *line_end(const char *p)
{
    const char *end = strchr(p, '\n');
    return end ? end : p + strlen(p);
}

/* The next line that is an instruction or a label. */
static struct place next_line(const char *end)
{
    struct place l = {end, end};
    while (*l.end) {
        l.begin = l.end + 1;
        l.end = line_end(l.begin);
        const char *p = l.begin;
        while (isspace((unsigned char)*p) && p < l.end) p++;
        if (p < l.end && strncmp(p, "//", 2)) return l;
    }
    return (struct place){l.end, l.end};
}

static bool is_argued(const struct mutation_arguments *a, const char *kernel, const char *rule, struct place at, const char *mutant)
{
    char from[MAX_LINE], to[MAX_LINE], next[MAX_LINE], both[2 * MAX_LINE + 8], all[3 * MAX_LINE + 16];
    struct place behind = next_line(at.end);
    bare(at.begin, (size_t)(at.end - at.begin), from);
    bare(*mutant ? mutant : "(gone)", strlen(*mutant ? mutant : "(gone)"), to);
    next[0] = 0;
    if (behind.end - behind.begin < MAX_LINE) bare(behind.begin, (size_t)(behind.end - behind.begin), next);
    snprintf(both, sizeof both, "%s -> %s", from, to);
    snprintf(all, sizeof all, "%s | %s -> %s", from, next, to);
    for (int i = 0; i < a->n; i++) {
        const struct argument *x = &a->v[i];
        size_t n = strlen(rule);
        bool with_next = !strncmp(x->rule, rule, n) && !strcmp(x->rule + n, "+");
        if (!with_next && strcmp(x->rule, rule)) continue;
        if (!fnmatch(x->kernel, kernel, 0) && !regexec(&x->pattern, with_next ? all : both, 0, NULL, 0)) return true;
    }
    return false;
}

/* ---- mutants ---- */

/* Lines without registers' numbers, constants, and the compiler's names, which have a hash of the source in them. */
static void skeleton(const char *text, size_t n, char *out)
{
    size_t at = 0;
    bare(text, n, out);
    for (const char *p = out; *p;) {
        bool number = *p == '-' || (isdigit((unsigned char)*p) && !(p > out && isalpha((unsigned char)p[-1])));
        if (!strncmp(p, "_Z", 2)) {
            while (isalnum((unsigned char)*p) || *p == '_') p++;
            continue;
        }
        if (!number) out[at++] = *p;
        p++;
    }
    out[at] = 0;
}

/* A text's lines, what each is but for numbers, and where the same line of each text stands. */
struct lines {
    const char *text;
    struct place *at;
    uint64_t *hash;
    int *id; /* the same for lines of several texts that are one; -1 where nothing is to be changed */
    int n;
};

static uint64_t hash_of(struct place l)
{
    char bones[MAX_LINE];
    uint64_t h = UINT64_C(14695981039346656037);
    if (l.end - l.begin >= MAX_LINE) return 0;
    skeleton(l.begin, (size_t)(l.end - l.begin), bones);
    for (const char *p = bones; *p; p++) h = (h ^ (unsigned char)*p) * UINT64_C(1099511628211);
    return h;
}

/* Lines within the bodies of the entries that begin `kernel`. */
static bool lines_read(struct lines *l, const char *text, const char *kernel)
{
    bool inside = false, body = false;
    int cap = 1;
    for (const char *p = text; *p; p++) cap += *p == '\n';
    *l = (struct lines){.text = text};
    l->at = calloc((size_t)cap, sizeof *l->at);
    l->hash = calloc((size_t)cap, sizeof *l->hash);
    l->id = calloc((size_t)cap, sizeof *l->id);
    if (!l->at || !l->hash || !l->id) return false;
    for (const char *p = text, *end; *p; p = *end ? end + 1 : end, l->n++) {
        end = line_end(p);
        const char *entry = strstr(p, ".entry ");
        if (entry && entry < end) {
            size_t len = strcspn(entry + 7, "(\n");
            inside = len <= strlen(kernel) && !strncmp(entry + 7, kernel, len);
            body = false;
        }
        if (inside && *p == '{') body = true;
        l->at[l->n] = (struct place){p, end};
        l->hash[l->n] = hash_of(l->at[l->n]);
        l->id[l->n] = inside && body && end - p < MAX_LINE ? 0 : -1;
    }
    return true;
}

static void lines_free(struct lines *l)
{
    free(l->at);
    free(l->hash);
    free(l->id);
}

/* Lines of b that have no number yet take that of their like in a. */
static bool align(const struct lines *a, struct lines *b, bool *numbered)
{
    size_t w = (size_t)b->n + 1;
    uint16_t *t = calloc(((size_t)a->n + 1) * w, sizeof *t); /* length of the longest common rest */
    if (!t) return false;
    for (int i = a->n - 1; i >= 0; i--)
        for (int j = b->n - 1; j >= 0; j--) {
            uint16_t *here = &t[(size_t)i * w + (size_t)j];
            *here = a->hash[i] == b->hash[j] ? (uint16_t)(here[w + 1] + 1) : here[w] > here[1] ? here[w] : here[1];
        }
    for (int i = 0, j = 0; i < a->n && j < b->n;) {
        const uint16_t *here = &t[(size_t)i * w + (size_t)j];
        if (a->hash[i] == b->hash[j]) {
            if (!numbered[j] && b->id[j] >= 0 && a->id[i] >= 0) {
                b->id[j] = a->id[i];
                numbered[j] = true;
            }
            i++, j++;
        } else if (here[w] >= here[1]) {
            i++;
        } else {
            j++;
        }
    }
    free(t);
    return true;
}

/* Numbers for all lines; how many there are, -1: out of memory. */
static int number_lines(struct lines *l, int n)
{
    int ids = 0;
    for (int i = 0; i < n; i++) {
        bool *numbered = calloc((size_t)l[i].n + 1, sizeof *numbered), ok = numbered != NULL;
        for (int j = 0; ok && j < i; j++) ok = align(&l[j], &l[i], numbered);
        for (int k = 0; ok && k < l[i].n; k++)
            if (!numbered[k] && l[i].id[k] >= 0) l[i].id[k] = ids++;
        free(numbered);
        if (!ok) return -1;
    }
    return ids;
}

static enum mutation_fate try_text(struct mutation *m, int which, const char *text, struct place at, const char *mutant)
{
    size_t cap = strlen(text) + MAX_LINE;
    char *whole = malloc(cap);
    if (!whole) return MUTANT_SURVIVED;
    snprintf(whole, cap, "%.*s%s%s", (int)(at.begin - text), text, mutant, at.end);
    enum mutation_fate fate = m->judge(m->context, which, whole);
    free(whole);
    return fate;
}

/* Does nothing reach the line? Then a trap in its place does not show either. */
static bool is_unreached(struct mutation *m, const struct lines *l, const int *line, int n)
{
    for (int i = 0; i < n; i++)
        if (line[i] >= 0 && try_text(m, i, l[i].text, l[i].at[line[i]], "trap;") != MUTANT_SURVIVED) return false;
    return true;
}

/* Mutant k of a rule, in every text that has the line: line[i] of text i, -1 where it has none. False: there is no such mutant. */
static bool try_mutant(struct mutation *m, const struct lines *l, const int *line, int n, size_t rule, int k)
{
    char original[MAX_LINE], mutant[MAX_LINE], first[MAX_LINE];
    int shown = -1;
    bool valid = false, caught = false, taken = false;
    for (int i = 0; i < n && !caught; i++) {
        if (line[i] < 0) continue;
        struct place at = l[i].at[line[i]];
        memcpy(original, at.begin, (size_t)(at.end - at.begin));
        original[at.end - at.begin] = 0;
        if (!rules[rule].fn(original, k, mutant)) continue;
        if (shown < 0) {
            taken = (*m->count)++ % m->every == 0;
            shown = i;
            strcpy(first, mutant);
        }
        if (!taken) return true;
        enum mutation_fate fate = try_text(m, i, l[i].text, at, mutant);
        valid |= fate != MUTANT_INVALID;
        caught |= fate == MUTANT_CAUGHT;
    }
    if (shown < 0) return false;
    struct place at = l[shown].at[line[shown]];
    m->tally.made++;
    if (caught) {
        m->tally.caught++;
    } else if (!valid) {
        m->tally.invalid++;
    } else if (is_argued(m->arguments, m->name, rules[rule].name, at, first)) {
        m->tally.equivalent++;
    } else {
        bool unreached = is_unreached(m, l, line, n);
        m->tally.survived++;
        m->tally.unreached += unreached;
        printf("%s %s line %d %s: %.*s -> %s\n", unreached ? "unreached" : "survived", m->name, line[shown] + 1, rules[rule].name,
               (int)(at.end - at.begin), at.begin, *first ? first : "(gone)");
    }
    return true;
}

void mutation_run(struct mutation *m, const char *const *texts, int n, const char *kernel)
{
    struct lines *l = calloc((size_t)n, sizeof *l);
    int *where = NULL, ids = l ? 0 : -1;
    for (int i = 0; i < n && !ids; i++) ids = lines_read(&l[i], texts[i], kernel) ? 0 : -1;
    if (!ids) ids = number_lines(l, n);
    if (ids > 0) where = malloc((size_t)ids * (size_t)n * sizeof *where);
    if (where) memset(where, 0xff, (size_t)ids * (size_t)n * sizeof *where);
    for (int i = 0; where && i < n; i++)
        for (int k = 0; k < l[i].n; k++)
            if (l[i].id[k] >= 0) where[l[i].id[k] * n + i] = k;
    for (int id = 0; where && id < ids; id++)
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
            for (int k = 0; try_mutant(m, l, &where[id * n], n, r, k);) k++;
    for (int i = 0; l && i < n; i++) lines_free(&l[i]);
    free(where);
    free(l);
}

void mutation_add(struct mutation_tally *sum, const struct mutation_tally *t)
{
    sum->made += t->made;
    sum->invalid += t->invalid;
    sum->caught += t->caught;
    sum->equivalent += t->equivalent;
    sum->survived += t->survived;
    sum->unreached += t->unreached;
}

void mutation_print(const char *name, const struct mutation_tally *t)
{
    int judged = t->caught + t->survived, all = judged + t->equivalent;
    printf("%s: %d mutants, %d invalid, %d caught (%.1f%% of those not argued), %d argued equivalent (%.1f%%), %d survived, %d of them unreached\n",
           name, t->made, t->invalid, t->caught, judged ? 100.0 * t->caught / judged : 0.0, t->equivalent, all ? 100.0 * t->equivalent / all : 0.0, t->survived, t->unreached);
    fflush(stdout);
}

bool mutation_enough(const struct mutation_tally *t, int least)
{
    int judged = t->caught + t->survived;
    return judged && t->caught * 100 >= least * judged && t->equivalent * 100 <= MOST_EQUIVALENT * (judged + t->equivalent);
}
