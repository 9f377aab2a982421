#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 7200
#
# Language models against numpy on the same dequantised weights, over two texts: Hamlet, and docstrings of Python. By default
# 64 positions of SmolLM2, which takes a minute; POSITIONS=2000 LM_MODELS='smollm2-gguf gemma3-270m' is the whole of it (half an
# hour). gemma has terms of use of its own, so it must have been fetched before.

. "$INFC_SRC/tests/lib/t.sh"

python=${INFC_PYTHON:-python3}
positions=${POSITIONS:-64}
models=${LM_MODELS:-smollm2-gguf}

if ! $python -c 'import numpy, gguf' 2>/dev/null; then
    t_skip all 'no numpy and gguf'
    exit 0
fi
if ! hamlet=$("$INFC_SRC/models/fetch" hamlet 2>fetch.log); then
    t_skip all "models/fetch hamlet failed: $(tail -n 1 fetch.log)"
    exit 0
fi
$python "$INFC_SRC/tests/lm/docstrings.py" >docstrings.txt || exit 1

# judge NAME MODEL 'BUILD FLAGS' 'LIMITS'
judge() {
    if ! t_want "$1"; then return; fi
    # shellcheck disable=SC2086
    if ! "$INFC" build "$2" $3 -o engine >build.log 2>&1; then
        t_fail "$1" "does not build: $(grep -m1 error build.log)"
        return
    fi
    # shellcheck disable=SC2086
    if $python "$INFC_SRC/tests/lm/accuracy.py" "$2" engine --text "$hamlet" --text docstrings.txt --positions "$positions" --reference "$PWD/reference.npz" $4 >line 2>err; then
        t_ok "$1"
    else
        t_fail "$1" "$(cat line)"
        sed 's/^/| /' err | tail -n 5
    fi
    cat line
    rm -f engine
}

# Perplexity within 0.5% is asked of 2,000 positions; the difference of a mean of fewer strays by the root of how many times fewer.
ppl=$(awk -v n="$positions" 'BEGIN { print n < 2000 ? 0.5 * sqrt(2000 / n) : 0.5 }')
act=
if "$INFC" build --help | grep -q -e '--act'; then act=--act=f32; fi
for m in $models; do
    offline=
    if [ "$m" = gemma3-270m ]; then offline=--offline; fi
    if ! path=$("$INFC_SRC/models/fetch" $offline "$m" 2>fetch.log); then
        t_skip "$m" "models/fetch $m failed: $(tail -n 1 fetch.log)"
        continue
    fi
    judge "$m-f32" "$path" "$act --kv=f32" '--kl 1e-5 --top1 0.999'
    judge "$m-f16" "$path" "$act --kv=f16" '--kl 5e-4'
    judge "$m-default" "$path" '' "--kl 1e-3 --ppl $ppl"
done
t_end
