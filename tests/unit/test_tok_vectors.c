// SPDX-License-Identifier: Apache-2.0
/*
 * Published vectors and public bug reports: text and the ids that the models' own tokenizers give.
 *
 * The vectors (llama.cpp's ggml-vocab-*.gguf with .inp and .out) are not ours and not copied here;
 * they are looked for in
 * ../shared/data/tokenizers beside the source folder. Texts are divided by a line
 * "__ggml_vocab_test__".
 */
#include <jansson.h>

#include "tests/tok/fixture.h"
#include "tests/tok/gguf_vocab.h"

static const char *source_folder(void)
{
    const char *s = getenv("INFC_SRC");
    return s != NULL ? s : ".";
}

static bool open_vocab(struct arena *a, const char *path, struct tok *t)
{
    struct diag_sink sink;
    const uint8_t *blob;
    size_t n, n_blob;
    const uint8_t *file = gguf_read_file(a, path, &n);
    if (file == NULL) return false;
    diag_init(&sink);
    if (!gguf_build_vocab(a, file, n, &sink, &blob, &n_blob)) {
        diag_print_text(&sink, stderr);
        fail_msg("%s", path);
    }
    diag_deinit(&sink);
    assert_int_equal(tok_open(blob, n_blob, t), TOK_OK);
    return true;
}

static void check_vectors(const char *name)
{
    static const char divider[] = "\n__ggml_vocab_test__\n";
    char path[1024];
    struct arena a;
    struct tok t;
    size_t n_in = 0, n_out = 0;
    arena_init(&a);
    snprintf(path, sizeof path, "%s/../shared/data/tokenizers/ggml-vocab-%s.gguf", source_folder(),
             name);
    if (!open_vocab(&a, path, &t)) {
        arena_deinit(&a);
        print_message("no %s\n", path);
        skip();
    }
    strcat(path, ".inp");
    char *in = (char *)gguf_read_file(&a, path, &n_in);
    strcpy(strrchr(path, '.'), ".out");
    char *out = (char *)gguf_read_file(&a, path, &n_out);
    assert_non_null(in);
    assert_non_null(out);
    size_t checked = 0;
    for (char *at = in, *line = out; at <= in + n_in; checked++) {
        char *end = strstr(at, divider), *eol = strchr(line, '\n');
        size_t n = end != NULL ? (size_t)(end - at) : (size_t)(in + n_in - at);
        if (end == NULL && n > 0 && at[n - 1] == '\n') n--;
        if (eol != NULL) *eol = '\0';
        while (*line == ' ') line++;
        expect_ids(&t, at, n, 0, line);
        if (end == NULL || eol == NULL) break;
        at = end + sizeof divider - 1;
        line = eol + 1;
    }
    assert_true(checked >= 40);
    arena_deinit(&a);
}

#define VECTORS(name, file) \
    static void vectors_##name(void **state) \
    { \
        (void)state; \
        check_vectors(file); \
    }
VECTORS(bert_bge, "bert-bge")
VECTORS(command_r, "command-r")
VECTORS(deepseek_coder, "deepseek-coder")
VECTORS(deepseek_llm, "deepseek-llm")
VECTORS(falcon, "falcon")
VECTORS(gemma_4, "gemma-4")
VECTORS(gpt_2, "gpt-2")
VECTORS(llama_bpe, "llama-bpe")
VECTORS(llama_spm, "llama-spm")
VECTORS(mpt, "mpt")
VECTORS(phi_3, "phi-3")
VECTORS(qwen2, "qwen2")
VECTORS(qwen35, "qwen35")
VECTORS(refact, "refact")
VECTORS(starcoder, "starcoder")

/* ---- public bug reports
 * ---------------------------------------------------------------------------- */

static uint32_t *json_ids(json_t *list, size_t *n)
{
    *n = json_array_size(list);
    uint32_t *ids = malloc((*n + 1) * sizeof *ids);
    for (size_t i = 0; i < *n; i++) ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

static void expect_item_ids(const struct tok *t, json_t *item, unsigned flags)
{
    json_t *text = json_object_get(item, "text");
    size_t n, count;
    uint32_t *want = json_ids(json_object_get(item, "ids"), &n);
    uint32_t *got =
        encode_bytes(t, json_string_value(text), json_string_length(text), flags, &count);
    assert_int_equal(count, n);
    if (n > 0) assert_memory_equal(got, want, n * sizeof *got);
    free(got);
    free(want);
}

static void expect_item_text(const struct tok *t, json_t *item, const char *text)
{
    size_t n;
    uint32_t *ids = json_ids(json_object_get(item, "ids"), &n);
    expect_text(t, ids, n, TOK_DECODE_SPECIAL, text);
    free(ids);
}

static void check_case(const char *id)
{
    char path[1024];
    struct arena a;
    struct tok t;
    json_error_t error;
    json_t *item;
    size_t i;
    arena_init(&a);
    snprintf(path, sizeof path, "%s/tests/tok/cases/%s/vocab.gguf", source_folder(), id);
    assert_true(open_vocab(&a, path, &t));
    strcpy(strrchr(path, '/'), "/tokenize.json");
    json_t *root = json_load_file(path, 0, &error);
    assert_non_null(root);
    unsigned flags = json_is_true(json_object_get(root, "parse_special")) ? TOK_ENCODE_SPECIAL : 0;
    json_t *items = json_object_get(root, "items"), *encode = json_object_get(root, "encode");
    json_array_foreach(encode != NULL ? encode : items, i, item) expect_item_ids(&t, item, flags);
    json_array_foreach(items, i, item)
    {
        const char *decoded = json_string_value(json_object_get(item, "decoded"));
        if (decoded != NULL) expect_item_text(&t, item, decoded);
        if (json_is_true(json_object_get(item, "strict")))
            expect_item_text(&t, item, json_string_value(json_object_get(item, "text")));
    }
    json_decref(root);
    arena_deinit(&a);
}

static void case_line_feeds(void **state)
{
    (void)state;
    check_case("B027");
}
static void case_merge_order(void **state)
{
    (void)state;
    check_case("B028");
}
static void case_byte_pieces(void **state)
{
    (void)state;
    check_case("B030");
}

/* Bytes that are not UTF-8 become U+FFFD, one a maximal ill-formed part; never a literal <0xNN>. */
static void case_byte_pieces_damaged(void **state)
{
    (void)state;
    char path[1024];
    struct arena a;
    struct tok t;
    arena_init(&a);
    snprintf(path, sizeof path, "%s/tests/tok/cases/B030/vocab.gguf", source_folder());
    assert_true(open_vocab(&a, path, &t));
    static const uint32_t lone_lead[] = {263, 243, 162}, bad_mid[] = {198, 172, 258, 266};
    expect_text(&t, lone_lead, 3, 0, "hi\xef\xbf\xbd");
    expect_text(&t, bad_mid, 4, 0, "\xc3\xa9\xef\xbf\xbd.");
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_bert_bge),
        cmocka_unit_test(vectors_command_r),
        cmocka_unit_test(vectors_deepseek_coder),
        cmocka_unit_test(vectors_deepseek_llm),
        cmocka_unit_test(vectors_falcon),
        cmocka_unit_test(vectors_gemma_4),
        cmocka_unit_test(vectors_gpt_2),
        cmocka_unit_test(vectors_llama_bpe),
        cmocka_unit_test(vectors_llama_spm),
        cmocka_unit_test(vectors_mpt),
        cmocka_unit_test(vectors_phi_3),
        cmocka_unit_test(vectors_qwen2),
        cmocka_unit_test(vectors_qwen35),
        cmocka_unit_test(vectors_refact),
        cmocka_unit_test(vectors_starcoder),
        cmocka_unit_test(case_line_feeds),
        cmocka_unit_test(case_merge_order),
        cmocka_unit_test(case_byte_pieces),
        cmocka_unit_test(case_byte_pieces_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
