// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/driver.h"

#include <dlfcn.h>
#include <string.h>

#include "runtime/status.h"

static bool find(struct cu_driver *cu, const char *name, void *out)
{
    void *p = dlsym(cu->lib, name);
    memcpy(out, &p, sizeof p);
    return p != NULL;
}

int cu_open(struct cu_driver *cu, struct infr_status *st)
{
    *cu = (struct cu_driver){.lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (!cu->lib) return rt_fail(st, INFR_ENVIRONMENT, "no NVIDIA driver is installed (libcuda.so.1 cannot be opened)");
    const char *missing = NULL;
#define X(name, parameters) \
    if (!missing && !find(cu, #name, &cu->name)) missing = #name;
    CU_FUNCTIONS(X)
#undef X
    if (missing) {
        cu_close(cu);
        return rt_fail(st, INFR_ENVIRONMENT, "the NVIDIA driver is too old: it has no %s", missing);
    }
    cu_result code = cu->cuInit(0);
    if (!code) code = cu->cuDriverGetVersion(&cu->version);
    if (!code) return INFR_OK;
    if (code == CU_ERROR_NO_DEVICE) rt_fail(st, INFR_ENVIRONMENT, "there is an NVIDIA driver, but no GPU");
    else cu_fail(cu, code, "starting the NVIDIA driver", st);
    cu_close(cu);
    return INFR_ENVIRONMENT;
}

void cu_close(struct cu_driver *cu)
{
    if (cu->lib) dlclose(cu->lib);
    cu->lib = NULL;
}

int cu_fail(const struct cu_driver *cu, cu_result code, const char *what, struct infr_status *st)
{
    const char *name = NULL, *text = NULL;
    if (cu->cuGetErrorName(code, &name)) name = NULL;
    if (cu->cuGetErrorString(code, &text)) text = NULL;
    return rt_fail(st, INFR_ENVIRONMENT, "%s failed: %s (%s, %d)", what, text ? text : "unknown error", name ? name : "?", code);
}
