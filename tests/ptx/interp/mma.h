// SPDX-License-Identifier: Apache-2.0
/* Elements of tensor instructions, shared by mma.sync, wmma and wgmma. */
#ifndef INFC_TESTS_PTX_INTERP_MMA_H
#define INFC_TESTS_PTX_INTERP_MMA_H

#include "tests/ptx/interp/machine.h"

unsigned ptx_element_bits(unsigned type);
float ptx_element_float(unsigned type, uint32_t bits);
int32_t ptx_element_int(unsigned type, uint32_t bits);
static inline bool ptx_element_is_int(unsigned type)
{
    return type == PTX_S8 || type == PTX_U8 || type == PTX_S4 || type == PTX_U4 || type == PTX_B1;
}

#endif
