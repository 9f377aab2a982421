// SPDX-License-Identifier: Apache-2.0
/*
 * Tiles of attention: each warp of the CTA has 16 rows and all columns, as mma.sync leaves its results (element e as in
 * prelude_wgmma.c, for any number of columns). A row's sum or maximum is then the business of four threads.
 *
 * Operands of DOT. The second one is a LOAD from global memory: where the LOAD stands its copy to shared memory begins
 * (cp.async; bytes become halves on their way), where the DOT stands it is waited for. Loads that follow each other are
 * in flight together; a barrier before the first keeps them from what a DOT still reads. Rows in shared memory are 16 bytes longer
 * than they need be, which puts the eight that ldmatrix reads at once in different banks. The first operand is a tile in shared memory
 * (a STACK buffer, which the CTA has for itself) or one in registers: two neighbouring fragments of a result are one of an operand.
 */
#include "ir/dim.h"
#include "ir/loop_rewrite.h"
#include "targets/cuda/print_cta.h"

const char cta_warp_tiles[] =
    "DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }\n"
    "template <int N> DEVICE void row_sums(float (&y)[2], const float (&x)[N])\n"
    "{\n"
    "    #pragma unroll\n"
    "    for (int r = 0; r < 2; r++) {\n"
    "        float s = x[r * 2] + x[r * 2 + 1];\n"
    "        #pragma unroll\n"
    "        for (int n = 4; n < N; n += 4) s = s + (x[n + r * 2] + x[n + r * 2 + 1]);\n"
    "        s = s + __shfl_xor_sync(0xffffffffu, s, 1);\n"
    "        y[r] = s + __shfl_xor_sync(0xffffffffu, s, 2);\n"
    "    }\n"
    "}\n"
    "template <int N> DEVICE void row_maxima(float (&y)[2], const float (&x)[N])\n"
    "{\n"
    "    #pragma unroll\n"
    "    for (int r = 0; r < 2; r++) {\n"
    "        float m = fmax_nan(x[r * 2], x[r * 2 + 1]);\n"
    "        #pragma unroll\n"
    "        for (int n = 4; n < N; n += 4) m = fmax_nan(m, fmax_nan(x[n + r * 2], x[n + r * 2 + 1]));\n"
    "        m = fmax_nan(m, __shfl_xor_sync(0xffffffffu, m, 1));\n"
    "        y[r] = fmax_nan(m, __shfl_xor_sync(0xffffffffu, m, 2));\n"
    "    }\n"
    "}\n";

/* ROWS rows of COLS elements; rows from `there` on are zeros, or the last one again. */
const char cta_warp_stage[] =
    /* Eight neighbouring threads write in different banks: rows of four pieces go in pairs r, r + 4, those of two the even ones first. */
    "template <int PIECES> DEVICE int staged_row(int at)\n"
    "{\n"
    "    const int t = at / PIECES;\n"
    "    return PIECES == 4 ? t / 8 * 8 + t % 8 / 2 + t % 2 * 4 : PIECES == 2 ? t / 8 * 8 + t % 4 * 2 + t / 4 % 2 : t;\n"
    "}\n"
    "template <int ROWS, int COLS, int THREADS> DEVICE void stage_halves(char *to, const char *p, i64 stride, i64 there, bool zeros)\n"
    "{\n"
    "    const int pieces = COLS / 8;\n"
    "    #pragma unroll\n"
    "    for (int i = 0; i < (ROWS * pieces + THREADS - 1) / THREADS; i++) {\n"
    "        const int at = i * THREADS + threadIdx.x, r = staged_row<pieces>(at), c = at % pieces;\n"
    "        if (at < ROWS * pieces)\n"
    "            asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" :: \"r\"(shared_address(to) + r * (COLS * 2 + 16) + c * 16),\n"
    "                         \"l\"(__cvta_generic_to_global(p + int_min((i64)r, there - 1) * stride + c * 16)),\n"
    "                         \"r\"(zeros && r >= there ? 0 : 16) : \"memory\");\n"
    "    }\n"
    "}\n"
    "DEVICE u32 bf16_of_bytes(u32 x, int i)\n"
    "{\n"
    "    const u32 low = __float_as_int((float)(i8)(x >> i * 8)), high = __float_as_int((float)(i8)(x >> i * 8 + 8));\n"
    "    return low >> 16 | (high & 0xffff0000u);\n"
    "}\n"
    "DEVICE uint4 bf16_of_eight(uint2 x) { return uint4{bf16_of_bytes(x.x, 0), bf16_of_bytes(x.x, 2), bf16_of_bytes(x.y, 0), bf16_of_bytes(x.y, 2)}; }\n"
    /* Eight bytes of a cache as eight halves, and what reads as zeros. */
    "struct from_i8 { static const u32 zero = 0; static METHOD uint4 halves(uint2 x) { return bf16_of_eight(x); } };\n"
    "template <int SHIFT> struct from_nibbles {\n"
    "    static const u32 zero = 0x88888888;\n"
    "    static METHOD u32 less_8(u32 x) { return ((x >> SHIFT & 0x0f0f0f0f | 0x80808080) - 0x08080808) ^ 0x80808080; }\n"
    "    static METHOD uint4 halves(uint2 x) { return bf16_of_eight(uint2{less_8(x.x), less_8(x.y)}); }\n"
    "};\n"
    "struct from_f8 {\n"
    "    static const u32 zero = 0;\n"
    "    static METHOD u32 pair(u32 x, int i)\n" /* e4m3's exponent and mantissa are f16's but for a factor of 256; 0x7f is NaN */
    "    {\n"
    "        const u32 p = (x >> i * 8 & 0xff) | (x >> (i * 8 + 8) & 0xff) << 16, nan = (p & 0x007f007f) + 0x00010001 & 0x00800080;\n"
    "        u32 y = (p & 0x007f007f) << 7 | (p & 0x00800080) << 8;\n"
    "        asm(\"mul.rn.f16x2 %0, %0, %1;\" : \"+r\"(y) : \"r\"(0x5c005c00));\n"
    "        return y | nan * 0xfc;\n"
    "    }\n"
    "    static METHOD uint4 halves(uint2 x) { return uint4{pair(x.x, 0), pair(x.x, 2), pair(x.y, 0), pair(x.y, 2)}; }\n"
    "};\n"
    "template <class FROM, int ROWS, int COLS, int THREADS> DEVICE void stage_bytes(char *to, const char *p, i64 stride, i64 there, bool zeros)\n"
    "{\n"
    "    const int pieces = COLS / 8;\n"
    "    #pragma unroll\n"
    "    for (int i = 0; i < (ROWS * pieces + THREADS - 1) / THREADS; i++) {\n"
    "        const int at = i * THREADS + threadIdx.x, r = staged_row<pieces>(at), c = at % pieces;\n"
    "        if (at >= ROWS * pieces) break;\n"
    "        uint2 x = {FROM::zero, FROM::zero};\n"
    "        if (!zeros || r < there) x = *(const uint2 *)(p + int_min((i64)r, there - 1) * stride + c * 8);\n"
    "        *(uint4 *)(to + r * (COLS * 2 + 16) + c * 16) = FROM::halves(x);\n"
    "    }\n"
    "}\n"
    "DEVICE void stage_commit() { asm volatile(\"cp.async.commit_group;\" ::: \"memory\"); }\n"
    "template <int N> DEVICE void stage_wait() { asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(N) : \"memory\"); __syncthreads(); }\n";

const char cta_warp_dot[] =
    "template <bool TRANS> DEVICE void matrices(u32 (&f)[4], u32 at)\n"
    "{\n"
    "    if (TRANS)\n"
    "        asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                     : \"=r\"(f[0]), \"=r\"(f[1]), \"=r\"(f[2]), \"=r\"(f[3]) : \"r\"(at) : \"memory\");\n"
    "    else\n"
    "        asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                     : \"=r\"(f[0]), \"=r\"(f[1]), \"=r\"(f[2]), \"=r\"(f[3]) : \"r\"(at) : \"memory\");\n"
    "}\n"
    "struct shared_tile {\n"
    "    u32 at;\n"
    "    METHOD shared_tile(const void *p, int stride, int col)\n"
    "        : at(shared_address(p) + (threadIdx.x / 32 * 16 + threadIdx.x % 16) * stride + threadIdx.x % 32 / 16 * 16 + col * 2) {}\n"
    "    METHOD void fragment(u32 (&f)[4], int k) const { matrices<false>(f, at + k * 32); }\n"
    "};\n"
    "template <int N> struct own_tile {\n"
    "    const u16 (&v)[N];\n"
    "    METHOD own_tile(const u16 (&v_)[N]) : v(v_) {}\n"
    "    METHOD void fragment(u32 (&f)[4], int k) const\n"
    "    {\n"
    "        #pragma unroll\n"
    "        for (int i = 0; i < 4; i++) f[i] = v[k * 8 + i * 2] | (u32)v[k * 8 + i * 2 + 1] << 16;\n"
    "    }\n"
    "};\n"
    "template <int N> DEVICE own_tile<N> in_registers(const u16 (&v)[N]) { return own_tile<N>(v); }\n"
    /* TRANS: the operand in shared memory lies as K rows of N; else as N rows of K. */
    "template <class MMA, int K, int N, bool TRANS, class A> DEVICE void dot_tile(float (&acc)[N / 2], const A a, const void *p)\n"
    "{\n"
    "    const int lane = threadIdx.x % 32, stride = (TRANS ? N : K) * 2 + 16;\n"
    "    const u32 b = shared_address(p) + (TRANS ? lane % 16 * stride + lane / 16 * 16 : (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 16);\n"
    "    #pragma unroll\n"
    "    for (int k = 0; k < K / 16; k++) {\n"
    "        u32 fa[4], fb[4];\n"
    "        a.fragment(fa, k);\n"
    "        #pragma unroll\n"
    "        for (int n = 0; n < N / 16; n++) {\n"
    "            matrices<TRANS>(fb, b + (TRANS ? k * 16 * stride + n * 32 : n * 16 * stride + k * 32));\n"
    "            MMA::run(&acc[n * 8], fa, fb[0], fb[1]);\n"
    "            MMA::run(&acc[n * 8 + 4], fa, fb[2], fb[3]);\n"
    "        }\n"
    "    }\n"
    "}\n";

/* ---- which operands ---- */

static bool feeds_dot(const struct lp_block *b, const struct lp_value *v, int operand)
{
    for (const struct lp_op *op = b->first; op; op = op->next) {
        if (op->code == LP_OP_DOT && op->operands[operand] == v) return true;
        for (int i = 0; i < op->n_regions; i++)
            if (feeds_dot(op->regions[i], v, operand)) return true;
    }
    return false;
}

static bool is_by(const struct lp_op *op, enum lp_opcode code, int64_t n)
{
    const struct lp_op *c = op && op->code == code ? op->operands[1]->def : NULL;
    return c && c->code == LP_OP_CONST && c->imm == n;
}

static const struct lp_op *before(const struct lp_op *op, enum lp_opcode code)
{
    const struct lp_op *def = op->operands[0]->def;
    return def && def->code == code ? def : NULL;
}

/*
 * The LOAD behind the second operand of a DOT, NULL when there is none: itself, its CAST, or that of nibbles less 8 (passes/lower_flash.c),
 * of which `half` says whether they are the low (0) or the high ones.
 */
static const struct lp_op *staged_load(const struct lp_value *v, int *half)
{
    const struct lp_op *op = v->def;
    *half = -1;
    if (!op || op->code == LP_OP_LOAD) return op;
    if (op->code != LP_OP_CAST) return NULL;
    const struct lp_op *less = op->operands[0]->def;
    if (!is_by(less, LP_OP_SUB, 8)) return before(op, LP_OP_LOAD);
    const struct lp_op *wide = before(less, LP_OP_CAST), *part = wide ? wide->operands[0]->def : NULL;
    *half = is_by(part, LP_OP_AND, 15) ? 0 : is_by(part, LP_OP_SHR, 4) ? 1 : -1;
    return *half >= 0 ? before(part, LP_OP_LOAD) : NULL;
}

/* Nothing but operands of DOT comes of it: what a tile's bytes are on their way to be. */
static bool is_on_its_way(const struct printer *p, const struct lp_op *op)
{
    const struct lp_value *v = op->results[0];
    if (v->type.rows == 1 || v->type.cols == 1) return false;
    if (feeds_dot(p->k->body, v, 2)) return true;
    for (const struct lp_op *user = op->next; user; user = user->next) {
        bool takes_apart = user->code == LP_OP_CAST || user->code == LP_OP_SUB || user->code == LP_OP_AND || user->code == LP_OP_SHR;
        if (takes_apart && user->operands[0] == v) return is_on_its_way(p, user);
    }
    return false;
}

bool warp_is_staged(const struct printer *p, const struct lp_op *op)
{
    if (!p->k->cta_warp_rows) return false;
    switch (op->code) {
    case LP_OP_LOAD:
    case LP_OP_CAST:
    case LP_OP_SUB:
    case LP_OP_AND:
    case LP_OP_SHR: return is_on_its_way(p, op);
    default: return false;
    }
}

bool warp_is_held(const struct printer *p, const struct lp_op *op)
{
    return p->k->cta_warp_rows && op->code == LP_OP_LOAD && p->k->bufs.v[op->buf].space == LP_SPACE_STACK && feeds_dot(p->k->body, op->results[0], 1);
}

/* ---- staging ---- */

/* How a tile lies in shared memory: K rows of N (rows of V), or N rows of K. */
static bool runs_along_columns(const struct printer *p, const struct lp_op *load)
{
    return dim_is(p->k->bufs.v[load->buf].strides[load->col_axis], 1);
}

/* The last row that is there, where rows are min(0 1 2 .., last); NULL: all. False for other rows of their own. */
static bool last_row(const struct lp_op *load, const struct lp_value **last)
{
    const struct lp_value *own = load->operands[load->row_axis];
    *last = NULL;
    if (own->type.rows == 1) return true;
    if (!own->def || own->def->code != LP_OP_MIN) return false;
    const struct lp_value *const *x = (const struct lp_value *const *)own->def->operands;
    int iota = x[0]->def && x[0]->def->code == LP_OP_IOTA ? 0 : 1;
    if (!x[iota]->def || x[iota]->def->code != LP_OP_IOTA || x[!iota]->type.rows != 1) return false;
    *last = x[!iota];
    return true;
}

/* What reads bytes, NULL: 16 bits that are copied as they are. */
static const char *reader(enum dtype from, enum dtype to, int half)
{
    if (from == DT_I8 && to == DT_BF16 && half < 0) return "from_i8";
    if (from == DT_U8 && to == DT_BF16 && half >= 0) return half ? "from_nibbles<4>" : "from_nibbles<0>";
    if (from == DT_F8E4M3FN && to == DT_F16 && half < 0) return "from_f8";
    return NULL;
}

void warp_stage(struct printer *p, const struct lp_op *end)
{
    int half;
    if (!feeds_dot(p->k->body, end->results[0], 2)) return; /* on the way there */
    const struct lp_op *op = staged_load(end->results[0], &half);
    if (!op) {
        pr_fail(p, DIAG_CODEGEN, "no code on this target for this operand of", "dot");
        return;
    }
    const struct lp_buf *b = &p->k->bufs.v[op->buf];
    const char *bytes_by = reader(b->dtype, end->results[0]->type.dtype, half);
    const struct lp_value *last = NULL, *ncols = lp_ncols(p->k, op);
    struct lp_type t = op->results[0]->type;
    struct strbuf at = {0}, there = {0}, stride = {0};
    bool trans = runs_along_columns(p, op);
    int rows = trans ? t.rows : t.cols, cols = trans ? t.cols : t.rows;
    size_t bytes = dtype_bytes(b->dtype);
    bool as_is = end == op && (b->dtype == DT_F16 || b->dtype == DT_BF16);
    if (!last_row(op, &last) || op->has_nrows || (trans ? ncols != NULL : last != NULL || !dim_is(b->strides[op->row_axis], 1)) || rows % 16 || cols % 16 ||
        (!as_is && !bytes_by) || p->n_staged == CUDA_STAGED) {
        pr_fail(p, DIAG_CODEGEN, "no code on this target for this operand of", "dot");
        return;
    }
    strbuf_printf(&at, "(const char *)(b%d + (0", op->buf);
    for (int a = 0; a < b->rank; a++) {
        if (op->operands[a]->type.rows > 1) continue;
        strbuf_puts(&at, " + ");
        pr_scalar(&at, op->operands[a]);
        strbuf_puts(&at, " * ");
        pr_stride(p, &at, b->strides[a]);
    }
    strbuf_puts(&at, "))");
    if (last) pr_scalar(&there, last), strbuf_puts(&there, " + 1");
    else if (ncols) pr_scalar(&there, ncols);
    else strbuf_printf(&there, "%d", rows);
    pr_stride(p, &stride, b->strides[trans ? op->row_axis : op->col_axis]);
    if (!p->n_staged) pr_line(p, "__syncthreads();");
    unsigned id = end->results[0]->id;
    pr_line(p, "__shared__ __align__(16) char s%u[%d];", id, rows * (cols * 2 + 16));
    pr_line(p, "stage_%s%s%s%d, %d, %d>(s%u, %s, %s * %zu, %s, %s);", bytes_by ? "bytes<" : "halves<", bytes_by ? bytes_by : "", bytes_by ? ", " : "", rows, cols,
            p->k->cta_threads, id, strbuf_get(&at), strbuf_get(&stride), bytes, strbuf_get(&there), trans ? "false" : "true");
    pr_line(p, "stage_commit();");
    p->staged[p->n_staged++] = id;
    strbuf_deinit(&at);
    strbuf_deinit(&there);
    strbuf_deinit(&stride);
}

/* Waits for the tile unless that was done; those that were asked for later may still be on their way. */
static bool wait_for(struct printer *p, uint32_t id)
{
    for (int i = 0; i < p->n_staged; i++) {
        if (p->staged[i] != id) continue;
        if (i >= p->n_waited) pr_line(p, "stage_wait<%d>();", p->n_staged - 1 - i), p->n_waited = i + 1;
        return true;
    }
    return pr_fail(p, DIAG_CODEGEN, "an operand of dot was not loaded beside it", "");
}

void warp_staging_ends(struct printer *p)
{
    if (p->n_waited < p->n_staged) pr_line(p, "stage_wait<0>();");
    p->n_staged = p->n_waited = 0;
}

/* ---- ops ---- */

void warp_dot(struct printer *p, const struct lp_op *op)
{
    int half;
    const struct lp_op *load = staged_load(op->operands[2], &half), *held = op->operands[1]->def;
    const struct lp_value *y = op->results[0];
    struct lp_type a = op->operands[1]->type, b = op->operands[2]->type;
    struct strbuf declare = {0}, from = {0}, acc = {0};
    int64_t col = 0;
    bool is_held = held && warp_is_held(p, held);
    if (!load || b.dtype != a.dtype || (b.dtype != DT_F16 && b.dtype != DT_BF16) || y->type.dtype != DT_F32 || a.cols % 16 || b.cols % 16 ||
        (is_held && !lp_is_const(held->operands[1], &col))) {
        pr_fail(p, DIAG_CODEGEN, "no code on this target for this shape of", "dot");
        return;
    }
    unsigned staged = op->operands[2]->id;
    if (!wait_for(p, staged)) return;
    pr_declare(p, &declare, y);
    pr_scalar(&acc, op->operands[0]);
    pr_line(p, "%s;", strbuf_get(&declare));
    pr_line(p, "#pragma unroll");
    pr_line(p, "for (int e = 0; e < %d; e++) v%u[e] = %s[e];", b.cols / 2, y->id, strbuf_get(&acc));
    if (is_held) strbuf_printf(&from, "shared_tile(b%d, %lld, %lld)", held->buf, (long long)p->k->bufs.v[held->buf].dims[1]->value * 2 + 16, (long long)col);
    else strbuf_puts(&from, "in_registers("), pr_scalar(&from, op->operands[1]), strbuf_putc(&from, ')');
    pr_line(p, "dot_tile<mma_%s, %d, %d, %s>(v%u, %s, s%u);", dtype_name(a.dtype), a.cols, b.cols, runs_along_columns(p, load) ? "true" : "false", y->id,
            strbuf_get(&from), staged);
    strbuf_deinit(&declare);
    strbuf_deinit(&from);
    strbuf_deinit(&acc);
}

void warp_reduce(struct printer *p, const struct lp_op *op)
{
    const struct lp_value *x = op->operands[0], *y = op->results[0];
    struct strbuf declare = {0}, src = {0};
    if ((op->index != LP_RED_ADD && op->index != LP_RED_MAX) || x->type.dtype != DT_F32 || x->type.cols % 8 || x->type.rows == 1) {
        pr_fail(p, DIAG_NO_LOWERING, "no code for a CTA's tiles for", lp_op_name(op->code));
        return;
    }
    pr_declare(p, &declare, y);
    pr_scalar(&src, x);
    pr_line(p, "%s;", strbuf_get(&declare));
    pr_line(p, "row_%s(v%u, %s);", op->index == LP_RED_ADD ? "sums" : "maxima", y->id, strbuf_get(&src));
    strbuf_deinit(&declare);
    strbuf_deinit(&src);
}

bool warp_print_stack(struct printer *p)
{
    size_t total = 0;
    for (size_t i = (size_t)p->k->n_arg_bufs; i < p->k->bufs.n; i++) {
        const struct lp_buf *b = &p->k->bufs.v[i];
        int64_t rows = b->rank == 2 && dim_is_const(b->dims[0]) ? b->dims[0]->value : -1, cols = rows >= 0 && dim_is_const(b->dims[1]) ? b->dims[1]->value : -1;
        if (cols < 0 || cols > 4096 || rows > 4096 || dtype_bytes(b->dtype) != 2) return pr_fail(p, DIAG_CODEGEN, "no such tile in shared memory:", b->name);
        total += (size_t)rows * ((size_t)cols * 2 + 16);
        pr_line(p, "__shared__ __align__(16) u16 b%zu[%lld];", i, (long long)(rows * (cols + 8)));
    }
    return total <= CUDA_SHARED_STATIC || pr_fail(p, DIAG_NO_LOWERING, "a CTA has no room for its tiles", "");
}
