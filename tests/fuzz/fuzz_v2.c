// SPDX-License-Identifier: Apache-2.0
/*
 * A server of tensors and its connections. The first byte says how the rest is sent: 0: as the bytes of a connection, with whatever
 * requests and framing they are; else as the body of a request to /infer, of which the second and third byte say how long the JSON is
 * (the others are binary tensors).
 */
#define _GNU_SOURCE
#include "tests/fuzz/server.h"

#include "runtime/serve/tensors.h"
#include "tests/unit/test_rt_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct api_route routes[] = {
    {"GET", "/health", api_health, true, ""},
    {"GET", "/metrics", api_metrics, false, ""},
    {"GET", "/v2", api_v2_server, false, ""},
    {"GET", "/v2/models/*", api_v2_model, false, ""},
    {"POST", "/v2/models/*", api_v2_infer, false, ""},
};

static void wake(struct server *s)
{
    struct tensor_job *j;
    while ((j = tensor_take(s->tensors))) api_v2_done(j);
}

static void drain(struct server *s) { tensor_drain(s->tensors); }

/* The same for every input. */
static struct infr_engine *engine(void)
{
    static struct infr_engine *e;
    static struct test_plan plan;
    struct infr_options one = {.threads = 1};
    struct infr_image image = {.plan = &plan, .plan_bytes = sizeof plan, .kernels = (const void *)tp_table, .weights = tp_weights,
                               .weights_bytes = sizeof tp_weights};
    if (e) return e;
    tp_init(&plan);
    if (infr_engine_open(&image, &one, &e, NULL)) abort();
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct server s;
    struct client c = {.hangs_up = true};
    char header[64] = "", *text = NULL;
    if (size < 3 || size > 1 << 16) return 0;
    s = (struct server){.o = {.model_name = "m", .max_queue = 4}, .routes = routes, .n_routes = sizeof routes / sizeof *routes};
    s.x.e = engine();
    if (tensor_worker_create(s.x.e, s.o.max_queue, &s.tensors, NULL)) exit(3);
    s.wake_fd = tensor_wake_fd(s.tensors), s.on_wake = wake, s.drain = drain;
    if (data[0]) {
        size_t json = data[1] | (size_t)data[2] << 8;
        if (data[0] & 1) snprintf(header, sizeof header, "Inference-Header-Content-Length: %zu\r\n", json < size - 3 ? json : size - 3);
        c.in = text = request_of("/v2/models/m/infer", header, data + 3, size - 3, &c.n);
        c.hangs_up = false;
    } else {
        c.in = (const char *)data + 1, c.n = size - 1;
    }
    serve_client(&s, &c, data[0]);
    tensor_worker_destroy(s.tensors);
    free(text);
    return 0;
}
