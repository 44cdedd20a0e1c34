"""Reads objects whose changes no word of a walk can tell: arrays, sets, context variables, thread-local attributes."""

import contextlib
import threading
from contextvars import ContextVar
from typing import Any, Optional

from ._containers import set_of
from ._facts import is_by_value, key_of

_MOST_BYTES = 1 << 20  # of an array; larger ones are compared by identity
_NOTHING = object()


def contents_of(value: Any) -> Optional[bytes]:
    """The contents of an array of NumPy or the like."""
    try:
        with memoryview(value) as view:
            return view.tobytes() if view.nbytes <= _MOST_BYTES else None
    except (TypeError, ValueError, BufferError):
        return None


def ids_in(value: Any) -> frozenset[int]:
    """The ids of a set's elements. Neither hashes nor compares them."""
    return frozenset(map(id, list(set_of(type(value)).__iter__(value))))


def _key_or_id(value: Any) -> Any:
    return key_of(value) if is_by_value(value) else id(value)


def variable_of(value: ContextVar[Any]) -> Any:
    """The key or the id of its value in this thread's context."""
    return _key_or_id(value.get(_NOTHING))


def dict_in_this_thread(value: threading.local) -> dict[str, Any]:
    return threading.local.__getattribute__(value, "__dict__")  # type: ignore[no-any-return]


def attributes_here(value: threading.local) -> tuple[Any, ...]:
    """The attributes that it has in this thread."""
    return tuple((name, _key_or_id(each)) for name, each in dict_in_this_thread(value).items())


def referent_of(proxy: Any) -> Any:
    """The object behind a weakref.proxy(); None once it is gone."""
    with contextlib.suppress(ReferenceError, AttributeError):
        return proxy.__reduce_ex__.__self__
    return None
