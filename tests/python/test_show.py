# SPDX-License-Identifier: MIT
"""How objects look as text and in a notebook."""

from __future__ import annotations

import copy
import html.parser
import pickle

import gpushm
import pytest


class Parser(html.parser.HTMLParser):
    """Checks that tags open and close in order, and collects the cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def test_a_notebook_shows_name_pool_and_state(pool: str) -> None:
    name = "a/<b>&c"
    with gpushm.create(name, (3, 4), "float32", pool=pool) as a:
        for thing in (a, a[1:], a.buffer):
            cells = Parser(thing._repr_html_()).cells
            assert name in cells and f"{pool} ({a.kind})" in cells and "filling" in cells
        assert "(2, 4)" in Parser(a[1:]._repr_html_()).cells
        assert repr(a).startswith(f"<gpushm.Array '{name}' (3, 4) float32, filling in pool '{pool}'")
        buffer = a.buffer
    assert "closed" in a._repr_html_() and "closed" in buffer._repr_html_()


def test_lists_of_buffers_and_pools_show_as_tables(host_pool: str) -> None:
    with gpushm.create("show/a", 4096, pool=host_pool) as a, gpushm.create("show/b", 1, pool=host_pool):
        a.publish()
        found = gpushm.ls("show/")
        assert [b.name for b in found] == ["show/a", "show/b"]
        lines = str(found).splitlines()
        assert lines[0].split() == ["NAME", "SIZE", "POOL", "STATE", "ARRAYS", "READERS", "WRITERS", "OWNER"]
        assert lines[1].split()[:5] == ["show/a", "4.0", "KiB", "host", "sealed"]
        assert lines[2].split()[:5] == ["show/b", "1", "B", "host", "filling"]
        assert {"show/a", "4.0 KiB", "host"} <= set(Parser(found._repr_html_()).cells)
        gpushm.unlink("show/a")
    with gpushm.create("show/<b>", 1, pool=host_pool):
        assert "show/<b>" in Parser(gpushm.ls("show/")._repr_html_()).cells
        assert "<b>" not in gpushm.ls("show/")._repr_html_()
    pools = gpushm.pools()
    assert "host" in str(pools) and "host" in Parser(pools._repr_html_()).cells
    assert str(gpushm.ls("nothing/")).startswith("NAME")


def test_a_record_shows_modes_and_limits_as_people_write_them(host_pool: str) -> None:
    with gpushm.create("show/a", 4, pool=host_pool, mode=0o640) as a:
        a.publish()
        shown = repr(gpushm.stat("show/a"))
        assert shown.startswith("gpushm.info.BufferInfo(name='show/a', pool='host', ") and "mode=0o640, " in shown
        gpushm.unlink("show/a")
        [info] = gpushm.ls()
        assert info.name == "" and repr(info).startswith("gpushm.info.BufferInfo(name=(unlinked), ")
    usage = gpushm.status().usage[0]
    assert usage.nbytes_max == 2**64 - 1 and "nbytes_max=no limit, " in repr(usage)
    assert f"leases_max={usage.leases_max}, " in repr(usage)


def test_an_unlinked_stream_shows_so(host_pool: str) -> None:
    with gpushm.stream("show/s", {"a": (4, "u1")}, slots=2, pool=host_pool):
        gpushm.unlink("show/s")
        assert repr(gpushm.streams()[0]).startswith("gpushm.info.StreamInfo(name=(unlinked), ")


def test_the_names_of_arrays_complete_and_near_ones_are_told(host_pool: str) -> None:
    with gpushm.create_many("show/a", {"weight": (4, "u1"), "bias": (4, "u1")}, pool=host_pool) as b:
        assert b._ipython_key_completions_() == ["weight", "bias"]
        with pytest.raises(KeyError, match="no array 'wieght'; near it are 'weight'"):
            b["wieght"]
        with pytest.raises(KeyError, match="no array 'zzz'; it has 2"):
            b["zzz"]
        with pytest.raises(KeyError, match="no array 5;"):
            b[5]  # type: ignore[index]


def test_a_list_can_be_pickled_and_copied(host_pool: str) -> None:
    with gpushm.create("show/a", 4, pool=host_pool):
        for found in (gpushm.ls("show/"), gpushm.pools()):
            for again in (pickle.loads(pickle.dumps(found)), copy.copy(found)):
                assert again == found and str(again) == str(found) and again._repr_html_() == found._repr_html_()


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 40, "3.0 TiB"), (5 << 50, "5120.0 TiB")]
)
def test_a_size_is_shown_in_binary_units(nbytes: int, text: str) -> None:
    assert gpushm._show.size(nbytes) == text
