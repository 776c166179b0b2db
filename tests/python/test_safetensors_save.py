# SPDX-License-Identifier: MIT
"""Files that save() writes, read by the format's own library, which checks the whole of a header."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gpushm
import numpy as np
import pytest

safetensors = pytest.importorskip("safetensors")

# The types of files, as safetensors 0.8 has them, and the bits of an element.
DTYPES = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
}


@pytest.fixture(autouse=True)
def unlinked(nothing_is_left: None) -> Iterator[None]:
    """Removes the buffers of a test."""
    yield
    for name in "m", "again":
        with suppress(gpushm.errors.NotFound):
            gpushm.unlink(name)


def read(path: Path) -> dict[str, Any]:
    """The tensors of a file: type, shape and bytes. Raises SafetensorError for one that breaks the format."""
    return dict(safetensors.deserialize(path.read_bytes()))


def metadata(path: Path) -> dict[str, str]:
    """The metadata of a file."""
    with safetensors.safe_open(path, "np") as f:
        return f.metadata() or {}


def write(path: Path, tensors: dict[str, tuple[str, list[int], bytes]], meta: dict[str, str]) -> None:
    """A file of these tensors, in their order."""
    header: dict[str, Any] = {"__metadata__": meta}
    data = b""
    for name, (dtype, shape, contents) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(contents)]}
        data += contents
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_every_type_survives_load_and_save(tmp_path: Path, pool: str) -> None:
    rng = np.random.default_rng(1)
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    contents = {
        name: (name, [8, 3], rng.bytes(8 * 3 * bits // 8)) for name, bits in sorted(DTYPES.items(), key=lambda d: -d[1])
    }
    write(before, contents, {"format": "pt", "é": "a \"quoted\" text"})
    assert len(read(before)) == len(DTYPES)
    gpushm.load(before, "m", pool=pool).close()
    gpushm.save("m", after)
    assert read(after) == read(before)
    assert metadata(after) == metadata(before)
    gpushm.load(after, "again", pool=pool).close()
    assert gpushm.stat("again").attrs["gpushm.content"] == gpushm.stat("m").attrs["gpushm.content"]


def test_a_tensor_begins_at_a_multiple_of_its_element_size(tmp_path: Path, pool: str) -> None:
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    contents = {
        "a": ("U8", [3], b"abc"),
        "b": ("F64", [2], b"0123456789abcdef"),
        "none": ("F32", [0, 2], b""),
        "c": ("F16", [1], b"xy"),
        "d": ("U8", [], b"z"),
    }
    write(before, contents, {})
    gpushm.load(before, "m", pool=pool).close()
    gpushm.save("m", after)
    assert read(after) == read(before)
    begins = {}
    header = after.read_bytes()
    for name, value in json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")]).items():
        begins[name] = value["data_offsets"][0]
    assert begins["b"] % 8 == 0 and begins["c"] % 2 == 0


def test_tied_tensors_are_written_once(tmp_path: Path, pool: str) -> None:
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    contents = {"embed": ("F32", [2, 2], b"0123456789abcdef"), "x": ("U8", [1], b"x")}
    write(before, contents, {"format": "pt", "head": "embed"})
    with gpushm.load(before, "m", pool=pool) as b:
        assert sorted(b) == ["embed", "head", "x"]
    gpushm.save("m", after)
    assert read(after) == read(before)
    assert metadata(after) == {"format": "pt", "head": "embed"}


def test_numpy_reads_back_what_was_saved(tmp_path: Path, host_pool: str) -> None:
    numpy_files = pytest.importorskip("safetensors.numpy")
    arrays = {
        "a": np.arange(60, dtype="float32").reshape(3, 4, 5),
        "f": np.asfortranarray(np.arange(12, dtype="int16").reshape(3, 4)),
        "empty": np.zeros((0, 3), "float64"),
        "scalar": np.array(True),
        "large": np.arange((9 << 20) + 1, dtype="uint8"),
    }
    with gpushm.create_many("m", arrays, pool=host_pool) as b:
        for name, array in arrays.items():
            b[name].copy_to_device(array)
        b.publish()
    gpushm.save("m", tmp_path / "m.safetensors")
    found = numpy_files.load_file(tmp_path / "m.safetensors")
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[k], v) and found[k].dtype == v.dtype for k, v in arrays.items())


def test_a_saved_file_keeps_the_mode_of_the_old_one(tmp_path: Path, host_pool: str) -> None:
    path = tmp_path / "m.safetensors"
    path.touch(0o600)
    with gpushm.create_many("m", {"a": np.zeros(3)}, pool=host_pool) as b:
        b.publish()
    gpushm.save("m", path)
    assert path.stat().st_mode & 0o7777 == 0o600
    path.chmod(0o664)
    gpushm.save("m", path)
    assert path.stat().st_mode & 0o7777 == 0o664
    gpushm.save("m", tmp_path / "new.safetensors")
    before = os.umask(0)
    os.umask(before)
    assert (tmp_path / "new.safetensors").stat().st_mode & 0o7777 == 0o666 & ~before


# ---- several files ----


@pytest.fixture
def whole(tmp_path: Path, pool: str) -> dict[str, Any]:
    """A buffer "m" of a file with tied tensors, tensors that need another order, and an empty one."""
    contents = {
        "a": ("U8", [3], b"abc"),
        "b": ("F64", [2], b"0123456789abcdef"),
        "none": ("F32", [0, 2], b""),
        "c": ("F16", [4], b"xyXYuvUV"),
        "large": ("U8", [100], b"L" * 100),
        "d": ("U8", [], b"z"),
    }
    write(tmp_path / "whole.safetensors", contents, {"format": "pt", "again": "b", "note": "text"})
    gpushm.load(tmp_path / "whole.safetensors", "m", pool=pool).close()
    return read(tmp_path / "whole.safetensors")


def test_shards_have_all_tensors_and_an_index(tmp_path: Path, whole: dict[str, Any], pool: str) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    gpushm.save("m", folder / "model.safetensors", shard_size=20)
    names = [f"model-0000{i}-of-00004.safetensors" for i in range(1, 5)]
    index = folder / "model.safetensors.index.json"
    assert sorted(p.name for p in folder.iterdir()) == sorted([*names, index.name])
    found, places = {}, {}
    for name in names:
        shard = read(folder / name)
        found |= shard
        places |= dict.fromkeys(shard, name)
        assert len(shard) == 1 or sum(len(t["data"]) for t in shard.values()) <= 20
        assert metadata(folder / name) == {"format": "pt", "note": "text"} | ({"again": "b"} if "b" in shard else {})
    assert found == whole
    text = index.read_text()
    assert json.loads(text) == {"metadata": {"total_size": 128}, "weight_map": places}
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    with gpushm.load(folder, "again", pool=pool) as b, gpushm.open_many("m") as m:
        assert sorted(b) == sorted(m) and b["again"].offset == b["b"].offset
        assert all(b[name].copy_to_host().tobytes() == m[name].copy_to_host().tobytes() for name in m)
    # Once more: the new ones replace the old ones.
    gpushm.save("again", folder / "model.safetensors", shard_size=20)
    assert len(list(folder.iterdir())) == 5
    gpushm.unlink("again")
    gpushm.load(index, "again", pool=pool).close()


def test_one_shard_is_a_plain_file(tmp_path: Path, whole: dict[str, Any]) -> None:
    gpushm.save("m", tmp_path / "one.safetensors", shard_size=128)
    assert read(tmp_path / "one.safetensors") == whole
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.safetensors", "whole.safetensors"]


def test_shards_that_an_old_file_would_hide_are_refused(tmp_path: Path, whole: dict[str, Any]) -> None:
    path = tmp_path / "whole.safetensors"
    with pytest.raises(gpushm.errors.Exists, match=r"whole\.safetensors exists"):
        gpushm.save("m", path, shard_size=20)
    (tmp_path / "a.safetensors.index.json").touch()
    with pytest.raises(gpushm.errors.Exists, match=r"index\.json exists"):
        gpushm.save("m", tmp_path / "a.safetensors", shard_size=128)
    assert len(list(tmp_path.iterdir())) == 2 and read(path) == whole


def test_shards_that_fail_leave_nothing(tmp_path: Path, whole: dict[str, Any]) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()

    def stop(done: int, total: int) -> None:
        if done > 100:
            raise KeyError(done)

    with pytest.raises(KeyError):
        gpushm.save("m", folder / "model.safetensors", shard_size=20, progress=stop)
    for path, size, error in (
        (folder / "model.bin", 20, "several files are made from"),
        (folder / ".safetensors", 20, "several files are made from"),
        ("-", 20, "several files are made from"),
        (folder / "none" / "m.safetensors", 20, "No such file"),
    ):
        with pytest.raises((ValueError, OSError), match=error):
            gpushm.save("m", path, shard_size=size)
    with gpushm.create_many("again", {str(i): ((2,), "uint8") for i in range(513)}) as b:
        b.publish()
        with pytest.raises(ValueError, match="513 files of at most 3 bytes"):
            gpushm.save(b, folder / "m.safetensors", shard_size=3)
    with pytest.raises((ValueError, OverflowError)):
        gpushm.save("m", folder / "m.safetensors", shard_size=-1)
    assert list(folder.iterdir()) == []


def test_a_folder_in_the_place_of_a_shard_is_an_error(tmp_path: Path, whole: dict[str, Any]) -> None:
    (tmp_path / "m-00002-of-00004.safetensors").mkdir()
    with pytest.raises(OSError, match="is a folder"):
        gpushm.save("m", tmp_path / "m.safetensors", shard_size=20)
    assert len(list(tmp_path.iterdir())) == 2
