#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 3600
#
# Random graphs against ONNX Runtime with its optimiser off (tests/random/gen.py): 40 of them for one level, or
# RANDOM_GRAPHS=300 (then on every level of the machine), from RANDOM_SEED=1 on. A graph that fails is kept in
# BUILD/tests/random.

. "$INFC_SRC/tests/lib/t.sh"

python=${INFC_PYTHON:-python3}
if ! $python -c 'import onnx, numpy, onnxruntime' 2>/dev/null; then
    t_skip all 'no onnx, numpy and onnxruntime'
    exit 0
fi
graphs=${RANDOM_GRAPHS:-40}
levels=v2
if grep -qw avx2 /proc/cpuinfo; then levels=v3; fi
if [ "$graphs" -gt 100 ]; then
    levels=v2
    if grep -qw avx2 /proc/cpuinfo; then levels=$levels,v3; fi
    if grep -qw avx512vl /proc/cpuinfo; then levels=$levels,v4; fi
fi
if ! t_want graphs; then exit 0; fi
PYTHONDONTWRITEBYTECODE=1 XDG_CACHE_HOME=$TMP/cache $python "$INFC_SRC/tests/random/gen.py" --infc="$INFC" \
    --graphs="$graphs" --seed="${RANDOM_SEED:-1}" --levels=$levels --work=work --keep="$INFC_BUILD/tests/random" \
    >lines 2>err || t_failures=1
cat lines
if ! grep -q '^# ' lines; then
    t_fail graphs 'gen.py ended early'
    sed 's/^/| /' err | tail -n 20
fi
t_end
