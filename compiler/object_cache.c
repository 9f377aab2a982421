// SPDX-License-Identifier: Apache-2.0
/*
 * An entry:
 *
 *   header | key: identity, newline, the caller's key | object
 *
 * in a file named after the key's hash. Used entries get a new time stamp, which is what eviction goes by.
 */
#define _POSIX_C_SOURCE 200809L
#include "compiler/object_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ir/support/fd.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC "INFCKRN1"
#define MAX_ENTRY_BYTES ((off_t)256 << 20)
#define NAME_BYTES 40
#define TEMP_PREFIX "tmp-"

struct object_cache {
    int dir_fd;
    char *identity;
};

struct entry_header {
    char magic[8];
    uint64_t key_bytes, object_bytes, scratch_bytes;
    int64_t n_spills;
    uint64_t hash[2]; /* of everything behind the header, seeded with the numbers above */
};

/* ---- folder ---- */

/* mkdir -p with 0700 for what is new. */
static bool make_dirs(const char *path)
{
    struct strbuf s = {0};
    bool ok = true;
    for (const char *p = path; ok; p++) {
        if ((*p == '/' || !*p) && s.len > 0) ok = mkdir(strbuf_get(&s), 0700) == 0 || errno == EEXIST;
        if (!*p) break;
        strbuf_putc(&s, *p);
    }
    strbuf_deinit(&s);
    return ok;
}

static bool default_dir(struct strbuf *out)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && xdg[0] == '/') strbuf_printf(out, "%s/infc/kernels", xdg);
    else if (home && home[0] == '/') strbuf_printf(out, "%s/.cache/infc/kernels", home);
    return out->len > 0;
}

struct object_cache *object_cache_open(const char *dir, const char *identity, struct diag_sink *diag)
{
    struct strbuf path = {0};
    struct stat st;
    const char *why = NULL;
    int fd = -1;
    if (dir) strbuf_puts(&path, dir);
    else if (!default_dir(&path)) why = "neither XDG_CACHE_HOME nor HOME is set";
    if (!why) {
        if (!make_dirs(strbuf_get(&path)) || (fd = open(strbuf_get(&path), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
            fstat(fd, &st) != 0)
            why = strerror(errno);
        else if (st.st_uid != geteuid()) why = "it belongs to another user";
        else if (st.st_mode & (S_IWGRP | S_IWOTH)) why = "other users may write to it";
    }
    struct object_cache *c = why ? NULL : calloc(1, sizeof *c);
    if (c) c->identity = strdup(identity);
    if (!c || !c->identity) {
        diag_warn(diag, DIAG_ENVIRONMENT, strbuf_get(&path), "no kernel cache: %s", why ? why : "out of memory");
        if (fd >= 0) close(fd);
        free(c);
        c = NULL;
    } else {
        c->dir_fd = fd;
    }
    strbuf_deinit(&path);
    return c;
}

/* ---- entries ---- */

static void full_key(const struct object_cache *c, const struct strbuf *key, struct strbuf *out)
{
    strbuf_printf(out, "%s\n", c->identity);
    strbuf_putn(out, strbuf_get(key), key->len);
}

static void entry_name(const struct strbuf *full, char name[NAME_BYTES])
{
    XXH128_hash_t h = XXH3_128bits(strbuf_get(full), full->len);
    snprintf(name, NAME_BYTES, "%016llx%016llx.o", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

static void hash_entry(const struct entry_header *h, const void *body, size_t n, uint64_t out[2])
{
    XXH64_hash_t seed = XXH3_64bits(h, offsetof(struct entry_header, hash));
    XXH128_hash_t v = XXH3_128bits_withSeed(body, n, seed);
    out[0] = v.low64;
    out[1] = v.high64;
}

/* Opens an entry of ours; *body_bytes is what follows the header. */
static int open_entry(const struct object_cache *c, const char *name, struct entry_header *h, size_t *body_bytes)
{
    struct stat st;
    int fd = openat(c->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_size <= MAX_ENTRY_BYTES &&
              st.st_size >= (off_t)sizeof *h && fd_read_all(fd, h, sizeof *h) && !memcmp(h->magic, MAGIC, sizeof h->magic);
    if (ok) {
        *body_bytes = (size_t)st.st_size - sizeof *h;
        ok = h->key_bytes <= *body_bytes && h->object_bytes == *body_bytes - h->key_bytes && h->object_bytes > 0;
    }
    if (ok) return fd;
    close(fd);
    return -1;
}

bool object_cache_find(const struct object_cache *c, const struct strbuf *key, struct target_object *out)
{
    struct strbuf full = {0};
    char name[NAME_BYTES];
    struct entry_header h;
    size_t n;
    uint64_t hash[2];
    full_key(c, key, &full);
    entry_name(&full, name);
    int fd = open_entry(c, name, &h, &n);
    char *body = fd >= 0 ? malloc(n) : NULL;
    bool ok = body && fd_read_all(fd, body, n);
    if (ok) {
        hash_entry(&h, body, n, hash);
        ok = !memcmp(hash, h.hash, sizeof hash) && h.key_bytes == full.len && !memcmp(body, strbuf_get(&full), full.len);
    }
    if (ok) {
        memmove(body, body + h.key_bytes, h.object_bytes);
        *out = (struct target_object){.data = body, .n_bytes = h.object_bytes, .n_spills_in_loops = (int)h.n_spills,
                                      .scratch_bytes = h.scratch_bytes};
        futimens(fd, NULL);
    } else {
        free(body);
    }
    if (fd >= 0) close(fd);
    strbuf_deinit(&full);
    return ok;
}

/* A name that no other process or thread uses now. */
static int open_temp(const struct object_cache *c, const char *name, const void *unique, char temp[64])
{
    snprintf(temp, 64, TEMP_PREFIX "%ld-%llx-%.16s", (long)getpid(), (unsigned long long)(uintptr_t)unique, name);
    return openat(c->dir_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

void object_cache_store(const struct object_cache *c, const struct strbuf *key, const struct target_object *object)
{
    struct strbuf full = {0};
    char name[NAME_BYTES], temp[64];
    full_key(c, key, &full);
    entry_name(&full, name);
    struct entry_header h = {.key_bytes = full.len, .object_bytes = object->n_bytes,
                             .scratch_bytes = object->scratch_bytes, .n_spills = object->n_spills_in_loops};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    strbuf_putn(&full, object->data, object->n_bytes);
    hash_entry(&h, strbuf_get(&full), full.len, h.hash);
    int fd = open_temp(c, name, &full, temp);
    if (fd >= 0) {
        bool ok = fd_write_all(fd, &h, sizeof h) && fd_write_all(fd, strbuf_get(&full), full.len);
        ok = close(fd) == 0 && ok;
        if (!ok || renameat(c->dir_fd, temp, c->dir_fd, name) != 0) unlinkat(c->dir_fd, temp, 0);
    }
    strbuf_deinit(&full);
}

/* ---- eviction ---- */

struct old_entry {
    char name[NAME_BYTES];
    uint64_t n_bytes;
    struct timespec used;
};

static int by_age(const void *a, const void *b)
{
    const struct old_entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void list_entries(struct object_cache *c, DIR *d, struct arena *arena, struct old_entry **out, size_t *n, uint64_t *total)
{
    VEC(struct old_entry) all = {0};
    time_t now = time(NULL);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(c->dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode)) continue;
        bool temp = !strncmp(e->d_name, TEMP_PREFIX, sizeof TEMP_PREFIX - 1);
        if (temp && now - st.st_mtime > 3600) unlinkat(c->dir_fd, e->d_name, 0); /* left by a killed infc */
        if (temp || strlen(e->d_name) >= NAME_BYTES) continue;
        struct old_entry x = {.n_bytes = (uint64_t)st.st_size, .used = st.st_mtim};
        memcpy(x.name, e->d_name, strlen(e->d_name) + 1);
        *total += x.n_bytes;
        vec_push(arena, &all, x);
    }
    *out = all.v;
    *n = all.n;
}

static void evict(struct object_cache *c, uint64_t max_bytes)
{
    int fd = openat(c->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0) close(fd);
        return;
    }
    struct arena arena;
    struct old_entry *all;
    size_t n;
    uint64_t total = 0;
    arena_init(&arena);
    list_entries(c, d, &arena, &all, &n, &total);
    closedir(d);
    if (total > max_bytes) {
        qsort(all, n, sizeof *all, by_age);
        for (size_t i = 0; i < n && total > max_bytes / 4 * 3; i++)
            if (unlinkat(c->dir_fd, all[i].name, 0) == 0) total -= all[i].n_bytes;
    }
    arena_deinit(&arena);
}

void object_cache_close(struct object_cache *c, uint64_t max_bytes)
{
    if (!c) return;
    if (max_bytes != OBJECT_CACHE_ANY_SIZE) evict(c, max_bytes);
    close(c->dir_fd);
    free(c->identity);
    free(c);
}

/* ---- identity ---- */

bool object_cache_self_identity(struct strbuf *out)
{
    struct stat st;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    void *p = fstat(fd, &st) == 0 && st.st_size > 0 ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (p == MAP_FAILED) return false;
    XXH128_hash_t h = XXH3_128bits(p, (size_t)st.st_size);
    munmap(p, (size_t)st.st_size);
    strbuf_printf(out, "infc %016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    return true;
}
