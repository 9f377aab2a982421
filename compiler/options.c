// SPDX-License-Identifier: Apache-2.0
#include "compiler/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct option_row {
    const char *name, *arg;
    unsigned commands;
    const char *help;
};

static const struct option_row table[] = {
#define OPT(ID, name, arg, commands, help) {name, arg, commands, help},
#include "compiler/options.def"
#undef OPT
};

static size_t long_len(const struct option_row *r) { return strcspn(r->name, "|"); }
static char short_name(const struct option_row *r) { return r->name[long_len(r)] ? r->name[long_len(r) + 1] : 0; }

static int find_long(const char *name, size_t len, unsigned command)
{
    for (int i = 0; i < OPT_COUNT; i++)
        if (long_len(&table[i]) == len && !strncmp(table[i].name, name, len) && (table[i].commands & command)) return i;
    return -1;
}

static int find_short(char c, unsigned command)
{
    for (int i = 0; i < OPT_COUNT; i++)
        if (c && short_name(&table[i]) == c && (table[i].commands & command)) return i;
    return -1;
}

/* Edit distance with early bound, for "did you mean". */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t row[64];
    if (na >= 64 || nb >= 64) return 99;
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diag_cell = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t up = row[j], best = diag_cell + (a[i - 1] != b[j - 1]);
            if (up + 1 < best) best = up + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diag_cell = up;
            row[j] = best;
        }
    }
    return row[nb];
}

struct nearest nearest_begin(const char *given) { return (struct nearest){.given = given, .best = 4}; }

void nearest_offer(struct nearest *n, const char *name)
{
    size_t d = distance(n->given, strlen(n->given), name, strlen(name));
    if (d < n->best) n->best = d, n->name = name;
}

static bool unknown(struct diag_sink *diag, const char *arg, unsigned command)
{
    const char *name = arg + strspn(arg, "-");
    size_t len = strcspn(name, "="), best = 4;
    int near = -1;
    for (int i = 0; i < OPT_COUNT; i++) {
        if (!(table[i].commands & command)) continue;
        size_t d = distance(name, len, table[i].name, long_len(&table[i]));
        if (d < best) best = d, near = i;
    }
    if (near < 0) return diag_report(diag, DIAG_OPTION, NULL, "unknown option '%s'", arg);
    return diag_report(diag, DIAG_OPTION, NULL, "unknown option '%s'; did you mean --%.*s?", arg,
                       (int)long_len(&table[near]), table[near].name);
}

bool options_parse(struct options *o, unsigned command, int argc, char **argv, struct diag_sink *diag)
{
    *o = (struct options){.command = command};
    arena_init(&o->arena);
    bool only_args = false, ok = true;
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i], *value = NULL;
        if (only_args || a[0] != '-' || !a[1]) {
            vec_push(&o->arena, &o->args, a);
            continue;
        }
        if (!strcmp(a, "--")) {
            only_args = true;
            continue;
        }
        int id;
        if (a[1] == '-') {
            size_t len = strcspn(a + 2, "=");
            id = find_long(a + 2, len, command);
            if (a[2 + len] == '=') value = a + 3 + len;
        } else {
            id = find_short(a[1], command);
            if (a[2]) value = a + 2;
        }
        if (id < 0) {
            ok = unknown(diag, a, command);
            continue;
        }
        const struct option_row *r = &table[id];
        if (!r->arg && value) ok = diag_report(diag, DIAG_OPTION, NULL, "option '%s' takes no value", a);
        if (!r->arg || (r->arg[0] == '=' && !value)) value = value ? value : "";
        if (!value && i + 1 < argc) value = argv[++i];
        if (!value) {
            ok = diag_report(diag, DIAG_OPTION, NULL, "option '%s' needs a value: %s", a, r->arg);
            continue;
        }
        vec_push(&o->arena, &o->values[id], value);
    }
    return ok;
}

void options_deinit(struct options *o) { arena_deinit(&o->arena); }

bool option_given(const struct options *o, enum option_id id) { return o->values[id].n > 0; }

const char *option_value(const struct options *o, enum option_id id, const char *dflt)
{
    return o->values[id].n ? o->values[id].v[o->values[id].n - 1] : dflt;
}

bool option_int(const struct options *o, enum option_id id, int64_t lo, int64_t hi, int64_t dflt, int64_t *out,
                struct diag_sink *diag)
{
    const char *s = option_value(o, id, NULL);
    *out = dflt;
    if (!s) return true;
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || *end || end == s || v < lo || v > hi)
        return diag_report(diag, DIAG_OPTION, NULL, "--%.*s=%s: expected an integer from %lld to %lld", (int)long_len(&table[id]),
                           table[id].name, s, (long long)lo, (long long)hi);
    *out = v;
    return true;
}

void options_help(FILE *out, unsigned command)
{
    for (int i = 0; i < OPT_COUNT; i++) {
        const struct option_row *r = &table[i];
        if (!(r->commands & command)) continue;
        char left[64];
        int n = short_name(r) ? snprintf(left, sizeof left, "-%c, ", short_name(r)) : 0;
        n += snprintf(left + n, sizeof left - (size_t)n, "--%.*s", (int)long_len(r), r->name);
        if (r->arg && r->arg[0] == '=') snprintf(left + n, sizeof left - (size_t)n, "[%s]", r->arg);
        else if (r->arg) snprintf(left + n, sizeof left - (size_t)n, "=%s", r->arg);
        fprintf(out, "  %-26s %s\n", left, r->help);
    }
}

void options_markdown(FILE *out)
{
    static const struct {
        unsigned bit;
        const char *name;
    } commands[] = {{CMD_BUILD, "infc build"}, {CMD_CHECK, "infc check"}, {CMD_INSPECT, "infc inspect"}, {CMD_VERIFY, "infc verify"},
                    {CMD_OPT, "infc-opt"}, {CMD_TARGETS, "infc targets"}, {CMD_OPS, "infc ops"}, {CMD_PASSES, "infc passes"},
                    {CMD_EXPLAIN, "infc explain"}, {CMD_DOCS, "infc docs"}, {CMD_BENCH, "infc bench"}, {CMD_SERVE, "infc serve"}};
    fputs("# Options\n\nGenerated from `compiler/options.def`.\n", out);
    for (size_t c = 0; c < ARRAY_LEN(commands); c++) {
        fprintf(out, "\n## %s\n\n| option | value | what |\n|---|---|---|\n", commands[c].name);
        for (int i = 0; i < OPT_COUNT; i++) {
            const struct option_row *r = &table[i];
            if (!(r->commands & commands[c].bit)) continue;
            fprintf(out, "| `--%.*s`", (int)long_len(r), r->name);
            if (short_name(r)) fprintf(out, " `-%c`", short_name(r));
            fputs(" | ", out);
            for (const char *p = r->arg ? r->arg : ""; *p; p++) fprintf(out, *p == '|' ? "\\|" : "%c", *p);
            fputs(" | ", out);
            for (const char *p = r->help; *p; p++) fprintf(out, *p == '|' ? "\\|" : "%c", *p);
            fputs(" |\n", out);
        }
    }
}
