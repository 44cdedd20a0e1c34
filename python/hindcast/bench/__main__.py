"""``python -m hindcast.bench [--peers] [--threads 1] [--only mlp] [--json out.json] [--svg out.svg]``"""

import argparse
import json
import math
import os
import platform
import signal
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hindcast
import torch

from . import chart, peers, table
from .lanes import Hindcast
from .measure import keep_freed_memory, measure
from .models import models
from .workloads import workloads

_EXPLANATION = """
ratio: stock's time of a backward over the engine's, the median of blocks taken by turns in one process, and half the
distance of their quartiles; higher is faster. cpu: the same of processor time. Where threads wait for cores, ratio favours
the shorter backward, which is interrupted less often, and cpu does not. first: the first backward of the structure; kernels:
ms after it until what is compiled in the background is there (with --peers nothing is found on the disk, else what an
earlier run compiled); new b.: the first backward of another batch size. ns/node: finding the compiled graph, without running
it (for compiled autograd with the call from the engine into Python). peak: the most that tensors take while the backward
runs, beyond what the forward left, as PyTorch's allocator reports it. waited: how long threads of the process waited for a
core, over the time that it ran; from some 10% on, the machine was busy.
"""


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m hindcast.bench",
        description="Backward under PyTorch's engine and under hindcast, interleaved in one process.",
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--peers", action="store_true", help="PyTorch's compiled autograd too, all in processes of their own")
    parser.add_argument(
        "--models", action="store_true", help="24 small models of torchvision, timm and transformers instead, where installed"
    )
    parser.add_argument("--compiler", choices=("fused", "eager", "fused_through_aten"), help="of hindcast (default: its own)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default: 1)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of timing for each row (default: 2)")
    parser.add_argument("--rounds", type=int, default=1, help="processes for each row with --peers (default: 1)")
    parser.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="of a process with --peers (default: 300)")
    parser.add_argument("--only", default="", metavar="REGEX", help="workloads in whose name it is found")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write a chart of the ratios there")
    options = parser.parse_args()
    if options.models and options.peers:
        parser.error("--models with --peers: the models are measured in this process alone")
    return options


def _rows_of_this_process(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    for workload in (models if options.models else workloads)(options.only):
        yield measure(workload, Hindcast(options.compiler), options.seconds)


def _about(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "hindcast": hindcast.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": options.threads,
        "compiler": options.compiler or os.environ.get("HINDCAST_COMPILER", "fused"),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        # How threads wait for each other decides what a busy machine costs.
        "environment": {name: value for name, value in os.environ.items() if name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_"))},
    }


def _write(options: argparse.Namespace, about: dict[str, Any], rows: list[dict[str, Any]], title: str) -> None:
    if options.json:
        options.json.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n", encoding="utf-8")
    if options.svg:
        options.svg.write_text(chart.svg(rows, title), encoding="utf-8")


def main() -> None:
    options = _parse()
    if options.peers:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the running process ends too, and its cache is removed
    about = _about(options)
    title = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about.items() if name != "environment")
    print(f"{title}{''.join(f', {name}={value}' for name, value in about['environment'].items())}")
    print(table.head())
    rows: list[dict[str, Any]] = []
    for row in peers.rows(options) if options.peers else _rows_of_this_process(options):
        rows.append(row)
        print(table.line(row), flush=True)
        _write(options, about, rows, title)  # a run of hours may be stopped
    about["load_average_at_the_end"] = round(os.getloadavg()[0], 1)
    if options.peers:
        about["against"] = table.against(rows)
        print("", *table.against_lines(about["against"]), sep="\n")
        starts = [f"{row['start_s']:.1f} ({row['probe_s']:.1f})" for row in rows if row.get("probe_s", 0) > 0.01]
        if starts:
            print("Not in these times: Inductor's start in each process, and in it its probing of the processor, s:", *starts)
    if options.models and rows:
        mean = math.exp(-statistics.fmean(math.log(row["ratio"]) for row in rows))
        print(f"{len(rows)} models: hindcast's time over stock's, geometric mean {mean:.2f}")
    print("\n".join([*table.hints(rows, about), f"load average at the end: {about['load_average_at_the_end']}"]))
    _write(options, about, rows, title)


if __name__ == "__main__":
    main()
