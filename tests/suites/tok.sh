#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tokenizer against PyPI `tokenizers` (tests/tok/diff.py): 2,000 random strings a kind, more with
# TOK_COUNT=100000. Skipped where the package is not installed.

. "$INFC_SRC/tests/lib/t.sh"

python=
for p in "$INFC_VENV/bin/python" "$INFC_PYTHON" python3; do
    if "$p" -c 'import tokenizers' >/dev/null 2>&1; then python=$p; break; fi
done
if [ -z "$python" ]; then
    t_skip differential "PyPI tokenizers is not installed (pip install tokenizers==0.23.3)"
    t_end
fi

sanitize=${INFC_SANITIZE:+-fsanitize=$INFC_SANITIZE}
# INFC_INCLUDES is a word list by convention.
# shellcheck disable=SC2086
if ! $INFC_CC -std=c11 -O1 $sanitize $INFC_INCLUDES -o tok_tool "$INFC_SRC/tests/tok/tok_tool.c" \
    "$INFC_BIN/obj/libcompiler.a" "$INFC_BIN/obj/libir.a" "$INFC_BIN/obj/libruntime.a" >out 2>&1; then
    t_fail tool "tests/tok/tok_tool.c does not compile"
    cat out
    t_end
fi
# Its lines are this suite's lines.
"$python" "$INFC_SRC/tests/tok/diff.py" --tool ./tok_tool --count "${TOK_COUNT:-2000}" || t_failures=1
t_end
