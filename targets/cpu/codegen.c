// SPDX-License-Identifier: Apache-2.0
/*
 * From a kernel to an object: one LLVM context, module and target machine each, so that kernels compile on any number of
 * threads and an object depends on nothing but the kernel's text and the level.
 *
 * Scheduled kernels (those with MMA tiles) are emitted in the form that needs no LLVM pass; the others get a short
 * pipeline. Measured a kernel: no pass 12 ms, the short pipeline 14 ms, default<O2> 34 ms with code no faster.
 */
#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <stdlib.h>

#include "targets/cpu/codegen.h"
#include "targets/cpu/emit.h"

#define TRIPLE "x86_64-unknown-linux-gnu"
#define SHORT_PIPELINE "early-cse,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),early-cse,dce"

/* LLVM's own process-wide state: registers the target and asks for the register allocator's remarks. */
static pthread_once_t llvm_once = PTHREAD_ONCE_INIT;

static void llvm_start(void)
{
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    static const char *const args[] = {"infc", "-pass-remarks-missed=regalloc"};
    LLVMParseCommandLineOptions(2, args, "");
}

/* The library that runs, which may be newer than the headers. */
void cpu_toolchain(struct strbuf *out)
{
    unsigned major, minor, patch;
    LLVMGetVersion(&major, &minor, &patch);
    strbuf_printf(out, "LLVM %u.%u.%u", major, minor, patch);
}

struct unit {
    LLVMContextRef c;
    LLVMModuleRef m;
    LLVMTargetMachineRef tm;
    struct strbuf error;
    int n_spills;
};

/* "5 spills 120 total spill cost ... generated in loop": the first number counts. */
static void on_diagnostic(LLVMDiagnosticInfoRef info, void *context)
{
    struct unit *u = context;
    char *text = LLVMGetDiagInfoDescription(info);
    if (LLVMGetDiagInfoSeverity(info) == LLVMDSError) {
        strbuf_puts(&u->error, text);
    } else {
        const char *spills = strstr(text, " spills");
        if (spills && strstr(text, "in loop")) {
            const char *p = spills;
            while (p > text && p[-1] >= '0' && p[-1] <= '9') p--;
            u->n_spills += atoi(p);
        }
    }
    LLVMDisposeMessage(text);
}

static void unit_deinit(struct unit *u)
{
    if (u->m) LLVMDisposeModule(u->m);
    if (u->c) LLVMContextDispose(u->c);
    if (u->tm) LLVMDisposeTargetMachine(u->tm);
    strbuf_deinit(&u->error);
}

static bool unit_init(struct unit *u, const struct target_level *level)
{
    LLVMTargetRef target;
    char *error = NULL;
    *u = (struct unit){0};
    pthread_once(&llvm_once, llvm_start);
    if (LLVMGetTargetFromTriple(TRIPLE, &target, &error)) {
        strbuf_puts(&u->error, error);
        LLVMDisposeMessage(error);
        return false;
    }
    u->tm = LLVMCreateTargetMachine(target, TRIPLE, "x86-64", level ? level->features : "", LLVMCodeGenLevelDefault,
                                    LLVMRelocStatic, LLVMCodeModelDefault);
    u->c = LLVMContextCreate();
    LLVMContextSetDiagnosticHandler(u->c, on_diagnostic, u);
    u->m = LLVMModuleCreateWithNameInContext("k", u->c);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(u->tm);
    LLVMSetModuleDataLayout(u->m, layout);
    LLVMDisposeTargetData(layout);
    LLVMSetTarget(u->m, TRIPLE);
    return true;
}

static bool take_llvm_error(struct unit *u, char *error)
{
    if (error) {
        strbuf_puts(&u->error, error);
        LLVMDisposeMessage(error);
    }
    return false;
}

static bool has_mma(const struct lp_block *b)
{
    for (const struct lp_op *op = b->first; op; op = op->next) {
        if (op->code == LP_OP_MMA) return true;
        for (int i = 0; i < op->n_regions; i++)
            if (has_mma(op->regions[i])) return true;
    }
    return false;
}

static bool run_passes(struct unit *u, const char *pipeline)
{
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef e = LLVMRunPasses(u->m, pipeline, u->tm, options);
    LLVMDisposePassBuilderOptions(options);
    if (!e) return true;
    char *text = LLVMGetErrorMessage(e);
    strbuf_puts(&u->error, text);
    LLVMDisposeErrorMessage(text);
    return false;
}

/* The kernel's module, ready for code generation. */
static bool build_module(struct unit *u, const struct target_level *level, struct lp_kernel *k, const char *symbol,
                         size_t *scratch_bytes, struct diag_sink *diag)
{
    lp_expand_math(k);
    lp_vectorize_as(k, level->vector_bytes, level->has_masks);
    lp_simplify(k);
    struct cg g = {.level = level, .k = k, .diag = diag, .c = u->c, .m = u->m};
    arena_init(&g.arena);
    g.b = LLVMCreateBuilderInContext(u->c);
    bool ok = cg_kernel(&g, symbol);
    *scratch_bytes = g.scratch_bytes;
    LLVMDisposeBuilder(g.b);
    arena_deinit(&g.arena);
    if (!ok) return false;
    char *error = NULL;
    if (LLVMVerifyModule(u->m, LLVMReturnStatusAction, &error)) {
        take_llvm_error(u, error);
        return diag_report(diag, DIAG_CODEGEN, k->loc, "kernel %s: LLVM refuses its code: %s", k->name, strbuf_get(&u->error));
    }
    LLVMDisposeMessage(error);
    if (!has_mma(k->body) && !run_passes(u, SHORT_PIPELINE))
        return diag_report(diag, DIAG_CODEGEN, k->loc, "kernel %s: %s", k->name, strbuf_get(&u->error));
    return true;
}

/* Runs code generation; the caller disposes of the buffer. NULL after an error in u->error. */
static LLVMMemoryBufferRef generate(struct unit *u, LLVMCodeGenFileType type)
{
    LLVMMemoryBufferRef buffer = NULL;
    char *error = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(u->tm, u->m, type, &error, &buffer)) {
        take_llvm_error(u, error);
        return NULL;
    }
    if (u->error.len) {
        LLVMDisposeMemoryBuffer(buffer);
        return NULL;
    }
    return buffer;
}

static bool take_object(struct unit *u, struct target_object *out, const char *loc, const char *name,
                        struct diag_sink *diag)
{
    LLVMMemoryBufferRef buffer = generate(u, LLVMObjectFile);
    if (!buffer) return diag_report(diag, DIAG_CODEGEN, loc, "%s: %s", name, strbuf_get(&u->error));
    size_t n = LLVMGetBufferSize(buffer);
    out->data = malloc(n ? n : 1);
    if (out->data) memcpy(out->data, LLVMGetBufferStart(buffer), n);
    out->n_bytes = n;
    LLVMDisposeMemoryBuffer(buffer);
    if (!out->data) return diag_report(diag, DIAG_ENVIRONMENT, loc, "%s: out of memory for an object", name);
    return true;
}

bool cpu_emit(const struct target *t, const struct target_level *level, struct lp_kernel *k, const char *symbol,
              struct target_object *out, struct diag_sink *diag)
{
    struct unit u;
    (void)t;
    *out = (struct target_object){0};
    bool ok = unit_init(&u, level) ||
              diag_report(diag, DIAG_CODEGEN, k->loc, "LLVM has no x86-64 target: %s", strbuf_get(&u.error));
    ok = ok && build_module(&u, level, k, symbol, &out->scratch_bytes, diag) &&
         take_object(&u, out, k->loc, k->name, diag);
    out->n_spills_in_loops = u.n_spills;
    unit_deinit(&u);
    return ok;
}

bool cpu_emit_text(const struct target *t, const struct target_level *level, struct lp_kernel *k, const char *symbol,
                   const char *form, struct strbuf *out, struct diag_sink *diag)
{
    struct unit u;
    size_t scratch_bytes;
    (void)t;
    bool want_llvm = !strcmp(form, "llvm");
    if (!want_llvm && strcmp(form, "asm") != 0)
        return diag_report(diag, DIAG_OPTION, k->loc, "target x86-64 has no form \"%s\", only llvm and asm", form);
    bool ok = unit_init(&u, level) ||
              diag_report(diag, DIAG_CODEGEN, k->loc, "LLVM has no x86-64 target: %s", strbuf_get(&u.error));
    ok = ok && build_module(&u, level, k, symbol, &scratch_bytes, diag);
    if (ok && want_llvm) {
        char *text = LLVMPrintModuleToString(u.m);
        strbuf_puts(out, text);
        LLVMDisposeMessage(text);
    } else if (ok) {
        LLVMMemoryBufferRef buffer = generate(&u, LLVMAssemblyFile);
        if (buffer) {
            strbuf_putn(out, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
            LLVMDisposeMemoryBuffer(buffer);
        } else {
            ok = diag_report(diag, DIAG_CODEGEN, k->loc, "kernel %s: %s", k->name, strbuf_get(&u.error));
        }
    }
    unit_deinit(&u);
    return ok;
}

/* ---- data ---- */

/* A name that data or code of the engine defines; declared on first use. */
static LLVMValueRef symbol_address(struct unit *u, const char *name, LLVMTypeRef ptr)
{
    if (!name) return LLVMConstNull(ptr);
    LLVMValueRef v = LLVMGetNamedGlobal(u->m, name);
    return v ? v : LLVMAddGlobal(u->m, LLVMInt8TypeInContext(u->c), name);
}

static LLVMValueRef data_value(struct unit *u, const struct target_data *d)
{
    if (!d->symbols) return LLVMConstStringInContext2(u->c, d->bytes ? d->bytes : "", d->n_bytes, 1);
    LLVMTypeRef ptr = LLVMPointerTypeInContext(u->c, 0);
    LLVMValueRef *all = calloc(d->n_symbols ? d->n_symbols : 1, sizeof *all);
    if (!all) return NULL;
    for (size_t i = 0; i < d->n_symbols; i++) all[i] = symbol_address(u, d->symbols[i], ptr);
    LLVMValueRef v = LLVMConstArray2(ptr, all, d->n_symbols);
    free(all);
    return v;
}

/*
 * Globals are first made without a name: a table may name an item that comes later, and a declaration made for it is
 * then replaced.
 */
static bool build_data(struct unit *u, const struct target_data *data, int n, struct diag_sink *diag)
{
    for (int i = 0; i < n; i++) {
        LLVMValueRef value = data_value(u, &data[i]);
        if (!value) return diag_report(diag, DIAG_ENVIRONMENT, data[i].name, "out of memory for the engine's data");
        LLVMValueRef global = LLVMAddGlobal(u->m, LLVMTypeOf(value), "");
        LLVMSetInitializer(global, value);
        LLVMSetGlobalConstant(global, 1);
        LLVMSetAlignment(global, data[i].align_bytes > 0 ? (unsigned)data[i].align_bytes : 1);
        LLVMValueRef declared = LLVMGetNamedGlobal(u->m, data[i].name);
        if (declared && LLVMGetInitializer(declared))
            return diag_report(diag, DIAG_CODEGEN, data[i].name, "two items of the engine's data have this name");
        if (declared) {
            LLVMSetValueName2(declared, "", 0);
            LLVMReplaceAllUsesWith(declared, global);
            LLVMDeleteGlobal(declared);
        }
        LLVMSetValueName2(global, data[i].name, strlen(data[i].name));
    }
    return true;
}

bool cpu_emit_data(const struct target *t, const struct target_data *data, int n, struct target_object *out,
                   struct diag_sink *diag)
{
    struct unit u;
    (void)t;
    *out = (struct target_object){0};
    bool ok = unit_init(&u, NULL) ||
              diag_report(diag, DIAG_CODEGEN, NULL, "LLVM has no x86-64 target: %s", strbuf_get(&u.error));
    ok = ok && build_data(&u, data, n, diag) && take_object(&u, out, NULL, "engine data", diag);
    unit_deinit(&u);
    return ok;
}
