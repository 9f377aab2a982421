// SPDX-License-Identifier: Apache-2.0
/* GGUF language models to tensor IR: the file decides the row of arch.def, the row and the file the graph. */
#include <string.h>

#include "compiler/import/arch.h"
#include "ir/text.h"

static void release(void *owned) { gguf_close(owned); }

static void add_meta(struct ir_module *m, const char *key, const char *value)
{
    vec_push(&m->arena, &m->meta_keys, arena_strdup(&m->arena, key));
    vec_push(&m->arena, &m->meta_values, arena_strdup(&m->arena, value));
}

static void add_meta_int(struct ir_module *m, const char *key, int64_t v)
{
    if (v) add_meta(m, key, arena_printf(&m->arena, "%lld", (long long)v));
}

/* What `info` shows, and what a reader of the text wants to know. */
static void describe(struct arch *a, const char *act)
{
    static const char *const keys[] = {"general.name", "general.license", "general.size_label"};
    static const char *const poolings[] = {"none", "mean", "cls", "last", "rank"};
    struct gguf_string s;
    add_meta(a->m, "lm.architecture", a->row->name);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (gguf_get_string(gguf_find(a->g, keys[i]), &s)) {
            char *copy = arena_strndup(&a->m->arena, s.data, s.len < 200 ? s.len : 200);
            add_meta(a->m, keys[i], copy);
        }
    add_meta_int(a->m, "lm.context", a->h.ctx);
    add_meta_int(a->m, "lm.page", ARCH_PAGE);
    add_meta_int(a->m, "lm.layers", a->h.layers);
    if (act) add_meta(a->m, "lm.act", act);
    if (a->row->flags & ARCH_ENCODER) add_meta(a->m, "lm.pooling", poolings[a->h.pooling]);
}

static bool import_arch(struct arch *a, const struct import_options *o)
{
    struct gguf_string name;
    if (!gguf_get_string(gguf_find(a->g, "general.architecture"), &name))
        return diag_report(a->diag, DIAG_GGUF_METADATA, a->loc, "general.architecture is missing: the file is no model");
    a->row = arch_find(name.data, name.len);
    if (!a->row)
        return diag_report(a->diag, DIAG_GGUF_ARCH, a->loc, "architecture `%.*s` is not known", name.len > 60 ? 60 : (int)name.len, name.data);
    a->kv_dtype = o && o->kv_dtype ? o->kv_dtype : DT_F16;
    if (!arch_read_hparams(a, o ? o->context : 0) || !arch_build(a)) return false;
    describe(a, o ? o->act : NULL);
    if (!arch_add_text(a)) return false;
    return ir_verify_module(a->m, a->diag);
}

struct ir_module *import_gguf(const char *path, const struct import_options *options, struct diag_sink *diag)
{
    struct gguf *g = gguf_open(path, diag);
    return g ? import_gguf_file(g, options, diag) : NULL;
}

struct ir_module *import_gguf_file(struct gguf *g, const struct import_options *options, struct diag_sink *diag)
{
    struct arch *a = ARENA_NEW(&g->arena, struct arch);
    const char *slash = strrchr(g->path, '/');
    a->g = g;
    a->diag = diag;
    a->loc = slash ? slash + 1 : g->path;
    map_init(&a->used, &g->arena);
    a->m = ir_module_create(a->loc, diag);
    a->m->release = release;
    a->m->owned = g;
    if (import_arch(a, options)) return a->m;
    ir_module_destroy(a->m);
    return NULL;
}
