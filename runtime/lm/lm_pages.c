// SPDX-License-Identifier: Apache-2.0
#include "runtime/lm/lm_pages.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/status.h"

#define MAX_PAGES (1u << 28)

struct page {
    uint32_t refs;
    uint32_t node;       /* LM_NONE: not published */
    uint32_t prev, next; /* among the cached, or next of the free */
};

/* An inner node may have lost its page; a leaf has one. */
struct node {
    uint32_t page, parent; /* LM_NONE: evicted; below the salt */
    uint32_t n_children;
    uint32_t next; /* of its hash bucket, or of the free nodes */
    uint64_t salt, hash;
};

struct lm_pages {
    struct lm_pages_options o;
    struct page *pages;
    struct node *nodes;
    uint32_t *node_tokens; /* [n_nodes * page_tokens] */
    uint32_t *buckets;     /* [bucket_mask + 1] */
    uint32_t bucket_mask, n_nodes;
    uint32_t free_page, fresh_page; /* list of those given back; the first never used */
    uint32_t free_node, fresh_node;
    uint32_t oldest, newest; /* cached pages by time of last use */
    struct lm_page_counts counts;
};

/* ---- creation ---- */

int lm_pages_create(const struct lm_pages_options *o, struct lm_pages **out, struct infr_status *st)
{
    *out = NULL;
    if (!o->n_pages || o->n_pages > MAX_PAGES || !o->page_tokens || o->page_tokens > 1u << 16 ||
        !o->max_pages || (uint64_t)o->max_pages * o->page_tokens > INT32_MAX)
        return rt_fail(st, INFR_BAD_INPUT,
                       "a KV cache of %u pages of %u tokens, %u a sequence, is not possible",
                       o->n_pages, o->page_tokens, o->max_pages);
    /* Paths without pages: those of one full sequence, and as many again as there are pages. */
    uint64_t n_nodes = (uint64_t)o->n_pages + (o->window ? (uint64_t)o->n_pages + o->max_pages : 0);
    if (o->no_sharing) n_nodes = 1;
    uint64_t n_buckets = 8;
    while (n_buckets < n_nodes) n_buckets *= 2;
    struct lm_pages *p = calloc(1, sizeof *p);
    if (p) {
        p->pages = malloc(o->n_pages * sizeof *p->pages);
        p->nodes = malloc(n_nodes * sizeof *p->nodes);
        p->node_tokens = malloc(n_nodes * o->page_tokens * sizeof *p->node_tokens);
        p->buckets = malloc(n_buckets * sizeof *p->buckets);
    }
    if (!p || !p->pages || !p->nodes || !p->node_tokens || !p->buckets) {
        lm_pages_destroy(p);
        return rt_fail_memory(st, "the page table of the KV cache",
                              n_nodes * (sizeof *p->nodes + 4u * o->page_tokens));
    }
    p->o = *o;
    p->n_nodes = (uint32_t)n_nodes;
    p->bucket_mask = (uint32_t)n_buckets - 1;
    p->free_page = p->free_node = p->oldest = p->newest = LM_NONE;
    memset(p->buckets, 0xff, n_buckets * sizeof *p->buckets);
    p->counts.free = o->n_pages;
    *out = p;
    return INFR_OK;
}

void lm_pages_destroy(struct lm_pages *p)
{
    if (!p) return;
    free(p->pages);
    free(p->nodes);
    free(p->node_tokens);
    free(p->buckets);
    free(p);
}

void lm_pages_get_counts(const struct lm_pages *p, struct lm_page_counts *out) { *out = p->counts; }
uint32_t lm_pages_page_tokens(const struct lm_pages *p) { return p->o.page_tokens; }

/* ---- the tree ---- */

static uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

static uint64_t hash_page(const struct lm_pages *p, uint32_t parent, uint64_t salt,
                          const uint32_t *tokens)
{
    uint64_t h = mix(p->o.hash_seed ^ (parent == LM_NONE ? salt : parent + 1ull));
    for (uint32_t i = 0; i < p->o.page_tokens; i++) h = mix(h + tokens[i] + 0x9e3779b97f4a7c15u);
    return h;
}

static uint32_t find_node(const struct lm_pages *p, uint32_t parent, uint64_t salt,
                          const uint32_t *tokens, uint64_t hash)
{
    uint32_t n = p->o.page_tokens, i = p->buckets[hash & p->bucket_mask];
    for (; i != LM_NONE; i = p->nodes[i].next) {
        const struct node *x = &p->nodes[i];
        if (x->hash == hash && x->parent == parent && (parent != LM_NONE || x->salt == salt) &&
            !memcmp(p->node_tokens + (size_t)i * n, tokens, n * sizeof *tokens))
            return i;
    }
    return LM_NONE;
}

static void free_node(struct lm_pages *p, uint32_t i)
{
    struct node *x = &p->nodes[i];
    uint32_t *link = &p->buckets[x->hash & p->bucket_mask];
    while (*link != i) link = &p->nodes[*link].next;
    *link = x->next;
    x->next = p->free_node;
    p->free_node = i;
}

/* Removes the node if it is a leaf without page, and then its parent likewise. */
static void prune(struct lm_pages *p, uint32_t i)
{
    while (i != LM_NONE && !p->nodes[i].n_children && p->nodes[i].page == LM_NONE) {
        uint32_t parent = p->nodes[i].parent;
        free_node(p, i);
        if (parent != LM_NONE) p->nodes[parent].n_children--;
        i = parent;
    }
}

static uint32_t make_node(struct lm_pages *p, uint32_t parent, uint64_t salt,
                          const uint32_t *tokens, uint64_t hash)
{
    uint32_t i = p->free_node;
    if (i != LM_NONE)
        p->free_node = p->nodes[i].next;
    else if (p->fresh_node < p->n_nodes)
        i = p->fresh_node++;
    else
        return LM_NONE;
    struct node *x = &p->nodes[i];
    *x = (struct node){LM_NONE, parent, 0, p->buckets[hash & p->bucket_mask], salt, hash};
    p->buckets[hash & p->bucket_mask] = i;
    memcpy(p->node_tokens + (size_t)i * p->o.page_tokens, tokens,
           p->o.page_tokens * sizeof *tokens);
    if (parent != LM_NONE) p->nodes[parent].n_children++;
    return i;
}

/* ---- pages ---- */

static void unlink_cached(struct lm_pages *p, uint32_t i)
{
    struct page *x = &p->pages[i];
    if (x->prev == LM_NONE)
        p->oldest = x->next;
    else
        p->pages[x->prev].next = x->next;
    if (x->next == LM_NONE)
        p->newest = x->prev;
    else
        p->pages[x->next].prev = x->prev;
    p->counts.cached--;
}

static void hold(struct lm_pages *p, uint32_t i)
{
    struct page *x = &p->pages[i];
    if (x->refs++) return;
    if (x->node != LM_NONE) unlink_cached(p, i);
    if (++p->counts.held > p->counts.most_held) p->counts.most_held = p->counts.held;
}

static void free_page(struct lm_pages *p, uint32_t i)
{
    p->pages[i].next = p->free_page;
    p->free_page = i;
    p->counts.free++;
}

static void unhold(struct lm_pages *p, uint32_t i)
{
    struct page *x = &p->pages[i];
    if (--x->refs) return;
    p->counts.held--;
    if (x->node == LM_NONE) {
        free_page(p, i);
        return;
    }
    x->prev = p->newest;
    x->next = LM_NONE;
    if (p->newest == LM_NONE)
        p->oldest = i;
    else
        p->pages[p->newest].next = i;
    p->newest = i;
    p->counts.cached++;
}

static void evict_oldest(struct lm_pages *p)
{
    uint32_t i = p->oldest, node = p->pages[i].node;
    unlink_cached(p, i);
    p->nodes[node].page = LM_NONE;
    prune(p, node);
    free_page(p, i);
    p->counts.evictions++;
}

/* There must be a free or cached page. Pages used before come first: those never used have no
 * memory yet. */
static uint32_t take_page(struct lm_pages *p)
{
    if (p->free_page == LM_NONE && p->fresh_page == p->o.n_pages) evict_oldest(p);
    uint32_t i = p->free_page;
    if (i != LM_NONE)
        p->free_page = p->pages[i].next;
    else
        i = p->fresh_page++;
    p->pages[i] = (struct page){0, LM_NONE, LM_NONE, LM_NONE};
    p->counts.free--;
    hold(p, i);
    return i;
}

void lm_pages_drop_cached(struct lm_pages *p)
{
    while (p->oldest != LM_NONE) evict_oldest(p);
}

/* ---- sequences ---- */

int lm_seq_init(const struct lm_pages *p, struct lm_seq *s, struct infr_status *st)
{
    *s = (struct lm_seq){.capacity = p->o.max_pages * p->o.page_tokens};
    s->tokens = malloc(s->capacity * sizeof *s->tokens);
    s->page_of = malloc(p->o.max_pages * sizeof *s->page_of);
    s->node_of = malloc(p->o.max_pages * sizeof *s->node_of);
    if (s->tokens && s->page_of && s->node_of) return INFR_OK;
    lm_seq_deinit(s);
    return rt_fail_memory(st, "a sequence", 4ull * s->capacity);
}

void lm_seq_deinit(struct lm_seq *s)
{
    free(s->tokens);
    free(s->page_of);
    free(s->node_of);
    *s = (struct lm_seq){0};
}

/* First page that position `end` and later ones read. */
static uint32_t first_needed(const struct lm_pages *p, uint32_t end)
{
    return p->o.window && end >= p->o.window ? (end - p->o.window + 1) / p->o.page_tokens : 0;
}

/*
 * First page that a sequence keeps. The last published one is kept in any case: held, it keeps its
 * node and those above alive, under which the sequence publishes its next page.
 */
static uint32_t first_held(const struct lm_pages *p, const struct lm_seq *s, uint32_t end)
{
    uint32_t needed = first_needed(p, end), last = s->n_published ? s->n_published - 1 : 0;
    return needed > last && !s->unpublished ? last : needed;
}

/*
 * Nodes of the longest usable prefix, at most n pages, into nodes[] (may be NULL); returns its
 * pages. Usable: every page that the tokens behind it look at is there.
 */
static uint32_t walk(const struct lm_pages *p, uint64_t salt, const uint32_t *tokens, uint32_t n,
                     uint32_t *nodes)
{
    uint32_t parent = LM_NONE, usable = 0, whole_from = 0; /* pages [whole_from, i] are there */
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *t = tokens + (size_t)i * p->o.page_tokens;
        uint32_t node = find_node(p, parent, salt, t, hash_page(p, parent, salt, t));
        if (node == LM_NONE) break;
        if (nodes) nodes[i] = node;
        if (p->nodes[node].page == LM_NONE)
            whole_from = i + 1;
        else if (whole_from <= first_needed(p, (i + 1) * p->o.page_tokens))
            usable = i + 1;
        parent = node;
    }
    return usable;
}

uint32_t lm_pages_find(const struct lm_pages *p, uint64_t salt, const uint32_t *tokens, uint32_t n)
{
    return n ? walk(p, salt, tokens, (n - 1) / p->o.page_tokens, NULL) * p->o.page_tokens : 0;
}

void lm_seq_search(struct lm_pages *p, struct lm_seq *s)
{
    uint32_t found = s->n_tokens ? walk(p, s->salt, s->tokens, (s->n_tokens - 1) / p->o.page_tokens,
                                        s->node_of)
                                 : 0;
    s->n_pages = s->n_published = found;
    s->n_computed = s->n_found = found * p->o.page_tokens;
    s->first_page = first_held(p, s, s->n_computed);
    for (uint32_t i = 0; i < found; i++) {
        s->page_of[i] = i < s->first_page ? LM_NONE : p->nodes[s->node_of[i]].page;
        if (i >= s->first_page) hold(p, s->page_of[i]);
    }
    p->counts.lookups++;
    p->counts.tokens_looked_up += s->n_tokens;
    p->counts.tokens_found += s->n_found;
}

void lm_seq_begin(struct lm_pages *p, struct lm_seq *s, uint64_t salt, const uint32_t *tokens,
                  uint32_t n, bool search)
{
    memcpy(s->tokens, tokens, n * sizeof *tokens);
    s->n_tokens = n;
    s->salt = salt;
    s->n_computed = s->n_found = s->n_pages = s->n_published = s->first_page = 0;
    s->unpublished = p->o.no_sharing;
    if (search) lm_seq_search(p, s);
}

bool lm_seq_append(struct lm_seq *s, uint32_t token)
{
    if (s->n_tokens == s->capacity) return false;
    s->tokens[s->n_tokens++] = token;
    return true;
}

bool lm_seq_reserve(struct lm_pages *p, struct lm_seq *s, uint32_t end)
{
    uint32_t want = (end + p->o.page_tokens - 1) / p->o.page_tokens;
    if (want > s->n_pages && want - s->n_pages > p->counts.free + p->counts.cached) return false;
    while (s->n_pages < want) {
        s->page_of[s->n_pages] = take_page(p);
        s->node_of[s->n_pages++] = LM_NONE;
    }
    return true;
}

/* Makes page number k of the sequence findable. Where there is no room for a node, the sequence
 * goes on unpublished. */
static void publish(struct lm_pages *p, struct lm_seq *s, uint32_t k)
{
    uint32_t parent = k ? s->node_of[k - 1] : LM_NONE, mine = s->page_of[k];
    const uint32_t *t = s->tokens + (size_t)k * p->o.page_tokens;
    uint64_t hash = hash_page(p, parent, s->salt, t);
    uint32_t node = find_node(p, parent, s->salt, t, hash);
    if (node == LM_NONE) node = make_node(p, parent, s->salt, t, hash);
    if (node == LM_NONE) {
        s->unpublished = true;
        return;
    }
    s->node_of[k] = node;
    s->n_published = k + 1;
    if (p->nodes[node].page != LM_NONE) { /* somebody else computed the same */
        s->page_of[k] = p->nodes[node].page;
        hold(p, s->page_of[k]);
        unhold(p, mine);
        return;
    }
    p->nodes[node].page = mine;
    p->pages[mine].node = node;
}

void lm_seq_commit(struct lm_pages *p, struct lm_seq *s, uint32_t end)
{
    s->n_computed = end;
    while (!s->unpublished && s->n_published < end / p->o.page_tokens)
        publish(p, s, s->n_published);
    uint32_t needed = first_held(p, s, end);
    for (; s->first_page < needed && s->first_page < s->n_pages; s->first_page++) {
        uint32_t page = s->page_of[s->first_page];
        s->page_of[s->first_page] = LM_NONE;
        unhold(p, page);
    }
}

uint32_t lm_seq_pin(struct lm_pages *p, const struct lm_seq *s, uint32_t begin, uint32_t end, uint32_t *pages)
{
    uint32_t n = 0;
    for (uint32_t i = begin / p->o.page_tokens; begin < end && i <= (end - 1) / p->o.page_tokens; i++) {
        hold(p, s->page_of[i]);
        pages[n++] = s->page_of[i];
    }
    return n;
}

void lm_pages_unpin(struct lm_pages *p, const uint32_t *pages, uint32_t n)
{
    while (n) unhold(p, pages[--n]);
}

void lm_seq_release(struct lm_pages *p, struct lm_seq *s)
{
    for (uint32_t i = s->n_pages; i-- > s->first_page;) unhold(p, s->page_of[i]);
    s->n_computed = s->n_found = s->n_pages = s->n_published = s->first_page = 0;
    s->unpublished = p->o.no_sharing;
}

void lm_seq_cut(struct lm_pages *p, struct lm_seq *s, uint32_t n)
{
    if (n >= s->n_tokens) return;
    s->n_tokens = n;
    if (n >= s->n_computed) return;
    uint32_t keep =
        n / p->o.page_tokens; /* whole pages; the one that n is in may go on being ours alone */
    bool own = n % p->o.page_tokens && keep >= s->n_published;
    uint32_t computed = own ? n : keep * p->o.page_tokens;
    if (s->n_published > keep) s->n_published = keep;
    if (first_held(p, s, computed) <
        s->first_page) { /* what is needed from now on was given back */
        lm_seq_release(p, s);
        return;
    }
    for (uint32_t i = s->n_pages; i-- > keep + own;) unhold(p, s->page_of[i]);
    s->n_pages = keep + own;
    s->n_computed = computed;
    if (s->n_found > s->n_computed) s->n_found = s->n_computed;
}
