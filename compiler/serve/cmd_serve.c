// SPDX-License-Identifier: Apache-2.0
/* `infc serve`: options, then the event loop. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "compiler/serve/front.h"
#include "compiler/serve/serve.h"

enum { MAX_BODY = 64 << 20 };

/* ---- options ---- */

static bool number(const struct options *o, enum option_id id, const char *name, double *out, struct diag_sink *diag)
{
    const char *text = option_value(o, id, NULL);
    char *end;
    if (!text) return true;
    *out = strtod(text, &end);
    if (end != text && !*end && *out >= 0 && *out <= 1e9) return true;
    return diag_report(diag, DIAG_OPTION, NULL, "--%s=%s: expected seconds", name, text);
}

static bool bytes(const char *text, uint64_t *out, struct diag_sink *diag)
{
    static const char units[] = "KMGT";
    char *end;
    if (!text) return true;
    double x = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) x *= (double)(1ull << (10 * (unit - units + 1))), end++;
    if (end == text || *end || !(x >= 1) || x > 1e15) return diag_report(diag, DIAG_OPTION, NULL, "--memory=%s: expected bytes, such as 512M or 16G", text);
    *out = (uint64_t)x;
    return true;
}

static bool take_options(const struct options *o, struct front *f, struct diag_sink *diag)
{
    static const char *const usual[] = {"127.0.0.1:8080"};
    struct server_options *s = &f->s.o;
    int64_t queue;
    f->wait_s = 60;
    if (!number(o, OPT_IDLE, "idle", &f->idle_s, diag) || !number(o, OPT_WAIT, "wait", &f->wait_s, diag) ||
        !number(o, OPT_DRAIN, "drain", &s->drain_s, diag) || !bytes(option_value(o, OPT_MEMORY, NULL), &f->memory, diag) ||
        !option_int(o, OPT_QUEUE, 1, 1 << 20, 1024, &queue, diag))
        return false;
    s->max_queue = (uint32_t)queue;
    s->listen = option_given(o, OPT_LISTEN) ? o->values[OPT_LISTEN].v : usual;
    s->n_listen = option_given(o, OPT_LISTEN) ? o->values[OPT_LISTEN].n : 1;
    s->origins = o->values[OPT_CORS].v, s->n_origins = o->values[OPT_CORS].n;
    s->key_path = option_value(o, OPT_API_KEYS, NULL);
    s->log_path = option_value(o, OPT_LOG, NULL);
    s->model_name = "infc serve";
    /* engines bound bodies, too, and keep streams alive */
    s->http = (struct http_options){.max_body = MAX_BODY, .ping_s = 1e9};
    return true;
}

/* ---- the server ---- */

/* Once, when the event loop is there. */
static void on_wake(struct server *s)
{
    uint64_t x;
    if (read(s->wake_fd, &x, sizeof x) != sizeof x) return;
    if (engines_watch((struct front *)(void *)s)) return;
    cli_usage("no memory for the server");
    kill(getpid(), SIGTERM);
}

static void on_reload(struct server *s)
{
    struct diag_sink diag;
    diag_init(&diag);
    if (!list_read((struct front *)(void *)s, &diag)) {
        diag_print_text(&diag, stderr);
        fprintf(stderr, "the list of engines stays as it was\n");
    }
    diag_deinit(&diag);
}

static void on_drain(struct server *s) { engines_unwatch((struct front *)(void *)s); }

static int run(struct front *f)
{
    int code = 3;
    f->s.routes = front_routes, f->s.n_routes = n_front_routes;
    f->s.on_wake = on_wake, f->s.drain = on_drain, f->s.reload = on_reload, f->s.more_metrics = front_metrics;
    f->s.wake_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->s.wake_fd >= 0 && engines_open(f)) code = server_run(&f->s);
    else keys_unmap(&f->s);
    engines_close(f);
    if (f->s.wake_fd >= 0) close(f->s.wake_fd);
    return code;
}

int cmd_serve(const struct options *o, struct diag_sink *diag)
{
    struct front *f = calloc(1, sizeof *f);
    int code = 2;
    if (f) f->engines = calloc(MAX_ENGINES, sizeof *f->engines);
    if (!f || !f->engines) diag_report(diag, DIAG_ENVIRONMENT, NULL, "no memory");
    else if (o->args.n != 1) diag_report(diag, DIAG_OPTION, NULL, "infc serve takes one folder of engines, or one file that lists them");
    else if (take_options(o, f, diag)) {
        f->from = o->args.v[0], f->engine_args = option_value(o, OPT_ENGINE_ARGS, "");
        f->usual_name = option_value(o, OPT_DEFAULT_MODEL, NULL);
        if (list_read(f, diag)) code = run(f);
    }
    if (f && f->engines) list_free(f);
    if (f) free(f->engines);
    free(f);
    return code;
}
