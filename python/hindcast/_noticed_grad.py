"""Notices reads and writes of ``.grad`` while functions are traced."""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any, Optional

import torch

from ._trace_state import thread

# While functions are traced, torch.Tensor has a special `grad`, which notices assignments and checks for an existing gradient:
# `parameter.grad = None` changes nothing in a call that finds None, and would be lost in the next. So would the effect of `zero_grad()`.
_grad = torch._C.TensorBase.grad  # type: ignore[attr-defined]
_traces = 0
_tracing = threading.Lock()


class _NoticingGrad:
    def __get__(self, tensor: Optional[torch.Tensor], owner: Any = None) -> Any:
        if tensor is None:  # Dynamo, which a traced function may import, reads the attributes of torch.Tensor
            return _grad
        value = _grad.__get__(tensor)
        call = thread.call
        if call is not None and (value is None or id(tensor) in call.seen.state.names) and tensor.is_leaf and tensor.requires_grad:
            call.clears_gradients = True
        return value

    def __set__(self, tensor: torch.Tensor, value: Optional[torch.Tensor]) -> None:
        _grad.__set__(tensor, value)
        if thread.call is not None:
            thread.call.clears_gradients = True

    def __delete__(self, tensor: torch.Tensor) -> None:
        _grad.__delete__(tensor)


_noticing_grad = _NoticingGrad()


def _stop_noticing() -> None:
    if vars(torch.Tensor).get("grad") is _noticing_grad:
        del torch.Tensor.grad


@contextlib.contextmanager
def notices_gradients() -> Iterator[None]:
    global _traces
    with _tracing:
        _traces += 1
        torch.Tensor.grad = _noticing_grad  # type: ignore[assignment,attr-defined]
    try:
        yield
    finally:
        with _tracing:
            _traces = max(_traces - 1, 0)
            if _traces == 0:
                _stop_noticing()


def _start_anew_in_child() -> None:
    """The lock may be held, and traces counted, by threads that the child does not have."""
    global _traces, _tracing
    _traces, _tracing = 0, threading.Lock()
    _stop_noticing()


os.register_at_fork(after_in_child=_start_anew_in_child)
