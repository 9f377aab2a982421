#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The ONNX backend node tests through importer and evaluator: each test's outcome is what
# tests/onnx/eval_expected.txt says (all that is not listed passes), and an unexpected pass fails, too.
# After a change that is right: `tests/suites/onnx_eval.sh --write` rewrites the list (from the source folder, with
# INFC_BUILD set).

if [ "${1-}" = --write ]; then
    INFC_SRC=$(pwd)
    TMP=$(mktemp -d)
    cd "$TMP" || exit 1
else
    . "$INFC_SRC/tests/lib/t.sh"
fi

program=$INFC_BUILD/tests/onnx/eval_suite
[ -x "$program" ] || program=$INFC_BUILD/san/tests/onnx/eval_suite
if ! suite=$("$INFC_SRC/models/fetch" --offline node-suite 2>/dev/null); then
    t_skip node-suite 'not in the cache (models/fetch node-suite)'
    exit 0
fi

# Transforms of signals whose exact result is 0 need an absolute tolerance.
run() {
    cd "$suite" || return 1
    "$program" --atol=1e-3 test_dft* test_stft*
    # shellcheck disable=SC2046
    "$program" $(ls | grep '^test_' | grep -v '^test_dft\|^test_stft')
}
(run) >"$TMP/all" 2>&1
grep '^[a-z]* test_' "$TMP/all" | grep -v '^pass ' | LC_ALL=C sort -k 2 >"$TMP/outcomes"
passed=$(grep -c '^pass test_' "$TMP/all")

if [ "${1-}" = --write ]; then
    cp "$TMP/outcomes" "$INFC_SRC/tests/onnx/eval_expected.txt"
    echo "$passed pass, $(wc -l <"$TMP/outcomes") listed"
    exit 0
fi
if diff "$INFC_SRC/tests/onnx/eval_expected.txt" "$TMP/outcomes" >"$TMP/diff"; then
    t_ok node-suite
else
    t_fail node-suite 'outcomes are not the expected ones'
    sed 's/^/| /' "$TMP/diff" | head -n 30
fi
t_end
