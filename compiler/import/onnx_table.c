// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "compiler/import/onnx_int.h"

#define ONNX(domain, op, since, min_in, max_in, handler, arg, note) bool handler(struct onode *n);
#include "compiler/import/onnx_ops.def"
#undef ONNX

#define AI ""
#define ML "ai.onnx.ml"
#define MS "com.microsoft"

static const struct onnx_row rows[] = {
#define ONNX(domain, op, since, min_in, max_in, handler, arg, note)                                \
    {domain, op, since, min_in, max_in, handler, arg, note},
#include "compiler/import/onnx_ops.def"
#undef ONNX
};

int onnx_max_opset(const char *domain)
{
    if (!strcmp(domain, AI)) return 28;
    if (!strcmp(domain, ML)) return 5;
    if (!strcmp(domain, MS)) return 1;
    return 0;
}

const struct onnx_row *onnx_find_row(const char *domain, const char *op, int version, bool *exists)
{
    const struct onnx_row *best = NULL;
    *exists = false;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct onnx_row *r = &rows[i];
        if (r->op[0] != op[0] || strcmp(r->op, op) || strcmp(r->domain, domain)) continue;
        *exists = true;
        if (r->since <= version && (!best || r->since > best->since)) best = r;
    }
    return best;
}

static int by_name(const void *a, const void *b)
{
    const struct onnx_row *x = *(const struct onnx_row *const *)a,
                          *y = *(const struct onnx_row *const *)b;
    int c = strcmp(x->domain, y->domain);
    if (!c) c = strcmp(x->op, y->op);
    return c ? c : x->since - y->since;
}

void import_onnx_support_doc(struct strbuf *out)
{
    const struct onnx_row *sorted[ARRAY_LEN(rows)];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) sorted[i] = &rows[i];
    qsort(sorted, ARRAY_LEN(rows), sizeof *sorted, by_name);
    strbuf_printf(out,
                  "# ONNX operators\n\n"
                  "Generated from `compiler/import/onnx_ops.def`. Operator sets up to %d of "
                  "ai.onnx (checked from 9 on), 1 to %d of ai.onnx.ml, "
                  "and com.microsoft 1.\nAn operator that is not listed, or a use of it that its "
                  "note excludes, is "
                  "reported by `infc check` with the node's name.\n"
                  "*From* is the first operator set whose form of the operator is understood; "
                  "where a later one changed the\n"
                  "operator's meaning it has a line of its own.\n"
                  "A dim of an input that the model leaves open is at most 2^28 (268435456) unless "
                  "`--shape` fixes it.\n",
                  onnx_max_opset(AI), onnx_max_opset(ML));
    const char *domain = NULL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct onnx_row *r = sorted[i];
        if (!domain || strcmp(domain, r->domain)) {
            domain = r->domain;
            strbuf_printf(out, "\n## %s\n\n| operator | from | note |\n|---|--:|---|\n",
                          *domain ? domain : "ai.onnx");
        }
        strbuf_printf(out, "| %s | %d | %s |\n", r->op, r->since, r->note);
    }
}
