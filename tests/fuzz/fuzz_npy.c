// SPDX-License-Identifier: Apache-2.0
/* The .npy reader, and that what it reads can be written and read again. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "runtime/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
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
