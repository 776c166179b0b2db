# SPDX-License-Identifier: MIT
"""Rounds of suspend, kernels of another process, resume, and a CUDA graph that was captured before: its output is the same.

The memory comes back as it was, or evicted meanwhile and copied from the twin, or as another generation of the name.
"""
import common

SIZE = 1 << 26


def work(end):
    """A process whose kernels run, and whose memory comes and goes, until it is told to end."""
    import cupy

    end.send(None)
    while not end.poll():
        cupy.random.random(1 << 24).sum()
        cupy.get_default_memory_pool().free_all_blocks()


def stay(n):
    return 1


def evict(n):
    common.ctl("evict", "m0")
    return 1


def replace(n):
    """Another generation of the name; its bytes are other ones. Returns which."""
    byte = n % 250 + 2
    with common.connection() as c, c.create("next", SIZE, pool="models") as array:
        array.copy_from_host(bytes([byte]) * SIZE)
        array.publish_as("m0", replace=True)
    return byte


# What happens to the memory while it is away.
MEANWHILE = {"the same pages": stay, "other pages, from the twin": evict, "another generation": replace}


def launches(rounds, meanwhile):
    """How many outputs of so many rounds are not what the memory of the round makes them."""
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
        for n in range(rounds):
            stream.synchronize()
            array.suspend()
            byte = MEANWHILE[meanwhile](n)
            out.fill(0)
            stream.synchronize()
            array.resume(timeout=60)
            graph.launch(stream)
            different += not bool((out == cupy.uint32(byte * 0x01010101 * 3 & 0xFFFFFFFF)).all())
    return different


def run(args):
    with common.pools(2, 1, SIZE):
        other, end = common.start(work)
        end.recv()
        for meanwhile in MEANWHILE:
            different, = common.run_workers(launches, (args.rounds, meanwhile))
            common.row(f"{args.rounds:,} rounds with a captured graph: {meanwhile}", "", f"{different} outputs differ", "0",
                       different=different)
        end.send(None)
        other.join()
