// SPDX-License-Identifier: Apache-2.0
/* What the files of the printer share. */
#ifndef INFC_TARGETS_CUDA_PRINT_H
#define INFC_TARGETS_CUDA_PRINT_H

#include "targets/cuda/cuda.h"

/* How tiles of a CTA lie in its threads: 32 x 32 a warp; as wgmma has them, 16 rows a warp; 8 columns a warp (prelude_blocks.c). */
enum cta_order { CTA_SQUARES, CTA_ROWS, CTA_COLUMNS };

struct printer {
    struct lp_kernel *k;
    struct strbuf *out;
    struct diag_sink *diag;
    int indent, n_ops;
    bool failed;
    bool wgmma;   /* the loop over K is wgmma's */
    enum cta_order order;
    uint32_t staged[CUDA_STAGED]; /* print_warp.c: operands of this block on their way to shared memory, in order; of those waited for */
    int n_staged, n_waited;
};

bool pr_fail(struct printer *p, enum diag_id id, const char *what, const char *name);
/* A line of its own, indented. */
void pr_line(struct printer *p, const char *fmt, ...) INFC_PRINTF(2, 3);

/* Elements of a value that one thread has. */
int pr_elems(const struct printer *p, struct lp_type t);

/* C type of an element in registers, and in memory (bool differs). */
const char *pr_type(enum dtype d);
const char *pr_mem_type(enum dtype d);
/* f16, bf16 and narrower: bits in an integer, computed in f32. */
bool pr_is_soft(enum dtype d);

/* Declares v: "float v3" or "float v3[8]"; the line is left open. */
void pr_declare(const struct printer *p, struct strbuf *s, const struct lp_value *v);
/* Element (r, c) of v, broadcast where v has one row or column; r and c are C expressions. */
void pr_element(const struct printer *p, struct strbuf *s, const struct lp_value *v, const char *r, const char *c);
/* A scalar's name. */
void pr_scalar(struct strbuf *s, const struct lp_value *v);
/* Opens loops over rows and columns of t (variables r and c; none for one element) and closes them. */
void pr_loops_begin(struct printer *p, struct lp_type t);
void pr_loops_end(struct printer *p, struct lp_type t);

void pr_stride(struct printer *p, struct strbuf *s, const struct dim *d);

/* print_ops.c: pointwise ops and constants; print_tile.c; print_mem.c */
void pr_pointwise(struct printer *p, const struct lp_op *op);
void pr_const(struct printer *p, const struct lp_op *op);
/* "x op y" on elements of dtype d, as an expression. */
void pr_binary(struct printer *p, struct strbuf *s, enum lp_opcode op, enum dtype d, const char *x, const char *y);
void pr_tile_op(struct printer *p, const struct lp_op *op);
void pr_load(struct printer *p, const struct lp_op *op);
void pr_store(struct printer *p, const struct lp_op *op);

#endif
