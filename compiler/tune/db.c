// SPDX-License-Identifier: Apache-2.0
#define _POSIX_C_SOURCE 200809L
#include "compiler/tune/db.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/support/str.h"

enum { MAX_FILE_BYTES = 64 << 20, MAX_LINE = 512 };

void tune_db_init(struct tune_db *db)
{
    memset(db, 0, sizeof *db);
    arena_init(&db->arena);
    map_init(&db->by_key, &db->arena);
}

void tune_db_deinit(struct tune_db *db) { arena_deinit(&db->arena); }

uint64_t tune_kernel_hash(const struct lp_kernel *k)
{
    struct strbuf text = {0};
    lp_print(&text, k, true);
    uint64_t h = hash_bytes(strbuf_get(&text), text.len, 0);
    strbuf_deinit(&text);
    return h;
}

static bool parse_knobs(char *text, struct knob_values *out)
{
    char *save = NULL;
    if (!strcmp(text, "-")) return true;
    for (char *w = strtok_r(text, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
        char *eq = strchr(w, '='), *end;
        int k = eq ? knob_find(w, (size_t)(eq - w)) : -1;
        if (k < 0) return false;
        errno = 0;
        long long v = strtoll(eq + 1, &end, 10);
        if (errno || end == eq + 1 || *end || !knob_in_range((enum knob)k, v)) return false;
        out->set[k] = true, out->value[k] = v;
    }
    return true;
}

/* Words by their widths of the entry's fields; false when it is no entry. */
static bool parse_line(const char *line, struct tune_entry *e)
{
    char hash[24], level[8], cpu[48], knobs[256];
    int end = 0;
    *e = (struct tune_entry){0};
    if (sscanf(line, "%23s %7s %47s %255s %lf %lf %n", hash, level, cpu, knobs, &e->us_before, &e->us_after, &end) != 6 || line[end]) return false;
    if (strlen(hash) != 16 || strspn(hash, "0123456789abcdef") != 16) return false;
    if (!isfinite(e->us_before) || !isfinite(e->us_after) || e->us_before < 0 || e->us_after < 0) return false;
    e->kernel = strtoull(hash, NULL, 16);
    memcpy(e->level, level, sizeof level);
    memcpy(e->cpu, cpu, sizeof cpu);
    return parse_knobs(knobs, &e->values);
}

bool tune_db_parse(struct tune_db *db, const char *text, size_t len, const char *path, struct diag_sink *diag)
{
    bool ok = true;
    int number = 0;
    for (size_t at = 0; at < len;) {
        const char *nl = memchr(text + at, '\n', len - at);
        size_t n = nl ? (size_t)(nl - (text + at)) : len - at;
        char line[MAX_LINE];
        struct tune_entry e;
        const char *start = text + at;
        at += n + 1;
        number++;
        while (n && (*start == ' ' || *start == '\t')) start++, n--;
        if (!n || *start == '#' || *start == '\r') continue;
        bool fits = n < sizeof line && !memchr(start, 0, n);
        if (fits) memcpy(line, start, n), line[n] = 0;
        if (fits && parse_line(line, &e)) {
            tune_db_put(db, &e);
            continue;
        }
        char *where = arena_printf(&db->arena, "%s:%d", path, number);
        ok = diag_report_remedy(diag, DIAG_OPTION, where, "remove the line, or tune again", "not an entry of a tuning database");
        if (diag->error_count > 20) return false;
    }
    return ok;
}

bool tune_db_read(struct tune_db *db, const char *path, bool may_miss, struct diag_sink *diag)
{
    FILE *f = fopen(path, "rb");
    if (!f && errno == ENOENT && may_miss) return true;
    if (!f) return diag_report(diag, DIAG_FILE_READ, path, "%s", strerror(errno));
    struct strbuf text = {0};
    char piece[1 << 16];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0 && text.len <= MAX_FILE_BYTES) strbuf_putn(&text, piece, n);
    bool ok = !ferror(f) || diag_report(diag, DIAG_FILE_READ, path, "%s", strerror(errno));
    fclose(f);
    if (ok && text.len > MAX_FILE_BYTES) ok = diag_report(diag, DIAG_FILE_READ, path, "larger than a tuning database can be");
    ok = ok && tune_db_parse(db, strbuf_get(&text), text.len, path, diag);
    strbuf_deinit(&text);
    return ok;
}

struct key {
    uint64_t kernel;
    char level[8], cpu[48];
};

static struct key key_of(uint64_t kernel, const char *level, const char *cpu)
{
    struct key k;
    memset(&k, 0, sizeof k); /* padding and what lies behind the texts count as well */
    k.kernel = kernel;
    snprintf(k.level, sizeof k.level, "%s", level);
    snprintf(k.cpu, sizeof k.cpu, "%s", cpu);
    return k;
}

void tune_db_put(struct tune_db *db, const struct tune_entry *e)
{
    struct key k = key_of(e->kernel, e->level, e->cpu);
    size_t at = (size_t)(uintptr_t)map_find(&db->by_key, &k, sizeof k);
    if (at) {
        db->entries.v[at - 1] = *e;
        return;
    }
    vec_push(&db->arena, &db->entries, *e);
    map_put(&db->by_key, &k, sizeof k, (void *)(uintptr_t)db->entries.n);
}

const struct tune_entry *tune_db_find(const struct tune_db *db, uint64_t kernel, const char *level, const char *cpu)
{
    struct key k = key_of(kernel, level, cpu);
    size_t at = (size_t)(uintptr_t)map_find(&db->by_key, &k, sizeof k);
    return at ? &db->entries.v[at - 1] : NULL;
}

static int by_key(const void *x, const void *y)
{
    const struct tune_entry *a = x, *b = y;
    int c = strcmp(a->cpu, b->cpu);
    if (!c) c = strcmp(a->level, b->level);
    return c ? c : a->kernel < b->kernel ? -1 : a->kernel > b->kernel;
}

static void print_entry(FILE *f, const struct tune_entry *e)
{
    bool any = false;
    fprintf(f, "%016llx %s %s ", (unsigned long long)e->kernel, e->level, e->cpu);
    for (int k = 0; k < KNOB_COUNT; k++)
        if (e->values.set[k]) {
            fprintf(f, "%s%s=%lld", any ? "," : "", knob_name((enum knob)k), (long long)e->values.value[k]);
            any = true;
        }
    fprintf(f, "%s %.2f %.2f\n", any ? "" : "-", e->us_before, e->us_after);
}

bool tune_db_write(struct tune_db *db, const char *path, struct diag_sink *diag)
{
    char *beside = arena_printf(&db->arena, "%s.%ld.tmp", path, (long)getpid());
    FILE *f = fopen(beside, "w");
    if (!f) return diag_report(diag, DIAG_FILE_WRITE, path, "%s", strerror(errno));
    struct tune_entry *sorted = arena_dup(&db->arena, db->entries.v, db->entries.n * sizeof *sorted);
    if (db->entries.n) qsort(sorted, db->entries.n, sizeof *sorted, by_key);
    fputs("# tuning database of infc: kernel, level, CPU, knobs, us before, us after\n", f);
    for (size_t i = 0; i < db->entries.n; i++) print_entry(f, &sorted[i]);
    bool ok = !ferror(f);
    if (fclose(f) || !ok || rename(beside, path)) {
        unlink(beside);
        return diag_report(diag, DIAG_FILE_WRITE, path, "%s", strerror(errno));
    }
    return true;
}
