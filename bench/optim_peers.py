"""optim_peers.py [--package FOLDER] [--threads N]... [--steps N]: Adam's step by PyTorch in its three forms, and by compiled_step().

The lanes take turns, one step each, in an order that is reversed every time. They share parameters and gradients; each has a
state of its own. With "clip", PyTorch's lanes call clip_grad_norm_() first. FOLDER is where the package lies, as
<build folder>/python.
"""

import argparse
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

WARM_UP = 3
WORKLOADS = {
    "4 x 16 MB": (4, 4 << 20, False),
    "4 x 16 MB, clip": (4, 4 << 20, True),
    "5,000 x 64": (5000, 64, False),
    "5,000 x 64, clip": (5000, 64, True),
}
LANES = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}, "hindcast": {}}


def lanes_of(count, numel, clips):
    import hindcast
    import torch

    parameters = [torch.nn.Parameter(torch.randn(numel)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn(numel)
    optimizers = {name: torch.optim.Adam(parameters, **settings) for name, settings in LANES.items()}

    def step_of(optimizer):
        def clip_and_step():
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()

        return clip_and_step if clips else optimizer.step

    steps = {name: step_of(optimizer) for name, optimizer in optimizers.items()}
    steps["hindcast"] = hindcast.compiled_step(optimizers["hindcast"], hindcast.ClipGradNorm(1.0) if clips else None)
    return steps


def milliseconds(steps, rounds):
    times = {name: [] for name in steps}
    names = list(steps)
    for round_ in range(WARM_UP + rounds):
        for name in names:
            begin = time.perf_counter()
            steps[name]()
            if round_ >= WARM_UP:
                times[name].append((time.perf_counter() - begin) * 1e3)
        names.reverse()
    assert steps["hindcast"].original == 0, steps["hindcast"].why_original
    return times


def print_rows(threads, workload, times):
    fused = statistics.median(times["fused"])
    for name, of_lane in times.items():
        deciles = statistics.quantiles(of_lane, n=10)
        median = statistics.median(of_lane)
        spread = f"{deciles[0]:.2f} to {deciles[-1]:.2f}"
        print(f"| {threads} | {workload} | {name} | {median:.2f} | {spread} | {fused / median:.2f} |", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--package", default="build/release/python")
    arguments.add_argument("--threads", type=int, action="append")
    arguments.add_argument("--steps", type=int, default=40)
    given = arguments.parse_args()
    sys.path.insert(0, given.package)
    import torch

    print("| threads | parameters | lane | ms | 10% to 90% | fused / it |\n|---|---|---|---|---|---|")
    for threads in given.threads or [1, 2]:
        torch.set_num_threads(threads)
        for workload, sizes in WORKLOADS.items():
            print_rows(threads, workload, milliseconds(lanes_of(*sizes), given.steps))


if __name__ == "__main__":
    main()
