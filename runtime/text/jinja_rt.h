// SPDX-License-Identifier: Apache-2.0
/*
 * Private to the template evaluator: the state of one render and the operations on values, which
 * follow Python's.
 *
 * Every function that can fail returns false after setting the error in rt; *out is then
 * unspecified. Everything is allocated in rt->arena, except the output text. Recursion over values
 * or nodes goes through jinja_enter/jinja_leave, loops over text through jinja_charge: that is the
 * sandbox.
 */
#ifndef INFC_RUNTIME_TEXT_JINJA_RT_H
#define INFC_RUNTIME_TEXT_JINJA_RT_H

#include "runtime/text/jinja.h"
#include "runtime/text/jinja_ast.h"

struct jinja_frame {
    struct jinja_frame *parent;
    uint32_t count;
    struct jinja_value slots[];
};

struct jinja_rt {
    const struct jinja_template *t;
    struct jinja_arena *arena;
    const struct jinja_dict *context;
    struct jinja_limits lim;
    struct jinja_error *err;
    uint64_t steps;
    uint32_t depth;
    uint32_t line; /* of the node being evaluated */
    char *out;     /* malloc'ed; captures are its tail, cut off again */
    size_t out_len, out_cap;
    bool have_now;
    int64_t now_unix_s;
    struct {
        char *end, *cap;
    } grow[4]; /* buffers with room behind their end, see jinja_grow */
    unsigned grow_next;
};

/* ---- values that only a render makes ---- */

struct jinja_gen {
    struct jinja_list *list;
    uint32_t pos;
    const char *type_name;
};

struct jinja_range {
    int64_t start, stop, step;
    uint32_t count;
};

struct jinja_macro {
    uint32_t node; /* MACRO, CALLBLOCK or GENERATION */
    struct jinja_frame *frame;
};

struct jinja_loop {
    struct jinja_list *src;
    struct jinja_gen *gen; /* when src is a generator's list: its position follows */
    uint32_t pos;          /* next item of src */
    uint32_t test, test_target;
    struct jinja_frame *test_frame;
    int64_t index0;
    int64_t length;                            /* -1: not known yet */
    struct jinja_value before, current, after; /* after: peeked, or MISSING */
    struct jinja_value changed;
};

struct jinja_cycler {
    struct jinja_value items; /* tuple, or the joiner's separator */
    uint32_t pos;
};

struct jinja_args {
    const struct jinja_value *pos;
    const struct jinja_pair *kw;
    uint32_t npos, nkw;
};

/* A filter, test, method or global function. self is the filtered value or the method's object; arg
 * holds the bound parameters (MISSING where not given), or is NULL for signature "*". */
typedef bool (*jinja_builtin)(struct jinja_rt *rt, const struct jinja_value *self,
                              const struct jinja_args *args, const struct jinja_value *arg,
                              struct jinja_value *out);

/* sig: parameter names with a space between; a leading "/" makes them positional only; "*" takes
 * anything. required: how many must be given. fn is NULL for what jinja2 has and we do not. */
struct jinja_row {
    const char *name;
    jinja_builtin fn;
    const char *sig;
    uint8_t required;
    bool unsafe; /* the immutable sandbox hides it */
};

#define JINJA_MAX_PARAMS 6

struct jinja_method {
    struct jinja_value self;
    const struct jinja_row *row;
};

/* forms of undefined values: what its text (u.s, len) is; the object's kind is in the high byte */
enum jinja_undef_form { JINJA_UNDEF_NAME, JINJA_UNDEF_ATTR, JINJA_UNDEF_HINT, JINJA_UNDEF_UNSAFE };

/* ---- state (jinja_render.c) ---- */

bool jinja_fail(struct jinja_rt *rt, enum jinja_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool jinja_fail_memory(struct jinja_rt *rt);
/* The error of using an undefined value. */
bool jinja_fail_undefined(struct jinja_rt *rt, const struct jinja_value *undefined);
bool jinja_enter(struct jinja_rt *rt);
void jinja_leave(struct jinja_rt *rt);
/* The bytes of old followed by those of add. When old lies at the end of a buffer that grew before,
 * add is written behind it and old's start is returned: values are never changed, so whoever holds
 * old does not see it, and text or lists built piece by piece cost their length, not its square. */
void *jinja_grow(struct jinja_rt *rt, const void *old, size_t old_bytes, const void *add,
                 size_t add_bytes, size_t align);
/* Counts work on n bytes or items that costs about a memcpy. Dearer work is counted as more bytes:
 * the factors below keep a step near 50 ns in the worst case. */
bool jinja_charge(struct jinja_rt *rt, size_t n);
#define JINJA_COST_SEARCH 8u   /* a byte searched for a substring */
#define JINJA_COST_CHAR 32u    /* a character classified or mapped through the Unicode tables */
#define JINJA_COST_FLOAT 4096u /* a float turned into its shortest text */
void *jinja_alloc(struct jinja_rt *rt, size_t size_bytes);
bool jinja_emit(struct jinja_rt *rt, const char *text, size_t len);
/* What was emitted since `mark` becomes a string and leaves the output. */
bool jinja_capture(struct jinja_rt *rt, size_t mark, struct jinja_value *out);

/* ---- building strings (jinja_text.c) ---- */

struct jinja_sb {
    struct jinja_rt *rt;
    char *p;
    size_t len, cap;
};

bool jinja_sb_put(struct jinja_sb *sb, const char *text, size_t len);
bool jinja_sb_putc(struct jinja_sb *sb, char c);
bool jinja_sb_put_cp(struct jinja_sb *sb, uint32_t cp);
bool jinja_sb_put_fmt(struct jinja_sb *sb, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
bool jinja_sb_pad(struct jinja_sb *sb, const char *fill, size_t fill_len, size_t times);
struct jinja_value jinja_sb_finish(struct jinja_sb *sb, unsigned flags);
/* A part of string v, keeping its flags. */
struct jinja_value jinja_substr(const struct jinja_value *v, size_t from, size_t to);
bool jinja_make_str(struct jinja_rt *rt, const char *text, size_t len, struct jinja_value *out);

/* str(), repr() and json.dumps() of any value, appended. */
bool jinja_put_str(struct jinja_sb *sb, const struct jinja_value *v);
bool jinja_put_repr(struct jinja_sb *sb, const struct jinja_value *v);
struct jinja_json_style {
    bool ensure_ascii, sort_keys;
    bool pretty;                                  /* newlines, each level indented by indent */
    struct jinja_value indent, item_sep, key_sep; /* strings */
};
bool jinja_put_json(struct jinja_sb *sb, const struct jinja_value *v,
                    const struct jinja_json_style *style);
/* str(v), without copying when v is a string (then with its markup flag kept: soft_str). */
bool jinja_to_str(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out);
/* & < > " ' escaped for HTML; a markup string stays as it is. The result is markup. */
bool jinja_escape(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_value *out);
bool jinja_put_escaped(struct jinja_sb *sb, const char *text, size_t len);

/* ---- operations (jinja_ops.c, jinja_access.c) ---- */

const char *jinja_type_name(const struct jinja_value *v);
bool jinja_truthy(const struct jinja_value *v);
/* True for int and bool, whose value goes to *out. */
bool jinja_as_int(const struct jinja_value *v, int64_t *out);
bool jinja_is_number(const struct jinja_value *v);
double jinja_as_double(const struct jinja_value *v);
bool jinja_equal(struct jinja_rt *rt, const struct jinja_value *a, const struct jinja_value *b,
                 bool *out);
/* `a op b` for any enum jinja_cmp. */
bool jinja_compare(struct jinja_rt *rt, enum jinja_cmp op, const struct jinja_value *a,
                   const struct jinja_value *b, bool *out);
bool jinja_contains(struct jinja_rt *rt, const struct jinja_value *item,
                    const struct jinja_value *container, bool *out);
bool jinja_binary(struct jinja_rt *rt, enum jinja_node_kind op, const struct jinja_value *a,
                  const struct jinja_value *b, struct jinja_value *out);
/* a + b of two strings. */
bool jinja_concat(struct jinja_rt *rt, const struct jinja_value *a, const struct jinja_value *b,
                  struct jinja_value *out);
bool jinja_negate(struct jinja_rt *rt, const struct jinja_value *v, bool positive,
                  struct jinja_value *out);
bool jinja_length(struct jinja_rt *rt, const struct jinja_value *v, int64_t *out);
bool jinja_iterable(const struct jinja_value *v);
/* The items of an iterable as a list that must not be changed; uses up a generator. */
bool jinja_items(struct jinja_rt *rt, const struct jinja_value *v, struct jinja_list **out);
struct jinja_value jinja_undefined_name(const char *name, uint32_t len);
struct jinja_value jinja_undefined_hint(const char *literal);
bool jinja_getattr(struct jinja_rt *rt, const struct jinja_value *obj,
                   const struct jinja_value *name, struct jinja_value *out);
bool jinja_getitem(struct jinja_rt *rt, const struct jinja_value *obj,
                   const struct jinja_value *key, struct jinja_value *out);
bool jinja_slice(struct jinja_rt *rt, const struct jinja_value *obj,
                 const struct jinja_value *start, const struct jinja_value *stop,
                 const struct jinja_value *step, struct jinja_value *out);
/* Whether v may be a dict key; counts the work that hashing it will be. */
bool jinja_check_key(struct jinja_rt *rt, const struct jinja_value *v, bool *out_hashable);
bool jinja_dict_set(struct jinja_rt *rt, struct jinja_dict *dict, const struct jinja_value *key,
                    const struct jinja_value *value);
bool jinja_make_list(struct jinja_rt *rt, uint32_t cap, struct jinja_value *out);
bool jinja_push(struct jinja_rt *rt, struct jinja_list *list, const struct jinja_value *v);
bool jinja_make_tuple2(struct jinja_rt *rt, const struct jinja_value *a,
                       const struct jinja_value *b, struct jinja_value *out);
bool jinja_make_gen(struct jinja_rt *rt, struct jinja_list *list, const char *type_name,
                    struct jinja_value *out);
/* Stable sort of n values by keys, both permuted. */
bool jinja_sort(struct jinja_rt *rt, struct jinja_value *items, struct jinja_value *keys,
                uint32_t n, bool reverse);

/* ---- calls (jinja_call.c) ---- */

bool jinja_call(struct jinja_rt *rt, const struct jinja_value *callee,
                const struct jinja_args *args, struct jinja_value *out);
/* Calls a table row; what names it in messages, for example "filter". */
bool jinja_call_row(struct jinja_rt *rt, const char *what, const struct jinja_row *row,
                    const struct jinja_value *self, const struct jinja_args *args,
                    struct jinja_value *out);
bool jinja_apply_filter(struct jinja_rt *rt, uint32_t row, const char *name, uint32_t name_len,
                        const struct jinja_value *v, const struct jinja_args *args,
                        struct jinja_value *out);
bool jinja_apply_test(struct jinja_rt *rt, uint32_t row, const char *name, uint32_t name_len,
                      const struct jinja_value *v, const struct jinja_args *args, bool *out);
/* Parameters of builtins: an int, or the default when not given; a string. */
bool jinja_arg_int(struct jinja_rt *rt, const struct jinja_value *arg, int64_t missing,
                   int64_t *out);
bool jinja_arg_str(struct jinja_rt *rt, const struct jinja_value *arg, const char *what);

/* A global by name: range, dict, namespace, ...; false when there is none. */
bool jinja_find_global(const char *name, uint32_t len, struct jinja_value *out);
const struct jinja_row *jinja_find_method(const struct jinja_value *obj, const char *name,
                                          uint32_t len);

/* ---- evaluation (jinja_eval.c, jinja_exec.c) ---- */

enum jinja_exec { JINJA_EXEC_OK, JINJA_EXEC_ERROR, JINJA_EXEC_BREAK, JINJA_EXEC_CONTINUE };

bool jinja_eval(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t node,
                struct jinja_value *out);
/* The arguments of record A; extra_kw (or NULL) is added as keyword `caller`. */
bool jinja_eval_args(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t rec,
                     const struct jinja_value *caller, struct jinja_args *out);
/* A filter node, whose value is given when the node has none. */
bool jinja_eval_filter(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t node,
                       const struct jinja_value *captured, struct jinja_value *out);
enum jinja_exec jinja_exec_list(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t list);
/* A new frame of scope record `scope` with its initial values. */
bool jinja_frame_open(struct jinja_rt *rt, struct jinja_frame *parent, uint32_t scope,
                      struct jinja_frame **out);
bool jinja_frame_reset(struct jinja_rt *rt, struct jinja_frame *frame, uint32_t scope);
bool jinja_macro_call(struct jinja_rt *rt, const struct jinja_macro *macro,
                      const struct jinja_args *args, struct jinja_value *out);
bool jinja_loop_length(struct jinja_rt *rt, struct jinja_loop *loop, int64_t *out);
/* Looks one item ahead; *out is MISSING at the end. */
bool jinja_loop_peek(struct jinja_rt *rt, struct jinja_loop *loop, struct jinja_value *out);

static inline const struct jinja_ast_node *jinja_node(const struct jinja_rt *rt, uint32_t node)
{
    return &rt->t->nodes[node];
}
static inline uint32_t jinja_list_len(const struct jinja_rt *rt, uint32_t list)
{
    return rt->t->lists[list];
}
static inline uint32_t jinja_list_at(const struct jinja_rt *rt, uint32_t list, uint32_t i)
{
    return rt->t->lists[list + 1 + i];
}
static inline const char *jinja_ast_text(const struct jinja_rt *rt, uint32_t str, uint32_t *len)
{
    *len = rt->t->strs[str].len;
    return rt->t->bytes + rt->t->strs[str].offset;
}

#endif
