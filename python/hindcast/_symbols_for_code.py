"""Gives symbols for sizes to the code of running functions, where that goes unnoticed (`_size_flow`), and numbers to all other code."""

import dis
import sys
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental import sym_node
from torch.utils._device import DeviceContext

from ._size_flow import INDEXING, READS, VIEWS, Flow, can_be_followed, instructions_of, names_of, place_of
from ._size_values import MOST_ITEMS, OTHER, TENSOR, TORCH, TRUSTED_ONE, Int, List, Noticed, Object, Read, Value, Variables, least

# Python functions that are correct with symbols: their code was reviewed.
_TRUSTED = tuple(
    vars(torch.nn.functional)[name] for name in ("_verify_batch_size", "_list_with_default") if name in vars(torch.nn.functional)
)
_MOST_FOUND, _MOST_OF_ATTRIBUTES = 4096, 8


def _is_int(value: Any) -> bool:
    return type(value) in (int, torch.SymInt)


def _kind_of(value: Any) -> Value:
    if type(value) is int:
        return Int(False, least(value))
    if type(value) is torch.SymInt:
        return Int(False, None)  # from another read, which has been followed
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return TENSOR
    if type(value) in (tuple, torch.Size) and len(value) <= MOST_ITEMS and all(map(_is_int, value)):
        return List(tuple(map(_kind_of, value)))
    if value is torch:
        return TORCH
    return TRUSTED_ONE if any(value is each for each in _TRUSTED) else OTHER


_NOTHING = object()


def _attribute_of(value: Any, name: str) -> Any:
    """The attribute as Python finds it, except if that runs code."""
    kind = type(value)
    if kind is types.ModuleType:
        return vars(value).get(name, _NOTHING)
    if kind.__getattribute__ is not object.__getattribute__:
        return _NOTHING
    of_class = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), _NOTHING)
    if hasattr(type(of_class), "__get__") or hasattr(type(of_class), "__set__"):
        return _NOTHING
    own = getattr(value, "__dict__", None)
    if type(own) is dict and name in own:
        return own[name]
    if of_class is _NOTHING and isinstance(value, torch.nn.Module) and kind.__getattr__ is torch.nn.Module.__getattr__:
        return value._modules.get(name, _NOTHING)
    return of_class


class _Frame:
    """Resolves the names of a running function."""

    def __init__(self, frame: types.FrameType) -> None:
        self._names = names_of(frame.f_code)
        self._locals = frame.f_locals
        self._globals = frame.f_globals
        self.asked: dict[tuple[str, ...], Value] = {}  # since it was last emptied

    def variables(self, names: frozenset[str]) -> Variables:
        bound = sorted(name for name in names if name in self._locals)
        return tuple((name, self._variable(name)) for name in bound)

    def _variable(self, name: str) -> Value:
        kind = _kind_of(self._locals[name])
        return Object((name,)) if kind == OTHER else kind

    def kept_variables(self) -> Variables:
        """Variables that have not changed since the start."""
        arguments = self._names.variables - self._names.stored
        return self.variables(arguments)

    def all_variables(self) -> Variables:
        return self.variables(self._names.variables)

    def look(self, path: tuple[str, ...]) -> Value:
        first, *attributes = path[1:] if path[0] == "" else path
        value = (self._globals if path[0] == "" else self._locals).get(first, _NOTHING)
        if path[0] == "" and first in self._names.attributes:
            return OTHER
        for name in attributes:
            value = _NOTHING if name in self._names.attributes else _attribute_of(value, name)
            if value is _NOTHING:
                return OTHER
        kind = _kind_of(value)
        return kind if isinstance(kind, Int) or kind in (TORCH, TRUSTED_ONE) else OTHER

    def resolve(self, path: tuple[str, ...]) -> Value:
        if path not in self.asked:
            self.asked[path] = self.look(path)
        return self.asked[path]


def _flow_before(code: types.CodeType, frame: _Frame) -> Flow:
    """The flow from the start of the code: the same for all reads in it."""
    known = _before.setdefault((code, frame.kept_variables()), [])
    for asked, flow in known:
        if all(frame.look(path) == value for path, value in asked.items()):
            frame.asked.update(asked)
            return flow
    frame.asked = {}
    flow = Flow(code, 0, (), frame.kept_variables(), frame.resolve, None)
    flow.run()
    known[:] = [*known[-_MOST_OF_ATTRIBUTES + 1 :], (dict(frame.asked), flow)]
    return flow


def _follow(code: types.CodeType, place: int, read: Read, frame: _Frame) -> bool:
    try:
        before = _flow_before(code, frame)
        now = frame.all_variables()
        Flow(code, place, before.stack_at(place, now), now, frame.resolve, read).run()
    except (Noticed, IndexError, KeyError):
        return False
    return True


# Results, with the attributes and globals that they depend on.
_Asked = dict[tuple[str, ...], Value]
_found: dict[Any, list[tuple[_Asked, bool]]] = {}
_before: dict[Any, list[tuple[_Asked, Flow]]] = {}


def _goes_unnoticed(code: types.CodeType, place: int, read: Read, frame: _Frame) -> bool:
    if not can_be_followed(code):
        return False
    if len(_found) >= _MOST_FOUND:
        _found.clear()
        _before.clear()
    known = _found.setdefault((code, read, frame.kept_variables(), frame.all_variables()), [])
    for asked, result in known:
        if all(frame.look(path) == value for path, value in asked.items()):
            return result
    frame.asked = {}
    result = _follow(code, place, read, frame)
    known[:] = [*known[-_MOST_OF_ATTRIBUTES + 1 :], (dict(frame.asked), result)]
    return result


def _is_call(instruction: dis.Instruction) -> bool:
    return instruction.opname in ("CALL", "CALL_KW")


NOWHERE, UNSTEADY, ALL = 0, 1, 2  # capture::TracingTensor::Symbols


def takes_symbols(frame: types.FrameType, is_symbol: Sequence[bool], is_steady: Sequence[bool]) -> tuple[int, bool]:
    """Which symbols go unnoticed at the instruction that `frame` is at, which reads a tensor's sizes. True: its code gets them, not only
    PyTorch's C++. `is_steady`: sizes that have never changed."""
    if sys.version_info < (3, 11):
        return NOWHERE, False
    while frame.f_code is _OF_DEFAULT_DEVICE and frame.f_back is not None:
        frame = frame.f_back
    code = frame.f_code
    instructions = instructions_of(code)
    place = place_of(code, frame.f_lasti)
    if place is None:
        return NOWHERE, False
    if instructions[place].opname in INDEXING or (instructions[place].opname == "LOAD_ATTR" and instructions[place].argval in VIEWS):
        return ALL, False
    if instructions[place].opname == "PRECALL":  # makes some calls by itself
        place += 1
    if instructions[place].argval not in READS and not _is_call(instructions[place]):
        return NOWHERE, False
    names = _Frame(frame)
    unsteady = [is_one and not never_changed for is_one, never_changed in zip(is_symbol, is_steady)]
    for which, symbols in (ALL, is_symbol), (UNSTEADY, unsteady):
        if any(symbols) and _goes_unnoticed(code, place, Read(instructions[place].offset, tuple(symbols)), names):
            return which, True
    return (NOWHERE, False) if any(unsteady) else (UNSTEADY, False)


_OF_DEFAULT_DEVICE = DeviceContext.__torch_function__.__code__  # forwards each call of PyTorch's functions
_TRUSTED_CODES = frozenset((_OF_DEFAULT_DEVICE, *(each.__code__ for each in _TRUSTED)))
_OF_SYMBOLS = frozenset((sym_node.__file__, torch.__file__))


def _with_numbers(value: Any) -> Any:
    """The same object, if it contains no symbols."""
    kind = type(value)
    if kind is torch.SymInt:
        return int(value)
    if kind is slice:
        parts = (value.start, value.stop, value.step)
        plain = tuple(map(_with_numbers, parts))
        return value if all(map(_is, parts, plain)) else slice(*plain)
    if kind in (tuple, list, torch.Size) and len(value) <= MOST_ITEMS:
        items = list(map(_with_numbers, value))
        return value if all(map(_is, value, items)) else kind(items)
    return value


def _is(a: Any, b: Any) -> bool:
    return a is b


class NumbersForPython:
    """While alive, Python functions that are called with symbols get numbers: as a profiler it sees each before it runs."""

    def __init__(self) -> None:
        self._is_watching = False

    def watch(self) -> bool:
        """False: another profiler is active."""
        if not self._is_watching and sys.getprofile() is None:
            sys.setprofile(self._enters)
            self._is_watching = True
        return self._is_watching and sys.getprofile() == self._enters

    def end(self) -> None:
        if self._is_watching and sys.getprofile() == self._enters:
            sys.setprofile(None)
        self._is_watching = False

    @staticmethod
    def _enters(frame: types.FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename in _OF_SYMBOLS or code in _TRUSTED_CODES:
            return
        if frame.f_back is not None and frame.f_back.f_code.co_filename in _OF_SYMBOLS:  # for example for its logs
            return
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x4) + bool(code.co_flags & 0x8)
        variables = frame.f_locals  # values written here become the function's on return
        for name in code.co_varnames[:count]:
            value = variables.get(name)
            plain = _with_numbers(value)
            if plain is not value:
                variables[name] = plain
