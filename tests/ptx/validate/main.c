// SPDX-License-Identifier: Apache-2.0
/* Runs the validation kernels: `ok NAME`, `not ok NAME: reason`, `skip NAME: why`. 
 * usage: validate SOURCE_FOLDER INCLUDE_FOLDER [NAME] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/validate/kernels.h"
#include "tests/ptx/validate/nvrtc.h"

static int run_mode(const struct validation *v, const char *ptx, bool early, unsigned seed)
{
    struct ptx_options o = {.sm = atoi(v->arch), .early = early, .seed = seed};
    struct ptx_machine *m = ptx_machine_create(&o);
    struct ptx_module *mod = m ? ptx_module_load(m, ptx) : NULL;
    const char *problem = mod ? v->run(m, mod, v->name) : m ? ptx_report(m) : "out of memory";
    if (problem) {
        printf("not ok %s: %s\n", v->name, early ? "early" : seed ? "shuffled" : "late");
        printf("%s\n", problem);
    }
    ptx_machine_destroy(m);
    return problem ? 1 : 0;
}

int main(int argc, char **argv)
{
    const char *reason, *only = argc > 3 ? argv[3] : "";
    struct nvrtc *n = argc > 2 ? nvrtc_open(argv[2], &reason) : NULL;
    int failed = 0;
    char *ptx = NULL;
    const struct validation *compiled = NULL; /* whose text that is: neighbours share files */
    if (argc < 3) {
        fprintf(stderr, "usage: validate SOURCE_FOLDER INCLUDE_FOLDER [NAME]\n");
        return 2;
    }
    if (!n) {
        printf("skip validate: %s\n", reason);
        return 0;
    }
    for (int i = 0; i < n_validations; i++) {
        const struct validation *v = &validations[i];
        if (*only && !strstr(v->name, only)) continue;
        if (v->cutlass && !getenv("INFC_CUTLASS")) {
            printf("skip %s: no CUTLASS (INFC_CUTLASS, or the wheel nvidia-cutlass)\n", v->name);
            continue;
        }
        if (!compiled || strcmp(compiled->source, v->source) || strcmp(compiled->arch, v->arch)) {
            free(ptx);
            ptx = nvrtc_compile_file(n, argv[1], v->source, v->arch);
        }
        compiled = v;
        if (!ptx) {
            printf("not ok %s: does not compile\n", v->name);
            failed = 1;
            continue;
        }
        int bad = run_mode(v, ptx, false, 0) || run_mode(v, ptx, true, 0) || run_mode(v, ptx, false, 7);
        if (!bad) printf("ok %s\n", v->name);
        failed |= bad;
        fflush(stdout);
    }
    free(ptx);
    nvrtc_close(n);
    return failed;
}
