#!/usr/bin/env python3
"""The rows of hindcast_bench under PyTorch's own compilers, each against the stock engine in the same process.

    make bench-peers                                          # makes .deps/peers, then all rows: hours
    make bench-peers ARGS="--rows 'mlp|seed/aot' --threads 1,2 --json peers.json"
    .deps/peers/bin/python bench/peers.py --peers ca_inductor,torch_compile --limit 120

The ratio is stock over peer, block by block, as in hindcast_bench: higher is faster. Both sides are called from Python,
so compare ratios with hindcast's, not microseconds. Timed is the backward alone (and in rows `clip_` what follows it).

    ca_eager       stock forward, compiled autograd, its graph run op by op
    ca_inductor    stock forward, compiled autograd, its graph compiled by Inductor
    aot_inductor   forward and backward by AOT autograd and Inductor
    torch_compile  the same through torch.compile

`first ms` is the first backward, after a compile of something else: Inductor's first in a process also probes the
processor. The two that compile the forward compile the backward with it or at its first call: `forward ms` is the
first forward. `look-up us` is a backward whose compiled graph does nothing: walk, look-up, and the call from the
engine into Python. A gradient that two leaves share, where stock's are their own, is noted: such a row did less work.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).parent
PEERS = ("ca_eager", "ca_inductor", "aot_inductor", "torch_compile")


def chosen_rows(pattern):
    sys.path.insert(0, str(HERE))
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    try:
        from peer_rows import rows
    except ModuleNotFoundError as error:
        sys.exit(f"peers.py: no module {error.name}; run it through `make bench-peers`, which makes its environment")
    names = [name for name in rows() if re.search(pattern, name)]
    if not names:
        sys.exit(f"peers.py: --rows {pattern} matches none of: {' '.join(rows())}")
    return names


def run(row, peer, threads, cache, arguments):
    """What the child printed, or a row that says why it printed nothing."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), TORCHINDUCTOR_CACHE_DIR=str(cache),
                       TORCHINDUCTOR_COMPILE_THREADS="1",  # a pool of compilers would run beside the timing
                       TORCHINDUCTOR_FX_GRAPH_CACHE="0", TORCHINDUCTOR_AUTOGRAD_CACHE="0",
                       # As in hindcast_bench: malloc keeps what is freed, and neither side pays page faults by chance.
                       MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(2**31 - 1))
    command = [sys.executable, str(HERE / "peer_run.py"), row, peer, "--threads", str(threads),
               "--pairs", str(arguments.pairs), "--budget", str(arguments.budget)]
    child = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             start_new_session=True)
    failed = {"row": row, "peer": peer}
    try:
        output, errors = child.communicate(timeout=arguments.limit)
    except subprocess.TimeoutExpired:
        return dict(failed, error=f"not done after {arguments.limit:.0f} s")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # the child and the C++ compilers that it may have started
        child.wait()
    try:
        return json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        lines = [line for line in errors.splitlines() if line.strip()]
        return dict(failed, error=f"exit {child.returncode}: {lines[-1] if lines else 'no output'}"[:300])


def number(result, key, form, scale=1):
    return format(result[key] * scale, form) if key in result else "-"


def print_line(cells):
    widths = (64, 13, 9, 9, 6, 5, 9, 10, 10)
    aligned = [text.ljust(width) if i < 2 else text.rjust(width) for i, (text, width) in enumerate(zip(cells, widths))]
    print("  ".join(aligned + cells[len(widths):]).rstrip(), flush=True)


def print_result(result):
    name = f"{result['row']}/t{result['threads']}"
    if "error" in result:
        print_line([name, result["peer"]] + ["-"] * 7 + ["FAILED: " + result["error"]])
        return
    print_line([name, result["peer"], number(result, "stock_us", ".0f"), number(result, "peer_us", ".0f"),
                number(result, "ratio", ".2f"), "±" + number(result, "spread", ".0f", 50) + "%",
                number(result, "first_ms", ".0f"), number(result, "first_forward_ms", ".0f"),
                number(result, "look_up_us", ".0f"), "; ".join(result["notes"])])


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", metavar="REGEX", default="", help="default: all")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--threads", default="1", help="intra-op threads, each row once for each (default 1)")
    parser.add_argument("--limit", type=float, default=300, metavar="SECONDS", help="of one row and peer (default 300)")
    parser.add_argument("--pairs", type=int, default=51, help="pairs of blocks (default 51)")
    parser.add_argument("--budget", type=float, default=20, metavar="SECONDS",
                        help="no new pair after this long, if there are five (default 20)")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    arguments = parser.parse_args()
    arguments.peers = arguments.peers.split(",")
    for peer in arguments.peers:
        if peer not in PEERS:
            parser.error(f"--peers: {peer} is none of {', '.join(PEERS)}")
    try:
        arguments.threads = [int(text) for text in arguments.threads.split(",")]
    except ValueError:
        parser.error(f"--threads {arguments.threads}: write for example --threads 1,2")
    return arguments


def main():
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the child and the caches go too
    names = chosen_rows(arguments.rows)
    results = []
    print_line(["row", "peer", "stock us", "peer us", "ratio", "", "first ms", "forward ms", "look-up us"])
    folder = Path(tempfile.mkdtemp(prefix="hindcast_peers_"))
    try:
        for threads in arguments.threads:
            for row in names:
                for peer in arguments.peers:
                    # Of its own for each: code that is compiled for one thread count serves no other, and a kernel that
                    # another peer has compiled would make this one's first backward look fast.
                    cache = folder / f"{peer}_t{threads}"
                    results.append(dict(run(row, peer, threads, cache, arguments), threads=threads))
                    print_result(results[-1])
                    if arguments.json:
                        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
