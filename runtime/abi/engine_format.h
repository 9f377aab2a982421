// SPDX-License-Identifier: Apache-2.0
/*
 * The engine file's plan, as the compiler writes it and the runtime reads it in place.
 *
 * An engine is an ELF executable with three things of ours:
 *   infr_plan            one read-only blob: the structures below; every reference is an offset from its start
 *   infr_kernel_table    addresses: entry kernel * INFR_ISA_COUNT + isa; NULL where a level has no code
 *   weights              a PT_LOAD segment at INFR_WEIGHTS_VADDR or above, file offset and address equal modulo
 *                        2 MiB (its p_align), found through AT_PHDR
 *
 * Little endian. Tables carry their stride, so that a later minor version may append fields to a row; a reader takes
 * the fields it knows. A major version differs when an old reader would go wrong. The runtime validates every index, offset
 * and count before it uses them: an engine file may be damaged.
 */
#ifndef INFC_RUNTIME_ABI_ENGINE_FORMAT_H
#define INFC_RUNTIME_ABI_ENGINE_FORMAT_H

#include <stdint.h>

#include "runtime/abi/dtype.h"
#include "runtime/abi/kernel.h"

#define INFR_MAGIC 0x474E4543464E49AAull /* bytes AA 'I' 'N' 'F' 'C' 'E' 'N' 'G' */
#define INFR_VERSION_MAJOR 1
#define INFR_VERSION_MINOR 5
#define INFR_WEIGHTS_VADDR 0x1000000000ull
#define INFR_WEIGHTS_ALIGN 0x200000ull
#define INFR_NONE UINT32_MAX /* "no index" */
#define INFR_MAX_RANK 12

struct infr_table {
    uint32_t offset, count, stride;
};

/* Strings: offset of a NUL-terminated UTF-8 string in the blob; 0 = none. */
typedef uint32_t infr_str;

/*
 * Dim program: value i is computed by row i from earlier rows. Every dim elsewhere is a row number. Floor semantics;
 * division by zero or overflow makes the call fail with a status.
 */
enum infr_dim_op { INFR_DIM_CONST, INFR_DIM_SYM, INFR_DIM_ADD, INFR_DIM_MUL, INFR_DIM_FLOORDIV, INFR_DIM_MOD, INFR_DIM_MIN, INFR_DIM_MAX };

struct infr_dim {
    uint32_t op, a, b, pad; /* SYM: a = symbol number */
    int64_t imm;            /* CONST */
};

/* A symbol is bound by axis bind_axis of input bind_input (an axis whose dim is that symbol alone). */
struct infr_symbol {
    infr_str name;
    uint32_t bind_input, bind_axis, pad;
    int64_t lo, hi; /* inclusive */
};

/*
 * OPTIONAL: may be left out; the default then holds. STATE: memory that the caller keeps from call to call; kernels read it and
 * store into it in place.
 */
enum infr_io_kind { INFR_IO_REQUIRED, INFR_IO_OPTIONAL, INFR_IO_STATE };

/* Inputs and outputs. dims: rank row numbers of the dim program, from index dims of the u32 pool. */
struct infr_io {
    infr_str name;
    uint32_t dtype, rank, dims;
    uint32_t buf;      /* its buffer */
    uint32_t optional; /* enum infr_io_kind */
    uint64_t default_offset, default_bytes; /* in the weights */
};

struct infr_check {
    uint32_t a, b; /* dim rows: a == b, or a <= b when is_le */
    uint32_t is_le;
    infr_str message;
};

enum infr_buf_kind { INFR_BUF_INPUT, INFR_BUF_OUTPUT, INFR_BUF_CONST, INFR_BUF_ARENA };

struct infr_buf {
    uint32_t kind, dtype;
    uint32_t bytes;        /* dim row: size */
    uint32_t io;           /* INPUT, OUTPUT: its number */
    uint64_t const_offset; /* CONST: offset in the weights */
    uint64_t const_bytes;
    /* ARENA: alive from position `first` to `last` (inclusive) of the walk over all steps in program order */
    uint32_t first, last;
};

/* A launch argument: a buffer, plus a byte offset given by a dim row (INFR_NONE = 0). */
struct infr_arg {
    uint32_t buf, offset;
};

/*
 * MEET: all workers meet before this launch. EACH (since 1.5; an older reader refuses it): every worker may do all of it, into memory of
 * its own in place of the arena's, from which it then reads: only launches and probes read what it writes, and no other writes that.
 */
enum infr_order { INFR_ORDER_MEET = 1, INFR_ORDER_EACH = 2 };

struct infr_launch {
    uint32_t kernel;
    uint32_t args, n_args;  /* in the args table */
    uint32_t dims, n_dims;  /* in the u32 pool: dim rows, the kernel's dim parameters */
    uint32_t slices[INFR_ISA_COUNT]; /* dim rows */
    uint32_t claim;         /* slices a worker claims at a time; 0 = contiguous shares */
    uint32_t barrier;       /* enum infr_order, or-ed */
    infr_str name, loc, schedule;
    uint32_t flops, bytes;  /* dim rows for profiles, or INFR_NONE */
    uint32_t n_read;        /* since 1.5: arguments before that one are only read */
};

enum infr_step_kind { INFR_STEP_LAUNCH, INFR_STEP_IF, INFR_STEP_CHECK, INFR_STEP_PROBE };

/*
 * LAUNCH: a = launch. IF: a = buffer holding the bool, b = block if true, c = block if false. CHECK (since 1.2;
 * an older reader refuses it): a = check, which fails the call unless it holds; it precedes the launches of its block.
 * PROBE (since 1.4; of the entry block): a = arena buffer of f32, b = its number, c = that of the probe to whose value
 * this one is added, or INFR_NONE; does nothing but in selftest.
 */
struct infr_step {
    uint32_t kind, a, b, c;
};

struct infr_block {
    uint32_t first, count; /* in the steps table */
};

/*
 * A golden vector: inputs are made by runtime/abi/random.h from `seed` at the symbol values given, outputs were computed by
 * the compiler's evaluator. For each output, for some states at the end of the call, and for each probe (golden_text.h):
 * elements at positions first, first + step, first + 2*step, ... as f64; first is 0 but for probes.
 */
struct infr_golden {
    uint64_t seed;
    uint32_t symbols; /* in the i64 pool: one value a symbol */
    uint32_t outputs; /* first row in golden_outputs: one an output, then those of states and of probes */
    uint32_t n_rows, pad;
};

struct infr_golden_output {
    uint64_t elems;  /* of the whole output */
    uint64_t step;
    uint32_t values, n_values; /* in the f64 pool */
    double scale;     /* max(std, 1e-3 * max|ref|) over the whole output; of a probe, over what was added since the last */
    double tolerance; /* on max|d| / scale */
    uint32_t input; /* the state input that this is; INFR_NONE: an output or a probe */
    uint32_t probe; /* since 1.4: number of the probe + 1; 0: none */
};

struct infr_kernel {
    infr_str symbol;
    uint32_t isa_mask;    /* levels that have code */
    uint32_t scratch_bytes;
    uint32_t pad;
    uint64_t hash;        /* of the canonical loop IR of the highest level */
};

struct infr_header {
    uint64_t magic;
    uint32_t header_bytes;
    uint16_t major, minor;
    uint64_t blob_bytes;
    uint64_t weights_bytes; /* of the segment */
    uint64_t weights_hash;  /* of all its bytes (xxh64), for selftest */
    infr_str model_name, compiler_version, manifest; /* manifest: JSON text */
    uint32_t isa_mask;      /* levels of this engine */
    struct infr_table dims, symbols, inputs, outputs, checks, bufs, args, launches, steps, blocks, kernels;
    struct infr_table goldens, golden_outputs, pool_u32, pool_i64, pool_f64;
    uint32_t entry_block;
    uint32_t branch_checks; /* the last rows of checks: those of CHECK steps; the others hold for every call */
    /* Since 1.1; header_bytes tells. The text section (runtime/abi/text_format.h): offset a multiple of 64; bytes 0: none. */
    uint32_t text_offset, text_bytes;
};

/* Symbols that the compiler's data object defines. */
#define INFR_SYM_PLAN "infr_plan"
#define INFR_SYM_PLAN_BYTES "infr_plan_bytes"
#define INFR_SYM_KERNELS "infr_kernel_table"
/* Only with a text section: refers to the text commands, which makes the linker take them from the archive. */
#define INFR_SYM_TEXT_LINK "infr_text_link"
/* Of the runtime: the text commands (struct cli_extra in runtime/cli.h). */
#define INFR_SYM_TEXT_COMMANDS "infr_text_commands"
/* The same of a server for engines without a text section. */
#define INFR_SYM_SERVE_LINK "infr_serve_link"
#define INFR_SYM_SERVE_COMMANDS "infr_serve_commands"

#endif
