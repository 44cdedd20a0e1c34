"""Gives symbols for sizes to the code of running functions, where that goes unnoticed (`_size_flow`), and numbers to all other code."""

import abc
import contextlib
import dis
import math
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch.fx.experimental import sym_node
from torch.utils._device import DeviceContext

from . import _bytecode, _size_flow, _size_values
from ._bytecode import call_at, can_be_followed, instructions_of, names_of, place_of
from ._size_flow import INDEXING, LOSSES, READS, REVIEWED, VIEWS, Flow, reviewed_methods
from ._size_values import (  # fmt: skip
    MOST_ITEMS, NOT_A_TENSORS, NOT_OF_INTS, OTHER, TENSOR, TORCH, Call, Constant, Function, Int, Known, List, Noticed, Object, Read, Value, Variables,
    has_symbol, least, without_paths,
)

_REVIEWED = [
    vars(torch.nn.functional)[name]
    for name in (*REVIEWED, "_list_with_default", "_is_integer", "_pair", "_single", "_triple")
    if name in vars(torch.nn.functional)
]
_KNOWN = {id(each): Known(each.__name__) for each in (*_REVIEWED, isinstance, len, list, tuple, min, max, sum, math.prod)}
_KNOWN |= {id(vars(torch.nn.functional)[name]): Known(name) for name in LOSSES if name in vars(torch.nn.functional)}
_KNOWN |= {id(each): NOT_OF_INTS for each in (torch.Tensor, torch.nn.Parameter, str, float, dict, type(None))}
_MOST_FOUND, _MOST_OF_ATTRIBUTES, _MOST_RETURNS = 4096, 8, 8
_CALLS_OF_MODULES = frozenset((torch.nn.Module._wrapped_call_impl.__code__, torch.nn.Module._call_impl.__code__))
_OURS = os.path.dirname(__file__) + os.sep


def _is_int(value: Any) -> bool:
    return type(value) in (int, torch.SymInt)


def _is_at_least(value: torch.SymInt, bound: int) -> bool:
    """Whether that is known without a guard."""
    node = value.node
    answer = node.ge(node.wrap_int(bound)) if type(node) is torch._C._SymNode else None
    return answer is not None and answer.is_constant() and answer.guard_bool(__file__, 0)


def _kind_of(value: Any) -> Value:
    if type(value) is int:
        return Int(False, least(value))
    if type(value) is torch.SymInt:
        # From another read, which has been followed. If it is 0 at other sizes, and divides there, the program is not for them.
        return Int(False, min(int(str(value.node)), 1) if _is_at_least(value, 0) else None)
    if value is None or type(value) is bool:
        return Constant(value)
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return TENSOR
    if type(value) in (tuple, torch.Size) and len(value) <= MOST_ITEMS and all(map(_is_int, value)):
        return List(tuple(map(_kind_of, value)))
    if value is torch:
        return TORCH
    return _KNOWN.get(id(value), OTHER)


_NOTHING = object()


class _Method(NamedTuple):
    """A function of a class, found by an object of it."""

    function: types.FunctionType
    of: Any


class _Names:
    """Values by name, of the first mapping that has it."""

    def __init__(self, *mappings: Mapping[str, Any]) -> None:
        self._mappings = mappings

    def get(self, name: str) -> Any:
        return next((each[name] for each in self._mappings if name in each), _NOTHING)


def _attribute_of(value: Any, name: str) -> Any:
    """The attribute as Python finds it, except if that runs code."""
    kind = type(value)
    if kind is types.ModuleType:
        return vars(value).get(name, _NOTHING)
    if kind.__getattribute__ is not object.__getattribute__:
        return _NOTHING
    of_class = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), _NOTHING)
    own = getattr(value, "__dict__", None)
    if type(of_class) is types.FunctionType and not (type(own) is dict and name in own):
        return _Method(of_class, value)
    if type(of_class) is not types.FunctionType and (hasattr(type(of_class), "__get__") or hasattr(type(of_class), "__set__")):
        return _NOTHING
    if type(own) is dict and name in own:
        return own[name]
    if of_class is _NOTHING and isinstance(value, torch.nn.Module) and kind.__getattr__ is torch.nn.Module.__getattr__:
        return value._modules.get(name, _NOTHING)
    return of_class


def _elements_of(value: Any) -> dict[str, Any]:
    """By how they are written, of containers whose subscripts and iterators run no code of a user's."""
    if type(value) in (torch.nn.ModuleList, torch.nn.Sequential):
        value = list(value._modules.values())
    if type(value) is torch.nn.ModuleDict:
        return {f"[{name!r}]": each for name, each in value._modules.items()}
    return {f"[{place}]": each for place, each in enumerate(value)} if type(value) in (list, tuple) else {}


def _part_of(value: Any, name: str) -> list[Any]:
    """An attribute, an element, all elements, the names of a function."""
    function = value.function if type(value) is _Method else value
    if name in ("__globals__", "__closure__") and type(function) is types.FunctionType:
        if name == "__globals__":
            return [_Names(function.__globals__, function.__builtins__)]  # type: ignore[attr-defined]
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        return [_Names({name: cell.cell_contents for name, cell in cells.items() if _is_filled(cell)})]
    if type(value) is _Names:
        return [value.get(name)]
    if name == "[*]":
        return list(_elements_of(value).values()) or [_NOTHING]
    return [_elements_of(value).get(name, _NOTHING) if name.startswith("[") else _attribute_of(value, name)]


def _is_foreign(value: Any, method: str) -> bool:
    """Whether the method is known to be neither a tensor's nor a function in Python, which gets numbers where it is not followed."""
    if value is _NOTHING or isinstance(value, torch.Tensor):
        return False
    if type(value) is types.ModuleType or type(value).__getattribute__ is not object.__getattribute__:
        return type(value) is types.ModuleType and type(vars(value).get(method)) is not types.FunctionType
    return type(_attribute_of(value, method)) not in (_Method, types.FunctionType)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not _NOTHING
    except ValueError:
        return False


def _common(kinds: Iterable[Value]) -> Value:
    """The kind of all."""
    different = set(kinds)
    return different.pop() if len(different) == 1 else OTHER


def _calls_forward(module: torch.nn.Module) -> bool:
    """Whether a call of the module does nothing but call its class's forward()."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    is_plain = type(module).__call__ is torch.nn.Module.__call__ and module._compiled_call_impl is None
    return is_plain and "forward" not in vars(module) and not any(hooks) and not torch.nn.modules.module._has_any_global_hook()


def _function_at(path: tuple[str, ...], value: Any) -> Value:
    """What a call of the value runs, if that is a function in Python."""
    if isinstance(value, torch.nn.Module) and _calls_forward(value):
        path, value = (*path, "forward"), _attribute_of(value, "forward")
    function = value.function if type(value) is _Method else value
    if type(function) is not types.FunctionType:
        return OTHER
    code = function.__code__
    defaults = function.__defaults__ or ()
    by_name = dict(zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults))
    by_name.update(function.__kwdefaults__ or {})
    kinds = tuple((name, _kind_of(default)) for name, default in by_name.items())
    return Function(code, path, type(value) is _Method, kinds)


class _Frame:
    """Resolves the names of a running function."""

    def __init__(self, frame: types.FrameType) -> None:
        self._names = names_of(frame.f_code)
        self._locals = frame.f_locals
        self._is_snapshot = sys.version_info < (3, 13)
        self._globals = frame.f_globals
        self._builtins = frame.f_builtins
        self.asked: dict[tuple[str, ...], Value] = {}  # since it was last emptied

    def let_go(self) -> None:
        """Until 3.12, the frame keeps the mapping, and what was in it. Code that may use the mapping itself is not followed."""
        of_frame_here_and_call = 3
        if self._is_snapshot and sys.getrefcount(self._locals) <= of_frame_here_and_call:
            self._locals.clear()  # type: ignore[attr-defined]

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
        names = _Names(self._globals, self._builtins) if path[0] == "" else _Names(self._locals)
        if path[0] == "" and first in self._names.attributes:
            return OTHER
        found = [names.get(first)]
        for name in attributes:
            if name == "()":
                return _common(_function_at(path[:-1], value) for value in found)
            if name.endswith("()"):
                return NOT_A_TENSORS if any(_is_foreign(value, name[:-2]) for value in found) else OTHER
            if name in self._names.attributes:
                return OTHER
            found = [each for value in found for each in _part_of(value, name)]
        kind = _common(map(_kind_of, found))
        return kind if isinstance(kind, (Int, Known)) or kind == TORCH else OTHER

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


class _Outcome(NamedTuple):
    """Of a flow in which symbols go unnoticed."""

    returned: Value
    calls: frozenset[Call]


def _follow(code: types.CodeType, place: int, read: Read, frame: _Frame) -> Optional[_Outcome]:
    try:
        before = _flow_before(code, frame)
        now = frame.all_variables()
        flow = Flow(code, place, before.stack_at(place, now, frame.resolve), now, frame.resolve, read)
        flow.run()
    except (Noticed, IndexError, KeyError):
        return None
    return _Outcome(without_paths(flow.returned), frozenset(flow.calls))


# Results, with the attributes and globals that they depend on.
_Asked = dict[tuple[str, ...], Value]
_found: dict[Any, list[tuple[_Asked, Optional[_Outcome]]]] = {}
_before: dict[Any, list[tuple[_Asked, Flow]]] = {}


def _outcome_of(running: types.FrameType, place: int, read: Read) -> Optional[_Outcome]:
    if not can_be_followed(running.f_code):
        return None
    frame = _Frame(running)
    try:
        return _known_outcome(running.f_code, place, read, frame)
    finally:
        frame.let_go()


def _known_outcome(code: types.CodeType, place: int, read: Read, frame: _Frame) -> Optional[_Outcome]:
    if len(_found) >= _MOST_FOUND:
        _found.clear()
        _before.clear()
    known = _found.setdefault((code, read, frame.kept_variables(), frame.all_variables()), [])
    for asked, outcome in known:
        if all(frame.look(path) == value for path, value in asked.items()):
            return outcome
    frame.asked = {}
    outcome = _follow(code, place, read, frame)
    known[:] = [*known[-_MOST_OF_ATTRIBUTES + 1 :], (dict(frame.asked), outcome)]
    return outcome


def _goes_unnoticed(frame: types.FrameType, place: int, read: Read) -> bool:
    calls: set[Call] = set()
    for _ in range(_MOST_RETURNS):
        outcome = _outcome_of(frame, place, read)
        if outcome is None:
            return False
        calls |= outcome.calls
        if not has_symbol(outcome.returned):
            _approve(calls)
            return True
        caller = _caller_of(frame)
        at = None if caller is None else call_at(caller.f_code, caller.f_lasti)
        if caller is None or at is None or caller.f_code.co_filename.startswith(_OURS):
            return False
        read = Read(instructions_of(caller.f_code)[at].offset, (), frame.f_code, outcome.returned)
        frame, place = caller, at
    return False


# Calls with symbols whose functions were followed, with the parameters that get them.
_approved: dict[tuple[types.CodeType, int, types.CodeType], frozenset[str]] = {}


def _approve(calls: set[Call]) -> None:
    if len(_approved) >= _MOST_FOUND:
        _approved.clear()
    for call in calls:
        _approved[call[:3]] = _approved.get(call[:3], frozenset()) | call.parameters


def _is_approved(frame: types.FrameType, parameters: frozenset[str]) -> bool:
    """Whether symbols go unnoticed in the function that starts."""
    caller = _caller_of(frame)
    at = None if caller is None else call_at(caller.f_code, caller.f_lasti)
    if caller is None or at is None:
        return False
    call = caller.f_code, instructions_of(caller.f_code)[at].offset, frame.f_code
    return parameters <= _approved.get(call, frozenset())


def _caller_of(frame: types.FrameType) -> Optional[types.FrameType]:
    """For forward(): who called its module."""
    caller = frame.f_back
    while caller is not None and caller.f_code in _CALLS_OF_MODULES:
        caller = caller.f_back
    return caller


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
    if code in _reviewed_codes:
        return ALL, True
    unsteady = [is_one and not never_changed for is_one, never_changed in zip(is_symbol, is_steady)]
    for which, symbols in (ALL, is_symbol), (UNSTEADY, unsteady):
        if any(symbols) and _goes_unnoticed(frame, place, Read(instructions[place].offset, tuple(symbols))):
            return which, True
    return (NOWHERE, False) if any(unsteady) else (UNSTEADY, False)


_OF_DEFAULT_DEVICE = DeviceContext.__torch_function__.__code__  # forwards each call of PyTorch's functions
reviewed_methods.add(torch.nn.RNNBase.check_hidden_size.__code__)
_OF_TENSORS = torch.split, vars(torch.Tensor)["split"], vars(torch.Tensor)["unflatten"]
_WITH_SYMBOLS = (*_REVIEWED, *_OF_TENSORS, abc.ABCMeta.__instancecheck__)
_reviewed_codes = {_OF_DEFAULT_DEVICE, *reviewed_methods, *(each.__code__ for each in _WITH_SYMBOLS)}


def gets_symbols(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks one of ours."""
    _reviewed_codes.add(function.__code__)
    return function


# Their functions get symbols. Ours look at variables of the code that runs.
_OF_SYMBOLS = frozenset((sym_node.__file__, torch.__file__, __file__, _bytecode.__file__, _size_values.__file__, _size_flow.__file__))


def _contains_symbol(value: Any) -> bool:
    kind = type(value)
    if kind is slice:
        return any(map(_contains_symbol, (value.start, value.stop, value.step)))
    if kind in (tuple, list, torch.Size) and len(value) <= MOST_ITEMS:
        return any(map(_contains_symbol, value))
    if kind is dict and len(value) <= MOST_ITEMS:
        return any(map(_contains_symbol, value.values()))
    return kind is torch.SymInt


def _with_numbers(value: Any) -> Any:
    kind = type(value)
    if not _contains_symbol(value):
        return value
    if kind is slice:
        return slice(*map(_with_numbers, (value.start, value.stop, value.step)))
    if kind is dict:
        return {name: _with_numbers(each) for name, each in value.items()}
    return int(value) if kind is torch.SymInt else kind(map(_with_numbers, value))


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

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """For code of ours, which looks at symbols. Besides, Python 3.11 may crash in a generator under a profiler that collects garbage."""
        is_watching = self._is_watching and sys.getprofile() == self._enters
        if is_watching:
            sys.setprofile(None)
        try:
            yield
        finally:
            if is_watching:
                sys.setprofile(self._enters)

    def end(self) -> None:
        if self._is_watching and sys.getprofile() == self._enters:
            sys.setprofile(None)
        self._is_watching = False

    @staticmethod
    def _enters(frame: types.FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename in _OF_SYMBOLS or code in _reviewed_codes or code in _CALLS_OF_MODULES:
            return
        if frame.f_back is not None and frame.f_back.f_code.co_filename in _OF_SYMBOLS:  # for example for its logs
            return
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x4) + bool(code.co_flags & 0x8)
        variables = frame.f_locals  # values written here become the function's on return
        changed = {}
        for name in code.co_varnames[:count]:
            value = variables.get(name)
            if _contains_symbol(value):
                changed[name] = value
        if changed and not _is_approved(frame, frozenset(changed)):
            variables.update((name, _with_numbers(value)) for name, value in changed.items())
