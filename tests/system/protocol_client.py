#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A client of gpushmd that was written from gpushm-protocol(7) alone.

No package but Python's own: varints by hand, fds by socket.recv_fds, memory by mmap. If the page is
wrong or lacks something, this client fails where libgpushm would not notice. It starts a daemon
with one host pool from the build folder ($BUILD, else build) and ends it again.
"""
import fcntl
import mmap
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import traceback

DEADLINE = 60  # seconds; to fail rather than to hang, never to be right
FILLING, SEALED, SHARED = 1, 2, 3
READ, WRITE = 1, 2
SEAL, SHRINK, GROW, SEAL_WRITE, FUTURE_WRITE = 1, 2, 4, 8, 16
BAD_REQUEST, UNKNOWN_VERB, VERSION, NAME, NOT_FOUND, EXISTS = 1, 2, 3, 4, 5, 6
NOT_PUBLISHED, TIMED_OUT, LIMIT = 8, 9, 10
TOO_LARGE, LAYOUT, DTYPE, STATE, READ_ONLY, NO_LEASE, EVICTED, NO_COPY = 12, 15, 16, 17, 18, 19, 27, 29

# ---- ENCODING ----


def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def zigzag(n):
    return varint(n << 1 if n >= 0 else (-n << 1) - 1)


def unzigzag(n):
    return n >> 1 if n & 1 == 0 else -(n >> 1) - 1


def number(field, n):
    return varint(field << 3) + varint(n)


def data(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def read_varint(buf, at):
    n = shift = 0
    while True:
        byte = buf[at]
        at += 1
        n |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return n, at


def fields(buf):
    """Field number -> list of values: numbers, or bytes."""
    out, at = {}, 0
    while at < len(buf):
        key, at = read_varint(buf, at)
        if key & 7 == 0:
            value, at = read_varint(buf, at)
        elif key & 7 == 2:
            size, at = read_varint(buf, at)
            value, at = buf[at:at + size], at + size
        else:
            raise ValueError(f"wire type {key & 7}, of which the page knows none")
        out.setdefault(key >> 3, []).append(value)
    return out


def numbers(packed):
    out, at = [], 0
    while at < len(packed):
        value, at = read_varint(packed, at)
        out.append(value)
    return out


def first(message, field, default=None):
    """A number that is 0 is not said."""
    return message.get(field, [default])[0]


# ---- requests ----

HELLO, CREATE, DESCRIBE, PUBLISH, OPEN, CLOSE, UNLINK, STAT, LIST, POOLS, STATUS = range(1, 12)
WATCH, RECLAIM, METRICS, SUSPEND, RESUME, EVICT, KEEP = 14, 16, 18, 25, 26, 27, 28


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message.decode()}")
        self.code = code
        self.message = message


class Connection:
    def __init__(self, path, greet=True):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(path)
        _, self.server, _ = struct.unpack("3i", self.socket.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        self.board = None
        if greet:
            self.hello = self.ask(HELLO, number(1, 1) + number(2, 1) + data(3, b"protocol_client"), 2)

    def close(self):
        self.socket.close()

    def send(self, verb, body):
        self.socket.send(data(verb, body))

    def receive(self, result):
        """The reply's fields; its fds too where it is an attach. HELLO's is mapped: the board."""
        frame, fds, flags, _ = socket.recv_fds(self.socket, 65536, 2)
        lawful = flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) == 0
        reply = fields(frame)
        kind, body = next(iter(reply.items()))
        message = fields(body[0])
        expected = first(message, 9, 0) if kind == 3 else first(message, 10, 0) if kind == 2 else 0
        if not lawful or len(reply) != 1 or len(fds) != expected:
            for fd in fds:
                os.close(fd)
            raise ValueError("the daemon breaks the attach law")
        if kind == 1:
            raise Refused(first(message, 1), first(message, 2, b""))
        if kind != result:
            raise ValueError(f"reply {kind}, expected {result}")
        if kind == 2 and fds:
            self.board = Board(self, fds[0])
        return (message, fds) if kind == 3 else message

    def ask(self, verb, body, result):
        self.send(verb, body)
        return self.receive(result)

    def attach(self, verb, body):
        self.send(verb, body)
        return Buffer(self, *self.receive(3))


# ---- ATTACHING ----


def check_file(connection, fd, size, seals):
    st = os.fstat(fd)
    have = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    if not stat.S_ISREG(st.st_mode) or st.st_size != size or have & seals != seals:
        raise ValueError("not the file that was promised")
    if st.st_uid != connection.server:
        raise ValueError("a file of somebody else")
    return have


class Buffer:
    """An attach to a host buffer: its memory, and its table where there is one."""

    def __init__(self, connection, m, fds):
        self.connection = connection
        self.id, self.lease, self.pool = first(m, 1), first(m, 2), first(m, 3)
        self.bytes, allocated = first(m, 4), first(m, 5)
        self.state, self.access, self.digest = first(m, 6), first(m, 7), first(m, 13)
        self.slot = first(m, 18)
        if first(m, 10) != 1 or first(m, 11, 0):
            raise ValueError("a host buffer has a memory_fd and no pool_fd")
        self.seals = check_file(connection, fds[0], allocated, SHRINK | GROW)
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if self.access == WRITE else 0)
        self.memory = mmap.mmap(fds[0], allocated, mmap.MAP_SHARED, prot)
        self.widened = self.access == READ and can_map_writable(fds[0], allocated)
        self.table = None
        if first(m, 12):
            size = first(m, 14)
            check_file(connection, fds[1], size, SEAL | SHRINK | GROW | SEAL_WRITE)
            self.table = Table(mmap.mmap(fds[1], size, mmap.MAP_SHARED, mmap.PROT_READ)[:], self.bytes)
        for fd in fds:
            os.close(fd)

    def close(self):
        self.memory.close()
        self.connection.ask(CLOSE, number(1, self.lease), 6)


# ---- STATUS PAGE ----


class Board:
    """Words of buffers, read from the page. Python reads 32 aligned bits at once."""

    def __init__(self, connection, fd):
        size = 1 << 24
        check_file(connection, fd, size, SHRINK | GROW)
        self.writable = can_map_writable(fd, size)
        self.image = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(fd)
        magic, version, self.used, self.generation = struct.unpack_from("<8s3I", self.image)
        if (magic, version) != (b"gphboard", 1):
            raise ValueError("no board")

    def word(self, slot, buffer):
        """None where the slot is another buffer's."""
        id_, word, zero = struct.unpack_from("<QII", self.image, 64 + 16 * slot)
        if zero:
            raise ValueError("slot")
        return word if id_ == buffer else None


def can_map_writable(fd, size):
    try:
        mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE).close()
        return True
    except PermissionError:
        return False


# ---- LAYOUT DIGEST ----


def fnv1a(bytes_, h=0xCBF29CE484222325):
    for byte in bytes_:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


class Array:
    def __init__(self, name, dtype, shape, strides, offset, descr=b""):
        self.name, self.dtype, self.shape, self.strides = name, dtype, shape, strides
        self.offset, self.descr = offset, descr

    def message(self):
        code, bits, lanes, itemsize = self.dtype
        out = data(1, self.name)
        out += data(2, number(1, code) + number(2, bits) + number(3, lanes) + number(4, itemsize))
        out += data(3, b"".join(map(varint, self.shape)))
        out += data(4, b"".join(map(zigzag, self.strides)))
        return data(2, out + number(5, self.offset))

    def digested(self):
        return (struct.pack("<Q", len(self.name)) + self.name + struct.pack("<BBHI", *self.dtype)
                + struct.pack("<Q", len(self.descr)) + self.descr
                + struct.pack("<Q", len(self.shape)) + struct.pack(f"<{len(self.shape)}Q", *self.shape)
                + struct.pack(f"<{len(self.strides)}q", *self.strides)
                + struct.pack("<Q", self.offset))

    def same(self, other):
        return other is not None and self.digested() == other.digested()


# The page's own example.
EXAMPLE = [Array(b"w", (2, 32, 1, 0), (2, 3), (12, 4), 0), Array(b"b", (1, 8, 1, 0), (3,), (1,), 256)]
EXAMPLE_DIGEST = 0x0B02C642EE3B8662

# ---- TABLE ----


class Table:
    def __init__(self, image, buffer_bytes):
        self.image = image
        (magic, version, self.arrays, self.slots, self.attrs, size, of, self.digest, self.entries_at,
         self.slots_at, self.attrs_at, self.text_at) = struct.unpack_from("<8s4I7Q", image)
        if (magic, version, size, of) != (b"gpushmtb", 1, len(image), buffer_bytes):
            raise ValueError("no table of this buffer")
        if self.slots < 2 or self.slots & (self.slots - 1) or self.slots < 2 * self.arrays:
            raise ValueError("slots")

    def piece(self, at, size):
        if at > len(self.image) or size > len(self.image) - at:
            raise ValueError("an offset outside of the image")
        return self.image[at:at + size]

    def entry(self, index):
        """(hash of the name, array)"""
        (hash_, name_at, descr_at, dims_at, offset, name_len, descr_len, ndim, itemsize, code, bits,
         lanes, zero) = struct.unpack("<5Q4I2BHI", self.piece(self.entries_at + 64 * index, 64))
        if zero or dims_at % 8:
            raise ValueError("entry")
        dims = struct.unpack(f"<{ndim}Q{ndim}q", self.piece(dims_at, 16 * ndim))
        return hash_, Array(self.piece(name_at, name_len), (code, bits, lanes, itemsize), dims[:ndim],
                            dims[ndim:], offset, self.piece(descr_at, descr_len))

    def find(self, name):
        h = fnv1a(name)
        i = h % self.slots
        for _ in range(256):
            (slot,) = struct.unpack("<I", self.piece(self.slots_at + 4 * i, 4))
            if slot == 0:
                return None
            hash_, array = self.entry(slot - 1)
            if hash_ == h and array.name == name:
                return array
            i = (i + 1) % self.slots
        raise ValueError("a search without end")

    def attributes(self):
        out = {}
        for i in range(self.attrs):
            key_at, value_at, key_len, value_len = struct.unpack(
                "<2Q2I", self.piece(self.attrs_at + 24 * i, 24))
            out[self.piece(key_at, key_len)] = self.piece(value_at, value_len)
        return out


# ---- the tests ----

checks = failures = 0


def check(right, what):
    global checks, failures
    checks += 1
    if not right:
        failures += 1
        print(f"failed: {what}")


def check_refused(code, what, call, *args):
    try:
        call(*args)
        check(False, f"{what}: it was not refused")
    except Refused as refusal:
        check(refusal.code == code and refusal.message, f"{what}: {refusal}, expected {code}")


def open_fds():
    return len(os.listdir("/proc/self/fd"))


def create(connection, name, size, more=b""):
    return connection.attach(CREATE, data(1, name) + number(3, size) + more)


def publish(buffer, state):
    body = number(1, buffer.lease) + number(2, state)
    return first(buffer.connection.ask(PUBLISH, body, 5), 1)


def test_hello_negotiates_a_version_and_tells_the_limits(path):
    c = Connection(path, greet=False)
    check_refused(BAD_REQUEST, "a verb before HELLO", c.ask, STATUS, b"", 10)
    check_refused(VERSION, "a version from afar", c.ask, HELLO, number(1, 7) + number(2, 9), 2)
    hello = c.ask(HELLO, number(1, 1) + number(2, 9), 2)
    limits = fields(first(hello, 6))
    check(first(hello, 1) == 1 and len(first(hello, 2)) == 16, "version or the daemon's id")
    check(first(hello, 4, 0) == os.getuid(), "HELLO tells another uid")
    check([first(limits, i) for i in range(1, 7)]
          == [65536, 255, 32, 262144, 4096, 64 << 20], "limits")
    pools = [fields(p) for p in hello[7]]
    check([(first(p, 2), first(p, 3), first(p, 16)) for p in pools] == [(b"host", 1, 1)], "pools")
    check_refused(BAD_REQUEST, "HELLO twice", c.ask, HELLO, number(1, 1) + number(2, 1), 2)
    check_refused(UNKNOWN_VERB, "verb 99", c.ask, 99, b"", 6)
    c.socket.send(bytes.fromhex("5200"))
    check(len(c.receive(9)[1]) == 1, "the two bytes of POOLS are not understood")
    c.close()


def make_example(c):
    """The page's example, published sealed; its bytes are known."""
    attrs = data(7, data(1, b"source") + data(2, b"\x00\xff")) + data(7, data(1, b"empty") + data(2, b""))
    b = create(c, b"page/example", 1024, number(4, 0o644) + attrs)
    check((b.state, b.access, b.bytes, b.table) == (FILLING, WRITE, 1024, None), "CREATE's attach")
    check(b.memory[:] == bytes(len(b.memory)), "fresh memory is not zero")
    described = c.ask(DESCRIBE, number(1, b.lease) + b"".join(a.message() for a in EXAMPLE), 4)
    check(first(described, 1) == 2, "DESCRIBE counts other arrays")
    b.memory[0:24] = struct.pack("<6f", *range(6))
    b.memory[256:259] = b"abc"
    digest = publish(b, SEALED)
    check(fnv1a(b"w") == 0xAF63EA4C86020456, "the hash of a name is not the page's")
    check(fnv1a(EXAMPLE[0].digested()) == 0x6CE449A0FC499BD9, "the first array's hash is not the page's")
    check(digest == EXAMPLE_DIGEST, f"digest {digest:x} is not the page's")
    return b


def test_a_second_attach_reads_what_was_published(path, made):
    c = Connection(path)
    b = c.attach(OPEN, data(1, b"page/example") + number(2, READ))
    check((b.id, b.state, b.access) == (made.id, SEALED, READ), "OPEN's attach")
    check(b.lease != made.lease, "two attaches have one lease")
    check(b.seals & (SEAL | FUTURE_WRITE) == SEAL | FUTURE_WRITE, "a sealed buffer's memory is not sealed")
    check(not b.widened, "a reader's fd can be mapped writable")
    check(b.memory[:] == made.memory[:], "the bytes differ")
    check(struct.unpack_from("<6f", b.memory) == (0, 1, 2, 3, 4, 5), "floats are lost")
    table = b.table
    check(table.digest == b.digest == EXAMPLE_DIGEST, "digests differ")
    check(table.arrays == 2 and all(a.same(table.entry(i)[1]) for i, a in enumerate(EXAMPLE)),
          "the table's entries are not what was described")
    check(all(a.same(table.find(a.name)) for a in EXAMPLE), "a name is not found by its hash")
    check(table.find(b"nothing") is None, "a name that is not there is found")
    check(table.attributes() == {b"source": b"\x00\xff", b"empty": b""}, "attributes")
    check_refused(READ_ONLY, "a sealed buffer for writing", c.ask, OPEN,
                  data(1, b"page/example") + number(2, WRITE), 3)
    b.close()
    check_refused(NO_LEASE, "a lease twice", c.ask, CLOSE, number(1, b.lease), 6)
    c.close()


def test_lists_and_stats_tell_what_exists(c, made):
    listed = c.ask(LIST, data(2, b"page/"), 8)
    told = [fields(m) for m in listed.get(1, [])]
    check([first(m, 2) for m in told] == [b"page/example"] and not first(listed, 2), "LIST")
    m = c.ask(STAT, data(1, b"page/example") + number(3, 1), 7)
    check((first(m, 1), first(m, 4), first(m, 6), first(m, 7, 0), first(m, 9), first(m, 14)) ==
          (made.id, 1024, SEALED, os.getuid(), 0o644, 2), "STAT")
    check(first(m, 15) == EXAMPLE_DIGEST and first(m, 21) == b"host", "STAT's digest or pool")
    check([first(fields(a), 1) for a in m[19]] == [b"source", b"empty"], "STAT's attributes")
    holders = [fields(h) for h in m[20]]
    check([(first(h, 1), unzigzag(first(h, 2)), first(h, 5)) for h in holders] ==
          [(made.lease, os.getpid(), READ)], "STAT's holders")
    status = c.ask(STATUS, b"", 10)
    usage = [fields(u) for u in status[13] if first(fields(u), 1, 0) == os.getuid()]
    check(first(status, 6) == 1 and first(status, 7) == 1 and first(usage[0], 2) == 1024, "STATUS")
    metrics = c.ask(METRICS, b"", 18)
    verbs = {first(fields(v), 1): fields(v) for v in metrics[1]}
    check(b"stat" in verbs and first(metrics, 5, 0) + first(metrics, 6, 0) == 1, "METRICS")
    bounds = numbers(first(metrics, 2))
    check(len(numbers(first(verbs[b"stat"], 3))) == len(bounds) + 1, "METRICS' buckets")
    pool = fields(c.ask(POOLS, b"", 9)[1][0])
    check(first(pool, 12) == 1 and first(pool, 7) == 4096 == first(pool, 11), "POOLS' figures")


def test_invalid_requests_are_refused(c):
    check_refused(EXISTS, "a taken name", c.ask, CREATE, data(1, b"page/example") + number(3, 1), 3)
    check_refused(NAME, "a name with an empty part", c.ask, CREATE, data(1, b"a//b") + number(3, 1), 3)
    check_refused(NAME, "a private name of no user", c.ask, OPEN, data(1, b"~x/y"), 3)
    check_refused(NOT_FOUND, "a private name, by an administrator", c.ask, OPEN, data(1, b"~4000000000/x"), 3)
    check_refused(BAD_REQUEST, "a buffer of no bytes", c.ask, CREATE, data(1, b"x") + number(3, 0), 3)
    check_refused(NOT_FOUND, "a pool that is not there", c.ask, CREATE,
                  data(1, b"x") + data(2, b"gpu7") + number(3, 1), 3)
    check_refused(TOO_LARGE, "more than the pool", c.ask, CREATE, data(1, b"x") + number(3, 1 << 40), 3)
    check_refused(LIMIT, "65 attributes", c.ask, CREATE,
                  data(1, b"x") + number(3, 1) + data(7, data(1, b"k") + data(2, b"")) * 65, 3)
    b = create(c, b"~/refusals", 64)
    for code, what, array in (
            (LAYOUT, "an array that is too long", Array(b"a", (2, 32, 1, 0), (17,), (4,), 0)),
            (LAYOUT, "negative strides before the start", Array(b"a", (1, 8, 1, 0), (9,), (-1,), 7)),
            (LAYOUT, "a float at offset 2", Array(b"a", (2, 32, 1, 0), (1,), (4,), 2)),
            (LAYOUT, "strides of packed elements", Array(b"a", (17, 4, 1, 0), (4,), (0,), 0)),
            (DTYPE, "a float of 24 bits", Array(b"a", (2, 24, 1, 0), (), (), 0)),
            (DTYPE, "17 lanes", Array(b"a", (1, 8, 17, 0), (), (), 0))):
        check_refused(code, what, c.ask, DESCRIBE, number(1, b.lease) + array.message(), 4)
    two = Array(b"a", (1, 8, 1, 0), (9,), (-1,), 8).message()
    check_refused(EXISTS, "a name twice", c.ask, DESCRIBE, number(1, b.lease) + two + two, 4)
    described = c.ask(DESCRIBE, number(1, b.lease) + two, 4)
    check(first(described, 1) == 1, "a refused batch left something behind")
    check_refused(NOT_PUBLISHED, "a buffer that is being filled", c.ask, OPEN, data(1, b"~/refusals"), 3)
    half = Array(b"z", (5, 64, 1, 0), (1,), (8,), 4).message()
    check(first(c.ask(DESCRIBE, number(1, b.lease) + half, 4), 1) == 2, "complex64 at offset 4")
    publish(b, SHARED)
    check_refused(STATE, "DESCRIBE of a published buffer", c.ask, DESCRIBE, number(1, b.lease) + two, 4)
    check_refused(NOT_FOUND, "UNLINK of another id", c.ask, UNLINK,
                  data(1, b"~/refusals") + number(2, b.id + 1), 6)
    c.ask(UNLINK, data(1, b"~/refusals") + number(2, b.id), 6)
    b.close()


def test_a_full_datagram_of_arrays_is_described(path, c):
    """As many arrays as one DESCRIBE may have, in a full datagram; each is found by its name."""
    b = create(c, b"~/many", 1)
    n = 2048
    body = number(1, b.lease)
    for i in range(n):
        dtype = data(2, number(1, 1) + number(2, 8))
        body += data(2, data(1, b"%x" % i) + dtype + data(3, bytes([1] * 16)))
    check(62000 < len(body) < 65536, f"the datagram is not full: {len(body)}")
    check(first(c.ask(DESCRIBE, body, 4), 1) == n, "a full datagram of arrays")
    publish(b, SHARED)
    other = Connection(path)
    seen = other.attach(OPEN, data(1, b"~/many") + number(2, WRITE))
    check(seen.table.arrays == n, "arrays are lost")
    check(all(seen.table.find(b"%x" % i).name == b"%x" % i for i in range(0, n, 7)), "names are lost")
    seen.memory[0] = 77
    check(b.memory[0] == 77, "what one writes the other does not read")
    seen.close()
    reader = other.attach(OPEN, data(1, b"~/many"))
    check(reader.access == READ and not reader.widened, "a shared buffer's reader can write")
    check(reader.seals & (SEAL | FUTURE_WRITE) == SEAL, "a shared buffer's seals")
    reader.close()
    other.close()
    b.close()
    c.ask(UNLINK, data(1, b"~/many"), 6)


def test_a_waiting_open_gets_the_publication(path, c):
    other = Connection(path)
    check_refused(TIMED_OUT, "a wait that ends", other.ask, OPEN, data(1, b"~/later") + number(3, 1), 3)
    other.send(OPEN, data(1, b"~/later") + number(3, 2**64 - 1))
    b = create(c, b"~/later", 1, number(6, 1))
    publish(b, SEALED)
    late = Buffer(other, *other.receive(3))
    check(late.id == b.id, "who waited got another buffer")
    check(late.table is None and late.digest == 0xCBF29CE484222325, "a buffer without arrays has a table")
    late.close()
    b.close()
    check_refused(NOT_FOUND, "a transient buffer after its last lease", c.ask, OPEN, data(1, b"~/later"), 3)
    other.close()


def watched(name=None, buffer=None, seen_buffer=0, seen_word=0):
    what = data(1, name) if name is not None else number(2, buffer)
    return data(1, what + number(3, seen_buffer) + number(4, seen_word))


def changes(reply):
    return [tuple(first(fields(m), i, 0) for i in (1, 2, 3)) for m in reply.get(1, [])]


def test_the_board_and_a_watch_tell_each_change(path, c):
    other = Connection(path, greet=False)
    hello = other.ask(HELLO, number(1, 1) + number(2, 1) + number(4, 1), 2)
    board = other.board
    check(first(hello, 10) == 1 and board is not None and not board.writable, "HELLO's board")
    check_refused(BAD_REQUEST, "a watch of nothing", c.ask, WATCH, number(2, 1), 14)
    check_refused(NAME, "a watch of no name", c.ask, WATCH, watched(b"a//b"), 14)
    check_refused(LIMIT, "257 names", c.ask, WATCH, watched(b"a") * 257, 14)
    check(changes(c.ask(WATCH, watched(b"~/watched") + number(2, 1), 14)) == [], "an event of nothing")
    b = create(c, b"~/watched", 1)
    check(board.word(b.slot, b.id) & 0xFF == 0, "the word of a buffer that is being filled")
    other.send(WATCH, watched(b"nothing") + watched(b"~/watched") + number(2, 2**64 - 1))
    publish(b, SHARED)
    word = board.word(b.slot, b.id)
    check(word & 0xFF == 2, "the word of a shared buffer")
    check(changes(other.receive(14)) == [(1, b.id, word)], "a publication is not told")
    again = watched(b"~/watched", None, b.id, word)
    check(changes(other.ask(WATCH, again + number(2, 1), 14)) == [], "the same is told twice")
    other.send(WATCH, again + watched(None, b.id, 0, word) + number(2, 2**64 - 1))
    c.ask(UNLINK, data(1, b"~/watched"), 6)
    word = board.word(b.slot, b.id)
    check(word & 0xFF == 2 + 8, "the word of an unlinked buffer")
    check(changes(other.receive(14)) == [(0, 0, 0), (1, b.id, word)], "an unlink is not told")
    b.close()
    check(board.word(b.slot, b.id) & 0xFF == 16, "the word of a buffer that has gone")
    check(changes(other.ask(WATCH, watched(None, b.id, 0, word), 14)) == [(0, b.id, 16)],
          "an end is not told")
    check(changes(other.ask(WATCH, watched(None, b.id, 0, 16) + number(2, 1), 14)) == [],
          "an end is told twice")
    other.close()


def is_hung_up(c):
    poll = select.poll()
    poll.register(c.socket, select.POLLRDHUP)
    return bool(poll.poll(DEADLINE * 1000))


def test_a_violation_ends_the_connection(path):
    c = Connection(path)
    try:
        for _ in range(200):
            c.send(STATUS, b"")
    except OSError:
        pass  # it has hung up already
    check(is_hung_up(c), "more than 4,096 bytes of replies that were not read")
    c.close()
    c = Connection(path)
    c.socket.send(b"\xff" * 9)
    check(is_hung_up(c), "a datagram that is no request")
    c.close()
    c = Connection(path)
    c.socket.send(data(STATUS, bytes(65536)))
    check(is_hung_up(c), "a datagram above 65,536 bytes")
    c.close()
    c = Connection(path)
    socket.send_fds(c.socket, [data(STATUS, b"")], [0])
    check(first(c.receive(10), 12) == 3, "a request with a descriptor, or violations are not counted")
    c.close()


def test_leases_outlive_their_connection_and_drafts_end(path):
    """Leases stay when their connection closes; what was being filled loses its name."""
    c = Connection(path)
    kept, draft = create(c, b"~/kept", 1), create(c, b"~/draft", 1)
    publish(kept, SEALED)
    c.close()
    c = Connection(path)
    m = c.ask(STAT, data(1, b"~/kept"), 7)
    check((first(m, 16), first(m, 18)) == (1, 1), "a closed connection ended a lease")
    check_refused(NOT_FOUND, "an orphaned draft", c.ask, STAT, data(1, b"~/draft"), 7)
    c.ask(UNLINK, data(1, b"~/kept"), 6)
    kept.memory.close()
    draft.memory.close()
    c.close()


def test_publish_fails_on_memory_that_its_creator_sealed(path):
    """PUBLISH fails after a client's own F_SEAL_SEAL, and as shared after its seal against writing."""
    c = Connection(path)
    for seal, refused, then in (
        (SEAL, SHARED, FILLING),
        (SEAL, SEALED, FILLING),
        (FUTURE_WRITE, SHARED, SEALED),
        (SEAL_WRITE, SHARED, SEALED),
    ):
        c.send(CREATE, data(1, b"~/seals") + number(3, 1))
        m, (fd,) = c.receive(3)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seal)
        body = number(1, first(m, 2)) + number(2, refused)
        check_refused(STATE, "a PUBLISH of memory that its creator sealed", c.ask, PUBLISH, body, 5)
        if then == SEALED:
            c.ask(PUBLISH, number(1, first(m, 2)) + number(2, SEALED), 5)
        check(first(c.ask(STAT, data(1, b"~/seals"), 7), 6) == then, "the state after PUBLISH")
        c.ask(UNLINK, data(1, b"~/seals"), 6)
        c.ask(CLOSE, number(1, first(m, 2)), 6)
        os.close(fd)
    c.close()


def test_reclaim_returns_the_named_leases(path):
    """What a client keeps when the daemon closes its connection, and what RECLAIM returns."""
    c = Connection(path)
    session = first(c.hello, 8)
    kept, unnamed, draft = (create(c, b"~/" + name, 1) for name in (b"kept", b"unnamed", b"draft"))
    publish(kept, SHARED)
    publish(unnamed, SHARED)
    c.socket.send(b"\xff")
    check(is_hung_up(c), "a datagram that is no request")
    c.close()
    c = Connection(path)
    named = b"".join(varint(lease) for lease in (kept.lease, draft.lease, 1))
    lost = c.ask(RECLAIM, number(1, session) + data(2, named) + number(3, 1), 16)
    check(lost.get(1) == [b"\1"], f"RECLAIM lost {lost}, expected only a lease that never was")
    m = c.ask(STAT, data(1, b"~/kept"), 7)
    check((first(m, 17, 0), first(m, 18, 0)) == (1, 0), "a lease that was reclaimed")
    m = c.ask(STAT, data(1, b"~/unnamed"), 7)
    check((first(m, 17, 0), first(m, 11, 0)) == (0, 0), "a lease that was not named ends, and nothing is dirty")
    c.ask(PUBLISH, number(1, draft.lease) + number(2, SHARED), 5)
    check_refused(NOT_FOUND, "the name of a draft whose creator was hung up on", c.ask,
                  STAT, data(1, b"~/draft"), 7)
    for b in (kept, unnamed, draft):
        b.memory.close()
    for lease in (kept.lease, draft.lease):
        c.ask(CLOSE, number(1, lease), 6)
    for name in (b"~/kept", b"~/unnamed"):
        c.ask(UNLINK, data(1, name), 6)
    c.close()


def test_a_lease_goes_away_and_comes_back(path):
    """SUSPEND and RESUME: the lease stays, the memory comes without the table, and a second one changes nothing."""
    c = Connection(path)
    check(first(c.hello, 15, 0) == 1, "HELLO does not offer SUSPEND")
    b = create(c, b"~/away", 5)
    check_refused(STATE, "a SUSPEND of a draft", c.ask, SUSPEND, number(1, b.lease), 6)
    b.memory[:5] = b"hello"
    publish(b, SHARED)
    for _ in range(2):
        b.memory.close()
        c.ask(SUSPEND, number(1, b.lease), 6)
        c.ask(SUSPEND, number(1, b.lease), 6)
        m = c.ask(STAT, data(1, b"~/away") + number(3, 1), 7)
        check((first(m, 17), first(m, 29), first(fields(first(m, 20)), 8)) == (1, 1, 1), "STAT of who is away")
        check(first(c.ask(METRICS, b"", 18), 15) == 1, "METRICS of who is away")
        again = c.attach(RESUME, number(1, b.lease))
        check((again.lease, again.id, again.table) == (b.lease, b.id, None), "RESUME brings another lease, or a table")
        check(again.memory[:5] == b"hello" and again.access == WRITE, "the memory after RESUME")
        b = again
    check(first(c.ask(STAT, data(1, b"~/away"), 7), 29, 0) == 0, "STAT after RESUME")
    for verb, result in ((SUSPEND, 6), (RESUME, 3)):
        check_refused(NO_LEASE, "no lease", c.ask, verb, number(1, 999999), result)
        check_refused(BAD_REQUEST, "no field", c.ask, verb, b"", result)
    b.close()
    c.ask(UNLINK, data(1, b"~/away"), 6)
    c.close()


def test_a_buffer_is_evicted_and_restored(path):
    """EVICT, KEEP, PUBLISH and OPEN of a twin: what a client does for memory that comes and goes."""
    c = Connection(path)
    b, twin = create(c, b"~/evicted", 5), create(c, b"~/its-twin", 5)
    b.memory[:5] = twin.memory[:5] = b"hello"
    publish(b, SEALED)
    name = data(1, b"~/evicted")
    check_refused(NO_COPY, "an EVICT without a twin", c.ask, EVICT, name, 6)
    c.ask(PUBLISH, number(1, twin.lease) + number(2, SEALED) + number(5, b.lease), 5)
    twin.close()
    b.memory.close()
    check_refused(STATE, "an EVICT of what is mapped", c.ask, EVICT, name, 6)
    c.ask(SUSPEND, number(1, b.lease), 6)
    c.ask(KEEP, name + number(2, 7) + number(3, 4), 6)  # priority 2, in zigzag
    c.ask(EVICT, name, 6)
    m = c.ask(STAT, name, 7)
    check((first(m, 30), first(m, 32), first(m, 33)) == (2, 7, 4), "STAT of what is evicted")
    check(first(c.ask(METRICS, b"", 18), 16) == 1, "METRICS of evictions")
    m, fds = c.ask(RESUME, number(1, b.lease), 3)
    check(not fds and first(m, 1) == b.id, "a RESUME of what is evicted")
    check_refused(EVICTED, "an OPEN of what is evicted", c.ask, OPEN, name, 3)
    m, fds = c.ask(OPEN, name + number(7, 1), 3)
    check(not fds and first(m, 1) == b.id, "an OPEN of a lease that is away")
    c.ask(CLOSE, number(1, first(m, 2)), 6)
    twin = c.attach(OPEN, number(8, b.lease))
    fresh = create(c, b"~/fresh", 5)
    fresh.memory[:5] = twin.memory[:5]
    c.ask(PUBLISH, number(1, fresh.lease) + number(2, SEALED) + number(6, b.lease), 5)
    check_refused(STATE, "an EVICT of what is about to be mapped", c.ask, EVICT, name, 6)
    fresh.close()
    twin.close()
    again = c.attach(RESUME, number(1, b.lease))
    check(again.memory[:5] == b"hello" and again.id == b.id, "the memory that was restored")
    again.memory.close()
    c.ask(SUSPEND, number(1, again.lease), 6)
    other = create(c, b"~/its-twin", 5)
    publish(other, SEALED)
    check_refused(NOT_FOUND, "another lease", c.ask, RESUME, number(1, again.lease) + number(3, 999999), 3)
    moved = c.attach(RESUME, number(1, again.lease) + data(2, b"~/its-twin"))
    check((moved.lease, moved.id) == (again.lease, other.id), "the buffer that has the name")
    moved.close()
    other.close()
    c.ask(UNLINK, data(1, b"~/its-twin"), 6)
    c.ask(UNLINK, name, 6)
    b = create(c, b"~/loaded", 5)
    publish(b, SEALED)
    name = data(1, b"~/loaded")
    check_refused(NOT_FOUND, "a source of another buffer", c.ask, KEEP, name + number(4, b.id + 1), 6)
    c.ask(KEEP, name + number(2, 7) + number(4, b.id), 6)
    b.close()
    c.ask(EVICT, name + number(3, b.id), 6)
    check(first(c.ask(STAT, name, 7), 30) == 3, "STAT of what is in its source alone")
    c.ask(UNLINK, name, 6)
    c.close()


def run_tests(path):
    before = open_fds()
    test_hello_negotiates_a_version_and_tells_the_limits(path)
    c = Connection(path)
    made = make_example(c)
    test_a_second_attach_reads_what_was_published(path, made)
    test_lists_and_stats_tell_what_exists(c, made)
    test_invalid_requests_are_refused(c)
    test_a_full_datagram_of_arrays_is_described(path, c)
    test_a_waiting_open_gets_the_publication(path, c)
    test_the_board_and_a_watch_tell_each_change(path, c)
    c.ask(UNLINK, data(1, b"page/example"), 6)
    check_refused(NOT_FOUND, "an unlinked name", c.ask, OPEN, data(1, b"page/example"), 3)
    made.close()
    c.close()
    test_a_violation_ends_the_connection(path)
    test_leases_outlive_their_connection_and_drafts_end(path)
    test_publish_fails_on_memory_that_its_creator_sealed(path)
    test_reclaim_returns_the_named_leases(path)
    test_a_lease_goes_away_and_comes_back(path)
    test_a_buffer_is_evicted_and_restored(path)
    check(open_fds() == before, "this client leaks fds")


def start_daemon(folder):
    """(process, path of its socket); the daemon says when it is ready."""
    build = os.environ.get("BUILD", "build")
    path, config, notify = (os.path.join(folder, name) for name in ("sock", "conf", "notify"))
    with open(config, "w", encoding="ascii") as f:
        f.write("[pool host]\nkind=host\nsize=64M\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(notify)
        ready.settimeout(DEADLINE)
        env = dict(os.environ, NOTIFY_SOCKET=notify)
        daemon = subprocess.Popen([os.path.join(build, "gpushmd"), "--no-keeper", "--config", config, "--socket", path],
                                  env=env)
        while b"READY=1" not in ready.recv(4096):
            pass
    return daemon, path


def main():
    with tempfile.TemporaryDirectory() as folder:
        daemon, path = start_daemon(folder)
        try:
            run_tests(path)
        except Exception:  # pylint: disable=broad-except
            check(False, traceback.format_exc())
        finally:
            daemon.send_signal(signal.SIGTERM)
            check(daemon.wait(DEADLINE) == 0, "the daemon did not end well")
    print(f"{(checks - failures) * 100 // checks}%: Checks: {checks}, Failures: {failures}, Errors: 0")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
