// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/serve/keys.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/serve/server.h"
#include "runtime/xxh64.h"

static void hash_key(const struct server *s, const char *key, size_t n, uint64_t out[2])
{
    char text[512];
    if (n > sizeof text - 16) n = sizeof text - 16;
    for (int i = 0; i < 2; i++) {
        uint64_t salt = s->key_salt + (uint64_t)i;
        memcpy(text, &salt, 8);
        memcpy(text + 8, key, n);
        out[i] = rt_xxh64(text, n + 8);
    }
    explicit_bzero(text, sizeof text);
}

static struct serve_key *find_in(struct serve_key *keys, uint32_t n, const uint64_t hash[2])
{
    struct serve_key *found = NULL;
    for (uint32_t i = 0; i < n; i++) /* all of them, whichever fits */
        if (keys[i].hash[0] == hash[0] && keys[i].hash[1] == hash[1]) found = &keys[i];
    return found;
}

static struct serve_key *find(struct server *s, const uint64_t hash[2]) { return find_in(s->keys, s->n_keys, hash); }

/* Of a request that is there: its key may be gone from the file. */
static struct serve_key *find_payer(struct server *s, const struct serve_payer *payer)
{
    return s->o.key_path ? find_in(s->keys, s->n_keys + s->n_former, payer->hash) : NULL;
}

/* ---- the file ---- */

static bool take_limit(struct serve_key *k, const char *word)
{
    static const char *const names[] = {"rpm=", "tpm=", "budget="};
    double *const to[] = {&k->rpm, &k->tpm, &k->budget};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(names[i]);
        char *end;
        if (strncmp(word, names[i], n)) continue;
        *to[i] = strtod(word + n, &end);
        return end != word + n && !*end && *to[i] >= 1 && *to[i] <= 1e15;
    }
    return false;
}

/* One line; changed. *used: it has a key. False: a word is no limit. */
static bool take_line(struct server *s, char *line, struct serve_key *k, bool *used)
{
    char *rest, *word = strtok_r(line, " \t\r\n", &rest);
    *used = word && *word != '#';
    if (!*used) return true;
    *k = (struct serve_key){.filled = serve_clock()};
    hash_key(s, word, strlen(word), k->hash);
    while ((word = strtok_r(NULL, " \t\r\n", &rest)))
        if (!take_limit(k, word)) return false;
    k->requests = k->rpm, k->tokens = k->tpm;
    const struct serve_key *old = find_in(s->keys, s->n_keys + s->n_former, k->hash);
    if (old) { /* what it has used stays, whatever the limits are now */
        k->used = old->used, k->filled = old->filled, k->account = old->account, k->counted = old->counted;
        k->requests = fmin(k->rpm, old->rpm > 0 ? old->requests : k->rpm);
        k->tokens = fmin(k->tpm, old->tpm > 0 ? old->tokens : k->tpm);
    }
    return true;
}

static int read_keys(struct server *s, FILE *f, struct serve_key *keys, uint32_t *n)
{
    char *line = NULL;
    size_t cap = 0;
    unsigned number = 0;
    bool ok = true, used;
    while (ok && *n < MAX_KEYS && getline(&line, &cap, f) > 0) {
        number++;
        ok = take_line(s, line, &keys[*n], &used);
        *n += ok && used;
    }
    if (line) explicit_bzero(line, cap);
    free(line);
    if (!ok)
        return cli_usage("--api-key-file: '%s', line %u: behind a key are rpm=N, tpm=N, budget=N", s->o.key_path, number);
    return *n ? INFR_OK : cli_usage("--api-key-file: '%s' has no key", s->o.key_path);
}

static int too_many(const struct server *s)
{
    return cli_usage("--api-key-file: '%s': more than %d keys since the server started; start it again", s->o.key_path, MAX_ACCOUNTS - 1);
}

/* Puts those that are no more in the file behind the ones that are. */
static int keep_former(struct server *s, struct serve_key **keys, uint32_t n, uint32_t *n_former)
{
    uint32_t most = s->n_keys + s->n_former;
    struct serve_key *all = realloc(*keys, ((size_t)n + most) * sizeof *all);
    *n_former = 0;
    if (!all) return INFR_ENVIRONMENT;
    *keys = all;
    for (uint32_t i = 0; i < most; i++)
        if (!find_in(all, n, s->keys[i].hash)) all[n + (*n_former)++] = s->keys[i];
    return n + *n_former < MAX_ACCOUNTS ? INFR_OK : too_many(s);
}

/* Accounts for those that have none. */
static int open_accounts(struct server *s, struct serve_key *keys, uint32_t n)
{
    uint32_t next = s->n_accounts;
    for (uint32_t i = 0; s->shares && i < n; i++) {
        if (keys[i].account) continue;
        if (++next == MAX_ACCOUNTS) return too_many(s);
        keys[i].account = next;
    }
    s->n_accounts = next;
    return INFR_OK;
}

int keys_load(struct server *s)
{
    uint32_t n = 0, n_former = 0;
    if (!s->o.key_path) return INFR_OK;
    FILE *f = fopen(s->o.key_path, "re");
    if (!f) {
        cli_usage("--api-key-file: cannot read '%s': %s", s->o.key_path, strerror(errno));
        return INFR_ENVIRONMENT;
    }
    struct serve_key *keys = calloc(MAX_KEYS, sizeof *keys);
    int code = keys ? read_keys(s, f, keys, &n) : INFR_ENVIRONMENT;
    fclose(f);
    if (!code) code = keep_former(s, &keys, n, &n_former);
    if (!code) code = open_accounts(s, keys, n);
    if (code) {
        free(keys);
        return code;
    }
    free(s->keys);
    s->keys = keys, s->n_keys = n, s->n_former = n_former;
    return INFR_OK;
}

/* ---- requests ---- */

/* What a front process says of a request. */
static void take_account(const struct server *s, struct http_conn *c)
{
    const struct http_span *v = s->accounts && !s->shares && c->local ? http_find(&c->head, "x-infc-account") : NULL;
    uint32_t n = 0;
    for (size_t i = 0; v && i < v->n && v->p[i] >= '0' && v->p[i] <= '9' && n < MAX_ACCOUNTS; i++) n = 10 * n + (uint32_t)(v->p[i] - '0');
    c->payer.account = n < MAX_ACCOUNTS ? n : 0;
}

/* "Authorization: Bearer KEY" or "x-api-key: KEY" */
bool keys_authorize(struct server *s, struct http_conn *c)
{
    c->payer = (struct serve_payer){0};
    take_account(s, c);
    if (!s->o.key_path) return true;
    const struct http_span *v = http_find(&c->head, "authorization");
    struct http_span key = {"", 0};
    if (v && v->n > 7 && http_is_word((struct http_span){v->p, 7}, "bearer "))
        key = (struct http_span){v->p + 7, v->n - 7};
    else if (!v && (v = http_find(&c->head, "x-api-key")))
        key = *v;
    if (key.n && key.n <= 400) {
        hash_key(s, key.p, key.n, c->payer.hash);
        const struct serve_key *k = find(s, c->payer.hash);
        if (k && s->shares) c->payer.account = k->account;
        if (k) return true;
    }
    s->metrics.auth_refused++;
    http_header(c, "WWW-Authenticate: Bearer");
    server_error(c, 401, NULL, "this server wants an API key: Authorization: Bearer KEY");
    return false;
}

static void spend(struct serve_key *k, uint64_t tokens)
{
    k->tokens -= (double)tokens;
    k->used += (double)tokens;
}

static void fill(const struct server *s, struct serve_key *k)
{
    double now = serve_clock(), minutes = (now - k->filled) / 60;
    k->filled = now;
    k->requests = fmin(k->rpm, k->requests + minutes * k->rpm);
    k->tokens = fmin(k->tpm, k->tokens + minutes * k->tpm);
    if (!k->account) return;
    uint64_t n = atomic_load_explicit(&s->accounts[k->account], memory_order_relaxed);
    spend(k, n - k->counted);
    k->counted = n;
}

static void wait_for(struct http_conn *c, double missing, double per_minute)
{
    double s = ceil(60 * missing / per_minute);
    http_header(c, "Retry-After: %.0f", s < 1 ? 1 : s);
}

bool keys_admit(struct server *s, struct http_conn *c)
{
    struct serve_key *k = s->o.key_path ? find(s, c->payer.hash) : NULL;
    if (!k) return true;
    fill(s, k);
    if (k->rpm > 0) {
        http_header(c, "x-ratelimit-limit-requests: %.0f", k->rpm);
        http_header(c, "x-ratelimit-remaining-requests: %.0f", floor(fmax(k->requests - 1, 0)));
    }
    if (k->tpm > 0) {
        http_header(c, "x-ratelimit-limit-tokens: %.0f", k->tpm);
        http_header(c, "x-ratelimit-remaining-tokens: %.0f", floor(fmax(k->tokens, 0)));
    }
    if (k->budget > 0 && k->used >= k->budget) {
        c->quota_spent = true; /* no Retry-After: there is no time after which it would be another one */
        http_header(c, "x-should-retry: false");
        server_error(c, 429, NULL, "this key's budget of %.0f tokens is used up", k->budget);
    } else if (k->rpm > 0 && k->requests < 1) {
        wait_for(c, 1 - k->requests, k->rpm);
        server_error(c, 429, NULL, "this key may ask %.0f times a minute", k->rpm);
    } else if (k->tpm > 0 && k->tokens <= 0) {
        wait_for(c, 1 - k->tokens, k->tpm);
        server_error(c, 429, NULL, "this key has %.0f tokens a minute", k->tpm);
    } else {
        k->requests -= 1;
        return true;
    }
    s->metrics.limit_refused++;
    return false;
}

void keys_charge(struct server *s, const struct serve_payer *payer, uint64_t tokens)
{
    struct serve_key *k = find_payer(s, payer);
    if (payer->account && s->accounts) atomic_fetch_add_explicit(&s->accounts[payer->account], tokens, memory_order_relaxed);
    if (!k) return;
    fill(s, k);
    spend(k, tokens);
}

/* ---- accounts ---- */

enum { ACCOUNT_BYTES = MAX_ACCOUNTS * sizeof(uint64_t) };

static bool map(struct server *s, int fd)
{
    void *p = mmap(NULL, ACCOUNT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    s->accounts = p == MAP_FAILED ? NULL : p;
    return s->accounts;
}

int keys_share(struct server *s)
{
    int fd = memfd_create("accounts", MFD_CLOEXEC);
    s->shares = true;
    if (fd >= 0 && !ftruncate(fd, ACCOUNT_BYTES) && map(s, fd)) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

int keys_inherit(struct server *s)
{
    const char *text = s->shares ? NULL : getenv(SERVE_ACCOUNTS);
    struct stat info;
    if (!text) return INFR_OK;
    int fd = atoi(text);
    if (fd > 2 && !fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size == ACCOUNT_BYTES && map(s, fd)) return INFR_OK;
    cli_usage(SERVE_ACCOUNTS "=%s: there are no accounts", text);
    return INFR_ENVIRONMENT;
}

void keys_unmap(struct server *s)
{
    if (s->accounts) munmap((void *)(uintptr_t)s->accounts, ACCOUNT_BYTES);
    s->accounts = NULL;
}
