# SPDX-License-Identifier: MIT
"""Draws the results of the benchmarks with matplotlib. Each picture has one point; the tables have the rest.

    python3 tests/bench/plot.py FOLDER

From each peers*.json in FOLDER, which are runs of the same: peers.svg, attaching beside what people use today. From
streams.json: streams.svg, frames through three processes. From fleet.json: fleet.svg, simulated fleets that pull a
model. From memory.json: memory.svg, first answers of services whose models come and go. A missing file is left out.
"""
import json
import os
import sys
from pathlib import Path

import peers

OURS, OTHERS = "#1f5fa8", "#b9c4d0"
# What people meet first; the table of RESULTS.md has every way.
SHOWN = ("gpushm", "cupy", "numba", "torch", "cuda.core")
ONE_ARRAY, MANY_ARRAYS = (1, 2 * peers.MIB), (3435, 16 * peers.GIB)


def bars(axes, rows, title):
    """Each row is a label, a value, a text behind it, and whether it is ours."""
    for y, (_, value, text, ours) in enumerate(rows):
        axes.barh(y, value, color=OURS if ours else OTHERS)
        axes.annotate(text, (value, y), (4, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows], fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.35)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([], minor=False)
    axes.set_xticks([], minor=True)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_title(title, fontsize=10, loc="left")


def short(us):
    return f"{us:.0f} us" if us < 1000 else f"{us / 1000:.1f} ms" if us < 10000 else f"{us / 1000:.0f} ms"


def span(values):
    """The least and the greatest median of all runs."""
    low, high = short(min(values)), short(max(values))
    if low == high:
        return high
    (number, unit), (_, last) = low.split(), high.split()
    return f"{number} to {high}" if unit == last else f"{low} to {high}"


def draw_peers(plt, runs):
    panels = []
    for case in (ONE_ARRAY, MANY_ARRAYS):
        rows = []
        for way in SHOWN:
            values = [r["attach"]["median"] for run in runs for r in run
                      if r["way"] == way and (r["count"], r["bytes"]) == case and "attach" in r]
            if values:
                rows.append((peers.WAYS[way][0], max(values), span(values), way == "gpushm"))
        if rows:
            panels.append((rows, peers.case_text(*case).replace("3435", "3,435")))
    if not panels:
        return None
    figure, grid = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 2.2), squeeze=False, layout="constrained")
    for axes, (rows, title) in zip(grid.flat, panels):
        bars(axes, rows, title)
    figure.suptitle("Until another process can use the memory: shorter is better", fontsize=10, x=0.01, ha="left")
    return figure


def draw_streams(plt, run):
    rows = {row["id"]: [way for way in row["ways"] if "median" in way] for row in run["rows"]}
    ways = rows.get("pipeline") or rows.get("pipeline_host")
    if not ways:
        return None
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.3 * len(ways)), layout="constrained")
    where = "NO REAL GPU" if run["fake"] else run["gpu"] or "no GPU"
    bars(axes, [(way["label"], way["median"], f"{way['median']:,.0f}", way["way"].startswith("stream")) for way in ways],
         f"Frames of 1080p a second through three processes: longer is better. {where}")
    return figure


def draw_memory(plt, run):
    """Until the first answer, each request a step of the curve."""
    rows = [row for row in run["rows"] if "where" in row]
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for row, other, style in zip(rows, ("it runs", "it is started on demand", None), ("-", "--", ":")):
        for values, label, colour in ((row["first"], f"gpushm, {row['where']}", OURS),
                                      (row["beside_first"], f"a process a model, {other}", "#7a8794")):
            if other or colour == OURS:
                axes.step(sorted(values), [(n + 1) / len(values) for n in range(len(values))], style, color=colour, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda ms, _: f"{ms:g} ms")
    axes.set_yticks((0.5, 0.99), ("half", "99 %"))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper left", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("Part of the requests that are answered after. " + rows[0]["what"].split(":")[0]
                   + ("" if run["setup"]["gpu"] else "; no GPU"), fontsize=10, loc="left")
    return figure


def draw_fleet(plt, runs):
    """Seconds until the last node has the model, by the number of nodes."""
    nodes = [run["setup"]["nodes"] for run in runs]
    name = next(iter(runs[0]["runs"]))
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for label, values, colour, style in (
            ("one source for all", [run["one_source_s"] for run in runs], "#7a8794", "o:"),
            (name, [run["runs"][name]["last_s"] for run in runs], OURS, "o-"),
            ("bound of the network", [run["streaming_s"] for run in runs], "#7a8794", "o--")):
        axes.plot(nodes, values, style, color=colour)
        axes.annotate(label, (nodes[-1], values[-1]), (8, 0), textcoords="offset points", va="center", fontsize=9, color=colour)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(nodes, [f"{n:,}" for n in nodes])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(lambda s, _: f"{s:,.0f} s")
    axes.set_xlabel("nodes", fontsize=9)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"Until the last node has {runs[0]['setup']['size'] / peers.GIB:g} GiB, simulated", fontsize=10, loc="left")
    return figure


def save(plt, figure, path):
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    declaration, rest = Path(path).read_text().split("\n", 1)
    Path(path).write_text(f"{declaration}\n<!-- SPDX-License-Identifier: MIT -->\n{rest}")
    print(path)


def main():
    try:
        import matplotlib
    except ImportError:
        print("plots: there is no matplotlib here; make bench-plots draws them where there is one")
        return
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "gpushm", "svg.fonttype": "none", "font.family": "sans-serif"})
    import matplotlib.pyplot as plt

    folder = Path(sys.argv[1])
    read = {"peers": [json.loads(path.read_text()) for path in sorted(folder.glob("peers*.json"))]}
    for name in ("streams", "fleet", "memory"):
        if (folder / f"{name}.json").exists():
            read[name] = json.loads((folder / f"{name}.json").read_text())
    draws = {"peers": draw_peers, "streams": draw_streams, "fleet": draw_fleet, "memory": draw_memory}
    for name, measured in read.items():
        figure = draws[name](plt, measured)
        if figure:
            save(plt, figure, os.path.join(folder, f"{name}.svg"))


if __name__ == "__main__":
    main()
