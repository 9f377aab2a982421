// SPDX-License-Identifier: Apache-2.0
/*
 * Stop strings in text that arrives in pieces. Text that could be the beginning of a stop string is
 * held back until it is clear, so nothing of a stop string is ever shown; everything else passes
 * at once. Pieces and stop strings are whole UTF-8 characters, and so is what comes out.
 *
 * The string that is complete first ends the text; of several that end at the same place, the
 * longest. Time is linear in the text times the number of strings.
 */
#ifndef INFC_RUNTIME_LM_STOP_H
#define INFC_RUNTIME_LM_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/infr.h"

#define LM_MAX_STOPS 128u
#define LM_MAX_STOP_BYTES 4096u

struct lm_stop_text {
    const char *text;
    size_t n;
};

struct lm_stop {
    struct lm_stop_string {
        uint8_t *text;
        uint16_t
            *fall; /* [n]: the longest end of text[0..i] that is a beginning of text, shorter */
        uint32_t n, matched;
    } * v;
    size_t n;
    uint8_t *held; /* [most_held]: text that may be the beginning of a stop string */
    size_t n_held, most_held;
    bool include; /* the stop string itself is shown */
    void *memory;
};

/* Copies the strings. A string that is empty, too long or not UTF-8 is refused. */
int lm_stop_init(struct lm_stop *s, const struct lm_stop_text *strings, size_t n, bool include,
                 struct infr_status *st);
void lm_stop_deinit(struct lm_stop *s);
/* What a push of n bytes, or a flush, writes at most. */
size_t lm_stop_max(const struct lm_stop *s, size_t n);
/*
 * Takes n bytes and writes to out what can be shown now. *stopped: number of the string that ended
 * the text, or -1; the text behind it is dropped. armed false: what is found passes as text.
 */
size_t lm_stop_push(struct lm_stop *s, const char *text, size_t n, bool armed, char *out,
                    int *stopped);
/* The end of the text: writes what was held. */
size_t lm_stop_flush(struct lm_stop *s, char *out);

#endif
