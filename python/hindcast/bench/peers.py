"""Alternates hindcast and PyTorch's compiled autograd, each workload in a separate process."""

import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import children
from .lanes import PEERS
from .workloads import workloads

LANES = ("hindcast", *PEERS)


def run(workload: str, lane: str, options: Any) -> dict[str, Any]:
    """The row of a process, with an error if it did not finish."""
    command = [sys.executable, "-m", "hindcast.bench.one", workload, lane, f"--threads={options.threads}"]
    command += [f"--seconds={options.seconds}"] + ([f"--compiler={options.compiler}"] if options.compiler else [])
    row: dict[str, Any] = {"name": workload, "lane": lane, "notes": []}
    cache = Path(tempfile.mkdtemp(prefix="hindcast_bench_"))
    try:
        told, error = children.run(command, children.environment(options.threads, cache), options.limit)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    for message in told:  # later ones win
        row |= message
    if "error" not in row and (error or "ratio" not in row):
        row["error"] = error or "no output"
    return row


def _middle(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The round with the median ratio, with the median of values that are measured once per round."""
    done = sorted((row for row in rounds if "error" not in row), key=lambda row: row["ratio"])
    if not done:
        return rounds[0]
    middle = dict(done[len(done) // 2], ratios=[row["ratio"] for row in rounds if "error" not in row])
    for key in ("first_us", "kernels_us", "new_batch_us", "ns_per_node"):
        middle[key] = statistics.median(row[key] for row in done)
    middle["notes"] = sorted({note for row in done for note in row["notes"]})
    middle["notes"] += [f"a round failed: {row['error']}" for row in rounds if "error" in row]
    return middle


def rows(options: Any) -> Iterator[dict[str, Any]]:
    """A row for each workload and lane; a lane that fails in the first round is not run again."""
    for name in [workload.name for workload in workloads(options.only)]:
        rounds: dict[str, list[dict[str, Any]]] = {lane: [] for lane in LANES}
        for _ in range(options.rounds):
            for lane, seen in rounds.items():
                if not seen or "error" not in seen[0]:
                    seen.append(run(name, lane, options))
        for seen in rounds.values():
            yield _middle(seen)
