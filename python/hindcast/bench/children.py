"""Benchmarks in processes of their own: what they find of earlier runs, and what they report, as lines of JSON."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional


def environment(threads: int, cache: Path) -> dict[str, str]:
    """Of a process that finds nothing that was compiled before: a kernel on the disk would make a first backward look fast, and
    Inductor's code for one number of threads serves no other."""
    return dict(
        os.environ,
        OMP_NUM_THREADS=str(threads),
        HINDCAST_CACHE_DIR=str(cache / "hindcast"),
        TORCHINDUCTOR_CACHE_DIR=str(cache / "inductor"),
        TORCHINDUCTOR_COMPILE_THREADS="1",  # a pool of compilers would run beside the timing
        TORCHINDUCTOR_FX_GRAPH_CACHE="0",
        TORCHINDUCTOR_AUTOGRAD_CACHE="0",
    )


def messages(output: str) -> list[Any]:
    """The lines of `output` that are JSON objects or arrays."""
    found = []
    for line in output.splitlines():
        if line.startswith(("{", "[")):
            with contextlib.suppress(ValueError):  # a line that was cut off, or a compiler's output
                found.append(json.loads(line))
    return found


def end(child: subprocess.Popen[str]) -> None:
    """Kills the process, and the C++ compilers that it may have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def run(command: Sequence[str], variables: dict[str, str], limit: float) -> tuple[list[Any], Optional[str]]:
    """The messages of a process, and why there may be some missing: it took longer than `limit` seconds, or failed."""
    child = subprocess.Popen(
        command, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        output, errors = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        end(child)
        return messages(child.communicate()[0]), f"not done after {limit:g} s"
    finally:
        end(child)
    if child.returncode == 0:
        return messages(output), None
    lines = [line for line in errors.splitlines() if line.strip()]
    return messages(output), f"exit {child.returncode}: {lines[-1] if lines else 'no output'}"[:300]
