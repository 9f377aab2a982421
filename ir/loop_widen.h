// SPDX-License-Identifier: Apache-2.0
/* Private to ir/loop_vectorize.c (which loops, which classes) and ir/loop_widen.c (the copy with W lanes). */
#ifndef INFC_IR_LOOP_WIDEN_H
#define INFC_IR_LOOP_WIDEN_H

#include "ir/loop.h"

enum lane_class { UNIFORM, AFFINE, STEPPING, VARYING };

struct fact {
    enum lane_class class;
    int64_t coeff; /* AFFINE: never 0 */
    uint32_t uses;
    struct lp_value *now; /* the value in the copy being made */
};

struct reduction {
    enum lp_reduce_kind kind;
    struct lp_op *op;  /* that yields the next value */
    int carried;       /* which operand of it is the carried value */
};

struct widener {
    struct lp_kernel *k;
    struct arena arena;
    struct fact *facts; /* by id of the values of the loop being looked at */
    struct lp_op *loop;
    struct reduction *reductions;
    int lanes;
    bool float_sum;
    int widest_bytes;
    bool guarded_only; /* something in the body must not run for lanes that do not exist */
    /* while copying */
    struct lp_value *ncols;
    int changed;
};

static inline struct fact *lw_fact(const struct widener *w, const struct lp_value *v) { return &w->facts[v->id]; }

enum access { ACCESS_UNIFORM, ACCESS_TILE, ACCESS_STEPPING, ACCESS_GATHER };

/* *axis: the one with a varying index, of TILE and STEPPING. */
enum access lw_access_kind(const struct widener *w, const struct lp_op *op, int *axis);

/* Whole steps of w->lanes from *lo on; *lo and *total (the carried values so far) move to what is left. */
void lw_main_loop(struct widener *w, struct lp_builder *b, struct lp_value **lo, struct lp_value *hi,
                  struct lp_value **total);
/* What is left, fewer than w->lanes iterations, as one step with bounds. */
void lw_masked_rest(struct widener *w, struct lp_builder *b, struct lp_value *lo, struct lp_value *hi,
                    struct lp_value **total);

#endif
