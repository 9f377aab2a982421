// SPDX-License-Identifier: Apache-2.0
/*
 * Fields of requests, by a table: name, kind, bounds, endpoints. A field that is not in it, or has a
 * value that cannot be honoured, is an error that names it; null is the same as absent.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"
#include "runtime/xxh64.h"

enum kind {
    BOOL,
    INT32,
    INT64,
    REAL,
    TEXT,
    VALUE,   /* kept as it is */
    STOP,    /* a string or several */
    IDS,     /* stop tokens */
    BIAS,
    MIROSTAT,
    MODEL,
    OPTIONS, /* stream_options */
    FORMAT,  /* response_format */
    STRUCTURE, /* neutral: which */
    STRUCTURES, /* structured_outputs */
    TEXT_FORMAT, /* {"format": ...} */
    SLOT,   /* one of those there are; a prompt's pages are found wherever it is served */
    FIELDS, /* response_fields */
    REASONING_FORMAT,
    EFFORT,
    THINKING, /* Anthropic's thinking, Responses' reasoning */
    ANY,     /* read by the endpoint, or means nothing here whatever it is */
    NEUTRAL, /* only the value in `neutral`, as JSON text: false, 1, "auto", [] */
};

#define AT(f) offsetof(struct api_params, f)
#define OF(f) offsetof(struct api_params, d.sampling.f)
#define GEN (API_COMPLETIONS | API_CHAT | API_LLAMA)
#define OAI (API_COMPLETIONS | API_CHAT)
#define LLAMAS (API_LLAMA | OAI) /* llama-server takes its own fields here too */
#define TALK (API_CHAT | API_MESSAGES | API_RESPONSES)

static const struct row {
    const char *name;
    enum kind kind;
    unsigned endpoints;
    size_t at, given_at; /* given_at: a bool's offset + 1, or 0 */
    double lo, hi;
    const char *neutral;
} rows[] = {
    {"model", MODEL, API_ANY, 0, 0, 0, 0, NULL},
    {"prompt", VALUE, API_COMPLETIONS | API_LLAMA, AT(prompt), 0, 0, 0, NULL},
    {"messages", VALUE, API_CHAT | API_MESSAGES, AT(messages), 0, 0, 0, NULL},
    {"chat_template_kwargs", VALUE, API_CHAT | API_MESSAGES, AT(template_kwargs), 0, 0, 0, NULL},
    {"add_generation_prompt", BOOL, API_CHAT, AT(add_generation_prompt),
     AT(generation_prompt_given) + 1, 0, 0, NULL},
    {"continue_final_message", BOOL, API_CHAT, AT(continue_final), 0, 0, 0, NULL},
    {"add_special_tokens", BOOL, GEN, AT(add_special), 0, 0, 0, NULL},
    /* length */
    {"max_tokens", INT64, API_ANY, AT(max_tokens), AT(max_tokens_given) + 1, 0, 1 << 30, NULL},
    {"max_completion_tokens", INT64, API_CHAT, AT(max_tokens), AT(max_tokens_given) + 1, 0, 1 << 30,
     NULL},
    {"max_output_tokens", INT64, API_RESPONSES, AT(max_tokens), AT(max_tokens_given) + 1, 0,
     1 << 30, NULL},
    {"n_predict", INT64, LLAMAS, AT(max_tokens), AT(max_tokens_given) + 1, -1, 1 << 30, NULL},
    {"min_tokens", INT32, GEN, AT(d.min_tokens), 0, 0, 1 << 30, NULL},
    {"ignore_eos", BOOL, GEN, AT(d.ignore_eos), 0, 0, 0, NULL},
    {"stop", STOP, GEN, 0, 0, 0, 0, NULL},
    {"stop_sequences", STOP, API_MESSAGES, 0, 0, 0, 0, NULL},
    {"stop_token_ids", IDS, GEN, 0, 0, 0, 0, NULL},
    {"include_stop_str_in_output", BOOL, GEN, AT(d.include_stop), 0, 0, 0, NULL},
    {"timeout", REAL, API_ANY, AT(timeout_s), 0, 0.001, 1e6, NULL},
    /* sampling */
    {"temperature", REAL, API_ANY, OF(temp), 0, 0, 100, NULL},
    {"top_p", REAL, API_ANY, OF(top_p), 0, 0, 1, NULL},
    {"top_k", INT64, GEN | API_MESSAGES, AT(top_k), 0, -1, INT32_MAX, NULL},
    {"min_p", REAL, GEN, OF(min_p), 0, 0, 1, NULL},
    {"typical_p", REAL, GEN, OF(typical_p), 0, 0, 1, NULL},
    {"top_n_sigma", REAL, GEN, OF(top_n_sigma), 0, 0, 1000, NULL},
    {"repetition_penalty", REAL, GEN, OF(repeat_penalty), 0, 0.01, 100, NULL},
    {"repeat_penalty", REAL, GEN, OF(repeat_penalty), 0, 0.01, 100, NULL},
    {"repeat_last_n", INT32, GEN, OF(penalty_last_n), 0, -1, INT32_MAX, NULL},
    {"frequency_penalty", REAL, GEN, OF(frequency_penalty), 0, -100, 100, NULL},
    {"presence_penalty", REAL, GEN, OF(presence_penalty), 0, -100, 100, NULL},
    {"dry_multiplier", REAL, GEN, OF(dry_multiplier), 0, 0, 100, NULL},
    {"dry_base", REAL, GEN, OF(dry_base), 0, 1, 100, NULL},
    {"dry_allowed_length", INT32, GEN, OF(dry_allowed_length), 0, 1, INT32_MAX, NULL},
    {"dry_penalty_last_n", INT32, GEN, OF(dry_last_n), 0, -1, INT32_MAX, NULL},
    {"dry_sequence_breakers", STOP, GEN, 1, 0, 0, 0, NULL},
    {"xtc_probability", REAL, GEN, OF(xtc_probability), 0, 0, 1, NULL},
    {"xtc_threshold", REAL, GEN, OF(xtc_threshold), 0, 0, 1, NULL},
    {"mirostat", MIROSTAT, GEN, 0, 0, 0, 0, NULL},
    {"mirostat_tau", REAL, GEN, OF(mirostat_tau), 0, 0, 100, NULL},
    {"mirostat_eta", REAL, GEN, OF(mirostat_eta), 0, 0, 1, NULL},
    {"seed", INT64, GEN, AT(seed), AT(seed_given) + 1, -0x1p63, 0x1p63, NULL},
    {"logit_bias", BIAS, GEN, 0, 0, 0, 0, NULL},
    /* answers */
    {"n", INT64, OAI, AT(n), AT(n_given) + 1, 1, MAX_CHOICES, NULL},
    {"best_of", INT64, API_COMPLETIONS, AT(best_of), 0, 1, MAX_CHOICES, NULL},
    {"echo", BOOL, API_COMPLETIONS, AT(echo), 0, 0, 0, NULL},
    {"logprobs", INT64, API_COMPLETIONS, AT(logprobs), AT(logprobs_given) + 1, 0, LM_MAX_LOGPROBS,
     NULL},
    {"logprobs", BOOL, API_CHAT, AT(logprobs_on), 0, 0, 0, NULL},
    {"top_logprobs", INT64, API_CHAT, AT(top_logprobs), 0, 0, LM_MAX_LOGPROBS, NULL},
    {"n_probs", INT64, API_LLAMA, AT(n_probs), 0, 0, LM_MAX_LOGPROBS, NULL},
    {"skip_special_tokens", BOOL, GEN, AT(d.show_special), 0, 1, 0, NULL}, /* lo: the opposite */
    {"stream", BOOL, API_ANY, AT(stream), 0, 0, 0, NULL},
    {"stream_options", OPTIONS, OAI, 0, 0, 0, 0, NULL},
    {"return_tokens", BOOL, API_LLAMA, AT(return_tokens), 0, 0, 0, NULL},
    {"prompt_logprobs", INT64, OAI, AT(prompt_logprobs), 0, 0, LM_MAX_LOGPROBS, NULL},
    {"verbose", BOOL, API_CHAT, AT(verbose), 0, 0, 0, NULL},
    {"timings_per_token", BOOL, LLAMAS | API_RESPONSES, AT(timings_per_token), 0, 0, 0, NULL},
    {"return_progress", BOOL, LLAMAS | API_RESPONSES, AT(d.report_progress), 0, 0, 0, NULL},
    {"response_fields", FIELDS, API_LLAMA, 0, 0, 0, 0, NULL},
    /* who asks */
    {"user", TEXT, OAI | API_RESPONSES, AT(user), 0, 0, 0, NULL},
    {"safety_identifier", TEXT, OAI | API_RESPONSES, AT(user), 0, 0, 0, NULL},
    {"cache_salt", TEXT, GEN, AT(cache_salt), 0, 0, 0, NULL},
    {"prompt_cache_key", ANY, OAI | API_RESPONSES, 0, 0, 0, 0, NULL}, /* pages are found anyway */
    {"priority", INT64, GEN, AT(priority), 0, -1000000, 1000000, NULL},
    {"cache_prompt", BOOL, LLAMAS, AT(cache_prompt), 0, 0, 0, NULL},
    {"id_slot", SLOT, LLAMAS, 0, 0, 0, 0, NULL},
    {"n_keep", INT32, LLAMAS, AT(d.n_keep), 0, 0, 1 << 30, NULL},
    {"n_discard", NEUTRAL, LLAMAS, 0, 0, 0, 0, "0"},
    {"n_indent", NEUTRAL, LLAMAS, 0, 0, 0, 0, "0"},
    {"min_keep", NEUTRAL, LLAMAS, 0, 0, 0, 0, "0"},
    {"n_cache_reuse", NEUTRAL, LLAMAS, 0, 0, 0, 0, "0"},
    {"lora", NEUTRAL, LLAMAS, 0, 0, 0, 0, "[]"},
    {"post_sampling_probs", BOOL, API_LLAMA, AT(d.post_sampling), 0, 0, 0, NULL},
    {"backend_sampling", ANY, API_LLAMA, 0, 0, 0, 0, NULL}, /* where it is drawn changes nothing */
    {"dynatemp_range", NEUTRAL, LLAMAS, 0, 0, 0, 0, "0"},
    {"dynatemp_exponent", NEUTRAL, LLAMAS, 0, 0, 0, 0, "1"},
    {"length_penalty", NEUTRAL, OAI, 0, 0, 0, 0, "1"},
    {"spaces_between_special_tokens", NEUTRAL, OAI, 0, 0, 0, 0, "true"},
    /* read by the endpoints */
    {"system", ANY, API_MESSAGES, 0, 0, 0, 0, NULL},
    {"input", ANY, API_RESPONSES, 0, 0, 0, 0, NULL},
    {"instructions", ANY, API_RESPONSES, 0, 0, 0, 0, NULL},
    {"input_prefix", ANY, API_LLAMA, 0, 0, 0, 0, NULL},
    {"input_suffix", ANY, API_LLAMA, 0, 0, 0, 0, NULL},
    {"input_extra", NEUTRAL, API_LLAMA, 0, 0, 0, 0, "[]"},
    /* for the keeper of a log that is not kept here */
    {"metadata", ANY, API_ANY, 0, 0, 0, 0, NULL},
    {"store", NEUTRAL, API_CHAT | API_RESPONSES, 0, 0, 0, 0, "false"},
    {"service_tier", NEUTRAL, API_ANY, 0, 0, 0, 0, "\"auto\""},
    /* one way of it */
    {"response_format", FORMAT, OAI, 0, 0, 0, 0, NULL},
    {"text", TEXT_FORMAT, API_RESPONSES, 0, 0, 0, 0, NULL},
    {"structured_outputs", STRUCTURES, OAI | TALK, 0, 0, 0, 0, NULL},
    {"guided_json", STRUCTURE, OAI | TALK, 0, 0, 0, 0, "json"},
    {"guided_regex", STRUCTURE, OAI | TALK, 0, 0, 0, 0, "regex"},
    {"guided_choice", STRUCTURE, OAI | TALK, 0, 0, 0, 0, "choice"},
    {"guided_grammar", STRUCTURE, OAI | TALK, 0, 0, 0, 0, "grammar"},
    {"json_schema", STRUCTURE, GEN, 0, 0, 0, 0, "json"},
    {"grammar", STRUCTURE, GEN, 0, 0, 0, 0, "grammar"},
    {"tools", VALUE, TALK, AT(tools), 0, 0, 0, NULL},
    {"tool_choice", VALUE, TALK, AT(tool_choice), 0, 0, 0, NULL},
    {"parallel_tool_calls", BOOL, API_CHAT | API_RESPONSES, AT(parallel_calls), 0, 0, 0, NULL},
    /* thinking aloud */
    {"reasoning_format", REASONING_FORMAT, TALK, AT(reasoning_format), 0, 0, 0, NULL},
    {"reasoning_effort", EFFORT, API_CHAT, AT(reasoning_effort), 0, 0, 0, NULL},
    {"thinking_budget_tokens", INT64, TALK, AT(thinking_budget), 0, -1, 1 << 30, NULL},
    {"thinking", THINKING, API_MESSAGES, 0, 0, 0, 0, NULL},
    {"reasoning", THINKING, API_RESPONSES, 0, 0, 0, 0, NULL},
    {"modalities", NEUTRAL, API_CHAT, 0, 0, 0, 0, "[\"text\"]"},
    {"suffix", NEUTRAL, API_COMPLETIONS, 0, 0, 0, 0, "\"\""},
    {"use_beam_search", NEUTRAL, OAI, 0, 0, 0, 0, "false"},
    {"truncation", NEUTRAL, API_RESPONSES, 0, 0, 0, 0, "\"disabled\""},
    {"background", NEUTRAL, API_RESPONSES, 0, 0, 0, 0, "false"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* ---- values ---- */

static bool integer(const struct jinja_value *v, double lo, double hi, int64_t *out)
{
    double x;
    if (v->kind == JINJA_INT) x = (double)(*out = v->u.i);
    else if (v->kind == JINJA_FLOAT && v->u.f == floor(v->u.f) && fabs(v->u.f) < 0x1p53)
        *out = (int64_t)(x = v->u.f);
    else return false;
    return x >= lo && x <= hi;
}

static bool real(const struct jinja_value *v, double *out)
{
    if (v->kind == JINJA_INT) *out = (double)v->u.i;
    else if (v->kind == JINJA_FLOAT) *out = v->u.f;
    else return false;
    return isfinite(*out);
}

/* Is the value what this JSON text says? Of lists only the empty one and ["text"] are written. */
static bool equals(const struct jinja_value *v, const char *json)
{
    size_t n = strlen(json);
    switch (v->kind) {
    case JINJA_BOOL: return !strcmp(json, v->u.b ? "true" : "false");
    case JINJA_INT: return v->u.i == atoll(json) && json[0] != '"';
    case JINJA_STR:
        if (json[0] != '"') return false;
        if (v->len == n - 2 && !memcmp(v->u.s, json + 1, n - 2)) return true;
        return !strcmp(json, "\"auto\"") && api_is(v, "default");
    case JINJA_LIST:
        if (!v->u.list->count) return !strcmp(json, "[]");
        return v->u.list->count == 1 && !strcmp(json, "[\"text\"]") &&
               api_is(&v->u.list->items[0], "text");
    case JINJA_DICT: return !v->u.dict->count && !strcmp(json, "{}");
    default: return false;
    }
}

/* ---- kinds ---- */

static bool no_memory(struct api_call *a)
{
    server_error(a->c, 503, NULL, "no memory for the request");
    return false;
}

static bool bad(struct api_call *a, const char *name, const char *what)
{
    server_error(a->c, 400, name, "%s: %s", name, what);
    return false;
}

/* A string or a list of them, as stop strings or as sequence breakers. */
static bool take_stop(struct api_call *a, const struct row *r, const struct jinja_value *v)
{
    const struct jinja_value *items = v;
    size_t n = 1, most = r->at ? LM_MAX_BREAKERS : LM_MAX_STOPS;
    if (v->kind == JINJA_LIST) items = v->u.list->items, n = v->u.list->count;
    if (n > most) {
        server_error(a->c, 400, r->name, "%s: %zu strings; there can be %zu", r->name, n, most);
        return false;
    }
    struct lm_stop_text *stops = jinja_arena_alloc(a->arena, (n + 1) * sizeof *stops, 8);
    struct lm_breaker *breakers = jinja_arena_alloc(a->arena, (n + 1) * sizeof *breakers, 8);
    if (!stops || !breakers) return no_memory(a);
    for (size_t i = 0; i < n; i++) {
        size_t longest = r->at ? LM_MAX_BREAKER_BYTES : LM_MAX_STOP_BYTES;
        if (items[i].kind != JINJA_STR) return bad(a, r->name, "is a string or a list of strings");
        if (!items[i].len) return bad(a, r->name, "an empty string is everywhere");
        if (items[i].len > longest) {
            server_error(a->c, 400, r->name, "%s: a string of %u bytes; there can be %zu", r->name,
                         items[i].len, longest);
            return false;
        }
        stops[i] = (struct lm_stop_text){items[i].u.s, items[i].len};
        breakers[i] = (struct lm_breaker){items[i].u.s, items[i].len};
    }
    if (r->at) a->p.d.sampling.breakers = breakers, a->p.d.sampling.n_breakers = n;
    else a->p.d.stops = stops, a->p.d.n_stops = n;
    return true;
}

static bool take_ids(struct api_call *a, const struct row *r, const struct jinja_value *v)
{
    if (v->kind != JINJA_LIST) return bad(a, r->name, "is a list of token ids");
    if (v->u.list->count > LM_MAX_BIAS) return bad(a, r->name, "too many tokens");
    uint32_t *ids = jinja_arena_alloc(a->arena, (v->u.list->count + 1) * sizeof *ids, 8);
    if (!ids) return no_memory(a);
    for (uint32_t i = 0; i < v->u.list->count; i++) {
        int64_t id;
        if (!integer(&v->u.list->items[i], 0, a->s->x.model->vocab - 1.0, &id)) {
            server_error(a->c, 400, r->name, "%s: token ids are 0 to %u", r->name,
                         a->s->x.model->vocab - 1);
            return false;
        }
        ids[i] = (uint32_t)id;
    }
    a->p.d.stop_tokens = ids, a->p.d.n_stop_tokens = v->u.list->count;
    return true;
}

/* One entry: a token by its id, or by its text the tokens of that. */
static bool add_bias(struct api_call *a, const struct jinja_value *key, const struct jinja_value *v,
                     struct lm_bias *out, size_t *n, size_t cap)
{
    double x = -INFINITY;
    int64_t id = -1;
    uint32_t vocab = a->s->x.model->vocab;
    bool never = v->kind == JINJA_BOOL && !v->u.b; /* llama-server's [id, false] */
    if (!never && (!real(v, &x) || fabs(x) > 1e6))
        return bad(a, "logit_bias", "a bias is a number from -1e6 to 1e6");
    if (x <= -100 && !never) x = -INFINITY; /* OpenAI: -100 bans */
    if (key->kind == JINJA_STR) {
        char *end, *text = api_copy(a->arena, key->u.s, key->len);
        if (!text) return no_memory(a);
        id = key->len && text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : -1;
        if (id >= 0 && *end) id = -1;
        if (id < 0) { /* text */
            uint32_t *ids;
            size_t k;
            struct infr_status st;
            if (lm_text_encode(&a->s->x.text, key->u.s, key->len,
                               TOK_ENCODE_SPECIAL | TOK_ENCODE_CONTINUED, &ids, &k, &st))
                return bad(a, "logit_bias", st.note);
            bool fits = *n + k <= cap;
            for (size_t i = 0; fits && i < k; i++) out[(*n)++] = (struct lm_bias){ids[i], (float)x};
            free(ids);
            return fits ? true : bad(a, "logit_bias", "too many tokens");
        }
    } else if (!integer(key, 0, vocab - 1.0, &id))
        id = -1;
    if (id < 0 || id >= (int64_t)vocab) {
        server_error(a->c, 400, "logit_bias", "logit_bias: token ids are 0 to %u", vocab - 1);
        return false;
    }
    if (*n == cap) return bad(a, "logit_bias", "too many tokens");
    out[(*n)++] = (struct lm_bias){(uint32_t)id, (float)x};
    return true;
}

static bool take_bias(struct api_call *a, const struct row *r, const struct jinja_value *v)
{
    size_t n = 0, count = v->kind == JINJA_DICT   ? v->u.dict->count
                          : v->kind == JINJA_LIST ? v->u.list->count
                                                  : SIZE_MAX;
    if (count == SIZE_MAX) return bad(a, r->name, "is an object of token ids and numbers");
    if (count > LM_MAX_BIAS) return bad(a, r->name, "too many tokens");
    size_t cap = 8 * count + 64;
    if (cap > LM_MAX_BIAS) cap = LM_MAX_BIAS;
    struct lm_bias *biases = jinja_arena_alloc(a->arena, cap * sizeof *biases, 8);
    if (!biases) return no_memory(a);
    for (size_t i = 0; i < count; i++) {
        const struct jinja_value *pair = v->kind == JINJA_LIST ? &v->u.list->items[i] : NULL;
        if (pair && (pair->kind != JINJA_LIST || pair->u.list->count != 2))
            return bad(a, r->name, "is a list of [token, number]");
        bool ok = pair ? add_bias(a, &pair->u.list->items[0], &pair->u.list->items[1], biases, &n,
                                  cap)
                       : add_bias(a, &v->u.dict->pairs[i].key, &v->u.dict->pairs[i].value, biases,
                                  &n, cap);
        if (!ok) return false;
    }
    a->p.d.sampling.bias = biases, a->p.d.sampling.n_bias = n;
    return true;
}

static bool take_model(struct api_call *a, const struct jinja_value *v)
{
    if (v->kind != JINJA_STR) return bad(a, "model", "is a string");
    if (a->s->o.any_model || api_is(v, a->s->o.model_name)) return true;
    server_error(a->c, 404, "model", "there is no model '%.*s' here, there is '%s'",
                 v->len < 200 ? (int)v->len : 200, v->u.s, a->s->o.model_name);
    return false;
}

static bool take_options(struct api_call *a, const struct jinja_value *v)
{
    if (v->kind != JINJA_DICT) return bad(a, "stream_options", "is an object");
    for (uint32_t i = 0; i < v->u.dict->count; i++) {
        const struct jinja_value *key = &v->u.dict->pairs[i].key, *x = &v->u.dict->pairs[i].value;
        bool on = x->kind == JINJA_BOOL && x->u.b;
        if (x->kind != JINJA_BOOL && x->kind != JINJA_NONE)
            return bad(a, "stream_options", "its values are true or false");
        if (api_is(key, "include_usage")) a->p.include_usage = on;
        else if (api_is(key, "continuous_usage_stats")) a->p.usage_so_far = on;
        else if (!api_is(key, "include_obfuscation"))
            return bad(a, "stream_options", "knows include_usage and continuous_usage_stats");
        else if (on) return bad(a, "stream_options", "include_obfuscation is not supported");
    }
    a->p.usage_so_far &= a->p.include_usage;
    a->p.stream_options = v;
    return true;
}

/* Responses' "text": {"format": ...} */
static bool take_text_format(struct api_call *a, const struct row *r, const struct jinja_value *v)
{
    if (v->kind != JINJA_DICT) return bad(a, r->name, "is an object");
    for (uint32_t i = 0; i < v->u.dict->count; i++) {
        const struct jinja_value *x = &v->u.dict->pairs[i].value;
        if (!api_is(&v->u.dict->pairs[i].key, "format")) return bad(a, r->name, "knows format alone");
        if (x->kind != JINJA_NONE && !api_take_format(a, x, "text.format")) return false;
    }
    return true;
}

static bool take_reasoning_format(struct api_call *a, const struct row *r,
                                  const struct jinja_value *v)
{
    static const char *const known[] = {"none", "auto", "deepseek"};
    for (int i = 0; i < 3; i++)
        if (api_is(v, known[i])) return a->p.reasoning_format = known[i], true;
    return bad(a, r->name, "is none, auto or deepseek");
}

static bool take_effort(struct api_call *a, const char *name, const struct jinja_value *v)
{
    static const char *const known[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    for (int i = 0; i < 6; i++) {
        if (!api_is(v, known[i])) continue;
        a->p.reasoning_effort = known[i];
        a->p.no_thinking = !i;
        return true;
    }
    return bad(a, name, "is none, minimal, low, medium, high or xhigh");
}

/* {"type": "enabled", "budget_tokens": N}, or disabled or adaptive; {"effort": ..., "summary": ...} */
static bool take_thinking(struct api_call *a, const struct row *r, const struct jinja_value *v)
{
    bool bounded = a->kind->endpoint == API_RESPONSES;
    if (v->kind != JINJA_DICT) return bad(a, r->name, "is an object");
    for (uint32_t i = 0; i < v->u.dict->count; i++) {
        const struct jinja_value *key = &v->u.dict->pairs[i].key, *x = &v->u.dict->pairs[i].value;
        bool responses = a->kind->endpoint == API_RESPONSES;
        if (x->kind == JINJA_NONE) continue;
        if (responses && api_is(key, "effort")) {
            if (!take_effort(a, "reasoning.effort", x)) return false;
        } else if (responses && (api_is(key, "summary") || api_is(key, "generate_summary"))) {
            return bad(a, r->name, "this server makes no summaries");
        } else if (!responses && api_is(key, "type")) {
            a->p.no_thinking = api_is(x, "disabled");
            bounded |= !api_is(x, "enabled"); /* which has a budget */
            if (!a->p.no_thinking && !api_is(x, "enabled") && !api_is(x, "adaptive"))
                return bad(a, r->name, "type is enabled, adaptive or disabled");
        } else if (!responses && api_is(key, "budget_tokens")) {
            if (!integer(x, 0, 1 << 30, &a->p.thinking_budget))
                return bad(a, "thinking.budget_tokens", "is a whole number");
            bounded = true;
        } else
            return bad(a, r->name, "has a field that this server does not know");
    }
    return bounded ? true : bad(a, r->name, "enabled goes with budget_tokens");
}

static bool take(struct api_call *a, const struct row *r, const struct jinja_value *v)
{
    void *field = (char *)&a->p + r->at;
    int64_t i = 0;
    double x = 0;
    switch (r->kind) {
    case BOOL:
        if (v->kind != JINJA_BOOL) return bad(a, r->name, "is true or false");
        *(bool *)field = v->u.b != (r->lo > 0);
        break;
    case INT32:
    case INT64:
        if (!integer(v, r->lo, r->hi, &i)) {
            server_error(a->c, 400, r->name, "%s: a whole number from %.20g to %.20g", r->name,
                         r->lo, r->hi);
            return false;
        }
        if (r->kind == INT64) *(int64_t *)field = i;
        else *(int32_t *)field = (int32_t)i;
        break;
    case REAL:
        if (!real(v, &x) || x < r->lo || x > r->hi) {
            server_error(a->c, 400, r->name, "%s: a number from %.9g to %.9g", r->name, r->lo,
                         r->hi);
            return false;
        }
        *(double *)field = x;
        break;
    case TEXT:
        if (v->kind != JINJA_STR) return bad(a, r->name, "is a string");
        if (!(*(const char **)field = api_copy(a->arena, v->u.s, v->len))) return no_memory(a);
        break;
    case VALUE: *(const struct jinja_value **)field = v; break;
    case STOP: return take_stop(a, r, v);
    case IDS: return take_ids(a, r, v);
    case BIAS: return take_bias(a, r, v);
    case MIROSTAT:
        if (!integer(v, 0, 2, &i) || i == 1) return bad(a, r->name, "is 0 or 2");
        a->p.d.sampling.mirostat = i == 2;
        break;
    case MODEL: return take_model(a, v);
    case OPTIONS: return take_options(a, v);
    case FORMAT: return api_take_format(a, v, r->name);
    case STRUCTURE: return api_take_structure(a, r->neutral, v, r->name);
    case STRUCTURES: return api_take_structures(a, v, r->name);
    case TEXT_FORMAT: return take_text_format(a, r, v);
    case SLOT:
        if (integer(v, -1, a->s->o.parallel - 1.0, &i)) break;
        server_error(a->c, 400, r->name, "%s: a whole number from -1 to %u", r->name,
                     a->s->o.parallel - 1);
        return false;
    case FIELDS:
        if (v->kind != JINJA_LIST) return bad(a, r->name, "is a list of names");
        a->p.response_fields = v->u.list->count ? v->u.list : NULL;
        break;
    case REASONING_FORMAT: return take_reasoning_format(a, r, v);
    case EFFORT: return take_effort(a, r->name, v);
    case THINKING: return take_thinking(a, r, v);
    case ANY: break;
    case NEUTRAL:
        if (equals(v, r->neutral)) break;
        server_error(a->c, 400, r->name, "%s: this server supports %s alone", r->name, r->neutral);
        return false;
    }
    if (r->given_at) *((bool *)&a->p + (r->given_at - 1)) = true;
    return true;
}

/* What fields mean together. */
static bool settle(struct api_call *a)
{
    struct api_params *p = &a->p;
    struct lm_request_desc *d = &p->d;
    bool chat = a->kind->endpoint == API_CHAT;
    if (p->top_k != INT64_MIN) d->sampling.top_k = p->top_k < 0 ? 0 : (int32_t)p->top_k;
    bool drawn = !p->seed_given || (a->kind->endpoint == API_LLAMA && p->seed == -1);
    if (!drawn) d->sampling.seed = (uint64_t)p->seed;
    else if (!a->s->o.seed_given || p->seed_given) d->sampling.seed = lm_entropy() >> 32;
    if (!p->max_tokens_given) {
        p->max_tokens = a->s->o.predict;
        if (a->kind->endpoint == API_COMPLETIONS && p->max_tokens < 0) p->max_tokens = 16; /* OpenAI's */
    }
    d->max_tokens = p->max_tokens >= 0 ? (uint32_t)p->max_tokens : UINT32_MAX;
    d->on_full = a->s->o.on_full;
    if (!d->max_tokens && !p->echo && a->kind->endpoint != API_LLAMA)
        return bad(a, "max_tokens", "is at least 1; 0 goes with echo alone");
    if (p->best_of && p->best_of < p->n) return bad(a, "best_of", "is at least n");
    if (p->best_of > p->n && p->stream) return bad(a, "best_of", "more than n is not for streams");
    if (!p->best_of) p->best_of = p->n;
    if (chat) {
        if (p->top_logprobs >= 0 && !p->logprobs_on)
            return bad(a, "top_logprobs", "needs logprobs: true");
        if (p->logprobs_on) d->n_logprobs = p->top_logprobs > 0 ? (int)p->top_logprobs : 0;
        if (p->continue_final && p->generation_prompt_given && p->add_generation_prompt)
            return bad(a, "continue_final_message", "goes with add_generation_prompt: false");
        if (p->continue_final) p->add_generation_prompt = false;
    } else if (p->logprobs_given)
        d->n_logprobs = (int)p->logprobs;
    else if (p->n_probs > 0)
        d->n_logprobs = (int)p->n_probs;
    if (p->prompt_logprobs >= 0) {
        if (p->stream) return bad(a, "prompt_logprobs", "is not for streams");
        if (d->n_logprobs < p->prompt_logprobs) d->n_logprobs = (int)p->prompt_logprobs;
    }
    if (p->best_of > p->n && d->n_logprobs < 0) d->n_logprobs = 0; /* scores */
    d->prompt_logprobs = (p->echo && p->logprobs_given) || p->prompt_logprobs >= 0;
    if (p->echo && p->logprobs_given && p->stream)
        return bad(a, "echo", "with logprobs is not for streams");
    if (p->stream_options && !p->stream) return bad(a, "stream_options", "goes with stream: true");
    d->priority = (int32_t)p->priority;
    if (p->cache_salt) d->salt = rt_xxh64(p->cache_salt, strlen(p->cache_salt)) | 1;
    if (!p->cache_prompt) d->salt = lm_entropy() | 1;
    return api_settle_tools(a);
}

bool api_read_params(struct api_call *a, const struct jinja_dict *body)
{
    struct api_params *p = &a->p;
    lm_request_desc_init(&p->d);
    p->d.sampling = a->s->sampling;
    p->body = body;
    p->template_kwargs = a->s->o.template_kwargs;
    p->n = 1, p->top_logprobs = -1, p->top_k = INT64_MIN, p->thinking_budget = p->prompt_logprobs = -1;
    p->no_thinking = a->s->o.no_thinking;
    p->verbose = a->s->o.verbose;
    p->reasoning_format = a->s->o.thinking_is_text ? "none" : "auto";
    p->add_generation_prompt = p->add_special = p->cache_prompt = p->parallel_calls = true;
    for (uint32_t i = 0; i < body->count; i++) {
        const struct jinja_value *key = &body->pairs[i].key, *v = &body->pairs[i].value;
        int k = 0;
        while (k < N_ROWS && !((rows[k].endpoints & a->kind->endpoint) && api_is(key, rows[k].name)))
            k++;
        if (k == N_ROWS) {
            char *name = api_copy(a->arena, key->u.s, key->len < 100 ? key->len : 0);
            server_error(a->c, 400, name, "this server does not support the field '%.*s'",
                         key->len < 100 ? (int)key->len : 100, key->u.s);
            return false;
        }
        if (v->kind != JINJA_NONE && !take(a, &rows[k], v)) return false;
    }
    return settle(a);
}

void api_json_settings(struct json *j, const struct api_params *p)
{
    _Static_assert(AT(d) == 0, "fields of the description come first");
    size_t last = 0;
    for (int i = 0; i < N_ROWS; i++) {
        const struct row *r = &rows[i];
        const void *field = (const char *)p + r->at;
        if (r->at >= sizeof p->d || r->at == last || !(r->endpoints & API_COMPLETIONS)) continue;
        last = r->at; /* of two names for one thing the first */
        if (r->kind == REAL) api_json_real(j, r->name, *(const double *)field);
        else if (r->kind == INT32) json_int(j, r->name, *(const int32_t *)field);
        else if (r->kind == BOOL && r->at != AT(d.report_progress))
            json_bool(j, r->name, *(const bool *)field != (r->lo > 0));
    }
}

void api_json_fields(struct json *j, unsigned endpoint)
{
    for (int i = 0; i < N_ROWS; i++) {
        const struct row *r = &rows[i];
        const char *type = r->kind == BOOL                                          ? "boolean"
                           : r->kind == INT32 || r->kind == INT64 || r->kind == MIROSTAT ? "integer"
                           : r->kind == REAL                                        ? "number"
                           : r->kind == TEXT || r->kind == MODEL                    ? "string"
                                                                                    : NULL;
        if (!(r->endpoints & endpoint)) continue;
        json_open(j, r->name, '{');
        if (type) json_string(j, "type", type);
        if (r->kind == INT32 || r->kind == INT64 || r->kind == REAL) {
            json_number(j, "minimum", r->lo);
            json_number(j, "maximum", r->hi);
        }
        json_close(j, '}');
    }
}
