#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Conditions on shapes that only a branch of `if` needs: an engine refuses a call whose branch does not fit the
# shapes, says what it expected, and takes the same shapes when the other branch runs.

. "$INFC_SRC/tests/lib/t.sh"

if ! command -v python3 >/dev/null; then t_skip all 'no python3'; exit 0; fi

# npy FILE TYPE DIMS VALUE: every element is VALUE. DIMS as Python writes a tuple.
npy() {
    python3 - "$@" <<'END'
import struct, sys
path, kind, dims, value = sys.argv[1:]
shape, n = eval(dims), 1
for d in shape:
    n *= d
head = "{'descr': '%s', 'fortran_order': False, 'shape': %r, }" % (kind, shape)
head += " " * (63 - (10 + len(head)) % 64) + "\n"
element = {"<f4": lambda: struct.pack("<f", float(value)), "<i8": lambda: struct.pack("<q", int(value)),
           "|b1": lambda: bytes([int(value)])}[kind]()
with open(path, "wb") as f:
    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + element * n)
END
}

cat >branch.ir <<'END'
model "branch" {
  sym n in [1, 64]
  func @main(%x: f32[n, 3], %c: bool[]) -> (y: f32[n, 3]) {
    %a = if %c {
      %t = sqrt %x
      check a=(n) b=(5) is_le=1 message="the first branch takes five"
      yield %t
    } {
      check a=(2 * n) b=(12) message="the second branch takes six"
      %m = neg %x
      yield %m
    }
    return %a
  }
}
END

own_model() {
    "$INFC" build branch.ir -o branch || return 1
    npy c0.npy '|b1' '()' 0 && npy c1.npy '|b1' '()' 1 || return 1
    for n in 4 5 6 7; do
        npy x.npy '<f4' "($n, 3)" 16 || return 1
        for c in 0 1; do
            for threads in 1 2; do
                ./branch run --threads=$threads --input x=x.npy --input c=c$c.npy --print >got 2>said
                rc=$?
                case $c$n in
                06) [ $rc = 0 ] && grep -q -e '-16, -16, -16' got || return 1 ;;
                14 | 15) [ $rc = 0 ] && grep -q ' *\[\[4, 4, 4' got || return 1 ;;
                0*) [ $rc = 2 ] && grep -q 'n\*2 == 12 expected.*the second branch takes six' said || return 1 ;;
                1*) [ $rc = 2 ] && grep -q 'n <= 5 expected.*the first branch takes five' said || return 1 ;;
                esac
            done
        done
    done
}
t_check own-model own_model

# A real one. Its chunk is 32 ms and the context before it: 576 samples at 16 kHz, 288 at 8 kHz.
voice() {
    "$INFC" build "$1" -o voice || return 1
    npy state.npy '<f4' '(2, 1, 128)' 0 || return 1
    for call in '576 16000 0' '288 8000 0' '576 8000 2' '1200 16000 2' '90 16000 2'; do
        # shellcheck disable=SC2086
        set -- $call
        npy x.npy '<f4' "(1, $1)" 0 && npy sr.npy '<i8' '()' "$2" || return 1
        ./voice run --input input=x.npy --input sr=sr.npy --input state=state.npy >got 2>said
        [ $? = "$3" ] || { echo "$call"; cat said; return 1; }
        if [ "$3" = 2 ]; then grep -q 'expected, got.*input_d1 = '"$1" said || { cat said; return 1; }; fi
    done
}
if model=$("$INFC_SRC/models/fetch" --offline silero-vad 2>/dev/null); then t_check silero-vad voice "$model"
else t_skip silero-vad 'not in the cache (models/fetch silero-vad)'; fi

t_end
