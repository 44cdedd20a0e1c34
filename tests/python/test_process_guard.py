"""``hindcast.enable_process``: threads without a guard of their own."""

import os
import threading

import hindcast
import pytest
import torch
from side_by_side import leaf


def is_taken_over():
    before = hindcast.stats()["backwards"]
    x = leaf(4)
    x.sin().sum().backward()
    assert torch.equal(x.grad, x.detach().cos())
    assert hindcast.is_enabled() == (hindcast.stats()["backwards"] == before + 1)
    return hindcast.is_enabled()


def on_a_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    # join() returns before the thread's C++ objects are destroyed (CPython 3.11); the kernel removes its entry after that.
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        os.sched_yield()
    return results[0]


def test_threads_of_before_and_of_later():
    turns = [threading.Event() for _ in range(4)]
    seen = []

    def early():
        for turn, done in ((0, 1), (2, 3)):
            turns[turn].wait()
            seen.append(is_taken_over())
            turns[done].set()

    thread = threading.Thread(target=early)
    thread.start()
    with hindcast.enable_process("eager"):
        turns[0].set()
        turns[1].wait()
        assert is_taken_over() and on_a_thread(is_taken_over)
    turns[2].set()
    thread.join()
    assert seen == [True, False]
    assert not is_taken_over() and not on_a_thread(is_taken_over)


def test_a_threads_own_guard_wins():
    def work():
        with hindcast.enable(enabled=False):
            assert not is_taken_over()
            with hindcast.enable_process("eager"):
                assert not is_taken_over()
        return is_taken_over()

    with hindcast.enable_process("eager"):
        assert on_a_thread(work)
        with hindcast.enable_process(enabled=False):
            assert not on_a_thread(is_taken_over)
            with hindcast.enable("eager"):
                assert is_taken_over()
        assert is_taken_over()


def test_the_newest_wins_and_may_be_left_on_another_thread():
    first, off = hindcast.enable_process("eager"), hindcast.enable_process(enabled=False)
    first.__enter__()
    off.__enter__()
    assert not is_taken_over()
    on_a_thread(lambda: off.__exit__(None, None, None))
    assert is_taken_over()
    first.__exit__(None, None, None)
    assert not is_taken_over()


@pytest.mark.skipif(os.environ.get("HINDCAST_PYTHON_CALLS") == "operators", reason="hindcast._C counts them")
def test_calls_that_are_not_looked_at_are_counted_when_their_thread_ends():
    with hindcast.enable_process(enabled=False):
        on_a_thread(lambda: [leaf(4).sin().sum().backward() for _ in range(5)])
        assert hindcast.stats()["fallbacks_by_reason"] == {"Disabled": 5}


def test_a_function_is_decorated_for_all_threads():
    @hindcast.enable_process("eager")
    def work():
        return on_a_thread(is_taken_over)

    assert work()
    assert not is_taken_over()


def test_a_forks_child_has_it():
    with hindcast.enable_process("eager"):
        assert is_taken_over()
        child = os.fork()
        if child == 0:
            os._exit(0 if is_taken_over() and on_a_thread(is_taken_over) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_bad_options_are_those_of_enable():
    with pytest.raises(ValueError, match="limit is 0"):
        hindcast.enable_process(limit=0)
    with pytest.raises(TypeError, match="verify is 1 of type int"):
        hindcast.enable_process(verify=1)
