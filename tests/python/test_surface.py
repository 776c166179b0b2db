# SPDX-License-Identifier: MIT
"""What a reader sees of the package: dir(), help(), and the names that an asterisk imports."""

from __future__ import annotations

import inspect
import pydoc
import sys
from typing import Any

import gpushm
import pytest

CLASSES = [name for name in gpushm.__all__ if isinstance(getattr(gpushm, name), type)]
FUNCTIONS = [name for name in gpushm.__all__ if not isinstance(getattr(gpushm, name), type)]
# Modules of the package that other tests may have imported: dir() does not have them.
SUBMODULES = {"safetensors", "torch", "transformers"}
# Python's own exceptions have them without a docstring.
INHERITED = set(dir(OSError)) | set(dir(RuntimeWarning))


def test_dir_lists_the_public_names_alone() -> None:
    public = {name for name in dir(gpushm) if not name.startswith("_")}
    assert public - {"MemoryResource"} == set(gpushm.__all__)
    assert list(gpushm.__all__) == sorted(set(gpushm.__all__))
    # What dir() hides can be reached all the same.
    assert {name for name in vars(gpushm) if not name.startswith("_")} - public - SUBMODULES == set()


def test_an_asterisk_imports_every_public_name() -> None:
    found: dict[str, Any] = {}
    exec("from gpushm import *", found)
    assert set(gpushm.__all__) <= set(found)


def test_the_package_has_help_without_cuda_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    monkeypatch.setitem(sys.modules, "cuda.core.experimental", None)
    monkeypatch.delitem(sys.modules, "gpushm._cuda_core", raising=False)
    assert "open_or_create" in pydoc.render_doc(gpushm, renderer=pydoc.plaintext)
    with pytest.raises(ImportError, match="pip install cuda-core"):
        assert gpushm.MemoryResource


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_help_and_a_signature(name: str) -> None:
    function = getattr(gpushm, name)
    assert inspect.getdoc(function) and inspect.signature(function) is not None
    assert "(...)" not in pydoc.render_doc(function, renderer=pydoc.plaintext)


def members(made: type) -> dict[str, Any]:
    """Its own public attributes, and those by which a with block or a loop uses it."""
    special = {"__enter__", "__exit__"}
    names = [n for n in dir(made) if n in special or not n.startswith("_")]
    # Those of tuple are Python's.
    inherited = INHERITED if issubclass(made, BaseException) else set(dir(tuple)) if issubclass(made, tuple) else set()
    counts = {"n_fields", "n_sequence_fields", "n_unnamed_fields"} if issubclass(made, tuple) else set()
    return {n: inspect.getattr_static(made, n) for n in names if n not in inherited | counts}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_and_its_attributes_have_help(name: str) -> None:
    made = getattr(gpushm, name)
    assert made.__dict__.get("__doc__"), name
    assert name in pydoc.render_doc(made, renderer=pydoc.plaintext)
    for attribute, found in members(made).items():
        if attribute == "code":  # of an exception: a str
            continue
        assert inspect.getdoc(found), attribute
        if callable(found):
            assert inspect.signature(found) is not None
