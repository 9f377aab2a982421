// SPDX-License-Identifier: Apache-2.0
/* A machine's life, faults, and what a launch has to fulfil. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/interp/machine.h"

struct ptx_machine *ptx_machine_create(const struct ptx_options *options)
{
    struct ptx_machine *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    if (options) m->options = *options;
    if (!m->options.sm) m->options.sm = 90;
    if (!m->options.max_steps) m->options.max_steps = UINT64_C(4000000000);
    if (!m->options.memory_bytes) m->options.memory_bytes = UINT64_C(16) << 30;
    m->next_base = PTX_GLOBAL_BASE + 4096;
    m->random = m->options.seed;
    return m;
}

void ptx_machine_destroy(struct ptx_machine *m)
{
    if (!m) return;
    while (m->modules) {
        struct ptx_module *next = m->modules->next;
        ptx_module_free(m->modules);
        m->modules = next;
    }
    for (size_t i = 0; i < m->n_allocs; i++) {
        free(m->allocs[i].data);
        free(m->allocs[i].state);
        free(m->allocs[i].owner);
        free(m->allocs[i].seen);
        free(m->allocs[i].touched);
    }
    free(m->allocs);
    free(m->cta_released);
    free(m->params);
    free(m);
}

void ptx_machine_add_module(struct ptx_machine *m, struct ptx_module *mod)
{
    mod->next = m->modules;
    m->modules = mod;
}

void ptx_module_unload(struct ptx_machine *m, struct ptx_module *mod)
{
    for (struct ptx_module **p = &m->modules; *p; p = &(*p)->next) {
        if (*p != mod) continue;
        *p = mod->next;
        for (int i = 0; i < mod->n_vars; i++)
            if (mod->vars[i].space != PTX_SPACE_SHARED) ptx_mem_free(m, mod->vars[i].off);
        ptx_module_free(mod);
        return;
    }
}

const char *ptx_module_target(const struct ptx_module *mod) { return mod->target; }

struct ptx_kernel *ptx_module_find(struct ptx_module *mod, const char *name)
{
    for (int i = 0; i < mod->n_funcs; i++)
        if (mod->funcs[i]->entry && mod->funcs[i]->defined && !strcmp(mod->funcs[i]->name, name)) return mod->funcs[i];
    return NULL;
}

bool ptx_module_find_global(struct ptx_module *mod, const char *name, uint64_t *out_address, size_t *out_bytes)
{
    for (int i = 0; i < mod->n_vars; i++) {
        const struct ptx_var *v = &mod->vars[i];
        if (v->space == PTX_SPACE_SHARED || strcmp(v->name, name)) continue;
        *out_address = v->off;
        *out_bytes = v->bytes;
        return true;
    }
    return false;
}

const struct ptx_kernel_info *ptx_kernel_info(const struct ptx_kernel *k) { return &k->info; }

bool ptx_kernel_param(const struct ptx_kernel *k, unsigned i, unsigned *out_offset, unsigned *out_bytes)
{
    if (i >= (unsigned)k->n_params) return false;
    *out_offset = k->params[i].off;
    *out_bytes = k->params[i].bytes;
    return true;
}

const struct ptx_counters *ptx_counters(const struct ptx_machine *m) { return &m->counters; }
void ptx_counters_reset(struct ptx_machine *m) { m->counters = (struct ptx_counters){0}; }
void ptx_set_early(struct ptx_machine *m, bool early) { m->options.early = early; }
void ptx_set_seed(struct ptx_machine *m, unsigned seed) { m->options.seed = m->random = seed; }

/* ---- faults ---- */

enum ptx_fault ptx_fault(const struct ptx_machine *m) { return m->fault; }
const char *ptx_report(const struct ptx_machine *m) { return m->report; }
int ptx_report_line(const struct ptx_machine *m) { return m->report_line; }

void ptx_report_clear(struct ptx_machine *m)
{
    m->fault = PTX_OK;
    m->report[0] = 0;
    m->report_line = 0;
}

const char *ptx_fault_name(enum ptx_fault f)
{
    static const char *const names[] = {"ok",         "parse",    "launch", "bounds", "alignment", "undefined", "race",
                                        "divergence", "deadlock", "async",  "trap",   "limit",     "memory"};
    return (size_t)f < ARRAY_LEN(names) ? names[f] : "?";
}

void ptx_fault_at(struct ptx_machine *m, enum ptx_fault f, int line, const char *format, ...)
{
    va_list ap;
    if (m->fault) return;
    m->fault = f;
    m->report_line = line;
    va_start(ap, format);
    vsnprintf(m->report, sizeof m->report, format, ap);
    va_end(ap);
}

void ptx_fault_warp(struct ptx_warp *w, const struct ptx_insn *in, int lane, enum ptx_fault f, const char *format, ...)
{
    struct ptx_machine *m = w->m;
    va_list ap;
    char lane_text[64] = "";
    if (m->fault) return;
    m->fault = f;
    m->report_line = in->line;
    if (lane >= 0) {
        const struct ptx_dim *b = &m->launch->block;
        unsigned t = (unsigned)w->id * 32 + (unsigned)lane;
        snprintf(lane_text, sizeof lane_text, " lane %d (thread %u,%u,%u)", lane, t % b->x, t / b->x % b->y,
                 t / b->x / b->y);
    }
    va_start(ap, format);
    int n = vsnprintf(m->report, sizeof m->report, format, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof m->report) return;
    snprintf(m->report + n, sizeof m->report - (size_t)n,
             "\n  kernel %s, PTX line %d, CTA %u,%u,%u, warp %d%s\n  %.*s", w->k->name, in->line, w->cta->id.x,
             w->cta->id.y, w->cta->id.z, w->id, lane_text, in->text_len, in->text);
}

void ptx_unsupported(struct ptx_warp *w, const struct ptx_insn *in)
{
    ptx_fault_warp(w, in, -1, PTX_FAULT_PARSE, "this form of %s is not supported", ptx_op_name(in->op));
}

bool ptx_need_defined(struct ptx_warp *w, const struct ptx_insn *in, int reg, uint32_t mask, const char *what)
{
    if (reg < 0 || (w->def[reg] & mask) == mask) return true;
    ptx_fault_warp(w, in, ptx_lowest(mask & ~w->def[reg]), PTX_FAULT_UNDEFINED, "%s depends on undefined data", what);
    return false;
}

uint32_t ptx_sources_defined(const struct ptx_warp *w, const struct ptx_insn *in, int first, uint32_t mask)
{
    for (int i = first; i < in->n_ops; i++) {
        const struct ptx_operand *o = &in->ops[i];
        if (o->reg >= 0) mask &= w->def[o->reg];
        for (int j = 0; j < o->n; j++)
            if (o->regs[j] >= 0) mask &= w->def[o->regs[j]];
    }
    return mask;
}

/* ---- launches ---- */

static unsigned shared_limit(int sm)
{
    switch (sm) {
    case 80:
    case 87: return 163u << 10;
    case 86:
    case 89:
    case 120:
    case 121: return 99u << 10;
    case 90:
    case 100:
    case 103: return 227u << 10;
    default: return 96u << 10;
    }
}

static bool bad_launch(struct ptx_machine *m, const struct ptx_kernel *k, const char *why)
{
    ptx_fault_at(m, PTX_FAULT_LAUNCH, 0, "launch of %s: %s", k->name, why);
    return false;
}

static bool check_target(struct ptx_machine *m, const struct ptx_kernel *k)
{
    int sm = atoi(k->target + (strncmp(k->target, "sm_", 3) ? 0 : 3));
    size_t n = strlen(k->target);
    bool exact = n && (k->target[n - 1] == 'a' || k->target[n - 1] == 'f');
    if (exact ? sm == m->options.sm : sm <= m->options.sm) return true;
    ptx_fault_at(m, PTX_FAULT_LAUNCH, 0, "launch of %s: built for %s, the device is sm_%d", k->name, k->target,
                 m->options.sm);
    return false;
}

static bool check_launch(struct ptx_machine *m, const struct ptx_kernel *k, const struct ptx_launch *p)
{
    uint64_t threads = (uint64_t)p->block.x * p->block.y * p->block.z;
    struct ptx_dim c = p->cluster;
    if (!check_target(m, k)) return false;
    if (!p->grid.x || !p->grid.y || !p->grid.z || !threads) return bad_launch(m, k, "an empty grid or block");
    if (p->grid.x > INT32_MAX || p->grid.y > 65535 || p->grid.z > 65535) return bad_launch(m, k, "grid too large");
    if (p->block.x > 1024 || p->block.y > 1024 || p->block.z > 64 || threads > 1024)
        return bad_launch(m, k, "block too large");
    if (k->info.max_threads && threads > k->info.max_threads) return bad_launch(m, k, "more threads than .maxntid");
    if (k->info.exact_threads && threads != k->info.max_threads) return bad_launch(m, k, "other threads than .reqntid");
    if (p->dynamic_shared_bytes > shared_limit(m->options.sm) ||
        k->shared_bytes + p->dynamic_shared_bytes > shared_limit(m->options.sm))
        return bad_launch(m, k, "more shared memory than the device has");
    if (c.x || c.y || c.z) {
        if (m->options.sm < 90) return bad_launch(m, k, "clusters need sm_90");
        if (!c.x || !c.y || !c.z || (uint64_t)c.x * c.y * c.z > 8) return bad_launch(m, k, "cluster of 0 or more than 8");
        if (p->grid.x % c.x || p->grid.y % c.y || p->grid.z % c.z)
            return bad_launch(m, k, "the grid is no multiple of the cluster");
    }
    struct ptx_dim r = k->info.cluster;
    if (r.x && (r.x != c.x || r.y != c.y || r.z != c.z)) return bad_launch(m, k, "other cluster than .reqnctapercluster");
    if (k->n_params && !p->params) return bad_launch(m, k, "no parameters");
    return true;
}

bool ptx_launch(struct ptx_machine *m, struct ptx_kernel *k, const struct ptx_launch *given)
{
    struct ptx_launch p = *given;
    if (m->fault) return false;
    if (!p.cluster.x && !p.cluster.y && !p.cluster.z) p.cluster = k->info.cluster;
    if (!check_launch(m, k, &p)) return false;
    uint64_t ctas = (uint64_t)p.grid.x * p.grid.y * p.grid.z;
    unsigned n_ctas = p.cluster.x ? p.cluster.x * p.cluster.y * p.cluster.z : 1;
    unsigned warps = (p.block.x * p.block.y * p.block.z + 31) / 32;
    free(m->params);
    free(m->cta_released);
    m->params = calloc(1, k->param_bytes + 64u);
    m->cta_released = ctas < (1u << 26) ? calloc((size_t)ctas, sizeof *m->cta_released) : NULL;
    if (!m->params || !m->cta_released) {
        ptx_fault_at(m, PTX_FAULT_MEMORY, 0, "out of host memory");
        return false;
    }
    for (int i = 0; i < k->n_params; i++) memcpy(m->params + k->params[i].off, p.params[i], k->params[i].bytes);
    m->k = k;
    m->launch = &p;
    m->bulk_agent = n_ctas * warps;
    m->wgmma_agents = m->bulk_agent + 1;
    m->n_agents = m->wgmma_agents + n_ctas * ((warps + 3) / 4);
    m->launch_serial++;
    ptx_touches_clear(m);
    m->steps = 0;
    m->counters.launches++;
    bool ok = ptx_run_grid(m, k, &p);
    m->launch = NULL;
    return ok;
}
