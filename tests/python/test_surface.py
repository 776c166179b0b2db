# SPDX-License-Identifier: MIT
"""What a reader sees of the package: dir(), help(), and the names that an asterisk imports."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pydoc
import subprocess
import sys
import types
from typing import Any

import gpushm
import pytest

PLACES = {"errors", "info", "numba", "types"}
PUBLIC = {f"{module.__name__}.{name}": getattr(module, name)
          for module in (gpushm, *(getattr(gpushm, place) for place in PLACES)) for name in module.__all__}
CLASSES = [name for name, found in PUBLIC.items() if isinstance(found, type)]
FUNCTIONS = [name for name in PUBLIC if name not in CLASSES]
# Modules of the package that other tests may have imported: dir() does not have them.
SUBMODULES = {"cuda_core", "cupy", "ray", "safetensors", "share", "torch", "transformers"}
FIRST = {"create", "open", "Array", "unlink", "ls", "wait", "stream", "follow", "load", "Error"}
# Python's own exceptions have them without a docstring.
INHERITED = set(dir(OSError)) | set(dir(RuntimeWarning))


def test_dir_lists_the_public_names_alone() -> None:
    public = {name for name in dir(gpushm) if not name.startswith("_")}
    assert public == set(gpushm.__all__) | PLACES
    assert list(gpushm.__all__) == sorted(set(gpushm.__all__))
    assert len(gpushm.__all__) <= 40 and set(gpushm.__all__) >= FIRST
    # What dir() hides can be reached all the same.
    assert {name for name in vars(gpushm) if not name.startswith("_")} - public - SUBMODULES == set()


def test_an_asterisk_imports_every_public_name() -> None:
    found: dict[str, Any] = {}
    exec("from gpushm import *", found)
    assert set(gpushm.__all__) <= set(found)


@pytest.mark.parametrize("module", ["cuda_core", "cupy"])
def test_a_module_says_which_library_it_needs(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, f"gpushm.{module}", raising=False)
    with pytest.raises(ImportError, match="pip install cu"):
        importlib.import_module(f"gpushm.{module}")


def test_a_cuda_core_without_the_private_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "Buffer", "DeviceMemoryResourceOptions", "MemoryResource", "PinnedMemoryResourceOptions"
    core = types.ModuleType("cuda.core")
    vars(core).update(dict.fromkeys(names, object), __version__="9.1")
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setattr(sys.modules["cuda"], "core", core, raising=False)
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.delitem(sys.modules, "gpushm.cuda_core", raising=False)
    with pytest.raises(ImportError, match=r"_init.* 9\.1 has not"):
        importlib.import_module("gpushm.cuda_core")


def test_the_old_memory_resource_says_where_it_is() -> None:
    assert "open_or_create" in pydoc.render_doc(gpushm, renderer=pydoc.plaintext)
    with pytest.raises(AttributeError, match=r"gpushm\.cuda_core\.DeviceMemoryResource"):
        assert gpushm.MemoryResource


@pytest.mark.parametrize(
    "was", ["NotFound", "ReadOnlyWarning", "BufferInfo", "Stream", "Handle", "Record", "to_device", "pinned"]
)
def test_a_name_that_moved_says_where_it_is(was: str) -> None:
    with pytest.raises(AttributeError, match=rf"^gpushm\.{was} is gpushm\.(\w+)\.{was} now$") as caught:
        getattr(gpushm, was)
    assert hasattr(getattr(gpushm, str(caught.value).split(".")[2]), was)
    with pytest.raises(AttributeError, match=r"^module 'gpushm' has no attribute 'nothing'$"):
        getattr(gpushm, "nothing")  # noqa: B009


def test_the_modules_of_names_are_loaded_when_they_are_asked_for() -> None:
    code = "import gpushm, sys; print(*sys.modules); gpushm.errors.Dirty; gpushm.numba.mapped; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = ({*line.split()} for line in done.stdout.splitlines())
    assert before & {f"gpushm.{place}" for place in PLACES} == {"gpushm.errors"}
    assert "gpushm.numba" in after and "numba" not in after


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_says_where_it_is_found(name: str) -> None:
    made = PUBLIC[name]
    assert getattr(sys.modules[made.__module__], made.__qualname__) is made
    assert f"{made.__module__}.{made.__qualname__}" in PUBLIC
    assert pickle.loads(pickle.dumps(made)) is made


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_help_and_a_signature(name: str) -> None:
    function = PUBLIC[name]
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
    made = PUBLIC[name]
    assert made.__dict__.get("__doc__"), name
    assert made.__name__ in pydoc.render_doc(made, renderer=pydoc.plaintext)
    for attribute, found in members(made).items():
        if attribute == "code":  # of an exception: a str
            continue
        assert inspect.getdoc(found), attribute
        if callable(found):
            assert inspect.signature(found) is not None


# ---- what moved to Transport ----


@pytest.mark.parametrize("word", gpushm.Transport._fields)
@pytest.mark.parametrize("call", [gpushm.load, gpushm.pull, gpushm.pull_wait], ids=lambda call: call.__name__)
def test_a_keyword_of_transports_says_so(call: Any, word: str) -> None:
    with pytest.raises(TypeError, match=rf"^{word}= is gpushm\.Transport\({word}=\.\.\.\) now"):
        call("source", "name", **{word: None})


def test_signatures_say_stream_for_cudas_alone() -> None:
    told = {name: inspect.signature(found).parameters for name, found in PUBLIC.items() if name in FUNCTIONS}
    of_members = {
        f"{name}.{member}": inspect.signature(found).parameters
        for name in CLASSES for member, found in members(PUBLIC[name]).items()
        if callable(found) and not isinstance(found, type)
    }
    for name, parameters in (told | of_members).items():
        assert not {"cuda_stream", "producer", "reader"} & set(parameters), name
        if name.startswith(("gpushm.load", "gpushm.pull")):
            assert len(parameters) <= 20, name
