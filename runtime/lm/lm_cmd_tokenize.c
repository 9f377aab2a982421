// SPDX-License-Identifier: Apache-2.0
/* tokenize and detokenize: the tokenizer alone, no threads, no weights. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io.h"
#include "runtime/lm/lm_cli.h"

static void print_ids(const struct lm_cli *c, const struct tok *t, const uint32_t *ids, size_t n)
{
    if (!c->json) {
        for (size_t i = 0; i < n; i++) printf(i ? " %u" : "%u", ids[i]);
        putchar('\n');
        return;
    }
    struct json j = {.f = stdout};
    json_open(&j, NULL, '{');
    json_int(&j, "count", (int64_t)n);
    json_open(&j, "tokens", '[');
    for (size_t i = 0; i < n; i++) json_int(&j, NULL, ids[i]);
    json_close(&j, ']');
    json_open(&j, "pieces", '[');
    for (size_t i = 0; i < n; i++) lm_json_token(&j, NULL, t, ids[i]);
    json_close(&j, ']');
    json_close(&j, '}');
    putchar('\n');
}

int lm_cmd_tokenize(struct lm_cli *c)
{
    struct lm_open x;
    struct infr_status st;
    char *text = NULL;
    uint32_t *ids = NULL;
    size_t n, n_ids;
    unsigned flags = (c->no_bos ? 0 : TOK_ENCODE_BOS) | (c->no_eos ? 0 : TOK_ENCODE_EOS) |
                     (c->parse_special ? TOK_ENCODE_SPECIAL : 0);
    int code = lm_open_text(c, &x);
    if (!code) code = lm_cli_read_text(c, &text, &n);
    if (!code && lm_text_encode(&x.text, text, n, flags, &ids, &n_ids, &st)) code = cli_error(&st);
    if (!code) print_ids(c, &x.text.tok, ids, n_ids);
    free(ids);
    free(text);
    return code;
}

/* Ids in text, with anything but digits between them. */
static int read_ids(const char *text, size_t n, uint32_t **out, size_t *out_n)
{
    size_t cap = n / 2 + 1, count = 0;
    uint32_t *ids = malloc(cap * sizeof *ids);
    if (!ids) return cli_usage("no memory for the tokens");
    for (size_t i = 0; i < n;) {
        uint64_t v = 0;
        if (!isdigit((unsigned char)text[i])) {
            if (!isspace((unsigned char)text[i]) && !strchr(",[]", text[i])) {
                free(ids);
                return cli_usage("byte %zu of the input is no part of token ids", i);
            }
            i++;
            continue;
        }
        for (; i < n && isdigit((unsigned char)text[i]); i++)
            if ((v = v * 10 + (uint64_t)(text[i] - '0')) > UINT32_MAX) v = UINT32_MAX;
        ids[count++] = (uint32_t)v;
    }
    *out = ids, *out_n = count;
    return INFR_OK;
}

static int gather_ids(struct lm_cli *c, uint32_t **ids, size_t *n)
{
    struct infr_status st;
    struct rt_bytes bytes;
    if (!c->positional.n) {
        if (rt_file_read("-", &bytes, &st)) return cli_error(&st);
        int code = read_ids((char *)bytes.data, bytes.n, ids, n);
        free(bytes.data);
        return code;
    }
    size_t len = 0;
    for (size_t i = 0; i < c->positional.n; i++) len += strlen(c->positional.v[i]) + 1;
    char *all = malloc(len + 1), *p = all;
    if (!all) return cli_usage("no memory for the tokens");
    for (size_t i = 0; i < c->positional.n; i++) {
        size_t k = strlen(c->positional.v[i]);
        memcpy(p, c->positional.v[i], k);
        p[k] = ' ';
        p += k + 1;
    }
    int code = read_ids(all, len, ids, n);
    free(all);
    return code;
}

int lm_cmd_detokenize(struct lm_cli *c)
{
    struct lm_open x;
    struct infr_status st;
    uint32_t *ids = NULL;
    size_t n = 0, n_text;
    char *text = NULL;
    int code = lm_open_text(c, &x);
    if (!code) code = gather_ids(c, &ids, &n);
    if (!code && lm_text_decode(&x.text, ids, n, c->show_special ? TOK_DECODE_SPECIAL : 0, &text,
                                &n_text, &st))
        code = cli_error(&st);
    if (!code && c->json) {
        struct json j = {.f = stdout};
        json_open(&j, NULL, '{');
        lm_json_text(&j, "text", text, n_text);
        json_close(&j, '}');
        putchar('\n');
    } else if (!code) {
        fwrite(text, 1, n_text, stdout);
    }
    free(text);
    free(ids);
    return code;
}
