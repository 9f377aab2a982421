// SPDX-License-Identifier: Apache-2.0
/* One architecture's code and plan as an image of runtime/abi/gpu_format.h. */
#ifndef INFC_COMPILER_GPU_IMAGE_H
#define INFC_COMPILER_GPU_IMAGE_H

#include "compiler/objects.h"

/* jobs: one a kernel of the plan, in its order, all compiled. */
void gpu_image_write(struct strbuf *out, const struct target_level *level, const struct strbuf *plan, const struct object_job *jobs,
                     size_t n_jobs);

#endif
