// SPDX-License-Identifier: Apache-2.0
/*
 * Renders templates for the comparison with jinja2 (compare.py).
 *
 *   render NOW < request.json > answers.json
 *
 * The request is {"templates": {name: source}, "contexts": [context, ...]} or
 * {"items": [{"template": source, "context": context}, ...]}; the answer is, in the same order, a
 * list of {"output": text} or {"error": message, "code": name, "line": n}. NOW is the Unix time
 * that strftime_now shows.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/text/jinja.h"
#include "runtime/text/json_read.h"

static void die(const char *message)
{
    fprintf(stderr, "render: %s\n", message);
    exit(2);
}

static json_t *render_one(const struct jinja_value *source, const struct jinja_value *context,
                          long long now)
{
    struct jinja_options options = {.have_now = true, .now_unix_s = now};
    struct jinja_error err = {0};
    struct jinja_blob blob = {0};
    struct jinja_template tmpl;
    struct jinja_output out = {0};
    json_t *answer;

    if (jinja_compile(source->u.s, source->len, &blob, &err) &&
        jinja_template_open(blob.data, blob.size_bytes, &tmpl, &err) &&
        jinja_render(&tmpl, context, &options, &out, &err))
        answer = json_pack("{s:s%}", "output", out.data, out.len_bytes);
    else
        answer = json_pack("{s:s, s:s, s:i}", "error", err.message, "code",
                           jinja_status_name(err.code), "line", (int)err.line);
    jinja_output_deinit(&out);
    jinja_blob_deinit(&blob);
    if (!answer)
        die("the answer is not UTF-8");
    return answer;
}

static char *read_all(size_t *out_len)
{
    size_t cap = 1 << 16, len = 0, n;
    char *text = malloc(cap);

    while (text && (n = fread(text + len, 1, cap - len, stdin)) > 0) {
        len += n;
        if (len == cap)
            text = realloc(text, cap *= 2);
    }
    *out_len = len;
    return text;
}

static const struct jinja_value *member(const struct jinja_value *dict, const char *name,
                                        enum jinja_kind kind)
{
    const struct jinja_value *v =
        dict->kind == JINJA_DICT ? jinja_dict_find_str(dict->u.dict, name, strlen(name)) : NULL;

    return v && v->kind == kind ? v : NULL;
}

int main(int argc, char **argv)
{
    struct jinja_arena *arena = jinja_arena_create((size_t)1 << 30);
    const struct jinja_value *templates, *contexts, *items, *source, *context;
    long long now = argc > 1 ? atoll(argv[1]) : 0;
    struct jinja_value request;
    struct json_read_error err;
    json_t *answers = json_array();
    uint32_t i, k;
    size_t len;
    char *text = read_all(&len);

    if (!arena || !text || !json_read(arena, text, len, &request, &err))
        die(text && arena ? err.message : "out of memory");
    templates = member(&request, "templates", JINJA_DICT);
    contexts = member(&request, "contexts", JINJA_LIST);
    for (i = 0; templates && contexts && i < templates->u.dict->count; i++)
        for (k = 0; k < contexts->u.list->count; k++)
            json_array_append_new(answers, render_one(&templates->u.dict->pairs[i].value,
                                                      &contexts->u.list->items[k], now));
    items = member(&request, "items", JINJA_LIST);
    for (i = 0; items && i < items->u.list->count; i++) {
        source = member(&items->u.list->items[i], "template", JINJA_STR);
        context = member(&items->u.list->items[i], "context", JINJA_DICT);
        if (!source || !context)
            die("an item needs template and context");
        json_array_append_new(answers, render_one(source, context, now));
    }
    json_dumpf(answers, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(answers);
    jinja_arena_destroy(arena);
    free(text);
    return 0;
}
