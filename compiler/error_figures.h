// SPDX-License-Identifier: Apache-2.0
/* How far a tensor is from the one that it should be. */
#ifndef INFC_COMPILER_ERROR_FIGURES_H
#define INFC_COMPILER_ERROR_FIGURES_H

#include "ir/eval.h"

struct error_figures {
    double max_abs, relative, sqnr_db, cosine;
    bool comparable; /* same type and shape */
};

/* The figures that users compare variants by; a NaN on one side only makes the error infinite. */
struct error_figures error_figures(const struct ir_tensor *want, const struct ir_tensor *got);

#endif
