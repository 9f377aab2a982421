// SPDX-License-Identifier: Apache-2.0
/*
 * Tiles in the registers of a CTA, as mma.sync leaves its results: four warps, two by two, have 32 x 32 each, made of fragments
 * of 16 x 8. A thread's element e of a tile lies at row cta_row(ri) and column cta_col(ci),
 *
 *   e = (m * 4 + n) * 4 + i,  ri = m * 2 + i / 2,  ci = n * 2 + i % 2     (m: 2 fragments down, n: 4 across, i: 4 elements)
 *
 * A row vector (1 x 64) is the 8 values at the thread's columns, a column (64 x 1) the 4 at its rows. sm_90a has an order of its
 * own, for wgmma: prelude_wgmma.c.
 *
 * Operands go through shared memory in rows of 64 bytes of K, three steps in flight (cp.async). The 16-byte piece c of row r lies
 * at c ^ (r / 2 % 4), so that the eight rows that ldmatrix reads at once lie in different banks. K beyond its end is filled
 * with zeros; rows beyond the last read the last one and are not stored. Where rows begin is worked out once: by their number and
 * a stride, or, where each has an index of its own (convolutions), by the threads that have it, and told through shared memory.
 */
#include "ir/dim.h"
#include "ir/loop_rewrite.h"
#include "targets/cuda/print_cta.h"

static const char places[] =
    "DEVICE int cta_row(int ri) { return threadIdx.x / 64 * 32 + ri / 2 * 16 + ri % 2 * 8 + threadIdx.x % 32 / 4; }\n"
    "DEVICE int cta_col(int ci) { return threadIdx.x / 32 % 2 * 32 + ci / 2 * 8 + threadIdx.x % 4 * 2 + ci % 2; }\n"
    "DEVICE bool cta_first_columns() { return threadIdx.x % 4 == 0 && threadIdx.x / 32 % 2 == 0; }\n";

static const char stage[] =
    "struct strided_rows {\n"
    "    i64 stride, rows;\n"
    "    METHOD i64 at(int r) const { return int_min((i64)r, rows - 1) * stride; }\n"
    "};\n"
    "struct own_rows {\n"
    "    const i64 *index;\n"
    "    i64 stride;\n"
    "    METHOD i64 at(int r) const { return index[r] * stride; }\n"
    "};\n"
    "template <int N> DEVICE const i64 *share_rows(const i64 (&v)[N])\n"
    "{\n"
    "    __shared__ i64 index[64];\n"
    "    __syncthreads();\n" /* behind the readers of a loop before */
    "    if (cta_first_columns())\n"
    "        for (int ri = 0; ri < N; ri++) index[cta_row(ri)] = v[ri];\n"
    "    __syncthreads();\n"
    "    return index;\n"
    "}\n"
    "DEVICE void stage_rows(u32 to, const char *p, const i64 (&row)[2], i64 bytes)\n"
    "{\n"
    "    #pragma unroll\n"
    "    for (int i = 0; i < 2; i++) {\n"
    "        const int piece = threadIdx.x + i * 128, r = piece / 4, c = piece % 4, inside = c * 16 < bytes ? 16 : 0;\n"
    "        const char *from = p + row[i] + (inside ? c * 16 : 0);\n"
    "        asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" :: \"r\"(to + r * 64 + (c ^ r / 2 % 4) * 16),\n"
    "                     \"l\"(__cvta_generic_to_global(from)), \"r\"(inside) : \"memory\");\n"
    "    }\n"
    "}\n";

/* What the loops over K share: operands of one tile, of which step t lies in stage t % 3 (a before b). */
static const char fetch[] =
    "struct operands {\n"
    "    u32 base;\n"
    "    int steps;\n"
    "    const char *a, *b;\n"
    "    i64 a_bytes, row_a[2], row_b[2];\n"
    "    template <class A> METHOD operands(u32 at, const char *a_, const A &rows, i64 bytes, const char *b_, i64 b_stride)\n"
    "        : base(at), steps((int)((bytes + 63) / 64)), a(a_), b(b_), a_bytes(bytes),\n"
    "          row_a{rows.at(threadIdx.x / 4), rows.at(threadIdx.x / 4 + 32)}, row_b{threadIdx.x / 4 * b_stride, (threadIdx.x / 4 + 32) * b_stride} {}\n"
    "    METHOD u32 stage(int t) const { return base + t % 3 * 8192; }\n"
    "    METHOD void fetch(int t) const\n" /* a group of copies also where there is nothing left to copy */
    "    {\n"
    "        if (t < steps) {\n"
    "            stage_rows(stage(t), a + (i64)t * 64, row_a, a_bytes - (i64)t * 64);\n"
    "            stage_rows(stage(t) + 4096, b + (i64)t * 64, row_b, 64);\n"
    "        }\n"
    "        asm volatile(\"cp.async.commit_group;\" ::: \"memory\");\n"
    "    }\n"
    "};\n";

static const char instructions[] =
    "DEVICE void load_matrices(u32 (&f)[4], u32 at, int r, int c)\n"
    "{\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(f[0]), \"=r\"(f[1]), \"=r\"(f[2]), \"=r\"(f[3]) : \"r\"(at + r * 64 + (c ^ r / 2 % 4) * 16) : \"memory\");\n"
    "}\n"
    "#define MMA_F32(name, shape, types) \\\n"
    "    struct name { static __device__ __forceinline__ void run(float *d, const u32 *a, u32 b0, u32 b1) { \\\n"
    "        asm volatile(\"mma.sync.aligned.\" shape \".row.col.f32.\" types \".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, \" \\\n"
    "            \"{%0, %1, %2, %3};\" : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) \\\n"
    "            : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b0), \"r\"(b1)); } };\n"
    "#define MMA_S32(name, types) \\\n"
    "    struct name { static __device__ __forceinline__ void run(int *d, const u32 *a, u32 b0, u32 b1) { \\\n"
    "        asm volatile(\"mma.sync.aligned.m16n8k32.row.col.s32.\" types \".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, \" \\\n"
    "            \"{%0, %1, %2, %3};\" : \"+r\"(d[0]), \"+r\"(d[1]), \"+r\"(d[2]), \"+r\"(d[3]) \\\n"
    "            : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b0), \"r\"(b1)); } };\n"
    "MMA_F32(mma_f16, \"m16n8k16\", \"f16.f16\") MMA_F32(mma_bf16, \"m16n8k16\", \"bf16.bf16\")\n"
    "MMA_F32(mma_f32, \"m16n8k8\", \"tf32.tf32\")\n"
    "MMA_F32(mma_f8e4m3fn, \"m16n8k32\", \"e4m3.e4m3\") MMA_F32(mma_f8e5m2, \"m16n8k32\", \"e5m2.e5m2\")\n"
    "MMA_S32(mma_i8, \"s8.s8\") MMA_S32(mma_u8, \"u8.s8\")\n";

static const char loop[] =
    "template <class MMA, class T, class A> DEVICE void dot_loop(T (&acc)[32], const char *a, const A a_rows, i64 a_bytes,\n"
    "                                                            const char *b, i64 b_stride)\n"
    "{\n"
    "    __shared__ __align__(128) char shared[3][2][4096];\n"
    "    const int lane = threadIdx.x % 32, wm = threadIdx.x / 64 * 32, wn = threadIdx.x / 32 % 2 * 32;\n"
    "    const u32 base = (u32)__cvta_generic_to_shared(&shared[0][0][0]);\n"
    "    const operands o(base, a, a_rows, a_bytes, b, b_stride);\n"
    "    o.fetch(0);\n"
    "    o.fetch(1);\n"
    "    #pragma unroll 1\n"
    "    for (int t = 0; t < o.steps; t++) {\n"
    "        asm volatile(\"cp.async.wait_group 1;\" ::: \"memory\");\n"
    "        __syncthreads();\n"
    "        o.fetch(t + 2);\n"
    "        const u32 at_a = o.stage(t), at_b = at_a + 4096;\n"
    "        #pragma unroll\n"
    "        for (int h = 0; h < 2; h++) {\n"
    "            u32 fa[2][4], fb[2][4];\n"
    "            #pragma unroll\n"
    "            for (int m = 0; m < 2; m++) load_matrices(fa[m], at_a, wm + m * 16 + lane % 16, h * 2 + lane / 16);\n"
    "            #pragma unroll\n"
    "            for (int n = 0; n < 2; n++) load_matrices(fb[n], at_b, wn + n * 16 + lane / 16 * 8 + lane % 8, h * 2 + lane / 8 % 2);\n"
    "            #pragma unroll\n"
    "            for (int m = 0; m < 2; m++)\n"
    "                #pragma unroll\n"
    "                for (int n = 0; n < 4; n++) MMA::run(&acc[(m * 4 + n) * 4], fa[m], fb[n / 2][n % 2 * 2], fb[n / 2][n % 2 * 2 + 1]);\n"
    "        }\n"
    "    }\n"
    "    asm volatile(\"cp.async.wait_all;\" ::: \"memory\");\n"
    "    __syncthreads();\n" /* ahead of the writers of a loop behind */
    "}\n";

const char *cta_prelude(int i, const struct printer *p)
{
    const char *const by_warps[] = {cta_wgmma_places, instructions, cta_warp_tiles, cta_warp_stage, cta_warp_dot, NULL};
    const char *const by_mma[] = {places, stage, fetch, instructions, loop, NULL}, *const by_wgmma[] = {cta_wgmma_places, stage, fetch, cta_wgmma_loop, NULL};
    const char *const by_blocks[] = {cta_blocks_places, instructions, cta_blocks_shape, cta_blocks_fetch, cta_blocks_loop, NULL};
    if (p->order == CTA_COLUMNS) return by_blocks[i];
    return p->k->cta_warp_rows ? by_warps[i] : p->wgmma ? by_wgmma[i] : by_mma[i];
}

int cta_elems(struct lp_type t, enum cta_order order)
{
    bool rows = t.rows > 1, cols = t.cols > 1;
    if (order == CTA_COLUMNS) return (cols ? 2 : 1) * (rows ? 8 : 1);
    if (order == CTA_ROWS) return (cols ? t.cols / 4 : 1) * (rows ? 2 : 1);
    return rows && cols ? 32 : cols ? 8 : rows ? 4 : 1;
}

void cta_loop_begin(struct printer *p, struct lp_type t)
{
    static const char *const indices[] = {
        [CTA_SQUARES] = "const int ri = e / 16 * 2 + e % 4 / 2, ci = e / 4 % 4 * 2 + e % 2;",
        [CTA_ROWS] = "const int ri = e % 4 / 2, ci = e / 4 * 2 + e % 2;",
        [CTA_COLUMNS] = "const int ri = e / 2, ci = e % 2;",
    };
    int n = cta_elems(t, p->order);
    const char *i = t.rows > 1 && t.cols > 1 ? "e" : t.cols > 1 ? "ci" : "ri";
    if (n == 1) return;
    pr_line(p, "#pragma unroll");
    pr_line(p, "for (int %s = 0; %s < %d; %s++) {", i, i, n, i);
    p->indent++;
    if (*i == 'e') pr_line(p, "%s", indices[p->order]);
}

/* ---- the loop over K ---- */

static const struct lp_op *last_dot(const struct lp_op *op)
{
    const struct lp_op *yield = op->regions[0]->last;
    if (op->n_results != 1 || !yield || yield->code != LP_OP_YIELD || yield->n_operands != 1) return NULL;
    const struct lp_op *dot = yield->operands[0]->def;
    return dot && dot->code == LP_OP_DOT && dot->operands[0] == op->regions[0]->args[1] ? dot : NULL;
}

bool cta_is_dot_loop(const struct lp_op *op) { return last_dot(op) != NULL; }

/* "b3 + (offset of the operand's first element)", in bytes; the axis that runs along K counts from 0. */
static void put_operand(struct printer *p, struct strbuf *s, const struct lp_op *load, const struct lp_value *counter)
{
    const struct lp_buf *b = &p->k->bufs.v[load->buf];
    strbuf_printf(s, "(const char *)(b%d + (0", load->buf);
    for (int a = 0; a < b->rank; a++) {
        if (load->operands[a] == counter || load->operands[a]->type.rows > 1) continue;
        strbuf_puts(s, " + ");
        pr_scalar(s, load->operands[a]);
        strbuf_puts(s, " * ");
        pr_stride(p, s, b->strides[a]);
    }
    strbuf_puts(s, "))");
}

/* Bytes from one row of the operand to the next; its other axis runs along K and is contiguous. */
static bool put_row_stride(struct printer *p, struct strbuf *s, const struct lp_op *load, int row_axis, int k_axis)
{
    const struct lp_buf *b = &p->k->bufs.v[load->buf];
    if (row_axis < 0 || k_axis < 0 || !dim_is(b->strides[k_axis], 1)) return pr_fail(p, DIAG_CODEGEN, "an operand of dot does not run along k", "");
    pr_stride(p, s, b->strides[row_axis]);
    strbuf_printf(s, " * %zu", dtype_bytes(b->dtype));
    return true;
}

void cta_print_dot_loop(struct printer *p, const struct lp_op *op)
{
    const struct lp_op *dot = last_dot(op), *a = dot->operands[1]->def, *b = dot->operands[2]->def;
    const struct lp_value *k = op->regions[0]->args[0], *acc = op->operands[2];
    struct strbuf pa = {0}, sa = {0}, pb = {0}, sb = {0}, rows = {0}, init = {0};
    int64_t hi = 0;
    bool ok = a && b && a->code == LP_OP_LOAD && b->code == LP_OP_LOAD && lp_is_const(op->operands[1], &hi) &&
              dot->results[0]->type.rows == CTA_TILE && dot->results[0]->type.cols == CTA_TILE &&
              (size_t)dot->operands[1]->type.cols * dtype_bytes(dot->operands[1]->type.dtype) == CTA_STEP_BYTES;
    if (!ok || !put_row_stride(p, &sa, a, a->row_axis, a->col_axis) || !put_row_stride(p, &sb, b, b->col_axis, b->row_axis)) {
        pr_fail(p, DIAG_CODEGEN, "no code on this target for this shape of", "dot");
    } else {
        put_operand(p, &pa, a, k);
        put_operand(p, &pb, b, k);
        const struct lp_value *nrows = lp_nrows(p->k, a), *own = a->operands[a->row_axis];
        if (own->type.rows > 1) {
            strbuf_printf(&rows, "own_rows{share_rows(v%u), %s}", own->id, strbuf_get(&sa));
        } else {
            strbuf_printf(&rows, "strided_rows{%s, ", strbuf_get(&sa));
            if (nrows) pr_scalar(&rows, nrows);
            else strbuf_printf(&rows, "%d", CTA_TILE);
            strbuf_putc(&rows, '}');
        }
        pr_declare(p, &init, op->results[0]);
        pr_line(p, "%s;", strbuf_get(&init));
        pr_line(p, "#pragma unroll");
        pr_line(p, "for (int e = 0; e < 32; e++) v%u[e] = v%u[e];", op->results[0]->id, acc->id);
        pr_line(p, "dot_loop<mma_%s>(v%u, %s, %s, %lld,", dtype_name(dot->operands[1]->type.dtype), op->results[0]->id, strbuf_get(&pa),
                strbuf_get(&rows), (long long)(hi * (int64_t)dtype_bytes(dot->operands[1]->type.dtype)));
        pr_line(p, "         %s, %s);", strbuf_get(&pb), strbuf_get(&sb));
    }
    strbuf_deinit(&pa);
    strbuf_deinit(&sa);
    strbuf_deinit(&pb);
    strbuf_deinit(&sb);
    strbuf_deinit(&rows);
    strbuf_deinit(&init);
}

/* ---- memory ---- */

/* Rows of a tile in shared memory are 16 bytes longer than they need be. */
static void put_stride(struct printer *p, struct strbuf *s, const struct lp_buf *b, int axis)
{
    if (b->space == LP_SPACE_STACK && axis == 0) strbuf_printf(s, "%lldll", (long long)(b->dims[1]->value + 8));
    else pr_stride(p, s, b->strides[axis]);
}

/* Pointer to the thread's element (ri, ci) and the condition under which it is there ("" = always). */
static void put_element(struct printer *p, const struct lp_op *op, struct lp_type t, bool clamp, struct strbuf *at, struct strbuf *there)
{
    const struct lp_buf *b = &p->k->bufs.v[op->buf];
    const struct lp_value *nrows = lp_nrows(p->k, op), *ncols = lp_ncols(p->k, op);
    int first = lp_first_index(op);
    bool own_rows = false;
    strbuf_printf(at, "b%d[0", op->buf);
    for (int a = 0; a < b->rank; a++) {
        const struct lp_value *i = op->operands[first + a];
        strbuf_puts(at, " + ");
        pr_element(p, at, i, "", "");
        strbuf_puts(at, " * ");
        put_stride(p, at, b, a);
        own_rows |= i->type.rows > 1;
    }
    if (t.rows > 1 && own_rows) {
        if (!clamp && nrows) strbuf_puts(there, "cta_row(ri) < "), pr_scalar(there, nrows);
    } else if (t.rows > 1) {
        strbuf_puts(at, " + ");
        if (clamp && nrows) {
            strbuf_puts(at, "int_min((i64)cta_row(ri), ");
            pr_scalar(at, nrows);
            strbuf_puts(at, " - 1) * ");
        } else {
            strbuf_puts(at, "cta_row(ri) * ");
        }
        put_stride(p, at, b, op->row_axis);
        if (!clamp && nrows) strbuf_puts(there, "cta_row(ri) < "), pr_scalar(there, nrows);
    }
    if (t.cols > 1) {
        strbuf_puts(at, " + cta_col(ci) * ");
        pr_stride(p, at, b->strides[op->col_axis]);
        if (ncols) strbuf_printf(there, "%scta_col(ci) < ", there->len ? " && " : ""), pr_scalar(there, ncols);
    }
    strbuf_putc(at, ']');
}

void cta_load(struct printer *p, const struct lp_op *op)
{
    if (warp_is_held(p, op)) return;
    const struct lp_value *y = op->results[0];
    struct strbuf at = {0}, there = {0}, declare = {0}, dst = {0};
    put_element(p, op, y->type, true, &at, &there);
    pr_declare(p, &declare, y);
    pr_element(p, &dst, y, "r", "c");
    const char *test = p->k->bufs.v[op->buf].dtype == DT_BOOL ? " != 0" : "";
    pr_line(p, "%s;", strbuf_get(&declare));
    pr_loops_begin(p, y->type);
    if (there.len) pr_line(p, "%s = %s ? (%s)(%s%s) : (%s)0;", strbuf_get(&dst), strbuf_get(&there), pr_type(y->type.dtype), strbuf_get(&at), test, pr_type(y->type.dtype));
    else pr_line(p, "%s = %s%s;", strbuf_get(&dst), strbuf_get(&at), test);
    pr_loops_end(p, y->type);
    strbuf_deinit(&at);
    strbuf_deinit(&there);
    strbuf_deinit(&declare);
    strbuf_deinit(&dst);
}

void cta_store(struct printer *p, const struct lp_op *op)
{
    const struct lp_value *x = op->operands[0];
    struct strbuf at = {0}, there = {0}, src = {0};
    if (!p->k->cta_warp_rows && (x->type.rows != CTA_TILE || x->type.cols != CTA_TILE)) {
        pr_fail(p, DIAG_CODEGEN, "only whole tiles are stored by a CTA", "");
        return;
    }
    put_element(p, op, x->type, false, &at, &there);
    pr_element(p, &src, x, "r", "c");
    if (x->type.cols == 1) strbuf_printf(&there, "%scta_first_columns()", there.len ? " && " : ""); /* four threads have it */
    pr_loops_begin(p, x->type);
    if (there.len) pr_line(p, "if (%s) %s = %s;", strbuf_get(&there), strbuf_get(&at), strbuf_get(&src));
    else pr_line(p, "%s = %s;", strbuf_get(&at), strbuf_get(&src));
    pr_loops_end(p, x->type);
    strbuf_deinit(&at);
    strbuf_deinit(&there);
    strbuf_deinit(&src);
}
