# SPDX-License-Identifier: MIT
"""Draws the results of the benchmarks with matplotlib.

    python3 tests/bench/plot.py FOLDER

From bench.json in FOLDER: latency.svg, each operation beside its floor, and scaling.svg, an attach with ever more
buffers and clients. From peers.json: peers.svg, gpushm beside the ways in use today. From streams.json and
streams-mps.json: streams.svg, frames by gpushm's streams and by other ways. From fleet.json: fleet.svg, simulated
fleets that pull a model. From models.json: models.svg, models loaded and attached. A missing file is left out.
"""
import json
import os
import sys

import peers

OURS, OTHERS = "#1f5fa8", "#b9c4d0"
# Where each curve of scaling.svg starts: at this number, with the floor of its rows.
SERIES = {"buffers": 10, "clients": 2, "mempool buffers": 10}


def bars(axes, rows):
    """Each row is a label, a value in us or None, a text behind it, and a colour; a logarithmic axis."""
    axes.set_xscale("log")
    for y, (_, value, text, colour) in enumerate(rows):
        if value is None:
            axes.text(0.01, y, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
        else:
            axes.barh(y, value, color=colour)
            axes.annotate(text, (value, y), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [label for label, _, _, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.xaxis.set_major_formatter(lambda us, _: peers.time_text(us).replace(".00", "").replace(".0", ""))
    axes.xaxis.set_minor_formatter(lambda us, _: "")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def draw_latency(plt, run):
    rows = []
    for row in run["rows"]:
        if row["unit"] == "us" and row["floor"] and "series" not in row and row["id"] != "rate_cpu":
            ours = row["gpushm"]["median"]
            rows.append(("", row["floor"]["median"], "", OTHERS))
            rows.append((row["what"], ours, f"{ours:.3g} us, {row['judged']:.2f} x", OURS))
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(9, 1 + 0.17 * len(rows)))
    bars(axes, rows)
    axes.set_title(f"gpushm (dark), and the calls alone. {'NO REAL GPU' if run['fake'] else run['gpu']}", fontsize=9)
    return figure


def draw_scaling(plt, run):
    curves = {name: [row for row in run["rows"] if row.get("series") == name] for name in SERIES}
    curves = {name: rows for name, rows in curves.items() if rows}
    if not curves:
        return None
    figure, panels = plt.subplots(1, len(curves), figsize=(4.5 * len(curves), 3), squeeze=False)
    for axes, (name, rows) in zip(panels[0], curves.items()):
        axes.plot([SERIES[name]] + [row["x"] for row in rows],
                  [rows[0]["floor"]["median"]] + [row["gpushm"]["median"] for row in rows], "o-", color=OURS)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.margins(y=0.5)
        axes.set_title(f"attach + close, us, by {name}", fontsize=9)
        axes.grid(alpha=0.3)
    return figure


def draw_peers(plt, results):
    cases = list(dict.fromkeys((r["count"], r["bytes"]) for r in results))
    if not any("attach" in r for r in results):
        return None
    groups = [[r for r in results if (r["count"], r["bytes"]) == case] for case in cases]
    height = 0.5 + sum(0.5 + 0.19 * len(group) for group in groups)
    figure, panels = plt.subplots(len(cases), figsize=(9, height), squeeze=False, sharex=True,
                                  height_ratios=[len(group) for group in groups])
    for axes, case, group in zip(panels[:, 0], cases, groups):
        rows = []
        for r in group:
            us = r["attach"]["median"] if "attach" in r else None
            rows.append((peers.WAYS[r["way"]][0], us, peers.time_text(us) if us else "failed",
                         OURS if r["way"].startswith("gpushm") else OTHERS))
        bars(axes, rows)
        axes.set_title(f"attach: {peers.case_text(*case)}", fontsize=9, loc="left")
    return figure


def measured_ways(row):
    return [way for way in row["ways"] if "median" in way] if row else []


def draw_ways(axes, row, under_mps):
    """A panel: the medians of a row's ways, and below each of them the one under MPS."""
    labels, y = [], 0
    other = {way["way"]: way for way in measured_ways(under_mps)}
    for way in measured_ways(row):
        ours = OURS if way["way"].startswith("stream") else OTHERS
        for result, hatch in ((way, ""), (other.get(way["way"]), "////")):
            if result:
                axes.barh(y, result["median"], color=ours, hatch=hatch, edgecolor="white")
                axes.annotate(format(result["median"], ",.0f" if result["median"] > 1000 else ".3g") + (" MPS" if hatch else ""), (result["median"], y), (3, 0),
                              textcoords="offset points", va="center", fontsize=7)
                labels.append((y, "" if hatch else way["label"]))
                y += 1
    axes.set_yticks([at for at, _ in labels], [text for _, text in labels], fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.set_title(f"{row['what']}, {row['unit']}", fontsize=8, loc="left")


COSTS = {"cost_host": "host pool", "cost": "GPU, readers have released", "cost_waits": "GPU waits for the readers",
         "calls": "the driver's calls alone"}


def draw_costs(axes, rows):
    """A panel: begin and publish with more and more readers."""
    for prefix, label in COSTS.items():
        points = [(n, way["median"]) for n in (1, 8, 64) for way in measured_ways(rows.get(f"{prefix}_{n}"))]
        if points:
            axes.plot(*zip(*points), "o-", label=label, color=OTHERS if prefix == "calls" else None)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.legend(fontsize=7)
    axes.set_title("begin and publish, us, by readers", fontsize=8, loc="left")


def draw_streams(plt, run):
    rows = {row["id"]: row for row in run["rows"]}
    panels = [row for row in run["rows"] if measured_ways(row) and not row["id"].startswith(tuple(COSTS))]
    if not panels:
        return None
    height = -(-(len(panels) + 1) // 2)
    figure, grid = plt.subplots(height, 2, figsize=(12, 1.9 * height), squeeze=False, layout="constrained")
    axes = list(grid.flat)
    for place, row in zip(axes, panels):
        draw_ways(place, row, run["under_mps"].get(row["id"]))
    draw_costs(axes[len(panels)], rows)
    for unused in axes[len(panels) + 1:]:
        unused.remove()
    figure.suptitle("gpushm's streams (dark) and other ways; hatched: under MPS. "
                    f"{'NO REAL GPU' if run['fake'] else run['gpu'] or 'no GPU'}", fontsize=9)
    return figure


def draw_fleet(plt, runs):
    """Seconds until the last node has the model, and what crosses links, by the number of nodes."""
    nodes = [run["setup"]["nodes"] for run in runs]
    gib = runs[0]["setup"]["size"] / (1 << 30)
    figure, (times, links) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for key, label, style in (("one_source_s", "one source for all", ":"), ("rounds_s", "log2(N) x size / rate", "--"),
                              ("streaming_s", "bound of streaming", "-.")):
        times.plot(nodes, [run[key] for run in runs], style, color="#7a8794", label=label)
    for i, name in enumerate(runs[0]["runs"]):
        results = [run["runs"][name] for run in runs]
        colour = OURS if i == 0 else f"C{i}"
        times.plot(nodes, [r["last_s"] for r in results], "o-", label=name, color=colour, lw=2.5 if i == 0 else 1)
        links.plot(nodes, [r["rack_bytes_mean"] / (gib * (1 << 30)) for r in results], "o-", label=f"into a rack: {name}",
                   color=colour, lw=2.5 if i == 0 else 1)
    links.plot(nodes, [next(iter(run["runs"].values()))["origin_bytes"] / (gib * (1 << 30)) for run in runs], "k^:",
               label="from the source")
    setup = runs[0]["setup"]
    times.set_title(f"s until the last node has {gib:g} GiB, {100 * setup['deaths']:g} % of the nodes die", fontsize=9)
    links.set_title(f"copies of the model; racks of {setup['rack']}, {setup['oversubscribed']:g}:1 oversubscribed", fontsize=9)
    for axes in (times, links):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("nodes", fontsize=8)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    return figure


def draw_rates(axes, rows):
    """A panel: GB/s of loading, saving and verifying a file."""
    for y, row in enumerate(rows):
        axes.barh(y, row["best_gbs"], color=OTHERS if row["row"].startswith(("floor_", "peer_")) else OURS)
        axes.annotate(f"{row['best_gbs']:.1f}", (row["best_gbs"], y), (3, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_title(f"GB/s of a file of {rows[0]['bytes'] / 2**30:.3g} GiB; grey: copies alone, and others", fontsize=8, loc="left")


def draw_attach(axes, rows):
    """A panel: CPU time until a process has a model of transformers."""
    for y, row in enumerate(rows):
        axes.barh(y, row["cpu_ms"], color=OURS if "gpushm" in row["what"] else OTHERS)
        axes.annotate(f"{row['cpu_ms']:.1f}", (row["cpu_ms"], y), (3, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_title(f"ms of CPU time for a model of {rows[0]['tensors']} tensors, {rows[0]['where']}", fontsize=8, loc="left")


def draw_models(plt, rows):
    panels = [(draw_rates, [r for r in rows if "best_gbs" in r and r["row"] != "save_bus"]),
              (draw_attach, [r for r in rows if "cpu_ms" in r])]
    panels = [(draw, chosen) for draw, chosen in panels if chosen]
    if not panels:
        return None
    sizes = [len(chosen) for _, chosen in panels]
    figure, grid = plt.subplots(len(panels), figsize=(9, 0.8 * len(panels) + 0.2 * sum(sizes)), squeeze=False,
                                layout="constrained", height_ratios=sizes)
    for axes, (draw, chosen) in zip(grid[:, 0], panels):
        draw(axes, chosen)
        axes.set_yticks(range(len(chosen)), [row["what"] for row in chosen], fontsize=7)
        axes.invert_yaxis()
        axes.margins(x=0.15)
    return figure


def add_mps(run, folder):
    """The rows of the run under MPS, beside those of the other."""
    path = os.path.join(folder, "streams-mps.json")
    run["under_mps"] = {}
    if os.path.exists(path):
        with open(path) as f:
            run["under_mps"] = {row["id"]: row for row in json.load(f)["rows"]}


def save(plt, figure, path):
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    with open(path) as f:
        declaration, rest = f.read().split("\n", 1)
    with open(path, "w") as f:
        f.write(f"{declaration}\n<!-- SPDX-License-Identifier: MIT -->\n{rest}")
    print(path)


def main():
    try:
        import matplotlib
    except ImportError:
        print("plots: there is no matplotlib here; make bench-plots draws them where there is one")
        return
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "gpushm", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    plots = {"bench": {"latency": draw_latency, "scaling": draw_scaling}, "peers": {"peers": draw_peers},
             "streams": {"streams": draw_streams}, "fleet": {"fleet": draw_fleet}, "models": {"models": draw_models}}
    for name, draws in plots.items():
        data = os.path.join(sys.argv[1], f"{name}.json")
        if not os.path.exists(data):
            continue
        with open(data) as f:
            measured = [json.loads(line) for line in f] if name == "models" else json.load(f)
        if name == "streams":
            add_mps(measured, sys.argv[1])
        for picture, draw in draws.items():
            figure = draw(plt, measured)
            if figure:
                save(plt, figure, os.path.join(sys.argv[1], f"{picture}.svg"))


if __name__ == "__main__":
    main()
