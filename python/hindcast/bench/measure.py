"""Times backwards. Forwards are never timed, and the two engines take turns step by step, so that a change of the machine's
speed meets both."""

import gc
import statistics
import time
from typing import Any, Literal, Optional

import hindcast

from .workloads import Workload

Compiler = Literal["fused", "eager", "fused_through_aten"]
_WARM_UP = 3


def _backward_us(workload: Workload, batch: int, guard: Optional[hindcast.enable]) -> float:
    for parameter in workload.parameters:
        parameter.grad = None
    loss = workload.loss(batch)
    if guard is None:
        start = time.perf_counter_ns()
        loss.backward()  # type: ignore[no-untyped-call]
        return (time.perf_counter_ns() - start) / 1000
    with guard:
        start = time.perf_counter_ns()
        loss.backward()  # type: ignore[no-untyped-call]
        return (time.perf_counter_ns() - start) / 1000


def measure(workload: Workload, compiler: Compiler, seconds: float) -> dict[str, Any]:
    """One row of the table; times in microseconds, medians."""
    guard = hindcast.enable(compiler)
    batch = workload.batch
    for _ in range(_WARM_UP):
        _backward_us(workload, batch, None)
    hindcast.reset()
    first = _backward_us(workload, batch, guard)
    hindcast.wait()
    _backward_us(workload, batch, guard)
    new_batch = _backward_us(workload, batch + 1, guard)
    hindcast.wait()
    for _ in range(_WARM_UP):
        _backward_us(workload, batch, guard)

    before = hindcast.stats()
    stock: list[float] = []
    ours: list[float] = []
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(stock) < 10:
            stock.append(_backward_us(workload, batch, None))
            ours.append(_backward_us(workload, batch, guard))
    finally:
        gc.enable()
    after = hindcast.stats()
    nodes = after["nodes"] - before["nodes"]
    backwards = after["backwards"] - before["backwards"]
    stock_us, hindcast_us = statistics.median(stock), statistics.median(ours)
    return {
        "name": workload.name,
        "nodes": nodes // backwards,
        "steps": len(stock),
        "stock_us": stock_us,
        "hindcast_us": hindcast_us,
        "ratio": stock_us / hindcast_us,
        "first_us": first,
        "new_batch_us": new_batch,
        "ns_per_node": (after["collect_us"] - before["collect_us"]) * 1000 / nodes,
        "hits": after["hits"] - before["hits"],
    }
