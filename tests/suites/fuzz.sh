#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every fuzz target runs its committed corpus once. `make fuzz TARGET=name` looks for more.

. "$INFC_SRC/tests/lib/t.sh"

for source in "$INFC_SRC"/tests/fuzz/fuzz_*.c; do
    if [ ! -e "$source" ]; then exit 0; fi
    name=${source##*/fuzz_}
    name=${name%.c}
    corpus=$INFC_SRC/tests/fuzz/corpus/$name
    if [ ! -d "$corpus" ]; then
        t_skip "$name" "no corpus in tests/fuzz/corpus/$name"
        continue
    fi
    t_check "$name" "$INFC_BIN/tests/fuzz/fuzz_$name" "$corpus"
done
t_end
