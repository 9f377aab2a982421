// SPDX-License-Identifier: Apache-2.0
/* What the front process answers itself: health, the list of models, counters. */
#include <string.h>

#include "compiler/serve/front.h"
#include "compiler/version.h"

static struct front *front_of(struct server *s) { return (struct front *)(void *)s; }

static void own_version(struct server *s, struct http_conn *c)
{
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_string(j, "version", INFC_VERSION);
    json_close(j, '}');
    server_reply_json(c, 200);
}

static void json_engine(struct json *j, const struct front *f, const struct front_engine *e)
{
    json_open(j, NULL, '{');
    json_string(j, "id", e->name);
    json_string(j, "object", "model");
    json_int(j, "created", (int64_t)f->s.started);
    json_string(j, "owned_by", "infc");
    json_string(j, "state", engine_state_name(e));
    json_close(j, '}');
}

static void own_models(struct server *s, struct http_conn *c)
{
    const struct front *f = front_of(s);
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_string(j, "object", "list");
    json_open(j, "data", '[');
    for (uint32_t i = 0; i < f->n_engines; i++)
        if (!f->engines[i].gone) json_engine(j, f, &f->engines[i]);
    json_close(j, ']');
    json_close(j, '}');
    server_reply_json(c, 200);
}

static void own_model(struct server *s, struct http_conn *c)
{
    static const char prefix[] = "/v1/models/";
    struct front *f = front_of(s);
    size_t n = sizeof prefix - 1;
    const struct front_engine *e = front_find(f, c->head.path.p + n, c->head.path.n - n);
    if (!e) {
        server_error(c, 404, "model", "there is no such model here; GET /v1/models lists them");
        return;
    }
    json_engine(server_json(s), f, e);
    server_reply_json(c, 200);
}

/* The Open Inference protocol's view of the server. */
static void own_v2(struct server *s, struct http_conn *c)
{
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_string(j, "name", "infc serve");
    json_string(j, "version", INFC_VERSION);
    json_open(j, "extensions", '[');
    json_string(j, NULL, "binary_tensor_data");
    json_close(j, ']');
    json_close(j, '}');
    server_reply_json(c, 200);
}

static void own_metrics(struct server *s, struct http_conn *c)
{
    if (c->head.query.n) front_relay(s, c); /* ?model=NAME: an engine's */
    else api_metrics(s, c);
}

const struct api_route front_routes[] = {
    {"GET", "/health", api_health, true, "200 while the process runs"},
    {"GET", "/live", api_live, true, "the same"},
    {"GET", "/ready", api_ready, true, "200 while requests are accepted, else 503"},
    {"GET", "/version", own_version, false, "the version of infc"},
    {"GET", "/v1/models", own_models, false, "the models"},
    {"GET", "/models", own_models, false, "the same"},
    {"GET", "/v1/models/*", own_model, false, "a model, by its name"},
    {"GET", "/v2", own_v2, false, "what the server is"},
    {"GET", "/v2/health/live", api_live, true, "200 while the process runs"},
    {"GET", "/v2/health/ready", api_ready, true, "200 while requests are accepted, else 503"},
    {"GET", "/metrics", own_metrics, false, "counters of this process; ?model=NAME: of an engine"},
    {"GET", "/*", front_relay, false, "an engine's: ?model=NAME, or /v2/models/NAME"},
    {"POST", "/*", front_relay, false, "an engine's: the body's model, ?model=NAME, or /v2/models/NAME"},
};
const size_t n_front_routes = sizeof front_routes / sizeof *front_routes;

void front_metrics(struct server *s, FILE *out)
{
    static const struct {
        const char *name, *type, *help;
    } rows[] = {
        {"infc_engine_up", "gauge", "1: the engine's process runs and is ready."},
        {"infc_engine_starts_total", "counter", "Processes of the engine that were started."},
        {"infc_engine_crashes_total", "counter", "Processes that ended without having been told to."},
        {"infc_engine_requests_total", "counter", "Requests passed on to the engine."},
        {"infc_engine_requests_running", "gauge", "Requests that the engine has."},
        {"infc_engine_requests_held", "gauge", "Requests that wait for the engine to be there."},
        {"infc_engine_memory_bytes", "gauge", "Resident memory of the process, the most that was seen."},
    };
    const struct front *f = front_of(s);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", rows[k].name, rows[k].help, rows[k].name, rows[k].type);
        for (uint32_t i = 0; i < f->n_engines; i++) {
            const struct front_engine *e = &f->engines[i];
            if (e->gone) continue;
            const uint64_t values[] = {e->state == ENGINE_RUNNING && e->ready, e->n_starts, e->n_crashes, e->n_requests,
                                       e->n_sent, e->n_held, e->state == ENGINE_STOPPED ? 0 : e->bytes};
            fprintf(out, "%s{model_name=\"%s\"} %llu\n", rows[k].name, e->name, (unsigned long long)values[k]);
        }
    }
}
