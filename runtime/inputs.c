// SPDX-License-Identifier: Apache-2.0
/* Inputs and outputs of the commands: which file is which tensor, and inputs that are made up. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cli.h"
#include "runtime/io.h"
#include "runtime/status.h"

enum file_kind { KIND_NPY, KIND_NPZ, KIND_PB, KIND_BIN, KIND_UNKNOWN };

static enum file_kind kind_of(const char *path)
{
    static const char *const endings[] = {
        [KIND_NPY] = ".npy", [KIND_NPZ] = ".npz", [KIND_PB] = ".pb", [KIND_BIN] = ".bin"};
    size_t n = strlen(path);
    if (!strcmp(path, "-")) return KIND_NPY;
    for (int k = 0; k < KIND_UNKNOWN; k++) {
        size_t len = strlen(endings[k]);
        if (n >= len && !strcmp(path + n - len, endings[k])) return (enum file_kind)k;
    }
    return KIND_UNKNOWN;
}

static int unknown_kind(const char *path)
{
    return cli_usage("%s: its ending says nothing; .npy, .npz, .pb and .bin are known, - is a "
                     "stream of .npy arrays",
                     path);
}

/* ---- the engine ---- */

int cli_open(struct cli *c, struct cli_engine *x)
{
    struct infr_status st;
    *x = (struct cli_engine){0};
    if (infr_engine_open_self(&c->engine_options, &x->e, &st)) return cli_error(&st);
    if (infr_engine_note(x->e))
        fprintf(stderr, "note: %s; running on the CPU\n", infr_engine_note(x->e));
    if (infr_session_create(x->e, &x->s, &st)) {
        cli_close(x);
        return cli_error(&st);
    }
    x->in = calloc((size_t)x->e->n_inputs + 1, sizeof *x->in);
    x->out = calloc((size_t)x->e->n_outputs + 1, sizeof *x->out);
    x->given = calloc((size_t)x->e->n_inputs + 1, sizeof *x->given);
    if (x->in && x->out && x->given) return INFR_OK;
    cli_close(x);
    rt_fail_memory(&st, "the tensors", 0);
    return cli_error(&st);
}

void cli_close(struct cli_engine *x)
{
    for (uint32_t i = 0; x->in && i < x->e->n_inputs; i++) rt_tensor_free(&x->in[i]);
    free(x->in);
    free(x->out); /* their data are the session's */
    free(x->given);
    infr_session_destroy(x->s);
    infr_engine_close(x->e);
    *x = (struct cli_engine){0};
}

void cli_io_text(const struct infr_io_info *io, char *out, size_t out_bytes)
{
    size_t n = (size_t)snprintf(out, out_bytes, "%s[", dtype_name((enum dtype)io->dtype));
    for (uint32_t i = 0; i < io->rank && n < out_bytes; i++)
        n += (size_t)snprintf(out + n, out_bytes - n, i ? ", %s" : "%s", io->dims[i].text);
    if (n < out_bytes) snprintf(out + n, out_bytes - n, "]");
}

void cli_list_inputs(FILE *f, const struct infr_engine *e)
{
    for (uint32_t i = 0; i < e->n_inputs; i++) {
        struct infr_io_info io;
        char text[512];
        infr_engine_input(e, i, &io);
        cli_io_text(&io, text, sizeof text);
        fprintf(f, "  %s  %s%s\n", io.name, text, io.optional ? "  (optional)" : "");
    }
}

static uint32_t find_io(const struct infr_engine *e, bool output, const char *name, size_t len)
{
    const struct infr_io *ios = output ? e->outputs : e->inputs;
    uint32_t n = output ? e->n_outputs : e->n_inputs;
    for (uint32_t i = 0; i < n; i++) {
        const char *own = rt_text(e, ios[i].name);
        if (strlen(own) == len && !memcmp(own, name, len)) return i;
    }
    return INFR_NONE;
}

/* Splits "NAME=FILE"; names may contain '=', so the split is where a name is known. Without one:
 * INFR_NONE, the whole text. */
static uint32_t split_spec(const struct infr_engine *e, bool output, char *spec, char **file)
{
    for (char *p = strchr(spec, '='); p; p = strchr(p + 1, '=')) {
        uint32_t i = find_io(e, output, spec, (size_t)(p - spec));
        if (i == INFR_NONE) continue;
        *file = p + 1;
        return i;
    }
    *file = spec;
    return INFR_NONE;
}

/* The input that a file without a name is for: the only one, or the only one that must be given. */
static uint32_t only_io(const struct infr_engine *e, bool output)
{
    uint32_t n = output ? e->n_outputs : e->n_inputs, needed = INFR_NONE, n_needed = 0;
    if (n == 1) return 0;
    for (uint32_t i = 0; i < n && !output; i++)
        if (!e->inputs[i].optional) needed = i, n_needed++;
    return n_needed == 1 ? needed : INFR_NONE;
}

/* ---- shapes ---- */

/* "1x8", "1,8" or "" */
static bool parse_dims(const char *text, uint32_t *rank, int64_t *dims)
{
    *rank = 0;
    while (*text) {
        char *end;
        if (*rank == INFR_MAX_RANK || !isdigit((unsigned char)*text)) return false;
        dims[*rank] = strtoll(text, &end, 10);
        if (dims[*rank] == INT64_MAX || (*end && *end != 'x' && *end != ',')) return false;
        if (*end && !end[1]) return false;
        ++*rank;
        text = end + (*end != 0);
    }
    return true;
}

/* The --shape for an input; *rank is INFR_NONE when there is none. */
static int find_shape(struct cli *c, const struct infr_engine *e, uint32_t input, uint32_t *rank,
                      int64_t *dims)
{
    const char *name = rt_text(e, e->inputs[input].name);
    size_t len = strlen(name);
    *rank = INFR_NONE;
    for (int i = 0; i < c->n_shapes; i++) {
        if (strncmp(c->shapes[i], name, len) || c->shapes[i][len] != ':') continue;
        if (!parse_dims(c->shapes[i] + len + 1, rank, dims))
            return cli_usage("--shape %s: dims are written 1x8", c->shapes[i]);
    }
    return INFR_OK;
}

static int check_shape_names(struct cli *c, const struct infr_engine *e)
{
    for (int i = 0; i < c->n_shapes; i++) {
        bool known = false;
        const char *text = c->shapes[i];
        for (const char *p = strchr(text, ':'); p && !known; p = strchr(p + 1, ':')) {
            size_t len = (size_t)(p - text);
            known = find_io(e, false, text, len) != INFR_NONE;
            for (uint32_t k = 0; k < e->n_symbols && !known; k++)
                known = !strncmp(rt_text(e, e->symbols[k].name), text, len) &&
                        !rt_text(e, e->symbols[k].name)[len];
        }
        if (!known)
            return cli_usage("--shape %s: no input or symbol has this name; expected NAME:DIMS",
                             text);
    }
    return INFR_OK;
}

/* ---- reading ---- */

static int read_bin(struct cli *c, const struct infr_engine *e, uint32_t i,
                    const struct rt_bytes *file, struct infr_tensor *t, struct infr_status *st)
{
    const struct infr_io *io = &e->inputs[i];
    int64_t dims[INFR_MAX_RANK], product = (int64_t)dtype_bytes((enum dtype)io->dtype);
    uint32_t rank, unknown = INFR_NONE;
    int code = find_shape(c, e, i, &rank, dims);
    if (code) return code;
    if (rank == INFR_NONE) { /* by contract; the size of the file gives one unknown dim */
        rank = io->rank;
        for (uint32_t a = 0; a < rank; a++) {
            const struct infr_dim *d = &e->dims[e->pool_u32[io->dims + a]];
            dims[a] = 1;
            if (d->op == INFR_DIM_CONST) {
                dims[a] = d->imm;
                if (d->imm < 0 || __builtin_mul_overflow(product, d->imm, &product)) product = 0;
            } else if (unknown != INFR_NONE) {
                return rt_fail(st, INFR_BAD_INPUT,
                               "several dims are not known; say them with --shape %.100s:DIMS",
                               rt_text(e, io->name));
            } else {
                unknown = a;
            }
        }
        if (unknown != INFR_NONE)
            dims[unknown] = product ? (int64_t)(file->n / (uint64_t)product) : 0;
    }
    code = rt_tensor_alloc(io->dtype, rank, dims, file->n, t, st);
    if (code) return code;
    if (t->bytes != file->n) {
        rt_fail(st, INFR_BAD_INPUT, "it has %zu bytes, the dims need %" PRIu64, file->n, t->bytes);
        rt_tensor_free(t);
        return st->code;
    }
    if (file->n) memcpy(t->data, file->data, file->n);
    return INFR_OK;
}

/* All members whose names are inputs, or the one that goes to input i. */
static int read_npz(const struct infr_engine *e, uint32_t i, const struct rt_bytes *file,
                    struct cli_engine *x, struct infr_status *st)
{
    struct rt_npz z;
    uint32_t found = 0;
    int code = rt_npz_open(file->data, file->n, &z, st);
    for (size_t m = 0; !code && m < z.n_members; m++) {
        uint32_t k = find_io(e, false, z.members[m].name, z.members[m].name_len);
        if (i != INFR_NONE && (k == i || z.n_members == 1)) k = i;
        else if (i != INFR_NONE) continue;
        if (k == INFR_NONE) continue;
        if (x->given[k]) {
            code = rt_fail(st, INFR_BAD_INPUT, "input '%.100s' is given twice",
                           rt_text(e, e->inputs[k].name));
            break;
        }
        code = rt_npz_read(&z, m, (enum dtype)e->inputs[k].dtype, &x->in[k], st);
        x->given[k] = !code;
        found++;
    }
    if (!code && !found)
        code = rt_fail(st, INFR_BAD_INPUT, "none of its members has the name of %s",
                       i == INFR_NONE ? "an input" : "this input");
    rt_npz_close(&z);
    return code;
}

/* Standard input may hold several arrays, one for each "-" in turn. */
struct stream {
    struct rt_bytes bytes;
    size_t at;
    bool open;
};

static int read_stream(struct stream *stream, enum dtype want, struct infr_tensor *t,
                       struct infr_status *st)
{
    size_t used;
    int code = stream->open ? 0 : rt_file_read("-", &stream->bytes, st);
    if (code) return code;
    stream->open = true;
    code = rt_npy_read(stream->bytes.data + stream->at, stream->bytes.n - stream->at, want, t,
                       &used, st);
    if (!code) stream->at += used;
    return code;
}

static int read_file(struct cli *c, struct cli_engine *x, uint32_t i, const char *path,
                     struct stream *stream, struct infr_status *st)
{
    enum file_kind kind = kind_of(path);
    enum dtype want = i == INFR_NONE ? DT_NONE : (enum dtype)x->e->inputs[i].dtype;
    struct rt_bytes file = {0};
    size_t used = 0;
    if (!strcmp(path, "-")) return read_stream(stream, want, &x->in[i], st);
    int code = rt_file_read(path, &file, st);
    if (code) return code;
    switch (kind) {
    case KIND_NPY:
        code = rt_npy_read(file.data, file.n, want, &x->in[i], &used, st);
        if (!code && used != file.n)
            code = rt_fail(st, INFR_BAD_INPUT, "%zu bytes follow the array", file.n - used);
        break;
    case KIND_NPZ: code = read_npz(x->e, i, &file, x, st); break;
    case KIND_PB: code = rt_pb_read(file.data, file.n, &x->in[i], st); break;
    default: code = read_bin(c, x->e, i, &file, &x->in[i], st); break;
    }
    free(file.data);
    return code;
}

static int load_spec(struct cli *c, struct cli_engine *x, char *spec, struct stream *stream)
{
    struct infr_status st = {0};
    char *path;
    uint32_t i = split_spec(x->e, false, spec, &path);
    enum file_kind kind = kind_of(path);
    if (kind == KIND_UNKNOWN) {
        if (strchr(spec, '=') && path == spec)
            return cli_usage("--input %s: this engine has no input of that name; see %s info", spec,
                             c->program);
        return unknown_kind(path);
    }
    if (i == INFR_NONE && strchr(spec, '='))
        return cli_usage("--input %s: this engine has no input of that name; see %s info", spec,
                         c->program);
    if (i == INFR_NONE && kind != KIND_NPZ && (i = only_io(x->e, false)) == INFR_NONE)
        return cli_usage("--input %s: which input? This engine has %u; write NAME=FILE", spec,
                         x->e->n_inputs);
    if (i != INFR_NONE && x->given[i])
        return cli_usage("--input %s: this input is given twice", spec);
    int code = read_file(c, x, i, path, stream, &st);
    if (code && st.code) {
        fflush(stdout);
        fprintf(stderr, "error: %s: %s\n", spec, st.note);
    }
    if (!code && i != INFR_NONE) x->given[i] = true;
    return code;
}

/* ---- inputs that are made up ---- */

/* Records value v of symbol k. */
static int set_symbol(const struct infr_engine *e, uint32_t k, int64_t v, int64_t *sym, bool *known,
                      const char *who)
{
    if (known[k] && sym[k] != v)
        return cli_usage("%s: '%s' would be %" PRId64 ", but it is %" PRId64 " already", who,
                         rt_text(e, e->symbols[k].name), v, sym[k]);
    sym[k] = v;
    known[k] = true;
    return INFR_OK;
}

/* Symbols from dims of input i. */
static int symbols_of(const struct infr_engine *e, uint32_t i, uint32_t rank, const int64_t *dims,
                      int64_t *sym, bool *known)
{
    const struct infr_io *io = &e->inputs[i];
    const char *name = rt_text(e, io->name);
    if (rank != io->rank) return cli_usage("input '%s' has %u dims, not %u", name, io->rank, rank);
    for (uint32_t a = 0; a < rank; a++) {
        const struct infr_dim *d = &e->dims[e->pool_u32[io->dims + a]];
        int code = d->op == INFR_DIM_SYM ? set_symbol(e, d->a, dims[a], sym, known, name) : 0;
        if (code) return code;
    }
    return INFR_OK;
}

/* The smallest size that is something. */
static int64_t example_value(const struct infr_symbol *y)
{
    return y->lo > 0 ? y->lo : y->hi < 1 ? y->hi : 1;
}

static int find_symbols(struct cli *c, struct cli_engine *x, int64_t *sym, bool *known)
{
    const struct infr_engine *e = x->e;
    int64_t dims[INFR_MAX_RANK];
    uint32_t rank;
    int code;
    for (uint32_t k = 0; k < e->n_symbols; k++) {
        const char *name = rt_text(e, e->symbols[k].name);
        size_t len = strlen(name);
        sym[k] = example_value(&e->symbols[k]);
        for (int i = 0; i < c->n_shapes; i++) {
            if (strncmp(c->shapes[i], name, len) || c->shapes[i][len] != ':' ||
                find_io(e, false, name, len) != INFR_NONE)
                continue;
            if (!parse_dims(c->shapes[i] + len + 1, &rank, dims) || rank != 1)
                return cli_usage("--shape %s: a symbol takes one number", c->shapes[i]);
            if ((code = set_symbol(e, k, dims[0], sym, known, c->shapes[i]))) return code;
        }
    }
    for (uint32_t i = 0; i < e->n_inputs; i++)
        if (x->given[i] && x->in[i].rank == e->inputs[i].rank &&
            (code = symbols_of(e, i, x->in[i].rank, x->in[i].dims, sym, known)))
            return code;
    for (uint32_t i = 0; i < e->n_inputs; i++) {
        if ((code = find_shape(c, e, i, &rank, dims))) return code;
        if (rank != INFR_NONE && (code = symbols_of(e, i, rank, dims, sym, known))) return code;
    }
    return INFR_OK;
}

/* What --shape says must be what came out, also for dims that are numbers or expressions. */
static int check_shape(struct cli *c, const struct infr_engine *e, uint32_t i,
                       const struct infr_tensor *t)
{
    int64_t dims[INFR_MAX_RANK];
    uint32_t rank;
    int code = find_shape(c, e, i, &rank, dims);
    if (code || rank == INFR_NONE) return code;
    for (uint32_t a = 0; a < rank; a++)
        if (dims[a] != t->dims[a])
            return cli_usage("--shape: dim %u of input '%s' is %" PRId64 "; expected %" PRId64, a,
                             rt_text(e, e->inputs[i].name), dims[a], t->dims[a]);
    return INFR_OK;
}

static int make_inputs(struct cli *c, struct cli_engine *x, int64_t *sym, bool *known,
                       struct infr_tensor *shapes)
{
    const struct infr_engine *e = x->e;
    struct infr_status st = {0};
    int code = find_symbols(c, x, sym, known);
    if (code) return code;
    if (rt_input_shapes(x->s, sym, shapes, &st)) return cli_error(&st);
    for (uint32_t i = 0; i < e->n_inputs; i++) {
        if (x->given[i] || e->inputs[i].optional) continue;
        if ((code = check_shape(c, e, i, &shapes[i]))) return code;
        if (rt_tensor_alloc(shapes[i].dtype, shapes[i].rank, shapes[i].dims, UINT64_MAX, &x->in[i],
                            &st))
            return cli_error(&st);
        rt_tensor_random(&x->in[i], c->seed, i);
    }
    return INFR_OK;
}

static int make_missing_inputs(struct cli *c, struct cli_engine *x)
{
    int64_t *sym = calloc((size_t)x->e->n_symbols + 1, sizeof *sym);
    bool *known = calloc((size_t)x->e->n_symbols + 1, sizeof *known);
    struct infr_tensor *shapes = calloc((size_t)x->e->n_inputs + 1, sizeof *shapes);
    int code = sym && known && shapes ? make_inputs(c, x, sym, known, shapes) : INFR_ENVIRONMENT;
    free(sym);
    free(known);
    free(shapes);
    return code;
}

static int report_missing(struct cli *c, const struct infr_engine *e, uint32_t missing)
{
    cli_usage("input '%s' is missing", rt_text(e, e->inputs[missing].name));
    fputs("the inputs are:\n", stderr);
    cli_list_inputs(stderr, e);
    fprintf(stderr, "for example:\n  %s %s", c->program, c->command);
    for (uint32_t i = 0; i < e->n_inputs; i++)
        if (!e->inputs[i].optional)
            fprintf(stderr, " --input '%s=FILE%u.npy'", rt_text(e, e->inputs[i].name), i);
    fprintf(stderr, "\n  %s %s --random=1", c->program, c->command);
    for (uint32_t k = 0; k < e->n_symbols; k++)
        if (e->symbols[k].bind_input != INFR_NONE)
            fprintf(stderr, " --shape '%s:%" PRId64 "'", rt_text(e, e->symbols[k].name),
                    example_value(&e->symbols[k]));
    fputc('\n', stderr);
    return INFR_BAD_INPUT;
}

int cli_load_inputs(struct cli *c, struct cli_engine *x, bool make_missing)
{
    struct stream stream = {0};
    for (uint32_t i = 0; i < x->e->n_inputs; i++)
        if (x->e->inputs[i].optional == INFR_IO_STATE)
            return cli_usage("%s is for engines of tensors; this one keeps state ('%s') that only its "
                             "own commands handle: see %s --help",
                             c->command, rt_text(x->e, x->e->inputs[i].name), c->program);
    int code = check_shape_names(c, x->e);
    for (int i = 0; !code && i < c->n_inputs; i++) code = load_spec(c, x, c->inputs[i], &stream);
    free(stream.bytes.data);
    if (code) return code;
    for (uint32_t i = 0; i < x->e->n_inputs; i++) {
        if (x->given[i] || x->e->inputs[i].optional) continue;
        return c->random || make_missing ? make_missing_inputs(c, x) : report_missing(c, x->e, i);
    }
    return INFR_OK;
}

/* ---- writing ---- */

static int write_npz(struct cli_engine *x, FILE *f, struct infr_status *st)
{
    const char **names = calloc((size_t)x->e->n_outputs + 1, sizeof *names);
    if (!names) return rt_fail_memory(st, "names", 0);
    for (uint32_t i = 0; i < x->e->n_outputs; i++) names[i] = rt_text(x->e, x->e->outputs[i].name);
    int code = rt_npz_write(f, x->e->n_outputs, names, x->out, st);
    free(names);
    return code;
}

/* i: output, or INFR_NONE for all into a .npz */
static int write_output(struct cli_engine *x, uint32_t i, const char *path, struct infr_status *st)
{
    struct rt_file file;
    int code = rt_file_create(path, &file, st);
    if (code) return code;
    if (i == INFR_NONE) code = write_npz(x, file.f, st);
    else {
        const struct infr_tensor *t = &x->out[i];
        const char *name = rt_text(x->e, x->e->outputs[i].name);
        switch (kind_of(path)) {
        case KIND_NPY: code = rt_npy_write(file.f, t); break;
        case KIND_NPZ: code = rt_npz_write(file.f, 1, &name, t, st); break;
        case KIND_PB: code = rt_pb_write(file.f, name, t); break;
        default:
            code = !t->bytes || fwrite(t->data, 1, t->bytes, file.f) == t->bytes ? INFR_OK
                                                                                 : INFR_ENVIRONMENT;
            break;
        }
    }
    int closed = rt_file_close(&file, !code, st);
    if (code && !closed) return rt_fail(st, code, "cannot write %.300s", path);
    return closed;
}

/* Which output a spec is for (INFR_NONE: all of them), and where it goes. Prints what is wrong. */
static int output_spec(const struct cli *c, const struct infr_engine *e, char *spec, uint32_t *i,
                       char **path)
{
    *i = split_spec(e, true, spec, path);
    enum file_kind kind = kind_of(*path);
    if (*i == INFR_NONE && strchr(spec, '='))
        return cli_usage("--output %s: this engine has no output of that name; see %s info", spec,
                         c->program);
    if (kind == KIND_UNKNOWN) return unknown_kind(*path);
    if (*i == INFR_NONE && kind != KIND_NPZ && (*i = only_io(e, true)) == INFR_NONE)
        return cli_usage(
            "--output %s: which output? This engine has %u; write NAME=FILE, or a .npz", spec,
            e->n_outputs);
    return INFR_OK;
}

int cli_check_outputs(const struct cli *c, const struct infr_engine *e)
{
    int code = INFR_OK;
    for (int k = 0; !code && k < c->n_outputs; k++) {
        uint32_t i;
        char *path;
        code = output_spec(c, e, c->outputs[k], &i, &path);
    }
    return code;
}

static int store_spec(struct cli *c, struct cli_engine *x, char *spec, bool *to_stdout)
{
    struct infr_status st = {0};
    char *path;
    uint32_t i;
    int code = output_spec(c, x->e, spec, &i, &path);
    if (code) return code;
    if (!strcmp(path, "-")) *to_stdout = true;
    return write_output(x, i, path, &st) ? cli_error(&st) : INFR_OK;
}

int cli_store_outputs(struct cli *c, struct cli_engine *x)
{
    bool to_stdout = false;
    int code = INFR_OK;
    for (int i = 0; !code && i < c->n_outputs; i++)
        code = store_spec(c, x, c->outputs[i], &to_stdout);
    if (code || (c->n_outputs && !c->print)) return code;
    FILE *f = to_stdout ? stderr : stdout; /* the stream stays clean */
    for (uint32_t i = 0; i < x->e->n_outputs; i++) {
        char text[256];
        rt_tensor_text(x->out[i].dtype, x->out[i].rank, x->out[i].dims, text, sizeof text);
        fprintf(f, "%s  %s\n", rt_text(x->e, x->e->outputs[i].name), text);
        rt_tensor_print(f, &x->out[i], c->print ? 1000 : 100);
    }
    return INFR_OK;
}
