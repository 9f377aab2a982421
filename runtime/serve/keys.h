// SPDX-License-Identifier: Apache-2.0
/*
 * API keys: a file with one a line, "KEY [rpm=N] [tpm=N] [budget=N]". rpm and tpm are requests and tokens
 * a minute, budget is tokens for as long as the process runs. Keys are kept as hashes.
 *
 * Limits are buckets that fill by the minute. A request takes one from the first; tokens are known when an
 * answer has ended, so that the bucket may go below zero: the next request waits until it is above.
 */
#ifndef INFC_RUNTIME_SERVE_KEYS_H
#define INFC_RUNTIME_SERVE_KEYS_H

#include <stdbool.h>
#include <stdint.h>

struct http_conn;
struct server;

enum { MAX_KEYS = 1024 };

struct serve_key {
    uint64_t hash[2];
    double rpm, tpm, budget;       /* 0: no limit */
    double requests, tokens, used; /* what is left in the buckets; tokens so far */
    double filled;                 /* clock */
};

/* Reads the file again, and keeps the old keys when it cannot; what a key has used stays. */
int keys_load(struct server *s);
/* False: replied, without a key that is known. */
bool keys_authorize(struct server *s, struct http_conn *c);
/* A request that computes: false: replied, its key has reached a limit. */
bool keys_admit(struct server *s, struct http_conn *c);
/* The tokens of an answer, for the key with this hash. */
void keys_charge(struct server *s, const uint64_t hash[2], uint64_t tokens);

#endif
