# SPDX-License-Identifier: MIT
"""What others see of evictions: OPENs of a process beside 1,000 evictions a second, and how soon memory is there for who waits.
"""
import time

import common

ROOM, PROCESSES = 10, 4


def cycle(first, seconds, rate):
    """Opens its models in turns, more of them than there is room for: each open evicts one."""
    import gpushm

    n, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        gpushm.open(f"m{first + n % ROOM}", timeout=60).close()
        n += 1
        time.sleep(max(0.0, start + n / rate - time.monotonic()))
    return n / (time.monotonic() - start)


def opens(seconds):
    """The ms of each OPEN of a process that has nothing to do with the models, one each ms."""
    import gpushm

    with gpushm.create("honest", 4096, pool="twins") as array:
        array.publish("sealed")
        found, until = [], time.monotonic() + seconds
        while time.monotonic() < until:
            start = time.monotonic_ns()
            other = gpushm.open("honest")
            found.append((time.monotonic_ns() - start) / 1e6)
            other.close()
            time.sleep(0.001)
        array.unlink()
    return found


def either(what, *args):
    return what(*args)


def beside_evictions(args):
    with common.pools(ROOM, PROCESSES * ROOM, args.kib << 10):
        quiet, = common.run_workers(either, (opens, args.seconds))
        busy, *rates = common.run_workers(either, (opens, args.seconds), *[
            (cycle, i * ROOM, args.seconds, 1000 / PROCESSES) for i in range(PROCESSES)])
    common.row(f"OPENs of another process beside {sum(rates):,.0f} evictions a second", "without them " + common.times(quiet),
               common.times(busy), "p99 <= 3 ms", quiet=quiet, busy=busy)


def use_until_wanted(end):
    """Tells when it began to suspend the model that others needed."""
    import gpushm

    with gpushm.open("m0", timeout=60) as array:
        end.send(None)
        while "m0:" not in common.ctl("wanted"):
            pass
        start = time.monotonic_ns()
        array.suspend()
        end.send(start)
        end.recv()


def memory_for_others(args):
    """From the last suspend's start until a create that waits for the memory has it."""
    took = []
    with common.pools(1, 1, args.kib << 10), common.connection() as c:
        for _ in range(20):
            holder, end = common.start(use_until_wanted)
            end.recv()
            other = c.create("other", args.kib << 10, pool="models")
            took.append((time.monotonic_ns() - end.recv()) / 1e6)
            other.discard()
            end.send(None)
            holder.join()
    common.row("memory for another process after the last let go", "", common.times(took), "<= 10 ms", free=took)


def run(args):
    beside_evictions(args)
    memory_for_others(args)
