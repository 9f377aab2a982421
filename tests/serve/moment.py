#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of one server, by hand: moment.py start|pss|stall ENGINE

  start   from the start of the process to the first 200 of /health, median of 9 with the file in the page cache: below 20 ms
  pss     two processes of one file: the sum of their proportional set sizes over one's alone, at most 1.1 once both have answered
  stall   load.py stall beside prompts of 1,500 and 5,000 words, at the default --stretch
"""
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

from common import Server, read_all

WHAT, ENGINE = sys.argv[1], os.path.abspath(sys.argv[2])
GET = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def first_health():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    begin = time.monotonic()
    p = subprocess.Popen([ENGINE, "serve", "--listen", f"127.0.0.1:{port}"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as c:
                    c.sendall(GET)
                    if read_all(c).startswith(b"HTTP/1.1 200"):
                        return 1000 * (time.monotonic() - begin)
            except ConnectionRefusedError:
                time.sleep(0.0002)
    finally:
        p.terminate()
        p.wait()


def start():
    times = [first_health() for _ in range(10)][1:]
    print(f"{statistics.median(times):.1f} ms from the process's start to /health (at most {max(times):.1f})")
    return statistics.median(times) < 20


def pss_kb(pid):
    for row in open(f"/proc/{pid}/smaps_rollup"):
        if row.startswith("Pss:"):
            return int(row.split()[1])
    raise RuntimeError("no Pss")


def pss():
    body = {"prompt": "The capital of France is", "max_tokens": 32, "temperature": 0}
    one = Server(ENGINE, name="one")
    one.post("/v1/completions", body)
    alone = pss_kb(one.process.pid)
    two = Server(ENGINE, name="two")
    two.post("/v1/completions", body)
    both = pss_kb(one.process.pid) + pss_kb(two.process.pid)
    codes = one.stop(), two.stop()
    print(f"one process {alone} KB, two {both} KB: {both / alone:.3f} times one; exit {codes}")
    return both <= 1.1 * alone and codes == (0, 0)


def stall():
    s = Server(ENGINE, "--parallel", "4", name="stall")
    load = str(pathlib.Path(__file__).resolve().parent / "load.py")
    for words in ("1500", "5000"):
        subprocess.run([sys.executable, load, str(s.port), "stall", words], check=True)
    return s.stop() == 0


if __name__ == "__main__":
    sys.exit(0 if {"start": start, "pss": pss, "stall": stall}[WHAT]() else 1)
