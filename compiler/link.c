// SPDX-License-Identifier: Apache-2.0
#define _XOPEN_SOURCE 700
#include "compiler/link.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "compiler/link_image.h"
#include "config.h"

/*
 * Weights are written a whole huge page of the file at a time: file systems that keep large folios then cache it as one, and
 * the engine's mapping of it takes one entry of the TLB. Decoding a language model is 5% faster for it.
 */
#define CHUNK_BYTES ((size_t)2 << 20)
#define HOLE_BYTES ((size_t)64 << 10) /* zeros of this size are left out of the file */
#define MESSAGE_LIMIT ((size_t)16 << 10)

extern char **environ;

/* ---- files ---- */

static bool write_at(int fd, const void *from, size_t n, uint64_t at)
{
    const char *p = from;
    while (n > 0) {
        ssize_t k = pwrite(fd, p, n, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            if (k == 0) errno = ENOSPC;
            return false;
        }
        p += k;
        n -= (size_t)k;
        at += (uint64_t)k;
    }
    return true;
}

static bool write_file(const char *path, const struct strbuf *s)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool ok = write_at(fd, strbuf_get(s), s->len, 0);
    return close(fd) == 0 && ok;
}

static bool read_file(const char *path, struct strbuf *out)
{
    char buffer[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    for (;;) {
        ssize_t k = read(fd, buffer, sizeof buffer);
        if (k < 0 && errno == EINTR) continue;
        if (k > 0) strbuf_putn(out, buffer, (size_t)k);
        if (k <= 0) {
            close(fd);
            return k == 0;
        }
    }
}

static bool exists(const char *dir, const char *name)
{
    struct strbuf s = {0};
    strbuf_printf(&s, "%s/%s", dir, name);
    bool ok = access(strbuf_get(&s), R_OK) == 0;
    strbuf_deinit(&s);
    return ok;
}

bool link_find_lib_dir(struct strbuf *out)
{
    const char *env = getenv("INFC_LIBDIR");
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (env && *env) {
        strbuf_puts(out, env);
        return true;
    }
    while (n > 0 && self[n - 1] != '/') n--;
    const char *const places[] = {"lib", "../lib/infc"};
    for (size_t i = 0; n > 0 && i < ARRAY_LEN(places); i++) {
        struct strbuf dir = {0};
        strbuf_putn(&dir, self, (size_t)n);
        strbuf_puts(&dir, places[i]);
        bool here = exists(strbuf_get(&dir), "runtime.o");
        if (here) strbuf_putn(out, dir.data, dir.len);
        strbuf_deinit(&dir);
        if (here) return true;
    }
    if (!exists(INFC_CONFIG_LIB_DIR, "runtime.o")) return false;
    strbuf_puts(out, INFC_CONFIG_LIB_DIR);
    return true;
}

/* ---- ld.lld ---- */

/*
 * All objects in one archive: one file to write and to read. Members are named by number, so that nothing of this
 * machine is in it.
 */
static void put_member(struct strbuf *ar, size_t number, const void *data, size_t n)
{
    char name[17], header[61];
    snprintf(name, sizeof name, "%zu.o/", number);
    snprintf(header, sizeof header, "%-16s%-12d%-6d%-6d%-8s%-10zu`\n", name, 0, 0, 0, "644", n);
    strbuf_putn(ar, header, 60);
    strbuf_putn(ar, data, n);
    if (n % 2) strbuf_putc(ar, '\n');
}

static bool write_archive(const struct link_input *in, const char *path)
{
    struct strbuf ar = {0}, note = {0};
    strbuf_puts(&ar, "!<arch>\n");
    for (size_t i = 0; i < in->n_objects; i++) put_member(&ar, i, in->objects[i].data, in->objects[i].n_bytes);
    link_note_object(&note);
    put_member(&ar, in->n_objects, note.data, note.len);
    bool ok = write_file(path, &ar);
    strbuf_deinit(&ar);
    strbuf_deinit(&note);
    return ok;
}

/* Runs argv; what it says on standard error goes to `said`. Exit status, or -1 with errno. */
static int run(char *const *argv, struct strbuf *said)
{
    int pipes[2], status;
    pid_t pid;
    if (pipe(pipes) != 0) return -1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 2);
    posix_spawn_file_actions_addclose(&actions, pipes[0]);
    posix_spawn_file_actions_addclose(&actions, pipes[1]);
    int error = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    for (char buffer[4096]; !error;) {
        ssize_t k = read(pipes[0], buffer, sizeof buffer);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        if (said->len < MESSAGE_LIMIT) strbuf_putn(said, buffer, (size_t)k);
    }
    close(pipes[0]);
    if (error) {
        errno = error;
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static const char *lld_path(const struct link_input *in)
{
    const char *env = getenv("INFC_LLD");
    if (in->lld) return in->lld;
    return env && *env ? env : INFC_CONFIG_LLD;
}

static bool run_lld(const struct link_input *in, const char *lib, const char *archive, const char *linked,
                    struct diag_sink *diag)
{
    struct arena a;
    struct strbuf said = {0};
    arena_init(&a);
    char *argv[48], *objects = arena_strdup(&a, archive), *out = arena_strdup(&a, linked);
    char *const head[] = {arena_strdup(&a, lld_path(in)), "-m", "elf_x86_64", "--gc-sections", "--icf=all", "--build-id=none", "--threads=1", "-z",
                          "max-page-size=4096", "-z", "noexecstack", "-o", out};
    /* The libraries' names are those of the system that runs the engine; symbols of theirs are only looked up here. */
    char *const dynamic[] = {"-dynamic-linker", "/lib64/ld-linux-x86-64.so.2", "--allow-shlib-undefined", "-z", "now", "--hash-style=gnu"};
    static const char *const start[] = {"crt1.o", "crti.o", "runtime.o"}, *const static_libs[] = {"libinfops.a", "libevent.a", "libc.a"},
                      *const dynamic_libs[] = {"libinfops.a", "libevent.a", "libc.so.6", "libm.so.6", "libc_nonshared.a", "libgcc.a"};
    const char *const *libs = in->dynamic ? dynamic_libs : static_libs;
    size_t n = 0, n_libs = in->dynamic ? ARRAY_LEN(dynamic_libs) : ARRAY_LEN(static_libs);
    for (size_t i = 0; i < ARRAY_LEN(head); i++) argv[n++] = head[i];
    if (!in->dynamic) argv[n++] = "-static";
    for (size_t i = 0; in->dynamic && i < ARRAY_LEN(dynamic); i++) argv[n++] = dynamic[i];
    for (size_t i = 0; i < ARRAY_LEN(start); i++) argv[n++] = arena_printf(&a, "%s/%s", lib, start[i]);
    argv[n++] = "--whole-archive", argv[n++] = objects, argv[n++] = "--no-whole-archive", argv[n++] = "--start-group";
    for (size_t i = 0; i < n_libs; i++) argv[n++] = arena_printf(&a, "%s/%s", lib, libs[i]);
    argv[n++] = "--end-group", argv[n++] = arena_printf(&a, "%s/crtn.o", lib), argv[n] = NULL;
    int status = run(argv, &said);
    bool ok = status == 0;
    if (status < 0)
        diag_report_remedy(diag, DIAG_LINK, NULL, "install lld or name it in INFC_LLD", "cannot run %s: %s", argv[0], strerror(errno));
    else if (!ok) diag_report(diag, DIAG_LINK, NULL, "ld.lld failed (status %d): %s", status, strbuf_get(&said));
    strbuf_deinit(&said);
    arena_deinit(&a);
    return ok;
}

/* Links in a folder of its own, which is gone afterwards; the executable's bytes in `out`. */
static bool link_objects(const struct link_input *in, struct strbuf *out, struct diag_sink *diag)
{
    const char *tmp = getenv("TMPDIR");
    struct strbuf dir = {0}, archive = {0}, linked = {0}, lib = {0};
    strbuf_printf(&dir, "%s/infc-link-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    bool made = mkdtemp(dir.data) != NULL, ok = made;
    if (!made) diag_report(diag, DIAG_FILE_WRITE, strbuf_get(&dir), "no folder for temporary files: %s", strerror(errno));
    strbuf_printf(&archive, "%s/objects.a", strbuf_get(&dir));
    strbuf_printf(&linked, "%s/engine", strbuf_get(&dir));
    if (in->lib_dir) strbuf_puts(&lib, in->lib_dir);
    else if (ok && !link_find_lib_dir(&lib))
        ok = diag_report_remedy(diag, DIAG_ENVIRONMENT, NULL, "set INFC_LIBDIR to the folder with runtime.o",
                                "infc's runtime library is not where it was installed");
    if (ok && !write_archive(in, strbuf_get(&archive)))
        ok = diag_report(diag, DIAG_FILE_WRITE, strbuf_get(&archive), "cannot write the objects: %s", strerror(errno));
    ok = ok && run_lld(in, strbuf_get(&lib), strbuf_get(&archive), strbuf_get(&linked), diag);
    if (ok && !read_file(strbuf_get(&linked), out))
        ok = diag_report(diag, DIAG_LINK, strbuf_get(&linked), "cannot read what ld.lld wrote: %s", strerror(errno));
    if (made) {
        unlink(strbuf_get(&archive));
        unlink(strbuf_get(&linked));
        rmdir(strbuf_get(&dir));
    }
    strbuf_deinit(&dir);
    strbuf_deinit(&archive);
    strbuf_deinit(&linked);
    strbuf_deinit(&lib);
    return ok;
}

/* ---- the engine file ---- */

static bool all_zero(const char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && !memcmp(p, p + 1, n - 1));
}

/* Blocks of zeros become holes. */
static bool write_sparse(int fd, const char *p, size_t n, uint64_t at)
{
    size_t from = 0; /* of a run that is not zero */
    for (size_t i = 0; i < n; i += HOLE_BYTES) {
        size_t k = n - i < HOLE_BYTES ? n - i : HOLE_BYTES;
        if (!all_zero(p + i, k)) continue;
        if (from < i && !write_at(fd, p + from, i - from, at + from)) return false;
        from = i + k;
    }
    return from >= n || write_at(fd, p + from, n - from, at + from);
}

static bool write_failed(const char *path, struct diag_sink *diag)
{
    return diag_report(diag, DIAG_FILE_WRITE, path, "the engine cannot be written: %s", strerror(errno));
}

static bool write_weights(const struct link_input *in, int fd, uint64_t offset, uint64_t *out_hash, const char *path,
                          struct diag_sink *diag)
{
    char *chunk = malloc(CHUNK_BYTES);
    if (!chunk) return diag_report(diag, DIAG_ENVIRONMENT, NULL, "out of memory");
    bool ok = true;
    XXH64_state_t hash;
    XXH64_reset(&hash, 0);
    size_t n;
    for (uint64_t at = 0; ok && at < in->weights_bytes; at += n) {
        n = CHUNK_BYTES - (size_t)((offset + at) % CHUNK_BYTES);
        if (n > in->weights_bytes - at) n = (size_t)(in->weights_bytes - at);
        ok = in->read_weights(in->context, at, chunk, n);
        if (ok) XXH64_update(&hash, chunk, n);
        if (ok && !write_sparse(fd, chunk, n, offset + at)) ok = write_failed(path, diag);
    }
    free(chunk);
    *out_hash = XXH64_digest(&hash);
    return ok;
}

static bool write_hash(const struct link_input *in, const struct link_image *image, int fd, uint64_t hash, const char *path,
                       struct diag_sink *diag)
{
    if (!in->hash_symbol) return true;
    uint64_t at = link_image_find(image, in->hash_symbol, in->hash_offset + sizeof hash);
    if (!at) return diag_report(diag, DIAG_LINK, path, "the linked executable has no symbol %s", in->hash_symbol);
    return write_at(fd, (const char *)&hash, sizeof hash, at + in->hash_offset) || write_failed(path, diag);
}

static bool write_image(const struct link_input *in, const struct link_image *image, int fd, const char *path,
                        struct diag_sink *diag)
{
    uint64_t size = image->weights_offset ? image->tail_offset + image->tail.len : image->head.len;
    if (ftruncate(fd, (off_t)size) != 0 || !write_at(fd, image->head.data, image->head.len, 0)) return write_failed(path, diag);
    if (!image->weights_offset) return true;
    uint64_t hash = 0;
    if (!write_weights(in, fd, image->weights_offset, &hash, path, diag) || !write_hash(in, image, fd, hash, path, diag)) return false;
    return write_at(fd, image->tail.data, image->tail.len, image->tail_offset) || write_failed(path, diag);
}

/* 0777 as the user's umask leaves it. The umask can only be read by setting it. */
static mode_t executable_mode(void)
{
    mode_t mask = umask(022);
    umask(mask);
    return 0777 & ~mask;
}

/*
 * Where the file really goes: the target of a link, so that the link stays. Something that is there and is no plain file
 * (a folder, /dev/null) is never replaced.
 */
static bool resolve_output(const char *output_path, struct strbuf *out, struct diag_sink *diag)
{
    struct stat st;
    if (stat(output_path, &st) != 0) {
        strbuf_puts(out, output_path);
        return errno == ENOENT || write_failed(output_path, diag);
    }
    if (!S_ISREG(st.st_mode))
        return diag_report_remedy(diag, DIAG_FILE_WRITE, output_path, "name another file with -o", "the engine cannot be written: the path is no plain file");
    char *real = realpath(output_path, NULL);
    strbuf_puts(out, real ? real : output_path);
    free(real);
    return true;
}

static bool write_engine(const struct link_input *in, const struct link_image *image, const char *output_path,
                         struct diag_sink *diag)
{
    struct strbuf path = {0}, temp = {0};
    bool ok = resolve_output(output_path, &path, diag);
    const char *slash = strrchr(strbuf_get(&path), '/');
    size_t dir_len = slash ? (size_t)(slash - path.data) + 1 : 0;
    strbuf_putn(&temp, strbuf_get(&path), dir_len);
    strbuf_printf(&temp, ".%.200s.XXXXXX", strbuf_get(&path) + dir_len);
    int fd = ok ? mkstemp(temp.data) : -1;
    if (ok && fd < 0) ok = write_failed(output_path, diag);
    bool made = fd >= 0;
    if (ok) fcntl(fd, F_SETFD, FD_CLOEXEC);
    ok = ok && write_image(in, image, fd, output_path, diag);
    if (ok && fchmod(fd, executable_mode()) != 0) ok = write_failed(output_path, diag);
    if (made && close(fd) != 0 && ok) ok = write_failed(output_path, diag);
    if (ok && rename(strbuf_get(&temp), strbuf_get(&path)) != 0) ok = write_failed(output_path, diag);
    if (made && !ok) unlink(strbuf_get(&temp));
    strbuf_deinit(&path);
    strbuf_deinit(&temp);
    return ok;
}

bool link_engine(const struct link_input *in, const char *output_path, struct diag_sink *diag)
{
    struct strbuf elf = {0};
    struct link_image image = {0};
    bool ok = link_objects(in, &elf, diag) && link_image_init(&image, &elf, in->weights_bytes, diag) &&
              write_engine(in, &image, output_path, diag);
    link_image_deinit(&image);
    strbuf_deinit(&elf);
    return ok;
}
