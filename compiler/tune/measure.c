// SPDX-License-Identifier: Apache-2.0
#define _POSIX_C_SOURCE 200809L
#include "compiler/tune/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ir/support/str.h"

enum { PROMPT_TOKENS = 256, ANSWER_TOKENS = 64, PROFILED_TOKENS = 8 };

/*
 * One shell command for both places. Elsewhere the engine arrives on standard input, is stored, run and removed; `on` gets the
 * script as one argument, as ssh wants it.
 */
static void put_command(struct strbuf *s, const char *path, const struct measure_options *o, const char *words)
{
    if (o->on)
        strbuf_printf(s, "%s 'f=$(mktemp) && cat >$f && chmod 700 $f && $f %s --isa=%s; r=$?; rm -f $f; exit $r'", o->on, words, o->level);
    else strbuf_printf(s, "exec '%s' %s --isa=%s", path, words, o->level);
}

static json_t *run(const char *path, const struct measure_options *o, const char *words)
{
    int fd[2], status = 0, in = open(o->on ? path : "/dev/null", O_RDONLY | O_CLOEXEC);
    struct strbuf command = {0};
    json_t *j = NULL;
    json_error_t e;
    put_command(&command, path, o, words);
    if (in >= 0 && !pipe(fd)) {
        fcntl(fd[0], F_SETFD, FD_CLOEXEC);
        pid_t pid = fork();
        if (pid == 0) {
            dup2(in, 0);
            dup2(fd[1], 1);
            close(fd[1]);
            execl("/bin/sh", "sh", "-c", strbuf_get(&command), (char *)NULL);
            _exit(127);
        }
        close(fd[1]);
        FILE *f = fdopen(fd[0], "r");
        if (f) j = json_loadf(f, 0, &e);
        if (f) fclose(f);
        else close(fd[0]);
        if (pid > 0)
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status)) json_decref(j), j = NULL;
    }
    if (in >= 0) close(in);
    strbuf_deinit(&command);
    return j;
}

/* Adds weight * us_per_call * calls per run of every launch. */
static bool add(const json_t *j, double weight, double *us, size_t n)
{
    json_t *list = json_object_get(j, "launches"), *l;
    double runs = json_number_value(json_object_get(j, "runs"));
    size_t i;
    if (json_array_size(list) != n || !(runs > 0)) return false;
    json_array_foreach(list, i, l) {
        json_int_t at = json_integer_value(json_object_get(l, "launch"));
        if (at < 0 || (size_t)at >= n) return false;
        us[at] += weight * json_number_value(json_object_get(l, "us_per_call")) * json_number_value(json_object_get(l, "calls")) / runs;
    }
    return true;
}

static bool profile(const char *path, const struct measure_options *o, const char *how, double weight, double *us, size_t n)
{
    struct strbuf words = {0};
    strbuf_printf(&words, "profile --json %s %s", how, o->args);
    json_t *j = run(path, o, strbuf_get(&words));
    bool ok = j && add(j, weight, us, n);
    json_decref(j);
    strbuf_deinit(&words);
    return ok;
}

bool measure_engine(const char *path, const struct measure_options *o, double *us, size_t n, struct diag_sink *diag)
{
    char prompt[64], answer[64];
    memset(us, 0, n * sizeof *us);
    snprintf(prompt, sizeof prompt, "-n 0 --prompt-tokens %d", PROMPT_TOKENS);
    snprintf(answer, sizeof answer, "-n %d --prompt-tokens %d", PROFILED_TOKENS, PROMPT_TOKENS);
    bool ok = o->is_text ? profile(path, o, prompt, 1, us, n) && profile(path, o, answer, ANSWER_TOKENS, us, n)
                         : profile(path, o, "--seconds=0.3", 1, us, n);
    return ok || diag_report_remedy(diag, DIAG_ENVIRONMENT, NULL, "check --tune-on and --tune-args", "`profile` of an engine that is tuned failed");
}

bool measure_cpu(const char *path, const struct measure_options *o, char *out, size_t size)
{
    json_t *j = run(path, o, "info --json");
    const char *cpu = json_string_value(json_object_get(j, "cpu"));
    if (cpu) snprintf(out, size, "%s", cpu);
    json_decref(j);
    return cpu != NULL;
}
