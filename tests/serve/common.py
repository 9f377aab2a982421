# SPDX-License-Identifier: Apache-2.0
"""What tests of the server share: starting one, plain requests, and reporting in the words of tests/run."""
import http.client
import json
import math
import os
import re
import signal
import socket
import struct
import subprocess
import time
import traceback

TESTS = []


def test(f):
    TESTS.append(f)
    return f


def run_all(prefix):
    """Runs what TEST_GLOBS asks for; the exit code."""
    failed = 0
    for f in TESTS:
        name = prefix + f.__name__.replace("_", "-")
        try:
            f()
            print("ok", name, flush=True)
        except Exception as e:  # noqa: BLE001
            failed += 1
            print(f"not ok {name}: {type(e).__name__}: {str(e)[:300]}".replace("\n", " "), flush=True)
            print("".join("| " + line + "\n" for line in traceback.format_exc().splitlines()[-12:]), flush=True)
    return 1 if failed else 0


def read_tensors(path):
    """{name: (dims outermost first, floats)} of a GGUF file with f32 tensors."""
    data = open(path, "rb").read()
    at = 8
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def take(form):
        nonlocal at
        out = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return out[0]

    def skip(kind):
        nonlocal at
        if kind == 8:
            name()
        elif kind == 9:
            inner, n = take("I"), take("Q")
            for _ in range(n):
                skip(inner)
        else:
            at += sizes[kind]

    def name():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()

    n_tensors, n_keys = take("Q"), take("Q")
    for _ in range(n_keys):
        name()
        skip(take("I"))
    heads = []
    for _ in range(n_tensors):
        key = name()
        dims = [take("Q") for _ in range(take("I"))][::-1]
        assert take("I") == 0
        heads.append((key, dims, take("Q")))
    base = -(-at // 32) * 32
    return {k: (d, struct.unpack_from(f"<{math.prod(d)}f", data, base + o)) for k, d, o in heads}


class Server:
    """An engine that serves, on a port of its own choice."""

    def __init__(self, engine, *args, name="server"):
        self.log = open(name + ".log", "w+")
        self.process = subprocess.Popen([os.path.abspath(engine), "serve", "--listen", "127.0.0.1:0", *args],
                                        stderr=self.log, stdin=subprocess.DEVNULL)
        self.port = None
        for _ in range(2000):
            found = re.search(r"127\.0\.0\.1:(\d+)", open(name + ".log").read())
            if found:
                self.port = int(found.group(1))
                break
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        if not self.port:
            raise RuntimeError("the server does not start: " + open(name + ".log").read())

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(60)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def raw(self, data, end=True):
        """What comes back for these bytes until the server closes (or, end: after we close our side)."""
        with self.connect() as s:
            s.sendall(data)
            if end:
                s.shutdown(socket.SHUT_WR)
            return read_all(s)

    def request(self, method, path, body=None, headers=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        c.request(method, path, data, headers or {})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, dict((k.lower(), v) for k, v in r.getheaders()), text

    def post(self, path, body, status=200):
        got, _, text = self.request("POST", path, body)
        assert got == status, (got, text[:500])
        return json.loads(text)

    def get(self, path, status=200):
        got, _, text = self.request("GET", path)
        assert got == status, (got, text[:500])
        return json.loads(text)

    def stream(self, path, body, headers=None):
        """The data of each event."""
        got, h, text = self.request("POST", path, {**body, "stream": True}, headers)
        assert got == 200, (got, text[:500])
        assert h["content-type"].startswith("text/event-stream"), h
        return events(text)

    def metrics(self):
        """{name: sum over labels}"""
        out = {}
        for line in self.request("GET", "/metrics")[2].decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{")[0]
                out[name] = out.get(name, 0) + float(value)
        return out

    def wait_idle(self, seconds=30):
        """Until no request runs or waits; the metrics then."""
        for _ in range(int(seconds * 100)):
            m = self.metrics()
            if m["vllm:num_requests_running"] == 0 and m["vllm:num_requests_waiting"] == 0:
                return m
            time.sleep(0.01)
        raise AssertionError("requests do not end: %r" % m)


def events(text):
    out = []
    for block in text.decode("utf-8").split("\n\n"):  # every chunk is whole UTF-8
        lines = [x for x in block.split("\n") if x and not x.startswith(":")]
        data = [x[6:] for x in lines if x.startswith("data: ")]
        if data:
            assert len(data) == 1, block
            out.append(data[0] if data[0] == "[DONE]" else json.loads(data[0]))
    return out


def read_all(s):
    got = b""
    try:
        while True:
            k = s.recv(65536)
            if not k:
                return got
            got += k
    except (ConnectionResetError, TimeoutError):
        return got


def status_of(reply):
    assert reply.startswith(b"HTTP/1.1 "), reply[:100]
    return int(reply[9:12])
