"""Runs a program with a function or module eagerly and compiled, and compares all results: to the bit through ATen, up to rounding with
kernels."""

from typing import Any, Callable

import hindcast
import torch
from side_by_side import assert_same
from torch.utils._pytree import tree_leaves

CALLS = 4  # a trace, and three hits


def gradients_of(result: Any, leaves: list[torch.Tensor]) -> list[Any]:
    """Gradients of a loss in which every element has a different weight."""
    tensors = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not tensors:
        return []
    loss = sum((t.double() * torch.linspace(1, 2, t.numel(), dtype=torch.double).view_as(t)).sum() for t in tensors)
    found = torch.autograd.grad(loss, [leaf for leaf in leaves if leaf.requires_grad], allow_unused=True)
    # An engine chooses which of several gradients to add to, and so the sum's strides.
    return [gradient if gradient is None else gradient.contiguous() for gradient in found]


def detached(value: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, value)


def outcome(
    function: Callable[..., Any], make: Callable[[], tuple[Any, dict[str, Any]]], more: Callable[[], list[torch.Tensor]], seed: int
) -> Any:
    torch.manual_seed(seed)
    args, kwargs = make()
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    torch.manual_seed(seed + 1)
    result = function(*args, **kwargs)
    return detached((result, gradients_of(result, leaves + [leaf for leaf in more() if leaf.requires_grad]), leaves, more()))


def assert_close(seen: Any, expected: Any, where: str) -> None:
    for one, other in zip(tree_leaves(seen), tree_leaves(expected)):
        if isinstance(other, torch.Tensor) and other.is_floating_point():
            largest = other.abs().max().item() if other.numel() else 0.0
            eps = torch.finfo(other.dtype).eps
            bound = 16 * eps * max(largest, 1e-3)
            torch.testing.assert_close(one, other, rtol=0, atol=bound, equal_nan=True, msg=lambda text: f"{where}: {text}")
        else:
            assert_same(one, other, where)


def like_eager(
    function: Callable[..., Any],
    make: Callable[[], tuple[Any, dict[str, Any]]],
    more: Callable[[], list[torch.Tensor]] = lambda: [],
    is_eager: bool = False,
    is_random: bool = False,
    compiled: Callable[..., Any] = hindcast.aot_function,
) -> None:
    """`make` creates new arguments; `more` returns other tensors that have gradients and are compared. `is_random`: kernels draw other
    numbers than ATen."""
    before = detached(more())

    def restore() -> None:
        with torch.no_grad():
            for tensor, value in zip(more(), before):
                tensor.copy_(value)

    restore()
    expected = [outcome(function, make, more, seed) for seed in range(CALLS)]
    for compiler in ("eager", "fused_through_aten", "fused"):
        for partition in (hindcast.partition.standard, hindcast.partition.min_cut):
            for is_enabled in (False, True):
                where = f"{compiler}, {partition}, {'under' if is_enabled else 'without'} a guard"
                restore()
                f = compiled(function, compiler, compiler, partition, async_=False)
                with hindcast.enable("fused_through_aten" if compiler == "fused" else "eager", async_=False, enabled=is_enabled):
                    seen = [outcome(f, make, more, seed) for seed in range(CALLS)]
                for i in range(CALLS):
                    if compiler == "fused" and is_random and i > 0:
                        break
                    (assert_close if compiler == "fused" else assert_same)(seen[i], expected[i], f"{where}, call {i}")
                stats = f.stats() if isinstance(f, hindcast.AotFunction) else f.aot_stats()
                if is_eager:
                    assert stats["eager"] == CALLS and stats["hits"] == 0, (where, stats)
                else:
                    assert stats["hits"] == CALLS - 1 and stats["eager"] == 0, (where, stats)
    restore()
