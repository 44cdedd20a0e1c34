import gc
import weakref
from contextlib import nullcontext

import hindcast
import pytest
import torch
from side_by_side import STEPS, leaf, same_as_stock
from torch import nn


def test_tensor_hooks_see_and_change_gradients():
    def program():
        seen = []
        w = leaf(3)
        for step in range(STEPS):
            y = w.sin()
            y.register_hook(lambda grad: seen.append(grad.clone()))
            y.register_hook(lambda grad, step=step: grad * (step + 2))
            w_hook = w.register_hook(lambda grad: seen.append(grad.clone()))
            (y * y).sum().backward()
            w_hook.remove()
        return seen, w.grad

    stats = same_as_stock(program)
    assert stats["hits"] == STEPS - 1 and stats["fallbacks"] == 0


def test_node_hooks():
    def program():
        seen = []
        w = leaf(3)
        for _ in range(STEPS):
            y = w.sin() * 2
            y.grad_fn.register_prehook(lambda grads: (seen.append(("pre", grads)), tuple(g + 1 for g in grads))[1])
            y.grad_fn.register_hook(lambda inputs, outputs: seen.append(("post", inputs, outputs)))
            y.sum().backward()
        return seen, w.grad

    assert same_as_stock(program)["hits"] == STEPS - 1


def test_post_accumulate_hooks_step_the_optimizer():
    def program():
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        order = []
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
        names = {p: name for name, p in model.named_parameters()}

        def step(parameter):
            order.append(names[parameter])
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(step)
        for _ in range(STEPS):
            model(torch.randn(5, 4)).square().sum().backward()
        assert all(p.grad is None for p in model.parameters())
        return order, [p.detach() for p in model.parameters()]

    assert same_as_stock(program)["hits"] == STEPS - 1


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_module_backward_hooks():
    def program():
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        seen = []
        for layer in model:
            layer.register_full_backward_hook(lambda layer, inputs, outputs: seen.append((type(layer).__name__, inputs, outputs)))
            layer.register_full_backward_pre_hook(lambda layer, outputs: (outputs[0] * 2,))
        for _ in range(STEPS):
            model(torch.randn(5, 4)).square().sum().backward()
        return seen, [p.grad for p in model.parameters()]

    assert same_as_stock(program)["hits"] == STEPS - 1


def test_retain_grad():
    def program():
        w = leaf(3)
        seen = []
        for _ in range(STEPS):
            y = w.exp()
            y.retain_grad()
            y.sum().backward()
            seen.append(y.grad)
        return seen, w.grad

    assert same_as_stock(program)["hits"] == STEPS - 1


class HookError(Exception):
    def __init__(self, number):
        super().__init__(number)
        self.number = number


def test_an_exception_of_a_hook_arrives_as_itself():
    def failing(grad):
        raise HookError(17)

    w = leaf(3)
    with hindcast.enable("eager"):
        for _ in range(2):  # during the capture, and before anything is kept
            y = w.sin()
            y.register_hook(failing)
            with pytest.raises(HookError) as raised:
                y.sum().backward()
            assert raised.value.number == 17
            assert raised.traceback[-1].name == "failing"
        w.sin().sum().backward()
    assert w.grad is not None


def test_an_exception_in_a_hit_arrives_as_itself():
    w = leaf(3)
    fail = False

    def hook(grad):
        if fail:
            raise HookError(3)

    with hindcast.enable("eager"):
        for step in range(3):
            fail = step == 2
            y = w.sin()
            y.register_hook(hook)
            if fail:
                with pytest.raises(HookError):
                    y.sum().backward()
            else:
                y.sum().backward()
    assert hindcast.stats()["hits"] == 2


def test_a_hook_that_returns_nonsense_raises_what_it_raises_in_pytorch():
    def text():
        y = leaf(3).sin()
        y.register_hook(lambda grad: "no tensor")
        with pytest.raises(TypeError) as raised:
            y.sum().backward()
        return str(raised.value)

    same_as_stock(text)


def test_queue_callback_runs_after_the_backward():
    def program():
        w = leaf(3)
        order = []

        def hook(grad):
            order.append("hook")
            torch.autograd.Variable._execution_engine.queue_callback(lambda: order.append(("callback", w.grad.clone())))

        for _ in range(STEPS):
            y = w.sin()
            y.register_hook(hook)
            y.sum().backward()
        return order

    assert same_as_stock(program)["hits"] == STEPS - 1


def test_multi_grad_hooks():
    def program():
        a, b = leaf(3), leaf(3)
        seen = []
        torch.autograd.graph.register_multi_grad_hook((a, b), lambda grads: seen.append(list(grads)))
        for _ in range(STEPS):
            (a * b).sum().backward()
        return seen

    assert same_as_stock(program)["hits"] == STEPS - 1


def test_hooks_and_what_they_hold_are_freed():
    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    with hindcast.enable("eager"):
        for _ in range(2):
            y = leaf(3).sin()
            y.register_hook(lambda grad, held=held: None)
            y.sum().backward()
    del y, held
    gc.collect()
    assert gone() is None


def test_the_current_node_is_the_one_whose_hook_runs():
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x / 2

        @staticmethod
        def backward(ctx, grad):
            seen.append(torch._C._current_autograd_node().name())
            return grad / 2

    def note(*_):
        seen.append(torch._C._current_autograd_node().name())

    def inner_backward(_):
        with torch.enable_grad():
            y = leaf(2).cos()
            y.register_hook(note)
            y.sum().backward()
        note()

    def program():
        seen.clear()
        w = leaf(3)
        for _ in range(STEPS):
            y = Halved.apply(w.sin()) * 2
            y.register_hook(note)
            y.grad_fn.register_prehook(note)
            y.grad_fn.register_hook(note)
            y.register_hook(inner_backward)
            hooks = [w.register_hook(note), w.register_post_accumulate_grad_hook(note)]
            y.sum().backward()
            for hook in hooks:
                hook.remove()
        assert torch._C._current_autograd_node() is None
        return list(seen), w.grad

    seen = []
    assert same_as_stock(program)["hits"] == STEPS - 1


def test_an_unpack_hook_registers_a_hook_on_its_node():
    """Like offloading of activations to the host, which frees the copies once the node has run."""
    seen = []

    def unpack(tensor):
        def hook(gradients, inputs):
            seen.append(len(inputs))
            return tuple(None if gradient is None else gradient / 2 for gradient in gradients)

        torch._C._current_autograd_node().register_hook(hook)
        return tensor

    def program():
        seen.clear()
        w = leaf(3, 3)
        gradients = []
        for step in range(2 * STEPS):
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack) if step % 2 else nullcontext():
                loss = sum(torch.var_mean(w.exp(), dim=0)).sum()
            loss.backward()
            gradients.append(w.grad.clone())
        return gradients, list(seen)

    assert same_as_stock(program)["hits"] == 2 * STEPS - 2


@pytest.mark.parametrize("where", ["register_prehook", "register_hook"])
def test_what_a_hook_leaves_on_the_thread_ends_with_its_node(where):
    """The stock engine starts each node with the thread state of backward()."""

    class Mode(torch.overrides.TorchFunctionMode):
        pass

    changes = [
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: torch.set_grad_enabled(True),
        lambda: torch._C._autograd._saved_tensors_hooks_disable("by a hook"),
        lambda: torch._C._push_on_torch_function_stack(Mode()),
    ]

    def state():
        return [torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), torch._C._len_torch_function_stack()]

    def program():
        seen = []
        a, b = leaf(5, 7), leaf(7, 4)
        c = torch.randn(5, 3)
        a.register_hook(lambda grad: seen.append(state()))
        for step in range(3 * len(changes)):
            inner = (a * 2).mm(b)

            def hook(*gradients, step=step):
                seen.append(state())
                if step % 3:
                    changes[step // 3]()

            getattr(inner.grad_fn, where)(hook)
            inner.grad_fn.register_hook(lambda inputs, outputs: seen.append(state()))
            inner.tanh().t().mm(c).sum().backward()
            seen += [state(), a.grad.clone(), b.grad.clone()]
        return seen

    same_as_stock(program)
