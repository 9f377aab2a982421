// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor IR: a module holds functions and constants; a function one block; a block a list of ops in
 * an order where definitions come before uses; an op operands, results, attributes and, for `if`, `group` and the
 * like, regions of one block each.
 *
 * Invariants (ir/verify.c lists and checks them all): SSA; every operand is defined earlier in the same block or in
 * an enclosing one - except that a `group` sees only its own block arguments (captures are operands);
 * every block of a function ends in `return`, of a region in `yield`; types are what the op's infer function says.
 *
 * Memory: everything lives in module->arena. Ops removed from a block are garbage until the module goes.
 */
#ifndef INFC_IR_MODULE_H
#define INFC_IR_MODULE_H

#include "ir/support/diag.h"
#include "ir/support/map.h"
#include "ir/type.h"

struct ir_op;
struct ir_block;

/* Where something comes from: "net.onnx:/enc/0/MatMul"; fused ops join theirs with " + ". */
struct ir_loc {
    const char *text;
};

struct ir_use {
    struct ir_value *value;
    struct ir_op *user;
    struct ir_use *next, *prev; /* in value->uses */
};

struct ir_value {
    struct ir_type type;
    const char *name;        /* hint for printing, may be NULL */
    struct ir_op *def;       /* NULL for block arguments */
    struct ir_block *block;  /* of a block argument, else NULL */
    int index;               /* result or argument number */
    struct ir_use *uses;
    uint32_t id;             /* unique in the module, in creation order */
    void *aux;               /* scratch of the running pass; undefined between passes */
};

enum ir_attr_kind { IR_ATTR_INT, IR_ATTR_FLOAT, IR_ATTR_STRING, IR_ATTR_INTS, IR_ATTR_FLOATS, IR_ATTR_DIMS, IR_ATTR_DTYPE, IR_ATTR_CONST };

struct ir_attr {
    const char *name;
    enum ir_attr_kind kind;
    int count; /* INTS, FLOATS, DIMS */
    union {
        int64_t i; /* INT, DTYPE */
        double f;
        const char *s;
        const int64_t *ints;
        const double *floats;
        const struct dim *const *dims;
        struct ir_const *c;
    };
};

/*
 * A constant tensor. `data` is either in the module's arena or inside a mapped file that outlives the module:
 * never written to. Dense row-major, one byte an element below 8 bits. A splat stores one element only.
 */
struct ir_const;

/*
 * A constant that is one part of another, encoded one (ir/encoding.h), laid out for kernels: made by passes/quant.c, unpacked
 * when the weights are written. The encoded constant is [N, K] in groups of `group` along K; columns are padded to panels
 * of 64: Q [N/64, K/group, group or group/2, 64], SCALE and MIN [N/64, K/group, 64]. BLOCKS: all of them in one stream
 * (ir/blocks.h).
 */
enum ir_part { IR_PART_Q, IR_PART_SCALE, IR_PART_MIN, IR_PART_BLOCKS };

struct ir_const_part {
    const struct ir_const *from;
    enum ir_part part;
    bool nibbles; /* Q: two k a byte, the even one low, plus `zero` */
    int zero;     /* added to q before it is stored */
    int high;     /* BLOCKS: bits of q above the nibble */
    bool wide, has_min; /* BLOCKS: scales in f32, else f16; there are minima */
};

struct ir_const {
    const struct ir_const_part *part; /* NULL: data holds the elements; else data is NULL */
    const char *name;
    struct ir_type type; /* constant dims only */
    const void *data;
    size_t n_bytes; /* of data: elements * element size, or one element when splat */
    bool splat;
    uint32_t id;
};

enum ir_opcode {
#define OP(ID, name, min_operands, max_operands, n_results, traits, infer, doc) IR_OP_##ID,
#include "ir/ops.def"
#undef OP
    IR_OP_COUNT
};

struct ir_op {
    enum ir_opcode code;
    int n_operands, n_results, n_attrs, n_regions;
    struct ir_use *operands; /* operands[i].value; NULL value = optional operand left out */
    struct ir_value *results;
    struct ir_attr *attrs;
    struct ir_block **regions;
    const struct ir_loc *loc;
    struct ir_op *prev, *next;
    struct ir_block *block; /* NULL when not inserted */
    void *aux;              /* scratch of the running pass */
};

struct ir_block {
    struct ir_op *first, *last;
    struct ir_op *parent_op; /* NULL: body of func */
    struct ir_func *func;
    int n_args;
    struct ir_value **args;
};

struct ir_func {
    const char *name;
    struct ir_module *module;
    struct ir_block *body; /* arguments are the inputs; `return` gives the outputs */
    const char **input_names, **output_names; /* the user's own names */
    bool *input_optional;  /* ONNX initialisers that are inputs too: may be left out; input_default then holds */
    struct ir_const **input_default;
    bool *input_state;     /* lives across calls: kv_write stores into it in place; the caller keeps it */
    int n_inputs, n_outputs;
};

/* An equality or bound that could not be proved at build time and is checked when the engine is called. */
struct ir_check {
    const struct dim *a, *b; /* a == b, or a <= b when is_le */
    bool is_le;
    const char *message; /* names the user's node */
};

/* A convolution that is made of tiles: greatest errors of sampled outputs, over the greatest output, and those of direct sums. */
struct ir_tiled {
    const struct ir_loc *loc;
    int size;
    double error, direct;
};

struct ir_module {
    const char *name;
    struct arena arena;
    struct dim_ctx *dims;
    struct diag_sink *diag;
    VEC(struct ir_func *) funcs; /* funcs.v[0] is @main */
    VEC(struct ir_const *) consts;
    VEC(struct ir_check) checks;
    VEC(const char *) meta_keys; /* model metadata, kept for `info` */
    VEC(const char *) meta_values;
    const void *text; /* a language model's text section (compiler/text_section.h), handed on to the engine; NULL: none */
    size_t n_text_bytes;
    const struct ir_encoding *weight_blocks; /* beside a precision of activations: what the weights of matmuls are stored as; NULL: as that */
    bool is_rounded;      /* pass precision has run: block formats that are still there stay */
    enum dtype precision; /* what the operands of matmuls by weights are rounded to (passes/precision.c); DT_NONE: they stay, DT_F32: tf32 */
    bool plain_sums; /* all sums of f32 in f32 (passes/sums.c) */
    VEC(const struct ir_loc *) wide_sums; /* what passes/sums.c computes in f64 */
    int winograd; /* size of the tiles that 3x3 convolutions are made of (passes/winograd.c): 2 or 4, 0: none, -1: as the cost model says */
    VEC(struct ir_tiled) tiled; /* those that are */
    bool for_cpus; /* all targets are CPUs: group for kernels and places of results that they alone have (passes/group.h) */
    uint32_t next_id;
    void (*release)(void *owned); /* when not NULL: called by ir_module_destroy, e.g. to unmap files */
    void *owned;
};

struct ir_module *ir_module_create(const char *name, struct diag_sink *diag);
void ir_module_destroy(struct ir_module *m);

struct ir_func *ir_func_create(struct ir_module *m, const char *name);
/* Appends an input; name is the user's own. */
struct ir_value *ir_func_add_input(struct ir_func *f, const char *name, struct ir_type type);
/* Sets the outputs and appends the `return`. */
void ir_func_set_outputs(struct ir_func *f, int n, struct ir_value *const *values, const char *const *names);

/* Types. dims are copied into the module's arena. */
struct ir_type ir_type_make(struct ir_module *m, enum dtype dtype, int rank, const struct dim *const *dims);
struct ir_type ir_type_static(struct ir_module *m, enum dtype dtype, int rank, const int64_t *dims);
bool ir_type_equal(const struct ir_type *a, const struct ir_type *b);
/* Product of the dims. */
const struct dim *ir_type_elems(struct ir_module *m, const struct ir_type *t);
/* True and the count when all dims are constant and the product fits. */
bool ir_type_static_elems(const struct ir_type *t, int64_t *out);

struct ir_loc *ir_loc_make(struct ir_module *m, const char *text);
/* "a + b"; parts that are already in a are left out. NULL operands are allowed. */
const struct ir_loc *ir_loc_join(struct ir_module *m, const struct ir_loc *a, const struct ir_loc *b);

/* Constants: the data is borrowed (copy it into the arena first if it does not outlive the module). */
struct ir_const *ir_const_make(struct ir_module *m, const char *name, struct ir_type type, const void *data,
                               size_t n_bytes, bool splat);

struct ir_block *ir_block_create(struct ir_module *m, struct ir_func *f, struct ir_op *parent);
struct ir_value *ir_block_add_arg(struct ir_module *m, struct ir_block *b, struct ir_type type, const char *name);

/*
 * Low-level creation: an op that is not yet in a block, with undefined result types. The builder (ir/build.h) is
 * what importers and passes use: it infers types, checks, and inserts.
 */
struct ir_op *ir_op_create(struct ir_module *m, enum ir_opcode code, int n_operands,
                           struct ir_value *const *operands, int n_results, const struct ir_loc *loc);
void ir_op_set_attr(struct ir_module *m, struct ir_op *op, struct ir_attr attr);
void ir_op_add_region(struct ir_module *m, struct ir_op *op, struct ir_block *b);
void ir_block_append(struct ir_block *b, struct ir_op *op);
void ir_block_insert_before(struct ir_op *before, struct ir_op *op);
void ir_block_insert_after(struct ir_op *after, struct ir_op *op);
void ir_op_unlink(struct ir_op *op);            /* out of its block; operands keep their uses */
void ir_op_erase(struct ir_op *op);             /* unlink and drop its operands' uses; results must be unused */
void ir_op_set_operand(struct ir_op *op, int i, struct ir_value *v);
void ir_value_replace_uses(struct ir_value *old, struct ir_value *with);
bool ir_value_has_one_use(const struct ir_value *v);

static inline struct ir_value *ir_operand(const struct ir_op *op, int i)
{
    return i < op->n_operands ? op->operands[i].value : NULL;
}
static inline struct ir_value *ir_result(const struct ir_op *op, int i) { return &op->results[i]; }

/* Attributes; get_* with a default when absent. */
const struct ir_attr *ir_attr_find(const struct ir_op *op, const char *name);
int64_t ir_attr_int(const struct ir_op *op, const char *name, int64_t dflt);
double ir_attr_float(const struct ir_op *op, const char *name, double dflt);
const char *ir_attr_string(const struct ir_op *op, const char *name, const char *dflt);
/* NULL and *count = 0 when absent. */
const int64_t *ir_attr_ints(const struct ir_op *op, const char *name, int *count);
const double *ir_attr_floats(const struct ir_op *op, const char *name, int *count);
const struct dim *const *ir_attr_dims(const struct ir_op *op, const char *name, int *count);
struct ir_const *ir_attr_const(const struct ir_op *op, const char *name);

/* The constant behind a value (op `constant`), or NULL. */
struct ir_const *ir_value_const(const struct ir_value *v);
/* Element i (row-major) of a constant as int64 / double; false for strings or out of range. */
bool ir_const_get_int(const struct ir_const *c, int64_t i, int64_t *out);
bool ir_const_get_float(const struct ir_const *c, int64_t i, double *out);

#endif
