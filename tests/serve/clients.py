#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The server through the official clients. usage: clients.py ENGINE EMBEDDER

The suite's ENGINE is a tiny random model; one of a real model whose file was called chat.gguf does as well (SmolLM2, say).
"""
import asyncio
import sys
import typing

import anthropic
import openai
import prometheus_client.parser

from common import Server, run_all, test

ENGINE, EMBEDDER = sys.argv[1:3]
S = Server(ENGINE, "--parallel", "4", name="clients")
BASE = f"http://127.0.0.1:{S.port}"
O = openai.OpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0)
A = anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0)
PIRATE = [{"role": "pirate", "content": "x"}]
REFUSES = S.request("POST", "/apply-template", {"messages": PIRATE})[0] == 400  # the tiny model's template does
HI = [{"role": "system", "content": "You are a robot."}, {"role": "user", "content": "the city"}]


@test
def openai_models():
    models = O.models.list().data
    assert [m.id for m in models] == ["chat.gguf"] and models[0].object == "model"
    assert O.models.retrieve("chat.gguf").owned_by == "infc"


@test
def openai_chat():
    r = O.chat.completions.create(model="chat.gguf", messages=HI, max_completion_tokens=12, temperature=0, seed=1)
    assert r.choices[0].message.role == "assistant" and r.choices[0].message.content
    assert r.usage.completion_tokens <= 12 and r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    assert r.choices[0].finish_reason in ("stop", "length")
    parts = [{"type": "text", "text": "the city"}]
    same = O.chat.completions.create(model="chat.gguf", messages=[HI[0], {"role": "user", "content": parts}], max_tokens=12, temperature=0)
    assert same.choices[0].message.content == r.choices[0].message.content


@test
def openai_chat_streams():
    whole = O.chat.completions.create(model="chat.gguf", messages=HI, max_tokens=40, seed=3, n=2, temperature=1.2)
    texts, usage, ends = ["", ""], None, [None, None]
    for chunk in O.chat.completions.create(model="chat.gguf", messages=HI, max_tokens=40, seed=3, n=2, temperature=1.2, stream=True,
                                           stream_options={"include_usage": True}):
        for c in chunk.choices:
            texts[c.index] += c.delta.content or ""
            ends[c.index] = c.finish_reason or ends[c.index]
        usage = chunk.usage or usage
    assert texts == [c.message.content for c in whole.choices] and ends == [c.finish_reason for c in whole.choices]
    assert usage.completion_tokens == whole.usage.completion_tokens


@test
def openai_chat_stream_helper():
    with O.chat.completions.stream(model="chat.gguf", messages=HI, max_tokens=20, seed=3, temperature=0) as stream:
        text = "".join(e.delta for e in stream if e.type == "content.delta")
    whole = O.chat.completions.create(model="chat.gguf", messages=HI, max_tokens=20, temperature=0)
    assert text == whole.choices[0].message.content


@test
def openai_logprobs():
    r = O.chat.completions.create(model="chat.gguf", messages=HI, max_tokens=5, logprobs=True, top_logprobs=4)
    for t in r.choices[0].logprobs.content:
        assert len(t.top_logprobs) == 4 and t.logprob <= 0
    r = O.completions.create(model="chat.gguf", prompt="the", max_tokens=5, logprobs=3, echo=True, temperature=0)
    lp = r.choices[0].logprobs
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.text_offset) and lp.token_logprobs[0] is None


@test
def openai_completions():
    r = O.completions.create(model="chat.gguf", prompt=["a robot", "a city"], max_tokens=6, stop=["zz"], logit_bias={"50": -100},
                             presence_penalty=0.5, frequency_penalty=0.5, user="me", extra_body={"top_k": 5, "min_p": 0.1, "ignore_eos": True})
    assert [c.index for c in r.choices] == [0, 1] and r.usage.completion_tokens == 12
    text = "".join(c.choices[0].text for c in O.completions.create(model="chat.gguf", prompt="a", max_tokens=6, stream=True) if c.choices)
    assert isinstance(text, str)


@test
def openai_errors_are_typed():
    for error, f in [
        *[(openai.BadRequestError, lambda: O.chat.completions.create(model="chat.gguf", messages=PIRATE))] * REFUSES,
        (openai.BadRequestError, lambda: O.completions.create(model="chat.gguf", prompt="a b " * 20000)),
        (openai.BadRequestError, lambda: O.completions.create(model="chat.gguf", prompt="a", temperature=1000)),
        (openai.NotFoundError, lambda: O.chat.completions.create(model="gpt-4", messages=HI)),
        (openai.NotFoundError, lambda: O.models.retrieve("x")),
    ]:
        try:
            f()
        except error as e:
            assert e.body["message"]
            continue
        raise AssertionError(error)


@test
def openai_embeddings():
    e = Server(EMBEDDER, name="clients-embedder")
    try:
        o = openai.OpenAI(base_url=f"http://127.0.0.1:{e.port}/v1", api_key="none")
        base64 = o.embeddings.create(model="encoder.gguf", input=["robot", "city"])
        floats = o.embeddings.create(model="encoder.gguf", input=["robot", "city"], encoding_format="float")
        for a, b in zip(base64.data, floats.data):
            assert len(a.embedding) == len(b.embedding) and max(abs(x - y) for x, y in zip(a.embedding, b.embedding)) < 1e-6
    finally:
        assert e.stop() == 0


@test
def openai_many_at_once():
    async def go():
        o = openai.AsyncOpenAI(base_url=BASE + "/v1", api_key="none")
        return await asyncio.gather(*[o.chat.completions.create(model="chat.gguf", messages=HI, max_tokens=20, seed=i % 4, temperature=1)
                                      for i in range(40)])

    texts = [r.choices[0].message.content for r in asyncio.run(go())]
    for i in range(4):
        assert len(set(texts[i::4])) == 1


# a random model likes white space and escapes: without them it comes to an end
PLAIN = {str(5 + c): -100 for c in (9, 10, 13, 32, 92)}


@test
def openai_structured_output():
    import pydantic

    class Trip(pydantic.BaseModel):
        city: typing.Literal["Paris", "Rome"]
        days: int = pydantic.Field(ge=1, le=7)

    bias = {**PLAIN, **{str(t): -100 for c in "\t\n\r \\" for t in S.post("/tokenize", {"content": c, "add_special": False})["tokens"]}}
    r = O.chat.completions.parse(model="chat.gguf", messages=HI, max_tokens=200, response_format=Trip, extra_body={"logit_bias": bias}, seed=2)
    trip = r.choices[0].message.parsed
    assert trip.city in ("Paris", "Rome") and 1 <= trip.days <= 7
    tools = [openai.pydantic_function_tool(Trip, name="travel")]
    r = O.chat.completions.create(model="chat.gguf", messages=HI, max_tokens=300, tools=tools, tool_choice="required", parallel_tool_calls=False,
                                  seed=3, logit_bias=bias)
    call = r.choices[0].message.tool_calls[0]
    assert call.function.name == "travel" and Trip.model_validate_json(call.function.arguments)
    arguments = ""
    for chunk in O.chat.completions.create(model="chat.gguf", messages=HI, max_tokens=300, tools=tools, seed=4, logit_bias=bias, stream=True,
                                           tool_choice={"type": "function", "function": {"name": "travel"}}):
        for t in chunk.choices[0].delta.tool_calls or []:
            arguments += t.function.arguments or ""
    assert Trip.model_validate_json(arguments)
    history = [*HI, {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
               {"role": "user", "content": "Rome"}]
    assert O.chat.completions.create(model="chat.gguf", messages=history, max_tokens=5).choices[0].message.content is not None


@test
def openai_responses():
    r = O.responses.create(model="chat.gguf", input="the city", instructions="You are a robot.", max_output_tokens=20, temperature=0)
    chat = O.chat.completions.create(model="chat.gguf", messages=HI, max_tokens=20, temperature=0)
    assert r.output_text == chat.choices[0].message.content and r.usage.total_tokens == chat.usage.total_tokens
    kinds, text = [], ""
    for e in O.responses.create(model="chat.gguf", input="the city", instructions="You are a robot.", max_output_tokens=20, temperature=0, stream=True):
        kinds.append(e.type)
        text += e.delta if e.type == "response.output_text.delta" else ""
    assert text == r.output_text and kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete")
    with O.responses.stream(model="chat.gguf", input="the city", max_output_tokens=20, temperature=0) as stream:
        assert [e.type for e in stream][0] == "response.created"


@test
def anthropic_messages():
    r = A.messages.create(model="chat.gguf", system="You are a robot.", messages=HI[1:], max_tokens=20, extra_body={"temperature": 0})
    chat = O.chat.completions.create(model="chat.gguf", messages=HI, max_tokens=20, temperature=0)
    assert r.content[0].text == chat.choices[0].message.content
    assert r.usage.input_tokens == chat.usage.prompt_tokens and r.usage.output_tokens == chat.usage.completion_tokens
    with A.messages.stream(model="chat.gguf", system="You are a robot.", messages=HI[1:], max_tokens=20, extra_body={"temperature": 0}) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == r.content[0].text and final.stop_reason == r.stop_reason
    assert A.messages.count_tokens(model="chat.gguf", system="You are a robot.", messages=HI[1:]).input_tokens == r.usage.input_tokens
    stop = A.messages.create(model="chat.gguf", system="You are a robot.", messages=HI[1:], max_tokens=20, extra_body={"temperature": 0}, stop_sequences=[text[4:6]])
    assert stop.stop_reason == "stop_sequence" and stop.stop_sequence == text[4:6]
    try:
        A.messages.create(model="chat.gguf", messages=PIRATE, max_tokens=1)
        assert not REFUSES, "pirates are refused"
    except anthropic.BadRequestError as e:
        assert "who?" in str(e)


@test
def anthropic_tools():
    schema = {"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"], "additionalProperties": False}
    args = {"model": "chat.gguf", "messages": HI[1:], "max_tokens": 200, "tools": [{"name": "weather", "input_schema": schema}],
            "tool_choice": {"type": "tool", "name": "weather"}, "extra_body": {"temperature": 0}}
    r = A.messages.create(**args)
    if r.stop_reason == "tool_use":
        assert r.content[0].name == "weather" and r.content[0].input == {"city": "Rome"}
    with A.messages.stream(**args) as stream:
        final = stream.get_final_message()
    assert [(b.type, b.name) for b in final.content] == [("tool_use", "weather")] and final.stop_reason == r.stop_reason
    history = [*HI[1:], {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "weather", "input": {"city": "Rome"}}]},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "sun"}]}]
    again = A.messages.create(model="chat.gguf", messages=history, max_tokens=3, tools=args["tools"])
    assert again.usage.input_tokens > r.usage.input_tokens


@test
def openai_responses_tools():
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}, "strict": True}
    r = O.responses.create(model="chat.gguf", input="a", tools=[tool], tool_choice="required", max_output_tokens=100, temperature=0)
    assert r.output[0].type == "function_call" and r.output[0].name == "weather"
    with O.responses.stream(model="chat.gguf", input="a", tools=[tool], tool_choice="required", max_output_tokens=100, temperature=0) as stream:
        kinds = [e.type for e in stream]
    assert "response.function_call_arguments.delta" in kinds


@test
def prometheus_reads_metrics():
    text = S.request("GET", "/metrics")[2].decode()
    families = {f.name: f for f in prometheus_client.parser.text_string_to_metric_families(text)}
    assert families["vllm:time_to_first_token_seconds"].type == "histogram"
    for f in families.values():
        for sample in f.samples:
            assert sample.value == sample.value and sample.value >= 0, sample
        buckets = [s.value for s in f.samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets)


@test
def goodbye():
    assert S.stop() == 0


if __name__ == "__main__":
    code = run_all("client-")
    if S.process.poll() is None:
        S.process.kill()
    sys.exit(code)
