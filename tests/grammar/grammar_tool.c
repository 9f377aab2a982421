// SPDX-License-Identifier: Apache-2.0
/*
 * Which texts are in a grammar's language.
 *
 *   grammar_tool KIND FILE [options] < texts
 *
 * KIND: schema, object, regex, gbnf, choice, lark, tag. One text a line, as a JSON string with
 * --quoted, else as it is. A line of output each: 1 accepted, 0 not, with the number of bytes that
 * fit. A grammar that is refused: exit 2 and a line "POINTER offset: message" on standard error.
 *   --annotate   formats are not enforced    --compact   no white space in JSON
 *   grammar_tool --json FILE...     a line "1 FILE" or "0 FILE": does the JSON reader take it?
 *   --forced     show the forced bytes after each accepted prefix
 *   --batch      FILE is a list of lines KIND TAB JSON-STRING-OF-GRAMMAR TAB JSON-ARRAY-OF-TEXTS;
 *                a line of output each: "refused POINTER MESSAGE", or the verdicts and microseconds
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/grammar/grammar.h"
#include "runtime/text/jinja_value.h"
#include "runtime/text/json_read.h"

static const char *const kinds[] = {"schema", "object", "regex", "gbnf", "choice", "lark", "tag"};

static int kind_of(const char *name, size_t n)
{
    for (int i = 0; i < 7; i++)
        if (strlen(kinds[i]) == n && !memcmp(kinds[i], name, n)) return i;
    return -1;
}

static char *read_all(FILE *f, size_t *n)
{
    size_t cap = 1 << 16;
    char *p = malloc(cap);
    *n = 0;
    for (size_t got; p && (got = fread(p + *n, 1, cap - *n, f)) > 0;) {
        *n += got;
        if (*n == cap) p = realloc(p, cap *= 2);
    }
    return p;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* the machine may be busy with others */
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* Bytes that fit, and whether the whole text is accepted. */
static size_t check(struct gr_grammar *g, const char *text, size_t n, bool *accepted)
{
    struct gr_state *s = gr_state_create(g);
    size_t fit = 0;
    *accepted = false;
    if (!s) return 0;
    if (gr_advance(s, text, n)) {
        fit = n;
        *accepted = gr_is_accepting(s);
    } else {
        fit = gr_try(s, text, n);
    }
    gr_state_destroy(s);
    return fit;
}

static const struct jinja_value *parse(struct jinja_arena *a, const char *text, size_t n,
                                       struct jinja_value *v)
{
    struct json_read_error e;
    if (json_read(a, text, n, v, &e)) return v;
    fprintf(stderr, "JSON offset %zu: %s\n", e.offset_bytes, e.message);
    exit(3);
}

static void batch_line(char *line, const struct gr_options *o)
{
    char *grammar = strchr(line, '\t'), *texts = grammar ? strchr(grammar + 1, '\t') : NULL;
    struct jinja_arena *a = jinja_arena_create((size_t)1 << 30);
    struct jinja_value g_text, list;
    struct gr_grammar *g;
    struct gr_error e;
    if (!a || !texts) exit(3);
    *grammar++ = *texts++ = 0;
    parse(a, grammar, strlen(grammar), &g_text);
    parse(a, texts, strlen(texts), &list);
    double start = now_us();
    bool ok = gr_compile((enum gr_kind)kind_of(line, strlen(line)), g_text.u.s, g_text.len, o, &g, &e);
    double took = now_us() - start;
    if (!ok) {
        printf("refused %s %s %.0f\n", e.pointer[0] ? e.pointer : "-", e.message, took);
    } else {
        for (uint32_t i = 0; i < list.u.list->count; i++) {
            bool accepted;
            check(g, list.u.list->items[i].u.s, list.u.list->items[i].len, &accepted);
            putchar(accepted ? '1' : '0');
        }
        printf(" %.0f\n", took);
        gr_destroy(g);
    }
    fflush(stdout);
    jinja_arena_destroy(a);
}

static int batch(const char *path, const struct gr_options *o)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "r") : stdin;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    if (!f) return 3;
    while ((n = getline(&line, &cap, f)) > 0) {
        if (line[n - 1] == '\n') line[n - 1] = 0;
        batch_line(line, o);
    }
    free(line);
    fclose(f);
    return 0;
}

static void show_forced(struct gr_grammar *g, const char *text, size_t n)
{
    struct gr_state *s = gr_state_create(g);
    char out[256];
    if (s && gr_advance(s, text, n)) printf(" %.*s", (int)gr_forced(s, out, sizeof out), out);
    gr_state_destroy(s);
}

static void one_line(struct gr_grammar *g, const char *line, size_t n, bool quoted, bool forced)
{
    struct jinja_arena *a = jinja_arena_create((size_t)1 << 26);
    struct jinja_value v;
    bool accepted;
    if (quoted) {
        parse(a, line, n, &v);
        line = v.u.s, n = v.len;
    }
    size_t fit = check(g, line, n, &accepted);
    printf("%d %zu", accepted, fit);
    if (forced) show_forced(g, line, n);
    putchar('\n');
    jinja_arena_destroy(a);
}

static int read_files(int n, char **paths)
{
    for (int i = 0; i < n; i++) {
        struct jinja_arena *a = jinja_arena_create((size_t)1 << 28);
        struct jinja_value v;
        struct json_read_error e;
        size_t len;
        FILE *f = fopen(paths[i], "rb");
        char *text = f ? read_all(f, &len) : NULL;
        if (!a || !text) return 3;
        printf("%d %s\n", json_read(a, text, len, &v, &e), paths[i]);
        fclose(f);
        free(text);
        jinja_arena_destroy(a);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct gr_options o = {0};
    bool quoted = false, forced = false;
    for (int i = 3; i < argc; i++) {
        quoted |= !strcmp(argv[i], "--quoted");
        forced |= !strcmp(argv[i], "--forced");
        o.formats_annotate |= !strcmp(argv[i], "--annotate");
        if (!strcmp(argv[i], "--compact")) o.space = GR_SPACE_NONE;
    }
    if (argc < 3) return 3;
    if (!strcmp(argv[1], "--json")) return read_files(argc - 2, argv + 2);
    if (!strcmp(argv[1], "--batch")) return batch(argv[2], &o);
    FILE *f = fopen(argv[2], "r");
    int kind = kind_of(argv[1], strlen(argv[1]));
    size_t n, cap = 0;
    char *text = f ? read_all(f, &n) : NULL, *line = NULL;
    struct gr_grammar *g;
    struct gr_error e;
    if (!text || kind < 0) return 3;
    fclose(f);
    if (!gr_compile((enum gr_kind)kind, text, n, &o, &g, &e)) {
        fprintf(stderr, "%s %zu: %s\n", e.pointer[0] ? e.pointer : "-", e.offset, e.message);
        return 2;
    }
    for (ssize_t len; (len = getline(&line, &cap, stdin)) > 0;)
        one_line(g, line, (size_t)len - (line[len - 1] == '\n'), quoted, forced);
    free(line);
    free(text);
    gr_destroy(g);
    return 0;
}
