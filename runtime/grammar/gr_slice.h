// SPDX-License-Identifier: Apache-2.0
/*
 * Slices: sets of characters with which strings often go on as they please. Each is in the next.
 *
 * A vocabulary knows which of its tokens are made of nothing else; a string's automaton knows at
 * each state how many such characters may follow, whichever they are. Where both agree, tokens need
 * not be tried one by one.
 */
#ifndef INFC_RUNTIME_GRAMMAR_SLICE_H
#define INFC_RUNTIME_GRAMMAR_SLICE_H

enum gr_slice {
    GR_LOWER, /* a to z */
    GR_WORDS, /* ASCII letters and digits */
    GR_MARKS, /* and what is not ASCII, without Unicode's spaces: what \S takes of it */
    GR_PLAIN, /* whatever stands for itself in JSON, without the ends of lines that `.` refuses */
    GR_SLICES
};

/* Slices are automata over bytes. The state between characters is 0. */
enum { GR_SLICE_BETWEEN = 0, GR_SLICE_STATES = 18, GR_SLICE_OUT = 255 };

/* The state behind byte c, or GR_SLICE_OUT: not whole characters of the slice. */
unsigned gr_slice_next(enum gr_slice slice, unsigned state, unsigned c);

/* Characters that may follow: this many at most are told apart; more than any number. */
enum { GR_ROOM_MAX = 32, GR_ROOM_ALL = 255 };

#endif
