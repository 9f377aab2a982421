// SPDX-License-Identifier: Apache-2.0
/* JSON values that were read, written again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"

void api_json_real(struct json *j, const char *key, double x)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    if (x == 0 && signbit(x)) memcpy(text, "-0.0", 5); /* "-0" is the integer, which has no sign */
    api_json_raw(j, key, text, strlen(text));
}

void api_json_raw(struct json *j, const char *key, const char *text, size_t n)
{
    if (j->comma) fputc(',', j->f);
    j->comma = true;
    if (key) fprintf(j->f, "\"%s\":", key);
    fwrite(text, 1, n, j->f);
}

static void put_pairs(struct json *j, const struct jinja_dict *d)
{
    for (uint32_t i = 0; i < d->count; i++) {
        const struct jinja_value *key = &d->pairs[i].key;
        lm_json_text(j, NULL, key->u.s, key->len);
        fputc(':', j->f);
        j->comma = false;
        api_json_value(j, NULL, &d->pairs[i].value);
    }
}

/* As deep as the reader let it be: JSON_READ_DEPTH. */
void api_json_value(struct json *j, const char *key, const struct jinja_value *v)
{
    switch (v->kind) {
    case JINJA_BOOL: json_bool(j, key, v->u.b); break;
    case JINJA_INT: json_int(j, key, v->u.i); break;
    case JINJA_BIGINT: api_json_raw(j, key, v->u.s, v->len); break;
    case JINJA_FLOAT: api_json_real(j, key, v->u.f); break;
    case JINJA_STR: lm_json_text(j, key, v->u.s, v->len); break;
    case JINJA_LIST:
        json_open(j, key, '[');
        for (uint32_t i = 0; i < v->u.list->count; i++) api_json_value(j, NULL, &v->u.list->items[i]);
        json_close(j, ']');
        break;
    case JINJA_DICT:
        json_open(j, key, '{');
        put_pairs(j, v->u.dict);
        json_close(j, '}');
        break;
    default: json_null(j, key); break;
    }
}
