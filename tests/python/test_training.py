import hindcast
import pytest
import torch
import torch.nn.functional as F
from side_by_side import assert_same, run_seeded, same_as_stock
from torch import nn

STEPS = 5


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 4))


MODELS = {"mlp": (mlp, (8, 16)), "cnn": (cnn, (8, 1, 4, 4))}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}


def train(make_model, sizes, make_optimizer):
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    data, target = torch.randn(sizes), torch.randint(4, sizes[:1])
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_losses_are_equal_to_the_bit(model, optimizer):
    stats = same_as_stock(lambda: train(*MODELS[model], OPTIMIZERS[optimizer]))
    assert stats["hits"] == STEPS - 1 and stats["misses"] == 1 and stats["fallbacks"] == 0


@pytest.mark.parametrize("model", MODELS)
def test_losses_are_close_with_kernels(model):
    program = lambda: train(*MODELS[model], OPTIMIZERS["sgd"])  # noqa: E731
    expected = run_seeded(program)
    with hindcast.enable():
        run_seeded(program)
        hindcast.wait()
        assert run_seeded(program) == pytest.approx(expected, rel=1e-5)
    assert hindcast.stats()["fused_graphs"] == 1
    assert hindcast.stats()["hits"] == 2 * STEPS - 1


def test_a_new_batch_size_costs_one_capture():
    def program():
        layer = nn.Linear(4, 3)
        seen = []
        for batch in (2, 3, 5, 7, 4):
            layer.zero_grad()
            layer(torch.randn(batch, 4)).tanh().sum().backward()
            seen.append(layer.weight.grad.clone())
        return seen

    stats = same_as_stock(program)
    assert stats["unique_graphs"] == 2 and stats["recompiles"] == 1 and stats["hits"] == 3


def test_gradients_accumulate():
    def program():
        layer = nn.Linear(4, 3)
        for _ in range(3):
            layer(torch.randn(2, 4)).sum().backward()
        return [p.grad for p in layer.parameters()]

    assert same_as_stock(program)["hits"] == 2


def test_autocast():
    def program():
        model = mlp()
        data = torch.randn(8, 16)
        seen = []
        for _ in range(3):
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(data).float().square().mean()
            loss.backward()
            seen += [p.grad.clone() for p in model.parameters()]
        return seen

    stats = same_as_stock(program)
    assert stats["hits"] == 2 and stats["fallbacks"] == 0


def test_a_grad_scaler():
    def program():
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(8, 16)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
        return [p.detach() for p in model.parameters()]

    assert same_as_stock(program)["hits"] == 2


def test_autograd_backward_of_several_roots():
    def program():
        x = torch.randn(3, requires_grad=True)
        for _ in range(3):
            torch.autograd.backward([x.sin(), x.sum()], [torch.ones(3), None])
        return x.grad

    assert same_as_stock(program)["hits"] == 2


def test_gradients_of_leaves_are_the_users_own():
    layer = nn.Linear(4, 3)
    with hindcast.enable("eager"):
        layer(torch.ones(2, 4)).sum().backward()
        kept = layer.weight.grad
        expected = kept.clone()
        layer.weight.grad = None
        layer(torch.ones(2, 4)).sum().backward()
    assert_same(kept, expected)
