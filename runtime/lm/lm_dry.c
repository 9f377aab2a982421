// SPDX-License-Identifier: Apache-2.0
/*
 * DRY ("don't repeat yourself"): finds, for each place of the history, how many tokens before it
 * equal the history's end (a Z array of the reversed history, linear), and lowers the logit of the
 * token that followed there. Repetitions do not reach back across a sequence breaker. The method
 * is p-e-w's (oobabooga/text-generation-webui pull request 5677); here breakers are looked for in
 * the text, so they may lie anywhere across tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_math.h"
#include "runtime/lm/lm_sampler_internal.h"
#include "runtime/status.h"

enum { ENDS = 1, MAY_END = 2 };

static bool contains(const uint8_t *p, size_t n, const struct lm_breaker *b)
{
    for (size_t i = 0; i + b->n <= n; i++)
        if (!memcmp(p + i, b->text, b->n)) return true;
    return false;
}

/* Could the bytes p, behind others, complete the breaker? They begin with an end of it, or lie
 * inside of it. */
static bool may_end(const uint8_t *p, size_t n, const struct lm_breaker *b)
{
    for (size_t i = 1; i < b->n; i++) {
        size_t rest = b->n - i;
        if (rest <= n && !memcmp(p, b->text + i, rest)) return true;
    }
    return false;
}

int lm_breakers_init(struct lm_breakers *b, const struct lm_sampling *s, const struct tok *tok,
                     struct infr_status *st)
{
    *b = (struct lm_breakers){.tok = tok, .n = s->n_breakers};
    size_t bytes = 0;
    for (size_t i = 0; i < s->n_breakers; i++) bytes += s->breakers[i].n;
    b->v = malloc((s->n_breakers + 1) * sizeof *b->v + bytes);
    b->bits = calloc(tok_count(tok) + (size_t)1, 1);
    if (!b->v || !b->bits) {
        lm_breakers_deinit(b);
        return rt_fail_memory(st, "sequence breakers", tok_count(tok));
    }
    char *text = (char *)(b->v + s->n_breakers);
    for (size_t i = 0; i < s->n_breakers; i++) {
        b->v[i] = (struct lm_breaker){text, s->breakers[i].n};
        memcpy(text, s->breakers[i].text, s->breakers[i].n);
        text += s->breakers[i].n;
    }
    for (uint32_t id = 0; id < tok_count(tok); id++) {
        struct tok_info info;
        if (tok_token_info(tok, id, &info)) continue;
        for (size_t i = 0; i < b->n; i++) {
            if (contains(info.bytes, info.n_bytes, &b->v[i])) b->bits[id] |= ENDS;
            if (may_end(info.bytes, info.n_bytes, &b->v[i])) b->bits[id] |= MAY_END;
        }
    }
    return INFR_OK;
}

void lm_breakers_deinit(struct lm_breakers *b)
{
    free(b->v);
    free(b->bits);
    *b = (struct lm_breakers){0};
}

/* Does a breaker end inside token number i, when the tokens before it are looked at too? */
static bool ends_with_others(const struct lm_breakers *b, const uint32_t *history, uint32_t i)
{
    struct tok_info info;
    uint8_t text[2 * LM_MAX_BREAKER_BYTES];
    size_t at = sizeof text; /* text is filled from its end */
    if (tok_token_info(b->tok, history[i], &info)) return false;
    size_t own = info.n_bytes < LM_MAX_BREAKER_BYTES ? info.n_bytes : LM_MAX_BREAKER_BYTES;
    at -= own;
    memcpy(text + at, info.bytes, own);
    for (uint32_t k = i; k-- > 0 && at;) {
        if (tok_token_info(b->tok, history[k], &info)) break;
        size_t n = info.n_bytes < at ? info.n_bytes : at;
        at -= n;
        memcpy(text + at, info.bytes + (info.n_bytes - n), n);
    }
    for (size_t k = 0; k < b->n; k++) {
        /* the breaker begins before the token and ends in it */
        size_t before = sizeof text - own;
        for (size_t begin = before < b->v[k].n ? 0 : before - b->v[k].n + 1; begin < before;
             begin++)
            if (begin >= at && begin + b->v[k].n <= sizeof text &&
                !memcmp(text + begin, b->v[k].text, b->v[k].n))
                return true;
    }
    return false;
}

static bool breaks(const struct lm_breakers *b, const uint32_t *history, uint32_t i)
{
    if (history[i] >= tok_count(b->tok)) return false;
    uint8_t bits = b->bits[history[i]];
    return bits & ENDS || (bits & MAY_END && ends_with_others(b, history, i));
}

/* z[i]: how many tokens of the history reversed agree from place i on with its beginning. */
static void z_array(const uint32_t *history, uint32_t n, uint32_t *z)
{
    const uint32_t *last = history + n - 1; /* reversed[i] is last[-i] */
    uint32_t left = 0, right = 0;           /* a match of [left, right) with the beginning */
    z[0] = n;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t k = 0;
        if (i < right) k = z[i - left] < right - i ? z[i - left] : right - i;
        while (i + k < n && last[-(int64_t)k] == last[-(int64_t)(i + k)]) k++;
        z[i] = k;
        if (i + k > right) left = i, right = i + k;
    }
}

void lm_dry_apply(const struct lm_sampling *s, const struct lm_breakers *b, struct lm_draw *d,
                  const uint32_t *history, uint32_t n, float *logits)
{
    uint32_t allowed = (uint32_t)s->dry_allowed_length, limit = 0;
    uint32_t window = s->dry_last_n < 0 ? n : (uint32_t)s->dry_last_n;
    if (window > n) window = n;
    if (window > d->max_history) window = d->max_history;
    const uint32_t *h = history + (n - window);
    if (window <= allowed) return;
    while (limit < window && !breaks(b, h, window - 1 - limit)) limit++;
    if (limit < allowed) return;
    z_array(h, window, d->z);
    for (uint32_t i = 1; i < window; i++) { /* h[window - i] follows the match */
        uint32_t length = d->z[i] < limit ? d->z[i] : limit, token = h[window - i];
        if (length >= allowed && token < d->vocab && length > d->lengths[token])
            d->lengths[token] = length;
    }
    double log_base = lm_log(s->dry_base), most = 80 / (log_base > 1e-6 ? log_base : 1e-6);
    for (uint32_t i = 1; i < window; i++) {
        uint32_t token = h[window - i];
        if (token >= d->vocab || !d->lengths[token]) continue;
        double x = d->lengths[token] - (double)allowed;
        logits[token] -= (float)(s->dry_multiplier * lm_exp((x < most ? x : most) * log_base));
        d->lengths[token] = 0;
    }
}
