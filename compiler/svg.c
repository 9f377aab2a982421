// SPDX-License-Identifier: Apache-2.0
#include "compiler/svg.h"

#include <math.h>

void html_text(struct strbuf *s, const char *text)
{
    for (const char *p = text ? text : ""; *p; p++) {
        switch (*p) {
        case '<': strbuf_puts(s, "&lt;"); break;
        case '>': strbuf_puts(s, "&gt;"); break;
        case '&': strbuf_puts(s, "&amp;"); break;
        case '"': strbuf_puts(s, "&quot;"); break;
        default: strbuf_putc(s, (unsigned char)*p < 32 && *p != '\n' ? ' ' : *p);
        }
    }
}

static const char style[] =
    ":root{color-scheme:light dark;--fg:#1d2330;--bg:#fff;--dim:#667;--grid:#ccd;--bad:#c2410c}"
    "@media(prefers-color-scheme:dark){:root{--fg:#e4e7ee;--bg:#14171f;--dim:#99a;--grid:#343a48;--bad:#fb923c}}"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:72rem;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}"
    "table{border-collapse:collapse;font-size:.86rem;display:block;overflow-x:auto}"
    "td,th{padding:.2rem .7rem;border-bottom:1px solid var(--grid);text-align:left;white-space:nowrap}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.bad,b.bad{color:var(--bad)}"
    "svg{width:100%;height:auto;margin:.5rem 0}svg text{font:11px system-ui,sans-serif;fill:var(--fg)}"
    ".axis{stroke:var(--fg);stroke-width:1}.grid{stroke:var(--grid);stroke-width:.7}.faint{fill:var(--dim);opacity:.25}"
    ".bad{fill:var(--bad);stroke:var(--bad)}"
    ".s0{fill:#4c78a8;stroke:#4c78a8}.s1{fill:#e45756;stroke:#e45756}.s2{fill:#54a24b;stroke:#54a24b}.s3{fill:#b279a2;stroke:#b279a2}"
    ".s4{fill:#f58518;stroke:#f58518}.s5{fill:#72b7b2;stroke:#72b7b2}.s6{fill:#9d755d;stroke:#9d755d}.s7{fill:#79706e;stroke:#79706e}"
    "rect{stroke-width:.4;fill-opacity:.75}circle{stroke-width:0;fill-opacity:.75}";

void html_begin(struct strbuf *s, const char *title)
{
    strbuf_puts(s, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>");
    html_text(s, title);
    strbuf_printf(s, "</title><style>%s</style></head>\n<body><h1>", style);
    html_text(s, title);
    strbuf_puts(s, "</h1>\n");
}

void html_end(struct strbuf *s) { strbuf_puts(s, "</body></html>\n"); }

void svg_begin(struct strbuf *s, double w, double h, const char *title)
{
    strbuf_printf(s, "<svg viewBox=\"0 0 %g %g\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\"><title>", w, h);
    html_text(s, title);
    strbuf_puts(s, "</title>\n");
}

void svg_end(struct strbuf *s) { strbuf_puts(s, "</svg>\n"); }

static void end_shape(struct strbuf *s, const char *name, const char *tip)
{
    if (!tip) {
        strbuf_puts(s, "/>\n");
        return;
    }
    strbuf_puts(s, "><title>");
    html_text(s, tip);
    strbuf_printf(s, "</title></%s>\n", name);
}

void svg_rect(struct strbuf *s, double x, double y, double w, double h, const char *cls, const char *tip)
{
    strbuf_printf(s, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" class=\"%s\"", x, y, w > 0.3 ? w : 0.3, h > 0.3 ? h : 0.3, cls);
    end_shape(s, "rect", tip);
}

void svg_line(struct strbuf *s, double x1, double y1, double x2, double y2, const char *cls)
{
    strbuf_printf(s, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" class=\"%s\"/>\n", x1, y1, x2, y2, cls);
}

void svg_circle(struct strbuf *s, double x, double y, double r, const char *cls, const char *tip)
{
    strbuf_printf(s, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\" class=\"%s\"", x, y, r, cls);
    end_shape(s, "circle", tip);
}

void svg_text(struct strbuf *s, double x, double y, const char *anchor, const char *text)
{
    strbuf_printf(s, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\">", x, y, anchor);
    html_text(s, text);
    strbuf_puts(s, "</text>\n");
}

double svg_tick_step(double range, int wanted)
{
    if (!(range > 0) || wanted < 1) return 1;
    double raw = range / wanted, unit = pow(10, floor(log10(raw))), f = raw / unit;
    return unit * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10);
}
