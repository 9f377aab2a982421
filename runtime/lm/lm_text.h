// SPDX-License-Identifier: Apache-2.0
/* An engine's text section, checked, and what needs no model: text to tokens and back, templates.
 */
#ifndef INFC_RUNTIME_LM_TEXT_H
#define INFC_RUNTIME_LM_TEXT_H

#include "runtime/abi/text_format.h"
#include "runtime/infr.h"
#include "runtime/text/jinja.h"
#include "runtime/text/tok.h"

struct lm_text {
    struct infr_text_header h;
    const uint8_t *base;
    struct tok tok;
    /* A chat template in place of the engine's; lm_text_use_template. */
    char *own_source;
    size_t own_source_bytes;
    struct jinja_blob own_template;
};

/* The section must outlive *out and be 64-byte aligned. A damaged one is INFR_ENVIRONMENT. */
int lm_text_open(const void *section, uint64_t n_bytes, struct lm_text *out,
                 struct infr_status *st);

/* The vocabulary for grammars, derived anew: gr_vocab_destroy. */
struct gr_vocab;
int lm_text_vocab(const struct lm_text *t, struct gr_vocab **out, struct infr_status *st);

/* Tokens of text into memory for free(). flags: enum tok_encode_flag. */
int lm_text_encode(const struct lm_text *t, const char *text, size_t n, unsigned flags,
                   uint32_t **out_ids, size_t *out_n, struct infr_status *st);
/* Text of tokens into memory for free(), with a NUL behind it. */
int lm_text_decode(const struct lm_text *t, const uint32_t *ids, size_t n, unsigned flags,
                   char **out_text, size_t *out_n, struct infr_status *st);

/* The template called name, or the first one (NULL). Fails with the template's own message where
 * it did not compile, or says that there is none. */
int lm_text_template(const struct lm_text *t, const char *name, struct jinja_template *out,
                     struct infr_status *st);

/* A template as the model file has it, inside the section; NULL: there is none of this name. */
const char *lm_text_template_source(const struct lm_text *t, const char *name, size_t *n);

/* Conversations are written by this template from now on; a copy is kept until lm_text_deinit. */
int lm_text_use_template(struct lm_text *t, const char *source, size_t n, struct infr_status *st);
void lm_text_deinit(struct lm_text *t);

/* Renders a template over a context (a dict), to which the special tokens' texts are added. The
 * error is the template's own. */
int lm_text_render(const struct lm_text *t, const char *template_name, struct jinja_arena *a,
                   struct jinja_value *context, struct jinja_output *out, struct infr_status *st);

/* ---- conversations ---- */

struct lm_message {
    char *role, *content; /* of the conversation */
    size_t n_content;
};

struct lm_chat {
    struct lm_message *v;
    size_t n, cap;
};

int lm_chat_add(struct lm_chat *c, const char *role, const char *content, size_t n,
                struct infr_status *st);
/* Drops messages from number n on. */
void lm_chat_cut(struct lm_chat *c, size_t n);
/* Drops count messages from number at on. */
void lm_chat_drop(struct lm_chat *c, size_t at, size_t count);
void lm_chat_deinit(struct lm_chat *c);

/*
 * The conversation as the model's template writes it, ready for an answer, as tokens for free().
 * As in Hugging Face's libraries nothing is added: a bos is there if the template writes it.
 * kwargs: a JSON object whose members the template sees as variables, or NULL.
 */
int lm_chat_tokens(const struct lm_text *t, const char *template_name, const struct lm_chat *c,
                   const char *kwargs, uint32_t **out_ids, size_t *out_n, struct infr_status *st);

#endif
