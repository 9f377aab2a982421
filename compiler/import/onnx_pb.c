// SPDX-License-Identifier: Apache-2.0
/*
 * A tensor file (a serialised TensorProto, .pb). It is put into a model with that tensor as its one
 * initialiser, so that the one bounded reader there is sees it, whatever the file holds.
 */
#include <string.h>

#include "compiler/import/import.h"
#include "compiler/import/onnx_int.h"
#include "compiler/import/wire.h"

static void put_field(struct strbuf *s, int tag, const void *data, size_t n)
{
    strbuf_putc(s, (char)tag);
    size_t left = n;
    for (; left >= 0x80; left >>= 7) strbuf_putc(s, (char)(left | 0x80));
    strbuf_putc(s, (char)left);
    strbuf_putn(s, data, n);
}

/* The tensor's fields but its name (8), which an initialiser must have. */
static bool put_tensor(struct strbuf *s, const struct onnx_file *f)
{
    struct wire_reader r = {f->data, f->data + f->len, false};
    struct wire_field field;
    put_field(s, 0x42, "t", 1);
    for (const uint8_t *at = r.p; wire_next(&r, &field); at = r.p)
        if (field.number != 8) strbuf_putn(s, (const char *)at, (size_t)(r.p - at));
    return !r.bad;
}

bool import_tensor_pb(const char *path, struct arena *arena, struct import_value *out,
                      struct diag_sink *diag)
{
    struct onnx_file *f = onnx_map_file(path, path, DIAG_FILE_READ, diag);
    if (!f) return false;
    struct strbuf tensor = {0}, graph = {0}, model = {0};
    struct ir_module *m = NULL;
    if (put_tensor(&tensor, f)) {
        put_field(&graph, 0x2a, strbuf_get(&tensor), tensor.len); /* GraphProto.initializer */
        put_field(&graph, 0x62, "\x0a\x01t", 3);                  /* output "t" */
        strbuf_putn(&model, "\x08\x08\x42\x02\x10\x11", 6);       /* ir_version 8, opset 17 */
        put_field(&model, 0x3a, strbuf_get(&graph), graph.len);
        m = import_onnx_bytes(model.data, model.len, path, NULL, diag);
    } else {
        diag_report(diag, DIAG_ONNX_CORRUPT, path, "not a tensor file");
    }
    const struct ir_const *c = m && m->consts.n == 1 ? m->consts.v[0] : NULL;
    if (c) {
        char *copy = arena_alloc(arena, c->n_bytes + 1);
        memcpy(copy, c->data, c->n_bytes);
        *out = (struct import_value){
            .dtype = c->type.dtype, .rank = c->type.rank, .data = copy, .n_bytes = c->n_bytes};
        for (int i = 0; i < c->type.rank; i++) out->dims[i] = c->type.dims[i]->value;
    } else if (m) {
        diag_report(diag, DIAG_ONNX_CORRUPT, path, "not a tensor file");
    }
    if (m) ir_module_destroy(m);
    strbuf_deinit(&tensor);
    strbuf_deinit(&graph);
    strbuf_deinit(&model);
    onnx_unmap_file(f);
    return c != NULL;
}
