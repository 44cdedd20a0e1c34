"""hindcast.train_step(cuda_graphs=True) on an emulated card, compared with PyTorch's own steps."""

import copy
import gc
import threading
import weakref

import card
import hindcast
import pytest
import torch
from torch import nn

STEPS = 12  # one is traced, three more are observed
DEVICE = card.DEVICE


@pytest.fixture(autouse=True)
def nothing_is_done_wrong():
    card.take_errors()
    yield
    assert card.take_errors() == []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("mean", torch.zeros(8))
        self.scale = 1.0

    def forward(self, x):
        x = torch.tanh(self.first(x)) * self.scale
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.second(x)


def two_nets():
    torch.manual_seed(0)
    net = Net()
    return copy.deepcopy(net).to(DEVICE), net.to(DEVICE)


def batch(seed, rows=5):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, generator=numbers).to(DEVICE), torch.randn(rows, 3, generator=numbers).to(DEVICE)


def loss_of(net, x, y):
    return (net(x) - y).square().mean()


def near(seen, expected):
    torch.testing.assert_close(seen.detach().cpu(), expected.detach().cpu(), rtol=1e-4, atol=1e-6)


def same_state(ours, stock):
    for name, value in stock.state_dict().items():
        near(ours.state_dict()[name], value)


ADAM = (torch.optim.Adam, {"lr": 0.01})
OPTIMIZERS = {
    "adam": ADAM,
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True}),
    "sgd": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "sgd_plain": (torch.optim.SGD, {"lr": 0.05}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.05}),
}


class Lanes:
    """Equal nets, one of which trains by train_step()."""

    def __init__(self, optimizer=ADAM, clip=0.3, loss=loss_of, **options):
        self.ours, self.stock = two_nets()
        make, settings = optimizer
        self.of_ours, self.of_stock = (make(net.parameters(), **settings) for net in (self.ours, self.stock))
        self.clip, self.loss = clip, loss
        how = None if clip is None else hindcast.ClipGradNorm(clip)
        options = {"cuda_graphs": True, "async_": False, **options}
        self.step = hindcast.train_step(self.of_ours, lambda *data: loss(self.ours, *data), clip_grad_norm=how, **options)

    def both(self, seed, rows=5):
        x, y = batch(seed, rows)
        self.of_stock.zero_grad()
        expected = self.loss(self.stock, x, y)
        first = expected[0] if isinstance(expected, tuple) else expected
        first.backward()
        if self.clip is not None:
            norm = nn.utils.clip_grad_norm_(self.stock.parameters(), self.clip)
        self.of_stock.step()
        seen = self.step(x, y)
        near(seen[0] if isinstance(seen, tuple) else seen, first)
        if self.clip is not None:
            near(self.step.update.grad_norm, norm)
        same_state(self.ours, self.stock)
        assert all(parameter.grad is None for parameter in self.ours.parameters())
        return seen

    def launches(self):
        return self.step.stats()["cuda_graph_launches"]


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_is_the_step_of_each_optimizer(name, clip):
    lanes = Lanes(OPTIMIZERS[name], clip)
    for seed in range(STEPS):
        lanes.both(seed)
    assert lanes.launches() == STEPS - 6, lanes.step.why_no_cuda_graph
    assert lanes.step.update.original == 0 and lanes.step.update.compiled == STEPS * 4
    for ours, stock in zip(lanes.of_ours.state.values(), lanes.of_stock.state.values()):
        assert list(ours) == list(stock)
        for key, value in stock.items():
            near(ours[key], value)


def test_schedulers_and_groups():
    lanes = Lanes()
    for optimizer, net in ((lanes.of_ours, lanes.ours), (lanes.of_stock, lanes.stock)):
        optimizer.param_groups[0]["params"] = [each for each in net.parameters() if each is not net.second.bias]
        optimizer.add_param_group({"params": [net.second.bias], "lr": 0.05})
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(each, 0.8) for each in (lanes.of_ours, lanes.of_stock)]
    for seed in range(STEPS):
        lanes.both(seed)
        for scheduler in schedulers:
            scheduler.step()
    assert lanes.launches() > 0, lanes.step.why_no_cuda_graph


def test_sizes_have_graphs_of_their_own():
    lanes = Lanes()
    for seed in range(4 * STEPS):
        lanes.both(seed, rows=5 + seed % 3)
    assert lanes.launches() > STEPS


def test_programs_take_turns():
    lanes = Lanes(dynamic="never", loss=lambda net, x, y: (loss_of(net, x, y), x.shape[0], {"sum": x.sum()}))
    for seed in range(4 * STEPS):
        rows = 5 + seed % 3
        _, seen, found = lanes.both(seed, rows)
        assert seen == rows
        near(found["sum"], batch(seed, rows)[0].sum())
    assert lanes.launches() > STEPS, lanes.step.why_no_cuda_graph


def test_what_was_returned_is_not_written_again():
    lanes = Lanes(loss=lambda net, x, y: (loss_of(net, x, y), net(x).sum(), x * 2))
    kept = []
    for seed in range(STEPS):
        seen = lanes.both(seed)
        norm = lanes.step.update.grad_norm
        kept.append(((*seen, norm), [tensor.cpu().clone() for tensor in (*seen, norm)]))
    assert lanes.launches() > 0, lanes.step.why_no_cuda_graph
    for tensors, copies in kept:
        for tensor, expected in zip(tensors, copies):
            assert torch.equal(tensor.cpu(), expected)


def change_data(lanes, net, optimizer):
    net.first.weight.data = net.first.weight.data.clone() * 0.5


def own(state):
    return {key: own(value) if isinstance(value, dict) else value.clone() if isinstance(value, torch.Tensor) else value for key, value in state.items()}


def load_state(lanes, net, optimizer):
    net.load_state_dict({name: value * 0.5 for name, value in net.state_dict().items()})
    optimizer.load_state_dict(own(optimizer.state_dict()))


def replace_state(lanes, net, optimizer):
    state = optimizer.state[net.first.weight]
    state["exp_avg"] = state["exp_avg"] * 2


def drop_state(lanes, net, optimizer):
    optimizer.state.clear()


def freeze(lanes, net, optimizer):
    net.first.bias.requires_grad_(False)


def evaluate(lanes, net, optimizer):
    net.eval()


def change_attribute(lanes, net, optimizer):
    net.scale = 0.25


def change_settings(lanes, net, optimizer):
    optimizer.param_groups[0].update(lr=0.003, betas=(0.5, 0.9), weight_decay=0.1)


def maximize(lanes, net, optimizer):
    optimizer.param_groups[0]["maximize"] = True


def count_in_tensor(lanes, net, optimizer):
    optimizer.param_groups[0]["lr"] = torch.tensor(0.003)


def replace_buffer(lanes, net, optimizer):
    net.mean = net.mean + 1


def add_hook(lanes, net, optimizer):
    optimizer.register_step_pre_hook(lambda *_: None)


def add_gradient_hook(lanes, net, optimizer):
    net.second.weight.register_hook(lambda gradient: gradient * 0.5)


@pytest.mark.parametrize("change", [change_data, load_state, replace_state, drop_state, freeze, evaluate, change_attribute, change_settings,
                                    maximize, count_in_tensor, replace_buffer, add_hook, add_gradient_hook])
def test_a_change_between_steps(change):
    lanes = Lanes()
    for seed in range(8):
        lanes.both(seed)
    assert lanes.launches() > 0, lanes.step.why_no_cuda_graph
    for net, optimizer in ((lanes.ours, lanes.of_ours), (lanes.stock, lanes.of_stock)):
        change(lanes, net, optimizer)
    for seed in range(8, 8 + STEPS):
        lanes.both(seed)


def test_a_buffer_that_a_step_writes_has_changed():
    lanes = Lanes()
    for seed in range(9):
        lanes.both(seed)
    assert lanes.launches() > 0
    weight = torch.ones(8, device=DEVICE, requires_grad=True)
    saved = (weight * lanes.ours.mean).sum()
    lanes.both(9)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


def test_a_step_that_fails_changes_nothing():
    lanes = Lanes()
    for seed in range(9):
        lanes.both(seed)
    before = own(lanes.ours.state_dict())
    with pytest.raises(RuntimeError):
        lanes.step(torch.ones(5, 4, device=DEVICE), torch.ones(5, 3, device=DEVICE))
    for name, value in before.items():
        assert torch.equal(lanes.ours.state_dict()[name].cpu(), value.cpu())
    lanes.both(9)


def test_dropout_has_no_graph():
    lanes = Lanes(loss=lambda net, x, y: loss_of(net, torch.dropout(x, 0.5, True), y), clip=None)
    for seed in range(STEPS):
        x, y = batch(seed)
        lanes.step(x, y)
    assert lanes.launches() == 0 and "random" in lanes.step.why_no_cuda_graph


@pytest.mark.parametrize("settings", [{"keep_gradients": True}, {"accumulate": 2}])
def test_what_is_asked_for_excludes_a_graph(settings):
    ours, _ = two_nets()
    step = hindcast.train_step(torch.optim.Adam(ours.parameters()), lambda *data: loss_of(ours, *data), cuda_graphs=True, async_=False, **settings)
    for seed in range(STEPS):
        step(*batch(seed))
    assert step.stats()["cuda_graph_launches"] == 0
    assert step.why_no_cuda_graph == "accumulate, keep_gradients, a scaler or error_if_nonfinite was asked for"


def test_without_the_option_there_is_none():
    lanes = Lanes(cuda_graphs=False)
    for seed in range(STEPS):
        lanes.both(seed)
    assert lanes.launches() == 0 and lanes.step.why_no_cuda_graph == ""


def test_a_bound_that_is_too_small():
    lanes = Lanes(cuda_graph_bytes=16)
    for seed in range(STEPS):
        lanes.both(seed)
    assert lanes.launches() == 0 and "cuda_graph_bytes" in lanes.step.why_no_cuda_graph


def test_many_kinds_of_batches():
    lanes = Lanes((torch.optim.SGD, {"lr": 0.001}))
    kinds = range(1, 19)
    for rounds in range(7):
        for rows in kinds:
            lanes.both(rounds, rows)
    stats = lanes.step.stats()
    assert stats["cuda_graph_launches"] >= 16 and "all are in use" in lanes.step.why_no_cuda_graph, stats
    before = lanes.launches()
    for seed in range(300):
        lanes.both(seed, 5)  # the others are idle
    assert lanes.launches() == before + 300
    before = lanes.launches()
    for seed in range(5):
        lanes.both(seed, 18)
    assert lanes.launches() > before


def test_a_bound_that_is_enough_for_one_kind():
    lanes = Lanes()
    for seed in range(STEPS):
        lanes.both(seed)
    lanes = Lanes(cuda_graph_bytes=lanes.step.stats()["cuda_graph_bytes"] + 16)
    for seed in range(STEPS):
        lanes.both(seed, 5)
        lanes.both(seed, 6)
    assert lanes.launches() > 0 and "cuda_graph_bytes" in lanes.step.why_no_cuda_graph
    launches = lanes.launches()
    for seed in range(4):
        lanes.both(seed, 5)  # was not evicted for the other one
    assert lanes.launches() == launches + 4


class Scale:
    factor = 1.0


def test_graphs_of_programs_that_are_gone_are_freed():
    net = two_nets()[0]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    step = hindcast.train_step(optimizer, lambda x, y, scale: loss_of(net, x, y) * scale.factor, cuda_graphs=True, async_=False)
    kept = []
    for _ in range(4):
        scale = Scale()  # another kind of call, dropped with the object
        for seed in range(8):
            step(*batch(seed), scale)
        kept.append(step.stats()["cuda_graph_bytes"])
        del scale
        gc.collect()
    assert kept[0] > 0 and kept == [kept[0]] * 4, kept


def test_a_parameter_without_a_gradient():
    lanes = Lanes(clip=None, loss=lambda net, x, y: net.first(x).square().mean() + y.sum() * 0)
    for seed in range(STEPS):
        lanes.both(seed)
    assert lanes.launches() == STEPS - 6, lanes.step.why_no_cuda_graph
    assert len(lanes.of_ours.state) == 2


def test_reset_and_the_end_free_the_graphs():
    lanes = Lanes()
    for seed in range(STEPS):
        lanes.both(seed)
    assert lanes.step.stats()["cuda_graph_bytes"] > 0
    lanes.step.reset()
    assert lanes.step.stats()["cuda_graph_bytes"] == 0
    for seed in range(STEPS):
        lanes.both(seed)
    net, optimizer = weakref.ref(lanes.ours), weakref.ref(lanes.of_ours)
    lanes.ours.first.weight.owner = lanes.step  # a cycle for the garbage collector to find
    del lanes
    gc.collect()
    assert net() is None and optimizer() is None


def second_order(net, x, y):
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(torch.tanh(net.second(torch.tanh(net.first(x)))).sum(), x, create_graph=True)
    laplacian = sum(torch.autograd.grad(slope[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(2))
    return (laplacian - y[:, 0]).square().mean()


def test_a_loss_that_contains_gradients():
    lanes = Lanes(loss=second_order)
    for seed in range(STEPS):
        lanes.both(seed)
    assert lanes.launches() > 0, lanes.step.why_no_cuda_graph


@pytest.mark.parametrize("name, value, error", [("cuda_graphs", "yes", TypeError), ("cuda_graph_bytes", 0, ValueError)])
def test_bad_options(name, value, error):
    with pytest.raises(error, match=f"train_step: {name} is {value!r}, expected"):
        Lanes(**{name: value})


def test_a_launch_that_fails_within_a_capture_counts_no_step():
    def train(graphs):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)).to(DEVICE)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        step = hindcast.train_step(
            optimizer,
            lambda x, y: (net(x) - y).square().mean(),
            clip_grad_norm=hindcast.ClipGradNorm(0.3),
            cuda_graphs=graphs,
            async_=False,
        )
        for number in range(12):
            torch.manual_seed(number)
            step(torch.randn(5, 6).to(DEVICE), torch.randn(5, 6).to(DEVICE))
        assert [state["step"].item() for state in optimizer.state.values()] == [12] * 4
        return step.stats()["cuda_graph_launches"], [parameter.detach().cpu() for parameter in net.parameters()]

    _, expected = train(graphs=False)
    launches, _ = train(graphs=True)
    assert launches > 0
    for failing in range(1, 12):
        torch.ops.hindcast.fail_captured_launch_on_fake_card(failing)
        _, seen = train(graphs=True)
        torch.ops.hindcast.fail_captured_launch_on_fake_card(0)
        torch.testing.assert_close(seen, expected)
    card.take_errors()


def test_two_threads_record_steps():
    """One captures without the GIL, which it needs at the end of each part; the other has the GIL when it waits for its own capture."""
    barrier, errors, launches = threading.Barrier(2), [], []

    def train(number):
        try:
            torch.manual_seed(number)
            net = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(6, 6), nn.Tanh())]).to(DEVICE)
            step = hindcast.train_step(
                torch.optim.Adam(net.parameters(), lr=0.01),
                lambda x, y: (net(x) - y).square().mean(),
                clip_grad_norm=hindcast.ClipGradNorm(0.3),
                cuda_graphs=True,
                async_=False,
            )
            x, y = torch.randn(5, 6).to(DEVICE), torch.randn(5, 6).to(DEVICE)
            for _ in range(12):
                barrier.wait()
                step(x, y)
            launches.append(step.stats()["cuda_graph_launches"])
        except BaseException as error:
            barrier.abort()
            errors.append(error)

    threads = [threading.Thread(target=train, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors, errors[0]
    assert len(launches) == 2 and all(launches), launches
