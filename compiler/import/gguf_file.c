// SPDX-License-Identifier: Apache-2.0
/*
 * Reading and checking of GGUF files. The file is hostile: a count is compared with the bytes that are left before
 * anything is allocated for it, and sums and products are checked.
 */
#define _XOPEN_SOURCE 700 /* open flags */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/import/gguf_int.h"

#define MAX_NAME 255
#define MAX_KEY 65535
#define MAX_ALIGNMENT (1u << 20)
#define MAX_ARRAY_DEPTH 4
#define MIN_KV_BYTES 13     /* length, kind, one byte of value */
#define MIN_TENSOR_BYTES 32 /* length, rank, one dim, type, offset */

struct part {
    struct gguf *g;
    struct diag_sink *diag;
    const char *loc;
    const uint8_t *start, *p, *end;
    bool swap;
    uint32_t version, alignment;
    uint64_t n_tensors, n_kvs;
    VEC(struct gguf_kv) kvs;
    struct map keys;
};

static bool corrupt(struct part *f, const char *what)
{
    return diag_report(f->diag, DIAG_GGUF_CORRUPT, f->loc, "%s (at byte %zu of %zu)", what, (size_t)(f->p - f->start),
                       (size_t)(f->end - f->start));
}

static bool take(struct part *f, unsigned width, uint64_t *out)
{
    if ((size_t)(f->end - f->p) < width) return corrupt(f, "the file ends too early");
    *out = gguf_load(f->p, width, f->swap);
    f->p += width;
    return true;
}

static bool take_string(struct part *f, size_t max, struct gguf_string *out)
{
    uint64_t len;
    if (!take(f, 8, &len)) return false;
    if (len > (uint64_t)(f->end - f->p)) return corrupt(f, "a string is longer than the rest of the file");
    if (len > max) return corrupt(f, "a name is too long");
    *out = (struct gguf_string){(const char *)f->p, (size_t)len};
    f->p += len;
    return true;
}

static bool printable(const struct gguf_string *s)
{
    for (size_t i = 0; i < s->len; i++)
        if ((unsigned char)s->data[i] < 0x20 || s->data[i] == 0x7F) return false;
    return s->len > 0;
}

/* ---- metadata ---- */

static bool skip_elements(struct part *f, enum gguf_kind kind, uint64_t count, int depth);

/* Kind and count of an array, then its elements. */
static bool skip_array(struct part *f, struct gguf_value *v, int depth)
{
    uint64_t kind;
    if (depth > MAX_ARRAY_DEPTH) return corrupt(f, "arrays are nested too deeply");
    if (!take(f, 4, &kind) || !take(f, 8, &v->count)) return false;
    if (kind >= GGUF_KIND_COUNT) return corrupt(f, "an array's element type is unknown");
    v->element = (enum gguf_kind)kind;
    v->data = f->p;
    return skip_elements(f, v->element, v->count, depth);
}

static bool skip_elements(struct part *f, enum gguf_kind kind, uint64_t count, int depth)
{
    unsigned width = gguf_kind_bytes(kind);
    if (width) {
        if (count > (uint64_t)(f->end - f->p) / width) return corrupt(f, "an array is longer than the rest of the file");
        for (uint64_t i = 0; kind == GGUF_BOOL && i < count; i++)
            if (f->p[i] > 1) return corrupt(f, "a bool is neither 0 nor 1");
        f->p += count * width;
        return true;
    }
    for (uint64_t i = 0; i < count; i++) { /* every round takes bytes, or fails */
        struct gguf_string s;
        struct gguf_value v;
        if (kind == GGUF_STRING ? !take_string(f, SIZE_MAX, &s) : !skip_array(f, &v, depth + 1)) return false;
    }
    return true;
}

static bool read_kv(struct part *f)
{
    struct gguf_kv kv = {.value = {.count = 1, .swapped = f->swap}};
    uint64_t kind;
    if (!take_string(f, MAX_KEY, &kv.key)) return false;
    if (!printable(&kv.key)) return corrupt(f, "a metadata key is empty or has control characters");
    if (!take(f, 4, &kind)) return false;
    if (kind >= GGUF_KIND_COUNT)
        return diag_report(f->diag, DIAG_GGUF_CORRUPT, f->loc, "metadata key `%.*s` has unknown type %llu",
                           (int)kv.key.len, kv.key.data, (unsigned long long)kind);
    kv.value.kind = (enum gguf_kind)kind;
    kv.value.data = f->p;
    if (kind == GGUF_ARRAY ? !skip_array(f, &kv.value, 0) : !skip_elements(f, kv.value.kind, 1, 0)) return false;
    if (map_find(&f->keys, kv.key.data, kv.key.len))
        return diag_report(f->diag, DIAG_GGUF_CORRUPT, f->loc, "metadata key `%.*s` occurs twice", (int)kv.key.len, kv.key.data);
    vec_push(&f->g->arena, &f->kvs, kv);
    /* Not a pointer to the entry, which moves as the vector grows: its number, from 1. */
    map_put(&f->keys, kv.key.data, kv.key.len, (void *)(uintptr_t)f->kvs.n);
    return true;
}

static const struct gguf_value *part_value(const struct part *f, const char *key)
{
    size_t at = (uintptr_t)map_finds(&f->keys, key);
    return at ? &f->kvs.v[at - 1].value : NULL;
}

static bool read_metadata(struct part *f)
{
    if (f->n_kvs > (uint64_t)(f->end - f->p) / MIN_KV_BYTES) return corrupt(f, "more metadata keys than the file can hold");
    for (uint64_t i = 0; i < f->n_kvs; i++)
        if (!read_kv(f)) return false;
    const struct gguf_value *v = part_value(f, "general.alignment");
    int64_t a = 32;
    if (v && (v->kind != GGUF_U32 || !gguf_get_int(v, &a)))
        return diag_report(f->diag, DIAG_GGUF_METADATA, f->loc, "general.alignment is %s, not u32", gguf_kind_name(v->kind));
    if (a < 8 || a > MAX_ALIGNMENT || (a & (a - 1)))
        return diag_report(f->diag, DIAG_GGUF_METADATA, f->loc,
                           "general.alignment is %lld; it must be a power of two from 8 to %u", (long long)a, MAX_ALIGNMENT);
    f->alignment = (uint32_t)a;
    return true;
}

/* ---- tensors ---- */

static bool bad_tensor(struct part *f, const char *name, const char *what)
{
    return diag_report(f->diag, DIAG_GGUF_TENSOR, f->loc, "tensor `%s`: %s", name, what);
}

static bool read_shape(struct part *f, struct gguf_tensor *t)
{
    uint64_t rank, type;
    int64_t rows = 1;
    if (!take(f, 4, &rank)) return false;
    if (rank == 0 || rank > GGUF_MAX_RANK) return bad_tensor(f, t->name, "the number of dims is not 1 to 4");
    t->rank = (int)rank;
    for (int i = 0; i < t->rank; i++) {
        uint64_t d;
        if (!take(f, 8, &d)) return false;
        if (d == 0 || d > INT64_MAX) return bad_tensor(f, t->name, "a dim is not positive");
        t->dims[i] = (int64_t)d;
        if (i && !i64_mul(rows, t->dims[i], &rows)) return bad_tensor(f, t->name, "the number of elements overflows");
    }
    if (!take(f, 4, &type)) return false;
    t->enc = encoding_from_gguf((uint32_t)type);
    if (!t->enc)
        return diag_report(f->diag, DIAG_GGUF_TENSOR, f->loc, "tensor `%s` has unknown type %llu", t->name, (unsigned long long)type);
    if (t->dims[0] % t->enc->block_elems)
        return diag_report(f->diag, DIAG_GGUF_TENSOR, f->loc, "tensor `%s`: rows of %lld elements are not whole blocks of %s (%d)",
                           t->name, (long long)t->dims[0], t->enc->name, t->enc->block_elems);
    return encoding_bytes(t->enc, rows, t->dims[0], &t->n_bytes) || bad_tensor(f, t->name, "its size overflows");
}

static bool read_tensor(struct part *f, uint64_t *offset)
{
    struct gguf *g = f->g;
    struct gguf_string name;
    struct gguf_tensor *t;
    if (!take_string(f, MAX_NAME, &name)) return false;
    if (!printable(&name)) return corrupt(f, "a tensor's name is empty or has control characters");
    t = ARENA_NEW(&g->arena, struct gguf_tensor);
    t->name = arena_strndup(&g->arena, name.data, name.len);
    if (!read_shape(f, t) || !take(f, 8, offset)) return false;
    if (*offset % f->alignment)
        return diag_report(f->diag, DIAG_GGUF_TENSOR, f->loc, "tensor `%s`: offset %llu is not a multiple of the alignment %u",
                           t->name, (unsigned long long)*offset, f->alignment);
    if (map_puts(&g->names, t->name, t)) return bad_tensor(f, t->name, "the name occurs twice");
    vec_push(&g->arena, &g->tensors, t);
    return true;
}

/* Where the tensors of this part lie, once the start of the data is known; big-endian ones are converted. */
static bool place_tensors(struct part *f, size_t first, const uint64_t *offsets)
{
    struct gguf *g = f->g;
    size_t head = (size_t)(f->p - f->start), len = (size_t)(f->end - f->start), pad = (size_t)-head & (f->alignment - 1);
    size_t data = head + pad < len ? head + pad : len, left = len - data;
    for (size_t i = first; i < g->tensors.n; i++) {
        struct gguf_tensor *t = g->tensors.v[i];
        uint64_t at = offsets[i - first];
        if (at > len - data || t->n_bytes > len - data - at) return bad_tensor(f, t->name, "its data lies beyond the end of the file");
        if (t->n_bytes > left) return bad_tensor(f, t->name, "its data overlaps that of other tensors");
        left -= t->n_bytes;
        t->data = f->start + data + at;
        if (!f->swap || !gguf_needs_swap(t->enc)) continue;
        void *copy = arena_dup(&g->arena, t->data, t->n_bytes);
        encoding_swap(t->enc, copy, t->n_bytes);
        t->data = copy;
    }
    return true;
}

static bool read_tensors(struct part *f)
{
    if (f->n_tensors > (uint64_t)(f->end - f->p) / MIN_TENSOR_BYTES) return corrupt(f, "more tensors than the file can hold");
    uint64_t *offsets = calloc((size_t)f->n_tensors + 1, sizeof *offsets);
    if (!offsets) return diag_report(f->diag, DIAG_ENVIRONMENT, f->loc, "no memory for %llu tensors", (unsigned long long)f->n_tensors);
    size_t first = f->g->tensors.n;
    bool ok = true;
    for (uint64_t i = 0; ok && i < f->n_tensors; i++) ok = read_tensor(f, &offsets[i]);
    ok = ok && place_tensors(f, first, offsets);
    free(offsets);
    return ok;
}

/* ---- parts ---- */

static bool read_header(struct part *f)
{
    uint64_t version;
    if (!gguf_looks_like(f->p, (size_t)(f->end - f->p))) return corrupt(f, "the file does not start with `GGUF`");
    f->p += 4;
    if (!take(f, 4, &version)) return false;
    if (!(version & 0xFFFF) && version) { /* 3 in the other byte order */
        f->swap = true;
        version = gguf_load(f->p - 4, 4, true);
    }
    if (version < 2 || version > 3)
        return diag_report(f->diag, DIAG_GGUF_VERSION, f->loc, "GGUF version %llu; versions 2 and 3 are supported",
                           (unsigned long long)version);
    f->version = (uint32_t)version;
    return take(f, 8, &f->n_tensors) && take(f, 8, &f->n_kvs);
}

/* The value of an integer key of any kind, or dflt when it is absent. */
static bool split_key(struct part *f, const char *key, int64_t dflt, int64_t *out)
{
    const struct gguf_value *v = part_value(f, key);
    *out = dflt;
    return !v || gguf_get_int(v, out) || diag_report(f->diag, DIAG_GGUF_METADATA, f->loc, "%s is no integer", key);
}

/* Part `number` of how many; *count is known from the first one (0: this is it). */
static bool read_part(struct gguf *g, const void *data, size_t len, const char *loc, int64_t number, int64_t *count,
                      int64_t *all_tensors, struct diag_sink *diag)
{
    struct part f = {.g = g, .diag = diag, .loc = loc, .start = data, .p = data, .end = (const uint8_t *)data + len};
    int64_t no, of, all;
    map_init(&f.keys, &g->arena);
    if (!read_header(&f) || !read_metadata(&f) || !split_key(&f, "split.no", 0, &no) ||
        !split_key(&f, "split.count", 1, &of) || !split_key(&f, "split.tensors.count", -1, &all))
        return false;
    if (no != number || of < 1 || (number && of != *count))
        return diag_report(diag, DIAG_GGUF_SPLIT, loc, "the file is part %lld of %lld, not part %lld of %lld", (long long)no + 1,
                           (long long)of, (long long)number + 1, (long long)(number ? *count : of));
    if (number == 0) {
        *count = of;
        *all_tensors = all;
        g->version = f.version;
        g->alignment = f.alignment;
        g->big_endian = f.swap;
        for (size_t i = 0; i < f.kvs.n; i++) vec_push(&g->arena, &g->kvs, f.kvs.v[i]);
        for (size_t i = 0; i < g->kvs.n; i++) map_put(&g->keys, g->kvs.v[i].key.data, g->kvs.v[i].key.len, &g->kvs.v[i]);
    }
    g->n_parts++;
    g->n_file_bytes += len;
    return read_tensors(&f);
}

static struct gguf *create(const char *path)
{
    struct gguf *g = calloc(1, sizeof *g);
    INFC_ASSERT(g != NULL);
    arena_init(&g->arena);
    map_init(&g->keys, &g->arena);
    map_init(&g->names, &g->arena);
    g->path = arena_strdup(&g->arena, path);
    return g;
}

struct gguf *gguf_open_bytes(const void *data, size_t len, const char *name, struct diag_sink *diag)
{
    struct gguf *g = create(name);
    int64_t count = 0, all = -1;
    bool ok = read_part(g, data, len, name, 0, &count, &all, diag);
    if (ok && count != 1) ok = diag_report(diag, DIAG_GGUF_SPLIT, name, "the file is one of %lld parts", (long long)count);
    if (ok) return g;
    gguf_close(g);
    return NULL;
}

static bool map_file(struct gguf *g, const char *path, struct gguf_map *out, struct diag_sink *diag)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *p = NULL;
    if (fd < 0) return diag_report(diag, DIAG_FILE_READ, path, "%s", strerror(errno));
    bool ok = !fstat(fd, &st) && S_ISREG(st.st_mode);
    if (!ok) diag_report(diag, DIAG_FILE_READ, path, "not a regular file");
    else if (st.st_size == 0) ok = diag_report(diag, DIAG_GGUF_CORRUPT, path, "the file is empty");
    else if ((p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        ok = diag_report(diag, DIAG_FILE_READ, path, "cannot be mapped: %s", strerror(errno));
    close(fd);
    if (!ok) return false;
    *out = (struct gguf_map){p, (size_t)st.st_size};
    vec_push(&g->arena, &g->maps, *out);
    return true;
}

/* Length of the path before "-00001-of-0000N.gguf"; *number and *of as written there. False: not such a name. */
static bool split_name(const char *path, size_t *prefix, long *number, long *of)
{
    static const char tail[] = "-00001-of-00001.gguf";
    size_t len = strlen(path), n = sizeof tail - 1;
    const char *p = path + len - n;
    if (len <= n) return false;
    for (size_t i = 0; i < n; i++) {
        bool digit = tail[i] == '0' || tail[i] == '1';
        if (digit ? p[i] < '0' || p[i] > '9' : p[i] != tail[i]) return false;
    }
    *prefix = len - n;
    *number = strtol(p + 1, NULL, 10);
    *of = strtol(p + 10, NULL, 10);
    return true;
}

static bool open_parts(struct gguf *g, const char *path, struct diag_sink *diag)
{
    struct gguf_map m;
    int64_t count = 0, all = -1;
    size_t prefix = 0;
    long number = 1, of = 1;
    bool named = split_name(path, &prefix, &number, &of);
    if (named && number != 1 && number <= of)
        return diag_report(diag, DIAG_GGUF_SPLIT, path, "this is part %ld of %ld; give part 1", number, of);
    if (!map_file(g, path, &m, diag) || !read_part(g, m.data, m.len, path, 0, &count, &all, diag)) return false;
    if (count > 1 && (!named || of != count))
        return diag_report(diag, DIAG_GGUF_SPLIT, path, "the file is part 1 of %lld, but is not named ...-00001-of-%05lld.gguf",
                           (long long)count, (long long)count);
    for (int64_t i = 1; i < count; i++) {
        char *next = arena_printf(&g->arena, "%.*s-%05lld-of-%05lld.gguf", (int)prefix, path, (long long)i + 1, (long long)count);
        if (!map_file(g, next, &m, diag) || !read_part(g, m.data, m.len, next, i, &count, &all, diag)) return false;
    }
    if (count > 1 && all >= 0 && (uint64_t)all != g->tensors.n)
        return diag_report(diag, DIAG_GGUF_SPLIT, path, "the parts hold %zu tensors instead of %lld", g->tensors.n, (long long)all);
    return true;
}

struct gguf *gguf_open(const char *path, struct diag_sink *diag)
{
    struct gguf *g = create(path);
    if (open_parts(g, path, diag)) return g;
    gguf_close(g);
    return NULL;
}

void gguf_close(struct gguf *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->maps.n; i++) munmap((void *)(uintptr_t)g->maps.v[i].data, g->maps.v[i].len);
    arena_deinit(&g->arena);
    free(g);
}
