// SPDX-License-Identifier: Apache-2.0
/* Commands that print tables: targets, ops, passes, explain, docs. */
#include <stdio.h>
#include <string.h>

#include "compiler/commands.h"
#include "compiler/import/import.h"
#include "ir/op.h"
#include "ir/target.h"
#include "passes/pass.h"

static void json_string(const char *s)
{
    struct strbuf b = {0};
    strbuf_put_json(&b, s);
    fputs(strbuf_get(&b), stdout);
    strbuf_deinit(&b);
}

static void print_gpu(const struct target_gpu *g)
{
    printf("  %-8s %d KiB of shared memory a CTA; mma:", g->arch, g->shared_bytes / 1024);
    for (int d = 0; d < DT_COUNT; d++)
        if (g->mma >> d & 1) printf(" %s", d == DT_F32 ? "tf32" : dtype_name((enum dtype)d));
    printf("%s%s\n", g->has_tma ? "; TMA" : "", g->has_wgmma ? ", wgmma" : "");
}

int cmd_targets(const struct options *o, struct diag_sink *diag)
{
    (void)diag;
    bool json = option_given(o, OPT_JSON);
    if (json) fputs("[", stdout);
    const struct target *t;
    for (int i = 0; (t = target_at(i)); i++) {
        if (!json) printf("%-10s %s\n", t->name, t->doc);
        for (int k = 0; k < t->n_levels; k++) {
            const struct target_level *lv = &t->levels[k];
            if (json)
                printf("%s\n  {\"target\": \"%s\", \"level\": \"%s\", \"vector_bytes\": %d}", i || k ? "," : "", t->name, lv->name,
                       lv->vector_bytes);
            else if (lv->gpu) print_gpu(lv->gpu);
            else printf("  %-8s %d-byte vectors%s%s%s\n", lv->name, lv->vector_bytes, lv->has_fma ? ", FMA" : "",
                        lv->has_vnni ? ", VNNI" : "", lv->has_amx ? ", AMX" : "");
        }
    }
    if (json) fputs("\n]\n", stdout);
    return 0;
}

int cmd_ops(const struct options *o, struct diag_sink *diag)
{
    (void)diag;
    bool json = option_given(o, OPT_JSON);
    if (json) fputs("[", stdout);
    for (int c = 0; c < IR_OP_COUNT; c++) {
        const struct ir_op_info *i = ir_op_info((enum ir_opcode)c);
        char operands[32], results[32];
        if (i->max_operands < 0) snprintf(operands, sizeof operands, "%d..", i->min_operands);
        else if (i->max_operands == i->min_operands) snprintf(operands, sizeof operands, "%d", i->min_operands);
        else snprintf(operands, sizeof operands, "%d..%d", i->min_operands, i->max_operands);
        if (i->n_results < 0) snprintf(results, sizeof results, "by region");
        else snprintf(results, sizeof results, "%d", i->n_results);
        if (json) {
            printf("%s\n  {\"op\": \"%s\", \"operands\": \"%s\", \"results\": \"%s\", \"doc\": ", c ? "," : "", i->name, operands, results);
            json_string(i->doc);
            fputs("}", stdout);
        } else {
            printf("%-18s %-5s %s\n", i->name, operands, i->doc);
        }
    }
    if (json) fputs("\n]\n", stdout);
    return 0;
}

int cmd_passes(const struct options *o, struct diag_sink *diag)
{
    (void)diag;
    bool json = option_given(o, OPT_JSON);
    if (json) fputs("[", stdout);
    for (int i = 0; i < pass_count(); i++) {
        const struct pass_info *p = pass_at(i);
        if (json) {
            printf("%s\n  {\"pass\": \"%s\", \"level\": \"%s\", \"doc\": ", i ? "," : "", p->name, p->level);
            json_string(p->doc);
            fputs("}", stdout);
        } else {
            printf("%-14s %-7s %s\n", p->name, p->level, p->doc);
        }
    }
    if (json) fputs("\n]\n", stdout);
    return 0;
}

int cmd_explain(const struct options *o, struct diag_sink *diag)
{
    if (o->args.n != 1) {
        diag_report(diag, DIAG_OPTION, NULL, "`infc explain` needs one code, such as E203");
        return 2;
    }
    for (int i = 0; i < DIAG_COUNT; i++) {
        if (strcmp(diag_code((enum diag_id)i), o->args.v[0])) continue;
        printf("%s: %s\nremedy: %s\n", diag_code((enum diag_id)i), diag_summary((enum diag_id)i), diag_remedy((enum diag_id)i));
        return 0;
    }
    diag_report(diag, DIAG_OPTION, NULL, "there is no diagnostic '%s'", o->args.v[0]);
    return 2;
}

static void diagnostics_page(struct strbuf *s)
{
    strbuf_puts(s, "# Diagnostics\n\nGenerated from `ir/support/diag.def`. Codes never change their meaning.\n\n"
                   "| code | what | remedy |\n|---|---|---|\n");
    for (int i = 0; i < DIAG_COUNT; i++)
        strbuf_printf(s, "| %s | %s | %s |\n", diag_code((enum diag_id)i), diag_summary((enum diag_id)i), diag_remedy((enum diag_id)i));
}

int cmd_docs(const struct options *o, struct diag_sink *diag)
{
    static const struct {
        const char *name;
        void (*page)(struct strbuf *out);
    } pages[] = {{"ops", ir_ops_markdown}, {"onnx-support", import_onnx_support_doc}, {"diagnostics", diagnostics_page}};
    struct strbuf s = {0};
    const char *name = o->args.n == 1 ? o->args.v[0] : "";
    bool found = !strcmp(name, "options");
    if (found) options_markdown(stdout);
    for (size_t i = 0; i < ARRAY_LEN(pages) && !found; i++)
        if ((found = !strcmp(pages[i].name, name))) pages[i].page(&s);
    fputs(strbuf_get(&s), stdout);
    strbuf_deinit(&s);
    if (!found) diag_report(diag, DIAG_OPTION, NULL, "`infc docs` needs one of: ops, onnx-support, diagnostics, options");
    return 0;
}
