#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Grammars and the JSON reader against published vectors: JSON-Schema-Test-Suite and JSONTestSuite in
# ../shared/data beside the source folder, GBNF grammars there; and against Python's re on random
# patterns. Skips what is not there.

. "$INFC_SRC/tests/lib/t.sh"

tool=$INFC_BIN/tests/grammar/grammar_tool
data=$INFC_SRC/../shared/data
python=${INFC_PYTHON:-python3}

# Of 383 schemas at least 80% are right and the others are refused with their place.
if [ -d "$data/json_schema/draft2020-12" ]; then
    t_check draft2020-12 "$python" "$INFC_SRC/tests/grammar/schema_suite.py" "$tool" \
        "$data/json_schema/draft2020-12" --least=80
    t_check draft7 "$python" "$INFC_SRC/tests/grammar/schema_suite.py" "$tool" \
        "$data/json_schema/draft7" --dialect=http://json-schema.org/draft-07/schema#
else
    t_skip draft2020-12 "no $data/json_schema"
fi

if [ -d "$data/json_parsing" ]; then
    "$tool" --json "$data"/json_parsing/*.json >verdicts 2>&1
    t_check json-reader-runs test "$(wc -l <verdicts)" -ge 300
    grep -E '^1 .*/n_' verdicts >wrong
    grep -E '^0 .*/y_' verdicts >>wrong
    t_check json-reader test ! -s wrong || cat wrong
else
    t_skip json-reader "no $data/json_parsing"
fi

if [ -d "$data/grammars" ]; then
    for f in "$data"/grammars/*.gbnf; do
        t_check "gbnf-${f##*/}" "$tool" gbnf "$f"
    done
else
    t_skip gbnf "no $data/grammars"
fi

t_check reported "$python" "$INFC_SRC/tests/grammar/cases.py" "$tool" "$INFC_SRC"/tests/grammar/cases/*.json
t_check random-patterns "$python" "$INFC_SRC/tests/grammar/regex_random.py" "$tool" 3000 1
t_check unicode-properties "$python" "$INFC_SRC/tests/grammar/properties.py" "$tool"
t_end
