#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Text commands of engines, on tiny random models that tests/lm/make_model.py writes: what they say is
# nonsense, that it is the same nonsense however it was computed is the point. Figures are checked
# by tests/lm/check.py from the JSON.

. "$INFC_SRC/tests/lib/t.sh"

python=${INFC_PYTHON:-python3}
check="$python $INFC_SRC/tests/lm/check.py"

built() {
    "$python" "$INFC_SRC/tests/lm/make_model.py" . &&
        "$INFC" build chat.gguf -o chat && "$INFC" build encoder.gguf -o encoder
}
if ! built >out 2>err; then
    t_fail build "the tiny models do not build"
    sed 's/^/| /' err
    exit 1
fi

prompt='the robot was in a city and the robot is in the city of a robot and to the city in the robot'

# One run with everything that a run can tell, as a line of text.
answers() { ./chat generate -p "$prompt" -n 40 --seed 5 --json --logprobs 3 "$@" | $check answers; }

same_answers_however_computed() {
    answers >want || return 1
    for chunk in 1 7 64 512; do
        for threads in 1 2; do
            answers --chunk $chunk --threads $threads >got && cmp want got || return 1
        done
    done
    for isa in v2 v3; do
        ./chat info --json --isa=$isa >/dev/null 2>&1 || continue
        answers --isa $isa --chunk 512 >one && answers --isa $isa --chunk 7 >two && cmp one two || return 1
    done
    # a cache that holds one answer at a time: the others are preempted or wait
    answers --choices 4 >want && answers --choices 4 --ctx 96 --kv-memory 40K --chunk 5 >got && cmp want got
}
t_check same-answers-however-computed same_answers_however_computed

bad_token_ids() {
    for ids in x 99999999999999999999999 389 -1 1,2 '1 2 x' '1 .'; do
        printf '%s\n' "1 2
$ids" >bad
        ./chat logits bad -q >got 2>said && return 1
        grep -q "^error: line 2: '.*' is no token of this model" said && [ ! -s got ] || return 1
    done
    printf '\n\r\n' >bad
    ! ./chat logits bad -q 2>said && grep -q 'no token ids' said
}
t_check bad-token-ids bad_token_ids

# One model in three forms of file: the same engine, but for the name.
files_of_other_kinds() {
    ./chat tokenize -p "$prompt" >ids && ./chat logits ids -n 20 >want || return 1
    for f in big parts-00001-of-00003; do
        "$INFC" build $f.gguf -o other && ./other logits ids -n 20 >got && cmp want got && ./other selftest || return 1
    done
}
t_check files-of-other-kinds files_of_other_kinds

# A copy of the weights in memory: the same answers, and info says so.
weights_copied() {
    answers >want && answers --hugepages=copy >got && cmp want got || return 1
    ./chat info --isa=v2 --hugepages=copy | grep -q '^hugepages [0-9]* of [0-9]* MB of weights, a copy' || return 1
    ! ./chat generate -p x -n 1 --hugepages=many 2>err2 && grep -q 'no --hugepages=many; there are file and copy' err2
}
t_check weights-copied weights_copied

# Caches in blocks: the same, and smaller.
caches_in_blocks() {
    for kv in f32:256 q8:80 q4:48 f8:64; do
        "$INFC" build chat.gguf --kv=${kv%:*} --target=x86-64-v3 -o small || return 1
        ./small info | grep -q "KV cache ${kv#*:} bytes a token" || { ./small info >&2; return 1; }
        set -- ./small generate -p "$prompt" -n 40 --seed 5 --json --logprobs 3
        "$@" | $check answers >want && "$@" --chunk 7 --threads 1 | $check answers >got && cmp want got || return 1
        "$@" --choices 4 | $check answers >want && "$@" --choices 4 --ctx 96 --kv-memory 24K --chunk 5 | $check answers >got && cmp want got || return 1
    done
    ! "$INFC" build chat.gguf --kv=q7 -o none 2>err2 && grep -q 'f32, f8, q8 or q4' err2
}
t_check caches-in-blocks caches_in_blocks

# The whole matrix, and real models: tests/lm/invariance.sh.
batch_invariance() {
    "$INFC" build chat.gguf --kv=q8 -o small && "$INFC" build blocks.gguf -o blocks && "$INFC_SRC/tests/lm/invariance.sh" --few 300 ./chat ./small ./blocks &&
        "$INFC_SRC/tests/lm/invariance.sh" --few --far 300 ./chat
}
t_check batch-invariance batch_invariance

# Engines with integer products have code for the level that was made for them.
levels_of_a_model() {
    "$INFC" build blocks.gguf --emit=loop >loops && grep -q ', level vnni,' loops || return 1
    for args in 'chat.gguf' 'blocks.gguf --act=f32' 'blocks.gguf --target=x86-64-v4'; do
        # shellcheck disable=SC2086
        "$INFC" build $args --emit=loop >loops && grep -q ', level v4,' loops && ! grep -q ', level vnni,' loops || return 1
    done
}
t_check levels-of-a-model levels_of_a_model

# The IR is the model: silu edited to gelu in the text, and the engine's logits follow numpy's.
edited() {
    edit="$python $INFC_SRC/tests/lm/edit.py"
    "$INFC" build chat.gguf --kv=f32 --stop-after=import -o imported.ir && $edit text imported.ir edited.ir &&
        cp imported.ir.bin edited.ir.bin && "$INFC" build imported.ir --start-at=fold --target=x86-64-v3 -o imported &&
        "$INFC" build edited.ir --start-at=fold --target=x86-64-v3 -o edited && $edit ids >ids || return 1
    for act in silu gelu; do
        e=imported
        [ $act = gelu ] && e=edited
        "./$e" logits ids --all --raw >$act && $edit check $act $act || return 1
    done
    ! $edit check gelu silu
}
if "$python" -c 'import numpy' 2>/dev/null; then
    t_check edited edited
else
    t_skip edited 'no numpy'
fi

choices_are_seeds_of_their_own() {
    answers --choices 3 >three && answers >one && [ "$(sed -n 1p three)" = "$(cat one)" ] &&
        [ "$(sort -u three | wc -l)" = 3 ]
}
t_check choices-are-seeds-of-their-own choices_are_seeds_of_their_own

prompt_logprobs_and_perplexity_agree() {
    ./chat generate -p "$prompt" -n 1 --json --prompt-logprobs --temp 0 >a.json &&
        printf %s "$prompt" >text && ./chat perplexity text --json >b.json && $check perplexity a.json b.json
}
t_check prompt-logprobs-and-perplexity-agree prompt_logprobs_and_perplexity_agree

windows_count_each_token_once() {
    for i in 1 2 3 4 5 6 7 8 9 10; do printf '%s\n' "$prompt"; done >long
    n=$(./chat tokenize --json --no-bos long | $check count) || return 1
    for args in '--ctx 64' '--ctx 64 --stride 20' '--ctx 64 --stride 63' '--ctx 100 --stride 1'; do
        # shellcheck disable=SC2086
        ./chat perplexity long --json $args | $check counted "$n" || return 1
        # without bos the first token of the first window has no prediction; of the others too
        # when they do not overlap
        # shellcheck disable=SC2086
        case $args in *stride*) ./chat perplexity long --no-bos --json $args | $check counted $((n - 1)) || return 1 ;; esac
    done
}
t_check windows-count-each-token-once windows_count_each_token_once

tokens_round_trip() {
    printf 'a b  c\n\tUnicode: \303\244 \342\202\254 \360\237\230\200 end ' >text
    ./chat tokenize text >ids && ./chat detokenize <ids | cmp - text &&
        # shellcheck disable=SC2046
        ./chat detokenize $(cat ids) | cmp - text &&
        [ "$(./chat tokenize -p '<s>' --no-bos --parse-special)" = 1 ] &&
        [ "$(./chat tokenize -p '<s>' --no-bos)" != 1 ] &&
        [ "$(./chat detokenize --special 1 2)" = '<s></s>' ]
}
t_check tokens-round-trip tokens_round_trip

text_alone_on_stdout() {
    answers >line || return 1
    ./chat generate -p "$prompt" -n 40 --seed 5 >plain 2>figures || return 1
    $check text line plain && grep -q 'a second' figures && ./chat generate -p "$prompt" -n 40 --seed 5 -q >quiet 2>none &&
        cmp plain quiet && [ ! -s none ] && printf %s "$prompt" | ./chat generate -n 40 --seed 5 2>none | cmp - plain
}
t_check text-alone-on-stdout text_alone_on_stdout

stops() {
    ./chat generate -p "$prompt" -n 40 --seed 5 -q >plain || return 1
    $check stop plain >stop || return 1
    ./chat generate -p "$prompt" -n 40 --seed 5 -q --stop "$(cat stop)" --stop 'never this' >short &&
        $check stopped plain stop short && [ "$(./chat generate -p a -n 0 -q)" = '' ]
}
t_check stops stops

sampling_options_reach_the_sampler() {
    greedy=$(./chat generate -p "$prompt" -n 20 --temp 0 -q) &&
        [ "$(./chat generate -p "$prompt" -n 20 --top-k 1 --seed 9 -q)" = "$greedy" ] &&
        [ "$(./chat generate -p "$prompt" -n 20 --top-p 0 --seed 9 -q)" = "$greedy" ] &&
        [ "$(./chat generate -p "$prompt" -n 20 --min-p 1 --seed 9 -q)" = "$greedy" ] || return 1
    ./chat generate -p "$prompt" -n 3 --temp 0 --json --logit-bias 300=1000 | $check tokens 300 300 300 || return 1
    ./chat generate -p "$prompt" -n 30 --temp 5 --json --ignore-eos --logit-bias 2=1000 --logit-bias 4=900 | $check without 2 4
}
t_check sampling-options-reach-the-sampler sampling_options_reach_the_sampler

context_full() {
    t_run context-full 2 ./chat generate -p "$prompt" --ctx 60 --ignore-eos --seed 1 &&
        t_grep context-full 'the context of 60 tokens is full' err && [ -s out ] || return 1
    ./chat generate -p "$prompt" --ctx 60 --ignore-eos --seed 1 -n 200 --on-full=slide --json | $check answers >slid &&
        grep -q '"length"' slid || return 1
    t_run prompt-too-long 2 ./chat generate -p "$prompt" --ctx 20 &&
        t_grep prompt-too-long 'the prompt has [0-9]* tokens; the context holds 20' err
}
if t_want context-full; then context_full && t_ok context-full; fi

# Every one is refused before anything is computed, with the option's name.
bad_usage() {
    while read -r want args; do
        # shellcheck disable=SC2086
        t_run bad-usage 2 ./chat $args && t_grep bad-usage "$want" err && [ ! -s out ] || return 1
    done <<'END'
temp generate -p a --temp 999999
top-p generate -p a --top-p -1
top-p generate -p a --top-p nan
predict generate -p a -n -3
bogus generate -p a --bogus
seed generate -p a --seed x
isa generate -p a --isa
value generate -p a --json=3
kv-memory generate -p a --kv-memory 12Q
logit generate -p a --logit-bias 7
token generate -p a --logit-bias 99999999=1
stop generate -p a --stop=
threads generate -p a --threads 0
file generate -p a -f b
cannot generate -f no/such/file
prompt generate -p a --prompt-tokens 3
outside detokenize 99999999
part detokenize x
embeddings embed -p a
template chat -p a --template none
arguments chat -p a --template-args [
argument chat a
stride perplexity -p a --stride 9999999
raw logits no/file --raw --batch 2
cannot logits no/file
preempt logits no/file --preempt 0
END
}
if t_want bad-usage; then bad_usage && t_ok bad-usage; fi

chats() {
    ./chat chat -p 'the robot' --seed 2 -n 10 -q >one && [ -s one ] || return 1
    printf 'the robot\n/undo\nthe robot\n/stats\n/exit\nnever\n' | ./chat chat --seed 2 -n 10 >two 2>err2 || return 1
    cat one one | cmp - two && grep -q '2 messages; context of 512' err2 || return 1
    # a conversation goes on where it was: what was computed is not computed again
    printf '%s\nand to the city\n' "$prompt" | ./chat chat --seed 2 -n 40 >/dev/null 2>err2
    sed -n 2p err2 | grep -q '\(32\|64\|96\) of them known'
}
t_check chats chats

chat_errors() {
    printf '/bogus\n/set temp 0.1\n/set temp 1000\n/system be good\n/show\n/help\n' | ./chat chat >out3 2>err3
    grep -q "no command '/bogus'" err3 && grep -q "'1000' is not possible" err3 && grep -q '^system: be good' err3 &&
        grep -q '/regen' err3 && [ ! -s out3 ] || return 1
    long=$(for i in 1 2 3 4 5 6 7 8; do printf '%s ' "$prompt"; done)
    printf '%s\n' "$long" | ./chat chat --ctx 128 >out3 2>err3 && return 1
    grep -q 'the conversation has [0-9]* tokens, the context 128' err3 || return 1
    # sliding forgets old messages and says so
    for i in 1 2 3 4; do printf 'the robot is in the city of a robot and to the city\n'; done |
        ./chat chat --ctx 160 --on-full=slide --seed 3 -n 20 >out3 2>err3 &&
        grep -q 'messages were left out' err3
}
t_check chat-errors chat_errors

embeds() {
    ./encoder embed -p 'robot city' --json >a.json && printf 'robot city\ncity\n\n' >lines &&
        ./encoder embed lines --json --no-normalize >b.json && ./encoder embed lines >c.txt &&
        $check embeddings a.json b.json c.txt || { t_fail embeds 'vectors'; return 1; }
    t_run embed-pooling 2 ./encoder embed -p a --pooling most && t_run embed-generate 2 ./encoder generate -p a &&
        t_grep embed-generate 'does not generate text' err
}
if t_want embeds; then embeds && t_ok embeds; fi

benches() {
    ./chat bench --json --prompt-tokens 40 -n 8 --repeat 1 --batch 3 | $check bench 3 40 8 &&
        ./chat profile --json --prompt-tokens 40 -n 8 | $check profile 8 &&
        ./chat profile --json --prompt-tokens 40 -n 0 --chunk 16 | $check profile 3
}
t_check benches benches

helps() {
    for cmd in generate chat embed rank perplexity tokenize detokenize bench profile logits; do
        ./chat $cmd --help | grep -q "^usage: ./chat $cmd " || return 1
    done
    ./chat --help | grep -q '  generate' && ! ./chat --help | grep -q '  run ' && ./chat info | grep -q '(state)' &&
        ./chat info | grep -q '^text .*context of 512 tokens, KV cache 128 bytes a token in pages of 32, 1 chat'
}
t_check helps helps

selftests() {
    "$INFC" build blocks.gguf -o blocks || return 1
    for e in chat encoder blocks; do
        ./$e selftest >out4 && grep -q '^ok .*golden 0' out4 || return 1
    done
    # without golden vectors levels are compared with each other
    "$INFC" build --no-golden chat.gguf -o plain && ./plain selftest >out4 && grep -q '^ok .* against v2' out4 &&
        grep -q 'selftest passed' out4
}
t_check selftests selftests

# A wrong scale in the eleventh of twelve layers is found, and where: layer 10 has probes 40 (its input), 41 and 42 (keys and
# values) and 43 (between its halves).
mutants() {
    mutants="$python $INFC_SRC/tests/lm/mutants.py"
    $mutants model deep.gguf || return 1
    for args in --act=i8 --kv=q4 '--act=i8 --kv=q4' --no-golden; do
        # shellcheck disable=SC2086
        "$INFC" build deep.gguf $args --target=x86-64-v3 -o deep && ./deep selftest >out4 || { cat out4; return 1; }
        [ "$args" = --no-golden ] && continue
        while read -r name factor probe; do
            $mutants damage deep "$name" "$factor" mutant && ! ./mutant selftest >out4 &&
                grep -q "^FAIL .*golden 0: .*, at probe $probe\$" out4 || { echo "$args $name"; cat out4; return 1; }
        done <<'END'
blk.10.attn_k.weight 1.25 41
blk.10.attn_v.weight 1.25 42
blk.10.attn_output.weight 1.25 43
blk.10.ffn_up.weight 1.25 44
blk.10.ffn_down.weight 1.25 44
blk.10.ffn_norm.weight 1.1 44
END
    done
}
t_check mutants mutants

# Grammars: the answer is of the form, errors name their place; random schemas against PyPI's jsonschema.
grammars() {
    ./chat generate -p 'a robot' --temp 1.5 --seed 3 --regex '[a-c]{3,5}-(foo|bar)' -q >out5 &&
        grep -Eqx '[a-c]{3,5}-(foo|bar)' out5 || return 1
    printf 'root ::= "<" [0-9]+ ">"\n' >g.gbnf
    printf 'start: "<" /[0-9]{2,4}/ ">"\n' >g.lark
    ./chat generate -p 'a robot' --seed 4 --grammar g.gbnf -q >out5 && grep -Eqx '<[0-9]+>' out5 || return 1
    ./chat generate -p 'a robot' --seed 4 --grammar g.lark -q >out5 && grep -Eqx '<[0-9]{2,4}>' out5 || return 1
    echo '{"properties": {"a": {"pattern": "(?=x)"}}}' >bad.json
    ./chat generate -p 'a robot' --json-schema bad.json >out5 2>err5
    [ $? = 2 ] && grep -q '#/properties/a/pattern: .*look-around' err5 || return 1
    ./chat generate -p 'a robot' --regex a --json-object 2>err5
    [ $? = 2 ] && grep -q 'give one of' err5
}
t_check grammars grammars
if "$python" -c 'import jsonschema' 2>/dev/null; then
    t_check structured-answers "$python" "$INFC_SRC/tests/lm/structured.py" ./chat "${STRUCTURED_ANSWERS:-40}" 1
else
    t_skip structured-answers 'no jsonschema'
fi

# Ctrl-C ends the answer, not the program; on a terminal made by Python.
if "$python" -c 'import os, pty; [os.close(fd) for fd in pty.openpty()]' 2>/dev/null; then
    t_check terminal "$python" "$INFC_SRC/tests/lm/terminal.py" ./chat
else
    t_skip terminal 'no pseudo-terminals here'
fi
t_end
