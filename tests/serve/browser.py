#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chat page in a real browser: usage: browser.py ENGINE [SCREENSHOT.png]

Drives a headless Chromium ($INFC_CHROMIUM, or `chromium` of the PATH) through the DevTools protocol over a pipe: types a message, sends
it, reads the answer out of the page, and compares it with what the API gives for the same messages. Skipped without a browser.
"""
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from common import Server, run_all, test


class Browser:
    """One page. DevTools messages are JSON texts that end with a NUL, on descriptors 3 (to it) and 4 (from it)."""

    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="browser.")
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        # High numbers first, so that neither dup2 below overwrites what the other still needs.
        high = [os.dup(to_read), os.dup(back_write)]
        while min(high) < 10:
            high = [os.dup(d) for d in high]

        def wire():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", "--window-size=900,700",
             "--user-data-dir=" + self.folder, "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(3, 4, *high), preexec_fn=wire)
        for d in (to_read, back_write, *high):
            os.close(d)
        self.n, self.rest, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def message(self):
        while b"\0" not in self.rest:
            got = os.read(self.back, 1 << 16)
            if not got:
                raise RuntimeError("the browser went away")
            self.rest += got
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.n += 1
        call = {"id": self.n, "method": method, "params": params}
        if self.session:
            call["sessionId"] = self.session
        os.write(self.to, json.dumps(call).encode() + b"\0")
        while True:
            m = self.message()
            if m.get("id") == self.n:
                if "error" in m:
                    raise RuntimeError(f"{method}: {m['error']}")
                return m["result"]
            self.events.append(m)

    def js(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in r:
            raise RuntimeError(str(r["exceptionDetails"]))
        return r["result"].get("value")

    def until(self, expression, seconds=60):
        end = time.time() + seconds
        while not self.js(expression):
            if time.time() > end:
                raise RuntimeError("never true: " + expression)
            time.sleep(0.02)

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


ENGINE = os.path.abspath(sys.argv[1])
SHOT = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else "chat.png")
PROGRAM = os.environ.get("INFC_CHROMIUM") or shutil.which("chromium")


def say(b, text):
    """Types a message, presses Enter, waits for the answer's end; all that stands in the log."""
    b.js("document.getElementById('text').focus()")
    b.call("Input.insertText", text=text)
    for kind in ("keyDown", "keyUp"):
        b.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r" if kind == "keyDown" else "")
    b.until("document.getElementById('send').disabled || document.querySelectorAll('.m').length > 0")
    b.until("!document.getElementById('send').disabled")
    return b.js("[...document.querySelectorAll('.m')].map(d => [d.className, d.textContent])")


def answer(s, messages, tokens):
    got = s.post("/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "temperature": 0})
    return got["choices"][0]["message"]["content"]


@test
def conversation():
    s, b = Server(ENGINE), None
    try:
        b = Browser(PROGRAM)
        b.call("Page.navigate", url=f"http://127.0.0.1:{s.port}/")
        b.until("!!document.getElementById('form')")
        b.js("document.getElementById('temperature').value = 0; document.getElementById('tokens').value = 12")
        # Markup in a message must be shown, not become part of the page.
        first = "Hello <img src=x onerror='document.title=1'> & goodbye"
        log = say(b, first)
        want = answer(s, [{"role": "user", "content": first}], 12)
        assert log == [["m user", first], ["m assistant", want]], (log, want)
        assert b.js("document.querySelectorAll('#log img').length") == 0
        assert b.js("document.title") == "chat"
        # The second turn sends the first one with it.
        log = say(b, "again")
        turns = [{"role": "user", "content": first}, {"role": "assistant", "content": want}, {"role": "user", "content": "again"}]
        assert log[2:] == [["m user", "again"], ["m assistant", answer(s, turns, 12)]], log
        with open(SHOT, "wb") as f:
            f.write(base64.b64decode(b.call("Page.captureScreenshot", format="png")["data"]))
        # An error is shown in the server's words, and the conversation goes on without the message.
        b.js("document.getElementById('temperature').value = -1")
        log = say(b, "below zero")
        assert log[-1][0] == "m error" and "temperature" in log[-1][1], log
        b.js("document.getElementById('clear').click()")
        assert b.js("document.querySelectorAll('.m').length") == 0
        asked = [e["params"]["request"]["url"] for e in b.events if e.get("method") == "Network.requestWillBeSent"]
        assert asked and all(u.startswith(f"http://127.0.0.1:{s.port}/") for u in asked), asked
        wrong = [e for e in b.events if e.get("method") == "Runtime.exceptionThrown"]
        assert not wrong, wrong
    finally:
        if b:
            b.close()
        assert s.stop() == 0


if __name__ == "__main__":
    if not PROGRAM:
        print("skip browser-conversation: no chromium (apt-get install chromium)")
        sys.exit(0)
    sys.exit(run_all("browser-"))
