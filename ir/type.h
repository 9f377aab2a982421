// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor types: element type, optional encoding (a quantised block format of storage), symbolic shape.
 * Layout is always dense row-major over `dims` at this level.
 */
#ifndef INFC_IR_TYPE_H
#define INFC_IR_TYPE_H

#include "ir/dim.h"
#include "runtime/abi/dtype.h"

#define IR_MAX_RANK 12

struct ir_encoding; /* ir/encoding.h: storage of f32 constants in other forms; NULL = dense */

struct ir_type {
    enum dtype dtype;
    int rank;
    const struct dim *const *dims; /* rank entries, never NULL entries */
    const struct ir_encoding *enc;
};

#endif
