// SPDX-License-Identifier: Apache-2.0
/*
 * What libc's reader of the variable TZ needs of sscanf: letters that stand for themselves, %hu and %n. The Makefile gives it this one
 * in place of sscanf, whose conversions, 128-bit floats among them, are 80 KB of every engine that knows the time.
 */
#ifndef INFC_RUNTIME_TEXT_SCAN_H
#define INFC_RUNTIME_TEXT_SCAN_H

#include <stdbool.h>
#include <stddef.h>

/* As sscanf, but 0 where that gives EOF; stops at any other conversion. */
int infr_scan_numbers(const char *text, const char *format, ...);

#endif
