"""One lane of a row train_step/... in a process of its own, started by peer_lanes.py.

Prints its first losses as a line of JSON; then reads numbers of steps, and prints the processor time and the time by the
clock of one of as many steps, in microseconds; at `end`, what there is to say.
"""

import json
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import hindcast  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402
from hindcast.bench.turns import WARM_UP, in_short  # noqa: E402

import peer_rows  # noqa: E402
from peer_compilers import torch_compile  # noqa: E402

RATE = 1e-6  # a benchmark's thousands of steps hardly change the numbers
CHECKED_RATE, CHECKED_STEPS = 1e-3, 20
MOST_EAGER = 0.05


class TorchLane:
    def __init__(self, row, function, **of_adam):
        self.row, self.function = row, function
        self.optimizer = torch.optim.Adam(row.leaves, lr=RATE, **of_adam)
        self.first_values = [leaf.detach().clone() for leaf in row.leaves]

    def start_anew(self):
        with torch.no_grad():
            for leaf, value in zip(self.row.leaves, self.first_values):
                leaf.copy_(value)
        for state in self.optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()

    def one(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.row.root(self.function)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.row.leaves, self.row.max_norm)
        self.optimizer.step()
        return loss

    def run(self, rate, steps):
        self.optimizer.param_groups[0]["lr"] = rate
        for _ in range(steps):
            loss = self.one()
        return loss.detach()


class TrainStepLane(TorchLane):
    def __init__(self, row, **options):
        super().__init__(row, row.function)
        self.step = hindcast.train_step(self.optimizer, lambda *data: row.function(*row.leaves, *data),
                                        clip_grad_norm=hindcast.ClipGradNorm(row.max_norm), **options)

    def one(self):
        return self.step(*self.row.constants)


class EnableLane(TorchLane):
    """An unchanged program under the guard."""

    def __init__(self, row, **options):
        super().__init__(row, row.function, fused=True)
        self.guard = lambda: hindcast.enable(**options)

    def one(self):
        with self.guard():
            return super().one()


def jax_lane(name, row, blocked):
    from peer_jax import JaxLane

    return JaxLane(name, row, blocked)


LANES = {
    "eager": lambda name, row: TorchLane(row, row.function),
    "eager_fused": lambda name, row: TorchLane(row, row.function, fused=True),
    "torch_compile": lambda name, row: TorchLane(row, torch_compile(row), fused=True),
    "hindcast_train_step": lambda name, row: TrainStepLane(row),
    "hindcast_enable": lambda name, row: EnableLane(row),
    "jax": lambda name, row: jax_lane(name, row, blocked=False),
    "jax_blocked": lambda name, row: jax_lane(name, row, blocked=True),
}


def prepare(name, peer):
    """A warm lane, and its message before it is timed."""
    torch.manual_seed(1)
    start = time.perf_counter()
    lane = LANES[peer](name, peer_rows.rows()[name]())
    begin = time.perf_counter()
    float(lane.run(RATE, 1))
    first_ms = (time.perf_counter() - begin) * 1e3
    for _ in range(WARM_UP):
        hindcast.wait()
        lane.run(RATE, 12)
    hindcast.wait()
    lane.start_anew()
    losses = [float(lane.run(CHECKED_RATE, 1)) for _ in range(CHECKED_STEPS)]
    return lane, {"losses": losses, "first_ms": first_ms, "start_ms": (begin - start) * 1e3}


def counts(lane):
    """(calls that ran eagerly, of how many, counts that timed steps must not change)"""
    if not isinstance(lane, TrainStepLane):
        return 0, 0, torch._dynamo.utils.counters["stats"]["unique_graphs"]
    stats = lane.step.stats()
    return stats["eager"], stats["calls"], (stats["traces"], stats["three_parts"], lane.step.update.original)


def notes_on(lane, before):
    eager, calls, fixed = counts(lane)
    notes = []
    if fixed != before[2]:
        notes.append("compiled again, or ran in parts, while it was timed")
    eager, calls = eager - before[0], calls - before[1]
    if eager > MOST_EAGER * calls:  # hindcast sometimes tries whether eager is faster
        notes.append(f"{eager} of {calls} steps ran eagerly")
    return notes


def timed(lane, steps):
    lane.run(RATE, 2)  # the caches hold another lane's data
    cpu, clock = time.process_time_ns(), time.perf_counter_ns()
    lane.run(RATE, steps)
    return [(time.process_time_ns() - cpu) / 1e3 / steps, (time.perf_counter_ns() - clock) / 1e3 / steps]


def main():
    name, peer, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if hasattr(os, "sched_setaffinity"):  # JAX would run a step on a thread beside Python's
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    torch.set_num_threads(threads)
    out = sys.stdout
    sys.stdout = sys.stderr  # a compiler's output is no answer
    try:
        lane, said = prepare(name, peer)
    except Exception as error:  # whatever a compiler throws is the row's result
        print(json.dumps({"error": in_short(error)}), file=out, flush=True)
        return
    print(json.dumps(said), file=out, flush=True)
    before = counts(lane)
    for line in sys.stdin:
        if line == "end\n":
            print(json.dumps({"notes": notes_on(lane, before)}), file=out, flush=True)
            return
        print(json.dumps(timed(lane, int(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
