// SPDX-License-Identifier: Apache-2.0
/* Classes, programs and DFAs: the second half of what regex.h describes. */
#include <stdlib.h>
#include <string.h>

#include "compiler/tok/regex.h"

/* ---- classes of code points that no pattern tells apart
 * ------------------------------------------ */

static int by_value(const void *pa, const void *pb)
{
    uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
    return a < b ? -1 : a > b;
}

/* Sorted, unique points where some set begins or has just ended. */
static size_t boundaries(struct rx *rx, uint32_t **out)
{
    VEC(uint32_t) cuts = {0};
    vec_push(rx->arena, &cuts, 0);
    for (size_t i = 0; i < rx->sets.n; i++) {
        const struct uniset *s = &rx->sets.v[i];
        for (size_t k = 0; k < s->r.n; k++) {
            vec_push(rx->arena, &cuts, s->r.v[k].lo);
            if (s->r.v[k].hi < UNI_MAX) vec_push(rx->arena, &cuts, s->r.v[k].hi + 1);
        }
    }
    qsort(cuts.v, cuts.n, sizeof(uint32_t), by_value);
    size_t n = 1;
    for (size_t i = 1; i < cuts.n; i++)
        if (cuts.v[i] != cuts.v[n - 1]) cuts.v[n++] = cuts.v[i];
    *out = cuts.v;
    return n;
}

/* Two-level table of class numbers; equal blocks are stored once. */
static void pack_classes(struct rx *rx, const uint8_t *class_of)
{
    rx->stage1 = ARENA_ARRAY(rx->arena, uint16_t, UNI_COUNT >> 8);
    rx->stage2 = ARENA_ARRAY(rx->arena, uint8_t, UNI_COUNT);
    rx->n_blocks = 0;
    for (uint32_t b = 0; b < UNI_COUNT >> 8; b++) {
        uint32_t k = 0;
        while (k < rx->n_blocks && memcmp(rx->stage2 + (k << 8), class_of + (b << 8), 256) != 0)
            k++;
        if (k == rx->n_blocks) memcpy(rx->stage2 + (rx->n_blocks++ << 8), class_of + (b << 8), 256);
        rx->stage1[b] = (uint16_t)k;
    }
}

bool rx_partition(struct rx *rx)
{
    uint32_t *cuts;
    size_t n_cuts = boundaries(rx, &cuts), n_sets = rx->sets.n;
    uint8_t *class_of = ARENA_ARRAY(rx->arena, uint8_t, UNI_COUNT);
    uint8_t *signatures = ARENA_ARRAY(rx->arena, uint8_t, (RX_MAX_CLASSES + 1) * (n_sets + 1));
    uint32_t n_classes = 0;

    for (size_t i = 0; i < n_cuts; i++) {
        uint8_t *sig = signatures + n_classes * n_sets;
        for (size_t s = 0; s < n_sets; s++) sig[s] = uniset_has(&rx->sets.v[s], cuts[i]);
        uint32_t k = 0;
        while (k < n_classes && memcmp(signatures + k * n_sets, sig, n_sets) != 0) k++;
        if (k == n_classes && ++n_classes > RX_MAX_CLASSES)
            return rx_fail(rx, "the pattern tells too many kinds of characters apart");
        uint32_t end = i + 1 < n_cuts ? cuts[i + 1] : UNI_COUNT;
        memset(class_of + cuts[i], (int)k, end - cuts[i]);
    }
    rx->n_classes = n_classes;
    rx->members = ARENA_ARRAY(rx->arena, uint8_t, n_sets * n_classes + 1);
    for (size_t s = 0; s < n_sets; s++)
        for (uint32_t c = 0; c < n_classes; c++)
            rx->members[s * n_classes + c] = signatures[c * n_sets + s];
    pack_classes(rx, class_of);
    return true;
}

/* ---- programs
 * ------------------------------------------------------------------------------------ */

enum inst_kind { INST_SET, INST_SPLIT, INST_ASSERT, INST_MATCH };

struct inst {
    enum inst_kind kind;
    uint32_t next, other; /* SPLIT tries next first */
    const struct rx_node *node;
};

struct program {
    struct rx *rx;
    VEC(struct inst) code;
    uint32_t start;
    bool reverse; /* the text is read backwards */
    uint32_t look_bits;
};

static uint32_t add_inst(struct program *g, struct inst i)
{
    if (g->code.n >= RX_MAX_INSTS) {
        rx_fail(g->rx, "the pattern is too large when its repetitions are written out");
        return 0;
    }
    vec_push(g->rx->arena, &g->code, i);
    return (uint32_t)g->code.n - 1;
}

/* Code for n that continues at next; built from the end, so that every target is known. */
static uint32_t emit(struct program *g, const struct rx_node *n, uint32_t next)
{
    if (g->rx->error != NULL) return 0;
    switch (n->kind) {
    case RX_EMPTY: return next;
    case RX_SET: return add_inst(g, (struct inst){INST_SET, next, 0, n});
    case RX_ASSERT: return add_inst(g, (struct inst){INST_ASSERT, next, 0, n});
    case RX_CAT: return emit(g, n->kid[g->reverse], emit(g, n->kid[!g->reverse], next));
    case RX_ALT: {
        uint32_t second = emit(g, n->kid[1], next), first = emit(g, n->kid[0], next);
        return add_inst(g, (struct inst){INST_SPLIT, first, second, n});
    }
    case RX_REPEAT: break;
    }
    uint32_t at = next;
    if (n->max ==
        RX_MANY) { /* the loop's own split comes first, so that the body can jump back to it */
        at = add_inst(g, (struct inst){INST_SPLIT, 0, 0, n});
        uint32_t body = emit(g, n->kid[0], at);
        if (g->rx->error != NULL) return 0;
        g->code.v[at].next = n->lazy ? next : body;
        g->code.v[at].other = n->lazy ? body : next;
    } else {
        for (uint32_t i = n->min; i < n->max; i++) {
            uint32_t body = emit(g, n->kid[0], at);
            at = add_inst(
                g, (struct inst){INST_SPLIT, n->lazy ? next : body, n->lazy ? body : next, n});
        }
    }
    for (uint32_t i = 0; i < n->min; i++) at = emit(g, n->kid[0], at);
    return at;
}

/* ---- DFAs
 * ---------------------------------------------------------------------------------------- */

/* A state before the next character is known: instructions in order of priority, and what matters
 * about the character just read (one bit for each assertion that looks at it). */
struct state {
    const uint32_t *pcs;
    uint32_t n;
    uint32_t context;
};

struct builder {
    struct program *g;
    struct rx *rx;
    bool exists; /* reverse: any thread matching counts, and a thread starts at every position */
    uint32_t n_cols;
    VEC(struct state) states;
    VEC(uint16_t) trans;
    uint32_t *index; /* hash of states: number + 1 */
    uint32_t index_size;
    uint32_t *stack, *mark, generation; /* of expand */
    uint32_t *threads, n_threads;       /* result of expand: set instructions */
    uint32_t *kernel, n_kernel;         /* result of step */
    uint32_t *kernel_mark, kernel_generation;
};

static bool in_set(const struct rx *rx, uint32_t set, uint32_t cls)
{
    return rx->members[set * rx->n_classes + cls];
}

/* Does the character's class (n_classes at the edge of the text) satisfy a one-character assertion?
 */
static bool side_holds(const struct rx *rx, const struct rx_node *n, uint32_t cls)
{
    return cls == rx->n_classes ? n->at_edge : in_set(rx, n->index, cls);
}

/* The character just read lies before the position when reading forwards, behind it when backwards.
 */
static bool looks_at_read(const struct program *g, const struct rx_node *n)
{
    return n->assertion == RX_WORD_EDGE || n->assertion == (g->reverse ? RX_NEXT_IN : RX_PREV_IN);
}

static uint32_t context_of(const struct program *g, uint32_t cls)
{
    uint32_t bits = 0, bit = 0;
    for (size_t i = 0; i < g->code.n && bit < 32; i++) {
        const struct rx_node *n = g->code.v[i].node;
        if (g->code.v[i].kind != INST_ASSERT || !looks_at_read(g, n)) continue;
        bits |= (uint32_t)side_holds(g->rx, n, cls) << bit++;
    }
    return bits;
}

static bool assertion_holds(const struct builder *b, uint32_t pc, uint32_t context, uint32_t ahead,
                            uint32_t look_bits)
{
    const struct program *g = b->g;
    const struct rx_node *n = g->code.v[pc].node;
    if (n->assertion == RX_LOOK) return (look_bits >> n->index & 1) != n->negate;
    bool read = false;
    if (looks_at_read(g, n)) {
        uint32_t bit = 0;
        for (uint32_t i = 0; i < pc; i++)
            if (g->code.v[i].kind == INST_ASSERT && looks_at_read(g, g->code.v[i].node)) bit++;
        read = context >> bit & 1;
        if (n->assertion != RX_WORD_EDGE) return read;
    }
    bool next = side_holds(b->rx, n, ahead);
    return n->assertion == RX_WORD_EDGE ? (read != next) != n->negate : next;
}

/* Follows splits and assertions from pc in order of priority; true when a match was met and, in a
 * matcher, everything of lower priority is thereby cut off. */
static bool expand(struct builder *b, uint32_t pc, uint32_t context, uint32_t ahead,
                   uint32_t look_bits)
{
    uint32_t n = 0;
    bool match = false;
    b->stack[n++] = pc;
    while (n > 0) {
        pc = b->stack[--n];
        if (b->mark[pc] == b->generation) continue;
        b->mark[pc] = b->generation;
        const struct inst *i = &b->g->code.v[pc];
        switch (i->kind) {
        case INST_SET: b->threads[b->n_threads++] = pc; break;
        case INST_SPLIT:
            b->stack[n++] = i->other;
            b->stack[n++] = i->next;
            break;
        case INST_ASSERT:
            if (assertion_holds(b, pc, context, ahead, look_bits)) b->stack[n++] = i->next;
            break;
        case INST_MATCH:
            match = true;
            if (!b->exists) return true;
            break;
        }
    }
    return match;
}

static int by_pc(const void *pa, const void *pb) { return by_value(pa, pb); }

/* Number of the state that b->kernel and the context make. */
static uint32_t intern_state(struct builder *b, uint32_t context)
{
    if (b->n_kernel == 0 && !b->exists) return 0;
    if (b->exists) qsort(b->kernel, b->n_kernel, sizeof(uint32_t), by_pc);
    uint32_t h = tok_hash_bytes((const uint8_t *)b->kernel, b->n_kernel * sizeof(uint32_t)) ^
                 context * 0x9e3779b1u;
    for (uint32_t slot = h & (b->index_size - 1);; slot = (slot + 1) & (b->index_size - 1)) {
        if (b->index[slot] == 0) {
            struct state s = {arena_dup(b->rx->arena, b->kernel, b->n_kernel * sizeof(uint32_t)),
                              b->n_kernel, context};
            vec_push(b->rx->arena, &b->states, s);
            b->index[slot] = (uint32_t)b->states.n;
            return (uint32_t)b->states.n - 1;
        }
        const struct state *s = &b->states.v[b->index[slot] - 1];
        if (s->n == b->n_kernel && s->context == context &&
            (s->n == 0 || memcmp(s->pcs, b->kernel, s->n * sizeof(uint32_t)) == 0))
            return b->index[slot] - 1;
    }
}

/* Expands a state knowing the class ahead; true when a match ends here. */
static bool expand_state(struct builder *b, struct state s, uint32_t ahead, uint32_t look_bits)
{
    bool match = false;
    b->n_threads = 0;
    b->generation++;
    for (uint32_t i = 0; i < s.n && !(match && !b->exists); i++)
        match |= expand(b, s.pcs[i], s.context, ahead, look_bits);
    if (b->exists) match |= expand(b, b->g->start, s.context, ahead, look_bits);
    return match;
}

static uint16_t transition(struct builder *b, uint32_t from, uint32_t col)
{
    uint32_t ahead = col >> b->g->look_bits, bits = col & ((1u << b->g->look_bits) - 1);
    bool match = expand_state(b, b->states.v[from], ahead, bits);
    uint32_t to = 0;
    if (ahead < b->rx->n_classes) {
        b->n_kernel = 0;
        b->kernel_generation++;
        for (uint32_t i = 0; i < b->n_threads; i++) {
            const struct inst *in = &b->g->code.v[b->threads[i]];
            if (!in_set(b->rx, in->node->index, ahead) ||
                b->kernel_mark[in->next] == b->kernel_generation)
                continue;
            b->kernel_mark[in->next] = b->kernel_generation;
            b->kernel[b->n_kernel++] = in->next;
        }
        to = intern_state(b, context_of(b->g, ahead));
    }
    return (uint16_t)(to | (match ? TOK_DFA_MATCH : 0));
}

static bool build_dfa(struct program *g, bool exists, struct rx_dfa *out)
{
    struct rx *rx = g->rx;
    struct arena *a = rx->arena;
    struct builder b = {
        .g = g, .rx = rx, .exists = exists, .n_cols = (rx->n_classes + 1) << g->look_bits};
    size_t n = g->code.n + 2;
    b.index_size = 1;
    while (b.index_size < RX_MAX_STATES * 4) b.index_size *= 2;
    b.index = ARENA_ARRAY(a, uint32_t, b.index_size);
    b.stack = ARENA_ARRAY(a, uint32_t, 2 * n);
    b.mark = ARENA_ARRAY(a, uint32_t, n);
    b.threads = ARENA_ARRAY(a, uint32_t, n);
    b.kernel = ARENA_ARRAY(a, uint32_t, n);
    b.kernel_mark = ARENA_ARRAY(a, uint32_t, n);

    vec_push(a, &b.states, ((struct state){NULL, 0, RX_MANY})); /* dead; no context is like it */
    out->start = ARENA_ARRAY(a, uint16_t, rx->n_classes + 1);
    for (uint32_t c = 0; c <= rx->n_classes; c++) {
        b.kernel[0] = g->start;
        b.n_kernel = exists ? 0 : 1;
        out->start[c] = (uint16_t)intern_state(&b, context_of(g, c));
    }
    for (uint32_t s = 0; s < b.states.n; s++) {
        for (uint32_t col = 0; col < b.n_cols; col++)
            vec_push(a, &b.trans, s == 0 ? 0 : transition(&b, s, col));
        if (b.states.n > RX_MAX_STATES) return rx_fail(rx, "the pattern needs too many states");
    }
    out->n_states = (uint32_t)b.states.n;
    out->n_cols = b.n_cols;
    out->trans = b.trans.v;
    return true;
}

static bool make_program(struct rx *rx, const struct rx_node *root, bool reverse,
                         uint32_t look_bits, struct program *g)
{
    *g = (struct program){.rx = rx, .reverse = reverse, .look_bits = look_bits};
    uint32_t match = add_inst(g, (struct inst){INST_MATCH, 0, 0, NULL});
    g->start = emit(g, root, match);
    uint32_t context_bits = 0;
    for (size_t i = 0; i < g->code.n; i++)
        context_bits += g->code.v[i].kind == INST_ASSERT && looks_at_read(g, g->code.v[i].node);
    if (context_bits > 31) rx_fail(rx, "too many assertions in one pattern");
    return rx->error == NULL;
}

/* Can the matcher read without end and still find nothing? Then a text may make it do so at every
 * position, and it needs a filter to stay linear. Depth-first search for a cycle of transitions
 * that carry no match. */
static bool may_fail_late(struct rx *rx, const struct rx_dfa *d)
{
    uint8_t *color = ARENA_ARRAY(rx->arena, uint8_t, d->n_states); /* 1 on the path, 2 done */
    uint32_t *path = ARENA_ARRAY(rx->arena, uint32_t, d->n_states + 1);
    uint32_t *col = ARENA_ARRAY(rx->arena, uint32_t, d->n_states + 1);
    for (uint32_t c = 0; c <= rx->n_classes; c++) {
        uint32_t n = 0;
        if (color[d->start[c]] == 0) path[n++] = d->start[c];
        while (n > 0) {
            uint32_t s = path[n - 1];
            if (color[s] == 0) {
                color[s] = 1;
                col[n - 1] = 0;
            }
            if (col[n - 1] == d->n_cols) {
                color[s] = 2;
                n--;
                continue;
            }
            uint16_t t = d->trans[s * d->n_cols + col[n - 1]++];
            if (t == 0 || (t & TOK_DFA_MATCH)) continue;
            if (color[t] == 1) return true;
            if (color[t] == 0) path[n++] = t;
        }
    }
    return false;
}

bool rx_compile(struct rx *rx, const struct rx_pattern *p, struct rx_compiled *out)
{
    struct program g;
    *out = (struct rx_compiled){.n_looks = p->n_looks};
    for (uint32_t i = 0; i < p->n_looks; i++)
        if (!make_program(rx, p->look[i], true, 0, &g) || !build_dfa(&g, true, &out->look[i]))
            return false;
    if (!make_program(rx, p->root, false, p->n_looks, &g) || !build_dfa(&g, false, &out->match))
        return false;
    if (!may_fail_late(rx, &out->match)) return true;
    return make_program(rx, p->root, true, p->n_looks, &g) && build_dfa(&g, true, &out->filter);
}
