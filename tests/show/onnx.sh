#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What an ONNX engine promises beside right answers (those are suites of `make check`): sizes, independence, build
# time and memory, one engine for many shapes, equal bytes. One line a requirement: value, limit, holds or misses.
#
# usage: make show-onnx [SHOW='sizes files build bytes run shapes']     exit status 1 when something misses

# Times are taken at real-time priority where that is permitted (as in `make bench`), so that other jobs do not count.

set -u
chrt=
if chrt -f 5 true 2>/dev/null; then chrt='chrt -f 5'; fi
: "${INFC:?run it by make show-onnx}" "${INFC_SRC:?}"
exec $chrt "${INFC_PYTHON:-python3}" "$INFC_SRC/tests/show/measure.py" --infc="$INFC" --fetch="$INFC_SRC/models/fetch" "$@"
