#!/usr/bin/env python3
"""Results of bench/peers.py as text: a line each, and rows aot/... as a table in Markdown.

    python3 bench/peer_table.py peers.json > aot.md
"""

import json
import math
import sys

TITLES = {"hindcast": "hindcast", "functorch_inductor": "functorch + Inductor", "torch_compile": "torch.compile"}


def number(key, form, scale=1):
    return lambda result: format(result[key] * scale, form) if key in result else "-"


def spread(key):
    return lambda result: "±" + number(key, ".0f", 50)(result) + "%" if key in result else ""


def pair(stock, ours, form, scale):
    return lambda result: f"{number(stock, form, scale)(result)}>{number(ours, form, scale)(result)}"


# (head, width, text of a result)
BACKWARDS = (
    ("stock us", 9, number("stock_us", ".0f")), ("peer us", 9, number("peer_us", ".0f")),
    ("ratio", 6, number("ratio", ".2f")), ("", 5, spread("spread")),
    ("first ms", 9, number("first_ms", ".0f")), ("forward ms", 10, number("first_forward_ms", ".0f")),
    ("look-up us", 10, number("look_up_us", ".0f")),
)
STEPS = (
    ("eager us", 9, number("stock_us", ".0f")), ("peer us", 9, number("peer_us", ".0f")),
    ("ratio", 6, number("ratio", ".2f")), ("", 5, spread("spread")),
    ("forward", 7, number("forward_ratio", ".2f")), ("backward", 8, number("backward_ratio", ".2f")),
    ("first ms", 8, number("first_ms", ".0f")), ("ready ms", 8, number("ready_ms", ".0f")),
    ("saved MiB", 13, pair("stock_saved_bytes", "saved_bytes", ".2f", 2**-20)),
    ("peak MiB", 13, pair("stock_peak_bytes", "peak_bytes", ".1f", 2**-20)),
    ("hindcast ahead", 14, number("hindcast_ratio", ".2f")), ("", 5, spread("hindcast_spread")),
)


def print_line(name, peer, cells, columns, rest=""):
    aligned = [cell.rjust(width) for cell, (_, width, _) in zip(cells, columns)]
    print("  ".join([name.ljust(64), peer.ljust(18), *aligned, rest]).rstrip(), flush=True)


def print_head(columns):
    print_line("row", "peer", [head for head, *_ in columns], columns)


def print_result(columns, result):
    error = result.get("error")
    rest = "; ".join(result["notes"]) if error is None else error if error.startswith("skipped") else f"FAILED: {error}"
    cells = ["-" if error else text(result) for *_, text in columns]
    print_line(f"{result['row']}/t{result['threads']}", result["peer"], cells, columns, rest)


def is_behind(result):
    """Whether hindcast's steps are slower than this peer's, by more than the blocks' quotients differ."""
    return result.get("hindcast_ratio", 1) < 1 - result.get("hindcast_spread", 0) / 2


def both(result):
    """Of a whole step, with its forward and backward behind it."""
    if "ratio" not in result:
        return "-"
    return "{ratio:.2f} ({forward_ratio:.2f}, {backward_ratio:.2f})".format(**result)


def markdown(results):
    """A line for each row aot/...; rows in which a peer is ahead of hindcast are marked."""
    rows = {}
    for result in results:
        if result["row"].startswith("aot/"):
            rows.setdefault((result["row"], result["threads"]), {})[result["peer"]] = result
    titles = list(TITLES.values())
    heads = ["row", "eager ms", *(f"{title} ms" for title in titles), *(f"{title} ratio (forward, backward)" for title in titles),
             "saved MiB: eager, " + ", ".join(titles), "behind"]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 2) + "|---|"]
    for (row, threads), peers in rows.items():
        timed = [peers.get(peer, {}) for peer in TITLES]
        eager = next((result for result in timed if "stock_us" in result), {})
        saved = [number("stock_saved_bytes", ".2f", 2**-20)(eager)]
        saved += [number("saved_bytes", ".2f", 2**-20)(result) for result in timed]
        behind = [f"**{TITLES[peer]} {1 / result['hindcast_ratio']:.2f}x**"
                  for peer, result in peers.items() if is_behind(result)]
        cells = [f"{row}/t{threads}", number("stock_us", ".3f", 1e-3)(eager),
                 *(number("peer_us", ".3f", 1e-3)(result) for result in timed), *map(both, timed),
                 ", ".join(saved), ", ".join(behind)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines + summary(rows.values())) + "\n"


def summary(rows):
    """How far hindcast is ahead of each peer, over the rows that both have."""
    lines = [""]
    for peer, title in TITLES.items():
        ahead = [row[peer]["hindcast_ratio"] for row in rows if "hindcast_ratio" in row.get(peer, ())]
        if ahead:
            mean = math.exp(sum(map(math.log, ahead)) / len(ahead))
            lines.append(f"hindcast's steps are {mean:.2f} times as fast as {title}'s (geometric mean of {len(ahead)} rows, "
                         f"{min(ahead):.2f} to {max(ahead):.2f}).")
    return lines


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(markdown(json.load(file)), end="")
