# SPDX-License-Identifier: MIT
"""`from gpushm import numba as cuda`: the names of Numba's documents, with their signatures, defaults and results.

Signatures are compared with the sources of numba-cuda's newest two releases, where `make deps` has put them in
build/numba-cuda/VERSION.
"""

from __future__ import annotations

import ast
import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpushm
import numpy as np
import pytest
from gpushm import numba as cuda

GPU_POOLS = [p.name for p in gpushm.pools() if p.kind in ("vmm", "mempool")]
HERE = [p.name for p in gpushm.pools() if p.device in (None, 0)]  # where streams of this thread work
with_a_driver = pytest.mark.skipif(not GPU_POOLS, reason="no driver, nor our own libcuda")

# As the documents have them.
FUNCTIONS = {
    "to_device": "(obj, stream=0, copy=True, to=None)",
    "device_array": "(shape, dtype=np.float64, strides=None, order='C', stream=0)",
    "device_array_like": "(ary, stream=0)",
    "pinned_array": "(shape, dtype=np.float64, strides=None, order='C')",
    "pinned_array_like": "(ary)",
    "mapped_array": "(shape, dtype=np.float64, strides=None, order='C', stream=0, portable=False, wc=False)",
    "mapped_array_like": "(ary, stream=0, portable=False, wc=False)",
    "pinned": "(*arylist)",
    "mapped": "(*arylist, **kws)",
    "open_ipc_array": "(handle, shape, dtype, strides=None, offset=0)",
    "as_cuda_array": "(obj, sync=True)",
    "is_cuda_array": "(obj)",
    "stream": "()",
    "default_stream": "()",
    "legacy_default_stream": "()",
    "per_thread_default_stream": "()",
    "external_stream": "(ptr)",
    "synchronize": "()",
    "defer_cleanup": "()",
}
METHODS = {
    "DeviceNDArrayBase.copy_to_host": "(self, ary=None, stream=0)",
    "DeviceNDArrayBase.copy_to_device": "(self, ary, stream=0)",
    "DeviceNDArrayBase.split": "(self, section, stream=0)",
    "DeviceNDArray.ravel": "(self, order='C', stream=0)",
    "DeviceNDArray.is_c_contiguous": "(self)",
    "DeviceNDArray.is_f_contiguous": "(self)",
    "Stream.__init__": "(self, handle, finalizer=None, external=False)",
    "Stream.synchronize": "(self)",
    "Stream.auto_synchronize": "(self)",
}


def signature(function: Any) -> str:
    """Without annotations, and with types by their names."""
    found = inspect.signature(function)
    kinds = {inspect.Parameter.POSITIONAL_ONLY: inspect.Parameter.POSITIONAL_OR_KEYWORD}
    plain = [p.replace(annotation=p.empty, kind=kinds.get(p.kind, p.kind)) for p in found.parameters.values()]
    text = str(found.replace(parameters=plain, return_annotation=found.empty))
    return text.replace("<class 'numpy.float64'>", "np.float64")


def signatures_in(file: Path) -> dict[str, str]:
    """Those of the functions and methods of a source."""
    found = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = f"({ast.unparse(node.args)})"
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, ast.FunctionDef):
                found[f"{node.name}.{inner.name}"] = f"({ast.unparse(inner.args)})"
    return found


def ours(name: str) -> Any:
    made, _, method = name.partition(".")
    return getattr(cuda.Stream if made == "Stream" else gpushm.Array, method)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_documents_signature(name: str) -> None:
    assert signature(getattr(cuda, name)) == FUNCTIONS[name]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_documents_signature(name: str) -> None:
    assert signature(ours(name)) == METHODS[name]
    if name.endswith(("copy_to_host", "copy_to_device", "split")):
        assert signature(getattr(cuda.Mapped, name.partition(".")[2])) == METHODS[name]


def releases() -> list[Path]:
    """Newest last."""
    found = Path(os.environ.get("BUILD", "build"), "numba-cuda").absolute().glob("*.*")
    return sorted(found, key=lambda path: [int(n) for n in path.name.split(".")])[-2:]


@pytest.mark.parametrize("release", releases() or [None], ids=lambda path: path.name if path else "none")
def test_a_release_of_numba_has_these_signatures(release: Path | None) -> None:
    if release is None:
        pytest.skip("no release of numba-cuda is in build/numba-cuda")
    source = release / "numba_cuda/numba/cuda"
    theirs = signatures_in(source / "api.py")
    assert {name: theirs[name] for name in FUNCTIONS} == FUNCTIONS
    methods = signatures_in(source / "cudadrv/devicearray.py") | signatures_in(source / "cudadrv/driver.py")
    assert {name: methods[name] for name in METHODS} == METHODS


# ---- results ----


class Interface:
    """Another library's array over GPU memory of a pool, or, without one, over pinned memory that is no pool's."""

    def __init__(self, interface: dict[str, Any], **more: Any) -> None:
        self.__cuda_array_interface__ = dict(interface, **more)


@pytest.fixture(autouse=True)
def chosen(pool: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GPUSHM_NUMBA_POOL", pool)
    # The tests of Numba's own streams are in gpu/.
    monkeypatch.setitem(sys.modules, "numba", None)
    yield


def test_an_array_is_of_float64_in_c_order_in_the_pool(pool: str) -> None:
    for a in (cuda.device_array((3, 4)), cuda.device_array_like(np.zeros((3, 4)))):
        assert (a.shape, a.dtype, a.pool, a.anonymous) == ((3, 4), np.dtype(np.float64), pool, True)
        assert a.is_c_contiguous() and a.nbytes == 96
    assert cuda.device_array(5, np.int16, order="F").shape == (5,)
    assert cuda.device_array((3, 4), order="F").is_f_contiguous()
    assert cuda.device_array((2, 3), "u1", strides=(1, 2)).strides == (1, 2)


LIKE = np.zeros((3, 4), "i2"), np.zeros((3, 4), "f4", order="F"), np.zeros((2, 3, 4))[:, :, ::2], np.float32(1)


@pytest.mark.parametrize("like", LIKE)
def test_an_array_like_another_has_its_order(like: np.ndarray) -> None:
    a = cuda.device_array_like(like)
    assert (a.shape, a.dtype, a.strides) == (like.shape, like.dtype, np.empty_like(like).strides)


def test_the_documents_transfers_run(pool: str) -> None:
    ary = np.arange(10)
    d_ary = cuda.to_device(ary)
    assert (d_ary.pool, d_ary.dtype) == (pool, ary.dtype)
    stream = cuda.stream() if GPU_POOLS and pool in HERE else 0
    d_ary = cuda.to_device(ary, stream=stream)
    hary = d_ary.copy_to_host()
    assert np.array_equal(hary, ary)
    ary = np.empty(shape=d_ary.shape, dtype=d_ary.dtype)
    assert d_ary.copy_to_host(ary) is ary and np.array_equal(ary, hary)
    hary = d_ary.copy_to_host(stream=stream)
    if stream:
        stream.synchronize()
    assert np.array_equal(hary, ary)


def test_to_device_takes_a_scalar_a_record_and_a_place() -> None:
    record = np.array([(1, 2.5)], [("n", "i4"), ("x", "f4")])
    assert cuda.to_device(7.5).copy_to_host() == 7.5
    assert cuda.to_device(record[0])["x"].copy_to_host() == 2.5
    d = cuda.device_array(4)
    assert cuda.to_device(np.ones(4), to=d) is d and d.copy_to_host().tolist() == [1] * 4
    assert cuda.to_device(np.zeros(4), copy=False, to=d) is d and d.copy_to_host().tolist() == [1] * 4
    assert cuda.to_device(np.zeros((2, 3), "i2"), copy=False).shape == (2, 3)
    with pytest.raises(ValueError, match="shape"):
        cuda.to_device(np.zeros(5), to=d)
    with pytest.raises(TypeError):
        cuda.to_device([object()])


@with_a_driver
def test_to_device_returns_what_is_on_a_gpu(pool: str) -> None:
    d = cuda.to_device(np.arange(4))
    again = cuda.to_device(d)
    if pool in GPU_POOLS:
        assert again is d
        there = cuda.to_device(Interface(d[1:].__cuda_array_interface__))
        assert isinstance(there, gpushm.Array) and there.device_ptr == d[1:].device_ptr
    else:
        assert again.buffer.id != d.buffer.id and again.copy_to_host().tolist() == [0, 1, 2, 3]


def test_views_take_a_stream() -> None:
    d = cuda.to_device(np.arange(10).reshape(2, 5))
    flat = d.ravel(order="C", stream=0)
    assert flat.shape == (10,)
    assert [part.copy_to_host().tolist() for part in flat.split(4, stream=0)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


# ---- pinned and mapped ----


@with_a_driver
def test_pinned_and_mapped_arrays_are_of_float64() -> None:
    made = [cuda.pinned_array((2, 3)), cuda.mapped_array((2, 3), portable=True, wc=True, stream=0)]
    made += [cuda.pinned_array_like(made[0]), cuda.mapped_array_like(made[0], stream=0, portable=False, wc=True)]
    for a in made:
        assert (a.kind, a.dtype, a.shape) == ("pinned", np.dtype(np.float64), (2, 3))
        a.copy_to_device(np.ones((2, 3)))
        assert np.array_equal(a.numpy(), np.ones((2, 3)))
        assert cuda.is_cuda_array(a)


@with_a_driver
def test_a_mapped_section_copies_and_splits() -> None:
    host = np.arange(6, dtype="f4")
    with cuda.pinned(host), pytest.raises(TypeError, match="one keyword, stream"), cuda.mapped(host, wc=True):
        pass
    with cuda.mapped(host, stream=0) as there:
        assert there.copy_to_host().tolist() == host.tolist()
        there.copy_to_device(np.ones(6, "f4"), stream=cuda.stream())
        assert host.tolist() == [1] * 6
        out = np.empty(6, "f4")
        assert there.copy_to_host(out, stream=cuda.default_stream()) is out and out.tolist() == [1] * 6
        first, last = there.split(4)
        last.copy_to_device(np.array([8, 9], "f4"))
        assert (first.shape, host.tolist()) == ((4,), [1, 1, 1, 1, 8, 9])
        assert np.asarray(there).tolist() == host.tolist()
        with pytest.raises(ValueError, match="shape"):
            there.copy_to_device(np.ones(5))
        with pytest.raises(ValueError, match="ary is"):
            there.copy_to_host(np.ones(5))
    with pytest.raises(AttributeError, match="section"):
        there.copy_to_host()


# ---- any library's memory ----


@with_a_driver
def test_memory_of_another_library_is_taken_as_it_is(pool: str) -> None:
    """Memory of the host that is registered for the GPU stands for another library's."""
    host = np.arange(6, dtype="i4")
    with cuda.mapped(host) as there:
        foreign = Interface(there.__cuda_array_interface__, stream=1)
        assert cuda.is_cuda_array(foreign) and not cuda.is_cuda_array(host)
        view = cuda.as_cuda_array(foreign)
        assert isinstance(view, cuda.DeviceView) and cuda.as_cuda_array(view) is view
        assert (view.shape, view.dtype) == ((6,), host.dtype)
        view.copy_to_device(np.ones(6, "i4"))
        assert host.tolist() == [1] * 6 == view.copy_to_host().tolist()
        d = cuda.device_array_like(host)
        d.copy_to_device(view)
        assert d.copy_to_host().tolist() == [1] * 6
        view.copy_to_device(cuda.to_device(np.arange(6, dtype="i4")))
        assert host.tolist() == list(range(6))
        assert cuda.as_cuda_array(foreign, sync=False).__cuda_array_interface__["stream"] is None
        with pytest.raises(TypeError, match="address of this process"):
            pickle.dumps(view)
    with pytest.raises(TypeError, match="doesn't implement the cuda array interface"):
        cuda.as_cuda_array(host)


def test_an_array_is_its_own_cuda_array() -> None:
    d = cuda.device_array(3)
    assert cuda.as_cuda_array(d) is d


# ---- streams ----


@with_a_driver
def test_streams_have_numbas_names(pool: str) -> None:
    if pool not in HERE:
        pytest.skip("the streams are of another GPU")
    made = cuda.stream()
    assert made.handle > 2 and made.__cuda_stream__() == (0, made.handle) and not made.external
    known = [cuda.default_stream(), cuda.legacy_default_stream(), cuda.per_thread_default_stream()]
    assert [int(s) for s in known] == [0, 1, 2]
    theirs = cuda.external_stream(made.handle)
    assert theirs.external and hex(made.handle) in repr(theirs)
    for stream in (made, theirs, *known):
        d = cuda.to_device(np.arange(4), stream=stream)
        with stream.auto_synchronize() as same:
            found = d.copy_to_host(stream=same)
        assert same is stream and found.tolist() == [0, 1, 2, 3]
        stream.synchronize()
    with pytest.raises(KeyError), made.auto_synchronize():
        raise KeyError
    cuda.synchronize()


@with_a_driver
def test_a_stream_ends_with_its_object() -> None:
    for _ in range(3):
        made = cuda.stream()
        made.synchronize()
        del made


# ---- deallocation ----


def in_a_program(code: str, **env: str) -> str:
    """What it prints, with the variables of this test alone."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_CUDA_MAX")}
    done = subprocess.run([sys.executable, "-c", code], env=inherited | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


PENDING = """
import itertools
from gpushm import numba as cuda
most = 0
for _ in range(16):
    cuda.device_array(1).close()
    most = max(most, cuda.pending_cleanup()[0])
with cuda.defer_cleanup():
    with cuda.defer_cleanup():
        for _ in range(20):
            cuda.device_array(1).close()
    n = cuda.pending_cleanup()[0]
assert cuda.pending_cleanup()[0] == n
cuda.flush_cleanup()
print(most, n >= 20, cuda.pending_cleanup()[0])
"""


@with_a_driver
@pytest.mark.parametrize(
    ("env", "most"),
    [
        ({}, 10),
        ({"NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT": "3"}, 3),
        ({"NUMBA_CUDA_MAX_PENDING_DEALLOCS_RATIO": "0"}, 0),
    ],
    ids=["default", "count", "ratio"],
)
def test_closed_arrays_wait_by_numbas_limits(pool: str, env: dict[str, str], most: int) -> None:
    if pool not in GPU_POOLS:
        pytest.skip("memory of the host is given back at once")
    assert in_a_program(PENDING, GPUSHM_NUMBA_POOL=pool, **env).split() == [str(most), "True", "0"]


@with_a_driver
def test_limits_that_a_program_sets_stay(pool: str) -> None:
    if pool not in GPU_POOLS:
        pytest.skip("memory of the host is given back at once")
    code = PENDING.replace("most = 0\n", "cuda.set_cleanup_limits(5, 0.2)\nmost = 0\n")
    assert in_a_program(code, GPUSHM_NUMBA_POOL=pool).split()[0] == "5"


# ---- other processes ----


IPC = """
import sys
import numpy as np
from gpushm import numba as cuda

def child(handle, raw, shape, dtype):
    with handle as ipc_array:
        first = ipc_array.copy_to_host().tolist()
    with cuda.open_ipc_array(raw, shape=shape, dtype=dtype) as array:
        print(first, array.copy_to_host().tolist())

if __name__ == "__main__":
    import multiprocessing as mp
    darr = cuda.to_device(np.arange(3))
    handle = darr.get_ipc_handle()
    raw = cuda.get_ipc_handle(darr).handle.reserved
    proc = mp.get_context("spawn").Process(target=child, args=(handle, raw, darr.shape, darr.dtype))
    proc.start()
    proc.join()
    sys.exit(proc.exitcode)
"""


def test_the_documents_ipc_runs_between_processes(pool: str, tmp_path: Path) -> None:
    (tmp_path / "ipc.py").write_text(IPC)
    done = subprocess.run([sys.executable, tmp_path / "ipc.py"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[0, 1, 2] [0, 1, 2]\n"), done.stderr


def test_an_array_gets_a_name_for_everybody(pool: str) -> None:
    d = cuda.to_device(np.arange(3))
    d.publish_as("a", "shared")
    with gpushm.open("a") as again:
        assert cuda.as_cuda_array(again).copy_to_host().tolist() == [0, 1, 2]
    d.close()
    with pytest.raises(gpushm.errors.NotFound):
        gpushm.open("a")


def test_without_a_choice_the_pool_is_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSHM_NUMBA_POOL")
    default = next(p.name for p in gpushm.pools() if p.is_default)
    assert cuda.device_array(1).pool in (GPU_POOLS or [default])


def test_the_module_needs_no_numba() -> None:
    code = "import sys; sys.modules['numba'] = None\nfrom gpushm import numba as cuda\n"
    code += "print(cuda.to_device([1, 2]).copy_to_host().sum(), cuda.legacy_default_stream().handle)"
    assert in_a_program(code).split() == ["3", "1"]
