#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load on a server that speaks OpenAI's protocol, over loopback, bounded in count and time.

  load.py PORT closed STREAMS SECONDS     so many clients, each asks again when it has its answer
  load.py PORT open RATE SECONDS          requests arrive at random, RATE a second, whatever the server does
  load.py PORT stall WORDS                an answer's inter-token times alone, and while a prompt of WORDS words is computed

Prompts are about 60 words, answers 64 tokens. One line of JSON.
"""
import json
import random
import socket
import sys
import threading
import time

PORT, WHAT = int(sys.argv[1]), sys.argv[2]
WORDS = ("time year people way day man thing woman life child world school state family student group country problem hand part place case week "
         "company system program question work government number night point home water room mother area money story fact month lot right study").split()


def prompt(r, n):
    return " ".join(r.choice(WORDS) for _ in range(n))


def ask(text, tokens, times, stop=lambda: False):
    """The status; the clock of each piece goes to times."""
    body = json.dumps({"prompt": text, "max_tokens": tokens, "stream": True, "temperature": 0, "ignore_eos": True}).encode()
    s = socket.create_connection(("127.0.0.1", PORT))
    s.settimeout(300)
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    f = s.makefile("rb")
    status = int(f.readline().split()[1])
    for line in f:
        if line.startswith(b"data: {") and b'"text":""' not in line and b'"choices":[]' not in line:
            times.append(time.monotonic())
        if line.startswith(b"data: [DONE]") or stop():
            break
    s.close()
    return status


def percentile(v, p):
    v = sorted(v)
    return v[min(len(v) - 1, int(p * len(v)))] if v else 0.0


def report(answers, seconds, **more):
    """answers: (begin, times, status)"""
    done = [a for a in answers if a[2] == 200]
    between = [b - a for _, t, _ in done for a, b in zip(t, t[1:])]
    first = [t[0] - begin for begin, t, _ in done if t]
    print(json.dumps({"requests": len(answers), "refused": sum(1 for a in answers if a[2] == 429), "other": sum(1 for a in answers if a[2] not in (200, 429)),
                      "tokens_s": round(sum(len(t) for _, t, _ in done) / seconds, 1), "ttft_ms_p50": round(1e3 * percentile(first, 0.5), 1),
                      "ttft_ms_p99": round(1e3 * percentile(first, 0.99), 1), "between_ms_p50": round(1e3 * percentile(between, 0.5), 2),
                      "between_ms_p99": round(1e3 * percentile(between, 0.99), 2), **more}))


def closed(streams, seconds):
    answers, end = [], time.monotonic() + seconds

    def client(k):
        r = random.Random(k)
        while time.monotonic() < end:
            times, begin = [], time.monotonic()
            status = ask(prompt(r, 60), 64, times, lambda: time.monotonic() > end)
            answers.append((begin, [t for t in times if t <= end], status))

    threads = [threading.Thread(target=client, args=(k,)) for k in range(streams)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    report(answers, seconds, streams=streams)


def opened(rate, seconds):
    answers, threads, r = [], [], random.Random(1)
    start = time.monotonic()
    at = start
    while at < start + seconds and len(threads) < 5000:
        at += r.expovariate(rate)
        time.sleep(max(0, at - time.monotonic()))

        def one(text=prompt(r, 60)):
            times, begin = [], time.monotonic()
            try:
                status = ask(text, 64, times)
            except OSError:
                status = 0
            answers.append((begin, times, status))

        threads.append(threading.Thread(target=one))
        threads[-1].start()
    for t in threads:
        t.join()
    report(answers, time.monotonic() - start, rate=rate)


def stall(words):
    """One answer that goes on until the prompt is computed; alone it has 600 tokens."""
    r = random.Random(7)
    text = prompt(r, 20)

    def answer(n, stop=lambda: False):
        times = []
        ask(text, n, times, stop)
        return [b - a for a, b in zip(times, times[1:])]

    alone = answer(600)
    begin, solo = time.monotonic(), []
    ask(prompt(r, words), 1, solo)
    solo_s = solo[0] - begin
    long_s = [0.0]

    def long_prompt():
        time.sleep(0.3)
        times, t = [], time.monotonic()
        ask(prompt(r, words), 1, times)
        long_s[0] = times[0] - t

    thread = threading.Thread(target=long_prompt)
    thread.start()
    beside = answer(7000, lambda: long_s[0] > 0)[50:]  # those before it came
    thread.join()
    print(json.dumps({"words": words, "alone_ms_p50": round(1e3 * percentile(alone, 0.5), 2), "alone_ms_p99": round(1e3 * percentile(alone, 0.99), 2),
                      "beside_ms_p50": round(1e3 * percentile(beside, 0.5), 2), "beside_ms_p99": round(1e3 * percentile(beside, 0.99), 2),
                      "prefill_alone_s": round(solo_s, 2), "prefill_beside_s": round(long_s[0], 2), "prefill_share": round(solo_s / long_s[0], 2)}))


if WHAT == "closed":
    closed(int(sys.argv[3]), float(sys.argv[4]))
elif WHAT == "open":
    opened(float(sys.argv[3]), float(sys.argv[4]))
else:
    stall(int(sys.argv[3]))
