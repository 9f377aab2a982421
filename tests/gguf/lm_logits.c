// SPDX-License-Identifier: Apache-2.0
/*
 * Prints what the evaluator makes of a language model: usage: lm_logits MODEL f16|bf16|f32 TOKEN...
 * One line a token: its position, then all outputs of its row.
 */
#include <stdio.h>

#include "compiler/import/import.h"
#include "tests/gguf/lm_eval.h"

int main(int argc, char **argv)
{
    static struct lm l;
    struct diag_sink sink;
    struct arena arena;
    struct ir_tensor out;
    struct import_options o = {0};
    int n = argc - 3;
    if (n < 1 || n > LM_PAGE * LM_PAGES_A_SEQ) {
        fprintf(stderr, "usage: lm_logits MODEL f16|bf16|f32 TOKEN... (at most %d)\n", LM_PAGE * LM_PAGES_A_SEQ);
        return 2;
    }
    diag_init(&sink);
    arena_init(&arena);
    o.kv_dtype = dtype_find(argv[2], strlen(argv[2]));
    struct ir_module *m = import_model(argv[1], &o, &sink);
    struct lm_row *rows = ARENA_ARRAY(&arena, struct lm_row, n);
    for (int t = 0; t < n; t++) rows[t] = (struct lm_row){.pos = t, .token = atoi(argv[3 + t]), .wanted = true};
    bool ok = m && lm_init(&l, m) && lm_run(&l, rows, n, &out, &arena, &sink);
    for (int t = 0; ok && t < n; t++) {
        printf("%d", t);
        for (int64_t i = 0; i < out.dims[1]; i++) printf(" %.9g", (double)((const float *)out.data)[t * out.dims[1] + i]);
        putchar('\n');
    }
    diag_print_text(&sink, stderr);
    int code = diag_exit_code(&sink);
    if (m) {
        lm_deinit(&l);
        ir_module_destroy(m);
    }
    arena_deinit(&arena);
    diag_deinit(&sink);
    return code;
}
