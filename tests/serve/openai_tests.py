#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The request tests of OpenAI's Python client, against an engine: no 5xx, and no documented field refused without a reason.

usage: openai_tests.py REPOSITORY TEXT_ENGINE VECTOR_ENGINE [-v]

REPOSITORY is a checkout of openai/openai-python, of which nothing is kept or changed; its tests for chat completions, completions,
embeddings, responses and models run as they are, with every parameter that OpenAI documents in one request, and check the types of
replies. A refusal must be a 400 or 404 whose error says which field it is about (`param`) and why. Printed are the refusals, each once, with
the number of tests that met it, and what failed otherwise. Needs pytest, pytest-asyncio, openai, httpx2 and aiohttp.
"""
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

from common import Server

FILES = {"chat/test_completions.py": "text", "test_completions.py": "text", "test_responses.py": "text", "responses": "text", "test_models.py": "text",
         "test_embeddings.py": "vectors"}
# The client asks for base64 where its user does not say; validating strictly it then wants numbers before it decodes the text.
OF_THE_CLIENT = re.compile(r"test_embeddings\.py::\w+::test_(method|raw_response|streaming_response)_create\[(strict|aiohttp)\]$")
PLUGIN = '''import json, os
import openai, pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.when != "call":
        return
    e = call.excinfo.value if call.excinfo else None
    row = {"test": item.nodeid, "outcome": report.outcome}
    if isinstance(e, openai.APIStatusError):
        row.update(status=e.status_code, path=e.request.url.path, method=e.request.method, body=e.body)
    elif e is not None:
        row["why"] = "%s: %s" % (type(e).__name__, str(e)[:400])
    with open(os.environ["INFC_ROWS"], "a") as f:
        f.write(json.dumps(row) + "\\n")
'''


def run(repository, files, server, folder):
    rows = os.path.join(folder, "rows")
    env = {**os.environ, "TEST_API_BASE_URL": f"http://127.0.0.1:{server.port}/v1", "INFC_ROWS": rows, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "infc_rows", "-p", "no:cacheprovider", "-o", "addopts=",
                           *["tests/api_resources/" + f for f in files]], cwd=repository, env=env, capture_output=True, text=True, check=False)
    if not os.path.exists(rows):
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    got = [json.loads(x) for x in open(rows)]
    os.remove(rows)
    return got


def main():
    repository, text, vectors = sys.argv[1:4]
    rows = []
    with tempfile.TemporaryDirectory(prefix="openai-tests-") as folder:
        with open(os.path.join(folder, "infc_rows.py"), "w") as f:
            f.write(PLUGIN)
        for kind, engine in (("text", text), ("vectors", vectors)):
            s = Server(engine, "--any-model", name=os.path.join(folder, kind))
            rows += run(repository, [f for f, k in FILES.items() if k == kind], s, folder)
            assert s.stop() == 0
    refusals, bad = collections.Counter(), []
    for r in rows:
        error = (r.get("body") or {}) if isinstance(r.get("body"), dict) else {}
        if "status" not in r:
            if r["outcome"] == "failed" and r["why"].startswith("APIResponseValidationError") and OF_THE_CLIENT.search(r["test"]):
                refusals["(by the client) base64, which it asked for, where its strict check wants numbers"] += 1
            elif r["outcome"] == "failed":
                bad.append((r["test"], r["why"]))
        elif r["status"] >= 500 and r["status"] != 501 or not error.get("message") or (r["status"] == 400 and not error.get("param")):
            bad.append((r["test"], f"{r['status']} {error}"))
        else:
            path = re.sub(r"/[a-z]+_id\b.*", "/ID", r["path"])
            refusals[f"{r['status']} {r['method']} {path} {error.get('param')}: {error['message']}"] += 1
    for text_, n in refusals.most_common():
        print(f"{n:4} refused: {text_}")
    for name, why in bad:
        print(f"not ok {name}: {why}")
    print(f"{len(rows)} tests: {sum(r['outcome'] == 'passed' for r in rows)} passed, {sum(refusals.values())} refused with a reason, "
          f"{sum(r['outcome'] == 'skipped' for r in rows)} skipped, {len(bad)} bad")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main()
