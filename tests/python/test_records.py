# SPDX-License-Identifier: MIT
"""Records: single elements of an array of records."""

from __future__ import annotations

import copy
import pickle

import gpushm
import numpy as np
import pytest
from copies import to_device

POINT = np.dtype([("x", "f4"), ("y", "i4", (2,)), ("in", [("a", "i2"), ("b", "i2")])])


def content() -> np.ndarray:
    want = np.zeros(4, POINT)
    want["x"], want["y"], want["in"]["a"] = np.arange(4), [[1, 2]] * 4, 9
    return want


def test_a_record_reads_and_writes_its_element(pool: str) -> None:
    want = content()
    with to_device(want, "a", pool=pool) as a:
        r = a[2]
        assert isinstance(r, gpushm.types.Record) and r.dtype == POINT
        assert (r.x, r["x"]) == (2, 2) and r["y"].copy_to_host().tolist() == [1, 2] and r["in"].a == 9
        r.x = 50
        r["y"] = [7, 8]
        r["in"].b = 3
        want[2] = (50, [7, 8], (9, 3))
        assert a.copy_to_host().tobytes() == want.tobytes()
        assert r == want[2] and r.copy_to_host() == want[2] and np.asarray(r) == want[2] and r != a[1]
        assert r.item()[0] == 50 and "50" in repr(r)
        a[0].copy_to_device(r)
        a[1].copy_to_device((1.5, [3, 4], (5, 6)))
        a[3] = want[2]
        want[0], want[1], want[3] = want[2], (1.5, [3, 4], (5, 6)), want[2]
        assert a.copy_to_host().tobytes() == want.tobytes()
        assert [x.x for x in a] == want["x"].tolist()
        r.close()
        with pytest.raises(ValueError, match="closed"):
            _ = r.x
        del r


def test_an_unknown_field_is_refused(host_pool: str) -> None:
    with to_device(content(), "a", pool=host_pool) as a:
        r = a[0]
        with pytest.raises(AttributeError, match="'z'"):
            _ = r.z
        with pytest.raises(AttributeError, match="'z'"):
            r.z = 1
        with pytest.raises(KeyError, match="'x', 'y', 'in'"):
            _ = r["z"]
        with pytest.raises(TypeError):
            hash(r)
        del r
        a.publish()
        with gpushm.open("a") as reader:
            with pytest.raises(ValueError):
                reader[1].x = 3
            assert reader[1].x == 1
        gpushm.unlink("a")


def test_a_pickled_record_shares_its_memory(pool: str) -> None:
    with to_device(content(), "a", pool=pool) as a:
        a.publish("shared")
        sent = pickle.loads(pickle.dumps(a[2]))
        assert isinstance(sent, gpushm.types.Record) and sent == a[2] and sent.array.offset == 2 * POINT.itemsize
        sent.x = 17
        assert a[2].x == 17 and copy.copy(a[2]) == a[2]
        sent.close()
        with pytest.raises(TypeError, match="to_device"):
            copy.deepcopy(a[2])
        gpushm.unlink("a")


def test_a_close_names_the_record_that_prevents_it(host_pool: str) -> None:
    a = to_device(content(), "a", pool=host_pool)
    r = a[1]
    with pytest.raises(gpushm.errors.InUse, match="1 view"):
        a.close()
    del r
    a.close()
