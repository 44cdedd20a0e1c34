"""``python -m hindcast.bench [--compiler eager] [--threads 1] [--only mlp] [--seconds 2] [--json out.json]``"""

import argparse
import json
from typing import Any

import hindcast
import torch

from .measure import measure
from .workloads import workloads

_HEAD = f"{'workload':<28} {'nodes':>6} {'stock us':>10} {'hindcast us':>12} {'ratio':>6} {'first us':>10} {'new batch us':>13} {'ns/node':>8}"


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['name']:<28} {row['nodes']:>6} {row['stock_us']:>10,.0f} {row['hindcast_us']:>12,.0f} {row['ratio']:>6.2f} "
        f"{row['first_us']:>10,.0f} {row['new_batch_us']:>13,.0f} {row['ns_per_node']:>8,.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m hindcast.bench",
        description="Backward under PyTorch's engine and under hindcast, interleaved in one process. ratio is stock over "
        "hindcast: higher is faster. first: the first backward of the structure; new batch: the first of another size.",
    )
    parser.add_argument("--compiler", default="fused", choices=("fused", "eager", "fused_through_aten"))
    parser.add_argument("--threads", type=int, default=1, help="of torch (default: 1)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each workload (default: 2)")
    parser.add_argument("--only", default="", metavar="NAME", help="workloads whose name contains NAME")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    rows = []
    print(_HEAD)
    for workload in workloads(options.only):
        rows.append(measure(workload, options.compiler, options.seconds))
        print(_line(rows[-1]), flush=True)
    if options.json:
        about = {"hindcast": hindcast.__version__, "torch": torch.__version__, "threads": options.threads, "compiler": options.compiler}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**about, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
