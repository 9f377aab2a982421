// SPDX-License-Identifier: Apache-2.0
/* Modules, functions, launches, tensor maps. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/fakecuda/fake.h"
#include "tests/ptx/fakecuda/api.h"

/* ---- images ---- */

/* Bytes of an ELF file by its headers: the end of the last table or section. */
static size_t elf_bytes(const unsigned char *p)
{
    Elf64_Ehdr h;
    memcpy(&h, p, sizeof h);
    size_t end = h.e_shoff + (size_t)h.e_shnum * h.e_shentsize, phend = h.e_phoff + (size_t)h.e_phnum * h.e_phentsize;
    return end > phend ? end : phend;
}

static bool elf_runs_here(const unsigned char *p)
{
    Elf64_Ehdr h;
    memcpy(&h, p, sizeof h);
    int sm = (int)(h.e_flags >> 8 & 0xff);
    return sm / 10 == fake.cc / 10 && sm <= fake.cc;
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    if (!f) return NULL;
    if (!fseek(f, 0, SEEK_END)) {
        long n = ftell(f);
        rewind(f);
        if (n > 0 && (text = calloc(1, (size_t)n + 1)) && fread(text, 1, (size_t)n, f) != (size_t)n) {
            free(text);
            text = NULL;
        }
    }
    fclose(f);
    return text;
}

static char *copy_text(const void *p, size_t bytes)
{
    char *t = calloc(1, bytes + 1);
    if (t) memcpy(t, p, bytes);
    return t;
}

static char *twin_of_cubin(const unsigned char *p)
{
    size_t bytes = elf_bytes(p), aligned = (bytes + 7) & ~(size_t)7;
    if (!memcmp(p + aligned, "INFCPTX", 8)) {
        uint64_t n;
        memcpy(&n, p + aligned + 8, 8);
        return n < (UINT64_C(1) << 32) ? copy_text(p + aligned + 16, (size_t)n) : NULL;
    }
    const char *dir = getenv("INFC_FAKE_PTX_DIR");
    uint64_t h = UINT64_C(14695981039346656037);
    char path[1200];
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * UINT64_C(1099511628211);
    if (!dir) return NULL;
    snprintf(path, sizeof path, "%s/%016llx.ptx", dir, (unsigned long long)h);
    return read_file(path);
}

/* A fat binary: a header of 16 bytes, then entries (kind 1 PTX, 2 cubin) with headers of their own. */
static CUresult text_of_fatbin(const unsigned char *p, char **out)
{
    uint64_t total, at = 0;
    uint16_t header;
    bool runs = false, has_cubin = false;
    memcpy(&header, p + 6, 2);
    memcpy(&total, p + 8, 8);
    if (total > UINT64_C(1) << 32) return CU_INVALID_IMAGE;
    while (at + 64 <= total) {
        const unsigned char *e = p + header + at;
        uint16_t kind;
        uint32_t head;
        uint64_t bytes, flags;
        memcpy(&kind, e, 2);
        memcpy(&head, e + 4, 4);
        memcpy(&bytes, e + 8, 8);
        memcpy(&flags, e + 40, 8);
        if (head < 48 || bytes > total || head > total) return CU_INVALID_IMAGE;
        if (kind == 2) {
            has_cubin = true;
            runs |= elf_runs_here(e + head);
        } else if (kind == 1 && !*out && !(flags & 0x2000)) {
            *out = copy_text(e + head, (size_t)bytes);
        }
        at += head + bytes;
    }
    if (has_cubin && !runs) return CU_NO_BINARY_FOR_GPU;
    return *out ? CU_OK : CU_NO_BINARY_FOR_GPU;
}

static CUresult text_of_image(const void *image, char **out)
{
    const unsigned char *p = image;
    uint32_t magic;
    memcpy(&magic, p, 4);
    if (magic == 0x466243b1) { /* a wrapper that points to the binary */
        memcpy(&p, p + 8, sizeof p);
        memcpy(&magic, p, 4);
    }
    if (magic == 0xba55ed50) return text_of_fatbin(p, out);
    if (!memcmp(p, ELFMAG, SELFMAG)) {
        if (!elf_runs_here(p)) return CU_NO_BINARY_FOR_GPU;
        *out = twin_of_cubin(p);
        if (!*out) fprintf(stderr, "fake CUDA driver: a cubin without its PTX (INFC_FAKE_PTX_DIR)\n");
        return *out ? CU_OK : CU_NO_BINARY_FOR_GPU;
    }
    *out = copy_text(p, strlen((const char *)p));
    return *out ? CU_OK : CU_OUT_OF_MEMORY;
}

static bool target_runs_here(const char *target)
{
    int sm = strncmp(target, "sm_", 3) ? 0 : atoi(target + 3);
    size_t n = strlen(target);
    bool exact = n && (target[n - 1] == 'a' || target[n - 1] == 'f');
    return exact ? sm == fake.cc : sm <= fake.cc;
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    CUresult r = fake_enter();
    char *text = NULL;
    if (!r) r = text_of_image(image, &text);
    if (r) {
        free(text);
        return fake_leave(r);
    }
    struct fake_module *m = calloc(1, sizeof *m);
    if (m) m->ptx = ptx_module_load(fake.m, text);
    if (m && fake.trace) m->text = text;
    else free(text);
    if (!m || !m->ptx) {
        if (m) free(m->text);
        free(m);
        return fake_leave(m ? fake_fault(false) : CU_OUT_OF_MEMORY);
    }
    if (!target_runs_here(ptx_module_target(m->ptx))) {
        ptx_module_unload(fake.m, m->ptx);
        free(m->text);
        free(m);
        return fake_leave(CU_NO_BINARY_FOR_GPU);
    }
    m->next = fake.modules;
    fake.modules = m;
    *out = m;
    return fake_leave(CU_OK);
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, int *options, void **values)
{
    (void)n;
    (void)options;
    (void)values;
    return cuModuleLoadData(out, image);
}

CUresult cuModuleUnload(CUmodule mod)
{
    CUresult r = fake_enter();
    for (struct fake_module **p = &fake.modules; *p; p = &(*p)->next) {
        struct fake_module *m = *p;
        if (m != mod) continue;
        if (!r) r = fake_run_all();
        *p = m->next;
        while (m->functions) {
            struct fake_function *f = m->functions;
            m->functions = f->next;
            free(f);
        }
        ptx_module_unload(fake.m, m->ptx);
        free(m->text);
        free(m);
        return fake_leave(r);
    }
    return fake_leave(CU_INVALID_HANDLE);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name)
{
    CUresult r = fake_enter();
    if (r) return fake_leave(r);
    struct ptx_kernel *k = ptx_module_find(m->ptx, name);
    if (!k) return fake_leave(CU_NOT_FOUND);
    for (struct fake_function *f = m->functions; f; f = f->next)
        if (f->kernel == k) {
            *out = f;
            return fake_leave(CU_OK);
        }
    struct fake_function *f = calloc(1, sizeof *f);
    if (!f) return fake_leave(CU_OUT_OF_MEMORY);
    f->module = m;
    f->kernel = k;
    f->max_dynamic = 49152 - (int)ptx_kernel_info(k)->static_shared_bytes;
    f->next = m->functions;
    m->functions = f;
    *out = f;
    return fake_leave(CU_OK);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *out, size_t *bytes, CUmodule m, const char *name)
{
    CUresult r = fake_enter();
    uint64_t address;
    size_t n;
    if (r) return fake_leave(r);
    if (!ptx_module_find_global(m->ptx, name, &address, &n)) return fake_leave(CU_NOT_FOUND);
    if (out) *out = address;
    if (bytes) *bytes = n;
    return fake_leave(CU_OK);
}

CUresult cuFuncSetAttribute(CUfunction f, int attribute, int v)
{
    CUresult r = fake_enter();
    int limit;
    if (r) return fake_leave(r);
    fake_leave(CU_OK);
    cuDeviceGetAttribute(&limit, 97, 0);
    if (attribute != 8) return CU_OK;
    if (v < 0 || v + (int)ptx_kernel_info(f->kernel)->static_shared_bytes > limit) return CU_INVALID_VALUE;
    f->max_dynamic = v;
    return CU_OK;
}

CUresult cuFuncGetAttribute(int *v, int attribute, CUfunction f)
{
    const struct ptx_kernel_info *i = ptx_kernel_info(f->kernel);
    switch (attribute) {
    case 0: *v = i->max_threads ? (int)i->max_threads : 1024; return CU_OK;
    case 1: *v = (int)i->static_shared_bytes; return CU_OK;
    case 3: *v = (int)i->local_bytes; return CU_OK;
    case 4: *v = 64; return CU_OK; /* PTX does not tell */
    case 5:
    case 6: *v = fake.cc; return CU_OK;
    case 8: *v = f->max_dynamic; return CU_OK;
    default: *v = 0; return CU_OK;
    }
}

/* By threads and shared memory: registers are not known from PTX. */
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int threads, size_t dynamic)
{
    int per_sm, max_threads, max_blocks;
    cuDeviceGetAttribute(&per_sm, 81, 0);
    cuDeviceGetAttribute(&max_threads, 39, 0);
    cuDeviceGetAttribute(&max_blocks, 106, 0);
    if (threads < 1 || threads > 1024) return CU_INVALID_VALUE;
    size_t shared = ptx_kernel_info(f->kernel)->static_shared_bytes + dynamic + 1024;
    int by_threads = max_threads / ((threads + 31) / 32 * 32), by_shared = (int)((size_t)per_sm / shared);
    *n = by_threads < by_shared ? by_threads : by_shared;
    if (*n > max_blocks) *n = max_blocks;
    return CU_OK;
}

/* ---- launches ---- */

static CUresult check_launch(const struct fake_function *f, const struct ptx_launch *l)
{
    const struct ptx_kernel_info *i = ptx_kernel_info(f->kernel);
    uint64_t threads = (uint64_t)l->block.x * l->block.y * l->block.z;
    if (!threads || threads > 1024 || !l->grid.x || !l->grid.y || !l->grid.z) return CU_INVALID_VALUE;
    if (i->max_threads && threads > i->max_threads) return CU_INVALID_VALUE;
    if ((int64_t)l->dynamic_shared_bytes > f->max_dynamic) return CU_INVALID_VALUE;
    return CU_OK;
}

static CUresult set_params(struct fake_node *n, void **params)
{
    const struct ptx_kernel_info *i = ptx_kernel_info(n->function->kernel);
    n->param_bytes = i->param_bytes;
    n->params = i->param_bytes ? calloc(1, i->param_bytes) : NULL;
    if (i->param_bytes && !n->params) return CU_OUT_OF_MEMORY;
    if (i->n_params && !params) return CU_INVALID_VALUE;
    for (unsigned k = 0; k < i->n_params; k++) {
        unsigned offset, bytes;
        ptx_kernel_param(n->function->kernel, k, &offset, &bytes);
        memcpy(n->params + offset, params[k], bytes);
    }
    return CU_OK;
}

CUresult fake_set_launch(struct fake_node *n, const CUDA_KERNEL_NODE_PARAMS *p)
{
    struct fake_node next = *n;
    next.function = p->func;
    next.launch.grid = (struct ptx_dim){p->gridDimX, p->gridDimY, p->gridDimZ};
    next.launch.block = (struct ptx_dim){p->blockDimX, p->blockDimY, p->blockDimZ};
    next.launch.dynamic_shared_bytes = p->sharedMemBytes;
    next.params = NULL;
    CUresult r = check_launch(p->func, &next.launch);
    if (!r) r = set_params(&next, p->kernelParams);
    if (r) {
        free(next.params);
        return r;
    }
    free(n->params);
    *n = next;
    return CU_OK;
}

static CUresult launch(CUfunction f, const struct ptx_launch *l, CUstream s, void **params, void **extra)
{
    CUresult r = fake_enter();
    struct fake_node n = {.kind = FAKE_LAUNCH, .function = f, .launch = *l};
    if (!r && (!f || extra)) r = f ? CU_NOT_SUPPORTED : CU_INVALID_HANDLE;
    if (!r) r = check_launch(f, l);
    if (!r) r = set_params(&n, params);
    if (!r) r = fake_push(s, &n);
    free(n.params);
    return fake_leave(r);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    struct ptx_launch l = {.grid = {c->gridDimX, c->gridDimY, c->gridDimZ}, .block = {c->blockDimX, c->blockDimY, c->blockDimZ},
                           .dynamic_shared_bytes = c->sharedMemBytes};
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const CUlaunchAttribute *a = &c->attrs[i];
        if (a->id == 2) l.cooperative = a->value.value != 0;
        if (a->id == 4) l.cluster = (struct ptx_dim){a->value.cluster.x, a->value.cluster.y, a->value.cluster.z};
    }
    return launch(f, &l, c->hStream, params, extra);
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream s, void **params, void **extra)
{
    struct ptx_launch l = {.grid = {gx, gy, gz}, .block = {bx, by, bz}, .dynamic_shared_bytes = shared};
    return launch(f, &l, s, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, CUstream s, void **params)
{
    struct ptx_launch l = {.grid = {gx, gy, gz}, .block = {bx, by, bz}, .dynamic_shared_bytes = shared, .cooperative = true};
    return launch(f, &l, s, params, NULL);
}

/* ---- tensor maps ---- */

CUresult cuTensorMapEncodeTiled(void *out, int type, uint32_t rank, void *base, const uint64_t *dim, const uint64_t *stride,
                                const uint32_t *box, const uint32_t *element_stride, int interleave, int swizzle, int l2,
                                int fill)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    (void)l2;
    if (fake.cc < 90) return CU_NOT_SUPPORTED;
    if (type < 0 || type > 12 || rank < 1 || rank > 5 || interleave || swizzle < 0 || swizzle > 3) return CU_INVALID_VALUE;
    struct ptx_tensor_map t = {.magic = PTX_TENSOR_MAP_MAGIC, .base = (uintptr_t)base, .elem_bytes = bytes[type],
                               .rank = (uint8_t)rank, .swizzle = (uint8_t)swizzle, .nan_fill = fill == 1};
    if (t.base % 16) return CU_INVALID_VALUE;
    for (uint32_t i = 0; i < rank; i++) {
        if (!dim[i] || dim[i] > UINT64_C(1) << 32 || !box[i] || box[i] > 256 || element_stride[i] < 1 || element_stride[i] > 8)
            return CU_INVALID_VALUE;
        if (i && (stride[i - 1] % 16 || stride[i - 1] >= UINT64_C(1) << 40)) return CU_INVALID_VALUE;
        t.dim[i] = dim[i];
        t.box[i] = (uint16_t)box[i];
        t.elem_stride[i] = (uint8_t)element_stride[i];
        if (i) t.stride[i - 1] = stride[i - 1];
    }
    unsigned row = box[0] * t.elem_bytes;
    if (row % 16 || (swizzle && row > 16u << swizzle)) return CU_INVALID_VALUE;
    memset(out, 0, 128);
    memcpy(out, &t, sizeof t);
    return CU_OK;
}
