# SPDX-License-Identifier: MIT
"""Machines on one switch: network namespaces, joined by a bridge.

The process that imports this and calls enter() moves into a namespace of its own, which holds the
bridge. Each machine's namespace lives as long as a small process in it, and that process ends when
this one does, however it ends: the kernel then removes the namespaces with all their links.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
_PR_SET_PDEATHSIG = 1  # sys/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)
_PREFIX = "10.83"


def die_with_parent() -> None:
    """Ends this process when the tests are killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _ip(*commands: str) -> None:
    """Gives commands to one ip(8)."""
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True, capture_output=True)


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def enter() -> str:
    """Moves this process into a namespace with a bridge. Returns "", or in a few words why there is none."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for program in ("ip", "tc", "nsenter"):
        if shutil.which(program) is None:
            return f"no {program}"
    try:
        if os.geteuid() == 0:
            _unshare(_CLONE_NEWNET)
        else:
            uid, gid = os.geteuid(), os.getegid()
            os.environ["LOGNAME"] = str(uid)  # not root, whose folder in /tmp pytest would take
            _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        _ip("link set lo up", "link add br0 type bridge", f"addr add {_PREFIX}.255.254/16 dev br0", "link set br0 up")
    except OSError as e:
        return f"no network namespaces: {e.strerror}"
    except subprocess.CalledProcessError as e:
        return f"no bridge: {e.stderr.strip()}"
    return ""


def has_netem() -> bool:
    """Whether the kernel has the scheduler that delays packets."""
    done = subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"], capture_output=True)
    if done.returncode == 0:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
    return done.returncode == 0


def can_delay() -> bool:
    """Whether a machine can have a delay."""
    return has_netem() or os.access("/dev/net/tun", os.R_OK | os.W_OK)


class Machine:
    """A namespace with an address. Its link has a delay of `delay_ms` each way; others can be set later."""

    _numbers = 0

    def __init__(self, *, delay_ms: float = 0) -> None:
        Machine._numbers += 1
        self.number = Machine._numbers
        self.name = f"n{self.number}"
        self.address = f"{_PREFIX}.{self.number // 250}.{self.number % 250 + 1}"
        self._port = f"port{self.number}"
        self._line: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[str]] = []
        # It ends with its standard input, so also when this process is killed.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat >/dev/null"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"\n"
        self._holder.stdout.close()
        if delay_ms and not has_netem():
            self._tap(delay_ms)
        else:
            _ip(f"link add {self._port} type veth peer name eth0 netns {self._holder.pid}")
            if delay_ms:
                self._both("netem", "delay", f"{delay_ms}ms", "limit", "100000")
        _ip(f"link set {self._port} master br0 up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "addr", "add", f"{self.address}/16", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def _tap(self, delay_ms: float) -> None:
        self._line = subprocess.Popen(
            [
                sys.executable,
                "-B",
                Path(__file__).with_name("delay_line.py"),
                self._port,
                f"/proc/{self._holder.pid}/ns/net",
                "eth0",
                str(delay_ms),
            ],
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        assert self._line.stdout is not None
        assert self._line.stdout.readline() == b"ready\n"

    def within(self, *command: object) -> list[str]:
        """The command line that runs this command in the machine."""
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--", *map(str, command)]

    def run(self, *command: object, check: bool = True, **options: object) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end. Its output is in the result, as text unless text=False."""
        options = {"text": True, "check": check, "capture_output": True} | options
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            self.within(*command), preexec_fn=die_with_parent, **options
        )

    def start(self, *command: object, **options: object) -> subprocess.Popen[str]:
        """Starts a command. remove() kills it if it still runs."""
        options.setdefault("text", True)
        process = subprocess.Popen(  # type: ignore[call-overload]
            self.within(*command), preexec_fn=die_with_parent, **options
        )
        self._started.append(process)
        return process  # type: ignore[no-any-return]

    def _both(self, *discipline: str) -> None:
        subprocess.run(["tc", "qdisc", "replace", "dev", self._port, "root", *discipline], check=True)
        self.run("tc", "qdisc", "replace", "dev", "eth0", "root", *discipline)

    def limit(self, *, up: str = "", down: str = "") -> None:
        """Sets the rate ("80mbit") of what the machine sends and receives; tc(8) has the units."""
        shape = ["tbf", "burst", "256kb", "latency", "50ms", "rate"]
        if up:
            self.run("tc", "qdisc", "replace", "dev", "eth0", "root", *shape, up)
        if down:
            subprocess.run(["tc", "qdisc", "replace", "dev", self._port, "root", *shape, down], check=True)

    def unlimit(self) -> None:
        """Takes limit() back."""
        self.run("tc", "qdisc", "del", "dev", "eth0", "root", check=False)
        subprocess.run(["tc", "qdisc", "del", "dev", self._port, "root"], capture_output=True)

    def lose(self, share: float) -> None:
        """Drops this share of the packets that the machine receives."""
        self.run("iptables", "-F", "INPUT")
        if share:
            match = ["-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", str(share)]
            self.run("iptables", "-A", "INPUT", *match, "-j", "DROP")

    def unplug(self) -> None:
        """Takes the cable out: nothing arrives, and nobody gets an error."""
        _ip(f"link set {self._port} nomaster")

    def plug(self) -> None:
        """Puts the cable back."""
        _ip(f"link set {self._port} master br0")

    def bytes_sent(self) -> int:
        """What the machine has sent over its link, with the headers of packets."""
        done = subprocess.run(["ip", "-j", "-s", "link", "show", self._port], check=True, capture_output=True)
        return int(json.loads(done.stdout)[0]["stats64"]["rx"]["bytes"])

    def remove(self) -> None:
        """Ends its programs and the namespace."""
        for process in self._started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        if self._line is not None:
            self._line.kill()
            self._line.wait()
            assert self._line.stdout is not None
            self._line.stdout.close()
        else:
            subprocess.run(["ip", "link", "del", self._port], capture_output=True)
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait()


def sent_by(machines: Sequence[Machine]) -> list[int]:
    """bytes_sent() of each."""
    return [m.bytes_sent() for m in machines]
