# SPDX-License-Identifier: MIT
"""Prints the result of a run as the tables of RESULTS.md.

    python3 tests/bench/markdown.py FOLDER      # with bench.json and peers.json of make bench-gpu, or streams.json and
                                                # streams-mps.json of make bench-streams
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


def streams_wanted(row):
    """What a row of streams wants of gpushm, and what it got."""
    if row["wanted"] == "nothing":
        return ""
    bound = f"{row['bound']:g}"
    other = next((way["label"] for way in row["ways"] if way["way"] == row["beside"]), "")
    sign = ">=" if row["wanted"] == "ratio at least" else "<="
    text = f"{sign} {bound} {row['unit']}" if row["wanted"] == "value at most" else f"{sign} {bound} x {other}"
    if row["judged"] is None:
        return f"{text}: not measured"
    got = "" if row["wanted"] == "value at most" else f": {row['judged']:.2f}"
    return text + got + ("" if row["reached"] else ", **not reached**")


def print_streams(run):
    mps = ", under MPS" if run["mps"] else ""
    print(f"gpushm {run['gpushm']}, Linux {run['kernel']}, {run['cores']} cores, {run['gpu'] or 'no GPU'}{mps}\n")
    print("| what | way | median | least | p99 | wanted |\n|---|---|---|---|---|---|")
    for row in run["rows"]:
        for i, way in enumerate(row["ways"]):
            what, aim = (f"{row['what']}, {row['unit']}", streams_wanted(row)) if i == 0 else ("", "")
            if "error" in way:
                print(f"| {what} | {way['label']} | left out: {way['error'][:100]} | | | {aim} |")
            else:
                print(f"| {what} | {way['label']} | {number(way['median'])} | {number(way['min'])} | "
                      f"{number(way['p99'])} | {aim} |")


def main():
    for name, write in (("bench.json", print_bench), ("peers.json", print_peers), ("streams.json", print_streams),
                        ("streams-mps.json", print_streams)):
        path = os.path.join(sys.argv[1], name)
        if os.path.exists(path):
            with open(path) as f:
                write(json.load(f))
            print()


if __name__ == "__main__":
    main()
