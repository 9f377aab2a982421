// SPDX-License-Identifier: Apache-2.0
/* A parsed PTX module. Internal to the interpreter: parse.c and decode.c fill it, the rest reads it. */
#ifndef INFC_TESTS_PTX_INTERP_MODULE_H
#define INFC_TESTS_PTX_INTERP_MODULE_H

#include "tests/ptx/interp/ptx.h"

enum ptx_type {
#define PTX_TYPE(e, s, b, c) PTX_##e,
#include "tests/ptx/interp/types.def"
#undef PTX_TYPE
    PTX_N_TYPES
};

enum ptx_type_class { PTX_CLASS_P, PTX_CLASS_B, PTX_CLASS_U, PTX_CLASS_S, PTX_CLASS_F, PTX_CLASS_X };

struct ptx_type_info {
    const char *name;
    uint8_t bytes, cls;
};
extern const struct ptx_type_info ptx_types[PTX_N_TYPES];

enum ptx_op {
#define PTX_OP(e, name, sig, fn) PTX_OP_##e,
#include "tests/ptx/interp/ops.def"
#undef PTX_OP
    PTX_N_OPS
};

enum ptx_space {
    PTX_SPACE_GENERIC, PTX_SPACE_GLOBAL, PTX_SPACE_CONST, PTX_SPACE_SHARED, PTX_SPACE_CLUSTER,
    PTX_SPACE_LOCAL, PTX_SPACE_PARAM
};
enum ptx_cmp {
    PTX_CMP_NONE, PTX_CMP_EQ, PTX_CMP_NE, PTX_CMP_LT, PTX_CMP_LE, PTX_CMP_GT, PTX_CMP_GE, PTX_CMP_EQU,
    PTX_CMP_NEU, PTX_CMP_LTU, PTX_CMP_LEU, PTX_CMP_GTU, PTX_CMP_GEU, PTX_CMP_NUM, PTX_CMP_NAN
};
/* The word that says which of several operations an instruction does. */
enum ptx_sub {
    PTX_SUB_NONE, PTX_SUB_AND, PTX_SUB_OR, PTX_SUB_XOR, PTX_SUB_ADD, PTX_SUB_MIN, PTX_SUB_MAX,
    PTX_SUB_INC, PTX_SUB_DEC, PTX_SUB_CAS, PTX_SUB_EXCH, PTX_SUB_ALL, PTX_SUB_ANY, PTX_SUB_UNI,
    PTX_SUB_BALLOT, PTX_SUB_POPC, PTX_SUB_UP, PTX_SUB_DOWN, PTX_SUB_BFLY, PTX_SUB_IDX, PTX_SUB_LO,
    PTX_SUB_HI, PTX_SUB_WIDE, PTX_SUB_LEFT, PTX_SUB_RIGHT, PTX_SUB_CLAMP, PTX_SUB_WRAP, PTX_SUB_F4E,
    PTX_SUB_B4E, PTX_SUB_RC8, PTX_SUB_ECL, PTX_SUB_ECR, PTX_SUB_RC16, PTX_SUB_FINITE,
    PTX_SUB_INFINITE, PTX_SUB_NUMBER, PTX_SUB_NOTANUMBER, PTX_SUB_NORMAL, PTX_SUB_SUBNORMAL
};
enum ptx_round {
    PTX_ROUND_NONE, PTX_ROUND_RN, PTX_ROUND_RZ, PTX_ROUND_RM, PTX_ROUND_RP, PTX_ROUND_RNA,
    PTX_ROUND_RNI, PTX_ROUND_RZI, PTX_ROUND_RMI, PTX_ROUND_RPI, PTX_ROUND_RS
};
enum ptx_flag {
    PTX_F_FTZ = 1 << 0, PTX_F_SAT = 1 << 1, PTX_F_RELU = 1 << 2, PTX_F_SATFINITE = 1 << 3,
    PTX_F_APPROX = 1 << 4, PTX_F_FULL = 1 << 5, PTX_F_CC = 1 << 6, PTX_F_NAN = 1 << 7,
    PTX_F_TO = 1 << 8, PTX_F_HINT = 1 << 9, PTX_F_UNI = 1 << 10, PTX_F_TRANS = 1 << 11,
    PTX_F_PARITY = 1 << 12, PTX_F_NOCOMPLETE = 1 << 13, PTX_F_EXPECT_TX = 1 << 14,
    PTX_F_NOINC = 1 << 15, PTX_F_READ = 1 << 16, PTX_F_BULK_GROUP = 1 << 17,
    PTX_F_MBARRIER = 1 << 18, PTX_F_MULTICAST = 1 << 19, PTX_F_ALIGNED = 1 << 20,
    PTX_F_ACQUIRE = 1 << 21, PTX_F_RELEASE = 1 << 22, PTX_F_RELAXED = 1 << 23,
    PTX_F_VOLATILE = 1 << 24, PTX_F_XORSIGN = 1 << 25, PTX_F_SHIFTAMT = 1 << 26,
    PTX_F_GPU = 1 << 27 /* scope gpu or sys */, PTX_F_ASYNC = 1 << 28 /* fence.proxy.async */,
    PTX_F_IGNORE_SRC = 1 << 29, PTX_F_ABS = 1 << 30
};

enum ptx_operand_kind { PTX_OPERAND_REG, PTX_OPERAND_MEM, PTX_OPERAND_LABEL, PTX_OPERAND_SYMBOL };

/* Registers are rows of 32 lanes: u32 lanes for up to 32 bits, u64 lanes above; a predicate is one
 * u32 of lane bits. Constants and special registers are rows too, filled when a warp starts. */
struct ptx_operand {
    uint8_t kind;
    bool negated;        /* !p */
    uint8_t bytes;       /* of a lane: 4 or 8 */
    int reg;             /* register, base register of an address, or -1 for `_` */
    uint32_t off;        /* of its row in the register file */
    int64_t imm;         /* added to an address */
    int reg2;            /* second destination: p|q, d|p; -1 when absent */
    int n;               /* vector operands, coordinates: registers */
    const int *regs;
    int symbol;          /* PTX_OPERAND_SYMBOL: function index */
};

struct ptx_warp;
struct ptx_insn;
typedef void (*ptx_exec)(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask);

struct ptx_insn {
    ptx_exec exec;
    struct ptx_operand *ops;
    uint16_t op;
    uint8_t n_ops, n_types;
    uint8_t types[4], spaces[2], n_spaces;
    uint8_t cmp, sub, sub2, role, round, layouts[2], n_layouts, vec;
    uint8_t count;       /* x1 x2 x4; dimensions of a tensor copy */
    uint16_t m, n, k;
    uint32_t flags;
    int guard;           /* predicate register or -1 */
    bool guard_negated;
    uint32_t target;
    int line;
    const uint32_t *table; /* brx.idx: targets */
    uint32_t n_table;
    const char *text;    /* in the module's copy of the source, up to `;` */
    int text_len;
};

enum ptx_reg_fill { PTX_FILL_NONE, PTX_FILL_CONST, PTX_FILL_SPECIAL, PTX_FILL_DYNAMIC_SHARED };

struct ptx_reg {
    uint32_t off;        /* of the row, in bytes */
    uint8_t bytes;       /* 4 or 8 a lane */
    uint8_t fill;
    uint8_t width;       /* as declared: 1, 2, 4 or 8 */
    bool predicate;
    uint64_t value;      /* constant, or which special register */
};

enum ptx_special {
    PTX_SREG_TID_X, PTX_SREG_TID_Y, PTX_SREG_TID_Z, PTX_SREG_NTID_X, PTX_SREG_NTID_Y, PTX_SREG_NTID_Z,
    PTX_SREG_CTAID_X, PTX_SREG_CTAID_Y, PTX_SREG_CTAID_Z, PTX_SREG_NCTAID_X, PTX_SREG_NCTAID_Y,
    PTX_SREG_NCTAID_Z, PTX_SREG_LANEID, PTX_SREG_WARPID, PTX_SREG_NWARPID, PTX_SREG_SMID,
    PTX_SREG_NSMID, PTX_SREG_GRIDID, PTX_SREG_LANEMASK_EQ, PTX_SREG_LANEMASK_LE, PTX_SREG_LANEMASK_LT,
    PTX_SREG_LANEMASK_GE, PTX_SREG_LANEMASK_GT, PTX_SREG_CLOCK, PTX_SREG_CLOCK_HI, PTX_SREG_CLOCK64,
    PTX_SREG_GLOBALTIMER, PTX_SREG_CLUSTERID_X, PTX_SREG_CLUSTERID_Y, PTX_SREG_CLUSTERID_Z,
    PTX_SREG_NCLUSTERID_X, PTX_SREG_NCLUSTERID_Y, PTX_SREG_NCLUSTERID_Z, PTX_SREG_CLUSTER_CTAID_X,
    PTX_SREG_CLUSTER_CTAID_Y, PTX_SREG_CLUSTER_CTAID_Z, PTX_SREG_CLUSTER_NCTAID_X,
    PTX_SREG_CLUSTER_NCTAID_Y, PTX_SREG_CLUSTER_NCTAID_Z, PTX_SREG_CLUSTER_CTARANK,
    PTX_SREG_CLUSTER_NCTARANK, PTX_SREG_DYNAMIC_SMEM_SIZE, PTX_SREG_TOTAL_SMEM_SIZE, PTX_N_SREGS
};

struct ptx_param {
    char *name;
    uint32_t off, bytes, align;
};

/* A variable of a module or function. Shared and local ones have offsets, global and const ones
 * addresses; `extern .shared` arrays are where dynamic shared memory begins. */
struct ptx_var {
    char *name;
    uint8_t space;
    bool dynamic;
    uint32_t align;
    uint64_t bytes, off;
};

struct ptx_kernel {
    struct ptx_module *module;
    char *name;
    bool entry, defined;
    struct ptx_insn *insns;
    int n_insns;
    struct ptx_reg *regs;
    int n_regs;
    uint32_t reg_bytes;
    struct ptx_param *params;
    int n_params;
    uint32_t param_bytes;
    struct ptx_param *returns; /* of a .func */
    int n_returns;
    uint32_t shared_bytes, shared_align, dynamic_align, local_bytes;
    struct ptx_kernel_info info;
    char target[16];
};

struct ptx_module {
    struct ptx_machine *machine;
    struct ptx_module *next;
    char *text;
    char target[16];
    struct ptx_kernel **funcs;
    int n_funcs;
    struct ptx_var *vars;
    int n_vars;
    struct ptx_block *blocks; /* every allocation of the parser, freed with the module */
};

/* Memory that lives as long as the module; zeroed. NULL when there is none. */
void *ptx_module_alloc(struct ptx_module *mod, size_t bytes);
void ptx_module_free(struct ptx_module *mod);

#endif
