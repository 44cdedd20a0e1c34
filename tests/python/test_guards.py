import threading

import hindcast
import pytest
import torch
from side_by_side import leaf


def backward():
    leaf(3).sin().sum().backward()


def counts():
    stats = hindcast.stats()
    return stats["backwards"], stats["hits"]


def test_a_guard_takes_over_while_it_is_open():
    backward()
    assert counts() == (0, 0) and not hindcast.is_enabled()
    with hindcast.enable("eager"):
        assert hindcast.is_enabled()
        backward()
        backward()
    backward()
    assert counts() == (2, 1)


def test_a_decorator_enables_each_call():
    @hindcast.enable("eager")
    def step(depth):
        """Documented."""
        assert hindcast.is_enabled()
        backward()
        if depth:
            step(depth - 1)
        return depth

    assert step(2) == 2 and not hindcast.is_enabled()
    assert step.__doc__ == "Documented." and step.__name__ == "step"
    assert counts() == (3, 2)


def test_a_decorated_generator_is_enabled_while_it_runs():
    @hindcast.enable("eager")
    def losses():
        for _ in range(2):
            backward()
            yield hindcast.is_enabled()

    for enabled_inside in losses():
        assert enabled_inside and not hindcast.is_enabled()
    assert counts() == (2, 1)


def test_guards_nest_and_the_innermost_wins():
    with hindcast.enable("eager"):
        with hindcast.enable(enabled=False):
            assert not hindcast.is_enabled()
            backward()
        assert counts() == (0, 0) and hindcast.stats()["fallbacks_by_reason"] == {"Disabled": 1}
        backward()
    assert counts() == (1, 0)


def test_calls_of_a_thread_that_ended_are_counted():
    def switched_off():
        with hindcast.enable(enabled=False):
            backward()
            backward()

    thread = threading.Thread(target=switched_off)
    thread.start()
    thread.join()
    assert hindcast.stats()["fallbacks_by_reason"] == {"Disabled": 2}


def test_one_guard_may_be_entered_again():
    guard = hindcast.enable("eager")
    with guard, guard:
        backward()
    with guard:
        backward()
    assert counts() == (2, 1)


def test_a_guard_ends_with_the_exception_that_leaves_it():
    with pytest.raises(KeyError), hindcast.enable():
        raise KeyError
    assert not hindcast.is_enabled()


def test_guards_are_a_threads_own():
    seen = {}

    def other():
        seen["before"] = hindcast.is_enabled()
        backward()
        seen["backwards"] = hindcast.stats()["backwards"]
        with hindcast.enable("eager"):
            backward()
            seen["inside"] = hindcast.is_enabled()

    with hindcast.enable("eager"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == {"before": False, "backwards": 0, "inside": True}


def test_a_guard_cannot_be_left_on_another_thread():
    guard = hindcast.enable("eager")
    raised = []

    def leave():
        try:
            guard.__exit__(None, None, None)
        except RuntimeError as error:
            raised.append(str(error))

    with guard:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert hindcast.is_enabled()
    assert raised == ["hindcast.enable: a guard was left on another thread than the one that entered it"]


@pytest.mark.parametrize("make", [hindcast.enable, hindcast.enable_process])
def test_a_guard_is_left_as_often_as_it_was_entered(make):
    guard = make("eager")
    with guard:
        pass
    with pytest.raises(RuntimeError, match=f"hindcast.{make.__name__}: a guard was left that is not entered"):
        guard.__exit__(None, None, None)
    with guard:
        assert hindcast.is_enabled()
    assert not hindcast.is_enabled()


def test_two_threads_train_through_shared_leaves():
    w = leaf(50)
    expected = torch.zeros(50)
    steps = 20

    def work(factor):
        with hindcast.enable("eager"):
            for _ in range(steps):
                (w * factor).sum().backward()

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected += steps * 3.0
    assert torch.equal(w.grad, expected)
    assert hindcast.stats()["backwards"] == 2 * steps


def test_two_threads_with_python_hooks_do_not_wait_for_each_other_for_ever():
    def work(seen):
        with hindcast.enable("eager"):
            for _ in range(50):
                y = leaf(3).sin()
                y.register_hook(lambda grad: seen.append(1))
                y.exp().sum().backward()

    seen = [], []
    threads = [threading.Thread(target=work, args=(one,), daemon=True) for one in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert [len(one) for one in seen] == [50, 50]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"compiler": "inductor"}, ValueError, "compiler is 'inductor'; expected 'fused' or 'eager' or 'fused_through_aten'"),
        ({"compiler": 3}, TypeError, "compiler is 3 of type int"),
        ({"dynamic": "sometimes"}, ValueError, "dynamic is 'sometimes'; expected 'automatic' or 'never'"),
        ({"limit": 0}, ValueError, "limit is 0; expected at least 1"),
        ({"limit": True}, TypeError, "limit is True of type bool; expected an int"),
        ({"cache_size": -1}, ValueError, "cache_size is -1"),
        ({"verify": 1}, TypeError, "verify is 1 of type int; expected True or False"),
        ({"veryfy": True}, TypeError, "veryfy"),
    ],
)
def test_bad_options_are_refused_when_the_guard_is_made(options, error, text):
    with pytest.raises(error, match=text):
        hindcast.enable(**options)


@pytest.mark.parametrize(
    ("options", "graphs"),
    [
        ({"dynamic": "never"}, 3),
        ({"limit": 1}, 1),
        ({"collector": "visitor"}, 3),  # it sees no field name that marks a saved number as a size
        ({"deterministic": True}, 2),
        ({"verify": True}, 2),
        ({"nan_guard": True}, 2),
        ({"cuda_graphs": True, "cuda_graph_bytes": 1 << 20}, 2),
    ],
)
def test_options_reach_the_engine(options, graphs):
    with hindcast.enable("eager", **options):
        for batch in (2, 2, 3, 4):
            w = leaf(3)
            (w * torch.ones(batch, 3)).sum().backward()
            assert torch.equal(w.grad, torch.full((3,), float(batch)))
    assert hindcast.stats()["unique_graphs"] == graphs
