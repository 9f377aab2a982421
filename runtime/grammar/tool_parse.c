// SPDX-License-Identifier: Apache-2.0
/*
 * The parser of tool calls: a state machine over a buffer of what is not clear yet.
 *
 *   TEXT   content up to a mark; the beginning of a mark waits
 *   THINK  reasoning up to </think>
 *   NAME   a function's name up to the mark behind it
 *   OBJECT {"name", "arguments"}: looked at until the name and the beginning of the arguments are
 *          there; an object without a name is content
 *   ARGS   one JSON value, passed on as it comes
 *   REST   what is left of the object around the arguments
 *   AFTER  white space, separators and closing marks between calls
 *   HEADER, BODY   gpt-oss's parts
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/grammar/tool.h"

enum state { TEXT, THINK, NAME, OBJECT, ARGS, REST, AFTER, HEADER, BODY };

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define DS(x) "<" BAR "tool" LOW x BAR ">"

struct mark {
    const char *text;
    enum state next;
};

/* Marks in content, by family; the list ends with NULL. */
static const struct mark marks_hermes[] = {{"<tool_call>", OBJECT}, {NULL, TEXT}};
static const struct mark marks_llama3[] = {{"<|python_tag|>", OBJECT}, {NULL, TEXT}};
static const struct mark marks_mistral[] = {{"[TOOL_CALLS]", AFTER}, {NULL, TEXT}};
static const struct mark marks_functools[] = {{"functools[", AFTER}, {NULL, TEXT}};
static const struct mark marks_args[] = {{"[TOOL_CALLS]", NAME}, {NULL, TEXT}};
static const struct mark marks_deepseek[] = {{DS("calls" LOW "begin"), AFTER},
                                             {DS("call" LOW "begin"), NAME},
                                             {DS("calls" LOW "end"), AFTER},
                                             {NULL, TEXT}};
static const struct mark marks_functionary[] = {{">>>", NAME}, {NULL, TEXT}};
static const struct mark marks_tag[] = {{"<function=", NAME}, {NULL, TEXT}};
static const struct mark marks_json[] = {
    {"<tool_call>", OBJECT}, {"<function=", NAME}, {NULL, TEXT}};
static const struct mark marks_none[] = {{NULL, TEXT}};

/* What may stand between calls beside white space. */
static const char *const closers_hermes[] = {"</tool_call>", NULL};
static const char *const closers_list[] = {"[", "]", ",", ";", NULL};
static const char *const closers_json[] = {"[", "]", ",", ";", "</tool_call>", "</function>", NULL};
static const char *const closers_deepseek[] = {"```", DS("call" LOW "end"), NULL};
static const char *const closers_tag[] = {"</function>", NULL};
static const char *const closers_none[] = {NULL};

static const struct family {
    const struct mark *marks;
    const char *const *closers;
    enum state first;
    bool objects; /* between calls a brace begins the next one */
    const char *name_ends[2];
} families[] = {
    [TOOL_NONE] = {marks_none, closers_none, TEXT, false, {NULL}},
    [TOOL_JSON] = {marks_json, closers_json, AFTER, true, {">", NULL}},
    [TOOL_HERMES] = {marks_hermes, closers_hermes, TEXT, false, {NULL}},
    [TOOL_LLAMA3] = {marks_llama3, closers_list, AFTER, true, {NULL}},
    [TOOL_MISTRAL] = {marks_mistral, closers_list, TEXT, true, {NULL}},
    [TOOL_MISTRAL_ARGS] = {marks_args, closers_none, TEXT, false, {"[ARGS]", "{"}},
    [TOOL_DEEPSEEK] = {marks_deepseek, closers_deepseek, TEXT, false, {DS("sep"), NULL}},
    [TOOL_DEEPSEEK_FENCED] = {marks_deepseek, closers_deepseek, TEXT, false, {DS("sep"), NULL}},
    [TOOL_FUNCTIONARY] = {marks_functionary, closers_none, NAME, false, {"\n", NULL}},
    [TOOL_FUNCTION_TAG] = {marks_tag, closers_tag, TEXT, false, {">", NULL}},
    [TOOL_FUNCTOOLS] = {marks_functools, closers_list, TEXT, true, {NULL}},
    [TOOL_GPT_OSS] = {marks_none, closers_none, HEADER, false, {NULL}},
};

struct tool_parser {
    enum tool_family f;
    const struct family *x;
    tool_event_fn *on_event;
    void *user;
    tool_name_fn *known; /* NULL: every name is one */
    enum state state;
    bool reasoning, ended, failed;
    bool said;       /* content has been told */
    bool skip;       /* white space behind </think> */
    bool in_call, fence; /* fence: the name is followed by a fenced block */
    const char *mark;    /* that led to NAME or OBJECT: is told again when it is no call */
    uint32_t n_calls;
    unsigned depth, around; /* of ARGS; braces around the arguments that are open */
    bool in_string, escaped, started; /* started: the value has begun */
    enum tool_event_kind body;
    char *buf;
    size_t at, n, cap; /* buf[at..n) waits */
    size_t space;      /* white space at the beginning of it, of content */
};

static const char *here(const struct tool_parser *p) { return p->buf + p->at; }
static size_t left(const struct tool_parser *p) { return p->n - p->at; }
static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void tell(struct tool_parser *p, enum tool_event_kind kind, const char *s, size_t n)
{
    struct tool_event e = {kind, p->n_calls ? p->n_calls - 1 : 0, s, n};
    if (n || kind == TOOL_BEGIN || kind == TOOL_END) p->on_event(p->user, &e);
}

static void content(struct tool_parser *p, const char *s, size_t n)
{
    if (!n) return;
    p->said = true;
    tell(p, TOOL_CONTENT, s, n);
}

static void begin_call(struct tool_parser *p, const char *name, size_t n)
{
    p->n_calls++;
    p->in_call = true;
    tell(p, TOOL_BEGIN, name, n);
}

static void end_call(struct tool_parser *p)
{
    if (p->in_call) tell(p, TOOL_END, "", 0);
    p->in_call = false;
}

static size_t find(const char *s, size_t n, const char *mark)
{
    size_t m = strlen(mark);
    for (size_t i = 0; i + m <= n; i++)
        if (s[i] == mark[0] && !memcmp(s + i, mark, m)) return i;
    return SIZE_MAX;
}

/* Bytes at the end that may be the beginning of the mark. */
static size_t partial(const char *s, size_t n, const char *mark)
{
    size_t m = strlen(mark), most = n < m - 1 ? n : m - 1;
    for (size_t k = most; k > 0; k--)
        if (!memcmp(s + n - k, mark, k)) return k;
    return 0;
}

static bool starts(const struct tool_parser *p, const char *mark)
{
    size_t m = strlen(mark);
    return left(p) >= m && !memcmp(here(p), mark, m);
}

static bool may_start(const struct tool_parser *p, const char *mark)
{
    size_t n = left(p);
    return n < strlen(mark) && !memcmp(here(p), mark, n);
}

/* ---- content and reasoning ---- */

/* White space before a call is not content: it waits until something follows. */
static void pass_content(struct tool_parser *p, size_t n, bool call_follows)
{
    size_t end = n;
    while (end && is_space(here(p)[end - 1])) end--;
    content(p, here(p), end);
    p->at += end;
    if (call_follows) p->at += n - end;
}

/* True: go on; false: more text is needed. */
static bool do_text(struct tool_parser *p)
{
    size_t best = SIZE_MAX, held = 0, n = left(p);
    const struct mark *found = NULL;
    static const struct mark think[] = {{"<think>", THINK}, {NULL, TEXT}};
    for (int list = 0; list < 2; list++) {
        for (const struct mark *m = list ? think : p->x->marks; m->text; m++) {
            if (list && !p->reasoning) break;
            size_t at = find(here(p), n, m->text), part = partial(here(p), n, m->text);
            if (at < best) best = at, found = m;
            if (part > held) held = part;
        }
    }
    if (!found) {
        if (p->ended) {
            content(p, here(p), p->n_calls ? 0 : n);
            if (p->n_calls) pass_content(p, n, true);
            p->at = p->n;
        } else {
            pass_content(p, n - held, false);
        }
        return false;
    }
    pass_content(p, best, true);
    p->at += strlen(found->text);
    p->state = found->next;
    p->mark = found->text;
    return true;
}

static void leave_think(struct tool_parser *p)
{
    p->state = p->x->first;
    p->skip = true;
    p->mark = "";
}

static bool do_think(struct tool_parser *p)
{
    size_t at = find(here(p), left(p), "</think>");
    if (at == SIZE_MAX) {
        size_t n = left(p) - (p->ended ? 0 : partial(here(p), left(p), "</think>"));
        tell(p, TOOL_REASONING, here(p), n);
        p->at += n;
        return false;
    }
    tell(p, TOOL_REASONING, here(p), at);
    p->at += at + strlen("</think>");
    leave_think(p);
    return true;
}

/* ---- calls ---- */

static void no_call(struct tool_parser *p, size_t n)
{
    content(p, p->mark, strlen(p->mark));
    content(p, here(p), n);
    p->at += n;
    p->mark = "";
    p->state = TEXT;
}

static void start_args(struct tool_parser *p, unsigned around)
{
    p->state = ARGS;
    p->depth = 0, p->around = around;
    p->in_string = p->escaped = p->started = false;
}

/* Longer ones are none; MOST_END: bytes of the longest mark behind a name. */
enum { MAX_NAME = 256, MOST_END = 32 };

static bool do_name(struct tool_parser *p)
{
    const char *end = NULL, *fence = "\n```json\n";
    size_t at = SIZE_MAX;
    const char *const *ends = p->x->name_ends;
    if (p->fence) ends = &fence;
    for (int i = 0; i < (p->fence ? 1 : 2) && ends[i]; i++) {
        size_t k = find(here(p), left(p), ends[i]);
        if (k < at) at = k, end = ends[i];
    }
    if (at == SIZE_MAX && left(p) <= MAX_NAME + MOST_END && !p->ended) return false;
    if (at > MAX_NAME) {
        no_call(p, 0);
        return true;
    }
    const char *name = here(p);
    size_t n = at;
    p->at += at + (*end == '{' ? 0 : strlen(end));
    while (n && is_space(*name)) name++, n--;
    if (p->f == TOOL_FUNCTIONARY && n == 3 && !memcmp(name, "all", 3)) {
        p->state = TEXT;
        return true;
    }
    if (!p->fence && n == 8 && !memcmp(name, "function", 8) &&
        (p->f == TOOL_DEEPSEEK || p->f == TOOL_DEEPSEEK_FENCED)) {
        p->fence = true; /* the type; the name follows */
        return true;
    }
    p->fence = false;
    const char *id = n ? memchr(name, '[', n) : NULL; /* name[CALL_ID]... */
    if (id) n = (size_t)(id - name);
    begin_call(p, name, n);
    start_args(p, 0);
    return true;
}

/* One JSON value. */
static bool do_args(struct tool_parser *p)
{
    size_t i = 0, n = left(p);
    bool done = false;
    for (; i < n && !done; i++) {
        char c = here(p)[i];
        if (p->in_string) {
            if (p->escaped)
                p->escaped = false;
            else if (c == '\\')
                p->escaped = true;
            else if (c == '"')
                p->in_string = false, done = !p->depth;
        } else if (c == '"') {
            p->in_string = true;
        } else if (c == '{' || c == '[') {
            p->depth++;
        } else if (c == '}' || c == ']') {
            if (!p->depth) break; /* the end of a number or word inside the object */
            done = --p->depth == 0;
        } else if (!p->depth && (c == ',' || (is_space(c) && p->started))) {
            break;
        }
        p->started |= !is_space(c);
    }
    bool ended = done || i < n;
    tell(p, TOOL_ARGUMENTS, here(p), i);
    p->at += i;
    if (!ended && !p->ended) return false;
    if (!p->around) end_call(p);
    p->state = p->around ? REST : AFTER;
    p->depth = 0;
    return ended;
}

static bool do_rest(struct tool_parser *p)
{
    while (left(p) && p->around) {
        char c = *here(p);
        p->at++;
        if (p->in_string) {
            if (!p->escaped && c == '"') p->in_string = false;
            p->escaped = !p->escaped && c == '\\';
        } else if (c == '"') {
            p->in_string = true;
        } else if (c == '{' || c == '[') {
            p->around++;
        } else if (c == '}' || c == ']') {
            p->around--;
        }
    }
    if (p->around && !p->ended) return false;
    end_call(p);
    p->state = AFTER;
    return left(p) > 0;
}

/* Before the first call: the answer may be an object, or a list of them, or something else. False:
 * more text is needed. */
static bool begin_after(struct tool_parser *p)
{
    size_t i = 0, n = left(p);
    while (i < n && is_space(here(p)[i])) i++;
    bool list = i < n && here(p)[i] == '[';
    size_t first = list ? i + 1 : i;
    while (list && first < n && is_space(here(p)[first])) first++;
    if (first == n && !p->ended) return false;
    if (first == n || !p->x->objects || here(p)[first] != '{') {
        p->state = TEXT;
        return true;
    }
    p->at += first;
    p->mark = list ? "[" : "";
    p->state = OBJECT;
    return true;
}

static bool do_after(struct tool_parser *p)
{
    bool wait = false, again = true;
    if (!p->n_calls && !*p->mark) return begin_after(p);
    while (again) {
        again = false;
        while (left(p) && is_space(*here(p))) p->at++, again = true;
        for (const char *const *c = p->x->closers; *c; c++) {
            if (starts(p, *c)) p->at += strlen(*c), again = true;
            wait |= left(p) && may_start(p, *c);
        }
    }
    if (!left(p)) return false;
    if (wait && !p->ended) return false;
    p->state = p->x->objects && *here(p) == '{' ? OBJECT : TEXT;
    return true;
}

/* ---- objects with a name and arguments ---- */

/* Behind a JSON value at i, or SIZE_MAX when its end is not there yet. */
static size_t skip_value(const char *s, size_t n, size_t i)
{
    unsigned depth = 0;
    bool string = false;
    for (; i < n; i++) {
        if (string) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"' && (string = false, !depth))
                return i + 1;
        } else if (s[i] == '"') {
            string = true;
        } else if (s[i] == '{' || s[i] == '[') {
            depth++;
        } else if (s[i] == '}' || s[i] == ']') {
            if (!depth) return i;
            if (--depth == 0) return i + 1;
        } else if (s[i] == ',' && !depth) {
            return i;
        }
    }
    return SIZE_MAX;
}

static bool key_is(const char *s, size_t n, const char *key)
{
    return n == strlen(key) && !memcmp(s, key, n);
}

struct header {
    const char *name, *args;
    size_t n_name, n_args; /* n_args SIZE_MAX: not whole yet */
    size_t end;            /* of the object, SIZE_MAX: not there yet */
    unsigned around;
    bool bad;
};

static size_t skip_spaces(const char *s, size_t n, size_t i)
{
    while (i < n && is_space(s[i])) i++;
    return i;
}

/* Reads members until the arguments begin with the name known, or the object ends. */
static void read_header(const char *s, size_t n, struct header *h)
{
    size_t i = skip_spaces(s, n, 0);
    h->end = SIZE_MAX;
    if (i < n && s[i] != '{') h->bad = true;
    for (h->around = 1, i++; i < n && !h->bad;) {
        i = skip_spaces(s, n, i);
        if (i >= n) return;
        if (s[i] == ',') {
            i++;
            continue;
        }
        if (s[i] == '}') {
            i++;
            if (--h->around == 0) {
                h->end = i;
                return;
            }
            continue;
        }
        size_t key = i + 1, end = skip_value(s, n, i);
        if (s[i] != '"') h->bad = true;
        if (h->bad || end == SIZE_MAX) return;
        size_t n_key = end - key - 1;
        i = skip_spaces(s, n, end);
        if (i >= n) return;
        if (s[i] != ':') h->bad = true;
        i = skip_spaces(s, n, i + 1);
        if (i >= n || h->bad) return;
        if (key_is(s + key, n_key, "function") && s[i] == '{') {
            h->around++, i++;
            continue;
        }
        bool args = key_is(s + key, n_key, "arguments") || key_is(s + key, n_key, "parameters");
        end = skip_value(s, n, i);
        if (args) {
            h->args = s + i, h->n_args = end == SIZE_MAX ? SIZE_MAX : end - i;
            if (h->name) return;
        }
        if (end == SIZE_MAX) return;
        if (key_is(s + key, n_key, "name") && s[i] == '"') h->name = s + i + 1, h->n_name = end - i - 2;
        if (h->args && h->name) return;
        i = end;
    }
}

static bool do_object(struct tool_parser *p)
{
    struct header h = {0};
    read_header(here(p), left(p), &h);
    /* an object without a mark around it is a call only by its name */
    if (h.name && p->known && (!*p->mark || !strcmp(p->mark, "[")) && !p->known(p->user, h.name, h.n_name)) {
        no_call(p, 1);
        return true;
    }
    if (h.bad || (h.end != SIZE_MAX && !h.name)) {
        no_call(p, h.bad ? (left(p) ? 1 : 0) : h.end);
        return true;
    }
    if (h.name && h.args && h.args > h.name) {
        begin_call(p, h.name, h.n_name);
        p->at = (size_t)(h.args - p->buf);
        start_args(p, h.around);
        return true;
    }
    if (h.name && (h.args ? h.n_args != SIZE_MAX : h.end != SIZE_MAX)) { /* all of it is there */
        begin_call(p, h.name, h.n_name);
        const char *after = h.name + h.n_name + 1;
        if (h.args)
            tell(p, TOOL_ARGUMENTS, h.args, h.n_args);
        else
            tell(p, TOOL_ARGUMENTS, "{}", 2);
        if (h.end != SIZE_MAX && !h.args) {
            p->at += h.end;
            end_call(p);
            p->state = AFTER;
            return true;
        }
        p->at = (size_t)(after - p->buf);
        p->state = REST, p->around = h.around, p->in_string = p->escaped = false;
        return true;
    }
    if (p->ended) no_call(p, left(p));
    return false;
}

/* ---- gpt-oss ---- */

static bool do_header(struct tool_parser *p)
{
    size_t at = find(here(p), left(p), "<|message|>");
    const char *h = here(p);
    if (at == SIZE_MAX) {
        if (p->ended && !starts(p, "<|")) content(p, h, left(p));
        if (p->ended) p->at = p->n;
        return false;
    }
    size_t to = find(h, at, "to=functions."), n = 0;
    p->body = find(h, at, "analysis") != SIZE_MAX ? TOOL_REASONING : TOOL_CONTENT;
    if (to != SIZE_MAX) {
        const char *name = h + to + strlen("to=functions.");
        while (name + n < h + at && !is_space(name[n]) && name[n] != '<') n++;
        begin_call(p, name, n);
        p->body = TOOL_ARGUMENTS;
    }
    p->at += at + strlen("<|message|>");
    p->state = BODY;
    return true;
}

static bool do_body(struct tool_parser *p)
{
    static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};
    size_t best = SIZE_MAX, held = 0, skip = 0;
    for (int i = 0; i < 4; i++) {
        size_t at = find(here(p), left(p), ends[i]), part = partial(here(p), left(p), ends[i]);
        if (at < best) best = at, skip = strlen(ends[i]);
        if (part > held) held = part;
    }
    bool found = best != SIZE_MAX;
    size_t n = found ? best : left(p) - (p->ended ? 0 : held);
    tell(p, p->body, here(p), n);
    p->at += n + (found ? skip : 0);
    if (!found && !p->ended) return false;
    end_call(p);
    p->state = HEADER;
    return found;
}

/* ---- entry ---- */

static bool advance(struct tool_parser *p)
{
    while (p->skip && left(p) && is_space(*here(p))) p->at++;
    if (p->skip && !left(p) && !p->ended) return false;
    p->skip = false;
    switch (p->state) {
    case TEXT: return do_text(p);
    case THINK: return do_think(p);
    case NAME: return do_name(p);
    case OBJECT: return do_object(p);
    case ARGS: return do_args(p);
    case REST: return do_rest(p);
    case AFTER: return do_after(p);
    case HEADER: return do_header(p);
    case BODY: return do_body(p);
    }
    return false;
}

struct tool_parser *tool_parser_create(enum tool_family f, bool reasoning, bool in_reasoning,
                                       tool_event_fn *on_event, void *user)
{
    struct tool_parser *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->f = f, p->x = &families[f];
    p->on_event = on_event, p->user = user;
    p->reasoning = reasoning;
    p->state = in_reasoning && f != TOOL_GPT_OSS ? THINK : p->x->first;
    p->mark = "";
    return p;
}

void tool_parser_names(struct tool_parser *p, tool_name_fn *known) { p->known = known; }

void tool_parser_destroy(struct tool_parser *p)
{
    if (!p) return;
    free(p->buf);
    free(p);
}

bool tool_parser_push(struct tool_parser *p, const char *text, size_t n)
{
    if (p->failed) return false;
    if (p->at) {
        memmove(p->buf, p->buf + p->at, left(p));
        p->n -= p->at, p->at = 0;
    }
    if (p->n + n + 1 > p->cap) {
        size_t cap = 2 * (p->n + n + 64);
        char *v = p->n > TOOL_MAX_HELD ? NULL : realloc(p->buf, cap);
        p->failed = !v;
        if (!v) return false;
        p->buf = v, p->cap = cap;
    }
    if (n) memcpy(p->buf + p->n, text, n);
    p->n += n;
    /* An answer may begin with <think> whatever its family's first state is. */
    if (p->reasoning && !p->said && !p->n_calls && p->state == p->x->first && p->state != TEXT &&
        p->state != HEADER) {
        if (may_start(p, "<think>") && !p->ended) return true;
        if (starts(p, "<think>")) p->at += 7, p->state = THINK;
    }
    while (advance(p)) {}
    return true;
}

bool tool_parser_finish(struct tool_parser *p)
{
    p->ended = true;
    if (p->failed || !tool_parser_push(p, "", 0)) return false;
    end_call(p);
    return true;
}

uint32_t tool_parser_calls(const struct tool_parser *p) { return p->n_calls; }
