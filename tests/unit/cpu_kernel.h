// SPDX-License-Identifier: Apache-2.0
/*
 * Runs compiled kernels inside a test: a loader for one relocatable object, and buffers that end at a page which
 * may not be touched. Levels that the machine lacks are left out; tiles of the level amx are the tests' model's where the CPU has none.
 */
/* Include first: it asks for MAP_ANONYMOUS and MAP_32BIT. */
#ifndef INFC_TESTS_UNIT_CPU_KERNEL_H
#define INFC_TESTS_UNIT_CPU_KERNEL_H

#define _GNU_SOURCE

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <elf.h>
#include <sys/mman.h>

#include "ir/dim.h"
#include "ir/target.h"
#include "tests/amx/trap.h"

static inline bool machine_has(enum infr_isa isa)
{
    __builtin_cpu_init();
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512cd");
    switch (isa) {
    case INFR_ISA_V2: return __builtin_cpu_supports("sse4.2");
    case INFR_ISA_V3: return v3;
    case INFR_ISA_V4: return v4;
    case INFR_ISA_VNNI: return v4 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
    case INFR_ISA_AMX: return amx_ready() != AMX_ABSENT;
    default: return false;
    }
}

struct loaded {
    char *mem;
    size_t n_bytes;
    infr_kernel_fn *fn;
};

static inline void relocate(char *at, unsigned type, uint64_t s, int64_t addend)
{
    uint64_t v = s + (uint64_t)addend, place = (uint64_t)(uintptr_t)at;
    int32_t pc = (int32_t)(int64_t)(v - place);
    switch (type) {
    case R_X86_64_64: memcpy(at, &v, 8); break;
    case R_X86_64_PC32:
    case R_X86_64_PLT32: memcpy(at, &pc, 4); break;
    case R_X86_64_32:
    case R_X86_64_32S:
        assert_true(v < (uint64_t)1 << 31);
        memcpy(at, &v, 4);
        break;
    default: fail_msg("relocation type %u", type);
    }
}

/* Fails on any symbol that the object itself does not define: kernels call nothing. */
static inline struct loaded load_object(const struct target_object *o, const char *symbol)
{
    char *file = o->data;
    Elf64_Ehdr *h = (Elf64_Ehdr *)file;
    Elf64_Shdr *s = (Elf64_Shdr *)(file + h->e_shoff);
    struct loaded l = {.n_bytes = 0};
    uint64_t *base = calloc(h->e_shnum, sizeof *base);
    for (int i = 0; i < h->e_shnum; i++) {
        if (!(s[i].sh_flags & SHF_ALLOC)) continue;
        uint64_t align = s[i].sh_addralign ? s[i].sh_addralign : 1;
        l.n_bytes = (l.n_bytes + align - 1) / align * align;
        base[i] = l.n_bytes;
        l.n_bytes += s[i].sh_size;
    }
    l.mem = mmap(NULL, l.n_bytes + 1, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    assert_ptr_not_equal(l.mem, MAP_FAILED);
    for (int i = 0; i < h->e_shnum; i++)
        if ((s[i].sh_flags & SHF_ALLOC) && s[i].sh_type != SHT_NOBITS)
            memcpy(l.mem + base[i], file + s[i].sh_offset, s[i].sh_size);
    for (int i = 0; i < h->e_shnum; i++) {
        if (s[i].sh_type == SHT_SYMTAB) {
            Elf64_Sym *y = (Elf64_Sym *)(file + s[i].sh_offset);
            for (size_t j = 0; j < s[i].sh_size / sizeof *y; j++)
                if (!strcmp(file + s[s[i].sh_link].sh_offset + y[j].st_name, symbol) && y[j].st_shndx) {
                    char *at = l.mem + base[y[j].st_shndx] + y[j].st_value;
                    memcpy(&l.fn, &at, sizeof l.fn);
                }
        }
        if (s[i].sh_type != SHT_RELA || !(s[s[i].sh_info].sh_flags & SHF_ALLOC)) continue;
        Elf64_Sym *y = (Elf64_Sym *)(file + s[s[i].sh_link].sh_offset);
        Elf64_Rela *r = (Elf64_Rela *)(file + s[i].sh_offset);
        for (size_t j = 0; j < s[i].sh_size / sizeof *r; j++) {
            Elf64_Sym *to = &y[ELF64_R_SYM(r[j].r_info)];
            if (to->st_shndx == SHN_UNDEF)
                fail_msg("calls %s", file + s[s[s[i].sh_link].sh_link].sh_offset + to->st_name);
            uint64_t value = (uint64_t)(uintptr_t)l.mem + base[to->st_shndx] + to->st_value;
            relocate(l.mem + base[s[i].sh_info] + r[j].r_offset, (unsigned)ELF64_R_TYPE(r[j].r_info), value, r[j].r_addend);
        }
    }
    free(base);
    return l;
}

/* n bytes between two pages that fault; they end at the second one. Zeroed. */
struct guarded {
    char *map, *data;
    size_t map_bytes;
};

static inline struct guarded guarded_alloc(size_t n)
{
    struct guarded g;
    size_t body = (n + 4095) / 4096 * 4096;
    g.map_bytes = body + 2 * 4096;
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(g.map, MAP_FAILED);
    assert_int_equal(mprotect(g.map, 4096, PROT_NONE), 0);
    assert_int_equal(mprotect(g.map + 4096 + body, 4096, PROT_NONE), 0);
    g.data = g.map + 4096 + body - n;
    return g;
}

static inline void guarded_free(struct guarded *g) { munmap(g->map, g->map_bytes); }

#endif
