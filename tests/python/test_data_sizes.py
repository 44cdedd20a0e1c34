"""Force fields that find pairs and species by nonzero() and masks: their sizes depend on data."""

import contextlib
import math

import pytest
import torch
import torch._dynamo
from device_of_tests import DEVICE
from processes import python

import hindcast

CUTOFF, SPECIES, SHIFTS = 5.2, 3, 8


class ForceField(torch.nn.Module):
    """Similar to ANI: radial functions of pairs, summed per atom and species, then a net per species."""

    def __init__(self):
        super().__init__()
        self.register_buffer("shifts", torch.linspace(0.9, CUTOFF, SHIFTS))
        layers = lambda: (torch.nn.Linear(SHIFTS * SPECIES, 16), torch.nn.CELU(0.1), torch.nn.Linear(16, 1))  # noqa: E731
        self.nets = torch.nn.ModuleList(torch.nn.Sequential(*layers()) for _ in range(SPECIES))

    def forward(self, positions, species):
        atoms = positions.shape[0]
        squares = (positions.unsqueeze(0) - positions.unsqueeze(1)).square().sum(-1)
        to, of = ((squares < CUTOFF * CUTOFF) & (squares > 0)).nonzero().unbind(1)
        distance = (positions[to] - positions[of]).square().sum(1).sqrt()
        weight = 0.5 * torch.cos(distance * (math.pi / CUTOFF)) + 0.5
        radial = 0.25 * torch.exp(-4 * (distance.unsqueeze(1) - self.shifts).square()) * weight.unsqueeze(1)
        slots = positions.new_zeros((atoms * SPECIES, SHIFTS))
        features = slots.index_add(0, to * SPECIES + species[of], radial).reshape(atoms, -1)
        energies = positions.new_zeros(atoms)
        for kind, net in enumerate(self.nets):
            mask = species == kind
            energies = energies.index_add(0, mask.nonzero().squeeze(1), net(features[mask]).squeeze(1))
        return energies.sum()


def molecule(atoms, seed):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    side = (atoms * 12.0) ** (1 / 3)
    return torch.rand(atoms, 3, generator=generator) * side, torch.randint(SPECIES, (atoms,), generator=generator)


def gradients(model, parameters, seed, atoms):
    """Of a loss of energy and forces."""
    positions, species = molecule(atoms, seed)
    positions.requires_grad_()
    energy = model(positions, species)
    (forces,) = torch.autograd.grad(energy, positions, create_graph=True)
    loss = energy.square() + forces.square().sum()
    return energy.detach(), forces.detach(), *torch.autograd.grad(loss, parameters)


@pytest.mark.parametrize("is_guarded", [False, True])
def test_energies_and_forces(is_guarded):
    torch.manual_seed(0)
    field = ForceField()
    parameters = list(field.parameters())
    compiled = hindcast.aot_module(field, async_=False)
    for call in range(24):
        atoms = (12, 15, 18)[call % 3] if call >= 8 else 12
        expected = gradients(field, parameters, call, atoms)
        with hindcast.enable(async_=False) if is_guarded else contextlib.nullcontext():
            seen = gradients(compiled, parameters, call, atoms)
        for one, other in zip(seen, expected):
            assert torch.allclose(one, other, rtol=1e-3, atol=1e-4 * max(1, other.abs().max().item())), call
    stats = compiled.aot_stats()
    assert stats["hits"] >= 18 and stats["eager"] == 0 and stats["traces"] <= 6, stats  # one for each: no atom of a kind, one, more


def test_the_first_function_of_a_process_has_static_sizes():
    """Sizes that depend on data are symbols also with dynamic="never", for which PyTorch passes placeholders."""
    python(
        """
def function(x):
    return x * (x > 0).nonzero().shape[0]
f = hindcast.aot_function(function, dynamic="never", async_=False)
for seed in range(4):
    torch.manual_seed(seed)
    x = torch.randn(6, 4)
    torch.testing.assert_close(f(x), function(x))
"""
    )


@torch.library.custom_op("hindcast_tests::places", mutates_args=())
def places(x: torch.Tensor) -> torch.Tensor:
    return x.detach().nonzero()


@places.register_fake
def _(x):
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(), 1), dtype=torch.long)


BY_CUSTOM_OPERATOR = {
    "number": lambda x: (x * places(x).shape[0]).sum(),
    "made": lambda x: (x[:1] * x.new_ones(places(x).shape[0])).sum() + x.square().sum(),
    "index": lambda x: (x[places(x)[:, 0]] * 3).square().sum(),
}


library = torch.library.Library("hindcast_tests", "FRAGMENT")
library.define("parts(Tensor x) -> Tensor[]")
library.define("other_dtype(Tensor x) -> Tensor")
library.define("perhaps(Tensor x) -> (Tensor, Tensor?)")


def count_of(x):
    return int((x != 0).sum())


library.impl("parts", lambda x: [x.detach().clone() for _ in range(count_of(x))], "CPU")
library.impl("other_dtype", lambda x: x.detach().to(torch.float32 if count_of(x) == 5 else torch.float64), "CPU")
library.impl("perhaps", lambda x: (x.detach() * 2, x.detach().clone() if count_of(x) != 5 else None), "CPU")


def by_perhaps(x):
    doubled, other = torch.ops.hindcast_tests.perhaps(x)
    return (x * doubled).sum() if other is None else (x * other).sum()


OTHER_RESULTS = {
    "a list's length": lambda x: x.sum() * len(torch.ops.hindcast_tests.parts(x)),
    "a list": lambda x: (torch.cat(torch.ops.hindcast_tests.parts(x)).sum() * x).sum(),
    "a dtype": lambda x: (x * torch.ops.hindcast_tests.other_dtype(x)).sum(),
    "no tensor": by_perhaps,
}


@pytest.mark.parametrize("first", (5, 3))
@pytest.mark.parametrize("name", OTHER_RESULTS)
def test_results_of_a_custom_operator_that_depend_on_data(name, first):
    function = OTHER_RESULTS[name]
    f = hindcast.aot_function(function, async_=False, back_off=False)
    for count in (first, first, 8 - first, 5, 3, 7, 5):
        x = torch.arange(1.0, 9.0, dtype=torch.float64).where(torch.arange(8) < count, torch.zeros(()).double()).requires_grad_()
        torch.testing.assert_close(f(x), function(x))
        torch.testing.assert_close(torch.autograd.grad(f(x), x), torch.autograd.grad(function(x), x))


@pytest.mark.parametrize("how", ("function", "torch.compile", "train_step"))
@pytest.mark.parametrize("name", BY_CUSTOM_OPERATOR)
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_sizes_of_a_custom_operator_that_depend_on_data(name, how):
    torch._dynamo.reset()
    function = BY_CUSTOM_OPERATOR[name]
    weight, expected_weight = (torch.nn.Parameter(torch.ones(8, dtype=torch.float64)) for _ in range(2))
    optimizer, expected_optimizer = (torch.optim.SGD([each], lr=0.01) for each in (weight, expected_weight))
    if how == "torch.compile":
        f = torch.compile(function, backend="hindcast")
    else:
        f = hindcast.aot_function(function, back_off=False)
    step = hindcast.train_step(optimizer, lambda x: function(weight * x)) if how == "train_step" else None
    for count in (5, 5, 5, 2, 7, 5, 3, 5):
        x = torch.arange(1.0, 9.0, dtype=torch.float64).where(torch.arange(8) < count, torch.zeros(()).double())
        expected = function(expected_weight * x)
        expected_optimizer.zero_grad()
        expected.backward()
        expected_optimizer.step()
        if step is not None:
            seen = step(x)
        else:
            seen = f(weight * x)
            optimizer.zero_grad()
            seen.backward()
            optimizer.step()
        torch.testing.assert_close((seen.detach(), weight.detach()), (expected.detach(), expected_weight.detach()))
