// SPDX-License-Identifier: Apache-2.0
/*
 * The x86-64 target: its instruction levels. Levels are the psABI's (v2, v3, v4) and two above them; features are
 * always spelled out, so that code depends on the level alone and never on the machine that compiles.
 */
#include "targets/cpu/codegen.h"
#include "targets/target.h"

#define F_V2 "+cx8,+cmov,+fxsr,+mmx,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+cx16,+sahf,+popcnt"
#define F_V3 F_V2 ",+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
#define F_V4 F_V3 ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
/* fast-dpwssd: else the code generator takes it apart again, to shorten chains that are not the bottleneck. */
#define F_VNNI F_V4 ",+avx512vnni,+avx512bf16,+fast-dpwssd"
#define F_AMX F_VNNI ",+amx-tile,+amx-int8,+amx-bf16"

static const struct target_level levels[] = {
    {.name = "v2", .isa = INFR_ISA_V2, .features = F_V2, .vector_bytes = 16, .n_vector_regs = 16},
    {.name = "v3", .isa = INFR_ISA_V3, .features = F_V3, .vector_bytes = 32, .n_vector_regs = 16, .has_fma = true},
    {.name = "v4", .isa = INFR_ISA_V4, .features = F_V4, .vector_bytes = 64, .n_vector_regs = 32, .has_fma = true,
     .has_masks = true},
    {.name = "vnni", .isa = INFR_ISA_VNNI, .features = F_VNNI, .vector_bytes = 64, .n_vector_regs = 32,
     .has_fma = true, .has_masks = true, .has_vnni = true, .has_bf16 = true},
    {.name = "amx", .isa = INFR_ISA_AMX, .features = F_AMX, .vector_bytes = 64, .n_vector_regs = 32,
     .has_fma = true, .has_masks = true, .has_vnni = true, .has_bf16 = true, .has_amx = true},
};

const struct target target_x86_64 = {
    .name = "x86-64",
    .doc = "64-bit x86 CPUs on Linux; levels v2 (SSE4.2), v3 (AVX2, FMA), v4 (AVX-512), vnni, amx",
    .levels = levels,
    .n_levels = (int)ARRAY_LEN(levels),
    .toolchain = cpu_toolchain,
    .emit = cpu_emit,
    .emit_text = cpu_emit_text,
    .emit_data = cpu_emit_data,
};
