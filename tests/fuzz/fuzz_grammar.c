// SPDX-License-Identifier: Apache-2.0
//
// Grammars of every kind. The first byte chooses the kind; then the grammar's text up to a NUL, and
// a text to try. Also checked: a text that fits as a whole fits byte by byte, and what is forced
// fits.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_text(struct gr_grammar *g, const char *text, size_t n)
{
    struct gr_state *s = gr_state_create(g), *copy;
    char out[64];
    if (!s) return;
    size_t fit = gr_try(s, text, n), at = 0;
    while (at < n && gr_advance(s, text + at, 1)) at++;
    if (at != fit) abort();
    gr_is_accepting(s);
    size_t forced = gr_forced(s, out, sizeof out);
    copy = gr_state_copy(s);
    if (copy && forced && !gr_advance(copy, out, forced)) abort();
    gr_state_destroy(copy);
    gr_state_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct gr_options small = {.max_memory_bytes = 8 << 20,
                                            .max_states = 5000,
                                            .max_work = 300000,
                                            .max_configs = 200};
    struct gr_grammar *g;
    struct gr_error e;
    if (!size) return 0;
    enum gr_kind kind = (enum gr_kind)(data[0] % 7);
    const char *text = (const char *)data + 1;
    const char *nul = size > 1 ? memchr(text, 0, size - 1) : NULL;
    size_t n = nul ? (size_t)(nul - text) : size - 1;
    if (!gr_compile(kind, text, n, &small, &g, &e)) return 0;
    if (nul) {
        size_t left = size - 2 - n;
        try_text(g, nul + 1, left < 300 ? left : 300);
    }
    gr_destroy(g);
    return 0;
}
