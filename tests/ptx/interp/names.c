// SPDX-License-Identifier: Apache-2.0
/*
 * Names of a kernel: registers, constants as registers, variables.
 *
 * Names are looked up from the inside out, because inline assembly opens blocks with registers and labels of
 * its own. Shared variables get their offsets where a kernel first uses them: a module's variables are
 * laid out per kernel, as the driver does it.
 */
#include "tests/ptx/interp/parse.h"

#include <ctype.h>
#include <string.h>

#include "tests/ptx/interp/machine.h"

int ptx_parse_new_reg(struct ptx_parser *ps, unsigned bytes, bool predicate)
{
    struct ptx_kernel *k = ps->fn;
    if (k->n_regs >= PTX_MAX_REGS) {
        ptx_parse_fail(ps, ps->line, "more than %d registers", PTX_MAX_REGS);
        return -1;
    }
    struct ptx_reg *grown = ptx_parse_grow(ps, k->regs, k->n_regs, &ps->cap_regs, sizeof *k->regs);
    if (!grown) return -1;
    k->regs = grown;
    k->regs[k->n_regs] = (struct ptx_reg){
        .off = k->reg_bytes, .bytes = (uint8_t)(bytes > 4 ? 8 : 4), .width = (uint8_t)bytes,
        .predicate = predicate};
    k->reg_bytes += predicate ? 8 : bytes > 4 ? 256 : 128;
    return k->n_regs++;
}

int ptx_parse_const_reg(struct ptx_parser *ps, uint64_t value, unsigned bytes)
{
    struct ptx_kernel *k = ps->fn;
    if (bytes <= 4) value &= UINT32_MAX;
    for (int i = 0; i < k->n_regs; i++) {
        struct ptx_reg *r = &k->regs[i];
        if (r->fill == PTX_FILL_CONST && r->value == value && r->bytes == (bytes > 4 ? 8 : 4)) return i;
    }
    int reg = ptx_parse_new_reg(ps, bytes, false);
    if (reg < 0) return -1;
    k->regs[reg].fill = PTX_FILL_CONST;
    k->regs[reg].value = value;
    return reg;
}

static const struct {
    const char *name;
    uint8_t which, bytes;
} special_regs[] = {
    {"%tid.x", PTX_SREG_TID_X, 4}, {"%tid.y", PTX_SREG_TID_Y, 4}, {"%tid.z", PTX_SREG_TID_Z, 4},
    {"%ntid.x", PTX_SREG_NTID_X, 4}, {"%ntid.y", PTX_SREG_NTID_Y, 4}, {"%ntid.z", PTX_SREG_NTID_Z, 4},
    {"%ctaid.x", PTX_SREG_CTAID_X, 4}, {"%ctaid.y", PTX_SREG_CTAID_Y, 4},
    {"%ctaid.z", PTX_SREG_CTAID_Z, 4}, {"%nctaid.x", PTX_SREG_NCTAID_X, 4},
    {"%nctaid.y", PTX_SREG_NCTAID_Y, 4}, {"%nctaid.z", PTX_SREG_NCTAID_Z, 4},
    {"%laneid", PTX_SREG_LANEID, 4}, {"%warpid", PTX_SREG_WARPID, 4}, {"%nwarpid", PTX_SREG_NWARPID, 4},
    {"%smid", PTX_SREG_SMID, 4}, {"%nsmid", PTX_SREG_NSMID, 4}, {"%gridid", PTX_SREG_GRIDID, 8},
    {"%lanemask_eq", PTX_SREG_LANEMASK_EQ, 4}, {"%lanemask_le", PTX_SREG_LANEMASK_LE, 4},
    {"%lanemask_lt", PTX_SREG_LANEMASK_LT, 4}, {"%lanemask_ge", PTX_SREG_LANEMASK_GE, 4},
    {"%lanemask_gt", PTX_SREG_LANEMASK_GT, 4}, {"%clock", PTX_SREG_CLOCK, 4},
    {"%clock_hi", PTX_SREG_CLOCK_HI, 4}, {"%clock64", PTX_SREG_CLOCK64, 8},
    {"%globaltimer", PTX_SREG_GLOBALTIMER, 8}, {"%clusterid.x", PTX_SREG_CLUSTERID_X, 4},
    {"%clusterid.y", PTX_SREG_CLUSTERID_Y, 4}, {"%clusterid.z", PTX_SREG_CLUSTERID_Z, 4},
    {"%nclusterid.x", PTX_SREG_NCLUSTERID_X, 4}, {"%nclusterid.y", PTX_SREG_NCLUSTERID_Y, 4},
    {"%nclusterid.z", PTX_SREG_NCLUSTERID_Z, 4}, {"%cluster_ctaid.x", PTX_SREG_CLUSTER_CTAID_X, 4},
    {"%cluster_ctaid.y", PTX_SREG_CLUSTER_CTAID_Y, 4}, {"%cluster_ctaid.z", PTX_SREG_CLUSTER_CTAID_Z, 4},
    {"%cluster_nctaid.x", PTX_SREG_CLUSTER_NCTAID_X, 4},
    {"%cluster_nctaid.y", PTX_SREG_CLUSTER_NCTAID_Y, 4},
    {"%cluster_nctaid.z", PTX_SREG_CLUSTER_NCTAID_Z, 4},
    {"%cluster_ctarank", PTX_SREG_CLUSTER_CTARANK, 4}, {"%cluster_nctarank", PTX_SREG_CLUSTER_NCTARANK, 4},
    {"%dynamic_smem_size", PTX_SREG_DYNAMIC_SMEM_SIZE, 4},
    {"%total_smem_size", PTX_SREG_TOTAL_SMEM_SIZE, 4},
};

static int special_reg(struct ptx_parser *ps, const char *name, int len)
{
    for (size_t i = 0; i < ARRAY_LEN(special_regs); i++) {
        if (strlen(special_regs[i].name) != (size_t)len || memcmp(special_regs[i].name, name, (size_t)len))
            continue;
        struct ptx_kernel *k = ps->fn;
        for (int r = 0; r < k->n_regs; r++)
            if (k->regs[r].fill == PTX_FILL_SPECIAL && k->regs[r].value == special_regs[i].which) return r;
        int reg = ptx_parse_new_reg(ps, special_regs[i].bytes, false);
        if (reg < 0) return -1;
        k->regs[reg].fill = PTX_FILL_SPECIAL;
        k->regs[reg].value = special_regs[i].which;
        return reg;
    }
    return -1;
}

static int range_member(const struct ptx_reg_range *r, const char *name, int len)
{
    if (len < r->len || memcmp(name, r->name, (size_t)r->len)) return -1;
    if (r->count < 0) return len == r->len ? r->first : -1;
    if (len == r->len || len - r->len > 8 || (name[r->len] == '0' && len - r->len > 1)) return -1;
    int index = 0;
    for (int i = r->len; i < len; i++) {
        if (!isdigit((unsigned char)name[i])) return -1;
        index = index * 10 + (name[i] - '0');
    }
    return index < r->count ? r->first + index : -1;
}

int ptx_parse_find_reg(struct ptx_parser *ps, const char *name, int len)
{
    for (struct ptx_scope *s = ps->scope; s; s = s->up)
        for (int i = s->n_ranges - 1; i >= 0; i--) {
            int reg = range_member(&s->ranges[i], name, len);
            if (reg >= 0) return reg;
        }
    return special_reg(ps, name, len);
}

static bool same_name(const char *have, const char *name, int len)
{
    return strlen(have) == (size_t)len && !memcmp(have, name, (size_t)len);
}

struct ptx_var *ptx_parse_add_var(struct ptx_parser *ps, struct ptx_scope *s, const struct ptx_var *v)
{
    struct ptx_var *grown = ptx_parse_grow(ps, s->vars, s->n_vars, &s->cap_vars, sizeof *v);
    if (!grown) return NULL;
    s->vars = grown;
    s->vars[s->n_vars] = *v;
    return &s->vars[s->n_vars++];
}

/* Where a variable lies in the kernel that is being parsed. */
bool ptx_parse_place_var(struct ptx_parser *ps, struct ptx_var *v)
{
    struct ptx_kernel *k = ps->fn;
    if (v->space == PTX_SPACE_SHARED && v->dynamic) {
        if (v->align > k->dynamic_align) k->dynamic_align = v->align;
    } else if (v->space == PTX_SPACE_SHARED) {
        k->shared_bytes = (k->shared_bytes + v->align - 1) / v->align * v->align;
        v->off = k->shared_bytes;
        if (v->bytes > 232448u || k->shared_bytes + v->bytes > 232448u)
            return ptx_parse_fail(ps, ps->tok.line, "more shared memory than any device has");
        k->shared_bytes += (uint32_t)v->bytes;
        if (v->align > k->shared_align) k->shared_align = v->align;
    } else if (v->space == PTX_SPACE_LOCAL) {
        k->local_bytes = (uint32_t)((k->local_bytes + v->align - 1) / v->align * v->align);
        v->off = k->local_bytes;
        if (v->bytes > 512u << 10 || k->local_bytes + v->bytes > 512u << 10)
            return ptx_parse_fail(ps, ps->tok.line, "more than 512 KiB of local memory");
        k->local_bytes += (uint32_t)v->bytes;
    }
    return true;
}

struct ptx_var *ptx_parse_find_var(struct ptx_parser *ps, const char *name, int len)
{
    struct ptx_scope *outer = NULL;
    for (struct ptx_scope *s = ps->scope; s; s = s->up) {
        outer = s;
        for (int i = s->n_vars - 1; i >= 0; i--)
            if (same_name(s->vars[i].name, name, len)) return &s->vars[i];
    }
    for (int i = 0; i < ps->mod->n_vars; i++) {
        struct ptx_var *v = &ps->mod->vars[i];
        if (!same_name(v->name, name, len)) continue;
        if (v->space != PTX_SPACE_SHARED) return v;
        struct ptx_var *mine = outer ? ptx_parse_add_var(ps, outer, v) : NULL;
        return mine && ptx_parse_place_var(ps, mine) ? mine : NULL;
    }
    return NULL;
}
