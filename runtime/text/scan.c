// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/scan.h"

#include <stdarg.h>

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Digits behind spaces and a sign, as strtoul takes them and cut to 16 bits; NULL when there are none. */
static const char *take_number(const char *at, unsigned short *out)
{
    while (is_space(*at)) at++;
    bool minus = *at == '-', over = false;
    if (*at == '-' || *at == '+') at++;
    if (*at < '0' || *at > '9') return NULL;
    unsigned long v = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        over = over || __builtin_mul_overflow(v, 10ul, &v);
        over = __builtin_add_overflow(v, (unsigned long)(*at - '0'), &v) || over;
    }
    *out = (unsigned short)(over ? -1ul : minus ? -v : v);
    return at;
}

int infr_scan_numbers(const char *text, const char *format, ...)
{
    const char *at = text;
    int n = 0;
    va_list args;
    va_start(args, format);
    for (; *format; format++) {
        if (*format != '%') {
            if (*at != *format) break;
            at++;
        } else if (format[1] == 'n') {
            format++;
            *va_arg(args, int *) = (int)(at - text);
        } else if (format[1] == 'h' && format[2] == 'u') {
            format += 2;
            const char *end = take_number(at, va_arg(args, unsigned short *));
            if (!end) break;
            at = end;
            n++;
        } else {
            break;
        }
    }
    va_end(args);
    return n;
}
