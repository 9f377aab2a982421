// SPDX-License-Identifier: Apache-2.0
/*
 * The server's queue over a fake model whose logits are right only if every page is. What each job
 * must answer comes from a loop of a few lines: the largest logit of the whole history, append.
 */
#include "tests/lm/fake_model.h"
#include "tests/lm/vocab.h"

#include "runtime/serve/sched.h"

enum { P = 8, CTX = 256, MOST = 160, DOUBTED = 8 /* steps, as in sched.c */ };

static struct fixture fx;
static uint32_t cliff, largest;  /* steps of more tokens than this take longer; tokens of the last step */
static double beyond_cliff;
static double now;      /* the clock of these tests */
static double per_call, per_token; /* what a call of the model adds to it */

static double read_clock(void) { return now; }

struct test_job {
    struct sched_job job;
    uint32_t prompt[CTX], tokens[MOST], n, order;
};

static uint32_t ends;

static void on_event(void *user, const struct lm_event *e)
{
    struct test_job *t = user;
    if (e->token != LM_NO_TOKEN) t->tokens[t->n++] = e->token;
}

static void on_end(struct sched_job *j)
{
    ((struct test_job *)j)->order = ++ends;
}

/* Prompt number `which`: they begin alike in groups. */
static void make_job(struct test_job *t, uint32_t which, uint32_t n_prompt, uint32_t n_answer)
{
    memset(t, 0, sizeof *t);
    for (uint32_t k = 0; k < n_prompt; k++)
        t->prompt[k] = V_WORDS + (k < 24 && which % 2 ? k * 7 : k * 5 + which * 11) % N_WORDS;
    lm_request_desc_init(&t->job.desc);
    t->job.desc.prompt = t->prompt, t->job.desc.n_prompt = n_prompt;
    t->job.desc.sampling.temp = 0;
    t->job.desc.max_tokens = n_answer, t->job.desc.ignore_eos = true;
    t->job.desc.on_event = on_event, t->job.desc.user = t;
    t->job.on_end = on_end;
}

static void assert_answer(const struct fake_model *f, const struct test_job *t)
{
    uint32_t history[CTX], n = t->job.desc.n_prompt;
    float logits[N_VOCAB];
    memcpy(history, t->prompt, n * sizeof *history);
    assert_int_equal(t->n, t->job.desc.max_tokens);
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t best = UINT32_MAX;
        fake_logits(&f->m, history, n, logits);
        for (uint32_t v = 0; v < N_VOCAB; v++) {
            struct tok_info info;
            if (tok_token_info(&fx.tok, v, &info) || info.ends_generation) continue;
            if (best == UINT32_MAX || logits[v] > logits[best]) best = v;
        }
        assert_int_equal(t->tokens[i], best);
        history[n++] = best;
    }
}

static int slow_forward(struct lm_model *m, const struct lm_batch *b, struct lm_output *out,
                        struct infr_status *st)
{
    now += per_call + per_token * b->n_tokens + (cliff && b->n_tokens > cliff ? beyond_cliff : 0);
    largest = b->n_tokens;
    return fake_forward(m, b, out, st);
}

/* As many tokens as fit until then, one at least. */
static int slow_advance(struct lm_model *m, const struct lm_batch *b, uint64_t until, bool *done, struct lm_output *out,
                        struct infr_status *st)
{
    struct fake_model *f = (struct fake_model *)m;
    double fit = ((double)until * 1e-9 - now) / per_token;
    uint32_t left = b ? b->n_tokens : f->parted->n_tokens - f->at;
    f->per_part = fit < 1 ? 1 : fit < left ? (uint32_t)fit : left;
    now += per_token * f->per_part;
    return fake_advance(m, b, 1, done, out, st);
}

static bool apart; /* what benches do with prompts from now on */

struct bench {
    struct fake_model f;
    struct lm_generator *g;
    struct sched *s;
};

static void begin(struct bench *b, uint32_t pages, uint32_t max_running, uint32_t max_queue,
                  uint32_t chunk, double stretch)
{
    struct lm_generator_options go = {
        .n_ctx = CTX, .max_seqs = max_running, .chunk = chunk, .hash_seed = 7, .keep_others = true};
    struct sched_options so = {max_queue, max_running, chunk, stretch};
    struct infr_status st;
    fake_init(&b->f, N_VOCAB, pages, P, 0);
    b->f.m.forward = slow_forward;
    if (apart) b->f.m.advance = slow_advance;
    if (lm_generator_create(&b->f.m, &fx.tok, &go, &b->g, &st)) fail_msg("%s", st.note);
    if (sched_create(b->g, &so, &b->s, &st)) fail_msg("%s", st.note);
    now = 1000, ends = 0, per_call = 0.01, per_token = 0.001;
}

static void finish(struct bench *b)
{
    struct sched_counts c;
    sched_get_counts(b->s, &c);
    assert_int_equal(c.queued + c.running + c.clients, 0);
    assert_int_equal(c.generator.pages.held, 0);
    assert_int_equal(c.accepted, c.done + c.cancelled + c.timeouts + c.errors);
    sched_destroy(b->s);
    lm_generator_destroy(b->g);
    fake_deinit(&b->f);
}

static enum sched_verdict submit(struct bench *b, struct test_job *t)
{
    struct sched_job *j = &t->job;
    return sched_submit(b->s, &j, 1, now);
}

static bool step(struct bench *b)
{
    struct infr_status st;
    bool more;
    sched_step(b->s, read_clock, &more, &st);
    return more;
}

static void run(struct bench *b)
{
    while (step(b)) {}
}

/* One answer a job, whatever runs beside it, in what chunks, in what order and how often it had
 * to wait in between. */
static void test_same_answers_in_a_crowd(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {1, 7, 64}, places[] = {1, 3, 8};
    static struct test_job jobs[24];
    for (uint32_t x = 0; x < 18; x++)
        for (uint32_t tight = 0; tight < 2; tight++) {
            struct bench b;
            apart = x >= 9;
            begin(&b, tight ? CTX / P + 4 : 400, places[x % 3], 100, chunks[x / 3 % 3], 2);
            for (uint32_t i = 0; i < 24; i++) {
                make_job(&jobs[i], i, 3 + i * 5, 10 + i % 7);
                jobs[i].job.client = i % 3;
                jobs[i].job.desc.priority = (int32_t)(i * 7 % 4);
                jobs[i].job.desc.salt = i % 2;
                assert_int_equal(submit(&b, &jobs[i]), SCHED_ACCEPTED);
                if (i % 5 == 0) step(&b);
            }
            run(&b);
            for (uint32_t i = 0; i < 24; i++) {
                assert_int_equal(jobs[i].job.end, SCHED_DONE);
                assert_int_equal(jobs[i].job.n_generated, jobs[i].n);
                assert_answer(&b.f, &jobs[i]);
            }
            struct sched_counts c;
            sched_get_counts(b.s, &c);
            assert_int_equal(c.generated_tokens, 24 * 10 + 3 * 21 + 0 + 1 + 2);
            finish(&b);
            apart = false;
        }
}

static void test_clients_share(void **state)
{
    (void)state;
    struct bench b;
    static struct test_job many[20], few[2];
    begin(&b, 400, 1, 100, 64, 0);
    for (uint32_t i = 0; i < 20; i++) {
        make_job(&many[i], i, 20, 10);
        many[i].job.client = 1;
        submit(&b, &many[i]);
    }
    step(&b); /* the first of them has its place */
    for (uint32_t i = 0; i < 2; i++) {
        make_job(&few[i], i, 20, 10);
        few[i].job.client = 2;
        submit(&b, &few[i]);
    }
    run(&b);
    assert_int_equal(few[0].order, 2); /* 30 tokens each: turn and turn about */
    assert_int_equal(few[1].order, 4);
    for (uint32_t i = 1; i < 20; i++) assert_true(many[i].order > many[i - 1].order);
    finish(&b);
}

static void test_priorities(void **state)
{
    (void)state;
    struct bench b;
    static struct test_job low[3], high;
    begin(&b, 400, 2, 100, 64, 0);
    for (uint32_t i = 0; i < 3; i++) {
        make_job(&low[i], i, 20, 30);
        submit(&b, &low[i]);
    }
    step(&b);
    step(&b);
    make_job(&high, 5, 20, 5);
    high.job.desc.priority = -1;
    submit(&b, &high);
    run(&b);
    assert_int_equal(high.order, 1); /* though two others had places and longer answers to give */
    struct sched_counts c;
    sched_get_counts(b.s, &c);
    assert_int_equal(c.generator.preemptions, 1);
    for (uint32_t i = 0; i < 3; i++) assert_answer(&b.f, &low[i]);
    finish(&b);
}

static void test_bounds(void **state)
{
    (void)state;
    struct bench b;
    static struct test_job t[6];
    struct sched_job *three[3];
    begin(&b, 400, 2, 2, 64, 0);
    for (uint32_t i = 0; i < 6; i++) make_job(&t[i], i, 10, 5);
    assert_int_equal(submit(&b, &t[0]), SCHED_ACCEPTED);
    assert_int_equal(submit(&b, &t[1]), SCHED_ACCEPTED);
    for (uint32_t i = 0; i < 3; i++) three[i] = &t[2 + i].job;
    assert_int_equal(sched_submit(b.s, three, 3, now), SCHED_FULL); /* all or none */
    assert_int_equal(submit(&b, &t[2]), SCHED_ACCEPTED);
    assert_int_equal(submit(&b, &t[3]), SCHED_ACCEPTED);
    assert_int_equal(submit(&b, &t[4]), SCHED_FULL);
    sched_drain(b.s);
    assert_int_equal(submit(&b, &t[5]), SCHED_DRAINING);
    run(&b);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(t[i].job.end, SCHED_DONE);
    assert_int_equal(ends, 4);
    finish(&b);
}

static void test_cancelled_within_a_step(void **state)
{
    (void)state;
    struct bench b;
    struct sched_counts c;
    static struct test_job t[4];
    begin(&b, 400, 2, 10, 16, 0);
    for (uint32_t i = 0; i < 4; i++) {
        make_job(&t[i], i, 60, 30);
        submit(&b, &t[i]);
    }
    for (int i = 0; i < 6; i++) step(&b);
    sched_get_counts(b.s, &c);
    assert_true(c.generator.pages.held > 0);
    sched_cancel_all(b.s);
    assert_false(step(&b));
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(t[i].job.end, SCHED_CANCELLED);
    finish(&b); /* no page is held */
}

static void test_deadlines(void **state)
{
    (void)state;
    struct bench b;
    static struct test_job t[3];
    begin(&b, 400, 1, 10, 64, 0);
    for (uint32_t i = 0; i < 3; i++) make_job(&t[i], i, 10, 40);
    t[0].job.deadline = now + 0.1; /* about eight tokens */
    t[1].job.deadline = now + 0.05; /* never gets a place */
    for (uint32_t i = 0; i < 3; i++) submit(&b, &t[i]);
    assert_true(sched_next_deadline(b.s) == 1000.05);
    run(&b);
    assert_int_equal(t[0].job.end, SCHED_TIMEOUT);
    assert_true(t[0].n > 4 && t[0].n < 12);
    assert_int_equal(t[0].job.n_generated, t[0].n);
    assert_int_equal(t[1].job.end, SCHED_TIMEOUT);
    assert_int_equal(t[1].n, 0);
    assert_int_equal(t[2].job.end, SCHED_DONE);
    finish(&b);
}

/* A call of the model that fails ends who was in it; who waited is served. */
static void test_failure(void **state)
{
    (void)state;
    struct bench b;
    static struct test_job t[3];
    begin(&b, 400, 2, 10, 64, 0);
    for (uint32_t i = 0; i < 3; i++) {
        make_job(&t[i], 2 * i, 10, 10);
        submit(&b, &t[i]);
    }
    b.f.fail_at = 4;
    run(&b);
    assert_int_equal(t[0].job.end, SCHED_ERROR);
    assert_int_equal(t[1].job.end, SCHED_ERROR);
    assert_non_null(t[0].job.error);
    assert_int_equal(t[2].job.end, SCHED_DONE);
    assert_answer(&b.f, &t[2]);
    finish(&b);
}

/* With an answer running, steps of a long prompt take at most twice as long as it alone needs,
 * once times are known; without one they are as large as they may be. */
static void test_budget(void **state)
{
    (void)state;
    struct bench b;
    static struct test_job victim, warm, prompt;
    begin(&b, 400, 4, 10, 128, 2);
    make_job(&warm, 1, 40, 2); /* prompts and answers are measured once */
    submit(&b, &warm);
    run(&b);
    make_job(&victim, 2, 4, 60);
    submit(&b, &victim);
    for (int i = 0; i < 4; i++) step(&b);
    per_token = 0.0004; /* 0.0104 a step alone: 26 tokens more are twice that */
    for (int i = 0; i < 12; i++) step(&b);
    make_job(&prompt, 4, 200, 2);
    submit(&b, &prompt);
    double longest = 0;
    int steps = 0;
    while (!prompt.n) {
        double before = now;
        uint32_t had = victim.n;
        step(&b);
        if (steps++ > 4 && now - before > longest) longest = now - before;
        assert_int_equal(victim.n, had + 1); /* every step serves it */
    }
    assert_true(longest <= 2.2 * 0.0104);
    run(&b);
    assert_answer(&b.f, &victim);
    assert_answer(&b.f, &prompt);
    finish(&b);
}

/* One answer runs, whose steps take `a_call` and `a_token` for each row, then a prompt of so many tokens comes. */
static void begin_beside_answer(struct bench *b, struct test_job *victim, struct test_job *prompt, uint32_t n, double a_call, double a_token)
{
    begin(b, 400, 4, 10, 128, 2);
    make_job(victim, 2, 4, 150);
    submit(b, victim);
    per_call = a_call, per_token = a_token;
    for (int i = 0; i < 8; i++) step(b);
    make_job(prompt, 4, n, 2);
    submit(b, prompt);
}

/* The rest of both at once. */
static void finish_both(struct bench *b, const struct test_job *victim, const struct test_job *prompt)
{
    per_call = per_token = 0;
    run(b);
    assert_answer(&b->f, victim);
    assert_answer(&b->f, prompt);
    finish(b);
}

/* Where a step of five rows takes more than twice as long as one of four, steps have four: the fifth row
 * is tried now and then, and no larger step behind it. */
static void test_budget_finds_sizes_that_suit(void **state)
{
    (void)state;
    struct bench b;
    static struct test_job victim, prompt;
    cliff = 4, beyond_cliff = 0.006;
    begin_beside_answer(&b, &victim, &prompt, 200, 0.002, 0.0005);
    uint32_t of_four = 0, longer = 0, steps = 0;
    while (!prompt.n) {
        step(&b);
        steps++;
        of_four += largest == 4, longer += largest > 4;
    }
    assert_true(steps < 80);
    assert_true(of_four >= 60);
    assert_true(longer <= 2);
    cliff = 0;
    finish_both(&b, &victim, &prompt);
}

/*
 * Something outside holds up one step of a prompt. It must not count as what the size takes: where larger
 * sizes are known at once, where none is after a while. Sixteen rows may be in a step beside one answer.
 */
static uint32_t steps_with_one_held_up(uint32_t at, uint32_t *of_sixteen)
{
    struct bench b;
    static struct test_job victim, prompt;
    begin_beside_answer(&b, &victim, &prompt, 240, 0.0015, 0.0001); /* 3.2 ms may be: one answer and 16 rows */
    uint32_t steps = 0;
    for (*of_sixteen = 0; !prompt.n; steps++) {
        per_call = steps == at ? 0.1 : 0.0015;
        step(&b);
        *of_sixteen += largest >= 16;
    }
    finish_both(&b, &victim, &prompt);
    return steps;
}

static void test_budget_outlives_a_long_step(void **state)
{
    (void)state;
    uint32_t usual, otherwise, alone = steps_with_one_held_up(UINT32_MAX, &usual);
    assert_true(usual >= 10);
    for (uint32_t at = 0; at < alone; at++) {
        uint32_t steps = steps_with_one_held_up(at, &otherwise);
        if (steps > alone + DOUBTED + 4 || otherwise + DOUBTED < usual + 2)
            fail_msg("step %u held up: %u steps, %u of 16 rows; %u and %u else", at, steps, otherwise, alone, usual);
    }
}

/* An answer whose step takes 10 ms, then a prompt beside which it takes longer. */
static void begin_slices(struct bench *b, struct test_job *victim, struct test_job *prompt, double stretch, double beside)
{
    begin(b, 400, 4, 10, 128, stretch);
    per_call = 0.01, per_token = 0;
    make_job(victim, 2, 4, 150);
    submit(b, victim);
    for (int i = 0; i < 8; i++) step(b);
    make_job(prompt, 4, 240, 2);
    submit(b, prompt);
    per_call = beside, per_token = 0.0005;
}

/*
 * Prompts in slices. An answer's step takes 10 ms alone and 15 beside a prompt: at a stretch of 3 a step has 30 ms, of which 15 are the
 * prompt's, 30 tokens of half a millisecond.
 */
static void test_slices(void **state)
{
    (void)state;
    struct bench b;
    static struct test_job victim, prompt;
    apart = true;
    begin_slices(&b, &victim, &prompt, 3, 0.0145);
    uint32_t steps = 0;
    double longest = 0, before = now;
    for (; !prompt.n; steps++) {
        uint32_t had = victim.n;
        double begun = now;
        step(&b);
        assert_int_equal(victim.n, had + 1);
        if (steps > 2 && now - begun > longest) longest = now - begun;
    }
    assert_true(longest < 0.0305);
    assert_true(steps >= 8 && steps <= 11); /* 240 tokens; a batch of 128 ends within a slice */
    assert_true((now - before) * 0.4 < 240 * per_token);
    finish_both(&b, &victim, &prompt);
    /* where answers take three times as long beside a prompt, it gets a quarter of that all the same */
    begin_slices(&b, &victim, &prompt, 2, 0.03);
    for (steps = 0; !prompt.n; steps++) step(&b);
    assert_true(steps >= 16 && steps <= 24); /* 7.5 ms: 15 tokens a step */
    finish_both(&b, &victim, &prompt);
    apart = false;
}

static int setup(void **state)
{
    (void)state;
    vocab_begin(&fx);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_end(&fx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answers_in_a_crowd),
        cmocka_unit_test(test_clients_share),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_cancelled_within_a_step),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_budget_finds_sizes_that_suit),
        cmocka_unit_test(test_budget_outlives_a_long_step),
        cmocka_unit_test(test_slices),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
