"""Makes the TorchScript files of this example: three force fields of the kinds that molecular dynamics engines load.

    python make_models.py [folder]

Each forward takes positions (atoms x 3, float32), species (atoms, int64, 0 or 1) and pairs (2 x pairs, int64: both directions of each), and
returns the energy. Weights are random, since the example is about time: a soft repulsion keeps the atoms apart.
"""

import math
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

CUTOFF = 3.0
SPECIES = 2


def smooth_cutoff(distance: Tensor) -> Tensor:
    """1 at 0, and 0 with a slope of 0 from CUTOFF on."""
    return 0.5 * (torch.cos(distance * (math.pi / 3.0)) + 1.0) * (distance < 3.0)


def repulsion(distance: Tensor) -> Tensor:
    return torch.sum(torch.exp(-3.0 * (distance - 1.0)) * smooth_cutoff(distance))


class RadialBasis(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.register_buffer("centers", torch.linspace(0.3, CUTOFF, count))
        self.sharpness = 2.0 * count / CUTOFF

    def forward(self, distance: Tensor) -> Tensor:
        offset = distance.unsqueeze(1) - self.centers
        return torch.exp(-self.sharpness * offset * offset)


class SchNetBlock(nn.Module):
    def __init__(self, width: int, basis: int) -> None:
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(basis, width), nn.Softplus(), nn.Linear(width, width))
        self.before = nn.Linear(width, width, bias=False)
        self.behind = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, width))

    def forward(self, x: Tensor, rbf: Tensor, envelope: Tensor, to: Tensor, of: Tensor) -> Tensor:
        weights = self.filter(rbf) * envelope
        messages = self.before(x).index_select(0, of) * weights
        return x + self.behind(torch.zeros_like(x).index_add(0, to, messages))


class SchNet(nn.Module):
    """Continuous-filter convolutions (Schuett et al., 2017)."""

    def __init__(self, width: int = 64, basis: int = 20, blocks: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SPECIES, width)
        self.basis = RadialBasis(basis)
        self.blocks = nn.ModuleList([SchNetBlock(width, basis) for _ in range(blocks)])
        self.energy = nn.Sequential(nn.Linear(width, width // 2), nn.Softplus(), nn.Linear(width // 2, 1))

    def forward(self, positions: Tensor, species: Tensor, pairs: Tensor) -> Tensor:
        to, of = pairs[0], pairs[1]
        d = positions.index_select(0, to) - positions.index_select(0, of)
        distance = torch.sqrt(torch.sum(d * d, 1))
        rbf, envelope = self.basis(distance), smooth_cutoff(distance).unsqueeze(1)
        x = self.embedding(species)
        for block in self.blocks:
            x = block(x, rbf, envelope, to, of)
        return torch.sum(self.energy(x)) + repulsion(distance)


class PaiNNBlock(nn.Module):
    def __init__(self, width: int, basis: int) -> None:
        super().__init__()
        self.width = width
        self.filter = nn.Linear(basis, 3 * width)
        self.context = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3 * width))
        self.mix = nn.Linear(width, 2 * width, bias=False)
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, 3 * width))

    def messages(self, x: Tensor, v: Tensor, rbf: Tensor, unit: Tensor, envelope: Tensor, to: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.context(x).index_select(0, of) * (self.filter(rbf) * envelope)
        scalar, along, gate = parts.split(self.width, 1)
        vector = gate.unsqueeze(1) * v.index_select(0, of) + along.unsqueeze(1) * unit.unsqueeze(2)
        return torch.zeros_like(x).index_add(0, to, scalar), torch.zeros_like(v).index_add(0, to, vector)

    def forward(self, x: Tensor, v: Tensor, rbf: Tensor, unit: Tensor, envelope: Tensor, to: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        dx, dv = self.messages(x, v, rbf, unit, envelope, to, of)
        x, v = x + dx, v + dv
        left, right = self.mix(v).split(self.width, 2)
        norm = torch.sqrt(torch.sum(right * right, 1) + 1e-8)
        scalar, gate, product = self.update(torch.cat([x, norm], 1)).split(self.width, 1)
        return x + scalar + product * torch.sum(left * right, 1), v + gate.unsqueeze(1) * left


class PaiNN(nn.Module):
    """Equivariant messages: a scalar and a vector per atom and channel (Schuett et al., 2021)."""

    def __init__(self, width: int = 32, basis: int = 20, blocks: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SPECIES, width)
        self.basis = RadialBasis(basis)
        self.blocks = nn.ModuleList([PaiNNBlock(width, basis) for _ in range(blocks)])
        self.energy = nn.Sequential(nn.Linear(width, width // 2), nn.SiLU(), nn.Linear(width // 2, 1))

    def forward(self, positions: Tensor, species: Tensor, pairs: Tensor) -> Tensor:
        to, of = pairs[0], pairs[1]
        d = positions.index_select(0, to) - positions.index_select(0, of)
        distance = torch.sqrt(torch.sum(d * d, 1))
        unit = d / distance.unsqueeze(1)
        rbf, envelope = self.basis(distance), smooth_cutoff(distance).unsqueeze(1)
        x = self.embedding(species)
        v = torch.zeros_like(x).unsqueeze(1).repeat(1, 3, 1)
        for block in self.blocks:
            x, v = block(x, v, rbf, unit, envelope, to, of)
        return torch.sum(self.energy(x)) + repulsion(distance)


class Ani(nn.Module):
    """Environment vectors by species, and a net for each species (Smith et al., 2017; the radial half).

    Takes pairs within a larger radius, as engines keep them, and selects those within the cutoff itself.
    """

    def __init__(self, basis: int = 16, width: int = 96) -> None:
        super().__init__()
        self.basis = RadialBasis(basis)
        self.columns = basis * SPECIES
        self.nets = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(basis * SPECIES, width), nn.CELU(0.1), nn.Linear(width, 64), nn.CELU(0.1), nn.Linear(64, 1))
                for _ in range(SPECIES)
            ]
        )

    def forward(self, positions: Tensor, species: Tensor, pairs: Tensor) -> Tensor:
        d = positions.index_select(0, pairs[0]) - positions.index_select(0, pairs[1])
        distance = torch.sqrt(torch.sum(d * d, 1))
        near = torch.nonzero(distance < 3.0).squeeze(1)
        to, of, distance = pairs[0].index_select(0, near), pairs[1].index_select(0, near), distance.index_select(0, near)
        terms = self.basis(distance) * smooth_cutoff(distance).unsqueeze(1)
        place = to * 2 + species.index_select(0, of)
        by_species = torch.zeros_like(positions[:, :1]).repeat(2, terms.size(1)).index_add(0, place, terms)
        environment = by_species.view(-1, self.columns)
        energy = repulsion(distance)
        for kind, net in enumerate(self.nets):
            atoms = torch.nonzero(species == kind).squeeze(1)
            energy = energy + torch.sum(net(environment.index_select(0, atoms)))
        return energy


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    for name, make in (("schnet", SchNet), ("painn", PaiNN), ("ani", Ani)):
        torch.manual_seed(0)
        model = torch.jit.script(make().eval())
        torch.jit.freeze(model).save(str(folder / f"{name}.pt"))


if __name__ == "__main__":
    main()
