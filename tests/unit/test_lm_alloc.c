// SPDX-License-Identifier: Apache-2.0
/*
 * Counts calls of the allocator while answers are written: there are none, with every link of the
 * sampling chain, stop strings, log probabilities, preemption and a sliding context. The
 * allocator's functions are our own here, so that none is missed; sanitizers bring theirs, under
 * them the test only runs.
 */
#include "tests/lm/engine_plan.h"
#include "tests/lm/vocab.h"

#include "runtime/lm/lm_generate.h"

static uint64_t n_calls;

#if !defined(__SANITIZE_ADDRESS__)
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t each);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    n_calls++;
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t each)
{
    n_calls++;
    return __libc_calloc(n, each);
}

void *realloc(void *p, size_t n)
{
    n_calls++;
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    n_calls++;
    return __libc_memalign(align, n);
}

static bool counts(void) { return true; }
#else
static bool counts(void) { return false; }
#endif

static void nothing(void *user, const struct lm_event *e)
{
    (void)e;
    ++*(uint64_t *)user;
}

static void test_counts(void **state)
{
    (void)state;
    uint64_t before = n_calls;
    void *volatile p = malloc(3);
    free(p);
    if (counts()) assert_int_equal(n_calls - before, 1);
}

enum { SEQS = 6 };

/* Six answers with all of it over fewer pages than they take. */
static void generate(struct lm_model *m, struct fixture *fx)
{
    struct lm_generator *g;
    struct lm_request *r[SEQS];
    struct lm_generator_options o = {.n_ctx = 200, .max_seqs = SEQS, .chunk = 16, .hash_seed = 1};
    struct infr_status st;
    uint32_t prompt[40];
    uint64_t events = 0;
    assert_int_equal(lm_generator_create(m, &fx->tok, &o, &g, &st), 0);
    const struct lm_stop_text stop = {"never like this", 15};
    const struct lm_bias bias = {V_BOS, 1};
    for (uint32_t i = 0; i < 40; i++) prompt[i] = V_WORDS + i % 20;
    for (uint32_t i = 0; i < SEQS; i++) {
        struct lm_request_desc d;
        lm_request_desc_init(&d);
        d.prompt = prompt, d.n_prompt = 40 - i, d.max_tokens = 400, d.ignore_eos = true;
        d.stops = &stop, d.n_stops = 1, d.on_full = LM_FULL_SLIDE;
        d.n_logprobs = i == 2 ? 5 : -1, d.prompt_logprobs = i == 2;
        d.sampling.bias = &bias, d.sampling.n_bias = 1, d.sampling.seed = i;
        if (i == 0) d.sampling.temp = 0;
        if (i == 1) d.sampling.top_k = 40, d.sampling.top_p = 0.9, d.sampling.min_p = 0.01;
        if (i == 2) d.sampling.typical_p = 0.9, d.sampling.top_n_sigma = 2;
        if (i == 3) d.sampling.dry_multiplier = 1, d.sampling.repeat_penalty = 1.2;
        if (i == 4) d.sampling.xtc_probability = 0.5, d.sampling.xtc_threshold = 0.02;
        if (i == 5) d.sampling.mirostat = true;
        d.on_event = nothing, d.user = &events;
        assert_int_equal(lm_generator_submit(g, &d, &r[i], &st), 0);
    }
    bool more = true;
    uint64_t before = n_calls;
    while (more) assert_int_equal(lm_generator_step(g, &more, &st), 0);
    assert_int_equal(n_calls - before, 0);
    struct lm_counts c;
    lm_generator_get_counts(g, &c);
    assert_true(events >= SEQS * 400);
    assert_true(c.slides >= SEQS);
    assert_true(c.preemptions > 0);
    for (int i = 0; i < SEQS; i++) lm_request_destroy(r[i]);
    lm_generator_destroy(g);
}

static void test_no_allocation(void **state)
{
    (void)state;
    struct fixture fx;
    struct fake_model f;
    vocab_begin(&fx);
    fake_init(&f, N_VOCAB, 60, 8, 0);
    /* the fake model's own memory grows with the number of rows: it has the most from the start */
    f.most_rows = SEQS + 64;
    f.logits = malloc((size_t)f.most_rows * N_VOCAB * sizeof *f.logits);
    generate(&f.m, &fx);
    fake_deinit(&f);
    fixture_end(&fx);
}

/* One answer through a session. A new number of rows or tokens is a new shape, which takes memory;
 * tokens of an answer have one shape, whatever the length of the context. */
static void test_session(void **state)
{
    (void)state;
    static struct engine_plan plan;
    struct fixture fx;
    struct infr_engine *e;
    struct lm_model *m;
    struct lm_generator *g;
    struct lm_request *r;
    struct lm_request_desc d;
    struct infr_status st;
    uint32_t prompt[40];
    uint64_t events = 0, before;
    bool more = true;
    struct infr_text_header h = ep_text();
    struct lm_generator_options o = {.n_ctx = 1000, .max_seqs = 1, .chunk = 16, .hash_seed = 1};
    struct infr_options options = {.threads = 1};
    vocab_begin(&fx);
    ep_init(&plan);
    struct infr_image image = {&plan, sizeof plan, ep_table, "", 0, NULL};
    if (infr_engine_open(&image, &options, &e, &st)) fail_msg("%s", st.note);
    if (lm_model_open(e, &h, &m, &st)) fail_msg("%s", st.note);
    assert_int_equal(lm_model_set_pages(m, 130, &st), 0);
    if (lm_generator_create(m, &fx.tok, &o, &g, &st)) fail_msg("%s", st.note);
    for (uint32_t i = 0; i < 40; i++) prompt[i] = V_WORDS + i % 20;
    lm_request_desc_init(&d);
    d.prompt = prompt, d.n_prompt = 40, d.max_tokens = 900, d.ignore_eos = true;
    d.sampling.top_k = 40, d.sampling.top_p = 0.95, d.sampling.min_p = 0.05;
    d.on_event = nothing, d.user = &events;
    assert_int_equal(lm_generator_submit(g, &d, &r, &st), 0);
    while (events < 2) assert_int_equal(lm_generator_step(g, &more, &st), 0);
    before = n_calls;
    while (more) assert_int_equal(lm_generator_step(g, &more, &st), 0);
    assert_int_equal(n_calls - before, 0);
    assert_int_equal(events, 900);
    lm_request_destroy(r);
    lm_generator_destroy(g);
    lm_model_destroy(m);
    infr_engine_close(e);
    fixture_end(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_no_allocation),
                                       cmocka_unit_test(test_session)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
