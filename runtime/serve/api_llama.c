// SPDX-License-Identifier: Apache-2.0
/* llama-server's own endpoints: /completion, /infill, /props, /slots. */
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

static void json_probs(struct api_call *a, struct json *j, struct api_events i)
{
    const struct tok *t = &a->s->x.text.tok;
    const struct lm_logprob *top;
    const char *text;
    struct work_event e;
    if (a->p.n_probs <= 0) return;
    json_open(j, "completion_probabilities", '[');
    while (api_next(&i, &e, &top, &text)) {
        if (e.token == LM_NO_TOKEN || e.of_prompt) continue;
        json_open(j, NULL, '{');
        json_int(j, "id", e.token);
        lm_json_token(j, "token", t, e.token);
        json_number(j, "logprob", (double)e.logprob);
        json_open(j, "top_logprobs", '[');
        for (uint32_t k = 0; k < e.n_top; k++) {
            json_open(j, NULL, '{');
            json_int(j, "id", top[k].token);
            lm_json_token(j, "token", t, top[k].token);
            json_number(j, "logprob", (double)top[k].logprob);
            json_close(j, '}');
        }
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_tokens(struct api_call *a, struct json *j, struct api_events i)
{
    const struct lm_logprob *top;
    const char *text;
    struct work_event e;
    json_open(j, "tokens", '[');
    while (a->p.return_tokens && api_next(&i, &e, &top, &text))
        if (e.token != LM_NO_TOKEN && !e.of_prompt) json_int(j, NULL, e.token);
    json_close(j, ']');
}

static void json_timings(struct json *j, const struct sched_job *x)
{
    double prompt = x->first_token > 0 ? x->first_token - x->started : 0;
    double answer = x->first_token > 0 ? x->ended - x->first_token : 0;
    uint32_t computed = x->n_prompt - x->n_cached;
    json_open(j, "timings", '{');
    json_int(j, "cache_n", x->n_cached);
    json_int(j, "prompt_n", computed);
    json_number(j, "prompt_ms", prompt * 1e3);
    json_number(j, "prompt_per_second", prompt > 0 ? computed / prompt : 0);
    json_int(j, "predicted_n", x->n_generated);
    json_number(j, "predicted_ms", answer * 1e3);
    json_number(j, "predicted_per_second", answer > 0 ? x->n_generated / answer : 0);
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

/* text: of the choice, or none, as a stream ends. */
static void json_final(struct api_call *a, struct json *j, struct api_choice *x, bool text)
{
    const struct sched_job *job = &x->work.job;
    struct api_events all = {x->events.p, text ? x->events.n : 0, 0};
    json_open(j, NULL, '{');
    json_int(j, "index", x->index);
    if (text) api_json_text(j, "content", x);
    else json_string(j, "content", "");
    json_tokens(a, j, all);
    json_int(j, "id_slot", -1);
    json_bool(j, "stop", true);
    json_string(j, "model", a->s->o.model_name);
    json_int(j, "tokens_predicted", job->n_generated);
    json_int(j, "tokens_evaluated", job->n_prompt);
    json_int(j, "tokens_cached", job->n_cached);
    json_open(j, "generation_settings", '{');
    json_sampling(j, &a->p.d.sampling);
    if (a->p.max_tokens_given) json_int(j, "n_predict", a->p.max_tokens);
    else json_int(j, "n_predict", -1);
    json_bool(j, "ignore_eos", a->p.d.ignore_eos);
    json_bool(j, "stream", a->p.stream);
    json_close(j, '}');
    json_bool(j, "truncated", false);
    json_string(j, "stop_type", stop_type(x));
    if (x->stopped >= 0)
        lm_json_text(j, "stopping_word", a->p.d.stops[x->stopped].text,
                     a->p.d.stops[x->stopped].n);
    else
        json_string(j, "stopping_word", "");
    json_timings(j, job);
    json_probs(a, j, all);
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
    json_tokens(a, j, one);
    json_bool(j, "stop", false);
    json_int(j, "id_slot", -1);
    json_probs(a, j, one);
    json_close(j, '}');
    api_send(a, NULL);
}

static void choice_end(struct api_call *a, struct api_choice *x)
{
    json_final(a, server_json(a->s), x, false);
    api_send(a, NULL);
}

static void whole(struct api_call *a)
{
    struct json *j = server_json(a->s);
    if (a->n_choices > 1) json_open(j, NULL, '[');
    for (uint32_t i = 0; i < a->n_choices; i++) json_final(a, j, &a->choices[i], true);
    if (a->n_choices > 1) json_close(j, ']');
}

static const struct api_kind completion = {API_LLAMA,  "cmpl-", "completion", NULL, event,
                                           choice_end, NULL,    whole};

static bool add_prompt(struct api_call *a)
{
    const struct jinja_value *v = a->p.prompt;
    unsigned flags = TOK_ENCODE_SPECIAL | TOK_ENCODE_BOS;
    if (v && v->kind == JINJA_STR) return api_add_text(a, v->u.s, v->len, flags);
    uint32_t n = v && v->kind == JINJA_LIST ? v->u.list->count : 0;
    uint32_t *ids = n ? malloc(n * sizeof *ids) : NULL;
    for (uint32_t i = 0; ids && i < n; i++) {
        const struct jinja_value *x = &v->u.list->items[i];
        if (x->kind != JINJA_INT || x->u.i < 0 || x->u.i >= a->s->x.model->vocab) {
            free(ids);
            ids = NULL;
            break;
        }
        ids[i] = (uint32_t)x->u.i;
    }
    if (ids) return api_add_tokens(a, ids, n, NULL, 0);
    api_refuse(a, 400, "prompt", "prompt is a text or a list of tokens");
    return false;
}

void api_llama_completion(struct server *s, struct http_conn *c)
{
    struct api_call *a = api_begin(s, c, &completion);
    if (a && add_prompt(a)) api_start(a);
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
