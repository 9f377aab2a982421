// SPDX-License-Identifier: Apache-2.0
/*
 * Einsum: operands are folded from the left, two at a time. Labels that nothing later needs are
 * summed; what both share and keep is a batch axis, what both share and drop is contracted by a
 * matmul; without a contraction it is a broadcast product. The dims of an ellipsis have labels of
 * their own, counted from the right.
 */
#include <ctype.h>
#include <string.h>

#include "compiler/import/onnx_int.h"

#define ELLIPSIS_LABEL 64 /* + distance from the right */

struct term {
    struct ir_value *v;
    int rank;
    int labels[2 * IR_MAX_RANK];
};

static int find_label(const struct term *t, int label)
{
    for (int i = 0; i < t->rank; i++)
        if (t->labels[i] == label) return i;
    return -1;
}

/* Reads the labels up to `end`; v == NULL: of the output, whose ellipsis has `dots` dims. */
static bool read_labels(struct onode *n, const char *p, const char *end, struct ir_value *v,
                        int dots, struct term *t)
{
    int letters = 0;
    bool ellipsis = false;
    for (const char *q = p; q < end; q++) {
        if (isalpha((unsigned char)*q)) letters++;
        else if (*q == '.' && q + 2 < end && q[1] == '.' && q[2] == '.' && !ellipsis)
            ellipsis = true, q += 2;
        else if (*q != ' ')
            return on_fail(n, DIAG_ONNX_ATTR, "Einsum: the equation cannot be read");
    }
    int rank = v ? rank_of(v) : letters + (ellipsis ? dots : 0);
    if (letters > rank || (!ellipsis && letters != rank) || rank > IR_MAX_RANK)
        return on_fail(n, DIAG_ONNX_ATTR,
                       "Einsum: the equation does not fit the rank of an operand");
    *t = (struct term){.v = v};
    for (const char *q = p; q < end; q++) {
        if (isalpha((unsigned char)*q)) t->labels[t->rank++] = *q & 0x3f;
        if (*q != '.') continue;
        for (int k = rank - letters; k > 0; k--) t->labels[t->rank++] = ELLIPSIS_LABEL + k - 1;
        q += 2;
    }
    /* 'A'..'Z' and 'a'..'z' differ in bit 5, which & 0x3f keeps. */
    return true;
}

static void drop_axis(struct term *t, int axis)
{
    for (int i = axis; i + 1 < t->rank; i++) t->labels[i] = t->labels[i + 1];
    t->rank--;
}

/* A label twice in one operand: keep the diagonal. */
static void take_diagonals(struct onode *n, struct term *t)
{
    for (int i = 0; i < t->rank; i++)
        for (int j = t->rank - 1; j > i; j--) {
            if (t->labels[i] != t->labels[j] || !t->v) continue;
            struct ir_value *a = ir_build_iota(n->b, DT_I64, t->rank, t->v->type.dims, i);
            struct ir_value *b = ir_build_iota(n->b, DT_I64, t->rank, t->v->type.dims, j);
            struct ir_value *on = e_sel(n, e_bin(n, IR_OP_EQ, a, b), t->v, e_like(n, t->v, 0));
            t->v = e_red1(n, IR_OP_REDUCE_SUM, on, j, false);
            drop_axis(t, j);
        }
}

/* Sums the axes whose label is in neither of the two (other may be NULL) nor kept. */
static void sum_unneeded(struct onode *n, struct term *t, const struct term *other,
                         const bool *kept)
{
    for (int i = t->rank - 1; i >= 0; i--) {
        if (kept[t->labels[i]] || (other && find_label(other, t->labels[i]) >= 0)) continue;
        t->v = e_red1(n, IR_OP_REDUCE_SUM, t->v, i, false);
        drop_axis(t, i);
    }
}

/* Transposes to the order of the labels given; those that t lacks become dims of 1 when `ones`. */
static struct ir_value *arrange(struct onode *n, const struct term *t, const int *labels, int count,
                                bool ones)
{
    int64_t perm[IR_MAX_RANK];
    const struct dim *dims[2 * IR_MAX_RANK];
    int r = 0;
    if (!t->v) return NULL;
    for (int i = 0; i < count; i++) {
        int a = find_label(t, labels[i]);
        dims[i] = a >= 0 ? dim_of(t->v, a) : dim_const(n->d, 1);
        if (a >= 0) perm[r++] = a;
    }
    struct ir_value *y = e_perm(n, t->v, perm);
    return ones && count != t->rank ? e_reshape(n, y, count, dims) : y;
}

struct split_labels {
    int batch[IR_MAX_RANK], sum[IR_MAX_RANK], left[IR_MAX_RANK], right[IR_MAX_RANK];
    int n_batch, n_sum, n_left, n_right;
};

static void classify(const struct term *a, const struct term *b, const bool *kept,
                     struct split_labels *s)
{
    *s = (struct split_labels){0};
    for (int i = 0; i < a->rank; i++) {
        int l = a->labels[i];
        if (find_label(b, l) < 0) s->left[s->n_left++] = l;
        else if (kept[l]) s->batch[s->n_batch++] = l;
        else s->sum[s->n_sum++] = l;
    }
    for (int i = 0; i < b->rank; i++)
        if (find_label(a, b->labels[i]) < 0) s->right[s->n_right++] = b->labels[i];
}

/* [batch.., rows, columns] where rows and columns each join several labels. */
static struct ir_value *as_matrix(struct onode *n, const struct term *t,
                                  const struct split_labels *s, const int *rows, int n_rows,
                                  const int *cols, int n_cols)
{
    int order[2 * IR_MAX_RANK], k = 0;
    for (int i = 0; i < s->n_batch; i++) order[k++] = s->batch[i];
    for (int i = 0; i < n_rows; i++) order[k++] = rows[i];
    for (int i = 0; i < n_cols; i++) order[k++] = cols[i];
    struct ir_value *y = arrange(n, t, order, k, false);
    if (!y) return NULL;
    const struct dim *dims[IR_MAX_RANK];
    for (int i = 0; i < s->n_batch; i++) dims[i] = dim_of(y, i);
    dims[s->n_batch] = e_size(n, y, s->n_batch, s->n_batch + n_rows);
    dims[s->n_batch + 1] = e_size(n, y, s->n_batch + n_rows, rank_of(y));
    return e_reshape(n, y, s->n_batch + 2, dims);
}

static bool contract(struct onode *n, struct term *a, const struct term *b, const bool *kept)
{
    struct split_labels s;
    classify(a, b, kept, &s);
    struct term out = {.rank = s.n_batch + s.n_left + s.n_right};
    if (out.rank > IR_MAX_RANK || s.n_batch + 2 > IR_MAX_RANK)
        return on_fail(n, DIAG_ONNX_LIMIT, "Einsum of so many dims");
    for (int i = 0; i < s.n_batch; i++) out.labels[i] = s.batch[i];
    for (int i = 0; i < s.n_left; i++) out.labels[s.n_batch + i] = s.left[i];
    for (int i = 0; i < s.n_right; i++) out.labels[s.n_batch + s.n_left + i] = s.right[i];
    if (s.n_sum == 0) {
        out.v = e_mul(n, arrange(n, a, out.labels, out.rank, true),
                      arrange(n, b, out.labels, out.rank, true));
    } else {
        struct ir_value *l = as_matrix(n, a, &s, s.left, s.n_left, s.sum, s.n_sum);
        struct ir_value *r = as_matrix(n, b, &s, s.sum, s.n_sum, s.right, s.n_right);
        struct ir_value *y = l && r ? ir_build_matmul(n->b, l, r, false, false, DT_NONE) : NULL;
        if (!y) return false;
        const struct dim *dims[IR_MAX_RANK];
        for (int i = 0; i < out.rank; i++) {
            const struct term *from = i < s.n_batch + s.n_left ? a : b;
            dims[i] =
                i < s.n_batch ? dim_of(y, i) : dim_of(from->v, find_label(from, out.labels[i]));
        }
        out.v = e_reshape(n, y, out.rank, dims);
    }
    *a = out;
    return out.v != NULL;
}

/* Without "->" the output is the ellipsis, then the letters that occur once, in alphabetical order
 * ('A' before 'a'). */
static void implicit_output(const struct term *terms, int count, int dots, struct term *out)
{
    int seen[128] = {0};
    for (int t = 0; t < count; t++)
        for (int i = 0; i < terms[t].rank; i++) seen[terms[t].labels[i]]++;
    for (int k = dots; k > 0; k--) out->labels[out->rank++] = ELLIPSIS_LABEL + k - 1;
    for (int l = 0; l < ELLIPSIS_LABEL && out->rank < IR_MAX_RANK; l++)
        if (seen[l] == 1) out->labels[out->rank++] = l;
}

static bool parse(struct onode *n, const char *eq, struct term *terms, struct term *out)
{
    const char *arrow = strstr(eq, "->"), *end = arrow ? arrow : eq + strlen(eq), *p = eq;
    int dots = 0;
    for (int i = 0; i < n->n_in; i++) {
        const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
        if (!n->in[i] || (i + 1 < n->n_in) != (comma != NULL))
            return on_fail(n, DIAG_ONNX_ATTR,
                           "Einsum: the equation is for another number of operands");
        if (!read_labels(n, p, stop, n->in[i], 0, &terms[i])) return false;
        for (int k = 0; k < terms[i].rank; k++)
            if (terms[i].labels[k] - ELLIPSIS_LABEL >= dots)
                dots = terms[i].labels[k] - ELLIPSIS_LABEL + 1;
        p = stop + 1;
    }
    if (arrow) return read_labels(n, arrow + 2, eq + strlen(eq), NULL, dots, out);
    implicit_output(terms, n->n_in, dots, out);
    return true;
}

bool onnx_einsum(struct onode *n)
{
    const char *eq = at_string(n, "equation", NULL);
    if (!eq)
        return n->failed ? false : on_fail(n, DIAG_ONNX_ATTR, "attribute 'equation' is missing");
    if (n->n_in > 64) return on_fail(n, DIAG_ONNX_LIMIT, "Einsum of %d operands", n->n_in);
    struct term *terms = on_alloc(n, (size_t)n->n_in, sizeof *terms), out = {0};
    if (!parse(n, eq, terms, &out)) return false;
    struct term acc = terms[0];
    take_diagonals(n, &acc);
    for (int i = 1; i <= n->n_in; i++) {
        bool kept[128] = {0};
        for (int k = 0; k < out.rank; k++) kept[out.labels[k]] = true;
        for (int t = i + 1; t < n->n_in; t++)
            for (int k = 0; k < terms[t].rank; k++) kept[terms[t].labels[k]] = true;
        if (i == n->n_in) {
            sum_unneeded(n, &acc, NULL, kept);
            break;
        }
        take_diagonals(n, &terms[i]);
        sum_unneeded(n, &acc, &terms[i], kept);
        sum_unneeded(n, &terms[i], &acc, kept);
        if (!acc.v || !terms[i].v || !contract(n, &acc, &terms[i], kept)) return false;
    }
    for (int k = 0; k < out.rank; k++)
        if (find_label(&acc, out.labels[k]) < 0)
            return on_fail(n, DIAG_ONNX_ATTR, "Einsum: the output has a label that no operand has");
    return on_out(n, 0, arrange(n, &acc, out.labels, out.rank, false));
}
