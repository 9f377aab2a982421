// SPDX-License-Identifier: Apache-2.0
/*
 * API keys: a file with one a line, "KEY [rpm=N] [tpm=N] [budget=N]". rpm and tpm are requests and tokens
 * a minute, budget is tokens for as long as the process runs. Keys are kept as hashes; those that have gone
 * from the file too, so that one that comes back has used what it had.
 *
 * Limits are buckets that fill by the minute. A request takes one from the first; tokens are known when an
 * answer has ended, so that the bucket may go below zero: the next request waits until it is above.
 *
 * A front process, which has the keys, does not see tokens: engines do. Accounts, an array of counters that
 * all of them map, are where engines add what a request cost, by the number that came with it.
 */
#ifndef INFC_RUNTIME_SERVE_KEYS_H
#define INFC_RUNTIME_SERVE_KEYS_H

#include <stdbool.h>
#include <stdint.h>

struct http_conn;
struct server;

enum {
    MAX_KEYS = 1024,
    MAX_ACCOUNTS = 65536,    /* keys in the life of a process, and one: no account is given twice */
    SERVE_ACCOUNTS_FD = 60   /* in an engine, behind the listeners that it may have */
};
/* The descriptor of the accounts, in the environment of engines. */
#define SERVE_ACCOUNTS "INFC_ACCOUNTS"

/* Whose a request is. */
struct serve_payer {
    uint64_t hash[2]; /* of its API key; 0: none */
    uint32_t account; /* 0: none */
};

struct serve_key {
    uint64_t hash[2];
    double rpm, tpm, budget;       /* 0: no limit */
    double requests, tokens, used; /* what is left in the buckets; tokens so far */
    double filled;                 /* clock */
    uint32_t account;              /* 0: tokens are counted here */
    uint64_t counted;              /* of the account's tokens */
};

/* Reads the file again, and keeps the old keys when it cannot; what a key has used stays, whether it stays or comes back. */
int keys_load(struct server *s);
/* False: replied, without a key that is known. */
bool keys_authorize(struct server *s, struct http_conn *c);
/* A request that computes: false: replied, its key has reached a limit. */
bool keys_admit(struct server *s, struct http_conn *c);
/* The tokens of an answer, for the key and the account. */
void keys_charge(struct server *s, const struct serve_payer *payer, uint64_t tokens);

/* ---- accounts ---- */

/* Makes them: the descriptor for engines, or negative. Its keys have accounts from now on. */
int keys_share(struct server *s);
/* Maps those that a front process passed on, if one did. */
int keys_inherit(struct server *s);
void keys_unmap(struct server *s);

#endif
