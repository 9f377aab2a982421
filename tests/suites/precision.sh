#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Weights rounded in groups (--prec=int4, int4-g64, int4-g128, w8a16) against the formats computed in tests/precision/groups.py, on every
# level; and what has no place in them.

. "$INFC_SRC/tests/lib/t.sh"

python=${INFC_PYTHON:-python3}
groups() { "$python" "$INFC_SRC/tests/precision/groups.py" "$@"; }
groups model m.ir x.npy || t_fail setup 'no model'

for prec in int4 int4-g64 int4-g128 w8a16; do
    t_run $prec 0 "$INFC" build m.ir --prec=$prec -o m || continue
    ok=yes
    ./m selftest >out 2>err || { t_fail $prec "selftest: $(cat err)"; ok=; }
    for isa in v2 v3 v4 vnni; do
        ./m info --isa=$isa >/dev/null 2>&1 || continue
        t_run $prec 0 ./m run --isa=$isa --input x.npy --output y.npy || { ok=; continue; }
        groups compare $prec y.npy >out 2>&1 || { t_fail $prec "$isa: $(cat out)"; ok=; }
    done
    if [ $ok ]; then t_ok $prec; fi
done

# 8.5 bits a weight (a group of 32 with an f16 scale) and 4.25 (128 with scale and minimum): half as much.
sizes_differ() {
    "$INFC" build m.ir --prec=w8a16 --no-golden -o wide && "$INFC" build m.ir --prec=int4-g128 --no-golden -o narrow &&
        ./wide info --json >wide.json && ./narrow info --json >narrow.json &&
        "$python" -c 'import json; w, n = (json.load(open(f))["weights_bytes"] for f in ("wide.json", "narrow.json")); print(w, n); assert n == w / 2'
}
t_check sizes sizes_differ

# 48 inputs a column: no whole group of 64, so f16, and said.
"$python" - >odd.ir <<'END'
print(f'''model "odd" {{
  const @w: f32[48, 2] = [{", ".join(["0.25"] * 96)}]
  func @main(%x as "x": f32[3, 48]) -> (y: f32[3, 2]) {{
    %0 = constant value=@w
    %1 = matmul %x, %0
    return %1
  }}
}}''')
END
t_run kept-wider 0 "$INFC" build odd.ir --prec=int4-g64 -o odd && t_grep kept-wider 'kept in f16.*groups of 64' err && ./odd selftest >out && t_ok kept-wider
t_run unknown 2 "$INFC" build m.ir --prec=int3 -o m && t_grep unknown int4-g128 err && t_ok unknown
t_end
