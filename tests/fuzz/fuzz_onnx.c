// SPDX-License-Identifier: Apache-2.0
/*
 * ONNX files as hostile input: a model is either refused with an error or becomes a module that
 * verifies. Inputs that the importer asks for are given as zeros, so that what depends on them is
 * reached.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/import/import.h"
#include "ir/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct ir_module *m, struct diag_sink *diag)
{
    if (!m) {
        if (diag_exit_code(diag) == 0) abort(); /* refused without an error */
        return;
    }
    if (!ir_verify_module(m, diag)) {
        struct strbuf s = {0};
        ir_print_module(&s, m, NULL);
        fprintf(stderr, "%s\n", strbuf_get(&s));
        diag_print_text(diag, stderr);
        abort();
    }
    ir_module_destroy(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const shapes[] = {"x:2,3", "n:5"};
    static const int64_t zero[4];
    struct import_needs needs = {0};
    struct import_options options = {.needs = &needs};
    struct import_value values[8];
    struct diag_sink diag;
    arena_init(&needs.arena);
    diag_init(&diag);
    check(import_onnx_bytes(data, size, "fuzz.onnx", &options, &diag), &diag);
    diag_deinit(&diag);
    for (size_t i = 0; i < needs.inputs.n && i < ARRAY_LEN(values); i++) {
        values[i] = (struct import_value){.name = needs.inputs.v[i],
                                          .dtype = DT_I64,
                                          .rank = 1,
                                          .dims = {1 + (int64_t)(i & 1)},
                                          .data = zero,
                                          .n_bytes = 8 * (1 + (i & 1))};
        options.n_values++;
    }
    if (options.n_values) {
        options.values = values;
        diag_init(&diag);
        check(import_onnx_bytes(data, size, "fuzz.onnx", &options, &diag), &diag);
        diag_deinit(&diag);
    }
    options = (struct import_options){.shapes = shapes, .n_shapes = 1 + (int)(size & 1)};
    diag_init(&diag);
    check(import_onnx_bytes(data, size, "fuzz.onnx", &options, &diag), &diag);
    diag_deinit(&diag);
    arena_deinit(&needs.arena);
    return 0;
}
