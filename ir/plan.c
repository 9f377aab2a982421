// SPDX-License-Identifier: Apache-2.0
#include "ir/plan.h"

#include <stdlib.h>

#include "runtime/abi/first_fit.h"

struct plan *plan_create(struct ir_module *m)
{
    struct plan *p = calloc(1, sizeof *p);
    INFC_ASSERT(p != NULL);
    arena_init(&p->arena);
    p->module = m;
    p->entry = ARENA_NEW(&p->arena, struct plan_block);
    return p;
}

void plan_destroy(struct plan *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->kernels.n; i++)
        for (int l = 0; l < INFR_ISA_COUNT; l++)
            if (p->kernels.v[i].levels[l]) lp_kernel_destroy(p->kernels.v[i].levels[l]);
    arena_deinit(&p->arena);
    free(p);
}

bool plan_arena_layout(const struct plan *p, const int64_t *sym_values, uint64_t (*out)[2], uint64_t *peak, uint64_t *sum)
{
    size_t n = p->bufs.n, count = 0;
    struct infr_placement *place = calloc(n + 1, sizeof *place);
    uint32_t *scratch = calloc(2 * n + 1, sizeof *scratch);
    bool ok = place && scratch;
    *sum = 0;
    for (size_t i = 0; ok && i < n; i++) {
        const struct plan_buf *b = &p->bufs.v[i];
        int64_t bytes;
        if (b->kind != INFR_BUF_ARENA) continue;
        ok = dim_eval(p->module->dims, b->bytes, sym_values, &bytes) && bytes >= 0;
        if (ok) {
            place[count++] = (struct infr_placement){(uint64_t)bytes, b->first, b->last, 0};
            *sum += (uint64_t)bytes;
        }
    }
    *peak = ok ? infr_first_fit(place, count, scratch, scratch + n) : 0;
    count = 0;
    for (size_t i = 0; ok && out && i < n; i++) {
        bool arena = p->bufs.v[i].kind == INFR_BUF_ARENA;
        out[i][0] = arena ? place[count].offset : 0, out[i][1] = arena ? place[count].bytes : 0;
        count += arena;
    }
    free(place);
    free(scratch);
    return ok;
}

bool plan_arena_bytes(const struct plan *p, const int64_t *sym_values, uint64_t *peak, uint64_t *sum)
{
    return plan_arena_layout(p, sym_values, NULL, peak, sum);
}

/* ---- text ---- */

static const char *const kind_names[] = {"input", "output", "const", "arena"};

static void print_buf(struct strbuf *out, const struct plan_buf *b, size_t i)
{
    strbuf_printf(out, "  buf %zu %s %s[", i, kind_names[b->kind], dtype_name(b->dtype));
    for (int k = 0; k < b->rank; k++) {
        if (k) strbuf_puts(out, ", ");
        dim_print(out, b->dims[k]);
    }
    strbuf_printf(out, "]");
    if (b->kind == INFR_BUF_ARENA) strbuf_printf(out, " live %u..%u", b->first, b->last);
    if (b->kind == INFR_BUF_INPUT || b->kind == INFR_BUF_OUTPUT) strbuf_printf(out, " number %d", b->io);
    if (b->pack.rank) {
        strbuf_puts(out, " packed [");
        for (int k = 0; k < b->pack.rank; k++) strbuf_printf(out, "%s%lld", k ? ", " : "", (long long)b->pack.dims[k]);
        strbuf_puts(out, "]");
    }
    if (b->name) strbuf_printf(out, "  // %s", b->name);
    strbuf_putc(out, '\n');
}

static void print_block(struct strbuf *out, const struct plan *p, const struct plan_block *b, int depth)
{
    for (size_t i = 0; i < b->steps.n; i++) {
        const struct plan_step *s = &b->steps.v[i];
        if (s->kind == INFR_STEP_IF) {
            strbuf_printf(out, "%*sif buf %d {\n", depth, "", s->cond_buf);
            print_block(out, p, s->then_block, depth + 2);
            strbuf_printf(out, "%*s} else {\n", depth, "");
            print_block(out, p, s->else_block, depth + 2);
            strbuf_printf(out, "%*s}\n", depth, "");
            continue;
        }
        if (s->kind == INFR_STEP_PROBE) {
            strbuf_printf(out, "%*sprobe %d buf %d\n", depth, "", s->probe, s->cond_buf);
            continue;
        }
        if (s->kind == INFR_STEP_CHECK) {
            strbuf_printf(out, "%*scheck ", depth, "");
            dim_print(out, s->check.a);
            strbuf_puts(out, s->check.is_le ? " <= " : " == ");
            dim_print(out, s->check.b);
            strbuf_printf(out, "  // %s\n", s->check.message);
            continue;
        }
        const struct plan_launch *l = s->launch;
        const struct plan_kernel *k = &p->kernels.v[l->kernel];
        strbuf_printf(out, "%*slaunch @%s.%d (", depth, "", k->name, l->kernel);
        for (int a = 0; a < l->n_args; a++) strbuf_printf(out, "%sbuf %d", a ? ", " : "", l->args[a].buf);
        strbuf_printf(out, ") slices ");
        for (int v = 0; v < INFR_ISA_COUNT; v++)
            if (l->slices[v]) {
                dim_print(out, l->slices[v]);
                break;
            }
        strbuf_printf(out, " %s%s%s  // %s\n", k->schedule, l->each ? ", by each" : "", l->barrier ? " after barrier" : "", l->loc);
    }
}

void plan_print(struct strbuf *out, const struct plan *p)
{
    strbuf_printf(out, "plan \"%s\" {\n", p->module->name);
    for (size_t i = 0; i < p->bufs.n; i++) print_buf(out, &p->bufs.v[i], i);
    print_block(out, p, p->entry, 2);
    strbuf_puts(out, "}\n");
}
