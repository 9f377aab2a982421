// SPDX-License-Identifier: Apache-2.0
/* From a kernel to the code that an engine holds: a cubin, its PTX, how to launch it. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/gpu_format.h"
#include "targets/cuda/cubin.h"
#include "targets/cuda/cuda.h"

/* A C identifier that is still the kernel's name in profilers. */
static void identifier(const char *name, char out[INFR_GPU_SYMBOL_MAX + 1])
{
    int n = snprintf(out, INFR_GPU_SYMBOL_MAX + 1, "k_%s", name);
    for (int i = 0; out[i] && i <= n; i++)
        if (!isalnum((unsigned char)out[i])) out[i] = '_';
}

static void pad_to(struct strbuf *s, size_t multiple)
{
    while (s->len % multiple) strbuf_putc(s, '\0');
}

static bool pack(const struct target_gpu *gpu, const struct cuda_launch *launch, const char *symbol, const struct strbuf *cubin,
                 const struct strbuf *ptx, struct target_object *out)
{
    struct infr_gpu_code h = {.magic = INFR_GPU_CODE_MAGIC, .header_bytes = sizeof h, .threads = (uint32_t)launch->threads,
                              .slices_cta = (uint32_t)launch->slices_cta, .shared_bytes = (uint32_t)launch->shared_bytes,
                              .sm = (uint32_t)gpu->sm, .toolkit = (uint32_t)cuda_toolkit_version()};
    struct cubin_info info;
    struct strbuf s = {0};
    uint64_t ptx_bytes = ptx->len;
    snprintf(h.symbol, sizeof h.symbol, "%s", symbol);
    if (cubin_read(cubin->data, cubin->len, symbol, &info)) h.regs = (uint32_t)info.regs, h.local_bytes = (uint32_t)info.frame_bytes;
    strbuf_putn(&s, (const char *)&h, sizeof h);
    pad_to(&s, 64);
    h.cubin_offset = s.len, h.cubin_bytes = cubin->len;
    strbuf_putn(&s, cubin->data, cubin->len);
    pad_to(&s, 8);
    strbuf_putn(&s, INFR_GPU_PTX_MARK, sizeof INFR_GPU_PTX_MARK);
    strbuf_putn(&s, (const char *)&ptx_bytes, sizeof ptx_bytes);
    h.ptx_offset = s.len, h.ptx_bytes = ptx->len;
    strbuf_putn(&s, ptx->data, ptx->len);
    memcpy(s.data, &h, sizeof h);
    out->data = malloc(s.len);
    if (out->data) memcpy(out->data, s.data, s.len);
    out->n_bytes = s.len;
    out->n_spills_in_loops = (int)h.local_bytes;
    strbuf_deinit(&s);
    return out->data != NULL;
}

bool cuda_read_code(const void *code, size_t n_bytes, struct target_gpu_code *out)
{
    struct infr_gpu_code h;
    struct cubin_info info;
    *out = (struct target_gpu_code){0};
    if (n_bytes < sizeof h) return false;
    memcpy(&h, code, sizeof h);
    if (h.magic != INFR_GPU_CODE_MAGIC || h.cubin_offset > n_bytes || h.cubin_bytes > n_bytes - h.cubin_offset || !h.threads || !h.slices_cta)
        return false;
    h.symbol[INFR_GPU_SYMBOL_MAX] = '\0';
    if (!cubin_read((const char *)code + h.cubin_offset, h.cubin_bytes, h.symbol, &info)) return false;
    *out = (struct target_gpu_code){.threads = (int)h.threads, .slices_cta = (int)h.slices_cta, .regs = info.regs, .local_bytes = info.frame_bytes,
                                  .shared_bytes = (int)h.shared_bytes + info.shared_bytes};
    if (info.n_qmma + info.n_qgmma > 0) out->unit = TARGET_GPU_FP8;
    else if (info.n_imma > 0) out->unit = TARGET_GPU_INT8;
    else if (info.n_mma + info.n_wgmma > 0) out->unit = TARGET_GPU_HALF;
    return true;
}

bool cuda_emit(const struct target *t, const struct target_level *level, struct lp_kernel *k, const char *symbol,
               struct target_object *out, struct diag_sink *diag)
{
    char name[INFR_GPU_SYMBOL_MAX + 1];
    struct cuda_launch launch;
    struct strbuf text = {0}, cubin = {0}, ptx = {0};
    (void)t;
    (void)symbol;
    *out = (struct target_object){0};
    identifier(k->name, name);
    bool ok = cuda_print(k, level, name, &text, &launch, diag) &&
              cuda_compile(strbuf_get(&text), level->gpu->arch, false, k->name, k->loc, &cubin, diag) &&
              cuda_compile(strbuf_get(&text), level->gpu->arch, true, k->name, k->loc, &ptx, diag);
    if (ok && !pack(level->gpu, &launch, name, &cubin, &ptx, out)) ok = diag_report(diag, DIAG_ENVIRONMENT, k->loc, "out of memory for a kernel");
    strbuf_deinit(&text);
    strbuf_deinit(&cubin);
    strbuf_deinit(&ptx);
    return ok;
}

bool cuda_emit_text(const struct target *t, const struct target_level *level, struct lp_kernel *k, const char *symbol,
                    const char *form, struct strbuf *out, struct diag_sink *diag)
{
    char name[INFR_GPU_SYMBOL_MAX + 1];
    struct cuda_launch launch;
    struct strbuf text = {0};
    (void)symbol;
    bool cubin = !strcmp(form, "cubin");
    if (!cubin && strcmp(form, "cuda") != 0 && strcmp(form, "ptx") != 0)
        return diag_report(diag, DIAG_OPTION, k->loc, "target %s has no form \"%s\", only cuda, ptx and cubin", t->name, form);
    identifier(k->name, name);
    bool ok = cuda_print(k, level, name, &text, &launch, diag);
    if (ok && !strcmp(form, "cuda")) strbuf_putn(out, text.data, text.len);
    else if (ok) ok = cuda_compile(strbuf_get(&text), level->gpu->arch, !cubin, k->name, k->loc, out, diag);
    /* PTX comes with its NUL, which is no part of a text. */
    if (ok && !cubin && out->len && out->data[out->len - 1] == '\0') out->data[--out->len] = '\0';
    strbuf_deinit(&text);
    return ok;
}
