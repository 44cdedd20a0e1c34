#!/usr/bin/env python3
"""DistributedDataParallel with its own c10d::Reducer: steps under hindcast beside steps under the stock engine.

    python3 tests/gpu/nccl_reducer.py                                  # NCCL, a rank for each card
    python3 tests/gpu/nccl_reducer.py --backend=gloo --device=cpu      # the same without a card: one rank, or as many as --ranks says

Each of `eager` and `fused` trains the same model on the same numbers as the stock engine does. The parameters are equal to the bit under
`eager`, near under `fused`. In a hit the buckets' all-reduces and a hook behind the first layer come in stock's order, and the first
all-reduce starts before the backward ends. Exits with 1 and a sentence where that is not so; with 0 and a sentence where nothing can be tested.
"""

import argparse
import datetime
import os
import pathlib
import sys
import tempfile

# Before CUDA starts: a fixed order of additions in each product, and a rendezvous on this machine only.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

STEPS = 6
SMALL_BUCKETS = 1e-4  # MiB: several for this model
NEAR = 1e-4  # of the largest number of a parameter
FIRST_LAYER = "the first layer's gradient"
ENGINES = ("eager", "fused")


class Net(nn.Module):
    """Has ops between the products, which become kernels."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 16)
        self.norm = nn.LayerNorm(64)

    def forward(self, x):
        y = nn.functional.gelu(self.first(x)) * 0.5
        return self.third(self.norm(y + torch.tanh(self.second(y))))


def wrapped(device):
    torch.manual_seed(0)
    return DistributedDataParallel(Net().to(device), bucket_cap_mb=SMALL_BUCKETS, device_ids=[device] if device.type == "cuda" else None)


def train(device, rank):
    """The parameters after some steps on this rank's own data."""
    model = wrapped(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(1 + rank)
    for _ in range(STEPS):
        x = torch.randn(8, 32).to(device)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: parameter.detach().cpu() for name, parameter in model.module.named_parameters()}


def order_of_events(device):
    """The events of the last of some backwards, in order. The all-reduces are named by the sizes of their buckets."""
    model = wrapped(device)
    events = []

    def all_reduce(state, bucket):
        events.append(f"all-reduce of {bucket.buffer().numel()}")
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0] / dist.get_world_size())

    model.register_comm_hook(None, all_reduce)
    for _ in range(STEPS):
        events.clear()
        x = torch.ones(8, 32, device=device, requires_grad=True)
        x.register_hook(lambda gradient: events.append(FIRST_LAYER))
        model(x).square().mean().backward()
    return list(events)


def run(device, rank):
    return {"parameters": train(device, rank), "events": order_of_events(device)}


def run_with_hindcast(device, rank, engine):
    import hindcast

    seen = {}
    for name, what in (("parameters", lambda: train(device, rank)), ("events", lambda: order_of_events(device))):
        hindcast.reset()
        with hindcast.enable(engine, async_=False, back_off=False):
            seen[name] = what()
        stats = hindcast.stats()
        seen["hits", name], seen["kernels", name] = stats["hits"], stats["fused_graphs"]
    return seen


def distances(stock, ours):
    """The difference of each parameter, relative to its largest number. NaN is far from everything."""
    far = {}
    for name, expected in stock.items():
        apart = ((ours[name] - expected).abs().max() / expected.abs().max()).item()
        far[name] = apart if apart == apart else float("inf")
    return far


def problems_of(stock, ours, engine, wants_kernels):
    problems = []
    for name, expected in stock["parameters"].items():
        if engine == "eager" and not torch.equal(ours["parameters"][name], expected):
            problems.append(f"{name} is not equal to the stock engine's")
    for name, apart in distances(stock["parameters"], ours["parameters"]).items():
        if apart > NEAR:
            problems.append(f"{name} is {apart:.2g} of its largest number from the stock engine's, more than {NEAR:g}")
    events = ours["events"]
    if events != stock["events"]:
        problems.append(f"the order is {', '.join(events)}; under the stock engine it is {', '.join(stock['events'])}")
    if len(events) < 3 or not events[0].startswith("all-reduce") or FIRST_LAYER not in events:
        problems.append(f"no all-reduce started before the backward ended, or all was in one bucket: {', '.join(events)}")
    for what in ("parameters", "events"):
        if ours["hits", what] == 0:
            problems.append(f"no backward was a hit while {what} were looked at")
        if wants_kernels and engine == "fused" and ours["kernels", what] == 0:
            problems.append(f"no backward had kernels while {what} were looked at")
    return problems


def in_words(stock, ours, engine):
    farthest = max(distances(stock["parameters"], ours["parameters"]).values())
    hits = " and ".join(f"{ours['hits', what]} of {STEPS}" for what in ("parameters", "events"))
    return f"{engine}: parameters within {farthest:.2g}; hits: {hits}; {ours['kernels', 'parameters']} graphs with kernels"


def compare(rank, arguments, world_size, folder):
    """One rank. Returns the exit status."""
    device = torch.device(arguments.device, rank if arguments.device == "cuda" else None)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend, init_method=pathlib.Path(folder, "meeting").as_uri(), rank=rank, world_size=world_size,
                            timeout=datetime.timedelta(seconds=60))
    stock = run(device, rank)
    if rank == 0:
        print(f"{world_size} rank(s), {arguments.backend} on {device.type}; stock: {', '.join(stock['events'])}", flush=True)
    failed = False
    for engine in ENGINES:
        ours = run_with_hindcast(device, rank, engine)
        if rank == 0:
            print(in_words(stock, ours, engine), flush=True)
        for problem in problems_of(stock, ours, engine, wants_kernels=device.type == "cuda"):
            failed = True
            print(f"rank {rank}, {engine}: {problem}", flush=True)
    dist.destroy_process_group()
    return int(failed)


def of_many(rank, *arguments):
    status = compare(rank, *arguments)
    sys.stdout.flush()
    os._exit(status)


def why_not(arguments):
    if not dist.is_available():
        return "this torch has no torch.distributed"
    if arguments.backend == "nccl" and not dist.is_nccl_available():
        return "this torch has no NCCL"
    if arguments.backend == "nccl" and arguments.device == "cpu":
        return "NCCL is for cards; --backend=gloo is for the CPU"
    if arguments.device == "cuda" and not torch.cuda.is_available():
        return "torch finds no CUDA device"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ranks", type=int, help="default: as many as there are cards, on the CPU one")
    arguments = parser.parse_args()
    if reason := why_not(arguments):
        print(f"nothing is tested: {reason}")
        return 0
    world_size = arguments.ranks or (torch.cuda.device_count() if arguments.device == "cuda" else 1)
    with tempfile.TemporaryDirectory() as folder:
        if world_size == 1:
            return compare(0, arguments, world_size, folder)
        try:
            torch.multiprocessing.spawn(of_many, (arguments, world_size, folder), nprocs=world_size)
        except torch.multiprocessing.ProcessExitedException as error:
            print(f"nccl_reducer.py: {error}")
            return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # If a thread of Gloo's outlives its group, and frees Python objects at interpreter exit, PyTorch aborts.
    os._exit(status)
