// SPDX-License-Identifier: Apache-2.0
//
// The main program of every fuzz target: a small coverage-guided fuzzer, and a replayer of saved inputs.
//
//     fuzz_NAME FILE|FOLDER...                  runs each file once (make check does this)
//     fuzz_NAME --seconds=N FILE|FOLDER...      mutates them for N seconds (make fuzz)
//     options: --seed=N --max-len=BYTES --timeout=SECONDS
//
// A target defines LLVMFuzzerTestOneInput, the common name, so that it also runs under libFuzzer. It must
// return 0 for every input and keep no state. An input that crashes, leaks, hangs or trips a sanitiser
// ends the run with status 1 and is written to ./crash-HASH (./new-HASH are inputs that reached code no
// other one did). Feedback comes from -fsanitize-coverage=trace-pc, with which `make fuzz` compiles
// everything but this file; without it the mutations are blind and replaying works all the same.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    uint8_t *data;
    size_t size;
};

enum { EDGES = 1 << 16 };

// State of the one run this process does; the crash handlers need it, hence the file scope.
static struct {
    _Alignas(8) uint8_t edges[EDGES]; // hit counts of the running input
    uint8_t seen[EDGES];  // buckets of hit counts reached by any input so far
    uintptr_t previous;
    const uint8_t *data;
    size_t size;
    const char *path; // of the file being replayed, or NULL
    struct input *corpus;
    size_t n, capacity;
    size_t bytes; // all inputs of the corpus together
    size_t replayed;
    uint64_t random;
    size_t max_len;
    long seconds, timeout;
} f = {.max_len = 1 << 20, .timeout = 20, .random = 0x9e3779b97f4a7c15u};

// Called by instrumented code at every edge.
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    uintptr_t at = (pc ^ (pc >> 16)) * 0x9e3779b1u;
    uint8_t *count = &f.edges[((at >> 8) ^ f.previous) % EDGES];
    f.previous = at >> 9;
    if (*count < 255) {
        ++*count;
    }
}

// ---- crashes -------------------------------------------------------------------------------------

static uint64_t hash_bytes(const uint8_t *data, size_t size)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) {
        h = (h ^ data[i]) * 0x100000001b3u;
    }
    return h;
}

static void save_input(const char *kind, const uint8_t *data, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%016llx", kind, (unsigned long long)hash_bytes(data, size));
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (size_t done = 0; fd >= 0 && done < size;) {
        ssize_t k = write(fd, data + done, size - done);
        if (k <= 0) {
            break;
        }
        done += (size_t)k;
    }
    if (fd >= 0) {
        close(fd);
        if (strcmp(kind, "crash") == 0) {
            dprintf(2, "input saved as %s (%zu bytes)\n", name, size);
        }
    }
}

static void on_death(void)
{
    if (f.path) {
        dprintf(2, "while replaying %s\n", f.path);
    } else if (f.data) {
        save_input("crash", f.data, f.size);
    }
    f.data = NULL;
    f.path = NULL;
}

static void on_signal(int number)
{
    bool late = number == SIGALRM || number == SIGPROF;
    dprintf(2, "%s\n", late ? "hang: the input ran past --timeout" : "killed by a signal");
    on_death();
    _exit(1);
}

// Present in sanitised builds only.
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    // A length taken from the input must never become a huge allocation.
    return "max_allocation_size_mb=512:hard_rss_limit_mb=2048:allocator_may_return_null=1:exitcode=1";
}

const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
    // Its own end calls nobody back, and the input would be lost; abort is caught below.
    return "abort_on_error=1:print_stacktrace=1";
}

static void catch_crashes(void)
{
    static const int signals[] = {SIGPROF, SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(on_death);
    }
    // The sanitiser has better handlers for all but the timers and abort.
    size_t n = __sanitizer_set_death_callback ? 3 : sizeof signals / sizeof *signals;
    for (size_t i = 0; i < n; i++) {
        signal(signals[i], on_signal);
    }
}

// ---- running one input ---------------------------------------------------------------------------

// An input may take this much processor time, and ten times as long on a busy machine; 0: done.
static void run_for(long seconds)
{
    const struct itimerval t = {.it_value = {.tv_sec = seconds}};
    setitimer(ITIMER_PROF, &t, NULL);
    alarm((unsigned)(10 * seconds));
}

// Each input lies in a block of exactly its size, so that reading past it is an error ASan sees.
static void run_one(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) {
        exit(3);
    }
    memcpy(copy, data, size);
    f.data = data;
    f.size = size;
    f.previous = 0;
    run_for(f.timeout);
    LLVMFuzzerTestOneInput(copy, size);
    run_for(0);
    free(copy);
}

// Hit counts fall into eight buckets; a new bucket of an edge is news.
static size_t count_news(void)
{
    size_t news = 0;
    for (size_t i = 0; i < EDGES; i++) {
        uint64_t eight;
        memcpy(&eight, f.edges + i / 8 * 8, 8);
        if (!eight) { // nearly all of them
            i |= 7;
            continue;
        }
        uint8_t c = f.edges[i];
        if (c) {
            uint8_t bucket = (uint8_t)(1u << (c >= 128 ? 7 : c >= 32 ? 6 : c >= 16 ? 5 : c >= 8 ? 4
                                              : c >= 4 ? 3 : c - 1));
            news += !(f.seen[i] & bucket);
            f.seen[i] |= bucket;
        }
    }
    memset(f.edges, 0, sizeof f.edges);
    return news;
}

static size_t count_edges(void)
{
    size_t n = 0;
    for (size_t i = 0; i < EDGES; i++) {
        n += f.seen[i] != 0;
    }
    return n;
}

static void keep_input(const uint8_t *data, size_t size)
{
    if (f.bytes + size > (size_t)512 << 20) {
        return;
    }
    if (f.n == f.capacity) {
        f.capacity = f.capacity ? f.capacity * 2 : 256;
        f.corpus = realloc(f.corpus, f.capacity * sizeof *f.corpus);
    }
    uint8_t *copy = malloc(size ? size : 1);
    if (!f.corpus || !copy) {
        exit(3);
    }
    memcpy(copy, data, size);
    f.corpus[f.n++] = (struct input){copy, size};
    f.bytes += size;
}

// ---- files ---------------------------------------------------------------------------------------

static int replay_file(const char *path, size_t size)
{
    uint8_t *data = malloc(size ? size : 1);
    int fd = open(path, O_RDONLY);
    ssize_t k = fd >= 0 && data ? read(fd, data, size) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (k < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        free(data);
        return 3;
    }
    f.path = path;
    run_one(data, (size_t)k);
    f.path = NULL;
    f.replayed++;
    if (f.seconds && count_news()) {
        keep_input(data, (size_t)k);
    }
    free(data);
    return 0;
}

static int replay_path(const char *path, int depth)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 3;
    }
    if (!S_ISDIR(st.st_mode)) {
        // Long seeds make mutation slow; a replay takes everything.
        return f.seconds && (size_t)st.st_size > f.max_len ? 0 : replay_file(path, (size_t)st.st_size);
    }
    DIR *dir = depth < 8 ? opendir(path) : NULL;
    int status = 0;
    for (struct dirent *e; dir && status == 0 && (e = readdir(dir));) {
        char *inner;
        if (e->d_name[0] != '.' && asprintf(&inner, "%s/%s", path, e->d_name) > 0) {
            status = replay_path(inner, depth + 1);
            free(inner);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return status;
}

// ---- mutation ------------------------------------------------------------------------------------

static uint64_t random_below(uint64_t n)
{
    f.random ^= f.random << 13;
    f.random ^= f.random >> 7;
    f.random ^= f.random << 17;
    return n ? f.random % n : 0;
}

// Numbers that lengths, counts and dims break on.
static uint64_t bad_number(void)
{
    static const uint64_t numbers[] = {0, 1, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0xffff, 0x7fffffff,
        0x80000000u, 0xffffffffu, 0x100000000u, INT64_MAX, (uint64_t)INT64_MIN, UINT64_MAX};
    return numbers[random_below(sizeof numbers / sizeof *numbers)] + random_below(3) - 1;
}

// A protobuf varint, the number format of the models' files.
static size_t put_varint(uint8_t *at, uint64_t v)
{
    size_t n = 0;
    do {
        at[n++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        v >>= 7;
    } while (v);
    return n;
}

// One random change of data[0..size); the buffer holds max_len bytes. Returns the new size.
static size_t mutate(uint8_t *data, size_t size)
{
    size_t at = (size_t)random_below(size), left = size - at;
    size_t some = left ? (size_t)random_below(left < 64 ? left : 64) + 1 : 0;
    if (size == 0) {
        data[0] = (uint8_t)random_below(256);
        return 1;
    }
    switch (random_below(11)) {
    case 0: data[at] ^= (uint8_t)(1u << random_below(8)); break;
    case 1: data[at] = (uint8_t)random_below(256); break;
    case 2: data[at] = (uint8_t)(data[at] + random_below(33) - 16); break;
    case 3: { // a number of 1, 2, 4 or 8 bytes
        uint64_t v = bad_number();
        size_t width = (size_t)1 << random_below(4);
        memcpy(data + at, &v, width < left ? width : left);
        break;
    }
    case 4: { // a varint in place of the one that begins here
        uint8_t v[10];
        size_t old = 0, n = put_varint(v, bad_number());
        while (old < left && old < 10 && (data[at + old++] & 0x80)) {
        }
        if (size - old + n <= f.max_len) {
            memmove(data + at + n, data + at + old, left - old);
            memcpy(data + at, v, n);
            size = size - old + n;
        }
        break;
    }
    case 5: // remove a few bytes
        memmove(data + at, data + at + some, left - some);
        size -= some;
        break;
    case 6: // repeat a few bytes
        if (size + some <= f.max_len) {
            memmove(data + at + some, data + at, left);
            size += some;
        }
        break;
    case 7: size = at; break; // truncate
    case 8:
    case 9: { // a few bytes of another input in between: the words of a language
        const struct input *other = &f.corpus[random_below(f.n)];
        size_t from = (size_t)random_below(other->size), most = other->size - from < 24 ? other->size - from : 24;
        size_t take = most ? (size_t)random_below(most) + 1 : 0;
        if (size + take <= f.max_len) {
            memmove(data + at + take, data + at, left);
            memcpy(data + at, other->data + from, take);
            size += take;
        }
        break;
    }
    case 10: { // part of another input in its place
        const struct input *other = &f.corpus[random_below(f.n)];
        size_t from = (size_t)random_below(other->size);
        size_t take = other->size ? (size_t)random_below(other->size - from) + 1 : 0;
        take = take < f.max_len - at ? take : f.max_len - at;
        if (take) {
            memcpy(data + at, other->data + from, take);
            size = at + take > size ? at + take : size;
        }
        break;
    }
    }
    return size;
}

static int64_t clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

// Runs a second of processor time: on a busy machine the other figure says more about the machine.
static unsigned long long cpu_rate(uint64_t runs, int64_t cpu_begin)
{
    return (unsigned long long)(runs * 1000 / (uint64_t)(clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin + 1));
}

static void fuzz(void)
{
    static const uint8_t nothing[1];
    if (f.n == 0) {
        keep_input(nothing, 1);
    }
    uint8_t *data = malloc(f.max_len + 16);
    int64_t begin = now_ms(), shown = begin, now = begin, cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t runs = 0, fresh = 0;
    if (!data) {
        exit(3);
    }
    while (now - begin < f.seconds * 1000) {
        // Half of the time one of the newest inputs: they lead to code just found.
        size_t window = f.n > 16 && random_below(2) ? 16 : f.n;
        const struct input *from = &f.corpus[f.n - 1 - random_below(window)];
        size_t size = from->size < f.max_len ? from->size : f.max_len;
        memcpy(data, from->data, size);
        for (uint64_t k = random_below(4) + 1; k; k--) {
            size = mutate(data, size);
        }
        run_one(data, size);
        runs++;
        if (count_news()) {
            keep_input(data, size);
            save_input("new", data, size);
            fresh++;
        }
        now = now_ms();
        if (now - shown >= 10000) {
            shown = now;
            printf("%llu runs, %llu a second (%llu of CPU time), %zu edges, %zu inputs\n", (unsigned long long)runs,
                (unsigned long long)(runs * 1000 / (uint64_t)(now - begin)), cpu_rate(runs, cpu), count_edges(), f.n);
            fflush(stdout);
        }
    }
    printf("done: %llu runs, %llu a second (%llu of CPU time), %zu edges, %llu new inputs, nothing found\n",
        (unsigned long long)runs, (unsigned long long)(runs * 1000 / (uint64_t)(now - begin + 1)),
        cpu_rate(runs, cpu), count_edges(), (unsigned long long)fresh);
    free(data);
}

static int usage(const char *word)
{
    fprintf(stderr, "unknown option %s\nusage: fuzz_NAME [--seconds=N] [--seed=N] [--max-len=BYTES] "
                    "[--timeout=SECONDS] FILE|FOLDER...\n", word);
    return 2;
}

int main(int argc, char **argv)
{
    catch_crashes();
    for (int i = 1; i < argc; i++) {
        const char *value = strchr(argv[i], '=');
        long long number = value ? atoll(value + 1) : 0;
        if (strncmp(argv[i], "--", 2) != 0) {
            continue;
        } else if (strncmp(argv[i], "--seconds=", 10) == 0 && number > 0) {
            f.seconds = (long)number;
        } else if (strncmp(argv[i], "--seed=", 7) == 0 && number > 0) {
            f.random ^= (uint64_t)number * 0xbf58476d1ce4e5b9u;
        } else if (strncmp(argv[i], "--max-len=", 10) == 0 && number > 0) {
            f.max_len = (size_t)number;
        } else if (strncmp(argv[i], "--timeout=", 10) == 0 && number > 0) {
            f.timeout = (long)number;
        } else {
            return usage(argv[i]);
        }
    }
    int status = 0;
    for (int i = 1; i < argc && status == 0; i++) {
        if (strncmp(argv[i], "--", 2) != 0) {
            status = replay_path(argv[i], 0);
        }
    }
    if (status == 0 && f.seconds) {
        fuzz();
    } else if (status == 0) {
        printf("%zu inputs replayed\n", f.replayed);
    }
    f.data = NULL;
    for (size_t i = 0; i < f.n; i++) {
        free(f.corpus[i].data);
    }
    free(f.corpus);
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check()) {
        return 1;
    }
    return status;
}
