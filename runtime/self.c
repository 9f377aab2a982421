// SPDX-License-Identifier: Apache-2.0
/* The engine that is linked into this program. Only the engine's own executable may use this file:
 * it needs the data object. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/engine.h"
#include "runtime/status.h"

#define MIN_HUGE_BYTES ((uint64_t)8 << 20)

extern const unsigned char infr_plan[];
extern const uint64_t infr_plan_bytes;
extern infr_kernel_fn *const infr_kernel_table[];
/* Only of engines with code for GPUs. */
extern const void *const infr_gpu_images[] __attribute__((weak));

/*
 * The kernel maps a segment without looking how long the file is; reading past its end is a SIGBUS.
 * Where the program can open its own file, a cut one is found here. 0 = unknown.
 */
static uint64_t own_file_bytes(void)
{
    const char *name = (const char *)getauxval(AT_EXECFN);
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 && name) fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    struct stat s;
    uint64_t bytes = !fstat(fd, &s) && S_ISREG(s.st_mode) ? (uint64_t)s.st_size : 0;
    close(fd);
    return bytes;
}

/* Large weights on huge pages of the file's own, where kernel and file system have them; only a
 * wish. */
static void advise_huge(char *start, uint64_t n_bytes)
{
    uintptr_t page = (uintptr_t)start & ~(uintptr_t)4095;
    if (n_bytes >= MIN_HUGE_BYTES)
        madvise((void *)page, n_bytes + ((uintptr_t)start - page), MADV_HUGEPAGE);
}

/* The engine is linked at fixed addresses, so p_vaddr is where a segment lies. */
int rt_self_image(struct infr_image *out, struct infr_status *st)
{
    *out = (struct infr_image){.plan = infr_plan,
                               .plan_bytes = infr_plan_bytes,
                               .kernels = infr_kernel_table,
                               .gpu_images = infr_gpu_images,
                               .weights = ""};
    const Elf64_Phdr *ph = (const Elf64_Phdr *)getauxval(AT_PHDR);
    unsigned long n = getauxval(AT_PHNUM);
    if (!ph || getauxval(AT_PHENT) != sizeof *ph)
        return INFR_OK; /* weightless, or refused for missing weights */
    for (unsigned long i = 0; i < n; i++) {
        if (ph[i].p_type != PT_LOAD || ph[i].p_align < INFR_WEIGHTS_ALIGN ||
            ph[i].p_vaddr < INFR_WEIGHTS_VADDR)
            continue;
        uint64_t file_bytes = own_file_bytes();
        if (file_bytes &&
            (ph[i].p_offset > file_bytes || ph[i].p_filesz > file_bytes - ph[i].p_offset))
            return rt_fail(st, INFR_ENVIRONMENT,
                           "this file is cut off: it has %llu bytes, its weights end at %llu",
                           (unsigned long long)file_bytes,
                           (unsigned long long)(ph[i].p_offset + ph[i].p_filesz));
        advise_huge((char *)ph[i].p_vaddr, ph[i].p_filesz);
        out->weights = (const void *)ph[i].p_vaddr;
        out->weights_bytes = ph[i].p_filesz;
        return INFR_OK;
    }
    return INFR_OK;
}

int infr_engine_open_self(const struct infr_options *options, struct infr_engine **out_engine,
                          struct infr_status *status)
{
    struct infr_image image;
    *out_engine = NULL;
    int code = rt_self_image(&image, status);
    return code ? code : infr_engine_open(&image, options, out_engine, status);
}
