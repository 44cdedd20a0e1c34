"""Objects that a function creates and returns, such as the cache of a language model: each call creates its own."""

import copy
import functools
import gc
import types
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_unflatten

from ._flatten import flatten, without_symbols

_MOST = 256  # objects in one result
_IS_OF_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE


class _Plain:
    pass


def _is_plain(value: Any) -> bool:
    """Whether its state is only its class and its attributes, and no weak reference or finalizer observes it."""
    kind = type(value)
    return (
        kind.__new__ is object.__new__
        and kind.__basicsize__ == _Plain.__basicsize__
        and kind.__weakrefoffset__ != 0  # a class with one slot has the same size
        and kind.__flags__ & _IS_OF_PYTHON != 0
        and not hasattr(kind, "__del__")
        and not issubclass(kind, (type, torch.nn.Module))
        and weakref.getweakrefcount(value) == 0
    )


class Copied:
    """A set or a deque created by the function: each call gets its own."""

    def __init__(self, value: Any) -> None:
        self.value = weakref.ref(value)  # still alive after the call: not created by the function
        self._made = copy.copy(value)

    def of_call(self) -> Any:
        return copy.copy(self._made)

    def __repr__(self) -> str:
        return f"a copy of {self._made!r}"


class MadeObject:
    """An object without its tensors, to be created again with others."""

    def __init__(self, value: Any, number: int) -> None:
        self._kind = type(value)
        self.number = number
        self.value = weakref.ref(value)
        self.leaves: list[Any] = []
        self.places: list[tuple[int, int]] = []  # leaf, and which tensor it is
        self.spec: TreeSpec

    def made_of(self, tensors: Sequence[torch.Tensor], found: Callable[[Any], Any], made: dict[int, Any]) -> Any:
        """`found`: a leaf's value in this call. `made`: by id, so that each is created once."""
        if id(self) in made:
            return made[id(self)]
        value = made[id(self)] = object.__new__(self._kind)
        leaves = [leaf.made_of(tensors, found, made) if type(leaf) is MadeObject else found(leaf) for leaf in self.leaves]
        for place, tensor in self.places:
            leaves[place] = tensors[tensor]
        object.__getattribute__(value, "__dict__").update(tree_unflatten(leaves, self.spec))
        return value

    def text(self, text_of: Callable[[Any], str]) -> str:
        """Does not include objects in it, which may refer back to this one."""
        leaves = [_text(leaf, text_of) for leaf in self.leaves]
        return f"object {self.number}: {self._kind.__module__}.{self._kind.__qualname__} {self.spec} {leaves} {self.places}"


def _text(leaf: Any, text_of: Callable[[Any], str]) -> str:
    if type(leaf) is MadeObject:
        return f"object {leaf.number}"
    return repr(leaf) if type(leaf) is Copied else text_of(leaf)


def is_new_in_each_call(leaf: Any) -> bool:
    """Whether a function that makes such an object must make it in each call: the caller may exhaust it or write to it, and a closure refers
    to what the call has computed."""
    kind = type(leaf)
    return (
        hasattr(kind, "__next__")
        or kind in (bytearray, functools.partial, types.FunctionType, types.MethodType)
        or isinstance(leaf, (dict, list, deque))
        or (isinstance(leaf, set) and kind is not set)
    )


class TakenApart:
    """The result of a function: `leaves` of `spec` without `tensors`, which are at `places` and in objects that the function created."""

    def __init__(self, result: Any, is_argument: Callable[[Any], bool]) -> None:
        self._is_argument = is_argument
        self._made: dict[int, MadeObject] = {}
        self._waiting: list[Any] = []
        self.tensors: list[torch.Tensor] = []
        self.leaves, self.spec = flatten(result)
        self._take_objects(self.leaves)
        while self._waiting:
            value = self._waiting.pop()
            made = self._made[id(value)]
            made.leaves, made.spec = flatten(object.__getattribute__(value, "__dict__"))
            self._take_objects(made.leaves)

    def _take_objects(self, leaves: list[Any]) -> None:
        for place, leaf in enumerate(leaves):
            leaves[place] = leaf = without_symbols(leaf)
            if type(leaf) in (set, deque) and not self._is_argument(leaf):
                leaves[place] = Copied(leaf)
            elif id(leaf) in self._made:
                leaves[place] = self._made[id(leaf)]
            elif len(self._made) < _MOST and _is_plain(leaf) and not self._is_argument(leaf):
                leaves[place] = self._made[id(leaf)] = MadeObject(leaf, len(self._made))
                self._waiting.append(leaf)

    def take_tensors(self, kept: Callable[[Any], Any]) -> None:
        """Called once the result is released. A plain object that is still alive was not created by the call, and is returned as the same
        object. `kept`: how any other leaf is kept."""
        if any(made.value() is not None for made in self._made.values()):
            gc.collect()
        self.places = [place for place, _ in self._take_tensors(self.leaves, kept, set())]

    def text(self, text_of: Callable[[Any], str]) -> str:
        """Equal for results that differ only in their tensors."""
        leaves = [_text(leaf, text_of) for leaf in self.leaves]
        return ascii((self.spec, leaves, [made.text(text_of) for made in self._made.values() if made.value() is None]))

    def _take_tensors(self, leaves: list[Any], kept: Callable[[Any], Any], seen: set[int]) -> list[tuple[int, int]]:
        places: list[tuple[int, int]] = []
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                places.append((place, len(self.tensors)))
                self.tensors.append(leaf)
                leaves[place] = None
            elif type(leaf) is not MadeObject:
                if type(leaf) is Copied:
                    lives = leaf.value()
                    if lives is None:
                        continue
                    leaf = lives
                leaves[place] = kept(leaf)
        for place, leaf in enumerate(leaves):
            if type(leaf) is not MadeObject:
                continue
            other = leaf.value()
            if other is not None:
                leaves[place] = other
            elif id(leaf) not in seen:
                seen.add(id(leaf))
                leaf.places = self._take_tensors(leaf.leaves, kept, seen)
        return places
