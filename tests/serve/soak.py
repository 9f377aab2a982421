#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long runs of the server, by hand: soak.py ENGINE WHAT [COUNT]

  resets    clients that go away at any moment: pages back at the baseline, memory too (10,000)
  drains    SIGTERM under load: every request that was accepted is answered in full (200)
  books     usage, counters and log agree exactly over mixed requests (10,000)
  short     short requests: no growth, no error (100,000)
  hash      one hash a prompt: alone and in crowds, prefix known or new, chunks, threads, preemption (64 prompts)
"""
import collections
import concurrent.futures
import hashlib
import json
import os
import random
import signal
import socket
import struct
import sys
import threading
import time

from common import Server, read_all

ENGINE, WHAT = sys.argv[1:3]
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else None
WORDS = "the robot was in a city and is of to".split()


def text(r, n):
    return " ".join(r.choice(WORDS) for _ in range(n))


def rss_kb(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def request(body, path="/v1/completions"):
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data


def resets(n):
    s = Server(ENGINE, "--parallel", "4", "--queue", "64")
    r = random.Random(1)
    early = None
    for i in range(n):
        body = {"prompt": text(r, r.randrange(1, 60)), "max_tokens": r.randrange(1, 200), "ignore_eos": True, "stream": r.random() < 0.7}
        data = request(body)
        c = s.connect()
        try:
            part = r.random() < 0.2
            c.sendall(data[:r.randrange(len(data))] if part else data)
            if not part and r.random() < 0.5:
                c.settimeout(2)
                c.recv(r.randrange(1, 4000))
        except OSError:
            pass
        if r.random() < 0.5:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
        if i == n // 10:
            s.wait_idle()
            early = rss_kb(s.process.pid)
    m = s.wait_idle()
    late = rss_kb(s.process.pid)
    print(f"{n} resets: {m['infc_pages_held']:.0f} pages held, RSS {early} KB after a tenth, {late} KB at the end; exit {s.stop()}")
    return m["infc_pages_held"] == 0 and late - early < 1024


def drains(n):
    lost = answered = refused = 0
    for i in range(n):
        s = Server(ENGINE, "--parallel", "4")
        r = random.Random(i)
        results = []
        accepted = threading.Semaphore(0)

        def one(seed, results=results, s=s, accepted=accepted):
            body = {"prompt": text(random.Random(seed), 20), "max_tokens": 60, "ignore_eos": True, "stream": seed % 2 == 0}
            try:
                c = s.connect()
                c.sendall(request(body).replace(b"Host: x", b"Host: x\r\nConnection: close"))
            except OSError:
                results.append("refused")
                accepted.release()
                return
            accepted.release()
            got = read_all(c)
            if not got:
                results.append("refused")  # the listener closed before it was accepted
            elif got.startswith(b"HTTP/1.1 503"):
                results.append("refused")
            elif b'"completion_tokens":60' in got or got.count(b'"finish_reason":"length"') == 1:
                results.append("answered")
            else:
                results.append("lost")

        threads = [threading.Thread(target=one, args=(i * 100 + k,)) for k in range(8)]
        for t in threads:
            t.start()
        for _ in range(r.randrange(1, 9)):
            accepted.acquire()
        time.sleep(r.random() * 0.01)
        s.process.send_signal(signal.SIGTERM)
        if s.process.wait(60):
            lost += 1
        for t in threads:
            t.join()
        counts = collections.Counter(results)
        lost, answered, refused = lost + counts["lost"], answered + counts["answered"], refused + counts["refused"]
    print(f"{n} drains: {answered} answered in full, {refused} refused, {lost} lost")
    return lost == 0


def books(n):
    s = Server(ENGINE, "--parallel", "8", "--queue", "64", "--log", "soak.log")
    sums = [0, 0, 0]
    lock = threading.Lock()
    refused = [0]

    def one(i):
        r = random.Random(i)
        body = {"prompt": text(r, r.randrange(1, 60)), "max_tokens": r.randrange(1, 12), "temperature": r.random() * 2, "n": r.choice([1, 1, 2])}
        kind = r.randrange(4)
        if kind == 3:
            s.post("/v1/completions", {**body, "top_p": 3}, 400)
            with lock:
                refused[0] += 1
            return
        if kind == 0:
            usage = s.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}})[-2]["usage"]
        elif kind == 1:
            usage = s.post("/v1/completions", body)["usage"]
        else:
            usage = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": body.pop("prompt")}], **body})["usage"]
        with lock:
            sums[0] += usage["prompt_tokens"]
            sums[1] += usage["completion_tokens"]
            sums[2] += usage["prompt_tokens_details"]["cached_tokens"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(n)))
    m = s.wait_idle()
    got = [m["vllm:prompt_tokens_total"], m["vllm:generation_tokens_total"], m["llamacpp:prompt_tokens_cached_total"]]
    exit_code = s.stop()
    statuses = collections.Counter(json.loads(x)["status"] for x in open("soak.log") if '"POST"' in x)
    print(f"{n} requests: usage {sums}, counters {got}, log {dict(statuses)}; exit {exit_code}")
    return got == sums and statuses == {200: n - refused[0], 400: refused[0]}


def short(n):
    s = Server(ENGINE, "--parallel", "8", "--queue", "64")
    early = [None]
    errors = [0]
    body = b'{"prompt":"a","max_tokens":2,"temperature":0}'
    data = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    def client(k):
        f = s.connect()
        f.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        r = f.makefile("rb")
        for i in range(n // 8):
            f.sendall(data)
            status = r.readline()
            length = 0
            while (line := r.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            r.read(length)
            errors[0] += status != b"HTTP/1.1 200 OK\r\n"
            if k == 0 and i == n // 80:
                early[0] = rss_kb(s.process.pid)
        f.close()

    start = time.time()
    threads = [threading.Thread(target=client, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    late = rss_kb(s.process.pid)
    print(f"{n} short requests: {n / (time.time() - start):.0f} a second, {errors[0]} errors, RSS {early[0]} KB after a tenth, {late} KB at the end; "
          f"exit {s.stop()}")
    return not errors[0] and late - early[0] < 1024


def one_hash(n):
    hashes = [set() for _ in range(n)]
    bodies = [{"prompt": text(random.Random(i), 5 + 3 * i % 90), "max_tokens": 64, "ignore_eos": True, "seed": i, "temperature": 1.0, "logprobs": 0}
              for i in range(n)]
    runs = 0
    for chunk in (1, 64, 512):
        for threads in (1, 2):
            for tight in (False, True):  # few pages: requests give theirs back and are computed again
                args = ["--parallel", "32", "--chunk", str(chunk), "--threads", str(threads)]
                s = Server(ENGINE, *args, *(["--ctx", "320", "--kv-memory", "192K"] if tight else []))
                for concurrency in (1, 2, 8, 32):
                    for salt in (f"{concurrency}", f"{concurrency}"):  # new prefixes, then known ones
                        def one(i):
                            r = s.post("/v1/completions", {**bodies[i], "cache_salt": salt})["choices"][0]
                            return i, hashlib.sha256(json.dumps([r["text"], r["logprobs"]["tokens"], r["logprobs"]["token_logprobs"]]).encode()).hexdigest()

                        with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
                            for i, h in pool.map(one, range(n)):
                                hashes[i].add(h)
                        runs += 1
                preemptions = s.metrics()["vllm:num_preemptions_total"]
                s.stop()
                print(f"chunk {chunk}, {threads} threads, {'few' if tight else 'many'} pages ({preemptions:.0f} preemptions): "
                      f"{max(len(h) for h in hashes)} hash(es) a prompt", flush=True)
    print(f"{n} prompts, {runs} runs each: {sum(len(h) == 1 for h in hashes)} have one hash")
    return all(len(h) == 1 for h in hashes)


if __name__ == "__main__":
    what = {"resets": (resets, 10000), "drains": (drains, 200), "books": (books, 10000), "short": (short, 100000), "hash": (one_hash, 64)}
    f, usual = what[WHAT]
    sys.exit(0 if f(COUNT or usual) else 1)
