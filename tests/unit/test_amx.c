// SPDX-License-Identifier: Apache-2.0
/*
 * Tile instructions, written in assembly and run as the machine can: by an AMX unit, else by the tests' model behind SIGILL. Values are worked
 * out by hand from Intel's manual. Faults and encodings that assemblers do not write are tried on the model itself.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/amx/tiles.h"
#include "tests/amx/trap.h"

struct config {
    uint8_t palette, start_row, zero[14];
    uint16_t colsb[16];
    uint8_t rows[16];
};

/* C (0), A (1), B (2): m x n, m x k, k x n words of 4 bytes. */
static struct config shape(int m, int k, int n)
{
    return (struct config){.palette = 1,
                           .colsb = {(uint16_t)(4 * n), (uint16_t)(4 * k), (uint16_t)(4 * n)},
                           .rows = {(uint8_t)m, (uint8_t)m, (uint8_t)k}};
}

static void load_config(const struct config *c) { __asm__ volatile("ldtilecfg %0" : : "m"(*c)); }
static void release(void) { __asm__ volatile("tilerelease"); }

/* ---- configuration, loads and stores ---- */

static void test_config(void **state)
{
    (void)state;
    amx_ready();
    struct config c = shape(3, 5, 7), got;
    c.rows[7] = 16, c.colsb[7] = 64;
    load_config(&c);
    __asm__ volatile("sttilecfg %0" : "=m"(got));
    assert_memory_equal(&got, &c, sizeof c);
    release();
    memset(&c, 0, sizeof c);
    __asm__ volatile("sttilecfg %0" : "=m"(got));
    assert_memory_equal(&got, &c, sizeof c);
}

/* Rows at a distance; what lies between them and behind stays as it was. */
static void test_move(void **state)
{
    (void)state;
    amx_ready();
    struct config c = {.palette = 1, .colsb = {[3] = 20, [4] = 64}, .rows = {[3] = 3, [4] = 16}};
    uint8_t room[1024], *from = room + 512, to[256], whole[1024];
    for (int i = 0; i < 256; i++) from[i] = (uint8_t)(i * 7 + 1);
    memset(to, 0xEE, sizeof to);
    load_config(&c);
    const uint8_t *base = from - 40; /* r12 and rsp are encoded specially, as rbp and r13 are */
    register uint64_t stride __asm__("r9") = 50;
    register const uint8_t *b12 __asm__("r12") = base;
    register uint8_t *b13 __asm__("r13") = to;
    __asm__ volatile("tileloadd 40(%1,%0,2), %%tmm3" : : "r"(stride), "r"(b12) : "memory");
    __asm__ volatile("tilestored %%tmm3, (%1,%0,1)" : : "r"(stride), "r"(b13) : "memory");
    for (int i = 0; i < 256; i++) {
        bool in = i / 50 < 3 && i % 50 < 20;
        assert_int_equal(to[i], in ? from[i / 50 * 100 + i % 50] : 0xEE);
    }
    /* No index: all rows from one place. With T1, and zeroed. */
    __asm__ volatile("tileloaddt1 300(%0,%1,1), %%tmm4" : : "r"(from - 300), "r"(0L) : "memory");
    __asm__ volatile("tilestored %%tmm4, (%0,%1,1)" : : "r"(whole), "r"(64L) : "memory");
    for (int i = 0; i < 1024; i++) assert_int_equal(whole[i], from[i % 64]);
    __asm__ volatile("tilezero %tmm4");
    __asm__ volatile("tilestored %%tmm4, (%0,%1,1)" : : "r"(whole + 1024 - 64), "r"(-64L) : "memory"); /* upwards */
    for (int i = 0; i < 1024; i++) assert_int_equal(whole[i], 0);
    release();
}

/* ---- products ---- */

enum kind { SS, SU, US, UU, BF16 };

/* C += A * B, all dense. */
static void multiply(enum kind kind, int m, int k, int n, const void *a, const void *b, void *c)
{
    struct config cfg = shape(m, k, n);
    load_config(&cfg);
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm0" : : "r"(c), "r"(4L * n) : "memory");
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm1" : : "r"(a), "r"(4L * k) : "memory");
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm2" : : "r"(b), "r"(4L * n) : "memory");
    switch (kind) {
    case SS: __asm__ volatile("tdpbssd %tmm2, %tmm1, %tmm0"); break;
    case SU: __asm__ volatile("tdpbsud %tmm2, %tmm1, %tmm0"); break;
    case US: __asm__ volatile("tdpbusd %tmm2, %tmm1, %tmm0"); break;
    case UU: __asm__ volatile("tdpbuud %tmm2, %tmm1, %tmm0"); break;
    case BF16: __asm__ volatile("tdpbf16ps %tmm2, %tmm1, %tmm0"); break;
    }
    __asm__ volatile("tilestored %%tmm0, (%0,%1,1)" : : "r"(c), "r"(4L * n) : "memory");
    release();
}

static void test_bytes(void **state)
{
    (void)state;
    amx_ready();
    /* signed: -1 and -128 on the left, 2 and -56 on the right */
    static const uint8_t a[4] = {255, 128, 1, 2}, b[4] = {2, 200, 3, 4};
    static const int32_t want[4] = {
        -2 + 7168 + 3 + 8,    /* -1 * 2 + -128 * -56 + .. */
        -2 - 25600 + 3 + 8,   /* -1 * 2 + -128 * 200 + .. */
        510 - 7168 + 3 + 8,   /* 255 * 2 + 128 * -56 + .. */
        510 + 25600 + 3 + 8,
    };
    for (int kind = SS; kind <= UU; kind++) {
        int32_t c = 1000;
        multiply((enum kind)kind, 1, 1, 1, a, b, &c);
        assert_int_equal(c, 1000 + want[kind]);
    }
    int32_t c = INT32_MAX; /* wraps around, does not saturate */
    multiply(SS, 1, 1, 1, (const int8_t[]){1, 0, 0, 0}, (const int8_t[]){2, 0, 0, 0}, &c);
    assert_int_equal(c, INT32_MIN + 1);
}

/* Every element comes from its own row and column: a[r][q] picks, b[q][c] tells where it stood. */
static void check_places(int m, int k, int n)
{
    int8_t a[16 * 64] = {0}, b[16 * 64] = {0};
    int32_t c[16 * 16], want;
    for (int i = 0; i < m; i++) a[i * 4 * k + (i * 5 + 3) % (4 * k)] = (int8_t)(i - 8);
    for (int i = 0; i < 4 * k * n; i++) b[i] = (int8_t)(i * 37 % 251 - 125);
    for (int i = 0; i < m * n; i++) c[i] = i * 1000;
    multiply(SS, m, k, n, a, b, c);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            int q = (i * 5 + 3) % (4 * k); /* B's row q / 4 holds quads, column by column */
            want = (i * n + j) * 1000 + (i - 8) * b[q / 4 * 4 * n + 4 * j + q % 4];
            assert_int_equal(c[i * n + j], want);
        }
}

static void test_places(void **state)
{
    (void)state;
    amx_ready();
    check_places(16, 16, 16);
    check_places(1, 16, 16);
    check_places(16, 1, 16);
    check_places(16, 16, 1);
    check_places(5, 3, 9);
}

static uint32_t bits(float f)
{
    uint32_t v;
    memcpy(&v, &f, 4);
    return v;
}

/* One element: n_pairs pairs of bf16 given by their bits. */
static uint32_t dot_bf16(uint32_t c, int n_pairs, const uint16_t *a, const uint16_t *b)
{
    multiply(BF16, 1, n_pairs, 1, a, b, &c);
    return c;
}

enum { BF_1 = 0x3F80, BF_M1 = 0xBF80, BF_2P24 = 0x4B80, BF_2P100 = 0x7180, BF_2PM100 = 0x0D80, BF_INF = 0x7F80, BF_LEAST = 1 };

static void test_bf16(void **state)
{
    (void)state;
    amx_ready();
    /* Exact: 1.5 * 2 - 1 * 0.25 = 2.75, and 10 */
    assert_int_equal(dot_bf16(bits(10), 1, (uint16_t[]){0x3FC0, BF_M1}, (uint16_t[]){0x4000, 0x3E80}), bits(12.75f));
    /* Even: 2^24 + 1 = 2^24 (a tie); odd: 1 + 1; 2^24 + 2, and 1: a tie between 2^24 + 2 and 2^24 + 4, of which the second is even.
     * One chain of sums would give 2^24. */
    assert_int_equal(dot_bf16(bits(1), 2, (uint16_t[]){BF_2P24, BF_1, BF_1, BF_1}, (uint16_t[]){BF_1, BF_1, BF_1, BF_1}), bits(16777220));
    /* Fused: (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14, to 2^10: the product rounds with the sum alone, and even sums come first. */
    assert_int_equal(dot_bf16(0, 2, (uint16_t[]){0x4480, 0, 0x3F81, 0}, (uint16_t[]){BF_1, 0, 0x3F81, 0}), bits(1025.0f + 0x1p-6f));
    /* Denormals are 0: of the operands, of products, of the accumulator; the sign of a flushed product goes in the sum with +0. */
    assert_int_equal(dot_bf16(0, 1, (uint16_t[]){BF_LEAST, 0}, (uint16_t[]){BF_2P100, 0}), 0);
    assert_int_equal(dot_bf16(0, 1, (uint16_t[]){BF_2PM100, 0}, (uint16_t[]){BF_2PM100, 0}), 0);
    assert_int_equal(dot_bf16(1, 1, (uint16_t[]){0, 0}, (uint16_t[]){0, 0}), 0);
    assert_int_equal(dot_bf16(0x00800001, 1, (uint16_t[]){0x8080, 0}, (uint16_t[]){BF_1, 0}), 0); /* 2^-149 is left */
    assert_int_equal(dot_bf16(0x80000000, 1, (uint16_t[]){0, 0}, (uint16_t[]){0, 0}), 0);         /* -0 + +0 */
    /* inf, inf * 0, inf - inf */
    assert_int_equal(dot_bf16(0, 1, (uint16_t[]){BF_INF, 0}, (uint16_t[]){BF_M1, 0}), 0xFF800000);
    assert_int_equal(dot_bf16(0, 1, (uint16_t[]){BF_INF, 0}, (uint16_t[]){0, 0}), 0xFFC00000);
    assert_int_equal(dot_bf16(0, 1, (uint16_t[]){BF_INF, BF_INF}, (uint16_t[]){BF_1, BF_M1}), 0xFFC00000);
}

/* ---- the model alone ---- */

static bool read_memory(void *ctx, uint64_t at, void *out, size_t n)
{
    if (at < 0x1000 || at + n > 0x2000) return false;
    memcpy(out, (char *)ctx + (at - 0x1000), n);
    return true;
}

static bool write_memory(void *ctx, uint64_t at, const void *in, size_t n)
{
    if (at < 0x1000 || at + n > 0x2000) return false;
    memcpy((char *)ctx + (at - 0x1000), in, n);
    return true;
}

static uint8_t memory[0x1000];

static struct amx_result step(struct amx_unit *u, const uint8_t *code, size_t n)
{
    static const uint64_t gpr[16] = {0x1000, 64, 0x1F00}; /* rax, rcx, rdx */
    return amx_step(u, code, n, 0x1800, gpr, &(struct amx_memory){memory, read_memory, write_memory});
}

#define STEP(u, ...) step(u, (const uint8_t[]){__VA_ARGS__}, sizeof(const uint8_t[]){__VA_ARGS__})
#define LDTILECFG_RAX 0xC4, 0xE2, 0x78, 0x49, 0x00
#define LOAD_TMM1_RAX_RCX 0xC4, 0xE2, 0x7B, 0x4B, 0x0C, 0x08
#define LOAD_TMM1_RDX_RCX 0xC4, 0xE2, 0x7B, 0x4B, 0x0C, 0x0A
#define DPBSSD_0_1_2 0xC4, 0xE2, 0x6B, 0x5E, 0xC1

static enum amx_outcome try_config(const struct config *c)
{
    struct amx_unit u = {0};
    memcpy(memory, c, sizeof *c);
    return STEP(&u, LDTILECFG_RAX).outcome;
}

static void test_bad_configs(void **state)
{
    (void)state;
    struct config good = shape(16, 16, 16), c;
    assert_int_equal(try_config(&good), AMX_DONE);
    for (int i = 2; i < 64; i++) { /* reserved bytes, tiles 8 and up */
        if ((i >= 16 && i < 32) || (i >= 48 && i < 56)) continue;
        c = good;
        ((uint8_t *)&c)[i] = 1;
        assert_int_equal(try_config(&c), AMX_GP);
    }
    c = good, c.palette = 2;
    assert_int_equal(try_config(&c), AMX_GP);
    c = good, c.rows[5] = 1;
    assert_int_equal(try_config(&c), AMX_GP);
    c = good, c.colsb[5] = 4;
    assert_int_equal(try_config(&c), AMX_GP);
    c = good, c.rows[0] = 17;
    assert_int_equal(try_config(&c), AMX_GP);
    c = good, c.colsb[0] = 65;
    assert_int_equal(try_config(&c), AMX_GP);
    c = good, c.palette = 0; /* the initial state, whatever else there is */
    assert_int_equal(try_config(&c), AMX_DONE);
}

static enum amx_outcome try_product(const struct config *c)
{
    struct amx_unit u = {0};
    memcpy(memory, c, sizeof *c);
    assert_int_equal(STEP(&u, LDTILECFG_RAX).outcome, AMX_DONE);
    return STEP(&u, DPBSSD_0_1_2).outcome;
}

static void test_bad_products(void **state)
{
    (void)state;
    struct config good = shape(4, 5, 6), c;
    assert_int_equal(try_product(&good), AMX_DONE);
    for (int t = 0; t < 3; t++) {
        c = good, c.rows[t]++;
        assert_int_equal(try_product(&c), AMX_UD);
        c = good, c.colsb[t] += 4;
        assert_int_equal(try_product(&c), AMX_UD);
        c = good, c.rows[t] = 0, c.colsb[t] = 0;
        assert_int_equal(try_product(&c), AMX_UD);
    }
    c = good, c.colsb[0] = c.colsb[2] = 22; /* no multiple of 4 */
    assert_int_equal(try_product(&c), AMX_UD);
    struct amx_unit u = {0};
    assert_int_equal(STEP(&u, DPBSSD_0_1_2).outcome, AMX_UD);         /* not configured */
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x78, 0x49, 0xC0).outcome, AMX_DONE); /* tilerelease is fine then */
    c = shape(4, 4, 4);
    memcpy(memory, &c, sizeof c);
    assert_int_equal(STEP(&u, LDTILECFG_RAX).outcome, AMX_DONE);
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x6B, 0x5E, 0xC0).outcome, AMX_UD); /* 0 += 0 * 2 */
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x73, 0x5E, 0xC1).outcome, AMX_UD); /* 0 += 1 * 1 */
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x6B, 0x5E, 0xC4).outcome, AMX_UD); /* tile 4 has no shape */
    assert_int_equal(STEP(&u, 0xC4, 0xC2, 0x6B, 0x5E, 0xC1).outcome, AMX_UD); /* tile 9 */
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0xEB, 0x5E, 0xC1).outcome, AMX_UD); /* W */
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x6F, 0x5E, 0xC1).outcome, AMX_UD); /* L */
}

static void test_bad_moves(void **state)
{
    (void)state;
    struct config c = shape(16, 16, 16);
    struct amx_unit u = {0};
    assert_int_equal(STEP(&u, LOAD_TMM1_RAX_RCX).outcome, AMX_UD); /* not configured */
    memcpy(memory, &c, sizeof c);
    assert_int_equal(STEP(&u, LDTILECFG_RAX).outcome, AMX_DONE);
    assert_int_equal(STEP(&u, LOAD_TMM1_RAX_RCX).outcome, AMX_DONE);
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x7B, 0x4B, 0x08).outcome, AMX_UD);       /* no SIB */
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x73, 0x4B, 0x0C, 0x08).outcome, AMX_UD); /* vvvv */
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x7B, 0x4B, 0x2C, 0x08).outcome, AMX_UD); /* tile 5 */
    /* Four rows from 0x1F00 are there, the fifth is not; with the rest mapped the load goes on at row 4. */
    struct amx_result r = STEP(&u, LOAD_TMM1_RDX_RCX);
    assert_int_equal(r.outcome, AMX_PAGE_FAULT);
    assert_int_equal(r.address, 0x2000);
    assert_int_equal(u.start_row, 4);
    memset(memory, 7, sizeof memory);
    uint8_t row3[64];
    memcpy(row3, u.tile[1][3], 64);
    assert_int_equal(STEP(&u, LOAD_TMM1_RAX_RCX).outcome, AMX_DONE); /* from another place, to see where it goes on */
    assert_int_equal(u.start_row, 0);
    assert_memory_equal(u.tile[1][3], row3, 64);
    assert_int_equal(u.tile[1][4][0], 7);
    assert_int_equal(u.tile[1][15][63], 7);
}

/* Denormals of f16 are numbers: 2^-24 * 2^-24, twice, in f32; from the encoding, since few CPUs have it. */
static void test_f16(void **state)
{
    (void)state;
    struct config c = shape(1, 1, 1);
    struct amx_unit u = {0};
    memcpy(memory, &c, sizeof c);
    assert_int_equal(STEP(&u, LDTILECFG_RAX).outcome, AMX_DONE);
    const uint16_t least[2] = {1, 0x8001};
    memcpy(u.tile[1][0], least, 4), memcpy(u.tile[2][0], least, 4);
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x6B, 0x5C, 0xC1).outcome, AMX_DONE);
    uint32_t got;
    memcpy(&got, u.tile[0][0], 4);
    assert_int_equal(got, bits(0x1p-47f));
    const uint16_t big[2] = {0x7BFF, 0xC200}, one[2] = {0x3C00, 0x3800}; /* 65504 * 1 - 3 * 0.5 */
    memset(u.tile[0], 0, sizeof u.tile[0]);
    memcpy(u.tile[1][0], big, 4), memcpy(u.tile[2][0], one, 4);
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x6B, 0x5C, 0xC1).outcome, AMX_DONE);
    memcpy(&got, u.tile[0][0], 4);
    assert_int_equal(got, bits(65502.5f));
}

/* Addresses without a base, relative to rip, and other instructions of the same look. */
static void test_encodings(void **state)
{
    (void)state;
    struct config c = shape(1, 1, 1);
    struct amx_unit u = {0};
    memcpy(memory + 0x10A, &c, sizeof c);
    /* ldtilecfg -0x6FF(%rip): 9 bytes from 0x1800 */
    struct amx_result r = STEP(&u, 0xC4, 0xE2, 0x78, 0x49, 0x05, 0x01, 0xF9, 0xFF, 0xFF);
    assert_int_equal(r.outcome, AMX_DONE);
    assert_int_equal(r.length, 9);
    assert_int_equal(u.colsb[2], 4);
    r = STEP(&u, 0xC4, 0xE2, 0x7B, 0x4B, 0x0C, 0x0D, 0x10, 0x11, 0, 0); /* tileloadd 0x1110(,%rcx), tmm1 */
    assert_int_equal(r.outcome, AMX_DONE);
    assert_int_equal(r.length, 10);
    assert_memory_equal(u.tile[1][0], memory + 0x110, 4);
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x7B, 0x4B, 0x0C).outcome, AMX_NOT_OURS); /* cut short */
    assert_int_equal(STEP(&u, 0x0F, 0x0B, 0, 0, 0).outcome, AMX_NOT_OURS);          /* ud2 */
    assert_int_equal(STEP(&u, 0xC4, 0xE2, 0x69, 0x50, 0xC1).outcome, AMX_NOT_OURS); /* vpdpbusd */
}

/* ---- the trap ---- */

static void *on_thread(void *out)
{
    struct config got;
    __asm__ volatile("sttilecfg %0" : "=m"(got));
    *(int *)out = got.palette;
    return NULL;
}

/* A thread's tiles are its own. */
static void test_threads(void **state)
{
    (void)state;
    amx_ready();
    struct config c = shape(1, 1, 1);
    int palette = -1;
    pthread_t t;
    load_config(&c);
    assert_int_equal(pthread_create(&t, NULL, on_thread, &palette), 0);
    pthread_join(t, NULL);
    release();
    assert_int_equal(palette, 0);
}

static int signal_of(void (*misuse)(void))
{
    pid_t pid = fork();
    if (!pid) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGILL, SIG_DFL);
        amx_ready();
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        misuse();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void misuse_config(void)
{
    struct config c = {.palette = 1, .rows = {1}};
    load_config(&c);
}

static void misuse_product(void)
{
    struct config c = shape(1, 2, 1);
    c.rows[2] = 1;
    load_config(&c);
    __asm__ volatile("tdpbssd %tmm2, %tmm1, %tmm0");
}

static void misuse_memory(void)
{
    struct config c = shape(2, 1, 1);
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page + 4096, 4096, PROT_NONE);
    load_config(&c);
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm0" : : "r"(page + 4092), "r"(4L) : "memory");
}

static void test_signals(void **state)
{
    (void)state;
    assert_int_equal(signal_of(misuse_config), SIGSEGV);
    assert_int_equal(signal_of(misuse_product), SIGILL);
    assert_int_equal(signal_of(misuse_memory), SIGSEGV);
}

int main(void)
{
    const struct CMUnitTest model[] = {cmocka_unit_test(test_bad_configs), cmocka_unit_test(test_bad_products), cmocka_unit_test(test_bad_moves),
                                       cmocka_unit_test(test_f16), cmocka_unit_test(test_encodings)};
    const struct CMUnitTest here[] = {cmocka_unit_test(test_config), cmocka_unit_test(test_move),    cmocka_unit_test(test_bytes),
                                      cmocka_unit_test(test_places), cmocka_unit_test(test_bf16),    cmocka_unit_test(test_threads),
                                      cmocka_unit_test(test_signals)};
    int failed = __builtin_cpu_supports("fma") ? cmocka_run_group_tests(model, NULL, NULL) : 0;
    enum amx_way way = amx_ready();
    print_message("tile instructions: %s\n", way == AMX_NATIVE ? "the CPU's" : way == AMX_EMULATED ? "the model's" : "not here");
    return failed + (way == AMX_ABSENT ? 0 : cmocka_run_group_tests(here, NULL, NULL));
}
