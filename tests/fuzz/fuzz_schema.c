// SPDX-License-Identifier: Apache-2.0
//
// Answers under JSON Schemas. The input is a schema up to a NUL; the bytes behind it choose the
// answer: each one of the tokens that the mask allows. Also checked: the mask is what trying every
// token says, a copied state goes the same way, and an answer that is complete is JSON.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/trie_format.h"
#include "runtime/grammar/grammar.h"
#include "runtime/text/json_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// In the order of their bytes; the trie is made of these.
static const char *const tokens[] = {
    "\n",  " ",   " a",   " ab", "\"",  "\", \"", "\":",   "\": ",  ",",    "-",  "-1",  ".",   ".5",
    "0",   "1",   "10",   "12",  ":",   "E",      "[",     "[]",    "\\",   "\\\"", "\\n", "\\u0061", "]",
    "],",  "a",   "aa",   "aaa", "aaaa", "ab",    "abc",   "abcabcabcabc",  "b",  "e+",  "false", "null",
    "true", "u0061", "x", "z",   "{",   "{\"",    "}",     "}}",    "\xc3", "\xc3\xa9", "\xe3\x80\x80"};
enum { N = sizeof tokens / sizeof *tokens, MAX_NODES = 256 };

struct trie {
    struct trie_header h;
    struct trie_node nodes[MAX_NODES];
};

// The nodes of tokens first..last-1, which share `depth` bytes.
static void add(struct trie *t, unsigned first, unsigned last, unsigned depth)
{
    while (first < last) {
        uint8_t byte = (uint8_t)tokens[first][depth];
        unsigned end = first, at = t->h.n_nodes++;
        while (end < last && (uint8_t)tokens[end][depth] == byte) end++;
        bool ends = tokens[first][depth + 1] == 0;
        add(t, first + ends, end, depth + 1);
        t->nodes[at] = (struct trie_node){(t->h.n_nodes - at) << 8 | byte, ends ? first : TRIE_NO_TOKEN};
        first = end;
    }
}

static void check_mask(struct gr_state *s, uint64_t mask)
{
    for (unsigned i = 0; i < N; i++) {
        size_t n = strlen(tokens[i]);
        if ((gr_try(s, tokens[i], n) == n) != (mask >> i & 1)) abort();
    }
}

/* Hundreds of digits before a point are more than a double has, which the reader refuses. */
static bool has_huge_number(const char *text, size_t n)
{
    size_t run = 0;
    for (size_t i = 0; i < n && run < 300; i++) run = text[i] >= '0' && text[i] <= '9' ? run + 1 : 0;
    return run >= 300;
}

static void check_json(const char *text, size_t n)
{
    struct jinja_arena *a = jinja_arena_create(1 << 20);
    struct jinja_value v;
    struct json_read_error e;
    if (a && !json_read(a, text, n, &v, &e) && !has_huge_number(text, n)) abort();
    jinja_arena_destroy(a);
}

static void generate(struct gr_grammar *g, struct gr_vocab *v, const uint8_t *choice, size_t n)
{
    struct gr_state *s = gr_state_create(g);
    char text[1024];
    size_t n_text = 0;
    uint64_t mask;
    for (size_t i = 0; s && i < n && n_text + 16 < sizeof text; i++) {
        if (!gr_mask(s, v, &mask)) break;
        if (i % 8 == 0) check_mask(s, mask);
        unsigned count = 0, token = 0;
        for (unsigned k = 0; k < N; k++) count += mask >> k & 1;
        if (!count) break;
        for (unsigned k = choice[i] % count; token < N; token++)
            if (mask >> token & 1 && !k--) break;
        struct gr_state *copy = gr_state_copy(s);
        size_t len = strlen(tokens[token]);
        if (!gr_advance(s, tokens[token], len)) abort();
        if (copy && (!gr_advance(copy, tokens[token], len) || gr_is_accepting(copy) != gr_is_accepting(s))) abort();
        gr_state_destroy(copy);
        memcpy(text + n_text, tokens[token], len);
        n_text += len;
        if (gr_is_accepting(s)) check_json(text, n_text);
    }
    gr_state_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct gr_options small = {.max_memory_bytes = 8 << 20, .max_states = 5000, .max_work = 300000, .max_configs = 200};
    struct trie trie = {.h = {TRIE_MAGIC, N, 0, 0, 12, 0}};
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    struct gr_grammar *g;
    struct gr_error e;
    struct gr_options o = small;
    o.few_escapes = size % 2;
    if (!gr_compile(GR_JSON_SCHEMA, (const char *)data, n, &o, &g, &e)) return 0;
    add(&trie, 0, N, 0);
    struct gr_vocab *v = gr_vocab_create(&trie, sizeof trie.h + trie.h.n_nodes * sizeof trie.nodes[0]);
    if (!v) abort();
    if (nul) generate(g, v, nul + 1, size - n - 1 < 200 ? size - n - 1 : 200);
    gr_vocab_destroy(v);
    gr_destroy(g);
    return 0;
}
