"""How engines take turns: a block of each, in an order that is reversed every time, so that a change of the machine's speed meets
all of them. How their times are compared."""

import gc
import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Optional, TypeVar

import torch
from torch import Tensor

BLOCK_US = 1500.0
WARM_UP = 5

_Lane = TypeVar("_Lane", bound=Hashable)
_Block = TypeVar("_Block")


def in_turn(
    lanes: Iterable[_Lane],
    block: Callable[[_Lane], _Block],
    *,
    seconds: float = float("inf"),
    fewest: int = 5,
    most: float = float("inf"),
) -> dict[_Lane, list[_Block]]:
    """What `block` returned for each lane in each round. A round is a block of every lane.

    There are at least `fewest` rounds, then rounds until `seconds` have passed, and never more than `most`. The garbage
    collector is off.
    """
    blocks: dict[_Lane, list[_Block]] = {lane: [] for lane in lanes}
    order = list(blocks)
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        until = time.monotonic() + seconds
        rounds = 0
        while rounds < most and (rounds < fewest or time.monotonic() < until):
            for lane in order:
                blocks[lane].append(block(lane))
            order.reverse()
            rounds += 1
    finally:
        if collects:
            gc.enable()
    return blocks


def quartiles(samples: Sequence[float]) -> tuple[float, float]:
    """The median and the interquartile range."""
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return middle, high - low


def quotients(over: Sequence[float], under: Sequence[float]) -> tuple[float, float]:
    """The median of the quotients of each round, and their interquartile range over it."""
    ratio, distance = quartiles([first / second for first, second in zip(over, under)])
    return ratio, distance / ratio


def agree(expected: Optional[Tensor], seen: Optional[Tensor]) -> bool:
    """Whether a gradient is stock's, up to rounding."""
    defined = [gradient for gradient in (seen, expected) if gradient is not None]
    return not defined or (len(defined) == 2 and torch.allclose(*defined, rtol=1e-3, atol=1e-5))


def in_short(error: BaseException) -> str:
    """The error of a row: whatever a compiler raises, in one line."""
    message = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {message}"[:300]
