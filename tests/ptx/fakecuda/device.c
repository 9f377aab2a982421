// SPDX-License-Identifier: Apache-2.0
/* Initialisation, attributes, contexts, memory. */
#include "tests/ptx/fakecuda/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/fakecuda/api.h"

struct fake_state fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .null_stream = {.end = &fake.null_stream.first}};

CUresult fake_enter(void)
{
    pthread_mutex_lock(&fake.lock);
    if (!fake.initialized) return CU_NOT_INITIALIZED;
    return fake.sticky;
}

CUresult fake_leave(CUresult r)
{
    pthread_mutex_unlock(&fake.lock);
    return r;
}

bool fake_fails(const char *what, long n)
{
    size_t len = strlen(what);
    for (const char *p = fake.fail; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        if (strncmp(p, what, len)) continue;
        if (p[len] == '@' && n && atol(p + len + 1) == n) return true;
        if ((!p[len] || p[len] == ',') && !n) return true;
    }
    return false;
}

CUresult fake_fault(bool lost)
{
    enum ptx_fault f = ptx_fault(fake.m);
    CUresult r = f == PTX_FAULT_BOUNDS ? CU_ILLEGAL_ADDRESS : f == PTX_FAULT_ALIGN ? CU_MISALIGNED_ADDRESS
                 : f == PTX_FAULT_MEMORY ? CU_OUT_OF_MEMORY : f == PTX_FAULT_LIMIT ? CU_LAUNCH_TIMEOUT
                 : f == PTX_FAULT_LAUNCH ? CU_INVALID_VALUE : f == PTX_FAULT_PARSE && !lost ? CU_INVALID_PTX : CU_LAUNCH_FAILED;
    fprintf(stderr, "fake CUDA driver: %s: %s\n", ptx_fault_name(f), ptx_report(fake.m));
    ptx_report_clear(fake.m);
    if (lost && r != CU_OUT_OF_MEMORY) fake.sticky = r;
    return r;
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s && *s ? strtoull(s, NULL, 0) : otherwise;
}

CUresult cuInit(unsigned flags)
{
    CUresult r = CU_OK;
    pthread_mutex_lock(&fake.lock);
    fake.fail = getenv("INFC_FAKE_FAIL");
    if (flags) r = CU_INVALID_VALUE;
    else if (fake_fails("init", 0)) r = CU_UNKNOWN;
    else if (fake_fails("nodevice", 0)) r = CU_NO_DEVICE;
    else if (!fake.initialized) {
        fake.cc = (int)env_number("INFC_FAKE_CC", 90);
        fake.memory_bytes = env_number("INFC_FAKE_MEM", UINT64_C(16) << 30);
        fake.trace = getenv("INFC_FAKE_TRACE");
        struct ptx_options o = {.sm = fake.cc, .touches = fake.trace != NULL, .memory_bytes = fake.memory_bytes,
                                .early = env_number("INFC_FAKE_EARLY", 0), .seed = (unsigned)env_number("INFC_FAKE_SEED", 0)};
        fake.m = ptx_machine_create(&o);
        fake.initialized = fake.m != NULL;
        if (!fake.m) r = CU_OUT_OF_MEMORY;
    }
    return fake_leave(r);
}

CUresult cuDriverGetVersion(int *v)
{
    const char *fail = getenv("INFC_FAKE_FAIL");
    *v = fail && strstr(fail, "olddriver") ? 10020 : 13000;
    return CU_OK;
}

CUresult cuDeviceGetCount(int *n)
{
    CUresult r = fake_enter();
    *n = 1;
    return fake_leave(r);
}

CUresult cuDeviceGet(CUdevice *d, int i)
{
    CUresult r = fake_enter();
    *d = 0;
    return fake_leave(r ? r : i ? CU_INVALID_DEVICE : CU_OK);
}

CUresult cuDeviceGetName(char *name, int len, CUdevice d)
{
    CUresult r = fake_enter();
    if (len > 0) snprintf(name, (size_t)len, "fake GPU sm_%d", fake.cc);
    return fake_leave(r ? r : d ? CU_INVALID_DEVICE : CU_OK);
}

CUresult cuDeviceGetUuid_v2(char *uuid, CUdevice d)
{
    memcpy(uuid, "infc fake device", 16);
    return d ? CU_INVALID_DEVICE : CU_OK;
}

static int shared_per_sm(void)
{
    int cc = fake.cc;
    return cc == 80 || cc == 87 ? 164 << 10 : cc == 90 || cc == 100 || cc == 103 ? 228 << 10 : 100 << 10;
}

CUresult cuDeviceGetAttribute(int *v, int attribute, CUdevice d)
{
    CUresult r = fake_enter();
    if (r || d) return fake_leave(r ? r : CU_INVALID_DEVICE);
    switch (attribute) {
    case 1: *v = 1024; break;                          /* threads a block */
    case 2: case 3: *v = 1024; break;
    case 4: *v = 64; break;
    case 5: *v = 2147483647; break;
    case 6: case 7: *v = 65535; break;
    case 8: *v = 49152; break;                         /* shared memory a block, without asking */
    case 9: *v = 65536; break;
    case 10: *v = 32; break;                           /* warp */
    case 12: case 82: *v = 65536; break;               /* registers a block, an SM */
    case 13: *v = 1500000; break;
    case 16: *v = 4; break;                            /* SMs */
    case 19: case 31: case 40: case 41: *v = 1; break; /* host mapping, concurrent kernels, copy engines, one address space */
    case 36: *v = 2000000; break;
    case 37: *v = 5120; break;
    case 38: *v = 32 << 20; break;                     /* L2 */
    case 39: *v = fake.cc == 80 || fake.cc >= 90 ? 2048 : 1536; break;
    case 75: *v = fake.cc / 10; break;
    case 76: *v = fake.cc % 10; break;
    case 81: *v = shared_per_sm(); break;
    case 95: case 115: *v = 1; break;                  /* cooperative launch, memory pools */
    case 97: *v = shared_per_sm() - 1024; break;       /* shared memory a block, when asked for */
    case 106: *v = fake.cc == 80 || fake.cc >= 90 ? 32 : 16; break;
    case 111: *v = 1024; break;
    case 120: *v = fake.cc >= 90; break;               /* clusters */
    case 127: *v = fake.cc >= 90; break;               /* tensor maps */
    default: *v = 0; break;
    }
    return fake_leave(CU_OK);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d)
{
    CUresult r = fake_enter();
    *bytes = fake.memory_bytes;
    return fake_leave(r ? r : d ? CU_INVALID_DEVICE : CU_OK);
}

/* One context. */
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
    CUresult r = fake_enter();
    *c = (CUcontext)(void *)&fake;
    return fake_leave(r ? r : d ? CU_INVALID_DEVICE : CU_OK);
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d)
{
    if (d) return CU_INVALID_DEVICE;
    if (fake.m && getenv("INFC_FAKE_COUNTERS")) {
        const struct ptx_counters *c = ptx_counters(fake.m);
        fprintf(stderr, "launches %llu sectors %llu bytes %llu phases %llu wavefronts %llu mma %llu wgmma %llu distinct %llu graphs %ld made %ld\n", (unsigned long long)c->launches,
                (unsigned long long)c->global_sectors, (unsigned long long)c->global_bytes, (unsigned long long)c->shared_phases,
                (unsigned long long)c->shared_wavefronts, (unsigned long long)c->mma, (unsigned long long)c->wgmma, (unsigned long long)c->global_distinct,
                fake.n_graphs, fake.n_made);
    }
    return CU_OK;
}
CUresult cuCtxSetCurrent(CUcontext c)
{
    CUresult r = fake_enter();
    return fake_leave(r ? r : c && (void *)c != (void *)&fake ? CU_INVALID_CONTEXT : CU_OK);
}
CUresult cuCtxGetCurrent(CUcontext *c)
{
    *c = (CUcontext)(void *)&fake;
    return CU_OK;
}
CUresult cuCtxSynchronize(void)
{
    CUresult r = fake_enter();
    if (!r) r = fake_wait();
    return fake_leave(r ? r : fake_run_all());
}

static const struct { int code; const char *name, *text; } errors[] = {
    {0, "CUDA_SUCCESS", "no error"}, {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}, {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is not available"}, {100, "CUDA_ERROR_NO_DEVICE", "no device"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device"}, {200, "CUDA_ERROR_INVALID_IMAGE", "invalid kernel image"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image for this device"}, {218, "CUDA_ERROR_INVALID_PTX", "invalid PTX"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"}, {500, "CUDA_ERROR_NOT_FOUND", "not found"},
    {600, "CUDA_ERROR_NOT_READY", "not ready"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources for the launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out"}, {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}, {801, "CUDA_ERROR_NOT_SUPPORTED", "not supported"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "capture invalidated"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph cannot be updated so"}, {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult error_text(CUresult code, const char **out, bool name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *out = name ? errors[i].name : errors[i].text;
            return CU_OK;
        }
    *out = NULL;
    return CU_INVALID_VALUE;
}
CUresult cuGetErrorName(CUresult code, const char **out) { return error_text(code, out, true); }
CUresult cuGetErrorString(CUresult code, const char **out) { return error_text(code, out, false); }

/* ---- memory ---- */

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
{
    CUresult r = fake_enter();
    if (r) return fake_leave(r);
    if (!bytes) return fake_leave(CU_INVALID_VALUE);
    if (fake_fails("memory", ++fake.n_allocs)) return fake_leave(CU_OUT_OF_MEMORY);
    *p = ptx_mem_alloc(fake.m, bytes);
    if (!*p) {
        ptx_report_clear(fake.m);
        return fake_leave(CU_OUT_OF_MEMORY);
    }
    return fake_leave(CU_OK);
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
    CUresult r = fake_enter();
    if (!r && p) r = fake_run_all(); /* the driver waits for work that may use it */
    if (!r && p && !ptx_mem_free(fake.m, p)) {
        ptx_report_clear(fake.m);
        r = CU_INVALID_VALUE;
    }
    return fake_leave(r);
}

CUresult cuMemAllocAsync(CUdeviceptr *p, size_t bytes, CUstream s)
{
    (void)s;
    return cuMemAlloc_v2(p, bytes);
}

CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s)
{
    CUresult r = fake_enter();
    if (!r && p) r = fake_push(s, &(struct fake_node){.kind = FAKE_FREE, .dst = p});
    return fake_leave(r);
}

CUresult cuDeviceGetDefaultMemPool(void **pool, CUdevice d)
{
    *pool = &fake.memory_bytes;
    return d ? CU_INVALID_DEVICE : CU_OK;
}
CUresult cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    (void)attribute;
    return pool && value ? CU_OK : CU_INVALID_VALUE;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    CUresult r = fake_enter();
    if (!r) {
        *total = fake.memory_bytes;
        *free_bytes = fake.memory_bytes - ptx_mem_used(fake.m);
    }
    return fake_leave(r);
}

static CUresult pin(void *p, size_t bytes)
{
    if (fake.n_pinned == fake.cap_pinned) {
        size_t cap = fake.cap_pinned ? fake.cap_pinned * 2 : 16;
        struct fake_range *grown = realloc(fake.pinned, cap * sizeof *grown);
        if (!grown) return CU_OUT_OF_MEMORY;
        fake.pinned = grown;
        fake.cap_pinned = cap;
    }
    fake.pinned[fake.n_pinned++] = (struct fake_range){(uintptr_t)p, (uintptr_t)p + bytes};
    return CU_OK;
}

static bool unpin(const void *p)
{
    for (size_t i = 0; i < fake.n_pinned; i++)
        if (fake.pinned[i].begin == (uintptr_t)p) {
            fake.pinned[i] = fake.pinned[--fake.n_pinned];
            return true;
        }
    return false;
}

bool fake_is_pinned(const void *p, size_t bytes)
{
    for (size_t i = 0; i < fake.n_pinned; i++)
        if ((uintptr_t)p >= fake.pinned[i].begin && (uintptr_t)p + bytes <= fake.pinned[i].end) return true;
    return false;
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    CUresult r = fake_enter();
    (void)flags;
    if (r) return fake_leave(r);
    *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    return fake_leave(*p ? pin(*p, bytes) : CU_OUT_OF_MEMORY);
}
CUresult cuMemFreeHost(void *p)
{
    CUresult r = fake_enter();
    if (r == CU_OK || r == fake.sticky) {
        if (!r) r = fake_run_all();
        if (unpin(p)) free(p);
        else r = CU_INVALID_VALUE;
    }
    return fake_leave(r);
}
CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
    CUresult r = fake_enter();
    (void)flags;
    return fake_leave(r ? r : pin(p, bytes));
}
CUresult cuMemHostUnregister(void *p)
{
    CUresult r = fake_enter();
    return fake_leave(r ? r : unpin(p) ? CU_OK : CU_INVALID_VALUE);
}
