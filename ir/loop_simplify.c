// SPDX-License-Identifier: Apache-2.0
/*
 * lp_simplify: folds constants, shares equal computations, moves loop-invariant ones out, removes what nobody uses.
 *
 * Requires: a verified kernel. Preserves: every store and its order, every access's bounds. Values keep their bits: no
 * float identity is used but those of constants. One walk down, one walk up, each linear but for the depth of nesting:
 *
 *   for %i in 0 .. %n {            %3 = add %1, %2
 *     %3 = add %1, %2       ->     for %i in 0 .. %n {
 *     %4 = add %1, %2                %5 = add %3, %i
 *     %5 = add %4, %i
 *
 * Loads are shared and moved only from buffers that the kernel cannot write, and moved only out of loops that surely run:
 * an access may be in bounds just because the loop runs.
 */
#include "ir/dim.h"
#include "ir/loop.h"
#include "ir/loop_cell.h"
#include "ir/loop_rewrite.h"
#include "ir/support/map.h"

struct entry {
    struct lp_op *op;
    uint64_t hash;
    struct entry *next;       /* in its bucket */
    struct entry *scope_next; /* of the same block */
};

struct scope {
    struct scope *up;
    struct lp_block *block;
    struct entry *entries;
};

struct simplifier {
    struct lp_kernel *k;
    struct arena arena;
    struct entry **buckets;
    size_t n_buckets; /* a power of two */
    struct lp_block **home; /* by value id: the block that defines it */
};

/* ---- facts about ops ---- */

static bool is_read_only_load(const struct lp_kernel *k, const struct lp_op *op)
{
    return op->code == LP_OP_LOAD && !k->bufs.v[op->buf].writable;
}

/* Same operands, same result, whenever it runs. */
static bool is_pure(const struct lp_op *op)
{
    return op->n_results == 1 && !op->n_regions && !(lp_op_flags(op->code) & LP_F_MEM);
}

/* Can it run where the program would not have run it? */
static bool is_speculable(const struct lp_op *op)
{
    int64_t c;
    return op->code != LP_OP_FLOORDIV || (lp_is_const(op->operands[1], &c) && c != 0);
}

static bool surely_runs(const struct lp_op *loop)
{
    int64_t lo, hi;
    return lp_is_const(loop->operands[0], &lo) && lp_is_const(loop->operands[1], &hi) && lo < hi;
}

static bool never_runs(const struct lp_op *loop)
{
    int64_t lo, hi;
    return lp_is_const(loop->operands[0], &lo) && lp_is_const(loop->operands[1], &hi) && lo >= hi;
}

/* ---- folding ---- */

static bool all_const_scalars(const struct lp_op *op)
{
    for (int i = 0; i < op->n_operands; i++) {
        const struct lp_value *v = op->operands[i];
        if (!v->def || v->def->code != LP_OP_CONST || v->type.rows != 1 || v->type.cols != 1) return false;
    }
    return op->n_operands > 0;
}

static union lp_cell const_cell(const struct lp_value *v)
{
    union lp_cell c = {.i = v->def->imm};
    if (dtype_is_float(v->type.dtype)) c.f = lp_cell_round(v->type.dtype, v->def->fimm);
    return c;
}

/* A pointwise op of constants becomes one. Elementary functions stay: their expansion decides their bits. */
static void fold_constants(struct lp_op *op)
{
    unsigned flags = lp_op_flags(op->code);
    if (!(flags & LP_F_PW) || (flags & LP_F_MATH) || !all_const_scalars(op)) return;
    enum dtype d = op->operands[0]->type.dtype, to = op->results[0]->type.dtype;
    union lp_cell x[3] = {{0}, {0}, {0}}, r;
    for (int i = 0; i < op->n_operands; i++) x[i] = const_cell(op->operands[i]);
    if (op->code == LP_OP_FLOORDIV && x[1].i == 0) return;
    /* Fused or not is the target's choice, and so are the bits of a NaN. */
    if (op->code == LP_OP_FMA && dtype_is_float(d)) return;
    if (op->code == LP_OP_CAST) r = lp_cell_cast(d, to, x[0]);
    else if (op->code == LP_OP_BITCAST) r = lp_cell_from_bits(to, lp_cell_bits(d, x[0]));
    else if (op->code == LP_OP_SELECT) r = x[0].i ? x[1] : x[2];
    else if (op->code == LP_OP_FMA) r = lp_cell_fma(d, x[0], x[1], x[2]);
    else r = op->n_operands == 1 ? lp_cell_unary(op->code, d, x[0]) : lp_cell_binary(op->code, d, x[0], x[1]);
    if (dtype_is_float(to) && r.f != r.f) return;
    op->code = LP_OP_CONST;
    op->n_operands = 0;
    op->index = 0;
    if (dtype_is_float(to)) op->fimm = r.f;
    else op->imm = r.i;
}

static bool same_type(struct lp_type a, struct lp_type b)
{
    return a.dtype == b.dtype && a.rows == b.rows && a.cols == b.cols;
}

/* An operand that the op's result equals; NULL when there is none. Integers only, so that no NaN or -0 is lost. */
static struct lp_value *same_as_operand(const struct lp_op *op)
{
    if (op->n_results != 1) return NULL;
    struct lp_type t = op->results[0]->type;
    int64_t c;
    if (op->code == LP_OP_SELECT) {
        struct lp_value *pick = op->operands[1] == op->operands[2] ? op->operands[1] : NULL;
        if (lp_is_const(op->operands[0], &c)) pick = op->operands[c ? 1 : 2];
        return pick && same_type(pick->type, t) ? pick : NULL;
    }
    if (op->code == LP_OP_CAST && op->operands[0]->type.dtype == t.dtype) return op->operands[0];
    if (!dtype_is_int(t.dtype) || op->n_operands != 2 || !(lp_op_flags(op->code) & LP_F_PW)) return NULL;
    struct lp_value *x = op->operands[0], *y = op->operands[1];
    if (!same_type(x->type, t)) return NULL;
    if (x == y) return op->code == LP_OP_MIN || op->code == LP_OP_MAX || op->code == LP_OP_AND || op->code == LP_OP_OR ? x : NULL;
    if (!lp_is_const(y, &c)) return NULL;
    switch (op->code) {
    case LP_OP_ADD:
    case LP_OP_SUB:
    case LP_OP_OR:
    case LP_OP_XOR:
    case LP_OP_SHL:
    case LP_OP_SHR: return c == 0 ? x : NULL;
    case LP_OP_MUL:
    case LP_OP_DIV:
    case LP_OP_FLOORDIV: return c == 1 ? x : NULL;
    default: return NULL;
    }
}

/* ---- the table of computations ---- */

static uint64_t hash_op(const struct lp_op *op)
{
    struct lp_type t = op->results[0]->type;
    uint64_t key[6] = {(uint64_t)op->code | (uint64_t)t.dtype << 8 | (uint64_t)t.rows << 16 | (uint64_t)t.cols << 32,
                       (uint64_t)op->imm,
                       0,
                       (uint64_t)(uint32_t)op->index | (uint64_t)(uint32_t)op->buf << 32,
                       (uint64_t)(uint32_t)op->row_axis | (uint64_t)(uint32_t)op->col_axis << 32,
                       (uint64_t)op->has_nrows | (uint64_t)op->has_ncols << 1};
    memcpy(&key[2], &op->fimm, sizeof key[2]);
    uint64_t h = hash_bytes(key, sizeof key, 1);
    for (int i = 0; i < op->n_operands; i++) h = hash_bytes(&op->operands[i]->id, sizeof(uint32_t), h);
    return h;
}

static bool same_op(const struct lp_op *a, const struct lp_op *b)
{
    if (a->code != b->code || a->n_operands != b->n_operands || a->imm != b->imm || a->index != b->index) return false;
    /* Bits, so that -0 is not 0. */
    if (memcmp(&a->fimm, &b->fimm, sizeof a->fimm) != 0) return false;
    if (a->buf != b->buf || a->row_axis != b->row_axis || a->col_axis != b->col_axis) return false;
    if (a->has_nrows != b->has_nrows || a->has_ncols != b->has_ncols) return false;
    if (!same_type(a->results[0]->type, b->results[0]->type)) return false;
    for (int i = 0; i < a->n_operands; i++)
        if (a->operands[i] != b->operands[i]) return false;
    return true;
}

static struct lp_op *find(const struct simplifier *s, const struct lp_op *op, uint64_t hash)
{
    for (struct entry *e = s->buckets[hash & (s->n_buckets - 1)]; e; e = e->next)
        if (e->hash == hash && same_op(e->op, op)) return e->op;
    return NULL;
}

/* Visible until the scope of the op's block closes. */
static void insert(struct simplifier *s, struct scope *sc, struct lp_op *op, uint64_t hash)
{
    while (sc->block != op->block) sc = sc->up;
    struct entry *e = ARENA_NEW(&s->arena, struct entry), **bucket = &s->buckets[hash & (s->n_buckets - 1)];
    *e = (struct entry){op, hash, *bucket, sc->entries};
    *bucket = e;
    sc->entries = e;
}

static void close_scope(struct simplifier *s, struct scope *sc)
{
    for (struct entry *e = sc->entries; e; e = e->scope_next) {
        struct entry **p = &s->buckets[e->hash & (s->n_buckets - 1)];
        while (*p != e) p = &(*p)->next;
        *p = e->next;
    }
}

/* ---- down: fold, share, move out ---- */

static void hoist(struct simplifier *s, struct lp_op *op)
{
    bool load = is_read_only_load(s->k, op);
    if (!load && !is_speculable(op)) return;
    struct lp_op *at = NULL; /* the loop before which it goes */
    for (struct lp_block *b = op->block; b->parent && b->parent->code == LP_OP_FOR; b = b->parent->block) {
        bool inside = load && !surely_runs(b->parent);
        for (int i = 0; i < op->n_operands && !inside; i++) inside = s->home[op->operands[i]->id] == b;
        if (inside) break;
        at = b->parent;
    }
    if (!at) return;
    struct lp_block *to = at->block, carrier = {0};
    lp_unlink(op);
    lp_append(&carrier, op);
    lp_splice_before(at, &carrier);
    s->home[op->results[0]->id] = to;
}

static void walk_down(struct simplifier *s, struct lp_block *b, struct scope *up);

/* aux of a value: what stands in its place. */
static void visit(struct simplifier *s, struct lp_op *op, struct scope *sc)
{
    for (int i = 0; i < op->n_operands; i++)
        if (op->operands[i]->aux) op->operands[i] = op->operands[i]->aux;
    for (int i = 0; i < op->n_results; i++) {
        op->results[i]->aux = NULL;
        s->home[op->results[i]->id] = op->block;
    }
    if (op->code == LP_OP_FOR && never_runs(op)) {
        for (int i = 0; i < op->n_results; i++) op->results[i]->aux = op->operands[i + 2];
        lp_unlink(op);
        return;
    }
    for (int i = 0; i < op->n_regions; i++) walk_down(s, op->regions[i], sc);
    if (!is_pure(op) && !is_read_only_load(s->k, op)) return;
    fold_constants(op);
    struct lp_value *same = same_as_operand(op);
    if (!same) {
        uint64_t hash = hash_op(op);
        struct lp_op *earlier = find(s, op, hash);
        if (!earlier) {
            hoist(s, op);
            insert(s, sc, op, hash);
            return;
        }
        same = earlier->results[0];
    }
    op->results[0]->aux = same;
    lp_unlink(op);
}

static void walk_down(struct simplifier *s, struct lp_block *b, struct scope *up)
{
    struct scope sc = {.up = up, .block = b};
    for (int i = 0; i < b->n_args; i++) {
        b->args[i]->aux = NULL;
        s->home[b->args[i]->id] = b;
    }
    for (struct lp_op *op = b->first, *next; op; op = next) {
        next = op->next;
        visit(s, op, &sc);
    }
    close_scope(s, &sc);
}

/* ---- up: remove what nobody uses ---- */

static void count_uses(const struct lp_block *b, uint32_t *uses)
{
    for (const struct lp_op *op = b->first; op; op = op->next) {
        for (int i = 0; i < op->n_operands; i++) uses[op->operands[i]->id]++;
        for (int i = 0; i < op->n_regions; i++) count_uses(op->regions[i], uses);
    }
}

static void drop_uses(const struct lp_op *op, uint32_t *uses)
{
    for (int i = 0; i < op->n_operands; i++) uses[op->operands[i]->id]--;
    for (int i = 0; i < op->n_regions; i++)
        for (const struct lp_op *o = op->regions[i]->first; o; o = o->next) drop_uses(o, uses);
}

/* Returns whether the block has an effect. Uses come after definitions, so one walk backwards sees them all. */
static bool walk_up(struct lp_block *b, uint32_t *uses)
{
    bool effect = false;
    for (struct lp_op *op = b->last, *prev; op; op = prev) {
        prev = op->prev;
        if (op->code == LP_OP_YIELD) continue;
        bool used = false, own = op->code == LP_OP_STORE || op->code == LP_OP_BARRIER || op->code == LP_OP_PREFETCH;
        for (int i = 0; i < op->n_results; i++) used |= uses[op->results[i]->id] != 0;
        for (int i = 0; i < op->n_regions; i++) own |= walk_up(op->regions[i], uses);
        effect |= own;
        if (used || own) continue;
        drop_uses(op, uses);
        lp_unlink(op);
    }
    return effect;
}

static size_t count_ops(const struct lp_block *b)
{
    size_t n = 0;
    for (const struct lp_op *op = b->first; op; op = op->next) {
        n++;
        for (int i = 0; i < op->n_regions; i++) n += count_ops(op->regions[i]);
    }
    return n;
}

void lp_simplify(struct lp_kernel *k)
{
    struct simplifier s = {.k = k, .n_buckets = 64};
    arena_init(&s.arena);
    size_t n = count_ops(k->body);
    while (s.n_buckets < n) s.n_buckets *= 2;
    s.buckets = ARENA_ARRAY(&s.arena, struct entry *, s.n_buckets);
    s.home = ARENA_ARRAY(&s.arena, struct lp_block *, k->next_id);
    walk_down(&s, k->body, NULL);
    uint32_t *uses = ARENA_ARRAY(&s.arena, uint32_t, k->next_id);
    count_uses(k->body, uses);
    walk_up(k->body, uses);
    arena_deinit(&s.arena);
}
