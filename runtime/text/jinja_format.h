// SPDX-License-Identifier: Apache-2.0
/* Python's two ways of formatting text: `text % values` and `text.format(values)`. */
#ifndef INFC_RUNTIME_TEXT_JINJA_FORMAT_H
#define INFC_RUNTIME_TEXT_JINJA_FORMAT_H

#include "runtime/text/jinja_rt.h"

/* values: a tuple, a dict (for %(key)s), or one value. */
bool jinja_format_percent(struct jinja_rt *rt, const struct jinja_value *text,
                          const struct jinja_value *values, struct jinja_value *out);
bool jinja_format_braces(struct jinja_rt *rt, const struct jinja_value *text,
                         const struct jinja_args *args, struct jinja_value *out);

#endif
