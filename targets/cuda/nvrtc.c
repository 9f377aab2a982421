// SPDX-License-Identifier: Apache-2.0
/*
 * NVIDIA's compiler library, opened when the first kernel is compiled. Its few functions are declared here, so that infc builds
 * without a toolkit; no header of it is used by printed kernels either.
 *
 * The library keeps one lock for a whole process: several compile at once only in processes of their own, which the
 * compiler starts (struct target's emits_in_processes).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "targets/cuda/cuda.h"

typedef void *program;

struct nvrtc {
    void *lib;
    int major, minor;
    int (*version)(int *, int *);
    int (*create)(program *, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(program, int, const char *const *);
    int (*destroy)(program *);
    int (*size[3])(program, size_t *); /* PTX, cubin, log */
    int (*get[3])(program, char *);
};

/* Process-wide like the library itself; written once. */
static struct nvrtc nvrtc;
static pthread_once_t nvrtc_once = PTHREAD_ONCE_INIT;

static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

static bool open_in(const char *dir)
{
    for (size_t i = 0; !nvrtc.lib && i < ARRAY_LEN(sonames); i++) {
        struct strbuf s = {0};
        strbuf_printf(&s, "%s/%s", dir, sonames[i]);
        nvrtc.lib = dlopen(strbuf_get(&s), RTLD_NOW | RTLD_LOCAL);
        strbuf_deinit(&s);
    }
    return nvrtc.lib != NULL;
}

/* Folders where the wheel nvidia-cuda-nvrtc (cu13) or nvidia-cuda-nvrtc-cu12 puts the library. */
static bool open_wheel(const char *site_pattern)
{
    static const char *const parts[] = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"};
    for (size_t k = 0; !nvrtc.lib && k < ARRAY_LEN(parts); k++) {
        struct strbuf s = {0};
        glob_t g;
        strbuf_printf(&s, "%s/%s", site_pattern, parts[k]);
        if (!glob(strbuf_get(&s), 0, NULL, &g)) {
            for (size_t i = 0; !nvrtc.lib && i < g.gl_pathc; i++) open_in(g.gl_pathv[i]);
            globfree(&g);
        }
        strbuf_deinit(&s);
    }
    return nvrtc.lib != NULL;
}

static bool open_site(const char *root, const char *below)
{
    struct strbuf s = {0};
    if (root && root[0] == '/') {
        strbuf_printf(&s, "%s/%s", root, below);
        open_wheel(strbuf_get(&s));
    }
    strbuf_deinit(&s);
    return nvrtc.lib != NULL;
}

static void open_library(void)
{
    static const char *const dirs[] = {"/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu",
                                       "/opt/cuda/lib64"};
    const char *given = getenv("INFC_NVRTC");
    struct stat st;
    if (given && *given) {
        /* What the user names is the only one that is tried. */
        if (!stat(given, &st) && S_ISDIR(st.st_mode)) {
            if (!open_in(given)) open_wheel(given);
        } else {
            nvrtc.lib = dlopen(given, RTLD_NOW | RTLD_LOCAL);
        }
        return;
    }
    for (size_t i = 0; !nvrtc.lib && i < ARRAY_LEN(sonames); i++) nvrtc.lib = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
    if (nvrtc.lib || open_site(getenv("VIRTUAL_ENV"), "lib/python3*/site-packages") || open_site(getenv("INFC_VENV"), "lib/python3*/site-packages"))
        return;
    for (size_t i = 0; !nvrtc.lib && i < ARRAY_LEN(dirs); i++) open_in(dirs[i]);
    if (nvrtc.lib || open_site(getenv("HOME"), ".local/lib/python3*/site-packages") || open_wheel("/usr/local/lib/python3*/dist-packages"))
        return;
    open_wheel("/usr/lib/python3*/*-packages");
}

static bool find(const char *name, void *out)
{
    void *p = dlsym(nvrtc.lib, name);
    memcpy(out, &p, sizeof p);
    return p != NULL;
}

static void start(void)
{
    static const char *const sizes[] = {"nvrtcGetPTXSize", "nvrtcGetCUBINSize", "nvrtcGetProgramLogSize"};
    static const char *const gets[] = {"nvrtcGetPTX", "nvrtcGetCUBIN", "nvrtcGetProgramLog"};
    open_library();
    if (!nvrtc.lib) return;
    bool ok = find("nvrtcVersion", &nvrtc.version) && find("nvrtcCreateProgram", &nvrtc.create) &&
              find("nvrtcCompileProgram", &nvrtc.compile) && find("nvrtcDestroyProgram", &nvrtc.destroy);
    for (int i = 0; ok && i < 3; i++) ok = find(sizes[i], &nvrtc.size[i]) && find(gets[i], &nvrtc.get[i]);
    ok = ok && nvrtc.version(&nvrtc.major, &nvrtc.minor) == 0;
    if (ok) return;
    dlclose(nvrtc.lib);
    nvrtc.lib = NULL;
}

static bool need_library(const char *loc, struct diag_sink *diag)
{
    pthread_once(&nvrtc_once, start);
    if (nvrtc.lib) return true;
    return diag_report_remedy(diag, DIAG_ENVIRONMENT, loc,
                              "pip install nvidia-cuda-nvrtc (the wheel is enough, no CUDA toolkit is needed), or name the library in INFC_NVRTC",
                              "code for GPUs needs NVRTC (libnvrtc.so.13 or .12), which was not found");
}

bool cuda_available(struct diag_sink *diag) { return need_library(NULL, diag); }

void cuda_toolchain(struct strbuf *out)
{
    pthread_once(&nvrtc_once, start);
    strbuf_printf(out, "NVRTC %d.%d", nvrtc.major, nvrtc.minor);
}

int cuda_toolkit_version(void) { return nvrtc.major * 1000 + nvrtc.minor * 10; }

enum { GET_PTX, GET_CUBIN, GET_LOG };

static bool take(program p, int what, struct strbuf *out)
{
    size_t n = 0;
    if (nvrtc.size[what](p, &n) || n == 0) return false;
    char *text = malloc(n);
    bool ok = text && nvrtc.get[what](p, text) == 0;
    if (ok) strbuf_putn(out, text, n);
    free(text);
    return ok;
}

/* The first lines of a log, which say what is wrong; the rest is the compiler's own context. */
static bool fail(program p, const char *name, const char *arch, const char *loc, struct diag_sink *diag)
{
    struct strbuf log = {0};
    if (p) take(p, GET_LOG, &log);
    diag_report(diag, DIAG_CODEGEN, loc, "kernel %s: NVRTC %d.%d refuses its code for %s: %.2000s", name, nvrtc.major, nvrtc.minor, arch,
                strbuf_get(&log));
    strbuf_deinit(&log);
    return false;
}

bool cuda_compile(const char *source, const char *arch, bool ptx, const char *name, const char *loc, struct strbuf *out,
                  struct diag_sink *diag)
{
    char gpu[64];
    /* --fmad=false: a product and a sum are fused only where loop IR says so, as on CPUs. */
    const char *options[] = {gpu, "--std=c++17", "--fmad=false", "-default-device"};
    program p = NULL;
    if (!need_library(loc, diag)) return false;
    snprintf(gpu, sizeof gpu, "--gpu-architecture=%s_%s", ptx ? "compute" : "sm", arch);
    bool ok = nvrtc.create(&p, source, "kernel.cu", 0, NULL, NULL) == 0 && nvrtc.compile(p, (int)ARRAY_LEN(options), options) == 0 &&
              take(p, ptx ? GET_PTX : GET_CUBIN, out);
    if (!ok) fail(p, name, gpu + strlen("--gpu-architecture="), loc, diag);
    if (p) nvrtc.destroy(&p);
    return ok;
}
