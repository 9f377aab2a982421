// SPDX-License-Identifier: Apache-2.0
//
// Templates and contexts. The input is a template, then optionally a NUL byte and a JSON context.
// The template is compiled, opened and rendered under small limits; then the compiled bytes are
// damaged in a way that depends on the input and opened and rendered again.

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "runtime/text/jinja.h"
#include "runtime/text/json_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void render(const struct jinja_blob *blob, const struct jinja_value *context)
{
    static const struct jinja_options options = {
        .limits = {.max_steps = 200000, .max_output_bytes = 1 << 20, .max_memory_bytes = 16 << 20},
        .have_now = true,
        .now_unix_s = 1000000000};
    struct jinja_template tmpl;
    struct jinja_output out;
    struct jinja_error err;

    if (jinja_template_open(blob->data, blob->size_bytes, &tmpl, &err) &&
        jinja_render(&tmpl, context, &options, &out, &err))
        jinja_output_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char plain[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"h\\u00e9\"}], \"n\": 2.5}";
    const char *text = (const char *)data, *nul = size ? memchr(text, 0, size) : NULL;
    struct jinja_arena *arena = jinja_arena_create(16 << 20);
    struct jinja_value context;
    struct json_read_error json_err;
    struct jinja_blob blob;
    struct jinja_error err;
    uint64_t h = 1469598103934665603u;
    size_t len = nul ? (size_t)(nul - text) : size, i, at;

    if (!arena)
        return 0;
    if (!nul || !json_read(arena, nul + 1, size - len - 1, &context, &json_err) ||
        context.kind != JINJA_DICT)
        json_read(arena, plain, sizeof(plain) - 1, &context, &json_err);
    if (jinja_compile(text, len, &blob, &err)) {
        render(&blob, &context);
        for (i = 0; i < size; i++)
            h = (h ^ data[i]) * 1099511628211u;
        for (i = 0; i < 8; i++) {
            h = h * 6364136223846793005u + 1442695040888963407u;
            at = (size_t)(h >> 33) % (blob.size_bytes / 4);
            ((uint32_t *)blob.data)[at] ^= h & 1 ? 1u << (h >> 20 & 31) : (uint32_t)(h >> 8) & 63u;
            render(&blob, &context);
        }
        jinja_blob_deinit(&blob);
    }
    jinja_arena_destroy(arena);
    return 0;
}
