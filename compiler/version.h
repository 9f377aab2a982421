// SPDX-License-Identifier: Apache-2.0
#ifndef INFC_COMPILER_VERSION_H
#define INFC_COMPILER_VERSION_H

#define INFC_VERSION "0.1.0"

#endif
