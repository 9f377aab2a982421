#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An engine beside llama.cpp's server, the same model, threads and slots, in turns: by hand.

  compare.py ENGINE LLAMA_SERVER MODEL.gguf streams N [ROUNDS [SECONDS]]   N clients that ask again when they have their answer
  compare.py ENGINE LLAMA_SERVER MODEL.gguf overload [SECONDS]             requests at ten times the rate that 16 streams reach

Each round starts one server, warms it up, loads it with load.py for SECONDS (10) and stops it, then the other. Medians over the rounds (3):
tokens a second of all streams, and the 99th percentile of the time between the tokens of a stream. CPU time that the client takes is
the servers' loss, alike for both.
"""
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

LOAD = str(pathlib.Path(__file__).resolve().parent / "load.py")
ENGINE, PEER, MODEL, WHAT = sys.argv[1:5]
THREADS = len(os.sched_getaffinity(0))
CONTEXT = 512  # of each slot: prompts of some 80 tokens, answers of 64


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def command(which, port, slots, queue):
    if which == "infc":
        return [os.path.abspath(ENGINE), "serve", "--listen", f"127.0.0.1:{port}", "--parallel", str(slots), "--ctx", str(CONTEXT),
                "--threads", str(THREADS), "--queue", str(queue)]
    return [os.path.abspath(PEER), "--host", "127.0.0.1", "--port", str(port), "--model", MODEL, "--parallel", str(slots),
            "--ctx-size", str(CONTEXT * slots), "--threads", str(THREADS), "--threads-batch", str(THREADS), "--no-webui"]


class Running:
    def __init__(self, which, slots, queue=1024):
        self.port = free_port()
        self.process = subprocess.Popen(command(which, self.port, slots, queue), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(1200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5)
                return
            except OSError:
                if self.process.poll() is not None:
                    sys.exit(f"{which} does not start: exit code {self.process.returncode}")
                time.sleep(0.05)
        sys.exit(f"{which} is not ready after a minute")

    def load(self, *args):
        out = subprocess.run([sys.executable, LOAD, str(self.port), *map(str, args)], capture_output=True, text=True, check=True)
        return json.loads(out.stdout)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def measure(which, streams, seconds):
    s = Running(which, streams)
    s.load("closed", streams, 1)
    out = s.load("closed", streams, seconds)
    s.stop()
    assert not out["refused"] and not out["other"], out
    return out


def compare_streams(streams, rounds, seconds):
    got = {"infc": [], "llama-server": []}
    for i in range(rounds):
        for which in sorted(got, reverse=i % 2):  # who is first changes
            got[which].append(measure(which, streams, seconds))
            print(json.dumps({"server": which, **got[which][-1]}), flush=True)
    rate, late = ({w: statistics.median(x[k] for x in v) for w, v in got.items()} for k in ("tokens_s", "between_ms_p99"))
    print(f"| {streams} | {rate['infc']:.0f} | {rate['llama-server']:.0f} | {rate['infc'] / rate['llama-server']:.2f}x | {late['infc']:.1f} ms | {late['llama-server']:.1f} ms |")


def overload(seconds):
    s = Running("infc", 16, queue=64)
    s.load("closed", 16, 1)
    peak = s.load("closed", 16, seconds)["tokens_s"]
    at = s.load("open", 10 * peak / 64, seconds)
    s.stop()
    print(json.dumps(at))
    print(f"| peak {peak:.0f} tokens/s, at ten times the rate {at['tokens_s']:.0f} ({100 * at['tokens_s'] / peak:.0f}%), {at['refused']} refused, {at['other']} lost |")


if WHAT == "streams":
    compare_streams(int(sys.argv[5]), int(sys.argv[6]) if len(sys.argv) > 6 else 3, float(sys.argv[7]) if len(sys.argv) > 7 else 10)
else:
    overload(float(sys.argv[5]) if len(sys.argv) > 5 else 10)
