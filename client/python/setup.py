# SPDX-License-Identifier: MIT
"""Packs what the project's Makefile builds: the extension gpushm._core, and the libgpushm that it is linked with.

Use `pip install ./client/python` in a checkout. It runs make there; $BUILD names the build folder, "build" by default.
One wheel is for Python 3.11 and all later versions.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = Path(os.environ.get("BUILD", "build"))
WORK = (ROOT / BUILD / "python").resolve()


def version() -> str:
    found = re.search(r"^VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    if not found:
        sys.exit("setup.py: the Makefile has no VERSION; is this a checkout of gpushm?")
    return found[1]


class BuildCore(build_py):
    """build_py, which also packs the libraries beside the modules."""

    def run(self) -> None:
        # Remove modules of an earlier build.
        shutil.rmtree(Path(self.build_lib) / "gpushm", ignore_errors=True)
        super().run()
        command = ["make", "-C", str(ROOT), f"BUILD={BUILD}", f"PYTHON={sys.executable}", "python-core"]
        subprocess.run(command, check=True)
        for library in sorted((WORK / "gpushm").glob("*.so*")):
            shutil.copy2(library, Path(self.build_lib) / "gpushm", follow_symlinks=True)


class WithLibraries(Distribution):
    """Makes the wheel depend on the platform, although setuptools compiles nothing."""

    def has_ext_modules(self) -> bool:
        return True


WORK.mkdir(parents=True, exist_ok=True)
setup(
    version=version(),
    packages=["gpushm", "gpushm.safetensors", "gpushm.torch", "gpushm.transformers"],
    package_data={"gpushm": ["py.typed", "*.pyi"]},
    distclass=WithLibraries,
    cmdclass={"build_py": BuildCore},
    options={
        # Write nothing into the source tree.
        "build": {"build_base": str(WORK / "setuptools")},
        "egg_info": {"egg_base": str(WORK)},
        "bdist_wheel": {"py_limited_api": "cp311"},
    },
)
