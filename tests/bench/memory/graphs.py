# SPDX-License-Identifier: MIT
"""Rounds of suspend, kernels of another process, resume, and a CUDA graph that was captured before: its output is the same.

The memory comes back as it was, or evicted meanwhile and copied from the twin.
"""
import common


def work(end):
    """A process whose kernels run, and whose memory comes and goes, until it is told to end."""
    import cupy

    end.send(None)
    while not end.poll():
        cupy.random.random(1 << 24).sum()
        cupy.get_default_memory_pool().free_all_blocks()


def stay():
    pass


def evict():
    common.ctl("evict", "m0")


# What happens to the memory while it is away. Another generation of the name belongs here once resume() follows names.
MEANWHILE = {"the same pages": stay, "other pages, from the twin": evict}


def launches(rounds, meanwhile):
    """How many outputs of so many rounds differ from the first."""
    import cupy
    import gpushm

    array = gpushm.open("m0", timeout=60)
    model, stream, different = cupy.from_dlpack(array).view(cupy.uint32), cupy.cuda.Stream(non_blocking=True), 0
    out = cupy.zeros(model.size, cupy.uint32)
    with stream:
        cupy.multiply(model, 3, out=out)  # compiles
        stream.begin_capture()
        cupy.multiply(model, 3, out=out)
        graph = stream.end_capture()
        expected = cupy.multiply(model, 3)
        for _ in range(rounds):
            stream.synchronize()
            array.suspend()
            MEANWHILE[meanwhile]()
            out.fill(0)
            stream.synchronize()
            array.resume(timeout=60)
            graph.launch(stream)
            different += not bool((out == expected).all())
    return different


def run(args):
    with common.pools(1, 1, 1 << 28):
        other, end = common.start(work)
        end.recv()
        for meanwhile in MEANWHILE:
            different, = common.run_workers(launches, (args.rounds, meanwhile))
            common.row(f"{args.rounds:,} rounds with a captured graph: {meanwhile}", "", f"{different} outputs differ", "0",
                       different=different)
        end.send(None)
        other.join()
