# SPDX-License-Identifier: MIT
"""100 models in a pool that holds ten: hits beside those of exact LRU, and of Belady, on the same requests.

Some processes ask by Zipf's law. Each opens the model, reads from it, and closes it. Others go on while one waits for the
copy, so LRU is counted twice. The first takes the requests in the order in which they got their model, and has each model
at once. The second loads as long as it took here: the room is taken when a load begins, and what is in use stays.
"""
import collections
import time

import common

MODELS, ROOM = 100, 10


def ask(n, seconds, seed):
    """Returns when it asked, got its model and was done, and which that was; and how many answers were wrong or none."""
    import gpushm

    asked, failed, until = [], 0, time.monotonic() + seconds
    for model, _ in zip(common.zipf(MODELS, 1.0, seed), range(n)):
        if time.monotonic() > until:
            break
        began = time.monotonic_ns()
        try:
            with gpushm.open(f"m{model}", timeout=60) as array:
                got = time.monotonic_ns()
                failed += common.answer(array) != model + 1
            asked.append((began, got, time.monotonic_ns(), model))
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


def slow_lru_hits(asked):
    """Of LRU whose loads take time. Who asks for what is being loaded waits for that, and that is a hit, as it is here."""
    moments = sorted((at, what, n) for n, request in enumerate(asked) for what, at in enumerate(request[:3]))
    there, loading, users, hits = collections.OrderedDict(), {}, collections.Counter(), 0
    for _, what, n in moments:
        model = asked[n][3]
        users[model] += (1, 0, -1)[what]
        if what == 1 and loading.get(model) == n:
            del loading[model]
            there[model] = None
        elif what == 0 and model not in there and model not in loading:
            loading[model] = n
            unused = (old for old in list(there) if not users[old])
            while len(there) + len(loading) > ROOM and (oldest := next(unused, None)) is not None:
                del there[oldest]
        else:
            hits += what == 0
        if model in there:
            there.move_to_end(model)
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
        found = common.run_workers(ask, *[(args.requests // args.askers, args.most, seed) for seed in range(args.askers)])
        took = time.monotonic() - start
        after = common.metrics()
    uses, restores = (after[name] - before[name] for name in (
        "gpushm_pool_uses_total", "gpushm_pool_restore_seconds_count"))
    requests = sorted((request for asked, _ in found for request in asked), key=lambda request: request[1])
    trace = [request[3] for request in requests]
    ours = 1 - restores / uses
    lru, slow, belady = (hits(of) / len(trace) for hits, of in (
        (lru_hits, trace), (slow_lru_hits, requests), (belady_hits, trace)))
    failed = sum(failed for _, failed in found)
    common.row(f"{len(trace):,} requests by Zipf for {MODELS} models of {args.kib / 1024:g} MiB, room for {ROOM}, {args.askers} at a time: hits",
               f"LRU {lru:.1%}, if its loads take as long {slow:.1%}, Belady {belady:.1%}",
               f"{ours:.1%} ({ours / lru - 1:+.1%}, {ours / slow - 1:+.1%}), {failed} failed, {len(trace) / took:,.0f} a second",
               "within 3 % of LRU, none failed", hits=ours, lru=lru, slow_lru=slow, belady=belady)
