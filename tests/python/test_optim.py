"""compiled_step() compared with the optimizer's own step: the same state and parameters up to rounding, and everything attached to
step()."""

import copy
import functools
import gc
import io
import math
import threading
import warnings
import weakref

import hindcast
import pytest
import torch
from device_of_tests import DEVICE
from side_by_side import error_of
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop
from torch.optim.optimizer import register_optimizer_step_pre_hook

FORMS = {
    "sgd": (SGD, {"lr": 0.1}),
    "sgd_decay": (SGD, {"lr": 0.1, "weight_decay": 0.1}),
    "sgd_momentum": (SGD, {"lr": 0.1, "momentum": 0.9}),
    "sgd_dampened": (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
    "sgd_nesterov": (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "sgd_maximize": (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "maximize": True}),
    "sgd_fused": (SGD, {"lr": 0.1, "momentum": 0.9, "fused": True}),
    "adam": (Adam, {"lr": 0.01}),
    "adam_decay": (Adam, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)}),
    "adam_amsgrad": (Adam, {"lr": 0.01, "amsgrad": True, "eps": 1e-6}),
    "adam_decoupled": (Adam, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "adam_foreach": (Adam, {"lr": 0.01, "foreach": True}),
    "adam_fused": (Adam, {"lr": 0.01, "fused": True}),
    "adam_maximize": (Adam, {"lr": 0.01, "maximize": True}),
    "adamw": (AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "adamw_plain": (AdamW, {"lr": 0.01, "weight_decay": 0}),
    "adamw_amsgrad": (AdamW, {"lr": 0.01, "amsgrad": True}),
    "rmsprop": (RMSprop, {"lr": 0.01}),
    "rmsprop_momentum": (RMSprop, {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}),
    "rmsprop_centered": (RMSprop, {"lr": 0.01, "centered": True, "eps": 1e-3}),
    # eps bounds the quotient of a gradient that weight decay nearly cancels, and that has few correct digits.
    "rmsprop_all": (RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.9, "eps": 1e-2, "weight_decay": 0.1, "maximize": True}),
    "adagrad": (Adagrad, {"lr": 0.1}),
    "adagrad_decay": (Adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
}
PLAIN = ["sgd_momentum", "adam_amsgrad", "adamw", "rmsprop_all", "adagrad_decay"]  # one of each class
SIZES = [(7,), (3, 5), (), (2, 3, 4, 5), (1000,)]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6}


def values(sizes=SIZES, seed=0):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]


def parameters_of(tensors, dtype=torch.float32):
    return [torch.nn.Parameter(tensor.to(dtype, copy=True)) for tensor in tensors]


def set_gradients(parameters, gradients):
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = None if gradient is None else gradient.to(parameter.dtype, copy=True)


class Pair:
    """An optimizer with its own step, one with compiled_step(), and equal parameters."""

    def __init__(self, form, dtype=torch.float32, sizes=SIZES, clip=None, **settings):
        make, defaults = FORMS[form] if isinstance(form, str) else form
        self.stock, self.ours = ([parameters_of(values(sizes), dtype), None] for _ in range(2))
        for side in (self.stock, self.ours):
            side[1] = make(side[0], **{**defaults, **settings})
        self.clip = clip
        self.step = hindcast.compiled_step(self.ours[1], clip)
        self.steps = 0

    def gradients(self):
        self.steps += 1
        return values([parameter.shape for parameter in self.stock[0]], seed=self.steps)

    def take_step(self, gradients=None):
        gradients = self.gradients() if gradients is None else gradients
        for parameters, _ in (self.stock, self.ours):
            set_gradients(parameters, gradients)
        norm = None
        if self.clip is not None:
            norm = torch.nn.utils.clip_grad_norm_(self.stock[0], self.clip.max_norm, self.clip.norm_type, self.clip.error_if_nonfinite)
        self.stock[1].step()
        self.step()
        return norm

    def assert_same(self, in_float64=None):
        """`in_float64`: a pair that has taken the same steps from the same numbers."""
        stock, ours = tensors_of(self.stock), tensors_of(self.ours)
        true = stock if in_float64 is None else tensors_of(in_float64.stock)
        assert list(ours) == list(stock)
        for name, expected in stock.items():
            assert_near(ours[name], expected, true[name])


def tensors_of(side):
    """The parameters of an optimizer and its state, by parameter and name."""
    parameters, optimizer = side
    found = {(i, ""): parameter for i, parameter in enumerate(parameters)}
    for i, parameter in enumerate(parameters):
        found.update({(i, name): value for name, value in optimizer.state.get(parameter, {}).items()})
    return found


def assert_near(seen, expected, true=None):
    """Equal up to rounding. Where the optimizer's own rounding is large, as of a variance that is a difference (RMSprop, centered), up to
    twice its distance from the true numbers."""
    assert seen.dtype == expected.dtype and seen.stride() == expected.stride()
    seen, expected = seen.detach(), expected.detach()
    tolerance = TOLERANCE[expected.dtype]
    rounding = 0.0 if true is None or not expected.numel() else (expected - true.detach()).abs().max().item()
    torch.testing.assert_close(seen, expected, rtol=tolerance, atol=max(tolerance, 2 * rounding))


def assert_all_compiled(step):
    assert step.compiled > 0 and (step.original, step.why_original) == (0, "")


# ---- the same numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS)
def test_parameters_and_state_are_the_optimizers(form, dtype):
    pair, in_float64 = Pair(form, dtype), Pair(form, torch.float64)
    with torch.no_grad():
        for true, rounded in zip(in_float64.stock[0], pair.stock[0]):
            true.copy_(rounded)
    for lr in (0.1, 0.1, 0.03, 0.01):
        for _, optimizer in (pair.stock, pair.ours, in_float64.stock):
            optimizer.param_groups[0]["lr"] = lr
        gradients = [gradient.to(dtype) for gradient in pair.gradients()]
        pair.take_step(gradients)
        in_float64.take_step(gradients)
        pair.assert_same(in_float64)
    assert_all_compiled(pair.step)
    assert pair.step.compiled == 4 * len(SIZES)


@pytest.mark.parametrize("form", FORMS)
def test_a_step_in_bfloat16_is_as_near_to_the_truth_as_the_optimizers(form):
    pair, truth = Pair(form, torch.bfloat16, sizes=[(4096,)]), Pair(form, torch.float64, sizes=[(4096,)])
    rounded = [tensor.to(torch.bfloat16) for tensor in values([(4096,)])]
    with torch.no_grad():
        truth.stock[0][0].copy_(rounded[0])
    for seed in range(3):
        gradients = [values([(4096,)], seed + 1)[0].to(torch.bfloat16)]
        pair.take_step(gradients)
        truth.take_step(gradients)
    expected = truth.stock[0][0]
    errors = [(parameters[0].double() - expected).abs().mean().item() for parameters, _ in (pair.ours, pair.stock)]
    assert errors[0] <= errors[1] * 1.05
    assert_all_compiled(pair.step)


@pytest.mark.parametrize("form", PLAIN)
def test_forms_of_memory(form):
    pair = Pair(form, sizes=[(2, 3, 4, 5), (6, 4), (0, 3), (6, 4)])
    for parameters, optimizer in (pair.stock, pair.ours):
        parameters[0].data = parameters[0].data.contiguous(memory_format=torch.channels_last)
        parameters[1].data = parameters[1].data.t().contiguous().t()
        parameters[3].data = torch.stack([parameters[3].data] * 2, -1)[..., 0]  # with gaps
        if isinstance(optimizer, Adagrad):  # its state is created with it
            for parameter in parameters:
                optimizer.state[parameter]["sum"] = torch.full_like(parameter, 0.5)
    for _ in range(3):
        gradients = [torch.empty_like(p, dtype=torch.float64).copy_(g) for p, g in zip(pair.stock[0], pair.gradients())]
        gradients[3] = gradients[3].contiguous()
        pair.take_step(gradients)
        pair.assert_same()
    assert (pair.step.compiled, pair.step.original) == (9, 3)
    assert "do not have the same layout" in pair.step.why_original


def test_groups_have_their_own_settings():
    sides = []
    for _ in range(2):
        first, second = parameters_of(values()), parameters_of(values(seed=1), torch.float64)
        groups = [{"params": first, "lr": 0.1, "amsgrad": True}, {"params": second, "weight_decay": 0.2, "betas": (0.5, 0.9)}]
        sides.append((first + second, AdamW(groups)))
    step = hindcast.compiled_step(sides[1][1])
    for seed in range(3):
        gradients = values(SIZES * 2, seed)
        for parameters, _ in sides:
            set_gradients(parameters, gradients)
        sides[0][1].step()
        step()
        for expected, seen in zip(sides[0][0], sides[1][0]):
            assert_near(seen, expected)
    assert_all_compiled(step)


@pytest.mark.parametrize("form", PLAIN)
def test_a_parameter_without_a_gradient_stays_and_has_no_state(form):
    pair = Pair(form)
    for round_ in range(4):
        gradients = pair.gradients()
        gradients[1] = None
        if round_ < 2:
            gradients[2] = None  # gets one later
        pair.take_step(gradients)
        pair.assert_same()
    assert_all_compiled(pair.step)
    assert pair.step.compiled == 2 * 3 + 2 * 4


def test_sgd_without_momentum_keeps_no_state():
    pair = Pair("sgd")
    pair.take_step()
    assert not pair.ours[1].state


def test_sgd_keeps_no_buffer_for_a_parameter_without_a_gradient():
    pair = Pair("sgd_momentum", sizes=[(3,), (4,)])
    for parameters, optimizer in (pair.stock, pair.ours):  # like a loaded state without a buffer
        for parameter in parameters:
            optimizer.state[parameter] = {"momentum_buffer": None}
    pair.take_step([torch.ones(3), None])
    assert pair.ours[1].state[pair.ours[0][1]] == {"momentum_buffer": None}
    assert_near(pair.ours[1].state[pair.ours[0][0]]["momentum_buffer"], torch.ones(3))
    assert_all_compiled(pair.step)


def test_memory_that_is_shared_until_it_is_written_to():
    pair = Pair("adam")
    pair.take_step()
    tensors = [pair.ours[0][4].data, pair.ours[1].state[pair.ours[0][4]]["exp_avg"]]
    before = [tensor.clone() for tensor in tensors]
    clones = [torch._lazy_clone(tensor) for tensor in tensors]
    pair.take_step()
    pair.assert_same()
    assert all(map(torch.equal, clones, before))
    assert_all_compiled(pair.step)


def test_five_thousand_parameters():
    pair = Pair("adam", sizes=[(64,)] * 5000)
    for _ in range(2):
        pair.take_step()
    pair.assert_same()
    assert pair.step.compiled == 10000


def test_optimizers_of_several_threads():
    pairs = [Pair(form, torch.float64, clip=hindcast.ClipGradNorm(0.5)) for form in PLAIN]

    def run(pair):
        for _ in range(20):
            pair.take_step()

    threads = [threading.Thread(target=run, args=(pair,)) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pair in pairs:
        assert pair.steps == 20
        pair.assert_same()
        assert_all_compiled(pair.step)


def test_no_gradient_at_all():
    pair = Pair("adam", clip=hindcast.ClipGradNorm(1.0))
    norm = pair.take_step([None] * len(SIZES))
    pair.assert_same()
    assert (pair.step.compiled, pair.step.original) == (0, 0) and pair.step.grad_norm == norm == 0


# ---- the optimizer's state is the optimizer's


@pytest.mark.parametrize("form", PLAIN)
def test_steps_of_the_two_alternate(form):
    pair = Pair(form)
    for round_ in range(4):
        gradients = pair.gradients()
        for parameters, _ in (pair.stock, pair.ours):
            set_gradients(parameters, gradients)
        pair.stock[1].step()
        pair.step() if round_ % 2 else pair.ours[1].step()
        pair.assert_same()
    assert_all_compiled(pair.step)


@pytest.mark.parametrize("form", PLAIN)
def test_state_is_saved_and_loaded(form):
    pair = Pair(form)
    for _ in range(2):
        pair.take_step()
    saved = [copy.deepcopy(parameters) for parameters in (pair.stock[0], pair.ours[0])]
    files = []
    for _, optimizer in (pair.stock, pair.ours):
        files.append(io.BytesIO())
        torch.save(optimizer.state_dict(), files[-1])
        files[-1].seek(0)
    pair.take_step()  # the following loads undo it
    for side, values_, file in zip((pair.stock, pair.ours), saved, files):
        with torch.no_grad():
            for parameter, value in zip(side[0], values_):
                parameter.copy_(value)
        side[1].load_state_dict(torch.load(file))
    for _ in range(2):
        pair.take_step()
        pair.assert_same()
    assert_all_compiled(pair.step)


@pytest.mark.parametrize("form", PLAIN)
def test_replaced_state_is_found(form):
    pair = Pair(form)
    pair.take_step()
    for parameters, optimizer in (pair.stock, pair.ours):
        optimizer.state[parameters[0]] = {name: torch.full_like(value, 0.25) for name, value in optimizer.state[parameters[0]].items()}
        if not isinstance(optimizer, Adagrad):  # creates its state only once
            del optimizer.state[parameters[1]]
    pair.take_step()
    pair.assert_same()
    assert_all_compiled(pair.step)


@pytest.mark.parametrize("form", ["sgd_momentum", "adam", "rmsprop_all"])
def test_a_group_is_added(form):
    pair = Pair(form)
    pair.take_step()
    for side in (pair.stock, pair.ours):
        added = parameters_of(values([(11,)], 5))
        side[1].add_param_group({"params": added, "lr": 0.2})
        side[0].extend(added)
    for _ in range(2):
        pair.take_step()
        pair.assert_same()
    assert_all_compiled(pair.step)


def test_adagrad_and_a_parameter_that_it_has_no_state_of():
    pair = Pair("adagrad")
    for parameters, optimizer in (pair.stock, pair.ours):
        added = parameters_of(values([(11,)], 5))
        optimizer.add_param_group({"params": added})
        parameters.extend(added)
        set_gradients(parameters, values([*SIZES, (11,)]))
    try:
        pair.stock[1].step()
    except KeyError:  # up to 2.14
        with pytest.raises(KeyError):
            pair.step()
        return
    pair.step()
    pair.assert_same()


def changed_settings(optimizer, _):
    optimizer.param_groups[0]["amsgrad"] = True


def step_without_a_tensor(optimizer, parameters):
    optimizer.state[parameters[1]]["step"] = 3


def state_without_a_part(optimizer, parameters):
    del optimizer.state[parameters[1]]["exp_avg_sq"]


@pytest.mark.parametrize("damage", [changed_settings, step_without_a_tensor, state_without_a_part])
def test_errors_of_a_damaged_state_are_the_optimizers(damage):
    pair = Pair("adam")
    pair.take_step()
    for parameters, optimizer in (pair.stock, pair.ours):
        damage(optimizer, parameters)
        set_gradients(parameters, values())
    error = error_of(pair.stock[1].step)
    assert error[0] != "nothing" and error_of(pair.step) == error


def test_state_without_a_part_of_a_parameter_without_a_gradient():
    pair = Pair("adam")
    pair.take_step()
    for parameters, optimizer in (pair.stock, pair.ours):
        state_without_a_part(optimizer, parameters)
    gradients = pair.gradients()
    gradients[1] = None
    pair.take_step(gradients)
    pair.assert_same()
    assert_all_compiled(pair.step)


@pytest.mark.parametrize("form", ["adam", "rmsprop", "adagrad"])
def test_steps_that_are_shared_count_as_often_as_the_optimizer_counts(form):
    pair = Pair(form)
    pair.take_step()
    for parameters, optimizer in (pair.stock, pair.ours):
        for parameter in parameters:
            optimizer.state[parameter]["step"] = optimizer.state[parameters[0]]["step"]
    pair.take_step()
    pair.assert_same()
    assert pair.ours[1].state[pair.ours[0][0]]["step"] == 1 + len(SIZES)
    assert_all_compiled(pair.step)


def test_steps_in_doubles():
    torch.set_default_dtype(torch.float64)
    try:
        pair = Pair("adam")
        for _ in range(2):
            pair.take_step()
        pair.assert_same()
    finally:
        torch.set_default_dtype(torch.float32)
    assert pair.ours[1].state[pair.ours[0][0]]["step"].dtype == torch.float64
    assert_all_compiled(pair.step)


@pytest.mark.parametrize("form", PLAIN)
def test_versions_change_as_by_the_optimizer(form):
    pair = Pair(form)
    pair.take_step()
    tensors = [pair.ours[0][0], *pair.ours[1].state[pair.ours[0][0]].values()]
    before = [tensor._version for tensor in tensors]
    saved = (pair.ours[0][0] * pair.ours[0][0]).sum()
    pair.take_step()
    assert all(tensor._version > version for tensor, version in zip(tensors, before))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


# ---- what is attached to step()


def test_a_closure_runs_with_gradients_and_its_loss_is_returned():
    pair = Pair("adam", clip=hindcast.ClipGradNorm(0.5))

    def closure_of(parameters, optimizer):
        def closure():
            optimizer.zero_grad()
            loss = sum((parameter**2).sum() for parameter in parameters)
            loss.backward()
            return loss

        return closure

    for _ in range(3):
        set_gradients(pair.ours[0], values(seed=9))  # not the closure's
        stock = closure_of(*pair.stock)

        def clipping():
            loss = stock()
            torch.nn.utils.clip_grad_norm_(pair.stock[0], 0.5)
            return loss

        with torch.no_grad():
            expected, seen = pair.stock[1].step(clipping), pair.step(closure_of(*pair.ours))
        assert seen.requires_grad
        torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-5)
        pair.assert_same()
    assert_all_compiled(pair.step)


def test_hooks_run_as_around_step():
    pair, seen = Pair("adam"), []
    optimizer = pair.ours[1]

    def note(name):
        return lambda hooked, args, kwargs: seen.append((name, hooked is optimizer, len(args), kwargs))

    handles = [
        optimizer.register_step_pre_hook(note("pre")),
        optimizer.register_step_post_hook(note("post")),
        register_optimizer_step_pre_hook(lambda hooked, args, kwargs: seen.append("global")),
    ]
    set_gradients(pair.ours[0], values())
    pair.step()
    pair.step(lambda: None)
    ours, seen[:] = list(seen), []
    optimizer.step()
    optimizer.step(lambda: None)
    for handle in handles:
        handle.remove()
    assert ours == seen and ours[0] == "global" and ours[1] == ("pre", True, 1, {})


def test_hooks_run_once_where_the_optimizers_code_updates():
    pair, seen = Pair("adam", sizes=[(3,), (4,)]), []
    pair.ours[1].register_step_post_hook(lambda *_: seen.append(1))
    pair.ours[0][0].data = torch.zeros(3, 2)[:, 0]
    set_gradients(pair.ours[0], values([(3,), (4,)]))
    pair.step()
    assert (pair.step.compiled, pair.step.original) == (1, 1) and seen == [1]


def test_schedulers_of_learning_rates_do_not_warn():
    pair = Pair("sgd_momentum")
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) for _, optimizer in (pair.stock, pair.ours)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            pair.take_step()
            for scheduler in schedulers:
                scheduler.step()
    pair.assert_same()
    assert pair.ours[1].param_groups[0]["lr"] == 0.1 * 0.5**3
    assert_all_compiled(pair.step)


def test_modes_of_torch_functions_change_nothing():
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    pair = Pair("adam", clip=hindcast.ClipGradNorm(0.5))
    with torch.device("cpu"), Mode():
        for _ in range(2):
            pair.take_step()
    pair.assert_same()
    assert seen and not any("hindcast" in name for name in seen)
    assert_all_compiled(pair.step)


# ---- by the optimizer's own code


def sparse_pair(make, **settings):
    sides = []
    for _ in range(2):
        torch.manual_seed(0)
        table = torch.nn.Embedding(10, 3, sparse=True)
        dense = torch.nn.Linear(3, 2)
        parameters = [*table.parameters(), *dense.parameters()] if make is not torch.optim.SparseAdam else list(table.parameters())
        sides.append((table, dense, make(parameters, **settings)))
    return sides


@pytest.mark.parametrize("make,settings", [(SGD, {"lr": 0.1, "momentum": 0.9}), (Adagrad, {"lr": 0.1}), (torch.optim.SparseAdam, {})])
def test_sparse_gradients(make, settings):
    stock, ours = sparse_pair(make, **settings)
    step = hindcast.compiled_step(ours[2])
    for _ in range(3):
        for table, dense, optimizer in (stock, ours):
            optimizer.zero_grad()
            dense(table(torch.tensor([1, 4, 1]))).square().sum().backward()
        stock[2].step()
        step()
        for seen, expected in zip(ours[0].parameters(), stock[0].parameters()):
            torch.testing.assert_close(seen, expected)
        for seen, expected in zip(ours[1].parameters(), stock[1].parameters()):
            torch.testing.assert_close(seen, expected)
    if make is torch.optim.SparseAdam:
        assert (step.compiled, step.original) == (0, 3) and "none of SGD" in step.why_original
    else:
        assert (step.compiled, step.original) == (6, 3) and "plain strided" in step.why_original


@pytest.mark.parametrize("second_step", [False, True])
def test_adam_raises_for_sparse_gradients(second_step):
    _, ours = sparse_pair(Adam)
    step = hindcast.compiled_step(ours[2])
    if second_step:
        set_gradients(list(ours[0].parameters()), values([(10, 3)]))
        step()
    ours[2].zero_grad()
    ours[1](ours[0](torch.tensor([1]))).sum().backward()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        step()


def test_steps_that_are_all_the_optimizers_are_left_to_it_and_looked_at_again():
    sides = []
    for _ in range(2):
        parameter = torch.nn.Parameter(torch.ones(4, 2))
        sides.append((parameter, torch.optim.SGD([parameter], lr=0.1)))
    step = hindcast.compiled_step(sides[1][1])

    def steps(count, gradient):
        for _ in range(count):
            for parameter, _ in sides:
                parameter.grad = gradient.clone()
            sides[0][1].step()
            step()
        assert_near(sides[1][0], sides[0][0])

    steps(70, torch.sparse_coo_tensor([[0, 3]], torch.ones(2, 2), (4, 2)).coalesce())
    assert (step.compiled, step.original) == (0, 70)
    steps(100, torch.ones(4, 2))
    assert step.compiled == 100 - (2 * 64 - 70) and step.original == 170 - step.compiled


@pytest.mark.parametrize("form", PLAIN)
def test_complex_parameters(form):
    make, settings = FORMS[form]
    sides = []
    for _ in range(2):
        parameter = torch.nn.Parameter(torch.complex(*values([(5,), (5,)])))
        sides.append((parameter, make([parameter], **settings)))
    step = hindcast.compiled_step(sides[1][1])
    for seed in range(3):
        for parameter, _ in sides:
            parameter.grad = torch.complex(*values([(5,), (5,)], seed))
        sides[0][1].step()
        step()
        assert torch.equal(sides[0][0], sides[1][0])
    assert (step.compiled, step.original) == (0, 3)


@pytest.mark.parametrize(
    "make,settings,why",
    [
        (Adam, {"lr": torch.tensor(0.1)}, "not a number"),
        (Adam, {"lr": 0.1, "differentiable": True}, "differentiable"),
        (SGD, {"lr": torch.tensor(0.1), "momentum": 0.9}, "not a number"),
        (torch.optim.Adamax, {"lr": 0.1}, "none of SGD"),
        (type("Mine", (Adam,), {}), {"lr": 0.1}, "none of SGD"),
    ],
)
def test_what_no_kernel_knows_is_the_optimizers(make, settings, why):
    pair = Pair((make, settings), clip=hindcast.ClipGradNorm(0.5))
    with torch.no_grad() if settings.get("differentiable") else torch.enable_grad():
        for parameters in (pair.stock[0], pair.ours[0]) if settings.get("differentiable") else ():
            for parameter in parameters:
                parameter.requires_grad_(False)
        for _ in range(2):
            pair.take_step()
            pair.assert_same()
    assert (pair.step.compiled, pair.step.original) == (0, 2 * len(SIZES)) and why in pair.step.why_original


def test_a_step_that_was_replaced_is_called():
    pair, seen = Pair("adam"), []
    pair.ours[1].step = lambda: seen.append(1)
    set_gradients(pair.ours[0], values())
    pair.step()
    assert seen == [1] and "was replaced" in pair.step.why_original


def test_a_step_that_was_replaced_on_the_class_is_called(monkeypatch):
    pair, seen, own = Pair("sgd"), [], SGD.step

    @functools.wraps(own)  # as tracking libraries do
    def tracked(*args, **kwargs):
        seen.append(1)
        return own(*args, **kwargs)

    pair.take_step()
    with monkeypatch.context() as patched:
        patched.setattr(SGD, "step", tracked)
        set_gradients(pair.ours[0], values())
        pair.step()
        assert seen == [1] and "of its class was replaced" in pair.step.why_original
    compiled = pair.step.compiled
    pair.step()
    assert seen == [1] and pair.step.compiled > compiled


def test_no_cycle_keeps_the_optimizer():
    optimizer = SGD([torch.zeros(3, requires_grad=True)], lr=0.1)
    step = hindcast.compiled_step(optimizer)
    known = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer, step
        assert known() is None
    finally:
        gc.enable()


# The variance cancels: a rounding more than the optimizer makes, and it is negative.
def test_centred_rmsprop_of_equal_gradients():
    torch.manual_seed(0)
    parameters = [torch.zeros(512, requires_grad=True) for _ in range(2)]
    optimizers = [RMSprop([parameter], lr=0.01, centered=True) for parameter in parameters]
    steps = [optimizers[0].step, hindcast.compiled_step(optimizers[1])]
    gradient = torch.randn(512)
    for _ in range(1300):
        for parameter, step in zip(parameters, steps):
            parameter.grad = gradient.clone()
            step()
    lost = [int(parameter.isnan().sum()) for parameter in parameters]
    assert lost[1] <= lost[0] + 4, lost


def test_a_grad_scaler_is_the_optimizers():
    pair = Pair("adam_fused")
    for parameters, optimizer in (pair.stock, pair.ours):
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(0.0)
    pair.take_step()
    pair.assert_same()
    assert pair.step.compiled == 0 and "GradScaler" in pair.step.why_original


# Steps with an infinite gradient are skipped, and the scale is reduced.
@pytest.mark.parametrize("form", ["sgd_momentum", "adam_fused"])
@pytest.mark.parametrize("unscales", [False, True])
def test_with_a_grad_scaler(form, unscales):
    clip = hindcast.ClipGradNorm(1.0)
    pair = Pair(form, clip=clip)
    scalers = [torch.amp.GradScaler("cpu", init_scale=8.0) for _ in range(2)]
    for number in range(4):
        gradients = [gradient * scalers[0].scale(torch.tensor(1.0)).item() for gradient in pair.gradients()]
        if number == 2:
            gradients[1][0, 0] = math.inf
        for (parameters, optimizer), scaler, ours in zip((pair.stock, pair.ours), scalers, (False, True)):
            scaler.scale(torch.tensor(1.0))
            set_gradients(parameters, gradients)
            if not ours:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(parameters, clip.max_norm)
                scaler.step(optimizer)
            else:
                if unscales:
                    scaler.unscale_(optimizer)
                pair.step.with_scaler(scaler)
            scaler.update()
        pair.assert_same()
    assert scalers[0].get_scale() == scalers[1].get_scale() == 4.0
    assert_all_compiled(pair.step)
    assert pair.step.compiled == 3 * len(SIZES)
    assert "step" not in pair.ours[1].__dict__


@pytest.mark.parametrize("unscales", [False, True])
def test_a_norm_that_is_not_finite_raises_where_a_scaler_skips(unscales):
    pair = Pair("sgd_momentum", clip=hindcast.ClipGradNorm(1.0, error_if_nonfinite=True))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.tensor(1.0))
    gradients = pair.gradients()
    gradients[1][0, 0] = math.inf
    parameters, optimizer = pair.ours
    set_gradients(parameters, gradients)
    before = [parameter.detach().clone() for parameter in parameters]
    if unscales:
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="non-finite"):
        pair.step.with_scaler(scaler)
    assert all(map(torch.equal, parameters, before))
    scaler.update()
    assert scaler.get_scale() == 4.0
    pair.take_step()
    assert pair.step.compiled == len(SIZES)


def test_a_grad_scaler_and_a_scheduler():
    pair = Pair("adam")
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) for _, optimizer in (pair.stock, pair.ours)]
    wrapper = pair.ours[1].__dict__["step"]
    scalers = [torch.amp.GradScaler("cpu", init_scale=8.0) for _ in range(2)]
    for _ in range(3):
        gradients = pair.gradients()
        for (parameters, optimizer), scaler, scheduler, ours in zip((pair.stock, pair.ours), scalers, schedulers, (False, True)):
            scaler.scale(torch.tensor(1.0))
            set_gradients(parameters, gradients)
            if ours:
                pair.step.with_scaler(scaler)
            else:
                scaler.step(optimizer)
            scaler.update()
            scheduler.step()
        pair.assert_same()
    assert_all_compiled(pair.step)
    assert pair.ours[1].__dict__["step"] is wrapper


def test_lbfgs_with_a_closure_that_clips():
    sides = []
    for compiled in (False, True):
        parameter = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
        optimizer = torch.optim.LBFGS([parameter], lr=0.1, max_iter=3)

        def closure():
            optimizer.zero_grad()
            loss = (parameter**4).sum()
            loss.backward()
            if not compiled:
                torch.nn.utils.clip_grad_norm_([parameter], 1.0)
            return loss

        step = hindcast.compiled_step(optimizer, hindcast.ClipGradNorm(1.0)) if compiled else optimizer.step
        sides.append((parameter, step(closure)))
    assert torch.equal(sides[0][0], sides[1][0]) and torch.equal(sides[0][1], sides[1][1])


def test_modes_of_dispatch_see_the_optimizers_operators():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    pair = Pair("adam")
    set_gradients(pair.ours[0], values())
    with Mode():
        pair.step()
    assert any("addcdiv" in name for name in seen) and not any("hindcast" in name for name in seen)
    assert "mode of dispatch" in pair.step.why_original


def test_tensors_of_a_subclass_are_the_optimizers():
    class Mine(torch.Tensor):
        pass

    pair = Pair("adam", sizes=[(3,)])
    for _, optimizer in (pair.stock, pair.ours):
        added = [values([(4,)])[0].float().as_subclass(Mine).requires_grad_()]
        optimizer.add_param_group({"params": added})
        (pair.stock if optimizer is pair.stock[1] else pair.ours)[0].extend(added)
    for _ in range(2):
        pair.take_step()
    assert torch.equal(pair.stock[0][1].as_subclass(torch.Tensor), pair.ours[0][1].as_subclass(torch.Tensor))
    assert (pair.step.compiled, pair.step.original) == (2, 2) and "not a plain tensor" in pair.step.why_original


@pytest.mark.parametrize("form", PLAIN)
@pytest.mark.parametrize("with_gaps", [False, True])
def test_parameters_that_share_memory_are_updated_in_their_order(form, with_gaps):
    make, settings = FORMS[form]
    sides = []
    for _ in range(2):
        memory = torch.ones(8)
        parameters = [torch.nn.Parameter(view) for view in (memory[::2] if with_gaps else memory[:6], memory[2:])]
        sides.append((memory, parameters, make(parameters, **settings)))
    step = hindcast.compiled_step(sides[1][2])
    for seed in range(3):
        for _, parameters, _ in sides:
            set_gradients(parameters, values([parameter.shape for parameter in parameters], seed))
        sides[0][2].step()
        step()
        assert_near(sides[1][0], sides[0][0])
    assert (step.compiled, step.original) == ((0, 6) if with_gaps else (6, 0))
    assert not with_gaps or "share memory" in step.why_original


# ---- clipping


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf, 0.0, 3.0])
@pytest.mark.parametrize("max_norm", [0.3, 1e6])
def test_gradients_are_clipped_where_they_are_read(norm_type, max_norm):
    pair = Pair("sgd_momentum", clip=hindcast.ClipGradNorm(max_norm, norm_type))
    assert pair.step.grad_norm is None
    for _ in range(3):
        gradients = pair.gradients()
        norm = pair.take_step(gradients)
        pair.assert_same()
        torch.testing.assert_close(pair.step.grad_norm, norm, rtol=1e-5, atol=1e-5)
        if norm_type != 0:
            for parameter, gradient in zip(pair.ours[0], gradients):
                assert torch.equal(parameter.grad, gradient.float())
    assert_all_compiled(pair.step)


@pytest.mark.parametrize("dtypes", [["float32"], ["float64"], ["bfloat16"], ["bfloat16", "float32"], ["bfloat16", "float16"]])
def test_the_norm_has_the_dtype_of_the_gradients(dtypes):
    # The norms of 9 and of 16 ones are 3 and 4: exact in every dtype.
    parameters = [torch.ones(size, dtype=getattr(torch, dtype), requires_grad=True) for size, dtype in zip((9, 16), dtypes)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    step = hindcast.compiled_step(torch.optim.SGD(parameters, lr=0.1), hindcast.ClipGradNorm(100.0))
    step()
    stock = torch.nn.utils.clip_grad_norm_(parameters, 100.0)
    assert step.grad_norm.dtype == stock.dtype
    torch.testing.assert_close(step.grad_norm, stock)


def test_the_norm_of_order_0_counts_gradients_that_are_not_zero():
    pair = Pair("sgd", clip=hindcast.ClipGradNorm(2.0, 0))
    gradients = pair.gradients()
    gradients[1].zero_()
    assert pair.take_step(gradients) == pair.step.grad_norm == len(SIZES) - 1
    pair.assert_same()


def test_gradients_that_have_a_graph():
    pair = Pair("sgd_momentum", clip=hindcast.ClipGradNorm(0.5))
    for _ in range(2):
        for parameters, _ in (pair.stock, pair.ours):
            for parameter in parameters:
                parameter.grad = None
            sum((parameter**3).sum() for parameter in parameters).backward(create_graph=True)
        torch.nn.utils.clip_grad_norm_(pair.stock[0], 0.5)
        pair.stock[1].step()
        pair.step()
        pair.assert_same()
        assert not pair.step.grad_norm.requires_grad
        assert not any(state["momentum_buffer"].requires_grad for state in pair.ours[1].state.values())
    assert_all_compiled(pair.step)


def test_clipping_and_maximizing():
    pair = Pair("adam_maximize", clip=hindcast.ClipGradNorm(0.3))
    for _ in range(3):
        pair.take_step()
        pair.assert_same()
    assert_all_compiled(pair.step)


def test_a_parameter_that_the_optimizer_updates_is_clipped_too():
    pair = Pair("adam", sizes=[(4,), (6, 4)], clip=hindcast.ClipGradNorm(0.1))
    for parameters, _ in (pair.stock, pair.ours):
        parameters[1].data = torch.stack([parameters[1].data] * 2, -1)[..., 0]
    for _ in range(3):
        gradients = pair.gradients()
        pair.take_step(gradients)
        pair.assert_same()
        assert torch.equal(pair.ours[0][1].grad, gradients[1].float())
    assert (pair.step.compiled, pair.step.original) == (3, 3)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_norm_that_is_not_finite_raises_before_anything_changes(value):
    pair = Pair("adam", clip=hindcast.ClipGradNorm(1.0, error_if_nonfinite=True))
    gradients = pair.gradients()
    gradients[0][0] = value
    set_gradients(pair.ours[0], gradients)
    with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped") as ours:
        pair.step()
    set_gradients(pair.stock[0], gradients)
    with pytest.raises(RuntimeError) as stock:
        torch.nn.utils.clip_grad_norm_(pair.stock[0], 1.0, error_if_nonfinite=True)
    assert str(ours.value) == str(stock.value)
    for parameter, before in zip(pair.ours[0], values()):
        assert torch.equal(parameter, before.float())
    assert not pair.ours[1].state and pair.step.compiled == 0


def test_a_norm_that_is_not_finite_spreads():
    pair = Pair("sgd", clip=hindcast.ClipGradNorm(1.0))
    gradients = pair.gradients()
    gradients[0][0] = math.nan
    pair.take_step(gradients)
    for parameters, _ in (pair.stock, pair.ours):
        assert all(parameter.isnan().all() for parameter in parameters)


# ---- arguments


def test_arguments_are_checked():
    optimizer = SGD(parameters_of(values()), lr=0.1)
    with pytest.raises(TypeError, match="expected a torch.optim.Optimizer"):
        hindcast.compiled_step(optimizer.param_groups)
    with pytest.raises(TypeError, match="expected a hindcast.ClipGradNorm"):
        hindcast.compiled_step(optimizer, 1.0)
    assert hindcast.ClipGradNorm(1, "inf") == hindcast.ClipGradNorm(1.0, math.inf)


@pytest.mark.parametrize("of_class", (True, False), ids=("class", "instance"))
def test_a_step_that_the_program_wraps_is_called(of_class):
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(net.parameters())
    called = []
    own = type(optimizer).step if of_class else optimizer.step.__func__

    @functools.wraps(own)
    def wrapper(*args, **kwargs):
        called.append(1)
        return own(optimizer, *args, **kwargs)

    optimizer.step = wrapper
    step = hindcast.compiled_step(optimizer)
    for _ in range(3):
        net(torch.ones(1, 2)).sum().backward()
        step()
    assert len(called) == 3 and "replaced" in step.why_original


def test_a_hook_that_writes_to_clipped_gradients():
    def trained(with_hindcast):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def add_to_gradients(*_):
            for parameter in net.parameters():
                parameter.grad.add_(1)

        optimizer.register_step_pre_hook(add_to_gradients)
        step = hindcast.compiled_step(optimizer, hindcast.ClipGradNorm(0.1))
        for _ in range(3):
            optimizer.zero_grad()
            (net(torch.ones(4, 3)) * 10).sum().backward()
            if with_hindcast:
                step()
            else:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                optimizer.step()
        return [parameter.detach() for parameter in net.parameters()]

    torch.testing.assert_close(trained(True), trained(False))


def test_a_sparse_gradient_of_adam_is_an_error_before_any_update():
    def parameters():
        dense, sparse = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        dense.grad = torch.ones(3)
        sparse.grad = torch.ones(3).to_sparse()
        return [dense, sparse]

    made = parameters()
    optimizer = torch.optim.Adam(made)
    with pytest.raises(RuntimeError, match="sparse"):
        hindcast.compiled_step(optimizer)()
    assert torch.equal(made[0], torch.ones(3)) and all(state.get("step", 0) == 0 for state in optimizer.state.values())
    made[1].grad = None
    hindcast.compiled_step(optimizer)()
    made[0].grad = torch.ones(3)
    made[1].grad = torch.ones(3).to_sparse()
    before = made[0].clone()
    with pytest.raises(RuntimeError, match="sparse"):
        hindcast.compiled_step(optimizer)()
    assert torch.equal(made[0], before)
