// SPDX-License-Identifier: Apache-2.0
/*
 * Front ends: a model file becomes a tensor IR module.
 *
 * Every problem of a file is collected in the sink, each with the node it is about; NULL is returned when there was
 * any error. Constants of the module point into the mapped file (never copied unless they have to be unpacked); the
 * mapping belongs to the module and goes with ir_module_destroy. With import_onnx_bytes the caller's bytes must outlive
 * the module.
 */
#ifndef INFC_COMPILER_IMPORT_IMPORT_H
#define INFC_COMPILER_IMPORT_IMPORT_H

#include "ir/module.h"

struct import_options {
    /* "NAME:DIMS", NAME an input or a symbolic dim; DIMS comma separated numbers or symbol names. */
    const char *const *shapes;
    int n_shapes;
};

/* Recognises the format by content: an ONNX model or text IR. options may be NULL. */
struct ir_module *import_model(const char *path, const struct import_options *options, struct diag_sink *diag);

struct ir_module *import_onnx(const char *path, const struct import_options *options, struct diag_sink *diag);
/* name stands for the file's name in locations; external data is refused. */
struct ir_module *import_onnx_bytes(const void *data, size_t len, const char *name,
                                    const struct import_options *options, struct diag_sink *diag);

/* docs/onnx-support.md, made from the operator table. */
void import_onnx_support_doc(struct strbuf *out);

#endif
