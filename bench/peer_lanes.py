"""Rows train_step/... of bench/peers.py: each lane is a separate process (peer_worker.py), and they alternate by blocks of steps."""

import json
import selectors
import subprocess
import sys
from pathlib import Path

from hindcast.bench import children
from hindcast.bench.turns import in_turn, quartiles, quotients

WORKER = Path(__file__).parent / "peer_worker.py"
BASE = "eager_fused"  # the lane that all others are compared with
OURS = "hindcast_train_step"
TOLERANCE = 1e-4  # of each of the first losses
OF_FIRST = 1e-6  # and of the first one: when the loss is small, rounding is a large part of it
BLOCK_US = 20_000
LEAST_STEPS, MOST_STEPS = 3, 200


class Failed(Exception):
    """A lane's message instead of its times."""


class Worker:
    def __init__(self, row, peer, threads, environment):
        eigen = "true" if threads > 1 else "false"
        flags = f"--xla_cpu_multi_thread_eigen={eigen} intra_op_parallelism_threads={threads}"
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), row, peer, str(threads)], text=True, start_new_session=True,
            env=dict(environment, JAX_PLATFORMS="cpu", XLA_FLAGS=flags),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def answer(self, limit):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(limit):
                raise Failed(f"no answer after {limit:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"exit {self.process.wait()}")
        said = json.loads(line)
        if isinstance(said, dict) and "error" in said:
            raise Failed(said["error"])
        return said

    def ask(self, question, limit=60):
        print(question, file=self.process.stdin, flush=True)
        return self.answer(limit)

    def end(self):
        children.end(self.process)


def differing(losses, expected):
    for step, (loss, other) in enumerate(zip(losses, expected)):
        if not abs(loss - other) <= TOLERANCE * abs(other) + OF_FIRST * abs(expected[0]):
            return f"loss {step} is {loss:.7g}, expected {BASE}'s {other:.7g}"
    return None


def blocks_in_turn(workers, pairs, budget_s):
    """peer -> the blocks' [processor time, time by the clock] of a step"""
    steps = {peer: max(LEAST_STEPS, min(MOST_STEPS, int(BLOCK_US / worker.ask(LEAST_STEPS)[0])))
             for peer, worker in workers.items()}
    return in_turn(workers, lambda peer: workers[peer].ask(steps[peer]), seconds=budget_s, most=pairs)


def result_of(peer, samples, said, notes):
    ours, base = ([block[0] for block in samples[lane]] for lane in (peer, BASE))
    ratio, spread = quotients(base, ours)
    result = {"notes": notes, "pairs": len(ours), "ratio": ratio, "spread": spread, "first_ms": said["first_ms"],
              "stock_us": quartiles(base)[0], "peer_us": quartiles(ours)[0],
              "clock_us": quartiles([block[1] for block in samples[peer]])[0]}
    if peer != OURS and OURS in samples:  # above 1: hindcast is ahead
        result["hindcast_ratio"], result["hindcast_spread"] = quotients(ours, [block[0] for block in samples[OURS]])
    return result


def measured(row, peers, threads, environment, arguments):
    """A result for each of the peers, and for the lane that they are compared with."""
    workers, said, errors, samples = {}, {}, {}, {}
    try:
        for peer in dict.fromkeys((BASE, *peers)):  # one after the other: two would compile on one core
            worker = Worker(row, peer, threads, environment)
            workers[peer] = worker
            try:
                said[peer] = worker.answer(arguments.limit)
                error = differing(said[peer]["losses"], said[BASE]["losses"])
            except (Failed, KeyError) as failure:
                error = str(failure)
            if error:
                errors[peer] = {"error": error}
                worker.end()
                del workers[peer]
        notes = {}
        if BASE in workers:
            samples = blocks_in_turn(workers, arguments.pairs, arguments.budget or 20)
            notes = {peer: worker.ask("end")["notes"] for peer, worker in workers.items()}
        results = dict.fromkeys((BASE, *peers), {"error": f"{BASE} failed"}) | errors
        results |= {peer: result_of(peer, samples, said[peer], notes[peer]) for peer in samples}
        return [{"row": row, "peer": peer, **result} for peer, result in results.items()]
    finally:
        for worker in workers.values():
            worker.end()
