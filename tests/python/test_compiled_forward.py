"""Forwards by torch.compile: their backward is one opaque step of the graph."""

import pytest
import torch
from side_by_side import STEPS, same_as_stock
from torch import nn


@pytest.mark.parametrize("backend", ["aot_eager"])
def test_a_compiled_forward(backend):
    def program():
        torch._dynamo.reset()
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        compiled = torch.compile(model, backend=backend)
        for _ in range(STEPS):
            compiled(torch.randn(5, 4)).square().sum().backward()
        return [p.grad for p in model.parameters()]

    stats = same_as_stock(program)
    assert stats["opaque_nodes"] == {"CompiledFunctionBackward": 1} and stats["hits"] == STEPS - 1
