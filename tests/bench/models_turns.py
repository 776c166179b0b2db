# SPDX-License-Identifier: MIT
"""Loads by turns: another build, this one, what people use today, and plain loops, on this machine.

    python3 tests/bench/models_turns.py BUILD [--before FOLDER] [--folders /dev/shm /var/tmp] [--gib 16] [--turns 2]

A safetensors file of that size is made in each folder, unless one is there, and stays in the page cache. In each turn every
one of these runs in a process of its own, which has used the GPU before: BUILD's loader, the one whose libgpushm-load.so.1
is in FOLDER, InstantTensor if it is installed, and models_ring --plain with its shapes. The second turn has half of the
processors busy. safetensors' load_file and gpushm.torch's run once for each folder. "cold" is the first call of a process that
has not used the GPU. What would begin after --seconds is left out. Prints a table for each folder, medians over the turns:
"first" and "next" are whole calls, "engine" the copying of those, all in GB/s; "cpu" is the processor time of the next ones.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CALLS = 4


def run(words, **env):
    """The lines of JSON that it prints, or an empty list and a word on stderr."""
    done = subprocess.run(
        [str(w) for w in words], text=True, capture_output=True, check=False, env={**os.environ, **env}, timeout=120
    )
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["it failed"])[-1]
        print(f"    {Path(str(words[0])).name}: {why}", flush=True)
        return []
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "["))]


def start_daemon(build, folder):
    config = Path(folder) / "gpushmd.conf"
    config.write_text("[pool gpu]\nkind=vmm\n", encoding="utf-8")
    daemon = subprocess.Popen([build / "gpushmd", "--config", config, "--socket", f"{folder}/socket"])
    for _ in range(200):
        if Path(f"{folder}/socket").exists():
            break
        time.sleep(0.05)
    return daemon


class Folder:
    """A file, and what was measured with it: name of a row -> lists of figures."""

    def __init__(self, where, args):
        self.args = args
        self.file = Path(where) / "gpushm-bench.safetensors"
        self.rows = {}

    def make(self):
        start = time.monotonic()
        run([self.args.build / "tests/bench/models_load", self.file.parent, "--gib", self.args.gib, "--rounds", 1,
             "--only", "none"])  # fmt: skip
        if self.args.sync:
            subprocess.run(["timeout", "20", "sync", "-f", str(self.file)], check=False)
        # The first two reads of a new file cost more, whoever makes them.
        for _ in range(2):
            subprocess.run(["cat", self.file], stdout=subprocess.DEVNULL, check=True)
        print(f"{self.file}: {self.file.stat().st_size / 1e9:.1f} GB, {time.monotonic() - start:.1f} s", flush=True)

    def add(self, row, **figures):
        for name, value in figures.items():
            self.rows.setdefault(row, {}).setdefault(name, []).append(value)

    def calls(self, row, extra=(), **env):
        size = self.file.stat().st_size
        lines = run([self.args.build / "tests/bench/models_load", "--calls", self.file, CALLS, *extra], **env)
        if not lines:
            return
        self.add(row, first=size / lines[0]["call_ms"] / 1e6, first_engine=size / lines[0]["engine_ms"] / 1e6)
        if not extra:
            self.add(row, cpu=statistics.median(x["processor_ms"] for x in lines[1:]) / 1e3)
            self.add(row, next=statistics.median(size / x["call_ms"] / 1e6 for x in lines[1:]))
            self.add(row, engine=statistics.median(size / x["engine_ms"] / 1e6 for x in lines[1:]))

    def way(self, row, way, rounds=3, **env):
        size = self.file.stat().st_size
        if self.args.is_late():
            return
        words = [sys.executable, HERE / "models_peers.py", self.file, "--way", way, "--rounds", rounds]
        for seconds in run(words, **env)[-1:]:
            self.add(row, first=size / seconds[0] / 1e9)
            if seconds[1:]:
                self.add(row, next=statistics.median(size / s / 1e9 for s in seconds[1:]))

    def plain(self, row):
        with tempfile.NamedTemporaryFile() as out:
            run([self.args.build / "tests/bench/models_ring", self.file, "--plain", "--gib", self.args.plain_gib, "--rounds", 1,
                 "--json", out.name])  # fmt: skip
            for line in Path(out.name).read_text(encoding="utf-8").splitlines():
                shape = json.loads(line)
                what = f"{row} {shape['way']}, {shape['threads']} x {shape['slots']} x {shape['mib']:g} MiB"
                self.add(what, next=shape["median_gbs"])

    def turn(self, suffix):
        a = self.args
        self.calls("this build" + suffix)
        if a.before and not self.args.is_late():
            self.calls("before" + suffix, LD_LIBRARY_PATH=f"{a.before}:{os.environ.get('LD_LIBRARY_PATH', '')}")
        self.plain("plain:" + suffix)
        if a.peers:
            self.way("InstantTensor" + suffix, "instanttensor")

    def once(self):
        a = self.args
        self.calls("this build, cold", ["cold"])
        if a.peers:
            self.way("safetensors load_file", "safetensors", rounds=1)
            with tempfile.TemporaryDirectory() as folder:
                daemon = start_daemon(a.build, folder)
                self.way("gpushm.torch.load_file", "gpushm", GPUSHM_SOCKET=f"{folder}/socket")
                daemon.terminate()
                daemon.wait()

    def print(self):
        print(f"\n{self.file}: GB/s (medians)\n{'':52}{'first':>7}{'engine':>8}{'next':>8}{'engine':>8}{'cpu s':>8}")
        for row, figures in sorted(self.rows.items(), key=lambda r: (r[0].startswith("plain"), "busy" in r[0])):
            columns = ("first", "first_engine", "next", "engine", "cpu")
            cells = [f"{statistics.median(figures[c]):8.1f}" if c in figures else f"{'':8}" for c in columns]
            print(f"{row:51}{''.join(cells)}")


def burn(n):
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--before", help="a folder with another build's libgpushm-load.so.1")
    parser.add_argument("--folders", nargs="+", default=["/dev/shm", "/var/tmp"])
    parser.add_argument("--gib", type=int, default=16)
    parser.add_argument("--plain-gib", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=140)
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument("--no-sync", dest="sync", action="store_false")
    parser.add_argument("--json", help="append all figures to this file")
    args = parser.parse_args()
    args.build = args.build.resolve()
    folders = [Folder(where, args) for where in args.folders]
    begun = time.monotonic()
    args.is_late = lambda: time.monotonic() - begun > args.seconds
    for folder in folders:
        folder.make()
    for turn in range(args.turns):
        busy = burn((os.cpu_count() or 2) // 2) if turn == 1 else []
        for folder in folders:
            if not args.is_late():
                folder.turn(", busy" if busy else "")
        for p in busy:
            p.kill()
            p.wait()
        if turn == 1:
            for folder in folders:
                folder.once()
        print(f"turn {turn + 1}: {time.monotonic() - begun:.0f} s", flush=True)
    for folder in folders:
        folder.print()
        if args.json:
            with open(args.json, "a", encoding="utf-8") as f:
                f.write(json.dumps({"file": str(folder.file), "rows": folder.rows}) + "\n")
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
