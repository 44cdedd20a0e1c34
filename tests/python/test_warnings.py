"""C++ warnings in a backward become Python warnings, as with PyTorch's engine."""

import sys
import warnings

import pytest
import torch
from hindcast import _cpp_warnings
from side_by_side import STEPS, error_of, leaf, run_seeded, same_as_stock


def warned(function):
    """The warnings of `function`: text, category, and the reported location."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function()
    return [(str(one.message), one.category, one.filename, one.lineno) for one in seen]


def indexed(x):
    """Its node's operator warns: of a mask that is not of bools."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x[torch.tensor([1, 0, 1], dtype=torch.uint8)].square().sum()


@pytest.fixture(scope="module")
def twice():
    """An operator with a node of LibTorch's, which warns that there is no formula."""
    library = torch.library.Library("warning_tests", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x.detach() * 2, "CPU")
    before = torch._C._get_autograd_fallback_mode()
    torch._C._set_autograd_fallback_mode("warn")
    yield torch.ops.warning_tests.twice
    torch._C._set_autograd_fallback_mode(before)
    library._destroy()


@pytest.fixture
def every_time():
    """What warns once per process warns each time."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


def test_a_warning_of_an_operator_comes_from_captures_and_from_hits():
    def program():
        a = leaf(3)
        seen = [warned(indexed(a).backward) for _ in range(STEPS)]
        for step in seen:
            ((text, category, file, _),) = step
            assert "torch.uint8 is now deprecated" in text and "(Triggered internally at " in text
            assert category is UserWarning and file == torch.autograd.graph.__file__
        return seen, a.grad

    assert same_as_stock(program)["hits"] == STEPS - 1


def test_grad_warns_as_backward_does():
    def program():
        a = leaf(3)
        return [warned(lambda: torch.autograd.grad(indexed(a), a)) for _ in range(STEPS)]

    assert all(run_seeded(program)) and same_as_stock(program)["hits"] == STEPS - 1


def test_a_warning_of_a_node_that_runs_as_itself(twice):
    def program():
        a = leaf(3)
        return [warned((a.sin().exp() * twice(a)).tanh().sum().backward) for _ in range(STEPS)]

    assert all(run_seeded(program))
    stats = same_as_stock(program)
    assert stats["hits"] == STEPS - 1 and "torch::autograd::WarnNotImplemented" in stats["opaque_nodes"]


def test_a_warning_of_a_nodes_own_formula():
    def program():
        a = leaf(3)
        return [warned((torch.ops.aten._test_warn_in_autograd(a.sin()).exp() * a).tanh().sum().backward) for _ in range(STEPS)]

    assert [len(step) for step in run_seeded(program)] == [1] * STEPS
    stats = same_as_stock(program)
    assert stats["hits"] == STEPS - 1 and stats["opaque_reasons"] == {"TestWarnInAutogradBackward0": "its formula warns"}


def test_several_warnings_come_in_their_order(twice):
    def program():
        a = leaf(3)
        return [warned((indexed(a) + twice(a).sum()).backward) for _ in range(STEPS)]

    assert [len(step) for step in run_seeded(program)] == [2] * STEPS
    same_as_stock(program)


def test_a_warning_under_function_modes():
    def program():
        a = leaf(3)
        with torch.device("cpu"):
            return [warned(indexed(a).backward) for _ in range(STEPS)]

    assert all(run_seeded(program)) and same_as_stock(program)["hits"] == STEPS - 1


def test_a_warning_of_a_call_that_is_left_to_pytorchs_engine(every_time):
    def program():
        a = leaf(3)

        def backward():
            inner = a.sin()
            inner.register_hook(lambda grad: grad)
            inner.exp().sum().backward(create_graph=True)

        return [warned(backward) for _ in range(STEPS)]

    assert all("create_graph=True will create a reference cycle" in step[0][0] for step in run_seeded(program))
    assert same_as_stock(program)["fallbacks_by_reason"] == {"CreateGraph": STEPS}


def test_the_same_place_warns_once_under_the_default_filter():
    def program():
        a = leaf(3)
        losses = [indexed(a) for _ in range(STEPS)]
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            for loss in losses:
                loss.backward()
        return len(seen)

    assert run_seeded(program) == 1
    same_as_stock(program)


def test_a_warning_that_is_an_error_is_raised_after_the_backward():
    def program():
        a = leaf(3)
        seen = []
        for _ in range(STEPS):
            y = indexed(a)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                seen.append(error_of(y.backward))
                seen.append(error_of(lambda: torch.autograd.grad(indexed(a), a)))
            seen.append(a.grad.clone())
        return seen

    assert run_seeded(program)[0][0] == "UserWarning"
    assert same_as_stock(program)["hits"] == 2 * STEPS - 2


def test_of_several_that_are_errors_the_first_is_raised(twice):
    def program():
        a = leaf(3)
        seen = []
        for _ in range(STEPS):
            y = indexed(a) + twice(a).sum()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                seen.append(error_of(y.backward))
            seen.append(warned(lambda: a.sin().sum().backward()))  # nothing is left of the second
        return seen

    same_as_stock(program)


def test_warnings_of_a_backward_that_fails():
    def fail(grad):
        raise KeyError("from a hook")

    def program():
        seen = []
        for _ in range(STEPS):
            a = leaf(3)
            a.register_hook(fail)
            y = indexed(a)
            seen.append(warned(lambda: seen.append(error_of(y.backward))))
        return seen

    expected = run_seeded(program)
    assert expected[0] == ("KeyError", "'from a hook'") and len(expected[1]) == 1
    same_as_stock(program)


def test_warnings_that_are_errors_are_shown_when_the_backward_fails(monkeypatch):
    def fail(grad):
        raise KeyError("from a hook")

    def program():
        shown = []
        monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: shown.append((kind, str(error), error.__context__)))
        a = leaf(3)
        a.register_hook(fail)
        y = indexed(a)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return error_of(y.backward), shown

    raised, shown = run_seeded(program)
    assert raised == ("KeyError", "'from a hook'") and shown[0][0] is UserWarning
    same_as_stock(program)


def test_anomaly_mode_tells_where_the_forward_was():
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("from a node")

    def program():
        seen = []
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            y = Failing.apply(leaf(3)).sum()
            texts = warned(lambda: seen.append(error_of(y.backward)))
        return seen, [text.split(". ")[0] for text, *_ in texts]

    seen, texts = run_seeded(program)
    assert seen == [("ValueError", "from a node")] and "Error detected in FailingBackward" in texts[-1]
    assert same_as_stock(program)["fallbacks_by_reason"] == {"AnomalyMode": 1}


def test_a_backward_inside_a_hook_warns_where_it_is_called():
    def program():
        a, b = leaf(3), leaf(3)
        seen = []

        def hook(grad):
            with torch.enable_grad():
                seen.append(warned(indexed(b).backward))

        a.register_hook(hook)
        for _ in range(STEPS):
            seen.append(warned(indexed(a).backward))
        return seen

    assert [len(step) for step in run_seeded(program)] == [1] * (2 * STEPS)
    same_as_stock(program)


def test_categories_and_places_that_c_plus_plus_names(monkeypatch):
    columns = (["DeprecationWarning", "UserWarning"], ["old", "there"], ["", "of_jit.py"], [7, 8])
    monkeypatch.setattr(_cpp_warnings, "call", lambda name: columns)

    def engine():
        _cpp_warnings.warn_of_kept()

    old, there = warned(lambda: engine())
    assert old[:2] == ("old", DeprecationWarning) and old[2] == __file__
    assert there == ("there", UserWarning, "of_jit.py", 8)


def test_nothing_is_written_to_stderr(capfd):
    def program():
        a = leaf(3)
        return [warned(indexed(a).backward) for _ in range(STEPS)]

    same_as_stock(program)
    assert "deprecated" not in capfd.readouterr().err
