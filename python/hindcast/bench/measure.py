"""One engine and PyTorch's own in turn, in this process. Forwards are never timed."""

import contextlib
import ctypes
import os
import statistics
import time
from typing import Any, Callable, Optional

import torch
from torch import Tensor

from .lanes import Lane
from .memory import peak_bytes
from .turns import BLOCK_US, agree, in_turn, quartiles, quotients
from .workloads import Workload

_WARM_UP = 3
_FEWEST_PAIRS = 11


def keep_freed_memory() -> None:
    """Makes malloc keep freed memory, like the C++ benchmark: no lane pays page faults by chance."""
    m_trim_threshold, m_mmap_max = -1, -4  # of glibc's malloc.h
    with contextlib.suppress(AttributeError, OSError):
        malloc = ctypes.CDLL(None)
        malloc.mallopt(m_mmap_max, 0)
        malloc.mallopt(m_trim_threshold, 2**31 - 1)


def _loss(workload: Workload, batch: int) -> Tensor:
    for parameter in workload.parameters:
        parameter.grad = None
    return workload.loss(batch)


def _backward_us(workload: Workload, batch: int) -> tuple[float, float]:
    """Wall-clock time, and processor time."""
    loss = _loss(workload, batch)
    start_cpu = time.process_time_ns()
    start = time.perf_counter_ns()
    loss.backward()  # type: ignore[no-untyped-call]
    end = time.perf_counter_ns()
    return (end - start) / 1000, (time.process_time_ns() - start_cpu) / 1000


def _block_us(workload: Workload, lane: Lane, backwards: int) -> tuple[float, float]:
    with lane.context():
        times = [_backward_us(workload, workload.batch) for _ in range(backwards)]
    return statistics.median(clock for clock, _ in times), statistics.median(cpu for _, cpu in times)


def _gradients(workload: Workload, lane: Lane) -> list[Optional[Tensor]]:
    torch.manual_seed(7)
    with lane.context():
        _loss(workload, workload.batch).backward()  # type: ignore[no-untyped-call]
    return [parameter.grad for parameter in workload.parameters]


def _nodes(loss: Tensor) -> int:
    seen = set()
    left = [loss.grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left += [edge for edge, _ in node.next_functions]
    return len(seen)


def waited_ns() -> int:
    """How long threads of this process were ready to run while others, of any process, had the cores."""
    waited = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
                waited += int(file.read().split()[1])
    return waited


def _time_pairs(workload: Workload, lane: Lane, stock: Lane, seconds: float) -> dict[str, Any]:
    guess = statistics.median(_block_us(workload, stock, 1)[0] for _ in range(3))
    backwards = max(1, min(100, int(BLOCK_US / guess)))
    waited, start = waited_ns(), time.perf_counter_ns()
    blocks = in_turn((stock, lane), lambda engine: _block_us(workload, engine, backwards), seconds=seconds, fewest=_FEWEST_PAIRS)
    waited, elapsed = waited_ns() - waited, time.perf_counter_ns() - start
    (stock_us, stock_cpu), (lane_us, lane_cpu) = zip(*blocks[stock]), zip(*blocks[lane])
    ratio, spread = quotients(stock_us, lane_us)
    return {
        "pairs": len(stock_us),
        "backwards": backwards * len(stock_us),
        "stock_us": statistics.median(stock_us),
        "stock_spread": quartiles(stock_us)[1] / statistics.median(stock_us),
        "stock_cpu_us": statistics.median(stock_cpu),
        "us": statistics.median(lane_us),
        "us_spread": quartiles(lane_us)[1] / statistics.median(lane_us),
        "cpu_us": statistics.median(lane_cpu),
        "ratio": ratio,
        "ratio_spread": spread,
        "cpu_ratio": quotients(stock_cpu, lane_cpu)[0],
        "waited": max(0, waited) / elapsed,
    }


def measure(
    workload: Workload, lane: Lane, seconds: float, began: Callable[[dict[str, Any]], None] = lambda row: None
) -> dict[str, Any]:
    """One row: times are medians, in microseconds; spreads are distances of the quartiles over the median.

    `began` is given what is known after the first backward: some take so long that nothing else gets measured.
    """
    stock = Lane()
    expected = _gradients(workload, stock)
    for _ in range(_WARM_UP):
        _block_us(workload, stock, 1)
    lane.start()
    row: dict[str, Any] = {"name": workload.name, "lane": lane.name, "notes": [], **lane.facts()}
    row["nodes"] = _nodes(_loss(workload, workload.batch))

    row["first_us"], _ = _block_us(workload, lane, 1)
    began(row)
    start = time.perf_counter_ns()
    lane.settle()
    row["kernels_us"] = (time.perf_counter_ns() - start) / 1000
    for _ in range(_WARM_UP):
        _block_us(workload, lane, 1)
    if not all(map(agree, expected, _gradients(workload, lane))):
        row["notes"].append("gradients differ from stock's")

    captures = lane.captures()
    row |= _time_pairs(workload, lane, stock, seconds)
    if lane.captures() != captures:
        row["notes"].append("compiled again while it was timed")

    row["stock_peak_bytes"] = peak_bytes(lambda: _loss(workload, workload.batch), stock)
    row["peak_bytes"] = peak_bytes(lambda: _loss(workload, workload.batch), lane)
    # Last: the graph for a second size may be slower at the first.
    with lane.context():
        row["new_batch_us"], _ = _backward_us(workload, workload.batch + 1)
    lane.settle()
    row["ns_per_node"] = lane.walk_us(lambda: _block_us(workload, lane, 1)[0]) * 1000 / row["nodes"]
    return row
