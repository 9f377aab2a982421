// SPDX-License-Identifier: Apache-2.0
/* NVRTC opened at run time, for tests that compile CUDA C++ to PTX; no toolkit header is needed to build them. */
#ifndef INFC_TESTS_PTX_VALIDATE_NVRTC_H
#define INFC_TESTS_PTX_VALIDATE_NVRTC_H

#include <stdbool.h>

struct nvrtc;

/* NULL with a reason when there is no NVRTC. `include` is the toolkit's header folder, or NULL. */
struct nvrtc *nvrtc_open(const char *include, const char **out_reason);
void nvrtc_close(struct nvrtc *n);
/* PTX for compute_ARCH ("80", "90a"), to be freed by the caller; NULL after printing the log to standard error. */
char *nvrtc_compile(struct nvrtc *n, const char *source, const char *arch);
char *nvrtc_compile_file(struct nvrtc *n, const char *folder, const char *name, const char *arch);

#endif
