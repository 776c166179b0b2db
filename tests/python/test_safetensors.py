# SPDX-License-Identifier: MIT
"""gpushm.safetensors beside safetensors itself, for NumPy. Tests with `opener` run with both."""

from __future__ import annotations

import gc
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpushm
import gpushm.safetensors
import gpushm.safetensors.numpy
import numpy as np
import pytest
from gpushm import _models

safetensors = pytest.importorskip("safetensors")
numpy_files = pytest.importorskip("safetensors.numpy")

SafetensorError = gpushm.safetensors.SafetensorError
A = np.arange(50, dtype="float64").reshape(10, 5)
TENSORS = {
    "b": np.array(7, dtype="uint8"),
    "a": A,
    "empty": np.zeros((0, 3), "float16"),
    "c": np.array([[True, False]]),
    "d": np.array([1 + 2j], dtype="complex64"),
}


@pytest.fixture(autouse=True)
def ended(nothing_is_left: None) -> Iterator[None]:
    """Waits for the daemon, which sends no reply when the last process closes a buffer; removes what is kept."""
    yield
    gc.collect()
    end = time.monotonic() + 10
    while [b for b in gpushm.ls() if b.transient] and time.monotonic() < end:
        pass
    for name in names():
        gpushm.unlink(name)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file of a few tensors."""
    path = str(tmp_path / "model.safetensors")
    numpy_files.save_file(TENSORS, path, metadata={"format": "np"})
    return path


@pytest.fixture(params=[safetensors.safe_open, gpushm.safetensors.safe_open], ids=["original", "gpushm"])
def opener(request: pytest.FixtureRequest) -> Any:
    """safe_open of both packages."""
    return request.param


def names() -> list[str]:
    """The buffers that the daemon has."""
    return [b.name for b in gpushm.ls()]


def wait_for_no_buffer() -> None:
    """Fails if a buffer does not end with its last user."""
    gc.collect()
    end = time.monotonic() + 60
    while names():
        assert time.monotonic() < end, names()


# ---- as safetensors ----


def test_tensors_equal_the_originals(opener: Any, file: str) -> None:
    with opener(file, framework="np") as f:
        assert f.keys() == sorted(TENSORS)
        assert f.offset_keys() == list(safetensors.safe_open(file, "np").offset_keys())
        assert f.metadata() == {"format": "np"}
        for name, tensor in TENSORS.items():
            found = f.get_tensor(name)
            assert type(found) is np.ndarray and found.dtype == tensor.dtype and np.array_equal(found, tensor)
            assert found.shape == tensor.shape and found.flags.writeable
        assert list(f.get_tensors()) == f.offset_keys()
        assert f.get_slice("a").get_shape() == [10, 5] and f.get_slice("a").get_dtype() == "F64"


KEYS: list[Any] = [
    slice(None),
    (),
    slice(2),
    (slice(None), slice(None, 2)),
    (0, slice(2)),
    (slice(2, None), 0),
    (slice(2, None), -1),
    (slice(2, None), -5),
    [],
    (3, 4),
    np.int64(3),
    ...,
    (..., 1),
    (1, ...),
    slice(0, 0),
    slice(3, 3),
    slice(None, None, 2),
    (slice(1, 3), slice(0, 5, 2)),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_a_slice_equals_the_originals(opener: Any, file: str, key: Any) -> None:
    with opener(file, "np") as f:
        found = f.get_slice("a")[key]
    assert isinstance(found, np.ndarray)
    assert found.dtype == A.dtype and found.shape == A[key].shape and np.array_equal(found, A[key])


def test_an_element_is_an_array_without_axes(opener: Any, file: str) -> None:
    with opener(file, "np") as f:
        for found in f.get_slice("b")[()], f.get_slice("b")[...], f.get_slice("d")[0], f.get_slice("a")[3, -1]:
            assert isinstance(found, np.ndarray) and found.shape == ()


REFUSED: list[tuple[Any, str]] = [
    ((slice(2, None), -6), "Invalid index -6 for dimension 1 of size 5"),
    ([0, 1], "Non empty lists are not implemented"),
    (
        (slice(2, None), 20),
        "Error during slicing [2:, 20] with shape [10, 5]: index 20 out of bounds for tensor dimension #1 of size 5",
    ),
    (
        slice(None, 20),
        "Error during slicing [:20] with shape [10, 5]: index 19 out of bounds for tensor dimension #0 of size 10",
    ),
    (
        (slice(None), slice(None, 20)),
        "Error during slicing [:, :20] with shape [10, 5]: index 19 out of bounds for tensor dimension #1 of size 5",
    ),
    (
        slice(10, None),
        "Error during slicing [10:] with shape [10, 5]: index 10 out of bounds for tensor dimension #0 of size 10",
    ),
    (
        (0, 0, 0),
        "Error during slicing [0, 0, 0] with shape [10, 5]: more slicing indexes than dimensions in tensor",
    ),
    (None, "Unsupported slice index at position 0: expected slice, int, or ellipsis"),
    ((0, "a"), "Unsupported slice index at position 1: expected slice, int, or ellipsis"),
    (np.array([1, 2]), "Unsupported slice index at position 0: expected slice, int, or ellipsis"),
]


@pytest.mark.parametrize(("key", "text"), REFUSED, ids=[str(key) for key, _ in REFUSED])
def test_a_slice_is_refused_in_the_librarys_words(opener: Any, file: str, key: Any, text: str) -> None:
    with opener(file, "np") as f, pytest.raises(SafetensorError) as e:
        f.get_slice("a")[key]
    assert str(e.value) == text


def test_a_closed_file_is_refused_and_its_tensors_stay(opener: Any, file: str) -> None:
    with opener(file, "np") as f:
        part = f.get_slice("a")
        tensor = f.get_tensor("a")
    for call in (f.keys, f.offset_keys, f.metadata, f.get_tensors, lambda: f.get_tensor("a"), lambda: f.get_slice("a")):
        with pytest.raises(SafetensorError, match="File is closed"):
            call()
    assert np.array_equal(part[1], A[1]) and np.array_equal(tensor, A)


def test_errors_have_the_types_of_the_library(opener: Any, file: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory: notafile"):
        opener("notafile", framework="np")
    with pytest.raises(OSError):
        opener(tmp_path, framework="np")
    for framework, device in ("zz", "cpu"), ("np", "zz"), ("np", "cuda:0"), ("np", 0), ("np", -1):
        with pytest.raises(SafetensorError):
            opener(file, framework, device)
    with pytest.raises(SafetensorError, match="expected one of"):
        opener(file, "np", backend="zz")
    with pytest.raises(TypeError):
        opener(file)
    with opener(Path(file), "numpy", "cpu", backend="pread") as f:
        for call in f.get_tensor, f.get_slice:
            with pytest.raises(SafetensorError, match="File does not contain tensor none"):
                call("none")


BROKEN: list[tuple[str, bytes]] = [
    ("short", b"abc"),
    ("large", b"\xff" * 16),
    ("long", struct.pack("<Q", 100) + b"{}"),
    ("json", struct.pack("<Q", 4) + b"{[]}"),
    ("dtype", struct.pack("<Q", 52) + b'{"a":{"dtype":"zz","shape":[1],"data_offsets":[0,4]}}'[:52] + b"1234"),
]


@pytest.mark.parametrize("content", [c for _, c in BROKEN], ids=[n for n, _ in BROKEN])
def test_a_broken_file_is_refused(opener: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.safetensors"
    path.write_bytes(content)
    with pytest.raises(SafetensorError, match="Error while deserializing header"):
        opener(path, "np")


def test_a_file_without_tensors_is_opened(opener: Any, tmp_path: Path) -> None:
    path = tmp_path / "none.safetensors"
    header = json.dumps({"__metadata__": {"k": "v"}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with opener(path, "np") as f:
        assert f.keys() == [] and f.metadata() == {"k": "v"} and f.get_tensors() == {}


def test_files_are_written_as_by_the_library(file: str, tmp_path: Path) -> None:
    again = str(tmp_path / "again.safetensors")
    for module in gpushm.safetensors, gpushm.safetensors.numpy:
        module.save_file(TENSORS, again, metadata={"format": "np"})
        assert Path(again).read_bytes() == Path(file).read_bytes()
    found = gpushm.safetensors.numpy.load(Path(file).read_bytes())
    assert np.array_equal(found["a"], A)
    assert gpushm.safetensors.numpy.save is numpy_files.save
    assert gpushm.safetensors.TensorSpec is safetensors.TensorSpec
    with pytest.raises(AttributeError):
        gpushm.safetensors.none  # noqa: B018
    with gpushm.create_many("b", {"w": A}, pool="host") as b:
        b.publish()
        gpushm.safetensors.save_file(b, again, {"k": "v"})
    gpushm.unlink("b")
    with safetensors.safe_open(again, "np") as f:
        assert f.metadata() == {"k": "v"} and np.array_equal(f.get_tensor("w"), A)


# ---- shared ----


def test_a_header_is_read_without_loading_the_file(file: str) -> None:
    with gpushm.safetensors.safe_open(file, "np") as f:
        f.keys(), f.metadata(), f.get_slice("a").get_shape()
        assert names() == []
        f.get_slice("a")[0]
        assert len(names()) == 1


def test_each_file_has_one_buffer(file: str, tmp_path: Path) -> None:
    one = gpushm.safetensors.load_file(file, framework="np")
    two = gpushm.safetensors.numpy.load_file(file)
    assert len(names()) == 1 and names()[0].startswith("safetensors/host/")
    found = gpushm.stat(names()[0])
    assert (found.mode, found.transient, found.state, found.readers) == (0o600, True, "sealed", 2)
    assert found.attrs["safetensors.path"].decode() == file
    # The process that was there first may be gone.
    other = tmp_path / "other.safetensors"
    other.write_bytes(Path(file).read_bytes())
    three = gpushm.safetensors.numpy.load_file(other)
    assert len(names()) == 2
    assert one.keys() == two.keys() == three.keys()
    del one, two, three
    wait_for_no_buffer()


def test_a_change_is_private(file: str, in_child: Callable[[str], str]) -> None:
    code = f"""
import gpushm.safetensors.numpy
found = gpushm.safetensors.numpy.load_file({file!r})["a"]
print(found[0, 0], [b.readers for b in gpushm.ls()])
found[...] = 3
"""
    with gpushm.safetensors.safe_open(file, "np") as f:
        mine = f.get_tensor("a")
        mine[0, 0] = 99
        assert in_child(code) == "0.0 [2]\n"
        assert mine[0, 0] == 99 and np.array_equal(mine[1], A[1])
    assert gpushm.safetensors.numpy.load_file(file)["a"][0, 0] == 0


def test_a_changed_file_is_loaded_anew(file: str) -> None:
    before = gpushm.safetensors.numpy.load_file(file)
    numpy_files.save_file({"a": A + 1}, file)
    after = gpushm.safetensors.numpy.load_file(file)
    assert np.array_equal(before["a"], A) and np.array_equal(after["a"], A + 1)


def test_a_file_that_changed_after_it_was_opened_is_refused(file: str) -> None:
    with gpushm.safetensors.safe_open(file, "np") as f:
        assert f.metadata() == {"format": "np"}
        numpy_files.save_file({"a": A + 1}, file, metadata={"format": "other"})
        with pytest.raises(SafetensorError, match="changed after it was opened"):
            f.get_tensor("a")
    wait_for_no_buffer()
    with gpushm.safetensors.safe_open(file, "np") as f:
        assert f.metadata() == {"format": "other"} and np.array_equal(f.get_tensor("a"), A + 1)


def test_threads_load_a_file_once(file: str) -> None:
    found: list[Any] = []
    with gpushm.safetensors.safe_open(file, "np") as f:
        threads = [threading.Thread(target=lambda: found.append(f.get_slice("a")[...])) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 8 and len({a.ctypes.data for a in found}) == 1 and len(names()) == 1


def test_the_keep_and_mode_settings_are_obeyed(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSHM_SAFETENSORS_KEEP", "1")
    monkeypatch.setenv("GPUSHM_SAFETENSORS_MODE", "0640")
    gpushm.safetensors.numpy.load_file(file)
    gc.collect()
    assert [(b.mode, b.transient) for b in gpushm.ls()] == [(0o640, False)]
    id = gpushm.ls()[0].id
    gpushm.safetensors.numpy.load_file(file)
    assert [b.id for b in gpushm.ls()] == [id]
    gpushm.unlink(names()[0])
    gpushm.safetensors.load_file(file, framework="np", keep=False)
    wait_for_no_buffer()


def test_a_file_is_loaded_beside_a_strangers_buffer(file: str) -> None:
    # One of that name with other contents: as if another user had made it.
    key = gpushm._core._load_key([os.fsencode(file)])
    with gpushm.create(f"safetensors/host/{key}", 4, pool="host") as a:
        a.publish()
        found = gpushm.safetensors.numpy.load_file(file)
        assert np.array_equal(found["a"], A)
        assert sorted(names()) == [f"safetensors/host/{key}", f"~/safetensors/host/{key}"]
    gpushm.unlink(f"safetensors/host/{key}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_readable_buffer_is_shared(file: str, in_child: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Not in pytest's folder, which each pytest of this user closes to others when it starts.
    folder = Path(os.environ["GPUSHM_SOCKET"]).parent
    file = shutil.copy(file, str(folder / "for-others.safetensors"))
    os.chmod(file, 0o644)
    os.chmod(folder, 0o755)
    code = f"""
import gpushm.safetensors.numpy, numpy, os
gpushm._core._load_key([os.fsencode({file!r})])  # opens libraries, which that user may not be allowed to
os.setuid(65534)
found = gpushm.safetensors.numpy.load_file({file!r})
print(found["a"].sum(), sorted(b.name[:13] for b in gpushm.ls()))
"""
    with gpushm.safetensors.safe_open(file, "np") as f:
        f.get_tensor("a")
        # Root's, but its mode lets nobody else open it.
        assert in_child(code) == f"{A.sum()} ['~/safetensors']\n"
    wait_for_no_buffer()
    monkeypatch.setenv("GPUSHM_SAFETENSORS_MODE", "0644")
    with gpushm.safetensors.safe_open(file, "np") as f:
        f.get_tensor("a")
        # Root is trusted.
        assert in_child(code) == f"{A.sum()} ['safetensors/h']\n"
    os.unlink(file)


def test_oneself_root_and_listed_users_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSHM_TRUST", raising=False)
    assert _models.is_trusted(os.geteuid()) and _models.is_trusted(0) and not _models.is_trusted(4321)
    monkeypatch.setenv("GPUSHM_TRUST", "nobody, 4321")
    assert _models.is_trusted(4321) and _models.is_trusted(65534) and not _models.is_trusted(432)


# ---- when gpushm can't ----


def broken(where: dict[str, str], fallback: bool, file: str) -> subprocess.CompletedProcess[str]:
    """A child that loads a file in such an environment."""
    code = f"""
import sys, warnings, gpushm.safetensors.numpy as files
warnings.simplefilter("always")
found = files.load_file({file!r})
print(sorted(found), found["a"].sum())
"""
    env = os.environ | where | {"GPUSHM_SAFETENSORS_FALLBACK": str(int(fallback))}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "where", [{"GPUSHM_SOCKET": "/nonexistent/s"}, {"GPUSHM_SAFETENSORS_POOL": "none"}], ids=["no daemon", "no pool"]
)
def test_a_failure_is_an_error_unless_fallback_is_set(file: str, where: dict[str, str]) -> None:
    done = broken(where, False, file)
    assert done.returncode == 1 and "GPUSHM_SAFETENSORS_FALLBACK=1" in done.stderr
    assert "gpushm.errors.DaemonGone" in done.stderr or "gpushm.errors.NotFound" in done.stderr
    done = broken(where, True, file)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{sorted(TENSORS)} {A.sum()}\n"
    assert "FallbackWarning" in done.stderr and "is not shared" in done.stderr


def test_a_pool_that_the_cpu_cannot_use_is_refused(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [pool for pool in gpushm.pools() if pool.kind != "host"]
    for pool in others:
        monkeypatch.setenv("GPUSHM_SAFETENSORS_POOL", pool.name)
        text = f"of kind {pool.kind}.*GPUSHM_SAFETENSORS_POOL.*there are: host"
        with pytest.raises(gpushm.errors.NotFound, match=text):
            gpushm.safetensors.load_file(file, framework="np", keep=True)
        assert names() == []
    if not others:
        pytest.skip("host pools only")


def test_a_full_pool_is_an_error_or_a_fallback_with_a_warning(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise gpushm.errors.PoolFull(28, "no space")

    monkeypatch.setattr(gpushm._core, "load", full)
    with pytest.raises(gpushm.errors.PoolFull) as e:
        gpushm.safetensors.numpy.load_file(file)
    assert any("FALLBACK=1" in note for note in e.value.__notes__)
    with pytest.warns(gpushm.safetensors.FallbackWarning, match="no space"):
        found = gpushm.safetensors.load_file(file, framework="np", fallback=True)
    assert np.array_equal(found["a"], A)
    with (
        pytest.warns(gpushm.safetensors.FallbackWarning),
        gpushm.safetensors.safe_open(file, "np", fallback=True) as f,
    ):
        assert np.array_equal(f.get_slice("a")[2], A[2]) and np.array_equal(f.get_tensor("a"), A)


def test_a_wrong_setting_is_refused(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ("FALLBACK", "yes"), ("KEEP", "2"), ("MODE", "rw"):
        with monkeypatch.context() as m:
            m.setenv(f"GPUSHM_SAFETENSORS_{name}", value)
            with pytest.raises(ValueError, match=f"GPUSHM_SAFETENSORS_{name}"):
                gpushm.safetensors.safe_open(file, "np")


def test_other_frameworks_are_refused(file: str) -> None:
    for framework in "tf", "tensorflow", "mlx", "paddle":
        with pytest.raises(SafetensorError, match="without a copy"):
            gpushm.safetensors.safe_open(file, framework)


def test_reading_works_without_safetensors(file: str, in_child: Callable[[str], str]) -> None:
    code = f"""
import sys
import gpushm
assert not any(name.startswith(("safetensors", "torch", "numpy")) for name in sys.modules)
sys.modules["safetensors"] = None
import gpushm.safetensors.numpy as files
assert files.load_file({file!r})["a"].sum() == {A.sum()}
try:
    gpushm.safetensors.safe_open({file!r}, "np").get_tensor("none")
except gpushm.safetensors.SafetensorError as e:
    print(e)
try:
    files.save_file({{}}, "none")
except ImportError:
    print("ImportError")
"""
    assert in_child(code) == "File does not contain tensor none\nImportError\n"


def test_bfloat16_stays_bfloat16(opener: Any, tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path = tmp_path / "bf16.safetensors"
    tensor = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    numpy_files.save_file({"w": tensor}, path)
    with opener(path, "np") as f:
        found = f.get_tensor("w")
    assert found.dtype == tensor.dtype and np.array_equal(found, tensor)


@pytest.fixture(scope="session")
def jax() -> Any:
    """Opens the GPU before descriptors are counted."""
    found = pytest.importorskip("jax")
    found.numpy.zeros(1).block_until_ready()
    return found


def test_jax_gets_the_same_arrays(opener: Any, file: str, jax: Any) -> None:
    with opener(file, "jax") as f:
        for name in "a", "b", "c", "empty":
            found, wanted = f.get_tensor(name), jax.numpy.array(TENSORS[name])
            assert isinstance(found, jax.Array) and found.dtype == wanted.dtype and (found == wanted).all()
        assert (f.get_slice("a")[2:, 1] == A[2:, 1]).all()
    files = pytest.importorskip("gpushm.safetensors.flax")
    assert isinstance(files.load_file(file)["a"], jax.Array)
