# SPDX-License-Identifier: MIT
"""Headers that were changed at random: gpushm's verdict beside that of the format's own library.

gpushm may refuse more, for a reason in REASONS, and never less: what it accepts the library accepts, too. MUTATIONS in
the environment is the number of headers, SEED chooses others.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import gpushm
import pytest

safetensors = pytest.importorskip("safetensors")

HERE = Path(gpushm.__file__).parent
MUTATIONS = int(os.environ.get("MUTATIONS", "10000"))
SEED = int(os.environ.get("SEED", "1"))

# Why gpushm refuses what the library reads: what its error says, and the reason.
REASONS = {
    "does not begin with '{'": "The format says that a header begins with it; the library skips white space before.",
    "duplicate object key": "The format forbids it; the library takes the last one, other readers the first.",
    "which the format does not know": "A member of a later version might change what the others mean.",
    "is not a JSON object": "The library reads an array of the three values, or null for __metadata__, as well.",
    "an array can't have this name": "A tensor becomes an array, whose names gpushm-protocol(7) restricts.",
    "dimensions; an array has at most": "gpushm has 32, as NumPy 1 has.",
    "too big integer": "No file has 2^63 bytes; jansson's integers end there.",
    r"\\u0000|NUL byte": "A NUL would end a name in C.",
}

library = ctypes.CDLL(str(next(HERE.glob("libgpushm-load.so.*"))))
base = ctypes.CDLL(str(next(HERE.glob("libgpushm.so.*"))))
base.gpushm_error.restype = ctypes.c_char_p
key = ctypes.create_string_buffer(65)


def ours(data: bytes) -> str | None:
    """What gpushm says is wrong with the file; None: nothing. gpushm_load_key() reads headers and nothing else."""
    fd = os.memfd_create("m.safetensors")
    try:
        os.write(fd, data)
        path = (ctypes.c_char_p * 1)(f"/dev/fd/{fd}".encode())
        r = library.gpushm_load_key(path, ctypes.c_size_t(1), None, key)
        assert r <= 0
        return None if r == 0 else base.gpushm_error().decode()
    finally:
        os.close(fd)


def theirs(data: bytes) -> str | None:
    """What the library says is wrong with the file; None: nothing."""
    try:
        safetensors.deserialize(data)
    except safetensors.SafetensorError as e:
        return str(e)
    return None


def wrap(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A file of that header."""
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def tensor(dtype: str, shape: list[Any], begin: Any, end: Any) -> dict[str, Any]:
    """A tensor as the header has it."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


BASES: list[dict[str, Any]] = [
    {"a": tensor("F32", [2, 2], 0, 16), "b": tensor("BF16", [3], 16, 22)},
    {"__metadata__": {"format": "pt", "tied": "w"}, "w": tensor("F64", [], 0, 8), "n": tensor("I8", [0, 5], 8, 8)},
    {"x.y/z": tensor("F4", [2, 3], 0, 3), "q": tensor("F6_E2M3", [4], 3, 6), "é": tensor("BOOL", [1], 6, 7)},
    {"second": tensor("U64", [1, 1, 2], 4, 20), "first": tensor("C64", [0], 0, 0), "s": tensor("U8", [4], 0, 4)},
    {},
]
# fmt: off
DTYPES = [
    "BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
    "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64",
    "F128", "f32", "I4", "Bool", "C128", "F8",
]
# fmt: on
NUMBERS: list[Any] = [
    0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 2**31, 2**32, 2**53 + 1, 2**61, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30,
    -1, -0.0, 1.0, 1e3, "1", None, True, [], {},
]  # fmt: skip
NAMES = ["", "a", "a/b", "a//b", "/", ".", "..", "a\x00b", "a\nb", "x" * 255, "x" * 256, "ü", "__metadata__", "\u202e"]
TOKENS = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"\n", b"\t", b"\r", b"\x00", b"\xff", b"\xc3", b"-", b"+",
    b".", b"0", b"1", b"9", b"e", b"E", b"null", b"true", b"-0", b"01", b"1e0", b"1.5", b"\\u0000", b"\\ud800",
    b"\\udc00", b"\\ud83d\\ude00", b"\\u0041", b"/", b"//", b"/* */", b"'", b"\xef\xbb\xbf", b"\x7f", b"NaN", b"{}",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\x0b", b"\x0c", b"\xa0", b"Infinity", b"1E400",
]  # fmt: skip


def end_of(header: dict[str, Any]) -> int:
    """The bytes of data that a valid header has."""
    return max((v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"), default=0)


def change_value(r: random.Random, header: dict[str, Any]) -> None:
    """Changes the meaning of a header, which stays JSON."""
    names = [n for n in header if n != "__metadata__"]
    what = r.randrange(12)
    if what == 0:
        header["__metadata__"] = r.choice([None, {}, {"a": "b"}, {"a": 1}, {"a": None}, [], "a", {"": ""}, {"a": {}}])
    elif what == 1:
        header[r.choice(NAMES)] = tensor(r.choice(DTYPES), [], end_of(BASES[0]), end_of(BASES[0]))
    if not names:
        return
    name = r.choice(names)
    t = header[name]
    if what == 2:
        t["dtype"] = r.choice([*DTYPES, None, 1, []])
    elif what == 3:
        t["shape"] = [r.choice(NUMBERS[:12]) for _ in range(r.choice([0, 1, 2, 3, 31, 32, 33]))]
    elif what == 4 and t["shape"]:
        t["shape"][r.randrange(len(t["shape"]))] = r.choice(NUMBERS)
    elif what == 5:
        t["data_offsets"][r.randrange(2)] = r.choice(NUMBERS)
    elif what == 6:
        t["data_offsets"] = r.choice([[], [0], [0, 0, 0], None, {}, "0,1", 7])
    elif what == 7:
        del t[r.choice(list(t))]
    elif what == 8:
        t[r.choice(["strides", "", "Dtype", "data_offset"])] = r.choice([0, None, [], "x"])
    elif what == 9:
        header[name] = r.choice([[t["dtype"], t["shape"], t["data_offsets"]], None, 1, "x", [], {}])
    elif what == 10:
        header[r.choice(NAMES)] = header.pop(name)
    elif what == 11:
        t["shape"] = [1] * r.choice([30, 32, 33, 100]) + list(t["shape"])


def change_text(r: random.Random, text: bytes) -> bytes:
    """Changes some bytes."""
    for _ in range(r.choice([0, 0, 1, 1, 1, 2, 3])):
        at = r.randrange(len(text) + 1)
        what = r.randrange(7)
        if what == 0:
            text = text[:at] + r.choice(TOKENS) + text[at:]
        elif what == 1:
            text = text[:at] + text[at + r.choice([1, 1, 2, 10]) :]
        elif what == 2 and at < len(text):
            text = text[:at] + bytes([text[at] ^ 1 << r.randrange(8)]) + text[at + 1 :]
        elif what == 3:
            text = text + r.choice([b" ", b"  \n", b"\x00", b"\t", b"x", b"{}", b"\r\n", b"\x0c", b"\xc2\xa0"])
        elif what == 4:
            text = r.choice([b" ", b"\n", b"\xef\xbb\xbf", b"[", b"\t\t"]) + text
        elif what == 5:
            found = re.findall(rb'"[^"]*"', text)
            if found:
                text = text.replace(r.choice(found), r.choice(found), 1)
        else:
            numbers = list(re.finditer(rb"\d+", text))
            if numbers:
                m = r.choice(numbers)
                n = r.choice([b"-0", b"00", b"1e1", b"0.0", b"18446744073709551615", b"+1", b"0x1", m[0] + b"0"])
                text = text[: m.start()] + n + text[m.end() :]
    return text


def mutate(r: random.Random) -> bytes:
    """A file whose header was changed; sometimes its data or the header's length as well."""
    header = json.loads(json.dumps(r.choice(BASES)))
    data = end_of(header)
    for _ in range(r.choice([0, 1, 1, 1, 2])):
        # A second change may meet what the first one has broken.
        with suppress(KeyError, IndexError, TypeError, AttributeError):
            change_value(r, header)
    separators = r.choice([(",", ":"), (", ", ": ")])
    text = json.dumps(header, ensure_ascii=r.random() < 0.5, separators=separators).encode("utf-8", "surrogatepass")
    text = change_text(r, text)
    if r.random() < 0.05:
        data += r.choice([-1, 1, 8])
    length = None
    if r.random() < 0.03:
        length = max(0, r.choice([len(text) - 1, len(text) + 1, 0, 1, 10**8, 10**8 + 1, 2**63, 2**64 - 8, 2**64 - 1]))
    return wrap(text, bytes(max(data, 0)), length)


def has_a_name_twice(data: bytes) -> bool:
    """Whether two members of the header have one name."""
    found: list[list[str]] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found.append([name for name, _ in pairs])
        return dict(pairs)

    json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")], object_pairs_hook=members)
    return any(len(names) > len(set(names)) for names in found)


def judge(data: bytes, seen: Counter[str]) -> None:
    """Compares both verdicts; counts the reason if only gpushm refuses."""
    our, their = ours(data), theirs(data)
    assert our is not None or their is None, f"gpushm reads what the library refuses: {their}\n{data!r}"
    if our is None or their is not None:
        seen["both accept" if our is None else "both refuse"] += 1
        return
    reasons = [r for r in REASONS if re.search(r, our)]
    if not reasons and has_a_name_twice(data):
        reasons = ["duplicate object key"]  # the first tensor of the name breaks another rule, which is found before
    assert reasons, f"gpushm refuses what the library reads, for no known reason: {our}\n{data!r}"
    seen[reasons[0]] += 1


def test_gpushm_refuses_each_header_that_the_library_refuses() -> None:
    """Or refuses one for a reason that is not in the table."""
    seen: Counter[str] = Counter()
    for i in range(MUTATIONS):
        judge(mutate(random.Random(SEED * 1000003 + i)), seen)
    print(seen)
    # The mutations are worth something.
    assert seen["both accept"] > MUTATIONS / 50
    assert seen["both refuse"] > MUTATIONS / 5


EXAMPLES = {
    "does not begin with '{'": b' {"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
    "duplicate object key": b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},'
    b'"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
    "which the format does not know": b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":1}}',
    "is not a JSON object": b'{"a":["U8",[],[0,1]]}',
    "an array can't have this name": b'{"a//b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
    "dimensions; an array has at most": b'{"a":{"dtype":"U8","shape":[%s1],"data_offsets":[0,1]}}' % (b"1," * 32),
    "too big integer": b'{"a":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]},'
    b'"b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
    r"\\u0000|NUL byte": b'{"__metadata__":{"a":"\\u0000"},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
}


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_for_a_refusal_has_an_example(reason: str) -> None:
    """Each reason in the table has a file that the library reads and gpushm refuses for it."""
    data = wrap(EXAMPLES[reason], b"x")
    assert theirs(data) is None
    assert re.search(reason, ours(data) or "nothing is wrong")


def test_a_file_that_the_library_writes_is_accepted() -> None:
    """All dtypes that NumPy has; scalars, tensors without elements, metadata."""
    from safetensors.numpy import save

    numpy = pytest.importorskip("numpy")
    arrays = {
        f"{t}.{len(shape)}.{sum(shape)}": numpy.ones(shape, t)
        for t in ["?", "b", "B", "h", "H", "i", "I", "l", "L", "e", "f", "d", "F"]
        for shape in ((), (0,), (3,), (2, 0, 5), (2, 3, 4))
    }
    for metadata in (None, {}, {"format": "np", "ü": "\u20ac\n"}):
        assert ours(save(arrays, metadata)) is None
    assert ours(save({}, None)) is None
