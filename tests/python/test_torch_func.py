"""torch.func and torch.autograd.functional under the guard: the same results and errors as without it."""

import hindcast
import pytest
import torch
from side_by_side import STEPS, error_of, leaf, same_as_stock
from torch.autograd import functional
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap


def f(x):
    return (x.sin() * x.exp()).tanh()


def loss(x):
    return f(x).square().sum()


def two(x, y):
    return x.sin() * y, (x * y).cos()


def reasons(program):
    return same_as_stock(program)["fallbacks_by_reason"]


def test_vjp_is_called_after_its_level_is_gone():
    def program():
        seen = []
        for _ in range(STEPS):
            out, pull = vjp(torch.tanh, torch.randn(4, 3))
            seen += [out, pull(torch.ones(4, 3)), pull(torch.randn(4, 3)), pull(torch.ones(4, 3), create_graph=False)]
        return seen

    assert reasons(program) == {"FunctorchTensor": 3 * STEPS}


def test_vjp_of_several_with_aux():
    def program():
        def with_aux(x, y):
            return two(x, y), x.detach()

        out, pull, aux = vjp(with_aux, torch.randn(3), torch.randn(3), has_aux=True)
        return out, aux, pull((torch.ones(3), torch.randn(3)))

    assert reasons(program) == {"FunctorchTensor": 1}


def test_vjp_of_what_is_unused():
    def program():
        _, pull = vjp(lambda x, y: x.sin(), torch.randn(3), torch.randn(3))
        return pull(torch.ones(3))

    same_as_stock(program)


def test_a_backward_through_vjp_is_taken_over():
    def program():
        x, v = leaf(4, 3), leaf(4, 3)
        seen = []
        for _ in range(STEPS):
            out, pull = vjp(f, x)
            (pulled,) = pull(v)
            (out.sum() + pulled.square().sum()).backward()
            seen += [x.grad.clone(), v.grad.clone()]
        return seen

    stats = same_as_stock(program)
    assert stats["fallbacks_by_reason"] == {"FunctorchTensor": STEPS} and stats["hits"] == STEPS - 1


def test_vjp_under_no_grad_and_under_function_modes():
    def program():
        _, pull = vjp(f, torch.randn(3))
        with torch.no_grad():
            seen = [pull(torch.ones(3))]
        with torch.device("cpu"):
            return seen + [pull(torch.ones(3))]

    assert reasons(program) == {"FunctorchTensor": 2}


def test_vmap_over_a_pullback():
    def program():
        _, pull = vjp(f, torch.randn(3))
        return vmap(pull)(torch.eye(3))

    assert reasons(program) == {"DispatchState": 1}


def test_errors_of_vjp():
    def program():
        _, pull = vjp(f, torch.randn(3))
        pull(torch.ones(3), retain_graph=False)
        return (
            error_of(lambda: pull(torch.ones(3))),  # the graph is freed
            error_of(lambda: pull(torch.ones(4))),
            error_of(lambda: pull((torch.ones(3), torch.ones(3)))),
            error_of(lambda: vjp(lambda x: x > 0, torch.randn(3))),
        )

    same_as_stock(program)


def test_a_tensor_that_escaped_its_level():
    def program():
        escaped = []

        def keeping(x):
            escaped.extend([x, x.sin()])
            return escaped[-1]

        vjp(keeping, torch.randn(3))
        x, y = escaped
        w = leaf(3)
        seen = [torch.autograd.grad(y, x, torch.ones(3)), error_of(y.sum().backward)]  # as a root; as a part of a root's graph
        for _ in range(STEPS):
            (w * y).sum().backward()
            (w * x).sum().backward(inputs=[w])
            seen.append(torch.autograd.grad(w.sin(), w, y))
        return seen, w.grad

    assert reasons(program) == {"FunctorchTensor": 1 + STEPS}


def test_a_tensor_that_escaped_vmap():
    def program():
        escaped = []

        def keeping(x):
            escaped.append(x.sin())
            return escaped[-1]

        w = leaf(2, 3)
        vmap(keeping)(w)
        return error_of(lambda: torch.autograd.grad(escaped[0], w, torch.ones(2, 3)))

    same_as_stock(program)


TRANSFORMS = {
    "grad": lambda x: grad(loss)(x),
    "grad_and_value": lambda x: grad_and_value(loss)(x),
    "grad_of_grad": lambda x: grad(lambda x: grad(loss)(x).sum())(x),
    "vjp": lambda x: vjp(f, x)[1](torch.ones_like(x)),
    "vjp_of_vjp": lambda x: vjp(lambda x: vjp(f, x)[1](torch.ones_like(x))[0], x)[1](torch.ones_like(x)),
    "jvp": lambda x: jvp(f, (x,), (torch.ones_like(x),)),
    "jvp_of_vjp": lambda x: jvp(lambda x: vjp(f, x)[1](torch.ones_like(x))[0], (x,), (torch.ones_like(x),)),
    "vjp_of_jvp": lambda x: vjp(lambda x: jvp(f, (x,), (torch.ones_like(x),))[1], x)[1](torch.ones_like(x)),
    "jacrev": lambda x: jacrev(f)(x),
    "jacrev_in_chunks": lambda x: jacrev(f, chunk_size=1)(x),
    "jacfwd": lambda x: jacfwd(f)(x),
    "hessian": lambda x: hessian(loss)(x),
    "jacrev_of_jacrev": lambda x: jacrev(jacrev(loss))(x),
    "linearize": lambda x: linearize(f, x)[1](torch.ones_like(x)),
    "vmap": lambda x: vmap(f)(x),
    "vmap_of_grad": lambda x: vmap(grad(loss))(x),
    "grad_of_vmap": lambda x: grad(lambda x: vmap(loss)(x).sum())(x),
    "vmap_of_jacrev": lambda x: vmap(jacrev(f))(x),
    "vmap_of_hessian": lambda x: vmap(hessian(loss))(x),
    "vmap_of_vjp": lambda x: vmap(lambda x: vjp(f, x)[1](torch.ones_like(x))[0])(x),
    "vmap_of_autograd": lambda x: vmap(lambda v: torch.autograd.grad(f(x), x, v)[0])(torch.ones(2, *x.shape)),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_transforms(transform, requires_grad):
    def program():
        x = torch.randn(2, 3, requires_grad=requires_grad)
        seen = []
        for _ in range(STEPS):
            found = error_of(lambda: seen.append(transform(x)))
            if found != ("nothing", ""):
                seen.append(found)
        return seen

    same_as_stock(program)


@pytest.mark.parametrize("name", ["grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "vmap", "vmap_of_grad", "linearize"])
def test_a_backward_through_a_transform(name):
    transform = TRANSFORMS[name]

    def program():
        x = leaf(2, 3)
        seen = []
        for _ in range(STEPS):
            found = torch.utils._pytree.tree_leaves(transform(x))
            if any(one.requires_grad for one in found):
                sum(one.square().sum() for one in found if one.requires_grad).backward()
            seen.append(x.grad.clone() if x.grad is not None else None)
        return seen

    same_as_stock(program)


def test_functional_call_with_gradients_of_parameters():
    def program():
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        weights = dict(model.named_parameters())
        x = torch.randn(5, 3)

        def of(weights, x):
            return functional_call(model, weights, (x,)).square().sum()

        seen = []
        for _ in range(STEPS):
            of(weights, x).backward()
            seen.append([weight.grad.clone() for weight in weights.values()])
        one_by_one = vmap(grad(of), in_dims=(None, 0))({name: weight.detach() for name, weight in weights.items()}, x)
        return seen, list(one_by_one.values())

    assert same_as_stock(program)["hits"] == STEPS - 1


def test_an_ensemble():
    def program():
        models = [torch.nn.Linear(3, 2) for _ in range(3)]
        weights, buffers = stack_module_state(models)
        x = torch.randn(4, 3)

        def one(weights, buffers, x):
            return functional_call(models[0], (weights, buffers), (x,))

        seen = []
        for _ in range(STEPS):
            vmap(one, in_dims=(0, 0, None))(weights, buffers, x).square().sum().backward()
            seen.append([weight.grad.clone() for weight in weights.values()])
        return seen

    assert same_as_stock(program)["hits"] == STEPS - 1


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


def test_custom_functions_under_transforms():
    def program():
        x = leaf(2, 3)
        seen = []
        for _ in range(STEPS):
            seen.append(vjp(Cube.apply, x.detach())[1](torch.ones(2, 3)))
            seen.append(vmap(grad(lambda x: Cube.apply(x).sum()))(x.detach()))
            (vmap(Cube.apply)(x).sum() + grad(lambda x: Cube.apply(x).sum())(x).sum()).backward()
            seen.append(x.grad.clone())
        return seen

    same_as_stock(program)


FUNCTIONAL = {
    "jacobian": lambda x, **options: functional.jacobian(f, x, **options),
    "jacobian_of_two": lambda x, **options: functional.jacobian(two, (x, x.cos()), **options),
    "jacobian_vectorized": lambda x, **options: functional.jacobian(f, x, vectorize=True, **options),
    "jacobian_forward": lambda x, create_graph, **options: functional.jacobian(
        f, x, vectorize=True, strategy="forward-mode", **options
    ),
    "hessian": lambda x, **options: functional.hessian(loss, x, **options),
    "hessian_vectorized": lambda x, **options: functional.hessian(loss, x, vectorize=True, **options),
    "hessian_forward": lambda x, create_graph, **options: functional.hessian(
        loss, x, vectorize=True, outer_jacobian_strategy="forward-mode", **options
    ),
    "vjp": lambda x, **options: functional.vjp(f, x, torch.ones_like(x), **options),
    "jvp": lambda x, **options: functional.jvp(f, x, torch.ones_like(x), **options),
    "vhp": lambda x, **options: functional.vhp(loss, x, torch.ones_like(x), **options),
    "hvp": lambda x, **options: functional.hvp(loss, x, torch.ones_like(x), **options),
}


@pytest.mark.parametrize("function", FUNCTIONAL.values(), ids=FUNCTIONAL)
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_functional(function, create_graph, strict):
    def program():
        x = leaf(2, 3)
        seen = []
        for _ in range(STEPS):
            found = error_of(lambda: seen.append(function(x, create_graph=create_graph, strict=strict)))
            if found != ("nothing", ""):
                seen.append(found)
            elif create_graph:
                leaves = [one for one in torch.utils._pytree.tree_leaves(seen[-1]) if one.requires_grad]
                if leaves:
                    sum(one.square().sum() for one in leaves).backward()
                    seen.append(x.grad.clone())
        return seen

    same_as_stock(program, sums_differ=create_graph)


def test_errors_of_functional():
    def program():
        x = leaf(3)
        return (
            error_of(lambda: functional.vjp(f, x, torch.ones(4))),
            error_of(lambda: functional.jacobian(lambda x: torch.ones(3), x, strict=True)),
            error_of(lambda: functional.hessian(f, x)),
            error_of(lambda: functional.vjp(lambda x: x.detach(), x, torch.ones(3), strict=True)),
        )

    same_as_stock(program)


class Square(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


def with_getitem_of_a_batched_index(w):
    """As Hugging Face's attention masks."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    mask = torch.tensor([True, False, True])
    with TransformGetItemToIndex():
        kept = vmap(lambda i: mask[i])(torch.arange(3))
    return (w[:3] * kept).sum()


def with_while_loop(w):
    from torch._higher_order_ops import while_loop

    with torch.no_grad():
        _, factor = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor(0), w.detach()))
    return (factor * w).sum()


@pytest.mark.parametrize(
    "function",
    [
        with_while_loop,
        lambda w: torch.cond(w.sum() > 0, torch.sin, torch.cos, (w,)).sum(),
        lambda w: vmap(Square.apply)(w).sum(),
        lambda w: (grad(lambda x: Square.apply(x).sum())(w) * w).sum(),
        lambda w: vmap(grad(lambda x: Square.apply(x).sin()))(w).mul(w).sum(),
        lambda w: jacrev(lambda x: Square.apply(x).sin())(w).sum(),
        with_getitem_of_a_batched_index,
    ],
    ids=["while_loop", "cond", "vmap", "grad", "vmap_of_grad", "jacrev", "getitem"],
)
def test_higher_order_operators_in_a_compiled_function(function):
    """They choose their kernel in Python. A custom Function under a transform is called by one."""
    f = hindcast.aot_function(function)
    for step in range(6):
        w = torch.randn(4 + step // 3, requires_grad=True)
        results = [called(w) for called in (f, function)]
        seen, expected = (torch.autograd.grad(result, w)[0] for result in results)
        assert torch.allclose(*results) and torch.allclose(seen, expected)
