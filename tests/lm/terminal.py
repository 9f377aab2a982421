#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: terminal.py ENGINE      Talks to `ENGINE chat` on a pseudo terminal.

Editing keys, Ctrl-C during an answer (ends it, not the program), history, and that the terminal is as it was afterwards.
"""
import fcntl
import os
import pty
import re
import select
import sys
import termios
import time

F_SETPIPE_SZ, F_GETPIPE_SZ = 1031, 1032
WRITE_TO_1 = "1 0x1 "  # /proc/PID/syscall on x86-64


class Terminal:
    def __init__(self, words, stdout=None):
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            for fd in (0, 1, 2):
                os.dup2(self.slave, fd)
            if stdout is not None:
                os.dup2(stdout, 1)
            os.execv(words[0], words)
        self.seen = ""

    def wait_for(self, pattern, seconds=60):
        """Reads until the pattern is there; what was read up to its end is used up."""
        end = time.monotonic() + seconds
        while True:
            m = re.search(pattern, self.seen)
            if m:
                before, self.seen = self.seen[:m.end()], self.seen[m.end():]
                return before
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                sys.exit(f"no {pattern!r} in {self.seen!r}")
            try:
                self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
            except OSError:
                sys.exit(f"ended before {pattern!r}: {self.seen!r}")

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self):
        """Ctrl-D; the program must say that all is right and leave the terminal as it was."""
        self.type("\x04")
        status = os.waitpid(self.pid, 0)[1]
        if status != 0:
            sys.exit(f"status {status}")
        if termios.tcgetattr(self.slave) != self.before:
            sys.exit("the terminal was left in another mode")


def edit(words):
    t = Terminal(words)
    t.wait_for("/help lists commands")
    t.wait_for("> ")
    t.type("/sat\x1b[D\x1b[Dt\x05s\r")  # /stats, typed with a detour
    t.wait_for(r"\[0 messages; context of 512 tokens")
    t.wait_for("> ")
    t.type("the robot\r")  # an answer without end
    t.wait_for("\r\n")
    time.sleep(0.3)
    t.type("\x03")
    t.wait_for(r"\[stopped\]")
    t.wait_for("> ")
    t.type("abc\x03")  # gives the line up
    t.wait_for("> ")
    t.type("\x1b[A\x1b[A\x1b[B\x01\x0b/show\r")  # up, up, down; delete it; another command
    t.wait_for("user: the robot")
    t.wait_for("assistant: ")
    t.wait_for("> ")
    t.end()


def stop_a_blocked_write(words):
    """Ctrl-C while the answer goes to a pipe that is full: the write must go on afterwards, it has not failed."""
    read, write = os.pipe()
    fcntl.fcntl(write, F_SETPIPE_SZ, 4096)
    os.write(write, bytes(fcntl.fcntl(write, F_GETPIPE_SZ)))
    t = Terminal(words, stdout=write)
    os.close(write)
    t.wait_for("> ")
    t.type("the robot\r")
    while not open(f"/proc/{t.pid}/syscall").read().startswith(WRITE_TO_1):
        time.sleep(0.01)
    t.type("\x03")
    time.sleep(0.1)
    os.read(read, 65536)
    t.wait_for(r"\[stopped\]")
    t.wait_for("> ")
    t.end()


def main(engine):
    words = [engine, "chat", "--seed", "1", "--ignore-eos", "--ctx", "512", "--on-full=slide"]
    edit(words)
    if os.access("/proc/self/syscall", os.R_OK):
        stop_a_blocked_write(words)


if __name__ == "__main__":
    main(sys.argv[1])
