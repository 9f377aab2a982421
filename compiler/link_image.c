// SPDX-License-Identifier: Apache-2.0
#include "compiler/link_image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/engine_format.h"

#define WEIGHTS_PAGE 4096u /* the segment starts on a page of its own */

#define SECTION_NAME ".infc.weights"
#define NOTE_NAME ".note.infc"

/* ---- the note ---- */

void link_note_object(struct strbuf *out)
{
    static const char strings[] = "\0" NOTE_NAME "\0.shstrtab";
    struct {
        Elf64_Nhdr h;
        char name[8];
        uint32_t version[2];
    } note = {{5, 8, 1}, "infc", {INFR_VERSION_MAJOR, INFR_VERSION_MINOR}};
    uint64_t strings_at = sizeof(Elf64_Ehdr) + sizeof note, headers_at = (strings_at + sizeof strings + 7) & ~(uint64_t)7;
    Elf64_Ehdr h = {.e_type = ET_REL, .e_machine = EM_X86_64, .e_version = EV_CURRENT, .e_shoff = headers_at,
                    .e_ehsize = sizeof h, .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 3, .e_shstrndx = 2};
    memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = ELFDATA2LSB;
    h.e_ident[EI_VERSION] = EV_CURRENT;
    Elf64_Shdr s[3] = {
        {0},
        {.sh_name = 1, .sh_type = SHT_NOTE, .sh_flags = SHF_ALLOC, .sh_offset = sizeof h, .sh_size = sizeof note,
         .sh_addralign = 4},
        {.sh_name = 1 + sizeof NOTE_NAME, .sh_type = SHT_STRTAB, .sh_offset = strings_at, .sh_size = sizeof strings,
         .sh_addralign = 1},
    };
    strbuf_putn(out, (const char *)&h, sizeof h);
    strbuf_putn(out, (const char *)&note, sizeof note);
    strbuf_putn(out, strings, sizeof strings);
    while (out->len < headers_at) strbuf_putc(out, '\0');
    strbuf_putn(out, (const char *)s, sizeof s);
}

/* ---- program headers ---- */

static bool range_ok(uint64_t at, uint64_t n, size_t size) { return at <= size && n <= size - at; }

static bool check_headers(const struct strbuf *elf, Elf64_Ehdr *h)
{
    if (elf->len < sizeof *h) return false;
    memcpy(h, elf->data, sizeof *h);
    return !memcmp(h->e_ident, ELFMAG, SELFMAG) && h->e_type == ET_EXEC && h->e_phentsize == sizeof(Elf64_Phdr) &&
           h->e_shentsize == sizeof(Elf64_Shdr) && h->e_shnum > 0 && h->e_shnum < SHN_LORESERVE - 1 &&
           h->e_shstrndx < h->e_shnum && range_ok(h->e_phoff, (uint64_t)h->e_phnum * sizeof(Elf64_Phdr), elf->len) &&
           range_ok(h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr), elf->len);
}

/*
 * Address of weights at a file offset: equal modulo 2 MiB, so that every whole 2 MiB of the file lies on a huge page's
 * boundary in memory without padding the file.
 */
static uint64_t weights_vaddr(uint64_t offset)
{
    return INFR_WEIGHTS_VADDR + offset % INFR_WEIGHTS_ALIGN;
}

/* The first PT_NOTE becomes the weights' PT_LOAD, behind all others: PT_LOADs ascend by address. */
static bool add_segment(struct strbuf *elf, const Elf64_Ehdr *h, uint64_t offset, uint64_t n_bytes)
{
    Elf64_Phdr p[64];
    int n = h->e_phnum, note = -1;
    if (n > 64) return false;
    memcpy(p, elf->data + h->e_phoff, (size_t)n * sizeof *p);
    for (int i = n - 1; i >= 0; i--) {
        if (p[i].p_type == PT_NOTE) note = i;
        if (p[i].p_type == PT_LOAD && p[i].p_vaddr + p[i].p_memsz > INFR_WEIGHTS_VADDR) return false;
    }
    if (note < 0) return false;
    memmove(&p[note], &p[note + 1], (size_t)(n - note - 1) * sizeof *p);
    uint64_t vaddr = weights_vaddr(offset);
    p[n - 1] = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R, .p_offset = offset, .p_vaddr = vaddr, .p_paddr = vaddr,
                            .p_filesz = n_bytes, .p_memsz = n_bytes, .p_align = INFR_WEIGHTS_ALIGN};
    memcpy(elf->data + h->e_phoff, p, (size_t)n * sizeof *p);
    return true;
}

/* ---- symbols ---- */

#define KEPT_PREFIX "infr_" /* kernels, data and the API: what profilers show and the linker looks for */

/* Entries of a symbol table whose names begin with the prefix; new strings in `names`. */
static void keep_symbols(const char *old, uint64_t n_bytes, const char *strings, uint64_t n_strings, Elf64_Shdr *table,
                         struct strbuf *symbols, struct strbuf *names)
{
    const Elf64_Sym none = {0};
    table->sh_info = 1;
    strbuf_putn(symbols, (const char *)&none, sizeof none);
    strbuf_putc(names, '\0');
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= n_bytes; at += sizeof(Elf64_Sym)) {
        Elf64_Sym y;
        memcpy(&y, old + at, sizeof y);
        if (y.st_name >= n_strings || y.st_shndx == SHN_UNDEF) continue;
        const char *name = strings + y.st_name;
        size_t len = strnlen(name, n_strings - y.st_name);
        if (len == n_strings - y.st_name || strncmp(name, KEPT_PREFIX, strlen(KEPT_PREFIX)) != 0) continue;
        y.st_name = (Elf64_Word)names->len;
        if (ELF64_ST_BIND(y.st_info) == STB_LOCAL) table->sh_info++; /* these stand first, as they did */
        strbuf_putn(symbols, (const char *)&y, sizeof y);
        strbuf_putn(names, name, len + 1);
    }
    table->sh_size = symbols->len;
}

static void put_section(struct strbuf *out, Elf64_Shdr *s, const char *data, uint64_t n)
{
    while (s->sh_addralign > 1 && out->len % s->sh_addralign) strbuf_putc(out, '\0');
    s->sh_offset = out->len, s->sh_size = n;
    strbuf_putn(out, data, n);
}

/*
 * Most symbols are libc's and nobody's business: 0.2 MB. What follows the loaded bytes is written again: the sections that are
 * not loaded, then the headers. False when the file is laid out otherwise.
 */
static bool trim_symbols(struct strbuf *elf, Elf64_Ehdr *h)
{
    Elf64_Shdr *s = calloc(h->e_shnum, sizeof *s);
    struct strbuf out = {0}, symbols = {0}, names = {0};
    uint64_t end = 0;
    int table = -1;
    bool ok = s != NULL;
    if (ok) memcpy(s, elf->data + h->e_shoff, h->e_shnum * sizeof *s);
    for (int i = 0; ok && i < h->e_shnum; i++) {
        if (s[i].sh_type == SHT_NOBITS || s[i].sh_type == SHT_NULL) continue;
        ok = range_ok(s[i].sh_offset, s[i].sh_size, elf->len);
        if (s[i].sh_flags & SHF_ALLOC && end < s[i].sh_offset + s[i].sh_size) end = s[i].sh_offset + s[i].sh_size;
        if (s[i].sh_type == SHT_SYMTAB) table = i;
    }
    ok = ok && table > 0 && s[table].sh_link < h->e_shnum && range_ok(s[s[table].sh_link].sh_offset, s[s[table].sh_link].sh_size, elf->len);
    if (ok) {
        const Elf64_Shdr *strings = &s[s[table].sh_link];
        keep_symbols(elf->data + s[table].sh_offset, s[table].sh_size, elf->data + strings->sh_offset, strings->sh_size, &s[table], &symbols, &names);
        strbuf_putn(&out, elf->data, end);
    }
    for (int i = 0; ok && i < h->e_shnum; i++) {
        if (s[i].sh_type == SHT_NULL || s[i].sh_flags & SHF_ALLOC) continue;
        ok = s[i].sh_offset >= end;
        if (i == table) put_section(&out, &s[i], symbols.data, symbols.len);
        else if ((Elf64_Word)i == s[table].sh_link) put_section(&out, &s[i], names.data, names.len);
        else put_section(&out, &s[i], elf->data + s[i].sh_offset, s[i].sh_size);
    }
    while (out.len % 8) strbuf_putc(&out, '\0');
    h->e_shoff = out.len;
    if (ok) {
        strbuf_putn(&out, (const char *)s, h->e_shnum * sizeof *s);
        memcpy(out.data, h, sizeof *h);
        strbuf_deinit(elf);
        *elf = out;
    } else {
        strbuf_deinit(&out);
    }
    free(s);
    strbuf_deinit(&symbols);
    strbuf_deinit(&names);
    return ok;
}

/* ---- section headers ---- */

static bool add_section(struct link_image *i, Elf64_Ehdr *h, uint64_t n_bytes)
{
    struct strbuf *elf = &i->head;
    Elf64_Shdr names, *s = calloc((size_t)h->e_shnum + 1, sizeof *s);
    if (!s) return false;
    memcpy(s, elf->data + h->e_shoff, h->e_shnum * sizeof *s);
    names = s[h->e_shstrndx];
    bool ok = range_ok(names.sh_offset, names.sh_size, elf->len) && names.sh_size < UINT32_MAX - sizeof SECTION_NAME;
    if (ok) {
        strbuf_putn(&i->tail, elf->data + names.sh_offset, names.sh_size);
        strbuf_putn(&i->tail, SECTION_NAME, sizeof SECTION_NAME);
        s[h->e_shstrndx].sh_offset = i->tail_offset;
        s[h->e_shstrndx].sh_size = i->tail.len;
        s[h->e_shnum] = (Elf64_Shdr){.sh_name = (uint32_t)names.sh_size, .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC,
                                     .sh_addr = weights_vaddr(i->weights_offset), .sh_offset = i->weights_offset,
                                     .sh_size = n_bytes, .sh_addralign = WEIGHTS_PAGE};
        while (i->tail.len % 8) strbuf_putc(&i->tail, '\0');
        h->e_shoff = i->tail_offset + i->tail.len;
        h->e_shnum++;
        strbuf_putn(&i->tail, (const char *)s, h->e_shnum * sizeof *s);
        memcpy(elf->data, h, sizeof *h);
    }
    free(s);
    return ok;
}

bool link_image_init(struct link_image *i, struct strbuf *elf, uint64_t weights_bytes, struct diag_sink *diag)
{
    Elf64_Ehdr h;
    *i = (struct link_image){.head = *elf};
    *elf = (struct strbuf){0};
    if (!check_headers(&i->head, &h) || !trim_symbols(&i->head, &h))
        return diag_report(diag, DIAG_LINK, NULL, "ld.lld wrote something that is no executable");
    i->sections_offset = h.e_shoff, i->n_sections = h.e_shnum;
    if (weights_bytes == 0) return true;
    if (weights_bytes > (uint64_t)1 << 46) return diag_report(diag, DIAG_LINK, NULL, "the weights are too large for an engine");
    i->weights_offset = (i->head.len + WEIGHTS_PAGE - 1) & ~(uint64_t)(WEIGHTS_PAGE - 1);
    i->tail_offset = (i->weights_offset + weights_bytes + 63) & ~(uint64_t)63;
    if (!add_segment(&i->head, &h, i->weights_offset, weights_bytes) || !add_section(i, &h, weights_bytes))
        return diag_report(diag, DIAG_LINK, NULL, "the linked executable has no room for the weights' segment");
    return true;
}

/* File offset of n bytes at an address, from the loaded segments. */
static uint64_t file_offset(const struct strbuf *elf, const Elf64_Ehdr *h, uint64_t vaddr, uint64_t n)
{
    for (int i = 0; i < h->e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, elf->data + h->e_phoff + (size_t)i * sizeof p, sizeof p);
        if (p.p_type != PT_LOAD || vaddr < p.p_vaddr || !range_ok(vaddr - p.p_vaddr, n, p.p_filesz)) continue;
        uint64_t at = p.p_offset + (vaddr - p.p_vaddr);
        return range_ok(at, n, elf->len) ? at : 0;
    }
    return 0;
}

uint64_t link_image_find(const struct link_image *i, const char *symbol, uint64_t n)
{
    const struct strbuf *elf = &i->head;
    Elf64_Ehdr h;
    memcpy(&h, elf->data, sizeof h);
    size_t len = strlen(symbol) + 1;
    for (int k = 0; k < i->n_sections; k++) {
        Elf64_Shdr s, strings;
        memcpy(&s, elf->data + i->sections_offset + (size_t)k * sizeof s, sizeof s);
        if (s.sh_type != SHT_SYMTAB || s.sh_link >= (unsigned)i->n_sections || !range_ok(s.sh_offset, s.sh_size, elf->len)) continue;
        memcpy(&strings, elf->data + i->sections_offset + s.sh_link * sizeof strings, sizeof strings);
        if (!range_ok(strings.sh_offset, strings.sh_size, elf->len)) continue;
        for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= s.sh_size; at += sizeof(Elf64_Sym)) {
            Elf64_Sym y;
            memcpy(&y, elf->data + s.sh_offset + at, sizeof y);
            if (y.st_shndx != SHN_UNDEF && range_ok(y.st_name, len, strings.sh_size) &&
                !memcmp(elf->data + strings.sh_offset + y.st_name, symbol, len))
                return file_offset(elf, &h, y.st_value, n);
        }
    }
    return 0;
}

void link_image_deinit(struct link_image *i)
{
    strbuf_deinit(&i->head);
    strbuf_deinit(&i->tail);
}
