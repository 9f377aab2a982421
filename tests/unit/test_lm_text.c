// SPDX-License-Identifier: Apache-2.0
/* The text section from the compiler to the runtime: tokens, conversations, damage. */
#include <math.h>

#include "tests/lm/vocab.h"

#include "compiler/text_section.h"
#include "runtime/abi/random.h"
#include "runtime/lm/lm_text.h"

static const char chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{{ who or 'assistant' }}\n{% endif %}";
static const char strict[] =
    "{{ bos_token }}{% if messages[0].role != 'user' %}{{ raise_exception('user first') }}"
    "{% endif %}{{ messages[0].content }}{{ eos_token }}";
static const char broken[] = "a\n{% if %}";

struct section {
    struct fixture f;
    struct text_section_desc d;
    struct text_template templates[3];
    const uint8_t *blob;
    size_t n;
    void *aligned;
    struct lm_text text;
};

static struct tok_text text_of(const char *s) { return (struct tok_text){s, strlen(s)}; }

static void describe(struct section *s)
{
    memset(s, 0, sizeof *s);
    fixture_begin(&s->f, "llama", NULL);
    vocab_describe(&s->f);
    text_section_desc_init(&s->d);
    s->d.vocab = s->f.desc;
    s->templates[0] = (struct text_template){text_of("default"), text_of(chatml)};
    s->templates[1] = (struct text_template){text_of("strict"), text_of(strict)};
    s->templates[2] = (struct text_template){text_of("broken"), text_of(broken)};
    s->d.templates = s->templates, s->d.n_templates = 3;
    s->d.vocab_rows = N_VOCAB + 3, s->d.page_tokens = 32, s->d.ctx_train = 2048;
    s->d.temp = 0.6, s->d.top_k = 20;
}

static bool build(struct section *s)
{
    return text_section_build(&s->f.arena, &s->d, &s->f.sink, "m.gguf", &s->blob, &s->n);
}

static void open_section(struct section *s)
{
    struct infr_status st;
    if (!build(s)) {
        diag_print_text(&s->f.sink, stderr);
        fail_msg("no section");
    }
    s->aligned = aligned_alloc(64, (s->n + 63) & ~(size_t)63);
    memcpy(s->aligned, s->blob, s->n);
    if (lm_text_open(s->aligned, s->n, &s->text, &st)) fail_msg("%s", st.note);
}

static void end(struct section *s)
{
    free(s->aligned);
    fixture_end(&s->f);
}

static void test_section(void **state)
{
    (void)state;
    struct section s;
    describe(&s);
    open_section(&s);
    /* the broken template is a warning */
    assert_int_equal(s.f.sink.error_count, 0);
    assert_int_equal(s.f.sink.items.n, 1);
    assert_int_equal(s.f.sink.items.v[0].severity, DIAG_SEV_WARNING);
    assert_non_null(strstr(s.f.sink.items.v[0].message, "chat template 'broken', line 2"));
    assert_int_equal(s.text.h.vocab, N_VOCAB + 3);
    assert_int_equal(s.text.h.page_tokens, 32);
    assert_int_equal(s.text.h.ctx_train, 2048);
    assert_int_equal(s.text.h.flags, INFR_TEXT_CAUSAL);
    assert_true(s.text.h.temp == 0.6f && isnan(s.text.h.top_p) && s.text.h.top_k == 20);
    /* the same description gives the same bytes */
    const uint8_t *first = s.blob;
    size_t n = s.n;
    assert_true(build(&s));
    assert_int_equal(s.n, n);
    assert_memory_equal(s.blob, first, n);
    end(&s);
}

static void test_tokens(void **state)
{
    (void)state;
    struct section s;
    struct infr_status st;
    uint32_t *ids;
    size_t n, n_text;
    char *text;
    describe(&s);
    open_section(&s);
    static const char words[] = "hello world \u20ac \U0001f600 z";
    assert_int_equal(lm_text_encode(&s.text, words, strlen(words), TOK_ENCODE_BOS, &ids, &n, &st),
                     0);
    assert_int_equal(ids[0], V_BOS);
    assert_int_equal(lm_text_decode(&s.text, ids, n, 0, &text, &n_text, &st), 0);
    assert_string_equal(text, words);
    free(text);
    const uint32_t bad = 70000;
    assert_int_equal(lm_text_decode(&s.text, &bad, 1, 0, &text, &n_text, &st), INFR_BAD_INPUT);
    free(ids);
    assert_int_equal(lm_text_encode(&s.text, "", 0, 0, &ids, &n, &st), 0);
    assert_int_equal(n, 0);
    free(ids);
    end(&s);
}

/* What a conversation becomes, as text with its control tokens. */
static char *written(struct section *s, const char *name, const struct lm_chat *c,
                     const char *kwargs, struct infr_status *st)
{
    uint32_t *ids;
    size_t n, n_text;
    char *text;
    if (lm_chat_tokens(&s->text, name, c, kwargs, &ids, &n, st)) return NULL;
    assert_int_equal(lm_text_decode(&s->text, ids, n, TOK_DECODE_SPECIAL, &text, &n_text, st), 0);
    free(ids);
    return text;
}

static void test_conversation(void **state)
{
    (void)state;
    struct section s;
    struct lm_chat c = {0};
    struct infr_status st;
    describe(&s);
    open_section(&s);
    assert_int_equal(lm_chat_add(&c, "system", "be good", 7, &st), 0);
    assert_int_equal(lm_chat_add(&c, "user", "hello", 5, &st), 0);
    char *text = written(&s, NULL, &c, NULL, &st);
    assert_non_null(text);
    assert_string_equal(text, "<|im_start|> system\nbe good<|im_end|> \n<|im_start|> user\nhello"
                              "<|im_end|> \n<|im_start|> assistant\n");
    free(text);
    /* control tokens are tokens, not their letters */
    uint32_t *ids;
    size_t n;
    assert_int_equal(lm_chat_tokens(&s.text, NULL, &c, NULL, &ids, &n, &st), 0);
    assert_int_equal(ids[0], V_IM_START);
    free(ids);
    text = written(&s, "default", &c, "{\"who\": \"bob\"}", &st);
    assert_non_null(strstr(text, "<|im_start|> bob\n"));
    free(text);
    assert_null(written(&s, NULL, &c, "{\"who\": ", &st));
    assert_int_equal(st.code, INFR_BAD_INPUT);
    assert_null(written(&s, NULL, &c, "[1]", &st));
    assert_string_equal(st.note, "template arguments are a JSON object");
    /* a template's own message, no other format instead */
    assert_null(written(&s, "strict", &c, NULL, &st));
    assert_string_equal(st.note, "the chat template says: user first");
    lm_chat_drop(&c, 0, 1);
    text = written(&s, "strict", &c, NULL, &st);
    assert_string_equal(text, "<s> hello</s>");
    free(text);
    assert_null(written(&s, "broken", &c, NULL, &st));
    assert_non_null(strstr(st.note, "does not compile: line 2"));
    assert_null(written(&s, "none", &c, NULL, &st));
    assert_string_equal(st.note, "no chat template 'none'; there are: default strict broken");
    assert_int_equal(lm_chat_add(&c, "user", "\xff", 1, &st), 0);
    assert_null(written(&s, NULL, &c, NULL, &st));
    assert_string_equal(st.note, "message 2 is not UTF-8");
    lm_chat_cut(&c, 0);
    assert_int_equal(c.n, 0);
    lm_chat_deinit(&c);
    end(&s);
}

static void test_no_template(void **state)
{
    (void)state;
    struct section s;
    struct jinja_template t;
    struct infr_status st;
    describe(&s);
    s.d.n_templates = 0;
    open_section(&s);
    assert_int_equal(lm_text_template(&s.text, NULL, &t, &st), INFR_BAD_INPUT);
    assert_string_equal(st.note, "this model has no chat template; use generate");
    end(&s);
}

#define REFUSED(change)                        \
    {                                          \
        struct section s;                      \
        describe(&s);                          \
        change;                                \
        assert_false(build(&s));               \
        assert_true(s.f.sink.error_count > 0); \
        end(&s);                               \
    }

static void test_refused(void **state)
{
    (void)state;
    REFUSED(s.d.vocab_rows = N_VOCAB - 1)
    REFUSED(s.d.vocab_rows = -1)
    REFUSED(s.d.page_tokens = 1 << 20)
    REFUSED(s.d.ctx_train = INT64_MAX)
    REFUSED(s.d.window = -5)
    REFUSED(s.d.pooling = INFR_POOLING_COUNT)
    REFUSED(s.d.embedding_dims = 1 << 30)
    REFUSED(s.d.n_templates = 65)
    REFUSED(s.d.vocab.n_tokens = 0)
    /* a recommendation that makes no sense is left out */
    struct section s;
    describe(&s);
    s.d.temp = -3, s.d.min_p = 7, s.d.top_k = INT64_MAX;
    open_section(&s);
    assert_true(isnan(s.text.h.temp) && isnan(s.text.h.min_p));
    assert_int_equal(s.text.h.top_k, -1);
    end(&s);
}

/* A damaged section is refused, or what it gives stays inside of it (the sanitizer looks). */
static void test_damage(void **state)
{
    (void)state;
    struct section s;
    struct lm_text t;
    struct lm_chat c = {0};
    struct infr_status st;
    describe(&s);
    open_section(&s);
    assert_int_equal(lm_chat_add(&c, "user", "hello", 5, &st), 0);
    uint8_t *copy = aligned_alloc(64, (s.n + 63) & ~(size_t)63);
    size_t head = sizeof(struct infr_text_header) + 3 * sizeof(struct infr_text_template);
    int opened = 0;
    for (uint64_t k = 0; k < 4000; k++) {
        memcpy(copy, s.aligned, s.n);
        size_t limit = k % 2 ? head : s.n, n = s.n;
        for (int i = 0; i < 1 + (int)(k % 4); i++)
            copy[infr_random_u64(5, 0, 10 * k + (uint64_t)i) % limit] ^=
                (uint8_t)(1u << infr_random_u64(5, 1, 10 * k + (uint64_t)i) % 8);
        if (k % 7 == 0) n = (size_t)(infr_random_u64(5, 2, k) % s.n);
        if (lm_text_open(copy, n, &t, &st)) continue;
        opened++;
        uint32_t *ids;
        size_t n_ids;
        if (!lm_chat_tokens(&t, NULL, &c, NULL, &ids, &n_ids, &st)) free(ids);
    }
    assert_true(opened > 500);
    assert_int_equal(lm_text_open(copy, 0, &t, &st), INFR_BAD_INPUT);
    assert_string_equal(st.note, "this engine has no tokenizer");
    lm_chat_deinit(&c);
    free(copy);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_section),      cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_conversation), cmocka_unit_test(test_no_template),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
