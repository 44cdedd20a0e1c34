"""How bench/peer_run.py and bench/peer_steps.py take turns, and how they evaluate the times."""

import gc
import statistics
import sys
import time

BLOCK_US = 1500
LEAST_STEPS = 5  # per block: a step finds the caches as its own lane's last step left them
WARM_UP = 5


def quartiles(samples):
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return middle, high - low


def quotients(over, under):
    """The median of neighbouring blocks' quotients, and their interquartile range over it."""
    ratio, ratio_iqr = quartiles([a / b for a, b in zip(over, under)])
    return ratio, ratio_iqr / ratio


def settle(trim=False):
    """Waits for hindcast's kernels, which are compiled in the background. With `trim` also frees the memory that it keeps."""
    if "hindcast" in sys.modules:
        sys.modules["hindcast"].wait()
        if trim:
            sys.modules["hindcast"].trim()


def block_of_steps(lane, steps):
    """Medians of the lane's step times, and of their parts."""
    return [statistics.median(column) for column in zip(*(lane.timed_step() for _ in range(steps)))]


def steps_of_block(lane):
    us = statistics.median(block_of_steps(lane, 3)[0] for _ in range(3))
    return max(LEAST_STEPS, min(200, int(BLOCK_US / us)))


def steps_in_turn(lanes, steps, pairs, budget_s):
    """lane -> [microseconds of the blocks' steps, and of each part that it tells]"""
    samples = {lane: [] for lane in lanes}
    gc.collect()
    gc.disable()
    until = time.monotonic() + budget_s
    for pair in range(pairs):
        for lane in lanes if pair % 2 == 0 else reversed(lanes):
            samples[lane].append(block_of_steps(lane, steps))
        if time.monotonic() > until and pair >= 4:
            break
    gc.enable()
    return {lane: list(zip(*blocks)) for lane, blocks in samples.items()}


def in_short(error):
    message = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {message}"[:300]
