// SPDX-License-Identifier: Apache-2.0
//
// Answers with tool calls. The first byte is the family and two flags, the second the size of
// pieces. Also checked: pieces of another size give the same events, and calls are begun and ended
// in turn.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/grammar/tool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct log {
    uint64_t hash;
    int kind;
    int open;
};

static void on_event(void *user, const struct tool_event *e)
{
    struct log *l = user;
    if (e->kind == TOOL_BEGIN && l->open++) abort();
    if (e->kind == TOOL_ARGUMENTS && !l->open) abort();
    if (e->kind == TOOL_END && --l->open) abort();
    if (l->kind != (int)e->kind) l->hash = (l->hash ^ (uint64_t)e->kind ^ 256) * 0x100000001b3u;
    l->kind = (int)e->kind;
    for (size_t i = 0; i < e->n; i++) l->hash = (l->hash ^ (uint8_t)e->text[i]) * 0x100000001b3u;
}

static uint64_t parse(const uint8_t *data, size_t size, unsigned flags, size_t piece)
{
    struct log l = {.kind = -1};
    struct tool_parser *p = tool_parser_create((enum tool_family)(flags % 11), flags >> 6 & 1,
                                               flags >> 7 & 1, on_event, &l);
    for (size_t at = 0; p && at < size; at += piece)
        tool_parser_push(p, (const char *)data + at, size - at < piece ? size - at : piece);
    if (p) tool_parser_finish(p);
    tool_parser_destroy(p);
    if (l.open) abort();
    return l.hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 3000) return 0;
    tool_family_of((const char *)data, size);
    uint64_t whole = parse(data + 2, size - 2, data[0], size);
    if (parse(data + 2, size - 2, data[0], data[1] % 16 + 1u) != whole) abort();
    return 0;
}
