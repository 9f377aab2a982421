// SPDX-License-Identifier: Apache-2.0
#include "runtime/grammar/gr_slice.h"

#include <stdbool.h>

enum {
    NEED_1 = 1, NEED_2, NEED_3, /* any bytes of continuation */
    AFTER_E0, AFTER_ED, AFTER_F0, AFTER_F4, /* of UTF-8 */
    AFTER_C2, AFTER_E1, AFTER_E1_9A, AFTER_E2, AFTER_E2_80, AFTER_E2_81, AFTER_E3, AFTER_E3_80,
    AFTER_EF, AFTER_EF_BB /* characters may be left out behind these */
};

static bool is_word(unsigned c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

static unsigned first_byte(enum gr_slice slice, unsigned c)
{
    if (c >= 'a' && c <= 'z') return GR_SLICE_BETWEEN;
    if (slice == GR_LOWER) return GR_SLICE_OUT;
    if (is_word(c)) return GR_SLICE_BETWEEN;
    if (slice == GR_WORDS) return GR_SLICE_OUT;
    if (c < 0x80)
        return slice == GR_PLAIN && c >= 0x20 && c != '"' && c != '\\' ? GR_SLICE_BETWEEN
                                                                         : GR_SLICE_OUT;
    switch (c) {
    case 0xc2: return AFTER_C2;
    case 0xe0: return AFTER_E0;
    case 0xe1: return AFTER_E1;
    case 0xe2: return AFTER_E2;
    case 0xe3: return AFTER_E3;
    case 0xed: return AFTER_ED;
    case 0xef: return AFTER_EF;
    case 0xf0: return AFTER_F0;
    case 0xf4: return AFTER_F4;
    default: break;
    }
    if (c < 0xc2 || c > 0xf4) return GR_SLICE_OUT;
    return c < 0xe0 ? NEED_1 : c < 0xf0 ? NEED_2 : NEED_3;
}

/* The last byte of a character that is none of the slice's. */
static bool is_left_out(enum gr_slice slice, unsigned state, unsigned c)
{
    if (state == AFTER_E2_80 && (c == 0xa8 || c == 0xa9)) return true; /* ends of lines */
    if (slice == GR_PLAIN) return false;
    switch (state) { /* U+00A0, 1680, 2000 to 200A, 202F, 205F, 3000, FEFF */
    case AFTER_C2: return c == 0xa0;
    case AFTER_E1_9A:
    case AFTER_E3_80: return c == 0x80;
    case AFTER_E2_80: return c <= 0x8a || c == 0xaf;
    case AFTER_E2_81: return c == 0x9f;
    case AFTER_EF_BB: return c == 0xbf;
    default: return false;
    }
}

unsigned gr_slice_next(enum gr_slice slice, unsigned state, unsigned c)
{
    if (state == GR_SLICE_BETWEEN) return first_byte(slice, c);
    unsigned lo = state == AFTER_E0 ? 0xa0 : state == AFTER_F0 ? 0x90 : 0x80;
    unsigned hi = state == AFTER_ED ? 0x9f : state == AFTER_F4 ? 0x8f : 0xbf;
    if (c < lo || c > hi || is_left_out(slice, state, c)) return GR_SLICE_OUT;
    switch (state) {
    case NEED_3:
    case AFTER_F0:
    case AFTER_F4: return NEED_2;
    case NEED_2:
    case AFTER_E0:
    case AFTER_ED: return NEED_1;
    case AFTER_E1: return c == 0x9a ? AFTER_E1_9A : NEED_1;
    case AFTER_E2: return c == 0x80 ? AFTER_E2_80 : c == 0x81 ? AFTER_E2_81 : NEED_1;
    case AFTER_E3: return c == 0x80 ? AFTER_E3_80 : NEED_1;
    case AFTER_EF: return c == 0xbb ? AFTER_EF_BB : NEED_1;
    default: return GR_SLICE_BETWEEN;
    }
}
