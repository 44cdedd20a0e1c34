#!/usr/bin/env python3
"""Print the JSON of hindcast_bench as one aligned table, with fits and targets.

    build/release/bench/hindcast_bench --benchmark_out=run.json --benchmark_out_format=json
    python3 bench/table.py run.json            # --check: exit 1 if a target is missed
"""

import argparse
import json
import re
import statistics
import sys


def fail(message):
    sys.exit(f"table.py: {message}")


def load(path):
    """Rows of a run: {name, counter: value, ...}; repetitions of a row become their medians."""
    try:
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
        benchmarks = run["benchmarks"]
    except OSError as error:
        fail(f"{path}: {error.strerror}; run hindcast_bench with --benchmark_out={path} first")
    except (ValueError, KeyError, TypeError):
        fail(f"{path}: not the JSON of a finished hindcast_bench run "
             "(use --benchmark_out=FILE --benchmark_out_format=json)")
    repeats = {}
    for bench in benchmarks:
        if bench.get("run_type", "iteration") == "iteration":
            name = re.sub(r"/(iterations:\d+|repeats:\d+|manual_time)", "", bench["name"])
            repeats.setdefault(name, []).append(bench)
    rows = []
    for name, samples in repeats.items():
        row = {"name": name, "error": next((s["error_message"] for s in samples if s.get("error_occurred")), None)}
        for key, value in samples[0].items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                row[key] = statistics.median(s[key] for s in samples if key in s)
        rows.append(row)
    return run.get("context", {}), rows


def cell(row, key, form, scale=1):
    return "-" if row.get(key) is None else format(row[key] * scale, form)


def microseconds(row, key):
    value = row.get(key)
    return "-" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def print_table(title, header, lines):
    if not lines:
        return
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    print(f"\n{title}")
    for line in [header, *lines]:
        print("  ".join(text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths))))


def hits(row):
    """The share of hindcast's backwards that were hits; anything less than all of them is marked."""
    share = row.get("hit_share")
    return "-" if share is None else f"{100 * share:.0f}%" + ("" if share > 0.999 else " !")


def changes(row):
    """Whether the row is of a program whose graphs change: it need not hit."""
    return "overall_ratio" in row


def print_backwards(rows):
    lines = []
    header = ["row", "nodes", "stock us", "hindcast us", "ratio", "spread", "ns/node", "peak", "hits"]
    floors = any("floor_us" in row for row in rows)
    if floors:
        header += ["floor us", "of floor"]
    models = any("model_floor_us" in row for row in rows)
    if models:
        header += ["products us", "with the rest", "share"]
    by_hand = any("by_hand_us" in row for row in rows)
    if by_hand:
        header += ["by hand us", "of by hand"]
    for row in rows:
        if row["error"]:
            lines.append([row["name"], "FAILED"] + [""] * (len(header) - 2))
        elif "hindcast_us" in row and not changes(row):
            lines.append([row["name"], cell(row, "nodes", ".0f"), microseconds(row, "stock_us"),
                          microseconds(row, "hindcast_us"), cell(row, "ratio", ".2f"),
                          "±" + cell(row, "spread", ".0f", 50) + "%", cell(row, "ns_per_node", ".0f"),
                          cell(row, "peak_ratio", ".3f"), hits(row)])
            if floors:
                lines[-1] += [microseconds(row, "floor_us"), cell(row, "floor_share", ".0f", 100) + "%"
                              if "floor_share" in row else "-"]
            if models:
                lines[-1] += [microseconds(row, "products_us"), microseconds(row, "model_floor_us"),
                              cell(row, "model_floor_share", ".0f", 100) + "%" if "model_floor_share" in row else "-"]
            if by_hand:
                lines[-1] += [microseconds(row, "by_hand_us"), cell(row, "of_by_hand", ".2f")]
    print_table("Backward on a hit (ratio = stock / hindcast, higher is faster; guard_off: never enabled / no guard)",
                header, lines)
    for row in rows:
        if row["error"]:
            print(f"  {row['name']}: {row['error']}")


def print_collect(rows):
    lines = [[row["name"], cell(row, "nodes", ".0f")]
             + [text for who in ("typed", "visitor")
                for text in (cell(row, f"{who}_collect_us", ".1f"), cell(row, f"{who}_ns_per_node", ".0f"))]
             for row in rows if "typed_collect_us" in row]
    print_table("Collect + look up of a hit, without running it",
                ["row", "nodes", "typed us", "typed ns/node", "visitor us", "visitor ns/node"], lines)


def print_hooks(rows):
    lines = [[row["name"], cell(row, "nodes", ".0f"), cell(row, "hook_us", ".1f"), cell(row, "stock_hook_us", ".1f")]
             for row in rows if "hook_us" in row]
    print_table("What one hook adds to a backward", ["row", "nodes", "hindcast us", "stock us"], lines)


def print_first(rows):
    lines = [[row["name"], cell(row, "nodes", ".0f"), microseconds(row, "stock_us"), microseconds(row, "first_us"),
              cell(row, "first_ratio", ".2f"), "±" + cell(row, "spread", ".0f", 50) + "%",
              microseconds(row, "cold_us"), cell(row, "first_peak_ratio", ".3f")]
             for row in rows if "first_ratio" in row]
    print_table("First backward, a miss (first ratio = hindcast's first / stock, lower is better)",
                ["row", "nodes", "stock us", "first us", "first ratio", "spread", "cold us", "peak"], lines)


def print_layouts(rows):
    lines = [[row["name"], microseconds(row, "plain_us"), microseconds(row, "last_us"), cell(row, "ratio", ".2f"),
              "±" + cell(row, "spread", ".0f", 50) + "%", microseconds(row, "blocked_us"), cell(row, "blocked_ratio", ".2f")]
             for row in rows if "blocked_us" in row]
    print_table("Layouts of a convolution, forward and backward (ratio = plain / the layout, higher is faster)",
                ["row", "plain us", "channels-last us", "ratio", "spread", "blocked us", "ratio"], lines)


def print_changing(rows):
    lines = [[row["name"], cell(row, "nodes", ".0f"), microseconds(row, "stock_us"), microseconds(row, "hindcast_us"),
              cell(row, "ratio", ".2f"), "±" + cell(row, "spread", ".0f", 50) + "%", cell(row, "overall_ratio", ".2f"),
              cell(row, "first_steps_ratio", ".2f"), cell(row, "hit_share", ".0f", 100) + "%",
              cell(row, "fallback_share", ".0f", 100) + "%", cell(row, "stock_resident_mb", ".1f"), cell(row, "resident_mb", ".1f")]
             for row in rows if changes(row)]
    print_table("Programs that change (ratio = stock / hindcast, higher is faster; MB: what the warm-up adds to the resident memory)",
                ["row", "nodes", "stock us", "hindcast us", "ratio", "spread", "overall", "first steps", "hits", "on stock",
                 "stock MB", "hindcast MB"], lines)


def print_soaks(rows):
    lines = [[row["name"], cell(row, "soak_steps", ".0f"), cell(row, "stock_s", ".1f"), cell(row, "hindcast_s", ".1f"),
              cell(row, "stock_resident_mb", ".0f"), cell(row, "resident_mb", ".0f"),
              cell(row, "stock_trimmed_mb", ".0f"), cell(row, "trimmed_mb", ".0f"),
              cell(row, "stock_resident_peak_mb", ".0f"), cell(row, "resident_peak_mb", ".0f")]
             for row in rows if "soak_steps" in row and not row["error"]]
    print_table("Long runs, each engine in a process of its own (MB resident: at the end, behind malloc_trim(), and at most)",
                ["row", "steps", "stock s", "hindcast s", "stock end", "hindcast end", "stock trimmed", "hindcast trimmed",
                 "stock peak", "hindcast peak"], lines)


def print_leaks(rows):
    lines = [[row["name"], cell(row, "backwards", ".0f"), cell(row, "hits", ".0f"), cell(row, "live_bytes", ".0f"),
              cell(row, "heap_bytes", ".0f"), cell(row, "stock_heap_bytes", ".0f")]
             for row in rows if "live_bytes" in row]
    print_table("Bytes left after the hits (live: tensors, exact; heap: all of malloc)",
                ["row", "backwards", "hits", "live", "heap", "stock heap"], lines)


def fit(points):
    """cost = fixed + slope * n, least squares of the RELATIVE errors, so that n = 10 counts as much as 10,000."""
    points = [(n, cost) for n, cost in points if cost > 0]
    if len({n for n, _ in points}) < 2:
        return None
    weights = [1 / cost**2 for _, cost in points]
    total = sum(weights)
    mean_n = sum(w * n for w, (n, _) in zip(weights, points)) / total
    mean_cost = sum(w * cost for w, (_, cost) in zip(weights, points)) / total
    variance = sum(w * (n - mean_n) ** 2 for w, (n, _) in zip(weights, points))
    slope = sum(w * (n - mean_n) * (cost - mean_cost) for w, (n, cost) in zip(weights, points)) / variance
    fixed = mean_cost - slope * mean_n
    off = max(abs(fixed + slope * n - cost) / cost for n, cost in points)
    return fixed, slope, off


def print_fits(rows):
    # The fastest blocks: the rows run minutes apart, and a slow minute would bend the line.
    wanted = [
        ("chain/mixed, stock", "chain/mixed/", "stock_min_us"),
        ("chain/mixed, hindcast", "chain/mixed/", "hindcast_min_us"),
        ("chain/mul, stock", "chain/mul/", "stock_min_us"),
        ("chain/mul, hindcast", "chain/mul/", "hindcast_min_us"),
        ("collect + look up, typed", "collect/", "typed_collect_min_us"),
        ("collect + look up, visitor", "collect/", "visitor_collect_min_us"),
        ("collect + look up, typed, with a hook", "hook/", "collect_min_us"),
    ]
    lines = []
    for threads in sorted({row.get("threads", 1) for row in rows}):
        for label, prefix, key in wanted:
            chosen = [row for row in rows if row["name"].startswith(prefix) and row.get("threads") == threads]
            result = fit([(row["nodes"], row[key]) for row in chosen if key in row and "nodes" in row])
            if result:
                fixed, slope, off = result
                lines.append([f"{label}, t{threads:.0f}", f"{fixed:.2f}", f"{1000 * slope:.0f}", f"{100 * off:.0f}%"])
    print_table("Fixed part and slope over the chain's nodes (relative fit of the fastest blocks, N = 10 to 10,000)",
                ["fit", "fixed us", "ns a node", "worst error"], lines)


COLLECT_NS = [("visitor", 100, 500), ("visitor", 1000, 500), ("typed", 1000, 200), ("typed", 10000, 400)]


CACHE_MB = 268  # Options::cache_bytes


def targets(rows, fused):
    """(what, seen, bound, met) for every target that the rows of this run can answer."""
    for row in rows:
        name = row["name"]
        chain = re.match(r"collect/(\d+)/", name)
        for collector, ops, bound in COLLECT_NS:
            if chain and ops == int(chain[1]) and row[f"{collector}_hit_share"] > 0:
                seen = row[f"{collector}_ns_per_node"]
                yield f"{name}: {collector}, ns per node", f"{seen:.0f}", f"<= {bound}", seen <= bound
        if "hook_us" in row and row["nodes"] < 100:  # on long chains 6 us are lost in the noise
            seen = row["hook_us"]
            yield f"{name}: us more with user code", f"{seen:.1f}", "<= 6", seen <= 6
        if "hit_share" in row and not changes(row):
            yield f"{name}: hits", f"{100 * row['hit_share']:.0f}%", "100%", row["hit_share"] > 0.999
        if changes(row):  # also if no capture pays
            for key in ("ratio", "overall_ratio"):
                yield f"{name}: {key.replace('_', ' ')}", f"{row[key]:.2f}", ">= 0.91", row[key] >= 0.91
        elif name.startswith("idle/"):
            yield f"{name}: ratio", f"{row['ratio']:.2f}", ">= 0.95", row["ratio"] >= 1 / 1.05
        elif "ratio" in row:
            bound = 1 - max(0.02, row.get("spread", 0) / 2)  # differences below the spread mean nothing
            yield f"{name}: ratio", f"{row['ratio']:.2f}", f">= {bound:.2f}", row["ratio"] >= bound
        if fused and "floor_share" in row and "/clip_" not in name:  # there the optimizer moves most of the bytes
            ratio, share = row["ratio"], row["floor_share"]
            yield (f"{name}: fused", f"{ratio:.2f}, {100 * share:.0f}% of floor", ">= 2, or 70%",
                   ratio >= 2 or share >= 0.7)
        if "soak_steps" in row:
            bound = 1.1 * row["stock_resident_mb"] + CACHE_MB
            yield f"{name}: resident MB", f"{row['resident_mb']:.0f}", f"<= {bound:.0f}", row["resident_mb"] <= bound
        if row.get("peak_ratio"):
            yield f"{name}: peak", f"{row['peak_ratio']:.3f}", "<= 1.01", row["peak_ratio"] <= 1.01
        if "first_ratio" in row:
            stock = row["stock_us"]
            bound = 2 if "/chain/" in name else 1.1 if stock > 50e3 else 1.2 if stock > 5e3 else None
            if bound:
                yield f"{name}: first ratio", f"{row['first_ratio']:.2f}", f"<= {bound}", row["first_ratio"] <= bound
        if "live_bytes" in row:
            yield f"{name}: hits", f"{row['hits']:.0f}", f"{row['backwards']:.0f}", row["hits"] == row["backwards"]
            yield f"{name}: live bytes", f"{row['live_bytes']:.0f}", "0", row["live_bytes"] == 0


def print_targets(rows, fused):
    checked = list(targets(rows, fused))
    missed = [[what, seen, bound] for what, seen, bound, met in checked if not met]
    print(f"\nTargets: {len(checked) - len(missed)} of {len(checked)} met")
    print_table("Missed", ["target", "seen", "bound"], missed)
    return not missed


def main():
    parser = argparse.ArgumentParser(description="Print the JSON of hindcast_bench as one table.")
    parser.add_argument("file", metavar="FILE", help="what --benchmark_out wrote")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed or a row failed")
    arguments = parser.parse_args()
    context, rows = load(arguments.file)
    if not rows:
        fail(f"{arguments.file}: no rows; did the run's --benchmark_filter match anything?")
    print(f"{context.get('date', '')}  {context.get('num_cpus', '?')} x {context.get('processor', '?')}  "
          f"LibTorch {context.get('libtorch', '?')}  {context.get('cpu_capability', '')}" + ("  QUICK: few samples" if context.get("quick") == "yes" else "")
          + ("  FUSED" if context.get("fused") == "yes" else ""))
    print_backwards(rows)
    print_first(rows)
    print_collect(rows)
    print_hooks(rows)
    print_leaks(rows)
    print_layouts(rows)
    print_changing(rows)
    print_soaks(rows)
    print_table("A guard", ["row", "ns an enable() and its end"],
                [[row["name"], cell(row, "guard_ns", ".0f")] for row in rows if "guard_ns" in row])
    print_fits(rows)
    met = print_targets(rows, context.get("fused") == "yes")
    if arguments.check and (not met or any(row["error"] for row in rows)):
        sys.exit(1)


if __name__ == "__main__":
    main()
