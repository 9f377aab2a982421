// SPDX-License-Identifier: Apache-2.0
/*
 * Front ends: a model file becomes a tensor IR module.
 *
 * Every problem of a file is collected in the sink, each with the node it is about; NULL is
 * returned when there was any error. Constants of the module point into the mapped file (never
 * copied unless they have to be unpacked); the mapping belongs to the module and goes with
 * ir_module_destroy. With import_onnx_bytes the caller's bytes must outlive the module.
 */
#ifndef INFC_COMPILER_IMPORT_IMPORT_H
#define INFC_COMPILER_IMPORT_IMPORT_H

#include "ir/module.h"

/* A tensor given for an input at build time: dense, one byte an element below 8 bits. */
struct import_value {
    const char *name;
    enum dtype dtype;
    int rank;
    int64_t dims[IR_MAX_RANK];
    const void *data; /* the module keeps a copy */
    size_t n_bytes;
};

/* Inputs whose content (not shape) some node needs to be known at build time; see
 * import_options.needs. */
struct import_needs {
    struct arena arena;
    VEC(const char *) inputs;
};

struct import_options {
    /* "NAME:DIMS", NAME an input or a symbolic dim; DIMS comma separated numbers or symbol names.
     */
    const char *const *shapes;
    int n_shapes;
    /* Inputs that become constants: the engine then has no such input. */
    const struct import_value *values;
    int n_values;
    /*
     * When not NULL, the inputs behind DIAG_ONNX_DYNAMIC diagnostics are added: with values for
     * them the model can be imported, as far as those nodes go. The caller initialises and frees
     * the arena.
     */
    struct import_needs *needs;
    /* Language models: element type of the KV cache (DT_NONE: f16; I8 and I4: blocks with a scale), and
     * the context that the engine is for (0: as trained). */
    enum dtype kv_dtype;
    int64_t context;
    const char *act; /* activations of quantised products: "i12", "i8"; NULL: f32 */
};

/* Recognises the format by content: an ONNX model, a GGUF model or text IR. options may be NULL. What comes without an error has
 * been verified: whatever a file says, passes and lowering get no other IR. */
struct ir_module *import_model(const char *path, const struct import_options *options,
                               struct diag_sink *diag);

struct ir_module *import_onnx(const char *path, const struct import_options *options,
                              struct diag_sink *diag);
struct gguf;
struct ir_module *import_gguf(const char *path, const struct import_options *options,
                              struct diag_sink *diag);
/* The module takes over the open file, also when NULL is returned. */
struct ir_module *import_gguf_file(struct gguf *g, const struct import_options *options,
                                   struct diag_sink *diag);
/* name stands for the file's name in locations; external data is refused. */
struct ir_module *import_onnx_bytes(const void *data, size_t len, const char *name,
                                    const struct import_options *options, struct diag_sink *diag);

/* A file whose format has a listing of its own (GGUF: metadata and tensors): prints it, or reports,
 * and returns true. */
bool import_describe(const char *path, bool json, FILE *out, struct diag_sink *diag);

/*
 * A tensor file (.pb, a serialised TensorProto) as a value without a name, its data in the arena.
 * False after diagnostics.
 */
bool import_tensor_pb(const char *path, struct arena *arena, struct import_value *out,
                      struct diag_sink *diag);

/* docs/onnx-support.md, made from the operator table. */
void import_onnx_support_doc(struct strbuf *out);

#endif
