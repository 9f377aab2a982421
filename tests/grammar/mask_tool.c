// SPDX-License-Identifier: Apache-2.0
/*
 * Masks over a real vocabulary.
 *
 *   mask_tool VOCAB.gguf LINES [--check=N] [--times] [--slow=US]
 *
 * LINES: as for grammar_tool --batch: KIND TAB JSON-STRING-OF-GRAMMAR TAB JSON-ARRAY-OF-TEXTS. Each
 * text is encoded to tokens and walked: before every token a mask is made. While the text fits, the
 * token must be in it. --check=N: bits of N tokens a mask (and of the text's own) are compared with
 * trying the token's bytes. --times: percentiles of processor time in microseconds; --slow: the text
 * before masks that take longer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compiler/tok/token_trie.h"
#include "runtime/grammar/grammar.h"
#include "runtime/text/json_read.h"
#include "runtime/text/tok.h"
#include "tests/tok/gguf_vocab.h"

struct run {
    struct tok tok;
    struct gr_vocab *vocab;
    uint64_t *bits;
    double slow;
    unsigned long n_check, n_masks, n_compared, n_wrong;
    uint64_t random;
    float *times;
    size_t n_times, cap_times;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void note_time(struct run *r, double us)
{
    if (r->n_times == r->cap_times) {
        r->cap_times = r->cap_times ? 2 * r->cap_times : 1024;
        r->times = realloc(r->times, r->cap_times * sizeof *r->times);
    }
    r->times[r->n_times++] = (float)us;
}

static void compare(struct run *r, struct gr_state *s, uint32_t id)
{
    struct tok_info info;
    if (tok_token_info(&r->tok, id, &info) || !info.n_bytes || info.ends_generation ||
        info.n_bytes > 255 || info.type == TOK_TYPE_CONTROL || info.type == TOK_TYPE_UNKNOWN ||
        info.type == TOK_TYPE_UNUSED)
        return;
    bool fits = gr_try(s, (const char *)info.bytes, info.n_bytes) == info.n_bytes;
    r->n_compared++;
    if (fits == (r->bits[id / 64] >> id % 64 & 1)) return;
    r->n_wrong++;
    printf("token %u '%.*s': %s, the mask has it %s\n", id, (int)info.n_bytes,
           (const char *)info.bytes, fits ? "fits" : "does not fit", fits ? "not" : "set");
}

static void make_mask(struct run *r, struct gr_state *s, uint32_t next, const char *text, size_t n)
{
    double start = now_us();
    if (!gr_mask(s, r->vocab, r->bits)) r->n_wrong++;
    start = now_us() - start;
    note_time(r, start);
    if (r->slow > 0 && start > r->slow) printf("%.0f us after %.*s\n", start, (int)n, text);
    r->n_masks++;
    if (next != TOK_NONE) compare(r, s, next);
    for (unsigned long i = 0; i < r->n_check; i++) {
        r->random = r->random * 6364136223846793005u + 1442695040888963407u;
        compare(r, s, (uint32_t)(r->random >> 33) % tok_count(&r->tok));
    }
}

static void walk(struct run *r, struct gr_grammar *g, const char *text, size_t n)
{
    size_t work_bytes, max_ids, count = 0;
    tok_encode_plan(&r->tok, text, n, &work_bytes, &max_ids);
    void *work = malloc(work_bytes + 1);
    uint32_t *ids = malloc((max_ids + 1) * sizeof *ids);
    tok_encode(&r->tok, text, n, TOK_ENCODE_CONTINUED, work, work_bytes, ids, max_ids, &count);
    struct gr_state *s = gr_state_create(g);
    size_t at = 0;
    for (size_t i = 0; i <= count; i++) {
        struct tok_info info = {0};
        make_mask(r, s, i < count ? ids[i] : TOK_NONE, text, at < n ? at : n);
        if (i == count || tok_token_info(&r->tok, ids[i], &info) ||
            !gr_advance(s, (const char *)info.bytes, info.n_bytes))
            break;
        at += info.n_bytes;
    }
    gr_state_destroy(s);
    free(ids);
    free(work);
}

static int kind_of(const char *name)
{
    static const char *const kinds[] = {"schema", "object", "regex", "gbnf", "choice", "lark", "tag"};
    for (int i = 0; i < 7; i++)
        if (!strcmp(name, kinds[i])) return i;
    return 0;
}

static void line_of(struct run *r, char *line)
{
    char *grammar = strchr(line, '\t'), *texts = grammar ? strchr(grammar + 1, '\t') : NULL;
    struct jinja_arena *a = jinja_arena_create((size_t)1 << 30);
    struct jinja_value text, list;
    struct json_read_error je;
    struct gr_grammar *g;
    struct gr_error e;
    if (!texts || !a) exit(3);
    *grammar++ = *texts++ = 0;
    if (!json_read(a, grammar, strlen(grammar), &text, &je) ||
        !json_read(a, texts, strlen(texts), &list, &je))
        exit(3);
    if (gr_compile((enum gr_kind)kind_of(line), text.u.s, text.len, NULL, &g, &e)) {
        for (uint32_t i = 0; i < list.u.list->count; i++)
            walk(r, g, list.u.list->items[i].u.s, list.u.list->items[i].len);
        gr_destroy(g);
    }
    jinja_arena_destroy(a);
}

static int by_size(const void *pa, const void *pb)
{
    float a = *(const float *)pa, b = *(const float *)pb;
    return a < b ? -1 : a > b;
}

static void print_times(struct run *r)
{
    static const double at[] = {0.5, 0.9, 0.99, 0.999, 1};
    qsort(r->times, r->n_times, sizeof *r->times, by_size);
    for (int i = 0; i < 5 && r->n_times; i++) {
        size_t k = (size_t)((double)r->n_times * at[i]);
        printf("p%g %.1f us ", 100 * at[i], (double)r->times[k < r->n_times ? k : r->n_times - 1]);
    }
    putchar('\n');
}

int main(int argc, char **argv)
{
    struct arena arena;
    struct diag_sink sink;
    const uint8_t *blob, *trie;
    size_t n_blob, n_trie, n_file;
    struct run r = {.random = 1};
    bool times = false;
    for (int i = 3; i < argc; i++) {
        if (!strncmp(argv[i], "--check=", 8)) r.n_check = strtoul(argv[i] + 8, NULL, 10);
        if (!strncmp(argv[i], "--slow=", 7)) r.slow = strtod(argv[i] + 7, NULL);
        times |= !strcmp(argv[i], "--times");
    }
    arena_init(&arena);
    diag_init(&sink);
    const uint8_t *file = argc < 3 ? NULL : gguf_read_file(&arena, argv[1], &n_file);
    if (!file || !gguf_build_vocab(&arena, file, n_file, &sink, &blob, &n_blob)) return 3;
    token_trie_build(&arena, blob, &trie, &n_trie);
    if (tok_open(blob, n_blob, &r.tok) || !(r.vocab = gr_vocab_create(trie, n_trie))) return 3;
    r.bits = calloc(gr_vocab_tokens(r.vocab) / 64 + 1, sizeof *r.bits);
    FILE *f = fopen(argv[2], "r");
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; f && (n = getline(&line, &cap, f)) > 0;) {
        if (line[n - 1] == '\n') line[n - 1] = 0;
        line_of(&r, line);
    }
    printf("%u tokens, trie %zu bytes: %lu masks, %lu bits compared, %lu wrong\n",
           tok_count(&r.tok), n_trie, r.n_masks, r.n_compared, r.n_wrong);
    if (times) print_times(&r);
    if (f) fclose(f);
    free(line);
    free(r.times);
    free(r.bits);
    gr_vocab_destroy(r.vocab);
    diag_deinit(&sink);
    arena_deinit(&arena);
    return r.n_wrong > 0;
}
