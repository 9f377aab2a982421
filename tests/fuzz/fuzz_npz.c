// SPDX-License-Identifier: Apache-2.0
/*
 * .npz: zip directory, inflate, and the arrays in it. Damaged check sums would hide the arrays, so each member is read as it is and
 * once more with its sum mended; inflate is also tried alone. What could be read is written, read again, and must be the same.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io.h"

enum { MAX_BYTES = 1 << 20, MAX_TENSORS = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The check sum of what member m holds, into m; false where there is no telling. */
static bool mend(struct rt_npz_member *m)
{
    if (m->method == 0 && m->bytes == m->packed_bytes) {
        m->crc = rt_crc32(0, m->packed, m->bytes);
        return true;
    }
    if (m->method != 8 || m->bytes > MAX_BYTES) return false;
    unsigned char *out = malloc(m->bytes + 1);
    bool ok = out && rt_inflate(m->packed, m->packed_bytes, out, m->bytes);
    if (ok) m->crc = rt_crc32(0, out, m->bytes);
    free(out);
    return ok;
}

static size_t bytes_of(const struct infr_tensor *t) { return rt_tensor_elems(t) * dtype_bytes((enum dtype)t->dtype); }

static void read_back(const unsigned char *p, size_t n, const struct infr_tensor *want, size_t n_want)
{
    struct rt_npz z;
    if (rt_npz_open(p, n, &z, NULL) || z.n_members != n_want) abort();
    for (size_t i = 0; i < n_want; i++) {
        struct infr_tensor t;
        char name[8];
        int len = snprintf(name, sizeof name, "%zu", i);
        if (z.members[i].name_len != (size_t)len || memcmp(z.members[i].name, name, (size_t)len)) abort();
        if (rt_npz_read(&z, i, DT_NONE, &t, NULL)) abort();
        if (t.dtype != want[i].dtype || t.rank != want[i].rank || bytes_of(&t) != bytes_of(&want[i])) abort();
        if (bytes_of(&t) && memcmp(t.data, want[i].data, bytes_of(&t))) abort();
        rt_tensor_free(&t);
    }
    rt_npz_close(&z);
}

static void write_all(const struct infr_tensor *t, size_t n)
{
    static const char *const names[MAX_TENSORS] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"};
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f) exit(3);
    int code = rt_npz_write(f, n, names, t, NULL);
    if (fclose(f)) exit(3);
    if (code == INFR_OK) read_back((const unsigned char *)text, len, t, n);
    free(text);
}

static void read_members(struct rt_npz *z)
{
    struct infr_tensor kept[MAX_TENSORS];
    size_t n = 0;
    for (size_t i = 0; i < z->n_members; i++) {
        struct infr_tensor t;
        bool ok = rt_npz_read(z, i, DT_NONE, &t, NULL) == INFR_OK;
        if (!ok && mend(&z->members[i])) ok = rt_npz_read(z, i, DT_NONE, &t, NULL) == INFR_OK;
        if (ok && n < MAX_TENSORS) kept[n++] = t;
        else if (ok) rt_tensor_free(&t);
    }
    write_all(kept, n);
    for (size_t i = 0; i < n; i++) rt_tensor_free(&kept[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rt_npz z;
    unsigned char out[300];
    if (!rt_npz_open(data, size, &z, NULL)) {
        read_members(&z);
        rt_npz_close(&z);
    }
    rt_inflate(data, size, out, sizeof out);
    return 0;
}
