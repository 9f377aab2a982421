#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 3000
#
# GPU engines without a GPU: built with NVRTC, run end to end on the stand-in for the driver (tests/ptx/fakecuda), which
# executes the PTX that NVRTC emitted. Answers are compared with the reference evaluator.
#
# NVRTC: INFC_NVRTC, what infc finds, or models/fetch nvrtc (the wheel from PyPI). GPU_NODE_STRIDE=1 runs all ONNX node tests.

. "$INFC_SRC/tests/lib/t.sh"

python=${INFC_PYTHON:-python3}
export XDG_CACHE_HOME="$PWD/cache"

t_run targets 0 "$INFC" targets && t_grep targets '^sm90 ' out && t_ok targets
t_run unknown-target 2 "$INFC" build none.ir --target=sm81 # the model comes first
cat >exp.ir <<'END'
model "exp" {
  sym n in [1, 64]
  func @main(%x: f32[n, 8]) -> (y: f32[n, 8]) {
    %1 = exp %x : f32[n, 8] loc("exp.ir:/exp")
    return %1
  }
}
END
t_run unknown-target 2 "$INFC" build exp.ir --target=sm81 && t_grep unknown-target 'did you mean sm8' err &&
    t_grep unknown-target 'sm80, sm86' err && t_ok unknown-target
INFC_NVRTC=/nonexistent t_run no-nvrtc 3 "$INFC" build exp.ir --target=sm80 && t_grep no-nvrtc 'pip install nvidia-cuda-nvrtc' err &&
    t_ok no-nvrtc

if ! "$INFC" build exp.ir --target=sm80 --emit=ptx -o exp.ptx 2>err; then
    if ! grep -q 'needs NVRTC' err; then
        t_fail ptx 'a kernel does not compile'
        cat err
        exit 1
    fi
    if ! INFC_NVRTC=$("$INFC_SRC/models/fetch" nvrtc 2>fetch.log); then
        t_skip all "no NVRTC, and models/fetch nvrtc failed: $(tail -n 1 fetch.log)"
        t_end
    fi
    export INFC_NVRTC
fi

# shellcheck disable=SC2086
if ! ${INFC_CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -fPIC -shared $INFC_INCLUDES -Wl,-soname,libcuda.so.1 -o libcuda.so.1 \
    "$INFC_SRC"/tests/ptx/fakecuda/*.c "$INFC_SRC"/tests/ptx/interp/*.c -lm -lpthread >out 2>&1; then
    t_fail driver 'the fake driver does not build'
    cat out
    exit 1
fi
fake=$PWD

# ---- text forms ----

for form in cuda ptx; do
    t_run "emit-$form" 0 "$INFC" build exp.ir --target=sm90 --emit=$form && t_grep "emit-$form" "k_exp" out && t_ok "emit-$form"
done
t_run emit-cuda 0 "$INFC" build exp.ir --target=sm90 --emit=cuda
if grep -q '#include' out; then t_fail emit-no-include 'printed code includes a header'; else t_ok emit-no-include; fi
t_run emit-cubin 0 "$INFC" build exp.ir --target=sm80 --emit=cubin -o exp.cubin && t_ok emit-cubin
t_run emit-llvm 2 "$INFC" build exp.ir --target=sm80 --emit=llvm && t_grep emit-llvm 'only cuda, ptx and cubin' err && t_ok emit-llvm

# ---- engines ----

# verified NAME MODEL ENGINE CAPABILITY TOLERANCE [OPTION..]
verified() {
    v_name=$1 v_model=$2 v_engine=$3 v_cc=$4 v_tolerance=$5
    shift 5
    INFC_FAKE_CC=$v_cc LD_LIBRARY_PATH=$fake t_run "$v_name" 0 "$INFC" verify "$v_model" "$v_engine" --tolerance="$v_tolerance" "$@" &&
        t_ok "$v_name"
}

if ! $python -c 'import numpy, onnx' 2>/dev/null; then
    t_skip engines 'no numpy and onnx'
    t_end
fi
$python "$INFC_SRC/tests/gpu/models.py" cnn cnn.onnx || t_fail models 'tests/gpu/models.py cnn'
for arch in 80 89 90; do
    t_run "cnn-sm$arch-build" 0 "$INFC" build cnn.onnx --target=sm$arch -o cnn$arch || continue
    t_run "cnn-sm$arch-again" 0 "$INFC" build cnn.onnx --target=sm$arch -o again --no-cache
    if cmp -s cnn$arch again; then t_ok "cnn-sm$arch-same-bytes"; else t_fail "cnn-sm$arch-same-bytes" 'a second build without cache differs'; fi
    verified "cnn-sm$arch" cnn.onnx ./cnn$arch $arch 2e-6
done
t_run newer 0 env INFC_FAKE_CC=86 LD_LIBRARY_PATH="$fake" ./cnn80 run --random=1 && t_ok newer-of-the-generation
t_run translated 0 env INFC_FAKE_CC=100 LD_LIBRARY_PATH="$fake" ./cnn80 run --random=1 && t_ok newer-generation-translates-ptx
t_run selftest 0 env INFC_FAKE_CC=80 LD_LIBRARY_PATH="$fake" ./cnn80 selftest && t_grep selftest '^ok.*sm80.*golden' out && t_ok selftest
# Recorded from the second run on; the recording follows memory that a larger call has moved.
t_run graphs 0 env INFC_FAKE_COUNTERS=1 INFC_FAKE_CC=80 LD_LIBRARY_PATH="$fake" ./cnn80 bench --seconds=0.01 --random=1 &&
    t_grep graphs ' graphs [1-9][0-9]* made 1$' err && t_ok graphs
t_run info 0 ./cnn80 info && t_grep info '^GPUs *sm80' out && t_ok info

# ---- precisions, tensor units ----

# equal A B LIMIT: max|a - b| <= LIMIT * std(a)
equal() {
    $python -c 'import sys, numpy as np
a, b = np.load(sys.argv[1]), np.load(sys.argv[2])
e = np.abs(a - b).max() / a.std()
print("difference", e)
sys.exit(not (a.shape == b.shape and e <= float(sys.argv[3])))' "$1" "$2" "$3"
}

$python "$INFC_SRC/tests/gpu/models.py" matmul mm.onnx 96 144 72
# shellcheck disable=SC2086
${INFC_CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O1 $INFC_INCLUDES -o cubin "$INFC_SRC/tests/gpu/cubin.c" "$INFC_SRC/targets/cuda/cubin.c" ||
    t_fail cubin 'tests/gpu/cubin.c does not build'
# row: precision, architecture, greatest error against f32, instruction that must be there
while read -r prec arch bound kind; do
    name=prec-$prec-sm$arch
    if ! t_want "$name"; then continue; fi
    t_run "$name" 0 "$INFC" build mm.onnx --target=sm$arch,x86-64 --prec=$prec -o mm --report || continue
    if [ "$(sed -n '/^target sm/,$p' out | grep -c '^  dot ')" != 2 ]; then t_fail "$name" 'not both matmuls run on tensor units'; continue; fi
    # Which kernels multiply on tensor units is read from the machine code; what they would take is a prediction and says so.
    if ! grep -q '^times are predictions for ' out || ! grep '^  dot ' out | grep -q ' us '; then t_fail "$name" 'no prediction of times'; continue; fi
    ok=yes
    for shape in 1,1 2,37 3,64 1,130; do
        for device in cpu cuda; do
            t_run "$name" 0 env INFC_FAKE_CC=$arch LD_LIBRARY_PATH="$fake" ./mm run --random=1 "--shape=x:$(echo $shape,96 | tr , x)" \
                "--shape=r:$(echo $shape,72 | tr , x)" --device=$device --output=$device.npy || ok=
        done
        # One rounding of an activation may go the other way: sums are made in another order.
        # On sm90 sums of fp8 have 14 bits of their own within a step of 64 products: more values go the other way.
        if ! equal cpu.npy cuda.npy "$([ $prec$arch = fp890 ] && echo 0.05 || echo 0.02)" >out 2>&1; then t_fail "$name" "CPU and GPU differ at $shape: $(cat out)"; ok=; fi
    done
    INFC_FAKE_CC=$arch LD_LIBRARY_PATH=$fake t_run "$name" 0 "$INFC" verify mm.onnx ./mm --tolerance=$bound || ok=
    t_run "$name" 0 env INFC_FAKE_CC=$arch LD_LIBRARY_PATH="$fake" ./mm selftest || ok=
    t_run "$name" 0 "$INFC" build mm.onnx --target=sm$arch --prec=$prec --emit=cubin -o mm.cubin || ok=
    ./cubin mm.cubin k_matmul_add_max_cast k_matmul_add_max_mul k_matmul_add k_matmul_cast_mul_mul k_matmul_mul_mul_add k_matmul_mul_mul_add_max >lines || ok=
    if [ "$(grep -c " local 0 .*$kind.* async [1-9]" lines)" -lt 2 ]; then t_fail "$name" 'a cubin is not as it should be'; cat lines; ok=; fi
    if [ "$ok" ]; then t_ok "$name"; fi
done <<'END'
tf32 80 2e-3 mma.[1-9].*ldmatrix.[1-9]
tf32 90 2e-3 wgmma.[1-9].*ldmatrix.0
f16 80 2e-3 mma.[1-9].*ldmatrix.[1-9]
f16 90 2e-3 wgmma.[1-9].*ldmatrix.0
bf16 80 2e-2 mma.[1-9].*ldmatrix.[1-9]
bf16 89 2e-2 mma.[1-9].*ldmatrix.[1-9]
bf16 90 2e-2 wgmma.[1-9].*ldmatrix.0
int8 80 5e-2 mma.[1-9].*ldmatrix.[1-9]
int8 90 5e-2 wgmma.[1-9].*ldmatrix.0
fp8 89 0.15 qmma.[1-9].*ldmatrix.[1-9]
fp8 90 0.15 qgmma.[1-9].*ldmatrix.0
END
# Convolutions as implicit matmuls: taps and channels in one run or not, strides, dilation, a residual.
$python "$INFC_SRC/tests/gpu/models.py" conv conv.onnx
while read -r prec arch bound; do
    name=conv-$prec-sm$arch
    if ! t_want "$name"; then continue; fi
    t_run "$name" 0 "$INFC" build conv.onnx --target=sm$arch,x86-64 --prec=$prec -o cv --report || continue
    if [ "$(sed -n '/^target sm/,$p' out | grep -c '^  dot')" != 4 ]; then t_fail "$name" 'not all convolutions run on tensor units'; continue; fi
    ok=yes
    for shape in 1x32x5x7 2x32x9x8 3x32x12x17; do
        for device in cpu cuda; do
            t_run "$name" 0 env INFC_FAKE_COUNTERS=1 INFC_FAKE_CC=$arch LD_LIBRARY_PATH="$fake" ./cv run --random=1 --shape=x:$shape --device=$device --output=$device.npy || ok=
        done
        if ! awk '/^launches/ { exit !($8 == $10 && $12 + $14 > 0) }' err; then t_fail "$name" "bank conflicts, or no tensor units: $(cat err)"; ok=; fi
        if ! equal cpu.npy cuda.npy 2e-3 >out 2>&1; then t_fail "$name" "CPU and GPU differ at $shape: $(cat out)"; ok=; fi
    done
    INFC_FAKE_CC=$arch LD_LIBRARY_PATH=$fake t_run "$name" 0 "$INFC" verify conv.onnx ./cv --tolerance=$bound || ok=
    INFC_FAKE_CC=$arch LD_LIBRARY_PATH=$fake t_run "$name" 0 ./cv selftest || ok=
    t_run "$name" 0 "$INFC" build conv.onnx --target=sm$arch --prec=$prec --emit=cubin -o cv.cubin || ok=
    ./cubin cv.cubin k_conv_max k_conv_add_max k_conv >lines || ok=
    if [ "$(grep -c " local 0 .*mma [1-9].* async [1-9]" lines)" -lt 3 ]; then t_fail "$name" 'a cubin is not as it should be'; cat lines; ok=; fi
    if [ "$ok" ]; then t_ok "$name"; fi
done <<'END'
tf32 80 2e-3
f16 80 2e-3
bf16 90 2e-2
END
# Weights in groups: the format as computed in tests/precision/groups.py.
$python "$INFC_SRC/tests/precision/groups.py" model groups.ir groups-x.npy
for prec in int4 int4-g128 w8a16; do
    name=groups-$prec
    if ! t_want "$name"; then continue; fi
    t_run "$name" 0 "$INFC" build groups.ir --target=sm80 --prec=$prec -o groups || continue
    t_run "$name" 0 env INFC_FAKE_CC=80 LD_LIBRARY_PATH="$fake" ./groups run --input groups-x.npy --output groups-y.npy --device=cuda || continue
    t_run "$name" 0 $python "$INFC_SRC/tests/precision/groups.py" compare $prec groups-y.npy && t_ok "$name"
done
t_run prec-lacking 2 "$INFC" build mm.onnx --target=sm80 --prec=fp8 && t_grep prec-lacking 'target sm80 has no fp8' err && t_ok prec-lacking
t_run prec-unknown 2 "$INFC" build mm.onnx --prec=f17 && t_ok prec-unknown

# What a row gives does not depend on the rows beside it.
if t_run invariance 0 "$INFC" build mm.onnx --target=sm80 --prec=f16 -o mm; then
    $python -c 'import numpy as np
r = np.random.default_rng(5)
x, y = r.standard_normal((1, 70, 96)).astype(np.float32), r.standard_normal((1, 70, 72)).astype(np.float32)
np.save("x.npy", x), np.save("r.npy", y), np.save("x1.npy", x[:, 65:66].copy()), np.save("r1.npy", y[:, 65:66].copy())'
    t_run invariance 0 env INFC_FAKE_CC=80 LD_LIBRARY_PATH="$fake" ./mm run --input x=x.npy --input r=r.npy --output y=all.npy
    t_run invariance 0 env INFC_FAKE_CC=80 LD_LIBRARY_PATH="$fake" ./mm run --input x=x1.npy --input r=r1.npy --output y=one.npy
    t_check invariance $python -c 'import numpy as np; assert np.array_equal(np.load("all.npy")[:, 65:66], np.load("one.npy"))'
fi

# Counted, not timed: shared memory without bank conflicts, no more tensor instructions than the tiles have.
# x[1, 64, 96] w[96, 144] and [1, 64, 144] w[144, 72]: 3 + 2 tiles of 64 x 64; (6 + 6 + 6) + (10 + 10) halves of steps, 32 mma each in 4 warps of 8.
if t_run counters 0 env INFC_FAKE_COUNTERS=1 INFC_FAKE_CC=80 LD_LIBRARY_PATH="$fake" ./mm run --random=1 --shape=x:1x64x96 --shape=r:1x64x72; then
    if grep -q ' mma 1216 ' err && awk '/^launches/ { exit !($8 == $10 && $8 > 0) }' err; then t_ok counters
    else t_fail counters "$(cat err)"; fi
fi

# One kernel each, against numbers worked out by hand.
for arch in 80 90; do
    if ! t_want "counts-sm$arch"; then continue; fi
    $python "$INFC_SRC/tests/gpu/counts.py" "$INFC" "$fake" $arch >lines 2>err || t_failures=1
    cat lines
    if [ -s err ]; then t_fail "counts-sm$arch" "$(tail -n 1 err)"; fi
done

# K in parts: what few rows and many give, bit by bit; what the cubins may not have and must have.
for arch in 80 90; do
    if ! t_want "parts-sm$arch"; then continue; fi
    $python "$INFC_SRC/tests/gpu/parts.py" "$INFC" "$fake" $arch >lines 2>err || t_failures=1
    cat lines
    if [ -s err ]; then t_fail "parts-sm$arch" "$(tail -n 1 err)"; fi
    t_run "parts-cubin-sm$arch" 0 "$INFC" build parts.onnx --target=sm$arch --prec=f16 --emit=cubin -o parts.cubin || continue
    ./cubin parts.cubin k_matmul_add_max_add_whole k_matmul_add_max_add_parts k_conv_max_add_whole k_conv_max_add_parts >lines
    kind=$([ $arch = 90 ] && echo 'wgmma.[1-9].*ldmatrix.0' || echo 'mma.[1-9].*ldmatrix.[1-9]')
    if [ "$(grep -c " local 0 .*$kind.* async [1-9]" lines)" = 8 ]; then t_ok "parts-cubin-sm$arch"
    else t_fail "parts-cubin-sm$arch" 'a cubin is not as it should be'; cat lines; fi
done

# ---- block formats on tensor units ----

# Thirty shapes of each format, against numpy, the CPU's bits and the bits of a row that is alone.
for arch in 80 89 90; do
    for format in q4_0 q4_1 q8_0 q5_1 q4_K q5_K q6_K q2_K q3_K b16 g64 b64 g128; do
        case $arch$format in 80* | 89q4_K | 90q4_1 | 90q6_K) ;; *) continue ;; esac
        if ! t_want "blocks-$format-sm$arch"; then continue; fi
        $python "$INFC_SRC/tests/gpu/blocks.py" "$INFC" "$fake" $arch $format >lines 2>err || t_failures=1
        cat lines
        if [ -s err ]; then t_fail "blocks-$format-sm$arch" "$(tail -n 1 err)"; fi
        t_run "blocks-$format-cubin" 0 "$INFC" build blocks.ir --target=sm$arch --emit=cubin -o blocks.cubin || continue
        ./cubin blocks.cubin k_qmatmul_int_add >lines
        if [ "$(grep -c ' local 0 .*mma [1-9].* async [1-9]' lines)" = 3 ]; then t_ok "blocks-$format-cubin-sm$arch"
        else t_fail "blocks-$format-cubin-sm$arch" 'a cubin is not as it should be'; cat lines; fi
    done
done

# ---- attention on tensor units ----

# Two shapes of each kind of cache, a dozen batches of each, against numpy; what the cubins may not have and must have.
for arch in 80 89 90; do
    for cache in f16 bf16 f8 i8 u4; do
        if ! t_want "attention-$cache-sm$arch"; then continue; fi
        $python "$INFC_SRC/tests/gpu/attention.py" "$INFC" "$fake" $arch $cache >lines 2>err || t_failures=1
        cat lines
        if [ -s err ]; then t_fail "attention-$cache-sm$arch" "$(tail -n 1 err)"; fi
        t_run "attention-$cache-cubin" 0 "$INFC" build attention.ir --target=sm$arch --emit=cubin -o attention.cubin || continue
        ./cubin attention.cubin k_paged_attention_tiles k_paged_attention_single k_paged_attention_split >lines
        if [ "$(grep -c ' local 0 .*mma [1-9].*ldmatrix [1-9]' lines)" = 3 ]; then t_ok "attention-$cache-cubin-sm$arch"
        else t_fail "attention-$cache-cubin-sm$arch" 'a cubin is not as it should be'; cat lines; fi
    done
done

# ---- mutants of printed kernels ----

# A sample of what tests/gpu/mutants.py makes of all families, and a bar for the whole that a sample's luck does not reach.
if t_want mutants; then
    # shellcheck disable=SC2086
    if ${INFC_CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O2 $INFC_INCLUDES -o mutate_printed "$INFC_SRC/tests/ptx/mutate_printed.c" \
        "$INFC_SRC/tests/ptx/mutation.c" "$INFC_SRC"/tests/ptx/interp/*.c -lm >out 2>&1; then
        t_check mutants $python "$INFC_SRC/tests/gpu/mutants.py" "$INFC" "$fake" ./mutate_printed 150 65 softmax product-f16-sm80 attention-f16-sm80
    else
        t_fail mutants 'tests/ptx/mutate_printed.c does not build'
        cat out
    fi
fi

# ---- several targets, the choice of the device ----

if t_run multi 0 "$INFC" build cnn.onnx --target=sm80,sm90,x86-64 -o multi; then
    t_run auto-cpu 0 ./multi run --random=1 && t_grep auto-cpu '^note: no NVIDIA driver.*running on the CPU' err && cp out cpu.txt && t_ok auto-cpu
    t_run device-cpu 0 ./multi run --random=1 --device=cpu && cmp -s out cpu.txt && [ ! -s err ] && t_ok device-cpu
    t_run device-cuda 3 ./multi run --random=1 --device=cuda && t_grep device-cuda 'no NVIDIA driver is installed' err && t_ok device-cuda
    t_run device-unknown 2 ./multi run --random=1 --device=tpu && t_ok device-unknown
    for arch in 80 90; do
        t_run multi-$arch 0 env INFC_FAKE_CC=$arch LD_LIBRARY_PATH="$fake" ./multi info --json --device=cuda && t_grep multi-$arch "\"level\": *\"sm$arch\"" out
        t_run multi-$arch 0 env INFC_FAKE_CC=$arch LD_LIBRARY_PATH="$fake" ./multi run --random=1 && [ ! -s err ] && t_ok multi-sm$arch
    done
    t_run wrong-gpu-auto 0 env INFC_FAKE_CC=75 LD_LIBRARY_PATH="$fake" ./multi run --random=1 &&
        t_grep wrong-gpu-auto '^note: this engine has code for sm80, sm90; the GPU here is an sm75' err && t_ok wrong-gpu-auto
fi
t_run no-cpu-code 3 ./cnn80 run --random=1 --device=cpu && t_grep no-cpu-code 'no code for CPUs; it has sm80' err && t_ok no-cpu-code
t_run wrong-gpu 3 env INFC_FAKE_CC=80 LD_LIBRARY_PATH="$fake" ./cnn90 run --random=1 &&
    t_grep wrong-gpu 'this engine has code for sm90; the GPU here is an sm80' err && t_ok wrong-gpu

# ---- failures ----

# injected NAME SETTING MESSAGE
injected() {
    t_run "fail-$1" 3 env INFC_FAKE_CC=80 "$2" LD_LIBRARY_PATH="$fake" ./cnn80 run --random=1 --shape x:1x3x20x20 || return
    t_grep "fail-$1" "^error: $3" err || return
    if [ "$(grep -c '^error' err)" != 1 ]; then t_fail "fail-$1" 'more than one line of error'; return; fi
    t_ok "fail-$1"
}
injected no-device INFC_FAKE_FAIL=nodevice 'there is an NVIDIA driver, but no GPU'
injected init INFC_FAKE_FAIL=init 'starting the NVIDIA driver failed'
injected old-driver INFC_FAKE_FAIL=olddriver "this engine's code (sm80) was made by CUDA 1[23]"
injected weights-memory INFC_FAKE_FAIL=memory@1 "device memory is short: [0-9]* bytes are needed for this engine's weights"
injected call-memory INFC_FAKE_FAIL=memory@2 'device memory is short: [0-9]* bytes are needed for a call'
injected small-gpu INFC_FAKE_MEM=1024 'device memory is short'
injected launch INFC_FAKE_FAIL=launch@2 'a kernel, or fetching an output'
injected lost INFC_FAKE_FAIL=lost@1 'sending the weights to the GPU failed'

# ---- language models: a llama of two layers ----

# The KV cache stays on the device: its host addresses are a mapping that nobody may touch. Prompts found, chunks, batches,
# preemption: one hash of logits each. Row: target's capability, precision, greatest and root mean square difference from the CPU's logits:
# q8 caches of `blocks`: one cached value of these tokens rounds the other way, by a step of 1/127 (selftest's probes, which pass no rounding on, hold within 1e-5);
# sums of fp8 are cut at 2^-13 of their greatest term on sm90, 0.14% of a typical sum, which turns some 1.5% of the roundings to 3 bits.
if t_want lm && $python "$INFC_SRC/tests/lm/make_model.py" . >out 2>&1; then
    echo '1 5 9 300 20 7 8 33 12 40 2 2 7 19 101 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25' >ids
    while read -r model arch prec kv bound mean; do
        name=lm-$model-$prec-$kv-sm$arch
        t_run "$name" 0 "$INFC" build $model.gguf --target=sm$arch,x86-64-v3 --prec=$prec --kv=$kv -o lm || continue
        export INFC_FAKE_CC=$arch LD_LIBRARY_PATH=$fake
        t_run "$name" 0 ./lm selftest && t_grep "$name" "^ok *sm$arch *golden" out && t_ok "$name-selftest"
        for device in cpu cuda; do ./lm logits ids --all --raw --ctx 128 --chunk 16 --device=$device >$device.f32 2>err || t_fail "$name" "$(cat err)"; done
        t_check "$name-logits" $python -c 'import sys, numpy as np
a, b = np.fromfile("cpu.f32", np.float32), np.fromfile("cuda.f32", np.float32)
e = np.abs(a - b).max() / a.std()
print("difference", e)
r = np.sqrt(np.mean((a - b) ** 2)) / a.std()
print("rms", r)
assert a.size == b.size == 36 * 389 and e <= float(sys.argv[1]) and r <= float(sys.argv[2])' "$bound" "$mean"
        t_check "$name-invariance" "$INFC_SRC/tests/lm/invariance.sh" --few --cuda 300 ./lm
        unset INFC_FAKE_CC LD_LIBRARY_PATH
    done <<'END'
chat 80 keep f16 1e-5 2e-6
chat 89 fp8 f16 0.02 2e-3
chat 90 fp8 f16 0.3 0.05
heads 80 keep q8 1e-5 2e-6
blocks 80 keep f16 1e-5 2e-6
blocks 80 keep q8 1e-2 2e-3
blocks 90 keep f16 1e-5 2e-6
heads 80 keep q4 1e-5 2e-6
heads 80 keep f8 1e-5 2e-6
heads 90 f16 f16 1e-2 1e-3
END
    # Twenty steps: the prompt, the first token, eighteen of the one graph; a size that came once has none.
    t_run lm-graphs 0 env INFC_FAKE_COUNTERS=1 INFC_FAKE_CC=90 LD_LIBRARY_PATH="$fake" ./lm logits ids -n 20 --ctx 128 &&
        t_grep lm-graphs ' graphs 18 made 1$' err && t_ok lm-graphs
    t_run lm-auto 0 ./lm logits ids --ctx 128 && t_grep lm-auto '^note: no NVIDIA driver.*running on the CPU' err && t_ok lm-auto
    t_run lm-no-gpu 3 ./lm logits ids --ctx 128 --device=cuda && t_grep lm-no-gpu 'no NVIDIA driver' err && t_ok lm-no-gpu
    t_run lm-memory 3 env INFC_FAKE_CC=90 INFC_FAKE_FAIL=memory@2 LD_LIBRARY_PATH="$fake" ./lm logits ids --ctx 128 &&
        t_grep lm-memory 'device memory is short: [0-9]* bytes are needed for the KV cache' err && t_ok lm-memory
    t_run lm-large 2 env INFC_FAKE_CC=90 INFC_FAKE_MEM=1048576 LD_LIBRARY_PATH="$fake" ./lm logits ids --ctx 100000 &&
        t_grep lm-large 'bytes of KV cache, more than' err && t_ok lm-large
fi

# ---- models ----

if t_want minilm && model=$("$INFC_SRC/models/fetch" minilm-f32 2>fetch.log); then
    $python "$INFC_SRC/tests/gpu/models.py" cut-minilm "$model" 2 minilm.onnx
    for arch in 80 89 90; do
        t_run "minilm-sm$arch" 0 "$INFC" build minilm.onnx --target=sm$arch -o minilm$arch &&
            verified "minilm-sm$arch" minilm.onnx ./minilm$arch $arch 1e-5 --shape=input_ids:2,7 \
                --shape=attention_mask:2,7 --shape=token_type_ids:2,7
    done
elif t_want minilm; then
    t_skip minilm "models/fetch minilm-f32 failed: $(tail -n 1 fetch.log)"
fi

# ---- ONNX node tests: a sample of them ----

if t_want node && nodes=$("$INFC_SRC/models/fetch" node-suite 2>fetch.log); then
    parts="$INFC_SRC/runtime/io_pb.c $INFC_SRC/runtime/io_file.c $INFC_SRC/runtime/tensor.c $INFC_SRC/runtime/status.c
    $INFC_SRC/compiler/import/wire.c"
    # shellcheck disable=SC2086
    if ${INFC_CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O1 -I"$INFC_SRC" -I"$INFC_BUILD" -o engine_suite \
        "$INFC_SRC/tests/conformance/engine_suite.c" $parts "$INFC_SRC"/ir/support/*.c -lm; then
        INFC_FAKE_CC=80 ./engine_suite --infc="$INFC" --expected="$INFC_SRC/tests/conformance/node_expected.txt" --levels=sm80 \
            --driver="$fake" --stride="${GPU_NODE_STRIDE:-40}" --jobs="${JOBS:-2}" ${NODE_ONLY:+"--only=$NODE_ONLY"} "$nodes" >lines
        sed 's/^\(ok\|not ok\|skip\) /\1 node-/' lines
        if grep -q '^not ok ' lines; then t_failures=1; fi
    else
        t_fail node 'engine_suite.c does not build'
    fi
fi
t_end
