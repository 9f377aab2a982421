#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Operators that cut dims apart whose sizes only a call knows, against ONNX Runtime (tests/conformance/shapes.py).

. "$INFC_SRC/tests/lib/t.sh"

python=${INFC_PYTHON:-python3}
if ! $python -c 'import onnx, numpy, onnxruntime' 2>/dev/null; then
    t_skip all 'no onnx, numpy and onnxruntime'
    exit 0
fi
PYTHONDONTWRITEBYTECODE=1 $python "$INFC_SRC/tests/conformance/shapes.py" --infc="$INFC" --work=work >lines 2>err || t_failures=1
cat lines
if ! grep -q '^ok \|^not ok ' lines; then
    t_fail all 'shapes.py ended early'
    sed 's/^/| /' err | tail -n 20
fi
t_end
