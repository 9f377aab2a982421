#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tuning and reports: what infc build --tune, --tune-db, --frozen, --report and ENGINE profile --trace leave behind. Which
# schedule wins is the machine's affair; that every winner gives the same bits is ours.

. "$INFC_SRC/tests/lib/t.sh"

python=${INFC_PYTHON:-python3}
export XDG_CACHE_HOME="$TMP/cache"

# relu(x w), 24 rows or any number: two products with tiles to choose from.
"$python" - >m.ir <<'END'
def values(n): return ", ".join(f"{i * 37 % 101 / 50 - 1:.2f}" for i in range(n))
print(f'''model "m" {{
  sym n in [1, 100]
  const @w: f32[20, 48] = [{values(960)}]
  const @v: f32[48, 20] = [{values(960)}]
  const @zero: f32[] = [0]
  func @main(%x as "x": f32[n, 20]) -> (y: f32[n, 20]) {{
    %0 = constant value=@w
    %1 = matmul %x, %0
    %2 = constant value=@zero
    %3 = max %1, %2
    %4 = constant value=@v
    %5 = matmul %3, %4
    return %5
  }}
}}''')
END
t_run setup 0 "$INFC" build m.ir -o plain --target=x86-64-v2 || t_end

answer() { ./"$1" run --random=3 --shape=n:77 --output=y="$1.npy"; }

tunes() {
    "$INFC" build m.ir -o tuned --target=x86-64-v2 --tune=3 --tune-db=t.db --tune-args='--shape n:77' || return 1
    [ "$(grep -c ' v2 ' t.db)" = 2 ] && answer plain && answer tuned && cmp plain.npy tuned.npy
}
t_check tunes tunes
frozen_repeats() {
    "$INFC" build m.ir -o again --target=x86-64-v2 --tune-db=t.db --frozen && cmp tuned again
}
t_check frozen-repeats frozen_repeats
t_run frozen-misses 2 "$INFC" build m.ir -o e --target=x86-64-v3 --tune-db=t.db --frozen && t_grep frozen-misses 'no entry for kernel .*level v3' err && t_ok frozen-misses
t_run other-cpu-misses 2 "$INFC" build m.ir -o e --target=x86-64-v2 --tune-db=t.db --frozen --tune-cpu=AuthenticAMD-25-97 && t_ok other-cpu-misses
t_run frozen-needs-db 2 "$INFC" build m.ir -o e --frozen && t_grep frozen-needs-db 'needs --tune-db' err && t_ok frozen-needs-db
t_run no-db 2 "$INFC" build m.ir -o e --tune-db=nosuch.db && t_grep no-db 'nosuch.db' err && t_ok no-db
echo 'what is this' >bad.db
t_run bad-db 2 "$INFC" build m.ir -o e --tune-db=bad.db && t_grep bad-db 'bad.db:1' err && t_ok bad-db
# Without a frozen database a miss is the cost model's choice, to the byte.
unknown_is_default() { : >empty.db && "$INFC" build m.ir -o e --target=x86-64-v2 --tune-db=empty.db && cmp plain e; }
t_check unknown-is-default unknown_is_default

# Every knob set by hand to each of several values: the same bits.
every_value_same_bits() {
    for knobs in tile=101 tile=204 tile=301 prefetch=0 prefetch=8192 row_block=1 row_block=48 tile=302,prefetch=4096,row_block=30; do
        sed "s/ v2 \([^ ]*\) [^ ]* / v2 \1 $knobs /" t.db >hand.db
        "$INFC" build m.ir -o hand --target=x86-64-v2 --tune-db=hand.db --frozen && answer hand && cmp plain.npy hand.npy || { echo "$knobs"; return 1; }
    done
}
t_check every-value-same-bits every_value_same_bits

# "Elsewhere" is a shell of our own, which gets the script as its last argument, as ssh would hand it over.
tunes_elsewhere() {
    "$INFC" build m.ir -o far --target=x86-64-v2 --tune=2 --tune-db=far.db --tune-on='sh -c' --tune-args='--shape n:5' || return 1
    grep -q ' v2 ' far.db
}
t_check tunes-elsewhere tunes_elsewhere
t_run elsewhere-fails 0 "$INFC" build m.ir -o e --target=x86-64-v2 --tune=2 --tune-on='false' && t_grep elsewhere-fails 'is not tuned' err && t_ok elsewhere-fails

# ---- reports ----

cat >page.py <<'END'
import html.parser, sys
class P(html.parser.HTMLParser):
    def __init__(self): super().__init__(); self.n = {}; self.text = ""
    def handle_starttag(self, tag, attrs): self.n[tag] = self.n.get(tag, 0) + 1
    def handle_data(self, data): self.text += data
p = P()
p.feed(open(sys.argv[1]).read())
assert not {"script", "link", "img", "iframe"} & p.n.keys(), p.n
assert p.n["svg"] == int(sys.argv[2]), p.n
for word in sys.argv[3:]: assert word in p.text, word
END
report_page() {
    "$INFC" build m.ir -o plain --target=x86-64-v2 --report=r.html && "$python" page.py r.html 2 'Memory plan' matmul f32 'Work of each launch'
}
t_check report-page report_page
report_with_profile() {
    ./plain profile --json --repeat=3 --shape=n:77 >p.json &&
        "$INFC" build m.ir -o plain --target=x86-64-v2 --report=r.html --profile=p.json && "$python" page.py r.html 3 Roofline 'Time of each launch'
}
t_check report-with-profile report_with_profile
echo '{"launches": []}' >none.json
t_run report-other-profile 2 "$INFC" build m.ir -o e --report=r2.html --profile=none.json && t_grep report-other-profile 'another engine' err && t_ok report-other-profile
echo '[' >cut.json
t_run report-cut-profile 2 "$INFC" build m.ir -o e --report=r2.html --profile=cut.json && t_ok report-cut-profile

trace() {
    ./plain profile --repeat=4 --threads=2 --shape=n:77 --trace=t.json || return 1
    "$python" - <<'END'
import json
events = json.load(open("t.json"))["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
assert {e["tid"] for e in spans} <= {0, 1}
assert len([e for e in spans if e["tid"] == 0]) == 4 * 2, len(spans)   # 4 runs of 2 launches
for w in 0, 1:
    mine = [e for e in spans if e["tid"] == w]
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in zip(mine, mine[1:]))
assert all(e["ts"] >= 0 and e["dur"] >= 0 and e["args"]["kernel"] for e in spans)
END
}
t_check trace trace
t_run trace-unwritable 3 ./plain profile --repeat=1 --trace=nosuch/t.json && t_ok trace-unwritable
t_end
