"""torch.compile(backend="hindcast"): a compiled module gives what it gives eagerly: results, gradients, buffers, arguments."""

import copy
import functools
import gc
import math
import os
import subprocess
import sys
import threading
import weakref

import hindcast
import pytest
import torch
from side_by_side import RELEASE, assert_same
from torch import nn
from torch.utils.checkpoint import checkpoint

SIZES = (4, 4, 6, 6, 8, 5, 8)


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Counted:
    """The backend; keeps its compiled functions for the tests."""

    def __init__(self):
        self.made = []

    def __call__(self, gm, example_inputs, **settings):
        compiled = hindcast.dynamo_backend(gm, example_inputs, **settings)
        found = compiled if isinstance(compiled, hindcast.AotFunction) else getattr(compiled, "__wrapped__", None)
        self.made += [found] if found is not None else []  # None: a graph that runs eagerly
        return compiled

    def count(self, name):
        return sum(f.stats()[name] for f in self.made)


def loss_of(result):
    tensors = [result] if isinstance(result, torch.Tensor) else [each for each in result if isinstance(each, torch.Tensor)]
    # Linear, so that rounding stays rounding.
    return sum((each.float() * torch.arange(each.numel()).cos().view(each.shape)).sum() for each in tensors if each.requires_grad)


def trained(module, call, sizes, make):
    """Everything that a program sees of some steps."""
    seen = []
    for number, size in enumerate(sizes):
        torch.manual_seed(number)
        args = make(size)
        result = call(*args)
        loss = loss_of(result)
        if isinstance(loss, torch.Tensor):
            loss.backward()
        gradients = [None if p.grad is None else p.grad.clone() for p in (*module.parameters(), *args) if isinstance(p, torch.Tensor)]
        seen.append((result, args, gradients, [buffer.clone() for buffer in module.buffers()]))
    return seen


def same_as_eager(module, make, sizes=SIZES, **settings):
    """Trains copies of the module with and without the backend. Returns what was compiled."""
    other, backend = copy.deepcopy(module), Counted()
    expected = trained(module, module, sizes, make)
    seen = trained(other, torch.compile(other, backend=backend, **settings), sizes, make)
    for number, (one, two) in enumerate(zip(seen, expected)):
        assert_same(close(one, two), two, f"step {number}")
    return backend


def close(seen, expected):
    """`expected`, where `seen` equals it up to rounding relative to a tensor's largest number."""
    if isinstance(seen, (tuple, list)):
        return type(seen)(map(close, seen, expected))
    if isinstance(seen, torch.Tensor) and isinstance(expected, torch.Tensor) and seen.shape == expected.shape and seen.numel():
        largest = expected.detach().abs().max().item()
        return expected if torch.allclose(seen, expected, rtol=1e-5, atol=1e-6 * max(1, largest)) else seen
    return seen


def rows(width):
    return lambda size: (torch.randn(size, width),)


class Function(nn.Module):
    """A function of a linear layer and its argument as a module."""

    def __init__(self, function, width=8):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("count", torch.zeros(()))
        self.function = function

    def forward(self, *args):
        return self.function(self, *args)


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 8))


# ---- the way in


def run_python(code, **environment):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment})
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_is_found_without_an_import():
    code = """if True:
        import sys, torch
        assert "hindcast" in torch._dynamo.list_backends() and "hindcast" not in sys.modules
        torch.compile(lambda x: x.sin(), backend="hindcast")(torch.ones(2))
        print(sys.modules["hindcast"].stats()["unique_graphs"])"""
    assert int(run_python(code)) > 0


def test_options():
    backend = same_as_eager(mlp(), rows(8), options={"partition": "min_cut", "memory_budget": 0.5, "async_": False})
    assert backend.count("hits") > 0 and backend.made[0]._options["partition_fn"] is hindcast.partition.min_cut


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"mode": "max-autotune"}, "mode is 'max-autotune', which names settings of Inductor; expected 'default'"),
        ({"options": {"partitions": "min_cut"}}, "options have 'partitions'; expected some of 'partition', "),
        ({"options": {"partition": "best"}}, "partition is 'best'; expected 'standard' or 'min_cut'"),
        ({"options": {"limit": 0}}, "limit is 0; expected at least 1"),
    ],
)
def test_what_a_setting_cannot_mean_is_an_error(settings, text):
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=text):
        torch.compile(torch.sin, backend="hindcast", **settings)(torch.ones(2))


# ---- training


@pytest.mark.parametrize("settings", [{}, {"dynamic": True}, {"dynamic": False}, {"fullgraph": True}])
def test_mlp(settings):
    backend = same_as_eager(mlp(), rows(8), **settings)
    assert backend.count("eager") == 0 and backend.count("hits") > 0


def test_cnn():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 5))
    backend = same_as_eager(model, lambda size: (torch.randn(size, 3, 8, 8),), (4, 4, 4, 4))
    assert backend.count("hits") == 3


def test_encoder_layer():
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    same_as_eager(model, lambda size: (torch.randn(size, size + 1, 16),))


def test_graph_break():
    def broken(self, x):
        x = self.linear(x).tanh()
        torch._dynamo.graph_break()
        return self.linear(x).view(x.shape[0] * 2, -1)

    assert same_as_eager(Function(broken), rows(8)).count("hits") > 6


def test_graph_break_under_the_guard():
    def broken(self, x):
        x = self.linear(x).tanh()
        torch._dynamo.graph_break()
        return self.linear(x).tanh()

    model = Function(broken)
    call = torch.compile(model, backend="hindcast")
    x = torch.randn(4, 8)
    for _ in range(4):
        model.zero_grad()
        with hindcast.enable(back_off=False, async_=False):
            loss_of(call(x)).backward()
    seen = [p.grad for p in model.parameters()]
    model.zero_grad()
    loss_of(model(x)).backward()
    assert_same(close(seen, seen := [p.grad for p in model.parameters()]), seen)
    assert hindcast.stats()["hits"] >= 2 and any("aot1_" in graph.text for graph in hindcast.graphs())


# ---- sizes


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: self.linear(x).view(x.shape[0] * 2, -1),
        lambda self, x: self.linear(x)[: x.shape[0] // 2] + torch.ones(x.shape[0] // 2, 8),
        lambda self, x: self.linear(x) + torch.arange(x.shape[0])[:, None],
        lambda self, x: torch.cat([self.linear(x), x.new_zeros(x.shape[0], 2)], dim=1).reshape(-1),
        lambda self, x: self.linear(x) * torch.tensor(1.5) + torch.tensor(x.shape[0]),
    ],
    ids=["view", "slice", "arange", "new_zeros", "constants"],
)
def test_sizes_are_symbols(function):
    backend = same_as_eager(Function(function), rows(8), (4, 5, 6, 7, 8, 9, 10), dynamic=True)
    assert backend.count("traces") == 2 and backend.count("hits") == 5


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: self.linear(x) * x.shape[0],
        lambda self, x: self.linear(x) / x.shape[0] + x.size(0),
        lambda self, x: (self.linear(x), x.shape[0]),
        lambda self, x: torch.where(x > 0, x.shape[0], self.linear(x)),
        lambda self, x: self.linear(x).div_(x.shape[0] * 3),
        lambda self, x: self.linear(x) ** (x.shape[0] // 2),
        lambda self, x: nn.functional.pad(self.linear(x), (0, x.shape[0])),
        lambda self, x: nn.functional.interpolate(self.linear(x)[None, None], size=(x.shape[0] * 2, 3)),
        lambda self, x: self.linear(x)[x.shape[0] - 1],
        lambda self, x: self.linear(x) + torch.full((), x.shape[0]) * torch.tensor(x.shape[0]),
        lambda self, x: self.linear(x).split([1, x.shape[0] - 1])[1],
        lambda self, x: self.linear(x) + max(x.shape[0], 5) + min(x.shape[0], 5) + float(x.shape[0]) + x.shape[0] ** 0.5,
        lambda self, x: self.linear(x).unflatten(0, (x.shape[0], 1)).sum(0) + self.count.add_(x.shape[0]),
    ],
)
def test_a_size_as_a_number(function):
    same_as_eager(Function(function), rows(8), (4, 4, 6, 6, 8, 5, 9, 8, 3))


def test_numbers_as_arguments():
    model = Function(lambda self, x, n, scale: self.linear(x).narrow(0, 0, n) * scale * n)
    steps = iter(range(1, 9))
    same_as_eager(model, lambda size: (torch.randn(9, 8), size, 0.5 * size), tuple(steps))


# ---- writes, views, history


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: (x.mul_(2), self.linear(x))[1],
        lambda self, x: (self.count.add_(1), self.linear(x) * self.count)[1],
        lambda self, x: (self.linear(x), x),
        lambda self, x: (self.linear(x), x.t(), x[1:]),
        lambda self, x: (y := self.linear(x), y, y.view(-1)),
        lambda self, x: (self.linear.weight, self.linear(x)),
        lambda self, x: self.linear(x).add_(1).mul_(2),
        lambda self, x: (x.t()[0].zero_(), self.linear(x))[1],
        lambda self, x: (self.linear(x).detach(), self.linear(x)),
    ],
)
def test_writes_and_views(function):
    same_as_eager(Function(function), rows(8))


def test_results_are_views_of_arguments():
    call = torch.compile(lambda x: (x, x.view(-1)), backend="hindcast")
    for _ in range(3):
        x = torch.zeros(2, 3)
        same, view = call(x)
        view[0] = 1
        assert x[0, 0] == 1 and view._base is x and (same is x or same.data_ptr() == x.data_ptr())


def test_arguments_that_want_gradients():
    model = Function(lambda self, x, y: self.linear(x * y).tanh())
    same_as_eager(model, lambda size: (torch.randn(size, 8, requires_grad=True), torch.randn(8, requires_grad=True)))


def test_arguments_with_a_history():
    model = Function(lambda self, x: self.linear(x).tanh())
    call = torch.compile(model, backend="hindcast")
    for size in (4, 4, 6):
        a = torch.randn(size, 8, requires_grad=True)
        expected = torch.autograd.grad(model(a.sin()).sum(), (a, model.linear.weight))
        assert_same(close(torch.autograd.grad(call(a.sin()).sum(), (a, model.linear.weight)), expected), expected)


def test_second_order():
    model = Function(lambda self, x: self.linear(x).tanh())
    call = torch.compile(model, backend="hindcast")

    def penalty(f):
        x = torch.ones(4, 8, requires_grad=True)
        (grad,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return torch.autograd.grad((grad**2).sum(), model.linear.weight)

    for _ in range(3):
        assert_same(close(penalty(call), penalty(model)), penalty(model))


# ---- modes


def test_modes_of_the_thread():
    model = mlp()
    call = torch.compile(model, backend="hindcast")
    x = torch.randn(4, 8)
    for training in (True, False, True):
        model.train(training)
        for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            for _ in range(2):
                with mode():
                    torch.manual_seed(1)
                    expected = model(x)
                    torch.manual_seed(1)
                    seen = call(x)
                assert seen.requires_grad == expected.requires_grad and seen.is_inference() == expected.is_inference()
                assert torch.allclose(seen, expected, atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: self.linear(x.sin()).float(),
        lambda self, x: self.linear(nn.functional.dropout(x, 0.5)).float() + torch.rand(8) + torch.randn_like(x),
    ],
    ids=["linear", "random"],
)
@pytest.mark.parametrize("inside", [True, False])
def test_autocast_and_random_numbers(function, inside):
    def inner(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = function(self, x)
        with torch.no_grad():
            z = self.linear(x)
        return y + z

    model = Function(inner if inside else function)
    same_as_eager(model, rows(8))


def test_dropout_draws_eagers_numbers():
    x = torch.ones(1000)
    call = torch.compile(lambda x: nn.functional.dropout(x * 2, 0.5).tanh(), backend="hindcast", options={"async_": False})
    for seed in range(4):
        torch.manual_seed(seed)
        seen, behind = call(x) != 0, torch.rand(3)
        torch.manual_seed(seed)
        assert torch.equal(seen, nn.functional.dropout(x, 0.5) != 0) and torch.equal(behind, torch.rand(3))


# ---- higher-order operators


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 16).round() / 16

    @staticmethod
    def backward(ctx, grad):
        return grad * grad.sign() * 1.5


class WithMask(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        result, mask = x.exp(), x > 0
        ctx.factor = factor
        ctx.save_for_backward(result)
        ctx.mark_non_differentiable(mask)
        return result * factor, mask

    @staticmethod
    def backward(ctx, grad, _):
        (result,) = ctx.saved_tensors
        return grad.clone().mul_(result).mul_(ctx.factor * 3), None


def with_hook(x):
    y = x.sin()
    y.register_hook(lambda grad: grad * 0.5)
    return y.relu()


@pytest.mark.parametrize(
    "apply",
    [
        Cube.apply,
        Rounded.apply,
        lambda x: torch.where(*WithMask.apply(x, 0.5)[::-1], x),
        lambda x: Cube.apply(Cube.apply(x) * 0.1),
        pytest.param(with_hook, marks=pytest.mark.skipif(RELEASE >= (2, 15), reason="a higher-order operator: the graph runs eagerly")),
    ],
    ids=["cube", "rounded", "mask", "twice", "hook"],
)
def test_custom_functions_and_hooks_are_a_part_of_the_program(apply):
    linear = nn.Linear(4, 4)
    hindcast.reset()
    call = torch.compile(lambda x: apply(linear(x)), backend="hindcast", fullgraph=True, options={"fallback": False, "async_": False})
    for size in (4, 4, 5, 6, 4, 3):
        x = torch.randn(size, 4)
        gradients = []
        for function in (call, lambda x: apply(linear(x))):
            leaves = [x.clone().requires_grad_(), *linear.parameters()]
            loss = (function(leaves[0]) * torch.linspace(1, 2, 4 * size).view(size, 4)).sum()
            gradients.append(torch.autograd.grad(loss, leaves))
        assert all(map(functools.partial(torch.allclose, rtol=1e-4, atol=1e-5), *gradients))
    assert hindcast.stats()["eager_functions"] == {}


@pytest.mark.skipif(RELEASE >= (2, 12), reason="the graph of LibTorch 2.11 reads a size that it does not define")
def test_a_malformed_graph_runs_eagerly():
    def function(x):
        y = WithMask.apply(x * 2, 0.5)[0] * 1
        y.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
        return y * y + x

    hindcast.reset()
    call = torch.compile(function, backend="hindcast", dynamic=True)
    for size in (3, 4):
        leaves = [torch.linspace(-1, 1, size).expand(size, size).clone().requires_grad_() for _ in range(2)]
        for called, x in zip((call, function), leaves):
            called(x).sum().backward()
        assert_same(leaves[0].grad, leaves[1].grad)
    (reason,) = hindcast.stats()["eager_functions"]
    assert reason.startswith("Dynamo's graph reads")


@torch.compiler.nested_compile_region
def region(x):
    return x.sin().cos()


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: self.linear(checkpoint(lambda y: nn.functional.dropout(self.linear(y).sin(), 0.5), x, use_reentrant=False)),
        lambda self, x: region(region(self.linear(x))),
        lambda self, x: torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (self.linear(x),)),
        lambda self, x: Cube.apply(self.linear(x)),
        lambda self, x: torch.vmap(self.linear)(x) + torch.func.grad(lambda y: (y**2).sum())(x),
    ],
    ids=["checkpoint", "invoke_subgraph", "cond", "autograd.Function", "torch.func"],
)
def test_higher_order_operators(function):
    same_as_eager(Function(function), rows(8))


def test_functions_that_turn_out_to_run_eagerly_are_counted():
    weight = torch.nn.Parameter(torch.ones(4))

    def decays(x):
        with torch.no_grad():
            weight.data = weight.data * 0.99
        return (x * 2).sin().sum()

    hindcast.reset()
    call = torch.compile(decays, backend="hindcast")
    for _ in range(3):
        call(torch.randn(4, requires_grad=True)).backward()
    ((reason, count),) = hindcast.stats()["eager_functions"].items()
    assert reason and count >= 1
    assert reason in hindcast.report()
    torch.compiler.reset()


def test_what_runs_eagerly_says_why(capfd):
    from torch._higher_order_ops.while_loop import while_loop

    def repeated(x):
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin()), (torch.tensor(0), x))[1]

    hindcast.reset()
    call = torch.compile(repeated, backend="hindcast")
    for _ in range(3):
        assert torch.equal(call(torch.ones(3)), torch.ones(3).sin().sin().sin())
    hindcast.wait()
    assert "a graph of torch.compile runs eagerly: it calls the higher-order operator while_loop" in capfd.readouterr().err
    assert hindcast.stats()["eager_functions"] == {"it calls the higher-order operator while_loop": 1}
    assert "it calls the higher-order operator while_loop" in hindcast.report()
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="a graph cannot be traced: it calls the higher-order operator while_loop"):
        torch.compile(repeated, backend="hindcast", options={"fallback": False})(torch.ones(3))


def test_modules_in_the_graph():
    """As Dynamo leaves modules in the graph on request: changes in them are noticed."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())
    with torch._dynamo.config.patch(inline_inbuilt_nn_modules=False):
        call = torch.compile(model, backend="hindcast")
        for number in range(8):
            x = torch.randn(2, 3, 6, 6)
            model.train(number % 3 != 0)
            before = copy.deepcopy(model.state_dict())
            expected = model(x), copy.deepcopy(model.state_dict())
            model.load_state_dict(before)
            seen = call(x), model.state_dict()
            assert_same(close(list(seen[1].values()), list(expected[1].values())), list(expected[1].values()), f"buffers {number}")
            assert_same(close(seen[0], expected[0]), expected[0], f"step {number}")
            if number == 5:
                model[0].weight = nn.Parameter(torch.ones(4, 3, 3, 3))


def test_compiled_optimizer():
    models = [mlp() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    steps = []
    for model, compiled in zip(models, (False, True)):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        steps.append(torch.compile(optimizer.step, backend="hindcast") if compiled else optimizer.step)
    for number in range(5):
        for model, step in zip(models, steps):
            torch.manual_seed(number)
            model.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            step()
    for one, other in zip(models[1].parameters(), models[0].parameters()):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


# ---- life


def test_reset_frees():
    backend = Counted()
    torch.compile(lambda x: x.sin(), backend=backend)(torch.ones(2))
    (made,) = map(weakref.ref, backend.made)
    backend.made.clear()
    torch.compiler.reset()
    gc.collect()
    assert made() is None


def test_recompiled_programs_are_freed():
    made = []

    def backend(gm, example_inputs):
        compiled = hindcast.dynamo_backend(gm, example_inputs)
        made.append(weakref.ref(compiled))
        return compiled

    for number in range(30):
        call = torch.compile(lambda x: (x * number).sum(), backend=backend)
        for _ in range(2):
            call(torch.ones(3, requires_grad=True)).backward()
        torch.compiler.reset()
    gc.collect()
    assert len(made) == 30 and not any(each() for each in made)


def test_copies():
    model = mlp().eval()
    call = torch.compile(model, backend="hindcast")
    x = torch.randn(4, 8)
    call(x)
    other = copy.deepcopy(call)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(call(x), torch.zeros(4, 8)) and not torch.equal(other(x), torch.zeros(4, 8))


def test_threads():
    model = mlp().eval()
    call = torch.compile(model, backend="hindcast")
    for number in range(4):  # Dynamo itself is not safe from threads that compile
        call(torch.ones(number + 2, 8))
    seen = {}

    def run(number):
        x = torch.full((number + 2, 8), float(number))
        seen[number] = [call(x) for _ in range(20)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, results in seen.items():
        expected = model(torch.full((number + 2, 8), float(number)))
        assert len(results) == 20 and all(torch.allclose(each, expected, atol=1e-6) for each in results)


def test_fork():
    code = """if True:
        import os, torch
        torch.set_num_threads(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
        call = torch.compile(model, backend="hindcast")
        x = torch.ones(4, 8)
        for _ in range(3):
            call(x).sum().backward()
        child = os.fork()
        for size in (4, 5, 6):
            x = torch.ones(size, 8)
            assert torch.allclose(call(x), model(x), atol=1e-6)
            if child:  # PyTorch has no backward in a process that was forked behind one
                call(x).sum().backward()
        if child == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0"""
    run_python(code)


# ---- under the modes of others


def test_fake_tensors_and_traces():
    from torch._subclasses.fake_tensor import FakeTensorMode

    call = torch.compile(lambda x: x.sin().cos(), backend="hindcast")
    assert torch.allclose(torch.vmap(call)(torch.ones(3, 2)), torch.ones(3, 2).sin().cos())
    with FakeTensorMode():
        assert call(torch.ones(5)).shape == (5,)
    assert torch.equal(call(torch.ones(3)), torch.ones(3).sin().cos())


def test_data_of_a_parameter_is_assigned_before_it_is_used():
    class Constrained(torch.nn.Linear):
        def forward(self, x):
            self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=0.5)
            return torch.nn.functional.linear(x, self.weight, self.bias)

    results = []
    for compiled in (True, False):
        torch.manual_seed(0)
        torch.compiler.reset()
        net = Constrained(4, 2)
        model = torch.compile(net, backend="hindcast") if compiled else net
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).sin().sum().backward()
            optimizer.step()
        results.append(net.weight.detach().clone())
    assert torch.allclose(*results)


def test_buffers_are_updated_before_an_operator_raises():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x, labels):
            self.calls += 1
            return torch.nn.functional.cross_entropy(self.norm(x), labels)

    results = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net = Model()
        model = torch.compile(net, backend="hindcast") if compiled else net
        for call in range(6):
            labels = torch.tensor([0, 1, 7 if call % 2 else 2])
            try:
                model(torch.randn(3, 3), labels).backward()
            except IndexError:
                pass
        results.append([net.calls.clone(), net.norm.num_batches_tracked.clone(), net.norm.running_mean.clone()])
    for ours, stock in zip(*results):
        assert torch.allclose(ours, stock)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a * (a.shape[0] % 2),
        lambda a: a.roll((a.shape[0] + 1) // 2, 0),
        lambda a: a.split((a.shape[0] + 1) // 2)[0] * 1,
        lambda a: torch.nn.functional.interpolate(a[None, None], size=(a.shape[0] + 1) // 2),
        lambda a: a[::2] * a[::2].shape[0],
        lambda a: a * max(a.shape[0] // 3, 2),
        lambda a: a * abs(a.shape[0] - 7),
        lambda a: a + torch.eye((a.shape[0] + 1) // 2).sum() * math.sqrt(a.shape[0]),
        lambda a: a % a.shape[0] + a // a.shape[0],
    ],
    ids=["odd", "roll", "split", "interpolate", "slice", "max", "abs", "eye", "tensors"],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers_computed_from_sizes(function, dynamic):
    """At the first sizes, which are even, each number is a multiple of the size or a constant."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="hindcast", dynamic=dynamic, options={"async_": False, "back_off": False})
    for _ in range(2):
        for n in (4, 12, 8, 6, 7, 5, 9, 13, 3, 24):
            a = torch.arange(1.0, n + 1)
            assert_same([compiled(a)], [function(a)])


@pytest.fixture
def sizes_from_data():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield


def positive(x):
    return x[x > 0].shape[0]


def multiplied(x, size):
    return x * ((size - 5) // 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (positive(x) / 4),
        lambda x: x * ((positive(x) - 5) // 2),
        lambda x: x * ((positive(x) - 5) % 3),
        lambda x: x * (-positive(x) // 2),
        lambda x: x * math.sqrt(positive(x)),
        lambda x: x.flatten()[: positive(x)].sin(),
        lambda x: x.cos() if positive(x) > 3 else x.sin(),
        lambda x: x * (7.5 // positive(x)),
        lambda x: x[x > 0].repeat(2)[: 2 * positive(x) - 1].exp(),
        lambda x: checkpoint(lambda y: y.sin() * ((positive(y) - 5) // 2), x, use_reentrant=False),
        lambda x: checkpoint(lambda y: y.clamp(0, positive(y) / 10), x, use_reentrant=False),
        lambda x: multiplied(*checkpoint(lambda y: (y.sin(), positive(y)), x, use_reentrant=False)),
    ],
)
def test_sizes_that_depend_on_data(function, sizes_from_data):
    compiled = torch.compile(function, backend="hindcast")
    for count in (3, 3, 4, 4, 7, 2, 3):
        x, y = (torch.tensor([0.5] * count + [-1.0] * 8, requires_grad=True) for _ in range(2))
        result, expected = compiled(x), function(y)
        assert close(result, expected) is expected
        result.sum().backward()
        expected.sum().backward()
        assert close(x.grad, y.grad) is y.grad


def test_results_that_are_sizes(sizes_from_data):
    def function(x):
        return x.sin(), positive(x), positive(x) > 3, x[x > 0].shape, 2 * positive(x) + 1

    compiled = torch.compile(function, backend="hindcast")
    for count in (3, 3, 4, 5, 3):
        x = torch.tensor([0.5] * count + [-1.0] * 8)
        assert_same(compiled(x)[1:], function(x)[1:])
