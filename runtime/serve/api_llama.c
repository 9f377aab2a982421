// SPDX-License-Identifier: Apache-2.0
/* llama-server's own endpoints: /completion, /infill, /props, /slots. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

static const char *stop_type(const struct api_choice *x)
{
    switch (x->work.job.finish) {
    case LM_FINISH_EOS: return "eos";
    case LM_FINISH_STOP: return "word";
    default: return "limit";
    }
}

/* ---- answers ---- */

/* post: what it was drawn with, as a probability. */
static void json_prob(struct json *j, const struct tok *t, uint32_t token, double logprob, bool post)
{
    struct tok_info info;
    if (tok_token_info(t, token, &info)) info.n_bytes = 0;
    json_int(j, "id", token);
    lm_json_token(j, "token", t, token);
    json_open(j, "bytes", '[');
    for (size_t i = 0; i < info.n_bytes; i++) json_int(j, NULL, info.bytes[i]);
    json_close(j, ']');
    if (post) json_number(j, "prob", exp(logprob));
    else json_number(j, "logprob", logprob);
}

static void json_probs(struct api_call *a, struct json *j, struct api_events i)
{
    const struct tok *t = &a->s->x.text.tok;
    const struct lm_logprob *top;
    const char *text;
    struct work_event e;
    const bool post = a->p.d.post_sampling;
    if (a->p.n_probs <= 0) return;
    json_open(j, "completion_probabilities", '[');
    while (api_next(&i, &e, &top, &text)) {
        if (e.token == LM_NO_TOKEN || e.of_prompt) continue;
        json_open(j, NULL, '{');
        json_prob(j, t, e.token, (double)e.logprob, post);
        json_open(j, post ? "top_probs" : "top_logprobs", '[');
        for (uint32_t k = 0; k < e.n_top; k++) {
            json_open(j, NULL, '{');
            json_prob(j, t, top[k].token, (double)top[k].logprob, post);
            json_close(j, '}');
        }
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_tokens(struct json *j, struct api_events i, bool wanted)
{
    const struct lm_logprob *top;
    const char *text;
    struct work_event e;
    json_open(j, "tokens", '[');
    while (wanted && api_next(&i, &e, &top, &text))
        if (e.token != LM_NO_TOKEN && !e.of_prompt) json_int(j, NULL, e.token);
    json_close(j, ']');
}

/* 17 digits: rates can be had from times again */
static void json_exact(struct json *j, const char *key, double x)
{
    char text[40];
    int n = snprintf(text, sizeof text, "%.17g", x);
    api_json_raw(j, key, text, (size_t)n);
}

/* The first token comes with the prompt's last step: it costs none of its own. */
void api_json_timings(struct json *j, const struct sched_job *x)
{
    double prompt = x->first_token > 0 ? x->first_token - x->started : 0;
    double end = x->ended > 0 ? x->ended : serve_clock();
    double answer = x->first_token > 0 ? end - x->first_token : 0;
    uint32_t computed = x->n_prompt - x->n_cached, n = x->n_generated;
    uint32_t steps = n ? n - 1 : 0;
    json_open(j, "timings", '{');
    json_int(j, "cache_n", x->n_cached);
    json_int(j, "prompt_n", computed);
    json_exact(j, "prompt_ms", prompt * 1e3);
    json_exact(j, "prompt_per_token_ms", computed ? prompt * 1e3 / computed : 0);
    json_exact(j, "prompt_per_second", prompt > 0 ? computed / prompt : 0);
    json_int(j, "predicted_n", n);
    json_exact(j, "predicted_ms", answer * 1e3);
    json_exact(j, "predicted_per_token_ms", steps ? answer * 1e3 / steps : 0);
    json_exact(j, "predicted_per_second", answer > 0 ? steps / answer : 0);
    json_close(j, '}');
}

static void json_sampling(struct json *j, const struct lm_sampling *s)
{
    json_int(j, "seed", (int64_t)s->seed);
    json_number(j, "temperature", s->temp);
    json_int(j, "top_k", s->top_k);
    json_number(j, "top_p", s->top_p);
    json_number(j, "min_p", s->min_p);
    json_number(j, "typical_p", s->typical_p);
    json_number(j, "top_n_sigma", s->top_n_sigma);
    json_number(j, "repeat_penalty", s->repeat_penalty);
    json_int(j, "repeat_last_n", s->penalty_last_n);
    json_number(j, "presence_penalty", s->presence_penalty);
    json_number(j, "frequency_penalty", s->frequency_penalty);
    json_number(j, "dry_multiplier", s->dry_multiplier);
    json_number(j, "dry_base", s->dry_base);
    json_int(j, "dry_allowed_length", s->dry_allowed_length);
    json_int(j, "dry_penalty_last_n", s->dry_last_n);
    json_number(j, "xtc_probability", s->xtc_probability);
    json_number(j, "xtc_threshold", s->xtc_threshold);
    json_int(j, "mirostat", s->mirostat ? 2 : 0);
    json_number(j, "mirostat_tau", s->mirostat_tau);
    json_number(j, "mirostat_eta", s->mirostat_eta);
}

/* Biases as they are applied: infinite ones are null. */
static void json_bias(struct api_call *a, struct json *j)
{
    const struct lm_sampling *s = &a->p.d.sampling;
    const struct tok *t = &a->s->x.text.tok;
    struct tok_info info;
    json_open(j, "logit_bias", '[');
    for (size_t i = 0; i < s->n_bias; i++) {
        json_open(j, NULL, '{');
        json_int(j, "token", s->bias[i].token);
        if (isinf(s->bias[i].bias)) json_null(j, "bias");
        else json_number(j, "bias", (double)s->bias[i].bias);
        json_close(j, '}');
    }
    for (uint32_t id = 0; a->p.d.ignore_eos && id < tok_count(t); id++) {
        if (tok_token_info(t, id, &info) || !info.ends_generation) continue;
        json_open(j, NULL, '{');
        json_int(j, "token", id);
        json_null(j, "bias");
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_settings(struct api_call *a, struct json *j)
{
    json_open(j, "generation_settings", '{');
    json_sampling(j, &a->p.d.sampling);
    json_int(j, "n_predict", a->p.max_tokens);
    json_int(j, "max_tokens", a->p.max_tokens);
    json_int(j, "n_keep", a->p.d.n_keep);
    json_int(j, "n_probs", a->p.n_probs);
    json_bool(j, "ignore_eos", a->p.d.ignore_eos);
    json_bool(j, "stream", a->p.stream);
    json_bias(a, j);
    json_close(j, '}');
}

static void json_prompt(struct api_call *a, struct json *j, const struct api_prompt *p)
{
    struct infr_status st;
    char *text;
    size_t n;
    if (lm_text_decode(&a->s->x.text, p->ids, p->n, TOK_DECODE_SPECIAL, &text, &n, &st)) return;
    lm_json_text(j, "prompt", text, n);
    free(text);
}

static bool has_new_line(const struct api_choice *x)
{
    struct api_events i = {x->events.p, x->events.n, 0};
    const struct lm_logprob *top;
    struct work_event e;
    const char *text;
    while (api_next(&i, &e, &top, &text))
        if (!e.of_prompt && memchr(text, '\n', e.n_text)) return true;
    return x->new_line;
}

/* text: of the choice, or none, as a stream ends. */
static void json_final(struct api_call *a, struct json *j, struct api_choice *x, bool text)
{
    const struct sched_job *job = &x->work.job;
    struct api_events all = {x->events.p, text ? x->events.n : 0, 0};
    json_open(j, NULL, '{');
    json_int(j, "index", x->index);
    if (text) api_json_text(j, "content", x);
    else json_string(j, "content", "");
    json_tokens(j, all, a->p.return_tokens);
    json_int(j, "id_slot", -1);
    json_bool(j, "stop", true);
    json_string(j, "model", a->s->o.model_name);
    json_int(j, "tokens_predicted", job->n_generated);
    json_int(j, "tokens_evaluated", job->n_prompt);
    json_int(j, "tokens_cached", job->n_cached);
    json_settings(a, j);
    json_prompt(a, j, &a->prompts[x->prompt]);
    json_bool(j, "has_new_line", has_new_line(x));
    json_bool(j, "truncated", job->finish == LM_FINISH_CONTEXT ||
                                  job->n_prompt + job->n_generated > a->s->x.n_ctx);
    json_string(j, "stop_type", stop_type(x));
    if (x->stopped >= 0)
        lm_json_text(j, "stopping_word", a->p.d.stops[x->stopped].text,
                     a->p.d.stops[x->stopped].n);
    else
        json_string(j, "stopping_word", "");
    api_json_timings(j, job);
    json_probs(a, j, all);
    api_json_receipt(a, j);
    json_close(j, '}');
}

static void event(struct api_call *a, struct api_choice *x, const struct work_event *e,
                  const struct lm_logprob *top, const char *text)
{
    struct api_events one = {(const char *)top - sizeof *e, SIZE_MAX, 0};
    one.n = sizeof *e + e->n_top * sizeof *top + (e->n_text + 7u) / 8 * 8;
    if (e->token == LM_NO_TOKEN && !e->n_text) return;
    struct json *j = server_json(a->s);
    json_open(j, NULL, '{');
    json_int(j, "index", x->index);
    lm_json_text(j, "content", text, e->n_text);
    json_tokens(j, one, true);
    json_bool(j, "stop", false);
    json_int(j, "id_slot", -1);
    json_probs(a, j, one);
    api_json_seen(a, j, x);
    json_close(j, '}');
    x->new_line |= memchr(text, '\n', e->n_text) != NULL;
    api_send(a, NULL);
}

static void choice_end(struct api_call *a, struct api_choice *x)
{
    json_final(a, server_json(a->s), x, false);
    api_send(a, NULL);
}

/* The fields that were asked for, "a/b" a member of a member; those that are not there are left out. */
static void json_fields(struct api_call *a, struct json *j, const struct jinja_dict *all)
{
    const struct jinja_list *names = a->p.response_fields;
    json_open(j, NULL, '{');
    for (uint32_t i = 0; i < names->count; i++) {
        char *name = names->items[i].kind == JINJA_STR
                         ? api_copy(a->arena, names->items[i].u.s, names->items[i].len)
                         : NULL;
        const struct jinja_value *v = NULL;
        char *path = name ? api_copy(a->arena, name, strlen(name)) : NULL, *rest = path;
        for (const struct jinja_dict *d = all; rest && d;) {
            char *slash = strchr(rest, '/');
            if (slash) *slash = 0;
            v = api_field(d, rest);
            d = slash && v && v->kind == JINJA_DICT ? v->u.dict : NULL;
            if (slash && !d) v = NULL;
            rest = slash ? slash + 1 : NULL;
        }
        if (v) api_json_value(j, name, v);
    }
    json_close(j, '}');
}

static void json_answer(struct api_call *a, struct json *j, struct api_choice *x)
{
    struct json_read_error error;
    struct jinja_value all;
    char *text = NULL;
    size_t n = 0;
    if (!a->p.response_fields) {
        json_final(a, j, x, true);
        return;
    }
    struct json inner = {.f = open_memstream(&text, &n)};
    if (inner.f) {
        json_final(a, &inner, x, true);
        fclose(inner.f);
    }
    if (text && json_read(a->arena, text, n, &all, &error)) json_fields(a, j, all.u.dict);
    else json_final(a, j, x, true);
    free(text);
}

static void whole(struct api_call *a)
{
    struct json *j = server_json(a->s);
    if (a->n_choices > 1) json_open(j, NULL, '[');
    for (uint32_t i = 0; i < a->n_choices; i++) json_answer(a, j, &a->choices[i]);
    if (a->n_choices > 1) json_close(j, ']');
}

static void progress(struct api_call *a, struct api_choice *x, const struct work_event *e)
{
    struct json *j = server_json(a->s);
    json_open(j, NULL, '{');
    json_int(j, "index", x->index);
    json_string(j, "content", "");
    json_open(j, "tokens", '[');
    json_close(j, ']');
    json_bool(j, "stop", false);
    json_int(j, "id_slot", -1);
    api_json_progress(a, j, x, e);
    json_close(j, '}');
    api_send(a, NULL);
}

static const struct api_kind completion = {.endpoint = API_LLAMA,
                                           .id_prefix = "cmpl-",
                                           .object = "completion",
                                           .event = event,
                                           .choice_end = choice_end,
                                           .progress = progress,
                                           .whole = whole};

/* Tokens and texts one after the other, the first text with what begins a text. False: replied. */
static bool add_mixed(struct api_call *a, const struct jinja_list *l)
{
    uint32_t *all = NULL;
    size_t n = 0;
    struct infr_status st = {0};
    bool ok = true;
    for (uint32_t i = 0; i < l->count && ok; i++) {
        const struct jinja_value *x = &l->items[i];
        uint32_t one = x->kind == JINJA_INT ? (uint32_t)x->u.i : 0, *ids = NULL;
        size_t k = 1;
        if (x->kind == JINJA_STR)
            ok = !lm_text_encode(&a->s->x.text, x->u.s, x->len,
                                 TOK_ENCODE_SPECIAL | (i ? TOK_ENCODE_CONTINUED : TOK_ENCODE_BOS),
                                 &ids, &k, &st);
        else ok = x->kind == JINJA_INT && x->u.i >= 0 && x->u.i < a->s->x.model->vocab;
        uint32_t *more = ok ? realloc(all, (n + k + 1) * sizeof *all) : NULL;
        if ((ok = more != NULL)) {
            all = more;
            memcpy(all + n, ids ? ids : &one, k * sizeof *all);
            n += k;
        }
        free(ids);
    }
    if (ok) return api_add_tokens(a, all, n, NULL, 0);
    free(all);
    api_refuse(a, 400, "prompt", "prompt: %s", st.note[0] ? st.note : "token ids are of the vocabulary");
    return false;
}

/* A text, a list of tokens and texts, or {"prompt_string": text}. False: replied. */
static bool add_prompt(struct api_call *a, const struct jinja_value *v)
{
    unsigned flags = TOK_ENCODE_SPECIAL | TOK_ENCODE_BOS;
    if (v->kind == JINJA_STR) return api_add_text(a, v->u.s, v->len, flags);
    if (v->kind == JINJA_LIST && v->u.list->count) return add_mixed(a, v->u.list);
    if (v->kind == JINJA_DICT && !api_field(v->u.dict, "multimodal_data")) {
        const struct jinja_value *text = api_field(v->u.dict, "prompt_string");
        if (text && text->kind == JINJA_STR) return api_add_text(a, text->u.s, text->len, flags);
    }
    api_refuse(a, 400, "prompt", "prompt is a text, a list of tokens, or a list of these");
    return false;
}

/* One prompt or several: a list that has more than tokens with texts in between. */
static bool add_prompts(struct api_call *a)
{
    static const struct jinja_value none = {.kind = JINJA_NONE};
    const struct jinja_value *v = a->p.prompt ? a->p.prompt : &none;
    bool several = v->kind == JINJA_LIST && v->u.list->count, ints = false;
    for (uint32_t i = 0; several && i < v->u.list->count; i++) ints |= v->u.list->items[i].kind == JINJA_INT;
    if (!several || ints) return add_prompt(a, v);
    if (v->u.list->count > MAX_PROMPTS) {
        api_refuse(a, 400, "prompt", "%u prompts; there can be %d", v->u.list->count, MAX_PROMPTS);
        return false;
    }
    for (uint32_t i = 0; i < v->u.list->count; i++)
        if (!add_prompt(a, &v->u.list->items[i])) return false;
    return true;
}

void api_llama_completion(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &completion);
    if (a && add_prompts(a)) api_start(a);
}

/* ---- the middle of a text ---- */

/* <prefix> what is before, <suffix> what is behind, <middle> and what is written of the middle. */
static uint32_t *fim_tokens(struct api_call *a, const struct jinja_value *before,
                            const struct jinja_value *behind, const struct jinja_value *begun,
                            size_t *n)
{
    const struct lm_text *t = &a->s->x.text;
    const struct {
        enum tok_special token;
        const struct jinja_value *text;
    } parts[] = {{TOK_SPECIAL_FIM_PRE, before},
                 {TOK_SPECIAL_FIM_SUF, behind},
                 {TOK_SPECIAL_FIM_MID, begun}};
    uint32_t *all = NULL;
    struct infr_status st;
    *n = 0;
    for (int i = 0; i < 3; i++) {
        uint32_t *ids = NULL;
        size_t k = 0;
        if (parts[i].text && lm_text_encode(t, parts[i].text->u.s, parts[i].text->len,
                                            TOK_ENCODE_CONTINUED, &ids, &k, &st))
            break;
        uint32_t *more = realloc(all, (*n + k + 1) * sizeof *all);
        if (!more) {
            free(ids);
            break;
        }
        all = more;
        all[(*n)++] = tok_special_id(&t->tok, parts[i].token);
        if (k) memcpy(all + *n, ids, k * sizeof *all);
        *n += k;
        free(ids);
        if (i == 2) return all;
    }
    free(all);
    return NULL;
}

void api_infill(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &completion);
    const struct jinja_value *v[3];
    static const char *const names[] = {"input_prefix", "input_suffix", "prompt"};
    size_t n;
    if (!a) return;
    for (int i = 0; i < 3; i++) {
        v[i] = api_field(a->p.body, names[i]);
        if (v[i] ? v[i]->kind == JINJA_STR : i == 2) continue;
        api_refuse(a, 400, names[i], "%s is a text", names[i]);
        return;
    }
    const struct tok *t = &s->x.text.tok;
    if (tok_special_id(t, TOK_SPECIAL_FIM_PRE) == TOK_NONE ||
        tok_special_id(t, TOK_SPECIAL_FIM_SUF) == TOK_NONE ||
        tok_special_id(t, TOK_SPECIAL_FIM_MID) == TOK_NONE) {
        api_refuse(a, 501, NULL, "this model has no tokens for the middle of a text");
        return;
    }
    uint32_t *ids = fim_tokens(a, v[0], v[1], v[2], &n);
    if (!ids) api_refuse(a, 503, NULL, "no memory for the prompt");
    else if (api_add_tokens(a, ids, n, NULL, 0)) api_start(a);
}

/* ---- what the server is ---- */

void api_props(struct server *s, struct http_conn *c)
{
    const struct lm_text *t = &s->x.text;
    struct json *j = server_json(s);
    uint32_t bos = tok_special_id(&t->tok, TOK_SPECIAL_BOS);
    uint32_t eos = tok_special_id(&t->tok, TOK_SPECIAL_EOS);
    json_open(j, NULL, '{');
    json_open(j, "default_generation_settings", '{');
    json_int(j, "n_ctx", s->x.n_ctx);
    json_open(j, "params", '{');
    json_sampling(j, &s->sampling);
    json_close(j, '}');
    json_close(j, '}');
    json_int(j, "total_slots", s->o.parallel);
    json_string(j, "model_path", rt_text(s->x.e, s->x.e->h.model_name));
    json_string(j, "model_alias", s->o.model_name);
    if (t->h.n_templates) {
        size_t n;
        const char *source = api_template_source(s, &n);
        lm_json_text(j, "chat_template", source, n);
    } else
        json_null(j, "chat_template");
    if (bos != TOK_NONE) lm_json_token(j, "bos_token", &t->tok, bos);
    if (eos != TOK_NONE) lm_json_token(j, "eos_token", &t->tok, eos);
    json_bool(j, "is_sleeping", false);
    json_string(j, "build_info", rt_text(s->x.e, s->x.e->h.compiler_version));
    json_close(j, '}');
    server_reply_json(c, 200);
}

/* Requests have no slot of their own here; as many as run are shown as busy ones. */
void api_slots(struct server *s, struct http_conn *c)
{
    struct worker_counts w;
    worker_get_counts(s->worker, &w);
    struct json *j = server_json(s);
    json_open(j, NULL, '[');
    for (uint32_t i = 0; i < s->o.parallel; i++) {
        json_open(j, NULL, '{');
        json_int(j, "id", i);
        json_int(j, "n_ctx", s->x.n_ctx);
        json_bool(j, "is_processing", i < w.sched.generator.running);
        json_close(j, '}');
    }
    json_close(j, ']');
    server_reply_json(c, 200);
}
