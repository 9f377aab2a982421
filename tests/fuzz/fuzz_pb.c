// SPDX-License-Identifier: Apache-2.0
/* The .pb reader, and that what it reads can be written and read again. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "runtime/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct infr_tensor t, back;
    char *text;
    size_t n;
    if (rt_pb_read(data, size, &t, NULL)) return 0;
    FILE *f = open_memstream(&text, &n);
    if (!f || rt_pb_write(f, "name", &t) || fclose(f)) abort();
    if (rt_pb_read((unsigned char *)text, n, &back, NULL)) abort();
    if (back.dtype != t.dtype || back.bytes != t.bytes || memcmp(back.data, t.data, t.bytes))
        abort();
    free(text);
    rt_tensor_free(&back);
    rt_tensor_free(&t);
    return 0;
}
