#!/usr/bin/env python3
"""The rows of hindcast_bench_gpu in Python: eager and torch.compile, in turn in one process.

    python3 bench/gpu/torch_compile.py --out=compile.json --rows='^(whole/)?seed/layer_norm'
    python3 bench/gpu/torch_compile.py --device=cpu --rounds=2    # to try it without a card: small sizes, numbers mean nothing

Measured as in measure.h. A row has as many copies as are larger than the card's caches. A round runs all forwards, waits, and runs all
backwards one behind the other without waiting; events are around each. Rows whole/... have events around forward and backward together.
Rows steps/... wait for the card in each step, and have a third lane: torch.compile with CUDA graphs (mode="reduce-overhead").

torch.compile also compiles the forward, and so decides what is saved: where only the backward is timed, the forward's time stands beside
it. Sizes are constants (dynamic=False). What torch.compile cannot do is in `compile_error`; the other rows go on.

The output has the shape of Google Benchmark's JSON, and is written anew behind each row.
"""

import argparse
import json
import math
import re
import signal
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch  # noqa: E402

from torch_compile_rows import rows  # noqa: E402

LARGER_THAN_CACHES = 256 << 20
FEWEST_COPIES, MOST_COPIES = 4, 64
STEPS = 20  # of each lane in a round, rows steps/...


class Device:
    def __init__(self, name):
        self.name, self.is_cuda = name, name == "cuda"

    def wait(self):
        if self.is_cuda:
            torch.cuda.synchronize()

    def live_bytes(self):
        return torch.cuda.memory_allocated() if self.is_cuda else 0

    def restart_peak(self):
        if self.is_cuda:
            torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self):
        return torch.cuda.max_memory_allocated() if self.is_cuda else 0

    def sizes(self, row):
        return row.sizes if self.is_cuda else tuple(min(size, 16) for size in row.sizes)


class Moment:
    """On the stream; on the CPU, of the host."""

    def __init__(self, device):
        self.event = torch.cuda.Event(enable_timing=True) if device.is_cuda else None
        self.ns = 0

    def record(self):
        if self.event:
            self.event.record()
        self.ns = time.perf_counter_ns()

    def us_until(self, later):
        return self.event.elapsed_time(later.event) * 1e3 if self.event else (later.ns - self.ns) / 1e3


class Lane:
    def __init__(self, function, marks_steps=False):
        self.function, self.marks_steps = function, marks_steps
        self.forget()

    def forget(self):
        self.us, self.forward_us, self.host_us = [], [], []

    def forward(self, work):
        if self.marks_steps:
            torch.compiler.cudagraph_mark_step_begin()
        return self.function(*work.leaves, *work.constants)


def backward_round(lane, copies, device):
    begins, ends, forward_begins, forward_ends = ([Moment(device) for _ in copies] for _ in range(4))
    roots = []
    for work, begin, end in zip(copies, forward_begins, forward_ends):
        work.clear_grads()
        begin.record()
        roots.append(lane.forward(work))
        end.record()
    device.wait()
    for work, root, begin, end in zip(copies, roots, begins, ends):
        begin.record()
        start = time.perf_counter_ns()
        root.backward(work.incoming)
        lane.host_us.append((time.perf_counter_ns() - start) / 1e3)
        end.record()
    device.wait()
    lane.us += [begin.us_until(end) for begin, end in zip(begins, ends)]
    lane.forward_us += [begin.us_until(end) for begin, end in zip(forward_begins, forward_ends)]


def whole_round(lane, copies, device):
    begins, ends = ([Moment(device) for _ in copies] for _ in range(2))
    for work in copies:
        work.clear_grads()
    device.wait()
    for work, begin, end in zip(copies, begins, ends):
        begin.record()
        start = time.perf_counter_ns()
        lane.forward(work).backward(work.incoming)
        lane.host_us.append((time.perf_counter_ns() - start) / 1e3)
        end.record()
    device.wait()
    lane.us += [begin.us_until(end) for begin, end in zip(begins, ends)]


def steps_round(lane, copies, device):
    work = copies[0]
    for _ in range(STEPS):
        work.clear_grads()
        root = lane.forward(work)
        device.wait()
        start = time.perf_counter_ns()
        root.backward(work.incoming)
        lane.host_us.append((time.perf_counter_ns() - start) / 1e3)
        device.wait()
        lane.us.append((time.perf_counter_ns() - start) / 1e3)


def launches_of(lane, work, device):
    """Kernels, copies and fills on the device in one backward. None if the profiler does not report them."""
    if not device.is_cuda:
        return None
    try:
        work.clear_grads()
        root = lane.forward(work)
        device.wait()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
            root.backward(work.incoming)
            device.wait()
        on_card = torch.autograd.DeviceType.CUDA
        return sum(event.device_type() == on_card and not event.is_user_annotation()
                   for event in recorded.profiler.kineto_results.events())
    except Exception as error:  # a count is no reason to lose the row
        print(f"launches are not known: {in_short(error)}", file=sys.stderr)
        return None


def peak_of(lane, work, device, base, is_whole):
    if not device.is_cuda:
        return None
    work.clear_grads()
    if is_whole:
        device.restart_peak()
    root = lane.forward(work)
    if not is_whole:
        device.restart_peak()
    root.backward(work.incoming)
    peak = device.peak_bytes() - base
    work.clear_grads()
    return peak / (1 << 20)


def gradients(lane, work):
    torch.manual_seed(7)
    work.clear_grads()
    lane.forward(work).backward(work.incoming)
    return [leaf.grad.detach().clone() for leaf in work.leaves]


def check(eager, ours, work):
    expected, seen = gradients(eager, work), gradients(ours, work)
    for i, (a, b) in enumerate(zip(expected, seen)):
        error = ((b.double() - a.double()).norm() / a.double().norm().clamp(min=1e-30)).item()
        if not error <= (2e-2 if a.element_size() == 2 else 1e-4):
            raise ArithmeticError(f"gradient {i} is wrong by {error:.2g}")


def in_short(error):
    message = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {message}"[:300]


def summarize(counters, key, samples):
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    counters[f"{key}_us"], counters[f"{key}_iqr_us"] = middle, high - low


class RowTooLong(Exception):
    pass


def too_long(*_):
    raise RowTooLong("compiling and measuring took too long")


class Measured:
    """A row with its lanes; one compile serves the row and its whole/... ."""

    def __init__(self, row, device):
        self.row, self.device = row, device
        torch._dynamo.reset()
        torch.manual_seed(1)
        sizes = device.sizes(row)
        first = row.work(device.name, sizes)
        is_step = row.name.startswith("steps/")
        bytes_of_x = math.prod(sizes) * first.incoming.element_size()
        count = 1 if is_step else min(max(math.ceil(LARGER_THAN_CACHES / (3 * bytes_of_x)), FEWEST_COPIES), MOST_COPIES)
        if not device.is_cuda:
            count = min(count, FEWEST_COPIES)
        self.copies = [first] + [row.work(device.name, sizes) for _ in range(count - 1)]
        self.base = device.live_bytes()
        self.lanes = {"eager": Lane(row.function)}
        start = time.perf_counter()
        self.lanes["compile"] = Lane(torch.compile(row.function, dynamic=False, fullgraph=True))
        self.warm("compile")
        self.compile_s = time.perf_counter() - start
        self.errors = {}
        if is_step and device.is_cuda:
            try:
                self.lanes["compile_graphs"] = Lane(torch.compile(row.function, dynamic=False, fullgraph=True, mode="reduce-overhead"),
                                                    marks_steps=True)
                self.warm("compile_graphs")
            except RowTooLong:
                raise
            except Exception as error:
                del self.lanes["compile_graphs"]
                self.errors["compile_graphs_error"] = in_short(error)

    def warm(self, name):
        lane, work = self.lanes[name], self.copies[0]
        for _ in range(3):  # CUDA graphs are recorded at the second
            gradients(lane, work)
        if not self.row.draws:
            check(self.lanes["eager"], lane, work)

    def counters(self, kind, rounds):
        """kind: what a round times."""
        device, copies = self.device, self.copies
        counters = {"compile_s": self.compile_s, **self.errors}
        for name, lane in self.lanes.items():
            counters[f"{name}_peak_mib"] = peak_of(lane, copies[0], device, self.base, kind is whole_round)
            if kind is not whole_round:
                counters[f"{name}_launches"] = launches_of(lane, copies[0], device)
            kind(lane, copies, device)  # warm
            lane.forget()
        order = list(self.lanes.values())
        for number in range(rounds):
            for lane in order if number % 2 == 0 else reversed(order):
                kind(lane, copies, device)
        for name, lane in self.lanes.items():
            summarize(counters, name, lane.us)
            counters[f"{name}_host_us"] = statistics.median(lane.host_us)
            if lane.forward_us:
                counters[f"{name}_forward_us"] = statistics.median(lane.forward_us)
            lane.forget()
        counters["compile_ratio"] = counters["eager_us"] / counters["compile_us"]
        return {key: value for key, value in counters.items() if value is not None}


def kinds_of(row, pattern):
    """The row's requested names, and what a round of each times."""
    kinds = {row.name: steps_round if row.name.startswith("steps/") else backward_round}
    if row.name.startswith("seed/"):
        kinds["whole/" + row.name] = whole_round
    return {name: kind for name, kind in kinds.items() if re.search(pattern, name)}


def result(name, counters):
    us = counters.get("compile_us", 0)
    return {"name": name, "run_name": name, "run_type": "iteration", "iterations": 1, "real_time": us, "cpu_time": us, "time_unit": "us",
            **counters}


def measure(row, kinds, device, arguments):
    """Yields a result for each kind."""
    signal.alarm(arguments.row_limit)
    done = set()
    try:
        measured = Measured(row, device)
        for name, kind in kinds.items():
            yield result(name, measured.counters(kind, arguments.rounds))
            done.add(name)
    except Exception as error:
        for name in kinds:
            if name not in done:
                yield result(name, {"compile_error": in_short(error)})
    finally:
        signal.alarm(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", metavar="REGEX", default="", help="default: all")
    parser.add_argument("--rounds", type=int, default=15, help="of all lanes in turn (default 15)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--row-limit", type=int, default=120, metavar="SECONDS", help="of one row with its compile (default 120)")
    parser.add_argument("--out", metavar="FILE", help="Google Benchmark's JSON")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("nothing is measured: torch finds no CUDA device")
        return
    device = Device(arguments.device)
    if not device.is_cuda:
        torch.set_num_threads(1)
    context = {"date": time.strftime("%Y-%m-%dT%H:%M:%S"), "libtorch": torch.__version__, "device": device.name,
               "card": torch.cuda.get_device_name() if device.is_cuda else "none"}
    signal.signal(signal.SIGALRM, too_long)
    results = []
    for row in rows():
        kinds = kinds_of(row, arguments.rows)
        if not kinds:
            continue
        for one in measure(row, kinds, device, arguments):
            results.append(one)
            print(one["name"], one.get("compile_error") or f"eager {one['eager_us']:.1f} us, torch.compile {one['compile_us']:.1f} us, "
                  f"ratio {one['compile_ratio']:.2f}", flush=True)
            if arguments.out:
                with open(arguments.out, "w", encoding="utf-8") as file:
                    json.dump({"context": context, "benchmarks": results}, file, indent=1)
        if device.is_cuda:
            torch.cuda.empty_cache()
    if not results:
        sys.exit(f"torch_compile.py: --rows {arguments.rows} matches none")


if __name__ == "__main__":
    main()
