"""One row under one of PyTorch's compilers, in a process of its own; bench/peers.py starts it and reads its last line.

Stock and the peer take turns, one block of backwards each, in an order that is reversed every time, as in
hindcast_bench.
"""

import argparse
import contextlib
import gc
import json
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch  # noqa: E402
from torch._dynamo import compiled_autograd  # noqa: E402

import peer_rows  # noqa: E402

BLOCK_US = 1500
WARM_UP = 5


def compiled_backward(compiler):
    """A context in which backwards are compiled; shapes are constants, as under torch.compile's defaults."""
    return lambda: compiled_autograd._enable(compiler, dynamic=False)


def aot_inductor(row):
    """What torch.compile does, less Dynamo: the forward's operators as a graph, then AOT autograd with Inductor."""
    from torch._inductor.compile_fx import compile_fx
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = [*row.leaves, *row.constants]
    compiled = []

    def function(*arguments):
        if not compiled:
            graph = make_fx(lambda *values: row.function(*values), pre_dispatch=True)(*inputs)
            compiled.append(compile_fx(graph, inputs))
        return compiled[0](*arguments)

    return function


def torch_compile(row):
    return torch.compile(row.function)


# name -> (what compiles the forward, the context that its forward and backward run in)
PEERS = {
    "ca_eager": (None, compiled_backward(torch.compile(backend="eager"))),
    "ca_inductor": (None, compiled_backward(torch.compile(backend="inductor"))),
    "aot_inductor": (aot_inductor, contextlib.nullcontext),
    "torch_compile": (torch_compile, contextlib.nullcontext),
}


class Lane:
    def __init__(self, row, function, context):
        self.row, self.function, self.context = row, function, context

    def forward(self):
        self.row.clear_grads()
        return self.row.root(self.function)

    def timed_backward(self):
        """Microseconds of a backward of a new graph, and of what the row does after it."""
        root = self.forward()
        start = time.perf_counter_ns()
        root.backward(self.row.incoming)
        if self.row.after_backward:
            self.row.after_backward()
        return (time.perf_counter_ns() - start) / 1e3

    def block(self, backwards):
        with self.context():
            return statistics.median(self.timed_backward() for _ in range(backwards))

    def gradients(self):
        """Without what follows the backward: an optimizer's step would change the function that is compared."""
        torch.manual_seed(7)
        with self.context():
            self.forward().backward(self.row.incoming)
        return [None if leaf.grad is None else leaf.grad.clone() for leaf in self.row.leaves]


def agree(expected, seen):
    if expected is None or seen is None:
        return expected is seen
    return torch.allclose(seen, expected, rtol=1e-3, atol=1e-5)


def shared_gradients(row):
    """How many leaves got a gradient that another one, or the layer above, has: not stock's work, nor its result."""
    seen = [leaf.grad.data_ptr() for leaf in row.leaves if leaf.grad is not None]
    if row.incoming is not None:
        seen.append(row.incoming.data_ptr())
    return len(seen) - len(set(seen))


def quartiles(samples):
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return middle, high - low


def warm_up_compiler(lane):
    """Inductor's first compile in a process probes the CPU's instructions for seconds: that is not a row's price."""
    x = torch.ones(8, requires_grad=True)
    throw_away = Lane(peer_rows.Row(lambda y: (y * 3).exp().sum(), [x]), None, lane.context)
    peer_forward = lane.function is not lane.row.function
    throw_away.function = torch.compile(throw_away.row.function) if peer_forward else throw_away.row.function
    for _ in range(2):
        throw_away.gradients()


def first_backward(lane):
    with lane.context():
        start = time.perf_counter_ns()
        root = lane.forward()
        middle = time.perf_counter_ns()
        root.backward(lane.row.incoming)
        return (middle - start) / 1e6, (time.perf_counter_ns() - middle) / 1e6


def look_up_us(row, backwards):
    """Compiled autograd's backward with a graph that does nothing: walk, look-up and the call, without the kernels."""
    torch._C._dynamo.compiled_autograd.clear_cache()  # else it finds the graph that the peer has compiled
    lane = Lane(row, row.function, compiled_backward(lambda graph: lambda *inputs: []))
    lane.row.after_backward = None
    for _ in range(3):
        lane.block(1)
    return statistics.median(lane.block(backwards) for _ in range(11))


def measure(name, peer, pairs, budget_s):
    torch.manual_seed(1)
    row = peer_rows.rows()[name]()
    compile_forward, context = PEERS[peer]
    stock = Lane(row, row.function, contextlib.nullcontext)
    ours = Lane(row, compile_forward(row) if compile_forward else row.function, context)
    warm_up_compiler(ours)
    expected = stock.gradients()
    forward_ms, first_ms = first_backward(ours)
    result = {"row": name, "peer": peer, "first_ms": first_ms, "notes": []}
    if compile_forward:
        result["first_forward_ms"] = forward_ms

    seen = [ours.gradients() for _ in range(2)][-1]
    shared = shared_gradients(row)
    if shared:
        result["notes"].append(f"{shared} gradients share another's memory: not the same work")
    if compile_forward and row.random:
        result["notes"].append("gradients unchecked: the compiled forward draws other masks")
    elif not all(map(agree, expected, seen)):
        result["notes"].append("gradients differ from stock's")

    for _ in range(WARM_UP):
        stock.block(1)
        ours.block(1)
    captures = dict(torch._dynamo.utils.counters["compiled_autograd"])
    stock_us = statistics.median(stock.block(1) for _ in range(3))
    backwards = max(1, min(200, int(BLOCK_US / stock_us)))
    samples = {stock: [], ours: []}
    gc.collect()
    gc.disable()
    until = time.monotonic() + budget_s
    for pair in range(pairs):
        for lane in (stock, ours) if pair % 2 == 0 else (ours, stock):
            samples[lane].append(lane.block(backwards))
        if time.monotonic() > until and pair >= 4:
            break
    gc.enable()
    if dict(torch._dynamo.utils.counters["compiled_autograd"]) != captures:
        result["notes"].append("compiled again while it was timed")

    ratio, ratio_iqr = quartiles([a / b for a, b in zip(samples[stock], samples[ours])])
    result["ratio"], result["spread"] = ratio, ratio_iqr / ratio
    result["pairs"] = len(samples[ours])
    for key, lane in (("stock", stock), ("peer", ours)):
        result[f"{key}_us"], result[f"{key}_iqr_us"] = quartiles(samples[lane])
    if peer.startswith("ca_"):
        result["look_up_us"] = look_up_us(row, backwards)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("row")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=51)
    parser.add_argument("--budget", type=float, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    try:
        result = measure(arguments.row, arguments.peer, arguments.pairs, arguments.budget)
    except Exception as error:  # whatever a compiler throws is what the row has to say
        message = next((line for line in str(error).splitlines() if line.strip()), "")
        result = {"row": arguments.row, "peer": arguments.peer, "error": f"{type(error).__name__}: {message}"[:300]}
    print(json.dumps(result))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
