// SPDX-License-Identifier: Apache-2.0
/*
 * Servers listen on numeric addresses and connect to nobody, so libc's name service is not linked:
 * a static one would load shared libraries when it is asked. libevent refers to it all the same
 * (evutil.o); these stand in, and find nothing. So with the list of network interfaces, and with
 * sscanf (under a name of ours, see lib/libevent.a in the Makefile), by which it reads addresses
 * that nobody here gives it: reading floats of 128 bits alone is 40 KB.
 */
#define _GNU_SOURCE
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stddef.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    (void)node, (void)service, (void)hints, (void)out;
    return EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *list) { (void)list; }

const char *gai_strerror(int code)
{
    (void)code;
    return "names are not resolved";
}

struct servent *getservbyname(const char *name, const char *protocol)
{
    (void)name, (void)protocol;
    return NULL;
}

struct protoent *getprotobynumber(int number)
{
    (void)number;
    return NULL;
}

int getifaddrs(struct ifaddrs **out)
{
    (void)out;
    return -1;
}

void freeifaddrs(struct ifaddrs *list) { (void)list; }

unsigned if_nametoindex(const char *name)
{
    (void)name;
    return 0;
}

int infr_no_sscanf(const char *text, const char *format, ...);

int infr_no_sscanf(const char *text, const char *format, ...)
{
    (void)text, (void)format;
    return 0;
}
