// SPDX-License-Identifier: Apache-2.0
/* Compiled patterns into the pre-tokenizer's section. */
#include <string.h>

#include "compiler/tok/blob.h"

static struct tok_dfa put_dfa(struct rx *rx, const struct rx_dfa *d, struct tok_bytes *out)
{
    struct tok_dfa t = {.n_states = d->n_states, .n_cols = d->n_cols};
    if (d->n_states == 0) return t;
    t.trans = tok_bytes_add(rx->arena, out, d->trans, (size_t)d->n_states * d->n_cols * 2, 8);
    t.start = tok_bytes_add(rx->arena, out, d->start, ((size_t)rx->n_classes + 1) * 2, 8);
    return t;
}

bool tok_pre_build(struct rx *rx, const char *const *patterns, size_t n, struct tok_bytes *out)
{
    struct rx_pattern parsed[TOK_MAX_PASSES];
    struct rx_compiled compiled;
    struct tok_pre_header h = {.n_passes = (uint32_t)n};
    if (n > TOK_MAX_PASSES) return rx_fail(rx, "more than %u patterns", TOK_MAX_PASSES);
    for (size_t i = 0; i < n; i++)
        if (!rx_parse(rx, patterns[i], strlen(patterns[i]), &parsed[i])) return false;
    if (!rx_partition(rx)) return false;
    tok_bytes_add(rx->arena, out, NULL, sizeof h, 8);
    h.n_classes = rx->n_classes;
    h.n_blocks = rx->n_blocks;
    h.stage1 = tok_bytes_add(rx->arena, out, rx->stage1, (UNI_COUNT >> 8) * 2, 8);
    h.stage2 = tok_bytes_add(rx->arena, out, rx->stage2, (size_t)rx->n_blocks * 256, 8);
    for (size_t i = 0; i < n; i++) {
        if (!rx_compile(rx, &parsed[i], &compiled)) return false;
        struct tok_pass *p = &h.pass[i];
        p->match = put_dfa(rx, &compiled.match, out);
        p->filter = put_dfa(rx, &compiled.filter, out);
        p->n_looks = compiled.n_looks;
        for (uint32_t k = 0; k < p->n_looks; k++) p->look[k] = put_dfa(rx, &compiled.look[k], out);
    }
    memcpy(out->v, &h, sizeof h);
    return true;
}
