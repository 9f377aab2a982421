// SPDX-License-Identifier: Apache-2.0
/* docs/ops.md out of ir/ops.def and ir/attrs.def. */
#include "ir/op.h"

struct attr_doc {
    enum ir_opcode code;
    const char *name, *kind;
    bool required;
};

static const struct attr_doc attr_docs[] = {
#define ATTR(ID, name, KIND, required) {IR_OP_##ID, #name, #KIND, required},
#include "ir/attrs.def"
#undef ATTR
};

static const struct {
    unsigned bit;
    const char *name;
} trait_names[] = {
    {IR_T_PW, "pointwise"},    {IR_T_COMM, "commutative"}, {IR_T_MOVE, "moves"},
    {IR_T_RED, "reduction"},   {IR_T_ANCHOR, "anchor"},    {IR_T_REGION, "regions"},
    {IR_T_TERM, "terminator"}, {IR_T_LIB, "library"},      {IR_T_VIEW, "view"},
};

static void put_lower(struct strbuf *out, const char *s)
{
    for (; *s; s++) strbuf_putc(out, *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s);
}

static void put_range(struct strbuf *out, int least, int most)
{
    if (most < 0) strbuf_printf(out, "%d or more", least);
    else if (least == most) strbuf_printf(out, "%d", least);
    else strbuf_printf(out, "%d to %d", least, most);
}

static void put_attrs(struct strbuf *out, enum ir_opcode code)
{
    const char *separator = "";
    for (size_t i = 0; i < ARRAY_LEN(attr_docs); i++) {
        if (attr_docs[i].code != code) continue;
        strbuf_printf(out, "%s`%s` ", separator, attr_docs[i].name);
        put_lower(out, attr_docs[i].kind);
        if (!attr_docs[i].required) strbuf_puts(out, "?");
        separator = ", ";
    }
}

static void put_traits(struct strbuf *out, unsigned traits)
{
    const char *separator = "";
    for (size_t i = 0; i < ARRAY_LEN(trait_names); i++) {
        if (!(traits & trait_names[i].bit)) continue;
        strbuf_printf(out, "%s%s", separator, trait_names[i].name);
        separator = ", ";
    }
}

/* A bar would end the table's cell. */
static void put_cell(struct strbuf *out, const char *s)
{
    for (; *s; s++) strbuf_printf(out, *s == '|' ? "\\%c" : "%c", *s);
}

void ir_ops_markdown(struct strbuf *out)
{
    strbuf_puts(
        out,
        "# Ops of the tensor IR\n\n"
        "Generated from `ir/ops.def` and `ir/attrs.def` by `infc ops --markdown`; do not edit.\n"
        "An attribute with `?` may be left out.\n"
        "Text form and rules that all ops share: [ir.md](ir.md).\n\n"
        "| op | operands | results | attributes | traits | meaning |\n"
        "|---|---|---|---|---|---|\n");
    for (int i = 0; i < IR_OP_COUNT; i++) {
        const struct ir_op_info *info = ir_op_info((enum ir_opcode)i);
        strbuf_printf(out, "| `%s` | ", info->name);
        put_range(out, info->min_operands, info->max_operands);
        strbuf_puts(out, " | ");
        put_range(out, info->n_results < 0 ? 0 : info->n_results, info->n_results);
        strbuf_puts(out, " | ");
        put_attrs(out, (enum ir_opcode)i);
        strbuf_puts(out, " | ");
        put_traits(out, info->traits);
        strbuf_puts(out, " | ");
        put_cell(out, info->doc);
        strbuf_puts(out, " |\n");
    }
}
