// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/lm/lm_cli.h"
#include "runtime/lm/lm_line.h"

struct chat {
    struct lm_cli *c;
    struct lm_open x;
    struct lm_chat conversation;
    char *answer;
    size_t n_answer, cap_answer;
    bool no_memory, quits;
    double start, first;
};

/* A signal handler can reach nothing else: Ctrl-C was pressed while an answer was written. */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* Ctrl-C stops the answer while one is written, and is a key of the editor otherwise. */
static void catch_interrupts(bool yes)
{
    /* SA_RESTART: an answer's text that is being written when the key is hit goes out whole. An
     * interrupted write would leave stdout's error flag set, and the exit code with it. */
    struct sigaction a = {.sa_handler = yes ? on_interrupt : SIG_DFL, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
}

/* ---- one answer ---- */

static void on_event(void *user, const struct lm_event *e)
{
    struct chat *h = user;
    if (h->first <= 0) h->first = lm_now();
    if (!e->n_text) return;
    fwrite(e->text, 1, e->n_text, stdout);
    fflush(stdout);
    if (h->n_answer + e->n_text > h->cap_answer) {
        size_t cap = 2 * (h->n_answer + e->n_text);
        char *p = realloc(h->answer, cap);
        h->no_memory = !p;
        if (!p) return;
        h->answer = p, h->cap_answer = cap;
    }
    memcpy(h->answer + h->n_answer, e->text, e->n_text);
    h->n_answer += e->n_text;
}

static bool is_system(const struct lm_message *m) { return !strcmp(m->role, "system"); }

/* Leaves out the oldest question and what follows it up to the next one; false if it is the last.
 */
static bool forget_oldest(struct lm_chat *c)
{
    size_t first = c->n && is_system(&c->v[0]), next = first + 1;
    while (next < c->n && strcmp(c->v[next].role, "user")) next++;
    if (next >= c->n) return false;
    lm_chat_drop(c, first, next - first);
    return true;
}

/* The conversation's tokens; makes it fit where the user wants that. */
static int make_prompt(struct chat *h, uint32_t **ids, size_t *n)
{
    struct infr_status st;
    size_t left_out = h->conversation.n;
    for (;;) {
        if (lm_chat_tokens(&h->x.text, h->c->template_name, &h->conversation, h->c->template_args,
                           ids, n, &st))
            return cli_error(&st);
        if (*n < h->x.n_ctx) break;
        free(*ids);
        *ids = NULL;
        if (h->c->on_full != LM_FULL_SLIDE || !forget_oldest(&h->conversation))
            return cli_usage("the conversation has %zu tokens, the context %u: /reset begins anew; "
                             "--ctx makes it longer, --on-full=slide forgets old messages",
                             *n, h->x.n_ctx);
    }
    left_out -= h->conversation.n;
    if (left_out) fprintf(stderr, "[the oldest %zu messages were left out]\n", left_out);
    return INFR_OK;
}

static void figures(const struct chat *h, const struct lm_request *r, double end)
{
    uint32_t n_prompt, n_cached, n;
    if (h->c->quiet) return;
    lm_request_usage(r, &n_prompt, &n_cached, &n);
    double decode = end - h->first;
    fprintf(
        stderr,
        "[%u prompt tokens, %u of them known; first after %.0f ms; %u generated, %.1f a second]\n",
        n_prompt, n_cached, 1e3 * (h->first - h->start), n,
        n > 1 && decode > 0 ? (n - 1) / decode : 0);
}

static int run_request(struct chat *h, struct lm_request_desc *d)
{
    struct infr_status st;
    struct lm_request *r;
    bool more = true;
    int code = lm_generator_submit(h->x.g, d, &r, &st);
    if (code) return cli_error(&st);
    interrupted = 0;
    catch_interrupts(true);
    while (more && !code) {
        if (interrupted) lm_request_cancel(r);
        code = lm_generator_step(h->x.g, &more, &st);
    }
    catch_interrupts(false);
    putchar('\n');
    fflush(stdout);
    enum lm_finish finish = lm_request_finish(r);
    if (code)
        cli_error(&st);
    else if (finish == LM_FINISH_ERROR)
        code = cli_usage("%s", lm_request_error(r));
    else if (finish == LM_FINISH_CONTEXT)
        code = cli_usage("the context of %u tokens is full", h->x.n_ctx);
    else if (finish == LM_FINISH_CANCELLED)
        fputs("[stopped]\n", stderr);
    if (!code) figures(h, r, lm_now());
    lm_request_destroy(r);
    return code;
}

/* Answers the conversation, whose last message is a question, and adds the answer. */
static int answer(struct chat *h)
{
    struct lm_request_desc d;
    struct lm_request_lists lists;
    struct infr_status st;
    uint32_t *ids = NULL;
    size_t n = 0;
    h->n_answer = 0;
    h->first = 0, h->start = lm_now();
    int code = make_prompt(h, &ids, &n);
    if (code) return code;
    code = lm_cli_request(h->c, &h->x, &d, &lists);
    d.prompt = ids, d.n_prompt = (uint32_t)n;
    d.sampling.stream = (uint32_t)h->conversation.n; /* other random numbers for each answer */
    d.on_event = on_event, d.user = h;
    if (!code) code = run_request(h, &d);
    if (h->no_memory) code = cli_usage("no memory for the answer");
    if (h->n_answer && !h->no_memory &&
        lm_chat_add(&h->conversation, "assistant", h->answer, h->n_answer, &st))
        code = cli_error(&st);
    lm_cli_lists_deinit(&lists);
    free(ids);
    return code;
}

static int ask(struct chat *h, const char *text, size_t n)
{
    struct infr_status st;
    size_t before = h->conversation.n;
    if (lm_chat_add(&h->conversation, "user", text, n, &st)) return cli_error(&st);
    int code = answer(h);
    /* a question that got no answer is not part of the conversation */
    if (code && h->conversation.n == before + 1) lm_chat_cut(&h->conversation, before);
    return code;
}

/* ---- commands ---- */

static int set_system(struct chat *h, const char *text)
{
    struct infr_status st;
    lm_chat_cut(&h->conversation, 0);
    if (!text || !*text) return INFR_OK;
    return lm_chat_add(&h->conversation, "system", text, strlen(text), &st) ? cli_error(&st)
                                                                            : INFR_OK;
}

static void do_reset(struct chat *h, const char *arg)
{
    (void)arg;
    lm_chat_cut(&h->conversation, h->conversation.n && is_system(&h->conversation.v[0]));
}

static void do_system(struct chat *h, const char *arg) { set_system(h, arg); }

static void do_exit(struct chat *h, const char *arg)
{
    (void)arg;
    h->quits = true;
}

/* Drops the last answer; with_question also what it answered. */
static bool drop_last(struct chat *h, bool with_question)
{
    struct lm_chat *c = &h->conversation;
    if (c->n && !strcmp(c->v[c->n - 1].role, "assistant")) lm_chat_cut(c, c->n - 1);
    if (!c->n || strcmp(c->v[c->n - 1].role, "user")) return false;
    if (with_question) lm_chat_cut(c, c->n - 1);
    return true;
}

static void do_undo(struct chat *h, const char *arg)
{
    (void)arg;
    if (!drop_last(h, true)) cli_usage("there is nothing to undo");
}

static void do_regen(struct chat *h, const char *arg)
{
    (void)arg;
    if (!drop_last(h, false)) {
        cli_usage("there is no question to answer again");
        return;
    }
    if (!h->c->seed_given)
        h->c->sampling.seed = lm_entropy() >> 32;
    else
        h->c->sampling.seed++;
    answer(h);
}

static void do_set(struct chat *h, const char *arg)
{
    char name[64];
    size_t n = strcspn(arg, " =");
    if (!n || n >= sizeof name || !arg[n]) {
        cli_usage("/set NAME VALUE, for example /set temp 0.5");
        return;
    }
    memcpy(name, arg, n);
    name[n] = 0;
    lm_cli_set(h->c, name, arg + n + 1 + strspn(arg + n + 1, " "));
}

static void do_stats(struct chat *h, const char *arg)
{
    struct lm_counts c;
    (void)arg;
    lm_generator_get_counts(h->x.g, &c);
    fprintf(
        stderr,
        "[%zu messages; context of %u tokens; %llu tokens computed in %llu steps; %llu of %llu "
        "prompt tokens were known; pages: %u held, %u kept, %u free, %zu KiB each; seed %llu]\n",
        h->conversation.n, h->x.n_ctx, (unsigned long long)c.tokens_computed,
        (unsigned long long)c.steps, (unsigned long long)c.pages.tokens_found,
        (unsigned long long)c.pages.tokens_looked_up, c.pages.held, c.pages.cached, c.pages.free,
        (size_t)(h->x.model->page_bytes / 1024), (unsigned long long)h->c->sampling.seed);
}

static void do_show(struct chat *h, const char *arg)
{
    (void)arg;
    for (size_t i = 0; i < h->conversation.n; i++)
        fprintf(stderr, "%s: %s\n", h->conversation.v[i].role, h->conversation.v[i].content);
}

static void do_help(struct chat *h, const char *arg);

static const struct chat_command {
    const char *name, *argument, *text;
    void (*run)(struct chat *h, const char *arg);
} commands[] = {
    {"/help", "", "this text", do_help},
    {"/exit", "", "end; also /quit and Ctrl-D", do_exit},
    {"/quit", "", NULL, do_exit},
    {"/reset", "", "begin a new conversation; also /clear", do_reset},
    {"/clear", "", NULL, do_reset},
    {"/system", "TEXT", "begin a new conversation with this system message", do_system},
    {"/regen", "", "answer the last question again", do_regen},
    {"/undo", "", "take back the last question and its answer", do_undo},
    {"/set", "NAME VALUE", "an option: temp, top_k, top_p, min_p, seed, predict, ...", do_set},
    {"/show", "", "the conversation so far", do_show},
    {"/stats", "", "context, cache and speed", do_stats},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void do_help(struct chat *h, const char *arg)
{
    (void)h;
    (void)arg;
    for (int i = 0; i < N_COMMANDS; i++)
        if (commands[i].text)
            fprintf(stderr, "  %-8s %-11s %s\n", commands[i].name, commands[i].argument,
                    commands[i].text);
    fputs("  Ctrl-C stops an answer; Alt-Enter, or \\ at the end of a line, begins another line\n",
          stderr);
}

/* A line that begins with a slash and is not of this table is an error, never a question. */
static void command(struct chat *h, const char *line)
{
    size_t n = strcspn(line, " ");
    const char *arg = line + n + strspn(line + n, " ");
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strlen(commands[i].name) != n || memcmp(commands[i].name, line, n)) continue;
        commands[i].run(h, arg);
        return;
    }
    cli_usage("no command '%.*s'; /help lists them", (int)(n < 40 ? n : 40), line);
}

/* ---- entry ---- */

static int converse(struct chat *h)
{
    struct lm_line line;
    int code = INFR_OK;
    lm_line_init(&line, STDIN_FILENO);
    if (line.edits)
        fprintf(stderr, "%s, %s, %u threads, context of %u tokens. /help lists commands.\n",
                rt_text(h->x.e, h->x.e->h.model_name), infr_engine_isa(h->x.e),
                infr_engine_threads(h->x.e), h->x.n_ctx);
    while (!h->quits) {
        enum lm_line_result r = lm_line_read(&line, "> ");
        if (r == LM_LINE_END) break;
        if (r == LM_LINE_GIVEN_UP) {
            if (!line.n) fputs("[/exit or Ctrl-D ends]\n", stderr);
            continue;
        }
        if (!line.n) continue;
        if (line.text[0] == '/')
            command(h, line.text);
        else
            code = ask(h, line.text, line.n);
        if (code && !line.edits) break; /* a script should know */
    }
    lm_line_deinit(&line);
    return line.edits ? INFR_OK : code;
}

int lm_cmd_chat(struct lm_cli *c)
{
    struct chat h = {.c = c};
    struct jinja_template template;
    struct infr_status st;
    int code = c->positional.n ? cli_usage("chat takes no argument; give a question with -p") : 0;
    if (!code) code = lm_open_text(c, &h.x);
    /* before the model is opened: what cannot work fails at once */
    if (!code && lm_text_template(&h.x.text, c->template_name, &template, &st))
        code = cli_error(&st);
    if (!code) code = lm_open_generator(c, &h.x, 1, 0, false);
    if (!code) {
        lm_cli_sampling(c, &h.x.text);
        code = set_system(&h, c->system);
    }
    if (!code) code = c->prompt ? ask(&h, c->prompt, strlen(c->prompt)) : converse(&h);
    lm_chat_deinit(&h.conversation);
    free(h.answer);
    lm_close(&h.x);
    return code;
}
