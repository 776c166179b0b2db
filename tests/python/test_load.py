# SPDX-License-Identifier: MIT
"""load(), save() and verify(): models in files. What a file may be is tested with the library, in C."""

from __future__ import annotations

import errno
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gpushm
import numpy as np
import pytest

from daemon import BUILD, Daemon

numpy_files = pytest.importorskip("safetensors.numpy")

TENSORS = {
    "layers.0.weight": np.arange(12, dtype="float32").reshape(3, 4),
    "layers.0.bias": np.arange(4, dtype="float16"),
    "layers.1.weight": np.arange(6, dtype="int64").reshape(2, 3),
    "step": np.array(7, dtype="uint8"),
}


@pytest.fixture(autouse=True)
def unlinked(nothing_is_left: None) -> Iterator[None]:
    """Removes what a test may have left under its names, unless it checks that."""
    yield
    for name in "m", "other":
        with suppress(gpushm.errors.NotFound):
            gpushm.unlink(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of a few tensors."""
    path = tmp_path / "model.safetensors"
    numpy_files.save_file(TENSORS, path, metadata={"format": "np"})
    return path


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that takes long enough to be stopped."""
    path = tmp_path / "large.safetensors"
    numpy_files.save_file({f"w{i}": np.full(4 << 20, i, "uint8") for i in range(32)}, path)
    return path


def equal(buffer: gpushm.Buffer, tensors: dict[str, Any]) -> bool:
    """Whether the buffer has these tensors and no others."""
    return set(buffer) == set(tensors) and all(
        np.array_equal(buffer[k].copy_to_host(), v) and buffer[k].dtype == v.dtype for k, v in tensors.items()
    )


def test_a_loaded_buffer_has_the_contents_of_its_file(file: Path, pool: str) -> None:
    with gpushm.load(file, "m", pool=pool) as b:
        assert (b.name, b.pool, b.state, b.access) == ("m", pool, "sealed", "r")
        assert equal(b, TENSORS)
        assert b.attr("gpushm.metadata") == b'{"format":"np"}'
        with gpushm.open_many("m") as again:
            assert again.id == b.id and equal(again, TENSORS)


def evict(name: str) -> None:
    """Its memory goes."""
    subprocess.run([BUILD / "gpushmctl", "evict", name], check=True)


def test_a_buffer_whose_memory_went_is_loaded_again(file: Path, host_pool: str) -> None:
    gpushm.load(file, "m", pool=host_pool, keep=60).close()
    assert gpushm.stat("m").keep == 60
    evict("m")
    assert gpushm.stat("m").residence == "source"
    # A process that has not loaded anything.
    code = "import gpushm; print(gpushm.open_many('m')['step'].copy_to_host(), gpushm.stat('m').residence)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "7 resident\n"
    evict("m")
    saved = file.read_bytes()
    file.write_bytes(saved[:-1] + b"x")
    with pytest.raises(gpushm.errors.Error, match="has the digest"):
        gpushm.open_many("m")
    file.unlink()
    with pytest.raises(gpushm.errors.Error, match="put it back") as e:
        gpushm.open_many("m")
    assert e.value.errno == errno.ENODATA
    file.write_bytes(saved)
    with gpushm.open_many("m") as b:
        assert equal(b, TENSORS)


def test_a_load_makes_the_twin(file: Path, pool: str) -> None:
    if any(p.name == pool and p.kind == "mempool" for p in gpushm.pools()):
        with pytest.raises(gpushm.errors.NotSupported, match="as a whole"):
            gpushm.load(file, "m", pool=pool, twin="host")
        return
    with gpushm.load(file, "m", pool=pool, twin="host", keep=math.inf):
        assert any(b.twin_of == gpushm.stat("m").id for b in gpushm.ls())
        assert gpushm.stat("m").keep is None
    with pytest.raises(ValueError, match="seconds from 0"):
        gpushm.load(file, "other", keep=-1)


def test_a_saved_file_has_the_contents_of_its_buffer(file: Path, tmp_path: Path, host_pool: str) -> None:
    with gpushm.load([str(file)], "m", pool=host_pool) as b:
        gpushm.save(b, tmp_path / "a.safetensors")
        gpushm.save(b["step"], tmp_path / "array.safetensors")
    gpushm.save("m", os.fsencode(tmp_path / "b.safetensors"), metadata={"k": "v", "é": "ü"})
    for name in "a", "b", "array":
        found = numpy_files.load_file(tmp_path / f"{name}.safetensors")
        assert found.keys() == TENSORS.keys()
        assert all(np.array_equal(found[k], v) and found[k].dtype == v.dtype for k, v in TENSORS.items())
    with numpy_files.safe_open(tmp_path / "a.safetensors", "np") as f:
        assert f.metadata() == {"format": "np"}
    with numpy_files.safe_open(tmp_path / "b.safetensors", "np") as f:
        assert f.metadata() == {"k": "v", "é": "ü"}


def test_options_are_obeyed(file: Path, host_pool: str) -> None:
    with gpushm.load(
        file, "m", pool=host_pool, mode=0o640, attrs={"k": "v"}, transient=True, only=["layers.*"], strip="layers."
    ) as b:
        assert sorted(b) == ["0.bias", "0.weight", "1.weight"]
        found = gpushm.stat("m")
        assert (found.mode, found.transient, found.attrs["k"]) == (0o640, True, b"v")
    # A load has a connection of its own, whose close nobody waits for.
    end = time.monotonic() + 10
    while gpushm.ls():
        assert time.monotonic() < end, gpushm.ls()
        time.sleep(0.001)


@pytest.mark.parametrize("io", ["auto", "cached", "direct"])
def test_every_way_of_reading_gives_the_same_bytes(file: Path, host_pool: str, io: Any) -> None:
    how = gpushm.Transport(io=io, threads=2, drop_cache=True)
    with gpushm.load(file, "m", pool=host_pool, verify=True, transport=how) as b:
        assert equal(b, TENSORS)


def test_verify_returns_the_digest_of_the_contents(file: Path, host_pool: str) -> None:
    with gpushm.load(file, "m", pool=host_pool) as b:
        digest = gpushm.verify(b)
        assert digest == gpushm.verify("m") == (b.attr("gpushm.content") or b"").decode()
        assert digest.startswith("xxh3:")
    with gpushm.create("other", 4, pool=host_pool) as a:
        a.publish()
        with pytest.raises(gpushm.Error) as e:
            gpushm.verify(a)
        assert e.value.errno == errno.ENODATA


def test_a_taken_name_is_refused_reused_or_replaced(file: Path, host_pool: str) -> None:
    with gpushm.load(file, "m", pool=host_pool) as b:
        with pytest.raises(gpushm.errors.Exists):
            gpushm.load(file, "m", pool=host_pool)
        with gpushm.load(file, "m", pool=host_pool, if_missing=True) as again:
            assert again.id == b.id
        with gpushm.load(file, "m", pool=host_pool, replace=True) as new:
            assert new.id != b.id and equal(b, TENSORS)


def test_if_missing_refuses_other_contents_of_that_name(file: Path, tmp_path: Path, host_pool: str) -> None:
    other = tmp_path / "other.safetensors"
    numpy_files.save_file({"w": np.zeros(3)}, other)
    with gpushm.load(other, "m", pool=host_pool), pytest.raises(gpushm.errors.Exists):
        gpushm.load(file, "m", pool=host_pool, if_missing=True)


def test_a_connection_loads_saves_and_verifies(file: Path, tmp_path: Path, host_pool: str) -> None:
    with gpushm.connect() as c, c.load(file, "m", pool=host_pool) as b:
        assert b.connection is c
        c.save("m", tmp_path / "a")
        assert c.verify("m") == c.verify(b)


# ---- errors ----


def test_a_bad_argument_is_refused(file: Path, tmp_path: Path, host_pool: str) -> None:
    with pytest.raises(TypeError, match="progress is a function"):
        gpushm.load(file, "m", progress=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='io is "auto"'):
        gpushm.load(file, "m", transport=gpushm.Transport(io="mmap"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null"):
        gpushm.load("a\0b", "m")
    with pytest.raises(TypeError):
        gpushm.load([7], "m")  # type: ignore[list-item]
    with pytest.raises(gpushm.errors.BadArgument):
        gpushm.load([], "m")
    with pytest.raises(TypeError, match="a Buffer, or the name of one"):
        gpushm.save(7, tmp_path / "a")  # type: ignore[arg-type]
    with gpushm.load(file, "m", pool=host_pool) as b:
        with pytest.raises(TypeError, match="JSON"):
            gpushm.save(b, tmp_path / "a", metadata={"k": b"v"})  # type: ignore[dict-item]
        with pytest.raises((ValueError, OSError)):
            gpushm.save(b, tmp_path / "a", metadata={"k": 7})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="closed"):
        gpushm.save(b, tmp_path / "a")
    assert sorted(os.listdir(tmp_path)) == ["model.safetensors"]


def test_a_broken_file_is_refused_and_leaves_nothing(file: Path, host_pool: str) -> None:
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(gpushm.errors.BadContents, match=r"model\.safetensors") as e:
        gpushm.load(file, "m", pool=host_pool)
    assert e.value.errno == errno.EBADMSG and isinstance(e.value, ValueError)
    with pytest.raises(FileNotFoundError):
        gpushm.load(file.with_name("none"), "m", pool=host_pool)
    with pytest.raises(gpushm.errors.NotFound):
        gpushm.save("none", file)
    assert gpushm.ls() == []


def test_another_checksum_is_refused(file: Path, tmp_path: Path, host_pool: str) -> None:
    sums = tmp_path / "sums"
    sums.write_text(f"{'0' * 64}  {file}\n")
    with pytest.raises(gpushm.errors.BadContents):
        gpushm.load(file, "m", pool=host_pool, sha256=sums)
    sums.write_bytes(subprocess.run(["sha256sum", file], capture_output=True, check=True).stdout)
    gpushm.load(file, "m", pool=host_pool, sha256=str(sums)).close()


def test_a_missing_library_is_named_in_the_error(tmp_path: Path, file: Path) -> None:
    # A copy of the package without the library, where the system's is not found either.
    package = Path(gpushm.__file__).parent
    shutil.copytree(package, tmp_path / "gpushm", ignore=shutil.ignore_patterns("libgpushm-load*", "__pycache__"))
    code = f"import gpushm as g\ntry:\n  g.load({str(file)!r}, 'm')\nexcept g.errors.NotSupported as e:\n  print(e)"
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders = [f for f in folders if f and not list(Path(f).glob("libgpushm-load*"))]
    env = os.environ | {"PYTHONPATH": str(tmp_path), "LD_LIBRARY_PATH": ":".join(folders)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "libgpushm-load.so." in done.stdout and "cannot open shared object file" in done.stdout


def test_an_import_leaves_the_library_unopened(in_child: Callable[[str], str]) -> None:
    code = "import gpushm; gpushm.ls(); print('libgpushm-load' in open('/proc/self/maps').read())"
    assert in_child(code) == "False\n"


def test_a_user_whom_the_namespace_does_not_map_is_distrusted() -> None:
    code = "from gpushm import _models\nprint(*map(_models.is_trusted, [65534, 12, 13]))"
    command = [sys.executable, "-c", code]
    env = os.environ | {"GPUSHM_TRUST": "65534,12"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split()[1:] == ["True", "False"]
    done = subprocess.run(["unshare", "--user", *command], capture_output=True, text=True, env=env)
    if done.stderr.startswith("unshare: "):
        pytest.skip(done.stderr.strip())
    assert done.stdout.split() == ["False", "True", "False"], done.stderr


# ---- progress ----


def test_progress_is_reported_to_the_end(large: Path, host_pool: str, tmp_path: Path) -> None:
    said: list[tuple[int, int]] = []
    with gpushm.load(large, "m", pool=host_pool, progress=lambda *a: said.append(a)) as b:
        assert said and said[-1] == (128 << 20, 128 << 20) and said == sorted(said)
        said.clear()
        gpushm.verify(b, progress=lambda *a: said.append(a))
        assert said[-1] == (128 << 20, 128 << 20)
        said.clear()
        gpushm.save(b, tmp_path / "a", progress=lambda *a: said.append(a))
        assert said[-1] == (128 << 20, 128 << 20)


class Stop(Exception):
    """Raised in progress functions."""


def stop(done: int, total: int) -> None:
    """A progress function that stops the work."""
    raise Stop(done)


def test_an_exception_of_progress_stops_work_and_leaves_nothing(large: Path, tmp_path: Path, host_pool: str) -> None:
    with pytest.raises(Stop):
        gpushm.load(large, "m", pool=host_pool, progress=stop)
    assert gpushm.ls() == []
    with gpushm.load(large, "m", pool=host_pool) as b:
        with pytest.raises(Stop):
            gpushm.save(b, tmp_path / "a", progress=stop)
        with pytest.raises(Stop):
            gpushm.verify(b, progress=stop)
    assert sorted(os.listdir(tmp_path)) == ["large.safetensors"]


def test_ctrl_c_stops_a_load(large: Path, host_pool: str) -> None:
    def interrupt(done: int, total: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        gpushm.load(large, "m", pool=host_pool, progress=interrupt)
    assert gpushm.ls() == []


def test_ctrl_c_or_a_timeout_ends_a_wait(file: Path, host_pool: str) -> None:
    with gpushm.create("m", 1, pool=host_pool) as a:  # somebody loads
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            gpushm.load(file, "m", pool=host_pool, if_missing=True)
        timer.join()
        start = time.monotonic()
        with pytest.raises(gpushm.errors.Timeout):
            gpushm.load(file, "m", pool=host_pool, if_missing=True, timeout=0.2)
        assert time.monotonic() - start >= 0.2
        a.discard()


def test_a_name_that_is_taken_meanwhile_leaves_one_buffer(file: Path, host_pool: str) -> None:
    """While the old contents are compared, another process takes the name, and loads the same files."""
    gpushm.load(file, "m", pool=host_pool).close()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)  # the header stays
    calls = 0
    taken: Any = None

    def progress(done: int, total: int) -> None:
        nonlocal calls, taken
        calls += 1
        if calls == 1:
            gpushm.unlink("m")
            taken = gpushm.create("m", 1, pool=host_pool)
        elif taken is not None:
            taken.discard()
            taken = None
            gpushm.load(file, "m", pool=host_pool).close()

    with gpushm.load(file, "m", pool=host_pool, if_missing=True, replace=True, progress=progress) as b:
        assert b["step"].copy_to_host() == TENSORS["step"] ^ 1 or calls > 1
        assert [found.name for found in gpushm.ls()] == ["m"]
    assert calls > 1


# ---- pipes ----


@pytest.fixture
def pipe(tmp_path: Path) -> str:
    """A named pipe."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return str(path)


def write_to(pipe: str, data: bytes, opened: threading.Event | None = None) -> threading.Thread:
    """A thread that writes into the pipe, and closes it when the event is set."""

    def run() -> None:
        with suppress(BrokenPipeError), open(pipe, "wb", buffering=0) as end:
            end.write(data)
            if opened is not None:
                opened.wait(60)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_pipe_is_read_whole(file: Path, pipe: str, host_pool: str) -> None:
    thread = write_to(pipe, file.read_bytes())
    with gpushm.load(pipe, "m", pool=host_pool) as b:
        assert equal(b, TENSORS)
    thread.join()


@pytest.mark.parametrize("stops", ["nobody writes", "in the length", "in the header", "in a tensor", "at its end"])
@pytest.mark.parametrize("how", ["progress", "ctrl-c"])
def test_a_wait_for_a_pipe_can_be_stopped(stops: str, how: str, file: Path, pipe: str, host_pool: str) -> None:
    data = file.read_bytes()
    n = {"in the length": 4, "in the header": 20, "in a tensor": len(data) - 3, "at its end": len(data)}.get(stops)
    end = threading.Event()
    thread = None if n is None else write_to(pipe, data[:n], end)
    calls = 0

    def progress(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            if how == "progress":
                raise Stop
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Stop if how == "progress" else KeyboardInterrupt):
        gpushm.load(pipe, "m", pool=host_pool, progress=progress)
    assert gpushm.ls() == []
    end.set()
    if thread is not None:
        thread.join()


def test_a_pipe_is_read_once_across_a_wait_for_space(file: Path, pipe: str) -> None:
    """The wait is longer than a turn of it."""
    daemon = Daemon("[pool small]\nkind=host\nsize=4M\n")
    thread = write_to(pipe, file.read_bytes())
    try:
        with gpushm.connect(daemon.socket) as c:
            full = c.create("full", 4 << 20)
            timer = threading.Timer(1.2, full.discard)
            timer.start()
            with c.load(pipe, "m", wait=60) as b:
                assert equal(b, TENSORS)
            timer.join()
            c.unlink("m")
    finally:
        thread.join()
        daemon.remove()


def test_an_index_of_too_many_values_is_refused(tmp_path: Path, host_pool: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"weight_map":{"a":"b"},"metadata":[' + "0," * 600_000 + "0]}")
    with pytest.raises(gpushm.errors.BadContents, match="more than 524288 values"):
        gpushm.load(path, "m", pool=host_pool)


def test_a_load_releases_the_gil(large: Path, host_pool: str) -> None:
    ran = threading.Event()
    thread = threading.Thread(target=ran.set)

    def progress(done: int, total: int) -> None:
        if not thread.ident:
            thread.start()

    with gpushm.load(large, "m", pool=host_pool, progress=progress):
        thread.join(60)
        assert ran.is_set()


def test_another_loader_takes_over_from_one_that_dies(file: Path, host_pool: str) -> None:
    code = "import gpushm, sys\na = gpushm.create('m', 1, pool='host')\nprint(flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as loader:
        assert loader.stdout is not None and loader.stdout.readline()
        timer = threading.Timer(0.3, loader.kill)
        timer.start()
        with gpushm.load(file, "m", pool=host_pool, if_missing=True) as b:
            assert equal(b, TENSORS)
        timer.join()


RACER = """
import gpushm, sys
sys.stdin.readline()
with gpushm.load(sys.argv[1], "m", pool="host", if_missing=True) as b:
    print(b.id, flush=True)
    sys.stdin.readline()
"""


def test_eight_processes_load_one_file_once(large: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(large)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("\n")
        racer.stdin.flush()
    ids = {racer.stdout.readline() for racer in racers if racer.stdout}
    for racer in racers:
        racer.communicate("\n", timeout=60)
        assert racer.returncode == 0
    assert len(ids) == 1 and ids != {""}
