// SPDX-License-Identifier: Apache-2.0
/* Engines as other programs see them: their JSON, their outputs. */
#ifndef INFC_COMPILER_BENCH_ENGINE_H
#define INFC_COMPILER_BENCH_ENGINE_H

#include <jansson.h>

#include "compiler/bench/session.h"

/* Runs argv, a NULL-terminated list, and reads its standard output as JSON; NULL after a diagnostic. json_decref it. */
json_t *engine_json(const char *const *argv, struct diag_sink *diag);
/* Runs argv with its output thrown away; the exit status, or -1. */
int engine_run(const char *const *argv);

/* Is it an engine of a language model? By `info --json`. threads: of its default. False after a diagnostic. */
bool engine_facts(const char *engine, bool *is_text, int *threads, struct diag_sink *diag);

/*
 * Fills v->error of every engine after the first: on equal seeded inputs the outputs' greatest difference relative to their
 * scale, of language models the greatest difference of log probabilities of a text's tokens.
 */
void bench_compare_outputs(struct bench_session *s);

/* Work of a call by `profile`: fills achieved_* of every engine from its median. */
void bench_find_work(struct bench_session *s);

#endif
