#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every header compiles alone, twice over (the include guard), with our warnings. `make
# check-headers` calls it. usage: tests/headers.sh [SOURCE_FOLDER]

set -u
src=${1:-$(CDPATH='' cd "$(dirname "$0")/.." && pwd -P)}
cc=${INFC_CC:-cc}
includes=${INFC_INCLUDES:--I$src}
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
n=0 bad=0
for h in $(cd "$src" && find runtime ir passes targets compiler tests -name '*.h' 2>/dev/null |
    LC_ALL=C sort); do
    n=$((n + 1))
    printf '#include "%s"\n#include "%s"\nint infc_header_check;\n' "$h" "$h" >"$tmp/h.c"
    # Flag lists on purpose.
    # shellcheck disable=SC2086
    if ! $cc -std=c11 -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Werror $includes \
        -fsyntax-only "$tmp/h.c" 2>"$tmp/err"; then
        printf '%s does not compile alone:\n' "$h"
        head -n 8 "$tmp/err"
        bad=$((bad + 1))
    fi
done
printf 'headers: %d checked, %d do not compile alone\n' $n $bad
[ $bad = 0 ]
