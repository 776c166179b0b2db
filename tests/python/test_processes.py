# SPDX-License-Identifier: MIT
"""Other processes: what they see and what their death does; fork(), a daemon that has ended, Python without NumPy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import gpushm
import numpy as np
import pytest

from daemon import Daemon

InChild = Callable[..., str]


def test_another_process_reads_and_writes_the_same_bytes(pool: str, in_child: InChild) -> None:
    want = np.arange(24, dtype="f4").reshape(4, 6)
    with gpushm.create("a", (4, 6), "float32", pool=pool) as a:
        a[:] = want
        a.publish("shared")
        code = """
import gpushm
with gpushm.open("a", "r+", timeout=60) as a:
    print(a[::-1, 1].copy_to_host().tolist())
    a[0] = 7
"""
        assert eval(in_child(code)) == want[::-1, 1].tolist()
        assert list(a[0]) == [7] * 6
    gpushm.unlink("a")


def test_a_process_that_ends_with_everything_open_leaks_nothing(pool: str, in_child: InChild) -> None:
    code = f"""
import gpushm
a = gpushm.create("a", 4, pool={pool!r})
a.publish()
b = gpushm.open("a")
v = b[1:]
t = v.__dlpack__(max_version=(1, 0))
"""
    in_child(code)
    with gpushm.open("a") as a:
        assert a.shape == (4,)
    gpushm.unlink("a")


def test_a_dead_writers_buffer_is_dirty_until_it_is_cleaned(pool: str) -> None:
    with gpushm.create("a", 4, pool=pool) as a:
        a.publish("shared")
        code = "import gpushm, os, signal\na = gpushm.open('a', 'r+')\nos.kill(os.getpid(), signal.SIGKILL)"
        done = subprocess.run([sys.executable, "-c", code])
        assert done.returncode == -signal.SIGKILL
        # The daemon notices it a little later.
        while not gpushm.stat("a").dirty:
            pass
        with gpushm.open("a") as b:
            assert b.dirty and "dirty" in repr(b)
        told = gpushm.stat("a")
        assert told.dirty_command.startswith("python") and told.dirty_since > told.published
        with pytest.raises(gpushm.errors.Dirty, match="died"):
            gpushm.open("a", refuse_dirty=True)
        with pytest.raises(gpushm.errors.Timeout):
            gpushm.open("a", refuse_dirty=True, timeout=0.15)
        gpushm.clean("a")
        with gpushm.open("a", refuse_dirty=True, timeout=60) as b:
            assert not b.dirty
    gpushm.unlink("a")


@pytest.mark.skipif(os.getuid() != 0, reason="root alone can be somebody else")
def test_stat_tells_the_large_uid_of_a_dead_writer(host_pool: str) -> None:
    """User namespaces have such uids."""
    uid, folder = 3_000_000_000, os.path.dirname(os.environ["GPUSHM_SOCKET"])
    os.chmod(folder, 0o711)
    with gpushm.create("a", 4, pool=host_pool, mode=0o666) as a:
        a.publish("shared")
        pid = os.fork()
        if pid == 0:
            try:
                os.setuid(uid)
                kept = gpushm.open("a", "r+")  # noqa: F841
                os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        while not gpushm.stat("a").dirty:
            pass
        assert gpushm.stat("a").dirty_uid == uid
    gpushm.unlink("a")
    os.chmod(folder, 0o700)


def test_a_forked_child_gets_a_fork_error_for_gpu_memory(pool: str, in_child: InChild) -> None:
    code = f"""
import gpushm, os
a = gpushm.create("a", 4, pool={pool!r})
pid = os.fork()
if pid == 0:
    try:
        a.__cuda_array_interface__
    except gpushm.errors.ForkError as e:
        os._exit(1 if "spawn" in str(e) else 3)
    except AttributeError:
        os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (2 if a.kind == "host" else 1)
a.discard()
"""
    assert in_child(code) == ""


def test_a_forked_child_uses_host_memory_and_is_refused_requests(host_pool: str, in_child: InChild) -> None:
    code = """
import gpushm, numpy, os
explicit = gpushm.connect()
a = gpushm.create("a", 4, pool="host")
a[:] = 5
view = a[1:]
pid = os.fork()
if pid == 0:
    failures = []
    for use in (lambda: a.publish(), lambda: explicit.ls()):
        try:
            use()
            failures.append(use)
        except gpushm.errors.ForkError as e:
            assert "connect()" in str(e), e
    assert a.numpy().tolist() == a.copy_to_host().tolist() == list(a) == a.tolist() == [5] * 4
    assert bytes(a) == bytes([5] * 4) and (a == 5).all() and a.state == "filling" and a.buffer[""][3] == 5
    assert numpy.from_dlpack(a)[2] == 5 and a.__dlpack_device__() == (1, 0) and a.buffer.keys()
    a[1] = 6
    view[1:] = [7, 8]
    memoryview(a)[0] = 4
    view.close()
    a.close()
    # The module's connection is the child's own.
    with gpushm.create("b", 4, pool="host") as b:
        b.publish()
    gpushm.wait("b", 60)
    gpushm.unlink("b")
    del a, view, explicit
    os._exit(len(failures))
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
a.publish("shared")
assert list(a) == [4, 6, 7, 8]
del view
a.close()
gpushm.unlink("a")
print("ok")
"""
    assert in_child(code) == "ok\n"


def test_forked_workers_read_an_array_that_outlives_its_parents_close(host_pool: str, in_child: InChild) -> None:
    """As under PyTorch's DataLoader: a Dataset with Arrays, whose workers begin by a fork and end in every way."""
    code = """
import gpushm, multiprocessing, os, sys

class Dataset:
    def __init__(self):
        made = gpushm.create_many("data", {"x": ((3, 2), "float32"), "y": (3, "int64")}, pool="host")
        made["x"][...], made["y"][...] = [[1, 2], [3, 4], [5, 6]], [7, 8, 9]
        made.publish()
        made.close()
        self.buffer = gpushm.open_many("data")
        self.x = self.buffer["x"]

    def __getitem__(self, i):
        return self.x[i].numpy().tolist(), self.buffer["y"][i].item()

def work(dataset, indices, results):
    for i in iter(indices.get, None):
        results.put((i, dataset[i]))
    with dataset.buffer:
        assert dataset.buffer.attr("none", None) is None
        del dataset.x
    assert dataset.buffer.closed

context = multiprocessing.get_context("fork")
dataset, indices, results = Dataset(), context.Queue(), context.Queue()
workers = [context.Process(target=work, args=(dataset, indices, results)) for _ in range(3)]
for worker in workers:
    worker.start()
dataset.x.close()
dataset.buffer.close()
gpushm.unlink("data")
assert not gpushm.ls()
for i in range(30):
    indices.put(i % 3)
found = [results.get() for _ in range(30)]
assert sorted(found)[::10] == [(0, ([1, 2], 7)), (1, ([3, 4], 8)), (2, ([5, 6], 9))], found
for worker in workers:
    indices.put(None)
for worker in workers:
    worker.join()
print([worker.exitcode for worker in workers])
"""
    assert in_child(code) == "[0, 0, 0]\n"


def test_clients_survive_a_dead_daemon_and_reconnect(other_daemon: Daemon) -> None:
    c = gpushm.connect(other_daemon.socket)
    a = c.create("a", (2, 3), "int32", pool="host")
    a[:] = [[1, 2, 3], [4, 5, 6]]
    other_daemon.kill()
    assert a[1].copy_to_host().tolist() == [4, 5, 6]
    with pytest.raises(gpushm.errors.DaemonGone):
        a.publish()
    for use in (lambda: c.ls(), lambda: c.open("a"), lambda: c.open("a", timeout=5), lambda: c.wait("a", 5)):
        with pytest.raises(ConnectionError):
            use()
    assert a.copy_to_host().tolist() == [[1, 2, 3], [4, 5, 6]]
    a.close()
    other_daemon.start()
    # The connection works again.
    with c.create("a", 4, pool="host") as a:
        a.publish()
    assert [b.name for b in c.ls()] == ["a"]
    c.wait("a", 60)
    # Without a request in between, the restart is not noticed.
    other_daemon.kill()
    other_daemon.start()
    assert c.ls() == []
    c.close()


def test_a_missing_driver_or_gpu_is_an_error(in_child: InChild) -> None:
    if "gpu0" not in {p.name for p in gpushm.pools()}:
        pytest.skip("no pool on a GPU")
    with gpushm.create("a", 4, pool="gpu0") as a:
        a.publish()
        code = """
import gpushm
try:
    gpushm.open("a")
except gpushm.errors.DeviceFailed as e:
    print(e)
"""
        assert "CUDA_ERROR_NO_DEVICE" in in_child(code, CUDA_VISIBLE_DEVICES="")
        # A real driver is found without LD_LIBRARY_PATH.
        if "fakecuda" in os.environ.get("LD_LIBRARY_PATH", ""):
            assert "libcuda" in in_child(code, LD_LIBRARY_PATH="")
    gpushm.unlink("a")


def test_a_failing_driver_call_is_an_error_that_names_it(in_child: InChild) -> None:
    if "gpu0" not in {p.name for p in gpushm.pools()} or "fakecuda" not in os.environ.get("LD_LIBRARY_PATH", ""):
        pytest.skip("no fake driver")
    # Each child is forked before it uses the driver, which saves the start of 59 interpreters.
    code = """
import gpushm, numpy, os, sys
for n in range(1, 60):
    if os.fork() == 0:
        os.environ["FAKECUDA_FAIL"] = str(n)
        break
    assert os.wait()[1] == 0, n
else:
    sys.exit()
for pool in ("gpu0", "gpu0-mempool", "pinned"):
    try:
        with gpushm.create(f"x/{pool}", 1000, pool=pool) as a:
            a[:] = 1
            a.copy_to_host()
            a.publish()
    except (gpushm.errors.DriverError, gpushm.errors.DeviceFailed, gpushm.errors.OutOfMemory, gpushm.Error) as e:
        assert "cu" in str(e), e
for b in gpushm.ls():
    gpushm.unlink(b.name)
"""
    in_child(code, FAKECUDA_STRICT="0")


def test_the_package_works_without_numpy(host_pool: str, in_child: InChild) -> None:
    code = """
import sys
sys.modules["numpy"] = None
import gpushm
with gpushm.create("a", (2, 3), "float32", pool="host") as a:
    a._write_from(bytes(range(24)))
    a.copy_from_host(bytes(range(24)))
    assert bytes(a) == bytes(range(24)) and a.dtype == "float32" and a.T.shape == (3, 2)
    out = bytearray(24)
    a.copy_to_host(out)
    assert bytes(out) == bytes(range(24)) and repr(a)
    for use in (a.numpy, a.copy_to_host, lambda: a == 1, lambda: gpushm.create("b", 1, "f4")):
        try:
            use()
            sys.exit("worked")
        except (ImportError, TypeError) as e:
            assert "umpy" in str(e).lower(), e
    a.publish()
gpushm.unlink("a")
print("ok")
"""
    assert in_child(code) == "ok\n"


def test_elements_are_read_and_written_without_numpy(pool: str, in_child: InChild) -> None:
    code = f"""
import sys
sys.modules["numpy"] = None
import gpushm

def refused(error, use):
    try:
        use()
    except error as e:
        return str(e)
    raise SystemExit("worked")

for dtype in "bool int8 uint64 int32 float16 float32 float64".split():
    kind = bool if dtype == "bool" else float if "float" in dtype else int
    with gpushm.create(None, (2, 3), dtype, pool={pool!r}) as a:
        a.fill(7)
        assert a.tolist() == [[kind(7)] * 3] * 2 and type(a[1, 2]) is kind and a[1, 2] == kind(7)
        a[...] = 1.0
        a[0] = [0, 1, (2 > 1)]
        a[1, 2] = False
        assert a.tolist() == [[kind(n) for n in row] for row in ([0, 1, 1], [1, 1, 0])], a.tolist()
        a[:, 1:] = [[0], [1]]
        assert list(a[:, 1]) == [kind(0), kind(1)] and a[:, ::2].tolist() == [[0, 0], [1, 1]]
        assert a[:0].tolist() == [] and a[:1, :1].item() == 0 and not a[0, 0] and float(a[1:, 1:2]) == 1.0
        for wrong in ([1, 2], [[1], [2], [3]], [[[1]]], []):
            assert "broadcast" in refused(ValueError, lambda: a.__setitem__(..., wrong))
        assert "one element" in refused(ValueError, a.item)
        assert "install" in refused(ImportError, lambda: a.__setitem__(..., "7"))
        a.discard()
with gpushm.create(None, 3, "uint8", pool={pool!r}) as a:
    assert "uint8" in refused(OverflowError, lambda: a.fill(256))
    a.discard()
for dtype in ("complex64", "bfloat16"):
    with gpushm.create(None, 3, dtype, pool={pool!r}) as a:
        for use in (a.tolist, lambda: a[0], lambda: a.fill(1), lambda: a.__setitem__(..., 1)):
            assert "install" in refused(ImportError, use)
        a.discard()
print("ok")
"""
    assert in_child(code) == "ok\n"


def test_an_import_loads_no_large_module(in_child: InChild) -> None:
    code = "import sys, gpushm\nprint(*sys.modules)"
    assert not {"numpy", "asyncio", "multiprocessing", "torch"} & set(in_child(code).split())


def test_a_second_interpreter_is_refused(in_child: InChild) -> None:
    code = """
import gpushm
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
code = "try:\\n import gpushm\\nexcept ImportError as e:\\n print('refused:', e)"
found = interpreters.run_string(interpreters.create(), code)
print(found or "", gpushm.status().pid > 0)
"""
    assert "interpreter" in (told := in_child(code)) and told.startswith("refused: ") and told.endswith("True\n"), told


def test_a_private_name_opens_as_it_was_created(host_pool: str) -> None:
    with gpushm.create("~/a", 4, pool=host_pool) as a:
        a.publish()
        with gpushm.open("~/a") as b:
            assert b.name == "~/a"
    gpushm.unlink("~/a")


def test_stat_ls_pools_and_status_tell_what_is_there(pool: str) -> None:
    with gpushm.create("a/b", (4, 4), "int16", pool=pool, mode=0o644, attrs={"k": "v"}) as a:
        filling = gpushm.stat("a/b")
        assert (filling.state, filling.published) == ("filling", None)
        a.publish()
        told = gpushm.stat("a/b", holders=True)
        assert (told.name, told.pool, told.kind, told.state) == ("a/b", pool, a.kind, "sealed")
        assert (told.nbytes, told.arrays, told.mode, told.uid) == (32, 1, 0o644, os.getuid())
        assert told.attrs == {"k": b"v"} and told.id == a.buffer.id and told.digest == a.buffer.digest
        assert [h.pid for h in told.holders] == [os.getpid()] and told.readers == 1 and told.created <= told.published
        assert [b.name for b in gpushm.ls("a/")] == ["a/b"] and gpushm.ls("b") == []
        assert gpushm.ls(holders=True)[0].holders[0].access == "r"
        where = next(p for p in gpushm.pools() if p.name == pool)
        assert where.buffers == 1 and where.used >= 32 and not where.failed
        assert (where.device_uuid is None) == (pool in ("host", "pinned")) or pool == "pinned"
        status = gpushm.status()
        assert status.pid > 0 and status.leases == 1 and status.usage[0].uid == os.getuid()
        assert repr(told).startswith("gpushm.info.BufferInfo(name='a/b', ")
    gpushm.unlink("a/b")
    gpushm.flush(pool)
    gpushm.flush()
