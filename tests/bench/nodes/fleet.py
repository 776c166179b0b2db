# SPDX-License-Identifier: MIT
"""A fleet that pulls one model, simulated: when the last node has it, and over which links the bytes go.

    python3 tests/bench/nodes/fleet.py [--sizes 100,1000,10000] [--rules all] [--measured nodes.json] [--out FOLDER]

Node 0 is the source. All others pull at the same time and offer what they have, by the rules of gpushm-relay and
gpushm_pull(): a relay serves `fan_out` machines that pull, and names others to those that it turns away; a puller's
workers take spans in the order of the file, each from the relay that fewest of them ask; a relay keeps a request for
a block that it does not have yet, if the puller began later than itself, so that no two wait for each other.

It is a simulation of discrete events. A span is one range request, and one transfer. Each direction of a node's link
and of a rack's uplink is a queue: a span ends when the slowest queue on its way has sent it, and not before its sender
has all of it, plus the time of one block, since relays send blocks on while they receive. The network between the
racks has no other limit. "make bench-nodes" measures the rates and times of relay and puller.

Left out: TCP (a link that has work is used fully), and that sending and receiving share the cores of a machine.
"""
import argparse
import collections
import dataclasses
import heapq
import json
import math
import os
import random
import sys
import time

MIB, GIB = 1 << 20, 1 << 30
BLOCK = 4 * MIB  # has a digest, and is sent on as soon as it is there
ORIGIN = 0  # the number of the source
NAMED = 8  # relays in a busy reply or a manifest: half of them the youngest, half of them by chance
REFUSED_S, FORGIVEN_S = 10.0, 5.0  # a puller that was refused for so long gets one of max_transfers; and a refusal's age
LINGER_S = 2.0  # a machine's transfer lasts so much longer than its last request
RETRY_AFTER_S = 1.0


@dataclasses.dataclass(frozen=True)
class Rules:
    fan_out: int = 2  # machines that pull from a relay, as long as it can name another one
    max_transfers: int = 8  # and if those that it named have refused, too
    together: bool = True  # a puller's workers all ask one relay while it serves them; else they spread
    near: bool = True  # relays of the puller's rack, which similar addresses tell, are named first
    asks_near: bool = False  # and the puller asks them first
    serves: bool = True  # pullers serve what they have; else only the source serves, and all at once


RULES = {
    "gpushm-relay": Rules(),
    "workers spread": Rules(together=False),
    "fan-out 1": Rules(fan_out=1),
    "fan-out 4": Rules(fan_out=4),
    "racks unknown": Rules(near=False),
    "near ones first": Rules(asks_near=True),
}


@dataclasses.dataclass(frozen=True)
class Setup:
    nodes: int = 100  # that pull
    size: int = 16 * GIB
    span: int = 128 * MIB
    link: float = 3.125e9  # bytes/s of a node's link, in each direction
    relay: float = math.inf  # bytes/s that a relay sends at most
    puller: float = math.inf  # bytes/s that a puller takes at most
    rack: int = 32  # nodes
    oversubscribed: float = 4.0  # the links of a rack's nodes, divided by its uplink
    near_s: float = 50e-6  # one way, within a rack
    far_s: float = 200e-6  # one way, to another rack
    request_s: float = 0.5e-3  # from a request to the first byte, besides the network
    connect_s: float = 5e-3  # a connection, with TLS
    workers: int = 12  # of a puller
    deaths: float = 0.05  # part of the nodes: they die meanwhile, without a word
    stall_s: float = 8.0  # until a puller gives up a connection to a machine that is off
    seed: int = 1

    @property
    def spans(self):
        return -(-self.size // self.span)

    @property
    def racks(self):
        return self.nodes // self.rack + 1

    @property
    def rate(self):
        """Bytes/s of a lone transfer."""
        return min(self.link, self.relay, self.puller)

    @property
    def uplink(self):
        return self.rack * self.link / self.oversubscribed


@dataclasses.dataclass
class Result:
    survivors: int
    whole: int  # survivors that have the model
    median_s: float
    p99_s: float
    last_s: float
    origin_bytes: int  # that the source sent
    node_bytes_mean: float  # that another node sent
    node_bytes_most: int
    rack_bytes_mean: float  # that came into a rack over its uplink, without the source's rack
    rack_bytes_most: int
    lost_bytes: int  # of transfers that a death ended
    busy: int  # replies
    waited: int  # requests that a relay kept
    seconds: float = 0.0  # of the simulation itself


def streaming_bound(s):
    """Nobody can be faster: the source sends each byte once, and the last block passes log2(N) nodes."""
    into_rack = s.size / s.uplink if s.racks > 1 else 0.0
    return max(s.size / s.rate, into_rack) + math.log2(s.nodes + 1) * BLOCK / s.rate


def rounds_bound(s):
    """log2(N) x size / rate: for nodes that serve nothing before they have all of it."""
    return math.ceil(math.log2(s.nodes + 1)) * s.size / s.rate


def one_source(s):
    """All nodes from the source alone, whose link never rests. A test compares it with the simulation."""
    return s.nodes * s.size / min(s.link, s.relay)


class Place:
    """A relay, as a puller knows it."""

    __slots__ = ("active", "bad", "busy_until", "relay")

    def __init__(self, relay):
        self.relay, self.active, self.busy_until, self.bad = relay, 0, 0.0, False


class Guest:
    """A machine, as a relay that serves it knows it: all its requests are one transfer."""

    __slots__ = ("ended", "requests")

    def __init__(self):
        self.requests, self.ended = 0, 0.0


class Fleet:
    """One run. A node's spans are a slice of flat tables: `node * n_spans + span`."""

    def __init__(self, setup, rules):
        s, n = setup, setup.nodes + 1
        self.s, self.rules, self.rng = s, rules, random.Random(s.seed)
        self.n_spans, self.blocks = s.spans, max(1, min(s.span, s.size) // BLOCK)
        self.events, self.turn = [], 0
        self.rack = [i // s.rack for i in range(n)]
        self.begun = [math.inf] * (n * self.n_spans)  # when a node has a span's first block
        self.whole = [math.inf] * (n * self.n_spans)  # and when all of it
        self.begun[: self.n_spans] = self.whole[: self.n_spans] = [0.0] * self.n_spans
        self.taken = [0] * n  # spans that workers have taken
        self.missing = [0] + [self.n_spans] * s.nodes
        self.done_at = [0.0] + [math.inf] * s.nodes
        self.since = [0.0] + [math.inf] * s.nodes
        self.dies_at = self.choose_deaths()
        self.up, self.down = [0.0] * n, [0.0] * n  # when a queue is empty
        self.rack_up, self.rack_down = [0.0] * s.racks, [0.0] * s.racks
        self.sent, self.into_rack = [0] * n, [0] * s.racks
        self.places = [[Place(ORIGIN)] for _ in range(n)]
        self.known = [{ORIGIN} for _ in range(n)]
        self.mirrors = [[] for _ in range(n)]  # of a relay: those that have asked it, the youngest last
        self.near_mirrors = [collections.defaultdict(list) for _ in range(n)]
        self.noted = [set() for _ in range(n)]
        self.guests = [{} for _ in range(n)]
        self.refused = [{} for _ in range(n)]
        self.waiting = collections.defaultdict(list)  # (relay, span): requests that it keeps
        self.lost = self.busy = self.waited = 0

    def choose_deaths(self):
        s = self.s
        dies_at = [math.inf] * (s.nodes + 1)
        for node in self.rng.sample(range(1, s.nodes + 1), round(s.deaths * s.nodes)):
            dies_at[node] = self.rng.uniform(0, 2 * streaming_bound(s))
        return dies_at

    def at(self, when, what, *args):
        self.turn += 1
        heapq.heappush(self.events, (when, self.turn, what, args))

    # ---- what a relay knows ----

    def note(self, relay, node):
        """The relay hears of a node that pulls. Those that begin later are heard of later, nearly always."""
        if node not in self.noted[relay]:
            self.noted[relay].add(node)
            self.mirrors[relay].append(node)
            if self.rules.near:
                self.near_mirrors[relay][self.rack[node]].append(node)

    def choose(self, mirrors, node, n):
        """Half of them the youngest of those that began before the node; the others by chance."""
        since, ret = self.since, []
        mine = since[node]
        for other in reversed(mirrors):
            if len(ret) == n // 2:
                break
            if since[other] < mine:
                ret.append(other)
        for _ in range(2 * n):
            if len(ret) == n or len(mirrors) <= len(ret):
                break
            other = mirrors[int(self.rng.random() * len(mirrors))]
            if since[other] < mine and other not in ret:
                ret.append(other)
        return ret

    def named(self, relay, node):
        if not self.rules.near:
            return self.choose(self.mirrors[relay], node, NAMED)
        ret = self.choose(self.near_mirrors[relay][self.rack[node]], node, NAMED)
        return ret if len(ret) >= NAMED // 2 else ret + self.choose(self.mirrors[relay], node, NAMED - len(ret))

    def lets_in(self, now, relay, node):
        """Whether the machine may begin a request, as one of those that the relay serves."""
        guests, rules = self.guests[relay], self.rules
        if not rules.serves or node in guests:
            return True
        for other in [o for o, g in guests.items() if g.requests == 0 and now - g.ended > LINGER_S]:
            del guests[other]
        most, refused = rules.max_transfers, self.refused[relay]
        first, last = refused.get(node, (now, now))
        if now - last > FORGIVEN_S:
            first = now
        if now - first < REFUSED_S and self.mirrors[relay] and self.named(relay, node):
            most = min(most, rules.fan_out)
        if len(guests) < most:
            guests[node] = Guest()
            return True
        refused[node] = (first, now)
        return False

    # ---- a worker ----

    def next_span(self, now, node):
        span = self.taken[node]
        if span < self.n_spans:
            self.taken[node] += 1
            self.seek(now, node, span, None)

    def add_places(self, node, relays):
        known = self.known[node]
        for relay in relays:
            if relay not in known and relay != node and len(known) < 64:
                known.add(relay)
                self.places[node].append(Place(relay))

    def choose_place(self, now, node, avoid):
        """The place that fewest of the node's workers ask; of equal ones the next in turn."""
        places = self.places[node]
        best, start = None, int(self.rng.random() * len(places))
        for i in range(len(places)):
            place = places[start + i - len(places)]
            if place.bad or place.busy_until > now:
                continue
            if best is None or best is avoid or (place is not avoid and self.is_better(node, place, best)):
                best = place
        return best

    def is_better(self, node, place, than):
        if self.rules.asks_near:
            mine = self.rack[node]
            a, b = self.rack[place.relay] == mine, self.rack[than.relay] == mine
            if a != b:
                return a
        return place.active > than.active if self.rules.together else place.active < than.active

    def seek(self, now, node, span, avoid):
        """Asks places until one sends the span, or keeps the request."""
        s = self.s
        t = now
        while self.dies_at[node] > now:
            place = self.choose_place(t, node, avoid)
            if place is None:
                until = min((p.busy_until for p in self.places[node] if not p.bad), default=now)
                self.at(max(until, t) + self.rng.random() * 0.01, self.seek, node, span, None)
                return
            relay = place.relay
            t += 2 * (s.near_s if self.rack[relay] == self.rack[node] else s.far_s) + s.request_s
            if relay not in self.guests[node] and place.active == 0:
                t += s.connect_s
            if self.dies_at[relay] <= t:
                place.bad = True
                self.at(t + s.stall_s, self.seek, node, span, place)
                return
            if self.ask(t, place, node, span):
                return
            self.busy += 1
            place.busy_until = t + RETRY_AFTER_S
            self.add_places(node, self.named(relay, node))
            avoid = place

    def ask(self, now, place, node, span):
        """Whether the relay accepts the request."""
        relay = place.relay
        begun = self.begun[relay * self.n_spans + span]
        has = begun <= now
        may_wait = self.since[relay] < self.since[node]
        if self.rules.serves:
            self.note(relay, node)
        if (not has and not may_wait) or not self.lets_in(now, relay, node):
            return False
        if self.rules.serves:
            self.guests[relay][node].requests += 1
        place.active += 1
        if has:
            self.send(now, place, node, span)
        else:
            self.waited += 1
            self.waiting[relay, span].append((place, node))
            if begun < math.inf:
                self.at(begun, self.serve_waiting, relay, span)
            if self.dies_at[relay] < math.inf:
                self.at(self.dies_at[relay] + self.s.stall_s, self.give_up, place, node, span)
        return True

    def leave(self, now, place, node):
        place.active -= 1
        guest = self.guests[place.relay].get(node)
        if guest:
            guest.requests -= 1
            guest.ended = now

    def give_up(self, now, place, node, span):
        waiting = self.waiting.get((place.relay, span), [])
        if (place, node) in waiting:
            waiting.remove((place, node))
            self.broken(now, place, node, span, 0)

    # ---- a transfer ----

    def send(self, now, place, node, span):
        """Puts the span into the queues on its way."""
        s, relay, n = self.s, place.relay, self.n_spans
        size = min(s.span, s.size - span * s.span)
        self.up[relay] = up = max(self.up[relay], now) + size / min(s.link, s.relay)
        self.down[node] = down = max(self.down[node], now) + size / min(s.link, s.puller)
        end = max(up, down, self.whole[relay * n + span] + BLOCK / s.rate)
        out_of, into, delay = self.rack[relay], self.rack[node], s.near_s
        if out_of != into:
            took = size / s.uplink
            self.rack_up[out_of] = a = max(self.rack_up[out_of], now) + took
            self.rack_down[into] = b = max(self.rack_down[into], now) + took
            end, delay = max(end, a, b), s.far_s
            self.into_rack[into] += size
        end += delay
        self.sent[relay] += size
        if self.dies_at[relay] < end:
            self.at(max(now, self.dies_at[relay]) + s.stall_s, self.broken, place, node, span, size)
            return
        self.whole[node * n + span] = end
        self.begun[node * n + span] = begun = now + (end - now) / self.blocks
        self.at(end, self.received, place, node, span, size)
        if (node, span) in self.waiting:
            self.at(begun, self.serve_waiting, node, span)

    def serve_waiting(self, now, relay, span):
        if self.dies_at[relay] > now >= self.begun[relay * self.n_spans + span]:
            for place, node in self.waiting.pop((relay, span), ()):
                self.send(now, place, node, span)

    def received(self, now, place, node, span, size):
        """The span is there, unless its sender has lost where it came from, and waits itself."""
        at, upstream = node * self.n_spans + span, self.whole[place.relay * self.n_spans + span]
        if self.dies_at[node] <= now:
            self.leave(now, place, node)
            self.lost += size
        elif upstream <= now:
            self.leave(now, place, node)
            self.missing[node] -= 1
            if self.missing[node] == 0:
                self.done_at[node] = now
            self.next_span(now, node)
        elif upstream < math.inf:
            self.whole[at] = end = upstream + BLOCK / self.s.rate
            self.at(end, self.received, place, node, span, size)
        else:
            self.broken(now + self.s.stall_s, place, node, span, size)

    def broken(self, now, place, node, span, size):
        at = node * self.n_spans + span
        self.leave(now, place, node)
        self.lost += size
        place.bad |= self.dies_at[place.relay] <= now
        self.begun[at] = self.whole[at] = math.inf
        self.at(now, self.seek, node, span, place)

    # ---- all of it ----

    def start(self, now, node):
        """The manifest names relays; then the workers begin."""
        self.since[node] = now
        if self.rules.serves:
            self.add_places(node, self.named(ORIGIN, node))
            self.note(ORIGIN, node)
        for _ in range(self.s.workers):
            self.next_span(now, node)

    def run(self):
        began = time.monotonic()
        nodes = list(range(1, self.s.nodes + 1))
        self.rng.shuffle(nodes)
        for i, node in enumerate(nodes):
            self.at(self.s.connect_s + i * 1e-4, self.start, node)
        events, pop = self.events, heapq.heappop
        while events:
            now, _, what, args = pop(events)
            what(now, *args)
        return self.result(time.monotonic() - began)

    def result(self, seconds):
        s = self.s
        times = sorted(self.done_at[i] for i in range(1, s.nodes + 1) if self.dies_at[i] == math.inf)
        racks = self.into_rack[1:] or [0]
        return Result(
            survivors=len(times), whole=sum(t < math.inf for t in times), median_s=times[len(times) // 2],
            p99_s=times[len(times) * 99 // 100], last_s=times[-1], origin_bytes=self.sent[ORIGIN],
            node_bytes_mean=sum(self.sent[1:]) / s.nodes, node_bytes_most=max(self.sent[1:]),
            rack_bytes_mean=sum(racks) / len(racks), rack_bytes_most=max(racks), lost_bytes=self.lost,
            busy=self.busy, waited=self.waited, seconds=seconds)


def read_measured(path):
    """Rates and times as bench-nodes wrote them: those that a Setup has."""
    with open(path) as f:
        measured = json.load(f).get("simulation", {})
    return {f.name: measured[f.name] for f in dataclasses.fields(Setup) if f.name in measured}


def print_run(setup, name, r):
    of = setup.size
    print(f"  {name:16}{r.median_s:9.1f}{r.last_s:9.1f}{r.origin_bytes / of:9.1f}{r.node_bytes_most / of:9.1f}"
          f"{r.rack_bytes_mean / of:9.1f}{r.rack_bytes_most / of:9.1f}{r.lost_bytes / of:9.2f}"
          f"{r.whole:9}/{r.survivors:<7}{r.busy:10}{r.seconds:8.1f}", flush=True)


def simulate(setup, names):
    """Prints the runs of one size, and returns them."""
    print(f"{setup.nodes} nodes, {setup.size / GIB:g} GiB at {setup.rate / 1e9:.2f} GB/s: streaming "
          f"{streaming_bound(setup):.1f} s, log2(N) x size / rate {rounds_bound(setup):.1f} s, one source "
          f"{one_source(setup):.0f} s\n  {'rules':16}{'median s':>9}{'last s':>9}{'source':>9}{'a node':>9}{'a rack':>9}"
          f"{'most':>9}{'lost':>9}{'whole':>13}{'busy':>14}{'took s':>8}")
    runs = {}
    for name in names:
        result = Fleet(setup, RULES[name]).run()
        print_run(setup, name, result)
        runs[name] = dataclasses.asdict(result)
    return {"setup": dataclasses.asdict(setup), "runs": runs, "streaming_s": streaming_bound(setup),
            "rounds_s": rounds_bound(setup), "one_source_s": one_source(setup)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100", help="numbers of nodes, with commas between them")
    parser.add_argument("--rules", default="gpushm-relay", help=f"of {', '.join(RULES)}; or all")
    parser.add_argument("--measured", help="nodes.json of bench-nodes")
    parser.add_argument("--out", help="a folder for fleet.json")
    for field in dataclasses.fields(Setup):
        if field.name != "nodes":
            parser.add_argument("--" + field.name.replace("_", "-"), type=type(field.default))
    options = parser.parse_args()
    given = read_measured(options.measured) if options.measured else {}
    given.update((f.name, getattr(options, f.name)) for f in dataclasses.fields(Setup)
                 if f.name != "nodes" and getattr(options, f.name) is not None)
    names = list(RULES) if options.rules == "all" else options.rules.split(",")
    runs = [simulate(Setup(nodes=int(nodes), **given), names) for nodes in options.sizes.split(",")]
    if options.out:
        with open(os.path.join(options.out, "fleet.json"), "w") as f:
            json.dump(runs, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
