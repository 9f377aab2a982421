#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The PTX machine against code that is not ours: kernels written with NVIDIA's headers (and CUTLASS, where it is
# found), compiled by NVRTC, must give the right numbers in it.

. "$INFC_SRC/tests/lib/t.sh"

cuda=$(for d in "${CUDA_HOME-}" /usr/local/cuda /usr/lib/cuda; do
    if [ -f "$d/include/mma.h" ]; then echo "$d/include"; break; fi
done)
if [ -z "$cuda" ]; then
    t_skip validate 'no CUDA toolkit with include/mma.h (CUDA_HOME)'
    exit 0
fi
sanitize=${INFC_SANITIZE:+-fsanitize=$INFC_SANITIZE}
obj=$INFC_BIN/obj
# shellcheck disable=SC2086
if ! ${INFC_CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O1 $sanitize $INFC_INCLUDES -o validate \
    "$INFC_SRC"/tests/ptx/validate/*.c "$obj/libptx.a" -lm -ldl >out 2>&1; then
    t_fail build 'tests/ptx/validate does not build'
    cat out
    exit 1
fi
# A folder with cute/ in it: given, or of the wheel nvidia-cutlass in the test environment.
if [ -z "${INFC_CUTLASS-}" ]; then
    for d in "${INFC_VENV-}"/lib/python3*/site-packages/cutlass_library/source/include; do
        if [ -d "$d/cute" ]; then INFC_CUTLASS=$d; export INFC_CUTLASS; fi
    done
fi
# Its lines are this suite's lines.
ASAN_OPTIONS=detect_leaks=0 nice ./validate "$INFC_SRC/tests/ptx/validate" "$cuda" || t_failures=1
t_end
