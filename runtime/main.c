// SPDX-License-Identifier: Apache-2.0
/* main() of every engine: finds the command and its options. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cli.h"

enum { RUN = 1, INFO = 2, SELFTEST = 4, BENCH = 8, PROFILE = 16, LICENSES = 32 };
enum { ON_INPUTS = RUN | BENCH | PROFILE };

static const struct command commands[] = {
    {"run", "run the model once", RUN, cmd_run,
     "Runs the model. Files are .npy, .npz (by name), .pb (ONNX TensorProto) or .bin (raw), by\n"
     "their ending; - is a stream of .npy arrays. With one input, its name may be left out; so "
     "may\n"
     "that of a single output. Without --output the outputs are printed.",
     "run --input x=x.npy --output y=y.npy\n"
     "run x.npz\n"
     "run --random=1 --shape x:1x8 --print\n"
     "run --input - --output - <x.npy >y.npy"},
    {"info", "what is in this engine", INFO, cmd_info,
     "Shows model, inputs, outputs, instruction levels, sizes and kernels.",
     "info\n"
     "info --json"},
    {"selftest", "compare with the outputs computed at build time", SELFTEST, cmd_selftest,
     "Checks the weights' hash and runs the golden vectors at every instruction level that this\n"
     "CPU has.",
     "selftest\n"
     "selftest --isa=v2"},
    {"bench", "measure latency", BENCH, cmd_bench,
     "Runs the model repeatedly, inputs from files or made up, and shows latency percentiles and\n"
     "throughput.",
     "bench\n"
     "bench --shape x:8x128 --threads=4\n"
     "bench --seconds=10 --json\n"
     "bench --loop                 # what infc bench talks to"},
    {"profile", "time of each kernel launch", PROFILE, cmd_profile,
     "Runs the model repeatedly with a clock around each launch. The extra barriers make the sum\n"
     "larger than a run takes.",
     "profile\n"
     "profile --repeat=50 --json\n"
     "profile --trace=trace.json   # for chrome://tracing or ui.perfetto.dev"},
    {"licenses", "licence notices", LICENSES, cmd_licenses,
     "Prints the notices of everything that is linked into this file.", "licenses"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

enum opt_id {
    O_INPUT, O_OUTPUT, O_SHAPE, O_RANDOM, O_REPEAT, O_SECONDS, O_THREADS, O_ISA, O_DEVICE,
    O_HUGEPAGES,
    O_PRINT, O_JSON, O_LOOP, O_TRACE, O_HELP
};

/* Defined in engines of language models alone, and in those that were built with --serve. */
extern const struct cli_extra infr_text_commands __attribute__((weak));
extern const struct cli_extra infr_serve_commands __attribute__((weak));

static const struct option_row {
    const char *name, *argument; /* NULL: a flag */
    enum opt_id id;
    unsigned commands;
    const char *text;
} options[] = {
    {"--input", "[NAME=]FILE", O_INPUT, ON_INPUTS, "read an input; may be repeated"},
    {"--output", "[NAME=]FILE", O_OUTPUT, RUN,
     "write an output; may be repeated; a .npz takes all"},
    {"--shape", "NAME:DIMS", O_SHAPE, ON_INPUTS,
     "dims of an input that is raw or made up (x:1x8), or a symbol's value (seq:128)"},
    {"--random", "SEED", O_RANDOM, ON_INPUTS, "make up missing inputs from this seed"},
    {"--repeat", "N", O_REPEAT, ON_INPUTS, "number of runs"},
    {"--seconds", "S", O_SECONDS, BENCH | PROFILE, "measure for about this long [2]"},
    {"--threads", "N", O_THREADS, ON_INPUTS | SELFTEST | INFO,
     "workers [as many as affinity and cgroup allow]"},
    {"--isa", "LEVEL", O_ISA, ON_INPUTS | SELFTEST | INFO,
     "v2, v3, v4, vnni or amx [the highest possible]"},
    {"--device", "DEVICE", O_DEVICE, ON_INPUTS | SELFTEST | INFO,
     "cuda, cpu or auto: a GPU where engine and machine have one of a kind [auto]"},
    {"--hugepages", "HOW", O_HUGEPAGES, ON_INPUTS | SELFTEST | INFO,
     "copy: the weights are copied to huge pages first; file: they stay where the file is mapped [file]"},
    {"--print", NULL, O_PRINT, RUN, "print outputs, also those that are written"},
    {"--json", NULL, O_JSON, INFO | SELFTEST | BENCH | PROFILE, "machine-readable output"},
    {"--loop", NULL, O_LOOP, BENCH,
     "N on standard input: N runs, their times on standard output (for infc bench)"},
    {"--trace", "FILE", O_TRACE, PROFILE, "write what each worker did when, as a Chrome trace"},
    {"--help", NULL, O_HELP, ~0u, "this text"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

/* A command of language models, which comes before one of the same name here. */
static const struct cli_extra_command *find_extra(const char *name)
{
    for (int i = 0; &infr_text_commands && i < infr_text_commands.n; i++)
        if (!strcmp(name, infr_text_commands.rows[i].name)) return &infr_text_commands.rows[i];
    for (int i = 0; &infr_serve_commands && i < infr_serve_commands.n; i++)
        if (!strcmp(name, infr_serve_commands.rows[i].name)) return &infr_serve_commands.rows[i];
    return NULL;
}

/* ---- help ---- */

static void help_all(FILE *f, const char *program)
{
    fprintf(f, "usage: %s COMMAND [OPTION]...\n\ncommands:\n", program);
    const struct cli_extra *extra = &infr_text_commands;
    for (int i = 0; extra && i < extra->n; i++)
        fprintf(f, "  %-10s %s\n", extra->rows[i].name, extra->rows[i].summary);
    for (int i = 0; !extra && &infr_serve_commands && i < infr_serve_commands.n; i++)
        fprintf(f, "  %-10s %s\n", infr_serve_commands.rows[i].name,
                infr_serve_commands.rows[i].summary);
    for (int i = 0; i < N_COMMANDS; i++)
        if (!find_extra(commands[i].name) && !(extra && commands[i].bit == RUN))
            fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(f,
            "\n%s COMMAND --help shows a command's options and examples; --version the compiler's "
            "version.\n",
            program);
    fputs("exit status: 0 right, 2 bad input or usage, 3 environment (files, memory, CPU), 4 a "
          "test failed, 70 a bug\n\nexamples:\n",
          f);
    if (extra)
        fprintf(f, "  %s generate -p 'Once upon a time'\n  %s chat\n  %s bench\n", program, program,
                program);
    else
        fprintf(f, "  %s info\n  %s run --random=1\n  %s run --input x=x.npy --output y.npy\n",
                program, program, program);
}

static void help_command(FILE *f, const char *program, const struct command *cmd)
{
    fprintf(f, "usage: %s %s [OPTION]...\n\n%s\n\noptions:\n", program, cmd->name, cmd->text);
    for (int i = 0; i < N_OPTIONS; i++) {
        char left[64];
        if (!(options[i].commands & cmd->bit)) continue;
        snprintf(left, sizeof left, "%s%s%s", options[i].name, options[i].argument ? "=" : "",
                 options[i].argument ? options[i].argument : "");
        fprintf(f, "  %-24s %s\n", left, options[i].text);
    }
    fputs("\nexamples:\n", f);
    for (const char *p = cmd->examples; *p;) {
        size_t n = strcspn(p, "\n");
        fprintf(f, "  %s %.*s\n", program, (int)n, p);
        p += n + (p[n] == '\n');
    }
}

static int version(void)
{
    struct infr_image image;
    struct infr_engine e = {0};
    struct infr_status st = {0};
    if (rt_self_image(&image, &st) || rt_plan_load(&e, image.plan, image.plan_bytes, &st))
        return cli_error(&st);
    uint32_t s = e.h.compiler_version;
    bool ok = s && s < e.blob_bytes && memchr(e.blob + s, 0, e.blob_bytes - s);
    printf("%s, plan format %u.%u\n", ok ? (const char *)e.blob + s : "?", e.h.major, e.h.minor);
    for (int i = 0; i < e.n_copies; i++) free(e.copies[i]);
    return INFR_OK;
}

/* ---- options ---- */

static bool take_integer(const char *text, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 0);
    if (end == text || *end || errno || *text == '-' || v > max) return false;
    *out = v;
    return true;
}

static int apply(struct cli *c, const struct option_row *o, char *value)
{
    uint64_t n = 0;
    char *end;
    switch (o->id) {
    case O_INPUT: c->inputs[c->n_inputs++] = value; return 0;
    case O_OUTPUT: c->outputs[c->n_outputs++] = value; return 0;
    case O_SHAPE: c->shapes[c->n_shapes++] = value; return 0;
    case O_PRINT: c->print = true; return 0;
    case O_JSON: c->json = true; return 0;
    case O_LOOP: c->loop = true; return 0;
    case O_TRACE: c->trace = value; return 0;
    case O_ISA: c->engine_options.isa = value; return 0;
    case O_HUGEPAGES: c->engine_options.hugepages = value; return 0;
    case O_DEVICE: c->engine_options.device = value; return 0;
    case O_HELP: return 0;
    case O_RANDOM:
        c->random = true;
        if (take_integer(value, UINT64_MAX, &c->seed)) return 0;
        break;
    case O_REPEAT:
        c->repeat_given = true;
        if (take_integer(value, 1000000000, &n) && n) return c->repeat = (long)n, 0;
        break;
    case O_THREADS:
        if (take_integer(value, RT_MAX_WORKERS, &n) && n)
            return c->engine_options.threads = (int)n, 0;
        break;
    case O_SECONDS:
        c->seconds = strtod(value, &end);
        if (end != value && !*end && c->seconds > 0 && c->seconds <= 86400) return 0;
        break;
    }
    return cli_usage("%s: '%s' is not possible; see %s %s --help", o->name, value, c->program,
                     c->command);
}

static const struct option_row *find_option(const char *arg, unsigned command, char **value)
{
    size_t n = strcspn(arg, "=");
    for (int i = 0; i < N_OPTIONS; i++) {
        if (strlen(options[i].name) != n || memcmp(options[i].name, arg, n) ||
            !(options[i].commands & command))
            continue;
        *value = arg[n] ? (char *)(uintptr_t)arg + n + 1 : NULL;
        return &options[i];
    }
    return NULL;
}

/* Returns -1 to go on. */
static int parse(struct cli *c, const struct command *cmd, int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        char *value = NULL;
        if ((argv[i][0] != '-' || !argv[i][1]) &&
            (cmd->bit & ON_INPUTS)) { /* a bare file is an input */
            c->inputs[c->n_inputs++] = argv[i];
            continue;
        }
        const struct option_row *o = find_option(argv[i], cmd->bit, &value);
        if (!o)
            return cli_usage("%s has no option '%s'; see %s %s --help", cmd->name, argv[i],
                             c->program, cmd->name);
        if (o->id == O_HELP) {
            help_command(stdout, c->program, cmd);
            return INFR_OK;
        }
        if (!o->argument && value) return cli_usage("%s takes no value", o->name);
        if (o->argument && !value) {
            if (i + 1 == argc)
                return cli_usage("%s needs a value: %s=%s", o->name, o->name, o->argument);
            value = argv[++i];
        }
        int code = apply(c, o, value);
        if (code) return code;
    }
    return -1;
}

static int run_command(const struct command *cmd, int argc, char **argv)
{
    struct cli c = {.program = argv[0], .command = cmd->name, .repeat = 1, .seconds = 2};
    char **lists = calloc(3 * (size_t)argc, sizeof *lists);
    if (!lists) return INFR_ENVIRONMENT;
    c.inputs = lists, c.outputs = lists + argc, c.shapes = lists + 2 * argc;
    int code = parse(&c, cmd, argc, argv);
    if (code < 0) code = cmd->run(&c);
    free(lists);
    return code;
}

static int dispatch(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        help_all(stdout, argv[0]);
        return INFR_OK;
    }
    if (!strcmp(name, "--version")) return version();
    const struct cli_extra_command *extra = find_extra(name);
    if (extra) return extra->run(argc, argv);
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(name, commands[i].name)) return run_command(&commands[i], argc, argv);
    if (*name) cli_usage("no command '%s'", name);
    help_all(stderr, argv[0]);
    return INFR_BAD_INPUT;
}

int main(int argc, char **argv)
{
    char *nameless[] = {(char[]){"engine"}, NULL};
    int code = argc > 0 ? dispatch(argc, argv) : dispatch(1, nameless);
    if (fflush(stdout) || ferror(stdout)) {
        if (!code) fprintf(stderr, "error: cannot write to standard output: %s\n", strerror(errno));
        return code ? code : INFR_ENVIRONMENT;
    }
    return code;
}
