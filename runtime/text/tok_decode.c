// SPDX-License-Identifier: Apache-2.0
/* Ids to text. The bytes of neighbouring tokens are joined before they are read as UTF-8; decoding
 * at once is the stream with all its chunks put together, so the two cannot differ. */
#include <string.h>

#include "runtime/text/tok_internal.h"

void tok_stream_init(struct tok_stream *s, const struct tok *t, unsigned flags)
{
    *s = (struct tok_stream){.t = t, .flags = flags, .at_start = !(flags & TOK_DECODE_CONTINUED)};
}

/* Every pending or new byte may become U+FFFD. */
size_t tok_stream_max(const struct tok *t) { return 3 * ((size_t)t->h->max_token_bytes + 4); }

/* The bytes that an id adds to the text. */
static const uint8_t *visible_bytes(struct tok_stream *s, uint32_t id, size_t *n)
{
    const struct tok *t = s->t;
    *n = 0;
    if (id >= t->h->n_tokens) return NULL;
    unsigned type = t->attrs[id] & TOK_ATTR_TYPE;
    bool special = type == TOK_TYPE_CONTROL || type == TOK_TYPE_UNKNOWN;
    if (special && !(s->flags & TOK_DECODE_SPECIAL)) return NULL;
    const uint8_t *p = tok_string(t, id, n);
    if (*n == 0) return NULL;
    if (*n > t->h->max_token_bytes) *n = t->h->max_token_bytes; /* a damaged block */
    if (s->at_start && tok_wants(t, TOK_F_STRIP_LEADING) && !special && p[0] == ' ') {
        p++;
        --*n;
    }
    s->at_start = false;
    return p;
}

static size_t put_replacement(char *out)
{
    memcpy(out, "\xef\xbf\xbd", 3);
    return 3;
}

/* Adds bytes to the pending ones and writes whatever is complete. */
static size_t push_bytes(struct tok_stream *s, const uint8_t *p, size_t n, char *out)
{
    size_t written = 0, i = 0;
    while (s->n_pending > 0 && i < n) { /* at most three bytes: one at a time */
        int valid;
        s->pending[s->n_pending++] = p[i++];
        unsigned len = utf8_scan(s->pending, s->n_pending, &valid);
        if (valid < 0) continue;
        if (valid == 1) {
            memcpy(out + written, s->pending, len);
            written += len;
        } else {
            written += put_replacement(out + written);
            /* The byte that ended the ill-formed part begins something new; it may be ill-formed by
             * itself. */
            if (len < s->n_pending) i--;
        }
        s->n_pending = 0;
    }
    while (i < n) {
        int valid;
        unsigned len = utf8_scan(p + i, n - i, &valid);
        if (valid < 0) {
            memcpy(s->pending, p + i, len);
            s->n_pending = (uint8_t)len;
            break;
        }
        if (valid == 1) memcpy(out + written, p + i, len);
        written += valid == 1 ? len : put_replacement(out + written);
        i += len;
    }
    return written;
}

size_t tok_stream_push(struct tok_stream *s, uint32_t id, char *out)
{
    size_t n;
    const uint8_t *p = visible_bytes(s, id, &n);
    return p == NULL ? 0 : push_bytes(s, p, n, out);
}

size_t tok_stream_finish(struct tok_stream *s, char *out)
{
    if (s->n_pending == 0) return 0;
    s->n_pending = 0;
    return put_replacement(out);
}

enum tok_status tok_decode(const struct tok *t, const uint32_t *ids, size_t n_ids, unsigned flags,
                           char *out, size_t cap, size_t *n_out)
{
    enum { STEP = 256 }; /* long tokens are pushed in parts, so that the chunk fits on the stack */
    char chunk[3 * (STEP + 4)];
    struct tok_stream s;
    tok_stream_init(&s, t, flags);
    *n_out = 0;
    for (size_t i = 0; i <= n_ids; i++) {
        size_t n = 0, at = 0;
        if (i < n_ids && ids[i] >= t->h->n_tokens) return TOK_ERR_ID;
        const uint8_t *p = i < n_ids ? visible_bytes(&s, ids[i], &n) : NULL;
        do {
            size_t part = n - at < STEP ? n - at : STEP;
            size_t len = i < n_ids ? (part > 0 ? push_bytes(&s, p + at, part, chunk) : 0)
                                   : tok_stream_finish(&s, chunk);
            size_t room = *n_out < cap ? cap - *n_out : 0;
            if (len > 0 && room > 0) memcpy(out + *n_out, chunk, len < room ? len : room);
            *n_out += len;
            at += part;
        } while (at < n);
    }
    return *n_out <= cap ? TOK_OK : TOK_ERR_SPACE;
}
