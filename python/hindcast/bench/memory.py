"""The peak memory of tensors while a backward runs, beyond what the forward left."""

from typing import Any, Callable

from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from .lanes import Lane

_BACKWARD = "hindcast.bench.backward"


def events_of(run: Callable[[], object]) -> list[Any]:
    """The profiler's events while `run` is called, in their order: `[memory]` for what the CPU allocator took and gave back, in
    `nbytes()`, and the operators."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as recorded:
        run()
    # Memory's events are not in the profiler's public list of functions.
    return sorted(recorded.profiler.kineto_results.events(), key=lambda event: event.start_ns())


def peak_bytes(make_loss: Callable[[], Tensor], lane: Lane) -> int:
    """As PyTorch's CPU allocator reports to its profiler: exact, but for tensors only, not for the compiler's own memory.

    Memory that an engine keeps from one backward to the next is returned first, so that this backward has to ask for it.
    """

    def step() -> None:
        loss = make_loss()
        with lane.context():
            lane.trim()
            with record_function(_BACKWARD):
                loss.backward()  # type: ignore[no-untyped-call]

    make_loss()  # drops the gradients before the profiler counts
    events = events_of(step)
    (backward,) = (event for event in events if event.name() == _BACKWARD)
    taken = most = 0
    for event in events:
        if event.name() == "[memory]" and backward.start_ns() <= event.start_ns() <= backward.end_ns():
            taken += event.nbytes()
            most = max(most, taken)
    return most
