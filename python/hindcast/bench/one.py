"""``python -m hindcast.bench.one WORKLOAD LANE``: one row, in a process of its own. peers.py starts it and reads its lines: the
first backward as soon as it is known, then the row."""

import argparse
import json
import re
from typing import Any

import torch

from .lanes import PEERS, make
from .measure import keep_freed_memory, measure
from .turns import in_short
from .workloads import workloads


def _tell(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("lane", choices=("hindcast", *PEERS))
    parser.add_argument("--compiler")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    (workload,) = workloads(f"^{re.escape(options.workload)}$")
    try:
        row = measure(workload, make(options.lane, options.compiler), options.seconds, _tell)
    except Exception as error:  # whatever a compiler throws is the row's result
        row = {"error": in_short(error)}
    _tell(row)


if __name__ == "__main__":
    main()
