#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Figures of language models: what is claimed of them and is no suite of `make check`. A line each: what, value, limit, holds or
# misses. Uses what was fetched (models/fetch smollm2-gguf hamlet gemma3-270m); exits with 1 when a line misses.
#
# usage: make show-lm [ONLY='size memory ...']     lines: size memory first allocations accuracy invariance speed
#   POSITIONS=N of accuracy (2000), MATRIX=few of invariance (full), LLAMA_BENCH=PROGRAM to compare speed with

set -u
: "${INFC:?run it as make show-lm}" "${INFC_SRC:?}"
python=${INFC_PYTHON:-python3}
only=${ONLY:-size memory first allocations accuracy invariance speed}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
missed=0

wanted() { case " $only " in *" $1 "*) true ;; *) false ;; esac; }

line() { # line WHAT VALUE LIMIT holds|misses|skipped
    printf '%-44s %-34s %-30s %s\n' "$1" "$2" "$3" "$4"
    if [ "$4" = misses ]; then missed=1; fi
}

# at_most WHAT VALUE LIMIT UNIT
at_most() { line "$1" "$2 $4" "at most $3 $4" "$(awk -v a="$2" -v b="$3" 'BEGIN { print (a <= b ? "holds" : "misses") }')"; }

if ! model=$("$INFC_SRC/models/fetch" --offline smollm2-gguf 2>/dev/null); then
    echo 'models/fetch smollm2-gguf has not been run'
    exit 1
fi
cd "$work" || exit 1
"$INFC" build "$model" -o smollm2 >build.log 2>&1 || { cat build.log; exit 1; }

# Bytes of the file, less the weights and the text section (tokenizer tables and chat template).
if wanted size; then
    rest=$("$python" - smollm2 <<'END'
import os, struct, sys
data = open(sys.argv[1], "rb").read(16 << 20)
at = data.find(struct.pack("<Q", 0x474E4543464E49AA))
while True:
    header, = struct.unpack_from("<I", data, at + 8)
    blob, weights = struct.unpack_from("<QQ", data, at + 16)
    if 0 < header < 4096 and 0 < blob < 1 << 30:
        break
    at = data.find(struct.pack("<Q", 0x474E4543464E49AA), at + 1)
# text_offset and text_bytes stand behind 16 tables, entry_block and branch_checks
text, = struct.unpack_from("<I", data, at + 56 + 16 * 12 + 12)
print(os.path.getsize(sys.argv[1]) - weights - text)
END
    )
    at_most 'engine less weights and tokenizer tables' "$rest" 2097152 bytes
fi

# Anonymous memory (what no file backs) of a chat that waits behind its answer, less the KV pages of that answer.
if wanted memory; then
    mkfifo questions
    ./smollm2 chat --temp 0 -n 60 --ctx 2048 <questions >answer 2>figures &
    pid=$!
    exec 3>questions
    echo 'Say something about the sea.' >&3
    i=0
    until grep -q 'generated' figures || [ $i -gt 600 ]; do
        sleep 0.2
        i=$((i + 1))
    done
    private=$(awk '/^Anonymous/ { print $2 * 1024 }' /proc/$pid/smaps_rollup)
    tokens=$(sed -n 's/^\[\([0-9]*\) prompt tokens.* \([0-9]*\) generated.*/\1 \2/p' figures | awk '{ print $1 + $2 }')
    exec 3>&-
    wait $pid
    # whole pages of 32 tokens
    limit=$(((tokens + 31) / 32 * 32 * 23040 + 20971520))
    at_most "private memory with $tokens tokens in the cache" "$private" $limit bytes
fi

# From the start of the process to its end behind the first token, median of 9; at real-time priority where permitted.
if wanted first; then
    soon=
    if chrt -f 5 true 2>/dev/null; then soon='chrt -f 5'; fi
    text='The capital of France is the city of Paris,'
    n=$(./smollm2 tokenize -p "$text" | wc -w)
    ms=$("$python" - "$text" $soon ./smollm2 <<'END'
import statistics, subprocess, sys, time
run = sys.argv[2:] + ["generate", "-p", sys.argv[1], "-n", "1", "--temp", "0", "-q"]
times = []
for _ in range(10):
    start = time.monotonic()
    subprocess.run(run, stdout=subprocess.DEVNULL, check=True)
    times.append(1000 * (time.monotonic() - start))
print(f"{statistics.median(times[1:]):.1f}")
END
    )
    at_most "process start to first token, prompt of $n" "$ms" 60 ms
fi

# The interposed allocator lives in a unit test, which drives the loop of generation over a session.
if wanted allocations; then
    if INFC_SRC=$INFC_SRC "$INFC_BIN/tests/unit/test_lm_alloc" >alloc.log 2>&1; then
        line 'allocations a decoded token' 0 'none (unit/test_lm_alloc)' holds
    else
        line 'allocations a decoded token' 'see unit/test_lm_alloc' none misses
    fi
fi

accuracy() { # accuracy NAME MODEL 'BUILD FLAGS' 'LIMITS'
    # shellcheck disable=SC2086
    "$INFC" build "$2" $3 -o engine >build.log 2>&1 || { line "$1" 'does not build' '' misses; return; }
    # shellcheck disable=SC2086
    "$python" "$INFC_SRC/tests/lm/accuracy.py" "$2" engine --text "$hamlet" --text docstrings.txt --positions "${POSITIONS:-2000}" --reference "$work/reference.npz" $4 >out 2>err
    case $? in
    0) said=holds ;;
    *) said=misses ;;
    esac
    value=$(sed 's/^engine: \([0-9]*\) positions, mean KL \([^,]*\), greatest [^,]*, top-1 \([^,]*\), perp.*, \([0-9.]*%\) off.*/KL \2 top-1 \3 ppl \4 (\1)/' out)
    line "$1" "${value:-$(tail -n 1 err)}" "$4" $said
    rm -f engine
}

if wanted accuracy; then
    act=
    if "$INFC" build --help | grep -q -e '--act'; then act=--act=f32; fi
    if hamlet=$("$INFC_SRC/models/fetch" --offline hamlet 2>/dev/null) && "$python" -c 'import numpy, gguf' 2>/dev/null &&
        "$python" "$INFC_SRC/tests/lm/docstrings.py" >docstrings.txt; then
        for name in smollm2-gguf gemma3-270m; do
            path=$("$INFC_SRC/models/fetch" --offline $name 2>/dev/null) || { line "$name" 'was not fetched' '' skipped; continue; }
            accuracy "$name --act=f32 --kv=f32" "$path" "$act --kv=f32" '--kl 1e-5 --top1 0.999'
            accuracy "$name --act=f32 --kv=f16" "$path" "$act --kv=f16" '--kl 5e-4'
            accuracy "$name as built by default" "$path" '' '--kl 1e-3 --ppl 0.5'
        done
    else
        line accuracy 'no hamlet, numpy or gguf' '' skipped
    fi
fi

if wanted invariance; then
    for kv in f16 q8; do
        "$INFC" build "$model" --kv=$kv -o smollm2-$kv >build.log 2>&1 || { cat build.log; exit 1; }
    done
    few=
    if [ "${MATRIX:-full}" = few ]; then few=--few; fi
    # shellcheck disable=SC2086
    "$INFC_SRC/tests/lm/invariance.sh" $few 49152 "$work/smollm2-f16" "$work/smollm2-q8" >matrix
    status=$?
    grep '^differs' matrix
    sed -n 's/^.*smollm2-\([a-z0-9]* [a-z0-9]*\): \([0-9]* combinations, [0-9]* differ\); \([0-9]* hashes\).*/\1|\2, \3/p' matrix >rows
    while IFS='|' read -r what value; do
        case $value in
        *', 0 differ, 16 hashes') line "batch invariance $what" "$value" 'none differs' holds ;;
        *) line "batch invariance $what" "$value" 'none differs' misses ;;
        esac
    done <rows
    if [ $status != 0 ]; then missed=1; fi
fi

if wanted speed; then
    ./smollm2 bench --json --prompt-tokens 512 -n 64 --threads 2 >bench.json 2>/dev/null
    ours=$("$python" -c 'import json; d = json.load(open("bench.json")); print("%.0f %.1f" % (d["prefill_tok_s"], d["decode_tok_s"]))' 2>/dev/null ||
        sed 's/.*"prefill_tok_s":\([0-9]*\).*"decode_tok_s":\([0-9.]*\).*/\1 \2/' bench.json)
    if [ -n "${LLAMA_BENCH:-}" ]; then
        theirs=$("$LLAMA_BENCH" -m "$model" -t 2 -p 512 -n 64 -o json 2>/dev/null |
            "$python" -c 'import json, sys; print(*("%.1f" % r["avg_ts"] for r in json.load(sys.stdin)))')
        line 'prefill and decode, tokens a second' "$ours" "llama.cpp's $theirs" \
            "$(echo "$ours $theirs" | awk '{ print (($1 >= $3 && $2 >= $4) ? "holds" : "misses") }')"
    else
        line 'prefill and decode, tokens a second' "$ours" 'LLAMA_BENCH is not given' skipped
    fi
fi
exit $missed
