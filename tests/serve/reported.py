#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What users of other servers reported, as requests with the right answer. usage: reported.py ENGINE

reported.list says of each report which test holds it; most lie elsewhere, those here need a server of their own or were held by none.
"""
import concurrent.futures
import json
import os
import re
import sys

from common import Server, run_all, test

ENGINE = sys.argv[1]
HERE = os.path.dirname(os.path.abspath(__file__))
TESTS_FOLDER = os.path.dirname(HERE)
PROMPT = "the robot was in a city and the robot is in the city of a robot"
# a random model likes white space and escapes: without them it comes to an end
PLAIN = [[chr(c), -100] for c in (9, 10, 13, 32, 92)] + [[5 + c, -100] for c in (9, 10, 13, 32, 92)]


@test
def every_report_has_its_test():
    seen = []
    for line in open(os.path.join(HERE, "reported.list")):
        line = line.split("#")[0].strip() if line.startswith("#") else line.strip()
        if not line:
            continue
        number, tests, _ = line.split(None, 2)
        seen.append(int(number))
        for t in tests.split(","):
            path, _, name = t.partition("::")
            text = open(os.path.join(TESTS_FOLDER, path)).read()
            assert not name or re.search(r"\b%s\b" % re.escape(name), text), f"{number}: {t} is no test"
    assert seen == list(range(1, 53)), seen


def render(template, messages, status=200):
    with open("reported.jinja", "w") as f:
        f.write(template)
    s = Server(ENGINE, "--chat-template-file", "reported.jinja", name="template")
    try:
        return s.post("/apply-template", {"messages": messages}, status)
    finally:
        assert s.stop() == 0


@test
def no_content_and_no_calls_in_templates_that_slice():
    """llama.cpp#13178, vllm#13978: content null and tool_calls [] in a history."""
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": []}]
    sliced = "{% for m in messages %}{{ m.content[:5] }}{% endfor %}"
    e = render(sliced, history, 400)["error"]
    assert "None" in e["message"], e  # as jinja2 says it: 'None' has no attribute ...
    guarded = "{% for m in messages %}{{ m.role }}:{{ m.content[:1] if m.content else '-' }}{{ '!' if m.tool_calls }} {% endfor %}"
    assert render(guarded, history)["prompt"] == "user:a assistant:- "


@test
def arguments_are_an_object_for_the_template():
    """llama.cpp#19905: arguments come as a text of JSON, templates iterate over them."""
    template = ("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}({% for k, v in c.function.arguments|items %}"
                "{{ k }}={{ v }},{% endfor %}){% endfor %}{% endfor %}")
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome", "days": 2}'}}
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert render(template, history)["prompt"] == "weather(city=Rome,days=2,)"


@test
def nothing_is_not_a_number_before_the_first_request():
    """llama.cpp#11868, vllm: rates and means of nothing are 0."""
    s = Server(ENGINE, name="fresh")
    try:
        lines = [x for x in s.request("GET", "/metrics")[2].decode().splitlines() if x and not x.startswith("#")]
        assert len(lines) > 40 and not any(re.search(r" [-+]?(nan|inf)$", x, re.I) for x in lines)
        values = {x.rsplit(" ", 1)[0].split("{")[0]: float(x.rsplit(" ", 1)[1]) for x in lines}
        assert values["llamacpp:prompt_tokens_seconds"] == 0 and values["llamacpp:predicted_tokens_seconds"] == 0
    finally:
        assert s.stop() == 0


@test
def forty_four_at_once_are_each_alone():
    """vllm#51187, llama.cpp#7052: many sequences in a step, one answer a request, five rounds."""
    s = Server(ENGINE, "--parallel", "44", "--queue", "64", name="many")
    bodies = [{"prompt": PROMPT[:12 + i], "max_tokens": 16, "temperature": 0, "logprobs": 1} for i in range(44)]

    def answer(b, salt):
        return json.dumps(s.post("/v1/completions", {**b, "cache_salt": salt})["choices"])

    try:
        alone = [answer(b, "alone") for b in bodies]
        for round_ in range(5):
            with concurrent.futures.ThreadPoolExecutor(44) as pool:
                assert list(pool.map(lambda b: answer(b, f"round{round_}"), bodies)) == alone
    finally:
        assert s.stop() == 0


@test
def numbers_at_the_end_of_their_range():
    """llama.cpp#24786, CVE-2026-21869: a number of 32 bits and beyond is honoured or a 400 that names it."""
    s = Server(ENGINE, name="ranges")
    try:
        for field in ("n_predict", "n_keep", "n_discard", "n_probs", "top_k", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n",
                      "min_keep", "seed", "id_slot", "mirostat", "t_max_predict_ms", "n_indent"):
            for value in (-1, -2**31, 2**31 - 1, 2**31, 2**63 - 1, -2**63, 2**64, 1e300):
                status, _, text = s.request("POST", "/completion", {"prompt": "a", "n_predict": 1, "ignore_eos": True, **{field: value}, "timeout": 5})
                assert status in (200, 400, 504), (field, value, status, text[:200])
                if status == 400:
                    assert field in json.loads(text)["error"]["message"], (field, value, text)
        s.post("/completion", {"prompt": "a", "n_predict": 1})
    finally:
        assert s.stop() == 0


@test
def long_prompts_with_log_probabilities():
    """gonka#1171: prompt_logprobs of some 6,000 tokens; vllm keeps all rows of logits at once."""
    s = Server(ENGINE, "--ctx", "8192", name="long")
    try:
        ids = [5 + (7 * i) % 200 for i in range(6000)]
        r = s.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 3})
        got = r["choices"][0]["prompt_logprobs"]
        assert len(got) == 6000 and got[0] is None and all(str(t) in p for t, p in zip(ids[1:], got[1:]))
        alone = s.post("/v1/completions", {"prompt": ids[:40], "max_tokens": 1, "temperature": 0, "prompt_logprobs": 3, "cache_salt": "x"})
        assert alone["choices"][0]["prompt_logprobs"] == got[:40]
    finally:
        assert s.stop() == 0


@test
def a_long_conversation_is_answered_or_counted():
    """llama.cpp#27427: 50 KB of chat."""
    s = Server(ENGINE, "--ctx", "65536", name="wide")
    small = Server(ENGINE, "--ctx", "512", name="narrow")
    try:
        body = {"messages": [{"role": "user", "content": "a robot. " * 70} for _ in range(80)], "max_tokens": 2, "temperature": 0, "ignore_eos": True}
        assert len(json.dumps(body)) > 50000
        r = s.post("/v1/chat/completions", body)
        assert r["usage"]["completion_tokens"] == 2 and r["usage"]["prompt_tokens"] > 10000
        e = small.post("/v1/chat/completions", body, 400)["error"]
        assert str(r["usage"]["prompt_tokens"]) in e["message"] and "512" in e["message"], e
    finally:
        assert s.stop() == 0 and small.stop() == 0


@test
def seventeen_tools():
    """llama.cpp#25967: many tools with equal names of fields are one grammar."""
    def parameters(i):
        return {"type": "object", "properties": {"city": {"enum": ["Rome"]}, "n": {"const": i}, "in": {"type": "object", "properties": {"city": {"const": "x"}},
                                                                                                     "required": ["city"], "additionalProperties": False}},
                "required": ["city", "n", "in"], "additionalProperties": False}

    tools = [{"type": "function", "function": {"name": f"tool_{i}", "parameters": parameters(i)}} for i in range(17)]
    s = Server(ENGINE, "--ctx", "16384", name="tools")
    try:
        for choice, names in (("required", {f"tool_{i}" for i in range(17)}), ({"type": "function", "function": {"name": "tool_16"}}, {"tool_16"})):
            r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "go"}], "tools": tools, "tool_choice": choice, "max_tokens": 200,
                                                "logit_bias": PLAIN, "seed": 2, "temperature": 1, "parallel_tool_calls": False})["choices"][0]
            f = r["message"]["tool_calls"][0]["function"]
            i = int(f["name"].split("_")[1])
            assert f["name"] in names and json.loads(f["arguments"]) == {"city": "Rome", "n": i, "in": {"city": "x"}}, f
    finally:
        assert s.stop() == 0


@test
def deep_alternatives_have_a_bound():
    """vllm#54003: oneOf in oneOf twelve deep is answered or refused; either way others are served."""
    def level(i):
        below = {"$ref": f"#/$defs/d{i + 1}"} if i < 11 else {"type": "integer"}
        return {"oneOf": [{"type": "object", "properties": {"k": below, f"only{j}": {"const": j}}, "required": ["k", f"only{j}"],
                           "additionalProperties": False} for j in range(3)]}

    schema = {"$ref": "#/$defs/d0", "$defs": {f"d{i}": level(i) for i in range(12)}}
    s = Server(ENGINE, name="deep")
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            slow = pool.submit(s.request, "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2,
                               "response_format": {"type": "json_schema", "json_schema": {"name": "d", "schema": schema}}})
            s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
            status, _, text = slow.result()
        assert status == 200 or (status == 400 and "#" in json.loads(text)["error"]["message"]), (status, text[:300])
    finally:
        assert s.stop() == 0


@test
def giant_lists_are_bounded():
    """vllm#45390: lists of words, stops and biases have an end."""
    s = Server(ENGINE, name="lists")
    try:
        for field, value in (("stop", ["x%d" % i for i in range(100000)]), ("stop_token_ids", [5] * 1000000), ("bad_words", ["x"] * 100000),
                             ("logit_bias", [[5, 1]] * 1000000), ("samplers", ["top_k"] * 100000), ("dry_sequence_breakers", ["x"] * 100000)):
            status, _, text = s.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1, field: value})
            assert status == 400 and field in json.loads(text)["error"]["message"], (field, status, text[:200])
        s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
    finally:
        assert s.stop() == 0


if __name__ == "__main__":
    sys.exit(run_all(""))
