// SPDX-License-Identifier: Apache-2.0
#include "ir/support/diag.h"

#include <stdarg.h>
#include <stdlib.h>

#include "ir/support/str.h"

struct diag_row {
    const char *code;
    enum diag_severity severity;
    const char *summary, *remedy;
};

static const struct diag_row rows[] = {
#define DIAG(id, code, severity, summary, remedy) {code, DIAG_SEV_##severity, summary, remedy},
#include "ir/support/diag.def"
#undef DIAG
};

static const char *const severity_names[] = {"note", "warning", "error", "error", "error"};

void diag_init(struct diag_sink *s)
{
    *s = (struct diag_sink){.limit = 1000};
    arena_init(&s->arena);
}

void diag_deinit(struct diag_sink *s) { arena_deinit(&s->arena); }

static void add(struct diag_sink *s, enum diag_id id, enum diag_severity sev, const char *loc,
                const char *remedy, const char *fmt, va_list ap)
{
    if (sev >= DIAG_SEV_ERROR && s->error_count++ >= s->limit) return;
    char small[512], *text = small;
    va_list again;
    va_copy(again, ap);
    int len = vsnprintf(small, sizeof small, fmt, ap);
    if (len >= (int)sizeof small) {
        text = arena_alloc(&s->arena, (size_t)len + 1);
        vsnprintf(text, (size_t)len + 1, fmt, again);
    } else {
        text = arena_strdup(&s->arena, small);
    }
    va_end(again);
    struct diag d = {id, sev, loc ? arena_strdup(&s->arena, loc) : "", text,
                     remedy ? arena_strdup(&s->arena, remedy) : rows[id].remedy};
    vec_push(&s->arena, &s->items, d);
}

bool diag_report(struct diag_sink *s, enum diag_id id, const char *loc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add(s, id, rows[id].severity, loc, NULL, fmt, ap);
    va_end(ap);
    return false;
}

bool diag_report_remedy(struct diag_sink *s, enum diag_id id, const char *loc, const char *remedy,
                        const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add(s, id, rows[id].severity, loc, remedy, fmt, ap);
    va_end(ap);
    return false;
}

void diag_warn(struct diag_sink *s, enum diag_id id, const char *loc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add(s, id, DIAG_SEV_WARNING, loc, NULL, fmt, ap);
    va_end(ap);
}

int diag_exit_code(const struct diag_sink *s)
{
    for (size_t i = 0; i < s->items.n; i++) {
        if (s->items.v[i].severity == DIAG_SEV_ERROR) return 2;
        if (s->items.v[i].severity == DIAG_SEV_ENVIRONMENT) return 3;
        if (s->items.v[i].severity == DIAG_SEV_GATE) return 4;
    }
    return s->error_count ? 2 : 0;
}

const char *diag_code(enum diag_id id) { return rows[id].code; }
const char *diag_summary(enum diag_id id) { return rows[id].summary; }
const char *diag_remedy(enum diag_id id) { return rows[id].remedy; }

void diag_print_text(const struct diag_sink *s, FILE *out)
{
    for (size_t i = 0; i < s->items.n; i++) {
        const struct diag *d = &s->items.v[i];
        fprintf(out, "%s[%s] %s%s%s\n", severity_names[d->severity], rows[d->id].code, d->loc,
                d->loc[0] ? ": " : "", d->message);
        if (d->remedy && d->remedy[0]) fprintf(out, "  remedy: %s\n", d->remedy);
    }
    if (s->error_count > s->limit)
        fprintf(out, "and %zu further errors\n", s->error_count - s->limit);
}

void diag_print_json(const struct diag_sink *s, FILE *out)
{
    struct strbuf b = {0};
    strbuf_putc(&b, '[');
    for (size_t i = 0; i < s->items.n; i++) {
        const struct diag *d = &s->items.v[i];
        strbuf_printf(&b, "%s\n  {\"code\": \"%s\", \"severity\": \"%s\", \"location\": ", i ? "," : "",
                      rows[d->id].code, severity_names[d->severity]);
        strbuf_put_json(&b, d->loc);
        strbuf_puts(&b, ", \"message\": ");
        strbuf_put_json(&b, d->message);
        strbuf_puts(&b, ", \"remedy\": ");
        strbuf_put_json(&b, d->remedy ? d->remedy : "");
        strbuf_putc(&b, '}');
    }
    strbuf_puts(&b, s->items.n ? "\n]\n" : "]\n");
    fputs(strbuf_get(&b), out);
    strbuf_deinit(&b);
}
