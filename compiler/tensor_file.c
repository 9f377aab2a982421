// SPDX-License-Identifier: Apache-2.0
#include "compiler/tensor_file.h"

#include <string.h>

#include "compiler/import/import.h"
#include "compiler/npy.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

bool tensor_file_read(const char *path, struct ir_tensor *out, struct arena *arena, struct diag_sink *diag)
{
    if (ends_with(path, ".npy")) return npy_read(path, out, arena, diag);
    if (!ends_with(path, ".pb"))
        return diag_report(diag, DIAG_OPTION, path, "its ending says nothing; .npy and .pb files can be read");
    struct import_value v;
    if (!import_tensor_pb(path, arena, &v, diag)) return false;
    *out = (struct ir_tensor){.dtype = v.dtype, .rank = v.rank, .data = (void *)(uintptr_t)v.data, .n_bytes = v.n_bytes};
    memcpy(out->dims, v.dims, sizeof v.dims);
    return true;
}
