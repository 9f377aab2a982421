// SPDX-License-Identifier: Apache-2.0
/*
 * Private to the ONNX importer.
 *
 *   wire.c         the file's bytes -> skeleton
 *   onnx_io.c      model, its inputs and outputs
 *   onnx.c         nodes, scopes, branches, functions
 *   onnx_tensor.c  TensorProto -> constant, external data
 *   onnx_attr.c    attributes of a node
 *   onnx_known.c   symbolic contents of integer values
 *   onnx_table.c   onnx_ops.def, the operator table
 *   onnx_node.c    what handlers use: operands, axes, results
 *   ops_*.c        the handlers, by family
 *
 * A handler turns one node into core ops through n->b. It returns false after a diagnostic (or when
 * a builder call gave NULL, which has then reported). The results of a failed node are poisoned:
 * nodes that use them are left out silently, so that every independent fault of a model is reported
 * once.
 */
#ifndef INFC_COMPILER_IMPORT_ONNX_INT_H
#define INFC_COMPILER_IMPORT_ONNX_INT_H

#include "compiler/import/import.h"
#include "compiler/import/onnx.pb-c.h"
#include "ir/build.h"

#define ONNX_MAX_CALLS 32 /* nesting of functions */
#define KNOWN_MAX 64      /* elements of a value whose content is followed symbolically */

/* What a name of a graph stands for; v == NULL: its producer failed, users are skipped. */
struct onnx_name {
    struct ir_value *v;
    bool absent; /* formal input of a function that the caller left out */
};

struct onnx_scope {
    const struct onnx_scope *outer;
    struct map names;
};

struct onnx_file; /* a mapped file, onnx_file.c */

struct imp {
    struct ir_module *m;
    struct diag_sink *diag;
    const uint8_t *base;
    size_t len;
    const char *file_name; /* without its folder */
    const char *path;      /* NULL when from memory */
    const Onnx__Model *model;
    const struct import_options *options;
    struct map functions;  /* "domain:name:overload" */
    struct map dim_params; /* as written in the file -> struct dim */
    struct map overrides;  /* input or dim_param -> text of --shape */
    struct map external;   /* path -> struct onnx_file */
    size_t n_nodes,
        max_nodes; /* the latter bounds what nested functions can expand to, by the file's size */
    uint32_t
        choices; /* bit i: what the i-th ambiguous If is to take in this attempt, see onnx_choose */
    int n_choices;
};

/* A call of a model-local function, for attribute references. */
struct onnx_call {
    const Onnx__Function *fn;
    const Onnx__Node *node;
    const struct onnx_call *outer;
    int depth;
};

/* Nodes being imported one after the other into one block. */
struct onnx_graph {
    struct imp *im;
    struct onnx_scope *scope;
    struct ir_builder *b;
    const struct onnx_call *call;
    const char *prefix; /* of locations: "net.onnx:/" or "net.onnx:/call/" */
    Onnx__OperatorSet *const *opsets;
    size_t n_opsets;
    int depth; /* of nested branches */
};

struct onode;

struct onnx_row {
    const char *domain, *op;
    int since, min_in, max_in;
    bool (*handler)(struct onode *n);
    int arg;
    const char *note; /* limits, for the documentation */
};

struct onode {
    struct imp *im;
    struct onnx_graph *g;
    struct ir_module *m;
    struct ir_builder *b;
    struct dim_ctx *d;
    const Onnx__Node *p;
    const struct onnx_row *row;
    int version; /* of the operator set of the node's domain */
    const char *loc;
    int n_in, n_out;
    struct ir_value **in, **out;
    bool *attr_used;
    bool failed;
};

/* ---- onnx.c ---- */
bool onnx_import_nodes(struct onnx_graph *g, size_t n, Onnx__Node *const *nodes);
/* Defines a graph's initialisers as constants, except those whose names are in skip (may be NULL).
 */
bool onnx_import_initialisers(struct onnx_graph *g, const Onnx__Graph *graph,
                              const struct map *skip);
/* Imports a branch's graph into a block; results in out (n of them, poisoned ones NULL). */
bool onnx_import_branch(struct onode *n, const Onnx__Graph *graph, struct ir_builder *b,
                        int n_results, struct ir_value **out);
/*
 * The next decision of this attempt: 0 then, 1 else. When an import fails that made decisions, it
 * is tried again with other ones (onnx_io.c).
 */
int onnx_choose(struct imp *im);
struct onnx_name *onnx_lookup(const struct onnx_scope *s, const char *name);
bool onnx_define(struct onnx_graph *g, const char *loc, const char *name, struct ir_value *v);
int onnx_opset(const struct onnx_graph *g, const char *domain); /* 0: not imported */

/* ---- onnx_file.c ---- */
struct onnx_file {
    const uint8_t *data;
    size_t len;
};
/* Maps a file read-only for as long as the module lives. NULL after a diagnostic. */
struct onnx_file *onnx_map_file(const char *path, const char *loc, enum diag_id id,
                                struct diag_sink *diag);
void onnx_unmap_file(struct onnx_file *f);

/* ---- onnx_tensor.c ---- */
/* NULL after a diagnostic at loc. */
struct ir_const *onnx_tensor(struct imp *im, const Onnx__Tensor *t, const char *loc);
struct ir_const *onnx_sparse_tensor(struct imp *im, const Onnx__SparseTensor *t, const char *loc);
/* DT_NONE after a diagnostic. */
enum dtype onnx_dtype(struct diag_sink *diag, int code, const char *loc, const char *what);

/* ---- onnx_attr.c: a wrong type is reported, sets n->failed and gives the default ---- */
bool at_has(struct onode *n, const char *name);
int64_t at_int(struct onode *n, const char *name, int64_t dflt);
double at_float(struct onode *n, const char *name, double dflt);
const char *at_string(struct onode *n, const char *name, const char *dflt);
const int64_t *at_ints(struct onode *n, const char *name, int *count); /* NULL, 0 when absent */
const double *at_floats(struct onode *n, const char *name, int *count);
const char *const *at_strings(struct onode *n, const char *name, int *count);
struct ir_const *at_tensor(struct onode *n, const char *name); /* NULL when absent or failed */
const Onnx__Graph *at_graph(struct onode *n, const char *name);
const Onnx__Attribute *at_find(struct onode *n, const char *name);
void at_ignore(struct onode *n, const char *name); /* known, without effect here */
enum dtype at_dtype(struct onode *n, const char *name, enum dtype dflt);
/* 0 .. n_names-1 for one of the names; -1 after a diagnostic. */
int at_choice(struct onode *n, const char *name, int dflt, int n_names, const char *const *names);
/* Reports attributes that no accessor asked for. */
bool at_check_all_used(struct onode *n);

/* ---- onnx_known.c: exact rationals num/den of dims; den NULL = 1; num NULL = unknown ---- */
struct kelem {
    const struct dim *num, *den;
};
struct known {
    int n;
    struct kelem e[];
};
/* The content of a value, computed at most once; NULL when nothing is known. */
const struct known *known_of(struct imp *im, struct ir_value *v);
void known_visit(struct imp *im, struct ir_value *v); /* eager form, in order of creation */
/* v itself, or a constant or dimvec in its place when its content is known whole. */
struct ir_value *known_materialise(struct imp *im, struct ir_builder *b, struct ir_value *v);
/* A float as an exact-looking rational (1.3333334f -> 4/3); false when none is near. */
bool known_rational(double f, int64_t *num, int64_t *den);

/* ---- onnx_table.c ---- */
/* The row for an op at a version; *exists says whether the op has any row (then the version is too
 * old). */
const struct onnx_row *onnx_find_row(const char *domain, const char *op, int version, bool *exists);
int onnx_max_opset(const char *domain); /* 0: unknown domain */

/* ---- onnx_node.c ---- */
bool on_fail(struct onode *n, enum diag_id id, const char *fmt, ...) INFC_PRINTF(3, 4);
struct ir_value *on_in(struct onode *n, int i);          /* NULL when left out */
bool on_out(struct onode *n, int i, struct ir_value *v); /* false when v is NULL */
bool on_wants_out(const struct onode *n, int i);         /* the node names that output */
/* Normalises an axis into 0 .. rank-1 (or rank, when `end` is true). */
bool on_axis(struct onode *n, int64_t axis, int rank, bool end, int *out);
/* Axes from input `in` (since version) or else attribute `axes`; sorted, unique, normalised; false
 * on failure. */
bool on_axes(struct onode *n, int input_since, int in, int rank, int *count, int64_t *out,
             bool *given);
/* Content of an integer input; NULL after a DYNAMIC diagnostic. */
const struct dim *const *on_dims(struct onode *n, int i, int *count);
const int64_t *on_ints(struct onode *n, int i, int *count);
bool on_const_float(struct onode *n, int i, double *out);
bool on_rank(struct onode *n, struct ir_value *v, int lo, int hi, const char *what);
bool on_int_type(struct onode *n, struct ir_value *v, const char *what);
/* DIAG_ONNX_DYNAMIC about input i, which `what`; notes the model's inputs behind it. Always false.
 */
bool on_dynamic(struct onode *n, int i, const char *what);
void *on_alloc(struct onode *n, size_t count, size_t bytes);

/* Short forms for building. NULL in, NULL out. */
struct ir_value *e_un(struct onode *n, enum ir_opcode op, struct ir_value *x);
struct ir_value *e_bin(struct onode *n, enum ir_opcode op, struct ir_value *x, struct ir_value *y);
struct ir_value *e_add(struct onode *n, struct ir_value *x, struct ir_value *y);
struct ir_value *e_sub(struct onode *n, struct ir_value *x, struct ir_value *y);
struct ir_value *e_mul(struct onode *n, struct ir_value *x, struct ir_value *y);
struct ir_value *e_div(struct onode *n, struct ir_value *x, struct ir_value *y);
struct ir_value *e_min(struct onode *n, struct ir_value *x, struct ir_value *y);
struct ir_value *e_max(struct onode *n, struct ir_value *x, struct ir_value *y);
struct ir_value *e_sel(struct onode *n, struct ir_value *c, struct ir_value *x, struct ir_value *y);
struct ir_value *e_cast(struct onode *n, struct ir_value *x, enum dtype to);
/* A scalar of x's dtype. */
struct ir_value *e_like(struct onode *n, struct ir_value *x, double v);
struct ir_value *e_scalar(struct onode *n, enum dtype dtype, double v);
struct ir_value *e_dim(struct onode *n, const struct dim *d, enum dtype dtype); /* scalar */
struct ir_value *e_reshape(struct onode *n, struct ir_value *x, int rank,
                           const struct dim *const *dims);
struct ir_value *e_broadcast(struct onode *n, struct ir_value *x, int rank,
                             const struct dim *const *dims);
struct ir_value *e_perm(struct onode *n, struct ir_value *x, const int64_t *perm);
struct ir_value *e_unsqueeze(struct onode *n, struct ir_value *x, int axis);
struct ir_value *e_squeeze(struct onode *n, struct ir_value *x, int axis);
struct ir_value *e_red(struct onode *n, enum ir_opcode op, struct ir_value *x, int n_axes,
                       const int64_t *axes, bool keepdims);
struct ir_value *e_red1(struct onode *n, enum ir_opcode op, struct ir_value *x, int axis,
                        bool keepdims);
/* Mean over axes: the count may be symbolic. */
struct ir_value *e_mean(struct onode *n, struct ir_value *x, int n_axes, const int64_t *axes,
                        bool keepdims);
/* x[start : start+size] along one axis. */
struct ir_value *e_slice1(struct onode *n, struct ir_value *x, int axis, const struct dim *start,
                          const struct dim *size);
/* A vector v[C] shaped to stand at `axis` of a tensor of that rank: [1,..,C,..,1] without the
 * leading ones. */
struct ir_value *e_channel(struct onode *n, struct ir_value *v, int axis, int rank);
struct ir_value *e_iota(struct onode *n, enum dtype dtype, const struct dim *size);
struct ir_value *e_op(struct onode *n, enum ir_opcode op, int n_operands,
                      struct ir_value *const *operands, int n_attrs, const struct ir_attr *attrs,
                      int n_results, int result);
struct ir_value *e_op1(struct onode *n, enum ir_opcode op, struct ir_value *x, int n_attrs,
                       const struct ir_attr *attrs);
/* f32 for f16 and bf16: to compute wide and round once. */
struct ir_value *e_wide(struct onode *n, struct ir_value *x);
struct ir_value *e_const_f32(struct onode *n, int rank, const int64_t *dims, const float *data);
const struct dim *e_size(struct onode *n, struct ir_value *x, int from,
                         int to); /* product of dims[from..to) */

/* 0 where making v failed (NULL; it has been told why): what is built upon it is NULL, too. */
static inline int rank_of(const struct ir_value *v) { return v ? v->type.rank : 0; }
/* Handlers check ranks first (on_rank): a slip ends the process instead of reading what lies
 * behind. */
static inline const struct dim *dim_of(const struct ir_value *v, int i)
{
    INFC_ASSERT(i >= 0 && i < v->type.rank);
    return v->type.dims[i];
}

#endif
