// SPDX-License-Identifier: Apache-2.0
#include "compiler/import/import.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "compiler/import/gguf.h"
#include "compiler/import/onnx_int.h"
#include "compiler/import/wire.h"
#include "ir/text.h"

static bool looks_like_text(const uint8_t *p, size_t n)
{
    if (n > 256) n = 256;
    for (size_t i = 0; i < n; i++)
        if (!isprint(p[i]) && !isspace(p[i])) return false;
    return n > 0;
}

static void release_side_file(void *owned) { onnx_unmap_file(owned); }

/* Text IR; big constants come from PATH.bin, which the module keeps mapped. */
static struct ir_module *import_text(const struct onnx_file *f, const char *path, struct diag_sink *diag)
{
    struct strbuf side = {0};
    strbuf_printf(&side, "%s.bin", path);
    bool there = access(strbuf_get(&side), R_OK) == 0;
    struct onnx_file *bin = there ? onnx_map_file(strbuf_get(&side), path, DIAG_FILE_READ, diag) : NULL;
    strbuf_deinit(&side);
    if (there && !bin) return NULL;
    struct ir_module *m = ir_parse_module((const char *)f->data, f->len, path, bin ? bin->data : NULL, bin ? bin->len : 0, diag);
    if (m && bin) {
        m->release = release_side_file;
        m->owned = bin;
    } else {
        onnx_unmap_file(bin);
    }
    return m;
}

struct ir_module *import_model(const char *path, const struct import_options *options, struct diag_sink *diag)
{
    struct onnx_file *f = onnx_map_file(path, path, DIAG_FILE_READ, diag);
    if (!f) return NULL;
    bool onnx = wire_looks_like_model(f->data, f->len), text = !onnx && looks_like_text(f->data, f->len);
    bool gguf = gguf_looks_like(f->data, f->len);
    struct ir_module *m = NULL;
    if (text && !gguf && options && (options->n_shapes || options->n_values))
        diag_report(diag, DIAG_OPTION, path, "text IR states its shapes and constants itself: --shape and --const are for ONNX models");
    else if (text && !gguf) m = import_text(f, path, diag);
    else if (!onnx && !gguf) diag_report(diag, DIAG_FORMAT_UNKNOWN, path, f->len ? "not an ONNX or GGUF model and not text IR" : "the file is empty");
    onnx_unmap_file(f);
    if (gguf) return import_gguf(path, options, diag); /* verifies itself */
    if (onnx) m = import_onnx(path, options, diag);
    if (!m || diag->error_count || ir_verify_module(m, diag)) return m;
    ir_module_destroy(m);
    return NULL;
}

bool import_describe(const char *path, bool json, FILE *out, struct diag_sink *diag)
{
    struct onnx_file *f = onnx_map_file(path, path, DIAG_FILE_READ, diag);
    bool gguf = f && gguf_looks_like(f->data, f->len);
    onnx_unmap_file(f);
    if (!gguf) return false;
    struct gguf *g = gguf_open(path, diag);
    if (g) gguf_print(g, json, out);
    gguf_close(g);
    return true;
}
