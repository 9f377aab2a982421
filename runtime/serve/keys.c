// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/serve/keys.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static struct serve_key *find(struct server *s, const uint64_t hash[2])
{
    struct serve_key *found = NULL;
    for (uint32_t i = 0; i < s->n_keys; i++) /* all of them, whichever fits */
        if (s->keys[i].hash[0] == hash[0] && s->keys[i].hash[1] == hash[1]) found = &s->keys[i];
    return found;
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
        if (!take_limit(k, word) || (s->o.requests_only && (k->tpm > 0 || k->budget > 0))) return false;
    k->requests = k->rpm, k->tokens = k->tpm;
    const struct serve_key *old = find(s, k->hash);
    if (old) { /* what it has used stays, whatever the limits are now */
        k->used = old->used, k->filled = old->filled;
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
        return cli_usage("--api-key-file: '%s', line %u: behind a key %s", s->o.key_path, number,
                         s->o.requests_only ? "is rpm=N; limits in tokens are the engines'" : "are rpm=N, tpm=N, budget=N");
    return *n ? INFR_OK : cli_usage("--api-key-file: '%s' has no key", s->o.key_path);
}

int keys_load(struct server *s)
{
    uint32_t n = 0;
    if (!s->o.key_path) return INFR_OK;
    FILE *f = fopen(s->o.key_path, "re");
    if (!f) {
        cli_usage("--api-key-file: cannot read '%s': %s", s->o.key_path, strerror(errno));
        return INFR_ENVIRONMENT;
    }
    struct serve_key *keys = calloc(MAX_KEYS, sizeof *keys);
    int code = keys ? read_keys(s, f, keys, &n) : INFR_ENVIRONMENT;
    fclose(f);
    if (code) {
        free(keys);
        return code;
    }
    free(s->keys);
    s->keys = keys, s->n_keys = n;
    return INFR_OK;
}

/* ---- requests ---- */

/* "Authorization: Bearer KEY" or "x-api-key: KEY" */
bool keys_authorize(struct server *s, struct http_conn *c)
{
    if (!s->o.key_path) return true;
    const struct http_span *v = http_find(&c->head, "authorization");
    struct http_span key = {"", 0};
    if (v && v->n > 7 && http_is_word((struct http_span){v->p, 7}, "bearer "))
        key = (struct http_span){v->p + 7, v->n - 7};
    else if (!v && (v = http_find(&c->head, "x-api-key")))
        key = *v;
    if (key.n && key.n <= 400) {
        hash_key(s, key.p, key.n, c->key);
        if (find(s, c->key)) return true;
    }
    s->metrics.auth_refused++;
    http_header(c, "WWW-Authenticate: Bearer");
    server_error(c, 401, NULL, "this server wants an API key: Authorization: Bearer KEY");
    return false;
}

static void fill(struct serve_key *k)
{
    double now = serve_clock(), minutes = (now - k->filled) / 60;
    k->filled = now;
    k->requests = fmin(k->rpm, k->requests + minutes * k->rpm);
    k->tokens = fmin(k->tpm, k->tokens + minutes * k->tpm);
}

static void wait_for(struct http_conn *c, double missing, double per_minute)
{
    double s = ceil(60 * missing / per_minute);
    http_header(c, "Retry-After: %.0f", s < 1 ? 1 : s);
}

bool keys_admit(struct server *s, struct http_conn *c)
{
    struct serve_key *k = s->o.key_path ? find(s, c->key) : NULL;
    if (!k) return true;
    fill(k);
    if (k->rpm > 0) {
        http_header(c, "x-ratelimit-limit-requests: %.0f", k->rpm);
        http_header(c, "x-ratelimit-remaining-requests: %.0f", floor(fmax(k->requests - 1, 0)));
    }
    if (k->tpm > 0) {
        http_header(c, "x-ratelimit-limit-tokens: %.0f", k->tpm);
        http_header(c, "x-ratelimit-remaining-tokens: %.0f", floor(fmax(k->tokens, 0)));
    }
    if (k->budget > 0 && k->used >= k->budget) {
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

void keys_charge(struct server *s, const uint64_t hash[2], uint64_t tokens)
{
    struct serve_key *k = s->o.key_path ? find(s, hash) : NULL;
    if (!k) return;
    fill(k);
    k->tokens -= (double)tokens;
    k->used += (double)tokens;
}
