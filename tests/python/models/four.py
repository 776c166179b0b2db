# SPDX-License-Identifier: MIT
"""Runs programs as they are, each in four processes at once, and prints what they have and answer, as JSON.

    four.py FOLDER PROGRAM...

The libraries are imported once, before the forks: that is most of a program's time. FOLDER has the models. A program
leaves `model`, a module, and `answer`, a tensor.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing as mp
import re
import runpy
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

N = 4
LIBRARIES = ("torch", "safetensors.torch", "transformers", "accelerate", "peft", "sentence_transformers", "diffusers")


def held(model: Any) -> tuple[int, int]:
    """Bytes of parameters: all, and those in memory of this process alone."""
    maps = []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+)", line):
            maps.append([int(found[1], 16), int(found[2], 16), int(found[3]) != 0, 0])
        elif line.startswith("Private_Dirty:"):
            maps[-1][3] = int(line.split()[1]) << 10
    own, written = 0, {}
    parameters = {p.data_ptr(): p for p in model.parameters()}.values()
    for p in parameters:
        start, _, is_file, dirty = next(m for m in maps if m[0] <= p.data_ptr() < m[1])
        if is_file:
            written[start] = dirty  # pages that were copied when they were written to
        else:
            own += p.nbytes
    return sum(p.nbytes for p in parameters), own + sum(written.values())


def child(program: str, folder: str, pipe: Connection) -> None:
    """Runs the program, and waits until all have loaded."""
    sys.argv[:] = [program, folder]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        done = runpy.run_path(program, run_name="__main__")
    said = [str(w.message) for w in caught if w.category.__name__ == "FallbackWarning"]
    pipe.send("loaded")
    pipe.recv()
    pipe.send((*held(done["model"]), done["answer"].double().flatten().tolist(), said))
    pipe.recv()


def four(program: str, folder: str) -> dict[str, Any]:
    """What four processes of the program have and say, while all of them live."""
    import gpushm

    fork, pipes, processes = mp.get_context("fork"), [], []
    for _ in range(N):
        ours, theirs = mp.Pipe()
        processes.append(fork.Process(target=child, args=(program, folder, theirs)))
        processes[-1].start()
        theirs.close()
        pipes.append(ours)
    assert [pipe.recv() for pipe in pipes] == ["loaded"] * N
    buffers = {buffer.name: buffer.nbytes for buffer in gpushm.ls()}
    for pipe in pipes:
        pipe.send("go on")
    found = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send("end")
    for process in processes:
        process.join()
    model, own, answers, said = zip(*found, strict=True)
    return {"model": model[0], "own": sum(own), "answers": answers, "said": said, "buffers": buffers}


if __name__ == "__main__":
    for library in LIBRARIES:
        importlib.import_module(library)
    print(json.dumps({Path(program).stem: four(program, sys.argv[1]) for program in sys.argv[2:]}))
