# SPDX-License-Identifier: MIT
"""A plugin of pytest (-p manager): numba-cuda's own tests with gpushm's memory manager.

It is set by the call and not by the environment, because the tests of deferral are skipped where the environment names a
manager. The processes that tests spawn get it by the environment.
"""

import os

# Newer versions of NumPy have no row_stack(), which the tests call.
import numpy

if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack

if os.environ.get("WITH_MANAGER"):
    import gpushm.numba
    from numba import cuda

    cuda.set_memory_manager(gpushm.numba.MemoryManager)
    os.environ["NUMBA_CUDA_MEMORY_MANAGER"] = "gpushm.numba"
