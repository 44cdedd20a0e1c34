"""Programs on which hindcast gains little or nothing: each returns one step of PyTorch's, and the same step with hindcast."""

import itertools

import hindcast
import torch
from torch import nn
from torch.nn.utils import rnn, weight_norm
from torch.utils.checkpoint import checkpoint

ROWS = {}


def row(name):
    def add(make):
        ROWS[f"idle/{name}"] = make
        return make

    return add


def calls(function, *arguments, compiled=None):
    compiled = compiled or hindcast.aot_function(function)
    return lambda: function(*arguments), lambda: compiled(*arguments)


def guarded(step, **options):
    """With a guard around all steps: `ours` enters it permanently, since its step runs only in its own blocks."""
    return step, step, lambda: hindcast.enable(**options)


# ---- functions without gradients


@row("function/add")
def _():
    return calls(lambda x: x + 1, torch.ones(16))


@row("function/add/no_grad")
def _():
    step, ours = calls(lambda x: x + 1, torch.ones(16))
    return torch.no_grad()(step), torch.no_grad()(ours)


@row("function/relu/64x64")
def _():
    return calls(torch.relu, torch.randn(64, 64))


@row("function/matmul/64")
def _():
    return calls(torch.matmul, torch.randn(64, 64), torch.randn(64, 64))


@row("function/three_ops")
def _():
    return calls(lambda x: (x + 1).sin() * 2, torch.ones(16))


@row("function/dict")
def _():
    return calls(lambda batch: {"y": batch["x"] + 1}, {"x": torch.ones(16)})


@row("module/240_identities")
def _():
    net = nn.Sequential(*(nn.Identity() for _ in range(240))).eval()
    return calls(net, torch.ones(16), compiled=hindcast.aot_module(net))


@row("module/240_dropouts")
def _():
    net = nn.Sequential(*(nn.Dropout() for _ in range(240))).eval()
    return calls(net, torch.ones(16), compiled=hindcast.aot_module(net))


# ---- calls that no program serves


def differing(function, arguments):
    compiled = hindcast.aot_function(function)
    of_stock, of_ours = arguments(), arguments()
    return lambda: function(*next(of_stock)), lambda: compiled(*next(of_ours))


@row("number/argument")
def _():
    x = torch.ones(16, requires_grad=True)

    def step(number):
        return (x * number).sin().sum()

    return differing(step, lambda: ((float(i),) for i in itertools.count()))


@row("number/item")
def _():
    def step(x):
        return x.sin() * x.sum().item()

    return differing(step, lambda: ((torch.full((16,), float(i)),) for i in itertools.count()))


def training(net, *arguments, pick=lambda result: result):
    def step(call):
        pick(call(*arguments)).sum().backward()
        net.zero_grad()

    ours = hindcast.aot_module(net)
    return lambda: step(net), lambda: step(ours)


@row("eager/lstm")
def _():
    return training(nn.LSTM(16, 16), torch.randn(4, 2, 16), pick=lambda result: result[0])


@row("eager/lstm/no_grad")
def _():
    net = nn.LSTM(16, 16)
    step, ours = calls(net, torch.randn(4, 2, 16), compiled=hindcast.aot_module(net))
    return torch.no_grad()(step), torch.no_grad()(ours)


@row("eager/mask")
def _():
    return calls(lambda x: x[x > 0], torch.randn(16))


@row("eager/mask/no_grad")
def _():
    step, ours = calls(lambda x: x[x > 0], torch.randn(16))
    return torch.no_grad()(step), torch.no_grad()(ours)


@row("eager/mask/training")
def _():
    x = torch.randn(16, requires_grad=True)
    compiled = hindcast.aot_function(lambda x: x[x > 0])

    def step(function):
        function(x).sum().backward()
        x.grad = None

    return lambda: step(lambda x: x[x > 0]), lambda: step(compiled)


@row("eager/weight_norm")
def _():
    return training(weight_norm(nn.Linear(16, 16)), torch.randn(4, 16))


@row("eager/packed_lengths")
def _():
    torch.manual_seed(0)
    net, data = nn.LSTM(16, 16), torch.randn(64, 8, 16)
    ours = hindcast.aot_module(net)

    def batches():
        generator = torch.Generator().manual_seed(0)
        while True:
            lengths = torch.randint(1, 64, (8,), generator=generator).sort(descending=True).values
            yield rnn.pack_padded_sequence(data, lengths)

    def step(call, of):
        call(next(of))[0].data.sum().backward()
        net.zero_grad()

    of_stock, of_ours = batches(), batches()
    return lambda: step(net, of_stock), lambda: step(ours, of_ours)


@row("checkpoint/reentrant")
def _():
    net = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16))
    ours, x = hindcast.aot_module(net), torch.randn(4, 16, requires_grad=True)

    def step(call):
        checkpoint(call, x, use_reentrant=True).sum().backward()
        net.zero_grad()
        x.grad = None

    return lambda: step(net), lambda: step(ours)


@row("function/alternating_results")
def _():
    x = torch.randn(16, requires_grad=True)
    turns = [itertools.cycle((0, 1)), itertools.cycle((0, 1))]

    def two(x):
        return (x.sin() * 2).exp(), (x.cos() * 3).exp()

    compiled = hindcast.aot_function(two)

    def step(function, turn):
        function(x)[next(turn)].sum().backward()
        x.grad = None

    return lambda: step(two, turns[0]), lambda: step(compiled, turns[1])


# ---- backwards under a guard


def matmul_step():
    """A weight, and a step that computes its gradient."""
    w, x = torch.randn(16, 16, requires_grad=True), torch.randn(4, 16)

    def step():
        (x @ w).sum().backward()
        w.grad = None

    return w, step


@row("guard/matmul_and_hook")
def _():
    w, step = matmul_step()
    w.register_hook(lambda gradient: gradient)
    return guarded(step)


@row("guard/matmul/each_step")
def _():
    _, step = matmul_step()
    guard = hindcast.enable()

    def ours():
        with guard:
            step()

    return step, ours


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ctx.saved_tensors
        return gradient * 2


@row("guard/10_python_functions")
def _():
    x = torch.randn(16, requires_grad=True)

    def step():
        y = x
        for _ in range(10):
            y = Scale.apply(y)
        y.sum().backward()
        x.grad = None

    return guarded(step)


@row("guard/saved_tensor_hooks")
def _():
    w, x = torch.randn(16, 16, requires_grad=True), torch.randn(4, 16)

    def step():
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = (x @ w).tanh().sum()
        y.backward()
        w.grad = None

    return guarded(step)


@row("guard/double_backward")
def _():
    x = torch.randn(16, requires_grad=True)

    def step():
        (gradient,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        x.grad = None

    return guarded(step)


@row("guard/sparse_embedding")
def _():
    net, words = nn.Embedding(100, 16, sparse=True), torch.arange(8)

    def step():
        net(words).sum().backward()
        net.weight.grad = None

    return guarded(step)


def energy(positions):
    distances = (positions[:, None] - positions[None]).square().sum(-1) + torch.eye(len(positions))
    inverse = 1 / distances
    return (inverse**6 - inverse**3).sum()


class Energy(nn.Module):
    def forward(self, positions):
        return energy(positions)


def forces(call, positions):
    return -torch.autograd.grad(call(positions), positions)[0]


@row("guard/forces")
def _():
    positions = torch.randn(8, 3, requires_grad=True)
    return guarded(lambda: forces(energy, positions))


@row("module/forces")
def _():
    positions = torch.randn(8, 3, requires_grad=True)
    net = Energy()
    ours = hindcast.aot_module(net)
    return lambda: forces(net, positions), lambda: forces(ours, positions)


# ---- optimizers


def updates(make_gradient):
    def lane(wrap):
        parameter = nn.Parameter(torch.zeros(8, 4))
        parameter.grad = make_gradient(parameter)
        optimizer = torch.optim.SGD([parameter], lr=1e-3)
        return wrap(optimizer)

    return lane(lambda optimizer: optimizer.step), lane(hindcast.compiled_step)


@row("optimizer/sgd/one_tiny")
def _():
    return updates(torch.ones_like)


@row("optimizer/sgd/sparse")
def _():
    return updates(lambda parameter: torch.sparse_coo_tensor([[0, 3]], torch.ones(2, 4), parameter.shape).coalesce())
