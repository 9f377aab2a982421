// SPDX-License-Identifier: Apache-2.0
/*
 * A cubin is an ELF file: .text.KERNEL holds 16-byte instructions, .nv.info a list of attributes of which those with a
 * symbol number and a value matter here. The numbers of attributes and instructions are what NVIDIA's own dump tools showed.
 */
#include "targets/cuda/cubin.h"

#include <elf.h>
#include <string.h>

struct file {
    const unsigned char *data;
    size_t n;
    Elf64_Ehdr h;
    const char *names; /* of sections */
    size_t n_names;
};

static bool in_file(const struct file *f, uint64_t at, uint64_t bytes) { return at <= f->n && bytes <= f->n - at; }

static bool section(const struct file *f, unsigned i, Elf64_Shdr *s)
{
    if (i >= f->h.e_shnum) return false;
    memcpy(s, f->data + f->h.e_shoff + (size_t)i * sizeof *s, sizeof *s);
    return s->sh_type == SHT_NOBITS || in_file(f, s->sh_offset, s->sh_size);
}

/* A section that has bytes in the file. */
static bool section_data(const struct file *f, unsigned i, Elf64_Shdr *s) { return section(f, i, s) && s->sh_type != SHT_NOBITS; }

static bool open_file(struct file *f, const void *data, size_t n)
{
    Elf64_Shdr s;
    *f = (struct file){.data = data, .n = n};
    if (n < sizeof f->h) return false;
    memcpy(&f->h, data, sizeof f->h);
    if (memcmp(f->h.e_ident, ELFMAG, SELFMAG) || f->h.e_shentsize != sizeof(Elf64_Shdr) || f->h.e_machine != 190) return false;
    if (!in_file(f, f->h.e_shoff, (uint64_t)f->h.e_shnum * sizeof(Elf64_Shdr)) || !section_data(f, f->h.e_shstrndx, &s)) return false;
    f->names = (const char *)f->data + s.sh_offset;
    f->n_names = s.sh_size;
    return f->n_names > 0 && !f->names[f->n_names - 1];
}

static bool name_is(const struct file *f, const Elf64_Shdr *s, const char *prefix, const char *name)
{
    size_t n = strlen(prefix);
    if (s->sh_name >= f->n_names || strncmp(f->names + s->sh_name, prefix, n) != 0) return false;
    return !strcmp(f->names + s->sh_name + n, name);
}

/* Number of the kernel's symbol; 0 when there is none. */
static uint32_t symbol_number(const struct file *f, const char *kernel)
{
    Elf64_Shdr s, t;
    for (unsigned i = 0; i < f->h.e_shnum; i++) {
        if (!section(f, i, &s) || s.sh_type != SHT_SYMTAB || !section_data(f, s.sh_link, &t)) continue;
        for (uint64_t k = 0; k < s.sh_size / sizeof(Elf64_Sym); k++) {
            Elf64_Sym y;
            memcpy(&y, f->data + s.sh_offset + k * sizeof y, sizeof y);
            size_t len = strlen(kernel) + 1;
            if (y.st_name <= t.sh_size && len <= t.sh_size - y.st_name && ELF64_ST_TYPE(y.st_info) == STT_FUNC &&
                !memcmp(f->data + t.sh_offset + y.st_name, kernel, len))
                return (uint32_t)k;
        }
    }
    return 0;
}

enum { ATTR_FRAME = 0x11, ATTR_REGS = 0x2f };

static void read_attributes(const struct file *f, const Elf64_Shdr *s, uint32_t symbol, struct cubin_info *out)
{
    const unsigned char *p = f->data + s->sh_offset, *end = p + s->sh_size;
    while (end - p >= 4) {
        uint16_t bytes = 0;
        if (p[0] == 4) memcpy(&bytes, p + 2, 2);
        if (bytes > end - p - 4) return;
        if (p[0] == 4 && bytes == 8) {
            uint32_t v[2];
            memcpy(v, p + 4, 8);
            if (v[0] == symbol && p[1] == ATTR_REGS) out->regs = (int)v[1];
            if (v[0] == symbol && p[1] == ATTR_FRAME) out->frame_bytes = (int)v[1];
        }
        p += 4 + bytes;
    }
}

static void count_instruction(unsigned op, struct cubin_info *out)
{
    out->n_instrs++;
    switch (op) {
    case 0x983: case 0x387: out->n_local++; break;
    case 0x23c: out->n_mma++; break;
    case 0x237: out->n_mma++, out->n_imma++; break;
    case 0x27a: out->n_mma++, out->n_qmma++; break;
    case 0x9f0: out->n_wgmma++; break;
    case 0x9f1: out->n_wgmma++, out->n_imma++; break;
    case 0x9f3: out->n_wgmma++, out->n_qgmma++; break;
    case 0x83b: out->n_ldmatrix++; break;
    case 0xfae: out->n_async++; break;
    case 0x5b4: out->n_tma++; break;
    default: break;
    }
}

bool cubin_read(const void *data, size_t n_bytes, const char *kernel, struct cubin_info *out)
{
    struct file f;
    Elf64_Shdr s;
    bool found = false;
    *out = (struct cubin_info){0};
    if (!open_file(&f, data, n_bytes)) return false;
    out->sm = (int)(f.h.e_flags >> 8 & 0xff);
    uint32_t symbol = symbol_number(&f, kernel);
    for (unsigned i = 0; i < f.h.e_shnum; i++) {
        if (!section(&f, i, &s)) continue;
        if (s.sh_type != SHT_NOBITS && name_is(&f, &s, ".nv.info", "")) read_attributes(&f, &s, symbol, out);
        if (name_is(&f, &s, ".nv.shared.", kernel)) out->shared_bytes = (int)s.sh_size;
        if (!name_is(&f, &s, ".text.", kernel) || s.sh_type == SHT_NOBITS) continue;
        if (found) return false; /* of two, nobody knows which */
        found = true;
        out->code_bytes = s.sh_size;
        for (uint64_t at = 0; at + 16 <= s.sh_size; at += 16) {
            uint16_t word;
            memcpy(&word, f.data + s.sh_offset + at, 2);
            count_instruction(word & 0xfff, out);
        }
    }
    return found && symbol > 0;
}
