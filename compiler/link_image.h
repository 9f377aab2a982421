// SPDX-License-Identifier: Apache-2.0
/*
 * The engine file as bytes: a linked executable, the weights, new section headers.
 *
 *   executable as ld.lld wrote it | zeros up to a page | weights | section names | section headers
 *
 * The weights are both a PT_LOAD segment and an allocated section: strip, llvm-strip and objcopy keep them only so. The
 * segment takes the program header of the note that link_note_object adds, moved behind the other segments.
 */
#ifndef INFC_COMPILER_LINK_IMAGE_H
#define INFC_COMPILER_LINK_IMAGE_H

#include "ir/support/diag.h"
#include "ir/support/str.h"

/* An object with nothing but an allocated note, which gives the executable a PT_NOTE to use. */
void link_note_object(struct strbuf *out);

struct link_image {
    struct strbuf head;       /* the executable, headers already changed */
    struct strbuf tail;       /* names and section headers */
    uint64_t sections_offset; /* of the section headers that ld.lld wrote, in head */
    int n_sections;
    uint64_t weights_offset, tail_offset; /* in the file; weights_offset 0: none */
};

/* Takes over elf's bytes. False (with a diagnostic) when it is no executable as expected. */
bool link_image_init(struct link_image *i, struct strbuf *elf, uint64_t weights_bytes, struct diag_sink *diag);
/* Where in `head` the data at a symbol lies, with n bytes behind it; 0: no such symbol. */
uint64_t link_image_find(const struct link_image *i, const char *symbol, uint64_t n);
void link_image_deinit(struct link_image *i);

#endif
