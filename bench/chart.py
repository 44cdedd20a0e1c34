#!/usr/bin/env python3
"""Draw the ratios and floors of a hindcast_bench run as an SVG.

    python3 bench/chart.py run.json chart.svg
"""

import html
import math
import sys

import table

LEFT, WIDTH, ROW, TOP = 330, 520, 18, 46
COLOURS = {"bar": "#4f7cac", "slow": "#b5524a", "floor": "#e0a030", "line": "#d0d4d8", "text": "#24292f"}


def chosen(rows):
    return [row for row in rows if row.get("ratio") and not row["error"]]


def floor_of(row):
    """What the ratio would be at the floor; None where the row has none."""
    share = row.get("floor_share") or row.get("model_floor_share")
    return row["ratio"] / share if share else None


def scale(rows):
    """From a ratio to a position, by its logarithm: 2x faster is as far from 1 as 2x slower."""
    values = [row["ratio"] for row in rows] + [floor for floor in map(floor_of, rows) if floor]
    low, high = min(0.8, *values), max(2.0, *values)
    return lambda ratio: LEFT + WIDTH * math.log(ratio / low) / math.log(high / low), low, high


def ticks(low, high):
    return [tick for tick in (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64) if low <= tick <= high]


def text(x, y, what, anchor="start", size=11):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{COLOURS["text"]}" '
            f'font-family="sans-serif">{html.escape(what)}</text>')


def bar(row, y, place):
    one, end = place(1), place(row["ratio"])
    colour = COLOURS["bar"] if row["ratio"] >= 1 else COLOURS["slow"]
    parts = [text(LEFT - 8, y + 12, row["name"], "end"),
             f'<rect x="{min(one, end):.1f}" y="{y + 3}" width="{max(abs(end - one), 0.5):.1f}" height="{ROW - 6}" fill="{colour}"/>',
             text(max(one, end) + 5, y + 12, f"{row['ratio']:.2f}")]
    floor = floor_of(row)
    if floor:
        x = place(floor)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y + 1}" y2="{y + ROW - 1}" stroke="{COLOURS["floor"]}" stroke-width="3"/>')
    return parts


def svg(rows):
    rows = chosen(rows)
    if not rows:
        sys.exit("chart.py: no row of the run has a ratio")
    place, low, high = scale(rows)
    height = TOP + ROW * len(rows) + 12
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 70}" height="{height}">',
             '<rect width="100%" height="100%" fill="white"/>',
             text(8, 18, "stock's time over hindcast's: higher is faster. Yellow: the ratio at the row's floor", size=13)]
    for tick in ticks(low, high):
        x = place(tick)
        parts += [f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 8}" stroke="{COLOURS["line"]}"/>', text(x, TOP - 10, f"{tick:g}", "middle")]
    for number, row in enumerate(rows):
        parts += bar(row, TOP + ROW * number, place)
    return "\n".join([*parts, "</svg>", ""])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    _, rows = table.load(sys.argv[1])
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(svg(rows))


if __name__ == "__main__":
    main()
