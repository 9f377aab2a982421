// SPDX-License-Identifier: Apache-2.0
#include "compiler/gpu_image.h"

#include <string.h>

#include "runtime/abi/gpu_format.h"

static void pad_to(struct strbuf *s, size_t multiple)
{
    while (s->len % multiple) strbuf_putc(s, '\0');
}

void gpu_image_write(struct strbuf *out, const struct target_level *level, const struct strbuf *plan, const struct object_job *jobs,
                     size_t n_jobs)
{
    struct infr_gpu_image h = {.magic = INFR_GPU_MAGIC, .header_bytes = sizeof h, .sm = (uint32_t)level->gpu->sm,
                               .exact = level->gpu->arch[strlen(level->gpu->arch) - 1] == 'a', .n_codes = (uint32_t)n_jobs};
    struct strbuf table = {0};
    snprintf(h.name, sizeof h.name, "%s", level->name);
    strbuf_putn(out, (const char *)&h, sizeof h);
    pad_to(out, 64);
    h.plan_offset = out->len, h.plan_bytes = plan->len;
    strbuf_putn(out, strbuf_get(plan), plan->len);
    for (size_t i = 0; i < n_jobs; i++) {
        pad_to(out, 64);
        struct infr_gpu_range r = {out->len, jobs[i].object.n_bytes};
        strbuf_putn(&table, (const char *)&r, sizeof r);
        strbuf_putn(out, jobs[i].object.data, jobs[i].object.n_bytes);
    }
    pad_to(out, 64);
    h.codes = out->len;
    strbuf_putn(out, strbuf_get(&table), table.len);
    h.image_bytes = out->len;
    memcpy(out->data, &h, sizeof h);
    strbuf_deinit(&table);
}
