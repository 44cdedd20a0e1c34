"""hindcast._C: calls with a direct entry to C++ behave like Python's code, and the entry is taken only for usual calls."""

import collections
import contextlib
import copy
import functools
import gc
import os
import pickle
import subprocess
import sys
import threading
import warnings

import hindcast
import pytest
import torch
from hindcast import _aot, _backward, _optim, _trace_state, _train
from hindcast._library import calls
from processes import python
from device_of_tests import DEVICE, not_on_a_card
from side_by_side import error_of
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.skipif(calls is None, reason="HINDCAST_PYTHON_CALLS=operators")


@contextlib.contextmanager
def counted(monkeypatch, owner, name):
    """Counts the calls of Python's own code."""
    own, count = getattr(owner, name), [0]

    def counting(*args, **kwargs):
        count[0] += 1
        return own(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, counting)
        yield count


@pytest.fixture
def by_python(monkeypatch):
    """How many calls of a compiled function run through Python's code."""
    with counted(monkeypatch, _aot.AotFunction, "_call") as count:
        yield count


def warm(function, *args, **kwargs):
    for _ in range(3):
        function(*args, **kwargs)


def same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


# ---- compiled functions

SHAPES = {
    "tensors": (lambda a, b: a.sin() + b, lambda a, b: ((a, b), {})),
    "keywords": (lambda a, b: a.sin() + b, lambda a, b: ((a,), {"b": b})),
    "nested": (lambda x, k: x["a"][0] * k + x["b"], lambda a, b: (({"a": [a], "b": b}, 2), {})),
    "tuples": (lambda x, *, on: x[0] + x[1][0] if on else x[0], lambda a, b: (((a, (b, None)),), {"on": True})),
    "values": (lambda a, b, dtype, text: (a + b).to(dtype) if text == "x" else a, lambda a, b: ((a, b, torch.float64, "x"), {})),
    "float": (lambda a, b, f: (a + b) * f, lambda a, b: ((a, b, 0.5), {})),
}


@pytest.mark.parametrize("name", SHAPES)
def test_known_arguments_enter_c(name, by_python):
    function, arguments = SHAPES[name]
    f = hindcast.aot_function(function)
    given, named = arguments(torch.randn(4), torch.randn(4))
    warm(f, *given, **named)
    by_python[0] = 0
    for _ in range(5):
        given, named = arguments(torch.randn(4), torch.randn(4))  # new objects each time
        same(f(*given, **named), function(*given, **named))
    assert by_python[0] == 0


RESULTS = {
    "tensor": lambda a: a.sin(),
    "tuple": lambda a: (a.sin(), a.cos()),
    "list": lambda a: [a.sin(), (a.cos(),)],
    "dict": lambda a: {"x": a.sin(), "y": [a.cos(), 3, None], 5: ()},
    "ordered": lambda a: collections.OrderedDict(x=a.sin()),
    "argument": lambda a: (a, a.sin()),
    "twice": lambda a: (lambda b: (b, b))(a.sin()),
    "none": lambda a: (None, a.sin()),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name, by_python):
    function = RESULTS[name]
    f = hindcast.aot_function(function)
    warm(f, torch.randn(4))
    by_python[0] = 0
    a = torch.randn(4)
    ours, theirs = f(a), function(a)
    assert type(ours) is type(theirs)
    same(ours, theirs)
    assert by_python[0] == 0
    if name == "argument":
        assert ours[0] is a
    if name == "twice":
        assert ours[0] is ours[1]
    if name in ("list", "dict"):
        assert ours is not f(a)


def test_values_that_look_alike_are_others():
    f = hindcast.aot_function(lambda a, k: a * k if isinstance(k, float) else a + k if isinstance(k, bool) else a - k)
    a = torch.randn(3)
    for _ in range(3):
        for k, expected in ((1, a - 1), (1.0, a), (True, a + 1), (2, a - 2)):
            same(f(a, k), expected)
    g = hindcast.aot_function(lambda a, k: a.copysign(torch.tensor(k)))
    for _ in range(3):
        same(g(a, 0.0), a.abs())
        same(g(a, -0.0), -a.abs())
    h = hindcast.aot_function(lambda a, k: (a * k).real)
    for _ in range(3):
        same(h(a, 1j), torch.zeros(3))
        same(h(a, 1 + 0j), a)


def test_tuple_and_list_and_names_are_others():
    f = hindcast.aot_function(lambda x, **k: x[0] + 1 if type(x) is tuple else x[0] - 1 if type(x) is list else x["a"] * len(k))
    a = torch.randn(3)
    for _ in range(4):
        same(f((a,)), a + 1)
        same(f([a]), a - 1)
        same(f({"a": a}, y=1), a)
        same(f({"a": a}, y=1, z=1), a * 2)


def test_what_the_function_sees_is_looked_at():
    factor = 2.0
    f = hindcast.aot_function(lambda a: a * factor)
    a = torch.randn(3)
    warm(f, a)
    factor = 3.0
    same(f(a), a * 3)
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(1.0))
    g = hindcast.aot_module(net)
    with torch.no_grad():
        warm(g, a)
        same(g(a), torch.zeros(3))
        net.eval()
        same(g(a), net(a))
        net[0].register_forward_hook(lambda *_: torch.ones(3))
        same(g(a), torch.ones(3))


def test_objects_are_recognised_and_not_taken_for_others(by_python):
    class Settings:
        def __init__(self, factor):
            self.factor = factor

    f = hindcast.aot_function(lambda a, settings: a * settings.factor)
    a, settings = torch.randn(3), Settings(2.0)
    warm(f, a, settings)
    by_python[0] = 0
    same(f(a, settings), a * 2)
    assert by_python[0] == 0
    settings.factor = 5.0
    same(f(a, settings), a * 5)
    for factor in range(20):  # each may get the address of the last one
        del settings
        settings = Settings(float(factor))
        same(f(a, settings), a * factor)


def test_programs_go_with_the_objects_that_they_are_for():
    f = hindcast.aot_function(lambda a, net: net(a))
    a = torch.randn(3)
    with torch.no_grad():
        for _ in range(5):
            net = nn.Linear(3, 3)
            warm(f, a, net)
            del net
        gc.collect()
        net = nn.Linear(3, 3)
        same(f(a, net), net(a))
    assert len(f._kinds) <= 2


class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Subclass(torch.Tensor):
    pass


MODES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device": lambda: torch.device("cpu"),
    "dispatch": Counting,
    "saved": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
    "no_torch_function": torch._C.DisableTorchFunction,
}


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode):
    weight = torch.randn(4, 4, requires_grad=True)
    function = lambda a: torch.mm(a, weight).sin()  # noqa: E731
    f = hindcast.aot_function(function)
    for _ in range(4):
        f(torch.randn(4, 4)).sum().backward()
    for _ in range(2):
        a = torch.randn(4, 4)
        with MODES[mode]():
            ours = f(a)
            theirs = function(a)
        assert ours.dtype == theirs.dtype and ours.requires_grad == theirs.requires_grad and ours.is_inference() == theirs.is_inference()
        torch.testing.assert_close(ours, theirs, rtol=1e-2 if mode == "autocast" else 1e-5, atol=1e-2 if mode == "autocast" else 1e-6)


def test_transforms_and_subclasses():
    function = lambda a: a.sin() * a  # noqa: E731
    f = hindcast.aot_function(function)
    a = torch.randn(3)
    warm(f, a)
    same(torch.func.vmap(f)(torch.stack([a, a]))[0], function(a))
    same(torch.func.grad(lambda x: f(x).sum())(a), a.cos() * a + a.sin())
    assert type(f(a.as_subclass(Subclass))) is Subclass


def test_errors_of_the_function_arrive_and_leave_it_usable():
    class Own(Exception):
        pass

    def function(a):
        if a.shape[0] == 5:
            raise Own("five")
        return a.sin()

    f = hindcast.aot_function(function, dynamic="never")
    a = torch.randn(4)
    warm(f, a)
    for _ in range(2):
        with pytest.raises(Own, match="five"):
            f(torch.randn(5))
        assert _trace_state.thread.call is None and _trace_state.thread.error is None
        same(f(a), a.sin())
    with pytest.raises(RuntimeError, match="[Ss]ize"):
        f2 = hindcast.aot_function(lambda a, b: a + b)
        warm(f2, a, a)
        f2(a, torch.randn(7))


def test_errors_and_warnings_of_a_known_call():
    def compiler(program, examples):
        def run(tensors):
            if state["raises"]:
                raise KeyError("from a program")
            return program.run(tensors)

        return run

    state = {"raises": False}
    f = hindcast.aot_function(lambda a: a.sin(), compiler, compiler)
    a = torch.randn(4)
    warm(f, a)
    state["raises"] = True
    with pytest.raises(KeyError, match="from a program"):
        f(a)
    assert _trace_state.thread.error is None
    state["raises"] = False
    same(f(a), a.sin())


def test_a_function_that_warns_when_it_is_traced_again():
    def function(a):
        warnings.warn("shown", UserWarning, stacklevel=1)
        return a.sin()

    f = hindcast.aot_function(function, dynamic="never")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        warm(f, torch.randn(4))
        before = len(shown)
        f(torch.randn(6))
    assert len(shown) == before + 1


def test_a_function_that_calls_another(by_python):
    inner = hindcast.aot_function(lambda a: a.cos())
    outer = hindcast.aot_function(lambda a: inner(a) + 1)
    a = torch.randn(3)
    warm(inner, a)
    warm(outer, a)
    by_python[0] = 0
    same(outer(a), a.cos() + 1)
    same(inner(a), a.cos())
    assert by_python[0] == 0


def test_dynamo_traces_the_function_itself():
    f = hindcast.aot_function(lambda a: (a.sin() + 1) * 2)
    a = torch.randn(4)
    warm(f, a)
    compiled = torch.compile(lambda x: f(x) + 1, backend="eager", fullgraph=True)
    same(compiled(a), (a.sin() + 1) * 2 + 1)


def test_writes_arrive():
    def function(a, store):
        store["seen"] = a.sin()
        a.mul_(2)
        return a + 1

    f = hindcast.aot_function(function)
    for _ in range(4):
        a, store = torch.randn(3), {}
        before = a.clone()
        same(f(a, store), before * 2 + 1)
        same(a, before * 2)
        same(store["seen"], before.sin())


def test_reset_and_copies():
    f = hindcast.aot_function(torch.sin)
    a = torch.randn(3)
    warm(f, a)
    f.reset()
    same(f(a), a.sin())
    for other in (copy.copy(f), copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        warm(other, a)
        same(other(a), a.sin())
    assert f.__wrapped__ is torch.sin and f.__name__ == "sin"


def test_threads():
    f = hindcast.aot_function(lambda x: {"y": x["a"].sin() + x["b"]})
    failures = []

    def work(seed):
        numbers = torch.Generator(DEVICE).manual_seed(seed)
        for _ in range(200):
            a, b = torch.randn(8, generator=numbers), torch.randn(8, generator=numbers)
            if not torch.allclose(f({"a": a, "b": b})["y"], a.sin() + b, atol=1e-6):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_other_threads_run_while_a_program_does():
    """A user's program waits for another thread, in code that does not release the GIL itself."""
    main = threading.get_ident()
    went_on = threading.Event()

    def compiler(program, examples):
        def run(tensors):
            if threading.get_ident() == main:
                assert went_on.wait(60)
            return program.run(tensors)

        return run

    f = hindcast.aot_function(lambda a: a.sin(), compiler, compiler)
    went_on.set()
    a = torch.randn(3)
    warm(f, a)
    went_on.clear()
    other = threading.Thread(target=lambda: (f(a), went_on.set()))
    other.start()
    same(f(a), a.sin())
    other.join()


@not_on_a_card
def test_forks():
    program = """
    import os
    f = hindcast.aot_function(lambda a: a.sin() + 3)
    a = torch.randn(4)
    model = torch.nn.Linear(4, 4)
    step = hindcast.train_step(torch.optim.Adam(model.parameters()), model, torch.nn.functional.mse_loss)
    for _ in range(4):
        f(a)
        step(a, a)
    child = os.fork()
    assert torch.allclose(f(a), a.sin() + 3)
    step(a, a)
    if child == 0:
        os._exit(0)
    print(os.waitpid(child, 0)[1])
    """
    assert python(program).strip() == "0"


# ---- the optimizer's step


def net_and_optimizers(make=lambda parameters: torch.optim.Adam(parameters, lr=0.01)):
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    stock = copy.deepcopy(ours)
    return (ours, make(ours.parameters())), (stock, make(stock.parameters()))


def gradients(net, step, names=None):
    numbers = torch.Generator(DEVICE).manual_seed(step)
    for name, parameter in net.named_parameters():
        gradient = torch.randn(parameter.shape, generator=numbers, dtype=parameter.dtype)
        parameter.grad = gradient if names is None or name in names else None


def expect_alike(ours, stock):
    for mine, theirs in zip(ours.parameters(), stock.parameters()):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("max_norm", [None, 0.1])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_a_step_enters_c(kind, max_norm, monkeypatch):
    settings = {"momentum": 0.9} if kind in ("SGD", "RMSprop") else {}
    make = lambda parameters: getattr(torch.optim, kind)(list(parameters), lr=0.01, **settings)  # noqa: E731
    (ours, of_ours), (stock, of_stock) = net_and_optimizers(make)
    step = hindcast.compiled_step(of_ours, None if max_norm is None else hindcast.ClipGradNorm(max_norm))
    with counted(monkeypatch, _optim.CompiledStep, "_step_compiled") as count:
        for i in range(10):
            names = {"0.weight", "2.bias"} if i % 3 == 2 else None  # not all have a gradient
            gradients(ours, i, names)
            gradients(stock, i, names)
            if max_norm is not None:
                norm = nn.utils.clip_grad_norm_(stock.parameters(), max_norm)
            of_stock.step()
            step()
            if max_norm is not None:
                torch.testing.assert_close(step.grad_norm, norm)
            expect_alike(ours, stock)
        assert count[0] <= 2  # until there is state
    assert step.original == 0 and step.compiled == 10 * 4 - 3 * 2


def test_the_step_sees_what_changes(monkeypatch):
    (ours, of_ours), (stock, of_stock) = net_and_optimizers()
    step = hindcast.compiled_step(of_ours)
    schedulers = [StepLR(optimizer, 1, 0.5) for optimizer in (of_ours, of_stock)]
    calls_of_hook = []

    def both(change=lambda optimizer: None, steps=2):
        for optimizer in (of_ours, of_stock):
            change(optimizer)
        for i in range(steps):
            gradients(ours, i)
            gradients(stock, i)
            of_stock.step()
            step()
            for scheduler in schedulers:
                scheduler.step()
        expect_alike(ours, stock)

    with counted(monkeypatch, _optim.CompiledStep, "_step_compiled") as count:
        both()
        in_python = count[0]
        both(lambda optimizer: optimizer.param_groups[0].update(weight_decay=0.1, betas=(0.5, 0.6)))
        both(lambda optimizer: optimizer.param_groups[0].update(maximize=True, lr=1))
        both(lambda optimizer: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict())))
        both(lambda optimizer: optimizer.param_groups[0]["params"].reverse())  # the state in another order
        assert count[0] == in_python
        both(lambda optimizer: optimizer.param_groups[0].update(lr=torch.tensor(0.1)))
        assert count[0] > in_python
        both(lambda optimizer: optimizer.param_groups[0].update(lr=0.1))
        both(lambda optimizer: optimizer.state.clear())
        handle = of_ours.register_step_post_hook(lambda *_: calls_of_hook.append(1))
        both()
        assert len(calls_of_hook) == 2
        handle.remove()
        in_python = count[0]
        both()
        assert count[0] == in_python


def test_a_new_group_and_a_replaced_step():
    (ours, of_ours), (stock, of_stock) = net_and_optimizers()
    step = hindcast.compiled_step(of_ours)
    for i in range(6):
        gradients(ours, i)
        gradients(stock, i)
        step()
        of_stock.step()
        if i == 3:
            for optimizer in (of_ours, of_stock):
                optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2, dtype=torch.double))], "lr": 1.0})
        for optimizer in (of_ours, of_stock):
            for group in optimizer.param_groups[1:]:
                group["params"][0].grad = torch.ones(2, dtype=torch.double)
    expect_alike(ours, stock)
    torch.testing.assert_close(of_ours.param_groups[1]["params"][0], of_stock.param_groups[1]["params"][0])
    called = []
    of_ours.step = lambda: called.append(1)
    step()
    assert called == [1]


def test_profilers_see_the_step():
    (ours, of_ours), _ = net_and_optimizers()
    step = hindcast.compiled_step(of_ours)
    for i in range(3):
        gradients(ours, i)
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    assert "Optimizer.step#Adam.step" in {event.key for event in profile.key_averages()}


def test_what_no_kernel_takes_is_the_optimizers():
    torch.manual_seed(0)
    both = []
    for _ in range(2):
        torch.manual_seed(0)
        both.append([nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(3, 4).t())])
    of_ours, of_stock = (torch.optim.Adam(parameters, lr=0.1) for parameters in both)
    step = hindcast.compiled_step(of_ours, hindcast.ClipGradNorm(0.5))
    for i in range(5):
        for parameters in both:
            torch.manual_seed(i)
            for parameter in parameters:
                parameter.grad = torch.randn(4, 3)  # the second one has another layout
        nn.utils.clip_grad_norm_(both[1], 0.5)
        step()
        of_stock.step()
        for mine, theirs in zip(*both):
            torch.testing.assert_close(mine, theirs)
    assert step.compiled == 5 and step.original == 5 and "same layout" in step.why_original


# ---- whole steps


def mse_batch(i, rows=4):
    numbers = torch.Generator(DEVICE).manual_seed(i)
    return torch.randn(rows, 5, generator=numbers, dtype=torch.double), torch.randn(rows, 3, generator=numbers, dtype=torch.double)


class Training:
    def __init__(self, **options):
        (self.ours, self.of_ours), (self.stock, self.of_stock) = net_and_optimizers()
        self.step = hindcast.train_step(self.of_ours, self.ours, nn.functional.mse_loss, **options)
        self.clip = options.get("clip_grad_norm")

    def both(self, first=0, steps=3):
        for i in range(first, first + steps):
            x, y = mse_batch(i)
            self.of_stock.zero_grad()
            loss = nn.functional.mse_loss(self.stock(x), y)
            loss.backward()
            if self.clip is not None:
                nn.utils.clip_grad_norm_(self.stock.parameters(), self.clip.max_norm)
            self.of_stock.step()
            torch.testing.assert_close(self.step(x, y), loss.detach())
            expect_alike(self.ours, self.stock)


@pytest.fixture
def steps_by_python(monkeypatch):
    with counted(monkeypatch, _train.TrainStep, "_find_trained") as count:
        yield count


@pytest.mark.parametrize("max_norm", [None, 0.1])
@pytest.mark.parametrize("keep_gradients", [False, True])
def test_a_training_step_enters_c(max_norm, keep_gradients, steps_by_python):
    clip = None if max_norm is None else hindcast.ClipGradNorm(max_norm)
    training = Training(clip_grad_norm=clip, keep_gradients=keep_gradients)
    training.both()
    steps_by_python[0] = 0
    training.both(3)
    assert steps_by_python[0] == 0
    for mine, theirs in zip(training.ours.parameters(), training.stock.parameters()):
        if keep_gradients and clip is None:
            torch.testing.assert_close(mine.grad, theirs.grad)
        assert (mine.grad is not None) == keep_gradients
    stats = training.step.stats()
    assert stats["hits"] >= 4 and stats["three_parts"] == 0


def test_a_training_step_sees_what_changes(steps_by_python):
    training = Training()
    training.both()
    schedulers = [StepLR(optimizer, 1, 0.5) for optimizer in (training.of_ours, training.of_stock)]
    training.both(3)
    for scheduler in schedulers:
        scheduler.step()
    training.both(6)
    seen = []
    handle = training.ours[0].weight.register_hook(lambda gradient: seen.append(1))
    training.both(9)
    assert len(seen) == 3 and training.step.three_parts == 3
    handle.remove()
    training.both(12)
    handle = training.ours[0].weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(1))
    training.both(15)
    assert len(seen) == 6
    handle.remove()
    for net in (training.ours, training.stock):
        net[0].weight.requires_grad_(False)
        net[0].weight.grad = None
    training.both(18, steps=5)
    for optimizer in (training.of_ours, training.of_stock):
        optimizer.param_groups[0]["weight_decay"] = 0.1
    steps_by_python[0] = 0
    training.both(23)
    assert steps_by_python[0] == 0
    with torch.device("cpu"):  # part of what a call is compared by: a trace, and the first hit
        training.both(26, steps=5)
    assert steps_by_python[0] == 2
    training.step.reset()
    training.both(29, steps=5)


def test_a_training_step_that_fails_restores_the_gradients(steps_by_python):
    def loss(net, x, y):
        if x.shape[0] == 7:
            raise ValueError("seven")
        return nn.functional.mse_loss(net(x), y), {"rows": x.shape[0], "x": x + 1}

    (ours, of_ours), _ = net_and_optimizers()
    step = hindcast.train_step(of_ours, lambda x, y: loss(ours, x, y), dynamic="never")
    for i in range(4):
        step(*mse_batch(i))
    steps_by_python[0] = 0
    before = copy.deepcopy(ours.state_dict())
    for parameter in ours.parameters():
        parameter.grad = torch.full_like(parameter, 2.0)
    kept = [parameter.grad for parameter in ours.parameters()]
    with pytest.raises(ValueError, match="seven"):
        step(*mse_batch(9, rows=7))
    assert all(parameter.grad is gradient for parameter, gradient in zip(ours.parameters(), kept))
    same(dict(ours.state_dict()), dict(before))
    x, y = mse_batch(5)
    value, rest = step(x, y)
    assert steps_by_python[0] == 0 and rest["rows"] == 4 and not value.requires_grad
    same(rest["x"], x + 1)
    assert all(parameter.grad is None for parameter in ours.parameters())


def test_arguments_that_want_gradients_and_disabled_gradients():
    training = Training()
    training.both()
    x, y = mse_batch(0)
    outside = torch.ones((), dtype=torch.double, requires_grad=True)
    training.step(x * outside, y)
    assert training.step.why_three_parts == "an argument has a history" and outside.grad is not None
    with torch.no_grad(), pytest.raises(RuntimeError, match="does not require grad"):
        training.step(x, y)
    training.step(x, y)


def test_parameters_that_share_a_gradient():
    def program(step_of):
        a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([a, b], lr=0.1)
        step = step_of(optimizer, lambda x: ((a + b) * x).sum())
        for i in range(5):
            step(torch.full((3,), float(i)))
        return a, b

    def ours(optimizer, loss):
        return hindcast.train_step(optimizer, loss, keep_gradients=True)

    def stock(optimizer, loss):
        def step(x):
            optimizer.zero_grad()
            loss(x).backward()
            optimizer.step()

        return step

    (a, b), expected = program(ours), program(stock)
    same([a, b], list(expected))
    assert a.grad is not b.grad and a.grad.data_ptr() != b.grad.data_ptr()


# ---- backward()


def test_backwards_enter_c(monkeypatch):
    w = torch.randn(3, requires_grad=True)
    with hindcast.enable(), counted(monkeypatch, _backward, "_take_over") as count:
        for _ in range(3):
            w.sin().sum().backward()
            (g,) = torch.autograd.grad(w.exp().sum(), w)
        same(g, w.exp().detach())
        assert count[0] == 0
        torch.autograd.backward([torch.autograd.graph.get_gradient_edge(w.sin())], [torch.ones(3)])
        assert count[0] == 1
    same(w.grad, 4 * w.cos().detach())


def test_arguments_of_the_method():
    from torch.autograd.variable import Variable

    w = torch.ones(3, requires_grad=True)
    with hindcast.enable():
        engine = Variable._execution_engine
        one = (torch.ones(()),)
        (g,) = engine.run_backward((w.sin().sum(),), one, False, False, (w,), True, False)
        other_text = "".join(["allow_", "unreachable"])  # of the same letters as the name that C has
        (h,) = engine.run_backward((w.sin().sum(),), one, keep_graph=False, create_graph=False, inputs=(w,), **{other_text: True})
        same(g, h)
        for arguments, named in (((), {}), ((1, 2, 3, 4, 5, 6, 7, 8), {}), (((w.sum(),), (None,), False, False), {"other": 1})):
            mine = error_of(lambda: engine.run_backward(*arguments, **named))
            assert mine == error_of(lambda: torch._C._ImperativeEngine().run_backward(*arguments, **named)) and "TypeError" in str(mine)


def test_a_backward_in_a_thread_without_a_guard():
    w = torch.randn(3, requires_grad=True)
    with hindcast.enable():
        thread = threading.Thread(target=lambda: w.sin().sum().backward())
        thread.start()
        thread.join()
    assert hindcast.stats()["backwards"] == 0
    same(w.grad, w.cos().detach())


# ---- memory


def alone(test):
    """In a separate process: resident memory also includes what earlier tests left behind, such as threads."""

    @functools.wraps(test)
    def run():
        if os.environ.get("HINDCAST_TEST_ALONE"):
            return test()
        arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"{__file__}::{test.__name__}"]
        ran = subprocess.run([sys.executable, *arguments], env={**os.environ, "HINDCAST_TEST_ALONE": "1"}, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout

    return run


def _resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def _keeps_nothing(call, objects, times):
    def run():
        for _ in range(times):
            call()

    run()
    hindcast.wait()  # a kernel that is being compiled takes memory
    run()
    gc.collect()
    references = [sys.getrefcount(each) for each in objects]
    grown = []
    for _ in range(3):  # other threads of the process may take memory once; a leak of calls grows each time
        resident = _resident()
        run()
        gc.collect()
        grown.append(_resident() - resident)
        if grown[-1] < 1 << 20:
            break
    assert [sys.getrefcount(each) for each in objects] == references
    assert grown[-1] < 1 << 20, grown


@alone
def test_calls_keep_nothing():
    a, b, store = torch.randn(4), torch.randn(4), {"k": [1.5, "text"]}
    marks = (a, b, store, 1.5, "text")
    f = hindcast.aot_function(lambda a, b: (a.sin(), {"y": b.cos(), "n": 3}))
    _keeps_nothing(lambda: f(a, b), marks, 50_000)
    g = hindcast.aot_function(lambda x, store, k: x["a"].sin() * store["k"][0] + k)
    _keeps_nothing(lambda: g({"a": a}, store, k=2.5), marks, 50_000)
    failing = hindcast.aot_function(lambda a, b: a + b, dynamic="never")
    warm(failing, a, b)
    _keeps_nothing(lambda: error_of(lambda: failing(a, torch.ones(5))), marks, 300)


@alone
def test_steps_keep_nothing():
    (ours, of_ours), _ = net_and_optimizers()
    step = hindcast.compiled_step(of_ours, hindcast.ClipGradNorm(1.0))
    gradients(ours, 0)
    parameters = list(ours.parameters())
    marks = [*parameters, *(parameter.grad for parameter in parameters), of_ours, of_ours.param_groups, of_ours.state[parameters[0]]]
    _keeps_nothing(step, marks, 20_000)
    training = Training()
    x, y = mse_batch(0)
    parameters = list(training.ours.parameters())
    _keeps_nothing(lambda: training.step(x, y), [x, y, *parameters, training.of_ours.state[parameters[0]], training.step], 5_000)


@alone
def test_backwards_keep_nothing():
    w, one = torch.randn(3, requires_grad=True), torch.ones(3)
    with hindcast.enable():
        _keeps_nothing(lambda: w.sin().backward(one), (w, one), 20_000)
        _keeps_nothing(lambda: torch.autograd.grad(w.sin(), w, one), (w, one), 20_000)


# ---- without it


def test_operators_do_the_same(monkeypatch):
    monkeypatch.setenv("HINDCAST_PYTHON_CALLS", "operators")
    program = """
    from hindcast._library import calls
    f = hindcast.aot_function(lambda a, k: {"x": a["y"].sin() * k})
    net = torch.nn.Linear(3, 3)
    step = hindcast.train_step(torch.optim.Adam(net.parameters()), net, torch.nn.functional.mse_loss)
    update = hindcast.compiled_step(torch.optim.Adam(net.parameters()))
    a = torch.randn(3)
    for _ in range(5):
        assert torch.allclose(f({"y": a}, 2)["x"], a.sin() * 2)
        step(a, a)
        with hindcast.enable():
            net(a).sum().backward()
        update()
    print(calls, f.stats()["hits"] > 0, step.stats()["hits"] > 0, update.compiled, hindcast.stats()["hits"])
    """
    assert python(program).split() == ["None", "True", "True", "10", "4"]
