# SPDX-License-Identifier: MIT
"""Packs what the project's Makefile builds: the extension gpushm._core, the libraries, gpushmd and gpushmctl, and
their manual pages and completions.

It runs make, in a checkout (`pip install ./client/python`) and in a source distribution (`pip install
gpushm-*.tar.gz`), where this file lies beside the Makefile. One wheel is for Python 3.11 and all later versions.

Environment: $BUILD names the build folder, "build" by default. With $GPUSHM_MADE make is the caller and has built all
of it. $GPUSHM_LICENSES is a folder with the licences of the libraries that "make wheel" packs in.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

# isort: off
from setuptools import Distribution, setup  # first: it brings distutils to Python 3.12 and later
from distutils.command.build_scripts import build_scripts
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
# isort: on

HERE = Path(__file__).resolve().parent
ROOT = HERE if (HERE / "Makefile").exists() else HERE.parent.parent
BUILD = Path(os.environ.get("BUILD", "build"))
WORK = (ROOT / BUILD / "python").resolve()
SOURCE = ROOT / "client" / "python"


def fail(why: str) -> None:
    """Ends the build with the reason as its last line."""
    sys.exit(f"gpushm: {why}")


def check_python() -> None:
    """Refuses a Python whose interface the extension does not have."""
    if sys.platform != "linux":
        fail("it needs Linux: memory is shared by file descriptors and watched by pidfds")
    if sys.implementation.name != "cpython":
        fail(f"it needs CPython, and this is {sys.implementation.name}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        fail("it needs a Python with the GIL, and this is a free-threaded build; use python3 instead of python3t")


def version() -> str:
    """The version in the Makefile."""
    found = re.search(r"^VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    if not found:
        fail("the Makefile has no VERSION; is this a checkout of gpushm, or its source distribution?")
    return found[1]


def relative(path: Path) -> str:
    """A path as setuptools wants it: from this folder."""
    return os.path.relpath(path, HERE)


def shared_files() -> list[tuple[str, list[str]]]:
    """Manual pages and completions, by their folders below the prefix."""
    completion = ROOT / "client" / "ctl" / "completion"
    pages = sorted((ROOT / "man").glob("*.[1-8]"))
    folders = {f"share/man/man{p.suffix[1:]}": [] for p in pages}
    for page in pages:
        folders[f"share/man/man{page.suffix[1:]}"].append(relative(page))
    # bash wants the bare name; zsh wants _name.
    (WORK / "completion").mkdir(parents=True, exist_ok=True)
    # The relay is not in a wheel: it is a service of the machine.
    for file in sorted(f for f in completion.iterdir() if "relay" not in f.name):
        zsh = file.name.startswith("_")
        copy = WORK / "completion" / (file.name if zsh else file.stem)
        shutil.copyfile(file, copy)
        folder = "share/zsh/site-functions" if zsh else "share/bash-completion/completions"
        folders.setdefault(folder, []).append(relative(copy))
    return list(folders.items())


def cuda_include() -> dict[str, str]:
    """The folder of cuda.h, if pip has installed the CUDA Toolkit's headers for this build."""
    for folder in sys.path:
        for header in sorted(Path(folder).glob("nvidia/cu*/include/cuda.h")):
            return {"CUDA_INCLUDE": str(header.parent)}
    return {}


def make(*goals: str) -> None:
    """Runs make in the root."""
    if not shutil.which("make"):
        fail("there is no make: apt-get install make gcc, or install a wheel instead")
    settings = [f"BUILD={BUILD}", f"PYTHON={sys.executable}"]
    environment = {"CFLAGS": "-O2", **cuda_include(), **os.environ}
    if subprocess.run(["make", "-C", str(ROOT), *settings, *goals], env=environment).returncode != 0:
        fail("it could not be built, for the reason above")


class BuildCore(build_py):
    """build_py, which also packs the libraries and gpushmctl beside the modules."""

    def run(self) -> None:
        # Remove modules of an earlier build.
        shutil.rmtree(Path(self.build_lib) / "gpushm", ignore_errors=True)
        super().run()
        if not os.environ.get("GPUSHM_MADE"):
            make("needs")
            make(f"-j{os.cpu_count()}", "python-core", "python-programs")
        made = WORK / "gpushm"
        for file in [*sorted(made.glob("*.so*")), made / "gpushmctl", made / "_core.pyi"]:
            shutil.copy2(file, Path(self.build_lib) / "gpushm", follow_symlinks=True)


class BuildPrograms(build_scripts):
    """build_scripts, which also packs gpushmd: it is no script, but it is installed like one."""

    def run(self) -> None:
        super().run()
        shutil.copy2(WORK / "gpushmd", Path(self.build_dir))

    def get_source_files(self) -> list[str]:
        return []


class WheelWithLicenses(bdist_wheel):
    """bdist_wheel, which also packs our licence, and those of libraries that are packed in."""

    def write_wheelfile(self, wheelfile_base: str, *args: Any, **kw: Any) -> None:
        super().write_wheelfile(wheelfile_base, *args, **kw)
        folder = os.environ.get("GPUSHM_LICENSES")
        others = sorted((ROOT / folder).iterdir()) if folder else []
        target = Path(wheelfile_base) / "licenses"
        target.mkdir(exist_ok=True)
        for file in [ROOT / "LICENSE", *others]:
            shutil.copyfile(file, target / file.name)


class WithLibraries(Distribution):
    """Makes the wheel depend on the platform, although setuptools compiles nothing."""

    def has_ext_modules(self) -> bool:
        return True


check_python()
WORK.mkdir(parents=True, exist_ok=True)
setup(
    version=version(),
    packages=[
        "gpushm", "gpushm.numba", "gpushm.ray", "gpushm.safetensors", "gpushm.sglang", "gpushm.share", "gpushm.torch",
        "gpushm.transformers", "gpushm.vllm",
    ],
    package_dir={"": relative(SOURCE)},
    package_data={"gpushm": ["py.typed", "*.pyi"]},
    scripts=[relative(SOURCE / "programs" / "gpushmctl")],
    data_files=shared_files(),
    license_files=[],
    distclass=WithLibraries,
    cmdclass={"build_py": BuildCore, "build_scripts": BuildPrograms, "bdist_wheel": WheelWithLicenses},
    options={
        # Write nothing into the source tree.
        "build": {"build_base": str(WORK / "setuptools")},
        "egg_info": {"egg_base": str(WORK)},
        "bdist_wheel": {"py_limited_api": "cp311"},
    },
)
