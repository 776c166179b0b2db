# SPDX-License-Identifier: MIT
"""Opens buffers as they are published, in an event loop: open_async.py NAME...

The loop does other work meanwhile, also if the daemon is stopped, and no thread waits.
"""

import asyncio
import sys

import gpushm


async def show(name: str) -> None:
    """Waits for one buffer."""
    with await gpushm.open_async(name) as a:
        print(f"{name}: {a.nbytes} bytes", flush=True)


async def main(names: list[str]) -> None:
    """Waits for all of them at the same time."""
    await asyncio.gather(*(show(name) for name in names))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
