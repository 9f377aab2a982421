# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# What suite scripts share: `. "$INFC_SRC/tests/lib/t.sh"`. See tests/run for how suites are run.
# A suite keeps going after a failed test; `t_end` as its last line gives the exit status.

t_failures=0

t_ok() { printf 'ok %s\n' "$1"; }
t_fail() { # t_fail NAME REASON
    printf 'not ok %s: %s\n' "$1" "$2"
    t_failures=$((t_failures + 1))
}
t_skip() { printf 'skip %s: %s\n' "$1" "$2"; }
t_end() { [ "$t_failures" = 0 ]; exit; }

# Was this test asked for? A suite with slow tests asks before it works.
t_want() {
    if [ -z "${TEST_GLOBS-}" ]; then return 0; fi
    set -f
    for t_g in $TEST_GLOBS; do
        case $SUITE/$1 in
        $t_g | $t_g/*) set +f; return 0 ;;
        esac
    done
    set +f
    return 1
}

# t_run NAME EXIT_CODE COMMAND...: output in ./out and ./err; reports only when the code differs.
t_run() {
    t_name=$1 t_code=$2
    shift 2
    "$@" >out 2>err </dev/null
    t_rc=$?
    if [ "$t_rc" = "$t_code" ]; then return 0; fi
    t_fail "$t_name" "exit status $t_rc, expected $t_code: $*"
    sed 's/^/| /' err | head -n 20
    return 1
}

# t_check NAME COMMAND...: one test that passes when the command succeeds.
t_check() {
    t_name=$1
    shift
    if ! t_want "$t_name"; then return 0; fi
    if "$@" >out 2>err </dev/null; then t_ok "$t_name"; return 0; fi
    t_fail "$t_name" "failed: $*"
    { cat out; cat err; } | sed 's/^/| /' | tail -n 30
    return 1
}

# t_grep NAME PATTERN FILE: for use after t_run; reports only when the pattern is absent.
t_grep() {
    if grep -q -e "$2" "$3"; then return 0; fi
    t_fail "$1" "no line of $3 matches '$2'"
    sed 's/^/| /' "$3" | head -n 20
    return 1
}

# t_same NAME EXPECTED ACTUAL: two files must be equal.
t_same() {
    if cmp -s "$2" "$3"; then return 0; fi
    t_fail "$1" "$3 differs from $2"
    diff -u "$2" "$3" | sed 's/^/| /' | head -n 40
    return 1
}
