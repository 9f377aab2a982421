#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What `ENGINE serve` promises beside right answers, a line each: what, value, limit, holds or misses. Needs what models/fetch
# smollm2-gguf light-resnet50 minilm-f32 brought; lines that compare with other servers are in docs/serve.md by hand. Exits with 1 when a
# line misses. Half an hour; tests/serve/soak.py and its fellows say how to run one alone.
#
# usage: make show-serve [ONLY='start pss kserve resets drains swaps front books short hash stall']

set -u
: "${INFC:?run it as make show-serve}" "${INFC_SRC:?}"
python=${INFC_PYTHON:-python3}
only=${ONLY:-start pss kserve resets drains swaps front books short hash stall}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
missed=0
serve=$INFC_SRC/tests/serve

wanted() { case " $only " in *" $1 "*) true ;; *) false ;; esac; }

line() { # line WHAT VALUE LIMIT holds|misses|skipped
    printf '%-26s %-100s %-46s %s\n' "$1" "$2" "$3" "$4"
    if [ "$4" = misses ]; then missed=1; fi
}

# soaked WHAT LIMIT COMMAND...: the last line that the command prints is the value
soaked() {
    what=$1 limit=$2
    shift 2
    wanted "$what" || return
    if "$@" >said 2>err; then verdict=holds; else verdict=misses; fi
    line "$what" "$(tail -n 1 said)" "$limit" $verdict
    if [ $verdict = misses ]; then tail -n 5 err; fi
}

cd "$work" || exit 1
model=$("$INFC_SRC/models/fetch" --offline smollm2-gguf 2>/dev/null) || { echo 'models/fetch smollm2-gguf has not been run'; exit 1; }
"$INFC" build "$model" -o smollm2 >build.log 2>&1 && "$python" "$INFC_SRC/tests/lm/make_model.py" . && "$INFC" build chat.gguf -o chat >build.log 2>&1 &&
    "$INFC" build "$serve/v2.ir" --serve -o tensors >build.log 2>&1 || { cat build.log; exit 1; }

soaked start 'below 20 ms' "$python" "$serve/moment.py" start ./smollm2
soaked pss 'at most 1.1 times one' "$python" "$serve/moment.py" pss ./smollm2
if wanted kserve; then
    if minilm=$("$INFC_SRC/models/fetch" --offline minilm-f32 2>/dev/null) && resnet=$("$INFC_SRC/models/fetch" --offline light-resnet50 2>/dev/null) &&
        "$INFC" build "$minilm" --serve -o minilm >build.log 2>&1 && "$INFC" build "$resnet" --serve -o resnet50 >build.log 2>&1; then
        soaked kserve 'JSON and binary equal run, bit for bit' "$python" "$serve/v2_models.py" minilm resnet50
    else
        line kserve 'models/fetch minilm-f32 light-resnet50 have not been run' '' skipped
    fi
fi
soaked resets 'no page held, growth below 1 MB' "$python" "$serve/soak.py" ./chat resets
soaked drains 'none lost' "$python" "$serve/soak.py" ./chat drains
soaked swaps 'no request refused or lost' "$python" "$serve/swap.py" ./chat 200
soaked front 'all tests of the front process' "$python" "$serve/front.py" "$INFC" ./chat ./tensors
soaked books 'usage, counters and log agree' "$python" "$serve/soak.py" ./chat books
soaked short 'no error, growth below 1 MB' "$python" "$serve/soak.py" ./chat short
soaked hash 'one hash a prompt' "$python" "$serve/soak.py" ./chat hash
soaked stall 'see docs/serve.md' "$python" "$serve/moment.py" stall ./smollm2
exit $missed
