// SPDX-License-Identifier: Apache-2.0
/* Tensors that the command line names: .npy, or .pb (a serialised ONNX TensorProto). */
#ifndef INFC_COMPILER_TENSOR_FILE_H
#define INFC_COMPILER_TENSOR_FILE_H

#include "ir/eval.h"

/* By the path's ending. Data is allocated in the arena: dense, one byte an element below 8 bits. */
bool tensor_file_read(const char *path, struct ir_tensor *out, struct arena *arena, struct diag_sink *diag);

#endif
