"""One row in a process of its own, under one of PyTorch's compilers or, a row aot/... or step/..., under each of its
peers; bench/peers.py starts it and reads its last line, a result for each peer.

Stock and the peers take turns, one block of backwards (or whole steps) each, in an order that is reversed every time, as in
hindcast_bench.
"""

import argparse
import contextlib
import importlib
import json
import os
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import hindcast  # noqa: E402
import torch  # noqa: E402
from hindcast.bench import lanes, memory  # noqa: E402
from hindcast.bench.turns import BLOCK_US, WARM_UP, agree, in_short, in_turn, quartiles, quotients  # noqa: E402
from torch.profiler import record_function  # noqa: E402

import peer_rows  # noqa: E402
import peer_steps  # noqa: E402
from peer_compilers import aot_function, aot_inductor, functorch_inductor, torch_compile  # noqa: E402
from peer_steps import block_of_steps, steps_in_turn, steps_of_block  # noqa: E402

# What compiles the forward with its backward; the others, of hindcast.bench.lanes, compile the backward alone.
FORWARDS = {"aot_inductor": aot_inductor, "torch_compile": torch_compile}
# Of rows aot/..., name -> what compiles the function
AOT_PEERS = {"hindcast": aot_function, "functorch_inductor": functorch_inductor, "torch_compile": torch_compile}


class Lane:
    def __init__(self, row, function, context):
        self.row, self.function, self.context = row, function, context

    def forward(self):
        self.row.clear_grads()
        return self.row.root(self.function)

    def timed_backward(self):
        """Microseconds of a backward of a new graph, and of the row's work after it."""
        root = self.forward()
        start = time.perf_counter_ns()
        root.backward(self.row.incoming)
        if self.row.after_backward:
            self.row.after_backward()
        return (time.perf_counter_ns() - start) / 1e3

    def block(self, backwards):
        with self.context():
            return statistics.median(self.timed_backward() for _ in range(backwards))

    def timed_step(self):
        """Microseconds of a forward with its backward, and of each."""
        self.row.clear_grads()
        start = time.perf_counter_ns()
        root = self.row.root(self.function)
        between = time.perf_counter_ns()
        root.backward(self.row.incoming)
        stop = time.perf_counter_ns()
        return [(stop - start) / 1e3, (between - start) / 1e3, (stop - between) / 1e3]

    def gradients(self):
        """Without after_backward: an optimizer's step would change the function that is compared."""
        torch.manual_seed(7)
        with self.context():
            self.forward().backward(self.row.incoming)
        return [None if leaf.grad is None else leaf.grad.clone() for leaf in self.row.leaves]


def shared_gradients(row):
    """How many leaves share a gradient with another one, or with the layer above: less work than stock's, and another result."""
    seen = [leaf.grad.data_ptr() for leaf in row.leaves if leaf.grad is not None]
    if row.incoming is not None:
        seen.append(row.incoming.data_ptr())
    return len(seen) - len(set(seen))


def notes_on(row, expected, seen, draws_itself):
    """Notes on a row whose leaves have the gradients `seen`."""
    notes = []
    shared = shared_gradients(row)
    if shared:
        notes.append(f"{shared} gradients share another's memory: not the same work")
    if draws_itself and row.random:
        notes.append("gradients unchecked: the compiled forward draws other masks")
    elif not all(map(agree, expected, seen)):
        notes.append("gradients differ from stock's")
    return notes


def warm_up_compiler(compile_forward, context):
    """Inductor's first compile in a process probes the CPU's instructions for seconds: that is not a row's price."""
    # Each of ten probes would load its compiled code in a new process that imports torch: 16 s in every row.
    importlib.import_module("torch._inductor.cpu_vec_isa").VecISA._avx_py_load = ""
    row = peer_rows.Row(lambda y: (y * 3).exp().sum(), [torch.ones(8, requires_grad=True)])
    throw_away = Lane(row, compile_forward(row) if compile_forward else row.function, context)
    for _ in range(2):
        throw_away.gradients()


def first_backward(lane):
    with lane.context():
        start = time.perf_counter_ns()
        root = lane.forward()
        middle = time.perf_counter_ns()
        root.backward(lane.row.incoming)
        return (middle - start) / 1e6, (time.perf_counter_ns() - middle) / 1e6


def measure(name, peer, pairs, budget_s):
    torch.manual_seed(1)
    row = peer_rows.rows()[name]()
    compile_forward = FORWARDS.get(peer)
    engine = lanes.Lane() if compile_forward else lanes.make(peer)
    context = engine.context
    stock = Lane(row, row.function, contextlib.nullcontext)
    ours = Lane(row, compile_forward(row) if compile_forward else row.function, context)
    warm_up_compiler(torch_compile if compile_forward else None, context)
    expected = stock.gradients()
    forward_ms, first_ms = first_backward(ours)
    result = {"row": name, "peer": peer, "first_ms": first_ms}
    if compile_forward:
        result["first_forward_ms"] = forward_ms

    seen = [ours.gradients() for _ in range(2)][-1]
    result["notes"] = notes_on(row, expected, seen, draws_itself=compile_forward is not None)

    for _ in range(WARM_UP):
        stock.block(1)
        ours.block(1)
    captures = dict(torch._dynamo.utils.counters["compiled_autograd"])
    stock_us = statistics.median(stock.block(1) for _ in range(3))
    backwards = max(1, min(200, int(BLOCK_US / stock_us)))
    samples = in_turn((stock, ours), lambda lane: lane.block(backwards), seconds=budget_s, most=pairs)
    if dict(torch._dynamo.utils.counters["compiled_autograd"]) != captures:
        result["notes"].append("compiled again while it was timed")

    result["ratio"], result["spread"] = quotients(samples[stock], samples[ours])
    result["pairs"] = len(samples[ours])
    for key, lane in (("stock", stock), ("peer", ours)):
        result[f"{key}_us"], result[f"{key}_iqr_us"] = quartiles(samples[lane])
    if peer in lanes.PEERS:
        row.after_backward = None
        result["look_up_us"] = engine.walk_us(lambda: ours.block(1))
    return result


def first_step(peer, row, caches):
    """The peer's lane, and the milliseconds of its first step: forward, all, and until its kernels are ready."""
    if caches:  # one peer must not find what another's Inductor has compiled
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(caches, peer)
        torch._inductor.utils.clear_caches()
    warm_up_compiler(AOT_PEERS[peer], contextlib.nullcontext)
    lane = Lane(row, AOT_PEERS[peer](row), contextlib.nullcontext)
    hindcast.wait()
    start = time.perf_counter_ns()
    us, forward_us, _ = lane.timed_step()
    hindcast.wait()
    ready_ms = (time.perf_counter_ns() - start) / 1e6
    return lane, {"first_ms": us / 1e3, "first_forward_ms": forward_us / 1e3, "ready_ms": ready_ms}


def memory_of_step(lane):
    """Bytes that a forward leaves behind besides its result, and the peak of a step, including the row's own tensors: from PyTorch's CPU
    allocator, by its profiler."""
    row, root_bytes = lane.row, []

    def step():
        root = row.root(lane.function)
        root_bytes.append(root.nbytes)
        with record_function("bench.backward"):
            root.backward(row.incoming)

    row.clear_grads()
    hindcast.wait()
    hindcast.trim()
    taken = most = saved = 0
    for event in memory.events_of(step):
        if event.name() == "[memory]":
            taken += event.nbytes()
            most = max(most, taken)
        elif event.name() == "bench.backward":
            saved = taken - root_bytes[0]
    tensors = [*row.leaves, *row.constants] + ([] if row.incoming is None else [row.incoming])
    return saved, most + sum(tensor.nbytes for tensor in tensors)


def misses(peer, lane):
    """A count that timed steps must not change."""
    if peer == "hindcast":
        stats = lane.function.stats()
        return stats["calls"] - stats["hits"]
    return torch._dynamo.utils.counters["stats"]["unique_graphs"] if peer == "torch_compile" else 0


def prepare(peer, row, expected, caches):
    """A warm lane, and what is known of it before timing."""
    lane, result = first_step(peer, row, caches)
    for _ in range(2):  # a second call may compile again
        seen = lane.gradients()
        hindcast.wait()
    result["notes"] = notes_on(row, expected, seen, draws_itself=True)
    result["saved_bytes"], result["peak_bytes"] = memory_of_step(lane)
    for _ in range(WARM_UP):
        block_of_steps(lane, 1)
        hindcast.wait()
    return lane, result


def measure_aot(name, peers, pairs, budget_s, caches):
    """A row aot/...: forward and backward of eager and of all peers by turns. One that fails has an error in its result."""
    torch.manual_seed(1)
    row = peer_rows.rows()[name]()
    eager = Lane(row, row.function, contextlib.nullcontext)
    expected = eager.gradients()
    stock_saved, stock_peak = memory_of_step(eager)
    warm, results = {}, {}
    for peer in peers:
        try:
            warm[peer], results[peer] = prepare(peer, row, expected, caches)
        except Exception as error:
            results[peer] = {"error": in_short(error)}
    before = {peer: misses(peer, lane) for peer, lane in warm.items()}
    samples = steps_in_turn([eager, *warm.values()], steps_of_block(eager), pairs, budget_s)
    for peer, lane in warm.items():
        result = results[peer]
        if misses(peer, lane) != before[peer]:
            result["notes"].append("compiled again, or ran eagerly, while it was timed")
        result.update(stock_saved_bytes=stock_saved, stock_peak_bytes=stock_peak, pairs=len(samples[lane][0]))
        for part, stock, ours in zip(("", "forward_", "backward_"), samples[eager], samples[lane]):
            result[f"{part}ratio"], result[f"{part}spread"] = quotients(stock, ours)
            result[f"stock_{part}us"], result[f"peer_{part}us"] = quartiles(stock)[0], quartiles(ours)[0]
        if peer != "hindcast" and "hindcast" in warm:  # above 1: hindcast is ahead
            result["hindcast_ratio"], result["hindcast_spread"] = quotients(samples[lane][0], samples[warm["hindcast"]][0])
    return [{"row": name, "peer": peer, **result} for peer, result in results.items()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("row")
    parser.add_argument("peers")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=51)
    parser.add_argument("--budget", type=float, default=20)
    parser.add_argument("--caches", help="a folder: each peer of a row aot/... has one of its own in it")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    row, peers = arguments.row, arguments.peers.split(",")
    try:
        if row.startswith("aot/"):
            results = measure_aot(row, peers, arguments.pairs, arguments.budget, arguments.caches)
        elif row.startswith("step/"):
            results = peer_steps.measure(row, peers, arguments.pairs, arguments.budget)
        else:
            results = [measure(row, peer, arguments.pairs, arguments.budget) for peer in peers]
    except Exception as error:  # whatever a compiler throws is the row's result
        results = [{"row": row, "peer": peer, "error": in_short(error)} for peer in peers]
    print(json.dumps(results))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
