// SPDX-License-Identifier: Apache-2.0
/*
 * `infc check FILE` on hostile files of every kind it tells apart (ONNX, GGUF, text IR): what it does and prints, both as text and as
 * JSON. A model without a problem must verify.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compiler/import/import.h"
#include "ir/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *path, FILE *nowhere)
{
    struct diag_sink diag;
    struct import_options options = {.kv_dtype = DT_F16};
    diag_init(&diag);
    struct ir_module *m = import_model(path, &options, &diag);
    if (!m && diag_exit_code(&diag) == 0) abort(); /* refused without an error */
    if (m && !diag.error_count && !ir_verify_module(m, &diag)) {
        diag_print_text(&diag, stderr);
        abort();
    }
    diag_print_text(&diag, nowhere);
    diag_print_json(&diag, nowhere);
    ir_module_destroy(m);
    diag_deinit(&diag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("model", 0);
    FILE *nowhere = fopen("/dev/null", "w");
    if (fd < 0 || !nowhere) exit(3);
    for (size_t done = 0; done < size;) {
        ssize_t k = write(fd, data + done, size - done);
        if (k <= 0) exit(3);
        done += (size_t)k;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    check(path, nowhere);
    fclose(nowhere);
    close(fd);
    return 0;
}
