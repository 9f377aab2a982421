#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`infc serve`, many engines behind one address: front.py INFC TEXT_ENGINE TENSOR_ENGINE"""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from common import Server, run_all, test

INFC, TEXT, TENSORS = (os.path.abspath(x) for x in sys.argv[1:4])
BODY = {"prompt": "the robot was in a city", "max_tokens": 16, "ignore_eos": True, "seed": 3, "temperature": 1.0}


class Front(Server):
    def __init__(self, what, *args, name="front"):
        self.log = open(name + ".log", "w+")
        self.log_name = name + ".log"
        self.process = subprocess.Popen([INFC, "serve", what, "--listen", "127.0.0.1:0", *args], stderr=self.log, stdin=subprocess.DEVNULL)
        self.port = int(self.wait_log(r"127\.0\.0\.1:(\d+)")[1])

    def text(self):
        return open(self.log_name).read()

    def wait_log(self, pattern, after=0):
        for _ in range(3000):
            m = re.compile(pattern).search(self.text(), after)
            if m:
                return m
            assert self.process.poll() is None, self.text()
            time.sleep(0.01)
        raise AssertionError(f"no {pattern!r}: " + self.text()[-800:])

    def pid(self, model):
        return int(re.findall(rf"^{model}: process (\d+) starts", self.text(), re.M)[-1])

    def states(self):
        return {m["id"]: m["state"] for m in self.get("/v1/models")["data"]}

    def wait_state(self, model, state):
        for _ in range(3000):
            if self.states()[model] == state:
                return
            time.sleep(0.01)
        raise AssertionError(f"{model} is not {state}: {self.states()}")


class Reread:
    """SIGHUP, and what the front process says then."""

    def __init__(self, front):
        self.front = front

    def __call__(self, pattern):
        at = len(self.front.text())
        self.front.process.send_signal(signal.SIGHUP)
        return self.front.wait_log(pattern, at)


def listing(name, *lines):
    with open(name, "w") as f:
        f.write("\n".join(lines) + "\n")
    return name


def answer(s, model, **more):
    return s.post("/v1/completions", {**BODY, "model": model, **more})["choices"][0]["text"]


def setup():
    os.makedirs("engines", exist_ok=True)
    for name, source in (("a", TEXT), ("b", TEXT), ("v2", TENSORS)):
        shutil.copy(source, "engines/" + name)
    listing("engines/notes", "no engine")
    d = Server(TEXT, "--any-model", name="direct")
    text = answer(d, "any")
    long = answer(d, "any", max_tokens=400)
    d.stop()
    return text, long


RIGHT, LONG = setup()


@test
def requests_go_by_model():
    f = Front("engines")
    assert f.states() == {"a": "stopped", "b": "stopped", "v2": "stopped"}  # on demand
    assert f.get("/v1/models/b")["id"] == "b" and f.get("/v1/models/c", 404)
    assert answer(f, "a") == RIGHT
    assert f.states()["a"] == "running" and f.states()["b"] == "stopped"
    r = f.post("/v1/completions", {**BODY, "model": "b"})
    assert r["model"] == "b" and r["choices"][0]["text"] == RIGHT
    assert "there are: a, b, v2" in f.post("/v1/completions", {**BODY, "model": "c"}, 404)["error"]["message"]
    assert f.post("/v1/completions", BODY, 400)["error"]["param"] == "model"
    assert f.post("/v1/completions", "no JSON", 400)
    assert f.get("/props?model=a")["default_generation_settings"]
    assert f.get("/v2/models/v2")["name"] == "v2" and f.get("/v2/models/v2/ready")
    parts = f.stream("/v1/completions", {**BODY, "model": "a"})
    assert parts[-1] == "[DONE]" and "".join(p["choices"][0]["text"] for p in parts[:-1]) == RIGHT
    status, headers, text = f.request("POST", "/v1/completions", {**BODY, "model": "a"}, {"X-Request-Id": "mine"})
    assert status == 200 and headers["x-request-id"] == "mine"
    assert f.post("/v1/completions", {**BODY, "model": "a", "top_p": 7}, 400)["error"]["param"] == "top_p"
    m = f.request("GET", "/metrics")[2].decode()
    assert 'infc_engine_up{model_name="b"} 1' in m and 'infc_engine_starts_total{model_name="a"} 1' in m
    assert "vllm:prompt_tokens_total" in f.request("GET", "/metrics?model=a")[2].decode()
    assert f.stop() == 0


@test
def other_programs_of_a_folder_are_not_executed():
    os.makedirs("mixed", exist_ok=True)
    listing("ran.c", "#include <stdio.h>", f'int main(void) {{ return !fopen("{os.getcwd()}/ran", "w"); }}')
    subprocess.run([os.environ["INFC_CC"], "-o", "mixed/other", "ran.c"], check=True)
    shutil.copy(TEXT, "mixed/a")
    f = Front("mixed")
    assert f.states() == {"a": "stopped"}
    assert f.stop() == 0 and not os.path.exists("ran")


@test
def a_single_engine_needs_no_name():
    f = Front(listing("one.conf", "# one", "only = engines/a --any-model"))
    assert f.post("/v1/completions", BODY)["choices"][0]["text"] == RIGHT
    pid = f.pid("only")
    folder = re.search(r"listening on unix:(\S*/infc-serve\.\w+)/0", f.text())[1]
    assert os.stat(folder).st_mode & 0o77 == 0
    assert f.stop() == 0 and not os.path.exists(f"/proc/{pid}") and not os.path.exists(folder)


@test
def killed_engines_are_started_again():
    f = Front("engines")
    worst = 0
    answer(f, "a")
    for _ in range(5):
        os.kill(f.pid("a"), signal.SIGKILL)
        t = time.monotonic()
        assert answer(f, "a") == RIGHT
        worst = max(worst, time.monotonic() - t)
    print(f"| after kill -9 the next request was served within {1e3 * worst:.0f} ms")
    # in the middle of requests: those whose reply has not begun are asked again
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = [pool.submit(answer, f, "a", max_tokens=400) for _ in range(6)]
        for _ in range(3000):
            if f.metrics()["infc_engine_requests_running"] == 6:
                break
            time.sleep(0.002)
        os.kill(f.pid("a"), signal.SIGKILL)
        assert {x.result() for x in got} == {LONG}
    assert 'infc_engine_crashes_total{model_name="a"} 6' in f.request("GET", "/metrics")[2].decode()
    # a stream says that it is not complete
    c = f.connect()
    body = json.dumps({**BODY, "model": "a", "max_tokens": 400, "stream": True}).encode()
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    got = c.recv(4096)
    os.kill(f.pid("a"), signal.SIGKILL)
    while part := c.recv(65536):
        got += part
    assert b'"code":502' in got or b"[DONE]" in got, got[-300:]
    assert answer(f, "b") == RIGHT and f.stop() == 0


@test
def an_engine_that_does_not_start():
    f = Front(listing("bad.conf", "bad = engines/a --nonsense", "good = engines/a"))
    for _ in range(2):
        r = f.post("/v1/completions", {**BODY, "model": "bad"}, 503)
        assert "exit code 2 before it was ready" in r["error"]["message"], r
    assert answer(f, "good") == RIGHT
    assert f.stop() == 0


@test
def engines_share_a_budget():
    probe = Front("engines", name="probe")
    answer(probe, "a")
    size = probe.request("GET", "/metrics")[2].decode()
    for _ in range(100):
        size = int(re.search(r'infc_engine_memory_bytes\{model_name="a"\} (\d+)', probe.request("GET", "/metrics")[2].decode())[1])
        if size:
            break
        time.sleep(0.05)
    probe.stop()
    f = Front(listing("two.conf", "a = engines/a", "b = engines/b"), "--memory", str(int(1.6 * max(size, os.path.getsize("engines/a")))))
    for model in "abab":
        assert answer(f, model) == RIGHT
        assert sum(x != "stopped" for x in f.states().values()) == 1, f.states()
    # the other one is busy: the request waits, and both are answered however long the queue of the first
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = [pool.submit(answer, f, "ab"[i % 2], max_tokens=400) for i in range(8)]
        assert {x.result() for x in got} == {LONG}
    assert f.stop() == 0
    refused = subprocess.run([INFC, "serve", "two.conf", "--memory", "1000"], capture_output=True, text=True)
    assert refused.returncode == 2 and "more than --memory" in refused.stderr


@test
def idle_engines_stop():
    f = Front("engines", "--idle", "0.3")
    assert answer(f, "a") == RIGHT
    pid = f.pid("a")
    f.wait_state("a", "stopped")
    assert not os.path.exists(f"/proc/{pid}") and answer(f, "a") == RIGHT and f.pid("a") != pid
    assert f.stop() == 0


@test
def keys_are_asked_for():
    listing("front-keys", "secret", "slow rpm=2")
    f = Front("engines", "--api-key-file", "front-keys")
    assert f.get("/health") and f.get("/v1/models", 401) and f.get("/props?model=a", 401)
    for key, want in (("secret", [200] * 4), ("slow", [200, 200, 429])):
        for status in want:
            assert f.request("POST", "/v1/completions", {**BODY, "model": "a"}, {"Authorization": "Bearer " + key})[0] == status
    assert f.stop() == 0
    listing("front-keys", "secret tps=5")
    refused = subprocess.run([INFC, "serve", "engines", "--api-key-file", "front-keys"], capture_output=True, text=True)
    assert refused.returncode == 2 and "behind a key are" in refused.stderr, refused


@test
def keys_have_tokens_and_budgets():
    """What replies say in `usage` is what is counted, whichever engine it was, and reading the keys again forgets nothing."""
    listing("front-keys", "free")
    f = Front("engines", "--api-key-file", "front-keys", name="front-tokens")
    reread = Reread(f)

    def ask(key, model="a", **more):
        status, h, text = f.request("POST", "/v1/completions", {**BODY, "model": model, **more}, {"Authorization": "Bearer " + key, "X-Infc-Account": "1"})
        return status, h, text.decode()

    cost = json.loads(ask("free")[2])["usage"]["total_tokens"]
    assert json.loads(ask("free", "b")[2])["usage"]["total_tokens"] == cost > 16
    keys = ("free", f"minute tpm={cost + 1}", f"life budget={3 * cost}", f"stream budget={cost}", f"left budget={cost}")
    listing("front-keys", *keys)
    assert reread("0 new")
    # tokens a minute: after one answer there is about one token left, after two there is none
    status, h, _ = ask("minute")
    assert status == 200 and h["x-ratelimit-limit-tokens"] == h["x-ratelimit-remaining-tokens"] == str(cost + 1)
    status, h, _ = ask("minute", "b")
    assert status == 200 and 1 <= int(h["x-ratelimit-remaining-tokens"]) <= cost // 2, h
    status, h, text = ask("minute")
    assert status == 429 and "tokens a minute" in text and 1 <= int(h["retry-after"]) <= 60, (status, h)
    # a budget is of all engines together, to the token
    for model in "aba":
        assert ask("life", model)[0] == 200
    assert ask("life", "b")[0] == 429 and "budget" in ask("life")[2]
    assert ask("stream", stream=True)[0] == 200 and ask("stream")[0] == 429
    # who leaves pays for what was made
    c = f.connect()
    body = json.dumps({**BODY, "model": "a", "max_tokens": 400, "stream": True}).encode()
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer left\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    got = b""
    while got.count(b"data: ") < cost:
        got += c.recv(65536)
    c.close()
    for _ in range(3000):
        if ask("left", top_p=7)[0] == 429:  # 400, at no cost, until then
            break
        time.sleep(0.01)
    assert ask("left")[0] == 429
    listing("front-keys", *keys[:2], f"life budget={4 * cost}", "new")
    assert reread("0 new")
    assert ask("stream")[0] == 401 and ask("new")[0] == 200
    assert ask("life")[0] == 200 and ask("life")[0] == 429
    # a key that comes back has used what it had
    listing("front-keys", f"stream budget={cost}", f"left budget={1000 * cost}", "newer")
    assert reread("0 new")
    assert ask("stream")[0] == 429 and ask("left")[0] == 200 and ask("new")[0] == 401
    assert f.stop() == 0


@test
def a_killed_engine_has_counted_what_it_streamed():
    chat = {"messages": [{"role": "user", "content": "a"}], "ignore_eos": True}
    listing("front-keys", "text budget=30", "chat budget=30")
    f = Front("engines", "--api-key-file", "front-keys", name="front-counted")
    for key, path, body in (("text", "/v1/completions", BODY), ("chat", "/v1/chat/completions", chat)):
        text = json.dumps({**body, "model": "a", "max_tokens": 400, "stream": True}).encode()
        c = f.connect()
        c.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        got = b""
        while got.count(b"data: ") < 40:
            part = c.recv(65536)
            assert part, got
            got += part
        os.kill(f.pid("a"), signal.SIGKILL)
        while part := c.recv(65536):
            got += part
        c.close()
        assert b'"code":502' in got or b"[DONE]" in got, got[-300:]
        status, h, text = f.request("POST", path, {**body, "model": "a"}, {"Authorization": "Bearer " + key})
        assert status == 429 and json.loads(text)["error"]["code"] == "insufficient_quota" and "retry-after" not in h, (status, text)
    assert f.stop() == 0


@test
def clients_that_leave():
    f = Front("engines")
    answer(f, "a")
    for _ in range(20):
        c = f.connect()
        body = json.dumps({**BODY, "model": "a", "max_tokens": 400}).encode()
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        c.close()
    for _ in range(3000):
        m = f.request("GET", "/metrics?model=a")[2].decode()
        if re.search(r"vllm:num_requests_running\S* 0\n", m) and f.metrics()["infc_engine_requests_running"] == 0:
            break
        time.sleep(0.01)
    assert f.metrics()["infc_engine_requests_running"] == 0
    assert f.stop() == 0


@test
def it_ends_with_its_engines():
    f = Front("engines")
    answer(f, "a"), answer(f, "b")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # what was accepted is answered
        got = [pool.submit(answer, f, "a", max_tokens=400) for _ in range(4)]
        while f.metrics()["infc_engine_requests_running"] < 4 and not got[0].done():
            time.sleep(0.002)
        assert f.stop() == 0
        assert {x.result() for x in got} == {LONG}
    g = Front("engines", name="front-killed")
    answer(g, "a")
    pid = g.pid("a")
    g.process.kill()
    g.process.wait()
    for _ in range(1000):
        try:
            if open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "Z":
                break
        except FileNotFoundError:
            break
        time.sleep(0.01)
    else:
        raise AssertionError("the engine lives on")


@test
def another_front_takes_over():
    f = Front("engines", name="front-swap")
    answer(f, "a")
    f.process.send_signal(signal.SIGUSR2)
    new = int(f.wait_log(r"process (\d+) takes over")[1])
    assert answer(f, "a") == RIGHT
    assert f.process.wait(60) == 0
    assert answer(f, "b") == RIGHT
    os.kill(new, signal.SIGTERM)


@test
def the_folder_is_read_again():
    shutil.rmtree("grows", ignore_errors=True)
    os.makedirs("grows")
    shutil.copy(TEXT, "grows/a")
    f = Front("grows", name="front-grows")
    reread = Reread(f)
    assert f.post("/v1/completions", BODY)["choices"][0]["text"] == RIGHT  # the only one needs no name
    pid = f.pid("a")
    shutil.copy(TEXT, "grows/b")
    assert reread("1 new, 0 changed, 0 gone") and f.states() == {"a": "running", "b": "stopped"}
    assert answer(f, "b") == RIGHT and f.post("/v1/completions", BODY, 400)["error"]["param"] == "model"
    assert answer(f, "a") == RIGHT and f.pid("a") == pid  # it went on
    # one that goes answers what it has, and gets nothing more
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = [pool.submit(answer, f, "a", max_tokens=400) for _ in range(4)]
        while f.metrics()["infc_engine_requests_running"] < 4 and not got[0].done():
            time.sleep(0.002)
        os.remove("grows/a")
        assert reread("0 new, 0 changed, 1 gone")
        assert f.post("/v1/completions", {**BODY, "model": "a"}, 404)
        assert {x.result() for x in got} == {LONG}
    f.wait_log("a: the process ended")
    assert f.states() == {"b": "running"} and not os.path.exists(f"/proc/{pid}")
    # another file by its name: the new one answers the next request, its place was free
    shutil.copy(TEXT, "grows/next")
    os.rename("grows/next", "grows/b")
    shutil.copy(TEXT, "grows/c")
    old = f.pid("b")
    assert reread("1 new, 1 changed, 0 gone")
    assert answer(f, "b") == RIGHT and f.pid("b") != old and answer(f, "c") == RIGHT
    assert reread("0 new, 0 changed, 0 gone")
    # a list with nothing in it is none
    for name in ("b", "c"):
        os.rename("grows/" + name, name + ".away")
    assert reread("stays as it was") and answer(f, "b") == RIGHT
    assert f.stop() == 0


@test
def options_of_a_list_are_read_again():
    conf = listing("changes.conf", "a = engines/a --ctx 256")
    f = Front(conf, name="front-changes")
    reread = Reread(f)
    assert f.get("/props?model=a")["default_generation_settings"]["n_ctx"] == 256
    listing(conf, "a = engines/a --ctx 128")
    assert reread("0 new, 1 changed, 0 gone")
    assert f.get("/props?model=a")["default_generation_settings"]["n_ctx"] == 128
    listing(conf, "a = engines/a --ctx 64", "b = engines/none")
    assert reread("stays as it was") and "changes.conf:2" in f.text()
    assert f.get("/props?model=a")["default_generation_settings"]["n_ctx"] == 128
    assert f.stop() == 0


@test
def bad_lists_are_refused():
    for line, word in (("a engines/a", "expected NAME = FILE"), ("a = engines/none", "no engine with a server"), ('"a b" = engines/a', "no name for a model"),
                       ("a = engines/a\na = engines/b", "two models"), ('a = engines/a "x', "quote"), ("", "no engines")):
        r = subprocess.run([INFC, "serve", listing("bad.conf", line)], capture_output=True, text=True)
        assert r.returncode == 2 and word in r.stderr, (line, r)


if __name__ == "__main__":
    sys.exit(run_all("front-"))
