// SPDX-License-Identifier: Apache-2.0
/*
 * Chat templates: a Jinja engine with the semantics of jinja2 3.1 as model repositories use it
 * (immutable sandbox, trim_blocks, lstrip_blocks, loop controls, `generation` tags, tojson as
 * json.dumps(ensure_ascii=False), strftime_now, raise_exception).
 *
 * Two steps, so that a template can be compiled at build time and embedded in an engine:
 *
 *     source --jinja_compile--> blob (position independent bytes)
 *     blob --jinja_template_open--> struct jinja_template (a checked view, no copy)
 *     template + context dict --jinja_render--> text, or an error with message and line
 *
 * The one rule callers break: there is no second try. A template or context that fails yields an
 * error for the user; never a partial prompt and never another format.
 *
 * Sandbox: templates and contexts are hostile input. A render is bounded in steps, nesting, memory
 * and output by struct jinja_limits; it reads nothing but its arguments and the clock
 * (strftime_now); it writes nothing but its output. With the default limits a render needs at most
 * half a MiB of C stack.
 *
 * Threads: a blob, a template view and a context are only read by jinja_render; any number of
 * threads may render from the same ones at once. There is no global state.
 *
 * Differences from jinja2, each an error (JINJA_ERR_UNSUPPORTED) and never a silent change:
 * integers are 64 bit (jinja2: unbounded); include, import, extends, block, autoescape and
 * recursive loops; the filters pprint, random, striptags, urlize, wordwrap, xmlattr,
 * filesizeformat; str methods that make bytes or take tables; lone surrogates. Generators are
 * computed at once, not lazily; printing one is an error (jinja2 prints its address).
 */
#ifndef INFC_RUNTIME_TEXT_JINJA_H
#define INFC_RUNTIME_TEXT_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/text/jinja_value.h"

enum jinja_status {
    JINJA_OK = 0,
    JINJA_ERR_SYNTAX,      /* the template does not parse */
    JINJA_ERR_UNSUPPORTED, /* a construct that this engine does not have */
    JINJA_ERR_RAISED,      /* the template called raise_exception; message is its argument */
    JINJA_ERR_UNDEFINED,   /* an undefined value was used as if it had a value */
    JINJA_ERR_TYPE,        /* a value of the wrong type or range (Python TypeError, ValueError) */
    JINJA_ERR_SECURITY,    /* the sandbox forbids the access */
    JINJA_ERR_LIMIT,       /* steps, depth, output or memory limit reached */
    JINJA_ERR_MEMORY,      /* the system gave no memory */
    JINJA_ERR_BLOB,        /* the compiled template is damaged or of another version */
};

/* message is valid UTF-8, cut at a character border, always NUL terminated. line is 1-based in the
 * template source; 0 where no line applies. */
struct jinja_error {
    enum jinja_status code;
    uint32_t line;
    char message[1024];
};

/* The name of a status as documentation spells it, for example "undefined". */
const char *jinja_status_name(enum jinja_status code);

/* Source longer than this is refused. */
#define JINJA_MAX_SOURCE_BYTES (512u * 1024u)

struct jinja_blob {
    void *data;
    size_t size_bytes;
};

/* Compiles UTF-8 source. On success *out_blob owns malloc'ed bytes for jinja_blob_deinit; on
 * failure it is empty and *out_err says what and where. Time is linear in the source times the
 * number of names per scope; memory at most about 100 bytes per source byte. */
bool jinja_compile(const char *source, size_t len_bytes, struct jinja_blob *out_blob,
                   struct jinja_error *out_err);
void jinja_blob_deinit(struct jinja_blob *blob);

struct jinja_ast_node;
struct jinja_ast_str;

/* A checked view of a blob. Holds pointers into the blob, which must outlive it. */
struct jinja_template {
    const struct jinja_ast_node *nodes;
    const uint32_t *lists;
    const struct jinja_ast_str *strs;
    const char *bytes;
    uint32_t node_count, list_count, str_count, byte_count;
    uint32_t root_body;
    uint32_t root_scope;
};

/* Checks every index of the blob and makes the view. data must be 4-byte aligned. Linear time. */
bool jinja_template_open(const void *data, size_t size_bytes, struct jinja_template *out_template,
                         struct jinja_error *out_err);

struct jinja_limits {
    uint64_t max_steps;      /* evaluated nodes, plus one per 64 bytes of text work */
    uint32_t max_depth;      /* nested evaluation, bounds the C stack */
    size_t max_output_bytes; /* the rendered text */
    size_t max_memory_bytes; /* everything a render allocates beside the output */
};

struct jinja_options {
    struct jinja_limits limits; /* a zero field means the default */
    bool have_now;              /* use now_unix_s for strftime_now instead of the clock */
    int64_t now_unix_s;
};

#define JINJA_DEFAULT_STEPS 20000000u
#define JINJA_DEFAULT_DEPTH 800u
#define JINJA_DEFAULT_OUTPUT_BYTES ((size_t)64 << 20)
#define JINJA_DEFAULT_MEMORY_BYTES ((size_t)256 << 20)

struct jinja_output {
    char *data; /* malloc'ed, NUL terminated */
    size_t len_bytes;
};

/* Renders. context is a dict whose keys are the variable names; options may be NULL. On success
 * *out owns its data (jinja_output_deinit); on failure it is empty and *out_err tells why. */
bool jinja_render(const struct jinja_template *tmpl, const struct jinja_value *context,
                  const struct jinja_options *options, struct jinja_output *out,
                  struct jinja_error *out_err);
void jinja_output_deinit(struct jinja_output *out);

#endif
