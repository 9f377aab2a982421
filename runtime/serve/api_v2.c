// SPDX-License-Identifier: Apache-2.0
/*
 * The Open Inference protocol (KServe v2) over HTTP, for engines that take and give tensors:
 * metadata, health, and inference with tensors as JSON numbers or, behind the JSON, as raw bytes
 * (the binary tensor data extension).
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"
#include "runtime/serve/tensors.h"
#include "runtime/tensor.h"

static const struct {
    const char *name;
    enum dtype dtype;
} types[] = {{"BOOL", DT_BOOL},  {"UINT8", DT_U8},  {"UINT16", DT_U16}, {"UINT32", DT_U32},
             {"UINT64", DT_U64}, {"INT8", DT_I8},   {"INT16", DT_I16},  {"INT32", DT_I32},
             {"INT64", DT_I64},  {"FP16", DT_F16},  {"BF16", DT_BF16},  {"FP32", DT_F32},
             {"FP64", DT_F64}};
enum { N_TYPES = sizeof types / sizeof *types };

static const char *type_name(uint32_t dtype)
{
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].dtype == dtype) return types[i].name;
    return dtype_name((enum dtype)dtype); /* a type that the protocol does not have */
}

/* ---- the request ---- */

struct v2_call {
    struct server *s;
    struct http_conn *c; /* NULL: the peer is gone */
    struct tensor_job job;
    struct jinja_arena *arena;
    const char *id; /* the client's; NULL: none */
    bool *wanted, *binary; /* an output */
    const char *raw; /* what follows the JSON */
    size_t n_raw, raw_at;
};

static void destroy(struct v2_call *v)
{
    const struct infr_engine *e = v->s->x.e;
    for (uint32_t i = 0; v->job.in && i < e->n_inputs; i++) rt_tensor_free(&v->job.in[i]);
    for (uint32_t i = 0; v->job.out && i < e->n_outputs; i++) rt_tensor_free(&v->job.out[i]);
    free(v->job.in);
    free(v->job.out);
    free(v->wanted);
    free(v->binary);
    jinja_arena_destroy(v->arena);
    free(v);
}

static bool bad(struct v2_call *v, const char *input, const char *what)
{
    server_error(v->c, 400, input, "%s%s%s", input ? input : "", input ? ": " : "", what);
    return false;
}

/* "shape": [1, 3, 224, 224] */
static bool take_shape(struct v2_call *v, const char *name, const struct jinja_dict *d, int64_t *dims,
                       uint32_t *rank)
{
    const struct jinja_value *s = api_field(d, "shape");
    if (!s || s->kind != JINJA_LIST || s->u.list->count > INFR_MAX_RANK)
        return bad(v, name, "shape is a list of at most 12 sizes");
    *rank = s->u.list->count;
    for (uint32_t i = 0; i < *rank; i++) {
        const struct jinja_value *x = &s->u.list->items[i];
        if (x->kind != JINJA_INT || x->u.i < 0 || x->u.i > INT32_MAX)
            return bad(v, name, "a size of the shape is not possible");
        dims[i] = x->u.i;
    }
    return true;
}

/* Writes element i from a JSON number or boolean. False: it is neither, or does not fit. */
static bool put(struct infr_tensor *t, uint64_t i, const struct jinja_value *x)
{
    enum dtype d = (enum dtype)t->dtype;
    char *at = (char *)t->data + i * dtype_bytes(d);
    bool whole = x->kind == JINJA_INT || x->kind == JINJA_BOOL;
    if (!whole && x->kind != JINJA_FLOAT) return false;
    double f = x->kind == JINJA_FLOAT ? x->u.f : x->kind == JINJA_INT ? (double)x->u.i : x->u.b;
    int64_t n = x->kind == JINJA_INT ? x->u.i : x->u.b;
    if (dtype_class(d) == DTC_FLOAT) {
        float f32 = (float)f;
        uint16_t bits;
        if (d == DT_F64) return memcpy(at, &f, 8), true;
        if (d == DT_F32) return memcpy(at, &f32, 4), true;
        bits = (uint16_t)rt_small_encode(d, f);
        return memcpy(at, &bits, 2), true;
    }
    if (!whole) {
        if (f != floor(f) || fabs(f) > 0x1p53) return false;
        n = (int64_t)f;
    }
    unsigned b = dtype_bits(d);
    bool fits = d == DT_BOOL                      ? n == 0 || n == 1
                : dtype_class(d) == DTC_SINT      ? b == 64 || (n >= -(INT64_C(1) << (b - 1)) &&
                                                          n < INT64_C(1) << (b - 1))
                                                  : n >= 0 && (b == 64 || n < INT64_C(1) << b);
    if (fits) memcpy(at, &n, dtype_bytes(d)); /* little endian */
    return fits;
}

/* Data flat or nested as the shape is. False: not numbers, or too many. */
static bool put_all(struct infr_tensor *t, uint64_t n, const struct jinja_list *l, uint64_t *i,
                    int depth)
{
    for (uint32_t k = 0; k < l->count; k++) {
        const struct jinja_value *x = &l->items[k];
        if (x->kind == JINJA_LIST) {
            if (depth > INFR_MAX_RANK || !put_all(t, n, x->u.list, i, depth + 1)) return false;
        } else if (*i >= n || !put(t, (*i)++, x)) {
            return false;
        }
    }
    return true;
}

static bool take_data(struct v2_call *v, const char *name, const struct jinja_dict *d,
                      struct infr_tensor *t)
{
    const struct jinja_value *p = api_field(d, "parameters"), *data = api_field(d, "data");
    const struct jinja_value *size =
        p && p->kind == JINJA_DICT ? api_field(p->u.dict, "binary_data_size") : NULL;
    uint64_t n = rt_tensor_elems(t), i = 0;
    if (size) {
        if (data) return bad(v, name, "has data and binary_data_size");
        if (size->kind != JINJA_INT || size->u.i < 0 || (uint64_t)size->u.i != t->bytes)
            return bad(v, name, "binary_data_size is not the size of the shape");
        if (t->bytes > v->n_raw - v->raw_at) return bad(v, name, "the binary data are cut short");
        if (t->bytes) memcpy(t->data, v->raw + v->raw_at, t->bytes);
        v->raw_at += t->bytes;
        if (t->dtype != DT_BOOL) return true;
        for (uint64_t k = 0; k < n; k++)
            if (((unsigned char *)t->data)[k] > 1) return bad(v, name, "a BOOL is 0 or 1");
        return true;
    }
    if (!data || data->kind != JINJA_LIST) return bad(v, name, "has no data");
    if (!put_all(t, n, data->u.list, &i, 0)) return bad(v, name, "data do not fit type or shape");
    return i == n || bad(v, name, "there are fewer data than the shape has");
}

static bool take_input(struct v2_call *v, const struct jinja_value *x)
{
    const struct infr_engine *e = v->s->x.e;
    const struct jinja_value *name = x->kind == JINJA_DICT ? api_field(x->u.dict, "name") : NULL;
    struct infr_io_info io;
    struct infr_status st;
    int64_t dims[INFR_MAX_RANK];
    uint32_t i = 0, rank = 0;
    if (!name || name->kind != JINJA_STR) return bad(v, "inputs", "each has a name");
    for (; i < e->n_inputs; i++) {
        infr_engine_input(e, i, &io);
        if (api_is(name, io.name)) break;
    }
    if (i == e->n_inputs) {
        server_error(v->c, 400, "inputs", "the model has no input '%.*s'",
                     name->len < 100 ? (int)name->len : 100, name->u.s);
        return false;
    }
    if (v->job.in[i].data) return bad(v, io.name, "is given twice");
    if (!api_is(api_field(x->u.dict, "datatype"), type_name(io.dtype))) {
        server_error(v->c, 400, io.name, "%s: its datatype is %s", io.name, type_name(io.dtype));
        return false;
    }
    if (!take_shape(v, io.name, x->u.dict, dims, &rank)) return false;
    /* JSON takes two bytes an element at least: more than the body can fill is refused unread */
    if (rt_tensor_alloc(io.dtype, rank, dims, 8 * (uint64_t)v->c->n_body + 64, &v->job.in[i], &st))
        return bad(v, io.name, st.note);
    return take_data(v, io.name, x->u.dict, &v->job.in[i]);
}

static bool truth(const struct jinja_value *d, const char *name)
{
    const struct jinja_value *x = d && d->kind == JINJA_DICT ? api_field(d->u.dict, name) : NULL;
    return x && x->kind == JINJA_BOOL && x->u.b;
}

static bool take_outputs(struct v2_call *v, const struct jinja_dict *d)
{
    const struct infr_engine *e = v->s->x.e;
    const struct jinja_value *outputs = api_field(d, "outputs");
    bool binary = truth(api_field(d, "parameters"), "binary_data_output");
    for (uint32_t i = 0; i < e->n_outputs; i++) v->wanted[i] = !outputs, v->binary[i] = binary;
    if (!outputs) return true;
    if (outputs->kind != JINJA_LIST) return bad(v, "outputs", "is a list");
    for (uint32_t k = 0; k < outputs->u.list->count; k++) {
        const struct jinja_value *x = &outputs->u.list->items[k];
        const struct jinja_value *name = x->kind == JINJA_DICT ? api_field(x->u.dict, "name") : NULL;
        const struct jinja_value *p = x->kind == JINJA_DICT ? api_field(x->u.dict, "parameters") : NULL;
        struct infr_io_info io;
        uint32_t i = 0;
        for (; i < e->n_outputs; i++) {
            infr_engine_output(e, i, &io);
            if (api_is(name, io.name)) break;
        }
        if (i == e->n_outputs) return bad(v, "outputs", "there is an output that the model has not");
        if (p && p->kind == JINJA_DICT && api_field(p->u.dict, "classification"))
            return bad(v, "outputs", "classification is not supported");
        v->wanted[i] = true;
        if (p && p->kind == JINJA_DICT && api_field(p->u.dict, "binary_data"))
            v->binary[i] = truth(p, "binary_data");
    }
    return true;
}

static bool take(struct v2_call *v, const struct jinja_dict *d)
{
    static const char *const names[] = {"id", "parameters", "inputs", "outputs"};
    const struct infr_engine *e = v->s->x.e;
    const struct jinja_value *id = api_field(d, "id"), *inputs = api_field(d, "inputs");
    for (uint32_t i = 0; i < d->count; i++) {
        int k = 0;
        while (k < 4 && !api_is(&d->pairs[i].key, names[k])) k++;
        if (k == 4) return bad(v, NULL, "a field is not one of id, parameters, inputs, outputs");
    }
    if (id && id->kind == JINJA_STR) v->id = api_copy(v->arena, id->u.s, id->len);
    if (!inputs || inputs->kind != JINJA_LIST) return bad(v, "inputs", "is a list");
    for (uint32_t i = 0; i < inputs->u.list->count; i++)
        if (!take_input(v, &inputs->u.list->items[i])) return false;
    for (uint32_t i = 0; i < e->n_inputs; i++) {
        struct infr_io_info io;
        infr_engine_input(e, i, &io);
        if (!v->job.in[i].data && !io.optional) return bad(v, io.name, "is missing");
    }
    if (v->raw_at != v->n_raw) return bad(v, "inputs", "there are more binary data than inputs say");
    return take_outputs(v, d);
}

/* ---- the reply ---- */

static bool all_finite(const struct infr_tensor *t)
{
    if (dtype_class((enum dtype)t->dtype) != DTC_FLOAT) return true;
    for (uint64_t i = 0, n = rt_tensor_elems(t); i < n; i++)
        if (!isfinite(rt_tensor_get(t, i))) return false;
    return true;
}

static void json_data(struct json *j, const struct infr_tensor *t)
{
    uint64_t n = rt_tensor_elems(t);
    json_open(j, "data", '[');
    for (uint64_t i = 0; i < n; i++) {
        int64_t x = 0;
        switch ((enum dtype)t->dtype) {
        case DT_BOOL: json_bool(j, NULL, ((const unsigned char *)t->data)[i]); break;
        case DT_I64: json_int(j, NULL, ((const int64_t *)t->data)[i]); break;
        case DT_U64:
            fprintf(j->f, j->comma ? ",%llu" : "%llu",
                    (unsigned long long)((const uint64_t *)t->data)[i]);
            j->comma = true;
            break;
        case DT_F64:
            fprintf(j->f, j->comma ? ",%.17g" : "%.17g", ((const double *)t->data)[i]);
            j->comma = true;
            break;
        default:
            if (dtype_class((enum dtype)t->dtype) == DTC_FLOAT) {
                json_number(j, NULL, rt_tensor_get(t, i));
                break;
            }
            x = (int64_t)rt_tensor_get(t, i);
            json_int(j, NULL, x);
        }
    }
    json_close(j, ']');
}

static void json_output(struct v2_call *v, struct json *j, uint32_t i)
{
    const struct infr_tensor *t = &v->job.out[i];
    struct infr_io_info io;
    infr_engine_output(v->s->x.e, i, &io);
    json_open(j, NULL, '{');
    json_string(j, "name", io.name);
    json_string(j, "datatype", type_name(t->dtype));
    json_open(j, "shape", '[');
    for (uint32_t k = 0; k < t->rank; k++) json_int(j, NULL, t->dims[k]);
    json_close(j, ']');
    if (v->binary[i]) {
        json_open(j, "parameters", '{');
        json_int(j, "binary_data_size", (int64_t)t->bytes);
        json_close(j, '}');
    } else
        json_data(j, t);
    json_close(j, '}');
}

static void reply(struct v2_call *v)
{
    struct server *s = v->s;
    struct json *j = server_json(s);
    bool raw = false;
    uint32_t n_outputs = s->x.e->n_outputs;
    json_open(j, NULL, '{');
    json_string(j, "model_name", s->o.model_name);
    json_string(j, "model_version", "1");
    if (v->id) json_string(j, "id", v->id);
    json_open(j, "outputs", '[');
    for (uint32_t i = 0; i < n_outputs; i++) {
        if (!v->wanted[i]) continue;
        if (!v->binary[i] && !all_finite(&v->job.out[i])) {
            struct infr_io_info io;
            infr_engine_output(s->x.e, i, &io);
            server_error(v->c, 500, io.name,
                         "%s has infinities or NaN, which JSON has not: ask for binary_data", io.name);
            return;
        }
        raw = raw || v->binary[i];
        json_output(v, j, i);
    }
    json_close(j, ']');
    json_close(j, '}');
    if (!raw) {
        server_reply_json(v->c, 200);
        return;
    }
    http_header(v->c, "Inference-Header-Content-Length: %lld", (long long)ftello(j->f));
    for (uint32_t i = 0; i < n_outputs; i++)
        if (v->wanted[i] && v->binary[i]) fwrite(v->job.out[i].data, 1, v->job.out[i].bytes, j->f);
    size_t n;
    const char *text = server_json_end(s, &n);
    http_reply(v->c, 200, "application/octet-stream", text, n);
}

void api_v2_done(struct tensor_job *job)
{
    struct v2_call *v = job->user;
    struct server *s = v->s;
    struct http_conn *c = v->c;
    if (c) {
        c->on_abort = NULL;
        if (!job->code) reply(v);
        else
            server_error(c, job->code == INFR_BAD_INPUT ? 400 : 500, NULL, "%s", job->note);
    }
    s->calls--;
    destroy(v);
    if (s->draining) server_check_drained(s);
}

static void on_abort(struct http_conn *c)
{
    struct v2_call *v = c->call;
    v->c = NULL;
    tensor_cancel(&v->job);
}

/* ---- requests ---- */

/* The model's name in the path, and what follows: "/ready", "/infer", "". False: replied. */
static bool take_name(struct server *s, struct http_conn *c, struct http_span *rest)
{
    static const char prefix[] = "/v2/models/";
    size_t n = strlen(s->o.model_name);
    struct http_span p = {c->head.path.p + sizeof prefix - 1, c->head.path.n - (sizeof prefix - 1)};
    if (p.n < n || memcmp(p.p, s->o.model_name, n) || (p.n > n && p.p[n] != '/')) {
        server_error(c, 404, "model_name", "there is no such model here, there is '%s'",
                     s->o.model_name);
        return false;
    }
    p.p += n, p.n -= n;
    if (p.n >= 11 && !memcmp(p.p, "/versions/1", 11)) p.p += 11, p.n -= 11;
    *rest = p;
    return true;
}

static void json_io(struct json *j, const char *key, const struct infr_engine *e, bool outputs)
{
    uint32_t n = outputs ? e->n_outputs : e->n_inputs;
    json_open(j, key, '[');
    for (uint32_t i = 0; i < n; i++) {
        struct infr_io_info io;
        if (outputs) infr_engine_output(e, i, &io);
        else infr_engine_input(e, i, &io);
        json_open(j, NULL, '{');
        json_string(j, "name", io.name);
        json_string(j, "datatype", type_name(io.dtype));
        json_open(j, "shape", '[');
        for (uint32_t k = 0; k < io.rank; k++)
            json_int(j, NULL, io.dims[k].lo == io.dims[k].hi ? io.dims[k].lo : -1);
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
}

void api_v2_server(struct server *s, struct http_conn *c)
{
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_string(j, "name", "infc");
    json_string(j, "version", rt_text(s->x.e, s->x.e->h.compiler_version));
    json_open(j, "extensions", '[');
    json_string(j, NULL, "binary_tensor_data");
    json_close(j, ']');
    json_close(j, '}');
    server_reply_json(c, 200);
}

static void say(struct server *s, struct http_conn *c, const char *key, bool yes)
{
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_bool(j, key, yes);
    json_close(j, '}');
    server_reply_json(c, yes ? 200 : 503);
}

void api_v2_live(struct server *s, struct http_conn *c) { say(s, c, "live", true); }
void api_v2_ready(struct server *s, struct http_conn *c) { say(s, c, "ready", !s->draining); }

void api_v2_model(struct server *s, struct http_conn *c)
{
    struct http_span rest;
    if (!take_name(s, c, &rest)) return;
    if (http_is(rest, "/ready")) {
        say(s, c, "ready", !s->draining);
        return;
    }
    if (rest.n) {
        server_error(c, 404, NULL, "a model has /ready and /infer");
        return;
    }
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_string(j, "name", s->o.model_name);
    json_open(j, "versions", '[');
    json_string(j, NULL, "1");
    json_close(j, ']');
    json_string(j, "platform", "infc");
    json_io(j, "inputs", s->x.e, false);
    json_io(j, "outputs", s->x.e, true);
    json_close(j, '}');
    server_reply_json(c, 200);
}

/* Splits the body into JSON and raw bytes. False: replied. */
static bool split_body(struct v2_call *v, struct jinja_value *out)
{
    struct http_conn *c = v->c;
    const struct http_span *h = http_find(&c->head, "inference-header-content-length");
    size_t n = c->n_body;
    if (h) {
        size_t k = 0;
        n = 0;
        for (; k < h->n && k < 18 && h->p[k] >= '0' && h->p[k] <= '9'; k++)
            n = n * 10 + (size_t)(h->p[k] - '0');
        if (!h->n || k < h->n || n > c->n_body)
            return bad(v, NULL, "Inference-Header-Content-Length is not a length of the body");
    }
    v->raw = c->body + n, v->n_raw = c->n_body - n;
    size_t all = c->n_body;
    c->n_body = n; /* for a moment the JSON is the body */
    bool ok = api_read_body(v->s, c, &v->arena, out);
    if (ok) c->n_body = all;
    return ok;
}

void api_v2_infer(struct server *s, struct http_conn *c)
{
    struct http_span rest;
    struct jinja_value body;
    const struct infr_engine *e = s->x.e;
    if (!take_name(s, c, &rest)) return;
    if (!http_is(rest, "/infer")) {
        server_error(c, 404, NULL, "a model has /ready and /infer");
        return;
    }
    struct v2_call *v = calloc(1, sizeof *v);
    if (!v) {
        server_error(c, 503, NULL, "no memory for the request");
        return;
    }
    v->s = s, v->c = c, v->job.user = v;
    v->job.in = calloc(e->n_inputs + 1u, sizeof *v->job.in);
    v->job.out = calloc(e->n_outputs + 1u, sizeof *v->job.out);
    v->wanted = calloc(e->n_outputs + 1u, sizeof *v->wanted);
    v->binary = calloc(e->n_outputs + 1u, sizeof *v->binary);
    bool memory = v->job.in && v->job.out && v->wanted && v->binary;
    if (!memory) server_error(c, 503, NULL, "no memory for the request");
    if (!memory || !split_body(v, &body) || !take(v, body.u.dict)) {
        destroy(v);
        return;
    }
    if (!tensor_submit(s->tensors, &v->job)) {
        destroy(v);
        s->metrics.busy_refused++;
        http_header(c, "Retry-After: 1");
        server_error(c, s->draining ? 503 : 429, NULL, "too many requests are waiting");
        return;
    }
    s->calls++;
    c->call = v, c->on_abort = on_abort;
}
