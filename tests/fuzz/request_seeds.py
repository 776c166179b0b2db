#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts the first inputs into the corpus of the target request: real sequences of requests, one for each
story of a buffer's life. Run it again after a change of the protocol; inputs that a fuzzer found, or
that were made by hand, stay as they are.

The form of an input is told at the top of fuzz_request.c. In an input, ids of buffers and of leases
count from 1.
"""
import os
import struct
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
REQUEST, HASTY, DISCONNECT, DIE, CONNECT, LATE, DEAF, FLUSH = range(8)
SEALED, SHARED = 2, 3
READ, WRITE = 1, 2
NO_PID = 1 << 23  # world.c
PROMISE, ASK, FREEZE, DONE, THAW, BACK, STUCK, UNASK = range(1, 9)
FOREVER = 2**64 - 1


def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out + bytearray([n]))


def number(field, n):
    return varint(field << 3) + varint(n)


def data(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def do(client, op, body=b""):
    return bytes([op << 1 | client]) + body


def say(client, verb, *fields, op=REQUEST):
    frame = data(verb, b"".join(fields))
    return do(client, op, struct.pack("<H", len(frame)) + frame)


def hello(client):
    return say(client, 1, number(1, 1), number(2, 1), data(3, "fuzz 0.1.0"))


def create(client, name, size=4096, *more, op=REQUEST):
    return say(client, 2, data(1, name), number(3, size), *more, op=op)


def array(name, offset, *shape, code=2, bits=32):
    dtype = number(1, code) + number(2, bits)
    packed = b"".join(varint(n) for n in shape)
    return data(2, data(1, name) + data(2, dtype) + data(3, packed) + number(5, offset))


def describe(client, lease, *arrays):
    return say(client, 3, number(1, lease), *arrays)


def publish(client, lease, state):
    return say(client, 4, number(1, lease), number(2, state))


def open_(client, name, access=READ, wait=None):
    fields = [data(1, name), number(2, access)]
    return say(client, 5, *fields, *([] if wait is None else [number(3, wait)]))


def publish_as(client, lease, state, name, replace=1):
    return say(client, 4, number(1, lease), number(2, state), data(3, name), number(4, replace))


def attrs(client, lease, *pairs):
    return say(client, 3, number(1, lease), *(data(3, data(1, key) + data(2, value)) for key, value in pairs))


def open_while_filling(client, name, wait=FOREVER):
    return say(client, 5, data(1, name), number(3, wait), number(5, 1))


def rename(client, name, to, replace=0):
    return say(client, 17, data(1, name), data(2, to), number(3, replace))


def close(client, lease, *more):
    return say(client, 6, number(1, lease), *more)


def unlink(client, name, *more):
    return say(client, 7, data(1, name), *more)


def stat(client, name, wait=None):
    return say(client, 8, data(1, name), number(3, 1), *([] if wait is None else [number(2, wait)]))


def list_(client, after=0, prefix=""):
    return say(client, 9, number(1, after), data(2, prefix), number(3, 1))


def watched(name=None, buffer=None, seen_buffer=0, seen_word=0):
    what = data(1, name) if name is not None else number(2, buffer)
    return data(1, what + number(3, seen_buffer) + number(4, seen_word))


def watch(client, *what, wait=FOREVER):
    return say(client, 14, *what, number(2, wait))


def events(client, after=0, wait=None, types=0):
    more = [] if wait is None else [number(2, wait)]
    return say(client, 19, number(1, after), *more, *([number(3, types)] if types else []))


def stream(client, lease, slots=4, slot_bytes=1024, *more):
    return say(client, 20, number(1, lease), number(2, slots), number(3, slot_bytes), *more)


def join(client, lease, follow=1, max_held=1):
    return say(client, 21, number(1, lease), number(2, follow), number(3, max_held))


def page(client, lease, which):
    return say(client, 22, number(1, lease), number(2, which))


def drop(client, lease, reader=None, generation=1):
    return say(client, 23, number(1, lease), *([] if reader is None else [number(2, reader), number(3, generation)]))


def produce(client, name, wait=None):
    more = [] if wait is None else [number(3, wait)]
    return say(client, 5, data(1, name), number(2, WRITE), number(6, 1), *more)


def a_stream(client, name, *more):
    """The first lease is its producer's."""
    return create(client, name, 4096, OPEN_TO_ALL) + stream(client, 1, 4, 1024, *more) + publish(client, 1, SHARED)


def suspend(client, lease):
    return say(client, 25, number(1, lease))


def resume(client, lease):
    return say(client, 26, number(1, lease))


def evict(client, name, *more):
    return say(client, 27, data(1, name), *more)


def keep(client, name, ms, priority=0):
    return say(client, 28, data(1, name), number(2, ms), number(3, priority))


def twin(client, lease, of):
    return say(client, 4, number(1, lease), number(2, SEALED), number(5, of))


def restore(client, lease, of):
    return say(client, 4, number(1, lease), number(2, SEALED), number(6, of))


def open_twin(client, of):
    return say(client, 5, number(8, of))


def open_away(client, name, *more):
    return say(client, 5, data(1, name), number(7, 1), *more)


def park(client, step, process, self, text=""):
    """Both processes by their numbers: 1 is the first that has connected."""
    return say(client, 31, number(1, step), number(2, 2 * (NO_PID + process)), number(3, 2 * (NO_PID + self)), data(4, text))


def an_evicted(client, name):
    """The first lease is its creator's, and away."""
    made = create(client, name, 4096, OPEN_TO_ALL) + publish(client, 1, SEALED) + create(client, "t", 4096)
    return made + twin(client, 2, 1) + close(client, 2) + suspend(client, 1) + evict(client, name)


POOLS, STATUS, CLEAN, FLUSH_POOLS, METRICS, STREAMS = 10, 11, 12, 13, 18, 24
OPEN_TO_ALL = number(4, 0o666)
BOTH = hello(0) + hello(1)

SEEDS = {
    "a-life-sealed": BOTH + create(0, "m/llama", 8192, OPEN_TO_ALL, data(7, data(1, "note") + data(2, "x")))
    + describe(0, 1, array("", 0, 4, 4), array("w1", 256, 10), array("w2", 512, 2, code=255, bits=0))
    + describe(0, 1, array("", 0, 4, 4), array("w1", 256, 10))
    + publish(0, 1, SEALED) + open_(1, "m/llama") + open_(1, "m/llama", WRITE) + stat(1, "m/llama")
    + list_(1) + close(0, 1) + unlink(1, "m/llama") + unlink(0, "m/llama") + close(1, 2) + say(0, STATUS),
    "a-life-shared": BOTH + create(0, "a", 70000, OPEN_TO_ALL) + publish(0, 1, SHARED) + open_(1, "a", WRITE)
    + publish(0, 1, SHARED) + describe(1, 2, array("w1", 0, 1)) + unlink(0, "a", number(2, 1)) + close(1, 2)
    + close(0, 1) + say(0, POOLS),
    "a-name-twice": BOTH + create(0, "a") + create(1, "a") + open_(0, "a") + open_(1, "a") + publish(0, 1, SEALED)
    + create(0, "a") + publish(1, 1, SEALED) + close(1, 1),
    "wrong-arrays": BOTH + create(0, "a", 4096) + describe(0, 1, array("", 8, 4096))
    + describe(0, 1, array("a\1", 0, 1)) + describe(0, 1, array("x" * 256, 0, 1))
    + describe(0, 1, array("", 0, *([1] * 33))) + describe(0, 1, array("", 0, 1, code=3))
    + describe(0, 1, array("", 0, 1, code=300)) + describe(0, 1, array("w1", 1, 1)) + describe(0, 1),
    "open-waits": BOTH + open_(1, "a", READ, FOREVER) + create(0, "a", 100, OPEN_TO_ALL) + publish(0, 1, SEALED)
    + close(1, 2),
    "open-is-late": BOTH + open_(0, "a", READ, 60000) + stat(1, "b", 60000) + do(0, LATE) + say(1, STATUS),
    "stat-waits": BOTH + stat(1, "a", FOREVER) + create(0, "a", 100, OPEN_TO_ALL) + publish(0, 1, SHARED),
    "waits-without-a-right": BOTH + open_(1, "a", READ, FOREVER) + create(0, "a", 100) + publish(0, 1, SHARED),
    "creator-hangs-up": BOTH + create(0, "a") + do(0, DISCONNECT) + stat(1, "a") + list_(1) + create(1, "a")
    + do(0, DIE) + do(0, CONNECT, b"\4") + say(0, POOLS),
    "creator-hangs-up-while-allocating": BOTH + create(0, "a", 9999, op=HASTY) + do(0, DISCONNECT)
    + create(1, "a", 9999),
    "creator-is-deaf": BOTH + do(0, DEAF) + create(0, "a") + create(1, "a", 1, OPEN_TO_ALL),
    "reader-dies": BOTH + create(0, "a", 1, OPEN_TO_ALL, number(6, 1)) + publish(0, 1, SHARED)
    + open_(1, "a", WRITE) + close(0, 1) + do(1, DISCONNECT) + list_(0) + say(0, POOLS) + do(1, DIE) + stat(0, "a"),
    "a-writer-dies": BOTH + create(0, "a", 1, OPEN_TO_ALL) + publish(0, 1, SHARED) + open_(1, "a", WRITE)
    + do(1, DIE) + stat(0, "a") + say(0, 5, data(1, "a"), number(4, 1)) + say(0, CLEAN, data(1, "a"), number(2, 2))
    + open_(0, "a") + say(0, CLEAN, data(1, "a"), number(2, 1)) + say(0, 5, data(1, "a"), number(4, 1)),
    "a-wait-for-a-clean-one": BOTH + create(0, "a", 1, OPEN_TO_ALL) + publish(0, 1, SHARED) + open_(1, "a", WRITE)
    + do(1, DIE) + do(1, CONNECT, b"\5") + say(1, 5, data(1, "a"), number(3, FOREVER), number(4, 1))
    + say(0, CLEAN, data(1, "a")),
    "a-watch-of-names": BOTH + watch(1, watched("a"), watched("b")) + create(0, "a", 1, OPEN_TO_ALL)
    + publish(0, 1, SHARED) + watch(1, watched("a", None, 1, 0x202), watched("b")) + unlink(0, "a")
    + watch(1, watched("a")) + create(0, "a") + publish(0, 2, SHARED) + watch(0, watched("a", None, 1, 0x202)),
    "a-watch-of-buffers": BOTH + create(0, "a", 1, OPEN_TO_ALL) + watch(0, watched(None, 1, 0, 0x100))
    + publish(0, 1, SHARED) + open_(1, "a", WRITE) + watch(1, watched(None, 1, 0, 0x202)) + do(0, DIE)
    + watch(1, watched(None, 1, 0, 0x306)) + do(0, CONNECT, b"\4") + watch(0, watched(None, 1, 0, 0x306), wait=5)
    + do(0, LATE) + close(1, 2) + watch(1, watched(None, 1, 0, 16)) + do(1, DISCONNECT),
    "a-holder-watches-its-unlinked-buffer": BOTH + create(0, "a", 1, OPEN_TO_ALL) + publish(0, 1, SHARED)
    + open_(1, "a") + open_(1, "a") + unlink(0, "a") + watch(1, watched(None, 1, 0, 0x30A)) + close(0, 1)
    + do(1, DIE),
    "wrong-watches": BOTH + watch(0) + say(0, 14) + watch(0, data(1, b"")) + watch(0, watched("a//b"))
    + watch(0, watched(None, 0)) + watch(0, data(1, data(1, "a") + number(2, 1))) + watch(0, *[watched("a")] * 257)
    + watch(0, watched(None, 77), wait=0) + watch(0, watched("~2000/x"), wait=0) + hello(0)
    + do(0, DEAF) + watch(0, watched("a")) + create(1, "a", 1, OPEN_TO_ALL) + publish(1, 1, SEALED),
    "dropped": BOTH + create(0, "a", 1, OPEN_TO_ALL) + open_(1, "a", READ, FOREVER) + close(0, 1) + stat(0, "a")
    + create(0, "a") + close(0, 2, number(3, 1)) + open_(0, "a") + create(0, "~/b") + do(0, DIE) + open_(0, "~/b")
    + stat(1, "a") + do(1, LATE),
    "flush": BOTH + create(0, "a", 4096) + close(0, 1) + say(1, FLUSH_POOLS) + create(0, "b", 4096, data(2, "small"))
    + close(0, 2) + say(1, FLUSH_POOLS, data(1, "small")) + say(0, FLUSH_POOLS, data(1, "small"))
    + say(0, FLUSH_POOLS, data(1, "nosuch")) + say(0, FLUSH_POOLS, data(1, "gpu0")),
    "hangs-up-in-a-flush": BOTH + create(0, "a", 4096) + close(0, 1) + say(1, FLUSH_POOLS, op=HASTY)
    + do(1, DISCONNECT) + say(0, FLUSH_POOLS),
    "waiter-hangs-up": BOTH + open_(1, "a", READ, FOREVER) + do(1, DIE) + create(0, "a") + publish(0, 1, SEALED),
    "an-admin-looks": BOTH + create(0, "~/a") + create(0, "b", 5000) + publish(0, 2, SEALED) + do(1, DIE)
    + do(1, CONNECT, b"\3") + hello(1) + stat(1, "~1000/a") + list_(1, 0, "~") + list_(1, 1)
    + unlink(1, "~1000/a") + say(1, STATUS),
    "private-names": BOTH + create(0, "~/a", 1, OPEN_TO_ALL) + publish(0, 1, SEALED) + open_(1, "~1000/a")
    + create(1, "~1000/b") + create(1, "~/a"),
    "limits": BOTH + b"".join(create(0, "a%d" % i, 4096) for i in range(8)) + create(1, "b", 1 << 19)
    + create(1, "c", 1 << 19),
    "a-rename": BOTH + create(0, "a", 1, OPEN_TO_ALL) + rename(0, "a", "b") + publish(0, 1, SHARED)
    + watch(1, watched("a", None, 1, 0x202), watched("b")) + rename(0, "a", "b") + rename(0, "b", "b")
    + rename(0, "a", "c") + rename(0, "b", "a//b") + rename(1, "b", "c") + rename(0, "b", "~/b")
    + open_(1, "~1000/b") + rename(0, "~/b", "~2000/b") + say(0, 17) + say(0, 17, data(1, "a")) + unlink(0, "~/b"),
    "a-rename-replaces": BOTH + create(0, "a", 1, OPEN_TO_ALL) + publish(0, 1, SHARED) + open_(1, "a")
    + create(0, "b", 1, OPEN_TO_ALL, number(6, 1)) + publish(0, 2, SEALED) + rename(0, "b", "a")
    + rename(1, "b", "a", 1) + watch(1, watched("a", None, 1, 0x202)) + rename(0, "b", "a", 1) + open_(1, "a")
    + create(1, "c") + publish(1, 5, SEALED) + rename(1, "c", "a", 1) + rename(0, "a", "c", 1)
    + create(0, "d") + rename(0, "a", "d", 1) + close(1, 2) + close(0, 1) + do(0, DIE) + list_(1),
    "a-rename-serves-who-waits": BOTH + open_(1, "b", READ, FOREVER) + create(0, "a", 1, OPEN_TO_ALL)
    + publish(0, 1, SHARED) + rename(0, "a", "b") + rename(0, "b", "a") + close(1, 2)
    + stat(1, "b", FOREVER) + rename(0, "a", "b"),
    "a-publish-under-another-name": BOTH + create(0, "a", 1, OPEN_TO_ALL) + create(0, "b", 1, OPEN_TO_ALL)
    + publish(0, 1, SHARED) + publish_as(0, 2, SEALED, "a", 0) + publish_as(0, 2, SEALED, "a//b")
    + publish_as(0, 2, SEALED, "~2000/x") + open_(1, "c", READ, FOREVER) + publish_as(0, 2, SEALED, "c", 0)
    + publish_as(0, 2, SEALED, "d") + create(0, "e") + unlink(0, "e") + publish_as(0, 4, SHARED, "a")
    + create(0, "f") + publish_as(0, 5, SHARED, "f", 0) + list_(1),
    "waits-while-it-is-filled": BOTH + open_while_filling(1, "a") + create(0, "a", 1, OPEN_TO_ALL)
    + open_while_filling(1, "a") + close(0, 1) + create(0, "a", 1, OPEN_TO_ALL) + open_while_filling(1, "a")
    + publish_as(0, 2, SHARED, "b") + create(0, "a", 1, OPEN_TO_ALL) + open_while_filling(1, "a")
    + publish(0, 3, SHARED) + open_while_filling(1, "a", 0) + create(0, "c", 1, OPEN_TO_ALL)
    + open_while_filling(1, "c") + do(0, DISCONNECT),
    "waits-while-it-is-dirty": BOTH + create(0, "a", 1, OPEN_TO_ALL) + publish(0, 1, SHARED) + open_(1, "a", WRITE)
    + do(1, DIE) + do(1, CONNECT, b"\5") + say(1, 5, data(1, "a"), number(3, FOREVER), number(4, 1), number(5, 1))
    + create(0, "b", 1, OPEN_TO_ALL) + publish(0, 3, SHARED) + rename(0, "b", "a", 1)
    + say(1, 5, data(1, "a"), number(3, FOREVER), number(5, 1)) + unlink(0, "a"),
    "attributes-later": BOTH + create(0, "a", 1, data(7, data(1, "k") + data(2, "v")))
    + attrs(0, 1, ("k", "w"), ("l", "x"), ("m", "")) + attrs(0, 1, ("k", ""), ("l", "")) + attrs(0, 1, ("", "x"))
    + attrs(0, 1, ("n", "y" * 4096)) + attrs(0, 1, *(("n%d" % i, "y") for i in range(65)))
    + attrs(0, 1, ("n", "y"), ("o", "")) + attrs(1, 1, ("n", "z")) + publish(0, 1, SEALED) + attrs(0, 1, ("n", "z"))
    + stat(0, "a"),
    "a-full-pool": BOTH + create(0, "a", 1 << 19) + create(1, "b", 1 << 19) + create(1, "c", 1 << 16)
    + create(0, "d", 1 << 16, data(2, "small")) + create(0, "e", 1, data(2, "small")) + close(0, 1) + close(1, 2)
    + create(1, "f", 1 << 18),
    "events": BOTH + say(0, 19) + events(1, 2**64 - 1, FOREVER) + create(0, "a", 1, OPEN_TO_ALL)
    + publish(0, 1, SHARED) + events(1, 2, FOREVER, 1 << 4) + open_(0, "a") + open_(0, "b//") + events(1, 0, 5)
    + events(0, 0, FOREVER) + rename(0, "a", "~/a") + rename(0, "~/a", "b") + create(0, "b")
    + events(1) + events(1, 2**63, FOREVER) + unlink(0, "b") + close(0, 1) + do(0, DIE) + events(1, 3, FOREVER)
    + do(1, DISCONNECT),
    "other-pools": BOTH + create(0, "a", 4096, data(2, "small")) + create(1, "b", 4096, data(2, "small"))
    + create(0, "c", 4096, data(2, "gpu0")) + create(0, "d", 4096, data(2, "nosuch")) + create(0, "e", 1 << 21)
    + create(0, "f", 1 << 17, data(2, "small")),
    "pending": BOTH + b"".join(create(0, "a", 4096) + close(0, i) for i in range(1, 5)) + say(0, POOLS)
    + do(0, FLUSH) + say(0, POOLS),
    "groups-and-modes": BOTH + create(0, "a", 1, number(4, 0o640), number(5, 1000)) + publish(0, 1, SHARED)
    + create(0, "b", 1, number(5, 7)) + create(0, "c", 1, number(4, 0o777)) + open_(1, "a")
    + open_(0, "a", WRITE) + open_(0, "a", READ),
    "many-arrays": BOTH + create(0, "a", 65536, OPEN_TO_ALL)
    + describe(0, 1, *(array("layer/%d" % i, 256 * i, 8, 8) for i in range(60)))
    + describe(0, 1, *(array("more/%d" % i, 256 * i, 8, 8) for i in range(60)))
    + describe(0, 1, *(array("n" * 200 + "%d" % i, 256 * i, 8) for i in range(60)))
    + publish(0, 1, SEALED) + stat(1, "a"),
    "metrics": say(0, METRICS) + BOTH + say(0, METRICS) + create(0, "a", 4096) + publish(0, 1, SHARED) + open_(1, "a", WRITE)
    + open_(0, "b") + open_(0, "b", READ, 60000) + do(0, LATE) + do(1, DIE) + say(0, METRICS) + say(0, METRICS, number(1, 1)),
    "a-lease-is-away": BOTH + create(0, "a", 4096, OPEN_TO_ALL) + suspend(0, 1) + publish(0, 1, SHARED) + open_(1, "a", WRITE)
    + resume(1, 2) + suspend(1, 2) + suspend(1, 2) + suspend(0, 2) + stat(1, "a") + list_(0) + say(0, METRICS) + unlink(0, "a")
    + close(0, 1) + resume(1, 2) + resume(1, 2) + suspend(1, 2) + events(1) + do(1, DISCONNECT) + do(1, DIE) + say(0, POOLS)
    + say(0, 25) + say(0, 26) + resume(0, 9) + create(0, "b", 1) + describe(0, 3, array("", 0, 1)) + publish(0, 3, SEALED)
    + resume(0, 3) + suspend(0, 3) + resume(0, 3),
    "a-writer-dies-away": BOTH + create(0, "a", 1, OPEN_TO_ALL, data(2, "small")) + publish(0, 1, SHARED)
    + open_(1, "a", WRITE) + suspend(1, 2) + do(1, DIE) + stat(0, "a") + suspend(0, 1) + do(0, DEAF) + resume(0, 1),
    "no-stream-is-away": BOTH + a_stream(0, "a") + open_(1, "a") + suspend(0, 1) + suspend(1, 2) + resume(1, 2) + stat(1, "a"),
    "an-eviction": BOTH + an_evicted(0, "a") + evict(0, "a") + resume(0, 1) + stat(1, "a") + list_(0) + open_(1, "a")
    + open_(1, "a", READ, 50) + do(0, LATE) + open_(1, "a", READ, FOREVER) + create(0, "r", 4096) + open_twin(0, 1)
    + restore(0, 3, 1) + close(0, 3) + close(0, 4) + resume(0, 1) + say(0, METRICS) + events(0) + unlink(0, "a") + do(0, DIE),
    "away-opens": BOTH + an_evicted(0, "a") + open_away(0, "a") + open_away(1, "a") + resume(0, 3) + resume(1, 4)
    + open_twin(1, 4) + create(1, "r", 4096) + restore(1, 6, 4) + close(0, 1) + unlink(0, "a") + open_twin(0, 3)
    + create(0, "s", 4096) + restore(0, 8, 3) + do(1, DIE) + do(0, DIE),
    "wrong-evictions": BOTH + create(0, "a", 4096, OPEN_TO_ALL) + evict(0, "a") + publish(0, 1, SEALED) + evict(0, "a")
    + keep(0, "a", 5) + create(0, "t", 4096) + create(0, "u", 1) + twin(0, 3, 1) + twin(0, 2, 1) + twin(0, 2, 9) + twin(0, 3, 2)
    + restore(0, 3, 1) + evict(0, "a") + evict(1, "a") + evict(0, "a", number(2, 9)) + suspend(0, 1) + evict(0, "a")
    + restore(0, 3, 1) + say(0, 4, number(1, 3), number(2, SEALED), number(5, 1), number(6, 1)) + say(0, 27) + say(0, 28)
    + open_twin(0, 9) + open_twin(0, 3) + evict(0, "b") + keep(1, "a", 5) + say(0, 4, number(1, 3), number(2, SHARED), number(6, 1)),
    "room-for-one": BOTH + create(0, "a", 40000, data(2, "small"), OPEN_TO_ALL) + publish(0, 1, SEALED) + create(0, "t", 40000)
    + twin(0, 2, 1) + close(0, 2) + keep(0, "a", FOREVER) + create(0, "b", 40000, data(2, "small")) + keep(0, "a", 0, 3)
    + create(0, "c", 40000, data(2, "small"), op=HASTY) + suspend(0, 1) + do(0, LATE) + stat(0, "a") + resume(0, 1)
    + open_(1, "a", READ, 5) + do(1, LATE) + close(0, 1) + say(0, METRICS) + do(0, DIE),
    "a-parked-process": BOTH + do(1, DISCONNECT) + do(1, CONNECT, b"\4") + create(0, "a", 4096, OPEN_TO_ALL) + park(1, ASK, 1, 3)
    + park(0, PROMISE, 1, 1) + park(1, ASK, 1, 3) + watch(0, watched(buffer=0), wait=5) + publish(0, 1, SEALED) + suspend(0, 1)
    + park(1, ASK, 1, 3) + park(1, FREEZE, 1, 3) + park(1, ASK, 1, 3) + park(1, DONE, 1, 3) + park(1, ASK, 1, 3) + stat(1, "a")
    + say(1, METRICS) + events(1) + park(1, THAW, 1, 3) + park(1, BACK, 1, 3) + resume(0, 1) + park(1, FREEZE, 1, 3)
    + park(1, UNASK, 1, 3) + suspend(0, 1) + park(1, ASK, 1, 3) + park(1, FREEZE, 1, 3) + park(1, STUCK, 1, 3, "x") + do(1, DIE)
    + say(0, METRICS) + do(0, DISCONNECT) + do(0, DIE),
    "wrong-parks": BOTH + park(0, PROMISE, 1, 1, "NCCL") + park(1, ASK, 1, 2) + do(1, DISCONNECT) + do(1, CONNECT, b"\4")
    + park(1, ASK, 1, 3) + park(1, ASK, 1, 2) + park(1, 99, 1, 3) + park(1, ASK, 10, 3) + park(1, STUCK, 1, 3, "x" * 200) + say(1, 31)
    + park(0, PROMISE, 1, 1) + a_stream(0, "a") + park(1, ASK, 1, 3) + park(1, DONE, 1, 3) + resume(0, 1) + do(0, DIE)
    + park(1, THAW, 1, 3),
    "a-stream": BOTH + a_stream(0, "a", number(4, 2)) + page(0, 1, 0) + page(0, 1, 1) + open_(1, "a") + join(1, 2)
    + page(1, 2, 0) + page(1, 2, 2) + page(0, 1, 2) + say(1, STREAMS) + say(0, STREAMS, number(1, 1), data(2, "a"))
    + open_(1, "a") + join(1, 3, 3, 3) + page(1, 3, 1) + page(1, 3, 2) + open_(1, "a") + join(1, 4) + stat(1, "a")
    + close(1, 2) + join(1, 4, 2) + drop(0, 1, 0, 3) + drop(0, 1, 1, 9) + say(1, STREAMS) + close(1, 4)
    + drop(1, 3) + drop(1, 3) + close(0, 1) + say(1, STREAMS) + unlink(0, "a"),
    "a-producer-dies": BOTH + a_stream(0, "a") + open_(1, "a") + join(1, 2) + produce(1, "a") + produce(1, "a", FOREVER)
    + do(0, DIE) + page(1, 3, 0) + open_(1, "a", WRITE) + drop(1, 3, 0, 1) + drop(1, 3) + produce(1, "a")
    + say(1, METRICS),
    "readers-die": BOTH + a_stream(0, "a", number(4, 64), number(5, 2), number(6, 1)) + open_(1, "a") + join(1, 2, 3)
    + open_(1, "a") + join(1, 3) + do(1, DISCONNECT) + say(0, STREAMS) + do(0, LATE) + do(1, DIE) + say(0, STREAMS)
    + do(1, CONNECT, b"\5") + open_(1, "a") + join(1, 4, 2) + do(1, DEAF) + page(1, 4, 0) + do(0, DIE),
    "a-successor-is-deaf": BOTH + a_stream(0, "a") + produce(1, "a", FOREVER) + do(1, DEAF) + do(0, DIE)
    + do(0, CONNECT, b"\4") + produce(0, "a") + say(0, STREAMS),
    "wrong-streams": BOTH + create(0, "a", 4096) + stream(0, 1, 1) + stream(0, 1, 4097) + stream(0, 1, 4, 1025)
    + stream(0, 1, 2, 1 << 63) + stream(0, 1, 4, 1024, number(4, 65)) + stream(0, 1, 4, 1024, number(5, 3))
    + stream(1, 1) + stream(0, 1, 4, 1024, number(7, 5)) + stream(0, 1) + publish(0, 1, SEALED) + join(0, 1)
    + page(0, 1, 0) + publish(0, 1, SHARED) + join(0, 1) + page(0, 1, 9) + page(0, 1, 2) + open_(0, "a") + page(0, 2, 0)
    + join(0, 2, 9) + join(0, 2, 1, 4) + join(0, 2) + join(0, 2) + join(0, 2, 2) + page(0, 2, 1) + page(0, 2, 3)
    + drop(0, 2, 0) + drop(0, 1, 99) + say(0, 20) + say(0, 21) + say(0, 22) + say(0, 23) + drop(0, 1, 0, 1) + page(0, 2, 2)
    + create(0, "b") + publish(0, 3, SHARED) + join(0, 3) + page(0, 3, 0) + drop(0, 3) + produce(0, "b") + produce(0, "c", 5)
    + do(0, LATE) + close(0, 1) + produce(0, "a"),
    "too-many-streams": BOTH + b"".join(
        create(0, "a%d" % i, 4096) + stream(0, i + 1, 2, 8, number(4, 1)) + publish(0, i + 1, SHARED) for i in range(4)
    ) + b"".join(open_(0, "a0") + join(0, i) for i in range(4, 9)),
    "wrong-words": say(0, STATUS) + say(0, 1, number(1, 5), number(2, 9)) + say(0, 1) + hello(0) + hello(0)
    + say(0, 2) + create(0, "") + create(0, "a//b") + create(0, "a", 0) + create(0, "a", 5, data(2, "no such pool"))
    + say(0, 3) + publish(0, 9, SEALED) + say(0, 4, number(1, 1)) + say(0, 5) + open_(0, "a", 9) + say(0, 6)
    + say(0, 7) + say(0, 8) + say(0, 999) + do(0, REQUEST, b"\3\0\x0a\xff\xff") + do(0, REQUEST, b"\0\0"),
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in SEEDS]
        for path, content in zip(paths, SEEDS.values()):
            with open(path, "wb") as f:
                f.write(content)
        subprocess.run([os.path.join(HERE, "corpus.sh"), "add", "request", *paths], check=True)
