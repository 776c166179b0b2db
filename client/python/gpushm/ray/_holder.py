# SPDX-License-Identifier: MIT
"""The holder: a process of each node and user that has a lease of each object, so that objects outlive their actors.

    python -m gpushm.ray._holder ADDRESS

The first process of the node that makes an object starts it; it is in a session of its own, knows nothing of Ray, and
ends half a minute after the last object and the last connection. It takes lines from two sockets. One is for processes
of its user on this node, an abstract socket; the other, on ADDRESS, is for owners on other nodes, who have its token
from the object's metadata. A connection is a promise to live: what a process holds it lets go when it says so, or when
its connection ends, as the kernel closes it with the process. Of a node that vanishes, TCP's keepalive ends it.

An object is KEY. It is there while somebody holds it, and before its owner has said so, for as long as its maker lives:

    keep KEY BUFFER      take a lease; the maker has it until the first "hold" -> "ok HOST PORT TOKEN" of
                         the holder, for the metadata, or "no" and the error
    spent KEY            the maker has passed the metadata on, and does not hold it
    hold KEY, drop KEY   the process at the other end refers to it, does not any more
    end KEY              Ray's reference count is zero
    watch KEY            "gone KEY" when the object has ended; the maker gets it, too
    seal KEY             the name of a sealed buffer with the same bytes, for a relay -> "ok NAME"
    copy KEY BUFFER HOST PORT TOKEN KEY2  take a lease of what was pulled, while that holder has KEY2   -> "ok"
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import socket
import struct
import sys
from contextlib import suppress

import gpushm
from gpushm import _core

IDLE = 30.0  # seconds until it ends
ORPHANED = 15.0  # seconds for the owner to take over what a process made that has died
UNCLAIMED = 300.0  # the same, while that process lives
_PEER = struct.Struct("3i")  # struct ucred


def place(host: str) -> str:
    """The abstract socket of this user's holder for a daemon, at an address of this node."""
    with gpushm.connect() as daemon:
        daemon.pools()
        with socket.socket(fileno=os.dup(daemon.fileno())) as connection:
            path = connection.getpeername()
    return f"\0gpushm-ray-{os.geteuid()}-{hashlib.sha256(f'{path} {host}'.encode()).hexdigest()[:16]}"


def kept_alive(connection: socket.socket) -> None:
    """A peer whose machine is gone is noticed in 15 s."""
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 3), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15000)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Held:
    """An object: leases of its buffers, and who refers to it."""

    def __init__(self, buffer: _core.Buffer, maker: Peer | None) -> None:
        self.leases = [buffer]
        self.sealed = buffer if buffer.state == "sealed" else None
        self.sealing = asyncio.Lock()
        self.maker = maker
        self.waiting = False  # for the owner, after the maker has passed it on
        self.claimed = False
        self.holders: set[Peer] = set()
        self.watchers: set[Peer] = {maker} if maker else set()

    def is_wanted(self) -> bool:
        return bool(self.holders) or (not self.claimed if self.waiting else self.maker is not None)


class Peer:
    """A process at the other end of a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def say(self, line: str) -> None:
        self._writer.write(f"{line}\n".encode())


def sealed(buffer: _core.Buffer, name: str) -> _core.Buffer:
    """A sealed copy."""
    made = gpushm.create_many(
        name, dict(buffer), pool=buffer.pool, transient=True, mode=gpushm.stat(buffer.name).mode
    )
    made.publish()
    return made


class Holder:
    """What one holder has."""

    def __init__(self, host: str) -> None:
        self._host, self._token = host, secrets.token_hex(16)
        self._held: dict[str, Held] = {}
        self._peers: set[Peer] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0

    async def run(self, here: socket.socket, there: socket.socket) -> None:
        """Returns when it is not needed any more."""
        self._port = there.getsockname()[1]
        await asyncio.start_unix_server(self._serve, sock=here)
        await asyncio.start_server(self._serve, sock=there)
        idle = 0.0
        while idle < IDLE:
            await asyncio.sleep(1)
            idle = 0.0 if self._held or self._peers else idle + 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        peer = Peer(writer)
        try:
            if connection.family == socket.AF_UNIX:
                allowed = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
                if allowed != os.geteuid():
                    return
            else:
                kept_alive(connection)
                line = await asyncio.wait_for(reader.readline(), 10)
                if not secrets.compare_digest(line.strip(), self._token.encode()):
                    return
            self._peers.add(peer)
            while line := await reader.readline():
                verb, *words = line.decode().split()
                await self._take(peer, verb, words)
                await writer.drain()
        except (OSError, ValueError, TypeError, TimeoutError):
            pass
        finally:
            self._left(peer)
            writer.close()

    async def _take(self, peer: Peer, verb: str, words: list[str]) -> None:
        held = self._held.get(words[0]) if words else None
        if verb in ("keep", "copy", "seal"):
            try:
                peer.say(f"ok {await getattr(self, f'_{verb}')(peer, *words)}")
            except (OSError, KeyError) as e:
                peer.say(f"no {type(e).__name__}: {e}".replace("\n", " "))
        elif held is None:
            if verb == "watch":
                peer.say(f"gone {words[0]}")
        elif verb == "spent":
            held.waiting = True
            self._later(UNCLAIMED, words[0], held)
        elif verb == "hold":
            held.holders.add(peer)
            held.claimed = True
        elif verb == "watch":
            held.watchers.add(peer)
        elif verb == "drop":
            held.holders.discard(peer)
        elif verb == "end":
            self._end(words[0])
        self._look(words[0] if words else "")

    def _look(self, key: str) -> None:
        held = self._held.get(key)
        if held is not None and not held.is_wanted():
            self._end(key)

    def _later(self, seconds: float, key: str, held: Held) -> None:
        """Ends what no owner has taken over by then."""

        def look() -> None:
            if self._held.get(key) is held and not held.holders and (held.waiting or held.maker is None):
                self._end(key)

        asyncio.get_running_loop().call_later(seconds, look)

    def _left(self, peer: Peer) -> None:
        self._peers.discard(peer)
        for key, held in [*self._held.items()]:
            held.watchers.discard(peer)
            held.holders.discard(peer)
            if held.maker is peer:
                held.maker, held.waiting = None, True
                self._later(ORPHANED, key, held)
            self._look(key)

    def _end(self, key: str) -> None:
        held = self._held.pop(key, None)
        if held is None:
            return
        held.leases.clear()  # A copy that is being made has its source open.
        for peer in held.watchers:
            peer.say(f"gone {key}")

    # ---- what is answered ----

    async def _keep(self, peer: Peer, key: str, buffer: str) -> str:
        self._held[key] = Held(gpushm.open_many(buffer), peer)
        return f"{self._host} {self._port} {self._token}"

    async def _seal(self, peer: Peer, key: str) -> str:
        """A relay offers sealed buffers alone; those in which a process makes one object after the other are not."""
        held = self._held[key]
        async with held.sealing:
            if held.sealed is None:
                held.sealed = await asyncio.to_thread(sealed, held.leases[0], f"ray/{key}/sealed")
                held.leases.append(held.sealed)
        return held.sealed.name

    async def _copy(self, peer: Peer, key: str, buffer: str, host: str, port: str, token: str, there: str) -> str:
        if key not in self._held:
            held = self._held[key] = Held(gpushm.open_many(buffer), None)
            held.holders.add(peer)  # until the other holder is asked
            task = asyncio.get_running_loop().create_task(self._follow(key, held, host, int(port), token, there))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return ""

    async def _follow(self, key: str, held: Held, host: str, port: int, token: str, there: str) -> None:
        """Has it for as long as the holder of the node that it is from."""
        with suppress(OSError, TimeoutError):
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), 10)
            kept_alive(writer.get_extra_info("socket"))
            writer.write(f"{token}\nwatch {there}\n".encode())
            peer = Peer(writer)
            held.holders = {peer}
            await reader.readline()
            writer.close()
        if self._held.get(key) is held:
            self._end(key)


def main(host: str) -> None:
    """Returns at once where there is such a holder."""
    here = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        here.bind(place(host))
    except OSError:
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    there = socket.create_server((host, int(os.environ.get("GPUSHM_RAY_PORT", "0"))), family=family)
    here.listen(1024)
    # No child of the actor's: Ray ends those with it.
    if os.fork():
        os._exit(0)
    asyncio.run(Holder(host).run(here, there))


if __name__ == "__main__":
    main(sys.argv[1])
