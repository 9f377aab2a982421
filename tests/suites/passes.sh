#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Golden tests of tensor passes: tests/passes/FILE.ir holds cases of the form
#
#   // case: NAME
#   // run: PASS,PASS
#   model "t" { ... }
#   // expect:
#   model "t" { ... }
#
# infc-opt must print what is expected, and the module must evaluate the same before and after (unless the
# case says `// equal: no` and why). BLESS=1 writes what infc-opt printed into the files: review the diff.

. "$INFC_SRC/tests/lib/t.sh"

# Splits a file into NAME.run, NAME.in, NAME.want and NAME.equal, and lists the names.
split_cases() { # split_cases FILE FOLDER
    awk -v dir="$2" '
        /^\/\/ case: / { name = $3; print name; part = "in"; printf "" >(dir "/" name ".in"); printf "" >(dir "/" name ".want")
            print "yes" >(dir "/" name ".equal"); next }
        /^\/\/ run: / { print $3 >(dir "/" name ".run"); next }
        /^\/\/ equal: no/ { print "no" >(dir "/" name ".equal"); next }
        /^\/\/ expect:/ { part = "want"; next }
        /^\/\// || name == "" { next }
        part == "want" && /^$/ { next }
        { print >(dir "/" name "." part) }' "$1"
}

run_case() { # run_case FOLDER NAME
    equal=--equal
    if [ "$(cat "$1/$2.equal")" = no ]; then equal=--tolerance=0; fi
    "$INFC_OPT" "--run=$(cat "$1/$2.run")" "$equal" "$1/$2.in" >"$1/$2.got" || return 1
    [ -n "${BLESS-}" ] || diff -u "$1/$2.want" "$1/$2.got"
}

# The file again, with what was printed in the place of what was expected.
bless() { # bless FILE FOLDER
    awk -v dir="$2" '
        /^\/\/ case: / { name = $3; skip = 0 }
        skip && !/^\/\// { next }
        { print }
        /^\/\/ expect:/ { while ((getline line <(dir "/" name ".got")) > 0) { skip = 1; print line }; if (skip) print "" }' "$1" >"$2/blessed" &&
        cat -s "$2/blessed" | sed '${/^$/d}' >"$1"
}

if [ ! -x "$INFC_OPT" ]; then
    t_skip passes "infc-opt is not built"
    t_end
fi
for file in "$INFC_SRC"/tests/passes/*.ir; do
    folder=$PWD/$(basename "$file" .ir)
    mkdir -p "$folder"
    for name in $(split_cases "$file" "$folder"); do
        t_check "$name" run_case "$folder" "$name"
    done
    if [ -n "${BLESS-}" ]; then bless "$file" "$folder"; fi
done
t_end
