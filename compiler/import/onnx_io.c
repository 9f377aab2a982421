// SPDX-License-Identifier: Apache-2.0
/* The model: unpacking, inputs with their symbolic dims and --shape overrides, outputs, metadata.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/import/onnx_int.h"
#include "compiler/import/wire.h"

#define MAX_CHOICES 4 /* decisions that are varied, see onnx_choose */

/* ---- protobuf-c behind a budget ---- */

struct budget {
    size_t left;
};

static void *budget_alloc(void *data, size_t n)
{
    struct budget *b = data;
    size_t cost = n + 16;
    if (cost < n || cost > b->left) return NULL;
    b->left -= cost;
    return malloc(n);
}

static void budget_free(void *data, void *p)
{
    (void)data;
    free(p);
}

static Onnx__Model *unpack(const struct wire_skeleton *s, const char *loc, struct diag_sink *diag)
{
    /* Frees are not credited: protobuf-c frees only its scan tables, whose size is that of the
     * skeleton. */
    struct budget budget = {2 * (s->records * WIRE_RECORD_BYTES + WIRE_SLACK_BYTES) +
                            16 * s->bytes.len};
    ProtobufCAllocator alloc = {budget_alloc, budget_free, &budget};
    Onnx__Model *m =
        onnx__model__unpack(&alloc, s->bytes.len, (const uint8_t *)strbuf_get(&s->bytes));
    if (!m) diag_report(diag, DIAG_ONNX_CORRUPT, loc, "the file's messages cannot be read");
    return m;
}

static void release(Onnx__Model *m)
{
    struct budget budget = {0};
    ProtobufCAllocator alloc = {budget_alloc, budget_free, &budget};
    if (m) onnx__model__free_unpacked(m, &alloc);
}

/* ---- dims ---- */

/* An identifier that no other name in the file got. */
static const char *identifier(struct imp *im, const char *name)
{
    struct strbuf s = {0};
    for (const char *p = name; *p && s.len < 60; p++)
        strbuf_putc(&s, isalnum((unsigned char)*p) || *p == '_' ? *p : '_');
    if (!s.len || isdigit((unsigned char)s.data[0])) {
        struct strbuf t = {0};
        strbuf_printf(&t, "d_%s", strbuf_get(&s));
        strbuf_deinit(&s);
        s = t;
    }
    static const char *const reserved[] = {"floordiv", "mod", "min", "max", "overflow"};
    for (size_t i = 0; i < ARRAY_LEN(reserved); i++)
        if (!strcmp(strbuf_get(&s), reserved[i])) strbuf_puts(&s, "_");
    size_t base = s.len;
    for (int k = 2; dim_find_sym(im->m->dims, strbuf_get(&s)); k++) {
        s.len = base;
        strbuf_printf(&s, "_%d", k);
    }
    const char *out = arena_strdup(&im->m->arena, strbuf_get(&s));
    strbuf_deinit(&s);
    return out;
}

/*
 * No dim that a file leaves open is larger, a documented limit (docs/onnx-support.md): ends of
 * slices such as INT32_MAX then vanish from shapes, and products of a few dims stay far from
 * overflow.
 */
#define MAX_SYMBOL (INT64_C(1) << 28)

static const struct dim *number_or_symbol(struct imp *im, const char *text, size_t len)
{
    char *word = arena_strndup(&im->m->arena, text, len), *end;
    while (isspace((unsigned char)*word)) word++;
    if (isdigit((unsigned char)*word)) {
        unsigned long long v = strtoull(word, &end, 10);
        while (isspace((unsigned char)*end)) end++;
        return *end || v > (unsigned long long)INT64_MAX / 2 ? NULL
                                                             : dim_const(im->m->dims, (int64_t)v);
    }
    for (const char *p = word; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_') return NULL;
    return *word ? dim_sym(im->m->dims, word, 1, MAX_SYMBOL) : NULL;
}

static const struct dim *named_dim(struct imp *im, const char *param, int lo)
{
    const struct dim *d = map_finds(&im->dim_params, param);
    if (d) return d;
    const char *text = map_finds(&im->overrides, param);
    if (text && !strchr(text, ',')) d = number_or_symbol(im, text, strlen(text));
    if (!d) d = dim_sym(im->m->dims, identifier(im, param), lo, MAX_SYMBOL);
    map_puts(&im->dim_params, param, (void *)(uintptr_t)d);
    return d;
}

/* "?" and the like say that a size is unknown, not that two sizes are equal. */
static bool is_a_name(const char *param)
{
    for (const char *p = param ? param : ""; *p; p++)
        if (isalnum((unsigned char)*p) || (unsigned char)*p >= 0x80) return true;
    return false;
}

static const struct dim *input_dim(struct imp *im, const char *input, const Onnx__Dim *p,
                                   size_t axis, int lo, const char *loc)
{
    if (p->has_dim_value) {
        if (p->dim_value >= 0) return dim_const(im->m->dims, p->dim_value);
        if (p->dim_value != -1) {
            diag_report(im->diag, DIAG_ONNX_GRAPH, loc, "input '%s' has the dim %lld", input,
                        (long long)p->dim_value);
            return NULL;
        }
    }
    if (is_a_name(p->dim_param)) return named_dim(im, p->dim_param, lo);
    return dim_sym(im->m->dims, identifier(im, arena_printf(&im->m->arena, "%s_d%zu", input, axis)),
                   lo, MAX_SYMBOL);
}

/* Replaces dims by those of --shape=NAME:DIMS. */
static bool override_dims(struct imp *im, const char *input, const char *text, int rank,
                          const struct dim **dims, bool has_shape, int *out_rank)
{
    int count = 0;
    for (const char *p = text; p; count++) {
        const char *end = strchr(p, ',');
        const struct dim *d = number_or_symbol(im, p, end ? (size_t)(end - p) : strlen(p));
        if (!d || count == IR_MAX_RANK)
            return diag_report(im->diag, DIAG_OPTION, "--shape", "'%s:%s' is not a list of dims",
                               input, text);
        if (has_shape && count < rank && dim_is_const(dims[count]) && d != dims[count])
            return diag_report(im->diag, DIAG_OPTION, "--shape",
                               "dim %d of input '%s' is fixed in the model", count, input);
        dims[count] = d;
        p = end ? end + 1 : NULL;
    }
    if (has_shape && count != rank)
        return diag_report(im->diag, DIAG_OPTION, "--shape", "input '%s' has %d dims, not %d",
                           input, rank, count);
    *out_rank = count;
    return true;
}

/* The type of a graph input; false after a diagnostic. */
static bool input_type(struct imp *im, const Onnx__ValueInfo *p, int cache, const char *loc,
                       struct ir_type *out)
{
    const Onnx__Type *t = p->type;
    if (!t || !t->tensor_type) {
        const char *what = !t                 ? "nothing known"
                           : t->sequence_type ? "a sequence"
                           : t->optional_type ? "an optional value"
                           : t->map_type      ? "a map"
                                              : "no dense tensor";
        return diag_report_remedy(im->diag, DIAG_ONNX_OP, loc,
                                  "only tensors are supported as inputs", "input '%s' is %s",
                                  p->name, what);
    }
    enum dtype dtype = onnx_dtype(im->diag, t->tensor_type->elem_type, loc,
                                  arena_printf(&im->m->arena, "input '%s'", p->name));
    if (dtype == DT_NONE) return false;
    const Onnx__Shape *shape = t->tensor_type->shape;
    const char *text = map_finds(&im->overrides, p->name);
    int rank = shape ? (int)shape->n_dim : 0;
    if (shape && shape->n_dim > IR_MAX_RANK)
        return diag_report(im->diag, DIAG_ONNX_LIMIT, loc, "input '%s' has more than %d dims",
                           p->name, IR_MAX_RANK);
    if (!shape && !text)
        return diag_report_remedy(im->diag, DIAG_ONNX_DYNAMIC, loc,
                                  "give its shape with --shape=NAME:DIMS",
                                  "input '%s' has no shape", p->name);
    const struct dim *dims[IR_MAX_RANK];
    for (int i = 0; i < rank; i++)
        if (!(dims[i] = input_dim(im, p->name, shape->dim[i], (size_t)i, i == cache ? 0 : 1, loc)))
            return false;
    if (text && !override_dims(im, p->name, text, rank, dims, shape != NULL, &rank)) return false;
    *out = ir_type_make(im->m, dtype, rank, dims);
    return true;
}

static bool read_overrides(struct imp *im)
{
    bool ok = true;
    for (int i = 0; im->options && i < im->options->n_shapes; i++) {
        const char *s = im->options->shapes[i], *colon = strrchr(s, ':');
        if (!colon || colon == s)
            ok = diag_report(im->diag, DIAG_OPTION, "--shape", "'%s' is not NAME:DIMS", s);
        else
            map_put(&im->overrides, s, (size_t)(colon - s), arena_strdup(&im->m->arena, colon + 1));
    }
    return ok;
}

static bool check_overrides(struct imp *im, const Onnx__Graph *graph)
{
    bool ok = true;
    for (size_t i = 0; i < im->overrides.n; i++) {
        const char *name = im->overrides.entries[i].key;
        bool found = map_finds(&im->dim_params, name) != NULL;
        for (size_t j = 0; j < graph->n_input && !found; j++)
            found = graph->input[j]->name && !strcmp(graph->input[j]->name, name);
        if (!found)
            ok = diag_report(im->diag, DIAG_OPTION, "--shape",
                             "the model has no input and no symbolic dim named '%s'", name);
    }
    return ok;
}

/* A value given at build time stands for an input: checked against the declared type. */
static struct ir_value *fixed_input(struct onnx_graph *g, const struct import_value *v,
                                    const struct ir_type *type, const char *loc)
{
    struct imp *im = g->im;
    size_t bytes = dtype_bytes(v->dtype);
    bool fits = v->dtype == type->dtype && v->rank == type->rank;
    for (int i = 0; i < v->rank && fits; i++)
        fits = v->dims[i] >= 0 && size_mul(bytes, (size_t)v->dims[i], &bytes) &&
               !dim_known_ne(im->m->dims, dim_const(im->m->dims, v->dims[i]), type->dims[i]);
    if (!fits || bytes != v->n_bytes) {
        diag_report(im->diag, DIAG_OPTION, loc,
                    "the value given for input '%s' has another type than the model says", v->name);
        return NULL;
    }
    struct ir_type t = ir_type_static(im->m, v->dtype, v->rank, v->dims);
    char *data = arena_alloc(&im->m->arena, v->n_bytes + 1);
    memcpy(data, v->data, v->n_bytes);
    g->b->loc = ir_loc_make(im->m, loc);
    return ir_build_constant(g->b, ir_const_make(im->m, arena_strdup(&im->m->arena, v->name), t,
                                                 data, v->n_bytes, false));
}

static const struct import_value *given_value(struct imp *im, const char *name)
{
    for (int i = 0; im->options && i < im->options->n_values; i++)
        if (!strcmp(im->options->values[i].name, name)) return &im->options->values[i];
    return NULL;
}

/* Every value given must be for an input that there is. */
static bool check_given(struct onnx_graph *g, const Onnx__Graph *graph)
{
    const struct import_options *o = g->im->options;
    bool ok = true;
    for (int k = 0; o && k < o->n_values; k++) {
        bool found = false;
        for (size_t i = 0; i < graph->n_input && !found; i++)
            found = graph->input[i]->name && !strcmp(graph->input[i]->name, o->values[k].name);
        if (found) continue;
        struct strbuf names = {0};
        for (size_t i = 0; i < graph->n_input && i < 20; i++)
            strbuf_printf(&names, "%s%s", i ? ", " : "",
                          graph->input[i]->name ? graph->input[i]->name : "");
        ok = diag_report(g->im->diag, DIAG_OPTION, NULL,
                         "a value is given for '%s', but the model's inputs are: %s",
                         o->values[k].name, strbuf_get(&names));
        strbuf_deinit(&names);
    }
    return ok;
}

/*
 * Input dims are taken to be at least 1, which makes many shapes simpler. The exception: an input
 * that Concat joins to something is a cache, which is empty at first.
 */
static void find_caches(const Onnx__Graph *graph, struct map *caches)
{
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__Node *p = graph->node[i];
        if (!p->op_type || strcmp(p->op_type, "Concat")) continue;
        for (size_t a = 0; a < p->n_attribute; a++)
            if (p->attribute[a]->name && !strcmp(p->attribute[a]->name, "axis"))
                for (size_t k = 0; k < p->n_input; k++)
                    map_puts(caches, p->input[k], p->attribute[a]);
    }
}

/* The dim of an input that may be 0, or -1. */
static int cache_axis(const struct map *caches, const Onnx__ValueInfo *p)
{
    const Onnx__Attribute *a = map_finds(caches, p->name);
    int64_t rank = p->type && p->type->tensor_type && p->type->tensor_type->shape
                       ? (int64_t)p->type->tensor_type->shape->n_dim
                       : 0;
    if (!a) return -1;
    int64_t axis = a->i < 0 ? a->i + rank : a->i;
    return axis >= 0 && axis < rank && axis <= IR_MAX_RANK ? (int)axis : -1;
}

/*
 * Inputs become arguments. An initialiser of the same name is the default of an input that may be
 * left out; before IR version 4 initialisers had to be listed as inputs, so that there they are
 * plain constants.
 */
static bool import_inputs(struct onnx_graph *g, const Onnx__Graph *graph, struct ir_func *f,
                          struct map *overridable)
{
    struct imp *im = g->im;
    bool ok = check_given(g, graph), old = im->model->ir_version < 4;
    struct map defaults, caches;
    map_init(&defaults, &im->m->arena);
    map_init(&caches, &im->m->arena);
    find_caches(graph, &caches);
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (graph->initializer[i]->name)
            map_puts(&defaults, graph->initializer[i]->name, graph->initializer[i]);
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__ValueInfo *p = graph->input[i];
        const char *loc = arena_printf(&im->m->arena, "%s%s", g->prefix, p->name ? p->name : "");
        struct ir_type type;
        if (!p->name || !*p->name) {
            ok = diag_report(im->diag, DIAG_ONNX_GRAPH, loc, "an input without a name");
            continue;
        }
        const Onnx__Tensor *init = map_finds(&defaults, p->name);
        if (init && old) continue;
        struct ir_value *v = NULL;
        int cache = cache_axis(&caches, p);
        const struct import_value *given = given_value(im, p->name);
        if (given) {
            v = input_type(im, p, cache, loc, &type) ? fixed_input(g, given, &type, loc) : NULL;
            if (v) known_visit(im, v);
            if (init) map_puts(overridable, p->name, &defaults);
            ok = onnx_define(g, loc, p->name, v) && v && ok;
            continue;
        }
        if (input_type(im, p, cache, loc, &type)) {
            v = ir_func_add_input(f, arena_strdup(&im->m->arena, p->name), type);
            known_visit(im, v);
        }
        if (v && init) {
            map_puts(overridable, p->name, v);
            struct ir_const *c = onnx_tensor(im, init, loc);
            f->input_optional[v->index] = true;
            f->input_default[v->index] = c;
            if (c && (c->type.dtype != type.dtype || c->type.rank != type.rank))
                ok = diag_report(im->diag, DIAG_ONNX_GRAPH, loc,
                                 "the default of input '%s' has another type", p->name);
            ok = ok && c;
        } else if (init) {
            map_puts(overridable, p->name, &defaults);
        }
        ok = onnx_define(g, loc, p->name, v) && v && ok;
    }
    return ok;
}

static bool import_outputs(struct onnx_graph *g, const Onnx__Graph *graph, struct ir_func *f)
{
    struct imp *im = g->im;
    bool ok = true;
    struct ir_value **values = ARENA_ARRAY(&im->m->arena, struct ir_value *, graph->n_output);
    const char **names = ARENA_ARRAY(&im->m->arena, const char *, graph->n_output);
    struct map seen;
    map_init(&seen, &im->m->arena);
    if (graph->n_output == 0)
        ok = diag_report(im->diag, DIAG_ONNX_GRAPH, g->prefix, "the model has no outputs");
    for (size_t i = 0; i < graph->n_output; i++) {
        const Onnx__ValueInfo *p = graph->output[i];
        const char *name = p->name ? p->name : "";
        const struct onnx_name *v = onnx_lookup(g->scope, name);
        if (!v)
            ok = diag_report(im->diag, DIAG_ONNX_GRAPH, g->prefix,
                             "nothing defines the output '%s'", name);
        if (map_finds(&seen, name))
            ok = diag_report(im->diag, DIAG_ONNX_GRAPH, g->prefix, "the output '%s' is given twice",
                             name);
        map_puts(&seen, name, im);
        if (!v || !v->v) {
            ok = false;
            continue;
        }
        int declared = p->type && p->type->tensor_type ? p->type->tensor_type->elem_type : 0;
        if (declared && declared != dtype_onnx(v->v->type.dtype))
            ok = diag_report(im->diag, DIAG_ONNX_GRAPH, g->prefix,
                             "output '%s' is declared %s but computed as %s", name,
                             dtype_name(dtype_from_onnx(declared)), dtype_name(v->v->type.dtype));
        values[i] = v->v;
        names[i] = arena_strdup(&im->m->arena, name);
    }
    if (ok) ir_func_set_outputs(f, (int)graph->n_output, values, names);
    return ok;
}

static void collect_functions(struct imp *im)
{
    for (size_t i = 0; i < im->model->n_functions; i++) {
        Onnx__Function *fn = im->model->functions[i];
        if (!fn->name) continue;
        const char *domain = fn->domain && strcmp(fn->domain, "ai.onnx") ? fn->domain : "";
        map_puts(&im->functions,
                 arena_printf(&im->m->arena, "%s:%s:%s", domain, fn->name,
                              fn->overload ? fn->overload : ""),
                 fn);
    }
}

static void keep_metadata(struct imp *im)
{
    struct arena *a = &im->m->arena;
    for (size_t i = 0; i < im->model->n_metadata_props; i++) {
        const Onnx__StringPair *p = im->model->metadata_props[i];
        vec_push(a, &im->m->meta_keys, arena_strdup(a, p->key ? p->key : ""));
        vec_push(a, &im->m->meta_values, arena_strdup(a, p->value ? p->value : ""));
    }
}

static bool import_model_proto(struct imp *im)
{
    const char *loc = im->file_name;
    const Onnx__Graph *graph = im->model->graph;
    if (!graph) return diag_report(im->diag, DIAG_ONNX_CORRUPT, loc, "the file holds no graph");
    struct ir_func *f = ir_func_create(im->m, "main");
    struct ir_builder b = {.m = im->m, .block = f->body};
    struct onnx_scope scope = {0};
    map_init(&scope.names, &im->m->arena);
    struct onnx_graph g = {.im = im,
                           .scope = &scope,
                           .b = &b,
                           .opsets = im->model->opset_import,
                           .n_opsets = im->model->n_opset_import};
    g.prefix = arena_printf(&im->m->arena, "%s:/", im->file_name);
    int opset = onnx_opset(&g, "");
    if (opset > onnx_max_opset(""))
        return diag_report(im->diag, DIAG_ONNX_OPSET, loc,
                           "the model uses operator set %d; the newest known is %d", opset,
                           onnx_max_opset(""));
    collect_functions(im);
    keep_metadata(im);
    struct map overridable;
    map_init(&overridable, &im->m->arena);
    bool ok = read_overrides(im);
    ok = import_inputs(&g, graph, f, &overridable) && ok;
    ok = check_overrides(im, graph) && ok;
    ok = onnx_import_initialisers(&g, graph, &overridable) && ok;
    ok = onnx_import_nodes(&g, graph->n_node, graph->node) && ok;
    b.loc = ir_loc_make(im->m, loc);
    return import_outputs(&g, graph, f) && ok;
}

/* What a module made from files holds on to. Lives in the module's arena. */
struct mappings {
    struct onnx_file *file;
    struct map external;
};

static void unmap_all(void *owned)
{
    struct mappings *maps = owned;
    for (size_t i = 0; i < maps->external.n; i++) onnx_unmap_file(maps->external.entries[i].value);
    onnx_unmap_file(maps->file);
}

int onnx_choose(struct imp *im)
{
    int i = im->n_choices++;
    return i < MAX_CHOICES ? (int)(im->choices >> i & 1) : 0;
}

/* One attempt. On success the module owns the external files. */
static struct ir_module *attempt(struct imp *im)
{
    im->m = ir_module_create(im->file_name, im->diag);
    im->n_choices = 0;
    im->n_nodes = 0;
    map_init(&im->functions, &im->m->arena);
    map_init(&im->dim_params, &im->m->arena);
    map_init(&im->overrides, &im->m->arena);
    map_init(&im->external, &im->m->arena);
    const char *name = im->file_name;
    im->file_name = arena_strdup(&im->m->arena, name);
    bool ok = import_model_proto(im);
    im->file_name = name;
    struct mappings *maps = ARENA_NEW(&im->m->arena, struct mappings);
    *maps = (struct mappings){NULL, im->external};
    im->m->release = unmap_all;
    im->m->owned = maps;
    if (ok && im->diag->error_count == 0) return im->m;
    if (im->diag->error_count == 0)
        diag_report(im->diag, DIAG_ONNX_GRAPH, name, "the model cannot be imported");
    ir_module_destroy(im->m);
    return NULL;
}

static void append_diags(struct diag_sink *to, const struct diag_sink *from)
{
    for (size_t i = 0; i < from->items.n; i++) {
        const struct diag *d = &from->items.v[i];
        if (d->severity < DIAG_SEV_ERROR) diag_warn(to, d->id, d->loc, "%s", d->message);
        else diag_report_remedy(to, d->id, d->loc, d->remedy, "%s", d->message);
    }
}

/*
 * Attempts with all decisions (onnx_choose) in turn, up to a limit; the diagnostics are those of
 * the first success or else of the first attempt.
 */
static struct ir_module *attempts(struct imp *im, struct diag_sink *diag)
{
    struct diag_sink first, other;
    struct ir_module *m = NULL;
    diag_init(&first);
    im->diag = &first;
    m = attempt(im);
    int n = im->n_choices < MAX_CHOICES ? im->n_choices : MAX_CHOICES;
    bool from_first = true;
    for (uint32_t c = 1; !m && n && c < 1u << n; c++) {
        diag_init(&other);
        im->diag = &other;
        im->choices = c;
        if ((m = attempt(im))) append_diags(diag, &other), from_first = false;
        diag_deinit(&other);
    }
    if (from_first) append_diags(diag, &first);
    diag_deinit(&first);
    if (m) m->diag = diag;
    return m;
}

/* With file given, it belongs to the module on success, and is gone after a failure. */
static struct ir_module *import_bytes(const void *data, size_t len, const char *name,
                                      const char *path, struct onnx_file *file,
                                      const struct import_options *options, struct diag_sink *diag)
{
    const char *slash = strrchr(name, '/');
    struct imp im = {.diag = diag,
                     .base = data,
                     .len = len,
                     .file_name = slash ? slash + 1 : name,
                     .path = path,
                     .options = options};
    struct wire_skeleton skeleton;
    Onnx__Model *model = NULL;
    struct ir_module *m = NULL;
    if (wire_make_skeleton(data, len, im.file_name, diag, &skeleton))
        model = unpack(&skeleton, im.file_name, diag);
    strbuf_deinit(&skeleton.bytes);
    im.model = model;
    im.max_nodes = 4096 + 16 * skeleton.records;
    if (model) m = attempts(&im, diag);
    release(model);
    if (m) ((struct mappings *)m->owned)->file = file;
    else onnx_unmap_file(file);
    return m;
}

struct ir_module *import_onnx_bytes(const void *data, size_t len, const char *name,
                                    const struct import_options *options, struct diag_sink *diag)
{
    return import_bytes(data, len, name, NULL, NULL, options, diag);
}

struct ir_module *import_onnx(const char *path, const struct import_options *options,
                              struct diag_sink *diag)
{
    struct onnx_file *f = onnx_map_file(path, path, DIAG_FILE_READ, diag);
    return f ? import_bytes(f->data, f->len, path, path, f, options, diag) : NULL;
}
