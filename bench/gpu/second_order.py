#!/usr/bin/env python3
"""Whole training steps of losses that contain gradients, on a card: the rows second/... of bench/peers.py, all lanes by turns in one process.

    python3 bench/gpu/second_order.py --out=second.json
    python3 bench/gpu/second_order.py --device=cpu --rounds=2    # to try it without a card

A step is forward, backward, clip_grad_norm_() and Adam. The lanes:

    eager             nothing compiled, Adam(fused=True)
    enable            the same program inside of hindcast.enable()
    enable_graphs     the same with CUDA graphs
    train_step        hindcast.train_step() of Adam()
    train_step_graph  the same as one CUDA graph
    jax               value_and_grad, clipping and Adam under one jit, where there is a JAX

A number is the time of a block of steps, until the card is done, divided by the steps: microseconds, medians of the rounds. `left` counts what
hindcast left to PyTorch in all of them. A lane whose first losses are not eager's has an error and no times. torch.compile has no lane: it
cannot differentiate a gradient.

The output has the shape of Google Benchmark's JSON, and is written anew behind each row.
"""

import argparse
import json
import re
import statistics
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import hindcast  # noqa: E402
import torch  # noqa: E402
from hindcast.bench.turns import in_short  # noqa: E402

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # in a checkout the peer_*.py are one folder up, in the bundle next to this file

import peer_rows  # noqa: E402
from peer_worker import CHECKED_RATE, RATE, EnableLane, TorchLane, TrainStepLane  # noqa: E402

STEPS = 20
WARM_UP = 12  # steps: kernels are compiled, and CUDA graphs recorded, within these
CHECKED_STEPS = 10
TOLERANCE = 1e-3


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def row_on(name, device):
    torch.manual_seed(1)
    row = peer_rows.rows()[name]()
    row.leaves = [leaf.detach().to(device).requires_grad_() for leaf in row.leaves]
    row.constants = tuple(constant.to(device) for constant in row.constants)
    return row


def jax_lane(name, device):
    import jax
    from peer_jax import JaxLane

    jax.config.update("jax_default_device", jax.devices("cpu" if device == "cpu" else None)[0])
    jax.config.update("jax_default_matmul_precision", "highest")  # as PyTorch: no TF32
    return JaxLane(name, row_on(name, "cpu"), blocked=False)


def torch_lane(kind, **options):
    return lambda name, device: kind(row_on(name, device), **options)


LANES = {
    "eager": lambda name, device: TorchLane(row := row_on(name, device), row.function, fused=True),
    "enable": torch_lane(EnableLane),
    "enable_graphs": torch_lane(EnableLane, cuda_graphs=True),
    "train_step": torch_lane(TrainStepLane),
    "train_step_graph": torch_lane(TrainStepLane, cuda_graphs=True),
    "jax": jax_lane,
}


def left_by(lane):
    """Backwards, or steps and updates, that hindcast left to PyTorch so far."""
    if isinstance(lane, EnableLane):
        return sys.modules["hindcast"].stats()["fallbacks"]
    if isinstance(lane, TrainStepLane):
        stats = lane.step.stats()
        return stats["eager"] + stats["three_parts"] + lane.step.update.original
    return 0


def warm(peer, name, device):
    """A warm lane, and its first losses at a usual rate."""
    losses_of = LANES[peer](name, device)
    losses = [float(losses_of.run(CHECKED_RATE, 1)) for _ in range(CHECKED_STEPS)]
    lane = LANES[peer](name, device)
    for _ in range(3):
        lane.run(RATE, WARM_UP)
        hindcast.wait()
    return lane, losses


def differs(losses, expected):
    worst = max(abs(a - b) / max(abs(b), 1e-6 * abs(expected[0])) for a, b in zip(losses, expected))
    return None if worst <= TOLERANCE else f"its first losses differ from eager's by {worst:.2g} of each; expected at most {TOLERANCE:g}"


def timed(lane, device):
    wait(device)
    start = time.perf_counter_ns()
    lane.run(RATE, STEPS)
    wait(device)
    return (time.perf_counter_ns() - start) / 1e3 / STEPS


def measure(name, peers, device, rounds):
    lanes, counters, expected = {}, {}, None
    for peer in peers:
        try:
            start = time.perf_counter()
            lane, losses = warm(peer, name, device)
            counters[f"{peer}_ready_s"] = time.perf_counter() - start
            expected = expected or losses
            if error := differs(losses, expected):
                raise ArithmeticError(error)
            lanes[peer] = lane
        except Exception as error:  # whatever a compiler throws is the row's result
            counters[f"{peer}_error"] = in_short(error)
    samples = {peer: [] for peer in lanes}
    for number in range(rounds + 1):
        for peer in list(lanes) if number % 2 == 0 else reversed(list(lanes)):
            before = left_by(lanes[peer])
            us = timed(lanes[peer], device)
            if number:
                samples[peer].append(us)
                counters[f"{peer}_left"] = counters.get(f"{peer}_left", 0) + left_by(lanes[peer]) - before
    if "train_step_graph" in lanes and (why := lanes["train_step_graph"].step.why_no_cuda_graph):
        counters["why_no_graph"] = why
    for peer, of_peer in samples.items():
        low, middle, high = statistics.quantiles(of_peer * 2 if len(of_peer) == 1 else of_peer, n=4, method="inclusive")
        counters[f"{peer}_us"], counters[f"{peer}_iqr_us"] = middle, high - low
    return counters


def in_words(counters):
    eager = counters.get("eager_us", 0)
    words = []
    for peer in LANES:
        if f"{peer}_us" in counters:
            left = f", {counters[f'{peer}_left']} left to PyTorch" if counters[f"{peer}_left"] else ""
            words.append(f"{peer} {counters[f'{peer}_us']:.0f} us ({eager / counters[f'{peer}_us']:.2f}{left})")
        elif f"{peer}_error" in counters:
            words.append(f"{peer}: {counters[f'{peer}_error']}")
    if "why_no_graph" in counters:
        words.append(f"no graph: {counters['why_no_graph']}")
    return ", ".join(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", metavar="REGEX", default="^second/")
    parser.add_argument("--peers", default=",".join(LANES))
    parser.add_argument("--rounds", type=int, default=9, help="of all lanes in turn (default 9)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", metavar="FILE", help="Google Benchmark's JSON")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("nothing is measured: torch finds no CUDA device")
        return
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    card = torch.cuda.get_device_name() if arguments.device == "cuda" else "none"
    results = []
    for name in (name for name in peer_rows.rows() if re.search(arguments.rows, name)):
        counters = measure(name, arguments.peers.split(","), arguments.device, arguments.rounds)
        results.append({"name": name, "run_name": name, "run_type": "iteration", "iterations": 1, "real_time": 0, "cpu_time": 0,
                        "time_unit": "us", **counters})
        print(f"{name}: {in_words(counters)}", flush=True)
        if arguments.out:
            context = {"libtorch": torch.__version__, "device": arguments.device, "card": card}
            Path(arguments.out).write_text(json.dumps({"context": context, "benchmarks": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
