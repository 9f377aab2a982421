// SPDX-License-Identifier: Apache-2.0
/*
 * Parts of libevent that its objects refer to and no server here uses: rate limits, filters and pairs of
 * buffered events, loops by poll and select (Linux has epoll). These small ones stand in and save an
 * engine 19 KB. They are weak: should another version of libevent need more of such an object, the
 * linker takes all of it.
 */
#include <stddef.h>
#include <sys/types.h>

#define PART __attribute__((weak, visibility("default")))

enum { READ_AT_ONCE = 16384 };

int bufferevent_ratelim_init_(void *b);
ssize_t bufferevent_get_read_max_(void *b);
ssize_t bufferevent_get_write_max_(void *b);
int bufferevent_decrement_read_buckets_(void *b, ssize_t n);
int bufferevent_decrement_write_buckets_(void *b, ssize_t n);
int bufferevent_remove_from_rate_limit_group_internal_(void *b, int unsuspend);

PART int bufferevent_ratelim_init_(void *b)
{
    (void)b;
    return 0;
}

PART ssize_t bufferevent_get_read_max_(void *b)
{
    (void)b;
    return READ_AT_ONCE;
}

PART ssize_t bufferevent_get_write_max_(void *b)
{
    (void)b;
    return READ_AT_ONCE;
}

PART int bufferevent_decrement_read_buckets_(void *b, ssize_t n)
{
    (void)b, (void)n;
    return 0;
}

PART int bufferevent_decrement_write_buckets_(void *b, ssize_t n)
{
    (void)b, (void)n;
    return 0;
}

PART int bufferevent_remove_from_rate_limit_group_internal_(void *b, int unsuspend)
{
    (void)b, (void)unsuspend;
    return 0;
}

/* Kinds of buffered events are compared with these addresses. */
extern const char bufferevent_ops_filter[], bufferevent_ops_pair[];
PART const char bufferevent_ops_filter[1] = "f";
PART const char bufferevent_ops_pair[1] = "p";

/* struct eventop: asked for when epoll fails, and fails as well. */
struct loop_kind {
    const char *name;
    void *(*init)(void *base);
    void *others[4];
    int flags[2];
    size_t size;
};

static void *no_loop(void *base)
{
    (void)base;
    return NULL;
}

extern const struct loop_kind pollops, selectops;
PART const struct loop_kind pollops = {.name = "poll", .init = no_loop};
PART const struct loop_kind selectops = {.name = "select", .init = no_loop};
