import hindcast
import pytest
import torch
from torch.nn.functional import gelu, layer_norm


def function(x, w):
    return layer_norm(gelu(x @ w).softmax(1), (6,)).sin()


@pytest.mark.parametrize("by", ["option", "switch"])
def test_gradcheck_finds_equal_bits(by):
    x = torch.randn(5, 4, dtype=torch.double, requires_grad=True)
    w = torch.randn(4, 6, dtype=torch.double, requires_grad=True)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(by == "switch" or before)
    try:
        with hindcast.enable("fused", async_=False, deterministic=by == "option"):
            assert torch.autograd.gradcheck(function, (x, w))
    finally:
        torch.use_deterministic_algorithms(before)
    stats = hindcast.stats()
    assert stats["hits"] > 0 and stats["fused_graphs"] == 0
