#!/usr/bin/env python3
"""The rows of hindcast_bench under PyTorch's own compilers, each against the stock engine in the same process.

    make bench-peers                                          # makes .deps/peers, then all rows: hours
    make bench-peers ARGS="--rows 'mlp|seed/aot' --threads 1,2 --json peers.json"
    make bench-peers ARGS="--rows '^aot/' --markdown aot.md"  # hindcast's functions compiled ahead of time, and theirs
    make bench-peers ARGS="--rows '^step/'"                   # whole training steps
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

The rows aot/... time whole steps, forward and backward, and each of the two; eager and all peers take turns in one process:

    hindcast            hindcast.aot_function with the row's partition, of the package in build/release/python
    functorch_inductor  functorch's aot_function with the same partition, both halves by Inductor
    torch_compile       as above, with torch.compile's partition

`first ms` is then the first step, `ready ms` the time until hindcast's kernels, which are compiled beside later steps, are
there. `saved` is what a forward leaves behind beside its result, and `peak` the most of a step, the row's tensors included.
`hindcast ahead` is the peer's step over hindcast's.

The rows step/... time training steps: zero_grad(), forward, backward, clip_grad_norm_() and Adam. Each lane has its own
parameters, and all lanes take turns in one process:

    eager          nothing compiled, Adam with its default settings
    eager_fused    the same with Adam(fused=True)
    eager_foreach  the same with Adam(foreach=True); in rows step/optimizer/... only, which are the update alone
    torch_compile  forward and backward by torch.compile, Adam(fused=True)
    hindcast       hindcast.aot_function under hindcast.enable(), with hindcast.compiled_step()

`update` is a step less its forward and backward. A lane that does not train as eager does has an error and no times.

The rows train_step/... time the same, of small models for the most part. Each lane is a process of its own, and they run one block each by turns:

    eager_fused          as above; the ratios are its time over the peer's
    eager                as above
    torch_compile        as above
    hindcast_train_step  hindcast.train_step()
    hindcast_enable      the unchanged program inside of hindcast.enable()
    jax                  value_and_grad, clipping and Adam under one jit; a block is waited for, its steps are not
    jax_blocked          the same, and each step is waited for

The rows second/... time the same, of losses that contain gradients.

Times are processor time, of all threads of a lane. A lane whose first 20 losses are not eager_fused's has an error and no times.
"""

import argparse
import json
import re
import shutil
import signal
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "build/release/python"
sys.path.insert(1, str(PACKAGE))

from hindcast.bench import children  # noqa: E402

import peer_lanes  # noqa: E402
import peer_table  # noqa: E402

PEERS = ("ca_eager", "ca_inductor", "aot_inductor", "torch_compile")
# Prefix of rows -> the peers that take turns in one process
IN_TURN = {
    "aot/": ("hindcast", "functorch_inductor", "torch_compile"),
    "step/optimizer/": ("hindcast", "eager_fused", "eager_foreach"),
    "step/": ("hindcast", "eager_fused", "torch_compile"),
}
IN_PROCESSES = ("hindcast_train_step", "hindcast_enable", "eager", "eager_fused", "torch_compile", "jax", "jax_blocked")
OF_JAX = ("ppo", "mlp", "lstm", "pinn", "gradient_penalty", "maml", "schnet")  # the models that peer_jax.py has
ALL_PEERS = tuple(dict.fromkeys((*sum(IN_TURN.values(), PEERS), *IN_PROCESSES)))


def chosen_rows(pattern):
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    try:
        from peer_rows import rows
    except ModuleNotFoundError as error:
        sys.exit(f"peers.py: no module {error.name}; run it through `make bench-peers`, which makes its environment")
    names = [name for name in rows() if re.search(pattern, name)]
    if not names:
        sys.exit(f"peers.py: --rows {pattern} matches none of: {' '.join(rows())}")
    return names


def environment_of(threads, cache):
    return dict(children.environment(threads, cache), PYTHONPATH=str(PACKAGE),
                # As in hindcast_bench: malloc keeps what is freed, and neither side pays page faults by chance.
                MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(2**31 - 1))


def run(row, peers, threads, cache, arguments):
    """The child's output for each of the peers, or the reason why it failed."""
    budget = arguments.budget or (10 if row.startswith("aot/") else 20)
    command = [sys.executable, str(HERE / "peer_run.py"), row, ",".join(peers), "--threads", str(threads),
               "--pairs", str(arguments.pairs), "--budget", str(budget), "--caches", str(cache)]
    told, error = children.run(command, environment_of(threads, cache), arguments.limit)
    if not told:
        return [{"row": row, "peer": peer, "error": error or "no output"} for peer in peers]
    return told[-1]  # also of a process that failed at its exit


def peers_in_turn(row):
    return next((peers for prefix, peers in IN_TURN.items() if row.startswith(prefix)), ())


def peers_in_processes(row):
    has_jax = row.split("/")[1] in OF_JAX
    return [peer for peer in IN_PROCESSES if has_jax or not peer.startswith("jax")]


def measured(row, threads, folder, arguments):
    """The results of a row: a process per peer, or one for all if they take turns."""
    in_turn = peers_in_processes(row) if row.startswith(peer_table.ROWS_IN_PROCESSES) else peers_in_turn(row)
    if in_turn:
        peers = [peer for peer in in_turn if peer in arguments.peers]
        if row.startswith(peer_table.ROWS_IN_PROCESSES):
            if peers:
                environment = environment_of(threads, folder / f"lanes_t{threads}")
                yield from peer_lanes.measured(row, peers, threads, environment, arguments)
            return
        groups = {"steps": peers} if peers else {}
    else:
        groups = {peer: [peer] for peer in PEERS if peer in arguments.peers}
    for name, peers in groups.items():
        # A separate one for each: code compiled for one thread count serves no other, and a kernel that another peer has compiled would
        # make this one's first backward look fast.
        yield from run(row, peers, threads, folder / f"{name}_t{threads}", arguments)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", metavar="REGEX", default="", help="default: all")
    parser.add_argument("--peers", default=",".join(ALL_PEERS),
                        help="default: %(default)s; each in the rows that it is a peer of")
    parser.add_argument("--threads", default="1", help="intra-op threads, each row once for each (default 1)")
    parser.add_argument("--limit", type=float, default=300, metavar="SECONDS",
                        help="of one row and peer, of a row aot/... or step/..., or until a lane of train_step/... is warm "
                             "(default 300)")
    parser.add_argument("--pairs", type=int, default=51, help="pairs of blocks (default 51)")
    parser.add_argument("--budget", type=float, metavar="SECONDS",
                        help="no new pair after this long, if there are five (default 20; rows aot/...: 10)")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    parser.add_argument("--markdown", metavar="FILE", help="write tables of the rows aot/... and ...step/... here")
    arguments = parser.parse_args()
    arguments.peers = arguments.peers.split(",")
    for peer in arguments.peers:
        if peer not in ALL_PEERS:
            parser.error(f"--peers: {peer} is none of {', '.join(ALL_PEERS)}")
    try:
        arguments.threads = [int(text) for text in arguments.threads.split(",")]
    except ValueError:
        parser.error(f"--threads {arguments.threads}: write for example --threads 1,2")
    return arguments


def write(results, arguments):
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown:
        Path(arguments.markdown).write_text(peer_table.markdown(results), encoding="utf-8")


def main():
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the child and the caches are removed too
    names = chosen_rows(arguments.rows)
    results = []
    folder = Path(tempfile.mkdtemp(prefix="hindcast_peers_"))
    columns = None
    try:
        for threads in arguments.threads:
            for row in names:
                for result in measured(row, threads, folder, arguments):
                    results.append(dict(result, threads=threads))
                    if columns is not (columns := peer_table.columns_of(row)):
                        peer_table.print_head(columns)
                    peer_table.print_result(columns, results[-1])
                    write(results, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
