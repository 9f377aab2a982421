// SPDX-License-Identifier: Apache-2.0
/* The plan of an engine: validation, then binding of made-up shapes. No kernel is called: code is
 * trusted to fit its plan. */
#include <stdlib.h>
#include <string.h>

#include "runtime/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void kernel(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end,
                   void *scratch)
{
    (void)bufs, (void)dims, (void)begin, (void)end, (void)scratch;
}

static void bind(struct infr_engine *e)
{
    struct infr_session *s;
    struct infr_tensor *t = calloc((size_t)e->n_inputs + 1, sizeof *t);
    int64_t *sym = calloc((size_t)e->n_symbols + 1, sizeof *sym);
    for (uint32_t k = 0; k < e->n_symbols; k++) sym[k] = e->symbols[k].lo;
    for (uint32_t i = 0; i < e->n_inputs; i++) {
        struct infr_io_info info;
        infr_engine_input(e, i, &info);
    }
    if (infr_session_create(e, &s, NULL)) abort();
    rt_input_shapes(s, sym, t, NULL);
    infr_session_destroy(s);
    free(sym);
    free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST_KERNELS = 64 };
    static infr_kernel_fn *table[MOST_KERNELS * INFR_ISA_COUNT];
    static const unsigned char weights[256];
    struct infr_header h;
    struct infr_options opt = {.threads = 1};
    struct infr_engine *e;
    if (size < sizeof h) return 0;
    memcpy(&h, data, sizeof h);
    if (h.kernels.count > MOST_KERNELS) return 0;
    for (int i = 0; i < MOST_KERNELS * INFR_ISA_COUNT; i++) table[i] = kernel;
    struct infr_image image = {.plan = data, .plan_bytes = size, .kernels = (const void *)table, .weights = weights, .weights_bytes = sizeof weights};
    if (infr_engine_open(&image, &opt, &e, NULL)) return 0;
    bind(e);
    infr_engine_close(e);
    return 0;
}
