#!/usr/bin/env python3
"""Results of bench/peers.py as text: a line each, and rows aot/..., step/... and train_step/... as tables in Markdown.

    python3 bench/peer_table.py peers.json > peers.md
"""

import json
import math
import sys

ROWS_IN_PROCESSES = ("train_step/", "second/")  # each lane has a separate process

# Prefix of rows -> their table's peers and titles
TITLES = {
    "aot/": {"hindcast": "hindcast", "functorch_inductor": "functorch + Inductor", "torch_compile": "torch.compile"},
    "step/": {"hindcast": "hindcast", "eager_fused": "eager, fused Adam", "eager_foreach": "eager, foreach Adam",
              "torch_compile": "torch.compile"},
    "train_step/": {"hindcast_train_step": "hindcast.train_step", "eager": "eager", "torch_compile": "torch.compile",
                    "jax": "JAX", "jax_blocked": "blocked JAX"},
    "second/": {"hindcast_train_step": "hindcast.train_step", "hindcast_enable": "hindcast.enable()", "eager": "eager",
                "jax": "JAX", "jax_blocked": "blocked JAX"},
}


def number(key, form, scale=1):
    return lambda result: format(result[key] * scale, form) if key in result else "-"


def spread(key):
    return lambda result: "±" + number(key, ".0f", 50)(result) + "%" if key in result else ""


def pair(stock, ours, form, scale):
    return lambda result: f"{number(stock, form, scale)(result)}>{number(ours, form, scale)(result)}"


# The lane that all others are compared with, and its title
BASES = {"aot/": ("eager", "eager"), "step/": ("eager", "eager"), "train_step/": ("eager_fused", "eager, fused Adam"),
         "second/": ("eager_fused", "eager, fused Adam")}

# (head, width, text of a result)
BACKWARDS = (
    ("stock us", 9, number("stock_us", ".0f")), ("peer us", 9, number("peer_us", ".0f")),
    ("ratio", 6, number("ratio", ".2f")), ("", 5, spread("spread")),
    ("first ms", 9, number("first_ms", ".0f")), ("forward ms", 10, number("first_forward_ms", ".0f")),
    ("look-up us", 10, number("look_up_us", ".0f")),
)
AOT = (
    ("eager us", 9, number("stock_us", ".0f")), ("peer us", 9, number("peer_us", ".0f")),
    ("ratio", 6, number("ratio", ".2f")), ("", 5, spread("spread")),
    ("forward", 7, number("forward_ratio", ".2f")), ("backward", 8, number("backward_ratio", ".2f")),
    ("first ms", 8, number("first_ms", ".0f")), ("ready ms", 8, number("ready_ms", ".0f")),
    ("saved MiB", 13, pair("stock_saved_bytes", "saved_bytes", ".2f", 2**-20)),
    ("peak MiB", 13, pair("stock_peak_bytes", "peak_bytes", ".1f", 2**-20)),
    ("hindcast ahead", 14, number("hindcast_ratio", ".2f")), ("", 5, spread("hindcast_spread")),
)
STEPS = (
    ("eager ms", 9, number("stock_us", ".3f", 1e-3)), ("ms", 9, number("peer_us", ".3f", 1e-3)),
    ("ratio", 6, number("ratio", ".2f")), ("", 5, spread("spread")),
    ("forward", 7, number("forward_ratio", ".2f")), ("backward", 8, number("backward_ratio", ".2f")),
    ("update", 7, number("update_ratio", ".2f")),
    ("hindcast ahead", 14, number("hindcast_ratio", ".2f")), ("", 5, spread("hindcast_spread")),
)
TRAIN_STEPS = (
    ("fused us", 9, number("stock_us", ".1f")), ("us", 9, number("peer_us", ".1f")),
    ("by clock", 9, number("clock_us", ".1f")),
    ("ratio", 6, number("ratio", ".2f")), ("", 5, spread("spread")), ("first ms", 8, number("first_ms", ".0f")),
    ("hindcast ahead", 14, number("hindcast_ratio", ".2f")), ("", 5, spread("hindcast_spread")),
)


def columns_of(row):
    if row.startswith(ROWS_IN_PROCESSES):
        return TRAIN_STEPS
    return AOT if row.startswith("aot/") else STEPS if row.startswith("step/") else BACKWARDS


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
    """Whether hindcast's steps are slower than this peer's, beyond the spread of the blocks' quotients."""
    return result.get("hindcast_ratio", 1) < 1 - result.get("hindcast_spread", 0) / 2


def with_parts(result):
    """The ratio of a whole step, followed by those of its parts."""
    keys = [key for key in ("forward_ratio", "backward_ratio", "update_ratio") if key in result]
    parts = ", ".join(number(key, ".2f")(result) for key in keys)
    return number("ratio", ".2f")(result) + (f" ({parts})" if parts else "")


def saved_of_each(results):
    eager = next((result for result in results if "stock_saved_bytes" in result), {})
    saved = [number("saved_bytes", ".2f", 2**-20)(result) for result in results]
    return ", ".join([number("stock_saved_bytes", ".2f", 2**-20)(eager), *saved])


def behind_which(peers, titles):
    return ", ".join(f"**{titles[peer]} {1 / result['hindcast_ratio']:.2f}x**"
                     for peer, result in peers.items() if is_behind(result))


def by_rows(results, prefix):
    """(row, threads) -> peer -> result"""
    rows = {}
    for result in results:
        if result["row"].startswith(prefix):
            rows.setdefault((result["row"], result["threads"]), {})[result["peer"]] = result
    return rows


def table(results, prefix):
    """A line per row; rows in which a peer is ahead of hindcast are marked."""
    titles, is_aot = TITLES[prefix], prefix == "aot/"
    parts = {"aot/": " (forward, backward)", "step/": " (forward, backward, update)"}.get(prefix, "")
    base, base_title = BASES[prefix]
    heads = ["row", f"{base_title} ms", *(f"{title} ms" for title in titles.values()),
             *(f"{title} ratio{parts}" for title in titles.values())]
    heads += ["saved MiB: eager, " + ", ".join(titles.values())] * is_aot + ["behind"]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 2) + "|---|"]
    rows = by_rows(results, prefix)
    for (row, threads), peers in rows.items():
        timed = [peers.get(peer, {}) for peer in titles]
        eager = next((result for result in timed if "stock_us" in result), {})
        cells = [f"{row}/t{threads}", number("stock_us", ".3f", 1e-3)(eager),
                 *(number("peer_us", ".3f", 1e-3)(result) for result in timed), *map(with_parts, timed)]
        cells += [saved_of_each(timed)] * is_aot + [behind_which(peers, {base: base_title} | titles)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines + summary(rows.values(), {base: base_title} | titles)) + "\n"


def summary(rows, titles):
    """How far hindcast is ahead of each peer, over the rows that both have."""
    lines = [""]
    for peer, title in titles.items():
        ahead = [row[peer]["hindcast_ratio"] for row in rows if "hindcast_ratio" in row.get(peer, ())]
        if ahead:
            mean = math.exp(sum(map(math.log, ahead)) / len(ahead))
            lines.append(f"hindcast's steps are {mean:.2f} times as fast as {title}'s (geometric mean of {len(ahead)} rows, "
                         f"{min(ahead):.2f} to {max(ahead):.2f}).")
    return lines


def markdown(results):
    """A table for each of the rows aot/..., step/... and train_step/..., if there are any."""
    return "\n".join(table(results, prefix) for prefix in TITLES if by_rows(results, prefix))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(markdown(json.load(file)), end="")
