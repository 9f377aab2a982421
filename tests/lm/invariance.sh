#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Batch invariance: 16 prompts through an engine in every combination of
#
#   answers at a time {1, 2, 8} x chunk {1, 7, 64, 512} x threads {1, 2} x prompts known before or not x
#   preemption with every 3 tokens or never x every CPU level
#
# must give one hash of raw logit bits per prompt and level. The logits are those of the prompt's last token and of the
# tokens that follow it.
#
# usage: invariance.sh [--few] [--far] [--cuda] VOCAB ENGINE...
#   --few   a dozen combinations a level that have each value at least once
#   --far   prompts of up to 480 tokens, whose attention is shared out over several slices of the context
#   --cuda  on the GPU, or the driver's stand-in that LD_LIBRARY_PATH leads to, in place of the CPU's levels
# Prints a line an engine and level; exits with 1 when a hash differs.

few= levels= ctx=128
lengths='1 2 3 4 5 6 7 8 9 15 16 17 31 33 32 66'
for l in ${LEVELS:-v2 v3 v4 vnni amx}; do levels="$levels isa=$l"; done
[ "$1" = --few ] && few=1 && shift
[ "$1" = --far ] && ctx=512 lengths='1 100 200 250 251 253 255 256 257 300 301 350 384 385 400 480' && shift
[ "$1" = --cuda ] && levels=device=cuda && shift
vocab=$1
shift
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# Lengths around pages and chunks; a third of the prompts begin alike.
prompts() {
    awk -v vocab="$vocab" -v lengths="$lengths" 'BEGIN {
        n = split(lengths, len, " ")
        x = 12345
        for (i = 1; i <= n; i++) {
            line = ""
            y = 99
            for (k = 0; k < len[i]; k++) {
                x = (x * 1103515245 + 12345) % 2147483648
                y = (y * 69069 + 1) % 2147483648
                line = line " " int((i % 3 == 0 && k < 33 ? y : x) / 65536) % vocab
            }
            print substr(line, 2)
        }
    }'
}

combinations() {
    for chunk in 1 7 64 512; do
        for batch in 1 2 8; do
            for threads in 1 2; do
                for warm in '' --warm; do
                    for preempt in '' '--preempt 3'; do
                        k=$((k + 1))
                        # every eighth, beginning elsewhere in each round, has every pair of most values
                        [ -n "$few" ] && [ $(((k + k / 8) % 8)) -ne 0 ] && continue
                        echo "--chunk $chunk --batch $batch --threads $threads $warm $preempt"
                    done
                done
            done
        done
    done
}

prompts >"$tmp/ids"
combinations | awk '{ $1 = $1; print NR, $0 }' >"$tmp/combinations"
status=0
for engine; do
    for isa in $levels; do
        "$engine" info --$isa >/dev/null 2>&1 || continue
        runs=0 preempted=0 found=0 bad=0
        rm -f "$tmp/want"
        rm -f "$tmp"/got.* "$tmp"/figures.*
        # those of one thread side by side; those of more alone, for threads that must share a core wait long for each other
        for threads in 1 2; do
            jobs=1
            if [ $threads = 1 ]; then jobs=$(nproc); fi
            # shellcheck disable=SC2016
            grep -e "--threads $threads" "$tmp/combinations" | xargs -L 1 -P "$jobs" sh -c '
                engine=$1 tmp=$2 ctx=$3 isa=$4 i=$5
                shift 5
                "$engine" logits "$tmp/ids" -n 4 --ctx "$ctx" "--$isa" "$@" >"$tmp/got.$i" 2>"$tmp/figures.$i" ||
                    { cat "$tmp/figures.$i"; exit 255; }' sh "$engine" "$tmp" "$ctx" "$isa" || exit 1
        done
        while read -r i args; do
            runs=$((runs + 1))
            preempted=$((preempted + $(sed 's/.* steps, \([0-9]*\) pre.*/\1/' "$tmp/figures.$i")))
            found=$((found + $(sed 's/.*ions, \([0-9]*\) tok.*/\1/' "$tmp/figures.$i")))
            [ -f "$tmp/want" ] || cp "$tmp/got.$i" "$tmp/want"
            cmp -s "$tmp/want" "$tmp/got.$i" && continue
            bad=$((bad + 1))
            echo "differs: $engine logits -n 4 --ctx $ctx --$isa $args, prompts: $(diff "$tmp/want" "$tmp/got.$i" | grep -c '^<')"
        done <"$tmp/combinations"
        distinct=$(cut -d' ' -f1 "$tmp/want" | sort -u | wc -l)
        echo "$engine ${isa#*=}: $runs combinations, $bad differ; $distinct hashes of 16 prompts, $preempted preemptions, $found tokens found"
        [ $bad = 0 ] && [ "$distinct" = 16 ] && [ $preempted -gt 0 ] && [ $found -gt 0 ] || status=1
    done
done
exit $status
