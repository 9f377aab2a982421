// SPDX-License-Identifier: Apache-2.0
/* Growable string on the heap (strbuf_deinit frees). data is always NUL-terminated once written to. */
#ifndef INFC_IR_SUPPORT_STR_H
#define INFC_IR_SUPPORT_STR_H

#include "ir/support/compiler.h"

struct strbuf {
    char *data;
    size_t len, cap;
};

void strbuf_deinit(struct strbuf *s);
void strbuf_putc(struct strbuf *s, char c);
void strbuf_puts(struct strbuf *s, const char *text);
void strbuf_putn(struct strbuf *s, const char *text, size_t len);
/* v in decimal: what %llu prints, some ten times faster. */
void strbuf_putu(struct strbuf *s, uint64_t v);
void strbuf_printf(struct strbuf *s, const char *fmt, ...) INFC_PRINTF(2, 3);
/* Writes text as a JSON string with quotes; bytes that are not UTF-8 become U+FFFD. */
void strbuf_put_json(struct strbuf *s, const char *text);
/* "" when nothing was written. */
const char *strbuf_get(const struct strbuf *s);

#endif
