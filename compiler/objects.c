// SPDX-License-Identifier: Apache-2.0
#define _POSIX_C_SOURCE 200809L
#include "compiler/objects.h"

#include "compiler/objects_fork.h"

#include <elf.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Objects are made with this symbol and get their own name afterwards, in place: the same kernel has another number in the
 * next model, and its cached object must serve. Its last letter ends no other string, so that no name shares its bytes.
 */
#define PLACEHOLDER                                                \
    "infc_kernel"                                                  \
    "____________________________________________________________" \
    "_______________________________________________________Z"
_Static_assert(sizeof PLACEHOLDER - 1 == OBJECT_SYMBOL_MAX, "the placeholder is as long as a name may be");

struct shared {
    const struct objects_options *o;
    struct object_job *jobs;
    struct diag_sink *sinks; /* one a job */
    bool *ok;
    size_t n_jobs;
    atomic_size_t next;
};

static bool range_ok(uint64_t at, uint64_t n, size_t size) { return at <= size && n <= size - at; }

/* The string table of o's symbols; NULL when o is no object of the kind that targets make. */
static char *symbol_strings(const struct target_object *o, size_t *n_bytes)
{
    Elf64_Ehdr h;
    char *file = o->data;
    if (o->n_bytes < sizeof h) return NULL;
    memcpy(&h, file, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_shentsize != sizeof(Elf64_Shdr)) return NULL;
    if (!range_ok(h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr), o->n_bytes)) return NULL;
    for (int i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s, t;
        memcpy(&s, file + h.e_shoff + (size_t)i * sizeof s, sizeof s);
        if (s.sh_type != SHT_SYMTAB || s.sh_link >= h.e_shnum) continue;
        memcpy(&t, file + h.e_shoff + (size_t)s.sh_link * sizeof t, sizeof t);
        if (!range_ok(t.sh_offset, t.sh_size, o->n_bytes)) return NULL;
        *n_bytes = t.sh_size;
        return file + t.sh_offset;
    }
    return NULL;
}

uint64_t object_code_bytes(const struct target_object *o)
{
    Elf64_Ehdr h;
    uint64_t sum = 0;
    if (o->n_bytes < sizeof h) return 0;
    memcpy(&h, o->data, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_shentsize != sizeof(Elf64_Shdr)) return 0;
    if (!range_ok(h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr), o->n_bytes)) return 0;
    for (int i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s;
        memcpy(&s, (const char *)o->data + h.e_shoff + (size_t)i * sizeof s, sizeof s);
        if (s.sh_flags & SHF_EXECINSTR) sum += s.sh_size;
    }
    return sum;
}

static bool rename_symbol(struct target_object *o, const char *symbol)
{
    size_t n = 0, len = strlen(symbol);
    char *strings = symbol_strings(o, &n);
    for (size_t i = 0; strings && i + sizeof PLACEHOLDER <= n; i++) {
        if (memcmp(strings + i, PLACEHOLDER, sizeof PLACEHOLDER) != 0) continue;
        memset(strings + i, 0, OBJECT_SYMBOL_MAX);
        memcpy(strings + i, symbol, len);
        return true;
    }
    return false;
}

/* Everything that the object's bytes depend on; the cache adds the compiler itself. */
static void write_key(struct strbuf *key, const struct objects_options *o, const struct object_job *job)
{
    strbuf_printf(key, "%s %s %s\n", o->target->name, job->level->name, job->level->features);
    if (o->target->toolchain) o->target->toolchain(key);
    strbuf_putc(key, '\n');
    if (o->target->emits_in_processes) strbuf_printf(key, "%s\n", job->kernel->name); /* the code names itself */
    lp_print(key, job->kernel, true);
}

static bool run_job(const struct objects_options *o, struct object_job *job, struct diag_sink *diag)
{
    struct strbuf key = {0};
    bool ok = true;
    if (strlen(job->symbol) > OBJECT_SYMBOL_MAX)
        return diag_report(diag, DIAG_CODEGEN, job->kernel->loc, "the kernel's symbol is too long: %s", job->symbol);
    if (o->cache) {
        write_key(&key, o, job);
        job->from_cache = object_cache_find(o->cache, &key, &job->object);
    }
    if (!job->from_cache) {
        ok = o->target->emit(o->target, job->level, job->kernel, PLACEHOLDER, &job->object, diag);
        if (ok && o->cache) object_cache_store(o->cache, &key, &job->object);
    }
    strbuf_deinit(&key);
    if (ok && !o->target->emits_in_processes && !rename_symbol(&job->object, job->symbol))
        ok = diag_report(diag, DIAG_CODEGEN, job->kernel->loc, "kernel %s: its object has no such symbol", job->kernel->name);
    return ok;
}

static void *worker(void *context)
{
    struct shared *s = context;
    for (;;) {
        size_t i = atomic_fetch_add(&s->next, 1);
        if (i >= s->n_jobs) return NULL;
        s->ok[i] = run_job(s->o, &s->jobs[i], &s->sinks[i]);
    }
}

static void merge(struct diag_sink *into, const struct diag_sink *from)
{
    for (size_t i = 0; i < from->items.n; i++) {
        const struct diag *d = &from->items.v[i];
        if (d->severity < DIAG_SEV_ERROR) diag_warn(into, d->id, d->loc, "%s", d->message);
        else diag_report_remedy(into, d->id, d->loc, d->remedy, "%s", d->message);
    }
}

static int thread_count(const struct objects_options *o, size_t n_jobs)
{
    long n = o->n_threads > 0 ? o->n_threads : sysconf(_SC_NPROCESSORS_ONLN);
    if (n < 1) n = 1;
    if (n > 256) n = 256;
    return (size_t)n > n_jobs ? (int)n_jobs : (int)n;
}

/* ---- jobs in processes ---- */

/* How a child tells the result of a job: this, the object, the diagnostics (three strings each). */
struct answer {
    bool ok, from_cache;
    struct target_object object; /* data: not a pointer here */
    size_t n_diags;
};

struct answer_diag {
    enum diag_id id;
    enum diag_severity severity;
    bool has_remedy;
};

static void work(void *context, size_t i, struct strbuf *out)
{
    struct shared *s = context;
    struct object_job *job = &s->jobs[i];
    struct diag_sink *sink = &s->sinks[i];
    struct answer a = {.ok = run_job(s->o, job, sink), .from_cache = job->from_cache, .object = job->object, .n_diags = sink->items.n};
    strbuf_putn(out, (const char *)&a, sizeof a);
    strbuf_putn(out, job->object.data, a.ok ? job->object.n_bytes : 0);
    for (size_t k = 0; k < sink->items.n; k++) {
        const struct diag *d = &sink->items.v[k];
        struct answer_diag head = {d->id, d->severity, d->remedy != NULL};
        strbuf_putn(out, (const char *)&head, sizeof head);
        strbuf_putn(out, d->loc, strlen(d->loc) + 1);
        strbuf_putn(out, d->message, strlen(d->message) + 1);
        if (d->remedy) strbuf_putn(out, d->remedy, strlen(d->remedy) + 1);
    }
}

/* The next string of an answer; its writer is this very program. */
static const char *take_string(const char **at)
{
    const char *s = *at;
    *at += strlen(s) + 1;
    return s;
}

static void done(void *context, size_t i, const struct strbuf *out)
{
    struct shared *s = context;
    struct object_job *job = &s->jobs[i];
    struct answer a;
    if (!out) {
        s->ok[i] = diag_report(&s->sinks[i], DIAG_CODEGEN, job->kernel->loc, "kernel %s: the code generator crashed", job->kernel->name);
        return;
    }
    memcpy(&a, out->data, sizeof a);
    const char *at = out->data + sizeof a;
    s->ok[i] = a.ok;
    job->from_cache = a.from_cache;
    if (a.ok) {
        job->object = a.object;
        job->object.data = malloc(a.object.n_bytes ? a.object.n_bytes : 1);
        if (job->object.data) memcpy(job->object.data, at, a.object.n_bytes);
        else s->ok[i] = diag_report(&s->sinks[i], DIAG_ENVIRONMENT, NULL, "out of memory for an object");
        at += a.object.n_bytes;
    }
    for (size_t k = 0; k < a.n_diags; k++) {
        struct answer_diag head;
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        const char *loc = take_string(&at), *message = take_string(&at), *remedy = head.has_remedy ? take_string(&at) : NULL;
        if (head.severity < DIAG_SEV_ERROR) diag_warn(&s->sinks[i], head.id, loc, "%s", message);
        else diag_report_remedy(&s->sinks[i], head.id, loc, remedy, "%s", message);
    }
}

static void run_threads(struct shared *s, int wanted)
{
    pthread_t threads[256];
    int started = 0;
    /* The caller's thread works too: with no other one to be had the build is slower, not broken. */
    while (started < wanted - 1 && !pthread_create(&threads[started], NULL, worker, s)) started++;
    worker(s);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

bool objects_compile(const struct objects_options *o, struct object_job *jobs, size_t n_jobs, struct diag_sink *diag)
{
    struct arena arena;
    arena_init(&arena);
    struct shared s = {.o = o, .jobs = jobs, .n_jobs = n_jobs};
    s.sinks = ARENA_ARRAY(&arena, struct diag_sink, n_jobs);
    s.ok = ARENA_ARRAY(&arena, bool, n_jobs);
    for (size_t i = 0; i < n_jobs; i++) {
        diag_init(&s.sinks[i]);
        jobs[i].object = (struct target_object){0};
        jobs[i].from_cache = false;
    }
    int wanted = thread_count(o, n_jobs);
    if (!o->target->emits_in_processes || !fork_jobs(wanted, n_jobs, work, done, &s)) run_threads(&s, wanted);
    bool ok = true;
    for (size_t i = 0; i < n_jobs; i++) {
        merge(diag, &s.sinks[i]);
        diag_deinit(&s.sinks[i]);
        ok = ok && s.ok[i];
    }
    arena_deinit(&arena);
    return ok;
}

void objects_free(struct object_job *jobs, size_t n_jobs)
{
    for (size_t i = 0; i < n_jobs; i++) {
        free(jobs[i].object.data);
        jobs[i].object.data = NULL;
    }
}
