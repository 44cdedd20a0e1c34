"""Alternates hindcast and PyTorch's compiled autograd, each workload in a separate process."""

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .lanes import PEERS
from .workloads import workloads

LANES = ("hindcast", *PEERS)


def _environment(threads: int, cache: Path) -> dict[str, str]:
    # Nothing that was compiled before, by either: a kernel that is found on the disk would make a first backward look fast,
    # and Inductor's code for one thread count serves no other.
    return dict(
        os.environ,
        OMP_NUM_THREADS=str(threads),
        HINDCAST_CACHE_DIR=str(cache / "hindcast"),
        TORCHINDUCTOR_CACHE_DIR=str(cache / "inductor"),
        TORCHINDUCTOR_COMPILE_THREADS="1",  # a pool of compilers would run beside the timing
        TORCHINDUCTOR_FX_GRAPH_CACHE="0",
        TORCHINDUCTOR_AUTOGRAD_CACHE="0",
    )


def _told(output: str) -> dict[str, Any]:
    """All messages of the process: later ones win."""
    told: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):  # a line that was cut off
                told |= json.loads(line)
    return told


def run(workload: str, lane: str, options: Any) -> dict[str, Any]:
    """The process's output, with an error if it did not finish."""
    command = [sys.executable, "-m", "hindcast.bench.one", workload, lane, f"--threads={options.threads}"]
    command += [f"--seconds={options.seconds}"] + ([f"--compiler={options.compiler}"] if options.compiler else [])
    row: dict[str, Any] = {"name": workload, "lane": lane, "notes": []}
    cache = Path(tempfile.mkdtemp(prefix="hindcast_bench_"))
    child = subprocess.Popen(
        command, env=_environment(options.threads, cache), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = child.communicate(timeout=options.limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # the process, and the C++ compilers that it may have started
        output, _ = child.communicate()
        return {**row, **_told(output), "error": f"not done after {options.limit:g} s"}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        shutil.rmtree(cache, ignore_errors=True)
    row |= _told(output)
    if "ratio" not in row and "error" not in row:
        lines = [line for line in errors.splitlines() if line.strip()]
        row["error"] = f"exit {child.returncode}: {lines[-1] if lines else 'no output'}"[:300]
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
