// SPDX-License-Identifier: Apache-2.0
/*
 * Formats as regular expressions, written from the RFCs that JSON Schema names. Where a validator
 * must know more than a pattern can say, the pattern is the narrower of the two: leap seconds are
 * only those at 23:59:60Z or its equal in whole hours, host names are ASCII.
 */
#include <string.h>

#include "runtime/grammar/js.h"

#define DATE_31 "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
#define DATE_30 "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
#define DATE_FEB "02-(?:0[1-9]|1[0-9]|2[0-8])"
#define LEAP                                                                                       \
    "(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29"
#define DATE "(?:[0-9]{4}-(?:" DATE_31 "|" DATE_30 "|" DATE_FEB ")|" LEAP ")"
#define TIME                                                                                       \
    "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?"                                  \
    "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|23:59:60(?:\\.[0-9]+)?(?:[Zz]|[+-]00:00))"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST LABEL "(?:\\." LABEL ")*"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 OCTET "\\." OCTET "\\." OCTET "\\." OCTET
#define H16 "[0-9a-fA-F]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16             \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16       \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16   \
    ")?::)"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define EMAIL                                                                                      \
    "(?:" ATEXT "(?:\\." ATEXT ")*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")@(?:" HOST "|\\[" IPV4        \
    "\\]|\\[IPv6:" IPV6 "\\])"
#define PCT "%[0-9A-Fa-f]{2}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" PCT ")"
#define NOCOLON "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" PCT ")"
#define AUTHORITY                                                                                  \
    "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" PCT ")*@)?(?:\\[(?:" IPV6                                 \
    "|v[0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|" PCT         \
    ")*)(?::[0-9]*)?"
#define ABEMPTY "(?:/" PCHAR "*)*"
#define ABSOLUTE "/(?:" PCHAR "+(?:/" PCHAR "*)*)?"
#define QUERY "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]*:"
#define URI                                                                                        \
    SCHEME "(?://" AUTHORITY ABEMPTY "|" ABSOLUTE "|" PCHAR "+(?:/" PCHAR "*)*)?" QUERY
#define RELATIVE                                                                                   \
    "(?://" AUTHORITY ABEMPTY "|" ABSOLUTE "|" NOCOLON "+(?:/" PCHAR "*)*)?" QUERY
/* The same beyond ASCII. */
#define UCS "\\u{a0}-\\u{d7ff}\\u{f900}-\\u{fdcf}\\u{fdf0}-\\u{ffef}\\u{10000}-\\u{1fffd}"
#define IPCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@" UCS "-]|" PCT ")"
#define INOCOLON "(?:[A-Za-z0-9._~!$&'()*+,;=@" UCS "-]|" PCT ")"
#define IAUTHORITY                                                                                 \
    "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:" UCS "-]|" PCT ")*@)?(?:\\[" IPV6                             \
    "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=" UCS "-]|" PCT ")*)(?::[0-9]*)?"
#define IABEMPTY "(?:/" IPCHAR "*)*"
#define IABSOLUTE "/(?:" IPCHAR "+(?:/" IPCHAR "*)*)?"
#define IQUERY "(?:\\?(?:" IPCHAR "|[/?])*)?(?:#(?:" IPCHAR "|[/?])*)?"
#define IRI                                                                                        \
    SCHEME "(?://" IAUTHORITY IABEMPTY "|" IABSOLUTE "|" IPCHAR "+(?:/" IPCHAR "*)*)?" IQUERY
#define IRELATIVE                                                                                  \
    "(?://" IAUTHORITY IABEMPTY "|" IABSOLUTE "|" INOCOLON "+(?:/" IPCHAR "*)*)?" IQUERY

#define POINTER "(?:/(?:[^/~]|~[01])*)*"
#define DUR_TIME "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define DUR_DATE                                                                                   \
    "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
#define HEX8 "[0-9a-fA-F]{8}"
#define HEX4 "[0-9a-fA-F]{4}"
#define VARCHAR "(?:[A-Za-z0-9_]|" PCT ")"
#define VARSPEC VARCHAR "(?:\\.?" VARCHAR ")*(?::[1-9][0-9]{0,3}|\\*)?"

static const struct {
    const char *name, *pattern, *other; /* or NULL */
} formats[] = {
    {"date", DATE, NULL},
    {"time", TIME, NULL},
    {"date-time", DATE "[Tt]" TIME, NULL},
    {"duration", "P(?:" DUR_DATE "(?:" DUR_TIME ")?|" DUR_TIME "|[0-9]+W)", NULL},
    {"email", EMAIL, NULL},
    {"hostname", HOST, NULL},
    {"ipv4", IPV4, NULL},
    {"ipv6", IPV6, NULL},
    {"uri", URI, NULL},
    {"uri-reference", URI, RELATIVE},
    {"iri", IRI, NULL},
    {"iri-reference", IRI, IRELATIVE},
    {"uri-template",
     "(?:[^\\x00-\\x20\\x7f\"'%<>\\\\^`{|}]|" PCT "|\\{[+#./;?&=,!@|]?" VARSPEC "(?:," VARSPEC
     ")*\\})*", NULL},
    {"uuid", HEX8 "-" HEX4 "-" HEX4 "-" HEX4 "-" HEX8 HEX4, NULL},
    {"json-pointer", POINTER, NULL},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")", NULL},
};

struct gr_node *js_format(struct gr_build *b, struct js_text name)
{
    struct gr_regex_flags f = {0};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const char *p = formats[i].pattern, *q = formats[i].other;
        if (!js_is_text(name, formats[i].name)) continue;
        struct gr_node *n = gr_regex_parse(b, p, strlen(p), 0, f);
        return q ? gr_node_alt(b, n, gr_regex_parse(b, q, strlen(q), 0, f)) : n;
    }
    return NULL;
}
