#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 3600
#
# Real models against ONNX Runtime with its optimiser off (tests/conformance/models.py), every level of the machine.
# By default a few that are quick; MODELS=full: all of them, MODELS='a b': these. `make models` writes them all into
# docs/onnx-models.md.

. "$INFC_SRC/tests/lib/t.sh"

python=${INFC_PYTHON:-python3}
if ! $python -c 'import numpy, onnxruntime' 2>/dev/null; then
    t_skip all 'no numpy and onnxruntime'
    exit 0
fi
models=${MODELS:-magika ppocr-cls silero-vad-op18 silero-vad light-squeezenet minilm-f32}
if [ "$models" = full ]; then models=$($python "$INFC_SRC/tests/conformance/models.py" --list); fi

levels=v2
if grep -qw avx2 /proc/cpuinfo; then levels=$levels,v3; fi
if grep -qw avx512vl /proc/cpuinfo; then levels=$levels,v4; fi
if grep -qw avx512_vnni /proc/cpuinfo; then levels=$levels,vnni; fi

for m in $models; do
    if ! t_want "$m"; then continue; fi
    if ! path=$("$INFC_SRC/models/fetch" "$m" 2>fetch.log); then
        t_skip "$m" "models/fetch $m failed: $(tail -n 1 fetch.log)"
        continue
    fi
    $python "$INFC_SRC/tests/conformance/models.py" --infc="$INFC" --levels=$levels --work=work "$m=$path" >lines 2>err ||
        t_failures=$((t_failures + 1))
    cat lines
    if ! grep -q '^ok \|^not ok ' lines; then
        t_fail "$m" 'models.py ended early'
        sed 's/^/| /' err | tail -n 20
    fi
done
t_end
