// SPDX-License-Identifier: Apache-2.0
/*
 * The last phases of a build: kernels to objects, plans to blobs, all of it to an engine. Each target has a plan and kernels of
 * its own; the weights are one segment that all plans refer to. The CPU's kernels are linked, those of GPUs are data.
 */
#include <stddef.h>
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/emit_plan.h"
#include "compiler/gpu_image.h"
#include "compiler/link.h"
#include "compiler/objects.h"
#include "compiler/pipeline.h"
#include "compiler/version.h"
#include "runtime/abi/gpu_format.h"

/* One target's share. */
struct part {
    struct build_part *b;
    struct object_job *jobs;
    size_t *job_kernel; /* the plan's kernel number of each job */
    size_t n_jobs;
    const char **table; /* kernel * INFR_ISA_COUNT + isa -> symbol; of GPUs all NULL */
    struct plan_blob blob;
    struct strbuf image; /* of a GPU */
    bool is_gpu;
};

enum { MAX_READERS = 16 };

struct engine {
    struct build *b;
    struct arena arena;
    struct part parts[BUILD_MAX_PARTS];
    struct target_object data;
    int n_readers; /* threads that pack weights */
};

/* A compiled copy is wanted for each kernel and level; the plan's loop IR is used up by it. */
static void make_jobs(struct engine *e, struct part *part)
{
    struct plan *p = part->b->plan;
    const struct target *t = part->b->target;
    size_t n = p->kernels.n;
    part->is_gpu = t->levels[0].gpu != NULL;
    part->jobs = ARENA_ARRAY(&e->arena, struct object_job, n * INFR_ISA_COUNT);
    part->job_kernel = ARENA_ARRAY(&e->arena, size_t, n * INFR_ISA_COUNT);
    part->table = ARENA_ARRAY(&e->arena, const char *, n * INFR_ISA_COUNT);
    for (size_t i = 0; i < n; i++) {
        const struct plan_kernel *k = &p->kernels.v[i];
        for (int l = 0; l < INFR_ISA_COUNT; l++)
            if (k->library_symbol) part->table[i * INFR_ISA_COUNT + (size_t)l] = k->library_symbol;
        for (int l = 0; l < t->n_levels; l++) {
            const struct target_level *lv = &t->levels[l];
            if (!k->levels[lv->isa]) continue;
            char *symbol = arena_alloc(&e->arena, OBJECT_SYMBOL_MAX + 1);
            plan_kernel_symbol(p, (int)i, lv, symbol, OBJECT_SYMBOL_MAX + 1);
            if (!part->is_gpu) part->table[i * INFR_ISA_COUNT + (size_t)lv->isa] = symbol;
            part->job_kernel[part->n_jobs] = i;
            part->jobs[part->n_jobs++] = (struct object_job){.kernel = k->levels[lv->isa], .level = lv, .symbol = symbol};
        }
    }
}

static bool compile_part(struct engine *e, struct part *part, struct object_cache *cache, int threads)
{
    const struct target *t = part->b->target;
    struct objects_options o = {.target = t, .n_threads = threads, .cache = cache};
    if (t->available && !t->available(e->b->diag)) return false;
    bool ok = objects_compile(&o, part->jobs, part->n_jobs, e->b->diag);
    for (size_t i = 0; i < part->n_jobs; i++) {
        struct plan_kernel *k = &part->b->plan->kernels.v[part->job_kernel[i]];
        if (part->jobs[i].object.scratch_bytes > k->scratch_bytes) k->scratch_bytes = part->jobs[i].object.scratch_bytes;
        if (ok && !part->is_gpu) k->code_bytes[part->jobs[i].level->isa] = object_code_bytes(&part->jobs[i].object);
        if (ok && t->read_code) t->read_code(part->jobs[i].object.data, part->jobs[i].object.n_bytes, &k->gpu);
    }
    return ok;
}

static bool compile_kernels(struct engine *e)
{
    struct build *b = e->b;
    int64_t threads;
    if (!option_int(b->o, OPT_JOBS, 1, 1024, 0, &threads, b->diag)) return false;
    struct object_cache *cache = NULL;
    struct strbuf identity = {0};
    if (!option_given(b->o, OPT_NO_CACHE) && object_cache_self_identity(&identity))
        cache = object_cache_open(NULL, strbuf_get(&identity), b->diag);
    strbuf_deinit(&identity);
    bool ok = true;
    /* GPUs first: their jobs are processes, which must come before this process has had threads of LLVM's. */
    for (int i = b->n_parts - 1; i >= 0; i--) ok = compile_part(e, &e->parts[i], cache, (int)threads) && ok;
    bool stored = false;
    for (int i = 0; i < b->n_parts; i++)
        for (size_t k = 0; k < e->parts[i].n_jobs; k++) stored = stored || !e->parts[i].jobs[k].from_cache;
    object_cache_close(cache, stored ? OBJECT_CACHE_MAX_BYTES : OBJECT_CACHE_ANY_SIZE);
    return ok;
}

/* JSON that `info` prints: what the engine was made from and how. Nothing of the machine, the time or paths. */
static char *manifest(struct engine *e, const struct part *part)
{
    struct strbuf s = {0};
    strbuf_printf(&s, "{\"compiler\": \"infc %s\", \"target\": \"%s\", \"kernels\": %zu, \"precision\": \"%s\", \"meta\": {", INFC_VERSION,
                  part->b->target->name, part->b->plan->kernels.n, option_value(e->b->o, OPT_PREC, "keep"));
    const struct ir_module *m = e->b->m;
    for (size_t i = 0; i < m->meta_keys.n; i++) {
        if (strlen(m->meta_values.v[i]) > 4096) continue; /* big tables such as OCR dictionaries are not for reading */
        strbuf_puts(&s, i ? ", " : "");
        strbuf_put_json(&s, m->meta_keys.v[i]);
        strbuf_puts(&s, ": ");
        strbuf_put_json(&s, m->meta_values.v[i]);
    }
    strbuf_puts(&s, "}}");
    char *text = arena_strdup(&e->arena, strbuf_get(&s));
    strbuf_deinit(&s);
    return text;
}

/* The plans' blobs in the order of the parts: the weights of the last one are those of all. */
static void emit_blobs(struct engine *e)
{
    struct build *b = e->b;
    for (int i = 0; i < b->n_parts; i++) {
        struct part *part = &e->parts[i];
        struct plan_blob_options o = {.compiler_version = "infc " INFC_VERSION, .manifest = manifest(e, part),
                                      .isa_mask = part->is_gpu ? 0 : part->b->isa_mask, .golden = b->golden, .golden_tolerance = b->golden_tolerance,
                                      .shared = i ? &e->parts[i - 1].blob : NULL, .text = b->m->text, .text_bytes = b->m->n_text_bytes};
        plan_emit_blob(part->b->plan, &o, &part->blob);
    }
    /* All plans speak of the whole segment, whose hash the linker notes in the first. */
    uint64_t total = e->parts[b->n_parts - 1].blob.weights_bytes;
    for (int i = 0; i < b->n_parts; i++) {
        struct part *part = &e->parts[i];
        memcpy(part->blob.bytes.data + offsetof(struct infr_header, weights_bytes), &total, sizeof total);
        if (part->is_gpu) gpu_image_write(&part->image, &part->b->target->levels[0], &part->blob.bytes, part->jobs, part->n_jobs);
    }
}

#define MAX_DATA (BUILD_MAX_PARTS + 8)

/* The symbols that the runtime looks for. Without a CPU the first GPU's plan stands for what the engine is about. */
static bool emit_data(struct engine *e)
{
    struct build *b = e->b;
    const struct part *first = &e->parts[0];
    uint64_t bytes = first->blob.bytes.len;
    static const char *const text_commands[] = {INFR_SYM_TEXT_COMMANDS}, *const gpu_device[] = {INFR_SYM_GPU_DEVICE},
                      *const serve_commands[] = {INFR_SYM_SERVE_COMMANDS};
    const char *images[BUILD_MAX_PARTS + 1] = {NULL};
    int n = 0, n_images = 0;
    struct target_data data[MAX_DATA];
    data[n++] = (struct target_data){.name = INFR_SYM_PLAN, .bytes = first->blob.bytes.data, .n_bytes = bytes, .align_bytes = 64};
    data[n++] = (struct target_data){.name = INFR_SYM_PLAN_BYTES, .bytes = &bytes, .n_bytes = sizeof bytes, .align_bytes = 8};
    data[n++] = (struct target_data){.name = INFR_SYM_KERNELS, .symbols = first->table,
                                     .n_symbols = first->b->plan->kernels.n * INFR_ISA_COUNT, .align_bytes = 8};
    if (b->m->text)
        data[n++] = (struct target_data){.name = INFR_SYM_TEXT_LINK, .symbols = text_commands, .n_symbols = 1, .align_bytes = 8};
    else if (option_given(b->o, OPT_SERVE)) /* text commands have a server among them */
        data[n++] = (struct target_data){.name = INFR_SYM_SERVE_LINK, .symbols = serve_commands, .n_symbols = 1, .align_bytes = 8};
    for (int i = 0; i < b->n_parts; i++) {
        if (!e->parts[i].is_gpu) continue;
        const struct strbuf *image = &e->parts[i].image;
        images[n_images] = arena_printf(&e->arena, "infr_gpu_image_%s", e->parts[i].b->target->name);
        data[n++] = (struct target_data){.name = images[n_images++], .bytes = image->data, .n_bytes = image->len, .align_bytes = 64};
    }
    if (n_images) {
        data[n++] = (struct target_data){.name = INFR_SYM_GPU_IMAGES, .symbols = images, .n_symbols = (size_t)n_images + 1, .align_bytes = 8};
        data[n++] = (struct target_data){.name = INFR_SYM_GPU_LINK, .symbols = gpu_device, .n_symbols = 1, .align_bytes = 8};
    }
    const struct target *host = target_at(0);
    return host->emit_data(host, data, n, &e->data, b->diag);
}

static const struct plan_blob *last_blob(const struct engine *e) { return &e->parts[e->b->n_parts - 1].blob; }

/* A part of what is read of the segment. */
struct piece {
    const struct plan_blob *blob;
    uint64_t at;
    char *dst;
    size_t n;
};

/* Weights in order, zeros between them. */
static void *read_piece(void *context)
{
    const struct piece *p = context;
    const struct plan_blob *blob = p->blob;
    uint64_t at = p->at;
    size_t n = p->n;
    char *dst = p->dst;
    memset(dst, 0, n);
    for (size_t i = 0; i < blob->n_weights; i++) {
        const struct weight *w = &blob->weights[i];
        uint64_t lo = at > w->offset ? at : w->offset, hi = at + n < w->offset + w->n_bytes ? at + n : w->offset + w->n_bytes;
        if (lo < hi) weight_read(w, lo - w->offset, dst + (lo - at), (size_t)(hi - lo));
    }
    return NULL;
}

/* Bytes [at, at + n) of the segment; packing is work, which the cores share. */
static bool read_weights(void *context, uint64_t at, void *dst, size_t n)
{
    struct engine *e = context;
    struct piece pieces[MAX_READERS];
    pthread_t threads[MAX_READERS];
    bool started[MAX_READERS] = {false};
    size_t done = 0;
    int count = 0;
    while (done < n) {
        size_t each = (n / (size_t)e->n_readers + 63) / 64 * 64, left = n - done;
        pieces[count] = (struct piece){last_blob(e), at + done, (char *)dst + done, count == e->n_readers - 1 || left < each ? left : each};
        done += pieces[count++].n;
    }
    for (int i = 1; i < count; i++) started[i] = !pthread_create(&threads[i], NULL, read_piece, &pieces[i]);
    for (int i = 0; i < count; i++)
        if (!started[i]) read_piece(&pieces[i]);
    for (int i = 1; i < count; i++)
        if (started[i]) pthread_join(threads[i], NULL);
    return true;
}

static bool link_all(struct engine *e, const char *output_path)
{
    const struct part *cpu = e->parts[0].is_gpu ? NULL : &e->parts[0];
    size_t n = cpu ? cpu->n_jobs : 0;
    struct link_object *objects = ARENA_ARRAY(&e->arena, struct link_object, n + 1);
    objects[0] = (struct link_object){e->data.data, e->data.n_bytes};
    for (size_t i = 0; i < n; i++) objects[i + 1] = (struct link_object){cpu->jobs[i].object.data, cpu->jobs[i].object.n_bytes};
    struct link_input in = {.objects = objects, .n_objects = n + 1, .weights_bytes = last_blob(e)->weights_bytes,
                            .dynamic = e->parts[e->b->n_parts - 1].is_gpu, .read_weights = read_weights, .context = e,
                            .hash_symbol = INFR_SYM_PLAN, .hash_offset = offsetof(struct infr_header, weights_hash)};
    return link_engine(&in, output_path, e->b->diag);
}

bool pipeline_engine(struct build *b, const char *output_path)
{
    struct engine e = {.b = b};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    e.n_readers = cores < 1 ? 1 : cores > MAX_READERS ? MAX_READERS : (int)cores;
    arena_init(&e.arena);
    for (int i = 0; i < b->n_parts; i++) {
        e.parts[i].b = &b->parts[i];
        make_jobs(&e, &e.parts[i]);
    }
    bool ok = compile_kernels(&e);
    if (ok) emit_blobs(&e);
    ok = ok && emit_data(&e) && link_all(&e, output_path);
    for (int i = 0; i < b->n_parts; i++) {
        objects_free(e.parts[i].jobs, e.parts[i].n_jobs);
        strbuf_deinit(&e.parts[i].blob.bytes);
        strbuf_deinit(&e.parts[i].image);
    }
    free(e.data.data);
    arena_deinit(&e.arena);
    return ok;
}
