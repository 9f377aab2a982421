// SPDX-License-Identifier: Apache-2.0
/*
 * From objects to an engine: runs ld.lld on the kernels' objects, the engine's data and the runtime that infc brings, then
 * appends the weights as a segment of their own. No system compiler takes part. Equal input gives equal bytes.
 *
 * The engine is written beside its place and renamed: whatever goes wrong, an old one stays whole. Weights stream through
 * a small buffer, in any size. Of symbols those stay that begin with "infr_".
 */
#ifndef INFC_COMPILER_LINK_H
#define INFC_COMPILER_LINK_H

#include "ir/support/diag.h"
#include "ir/support/str.h"

struct link_object {
    const void *data; /* ELF relocatable object */
    size_t n_bytes;
};

struct link_input {
    const struct link_object *objects; /* in link order; all are linked, what nothing refers to is dropped */
    size_t n_objects;
    const char *lib_dir; /* crt1.o crti.o crtn.o runtime.o libinfops.a libevent.a libc.a; NULL: found, see link_find_lib_dir */
    const char *lld;     /* NULL: $INFC_LLD or what configure found */
    uint64_t weights_bytes; /* 0: no segment */
    bool dynamic;           /* an executable that needs glibc: of code for GPUs, whose driver is opened at run time */
    /* Writes bytes [at, at + n) of the weights to dst (gaps as zeros); called in order. False after a diagnostic. */
    bool (*read_weights)(void *context, uint64_t at, void *dst, size_t n);
    void *context;
    /* xxh64 of the weights goes where this symbol points, hash_offset bytes on (8 bytes of data); NULL: nowhere. */
    const char *hash_symbol;
    uint64_t hash_offset;
};

bool link_engine(const struct link_input *in, const char *output_path, struct diag_sink *diag);

/* $INFC_LIBDIR, or lib beside infc (a build folder), or ../lib/infc (installed), or where configure would install. */
bool link_find_lib_dir(struct strbuf *out);

#endif
