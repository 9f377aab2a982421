// SPDX-License-Identifier: Apache-2.0
#include "ir/text.h"

void ir_print_type(struct strbuf *out, const struct ir_type *t)
{
    strbuf_puts(out, dtype_name(t->dtype));
    strbuf_putc(out, '[');
    for (int i = 0; i < t->rank; i++) {
        if (i) strbuf_puts(out, ", ");
        dim_print(out, t->dims[i]);
    }
    strbuf_putc(out, ']');
}
