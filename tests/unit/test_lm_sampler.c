// SPDX-License-Identifier: Apache-2.0
/* The links of the sampling chain against values worked out by hand. */
#include <math.h>

#include "tests/lm/vocab.h"

#include "runtime/lm/lm_math.h"
#include "runtime/lm/lm_sampler.h"

enum { N = 5 };

/* Probabilities 1/2 1/4 1/8 1/16 1/16, in an order that is not sorted: ids 3 0 4 1 2. */
static const double prob_of[N] = {0.25, 0.0625, 0.0625, 0.5, 0.125};
static float logits[N];

struct result {
    uint32_t n, id[64];
    double p[64];
};

static void setup(struct lm_sampling *s)
{
    lm_sampling_init(s);
    for (int i = 0; i < N; i++) logits[i] = (float)log(prob_of[i]);
}

static struct result run_on(const struct lm_sampling *s, const float *l, uint32_t vocab,
                            const uint32_t *history, uint32_t n, const struct tok *tok,
                            const struct lm_mask *mask)
{
    struct lm_draw *d;
    struct lm_sampler *x;
    struct infr_status st;
    struct result r;
    if (lm_draw_create(vocab, n, &d, &st)) fail_msg("%s", st.note);
    if (lm_sampler_create(s, tok, vocab, &x, &st)) fail_msg("%s", st.note);
    r.n = lm_sampler_distribution(x, d, l, history, n, 0, mask, r.id, r.p, 64);
    lm_sampler_destroy(x);
    lm_draw_destroy(d);
    return r;
}

static struct result run(const struct lm_sampling *s)
{
    return run_on(s, logits, N, NULL, 0, NULL, NULL);
}

static void is(const struct result *r, uint32_t n, const uint32_t *ids, const double *p)
{
    assert_int_equal(r->n, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(r->id[i], ids[i]);
        assert_true(fabs(r->p[i] - p[i]) < 1e-6);
    }
}
#define IDS(...) ((const uint32_t[]){__VA_ARGS__})
#define PROBS(...) ((const double[]){__VA_ARGS__})

static void test_math(void **state)
{
    (void)state;
    for (int i = -7000; i < 7000; i++) {
        double x = i * 0.1007, want = exp(x);
        assert_true(fabs(lm_exp(x) - want) <= 1e-15 * want);
        double y = exp(x * 0.9);
        assert_true(fabs(lm_log(y) - log(y)) <= 4e-16 * fabs(log(y)) + 1e-18);
    }
    assert_true(lm_exp(-1000) == 0 && isinf(lm_exp(800)) && isnan(lm_exp(NAN)));
    assert_true(lm_exp(-INFINITY) == 0 && lm_exp(0) == 1 && lm_log(1) == 0);
}

static void test_links(void **state)
{
    (void)state;
    struct lm_sampling s;
    struct result r;
    setup(&s);
    r = run(&s);
    is(&r, 5, IDS(3, 0, 4, 1, 2), PROBS(0.5, 0.25, 0.125, 0.0625, 0.0625));
    s.top_k = 2;
    r = run(&s);
    is(&r, 2, IDS(3, 0), PROBS(2. / 3, 1. / 3));
    s.top_k = 4; /* of equal logits the smaller id */
    r = run(&s);
    assert_int_equal(r.id[3], 1);

    setup(&s), s.top_p = 0.7; /* 0.5 + 0.25 reaches it */
    r = run(&s);
    is(&r, 2, IDS(3, 0), PROBS(2. / 3, 1. / 3));
    s.top_p = 0;
    r = run(&s);
    is(&r, 1, IDS(3), PROBS(1));

    setup(&s), s.min_p = 0.2; /* at least 0.1 */
    r = run(&s);
    is(&r, 3, IDS(3, 0, 4), PROBS(4. / 7, 2. / 7, 1. / 7));
    s.top_k = 2; /* sorted candidates are cut too */
    r = run(&s);
    is(&r, 2, IDS(3, 0), PROBS(2. / 3, 1. / 3));

    /* entropy 1.875 bits; surprises 1 2 3 4 4: differences 0.875 0.125 1.125 2.125 2.125 */
    setup(&s), s.typical_p = 0.2;
    r = run(&s);
    is(&r, 1, IDS(0), PROBS(1));
    s.typical_p = 0.7;
    r = run(&s);
    is(&r, 2, IDS(3, 0), PROBS(2. / 3, 1. / 3));

    setup(&s), s.temp = 0.5; /* squares: 64 16 4 1 1 of 86 */
    r = run(&s);
    is(&r, 5, IDS(3, 0, 4, 1, 2), PROBS(64. / 86, 16. / 86, 4. / 86, 1. / 86, 1. / 86));
    s.temp = 0;
    r = run(&s);
    is(&r, 1, IDS(3), PROBS(1));
    s.typical_p = 0.2; /* greedy, but of what the chain leaves */
    r = run(&s);
    is(&r, 1, IDS(0), PROBS(1));

    /* in units of ln 2: logits -2 -4 -4 -1 -3, mean -2.8, variance 1.36, deviation 1.16619 */
    setup(&s), s.top_n_sigma = 1; /* from -2.166 */
    r = run(&s);
    is(&r, 2, IDS(3, 0), PROBS(2. / 3, 1. / 3));
    s.top_n_sigma = 0.5;
    r = run(&s);
    is(&r, 1, IDS(3), PROBS(1));
    s.top_n_sigma = 2; /* from -3.33 */
    r = run(&s);
    is(&r, 3, IDS(3, 0, 4), PROBS(4. / 7, 2. / 7, 1. / 7));
}

static void test_xtc(void **state)
{
    (void)state;
    struct lm_sampling s;
    struct result r;
    setup(&s), s.xtc_probability = 1, s.xtc_threshold = 0.1;
    r = run(&s); /* 0.5 0.25 0.125 have it: the first two go */
    is(&r, 3, IDS(4, 1, 2), PROBS(0.5, 0.25, 0.25));
    s.xtc_threshold = 0.4; /* only one has it: it stays */
    r = run(&s);
    assert_int_equal(r.n, 5);
    s.xtc_threshold = 0.6; /* cannot leave out anything */
    r = run(&s);
    assert_int_equal(r.n, 5);
    s.xtc_threshold = 0.1, s.xtc_probability = 0;
    r = run(&s);
    assert_int_equal(r.n, 5);
    /* after top-k: all sorted */
    s.xtc_probability = 1, s.top_k = 4;
    r = run(&s);
    is(&r, 2, IDS(4, 1), PROBS(2. / 3, 1. / 3));
}

static void test_penalties(void **state)
{
    (void)state;
    struct lm_sampling s;
    struct result r;
    const float l[4] = {2, 1, -1, 0};
    const uint32_t history[] = {3, 0, 2, 0, 1000};
    setup(&s);
    s.repeat_penalty = 2, s.frequency_penalty = 0.25, s.presence_penalty = 0.125;
    /* 0: 2 / 2 - 2 * 0.25 - 0.125; 1 untouched; 2: -1 * 2 - 0.25 - 0.125; 3: 0 - 0.375 */
    const double want[4] = {0.375, 1, -2.375, -0.375};
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += exp(want[i]);
    r = run_on(&s, l, 4, history, 5, NULL, NULL);
    is(&r, 4, IDS(1, 0, 3, 2),
       PROBS(exp(1) / sum, exp(0.375) / sum, exp(-0.375) / sum, exp(-2.375) / sum));
    s.penalty_last_n = 2; /* only one 0 and the token that the vocabulary does not have */
    r = run_on(&s, l, 4, history, 5, NULL, NULL);
    sum = exp(0.625) + exp(1) + exp(-1) + 1;
    is(&r, 4, IDS(1, 0, 3, 2), PROBS(exp(1) / sum, exp(0.625) / sum, 1 / sum, exp(-1) / sum));
    s.penalty_last_n = 0;
    r = run_on(&s, l, 4, history, 5, NULL, NULL);
    assert_int_equal(r.id[0], 0);
}

static void test_bias_and_mask(void **state)
{
    (void)state;
    struct lm_sampling s;
    struct result r;
    const struct lm_bias bias[] = {{3, -INFINITY}, {4, (float)log(4)}, {4, (float)log(2)}};
    setup(&s), s.bias = bias, s.n_bias = 3;
    r = run(&s); /* 1/8 becomes 1; the rest 1/4 1/16 1/16 */
    is(&r, 4, IDS(4, 0, 1, 2), PROBS(16. / 22, 4. / 22, 1. / 22, 1. / 22));
    const uint32_t banned[] = {4, 77};
    struct lm_mask mask = {.banned = banned, .n_banned = 2};
    r = run_on(&s, logits, N, NULL, 0, NULL, &mask);
    is(&r, 3, IDS(0, 1, 2), PROBS(4. / 6, 1. / 6, 1. / 6));
    const uint64_t allowed[] = {1u << 1 | 1u << 4};
    mask.allowed = allowed;
    s.n_bias = 0;
    r = run_on(&s, logits, N, NULL, 0, NULL, &mask);
    is(&r, 1, IDS(1), PROBS(1));
    const uint64_t none[] = {0};
    mask.allowed = none;
    r = run_on(&s, logits, N, NULL, 0, NULL, &mask);
    assert_int_equal(r.n, 0);
}

/* Every subset of links in turn must respect the order: top-k before top-p before min-p. */
static void test_order(void **state)
{
    (void)state;
    struct lm_sampling s;
    struct result r;
    setup(&s), s.top_k = 3, s.top_p = 0.8;
    r = run(&s); /* of 4/7 2/7 1/7: 6/7 reaches 0.8. The other way round three would be left */
    is(&r, 2, IDS(3, 0), PROBS(2. / 3, 1. / 3));
    setup(&s), s.min_p = 0.2, s.temp = 3;
    r = run(&s); /* temperature is last: min-p sees the model's probabilities */
    assert_int_equal(r.n, 3);
    setup(&s), s.typical_p = 0.7, s.top_p = 0.6;
    r = run(&s); /* of 2/3 1/3: one. Top-p first would leave two, typical then two */
    is(&r, 1, IDS(3), PROBS(1));
}

static void test_dry(void **state)
{
    (void)state;
    struct fixture f;
    struct lm_sampling s;
    struct result r;
    vocab_begin(&f);
    uint32_t a = vocab_id("a"), b = vocab_id("b"), c = vocab_id("c"), d = vocab_id("d"),
             e = vocab_id("e"), nl = vocab_id("\n"), lo = vocab_id("lo"), op = vocab_id("op");
    float *l = calloc(N_VOCAB, sizeof *l);
    uint64_t allowed[(N_VOCAB + 63) / 64] = {0};
    const uint32_t look[] = {a, b, c, d, e};
    for (int i = 0; i < 5; i++) allowed[look[i] / 64] |= (uint64_t)1 << look[i] % 64;
    struct lm_mask mask = {.allowed = allowed};
    lm_sampling_init(&s);
    s.dry_multiplier = 0.5, s.dry_base = 2;

    /* the end a b c was followed by d: length 3, 0.5 * 2^(3 - 2) = 1 */
    const uint32_t h1[] = {a, b, c, d, e, a, b, c};
    double sum = 4 + exp(-1);
    r = run_on(&s, l, N_VOCAB, h1, 8, &f.tok, &mask);
    is(&r, 5, IDS(a, b, c, e, d), PROBS(1 / sum, 1 / sum, 1 / sum, 1 / sum, exp(-1) / sum));

    /* length 2 of c: 0.5; it is the longest that counts: b c -> d (2), a b c -> e (3) */
    const uint32_t h2[] = {b, c, d, a, b, c, e, a, b, c};
    sum = 3 + exp(-0.5) + exp(-1);
    r = run_on(&s, l, N_VOCAB, h2, 10, &f.tok, &mask);
    is(&r, 5, IDS(a, b, c, d, e), PROBS(1 / sum, 1 / sum, 1 / sum, exp(-0.5) / sum, exp(-1) / sum));

    /* one token alone is allowed */
    const uint32_t h3[] = {a, b, c, a};
    r = run_on(&s, l, N_VOCAB, h3, 4, &f.tok, &mask);
    assert_true(fabs(r.p[4] - 0.2) < 1e-9);
    s.dry_allowed_length = 1; /* a -> b: 0.5 */
    r = run_on(&s, l, N_VOCAB, h3, 4, &f.tok, &mask);
    assert_int_equal(r.id[4], b);
    s.dry_allowed_length = 2;

    /* a breaker between a and b c: only two tokens count */
    const uint32_t h4[] = {a, nl, b, c, d, e, a, nl, b, c};
    sum = 4 + exp(-0.5);
    r = run_on(&s, l, N_VOCAB, h4, 10, &f.tok, &mask);
    assert_int_equal(r.id[4], d);
    assert_true(fabs(r.p[4] - exp(-0.5) / sum) < 1e-6);

    /* a breaker that two tokens make: "oo" of "lo" and "op" */
    const struct lm_breaker two[] = {{"oo", 2}};
    const uint32_t h5[] = {a, lo, op, b, c, d, e, a, lo, op, b, c};
    s.breakers = two, s.n_breakers = 1;
    r = run_on(&s, l, N_VOCAB, h5, 12, &f.tok, &mask);
    assert_true(fabs(r.p[4] - exp(-0.5) / sum) < 1e-6);
    const struct lm_breaker other[] = {{"ol", 2}}; /* not in the text: the match is 5 long */
    s.breakers = other;
    r = run_on(&s, l, N_VOCAB, h5, 12, &f.tok, &mask);
    sum = 4 + exp(-4);
    assert_true(fabs(r.p[4] - exp(-4) / sum) < 1e-6);
    s.dry_last_n = 6; /* the earlier one is out of sight */
    r = run_on(&s, l, N_VOCAB, h5, 12, &f.tok, &mask);
    assert_true(fabs(r.p[4] - 0.2) < 1e-9);
    free(l);
    fixture_end(&f);
}

/* mu begins at 2 tau and follows the surprise of what was drawn. */
static void test_mirostat(void **state)
{
    (void)state;
    struct lm_sampling s;
    struct lm_draw *d;
    struct lm_sampler *x;
    uint32_t ids[N];
    double p[N];
    setup(&s), s.mirostat = true, s.mirostat_tau = 0.75, s.mirostat_eta = 0.5;
    assert_int_equal(lm_draw_create(N, 0, &d, NULL), 0);
    assert_int_equal(lm_sampler_create(&s, NULL, N, &x, NULL), 0);
    /* mu 1.5: only token 3 (surprise 1) */
    assert_int_equal(lm_sampler_distribution(x, d, logits, NULL, 0, 0, NULL, ids, p, N), 1);
    assert_int_equal(lm_sampler_pick(x, d, logits, NULL, 0, 0, NULL), 3);
    /* drawn alone its surprise is 0: mu = 1.5 + 0.5 * 0.75 = 1.875 */
    assert_int_equal(lm_sampler_distribution(x, d, logits, NULL, 0, 0, NULL, ids, p, N), 1);
    assert_int_equal(lm_sampler_pick(x, d, logits, NULL, 0, 1, NULL), 3);
    /* mu = 2.25: tokens 3 and 0 */
    assert_int_equal(lm_sampler_distribution(x, d, logits, NULL, 0, 0, NULL, ids, p, N), 2);
    uint32_t t = lm_sampler_pick(x, d, logits, NULL, 0, 2, NULL);
    /* surprise log2(3/2) or log2(3) */
    double mu = 2.25 - 0.5 * ((t == 3 ? log2(1.5) : log2(3)) - 0.75);
    uint32_t want = mu < 2 ? 1 : mu < 3 ? 2 : 3;
    assert_int_equal(lm_sampler_distribution(x, d, logits, NULL, 0, 0, NULL, ids, p, N), want);
    lm_sampler_destroy(x);
    lm_draw_destroy(d);
}

/* Frequencies of draws follow the probabilities, and do not depend on the order of calls. */
static void test_draws(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    struct lm_sampling s;
    struct lm_draw *d;
    struct lm_sampler *x;
    static uint32_t first[DRAWS];
    int count[N] = {0}, other = 0;
    setup(&s), s.seed = 42;
    assert_int_equal(lm_draw_create(N, 0, &d, NULL), 0);
    assert_int_equal(lm_sampler_create(&s, NULL, N, &x, NULL), 0);
    for (int i = 0; i < DRAWS; i++) {
        first[i] = lm_sampler_pick(x, d, logits, NULL, 0, (uint64_t)i, NULL);
        count[first[i]]++;
    }
    double chi = 0;
    for (int i = 0; i < N; i++) {
        double want = DRAWS * prob_of[i];
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    assert_true(chi < 18.5); /* 4 degrees of freedom: 0.1% */
    for (int i = DRAWS; i-- > 0;)
        assert_int_equal(lm_sampler_pick(x, d, logits, NULL, 0, (uint64_t)i, NULL), first[i]);
    lm_sampler_destroy(x);
    s.stream = 1;
    assert_int_equal(lm_sampler_create(&s, NULL, N, &x, NULL), 0);
    for (int i = 0; i < DRAWS; i++)
        other += first[i] == lm_sampler_pick(x, d, logits, NULL, 0, (uint64_t)i, NULL);
    /* two independent draws agree with probability sum p^2 = 0.3359 */
    assert_true(abs(other - (int)(0.3359 * DRAWS)) < 400);
    lm_sampler_destroy(x);
    lm_draw_destroy(d);
    /* of an independent implementation of the generator in Python */
    assert_true(lm_random(42, 0, 0, 0) == 0xc6217e09b040fp-53);
    assert_true(lm_random(7, 3, 123456789, 1) == 0x6da84129d6316p-53);
}

static void test_logprobs(void **state)
{
    (void)state;
    struct lm_sampling s;
    struct lm_draw *d;
    struct lm_logprob top[3];
    setup(&s);
    assert_int_equal(lm_draw_create(N, 0, &d, NULL), 0);
    for (int i = 0; i < N; i++) logits[i] += 5; /* no matter */
    assert_true(fabs((double)lm_logprobs(d, logits, 4, top, 3) - log(0.125)) < 1e-6);
    assert_int_equal(top[0].token, 3);
    assert_int_equal(top[1].token, 0);
    assert_int_equal(top[2].token, 4);
    assert_true(fabs((double)top[1].logprob - log(0.25)) < 1e-6);
    lm_draw_destroy(d);
}

static void test_refused(void **state)
{
    (void)state;
    struct lm_sampling s;
    struct lm_draw *d;
    struct lm_sampler *x;
    struct infr_status st;
    setup(&s), s.temp = 999999;
    assert_int_equal(lm_sampling_check(&s, N, &st), INFR_BAD_INPUT);
    assert_string_equal(st.note, "temperature is 999999; it can be 0 to 100");
    setup(&s), s.top_p = -1;
    assert_int_equal(lm_sampler_create(&s, NULL, N, &x, &st), INFR_BAD_INPUT);
    assert_string_equal(st.note, "top_p is -1; it can be 0 to 1");
    setup(&s), s.min_p = NAN;
    assert_int_equal(lm_sampling_check(&s, N, &st), INFR_BAD_INPUT);
    const struct lm_bias bias = {N, 0};
    setup(&s), s.bias = &bias, s.n_bias = 1;
    assert_int_equal(lm_sampling_check(&s, N, &st), INFR_BAD_INPUT);
    setup(&s), s.n_bias = 1u << 20;
    assert_int_equal(lm_sampling_check(&s, N, &st), INFR_BAD_INPUT);
    /* what is no number has no best */
    setup(&s), s.temp = 0;
    assert_int_equal(lm_draw_create(N, 0, &d, NULL), 0);
    assert_int_equal(lm_sampler_create(&s, NULL, N, &x, NULL), 0);
    assert_int_equal(lm_sampler_pick(x, d, logits, NULL, 0, 0, NULL), 3);
    logits[1] = NAN;
    assert_int_equal(lm_sampler_pick(x, d, logits, NULL, 0, 0, NULL), LM_NO_TOKEN);
    const uint32_t banned[] = {0};
    struct lm_mask mask = {.banned = banned, .n_banned = 1};
    assert_int_equal(lm_sampler_pick(x, d, logits, NULL, 0, 0, &mask), LM_NO_TOKEN);
    lm_sampler_destroy(x);
    lm_draw_destroy(d);
}

/* A vocabulary of several blocks: the first of equal bests, wherever it stands, and no token when one logit is no number. */
static void test_greedy(void **state)
{
    (void)state;
    enum { V = 2 * 1024 + 11 };
    static float v[V];
    static const uint32_t at[] = {0, 3, 4, 7, 8, 1015, 1023, 1024, 2047, 2048, 2055, 2056, V - 1};
    static const float none[] = {NAN, -NAN, INFINITY};
    struct lm_sampling s;
    struct lm_draw *d;
    struct lm_sampler *x;
    lm_sampling_init(&s), s.temp = 0;
    assert_int_equal(lm_draw_create(V, 0, &d, NULL), 0);
    assert_int_equal(lm_sampler_create(&s, NULL, V, &x, NULL), 0);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        for (uint32_t k = 0; k < V; k++) v[k] = k % 5 ? -(float)(k % 7) - 1 : -INFINITY;
        v[at[i]] = v[V - 1] = -0.5f;
        assert_int_equal(lm_sampler_pick(x, d, v, NULL, 0, 0, NULL), at[i]);
        for (int k = 0; k < 3; k++) {
            v[at[i]] = none[k];
            assert_int_equal(lm_sampler_pick(x, d, v, NULL, 0, 0, NULL), LM_NO_TOKEN);
        }
    }
    for (uint32_t k = 0; k < V; k++) v[k] = -INFINITY; /* nothing is possible */
    assert_int_equal(lm_sampler_pick(x, d, v, NULL, 0, 0, NULL), LM_NO_TOKEN);
    lm_sampler_destroy(x);
    lm_draw_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_math),          cmocka_unit_test(test_links),
        cmocka_unit_test(test_xtc),           cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_bias_and_mask), cmocka_unit_test(test_order),
        cmocka_unit_test(test_dry),           cmocka_unit_test(test_mirostat),
        cmocka_unit_test(test_draws),         cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_greedy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
