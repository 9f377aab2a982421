// SPDX-License-Identifier: Apache-2.0
//
// JSON as the server reads and writes it, and events that carry it. What the reader takes is written
// as one event of a stream; whoever cuts the stream into lines by any of the three ends of lines must
// find that one event, whose data reads as the same value: it is written the same a second time.

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"
#include "runtime/text/json_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *event_of(const struct jinja_value *v, size_t *n)
{
    char *out = NULL;
    struct json j = {.f = open_memstream(&out, n)};
    if (!j.f) abort();
    fputs("data: ", j.f);
    api_json_value(&j, NULL, v);
    fputs("\n\n", j.f);
    fclose(j.f);
    return out;
}

// The data of the only event.
static const char *data_of(const char *s, size_t n, size_t *n_data)
{
    size_t end = 0;
    while (end < n && s[end] != '\n' && s[end] != '\r') end++;
    if (n < 8 || memcmp(s, "data: ", 6) || end + 2 != n || memcmp(s + end, "\n\n", 2)) abort();
    *n_data = end - 6;
    return s + 6;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jinja_arena *a = jinja_arena_create((size_t)64 << 20);
    struct jinja_value v, again;
    struct json_read_error e;
    if (size > 1 << 16 || !a || !json_read(a, (const char *)data, size, &v, &e)) {
        jinja_arena_destroy(a);
        return 0;
    }
    size_t n, n_again, n_data;
    char *text = event_of(&v, &n);
    const char *in = data_of(text, n, &n_data);
    if (!json_read(a, in, n_data, &again, &e)) abort();
    char *second = event_of(&again, &n_again);
    if (n != n_again || memcmp(text, second, n)) abort();
    free(text);
    free(second);
    jinja_arena_destroy(a);
    return 0;
}
