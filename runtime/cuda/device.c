// SPDX-License-Identifier: Apache-2.0
/* Finds the GPU and the image for it, loads code and weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/cuda.h"
#include "runtime/status.h"

/* ---- images ---- */

static bool in_image(const struct infr_gpu_image *h, uint64_t at, uint64_t bytes)
{
    return at <= h->image_bytes && bytes <= h->image_bytes - at;
}

static bool image_ok(const struct infr_gpu_image *h)
{
    return h->magic == INFR_GPU_MAGIC && h->header_bytes >= sizeof *h && h->image_bytes >= h->header_bytes &&
           in_image(h, h->plan_offset, h->plan_bytes) && h->plan_offset % 8 == 0 && h->codes % 8 == 0 &&
           in_image(h, h->codes, (uint64_t)h->n_codes * sizeof(struct infr_gpu_range)) && memchr(h->name, 0, sizeof h->name);
}

const struct infr_gpu_code *cuda_code(const struct infr_gpu_image *image, uint32_t i)
{
    if (i >= image->n_codes) return NULL;
    const unsigned char *base = (const unsigned char *)image;
    const struct infr_gpu_range *r = (const struct infr_gpu_range *)(base + image->codes) + i;
    if (!in_image(image, r->offset, r->bytes) || r->offset % 8 || r->bytes < sizeof(struct infr_gpu_code)) return NULL;
    const struct infr_gpu_code *c = (const struct infr_gpu_code *)(base + r->offset);
    bool ok = c->magic == INFR_GPU_CODE_MAGIC && c->header_bytes >= sizeof *c && c->cubin_offset % 8 == 0 && c->cubin_bytes &&
              c->cubin_offset <= r->bytes && c->cubin_bytes <= r->bytes - c->cubin_offset && c->ptx_bytes && c->ptx_offset <= r->bytes &&
              c->ptx_bytes <= r->bytes - c->ptx_offset && !((const char *)c)[c->ptx_offset + c->ptx_bytes - 1] &&
              memchr(c->symbol, 0, sizeof c->symbol) && c->threads >= 1 && c->threads <= 1024 && c->slices_cta >= 1;
    return ok ? c : NULL;
}

/*
 * Machine code runs on its own generation from its own number on; code with instructions of one architecture there alone. PTX
 * of the portable kind is translated by the driver for anything newer.
 */
static int score(const struct infr_gpu_image *h, int sm)
{
    int have = (int)h->sm;
    if (have == sm) return 1000;
    if (h->exact || have > sm) return 0;
    return have / 10 == sm / 10 ? 500 + have : have;
}

static void names_of(const void *const *images, char *out, size_t out_bytes)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; images[i] && n < out_bytes; i++)
        n += (size_t)snprintf(out + n, out_bytes - n, "%s%s", i ? ", " : "", ((const struct infr_gpu_image *)images[i])->name);
}

static int choose_image(struct cuda_device *d, const void *const *images, struct infr_status *st)
{
    char names[128];
    int best = 0;
    for (int i = 0; images[i]; i++) {
        const struct infr_gpu_image *h = images[i];
        if (!image_ok(h)) return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: its code for GPUs, image %d", i);
        int s = score(h, d->sm);
        if (s > best) best = s, d->image = h;
    }
    names_of(images, names, sizeof names);
    if (!best)
        return rt_fail(st, INFR_ENVIRONMENT, "this engine has code for %s; the GPU here is an sm%d (%s)", names, d->sm, d->gpu_name);
    d->translate = best < 500;
    const struct infr_gpu_code *c = cuda_code(d->image, 0);
    int need = c ? (int)c->toolkit / 1000 * 1000 : 0;
    if (d->cu.version < need)
        return rt_fail(st, INFR_ENVIRONMENT, "this engine's code (%s) was made by CUDA %d.%d; the driver here knows CUDA %d.%d", names,
                       (int)c->toolkit / 1000, (int)c->toolkit % 1000 / 10, d->cu.version / 1000, d->cu.version % 1000 / 10);
    return INFR_OK;
}

/* ---- opening ---- */

static int find_device(struct cuda_device *d, struct infr_status *st)
{
    int n = 0, major = 0, minor = 0;
    const struct cu_driver *cu = &d->cu;
    cu_result code = cu->cuDeviceGetCount(&n);
    if (!code && n < 1) return rt_fail(st, INFR_ENVIRONMENT, "there is an NVIDIA driver, but no GPU");
    if (!code) code = cu->cuDeviceGet(&d->device, 0);
    if (!code) code = cu->cuDeviceGetName(d->gpu_name, (int)sizeof d->gpu_name, d->device);
    if (!code) code = cu->cuDeviceGetAttribute(&major, CU_ATTRIBUTE_MAJOR, d->device);
    if (!code) code = cu->cuDeviceGetAttribute(&minor, CU_ATTRIBUTE_MINOR, d->device);
    d->gpu_name[sizeof d->gpu_name - 1] = 0;
    d->sm = major * 10 + minor;
    return code ? cu_fail(cu, code, "asking for the GPU", st) : INFR_OK;
}

static void cuda_close(struct rt_device *base)
{
    struct cuda_device *d = (struct cuda_device *)base;
    if (d->context) {
        d->cu.cuCtxSetCurrent(d->context);
        for (uint32_t i = 0; d->kernels && i < d->n_kernels; i++)
            if (d->kernels[i].module) d->cu.cuModuleUnload(d->kernels[i].module);
        if (d->weights) d->cu.cuMemFree_v2(d->weights);
        d->cu.cuCtxSetCurrent(NULL);
        d->cu.cuDevicePrimaryCtxRelease_v2(d->device);
    }
    free(d->kernels);
    free(d->const_offset);
    cu_close(&d->cu);
    free(d);
}

static int cuda_open(const void *const *images, struct rt_device **out, struct infr_status *st)
{
    struct cuda_device *d = calloc(1, sizeof *d);
    if (!d) return rt_fail_memory(st, "a device", sizeof *d);
    d->base.type = &infr_cuda_device;
    int code = cu_open(&d->cu, st);
    if (!code) code = find_device(d, st);
    if (!code) code = choose_image(d, images, st);
    if (code) {
        cuda_close(&d->base);
        return code;
    }
    d->base.arch = d->image->name;
    d->base.plan = (const char *)d->image + d->image->plan_offset;
    d->base.plan_bytes = d->image->plan_bytes;
    *out = &d->base;
    return INFR_OK;
}

/* ---- code ---- */

static int load_kernel(struct cuda_device *d, const struct infr_engine *e, uint32_t i, struct infr_status *st)
{
    const struct infr_gpu_code *c = cuda_code(d->image, i);
    struct cuda_kernel *k = &d->kernels[i];
    if (!c) return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: code %u for GPUs", i);
    uint64_t at = d->translate ? c->ptx_offset : c->cubin_offset;
    cu_result code = d->cu.cuModuleLoadData(&k->module, (const char *)c + at);
    if (!code) code = d->cu.cuModuleGetFunction(&k->function, k->module, c->symbol);
    if (!code && c->shared_bytes > 48 * 1024) code = d->cu.cuFuncSetAttribute(k->function, CU_FUNC_MAX_DYNAMIC_SHARED, (int)c->shared_bytes);
    k->threads = c->threads, k->slices_cta = c->slices_cta, k->shared_bytes = c->shared_bytes;
    if (!code) return INFR_OK;
    char what[160];
    snprintf(what, sizeof what, "loading kernel %.80s for %s", rt_text(e, e->kernels[i].symbol), d->base.arch);
    return cu_fail(&d->cu, code, what, st);
}

static int load_kernels(struct cuda_device *d, const struct infr_engine *e, struct infr_status *st)
{
    if (d->image->n_codes != e->n_kernels)
        return rt_fail(st, INFR_ENVIRONMENT, "the engine is damaged: %u kernels, code for %u", e->n_kernels, d->image->n_codes);
    d->kernels = calloc((size_t)e->n_kernels + 1, sizeof *d->kernels);
    if (!d->kernels) return rt_fail_memory(st, "the kernels", e->n_kernels * sizeof *d->kernels);
    d->n_kernels = e->n_kernels;
    int code = INFR_OK;
    for (uint32_t i = 0; !code && i < e->n_kernels; i++) code = load_kernel(d, e, i, st);
    return code;
}

/* ---- weights ---- */

int cuda_fail_memory(struct cuda_device *d, const char *what, uint64_t bytes, struct infr_status *st)
{
    size_t free_bytes = 0, total = 0;
    d->cu.cuMemGetInfo_v2(&free_bytes, &total);
    return rt_fail(st, INFR_ENVIRONMENT, "device memory is short: %llu bytes are needed for %s; of %zu bytes on %s %zu are free",
                   (unsigned long long)bytes, what, total, d->gpu_name, free_bytes);
}

static int by_offset(const void *a, const void *b)
{
    const struct infr_buf *const *x = a, *const *y = b;
    return (*x)->const_offset < (*y)->const_offset ? -1 : (*x)->const_offset > (*y)->const_offset;
}

/* Only what this plan reads goes to the device, each constant once. */
static int place_weights(struct cuda_device *d, const struct infr_engine *e, const struct infr_buf **sorted, uint32_t *n, struct infr_status *st)
{
    uint64_t at = 0;
    *n = 0;
    d->const_offset = calloc((size_t)e->n_bufs + 1, sizeof *d->const_offset);
    if (!d->const_offset) return rt_fail_memory(st, "the weights' places", e->n_bufs * sizeof *d->const_offset);
    for (uint32_t i = 0; i < e->n_bufs; i++)
        if (e->bufs[i].kind == INFR_BUF_CONST) sorted[(*n)++] = &e->bufs[i];
    qsort(sorted, *n, sizeof *sorted, by_offset);
    for (uint32_t i = 0; i < *n; i++) {
        const struct infr_buf *b = sorted[i], *last = i ? sorted[i - 1] : NULL;
        if (last && last->const_offset == b->const_offset && last->const_bytes >= b->const_bytes) {
            d->const_offset[b - e->bufs] = d->const_offset[last - e->bufs];
            sorted[i] = last;
            continue;
        }
        d->const_offset[b - e->bufs] = at;
        at = (at + b->const_bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
    }
    d->weights_bytes = at;
    return INFR_OK;
}

#define STAGE_BYTES ((size_t)8 << 20)

/* The weights through two pinned buffers: one is filled from the file while the other is on its way. */
struct upload {
    struct cuda_device *d;
    cu_stream stream;
    void *stage[2];
    cu_event sent[2];
    uint64_t n; /* pieces so far */
};

static cu_result upload_start(struct upload *u)
{
    const struct cu_driver *cu = &u->d->cu;
    cu_result code = cu->cuStreamCreate(&u->stream, 0);
    for (int i = 0; !code && i < 2; i++) {
        code = cu->cuMemHostAlloc(&u->stage[i], STAGE_BYTES, 0);
        if (!code) code = cu->cuEventCreate(&u->sent[i], 2 /* without timing */);
    }
    return code;
}

static cu_result upload(struct upload *u, cu_pointer to, const unsigned char *from, uint64_t bytes)
{
    const struct cu_driver *cu = &u->d->cu;
    cu_result code = 0;
    for (uint64_t at = 0; !code && at < bytes; at += STAGE_BYTES) {
        size_t n = bytes - at < STAGE_BYTES ? (size_t)(bytes - at) : STAGE_BYTES, i = u->n++ % 2;
        if (u->n > 2) code = cu->cuEventSynchronize(u->sent[i]);
        if (code) break;
        memcpy(u->stage[i], from + at, n);
        code = cu->cuMemcpyHtoDAsync_v2(to + at, u->stage[i], n, u->stream);
        if (!code) code = cu->cuEventRecord(u->sent[i], u->stream);
    }
    return code;
}

static void upload_end(struct upload *u)
{
    const struct cu_driver *cu = &u->d->cu;
    for (int i = 0; i < 2; i++) {
        if (u->stage[i]) cu->cuMemFreeHost(u->stage[i]);
        if (u->sent[i]) cu->cuEventDestroy_v2(u->sent[i]);
    }
    if (u->stream) cu->cuStreamDestroy_v2(u->stream);
}

static int load_weights(struct cuda_device *d, const struct infr_engine *e, struct infr_status *st)
{
    const struct infr_buf **sorted = calloc((size_t)e->n_bufs + 1, sizeof *sorted);
    uint32_t n = 0;
    if (!sorted) return rt_fail_memory(st, "the weights' order", e->n_bufs * sizeof *sorted);
    int code = place_weights(d, e, sorted, &n, st);
    if (!code && d->weights_bytes && d->cu.cuMemAlloc_v2(&d->weights, d->weights_bytes)) {
        d->weights = 0;
        code = cuda_fail_memory(d, "this engine's weights", d->weights_bytes, st);
    }
    if (!code && d->weights) {
        struct upload u = {.d = d};
        cu_result r = upload_start(&u);
        for (uint32_t i = 0; !r && i < n; i++)
            if (!i || sorted[i] != sorted[i - 1])
                r = upload(&u, d->weights + d->const_offset[sorted[i] - e->bufs], e->weights + sorted[i]->const_offset, sorted[i]->const_bytes);
        if (!r) r = d->cu.cuStreamSynchronize(u.stream);
        upload_end(&u);
        if (r) code = cu_fail(&d->cu, r, "sending the weights to the GPU", st);
    }
    free(sorted);
    return code;
}

int cuda_load(struct rt_device *base, const struct infr_engine *e, struct infr_status *st)
{
    struct cuda_device *d = (struct cuda_device *)base;
    cu_result r = d->cu.cuDevicePrimaryCtxRetain(&d->context, d->device);
    if (r) {
        d->context = NULL;
        return cu_fail(&d->cu, r, "making a context on the GPU", st);
    }
    if ((r = d->cu.cuCtxSetCurrent(d->context))) return cu_fail(&d->cu, r, "making a context on the GPU", st);
    int code = load_kernels(d, e, st);
    return code ? code : load_weights(d, e, st);
}

static uint64_t cuda_free_memory(struct rt_device *base)
{
    struct cuda_device *d = (struct cuda_device *)base;
    size_t free_bytes = 0, total = 0;
    if (d->cu.cuCtxSetCurrent(d->context) || d->cu.cuMemGetInfo_v2(&free_bytes, &total)) return 0;
    return free_bytes;
}

const struct rt_device_type infr_cuda_device = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .load = cuda_load,
    .run = cuda_run,
    .free_memory = cuda_free_memory,
    .session_destroy = cuda_session_destroy,
};
