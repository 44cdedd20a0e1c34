"""Which containers of Python and its standard library the walk looks into, found without a call of the program's code: its classes and
metaclasses may override anything."""

import collections
import os
import weakref
from collections import OrderedDict, defaultdict, deque
from typing import Any, Optional

_SEQUENCES = (tuple, list, deque)
_CONTAINERS: tuple[Any, ...] = (*_SEQUENCES, dict)
# By class: the built-in class whose methods read it.
_BASES = {**{kind: kind for kind in _CONTAINERS}, OrderedDict: dict, defaultdict: dict}
BUILTIN_CONTAINERS = frozenset(_BASES)
_MOST_IN_A_CONTAINER = 10_000  # larger ones are compared by identity

# Of the standard library, not derived from Python's own containers.
_LIBRARY_CONTAINERS = frozenset(
    (
        collections.UserDict,
        collections.UserList,
        collections.ChainMap,
        weakref.WeakSet,
        weakref.WeakKeyDictionary,
        weakref.WeakValueDictionary,
        type(os.environ),
    )
)


def container_of(kind: Any) -> Any:
    """The built-in container that `kind` is or derives from; None if it overrides how elements are read."""
    known = _BASES.get(kind)
    if known is not None:
        return known
    for base in _CONTAINERS:
        if issubclass(kind, base):
            is_plain = kind is base or base is dict or (kind.__getitem__ is base.__getitem__ and kind.__len__ is base.__len__)
            return base if is_plain else None
    return None


def is_container(value: Any) -> bool:
    base = container_of(type(value))
    return base is not None and base.__len__(value) <= _MOST_IN_A_CONTAINER


def set_of(kind: type) -> Any:
    """The built-in class whose methods read a set of class `kind`."""
    return set if issubclass(kind, set) else frozenset


def _classes_of(kind: type) -> Any:
    return type.__dict__["__mro__"].__get__(kind)


def has_in_class(kind: type, name: str) -> bool:
    """Like hasattr(kind, name), but calls no metaclass."""
    return any(name in type.__dict__["__dict__"].__get__(base) for base in _classes_of(kind))


def is_filled_by_a_library(value: Any) -> bool:
    """A UserDict, a WeakSet or the like: the library's code reads its attributes, which the program's code does not mention."""
    return any(base in _LIBRARY_CONTAINERS for base in _classes_of(type(value)))


def dict_of(value: Any) -> Optional[dict[str, Any]]:
    """The object's own __dict__; None if it has none, or one that is no plain dict."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None
