// SPDX-License-Identifier: Apache-2.0
/*
 * Pages of the KV cache. The random test keeps a pool of "values" as a model would: what is stored
 * at a position is a hash of all tokens up to it, and every position that a token looks at must
 * hold the hash of its own sequence's tokens - whoever wrote it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/abi/random.h"
#include "runtime/lm/lm_batch.h"
#include "runtime/lm/lm_pages.h"

enum { P = 4 };

static struct lm_pages *make(uint32_t n_pages, uint32_t window, uint32_t max_pages)
{
    struct lm_pages_options o = {n_pages, P, window, max_pages, 12345, false};
    struct lm_pages *p;
    struct infr_status st;
    if (lm_pages_create(&o, &p, &st)) fail_msg("%s", st.note);
    return p;
}

static struct lm_page_counts counts(const struct lm_pages *p)
{
    struct lm_page_counts c;
    lm_pages_get_counts(p, &c);
    return c;
}

#define ASSERT_COUNTS(p, h, c, f)               \
    {                                           \
        struct lm_page_counts now_ = counts(p); \
        assert_int_equal(now_.held, (h));       \
        assert_int_equal(now_.cached, (c));     \
        assert_int_equal(now_.free, (f));       \
    }

static void compute(struct lm_pages *p, struct lm_seq *s, uint32_t end)
{
    assert_true(lm_seq_reserve(p, s, end));
    lm_seq_commit(p, s, end);
}

static const uint32_t text[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static void test_sharing(void **state)
{
    (void)state;
    struct lm_pages *p = make(8, 0, 4);
    struct lm_seq a, b;
    assert_int_equal(lm_seq_init(p, &a, NULL), 0);
    assert_int_equal(lm_seq_init(p, &b, NULL), 0);
    lm_seq_begin(p, &a, 0, text, 10, true);
    assert_int_equal(a.n_computed, 0);
    compute(p, &a, 10);
    ASSERT_COUNTS(p, 3, 0, 5);
    /* two full pages can be found, the third is private; never the last token */
    assert_int_equal(lm_pages_find(p, 0, text, 16), 8);
    assert_int_equal(lm_pages_find(p, 0, text, 9), 8);
    assert_int_equal(lm_pages_find(p, 0, text, 8), 4);
    assert_int_equal(lm_pages_find(p, 0, text, 4), 0);
    assert_int_equal(lm_pages_find(p, 1, text, 16), 0); /* another salt */
    lm_seq_begin(p, &b, 0, text, 12, true);
    assert_int_equal(b.n_computed, 8);
    assert_int_equal(b.page_of[0], a.page_of[0]);
    assert_int_equal(b.page_of[1], a.page_of[1]);
    compute(p, &b, 12);
    ASSERT_COUNTS(p, 4, 0, 4);
    lm_seq_release(p, &a);
    ASSERT_COUNTS(p, 3, 0, 5);
    lm_seq_release(p, &b);
    ASSERT_COUNTS(p, 0, 3, 5);
    assert_int_equal(lm_pages_find(p, 0, text, 16), 12);
    lm_pages_drop_cached(p);
    ASSERT_COUNTS(p, 0, 0, 8);
    assert_int_equal(lm_pages_find(p, 0, text, 16), 0);
    lm_seq_deinit(&a);
    lm_seq_deinit(&b);
    lm_pages_destroy(p);
}

/* Two sequences compute the same page at the same time: one copy stays. */
static void test_same_page_twice(void **state)
{
    (void)state;
    struct lm_pages *p = make(8, 0, 4);
    struct lm_seq a, b;
    lm_seq_init(p, &a, NULL);
    lm_seq_init(p, &b, NULL);
    lm_seq_begin(p, &a, 0, text, 6, true);
    lm_seq_begin(p, &b, 0, text, 7, true);
    assert_true(lm_seq_reserve(p, &a, 6));
    assert_true(lm_seq_reserve(p, &b, 7));
    ASSERT_COUNTS(p, 4, 0, 4);
    lm_seq_commit(p, &a, 6);
    lm_seq_commit(p, &b, 7);
    assert_int_equal(a.page_of[0], b.page_of[0]);
    assert_int_not_equal(a.page_of[1], b.page_of[1]);
    ASSERT_COUNTS(p, 3, 0, 5);
    lm_seq_release(p, &a);
    lm_seq_release(p, &b);
    ASSERT_COUNTS(p, 0, 1, 7);
    lm_seq_deinit(&a);
    lm_seq_deinit(&b);
    lm_pages_destroy(p);
}

/* Least recently used first, and a page never before those below it. */
static void test_eviction(void **state)
{
    (void)state;
    struct lm_pages *p = make(4, 0, 4);
    struct lm_seq a;
    const uint32_t other[] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
    lm_seq_init(p, &a, NULL);
    lm_seq_begin(p, &a, 0, text, 12, true); /* three pages */
    compute(p, &a, 12);
    lm_seq_release(p, &a);
    ASSERT_COUNTS(p, 0, 3, 1);
    lm_seq_begin(p, &a, 0, other, 5, true); /* two: one free, one evicted */
    compute(p, &a, 5);
    assert_int_equal(lm_pages_find(p, 0, text, 16), 8);
    lm_seq_release(p, &a);
    ASSERT_COUNTS(p, 0, 3, 1);
    lm_seq_begin(p, &a, 0, text, 9, true); /* touches the older two */
    assert_int_equal(a.n_found, 8);
    compute(p, &a, 9);
    lm_seq_release(p, &a);
    lm_seq_begin(p, &a, 7, other, 5, true); /* two: the free one and that of `other` */
    compute(p, &a, 5);
    assert_int_equal(lm_pages_find(p, 0, other, 5), 0);
    assert_int_equal(lm_pages_find(p, 0, text, 16), 8);
    assert_false(lm_seq_reserve(p, &a, 17)); /* asks for more than there is; nothing was taken */
    lm_seq_release(p, &a);
    ASSERT_COUNTS(p, 0, 3, 1);
    assert_int_equal(counts(p).evictions, 2);
    lm_seq_deinit(&a);
    lm_pages_destroy(p);
}

static void test_cut(void **state)
{
    (void)state;
    struct lm_pages *p = make(8, 0, 4);
    struct lm_seq a;
    lm_seq_init(p, &a, NULL);
    lm_seq_begin(p, &a, 0, text, 15, true);
    compute(p, &a, 15);
    lm_seq_cut(p, &a, 13); /* inside its own page */
    assert_int_equal(a.n_computed, 13);
    assert_int_equal(a.n_pages, 4);
    lm_seq_cut(p, &a, 6); /* inside a published one: back to its beginning */
    assert_int_equal(a.n_tokens, 6);
    assert_int_equal(a.n_computed, 4);
    assert_int_equal(a.n_pages, 1);
    assert_true(lm_seq_append(&a, 99));
    compute(p, &a, 7);
    assert_int_equal(lm_pages_find(p, 0, text, 16), 12); /* the old text is still there */
    lm_seq_cut(p, &a, 0);
    assert_int_equal(a.n_computed, 0);
    lm_seq_release(p, &a);
    ASSERT_COUNTS(p, 0, 3, 5);
    lm_seq_deinit(&a);
    lm_pages_destroy(p);
}

static void test_window(void **state)
{
    (void)state;
    struct lm_pages *p = make(6, 6, 64);
    struct lm_seq a, b;
    lm_seq_init(p, &a, NULL);
    lm_seq_init(p, &b, NULL);
    lm_seq_begin(p, &a, 0, text, 16, true);
    for (uint32_t end = 1; end <= 16; end++) {
        compute(p, &a, end);
        /* position `end` looks at [end - 5, end]: at most 3 pages, when it lies in them */
        assert_true(counts(p).held <= 3);
    }
    assert_int_equal(a.first_page, (16 - 6 + 1) / P);
    assert_int_equal(a.page_of[0], LM_NONE);
    lm_seq_release(p, &a);
    ASSERT_COUNTS(p, 0, 4, 2);
    lm_seq_begin(p, &b, 0, text, 16, true); /* 12 tokens; of them only pages 1 and 2 are needed */
    assert_int_equal(b.n_computed, 12);
    assert_int_equal(b.first_page, 1);
    lm_seq_release(p, &b);
    /* a long text of which the beginning was evicted: found by what the window still needs */
    uint32_t longer[40];
    for (uint32_t i = 0; i < 40; i++) longer[i] = 100 + i;
    lm_seq_begin(p, &a, 0, longer, 40, true);
    for (uint32_t end = 1; end <= 40; end++) compute(p, &a, end);
    lm_seq_release(p, &a);
    assert_true(counts(p).evictions > 0);
    assert_int_equal(lm_pages_find(p, 0, longer, 40), 36);
    assert_int_equal(lm_pages_find(p, 0, longer, 12), 0); /* its pages are gone */
    lm_pages_drop_cached(p);
    ASSERT_COUNTS(p, 0, 0, 6);
    assert_int_equal(lm_pages_find(p, 0, longer, 40), 0);
    lm_seq_deinit(&a);
    lm_seq_deinit(&b);
    lm_pages_destroy(p);
}

static void test_impossible(void **state)
{
    (void)state;
    struct lm_pages *p;
    struct infr_status st;
    struct lm_pages_options o = {0, P, 0, 4, 0, false};
    assert_int_equal(lm_pages_create(&o, &p, &st), INFR_BAD_INPUT);
    assert_null(p);
    o.n_pages = 4, o.max_pages = UINT32_MAX;
    assert_int_equal(lm_pages_create(&o, &p, &st), INFR_BAD_INPUT);
    o.max_pages = 4, o.page_tokens = 0;
    assert_int_equal(lm_pages_create(&o, &p, &st), INFR_BAD_INPUT);
}

/* ---- random ---- */

enum { SEQS = 5, MOST = 12 * P };

struct world {
    struct lm_pages *p;
    struct lm_seq seq[SEQS];
    bool live[SEQS];
    uint64_t *values; /* of the pool */
    uint32_t n_pages, window;
    uint64_t seed, n;
};

static uint32_t pick(struct world *w, uint32_t below)
{
    return (uint32_t)infr_random_int(w->seed, 1, w->n++, below);
}

static uint64_t history_hash(const struct lm_seq *s, uint32_t position)
{
    uint64_t h = s->salt + 1;
    for (uint32_t i = 0; i <= position; i++) h = (h ^ s->tokens[i]) * 0x100000001b3ull;
    return h;
}

/* The model: reads what a token looks at, then stores its own. */
static void forward(struct world *w, struct lm_seq *s, uint32_t begin, uint32_t end)
{
    struct lm_batch b;
    assert_int_equal(lm_batch_init(&b, end - begin, 1, 1, 16, P, NULL), 0);
    lm_batch_add(&b, s, begin, end, end - 1);
    for (uint32_t row = 0; row < b.n_tokens; row++) {
        uint32_t at = (uint32_t)b.positions[row];
        w->values[b.slots[row]] = history_hash(s, at);
        uint32_t from = w->window && at + 1 > w->window ? at + 1 - w->window : 0;
        for (uint32_t k = from; k <= at; k++)
            assert_true(w->values[b.page_table[k / P] * P + k % P] == history_hash(s, k));
    }
    lm_batch_deinit(&b);
}

static void check(struct world *w)
{
    struct lm_page_counts c = counts(w->p);
    uint8_t seen[64] = {0};
    uint32_t held = 0;
    for (int i = 0; i < SEQS; i++)
        for (uint32_t k = w->seq[i].first_page; w->live[i] && k < w->seq[i].n_pages; k++) {
            assert_true(w->seq[i].page_of[k] < w->n_pages);
            if (!seen[w->seq[i].page_of[k]]++) held++;
        }
    assert_int_equal(c.held, held);
    assert_int_equal(c.held + c.cached + c.free, w->n_pages);
}

static void act(struct world *w)
{
    int i = (int)pick(w, SEQS);
    struct lm_seq *s = &w->seq[i];
    uint32_t what = pick(w, 10);
    if (!w->live[i]) {
        uint32_t tokens[MOST], n = 1 + pick(w, MOST - 1), differ = pick(w, MOST);
        for (uint32_t k = 0; k < n; k++) tokens[k] = k < differ ? k : pick(w, 2);
        lm_seq_begin(w->p, s, pick(w, 2), tokens, n, pick(w, 5) > 0);
        w->live[i] = true;
    } else if (what == 0) {
        lm_seq_release(w->p, s);
        w->live[i] = false;
    } else if (what == 1) {
        lm_seq_cut(w->p, s, pick(w, s->n_tokens + 1));
        if (!s->n_tokens) lm_seq_append(s, 0);
    } else if (what == 2 && !s->n_pages) {
        lm_seq_search(w->p, s);
    } else if (what == 3) {
        lm_seq_release(w->p, s); /* preempted; it goes on later */
    } else {
        if (s->n_computed == s->n_tokens && !lm_seq_append(s, pick(w, 3))) return;
        uint32_t end = s->n_computed + 1 + pick(w, s->n_tokens - s->n_computed);
        if (!lm_seq_reserve(w->p, s, end)) return;
        forward(w, s, s->n_computed, end);
        lm_seq_commit(w->p, s, end);
    }
}

static void test_random(void **state)
{
    (void)state;
    static const uint32_t windows[] = {0, 1, 3, 4, 7, 16}, sizes[] = {12, 20, 60};
    for (uint32_t k = 0; k < 18; k++) {
        struct world w = {.window = windows[k % 6], .n_pages = sizes[k / 6], .seed = 77 + k};
        w.p = make(w.n_pages, w.window, 12);
        w.values = calloc((size_t)w.n_pages * P, sizeof *w.values);
        for (int i = 0; i < SEQS; i++) assert_int_equal(lm_seq_init(w.p, &w.seq[i], NULL), 0);
        for (int step = 0; step < 4000; step++) {
            act(&w);
            check(&w);
        }
        assert_true(counts(w.p).tokens_found > 0);
        for (int i = 0; i < SEQS; i++) {
            if (w.live[i]) lm_seq_release(w.p, &w.seq[i]);
            lm_seq_deinit(&w.seq[i]);
        }
        assert_int_equal(counts(w.p).held, 0);
        lm_pages_drop_cached(w.p);
        ASSERT_COUNTS(w.p, 0, 0, w.n_pages);
        free(w.values);
        lm_pages_destroy(w.p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharing),  cmocka_unit_test(test_same_page_twice),
        cmocka_unit_test(test_eviction), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_window),   cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
