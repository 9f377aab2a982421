// SPDX-License-Identifier: Apache-2.0
/* Names of filters and tests, for the compiler; their rows are in jinja_filters.def,
 * jinja_tests.def. */
#ifndef INFC_RUNTIME_TEXT_JINJA_TABLE_H
#define INFC_RUNTIME_TEXT_JINJA_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define JINJA_NO_ROW 0xffffffffu

/* The row of a name, or JINJA_NO_ROW. */
uint32_t jinja_find_filter(const char *name, size_t len_bytes);
uint32_t jinja_find_test(const char *name, size_t len_bytes);

#endif
