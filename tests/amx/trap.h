// SPDX-License-Identifier: Apache-2.0
/* Tile instructions of this process on whatever CPU runs it: natively, or by the model of tiles.h behind SIGILL. */
#ifndef INFC_TESTS_AMX_TRAP_H
#define INFC_TESTS_AMX_TRAP_H

enum amx_way {
    AMX_ABSENT,  /* the CPU lacks what the level amx has below tiles */
    AMX_NATIVE,
    AMX_EMULATED
};

/*
 * Readies tile instructions for all threads and says how they run. Emulated: each thread has a unit of its own; an operand at memory that is
 * not there is a SIGSEGV as on a CPU, as a configuration that breaks a rule is; another misuse is a SIGILL for who handled it before. The broken
 * rule is printed. Call it in every test: cmocka sets handlers of its own before each.
 */
enum amx_way amx_ready(void);

#endif
