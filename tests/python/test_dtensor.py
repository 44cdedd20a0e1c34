"""DTensors on a mesh of one process: roots are left to PyTorch, in between they are opaque nodes of a captured graph."""

import hindcast
import pytest
import torch
import torch.distributed as dist

if not dist.is_available():
    pytest.skip("built without torch.distributed", allow_module_level=True)

from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


def outputs(mesh):
    torch.manual_seed(1)
    x = distribute_tensor(torch.randn(8, 4), mesh, [Shard(0)]).requires_grad_()
    w = distribute_tensor(torch.randn(4, 4), mesh, [Replicate()]).requires_grad_()
    return x, w, torch.tanh(x @ w)


def gradients(mesh, backward):
    x, w, y = outputs(mesh)
    backward(y)
    assert isinstance(x.grad, DTensor) and isinstance(w.grad, DTensor)
    return x.grad.full_tensor(), w.grad.full_tensor()


@pytest.mark.parametrize("compiler", ["eager", "fused"])
@pytest.mark.parametrize(
    "backward, fallbacks, hits",
    [(lambda y: y.sum().backward(), 3, 0), (lambda y: y.to_local().sum().backward(), 0, 2)],
    ids=["as a root", "behind a local loss"],
)
def test_gradients_are_equal_to_the_bit(mesh, compiler, backward, fallbacks, hits):
    stock = gradients(mesh, backward)
    hindcast.reset()
    for _ in range(3):
        with hindcast.enable(compiler, async_=False):
            ours = gradients(mesh, backward)
        assert all(torch.equal(a, b) for a, b in zip(ours, stock, strict=True))
    stats = hindcast.stats()
    assert stats["fallbacks_by_reason"].get("TensorSubclass", 0) == fallbacks
    assert stats["hits"] == hits
