# SPDX-License-Identifier: MIT
"""What a buffer with many arrays costs the daemon in memory.

    BUILD=build PYTHONPATH=build/python python3 tests/bench/models_memory.py

Each number of arrays has a daemon of its own, from $BUILD, and a host pool. "Filling" is the daemon's anonymous memory
beyond that before the buffer, while the arrays are described and not yet published; "sealed" is the same afterwards.
The table of the arrays is a file in memory, which its readers map, and the daemon does not.
"""

import argparse
import json
import os
import re
import subprocess
import sys

COUNTS = (1, 3435, 90000, 262144)


def anonymous(daemon):
    """KiB of the daemon."""
    with open(f"/proc/{daemon.process.pid}/status", encoding="utf-8") as f:
        return int(re.search(r"RssAnon:\s+(\d+)", f.read())[1])


def files(daemon):
    """KiB of the files in memory that the daemon has open, by inode."""
    folder = f"/proc/{daemon.process.pid}/fd"
    found = {}
    for fd in os.listdir(folder):
        if "memfd:" in os.readlink(f"{folder}/{fd}"):
            stat = os.stat(f"{folder}/{fd}")
            found[stat.st_ino] = stat.st_blocks // 2
    return found


def measure(count):
    """One number of arrays, in a process of its own."""
    import gpushm
    from daemon import Daemon

    daemon = Daemon()
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    gpushm.ls()
    specs = {
        f"model.layers.{i // 1536}.mlp.experts.{i // 6 % 256}.{i % 6}.weight": ((2, 3), "uint8")
        for i in range(count)
    }
    before, had = anonymous(daemon), files(daemon)
    buffer = gpushm.create_many("many", specs)
    filling = anonymous(daemon) - before
    buffer.publish()
    sealed = anonymous(daemon) - before
    new = [size for inode, size in files(daemon).items() if inode not in had]
    buffer.close()
    gpushm.unlink("many")
    daemon.remove()
    return {"row": f"arrays_{count}", "arrays": count, "filling_kib": filling, "sealed_kib": sealed, "table_kib": max(new)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.count:
        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "python"))
        print(json.dumps(measure(args.count)))
        return
    for count in COUNTS:
        line = subprocess.check_output([sys.executable, "-B", __file__, "--count", str(count)], text=True)
        row = json.loads(line)
        print(f"{count:7} arrays: daemon +{row['sealed_kib']} KiB, +{row['filling_kib']} KiB while they are described; "
              f"their table {row['table_kib']} KiB", flush=True)
        if args.json:
            with open(args.json, "a", encoding="utf-8") as f:
                f.write(line)


if __name__ == "__main__":
    main()
