"""The entry: Python's run_backward on top of hindcast's engine.

``torch.autograd`` calls ``Variable._execution_engine.run_backward``, and that method calls PyTorch's Python engine directly,
bypassing the stub of the C++ engine where hindcast is installed. So the object is replaced by one of a subclass, when hindcast is enabled
or compiles a function for the first time: on a thread without a guard it gives the caller PyTorch's method, which costs a fraction of a
microsecond.
"""

import functools
import os
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch.autograd.variable import Variable
from torch.nn import Parameter

from ._cpp_warnings import warn_of_kept, warn_of_kept_beside_an_error
from ._library import call, calls, ops

# Bypasses the checks of torch.ops' Python half: arguments are always passed in order.
_run_backward = ops.run_backward.default._op
_dispatch_modes, _are_transforms_active = torch._C._len_torch_dispatch_stack, torch._C._are_functorch_transforms_active
_tracing_state = torch._C._get_tracing_state
_clock = time.thread_time_ns
_PLAIN = frozenset((torch.Tensor, Parameter))
_has_names = getattr(torch.Tensor, "has_names", None)  # torch 2.13 and later have no named tensors
_ENABLED, _SUBCLASSES_DISABLED = 0, 1  # at::impl::TorchFunctionDisabledState


class _ProcessState:
    """Guards of the process, for threads without one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._make_lock)
        self._guards: dict[int, int] = {}  # and the number of their options
        self.options: Optional[int] = None  # of the newest guard
        self.resets = 0  # how often reset() was called

    def _make_lock(self) -> None:
        self._lock = threading.Lock()

    def enter(self, guard: int, options: int) -> None:
        with self._lock:
            self._guards[guard] = options
            self._publish()

    def leave(self, guard: int) -> None:
        with self._lock:
            del self._guards[guard]
            self._publish()

    def _publish(self) -> None:
        self.options = next(reversed(self._guards.values()), None)
        if calls is not None:
            calls.set_process_guard(*_in_c(self.options))


def _in_c(options: Optional[int]) -> tuple[int, bool]:
    return (-1, False) if options is None else (options, options in disabled_options)


class _ThreadState(threading.local):
    def __init__(self) -> None:
        self.guards: dict[int, int] = {}  # that this thread has entered and not left, and the number of their options
        self.disabled = 0  # calls under options that switch hindcast off, not counted yet
        # Coming calls under these options that go to PyTorch: hindcast has backed off, and does not check them. -1: the next is timed.
        self.unseen, self.unseen_with = 0, 0
        self.uncounted, self.are_not_faster = 0, False  # how many of these have come
        self.resets = 0  # the process's count when they were set

    def enter(self, guard: int, options: int) -> None:
        self.guards[guard] = options

    def leave(self, guard: int) -> None:
        del self.guards[guard]

    @property
    def own_options(self) -> Optional[int]:
        return next(reversed(self.guards.values()), None)

    @property
    def options(self) -> Optional[int]:
        """The options of the innermost guard, or of the process. None: this thread is not enabled."""
        return self.own_options if self.guards else process_state.options

    def leave_next(self, unseen: int, are_not_faster: bool) -> None:
        options = self.options
        if unseen and options is not None:
            self.unseen, self.unseen_with, self.are_not_faster = unseen, options, are_not_faster
            self.resets = process_state.resets

    def forget_time_before_reset(self) -> None:
        if self.resets != process_state.resets:
            self.unseen = self.uncounted = 0

    def take_uncounted(self) -> tuple[int, int, bool]:
        self.forget_time_before_reset()
        counts = self.disabled, self.uncounted, self.are_not_faster
        self.disabled = self.uncounted = 0
        return counts


class _ThreadStateInC(_ThreadState):
    """State that hindcast._C reads, and counts in."""

    def enter(self, guard: int, options: int) -> None:
        super().enter(guard, options)
        calls.set_guard(*_in_c(options))

    def leave(self, guard: int) -> None:
        super().leave(guard)
        calls.set_guard(*_in_c(self.own_options))

    def leave_next(self, unseen: int, are_not_faster: bool) -> None:
        calls.leave_next(unseen, are_not_faster)

    def take_uncounted(self) -> tuple[int, int, bool]:
        return calls.take_uncounted()  # type: ignore[no-any-return]


process_state = _ProcessState()
thread_state = _ThreadState() if calls is None else _ThreadStateInC()
disabled_options: set[int] = set()  # numbers of options with enabled=False


def count_unseen() -> None:
    """Counts the calls of this thread that hindcast did not check."""
    disabled, left, are_not_faster = thread_state.take_uncounted()
    if disabled:
        call("record_fallbacks", "Disabled", disabled)
    if left:
        call("record_fallbacks", "NotFaster" if are_not_faster else "DoesNotPay", left)


def has_unusual_dispatch() -> bool:
    """This thread is in a dispatch mode, a transform of torch.func, or a trace."""
    return bool(_dispatch_modes() or _are_transforms_active() or _tracing_state() is not None)


def mode_reason() -> Optional[str]:
    """Why no backward of this thread can be taken over now.

    A mode of torch functions, as ``torch.set_default_device`` leaves one, is no reason: it only sees Python's calls, and PyTorch's engine
    makes none of them.
    """
    if _dispatch_modes() or _are_transforms_active() or _tracing_state() is not None:  # has_unusual_dispatch(), without the call
        return "DispatchState"
    compiled_autograd = sys.modules.get("torch._dynamo.compiled_autograd")
    # The module has no flags yet while another thread imports it.
    if compiled_autograd is not None and (
        getattr(compiled_autograd, "compiled_autograd_enabled", False)
        or getattr(compiled_autograd, "in_compiled_autograd_region", False)
    ):
        return "CompiledAutograd"
    return None


def _argument_reason(tensors: Sequence[Any], gradients: Sequence[Any], inputs: Sequence[Any]) -> Optional[str]:
    """Why these arguments are left to PyTorch's engine: an operator takes only plain tensors."""
    for value in (*tensors, *inputs, *gradients):
        if value is None:
            continue
        if type(value) not in _PLAIN:
            return "TensorSubclass" if isinstance(value, torch.Tensor) else "GradientEdge"
        if _has_names is not None and _has_names(value):
            return "NamedTensor"
    return None


def _take_over(
    tensors: Any,
    grad_tensors: Any,
    keep_graph: bool,
    create_graph: bool,
    inputs: Any,
    allow_unreachable: bool,
    accumulate_grad: bool,
    started: int,
    torch_functions: Optional[int],
) -> tuple[Optional[str], Any, bool]:
    """Why the call is left to PyTorch, or the gradients from hindcast's engine; whether C++ warned."""
    reason = mode_reason() or _argument_reason(tensors, grad_tensors, inputs)
    if reason is not None:
        return reason, None, False
    found, warned, unseen, is_not_faster = _run_backward(
        tensors, grad_tensors, keep_graph, create_graph, inputs, allow_unreachable, accumulate_grad, torch_functions, started
    )
    thread_state.leave_next(unseen, is_not_faster)
    return "FunctorchTensor" if found is None else None, found, warned


_warned_of_compiled_autograd = False


def _count(reason: str) -> None:
    call("record_fallbacks", reason, 1)
    global _warned_of_compiled_autograd
    if reason == "CompiledAutograd" and not _warned_of_compiled_autograd:
        _warned_of_compiled_autograd = True
        warnings.warn(
            "PyTorch's compiled autograd is on in this thread; hindcast leaves backward() to it.", UserWarning, stacklevel=6
        )


class _Engine(torch._C._ImperativeEngine):
    """PyTorch's engine as Python sees it, with hindcast in front of it on threads that enabled it."""

    def __init__(self) -> None:
        self._pytorchs = torch._C._ImperativeEngine.run_backward.__get__(self)

    def _run_backward(
        self,
        tensors: Any,
        grad_tensors: Any,
        keep_graph: bool,
        create_graph: bool,
        inputs: Any = (),
        allow_unreachable: bool = False,
        accumulate_grad: bool = False,
        started: int = 0,
    ) -> Any:
        count_unseen()
        arguments = (tensors, grad_tensors, bool(keep_graph), bool(create_graph), inputs, allow_unreachable, accumulate_grad, started)
        try:
            if torch._C._is_torch_function_mode_enabled():
                # The modes would see queries of the arguments, and the operator. Hooks and nodes run under them.
                state = _ENABLED if torch._C._is_torch_function_enabled() else _SUBCLASSES_DISABLED
                with torch._C.DisableTorchFunction():
                    reason, found, warned = _take_over(*arguments, state)
            else:
                reason, found, warned = _take_over(*arguments, None)
        except BaseException:
            thread_state.leave_next(call("take_pause"), False)
            warn_of_kept_beside_an_error()
            raise
        if warned:
            warn_of_kept()
        if reason is None:
            return None if accumulate_grad else tuple(found)
        _count(reason)
        return self._pytorchs(tensors, grad_tensors, keep_graph, create_graph, inputs, allow_unreachable, accumulate_grad)


class _EngineInPython(_Engine):
    @property
    def run_backward(self) -> Any:
        """Returns what to call in the caller's own frame, which PyTorch's warnings name."""
        state = thread_state
        options = state.options
        if options is None:
            return self._pytorchs
        if options in disabled_options:
            state.disabled += 1
            return self._pytorchs
        if state.unseen:
            state.forget_time_before_reset()
        if state.unseen and state.unseen_with == options:
            if state.unseen < 0:
                state.unseen = 0
                return functools.partial(self._run_backward, started=_clock())
            state.unseen -= 1
            state.uncounted += 1
            return self._pytorchs
        return self._run_backward


class _EngineInC(_Engine):
    def __init__(self) -> None:
        super().__init__()
        calls.set_backward(self._pytorchs, self._run_backward, *map(functools.partial, _WARN, (3, 3)))
        self.run_backward = calls.run_backward


_WARN = (warn_of_kept, warn_of_kept_beside_an_error)  # for C++ callers
_pytorchs_current_node = torch._C._current_autograd_node


def _current_autograd_node() -> Any:
    """The node whose hooks run, or which runs itself. PyTorch's own function names the node that carries hindcast's backward."""
    holder = call("current_node")
    if holder is None:
        return _pytorchs_current_node()
    with torch._C.DisableTorchFunction():
        return holder.grad_fn


def install() -> None:
    """Puts hindcast's engine in front of PyTorch's, permanently."""
    if not isinstance(Variable._execution_engine, _Engine):
        Variable._execution_engine = _EngineInPython() if calls is None else _EngineInC()
        torch._C._current_autograd_node = _current_autograd_node
