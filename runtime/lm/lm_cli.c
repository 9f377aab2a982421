// SPDX-License-Identifier: Apache-2.0
#include "runtime/lm/lm_cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io.h"

#define SPEED (LM_BENCH | LM_PROFILE)
#define ANY \
    (LM_GENERATE | LM_CHAT | LM_PERPLEXITY | LM_TOKENIZE | LM_DETOKENIZE | LM_EMBED | SPEED | \
     LM_SERVE | LM_LOGITS | LM_REPLAY | LM_RANK)
#define SAMPLES (LM_GENERATE | LM_CHAT)
#define DEFAULTS (SAMPLES | LM_SERVE) /* a request may say otherwise */
#define RUNS (LM_GENERATE | LM_CHAT | LM_PERPLEXITY | LM_EMBED | SPEED | LM_SERVE | LM_LOGITS | LM_REPLAY | LM_RANK)
#define READS (LM_GENERATE | LM_PERPLEXITY | LM_TOKENIZE | LM_EMBED | LM_RANK)

enum kind { FLAG, INT, REAL, TEXT, LIST, BYTES, SEED, THREADS, ISA, ON_FULL, MIROSTAT, HELP };

#define AT(field) offsetof(struct lm_cli, field)
#define NOTE(field) (offsetof(struct lm_cli, field##_given) + 1)

static const struct option_row {
    const char *name, *argument;
    enum kind kind;
    unsigned commands;
    size_t at;       /* the field */
    double lo, hi;   /* of numbers */
    size_t given_at; /* offset of a bool + 1, or 0 */
    const char *text;
} options[] = {
    {"--prompt", "TEXT", TEXT, READS | LM_CHAT, AT(prompt), 0, 0, 0, "the text; also -p"},
    {"--file", "FILE", TEXT, READS | LM_LOGITS, AT(file), 0, 0, 0,
     "read the text from a file; - is standard input; also -f"},
    {"--predict", "N", INT, DEFAULTS | SPEED | LM_LOGITS, AT(predict), 0, 1 << 30, NOTE(predict),
     "tokens to generate at most; also -n [until the model ends]"},
    {"--system", "TEXT", TEXT, LM_CHAT, AT(system), 0, 0, 0, "system message"},
    {"--template", "NAME", TEXT, LM_CHAT, AT(template_name), 0, 0, 0,
     "chat template, where the model has several"},
    {"--template-args", "JSON", TEXT, LM_CHAT | LM_SERVE, AT(template_args), 0, 0, 0,
     "object of variables for the template"},
    {"--temp", "T", REAL, DEFAULTS, AT(sampling.temp), 0, 100, NOTE(temp),
     "temperature; 0: always the most probable token [the model's, else 0.8]"},
    {"--seed", "S", SEED, DEFAULTS, AT(sampling.seed), 0, 0, NOTE(seed),
     "of the random numbers [random]"},
    {"--top-k", "K", INT, DEFAULTS, AT(sampling.top_k), 0, INT32_MAX, NOTE(top_k),
     "only the K most probable; 0: all [the model's, else 40]"},
    {"--top-p", "P", REAL, DEFAULTS, AT(sampling.top_p), 0, 1, NOTE(top_p),
     "only the most probable that make up P [the model's, else 0.95]"},
    {"--min-p", "P", REAL, DEFAULTS, AT(sampling.min_p), 0, 1, NOTE(min_p),
     "only those with P times the best one's probability [the model's, else 0.05]"},
    {"--typical", "P", REAL, DEFAULTS, AT(sampling.typical_p), 0, 1, 0,
     "only the most typical that make up P [1: off]"},
    {"--top-n-sigma", "N", REAL, DEFAULTS, AT(sampling.top_n_sigma), 0, 1000, 0,
     "only logits within N deviations of the best [0: off]"},
    {"--repeat-penalty", "R", REAL, DEFAULTS, AT(sampling.repeat_penalty), 0.01, 100, NOTE(repeat),
     "divides logits of tokens that were there [the model's, else 1: off]"},
    {"--frequency-penalty", "X", REAL, DEFAULTS, AT(sampling.frequency_penalty), -100, 100, 0,
     "from a token's logit, times its count [0]"},
    {"--presence-penalty", "X", REAL, DEFAULTS, AT(sampling.presence_penalty), -100, 100, 0,
     "from the logit of each token that was there [0]"},
    {"--penalty-last-n", "N", INT, DEFAULTS, AT(sampling.penalty_last_n), -1, INT32_MAX, 0,
     "tokens that the penalties look back; -1: all [64]"},
    {"--dry-multiplier", "X", REAL, SAMPLES, AT(sampling.dry_multiplier), 0, 100, 0,
     "DRY against repetitions [0: off]"},
    {"--dry-base", "X", REAL, SAMPLES, AT(sampling.dry_base), 1, 100, 0, "[1.75]"},
    {"--dry-allowed-length", "N", INT, SAMPLES, AT(sampling.dry_allowed_length), 1, INT32_MAX, 0,
     "[2]"},
    {"--dry-last-n", "N", INT, SAMPLES, AT(sampling.dry_last_n), -1, INT32_MAX, 0, "[-1: all]"},
    {"--dry-breaker", "TEXT", LIST, SAMPLES, AT(breakers), 0, 0, 0,
     "repetitions end at it; may be repeated [newline : \" *]"},
    {"--xtc-probability", "P", REAL, SAMPLES, AT(sampling.xtc_probability), 0, 1, 0,
     "how often the top choices are left out [0]"},
    {"--xtc-threshold", "P", REAL, SAMPLES, AT(sampling.xtc_threshold), 0, 1, 0,
     "what a top choice is [0.1]"},
    {"--mirostat", "2", MIROSTAT, SAMPLES, AT(sampling.mirostat), 0, 0, 0,
     "mirostat 2 in place of the cuts above [0]"},
    {"--mirostat-tau", "X", REAL, SAMPLES, AT(sampling.mirostat_tau), 0, 100, 0,
     "surprise to aim at, in bits [5]"},
    {"--mirostat-eta", "X", REAL, SAMPLES, AT(sampling.mirostat_eta), 0, 100, 0,
     "learning rate [0.1]"},
    {"--logit-bias", "ID=X", LIST, SAMPLES, AT(biases), 0, 0, 0,
     "added to a token's logit; -inf: never; may be repeated"},
    {"--stop", "TEXT", LIST, SAMPLES, AT(stops), 0, 0, 0,
     "ends the answer and is not shown; may be repeated"},
    {"--stop-token", "ID", LIST, SAMPLES, AT(stop_tokens), 0, 0, 0, "likewise; may be repeated"},
    {"--json-schema", "FILE", TEXT, SAMPLES, AT(json_schema), 0, 0, 0,
     "the answer is JSON that fits the schema"},
    {"--jumps", NULL, FLAG, SAMPLES, AT(jumps), 0, 0, 0,
     "text that the grammar forces takes fewer steps; the answer is the same"},
    {"--json-object", NULL, FLAG, SAMPLES, AT(json_object), 0, 0, 0, "the answer is a JSON object"},
    {"--grammar", "FILE", TEXT, SAMPLES, AT(grammar), 0, 0, 0,
     "the answer fits the GBNF grammar, or Lark's where the name ends with .lark"},
    {"--regex", "RE", TEXT, SAMPLES, AT(regex), 0, 0, 0,
     "the answer as a whole matches the regular expression"},
    {"--ignore-eos", NULL, FLAG, SAMPLES, AT(ignore_eos), 0, 0, 0,
     "tokens that end generation are never drawn"},
    {"--min-tokens", "N", INT, SAMPLES, AT(min_tokens), 0, 1 << 30, 0,
     "nothing ends the answer before"},
    {"--choices", "N", INT, LM_GENERATE, AT(choices), 1, 64, 0,
     "so many answers to the prompt [1]"},
    {"--logprobs", "N", INT, LM_GENERATE, AT(logprobs), 0, LM_MAX_LOGPROBS, 0,
     "log probability of each token and of N others"},
    {"--prompt-logprobs", NULL, FLAG, LM_GENERATE, AT(prompt_logprobs), 0, 0, 0,
     "those of the prompt's tokens too"},
    {"--special", NULL, FLAG, LM_GENERATE | LM_CHAT | LM_DETOKENIZE, AT(show_special), 0, 0, 0,
     "write control tokens as text"},
    {"--parse-special", NULL, FLAG, LM_GENERATE | LM_TOKENIZE | LM_PERPLEXITY, AT(parse_special), 0,
     0, 0, "control tokens in the text are control tokens"},
    {"--no-bos", NULL, FLAG, READS & ~(unsigned)(LM_EMBED | LM_RANK), AT(no_bos), 0, 0, 0,
     "no token for the beginning"},
    {"--no-eos", NULL, FLAG, LM_TOKENIZE, AT(no_eos), 0, 0, 0, "no token for the end"},
    {"--batch", "N", INT, SPEED | LM_LOGITS, AT(batch), 1, 1024, 0, "answers at a time [1]"},
    {"--all", NULL, FLAG, LM_LOGITS, AT(all_rows), 0, 0, 0, "logits of the prompt's positions, too"},
    {"--raw", NULL, FLAG, LM_LOGITS, AT(raw), 0, 0, 0, "write the logits, f32, in place of hashes"},
    {"--warm", NULL, FLAG, LM_LOGITS, AT(warm), 0, 0, 0,
     "read all prompts before, so that their pages are found"},
    {"--preempt", "N", INT, LM_LOGITS, AT(preempt), 1, 1 << 30, 0,
     "with every N tokens the youngest answer gives its pages back [never]"},
    {"--prompt-tokens", "N", INT, SPEED, AT(bench_prompt), 1, 1 << 24, 0,
     "length of the prompt [512]"},
    {"--repeat", "N", INT, LM_BENCH, AT(repeat), 1, 1000, 0,
     "runs, of which the median counts [3]"},
    {"--loop", NULL, FLAG, LM_BENCH, AT(loop), 0, 0, 0,
     "N on standard input: N runs, their figures on standard output (for infc bench)"},
    {"--trace", "FILE", TEXT, LM_PROFILE, AT(trace), 0, 0, 0,
     "write what each worker did when, as a Chrome trace"},
    {"--stride", "N", INT, LM_PERPLEXITY, AT(stride), 1, 1 << 30, 0,
     "windows begin every N tokens [the context]"},
    {"--pooling", "HOW", TEXT, LM_EMBED | LM_SERVE, AT(pooling), 0, 0, 0, "mean, cls or last [the model's]"},
    {"--no-normalize", NULL, FLAG, LM_EMBED, AT(no_normalize), 0, 0, 0,
     "vectors as they are, not of length 1"},
    {"--ctx", "N", INT, RUNS, AT(ctx), 1, 1 << 30, NOTE(ctx),
     "tokens of context [what the model was trained for]"},
    {"--kv-memory", "BYTES", BYTES, RUNS, AT(kv_memory), 0, 0, 0,
     "for the KV cache: 512M, 2G [by --ctx, half of the memory at most]"},
    {"--chunk", "N", INT, RUNS, AT(chunk), 1, 1 << 20, 0,
     "tokens the model works on at a time [512]"},
    {"--on-full", "WHAT", ON_FULL, DEFAULTS, AT(on_full), 0, 0, 0,
     "stop, or slide: forget the older half and go on [stop]"},
    {"--keep", "N", INT, LM_GENERATE, AT(keep), 0, 1 << 30, 0,
     "tokens at the beginning that sliding keeps [1 with a bos, else 0]"},
    {"--threads", "N", THREADS, RUNS, 0, 1, RT_MAX_WORKERS, 0,
     "workers [as many as affinity and cgroup allow]"},
    {"--isa", "LEVEL", ISA, RUNS, 0, 0, 0, 0, "v2, v3, v4, vnni or amx [the highest possible]"},
    {"--hugepages", "HOW", TEXT, RUNS, AT(engine_options.hugepages), 0, 0, 0,
     "copy: the weights are copied to huge pages first; file: they stay where the file is mapped [file]"},
    {"--device", "DEVICE", TEXT, RUNS, AT(engine_options.device), 0, 0, 0,
     "cuda, cpu or auto: a GPU where engine and machine have one of a kind [auto]"},
    {"--config", "FILE", TEXT, LM_SERVE, AT(config), 0, 0, 0,
     "options, one a line as NAME = VALUE, or NAME; those of the command line come after them"},
    {"--listen", "ADDRESS", LIST, LM_SERVE, AT(listen), 0, 0, 0,
     "127.0.0.1:8080, [::1]:8080, localhost:8080 or unix:PATH; may be repeated [127.0.0.1:8080]"},
    {"--model-name", "NAME", TEXT, LM_SERVE, AT(model_name), 0, 0, 0,
     "what clients call the model [its own name]"},
    {"--any-model", NULL, FLAG, LM_SERVE, AT(any_model), 0, 0, 0,
     "a request may call the model what it likes"},
    {"--chat-template-file", "FILE", TEXT, LM_SERVE, AT(template_file), 0, 0, 0,
     "a Jinja template for conversations [the model's own]"},
    {"--parallel", "N", INT, LM_SERVE, AT(parallel), 1, 4096, 0, "answers at a time [8]"},
    {"--queue", "N", INT, LM_SERVE, AT(queue), 0, 1 << 20, 0,
     "answers that may wait for a place; more are refused with 429 [256]"},
    {"--stretch", "X", REAL, LM_SERVE, AT(stretch), 0, 1000, 0,
     "prompts make a step at most X times as long as answers alone; 0: no bound [3]"},
    {"--timeout", "S", REAL, LM_SERVE, AT(timeout_s), 0, 1e6, 0, "seconds a request may take; 0: any [0]"},
    {"--drain", "S", REAL, LM_SERVE, AT(drain_s), 0, 1e6, 0,
     "seconds that SIGTERM leaves to running answers; 0: any [0]"},
    {"--max-body", "BYTES", BYTES, LM_SERVE, AT(max_body), 0, 0, 0, "of a request [16M]"},
    {"--disable", "PATH", LIST, LM_SERVE, AT(disabled), 0, 0, 0,
     "an endpoint that answers 501; may be repeated"},
    {"--cors-origins", "ORIGIN", LIST, LM_SERVE, AT(origins), 0, 0, 0,
     "pages of this origin may ask: * is any, localhost any port of this machine; may be repeated [none]"},
    {"--receipts", NULL, FLAG, LM_SERVE, AT(receipts), 0, 0, 0,
     "every answer says what it was made from: see replay"},
    {"--prefill", NULL, FLAG, LM_SERVE, AT(prefill), 0, 0, 0,
     "a last message of the assistant's is the beginning of the answer, in chat completions too"},
    {"--verbose", NULL, FLAG, LM_SERVE, AT(verbose), 0, 0, 0,
     "chat completions tell the prompt that the model read, as __verbose"},
    {"--reasoning", "WHAT", TEXT, LM_SERVE, AT(reasoning), 0, 0, 0,
     "on, off: templates are told whether the model shall think aloud; auto: nothing [auto]"},
    {"--reasoning-format", "WHAT", TEXT, LM_SERVE, AT(reasoning_format), 0, 0, 0,
     "none: thinking stays in the text [auto]"},
    {"--api-key-file", "FILE", TEXT, LM_SERVE, AT(api_key_file), 0, 0, 0,
     "keys, one a line, with rpm=N, tpm=N, budget=N (requests, tokens a minute; tokens in all); read again on SIGHUP"},
    {"--log", "FILE", TEXT, LM_SERVE, AT(log_file), 0, 0, 0,
     "a line of JSON for every request; - is standard error"},
    {"--json", NULL, FLAG, ANY & ~(unsigned)(LM_CHAT | LM_SERVE | LM_LOGITS | LM_REPLAY), AT(json), 0, 0, 0, "machine-readable output"},
    {"--quiet", NULL, FLAG, SAMPLES | LM_LOGITS, AT(quiet), 0, 0, 0, "no figures on standard error"},
    {"--help", NULL, HELP, ANY, 0, 0, 0, 0, "this text"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static const char *const shorts[][2] = {
    {"-p", "--prompt"}, {"-f", "--file"}, {"-n", "--predict"}, {"-h", "--help"}, {"-q", "--quiet"}};

/* ---- values ---- */

static bool take_int(const char *text, double lo, double hi, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || (double)v < lo || (double)v > hi) return false;
    *out = v;
    return true;
}

/* "512M": bytes, or with K, M, G or T a power of 1024. */
static bool take_bytes(const char *text, int64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || !(v > 0)) return false;
    const char *u = *end ? strchr(units, *end & ~32) : NULL;
    if (u) {
        v *= (double)(1ull << 10 * (u - units + 1));
        end++;
        if (*end == 'i') end++;
        if (*end == 'B' || *end == 'b') end++;
    }
    if (*end || v > 0x1p50) return false;
    *out = (int64_t)v;
    return true;
}

static bool take_word(const char *value, const char *const *words, int n, int *out)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(value, words[i])) return *out = i, true;
    return false;
}

static bool take_seed(const char *value, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(value, &end, 0);
    return end != value && !*end && !errno && *value != '-';
}

static bool apply(struct lm_cli *c, const struct option_row *o, const char *value)
{
    static const char *const on_full[] = {"stop", "slide"}, *const mirostat[] = {"0", "2"};
    void *field = (char *)c + o->at;
    int64_t n = 0;
    int word = 0;
    char *end;
    bool ok = true;
    switch (o->kind) {
    case FLAG: *(bool *)field = true; break;
    case TEXT: *(const char **)field = value; break;
    case LIST: {
        struct lm_list *l = field;
        l->v[l->n++] = value;
        break;
    }
    case REAL: {
        double v = strtod(value, &end);
        ok = end != value && !*end && v >= o->lo && v <= o->hi;
        if (ok) *(double *)field = v;
        break;
    }
    case INT:
        ok = take_int(value, o->lo, o->hi, &n);
        if (!ok) break;
        if (o->at >= AT(sampling) && o->at < AT(sampling) + sizeof c->sampling)
            *(int32_t *)field = (int32_t)n;
        else
            *(int64_t *)field = n;
        break;
    case BYTES: ok = take_bytes(value, field); break;
    case SEED: ok = take_seed(value, field); break;
    case THREADS:
        ok = take_int(value, o->lo, o->hi, &n);
        c->engine_options.threads = (int)n;
        break;
    case ISA: c->engine_options.isa = value; break;
    case ON_FULL:
        ok = take_word(value, on_full, 2, &word);
        c->on_full = word ? LM_FULL_SLIDE : LM_FULL_STOP;
        break;
    case MIROSTAT:
        ok = take_word(value, mirostat, 2, &word);
        c->sampling.mirostat = word;
        break;
    case HELP: break;
    }
    if (ok && o->given_at) *((bool *)c + (o->given_at - 1)) = true;
    return ok;
}

/* ---- parsing ---- */

static const struct option_row *find(const char *arg, unsigned command, const char **value)
{
    *value = NULL;
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++)
        if (!strcmp(arg, shorts[i][0])) arg = shorts[i][1];
    size_t n = strcspn(arg, "=");
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct option_row *o = &options[i];
        if (strlen(o->name) != n || memcmp(o->name, arg, n) || !(o->commands & command)) continue;
        if (arg[n]) *value = arg + n + 1;
        return o;
    }
    return NULL;
}

static void help(const char *program, const struct lm_command *cmd)
{
    printf("usage: %s %s [OPTION]...\n\n%s\n\noptions:\n", program, cmd->name, cmd->text);
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct option_row *o = &options[i];
        char left[64];
        if (!(o->commands & cmd->bit)) continue;
        snprintf(left, sizeof left, "%s%s%s", o->name, o->argument ? "=" : "",
                 o->argument ? o->argument : "");
        printf("  %-24s %s\n", left, o->text);
    }
    puts("\nexamples:");
    for (const char *p = cmd->examples; *p;) {
        size_t n = strcspn(p, "\n");
        printf("  %s %.*s\n", program, (int)n, p);
        p += n + (p[n] == '\n');
    }
}

static int impossible(const struct lm_cli *c, const struct option_row *o, const char *value)
{
    if (o->kind == INT || o->kind == REAL)
        return cli_usage("%s: '%s' is not possible; it can be %g to %g", o->name, value, o->lo,
                         o->hi);
    return cli_usage("%s: '%s' is not possible; see %s %s --help", o->name, value, c->program,
                     c->command);
}

/* -1: go on. */
static int parse(struct lm_cli *c, const struct lm_command *cmd, int argc, char **argv)
{
    bool bare = false; /* behind a -- everything is an argument */
    for (int i = 2; i < argc; i++) {
        const char *value;
        if (!strcmp(argv[i], "--") && !bare) {
            bare = true;
            continue;
        }
        if (bare || argv[i][0] != '-' || !argv[i][1]) {
            c->positional.v[c->positional.n++] = argv[i];
            continue;
        }
        const struct option_row *o = find(argv[i], cmd->bit, &value);
        if (!o)
            return cli_usage("%s has no option '%s'; see %s %s --help", cmd->name, argv[i],
                             c->program, cmd->name);
        if (o->kind == HELP) return help(c->program, cmd), INFR_OK;
        if (!o->argument && value) return cli_usage("%s takes no value", o->name);
        if (o->argument && !value) {
            if (i + 1 == argc)
                return cli_usage("%s needs a value: %s=%s", o->name, o->name, o->argument);
            value = argv[++i];
        }
        if (!apply(c, o, value)) return impossible(c, o, value);
    }
    return -1;
}

int lm_cli_set(struct lm_cli *c, const char *name, const char *value)
{
    char arg[64];
    const char *none;
    snprintf(arg, sizeof arg, "--%.60s", name);
    for (char *p = arg + 2; *p; p++)
        if (*p == '_') *p = '-';
    const struct option_row *o = find(arg, SAMPLES, &none);
    if (!o || !(o->commands & c->bit) || (o->kind != INT && o->kind != REAL && o->kind != SEED))
        return cli_usage("there is no setting '%s'", name);
    if (!apply(c, o, value)) return impossible(c, o, value);
    return INFR_OK;
}

/* ---- files of options ---- */

struct config {
    char **argv; /* the command, the file's options, the rest of the command line */
    int argc;
    struct rt_bytes text;
    char *words;
};

static void config_deinit(struct config *f)
{
    free(f->argv);
    free(f->words);
    free(f->text.data);
}

/* "NAME = VALUE" as "--NAME=VALUE" into *out, which has room; NULL: an empty line. */
static char *take_option(char *line, char *end, char **out)
{
    char *word = *out;
    while (line < end && strchr(" \t\r", *line)) line++;
    while (end > line && strchr(" \t\r", end[-1])) end--;
    if (line == end || *line == '#') return NULL;
    char *equals = memchr(line, '=', (size_t)(end - line)), *stop = equals ? equals : end;
    while (stop > line && strchr(" \t", stop[-1])) stop--;
    *out += sprintf(*out, "--%.*s", (int)(stop - line), line);
    if (equals) {
        for (equals++; equals < end && strchr(" \t", *equals);) equals++;
        *out += sprintf(*out, "=%.*s", (int)(end - equals), equals);
    }
    ++*out;
    return word;
}

static int read_config(const char *path, unsigned command, struct config *f)
{
    struct infr_status st;
    const char *value;
    if (rt_file_read(path, &f->text, &st)) return cli_error(&st);
    char *text = (char *)f->text.data, *end = text + f->text.n, *out;
    size_t lines = 1;
    for (char *p = text; p < end; p++) lines += *p == '\n';
    f->argv = calloc(lines + (size_t)f->argc + 1, sizeof *f->argv);
    f->words = out = malloc(f->text.n + 5 * lines + 8);
    if (!f->argv || !f->words) return cli_usage("no memory for the options"), INFR_ENVIRONMENT;
    if (memchr(text, 0, f->text.n)) return cli_usage("%s is not a text", path);
    unsigned number = 0;
    for (f->argc = 2; text < end;) {
        char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        number++;
        char *word = take_option(text, stop, &out);
        const struct option_row *o = word ? find(word, command, &value) : NULL;
        if (word && (!o || !strcmp(o->name, "--config") || (o->argument && !value)))
            return cli_usage("%s, line %u: '%s' is no option with a value", path, number, word + 2);
        if (word) f->argv[f->argc++] = word;
        text = stop < end ? stop + 1 : end;
    }
    return INFR_OK;
}

/* The command line with the options of --config in front of its own. */
static int expand(const struct lm_command *cmd, int argc, char **argv, struct config *f)
{
    const char *path = NULL, *value;
    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++) {
        const struct option_row *o = find(argv[i], cmd->bit, &value);
        if (o && !strcmp(o->name, "--config")) path = value ? value : i + 1 < argc ? argv[i + 1] : "";
        if (o && o->argument && !value) i++;
    }
    f->argc = argc, f->argv = NULL;
    if (!path) return INFR_OK;
    int code = read_config(path, cmd->bit, f);
    if (code) return code;
    f->argv[0] = argv[0], f->argv[1] = argv[1];
    for (int i = 2; i < argc; i++) f->argv[f->argc++] = argv[i];
    return INFR_OK;
}

static int run(const struct lm_command *cmd, int argc, char **argv)
{
    struct lm_cli c = {.program = argv[0], .command = cmd->name, .bit = cmd->bit};
    c.chunk = 512, c.choices = 1, c.logprobs = -1, c.keep = -1, c.predict = -1;
    c.batch = 1, c.bench_prompt = 512, c.repeat = 3;
    c.parallel = 8, c.queue = 256, c.stretch = 3;
    lm_sampling_init(&c.sampling);
    struct lm_list *lists[] = {&c.stops,  &c.stop_tokens, &c.biases,  &c.breakers,
                               &c.listen, &c.disabled,    &c.origins, &c.positional};
    enum { N_LISTS = sizeof lists / sizeof *lists };
    c.memory = calloc(N_LISTS * (size_t)argc, sizeof *c.memory);
    if (!c.memory) return INFR_ENVIRONMENT;
    for (int i = 0; i < N_LISTS; i++) lists[i]->v = c.memory + i * argc;
    int code = parse(&c, cmd, argc, argv);
    if (code < 0) code = cmd->run(&c);
    free(c.memory);
    return code;
}

int lm_cli_run(const struct lm_command *cmd, int argc, char **argv)
{
    struct config f = {0};
    int code = expand(cmd, argc, argv, &f);
    if (!code) code = run(cmd, f.argv ? f.argc : argc, f.argv ? f.argv : argv);
    config_deinit(&f);
    return code;
}
