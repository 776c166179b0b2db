#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Versions of other products: keeps tests/compatibility.txt, and makes a part of gpushm(7) of it.

    compatibility.py add FILE   adds what passed, of build/results.ran, which tests/run.sh writes; writes the page, too
    compatibility.py page       writes the part of the page
    compatibility.py check      fails if a row has no source, or the page is another one; changes nothing

It lies in tests.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "tests/compatibility.txt"
PAGE = ROOT / "man/gpushm.7"
BEGIN, END = '.\\" tests/compatibility.py writes what follows.\n', '.\\" tests/compatibility.py ends here.\n'
STATES = ("ran", "expected", "refused")


@dataclass
class Row:
    """A version of a product; a row without a day is not of a run."""

    state: str
    product: str
    version: str
    how: str
    source: str
    day: str

    def line(self) -> str:
        fields = (self.state, self.product, self.version, self.how, self.source, self.day)
        return " | ".join(fields).rstrip() + "\n"

    def wrong(self) -> str | None:
        """What is wrong with it. Its source has the words that it names, however they are broken into lines."""
        if self.state not in STATES or bool(self.day) != (self.state == "ran"):
            return "a state is ran, with a day, or expected or refused, without one"
        if self.source == "tests":
            return None
        file, _, words = self.source.partition(": ")
        if not (ROOT / file).is_file():
            return f"there is no {file}"
        # Adjacent strings of C and Python are one text.
        text = re.sub(r'"\s*\n\s*f?"', "", (ROOT / file).read_text())
        found = " ".join(words.split()) in " ".join(text.split()) if words else False
        return None if found else f'{file} does not have the words "{words}"'


def read() -> tuple[str, list[Row]]:
    """The head of the file, and its rows."""
    lines = ROWS.read_text().splitlines(keepends=True)
    head = "".join(line for line in lines if line.startswith("#"))
    rows = [Row(*(f.strip() for f in line.split("|"))) for line in lines if line.strip() and not line.startswith("#")]
    return head, rows


def add(rows: list[Row], file: Path) -> None:
    """Rows of a run; those of an earlier run of the same version get the later day."""
    for line in file.read_text().splitlines():
        part, product, version, day = line.split()
        row = next((r for r in rows if (r.source, r.product, r.version) == ("tests", product, version)), None)
        if not row:
            row = Row("ran", product, version, "", "tests", day)
            rows.insert(max([i for i, r in enumerate(rows) if r.product == product], default=len(rows) - 1) + 1, row)
        parts = set(row.how.removeprefix("suites ").split(", ")) - {""} | {part}
        row.how, row.day = "suites " + ", ".join(sorted(parts)), max(row.day, day)


def mdoc(words: str) -> str:
    """Lines of mdoc below 80 bytes, with what is special in it escaped."""
    lines, line = [], ""
    for word in words.replace("\\", "\\e").split():
        if line and len(line) + 1 + len(word) > 72:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "".join(f"\\&{x}\n" if x[0] in ".'" else f"{x}\n" for x in [*lines, line])


def page(rows: list[Row]) -> str:
    """The part of the page: a list of products, and in each one its versions by their state."""
    out = ['.Bl -tag -width "cuda.core"\n']
    for product in dict.fromkeys(r.product for r in rows):
        out.append(f".It {product}\n")
        of_product = [r for s in STATES for r in rows if r.product == product and r.state == s]
        for n, row in enumerate(of_product):
            when = f" ({row.day})" if row.day else ""
            out.append((".br\n" if n else "") + f".Em {row.state}\n" + mdoc(f"{row.version}: {row.how}{when}."))
    return "".join([*out, ".El\n"])


def main() -> int:
    """Does what the first argument says."""
    head, rows = read()
    if sys.argv[1] == "add":
        add(rows, Path(sys.argv[2]))
        ROWS.write_text(head + "".join(r.line() for r in rows))
    bad = [f"{ROWS.name}: {r.product} {r.version}: {r.wrong()}" for r in rows if r.wrong()]
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    new = page(rows)
    if sys.argv[1] == "check" and old != new:
        bad.append(f"{PAGE.name}: is not what tests/compatibility.py makes of {ROWS.name}: tests/compatibility.py page")
    elif sys.argv[1] != "check":
        PAGE.write_text(before + BEGIN + new + END + after)
    print("".join(f"{b}\n" for b in bad), end="")
    return 1 if bad else 0


sys.exit(main())
