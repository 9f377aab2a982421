// SPDX-License-Identifier: Apache-2.0
/*
 * `serve` of engines that take and give tensors. They have it when they were built with
 * `infc build --serve`: the compiler's data object then refers to infr_serve_commands.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/serve/api.h"
#include "runtime/serve/tensors.h"

static const struct api_route routes[] = {
    {"GET", "/health", api_health, true, "200 while the server runs"},
    {"GET", "/live", api_live, true, "200 while the process runs"},
    {"GET", "/ready", api_ready, true, "200 while requests are accepted, else 503"},
    {"GET", "/version", api_version, false, "versions of compiler and engine"},
    {"GET", "/metrics", api_metrics, false, "counters for Prometheus"},
    {"GET", "/v2", api_v2_server, false, "what the server is"},
    {"GET", "/v2/health/live", api_v2_live, true, "200 while the process runs"},
    {"GET", "/v2/health/ready", api_v2_ready, true, "200 while requests are accepted, else 503"},
    {"GET", "/v2/models/*", api_v2_model, false, "the model's inputs and outputs; /ready"},
    {"POST", "/v2/models/*", api_v2_infer, false, "/infer: tensors in, tensors out"},
};

static void wake(struct server *s)
{
    struct tensor_job *j;
    while ((j = tensor_take(s->tensors))) api_v2_done(j);
}

static void drain(struct server *s) { tensor_drain(s->tensors); }

enum kind { TEXT, LISTEN, INT, BYTES, SECONDS, HELP };

struct args {
    struct server *s;
    struct infr_options engine;
    const char *listen[MAX_LISTENERS];
};

static const struct option_row {
    const char *name, *argument;
    enum kind kind;
    size_t at;
    long hi;
    const char *text;
} options[] = {
    {"--listen", "ADDRESS", LISTEN, 0, 0,
     "127.0.0.1:8080, [::1]:8080, localhost:8080 or unix:PATH; may be repeated [127.0.0.1:8080]"},
    {"--model-name", "NAME", TEXT, offsetof(struct server, o.model_name), 0,
     "what clients call the model [its own name]"},
    {"--queue", "N", INT, offsetof(struct server, o.max_queue), 1 << 20,
     "requests that may wait; more are refused with 429 [256]"},
    {"--drain", "S", SECONDS, offsetof(struct server, o.drain_s), 0,
     "seconds that SIGTERM leaves to requests; 0: any [0]"},
    {"--max-body", "MIB", BYTES, offsetof(struct server, o.http.max_body), 1 << 14,
     "of a request, in MiB [16]"},
    {"--api-key-file", "FILE", TEXT, offsetof(struct server, o.key_path), 0,
     "keys, one a line, of which a request must name one; read again on SIGHUP"},
    {"--log", "FILE", TEXT, offsetof(struct server, o.log_path), 0,
     "a line of JSON for every request; - is standard error"},
    {"--threads", "N", INT, 0, RT_MAX_WORKERS, "workers [as many as affinity and cgroup allow]"},
    {"--isa", "LEVEL", TEXT, 0, 0, "v2, v3, v4, vnni or amx [the highest possible]"},
    {"--help", NULL, HELP, 0, 0, "this text"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static bool apply(struct args *a, const struct option_row *o, const char *value)
{
    void *field = (char *)a->s + o->at;
    char *end;
    errno = 0;
    long n = o->kind == INT || o->kind == BYTES ? strtol(value, &end, 10) : 0;
    switch (o->kind) {
    case LISTEN:
        if (a->s->o.n_listen == MAX_LISTENERS) return false;
        a->listen[a->s->o.n_listen++] = value;
        return true;
    case TEXT:
        if (o->at) *(const char **)field = value;
        else a->engine.isa = value;
        return true;
    case INT:
    case BYTES:
        if (end == value || *end || errno || n < (o->at && o->kind == INT ? 0 : 1) || n > o->hi)
            return false;
        if (o->kind == BYTES) *(uint64_t *)field = (uint64_t)n << 20;
        else if (o->at) *(uint32_t *)field = (uint32_t)n;
        else a->engine.threads = (int)n;
        return true;
    case SECONDS:
        *(double *)field = strtod(value, &end);
        return end != value && !*end && *(double *)field >= 0 && *(double *)field <= 1e6;
    case HELP: break;
    }
    return true;
}

static int help(const char *program)
{
    printf("usage: %s serve [OPTION]...\n\nServes the model over HTTP by the Open Inference protocol "
           "(KServe v2). SIGTERM lets requests\ncome to their end, a second one stops at once.\n\n"
           "options:\n", program);
    for (int i = 0; i < N_OPTIONS; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", options[i].name, options[i].argument ? "=" : "",
                 options[i].argument ? options[i].argument : "");
        printf("  %-24s %s\n", left, options[i].text);
    }
    printf("\nexamples:\n  %s serve\n  %s serve --listen 0.0.0.0:8000 --log -\n", program, program);
    return INFR_OK;
}

/* -1: go on. */
static int parse(struct args *a, int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        size_t n = strcspn(argv[i], "=");
        const char *value = argv[i][n] ? argv[i] + n + 1 : NULL;
        int k = 0;
        while (k < N_OPTIONS && (strlen(options[k].name) != n || memcmp(options[k].name, argv[i], n)))
            k++;
        if (k == N_OPTIONS)
            return cli_usage("serve has no option '%s'; see %s serve --help", argv[i], argv[0]);
        if (options[k].kind == HELP) return help(argv[0]);
        if (!value && i + 1 == argc)
            return cli_usage("%s needs a value: %s=%s", options[k].name, options[k].name,
                             options[k].argument);
        if (!value) value = argv[++i];
        if (!apply(a, &options[k], value))
            return cli_usage("%s: '%s' is not possible; see %s serve --help", options[k].name, value,
                             argv[0]);
    }
    return -1;
}

static int serve(struct args *a)
{
    static const char *const usual[] = {"127.0.0.1:8080"};
    struct server *s = a->s;
    struct infr_status st;
    s->o.listen = s->o.n_listen ? a->listen : usual;
    if (!s->o.n_listen) s->o.n_listen = 1;
    if (infr_engine_open_self(&a->engine, &s->x.e, &st) ||
        tensor_worker_create(s->x.e, s->o.max_queue, &s->tensors, &st))
        return cli_error(&st);
    if (!s->o.model_name) s->o.model_name = rt_text(s->x.e, s->x.e->h.model_name);
    s->routes = routes, s->n_routes = sizeof routes / sizeof *routes;
    s->wake_fd = tensor_wake_fd(s->tensors);
    s->on_wake = wake, s->drain = drain;
    return server_run(s);
}

static int run(int argc, char **argv)
{
    struct args a = {.s = calloc(1, sizeof *a.s)};
    if (!a.s) return cli_usage("no memory for the server"), INFR_ENVIRONMENT;
    a.s->o.max_queue = 256;
    int code = parse(&a, argc, argv);
    if (code < 0) code = serve(&a);
    tensor_worker_destroy(a.s->tensors);
    infr_engine_close(a.s->x.e);
    free(a.s);
    return code;
}

static const struct cli_extra_command rows[] = {{"serve", "an inference server", run}};

extern const struct cli_extra infr_serve_commands;
const struct cli_extra infr_serve_commands = {rows, 1};
