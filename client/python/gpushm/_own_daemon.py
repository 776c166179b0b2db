# SPDX-License-Identifier: MIT
"""A daemon of this user, which a program starts where none runs. It needs no session, and outlives the program."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import _core

_READY = 60.0  # seconds until a daemon that starts must reply: a GPU's driver takes some
# What the program's supervisor tells the program, and not its children.
_SUPERVISOR = ("NOTIFY_", "WATCHDOG_", "LISTEN_", "FDSTORE")


def ensure() -> None:
    """Starts gpushmd, where clients look for a daemon of this user, unless a daemon replies. Says so on stderr. Of
    several processes that call this at once one starts it.

    DaemonGone: there is no gpushmd, or it does not start.
    """
    if _gone() is None:
        return
    with _log() as log:
        gone = _gone()
        if gone is None:
            return
        said_before = os.path.getsize(log)
        pid = _start(gone, log)
        _wait(pid, log, said_before)
    print(
        f"gpushm: no daemon ran: started gpushmd, pid {pid}, log {log}. It stays, with what is published: kill {pid} "
        "ends it",
        file=sys.stderr,
    )


def _gone() -> _core.DaemonGone | None:
    """The error of a request; None: a daemon replies."""
    try:
        _core.status()
    except _core.DaemonGone as error:
        return error
    return None


@contextmanager
def _log() -> Iterator[str]:
    """The path of the log, in a folder that is there without a session. Its lock is held in the block."""
    path = f"/tmp/gpushmd-{os.geteuid()}.log"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = f"no daemon runs, and {path}, the log of one that would be started, can't be opened: {error.strerror}"
        raise _core.DaemonGone(error.errno, why) from error
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            raise _core.DaemonGone(errno.EPERM, f"no daemon runs, and {path} is another user's: start gpushmd yourself")
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
    finally:
        os.close(lock)


def _start(gone: _core.DaemonGone, log: str) -> int:
    """The process of a keeper and its daemon, which belongs to init, and not to this program."""
    # In a wheel it is beside the interpreter; from the build's folder it is beside the package.
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = [sysconfig.get_path("scripts"), here, os.environ.get("PATH", os.defpath), "/usr/local/bin:/usr/bin"]
    program = shutil.which("gpushmd", path=os.pathsep.join(folders))
    if program is None:
        why = f"{gone.strerror}. There is no gpushmd to start: it is in the wheel, and in the Debian package gpushmd"
        raise _core.DaemonGone(gone.errno, why)
    socket = os.environ.get("GPUSHM_SOCKET")
    # It does not work in this program's folder.
    words = [os.path.abspath(program), *(["--socket", os.path.abspath(socket)] if socket else [])]
    with open(log, "a") as output:
        done = subprocess.run(
            ["/bin/sh", "-c", '"$@" </dev/null >&2 & echo $!', "sh", *words],
            env={key: value for key, value in os.environ.items() if not key.startswith(_SUPERVISOR)},
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
            check=True,
        )
    return int(done.stdout)


def _wait(pid: int, log: str, said_before: int) -> None:
    end = time.monotonic() + _READY
    while (gone := _gone()) is not None:
        is_there = _is_running(pid)
        if not is_there or time.monotonic() > end:
            said = Path(log).read_bytes()[said_before:].decode(errors="replace").splitlines()
            errors = [line.partition(": error: ")[2] for line in said if ": error: " in line]
            what = "does not reply" if is_there else f"ended: {'; '.join(errors) or 'it said nothing'}"
            raise _core.DaemonGone(
                gone.errno, f"no daemon ran, and gpushmd, which was started, {what} (log {log})"
            ) from gone
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    """One that has ended has no command, also where the first process of a container never waits for it."""
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False
