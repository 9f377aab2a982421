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
# The fake driver, by a client written with NVIDIA's cuda.h; failures are injected by the environment.
# shellcheck disable=SC2086
if ${INFC_CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O1 -fPIC -shared $INFC_INCLUDES -Wl,-soname,libcuda.so.1 -o libcuda.so.1 \
    "$INFC_SRC"/tests/ptx/fakecuda/*.c "$INFC_SRC"/tests/ptx/interp/*.c -lm -lpthread >out 2>&1 &&
    ${INFC_CC:-cc} -std=gnu11 -O1 -I"$cuda" -o client "$INFC_SRC/tests/ptx/client/client.c" -ldl >>out 2>&1; then
    driver_case() { # driver_case NAME SETTING EXPECTED
        if ! t_want "$1"; then return; fi
        got=$(env "$2" LD_LIBRARY_PATH=. ./client 2>err | tail -n 1)
        if [ "$got" = "$3" ]; then t_ok "$1"; else t_fail "$1" "'$got', expected '$3'"; sed 's/^/| /' err; fi
    }
    driver_case driver-run INFC_FAKE_CC=90 'result 0'
    driver_case driver-sm86 INFC_FAKE_CC=86 'result 0'
    driver_case driver-no-device INFC_FAKE_FAIL=nodevice 'result 100 of cuInit'
    driver_case driver-wrong-architecture INFC_FAKE_CC=75 'result 209 of cuModuleLoadData'
    driver_case driver-no-memory INFC_FAKE_MEM=1024 'result 2 of cuMemAlloc_v2'
    driver_case driver-memory-injected INFC_FAKE_FAIL=memory@1 'result 2 of cuMemAlloc_v2'
    driver_case driver-launch-fails INFC_FAKE_FAIL=launch@2 'result 719 of cuMemcpyDtoHAsync_v2'
    driver_case driver-lost INFC_FAKE_FAIL=lost@1 'result 46 of cuStreamSynchronize'
else
    t_fail driver 'the fake driver or its client does not build'
    cat out
fi

# A folder with cute/ in it: given, or of the wheel nvidia-cutlass in the test environment.
if [ -z "${INFC_CUTLASS-}" ]; then
    for d in "${INFC_VENV-}"/lib/python3*/site-packages/cutlass_library/source/include; do
        if [ -d "$d/cute" ]; then INFC_CUTLASS=$d; export INFC_CUTLASS; fi
    done
fi
# Its lines are this suite's lines.
ASAN_OPTIONS=detect_leaks=0 nice ./validate "$INFC_SRC/tests/ptx/validate" "$cuda" || t_failures=1

# Mutants: a sample of those that tests/ptx/mutants makes, and a bar for the whole that a sample's luck does not reach.
if t_want mutants; then
    # shellcheck disable=SC2086
    if ${INFC_CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O2 $sanitize $INFC_INCLUDES -o mutate "$INFC_SRC/tests/ptx/mutate.c" "$INFC_SRC/tests/ptx/mutation.c" \
        "$INFC_SRC/tests/ptx/validate/kernels.c" "$INFC_SRC/tests/ptx/validate/nvrtc.c" "$obj/libptx.a" -lm -ldl >out 2>&1; then
        ASAN_OPTIONS=detect_leaks=0 nice ./mutate "$INFC_SRC/tests/ptx/validate" "$cuda" gemm_mma_80,softmax,pipeline,handover,histogram 10 85 >out 2>&1
        case $? in
        0) if grep -q '^skip' out; then t_skip mutants "$(cat out)"; else t_ok mutants; fi ;;
        *) t_fail mutants "$(tail -n 1 out)" && cat out ;;
        esac
    else
        t_fail mutants 'tests/ptx/mutate.c does not build'
    fi
fi
t_end
