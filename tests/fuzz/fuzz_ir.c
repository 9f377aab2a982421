// SPDX-License-Identifier: Apache-2.0
/*
 * Text IR as hostile input: whatever parses must verify or be refused with a diagnostic, and its
 * print must parse to the same print again. The bytes behind a NUL, if there is one, are the
 * resource file.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const struct ir_module *m)
{
    struct strbuf first = {0}, raw = {0}, second = {0}, raw_again = {0};
    struct diag_sink sink;
    diag_init(&sink);
    ir_print_module(&first, m, &raw);
    struct ir_module *again =
        ir_parse_module(first.data, first.len, "again", strbuf_get(&raw), raw.len, &sink);
    if (!again) {
        diag_print_text(&sink, stderr);
        abort();
    }
    ir_print_module(&second, again, &raw_again);
    if (first.len != second.len || memcmp(first.data, second.data, first.len) ||
        raw.len != raw_again.len) {
        fprintf(stderr, "--- first\n%s--- second\n%s", first.data, second.data);
        abort();
    }
    ir_module_destroy(again);
    diag_deinit(&sink);
    strbuf_deinit(&first);
    strbuf_deinit(&raw);
    strbuf_deinit(&second);
    strbuf_deinit(&raw_again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *nul = memchr(data, 0, size);
    size_t len = nul ? (size_t)(nul - text) : size, rest = nul ? size - len - 1 : 0;
    struct diag_sink sink;
    diag_init(&sink);
    struct ir_module *m = ir_parse_module(text, len, "fuzz", nul ? nul + 1 : NULL, rest, &sink);
    if (!m && sink.error_count == 0) abort(); /* refused without a word */
    if (m && ir_verify_module(m, &sink)) check_round_trip(m);
    ir_module_destroy(m);
    diag_deinit(&sink);
    return 0;
}
