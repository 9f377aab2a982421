// SPDX-License-Identifier: Apache-2.0
#include "ir/rewrite.h"

void rewrite_touch(struct rewriter *r, struct ir_op *op)
{
    if (!op || op->aux == r) return; /* aux of an op that waits is the rewriter */
    op->aux = r;
    vec_push(&r->scratch, &r->work, op);
}

static void touch_users(struct rewriter *r, const struct ir_value *v)
{
    for (struct ir_use *u = v->uses; u; u = u->next) rewrite_touch(r, u->user);
}

static void touch_operands(struct rewriter *r, const struct ir_op *op)
{
    for (int i = 0; i < op->n_operands; i++)
        if (op->operands[i].value) rewrite_touch(r, op->operands[i].value->def);
}

/* Values captured inside of regions lose a user, too. */
static void touch_captured(struct rewriter *r, const struct ir_op *op)
{
    touch_operands(r, op);
    for (int k = 0; k < op->n_regions; k++)
        for (const struct ir_op *inner = op->regions[k]->first; inner; inner = inner->next)
            touch_captured(r, inner);
}

static void erase(struct rewriter *r, struct ir_op *op)
{
    touch_captured(r, op);
    ir_op_erase(op);
}

void rewrite_replace(struct rewriter *r, struct ir_op *op, struct ir_value *const *results)
{
    for (int i = 0; i < op->n_results; i++) {
        touch_users(r, &op->results[i]);
        ir_value_replace_uses(&op->results[i], results[i]);
        if (results[i] && results[i]->def) rewrite_touch(r, results[i]->def);
    }
    erase(r, op);
}

void rewrite_replace1(struct rewriter *r, struct ir_op *op, struct ir_value *result)
{
    rewrite_replace(r, op, &result);
}

void rewrite_set_operand(struct rewriter *r, struct ir_op *op, int i, struct ir_value *v)
{
    struct ir_value *old = op->operands[i].value;
    ir_op_set_operand(op, i, v);
    if (old) rewrite_touch(r, old->def);
    rewrite_touch(r, op);
}

static void queue_block(struct rewriter *r, struct ir_block *b)
{
    for (struct ir_op *op = b->first; op; op = op->next) {
        op->aux = NULL;
        rewrite_touch(r, op);
        for (int i = 0; i < op->n_regions; i++) queue_block(r, op->regions[i]);
    }
}

static bool is_dead(const struct ir_op *op)
{
    if ((ir_op_traits(op) & IR_T_TERM) || ir_op_has_effect(op)) return false;
    for (int i = 0; i < op->n_results; i++)
        if (op->results[i].uses) return false;
    return true;
}

/* Queues what a pattern inserted between two neighbours of its root. */
static void touch_between(struct rewriter *r, struct ir_block *b, struct ir_op *prev,
                          struct ir_op *next)
{
    for (struct ir_op *op = prev ? prev->next : b->first; op && op != next; op = op->next)
        rewrite_touch(r, op);
}

static bool apply_one(struct rewriter *r, struct ir_op *op, const struct rewrite_pattern *patterns,
                      size_t n, struct rewrite_bisect *bisect)
{
    struct ir_op *prev = op->prev, *next = op->next;
    struct ir_block *block = op->block;
    const struct ir_loc *loc = op->loc;
    r->b.before = op;
    r->b.block = block;
    r->b.loc = loc;
    for (size_t i = 0; i < n; i++) {
        if (patterns[i].root != op->code && patterns[i].root != IR_OP_COUNT) continue;
        if (!patterns[i].apply(r, op)) continue;
        touch_between(r, block, prev, next);
        if (bisect) {
            bisect->count++;
            bisect->last_pattern = patterns[i].name;
            bisect->last_loc = loc;
        }
        return true;
    }
    return false;
}

enum rewrite_result rewrite_func(struct ir_func *f, const struct rewrite_pattern *patterns,
                                 size_t n_patterns, struct rewrite_bisect *bisect, void *user)
{
    struct rewriter r = {.m = f->module, .b = {.m = f->module, .block = f->body}, .user = user};
    enum rewrite_result result = REWRITE_SAME;
    arena_init(&r.scratch);
    queue_block(&r, f->body);
    size_t applied = 0, bound = 32 * r.work.n + 1000;
    while (r.next < r.work.n) {
        struct ir_op *op = r.work.v[r.next++];
        op->aux = NULL;
        if (!op->block) continue; /* erased while it waited */
        if (is_dead(op)) {
            erase(&r, op);
            result = REWRITE_CHANGED;
            continue;
        }
        if (bisect && bisect->limit >= 0 && bisect->count >= bisect->limit) continue;
        if (!apply_one(&r, op, patterns, n_patterns, bisect)) continue;
        result = REWRITE_CHANGED;
        if (op->block) rewrite_touch(&r, op);
        if (++applied < bound) continue;
        result = REWRITE_BOUND;
        break;
    }
    for (size_t i = r.next; i < r.work.n; i++) r.work.v[i]->aux = NULL;
    arena_deinit(&r.scratch);
    return result;
}
