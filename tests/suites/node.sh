#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 3000
#
# The ONNX backend node tests through built engines. tests/conformance/node_expected.txt says what each does;
# anything else fails, an unexpected pass too. By default for level v3 (with sanitizers the quarter of the tests that a
# hash of their names selects); NODE_SUITE=full: on every level of the machine.
#
# NODE_ONLY='test_resize*' runs some of them. After a change that is right: `tests/suites/node.sh --write` rewrites the list (from the source folder, with INFC_BUILD
# set; look at the difference).

if [ "${1-}" = --write ]; then
    INFC_SRC=$(pwd)
    TMP=$(mktemp -d)
    INFC=${INFC:-$INFC_BUILD/infc}
    : "${JOBS:=2}"
    cd "$TMP" || exit 1
fi
. "$INFC_SRC/tests/lib/t.sh"

if ! t_want all; then exit 0; fi
if ! suite=$("$INFC_SRC/models/fetch" node-suite 2>fetch.log); then
    t_skip all 'models/fetch node-suite failed: $(tail -n 1 fetch.log)'
    exit 0
fi

c=$INFC_SRC/tests/conformance/engine_suite.c
parts="$INFC_SRC/runtime/io_pb.c $INFC_SRC/runtime/io_file.c $INFC_SRC/runtime/tensor.c $INFC_SRC/runtime/status.c
$INFC_SRC/compiler/import/wire.c"
# shellcheck disable=SC2086
if ! ${INFC_CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O1 -I"$INFC_SRC" -I"$INFC_BUILD" -o engine_suite "$c" $parts \
    "$INFC_SRC"/ir/support/*.c -lm; then
    t_fail build 'engine_suite.c does not build'
    exit 1
fi

levels=x86-64-v3 stride=1 write=
if [ "${INFC_SANITIZE-}" ] && [ "${NODE_SUITE-}" != full ]; then stride=4; fi
if [ "${NODE_SUITE-}" = full ]; then
    levels=x86-64-v2
    if grep -qw avx2 /proc/cpuinfo; then levels=$levels,x86-64-v3; fi
    if grep -qw avx512vl /proc/cpuinfo; then levels=$levels,x86-64-v4; fi
elif ! grep -qw avx2 /proc/cpuinfo; then
    levels=x86-64-v2
fi
if [ "${1-}" = --write ]; then write=--write=$INFC_SRC/tests/conformance/node_expected.txt; fi

# A private cache of kernels: the tests share many, and the user's is left alone.
XDG_CACHE_HOME=$TMP/cache ./engine_suite --infc="$INFC" --expected="$INFC_SRC/tests/conformance/node_expected.txt" \
    --levels=$levels --stride=$stride --jobs="${JOBS:-2}" ${NODE_ONLY:+"--only=$NODE_ONLY"} $write "$suite" >lines
cat lines
if grep -q '^not ok ' lines; then t_failures=1; fi
t_end
