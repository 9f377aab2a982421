// SPDX-License-Identifier: Apache-2.0
/* `infc serve`: options, the list of engines from a folder or a file, then the event loop. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/serve/front.h"
#include "compiler/serve/serve.h"
#include "runtime/abi/engine_format.h"

enum { MAX_WORDS = 200, MAX_NAME = 200, MAX_BODY = 64 << 20, HEADER_WITHIN = 64 << 20 };

struct reader {
    struct front *f;
    struct arena *arena;
    struct diag_sink *diag;
    const char *more; /* --engine-args */
};

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
static bool is_engine(const char *path, uint64_t *bytes)
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
        *bytes = (uint64_t)info.st_size;
    }
    if (fd >= 0) close(fd);
    return found;
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

/* words: options behind the file, changed. where: of a diagnostic. */
static bool add(struct reader *r, const char *name, const char *path, char *words, const char *where)
{
    struct front *f = r->f;
    bool bad = false;
    if (!good_name(name)) return diag_report(r->diag, DIAG_OPTION, where, "'%s' is no name for a model: no blanks, quotes, backslashes, 200 bytes at most", name);
    if (front_find(f, name, strlen(name))) return diag_report(r->diag, DIAG_OPTION, where, "there are two models '%s'", name);
    if (f->n_engines == MAX_ENGINES) return diag_report(r->diag, DIAG_OPTION, where, "more than %d engines", MAX_ENGINES);
    struct front_engine *e = &f->engines[f->n_engines];
    if (!is_engine(path, &e->file_bytes) || !can_serve(path))
        return diag_report_remedy(r->diag, DIAG_OPTION, where, "build it with `infc build --serve`, if it is no language model",
                                  "'%s' is no engine with a server", path);
    e->name = arena_strdup(r->arena, name), e->path = arena_strdup(r->arena, path);
    e->argv = ARENA_ARRAY(r->arena, char *, MAX_WORDS + 5);
    char *const fixed[] = {e->path, arena_strdup(r->arena, "serve"), arena_strdup(r->arena, "--model-name"), e->name};
    memcpy(e->argv, fixed, sizeof fixed);
    size_t n = 4;
    char *more = arena_strdup(r->arena, r->more), *own = arena_strdup(r->arena, words), *word;
    while (n < MAX_WORDS && (word = next_word(&more, &bad))) e->argv[n++] = word;
    while (n < MAX_WORDS && (word = next_word(&own, &bad))) e->argv[n++] = word;
    if (bad || n == MAX_WORDS) return diag_report(r->diag, DIAG_OPTION, where, "options of '%s': a quote without an end, or too many", name);
    if (f->memory && e->file_bytes > f->memory)
        return diag_report_remedy(r->diag, DIAG_OPTION, where, "give more, or leave it out", "'%s' has %llu bytes, more than --memory", path,
                                  (unsigned long long)e->file_bytes);
    f->n_engines++;
    return true;
}

/* ---- the list ---- */

static bool read_folder(struct reader *r, const char *folder)
{
    struct dirent **list;
    uint64_t bytes;
    char path[4096];
    int n = scandir(folder, &list, NULL, alphasort);
    if (n < 0) return diag_report(r->diag, DIAG_ENVIRONMENT, folder, "%s", strerror(errno));
    for (int i = 0; i < n; i++) {
        int k = snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (list[i]->d_name[0] == '.' || k >= (int)sizeof path || !is_engine(path, &bytes)) continue;
        if (can_serve(path)) add(r, list[i]->d_name, path, arena_strdup(r->arena, ""), folder);
        else fprintf(stderr, "%s: no engine with a server, left out\n", path);
    }
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
    return true;
}

/* NAME = FILE [OPTION]... */
static bool read_list(struct reader *r, const char *path)
{
    char *line = NULL, where[4200];
    size_t cap = 0;
    bool ok = true, bad = false;
    FILE *file = fopen(path, "re");
    if (!file) return diag_report(r->diag, DIAG_ENVIRONMENT, path, "%s", strerror(errno));
    for (unsigned number = 1; getline(&line, &cap, file) > 0; number++) {
        char *at = line, *name = next_word(&at, &bad);
        if (!name && !bad) continue;
        char *equals = bad ? NULL : next_word(&at, &bad), *program = bad || !equals ? NULL : next_word(&at, &bad);
        snprintf(where, sizeof where, "%s:%u", path, number);
        const char *at_where = arena_strdup(r->arena, where);
        if (bad || !program || strcmp(equals, "=")) ok = diag_report(r->diag, DIAG_OPTION, at_where, "expected NAME = FILE [OPTION]...");
        else ok = add(r, name, program, at, at_where) && ok;
        bad = false;
    }
    free(line);
    fclose(file);
    return ok;
}

static bool read_engines(struct reader *r, const char *from)
{
    struct stat info;
    if (stat(from, &info)) return diag_report(r->diag, DIAG_ENVIRONMENT, from, "%s", strerror(errno));
    bool ok = S_ISDIR(info.st_mode) ? read_folder(r, from) : read_list(r, from);
    if (ok && !diag_exit_code(r->diag) && !r->f->n_engines)
        return diag_report_remedy(r->diag, DIAG_OPTION, from, "build some with `infc build`", "there are no engines with a server");
    return ok && !diag_exit_code(r->diag);
}

/* ---- options ---- */

static bool number(const struct options *o, enum option_id id, const char *name, double *out, struct diag_sink *diag)
{
    const char *text = option_value(o, id, NULL);
    char *end;
    if (!text) return true;
    *out = strtod(text, &end);
    if (end != text && !*end && *out >= 0 && *out <= 1e9) return true;
    return diag_report(diag, DIAG_OPTION, NULL, "--%s=%s: expected seconds", name, text);
}

static bool bytes(const char *text, uint64_t *out, struct diag_sink *diag)
{
    static const char units[] = "KMGT";
    char *end;
    if (!text) return true;
    double x = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) x *= (double)(1ull << (10 * (unit - units + 1))), end++;
    if (end == text || *end || !(x >= 1) || x > 1e15) return diag_report(diag, DIAG_OPTION, NULL, "--memory=%s: expected bytes, such as 512M or 16G", text);
    *out = (uint64_t)x;
    return true;
}

static bool take_options(const struct options *o, struct front *f, struct diag_sink *diag)
{
    static const char *const usual[] = {"127.0.0.1:8080"};
    struct server_options *s = &f->s.o;
    int64_t queue;
    f->wait_s = 60;
    if (!number(o, OPT_IDLE, "idle", &f->idle_s, diag) || !number(o, OPT_WAIT, "wait", &f->wait_s, diag) ||
        !number(o, OPT_DRAIN, "drain", &s->drain_s, diag) || !bytes(option_value(o, OPT_MEMORY, NULL), &f->memory, diag) ||
        !option_int(o, OPT_QUEUE, 1, 1 << 20, 1024, &queue, diag))
        return false;
    s->max_queue = (uint32_t)queue;
    s->listen = option_given(o, OPT_LISTEN) ? o->values[OPT_LISTEN].v : usual;
    s->n_listen = option_given(o, OPT_LISTEN) ? o->values[OPT_LISTEN].n : 1;
    s->origins = o->values[OPT_CORS].v, s->n_origins = o->values[OPT_CORS].n;
    s->key_path = option_value(o, OPT_API_KEYS, NULL);
    s->log_path = option_value(o, OPT_LOG, NULL);
    s->model_name = "infc serve";
    s->requests_only = true;
    /* engines bound bodies, too, and keep streams alive */
    s->http = (struct http_options){.max_body = MAX_BODY, .ping_s = 1e9};
    return true;
}

/* ---- the server ---- */

/* Once, when the event loop is there. */
static void on_wake(struct server *s)
{
    uint64_t x;
    if (read(s->wake_fd, &x, sizeof x) != sizeof x) return;
    if (engines_watch((struct front *)(void *)s)) return;
    cli_usage("no memory for the server");
    kill(getpid(), SIGTERM);
}

static void on_drain(struct server *s) { engines_unwatch((struct front *)(void *)s); }

static int run(struct front *f)
{
    int code = 3;
    f->s.routes = front_routes, f->s.n_routes = n_front_routes;
    f->s.on_wake = on_wake, f->s.drain = on_drain, f->s.more_metrics = front_metrics;
    f->s.wake_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->s.wake_fd >= 0 && engines_open(f)) code = server_run(&f->s);
    engines_close(f);
    if (f->s.wake_fd >= 0) close(f->s.wake_fd);
    return code;
}

int cmd_serve(const struct options *o, struct diag_sink *diag)
{
    struct arena arena;
    struct front *f = calloc(1, sizeof *f);
    arena_init(&arena);
    struct reader r = {f, &arena, diag, option_value(o, OPT_ENGINE_ARGS, "")};
    const char *usual = option_value(o, OPT_DEFAULT_MODEL, NULL);
    int code = 2;
    if (f) f->engines = calloc(MAX_ENGINES, sizeof *f->engines);
    if (!f || !f->engines) diag_report(diag, DIAG_ENVIRONMENT, NULL, "no memory");
    else if (o->args.n != 1) diag_report(diag, DIAG_OPTION, NULL, "infc serve takes one folder of engines, or one file that lists them");
    else if (take_options(o, f, diag) && read_engines(&r, o->args.v[0])) {
        f->usual = usual ? front_find(f, usual, strlen(usual)) : f->n_engines == 1 ? f->engines : NULL;
        if (usual && !f->usual) diag_report(diag, DIAG_OPTION, NULL, "--default-model=%s: there is no such model", usual);
        else code = run(f);
    }
    if (f) free(f->engines);
    free(f);
    arena_deinit(&arena);
    return code;
}
