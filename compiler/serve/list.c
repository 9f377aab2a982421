// SPDX-License-Identifier: Apache-2.0
/* Which engines there are: the programs of a folder, or the lines of a file. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/serve/front.h"
#include "runtime/abi/engine_format.h"

enum { MAX_WORDS = 200, MAX_NAME = 200, HEADER_WITHIN = 64 << 20 };

/* The list that is read. */
struct list {
    struct front *f; /* whose list it may become */
    struct front_engine *v;
    uint32_t n;
    struct arena arena; /* of words, until it is read */
    struct diag_sink *diag;
};

static struct front_engine *find(struct front_engine *v, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (v[i].name && !v[i].gone && !strcmp(v[i].name, name)) return &v[i];
    return NULL;
}

/* ---- one engine ---- */

/* Does `FILE --help` tell of `serve`? */
static bool can_serve(const char *path)
{
    char *const argv[] = {(char *)(uintptr_t)path, (char *)(uintptr_t)"--help", NULL};
    posix_spawn_file_actions_t actions;
    char text[16384];
    size_t n = 0;
    ssize_t k;
    pid_t pid;
    int fd[2];
    if (pipe2(fd, O_CLOEXEC)) return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fd[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    bool ok = !posix_spawn(&pid, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fd[1]);
    while (ok && n < sizeof text - 1 && (k = read(fd[0], text + n, sizeof text - 1 - n)) > 0) n += (size_t)k;
    close(fd[0]);
    text[n] = 0;
    if (ok) waitpid(pid, NULL, 0);
    return ok && strstr(text, "\n  serve ");
}

/*
 * A program of ours: an ELF file with a plan's header near its beginning, before the weights. Only such a file is ever asked
 * anything, that is, executed: a folder may hold other programs.
 */
static bool is_engine(const char *path, struct file_id *id)
{
    static const uint64_t magic = INFR_MAGIC;
    struct infr_header h;
    struct stat info;
    bool found = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && !fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size > (off_t)sizeof h && !access(path, X_OK)) {
        size_t n = info.st_size < HEADER_WITHIN ? (size_t)info.st_size : HEADER_WITHIN;
        const char *data = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0), *at = data;
        bool elf = data != MAP_FAILED && !memcmp(data, "\177ELF", 4);
        while (elf && !found && (at = memmem(at, n - (size_t)(at - data), &magic, sizeof magic)) && n - (size_t)(at - data) >= sizeof h) {
            memcpy(&h, at++, sizeof h);
            found = h.major == INFR_VERSION_MAJOR && h.header_bytes >= offsetof(struct infr_header, text_offset) && h.header_bytes <= 4096 &&
                    h.blob_bytes <= (uint64_t)info.st_size;
        }
        if (data != MAP_FAILED) munmap((void *)(uintptr_t)data, n);
        *id = (struct file_id){(uint64_t)info.st_dev, (uint64_t)info.st_ino, (uint64_t)info.st_size, (int64_t)info.st_mtim.tv_sec,
                               (int64_t)info.st_mtim.tv_nsec};
    }
    if (fd >= 0) close(fd);
    return found;
}

static bool same_file(const struct file_id *a, const struct file_id *b) { return !memcmp(a, b, sizeof *a); }

/* An engine with a server; one that is known is not asked again. */
static bool is_server(const struct list *l, const char *path, struct file_id *id)
{
    if (!is_engine(path, id)) return false;
    for (uint32_t i = 0; i < l->f->n_engines; i++)
        if (same_file(&l->f->engines[i].file, id)) return true;
    return can_serve(path);
}

static bool good_name(const char *name)
{
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == '"' || *p == '\\' || *p == 0x7f) return false;
    return *name && strlen(name) <= MAX_NAME;
}

/* The next word of a line, in double quotes if it has blanks; NULL: no more, or *bad. */
static char *next_word(char **at, bool *bad)
{
    char *p = *at + strspn(*at, " \t\r\n"), *word;
    if (!*p || *p == '#') return NULL;
    if (*p == '"') {
        word = p + 1;
        p = strchr(word, '"');
        if (!p) return *bad = true, NULL;
    } else
        word = p, p += strcspn(p, " \t\r\n");
    *at = *p ? p + 1 : p;
    *p = 0;
    return word;
}

/* Name, file and command line into e. False: too many words, or a quote without an end. */
static bool take_words(struct front_engine *e, const char *name, const char *path, const char *before, const char *behind)
{
    bool bad = false;
    size_t n = 4;
    struct arena *a = &e->strings;
    e->name = arena_strdup(a, name), e->path = arena_strdup(a, path);
    e->argv = ARENA_ARRAY(a, char *, MAX_WORDS + 5);
    char *const fixed[] = {e->path, arena_strdup(a, "serve"), arena_strdup(a, "--model-name"), e->name};
    memcpy(e->argv, fixed, sizeof fixed);
    char *texts[] = {arena_strdup(a, before), arena_strdup(a, behind)}, *word;
    for (int i = 0; i < 2; i++)
        while (n < MAX_WORDS && (word = next_word(&texts[i], &bad))) e->argv[n++] = word;
    return !bad && n < MAX_WORDS;
}

/* words: options behind the file. where: of a diagnostic. */
static bool add(struct list *l, const char *name, const char *path, const char *words, const char *where)
{
    uint64_t most = l->f->memory;
    struct diag_sink *diag = l->diag;
    if (!good_name(name)) return diag_report(diag, DIAG_OPTION, where, "'%s' is no name for a model: no blanks, quotes, backslashes, 200 bytes at most", name);
    if (find(l->v, l->n, name)) return diag_report(diag, DIAG_OPTION, where, "there are two models '%s'", name);
    if (l->n == MAX_ENGINES) return diag_report(diag, DIAG_OPTION, where, "more than %d engines", MAX_ENGINES);
    struct front_engine *e = &l->v[l->n];
    if (!is_server(l, path, &e->file))
        return diag_report_remedy(diag, DIAG_OPTION, where, "build it with `infc build --serve`, if it is no language model",
                                  "'%s' is no engine with a server", path);
    if (most && e->file.bytes > most)
        return diag_report_remedy(diag, DIAG_OPTION, where, "give more, or leave it out", "'%s' has %llu bytes, more than --memory", path,
                                  (unsigned long long)e->file.bytes);
    arena_init(&e->strings);
    l->n++;
    return take_words(e, name, path, l->f->engine_args, words) ||
           diag_report(diag, DIAG_OPTION, where, "options of '%s': a quote without an end, or too many", name);
}

/* ---- the list ---- */

static bool read_folder(struct list *l, const char *folder)
{
    struct dirent **list;
    struct file_id id;
    char path[4096];
    int n = scandir(folder, &list, NULL, alphasort);
    if (n < 0) return diag_report(l->diag, DIAG_ENVIRONMENT, folder, "%s", strerror(errno));
    for (int i = 0; i < n; i++) {
        int k = snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (list[i]->d_name[0] == '.' || k >= (int)sizeof path || !is_engine(path, &id)) continue;
        if (is_server(l, path, &id)) add(l, list[i]->d_name, path, "", folder);
        else fprintf(stderr, "%s: no engine with a server, left out\n", path);
    }
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
    return true;
}

/* NAME = FILE [OPTION]... */
static bool read_file(struct list *l, const char *path)
{
    char *line = NULL, where[4200];
    size_t cap = 0;
    bool ok = true, bad = false;
    FILE *file = fopen(path, "re");
    if (!file) return diag_report(l->diag, DIAG_ENVIRONMENT, path, "%s", strerror(errno));
    for (unsigned number = 1; getline(&line, &cap, file) > 0; number++) {
        char *at = line, *name = next_word(&at, &bad);
        if (!name && !bad) continue;
        char *equals = bad ? NULL : next_word(&at, &bad), *program = bad || !equals ? NULL : next_word(&at, &bad);
        snprintf(where, sizeof where, "%s:%u", path, number);
        const char *at_where = arena_strdup(&l->arena, where);
        if (bad || !program || strcmp(equals, "=")) ok = diag_report(l->diag, DIAG_OPTION, at_where, "expected NAME = FILE [OPTION]...");
        else ok = add(l, name, program, at, at_where) && ok;
        bad = false;
    }
    free(line);
    fclose(file);
    return ok;
}

static bool read_all(struct list *l, const char *from)
{
    struct stat info;
    if (stat(from, &info)) return diag_report(l->diag, DIAG_ENVIRONMENT, from, "%s", strerror(errno));
    bool ok = S_ISDIR(info.st_mode) ? read_folder(l, from) : read_file(l, from);
    if (!ok || diag_exit_code(l->diag)) return false;
    if (!l->n) return diag_report_remedy(l->diag, DIAG_OPTION, from, "build some with `infc build`", "there are no engines with a server");
    if (l->f->usual_name && !find(l->v, l->n, l->f->usual_name))
        return diag_report(l->diag, DIAG_OPTION, NULL, "--default-model=%s: there is no such model", l->f->usual_name);
    return true;
}

/* ---- what is new ---- */

static bool same_words(char *const *a, char *const *b)
{
    while (*a && *b && !strcmp(*a, *b)) a++, b++;
    return !*a && !*b;
}

static bool is_free(const struct front_engine *e) { return e->gone && e->state == ENGINE_STOPPED && !e->relays; }

/* Places for those whose names are new? */
static bool has_room(const struct list *l)
{
    uint32_t room = MAX_ENGINES - l->f->n_engines, fresh = 0;
    for (uint32_t i = 0; i < l->f->n_engines; i++) room += is_free(&l->f->engines[i]);
    for (uint32_t i = 0; i < l->n; i++) fresh += !find(l->f->engines, l->f->n_engines, l->v[i].name);
    return fresh <= room || diag_report(l->diag, DIAG_OPTION, l->f->from, "more than %d engines, with those that end", MAX_ENGINES);
}

/* What was read of it. */
static void take(struct front_engine *e, struct front_engine *fresh)
{
    if (e->name) arena_deinit(&e->strings);
    e->strings = fresh->strings, e->name = fresh->name, e->path = fresh->path, e->argv = fresh->argv, e->file = fresh->file;
    e->failures = 0, e->retry_at = 0, e->bytes = 0;
    e->gone = false;
    fresh->name = NULL; /* its strings are e's */
}

static bool insert(struct front *f, struct front_engine *fresh)
{
    struct front_engine *e = f->engines;
    while (e < f->engines + f->n_engines && !is_free(e)) e++;
    if (f->folder[0] && !engines_open_socket(f, e)) {
        cli_usage("%s: cannot make a socket: %s", fresh->name, strerror(errno));
        return false;
    }
    take(e, fresh);
    e->n_starts = e->n_crashes = e->n_requests = 0;
    if (e == f->engines + f->n_engines) f->n_engines++;
    return true;
}

static void merge(struct front *f, struct list *l)
{
    bool again = f->n_engines;
    unsigned fresh = 0, changed = 0, gone = 0;
    for (uint32_t i = 0; i < f->n_engines; i++) {
        struct front_engine *e = &f->engines[i], *x = e->gone ? NULL : find(l->v, l->n, e->name);
        if (e->gone || (x && same_words(e->argv, x->argv) && same_file(&e->file, &x->file))) continue;
        if (x) take(e, x), changed++;
        else e->gone = true, gone++;
        if (!x) relay_refuse(e, false, INFINITY, "it is no longer in the list");
        e->retire = e->state == ENGINE_RUNNING;
    }
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i].name && !find(f->engines, f->n_engines, l->v[i].name)) fresh += insert(f, &l->v[i]);
    struct front_engine *only = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_engines; i++)
        if (!f->engines[i].gone) only = &f->engines[i], n++;
    f->usual = f->usual_name ? find(f->engines, f->n_engines, f->usual_name) : n == 1 ? only : NULL;
    if (!again) return;
    fprintf(stderr, "the list of engines was read again: %u new, %u changed, %u gone\n", fresh, changed, gone);
    engines_schedule_soon(f);
}

bool list_read(struct front *f, struct diag_sink *diag)
{
    struct list l = {.f = f, .v = calloc(MAX_ENGINES, sizeof *l.v), .diag = diag};
    if (!l.v) return diag_report(diag, DIAG_ENVIRONMENT, NULL, "no memory");
    arena_init(&l.arena);
    bool ok = read_all(&l, f->from) && has_room(&l);
    if (ok) merge(f, &l);
    for (uint32_t i = 0; i < l.n; i++)
        if (l.v[i].name) arena_deinit(&l.v[i].strings);
    free(l.v);
    arena_deinit(&l.arena);
    return ok;
}

void list_free(struct front *f)
{
    for (uint32_t i = 0; i < f->n_engines; i++) arena_deinit(&f->engines[i].strings);
}
