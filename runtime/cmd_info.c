// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <string.h>

#include "runtime/abi/text_format.h"
#include "runtime/abi/cpu_name.h"
#include "runtime/cli.h"
#include "runtime/cpu.h"

static void json_ios(struct json *j, const char *key, const struct infr_engine *e, bool output)
{
    json_open(j, key, '[');
    for (uint32_t i = 0; i < (output ? e->n_outputs : e->n_inputs); i++) {
        struct infr_io_info io;
        if (output)
            infr_engine_output(e, i, &io);
        else
            infr_engine_input(e, i, &io);
        json_open(j, NULL, '{');
        json_string(j, "name", io.name);
        json_string(j, "dtype", dtype_name((enum dtype)io.dtype));
        if (!output) json_bool(j, "optional", io.optional);
        if (io.state) json_bool(j, "state", true);
        json_open(j, "dims", '[');
        for (uint32_t a = 0; a < io.rank; a++) {
            json_open(j, NULL, '{');
            json_string(j, "dim", io.dims[a].text);
            json_int(j, "lo", io.dims[a].lo);
            json_int(j, "hi", io.dims[a].hi);
            json_close(j, '}');
        }
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_levels(struct json *j, const char *key, unsigned mask)
{
    json_open(j, key, '[');
    for (int i = 0; i < INFR_ISA_COUNT; i++)
        if (mask >> i & 1) json_string(j, NULL, rt_isa_name(i));
    json_close(j, ']');
}

static void json_kernels(struct json *j, const struct infr_engine *e)
{
    json_open(j, "kernels", '[');
    for (uint32_t i = 0; i < e->n_kernels; i++) {
        char hash[24];
        json_open(j, NULL, '{');
        json_string(j, "name", rt_text(e, e->kernels[i].symbol));
        json_levels(j, "levels", e->kernels[i].isa_mask);
        json_string(j, "level", e->h.isa_mask ? rt_isa_name(e->kernel_isa[i]) : infr_engine_isa(e));
        snprintf(hash, sizeof hash, "%016" PRIx64, e->kernels[i].hash);
        json_string(j, "hash", hash);
        json_int(j, "scratch_bytes", e->kernels[i].scratch_bytes);
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* The text section's header; false when there is none. */
static bool get_text(const struct infr_engine *e, struct infr_text_header *h)
{
    if (e->h.text_bytes < sizeof *h) return false;
    memcpy(h, e->blob + e->h.text_offset, sizeof *h);
    return h->magic == INFR_TEXT_MAGIC && h->major == INFR_TEXT_VERSION_MAJOR;
}

/* Of the states that grow with the number of pages. */
static double state_bytes_a_token(const struct infr_engine *e, const struct infr_text_header *h)
{
    double sum = 0;
    for (uint32_t i = 0; i < e->n_inputs; i++) {
        struct infr_io_info io;
        infr_engine_input(e, i, &io);
        double bytes = (double)dtype_bytes((enum dtype)io.dtype);
        for (uint32_t a = 1; a < io.rank; a++) bytes *= (double)io.dims[a].lo;
        if (io.state) sum += bytes;
    }
    return h->page_tokens ? sum / h->page_tokens : 0;
}

static void json_text(struct json *j, const struct infr_engine *e)
{
    struct infr_text_header h;
    if (!get_text(e, &h)) return;
    json_open(j, "text", '{');
    json_int(j, "vocab", h.vocab);
    json_int(j, "ctx_train", h.ctx_train);
    json_int(j, "window", h.window);
    json_int(j, "page_tokens", h.page_tokens);
    json_number(j, "kv_bytes_a_token", state_bytes_a_token(e, &h));
    json_int(j, "embedding_dims", h.embedding_dims);
    json_int(j, "chat_templates", h.n_templates);
    json_close(j, '}');
}

static void print_json(const struct infr_engine *e)
{
    struct json j = {.f = stdout};
    char cpu[INFR_CPU_NAME_BYTES];
    json_open(&j, NULL, '{');
    json_string(&j, "model", rt_text(e, e->h.model_name));
    json_string(&j, "compiler", rt_text(e, e->h.compiler_version));
    json_int(&j, "format_major", e->h.major);
    json_int(&j, "format_minor", e->h.minor);
    json_ios(&j, "inputs", e, false);
    json_ios(&j, "outputs", e, true);
    json_open(&j, "symbols", '[');
    for (uint32_t k = 0; k < e->n_symbols; k++) {
        json_open(&j, NULL, '{');
        json_string(&j, "name", rt_text(e, e->symbols[k].name));
        json_int(&j, "lo", e->symbols[k].lo);
        json_int(&j, "hi", e->symbols[k].hi);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_levels(&j, "levels", e->h.isa_mask);
    json_string(&j, "gpus", e->gpus);
    json_levels(&j, "cpu_levels", e->cpu_levels);
    infr_cpu_name(cpu);
    json_string(&j, "cpu", cpu);
    json_string(&j, "level", infr_engine_isa(e));
    json_int(&j, "threads", infr_engine_threads(e));
    json_int(&j, "plan_bytes", (int64_t)e->blob_bytes);
    json_int(&j, "weights_bytes", (int64_t)e->weights_bytes);
    if (e->weights_copy) json_int(&j, "weights_bytes_on_huge_pages", (int64_t)rt_weights_huge_bytes(e));
    char hash[24];
    snprintf(hash, sizeof hash, "%016" PRIx64, e->h.weights_hash);
    json_string(&j, "weights_hash", hash);
    json_int(&j, "launches", e->n_launches);
    json_int(&j, "goldens", e->n_goldens);
    json_kernels(&j, e);
    json_text(&j, e);
    json_string(&j, "manifest", rt_text(e, e->h.manifest));
    json_close(&j, '}');
    putchar('\n');
}

static void print_ios(const struct infr_engine *e, bool output)
{
    for (uint32_t i = 0; i < (output ? e->n_outputs : e->n_inputs); i++) {
        struct infr_io_info io;
        char text[512];
        if (output)
            infr_engine_output(e, i, &io);
        else
            infr_engine_input(e, i, &io);
        cli_io_text(&io, text, sizeof text);
        printf("%-9s %s  %s%s\n", output ? "output" : "input", io.name, text,
               io.optional ? "  (optional)"
               : io.state  ? "  (state)"
                           : "");
    }
}

static void print_levels(const char *what, unsigned mask)
{
    printf("%-9s", what);
    for (int i = 0; i < INFR_ISA_COUNT; i++)
        if (mask >> i & 1) printf(" %s", rt_isa_name(i));
    putchar('\n');
}

static void print_text(const struct infr_engine *e)
{
    printf("model     %s\n", rt_text(e, e->h.model_name));
    printf("compiler  %s, plan format %u.%u\n", rt_text(e, e->h.compiler_version), e->h.major,
           e->h.minor);
    print_ios(e, false);
    print_ios(e, true);
    for (uint32_t k = 0; k < e->n_symbols; k++) {
        const struct infr_symbol *y = &e->symbols[k];
        if (y->bind_input == INFR_NONE) continue;
        printf("dim       %s: %" PRId64 " to ", rt_text(e, y->name), y->lo);
        if (y->hi == INT64_MAX)
            puts("any");
        else
            printf("%" PRId64 "\n", y->hi);
    }
    struct infr_text_header h;
    if (get_text(e, &h))
        printf(
            "text      context of %u tokens, KV cache %.0f bytes a token in pages of %u, %u chat "
            "templates\n",
            h.ctx_train, state_bytes_a_token(e, &h), h.page_tokens, h.n_templates);
    if (*e->gpus) printf("GPUs      %s\n", e->gpus);
    if (e->has_cpu_code) print_levels("levels", e->h.isa_mask);
    if (e->has_cpu_code) print_levels("this CPU", e->cpu_levels);
    if (!e->only_asked) printf("runs at   %s with %u threads\n", infr_engine_isa(e), infr_engine_threads(e));
    printf("sizes     plan %" PRIu64 " bytes, weights %" PRIu64 " bytes\n", e->blob_bytes,
           e->weights_bytes);
    if (e->weights_copy)
        printf("hugepages %" PRIu64 " of %" PRIu64 " MB of weights, a copy in memory\n",
               rt_weights_huge_bytes(e) / 1000000, e->weights_bytes / 1000000);
    printf("plan      %u launches of %u kernels, %u buffers, %u golden vectors\n", e->n_launches,
           e->n_kernels, e->n_bufs, e->n_goldens);
    for (uint32_t i = 0; i < e->n_kernels; i++)
        printf("kernel    %-48s %s\n", rt_text(e, e->kernels[i].symbol),
               e->h.isa_mask ? rt_isa_name(e->kernel_isa[i]) : e->device ? e->device->arch : "GPU");
}

/* Asks no GPU unless told to: what is in the file is the same without one. */
int cmd_info(struct cli *c)
{
    struct cli_engine x;
    struct infr_image image;
    struct infr_status st;
    if (!c->engine_options.device && !c->engine_options.isa && !rt_self_image(&image, &st) && image.gpu_images)
        c->engine_options.device = "none";
    int code = cli_open(c, &x);
    if (code) return code;
    if (c->json)
        print_json(x.e);
    else
        print_text(x.e);
    cli_close(&x);
    return INFR_OK;
}
