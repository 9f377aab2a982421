// SPDX-License-Identifier: Apache-2.0
/*
 * A strict JSON reader (RFC 8259) that makes template values: for contexts and for requests of the
 * server. Objects keep their order; a repeated key has its last value at its first place, as
 * Python's json has it. Integers outside 64 bits become JINJA_BIGINT, which prints as it was
 * written.
 *
 * Hostile input: depth is bounded, memory by the arena's cap (at most about 40 bytes per input
 * byte), time is linear. Lone surrogate escapes, invalid UTF-8, control characters in strings, NaN
 * and trailing text are refused.
 */
#ifndef INFC_RUNTIME_TEXT_JSON_READ_H
#define INFC_RUNTIME_TEXT_JSON_READ_H

#include "runtime/text/jinja_value.h"

/* offset_bytes is where reading stopped; message is a literal. */
struct json_read_error {
    size_t offset_bytes;
    const char *message;
};

#define JSON_READ_DEPTH 200u

/* Reads exactly one value from text. Strings without escapes are copied too: text may go away. */
bool json_read(struct jinja_arena *arena, const char *text, size_t len_bytes,
               struct jinja_value *out, struct json_read_error *out_err);

#endif
