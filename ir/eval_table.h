// SPDX-License-Identifier: Apache-2.0
/* The evaluator's functions: one or more ops each, see the table in ir/eval_table.c. */
#ifndef INFC_IR_EVAL_TABLE_H
#define INFC_IR_EVAL_TABLE_H

#include <stdbool.h>

struct eval_call;

/* eval_pointwise.c */
bool eval_pointwise(struct eval_call *c);
bool eval_select(struct eval_call *c);
bool eval_pow(struct eval_call *c);
bool eval_cast(struct eval_call *c);
bool eval_bitcast(struct eval_call *c);
/* eval_move.c */
bool eval_dimvec(struct eval_call *c);
bool eval_iota(struct eval_call *c);
bool eval_reshape(struct eval_call *c);
bool eval_transpose(struct eval_call *c);
bool eval_broadcast(struct eval_call *c);
bool eval_slice(struct eval_call *c);
bool eval_pad(struct eval_call *c);
bool eval_concat(struct eval_call *c);
bool eval_reverse_sequence(struct eval_call *c);
/* eval_gather.c */
bool eval_gather(struct eval_call *c);
bool eval_gather_elements(struct eval_call *c);
bool eval_gather_nd(struct eval_call *c);
bool eval_scatter_elements(struct eval_call *c);
bool eval_scatter_nd(struct eval_call *c);
/* eval_reduce.c */
bool eval_reduce(struct eval_call *c);
bool eval_arg(struct eval_call *c);
bool eval_cum(struct eval_call *c);
bool eval_topk(struct eval_call *c);
/* eval_contract.c, eval_pool.c */
bool eval_matmul(struct eval_call *c);
bool eval_conv(struct eval_call *c);
bool eval_conv_transpose(struct eval_call *c);
bool eval_pool_max(struct eval_call *c);
bool eval_pool_sum(struct eval_call *c);
/* eval_norm.c */
bool eval_softmax(struct eval_call *c);
bool eval_norm(struct eval_call *c);
/* eval_rnn.c */
bool eval_rnn(struct eval_call *c);
/* eval_resize.c, eval_sample.c */
bool eval_resize(struct eval_call *c);
bool eval_grid_sample(struct eval_call *c);
bool eval_roi_align(struct eval_call *c);
/* eval_lm.c */
bool eval_kv_write(struct eval_call *c);
bool eval_paged_attention(struct eval_call *c);
bool eval_matmul_experts(struct eval_call *c);
bool eval_round_rows(struct eval_call *c);
/* eval_misc.c */
bool eval_col2im(struct eval_call *c);
bool eval_dft(struct eval_call *c);
bool eval_det(struct eval_call *c);

#endif
