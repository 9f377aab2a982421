// SPDX-License-Identifier: Apache-2.0
/* The last phases of a build: kernels to objects, the plan's blob and tables to a data object, all of it to an engine. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/emit_plan.h"
#include "compiler/link.h"
#include "compiler/objects.h"
#include "compiler/pipeline.h"
#include "compiler/version.h"

struct engine {
    struct build *b;
    struct arena arena;
    struct object_job *jobs;
    size_t *job_kernel; /* the plan's kernel number of each job */
    size_t n_jobs;
    const char **table; /* kernel * INFR_ISA_COUNT + isa -> symbol */
    struct plan_blob blob;
    struct target_object data;
};

/* A compiled copy is wanted for each kernel and level; the plan's loop IR is used up by it. */
static void make_jobs(struct engine *e)
{
    struct plan *p = e->b->plan;
    const struct target *t = e->b->target;
    size_t n = p->kernels.n;
    e->jobs = ARENA_ARRAY(&e->arena, struct object_job, n * INFR_ISA_COUNT);
    e->job_kernel = ARENA_ARRAY(&e->arena, size_t, n * INFR_ISA_COUNT);
    e->table = ARENA_ARRAY(&e->arena, const char *, n * INFR_ISA_COUNT);
    for (size_t i = 0; i < n; i++) {
        const struct plan_kernel *k = &p->kernels.v[i];
        for (int l = 0; l < INFR_ISA_COUNT; l++)
            if (k->library_symbol) e->table[i * INFR_ISA_COUNT + (size_t)l] = k->library_symbol;
        for (int l = 0; l < t->n_levels; l++) {
            const struct target_level *lv = &t->levels[l];
            if (!k->levels[lv->isa]) continue;
            char *symbol = arena_alloc(&e->arena, OBJECT_SYMBOL_MAX + 1);
            plan_kernel_symbol(p, (int)i, lv, symbol, OBJECT_SYMBOL_MAX + 1);
            e->table[i * INFR_ISA_COUNT + (size_t)lv->isa] = symbol;
            e->job_kernel[e->n_jobs] = i;
            e->jobs[e->n_jobs++] = (struct object_job){.kernel = k->levels[lv->isa], .level = lv, .symbol = symbol};
        }
    }
}

/* Identity of each kernel: its canonical loop IR on all levels. */
static void hash_kernels(struct plan *p)
{
    for (size_t i = 0; i < p->kernels.n; i++) {
        struct strbuf text = {0};
        for (int l = 0; l < INFR_ISA_COUNT; l++)
            if (p->kernels.v[i].levels[l]) lp_print(&text, p->kernels.v[i].levels[l], true);
        p->kernels.v[i].hash = hash_bytes(strbuf_get(&text), text.len, 0);
        strbuf_deinit(&text);
    }
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
    struct objects_options o = {.target = b->target, .n_threads = (int)threads, .cache = cache};
    bool ok = objects_compile(&o, e->jobs, e->n_jobs, b->diag);
    object_cache_close(cache, OBJECT_CACHE_MAX_BYTES);
    for (size_t i = 0; i < e->n_jobs; i++) {
        struct plan_kernel *k = &b->plan->kernels.v[e->job_kernel[i]];
        if (e->jobs[i].object.scratch_bytes > k->scratch_bytes) k->scratch_bytes = e->jobs[i].object.scratch_bytes;
    }
    return ok;
}

/* JSON that `info` prints: what the engine was made from and how. Nothing of the machine, the time or paths. */
static char *manifest(struct engine *e)
{
    struct strbuf s = {0};
    strbuf_printf(&s, "{\"compiler\": \"infc %s\", \"target\": \"%s\", \"kernels\": %zu, \"precision\": \"keep\", \"meta\": {", INFC_VERSION,
                  e->b->target->name, e->b->plan->kernels.n);
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

static bool emit_data(struct engine *e)
{
    struct build *b = e->b;
    struct plan_blob_options o = {.compiler_version = "infc " INFC_VERSION, .manifest = manifest(e), .isa_mask = b->isa_mask,
                                  .golden = b->golden,
                                  .text = b->m->text, .text_bytes = b->m->n_text_bytes};
    plan_emit_blob(b->plan, &o, &e->blob);
    uint64_t bytes = e->blob.bytes.len;
    const char *text_commands[] = {INFR_SYM_TEXT_COMMANDS}, *serve_commands[] = {INFR_SYM_SERVE_COMMANDS};
    bool text = b->m->text != NULL, serve = option_given(b->o, OPT_SERVE) && !text; /* text commands have a server among them */
    struct target_data data[] = {
        {.name = INFR_SYM_PLAN, .bytes = e->blob.bytes.data, .n_bytes = e->blob.bytes.len, .align_bytes = 64},
        {.name = INFR_SYM_PLAN_BYTES, .bytes = &bytes, .n_bytes = sizeof bytes, .align_bytes = 8},
        {.name = INFR_SYM_KERNELS, .symbols = e->table, .n_symbols = b->plan->kernels.n * INFR_ISA_COUNT, .align_bytes = 8},
        {.name = text ? INFR_SYM_TEXT_LINK : INFR_SYM_SERVE_LINK, .symbols = text ? text_commands : serve_commands,
         .n_symbols = 1, .align_bytes = 8}, /* the last: not of all engines */
    };
    int n = (int)ARRAY_LEN(data) - (text || serve ? 0 : 1);
    return b->target->emit_data(b->target, data, n, &e->data, b->diag);
}

/* Bytes [at, at + n) of the segment: weights in order, zeros between them. */
static bool read_weights(void *context, uint64_t at, void *dst, size_t n)
{
    struct engine *e = context;
    memset(dst, 0, n);
    for (size_t i = 0; i < e->blob.n_weights; i++) {
        const struct weight *w = &e->blob.weights[i];
        uint64_t lo = at > w->offset ? at : w->offset, hi = at + n < w->offset + w->n_bytes ? at + n : w->offset + w->n_bytes;
        if (lo < hi) weight_read(w, lo - w->offset, (char *)dst + (lo - at), (size_t)(hi - lo));
    }
    return true;
}

static bool link_all(struct engine *e, const char *output_path)
{
    struct link_object *objects = ARENA_ARRAY(&e->arena, struct link_object, e->n_jobs + 1);
    objects[0] = (struct link_object){e->data.data, e->data.n_bytes};
    for (size_t i = 0; i < e->n_jobs; i++) objects[i + 1] = (struct link_object){e->jobs[i].object.data, e->jobs[i].object.n_bytes};
    struct link_input in = {.objects = objects, .n_objects = e->n_jobs + 1, .weights_bytes = e->blob.weights_bytes,
                            .read_weights = read_weights, .context = e, .hash_symbol = INFR_SYM_PLAN,
                            .hash_offset = offsetof(struct infr_header, weights_hash)};
    return link_engine(&in, output_path, e->b->diag);
}

bool pipeline_engine(struct build *b, const char *output_path)
{
    struct engine e = {.b = b};
    arena_init(&e.arena);
    make_jobs(&e);
    hash_kernels(b->plan); /* compiling uses the loop IR up */
    bool ok = compile_kernels(&e) && emit_data(&e) && link_all(&e, output_path);
    objects_free(e.jobs, e.n_jobs);
    free(e.data.data);
    strbuf_deinit(&e.blob.bytes);
    arena_deinit(&e.arena);
    return ok;
}
