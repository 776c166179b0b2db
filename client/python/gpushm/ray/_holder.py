# SPDX-License-Identifier: MIT
"""The holder: a process of each node and user that has a lease of each object, so that objects outlive their actors.

    python -m gpushm.ray._holder ADDRESS

The first process of the node that makes an object starts it, in a session of its own. It knows nothing of Ray, and ends
half a minute after the last object and the last connection. It takes lines from processes of its user on this node by
an abstract socket, and at ADDRESS from owners on other nodes, who have its token from the object's metadata. What a
process holds it lets go when it says so, or with its connection: the kernel closes that when the process ends, and
TCP's keepalive when the node vanishes. Until the owner holds an object for the first time, its maker does.

    keep KEY BUFFER      take a lease -> "ok HOST PORT TOKEN" of the holder, for the metadata; or "no" and the error
    spent KEY            from the maker, when it has passed the metadata on
    hold KEY, drop KEY   the process at the other end refers to the object, does not any more
    end KEY              Ray's reference count is zero
    use KEY              read the object -> "ok BUFFER", and "ended KEY" when it has ended
    done KEY             once for each use: nothing of that process reads it any more
    seal KEY             make a sealed copy for a relay, if the buffer is not sealed -> "ok NAME"
    copy KEY BUFFER HOST PORT TOKEN  take a lease of what was pulled, for as long as that holder has KEY -> "ok"
    room -               "room -" to all: let go of memory that waits for its next object

A maker writes its next object into the same buffer, which readers have mapped. It may do so when the objects in there
have ended and all their readers are done: "free KEY". Where a reader left without a word it may not: "lost KEY".
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import secrets
import socket
import struct
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

import gpushm
from gpushm import _core
from gpushm.ray import _store

IDLE = 30  # seconds until it ends
ORPHANED = 15.0  # seconds for the owner to take over what a process made that has died
UNCLAIMED = 300.0  # the same, while that process lives


def place(host: str) -> str:
    """The abstract socket of this user's holder for a daemon, at an address of this node."""
    with gpushm.connect() as daemon:
        daemon.pools()
        with socket.socket(fileno=os.dup(daemon.fileno())) as connection:
            path = connection.getpeername()
    return f"\0gpushm-ray-{os.geteuid()}-{hashlib.sha256(f'{path} {host}'.encode()).hexdigest()[:16]}"


def is_ours(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end."""
    ucred = struct.Struct("3i")
    uid: int = ucred.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, ucred.size))[1]
    return uid == os.geteuid()


def keep_alive(connection: socket.socket) -> None:
    """A peer whose machine is gone is noticed in 15 s."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"KEEPIDLE": 5, "KEEPINTVL": 3, "KEEPCNT": 3, "USER_TIMEOUT": 15000, "NODELAY": 1}
    for option, value in options.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{option}"), value)


class Peer:
    """A process at the other end of a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def say(self, line: str) -> None:
        self._writer.write(f"{line}\n".encode())


class Held:
    """An object: the leases of its buffers, its references, and its readers."""

    def __init__(self, key: str, buffer: gpushm.Buffer, maker: Peer | None) -> None:
        self.key, self.buffer = key, buffer.name
        self.leases = [buffer]
        self.sealing = asyncio.Lock()
        self.maker = maker
        self.waiting = False  # for the owner, since the maker has let it go
        self.claimed = False
        self.holders: set[Peer] = set()
        self.users: Counter[Peer] = Counter()
        self.is_lost = False  # one of the users has left without a word

    def is_wanted(self) -> bool:
        return bool(self.holders) or (not self.claimed if self.waiting else self.maker is not None)


class Holder:
    """What one holder has."""

    def __init__(self, here: socket.socket, there: socket.socket) -> None:
        self._here, self._there = here, there
        self._token = secrets.token_hex(16)
        self._held: dict[str, Held] = {}
        self._ended: dict[str, Held] = {}  # whose buffers have readers
        self._within: dict[str, set[Held]] = {}  # both, by buffer
        self._peers: set[Peer] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Returns when it is not needed any more."""
        await asyncio.start_unix_server(self._serve, sock=self._here)
        await asyncio.start_server(self._serve, sock=self._there)
        idle = 0
        while idle < IDLE:
            await asyncio.sleep(1)
            idle = 0 if self._held or self._peers else idle + 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(writer)
        with suppress(OSError, ValueError, TypeError, TimeoutError):
            if await self._admits(writer.get_extra_info("socket"), reader):
                self._peers.add(peer)
                while line := await reader.readline():
                    await self._take(peer, *line.decode().split())
                    await writer.drain()
        self._left(peer)
        writer.close()

    async def _admits(self, connection: socket.socket, reader: asyncio.StreamReader) -> bool:
        if connection.family == socket.AF_UNIX:
            return is_ours(connection)
        keep_alive(connection)
        token = await asyncio.wait_for(reader.readline(), 10)
        return secrets.compare_digest(token.strip(), self._token.encode())

    async def _take(self, peer: Peer, verb: str, key: str, *more: str) -> None:
        if verb in ("keep", "copy", "seal", "use"):
            try:
                peer.say(f"ok {await getattr(self, f'_{verb}')(peer, key, *more)}")
            except OSError as e:
                peer.say(f"no {type(e).__name__}: {e}".replace("\n", " "))
        elif verb == "room":
            for other in self._peers:
                other.say("room -")
        elif verb == "done":
            if held := self._held.get(key) or self._ended.get(key):
                held.users -= Counter([peer])
                self._release(held)
        elif held := self._held.get(key):
            self._refer(peer, verb, held)

    def _refer(self, peer: Peer, verb: str, held: Held) -> None:
        if verb == "spent":
            held.waiting = True
            self._later(UNCLAIMED, held)
        elif verb == "hold":
            held.claimed = True
            held.holders.add(peer)
        elif verb == "drop":
            held.holders.discard(peer)
        if verb == "end" or not held.is_wanted():
            self._end(held)

    def _add(self, key: str, buffer: str, maker: Peer | None) -> Held:
        held = self._held[key] = Held(key, gpushm.open_many(buffer), maker)
        self._within.setdefault(buffer, set()).add(held)
        return held

    def _later(self, seconds: float, held: Held) -> None:
        """Ends it after this time, unless an owner has taken it over."""
        asyncio.get_running_loop().call_later(seconds, lambda: None if held.claimed else self._end(held))

    def _left(self, peer: Peer) -> None:
        self._peers.discard(peer)
        for held in [*self._held.values(), *self._ended.values()]:
            held.holders.discard(peer)
            held.is_lost |= bool(held.users.pop(peer, 0))
            if held.maker is peer:
                held.maker, held.waiting = None, True
                self._later(ORPHANED, held)
            if held.key in self._ended:
                self._release(held)
            elif not held.is_wanted():
                self._end(held)

    def _end(self, held: Held) -> None:
        if self._held.get(held.key) is held:
            self._ended[held.key] = self._held.pop(held.key)
            held.leases.clear()  # those that are being copied end after that
            for peer in held.users:
                peer.say(f"ended {held.key}")
            self._release(held)

    def _release(self, held: Held) -> None:
        """Gives the makers a buffer back in which no object is left, and which nobody reads."""
        within = self._within.get(held.buffer, set())
        if any(h.users or h.key in self._held for h in within):
            return
        word = "lost" if any(h.is_lost for h in within) else "free"
        for one in self._within.pop(held.buffer, within):
            self._ended.pop(one.key, None)
            if one.maker:
                one.maker.say(f"{word} {one.key}")

    # ---- what is answered ----

    def _known(self, key: str) -> Held:
        if key not in self._held:
            raise _core.NotFound(errno.ENOENT, f"no object {key}")
        return self._held[key]

    async def _keep(self, peer: Peer, key: str, buffer: str) -> str:
        self._add(key, buffer, peer)
        host, port = self._there.getsockname()[:2]
        return f"{host} {port} {self._token}"

    async def _use(self, peer: Peer, key: str) -> str:
        held = self._known(key)
        held.users[peer] += 1
        return held.buffer

    async def _seal(self, peer: Peer, key: str) -> str:
        """A relay offers sealed buffers alone; a slab is not."""
        held = self._known(key)
        async with held.sealing:
            if held.leases[-1].state != "sealed":
                held.leases.append(await asyncio.to_thread(_sealed, held.leases[0], f"ray/{key}"))
        return held.leases[-1].name

    async def _copy(self, peer: Peer, key: str, buffer: str, *holder: str) -> str:
        if key not in self._held:
            held = self._add(key, buffer, None)
            held.holders.add(peer)  # until the other holder is asked
            task = asyncio.get_running_loop().create_task(self._follow(held, *holder))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return ""

    async def _follow(self, held: Held, host: str, port: str, token: str) -> None:
        with suppress(OSError, TimeoutError):
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 10)
            keep_alive(writer.get_extra_info("socket"))
            writer.write(f"{token}\nuse {held.key}\n".encode())
            held.holders = {Peer(writer)}
            if (await reader.readline()).startswith(b"ok"):
                await reader.readline()
            writer.write(f"done {held.key}\n".encode())
            writer.close()
        self._end(held)


def _sealed(buffer: gpushm.Buffer, name: str) -> gpushm.Buffer:
    options: Any = {"pool": buffer.pool, "transient": True, "mode": gpushm.stat(buffer.name).mode}
    if not buffer.host_ptr or buffer.kind != "host":
        made = gpushm.create_many(name, dict(buffer), **options)
    else:
        made = gpushm.create_many(name, {n: (a.shape, a.dtype_name) for n, a in buffer.items()}, **options)
        to, at = made.host_ptr or 0, buffer.host_ptr
        _store.copy([(to + made[n].offset, at + a.offset, a.nbytes) for n, a in buffer.items()])
    made.publish()
    return made


def main(host: str) -> None:
    """Returns when it listens, or at once where there is such a holder."""
    here = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with suppress(OSError):
        here.bind(place(host))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        there = socket.create_server((host, int(os.environ.get("GPUSHM_RAY_PORT", "0"))), family=family)
        here.listen(1024)
        # No child of the actor's: Ray ends those with it.
        if os.fork() == 0:
            asyncio.run(Holder(here, there).run())


if __name__ == "__main__":
    main(sys.argv[1])
