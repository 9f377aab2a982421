// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja_number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool jinja_number_int(const char *text, size_t len, int64_t *out)
{
    bool negative = len && *text == '-';
    uint64_t n = 0, limit = (uint64_t)INT64_MAX + negative;
    size_t i;

    for (i = negative; i < len; i++) {
        unsigned d = (unsigned)(text[i] - '0');

        if (n > (limit - d) / 10)
            return false;
        n = n * 10 + d;
    }
    *out = negative ? (int64_t)(0 - n) : (int64_t)n;
    return true;
}

bool jinja_number_double(const char *text, size_t len, double *out)
{
    const char *point = localeconv()->decimal_point, *dot = memchr(text, '.', len);
    size_t point_len = strlen(point), at = dot ? (size_t)(dot - text) : len;
    char small[128], *buf = small, *end;
    bool ok;

    if (len + point_len + 1 > sizeof(small) && !(buf = malloc(len + point_len + 1)))
        return false;
    memcpy(buf, text, at);
    if (dot) {
        memcpy(buf + at, point, point_len);
        memcpy(buf + at + point_len, dot + 1, len - at - 1);
        len += point_len - 1;
    }
    buf[len] = 0;
    *out = strtod(buf, &end);
    ok = end == buf + len && len > 0;
    if (buf != small)
        free(buf);
    return ok;
}

/* printf may use another decimal sign than '.': whatever is not a digit becomes one. */
static void fix_point(char *s)
{
    char *w = s;
    bool point = false;

    for (; *s; s++) {
        if ((*s >= '0' && *s <= '9') || *s == 'e' || *s == '-' || *s == '+') {
            *w++ = *s;
        } else if (!point) {
            *w++ = '.';
            point = true;
        }
    }
    *w = 0;
}

size_t jinja_float_repr(double f, char out[40])
{
    char buf[64], digits[32];
    const char *p;
    int prec, exp, n = 0, i;
    char *w = out;

    if (isnan(f))
        return (size_t)sprintf(out, "nan");
    if (isinf(f))
        return (size_t)sprintf(out, f < 0 ? "-inf" : "inf");
    /* The fewest digits that read back as the same number; both directions use one locale. */
    for (prec = 0; prec < 17; prec++) {
        snprintf(buf, sizeof(buf), "%.*e", prec, f);
        if (strtod(buf, NULL) == f)
            break;
    }
    fix_point(buf);
    p = buf;
    if (*p == '-')
        *w++ = *p++;
    for (; *p && *p != 'e'; p++)
        if (*p != '.' && n < 31)
            digits[n++] = *p;
    exp = atoi(p + 1);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    if (exp < -4 || exp >= 16) {
        *w++ = digits[0];
        if (n > 1) {
            *w++ = '.';
            memcpy(w, digits + 1, (size_t)n - 1);
            w += n - 1;
        }
        w += sprintf(w, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
    } else if (exp < 0) {
        w += sprintf(w, "0.%.*s", -exp - 1, "000");
        memcpy(w, digits, (size_t)n);
        w += n;
    } else {
        for (i = 0; i <= exp || i < n; i++) {
            if (i == exp + 1)
                *w++ = '.';
            *w++ = i < n ? digits[i] : '0';
        }
        if (n <= exp + 1) {
            *w++ = '.';
            *w++ = '0';
        }
    }
    *w = 0;
    return (size_t)(w - out);
}
