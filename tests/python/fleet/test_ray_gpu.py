# SPDX-License-Identifier: MIT
"""gpushm.ray with PyTorch on a real GPU, whose work is still under way when objects are passed on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

import gpushm
import gpushm.ray
import gpushm.torch
import ray
import torch
from nodes import until

from daemon import Daemon

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU for PyTorch")
gpushm.ray.register()
SECOND = 1_800_000_000  # cycles of a GPU


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    made = Daemon("[pool host]\nkind=host\nsize=64M\n[pool gpu0]\nkind=vmm\ndevice=0\nsize=1G\n")
    os.environ["GPUSHM_SOCKET"] = made.socket
    ray.cloudpickle.register_pickle_by_value(__import__(__name__))
    ray.init(address="local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)
    yield made
    ray.shutdown()
    gpushm._core._disconnect()
    made.remove()


class Actor:
    @ray.method(tensor_transport="gpushm")
    def make(self, value: float, cycles: int = 0) -> Any:
        torch.cuda._sleep(cycles)
        return torch.full((1 << 20,), value, device="cuda")

    @ray.method(tensor_transport="gpushm")
    def make_in_place(self, value: float, cycles: int) -> Any:
        if not hasattr(self, "buffer"):
            self.buffer = gpushm.create_many("test/shared", {"a": ((1 << 20,), "float32")}, pool="gpu0")
            self.buffer.publish("shared")
            self.tensor = torch.from_dlpack(self.buffer["a"])
        torch.cuda._sleep(cycles)
        return self.tensor.fill_(value)

    def pid(self) -> int:
        return os.getpid()

    def mean(self, tensor: Any) -> float:
        return float(tensor.mean())

    def queue(self, tensor: Any) -> None:
        """Reads it when the task is over."""
        torch.cuda._sleep(SECOND)
        self.copy = tensor * 1

    def mean_of_copy(self) -> float:
        return float(self.copy.mean())


def actors(n: int) -> list[Any]:
    made = [ray.remote(num_cpus=0, num_gpus=0.1)(Actor).remote() for _ in range(n)]
    ray.get([a.mean.remote(a.make.remote(1.0)) for a in made])  # what the first time takes
    return made


@pytest.mark.parametrize("how", ["make", "make_in_place"])
def test_the_source_goes_on_while_its_gpu_works_and_readers_get_what_it_made(daemon: Daemon, how: str) -> None:
    source, reader = actors(2)
    ray.get(reader.mean.remote(getattr(source, how).remote(1.0, 0)))
    for value in 2.0, 3.0:
        start = time.monotonic()
        ref = getattr(source, how).remote(value, SECOND)
        ray.get(source.pid.remote())
        free = time.monotonic() - start
        assert ray.get(reader.mean.remote(ref)) == value
        assert free < 0.5 < time.monotonic() - start
        del ref


def test_memory_that_queued_work_reads_is_not_written_to(daemon: Daemon) -> None:
    source, slow, reader = actors(3)
    ray.get(slow.queue.remote(source.make.remote(5.0)))
    for _ in range(5):
        assert ray.get(reader.mean.remote(source.make.remote(9.0))) == 9.0
    assert ray.get(slow.mean_of_copy.remote()) == 5.0


def test_a_source_that_dies_before_its_gpu_is_done_is_an_error(daemon: Daemon) -> None:
    source, reader = actors(2)
    pid = ray.get(source.pid.remote())
    ref = source.make.remote(7.0, 4 * SECOND)
    ray.get(source.pid.remote())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Exception, match="is gone"):
        ray.get(reader.mean.remote(ref))
    del ref
    ray.kill(reader)
    with gpushm.connect(daemon.socket) as connection:
        until(lambda: not connection.ls("ray/"))
