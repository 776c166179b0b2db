# SPDX-License-Identifier: MIT
"""The holder: a process of each node and user that has a lease of each object, so that objects outlive their actors.

    python _holder.py ADDRESS

The first process of the node that makes an object starts it, in a session of its own. It knows nothing of Ray, and
does not import this file's package. It ends half a minute after the last object and the last connection. It takes lines
from processes of its user on this node by an abstract socket, and at ADDRESS from owners on other nodes, who have its
token from the object's metadata. A line that is answered begins with a number, and so does its answer, which other ones
may overtake. What a process holds it lets go when it says so, or with its connection: the kernel closes that when the
process ends, and TCP's keepalive when the node vanishes. An object that nobody holds before its owner has held it waits
for that.

    N keep KEY BUFFER ID [later]  take a lease -> "N ok HOST PORT TOKEN" of the holder, for the metadata; or "N no" and
                         the error. later: its GPU still writes it
    more KEY BUFFER ID [later]  the next object in a buffer of which that process gave one before
    whole KEY            the GPU has written it
    forget ID            it has closed that buffer: leases are those of its objects alone
    hold KEY, drop KEY   the owner at the other end refers to the object; it, or the maker, does not any more
    end KEY              Ray's reference count is zero
    N use KEY            read the object -> "N ok BUFFER ID" when it is whole, or "N no TimeoutError" after a while, and
                         "ended KEY" when it has ended; "rests KEY" where the next one may be in its buffer, and "forgot
                         ID" when that is closed
    done KEY             once for each use: nothing of that process reads it any more
    N seal KEY [POOL]    make a sealed copy for a relay, if the buffer is not sealed or has a name of the program's, or
                         in that pool for processes that can't see the buffer's GPU -> "N ok NAME"; "far KEY" to
                         the maker, if it is for a relay
    N copy KEY BUFFER HOST PORT TOKEN  take a lease of what was pulled, for as long as that holder has KEY -> "N ok"
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
from gpushm import _core, _handle

IDLE = 30  # seconds until it ends
ORPHANED = 15.0  # seconds for the owner to take over what a process made that has died
UNCLAIMED = 300.0  # the same, of a process that lives and has passed the metadata on
LATE = 30.0  # seconds that a question waits for a GPU; then the reader asks again
LINE = 4096  # bytes of one at most


def place(host: str) -> str:
    """The abstract socket of this user's holder for a daemon, at an address of this node."""
    with gpushm.connect() as daemon:
        daemon.status()  # connects, and starts no driver, which a fork would end
        with socket.socket(fileno=os.dup(daemon.fileno())) as connection:
            path = connection.getpeername()
    return f"\0gpushm-ray-{os.geteuid()}-{hashlib.sha256(f'{path} {host}'.encode()).hexdigest()[:16]}"


def is_ours(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end."""
    uid: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    return uid == os.geteuid()


def is_offered(buffer: gpushm.Buffer) -> bool:
    """Whether a relay has it for other nodes: sealed, and under a name that no program gives to another buffer."""
    return buffer.state == "sealed" and buffer.name.startswith("ray/")


def keep_alive(connection: socket.socket) -> None:
    """A peer whose machine is gone is noticed in 15 s."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"KEEPIDLE": 5, "KEEPINTVL": 3, "KEEPCNT": 3, "USER_TIMEOUT": 15000, "NODELAY": 1}
    for option, value in options.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{option}"), value)


class Peer(asyncio.Protocol):
    """A process at the other end of a connection."""

    def __init__(self, holder: Holder) -> None:
        self._holder, self._input = holder, b""
        self.is_admitted = self.is_near = False  # near: on this node

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        connection = transport.get_extra_info("socket")
        self.is_near = connection.family == socket.AF_UNIX
        if not self.is_near:
            keep_alive(connection)
            asyncio.get_running_loop().call_later(10, lambda: self.is_admitted or transport.abort())
        elif is_ours(connection):
            self._holder.join(self)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        *lines, self._input = (self._input + data).split(b"\n")
        try:
            for line in lines:
                if self.is_admitted:
                    self._holder.take(self, line.decode().split())
                elif self._holder.admits(line):
                    self._holder.join(self)
                else:
                    raise ValueError
        except (ValueError, TypeError, LookupError):
            self._transport.abort()
        if len(self._input) > LINE:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._holder.left(self)

    def say(self, line: str) -> None:
        """It does not wait until that is sent: the process may send much before it reads."""
        self._transport.write(f"{line}\n".encode())


class Held:
    """An object: the leases of its buffers, its references, and its readers."""

    def __init__(self, key: str, buffer: gpushm.Buffer, peer: Peer, maker: Any, is_later: bool) -> None:
        self.key, self.buffer, self.maker = key, buffer.name, maker
        self.leases = [buffer]
        self.sealing = asyncio.Lock()
        self.holders: set[Any] = {peer}
        self.is_claimed = False  # the owner has held it
        self.users: Counter[Peer] = Counter()
        self.is_lost = False  # one of the users has left without a word
        self.whole = asyncio.Event()  # or it will never be
        if not is_later:
            self.whole.set()
        self.task: asyncio.Task[None] | None = None  # of a copy: follows the holder of what was copied


class Holder:
    """What one holder has."""

    def __init__(self, here: socket.socket, there: socket.socket) -> None:
        self._here, self._there = here, there
        self._token = secrets.token_hex(16)
        self._held: dict[str, Held] = {}
        self._ended: dict[str, Held] = {}  # whose buffers have readers
        self._within: dict[str, set[Held]] = {}  # both, by buffer
        self._given: dict[Peer, dict[str, gpushm.Buffer]] = {}  # buffers that makers have open, by id
        self._peers: set[Peer] = set()
        self._tasks: set[asyncio.Future[str]] = set()

    async def run(self) -> None:
        """Returns when it is not needed any more."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_server(lambda: Peer(self), sock=self._here)
        await loop.create_server(lambda: Peer(self), sock=self._there)
        idle = 0
        while idle < IDLE:
            await asyncio.sleep(1)
            idle = 0 if self._held or self._peers else idle + 1

    def admits(self, token: bytes) -> bool:
        return secrets.compare_digest(token.strip(), self._token.encode())

    def join(self, peer: Peer) -> None:
        peer.is_admitted = True
        self._peers.add(peer)

    def take(self, peer: Peer, words: list[str]) -> None:
        """A line of that process. A process's lines are taken one after the other, but some are answered later."""
        number = words.pop(0) if words[0].isdigit() else ""
        verb, key, *more = words
        if verb in ("keep", "more", "copy"):
            self._answer(peer, number, getattr(self, f"_{verb}"), peer, key, *more)
        elif verb == "use" and key in self._held and self._held[key].whole.is_set():
            self._answer(peer, number, self._used, peer, self._held[key])
        elif verb in ("use", "seal"):
            task = asyncio.ensure_future(getattr(self, f"_{verb}")(peer, key, *more))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda task: self._answer(peer, number, task.result))
        elif verb == "room":
            self._say_all("room -")
        elif verb == "forget":
            self._forget(peer, key)
        elif verb == "done":
            if held := self._held.get(key) or self._ended.get(key):
                held.users -= Counter([peer])
                self._release(held)
        elif held := self._held.get(key):
            if verb == "hold":
                held.is_claimed = True
                held.holders.add(peer)
            elif verb == "drop":
                self._drop(peer, held, UNCLAIMED)
            elif verb == "whole":
                held.whole.set()
            else:
                self._end(held)

    def _answer(self, peer: Peer, number: str, what: Any, *args: Any) -> None:
        try:
            answer = f"ok {what(*args)}"
        except Exception as e:
            answer = f"no {type(e).__name__}: {e}".replace("\n", " ")
        if number:
            peer.say(f"{number} {answer}")

    def _say_all(self, line: str) -> None:
        for peer in self._peers:
            if peer.is_near:
                peer.say(line)

    def _forget(self, peer: Peer, id: str) -> None:
        if self._given.get(peer, {}).pop(id, None):
            self._say_all(f"forgot {id}")

    def _add(self, key: str, buffer: gpushm.Buffer, peer: Peer, is_maker: bool, *later: str) -> Held:
        held = self._held[key] = Held(key, buffer, peer, peer if is_maker else None, bool(later))
        self._within.setdefault(held.buffer, set()).add(held)
        return held

    def _drop(self, peer: Peer, held: Held, patience: float) -> None:
        held.holders.discard(peer)
        if held.is_claimed and not held.holders:
            self._end(held)
        elif not held.is_claimed:
            asyncio.get_running_loop().call_later(patience, lambda: None if held.holders else self._end(held))

    def left(self, peer: Peer) -> None:
        self._peers.discard(peer)
        for id in [*self._given.get(peer, {})]:
            self._forget(peer, id)
        self._given.pop(peer, None)
        for held in [*self._held.values(), *self._ended.values()]:
            held.is_lost |= bool(held.users.pop(peer, 0))
            if peer is held.maker or peer in held.holders:
                is_torn = peer is held.maker and not held.whole.is_set()
                held.maker = None if peer is held.maker else held.maker
                if is_torn:
                    self._end(held)
                else:
                    self._drop(peer, held, ORPHANED)
            if held.key in self._ended:
                self._release(held)

    def _end(self, held: Held) -> None:
        if self._held.get(held.key) is held:
            self._ended[held.key] = self._held.pop(held.key)
            rests = str(held.leases[0].id) in self._given.get(held.maker, {})
            held.leases.clear()  # those that are being copied end after that
            held.whole.set()
            for peer in held.users:
                peer.say(f"{'rests' if rests else 'ended'} {held.key}")
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

    async def _whole(self, key: str) -> Held:
        if key in self._held:
            await asyncio.wait_for(self._held[key].whole.wait(), LATE)
        return self._known(key)

    def _keep(self, peer: Peer, key: str, buffer: str, id: str, *later: str) -> str:
        lease = self._given.setdefault(peer, {})[id] = _lease(buffer, id)
        self._add(key, lease, peer, True, *later)
        host, port = self._there.getsockname()[:2]
        return f"{host} {port} {self._token}"

    def _more(self, peer: Peer, key: str, buffer: str, id: str, *later: str) -> None:
        self._add(key, self._given.get(peer, {}).get(id) or _lease(buffer, id), peer, True, *later)

    async def _use(self, peer: Peer, key: str) -> str:
        return self._used(peer, await self._whole(key))

    def _used(self, peer: Peer, held: Held) -> str:
        if peer in self._peers:  # still
            held.users[peer] += 1
        return f"{held.buffer} {held.leases[0].id}"

    async def _seal(self, peer: Peer, key: str, pool: str = "") -> str:
        """A relay offers sealed buffers of ours alone; a slab is not sealed."""
        held = await self._whole(key)
        if held.maker and not pool:
            held.maker.say(f"far {key}")
        async with held.sealing:
            for made in held.leases:
                if is_offered(made) and made.pool == (pool or made.pool):
                    return made.name
            name = f"ray/{key}{pool and '/'}{pool}"
            held.leases.append(await asyncio.to_thread(_sealed, held.leases[0], name, pool))
        return held.leases[-1].name

    def _copy(self, peer: Peer, key: str, buffer: str, *holder: str) -> str:
        if key not in self._held:
            held = self._add(key, _core._common._open_table(buffer), peer, False)
            held.task = asyncio.get_running_loop().create_task(self._follow(held, *holder))
        return ""

    async def _follow(self, held: Held, host: str, port: str, token: str) -> None:
        with suppress(OSError, TimeoutError):
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 10)
            keep_alive(writer.get_extra_info("socket"))
            writer.write(f"{token}\n1 use {held.key}\n".encode())
            held.holders = {writer}  # and no more the peer that has pulled it
            if (await reader.readline()).startswith(b"1 ok"):
                await reader.readline()
            writer.write(f"done {held.key}\n".encode())
            writer.close()
        self._end(held)


def _lease(buffer: str, id: str) -> Any:
    return _handle.check_id(_core._common._open_table(buffer), buffer, int(id))


def _sealed(lease: gpushm.Buffer, name: str, pool: str) -> Any:
    """A copy of it, without a mapping."""
    source = lease.name
    with _handle.check_id(gpushm.open_many(source), source, lease.id) as buffer:
        mode = gpushm.stat(source).mode
        with gpushm.create_many(name, dict(buffer), pool=pool or buffer.pool, transient=True, mode=mode) as made:
            made.publish()
            return _core._common._open_table(name)


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
