# SPDX-License-Identifier: MIT
"""The simulation of a fleet, in cases whose results are known; prints counts as Check does, for tests/run.sh."""
import dataclasses
import math
import sys
import unittest

import fleet
from fleet import GIB, MIB, Fleet, Rules, Setup

ALONE = Rules(serves=False)
QUICK = {"size": 2 * GIB, "deaths": 0.0}


def run(rules=Rules(), **setup):
    s = Setup(**{**QUICK, **setup})
    return s, Fleet(s, rules).run()


class Known(unittest.TestCase):
    """Results that follow from the numbers."""

    def test_one_node_takes_size_by_rate(self):
        s, r = run(nodes=1)
        self.assertAlmostEqual(r.last_s, s.size / s.link, delta=0.05 * r.last_s + 0.02)
        self.assertEqual(r.origin_bytes, s.size)

    def test_slowest_part_decides(self):
        for part in ("link", "relay", "puller"):
            s, r = run(nodes=1, **{part: 1e8})
            self.assertAlmostEqual(r.last_s, s.size / 1e8, delta=0.01 * r.last_s, msg=part)

    def test_one_source_for_all_takes_n_times_as_long(self):
        s, r = run(ALONE, nodes=20)
        self.assertAlmostEqual(r.last_s, fleet.one_source(s), delta=0.01 * r.last_s)
        self.assertEqual(r.origin_bytes, 20 * s.size)
        self.assertEqual(r.node_bytes_most, 0)

    def test_chain_streams(self):
        """With a fan-out of one the nodes are a chain, and each hop adds a little, not a whole model."""
        s, r = run(Rules(fan_out=1), nodes=8)
        self.assertEqual(r.origin_bytes, s.size)
        self.assertLess(r.last_s, 1.3 * s.size / s.link)

    def test_two_readers_of_each_take_twice_as_long(self):
        s, r = run(nodes=30, rack=100)
        self.assertAlmostEqual(r.last_s, 2 * s.size / s.link, delta=0.3 * r.last_s)

    def test_uplink_of_a_rack_is_a_limit(self):
        """Two racks of 4, the source in one: all 4 of the other take their bytes over a link that is slow."""
        s, r = run(ALONE, nodes=7, rack=4, oversubscribed=100.0)
        self.assertAlmostEqual(r.last_s, 4 * s.size / s.uplink, delta=0.02 * r.last_s)
        self.assertEqual(r.rack_bytes_most, 4 * s.size)

    def test_bounds(self):
        s = Setup(nodes=7, size=8 * GIB, rack=100)
        self.assertEqual(fleet.rounds_bound(s), 3 * s.size / s.link)
        self.assertAlmostEqual(fleet.streaming_bound(s), s.size / s.link + 3 * fleet.BLOCK / s.link)


class Always(unittest.TestCase):
    """What must hold in each run."""

    def check(self, s, r):
        self.assertEqual(r.whole, r.survivors)
        self.assertGreater(r.last_s, 0.99 * s.size / s.rate)
        sent = r.origin_bytes + r.node_bytes_mean * s.nodes
        self.assertGreaterEqual(sent, r.survivors * s.size)
        if s.deaths == 0:
            self.assertAlmostEqual(sent, s.nodes * s.size, delta=MIB)
            self.assertEqual(r.lost_bytes, 0)

    def test_every_survivor_gets_all_of_it(self):
        for name, rules in fleet.RULES.items():
            for seed in (1, 2):
                for deaths in (0.0, 0.05, 0.3):
                    with self.subTest(rules=name, seed=seed, deaths=deaths):
                        self.check(*run(rules, nodes=40, seed=seed, deaths=deaths, size=GIB, span=32 * MIB))

    def test_sizes_that_are_no_multiple(self):
        self.check(*run(nodes=5, size=300 * MIB + 12345))
        self.check(*run(nodes=5, size=MIB))

    def test_faster_than_rounds_and_than_one_source(self):
        s, r = run(nodes=200, deaths=0.05, size=16 * GIB)
        self.assertLess(r.last_s, fleet.rounds_bound(s))
        self.assertLess(r.last_s, fleet.one_source(s) / 20)
        self.assertGreater(r.last_s, fleet.streaming_bound(s))

    def test_seed_decides(self):
        results = [dataclasses.replace(run(nodes=50, deaths=0.1, seed=seed)[1], seconds=0) for seed in (3, 3, 4)]
        self.assertEqual(results[0], results[1])
        self.assertNotEqual(results[0], results[2])

    def test_silent_machine_costs_the_stall(self):
        times = [run(nodes=60, deaths=0.1, seed=5, stall_s=stall, size=16 * GIB)[1].last_s for stall in (1.0, 20.0)]
        self.assertGreater(times[1], times[0] + 5)

    def test_named_neighbours_keep_bytes_in_the_rack(self):
        far, near = (run(Rules(near=near), nodes=100, size=4 * GIB)[1] for near in (False, True))
        self.assertLess(near.rack_bytes_mean, far.rack_bytes_mean / 2)
        self.assertLess(near.last_s, far.last_s)
        self.assertLess(near.last_s, math.inf)


if __name__ == "__main__":
    done = unittest.main(exit=False, argv=sys.argv[:1]).result
    bad, errors = len(done.failures), len(done.errors)
    print(f"{100 * (done.testsRun - bad - errors) // done.testsRun}%: Checks: {done.testsRun}, Failures: {bad}, Errors: {errors}")
    sys.exit(bad + errors > 0)
