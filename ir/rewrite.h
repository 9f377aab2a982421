// SPDX-License-Identifier: Apache-2.0
/*
 * Pattern rewriting: a worklist of ops, a table of patterns by root opcode, until nothing matches.
 *
 * Laws for patterns: keep values and types; never make the graph worse, so that rewriting ends;
 * change nothing when returning false. The first pattern of the table that applies to an op wins.
 *
 * Order: ops of a function in program order, regions after their op; then what was touched: new
 * ops, users of replaced results, ops whose operand changed, definitions that lost a user. Ops
 * whose results all became unused are erased on the way. Deterministic.
 *
 * While the driver runs, ir_op.aux is its own.
 */
#ifndef INFC_IR_REWRITE_H
#define INFC_IR_REWRITE_H

#include "ir/build.h"

struct rewriter;

struct rewrite_pattern {
    const char *name;
    enum ir_opcode root; /* IR_OP_COUNT: any op */
    /*
     * Returns whether it changed something. r->b inserts before op and gives new ops op's location.
     * Other ops may be looked at, but only op itself may be replaced or erased, through the
     * functions below.
     */
    bool (*apply)(struct rewriter *r, struct ir_op *op);
};

/*
 * Bisection (--bisect-limit=N): the first `limit` applications are made, in any function or pass
 * that shares the struct, and no more; limit < 0: no limit. `last` names the last one made: at the
 * smallest N that fails, the culprit.
 */
struct rewrite_bisect {
    int64_t limit, count;
    const char *last_pattern;
    const struct ir_loc *last_loc;
};

struct rewriter {
    struct ir_module *m;
    struct ir_builder b;
    void *user; /* the pass's own */
    /* Private to ir/rewrite.c. */
    struct arena scratch;
    VEC(struct ir_op *) work; /* a queue: work.v[next] is the next to look at */
    size_t next;
};

/* results[i] takes over from op's result i; op is erased. */
void rewrite_replace(struct rewriter *r, struct ir_op *op, struct ir_value *const *results);
void rewrite_replace1(struct rewriter *r, struct ir_op *op, struct ir_value *result);
void rewrite_set_operand(struct rewriter *r, struct ir_op *op, int i, struct ir_value *v);
/* Look at op again: attributes changed in place, or a new op was inserted elsewhere than before the
 * root. */
void rewrite_touch(struct rewriter *r, struct ir_op *op);

enum rewrite_result {
    REWRITE_SAME,
    REWRITE_CHANGED,
    REWRITE_BOUND, /* changed, but patterns kept applying beyond the bound: two of them undo each
                      other */
};

/* bisect may be NULL. The bound is 32 applications for each op there was, and 1,000. */
enum rewrite_result rewrite_func(struct ir_func *f, const struct rewrite_pattern *patterns,
                                 size_t n_patterns, struct rewrite_bisect *bisect, void *user);

#endif
