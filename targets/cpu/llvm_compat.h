// SPDX-License-Identifier: Apache-2.0
/*
 * The only place that knows how LLVM's versions differ (19 to 22 are supported):
 *   22  masked.load/store/gather/scatter lose their i32 alignment operand (it becomes a parameter attribute);
 *       vpdpbusd takes byte vectors instead of dword vectors.
 * The checks look at the declaration that the library itself gives, so that no version number is needed.
 */
#ifndef INFC_TARGETS_CPU_LLVM_COMPAT_H
#define INFC_TARGETS_CPU_LLVM_COMPAT_H

#include <llvm-c/Core.h>
#include <llvm/Config/llvm-config.h>
#include <string.h>

#if LLVM_VERSION_MAJOR < 19 || LLVM_VERSION_MAJOR > 22
#error "infc supports LLVM 19 to 22"
#endif

/* Declares the intrinsic for the overloaded types; NULL when this LLVM does not have it. */
static inline LLVMValueRef llvm_intrinsic(LLVMModuleRef m, const char *name, LLVMTypeRef *types, size_t n)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    return id ? LLVMGetIntrinsicDeclaration(m, id, types, n) : NULL;
}

static inline void llvm_align_param(LLVMContextRef c, LLVMValueRef call, unsigned index, unsigned align)
{
    unsigned kind = LLVMGetEnumAttributeKindForName("align", 5);
    LLVMAddCallSiteAttribute(call, index, LLVMCreateEnumAttribute(c, kind, align));
}

static inline LLVMValueRef llvm_i32_align(LLVMContextRef c, unsigned align)
{
    return LLVMConstInt(LLVMInt32TypeInContext(c), align, 0);
}

/* masked.load or masked.gather: (pointer(s)[, align], mask, passthrough). */
static inline LLVMValueRef llvm_masked_read(LLVMContextRef c, LLVMBuilderRef b, LLVMValueRef fn, LLVMValueRef p,
                                            LLVMValueRef mask, LLVMValueRef pass, unsigned align)
{
    LLVMTypeRef type = LLVMGlobalGetValueType(fn);
    if (LLVMCountParams(fn) == 4) {
        LLVMValueRef args[4] = {p, llvm_i32_align(c, align), mask, pass};
        return LLVMBuildCall2(b, type, fn, args, 4, "");
    }
    LLVMValueRef args[3] = {p, mask, pass};
    LLVMValueRef call = LLVMBuildCall2(b, type, fn, args, 3, "");
    llvm_align_param(c, call, 1, align);
    return call;
}

/* masked.store or masked.scatter: (value, pointer(s)[, align], mask). */
static inline LLVMValueRef llvm_masked_write(LLVMContextRef c, LLVMBuilderRef b, LLVMValueRef fn, LLVMValueRef v,
                                             LLVMValueRef p, LLVMValueRef mask, unsigned align)
{
    LLVMTypeRef type = LLVMGlobalGetValueType(fn);
    if (LLVMCountParams(fn) == 4) {
        LLVMValueRef args[4] = {v, p, llvm_i32_align(c, align), mask};
        return LLVMBuildCall2(b, type, fn, args, 4, "");
    }
    LLVMValueRef args[3] = {v, p, mask};
    LLVMValueRef call = LLVMBuildCall2(b, type, fn, args, 3, "");
    llvm_align_param(c, call, 2, align);
    return call;
}

/* acc + four-way dot products of unsigned and signed bytes; u and s are given as dword vectors. */
static inline LLVMValueRef llvm_vpdpbusd_512(LLVMModuleRef m, LLVMBuilderRef b, LLVMValueRef acc, LLVMValueRef u,
                                             LLVMValueRef s)
{
    LLVMValueRef fn = llvm_intrinsic(m, "llvm.x86.avx512.vpdpbusd.512", NULL, 0);
    LLVMTypeRef type = LLVMGlobalGetValueType(fn), params[3];
    LLVMGetParamTypes(type, params);
    LLVMValueRef args[3] = {acc, LLVMBuildBitCast(b, u, params[1], ""), LLVMBuildBitCast(b, s, params[2], "")};
    return LLVMBuildCall2(b, type, fn, args, 3, "");
}

/* acc (<16 x i32>) + sums of two neighbouring products of signed words. */
static inline LLVMValueRef llvm_vpdpwssd_512(LLVMModuleRef m, LLVMBuilderRef b, LLVMValueRef acc, LLVMValueRef x,
                                             LLVMValueRef y)
{
    LLVMValueRef fn = llvm_intrinsic(m, "llvm.x86.avx512.vpdpwssd.512", NULL, 0);
    LLVMTypeRef type = LLVMGlobalGetValueType(fn), params[3];
    LLVMGetParamTypes(type, params);
    LLVMValueRef args[3] = {acc, LLVMBuildBitCast(b, x, params[1], ""), LLVMBuildBitCast(b, y, params[2], "")};
    return LLVMBuildCall2(b, type, fn, args, 3, "");
}

#endif
