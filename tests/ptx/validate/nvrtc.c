// SPDX-License-Identifier: Apache-2.0
#include "tests/ptx/validate/nvrtc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *program;

struct nvrtc {
    void *lib;
    char include[3][600];
    int n_includes;
    int (*create)(program *, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(program, int, const char *const *);
    int (*destroy)(program *);
    int (*ptx_size)(program, size_t *);
    int (*ptx)(program, char *);
    int (*log_size)(program, size_t *);
    int (*log)(program, char *);
};

static bool find(struct nvrtc *n, const char *name, void *out)
{
    void *p = dlsym(n->lib, name);
    memcpy(out, &p, sizeof p);
    return p != NULL;
}

struct nvrtc *nvrtc_open(const char *include, const char **out_reason)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12"};
    const char *given = getenv("INFC_NVRTC");
    struct nvrtc *n = calloc(1, sizeof *n);
    if (!n) return NULL;
    if (given) n->lib = dlopen(given, RTLD_NOW);
    for (size_t i = 0; !n->lib && i < sizeof names / sizeof *names; i++) n->lib = dlopen(names[i], RTLD_NOW);
    *out_reason = "no libnvrtc (set INFC_NVRTC)";
    if (!n->lib) goto fail;
    *out_reason = "libnvrtc lacks a function";
    if (!find(n, "nvrtcCreateProgram", &n->create) || !find(n, "nvrtcCompileProgram", &n->compile) ||
        !find(n, "nvrtcDestroyProgram", &n->destroy) || !find(n, "nvrtcGetPTXSize", &n->ptx_size) ||
        !find(n, "nvrtcGetPTX", &n->ptx) || !find(n, "nvrtcGetProgramLogSize", &n->log_size) ||
        !find(n, "nvrtcGetProgramLog", &n->log))
        goto fail;
    if (include) {
        snprintf(n->include[0], sizeof n->include[0], "-I%s", include);
        snprintf(n->include[1], sizeof n->include[1], "-I%s/cccl", include);
        n->n_includes = 2;
        const char *cutlass = getenv("INFC_CUTLASS");
        if (cutlass && *cutlass) snprintf(n->include[n->n_includes++], sizeof n->include[0], "-I%s", cutlass);
    }
    return n;
fail:
    nvrtc_close(n);
    return NULL;
}

void nvrtc_close(struct nvrtc *n)
{
    if (!n) return;
    if (n->lib) dlclose(n->lib);
    free(n);
}

char *nvrtc_compile(struct nvrtc *n, const char *source, const char *arch)
{
    char gpu[64], *text = NULL;
    size_t bytes;
    program p = NULL;
    const char *options[8] = {gpu, "--std=c++17", "-default-device"};
    int n_options = 3;
    snprintf(gpu, sizeof gpu, "--gpu-architecture=compute_%s", arch);
    for (int i = 0; i < n->n_includes; i++) options[n_options++] = n->include[i];
    int rc = n->create(&p, source, "kernel.cu", 0, NULL, NULL);
    if (!rc) rc = n->compile(p, n_options, options);
    if (rc && p && !n->log_size(p, &bytes) && bytes > 1 && (text = malloc(bytes))) {
        if (!n->log(p, text)) fprintf(stderr, "%s\n", text);
        free(text);
        text = NULL;
    }
    if (!rc && !n->ptx_size(p, &bytes)) text = malloc(bytes + 1);
    if (text && n->ptx(p, text)) {
        free(text);
        text = NULL;
    }
    if (text) text[bytes] = 0;
    if (p) n->destroy(&p);
    return text;
}

char *nvrtc_compile_file(struct nvrtc *n, const char *folder, const char *name, const char *arch)
{
    char path[1024], *text = NULL, *ptx = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "%s cannot be read\n", path);
        return NULL;
    }
    if (!fseek(f, 0, SEEK_END)) {
        long bytes = ftell(f);
        rewind(f);
        if (bytes > 0 && bytes < 1 << 24 && (text = calloc(1, (size_t)bytes + 1)) &&
            fread(text, 1, (size_t)bytes, f) == (size_t)bytes)
            ptx = nvrtc_compile(n, text, arch);
    }
    free(text);
    fclose(f);
    return ptx;
}
