#!/usr/bin/env python3
"""What a call from Python costs above the engine's work: rows `call/...`, in microseconds of processor time on a hit.

    python bench/calls.py
    python bench/calls.py --rows 'train_step' --blocks 41 --json calls.json

`whole` is a call's time, `engine` the part of it that C++ needs for the program, the kernels of the optimizer, or the backward, as the
library measures it. Each part reads the clock twice, and one of these reads counts as `above`. `above` is the difference, and `budget` what
it may be. All three are of the block in which `above` is the least. `of stock` has a small backward's time over PyTorch's, block by block,
the median. Exit status 1: a row is above its budget.
"""

import argparse
import contextlib
import gc
import json
import os
import re
import sys
import time

os.environ.setdefault("HINDCAST_BACK_OFF", "0")  # each call is a hit

import hindcast  # noqa: E402
import torch  # noqa: E402
from hindcast._library import calls  # noqa: E402
from hindcast.bench.turns import in_turn, quartiles, quotients  # noqa: E402
from torch import nn  # noqa: E402

BLOCK_US = 5000
MOST_OF_STOCK = 1.05
ROWS, BACKWARDS = {}, {}


def row(name, budget):
    def add(make):
        ROWS[f"call/{name}"] = budget, make
        return make

    return add


def mlp():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))


def optimizer_with_gradients():
    net = mlp()
    for parameter in net.parameters():
        parameter.grad = torch.randn_like(parameter)
    return torch.optim.Adam(net.parameters())


@row("train_step/mlp", 10)
def _():
    net, x, y = mlp(), torch.randn(32, 64), torch.randn(32, 64)
    step = hindcast.train_step(torch.optim.Adam(net.parameters()), net, nn.functional.mse_loss, clip_grad_norm=hindcast.ClipGradNorm(1.0))
    return lambda: step(x, y)


@row("aot_function/tensors", 8)
def _():
    a, b = torch.randn(16), torch.randn(16)
    f = hindcast.aot_function(lambda a, b: (a + b).cos())
    return lambda: f(a, b)


@row("aot_function/dict", 8)
def _():
    batch = {"x": torch.randn(16), "y": [torch.randn(16), 2.5], "name": "text"}
    f = hindcast.aot_function(lambda batch, scale: {"z": (batch["x"] + batch["y"][0] * scale).cos()})
    return lambda: f(batch, scale=0.5)


@row("aot_module/mlp", 8)
def _():
    f, x = hindcast.aot_module(mlp()), torch.randn(32, 64)

    def call():
        with torch.no_grad():
            f(x)

    return call


@row("compiled_step/adam", 8)
def _():
    return hindcast.compiled_step(optimizer_with_gradients())


@row("compiled_step/adam_clipped", 8)
def _():
    return hindcast.compiled_step(optimizer_with_gradients(), hindcast.ClipGradNorm(1.0))


def backward_of(function):
    w, one = torch.randn(16, requires_grad=True), torch.ones(16)
    return lambda: torch.autograd.backward(function(w), one)


def hooked(x):
    y = x.sin()
    y.register_hook(lambda gradient: None)
    return y


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


BACKWARDS["call/backward/one_op"] = lambda: backward_of(torch.sin)
BACKWARDS["call/backward/hook"] = lambda: backward_of(hooked)
BACKWARDS["call/backward/python_function"] = lambda: backward_of(Square.apply)


@row("backward/one_op", 6)
def _():
    y, one = torch.randn(16, requires_grad=True).sin(), torch.ones(16)
    return lambda: y.backward(one, retain_graph=True)


def block(call, times):
    start = time.process_time_ns()
    for _ in range(times):
        call()
    return (time.process_time_ns() - start) / 1000 / times


def warmed(call):
    for _ in range(3):
        block(call, 200)
        hindcast.wait()
    return max(1, int(BLOCK_US / block(call, 50)))


def measure(name, blocks):
    budget, make = ROWS[name]
    with hindcast.enable():
        call = make()
        times = warmed(call)
        samples = []
        for _ in range(blocks):
            calls.measure(True)
            whole = block(call, times)
            samples.append((whole - calls.measure(False) / 1000 / times, whole))
    above, whole = min(samples)
    return {"name": name, "whole_us": whole, "engine_us": whole - above, "above_us": above, "budget_us": budget}


def measure_backward(name, blocks):
    call = BACKWARDS[name]()
    engines = contextlib.nullcontext, hindcast.enable
    for around in engines:
        with around():
            times = warmed(call)

    def one(around):
        with around():
            return block(call, times)

    stock, ours = in_turn(engines, one, most=blocks).values()
    return {"name": name, "stock_us": quartiles(stock)[0], "whole_us": quartiles(ours)[0], "of_stock": quotients(ours, stock)[0]}


def print_row(result):
    if "of_stock" in result:
        mark = "" if result["of_stock"] <= MOST_OF_STOCK else "  *"
        print(f"{result['name']:34} {result['whole_us']:8.2f} us, stock {result['stock_us']:.2f}: {result['of_stock']:.3f} of stock{mark}", flush=True)
        return
    mark = "" if result["above_us"] <= result["budget_us"] else "  *"
    print(
        f"{result['name']:34} {result['whole_us']:8.2f} {result['engine_us']:8.2f} {result['above_us']:8.2f} {result['budget_us']:8}{mark}",
        flush=True,
    )


def is_missed(result):
    return result["of_stock"] > MOST_OF_STOCK if "of_stock" in result else result["above_us"] > result["budget_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="a regular expression")
    parser.add_argument("--blocks", type=int, default=21)
    parser.add_argument("--json", help="a file for the results")
    arguments = parser.parse_args()
    if calls is None:
        sys.exit("hindcast._C is not there: this counts the engine's work in it")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gc.disable()
    print(f"{'row':34} {'whole':>8} {'engine':>8} {'above':>8} {'budget':>8}")
    results = []
    for names, run in ((ROWS, measure), (BACKWARDS, measure_backward)):
        for name in (name for name in names if re.search(arguments.rows, name)):
            results.append(run(name, arguments.blocks))
            print_row(results[-1])
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return int(any(map(is_missed, results)))


if __name__ == "__main__":
    sys.exit(main())
