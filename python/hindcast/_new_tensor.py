"""``x.new_tensor(data)`` and ``x.new(data)`` if ``x`` is a stand-in.

PyTorch derives the result's device from the dispatch key of ``x``, and raises for a stand-in's, which it does not know. While a function is
traced, ``torch.tensor`` creates it instead, on the device of ``x``.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

_STAND_INS = torch._C._parse_dispatch_key("Fake")
_SIZES = (int, torch.SymInt, torch.Size)
_STORAGES = (torch.storage.UntypedStorage, torch.storage.TypedStorage)
_lock = threading.Lock()
_traces = 0
_replaced: dict[str, Any] = {}  # attributes of torch.Tensor


def _is_stand_in(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and torch._C._dispatch_keys(value).has(_STAND_INS)


def _new_tensor(of: Callable[..., Any]) -> Callable[..., Any]:
    def new_tensor(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not _is_stand_in(self) or torch.overrides.has_torch_function((self, *args)):
            return of(self, *args, **kwargs)
        options = {"dtype": self.dtype, "device": self.device}
        options.update((name, value) for name, value in kwargs.items() if value is not None)
        data = args or (options.pop("data"),)
        return torch.tensor(*data, **options)

    return new_tensor


def _new(of: Callable[..., Any]) -> Callable[..., Any]:
    def new(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not _is_stand_in(self) or kwargs or any(isinstance(value, _STORAGES) for value in args):
            return of(self, *args, **kwargs)
        if len(args) == 1 and isinstance(args[0], torch.Tensor) and args[0].dtype == self.dtype and args[0].device == self.device:
            return torch.ops.aten.alias.default(args[0])
        if len(args) != 1 or isinstance(args[0], _SIZES):
            return self.new_empty(*args or (0,))
        return torch.tensor(args[0], dtype=self.dtype, device=self.device)

    return new


_REPLACEMENTS = {"new_tensor": _new_tensor, "new": _new}


def _replace() -> None:
    for name, replacement in _REPLACEMENTS.items():
        _replaced[name] = vars(torch.Tensor).get(name)
        setattr(torch.Tensor, name, replacement(getattr(torch.Tensor, name)))


def _restore() -> None:
    for name, own in _replaced.items():
        if own is None:
            delattr(torch.Tensor, name)
        else:
            setattr(torch.Tensor, name, own)
    _replaced.clear()


def _start_anew_in_child() -> None:
    """The lock may be held, and traces counted, by threads that the child does not have."""
    global _traces, _lock
    _traces, _lock = 0, threading.Lock()
    _restore()


os.register_at_fork(after_in_child=_start_anew_in_child)


@contextlib.contextmanager
def known_of_stand_ins() -> Iterator[None]:
    """Affects all threads; tensors other than stand-ins behave as before."""
    global _traces
    with _lock:
        _traces += 1
        if _traces == 1:
            _replace()
    try:
        yield
    finally:
        with _lock:
            _traces = max(_traces - 1, 0)  # 0 in a child of a fork within the trace
            if _traces == 0:
                _restore()
