// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/io.h"
#include "runtime/status.h"

static int read_fd(int fd, const char *path, uint64_t expected, struct rt_bytes *out,
                   struct infr_status *st)
{
    size_t cap = expected < (size_t)1 << 40 ? (size_t)expected + 1
                                            : (size_t)1 << 40; /* one more, to see the end */
    if (cap < 65536) cap = 65536;
    unsigned char *data = malloc(cap);
    size_t n = 0;
    if (!data) return rt_fail_memory(st, path, cap);
    for (;;) {
        if (n == cap) {
            unsigned char *grown = realloc(data, cap * 2);
            if (!grown) {
                free(data);
                return rt_fail_memory(st, path, cap * 2);
            }
            data = grown, cap *= 2;
        }
        ssize_t got = read(fd, data + n, cap - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            int err = errno;
            free(data);
            return rt_fail(st, INFR_ENVIRONMENT, "cannot read %.300s: %s", path, strerror(err));
        }
        if (!got) break;
        n += (size_t)got;
    }
    *out = (struct rt_bytes){data, n};
    return INFR_OK;
}

int rt_file_read(const char *path, struct rt_bytes *out, struct infr_status *st)
{
    *out = (struct rt_bytes){0};
    if (!strcmp(path, "-")) return read_fd(STDIN_FILENO, "standard input", 0, out, st);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat s;
    /* A file that is not there is the caller's mistake; one that cannot be read is the
     * environment's. */
    if (fd < 0)
        return rt_fail(st, errno == ENOENT || errno == ENOTDIR ? INFR_BAD_INPUT : INFR_ENVIRONMENT,
                       "cannot open %.300s: %s", path, strerror(errno));
    if (fstat(fd, &s) || S_ISDIR(s.st_mode)) {
        close(fd);
        return rt_fail(st, INFR_BAD_INPUT, "%.300s is not a file", path);
    }
    int code = read_fd(fd, path, S_ISREG(s.st_mode) ? (uint64_t)s.st_size : 0, out, st);
    close(fd);
    return code;
}

int rt_file_create(const char *path, struct rt_file *out, struct infr_status *st)
{
    struct stat s;
    *out = (struct rt_file){.path = path};
    if (!strcmp(path, "-")) {
        out->f = stdout;
        return INFR_OK;
    }
    if (!stat(path, &s) && !S_ISREG(s.st_mode)) {
        out->f = fopen(path, "we");
    } else {
        size_t n = strlen(path) + 32;
        out->temporary = malloc(n);
        if (!out->temporary) return rt_fail_memory(st, path, n);
        snprintf(out->temporary, n, "%s.tmp%ld", path, (long)getpid());
        out->f = fopen(out->temporary, "we");
    }
    if (out->f) return INFR_OK;
    int err = errno;
    free(out->temporary);
    out->temporary = NULL;
    return rt_fail(st, INFR_ENVIRONMENT, "cannot write %.300s: %s", path, strerror(err));
}

int rt_file_close(struct rt_file *file, bool keep, struct infr_status *st)
{
    int err = 0;
    if (fflush(file->f) || ferror(file->f)) err = errno ? errno : EIO;
    if (file->f != stdout && fclose(file->f) && !err) err = errno;
    if (file->temporary) {
        if (keep && !err && rename(file->temporary, file->path)) err = errno;
        if (!keep || err) unlink(file->temporary);
        free(file->temporary);
        file->temporary = NULL;
    }
    return err ? rt_fail(st, INFR_ENVIRONMENT, "cannot write %.300s: %s", file->path, strerror(err))
               : INFR_OK;
}
