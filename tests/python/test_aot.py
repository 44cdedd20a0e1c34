"""Functions and modules compiled ahead of time, compared with themselves."""

import collections
import contextlib
import copy
import functools
import gc
import io
import math
import operator
import os
import signal
import threading
import weakref

import hindcast
import numpy
import pytest
import torch
import torch.nn.functional as F
from aot_beside_eager import CALLS, detached, gradients_of, like_eager
from device_of_tests import DEVICE, not_on_a_card
from side_by_side import RELEASE, assert_same, error_of, leaf
from torch import nn
from torch.utils import _pytree as pytree

# ---- functions


class Scaled(torch.autograd.Function):
    is_traceable = True

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.sin() * factor

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.cos() * ctx.factor, None


def gru(x, h, weights):
    return torch.gru(x, h, weights, True, 1, 0.0, True, False, False)


def masked_loss(batch, options, scale=1.0):
    logits = batch["x"] @ batch["w"]
    if options[1] is not None:
        logits = logits + options[1]
    return {"loss": F.cross_entropy(logits, batch["target"]) * scale, "scale": scale, "parts": [logits, (None, options[0])]}


def batch():
    return {"x": torch.randn(5, 4), "w": leaf(4, 3), "target": torch.randint(0, 3, (5,))}


def written(x, y):
    x.mul_(2)
    y = y * x
    y[:, 1:] += 1
    return y, x


FUNCTIONS = {
    "cos": (lambda a, b: (a + b).cos().cos(), lambda: ((leaf(3, 4), leaf(3, 4)), {})),
    "kwargs": (masked_loss, lambda: ((batch(),), {"options": (7, leaf(3)), "scale": 0.5})),
    "none": (masked_loss, lambda: ((batch(), (True, None)), {})),
    "list": (lambda xs: [x * len(xs) for x in xs] + [torch.stack(xs).sum(0)], lambda: (([leaf(3), leaf(3)],), {})),
    "numbers": (lambda x, n, s: x.sum(n) * s, lambda: ((leaf(3, 4), 1, 2.5), {})),
    "scalars": (lambda x: x.mean() * 0.5 + 1, lambda: ((leaf(3, 4),), {})),
    "item": (lambda x: x * x.detach().abs().max().ceil().clamp(9, 9).item(), lambda: ((leaf(3, 4),), {})),
    "branch": (lambda x: x.exp() if (x.detach().abs().sum() >= 0) else x, lambda: ((leaf(3, 4),), {})),
    "custom": (lambda x: Scaled.apply(x * 2, 3.0).exp(), lambda: ((leaf(3, 4),), {})),
    "dropout": (lambda x: F.dropout(x, 0.4) + torch.rand(3, 4), lambda: ((leaf(3, 4),), {})),
    "gru": (gru, lambda: ((torch.randn(5, 2, 3), torch.zeros(1, 2, 4), [leaf(12, 3), leaf(12, 4), leaf(12), leaf(12)]), {})),
    "no gradient": (lambda x: x.softmax(-1), lambda: ((torch.randn(3, 4),), {})),
    "in place": (written, lambda: ((torch.randn(3, 4), leaf(3, 4)), {})),
    "views": (lambda x: (x.t(), x[1:].exp(), x.detach()), lambda: ((leaf(3, 4),), {})),
    "autocast": (lambda x, w: torch.autocast("cpu", torch.bfloat16)(lambda: (x @ w).relu())(), lambda: ((leaf(3, 4), leaf(4, 5)), {})),
    "vmap": (lambda x: torch.vmap(torch.dot)(x, x), lambda: ((leaf(3, 4),), {})),
    "grad inside": (lambda x: torch.func.grad(lambda y: y.sin().sum())(x) * x, lambda: ((leaf(3, 4),), {})),
    "checkpoint": (
        lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.sin().exp(), x, use_reentrant=False) * 2,
        lambda: ((leaf(3, 4),), {}),
    ),
}


def since_2_15(name):
    reason = "a checkpoint of PyTorch 2.15 holds saved tensors where a trace cannot look, so that the function runs eagerly"
    return pytest.param(name, marks=pytest.mark.skipif(name == "checkpoint" and RELEASE >= (2, 15), reason=reason))


@pytest.mark.parametrize("name", map(since_2_15, FUNCTIONS))
def test_a_function_is_like_eager(name):
    like_eager(*FUNCTIONS[name], is_random=name == "dropout")


def lstm(x, h, c, weights):
    return torch.lstm(x, (h, c), weights, True, 1, 0.0, True, False, False)


def lstm_arguments():
    return (torch.randn(5, 2, 3), torch.zeros(1, 2, 4), torch.zeros(1, 2, 4), [leaf(16, 3), leaf(16, 4), leaf(16), leaf(16)]), {}


def test_an_lstm_is_like_eager():
    # A program cannot run oneDNN's op: PyTorch runs it.
    like_eager(lstm, lstm_arguments, is_eager=torch.backends.mkldnn.is_available())


def with_hook(x):
    y = x.sin()
    y.register_hook(lambda gradient: gradient * 2)
    return y.exp()


EAGER = {
    "numpy": lambda x: x * float(x.detach().numpy().sum()),
    "data_ptr": lambda x: x * (x.data_ptr() > 0),
    "tolist": lambda x: x * sum(x.flatten().tolist()),
    "repr": lambda x: x * len(repr(x)),
    "repeat_interleave": lambda x: (x * 2).flatten().repeat_interleave(x.flatten().gt(0) + 1).sum(),
    "hook": with_hook,
    "sparse": lambda x: x * x.detach().to_sparse().to_dense(),
    "reentrant checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.sin().exp(), x, use_reentrant=True),
}


@pytest.mark.parametrize("name", EAGER)
def test_what_cannot_be_traced_runs_as_it_is(name):
    if name == "reentrant checkpoint":
        x = leaf(3, 4)
        f = hindcast.aot_function(EAGER[name])
        for _ in range(2):
            x.grad = None
            f(x).sum().backward()
            assert_same(x.grad, torch.autograd.grad(x.sin().exp().sum(), x)[0])
        assert f.stats()["eager"] == 2
        return
    like_eager(EAGER[name], lambda: ((leaf(3, 4),), {}), is_eager=True)


def test_without_fallback_it_raises():
    f = hindcast.aot_function(EAGER["numpy"], fallback=False)
    with pytest.raises(RuntimeError, match="cannot be traced"):
        f(leaf(3, 4))


def test_a_wrapper_of_torch_func_goes_to_the_function():
    f = hindcast.aot_function(lambda x: x.sin() * x)
    x = torch.randn(3, 4)
    assert_same(torch.vmap(f)(x), x.sin() * x)
    assert_same(torch.func.grad(lambda y: f(y).sum())(x), torch.func.grad(lambda y: (y.sin() * y).sum())(x))
    assert f.stats()["eager"] == f.stats()["calls"] == 2


def test_numbers_are_told_apart():
    f = hindcast.aot_function(lambda x, n: x * n if n is not True else x - 1, "eager", "eager")
    x = torch.arange(3.0)
    for n in (1, True, 1.0, 0.0, -0.0, 2, 2):
        for _ in range(2):
            expected = x * n if n is not True else x - 1
            assert_same(f(x, n), expected)
            assert torch.equal(f(x, n).signbit(), expected.signbit())


def test_sizes_become_dynamic():
    f = hindcast.aot_function(lambda x, w: (x @ w).relu().sum(0), "eager", "eager")
    w = leaf(4, 3)
    for n in (2, 3, 5, 7, 11):
        x = torch.randn(n, 4)
        assert_same(torch.autograd.grad(f(x, w).sum(), w), torch.autograd.grad((x @ w).relu().sum(0).sum(), w))
    assert f.stats()["traces"] <= 3
    g = hindcast.aot_function(lambda x: x * 2, static_argnums=0)
    for n in (2, 3, 5):
        g(torch.ones(n))
    assert g.stats()["traces"] == 3


@functools.lru_cache
def ones_of(size):
    return torch.ones(size)


# What Python does with sizes.
BY_SIZE = {
    "quotient": lambda x: x / x.size(0) + x.sum() / x.numel(),
    "half": lambda x: x[: int(x.size(0) * 0.5)] * round(x.shape[0] / 3),
    "ceil": lambda x: x[: math.ceil(x.size(0) / 2)] * math.sqrt(len(x)),
    "power": lambda x: x * x.size(0) ** 0.5,
    "cached": lambda x: x * ones_of(x.size(0)),
    "table": lambda x: x * {4: 1.0, 5: 2.0}.get(x.size(0), 3.0),
    "isinstance": lambda x: x * (1 if isinstance(x.size(0), int) else 2),
    "bits": lambda x: x * ((x.size(0) ^ 1) + (1 << x.size(0)) + x.size(0).bit_length()),
    "loop": lambda x: sum(x[i] * i for i in range(x.size(0))),
    "tensor": lambda x: x * torch.tensor(x.size(0)) + torch.arange(x.size(0)),
    "array": lambda x: x * torch.from_numpy(numpy.arange(x.size(0), dtype="float32")),
    "shape": lambda x: x.view(x.shape[0], 1).expand(*x.shape, 3).reshape(-1),
    "zeros": lambda x: torch.zeros(x.size(0), x.size(0) * 2) + x[:, None],
    "results": lambda x: (x.size(0), x.shape, x * 2),
    "parity": lambda x: x * 2 if x.size(0) % 2 else x.exp(),
    "split": lambda x: torch.cat(x.chunk(2)[::-1]) + x.split(x.size(0) // 2 + 1)[0].sum(),
}


@pytest.mark.parametrize("name", BY_SIZE)
def test_sizes_are_numbers(name):
    f = hindcast.aot_function(BY_SIZE[name], "eager", "eager", limit=16)
    for size in (4, 5, 7, 9, 10, 12, 4, 5, 13, 10):
        x = leaf(size)
        seen, expected = f(x), BY_SIZE[name](x)
        assert_same(detached(seen), detached(expected), str(size))
        assert_same(gradients_of(seen, [x]), gradients_of(expected, [x]), str(size))


def test_the_state_of_the_thread_is_part_of_the_call():
    f = hindcast.aot_function(lambda x: x.exp() * 2, "eager", "eager")
    x = leaf(3)
    for _ in range(2):
        assert f(x).requires_grad
        with torch.no_grad():
            assert not f(x).requires_grad
        with torch.inference_mode():
            assert f(x).is_inference()
    g = hindcast.aot_function(lambda x: (torch.ones(3), x * 2), "eager", "eager")
    x = torch.ones(3)
    for _ in range(4):
        with torch.device("meta"):
            assert g(x)[0].device.type == "meta"
        assert g(x)[0].device.type == DEVICE


def counted_index(x):
    index = torch.tensor([0, 1, 2])
    index += 1
    index %= 3
    return x[index]


def total(x):
    loss = torch.tensor(0.0)
    for factor in range(3):
        loss += (x * factor).sin().sum()
    return loss, torch.tensor([1.0, 2.0])


def written_through_a_view(x):
    factors = torch.tensor([1.0, 2.0, 3.0])
    middle = factors[1:]
    before = x.detach() * factors
    middle.mul_(2)
    factors[0] = x[1]
    return before + factors * x, factors, middle[0]


def twice(x):
    made = torch.tensor([1.0])
    return made, made, x * 2


@pytest.mark.parametrize("function", [counted_index, total, written_through_a_view, twice])
def test_tensors_made_of_numbers_are_new_in_each_call(function):
    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(4):
        x = leaf(3)
        seen, expected = f(x), function(x)
        assert_same(detached(seen), detached(expected))
        assert_same(gradients_of(seen, [x]), gradients_of(expected, [x]))
        with torch.no_grad():
            for result in seen if isinstance(seen, tuple) else [seen]:
                result += 1
    assert f.stats()["hits"] == 3


MADE_LIKE_AN_ARGUMENT = {
    "new_tensor": lambda x: x * x.new_tensor([1.0, 2.0, 3.0]) + x.new_tensor(data=3, dtype=torch.int64),
    "new of numbers": lambda x: x * x.new([1.0, 2.0, 3.0]) + x.new((0.5,)),
    "new of sizes": lambda x: x * x.new(2, x.size(0)).fill_(2.0) + x.new(torch.Size([3])).zero_() + x.new().sum(),
    "new of a tensor": lambda x: x * x.new(x),
}


@pytest.mark.parametrize("name", MADE_LIKE_AN_ARGUMENT)
def test_tensors_made_like_an_argument(name):
    function = MADE_LIKE_AN_ARGUMENT[name]
    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(4):
        x = leaf(3)
        seen, expected = f(x), function(x)
        assert_same(detached(seen), detached(expected))
        assert_same(gradients_of(seen, [x]), gradients_of(expected, [x]))
    assert f.stats()["hits"] == 3


CHECKED = {
    "cholesky": lambda a: torch.linalg.cholesky(a),
    "inv": lambda a: torch.linalg.inv(a).sum(),
    "solve": lambda a: torch.linalg.solve(a, torch.ones(2)),
    "result that nobody reads": lambda a: (torch.linalg.inv(a), a * 2)[1],
    "assert": lambda a: (torch._assert_async(a.sum() > 0), a * 2)[1],
}


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("with_gradient", [False, True])
def test_operators_that_only_check_their_operand(name, with_gradient):
    function = CHECKED[name]
    f = hindcast.aot_function(function, async_=False)
    good, bad = torch.eye(2), torch.zeros(2, 2)
    for a in (good, good * 2, bad, good * 3, bad):
        seen, expected = (a.clone().requires_grad_(with_gradient) for _ in range(2))
        try:
            result = function(expected)
        except RuntimeError as error:
            with pytest.raises(type(error)) as raised:
                f(seen)
            assert type(raised.value) is type(error)
            assert str(raised.value).splitlines()[0] == str(error).splitlines()[0]
        else:
            assert_same(detached(f(seen)), detached(result))


def test_an_error_of_a_tensor_made_like_an_argument():
    f = hindcast.aot_function(lambda x: x.new_tensor("text"))
    with pytest.raises(TypeError, match="new\\(\\): invalid data type 'str'"):
        f(torch.ones(3))
    assert "new_tensor" not in vars(torch.Tensor)


def test_a_tensor_made_of_numbers_that_is_kept():
    kept = []

    def function(x):
        made = torch.tensor([1.0])
        made += 1
        kept.append(made)
        return x * made

    f = hindcast.aot_function(function, async_=False)
    for _ in range(4):
        assert_same(f(torch.ones(1)), torch.tensor([2.0]))
        kept[-1] += 5
    assert len({id(made) for made in kept}) == 4


DEFAULT_DEVICE = DEVICE if "HINDCAST_TEST_DEVICE" in os.environ else None
SETTINGS = {
    "default dtype": (torch.set_default_dtype, torch.get_default_dtype, torch.float64),
    "default device": (torch.set_default_device, torch.get_default_device, torch.device("meta")),
    "grad mode": (torch.set_grad_enabled, torch.is_grad_enabled, False),
    "autocast": (lambda on: torch.set_autocast_enabled("cpu", on), lambda: torch.is_autocast_enabled("cpu"), True),
    "autocast's dtype": (lambda dtype: torch.set_autocast_dtype("cpu", dtype), lambda: torch.get_autocast_dtype("cpu"), torch.float16),
    "determinism": (torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled, True),
    "precision": (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision, "medium"),
    "threads": (torch.set_num_threads, torch.get_num_threads, 2),
    "attention": (torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.flash_sdp_enabled, False),
    "denormals": (torch.set_flush_denormal, lambda: (torch.tensor(1e-310, dtype=torch.float64) * 1).item() == 0, True),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_function_that_changes_a_setting(name):
    change, now, other = SETTINGS[name]
    before = now()

    def function(x):
        y = x.sin().sum()
        change(other)
        return y

    f = hindcast.aot_function(function, async_=False)
    for _ in range(4):
        try:
            y = f(leaf(3))
            assert now() == other
        finally:
            change(before)
        y.backward()
    torch.set_default_device(DEFAULT_DEVICE)


def test_a_setting_for_some_operators():
    weight = torch.randn(4, 4)

    def function(x):
        with torch.backends.mkldnn.flags(enabled=False):
            y = x @ weight
        return y.sin()

    f = hindcast.aot_function(function, async_=False)
    for _ in range(3):
        assert_same(f(weight), function(weight))
    assert f.stats()["eager"] == 3
    g = hindcast.aot_function(lambda x: in_bfloat16(x @ weight), async_=False)  # an autocast region is in the program
    for _ in range(3):
        assert g(weight).dtype == torch.bfloat16
    assert g.stats()["hits"] == 2


class InItsOwnDtype(torch.autograd.Function):
    is_traceable = True

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return (gradient * torch.ones(gradient.shape)).float()


class ChangesThreads(torch.autograd.Function):
    is_traceable = True

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        torch.set_num_threads(2)
        return gradient * 2


def in_float64(x):
    torch.set_default_dtype(torch.float64)
    try:
        return x * torch.ones(x.shape), torch.linspace(0, 1, 3)
    finally:
        torch.set_default_dtype(torch.float32)


def flushed(x):
    torch.set_flush_denormal(True)
    y = x * 1e-40
    torch.set_flush_denormal(False)
    return y


@pytest.mark.parametrize("function", [in_float64, flushed])
@pytest.mark.parametrize("compiler", ["eager", "fused"])
def test_a_setting_that_is_changed_and_restored(function, compiler):
    f = hindcast.aot_function(function, compiler, compiler, async_=False)
    for _ in range(3):
        x = leaf(2000)
        assert_same(detached(f(x)), detached(function(x)))


@pytest.mark.parametrize("compiler", ["eager", "fused"])
def test_a_backward_under_another_default_dtype(compiler):
    f = hindcast.aot_function(InItsOwnDtype.apply, compiler, compiler, async_=False)
    for call in range(4):
        x = leaf(2000)
        y = f(x).sum()
        torch.set_default_dtype(torch.float64 if call > 1 else torch.float32)
        try:
            y.backward()
        finally:
            torch.set_default_dtype(torch.float32)
        assert_same(x.grad, torch.ones(2000))
    assert f.stats()["hits"] == 3


def test_a_formula_that_changes_a_setting():
    f = hindcast.aot_function(ChangesThreads.apply, async_=False)
    for _ in range(3):
        f(leaf(3)).sum().backward()
        try:
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(1)


def test_several_backwards_through_a_tensor_made_of_numbers():
    def function(x):
        made = torch.tensor([1.0, 2.0, 3.0])
        mask = x > -100
        made[mask] = x[mask].sin()
        return made

    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(3):
        x = leaf(3)
        y = f(x)
        for _ in range(3):
            assert_same(torch.autograd.grad(y, x, torch.ones(3), retain_graph=True)[0], x.detach().cos())


def in_bfloat16(x):
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x


def test_a_size_is_a_size():
    def function(x, shape):
        return x.reshape(shape) * shape.numel(), x.shape, {"sizes": [shape]}

    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(3):
        y, of_x, others = f(torch.ones(2, 3), torch.Size([3, 2]))
        assert y.shape == (3, 2) and type(of_x) is torch.Size and type(others["sizes"][0]) is torch.Size
    assert f.stats()["hits"] == 2


def test_backward_twice():
    f = hindcast.aot_function(lambda x: x.sin().exp(), "eager", "eager")
    x = leaf(3)
    for _ in range(3):
        y = f(x).sum()
        first = torch.autograd.grad(y, x, retain_graph=True)
        assert_same(torch.autograd.grad(y, x), first)
        with pytest.raises(RuntimeError, match="a second time"):
            torch.autograd.grad(y, x)


def test_double_backward():
    def second(f, x):
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return g, torch.autograd.grad(g.square().sum(), x)

    def function(x):
        return x.sin().exp() * x

    f = hindcast.aot_function(function, "eager", "eager")
    x = leaf(3)
    for _ in range(3):
        assert_same(second(f, x), second(function, x))


def test_an_exception_comes_through():
    class Mine(Exception):
        pass

    def function(x, fails):
        y = x * 2
        if fails:
            raise Mine("of the function")
        return y

    f = hindcast.aot_function(function)
    x = leaf(3)
    for _ in range(2):
        with pytest.raises(Mine, match="of the function") as caught:
            f(x, True)
        assert caught.traceback[-1].name == "function"
        f(x, False).sum().backward()
    assert f.stats()["hits"] == 1
    for _ in range(2):
        assert error_of(lambda: hindcast.aot_function(lambda x, y: x @ y)(torch.ones(2, 3), torch.ones(2, 3))) == error_of(
            lambda: torch.ones(2, 3) @ torch.ones(2, 3)
        )


def test_a_backward_never_runs_the_function():
    running = []

    def function(x, y):
        running.append(torch._C._current_graph_task_id())
        return x.sin() * y, y.exp()

    f = hindcast.aot_function(lambda x, y: (x.sin() * y, y.exp()))
    for call in range(6):
        x, y = leaf(3), leaf(3)
        first = torch.autograd.grad(f(x, y)[call % 2].sum(), (x, y), create_graph=call % 3 == 0, allow_unused=True)
        expected = torch.autograd.grad(function(x, y)[call % 2].sum(), (x, y), allow_unused=True)
        assert [g is None for g in first] == [g is None for g in expected]
        assert all(torch.allclose(a, b) for a, b in zip(first, expected) if a is not None)
    assert f.stats()["traces"] == 1 and f.stats()["hits"] == 5

    g = hindcast.aot_function(function)  # it changes what it sees: it runs eagerly
    for call in range(6):
        x, y = leaf(3), leaf(3)
        torch.autograd.grad(g(x, y)[call % 2].sum(), (x, y), create_graph=call % 3 == 0, allow_unused=True)
    assert len(running) == 12 and all(task == -1 for task in running)


@pytest.mark.parametrize("clear", ["zero_grad", "None", "inner"])
def test_a_function_that_clears_gradients_does_so_in_each_call(clear):
    def make():
        model = torch.nn.Linear(2, 1)

        def function(x):
            if clear == "zero_grad":
                model.zero_grad()
            elif clear == "None":
                model.weight.grad = None
            else:
                for parameter in model.parameters():
                    setattr(parameter, "grad", None)
            return model(x).sum()

        return model, function

    seen = []
    for wrap in (lambda function: function, hindcast.aot_function):
        model, function = make()
        wrapped = wrap(function)
        for _ in range(4):
            wrapped(torch.ones(1, 2)).backward()
            seen.append(model.weight.grad[0, 0].item())
    assert seen == [1.0] * 8
    assert "grad" not in vars(torch.Tensor)


def test_a_tensor_that_is_given_twice_is_one_tensor():
    def function(x, y, write):
        if write:
            y.mul_(2)
        return (x * y).sum() if x is y else (x + y).sum()

    f = hindcast.aot_function(function)
    for call in range(8):
        for write in (False, True):
            results = []
            for each in (f, function):
                torch.manual_seed(call)
                w = leaf(3)
                x, other = w * 1, w * 3
                each(x, x if call % 2 else other, write).backward()
                results.append((x.detach(), w.grad))
            for ours, stock in zip(*results):
                assert torch.allclose(ours, stock)
    assert f.stats()["hits"] > 0


def test_calls_with_a_tensor_twice_are_recognised_in_c():
    f = hindcast.aot_function(lambda x, y, others: (x * y + others[0]).sum(), back_off=False, async_=False)
    in_c = f._call_in_c
    missed = object()
    for call in range(8):
        x, other = leaf(3), leaf(3)
        for args in ((x, x, [other]), (x, other, [x]), (x, other, [other]), (x, other, [leaf(3)])):
            if call < 4:
                result = f(*args)
            else:
                result = in_c(f, args, {}, missed, False)
                assert result is not missed
            distinct = list({id(each): each for each in (*args[:2], *args[2])}.values())
            stock = torch.autograd.grad((args[0] * args[1] + args[2][0]).sum(), distinct)
            for ours, expected in zip(torch.autograd.grad(result, distinct), stock):
                assert torch.allclose(ours, expected)


def test_a_list_at_two_places_is_one_list():
    def function(a, b):
        a.append(a[0] * 2)
        return sum(each.sum() for each in b)

    f = hindcast.aot_function(function)
    for _ in range(4):
        results = []
        for each in (f, function):
            torch.manual_seed(1)
            values = [leaf(3)]
            results.append((each(values, values).item(), len(values)))
        assert results[0] == results[1]


@pytest.mark.parametrize(
    "function, use",
    [
        (lambda x: (x * factor for factor in (1.0, 2.0)), lambda result: sum(result)),
        (lambda x: map(lambda factor: x * factor, (1.0, 2.0)), lambda result: sum(result)),
        (lambda x: lambda: x * 2, lambda result: result()),
        (lambda x: (x.sin(), lambda: x * 2), lambda result: result[0] * result[1]()),
    ],
)
def test_what_is_lazy_keeps_the_gradient_of_a_leaf(function, use):
    f = hindcast.aot_function(function)
    for _ in range(5):
        x = leaf(3)
        (stock,) = torch.autograd.grad(use(function(x)).sum(), x)
        use(f(x)).sum().backward()
        assert torch.equal(x.grad, stock)


def test_c_tells_one_list_at_two_places_from_two_equal_lists():
    f = hindcast.aot_function(lambda x, a, b: x * (2 if a is b else 3), back_off=False, async_=False)
    x = torch.ones(3)
    for _ in range(4):
        assert torch.equal(f(x, [1], [1]), x * 3)
    one = [1]
    assert torch.equal(f(x, one, one), x * 2)
    assert torch.equal(f(x, [1], [1]), x * 3)


def test_what_a_function_appends_to_a_deque_is_there():
    def function(x, values):
        values.append(x * 2)
        return x.sin()

    f = hindcast.aot_function(function)
    for _ in range(3):
        values = collections.deque(maxlen=2)
        f(leaf(3), values).sum().backward()
        assert len(values) == 1


def test_attributes_of_a_torchscript_module_may_change():
    class Scaled(torch.nn.Module):
        factor: float

        def __init__(self):
            super().__init__()
            self.factor = 2.0

        def forward(self, x):
            return (x * self.factor).sin()

    scripted = torch.jit.script(Scaled())
    f = hindcast.aot_module(scripted)
    for factor in (2.0, 2.0, 3.0, 4.0):
        scripted.factor = factor
        x = leaf(3)
        assert torch.allclose(f(x), scripted(x))


def test_a_result_whose_class_has_one_slot():
    class Out:
        __slots__ = ("value",)

        def __init__(self, value):
            self.value = value

    f = hindcast.aot_function(lambda x: Out(x * 2))
    for _ in range(3):
        x = leaf(3)
        f(x).value.sum().backward()
        assert torch.equal(x.grad, torch.full((3,), 2.0))


@pytest.mark.parametrize("sizes", [[(5, 0)] * 4, [(5, 4), (5, 5), (5, 0), (5, 6), (5, 0)]])
def test_rows_without_elements(sizes):
    def function(x, w):
        return x.square().sum(-1, keepdim=True) * x.sin(), x.sum(-1, keepdim=True) * 2 + w, torch.nn.functional.layer_norm(x, x.shape[-1:])

    f = hindcast.aot_function(function)
    for size in sizes:
        x, w = leaf(size), leaf((5, 1))
        ours, stock = f(x, w), function(x, w)
        hindcast.wait()
        for a, b in zip(ours, stock):
            assert torch.allclose(a, b)
        gradients = [torch.autograd.grad(sum(y.sum() for y in results), (x, w)) for results in (ours, stock)]
        for a, b in zip(*gradients):
            assert torch.allclose(a, b, atol=1e-5)


# Each of these was once a segmentation fault, an error, or a lost gradient.
def test_gradients_of_all_kinds():
    def function(x):
        return x.sin() * x

    f = hindcast.aot_function(function)
    for _ in range(3):
        x = leaf(4)
        expected = torch.diag(torch.autograd.grad(function(x).sum(), x)[0])
        assert torch.allclose(torch.autograd.grad(f(x), x, torch.eye(4), is_grads_batched=True)[0], expected)
        assert torch.allclose(torch.autograd.functional.jacobian(f, x, vectorize=True), expected)
        sparse = torch.eye(4)[0].to_sparse()
        ours, stock = (torch.autograd.grad(call(x), x, sparse)[0].to_dense() for call in (f, function))
        assert torch.allclose(ours, stock)
        zeros = torch._efficientzerotensor((4,))
        assert torch.equal(torch.autograd.grad(f(x), x, zeros)[0] + 0, torch.zeros(4))

    class PassOn(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    for _ in range(3):
        x = leaf(4)
        y = (f(x) * 2).sum()
        with PassOn():
            y.backward()
        assert torch.allclose(x.grad, 2 * torch.autograd.grad(function(x).sum(), x)[0])


class Doubtful(torch.autograd.Function):
    """Its backward does what a program cannot express."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 if gradient.sum() > 0 else gradient * -3


@pytest.mark.parametrize("declared", [False, True])
def test_a_custom_function_is_itself(declared, monkeypatch):
    monkeypatch.setattr(Doubtful, "is_traceable", declared, raising=False)
    f = hindcast.aot_function(lambda x, sign: Doubtful.apply(x.sin() * 1) * sign)
    for call in range(6):
        x, sign = leaf(3), torch.tensor(1.0 if call % 2 else -1.0)
        f(x, sign).sum().backward()
        assert torch.allclose(x.grad, x.detach().cos() * (2.0 if call % 2 else 3.0))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, view):
        return view(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient, None


REVERSALS = {
    "argument": lambda x, view: Reversed.apply(x, view),
    "view of it": lambda x, view: Reversed.apply(x, view)[:],
    "of a view": lambda x, view: Reversed.apply(x[:], view),
    "beside the argument": lambda x, view: (x, Reversed.apply(x, view)),
    "beside a result": lambda x, view: (lambda h: (h, Reversed.apply(h, view)))(x * 2),
    "in the middle": lambda x, view: Reversed.apply(x * 2, view).exp(),
}


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.view_as(x)], ids=["itself", "view"])
@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("function", REVERSALS.values(), ids=REVERSALS)
def test_a_view_that_a_custom_function_makes_has_its_backward(function, declared, view, monkeypatch):
    monkeypatch.setattr(Reversed, "is_traceable", declared, raising=False)

    def plain(x):
        return function(x, view)

    compiled = hindcast.aot_function(plain, "eager", "eager")
    for _ in range(3):
        x = leaf(3)
        results = compiled(x), plain(x)
        seen, expected = (sum((n + 2) * y.sin().sum() for n, y in enumerate(pytree.tree_leaves(each))) for each in results)
        assert_same(torch.autograd.grad(seen, x), torch.autograd.grad(expected, x))


KEEPERS = {
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(torch.tanh, x, use_reentrant=False),
    "custom Function": lambda x: Doubtful.apply(x.tanh() * 1),
}


@pytest.mark.parametrize("keeps", KEEPERS.values(), ids=KEEPERS)
def test_what_a_function_keeps_can_be_read_and_copied(keeps, monkeypatch):
    """Whether it is kept is known only behind the backward here: saved-tensor hooks and Functions may hold tensors, too."""
    monkeypatch.setattr(Doubtful, "is_traceable", True, raising=False)
    kept = {}

    def function(x):
        y = keeps(x)
        kept.update(detached=y.detach() * 2, made=y * 3)
        return y * 2

    def looked_at():
        detached, made = kept["detached"], kept["made"]
        buffer = io.BytesIO()
        torch.save(detached, buffer)
        return [detached.tolist(), detached.data_ptr() != 0, copy.deepcopy(detached).tolist(), made.tolist(), buffer.tell() > 0]

    compiled = hindcast.aot_function(function)
    for _ in range(4):
        x = leaf(3)
        outcomes = []
        for call in (compiled, function):
            y = call(x)
            before = looked_at()
            (gradient,) = torch.autograd.grad(y.sum() + kept["made"].sum(), x)
            outcomes.append([*before, *looked_at(), gradient.tolist()])
        torch.testing.assert_close(*outcomes)


LEAVES = {
    "leaf": lambda: torch.ones(4, 3, requires_grad=True),
    "view that is a leaf": lambda: torch.ones(3, 4).t().requires_grad_(),
    "computed": lambda: torch.ones(4, 3, requires_grad=True) * 1,
}


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("make", LEAVES.values(), ids=LEAVES)
def test_views_of_arguments_where_nothing_is_recorded(make, mode):
    for function in (lambda x: x[:], lambda x: x.expand(2, 4, 3)):
        compiled = hindcast.aot_function(function)
        for _ in range(3):
            given = make(), make()
            with mode():
                seen, expected = compiled(given[0]), function(given[1])
            assert [seen.requires_grad, seen.is_leaf, seen.is_inference()] == [
                expected.requires_grad,
                expected.is_leaf,
                expected.is_inference(),
            ]


def test_tensors_that_a_function_keeps_have_their_history():
    w = leaf(3)
    kept = {}

    def memo(x):
        if "v" not in kept:
            kept["v"] = w * w
        return x * kept["v"]

    def features(x):
        kept["a"] = (w * x).sin()
        return kept["a"] * 2

    for function in (memo, features):
        f = hindcast.aot_function(function)
        for _ in range(5):
            seen = []
            for call in (f, function):
                kept.clear()
                w.grad = None
                y = call(torch.ones(3)) + call(torch.full((3,), 2.0))
                (y.sum() + sum(each.sum() for each in kept.values())).backward()
                seen.append(w.grad)
            assert torch.allclose(*seen)


def test_tensors_from_outside():
    w = leaf(3)
    f = hindcast.aot_function(lambda x: (x * w).exp(), "eager", "eager")
    for step in range(4):
        x = leaf(3)
        assert_same(torch.autograd.grad(f(x).sum(), (x, w)), torch.autograd.grad((x * w).exp().sum(), (x, w)))
        with torch.no_grad():
            w.mul_(1.5)
    assert f.stats()["hits"] == 3


def test_the_comparison_runs_the_function_as_the_caller_would():
    def slope(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0] * 2

    def by_mode(x):
        return x * 2 if torch.is_grad_enabled() and x.requires_grad and not x.is_leaf else x * 3

    for function in (slope, by_mode):
        f = hindcast.aot_function(function, check_every=1, async_=False)
        for x in [torch.arange(3.0), torch.arange(3.0).requires_grad_(), torch.arange(3.0).requires_grad_() * 1] * 4:
            assert torch.equal(f(x), function(x))


# Backwards that write to a tensor without vmap's dimension.
BATCHED = {
    "max": lambda x: x.max(1)[0].exp(),
    "sort": lambda x: x.sort(1)[0],
    "topk": lambda x: x.topk(2, 1)[0],
    "median": lambda x: x.median(1)[0],
    "cummax": lambda x: x.cummax(1)[0],
    "trace": lambda x: x.trace().view(1),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, (x.detach() > 0).float(), reduction="none"),
}


@pytest.mark.parametrize("function", BATCHED.values(), ids=BATCHED.keys())
def test_batched_gradients(function):
    f = hindcast.aot_function(function, async_=False, back_off=False)
    for _ in range(5):
        x = torch.randn(3, 3, requires_grad=True)

        def jacobian(called):
            y = called(x)
            rows = torch.eye(y.numel()).view(y.numel(), *y.shape)
            return torch.autograd.grad(y, x, rows, is_grads_batched=True)[0]

        torch.testing.assert_close(jacobian(f), jacobian(function))


def test_a_change_outside_is_found_where_it_is_looked_for():
    factors = numpy.full(1 << 20, 2.0)  # too large to be compared
    f = hindcast.aot_function(lambda x: x * float(factors[0]), check_every=1)
    x = torch.ones(3)
    f(x)
    f(x)
    factors[0] = 3
    with pytest.raises(RuntimeError, match="make it an argument"):
        f(x)


def test_a_method():
    class Thing:
        def __init__(self, factor):
            self.factor = factor

        @hindcast.aot_function
        def scaled(self, x):
            return x * self.factor

    one, other, x = Thing(2), Thing(3), torch.ones(3)
    for _ in range(2):
        assert_same(one.scaled(x), x * 2)
        assert_same(other.scaled(x), x * 3)


def test_threads():
    f = hindcast.aot_function(lambda x, n: (x * n).sin(), "eager", "eager")
    failures = []

    def work(seed):
        try:
            generator = torch.Generator(DEVICE).manual_seed(seed)
            for i in range(50):
                x = torch.randn(3 + i % 2, generator=generator).requires_grad_()
                y = f(x, seed % 2)
                (g,) = torch.autograd.grad(y.sum(), x)
                z = (x * (seed % 2)).sin()
                assert_same((y, g), (z, torch.autograd.grad(z.sum(), x)[0]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_nothing_is_kept_for_ever():
    class Big:
        pass

    big = Big()
    watched = weakref.ref(big)

    def function(x, big):
        return {"x": x * 2, "n": 1}

    f = hindcast.aot_function(function)
    x = leaf(3)
    for _ in range(3):
        f(x, big)["x"].sum().backward()
    before = len(hindcast._trace_state.kept)
    for _ in range(50):
        f(x, big)
    assert len(hindcast._trace_state.kept) <= before + 2
    del f, function, big
    gc.collect()
    hindcast.aot_function(lambda x: x)(x)  # removes what C++ has released
    assert watched() is None


@pytest.mark.parametrize("bounds", [{"min": math.nan}, {"max": math.nan}, {"min": math.nan, "max": 1}, {"min": 0.5}, {"max": 0.0}], ids=str)
@pytest.mark.parametrize("clamp", [torch.clamp, torch.clamp_], ids=lambda clamp: clamp.__name__)
def test_clamp_with_one_bound_or_nan(clamp, bounds):
    f = hindcast.aot_function(lambda x: clamp(x * 1, **bounds) * 2, async_=False)
    for _ in range(3):
        x = torch.tensor([-1, -0.0, 0, 1, math.nan, math.inf] * 6, requires_grad=True)
        like = x.detach().requires_grad_()
        seen, expected = f(x), clamp(like * 1, **bounds) * 2
        torch.testing.assert_close(seen, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(seen.signbit() | seen.isnan(), expected.signbit() | expected.isnan())
        seen.sum().backward(), expected.sum().backward()
        torch.testing.assert_close(x.grad, like.grad, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["group", "batch"])
def test_norms_of_constants_with_a_tiny_eps(name):
    norms = {
        "group": lambda x: F.group_norm(x, 2, eps=1e-40),
        "batch": lambda x: F.batch_norm(x, None, None, training=True, eps=1e-40) * 2,
    }
    norm = norms[name]
    f = hindcast.aot_function(norm, async_=False)
    for _ in range(3):
        x = torch.zeros(2, 4, 8)
        x[:, 2:] = torch.randn(2, 2, 8)
        like = x.clone().requires_grad_()
        f(x.requires_grad_()).backward(torch.arange(64.0).view(2, 4, 8))
        norm(like).backward(torch.arange(64.0).view(2, 4, 8))
        torch.testing.assert_close(x.grad, like.grad, rtol=1e-4, atol=1e-4)


@not_on_a_card  # where the call would be faster than the timer
def test_an_exception_of_a_signal_handler_propagates_from_the_call():
    """A known call finds that a number differs, and calls Python to run the function: there a handler runs that waited for the program."""

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    w = leaf(1000, 1000)

    def function(x, sign):
        for _ in range(8):  # takes some ten times as long as the timer
            x = (x @ w).tanh()
        return x.sum() * (1 if (sign.sum() + 0 * x.sum()).item() > 0 else 2)

    def calls(f):
        x, seen = torch.randn(1000, 1000), []
        for is_stopped, sign in [(False, 1.0)] * 4 + [(True, -1.0), (False, 1.0), (False, -1.0)]:
            try:
                if is_stopped:
                    signal.setitimer(signal.ITIMER_REAL, 0.01)
                seen.append(f(x, torch.full((1,), sign)).detach())
            except Stop:
                seen.append("stopped")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        return seen

    before = signal.signal(signal.SIGALRM, stop)
    try:
        seen = calls(hindcast.aot_function(function, back_off=False))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen[4] == "stopped" and all(isinstance(each, torch.Tensor) for each in (*seen[:4], *seen[5:]))


def test_full_garbage_collections_of_a_trace():
    whole = []
    note = lambda phase, info: whole.append(1) if phase == "start" and info["generation"] == 2 else None  # noqa: E731

    def drops_a_cycle(x):
        cycle = [x.sin()]
        cycle.append(cycle)
        return cycle[0] * 2

    kept = {}

    def keeps(x):
        kept[len(kept)] = x.sin()
        return x.sin() * 2

    gc.collect()
    gc.callbacks.append(note)
    try:
        f = hindcast.aot_function(drops_a_cycle)
        for _ in range(3):
            f(leaf(3)).sum().backward()
        assert f.stats()["hits"] == 2 and not whole
        f = hindcast.aot_function(keeps)
        for _ in range(6):
            f(leaf(3)).sum().backward()
        assert f.stats()["eager"] == 6 and len(whole) <= 1
    finally:
        gc.callbacks.remove(note)


def test_a_graph_outlives_its_function():
    x = leaf(3)
    y = hindcast.aot_function(lambda x: x.sin().exp())(x).sum()
    gc.collect()
    hindcast.aot_function(lambda x: x)(x)
    expected = x.sin().exp().sum()
    assert_same(torch.autograd.grad(y, x, create_graph=True)[0].detach(), torch.autograd.grad(expected, x)[0])


@pytest.mark.parametrize("view", [lambda x: x[0], torch.t], ids=["select", "t"])
@pytest.mark.parametrize("is_view", [False, True], ids=["leaf", "leaf_that_is_a_view"])
def test_a_view_of_a_leaf_without_grad_mode(view, is_view):
    f = hindcast.aot_function(view, "eager", "eager")
    for _ in range(3):
        x = torch.randn(4, 3)
        x = (x[1:] if is_view else x).requires_grad_()
        with torch.no_grad():
            made, expected = f(x), view(x)
        assert (made.requires_grad, made.is_leaf, made._base is expected._base) == (not is_view, True, True)
        assert expected.requires_grad == made.requires_grad


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@not_on_a_card
def test_a_fork():
    f = hindcast.aot_function(lambda x: x.sin().exp(), "eager", "eager")
    x = leaf(3)
    for _ in range(2):
        f(x).sum().backward()
    child = os.fork()
    if child == 0:
        with torch.no_grad():
            is_right = torch.equal(f(x), x.sin().exp()) and torch.equal(f(x * 2), (x * 2).sin().exp())
        os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_saved_tensors_hooks_see_the_function():
    f = hindcast.aot_function(lambda x: x.sin())
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
        for _ in range(2):
            f(leaf(3)).sum().backward()
    assert len(seen) == 2 and f.stats()["eager"] == 2


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"fw_compiler": "no"}, ValueError, "fw_compiler is 'no'"),
        ({"bw_compiler": 3}, TypeError, "bw_compiler is 3"),
        ({"partition_fn": "min_cut"}, TypeError, "partition_fn"),
        ({"static_argnums": -1}, ValueError, "static_argnums is -1"),
        ({"dynamic": "yes"}, ValueError, "dynamic is 'yes'"),
        ({"memory_budget": 2.0}, ValueError, "memory_budget is 2"),
        ({"layouts": "channels_last"}, ValueError, "layouts is 'channels_last'"),
        ({"check_every": -1}, ValueError, "check_every is -1"),
        ({"limit": 0}, ValueError, "limit is 0"),
    ],
)
def test_bad_options(options, error, text):
    with pytest.raises(error, match=text):
        hindcast.aot_function(lambda x: x, **options)


# ---- compilers and graphs


def test_a_compiler_of_ones_own(capsys):
    programs, calls = [], []

    def compiler(program, examples):
        programs.append(program)

        def run(inputs):
            calls.append(len(inputs))
            return program.run(inputs)

        assert len(examples) == len([node for node in program.nodes if node.op == "placeholder"])
        return run

    f = hindcast.aot_function(lambda x, y: (x * y).exp(), compiler, compiler, dynamic="never")
    x, y = leaf(3, 4), leaf(3, 4)
    for _ in range(3):
        assert_same(torch.autograd.grad(f(x, y).sum(), (x, y)), torch.autograd.grad((x * y).exp().sum(), (x, y)))
    assert len(programs) == 2 and len(calls) == 4
    nodes = programs[0].nodes
    assert [node.op for node in nodes] == ["placeholder", "placeholder", "aten::mul.Tensor", "aten::exp", "output"]
    assert nodes[2].args == (nodes[0].name, nodes[1].name) and nodes[2].dtype == torch.float32 and nodes[2].shape == (3, 4)
    assert "torch.ops.aten.mul.Tensor" in programs[0].code
    hindcast.print_graph(f)
    assert "torch.ops.aten.mul.Tensor" in capsys.readouterr().out
    (made,) = hindcast.get_graphs(f)
    assert made.backward is not None and "saves" in made.explanation and "digraph" in made.joint.dot


def test_a_backward_computes_the_gradients_that_are_asked_for():
    programs = []

    def compiler(program, examples):
        programs.append(program)
        return program.run

    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 2)).double()
    f = hindcast.aot_module(net, compiler, compiler, back_off=False)
    x = torch.randn(4, 2, 6, 6, dtype=torch.float64, requires_grad=True)
    weight = net[2].weight
    for wanted in ((x,), (x,), (weight,), tuple(net.parameters()), (x, weight), (x, *net.parameters()), (x,)):
        for create_graph in (False, True):
            gradients = []
            for each in (net, f):
                first = torch.autograd.grad(each(x).square().sum(), wanted, create_graph=create_graph)
                gradients.append(first)
                if create_graph:
                    inputs = (x, *net.parameters())
                    gradients.append(torch.autograd.grad(sum(one.square().sum() for one in first), inputs, materialize_grads=True))
            middle = len(gradients) // 2
            torch.testing.assert_close(gradients[middle:], gradients[:middle])
    products = [sum(node.op in ("aten::mm", "aten::addmm") for node in program.nodes) for program in programs[:3]]
    assert products == [1, 2, 1], "forward, both gradients of the last layer, and that of its argument alone"
    gradients = programs[2].code.count("[True, False, False]")
    assert gradients == 2, programs[2].code


def test_a_compiler_that_fails_leaves_the_program_to_aten():
    def compiler(program, examples):
        raise ValueError("not today")

    f = hindcast.aot_function(lambda x: x.exp(), compiler, hindcast.compilers.print)
    x = leaf(3)
    for _ in range(3):
        assert_same(torch.autograd.grad(f(x).sum(), x), torch.autograd.grad(x.exp().sum(), x))
    assert f.stats()["hits"] == 2


def test_an_exception_of_a_compiled_program_comes_through():
    def compiler(program, examples):
        def run(inputs):
            raise LookupError("in the program")

        return run

    for forward in (True, False):
        f = hindcast.aot_function(lambda x: x.exp(), *((compiler, None) if forward else (None, compiler)))
        x = leaf(3)
        f(x).sum().backward()
        with pytest.raises(LookupError, match="in the program"):
            f(x).sum().backward()


def test_draw_graph_needs_a_program(tmp_path):
    f = hindcast.aot_function(lambda x: x.exp())
    with pytest.raises(RuntimeError, match="no program yet"):
        hindcast.draw_graph(f, tmp_path / "graph.svg")
    with pytest.raises(TypeError, match="no function or module"):
        hindcast.get_graphs(len)


def test_the_newest_program_comes_first():
    f = hindcast.aot_function(lambda x, n: x.exp() if n == 0 else x.sin() * n, "eager", "eager", dynamic="never")
    ops = ["aten::exp", "aten::sin", "aten::sin"]
    for n in range(3):
        for size in (3, 4):
            f(torch.ones(size), n)
            newest = hindcast.get_graphs(f)[0].joint.nodes
            assert newest[1].op == ops[n] and newest[0].shape == (size,)


def test_memory_efficient_fusion_saves_less():
    def function(a, b, c, d):
        return (a + b + c + d).cos().cos()

    leaves = [leaf(64, 64) for _ in range(4)]
    f = hindcast.memory_efficient_fusion(function)
    for _ in range(2):
        f(*leaves).sum().backward()
    (made,) = f.programs()
    assert len(made.forward.nodes[-1].args) == 2  # the result and one saved tensor
    assert isinstance(hindcast.memory_efficient_fusion(nn.Linear(2, 2)), nn.Module)


# ---- modules


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), (5, 4)),
    # Without a bias, whose gradient would be nothing but rounding: batch norm subtracts it.
    "batch norm": (lambda: nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Sigmoid()), (5, 4)),
    "conv": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)),
        (2, 3, 8, 8),
    ),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 2)), (5, 4)),
    "transformer": (Block, (2, 5, 8)),
    "gru": (lambda: nn.GRU(4, 6, 2), (2, 5, 4)),
}


@pytest.mark.parametrize("is_training", (True, False), ids=("train", "eval"))
@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_like_eager(name, is_training):
    make, sizes = MODULES[name]
    torch.manual_seed(0)
    module = make().train(is_training)
    like_eager(
        module,
        lambda: ((torch.randn(*sizes),), {}),
        lambda: list(module.parameters()) + list(module.buffers()),
        is_random=is_training and name in ("dropout", "transformer"),
        compiled=hindcast.aot_module,
    )


def test_a_module_trains_like_itself():
    def train(compile):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
        model = compile(module)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        losses = []
        for step in range(8):
            model.train(step % 4 != 3)
            optimizer.zero_grad()
            loss = model(torch.randn(6, 4)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, list(module.state_dict().values()), list(module.state_dict())

    assert_same(train(lambda module: hindcast.aot_module(module, "eager", "eager")), train(lambda module: module))


ALL_MODULES = torch.nn.modules.module
GLOBAL_HOOKS = {
    "forward": lambda called: ALL_MODULES.register_module_forward_hook(lambda m, args, y: y * 2),
    "forward pre": lambda called: ALL_MODULES.register_module_forward_pre_hook(lambda m, args: (args[0] * 2,)),
    "backward": lambda called: ALL_MODULES.register_module_full_backward_hook(lambda m, gi, go: called.append(type(m).__name__)),
    "backward pre": lambda called: ALL_MODULES.register_module_full_backward_pre_hook(lambda m, go: (go[0] * 2,)),
}


@pytest.mark.parametrize("name", GLOBAL_HOOKS)
def test_global_module_hooks_beside_own_ones(name):
    def train(compile_module):
        torch.manual_seed(0)
        module, called, seen = nn.Linear(3, 3), [], []
        compiled = compile_module(module)
        compiled.register_forward_hook(lambda m, args, y: called.append("own"))
        hook = GLOBAL_HOOKS[name](called)
        try:
            for _ in range(4):
                module.zero_grad()
                x = torch.ones(2, 3, requires_grad=True)
                y = compiled(x)
                y.square().sum().backward()
                seen.append([y.detach(), x.grad, module.weight.grad.clone()])
        finally:
            hook.remove()
        return seen, sorted(called)

    assert_same(train(lambda module: hindcast.aot_module(module, "eager", "eager")), train(lambda module: module))


def test_a_module_passes_through():
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    compiled = hindcast.aot_module(module, "eager", "eager")
    assert list(compiled.state_dict()) == list(module.state_dict())
    assert [name for name, _ in compiled.named_parameters()] == [name for name, _ in module.named_parameters()]
    assert compiled.eval() is compiled and not module.training and not module[1].training and not compiled.training
    compiled.train()
    assert module[1].training
    assert compiled.get_submodule("0") is module[0]
    compiled.load_state_dict({name: torch.zeros_like(value) for name, value in module.state_dict().items()})
    assert not module[0].weight.any()
    compiled.double()
    assert module[0].weight.dtype == torch.double
    compiled.note = "here"
    assert module.note == "here"
    del compiled.note
    assert not hasattr(module, "note")


class SavedItsOwnWay(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.said, self.number = [], 1

    def forward(self, x):
        return self.linear(x)

    def get_extra_state(self):
        return {"number": self.number}

    def set_extra_state(self, state):
        self.number = state["number"]

    def _load_from_state_dict(self, *args, **kwargs):
        self.said.append("load")
        return super()._load_from_state_dict(*args, **kwargs)

    def half(self):
        self.said.append("half")
        return self

    def parameters(self, recurse=True):
        self.said.append("parameters")
        return super().parameters(recurse)

    def __iter__(self):
        return iter([1, 2])


def test_a_module_is_saved_loaded_and_converted_as_its_class_says():
    model = SavedItsOwnWay()
    compiled = hindcast.aot_module(model)
    compiled.register_state_dict_pre_hook(lambda *args: model.said.append("before"))
    model.register_state_dict_post_hook(lambda *args: model.said.append("after"))
    compiled.register_load_state_dict_pre_hook(lambda *args: model.said.append("pre"))
    compiled.register_load_state_dict_post_hook(lambda *args: model.said.append("post"))
    net = torch.nn.Sequential(compiled, torch.nn.Linear(3, 1))
    state = net.state_dict()
    assert list(state) == ["0._extra_state", "0.linear.weight", "0.linear.bias", "1.weight", "1.bias"]
    model.number = 2
    net.load_state_dict(state)
    assert model.number == 1
    assert compiled.half() is compiled and len(list(compiled.parameters())) == 2 and list(compiled) == [1, 2]
    assert model.said == ["before", "after", "load", "pre", "post", "half", "parameters"]
    seen = []
    net.apply(lambda module: seen.append(type(module)))
    assert seen == [torch.nn.Linear, SavedItsOwnWay, torch.nn.Linear, torch.nn.Sequential]
    copied = copy.deepcopy(net)
    assert len(copied[0].linear._parameters) == 2 and len(model._state_dict_hooks) == 1
    with pytest.raises(TypeError, match="'Linear' object is not iterable"):
        iter(hindcast.aot_module(torch.nn.Linear(1, 1)))


def test_programs_name_a_modules_tensors():
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    compiled = hindcast.aot_module(module, "eager", "eager")
    compiled(torch.randn(2, 4)).sum().backward()
    (made,) = hindcast.get_graphs(compiled)
    text = str(made.forward)
    for name in ("primals_1", "_0_weight", "_0_bias", "_1_weight", "_1_running_mean", "_1_running_var"):
        assert f"{name}: " in text, text
    module[0].weight = nn.Parameter(torch.randn(3, 4))  # another tensor with that name
    compiled(torch.randn(2, 4)).sum().backward()
    assert all("_0_weight: " in str(each.forward) for each in hindcast.get_graphs(compiled))


def test_what_a_module_is_made_of_is_looked_at():
    module = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    compiled = hindcast.aot_module(module, "eager", "eager")
    x = torch.randn(2, 4)

    def check():
        for _ in range(2):
            torch.manual_seed(0)
            seen = compiled(x)
            seen.sum().backward()
            torch.manual_seed(0)
            assert_same(seen.detach(), module(x).detach())

    check()
    module[0].weight = nn.Parameter(torch.randn(3, 4))
    check()
    module.eval()
    check()
    module[0] = nn.Linear(4, 3)
    check()
    module[0].weight.requires_grad_(False)
    module[0].weight.grad = None
    check()
    assert module[0].weight.grad is None
    module.double()
    x = x.double()
    check()
    module.register_forward_hook(lambda module, args, result: result * 2)
    check()


def test_a_function_of_a_module_as_argument():
    module = nn.Linear(4, 3)
    f = hindcast.aot_function(lambda module, x: module(x).relu(), "eager", "eager")
    x = torch.randn(2, 4)
    for _ in range(2):
        assert_same(f(module, x).detach(), module(x).relu().detach())
    module.weight = nn.Parameter(torch.randn(3, 4))
    assert_same(f(module, x).detach(), module(x).relu().detach())
    assert f.stats()["traces"] >= 2


def test_a_compiled_module_in_a_module():
    inner = hindcast.aot_module(nn.Linear(4, 4), "eager", "eager")
    outer = nn.Sequential(inner, nn.ReLU())
    assert list(outer.state_dict()) == ["0.weight", "0.bias"]
    for _ in range(CALLS):
        outer(torch.randn(2, 4)).sum().backward()
    assert inner.aot_stats()["hits"] == CALLS - 1


@torch.library.custom_op("hindcast_tests::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    """With NumPy, which rejects a tensor that requires grad in grad mode."""
    return torch.from_numpy(x.numpy() ** 3)


cube.register_autograd(
    lambda ctx, gradient: gradient * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


def test_an_operator_that_is_written_in_python():
    f = hindcast.aot_function(lambda x: cube(x) * cube(x * 2), "eager", "eager")
    for _ in range(4):
        x = torch.full((3,), 2.0, requires_grad=True)
        f(x).sum().backward()
        assert x.grad.tolist() == [6 * 8 * 2.0**5] * 3
    assert f.stats()["hits"] == 3


def test_parameters_that_are_swapped_after_a_reset(monkeypatch):
    module = torch.nn.Linear(4, 3)
    compiled = hindcast.aot_module(module)
    for _ in range(2):
        compiled(torch.ones(2, 4)).sum().backward()
    module.zero_grad()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        compiled.double()
        assert module.weight.dtype == torch.float64
        step = hindcast.train_step(torch.optim.SGD(module.parameters(), lr=0.1), lambda x: module(x).sum())
        for _ in range(3):
            step(torch.ones(2, 4, dtype=torch.float64))
        step.reset()
        module.float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert step(torch.ones(2, 4)).dtype == torch.float32


# A call whose number differs runs the function, with which there is nothing to compare.
def test_comparisons_beside_a_number_that_differs():
    f = hindcast.aot_function(lambda x: x.sin() if x.sum().item() > 0 else x.cos(), check_every=1)
    for sign in (1, 1, 1, -1, -1, 1):
        x = torch.full((3,), float(sign), requires_grad=True)
        assert_same(f(x).detach(), (x.sin() if sign > 0 else x.cos()).detach())


def test_tensors_that_are_swapped():
    def function(x):
        a, b = x.detach() * 2, x.detach() * 3
        torch.utils.swap_tensors(a, b)
        return a - b + x

    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(3):
        x = leaf(4)
        assert torch.equal(f(x), function(x))


def selects(x):
    return torch.unique_consecutive(x * 2).sum()


@pytest.mark.parametrize(
    "function, line, advice",
    [
        (lambda x: selects(x) * x, ", in selects", "outside of the function"),
        (lambda x: x * x.storage_offset(), ", in <lambda>", "where in its memory"),
    ],
)
def test_a_message_says_which_line_and_what_to_write(function, line, advice):
    f = hindcast.aot_function(function, fallback=False)
    with pytest.raises(RuntimeError, match=f"{__file__}:[0-9]+{line}") as error:
        f(leaf(3))
    assert advice in str(error.value)


def test_a_users_operator_behind_the_end_of_a_trace():
    @torch.library.custom_op("hindcast_tests::plus_one", mutates_args=())
    def plus_one(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def function(x):
        return plus_one(torch.unique_consecutive(x))

    f = hindcast.aot_function(function, async_=False)
    for _ in range(3):
        x = torch.randn(6)
        torch.testing.assert_close(f(x), function(x))


def test_a_users_operator_before_an_error_is_called_once():
    calls = []

    @torch.library.custom_op("hindcast_tests::noted", mutates_args=())
    def noted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    noted.register_fake(torch.empty_like)

    def function(table, rows, count):
        count.add_(1)
        return noted(table).index_select(0, rows)

    f = hindcast.aot_function(function, async_=False, back_off=False)
    for call in range(6):
        rows = torch.tensor([0, 7 if call % 2 else 2])
        try:
            f(torch.ones(4, 2), rows, torch.zeros(()))
        except IndexError:
            pass
        assert len(calls) == call + 1
    assert f.stats()["hits"] > 0


def test_a_generator_that_the_function_seeds_gives_the_same_numbers_in_each_call():
    numbers = torch.Generator(DEVICE)

    def function(x):
        return x + torch.rand(8, generator=numbers.manual_seed(3))

    f = hindcast.aot_function(function, async_=False)
    x = torch.zeros(8)
    for _ in range(5):
        assert torch.equal(f(x), function(x))


def test_new_tensor_runs_eagerly():
    f = hindcast.aot_function(lambda x: x.new_tensor([1.0, 2.0]) * x.sum(), async_=False)
    for _ in range(3):
        assert torch.equal(f(torch.ones(3)), torch.tensor([3.0, 6.0]))


def test_sizes_of_equal_masks_whose_results_nobody_reads():
    def function(x, mask):
        torch.where(mask), torch.masked_select(x, x < 0.5), torch.where(mask)
        return x * 2

    before = hindcast.stats()["compiler_failures"]
    f = hindcast.aot_function(function, async_=False)
    for count in (0, 1, 3, 1, 0, 2):
        x = torch.arange(8.0).requires_grad_()
        f(x, torch.arange(8) < count).sum().backward()
        assert torch.equal(x.grad, torch.full((8,), 2.0))
    assert hindcast.stats()["compiler_failures"] == before


def test_a_reset_on_another_thread_during_calls():
    f = hindcast.aot_function(lambda x: x.sin() * 2, async_=False)
    x, ends = torch.ones(4), threading.Event()
    resets = threading.Thread(target=lambda: [f.reset() for _ in iter(ends.is_set, True)])
    resets.start()
    try:
        for _ in range(300):
            assert torch.equal(f(x), x.sin() * 2)
    finally:
        ends.set()
        resets.join()


def test_a_checkpoint_with_a_dropout_recomputes_the_mask_of_its_forward():
    def function(x):
        return torch.utils.checkpoint.checkpoint(lambda y: torch.nn.functional.dropout(y, 0.5), x, use_reentrant=False)

    f = hindcast.aot_function(function, async_=False)
    for _ in range(5):
        x = torch.ones(64, requires_grad=True)
        y = f(x)
        y.sum().backward()
        assert torch.equal(x.grad, y.detach())


# A write to one changes the history of the other.
@pytest.mark.parametrize("writes", [True, False])
def test_windows_of_one_tensor(writes):
    def function(a, b):
        if writes:
            a.mul_(2)
        return a.sum() + b.sin().sum()

    def gradient(function):
        base = torch.arange(6.0, dtype=torch.double).requires_grad_()
        whole = base * 1
        return torch.autograd.grad(function(whole[:4], whole[2:]), base)[0]

    compiled = hindcast.aot_function(function, async_=False)
    for _ in range(5):
        torch.testing.assert_close(gradient(compiled), gradient(function))
    assert compiled.stats()["hits"] == (0 if writes else 3)


@pytest.mark.parametrize("compiler", ["eager", "fused"])
def test_gradients_of_some_results_in_another_order_of_dims(compiler):
    """The zeros in place of a missing gradient have the order of dims in memory that the gradient had: later operators name strides."""

    def function(a):
        product = a @ a
        return product.transpose(0, 2), product * 3

    def gradient(call, both):
        a = torch.arange(8.0).view(2, 2, 2).requires_grad_()
        turned, scaled = call(a)
        loss = (scaled * torch.arange(8.0).view(2, 2, 2)).sum() + (turned.sum() if both else 0)
        return torch.autograd.grad(loss, a)[0]

    compiled = hindcast.aot_function(function, compiler, compiler, async_=False, back_off=False)
    for both in (True, False, False, True, False):
        torch.testing.assert_close(gradient(compiled, both), gradient(function, both))


@pytest.mark.parametrize("is_leaf", (True, False), ids=("leaf", "result"))
def test_what_a_function_wrote_before_it_raised_has_its_history(is_leaf):
    def function(x, weight):
        x.mul_(weight)
        raise ValueError("after the write")

    for f in (function, hindcast.aot_function(function)):
        weight = torch.full((3,), 2.0, requires_grad=True)
        x = torch.ones(3) if is_leaf else weight * 3
        with pytest.raises(ValueError, match="after the write"):
            f(x, weight)
        assert x.grad_fn is not None and torch.equal(x, torch.full((3,), 2.0 if is_leaf else 12.0))
        x.sum().backward()
        assert torch.equal(weight.grad, torch.full((3,), 1.0 if is_leaf else 12.0))


def test_gradients_of_a_backward_before_an_error():
    def function(x):
        (x * 2).sum().backward()
        raise ValueError("after the backward")

    f = hindcast.aot_function(function)
    for count in (1, 2):
        x = torch.ones(3, requires_grad=True)
        with pytest.raises(ValueError, match="after the backward"):
            f(x)
        assert torch.equal(x.grad, torch.full((3,), 2.0)), count


def test_arguments_that_are_nested_deeply():
    nested = [torch.ones(2)]
    for _ in range(600):
        nested = [nested]

    def function(value):
        while isinstance(value, list):
            value = value[0]
        return value * 2

    assert torch.equal(hindcast.aot_function(function)(nested), torch.full((2,), 2.0))


WIDE_OPERANDS = {
    "add": lambda y, t: (y + t) * 1,
    "sub": lambda y, t: (t - y) * 1,
    "add_": lambda y, t: (y * 1).add_(t),
    "mul": lambda y, t: (y * t) * 1,
    "div": lambda y, t: (y / t) * 1,
    "div by y": lambda y, t: (t / y) * 1,
    "addcmul": lambda y, t: torch.addcmul(y, -y, t) * 1,
    "atan2": lambda y, t: torch.atan2(t, y) * 1,
}


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
@pytest.mark.parametrize("name", WIDE_OPERANDS)
@pytest.mark.parametrize("number", (1.0003, 1e5, 1e-8))
def test_a_wider_operand_without_dims_beside_16_bits(name, dtype, number):
    function, t = WIDE_OPERANDS[name], torch.tensor(number)
    y = torch.tensor([-1, 4, 6e-5, 1, 0.5], dtype=dtype)
    f = hindcast.aot_function(function, async_=False)
    for _ in range(3):
        assert_same(f(y, t), function(y, t))


@pytest.mark.parametrize("under_guard", (False, True))
def test_a_leaf_whose_gradient_is_a_conjugate(under_guard):
    def function(a, b):
        return (a + 1j * b.imag).conj().resolve_conj().real.sum()

    leaves = [torch.randn(3, dtype=torch.complex64).requires_grad_() for _ in range(2)]
    f = hindcast.aot_function(function, async_=False)
    function(*leaves).backward()
    expected = [one.grad for one in leaves]
    for _ in range(3):
        for one in leaves:
            one.grad = None
        with hindcast.enable(async_=False) if under_guard else contextlib.nullcontext():
            f(*leaves).backward()
        for one, stock in zip(leaves, expected):
            assert one.grad.is_conj() == stock.is_conj() and torch.equal(one.grad, stock)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
@pytest.mark.parametrize("number", (1.0003, 1e-8, 3))
def test_numbers_that_are_added_to_16_bits(dtype, number):
    def function(y):
        return (y + number) * 1, (y - number) * 1, (number - y) * 1, y / (y.abs() + number), y / y.abs().clamp(min=number)

    y = torch.tensor([-1, 4, 6e-5, 1, 0.5, 0], dtype=dtype)
    f = hindcast.aot_function(function, async_=False)
    for _ in range(3):
        for seen, expected in zip(f(y), function(y)):
            torch.testing.assert_close(seen, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64))
@pytest.mark.parametrize("exponent", (0.5, -0.5, 1.5, 2.0, 3.0, -1.0, -2.0))
def test_powers_of_special_numbers(dtype, exponent):
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, 4, math.nan], dtype=dtype)
    f = hindcast.aot_function(lambda x: (x**exponent) * 1, async_=False)
    for _ in range(3):
        ours, stock = x.clone().requires_grad_(), x.clone().requires_grad_()
        seen, expected = f(ours), stock**exponent * 1
        torch.testing.assert_close(seen, expected, equal_nan=True)
        is_number = ~expected.isnan()
        assert torch.equal(torch.signbit(seen[is_number]), torch.signbit(expected[is_number]))
        seen.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(ours.grad, stock.grad, equal_nan=True)


STRIDES = {
    "division": lambda x: x * ((x.stride(0) - 8) // 3),
    "remainder": lambda x: x * ((x.stride(0) - 8) % 3),
    "bits": lambda x: x * (x.stride(0) & 6) + (x.stride(0) >> 1),
    "abs": lambda x: x * abs(x.stride(0) - 4),
    "power": lambda x: x ** x.stride(0),
    "branch": lambda x: x * (2 if x.stride()[0] > 5 else 3),
    "of a value": lambda x: x * ((x.t().contiguous().stride(0) - 8) // 3),
    "type": lambda x: x * (2 if type(x.stride(0)) is int else 3),
    "text": lambda x: x * len(f"{x.stride(0)}"),
    "returned": lambda x: (x * 2, x.stride()),
}


@pytest.mark.parametrize("name", STRIDES)
def test_strides_that_a_function_reads(name):
    function = STRIDES[name]
    f = hindcast.aot_function(function)
    for size in ((5, 3), (5, 4), (7, 3), (5, 7), (6, 4), (5, 3), (3, 11), (2, 2)):
        x = torch.linspace(-1, 2, size[0] * size[1]).view(size)
        assert_same(f(x), function(x))


WRITTEN_VIEWS = {
    "piece of chunk": lambda p: (p * 2).chunk(2)[0],
    "piece of unbind": lambda p: (p * 2).view(2, 2).unbind()[1],
    "view of a leaf": lambda p: p[:2],
}


@pytest.mark.parametrize("name", WRITTEN_VIEWS)
def test_a_write_that_autograd_refuses_changes_nothing(name):
    def function(x):
        x.mul_(2)
        return x * 1

    f = hindcast.aot_function(function)
    for _ in range(3):
        texts = []
        for each in (f, function):
            x = WRITTEN_VIEWS[name](torch.arange(4.0, requires_grad=True))
            before = x.detach().clone()
            with pytest.raises(RuntimeError, match="in-?place") as error:
                each(x)
            texts.append(str(error.value))
            assert torch.equal(x.detach(), before)
        assert texts[0] == texts[1]


def doubled_row(h):
    h[1] *= 2
    return h


WRITES_THROUGH_TWO_VIEWS = {
    "of a made tensor": lambda x: doubled_row(x.sin().flatten().view(4, 6)),
    "of the argument": lambda x: doubled_row(x.flatten().view(4, 6)),
    "of a piece": lambda x: doubled_row(x.sin().flatten()[4:].view(4, 5)),
    "of pieces": lambda x: doubled_row((x * 2).flatten().narrow(0, 12, 12).view(3, 4)),
    "one element": lambda x: doubled_row(x.sin().flatten().view(4, 6)[2]),
    "twice": lambda x: doubled_row(doubled_row(x.sin().flatten(0, 0).unflatten(1, (2, 3)))),
}


@pytest.mark.parametrize("name", WRITES_THROUGH_TWO_VIEWS)
def test_a_write_through_two_views(name):
    """`h[1] *= 2` writes the row, and then copies it onto itself."""
    function = WRITES_THROUGH_TWO_VIEWS[name]
    f = hindcast.aot_function(function, async_=False, back_off=False)
    for _ in range(CALLS):
        leaves = [torch.linspace(-1, 2, 24).view(4, 6).requires_grad_() for _ in range(2)]
        arguments = [leaf * 1 for leaf in leaves]
        results = [each(argument) for each, argument in zip((f, function), arguments)]
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(*arguments, rtol=1e-5, atol=1e-6)
        for result, argument in zip(results, arguments):
            (result.square().sum() + argument.sum()).backward()
        torch.testing.assert_close(*(leaf.grad for leaf in leaves), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("index", [1, -1, -3])
@pytest.mark.parametrize("make", [torch.sum, lambda x: x[0, 0], lambda x: x[:, 0] @ x[:, 0]], ids=["sum", "element", "product"])
def test_an_index_of_a_tensor_without_dimensions(make, index):
    f = hindcast.aot_function(lambda x: make(x)[index])
    for rows in (4, 5, 3, 6):
        with pytest.raises(IndexError, match="dimension"):
            f(torch.randn(rows, 3))


@pytest.mark.parametrize("change", [torch.Tensor.t_, lambda x: x.squeeze_(0), lambda x: x.unsqueeze_(0)], ids=["t_", "squeeze_", "unsqueeze_"])
def test_a_view_in_place_that_autograd_refuses(change):
    def function(x, y):
        y.mul_(2)
        change(x)
        y.mul_(3)

    f = hindcast.aot_function(function)
    for _ in range(3):
        x, y = torch.ones(2, 1, 3, requires_grad=True)[1], torch.ones(2)
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used in an in-place operation"):
            f(x, y)
        assert_same(y, torch.full((2,), 2.0))
        assert x.shape == (1, 3)


def reshapes(x):
    view = x.reshape(x.shape)
    view.mul_(2)
    return view


def strides(x):
    view = x.as_strided((2, 2), x.stride())
    view.mul_(2)
    return view


def reshapes_and_selects(x):
    view = x.reshape(2, -1, x.shape[1])[0]
    view[0].zero_()
    return view * x.sum()


@pytest.mark.parametrize("function", [reshapes, strides, reshapes_and_selects])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("cut", [lambda x: x[:4, :4], lambda x: x[1:5, 1:5], lambda x: x[::2, ::2][:2], lambda x: x[:4].t()])
def test_a_write_through_strides_of_an_argument_with_gaps(function, create_graph, cut):
    """A copy of the argument has its strides, or the view would be one of other memory."""

    def outcome(call):
        x = torch.arange(64.0).view(8, 8).requires_grad_()
        result = call(cut(x * 1))
        (gradient,) = torch.autograd.grad(result.square().sum(), x, create_graph=create_graph)
        second = torch.autograd.grad(gradient.square().sum(), x, allow_unused=True) if create_graph else ()
        return result.detach(), gradient.detach(), *second

    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(4):
        torch.testing.assert_close(outcome(f), outcome(function))


def transposes_a_view(x):
    view = x.view(2, 3)
    view.t_()
    view.cumsum_(0)
    return view


def unsqueezes_a_row(x):
    row = x.view(2, 3)[0]
    row.unsqueeze_(0)
    row.tanh_()
    return x * 1


@pytest.mark.parametrize("function", [transposes_a_view, unsqueezes_a_row])
@pytest.mark.parametrize("of_argument", [False, True])
def test_a_write_through_a_view_that_was_changed_in_place(function, of_argument):
    """Autograd replays how a view was made, without what was done to it since."""

    def whole(x):
        return function(x if of_argument else x * 1)

    f = hindcast.aot_function(whole, "eager", "eager")
    for _ in range(4):
        gradients = []
        for call in (f, whole):
            x = torch.arange(6.0).requires_grad_()
            result = call(x * 1)
            result.sin().sum().backward()
            gradients.append((result.detach(), x.grad))
        torch.testing.assert_close(*gradients)


def detaches_and_fills(x):
    x.detach_()
    x.fill_(3)
    return x * 2


def detaches_a_result_of_relu(x):
    y = x.relu()
    x.detach_()
    return y


@pytest.mark.parametrize("function", [detaches_and_fills, detaches_a_result_of_relu])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_view_cannot_be_detached_in_place(function, requires_grad):
    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(3):
        x = (torch.ones(3, requires_grad=requires_grad) * 1)[1:]
        with pytest.raises(RuntimeError, match="Can't detach views in-place"):
            f(x)
        assert x.tolist() == [1, 1]


def test_a_view_from_before_a_detach_keeps_its_history():
    def function(x):
        view = x[1:]
        x.detach_()
        return view, view * 2

    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(3):
        gradients = []
        for call in (f, function):
            leaf = torch.ones(3, requires_grad=True)
            x = leaf * 1
            view, double = call(x)
            assert view.requires_grad and not x.requires_grad
            (view.sin().sum() + double.sum()).backward()
            gradients.append(leaf.grad)
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("pieces", [lambda x: x.chunk(2), lambda x: x.split(2), lambda x: x.unbind()])
def test_a_piece_of_a_tensor_that_is_written_afterwards(pieces):
    """Its history is an error, which comes where it is used."""

    def function(x):
        piece = pieces(x)[0]
        x.mul_(2)
        return piece

    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(3):
        piece = f(torch.ones(4, 2, requires_grad=True) * 1)
        with pytest.raises(RuntimeError, match="is a view and its base"):
            piece.sum().backward()


def writes_a_view_from_before(y):
    row = y[0]
    y.unsqueeze_(0)
    row.mul_(4)
    return y * 1


def writes_a_row_of_a_transposed_tensor(y):
    row = y[0]
    y.t_()
    row.mul_(4)
    return y * 1


def reads_a_view_from_before(y):
    row = y[0]
    y.unsqueeze_(0)
    y[:, 1].mul_(2)
    return row * 1


def returns_a_detached_tensor_and_its_view(y):
    view = y[1:]
    y.detach_()
    return y, view


def writes_to_a_detached_tensor(y):
    view = y[1:]
    y.detach_()
    y.mul_(3)
    return view * 1


CHANGED_AFTER_A_VIEW = [
    writes_a_view_from_before,
    writes_a_row_of_a_transposed_tensor,
    reads_a_view_from_before,
    returns_a_detached_tensor_and_its_view,
    writes_to_a_detached_tensor,
]


@pytest.mark.parametrize("function", CHANGED_AFTER_A_VIEW)
@pytest.mark.parametrize("of_argument", [False, True])
def test_a_tensor_that_is_changed_in_place_after_a_view_of_it(function, of_argument):
    """Autograd would replay the view on the changed tensor."""

    def whole(x):
        return function(x if of_argument else x * 2)

    f = hindcast.aot_function(whole, "eager", "eager")
    for _ in range(4):
        outcomes = []
        for call in (f, whole):
            leaf = torch.linspace(0.1, 1.6, 16).view(4, 4).requires_grad_()
            results = call(leaf * 1)
            results = results if isinstance(results, tuple) else (results,)
            sum(result.sin().sum() for result in results if result.requires_grad).backward()
            outcomes.append((leaf.grad, [(result.requires_grad, result.detach()) for result in results]))
        assert str(outcomes[0]) == str(outcomes[1])


def test_an_argument_that_is_detached_and_requires_grad_again():
    def function(x):
        x.detach_()
        x.requires_grad_()
        return x * 2

    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(3):
        leaf = torch.ones(3, requires_grad=True)
        x = leaf * 1
        f(x).sum().backward()
        assert x.is_leaf and x.requires_grad
        assert leaf.grad is None
        assert x.grad.tolist() == [2, 2, 2]


def writes_a_row(x):
    x[0].mul_(2)
    return x.square()


def fills_the_diagonal(x):
    x.fill_diagonal_(2)
    return x.square()


@pytest.mark.parametrize("function", [writes_a_row, fills_the_diagonal, torch.sin])
def test_an_expanded_argument(function):
    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(4):
        outcomes = []
        for call in (f, function):
            leaf = torch.linspace(0.1, 0.4, 4).requires_grad_()
            x = (leaf * 1).expand(4, 4)
            result = call(x)
            result.sum().backward()
            outcomes.append((result.detach(), x.detach(), leaf.grad))
        torch.testing.assert_close(*outcomes)
    assert f.stats()["hits"] == (2 if function is torch.sin else 0)


def test_a_result_that_is_made_in_inference_mode():
    def function(x):
        with torch.inference_mode():
            return x.sin()

    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(3):
        assert f(torch.ones(3)).is_inference()


def writes_twice(x):
    x.mul_(2)
    x[0] = 1
    return x.sum()


def writes_without_grad(x):
    with torch.no_grad():
        return x.add_(1) * 1


@pytest.mark.parametrize("function", [writes_twice, writes_without_grad])
@pytest.mark.parametrize("has_history", [False, True])
def test_versions_of_a_written_argument(function, has_history):
    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(4):
        ours, stock = (torch.ones(3, 2, requires_grad=has_history) * 1 for _ in range(2))
        function(stock)
        result = f(ours).sum()
        if result.requires_grad:
            result.backward()
        assert ours._version == stock._version
    assert f.stats()["hits"] == 3


def test_a_write_with_grad_mode_turned_on():
    def doubled(x):
        with torch.enable_grad():
            x.mul_(2)
        return x

    f = hindcast.aot_function(doubled)
    for _ in range(CALLS):
        source = leaf(3)
        argument = source * 1
        with torch.no_grad():
            assert f(argument) is argument
        argument.sum().backward()
        assert_same(source.grad, torch.full((3,), 2.0))


def test_a_buffer_that_was_written_before_an_exception():
    buffer = torch.zeros(3)

    @hindcast.aot_function
    def writes(x):
        buffer.copy_(x * 2)
        raise ValueError

    for _ in range(CALLS):
        x = leaf(3)
        with pytest.raises(ValueError):
            writes(x)
        buffer.sum().backward()
        assert_same(x.grad, torch.full((3,), 2.0))
        buffer.detach_()


@pytest.mark.parametrize("view", [lambda x: x[0], lambda x: x.view(3, 2)], ids=["select", "view"])
def test_a_view_from_before_the_argument_was_transposed(view):
    def transposed(x):
        made = view(x)
        x.t_()
        return made, x * 2

    f = hindcast.aot_function(transposed)
    for _ in range(CALLS):
        x, y = (torch.arange(6.0).view(2, 3) for _ in range(2))
        made, expected = f(x), transposed(y)
        assert_same((*made, x), (*expected, y))
        made[0].add_(1)
        expected[0].add_(1)
        assert_same(x, y)


@pytest.mark.parametrize("writes_to_base", [True, False])
@pytest.mark.parametrize(
    "view_of",
    [lambda x: x.unflatten(-1, (-1, 2)), lambda x: x.unsqueeze(0).unflatten(-1, (x.shape[0] // 2, 2))],
    ids=["one view", "two views"],
)
def test_views_that_an_eager_call_returns_have_plain_sizes(view_of, writes_to_base):
    """The view takes itself again of its base, since that was written: in the caller's next operator."""

    def function(x):
        whole = (x + 1).t().flatten()
        view = view_of(whole)
        (whole if writes_to_base else view).mul_(0.9)
        return whole, view

    f = hindcast.aot_function(function)
    for rows in (4, 4, 5, 6, 7):
        leaves = [torch.linspace(-1, 1, rows * 6).view(rows, 6).requires_grad_() for _ in range(2)]
        for called, x in zip((f, function), leaves):
            sum(result.square().sum() for result in called(x)).backward()
        assert torch.allclose(*(leaf.grad for leaf in leaves), atol=1e-5)


class Table(nn.Module):
    def __init__(self, scale_of):
        super().__init__()
        self.scales = {f"w{i}": float(i) for i in range(300)}
        self.linear = nn.Linear(4, 4)
        self.scale_of = scale_of

    def forward(self, x):
        return self.linear(x) * self.scale_of(self)


read = getattr
scales_of = operator.attrgetter("scales")

TABLE_IS_READ = {
    "by an alias": lambda module: read(module, "".join(("sca", "les")))["w3"],
    "by an attrgetter": lambda module: scales_of(module)["w3"],
    "in a text": lambda module: float("{0.scales[w3]}".format(module)),
    "by its name": lambda module: module.scales["w3"],
    "by getattr": lambda module: getattr(module, "".join(("sca", "les")))["w3"],
    "from vars": lambda module: vars(module)["".join(("sca", "les"))]["w3"],
    "from the dict": lambda module: module.__dict__["".join(("sca", "les"))]["w3"],
}


@pytest.mark.parametrize("how", TABLE_IS_READ)
def test_a_large_table_of_a_module(how):
    module = Table(TABLE_IS_READ[how])
    f = hindcast.aot_module(module)
    x = torch.randn(2, 4)
    for call in range(8):
        module.scales["w3"] = float(call // 2)
        if call == 6:
            module.scales = dict.fromkeys(module.scales, 9.0)
        seen = f(x)
        seen.sum().backward()
        assert torch.allclose(seen, module(x), atol=1e-5)


def test_a_parameter_that_was_none_among_many():
    class Sum(nn.Module):
        def forward(self, x):
            return x * sum(parameter.sum() for parameter in self.parameters())

    module = Sum()
    for i in range(120):
        module.register_parameter(f"p{i}", None)
    module.p3 = nn.Parameter(torch.ones(1))
    f = hindcast.aot_module(module)
    for call in range(4):
        if call == 2:
            module.p5 = nn.Parameter(torch.ones(2))
        assert torch.equal(f(torch.ones(1)), module(torch.ones(1)))


def test_a_large_table_that_forward_does_not_read():
    module = Table(lambda module: 2)
    f = hindcast.aot_module(module, back_off=False)
    for call in range(CALLS):
        module.scales["w3"] = call
        f(torch.randn(2, 4)).sum().backward()
    assert f.aot_stats()["hits"] == CALLS - 1


@pytest.mark.parametrize("training", [True, False])
def test_a_result_that_atens_operator_makes_contiguous(training):
    def function(x):
        return F.dropout(F.rrelu(x, training=training).view(-1), 0.5)

    f = hindcast.aot_function(function, back_off=False, fallback_random=True)
    for _ in range(CALLS):
        x = torch.randn(3, 4).t()
        torch.manual_seed(1)
        ours = f(x)
        torch.manual_seed(1)
        assert torch.equal(ours, function(x))


def test_saved_tensor_hooks_that_are_disabled():
    f = hindcast.aot_function(lambda x: torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False), back_off=False)
    for _ in range(CALLS):
        x = leaf(3)
        f(x).sum().backward()
        with torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"), pytest.raises(RuntimeError, match="no hooks here"):
            f(x)


def test_the_class_of_an_argument():
    def function(x):
        return x * (2 if type(x) is nn.Parameter else 3)

    f = hindcast.aot_function(function, back_off=False)
    for make in (nn.Parameter, torch.Tensor.clone, nn.Parameter, torch.Tensor.clone):
        x = make(torch.ones(2))
        for each in (x, x.requires_grad_(False) if x.is_leaf else x):
            assert_same(f(each).detach(), function(each).detach())


@pytest.mark.parametrize("make", [hindcast.aot_function, hindcast.aot_module])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_checkpoint_of_which_some_results_get_no_gradient(make, dropout):
    """As the loss and the logits of a model with gradient checkpointing. The checkpointed layer runs as often as in eager."""
    runs = []

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)

        def layer(self, x):
            runs.append(len(x))
            return torch.nn.functional.dropout(self.inner(x), dropout).tanh()

        def forward(self, x):
            logits = self.head(torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False))
            return logits.square().mean(), logits

    net = Net()

    def step(called, seed):
        net.zero_grad()
        torch.manual_seed(seed)
        loss, _ = called(torch.randn(5, 8))
        loss.backward()
        return [loss.detach(), *(each.grad for each in net.parameters())], torch.rand(1)

    compiled = make(net, fallback_random=True)
    for seed in range(6):
        expected, drawn = step(net, seed)
        most = len(runs)
        runs.clear()
        seen, drawn_by_ours = step(compiled, seed)
        assert all(map(torch.allclose, seen, expected)) and torch.equal(drawn, drawn_by_ours) and len(runs) <= most
        runs.clear()


def writes_to_a_part(h):
    h[:, 0] = 1.0


WRITES_TO_RESULTS = [lambda h: h.mul_(2.0), torch.relu_, writes_to_a_part, lambda h: h.masked_fill_(h > 0, 0.5)]


@pytest.mark.parametrize("write", WRITES_TO_RESULTS)
@pytest.mark.parametrize("make", [hindcast.aot_module, lambda net: torch.compile(net, backend="hindcast")], ids=["aot_module", "compile"])
def test_a_result_that_is_a_view_is_written_to_by_the_caller(make, write):
    """A linear layer's result for three dims is a view of a product. From the second size on, it is traced with symbolic sizes."""
    net = torch.nn.Linear(4, 4, dtype=torch.float64)
    compiled = make(net)
    for batch in (2, 3, 4, 5):
        x = torch.randn(batch, 5, 4, dtype=torch.float64)

        def gradients(called):
            h = called(x)
            write(h)
            return torch.autograd.grad(h.sin().sum(), list(net.parameters()))

        assert all(map(torch.allclose, gradients(compiled), gradients(net)))


CHECKPOINTED = {
    "two results": lambda x, w: ((x @ w).tanh(), (x * 2).sin()),
    "one computed from the other": lambda x, w: ((h := (x @ w).tanh()), h.exp()),
    "zeros": lambda x, w: ((x @ w).tanh() + torch.zeros_like(x), x.floor() * w.sum()),
    "three results": lambda x, w: ((x @ w).sin(), (x * w.sum()).exp(), w.cos()),
}


@pytest.mark.parametrize("name", CHECKPOINTED)
def test_gradients_of_some_results_of_a_checkpoint(name):
    """The node that asks first recomputes all that the checkpoint has saved, also if it gets no gradient itself."""

    def function(x, w):
        return (*torch.utils.checkpoint.checkpoint(CHECKPOINTED[name], x, w, use_reentrant=False), w.sin())

    for used in range(4):
        compiled = hindcast.aot_function(function, async_=False)
        for rows in (4, 4, 5, 6):
            w = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
            x = torch.randn(rows, 4, dtype=torch.float64, requires_grad=True)

            def gradients(called):
                results = called(x, w)
                root = results[used % len(results)].sin().sum() + (results[0].sum() if used == 3 else 0)
                return torch.autograd.grad(root, [x, w], allow_unused=True)

            torch.testing.assert_close(gradients(compiled), gradients(function))
