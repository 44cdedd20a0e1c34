"""Checkpoints and hooks of saved tensors: unpacked when the consumer runs, and not before."""

import hindcast
import pytest
import torch
from side_by_side import STEPS, assert_same, error_of, leaf, run_seeded, same_as_stock
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint(use_reentrant):
    def program():
        first, second = nn.Linear(4, 4), nn.Linear(4, 4)
        order = []

        def block(x):
            order.append("recomputed" if torch._C._current_graph_task_id() != -1 else "forward")
            return second(first(x).tanh())

        for _ in range(STEPS):
            x = torch.randn(2, 4, requires_grad=True)
            y = checkpoint(block, x, use_reentrant=use_reentrant)
            y.register_hook(lambda grad: order.append("gradient of the block"))
            y.square().sum().backward()
        return order, [p.grad for p in (*first.parameters(), *second.parameters())]

    stats = same_as_stock(program)
    assert stats["backwards"] == STEPS and stats["hits"] == STEPS - 1


def test_checkpoint_runs_as_often_under_libtorchs_visitor():
    def program():
        layer, order = nn.BatchNorm1d(3), []

        def block(x):
            order.append("block")
            return layer(x @ torch.eye(3)).tanh()

        for step in range(STEPS):
            order.append(step)
            checkpoint(block, torch.randn(4, 3, requires_grad=True), use_reentrant=False).sum().backward()
        return order, layer.running_mean, layer.num_batches_tracked, [p.grad for p in layer.parameters()]

    expected = run_seeded(program)
    for collector in ("typed", "visitor"):
        hindcast.reset()
        with hindcast.enable("eager", collector=collector):
            assert_same(run_seeded(program), expected, collector)
        assert hindcast.stats()["hits"] == STEPS - 1


def test_checkpoint_draws_the_same_random_numbers():
    def program():
        layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        for _ in range(STEPS):
            checkpoint(layer, torch.randn(2, 4, requires_grad=True), use_reentrant=False).sum().backward()
        return [p.grad for p in layer.parameters()]

    same_as_stock(program)


def test_a_reentrant_checkpoint_refuses_grad():
    def program():
        layer = nn.Linear(4, 4)
        x = torch.randn(2, 4, requires_grad=True)
        y = checkpoint(lambda x: layer(x).tanh(), x, use_reentrant=True)
        return error_of(lambda: torch.autograd.grad(y.sum(), x)), layer.weight.grad

    same_as_stock(program)


def test_saved_tensors_are_unpacked_when_their_node_runs():
    def program():
        order = []
        packed = 0

        def pack(tensor):
            nonlocal packed
            packed += 1
            return packed, tensor

        def unpack(pair):
            order.append(f"unpack {pair[0]}")
            return pair[1]

        w = leaf(3)
        for _ in range(STEPS):
            packed = 0
            with saved_tensors_hooks(pack, unpack):
                a = w.sin()
                b = a.exp()
                c = b.tanh()
            a.register_hook(lambda grad: order.append("gradient of a"))
            b.register_hook(lambda grad: order.append("gradient of b"))
            c.sum().backward()
        return order, w.grad

    stats = same_as_stock(program)
    assert stats["hits"] == STEPS - 1


def test_save_on_cpu():
    def program():
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        for _ in range(STEPS):
            with save_on_cpu():
                loss = model(torch.ones(2, 4)).sum()
            loss.backward()
        return [p.grad for p in model.parameters()]

    assert same_as_stock(program)["hits"] == STEPS - 1


class Unpacking(Exception):
    pass


def test_an_exception_while_unpacking_arrives_as_itself():
    def unpack(tensor):
        raise Unpacking

    with hindcast.enable("eager"), saved_tensors_hooks(lambda tensor: tensor, unpack):
        y = leaf(3).sin().sum()
        with pytest.raises(Unpacking):
            y.backward()


def test_saved_tensors_are_freed_by_the_backward():
    import gc
    import weakref

    freed = []

    class Big:
        pass

    def pack(tensor):
        holder = Big()
        holder.tensor = tensor
        freed.append(weakref.ref(holder))
        return holder

    with hindcast.enable("eager"):
        for _ in range(2):
            with saved_tensors_hooks(pack, lambda holder: holder.tensor):
                y = leaf(3).sin().exp().sum()
            y.backward()
            gc.collect()
            assert all(reference() is None for reference in freed)


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_checkpoint_of_a_compiled_function_draws_the_same_random_numbers(use_reentrant, is_known):
    layer = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5))
    with torch.no_grad():
        layer[0].weight.copy_(torch.eye(64))
        layer[0].bias.zero_()
    compiled = hindcast.aot_module(layer)
    if is_known:
        for _ in range(3):
            compiled(torch.ones(8, 64, requires_grad=True)).sum().backward()
    for step in range(5):
        x = torch.ones(8, 64, requires_grad=True)
        y = checkpoint(compiled, x, use_reentrant=use_reentrant)
        y.sum().backward()
        assert torch.equal(y != 0, x.grad != 0), step
    assert use_reentrant == (compiled.aot_stats()["hits"] > 6)
