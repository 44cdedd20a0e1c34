"""Fork, exit, interrupts, profiles, and pickled models."""

import copy
import os
import pickle
import signal
import subprocess
from pathlib import Path

import hindcast
import pytest
import torch
from processes import python
from side_by_side import leaf
from torch import nn


def test_an_exit_by_an_exception_while_kernels_are_compiled():
    python(
        """
        guard = hindcast.enable()
        guard.__enter__()
        backward()
        raise SystemExit(3)
        """,
        expected_code=3,
    )


def test_a_process_that_may_start_no_thread():
    """As in a container whose limit of processes is reached. The limit is not one for root, so the process becomes another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can become a user who has no other process")
    said = python(
        """
        import os, resource

        os.dup2(1, 2)  # logs are output, too
        torch.ones(3, requires_grad=True).exp().sum().backward()
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.setuid(65534)
        with hindcast.enable():
            for _ in range(5):
                assert backward().isfinite().all()
            hindcast.wait()
        assert hindcast.stats()["hits"] == 4, hindcast.stats()
        """
    )
    assert "this process could not start a thread" in said, said


def test_an_exit_while_a_function_with_an_operator_of_the_programs_own_is_compiled():
    said = python(
        """
        import os, sys

        os.dup2(1, 2)  # errors and logs are output, too

        @torch.library.custom_op("exit_test::cube", mutates_args=())
        def cube(x: torch.Tensor) -> torch.Tensor:
            return x**3

        f = hindcast.aot_function(lambda x: (x.sin() * os.getpid()).exp().tanh() * cube(x))  # kernels that nobody has made before
        f(torch.ones(300))
        """
    )
    assert "INTERNAL ASSERT" not in said, said


# A trace reads LibTorch's generator under its lock, which no child may inherit.
def test_a_fork_while_another_thread_traces():
    python(
        """
        import os, signal, threading

        x = torch.ones(3, 4)

        def trace(i):
            hindcast.aot_function(lambda x: (x * i).sin().mean())(x.clone().requires_grad_()).backward()

        is_over = False
        def work():
            i = 0
            while not is_over:
                i += 1
                trace(float(i))

        # LibTorch looks its operators up on first use. In stock PyTorch too, a child of a fork in the middle of that waits for ever.
        trace(0.0)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(60):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                for i in range(3):
                    trace(float(i))
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        is_over = True
        for thread in threads:
            thread.join()
        """
    )


def test_forked_children_go_on():
    python(
        """
        import os

        def in_child(check):
            child = os.fork()
            if child == 0:
                os._exit(0 if check() else 1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0

        def hits():
            before = hindcast.stats()["hits"]
            for _ in range(3):
                backward()
            hindcast.wait()
            backward()
            return hindcast.stats()["hits"] >= before + 3

        with hindcast.enable("eager"):
            backward()
            in_child(hits)
        with hindcast.enable():
            backward()  # its kernels are compiled in the background now
            in_child(hits)
            assert hits()
        """
    )


def test_importing_changes_nothing_and_another_torch_is_refused():
    text = python(
        """
        import sys
        from torch.autograd.variable import Variable
        assert type(Variable._execution_engine) is torch._C._ImperativeEngine
        backward()
        with hindcast.enable():
            pass
        assert isinstance(Variable._execution_engine, torch._C._ImperativeEngine)

        for name in [name for name in sys.modules if name.startswith("hindcast")]:
            del sys.modules[name]
        print(torch.__version__)
        torch.__version__ = "2.99.0"
        try:
            import hindcast
        except ImportError as error:
            print(error)
        """
    )
    release = ".".join(text.split(".")[:2])
    assert f"the inside of torch {release}," in text and "torch 2.99.0 is installed" in text


def test_the_libraries_need_nothing_beside_torch():
    check = Path(__file__).parents[2] / "scripts" / "check_libraries.sh"
    libraries = sorted(Path(hindcast.__file__).parent.glob("*.so"))
    done = subprocess.run([check, *libraries], capture_output=True, text=True)
    assert libraries and done.returncode == 0, done.stderr


def test_data_loader_workers():
    data = torch.utils.data.TensorDataset(torch.randn(8, 4))
    layer = nn.Linear(4, 2)
    with hindcast.enable("eager"):
        for (batch,) in torch.utils.data.DataLoader(data, batch_size=2, num_workers=1):
            layer(batch).sum().backward()
    assert hindcast.stats()["hits"] == 3


@pytest.fixture
def interrupts():
    """Python's own handler, which a process started by a shell in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_in_a_hook_ends_the_backward(interrupts):
    w = leaf(3)
    with hindcast.enable("eager"):
        for interrupted in (False, False, True):  # in a hit
            y = w.sin()
            y.register_hook(lambda grad, interrupted=interrupted: signal.raise_signal(signal.SIGINT) if interrupted else None)
            w.grad = None
            if interrupted:
                with pytest.raises(KeyboardInterrupt):
                    y.sum().backward()
                assert w.grad is None
            else:
                y.sum().backward()
        w.sin().sum().backward()
    assert torch.equal(w.grad, w.detach().cos())


def test_models_are_pickled_and_copied():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    with hindcast.enable("eager"):
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
        pickled = pickle.loads(pickle.dumps(model))
        copied = copy.deepcopy(model)
    for one, other, third in zip(model.parameters(), pickled.parameters(), copied.parameters()):
        assert torch.equal(one, other) and torch.equal(one, third)


def test_a_profile_shows_hindcasts_ranges():
    with hindcast.enable("eager"), torch.profiler.profile(acc_events=True) as profile:
        for _ in range(2):
            leaf(3).sin().sum().backward()
    names = {event.name for event in profile.events()}
    assert {"hindcast::trace", "hindcast::run"} <= names


def test_a_custom_operator_may_import_dynamo_while_it_is_traced():
    printed = python(
        """
        import sys

        @torch.library.custom_op("hindcast_tests::doubled", mutates_args=())
        def doubled(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        assert "torch._dynamo.variables" not in sys.modules
        f = hindcast.aot_function(lambda x: doubled(x).sum())
        for _ in range(3):
            print(f(torch.ones(3)).item())
        assert torch.Tensor.grad is torch._C.TensorBase.grad
        """
    )
    assert printed.split() == ["6.0"] * 3
