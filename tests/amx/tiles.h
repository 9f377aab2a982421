// SPDX-License-Identifier: Apache-2.0
/*
 * The tile unit of AMX as Intel's manual (volume 2, "Intel AMX instructions") states it: state, decoding, execution and faults. For tests:
 * who catches the undefined opcodes of a CPU without tiles (trap.h) lets this execute them.
 *
 * Not modelled, and refused as not ours: segment overrides, 32-bit addresses, instructions of other extensions than TILE, INT8, BF16, FP16.
 */
#ifndef INFC_TESTS_AMX_TILES_H
#define INFC_TESTS_AMX_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AMX_TILES = 8, AMX_ROWS = 16, AMX_ROW_BYTES = 64, AMX_CONFIG_BYTES = 64, AMX_LONGEST = 15 /* bytes of an instruction */ };

/* Palette 1 is the only one. All zero: the initial state. */
struct amx_unit {
    bool configured;
    uint8_t start_row;
    uint8_t rows[AMX_TILES];
    uint16_t colsb[AMX_TILES];
    uint8_t tile[AMX_TILES][AMX_ROWS][AMX_ROW_BYTES];
};

/* The program's memory; false: the bytes at `at` are not there. */
struct amx_memory {
    void *ctx;
    bool (*read)(void *ctx, uint64_t at, void *out, size_t n);
    bool (*write)(void *ctx, uint64_t at, const void *in, size_t n);
};

enum amx_outcome {
    AMX_DONE,
    AMX_NOT_OURS,  /* no tile instruction: the CPU was right */
    AMX_UD,        /* invalid opcode */
    AMX_GP,        /* general protection: a bad configuration */
    AMX_PAGE_FAULT /* at `address`; start_row holds the row to go on from */
};

struct amx_result {
    enum amx_outcome outcome;
    int length;       /* of the instruction, when DONE */
    const char *why;  /* of a fault: the rule that was broken */
    uint64_t address;
};

/* Executes the instruction at `code` (n bytes can be read), whose address is rip. gpr: as encoded, rax rcx rdx rbx rsp rbp rsi rdi r8 .. r15. */
struct amx_result amx_step(struct amx_unit *u, const uint8_t *code, size_t n, uint64_t rip, const uint64_t gpr[16], const struct amx_memory *mem);

#endif
