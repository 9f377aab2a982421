// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks: rows of c by MB, columns by NB, k by KB. w's block is packed into panels of NR columns, a's into panels of MR
 * rows; the sums of a block of c wait in memory between blocks of k. Threads share out (batch, row block, column block).
 */
#include "ir/eval_gemm.h"

#include <stdlib.h>

enum { MR = 4, NR = 4, MB = 256, NB = EVAL_BLOCK, KB = 256 };

struct gemm_mem {
    union eval_lane a[MB * KB], w[KB * NB], c[MB * NB], line[EVAL_BLOCK];
};

struct gemm_job {
    const struct gemm *g;
    int64_t row_blocks, col_blocks;
    struct gemm_mem *mem; /* one a share, handed out in order of the first tile */
    int64_t tiles, shares;
};

/* c[MR][NR] += a panel * w panel over k steps; ld: lanes from one row of c to the next. */
static void kernel_f(int64_t k, const union eval_lane *a, const union eval_lane *w, union eval_lane *c, int64_t ld)
{
    f64x2 s00, s01, s10, s11, s20, s21, s30, s31, w0, w1;
#define ROW(copy, i)                                                                               \
    copy(s##i##0, c + (i) * ld);                                                                   \
    copy(s##i##1, c + (i) * ld + 2)
#define GET(v, p) memcpy(&(v), (p), sizeof(v))
#define PUT(v, p) memcpy((p), &(v), sizeof(v))
#define STEP(i)                                                                                    \
    s##i##0 += w0 * (f64x2){a[i].f, a[i].f};                                                       \
    s##i##1 += w1 * (f64x2){a[i].f, a[i].f}
    ROW(GET, 0);
    ROW(GET, 1);
    ROW(GET, 2);
    ROW(GET, 3);
    for (; k > 0; k--, a += MR, w += NR) {
        GET(w0, w);
        GET(w1, w + 2);
        STEP(0);
        STEP(1);
        STEP(2);
        STEP(3);
    }
    ROW(PUT, 0);
    ROW(PUT, 1);
    ROW(PUT, 2);
    ROW(PUT, 3);
#undef STEP
#undef PUT
#undef GET
#undef ROW
}

static void kernel_u(int64_t k, const union eval_lane *a, const union eval_lane *w, union eval_lane *c, int64_t ld)
{
    for (; k > 0; k--, a += MR, w += NR)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++) c[i * ld + j].u += a[i].u * w[j].u;
}

static void run_tile(const struct gemm *g, struct gemm_mem *mem, int64_t b, int64_t i0, int64_t j0)
{
    int64_t rows = g->m - i0 < MB ? g->m - i0 : MB, cols = g->n - j0 < NB ? g->n - j0 : NB;
    int64_t row_panels = (rows + MR - 1) / MR, col_panels = (cols + NR - 1) / NR;
    memset(mem->c, 0, sizeof *mem->c * (size_t)(row_panels * MR * NB));
    for (int64_t k0 = 0; k0 < g->k; k0 += KB) {
        int64_t depth = g->k - k0 < KB ? g->k - k0 : KB;
        memset(mem->line, 0, sizeof mem->line);
        for (int64_t k = 0; k < depth; k++) {
            g->load_w(g->arg, b, k0 + k, j0, cols, mem->line);
            for (int64_t p = 0; p < col_panels; p++)
                for (int j = 0; j < NR; j++) mem->w[(p * depth + k) * NR + j] = mem->line[p * NR + j];
        }
        for (int64_t i = 0; i < row_panels * MR; i++) {
            if (i < rows)
                g->load_a(g->arg, b, i0 + i, k0, depth, mem->line);
            else
                memset(mem->line, 0, sizeof mem->line);
            union eval_lane *dst = mem->a + i / MR * depth * MR + i % MR;
            for (int64_t k = 0; k < depth; k++) dst[k * MR] = mem->line[k];
        }
        for (int64_t p = 0; p < col_panels; p++)
            for (int64_t i = 0; i < row_panels; i++) {
                const union eval_lane *a = mem->a + i * depth * MR, *w = mem->w + p * depth * NR;
                union eval_lane *dst = mem->c + i * MR * NB + p * NR;
                if (g->words)
                    kernel_u(depth, a, w, dst, NB);
                else
                    kernel_f(depth, a, w, dst, NB);
            }
    }
    for (int64_t i = 0; i < rows; i++) g->store(g->arg, b, i0 + i, j0, cols, mem->c + i * NB);
}

static void run_shares(void *arg, int64_t from, int64_t to)
{
    const struct gemm_job *job = arg;
    const struct gemm *g = job->g;
    for (int64_t s = from; s < to; s++) {
        int64_t first = job->tiles * s / job->shares, end = job->tiles * (s + 1) / job->shares;
        for (int64_t t = first; t < end; t++) {
            int64_t b = t / (job->row_blocks * job->col_blocks), rest = t % (job->row_blocks * job->col_blocks);
            run_tile(g, &job->mem[s], b, rest / job->col_blocks * MB, rest % job->col_blocks * NB);
        }
    }
}

bool eval_gemm(struct eval_call *c, struct gemm *g)
{
    struct gemm_job job = {.g = g, .row_blocks = (g->m + MB - 1) / MB, .col_blocks = (g->n + NB - 1) / NB};
    job.tiles = g->batch * job.row_blocks * job.col_blocks;
    if (job.tiles == 0) return true;
    job.shares = c->n_threads < 1 ? 1 : c->n_threads < 64 ? c->n_threads : 64;
    if ((double)g->m * (double)g->n * (double)g->batch * (double)(g->k + 8) < 1e6) job.shares = 1;
    if (job.shares > job.tiles) job.shares = job.tiles;
    job.mem = eval_scratch(c, job.shares, sizeof *job.mem);
    if (!job.mem) return false;
    eval_parallel(c, job.shares, 1, run_shares, &job);
    return true;
}

/* Greatest magnitude among integer elements, as a double (2^64 at most). */
static double greatest(const struct ir_tensor *t)
{
    union eval_lane block[EVAL_BLOCK];
    int64_t n = eval_count(t);
    double top = 0;
    for (int64_t at = 0; at < n; at += EVAL_BLOCK) {
        int64_t count = n - at < EVAL_BLOCK ? n - at : EVAL_BLOCK;
        eval_load_f(t->dtype, t->data, at, 1, count, block);
        for (int64_t i = 0; i < count; i++) {
            double a = block[i].f < 0 ? -block[i].f : block[i].f;
            if (a > top) top = a;
        }
    }
    return top;
}

bool eval_gemm_in_f64(const struct ir_tensor *a, const struct ir_tensor *w, int64_t k)
{
    if (dtype_is_float(a->dtype)) return true;
    return greatest(a) * greatest(w) * (double)(k + 1) < 0x1p53;
}
