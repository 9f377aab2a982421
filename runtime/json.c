// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <math.h>

#include "runtime/cli.h"

static void put_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') fprintf(f, "\\%c", c);
        else if (c < 32) fprintf(f, "\\u%04x", c);
        else fputc(c, f);
    }
    fputc('"', f);
}

static void put_key(struct json *j, const char *key)
{
    if (j->comma) fputc(',', j->f);
    j->comma = true;
    if (!key) return;
    put_string(j->f, key);
    fputc(':', j->f);
}

void json_open(struct json *j, const char *key, char bracket)
{
    put_key(j, key);
    fputc(bracket, j->f);
    j->comma = false;
}

void json_close(struct json *j, char bracket)
{
    fputc(bracket, j->f);
    j->comma = true;
}

void json_string(struct json *j, const char *key, const char *value)
{
    put_key(j, key);
    put_string(j->f, value);
}

void json_int(struct json *j, const char *key, int64_t value)
{
    put_key(j, key);
    fprintf(j->f, "%" PRId64, value);
}

void json_number(struct json *j, const char *key, double value)
{
    put_key(j, key);
    if (isfinite(value)) fprintf(j->f, "%.9g", value);
    else fputs("null", j->f); /* JSON has no infinity */
}

void json_bool(struct json *j, const char *key, bool value)
{
    put_key(j, key);
    fputs(value ? "true" : "false", j->f);
}

void json_null(struct json *j, const char *key)
{
    put_key(j, key);
    fputs("null", j->f);
}
