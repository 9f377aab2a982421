#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hot swaps of an engine's file under load: swap.py ENGINE [COUNT]

Clients on connections of their own, on connections that are kept, and with streams ask all the time and never ask again: a
connection that is refused, reset or closed without a reply, or an answer that is not complete and the same as ever, fails the test.
"""
import ctypes
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from common import events, run_all, test

ENGINE = sys.argv[1]
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 20
BODY = {"prompt": "the robot was in a city", "max_tokens": 24, "ignore_eos": True, "seed": 5, "temperature": 1.0}

# processes whose parent has ended are ours, so that their exit codes are seen
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def put(source):
    """The file that the engine is started from is another one from now on."""
    shutil.copy(source, "served.new")
    os.chmod("served.new", 0o755)
    os.rename("served.new", "served")


class Swapped:
    def __init__(self, name, *listen):
        put(ENGINE)
        self.log = name + ".log"
        self.process = subprocess.Popen([os.path.abspath("served"), "serve", "--any-model", *listen], stderr=open(self.log, "w"), stdin=subprocess.DEVNULL)
        self.pids = [self.process.pid]
        self.wait("listening on")

    def text(self):
        return open(self.log).read()

    def wait(self, pattern, after=0):
        for _ in range(6000):
            m = re.compile(pattern).search(self.text(), after)
            if m:
                return m
            time.sleep(0.01)
        raise AssertionError(f"no {pattern!r} in " + self.text()[-500:])

    def swap(self):
        after = len(self.text())
        os.kill(self.pids[-1], signal.SIGUSR2)
        self.pids.append(int(self.wait(r"process (\d+) takes over", after)[1]))

    def end(self):
        """The last one is told to stop; all have ended well."""
        os.kill(self.pids[-1], signal.SIGTERM)
        assert self.process.wait(60) == 0
        for pid in self.pids[1:]:
            assert os.waitpid(pid, 0)[1] == 0, pid


def check(status, text, stream):
    assert status == 200, (status, text[:300])
    if stream:
        parts = events(text)
        assert parts[-1] == "[DONE]"
        return "".join(p["choices"][0]["text"] for p in parts[:-1])
    return json.loads(text)["choices"][0]["text"]


def ask(connect, kept, stream, stop, out):
    c = None
    while not stop.is_set():
        if c is None:
            c = connect()
        body = json.dumps({**BODY, "stream": stream})
        c.request("POST", "/v1/completions", body, {} if kept else {"Connection": "close"})
        r = c.getresponse()
        out.append(check(r.status, r.read(), stream))
        if not kept or r.will_close:
            c.close()
            c = None


def load(connect, n):
    """Clients that ask until stop is set; (stop, what ends and checks them)."""
    stop, answers, errors, threads = threading.Event(), [], [], []

    def run(k):
        try:
            ask(connect, k % 3 > 0, k % 2 > 0, stop, answers)
        except Exception as e:  # noqa: BLE001
            errors.append(repr(e))

    for k in range(n):
        threads.append(threading.Thread(target=run, args=(k,)))
        threads[-1].start()

    def finish():
        stop.set()
        for t in threads:
            t.join(60)
        assert not errors, errors[:3]
        assert len(set(answers)) == 1, set(answers)
        return len(answers)

    return answers, finish


def until_more(answers, n):
    n += len(answers)
    for _ in range(3000):
        if len(answers) >= n:
            return
        time.sleep(0.01)
    raise AssertionError("nothing is answered")


@test
def hot_swaps_under_load():
    s = Swapped("swap", "--listen", "127.0.0.1:0", "--listen", "unix:" + os.path.abspath("swap.sock"))
    port = int(s.wait(r"127\.0\.0\.1:(\d+)")[1])
    answers, finish = load(lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=60), 6)
    inodes = set()
    for _ in range(COUNT):
        until_more(answers, 4)
        put(ENGINE)
        s.swap()
        inodes.add(os.stat(f"/proc/{s.pids[-1]}/exe").st_ino == os.stat("served").st_ino)
    until_more(answers, 4)
    n = finish()
    with socket.socket(socket.AF_UNIX) as u:
        u.connect("swap.sock")
    s.end()
    assert inodes == {True} and not os.path.exists("swap.sock")
    print(f"| {COUNT} swaps, {n} requests answered in full, none refused or lost", flush=True)


@test
def a_new_file_that_does_not_start():
    s = Swapped("bad-swap", "--listen", "127.0.0.1:0")
    port = int(s.wait(r"127\.0\.0\.1:(\d+)")[1])
    answers, finish = load(lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=60), 3)
    for text, code in (("#!/bin/sh\nexit 7\n", 7), ("no program", 127), ("#!/bin/sh\nkill -9 $$\n", 9)):
        with open("bad", "w") as f:
            f.write(text)
        put("bad")
        after = len(s.text())
        os.kill(s.pids[-1], signal.SIGUSR2)
        assert int(s.wait(r"did not become ready \(\D*(\d+)\): this one goes on", after)[1]) == code
        until_more(answers, 4)
    put(ENGINE)
    s.swap()
    until_more(answers, 4)
    finish()
    s.end()


@test
def kept_connections_are_told():
    """One that asks nothing while another process takes over is answered still, and told to come anew."""
    s = Swapped("kept-swap", "--listen", "127.0.0.1:0")
    c = http.client.HTTPConnection("127.0.0.1", int(s.wait(r"127\.0\.0\.1:(\d+)")[1]), timeout=60)
    for close in (False, True):
        c.request("GET", "/ready")
        r = c.getresponse()
        assert r.status == 200 and r.read() == b'{"status":"ok"}' and r.will_close == close
        if not close:
            s.swap()
    s.end()


@test
def sockets_of_a_manager():
    """Sockets and readiness as systemd has them: the path stays its own."""
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind("notify.sock")
    manager.settimeout(30)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("given.sock")
    listener.listen(8)
    put(ENGINE)
    os.set_inheritable(listener.fileno(), True)

    def prepare():
        os.dup2(listener.fileno(), 3)
        os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), NOTIFY_SOCKET=os.path.abspath("notify.sock"))
        os.execv("served", ["served", "serve"])

    pid = os.fork()
    if not pid:
        prepare()
    assert manager.recv(100) == b"READY=1\nMAINPID=%d" % pid
    os.kill(pid, signal.SIGUSR2)
    ready, main = manager.recv(100).split(b"\n")
    new = int(main[8:])
    assert ready == b"READY=1" and new != pid
    assert os.waitpid(pid, 0)[1] == 0
    with socket.socket(socket.AF_UNIX) as u:
        u.connect("given.sock")
        u.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert u.recv(100).startswith(b"HTTP/1.1 200")
    os.kill(new, signal.SIGTERM)
    assert os.waitpid(new, 0)[1] == 0 and os.path.exists("given.sock")


if __name__ == "__main__":
    sys.exit(run_all(""))
