// SPDX-License-Identifier: Apache-2.0
/* One automaton of Knuth, Morris and Pratt a string; what is held is the longest beginning. */
#include "runtime/lm/lm_stop.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/status.h"
#include "runtime/text/unicode_utf8.h"

static int check(const struct lm_stop_text *strings, size_t n, size_t *bytes,
                 struct infr_status *st)
{
    if (n > LM_MAX_STOPS)
        return rt_fail(st, INFR_BAD_INPUT, "%zu stop strings; there can be %u", n, LM_MAX_STOPS);
    for (size_t i = 0; i < n; i++) {
        if (!strings[i].n || strings[i].n > LM_MAX_STOP_BYTES)
            return rt_fail(st, INFR_BAD_INPUT, "stop string %zu has %zu bytes; it can have 1 to %u",
                           i + 1, strings[i].n, LM_MAX_STOP_BYTES);
        if (!utf8_is_valid((const uint8_t *)strings[i].text, strings[i].n))
            return rt_fail(st, INFR_BAD_INPUT, "stop string %zu is not UTF-8", i + 1);
        *bytes += strings[i].n;
    }
    return INFR_OK;
}

static void fill_fall(struct lm_stop_string *s)
{
    uint32_t k = 0;
    s->fall[0] = 0;
    for (uint32_t i = 1; i < s->n; i++) {
        while (k && s->text[i] != s->text[k]) k = s->fall[k - 1];
        if (s->text[i] == s->text[k]) k++;
        s->fall[i] = (uint16_t)k;
    }
}

int lm_stop_init(struct lm_stop *s, const struct lm_stop_text *strings, size_t n, bool include,
                 struct infr_status *st)
{
    size_t bytes = 0, most = 0;
    *s = (struct lm_stop){.include = include};
    int code = check(strings, n, &bytes, st);
    if (code || !n) return code;
    for (size_t i = 0; i < n; i++)
        if (strings[i].n > most) most = strings[i].n;
    s->memory = malloc(n * sizeof *s->v + bytes * 3 + most);
    if (!s->memory) return rt_fail_memory(st, "stop strings", bytes);
    s->v = s->memory;
    s->n = n;
    uint16_t *fall = (uint16_t *)(s->v + n);
    uint8_t *text = (uint8_t *)(fall + bytes);
    for (size_t i = 0; i < n; i++) {
        s->v[i] = (struct lm_stop_string){text, fall, (uint32_t)strings[i].n, 0};
        memcpy(text, strings[i].text, strings[i].n);
        fill_fall(&s->v[i]);
        text += strings[i].n, fall += strings[i].n;
    }
    s->held = text;
    s->most_held = most;
    return INFR_OK;
}

void lm_stop_deinit(struct lm_stop *s)
{
    free(s->memory);
    *s = (struct lm_stop){0};
}

size_t lm_stop_max(const struct lm_stop *s, size_t n) { return n + s->most_held; }

/* Advances all strings by a byte. Returns the number of the longest one that is complete, or -1;
 * *longest: the greatest number of bytes matched by a string that is not complete. */
static int advance(struct lm_stop *s, uint8_t c, size_t *longest)
{
    int found = -1;
    *longest = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct lm_stop_string *x = &s->v[i];
        uint32_t k = x->matched;
        while (k && x->text[k] != c) k = x->fall[k - 1];
        if (x->text[k] == c) k++;
        if (k == x->n) {
            if (found < 0 || x->n > s->v[found].n) found = (int)i;
            k = x->fall[k - 1]; /* as if it had passed */
        }
        x->matched = k;
        if (k > *longest) *longest = k;
    }
    return found;
}

size_t lm_stop_push(struct lm_stop *s, const char *text, size_t n, bool armed, char *out,
                    int *stopped)
{
    size_t n_out = 0;
    *stopped = -1;
    if (!s->n) {
        memcpy(out, text, n);
        return n;
    }
    for (size_t i = 0; i < n; i++) {
        size_t keep;
        int found = advance(s, (uint8_t)text[i], &keep);
        if (found >= 0 && armed) {
            size_t before = s->n_held + 1 - s->v[found].n; /* of held and this byte */
            if (s->include) before = s->n_held + 1;
            size_t of_held = before < s->n_held ? before : s->n_held;
            memcpy(out + n_out, s->held, of_held);
            n_out += of_held;
            if (before > of_held) out[n_out++] = text[i];
            s->n_held = 0;
            *stopped = found;
            return n_out;
        }
        size_t pass = s->n_held + 1 - keep; /* keep bytes of held and this byte stay */
        size_t of_held = pass < s->n_held ? pass : s->n_held;
        memcpy(out + n_out, s->held, of_held);
        n_out += of_held;
        memmove(s->held, s->held + of_held, s->n_held - of_held);
        s->n_held -= of_held;
        if (pass > of_held)
            out[n_out++] = text[i];
        else
            s->held[s->n_held++] = (uint8_t)text[i];
    }
    return n_out;
}

size_t lm_stop_flush(struct lm_stop *s, char *out)
{
    size_t n = s->n_held;
    if (n) memcpy(out, s->held, n);
    for (size_t i = 0; i < s->n; i++) s->v[i].matched = 0;
    s->n_held = 0;
    return n;
}
