"""Dispatch modes that a compiled function opens, and compilers that it calls, which open some: nothing of them is recorded."""

import hindcast
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

CALLS = 4


class Doubling(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if "sin" in str(function) else result


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.functions = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.functions += 1
        return function(*args, **(kwargs or {}))


def doubled(x):
    with Doubling():
        y = x.sin() + 1
    return y.cos()


def drawn(x):
    with Doubling():
        y = torch.rand(3, dtype=x.dtype)
    return x * y


def traced_by_make_fx(x):
    return make_fx(lambda y: y.cos() + 1)(torch.ones(3, dtype=x.dtype))(x)


@pytest.mark.parametrize("function", [doubled, drawn, traced_by_make_fx])
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_mode_that_the_function_opens(function, needs_gradient):
    f = hindcast.aot_function(function, back_off=False)
    for call in range(CALLS):
        torch.manual_seed(call)
        x = torch.randn(2, 3, dtype=torch.float64, requires_grad=needs_gradient)
        seen = []
        for each in (f, function):
            torch.manual_seed(call + 10)
            y = each(x)
            seen.append([y.detach(), torch.autograd.grad(y.sum(), x)[0]] if needs_gradient else [y])
        torch.testing.assert_close(*seen)


def test_a_mode_sees_each_call():
    def function(x):
        with Counting() as mode:
            y = x.exp() * 2
        counts.append(mode.functions)
        return y

    f = hindcast.aot_function(function, back_off=False)
    counts = []
    for _ in range(CALLS):
        f(torch.ones(3))
    assert counts == [2] * CALLS


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_a_function_that_torch_compile_compiles_within_a_trace(dynamic):
    torch._dynamo.reset()
    weight = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    inner = torch.compile(lambda x: (x @ weight).sin(), backend="eager", dynamic=dynamic)
    f = hindcast.aot_function(lambda x: inner(x) * 2, back_off=False)
    for rows in (6, 6, 5, 7, 6):
        x = torch.randn(rows, 4, dtype=torch.float64)
        y = f(x)
        expected = (x @ weight).sin() * 2
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), weight), torch.autograd.grad(expected.sum(), weight))
    torch._dynamo.reset()


def test_why_a_function_that_calls_one_of_torch_compile_runs_eagerly(capfd):
    inner = torch.compile(torch.exp, backend="eager")
    f = hindcast.aot_function(lambda x: inner(x) + 1)
    for _ in range(2):
        f(torch.ones(3, requires_grad=True))
    assert "which calls a function of torch.compile's: pass that function itself" in capfd.readouterr().err
    torch._dynamo.reset()
