#!/usr/bin/env python3
"""Programs that gain nothing must pay nothing: rows `idle/...`, PyTorch against hindcast in one process by turns.

    python bench/idle.py                              # all rows, each in a process of its own
    python bench/idle.py --rows 'function|guard' --pairs 31 --json idle.json

Timed is processor time of whole steps in the steady state: behind `--warm-up` steps of each side, and once all kernels are there.
`time` is hindcast's over stock's, block by block, the median with its interquartile range; lower is better, and 1.05 is the target.
`least` is that of the fastest blocks. Exit status 1: a row is above the target.
"""

import argparse
import contextlib
import json
import os
import re
import sys
import time
import warnings

import hindcast
import torch
from hindcast.bench import children
from hindcast.bench.turns import in_turn, quartiles, quotients
from idle_programs import ROWS

BLOCK_US = 3000
TARGET = 1.05


def block_us(step, steps):
    start = time.process_time_ns()
    for _ in range(steps):
        step()
    return (time.process_time_ns() - start) / 1000 / steps


def measure(name, pairs, warm_up):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    stock, ours, *guard = ROWS[name]()
    context = guard[0] if guard else contextlib.nullcontext
    for _ in range(3):
        block_us(stock, warm_up // 3)
        with context():
            block_us(ours, warm_up // 3)
        hindcast.wait()
    # A multiple of two: some programs alternate.
    steps = 2 * max(1, min(4000, int(BLOCK_US / block_us(stock, 20))) // 2)

    def block(side):
        step, around = side
        with around():
            return block_us(step, steps)

    of_stock, of_ours = in_turn([(stock, contextlib.nullcontext), (ours, context)], block, most=pairs).values()
    ratio, spread = quotients(of_ours, of_stock)
    return {
        "name": name,
        "stock_us": quartiles(of_stock)[0],
        "hindcast_us": quartiles(of_ours)[0],
        "time": ratio,
        "spread": spread,
        "least": min(of_ours) / min(of_stock),
        "steps": steps,
    }


def in_own_process(name, arguments):
    command = [sys.executable, "-W", "ignore", __file__, "--one", name, "--pairs", str(arguments.pairs), "--warm-up", str(arguments.warm_up)]
    told, error = children.run(command, dict(os.environ), arguments.limit)
    return {"name": name, "error": error or "no output"} if error or not told else told[-1]


def print_row(row):
    if "error" in row:
        print(f"{row['name']:36} {row['error']}", flush=True)
        return
    mark = "" if row["time"] <= TARGET else "  *"
    print(
        f"{row['name']:36} {row['stock_us']:9.2f} {row['hindcast_us']:9.2f} {row['time']:7.3f} ±{50 * row['spread']:4.1f}% "
        f"{row['least']:7.3f}{mark}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="a regular expression")
    parser.add_argument("--pairs", type=int, default=41, help="blocks of each side")
    parser.add_argument("--warm-up", type=int, default=1500, help="steps of each side")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="of one row")
    parser.add_argument("--json", help="a file for the results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.pairs, arguments.warm_up)))
        return 0
    print(f"{'row':36} {'stock us':>9} {'ours us':>9} {'time':>7} {'':6} {'least':>7}")
    rows = []
    for name in (name for name in ROWS if re.search(arguments.rows, name)):
        rows.append(in_own_process(name, arguments))
        print_row(rows[-1])
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return int(any(row.get("time", TARGET + 1) > TARGET for row in rows))


if __name__ == "__main__":
    sys.exit(main())
