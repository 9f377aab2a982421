// SPDX-License-Identifier: Apache-2.0
/* `infc check` and `infc inspect`: what a model holds and what stands in the way of a build. */
#include <stdio.h>
#include <string.h>

#include "compiler/commands.h"
#include "compiler/import/import.h"
#include "compiler/pipeline.h"
#include "ir/op.h"
#include "ir/text.h"

static const char *one_model(const struct options *o, struct diag_sink *diag)
{
    if (o->args.n == 1) return o->args.v[0];
    diag_report(diag, DIAG_OPTION, NULL, o->args.n ? "expected one model, got %zu arguments" : "expected a model file", o->args.n);
    return NULL;
}

int cmd_check(const struct options *o, struct diag_sink *diag)
{
    const char *path = one_model(o, diag);
    if (!path) return 2;
    struct ir_module *m = pipeline_import(o, path, diag);
    if (m) {
        if (!diag->error_count && !option_given(o, OPT_JSON)) {
            const struct ir_func *f = m->funcs.v[0];
            printf("%s: no problems; %d inputs, %d outputs\n", path, f->n_inputs, f->n_outputs);
        }
        ir_module_destroy(m);
    } else if (!option_given(o, OPT_JSON)) {
        fprintf(stderr, "%s: %zu problems\n", path, diag->error_count);
    }
    return 0;
}

static void count_ops(const struct ir_block *b, size_t *counts)
{
    for (const struct ir_op *op = b->first; op; op = op->next) {
        counts[op->code]++;
        for (int r = 0; r < op->n_regions; r++) count_ops(op->regions[r], counts);
    }
}

static void print_io(const char *what, const char *name, const struct ir_type *t, bool json, bool first)
{
    struct strbuf s = {0};
    if (json) {
        strbuf_printf(&s, "%s\n    {\"name\": ", first ? "" : ",");
        strbuf_put_json(&s, name);
        strbuf_printf(&s, ", \"dtype\": \"%s\", \"dims\": [", dtype_name(t->dtype));
        for (int i = 0; i < t->rank; i++) {
            struct strbuf d = {0};
            dim_print(&d, t->dims[i]);
            if (i) strbuf_puts(&s, ", ");
            if (dim_is_const(t->dims[i])) strbuf_puts(&s, strbuf_get(&d));
            else strbuf_put_json(&s, strbuf_get(&d));
            strbuf_deinit(&d);
        }
        strbuf_puts(&s, "]}");
    } else {
        strbuf_printf(&s, "%-7s %-24s ", what, name);
        ir_print_type(&s, t);
        strbuf_putc(&s, '\n');
    }
    fputs(strbuf_get(&s), stdout);
    strbuf_deinit(&s);
}

static void print_summary(const struct ir_module *m, bool json)
{
    const struct ir_func *f = m->funcs.v[0];
    size_t counts[IR_OP_COUNT] = {0};
    count_ops(f->body, counts);
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->consts.n; i++) bytes += m->consts.v[i]->n_bytes;
    if (json) fputs("{\n  \"inputs\": [", stdout);
    for (int i = 0; i < f->n_inputs; i++) print_io("input", f->input_names[i], &f->body->args[i]->type, json, i == 0);
    if (json) fputs("],\n  \"outputs\": [", stdout);
    for (int i = 0; i < f->n_outputs; i++) print_io("output", f->output_names[i], &ir_operand(f->body->last, i)->type, json, i == 0);
    if (json) printf("],\n  \"constant_bytes\": %llu,\n  \"ops\": {", (unsigned long long)bytes);
    else printf("constants %llu bytes in %zu tensors\n", (unsigned long long)bytes, m->consts.n);
    bool first = true;
    for (int c = 0; c < IR_OP_COUNT; c++) {
        if (!counts[c] || c == IR_OP_RETURN || c == IR_OP_YIELD) continue;
        if (json) printf("%s\"%s\": %zu", first ? "" : ", ", ir_op_name((enum ir_opcode)c), counts[c]);
        else printf("%8zu %s\n", counts[c], ir_op_name((enum ir_opcode)c));
        first = false;
    }
    if (json) fputs("}\n}\n", stdout);
}

int cmd_inspect(const struct options *o, struct diag_sink *diag)
{
    const char *path = one_model(o, diag);
    if (!path) return 2;
    bool passes = option_given(o, OPT_STOP_AFTER) || option_given(o, OPT_PRINT_AFTER) || option_given(o, OPT_TIME_PASSES);
    if (!passes && (import_describe(path, option_given(o, OPT_JSON), stdout, diag) || diag->error_count)) return 0;
    struct build b = {.o = o, .diag = diag, .model_path = path};
    b.m = pipeline_import(o, path, diag);
    if (b.m) {
        bool stopped = false;
        if (passes) pipeline_tensor(&b, &stopped);
        else print_summary(b.m, option_given(o, OPT_JSON));
    }
    build_deinit(&b);
    return 0;
}
