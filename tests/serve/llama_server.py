#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama-server's command line, as an engine's: what its tests start (llama_tests.py).

INFC_TEXT and INFC_VECTORS are the engines, INFC_SHIM a folder for files. An option that has no counterpart ends it.
"""
import datetime
import json
import os
import sys

CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
BUILT_IN = {
    "chatml": CHATML,
    "llama3": "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content + '<|eot_id|>' }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "command-r": "{% for m in messages %}<|START_OF_TURN_TOKEN|><|{{ {'user': 'USER', 'system': 'SYSTEM', 'assistant': 'CHATBOT'}[m.role] }}_TOKEN|>"
                 "{{ m.content }}<|END_OF_TURN_TOKEN|>{% endfor %}{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
}
# options that change nothing here: the model is given, and results do not depend on how they are computed
IGNORED = {"--offline": 0, "--hf-repo": 1, "--hf-file": 1, "--model": 1, "--model-url": 1, "--jinja": 0, "--no-jinja": 0, "--cont-batching": 0, "--ubatch-size": 1,
           "--threads": 1, "--n-gpu-layers": 1, "--kv-unified": 0, "-fa": 1, "--backend_sampling": 0, "--cache-ram": 1, "--swa-full": 0, "--tags": 1}


def write(name, text):
    path = os.path.join(os.environ["INFC_SHIM"], f"{os.getpid()}-{name}")
    with open(path, "w") as f:
        f.write(text)
    return path


def main(args):
    o, flags = {}, set()
    out = ["--any-model", "--stretch", "0", "--prefill"]
    i = 0
    while i < len(args):
        a = args[i]
        if a in IGNORED:
            i += 1 + IGNORED[a]
            flags.add(a)
        elif a in ("--slots", "--no-slots", "--metrics", "--embedding", "--context-shift", "--no-ui", "--verbose"):
            flags.add(a)
            i += 1
        elif a.startswith("--") and i + 1 < len(args):
            o[a] = args[i + 1]
            i += 2
        else:
            sys.exit(f"no counterpart of {a}")
    engine = os.environ["INFC_VECTORS" if "--embedding" in flags else "INFC_TEXT"]
    slots = int(o.pop("--parallel", 4))
    ctx = int(o.pop("--ctx-size", 2048))
    out += ["--listen", o.pop("--host") + ":" + o.pop("--port"), "--parallel", str(slots), "--ctx", str(ctx if "--kv-unified" in flags else ctx // slots)]
    for theirs, ours in (("--temp", "--temp"), ("--seed", "--seed"), ("--alias", "--model-name"), ("--batch-size", "--chunk"), ("--pooling", "--pooling"),
                         ("--chat-template-file", "--chat-template-file"), ("--reasoning-format", "--reasoning-format"), ("--reasoning", "--reasoning"),
                         ("--cors-origins", "--cors-origins")):
        if theirs in o:
            out += [ours, o.pop(theirs)]
    if int(o.get("--n-predict", -1)) >= 0:
        out += ["-n", o["--n-predict"]]
    o.pop("--n-predict", None)
    if "--api-key" in o:
        out += ["--api-key-file", write("keys", o.pop("--api-key") + "\n")]
    if "--chat-template" in o:
        text = o.pop("--chat-template")
        out += ["--chat-template-file", write("template", BUILT_IN.get(text, text))]
    elif "--chat-template-file" not in out and "--embedding" not in flags:
        out += ["--chat-template-file", write("template", CHATML)]
    for flag, path in (("--slots", "/slots"), ("--metrics", "/metrics")):
        if flag not in flags:
            out += ["--disable", path]
    if "--no-ui" in flags:
        out += ["--disable", "/"]
    today = datetime.date.today()  # llama-server gives templates the date under these names
    out += ["--template-args", json.dumps({"date_string": today.strftime("%d %b %Y"), "datetime": today.strftime("%b %d %Y")})]
    if "--verbose" in flags:
        out.append("--verbose")
    if "--reasoning" not in out:
        out += ["--reasoning", "on"]
    elif out[out.index("--reasoning") + 1] == "auto":
        out[out.index("--reasoning") + 1] = "on"  # where the template has a switch for it, theirs is on
    if "--context-shift" in flags:
        out += ["--on-full", "slide"]
    if "--cors-origins" not in out:
        out += ["--cors-origins", "*"]
    if o:
        sys.exit(f"no counterpart of {', '.join(o)}")
    os.execv(engine, [engine, "serve", *out])


if __name__ == "__main__":
    main(sys.argv[1:])
