#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Checks who includes whom, so that the layers stay layers. usage: tests/layers.sh [SOURCE_FOLDER]
#
# An include of ours is written from the source root ("ir/support/arena.h"). Each rule below says
# which folders a folder may include from; an unlisted one is an error. Headers of big libraries
# may be seen by one folder (or file) each.

set -u
src=${1:-$(CDPATH='' cd "$(dirname "$0")/.." && pwd -P)}
cd "$src" || exit 2

# folder that includes : prefixes it may include (the longest matching folder rule applies)
rules='
runtime/abi/ : runtime/abi/
runtime/     : runtime/
ir/          : ir/ runtime/abi/
passes/      : passes/ ir/ runtime/abi/
targets/     : targets/ ir/ runtime/abi/ config.h
compiler/    : compiler/ passes/ targets/ ir/ runtime/abi/ config.h
compiler/serve/ : compiler/ ir/ runtime/ config.h
compiler/text_section. : compiler/ ir/ runtime/abi/ runtime/text/jinja.h
'
# library header pattern : the folders or files that may include it
libraries='
llvm-c/*             : targets/cpu/
llvm/*               : targets/cpu/
nvrtc.h              : targets/cuda/
protobuf-c/*         : compiler/import/
compiler/import/*.pb-c.h : compiler/import/
jansson.h            : compiler/
xxhash.h             : compiler/ ir/support/ passes/ targets/
utf8proc.h           : compiler/
cuda.h               : runtime/device_cuda.c
event2/*             : runtime/serve/ compiler/serve/
'

# The compiler reaches targets by name through the registry, never through a target's own header, and
# targets know nothing of each other.
forbidden='compiler/ targets/cpu/
compiler/ targets/cuda/
targets/cpu/ targets/cuda/
targets/cuda/ targets/cpu/'

list=$(find runtime ir passes targets compiler -type f \( -name '*.c' -o -name '*.h' -o -name '*.def' \) \
    2>/dev/null | LC_ALL=C sort)
if [ -z "$list" ]; then echo 'layers: no sources yet'; exit 0; fi

# One awk reads every file once; a line of output is a violation.
violations=$(printf '%s\n' "$list" | tr '\n' '\0' | xargs -0 awk -v rules="$rules" \
    -v libraries="$libraries" -v forbidden="$forbidden" '
function glob_match(glob, s,    stem) {
    if (substr(glob, length(glob)) == "*") {
        stem = substr(glob, 1, length(glob) - 1)
        return substr(s, 1, length(stem)) == stem
    }
    if (glob ~ /\*\.pb-c\.h$/) return s ~ /^compiler\/import\/.*\.pb-c\.h$/
    return s == glob
}
function starts(s, prefix) { return substr(s, 1, length(prefix)) == prefix }
BEGIN {
    n = split(rules, line, "\n")
    for (i = 1; i <= n; i++) if (split(line[i], p, /[ ]*:[ ]*/) == 2) allow[p[1]] = p[2]
    n = split(libraries, line, "\n")
    for (i = 1; i <= n; i++) if (split(line[i], p, /[ ]+:[ ]*/) == 2) lib[p[1]] = p[2]
    nforbid = split(forbidden, forbid, "\n")
}
/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
    h = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*[<"]/, "", h)
    sub(/[>"].*/, "", h)
    local = $0 ~ /include[ \t]*"/
    for (g in lib) if (glob_match(g, h)) {
        k = split(lib[g], where, " "); good = 0
        for (j = 1; j <= k; j++) if (starts(FILENAME, where[j])) good = 1
        if (!good) print FILENAME ":" FNR ": <" h "> may be included only by " lib[g]
        next
    }
    if (!local) {
        if (h ~ /^(ir|passes|targets|compiler|runtime)\//)
            print FILENAME ":" FNR ": our header <" h "> in angle brackets"
        next
    }
    best = ""
    for (r in allow) if (starts(FILENAME, r) && length(r) > length(best)) best = r
    k = split(allow[best], where, " "); good = 0
    for (j = 1; j <= k; j++) if (starts(h, where[j])) good = 1
    for (j = 1; j <= nforbid; j++) {
        split(forbid[j], p, " ")
        if (starts(FILENAME, p[1]) && starts(h, p[2])) good = 0
    }
    if (!good) print FILENAME ":" FNR ": " best " may not include \"" h "\""
}')
if [ -n "$violations" ]; then
    printf '%s\n' "$violations"
    printf 'layers: %d includes in the wrong direction\n' "$(printf '%s\n' "$violations" | wc -l)"
    exit 1
fi

# The runtime runs any graph: it knows no matrix product, no attention, and no architecture by name. (llama.cpp and
# llama-server are programs whose notations and answers it knows; so is the llama of runtime/serve.)
names=$(sed -n 's/^ARCH([A-Z0-9_]*, "\([^"]*\)".*/\1/p' compiler/import/arch.def | sort -u | tr '\n' '|')
known=$(grep -rniE 'matmul|attention' runtime
    grep -rniwE "${names%|}" runtime | grep -viE 'llama(\.cpp|-server)|^runtime/serve/.*llama')
if [ -z "$names" ] || [ -n "$known" ]; then
    printf '%s\n' "$known"
    echo 'layers: the runtime names a part of models (see above)'
    exit 1
fi
printf 'layers: %d files, every include goes the right way\n' "$(printf '%s\n' "$list" | wc -l)"
