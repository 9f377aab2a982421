// SPDX-License-Identifier: Apache-2.0
/* Pages with pictures: HTML without any script, drawings as SVG inside it. Text is escaped here and nowhere else. */
#ifndef INFC_COMPILER_SVG_H
#define INFC_COMPILER_SVG_H

#include "ir/support/str.h"

void html_begin(struct strbuf *s, const char *title);
void html_end(struct strbuf *s);
/* Text with <, >, & and quotes escaped; control characters become blanks. */
void html_text(struct strbuf *s, const char *text);

/* A drawing of w by h, scaled to the page's width. */
void svg_begin(struct strbuf *s, double w, double h, const char *title);
void svg_end(struct strbuf *s);
/* cls: a class of the page's style (s0 .. s7 are colours of series, "axis", "grid", "faint", "bad"); tip: NULL or what hovering shows. */
void svg_rect(struct strbuf *s, double x, double y, double w, double h, const char *cls, const char *tip);
void svg_line(struct strbuf *s, double x1, double y1, double x2, double y2, const char *cls);
void svg_circle(struct strbuf *s, double x, double y, double r, const char *cls, const char *tip);
/* anchor: "start", "middle" or "end". */
void svg_text(struct strbuf *s, double x, double y, const char *anchor, const char *text);

/* A round step so that about `wanted` ticks fall into a range. */
double svg_tick_step(double range, int wanted);

#endif
