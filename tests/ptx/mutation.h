// SPDX-License-Identifier: Apache-2.0
/*
 * Mutants of PTX: faults by rule, one a time - barriers and waits dropped or weakened, masks, indices, addresses and swizzles off - and
 * what became of each. The caller judges a mutant, mostly by running it (mutate.c: kernels of the validation; mutate_printed.c: what
 * infc prints).
 *
 * A list of arguments says which mutants mean what the original means: lines "KERNEL RULE PATTERN": a glob, the rule's name, and an
 * extended regular expression for the whole of "INSTRUCTION -> MUTANT", where registers have lost their numbers (%r12 is %r) and spaces
 * are single. With "+" behind the rule, of "INSTRUCTION | NEXT -> MUTANT", NEXT being the instruction behind it. Comments say why. Only
 * mutants that nobody notices are looked up there.
 */
#ifndef INFC_TESTS_PTX_MUTATION_H
#define INFC_TESTS_PTX_MUTATION_H

#include <stdbool.h>

enum mutation_fate { MUTANT_SURVIVED, MUTANT_CAUGHT, MUTANT_INVALID /* no program that the machine takes */ };

struct mutation_tally {
    int made, invalid, caught, equivalent, survived, unreached; /* unreached: survivors in lines that nothing executes */
};

struct mutation_arguments;
/* NULL after a message on standard error. */
struct mutation_arguments *mutation_arguments_read(const char *path);
void mutation_arguments_free(struct mutation_arguments *a);

struct mutation {
    const char *name; /* in arguments and messages */
    const struct mutation_arguments *arguments;
    enum mutation_fate (*judge)(void *context, int text, const char *ptx);
    void *context;
    int every, *count; /* one mutant of so many, counted over several runs */
    struct mutation_tally tally;
};

/* The lines of one kernel, of each entry whose name begins `kernel` (or is it), in texts of it at several sizes: lines that are at the same place,
 * registers and numbers aside (longest common subsequence), are one line, and a mutant of it is caught when it is caught in one text. Each
 * survivor is a line on standard output: name, PTX line, rule, the instruction and what it became, of the first text that has it;
 * "unreached" for "survived" where a trap in the line's place does not show either. */
void mutation_run(struct mutation *m, const char *const *texts, int n, const char *kernel);
void mutation_add(struct mutation_tally *sum, const struct mutation_tally *t);
void mutation_print(const char *name, const struct mutation_tally *t);
/* At least `least` percent of those not argued equivalent caught, and at most 15% of all argued equivalent? */
bool mutation_enough(const struct mutation_tally *t, int least);

#endif
