"""hindcast.train_step() compared with the same step in PyTorch, in float64."""

import copy
import dataclasses

import pytest
import torch
from device_of_tests import DEVICE
from side_by_side import assert_same
import torch.utils.checkpoint
from torch import nn

import hindcast

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=0.01),  # its own code does the updates
}


def mlp():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def batch(step, rows=8):
    numbers = torch.Generator(DEVICE).manual_seed(step)
    return torch.randn(rows, 6, generator=numbers, dtype=torch.double), torch.randn(rows, 3, generator=numbers, dtype=torch.double)


class Both:
    """Two copies of one net, and PyTorch's step with one of them."""

    def __init__(self, make=OPTIMIZERS["adam"], net=None):
        self.ours = mlp() if net is None else net
        self.stock = copy.deepcopy(self.ours)
        self.of_ours, self.of_stock = make(self.ours.parameters()), make(self.stock.parameters())

    def stock_step(self, *arguments, criterion=nn.functional.mse_loss, max_norm=None):
        self.of_stock.zero_grad()
        loss = criterion(self.stock(*arguments[:-1]), arguments[-1])
        loss.backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(self.stock.parameters(), max_norm)
        self.of_stock.step()
        return loss.detach()

    def expect_alike(self):
        for (name, mine), theirs in zip(self.ours.state_dict().items(), self.stock.state_dict().values()):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_is_the_step_of_each_optimizer(name, max_norm):
    both = Both(OPTIMIZERS[name])
    clip = None if max_norm is None else hindcast.ClipGradNorm(max_norm)
    step = hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, clip_grad_norm=clip, async_=False)
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9) for optimizer in (both.of_ours, both.of_stock)]
    for i in range(20):
        x, y = batch(i)
        torch.testing.assert_close(step(x, y), both.stock_step(x, y, max_norm=max_norm))
        for scheduler in schedulers:
            scheduler.step()
    both.expect_alike()
    assert all(parameter.grad is None for parameter in both.ours.parameters())
    assert step.stats()["hits"] == 19 and step.stats()["three_parts"] == 0


def test_a_function_may_return_more_than_the_loss():
    both = Both()

    def function(x, *, y, factor):
        out = both.ours(x)
        return {"loss": (out - y).square().mean() * factor, "out": out, "name": "batch"}

    step = hindcast.train_step(both.of_ours, function, async_=False)
    for i in range(6):
        x, y = batch(i)
        out = both.stock(x).detach()
        result = step(x, y=y, factor=2.0)
        torch.testing.assert_close(result["out"], out)
        assert result["name"] == "batch" and not result["loss"].requires_grad
        both.stock_step(x, y, criterion=lambda a, b: (a - b).square().mean() * 2)
    both.expect_alike()


def test_a_loss_may_freeze_a_layer():
    losses = []
    for ours in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
        optimizer = OPTIMIZERS["adam"](net.parameters())

        def loss_of(x):
            net[0].weight.requires_grad_(False)
            return net(x).square().mean()

        step = hindcast.train_step(optimizer, loss_of, async_=False) if ours else None
        for _ in range(5):
            x = torch.randn(5, 3, dtype=torch.float64)
            if ours:
                loss = step(x)
            else:
                optimizer.zero_grad()
                loss = loss_of(x)
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
    assert losses[:5] == pytest.approx(losses[5:], rel=1e-12)


def test_a_result_may_have_the_loss_twice_and_a_size():
    net = mlp()

    def loss_of(x, y):
        loss = nn.functional.mse_loss(net(x), y)
        return loss, {"loss": loss, "size": x.shape}

    step = hindcast.train_step(OPTIMIZERS["adam"](net.parameters()), loss_of, async_=False)
    for i in range(4):
        loss, others = step(*batch(i))
        assert others["loss"] is loss and type(others["size"]) is torch.Size
    assert step.three_parts == 0 and step.stats()["hits"] == 3


def test_modes_buffers_and_sizes():
    # Without a bias, whose gradient would be pure rounding, scaled up by Adam: batch norm subtracts it.
    net = nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)).double()
    both = Both(net=net)
    step = hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, async_=False, fallback_random=True)
    for i in range(24):
        for model in (both.ours, both.stock):
            model.train(i % 8 < 5)
        x, y = batch(i, rows=4 + i % 3)
        torch.manual_seed(i)
        expected = both.stock_step(x, y)
        torch.manual_seed(i)
        torch.testing.assert_close(step(x, y), expected)
    both.expect_alike()
    assert step.stats()["hits"] >= 12


def test_micro_batches_and_kept_gradients():
    both = Both()
    step = hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, accumulate=3, keep_gradients=True, async_=False)
    for i in range(12):
        x, y = batch(i)
        step(x, y)
        if i % 3 == 0:
            both.of_stock.zero_grad()
        nn.functional.mse_loss(both.stock(x), y).backward()
        if i % 3 == 2:
            both.of_stock.step()
            both.expect_alike()
        for mine, theirs in zip(both.ours.parameters(), both.stock.parameters()):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-11)


def test_gradients_in_the_loss():
    both = Both(OPTIMIZERS["sgd"])

    def residual(net):
        def of(x):
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
            return (slope - x.cos()).square().mean()

        return of

    step = hindcast.train_step(both.of_ours, residual(both.ours), async_=False)
    for i in range(8):
        x, _ = batch(i)
        both.of_stock.zero_grad()
        residual(both.stock)(x).backward()
        both.of_stock.step()
        step(x)
    both.expect_alike()
    assert step.stats()["hits"] == 7


def test_a_hook_is_called_as_in_a_backward():
    both = Both()
    step = hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, async_=False)
    calls = []

    def run():
        x, y = batch(len(calls))
        step(x, y)
        both.stock_step(x, y)

    run()
    handles = [next(net.parameters()).register_hook(lambda gradient: calls.append(1) or gradient * 2) for net in (both.ours, both.stock)]
    run()
    run()
    assert len(calls) == 4 and step.three_parts == 2 and step.why_three_parts == "a parameter has a hook"
    for handle in handles:
        handle.remove()
    run()
    assert step.three_parts == 2
    both.expect_alike()


def test_frozen_parameters():
    both = Both()
    step = hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, async_=False)
    for i in range(8):
        for net in (both.ours, both.stock):
            net[0].weight.requires_grad_(i % 4 != 1)
        x, y = batch(i)
        step(x, y)
        both.stock_step(x, y)
    both.expect_alike()


def test_lbfgs():
    both = Both(lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=4))
    step = hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, async_=False)
    x, y = batch(0)
    for _ in range(3):

        def closure():
            both.of_stock.zero_grad()
            loss = nn.functional.mse_loss(both.stock(x), y)
            loss.backward()
            return loss

        torch.testing.assert_close(step(x, y), both.of_stock.step(closure).detach())
    both.expect_alike()


def test_a_scaler():
    both = Both()
    of_ours, of_stock = (torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3) for _ in range(2))
    step = hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, scaler=of_ours, clip_grad_norm=hindcast.ClipGradNorm(0.5),
                               async_=False)
    for i in range(10):
        x, y = batch(i)
        if i == 5:
            x = x * float("inf")
        step(x, y)
        both.of_stock.zero_grad()
        of_stock.scale(nn.functional.mse_loss(both.stock(x), y)).backward()
        of_stock.unscale_(both.of_stock)
        nn.utils.clip_grad_norm_(both.stock.parameters(), 0.5)
        of_stock.step(both.of_stock)
        of_stock.update()
        assert of_ours.get_scale() == of_stock.get_scale()
    both.expect_alike()


class Recompute(torch.autograd.Function):
    """Like reversible layers and other libraries' checkpoints."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.save_for_backward(x)
        ctx.layer = layer
        with torch.no_grad():
            return layer(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            torch.autograd.backward(ctx.layer(x), gradient)
        return x.grad, None


# name -> loss of (net, parameters beside it, x, y), and options
PROGRAMS = {
    "an argument with a history": lambda net, w, x, y: None,
    "two parameters share a gradient": lambda net, w, x, y: (net(x) + (w[0] + w[1]) - y).square().mean(),
    "a Function calls backward": lambda net, w, x, y: (Recompute.apply(net[0](x) + w[0].sum(), net[1:]) - y).square().mean(),
    "a reentrant checkpoint": lambda net, w, x, y: nn.functional.mse_loss(
        torch.utils.checkpoint.checkpoint(net[1:], net[0](x) + w[0].sum(), use_reentrant=True), y
    ),
}


def inner_backward(net, w, x, y):
    (w[0] * x.sum()).sum().backward()
    return nn.functional.mse_loss(net(x), y)


PROGRAMS["the function calls backward"] = inner_backward


CASES = [(name, options) for name in PROGRAMS for options in ({}, {"accumulate": 2}, {"keep_gradients": True})]
CASES.append(("two parameters share a gradient", {"check_every": 3}))


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_found_by_attack(name, options):
    ours, stock = mlp(), mlp()
    beside = [[nn.Parameter(torch.linspace(0, 1, 3, dtype=torch.double) + i) for i in range(2)] for _ in range(2)]
    encoders = [nn.Linear(6, 6).double() for _ in range(2)]
    encoders[1].load_state_dict(encoders[0].state_dict())
    of_ours, of_stock = (
        torch.optim.SGD([*net.parameters(), *w, *encoder.parameters()], lr=0.05)
        for net, w, encoder in ((ours, beside[0], encoders[0]), (stock, beside[1], encoders[1]))
    )
    loss = PROGRAMS[name]
    encodes = name == "an argument with a history"
    if encodes:

        def loss(net, w, x, y):
            return nn.functional.mse_loss(net(x), y)

    step = hindcast.train_step(of_ours, lambda x, y: loss(ours, beside[0], x, y), async_=False, **options)
    every = options.get("accumulate", 1)
    for i in range(8):
        x, y = batch(i)
        if i % every == 0:
            of_stock.zero_grad()
        loss(stock, beside[1], encoders[1](x) if encodes else x, y).backward()
        if i % every == every - 1:
            of_stock.step()
        step(encoders[0](x) if encodes else x, y)
        for mine, theirs in zip([*ours.parameters(), *beside[0], *encoders[0].parameters()],
                                [*stock.parameters(), *beside[1], *encoders[1].parameters()]):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
            if "keep_gradients" in options:
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-10, atol=1e-12)
    if "keep_gradients" in options and name == "two parameters share a gradient":
        assert beside[0][0].grad.data_ptr() != beside[0][1].grad.data_ptr()


class Derived(torch.optim.SGD):
    """Its own code makes the updates."""


WRITERS = {
    "scaler": {"scale": 4.0},
    "accumulate": {"accumulate": 2},
    "clip by the optimizer's code": {"clip": (0.5,), "kind": Derived},
    "clip by a norm of order 0": {"clip": (0.5, 0.0)},
    "a hook": {"hooks": True},
}


@pytest.mark.parametrize("shape", [(4,), (2, 2)], ids=["one tensor", "a view of it"])
@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS.keys())
def test_gradients_in_one_memory_are_written_to(writer, shape):
    def train(is_ours):
        one, other = (nn.Parameter(torch.ones(sizes)) for sizes in ((4,), shape))
        optimizer = writer.get("kind", torch.optim.SGD)([one, other], lr=0.01)
        if "hooks" in writer:
            optimizer.register_step_pre_hook(lambda *_: [one.grad.mul_(0.5), other.grad.mul_(0.5)] and None)
        scaler = torch.amp.GradScaler("cpu", init_scale=writer["scale"]) if "scale" in writer else None
        every, clip = writer.get("accumulate", 1), writer.get("clip")

        def loss_of(x):
            return ((one + other.view(4)) * x).sum()

        step = hindcast.train_step(optimizer, loss_of, accumulate=every, scaler=scaler, async_=False,
                                   clip_grad_norm=hindcast.ClipGradNorm(*clip) if clip else None)
        for i in range(8):
            x = torch.arange(1.0, 5.0) + i
            if is_ours:
                step(x)
                continue
            if i % every == 0:
                optimizer.zero_grad()
            (scaler.scale(loss_of(x)) if scaler else loss_of(x)).backward()
            if i % every == every - 1:
                if clip:
                    nn.utils.clip_grad_norm_([one, other], *clip)
                if scaler:
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    optimizer.step()
        return one.detach(), other.detach()

    for mine, theirs in zip(train(True), train(False)):
        torch.testing.assert_close(mine, theirs)


def test_a_parameter_may_be_an_argument_or_be_listed_twice():
    both = Both(OPTIMIZERS["sgd"])
    step = hindcast.train_step(both.of_ours, lambda w, x, y: nn.functional.mse_loss(both.ours[2](torch.tanh(x @ w.t())), y), async_=False,
                               ignore_other_parameters=True)
    for i in range(5):
        x, y = batch(i)
        both.of_stock.zero_grad()
        nn.functional.mse_loss(both.stock[2](torch.tanh(x @ both.stock[0].weight.t())), y).backward()
        both.of_stock.step()
        step(both.ours[0].weight, x, y)
    both.expect_alike()
    assert step.why_three_parts == "an argument is a parameter"


def test_zero_grad_is_of_frozen_parameters_too():
    both = Both(OPTIMIZERS["sgd"])
    for net in (both.ours, both.stock):
        net[0].weight.grad = torch.ones_like(net[0].weight)
        net[0].weight.requires_grad_(False)
    step = hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, async_=False)
    for i in range(4):
        x, y = batch(i)
        step(x, y)
        both.stock_step(x, y)
    both.expect_alike()


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("kind", ["no scalar", "no gradient", "exception", "no loss", "another parameter"])
def test_what_fails_changes_nothing(kind, hooked):
    both = Both()
    other = nn.Parameter(torch.ones(3, dtype=torch.double))

    def function(x, y):
        if kind == "no scalar":
            return both.ours(x) - y
        if kind == "no gradient":
            return x.sum() + y.sum()
        if kind == "no loss":
            return []
        if kind == "another parameter":
            return ((both.ours(x) - y) * other).square().mean()
        both.ours(x)
        raise KeyError("of the user's")

    errors = {
        "no scalar": (RuntimeError, "grad can be implicitly created only for scalar outputs"),
        "no gradient": (RuntimeError, "does not require grad and does not have a grad_fn"),
        "exception": (KeyError, "of the user's"),
        "no loss": (TypeError, "the function returned list, expected the loss"),
        "another parameter": (ValueError, "a parameter that the optimizer does not have, of sizes \\[3\\]"),
    }
    x, y = batch(0)
    nn.functional.mse_loss(both.ours(x), y).backward()
    both.of_ours.step()
    if hooked:
        next(both.ours.parameters()).register_hook(lambda gradient: gradient)
    before = copy.deepcopy([both.ours.state_dict(), both.of_ours.state_dict()["state"], [p.grad for p in both.ours.parameters()]])
    step = hindcast.train_step(both.of_ours, function, async_=False)
    error, message = errors[kind]
    for _ in range(2):
        with pytest.raises(error, match=message):
            step(x, y)
        after = [both.ours.state_dict(), both.of_ours.state_dict()["state"], [p.grad for p in both.ours.parameters()]]
        torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_bad_options():
    both = Both()
    with pytest.raises(ValueError, match="accumulate is 0, expected 1 or more"):
        hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, accumulate=0)
    with pytest.raises(TypeError, match="accumulate is '2', expected an int"):
        hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, accumulate="2")
    with pytest.raises(TypeError, match="with a criterion the function is a module, got function"):
        hindcast.train_step(both.of_ours, lambda x: x, nn.functional.mse_loss)
    with pytest.raises(ValueError, match="LBFGS evaluates the loss itself"):
        hindcast.train_step(torch.optim.LBFGS(both.ours.parameters()), both.ours, nn.functional.mse_loss, accumulate=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'unknown'"):
        hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, unknown=1)
    for options, message in (({"scaler": 3}, "scaler is a int"), ({"keep_gradients": "no"}, "keep_gradients is 'no', expected a bool")):
        with pytest.raises(TypeError, match=message):
            hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, **options)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.deepcopy(hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss))


@pytest.mark.parametrize("padded", [1, 2])
def test_another_branch_does_not_end_its_programs(padded):
    ours, stock = (nn.Parameter(torch.eye(6, dtype=torch.double)) for _ in range(2))
    of_ours, of_stock = (torch.optim.SGD([weight], lr=0.01) for weight in (ours, stock))

    def loss_of(weight, x, mask):
        return ((x @ weight).tanh() if mask.all() else (x @ weight) * mask[:, None]).square().mean()

    step = hindcast.train_step(of_ours, lambda x, mask: loss_of(ours, x, mask), async_=False)
    for number in range(40):
        x, mask = batch(number)[0], torch.ones(8, dtype=torch.bool)
        mask[0] = number != padded
        of_stock.zero_grad()
        expected = loss_of(stock, x, mask)
        expected.backward()
        of_stock.step()
        torch.testing.assert_close(step(x, mask), expected.detach())
    torch.testing.assert_close(ours, stock)
    assert step.three_parts == 0 and step.stats()["hits"] > 20


@pytest.mark.parametrize("calls_of_a_value", [3, 6])
def test_what_changes_every_few_calls_is_not_traced_for_ever(calls_of_a_value):
    both = Both()
    step = hindcast.train_step(both.of_ours, both.ours, nn.functional.mse_loss, async_=False)
    for number in range(400):
        both.ours.seen = number // calls_of_a_value
        torch.testing.assert_close(step(*batch(number)), both.stock_step(*batch(number)))
    both.expect_alike()
    assert step.stats()["traces"] < 45


def test_a_function_that_keeps_a_tensor_is_given_up_and_says_so():
    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.mean = nn.Linear(6, 3).double(), torch.zeros(3, dtype=torch.double)

        def forward(self, x):
            h = self.layer(x)
            self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
            return h - self.mean

    net = Running()
    step = hindcast.train_step(torch.optim.SGD(net.parameters(), lr=0.01), net, nn.functional.mse_loss, async_=False)
    for number in range(40):
        step(*batch(number))
    assert step.three_parts > 0 and "cannot be traced" in step.why_three_parts


class AsSaved(torch.autograd.Function):
    """The gradient of a product, returned as it was saved."""

    is_traceable = True

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return (x * y).sum()

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return y, x


def check_steps(make_step, others, count=5):
    """`make_step(optimizer, parameters)` and `others`: tensors that no step may change."""
    with_hindcast, stock = ([torch.nn.Parameter(torch.full((3,), value)) for value in (1.0, 2.0)] for _ in range(2))
    before = [other.detach().clone() for other in others]
    step = make_step(torch.optim.SGD(with_hindcast, lr=0.1), with_hindcast)
    expected = make_step(torch.optim.SGD(stock, lr=0.1), stock, False)
    for _ in range(count):
        step()
        expected()
        hindcast.wait()
        torch.testing.assert_close([each.detach() for each in with_hindcast], [each.detach() for each in stock])
        assert_same([other.detach() for other in others], before)


@pytest.mark.parametrize("accumulate", (1, 2))
@pytest.mark.parametrize("keep", (True, False), ids=("kept", "dropped"))
def test_gradients_that_are_other_tensors_are_copied(accumulate, keep):
    x, frozen = torch.full((3,), 5.0), torch.nn.Parameter(torch.full((3,), 7.0), requires_grad=False)

    def loss(parameters):
        return lambda: AsSaved.apply(*parameters) + AsSaved.apply(parameters[0], frozen) + AsSaved.apply(parameters[1], x)

    def make_step(optimizer, parameters, is_hindcast=True):
        if is_hindcast:
            step = hindcast.train_step(optimizer, loss(parameters), accumulate=accumulate, keep_gradients=keep)

            def edited():
                step()
                if keep:
                    for parameter in parameters:
                        parameter.grad.zero_()

            return edited
        micro_batches = 0

        def stock():
            nonlocal micro_batches
            if micro_batches == 0:
                optimizer.zero_grad()
            loss(parameters)().backward()
            micro_batches = (micro_batches + 1) % accumulate
            if micro_batches == 0:
                optimizer.step()
            if keep:
                for parameter in parameters:
                    parameter.grad.zero_()

        return stock

    check_steps(make_step, [x, frozen])


@pytest.mark.parametrize("which", ("parameter", "argument", "frozen", "result"))
def test_a_gradient_that_is_another_tensor_alone(which):
    x, frozen = torch.full((3,), 5.0), torch.full((3,), 7.0)

    def loss(parameters, x):
        first, second = parameters
        if which == "parameter":
            return AsSaved.apply(first, second)
        if which == "result":
            made = x * 2
            return AsSaved.apply(first, made) + second.sum(), made
        return AsSaved.apply(first, x if which == "argument" else frozen) + second.sum()

    def make_step(optimizer, parameters, is_hindcast=True):
        step = hindcast.train_step(optimizer, lambda x: loss(parameters, x), accumulate=2)

        def ours():
            for _ in range(2):
                result = step(x)
            if which == "result":
                assert torch.equal(result[1], x * 2)

        def stock():
            optimizer.zero_grad()
            for _ in range(2):
                result = loss(parameters, x)
                (result[0] if which == "result" else result).backward()
            optimizer.step()

        return ours if is_hindcast else stock

    check_steps(make_step, [x, frozen])


def test_a_scaler_goes_on_after_an_error():
    net = nn.Linear(3, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    clip = hindcast.ClipGradNorm(1.0, error_if_nonfinite=True)
    step = hindcast.train_step(
        torch.optim.SGD(net.parameters(), lr=0.1), lambda x: net(x).square().sum(), scaler=scaler, clip_grad_norm=clip
    )
    before = [parameter.detach().clone() for parameter in net.parameters()]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="finite"):
            step(torch.full((4, 3), float("inf")))
    assert_same([parameter.detach() for parameter in net.parameters()], before)
    step(torch.ones(4, 3))
    assert not torch.equal(net.weight, before[0])


@dataclasses.dataclass
class Output:
    mean: torch.Tensor
    logits: torch.Tensor
    size: int


def test_tensors_in_an_object_that_is_returned_have_no_history():
    net = torch.nn.Linear(4, 3)

    def function(x, target):
        logits = net(x)
        loss = torch.nn.functional.cross_entropy(logits, target)
        return loss, Output(logits.mean(), logits, len(x))

    step = hindcast.train_step(torch.optim.SGD(net.parameters(), lr=0.0), function)
    for _ in range(4):
        x, target = torch.randn(5, 4), torch.randint(3, (5,))
        loss, output = step(x, target)
        assert torch.allclose(output.logits, net(x)) and torch.allclose(output.mean, net(x).mean()) and output.size == 5
        assert not loss.requires_grad and not output.logits.requires_grad
    assert step.stats()["hits"] == 3, step.stats()
