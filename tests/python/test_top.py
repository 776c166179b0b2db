# SPDX-License-Identifier: MIT
"""`gpushmctl top`: its pages on a terminal and in a pipe, and its lines of JSON."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from daemon import BUILD, Daemon

pyte = pytest.importorskip("pyte")

CTL = str(BUILD / "gpushmctl")
DEADLINE = 60.0  # to fail rather than to hang, never to be right


class Terminal:
    """A process on a pseudo-terminal, and what a user sees there."""

    def __init__(self, lines: int, columns: int, *args: str, program: str = CTL, **env: str) -> None:
        self.master, slave = pty.openpty()
        self.resize(lines, columns, tell=False)
        self.before = termios.tcgetattr(slave)
        self.env = os.environ | {"TERM": "xterm-256color"} | env
        for name in ("COLUMNS", "LINES", "NO_COLOR", "GPUSHM_RECONNECT_MS"):
            if name not in env:
                self.env.pop(name, None)
        self.slave = slave
        self.written = b""
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.process = subprocess.Popen(
            [program, *args], stdin=slave, stdout=slave, stderr=slave, env=self.env, preexec_fn=self._control
        )

    @staticmethod
    def _control() -> None:
        """The terminal becomes that of a session of its own: then Ctrl-C and Ctrl-Z make signals."""
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, lines: int, columns: int, *, tell: bool = True) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if tell:
            self.screen.resize(lines, columns)

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        os.write(self.master, b"\003")
        assert self.process.wait(DEADLINE) == -signal.SIGINT

    def read(self, seconds: float) -> bool:
        """Takes what is there, or comes until then. False: nobody has the other end open, and all was taken."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:  # EIO
            return False
        self.written += data
        self.stream.feed(data)
        return True

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def until(self, seen: Callable[[str], bool]) -> str:
        """Reads until the screen looks like that."""
        end = time.monotonic() + DEADLINE
        while not seen(self.text):
            assert time.monotonic() < end, f"not seen:\n{self.text}"
            self.read(0.2)
        return self.text

    def shows(self, *texts: str) -> str:
        return self.until(lambda seen: all(text in seen for text in texts))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._release()
        os.close(self.master)

    def _release(self) -> None:
        if self.slave >= 0:
            os.close(self.slave)
        self.slave = -1


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    d = Daemon("[pool host]\nkind=host\nsize=1G\n")
    try:
        yield d
    finally:
        d.remove()


@pytest.fixture
def open_terminal(daemon: Daemon) -> Iterator[Callable[..., Terminal]]:
    """Terminals with `gpushmctl top` on that daemon."""
    terminals: list[Terminal] = []

    def start(lines: int = 24, columns: int = 100, *args: str, **env: str) -> Terminal:
        terminals.append(Terminal(lines, columns, "--socket", daemon.socket, "top", "--delay=0.1", *args, **env))
        return terminals[-1]

    yield start
    for t in terminals:
        t.close()


def ctl(daemon: Daemon, *args: str) -> str:
    done = subprocess.run([CTL, "--socket", daemon.socket, *args], capture_output=True, text=True, check=True)
    return done.stdout


def make(daemon: Daemon, **sizes: int) -> None:
    for name, size in sizes.items():
        ctl(daemon, "create", "-q", f"--size={size}", name.replace("__", "/"))


# ---- on a terminal ----


def test_a_page_takes_the_place_of_the_one_before(daemon: Daemon, open_terminal: Callable[..., Terminal]) -> None:
    make(daemon, big=64 << 20, small=1, m__x=4096)
    t = open_terminal(30, 120)
    seen = t.shows("gpushmd", "PENDING", "CONNECTIONS", "NAME", "every 0.", "small")
    assert seen.index("big") < seen.index("m/x") < seen.index("small")
    make(daemon, larger=128 << 20)
    seen = t.shows("larger", "4 buffers", "small")
    assert seen.index("larger") < seen.index("big")
    ctl(daemon, "rm", "big")
    t.until(lambda seen: "3 buffers" in seen and "small" in seen and "big" not in seen)
    t.interrupt()


def test_a_page_fits_the_size_of_the_terminal(daemon: Daemon, open_terminal: Callable[..., Terminal]) -> None:
    make(daemon, **{f"a_rather_long_name_of_a_buffer_{i:03}": 4096 for i in range(30)})
    t = open_terminal(24, 80)
    t.shows("gpushmd", "NAME", "RATE", "more")
    t.resize(60, 300)
    t.until(lambda seen: "buffer_000" in seen and "buffer_029" in seen and "more" not in seen)
    t.interrupt()


def test_odd_characters_in_a_name_are_escaped(daemon: Daemon, open_terminal: Callable[..., Terminal]) -> None:
    names = ["漢字/модель", "e\u0301clair", "zero\u200bwidth", "right\u202eleft"]
    for name in names:
        ctl(daemon, "create", "-q", "--size=1", name)
    t = open_terminal(24, 160, LC_ALL="C")
    t.shows("zero\\xe2\\x80\\x8bwidth", "right\\xe2\\x80\\xaeleft", "модель")
    assert "\u202e" not in t.text


def test_colours_are_used_unless_no_color_is_set(daemon: Daemon, open_terminal: Callable[..., Terminal]) -> None:
    make(daemon, x=1)
    t = open_terminal()
    t.shows("NAME", "shared")
    assert b"\033[32m" in t.written  # a buffer is published: green
    t = open_terminal(NO_COLOR="1")
    t.shows("NAME", "shared")
    assert not any(f"\033[3{i}m".encode() in t.written for i in range(8))


def test_top_goes_on_with_a_restarted_daemon(daemon: Daemon, open_terminal: Callable[..., Terminal]) -> None:
    make(daemon, before=1)
    t = open_terminal()
    t.shows("before")
    daemon.kill()
    daemon.start()
    make(daemon, after=1)
    t.until(lambda text: "after" in text and "1 buffer," in text)


def test_top_ends_with_its_terminal(open_terminal: Callable[..., Terminal]) -> None:
    t = open_terminal()
    t.shows("gpushmd")
    os.close(t.slave)
    os.close(t.master)
    t.process.wait(DEADLINE)
    t.master, t.slave = pty.openpty()


def test_a_terminal_without_a_cursor_gets_page_after_page(open_terminal: Callable[..., Terminal]) -> None:
    t = open_terminal(TERM="dumb")
    t.until(lambda _: t.written.count(b"every ") > 1)
    assert b"\033" not in t.written


# ---- scripts ----


def test_a_pipe_gets_page_after_page(daemon: Daemon) -> None:
    make(daemon, x=1)
    seen = ctl(daemon, "top", "--delay=0.1", "--count=2")
    assert seen.count("every 0.") == 2
    assert seen.count("HELD BY") == 2
    assert "\033" not in seen


def test_once_prints_and_filters(daemon: Daemon) -> None:
    make(daemon, m__large=1 << 20, m__small=1, other=4096)
    seen = ctl(daemon, "top", "--once", "--delay=0")
    listed = seen[seen.index("NAME ") :]
    assert listed.index("m/large") < listed.index("other") < listed.index("m/small")
    assert "PENDING" in seen
    assert "CONNECTIONS" in seen
    assert "requests -/s" in seen
    assert "\033" not in seen
    seen = ctl(daemon, "top", "--once", "--delay=0.1", "m/")
    listed = seen[seen.index("NAME ") :]
    assert listed.index("m/large") < listed.index("m/small")
    assert "other" not in seen
    assert "requests -/s" not in seen
    seen = ctl(daemon, "top", "--once", "--delay=0", "--view=pools", "--user=daemon")
    assert "PENDING" in seen
    assert "NAME" not in seen


def test_lines_of_json_tell_buffers_and_rates(daemon: Daemon) -> None:
    make(daemon, x=4096, y=1)
    p = subprocess.Popen(
        [CTL, "--socket", daemon.socket, "top", "--json", "--delay=0.1"], stdout=subprocess.PIPE, text=True
    )
    assert p.stdout is not None
    line = json.loads(p.stdout.readline())
    assert [b["name"] for b in line["buffers"]] == ["x", "y"]
    assert line["daemon"]["buffers"] == 2
    assert line["pools"][0]["bytes_per_second"] == 0
    ctl(daemon, "get", "-q", "x", "/dev/null")
    opens = 0.0
    while not opens:
        line = json.loads(p.stdout.readline())
        opens = line["buffers"][0]["opens_per_second"] * line["seconds"]
    assert opens == pytest.approx(1, abs=0.01)
    assert line["daemon"]["opens_per_second"] * line["seconds"] == pytest.approx(1, abs=0.01)
    p.stdout.close()  # as `| head` does
    assert p.wait(DEADLINE) in (1, -signal.SIGPIPE)
    lines = ctl(daemon, "top", "--json", "--delay=0.1", "--count=3", "--user=0").splitlines()
    assert len(lines) == 3
    assert json.loads(lines[0])["daemon"]["requests_per_second"] > 0
    assert json.loads(ctl(daemon, "top", "--json", "--once", "--delay=0"))["seconds"] is None


def test_a_process_that_holds_a_buffer_is_listed(daemon: Daemon) -> None:
    make(daemon, x=4096)
    with subprocess.Popen(
        [CTL, "--socket", daemon.socket, "hold", "--write", "x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        line = json.loads(ctl(daemon, "top", "--json", "--once", "--delay=0"))
        seen = ctl(daemon, "top", "--once", "--delay=0")
        holder.communicate()
    (process,) = line["processes"]
    assert (process["pid"], process["buffers"], process["writes"]) == (holder.pid, 1, 1)
    assert f"gpushmctl {holder.pid}" in seen


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--delay=0"], "0.1 to 3600"),
        (["--delay=2h", "--once"], "0.1 to 3600"),
        (["--once", "--user=nobody knows"], "no user"),
        (["--once", "--view=colour"], "is not one of"),
        (["a", "b"], "too many words"),
    ],
)
def test_a_wrong_option_is_refused(daemon: Daemon, args: list[str], reason: str) -> None:
    done = subprocess.run([CTL, "--socket", daemon.socket, "top", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert reason in done.stderr
