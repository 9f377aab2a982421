// SPDX-License-Identifier: Apache-2.0
//
// GGUF files: opened, listed, every tensor's first block unpacked, then imported as a model.

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/import/gguf.h"
#include "compiler/import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct diag_sink sink;
    float x[ENCODING_MAX_BLOCK];
    diag_init(&sink);
    struct gguf *g = gguf_open_bytes(data, size, "fuzz.gguf", &sink);
    if (g) {
        FILE *null = fopen("/dev/null", "w");
        if (null) {
            gguf_print(g, false, null);
            gguf_print(g, true, null);
            fclose(null);
        }
        for (size_t i = 0; i < g->tensors.n; i++) {
            const struct gguf_tensor *t = g->tensors.v[i];
            encoding_unpack(t->enc, t->data, t->enc->block_elems, x);
        }
    }
    struct import_options options = {.kv_dtype = DT_F16};
    struct ir_module *m = g ? import_gguf_file(g, &options, &sink) : NULL; /* takes the file over */
    ir_module_destroy(m);
    diag_deinit(&sink);
    return 0;
}
