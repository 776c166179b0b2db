# SPDX-License-Identifier: MIT
"""Prints the result of a run as the tables of RESULTS.md.

    python3 tests/bench/markdown.py FOLDER      # with bench.json and peers.json of make bench-gpu
"""
import json
import os
import sys

import peers


def number(v):
    return f"{v:.2f}" if v < 10 else f"{v:.1f}" if v < 1000 else f"{v:.0f}"


def judged(row):
    if row["wanted"].startswith("difference"):
        return f"+ {number(row['judged'])} {row['unit']}"
    return f"{row['judged']:.2f} x" if row["floor"] and not row["wanted"].startswith("value") else ""


def wanted(row):
    bound = f"{row['bound']:g}"
    forms = {"nothing": "", "ratio at most": f"<= {bound} x", "ratio at least": f">= {bound} x",
             "difference at most": f"<= + {bound} {row['unit']}", "value at most": f"<= {bound} {row['unit']}"}
    return forms[row["wanted"]] + ("" if row["reached"] else ", **not reached**")


def print_bench(run):
    print(f"gpushm {run['gpushm']}, Linux {run['kernel']}, {run['cores']} cores, {run['gpu'] or 'no GPU'}\n")
    print("| operation | the floor is | floor | gpushm | p99 | | wanted |\n|---|---|---|---|---|---|---|")
    for row in run["rows"]:
        floor = f"{number(row['floor']['median'])} {row['unit']}" if row["floor"] else ""
        ours = row["gpushm"]
        print(f"| {row['what']} | {row['floor_is']} | {floor} | {number(ours['median'])} {row['unit']} | "
              f"{number(ours['p99'])} | {judged(row)} | {wanted(row)} |")


def print_peers(results):
    cases = list(dict.fromkeys((r["count"], r["bytes"]) for r in results))
    print("| median of attach | " + " | ".join(peers.case_text(*case) for case in cases) + " |")
    print("|---" * (len(cases) + 1) + "|")
    for way in dict.fromkeys(r["way"] for r in results):
        cells = []
        for case in cases:
            r = next((r for r in results if r["way"] == way and (r["count"], r["bytes"]) == case), None)
            cells.append("" if r is None else peers.time_text(r["attach"]["median"]) if "attach" in r else "failed")
        print(f"| {peers.WAYS[way][0]} | " + " | ".join(cells) + " |")
    for r in results:
        if "error" in r:
            print(f"\n{peers.WAYS[r['way']][0]}, {peers.case_text(r['count'], r['bytes'])}: {r['error'][:120]}")


def main():
    for name, write in (("bench.json", print_bench), ("peers.json", print_peers)):
        path = os.path.join(sys.argv[1], name)
        if os.path.exists(path):
            with open(path) as f:
                write(json.load(f))
            print()


if __name__ == "__main__":
    main()
