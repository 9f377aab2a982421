// SPDX-License-Identifier: Apache-2.0
/*
 * What is in the cubins of `infc build --emit=cubin`: one line a kernel that is named.
 * usage: cubin FILE KERNEL..
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "targets/cuda/cubin.h"

static size_t elf_bytes(const char *p, size_t n)
{
    Elf64_Ehdr h;
    if (n < sizeof h) return 0;
    memcpy(&h, p, sizeof h);
    size_t end = h.e_shoff + (size_t)h.e_shnum * h.e_shentsize, program = h.e_phoff + (size_t)h.e_phnum * h.e_phentsize;
    return end > program ? end : program;
}

int main(int argc, char **argv)
{
    static char data[64 << 20];
    FILE *f = argc > 2 ? fopen(argv[1], "rb") : NULL;
    if (!f) return 2;
    size_t n = fread(data, 1, sizeof data, f), at = 0;
    fclose(f);
    while (at < n && !memcmp(data + at, ELFMAG, SELFMAG)) {
        size_t bytes = elf_bytes(data + at, n - at);
        for (int i = 2; i < argc; i++) {
            struct cubin_info c;
            if (!bytes || bytes > n - at || !cubin_read(data + at, bytes, argv[i], &c)) continue;
            printf("%s sm %d regs %d frame %d local %d shared %d mma %d qmma %d wgmma %d qgmma %d ldmatrix %d async %d\n", argv[i], c.sm, c.regs, c.frame_bytes,
                   c.n_local, c.shared_bytes, c.n_mma, c.n_qmma, c.n_wgmma, c.n_qgmma, c.n_ldmatrix, c.n_async);
        }
        if (!bytes) return 1;
        at += bytes;
    }
    return at == n ? 0 : 1;
}
