// SPDX-License-Identifier: Apache-2.0
/* infc: the command table, help, and the end of every command: diagnostics and the exit code. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "compiler/commands.h"
#include "compiler/version.h"

struct command {
    const char *name, *args, *doc;
    unsigned bit;
    int (*run)(const struct options *o, struct diag_sink *diag);
    const char *examples;
};

static const struct command commands[] = {
    {"build", "MODEL", "compile a model to one self-contained engine executable", CMD_BUILD, cmd_build,
     "  infc build model.onnx                         # writes ./model\n"
     "  infc build model.onnx -o engine --target=x86-64-v3\n"
     "  infc build model.onnx --shape=input:1,3,224,224 --report\n"
     "  infc build model.onnx --stop-after=group      # tensor IR as text\n"},
    {"check", "MODEL", "list every problem of a model at once", CMD_CHECK, cmd_check,
     "  infc check model.onnx\n  infc check model.onnx --json | jq '.[].code'\n"},
    {"inspect", "MODEL", "inputs, outputs, operators and sizes of a model", CMD_INSPECT, cmd_inspect,
     "  infc inspect model.onnx\n  infc inspect model.onnx --json\n"},
    {"verify", "MODEL [ENGINE]", "compare an engine with the reference evaluator", CMD_VERIFY, cmd_verify,
     "  infc verify model.onnx\n  infc verify model.onnx ./model --input=x=x.npy --tolerance=1e-5\n"},
    {"bench", "ENGINE [ENGINE..]", "compare the speed of engines and other commands, measured in turn", CMD_BENCH, cmd_bench,
     "  infc bench ./a ./b                            # is ./b slower than ./a, and by how much\n"
     "  infc bench ./a './a --threads=1'              # one engine with two sets of options\n"
     "  infc bench ./old ./new --fail-if-slower=2% --html=out.html\n"
     "  infc bench ./a --loop-peer='python3 peer.py' --args='--shape x:8x128'\n"
     "  infc bench ./a --sweep=seq=1..512 --model=model.onnx\n"},
    {"serve", "DIR|FILE", "many engines behind one address: started on demand, stopped when idle, restarted", CMD_SERVE, cmd_serve,
     "  infc serve engines/                           # every engine of a folder, by the names of the files\n"
     "  infc serve models.conf --listen 0.0.0.0:8000 --memory 16G --idle 600\n"
     "  curl localhost:8080/v1/models\n"
     "  curl localhost:8080/v1/chat/completions -d '{\"model\": \"smollm2\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'\n"
     "\nmodels.conf has a line for each engine, NAME = FILE [OPTION]..., with options of `FILE serve`:\n"
     "  small = engines/smollm2 --parallel 16 --ctx 4096\n"
     "  # the tensors of an image model: infc build resnet50.onnx --serve\n"
     "  resnet50 = engines/resnet50 --threads 1\n"},
    {"targets", "", "list targets and their instruction levels", CMD_TARGETS, cmd_targets, "  infc targets --json\n"},
    {"ops", "", "list the core operators", CMD_OPS, cmd_ops, "  infc ops\n"},
    {"passes", "", "list the compiler's passes in order", CMD_PASSES, cmd_passes, "  infc passes\n"},
    {"explain", "CODE", "explain a diagnostic's code", CMD_EXPLAIN, cmd_explain, "  infc explain E203\n"},
    {"docs", "PAGE", "print a generated page: ops, onnx-support, diagnostics, options", CMD_DOCS, cmd_docs, "  infc docs options > options.md\n"},
};

static void print_help(FILE *out)
{
    fputs("infc compiles AI models to self-contained executables.\n\nusage: infc COMMAND [OPTIONS] ...\n\ncommands:\n", out);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        fprintf(out, "  %-8s %-16s %s\n", commands[i].name, commands[i].args, commands[i].doc);
    fputs("\nexamples:\n  infc build model.onnx && ./model run --input x=x.npy --print\n  infc check model.onnx\n"
          "\n`infc COMMAND --help` shows a command's options. Exit codes: 0 right, 2 bad input or usage,\n"
          "3 environment, 4 a gate failed, 70 a bug of infc.\n", out);
}

static void print_command_help(const struct command *c)
{
    printf("usage: infc %s [OPTIONS]%s%s\n\n%s\n\noptions:\n", c->name, c->args[0] ? " " : "", c->args, c->doc);
    options_help(stdout, c->bit);
    printf("\nexamples:\n%s", c->examples);
}

/* An assertion failed: the message is out already; say how to report it and leave with the code for our own bugs. */
static void on_abort(int sig)
{
    (void)sig;
    static const char msg[] = "infc: this is a bug of infc; please report it with the model and this command line\n";
    ssize_t ignored = write(STDERR_FILENO, msg, sizeof msg - 1);
    (void)ignored;
    _exit(70);
}

static int finish(const struct options *o, struct diag_sink *diag, int code)
{
    if (o && option_given(o, OPT_JSON) && o->command == CMD_CHECK) diag_print_json(diag, stdout);
    else if (o && option_given(o, OPT_JSON)) diag_print_json(diag, stderr);
    else diag_print_text(diag, stderr);
    if (code == 0) code = diag_exit_code(diag);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("infc: standard output");
        if (code == 0) code = 3;
    }
    return code;
}

int main(int argc, char **argv)
{
    signal(SIGABRT, on_abort);
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
        printf("infc %s\n", INFC_VERSION);
        return 0;
    }
    const struct command *c = NULL;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (!strcmp(commands[i].name, argv[1])) c = &commands[i];
    if (!c) {
        fprintf(stderr, "infc: unknown command '%s'; `infc --help` lists the commands\n", argv[1]);
        return 2;
    }
    struct diag_sink diag;
    struct options o;
    diag_init(&diag);
    int code = 0;
    bool ok = options_parse(&o, c->bit, argc - 2, argv + 2, &diag);
    if (option_given(&o, OPT_HELP)) {
        print_command_help(c);
    } else if (ok) {
        code = c->run(&o, &diag);
        code = finish(&o, &diag, code);
    } else {
        code = finish(NULL, &diag, 2);
    }
    options_deinit(&o);
    diag_deinit(&diag);
    return code;
}
