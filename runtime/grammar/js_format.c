// SPDX-License-Identifier: Apache-2.0
/*
 * Formats as regular expressions, written from the RFCs that JSON Schema names. Where a validator
 * must know more than a pattern can say, the pattern is the narrower of the two, and where its
 * opposite is asked for the wider: leap seconds are only those at 23:59:60Z, host names are ASCII.
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
/* Every minute may have a leap second somewhere. */
#define TIME_WIDE                                                                                  \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?"                              \
    "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
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

/* Base64 in whole groups (RFC 4648, section 4). */
#define B64 "[A-Za-z0-9+/]"
#define BASE64 "(?:" B64 "{4})*(?:" B64 "{2}==|" B64 "{3}=)?"

static const struct {
    const char *name, *pattern, *other, *wide; /* or NULL; wide: of which no text of the format is left out */
} formats[] = {
    {"date", DATE, NULL, NULL},
    {"time", TIME, NULL, TIME_WIDE},
    {"date-time", DATE "[Tt]" TIME, NULL, DATE "[Tt]" TIME_WIDE},
    {"duration", "P(?:" DUR_DATE "(?:" DUR_TIME ")?|" DUR_TIME "|[0-9]+W)", NULL, NULL},
    {"email", EMAIL, NULL, NULL},
    {"hostname", HOST, NULL, NULL},
    {"ipv4", IPV4, NULL, NULL},
    {"ipv6", IPV6, NULL, NULL},
    {"uri", URI, NULL, NULL},
    {"uri-reference", URI, RELATIVE, NULL},
    {"iri", IRI, NULL, NULL},
    {"iri-reference", IRI, IRELATIVE, NULL},
    {"uri-template",
     "(?:[^\\x00-\\x20\\x7f\"'%<>\\\\^`{|}]|" PCT "|\\{[+#./;?&=,!@|]?" VARSPEC "(?:," VARSPEC
     ")*\\})*", NULL, NULL},
    {"uuid", HEX8 "-" HEX4 "-" HEX4 "-" HEX4 "-" HEX8 HEX4, NULL, NULL},
    {"json-pointer", POINTER, NULL, NULL},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")", NULL, NULL},
    /* draft 3's names, OpenAPI's byte, and what the world calls a URI */
    {"host-name", HOST, NULL, NULL},
    {"ip-address", IPV4, NULL, NULL},
    {"byte", BASE64, NULL, NULL},
    {"url", URI, NULL, NULL},
};

/* ---- regular expressions ---- */

/*
 * A narrow part of what ECMA-262 and Python's re both take: groups three deep, look-ahead outside of them, ranges
 * that begin or end where digits or letters do. Escapes of characters that have no meaning, references to groups and flags are left out.
 */
#define RE_ESCAPE "\\\\(?:[dDwWsStnrfv^$\\\\.*+?()\\[\\]{}|/]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})"
#define RE_ATOM "(?:[^\\^$.*+?()\\[\\]{}|\\\\]|\\.|" RE_ESCAPE ")"
#define RE_QUANTIFIER                                                                              \
    "(?:[*+?]|\\{(?:0|[1-9][0-9]{0,2})(?:,)?\\}|\\{[0-9],[1-9][0-9]{1,2}\\}|\\{0,[1-9]\\}"    \
    "|\\{1,[1-9]\\}|\\{2,[2-9]\\}|\\{3,[3-9]\\}|\\{[1-9][0-9],[1-9][0-9]{2}\\})"
#define RE_RANGE "a-[a-z]|[a-z]-z|A-[A-Z]|[A-Z]-Z|0-[0-9]|1-[1-9]|[0-9]-9|!-~|\\x20-~"
#define RE_CLASS "\\[\\^?-?(?:[^\\]\\[\\^\\\\-]|" RE_ESCAPE "|\\\\-|" RE_RANGE ")+-?\\]"
enum { RE_DEPTH = 3 };

static struct gr_node *piece(struct gr_build *b, const char *text)
{
    return gr_regex_parse(b, text, strlen(text), 0, (struct gr_regex_flags){0});
}

static struct gr_node *re_format(struct gr_build *b)
{
    struct gr_node *atom = piece(b, RE_ATOM "|" RE_CLASS), *all = NULL;
    for (int depth = 0; depth <= RE_DEPTH; depth++) {
        struct gr_node *x = atom, *still = piece(b, "[|^$]|\\\\[bB]");
        if (all) {
            struct gr_node *rest = gr_node_cat(b, all, piece(b, "\\)"));
            x = gr_node_alt(b, x, gr_node_cat(b, piece(b, "\\((?:\\?:)?"), rest));
            if (depth == RE_DEPTH) still = gr_node_alt(b, still, gr_node_cat(b, piece(b, "\\(\\?[=!]"), rest));
        }
        x = gr_node_cat(b, x, piece(b, "(?:" RE_QUANTIFIER "(?:\\?)?)?"));
        all = gr_node_repeat(b, gr_node_alt(b, x, still), 0, GR_MANY);
    }
    return all;
}

struct gr_node *js_format(struct gr_build *b, struct js_text name, bool opposite)
{
    struct gr_regex_flags f = {0};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const char *p = formats[i].pattern, *q = formats[i].other;
        if (!js_is_text(name, formats[i].name)) continue;
        if (opposite && formats[i].wide) p = formats[i].wide;
        struct gr_node *n = gr_regex_parse(b, p, strlen(p), 0, f);
        return q ? gr_node_alt(b, n, gr_regex_parse(b, q, strlen(q), 0, f)) : n;
    }
    if (!js_is_text(name, "regex")) return NULL;
    return opposite ? gr_node_repeat(b, gr_node_any(b), 0, GR_MANY) : re_format(b);
}
