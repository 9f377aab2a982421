// SPDX-License-Identifier: Apache-2.0
/* Caches of language models and what reads them; rows through chosen matrices. */
#include <math.h>

#include "ir/encoding.h"
#include "ir/eval_impl.h"
#include "ir/eval_table.h"
#include "ir/math_ref.h"
#include "ir/smallfloat.h"

/* The driver gives the result operand 0's memory; called otherwise, the state is copied first. */
bool eval_kv_write(struct eval_call *c)
{
    if (!eval_need(c, 0, EVAL_FLOAT | EVAL_INT, 4) || !eval_need(c, 1, EVAL_FLOAT | EVAL_INT, 3) || !eval_need(c, 2, EVAL_INT, 1)) return false;
    const struct ir_tensor *state = &c->in[0], *rows = &c->in[1], *slots = &c->in[2];
    int64_t n = rows->dims[0], row = rows->dims[1] * rows->dims[2], all = state->dims[0] * state->dims[1];
    if (!eval_expect(c, 0, state->dtype, 4, state->dims)) return false;
    if (slots->dims[0] != n || row != state->dims[2] * state->dims[3]) return eval_fail(c, DIAG_SHAPE_MISMATCH, "rows do not fit the state");
    if (c->out[0].data != state->data) memcpy(c->out[0].data, state->data, state->n_bytes);
    union eval_lane block[EVAL_BLOCK];
    for (int64_t t = 0; t < n; t++) {
        int64_t slot = eval_get_i(slots, t);
        if (slot < 0) continue;
        if (slot >= all) return eval_fail(c, DIAG_SHAPE_MISMATCH, "slot %lld is beyond the %lld of the state", (long long)slot, (long long)all);
        for (int64_t i = 0; i < row; i += EVAL_BLOCK) {
            int64_t k = row - i < EVAL_BLOCK ? row - i : EVAL_BLOCK;
            eval_load(rows->dtype, rows->data, t * row + i, 1, k, block);
            for (int64_t j = 0; j < k && state->dtype == DT_F8E4M3FN; j++)
                block[j].f = eval_max_f64(eval_min_f64(block[j].f, F8E4M3FN_MAX), -F8E4M3FN_MAX);
            eval_store(state->dtype, c->out[0].data, slot * row + i, 1, k, block);
        }
    }
    return true;
}

/* ---- attention ---- */

struct attention {
    const struct ir_tensor *q, *k, *v, *at, *seq, *pages;
    const struct ir_tensor *k_scale, *v_scale; /* NULL: the cache holds floats */
    struct ir_tensor *out;
    int64_t page, heads, kv_heads, width, v_width, v_row, window;
    double scale, softcap;
    int64_t max_len, shares;
    union eval_lane *mem; /* a share: scores, then q and one row of K or V */
};

static int64_t row_at(const struct attention *a, int64_t seq, int64_t pos, int64_t kv_head)
{
    int64_t page = eval_get_i(a->pages, seq * a->pages->dims[1] + pos / a->page);
    return (page * a->page + pos % a->page) * a->kv_heads + kv_head;
}

/* Row `r` (a position of a head) of a cache, n elements; in blocks of q * scale where there is a scale. */
static void load_row(const struct ir_tensor *cache, const struct ir_tensor *scale, int64_t r, int64_t n, union eval_lane *out)
{
    int64_t stored = cache->dims[3];
    if (!scale) {
        eval_load(cache->dtype, cache->data, r * stored, 1, n, out);
        return;
    }
    bool nibbles = cache->dtype == DT_U8;
    int64_t blocks = scale->dims[3], bytes = stored / blocks, block = nibbles ? 2 * bytes : bytes;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i % block, q = eval_get_i(cache, r * stored + i / block * bytes + at % bytes);
        if (nibbles) q = (at < bytes ? q & 15 : q >> 4) - 8;
        out[i].f = (double)q * eval_get_f(scale, r * blocks + i / block);
    }
}

static void attend(const struct attention *a, union eval_lane *mem, int64_t t, int64_t head)
{
    int64_t last = eval_get_i(a->at, t), seq = eval_get_i(a->seq, t), kv = head / (a->heads / a->kv_heads);
    int64_t first = a->window && last >= a->window ? last - a->window + 1 : 0;
    union eval_lane *score = mem, *q = mem + a->max_len, *row = q + a->width, *sum = row + (a->width > a->v_width ? a->width : a->v_width);
    double top = -1e300, total = 0;
    memset(sum, 0, sizeof *sum * (size_t)a->v_width);
    eval_load(a->q->dtype, a->q->data, (t * a->heads + head) * a->width, 1, a->width, q);
    for (int64_t p = first; p <= last; p++) {
        double dot = 0;
        load_row(a->k, a->k_scale, row_at(a, seq, p, kv), a->width, row);
        for (int64_t i = 0; i < a->width; i++) dot += q[i].f * row[i].f;
        dot *= a->scale;
        if (a->softcap > 0) dot = a->softcap * ref_tanh(dot / a->softcap);
        score[p - first].f = dot;
        top = dot > top ? dot : top;
    }
    for (int64_t p = first; p <= last; p++) {
        double e = ref_exp(score[p - first].f - top);
        total += e;
        load_row(a->v, a->v_scale, row_at(a, seq, p, kv), a->v_width, row);
        for (int64_t i = 0; i < a->v_width; i++) sum[i].f += e * row[i].f;
    }
    for (int64_t i = 0; i < a->v_width && last >= 0; i++) sum[i].f /= total;
    eval_store(a->out->dtype, a->out->data, (t * a->heads + head) * a->v_width, 1, a->v_width, sum);
}

static int64_t share_lanes(const struct attention *a) { return a->max_len + 2 * a->width + 2 * a->v_width; }

static void attend_share(void *arg, int64_t from, int64_t to)
{
    const struct attention *a = arg;
    int64_t rows = a->q->dims[0] * a->heads;
    for (int64_t s = from; s < to; s++)
        for (int64_t r = rows * s / a->shares; r < rows * (s + 1) / a->shares; r++)
            attend(a, a->mem + s * share_lanes(a), r / a->heads, r % a->heads);
}

/* Every position a row may look at lies in a page that exists. */
static bool check_pages(struct eval_call *c, struct attention *a)
{
    int64_t slots = a->pages->dims[1] * a->page;
    for (int64_t t = 0; t < a->q->dims[0]; t++) {
        int64_t last = eval_get_i(a->at, t), seq = eval_get_i(a->seq, t);
        if (last < 0) continue;
        if (seq < 0 || seq >= a->pages->dims[0] || last >= slots)
            return eval_fail(c, DIAG_SHAPE_MISMATCH, "row %lld is at position %lld of sequence %lld, beyond the page table", (long long)t,
                             (long long)last, (long long)seq);
        int64_t first = a->window && last >= a->window ? last - a->window + 1 : 0;
        for (int64_t p = first / a->page; p <= last / a->page; p++) {
            int64_t page = eval_get_i(a->pages, seq * a->pages->dims[1] + p);
            if (page < 0 || page >= a->k->dims[0]) return eval_fail(c, DIAG_SHAPE_MISMATCH, "page %lld does not exist", (long long)page);
        }
        if (last - first + 1 > a->max_len) a->max_len = last - first + 1;
    }
    return true;
}

/* Elements of a row of operand i, a cache, whose scale is operand `scale`; -1 when they do not fit. */
static int64_t cache_width(const struct eval_call *c, int i, int scale)
{
    const struct ir_tensor *t = &c->in[i], *s = eval_in(c, scale);
    if (dtype_is_float(t->dtype)) return s ? -1 : t->dims[3];
    if (!s || s->rank != 4 || !dtype_is_float(s->dtype) || memcmp(t->dims, s->dims, 3 * sizeof *t->dims)) return -1;
    if ((t->dtype != DT_U8 && t->dtype != DT_I8) || s->dims[3] < 1 || t->dims[3] % s->dims[3]) return -1;
    return t->dims[3] * (t->dtype == DT_U8 ? 2 : 1);
}

bool eval_paged_attention(struct eval_call *c)
{
    const unsigned stored = EVAL_FLOAT | EVAL_INT;
    if (!eval_need(c, 0, EVAL_FLOAT, 3) || !eval_need(c, 1, stored, 4) || !eval_need(c, 2, stored, 4) ||
        !eval_need(c, 3, EVAL_INT, 1) || !eval_need(c, 4, EVAL_INT, 1) || !eval_need(c, 5, EVAL_INT, 2))
        return false;
    struct attention a = {.q = &c->in[0], .k = &c->in[1], .v = &c->in[2], .at = &c->in[3], .seq = &c->in[4], .pages = &c->in[5], .out = &c->out[0]};
    int64_t v_dim = ir_attr_int(c->op, "v_dim", 0), rows = a.q->dims[0];
    a.page = a.k->dims[1];
    a.heads = a.q->dims[1];
    a.kv_heads = a.k->dims[2];
    a.width = a.q->dims[2];
    a.k_scale = eval_in(c, 6);
    a.v_scale = eval_in(c, 7);
    a.v_row = cache_width(c, 2, 7);
    a.v_width = v_dim ? v_dim : a.v_row;
    a.window = ir_attr_int(c->op, "window", 0);
    a.scale = ir_attr_float(c->op, "scale", 1);
    a.softcap = ir_attr_float(c->op, "softcap", 0);
    int64_t dims[3] = {rows, a.heads, a.v_width};
    if (!eval_expect(c, 0, a.q->dtype, 3, dims)) return false;
    if (cache_width(c, 1, 6) != a.width || memcmp(a.k->dims, a.v->dims, 3 * sizeof *a.k->dims) || a.v_width > a.v_row || a.page < 1 ||
        a.kv_heads < 1 || a.heads % a.kv_heads || a.at->dims[0] != rows || a.seq->dims[0] != rows)
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "the operands do not fit together");
    if (!check_pages(c, &a)) return false;
    a.shares = c->n_threads < 1 || rows * a.heads < 8 ? 1 : c->n_threads < 64 ? c->n_threads : 64;
    a.mem = eval_scratch(c, a.shares * share_lanes(&a), sizeof *a.mem);
    if (!a.mem) return false;
    eval_parallel(c, a.shares, 1, attend_share, &a);
    return true;
}

/* ---- experts ---- */

bool eval_matmul_experts(struct eval_call *c)
{
    if (!eval_need(c, 0, EVAL_FLOAT, -1) || !eval_need(c, 1, EVAL_FLOAT, 3) || !eval_need(c, 2, EVAL_INT, 2)) return false;
    const struct ir_tensor *x = &c->in[0], *w = &c->in[1], *ids = &c->in[2];
    int64_t rows = ids->dims[0], picks = ids->dims[1], e = w->dims[0], n = w->dims[1], k = w->dims[2];
    int64_t dims[3] = {rows, picks, n};
    bool each = x->rank == 3;
    size_t row_bytes = 0;
    if (!eval_expect(c, 0, x->dtype, 3, dims)) return false;
    if (x->rank < 2 || x->dims[0] != rows || (each && x->dims[1] != picks) || x->dims[x->rank - 1] != k || w->dtype != x->dtype ||
        (w->enc && !encoding_bytes(w->enc, 1, k, &row_bytes)))
        return eval_fail(c, DIAG_SHAPE_MISMATCH, "the operands do not fit together");
    union eval_lane *xs = eval_scratch(c, 2 * k + n, sizeof *xs), *ws = xs + k, *sums = xs + 2 * k;
    float *unpacked = xs ? eval_scratch(c, k, sizeof *unpacked) : NULL;
    if (!unpacked) return false;
    for (int64_t r = 0; r < rows * picks; r++) {
        int64_t id = eval_get_i(ids, r);
        if (id < 0 || id >= e) return eval_fail(c, DIAG_SHAPE_MISMATCH, "there is no expert %lld", (long long)id);
        eval_load(x->dtype, x->data, (each ? r : r / picks) * k, 1, k, xs);
        for (int64_t j = 0; j < n; j++) {
            sums[j].f = 0;
            if (w->enc) {
                encoding_unpack(w->enc, (const char *)w->data + (size_t)(id * n + j) * row_bytes, k, unpacked);
                eval_load(DT_F32, unpacked, 0, 1, k, ws);
            } else {
                eval_load(w->dtype, w->data, (id * n + j) * k, 1, k, ws);
            }
            for (int64_t i = 0; i < k; i++) sums[j].f += xs[i].f * ws[i].f;
        }
        eval_store(c->out[0].dtype, c->out[0].data, r * n, 1, n, sums);
    }
    return true;
}

/* In f32 throughout, as kernels do it: the quotients decide which way a tie goes. */
bool eval_round_rows(struct eval_call *c)
{
    const struct ir_tensor *x = &c->in[0];
    if (!eval_need(c, 0, EVAL_FLOAT, -1) || x->dtype != DT_F32 || !eval_expect(c, 0, DT_F32, x->rank, x->dims)) return false;
    int64_t n = x->dims[x->rank - 1], total = eval_count(x);
    float top = (float)ir_attr_int(c->op, "max", 1);
    for (int64_t at = 0; at < total; at += n) {
        const float *in = (const float *)x->data + at;
        float *out = (float *)c->out[0].data + at, most = 0;
        bool nan = false;
        for (int64_t i = 0; i < n; i++) {
            nan = nan || isnan(in[i]);
            most = fabsf(in[i]) > most ? fabsf(in[i]) : most;
        }
        float per_step = most < 0x1p-100f ? 0 : top / most, step = nan ? NAN : most / top;
        for (int64_t i = 0; i < n; i++) out[i] = rintf(in[i] * per_step) * step;
    }
    return true;
}
