#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders published chat templates with our engine and with jinja2 and compares byte for byte.

    compare.py RENDER TEMPLATES_FOLDER [-v]

RENDER is the built tests/jinja/render program. Every template is rendered under three conversations
(plain; system and turns; tools and calls), then under further ones that reach other branches.
Exit status 77 (skipped) when the folder or jinja2 3.1.6 is missing. Both sides failing counts as equal
when the message is the same for errors that a template raises itself, and when both fail otherwise.
"""
import json
import os
import subprocess
import sys

NOW = 1769904000  # 2026-02-01

# Renderings that may differ, each with the feature that only jinja2 has. At most three.
EXCEPTED = {}

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather",
        "description": "Weather of a place, e.g. \"Zürich\" & <others>",
        "parameters": {"type": "object", "properties": {
            "location": {"type": "string", "description": "City and country"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "options": {"type": "object", "properties": {
                "wind": {"type": "boolean"},
                "layers": {"type": "array", "items": {"type": "string"}}}, "required": ["wind"]}},
            "required": ["location"]},
        "return": {"type": "object", "description": "the forecast"},
    }},
    {"type": "function", "function": {
        "name": "add", "description": "Adds two numbers",
        "parameters": {"type": "object", "properties": {
            "a": {"type": "number", "description": "first"}, "b": {"type": "number"}},
            "required": ["a", "b"]}}},
]


def call(name, arguments, ident):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


PLAIN = {"messages": [{"role": "user", "content": "Hello, what is 2 + 2?"}]}
TURNS = {"messages": [
    {"role": "system", "content": "You are terse. Ünïcödé & <tags> 'quotes' \"double\"."},
    {"role": "user", "content": "  Hi there\n"},
    {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\nHello! 😀"},
    {"role": "user", "content": "Who are you?\nIn two\nlines."},
    {"role": "assistant", "content": "A model.\nThat is all.  "},
    {"role": "user", "content": "{{ not a template }} {% raw %}"}]}
WITH_TOOLS = {"tools": TOOLS, "messages": [
    {"role": "system", "content": "Use the tools."},
    {"role": "user", "content": "Weather in Zürich and 1+2?"},
    {"role": "assistant", "content": "", "reasoning_content": "Two calls.\nBoth at once.",
     "tool_calls": [call("get_weather", {"location": "Zürich", "days": 3,
                                         "options": {"wind": True, "layers": ["a", "b"]}}, "call00001"),
                    call("add", {"a": 1, "b": 2.5, "note": None}, "call00002")]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "call00001",
     "content": "{\"temp\": 21, \"sky\": \"clear\"}"},
    {"role": "tool", "name": "add", "tool_call_id": "call00002", "content": "3.5"},
    {"role": "assistant", "content": "21 degrees; 3.5."},
    {"role": "user", "content": "Thanks."}]}
ONE_CALL = {"tools": TOOLS, "functions": TOOLS, "datetime": "2026-02-01", "enable_thinking": False,
            "messages": [
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": None, "tool_calls": [
                    call("get_weather", {"location": "Oslo", "unit": "celsius"}, "call00003")]},
                {"role": "tool", "name": "get_weather", "tool_call_id": "call00003", "content": "-3"},
                {"role": "assistant", "content": "Cold."}, {"role": "user", "content": "And now?"}]}
PARTS = {"enable_thinking": True, "reasoning_effort": "high", "documents": [
    {"title": "T", "text": "Some text."}], "messages": [
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": [{"type": "text", "text": "One "}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Three"}], "thinking": "hm",
         "reasoning": "why", "reasoning_content": "because"},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]}
STRING_ARGUMENTS = {"tools": TOOLS[1:], "messages": [
    {"role": "developer", "content": "Add."}, {"role": "user", "content": "1+2"},
    {"role": "assistant", "content": "", "tool_calls": [call("add", "{\"a\": 1, \"b\": 2}", "call00004")]},
    {"role": "tool", "content": [{"type": "text", "text": "3"}], "tool_call_id": "call00004"},
    {"role": "assistant", "content": "3", "tool_calls": []}]}
BAD_TURNS = {"messages": [{"role": "assistant", "content": "first"}, {"role": "nobody", "content": "x"}]}
NOTHING = {"messages": []}
CONVERSATIONS = (PLAIN, TURNS, WITH_TOOLS)
FURTHER = (ONE_CALL, PARTS, STRING_ARGUMENTS, BAD_TURNS, NOTHING)
COMMON = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def contexts():
    out = []
    for conversation in CONVERSATIONS + FURTHER:
        # transformers passes these two always
        context = {"tools": None, "documents": None}
        context.update(COMMON)
        context["add_generation_prompt"] = conversation is not TURNS
        context.update(conversation)
        out.append(context)
    return out


def same(ours, theirs):
    if "output" in theirs or "output" in ours:
        return ours.get("output") == theirs.get("output")
    if theirs["type"] in ("TemplateError", "UndefinedError", "SecurityError"):
        return ours["error"] == theirs["error"]
    return True


def main():
    if len(sys.argv) < 3 or not os.path.isdir(sys.argv[2]):
        print("skipped: no folder of templates")
        return 77
    try:
        import oracle
    except ImportError:
        print("skipped: jinja2 is not installed")
        return 77
    if not oracle.require_version("3.1.6"):
        print("skipped: jinja2 is not 3.1.6")
        return 77
    verbose = "-v" in sys.argv
    names = sorted(n for n in os.listdir(sys.argv[2]) if n.endswith(".jinja"))
    sources = {}
    for name in names:
        with open(os.path.join(sys.argv[2], name), encoding="utf-8", newline="") as f:
            sources[name] = f.read()
    request = json.dumps({"templates": sources, "contexts": contexts()})
    done = subprocess.run([sys.argv[1], str(NOW)], input=request.encode(), stdout=subprocess.PIPE,
                          check=True)
    answers = iter(json.loads(done.stdout))
    env = oracle.environment(NOW)
    differ, errors = [0, 0], [0, 0]
    for name in names:
        for number, context in enumerate(contexts()):
            ours, theirs = next(answers), oracle.render(env, sources[name], context)
            part = number >= len(CONVERSATIONS)
            errors[part] += "error" in theirs
            if verbose and "error" in theirs:
                print(f"  both fail: {name}:{number}: {theirs['type']}: {theirs['error']}"
                      f" | line {ours.get('line')}: {ours.get('error')}")
            if same(ours, theirs) or f"{name}:{number}" in EXCEPTED:
                continue
            differ[part] += 1
            print(f"differs: {name}:{number}\n  ours:   {json.dumps(ours)[:2000]}\n"
                  f"  jinja2: {json.dumps(theirs)[:2000]}")
    for part, what in enumerate((CONVERSATIONS, FURTHER)):
        total = len(what) * len(names)
        print(f"{total - differ[part]} of {total} {'further ' if part else ''}renderings equal "
              f"({errors[part]} of them an error on both sides)")
    print(f"{len(EXCEPTED)} excepted")
    return 1 if any(differ) or len(EXCEPTED) > 3 else 0


if __name__ == "__main__":
    sys.exit(main())
