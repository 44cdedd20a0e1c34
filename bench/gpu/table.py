#!/usr/bin/env python3
"""One table of what hindcast_bench_gpu and torch_compile.py wrote: stock, hindcast, CUDA graphs and torch.compile, row by row.

    python3 bench/gpu/table.py results/*.json        # --json FILE: the same as JSON

Several files of one program are its turns: a number is the median over them. Times of the two programs were taken in turn, but not at the
same moment: `eager us` beside `stock us` shows what the machine, and Python, changed in between.
"""

import argparse
import json
import re
import statistics
import sys

import targets
from targets import mean_of


def read(path):
    """The benchmarks of a file; of a file cut off by a time limit, the complete ones."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for candidate in (text, text[:text.rfind("},") + 1] + "]}"):
        try:
            return json.loads(candidate)["benchmarks"]
        except (ValueError, KeyError, TypeError):
            continue
    print(f"table.py: {path} has no benchmarks", file=sys.stderr)
    return []


def merged(paths):
    """name -> {counter: median over the files}; errors are kept as texts."""
    samples = {}
    for path in paths:
        for bench in read(path):
            if bench.get("run_type", "iteration") != "iteration":
                continue
            row = samples.setdefault(re.sub(r"/(iterations:\d+|repeats:\d+|manual_time)", "", bench["name"]), {})
            if bench.get("error_occurred"):
                row.setdefault("error", []).append(bench["error_message"])
            for key, value in bench.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool) or key.endswith("_error"):
                    row.setdefault(key, []).append(value)
    return {name: {key: values[-1] if isinstance(values[-1], str) else statistics.median(values) for key, values in row.items()}
            for name, row in samples.items()}


def cell(row, key, form=".2f", scale=1):
    return "" if row.get(key) is None else format(row[key] * scale, form)


def us(row, key):
    """A time with its interquartile range, if there is one."""
    if row.get(f"{key}_us") is None:
        return ""
    text = f"{row[f'{key}_us']:.1f}"
    return text + (f" ±{row[f'{key}_iqr_us']:.1f}" if f"{key}_iqr_us" in row else "")


def over(row, above, below):
    if not row.get(above) or not row.get(below):
        return ""
    return f"{row[above] / row[below]:.2f}"


def print_table(title, header, lines):
    lines = [line for line in lines if any(line[1:])]
    if not lines:
        return
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    print(f"\n{title}")
    for line in [header, *lines]:
        print("  ".join(text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths))).rstrip())


def print_times(rows):
    header = ["row", "stock us", "hindcast us", "graphs us", "eager us", "torch.compile us", "its graphs us",
              "stock/hindcast", "stock/graphs", "eager/compile", "compile/hindcast", "compile's/graphs", "of floor", "hits"]
    lines = [[name, us(row, "stock"), us(row, "hindcast"), us(row, "graphs"), us(row, "eager"), us(row, "compile"),
              us(row, "compile_graphs"), over(row, "stock_us", "hindcast_us"), over(row, "stock_us", "graphs_us"),
              over(row, "eager_us", "compile_us"), over(row, "compile_us", "hindcast_us"),
              over(row, "compile_graphs_us", "graphs_us"), cell(row, "floor_share"), cell(row, "hit_share")]
             for name, row in rows.items()]
    print_table("Medians, by events: the backward; of rows whole/..., forward and backward; of rows steps/... and train/..., the host's clock until the "
                "card is done", header, lines)


def print_host(rows):
    header = ["row", "nodes", "ns a node", "kernels", "calls left", "host us", "bound us", "of bound", "stock's host us",
              "compile's host us"]
    lines = [[name, cell(row, "nodes", ".0f"), cell(row, "ns_a_node", ".0f"), cell(row, "kernels", ".0f"), cell(row, "calls_left", ".0f"),
              cell(row, "hindcast_host_us", ".1f"), cell(row, "host_bound_us", ".1f"), cell(row, "host_of_bound"),
              cell(row, "stock_host_us", ".1f"), cell(row, "compile_host_us", ".1f")]
             for name, row in rows.items() if "nodes" in row]
    print_table("The host's time of a hit without CUDA graphs (bound: 0.5 us a node, 4 us a kernel, and stock's time of the calls left)",
                header, lines)


def print_launches(rows):
    header = ["row", "stock, at least", "hindcast, at least", "eager", "torch.compile", "stock MiB", "hindcast MiB", "eager MiB",
              "compile MiB", "graphs MiB"]
    lines = [[name, cell(row, "stock_launches", ".0f"), cell(row, "launches", ".0f"), cell(row, "eager_launches", ".0f"),
              cell(row, "compile_launches", ".0f"), cell(row, "stock_peak_mib", ".1f"), cell(row, "peak_mib", ".1f"),
              cell(row, "eager_peak_mib", ".1f"), cell(row, "compile_peak_mib", ".1f"), cell(row, "graph_bytes", ".1f", 1 / (1 << 20))]
             for name, row in rows.items()]
    print_table("Launches, and the peak of device memory without CUDA graphs, beside the MiB that hindcast's CUDA graphs keep (at least: "
                "calls of ATen's, and hindcast's kernels; eager's and torch.compile's are counted by the profiler)", header, lines)


def print_means(rows):
    lines = []
    for dtype in ("float16", "float32", ""):
        whole = [row for name, row in rows.items() if name.startswith("whole/seed/") and name.endswith(dtype)]
        ours, count = mean_of(whole, "stock_us", "hindcast_us")
        theirs, _ = mean_of(whole, "eager_us", "compile_us")
        ahead, _ = mean_of(whole, "compile_us", "hindcast_us")
        lines.append([dtype or "both", *("" if number is None else f"{number:.2f}" for number in (ours, theirs, ahead)),
                      str(count) if count else "", "" if ours is None else "met" if ours >= targets.WHOLE else "missed"])
    print_table("Forward and backward of seed 001's patterns, geometric means",
                ["dtype", "stock/hindcast", "eager/compile", "compile/hindcast", "rows", f">= {targets.WHOLE}"], lines)


def print_targets(rows):
    checked = targets.checks(rows)
    print_table("Targets (each only where the row has the numbers for it)", ["target", "wanted", "met", "of"], targets.count_lines(checked))
    print_table("Missed", ["row", "what", "seen", "wanted"], targets.missed_lines(checked))
    print(f"\nmet: {sum(check.is_met() for check in checked)} of {len(checked)} targets")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="JSON of either program")
    parser.add_argument("--json", metavar="FILE", help="write what is in the tables here too")
    arguments = parser.parse_args()
    rows = merged(arguments.files)
    if not rows:
        print("there are no rows")
        return
    print_times(rows)
    print_host(rows)
    print_launches(rows)
    print_means(rows)
    print_targets(rows)
    for name, row in rows.items():
        for key, value in row.items():
            if isinstance(value, str):
                print(f"{name}: {key}: {value}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
