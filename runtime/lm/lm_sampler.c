// SPDX-License-Identifier: Apache-2.0
#include "runtime/lm/lm_sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/lm/lm_math.h"
#include "runtime/lm/lm_sampler_internal.h"
#include "runtime/status.h"

enum { MOST_TAKEN = 1024 };    /* a top-k up to this needs no array of all candidates */
enum { DRAW_TOKEN, DRAW_XTC }; /* numbers of one token's random numbers */

struct lm_sampler {
    struct lm_sampling s;
    struct lm_bias *bias;
    struct lm_breakers breakers;
    uint32_t vocab;
    double mu; /* of mirostat */
};

/* ---- parameters ---- */

void lm_sampling_init(struct lm_sampling *s)
{
    static const struct lm_breaker breakers[] = {{"\n", 1}, {":", 1}, {"\"", 1}, {"*", 1}};
    *s = (struct lm_sampling){.temp = 1,
                              .top_p = 1,
                              .typical_p = 1,
                              .repeat_penalty = 1,
                              .penalty_last_n = 64,
                              .dry_base = 1.75,
                              .dry_allowed_length = 2,
                              .dry_last_n = -1,
                              .breakers = breakers,
                              .n_breakers = 4,
                              .xtc_threshold = 0.1,
                              .mirostat_tau = 5,
                              .mirostat_eta = 0.1};
}

int lm_sampling_check(const struct lm_sampling *s, uint32_t vocab, struct infr_status *st)
{
    const struct {
        const char *name;
        double value, lo, hi;
    } rows[] = {
        {"temperature", s->temp, 0, 100},
        {"top_k", s->top_k, 0, INT32_MAX},
        {"top_p", s->top_p, 0, 1},
        {"min_p", s->min_p, 0, 1},
        {"typical_p", s->typical_p, 0, 1},
        {"top_n_sigma", s->top_n_sigma, 0, 1000},
        {"repeat_penalty", s->repeat_penalty, 0.01, 100},
        {"frequency_penalty", s->frequency_penalty, -100, 100},
        {"presence_penalty", s->presence_penalty, -100, 100},
        {"penalty_last_n", s->penalty_last_n, -1, INT32_MAX},
        {"dry_multiplier", s->dry_multiplier, 0, 100},
        {"dry_base", s->dry_base, 1, 100},
        {"dry_allowed_length", s->dry_allowed_length, 1, INT32_MAX},
        {"dry_last_n", s->dry_last_n, -1, INT32_MAX},
        {"xtc_probability", s->xtc_probability, 0, 1},
        {"xtc_threshold", s->xtc_threshold, 0, 1},
        {"mirostat_tau", s->mirostat_tau, 0, 100},
        {"mirostat_eta", s->mirostat_eta, 0, 100},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].value >= rows[i].lo && rows[i].value <= rows[i].hi))
            return rt_fail(st, INFR_BAD_INPUT, "%s is %g; it can be %g to %g", rows[i].name,
                           rows[i].value, rows[i].lo, rows[i].hi);
    if (s->n_bias > LM_MAX_BIAS || s->n_breakers > LM_MAX_BREAKERS)
        return rt_fail(st, INFR_BAD_INPUT, "%zu logit biases and %zu breakers; %u and %u can be",
                       s->n_bias, s->n_breakers, LM_MAX_BIAS, LM_MAX_BREAKERS);
    for (size_t i = 0; i < s->n_bias; i++)
        if (s->bias[i].token >= vocab || isnan(s->bias[i].bias) || s->bias[i].bias > 1e6f)
            return rt_fail(st, INFR_BAD_INPUT,
                           "a logit bias of %g for token %u; tokens are below %u",
                           (double)s->bias[i].bias, s->bias[i].token, vocab);
    for (size_t i = 0; i < s->n_breakers; i++)
        if (!s->breakers[i].n || s->breakers[i].n > LM_MAX_BREAKER_BYTES)
            return rt_fail(st, INFR_BAD_INPUT, "a sequence breaker has 1 to %u bytes, not %zu",
                           LM_MAX_BREAKER_BYTES, s->breakers[i].n);
    return INFR_OK;
}

/* ---- memory ---- */

int lm_draw_create(uint32_t vocab, uint32_t max_history, struct lm_draw **out,
                   struct infr_status *st)
{
    struct lm_draw *d = calloc(1, sizeof *d);
    *out = NULL;
    if (d) {
        d->vocab = vocab, d->max_history = max_history;
        d->memory = malloc(((size_t)vocab + 1) * sizeof *d->memory);
        d->logits = malloc(((size_t)vocab + 1) * sizeof *d->logits);
        d->counts = calloc((size_t)vocab + 1, sizeof *d->counts);
        d->lengths = calloc((size_t)vocab + 1, sizeof *d->lengths);
        d->z = malloc(((size_t)max_history + 1) * sizeof *d->z);
    }
    if (!d || !d->memory || !d->logits || !d->counts || !d->lengths || !d->z) {
        lm_draw_destroy(d);
        return rt_fail_memory(st, "sampling", vocab * sizeof *d->memory);
    }
    *out = d;
    return INFR_OK;
}

void lm_draw_destroy(struct lm_draw *d)
{
    if (!d) return;
    free(d->memory);
    free(d->logits);
    free(d->counts);
    free(d->lengths);
    free(d->z);
    free(d);
}

int lm_sampler_create(const struct lm_sampling *s, const struct tok *tok, uint32_t vocab,
                      struct lm_sampler **out, struct infr_status *st)
{
    *out = NULL;
    int code = lm_sampling_check(s, vocab, st);
    if (code) return code;
    struct lm_sampler *x = calloc(1, sizeof *x);
    if (!x) return rt_fail_memory(st, "a sampler", sizeof *x);
    x->s = *s;
    x->vocab = vocab;
    x->mu = 2 * s->mirostat_tau;
    x->s.breakers = NULL, x->s.bias = NULL; /* the caller's */
    x->bias = malloc((s->n_bias + 1) * sizeof *x->bias);
    if (!x->bias) {
        lm_sampler_destroy(x);
        return rt_fail_memory(st, "logit biases", s->n_bias * sizeof *x->bias);
    }
    if (s->n_bias) memcpy(x->bias, s->bias, s->n_bias * sizeof *x->bias);
    if (s->dry_multiplier > 0) {
        if (!tok)
            code = rt_fail(st, INFR_BAD_INPUT, "DRY needs a tokenizer");
        else
            code = lm_breakers_init(&x->breakers, s, tok, st);
    }
    if (code) {
        lm_sampler_destroy(x);
        return code;
    }
    *out = x;
    return INFR_OK;
}

void lm_sampler_destroy(struct lm_sampler *x)
{
    if (!x) return;
    lm_breakers_deinit(&x->breakers);
    free(x->bias);
    free(x);
}

double lm_random(uint64_t seed, uint32_t stream, uint64_t at, uint32_t which)
{
    const uint64_t words[] = {stream, at, which};
    uint64_t z = seed;
    for (int i = 0; i < 3; i++) {
        z += (words[i] + 1) * 0x9E3779B97F4A7C15ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
    }
    return (double)(z >> 11) * 0x1p-53;
}

/* ---- links that change logits by token id ---- */

static void apply_penalties(const struct lm_sampling *s, struct lm_draw *d, const uint32_t *history,
                            uint32_t n)
{
    uint32_t window = s->penalty_last_n < 0 ? n : (uint32_t)s->penalty_last_n;
    if (window > n) window = n;
    const uint32_t *h = history + (n - window);
    for (uint32_t i = 0; i < window; i++)
        if (h[i] < d->vocab) d->counts[h[i]]++;
    for (uint32_t i = 0; i < window; i++) {
        if (h[i] >= d->vocab || !d->counts[h[i]]) continue;
        double x = (double)d->logits[h[i]];
        x = x > 0 ? x / s->repeat_penalty : x * s->repeat_penalty;
        x -= d->counts[h[i]] * s->frequency_penalty + s->presence_penalty;
        d->logits[h[i]] = (float)x;
        d->counts[h[i]] = 0;
    }
}

static bool has_penalties(const struct lm_sampling *s)
{
    return s->penalty_last_n &&
           (s->repeat_penalty < 1 || s->repeat_penalty > 1 || s->frequency_penalty < 0 ||
            s->frequency_penalty > 0 || s->presence_penalty < 0 || s->presence_penalty > 0);
}

/* The greatest of some logits, and whether all are numbers; -infinity may be among them. */
struct peak {
    float most;
    uint32_t block; /* where the first block begins that has it */
    bool numbers;
};

enum { PEAK_BLOCK = 1024 };

/*
 * The greatest of one block; sets `zero` to 0, or to NaN where one is not finite. Chains of four are
 * what the compiler turns into vectors.
 */
static float block_peak(const float *v, uint32_t n, float *zero)
{
    float most[2][4], none[2][4] = {{0}};
    uint32_t i = 0;
    for (int j = 0; j < 4; j++) most[0][j] = most[1][j] = -INFINITY;
    for (; i + 8 <= n; i += 8) {
        const float *a = v + i, *b = v + i + 4;
        for (int j = 0; j < 4; j++) most[0][j] = a[j] > most[0][j] ? a[j] : most[0][j];
        for (int j = 0; j < 4; j++) none[0][j] += a[j] * 0;
        for (int j = 0; j < 4; j++) most[1][j] = b[j] > most[1][j] ? b[j] : most[1][j];
        for (int j = 0; j < 4; j++) none[1][j] += b[j] * 0;
    }
    for (; i < n; i++) {
        most[0][0] = v[i] > most[0][0] ? v[i] : most[0][0];
        none[0][0] += v[i] * 0;
    }
    *zero = 0;
    for (int j = 0; j < 8; j++) {
        most[0][0] = most[j / 4][j % 4] > most[0][0] ? most[j / 4][j % 4] : most[0][0];
        *zero += none[j / 4][j % 4];
    }
    return most[0][0];
}

static bool all_numbers(const float *v, uint32_t n)
{
    bool bad = false;
    for (uint32_t i = 0; i < n; i++) bad |= !(v[i] <= (float)3e38);
    return !bad;
}

/* One pass: a vocabulary has up to a quarter of a million tokens, and a step waits for this. */
static struct peak find_peak(const float *v, uint32_t n)
{
    struct peak p = {-INFINITY, 0, true};
    for (uint32_t i = 0; i < n; i += PEAK_BLOCK) {
        uint32_t len = n - i < PEAK_BLOCK ? n - i : PEAK_BLOCK;
        float zero, most = block_peak(v + i, len, &zero);
        if (most > p.most) p.most = most, p.block = i;
        if (most > (float)3e38 || isnan(zero)) p.numbers = p.numbers && all_numbers(v + i, len);
    }
    return p;
}

/* d->logits after links 1 to 3. False: a logit is not a number. */
static bool links_by_id(struct lm_sampler *x, struct lm_draw *d, const float *logits,
                        const uint32_t *history, uint32_t n_history, const struct lm_mask *mask)
{
    const struct lm_sampling *s = &x->s;
    if (!find_peak(logits, d->vocab).numbers) return false;
    memcpy(d->logits, logits, d->vocab * sizeof *logits);
    for (size_t i = 0; i < s->n_bias; i++) d->logits[x->bias[i].token] += x->bias[i].bias;
    if (has_penalties(s)) apply_penalties(s, d, history, n_history);
    if (s->dry_multiplier > 0) lm_dry_apply(s, &x->breakers, d, history, n_history, d->logits);
    for (size_t i = 0; mask && i < mask->n_banned; i++)
        if (mask->banned[i] < d->vocab) d->logits[mask->banned[i]] = -INFINITY;
    for (uint32_t i = 0; mask && mask->allowed && i < d->vocab; i++)
        if (!(mask->allowed[i / 64] >> i % 64 & 1)) d->logits[i] = -INFINITY;
    return true;
}

/* Candidates after links 1 to 3, in order of their ids, or the best few where only those count. */
static bool gather(struct lm_sampler *x, struct lm_draw *d, const float *logits,
                   const uint32_t *history, uint32_t n_history, const struct lm_mask *mask,
                   struct cands *c)
{
    const struct lm_sampling *s = &x->s;
    uint32_t n = 0;
    if (!links_by_id(x, d, logits, history, n_history, mask)) return false;
    if (!s->mirostat && s->top_n_sigma <= 0 && s->top_k > 0 && s->top_k <= MOST_TAKEN &&
        (uint32_t)s->top_k < d->vocab) {
        cands_take(c, d->memory, (uint32_t)s->top_k, d->logits, d->vocab);
        return true;
    }
    for (uint32_t i = 0; i < d->vocab; i++)
        if (d->logits[i] >= (float)-3e38) d->memory[n++] = (struct cand){d->logits[i], i, 0};
    cands_set(c, d->memory, n);
    return true;
}

/* ---- links that leave candidates out ---- */

static double greatest(struct cands *c)
{
    double top = -INFINITY;
    for (uint32_t i = 0; i < c->n; i++)
        if ((double)c->v[i].logit > top) top = (double)c->v[i].logit;
    return top;
}

/* Sets every p; returns the greatest logit. */
static double softmax(struct cands *c, double *out_log_sum)
{
    double top = greatest(c), sum = 0, e[LM_EXP_BLOCK] = {0};
    for (uint32_t i = 0; i < c->n; i += LM_EXP_BLOCK) {
        uint32_t n = c->n - i < LM_EXP_BLOCK ? c->n - i : LM_EXP_BLOCK;
        for (uint32_t j = 0; j < n; j++) e[j] = (double)c->v[i + j].logit - top;
        lm_exp_block(e);
        for (uint32_t j = 0; j < n; j++) sum += c->v[i + j].p = e[j];
    }
    for (uint32_t i = 0; i < c->n; i++) c->v[i].p /= sum;
    if (out_log_sum) *out_log_sum = lm_log(sum);
    return top;
}

static void keep_from(struct cands *c, double least)
{
    uint32_t n = 0;
    if (c->n_sorted == c->n) { /* keeps the order */
        while (n < c->n && (double)cands_at(c, n)->logit >= least) n++;
        cands_keep(c, n);
        return;
    }
    for (uint32_t i = 0; i < c->n; i++)
        if ((double)c->v[i].logit >= least) c->v[n++] = c->v[i];
    c->n = n;
    cands_reorder(c, false);
}

static void top_n_sigma(struct cands *c, double n)
{
    double mean = 0, var = 0;
    for (uint32_t i = 0; i < c->n; i++) mean += (double)c->v[i].logit;
    mean /= c->n;
    for (uint32_t i = 0; i < c->n; i++) {
        double x = (double)c->v[i].logit - mean;
        var += x * x;
    }
    keep_from(c, greatest(c) - n * sqrt(var / c->n));
}

static void top_k(struct cands *c, uint32_t k)
{
    if (k >= c->n) return;
    cands_sort(c, k);
    cands_keep(c, k);
}

/* The most typical: nearest to the entropy in their surprise, until they have more than p. */
static void typical(struct cands *c, double p)
{
    double log_sum, top = softmax(c, &log_sum), entropy = 0, sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++)
        entropy -= c->v[i].p * ((double)c->v[i].logit - top - log_sum);
    for (uint32_t i = 0; i < c->n; i++)
        c->v[i].p = -fabs(-((double)c->v[i].logit - top - log_sum) - entropy);
    cands_reorder(c, true);
    while (n < c->n && sum <= p) {
        cands_sort(c, n + 1);
        sum += lm_exp((double)cands_at(c, n)->logit - top - log_sum);
        n++;
    }
    cands_keep(c, n);
    cands_reorder(c, false);
}

static void top_p(struct cands *c, double p)
{
    double sum = 0;
    uint32_t n = 0;
    softmax(c, NULL);
    while (n < c->n && (!n || sum < p)) {
        cands_sort(c, n + 1);
        sum += cands_at(c, n)->p;
        n++;
    }
    cands_keep(c, n);
}

/* Of the tokens that have the threshold's probability, all but the last are left out. */
static void xtc(struct cands *c, double threshold)
{
    uint32_t n = 0;
    if (threshold > 0.5 || c->n < 2) return;
    softmax(c, NULL);
    for (; n < c->n; n++) {
        cands_sort(c, n + 1);
        if (cands_at(c, n)->p < threshold) break;
    }
    if (n < 2) return;
    c->n -= n - 1; /* the best stand at the end */
    c->n_sorted -= n - 1;
}

static void mirostat_cut(struct cands *c, double mu)
{
    uint32_t n = 1;
    softmax(c, NULL);
    cands_sort(c, 1);
    for (; n < c->n; n++) {
        cands_sort(c, n + 1);
        double p = cands_at(c, n)->p;
        if (p <= 0 || -lm_log(p) / LM_LN2 > mu) break;
    }
    cands_keep(c, n);
}

/* Links 4 to 10 but for the draw. */
static void narrow(struct lm_sampler *x, struct cands *c, uint64_t at)
{
    const struct lm_sampling *s = &x->s;
    if (!s->mirostat) {
        if (s->top_n_sigma > 0) top_n_sigma(c, s->top_n_sigma);
        if (s->top_k > 0) top_k(c, (uint32_t)s->top_k);
        if (s->typical_p < 1) typical(c, s->typical_p);
        if (s->top_p < 1) top_p(c, s->top_p);
        if (s->min_p > 0) keep_from(c, greatest(c) + lm_log(s->min_p));
        if (s->xtc_probability > 0 &&
            lm_random(s->seed, s->stream, at, DRAW_XTC) < s->xtc_probability)
            xtc(c, s->xtc_threshold);
    }
    if (s->temp <= 0) {
        top_k(c, 1);
        return;
    }
    for (uint32_t i = 0; i < c->n; i++) c->v[i].logit = (float)((double)c->v[i].logit / s->temp);
    if (s->mirostat) mirostat_cut(c, x->mu);
}

/* ---- picking ---- */

/* Nothing but the greatest logit matters, after links 1 to 3. */
static bool is_greedy(const struct lm_sampling *s)
{
    return s->temp <= 0 && !s->mirostat && s->typical_p >= 1 && s->xtc_probability <= 0;
}

/* Links 1 to 3 change nothing. */
static bool is_plain(const struct lm_sampling *s, const struct lm_mask *mask)
{
    return !s->n_bias && s->dry_multiplier <= 0 && !has_penalties(s) &&
           (!mask || (!mask->allowed && !mask->n_banned));
}

static uint32_t pick_greedy(const float *logits, uint32_t n)
{
    struct peak p = find_peak(logits, n);
    if (!p.numbers || !(p.most >= (float)-3e38)) return LM_NO_TOKEN;
    uint32_t i = p.block;
    while (logits[i] < p.most) i++;
    return i;
}

static const struct cand *draw(struct cands *c, double u)
{
    double sum = 0;
    softmax(c, NULL);
    for (uint32_t i = 0; i < c->n; i++) {
        sum += cands_at(c, i)->p;
        if (u < sum) return cands_at(c, i);
    }
    return cands_at(c, 0); /* rounding left u behind the end */
}

uint32_t lm_sampler_pick(struct lm_sampler *x, struct lm_draw *d, const float *logits,
                         const uint32_t *history, uint32_t n_history, uint64_t at,
                         const struct lm_mask *mask)
{
    struct cands c;
    if (is_greedy(&x->s)) {
        if (is_plain(&x->s, mask)) return pick_greedy(logits, d->vocab);
        if (!links_by_id(x, d, logits, history, n_history, mask)) return LM_NO_TOKEN;
        return pick_greedy(d->logits, d->vocab);
    }
    if (!gather(x, d, logits, history, n_history, mask, &c) || !c.n) return LM_NO_TOKEN;
    narrow(x, &c, at);
    if (c.n == 1 && !x->s.mirostat) return c.v[0].id;
    const struct cand *t = draw(&c, lm_random(x->s.seed, x->s.stream, at, DRAW_TOKEN));
    if (x->s.mirostat) x->mu -= x->s.mirostat_eta * (-lm_log(t->p) / LM_LN2 - x->s.mirostat_tau);
    return t->id;
}

uint32_t lm_sampler_distribution(struct lm_sampler *x, struct lm_draw *d, const float *logits,
                                 const uint32_t *history, uint32_t n_history, uint64_t at,
                                 const struct lm_mask *mask, uint32_t *tokens, double *probs,
                                 uint32_t cap)
{
    struct cands c;
    if (!gather(x, d, logits, history, n_history, mask, &c) || !c.n) return 0;
    narrow(x, &c, at);
    softmax(&c, NULL);
    cands_sort(&c, c.n);
    for (uint32_t i = 0; i < c.n && i < cap; i++) {
        tokens[i] = cands_at(&c, i)->id;
        probs[i] = cands_at(&c, i)->p;
    }
    return c.n;
}

float lm_logprobs(struct lm_draw *d, const float *logits, uint32_t token, struct lm_logprob *top,
                  uint32_t n)
{
    double most = (double)find_peak(logits, d->vocab).most, sum = 0, e[LM_EXP_BLOCK] = {0};
    for (uint32_t i = 0; i < d->vocab; i += LM_EXP_BLOCK) {
        uint32_t m = d->vocab - i < LM_EXP_BLOCK ? d->vocab - i : LM_EXP_BLOCK;
        for (uint32_t j = 0; j < m; j++) e[j] = (double)logits[i + j] - most;
        lm_exp_block(e);
        for (uint32_t j = 0; j < m; j++) sum += e[j];
    }
    double norm = most + lm_log(sum);
    if (n) {
        struct cands c;
        cands_take(&c, d->memory, n, logits, d->vocab);
        for (uint32_t i = 0; i < n; i++) {
            const struct cand *t = i < c.n ? cands_at(&c, i) : NULL; /* the rest is impossible */
            top[i] = (struct lm_logprob){t ? t->id : LM_NO_TOKEN,
                                         t ? (float)((double)t->logit - norm) : -INFINITY};
        }
    }
    return (float)((double)logits[token] - norm);
}
