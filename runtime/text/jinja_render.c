// SPDX-License-Identifier: Apache-2.0
/* One render: its state, limits, output and errors. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/text/jinja_rt.h"
#include "runtime/text/jinja_unicode.h"

bool jinja_fail(struct jinja_rt *rt, enum jinja_status code, const char *fmt, ...)
{
    struct jinja_error *err = rt->err;
    va_list ap;
    size_t len;

    err->code = code;
    err->line = rt->line;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof(err->message), fmt, ap);
    va_end(ap);
    len = strlen(err->message);
    /* vsnprintf, or a precision, may have cut a character: drop an incomplete tail. */
    while (len && !jinja_utf8_valid(err->message, len))
        len--;
    err->message[len] = 0;
    return false;
}

bool jinja_fail_memory(struct jinja_rt *rt)
{
    if (jinja_arena_capped(rt->arena))
        return jinja_fail(rt, JINJA_ERR_LIMIT, "template uses more than %zu bytes of memory",
                          rt->lim.max_memory_bytes);
    return jinja_fail(rt, JINJA_ERR_MEMORY, "out of memory while rendering the template");
}

bool jinja_fail_undefined(struct jinja_rt *rt, const struct jinja_value *v)
{
    struct jinja_value obj = {.kind = (uint8_t)(v->id >> 8)};
    const char *type;

    switch (v->id & 255) {
    case JINJA_UNDEF_NAME:
        return jinja_fail(rt, JINJA_ERR_UNDEFINED, "'%.*s' is undefined", (int)v->len, v->u.s);
    case JINJA_UNDEF_ATTR:
        type = jinja_type_name(&obj);
        if (obj.kind == JINJA_NONE)
            return jinja_fail(rt, JINJA_ERR_UNDEFINED, "'None' has no attribute '%.*s'",
                              (int)v->len, v->u.s);
        if (obj.kind == JINJA_NAMESPACE)
            type = "jinja2.utils.Namespace";
        return jinja_fail(rt, JINJA_ERR_UNDEFINED, "'%s object' has no attribute '%.*s'", type,
                          (int)v->len, v->u.s);
    case JINJA_UNDEF_UNSAFE:
        return jinja_fail(rt, JINJA_ERR_SECURITY, "%.*s", (int)v->len, v->u.s);
    default:
        return jinja_fail(rt, JINJA_ERR_UNDEFINED, "%.*s", (int)v->len, v->u.s);
    }
}

bool jinja_enter(struct jinja_rt *rt)
{
    if (++rt->depth > rt->lim.max_depth)
        return jinja_fail(rt, JINJA_ERR_LIMIT, "template nested deeper than %u levels",
                          rt->lim.max_depth);
    return jinja_charge(rt, 0);
}

void jinja_leave(struct jinja_rt *rt)
{
    rt->depth--;
}

bool jinja_charge(struct jinja_rt *rt, size_t n)
{
    rt->steps += 1 + n / 64;
    if (rt->steps > rt->lim.max_steps)
        return jinja_fail(rt, JINJA_ERR_LIMIT, "template takes more than %llu steps",
                          (unsigned long long)rt->lim.max_steps);
    return true;
}

void *jinja_alloc(struct jinja_rt *rt, size_t size_bytes)
{
    void *p = jinja_arena_alloc(rt->arena, size_bytes, 8);

    if (!p)
        jinja_fail_memory(rt);
    return p;
}

/* Shorter results are copied without spare room: most are never appended to. */
#define GROW_FROM_BYTES 256u

void *jinja_grow(struct jinja_rt *rt, const void *old, size_t old_bytes, const void *add,
                 size_t add_bytes, size_t align)
{
    char *end = (char *)(uintptr_t)old + old_bytes, *p;
    size_t total = old_bytes + add_bytes, room, i;

    for (i = 0; old_bytes && i < sizeof(rt->grow) / sizeof(rt->grow[0]); i++) {
        if (rt->grow[i].end != end || (size_t)(rt->grow[i].cap - end) < add_bytes)
            continue;
        if (!jinja_charge(rt, add_bytes))
            return NULL;
        if (add_bytes)
            memcpy(end, add, add_bytes);
        rt->grow[i].end += add_bytes;
        return (char *)(uintptr_t)old;
    }
    room = total >= GROW_FROM_BYTES ? 2 * total : total;
    if (!jinja_charge(rt, total))
        return NULL;
    p = jinja_arena_alloc(rt->arena, room, align);
    if (!p) {
        jinja_fail_memory(rt);
        return NULL;
    }
    if (old_bytes)
        memcpy(p, old, old_bytes);
    if (add_bytes)
        memcpy(p + old_bytes, add, add_bytes);
    if (room > total) {
        i = rt->grow_next++ % (sizeof(rt->grow) / sizeof(rt->grow[0]));
        rt->grow[i].end = p + total;
        rt->grow[i].cap = p + room;
    }
    return p;
}

bool jinja_emit(struct jinja_rt *rt, const char *text, size_t len)
{
    size_t cap;
    char *p;

    if (!len)
        return true;
    if (len > rt->lim.max_output_bytes - rt->out_len)
        return jinja_fail(rt, JINJA_ERR_LIMIT, "template makes more than %zu bytes of output",
                          rt->lim.max_output_bytes);
    if (!jinja_charge(rt, len))
        return false;
    if (rt->out_len + len + 1 > rt->out_cap) {
        cap = rt->out_cap ? rt->out_cap * 2 : 4096;
        while (cap < rt->out_len + len + 1)
            cap *= 2;
        p = realloc(rt->out, cap);
        if (!p)
            return jinja_fail(rt, JINJA_ERR_MEMORY, "out of memory while rendering the template");
        rt->out = p;
        rt->out_cap = cap;
    }
    memcpy(rt->out + rt->out_len, text, len);
    rt->out_len += len;
    return true;
}

bool jinja_capture(struct jinja_rt *rt, size_t mark, struct jinja_value *out)
{
    bool ok = jinja_make_str(rt, rt->out ? rt->out + mark : "", rt->out_len - mark, out);

    rt->out_len = mark;
    return ok;
}

static void set_limits(struct jinja_rt *rt, const struct jinja_options *options)
{
    if (options) {
        rt->lim = options->limits;
        rt->have_now = options->have_now;
        rt->now_unix_s = options->now_unix_s;
    }
    if (!rt->lim.max_steps)
        rt->lim.max_steps = JINJA_DEFAULT_STEPS;
    if (!rt->lim.max_depth)
        rt->lim.max_depth = JINJA_DEFAULT_DEPTH;
    if (!rt->lim.max_output_bytes)
        rt->lim.max_output_bytes = JINJA_DEFAULT_OUTPUT_BYTES;
    if (!rt->lim.max_memory_bytes)
        rt->lim.max_memory_bytes = JINJA_DEFAULT_MEMORY_BYTES;
    /* Sums of lengths stay far from overflow. */
    if (rt->lim.max_output_bytes > SIZE_MAX / 8)
        rt->lim.max_output_bytes = SIZE_MAX / 8;
}

bool jinja_render(const struct jinja_template *tmpl, const struct jinja_value *context,
                  const struct jinja_options *options, struct jinja_output *out,
                  struct jinja_error *out_err)
{
    struct jinja_rt rt = {.t = tmpl, .err = out_err};
    struct jinja_frame *root;
    bool ok;

    *out = (struct jinja_output){0};
    *out_err = (struct jinja_error){0};
    set_limits(&rt, options);
    if (context->kind != JINJA_DICT)
        return jinja_fail(&rt, JINJA_ERR_TYPE, "the template context is not a dict");
    rt.context = context->u.dict;
    rt.arena = jinja_arena_create(rt.lim.max_memory_bytes);
    if (!rt.arena)
        return jinja_fail(&rt, JINJA_ERR_MEMORY, "out of memory while rendering the template");
    ok = jinja_frame_open(&rt, NULL, tmpl->root_scope, &root) &&
         jinja_exec_list(&rt, root, tmpl->root_body) == JINJA_EXEC_OK;
    if (ok && !rt.out) {
        rt.out = malloc(1);
        ok = rt.out ||
             jinja_fail(&rt, JINJA_ERR_MEMORY, "out of memory while rendering the template");
    }
    jinja_arena_destroy(rt.arena);
    if (!ok) {
        free(rt.out);
        return false;
    }
    rt.out[rt.out_len] = 0;
    out->data = rt.out;
    out->len_bytes = rt.out_len;
    return true;
}

void jinja_output_deinit(struct jinja_output *out)
{
    free(out->data);
    *out = (struct jinja_output){0};
}
