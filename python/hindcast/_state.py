"""The states, of everything that a function sees, in which it was called.

They keep nothing alive: when an object dies, the states that name it are dropped.
"""

import contextlib
import ctypes
import functools
import time
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ._facts import DoesNotPay, Untraceable
from ._library import LIBRARY
from ._walk import Walk

_unchanged = ctypes.PyDLL(str(LIBRARY)).hindcast_unchanged
_unchanged.argtypes = [ctypes.c_void_p]
_unchanged.restype = ctypes.c_int
_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__


class State:
    """One state of everything that a function sees. For the caller: `kinds`, the kinds of calls known in it by number, and `eager`, why
    calls of other kinds run eagerly."""

    __slots__ = ("eager", "kept", "key", "kinds", "names", "seen")
    _MOST_EAGER = 256

    def __init__(self, key: Any, names: Iterable[int], kept: list[Any]) -> None:
        self.key = key
        self.names = names  # ids of the objects that it refers to weakly
        self.kept = kept
        self.seen: list[_Seen] = []
        self.kinds: dict[Any, int] = {}
        self.eager: dict[Any, str] = {}

    def leave(self, key: Any, why: str) -> None:
        if len(self.eager) >= self._MOST_EAGER:  # a number among the arguments differs from call to call
            self.eager.clear()
        self.eager[key] = why


# Without attributes in which a function could keep something.
_VALUES = frozenset((str, bytes, int, float, complex, bool, type(None), tuple, types.CodeType))


def _weakly(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


_MANY_VALUES, _MANY_BYTES = 1000, 1 << 15  # to compare these takes 2 us


class _Seen:
    """A state as found at one time. At another time, a number of equal value may be another object."""

    __slots__ = ("_generators", "_kept", "_readings", "_words", "address", "is_costly", "roots", "state")

    def __init__(self, walk: Walk, state: State, roots: tuple[int, ...]) -> None:
        self._words = walk.words
        self.address, _ = walk.words.buffer_info()
        self._kept = walk.kept
        self._readings = [(_weakly(value), read, found) for value, read, found in walk.readings]
        self._generators = [_weakly(value) for value in walk.generators]
        self.is_costly = walk.values > _MANY_VALUES or any(type(found) is bytes and len(found) > _MANY_BYTES for *_, found in walk.readings)
        self.state = state
        self.roots = roots

    @property
    def is_known_by_words(self) -> bool:
        """Whether the words are all that holds() checks."""
        return not self._readings

    def holds(self) -> bool:
        if not _unchanged(self.address):
            return False
        # The reference to an object that was freed gives None.
        return not self._readings or all((now := value()) is not None and read(now) == found for value, read, found in self._readings)

    def generators(self) -> list[Any]:
        return [value() for value in self._generators]

    def end(self) -> None:
        self._words[0] = 0


def _remove(items: list[Any], item: Any) -> None:
    with contextlib.suppress(ValueError):  # another thread was faster
        items.remove(item)


class _Reference(weakref.ref[Any]):
    __slots__ = ("address",)
    address: int


def _died(named_by: dict[int, list[State]], dead: deque[int], reference: Any) -> None:
    # This may run at any time: it only notes the death, so that another object with the same id is not mistaken for the dead one.
    for state in named_by.get(reference.address, ()):
        for seen in state.seen:
            seen.end()
    dead.append(reference.address)


class States:
    """The states in which a function was called. `on_gone` gets the kinds of a state that cannot recur."""

    _MOST = 256
    _MOST_SEEN = 16  # with the same roots
    _MOST_TRIED_NS = 1_000_000_000  # for searches and traces of new states, before these must pay

    def __init__(self, function: Any, on_gone: Callable[[Iterable[int]], None], dead: deque[int], known_elsewhere: Callable[[], int]) -> None:
        """The states of `function`, the first of all roots. `dead` gets dead objects whose states still exist. `known_elsewhere` counts
        calls in a known state that were recognised without of()."""
        self._own = (id(function),)
        self._on_gone = on_gone
        self._by_key: dict[Any, State] = {}
        self._seen: dict[tuple[int, ...], tuple[_Seen, ...]] = {}
        self._references: dict[int, _Reference] = {}
        self._named_by: dict[int, list[State]] = {}
        self._dead = dead
        self._died = functools.partial(_died, self._named_by, dead)
        self._known_elsewhere = known_elsewhere
        self._missed, self._new, self._known = 0, 0, 0
        self.began = 0  # when of() began to look for the state that it has found last, if that is a new one
        self.spent_ns = 0  # for calls in new states, counted by the caller

    def found_in_vain(self) -> None:
        """The function ran eagerly in the state that of() has found."""
        self._known -= 1

    def of(self, roots: tuple[Any, ...]) -> _Seen:
        """Raises Untraceable."""
        self.began = 0
        if self._dead:
            self._bury()
        ids = tuple(map(id, roots)) or self._own
        for seen in self._seen.get(ids, ()):
            if seen.holds():
                self._known += 1
                return seen
        self._missed += 1
        began = time.perf_counter_ns()
        if not self._pays():
            raise DoesNotPay("what it sees besides its arguments differs from call to call", of_function=True)
        try:
            walk = Walk(roots)
        except Untraceable:
            self._new += 1
            raise
        if self._dead:
            self._bury()
        new = self._new
        found = self._found(walk, ids)
        self.began = began if self._new != new else 0
        return found

    def _weakly_named(self, state: State) -> list[Any]:
        references = (self._references.get(address) for address in list(state.names))
        return [reference() for reference in references if reference is not None]

    def tensors_of(self, state: State) -> list[torch.Tensor]:
        """The tensors that it refers to weakly."""
        values = self._weakly_named(state)
        return [value for value in values if isinstance(value, torch.Tensor) and type(value).__torch_dispatch__ is _PLAIN_DISPATCH]

    def objects_of(self, state: State) -> list[Any]:
        """The objects other than tensors, classes, and values without attributes, which are most of what is kept."""
        kept = [value for value in state.kept if type(value) not in _VALUES]
        return [value for value in [*self._weakly_named(state), *kept] if not isinstance(value, (torch.Tensor, type))]

    def clear(self) -> None:
        for state in list(self._by_key.values()):
            self._end(state)

    def _pays(self) -> bool:
        """A new state needs a trace, which takes as long as its program saves in some 16 calls."""
        tried, calls_of_a_state = 32, 16
        known = self._known + self._known_elsewhere()
        is_tried = self._new < tried and self.spent_ns < self._MOST_TRIED_NS
        return is_tried or known > calls_of_a_state * self._new or self._missed & (self._missed - 1) == 0

    def _found(self, walk: Walk, roots: tuple[int, ...]) -> _Seen:
        key = tuple(walk.key)
        state = self._by_key.get(key)
        if state is None:
            self._new += 1
            while len(self._by_key) >= self._MOST:
                self._end(list(self._by_key.values())[0])
            state = self._by_key.setdefault(key, self._make(key, walk))
        else:
            self._known += 1
        seen = _Seen(walk, state, roots)
        state.seen.append(seen)
        earlier = self._seen.get(roots, ())
        self._seen[roots] = (seen, *earlier[: self._MOST_SEEN - 1])
        for old in earlier[self._MOST_SEEN - 1 :]:
            _remove(old.state.seen, old)
        return seen

    def _make(self, key: Any, walk: Walk) -> State:
        kept, names = list(walk.kept), []
        for address, value in [*walk.named.items(), *walk.behind.items()]:
            try:
                if address not in self._references:
                    reference = _Reference(value, self._died)
                    reference.address = address
                    self._references[address] = reference
                names.append(address)
            except TypeError:  # it does not support weak references
                kept.append(value)
        state = State(key, names, kept)
        for address in names:
            self._named_by.setdefault(address, []).append(state)
        return state

    def _bury(self) -> None:
        while self._dead:
            address = self._dead.popleft()
            self._references.pop(address, None)
            for state in list(self._named_by.get(address, ())):
                self._end(state)

    def _end(self, state: State) -> None:
        if self._by_key.pop(state.key, None) is None:
            return
        for seen in list(state.seen):
            seen.end()
            others = tuple(each for each in self._seen.get(seen.roots, ()) if each is not seen)
            if others:
                self._seen[seen.roots] = others
            else:
                self._seen.pop(seen.roots, None)
        for address in state.names:
            named = self._named_by.get(address, [])
            _remove(named, state)
            if not named:
                self._named_by.pop(address, None)
                self._references.pop(address, None)
        self._on_gone(state.kinds.values())
