// SPDX-License-Identifier: Apache-2.0
/* The .npz reader: zip directory, inflate, and the arrays in it. Damaged check sums would hide
 * inflate, so it is also tried alone. */
#include <stdlib.h>

#include "runtime/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rt_npz z;
    unsigned char *out = malloc(4096);
    if (!rt_npz_open(data, size, &z, NULL)) {
        for (size_t i = 0; i < z.n_members; i++) {
            const struct rt_npz_member *m = &z.members[i];
            struct infr_tensor t;
            if (!rt_npz_read(&z, i, DT_NONE, &t, NULL)) rt_tensor_free(&t);
            if (m->method == 8)
                rt_inflate(m->packed, m->packed_bytes, out, m->bytes < 4096 ? m->bytes : 4096);
        }
        rt_npz_close(&z);
    }
    rt_inflate(data, size, out, 300);
    free(out);
    return 0;
}
