// SPDX-License-Identifier: Apache-2.0
/*
 * Mutation testing of the proof itself: faults are put into the PTX of the validation kernels, one a time and by
 * rule (mutation.h), and the machine (with the check of the numbers) must notice each.
 *
 *   usage: mutate SOURCE_FOLDER INCLUDE_FOLDER [KERNELS] [EVERY] [LEAST]
 *
 * KERNELS: names with commas between them, "" for all. EVERY takes one mutant of so many. Survivors that SOURCE_FOLDER/equivalent.txt
 * argues to mean the same are counted, not printed; the others are gaps. Exit status 1: of the mutants that are not argued equivalent fewer
 * than LEAST (95) percent were caught, or more than 15% of all are argued equivalent.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/mutation.h"
#include "tests/ptx/validate/kernels.h"
#include "tests/ptx/validate/nvrtc.h"

enum { MAX_PATH_BYTES = 2000, MAX_STEPS = 3000000, LEAST_CAUGHT = 95 };

/* Does the machine notice? -1: the mutant is no valid program. */
static int caught(const struct validation *v, const char *ptx, bool early, unsigned seed)
{
    struct ptx_options o = {.sm = atoi(v->arch), .early = early, .seed = seed, .max_steps = MAX_STEPS};
    struct ptx_machine *m = ptx_machine_create(&o);
    struct ptx_module *mod = m ? ptx_module_load(m, ptx) : NULL;
    int result = !mod ? -1 : v->run(m, mod, v->name) != NULL;
    ptx_machine_destroy(m);
    return result;
}

static enum mutation_fate judge(void *context, int text, const char *ptx)
{
    (void)text;
    const struct validation *v = context;
    int r = caught(v, ptx, false, 0);
    if (!r) r = caught(v, ptx, true, 0);
    if (!r) r = caught(v, ptx, false, 3);
    return r < 0 ? MUTANT_INVALID : r ? MUTANT_CAUGHT : MUTANT_SURVIVED;
}

static bool is_wanted(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && !strncmp(p, name, n)) return true;
    return !*list;
}

int main(int argc, char **argv)
{
    char path[MAX_PATH_BYTES];
    const char *reason, *only = argc > 3 ? argv[3] : "";
    int every = argc > 4 ? atoi(argv[4]) : 1, least = argc > 5 ? atoi(argv[5]) : LEAST_CAUGHT, count = 0;
    struct mutation_tally total = {0};
    if (argc < 3 || every < 1) {
        fprintf(stderr, "usage: mutate SOURCE_FOLDER INCLUDE_FOLDER [KERNELS] [EVERY] [LEAST]\n");
        return 2;
    }
    snprintf(path, sizeof path, "%s/equivalent.txt", argv[1]);
    struct mutation_arguments *arguments = mutation_arguments_read(path);
    if (!arguments) return 2;
    struct nvrtc *n = nvrtc_open(argv[2], &reason);
    if (!n) {
        printf("skip mutate: %s\n", reason);
        mutation_arguments_free(arguments);
        return 0;
    }
    for (int i = 0; i < n_validations; i++) {
        const struct validation *v = &validations[i];
        if (!is_wanted(only, v->name) || (v->cutlass && !getenv("INFC_CUTLASS"))) continue;
        char *ptx = nvrtc_compile_file(n, argv[1], v->source, v->arch);
        struct mutation m = {.name = v->name, .arguments = arguments, .judge = judge, .context = (void *)v, .every = every, .count = &count};
        if (ptx) mutation_run(&m, (const char *const *)&ptx, 1, v->name);
        mutation_print(v->name, &m.tally);
        mutation_add(&total, &m.tally);
        free(ptx);
    }
    mutation_print("all", &total);
    nvrtc_close(n);
    mutation_arguments_free(arguments);
    return !mutation_enough(&total, least);
}
