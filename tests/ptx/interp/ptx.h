// SPDX-License-Identifier: Apache-2.0
/*
 * A machine that runs PTX, for tests: it executes what NVRTC emitted, lane by lane, and stops at the
 * first thing that hardware would not define - a race, an access out of bounds, data nobody wrote, a
 * collective that part of a warp never reaches, a wait that nothing ends.
 *
 *   struct ptx_machine *m = ptx_machine_create(&options);
 *   struct ptx_module *mod = ptx_module_load(m, text);
 *   uint64_t x = ptx_mem_alloc(m, bytes);        a device address: no host pointer, a touch faults
 *   ptx_mem_write(m, x, host, bytes);
 *   ptx_launch(m, ptx_module_find(mod, "k"), &launch);
 *   ptx_mem_read(m, host, x, bytes);
 *
 * Every function that can fail returns false (or NULL, or 0) and leaves a report: ptx_report().
 * A machine belongs to one thread at a time; two machines may live in two threads.
 *
 * What "late" means: hardware promises when an asynchronous copy or a wgmma is certainly done, never
 * that it is still going on. A late machine performs it at the last legal moment, with the
 * destination undefined until then, so that a wait that is missing shows; an early machine performs
 * it at once, so that an overwrite before a copy was issued in vain shows. Tests run both.
 */
#ifndef INFC_TESTS_PTX_INTERP_PTX_H
#define INFC_TESTS_PTX_INTERP_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ptx_fault {
    PTX_OK,
    PTX_FAULT_PARSE,       /* text that this machine does not understand */
    PTX_FAULT_LAUNCH,      /* a launch the kernel forbids */
    PTX_FAULT_BOUNDS,      /* access outside of any allocation, or after its end */
    PTX_FAULT_ALIGN,
    PTX_FAULT_UNDEFINED,   /* the outcome depends on data that nobody wrote */
    PTX_FAULT_RACE,
    PTX_FAULT_DIVERGENCE,  /* a collective that lanes it names cannot reach */
    PTX_FAULT_DEADLOCK,
    PTX_FAULT_ASYNC,       /* misuse of mbarriers, copies, wgmma: counts, descriptors, in-flight data */
    PTX_FAULT_TRAP,
    PTX_FAULT_LIMIT,       /* more instructions than options.max_steps */
    PTX_FAULT_MEMORY,      /* out of device or host memory */
};

struct ptx_options {
    int sm;                /* 80, 86, 89, 90 ...; 0 = 90 */
    bool early;            /* asynchronous work at issue instead of at the last moment */
    bool no_races;         /* leave out race detection */
    bool touches;          /* remember which bytes of device memory the last launch touched: ptx_mem_touched() */
    uint64_t max_steps;    /* warp instructions a launch; 0 = 4e9 */
    uint64_t memory_bytes; /* device memory; 0 = 16 GiB (host memory is taken as it is touched) */
    unsigned seed;         /* 0: warps in order; else the order they run in is shuffled */
};

/* What one or more launches did, summed until ptx_counters_reset(). */
struct ptx_counters {
    uint64_t launches, ctas;
    uint64_t warp_insns;        /* instructions, once a warp and group of lanes */
    uint64_t lane_insns;
    uint64_t global_bytes, global_sectors; /* asked for; 32-byte sectors touched */
    uint64_t global_distinct;   /* sectors, each once a launch: what a cache that holds everything fetches and writes */
    uint64_t shared_phases, shared_wavefronts; /* equal when no access has a bank conflict */
    uint64_t mma;               /* warp-level tensor instructions */
    uint64_t wgmma;             /* warpgroup-level ones */
    uint64_t async_bytes;       /* cp.async and bulk copies, either way */
    uint64_t barriers;
};

struct ptx_dim { unsigned x, y, z; };

struct ptx_launch {
    struct ptx_dim grid, block, cluster; /* cluster 0,0,0: none */
    unsigned dynamic_shared_bytes;
    const void *const *params; /* one pointer a parameter, as cuLaunchKernel takes them */
    bool cooperative;          /* all CTAs are resident together */
};

struct ptx_machine;
struct ptx_module;
struct ptx_kernel;

struct ptx_kernel_info {
    const char *name;
    unsigned n_params;
    unsigned param_bytes;
    unsigned static_shared_bytes;
    unsigned max_threads;      /* .maxntid or .reqntid, 0 when absent */
    bool exact_threads;        /* .reqntid */
    struct ptx_dim cluster;    /* .reqnctapercluster, zeros when absent */
    unsigned n_regs;           /* virtual registers: says nothing about hardware's */
    unsigned local_bytes;      /* per thread */
};

struct ptx_machine *ptx_machine_create(const struct ptx_options *options);
void ptx_machine_destroy(struct ptx_machine *m); /* modules and memory with it */

/* The first fault since the last ptx_report_clear(): kind, and lines that say where. */
enum ptx_fault ptx_fault(const struct ptx_machine *m);
const char *ptx_fault_name(enum ptx_fault f);
const char *ptx_report(const struct ptx_machine *m); /* "" when there is none */
int ptx_report_line(const struct ptx_machine *m);    /* PTX line, 0 when there is none */
void ptx_report_clear(struct ptx_machine *m);

const struct ptx_counters *ptx_counters(const struct ptx_machine *m);
void ptx_counters_reset(struct ptx_machine *m);
void ptx_set_early(struct ptx_machine *m, bool early);
void ptx_set_seed(struct ptx_machine *m, unsigned seed); /* of the launches that follow */

struct ptx_module *ptx_module_load(struct ptx_machine *m, const char *text);
void ptx_module_unload(struct ptx_machine *m, struct ptx_module *mod);
const char *ptx_module_target(const struct ptx_module *mod); /* "sm_90a" */
struct ptx_kernel *ptx_module_find(struct ptx_module *mod, const char *name);
bool ptx_module_find_global(struct ptx_module *mod, const char *name, uint64_t *out_address,
                            size_t *out_bytes);
const struct ptx_kernel_info *ptx_kernel_info(const struct ptx_kernel *k);
/* Offset and size of parameter i in the parameter block. */
bool ptx_kernel_param(const struct ptx_kernel *k, unsigned i, unsigned *out_offset, unsigned *out_bytes);

uint64_t ptx_mem_alloc(struct ptx_machine *m, size_t bytes); /* 256-byte aligned, undefined contents */
/* At an address of the caller's choice, above all that was allocated before and 4 KiB apart from it at least: an allocation that
 * begins and ends where the caller wants, whatever its alignment. */
bool ptx_mem_place(struct ptx_machine *m, uint64_t address, size_t bytes);
uint64_t ptx_mem_next(const struct ptx_machine *m); /* the least address that it takes */
bool ptx_mem_free(struct ptx_machine *m, uint64_t address);
/* Allocation that holds an address: false when there is none. */
bool ptx_mem_find(const struct ptx_machine *m, uint64_t address, uint64_t *out_base, size_t *out_bytes);
uint64_t ptx_mem_used(const struct ptx_machine *m);
bool ptx_mem_write(struct ptx_machine *m, uint64_t dst, const void *src, size_t bytes);
bool ptx_mem_read(struct ptx_machine *m, void *dst, uint64_t src, size_t bytes);
bool ptx_mem_copy(struct ptx_machine *m, uint64_t dst, uint64_t src, size_t bytes);
bool ptx_mem_fill(struct ptx_machine *m, uint64_t dst, uint64_t pattern, unsigned pattern_bytes,
                  size_t count);
/* How many of these bytes nobody has written: reading them back is no fault, depending on them is. */
size_t ptx_mem_undefined(struct ptx_machine *m, uint64_t src, size_t bytes);

/* What kernels of the last launch did with these bytes, which lie in one allocation: PTX_READ and PTX_WRITTEN bits, and PTX_DEFINED
 * for those that hold what somebody wrote. All zeros (but PTX_DEFINED) without options.touches. */
enum { PTX_READ = 1, PTX_WRITTEN = 2, PTX_DEFINED = 4 };
bool ptx_mem_touched(struct ptx_machine *m, uint8_t *out, uint64_t src, size_t bytes);

bool ptx_launch(struct ptx_machine *m, struct ptx_kernel *k, const struct ptx_launch *launch);

/* The 128 bytes of a tensor map, in this machine's own encoding (NVIDIA's is not documented). */
struct ptx_tensor_map {
    uint64_t magic;
    uint64_t base;
    uint64_t dim[5];
    uint64_t stride[4];  /* bytes, dimensions 1.. */
    uint16_t box[5];
    uint8_t elem_stride[5]; /* 1.. 8 */
    uint8_t elem_bytes, rank, swizzle /* 0 none, 1 32B, 2 64B, 3 128B */, interleave, nan_fill;
    uint8_t type;
};
#define PTX_TENSOR_MAP_MAGIC UINT64_C(0x70617464736f7466)

#endif
