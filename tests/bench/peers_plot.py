# SPDX-License-Identifier: MIT
"""The comparison as a picture: bars on a logarithmic axis, the ways side by side for each case."""
import math
from xml.sax.saxutils import escape

LABELS, BARS, VALUES, ROW, TOP = 270, 400, 110, 18, 46
OURS, OTHERS, GRID, TEXT = "#1f5fa8", "#b9c4d0", "#e4e7eb", "#222222"


def text(x, y, anchor, words, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{TEXT}" font-weight="{weight}">'
            f"{escape(words)}</text>")


def decades(results):
    values = [r["attach"]["median"] for r in results if "attach" in r]
    return math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))


def draw_grid(low, high, bottom, time_text):
    for d in range(low, high + 1):
        x = LABELS + BARS * (d - low) / (high - low)
        yield f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>'
        yield text(x, TOP - 12, "middle", time_text(10.0 ** d).replace(".00", "").replace(".0", ""))


def draw_case(rows, labels, y, low, high, time_text):
    for r in rows:
        yield text(LABELS - 8, y + 12, "end", labels[r["way"]])
        if "attach" not in r:
            yield text(LABELS + 6, y + 12, "start", "failed")
        else:
            us = r["attach"]["median"]
            width = BARS * (math.log10(us) - low) / (high - low)
            colour = OURS if r["way"].startswith("gpushm") else OTHERS
            yield f'<rect x="{LABELS}" y="{y + 2}" width="{width:.1f}" height="{ROW - 5}" fill="{colour}"/>'
            yield text(LABELS + width + 6, y + 12, "start", time_text(us))
        y += ROW


def write(path, results, cases, labels, case_text, time_text):
    if not any("attach" in r for r in results):
        return
    low, high = decades(results)
    parts, y = [], TOP
    for case in cases:
        rows = [r for r in results if (r["count"], r["bytes"]) == case]
        parts.append(text(10, y + 14, "start", "attach: " + case_text(*case), "bold"))
        parts += draw_case(rows, labels, y + 22, low, high, time_text)
        y += 22 + ROW * len(rows) + 12
    width = LABELS + BARS + VALUES
    with open(path, "w") as f:
        f.write("<!-- SPDX-License-Identifier: MIT -->\n"
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" '
                'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n')
        f.write("\n".join([*draw_grid(low, high, y - 8, time_text), *parts]))
        f.write("\n</svg>\n")
