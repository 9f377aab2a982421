// SPDX-License-Identifier: Apache-2.0
/*
 * Text form of modules: print -> parse -> print is the identity. Grammar in docs/ir.md. Constants up to 64 bytes (and
 * splats) print inline; bigger ones as `resource(offset=O, bytes=N)` whose data goes to / comes from a side file of raw
 * bytes (NULL: printed as a 64-bit hash only, which does not parse back).
 */
#ifndef INFC_IR_TEXT_H
#define INFC_IR_TEXT_H

#include "ir/module.h"

/* resources: when not NULL, big constants are appended to it and referred to by offset. */
void ir_print_module(struct strbuf *out, const struct ir_module *m, struct strbuf *resources);
/* The same without the values of big constants: it does not parse back. */
void ir_print_module_outline(struct strbuf *out, const struct ir_module *m);
void ir_print_op(struct strbuf *out, const struct ir_op *op); /* one line, for messages */
void ir_print_type(struct strbuf *out, const struct ir_type *t);
/*
 * NULL after diagnostics. file names the text in messages; resources may be NULL when the text has none; the module
 * borrows them. The types of all ops are inferred, and compared with those written down.
 */
struct ir_module *ir_parse_module(const char *text, size_t len, const char *file, const void *resources,
                                  size_t resource_bytes, struct diag_sink *diag);

/* All invariants of ir/module.h and the op table; reports each violation (DIAG_IR_VERIFY) and returns whether none. */
bool ir_verify_module(struct ir_module *m, struct diag_sink *diag);

#endif
