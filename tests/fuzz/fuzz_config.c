// SPDX-License-Identifier: Apache-2.0
/*
 * Text files that a server is started with. The first byte chooses: options (--config), API keys, or the list of engines of a front
 * process. Files are read twice, as at a reload: what is read of the same bytes is the same.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compiler/serve/front.h"
#include "runtime/lm/lm_cli.h"
#include "runtime/serve/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int check_options(struct lm_cli *c)
{
    if (c->listen.n > 70000 || c->chunk < 1 || c->parallel < 1 || c->queue < 0 || !(c->stretch >= 0)) abort();
    for (size_t i = 0; i < c->listen.n; i++)
        if (!c->listen.v[i]) abort();
    return INFR_OK;
}

static void read_options(const char *path)
{
    static const struct lm_command command = {"serve", "", LM_SERVE, check_options, "", ""};
    char config[80];
    snprintf(config, sizeof config, "--config=%s", path);
    char *argv[] = {(char[]){"model"}, (char[]){"serve"}, (char[]){"--seed=1"}, config, NULL};
    int code = lm_cli_run(&command, 4, argv);
    if (code != INFR_OK && code != INFR_BAD_INPUT) abort();
    if (lm_cli_run(&command, 4, argv) != code) abort();
}

static void read_keys(const char *path)
{
    static struct server s;
    s = (struct server){.o = {.key_path = path}, .key_salt = 1};
    int code = keys_load(&s);
    uint32_t n = s.n_keys;
    if ((code == INFR_OK) != (n > 0) || n > MAX_KEYS) abort();
    for (uint32_t i = 0; i < n; i++) {
        const struct serve_key *k = &s.keys[i];
        if (!(k->rpm >= 0 && k->tpm >= 0 && k->budget >= 0 && k->requests <= k->rpm && k->tokens <= k->tpm)) abort();
    }
    if (keys_load(&s) != code || s.n_keys != n) abort();
    free(s.keys);
}

static void read_list(const char *path)
{
    static struct front f;
    struct diag_sink diag;
    memset(&f, 0, sizeof f);
    f.from = path;
    diag_init(&diag);
    bool ok = list_read(&f, &diag);
    if (ok != !diag_exit_code(&diag)) abort();
    list_free(&f);
    diag_deinit(&diag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *nowhere;
    char path[64];
    if (!size || size > 1 << 16) return 0;
    if (!nowhere && !(nowhere = fopen("/dev/null", "w"))) exit(3);
    FILE *out = stdout, *err = stderr;
    stderr = nowhere, stdout = nowhere; /* what is wrong with a file is said at length */
    int fd = memfd_create("file", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1)) exit(3);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (data[0] % 3 == 0) read_options(path);
    else if (data[0] % 3 == 1) read_keys(path);
    else read_list(path);
    stdout = out, stderr = err;
    close(fd);
    return 0;
}
