# SPDX-License-Identifier: MIT
"""Arrays that are open copy-on-write: this process may write to them, and nobody else sees that."""

from __future__ import annotations

import pickle

import gpushm
import numpy as np
import pytest


def make(pool: str, state: str = "sealed") -> None:
    with gpushm.create("a", (4, 1024), "float32", pool=pool) as a:
        a[...] = 1
        a.publish(state)


@pytest.mark.parametrize("state", ["sealed", "shared"])
def test_a_private_write_is_seen_by_its_writer_alone(host_pool: str, state: str) -> None:
    make(host_pool, state)
    with gpushm.open("a", "c") as a, gpushm.open("a", "c") as b, gpushm.open("a") as reader:
        assert (a.access, a.buffer.access, reader.access) == ("c", "c", "r")
        assert not a.readonly and a.flags["WRITEABLE"]
        assert "copy-on-write" in repr(a) and "copy-on-write" in a._repr_html_()
        a[0] = 2
        a[1:2].copy_from_host(np.full((1, 1024), 3, "f4"))
        np.asarray(a)[2] = 4
        np.from_dlpack(a)[3] = 5
        memoryview(a)[3, 5] = 6
        assert a[:, 5].copy_to_host().tolist() == [2, 3, 4, 6]
        assert (reader.numpy() == 1).all() and (b.numpy() == 1).all()
        assert a.__dlpack__() and a.state == state
    with gpushm.open("a", "c") as a:
        assert (a.numpy() == 1).all()
    with gpushm.open_many("a", "c") as b:
        assert b.access == "c"
    gpushm.unlink("a")


def test_unwritten_pages_follow_the_shared_buffer(host_pool: str) -> None:
    make(host_pool, "shared")
    with gpushm.open("a", "c") as a, gpushm.open("a", "r+") as writer:
        assert (a.access, writer.access) == ("c", "r+")
        a[0, 0] = 2
        writer[...] = 7
        assert a[0, 0] == 2 and a[0, 1] == 1 and (a.numpy()[1:] == 7).all()
    gpushm.unlink("a")


def test_copy_on_write_is_refused_for_memory_of_a_driver(pool: str) -> None:
    make(pool)
    if pool == "host":
        gpushm.open("a", "c").close()
    else:
        with pytest.raises(gpushm.errors.NotSupported, match="host memory"):
            gpushm.open("a", "c")
    gpushm.unlink("a")


def test_a_private_array_refuses_to_pickle(host_pool: str) -> None:
    make(host_pool, "shared")
    with gpushm.open("a", "c") as a:
        a[0] = 2
        for thing in (a, a[1], a.buffer):
            with pytest.raises(TypeError, match="copy_to_host"):
                pickle.dumps(thing)
        handle = pickle.loads(pickle.dumps(a.handle()))
        assert handle.access == "c"
        with handle as b:
            assert b.access == "c" and (b.numpy() == 1).all()
    gpushm.unlink("a")


def test_a_wrong_access_is_refused(host_pool: str) -> None:
    make(host_pool)
    for wrong in ("w", "w+", "", "cc"):
        with pytest.raises(ValueError, match="copy-on-write"):
            gpushm.open("a", wrong)
    gpushm.unlink("a")


def test_a_view_of_private_memory_is_found_in_its_own_buffer(host_pool: str) -> None:
    make(host_pool)
    with gpushm.open("a", "c") as a, gpushm.open("a") as reader:
        mine, theirs = a.numpy(), reader.numpy()
        found, other = gpushm.as_array(mine[1:]), gpushm.as_array(theirs)
        assert found.buffer is a.buffer and other.buffer is reader.buffer
        found[0] = 9
        assert mine[1, 0] == 9 and theirs[1, 0] == 1
        del found, other, mine, theirs
    gpushm.unlink("a")
