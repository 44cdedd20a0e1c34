"""What a function sees besides its arguments: modules with their hooks, classes and attributes; closures, defaults and globals.

A *walk* goes through it from the function on, as far as the code says what is read. It gives a key, which is equal for equal states,
and words for C++ (python/csrc/unchanged.h), which tell in some nanoseconds for each object that nothing has changed since.

Numbers, strings and the like count by value, containers by what is in them, and all else by identity. Nothing is kept alive for that:
with an object that is gone goes the state that names it. Modules are looked at as a whole. Of other objects, of classes and of Python's
modules those names count that the code mentions.
"""

import contextlib
import ctypes
import dis
import functools
import gc
import sys
import types
import weakref
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.modules.module as all_modules
from torch.nn.parameter import is_lazy

from ._facts import Untraceable, is_by_value, key_of
from ._library import LIBRARY

_unchanged = ctypes.PyDLL(str(LIBRARY)).hindcast_unchanged
_unchanged.argtypes = [ctypes.c_void_p]
_unchanged.restype = ctypes.c_int

_TYPE, _OWN_DICT, _DICT, _ITEM, _SEQUENCE, _SET, _CELL, _FUNCTION, _ATTRIBUTE = range(9)  # unchanged.h: Watch
_NONE = 0
_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__

_EQUAL_WILL_DO = frozenset((int, float, str, bytes, torch.device, torch.Size))
_SEQUENCES = (tuple, list, deque)
_CONTAINERS: tuple[Any, ...] = (*_SEQUENCES, dict)
_BUILTIN_CONTAINERS = frozenset((*_SEQUENCES, dict, OrderedDict, defaultdict))
_MOST_IN_A_CONTAINER = 10_000  # one with more counts by identity
_MOST_BYTES = 1 << 20  # of an array; one with more counts by identity
_MOST_ENTRIES = 1_000_000  # more would take seconds to look at

# Their code is taken to stay as it is, and to read no globals that a program sets.
_LIBRARIES = frozenset((*sys.stdlib_module_names, "torch", "numpy", "hindcast"))

# Attributes that are read without being mentioned.
_UNMENTIONED = frozenset(("forward", "__call__", "__getattr__", "__getattribute__", "backward", "setup_context"))
_OF_LIBRARY_MODULES = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "__getattr__")

# What a module has for saving and loading.
_NOT_FOR_CALLS = frozenset(
    (
        "_non_persistent_buffers_set",
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
    )
)
_GLOBAL_HOOKS = [name for name in vars(all_modules) if name.startswith("_global_") and "registration" not in name]


def _is_container(value: Any) -> bool:
    kind = type(value)
    for base in _CONTAINERS:
        if issubclass(kind, base):
            plain = kind is base or isinstance(value, dict) or (kind.__getitem__ is base.__getitem__ and kind.__len__ is base.__len__)
            return plain and len(value) <= _MOST_IN_A_CONTAINER
    return False


def _contents(value: Any) -> Optional[bytes]:
    """Of an array of NumPy or the like."""
    try:
        with memoryview(value) as view:
            return view.tobytes() if view.nbytes <= _MOST_BYTES else None
    except (TypeError, ValueError, BufferError):
        return None


def _is_library(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


class _Mentioned(NamedTuple):
    globals: tuple[str, ...]
    modules: tuple[str, ...]  # that it imports
    attributes: frozenset[str]
    written: frozenset[str]  # attributes, which may come into being


@functools.lru_cache(maxsize=4096)
def _mentioned(code: types.CodeType) -> _Mentioned:
    """What a function reads by name, inner functions included."""
    read: dict[str, None] = {}
    modules: dict[str, None] = {}
    attributes, written = set(), set()
    waiting = [code]
    while waiting:
        each = waiting.pop()
        for instruction in dis.get_instructions(each):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                read[instruction.argval] = None
            elif instruction.opname == "IMPORT_NAME":
                modules[instruction.argval] = None
            elif isinstance(instruction.argval, str):  # as in getattr(x, "name"), too
                attributes.add(instruction.argval)
                if instruction.opname == "STORE_ATTR":
                    written.add(instruction.argval)
        waiting.extend(constant for constant in each.co_consts if isinstance(constant, types.CodeType))
    return _Mentioned(tuple(read), tuple(modules), frozenset(attributes), frozenset(written))


def _dict_of_class(kind: type) -> dict[str, Any]:
    (found,) = (each for each in gc.get_referents(kind.__dict__) if isinstance(each, dict))  # behind the mapping proxy
    return found


def _dict_of(value: Any) -> Optional[dict[str, Any]]:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


class _Watch:
    """An object of which only some names count: `look` looks at more of them."""

    def __init__(self, look: Callable[[Iterable[str]], None]) -> None:
        self.look = look
        self.done: frozenset[str] = frozenset()


class _Walk:
    def __init__(self, roots: Sequence[Any]) -> None:
        self.key: list[Any] = []
        self.words = array("q", (0,))
        self.named: dict[int, Any] = {}  # by id: objects that count by identity
        self.kept: list[Any] = []  # values: the words point to them
        self.contents: list[tuple[Any, bytes]] = []  # of arrays
        self._alive: list[Any] = []  # until the end of the walk
        self._met: dict[int, int] = {}  # by id, what the key has: the id, but for containers, which count by what is in them
        self._waiting: deque[Any] = deque()
        self._partly: list[_Watch] = []
        self._attributes = _UNMENTIONED
        self._written: frozenset[str] = frozenset()
        self._has_modules = False
        for root in roots:
            self._entry(root)
        self._go_on()
        self.words[0] = len(self.words)

    def _go_on(self) -> None:
        while True:
            while self._waiting:
                self._look_into(self._waiting.popleft())
            behind = [watch for watch in self._partly if watch.done is not self._attributes]
            if not behind:
                return
            for watch in behind:
                fresh = self._attributes - watch.done
                watch.done = self._attributes
                watch.look(sorted(fresh))

    def _entry(self, value: Any) -> int:
        """The word for what stands at a place."""
        address = id(value)
        if is_by_value(value):
            kind = type(value)
            self.key.append(value if kind is str else key_of(value))
            self.kept.append(value)
            return address | 1 if kind in _EQUAL_WILL_DO else address
        known = self._met.get(address)
        if known is None:
            if len(self.words) > _MOST_ENTRIES:
                raise Untraceable("it sees too many objects")
            known = self._met[address] = len(self._met) if _is_container(value) else address
            if known is address:
                self.named[address] = value
            self._waiting.append(value)
            self._alive.append(value)
        self.key.append(known)
        return address

    def _look_into(self, value: Any) -> None:
        kind = type(value)
        if kind in weakref.ProxyTypes:
            return
        if isinstance(value, torch.Tensor):  # C++ compares it
            if is_lazy(value):
                raise Untraceable("a lazy module has not got its parameters yet")
            return
        if isinstance(value, torch.nn.Module):
            self._module(value)
        elif kind is types.FunctionType:
            self._function(value)
        elif kind is types.MethodType:
            self._entries((value.__self__, value.__func__))
        elif kind is functools.partial:
            self._entries((value.func, value.args, value.keywords))
        elif kind in (staticmethod, classmethod):
            self._entry(value.__func__)
        elif kind is property:
            self._entry(value.fget)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.ModuleType):
            self._python_module(value)
        elif hasattr(kind, "_aot_sees"):
            self._entries(value._aot_sees())
        elif kind in (set, frozenset):
            self._set(value)
        elif id(value) not in self.named:
            self._container(value)
        else:
            self._object(value)

    def _entries(self, values: Iterable[Any]) -> None:
        for value in values:
            self._entry(value)

    # ---- containers

    def _container(self, value: Any) -> None:
        kind = type(value)
        if kind not in _BUILTIN_CONTAINERS:
            self.named[id(kind)] = kind
        self.key.append(id(kind))
        if isinstance(value, dict):
            self._dict(value)
            if isinstance(value, OrderedDict):  # has an order of its own
                places = {id(key): place for place, key in enumerate(dict.keys(value))}
                self.key.append(tuple(places[id(key)] for key in value))
        else:
            self.key.append(len(value))
            self.words.extend((_SEQUENCE, id(value), id(kind), len(value), *map(self._entry, value)))

    def _dict(self, value: dict[Any, Any], by_place: frozenset[str] = frozenset()) -> None:
        """`by_place`: names of what is not looked into."""
        entries = []
        for name, each in list(dict.items(value)):
            entries += self._entry(name), id(each) if name in by_place else self._entry(each)
        self.key.append(len(entries))
        self.words.extend((_DICT, id(value), id(type(value)), len(entries) // 2, *entries))

    def _set(self, value: Any) -> None:
        values = sorted(filter(is_by_value, value), key=lambda each: (type(each).__name__, hash(each)))
        self.key.extend((len(value), len(values)))
        self.words.extend((_SET, id(value), len(value), len(values), *[self._entry(each) & ~1 for each in values]))

    def _item(self, holder: dict[str, Any], name: str) -> None:
        self.key.append(name)
        self.kept.append(name)
        if name in holder:
            entry = self._entry(holder[name])
        else:
            entry = _NONE
            self.key.append(None)
        self.words.extend((_ITEM, id(holder), id(name), entry))

    # ---- modules

    def _module(self, module: torch.nn.Module) -> None:
        if not self._has_modules:
            self._has_modules = True
            for name in _GLOBAL_HOOKS:
                self._item(vars(all_modules), name)
        self.words.extend((_TYPE, id(module), id(type(module)), _OWN_DICT, id(module), id(vars(module))))
        self._dict(vars(module), _NOT_FOR_CALLS)
        self._entry(type(module))

    # ---- functions

    def _function(self, function: types.FunctionType) -> None:
        code = function.__code__
        self.named[id(code)] = code
        self.key.append(id(code))
        words = [_FUNCTION, id(function), id(code)]
        for defaults in (function.__defaults__, function.__kwdefaults__):
            if defaults is None:
                self.key.append(None)
            words.append(_NONE if defaults is None else self._entry(defaults))
        self.words.extend(words)
        for cell in function.__closure__ or ():
            try:
                entry = self._entry(cell.cell_contents)
            except ValueError:  # empty
                entry = _NONE
                self.key.append(None)
            self.words.extend((_CELL, id(cell), entry))
        if _is_library(function.__globals__.get("__name__")):
            return
        mentioned = _mentioned(code)
        self._attributes |= mentioned.attributes
        self._written |= mentioned.written
        for name in mentioned.globals:
            self._item(function.__globals__, name)
        for name in mentioned.modules:
            package = function.__globals__.get("__package__")
            self._entries(sys.modules[full] for full in (name, f"{package}.{name}") if full in sys.modules)
        if function.__dict__:
            self._names_of(function, function.__dict__)

    # ---- what counts by the names that the code mentions

    def _names_of(self, value: Any, holder: dict[str, Any]) -> None:
        """Of an object's own __dict__. What is not in it is its class's, until it is."""
        self.words.extend((_OWN_DICT, id(value), id(holder)))
        classes = [vars(kind) for kind in type(value).__mro__]

        def look(names: Iterable[str]) -> None:
            for name in names:
                if name in holder or name in self._written or any(name in each for each in classes):
                    self._item(holder, name)

        self._partly.append(_Watch(look))

    def _python_module(self, module: types.ModuleType) -> None:
        holder = vars(module)
        if _is_library(holder.get("__name__")):
            return

        def look(names: Iterable[str]) -> None:
            for name in names:
                if name in holder or name in self._written:
                    self._item(holder, name)

        self._partly.append(_Watch(look))

    def _class(self, kind: type) -> None:
        own = []
        for base in kind.__mro__:
            if not _is_library(base.__module__):
                own.append(_dict_of_class(base))
            elif issubclass(base, torch.nn.Module):
                holder = _dict_of_class(base)
                for name in _OF_LIBRARY_MODULES:
                    if name in holder:
                        self._item(holder, name)

        def look(names: Iterable[str]) -> None:
            for name in names:
                if name in _UNMENTIONED or any(name in holder for holder in own):
                    for holder in own:  # super() reads them behind the first one that has it
                        self._item(holder, name)

        if own:
            self._partly.append(_Watch(look))

    def _object(self, value: Any) -> None:
        kind = type(value)
        self.words.extend((_TYPE, id(value), id(kind)))
        self._entry(kind)
        contents = _contents(value)
        if contents is not None:
            self.key.append(contents)
            self.contents.append((value, contents))
        holder = _dict_of(value)
        if holder is not None:
            self._names_of(value, holder)
        slots = {name: each for base in kind.__mro__ for name, each in vars(base).items() if isinstance(each, types.MemberDescriptorType)}
        if not slots or _is_library(kind.__module__):
            return

        def look(names: Iterable[str]) -> None:
            for name in names:
                if name not in slots:
                    continue
                self.key.append(name)
                self.kept.append(name)
                try:
                    entry = self._entry(slots[name].__get__(value))
                except AttributeError:
                    entry = _NONE
                    self.key.append(None)
                self.words.extend((_ATTRIBUTE, id(value), id(name), entry))

        self._partly.append(_Watch(look))


class State:
    """One state of all that a function sees. `kinds`: what is known of calls in it, for who asks."""

    __slots__ = ("_kept", "key", "kinds", "names", "seen")

    def __init__(self, key: Any, names: Iterable[int], kept: list[Any]) -> None:
        self.key = key
        self.names = names  # by id, what it refers to weakly
        self._kept = kept
        self.seen: list[_Seen] = []
        self.kinds: dict[Any, int] = {}


def _weakly(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


class _Seen:
    """A state as it was found at one time. At another time, a number of the same value may be another object."""

    __slots__ = ("_contents", "_kept", "_words", "address", "roots", "state")

    def __init__(self, walk: _Walk, state: State, roots: tuple[int, ...]) -> None:
        self._words = walk.words
        self.address, _ = walk.words.buffer_info()
        self._kept = walk.kept
        self._contents = [(_weakly(value), contents) for value, contents in walk.contents]
        self.state = state
        self.roots = roots

    def holds(self) -> bool:
        if not _unchanged(self.address):
            return False
        return not self._contents or all(_contents(value()) == contents for value, contents in self._contents)

    def end(self) -> None:
        self._words[0] = 0


def _remove(items: list[Any], item: Any) -> None:
    with contextlib.suppress(ValueError):  # another thread was faster
        items.remove(item)


class _Reference(weakref.ref[Any]):
    __slots__ = ("address",)
    address: int


def _died(named_by: dict[int, list[State]], dead: deque[int], reference: Any) -> None:
    # This may come at any time: it only takes down what happened, so that nobody is misled by another object of that id.
    for state in named_by.get(reference.address, ()):
        for seen in state.seen:
            seen.end()
    dead.append(reference.address)


class States:
    """The states in which a function was called. `on_gone` gets the kinds of one that cannot come again."""

    _MOST = 256
    _MOST_SEEN = 8  # with the same roots

    def __init__(self, function: Any, on_gone: Callable[[Iterable[int]], None]) -> None:
        """Of `function`, the first of all roots."""
        self._own = (id(function),)
        self._on_gone = on_gone
        self._by_key: dict[Any, State] = {}
        self._seen: dict[tuple[int, ...], tuple[_Seen, ...]] = {}
        self._references: dict[int, _Reference] = {}
        self._named_by: dict[int, list[State]] = {}
        self._dead: deque[int] = deque()
        self._died = functools.partial(_died, self._named_by, self._dead)
        self._missed, self._new, self._known = 0, 0, 0

    def of(self, roots: tuple[Any, ...]) -> _Seen:
        """Raises Untraceable."""
        if self._dead:
            self._bury()
        ids = tuple(map(id, roots)) if len(roots) > 1 else self._own
        for seen in self._seen.get(ids, ()):
            if seen.holds():
                self._known += 1
                return seen
        self._missed += 1
        if not self._pays():
            raise Untraceable("what it sees besides its arguments is another in each call")
        walk = _Walk(roots)
        if self._dead:
            self._bury()
        return self._found(walk, ids)

    def tensors_of(self, state: State) -> list[torch.Tensor]:
        """Those that it refers to weakly."""
        references = (self._references.get(address) for address in state.names)
        values = (reference() for reference in references if reference is not None)
        return [value for value in values if isinstance(value, torch.Tensor) and type(value).__torch_dispatch__ is _PLAIN_DISPATCH]

    def clear(self) -> None:
        for state in list(self._by_key.values()):
            self._end(state)

    def _pays(self) -> bool:
        """Where nearly each call's state is new, ever fewer are looked at."""
        tried = 32
        return self._new < tried or self._known > self._new or self._missed & (self._missed - 1) == 0

    def _found(self, walk: _Walk, roots: tuple[int, ...]) -> _Seen:
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

    def _make(self, key: Any, walk: _Walk) -> State:
        kept, names = list(walk.kept), []
        for address, value in walk.named.items():
            try:
                if address not in self._references:
                    reference = _Reference(value, self._died)
                    reference.address = address
                    self._references[address] = reference
                names.append(address)
            except TypeError:  # there are no weak references to it
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
