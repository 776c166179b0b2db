# SPDX-License-Identifier: MIT
"""Runs numba-cuda's own tests, with gpushm's memory manager or without, and prints what came of each as JSON.

    suites.py own|gpushm NAME...      a name is a module below numba.cuda.tests, or a test in one

The manager is set by the call and not by the environment, because tests of deferral are skipped where the environment
names a manager. The processes that tests spawn get it by the environment.
"""

import json
import os
import sys
import unittest
from typing import Any


class Outcomes(unittest.TextTestResult):
    """Keeps each test's outcome: "ok", "skipped: why", or what was raised."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.outcomes: dict[str, str] = {}

    def note(self, test: Any, outcome: str) -> None:
        """The first one counts: a test with sub-tests that failed does not succeed, too."""
        self.outcomes.setdefault(getattr(test, "test_case", test).id().removeprefix("numba.cuda.tests."), outcome)

    def addSuccess(self, test: Any) -> None:
        self.note(test, "ok")

    def addSkip(self, test: Any, reason: str) -> None:
        self.note(test, f"skipped: {reason}")

    def addFailure(self, test: Any, err: Any) -> None:
        self.note(test, f"failed: {err[1]}")

    def addError(self, test: Any, err: Any) -> None:
        self.note(test, f"failed: {err[0].__name__}: {err[1]}")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.addError(test, err)


def main(manager: str, *names: str) -> None:
    import numpy

    # Newer versions of NumPy have no row_stack(), which the tests call.
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # type: ignore[attr-defined]
    from numba import cuda

    if manager == "gpushm":
        import gpushm.numba

        cuda.set_memory_manager(gpushm.numba.MemoryManager)
        os.environ["NUMBA_CUDA_MEMORY_MANAGER"] = "gpushm.numba"
    from numba.cuda.tests.cudapy import test_ipc

    test_ipc.FUTURE_TIMEOUT = 60  # on a busy machine a spawned process takes more than 4 s to import Numba
    tests = unittest.defaultTestLoader.loadTestsFromNames([f"numba.cuda.tests.{name}" for name in names])
    with open(os.devnull, "w") as nowhere:
        found = unittest.TextTestRunner(nowhere, resultclass=Outcomes, buffer=True).run(tests)
    assert isinstance(found, Outcomes)
    print(json.dumps(found.outcomes), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
