# SPDX-License-Identifier: MIT
"""The holder: a process of each node and user that has a lease of each object, so that objects outlive their actors.

    python _holder.py ADDRESS

The first process of the node that makes an object starts it, in a session of its own. It knows nothing of Ray, and
does not import this file's package. It ends half a minute after the last object and the last connection. It takes lines
from processes of its user on this node by an abstract socket, and at ADDRESS from owners on other nodes, who have its
token from the object's metadata. What a process holds it lets go when it says so, or with its connection: the kernel
closes that when the process ends, and TCP's keepalive when the node vanishes. An object that nobody holds before its
owner has held it waits for that.

    keep KEY BUFFER ID   take a lease -> "ok HOST PORT TOKEN" of the holder, for the metadata; or "no" and the error
    more KEY BUFFER ID   the next object in a buffer of which that process gave one before; nobody answers
    forget ID            it has closed that buffer: leases are those of its objects alone
    hold KEY, drop KEY   the owner at the other end refers to the object; it, or the maker, does not any more
    end KEY              Ray's reference count is zero
    use KEY              read the object -> "ok BUFFER ID", and "ended KEY" when it has ended; "rests KEY" where the next
                         one may be in its buffer, and "forgot ID" when that is closed
    done KEY             once for each use: nothing of that process reads it any more
    seal KEY [POOL]      make a sealed copy for a relay, if the buffer is not sealed or has a name of the program's, or
                         in that pool for processes that can't see the buffer's GPU -> "ok NAME"; "far KEY" to the
                         maker, if it is for a relay
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
from typing import Any, TypeAlias

import gpushm
from gpushm import _core, _handle

IDLE = 30  # seconds until it ends
ORPHANED = 15.0  # seconds for the owner to take over what a process made that has died
UNCLAIMED = 300.0  # the same, of a process that lives and has passed the metadata on
Peer: TypeAlias = asyncio.StreamWriter  # a process at the other end of a connection


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


def say(peer: Peer, line: str) -> None:
    peer.write(f"{line}\n".encode())


class Held:
    """An object: the leases of its buffers, its references, and its readers."""

    def __init__(self, key: str, buffer: gpushm.Buffer, peer: Peer, maker: Any) -> None:
        self.key, self.buffer, self.maker = key, buffer.name, maker
        self.leases = [buffer]
        self.sealing = asyncio.Lock()
        self.holders = {peer}
        self.is_claimed = False  # the owner has held it
        self.users: Counter[Peer] = Counter()
        self.is_lost = False  # one of the users has left without a word
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

    async def run(self) -> None:
        """Returns when it is not needed any more."""
        await asyncio.start_unix_server(self._serve, sock=self._here)
        await asyncio.start_server(self._serve, sock=self._there)
        idle = 0
        while idle < IDLE:
            await asyncio.sleep(1)
            idle = 0 if self._held or self._peers else idle + 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TypeError, TimeoutError):
            if await self._admits(writer.get_extra_info("socket"), reader):
                self._peers.add(writer)
                while line := await reader.readline():
                    # It does not wait until that is sent: the peer may send much before it reads.
                    await self._take(writer, *line.decode().split())
        self._left(writer)
        writer.close()

    async def _admits(self, connection: socket.socket, reader: asyncio.StreamReader) -> bool:
        if connection.family == socket.AF_UNIX:
            return is_ours(connection)
        keep_alive(connection)
        token = await asyncio.wait_for(reader.readline(), 10)
        return secrets.compare_digest(token.strip(), self._token.encode())

    async def _take(self, peer: Peer, verb: str, key: str, *more: str) -> None:
        if verb in ("keep", "more", "copy", "seal", "use"):
            try:
                answer = f"ok {await getattr(self, f'_{verb}')(peer, key, *more)}"
            except OSError as e:
                answer = f"no {type(e).__name__}: {e}".replace("\n", " ")
            if verb != "more":
                say(peer, answer)
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
            else:
                self._end(held)

    def _say_all(self, line: str) -> None:
        for peer in self._peers:
            say(peer, line)

    def _forget(self, peer: Peer, id: str) -> None:
        if self._given.get(peer, {}).pop(id, None):
            self._say_all(f"forgot {id}")

    def _add(self, key: str, buffer: gpushm.Buffer, peer: Peer, is_maker: bool) -> Held:
        held = self._held[key] = Held(key, buffer, peer, peer if is_maker else None)
        self._within.setdefault(held.buffer, set()).add(held)
        return held

    def _drop(self, peer: Peer, held: Held, patience: float) -> None:
        held.holders.discard(peer)
        if held.is_claimed and not held.holders:
            self._end(held)
        elif not held.is_claimed:
            asyncio.get_running_loop().call_later(patience, lambda: None if held.holders else self._end(held))

    def _left(self, peer: Peer) -> None:
        self._peers.discard(peer)
        for id in [*self._given.get(peer, {})]:
            self._forget(peer, id)
        self._given.pop(peer, None)
        for held in [*self._held.values(), *self._ended.values()]:
            held.is_lost |= bool(held.users.pop(peer, 0))
            if peer is held.maker or peer in held.holders:
                held.maker = None if peer is held.maker else held.maker
                self._drop(peer, held, ORPHANED)
            if held.key in self._ended:
                self._release(held)

    def _end(self, held: Held) -> None:
        if self._held.get(held.key) is held:
            self._ended[held.key] = self._held.pop(held.key)
            rests = str(held.leases[0].id) in self._given.get(held.maker, {})
            held.leases.clear()  # those that are being copied end after that
            for peer in held.users:
                say(peer, f"{'rests' if rests else 'ended'} {held.key}")
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
                say(one.maker, f"{word} {one.key}")

    # ---- what is answered ----

    def _known(self, key: str) -> Held:
        if key not in self._held:
            raise _core.NotFound(errno.ENOENT, f"no object {key}")
        return self._held[key]

    async def _keep(self, peer: Peer, key: str, buffer: str, id: str) -> str:
        lease = self._given.setdefault(peer, {})[id] = _lease(buffer, id)
        self._add(key, lease, peer, is_maker=True)
        host, port = self._there.getsockname()[:2]
        return f"{host} {port} {self._token}"

    async def _more(self, peer: Peer, key: str, buffer: str, id: str) -> None:
        self._add(key, self._given.get(peer, {}).get(id) or _lease(buffer, id), peer, is_maker=True)

    async def _use(self, peer: Peer, key: str) -> str:
        held = self._known(key)
        held.users[peer] += 1
        return f"{held.buffer} {held.leases[0].id}"

    async def _seal(self, peer: Peer, key: str, pool: str = "") -> str:
        """A relay offers sealed buffers of ours alone; a slab is not sealed."""
        held = self._known(key)
        if held.maker and not pool:
            say(held.maker, f"far {key}")
        async with held.sealing:
            for made in held.leases:
                if is_offered(made) and made.pool == (pool or made.pool):
                    return made.name
            name = f"ray/{key}{pool and '/'}{pool}"
            held.leases.append(await asyncio.to_thread(_sealed, held.leases[0], name, pool))
        return held.leases[-1].name

    async def _copy(self, peer: Peer, key: str, buffer: str, *holder: str) -> str:
        if key not in self._held:
            held = self._add(key, _core._common._open_table(buffer), peer, is_maker=False)
            held.task = asyncio.get_running_loop().create_task(self._follow(held, *holder))
        return ""

    async def _follow(self, held: Held, host: str, port: str, token: str) -> None:
        with suppress(OSError, TimeoutError):
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 10)
            keep_alive(writer.get_extra_info("socket"))
            writer.write(f"{token}\nuse {held.key}\n".encode())
            held.holders = {writer}  # and no more the peer that has pulled it
            if (await reader.readline()).startswith(b"ok"):
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
