// SPDX-License-Identifier: Apache-2.0
/*
 * Requests to a server of a language model: the first byte chooses one of its endpoints, the rest is the body. The model is a fake one of
 * a few hundred tokens, so that everything else runs: fields, conversations and templates, tools, grammars, sampling, streams.
 */
#define _GNU_SOURCE
#include "tests/fuzz/server.h"

#include "compiler/text_section.h"
#include "tests/lm/fake_model.h"
#include "tests/unit/test_rt_plan.h"

enum { CONTROLS = 6, BYTES = CONTROLS, WORDS = BYTES + 256, CONTEXT = 1024, PAGE = 16, SEQUENCES = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char template[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n"
    "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if enable_thinking %}<think>{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* The same for every input: what a model file would say. */
static struct lm_text *text_of_model(void)
{
    static const char *const words[] = {"\u2581", "a", "b", "e", "n", "t", "1", "{", "}", "[", "]", "\"", ":", ",", "\n", "true", "null",
                                        "\"a\"", "<think>", "</think>", "<tool_call>", "</tool_call>", "\u00e9", "\u20ac", "\U0001f600"};
    static const char *const controls[CONTROLS] = {"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<pad>"};
    enum { N = WORDS + sizeof words / sizeof *words };
    static struct lm_text text;
    static struct arena a;
    if (text.base) return &text;
    struct diag_sink sink;
    struct text_section_desc d;
    const uint8_t *blob;
    size_t n;
    struct tok_text *t;
    int32_t *types;
    float *scores;
    arena_init(&a);
    diag_init(&sink);
    t = arena_calloc(&a, N, sizeof *t), types = arena_calloc(&a, N, sizeof *types), scores = arena_calloc(&a, N, sizeof *scores);
    for (int i = 0; i < N; i++) {
        const char *s = i < BYTES ? controls[i] : i < WORDS ? arena_printf(&a, "<0x%02X>", i - BYTES) : words[i - WORDS];
        t[i] = (struct tok_text){s, strlen(s)};
        types[i] = !i ? TOK_TYPE_UNKNOWN : i < BYTES ? TOK_TYPE_CONTROL : i < WORDS ? TOK_TYPE_BYTE : TOK_TYPE_NORMAL;
        scores[i] = (float)(i < WORDS ? -1000 : (int)t[i].n);
    }
    text_section_desc_init(&d);
    check(tok_desc_init(&d.vocab, "llama", NULL, &sink, "fuzz"));
    d.vocab.tokens = t, d.vocab.n_tokens = N, d.vocab.types = types, d.vocab.scores = scores;
    tok_desc_key(&d.vocab, "bos_token_id", 1);
    tok_desc_key(&d.vocab, "eos_token_id", 2);
    tok_desc_key(&d.vocab, "unknown_token_id", 0);
    tok_desc_key(&d.vocab, "add_bos_token", 1);
    struct text_template chat = {{"default", 7}, {template, sizeof template - 1}};
    d.templates = &chat, d.n_templates = 1, d.causal = true;
    d.vocab_rows = N, d.page_tokens = PAGE, d.ctx_train = CONTEXT;
    check(text_section_build(&a, &d, &sink, "fuzz", &blob, &n));
    void *aligned = aligned_alloc(64, (n + 63) & ~(size_t)63);
    if (!aligned) exit(3);
    memcpy(aligned, blob, n);
    check(!lm_text_open(aligned, n, &text, NULL));
    diag_deinit(&sink);
    return &text;
}

static struct infr_engine *engine(void)
{
    static struct infr_engine *e;
    static struct test_plan plan;
    struct infr_options none = {.device = "none"};
    struct infr_image image = {.plan = &plan, .plan_bytes = sizeof plan, .kernels = (const void *)tp_table, .weights = tp_weights,
                               .weights_bytes = sizeof tp_weights};
    if (e) return e;
    tp_init(&plan);
    if (infr_engine_open(&image, &none, &e, NULL)) abort();
    return e;
}

/* The path of POST route number k among those, modulo their number. */
static const char *path_of(unsigned k)
{
    size_t n = 0;
    for (size_t i = 0; i < n_api_routes; i++) n += !strcmp(api_routes[i].method, "POST");
    k %= n;
    for (size_t i = 0;; i++)
        if (!strcmp(api_routes[i].method, "POST") && !k--) return api_routes[i].path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct server s;
    struct client c = {0};
    struct fake_model f;
    if (size < 1 || size > 1 << 16) return 0;
    s = (struct server){.o = {.model_name = "m", .any_model = true, .receipts = data[0] >> 7, .max_queue = 64, .parallel = SEQUENCES,
                              .chunk = 32, .predict = 12},
                        .routes = api_routes, .n_routes = n_api_routes, .on_wake = api_wake, .drain = api_drain};
    s.x.e = engine(), s.x.text = *text_of_model(), s.x.n_ctx = CONTEXT;
    fake_init(&f, s.x.text.h.vocab, CONTEXT / PAGE * SEQUENCES, PAGE, 0);
    f.m.ctx_train = CONTEXT;
    s.x.model = &f.m;
    lm_sampling_init(&s.sampling);
    struct lm_generator_options o = {.n_ctx = CONTEXT, .max_seqs = SEQUENCES, .chunk = 32, .hash_seed = 1, .keep_others = true};
    struct worker_options w = {.sched = {s.o.max_queue, SEQUENCES, 32, 0}};
    if (lm_generator_create(s.x.model, &s.x.text.tok, &o, &s.x.g, NULL)) abort();
    w.generator = s.x.g;
    if (worker_create(&w, &s.worker, NULL)) exit(3);
    s.wake_fd = worker_wake_fd(s.worker);
    char *text = request_of(path_of(data[0] & 127), "", data + 1, size - 1, &c.n);
    c.in = text;
    serve_client(&s, &c, true);
    free(text);
    worker_destroy(s.worker);
    api_grammars_deinit(&s);
    lm_generator_destroy(s.x.g);
    fake_deinit(&f);
    return 0;
}
