# SPDX-License-Identifier: MIT
"""Blocks of GPU memory in buffers that this process has already: what Numba's memory manager allocates from.

An arena is a transient buffer, divided into blocks of one size. Arenas of small blocks are published, so that other
processes can open handles of their blocks. A large block has an arena of its own, which is published with the block's
first handle. Before a freed block is used again, the GPU finishes all work that was queued. Unused arenas stay, up to a
share of the pool.
"""

from __future__ import annotations

import os
import secrets
from collections import defaultdict, deque
from collections.abc import Callable

from .. import _core

LARGE = 4 << 20  # from here on a block has an arena of its own
_STEP = 2 << 20  # what a buffer on a GPU takes at least
_BLOCKS_MAX = 4096  # in an arena
_KEPT = 16  # one part in so many of the pool is kept


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _rounded(size: int) -> int:
    """The size of the blocks for it: four sizes for each power of two, all aligned as cuMemAlloc's memory."""
    return _up(size, _STEP if size >= LARGE else max(512, 1 << max(size.bit_length() - 3, 0)))


def is_open_elsewhere(buffer: _core.Buffer) -> bool:
    """Whether another process has it open. True where the daemon can't tell."""
    try:
        found = _core.stat(buffer.name)
    except _core.Error:
        return True
    return found.readers + found.writers > 1


class Arena:
    """A buffer and its blocks of `size` bytes."""

    def __init__(self, pool: str, size: int, count: int) -> None:
        """Errors: as gpushm.create()."""
        self.size, self.large, self.used = size, size >= LARGE, 0
        name = None if self.large else f"~/numba/{os.getpid()}-{secrets.token_hex(4)}"
        attrs = {"numba": f"{'one array' if self.large else f'arena of {count} arrays'} of process {os.getpid()}"}
        self.buffer = _core.create_many(
            name, {}, nbytes=size * count, pool=pool, transient=True, attrs=attrs, device="current"
        )
        if not self.large:
            self.buffer.publish("shared")
        self.nbytes = _up(size * count, _STEP)
        self.address: int = self.buffer.device_ptr or 0


class Block:
    """Bytes of an arena, from `start`."""

    def __init__(self, arena: Arena, start: int) -> None:
        self.arena, self.start, self.address = arena, start, arena.address + start
        self.lent = False  # a handle of it was made
        self.named: object = None  # the buffer of the name that it was published as


class Arenas:
    """The arenas of one GPU in one pool. synchronize(): waits for the GPU's work.

    give_back() may be called at any time, also by the garbage collector; the others by one thread at a time.
    """

    def __init__(self, pool: str, synchronize: Callable[[], object]) -> None:
        self.pool, self._synchronize = pool, synchronize
        self._kept_max = next((p.nbytes for p in _core.pools() if p.name == pool), 0) // _KEPT
        self._arenas: list[Arena] = []  # the oldest first
        self._free: defaultdict[int, list[Block]] = defaultdict(list)  # by size
        self._lent: list[Block] = []  # given back, but another process may use them
        self._returned: deque[Block] = deque()  # given back, but the GPU may use them
        self.give_back: Callable[[Block], object] = self._returned.append

    def take(self, size: int) -> Block | None:
        """A block of memory that is here; None: there is none."""
        size = _rounded(size)
        if not self._free[size] and self._returned:
            self.settle()
        return self._pop(size) if self._free[size] else None

    def _pop(self, size: int) -> Block:
        block = self._free[size].pop()
        block.arena.used += 1
        return block

    def make(self, size: int, scarce: bool = False) -> Block:
        """A block of a new arena, which is no larger than needed where memory is scarce. Errors: as gpushm.create()."""
        size, count = _rounded(size), 1
        if size < LARGE:
            # What is not used yet is a small part of the whole.
            held = sum(a.nbytes for a in self._arenas if a.size == size)
            nbytes = _STEP if scarce else max(_STEP, min(8 * size, 16 << 20), held // 16)
            count = max(min(_up(nbytes, _STEP) // size, _BLOCKS_MAX), 1)
        arena = Arena(self.pool, size, count)
        self._arenas.append(arena)
        self._free[size].extend(Block(arena, i * size) for i in reversed(range(count)))
        return self._pop(size)

    def settle(self, kept: int | None = None) -> None:
        """Waits for the GPU, so that what was given back can be used again, and gives arenas that nothing uses back to
        the pool, the oldest first, until so many bytes are left; None: the share that is kept.
        """
        if self._returned:
            blocks = [self._returned.popleft() for _ in range(len(self._returned))]
            self._synchronize()
            for block in blocks:
                self._restore(block)
        lent, self._lent = self._lent, []
        elsewhere = {arena: is_open_elsewhere(arena.buffer) for arena in {block.arena for block in lent}}
        for block in lent:
            block.lent = elsewhere[block.arena]
            self._restore(block)
        left = self.idle
        for arena in [a for a in self._arenas if not a.used]:
            if left <= (self._kept_max if kept is None else kept):
                break
            left -= arena.nbytes
            self._arenas.remove(arena)
            self._free[arena.size] = [b for b in self._free[arena.size] if b.arena is not arena]

    @property
    def idle(self) -> int:
        """Bytes of the arenas that nothing uses."""
        return sum(a.nbytes for a in self._arenas if not a.used)

    def _restore(self, block: Block) -> None:
        arena = block.arena
        if arena.large and (block.lent or block.named is not None):
            self._arenas.remove(arena)  # the memory is another process's now, or its name's
        elif block.lent:
            self._lent.append(block)
        else:
            block.named = None
            arena.used -= 1
            self._free[arena.size].append(block)

    def __repr__(self) -> str:
        shared = [a for a in self._arenas if not a.large]
        return (
            f"{len(shared)} arenas of {sum(a.nbytes for a in shared)} bytes and {len(self._arenas) - len(shared)} "
            f"large arrays of {sum(a.nbytes for a in self._arenas if a.large)}; nothing uses {self.idle} bytes of them"
        )
