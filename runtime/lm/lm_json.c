// SPDX-License-Identifier: Apache-2.0
/* Texts and tokens as JSON. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "runtime/lm/lm_cli.h"
#include "runtime/text/unicode_utf8.h"

void lm_json_begin_text(struct json *j, const char *key)
{
    if (j->comma) fputc(',', j->f);
    j->comma = true;
    if (key) fprintf(j->f, "\"%s\":", key);
    fputc('"', j->f);
}

void lm_json_add_text(struct json *j, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(j->f, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", j->f);
        else if (c < 32)
            fprintf(j->f, "\\u%04x", c);
        else
            putc_unlocked(c, j->f);
    }
}

void lm_json_end_text(struct json *j) { fputc('"', j->f); }

void lm_json_text(struct json *j, const char *key, const char *text, size_t n)
{
    lm_json_begin_text(j, key);
    lm_json_add_text(j, text, n);
    lm_json_end_text(j);
}

void lm_json_token(struct json *j, const char *key, const struct tok *t, uint32_t id)
{
    struct tok_info info;
    uint8_t small[256], *text = small;
    if (tok_token_info(t, id, &info)) info.n_bytes = 0, info.bytes = small;
    size_t n = utf8_repaired_size(info.bytes, info.n_bytes);
    if (n > sizeof small) text = malloc(n);
    if (text) utf8_repair(info.bytes, info.n_bytes, text);
    lm_json_text(j, key, (char *)text, text ? n : 0);
    if (text != small) free(text);
}
