# SPDX-License-Identifier: MIT
"""`gpushmctl top` on a terminal: what is on its screen, what keys do, and how it leaves the terminal."""

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


def has_screen() -> bool:
    """Whether it was built with ncurses, and finds the library."""
    master, slave = pty.openpty()
    env = os.environ | {"TERM": "xterm", "GPUSHM_SOCKET": "/nonexistent/s", "GPUSHM_RECONNECT_MS": "0"}
    done = subprocess.run([CTL, "top"], stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=env, check=False)
    os.close(master)
    os.close(slave)
    return b"ncurses" not in done.stderr


needs_screen = pytest.mark.skipif(not has_screen(), reason="gpushmctl has no ncurses")


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
            self.process.send_signal(signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

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

    def ends(self) -> int:
        """Its status; the terminal must be as it was, the cursor visible, the alternate screen left."""
        end = time.monotonic() + DEADLINE
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it goes on:\n{self.text}"
            self.read(0.05)
        self._release()
        while self.read(DEADLINE):  # a read returns 4 KiB at most, and more may be on the way
            assert time.monotonic() < end, "the terminal is still open"
        self.is_restored()
        return self.process.returncode

    def is_restored(self) -> None:
        # Linux replies with the settings of the other end, which need not be open.
        assert termios.tcgetattr(self.master) == self.before
        assert self.written.rfind(b"\033[?1049l") > self.written.rfind(b"\033[?1049h")
        assert self.written.rfind(b"\033[?25h") >= self.written.rfind(b"\033[?25l")

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


# ---- the screen ----


@needs_screen
def test_the_screen_follows_the_daemon(daemon: Daemon, open_terminal: Callable[..., Terminal]) -> None:
    make(daemon, big=64 << 20, small=1, m__x=4096)
    t = open_terminal()
    seen = t.shows("gpushmd", "host [", "NAME", "every 0.")
    assert seen.index("big") < seen.index("m/x") < seen.index("small")
    assert b"\033[?25l" in t.written  # no cursor
    make(daemon, larger=128 << 20)
    seen = t.shows("larger", "4 buffers")
    assert seen.index("larger") < seen.index("big")
    ctl(daemon, "rm", "big")
    t.until(lambda seen: "3 buffers" in seen and "big" not in seen)
    subprocess.run([CTL, "--socket", daemon.socket, "get", "-q", "small", "/dev/null"], check=True)
    t.press("q")
    assert t.ends() == 0


@needs_screen
def test_keys_move_and_switch_views(daemon: Daemon, open_terminal: Callable[..., Terminal]) -> None:
    make(daemon, big=1 << 20, small=1, middle=4096)
    t = open_terminal()
    seen = t.shows("q quit", "[1 Buffers: 3]")
    assert seen.index("big") < seen.index("middle") < seen.index("small")
    t.press("\t")
    t.shows("[2 Processes: 0]", "COMMAND")
    t.press("4")
    t.shows("[4 Pools: 1]", "PENDING")
    t.press("\033[Z")  # back tab
    t.shows("[3 Users: 1]", "CONNECTIONS")
    t.resize(6, 100)
    t.press("1")
    t.until(lambda seen: "big" in seen and "small" not in seen)
    t.press("\033OB")  # down
    t.until(lambda seen: "small" in seen and "big" not in seen)
    t.press("q")
    assert t.ends() == 0


@needs_screen
def test_the_screen_follows_the_size_of_the_terminal(daemon: Daemon, open_terminal: Callable[..., Terminal]) -> None:
    make(daemon, **{f"a_rather_long_name_of_a_buffer_{i:03}": 4096 for i in range(30)})
    t = open_terminal(5, 20)
    t.shows("NAME")
    t.resize(24, 300)
    t.shows("HELD BY", "a_rather_long_name_of_a_buffer_013", "q quit")
    t.resize(1, 1)
    t.resize(40, 80)
    t.shows("fer_029", "RATE", "q quit")
    t.press("\033[6~\033[6~")  # page down
    t.press("q")
    assert t.ends() == 0


@needs_screen
def test_odd_characters_in_a_name_are_escaped(daemon: Daemon, open_terminal: Callable[..., Terminal]) -> None:
    names = ["漢字/модель", "e\u0301clair", "zero\u200bwidth", "right\u202eleft"]
    for name in names:
        ctl(daemon, "create", "-q", "--size=1", name)
    t = open_terminal(24, 160, LC_ALL="C")
    t.shows("zero\\xe2\\x80\\x8bwidth", "right\\xe2\\x80\\xaeleft", "модель")
    assert "\u202e" not in t.text
    t.press("\003")  # Ctrl-C
    assert t.ends() == -signal.SIGINT


@needs_screen
def test_colours_are_used_unless_no_color_is_set(daemon: Daemon, open_terminal: Callable[..., Terminal]) -> None:
    make(daemon, x=1)
    t = open_terminal()
    t.shows("q quit")
    assert b"\033[32m" in t.written  # a buffer is published: green
    t = open_terminal(NO_COLOR="1")
    t.shows("q quit")
    assert not any(f"\033[3{i}m".encode() in t.written for i in range(8))


# ---- the end ----


@needs_screen
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_restores_the_terminal(open_terminal: Callable[..., Terminal], number: signal.Signals) -> None:
    t = open_terminal()
    t.shows("q quit")
    t.process.send_signal(number)
    assert t.ends() == -number


@needs_screen
def test_a_stopped_top_gives_the_terminal_back(daemon: Daemon) -> None:
    make(daemon, x=1)
    # Only the job of a shell can be stopped: a session's leader has nobody who would continue it.
    job = '"$0" "$@"; echo "left with $?"; read -r; fg > /dev/null; echo "left with $?"'
    t = Terminal(24, 100, "-mc", job, CTL, "--socket", daemon.socket, "top", "--delay=0.1", program="bash")
    t.shows("q quit")
    t.press("\032")  # Ctrl-Z
    t.shows(f"left with {128 + signal.SIGTSTP}")
    t.is_restored()
    make(daemon, later=1)
    t.press("\n")
    t.shows("q quit", "later")
    t.press("q")
    t.shows("left with 0")
    assert t.ends() == 0
    t.close()


@needs_screen
def test_the_screen_survives_the_death_of_the_daemon(daemon: Daemon, open_terminal: Callable[..., Terminal]) -> None:
    make(daemon, before=1)
    t = open_terminal()
    t.shows("before")
    daemon.kill()
    t.shows("trying again")
    t.press("4")
    t.shows("[4 Pools: 1]")
    t.press("1")
    daemon.start()
    make(daemon, after=1)
    t.until(lambda text: "after" in text and "1 buffer," in text and "trying again" not in text)
    # A daemon that does not reply at all.
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    t.shows("the daemon has not replied", "is stopped")
    t.press("q")
    status = t.ends()
    daemon.process.send_signal(signal.SIGCONT)
    assert status == 0


@needs_screen
def test_top_ends_with_its_terminal(open_terminal: Callable[..., Terminal]) -> None:
    t = open_terminal()
    t.shows("q quit")
    os.close(t.slave)
    os.close(t.master)
    t.process.wait(DEADLINE)
    t.master, t.slave = pty.openpty()


@needs_screen
@pytest.mark.parametrize(
    ("term", "reason"), [("no-such-terminal", "not known"), ("dumb", "no terminal"), ("", "no terminal")]
)
def test_an_unknown_terminal_is_refused(open_terminal: Callable[..., Terminal], term: str, reason: str) -> None:
    t = open_terminal(TERM=term)
    t.until(lambda _: reason in t.written.decode())
    assert t.process.wait(DEADLINE) in (1, 2)
    assert b"\033" not in t.written


def test_a_pipe_is_refused_with_a_hint_to_the_once_option(daemon: Daemon) -> None:
    done = subprocess.run([CTL, "--socket", daemon.socket, "top"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--once" in done.stderr
    assert not done.stdout


# ---- scripts ----


def test_once_prints_and_filters_as_the_screen(daemon: Daemon) -> None:
    make(daemon, m__large=1 << 20, m__small=1, other=4096)
    seen = ctl(daemon, "top", "--once", "--delay=0")
    listed = seen[seen.index("NAME ") :]
    assert listed.index("m/large") < listed.index("other") < listed.index("m/small")
    assert "host [" in seen
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
