// SPDX-License-Identifier: Apache-2.0
#define _XOPEN_SOURCE 700 /* open flags, realpath */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/import/onnx_int.h"

struct onnx_file *onnx_map_file(const char *path, const char *loc, enum diag_id id,
                                struct diag_sink *diag)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        diag_report(diag, id, loc, "%s: %s", path, strerror(errno));
        return NULL;
    }
    struct stat st;
    void *p = NULL;
    struct onnx_file *f = NULL;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        diag_report(diag, id, loc, "%s is not a regular file", path);
    } else if (st.st_size > 0 &&
               (p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED) {
        diag_report(diag, id, loc, "%s cannot be mapped: %s", path, strerror(errno));
    } else {
        f = calloc(1, sizeof *f);
        if (!f) INFC_UNREACHABLE("out of memory");
        *f = (struct onnx_file){p, (size_t)st.st_size};
    }
    close(fd);
    return f;
}

void onnx_unmap_file(struct onnx_file *f)
{
    if (!f) return;
    if (f->len) munmap((void *)(uintptr_t)f->data, f->len);
    free(f);
}
