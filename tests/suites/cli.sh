#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command lines of infc and of engines: exit codes, messages, streams, output files, equal bytes.

. "$INFC_SRC/tests/lib/t.sh"

tiny=$INFC_SRC/tests/cli/tiny.ir
magika=$("$INFC_SRC/models/fetch" --offline magika 2>/dev/null) || magika=
export XDG_CACHE_HOME="$TMP/cache"

# npy SHAPE >FILE: an f32 array; its elements follow on standard input as raw bytes.
npy() {
    printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($1), }"
    cat
}
ones() { # ones N: as raw f32
    n=$1
    while [ "$n" -gt 0 ]; do printf '\000\000\200\077'; n=$((n - 1)); done
}

if ! t_run setup 0 "$INFC" build "$tiny" -o tiny; then t_end; fi
ones 4 | npy '1, 4' >one.npy
ones 8 | npy '2, 4' >two.npy
ones 3 | npy '1, 3' >narrow.npy

# ---- infc: usage ----

t_run no-command 2 "$INFC" && t_grep no-command 'usage: infc' err && t_ok no-command
t_run unknown-command 2 "$INFC" bild "$tiny" && t_grep unknown-command "unknown command 'bild'" err && t_ok unknown-command
t_run version 0 "$INFC" --version && t_grep version '^infc [0-9]' out && t_ok version
t_run help 0 "$INFC" --help && t_grep help '^examples:' out && t_ok help
help_has_examples() {
    for c in build check inspect verify targets ops passes explain; do
        "$INFC" $c --help >help-$c || return 1
        grep -q '^examples:' help-$c && grep -q "infc $c" help-$c || { echo "infc $c --help has no example"; return 1; }
    done
    for c in run info selftest bench profile licenses; do
        ./tiny $c --help >help-$c || return 1
        grep -q '^examples:' help-$c || { echo "engine $c --help has no example"; return 1; }
    done
}
t_check help-has-examples help_has_examples
t_run unknown-option 2 "$INFC" build --tartget=native "$tiny" && t_grep unknown-option 'did you mean --target' err && t_ok unknown-option
t_run missing-value 2 "$INFC" build "$tiny" --target && t_grep missing-value "needs a value" err && t_ok missing-value
t_run two-models 2 "$INFC" build "$tiny" "$tiny" && t_ok two-models
t_run unknown-target 2 "$INFC" build "$tiny" -o e --target=sparc && t_grep unknown-target "unknown target 'sparc'" err && t_ok unknown-target
t_run unknown-pass 2 "$INFC" build "$tiny" -o e --stop-after=nosuch && t_grep unknown-pass "unknown pass 'nosuch'" err && t_ok unknown-pass
t_run unknown-acc 2 "$INFC" build "$tiny" -o e --acc=f16 && t_grep unknown-acc 'there are auto and f32' err && t_ok unknown-acc
cat >log.ir <<'END'
model "log" {
  func @main(%x: f32[3, 9]) -> (y: f32[3]) {
    %s = reduce_sum %x axes=[1]
    %p = mul %s, %s
    %y = log %p
    return %y
  }
}
END
acc_in_report() {
    "$INFC" build log.ir -o log --report=auto.txt && "$INFC" build log.ir -o log --acc=f32 --report=f32.txt || return 1
    [ "$(grep -c '^sum in f64, a logarithm follows' auto.txt)" = 1 ] && ! grep 'sum in f64' f32.txt
}
t_check acc-in-report acc_in_report
# 8 x 8 pixels, 2 channels in and out, weights 0.01, 0.02 .. 0.36; padded, then a ReLU.
cat >image.ir <<'END'
model "image" {
  const @w: f32[2, 2, 3, 3] = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.10, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18,
                               0.19, 0.20, 0.21, 0.22, 0.23, 0.24, 0.25, 0.26, 0.27, 0.28, 0.29, 0.30, 0.31, 0.32, 0.33, 0.34, 0.35, 0.36]
  const @zero: f32[] = [0]
  func @main(%x as "x": f32[1, 2, 8, 8]) -> (y: f32[1, 2, 8, 8]) {
    %w = constant value=@w
    %z = constant value=@zero
    %c = conv %x, %w pads=(1, 1, 1, 1)
    %y = max %c, %z
    return %y
  }
}
END
t_run unknown-winograd 2 "$INFC" build image.ir -o e --winograd=3 && t_grep unknown-winograd 'there are auto, off, 2 and 4' err && t_ok unknown-winograd
winograd_in_report() {
    for m in 2 4; do
        "$INFC" build image.ir -o image$m --winograd=$m --report=image$m.txt && ./image$m selftest || return 1
        grep -q "^winograd F(${m}x$m, 3x3), errors up to [0-9.]*e-0[678] of the greatest output (direct: " image$m.txt || return 1
    done
    # Too small to be worth it; and what is asked for changes the sums' rounding, not the answer.
    "$INFC" build image.ir -o image --report=image.txt && ! grep winograd image.txt || return 1
    ./image run --random=3 >image.out && ./image4 run --random=3 >image4.out && [ -s image.out ]
    "$INFC" build image.ir --winograd=4 --json -o image4 | grep -q '"winograd": \[$'
}
t_check winograd-in-report winograd_in_report
# Axes below 8 are written out; of seven of them, one inside the other, not all 823,543 elements can be.
cat >tiny_axes.ir <<'END'
model "tiny_axes" {
  func @main(%x: f32[7, 7, 7, 7, 7, 7, 7]) -> (y: f32[], z: f32[7, 7]) {
    %y = reduce_sum %x axes=[0, 1, 2, 3, 4, 5, 6]
    %z = reduce_max %x axes=[0, 2, 3, 4, 6]
    return %y, %z
  }
}
END
tiny_axes_are_loops() {
    "$INFC" verify tiny_axes.ir || return 1
    lines=$("$INFC" build tiny_axes.ir --target=x86-64-v3 --emit=llvm | wc -l)
    [ "$lines" -lt 4000 ] || { echo "$lines lines of LLVM IR"; return 1; }
}
t_check tiny-axes-are-loops tiny_axes_are_loops
t_run explain 0 "$INFC" explain E203 && t_grep explain '^E203: ' out && t_ok explain
t_run explain-unknown 2 "$INFC" explain E999 && t_ok explain-unknown

# ---- infc: bad models ----

t_run missing-model 2 "$INFC" build nosuch.onnx -o e && t_grep missing-model 'nosuch.onnx: No such file' err && t_ok missing-model
t_run folder-as-model 2 "$INFC" build . -o e && t_ok folder-as-model
: >empty.onnx
t_run empty-model 2 "$INFC" check empty.onnx && t_grep empty-model 'the file is empty' err && t_ok empty-model
printf '\010\010\072\377\377\377\377\017' >cut.onnx
t_run cut-model 2 "$INFC" check cut.onnx && t_grep cut-model 'E201' err && t_ok cut-model
head -c 3000 /dev/urandom >noise.onnx
t_run noise 2 "$INFC" check noise.onnx && t_ok noise
# IR that parses and does not hold is refused before any pass sees it.
two_yields=$INFC_SRC/tests/fuzz/corpus/check/two_yields.ir
refused() { "$INFC" build "$two_yields" -o no 2>err; [ $? = 2 ] && grep -q 'a terminator is not at the end' err && ! grep -q 'bug of infc' err; }
t_check unverified-ir refused
sed 's/matmul/matmull/' "$tiny" >typo.ir
t_run ir-syntax 2 "$INFC" build typo.ir -o e && t_grep ir-syntax 'E401.*typo.ir:[0-9]*:[0-9]*' err && t_ok ir-syntax
t_run const-needs-file 2 "$INFC" build "$tiny" --const x && t_grep const-needs-file 'expected NAME=FILE' err && t_ok const-needs-file
t_run const-needs-onnx 2 "$INFC" build "$tiny" -o e --const x=one.npy && t_grep const-needs-onnx 'text IR' err && t_ok const-needs-onnx
json_errors() {
    "$INFC" check cut.onnx --json >problems.json
    [ $? = 2 ] || return 1
    ${INFC_PYTHON:-python3} -c 'import json; p = json.load(open("problems.json")); assert p[0]["code"] == "E201", p'
}
if ${INFC_PYTHON:-python3} -c '' 2>/dev/null; then t_check json-errors json_errors; else t_skip json-errors 'no python'; fi

# ---- infc: output files ----

t_run no-output-folder 3 "$INFC" build "$tiny" -o nosuch/folder/e && t_grep no-output-folder 'nosuch/folder/e' err && t_ok no-output-folder
mkdir folder
t_run output-is-a-folder 3 "$INFC" build "$tiny" -o folder && t_ok output-is-a-folder

# A build that fails half way leaves the engine that was there.
old_engine_stays() {
    cp tiny before
    cp tiny engine
    ( ulimit -f 300; exec "$INFC" build "$tiny" --target=x86-64-v2 -o engine ) >out 2>err
    [ $? != 0 ] || { echo 'the build did not fail'; return 1; }
    cmp before engine && [ "$(ls | grep -c '^engine')" = 1 ]
}
t_check old-engine-stays old_engine_stays
no_space() {
    cp tiny small/engine && cp tiny before || return 1
    "$INFC" build "$tiny" --target=x86-64-v2 -o small/engine >out 2>err
    [ $? = 3 ] && cmp before small/engine && [ "$(ls small)" = engine ]
}
mkdir small
if mount -t tmpfs -o size=1200k none small 2>/dev/null; then
    t_check no-space no_space
    umount small
else
    t_skip no-space 'cannot mount a small file system'
fi

# ---- engines: usage and messages ----

t_run engine-no-command 2 ./tiny && t_ok engine-no-command
t_run engine-unknown-command 2 ./tiny walk && t_grep engine-unknown-command "no command 'walk'" err && t_ok engine-unknown-command
t_run engine-unknown-option 2 ./tiny run --imput x=one.npy && t_ok engine-unknown-option
t_run right-answer 0 ./tiny run --input x=one.npy --print && t_grep right-answer '22.5, 0, 31' out && t_ok right-answer
t_run two-rows 0 ./tiny run --input x=two.npy --print && t_grep two-rows 'f32\[2,3\]' out && t_ok two-rows
t_run bare-file 0 ./tiny run one.npy --print && t_grep bare-file '22.5, 0, 31' out && t_ok bare-file
t_run missing-input 2 ./tiny run && t_grep missing-input "'*x'*" err && t_ok missing-input
t_run wrong-dim 2 ./tiny run --input x=narrow.npy && t_grep wrong-dim "'x'.*dim 1 is 3; expected 4" err && t_ok wrong-dim
sed 's/<f4/<i4/' one.npy >int.npy
t_run wrong-type 2 ./tiny run --input x=int.npy && t_grep wrong-type "x.*i32.*f32\|x.*f32.*i32" err && t_ok wrong-type
t_run unknown-input 2 ./tiny run --input z=one.npy && t_grep unknown-input 'no input of that name' err && t_ok unknown-input
t_run unknown-kind 2 ./tiny run --input x=one.txt && t_grep unknown-kind '.npy, .npz, .pb and .bin' err && t_ok unknown-kind
t_run missing-file 2 ./tiny run --input x=nosuch.npy && t_grep missing-file 'nosuch.npy' err && t_ok missing-file
head -c 100 one.npy >cut.npy
t_run cut-file 2 ./tiny run --input x=cut.npy && t_grep cut-file 'cut.npy' err && t_ok cut-file
t_run unwritable-output 3 ./tiny run --input x=one.npy --output y=nosuch/y.npy && t_grep unwritable-output 'nosuch/y.npy' err && t_ok unwritable-output
if [ -c /dev/full ]; then
    full_output() { ./tiny run --input x=one.npy --print >/dev/full; [ $? = 3 ]; }
    t_check full-output full_output
fi
t_run isa-unknown 2 ./tiny run --isa=v9 --input x=one.npy && t_ok isa-unknown

streams() {
    ./tiny run --input x=- --output y=- <one.npy >y.npy || return 1
    ./tiny run --input x=one.npy --output y=z.npy || return 1
    cmp y.npy z.npy
}
t_check streams streams

every_kind() {
    tail -c 16 one.npy >one.bin
    for kind in bin pb npz npy; do ./tiny run --input x=one.bin --output y=kind.$kind && [ -s kind.$kind ] || return 1; done
    ./tiny run --input x=one.npy --output y=same.npy && cmp kind.npy same.npy || return 1
    tail -c 12 kind.npy | cmp - kind.bin
}
t_check every-kind every_kind

levels_and_threads_agree() {
    for v in $(./tiny info | sed -n 's/^this CPU  *//p'); do
        case " $(./tiny info | sed -n 's/^levels  *//p') " in *" $v "*) ;; *) continue ;; esac
        for t in 1 2 3; do
            ./tiny run --isa=$v --threads=$t --input x=two.npy --output y=y-$v-$t.bin || return 1
            cmp y-$v-$t.bin y-v2-1.bin || return 1
        done
    done
}
t_check levels-and-threads-agree levels_and_threads_agree

t_run selftest 0 ./tiny selftest && t_grep selftest '^selftest passed' out && t_ok selftest
t_run bench 0 ./tiny bench --seconds=0.05 && t_grep bench '^p50' out && t_ok bench
t_run profile 0 ./tiny profile && t_grep profile 'matmul' out && t_ok profile
t_run licenses 0 ./tiny licenses && t_grep licenses 'Apache License' out && t_ok licenses
info_json() { ./tiny info --json | ${INFC_PYTHON:-python3} -c 'import json, sys; json.load(sys.stdin)'; }
if ${INFC_PYTHON:-python3} -c '' 2>/dev/null; then t_check info-json info_json; fi

# ---- verify ----

t_run verify 0 "$INFC" verify "$tiny" ./tiny && t_ok verify
sed 's/\[0.5, -100, 1\]/[0.5, 100, 1]/' "$tiny" >other.ir
t_run verify-fails 4 "$INFC" verify other.ir ./tiny && t_ok verify-fails
t_run verify-input 0 "$INFC" verify "$tiny" ./tiny --input=x=two.npy && t_ok verify-input

# One probability, as a detector gives: it has no deviation that errors could be measured by.
cat >one.ir <<'END'
model "one" {
  func @main(%x: f32[64]) -> (y: f32[1, 1]) {
    %s = reduce_sum %x axes=[0] keepdims=1
    %t = reshape %s dims=(1, 1)
    %y = sigmoid %t
    return %y
  }
}
END
one_element() {
    "$INFC" build one.ir -o one >/dev/null && ./one selftest && "$INFC" verify one.ir ./one || return 1
    sed 's/sigmoid/tanh/' one.ir >not-one.ir
    "$INFC" verify not-one.ir ./one
    [ $? = 4 ]
}
t_check verify-one-element one_element

# ---- text IR on the way ----

phases() {
    "$INFC" build "$tiny" --stop-after=import -o half.ir && "$INFC" build half.ir -o half && cmp half tiny || return 1
    "$INFC" build "$tiny" --stop-after=cse -o cse.ir && "$INFC" build cse.ir --start-at=dce -o third && ./third run one.npy --print | grep -q '22.5, 0, 31'
}
t_check phases phases

# ---- the engine file ----

t_check no-dynamic-section sh -c '! readelf -d tiny | grep -q NEEDED'
stripped() { cp tiny stripped && strip stripped && ./stripped run one.npy --print | grep -q '22.5, 0, 31' && ./stripped selftest; }
t_check strip stripped
damaged() { # one bit of the weights: selftest says so, and that it is the file (exit status 3)
    at=$(readelf -SW tiny | sed -n 's/.*\.infc\.weights *PROGBITS *[0-9a-f]* *\([0-9a-f]*\).*/\1/p')
    ./tiny selftest | grep -q '^ok .*weights: hash' && cp tiny damaged && printf '\001' |
        dd of=damaged bs=1 seek=$((0x$at + 3)) conv=notrunc 2>dd.log || return 1
    ./damaged selftest >out4
    [ $? = 3 ] && grep -q '^FAIL  weights: hash' out4
}
t_check selftest-damaged damaged
no_evaluator() { # in nothing that engines are linked from: they keep no symbols but the runtime's own and the kernels'
    nm tiny "$INFC_BIN"/lib/runtime.o "$INFC_BIN"/lib/libinfops.a 2>/dev/null | sed -n 's/.* [tT] //p' | sort -u >names
    grep -q '^infr_k[0-9]*_.*_v3$' names && grep -q '^rt_tensor_alloc$' names || return 1
    for l in "$INFC_BIN"/obj/libir.a "$INFC_BUILD"/obj/libir.a; do
        if [ -f "$l" ]; then nm "$l" 2>/dev/null; fi
    done | sed -n 's/.* T \(.*eval.*\)/\1/p' | sort -u >eval-names
    [ "$(wc -l <eval-names)" -gt 10 ] && ! comm -12 names eval-names | grep .
}
t_check no-evaluator no_evaluator
in_chroot() {
    rm -rf root && mkdir root && cp tiny one.npy root/ && chroot root /tiny run /one.npy --print | grep -q '22.5, 0, 31' &&
        chroot root /tiny selftest
}
if [ "$(id -u)" = 0 ]; then t_check empty-chroot in_chroot; else t_skip empty-chroot 'needs root'; fi
size=$(wc -c <tiny)
if [ "$size" -le 1500000 ]; then t_ok "engine-size: $size bytes, 3 levels"; else t_fail engine-size "$size bytes"; fi

# ---- the same bytes ----

# equal_bytes MODEL: two folders, job counts, locales, umasks, time zones, a cold and a warm cache, fewer CPU features
equal_bytes() {
    rm -rf a b cache2
    mkdir -p a b/c
    cp "$1" a/model.ir && cp "$1" b/c/model.ir
    (cd a && umask 077 && TZ=Asia/Tokyo LC_ALL=C "$INFC" build model.ir -j1 -o e --no-cache) &&
        (cd b/c && umask 000 && TZ=America/Lima LC_ALL=C.UTF-8 XDG_CACHE_HOME=$TMP/cache2 "$INFC" build model.ir -j3 -o e) &&
        cmp a/e b/c/e || return 1
    (cd a && XDG_CACHE_HOME=$TMP/cache2 GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA "$INFC" build model.ir -o f) && cmp a/e a/f
}
t_check equal-bytes equal_bytes "$tiny"
if [ "$magika" ]; then t_check equal-bytes-magika equal_bytes "$magika"
else t_skip equal-bytes-magika 'not in the cache (models/fetch magika)'; fi

t_end
