// SPDX-License-Identifier: Apache-2.0
/*
 * The .npy readers: what the runtime's reads can be written and read again, and what the compiler's reads the runtime's reads, too, as the
 * same tensor.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compiler/npy.h"
#include "runtime/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_compiler(const uint8_t *data, size_t size)
{
    struct infr_tensor t;
    struct ir_tensor mine;
    struct diag_sink diag;
    struct arena arena;
    size_t used;
    char path[64];
    int fd = memfd_create("npy", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) exit(3);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    arena_init(&arena);
    diag_init(&diag);
    if (npy_read(path, &mine, &arena, &diag)) {
        if (rt_npy_read(data, size, mine.dtype, &t, &used, NULL)) abort();
        if (t.rank != (uint32_t)mine.rank || (enum dtype)t.dtype != mine.dtype || t.bytes != mine.n_bytes) abort();
        for (int i = 0; i < mine.rank; i++)
            if (t.dims[i] != mine.dims[i]) abort();
        if (t.bytes && memcmp(t.data, mine.data, t.bytes)) abort();
        rt_tensor_free(&t);
    }
    diag_deinit(&diag);
    arena_deinit(&arena);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_compiler(data, size);
    static const enum dtype wants[] = {DT_NONE, DT_BF16, DT_F8E5M2, DT_I4, DT_U2};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        struct infr_tensor t, back;
        char *text;
        size_t n, used;
        if (rt_npy_read(data, size, wants[i], &t, &used, NULL)) continue;
        FILE *f = open_memstream(&text, &n);
        if (!f || used > size || rt_npy_write(f, &t) || fclose(f)) abort();
        if (rt_npy_read((unsigned char *)text, n, (enum dtype)t.dtype, &back, &used, NULL)) abort();
        if (back.dtype != t.dtype || back.bytes != t.bytes || memcmp(back.data, t.data, t.bytes))
            abort();
        free(text);
        rt_tensor_free(&back);
        rt_tensor_free(&t);
    }
    return 0;
}
