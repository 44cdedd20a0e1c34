"""The workloads: each creates a loss whose backward is timed. No package besides torch is needed."""

import re
from collections.abc import Iterable
from typing import Callable, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Workload(NamedTuple):
    name: str
    parameters: list[Tensor]
    loss: Callable[[int], Tensor]
    """The loss of a new batch of that size."""
    batch: int
    model: Optional[nn.Module] = None
    """The model that the loss calls."""


def _of_model(name: str, model: nn.Module, batch: int, data: Callable[[int], Tensor]) -> Workload:
    def loss(size: int) -> Tensor:
        scores = model(data(size))
        return F.cross_entropy(scores.flatten(0, -2), torch.zeros(scores.shape[:-1].numel(), dtype=torch.long))

    return Workload(name, list(model.parameters()), loss, batch)


def mlp(widths: tuple[int, ...], batch: int) -> Workload:
    layers: list[nn.Module] = []
    for inside, outside in zip(widths, widths[1:]):
        layers += [nn.Linear(inside, outside), nn.ReLU()]
    name = f"mlp/{'-'.join(map(str, widths))}/b{batch}"
    return _of_model(name, nn.Sequential(*layers[:-1]), batch, lambda size: torch.randn(size, widths[0]))


def chain(ops: int) -> Workload:
    x = torch.linspace(-0.1, 0.1, 16).requires_grad_()
    steps: tuple[Callable[[Tensor], Tensor], ...] = (lambda y: y * 1.001, lambda y: y + 1e-4, torch.sin, torch.tanh)

    def loss(size: int) -> Tensor:
        y = x.expand(size, 16)
        for i in range(ops):
            y = steps[i % 4](y)
        return y.sum()

    return Workload(f"chain/{ops}", [x], loss, 2)  # a batch of 1 is a special shape to every compiler


class _Gpt2Block(nn.Module):
    """GPT-2's, without dropout: masks would differ between engines."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, width))
        y: Tensor = x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))
        return y


def gpt2(blocks: int, width: int, length: int, batch: int) -> Workload:
    words = 96
    model = nn.Sequential(
        nn.Embedding(words, width), *(_Gpt2Block(width, 4) for _ in range(blocks)), nn.LayerNorm(width), nn.Linear(width, words)
    )
    name = f"gpt2/{blocks}x{width}/t{length}/b{batch}"
    return _of_model(name, model, batch, lambda size: torch.randint(words, (size, length)))


class _ResidualBlock(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside),
        )  # fmt: skip
        same = inside == outside and stride == 1
        short = (nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
        self.short = nn.Identity() if same else nn.Sequential(*short)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.main(x) + self.short(x))


def resnet18(width: int, image: int, batch: int) -> Workload:
    """ResNet-18 for small images: the first convolution keeps their size, without pooling after it."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inside = width
    for stage in range(4):
        outside = width << stage
        layers += [_ResidualBlock(inside, outside, 2 if stage else 1), _ResidualBlock(outside, outside, 1)]
        inside = outside
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10)]
    name = f"resnet18/{width}/{image}x{image}/b{batch}"
    return _of_model(name, nn.Sequential(*layers), batch, lambda size: torch.randn(size, 3, image, image))


_MAKERS: list[Callable[[], Workload]] = [
    lambda: mlp((64, 128, 64), 32),
    lambda: mlp((784, 512, 512, 10), 128),
    lambda: chain(100),
    lambda: chain(1000),
    lambda: gpt2(1, 128, 64, 4),
    lambda: resnet18(16, 16, 8),
    lambda: resnet18(64, 16, 4),
]


def workloads(only: str = "") -> Iterable[Workload]:
    """The workloads whose names match the regular expression `only`, each created in its turn."""
    for make in _MAKERS:
        torch.manual_seed(0)
        workload = make()
        if re.search(only, workload.name):
            yield workload
