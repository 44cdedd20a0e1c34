"""Modes of torch functions: they see Python's calls, also in hooks and nodes, and none of those of PyTorch's engine."""

from contextlib import ExitStack, contextmanager

import pytest
import torch
from side_by_side import STEPS, leaf, same_as_stock
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode


class Recording(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.functions = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.functions.append(getattr(function, "__name__", repr(function)))
        return function(*args, **(kwargs or {}))


@contextmanager
def default_device(device):
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


def seen_by_python():
    """The modes that a hook or a node runs under."""
    return torch._C._len_torch_function_stack(), torch._C._is_torch_function_enabled(), torch.ones(2).device.type


class Seeing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        ctx.seen.append(seen_by_python())
        return grad * 1, None


MODES = {
    "default_device": [lambda: default_device("cpu")],
    "another_default_device": [lambda: default_device("meta")],
    "device": [lambda: torch.device("meta")],
    "recording": [Recording],
    "two": [lambda: default_device("meta"), Recording],
    "without_subclasses": [Recording, torch._C.DisableTorchFunctionSubclass],
    "disabled": [Recording, torch._C.DisableTorchFunction],
}
CALLS = {
    "method": lambda loss, w: loss.backward(),
    "backward": lambda loss, w: torch.autograd.backward(loss),
    "backward_of_given": lambda loss, w: torch.autograd.backward(loss, torch.ones((), device="cpu")),
    "grad": lambda loss, w: torch.autograd.grad(loss, w),
    "engine": lambda loss, w: torch.autograd.Variable._execution_engine.run_backward(
        (loss,), (torch.ones((), device="cpu"),), False, False, (w,), allow_unreachable=True, accumulate_grad=True
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("modes", MODES)
def test_a_backward_under_function_modes(modes, call):
    def program():
        w = leaf(3)
        seen, functions = [], []

        def hook(grad):
            seen.append(seen_by_python())
            return grad.mul(2)

        def unpack(tensor):
            seen.append(seen_by_python())
            return tensor

        w.register_post_accumulate_grad_hook(lambda w: seen.append(seen_by_python()))
        for _ in range(STEPS):
            y = w.sin()
            y.register_hook(hook)
            with saved_tensors_hooks(lambda tensor: tensor, unpack):
                y = y.exp()
            loss = Seeing.apply(y, seen).sum()
            with ExitStack() as stack:
                entered = [stack.enter_context(mode()) for mode in MODES[modes]]
                seen.append(CALLS[call](loss, w))
                seen.append(seen_by_python())
            functions += [mode.functions for mode in entered if isinstance(mode, Recording)]
        return w.grad, seen, functions

    stats = same_as_stock(program)
    assert stats["hits"] == STEPS - 1 and stats["fallbacks"] == 0


def test_a_whole_program_under_a_default_device():
    def program():
        with default_device("cpu"):
            model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(STEPS):
                optimizer.zero_grad()
                torch.autograd.backward(model(torch.randn(2, 4)).square().sum())
                optimizer.step()
        return [p.detach() for p in model.parameters()]

    stats = same_as_stock(program)
    assert stats["hits"] == STEPS - 1 and stats["fallbacks"] == 0


def test_an_exception_leaves_the_modes_as_they_were():
    def program():
        def fail(grad):
            raise ValueError("from a hook")

        with Recording():
            for _ in range(STEPS):
                y = leaf(3).sin()
                y.register_hook(fail)
                with pytest.raises(ValueError, match="from a hook"):
                    torch.autograd.backward(y.sum())
                yielded = seen_by_python()
        return yielded, seen_by_python()

    same_as_stock(program)


def test_a_backward_in_a_hook_under_a_function_mode():
    def program():
        v, w = leaf(3), leaf(3)

        @torch.enable_grad()
        def backward_of_cos(grad):
            torch.autograd.backward(v.cos().sum())

        with Recording() as mode:
            for _ in range(STEPS):
                y = w.sin()
                y.register_hook(backward_of_cos)
                torch.autograd.backward(y.sum())
        return v.grad, w.grad, mode.functions

    assert same_as_stock(program)["fallbacks_by_reason"] == {"InsideHook": STEPS}
