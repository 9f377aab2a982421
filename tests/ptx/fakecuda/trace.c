// SPDX-License-Identifier: Apache-2.0
/* Launches as files: what a kernel was given, what it touched, what it made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/fakecuda/fake.h"
#include "tests/ptx/trace.h"

enum { MAX_POINTERS = 128, MAX_PATH_BYTES = 1200 };

/* A parameter that points into device memory, and what its allocation held before. */
struct pointer {
    uint64_t value, base, end; /* the part of the allocation that counts as this pointer's */
    unsigned char *before, *bits_before;
};

static int by_value(const void *a, const void *b)
{
    const struct pointer *x = a, *y = b;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* Distinct pointers in order, each with its part of memory. */
static unsigned find_pointers(const struct ptx_kernel *k, const unsigned char *params, struct pointer *out)
{
    unsigned n = 0, kept = 0, offset, bytes;
    for (unsigned i = 0; i < ptx_kernel_info(k)->n_params && n < MAX_POINTERS; i++) {
        uint64_t value, base;
        size_t size;
        if (!ptx_kernel_param(k, i, &offset, &bytes) || bytes != 8) continue;
        memcpy(&value, params + offset, 8);
        if (ptx_mem_find(fake.m, value, &base, &size)) out[n++] = (struct pointer){.value = value, .base = base, .end = base + size};
    }
    if (n) qsort(out, n, sizeof *out, by_value);
    for (unsigned i = 0; i < n; i++)
        if (!kept || out[i].value != out[kept - 1].value) out[kept++] = out[i];
    for (unsigned i = kept; i-- > 1;) {
        if (out[i].base != out[i - 1].base) continue;
        out[i - 1].end = out[i].value;
        out[i].base = out[i].value;
    }
    return kept;
}

static bool remember(struct pointer *p)
{
    size_t bytes = (size_t)(p->end - p->base);
    p->before = malloc(bytes);
    p->bits_before = malloc(bytes);
    return p->before && p->bits_before && ptx_mem_read(fake.m, p->before, p->base, bytes) && ptx_mem_touched(fake.m, p->bits_before, p->base, bytes);
}

static bool write_region(FILE *f, const struct pointer *p)
{
    size_t bytes = (size_t)(p->end - p->base), first = 0, last = bytes;
    unsigned char *bits = malloc(bytes), *after = malloc(bytes);
    bool ok = bits && after && ptx_mem_touched(fake.m, bits, p->base, bytes) && ptx_mem_read(fake.m, after, p->base, bytes);
    for (size_t i = 0; ok && i < bytes; i++) {
        unsigned touched = bits[i] & (PTX_READ | PTX_WRITTEN);
        bits[i] = (unsigned char)(!touched ? 0 : touched | (p->bits_before[i] & PTX_DEFINED ? TRACE_DEFINED : 0) |
                                                     (bits[i] & PTX_DEFINED ? TRACE_DEFINED_AFTER : 0));
    }
    while (ok && first < last && !bits[first]) first++;
    while (ok && last > first && !bits[last - 1]) last--;
    struct trace_region r = {.pointer = p->value, .begin = p->base + first, .bytes = last - first};
    ok = ok && fwrite(&r, sizeof r, 1, f) == 1 && fwrite(p->before + first, 1, last - first, f) == last - first &&
         fwrite(bits + first, 1, last - first, f) == last - first && fwrite(after + first, 1, last - first, f) == last - first;
    free(bits);
    free(after);
    return ok;
}

/* The text under its own hash, once. */
static bool write_text(const char *text, uint64_t *hash)
{
    char path[MAX_PATH_BYTES];
    uint64_t h = UINT64_C(14695981039346656037);
    for (const char *p = text; *p; p++) h = (h ^ (unsigned char)*p) * UINT64_C(1099511628211);
    *hash = h;
    snprintf(path, sizeof path, "%s/%016llx.ptx", fake.trace, (unsigned long long)h);
    FILE *f = fopen(path, "wx");
    if (!f) return true; /* it is there */
    bool ok = fputs(text, f) >= 0;
    return !fclose(f) && ok;
}

/* A number that no launch of another process has. */
static FILE *create(void)
{
    char path[MAX_PATH_BYTES];
    FILE *f = NULL;
    for (int tries = 0; !f && tries < 1000000; tries++) {
        snprintf(path, sizeof path, "%s/%06ld.trace", fake.trace, fake.n_traced++);
        f = fopen(path, "wbx");
    }
    return f;
}

static bool write_trace(const struct fake_function *f, const struct ptx_launch *l, const unsigned char *params, const struct pointer *p, unsigned n)
{
    const struct ptx_kernel_info *i = ptx_kernel_info(f->kernel);
    struct trace_head h = {.magic = TRACE_MAGIC, .sm = (uint32_t)fake.cc, .grid = {l->grid.x, l->grid.y, l->grid.z},
                           .block = {l->block.x, l->block.y, l->block.z}, .dynamic_shared_bytes = l->dynamic_shared_bytes,
                           .param_bytes = i->param_bytes, .n_regions = n};
    snprintf(h.kernel, sizeof h.kernel, "%s", i->name);
    if (strlen(i->name) >= sizeof h.kernel || !write_text(f->module->text, &h.ptx)) return false;
    FILE *out = create();
    bool ok = out && fwrite(&h, sizeof h, 1, out) == 1 && fwrite(params, 1, h.param_bytes, out) == h.param_bytes;
    for (unsigned k = 0; k < n && ok; k++) ok = write_region(out, &p[k]);
    return out && !fclose(out) && ok;
}

bool fake_launch_traced(const struct fake_function *f, const struct ptx_launch *l, const unsigned char *params)
{
    struct pointer pointers[MAX_POINTERS];
    unsigned n = find_pointers(f->kernel, params, pointers);
    bool kept = true;
    for (unsigned i = 0; i < n; i++) kept &= remember(&pointers[i]);
    bool ok = ptx_launch(fake.m, f->kernel, l);
    if (ok && (!kept || !write_trace(f, l, params, pointers, n))) {
        fprintf(stderr, "fake CUDA driver: a launch of %s cannot be traced into %s\n", ptx_kernel_info(f->kernel)->name, fake.trace);
        exit(1);
    }
    for (unsigned i = 0; i < n; i++) {
        free(pointers[i].before);
        free(pointers[i].bits_before);
    }
    return ok;
}
