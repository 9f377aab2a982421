// SPDX-License-Identifier: Apache-2.0
/*
 * Generation through a session of an engine (written by hand): the same tokens and bits as the fake
 * model gives, and engines that do not fit are refused.
 */
#include "tests/lm/engine_plan.h"
#include "tests/lm/vocab.h"

#include "runtime/lm/lm_generate.h"

static struct engine_plan plan;

static struct infr_engine *open_engine(const struct engine_plan *p)
{
    struct infr_image image = {p, sizeof *p, ep_table, "", 0, NULL};
    struct infr_options o = {.threads = 1};
    struct infr_engine *e;
    struct infr_status st;
    if (infr_engine_open(&image, &o, &e, &st)) fail_msg("%s", st.note);
    return e;
}

struct out {
    uint32_t tokens[200];
    float logprobs[200];
    uint32_t n;
};

static void collect(void *user, const struct lm_event *e)
{
    struct out *o = user;
    o->tokens[o->n] = e->token;
    o->logprobs[o->n++] = e->logprob;
}

static void generate(struct lm_model *m, struct fixture *f, uint32_t chunk, struct out out[3])
{
    struct lm_generator_options o = {.n_ctx = 200, .max_seqs = 2, .chunk = chunk, .hash_seed = 1};
    struct lm_generator *g;
    struct lm_request *r[3];
    struct infr_status st;
    uint32_t prompt[90];
    if (lm_generator_create(m, &f->tok, &o, &g, &st)) fail_msg("%s", st.note);
    for (uint32_t i = 0; i < 90; i++) prompt[i] = 10 + i * i % 50;
    for (uint32_t i = 0; i < 3; i++) {
        struct lm_request_desc d;
        lm_request_desc_init(&d);
        d.prompt = prompt, d.n_prompt = 40 + 20 * i, d.max_tokens = 50, d.ignore_eos = true;
        d.sampling.seed = i, d.n_logprobs = 0;
        out[i].n = 0;
        d.on_event = collect, d.user = &out[i];
        if (lm_generator_submit(g, &d, &r[i], &st)) fail_msg("%s", st.note);
    }
    if (lm_generator_run(g, &st)) fail_msg("%s", st.note);
    for (uint32_t i = 0; i < 3; i++) lm_request_destroy(r[i]);
    lm_generator_destroy(g);
}

static void test_generation(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {1, 7, 64, 512};
    struct fixture f;
    struct fake_model fake;
    struct lm_model *m;
    struct infr_status st;
    static struct out want[3], got[3];
    struct infr_text_header h = ep_text();
    vocab_begin(&f);
    fake_init(&fake, EP_V, 60, EP_P, 0);
    generate(&fake.m, &f, 64, want);
    struct infr_engine *e = open_engine(&plan);
    if (lm_model_open(e, &h, &m, &st)) fail_msg("%s", st.note);
    assert_int_equal(m->page_bytes, EP_P * 8);
    assert_int_equal(lm_model_set_pages(m, 60, &st), 0);
    for (int c = 0; c < 4; c++) {
        generate(m, &f, chunks[c], got);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(got[i].n, 50);
            assert_memory_equal(got[i].tokens, want[i].tokens, sizeof want[i].tokens);
            assert_memory_equal(got[i].logprobs, want[i].logprobs, sizeof want[i].logprobs);
        }
    }
    lm_model_destroy(m);
    infr_engine_close(e);
    fake_deinit(&fake);
    fixture_end(&f);
}

#define REFUSED(change, text)                                              \
    {                                                                      \
        struct engine_plan p = plan;                                       \
        struct infr_text_header h = ep_text();                             \
        struct infr_status st;                                             \
        struct lm_model *m;                                                \
        change;                                                            \
        struct infr_engine *e = open_engine(&p);                           \
        assert_int_equal(lm_model_open(e, &h, &m, &st), INFR_ENVIRONMENT); \
        assert_null(m);                                                    \
        assert_string_equal(st.note, text);                                \
        infr_engine_close(e);                                              \
    }

static void test_refused(void **state)
{
    (void)state;
    REFUSED(h.vocab = 100, "this engine has no output 'logits' of 100 columns")
    REFUSED(h.embedding_dims = 8, "this engine has no output 'embeddings' of 8 columns")
    REFUSED(p.inputs[6].optional = 0,
            "this engine has an input 'k_cache.0' that text does not give")
    REFUSED(p.inputs[1].name = p.inputs[6].name,
            "this engine has an input 'k_cache.0' that text does not give")
    REFUSED(p.inputs[0].optional = INFR_IO_OPTIONAL;
            p.inputs[0].name = p.inputs[1].name, "this engine has no input 'tokens'")
    REFUSED(p.inputs[0].optional = INFR_IO_STATE, "this engine has no input 'tokens'")
    REFUSED(p.pool_u32[p.inputs[6].dims + 1] = EP_MP,
            "state 'k_cache.0' of this engine is not a KV cache")
    REFUSED(p.pool_u32[p.inputs[6].dims] = EP_C8; p.symbols[4].bind_input = INFR_NONE;
            p.symbols[4].lo = p.symbols[4].hi, "state 'k_cache.0' of this engine is not a KV cache")
    struct infr_text_header h = ep_text();
    struct infr_status st;
    struct lm_model *m;
    struct infr_engine *e = open_engine(&plan);
    assert_int_equal(lm_model_open(e, &h, &m, &st), 0);
    h.page_tokens = 8;
    assert_int_equal(lm_model_set_pages(m, UINT32_MAX, &st),
                     0); /* memory is the system's until used */
    lm_model_destroy(m);
    infr_engine_close(e);
}

static int setup(void **state)
{
    (void)state;
    ep_init(&plan);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_generation),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
