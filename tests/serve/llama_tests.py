#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's own tests of its server, against an engine.

usage: llama_tests.py REPOSITORY TEXT_ENGINE VECTOR_ENGINE [-k WORDS] [--all] [--list]

REPOSITORY is a checkout of llama.cpp, of which nothing is kept or changed: tools/server/tests and models/templates are copied, and
of the copy only conftest.py is another one (theirs downloads all models first). LLAMA_SERVER_BIN_PATH is llama_server.py, which turns
llama-server's options into an engine's. The functions are those of llama_tests.list, which says of each what it needs; those
marked `model` compare with the text or the number of tokens of a model that is not at hand, and run only with --all. Needs pytest,
requests, wget, openai and prometheus-client.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONFTEST = '''import pytest
from utils import server_instances


@pytest.fixture(autouse=True)
def stop_server_after_each_test():
    yield
    for server in set(server_instances):
        server.stop()
'''


def read_list():
    """{file::function: note}; note is "", or why it is not run or counted."""
    out = {}
    for line in open(os.path.join(HERE, "llama_tests.list")):
        line = line.split("#")[0].split()
        if line:
            out[line[0]] = line[1] if len(line) > 1 else ""
    return out


def main(argv):
    repository, text, vectors = argv[:3]
    every = "--all" in argv
    names = [n for n, note in read_list().items() if every or note != "model"]
    if "--list" in argv:
        print("\n".join(names))
        return 0
    folder = tempfile.mkdtemp(prefix="llama-tests-")
    try:
        shutil.copytree(os.path.join(repository, "tools/server/tests"), os.path.join(folder, "tools/server/tests"))
        shutil.copytree(os.path.join(repository, "models/templates"), os.path.join(folder, "models/templates"))
        tests = os.path.join(folder, "tools/server/tests")
        with open(os.path.join(tests, "conftest.py"), "w") as f:
            f.write(CONFTEST)
        env = {**os.environ, "LLAMA_SERVER_BIN_PATH": os.path.join(HERE, "llama_server.py"), "INFC_TEXT": os.path.abspath(text),
               "INFC_VECTORS": os.path.abspath(vectors), "INFC_SHIM": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        extra = argv[argv.index("-k"):argv.index("-k") + 2] if "-k" in argv else []
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-rA", "--tb=short", "-p", "no:cacheprovider", "-m", "not slow", *extra,
                               *["unit/" + n for n in names]], cwd=tests, env=env, capture_output=True, text=True, check=False)
        functions = {}
        for state, name in re.findall(r"^(PASSED|FAILED|ERROR) unit/([\w./]+::\w+)", done.stdout, re.M):
            functions[name] = functions.get(name, True) and state == "PASSED"
        for n, ok in sorted(functions.items()):
            print(("ok " if ok else "not ok ") + n)
        if "-v" in argv or not functions:
            print(done.stdout[-400000:], done.stderr[-3000:])
        passed = sum(functions.values())
        print(f"{passed} of {len(functions)} functions pass ({len(names)} asked for)")
        return 0 if functions and passed >= 0.95 * len(functions) else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
