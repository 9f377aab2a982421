// SPDX-License-Identifier: Apache-2.0
/* /openapi.json, from the tables that the server itself goes by: routes and fields. */
#include <string.h>

#include "runtime/serve/api.h"

static const struct {
    const char *path;
    unsigned endpoint;
} fields_of[] = {{"/v1/completions", API_COMPLETIONS},   {"/v1/chat/completions", API_CHAT},
                 {"/apply-template", API_CHAT},          {"/completion", API_LLAMA},
                 {"/completions", API_LLAMA},            {"/infill", API_LLAMA},
                 {"/v1/messages", API_MESSAGES},         {"/v1/messages/count_tokens", API_MESSAGES},
                 {"/v1/responses", API_RESPONSES}};

static void json_body(struct json *j, const char *path)
{
    unsigned endpoint = 0;
    for (size_t i = 0; i < sizeof fields_of / sizeof *fields_of; i++)
        if (!strcmp(path, fields_of[i].path)) endpoint = fields_of[i].endpoint;
    json_open(j, "requestBody", '{');
    json_bool(j, "required", true);
    json_open(j, "content", '{');
    json_open(j, "application/json", '{');
    json_open(j, "schema", '{');
    json_string(j, "type", "object");
    if (endpoint) {
        json_open(j, "properties", '{');
        api_json_fields(j, endpoint);
        json_close(j, '}');
        json_bool(j, "additionalProperties", false);
    }
    json_close(j, '}');
    json_close(j, '}');
    json_close(j, '}');
    json_close(j, '}');
}

static void json_response(struct json *j, const char *status, const char *text)
{
    json_open(j, status, '{');
    json_string(j, "description", text);
    json_close(j, '}');
}

static void json_operation(struct json *j, const struct api_route *r)
{
    char method[8];
    size_t n = strlen(r->method);
    for (size_t i = 0; i <= n && n < sizeof method; i++)
        method[i] = (char)(r->method[i] >= 'A' && r->method[i] <= 'Z' ? r->method[i] + 32
                                                                     : r->method[i]);
    json_open(j, method, '{');
    json_string(j, "summary", r->summary);
    if (strchr(r->path, '*')) {
        json_open(j, "parameters", '[');
        json_open(j, NULL, '{');
        json_string(j, "name", "name");
        json_string(j, "in", "path");
        json_bool(j, "required", true);
        json_open(j, "schema", '{');
        json_string(j, "type", "string");
        json_close(j, '}');
        json_close(j, '}');
        json_close(j, ']');
    }
    if (!strcmp(r->method, "POST")) json_body(j, r->path);
    json_open(j, "responses", '{');
    json_response(j, "200", "the answer");
    if (!strcmp(r->method, "POST")) json_response(j, "400", "an error that names the field");
    if (!r->open) json_response(j, "401", "no key, or an unknown one");
    json_close(j, '}');
    json_close(j, '}');
}

/* A star is {name}. */
static void open_path(struct json *j, const char *path)
{
    char text[80];
    const char *star = strchr(path, '*');
    snprintf(text, sizeof text, "%.*s%s", star ? (int)(star - path) : (int)strlen(path), path,
             star ? "{name}" : "");
    json_open(j, text, '{');
}

void api_openapi(struct server *s, struct http_conn *c)
{
    struct json *j = server_json(s);
    json_open(j, NULL, '{');
    json_string(j, "openapi", "3.1.0");
    json_open(j, "info", '{');
    json_string(j, "title", s->o.model_name);
    json_string(j, "version", rt_text(s->x.e, s->x.e->h.compiler_version));
    json_close(j, '}');
    json_open(j, "paths", '{');
    for (size_t i = 0; i < s->n_routes; i++) {
        bool first = true; /* routes of one path are one entry */
        for (size_t k = 0; k < i; k++) first = first && strcmp(s->routes[k].path, s->routes[i].path);
        if (!first) continue;
        open_path(j, s->routes[i].path);
        for (size_t k = i; k < s->n_routes; k++)
            if (!strcmp(s->routes[k].path, s->routes[i].path)) json_operation(j, &s->routes[k]);
        json_close(j, '}');
    }
    json_close(j, '}');
    json_close(j, '}');
    server_reply_json(c, 200);
}
