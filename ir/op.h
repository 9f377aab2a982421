// SPDX-License-Identifier: Apache-2.0
/* Queries on the op table (ir/ops.def) and inference of result types. */
#ifndef INFC_IR_OP_H
#define INFC_IR_OP_H

#include "ir/module.h"

#define IR_T_PW 0x001u
#define IR_T_COMM 0x002u
#define IR_T_MOVE 0x004u
#define IR_T_RED 0x008u
#define IR_T_ANCHOR 0x010u
#define IR_T_REGION 0x020u
#define IR_T_TERM 0x040u
#define IR_T_LIB 0x080u
#define IR_T_VIEW 0x100u
#define IR_T_STATE 0x200u

struct ir_op_info {
    const char *name;
    int min_operands, max_operands, n_results;
    unsigned traits;
    const char *doc;
    /*
     * Sets the results' types from operands and attributes. On a mismatch reports a diagnostic at op->loc and
     * returns false. Equalities between dims that cannot be proved are added to module->checks.
     */
    bool (*infer)(struct ir_module *m, struct ir_op *op);
};

const struct ir_op_info *ir_op_info(enum ir_opcode code);
static inline unsigned ir_op_traits(const struct ir_op *op) { return ir_op_info(op->code)->traits; }
static inline const char *ir_op_name(enum ir_opcode code) { return ir_op_info(code)->name; }
/* Stores into state, itself or in a region: never folded, merged or dropped. */
bool ir_op_has_effect(const struct ir_op *op);
/* IR_OP_COUNT when unknown. */
enum ir_opcode ir_opcode_find(const char *name, size_t len);

/* The whole of docs/ops.md (ir/ops_doc.c). */
void ir_ops_markdown(struct strbuf *out);

/* Broadcast of two shapes: true and the joined dims in out (rank entries), adding checks for unproved equalities. */
bool ir_broadcast_dims(struct ir_module *m, const struct ir_loc *loc, const struct ir_type *a,
                       const struct ir_type *b, const struct dim **out, int *out_rank);
/* a == b: true when proved or added as a run-time check; false (with a diagnostic) when provably different. */
bool ir_require_equal(struct ir_module *m, const struct ir_loc *loc, const struct dim *a, const struct dim *b,
                      const char *what);

#endif
