"""Calls that are left to PyTorch's engine unchanged, each counted with its reason."""

import warnings

import torch
from side_by_side import STEPS, error_of, leaf, same_as_stock
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


def reasons(program):
    return same_as_stock(program)["fallbacks_by_reason"]


def grads_of_sin():
    w = leaf(3)
    w.sin().sum().backward()
    return w.grad


def test_anomaly_mode():
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad * float("nan")

    def program():
        with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = Failing.apply(leaf(3)).sum()
            return error_of(y.backward)

    assert reasons(program) == {"AnomalyMode": 1}


def test_dispatch_modes():
    class Recording(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.ops = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.ops.append(str(function))
            return function(*args, **(kwargs or {}))

    def program():
        with Recording() as mode:
            grads_of_sin()
        return mode.ops

    assert reasons(program) == {"DispatchState": 1}


def test_a_flop_counter_counts_the_backward():
    def program():
        w = leaf(4, 4)
        with FlopCounterMode(display=False) as counter:
            (w @ w).sum().backward()
        return counter.get_total_flops()

    assert reasons(program) == {"DispatchState": 1}


def test_tensor_subclasses_as_roots():
    class Tagged(torch.Tensor):
        pass

    def program():
        w = leaf(3)
        w.sin().sum().as_subclass(Tagged).backward()
        return w.grad

    assert reasons(program) == {"TensorSubclass": 1}


def test_tensor_subclasses_inside_the_graph():
    class Tagged(torch.Tensor):
        pass

    def program():
        w = leaf(3)
        for _ in range(STEPS):
            (w.sin().as_subclass(Tagged) * 2).as_subclass(torch.Tensor).sum().backward()
        return w.grad

    reasons(program)


def test_two_tensor_wrapper_subclass():
    from torch.testing._internal.two_tensor import TwoTensor

    def program():
        w = torch.nn.Parameter(TwoTensor(torch.randn(3), torch.randn(3)))
        v = leaf(3)
        for _ in range(STEPS):
            y = (w * v).sin().sum()
            y.backward()
        return w.grad.a, w.grad.b, v.grad.a if isinstance(v.grad, TwoTensor) else v.grad

    reasons(program)


def test_forward_mode():
    import torch.autograd.forward_ad as forward_ad

    def program():
        with forward_ad.dual_level():
            return grads_of_sin()

    assert reasons(program) == {"ForwardMode": 1}


def test_functorch():
    def program():
        return torch.func.vmap(torch.func.grad(lambda x: x.sin().sum()))(torch.randn(2, 3))

    same_as_stock(program)


def test_grad_inside_a_functorch_transform():
    def program():
        def inner(x):
            y = x.detach().requires_grad_()
            return torch.autograd.grad(y.sin().sum(), y)[0]

        return torch.func.vmap(inner)(torch.randn(2, 3))

    same_as_stock(lambda: error_of(program) if error_of(program)[0] != "nothing" else program())


def test_meta_tensors():
    def program():
        w = torch.ones(3, device="meta", requires_grad=True)
        w.sin().sum().backward()
        return w.grad.device.type

    assert reasons(program) == {"OtherDevice": 1}
