// SPDX-License-Identifier: Apache-2.0
/*
 * The running machine. Internal to the interpreter.
 *
 * A launch keeps a set of resident CTAs (one cluster at a time; more when a kernel waits for other
 * CTAs, all of them in a cooperative launch). A warp has a program counter a lane; the lanes that stand
 * at the lowest one run together until they part, block or reach others. A collective whose
 * named lanes have not all arrived parks those that have.
 *
 * Order between accesses is kept by clocks (race.c): a warp's clock ticks at each release and warp
 * barrier, each memory cell remembers who touched it last and when, and synchronisation objects carry
 * what their arrivers knew.
 */
#ifndef INFC_TESTS_PTX_INTERP_MACHINE_H
#define INFC_TESTS_PTX_INTERP_MACHINE_H

#include "ir/support/compiler.h"
#include "tests/ptx/interp/module.h"

/* Address space layout. Bit 48 makes every device address a fault for the host. */
#define PTX_GLOBAL_BASE (UINT64_C(1) << 48)
#define PTX_SHARED_WINDOW (UINT64_C(3) << 48)  /* + rank << 24 | offset, as generic addresses */
#define PTX_LOCAL_WINDOW (UINT64_C(5) << 48)
#define PTX_PARAM_WINDOW (UINT64_C(7) << 48)
/* Devices reserve the first KiB of shared memory, so that 0 is no address of a variable. */
#define PTX_SHARED_BASE 1024u
#define PTX_RANK_SHIFT 24

enum { PTX_MAX_WARPS = 32, PTX_MAX_CLUSTER = 16, PTX_N_BARRIERS = 16 };

/* State of a byte of memory. */
enum { PTX_BYTE_UNDEFINED = 0, PTX_BYTE_DEFINED = 1, PTX_BYTE_IN_FLIGHT = 2 };

struct ptx_alloc {
    uint64_t base;
    size_t bytes;
    uint8_t *data;
    uint8_t *state;      /* PTX_BYTE_ a byte */
    uint32_t *seen;      /* the launch that touched a 32-byte sector last; NULL until needed */
    struct ptx_owner *owner; /* who wrote a 4-byte cell in the running launch; NULL until needed */
    uint8_t *touched;    /* PTX_TOUCH_ bits a byte, with options.touches; NULL until needed */
    bool live;
};

/* Cells lie at multiples of 4 of the address, wherever the allocation begins. */
static inline size_t ptx_cell_offset(const struct ptx_alloc *a, size_t offset) { return offset + (size_t)(a->base & 3); }

/* Who wrote a cell of global memory last, in which launch, and when (events, and the agent's clock). */
struct ptx_owner {
    uint32_t launch, cta, event, clock;
    uint16_t agent;
    uint8_t lane;
    bool atomic;
    int line;
};

/* What is known of one agent's past: all lanes' accesses up to `full`, those of `mask` up to `top`. */
struct ptx_seen {
    uint32_t full, top, mask;
};

enum { PTX_SEVERAL_LANES = 255, PTX_ATOMIC = 128, PTX_ASYNC_PROXY = 64 };
struct ptx_access {
    uint32_t clock;
    int line;
    uint16_t agent;      /* + 1; 0: nobody */
    uint8_t lane;        /* or PTX_SEVERAL_LANES */
    uint8_t bytes;       /* which of the cell's four; PTX_ATOMIC, PTX_ASYNC_PROXY */
};

struct ptx_cell {
    struct ptx_access write, read[2];
};

struct ptx_barrier {
    unsigned arrived, expected; /* threads; expected 0: every warp that has not exited */
    bool active;
    uint32_t waiting;    /* warps */
    struct ptx_seen *seen;
    unsigned red_count, red_total; /* lanes whose predicate holds; lanes that take part */
};

/* Beside the 8 bytes that a program sees lies what they mean here. */
struct ptx_mbarrier {
    uint32_t offset;     /* in the CTA's shared memory */
    bool valid;
    bool fenced;         /* its initialisation is visible to the async proxy */
    uint8_t init_lane;
    uint16_t init_agent;
    int32_t expected, pending, tx;
    uint32_t phase;
    struct ptx_seen *seen, *seen_done; /* of the running and of the completed phase */
};

/* A cp.async on its way, or (mbarrier set) an arrival that follows those before it. */
struct ptx_copy {
    struct ptx_copy *next;
    const struct ptx_insn *in;
    int lane;
    unsigned group;
    uint64_t src;
    uint32_t dst, bytes, src_bytes;
    bool arrives;
    struct ptx_cta *cta;
};

struct ptx_bulk;
struct ptx_wgmma;

enum ptx_status {
    PTX_W_NEXT,          /* go on with w->next */
    PTX_W_SPLIT,         /* lanes have their own pc now */
    PTX_W_PARK,          /* lanes wait for others of the warp */
    PTX_W_BLOCK,         /* the warp waits: w->state says for what */
    PTX_W_YIELD,         /* let others run, then go on with w->next */
    PTX_W_EXIT           /* lanes are gone from w->live */
};

enum ptx_warp_state { PTX_WARP_RUN, PTX_WARP_BARRIER, PTX_WARP_CLUSTER, PTX_WARP_WGMMA };

struct ptx_warp {
    struct ptx_machine *m;
    struct ptx_cta *cta;
    const struct ptx_kernel *k;
    int id;
    uint8_t *regs;       /* rows */
    uint32_t *def;       /* a register: lanes whose value somebody computed */
    uint32_t pc[32];
    uint32_t live, initial, parked;
    uint32_t group;      /* lanes that are executing now, guard not applied */
    uint32_t next;
    uint32_t passed_over; /* lanes that failed to wait: others get their turn first */
    enum ptx_status status;
    enum ptx_warp_state state;
    uint32_t carry;
    uint8_t *local, *local_state;
    /* race.c */
    uint32_t clock, full, part_clock, part_mask;
    struct ptx_seen *seen;
    uint32_t proxy_clock[32]; /* of a lane's last fence.proxy.async */
    uint32_t proxy_fresh;     /* lanes that made one since the warp last acquired */
    /* async.c */
    struct ptx_copy *copies, **copies_end;
    unsigned cp_group[32];    /* that a lane's next cp.async belongs to */
    unsigned bulk_group[32];
    /* wgmma.c: in flight, the register file at the last fence, groups and products so far */
    struct ptx_wgmma *wgmma;
    uint8_t *fenced_regs;
    bool wgmma_fenced, wgmma_undefined;
    unsigned wgmma_group, wgmma_issued;
    bool cluster_arrived;
    uint32_t cluster_phase;
    const struct ptx_insn *at; /* instruction of the last step: bar.red's result, reports of deadlocks */
};

/* What a warpgroup issued: its warps must agree. */
enum { PTX_WGMMA_LOG = 64 };
struct ptx_wgmma_log {
    unsigned n;
    struct {
        const struct ptx_insn *in;
        uint64_t a, b;
    } entry[PTX_WGMMA_LOG];
};

struct ptx_cta {
    struct ptx_machine *m;
    struct ptx_cluster *cluster;
    unsigned rank;       /* in the cluster */
    uint32_t linear;     /* in the grid */
    struct ptx_dim id;
    int n_warps, live_warps;
    struct ptx_warp *warps;
    uint8_t *shared, *shared_state;
    struct ptx_cell *cells;
    uint32_t shared_bytes;  /* static and dynamic, without the reserved KiB */
    uint32_t dynamic_off;   /* address of dynamic shared memory */
    struct ptx_barrier barriers[PTX_N_BARRIERS];
    struct ptx_mbarrier *mbarriers;
    int n_mbarriers, cap_mbarriers;
    struct ptx_wgmma_log wgmma_logs[PTX_MAX_WARPS / 4];
    uint32_t fenced, observed, acquired; /* events at gpu scope, see race.c */
};

struct ptx_cluster {
    struct ptx_cluster *next;
    struct ptx_dim id;
    unsigned n_ctas;
    struct ptx_cta *ctas;
    unsigned arrived;       /* warps at barrier.cluster */
    uint32_t phase;
    struct ptx_seen *seen;
    struct ptx_bulk *bulks, **bulks_end; /* in flight */
    uint32_t async_clock;   /* of the agent that bulk copies are */
};

struct ptx_machine {
    struct ptx_options options;
    struct ptx_module *modules;
    struct ptx_alloc *allocs; /* by base */
    size_t n_allocs, cap_allocs, last_alloc;
    uint64_t next_base, used_bytes;
    enum ptx_fault fault;
    char report[1024];
    int report_line;
    struct ptx_counters counters;
    /* of the running launch */
    const struct ptx_kernel *k;
    const struct ptx_launch *launch;
    /* Agents: the warps of a cluster, bulk copies, and the wgmma of each warpgroup. */
    unsigned n_agents, bulk_agent, wgmma_agents;
    uint32_t launch_serial;
    uint8_t *params;
    struct ptx_cluster *clusters;
    uint64_t steps, progress; /* progress: anything that may end another's wait */
    bool polled;              /* in this round a warp looked at memory that another may change */
    uint32_t event;           /* releases and acquires at gpu scope, counted */
    uint32_t *cta_released;   /* of every CTA of the grid, running or gone */
    uint32_t random;
};

/* ---- faults ---- */

/* The first fault stays. The second form adds where: kernel, line, CTA, warp, lanes, instruction. */
void ptx_fault_at(struct ptx_machine *m, enum ptx_fault f, int line, const char *format, ...)
    INFC_PRINTF(4, 5);
void ptx_fault_warp(struct ptx_warp *w, const struct ptx_insn *in, int lane, enum ptx_fault f,
                    const char *format, ...) INFC_PRINTF(5, 6);
void ptx_unsupported(struct ptx_warp *w, const struct ptx_insn *in);
const char *ptx_op_name(unsigned op);
/* What is wrong with an instruction's shape, types or operand counts; NULL when nothing is. */
const char *ptx_check_insn(const struct ptx_insn *in, const struct ptx_kernel *k);
void ptx_machine_add_module(struct ptx_machine *m, struct ptx_module *mod);

/* ---- registers ---- */

static inline uint32_t *ptx_row32(struct ptx_warp *w, const struct ptx_operand *o)
{
    return (uint32_t *)(void *)(w->regs + o->off);
}
static inline uint64_t *ptx_row64(struct ptx_warp *w, const struct ptx_operand *o)
{
    return (uint64_t *)(void *)(w->regs + o->off);
}
static inline uint32_t *ptx_pred(struct ptx_warp *w, int reg)
{
    return (uint32_t *)(void *)(w->regs + w->k->regs[reg].off);
}
/* A lane of any register, zero-extended. */
static inline uint64_t ptx_get(const struct ptx_warp *w, int reg, int lane)
{
    const struct ptx_reg *r = &w->k->regs[reg];
    const uint8_t *row = w->regs + r->off;
    if (r->predicate) return *(const uint32_t *)(const void *)row >> lane & 1;
    return r->bytes == 8 ? ((const uint64_t *)(const void *)row)[lane]
                         : ((const uint32_t *)(const void *)row)[lane];
}
static inline void ptx_set(struct ptx_warp *w, int reg, int lane, uint64_t v)
{
    if (reg < 0) return;
    const struct ptx_reg *r = &w->k->regs[reg];
    uint8_t *row = w->regs + r->off;
    if (r->predicate) {
        uint32_t *bits = (uint32_t *)(void *)row;
        *bits = (*bits & ~(1u << lane)) | (uint32_t)(v & 1) << lane;
    } else if (r->bytes == 8) {
        ((uint64_t *)(void *)row)[lane] = v;
    } else {
        ((uint32_t *)(void *)row)[lane] = (uint32_t)v;
    }
    w->def[reg] |= 1u << lane;
}
/* Lanes of mask in which every source operand from `first` is defined. */
uint32_t ptx_sources_defined(const struct ptx_warp *w, const struct ptx_insn *in, int first, uint32_t mask);
static inline void ptx_mark(struct ptx_warp *w, int reg, uint32_t mask, uint32_t defined)
{
    if (reg >= 0) w->def[reg] = (w->def[reg] & ~mask) | (defined & mask);
}
/* Faults unless the lanes of mask are defined in this register; `what` names its role. */
bool ptx_need_defined(struct ptx_warp *w, const struct ptx_insn *in, int reg, uint32_t mask, const char *what);
static inline int ptx_lowest(uint32_t mask)
{
    int i = 0;
    while (i < 31 && !(mask >> i & 1)) i++;
    return i;
}
static inline int ptx_popcount(uint32_t v)
{
    v -= v >> 1 & 0x55555555u;
    v = (v & 0x33333333u) + (v >> 2 & 0x33333333u);
    return (int)(((v + (v >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24);
}
static inline float ptx_f32(uint32_t bits)
{
    union { uint32_t u; float f; } x = {.u = bits};
    return x.f;
}
static inline uint32_t ptx_bits32(float f)
{
    union { float f; uint32_t u; } x = {.f = f};
    return x.u;
}
static inline double ptx_f64(uint64_t bits)
{
    union { uint64_t u; double f; } x = {.u = bits};
    return x.f;
}
static inline uint64_t ptx_bits64(double f)
{
    union { double f; uint64_t u; } x = {.f = f};
    return x.u;
}

/* ---- memory (memory.c) ---- */

struct ptx_place {
    uint8_t *data, *state;
    enum ptx_space space;
    struct ptx_cta *cta;      /* shared: whose */
    uint32_t offset;          /* shared: address there */
    struct ptx_alloc *alloc;
};

/* Where an address of a lane lies: checks bounds and alignment. Faults and returns false otherwise. */
bool ptx_place(struct ptx_warp *w, const struct ptx_insn *in, int lane, enum ptx_space space,
               uint64_t address, uint32_t bytes, uint32_t align, struct ptx_place *out);
/* A place that is read or written by a lane: race check, state bytes. Reading tells whether all bytes are
 * defined; in-flight bytes are a fault. Atomic accesses do not race with each other. */
bool ptx_place_read(struct ptx_warp *w, const struct ptx_insn *in, int lane, const struct ptx_place *p,
                    uint32_t bytes, bool atomic, bool *out_defined);
bool ptx_place_write(struct ptx_warp *w, const struct ptx_insn *in, int lane, const struct ptx_place *p,
                     uint32_t bytes, bool atomic, bool defined);
struct ptx_alloc *ptx_alloc_find(struct ptx_machine *m, uint64_t address, uint64_t bytes);
/* With options.touches: a kernel reads (PTX_READ) or writes these bytes. */
void ptx_touch(struct ptx_alloc *a, size_t offset, size_t bytes, unsigned how);
void ptx_touches_clear(struct ptx_machine *m);
/* Shared memory of a CTA by an address in its window; faults when outside. */
bool ptx_shared_range(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta,
                      uint32_t offset, uint32_t bytes);
/* The CTA that a shared address means, and the offset there; NULL after a fault. */
struct ptx_cta *ptx_shared_cta(struct ptx_warp *w, const struct ptx_insn *in, int lane, uint64_t address,
                               bool cluster, uint32_t *out_offset);
/* The address of a memory operand in a lane. */
static inline uint64_t ptx_address(const struct ptx_warp *w, const struct ptx_operand *o, int lane)
{
    uint64_t a = ptx_get(w, o->reg, lane) + (uint64_t)o->imm;
    return o->bytes == 4 ? a & UINT32_MAX : a;
}
void ptx_count_global(struct ptx_machine *m, const uint64_t *address, uint32_t mask, uint32_t bytes);
void ptx_count_shared(struct ptx_machine *m, const uint64_t *address, uint32_t mask, uint32_t bytes);

/* ---- order (race.c) ---- */

/* An access to shared memory. `how` is 0 or PTX_ATOMIC, PTX_ASYNC_PROXY. */
bool ptx_race_read(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta,
                   uint32_t offset, uint32_t bytes, unsigned how);
bool ptx_race_write(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta,
                    uint32_t offset, uint32_t bytes, unsigned how);
/* A read by an agent other than the warp that issues it. */
bool ptx_race_read_as(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta, uint32_t offset,
                      uint32_t bytes, unsigned agent, uint32_t clock);
/* Of global memory, whose cells know only their last writer. */
bool ptx_race_global(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_alloc *a,
                     size_t offset, uint32_t bytes, bool write, bool atomic);
/* A fence at gpu scope; an atomic access, perhaps with such an order of its own. */
void ptx_gpu_fence(struct ptx_warp *w);
void ptx_gpu_access(struct ptx_warp *w, bool reads, bool writes, bool release, bool acquire);
void ptx_warp_barrier(struct ptx_warp *w, uint32_t lanes);
/* Adds what these lanes of w know to an object's knowledge, then ticks. */
void ptx_release(struct ptx_warp *w, uint32_t lanes, struct ptx_seen *into);
void ptx_acquire(struct ptx_warp *w, const struct ptx_seen *from);
void ptx_seen_join(struct ptx_seen *into, const struct ptx_seen *from, unsigned n);
unsigned ptx_agent(const struct ptx_warp *w);

/* ---- floats (exec_float.c) ---- */

void ptx_float_arith(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask);

/* ---- scheduling (sched.c) ---- */

/* Do all live lanes of `lanes` stand at this instruction and execute it? Otherwise parks (or faults)
 * and returns false. */
bool ptx_converged(struct ptx_warp *w, const struct ptx_insn *in, uint32_t executing, uint32_t lanes);
/* A warp came to a barrier of its CTA (barrier.c), or exited: may anybody go on? */
void ptx_barriers_recheck(struct ptx_cta *cta);
void ptx_cluster_recheck(struct ptx_cluster *c);
bool ptx_run_grid(struct ptx_machine *m, struct ptx_kernel *k, const struct ptx_launch *launch);

/* ---- asynchronous work ---- */

void ptx_warp_async_reset(struct ptx_warp *w);
/* fence.mbarrier_init or a proxy fence by these lanes: what they initialised may serve bulk copies. */
void ptx_mbarriers_fenced(struct ptx_warp *w, uint32_t lanes);
/* The valid mbarrier at an offset of a CTA's shared memory; faults when there is none. */
struct ptx_mbarrier *ptx_mbarrier_find(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_cta *cta,
                                       uint32_t offset);
/* Bytes of a bulk copy arrived. */
bool ptx_mbarrier_complete_tx(struct ptx_warp *w, const struct ptx_insn *in, int lane, struct ptx_mbarrier *b,
                              uint32_t bytes, const struct ptx_seen *seen);
/* Performs arrivals that wait for cp.async: true when there was one. */
bool ptx_copies_step(struct ptx_warp *w);
/* Performs a bulk copy in flight (or an arrival of cp.async) that may end a wait. False: there is none. */
bool ptx_bulk_step(struct ptx_cluster *c);
void ptx_cluster_async_free(struct ptx_cluster *c);
/* A warp is gone: nothing in flight may still need its CTA. */
void ptx_bulk_check_exit(struct ptx_warp *w, const struct ptx_insn *in);
void ptx_wgmma_reset(struct ptx_warp *w);
/* Faults when an instruction touches accumulators in flight. */
bool ptx_wgmma_check_use(struct ptx_warp *w, const struct ptx_insn *in);
void ptx_wgmma_check_exit(struct ptx_warp *w, const struct ptx_insn *in);
/* old `sub` v, for all types of atomics; v2 is the new value of cas. False: there is no such operation. */
bool ptx_atomic_value(unsigned type, unsigned sub, uint64_t old, uint64_t v, uint64_t v2, uint64_t *out);

#define PTX_OP(e, name, sig, fn) void fn(struct ptx_warp *w, const struct ptx_insn *in, uint32_t mask);
#include "tests/ptx/interp/ops.def"
#undef PTX_OP

#endif
