"""What a function sees besides its arguments, as far as the code says what is read: modules with their hooks, classes and attributes;
closures, defaults and globals.

A walk gives a key, which is equal for equal states, and words for C++ (python/csrc/unchanged.h), which tell in some nanoseconds for each
object that nothing has changed since.

Numbers, strings and the like count by value, containers by what is in them, and all else by identity. Modules are looked at as a whole. Of
other objects, of classes and of Python's modules those names count that the code mentions.
"""

import ctypes
import functools
import gc
import itertools
import operator
import os
import sys
import threading
import types
import weakref
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.modules.module as all_modules
from torch.nn.parameter import is_lazy

from ._containers import BUILTIN_CONTAINERS, container_of, dict_of, has_in_class, is_container, is_filled_by_a_library, set_of
from ._facts import PLAIN, Untraceable, is_by_value, key_of
from ._library import LIBRARY, calls
from ._mentioned_names import ANY_NAME, mentioned
from ._random_state import is_generator
from ._readings import attributes_here, contents_of, dict_in_this_thread, ids_in, referent_of, variable_of

_TYPE, _OWN_DICT, _DICT, _ITEM, _SEQUENCE, _SET, _CELL, _FUNCTION, _ATTRIBUTE, _SIZE, _TENSOR = range(11)  # Watch in unchanged.h
_facts_of_tensor = ctypes.PyDLL(str(LIBRARY)).hindcast_facts_of_tensor  # knows the layout of tensors where hindcast._C was loaded
_facts_of_tensor.argtypes, _facts_of_tensor.restype = [ctypes.c_void_p], ctypes.c_int64
_NONE = 0
_NOTHING = object()

_EQUAL_WILL_DO = frozenset((int, float, str, bytes, torch.device, torch.Size))
_MOST_ENTRIES = 400_000  # more take half a second to find, and each call compares them

# Assumed to have constant code, and to read no globals that a program sets.
_LIBRARIES = frozenset((*sys.stdlib_module_names, "torch", "numpy", "hindcast"))

# Attributes that are read without being mentioned in code.
_UNMENTIONED = frozenset(("forward", "__call__", "__getattr__", "__getattribute__", "backward", "setup_context"))
_VIEWS_OF_DICTS = frozenset((types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items())))
_ENVIRONMENT = frozenset(("environ", "getenv"))
_LEAST_OF_TABLE = 100
# What reads attributes by names that no code mentions.
_READERS = frozenset(map(id, (getattr, vars, eval, exec, repr, str, format, object.__getattribute__)))
_KINDS_OF_READERS = (operator.attrgetter, operator.methodcaller, functools.singledispatchmethod)
_ATTRIBUTES_OF_MODULES = frozenset(vars(torch.nn.Module()))
_CONSTRUCTORS = ("__init__", "__new__", "__post_init__")
_OF_LIBRARY_MODULES = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "__getattr__")

# Attributes of a module for saving and loading.
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


def _is_table(value: Any) -> bool:
    """Such as a vocabulary. A module's is looked into only if code mentions its name."""
    if type(value) not in BUILTIN_CONTAINERS or len(value) < _LEAST_OF_TABLE:
        return False
    return all(map(is_by_value, list(value))) and (type(value) is not dict or all(map(is_by_value, list(value.values()))))


def _is_operator(name: str, value: Any) -> bool:
    return name.startswith("__") and name.endswith("__") and type(value) is types.FunctionType and name not in _CONSTRUCTORS


def _is_library(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def _dict_of_class(kind: type) -> dict[str, Any]:
    (found,) = (each for each in gc.get_referents(kind.__dict__) if isinstance(each, dict))  # behind the mapping proxy
    return found


class _Watch:
    """An object with only some relevant names: `look` adds those of them that are among the given ones."""

    def __init__(self, look: Callable[[frozenset[str]], None]) -> None:
        self.look = look
        self.done: frozenset[str] = frozenset()
        self.done_written: frozenset[str] = frozenset()


def _shared(names: frozenset[str], holder: dict[str, Any]) -> set[str]:
    return {name for name in names if name in holder} if len(names) < len(holder) else set(names.intersection(holder))


class Walk:
    def __init__(self, roots: Sequence[Any]) -> None:
        self.key: list[Any] = []
        self.words = array("q", (0,))
        self.named: dict[int, Any] = {}  # by id: objects compared by identity
        self.behind: dict[int, Any] = {}  # by id: what is reached only by a reading or a reference, so that no word notices its end
        self.kept: list[Any] = []  # values that the words point to
        # Objects that no word can describe: what to read of them, and what it was.
        self.readings: list[tuple[Any, Callable[[Any], Any], Any]] = []
        self.values = 0  # that containers hold
        self.generators: list[Any] = []  # of random numbers
        self._alive: list[Any] = []  # until the end of the walk
        self._met: dict[int, int] = {}  # by id, its entry in the key: the id, except for containers, which are compared by contents
        self._waiting: deque[Any] = deque()
        self._partly: list[_Watch] = []
        self._attributes = _UNMENTIONED
        self._written: frozenset[str] = frozenset()
        self._has_modules = False
        self._members: dict[type, frozenset[str]] = {}  # the names in a class and its bases
        for root in roots:
            self._entry(root)
        self._go_on()
        self._partly.clear()  # they refer to the walk: a cycle would keep the objects alive until a garbage collection
        self.words[0] = len(self.words)

    def _go_on(self) -> None:
        while True:
            while self._waiting:
                self._look_into(self._waiting.popleft())
            attributes, written = self._attributes, self._written
            behind = [watch for watch in self._partly if watch.done is not attributes or watch.done_written is not written]
            if not behind:
                return
            fresh: dict[tuple[int, int], frozenset[str]] = {}  # most watches were last looked at together
            for watch in behind:
                since = id(watch.done), id(watch.done_written)
                if since not in fresh:
                    fresh[since] = (attributes - watch.done) | (written - watch.done_written)
                names = fresh[since]
                watch.done, watch.done_written = attributes, written
                watch.look(names)

    def _entry(self, value: Any) -> int:
        """The word for the object at a place."""
        address = id(value)
        kind = type(value)
        if kind is str:  # most are names
            self.key.append(value)
            self.kept.append(value)
            return address | 1
        if is_by_value(value):
            self.key.append(key_of(value))
            self.kept.append(value)
            return address | 1 if kind in _EQUAL_WILL_DO else address
        known = self._met.get(address)
        if known is None:
            if len(self.words) > _MOST_ENTRIES:
                raise Untraceable(
                    "it sees too many objects through the names that its code mentions. torch.compile(model, backend='hindcast') looks only "
                    "at code that runs",
                    of_function=True,
                )
            by_contents = is_container(value)
            known = self._met[address] = len(self._met) if by_contents else address
            if not by_contents:
                self.named[address] = value
            self._waiting.append(value)
            self._alive.append(value)
        self.key.append(known)
        return address

    def _look_into(self, value: Any) -> None:
        kind = type(value)
        if id(value) in _READERS or kind in _KINDS_OF_READERS:
            self._attributes |= {ANY_NAME}
        if kind in weakref.ProxyTypes:
            self._entry_behind(referent_of(value))
            return
        if issubclass(kind, weakref.ref):
            self._entry_behind(weakref.ref.__call__(value))
            return
        if issubclass(kind, torch.Tensor):  # C++ compares it
            if is_lazy(value):
                raise Untraceable("a lazy module has not got its parameters yet")
            if kind in PLAIN and calls is not None:  # what can be read of it without an operator; sizes may change from call to call
                facts = _facts_of_tensor(id(value))
                self.key.append(facts)
                self.words.extend((_TENSOR, id(value), facts))
            return
        if issubclass(kind, torch.nn.Module):
            self._module(value)
        elif kind is types.FunctionType:
            self._function(value)
        elif kind is types.MethodType:
            self._entries((value.__self__, value.__func__))
        elif kind is types.BuiltinMethodType:
            if type(value.__self__) is not types.ModuleType:  # as in `add = results.append`
                self._entry(value.__self__)
        elif kind is functools.partial:
            self._entries((value.func, value.args, value.keywords))
        elif kind in (staticmethod, classmethod):
            self._entry(value.__func__)
        elif kind is property:
            self._entries((value.fget, value.fset, value.fdel))
        elif kind is functools._lru_cache_wrapper:
            self._entry(value.__wrapped__)
        elif issubclass(kind, type):
            if kind is not type and not _is_library(kind.__module__):
                self._class_of(value)
            self._class(value)
            self._constructors(value)
        elif issubclass(kind, types.ModuleType):
            if kind is not types.ModuleType and not _is_library(kind.__module__):
                self._class_of(value)
            self._python_module(value)
        elif kind in _VIEWS_OF_DICTS:
            self._entries(gc.get_referents(value))
        elif kind is ContextVar:
            self._reading(value, variable_of)
            self._entry_behind(value.get(None))
        elif issubclass(kind, threading.local):
            self._class_of(value)
            self._reading(value, attributes_here)
            for each in list(dict_in_this_thread(value).values()):
                self._entry_behind(each)
        elif has_in_class(kind, "_aot_sees"):
            self._entries(value._aot_sees())
        elif issubclass(kind, (set, frozenset)):
            if kind not in (set, frozenset):
                self.words.extend((_TYPE, id(value), id(kind)))
                self._class_of(value)
                self._attributes_of(value)
            self._set(value)
        elif id(value) not in self.named:
            self._container(value)
        else:
            self._object(value)

    def _entry_behind(self, value: Any) -> None:
        if is_container(value):
            self.behind[id(value)] = value
        self._entry(value)

    def _entries(self, values: Iterable[Any]) -> None:
        for value in values:
            self._entry(value)

    def _reading(self, value: Any, read: Callable[[Any], Any]) -> None:
        found = read(value)
        self.key.append(found)
        self.readings.append((value, read, found))

    # ---- containers

    def _container(self, value: Any) -> None:
        kind = type(value)
        if kind in BUILTIN_CONTAINERS:
            self.key.append(id(kind))
        else:
            self._class_of(value)
            self._attributes_of(value)
        base = container_of(kind)
        self.values += base.__len__(value)
        if base is dict:
            self._dict(value)
            if issubclass(kind, OrderedDict):  # its order is separate from the dict's
                places = {id(key): place for place, key in enumerate(list(dict.keys(value)))}
                self.key.append(tuple(places.get(id(key)) for key in list(OrderedDict.__iter__(value))))
        else:
            entries = list(map(self._entry, list(base.__iter__(value))))  # another thread may change it
            self.key.append(len(entries))
            self.words.extend((_SEQUENCE, id(value), id(kind), len(entries), *entries))

    def _dict(self, value: dict[Any, Any], by_place: frozenset[str] = frozenset()) -> None:
        """`by_place`: names whose values are not looked into."""
        entries: list[int] = []
        for name, each in list(dict.items(value)):
            entries += self._entry(name), id(each) if name in by_place else self._entry(each)
        self.key.append(len(entries))
        self.words.extend((_DICT, id(value), id(type(value)), len(entries) // 2, *entries))

    def _set(self, value: Any) -> None:
        items = list(set_of(type(value)).__iter__(value))  # another thread may change it
        self.values += len(items)
        values = sorted(filter(is_by_value, items), key=lambda each: (type(each).__name__, hash(each)))
        values += sorted((each for each in items if type(each).__hash__ is object.__hash__), key=id)  # looking them up calls nothing
        self.key.extend((len(items), len(values)))
        self.words.extend((_SET, id(value), len(items), len(values), *[self._entry(each) & ~1 for each in values]))
        others = [each for each in items if not is_by_value(each) and type(each).__hash__ is not object.__hash__]
        if not all(issubclass(type(each), torch.Tensor) for each in others):
            self.behind.update((id(each), each) for each in others)
            self._reading(value, ids_in)

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
        if isinstance(module, torch.jit.ScriptModule):
            raise Untraceable("the attributes of a TorchScript module are in C++, where Python cannot notice their changes")
        if not self._has_modules:
            self._has_modules = True
            for name in _GLOBAL_HOOKS:
                self._item(vars(all_modules), name)
        self.words.extend((_TYPE, id(module), id(type(module)), _OWN_DICT, id(module), id(vars(module))))
        tables = {name: value for name, value in list(vars(module).items()) if name not in _ATTRIBUTES_OF_MODULES and _is_table(value)}
        self._dict(vars(module), _NOT_FOR_CALLS.union(tables))
        self._class_of(module)
        if not tables:
            return

        def look(names: frozenset[str]) -> None:
            for name in tables if ANY_NAME in names else sorted(_shared(names, tables)):
                self._entry(tables[name])

        self._partly.append(_Watch(look))

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
        named = mentioned(code)
        self._attributes |= named.attributes
        self._written |= named.written
        for name in named.globals:
            self._item(function.__globals__, name)
        for name in named.modules:
            package = function.__globals__.get("__package__")
            self._entries(sys.modules[full] for full in (name, f"{package}.{name}") if full in sys.modules)
        if function.__dict__:
            self._names_of(function, function.__dict__)
        else:  # it may get attributes later
            self.words.extend((_SIZE, id(function.__dict__), 0))

    # ---- objects of which only the names mentioned in code matter

    def _names_of(self, value: Any, holder: dict[str, Any]) -> None:
        """An object's own __dict__. A name that is not in it is looked up in the class, until it is set."""
        self.words.extend((_OWN_DICT, id(value), id(holder)))
        kind = type(value)
        if kind not in self._members:
            self._members[kind] = frozenset().union(*map(vars, kind.__mro__))
        members = self._members[kind]

        def look(names: frozenset[str]) -> None:
            for name in sorted(_shared(names, holder) | (names & self._written) | (names & members)):
                self._item(holder, name)

        self.words.extend((_SIZE, id(holder), len(holder)))
        self._partly.append(_Watch(look))

    def _python_module(self, module: types.ModuleType) -> None:
        holder = vars(module)
        if module is os:
            self._partly.append(_Watch(lambda names: self._entries([os.environ] if _ENVIRONMENT.intersection(names) else [])))
        if _is_library(holder.get("__name__")):
            return

        def look(names: frozenset[str]) -> None:
            for name in sorted(_shared(names, holder) | (names & self._written)):
                self._item(holder, name)

        self.words.extend((_SIZE, id(holder), len(holder)))
        self._partly.append(_Watch(look))

    def _class_of(self, value: Any) -> None:
        kind = type(value)
        self.key.append(id(kind))
        if id(kind) not in self.named:
            self.named[id(kind)] = kind
            self._class(kind)

    def _constructors(self, kind: type) -> None:
        """A class that the function may instantiate. Its code leads far: only numbers and the like that it reads itself are compared."""
        for base in kind.__mro__:
            made_by = [] if _is_library(base.__module__) else [vars(base).get(name) for name in _CONSTRUCTORS]
            for each in made_by:
                if type(each) is types.FunctionType:
                    for name in mentioned(each.__code__).globals:
                        if is_by_value(each.__globals__.get(name, _NOTHING)):
                            self._item(each.__globals__, name)

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

        members = _UNMENTIONED.union(*own)

        def look(names: frozenset[str]) -> None:
            for name in sorted(names & members):
                for holder in own:  # super() reads them from the holders after the first one
                    self._item(holder, name)

        for holder in own:
            self.words.extend((_SIZE, id(holder), len(holder)))
        if own:
            self._partly.append(_Watch(look))
            look(frozenset(name for holder in own for name, each in list(holder.items()) if _is_operator(name, each)))

    def _object(self, value: Any) -> None:
        kind = type(value)
        if has_in_class(kind, "__next__") and kind.__module__ in ("builtins", "itertools"):
            self._iterator(value)
        if is_generator(value):
            self.generators.append(value)
        self.words.extend((_TYPE, id(value), id(kind)))
        self._class_of(value)
        if contents_of(value) is not None:
            self._reading(value, contents_of)
        self._attributes_of(value)

    def _iterator(self, value: Any) -> None:
        """Its position, if that can be read without moving it on."""
        kind = type(value)
        if kind is itertools.count:
            self._reading(value, repr)
        elif has_in_class(kind, "__length_hint__"):
            self._reading(value, operator.length_hint)
            for each in gc.get_referents(value):  # what it iterates over
                self._entry_behind(each)
        else:
            raise Untraceable(f"it sees an iterator of type {kind.__name__}, which each call may move on", of_function=True)

    def _attributes_of(self, value: Any) -> None:
        kind = type(value)
        holder = dict_of(value)
        if holder is not None:
            if is_filled_by_a_library(value):
                self.words.extend((_OWN_DICT, id(value), id(holder)))
                self._dict(holder)
            else:
                self._names_of(value, holder)
        slots = {name: each for base in kind.__mro__ for name, each in vars(base).items() if type(each) is types.MemberDescriptorType}
        if not slots or _is_library(kind.__module__):
            return

        def look(names: frozenset[str]) -> None:
            for name in sorted(_shared(names, slots)):
                self.key.append(name)
                self.kept.append(name)
                try:
                    entry = self._entry(slots[name].__get__(value))
                except AttributeError:
                    entry = _NONE
                    self.key.append(None)
                self.words.extend((_ATTRIBUTE, id(value), id(name), entry))

        self._partly.append(_Watch(look))
