// SPDX-License-Identifier: Apache-2.0
/*
 * Objects, kernel cache and engine files. Engines are linked with a runtime of a few lines that is compiled here: it
 * finds the weights through AT_PHDR, runs kernel 0 on them and writes the result.
 */
#include "tests/unit/cpu_kernel.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/link.h"
#include "compiler/objects.h"
#include "config.h"
#include "runtime/abi/engine_format.h"

#define N_KERNELS 6

struct fixture {
    struct dim_ctx *ctx;
    struct diag_sink diag;
    char dir[64];
    struct lp_kernel *kernels[N_KERNELS];
    struct object_job jobs[N_KERNELS];
    char names[N_KERNELS][16];
};

static char *text_printf(const char *fmt, ...)
{
    char *s = malloc(4096);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s, 4096, fmt, ap);
    va_end(ap);
    return s;
}

/* y[i] = x[i] * (n + 2), 8 floats. */
static void make_jobs(struct fixture *f)
{
    for (int n = 0; n < N_KERNELS; n++) {
        char *text = text_printf("kernel \"k\" loc \"net:/%d\" schedule \"g\" slices 1 claim 0 {\n"
                                 "  arg @0 \"x\" : f32[8] align 4\n"
                                 "  arg @1 \"y\" : f32[8] align 4 writable\n"
                                 "  body(%%0) {\n"
                                 "    %%1 = load @0[%%0] cols 0 : f32<1x8>\n"
                                 "    %%2 = const %d : f32\n"
                                 "    %%3 = mul %%1, %%2 : f32<1x8>\n"
                                 "    store @1[%%0], %%3 cols 0\n"
                                 "  }\n"
                                 "}\n", n, n + 2);
        f->kernels[n] = lp_parse(text, strlen(text), "t.lp", f->ctx, &f->diag);
        if (!f->kernels[n]) diag_print_text(&f->diag, stderr);
        assert_non_null(f->kernels[n]);
        free(text);
        snprintf(f->names[n], sizeof f->names[n], "infr_k%d", n);
        f->jobs[n] = (struct object_job){f->kernels[n], target_level_find(target_find("x86-64"), "v2"), f->names[n], {0}, false};
    }
}

static void free_jobs(struct fixture *f)
{
    objects_free(f->jobs, N_KERNELS);
    for (int i = 0; i < N_KERNELS; i++) lp_kernel_destroy(f->kernels[i]);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->ctx = dim_ctx_create();
    diag_init(&f->diag);
    snprintf(f->dir, sizeof f->dir, "/tmp/infc-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    make_jobs(f);
    *state = f;
    return 0;
}

static int shell(const char *fmt, ...)
{
    char command[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    return system(command);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    free_jobs(f);
    assert_int_equal(shell("rm -rf '%s'", f->dir), 0);
    diag_deinit(&f->diag);
    dim_ctx_destroy(f->ctx);
    free(f);
    return 0;
}

static void compile(struct fixture *f, int threads, struct object_cache *cache)
{
    struct objects_options o = {.target = target_find("x86-64"), .n_threads = threads, .cache = cache};
    bool ok = objects_compile(&o, f->jobs, N_KERNELS, &f->diag);
    if (!ok) diag_print_text(&f->diag, stderr);
    assert_true(ok);
}

/* ---- objects and cache ---- */

static void test_threads_and_cache_give_equal_objects(void **state)
{
    struct fixture *f = *state, *g;
    void *other;
    struct diag_sink diag;
    diag_init(&diag);
    compile(f, 1, NULL);
    for (int pass = 0; pass < 3; pass++) { /* no cache; cache filled; cache used */
        struct object_cache *cache = pass ? object_cache_open(f->dir, "test", &diag) : NULL;
        setup(&other);
        g = other;
        if (pass) assert_non_null(cache);
        compile(g, 4, cache);
        for (int i = 0; i < N_KERNELS; i++) {
            assert_int_equal(g->jobs[i].from_cache, pass == 2);
            assert_int_equal(f->jobs[i].object.n_bytes, g->jobs[i].object.n_bytes);
            assert_memory_equal(f->jobs[i].object.data, g->jobs[i].object.data, g->jobs[i].object.n_bytes);
        }
        object_cache_close(cache, OBJECT_CACHE_MAX_BYTES);
        teardown(&other);
    }
    diag_deinit(&diag);
}

static int count_files(const char *dir, char last[300])
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            n++;
            snprintf(last, 300, "%s/%s", dir, e->d_name);
        }
    closedir(d);
    return n;
}

static struct object_cache *open_cache(struct fixture *f, const char *identity)
{
    struct object_cache *c = object_cache_open(f->dir, identity, &f->diag);
    assert_non_null(c);
    return c;
}

/* Stores one object; then a damaged entry, another compiler and another key must all miss. */
static void test_cache_trusts_nothing(void **state)
{
    struct fixture *f = *state;
    char bytes[] = "object bytes", path[300];
    struct target_object in = {bytes, sizeof bytes, 3, 77}, out = {0};
    struct strbuf key = {0}, other = {0};
    strbuf_puts(&key, "kernel text");
    strbuf_puts(&other, "kernel texu");
    struct object_cache *c = open_cache(f, "A");
    object_cache_store(c, &key, &in);
    assert_true(object_cache_find(c, &key, &out));
    assert_memory_equal(out.data, bytes, sizeof bytes);
    assert_int_equal(out.n_bytes, sizeof bytes);
    assert_int_equal(out.n_spills_in_loops, 3);
    assert_int_equal(out.scratch_bytes, 77);
    free(out.data);
    assert_false(object_cache_find(c, &other, &out));
    struct object_cache *b = open_cache(f, "B");
    assert_false(object_cache_find(b, &key, &out));
    object_cache_close(b, OBJECT_CACHE_MAX_BYTES);
    assert_int_equal(count_files(f->dir, path), 1);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (off_t at = 0; at < st.st_size; at += 5) {
        char was, changed;
        int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, &was, 1, at), 1);
        changed = (char)(was ^ 64);
        assert_int_equal(pwrite(fd, &changed, 1, at), 1);
        assert_false(object_cache_find(c, &key, &out));
        assert_int_equal(pwrite(fd, &was, 1, at), 1);
        close(fd);
    }
    assert_true(object_cache_find(c, &key, &out));
    free(out.data);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    assert_false(object_cache_find(c, &key, &out));
    object_cache_close(c, 0); /* no room for anything */
    assert_int_equal(count_files(f->dir, path), 0);
    strbuf_deinit(&key);
    strbuf_deinit(&other);
}

static void test_cache_of_others_is_refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(chmod(f->dir, 0777), 0);
    assert_null(object_cache_open(f->dir, "A", &f->diag));
    assert_int_equal(f->diag.error_count, 0);
    assert_int_equal(f->diag.items.n, 1);
    assert_int_equal(f->diag.items.v[0].severity, DIAG_SEV_WARNING);
}

static void test_diagnostics_are_in_order(void **state)
{
    struct fixture *f = *state;
    struct lp_builder b;
    for (int i = 1; i < N_KERNELS; i += 2) { /* ends in an op that CPUs have no code for */
        b = (struct lp_builder){f->kernels[i], f->kernels[i]->body};
        struct lp_op *op = ARENA_NEW(&f->kernels[i]->arena, struct lp_op);
        op->code = LP_OP_BARRIER;
        op->block = b.block;
        op->prev = b.block->last;
        b.block->last->next = op;
        b.block->last = op;
    }
    struct objects_options o = {.target = target_find("x86-64"), .n_threads = 4};
    assert_false(objects_compile(&o, f->jobs, N_KERNELS, &f->diag));
    assert_int_equal(f->diag.items.n, 3);
    assert_string_equal(f->diag.items.v[0].loc, "net:/1");
    assert_string_equal(f->diag.items.v[1].loc, "net:/3");
    assert_string_equal(f->diag.items.v[2].loc, "net:/5");
    assert_non_null(f->jobs[0].object.data);
}

/* ---- engines ---- */

static const char start_source[] =
    "__asm__(\".globl _start\\n_start: mov %rsp, %rdi\\n and $-16, %rsp\\n call start\\n\");\n"
    "typedef unsigned long u64;\n"
    "struct phdr { unsigned type, flags; u64 offset, vaddr, paddr, filesz, memsz, align; };\n"
    "extern void (*const infr_kernel_table[])(void *const *, const long *, long, long, void *);\n"
    "static long call(long n, long a, long b, long c) { long r; __asm__ volatile(\"syscall\" : \"=a\"(r) : \"a\"(n), \"D\"(a),"
    " \"S\"(b), \"d\"(c) : \"rcx\", \"r11\", \"memory\"); return r; }\n"
    "void start(long *sp) {\n"
    "  long *p = sp + 1 + sp[0] + 1; while (*p++) ; struct phdr *ph = 0; long n = 0;\n"
    "  for (; p[0]; p += 2) { if (p[0] == 3) ph = (struct phdr *)p[1]; if (p[0] == 5) n = p[1]; }\n"
    "  for (long i = 0; i < n; i++) if (ph[i].type == 1 && ph[i].align >= 0x200000 && ph[i].vaddr >= 0x1000000000) {\n"
    "    char *w = (char *)ph[i].vaddr; static float y[8]; void *bufs[2] = {w, y};\n"
    "    infr_kernel_table[0](bufs, 0, 0, 1, 0); call(1, 1, (long)y, sizeof y);\n"
    "    call(1, 1, (long)(w + ph[i].memsz - 4), 4); call(60, 0, 0, 0); }\n"
    "  call(60, 9, 0, 0);\n"
    "}\n";

/* The folder that stands for infc's lib: start code, and empty files for the rest. */
static void make_lib(struct fixture *f)
{
    const char *cc = getenv("INFC_CC");
    char path[128];
    snprintf(path, sizeof path, "%s/start.c", f->dir);
    FILE *c = fopen(path, "w");
    fputs(start_source, c);
    fclose(c);
    assert_int_equal(shell("cd '%s' && mkdir lib && %s -O1 -w -ffreestanding -fno-pic -fno-stack-protector -c start.c -o lib/crt1.o && "
                           ": >empty.c && for f in crti crtn runtime; do %s -c empty.c -o lib/$f.o || exit 1; done && "
                           "printf '!<arch>\\n' >lib/libc.a && cp lib/libc.a lib/libinfops.a && cp lib/libc.a lib/libevent.a",
                           f->dir, cc ? cc : "cc", cc ? cc : "cc"), 0);
}

struct weights {
    uint64_t n_bytes;
    bool fail;
};

/* Eight floats 1..8 at the start, -1.0 as the last four bytes, zeros between. */
static bool read_weights(void *context, uint64_t at, void *dst, size_t n)
{
    struct weights *w = context;
    float first[8] = {1, 2, 3, 4, 5, 6, 7, 8}, last = -1;
    if (w->fail && at > 0) return false;
    memset(dst, 0, n);
    if (at == 0) memcpy(dst, first, sizeof first);
    if (at + n == w->n_bytes) memcpy((char *)dst + n - 4, &last, 4);
    return true;
}

struct engine {
    struct link_object objects[N_KERNELS + 1];
    struct target_object data;
    struct link_input in;
    struct weights weights;
    char lib[100], path[100];
};

static void engine_init(struct fixture *f, struct engine *e, uint64_t weights_bytes)
{
    static const char *const table[] = {"infr_k1", "infr_k2", NULL};
    const struct target_data data = {.name = INFR_SYM_KERNELS, .symbols = table, .n_symbols = 3, .align_bytes = 8};
    const struct target *t = target_find("x86-64");
    compile(f, 1, NULL);
    make_lib(f);
    assert_true(t->emit_data(t, &data, 1, &e->data, &f->diag));
    for (int i = 0; i < N_KERNELS; i++) e->objects[i] = (struct link_object){f->jobs[i].object.data, f->jobs[i].object.n_bytes};
    e->objects[N_KERNELS] = (struct link_object){e->data.data, e->data.n_bytes};
    snprintf(e->lib, sizeof e->lib, "%s/lib", f->dir);
    snprintf(e->path, sizeof e->path, "%s/engine", f->dir);
    e->weights = (struct weights){weights_bytes, false};
    e->in = (struct link_input){.objects = e->objects, .n_objects = N_KERNELS + 1, .lib_dir = e->lib,
                                .weights_bytes = weights_bytes, .read_weights = read_weights, .context = &e->weights};
}

static void link_ok(struct fixture *f, const struct engine *e, const char *path)
{
    bool ok = link_engine(&e->in, path, &f->diag);
    if (!ok) diag_print_text(&f->diag, stderr);
    assert_true(ok);
}

/* infr_k1 triples. */
static void assert_runs(const char *path)
{
    float got[9];
    FILE *p = popen(path, "r");
    assert_int_equal(fread(got, 4, 9, p), 9);
    assert_int_equal(pclose(p), 0);
    for (int i = 0; i < 8; i++) assert_float_equal(got[i], 3.0f * (float)(i + 1), 0);
    assert_float_equal(got[8], -1.0f, 0);
}

static void test_engine(void **state)
{
    struct fixture *f = *state;
    struct engine e;
    engine_init(f, &e, 3000000);
    link_ok(f, &e, e.path);
    assert_runs(e.path);
    /* Equal bytes, whatever else is there, and through a symbolic link that stays one. */
    assert_int_equal(shell("cd '%s' && echo old >other && ln -s other link", f->dir), 0);
    char other[120];
    snprintf(other, sizeof other, "%s/link", f->dir);
    link_ok(f, &e, other);
    assert_int_equal(shell("cd '%s' && test -L link && cmp engine other && test \"$(ls -A | wc -l)\" = 6", f->dir), 0);
    /* What nothing refers to is gone; names of kernels stay. */
    assert_int_equal(shell("cd '%s' && grep -q infr_k2 engine && ! grep -q infr_k5 engine && ! grep -q '%s' engine", f->dir, f->dir), 0);
    free(e.data.data);
}

static void test_engine_survives_strip(void **state)
{
    struct fixture *f = *state;
    struct engine e;
    char llvm[300], path[120];
    engine_init(f, &e, 3000000);
    link_ok(f, &e, e.path);
    snprintf(llvm, sizeof llvm, "%.*s/llvm-strip", (int)(strrchr(INFC_CONFIG_LLD, '/') - INFC_CONFIG_LLD), INFC_CONFIG_LLD);
    const char *const tools[] = {"strip", llvm, "objcopy"};
    for (int i = 0; i < 3; i++) {
        if (shell("command -v %s >/dev/null", tools[i]) != 0) continue;
        snprintf(path, sizeof path, "%s/stripped%d", f->dir, i);
        if (i == 2) assert_int_equal(shell("objcopy '%s' '%s'", e.path, path), 0);
        else assert_int_equal(shell("cp '%s' '%s' && %s '%s'", e.path, path, tools[i], path), 0);
        assert_runs(path);
    }
    free(e.data.data);
}

/* More than a 32-bit offset takes; on disk it is small, because zeros are holes. */
static void test_large_weights(void **state)
{
    struct fixture *f = *state;
    struct engine e;
    struct stat st;
    engine_init(f, &e, ((uint64_t)2 << 30) + 12344);
    link_ok(f, &e, e.path);
    assert_int_equal(stat(e.path, &st), 0);
    assert_true((uint64_t)st.st_size > e.in.weights_bytes && st.st_blocks < 4096);
    assert_runs(e.path);
    free(e.data.data);
}

static void test_no_weights(void **state)
{
    struct fixture *f = *state;
    struct engine e;
    engine_init(f, &e, 0);
    link_ok(f, &e, e.path);
    assert_int_equal(WEXITSTATUS(system(e.path)), 9); /* ran, found none */
    free(e.data.data);
}

/* A build that fails leaves the old file and nothing else. */
static void test_failures_leave_the_old_engine(void **state)
{
    struct fixture *f = *state;
    struct engine e;
    engine_init(f, &e, 3000000);
    assert_int_equal(shell("echo old >'%s'", e.path), 0);
    e.weights.fail = true;
    assert_false(link_engine(&e.in, e.path, &f->diag));
    e.weights.fail = false;
    /* A full disk, as a limit on the size of files. */
    struct rlimit old, small = {1000000, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    bool ok = link_engine(&e.in, e.path, &f->diag);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_false(ok);
    assert_int_equal(f->diag.items.v[0].id, DIAG_FILE_WRITE);
    assert_int_equal(diag_exit_code(&f->diag), 3);
    assert_string_equal(f->diag.items.v[0].loc, e.path);
    /* A symbol that is nowhere: the linker's words arrive. */
    e.in.n_objects = 1;
    e.in.objects = &e.objects[N_KERNELS];
    assert_false(link_engine(&e.in, e.path, &f->diag));
    assert_int_equal(f->diag.items.v[1].id, DIAG_LINK);
    assert_non_null(strstr(f->diag.items.v[1].message, "infr_k1"));
    e.in.lld = "/nowhere/ld.lld";
    assert_false(link_engine(&e.in, e.path, &f->diag));
    assert_int_equal(f->diag.items.v[2].id, DIAG_LINK);
    assert_int_equal(shell("cd '%s' && test \"$(cat engine)\" = old && test \"$(ls -A | wc -l)\" = 4", f->dir), 0);
    /* Never in place of something that is no file. */
    e.in.lld = NULL;
    e.in.objects = e.objects;
    e.in.n_objects = N_KERNELS + 1;
    assert_false(link_engine(&e.in, "/dev/null", &f->diag));
    assert_int_equal(f->diag.items.v[3].id, DIAG_FILE_WRITE);
    assert_false(link_engine(&e.in, f->dir, &f->diag));
    assert_int_equal(f->diag.items.v[4].id, DIAG_FILE_WRITE);
    free(e.data.data);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_threads_and_cache_give_equal_objects), TEST(test_cache_trusts_nothing),
        TEST(test_cache_of_others_is_refused), TEST(test_diagnostics_are_in_order), TEST(test_engine),
        TEST(test_engine_survives_strip), TEST(test_large_weights), TEST(test_no_weights),
        TEST(test_failures_leave_the_old_engine),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
