"""A row step/... of bench/peers.py: training steps of eager and its peers in turn. Each lane trains its own copy."""

import contextlib
import statistics
import time

import hindcast
import torch
from hindcast.bench.turns import BLOCK_US, WARM_UP, in_short, in_turn, quartiles, quotients

import peer_rows
from peer_compilers import aot_function, torch_compile

RATE = 1e-6  # a benchmark's thousands of steps hardly change the numbers
CHECKED_RATE, CHECKED_STEPS = 1e-3, 10
TOLERANCE = 0.02  # of what a parameter moves in those steps
DISTURBANCE = 1e-6  # of the initial values, like rounding: Adam turns errors of small gradients into whole moves
PARTS = ("", "forward_", "backward_", "update_")


def uncompiled(row):
    return row.function


# name -> what compiles the function, the settings of Adam
LANES = {
    "eager": (uncompiled, {}),
    "eager_foreach": (uncompiled, {"foreach": True}),
    "eager_fused": (uncompiled, {"fused": True}),
    "torch_compile": (torch_compile, {"fused": True}),
    "hindcast": (aot_function, {}),
}
LEAST_STEPS = 5  # per block: a step finds the caches as its own lane's last step left them


def block_of_steps(lane, steps):
    """Medians of the lane's step times, and of their parts."""
    return [statistics.median(column) for column in zip(*(lane.timed_step() for _ in range(steps)))]


def steps_of_block(lane):
    us = statistics.median(block_of_steps(lane, 3)[0] for _ in range(3))
    return max(LEAST_STEPS, min(200, int(BLOCK_US / us)))


def steps_in_turn(lanes, steps, pairs, budget_s):
    """lane -> [microseconds of the blocks' steps, and of each part that it tells]"""
    blocks = in_turn(lanes, lambda lane: block_of_steps(lane, steps), seconds=budget_s, most=pairs)
    return {lane: list(zip(*of_lane)) for lane, of_lane in blocks.items()}


def same_row(name):
    torch.manual_seed(1)
    return peer_rows.rows()[name]()


class StepLane:
    def __init__(self, peer, row):
        compiler, settings = LANES[peer]
        self.row = row
        self.function = row.function and compiler(row)
        self.optimizer = torch.optim.Adam(row.leaves, lr=RATE, **settings)
        self.first_values = [leaf.detach().clone() for leaf in row.leaves]
        self.guard, self.update = contextlib.nullcontext, self.clip_and_step
        if peer == "hindcast":
            self.compile_update()

    def compile_update(self):
        clip = None if self.row.max_norm is None else hindcast.ClipGradNorm(self.row.max_norm)
        self.guard, self.update = hindcast.enable, hindcast.compiled_step(self.optimizer, clip)

    def clip_and_step(self):
        if self.row.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.row.leaves, self.row.max_norm)
        self.optimizer.step()

    def timed_step(self):
        """Microseconds of a step, then of its forward, backward and the rest: gradients dropped and clipped, Adam."""
        if self.function is None:
            return [self.timed_update()]
        start = time.perf_counter_ns()
        self.optimizer.zero_grad(set_to_none=True)
        with self.guard():
            begin = time.perf_counter_ns()
            root = self.row.root(self.function)
            between = time.perf_counter_ns()
            root.backward(self.row.incoming)
            del root
            behind = time.perf_counter_ns()
            self.update()
        stop = time.perf_counter_ns()
        us, forward, backward = (stop - start) / 1e3, (between - begin) / 1e3, (behind - between) / 1e3
        return [us, forward, backward, us - forward - backward]

    def timed_update(self):
        start = time.perf_counter_ns()
        self.update()
        return (time.perf_counter_ns() - start) / 1e3

    def start_anew(self, disturbance):
        with torch.no_grad():
            for leaf, value in zip(self.row.leaves, self.first_values):
                leaf.copy_(value * (1 + disturbance * torch.randn_like(value)))
        for state in self.optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()

    def moves(self, disturbance=0):
        """How far each parameter moves in the checked steps."""
        self.start_anew(disturbance)
        self.optimizer.param_groups[0]["lr"] = CHECKED_RATE
        for _ in range(CHECKED_STEPS):
            self.timed_step()
        self.optimizer.param_groups[0]["lr"] = RATE
        return [leaf.detach() - value for leaf, value in zip(self.row.leaves, self.first_values)]


def warm(peer, name):
    lane = StepLane(peer, same_row(name))
    for _ in range(1 + WARM_UP):
        lane.timed_step()
        hindcast.wait()
    return lane


def difference(moves, expected):
    """The largest of a parameter, as a part of its expected move."""
    return max(float((move - other).norm() / other.norm()) for move, other in zip(moves, expected))


class Reference:
    """How eager trains, and how much of that depends on rounding."""

    def __init__(self, eager):
        self.moves = eager.moves()
        self.tolerance = TOLERANCE + 3 * difference(eager.moves(DISTURBANCE), self.moves)

    def check(self, lane):
        differs = difference(lane.moves(), self.moves)
        hindcast.wait()
        if not lane.row.random and not differs <= self.tolerance:
            raise RuntimeError(f"in {CHECKED_STEPS} steps a parameter moves otherwise than eager's, by {differs:.1%}; "
                               f"expected at most {self.tolerance:.1%}")


def compiles(peer, lane):
    """Counts that timed steps must not change."""
    if peer == "torch_compile":
        return torch._dynamo.utils.counters["stats"]["unique_graphs"]
    if peer != "hindcast":
        return 0
    backwards = hindcast.stats()
    fallbacks = backwards["fallbacks"] - backwards["fallbacks_by_reason"].get("NotFaster", 0)  # turns of PyTorch's engine
    calls = {"calls": 0, "hits": 0} if lane.function is None else lane.function.stats()
    return calls["calls"] - calls["hits"], backwards["misses"], fallbacks, lane.update.original


def notes_on(peer, lane, before):
    notes = []
    if compiles(peer, lane) != before:
        notes.append("compiled again, or ran eagerly, while it was timed")
    if peer == "hindcast" and lane.update.original:
        notes.append(f"{lane.update.original} updates without a kernel: {lane.update.why_original}")
    if lane.row.random:
        notes.append("parameters unchecked: each lane draws other masks")
    return notes


def timed(lanes, pairs, budget_s):
    """peer -> its result"""
    before = {peer: compiles(peer, lane) for peer, lane in lanes.items()}
    by_lane = steps_in_turn(list(lanes.values()), steps_of_block(lanes["eager"]), pairs, budget_s)
    samples = {peer: by_lane[lane] for peer, lane in lanes.items()}
    results = {}
    for peer in lanes:
        result = {"notes": notes_on(peer, lanes[peer], before[peer]), "pairs": len(samples[peer][0])}
        for part, stock, ours in zip(PARTS, samples["eager"], samples[peer]):
            result[f"{part}ratio"], result[f"{part}spread"] = quotients(stock, ours)
            result[f"stock_{part}us"], result[f"peer_{part}us"] = quartiles(stock)[0], quartiles(ours)[0]
        if peer != "hindcast" and "hindcast" in lanes:  # above 1: hindcast is ahead
            result["hindcast_ratio"], result["hindcast_spread"] = quotients(samples[peer][0], samples["hindcast"][0])
        results[peer] = result
    return results


def measure(name, peers, pairs, budget_s):
    """Eager and all peers by turns. A peer that fails has an error in its result."""
    lanes, errors = {"eager": warm("eager", name)}, {}
    reference = Reference(lanes["eager"])
    for peer in peers:
        try:
            lane = warm(peer, name)
            reference.check(lane)
            lanes[peer] = lane
        except Exception as error:  # whatever a compiler throws is the row's result
            errors[peer] = {"error": in_short(error)}
    results = timed(lanes, pairs, budget_s) | errors
    return [{"row": name, "peer": peer, **results[peer]} for peer in ["eager", *peers]]
