#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The server of engines, on the tiny random models of the suite `lm`. tests/serve/raw.py needs Python alone;
# tests/serve/clients.py the clients that people use, which are fetched for it where that is possible.

. "$INFC_SRC/tests/lib/t.sh"

python=${INFC_PYTHON:-python3}

built() {
    "$python" "$INFC_SRC/tests/lm/make_model.py" . &&
        "$INFC" build chat.gguf -o chat && "$INFC" build encoder.gguf -o encoder && "$INFC" build ranker.gguf --kv=f32 -o ranker &&
        "$INFC" build judge.gguf --kv=f32 -o judge && "$INFC" build vectors.gguf --kv=f32 -o vectors &&
        "$INFC" build "$INFC_SRC/tests/serve/v2.ir" --serve -o tensors && "$INFC" build "$INFC_SRC/tests/serve/v2.ir" -o plain
}
if ! built >out 2>err; then
    t_fail build "the tiny models do not build"
    sed 's/^/| /' err
    exit 1
fi

served_where_asked_for() {
    ./tensors --help | grep -q '  serve ' && ! ./plain --help | grep -q '  serve ' && ./tensors licenses | grep -q libevent &&
        ! ./plain licenses | grep -q libevent && ! ./plain serve 2>/dev/null && ./chat serve --help | grep -q listen &&
        ! ./chat serve --listen example.org:80 2>said && grep -q 'numeric address' said && ! ./tensors serve --queue x 2>said &&
        grep -q -- --queue said
}
t_check served-where-asked-for served_where_asked_for

# Two numbers are a score only where the file says that they are yes and no.
other_labels() {
    "$python" -c 'import sys; b = open("judge.gguf", "rb").read(); n = (3).to_bytes(8, "little"); assert b.count(n + b"yes") == 1
open("other.gguf", "wb").write(b.replace(n + b"yes", n + b"dog"))' &&
        ! "$INFC" build other.gguf -o other 2>said && grep -q 'cls.output.weight has several labels' said && grep -q 'one for yes' said
}
t_check other-labels other_labels

PYTHONDONTWRITEBYTECODE=1 "$python" "$INFC_SRC/tests/serve/raw.py" chat encoder || t_failures=1
PYTHONDONTWRITEBYTECODE=1 "$python" "$INFC_SRC/tests/serve/reported.py" chat || t_failures=1
PYTHONDONTWRITEBYTECODE=1 "$python" "$INFC_SRC/tests/serve/swap.py" chat || t_failures=1
PYTHONDONTWRITEBYTECODE=1 "$python" "$INFC_SRC/tests/serve/receipts.py" chat encoder || t_failures=1
PYTHONDONTWRITEBYTECODE=1 "$python" "$INFC_SRC/tests/serve/front.py" "$INFC" chat tensors || t_failures=1
PYTHONDONTWRITEBYTECODE=1 "$python" "$INFC_SRC/tests/serve/rerank.py" ./ranker ./encoder ranker.gguf || t_failures=1
PYTHONDONTWRITEBYTECODE=1 "$python" "$INFC_SRC/tests/serve/judge.py" ./judge judge.gguf ./vectors vectors.gguf || t_failures=1
PYTHONDONTWRITEBYTECODE=1 "$python" "$INFC_SRC/tests/serve/v2.py" ./tensors || t_failures=1
PYTHONDONTWRITEBYTECODE=1 "$python" "$INFC_SRC/tests/serve/talk.py" chat || t_failures=1
PYTHONDONTWRITEBYTECODE=1 "$python" "$INFC_SRC/tests/serve/browser.py" chat || t_failures=1

# The clients' environment is kept beside the build: the first run needs the package index.
wheels='openai==3.* anthropic==2.* prometheus-client==0.*'
venv=$INFC_BUILD/tests/serve-venv
clients() {
    if [ "$(cat "$venv/.wheels" 2>/dev/null)" = "$wheels" ]; then return 0; fi
    python3 -m venv "$venv" &&
        # shellcheck disable=SC2086
        timeout 300 "$venv/bin/python" -m pip install -q --disable-pip-version-check $wheels && printf '%s\n' "$wheels" >"$venv/.wheels"
}
if clients >out 2>err; then
    PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" "$INFC_SRC/tests/serve/clients.py" chat encoder || t_failures=1
else
    t_skip clients "the openai and anthropic clients cannot be installed: $(tail -n 1 err)"
fi
t_end
