#!/usr/bin/env python3
"""Backends of torch.compile on the models of `python -m hindcast.bench --models`, one step of training each: forward and backward.

    PYTHONPATH=build/release/python OMP_NUM_THREADS=1 python bench/torch_compile.py
    PYTHONPATH=build/release/python OMP_NUM_THREADS=1 python bench/torch_compile.py --backends hindcast,inductor --only 'gpt2|resnet18'

All times are CPU time of the thread that trains; what compiles in the background is not in them. `eager` is eager's first step in ms, `first`
the first compiled step, and `own` what of it the backend takes: its call with each graph, the first call of what it returned, and the backward.
The rest is Dynamo's. `over` is own/eager. `sizes` is the mean of the first steps of four other batch sizes, in ms, in which Dynamo compiles
once more. `ratio` is eager's time of a later step over the compiled step's, in turns: the median and the quartiles; higher is faster. Loss,
gradients and buffers of each compiled step are compared with eager's from the same state and seed: they may differ by 1e-3 of the largest
number, or by four times as much as eager's do if its parameters are rounded otherwise. Exit status 1: something differs by more.
"""

import argparse
import statistics
import sys
import time

import hindcast
import torch
import torch._inductor.config
from hindcast.bench.measure import keep_freed_memory
from hindcast.bench.models import models
from hindcast.bench.turns import in_turn
from torch._dynamo.backends.registry import lookup_backend

SIZES = (3, 4, 5, 3)  # after the first one
RTOL, ATOL = 1e-3, 1e-4  # of the largest number in each tensor
DISTURBANCES = torch.Generator()  # of its own: each step sets the seed


def clock_ms():
    return time.thread_time_ns() / 1e6


class Timed:
    """A backend, and the time that it takes until each graph has run once."""

    def __init__(self, name):
        self.compile = lookup_backend(name)
        self.ms = 0.0

    def __call__(self, gm, example_inputs):
        _ = gm.code  # Dynamo writes the graph's code on demand, for every backend: that is its own time
        start = clock_ms()
        compiled = self.compile(gm, example_inputs)
        self.ms += clock_ms() - start
        first = [True]

        def call(*args):
            if not first:
                return compiled(*args)
            first.clear()
            start = clock_ms()
            try:
                return compiled(*args)
            finally:
                self.ms += clock_ms() - start

        return call


class Step:
    """A step of training, by eager or by the compiled call of the model, which are swapped in place."""

    def __init__(self, workload):
        self.workload = workload
        self.compiled = None
        self.backward_ms = 0.0

    def compile(self, backend):
        torch.compiler.reset()
        self.workload.model.compile(backend=backend)
        self.compiled = self.workload.model._compiled_call_impl

    def first(self, backend):
        """The times in ms of the first compiled step, and of the backend in it."""
        timed = Timed(backend)
        self.compile(timed)
        took, _ = self.run(True, self.workload.batch)
        self.compile(backend)  # the one that is measured from now on
        return took, timed.ms + self.backward_ms

    def run(self, compiled, batch):
        """Its time in ms and its loss."""
        self.workload.model._compiled_call_impl = self.compiled if compiled else None
        self.workload.model.zero_grad(set_to_none=True)
        start = clock_ms()
        loss = self.workload.loss(batch)
        middle = clock_ms()
        loss.backward()
        end = clock_ms()
        self.backward_ms = end - middle
        return end - start, loss.detach()

    def result(self, compiled, batch):
        """The step's time, and all its tensors, from the same state; restores the state."""
        model = self.workload.model
        before = [buffer.clone() for buffer in model.buffers()]
        torch.manual_seed(7)
        took, loss = self.run(compiled, batch)
        tensors = [loss, *(parameter.grad for parameter in model.parameters()), *(buffer.clone() for buffer in model.buffers())]
        with torch.no_grad():
            for buffer, old in zip(model.buffers(), before):
                buffer.copy_(old)
        return took, tensors


def rounded_otherwise(step, batch, expected):
    """How far eager's tensors move if parameters differ by rounding, which norms of tiny batches amplify: the most of some tries."""
    return max(difference(disturbed(step, batch), expected) for _ in range(4))


def disturbed(step, batch):
    parameters = list(step.workload.model.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter in parameters:
            parameter.mul_(1 + 1e-7 * torch.randn(parameter.shape, generator=DISTURBANCES))
    _, tensors = step.result(False, batch)
    with torch.no_grad():
        for parameter, old in zip(parameters, before):
            parameter.copy_(old)
    return tensors


def difference(seen, expected):
    """In units of the tolerance."""
    largest = max((tensor.abs().max().item() for tensor in expected[1:] if tensor is not None and tensor.is_floating_point()), default=0)
    worst = 0.0
    for one, other in zip(seen, expected):
        if one is None or other is None:
            worst = max(worst, float("inf") if one is not other else 0.0)
            continue
        one, other = one.double(), other.double()
        allowed = RTOL * other.abs().max() + ATOL * min(1.0, largest)
        worst = max(worst, ((one - other).abs().max() / allowed).item() if one.shape == other.shape and other.numel() else 0.0)
    return worst


def ratios(step, batch, seconds):
    eager, ours = in_turn((False, True), lambda compiled: step.run(compiled, batch)[0], seconds=seconds, fewest=7).values()
    return statistics.median(eager), statistics.quantiles([stock / compiled for stock, compiled in zip(eager, ours)], n=4)


def row(workload, backend, seconds, eager_first):
    step, batch = Step(workload), workload.batch
    first, own = step.first(backend)
    worst, others = 0.0, []
    for number, size in enumerate((batch, *SIZES, batch, *SIZES)):
        _, expected = step.result(False, size)
        took, seen = step.result(True, size)
        worst = max(worst, difference(seen, expected) / max(1, 4 * rounded_otherwise(step, size, expected)))
        if 1 <= number <= len(SIZES):
            others.append(took)
    hindcast.wait()
    for _ in range(5):
        step.run(True, batch)
    eager, (low, middle, high) = ratios(step, batch, seconds)
    print(
        f"{workload.name:32} {backend:9} {eager_first:7.1f} {first:7.0f} {own:7.1f} {own / eager_first:6.1f}"
        f" {statistics.mean(others):7.0f} {eager:8.2f} {middle:6.2f} ({low:.2f} to {high:.2f})  {'' if worst <= 1 else f'DIFFERS by {worst:.1f}'}",
        flush=True,
    )
    return worst <= 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="hindcast")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--seconds", type=float, default=3.0, help="of timing for each row")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch._inductor.config.fallback_random = True  # dropouts with eager's masks, as hindcast's
    keep_freed_memory()
    Step(next(iter(models("squeezenet")))).first("hindcast")  # imports that happen once
    print(f"{'model':32} {'backend':9} {'eager':>7} {'first':>7} {'own':>7} {'over':>6} {'sizes':>7} {'eager ms':>8} {'ratio':>6}")
    all_right = True
    for workload in models(options.only):
        eager_first, _ = Step(workload).run(False, workload.batch)
        for backend in options.backends.split(","):
            all_right &= row(workload, backend, options.seconds, eager_first)
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main())
