#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Thinking and tools in the words of each endpoint. What the random model writes is forced by a choice of one text.
usage: talk.py ENGINE"""
import json
import sys

from common import Server, events, run_all, test

ENGINE = sys.argv[1]
QWEN = ("{% for m in messages %}{{ '<|' + m.role + '|>' }}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}"
        "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\n{% endfor %}"
        "{% for t in tools or [] %}{{ t.function.name }},{% endfor %}{% if add_generation_prompt %}<|assistant|>\n"
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}")
OPEN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]<think>\n"
for name, text in (("qwen.jinja", QWEN), ("open.jinja", OPEN)):
    with open(name, "w") as f:
        f.write(text)
Q = Server(ENGINE, "--chat-template-file", "qwen.jinja", "--any-model", name="talk-qwen")
P = Server(ENGINE, "--chat-template-file", "open.jinja", "--any-model", name="talk-open")
HI = [{"role": "user", "content": "the city"}]
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Paris"]}}, "required": ["city"], "additionalProperties": False}
CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "description": "x", "parameters": CITY}}, {"type": "function", "function": {"name": "now"}}]
ANT_TOOLS = [{"name": "weather", "description": "x", "input_schema": CITY}, {"name": "now", "input_schema": {"type": "object", "properties": {}}}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def forced(text, **fields):
    return {"messages": HI, "max_tokens": 300, "guided_choice": [text], **fields}


def streamed(s, path, body):
    """The message that the deltas of a chat make."""
    m = {"content": "", "reasoning_content": "", "calls": {}}
    for p in s.stream(path, body)[:-1]:
        d = p["choices"][0]["delta"]
        m["content"] += d.get("content") or ""
        m["reasoning_content"] += d.get("reasoning_content") or ""
        for t in d.get("tool_calls", []):
            f = m["calls"].setdefault(t["index"], ["", ""])
            f[0] += t["function"].get("name") or ""
            f[1] += t["function"]["arguments"]
    return m


@test
def thinking_is_told_apart():
    for text, reasoning, content, calls in [
        ("<think>I think\n</think>\n\nIt is.", "I think\n", "It is.", 0), ("It is.", "", "It is.", 0), ("<think>on and on", "on and on", "", 0),
        ("<think>a < b </thin</think>c", "a < b </thin", "c", 0), ("<think>call</think>\n" + CALL, "call", None, 1), ("Look.\n" + CALL, "", "Look.", 1),
    ]:
        body = forced(text, tools=CHAT_TOOLS)
        r = Q.post("/v1/chat/completions", body)
        m = r["choices"][0]["message"]
        assert (m.get("reasoning_content", ""), m["content"]) == (reasoning, content), (text, m)
        assert len(m.get("tool_calls", [])) == calls and r["choices"][0]["finish_reason"] == ("tool_calls" if calls else "stop")
        assert (r["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0) == bool(reasoning)
        s = streamed(Q, "/v1/chat/completions", body)
        assert (s["reasoning_content"], s["content"]) == (reasoning, content or ""), (text, s)
        assert list(s["calls"].values()) == [[c["function"]["name"], c["function"]["arguments"]] for c in m.get("tool_calls", [])]
        plain = Q.post("/v1/chat/completions", {**body, "reasoning_format": "none", "tools": None})["choices"][0]["message"]
        assert plain["content"] == text and "reasoning_content" not in plain
    assert Q.post("/v1/chat/completions", forced("x", reasoning_format="loud"), 400)["error"]["param"] == "reasoning_format"


@test
def thinking_has_a_budget():
    body = {"messages": HI, "max_tokens": 60, "temperature": 1, "seed": 5, "ignore_eos": True}
    end = len(P.post("/tokenize", {"content": "</think>"})["tokens"])
    free = P.post("/v1/chat/completions", body)["choices"][0]["message"]
    assert len(free["reasoning_content"]) > 20 and free["content"] == ""
    for budget in (1, 10, 25):
        r = P.post("/v1/chat/completions", {**body, "thinking_budget_tokens": budget})
        m = r["choices"][0]["message"]
        assert free["reasoning_content"].startswith(m["reasoning_content"]) and m["content"], m
        written = P.post("/v1/chat/completions", {**body, "thinking_budget_tokens": budget, "reasoning_format": "none", "max_tokens": budget + end})
        assert written["choices"][0]["message"]["content"] == m["reasoning_content"] + "</think>", (m, written)
        assert streamed(P, "/v1/chat/completions", {**body, "thinking_budget_tokens": budget})["reasoning_content"] == m["reasoning_content"]
    none = P.post("/v1/chat/completions", {**body, "thinking_budget_tokens": 0})["choices"][0]["message"]
    assert "reasoning_content" not in none and none["content"]
    # an answer that a grammar holds does not think; nor one that is told not to
    assert P.post("/v1/chat/completions", forced("Rome"))["choices"][0]["message"]["content"] == "Rome"
    assert P.post("/apply-template", {"messages": HI, "reasoning_effort": "none"})["prompt"].endswith("<think>\n</think>\n\n")
    assert Q.post("/apply-template", {"messages": HI, "reasoning_effort": "none"})["prompt"].endswith("<think>\n\n</think>\n\n")
    assert Q.post("/apply-template", {"messages": HI})["prompt"].endswith("<|assistant|>\n")
    e = Server(ENGINE, name="talk-none")
    try:
        plain = e.post("/v1/chat/completions", body)["choices"][0]["message"]  # a model that does not think keeps to any budget
        assert e.post("/v1/chat/completions", {**body, "thinking_budget_tokens": 5})["choices"][0]["message"] == plain
    finally:
        assert e.stop() == 0


@test
def functools_get_their_tools_as_text():
    """FireFunction's template takes `functions`, JSON as text, also where there are none; calls are a list behind a word."""
    with open("functools.jinja", "w") as f:
        f.write("{% for m in messages %}{{ m.content or '' }}{% if m.tool_calls %} functools[{{ m.tool_calls | length }}]{% endif %}{% endfor %}{{ '|' + functions + '|' }}")
    e = Server(ENGINE, "--chat-template-file", "functools.jinja", "--any-model", name="talk-functools")
    try:
        for tools, wanted in ((None, []), ([], []), (CHAT_TOOLS, [t["function"] for t in CHAT_TOOLS])):
            assert json.loads(e.post("/apply-template", {"messages": HI, "tools": tools})["prompt"].split("|")[1]) == wanted
        body = {"messages": HI, "max_tokens": 300, "tools": CHAT_TOOLS[:1], "tool_choice": "required", "parallel_tool_calls": False, "temperature": 1, "logit_bias": BIAS}
        c = e.post("/v1/chat/completions", body)["choices"][0]
        assert [t["function"]["name"] for t in c["message"]["tool_calls"]] == ["weather"] and c["finish_reason"] == "tool_calls", c
    finally:
        assert e.stop() == 0


@test
def a_forced_call_is_in_the_way_of_the_family():
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        body = {"messages": HI, "max_tokens": 300, "tools": CHAT_TOOLS[:1], "tool_choice": choice, "temperature": 1, "logit_bias": BIAS}
        c = Q.post("/v1/chat/completions", body)["choices"][0]
        f = c["message"]["tool_calls"][0]["function"]
        assert c["finish_reason"] == "tool_calls" and f["name"] == "weather" and json.loads(f["arguments"])["city"] in ("Rome", "Paris"), c
        s = streamed(Q, "/v1/chat/completions", {**body, "logprobs": True})
        assert s["calls"][0][0] == "weather" and json.loads(s["calls"][0][1])["city"] in ("Rome", "Paris")
    m = Q.post("/v1/messages", {"messages": HI, "max_tokens": 300, "tools": ANT_TOOLS[:1], "tool_choice": {"type": "any"}, "temperature": 0})
    assert m["content"][0]["type"] == "tool_use" and m["content"][0]["name"] == "weather", m
    r = Q.post("/v1/responses", {"input": "a", "max_output_tokens": 300, "tools": [{"type": "function", "name": "weather", "parameters": CITY, "strict": True}],
                                 "tool_choice": "required", "temperature": 0})
    assert r["output"][0]["type"] == "function_call" and r["output"][0]["name"] == "weather", r


@test
def forced_calls_are_as_many_as_are_wished():
    """A random model goes on with a further call about as often as it ends; each is whole and fits."""
    seen = set()
    for seed in range(12):
        body = {"messages": HI, "max_tokens": 900, "tools": CHAT_TOOLS[:1], "tool_choice": "required", "temperature": 1, "seed": seed, "logit_bias": BIAS}
        c = Q.post("/v1/chat/completions", body)["choices"][0]
        calls = c["message"]["tool_calls"]
        if c["finish_reason"] == "tool_calls":
            seen.add(len(calls))
            assert all(x["function"]["name"] == "weather" and json.loads(x["function"]["arguments"])["city"] in ("Rome", "Paris") for x in calls), c
            assert len({x["id"] for x in calls}) == len(calls)
            s = streamed(Q, "/v1/chat/completions", {**body, "logprobs": True})
            assert [json.loads(s["calls"][i][1]) for i in range(len(calls))] == [json.loads(x["function"]["arguments"]) for x in calls], s
        one = Q.post("/v1/chat/completions", {**body, "parallel_tool_calls": False})["choices"][0]
        assert one["finish_reason"] == "tool_calls" and len(one["message"]["tool_calls"]) == 1, one
    assert 1 in seen and max(seen) > 1, seen


@test
def two_calls_where_one_is_allowed():
    body = forced(CALL + "\n" + CALL, tools=CHAT_TOOLS)
    assert len(Q.post("/v1/chat/completions", body)["choices"][0]["message"]["tool_calls"]) == 2
    assert len(Q.post("/v1/chat/completions", {**body, "parallel_tool_calls": False})["choices"][0]["message"]["tool_calls"]) == 1


def anthropic_stream(body):
    """The blocks that the events make, after a look at their order."""
    _, _, text = Q.request("POST", "/v1/messages", {**body, "stream": True})
    all_events = events(text)
    blocks, state = [], None
    for e in all_events[1:]:
        kind = e["type"]
        if kind == "content_block_start":
            assert state is None and e["index"] == len(blocks)
            state = e["index"]
            blocks.append({**e["content_block"], "json": ""})
        elif kind == "content_block_delta":
            assert state == e["index"]
            d, b = e["delta"], blocks[-1]
            if d["type"] == "input_json_delta":
                b["json"] += d["partial_json"]
            else:
                field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}[d["type"]]
                b[field] += d[field]
        elif kind == "content_block_stop":
            assert state == e["index"]
            state = None
    assert [e["type"] for e in all_events][-2:] == ["message_delta", "message_stop"] and state is None
    return blocks, all_events[-2]["delta"]["stop_reason"]


@test
def anthropic_blocks():
    for text, want, stop in [
        ("<think>hm</think>\n\nSo.", [("thinking", "hm"), ("text", "So.")], "end_turn"), ("So.", [("text", "So.")], "end_turn"),
        ("<think>hm</think>So.\n" + CALL, [("thinking", "hm"), ("text", "So."), ("tool_use", {"city": "Rome"})], "tool_use"),
        (CALL + CALL, [("tool_use", {"city": "Rome"})] * 2, "tool_use"), ("<tool_call>{bad", [("text", "<tool_call>{bad")], "end_turn"),
    ]:
        body = {"messages": HI, "max_tokens": 300, "tools": ANT_TOOLS, "guided_choice": [text]}
        r = Q.post("/v1/messages", body)
        got = [(b["type"], b[{"thinking": "thinking", "text": "text", "tool_use": "input"}[b["type"]]]) for b in r["content"]]
        assert got == want and r["stop_reason"] == stop, (text, r)
        blocks, ended = anthropic_stream(body)
        got = [(b["type"], json.loads(b["json"]) if b["type"] == "tool_use" else b[b["type"]]) for b in blocks]
        assert got == want and ended == stop, (text, blocks)


@test
def anthropic_history():
    history = [{"role": "user", "content": "go"},
               {"role": "assistant", "content": [{"type": "thinking", "thinking": "first", "signature": ""}, {"type": "text", "text": "so"},
                                                 {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Rome"}}]},
               {"role": "user", "content": [{"type": "text", "text": "and?"}, {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "sun"}]}]}]
    prompt = Q.post("/apply-template", {"messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "so", "reasoning_content": "first", "tool_calls": [{"function": {"name": "weather", "arguments": '{"city": "Rome"}'}}]},
        {"role": "tool", "content": "sun"}, {"role": "user", "content": "and?"}], "tools": CHAT_TOOLS})["prompt"]
    assert "<think>first</think>so" in prompt and '"city": "Rome"' in prompt and "<|tool|>sun<|user|>and?" in prompt, prompt
    n = len(Q.post("/tokenize", {"content": prompt})["tokens"])
    assert Q.post("/v1/messages/count_tokens", {"messages": history, "tools": ANT_TOOLS})["input_tokens"] == n
    image = [{"role": "user", "content": [{"type": "image", "source": {}}]}]
    assert "text alone" in Q.post("/v1/messages", {"messages": image, "max_tokens": 1}, 400)["error"]["message"]


@test
def responses_items():
    tools = [{"type": "function", "name": "weather", "parameters": CITY}]
    text = "<think>hm</think>So.\n" + CALL
    body = {"input": "a", "max_output_tokens": 300, "tools": tools, "guided_choice": [text]}
    r = Q.post("/v1/responses", body)
    assert [o["type"] for o in r["output"]] == ["reasoning", "message", "function_call"] and r["status"] == "completed", r
    assert r["output"][0]["content"][0]["text"] == "hm" and r["output"][1]["content"][0]["text"] == "So."
    assert json.loads(r["output"][2]["arguments"]) == {"city": "Rome"} and r["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    _, _, raw = Q.request("POST", "/v1/responses", {**body, "stream": True})
    all_events = events(raw)
    assert [e["sequence_number"] for e in all_events] == list(range(len(all_events)))
    for kind, want in (("reasoning_text", "hm"), ("output_text", "So."), ("function_call_arguments", r["output"][2]["arguments"])):
        assert "".join(e["delta"] for e in all_events if e["type"] == f"response.{kind}.delta") == want
    done = [e["item"]["type"] for e in all_events if e["type"] == "response.output_item.done"]
    assert done == ["reasoning", "message", "function_call"] and all_events[-1]["response"]["output"][2]["name"] == "weather"
    again = [{"role": "user", "content": "a"}, *r["output"], {"type": "function_call_output", "call_id": r["output"][2]["call_id"], "output": "sun"}]
    assert Q.post("/v1/responses", {"input": again, "max_output_tokens": 2, "tools": tools})["output"][0]["type"] in ("message", "reasoning")


@test
def tokens_are_counted():
    for path, body in (("/v1/chat/completions/input_tokens", {"messages": HI}), ("/v1/responses/input_tokens", {"input": HI[0]["content"]})):
        n = Q.post(path, body)["input_tokens"]
        assert n == Q.post("/v1/chat/completions", {"messages": HI, "max_tokens": 1})["usage"]["prompt_tokens"]
    system = Q.post("/apply-template", {"messages": [{"role": "system", "content": "x"}, *HI]})
    assert Q.post("/apply-template", {"messages": [{"role": "developer", "content": "x"}, *HI]}) == system


@test
def prompts_have_log_probabilities():
    r = Q.post("/v1/completions", {"prompt": "a robot", "max_tokens": 2, "prompt_logprobs": 2, "logprobs": 1, "temperature": 0})
    echo = Q.post("/v1/completions", {"prompt": "a robot", "max_tokens": 2, "logprobs": 1, "echo": True, "temperature": 0})["choices"][0]["logprobs"]
    ids = Q.post("/tokenize", {"content": "a robot", "add_special": True})["tokens"]
    rows = r["choices"][0]["prompt_logprobs"]
    assert rows[0] is None and len(rows) == len(ids)
    for row, i, p in zip(rows[1:], ids[1:], echo["token_logprobs"][1:]):
        assert row[str(i)]["logprob"] == p and 2 <= len(row) <= 3 and sorted(x["rank"] for x in row.values() if x["rank"])[:2] == [1, 2], row
    assert all(len(x) == 1 for x in r["choices"][0]["logprobs"]["top_logprobs"]) and len(r["choices"][0]["logprobs"]["tokens"]) == 2
    chat = Q.post("/v1/chat/completions", {"messages": HI, "max_tokens": 2, "prompt_logprobs": 0})
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"] and all(len(x) == 1 for x in chat["prompt_logprobs"][1:])
    assert Q.post("/v1/completions", {"prompt": "a", "prompt_logprobs": 1, "stream": True}, 400)["error"]["param"] == "prompt_logprobs"


@test
def llama_server_s_fields():
    body = {"prompt": "a robot", "n_predict": 6, "temperature": 1, "seed": 3, "n_probs": 4}
    r = Q.post("/completion", {**body, "post_sampling_probs": True, "top_k": 3})
    for t in r["completion_probabilities"]:
        assert abs(sum(x["prob"] for x in t["top_probs"]) - 1) < 1e-6 and t["prob"] in [x["prob"] for x in t["top_probs"]], t
    text = Q.post("/completion", body)["content"]
    assert Q.post("/completion", {**body, "response_fields": ["content", "timings/predicted_n", "none"]}) == {"content": text, "timings/predicted_n": 6}
    several = Q.post("/completion", {"prompt": ["a robot", {"prompt_string": "a robot"}, Q.post("/tokenize", {"content": "a robot", "add_special": True})["tokens"]],
                                     "n_predict": 5, "temperature": 0})
    assert len({x["content"] for x in several}) == 1 and len(several) == 3
    parts = Q.stream("/completion", {"prompt": "the city " * 30, "n_predict": 3, "temperature": 0, "return_progress": True, "timings_per_token": True})
    progress = [p["prompt_progress"] for p in parts if "prompt_progress" in p]
    assert progress[0]["processed"] == progress[0]["cache"] and progress[-1]["processed"] == progress[-1]["total"], progress
    assert [p["processed"] for p in progress] == sorted(p["processed"] for p in progress)


@test
def keys_have_limits():
    def ask(k, key, n=1):
        return k.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": n, "ignore_eos": True}, {"Authorization": "Bearer " + key})

    def write(text):
        with open("limits", "w") as f:
            f.write(text)

    write("many rpm=3\nwords tpm=20 # none of this\n")
    try:
        Server(ENGINE, "--api-key-file", "limits", name="talk-limits")
        raise AssertionError("a comment behind a key is no limit")
    except RuntimeError as e:
        assert "line 2" in str(e)
    write("many rpm=3\nwords tpm=20\nspent budget=12\nfree\n")
    k = Server(ENGINE, "--api-key-file", "limits", name="talk-limits")
    try:
        got = [ask(k, "many") for _ in range(5)]
        assert [g[0] for g in got] == [200, 200, 200, 429, 429], got
        assert [g[1]["x-ratelimit-remaining-requests"] for g in got] == ["2", "1", "0", "0", "0"] and 1 <= int(got[4][1]["retry-after"]) <= 20
        got = [ask(k, "words", 15) for _ in range(3)]  # the second one may still begin: 17 of 20 are used
        assert [g[0] for g in got] == [200, 200, 429] and json.loads(got[2][2])["error"]["type"] == "rate_limit_error", got
        got = [ask(k, "spent", 6) for _ in range(3)]
        assert [g[0] for g in got] == [200, 200, 429]
        # waiting does not end it: said by code, type and header, which OpenAI's and Anthropic's clients heed
        e = json.loads(got[2][2])["error"]
        assert e["code"] == e["type"] == "insufficient_quota" and "budget of 12 tokens" in e["message"], e
        assert "retry-after" not in got[2][1] and got[2][1]["x-should-retry"] == "false"
        r = k.request("POST", "/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}, {"x-api-key": "spent"})
        assert r[0] == 429 and json.loads(r[2])["error"]["type"] == "rate_limit_error" and r[1]["x-should-retry"] == "false", r
        assert [ask(k, "free")[0] for _ in range(9)] == [200] * 9
        write("many rpm=3\nspent budget=100\nfree rpm=x\n")  # is not taken: the old ones stay
        k.process.send_signal(1)
        assert [ask(k, "words")[0], ask(k, "free")[0]] == [429, 200]
        write("many rpm=3\nspent budget=100\n")
        k.process.send_signal(1)
        for _ in range(500):
            if ask(k, "free")[0] == 401:
                break
        assert ask(k, "spent")[0] == 200 and ask(k, "many")[0] == 429 and k.request("GET", "/v1/models", headers={"x-api-key": "many"})[0] == 200
        # one that has gone from the file and comes back has used what it had
        for text, wanted in (("other\n", 401), ("many rpm=3\nspent budget=12\n", 429)):
            write(text)
            k.process.send_signal(1)
            for _ in range(500):
                if ask(k, "other")[0] == (200 if wanted == 401 else 401):
                    break
            assert ask(k, "spent")[0] == wanted
    finally:
        assert k.stop() == 0


@test
def options_from_a_file():
    import subprocess

    def write(text):
        with open("serve.conf", "w") as f:
            f.write(text)

    write("# a server\n\nmodel-name = a b\n  parallel=3\nany-model\ndisable = /version\n-broken")
    said = subprocess.run([f"./{ENGINE}", "serve", "--config", "serve.conf"], capture_output=True, text=True, check=False)
    assert said.returncode == 2 and "serve.conf, line 7" in said.stderr, said
    for bad in ("parallel = x\n", "parallel\n", "any-model = 1\n", "config = serve.conf\n"):
        write(bad)
        assert subprocess.run([f"./{ENGINE}", "serve", "--config=serve.conf"], capture_output=True, check=False).returncode == 2, bad
    write("# a server\n\nmodel-name = a b\n  parallel=3\nany-model\ndisable = /version")
    e = Server(ENGINE, "--config", "serve.conf", "--parallel", "2", "--disable=/slots", name="talk-config")
    try:
        p = e.get("/props")
        assert p["model_alias"] == "a b" and p["total_slots"] == 2  # the command line comes after the file
        assert e.request("GET", "/version")[0] == 501 and e.request("GET", "/slots")[0] == 501
        assert e.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "model": "any"})
    finally:
        assert e.stop() == 0


@test
def pages_of_other_origins():
    e = Server(ENGINE, "--cors-origins", "localhost", "--cors-origins", "https://page.example", "--disable", "/metrics", name="talk-cors")
    try:
        for origin, ok in (("http://localhost:3000", True), ("http://[::1]", True), ("https://page.example", True), ("https://page.example.evil", False),
                           ("http://localhost.evil", False), ("http://localhost:", False), ("http://localhost:80x", False)):
            for method in ("OPTIONS", "GET"):
                status, h, _ = e.request(method, "/v1/models", headers={"Origin": origin})
                assert status == 200 and h.get("access-control-allow-origin") == (origin if ok else None), (origin, method, h)
        assert e.request("GET", "/metrics")[0] == 501
        assert "access-control-allow-origin" not in Q.request("GET", "/v1/models", headers={"Origin": "http://localhost"})[1]
    finally:
        assert e.stop() == 0


@test
def a_template_without_tools_gets_them_as_text():
    e = Server(ENGINE, name="talk-plain")
    try:
        prompt = e.post("/apply-template", {"messages": [
            {"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "weather", "arguments": "{}"}}]},
            {"role": "tool", "content": "sun"}], "tools": CHAT_TOOLS})["prompt"]
        assert '"name":"weather"' in prompt and "None" not in prompt and "user\nsun" in prompt, prompt
    finally:
        assert e.stop() == 0


# Names that other servers take. What is given here cannot be honoured by accident: the reply is a 400 that names the field.
FOREIGN = """lora_path adapter_id lora_request adapter lora_adapter bad_words allowed_token_ids use_beam_search length_penalty truncate_prompt_tokens
spaces_between_special_tokens documents chat_template kv_transfer_params vllm_xargs repetition_min_count return_token_ids return_tokens_as_token_ids
request_id samplers dynatemp_range dynatemp_exponent n_discard n_indent min_keep n_cache_reuse id_slot n_cmpl t_max_predict_ms reasoning_control
parse_tool_calls adaptive_target repetition_ngram_size logprob_start_len no_stop_trim decoder_input_details ebnf frequency_bias audio modalities
prediction web_search_options store service_tier verbosity function_call functions""".split()
OURS = """n stop stop_token_ids include_stop_str_in_output seed top_k top_p min_p typical_p temperature repetition_penalty repeat_penalty repeat_last_n
presence_penalty frequency_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers xtc_probability xtc_threshold
mirostat mirostat_tau mirostat_eta top_n_sigma ignore_eos min_tokens logit_bias logprobs top_logprobs prompt_logprobs response_format json_schema grammar
guided_json guided_regex guided_choice guided_grammar structured_outputs tools tool_choice parallel_tool_calls stream_options chat_template_kwargs
continue_final_message add_generation_prompt cache_salt priority timeout max_tokens max_completion_tokens n_predict n_keep cache_prompt
reasoning_effort reasoning_format thinking_budget_tokens timings_per_token return_progress verbose skip_special_tokens user""".split()


@test
def every_name_is_honoured_or_named():
    chat = "/v1/chat/completions"
    for name in FOREIGN:
        e = Q.post(chat, {"messages": HI, "max_tokens": 1, name: {"not": ["this"]}}, 400)["error"]
        assert e["param"] == name and name in e["message"], e
    for name in OURS:  # known: a value of no type that it could have is refused by its own rule
        e = Q.post(chat, {"messages": HI, "max_tokens": 1, name: [[[{}]]]}, 400)["error"]
        assert name in e["param"] and "does not support the field" not in e["message"], (name, e)
        Q.post(chat, {"messages": HI, "max_tokens": 1, name: None})


@test
def goodbye():
    assert Q.stop() == 0 and P.stop() == 0


BIAS = {str(t): -100 for c in "\t\n\r \\" for t in Q.post("/tokenize", {"content": c, "add_special": False})["tokens"]}

if __name__ == "__main__":
    code = run_all("talk-")
    for server in (Q, P):
        if server.process.poll() is None:
            server.process.kill()
    sys.exit(code)
