"""Other Python threads while a backward runs."""

import sys
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from side_by_side import RELEASE, STEPS, leaf, same_as_stock

LIMIT = timedelta(seconds=20)  # then gloo gives up, and the test has failed


def join(store, rank, groups):
    """One of two ends in this process, with its own name, by which operators find it."""
    group = dist.ProcessGroup(store, rank, 2)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, dist.ProcessGroupGloo(store, rank, 2, LIMIT))
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    groups[rank] = group


@pytest.fixture
def ends():
    store, groups = dist.HashStore(), {}
    threads = [threading.Thread(target=join, args=(store, rank, groups)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch._C._distributed_c10d._register_process_group("end", groups[0])
    yield groups
    torch._C._distributed_c10d._unregister_process_group("end")


@pytest.fixture
def no_switches():
    """A thread runs until it waits or releases the GIL."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.skipif(RELEASE >= (2, 15), reason="times out in PyTorch 2.15 itself")
def test_python_runs_on_while_a_backward_waits_in_cpp(ends, no_switches):
    """The node after the hook waits, in C++, for a message that another Python thread sends once the hook has run."""
    swap = torch.ops._c10d_functional_autograd.all_to_all_single

    def program():
        w = leaf(4)
        for step in range(STEPS):
            from_hook = threading.Event()

            def other_end(step=step, from_hook=from_hook):
                received = torch.empty(4)
                ends[1].alltoall_base(received, torch.full((4,), 2.0 + step), [], []).wait()
                if from_hook.wait(LIMIT.total_seconds()):
                    ends[1].alltoall_base(received, torch.full((4,), 3.0 + step), [], []).wait()

            thread = threading.Thread(target=other_end)
            thread.start()
            swapped = swap(w.sin(), [2, 2], [2, 2], "end")
            torch.ops._c10d_functional.wait_tensor(swapped.detach())
            y = swapped * 1
            y.register_hook(lambda grad, from_hook=from_hook: from_hook.set())
            y.sum().backward()
            thread.join()
        return w.grad

    assert same_as_stock(program)["hits"] == STEPS - 1
