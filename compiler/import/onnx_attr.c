// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "compiler/import/onnx_int.h"
#include "compiler/import/wire.h"

/* AttributeProto.type */
enum {
    AT_FLOAT = 1,
    AT_INT = 2,
    AT_STRING = 3,
    AT_TENSOR = 4,
    AT_GRAPH = 5,
    AT_FLOATS = 6,
    AT_INTS = 7,
    AT_STRINGS = 8,
    AT_SPARSE = 11
};

static const Onnx__Attribute *in_list(Onnx__Attribute *const *list, size_t n, const char *name,
                                      size_t *at)
{
    for (size_t i = 0; i < n; i++)
        if (list[i]->name && !strcmp(list[i]->name, name)) {
            if (at) *at = i;
            return list[i];
        }
    return NULL;
}

/* Follows "the attribute of the enclosing function call of that name" to the attribute itself. */
static const Onnx__Attribute *resolve(const Onnx__Attribute *a, const struct onnx_call *call)
{
    while (a && a->ref_attr_name && *a->ref_attr_name) {
        if (!call) return NULL;
        const char *name = a->ref_attr_name;
        a = in_list(call->node->attribute, call->node->n_attribute, name, NULL);
        const struct onnx_call *next = call->outer;
        if (!a) {
            a = in_list(call->fn->attribute_proto, call->fn->n_attribute_proto, name, NULL);
            next = NULL;
        }
        call = next;
    }
    return a;
}

const Onnx__Attribute *at_find(struct onode *n, const char *name)
{
    size_t at;
    const Onnx__Attribute *a = in_list(n->p->attribute, n->p->n_attribute, name, &at);
    if (!a) return NULL;
    n->attr_used[at] = true;
    return resolve(a, n->g->call);
}

bool at_has(struct onode *n, const char *name) { return at_find(n, name) != NULL; }
void at_ignore(struct onode *n, const char *name) { (void)at_find(n, name); }

static const Onnx__Attribute *typed(struct onode *n, const char *name, int type,
                                    const char *type_name)
{
    const Onnx__Attribute *a = at_find(n, name);
    if (!a) return NULL;
    if (!a->has_type || a->type == type) return a;
    on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' is not of type %s", name, type_name);
    return NULL;
}

int64_t at_int(struct onode *n, const char *name, int64_t dflt)
{
    const Onnx__Attribute *a = typed(n, name, AT_INT, "INT");
    return a ? a->i : dflt;
}

double at_float(struct onode *n, const char *name, double dflt)
{
    const Onnx__Attribute *a = typed(n, name, AT_FLOAT, "FLOAT");
    return a ? (double)a->f : dflt;
}

static const char *text(struct onode *n, ProtobufCBinaryData s)
{
    return arena_strndup(&n->m->arena, s.len ? (const char *)s.data : "", s.len);
}

const char *at_string(struct onode *n, const char *name, const char *dflt)
{
    const Onnx__Attribute *a = typed(n, name, AT_STRING, "STRING");
    return a ? text(n, a->s) : dflt;
}

const char *const *at_strings(struct onode *n, const char *name, int *count)
{
    *count = 0;
    const Onnx__Attribute *a = typed(n, name, AT_STRINGS, "STRINGS");
    if (!a) return NULL;
    const char **out = ARENA_ARRAY(&n->m->arena, const char *, a->n_strings);
    for (size_t i = 0; i < a->n_strings; i++) out[i] = text(n, a->strings[i]);
    *count = (int)a->n_strings;
    return out;
}

/* Reads field 7 (floats) or 8 (ints) from the attribute's own bytes: counts first, then fills out
 * when given. */
static size_t read_list(struct onode *n, const Onnx__Attribute *a, uint32_t field, int64_t *ints,
                        double *floats)
{
    const uint8_t *p = n->im->base + a->wire_offset;
    struct wire_reader r = {p, p + a->wire_length, false};
    struct wire_field f;
    size_t count = 0;
    while (wire_next(&r, &f)) {
        if (f.number != field) continue;
        struct wire_reader in = {f.data, f.data + f.len, false};
        bool packed = f.type == WIRE_LEN;
        do {
            if (packed && in.p == in.end) break;
            uint64_t v = f.varint;
            if (packed && field == 8 && !wire_varint(&in, &v)) return SIZE_MAX;
            if (packed && field == 7) {
                if (in.end - in.p < 4) return SIZE_MAX;
                uint32_t bits;
                memcpy(&bits, in.p, 4);
                v = bits;
                in.p += 4;
            }
            if (ints) ints[count] = (int64_t)v;
            if (floats) {
                uint32_t bits = (uint32_t)v;
                float x;
                memcpy(&x, &bits, 4);
                floats[count] = (double)x;
            }
            count++;
        } while (packed);
    }
    return r.bad || count > INT32_MAX ? SIZE_MAX : count;
}

const int64_t *at_ints(struct onode *n, const char *name, int *count)
{
    *count = 0;
    const Onnx__Attribute *a = typed(n, name, AT_INTS, "INTS");
    if (!a) return NULL;
    size_t c = read_list(n, a, 8, NULL, NULL);
    if (c == SIZE_MAX) {
        on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' is a broken list", name);
        return NULL;
    }
    int64_t *out = ARENA_ARRAY(&n->m->arena, int64_t, c);
    read_list(n, a, 8, out, NULL);
    *count = (int)c;
    return out;
}

const double *at_floats(struct onode *n, const char *name, int *count)
{
    *count = 0;
    const Onnx__Attribute *a = typed(n, name, AT_FLOATS, "FLOATS");
    if (!a) return NULL;
    size_t c = read_list(n, a, 7, NULL, NULL);
    if (c == SIZE_MAX) {
        on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' is a broken list", name);
        return NULL;
    }
    double *out = ARENA_ARRAY(&n->m->arena, double, c);
    read_list(n, a, 7, NULL, out);
    *count = (int)c;
    return out;
}

struct ir_const *at_tensor(struct onode *n, const char *name)
{
    const Onnx__Attribute *a = typed(n, name, AT_TENSOR, "TENSOR");
    if (!a) return NULL;
    struct ir_const *c = NULL;
    if (!a->t) on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' has no tensor", name);
    else if (!(c = onnx_tensor(n->im, a->t, n->loc))) n->failed = true;
    return c;
}

const Onnx__Graph *at_graph(struct onode *n, const char *name)
{
    const Onnx__Attribute *a = typed(n, name, AT_GRAPH, "GRAPH");
    if (a && !a->g) on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' has no graph", name);
    return a ? a->g : NULL;
}

enum dtype at_dtype(struct onode *n, const char *name, enum dtype dflt)
{
    if (!at_has(n, name)) return dflt;
    int64_t code = at_int(n, name, 0);
    enum dtype d = onnx_dtype(n->im->diag, code > 0 && code < 1000 ? (int)code : 0, n->loc,
                              arena_printf(&n->m->arena, "attribute '%s'", name));
    if (d == DT_NONE) n->failed = true;
    return d;
}

int at_choice(struct onode *n, const char *name, int dflt, int n_names, const char *const *names)
{
    const char *s = at_string(n, name, NULL);
    if (!s) return n->failed ? -1 : dflt;
    for (int i = 0; i < n_names; i++)
        if (!strcmp(s, names[i])) return i;
    on_fail(n, DIAG_ONNX_ATTR, "attribute '%s' has the unknown value '%s'", name, s);
    return -1;
}

bool at_check_all_used(struct onode *n)
{
    bool ok = true;
    for (size_t i = 0; i < n->p->n_attribute; i++) {
        const Onnx__Attribute *a = n->p->attribute[i];
        if (n->attr_used[i] || !a->name) continue;
        if (a->ref_attr_name && *a->ref_attr_name && !resolve(a, n->g->call)) continue;
        ok = on_fail(n, DIAG_ONNX_ATTR, "%s of operator set %d has no attribute '%s'",
                     n->p->op_type, n->version, a->name);
    }
    return ok;
}
