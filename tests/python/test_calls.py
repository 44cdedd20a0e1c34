"""Ways to call autograd, and its errors for wrong calls."""

import hindcast
import pytest
import torch
from side_by_side import STEPS, error_of, leaf, needs_named_tensors, same_as_stock


def test_grad_returns_gradients_and_leaves_grad_alone():
    def program():
        a, b = leaf(3), leaf(3)
        seen = []
        for _ in range(STEPS):
            y = a * b
            seen.append(torch.autograd.grad(y.sin().sum(), (a, y, b)))
        assert a.grad is None and b.grad is None
        return seen

    stats = same_as_stock(program)
    assert stats["hits"] == STEPS - 1 and stats["fallbacks"] == 0


def test_grad_of_unused_inputs():
    def program():
        a, b = leaf(3), leaf(3)
        seen = []
        for _ in range(STEPS):
            seen.append(torch.autograd.grad(a.sin().sum(), (a, b), allow_unused=True))
            seen.append(torch.autograd.grad(a.sin().sum(), (a, b), materialize_grads=True))
        return seen, error_of(lambda: torch.autograd.grad(a.sin().sum(), (a, b)))

    same_as_stock(program)


def test_backward_with_inputs_accumulates_only_there():
    def program():
        a, b = leaf(3), leaf(3)
        seen = []
        for _ in range(STEPS):
            y = a * b
            y.sin().sum().backward(inputs=[a, y])
            seen += [a.grad.clone(), y.grad, b.grad]
        return seen

    assert same_as_stock(program)["hits"] == STEPS - 1


def test_retain_graph():
    def program():
        a = leaf(3)
        y = a.sin().exp().sum()
        for _ in range(STEPS):
            y.backward(retain_graph=True)
        y.backward()
        return a.grad, error_of(y.backward)

    assert same_as_stock(program)["hits"] >= STEPS - 1


def slope_and_gradient(hook=None):
    a = leaf(3)
    inner = a.sin()
    if hook is not None:
        inner.register_hook(hook)
    (first,) = torch.autograd.grad(inner.exp().sum(), a, create_graph=True)
    first.square().sum().backward()
    return first.detach(), a.grad


def test_create_graph():
    stats = same_as_stock(lambda: [slope_and_gradient() for _ in range(STEPS)])
    assert stats["fallbacks_by_reason"] == {} and stats["backwards"] == 2 * STEPS


def test_create_graph_with_hooks_runs_on_pytorchs_engine():
    stats = same_as_stock(lambda: slope_and_gradient(hook=lambda grad: 2 * grad))
    assert stats["fallbacks_by_reason"] == {"CreateGraph": 1} and stats["backwards"] == 1


def test_batched_gradients():
    def program():
        a = leaf(3)
        y = a.sin()
        return torch.autograd.grad(y, a, torch.eye(3), is_grads_batched=True)

    stats = same_as_stock(program)
    assert stats["backwards"] == 0 and stats["fallbacks"] == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda a: torch.ones(3).sum().backward(),
        lambda a: a.sin().backward(),
        lambda a: a.sin().backward(torch.ones(4)),
        lambda a: torch.autograd.grad(a.sin().sum(), torch.ones(3)),
        lambda a: torch.autograd.grad(a.sin().sum(), leaf(3)),
        lambda a: torch.autograd.grad(a.sin().sum(), "text"),
        lambda a: torch.autograd.backward((a.sin().sum(), a.sum()), (None,)),
        lambda a: torch.autograd.backward(a.sin().sum(), inputs=[]),
        lambda a: a.sin().sum().backward(inputs=torch.ones(3)),
        lambda a: torch.autograd.backward((a.sum(), torch.ones(()))),
    ],
    ids=["no_grad_fn", "no_scalar", "wrong_shape", "input_without_grad", "unused_input", "no_tensor", "lengths", "no_inputs",
         "inputs_without_grad", "second_without_grad"],
)
def test_errors_are_pytorchs(call):
    same_as_stock(lambda: error_of(lambda: call(leaf(3))))


def test_a_saved_tensor_that_was_modified():
    def program():
        a = leaf(3)
        b = a.sin()
        y = (b * b).sum()
        b.data  # not b.data, which has a version counter of its own
        with torch.no_grad():
            b.mul_(2)
        return error_of(y.backward)

    same_as_stock(program)


def test_a_gradient_edge_runs_on_pytorchs_engine():
    def program():
        a = leaf(3)
        edge = torch.autograd.graph.get_gradient_edge(a.sin())
        torch.autograd.backward(edge, torch.ones(3))
        y = a.cos()
        return a.grad, torch.autograd.grad(y.sum(), torch.autograd.graph.get_gradient_edge(y))

    assert same_as_stock(program)["fallbacks_by_reason"] == {"GradientEdge": 2}


def test_warnings_arrive_in_python():
    class Warns(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            import warnings

            warnings.warn("from a node", UserWarning, stacklevel=1)
            return grad

    with hindcast.enable("eager"), pytest.warns(UserWarning, match="from a node"):
        Warns.apply(leaf(3)).sum().backward()


def test_an_empty_call():
    same_as_stock(lambda: error_of(lambda: torch.autograd.backward(())))


@needs_named_tensors
@pytest.mark.filterwarnings("ignore:.*amed")
def test_named_gradients():
    def program():
        a = leaf(3)
        y = a.sin()
        y.backward(torch.ones(3, names=("n",)))
        return a.grad

    same_as_stock(program)
