"""Runs a program under PyTorch's engine and under hindcast, and compares all results to the bit."""

from typing import Any, Callable

import hindcast
import pytest
import torch

STEPS = 3  # a capture and two hits

needs_named_tensors = pytest.mark.skipif(not hasattr(torch.Tensor, "has_names"), reason="torch 2.13 and later have no named tensors")

RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))


def assert_same(seen: Any, expected: Any, where: str = "result") -> None:
    assert type(seen) is type(expected), f"{where}: {seen!r}, expected {expected!r}"
    if isinstance(expected, torch.Tensor):
        assert seen.dtype == expected.dtype and seen.shape == expected.shape, where
        assert seen.stride() == expected.stride(), f"{where}: strides {seen.stride()}, expected {expected.stride()}"
        assert torch.equal(seen, expected), f"{where}: {seen}, expected {expected}"
    elif isinstance(expected, (list, tuple)):
        assert len(seen) == len(expected), f"{where}: {seen!r}, expected {expected!r}"
        for i, (one, other) in enumerate(zip(seen, expected)):
            assert_same(one, other, f"{where}[{i}]")
    elif isinstance(expected, dict):
        assert list(seen) == list(expected), f"{where}: {list(seen)}, expected {list(expected)}"
        for name, other in expected.items():
            assert_same(seen[name], other, f"{where}[{name!r}]")
    else:
        assert seen == expected, f"{where}: {seen!r}, expected {expected!r}"


def run_seeded(program: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return program()


def same_as_stock(program: Callable[[], Any], sums_differ: bool = False) -> dict[str, Any]:
    """`program` creates its own tensors, runs its backwards and returns its results. Returns the counters of its run under "eager";
    "fused_through_aten" gives the same bits in the order of a fused plan. `sums_differ`: equal up to rounding only, since a backward with
    create_graph leaves one node, and gradients are summed in another order."""
    expected = run_seeded(program)
    for compiler in ("fused_through_aten", "eager"):
        hindcast.reset()
        with hindcast.enable(compiler, async_=False):
            seen = run_seeded(program)
        assert_same(nearly(seen, expected) if sums_differ else seen, expected, compiler)
    return hindcast.stats()


def nearly(seen: Any, expected: Any) -> Any:
    """`expected`, where `seen` equals it up to rounding."""
    if isinstance(seen, torch.Tensor) and isinstance(expected, torch.Tensor) and seen.shape == expected.shape:
        return expected if torch.allclose(seen, expected, rtol=1e-5, atol=1e-6) else seen
    if isinstance(seen, (list, tuple)) and isinstance(expected, (list, tuple)) and len(seen) == len(expected):
        return type(seen)(map(nearly, seen, expected))
    return seen


def leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


def error_of(function: Callable[[], Any]) -> tuple[str, str]:
    """Class and text of what `function` raises."""
    try:
        function()
    except BaseException as error:  # noqa: B902  whatever it is
        return type(error).__name__, str(error)
    return "nothing", ""
