// SPDX-License-Identifier: Apache-2.0
/*
 * Tensors in files: .npy, .npz, .pb (ONNX TensorProto), .bin (raw). Readers take bytes in memory,
 * so that they can be fuzzed; they read nothing outside, allocate no more than the bytes there are
 * can fill, and say what is wrong.
 */
#ifndef INFC_RUNTIME_IO_H
#define INFC_RUNTIME_IO_H

#include <stddef.h>
#include <stdio.h>

#include "runtime/tensor.h"

/* ---- whole files ---- */

struct rt_bytes {
    unsigned char *data; /* from malloc */
    size_t n;
};

/* path "-" is standard input, read to its end. */
int rt_file_read(const char *path, struct rt_bytes *out, struct infr_status *st);

/*
 * A file being written: beside its name and renamed when whole, so that a failure leaves the old
 * one. "-" is standard output; devices and pipes are written in place.
 */
struct rt_file {
    FILE *f;
    const char *path;
    char *temporary; /* NULL: in place */
};

int rt_file_create(const char *path, struct rt_file *out, struct infr_status *st);
/* Closes and renames, or, where keep is false or writing failed, removes what was written. */
int rt_file_close(struct rt_file *file, bool keep, struct infr_status *st);

/* ---- formats ---- */

/*
 * One array from p[0..n) into a tensor that owns its memory; *used: its length. numpy has no
 * bfloat16, 8-bit floats and 4-bit integers: their bits come as void ('V2', 'V1') or bytes and take
 * the type `want` when it has that size (DT_NONE: unknown).
 */
int rt_npy_read(const unsigned char *p, size_t n, enum dtype want, struct infr_tensor *out,
                size_t *used, struct infr_status *st);
int rt_npy_write(FILE *f, const struct infr_tensor *t);

/* A zip file with one .npy a member. The bytes must outlive it. */
struct rt_npz {
    const unsigned char *p;
    size_t n;
    struct rt_npz_member {
        const char *name; /* in p, not terminated; without ".npy" */
        size_t name_len;
        uint32_t method, crc;
        uint64_t packed_bytes, bytes;
        const unsigned char *packed;
    } *members;
    size_t n_members;
};

int rt_npz_open(const unsigned char *p, size_t n, struct rt_npz *out, struct infr_status *st);
int rt_npz_read(const struct rt_npz *z, size_t member, enum dtype want, struct infr_tensor *out,
                struct infr_status *st);
void rt_npz_close(struct rt_npz *z);
/* Stored members. names and tensors: n entries. */
int rt_npz_write(FILE *f, size_t n, const char *const *names, const struct infr_tensor *tensors,
                 struct infr_status *st);

/* TensorProto; types below 8 bits are packed in the file. */
int rt_pb_read(const unsigned char *p, size_t n, struct infr_tensor *out, struct infr_status *st);
int rt_pb_write(FILE *f, const char *name, const struct infr_tensor *t);

/* Raw deflate (RFC 1951) into exactly out_n bytes; false when the data are damaged or give another
 * number of bytes. */
bool rt_inflate(const unsigned char *p, size_t n, unsigned char *out, size_t out_n);
uint32_t rt_crc32(uint32_t crc, const void *p, size_t n);

#endif
