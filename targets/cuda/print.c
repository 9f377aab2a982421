// SPDX-License-Identifier: Apache-2.0
/*
 * Loop IR as CUDA C++: the kernel's frame, loops and branches. A value is a variable v<id>; a tile is an array whose indices
 * are constants once its loops are unrolled, so that it lives in registers.
 *
 * Generic kernels: one slice is one thread. Everything is computed by the thread alone, so nothing is shared and there is
 * nothing to wait for.
 */
#include <stdarg.h>
#include <string.h>

#include "ir/dim.h"
#include "targets/cuda/print_cta.h"

bool pr_fail(struct printer *p, enum diag_id id, const char *what, const char *name)
{
    if (!p->failed) diag_report(p->diag, id, p->k->loc, "kernel %s: %s %s", p->k->name, what, name);
    p->failed = true;
    return false;
}

void pr_line(struct printer *p, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    INFC_ASSERT(n >= 0 && (size_t)n < sizeof text);
    for (int i = 0; i < p->indent; i++) strbuf_puts(p->out, "    ");
    strbuf_puts(p->out, text);
    strbuf_putc(p->out, '\n');
}

/* ---- types and names ---- */

bool pr_is_soft(enum dtype d) { return dtype_is_float(d) && d != DT_F32 && d != DT_F64; }

const char *pr_mem_type(enum dtype d)
{
    switch (d) {
    case DT_F64: return "double";
    case DT_F32: return "float";
    case DT_I64: return "i64";
    case DT_U64: return "u64";
    case DT_I32: return "int";
    case DT_U32: return "u32";
    case DT_I16: return "short";
    case DT_U16:
    case DT_F16:
    case DT_BF16: return "u16";
    case DT_I8:
    case DT_I4:
    case DT_I2: return "i8";
    default: return "u8";
    }
}

const char *pr_type(enum dtype d) { return d == DT_BOOL ? "bool" : pr_mem_type(d); }

/* Results of loops live on in the variables that carry them. */
static uint32_t id_of(const struct lp_value *v)
{
    while (v->aux) v = v->aux;
    return v->id;
}

void pr_declare(const struct printer *p, struct strbuf *s, const struct lp_value *v)
{
    strbuf_printf(s, "%s%s v%u", pr_elems(p, v->type) > 1 ? "__align__(16) " : "", pr_type(v->type.dtype), id_of(v));
    if (pr_elems(p, v->type) > 1) strbuf_printf(s, "[%d]", pr_elems(p, v->type));
}

void pr_element(const struct printer *p, struct strbuf *s, const struct lp_value *v, const char *r, const char *c)
{
    struct lp_type t = v->type;
    strbuf_printf(s, "v%u", id_of(v));
    if (p->k->cta_threads) {
        strbuf_puts(s, t.rows > 1 && t.cols > 1 ? "[e]" : t.cols > 1 ? "[ci]" : t.rows > 1 ? "[ri]" : "");
        return;
    }
    if (t.rows > 1 && t.cols > 1) strbuf_printf(s, "[(%s) * %d + %s]", r, t.cols, c);
    else if (t.rows > 1) strbuf_printf(s, "[%s]", r);
    else if (t.cols > 1) strbuf_printf(s, "[%s]", c);
}

void pr_scalar(struct strbuf *s, const struct lp_value *v) { strbuf_printf(s, "v%u", id_of(v)); }

int pr_elems(const struct printer *p, struct lp_type t) { return p->k->cta_threads ? cta_elems(t, p->order) : t.rows * t.cols; }

void pr_loops_begin(struct printer *p, struct lp_type t)
{
    if (p->k->cta_threads) {
        cta_loop_begin(p, t);
        return;
    }
    const char *const names[] = {"r", "c"};
    const int counts[] = {t.rows, t.cols};
    for (int i = 0; i < 2; i++) {
        if (counts[i] == 1) continue;
        pr_line(p, "#pragma unroll");
        pr_line(p, "for (int %s = 0; %s < %d; %s++) {", names[i], names[i], counts[i], names[i]);
        p->indent++;
    }
}

void pr_loops_end(struct printer *p, struct lp_type t)
{
    int depth = p->k->cta_threads ? cta_elems(t, p->order) > 1 : (t.rows > 1) + (t.cols > 1);
    for (int n = depth; n > 0; n--) {
        p->indent--;
        pr_line(p, "}");
    }
}

/* dst = src, element by element. */
static void copy_value(struct printer *p, const char *dst, const struct lp_value *v, const char *src)
{
    int n = pr_elems(p, v->type);
    if (n == 1) {
        pr_line(p, "%s = %s;", dst, src);
        return;
    }
    pr_line(p, "#pragma unroll");
    pr_line(p, "for (int e = 0; e < %d; e++) %s[e] = %s[e];", n, dst, src);
}

static void declare_line(struct printer *p, const struct lp_value *v)
{
    struct strbuf s = {0};
    pr_declare(p, &s, v);
    pr_line(p, "%s;", strbuf_get(&s));
    strbuf_deinit(&s);
}

/* Assigns `from` to `to` all at once: through temporaries where a source is itself a target. */
static void move_all(struct printer *p, struct lp_value *const *to, struct lp_value *const *from, int n)
{
    char dst[32], src[32];
    bool crossed = false;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) crossed |= j != i && id_of(from[i]) == id_of(to[j]);
    if (crossed) pr_line(p, "{"), p->indent++;
    for (int i = 0; crossed && i < n; i++) {
        int elems = pr_elems(p, to[i]->type);
        if (elems > 1) pr_line(p, "%s t%d[%d];", pr_type(to[i]->type.dtype), i, elems);
        else pr_line(p, "%s t%d;", pr_type(to[i]->type.dtype), i);
        snprintf(dst, sizeof dst, "t%d", i);
        snprintf(src, sizeof src, "v%u", id_of(from[i]));
        copy_value(p, dst, to[i], src);
    }
    for (int i = 0; i < n; i++) {
        if (id_of(from[i]) == id_of(to[i])) continue;
        snprintf(dst, sizeof dst, "v%u", id_of(to[i]));
        snprintf(src, sizeof src, crossed ? "t%d" : "v%u", crossed ? (unsigned)i : id_of(from[i]));
        copy_value(p, dst, to[i], src);
    }
    if (crossed) p->indent--, pr_line(p, "}");
}

/* ---- control ---- */

static void print_block(struct printer *p, struct lp_block *b, const struct lp_op **yield);

static void print_for(struct printer *p, struct lp_op *op)
{
    if (p->k->cta_threads && !p->k->cta_warp_rows && cta_is_dot_loop(op)) {
        cta_print_dot_loop(p, op);
        return;
    }
    if (p->order == CTA_COLUMNS && cta_is_block_loop(op)) {
        cta_print_block_loop(p, op);
        return;
    }
    struct lp_block *body = op->regions[0];
    struct strbuf lo = {0}, hi = {0};
    const struct lp_op *yield = NULL;
    pr_scalar(&lo, op->operands[0]);
    pr_scalar(&hi, op->operands[1]);
    for (int i = 0; i < op->n_results; i++) {
        declare_line(p, body->args[i + 1]);
        op->results[i]->aux = body->args[i + 1];
    }
    move_all(p, body->args + 1, op->operands + 2, op->n_results);
    if (op->index == LP_LOOP_UNROLL) pr_line(p, "#pragma unroll");
    else if (p->k->cta_warp_rows) pr_line(p, "#pragma unroll 1");
    unsigned i = body->args[0]->id;
    pr_line(p, "for (i64 v%u = %s; v%u < %s; v%u += %lld) {", i, strbuf_get(&lo), i, strbuf_get(&hi), i, (long long)op->imm);
    p->indent++;
    print_block(p, body, &yield);
    if (yield) move_all(p, body->args + 1, yield->operands, op->n_results);
    p->indent--;
    pr_line(p, "}");
    strbuf_deinit(&lo);
    strbuf_deinit(&hi);
}

static void print_if(struct printer *p, struct lp_op *op)
{
    struct strbuf cond = {0};
    pr_scalar(&cond, op->operands[0]);
    for (int i = 0; i < op->n_results; i++) declare_line(p, op->results[i]);
    for (int s = 0; s < 2; s++) {
        const struct lp_op *yield = NULL;
        pr_line(p, s ? "} else {" : "if (%s) {", strbuf_get(&cond));
        p->indent++;
        print_block(p, op->regions[s], &yield);
        if (yield) move_all(p, op->results, yield->operands, op->n_results);
        p->indent--;
    }
    pr_line(p, "}");
    strbuf_deinit(&cond);
}

static void print_op(struct printer *p, struct lp_op *op)
{
    if (++p->n_ops > CUDA_OP_LIMIT) {
        pr_fail(p, DIAG_CODEGEN, "too many operations", "");
        return;
    }
    if (lp_op_flags(op->code) & LP_F_MATH) {
        pr_fail(p, DIAG_NO_LOWERING, "no code on this target for", lp_op_name(op->code));
        return;
    }
    if (warp_is_staged(p, op)) {
        warp_stage(p, op);
        return;
    }
    if (lp_op_flags(op->code) & LP_F_PW) {
        pr_pointwise(p, op);
        return;
    }
    if (op->code == LP_OP_MMA && op->operands[2]->type.rows > 1) { /* the form that CPU tiles take */
        pr_fail(p, DIAG_NO_LOWERING, "no code on this target for several quads of", lp_op_name(op->code));
        return;
    }
    switch (op->code) {
    case LP_OP_CONST: pr_const(p, op); break;
    case LP_OP_DIM: pr_line(p, "const i64 v%u = d%d;", op->results[0]->id, op->index); break;
    case LP_OP_IOTA:
    case LP_OP_SPLAT:
    case LP_OP_EXTRACT:
    case LP_OP_REDUCE:
    case LP_OP_DOT:
    case LP_OP_MMA: pr_tile_op(p, op); break;
    case LP_OP_LOAD: pr_load(p, op); break;
    case LP_OP_STORE: pr_store(p, op); break;
    case LP_OP_PREFETCH: break; /* other warps hide the latency */
    case LP_OP_FOR: print_for(p, op); break;
    case LP_OP_IF: print_if(p, op); break;
    default: pr_fail(p, DIAG_NO_LOWERING, "no code on this target for", lp_op_name(op->code));
    }
}

static void print_block(struct printer *p, struct lp_block *b, const struct lp_op **yield)
{
    *yield = NULL;
    for (struct lp_op *op = b->first; op && !p->failed && !*yield; op = op->next) {
        if (op->code == LP_OP_YIELD) *yield = op;
        else print_op(p, op);
    }
    warp_staging_ends(p);
}

/* ---- the kernel ---- */

static void clear_aux(struct lp_block *b)
{
    for (int i = 0; i < b->n_args; i++) b->args[i]->aux = NULL;
    for (struct lp_op *op = b->first; op; op = op->next) {
        for (int i = 0; i < op->n_results; i++) op->results[i]->aux = NULL;
        for (int i = 0; i < op->n_regions; i++) clear_aux(op->regions[i]);
    }
}

static void print_signature(struct printer *p, const char *symbol, int threads)
{
    struct lp_kernel *k = p->k;
    /* Tiles live in registers: told of 1 CTA the compiler may use all of them; else NVRTC 13.5 spills to fit more CTAs. */
    strbuf_printf(p->out, "extern \"C\" __global__ void __launch_bounds__(%d%s) %s(", threads, k->cta_threads ? ", 1" : "", symbol);
    for (int i = 0; i < k->n_arg_bufs; i++) {
        const struct lp_buf *b = &k->bufs.v[i];
        strbuf_printf(p->out, "%s%s *__restrict__ b%d, ", b->writable ? "" : "const ", pr_mem_type(b->dtype), i);
    }
    for (size_t i = 0; i < k->dims.n; i++) strbuf_printf(p->out, "const i64 d%zu, ", i);
    strbuf_puts(p->out, "const i64 n_slices)\n{\n");
}

/* STACK buffers are arrays of the thread. */
static bool print_stack(struct printer *p)
{
    size_t total = 0;
    if (p->k->cta_warp_rows) return warp_print_stack(p);
    for (size_t i = (size_t)p->k->n_arg_bufs; i < p->k->bufs.n; i++) {
        const struct lp_buf *b = &p->k->bufs.v[i];
        size_t n = 1;
        if (b->space != LP_SPACE_STACK) return pr_fail(p, DIAG_NO_LOWERING, "no shared memory in generic code for buffer", b->name);
        for (int a = 0; a < b->rank; a++)
            if (!dim_is_const(b->dims[a]) || b->dims[a]->value < 0 || !size_mul(n, (size_t)b->dims[a]->value, &n))
                return pr_fail(p, DIAG_CODEGEN, "a stack buffer has no usable size:", b->name);
        if (!size_mul(n ? n : 1, dtype_bytes(b->dtype), &n) || !size_add(total, n, &total) || total > CUDA_LOCAL_BYTES)
            return pr_fail(p, DIAG_NO_LOWERING, "a thread has no room for the buffer", b->name);
        pr_line(p, "__align__(16) %s b%zu[%zu];", pr_mem_type(b->dtype), i, n / dtype_bytes(b->dtype));
    }
    return true;
}

/* The first line that names the user's nodes: logs and profilers show it. Nothing may end the comment early. */
static void print_comment(struct strbuf *out, const char *loc)
{
    strbuf_puts(out, "// ");
    for (const char *c = loc; c && *c && c - loc < 2000; c++) strbuf_putc(out, (unsigned char)*c < ' ' || *c == '\\' ? ' ' : *c);
    strbuf_putc(out, '\n');
}

bool cuda_print(struct lp_kernel *k, const struct target_level *level, const char *symbol, struct strbuf *out,
                struct cuda_launch *launch, struct diag_sink *diag)
{
    lp_expand_math(k);
    lp_vectorize(k, level->vector_bytes);
    lp_simplify(k);
    struct printer p = {.k = k, .out = out, .diag = diag, .wgmma = k->cta_threads && !k->cta_warp_rows && level->gpu->has_wgmma};
    p.order = !p.wgmma && !k->cta_warp_rows ? CTA_SQUARES : cta_has_block_loop(k) ? CTA_COLUMNS : CTA_ROWS;
    *launch = (struct cuda_launch){.threads = CUDA_THREADS, .slices_cta = CUDA_THREADS};
    if (k->cta_threads) *launch = (struct cuda_launch){.threads = k->cta_threads, .slices_cta = 1};
    clear_aux(k->body);
    print_comment(out, k->loc);
    for (int i = 0; cuda_prelude[i]; i++) strbuf_puts(out, cuda_prelude[i]);
    for (int i = 0; k->cta_threads && cta_prelude(i, &p); i++) strbuf_puts(out, cta_prelude(i, &p));
    print_signature(&p, symbol, launch->threads);
    p.indent = 1;
    const struct lp_op *yield = NULL;
    if (k->cta_threads) {
        pr_line(&p, "const i64 v%u = blockIdx.x;", k->body->args[0]->id);
    } else {
        pr_line(&p, "const i64 v%u = (i64)blockIdx.x * %d + threadIdx.x;", k->body->args[0]->id, CUDA_THREADS);
        pr_line(&p, "if (v%u >= n_slices) return;", k->body->args[0]->id);
    }
    if (print_stack(&p)) print_block(&p, k->body, &yield);
    strbuf_puts(out, "}\n");
    return !p.failed;
}
