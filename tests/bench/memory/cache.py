# SPDX-License-Identifier: MIT
"""100 models in a pool that holds ten: hits beside those of exact LRU, and of Belady, on the same requests.

Some processes ask by Zipf's law. Each opens the model, reads from it, and closes it. Requests are taken in the order in
which they got their model: others go on while one waits for the copy.
"""
import collections
import time

import common

MODELS, ROOM, PROCESSES = 100, 10, 4


def ask(n, seconds, seed):
    """Returns when it got which model, and how many answers were wrong or none."""
    import gpushm

    asked, failed, until = [], 0, time.monotonic() + seconds
    for model, _ in zip(common.zipf(MODELS, 1.0, seed), range(n)):
        if time.monotonic() > until:
            break
        try:
            with gpushm.open(f"m{model}", timeout=60) as array:
                asked.append((time.monotonic_ns(), model))
                failed += common.answer(array) != model + 1
        except gpushm.errors.Error as e:
            print(e)
            failed += 1
    return asked, failed


def lru_hits(trace):
    there, hits = collections.OrderedDict(), 0
    for model in trace:
        hits += model in there
        there[model] = None
        there.move_to_end(model)
        if len(there) > ROOM:
            there.popitem(last=False)
    return hits


def belady_hits(trace):
    """Of a cache that knows the future: the one that is needed last goes."""
    following, coming = [0] * len(trace), {}
    for i in range(len(trace) - 1, -1, -1):
        following[i] = coming.get(trace[i], len(trace))
        coming[trace[i]] = i
    there, hits = {}, 0
    for i, model in enumerate(trace):
        hits += model in there
        if model not in there and len(there) == ROOM:
            del there[max(there, key=there.__getitem__)]
        there[model] = following[i]
    return hits


def run(args):
    with common.pools(ROOM, MODELS, args.kib << 10):
        before = common.metrics()
        start = time.monotonic()
        found = common.run_workers(ask, *[(args.requests // PROCESSES, args.most, seed) for seed in range(PROCESSES)])
        took = time.monotonic() - start
        after = common.metrics()
    uses, restores = (after[name] - before[name] for name in (
        "gpushm_pool_uses_total", "gpushm_pool_restore_seconds_count"))
    trace = [model for _, model in sorted(ask for asked, _ in found for ask in asked)]
    ours, lru, belady = 1 - restores / uses, lru_hits(trace) / len(trace), belady_hits(trace) / len(trace)
    failed = sum(failed for _, failed in found)
    common.row(f"{len(trace):,} requests by Zipf for {MODELS} models, room for {ROOM}, {PROCESSES} processes: hits",
               f"LRU {lru:.1%}, Belady {belady:.1%}", f"{ours:.1%} ({ours / lru - 1:+.1%}), {failed} failed, "
               f"{len(trace) / took:,.0f} a second", "within 3 % of LRU, none failed", hits=ours, lru=lru, belady=belady)
