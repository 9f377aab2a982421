// SPDX-License-Identifier: Apache-2.0
/*
 * Tool calls in a model's answer.
 *
 * Models write calls in the way of their family, which their chat template shows. A parser takes
 * the answer as it comes, control tokens written out, and tells content, reasoning and calls apart;
 * argument text is passed on as soon as it is clear whose it is. For an answer that has to be a
 * call, tool_forced gives the text to put behind the prompt and a grammar for what follows.
 *
 * What looks like a call and is none comes out as content: nothing that the model wrote is lost but
 * the markers and the white space beside calls. Memory is bounded by TOOL_MAX_HELD.
 */
#ifndef INFC_RUNTIME_GRAMMAR_TOOL_H
#define INFC_RUNTIME_GRAMMAR_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tool_family {
    TOOL_NONE,         /* the template writes calls in a way that is not supported */
    TOOL_JSON,         /* the template does not say: the answer is {"name", "arguments"}, or a list of
                          such, or in <tool_call> or <function=name> */
    TOOL_HERMES,       /* <tool_call>{"name", "arguments"}</tool_call>: Hermes, Qwen */
    TOOL_LLAMA3,       /* {"name", "parameters"}, perhaps behind <|python_tag|> */
    TOOL_MISTRAL,      /* [TOOL_CALLS][{"name", "arguments"}, ...] */
    TOOL_MISTRAL_ARGS, /* [TOOL_CALLS]name[ARGS]{...} */
    TOOL_DEEPSEEK,     /* name<tool sep>{...}, and function<tool sep>name with a fenced block */
    TOOL_DEEPSEEK_FENCED,
    TOOL_FUNCTIONARY,   /* name\n{...}, parts begin with >>>; the answer with a name */
    TOOL_FUNCTION_TAG,  /* <function=name>{...}</function> */
    TOOL_FUNCTOOLS,     /* functools[{"name", "arguments"}, ...]: FireFunction */
    TOOL_GPT_OSS,       /* channels: analysis is reasoning, commentary to=functions.name is a call */
};

/* By marks in the source of the chat template. */
enum tool_family tool_family_of(const char *template_source, size_t n);
const char *tool_family_name(enum tool_family f);
/* What a call begins with, which may be a control token of the vocabulary; NULL: nothing of the kind. */
const char *tool_family_mark(enum tool_family f);

enum tool_event_kind {
    TOOL_CONTENT,
    TOOL_REASONING,
    TOOL_BEGIN,     /* a call; text is the function's name */
    TOOL_ARGUMENTS, /* more of its arguments' JSON text */
    TOOL_END,
};

struct tool_event {
    enum tool_event_kind kind;
    uint32_t index; /* of the call */
    const char *text;
    size_t n;
};
typedef void tool_event_fn(void *user, const struct tool_event *e);

#define TOOL_MAX_HELD ((size_t)1 << 20)

struct tool_parser;

/* reasoning: <think>...</think> is told apart; in_reasoning: the prompt ended with <think>. NULL
 * without memory. */
struct tool_parser *tool_parser_create(enum tool_family f, bool reasoning, bool in_reasoning,
                                       tool_event_fn *on_event, void *user);
void tool_parser_destroy(struct tool_parser *p);
/* Is it a function's name? Objects that stand for themselves, without a mark of the family, are calls
 * only with one of these. user is that of the events. */
typedef bool tool_name_fn(void *user, const char *name, size_t n);
void tool_parser_names(struct tool_parser *p, tool_name_fn *known);
/* False without memory, or when a call's beginning is longer than TOOL_MAX_HELD. */
bool tool_parser_push(struct tool_parser *p, const char *text, size_t n);
/* The end of the answer: what was held comes out, an open call ends. */
bool tool_parser_finish(struct tool_parser *p);
uint32_t tool_parser_calls(const struct tool_parser *p);

/* ---- answers that must be a call ---- */

struct tool_function {
    const char *name;
    size_t n_name;
    const char *parameters; /* a JSON Schema; NULL: any object */
    size_t n_parameters;
};

/*
 * An answer that is a call of one of the functions, or several of them: with gpt-oss, whose calls
 * each end the answer, always one. *out_prefix goes behind the prompt (control
 * tokens recognised) and in front of what the parser gets; *out_grammar is a text for
 * GR_STRUCTURAL_TAG. Both for free(). False for TOOL_NONE, without functions or memory.
 */
bool tool_forced(enum tool_family f, const struct tool_function *functions, size_t n, bool several,
                 char **out_prefix, char **out_grammar);

#endif
