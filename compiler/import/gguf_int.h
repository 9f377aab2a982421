// SPDX-License-Identifier: Apache-2.0
/* Inside of compiler/import/gguf*.c. */
#ifndef INFC_COMPILER_IMPORT_GGUF_INT_H
#define INFC_COMPILER_IMPORT_GGUF_INT_H

#include "compiler/import/gguf.h"

/* Bytes of a scalar kind; 0 for strings and arrays. */
unsigned gguf_kind_bytes(enum gguf_kind k);
/* Does byte order matter to blocks of this format? */
bool gguf_needs_swap(const struct ir_encoding *e);

static inline uint64_t gguf_load(const uint8_t *p, unsigned width, bool big_endian)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < width; i++) v |= (uint64_t)p[big_endian ? width - 1 - i : i] << 8 * i;
    return v;
}

#endif
