"""What a hook can read of the nodes that will run."""

import torch
from side_by_side import STEPS, error_of, leaf, same_as_stock


def will_run(tensor: torch.Tensor) -> tuple[object, ...]:
    node = torch.autograd.graph.get_gradient_edge(tensor).node
    answers: list[object] = []
    error = error_of(lambda: answers.append(torch._C._will_engine_execute_node(node)))
    return (*answers, *error)


def what_a_hook_sees(backward):
    a, b = leaf(3), leaf(3)
    seen = []
    for _ in range(STEPS):
        y = a * b
        z = y.sin()
        loss = z.sum()
        loss.register_hook(lambda grad: seen.append([will_run(tensor) for tensor in (a, b, y, z)]))
        backward(loss, a, y)
    return seen


def test_grad_of_a_leaf():
    def program():
        return what_a_hook_sees(lambda loss, a, y: torch.autograd.grad(loss, a))

    assert "A leaf node was passed" in program()[0][0][-1]
    same_as_stock(program)


def test_grad_of_a_result():
    same_as_stock(lambda: what_a_hook_sees(lambda loss, a, y: torch.autograd.grad(loss, y)))


def test_grad_of_a_result_and_a_leaf():
    same_as_stock(lambda: what_a_hook_sees(lambda loss, a, y: torch.autograd.grad(loss, (y, a))))


def test_backward_with_inputs():
    same_as_stock(lambda: what_a_hook_sees(lambda loss, a, y: loss.backward(inputs=[a])))


def test_backward():
    same_as_stock(lambda: what_a_hook_sees(lambda loss, a, y: loss.backward()))


def test_hooks_of_many_gradients_the_root_among_them():
    def program():
        seen = []
        for _ in range(STEPS):
            w, other = leaf(2), leaf(2)
            z = (w * 3).sum()
            for name, tensors in (("w", (z, w)), ("other", (z, other))):
                torch.autograd.graph.register_multi_grad_hook(
                    tensors, lambda grads, name=name: seen.append((name, [g is not None for g in grads]))
                )
            z.backward()
        return seen

    same_as_stock(program)
