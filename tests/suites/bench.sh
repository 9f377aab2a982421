#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# infc bench: what it computes and prints, on peers that answer with made-up figures, so that no clock decides.
# Engines are compared for what they are (outputs, sizes), never for how fast they were.

. "$INFC_SRC/tests/lib/t.sh"

python=${INFC_PYTHON:-python3}
export XDG_CACHE_HOME="$TMP/cache"

# fake FIGURES METRICS: the figures in turn, one a call, for ever.
cat >fake <<'END'
#!/bin/sh
figures=$1
echo "infc-bench 1 ${2:-latency_ms:lower}"
set -- $figures
while read -r n; do
    while [ "$n" -gt 0 ]; do
        if [ $# = 0 ]; then set -- $figures; fi
        echo "$1" | tr , ' '
        shift
        n=$((n - 1))
    done
done
END
chmod +x fake
fast='--rounds=9 --burst=0 --warm-up=0'

# With a burst of one call a round, of which the first two warm up: rounds see the rest in turn.
gate() { # shellcheck disable=SC2086
    "$INFC" bench --loop-peer="./fake 10" --loop-peer="./fake $1" $fast --fail-if-slower=2% >out 2>err
}
gate_passes() { gate 10 && gate 10.1 && gate 5; }
gate_fails() { gate 10.3; [ $? = 4 ] && grep -q 'slower than ./fake 10 by more than 2%' err; }
t_check gate-passes gate_passes
t_check gate-fails gate_fails

figures() {
    # shellcheck disable=SC2086
    "$INFC" bench --loop-peer="./fake '1 2 3 4'" --loop-peer="./fake '2 4 6 8'" --rounds=8 --burst=0 --warm-up=0 --json >j || return 1
    "$python" - <<'END'
import json
a, b = json.load(open("j"))["variants"]
m = a["metrics"]["latency_ms"]
assert (m["min"], m["p50"], m["p90"], m["max"], m["samples"]) == (1, 2, 4, 4, 8), m
r = b["metrics"]["latency_ms"]["time_ratio"]
assert r == {"estimate": 2, "low": 2, "high": 2}, r
END
}
t_check figures figures

several_metrics_and_directions() {
    # shellcheck disable=SC2086
    "$INFC" bench --loop-peer="./fake '100,5' 'rate:higher wait_ms:lower'" --loop-peer="./fake '50,4' 'rate:higher wait_ms:lower'" $fast --json >j || return 1
    "$python" - <<'END'
import json
m = json.load(open("j"))["variants"][1]["metrics"]
assert m["rate"]["time_ratio"]["estimate"] == 2 and m["wait_ms"]["time_ratio"]["estimate"] == 0.8, m
END
}
t_check several-metrics-and-directions several_metrics_and_directions

page() {
    # shellcheck disable=SC2086
    "$INFC" bench --loop-peer="./fake '1 2 <3'" $fast --html=p.html >out 2>&1 && return 1
    "$INFC" bench --loop-peer="./fake '1 2 3'" --loop-peer="./fake '2 3 4'" $fast --html=p.html >out || return 1
    "$python" - <<'END'
import html.parser
class P(html.parser.HTMLParser):
    n = {}
    def handle_starttag(self, tag, attrs): self.n[tag] = self.n.get(tag, 0) + 1
p = P()
p.feed(open("p.html").read())
assert p.n["svg"] == 3 and "script" not in p.n and "link" not in p.n and "img" not in p.n, p.n
END
}
t_check page page

t_run nothing-given 2 "$INFC" bench && t_ok nothing-given
t_run no-engine 2 "$INFC" bench ./nosuch && t_grep no-engine 'no engine' err && t_ok no-engine
t_run unknown-scenario 2 "$INFC" bench --loop-peer=./fake --scenario=x && t_grep unknown-scenario 'expected single-stream' err && t_ok unknown-scenario
t_run other-protocol 3 "$INFC" bench --loop-peer=cat && t_grep other-protocol 'does not speak' err && t_ok other-protocol
t_run peer-ends 3 "$INFC" bench --loop-peer="sh -c 'echo infc-bench 1 x:lower'" && t_ok peer-ends
t_run bad-figure 3 "$INFC" bench --loop-peer="./fake nan" $fast && t_grep bad-figure 'no positive figure' err && t_ok bad-figure
t_run other-metrics 2 "$INFC" bench --loop-peer="./fake 1 a:lower" --loop-peer="./fake 1 b:lower" $fast && t_grep other-metrics 'other things' err && t_ok other-metrics
t_run peer-fails 3 "$INFC" bench --peer='exit 7' $fast && t_grep peer-fails 'exit status 7' err && t_ok peer-fails
t_run peer-once 0 "$INFC" bench --peer=true --peer=true --rounds=3 --burst=0 --warm-up=0 && t_ok peer-once
for s in multi-stream offline 'server --qps=5000' server; do
    # shellcheck disable=SC2086
    t_run "scenario-${s%% *}${s##* }" 0 "$INFC" bench --loop-peer="./fake 1" --loop-peer="./fake 1" --rounds=3 --burst=0.1 --warm-up=0 --scenario=$s &&
        t_ok "scenario-${s%% *}${s##* }"
done

# ---- engines ----

sed 's/0.5, -100, 1/0.5, -100, 2/' "$INFC_SRC/tests/cli/tiny.ir" >other.ir
"$INFC" build "$INFC_SRC/tests/cli/tiny.ir" -o tiny 2>err && "$INFC" build other.ir -o other 2>err || cat err

engines() {
    # shellcheck disable=SC2086
    "$INFC" bench ./tiny './tiny --threads=1' ./other $fast --json >j || return 1
    "$python" - <<'END'
import json, os
a, b, c = json.load(open("j"))["variants"]
assert a["file_bytes"] == os.path.getsize("tiny") and a["output_error"] is None, a
assert b["output_error"] == 0, b   # one engine twice: the same bits
assert c["output_error"] > 0, c    # another bias: another output
END
}
t_check engines engines
t_run roofline 0 "$INFC" bench ./tiny $fast --roofline && t_grep roofline 'GFLOP/s' out && t_ok roofline
loop_protocol() {
    printf '0\n2\n1\n' | ./tiny bench --loop >out || return 1
    [ "$(head -n 1 out)" = 'infc-bench 1 latency_ms:lower' ] && [ "$(wc -l <out)" = 4 ]
}
t_check loop-protocol loop_protocol
t_run loop-nonsense 2 sh -c 'echo x | ./tiny bench --loop' && t_ok loop-nonsense
t_end
