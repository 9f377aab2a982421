// SPDX-License-Identifier: Apache-2.0
#include "ir/winograd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/random.h"

#define SAMPLE_TILES 6
#define SAMPLE_CHANNELS 12
#define PART 64 /* partial sums, as the kernels' (passes/lower.h) */

/* Ascending coefficients times (x - p). */
static void times_root(double *poly, int *n, double p)
{
    poly[*n] = 0;
    for (int i = (*n)++; i > 0; i--) poly[i] = poly[i - 1] - p * poly[i];
    poly[0] *= -p;
}

struct winograd winograd_make(int m)
{
    static const double points[2][WINOGRAD_MAX_T - 1] = {{0, 1, -1}, {0, 0.625, -0.625, 1.5, -1.5}};
    INFC_ASSERT(m == 2 || m == 4);
    struct winograd w = {.m = m, .t = m + 2};
    const double *p = points[m == 4];
    int n = w.t - 1; /* finite points */
    for (int j = 0; j <= n; j++) {
        double poly[WINOGRAD_MAX_T + 1] = {1}, norm = 1;
        int len = 1;
        for (int k = 0; k < n; k++) {
            if (k == j) continue;
            times_root(poly, &len, p[k]);
            if (j < n) norm *= p[j] - p[k];
        }
        for (int i = 0; i < len; i++) w.bt[j][i] = poly[i];
        double power = 1;
        for (int i = 0; j < n && i < w.t; i++, power *= p[j]) {
            if (i < m) w.at[i][j] = power;
            if (i < WINOGRAD_TAPS) w.g[j][i] = power / norm;
        }
    }
    w.at[m - 1][n] = 1, w.g[n][WINOGRAD_TAPS - 1] = 1;
    return w;
}

float winograd_weight(const struct winograd *w, int point, const float *taps)
{
    const double *a = w->g[point / w->t], *b = w->g[point % w->t];
    double sum = 0;
    for (int i = 0; i < WINOGRAD_TAPS; i++)
        for (int j = 0; j < WINOGRAD_TAPS; j++) sum += a[i] * b[j] * (double)taps[i * WINOGRAD_TAPS + j];
    return (float)sum;
}

/* ---- error ---- */

typedef float square[WINOGRAD_MAX_T][WINOGRAD_MAX_T];

/* out = mat x mat', every sum rounded in f32; n rows of mat, WINOGRAD_MAX_T apart. */
static void sandwich(const double *mat, int n, int t, square x, square out)
{
    square half;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < t; j++) {
            float s = 0;
            for (int k = 0; k < t; k++) s = fmaf((float)mat[i * WINOGRAD_MAX_T + k], x[k][j], s);
            half[i][j] = s;
        }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float s = 0;
            for (int k = 0; k < t; k++) s = fmaf((float)mat[j * WINOGRAD_MAX_T + k], half[i][k], s);
            out[i][j] = s;
        }
}

/* A sum of uniform numbers: about normal, negative ones 0. */
static float pixel(uint64_t i)
{
    double s = 0;
    for (uint64_t k = 0; k < 6; k++) s += infr_random_float(3, 0, 6 * i + k);
    s *= 0.70710678; /* each has variance 1/3 */
    return s > 0 ? (float)s : 0;
}

struct sample {
    const struct winograd *w;
    const float *taps;       /* of an output channel, c * 9 */
    const square *d, *v;     /* pixels of the tile and their transforms, a channel each */
    int64_t c;
    double most, by_tiles, direct; /* greatest output, greatest errors */
};

/* m x m outputs of one channel. */
static void measure(struct sample *s)
{
    int t = s->w->t, m = s->w->m;
    square sums = {{0}}, part = {{0}}, out = {{0}};
    for (int64_t c = 0; c < s->c; c++) {
        for (int p = 0; p < t * t; p++) {
            float u = winograd_weight(s->w, p, s->taps + 9 * c), *x = &part[p / t][p % t];
            *x = fmaf(s->v[c][p / t][p % t], u, *x);
            if ((c + 1) % PART && c + 1 < s->c) continue;
            sums[p / t][p % t] += *x;
            *x = 0;
        }
    }
    sandwich(s->w->at[0], m, t, sums, out);
    for (int y = 0; y < m; y++)
        for (int x = 0; x < m; x++) {
            double exact = 0;
            float sum = 0, run = 0;
            int64_t n = 0;
            for (int64_t c = 0; c < s->c; c++)
                for (int k = 0; k < 9; k++) {
                    float a = s->d[c][y + k / 3][x + k % 3], b = s->taps[9 * c + k];
                    exact += (double)a * (double)b;
                    run = fmaf(a, b, run);
                    if (++n % PART == 0 || n == 9 * s->c) sum += run, run = 0;
                }
            s->most = fmax(s->most, fabs(exact));
            s->by_tiles = fmax(s->by_tiles, fabs((double)out[y][x] - exact));
            s->direct = fmax(s->direct, fabs((double)sum - exact));
        }
}

void winograd_error(int m, const float *weights, int64_t o, int64_t c, double *by_tiles, double *direct)
{
    struct winograd w = winograd_make(m ? m : 2);
    struct sample s = {.w = &w, .c = c};
    square *d = calloc((size_t)c, sizeof *d), *v = calloc((size_t)c, sizeof *v);
    INFC_ASSERT(d && v);
    for (int tile = 0; tile < SAMPLE_TILES; tile++) {
        for (int64_t i = 0; i < c; i++) {
            for (int p = 0; p < w.t * w.t; p++)
                d[i][p / w.t][p % w.t] = pixel(((uint64_t)tile * (uint64_t)c + (uint64_t)i) * 36 + (uint64_t)p);
            sandwich(w.bt[0], w.t, w.t, d[i], v[i]);
        }
        s.d = (const square *)d, s.v = (const square *)v;
        int64_t n = o < SAMPLE_CHANNELS ? o : SAMPLE_CHANNELS;
        for (int64_t i = 0; i < n; i++) {
            s.taps = weights + (i * o / n) * c * 9;
            measure(&s);
        }
    }
    free(d);
    free(v);
    *by_tiles = s.most > 0 ? s.by_tiles / s.most : 0;
    *direct = s.most > 0 ? s.direct / s.most : 0;
}
