"""torch.autograd.Function written in Python: called as itself, at its place in the graph."""

import hindcast
import pytest
import torch
from side_by_side import STEPS, leaf, same_as_stock
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


class ScaledOnce(Function):
    @staticmethod
    def forward(ctx, x, factor, name):
        ctx.factor, ctx.name = factor, name
        return x * factor

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        assert ctx.name == "scaled"
        return grad * ctx.factor, None, None


class Split(Function):
    """Two results, the second of which returns no gradient, and an input that gets None."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, grad_x, grad_y):
        return (None if grad_x is None else grad_x * 2), None


def backwards_of(forward, sizes=(3,)):
    def program():
        w, v = leaf(*sizes), leaf(*sizes)
        seen = []
        for _ in range(STEPS):
            forward(w, v).sum().backward()
            seen.append(None if v.grad is None else v.grad.clone())
            seen.append(w.grad.clone())
        return seen

    return program


@pytest.mark.parametrize(
    "forward",
    [
        lambda w, v: Cube.apply(w.sin()).cos() * v,
        lambda w, v: ScaledOnce.apply(w, 2.5, "scaled") * v,
        lambda w, v: Split.apply(w.sin(), v.sin())[0],
        lambda w, v: Cube.apply(Cube.apply(w)) + v,
    ],
    ids=["saved_tensors", "once_differentiable_and_constants", "none_gradients", "twice"],
)
def test_a_function_is_an_opaque_step_of_one_graph(forward):
    stats = same_as_stock(backwards_of(forward))
    assert stats["hits"] == STEPS - 1 and stats["unique_graphs"] == 1 and stats["fallbacks"] == 0
    assert len(stats["opaque_nodes"]) == 1


def test_none_for_a_gradient_that_something_waits_for():
    stats = same_as_stock(backwards_of(lambda w, v: sum(Split.apply(w.sin(), v.sin()))))
    assert stats["hits"] == STEPS - 1


def test_a_new_class_each_call_is_no_new_graph():
    def program():
        w = leaf(3)
        for _ in range(5):

            class Fresh(Function):
                @staticmethod
                def forward(ctx, x):
                    return x * 2

                @staticmethod
                def backward(ctx, grad):
                    return grad * 2

            Fresh.apply(w).sum().backward()
        return w.grad

    stats = same_as_stock(program)
    assert stats["unique_graphs"] == 1 and stats["hits"] == 4
    assert stats["opaque_nodes"] == {"FreshBackward": 1}


class BackwardError(ValueError):
    pass


class Failing(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise BackwardError("from backward")


def test_an_exception_arrives_as_itself():
    with hindcast.enable("eager"), pytest.raises(BackwardError, match="from backward"):
        Failing.apply(leaf(3)).sum().backward()


def test_a_gradient_of_a_wrong_shape_raises_the_stock_error():
    class WrongShape(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return torch.ones(5)

    def text():
        with pytest.raises(RuntimeError) as raised:
            WrongShape.apply(leaf(3)).sum().backward()
        return str(raised.value)

    same_as_stock(text)


def test_a_backward_inside_a_backward_runs_on_pytorchs_engine():
    class Inner(Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x.sin()
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, grad):
            ctx.y.backward(grad)
            return ctx.x.grad

    stats = same_as_stock(backwards_of(lambda w, v: Inner.apply(w)))
    assert stats["hits"] == STEPS - 1 and stats["fallbacks_by_reason"] == {"InsideHook": STEPS}


def test_a_function_that_changes_its_gradients_shape_in_the_graph():
    class Cut(Function):
        @staticmethod
        def forward(ctx, x, keep):
            ctx.keep, ctx.length = keep, x.numel()
            return x[:keep].clone()

        @staticmethod
        def backward(ctx, grad):
            return torch.cat((grad, grad.new_zeros(ctx.length - ctx.keep))), None

    def program():
        w = leaf(6)
        for keep in (3, 3, 4, 4, 5):
            Cut.apply(w.sin(), keep).cos().sum().backward()
        return w.grad

    assert same_as_stock(program)["hits"] >= 2
