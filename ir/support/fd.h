// SPDX-License-Identifier: Apache-2.0
/* Whole reads and writes on file descriptors: again after a signal or a short count. */
#ifndef INFC_IR_SUPPORT_FD_H
#define INFC_IR_SUPPORT_FD_H

#include <stdbool.h>
#include <stddef.h>

bool fd_read_all(int fd, void *to, size_t n); /* false at an early end, too */
bool fd_write_all(int fd, const void *from, size_t n);

#endif
